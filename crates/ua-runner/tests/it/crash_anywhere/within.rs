//! A run whose tool has another run do its work (`AwaitedRun`): wherever the process that drives both dies, what is to be done is done once, the tool is
//! called again under its key, and the person is asked by the run within, never about the call of the run above.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use ua_core::{AwaitedRun, CallStatus, Env, RunId, RunStatus, RunStop, ToolAnnotations, ToolSpec};
use ua_dispatch::{LocalCall, LocalFailure, LocalTools, StopSignal};
use ua_ledger::PeopleRules;
use ua_llm::{LlmProvider, Script, ScriptedProvider};
use ua_runner::Conclusion;
use ua_store::{
    Answer, Choice, LedgerStore as _, MemStore, NewAnswer, QuestionKind, RunRecord, RunStore as _, Store, invariants,
};
use ua_testkit::{CrashAt, CrashPlan, Honours, StoreSeam, World, foreign_tool, own_tool};

use super::process::{Process, folder, new_run};

const ABOVE: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__program__delegate", "input": {"what": "the report, says request {{request}}"}}]},
  {"text": "All done."}
]}"#;

const WITHIN: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Version {{request}}"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done, says request {{request}}"}}]},
  {"text": "Sent it."}
]}"#;

const POLICY: &str = r#"
[[rule]]
id = "delegate"
server = "program"
name = "delegate"
side_effect_class = "external"
key_channel = "meta"

[[rule]]
id = "comment"
server = "forum"
name = "post_comment"
side_effect_class = "external"
approval = "ask"
"#;

/// What the run within does, once each.
const EFFECTS: [&str; 2] = ["send_email", "post_comment"];

/// Both runs, in one database, and what their processes have in common.
#[derive(Clone)]
struct Pair {
    store: Arc<MemStore>,
    world: Arc<World>,
    models: [Arc<dyn LlmProvider>; 2],
    env: Env,
    folder: Arc<tempfile::TempDir>,
    /// The keys that the tool was called under.
    keys: Arc<Mutex<BTreeSet<String>>>,
}

fn above() -> RunId {
    RunId::parse("run_above").unwrap()
}

fn within() -> RunId {
    RunId::parse("run_within").unwrap()
}

fn people(people: PeopleRules) -> PeopleRules {
    PeopleRules { taint: people.taint, ..PeopleRules::default() }
}

impl Pair {
    fn new() -> Self {
        let tools =
            [(own_tool("send_email"), Honours::Keys), (foreign_tool("forum", "post_comment"), Honours::Nothing)];
        let model =
            |script: &str| -> Arc<dyn LlmProvider> { Arc::new(ScriptedProvider::new(Script::parse(script).unwrap())) };
        Self {
            store: Arc::default(),
            world: Arc::new(World::new(tools)),
            models: [model(ABOVE), model(WITHIN)],
            env: Env::simulated(29),
            folder: Arc::new(folder()),
            keys: Arc::default(),
        }
    }

    /// One process's life; `None` if it died.
    async fn live(&self, plan: &Arc<CrashPlan>) -> Option<RunRecord> {
        let store: Arc<dyn Store> = Arc::new(StoreSeam::new(self.store.clone(), plan.clone()));
        tokio::select! {
            biased;
            () = plan.death() => None,
            run = self.drive(store, plan.clone()) => Some(run),
        }
    }

    async fn drive(&self, store: Arc<dyn Store>, plan: Arc<CrashPlan>) -> RunRecord {
        let process = Process {
            tools: self.world.clone(),
            store,
            llm: self.models[1].clone(),
            plan,
            env: self.env.clone(),
            stop: StopSignal::default(),
            policy: Some(POLICY.to_owned()),
            model: "scripted",
            prices: None,
            above: None,
        };
        let (pair, inner) = (self.clone(), process.clone());
        let delegate = ToolSpec {
            name: foreign_tool("program", "delegate"),
            description: "Has it done.".to_owned(),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        let tools = LocalTools::new(self.env.clone())
            .with(delegate, move |call: LocalCall| pair.clone().have_done(inner.clone(), call));
        let process = Process { tools: Arc::new(tools), llm: self.models[0].clone(), ..process };
        self.submitted(&*process.store, &above(), "Have it done.").await;
        process.drive(&above(), people, None).await.unwrap().1
    }

    async fn submitted(&self, store: &dyn Store, run: &RunId, objective: &str) -> RunRecord {
        if let Ok(known) = store.run(run).await {
            return known;
        }
        let workspace = self.folder.path().join(run.as_str());
        let new = new_run(run, &json!({"objective": objective}), &workspace, &self.env);
        store.submit_run(new).await.unwrap()
    }

    /// The tool: what the program's own code does with a call of it.
    async fn have_done(self, process: Process, call: LocalCall) -> Result<Value, LocalFailure> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(call.key().to_owned());
        let run = self.submitted(&*process.store, &within(), "Send it.").await;
        let ended = if run.status.is_terminal() {
            run
        } else {
            match process.drive(&within(), people, None).await.unwrap() {
                (Conclusion::Waiting { question }, _) => {
                    let question = Some(question.question_id.clone());
                    let detail = "a person is asked".to_owned();
                    let reason = RunStop::Interrupt;
                    return Err(LocalFailure::Waits(Box::new(AwaitedRun {
                        run_id: within(),
                        question,
                        reason,
                        detail,
                    })));
                }
                (_, run) => run,
            }
        };
        Ok(json!(ended.status.as_str()))
    }

    /// Answers what is open, by looking outside; returns what was asked.
    async fn answer(&self, at: &str) -> Vec<QuestionKind> {
        let mut kinds = Vec::new();
        for question in self.store.open_questions(None).await.unwrap() {
            assert_eq!(question.run_id, within(), "{at}: {}", question.text);
            let happened = question.kind == QuestionKind::UnknownOutcome && self.world.count("post_comment") > 0;
            let choice = if happened { Choice::Happened } else { Choice::Execute };
            let (by, now) = ("a tester".to_owned(), self.env.now());
            let answer = Answer::new(choice);
            let answer = NewAnswer { question_id: question.question_id.clone(), answer, by, at: now };
            self.store.insert_answer(answer).await.unwrap();
            kinds.push(question.kind);
        }
        kinds
    }

    /// Resumes to the end, and returns what was asked on the way.
    async fn to_the_end(&self, at: &str) -> Vec<QuestionKind> {
        let mut asked = Vec::new();
        for _ in 0..6 {
            let run = match self.store.run(&above()).await {
                Ok(run) if run.status.is_terminal() => run,
                Ok(_) | Err(_) => self.live(&Arc::new(CrashPlan::new(None))).await.expect("nothing kills it"),
            };
            if run.status != RunStatus::WaitingForHuman {
                assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
                return asked;
            }
            let kinds = self.answer(at).await;
            assert!(!kinds.is_empty(), "{at}: it waits for nothing");
            asked.extend(kinds);
        }
        panic!("{at}: it is asked again and again: {asked:?}");
    }

    /// Everything is there once, and whoever was asked was asked by the run within.
    async fn check(&self, at: &str) {
        for effect in EFFECTS {
            assert_eq!(self.world.count(effect), 1, "{at}: {effect}");
        }
        assert_eq!(self.keys.lock().unwrap_or_else(PoisonError::into_inner).len(), 1, "{at}: it has one key");
        let mut family = Vec::new();
        for run in [above(), within()] {
            let records = self.store.load(&run).await.unwrap();
            assert_eq!(records.run.status, RunStatus::Succeeded, "{at}: {run}");
            assert!(records.calls.iter().all(|call| call.status == CallStatus::Succeeded), "{at}: {:?}", records.calls);
            let mut events = Vec::new();
            for call in &records.calls {
                events.extend(self.store.events(&call.call_id).await.unwrap());
            }
            assert_eq!(invariants::check(&records, &events), [], "{at}: {run}");
            assert_eq!(invariants::check_agreement(&records, &events), [], "{at}: {run}");
            family.push(records);
        }
        assert_eq!(invariants::check_family(&family), [], "{at}");
        let [above, within] = family.as_slice() else { panic!("{at}") };
        assert_eq!((above.calls.len(), above.questions.len(), within.calls.len()), (1, 0, 2), "{at}");
    }
}

/// The pair before the life that is to die: none was there before the first, and the person has approved what was to be approved before the second.
async fn before(life: usize) -> Pair {
    let pair = Pair::new();
    if life == 1 {
        let run = pair.live(&Arc::new(CrashPlan::new(None))).await.unwrap();
        assert_eq!(run.status, RunStatus::WaitingForHuman);
        assert_eq!(pair.answer("the first life").await, [QuestionKind::Approval]);
    }
    pair
}

#[tokio::test]
async fn a_run_within_a_call_is_taken_up_wherever_we_die() {
    let (mut again, mut taken_up) = (0, 0);
    for life in 0..2 {
        let plan = Arc::new(CrashPlan::new(None));
        before(life).await.live(&plan).await.unwrap();
        let crossings = plan.crossings();
        assert!(crossings > 8, "life {life} crosses too few seams to prove anything: {crossings}");
        for (number, first) in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).enumerate() {
            // The process that comes then dies as well, somewhere, in every other case.
            let place = (number as u64 * 7) % crossings;
            let second = [None, Some(CrashAt::Before(place)), None, Some(CrashAt::After(place))][number % 4];
            let at = format!("life {life}, {first:?}, then {second:?}");
            let pair = before(life).await;
            let mut was_sent = false;
            for death in std::iter::once(first).chain(second) {
                let is_over = pair.store.run(&above()).await.is_ok_and(|run| run.status.is_terminal());
                if is_over {
                    continue;
                }
                pair.live(&Arc::new(CrashPlan::new(Some(death)))).await;
                let calls = pair.store.calls(&within(), None).await.unwrap_or_default();
                let in_flight = |tool: &str| {
                    calls.iter().any(|call| {
                        call.name.tool == tool && matches!(call.status, CallStatus::Running | CallStatus::Unknown)
                    })
                };
                was_sent |= in_flight("post_comment");
            }
            let call = pair.store.calls(&above(), None).await.unwrap_or_default().pop();
            let attempt = call.as_ref().map_or(0, |call| call.attempt);
            let has_handle = match &call {
                Some(call) if call.status == CallStatus::Running => {
                    let attempts = pair.store.attempts(&call.call_id).await.unwrap();
                    attempts.last().is_some_and(|attempt| attempt.live_handle().is_some())
                }
                Some(_) | None => false,
            };
            let asked = pair.to_the_end(&at).await;
            pair.check(&at).await;
            let of_kind = |kind: QuestionKind| asked.iter().filter(|asked| **asked == kind).count();
            assert_eq!(of_kind(QuestionKind::Approval), 1 - life, "{at}: {asked:?}");
            assert!(of_kind(QuestionKind::UnknownOutcome) <= usize::from(was_sent), "{at}: {asked:?}");
            assert_eq!(asked.len(), of_kind(QuestionKind::Approval) + of_kind(QuestionKind::UnknownOutcome), "{at}");
            let ended = pair.store.calls(&above(), None).await.unwrap().remove(0);
            // A call whose run was known to wait is the same attempt still; one that was lost is sent again under its key.
            if has_handle {
                assert_eq!(ended.attempt, attempt, "{at}");
                taken_up += 1;
            }
            again += u32::from(ended.attempt > 1);
        }
    }
    assert!(again > 8 && taken_up > 4, "{again} were called again, {taken_up} taken up: too few to prove anything");
}
