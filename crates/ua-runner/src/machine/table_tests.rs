//! The machine's whole table: every state × every event is a transition or a refusal by name. A state or an event that is new does not
//! compile until it stands in its chain here, and fails until its row does.

use std::time::Duration;

use ua_core::{RunStop, StopReason};
use ua_store::{QuestionKind, RequestEnd};

use super::*;
use crate::machine_tests::{call, estimate, question, reply};

/// What each state does with the event that it asks for, here.
const ROWS: [(&str, &str, &str); 17] = [
    ("Reserving", "Reserved", "Thinking"),
    ("Reserving", "OverBudget", "Ended"),
    ("Reserving", "ContextFull", "EnteringIteration"),
    ("Thinking", "Thought", "Recording"),
    ("Thinking", "ThinkingInterrupted", "Ended"),
    ("Waiting", "Waited", "Reserving"),
    ("Recording", "Recorded", "Dispatching"),
    ("Dispatching", "Dispatched", "Committing"),
    ("Cancelling", "Cancelled", "Committing"),
    ("Cancelling", "WordsCame", "Dispatching"),
    ("Committing", "Committed", "Checking"),
    ("FinishingReplay", "ReplayFinished", "Checking"),
    ("Checking", "Evidence", "Ended"),
    ("EnteringPhase", "PhaseEntered", "Reserving"),
    ("EnteringIteration", "IterationEntered", "Reserving"),
    ("Guiding", "Guided", "Reserving"),
    ("Asking", "Asked", "Ended"),
];

/// The events that end the work whatever is under way.
const ENDS: [&str; 7] =
    ["Interrupted", "CancelAsked", "Aborted", "SetupChanged", "Impossible", "ToolServerDown", "ReplayGivenUp"];

fn one_try() -> Tries {
    Tries { attempts: 1, ..Tries::default() }
}

/// The state after `state` in a chain through all of them.
fn next_state(state: &State) -> Option<State> {
    let turn = || Turn::new(StopReason::EndTurn, "words".to_owned(), Vec::new());
    Some(match state {
        State::Reserving { .. } => State::Thinking { tries: one_try(), reserved: estimate() },
        State::Thinking { .. } => {
            State::Waiting { tries: one_try(), why: "busy".to_owned(), wait: Duration::from_secs(1) }
        }
        State::Waiting { .. } => State::Recording { reserved: estimate(), reply: reply(StopReason::ToolUse, true) },
        State::Recording { .. } => State::Dispatching { turn: turn(), group: vec![call(1, true)] },
        State::Dispatching { .. } => {
            State::Cancelling { turn: turn(), calls: vec![call(2, true).call_id], failed: call(1, true).call_id }
        }
        State::Cancelling { .. } => State::Committing { turn: turn() },
        State::Committing { .. } => State::FinishingReplay { last_word: Some(Word::of("words")) },
        State::FinishingReplay { .. } => State::Checking { last_word: Word::of("words") },
        State::Checking { .. } => State::EnteringPhase { next: "two".to_owned() },
        State::EnteringPhase { .. } => State::EnteringIteration { number: 2, why: IterationEnd::PromiseUnkept },
        State::EnteringIteration { .. } => State::Guiding(Guidance::Unfinished(ReplyEnd::Cut)),
        State::Guiding(_) => State::Asking { kind: QuestionKind::MissingEvidence, text: "what now".to_owned() },
        State::Asking { .. } => State::Ended(Conclusion::Cancelled),
        State::Ended(_) => return None,
    })
}

/// The event after `event` in a chain through all of them.
fn next_event(event: &Event) -> Option<Event> {
    let words = || "words".to_owned();
    Some(match event {
        Event::Reserved(_) => Event::OverBudget { detail: words() },
        Event::OverBudget { .. } => Event::ContextFull(IterationEnd::ContextFull { tokens: 1 }),
        Event::ContextFull(_) => Event::Thought(Ok(reply(StopReason::EndTurn, false))),
        Event::Thought(_) => Event::ThinkingInterrupted { end: RequestEnd::Baseline },
        Event::ThinkingInterrupted { .. } => Event::Waited,
        Event::Waited => Event::Recorded(vec![call(1, true)]),
        Event::Recorded(_) => Event::Dispatched(Vec::new()),
        Event::Dispatched(_) => Event::Cancelled,
        Event::Cancelled => Event::WordsCame(vec![call(2, true)]),
        Event::WordsCame(_) => Event::Committed { held_millis: 1 },
        Event::Committed { .. } => Event::ReplayFinished,
        Event::ReplayFinished => Event::Evidence(Ok(())),
        Event::Evidence(_) => Event::PhaseEntered(Box::default()),
        Event::PhaseEntered(_) => Event::IterationEntered(Box::default()),
        Event::IterationEntered(_) => Event::Guided,
        Event::Guided => Event::Asked(question(1)),
        Event::Asked(_) => Event::Interrupted,
        Event::Interrupted => Event::OutOfTime { held_millis: 1 },
        Event::OutOfTime { .. } => Event::CancelAsked,
        Event::CancelAsked => Event::Aborted,
        Event::Aborted => Event::SetupChanged { detail: words() },
        Event::SetupChanged { .. } => Event::Impossible { why: words() },
        Event::Impossible { .. } => Event::ToolServerDown { detail: words() },
        Event::ToolServerDown { .. } => Event::ReplayGivenUp { text: words() },
        Event::ReplayGivenUp { .. } => return None,
    })
}

fn states() -> Vec<State> {
    std::iter::successors(Some(State::Reserving { tries: Tries::default() }), next_state).collect()
}

fn events() -> Vec<Event> {
    std::iter::successors(Some(Event::Reserved(estimate())), next_event).collect()
}

/// A machine in the first of several iterations.
fn machine_in(state: State) -> RunMachine {
    let iteration = IterationState { number: 1, max: 9, ..IterationState::default() };
    let mut machine =
        RunMachine::new(Limits::default(), Start { iteration: Some(iteration), committed: 1, ..Start::fresh() });
    machine.state = state;
    machine
}

#[test]
fn every_event_in_every_state_is_a_transition_or_a_refusal_by_name() {
    let (states, events) = (states(), events());
    assert_eq!((states.len(), events.len()), (14, 25));
    let mut met = 0;
    for state in &states {
        for event in &events {
            let before = machine_in(state.clone());
            let mut machine = before.clone();
            let taken = machine.apply(event.clone());
            let (from, name) = (state.name(), event.name());
            let row = ROWS.iter().find(|(state, event, _)| (*state, *event) == (from, name));
            if let State::Ended(_) = state {
                assert_eq!((taken, &machine), (Ok(()), &before), "what has ended stays as it is: {name}");
            } else if let Some((_, _, to)) = row {
                met += 1;
                assert_eq!((taken, machine.state.name()), (Ok(()), *to), "{from} × {name}");
            } else if ENDS.contains(&name) {
                assert_eq!((taken, machine.state.name()), (Ok(()), "Ended"), "{from} × {name}");
            } else if name == "OutOfTime" {
                assert_eq!((taken, &machine.state), (Ok(()), state), "{from} × {name}: the time is not up");
            } else {
                let refused = UnexpectedEvent { event: name, state: from };
                assert_eq!(refused.to_string(), format!("cannot take the event {name} while {from}"));
                assert_eq!((taken, &machine), (Err(refused), &before), "{from} × {name}: nothing is changed");
            }
        }
    }
    assert_eq!(met, ROWS.len(), "a row that no pair met");
}

#[test]
fn when_the_time_is_up_the_work_ends_in_every_state() {
    for state in states() {
        let mut machine = machine_in(state.clone());
        machine.limits.max_held_millis = Some(60_000);
        machine.apply(Event::OutOfTime { held_millis: 60_000 }).unwrap();
        let Command::Stop(conclusion) = machine.command() else { panic!("{state:?}") };
        let stops = matches!(conclusion, Conclusion::Stopped { reason: RunStop::Budget, .. });
        assert_eq!(stops, !matches!(state, State::Ended(_)), "{state:?}");
    }
}

#[test]
fn a_question_about_what_is_next_changes_nothing() {
    for state in states() {
        let machine = machine_in(state);
        assert_eq!(machine.command(), machine.command());
    }
}

/// What is used counts once for each budget it belongs to, whichever family of events it comes from.
#[test]
fn what_is_used_counts_for_the_run_its_phase_and_its_iteration() {
    let mut machine = machine_in(State::Recording { reserved: estimate(), reply: reply(StopReason::ToolUse, true) });
    machine.phase = Some(PhaseState::default());
    let run = machine.used.clone();
    machine.apply(Event::Recorded(vec![call(1, false), call(2, false)])).unwrap();
    machine.state = State::Committing { turn: Turn::new(StopReason::ToolUse, String::new(), Vec::new()) };
    machine.apply(Event::Committed { held_millis: 1 }).unwrap();
    let phase = machine.phase.as_ref().unwrap().used.clone();
    assert_eq!((phase.turns, phase.tool_calls, phase.spent.tokens), (1, 2, 15));
    let of_run = (machine.used.turns - run.turns, machine.used.tool_calls - run.tool_calls);
    assert_eq!((of_run, machine.used.spent.clone()), ((1, 2), phase.spent));
    assert_eq!(machine.iteration().unwrap().tool_calls, 2);
}
