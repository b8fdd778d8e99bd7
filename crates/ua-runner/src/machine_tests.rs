//! The machine's table, by feeding it events.

mod groups;
mod replies;

use std::time::Duration;

use ua_core::{
    AskedWait, Audience, Block, CallId, CallStatus, Env, ModelTurn, Money, PriceTable, Resolution, RunStop, StopReason,
    Timestamp, ToolUse, Usage,
};
use ua_dispatch::Dispatched;
use ua_store::{CallRecord, Choice, EndMark, QuestionKind, QuestionRecord, QuestionStatus, RequestEnd};

use crate::budget::{Estimate, Limits, Spent};
use crate::machine::{
    Command, Conclusion, Event, Guidance, Missing, OpenCall, OpenTurn, ReplyEnd, RunMachine, Start, Talk, Word,
};
use crate::retry::ThinkFailure;

fn id(n: u32) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

pub(crate) fn call(n: u32, has_effect: bool) -> OpenCall {
    OpenCall {
        call_id: id(n),
        composite: None,
        is_task: false,
        has_effect,
        is_settled: false,
        has_failed: false,
        is_skipped: false,
        was_sent: false,
        answered: None,
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "events carry it boxed")]
pub(crate) fn reply(stop_reason: StopReason, asks: bool) -> Box<ModelTurn> {
    let mut blocks = vec![Block::text("words")];
    if asks {
        blocks.push(Block::ToolUse(ToolUse { id: "t".into(), name: "x".into(), input: serde_json::json!({}) }));
    }
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
    Box::new(ModelTurn { blocks, stop_reason, usage, model: "m".into(), response_id: None })
}

pub(crate) fn question(n: u32) -> Box<QuestionRecord> {
    Box::new(QuestionRecord {
        question_id: ua_core::QuestionId::parse(&format!("q_{n}")).unwrap(),
        run_id: ua_core::RunId::parse("run_1").unwrap(),
        call_id: Some(id(n)),
        kind: QuestionKind::UnknownOutcome,
        text: String::new(),
        detail: serde_json::Value::Null,
        choices: Vec::new(),
        created_at: Env::simulated(1).now(),
        status: QuestionStatus::Open,
        answer: None,
        closed_because: None,
    })
}

/// A settled row; only what the machine reads is of interest.
fn settled(n: u32, status: CallStatus, has_effect: bool) -> Dispatched {
    let mut policy = ua_core::CallPolicy::unclassified();
    if !has_effect {
        policy.class = ua_core::SideEffectClass::ReadOnly;
    }
    let now = Env::simulated(1).now();
    Dispatched::Settled(Box::new(CallRecord {
        call_id: id(n),
        run_id: ua_core::RunId::parse("run_1").unwrap(),
        root_run_id: ua_core::RunId::parse("run_1").unwrap(),
        step_id: ua_core::StepId::parse("step_1").unwrap(),
        position: ua_core::Position { turn: 1, ordinal: n },
        created_at: now,
        updated_at: now,
        tool_use_id: format!("t{n}"),
        name: ua_core::ToolName::qualified(ua_core::ToolNamespace::Mcp, "s", "x"),
        arguments: serde_json::Value::Null.into(),
        args_hash: ua_core::sha256(""),
        tool_digest: None,
        policy: policy.into(),
        status,
        attempt: 1,
        doubt: None,
        idempotency_key: None,
        scope: None,
        file_digests: std::collections::BTreeMap::new(),
        possible_effect: None,
        resolution: None::<Resolution>,
        deduplicated_from: None,
        replay_status: None,
        external_correlation_id: None,
        error_code: None,
        error_detail: Some("boom".into()),
        correction: None,
    }))
}

/// A reservation of 100 input and 50 output tokens at 2 and 10 dollars per million.
pub(crate) fn estimate() -> Estimate {
    let table = PriceTable::parse("f", "[providers.p.m]\ninput = 2\noutput = 10\n").unwrap();
    Estimate { input_tokens: 100, output_tokens: 50, price: table.price("p", "m") }
}

fn reserved() -> Event {
    Event::Reserved(estimate())
}

fn failure(is_charged: bool, may_retry: bool) -> ThinkFailure {
    let message = "busy (resume later)".to_owned();
    ThinkFailure {
        why: "busy".into(),
        message,
        end: if is_charged { RequestEnd::Baseline } else { RequestEnd::Zero },
        may_retry,
        is_too_long: false,
        may_be_too_long: false,
        at: Timestamp::from_millis(0),
        took: Duration::ZERO,
        time_left: None,
        asks_for_less: false,
        without: None,
        without_images: false,
        refused: None,
        is_foreign: false,
        correction: None,
        retry_after: None,
        until_reset: None,
        random: 0,
    }
}

fn ok(n: u32) -> Dispatched {
    settled(n, CallStatus::Succeeded, true)
}

/// Feeds events and collects the commands in between, the last one included.
fn feed(machine: &mut RunMachine, events: impl IntoIterator<Item = Event>) -> Vec<Command> {
    let mut commands = vec![machine.command()];
    for event in events {
        machine.apply(event).unwrap();
        commands.push(machine.command());
    }
    commands
}

/// Brings a fresh machine to where the reply with these calls is recorded.
fn recorded(limits: Limits, calls: Vec<OpenCall>) -> RunMachine {
    let mut machine = RunMachine::new(limits, Start::fresh());
    let asks = !calls.is_empty();
    let events = [reserved(), Event::Thought(Ok(reply(StopReason::ToolUse, asks))), Event::Recorded(calls)];
    feed(&mut machine, events);
    machine
}

fn dispatches(commands: &[Command]) -> Vec<Vec<CallId>> {
    commands
        .iter()
        .filter_map(|command| if let Command::Dispatch { calls, .. } = command { Some(calls.clone()) } else { None })
        .collect()
}

#[test]
fn reads_run_together_and_every_effect_alone_and_in_order() {
    let mut machine = recorded(
        Limits::default(),
        vec![call(1, false), call(2, false), call(3, true), call(4, true), call(5, false), call(6, false)],
    );
    let read = |n| settled(n, CallStatus::Succeeded, false);
    let commands = feed(
        &mut machine,
        [
            Event::Dispatched(vec![read(1), read(2)]),
            Event::Dispatched(vec![ok(3)]),
            Event::Dispatched(vec![ok(4)]),
            Event::Dispatched(vec![read(5), read(6)]),
        ],
    );
    assert_eq!(dispatches(&commands), [vec![id(1), id(2)], vec![id(3)], vec![id(4)], vec![id(5), id(6)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn effects_after_a_failed_effect_are_cancelled_and_reads_still_run() {
    let mut machine = recorded(Limits::default(), vec![call(1, true), call(2, true), call(3, false), call(4, true)]);
    let commands = feed(
        &mut machine,
        [
            Event::Dispatched(vec![settled(1, CallStatus::FailedReported, true)]),
            Event::Cancelled,
            Event::Dispatched(vec![settled(3, CallStatus::Succeeded, false)]),
        ],
    );
    assert_eq!(commands[1], Command::CancelAfterFailure { calls: vec![id(2), id(4)], failed: id(1) });
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(3)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn a_failed_read_cancels_nothing() {
    let mut machine = recorded(Limits::default(), vec![call(1, false), call(2, true)]);
    let commands = feed(&mut machine, [Event::Dispatched(vec![settled(1, CallStatus::FailedReported, false)])]);
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(2)]]);
}

#[test]
fn an_open_turn_is_finished_before_the_model_is_asked_again() {
    let settled_call = OpenCall { is_settled: true, ..call(1, true) };
    let open = OpenTurn {
        turn: 3,
        stop_reason: StopReason::ToolUse,
        text: String::new(),
        calls: vec![settled_call, call(2, true)],
    };
    let start = Start { committed: 2, open: Some(open), is_resume: true, ..Start::fresh() };
    let mut machine = RunMachine::new(Limits::default(), start);
    let commands = feed(
        &mut machine,
        [Event::Dispatched(vec![ok(2)]), Event::Committed { held_millis: 1 }, Event::ReplayFinished],
    );
    let dispatch = Command::Dispatch { calls: vec![id(2)], has_effect: true };
    let rest = [Command::Commit { turn: 3 }, Command::FinishReplay { note: true }, Command::Reserve { turn: 4 }];
    assert_eq!(commands[0], dispatch);
    assert_eq!(commands[1..], rest);
}

#[test]
fn a_failure_that_a_crash_left_behind_still_cancels_what_follows() {
    let failed = OpenCall { is_settled: true, has_failed: true, ..call(1, true) };
    let open =
        OpenTurn { turn: 1, stop_reason: StopReason::ToolUse, text: String::new(), calls: vec![failed, call(2, true)] };
    let machine = RunMachine::new(Limits::default(), Start { open: Some(open), is_resume: true, ..Start::fresh() });
    assert_eq!(machine.command(), Command::CancelAfterFailure { calls: vec![id(2)], failed: id(1) });
}

#[test]
fn a_persons_word_about_a_call_stands_beside_their_skip_of_another_one() {
    let skipped = OpenCall { is_settled: true, has_failed: true, is_skipped: true, ..call(1, true) };
    let failed = OpenCall { is_skipped: false, ..skipped.clone() };
    let cases = [
        (&skipped, Some(Choice::Execute), true),
        (&skipped, Some(Choice::Continue), true),
        (&skipped, Some(Choice::Skip), true),
        (&skipped, Some(Choice::Happened), true),
        (&skipped, None, false),
        (&failed, Some(Choice::Execute), false),
        (&failed, Some(Choice::Skip), true),
        (&failed, Some(Choice::Happened), true),
        (&failed, None, false),
    ];
    for (first, answered, stands) in cases {
        let calls = vec![first.clone(), OpenCall { answered, ..call(2, true) }, call(3, true)];
        let open = OpenTurn { turn: 1, stop_reason: StopReason::ToolUse, text: String::new(), calls };
        let start = Start { open: Some(open), is_resume: true, ..Start::fresh() };
        let mut machine = RunMachine::new(Limits::default(), start);
        let calls = if stands { vec![id(3)] } else { vec![id(2), id(3)] };
        let cancelled = Command::CancelAfterFailure { calls, failed: id(1) };
        assert_eq!(machine.command(), cancelled, "{answered:?} behind {first:?}");
        machine.apply(Event::Cancelled).unwrap();
        let next = machine.command();
        assert_eq!(dispatches(&[next]).concat() == [id(2)], stands, "{answered:?} behind {first:?}");
    }
}

/// The word came while the calls behind the skipped one were being cancelled.
#[test]
fn a_word_that_comes_beside_a_cancellation_is_heard() {
    let Dispatched::Settled(mut declined) = settled(1, CallStatus::Cancelled, true) else { unreachable!("it is one") };
    declined.resolution = Some(Resolution::Skipped);
    let mut machine = recorded(Limits::default(), vec![call(1, true), call(2, true), call(3, true)]);
    let skipped = OpenCall::of(&declined);
    machine.apply(Event::Dispatched(vec![Dispatched::Settled(declined)])).unwrap();
    assert_eq!(machine.command(), Command::CancelAfterFailure { calls: vec![id(2), id(3)], failed: id(1) });
    let allowed = OpenCall { answered: Some(Choice::Execute), ..call(3, true) };
    machine.apply(Event::WordsCame(vec![skipped, call(2, true), allowed])).unwrap();
    assert_eq!(machine.command(), Command::CancelAfterFailure { calls: vec![id(2)], failed: id(1) });
    machine.apply(Event::Cancelled).unwrap();
    assert_eq!(dispatches(&[machine.command()]), [vec![id(3)]]);
}

#[test]
fn a_skip_in_this_process_leaves_what_a_person_let_run() {
    let approved = OpenCall { answered: Some(Choice::Execute), ..call(2, true) };
    let mut machine = recorded(Limits::default(), vec![call(1, true), approved, call(3, true)]);
    let Dispatched::Settled(mut declined) = settled(1, CallStatus::Cancelled, true) else { unreachable!("it is one") };
    declined.resolution = Some(Resolution::Skipped);
    let declined = Event::Dispatched(vec![Dispatched::Settled(declined)]);
    let commands = feed(&mut machine, [declined, Event::Cancelled, Event::Dispatched(vec![ok(2)])]);
    assert_eq!(commands[1], Command::CancelAfterFailure { calls: vec![id(3)], failed: id(1) });
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(2)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn a_mark_ends_the_run_in_any_state() {
    for (mark, conclusion) in [
        (EndMark::Cancel, Conclusion::Cancelled),
        (EndMark::Abort, Conclusion::Failed { why: "a person answered `abort`".to_owned() }),
    ] {
        let mut machine = recorded(Limits::default(), vec![call(1, true)]);
        machine.apply(Event::of_mark(mark)).unwrap();
        assert_eq!(machine.command(), Command::Stop(conclusion.clone()));
        assert_eq!(Conclusion::of_mark(mark), conclusion);
    }
}

#[test]
fn a_last_word_is_checked_against_the_evidence_and_missing_things_are_told_three_times() {
    let mut machine = RunMachine::new(Limits { ask_on_repeated_failures: true, ..Limits::default() }, Start::fresh());
    for nudge in 0..4 {
        feed(
            &mut machine,
            [
                reserved(),
                Event::Thought(Ok(reply(StopReason::EndTurn, false))),
                Event::Recorded(Vec::new()),
                Event::Committed { held_millis: 0 },
            ],
        );
        assert!(matches!(machine.command(), Command::CheckEvidence { .. }));
        machine.apply(Event::Evidence(Err("the e-mail".into()))).unwrap();
        if nudge < 3 {
            assert_eq!(machine.command(), Command::Guide { text: Guidance::Missing("the e-mail".into()) });
            machine.apply(Event::Guided).unwrap();
        }
    }
    assert!(
        matches!(machine.command(), Command::Ask { kind: QuestionKind::MissingEvidence, text } if text.contains("the e-mail"))
    );
}

#[test]
fn a_run_without_people_fails_instead_of_asking() {
    let start = Start { last_word: Some(Word::of("done")), committed: 1, ..Start::fresh() };
    let mut machine = RunMachine::new(Limits { max_turns: Some(9), ..Limits::default() }, start);
    for _ in 0..3 {
        machine.apply(Event::Evidence(Err("x".into()))).unwrap();
        let events = [
            Event::Guided,
            reserved(),
            Event::Thought(Ok(reply(StopReason::EndTurn, false))),
            Event::Recorded(Vec::new()),
            Event::Committed { held_millis: 0 },
        ];
        feed(&mut machine, events);
    }
    machine.apply(Event::Evidence(Err("x".into()))).unwrap();
    assert!(matches!(machine.command(), Command::Stop(Conclusion::Failed { .. })));
}

#[test]
fn a_cut_reply_is_continued() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let events = [
        reserved(),
        Event::Thought(Ok(reply(StopReason::MaxTokens, false))),
        Event::Recorded(Vec::new()),
        Event::Committed { held_millis: 0 },
    ];
    let commands = feed(&mut machine, events);
    assert_eq!(commands.last(), Some(&Command::Guide { text: Guidance::Unfinished(ReplyEnd::Cut) }));
}

fn stop_reason(command: &Command) -> Option<RunStop> {
    if let Command::Stop(Conclusion::Stopped { reason, .. }) = command { Some(*reason) } else { None }
}

#[test]
fn a_reply_that_exceeds_the_call_budget_is_recorded_and_nothing_of_it_is_sent() {
    let machine =
        recorded(Limits { max_tool_calls: Some(1), ..Limits::default() }, vec![call(1, false), call(2, true)]);
    assert_eq!(stop_reason(&machine.command()), Some(RunStop::Budget));
}

#[test]
fn a_run_that_used_all_its_calls_may_still_say_its_last_word() {
    let limits = Limits { max_tool_calls: Some(3), ..Limits::default() };
    let machine = RunMachine::new(limits, Start { committed: 1, tool_calls: 3, ..Start::fresh() });
    assert_eq!(machine.command(), Command::Reserve { turn: 2 });
}

#[test]
fn budgets_stop_between_turns() {
    let cases = [
        (Limits { max_turns: Some(2), ..Limits::default() }, Start { committed: 2, ..Start::fresh() }),
        (
            Limits { max_held_millis: Some(60_000), ..Limits::default() },
            Start { held_millis: 60_000, ..Start::fresh() },
        ),
    ];
    for (limits, start) in cases {
        let machine = RunMachine::new(limits.clone(), start);
        assert_eq!(stop_reason(&machine.command()), Some(RunStop::Budget), "{limits:?}");
    }
}

#[test]
fn a_request_that_does_not_fit_the_budget_is_not_reserved() {
    let limits = Limits { max_tokens: Some(1_000), ..Limits::default() };
    let spent = Spent { tokens: 851, ..Spent::default() };
    let mut machine = RunMachine::new(limits, Start { spent, committed: 1, ..Start::fresh() });
    assert_eq!(machine.command(), Command::Reserve { turn: 2 });
    let detail = machine.admit(&estimate()).unwrap_err();
    machine.apply(Event::OverBudget { detail }).unwrap();
    assert!(matches!(
        machine.command(),
        Command::Stop(Conclusion::Stopped { reason: RunStop::Budget, detail }) if detail.contains("max_tokens (1000)")
    ));
}

#[test]
fn an_overrun_is_recorded_and_committed_and_the_next_request_is_refused() {
    let max_cost = Money::parse("0.0008");
    let mut machine = RunMachine::new(Limits { max_cost, ..Limits::default() }, Start::fresh());
    assert_eq!(machine.admit(&estimate()), Ok(()));
    let mut overrun = reply(StopReason::ToolUse, true);
    overrun.usage = Some(Usage { input_tokens: 300, output_tokens: 60, ..Usage::default() });
    let commands = feed(
        &mut machine,
        [
            reserved(),
            Event::Thought(Ok(overrun)),
            Event::Recorded(vec![call(1, true)]),
            Event::Dispatched(vec![ok(1)]),
            Event::Committed { held_millis: 0 },
        ],
    );
    assert_eq!(commands[4], Command::Commit { turn: 1 });
    // What the next request would take is known once it is composed, and is said with what is used.
    assert_eq!(machine.command(), Command::Reserve { turn: 2 });
    let detail = machine.admit(&estimate()).unwrap_err();
    assert!(detail.contains("$0.0012 is used, and the next request may cost up to $0.0007"), "{detail}");
    assert_eq!((machine.spent().tokens, machine.spent().costs.to_string()), (360, "$0.0012".to_owned()));
}

#[test]
fn each_request_that_may_pass_is_followed_by_a_wait_and_a_reservation_of_its_own() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let mut waits = Vec::new();
    for left_us in [true, false, true, true, true] {
        assert_eq!(machine.command(), Command::Reserve { turn: 1 });
        machine.apply(reserved()).unwrap();
        assert_eq!(machine.command(), Command::Think { turn: 1 });
        machine.apply(Event::Thought(Err(failure(left_us, true)))).unwrap();
        if let Command::Wait { attempt, why, wait, .. } = machine.command() {
            assert_eq!(why, "busy");
            waits.push((attempt, wait.as_millis()));
            machine.apply(Event::Waited).unwrap();
        }
    }
    assert_eq!(waits, [(1, 500), (2, 1_000), (3, 2_000), (4, 4_000), (5, 8_000)]);
    // The request that never left is free; each other one is charged as estimated.
    assert_eq!((machine.spent().tokens, machine.spent().costs.to_string()), (400, "$0.0008".to_owned()));
}

#[test]
fn a_reply_forgives_the_failures_before_it() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    for turn in 1..=3 {
        for _ in 0..9 {
            feed(&mut machine, [reserved(), Event::Thought(Err(failure(false, true))), Event::Waited]);
        }
        let events = [
            reserved(),
            Event::Thought(Ok(reply(StopReason::ToolUse, true))),
            Event::Recorded(vec![call(turn, false)]),
            Event::Dispatched(vec![settled(turn, CallStatus::Succeeded, false)]),
            Event::Committed { held_millis: 0 },
        ];
        assert_eq!(feed(&mut machine, events).last(), Some(&Command::Reserve { turn: turn + 1 }));
    }
}

#[test]
fn a_wait_is_as_long_as_the_provider_asks_and_too_long_a_wait_is_a_stop() {
    for (asked, waits) in [(7, true), (1_800, true), (1_801, false)] {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        let failure = ThinkFailure { retry_after: Some(Duration::from_secs(asked)), ..failure(true, true) };
        feed(&mut machine, [reserved(), Event::Thought(Err(failure))]);
        let command = machine.command();
        let waited = if let Command::Wait { wait, .. } = &command { Some(*wait) } else { None };
        assert_eq!(waited, waits.then_some(Duration::from_secs(asked)));
        assert_eq!(stop_reason(&command), (!waits).then_some(RunStop::Provider));
        if let Command::Stop(Conclusion::Stopped { detail, .. }) = &command {
            let told = "It asks for a wait of 30 min (until 1970-01-01T00:30:01.000Z), and the run would wait for 30 min more. Resume it \
                        later, or have it wait: `--max-provider-wait-minutes 32`.";
            assert_eq!(*detail, format!("busy (resume later). {told}"));
        }
    }
}

/// A wait that the run's time does not allow is not begun, whoever asks for it: nobody would be asked after it.
#[test]
fn a_wait_beyond_the_runs_time_is_a_stop_at_once_that_says_what_lifts_it() {
    let resumes = |flags: &str| format!("Resume it later, or have it wait: `{flags}`.");
    for (asked, left, limits, told) in [
        (Some(1_200), 1_200, Limits::default(), resumes("--max-wallclock-minutes +21")),
        (Some(1_200), 1_201, Limits::default(), String::new()),
        (Some(7_200), 600, Limits::default(), resumes("--max-provider-wait-minutes 121 --max-wallclock-minutes +121")),
        (
            Some(1_200),
            600,
            Limits { audience: Audience::Program, ..Limits::default() },
            "or have it wait: `Runs::set_budget`, \"max_wallclock_minutes\" 21 more than now.".to_owned(),
        ),
        // What nobody asks for, too.
        (None, 0, Limits::default(), resumes("--max-wallclock-minutes +1")),
    ] {
        let mut machine = RunMachine::new(limits, Start::fresh());
        let failure = ThinkFailure {
            retry_after: asked.map(Duration::from_secs),
            time_left: Some(Duration::from_secs(left)),
            ..failure(true, true)
        };
        feed(&mut machine, [reserved(), Event::Thought(Err(failure))]);
        let command = machine.command();
        assert_eq!(matches!(command, Command::Wait { .. }), told.is_empty(), "{command:?}");
        if let Command::Stop(Conclusion::Stopped { reason, detail }) = command {
            assert_eq!(reason, RunStop::Provider);
            assert!(detail.ends_with(&told), "{detail}");
        }
    }
}

#[test]
fn a_signal_or_a_cancel_ends_a_wait() {
    for (event, ended) in [(Event::Interrupted, false), (Event::CancelAsked, true)] {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        feed(&mut machine, [reserved(), Event::Thought(Err(failure(true, true)))]);
        machine.apply(event).unwrap();
        let command = machine.command();
        assert_eq!(matches!(command, Command::Stop(Conclusion::Cancelled)), ended, "{command:?}");
        assert_eq!(stop_reason(&command), (!ended).then_some(RunStop::Interrupt));
    }
}

#[test]
fn what_a_budget_refuses_is_not_waited_for() {
    // One failed request leaves no room for a second one.
    let limits = Limits { max_tokens: Some(200), ..Limits::default() };
    let mut machine = RunMachine::new(limits, Start::fresh());
    assert_eq!(machine.admit(&estimate()), Ok(()));
    feed(&mut machine, [reserved(), Event::Thought(Err(failure(true, true)))]);
    assert_eq!(stop_reason(&machine.command()), Some(RunStop::Budget));
}

#[test]
fn a_reply_without_usage_and_an_interrupted_request_are_charged_as_estimated() {
    // A server that counts nothing says so, or says that it was nothing, or counts one half.
    let half = |input_tokens, output_tokens| Some(Usage { input_tokens, output_tokens, ..Usage::default() });
    for usage in [None, Some(Usage::default()), half(0, 2), half(100, 0)] {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        let mut silent = reply(StopReason::EndTurn, false);
        silent.usage = usage;
        feed(&mut machine, [reserved(), Event::Thought(Ok(silent)), Event::Recorded(Vec::new())]);
        // 100 as estimated for its input, and two for `words`.
        assert_eq!(machine.spent().tokens, 102);
    }
    let heard = Usage { input_tokens: 300, output_tokens: 40, ..Usage::default() };
    let ends = [(RequestEnd::Baseline, 100), (RequestEnd::Zero, 0), (RequestEnd::Partial(heard), 340)];
    for (end, tokens) in ends {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        feed(&mut machine, [reserved(), Event::ThinkingInterrupted { end }]);
        assert_eq!((machine.spent().tokens, stop_reason(&machine.command())), (tokens, Some(RunStop::Interrupt)));
    }
}

/// A reply that broke off was paid for: a budget that it used up ends the run at once, and no wait and no request follow.
#[test]
fn a_budget_holds_over_replies_that_break_off() {
    let limits = Limits { max_tokens: Some(1_000), ..Limits::default() };
    let mut machine = RunMachine::new(limits, Start::fresh());
    let cut = |output_tokens| {
        let heard = Usage { input_tokens: 300, output_tokens, ..Usage::default() };
        Event::Thought(Err(ThinkFailure { end: RequestEnd::Partial(heard), ..failure(true, true) }))
    };
    let commands = feed(&mut machine, [reserved(), cut(40)]);
    assert!(matches!(commands.last(), Some(Command::Wait { .. })), "{commands:?}");
    feed(&mut machine, [Event::Waited, reserved(), cut(360)]);
    assert_eq!((machine.spent().tokens, stop_reason(&machine.command())), (1_000, Some(RunStop::Budget)));
}

#[test]
fn equal_errors_in_a_row_are_bounded() {
    let limits = Limits { max_same_error_repeats: Some(2), ask_on_repeated_failures: true, ..Limits::default() };
    let mut machine = RunMachine::new(limits, Start::fresh());
    for _ in 0..3 {
        let events = [
            reserved(),
            Event::Thought(Ok(reply(StopReason::ToolUse, true))),
            Event::Recorded(vec![call(1, true)]),
            Event::Dispatched(vec![settled(1, CallStatus::FailedReported, true)]),
            Event::Committed { held_millis: 0 },
        ];
        feed(&mut machine, events);
    }
    assert!(matches!(machine.command(), Command::Ask { kind: QuestionKind::RepeatedFailures, .. }));
}

#[test]
fn stops_are_values_and_what_is_ended_stays_ended() {
    let cases = [
        (Event::Interrupted, RunStop::Interrupt),
        (Event::Thought(Err(failure(true, false))), RunStop::Provider),
        (Event::ThinkingInterrupted { end: RequestEnd::Baseline }, RunStop::Interrupt),
        (Event::ToolServerDown { detail: "gone".into() }, RunStop::ToolServer),
    ];
    for (event, reason) in cases {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        machine.apply(reserved()).unwrap();
        machine.apply(event).unwrap();
        assert_eq!(stop_reason(&machine.command()), Some(reason));
        machine.apply(Event::CancelAsked).unwrap();
        assert_eq!(stop_reason(&machine.command()), Some(reason));
    }
}

#[test]
fn an_event_that_nothing_asked_for_is_a_bug_and_changes_nothing() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    assert!(machine.apply(Event::Committed { held_millis: 0 }).is_err());
    assert_eq!(machine.command(), Command::Reserve { turn: 1 });
}

/// A machine that stands in the first of two phases, with these limits of the phase.
fn in_phase(limits: Limits, of_phase: ua_core::PhaseBudgets) -> RunMachine {
    let phase = crate::PhaseState {
        name: "one".to_owned(),
        next: Some("two".to_owned()),
        limits: of_phase,
        ..crate::PhaseState::default()
    };
    RunMachine::new(limits, Start { steps: 1, phase: Some(phase), ..Start::fresh() })
}

fn last_phase() -> Event {
    Event::PhaseEntered(Box::new(crate::PhaseState { name: "two".to_owned(), ..crate::PhaseState::default() }))
}

/// A turn that asks for nothing, up to its commit.
fn last_word() -> [Event; 4] {
    let reply = reply(StopReason::EndTurn, false);
    [reserved(), Event::Thought(Ok(reply)), Event::Recorded(Vec::new()), Event::Committed { held_millis: 0 }]
}

#[test]
fn a_phase_ends_with_its_evidence_and_the_last_one_ends_the_run() {
    let mut machine = in_phase(Limits::default(), ua_core::PhaseBudgets::default());
    let missing = Event::Evidence(Err("a file".into()));
    let commands = feed(&mut machine, last_word().into_iter().chain([missing, Event::Guided]));
    assert!(matches!(commands[4], Command::CheckEvidence { .. }));
    assert_eq!(commands[5], Command::Guide { text: Guidance::Missing("a file".to_owned()) });
    let commands = feed(&mut machine, last_word().into_iter().chain([Event::Evidence(Ok(())), last_phase()]));
    assert_eq!(commands[5], Command::EnterPhase { next: "two".to_owned() });
    assert_eq!(commands[6], Command::Reserve { turn: 3 });
    let commands = feed(&mut machine, last_word().into_iter().chain([Event::Evidence(Ok(()))]));
    assert_eq!(commands[5], Command::Stop(Conclusion::Succeeded { final_output: "words".to_owned() }));
}

#[test]
fn a_budget_of_a_phase_stops_in_it_and_starts_anew_with_the_next() {
    let one_turn = ua_core::PhaseBudgets { max_turns: Some(1), ..ua_core::PhaseBudgets::default() };
    let mut machine = in_phase(Limits::default(), one_turn);
    let turn =
        [reserved(), Event::Thought(Ok(reply(StopReason::ToolUse, true))), Event::Recorded(vec![call(1, false)])];
    let rest = [Event::Dispatched(vec![settled(1, CallStatus::Succeeded, false)]), Event::Committed { held_millis: 0 }];
    let commands = feed(&mut machine, turn.clone().into_iter().chain(rest));
    let Some(Command::Stop(Conclusion::Stopped { reason: RunStop::Budget, detail })) = commands.last() else {
        panic!("{commands:?}")
    };
    assert_eq!(detail, "the budget max_turns (1) of phase `one` is reached: 1 turn used");

    let no_calls =
        ua_core::PhaseBudgets { max_tool_calls: Some(1), max_tokens: Some(160), ..ua_core::PhaseBudgets::default() };
    let mut machine = in_phase(Limits::default(), no_calls);
    assert_eq!(machine.admit(&estimate()), Ok(()));
    let mut two = turn.clone();
    two[2] = Event::Recorded(vec![call(1, false), call(2, false)]);
    let commands = feed(&mut machine, two);
    let Some(Command::Stop(Conclusion::Stopped { detail, .. })) = commands.last() else { panic!("{commands:?}") };
    assert!(detail.starts_with("the budget max_tool_calls (1) of phase `one` is reached"), "{detail}");
    // 15 tokens are used, and 150 more may be needed.
    let refused = machine.admit(&estimate()).unwrap_err();
    assert!(refused.starts_with("the budget max_tokens (160) of phase `one` is reached: 15 tokens"), "{refused}");
}

#[test]
fn steps_are_a_budget_that_is_looked_at_between_phases() {
    let mut machine = in_phase(Limits { max_steps: Some(1), ..Limits::default() }, ua_core::PhaseBudgets::default());
    let commands = feed(&mut machine, last_word().into_iter().chain([Event::Evidence(Ok(()))]));
    let Some(Command::Stop(Conclusion::Stopped { detail, .. })) = commands.last() else { panic!("{commands:?}") };
    assert_eq!(detail, "the budget max_steps (1) is reached: 1 step used, and the phase `two` would be the next");
}

#[test]
fn the_time_is_up_between_calls_and_what_was_sent_stays() {
    let limits = Limits { max_held_millis: Some(60_000), ..Limits::default() };
    let mut machine = recorded(limits, vec![call(1, true), call(2, true)]);
    let commands = feed(&mut machine, [Event::Dispatched(vec![ok(1)]), Event::OutOfTime { held_millis: 61_000 }]);
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(2)]], "the second is handed out and not sent");
    let Some(Command::Stop(Conclusion::Stopped { reason: RunStop::Budget, detail })) = commands.last() else {
        panic!("{commands:?}")
    };
    assert_eq!(detail, "the budget max_wallclock_minutes (1) is reached: the run was active for 61 seconds");
}

#[test]
fn equal_errors_count_on_after_a_resume() {
    let limits = Limits { max_same_error_repeats: Some(2), ask_on_repeated_failures: true, ..Limits::default() };
    let start = Start { same_error: Some(("x: boom".to_owned(), 2)), ..Start::fresh() };
    let mut machine = RunMachine::new(limits, start);
    let failed = settled(1, CallStatus::FailedReported, false);
    let reply = Event::Thought(Ok(reply(StopReason::ToolUse, true)));
    let events = [reserved(), reply, Event::Recorded(vec![call(1, false)]), Event::Dispatched(vec![failed])];
    let commands = feed(&mut machine, events.into_iter().chain([Event::Committed { held_millis: 0 }]));
    let Some(Command::Ask { kind: QuestionKind::RepeatedFailures, text }) = commands.last() else {
        panic!("{commands:?}")
    };
    assert!(text.contains("3 times in a row"), "{text}");
}
