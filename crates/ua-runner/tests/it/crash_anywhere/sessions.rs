//! A provider that keeps the conversation, and a process that dies anywhere: what is continued from is always the reply of the last
//! committed turn, the provider refuses nothing, and every effect has happened once.

use std::sync::Arc;

use ua_core::{Env, RunStatus};
use ua_llm::{AnthropicConfig, AnthropicProvider, LlmProvider, OpenAiConfig, OpenAiProvider, Script};
use ua_store::{RequestRecord, RequestStatus, RunRecords};
use ua_testkit::{CrashAt, Honours, ModelServer, ModelServerConfig, World, foreign_tool, own_tool};

use super::scenario::Scenario;

/// Reads that run together, effects with a key and one without, and thoughts. One effect in a turn, so that one which is not repeated
/// takes no other one with it.
const SCRIPT: &str = r#"{"turns": [
  {"thinking": "First a look.", "tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}},
                                          {"name": "mcp__ua__read_local_file", "input": {"path": "b.txt"}}]},
  {"text": "Sending, says request {{request}}.", "tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Words of request {{request}}"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done."}}]},
  {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Do everything once."}"#;

const EFFECTS: [&str; 3] = ["send_email", "post_comment", "notify"];

/// A scenario whose model is behind the Responses API.
struct Kept {
    scenario: Scenario,
    server: ModelServer,
}

impl Kept {
    async fn new(keep_replies: bool) -> Self {
        Self::asking(|base_url, env| {
            let config = OpenAiConfig {
                base_url: base_url.to_owned(),
                keep_replies,
                ..OpenAiConfig::new("a-key".to_owned().into())
            };
            Arc::new(OpenAiProvider::new(config, env.clone()).unwrap())
        })
        .await
    }

    async fn asking(provider: impl FnOnce(&str, &Env) -> Arc<dyn LlmProvider>) -> Self {
        let config = ModelServerConfig::new(Script::parse(SCRIPT).unwrap());
        let server = ModelServer::start(config).await.unwrap();
        let own = ["send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
        let read = [(own_tool("read_local_file"), Honours::Nothing)];
        let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
        let world = World::new(own.into_iter().chain(read).chain(opaque));
        let env = Env::simulated(42);
        let provider = provider(&server.base_url, &env);
        let mut scenario = Scenario::with(world, env, SCRIPT, JOB, None).asking(provider);
        scenario.model = "gpt-5";
        Self { scenario, server }
    }

    async fn crash_points() -> Vec<CrashAt> {
        let kept = Self::new(true).await;
        let (crossings, run) = Box::pin(kept.scenario.run_without_crash()).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
        Box::pin(check(&kept.scenario, &kept.scenario, "without a crash")).await;
        (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
    }

    /// How many requests the provider refused.
    fn refused(&self) -> usize {
        self.server.log().iter().filter(|request| request.status == 400).count()
    }
}

/// The run ended well, and the world has one of each effect.
async fn check(run: &Scenario, first: &Scenario, at: &str) -> RunRecords {
    let ended = run.finish_by_looking().await;
    assert_eq!(ended.status, RunStatus::Succeeded, "{at}: {:?}", ended.status_detail);
    for effect in EFFECTS {
        assert_eq!(first.world.count(effect), 1, "{effect} at {at}");
    }
    run.check_invariants(at).await;
    run.records().await
}

/// The reply of a turn, own or shared.
fn reply_of(records: &RunRecords, turn: u32) -> Option<String> {
    let mut turns = records.lineage.turns.iter().chain(&records.turns);
    turns.find(|record| record.turn == turn)?.reply.response_id.clone()
}

/// Every request continued from the reply of the turn before, and nothing but a turn's own request brought its reply.
fn check_chain(records: &RunRecords, at: &str) {
    for request in &records.requests {
        assert_eq!(request.continued_from, reply_of(records, request.turn - 1), "{request:?} at {at}");
    }
    for turn in &records.turns {
        let is_its = |request: &&RequestRecord| request.turn == turn.turn && request.status == RequestStatus::Actual;
        let request = records.requests.iter().find(is_its).unwrap();
        assert_eq!(request.response_id, turn.reply.response_id, "{at}");
        assert!(request.response_id.is_some(), "{at}");
    }
    assert_eq!(records.run.provider_session_id, reply_of(records, records.run.turn_index), "{at}");
}

#[tokio::test]
async fn only_a_committed_reply_is_continued_from_wherever_we_die() {
    let mut lost = 0;
    for at in Kept::crash_points().await {
        let kept = Kept::new(true).await;
        kept.scenario.crash(at).await;
        let at = format!("{at:?}");
        let records = check(&kept.scenario, &kept.scenario, &at).await;
        check_chain(&records, &at);
        assert_eq!(kept.refused(), 0, "{at}: {:?}", kept.server.log());
        // A reply that began and was lost: its name is known, and nobody goes on from it.
        let began = |request: &&RequestRecord| {
            let is_lost = matches!(request.status, RequestStatus::Baseline | RequestStatus::Partial);
            is_lost && request.response_id.is_some()
        };
        for request in records.requests.iter().filter(began) {
            lost += 1;
            assert!(records.requests.iter().all(|other| other.continued_from != request.response_id), "{at}");
        }
    }
    assert!(lost >= 8, "a kill after the first event leaves the reply's name behind: {lost}");
}

#[tokio::test]
async fn a_second_death_changes_nothing() {
    for (index, first) in Kept::crash_points().await.into_iter().enumerate().step_by(5) {
        let kept = Kept::new(true).await;
        kept.scenario.crash(first).await;
        let second = CrashAt::After((index * 5 % 19) as u64);
        kept.scenario.crash(second).await;
        let at = format!("{first:?} then {second:?}");
        let records = check(&kept.scenario, &kept.scenario, &at).await;
        check_chain(&records, &at);
        assert_eq!(kept.refused(), 0, "{at}");
    }
}

#[tokio::test]
async fn a_fork_goes_on_from_its_last_shared_turn_and_leaves_the_parents_conversation_alone() {
    let mut forked = 0;
    for at in Kept::crash_points().await.into_iter().step_by(3) {
        let kept = Kept::new(true).await;
        kept.scenario.crash(at).await;
        let Some(fork) = kept.scenario.forked("run_fork").await else { continue };
        let at = format!("{at:?}");
        let of_fork = check(&fork, &kept.scenario, &at).await;
        let of_parent = check(&kept.scenario, &kept.scenario, &at).await;
        for records in [&of_fork, &of_parent] {
            check_chain(records, &at);
        }
        let shared = of_fork.run.shared_turns();
        assert_eq!(
            of_fork.run.provider_session_forked_from,
            reply_of(&of_parent, shared).filter(|_| shared > 0),
            "{at}"
        );
        forked += usize::from(shared > 0);
        assert_eq!(kept.refused(), 0, "{at}");
    }
    assert!(forked > 10, "{forked}");
}

#[tokio::test]
async fn a_fork_with_another_job_tells_everything() {
    let kept = Kept::new(true).await;
    kept.scenario.run_without_crash().await;
    let fork = kept.scenario.forked_with("run_fork", 2, |spec| spec.objective = "Do it again.".to_owned()).await;
    let ended = fork.finish_by_looking().await;
    assert_eq!(ended.status, RunStatus::Succeeded, "{:?}", ended.status_detail);
    let records = fork.records().await;
    assert_eq!(records.requests[0].continued_from, None, "the parent's conversation is about another job");
    assert_eq!(records.requests[1].continued_from, records.requests[0].response_id);
    assert_eq!(kept.refused(), 0);
}

#[tokio::test]
async fn a_provider_that_has_forgotten_is_told_everything_once_more() {
    let mut forgotten = 0;
    for at in Kept::crash_points().await.into_iter().step_by(3) {
        let kept = Kept::new(true).await;
        kept.scenario.crash(at).await;
        kept.server.forget_replies();
        let at = format!("{at:?}");
        let records = check(&kept.scenario, &kept.scenario, &at).await;
        // One request was refused, which cost nothing; the next one had the whole history; the others went on from there.
        let refused: Vec<&RequestRecord> =
            records.requests.iter().filter(|request| request.status == RequestStatus::Zero).collect();
        assert_eq!(refused.len(), kept.refused(), "{at}");
        assert!(refused.len() <= 1, "{at}");
        for request in refused {
            forgotten += 1;
            assert_eq!((request.usage.total(), request.response_id.as_deref()), (0, None), "{at}");
            let after = |other: &&RequestRecord| other.request_id > request.request_id;
            let next: Vec<&RequestRecord> = records.requests.iter().filter(after).collect();
            assert_eq!((next[0].turn, next[0].continued_from.as_deref()), (request.turn, None), "{at}");
            assert_eq!(next[0].estimated_tokens, request.estimated_tokens, "{at}");
            assert!(next[1..].iter().all(|other| other.continued_from.is_some()), "{at}");
        }
    }
    assert!(forgotten > 10, "{forgotten}");
}

#[tokio::test]
async fn what_is_left_out_of_a_history_is_not_left_with_the_provider() {
    for at in [None].into_iter().chain(Kept::crash_points().await.into_iter().step_by(5).map(Some)) {
        let mut kept = Kept::new(true).await;
        kept.scenario.set_job(serde_json::json!({"objective": "Do everything once. ".repeat(150), "settings": {"history_max_tokens": 1_000}}));
        if let Some(at) = at {
            kept.scenario.crash(at).await;
        }
        let at = format!("{at:?}");
        let records = check(&kept.scenario, &kept.scenario, &at).await;
        assert_eq!(kept.refused(), 0, "{at}");
        let told_anew = records.requests.iter().filter(|request| request.turn > 1 && request.continued_from.is_none());
        assert!(told_anew.count() > 0, "the middle was left out, so the conversation begins anew at {at}");
    }
}

#[tokio::test]
async fn without_sessions_nothing_is_kept_and_no_name_is_stored() {
    let kept = Kept::new(false).await;
    let (_, run) = kept.scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    let records = kept.scenario.records().await;
    assert!(records.requests.iter().all(|request| request.continued_from.is_none() && request.response_id.is_none()));
    assert_eq!((kept.server.kept_replies(), kept.refused()), (Vec::new(), 0));
    assert!(kept.server.log().iter().all(|request| request.continued_from.is_none()));
}

#[tokio::test]
async fn a_provider_that_looks_refuses_nothing_wherever_we_die() {
    let anthropic = |base_url: &str, env: &Env| -> Arc<dyn LlmProvider> {
        let config =
            AnthropicConfig { base_url: base_url.to_owned(), ..AnthropicConfig::new("a-key".to_owned().into()) };
        Arc::new(AnthropicProvider::new(config, env.clone()).unwrap())
    };
    for (index, at) in Kept::crash_points().await.into_iter().step_by(3).enumerate() {
        let kept = if index % 2 == 0 { Kept::asking(anthropic).await } else { Kept::new(false).await };
        kept.scenario.crash(at).await;
        // Half of the doubts are left as they are: the model is told that nobody knows.
        let at = format!("{at:?}");
        if index % 4 < 2 {
            check(&kept.scenario, &kept.scenario, &at).await;
        } else {
            kept.scenario.resume_to_the_end(super::scenario::Answers::Skip).await;
        }
        assert_eq!(kept.refused(), 0, "{at}: {:?}", kept.server.log());
    }
}
