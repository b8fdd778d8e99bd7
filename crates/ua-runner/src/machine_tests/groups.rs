//! Calls that stand beside each other: actions of one composite tool use, and tasks of one group.

use super::*;

/// An action of the only batch.
fn action(n: u32, has_effect: bool) -> OpenCall {
    OpenCall { composite: Some("batch".to_owned()), ..call(n, has_effect) }
}

#[test]
fn an_action_that_fails_cancels_what_comes_after_its_batch_and_not_what_stands_beside_it() {
    let mut machine =
        recorded(Limits::default(), vec![action(1, true), action(2, true), call(3, true), call(4, false)]);
    let failed = Event::Dispatched(vec![settled(1, CallStatus::FailedReported, true)]);
    let read = settled(4, CallStatus::Succeeded, false);
    let commands =
        feed(&mut machine, [failed, Event::Cancelled, Event::Dispatched(vec![ok(2)]), Event::Dispatched(vec![read])]);
    assert_eq!(commands[1], Command::CancelAfterFailure { calls: vec![id(3)], failed: id(1) });
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(2)], vec![id(4)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn a_held_action_waits_with_what_comes_after_its_batch_until_those_beside_it_are_done() {
    let mut machine =
        recorded(Limits::default(), vec![action(1, true), action(2, true), action(3, false), call(4, true)]);
    let held = Event::Dispatched(vec![Dispatched::Held(question(1))]);
    let read = settled(3, CallStatus::Succeeded, false);
    let commands = feed(&mut machine, [held, Event::Dispatched(vec![ok(2)]), Event::Dispatched(vec![read])]);
    assert_eq!(dispatches(&commands), [vec![id(1)], vec![id(2)], vec![id(3)]]);
    assert_eq!(commands.last(), Some(&Command::Stop(Conclusion::Waiting { question: question(1) })));
    // The first of several questions is the one that is shown; the store has them all.
    let mut machine = recorded(Limits::default(), vec![action(1, true), action(2, true)]);
    let events = [1, 2].map(|n| Event::Dispatched(vec![Dispatched::Held(question(n))]));
    let commands = feed(&mut machine, events);
    assert_eq!(commands.last(), Some(&Command::Stop(Conclusion::Waiting { question: question(1) })));
}

#[test]
fn a_call_that_is_no_action_waits_alone() {
    let mut machine = recorded(Limits::default(), vec![call(1, true), call(2, true), action(3, true)]);
    let commands = feed(&mut machine, [Event::Dispatched(vec![Dispatched::Held(question(1))])]);
    assert_eq!(commands.last(), Some(&Command::Stop(Conclusion::Waiting { question: question(1) })));
}

/// Tasks and other calls of a turn, by their rows: `t` is a task, `w` a write.
fn turn_of(kinds: &str) -> Vec<OpenCall> {
    let rows: Vec<CallRecord> = kinds
        .chars()
        .zip(1..)
        .map(|(kind, n)| {
            let Dispatched::Settled(row) = settled(n, CallStatus::Prepared, true) else { unreachable!("made so") };
            let name = if kind == 't' { ua_core::ToolName::task() } else { row.name.clone() };
            CallRecord { name, ..*row }
        })
        .collect();
    OpenCall::of_turn(&rows, &[])
}

#[test]
fn tasks_side_by_side_run_together_and_everything_else_keeps_its_order() {
    let mut machine = recorded(Limits::default(), turn_of("ttwtt"));
    let done = |ns: &[u32]| Event::Dispatched(ns.iter().map(|n| ok(*n)).collect());
    let commands = feed(&mut machine, [done(&[1, 2]), done(&[3]), done(&[4, 5])]);
    assert_eq!(dispatches(&commands), [vec![id(1), id(2)], vec![id(3)], vec![id(4), id(5)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn a_task_that_fails_cancels_what_comes_after_its_group() {
    let mut machine = recorded(Limits::default(), turn_of("ttw"));
    let failed = settled(1, CallStatus::FailedReported, true);
    let commands = feed(&mut machine, [Event::Dispatched(vec![failed, ok(2)]), Event::Cancelled]);
    assert_eq!(commands[1], Command::CancelAfterFailure { calls: vec![id(3)], failed: id(1) });
    // Found by a resume: the one beside it is under way and goes on.
    let mut calls = turn_of("ttw");
    (calls[0].is_settled, calls[0].has_failed) = (true, true);
    let mut machine = recorded(Limits::default(), calls);
    let commands = feed(&mut machine, [Event::Cancelled, Event::Dispatched(vec![ok(2)])]);
    assert_eq!(commands[0], Command::CancelAfterFailure { calls: vec![id(3)], failed: id(1) });
    assert_eq!(dispatches(&commands), [vec![id(2)]]);
    assert_eq!(commands.last(), Some(&Command::Commit { turn: 1 }));
}

#[test]
fn a_run_waits_or_stops_as_its_sub_agents_do() {
    let mut machine = recorded(Limits::default(), turn_of("ttw"));
    let commands = feed(&mut machine, [Event::Dispatched(vec![Dispatched::Held(question(1)), ok(2)])]);
    assert_eq!(commands.last(), Some(&Command::Stop(Conclusion::Waiting { question: question(1) })));
    let parked = Dispatched::Parked { reason: RunStop::Provider, detail: "away".to_owned() };
    let mut machine = recorded(Limits::default(), turn_of("tt"));
    let commands = feed(&mut machine, [Event::Dispatched(vec![Dispatched::Held(question(1)), parked])]);
    let stop = Conclusion::Stopped { reason: RunStop::Provider, detail: "away".to_owned() };
    assert_eq!(commands.last(), Some(&Command::Stop(stop)));
}

/// Of several sub-agents that stopped, the run says what lasts: a refusal before an outage, and of two waits the longer one, in whatever order.
#[test]
fn a_run_stops_for_what_somebody_has_to_correct_and_for_the_longest_wait() {
    let told = |reason, minutes: u64| {
        let wait = Duration::from_mins(minutes);
        let asked = AskedWait { wait, until: Timestamp::from_millis(0).plus(wait) };
        Dispatched::Parked { reason, detail: format!("sub-agent {minutes}: {asked}. Resume it later.") }
    };
    let (short, long) = (told(RunStop::Provider, 10), told(RunStop::Provider, 20));
    let refused = told(RunStop::ProviderRefused, 1);
    for (one, other, wanted) in [(&short, &long, &long), (&short, &refused, &refused), (&refused, &refused, &refused)] {
        for both in [[one, other], [other, one]] {
            let mut machine = recorded(Limits::default(), turn_of("tt"));
            let commands = feed(&mut machine, [Event::Dispatched(both.map(Clone::clone).to_vec())]);
            let Dispatched::Parked { reason, detail } = wanted else { unreachable!("each is parked") };
            let stop = Conclusion::Stopped { reason: *reason, detail: detail.clone() };
            assert_eq!(commands.last(), Some(&Command::Stop(stop)), "{both:?}");
        }
    }
}
