//! Calls whose outcome is lost and that can be asked about, or that the run goes on without: wherever the process dies, also while
//! it asks, between the asking and the repeat, and when nobody dies but the answer never comes.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::sync::Arc;
use std::time::Duration;

use ua_core::{CallStatus, Clock, Env, Resolution, RunStatus, SeededEntropy, SimClock, Sleep, Timestamp};
use ua_dispatch::StopSignal;
use ua_store::{CallRecord, Choice, QuestionStatus, ReplayStatus};
use ua_testkit::{CrashAt, Honours, ToolOutcome, World, foreign_tool, own_tool};

use super::scenario::Scenario;

const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__tracker__create_ticket", "input": {"title": "Fix it", "body": "As of request {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "ticket {{request}}"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Filed, says request {{request}}"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "File a ticket and say so."}"#;

/// How long after it was done the world shows a ticket.
const LAG: Duration = Duration::from_secs(20);

/// The ticket can be asked about, the comment is gone on without.
fn policy(horizon: &str, settle: &str) -> String {
    format!(
        r#"
[[rule]]
id = "ticket"
server = "tracker"
name = "create_ticket"
side_effect_class = "external"
on_unknown = "probe"
horizon = "{horizon}"
marker = {{ argument = "body", append = "\n\nref {{key}}" }}
[rule.probe]
tool = "list_tickets"
found = {{ items = "items", field = "arguments.body", contains = "{{key}}", id = "id" }}
absent = {{ complete = {{ field = "more", equals = false }} }}
settle = "{settle}"

[[rule]]
id = "comment"
server = "forum"
name = "post_comment"
side_effect_class = "external"
on_unknown = "continue"
"#
    )
}

fn world(env: &Env) -> World {
    let tools = [
        (foreign_tool("tracker", "create_ticket"), Honours::Nothing),
        (foreign_tool("forum", "post_comment"), Honours::Nothing),
        (own_tool("notify"), Honours::Keys),
    ];
    World::new(tools).listing(foreign_tool("tracker", "list_tickets"), "create_ticket", env, LAG)
}

fn scenario_with(horizon: &str, settle: &str) -> Scenario {
    let env = Env::simulated(7);
    Scenario::with(world(&env), env, SCRIPT, JOB, Some(&policy(horizon, settle)))
}

pub(crate) fn scenario() -> Scenario {
    scenario_with("10s", "15s")
}

pub(crate) async fn crash_points() -> Vec<CrashAt> {
    let scenario = scenario();
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    assert!(crossings > 15, "{crossings}");
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

async fn call(scenario: &Scenario, tool: &str) -> CallRecord {
    scenario.calls().await.into_iter().find(|call| call.name.tool == tool).unwrap()
}

/// What must hold at the end: the run needed nobody, the ticket and the notification are there once, the comment at most once.
async fn check(scenario: &Scenario, at: &str) {
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
    assert_eq!(scenario.world.count("create_ticket"), 1, "{at}");
    assert_eq!(scenario.world.count("notify"), 1, "{at}");
    assert!(scenario.world.count("post_comment") <= 1, "{at}");
    let ticket = call(scenario, "create_ticket").await;
    assert_eq!(ticket.status, CallStatus::Succeeded, "{at}");
    let asked: Vec<_> =
        scenario.questions().await.into_iter().filter(|q| q.call_id == Some(ticket.call_id.clone())).collect();
    assert_eq!(asked, [], "{at}");
    scenario.check_invariants(at).await;
}

#[tokio::test]
async fn a_call_that_can_be_asked_about_happens_once_wherever_we_die() {
    let (mut found, mut redone, mut gone_on) = (0, 0, 0);
    for at in crash_points().await {
        let scenario = scenario();
        scenario.crash(at).await;
        check(&scenario, &format!("{at:?}")).await;
        match call(&scenario, "create_ticket").await.replay_status {
            Some(ReplayStatus::Reconciled) => found += 1,
            Some(ReplayStatus::Redone) => redone += 1,
            _ => {}
        }
        let comment = call(&scenario, "post_comment").await;
        if comment.status == CallStatus::Unknown {
            gone_on += 1;
            assert_eq!(comment.resolution, Some(Resolution::Skipped), "{at:?}");
            assert!(scenario.told_the_model("post_comment").await.contains("Do not repeat"), "{at:?}");
            assert_eq!(scenario.questions().await[0].status, QuestionStatus::Open, "{at:?}");
        }
    }
    // Sent and not answered; never sent; and the comment between RUNNING and its receipt.
    assert!(found >= 2 && redone >= 2 && gone_on >= 3, "{found} {redone} {gone_on}");
}

#[tokio::test]
async fn a_second_crash_while_asking_or_before_the_repeat_changes_nothing() {
    let mut asks = 0;
    for first in crash_points().await {
        let probe = scenario();
        probe.crash(first).await;
        let in_flight = probe.calls().await.into_iter().find(|c| c.status == CallStatus::Running);
        if in_flight.is_none_or(|call| call.name.tool != "create_ticket") {
            continue; // the other crashes are told in `main.rs`
        }
        for second in 0..24 {
            for at in [CrashAt::Before(second), CrashAt::After(second)] {
                let scenario = scenario();
                scenario.crash(first).await;
                scenario.crash(at).await;
                asks += scenario.world.log().iter().filter(|line| line.starts_with("ask")).count();
                check(&scenario, &format!("{first:?} then {at:?}")).await;
            }
        }
    }
    assert!(asks > 20, "{asks}");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_looked_up_in_the_same_process() {
    for (loss, status) in
        [(ToolOutcome::LostAfter, ReplayStatus::Reconciled), (ToolOutcome::LostBefore, ReplayStatus::Redone)]
    {
        let scenario = scenario();
        scenario.world.next("create_ticket", loss);
        let before = scenario.env.now();
        check(&scenario, &format!("{loss:?}")).await;
        let ticket = call(&scenario, "create_ticket").await;
        assert_eq!(ticket.replay_status, Some(status));
        // The fence comes first. Not there: it is asked again once the answer counts, and only then is anything sent again.
        let again: &[&str] = if loss == ToolOutcome::LostBefore { &["invoke create_ticket"] } else { &[] };
        let expected = ["invoke create_ticket", "fence tracker", "ask list_tickets", "ask list_tickets"];
        let log = scenario.world.log();
        let first: Vec<&str> = log.iter().map(String::as_str).take(4 + again.len()).collect();
        assert_eq!(first, [&expected[..], again].concat());
        assert!(scenario.env.now().since(before) >= Duration::from_secs(25));
    }
}

#[tokio::test]
async fn what_a_probe_found_is_the_receipt() {
    let scenario = scenario();
    scenario.world.next("create_ticket", ToolOutcome::LostAfter);
    check(&scenario, "found").await;
    let ticket = call(&scenario, "create_ticket").await;
    assert_eq!((ticket.attempt, ticket.resolution), (1, Some(Resolution::Reconciled)));
    assert_eq!(ticket.external_correlation_id.as_deref(), Some("create_ticket-0"));
    let told = scenario.told_the_model("create_ticket").await;
    assert!(told.contains("mcp__tracker__list_tickets") && told.contains("create_ticket-0"), "{told}");
}

/// The rule broken once: absence counted before the other side can show what it did.
#[tokio::test]
async fn the_harness_sees_an_absence_that_is_believed_too_early() {
    let mut duplicates = 0;
    for at in crash_points().await {
        let scenario = scenario_with("1ms", "1ms");
        scenario.crash(at).await;
        scenario.resume().await;
        duplicates += usize::from(scenario.world.count("create_ticket") > 1);
    }
    assert!(duplicates > 0, "an absence that was believed too early went unnoticed");
}

#[tokio::test]
async fn a_probe_that_counts_only_much_later_holds_and_any_later_resume_asks_again() {
    for loss in [ToolOutcome::LostAfter, ToolOutcome::LostBefore] {
        let scenario = scenario_with("2h", "15s");
        scenario.world.next("create_ticket", loss);
        let run = scenario.resume().await;
        assert_eq!(run.status, RunStatus::WaitingForHuman);
        let question = scenario.questions().await.remove(0);
        assert!(question.text.contains("cannot be decided before"), "{}", question.text);
        // Too early again, if it is not there: the same question, and nothing is sent.
        if loss == ToolOutcome::LostBefore {
            assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
            assert_eq!((scenario.world.count("create_ticket"), scenario.questions().await.len()), (0, 1));
        }
        scenario.env.clock.sleep_blocking_for_tests(Duration::from_hours(3));
        let run = scenario.resume().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
        assert_eq!(scenario.world.count("create_ticket"), 1);
        assert_eq!(scenario.questions().await[0].status, QuestionStatus::Closed);
    }
}

#[tokio::test]
async fn it_did_not_happen_is_executed_only_after_the_horizon() {
    let scenario = scenario_with("2h", "15s");
    scenario.world.next("create_ticket", ToolOutcome::LostBefore);
    assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
    let question = scenario.questions().await.remove(0);
    scenario.choose(&question, Choice::Execute).await;
    assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
    assert_eq!(scenario.world.count("create_ticket"), 0, "two hours have not passed");
    // What is left is short enough to be waited for.
    scenario.env.clock.sleep_blocking_for_tests(Duration::from_mins(118));
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
    assert_eq!(scenario.world.count("create_ticket"), 1);
}

#[tokio::test]
async fn attempts_that_a_probe_allows_are_counted_and_end_in_a_question() {
    let scenario = scenario();
    for _ in 0..20 {
        scenario.world.next("create_ticket", ToolOutcome::LostBefore);
    }
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman);
    let ticket = call(&scenario, "create_ticket").await;
    assert!(ticket.attempt > 1 && ticket.attempt < 20, "{}", ticket.attempt);
    let question = scenario.questions().await.remove(0);
    assert!(question.text.contains("tried as often as is allowed"), "{}", question.text);
    let often = format!(" Its tool may have got it {} times, the last time at ", ticket.attempt);
    assert!(question.text.contains(&often), "{}", question.text);
    assert_eq!(scenario.world.count("create_ticket"), 0);
}

/// A clock on which nobody can wait to the end: who tries is asked to stop.
#[derive(Debug)]
struct ImpatientClock {
    inner: SimClock,
    stop: StopSignal,
}

impl Clock for ImpatientClock {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn sleep(&self, _span: Duration) -> Sleep {
        self.stop.stop_gently();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_an_answer_that_counts() {
    let stop = StopSignal::default();
    let clock = ImpatientClock { inner: SimClock::default(), stop: stop.clone() };
    let env = Env { clock: Arc::new(clock), entropy: Arc::new(SeededEntropy::new(7)) };
    let mut scenario = Scenario::with(world(&env), env, SCRIPT, JOB, Some(&policy("10s", "15s")));
    scenario.stop = stop;
    scenario.world.next("create_ticket", ToolOutcome::LostBefore);
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::Stopped, "{:?}", run.status_detail);
    assert_eq!(call(&scenario, "create_ticket").await.status, CallStatus::Unknown);
    assert_eq!((scenario.world.count("create_ticket"), scenario.questions().await.len()), (0, 0));
}

/// A run whose one keyed call was sent and not answered, in a process that is gone.
async fn keyed_in_flight(script: &str, policy: Option<&str>) -> Scenario {
    for at in 0.. {
        let env = Env::simulated(7);
        let tools = [(foreign_tool("forum", "post_comment"), Honours::Keys), (own_tool("upload"), Honours::Keys)];
        let scenario = Scenario::with(World::new(tools), env, script, JOB, policy);
        scenario.crash(CrashAt::After(at)).await;
        let calls = scenario.calls().await;
        if calls.iter().any(|call| call.status == CallStatus::Running) && !scenario.world.deliveries().is_empty() {
            return scenario;
        }
        assert!(at < 60, "no crash leaves the call in flight");
    }
    unreachable!("the loop ends by itself")
}

#[tokio::test]
async fn a_key_that_may_be_forgotten_is_not_used_again() {
    let policy = "[[rule]]\nid = \"keyed\"\nserver = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n\
                  key_channel = \"meta\"\nkey_ttl = \"1h\"\n";
    let script =
        r#"{"turns": [{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Hi"}}]}, {"text": "Done."}]}"#;
    for (later, expected) in
        [(Duration::from_mins(59), RunStatus::Succeeded), (Duration::from_mins(61), RunStatus::WaitingForHuman)]
    {
        let scenario = keyed_in_flight(script, Some(policy)).await;
        scenario.env.clock.sleep_blocking_for_tests(later);
        assert_eq!(scenario.resume().await.status, expected, "{later:?}");
        assert_eq!(scenario.world.count("post_comment"), 1);
        if expected == RunStatus::WaitingForHuman {
            assert!(scenario.questions().await[0].text.contains("forgotten its key"));
        }
    }
}

#[tokio::test]
async fn a_keyed_call_whose_file_changed_is_not_sent_again() {
    let script = r#"{"turns": [{"tools": [{"name": "mcp__ua__upload", "input": {"path": "a.txt", "destination": "file:///s"}}]}, {"text": "Done."}]}"#;
    for (text, expected) in [(None, RunStatus::Succeeded), (Some("other bytes"), RunStatus::WaitingForHuman)] {
        let scenario = keyed_in_flight(script, None).await;
        if let Some(text) = text {
            std::fs::write(scenario.workspace().join("a.txt"), text).unwrap();
        }
        assert_eq!(scenario.resume().await.status, expected, "{text:?}");
        assert_eq!(scenario.world.count("upload"), 1);
        if expected == RunStatus::WaitingForHuman {
            assert!(scenario.questions().await[0].text.contains("has changed since"));
        }
    }
}

/// Whatever was true when a call was judged may be otherwise once its server was started: its key, its files, a person's word.
#[tokio::test]
async fn a_call_is_judged_anew_behind_the_start_of_its_server() {
    let keyed = "[[rule]]\nid = \"keyed\"\nserver = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n\
                 key_channel = \"meta\"\nkey_ttl = \"1h\"\n";
    let comment =
        r#"{"turns": [{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Hi"}}]}, {"text": "Done."}]}"#;
    for (start, expected) in
        [(Duration::from_secs(1), RunStatus::Succeeded), (Duration::from_hours(2), RunStatus::WaitingForHuman)]
    {
        let scenario = keyed_in_flight(comment, Some(keyed)).await;
        let clock = Arc::clone(&scenario.env.clock);
        scenario.world.end_servers(move || clock.sleep_blocking_for_tests(start));
        assert_eq!(scenario.resume().await.status, expected, "{start:?}");
        assert_eq!(sent(&scenario), if expected == RunStatus::Succeeded { 2 } else { 1 }, "{start:?}");
    }

    let upload = r#"{"turns": [{"tools": [{"name": "mcp__ua__upload", "input": {"path": "a.txt", "destination": "file:///s"}}]}, {"text": "Done."}]}"#;
    let scenario = keyed_in_flight(upload, None).await;
    let file = scenario.workspace().join("a.txt");
    scenario.world.end_servers(move || std::fs::write(file, "other bytes").unwrap());
    assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
    assert_eq!(sent(&scenario), 1, "other bytes went out under the key of the first ones");

    let scenario = keyed_in_flight(comment, Some(keyed)).await;
    let stop = scenario.stop.clone();
    scenario.world.end_servers(move || stop.stop_gently());
    assert_eq!(scenario.resume().await.status, RunStatus::Stopped);
    assert_eq!(sent(&scenario), 1, "a call went out behind a stop");
}

/// How many calls reached the world.
fn sent(scenario: &Scenario) -> usize {
    scenario.world.log().iter().filter(|line| line.starts_with("invoke ")).count()
}

/// An id that the model chose is proof as long as no other call carries it.
#[tokio::test]
async fn an_argument_that_names_the_thing_is_proof_unless_another_call_carries_it_too() {
    let policy = r#"
[[rule]]
id = "event"
server = "tracker"
name = "create_ticket"
side_effect_class = "external"
[rule.probe]
tool = "list_tickets"
found = { items = "items", field = "arguments.ticket_id", equals = "{arg.ticket_id}" }
unique_arguments = ["ticket_id"]
settle = "30s"
"#;
    let ask = |id: &str, title: &str| {
        format!(
            r#"{{"tools": [{{"name": "mcp__tracker__create_ticket", "input": {{"ticket_id": "{id}", "title": "{title}"}}}}]}}"#
        )
    };
    let cases = [(ask("t-1", "a"), RunStatus::Succeeded), (ask("t-2", "a"), RunStatus::WaitingForHuman)];
    for (first, expected) in cases {
        let script = format!(r#"{{"turns": [{first}, {}, {{"text": "Done."}}]}}"#, ask("t-2", "b"));
        let begin = || {
            let env = Env::simulated(7);
            let world = World::new([(foreign_tool("tracker", "create_ticket"), Honours::Nothing)]);
            let listing = foreign_tool("tracker", "list_tickets");
            Scenario::with(
                world.listing(listing, "create_ticket", &env, Duration::ZERO),
                env,
                &script,
                JOB,
                Some(policy),
            )
        };
        // Dies with the second one sent.
        let mut scenario = begin();
        for at in 0..60 {
            scenario = begin();
            scenario.crash(CrashAt::After(at)).await;
            let second = scenario.calls().await.into_iter().nth(1);
            let is_running = second.is_some_and(|call| call.status == CallStatus::Running);
            if is_running && scenario.world.deliveries().len() == 2 {
                break;
            }
        }
        assert_eq!(scenario.world.count("create_ticket"), 2);
        assert_eq!(scenario.resume().await.status, expected);
        assert_eq!(scenario.world.count("create_ticket"), 2);
        if expected == RunStatus::WaitingForHuman {
            assert!(scenario.questions().await[0].text.contains("has the same ticket_id"));
        }
    }
}

const SAID_TWICE: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Hello"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Hello again"}}]},
  {"text": "All done."}
]}"#;

/// A run that lost its first comment, went on, and was stopped by the model's second one.
async fn blocked() -> Scenario {
    let env = Env::simulated(7);
    let scenario = Scenario::with(world(&env), env, SAID_TWICE, JOB, Some(&policy("10s", "15s")));
    scenario.world.next("post_comment", ToolOutcome::LostAfter);
    let run = scenario.resume().await;
    assert_eq!((run.status, scenario.world.count("post_comment")), (RunStatus::WaitingForHuman, 1));
    scenario
}

#[tokio::test]
async fn a_doubt_that_was_gone_on_without_blocks_its_tool_until_it_is_answered() {
    for (choice, status) in [(Choice::Happened, CallStatus::Succeeded), (Choice::Execute, CallStatus::FailedDefinite)] {
        let scenario = blocked().await;
        let questions = scenario.questions().await;
        assert_eq!(questions.len(), 2, "the doubt, and the comment that it blocks");
        assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman, "nobody answered");
        scenario.choose(&questions[0], choice).await;
        let then = scenario.resume().await.status;
        if choice == Choice::Happened {
            // What happened may have been what the second one asks for in other words, and the model did not know of it.
            assert_eq!((then, scenario.world.count("post_comment")), (RunStatus::WaitingForHuman, 1));
            let questions = scenario.questions().await;
            let asked = questions.iter().find(|question| question.status == QuestionStatus::Open).unwrap();
            scenario.choose(asked, Choice::Execute).await;
            assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
        } else {
            // It did not happen, which lifts the block: nobody has to answer the question about the second comment any more.
            assert_eq!(then, RunStatus::Succeeded);
        }
        assert_eq!(call(&scenario, "post_comment").await.status, status);
        assert_eq!(scenario.world.count("post_comment"), 2);
        assert!(scenario.questions().await.iter().all(|question| question.status == QuestionStatus::Closed));
    }
}

#[tokio::test]
async fn a_late_answer_lifts_the_block_before_the_tool_is_asked_for_again() {
    let script = r#"{"turns": [
      {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Hello"}}]},
      {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Bye"}}]},
      {"text": "All done."}
    ]}"#;
    let policy = policy("10s", "15s");
    let comment = policy.split("[[rule]]").last().map(|rule| format!("[[rule]]{rule}")).unwrap();
    let fresh = || {
        let world = World::new([(foreign_tool("forum", "post_comment"), Honours::Nothing)]);
        let scenario = Scenario::with(world, Env::simulated(7), script, JOB, Some(&comment));
        scenario.world.next("post_comment", ToolOutcome::LostAfter);
        scenario
    };
    // Dies as soon as the first turn is over, before the model asks for the second comment.
    let (mut scenario, mut crossing) = (fresh(), 0);
    while scenario.questions_so_far().await.is_empty() || scenario.turn_index().await == 0 {
        scenario = fresh();
        scenario.crash(CrashAt::After(crossing)).await;
        crossing += 1;
        assert!(crossing < 60);
    }
    let doubt = scenario.questions().await.remove(0);
    scenario.choose(&doubt, Choice::Happened).await;
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
    assert_eq!((scenario.world.count("post_comment"), scenario.questions().await.len()), (2, 1));
}
