//! How patient the machine is, and which replies it takes for an answer.

use super::*;
use crate::retry::{Refusal, RetryPolicy};

#[test]
fn an_outage_is_outlived_as_long_as_the_patience_lasts_and_no_longer() {
    let retry = RetryPolicy { max_wait: Some(Duration::from_mins(10)), ..RetryPolicy::default() };
    let mut machine = RunMachine::new(Limits::default(), Start::fresh()).with_retry(retry);
    let mut waited = Duration::ZERO;
    loop {
        feed(&mut machine, [reserved(), Event::Thought(Err(failure(false, true)))]);
        let Command::Wait { wait, left, left_broken: None, .. } = machine.command() else { break };
        waited += wait;
        assert_eq!(waited + left, Duration::from_mins(10));
        machine.apply(Event::Waited).unwrap();
    }
    assert_eq!(waited, Duration::from_mins(10));
    let command = machine.command();
    assert_eq!(stop_reason(&command), Some(RunStop::Provider), "{command:?}");
}

#[test]
fn what_broke_off_is_paid_for_five_times() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let cut = ThinkFailure { had_begun: true, ..failure(true, true) };
    for left in [4, 3, 2, 1] {
        feed(&mut machine, [reserved(), Event::Thought(Err(cut.clone()))]);
        // Whoever is told how long the model is asked again is told what ends it first.
        let Command::Wait { left_broken, .. } = machine.command() else { panic!("{:?}", machine.command()) };
        assert_eq!(left_broken, Some(left));
        machine.apply(Event::Waited).unwrap();
    }
    feed(&mut machine, [reserved(), Event::Thought(Err(cut))]);
    assert!(matches!(
        machine.command(),
        Command::Stop(Conclusion::Stopped { reason: RunStop::Provider, detail })
            if detail == "5 requests brought no reply; the last one: busy (resume later)"
    ));
}

#[test]
fn a_request_that_is_too_long_is_made_again_at_once_a_few_times() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let long = ThinkFailure { is_too_long: true, refused: Some(Refusal::Request), ..failure(true, false) };
    for _ in 0..6 {
        feed(&mut machine, [reserved(), Event::Thought(Err(long.clone()))]);
        assert_eq!(machine.command(), Command::Reserve { turn: 1 });
    }
    feed(&mut machine, [reserved(), Event::Thought(Err(long))]);
    let command = machine.command();
    assert_eq!(stop_reason(&command), Some(RunStop::ProviderRefused));
    // A resume leaves out as many again, so it is not said to be in vain.
    let Command::Stop(Conclusion::Stopped { detail, .. }) = command else { panic!() };
    assert!(detail.contains("tools.deny") && !detail.contains("A resume alone"), "{detail}");
}

#[test]
fn a_wrong_model_name_is_told_from_what_a_resume_may_find_corrected() {
    let stops = |error: ua_llm::LlmError| {
        let mut machine = RunMachine::new(Limits::default(), Start::fresh());
        // The words are those of no model: it is the error that is looked at.
        let refused = ThinkFailure { message: "no".to_owned(), refused: Refusal::of(&error), ..failure(true, false) };
        feed(&mut machine, [reserved(), Event::Thought(Err(refused))]);
        stop_reason(&machine.command())
    };
    let unknown = ua_llm::LlmError::NotFound { model: "gpt-0".to_owned(), message: "no such model".to_owned() };
    assert_eq!(stops(unknown), Some(RunStop::UnknownModel));
    let forbidden = || ua_llm::LlmError::InvalidRequest { status: 400, message: "provider knows no model".to_owned() };
    assert_eq!(stops(forbidden()), Some(RunStop::ProviderRefused));
    // A cassette has the same answers next time.
    let unrecorded = ua_llm::LlmError::NotRecorded { why: "no".to_owned() };
    assert_eq!(stops(unrecorded), Some(RunStop::ProviderRefused));
    let away = ua_llm::LlmError::Overloaded { retry_after: None, message: "busy".to_owned() };
    assert_eq!(stops(away), Some(RunStop::Provider));
}

#[test]
fn a_question_about_credentials_names_no_answer() {
    let mut machine = RunMachine::new(Limits { ask_on_auth_failure: true, ..Limits::default() }, Start::fresh());
    let why = ua_llm::LlmError::Unauthorized { status: 401, message: "invalid key".to_owned() }.to_string();
    let refused = ThinkFailure { credentials_refused: true, why, ..failure(true, false) };
    feed(&mut machine, [reserved(), Event::Thought(Err(refused))]);
    let Command::Ask { text, .. } = machine.command() else { panic!("{:?}", machine.command()) };
    // `retry` at a terminal, `Choice::Continue` in a program: whoever shows the question says it.
    assert_eq!(
        text,
        "The model provider refused the credentials (HTTP 401): invalid key. Correct them before you answer."
    );
}

#[test]
fn a_tool_that_the_provider_does_not_take_is_left_out_and_the_request_made_again_at_once() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let bad =
        ThinkFailure { without: Some("mcp__a__bad".into()), refused: Some(Refusal::Request), ..failure(true, false) };
    for _ in 0..32 {
        feed(&mut machine, [reserved(), Event::Thought(Err(bad.clone()))]);
        assert_eq!(machine.command(), Command::Reserve { turn: 1 });
    }
    feed(&mut machine, [reserved(), Event::Thought(Err(bad))]);
    assert_eq!(stop_reason(&machine.command()), Some(RunStop::ProviderRefused));
}

/// The end of a turn whose reply asks for nothing and says `text`.
fn said(machine: &mut RunMachine, stop_reason: StopReason, text: &str) -> Command {
    let blocks = vec![Block::text(text)];
    let reply = ModelTurn { blocks, stop_reason, usage: None, model: "m".into(), response_id: None };
    let events = [
        reserved(),
        Event::Thought(Ok(Box::new(reply))),
        Event::Recorded(Vec::new()),
        Event::Committed { held_millis: 0 },
    ];
    feed(machine, events).pop().unwrap()
}

#[test]
fn a_reply_that_is_no_answer_is_told_once_and_never_a_success() {
    for (reason, text) in [
        (StopReason::Refusal, "I will not."),
        (StopReason::EndTurn, " "),
        (StopReason::ToolUse, "Calling."),
        (StopReason::Other, "So"),
    ] {
        for asks in [true, false] {
            let limits = Limits { ask_on_repeated_failures: asks, ..Limits::default() };
            let mut machine = RunMachine::new(limits, Start::fresh());
            assert!(matches!(said(&mut machine, reason, text), Command::Guide { text: Guidance::Unfinished(_) }));
            machine.apply(Event::Guided).unwrap();
            let end = said(&mut machine, reason, text);
            let told = if let Command::Ask { kind: QuestionKind::RepeatedFailures, text } = &end
                && asks
            {
                text
            } else if let Command::Stop(Conclusion::Failed { why }) = &end
                && !asks
            {
                why
            } else {
                panic!("{reason:?}: {end:?}")
            };
            assert!(told.contains(text.trim()), "{told}");
        }
    }
}

/// A process that was killed before it could say so to the model has not said it: the next one does, behind the note of the resume.
#[test]
fn a_resume_tells_the_model_what_a_kill_left_untold() {
    let mut talk = Talk::default();
    let end = talk.take(StopReason::MaxTokens, "The first half, ").unwrap_err();
    let start = Start { committed: 1, is_resume: true, untold: Some(end), talk, ..Start::fresh() };
    let mut machine = RunMachine::new(Limits::default(), start);
    let commands = feed(&mut machine, [Event::ReplayFinished, Event::Guided]);
    let told = Command::Guide { text: Guidance::Unfinished(ReplyEnd::Cut) };
    assert_eq!(commands, [Command::FinishReplay { note: true }, told, Command::Reserve { turn: 2 }]);
    let Command::CheckEvidence { last_word } = said(&mut machine, StopReason::EndTurn, "and the second.") else {
        panic!("it is an answer")
    };
    assert_eq!(last_word.text(), "The first half, and the second.");
}

#[test]
fn an_answer_forgives_the_replies_that_were_none() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    assert!(matches!(said(&mut machine, StopReason::Refusal, "No."), Command::Guide { .. }));
    machine.apply(Event::Guided).unwrap();
    assert_eq!(
        said(&mut machine, StopReason::EndTurn, "Done."),
        Command::CheckEvidence { last_word: Word::of("Done.") }
    );
    let resumed = Start { talk: Talk::after_vain(1), ..Start::fresh() };
    let mut machine = RunMachine::new(Limits { ask_on_repeated_failures: true, ..Limits::default() }, resumed);
    assert!(matches!(said(&mut machine, StopReason::EndTurn, ""), Command::Ask { .. }), "it counts over a kill");
}
