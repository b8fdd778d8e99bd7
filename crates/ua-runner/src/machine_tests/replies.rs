//! How patient the machine is, and which replies it takes for an answer.

use ua_core::Audience;

use super::*;
use crate::retry::{Correction, Refusal, RetryPolicy};

#[test]
fn an_outage_is_outlived_as_long_as_the_patience_lasts_and_no_longer() {
    let retry = RetryPolicy { max_wait: Some(Duration::from_mins(10)), ..RetryPolicy::default() };
    let mut machine = RunMachine::new(Limits::default(), Start::fresh()).with_retry(retry);
    let mut waited = Duration::ZERO;
    loop {
        feed(&mut machine, [reserved(), Event::Thought(Err(failure(false, true)))]);
        let Command::Wait { wait, left, may_be_billed: false, .. } = machine.command() else { break };
        waited += wait;
        assert_eq!(waited + left, Duration::from_mins(10));
        machine.apply(Event::Waited).unwrap();
    }
    assert_eq!(waited, Duration::from_mins(10));
    let command = machine.command();
    assert_eq!(stop_reason(&command), Some(RunStop::Provider), "{command:?}");
}

/// A page where a reply should be is waited out like an outage where replies came from. A run that never had one is told after a few tries that
/// its address is another one's.
#[test]
fn what_is_no_api_is_not_waited_for_where_no_reply_ever_came() {
    let foreign = ThinkFailure { is_foreign: true, ..failure(false, true) };
    for (committed, most) in [(0, 6), (3, u32::MAX)] {
        let start = Start { committed, ..Start::fresh() };
        let mut machine = RunMachine::new(Limits::default(), start);
        let mut requests = 0;
        let mut passed = Duration::ZERO;
        loop {
            feed(&mut machine, [reserved(), Event::Thought(Err(foreign.clone()))]);
            requests += 1;
            let Command::Wait { wait, .. } = machine.command() else { break };
            passed += wait;
            machine.apply(Event::Waited).unwrap();
        }
        let Command::Stop(Conclusion::Stopped { reason: RunStop::Provider, detail }) = machine.command() else {
            panic!("{:?}", machine.command())
        };
        assert!(detail.starts_with(&format!("{requests} requests brought no reply")), "{detail}");
        assert_eq!((requests == most, passed < Duration::from_mins(1)), (committed == 0, committed == 0), "{requests}");
    }
    // An outage that comes in between is one.
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    for _ in 0..5 {
        feed(&mut machine, [reserved(), Event::Thought(Err(foreign.clone())), Event::Waited]);
        feed(&mut machine, [reserved(), Event::Thought(Err(failure(false, true)))]);
        assert!(matches!(machine.command(), Command::Wait { .. }));
        machine.apply(Event::Waited).unwrap();
    }
}

/// A reply that breaks off is an outage like another one, and whoever waits is told that it may cost something.
#[test]
fn what_breaks_off_is_waited_out_and_said_to_be_billed() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let cut = failure(true, true);
    let mut passed = Duration::ZERO;
    let mut requests = 0;
    loop {
        feed(&mut machine, [reserved(), Event::Thought(Err(cut.clone()))]);
        requests += 1;
        let Command::Wait { wait, left, may_be_billed, .. } = machine.command() else { break };
        passed += wait;
        assert!(may_be_billed);
        assert_eq!(passed + left, Duration::from_mins(30));
        machine.apply(Event::Waited).unwrap();
    }
    assert!(matches!(
        machine.command(),
        Command::Stop(Conclusion::Stopped { reason: RunStop::Provider, detail })
            if detail == format!("{requests} requests brought no reply; the last one: busy (resume later)")
    ));
}

#[test]
fn a_request_that_is_too_long_is_made_again_at_once_a_few_times() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let long = ThinkFailure { is_too_long: true, refused: Some(Refusal::Request), ..failure(true, false) };
    for _ in 0..12 {
        feed(&mut machine, [reserved(), Event::Thought(Err(long.clone()))]);
        assert_eq!(machine.command(), Command::Reserve { turn: 1 });
    }
    feed(&mut machine, [reserved(), Event::Thought(Err(long))]);
    let command = machine.command();
    assert_eq!(stop_reason(&command), Some(RunStop::ProviderRefused));
}

/// A guess is made twice; what is refused then is the provider's to explain.
#[test]
fn a_guess_is_made_twice() {
    let perhaps = ThinkFailure { may_be_too_long: true, refused: Some(Refusal::Request), ..failure(true, false) };
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    for _ in 0..2 {
        feed(&mut machine, [reserved(), Event::Thought(Err(perhaps.clone()))]);
        assert_eq!(machine.command(), Command::Reserve { turn: 1 });
    }
    feed(&mut machine, [reserved(), Event::Thought(Err(perhaps.clone()))]);
    let told = machine.command();
    assert!(
        matches!(&told, Command::Stop(Conclusion::Stopped { detail, .. }) if detail.starts_with("busy (resume later).")),
        "{told:?}"
    );
}

/// `retry` about what is missing asks the model, also where only a person can say what came of it; what it leaves as it is is asked about again.
#[test]
fn a_person_who_lets_the_model_try_again_has_it_asked() {
    let for_a_person = Missing { is_for_a_person: true, ..Missing::from("the e-mail") };
    let start = || Start { committed: 1, last_word: Some(Word::of("Done.")), may_try_again: true, ..Start::fresh() };
    for found in [Missing::from("the e-mail"), for_a_person.clone()] {
        let limits = Limits { ask_on_repeated_failures: true, ..Limits::default() };
        let mut machine = RunMachine::new(limits, start());
        let commands = feed(&mut machine, [Event::Evidence(Err(found)), Event::Guided]);
        let told = Command::Guide { text: Guidance::Missing("the e-mail".to_owned()) };
        assert_eq!(commands[1..], [told, Command::Reserve { turn: 2 }]);
        assert!(matches!(said(&mut machine, StopReason::EndTurn, "Done."), Command::CheckEvidence { .. }));
        machine.apply(Event::Evidence(Err(for_a_person.clone()))).unwrap();
        assert!(matches!(machine.command(), Command::Ask { kind: QuestionKind::MissingEvidence, .. }));
    }
    let mut machine = RunMachine::new(Limits::default(), start());
    machine.apply(Event::Evidence(Ok(()))).unwrap();
    assert!(matches!(machine.command(), Command::Stop(Conclusion::Succeeded { .. })));
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
    let forbidden = || ua_llm::LlmError::InvalidRequest {
        status: ua_llm::Status::Http(400),
        message: "provider knows no model".to_owned(),
    };
    assert_eq!(stops(forbidden()), Some(RunStop::ProviderRefused));
    // A cassette has the same answers next time.
    let unrecorded = ua_llm::LlmError::NotRecorded { why: "no".to_owned() };
    assert_eq!(stops(unrecorded), Some(RunStop::ProviderRefused));
    let away = ua_llm::LlmError::Overloaded { retry_after: None, message: "busy".to_owned() };
    assert_eq!(stops(away), Some(RunStop::Provider));
}

#[test]
fn a_question_about_credentials_names_no_answer() {
    for (error, asked) in [
        (
            ua_llm::LlmError::Unauthorized { status: ua_llm::Status::Http(401), message: "invalid key".to_owned() },
            "The model provider refused the credentials (HTTP 401): invalid key. Correct them before you answer.",
        ),
        (
            ua_llm::LlmError::Unpaid { status: ua_llm::Status::Http(400), message: "no credit".to_owned() },
            "The model provider's account cannot pay for the request (HTTP 400): no credit. Add credit there, or raise its limit, before you \
             answer.",
        ),
    ] {
        let mut machine = RunMachine::new(Limits { ask_on_auth_failure: true, ..Limits::default() }, Start::fresh());
        let (correction, why) = (Correction::of(&error), error.to_string());
        let refused = ThinkFailure { why, correction, ..failure(true, false) };
        feed(&mut machine, [reserved(), Event::Thought(Err(refused))]);
        let Command::Ask { text, .. } = machine.command() else { panic!("{:?}", machine.command()) };
        // `retry` at a terminal, `Choice::Continue` in a program: whoever shows the question says it.
        assert_eq!(text, asked);
    }
}

#[test]
fn a_tool_that_the_provider_does_not_take_is_left_out_and_the_request_made_again_at_once() {
    let bad =
        ThinkFailure { without: Some("mcp__a__bad".into()), refused: Some(Refusal::Request), ..failure(true, false) };
    for audience in [Audience::Terminal, Audience::Program] {
        let mut machine = RunMachine::new(Limits { audience, ..Limits::default() }, Start::fresh());
        for _ in 0..32 {
            feed(&mut machine, [reserved(), Event::Thought(Err(bad.clone()))]);
            assert_eq!(machine.command(), Command::Reserve { turn: 1 });
        }
        feed(&mut machine, [reserved(), Event::Thought(Err(bad.clone()))]);
        assert_eq!(stop_reason(&machine.command()), Some(RunStop::ProviderRefused));
        // A program has no job file in which to deny a tool.
        assert_eq!(format!("{:?}", machine.command()).contains("tools.deny"), audience == Audience::Terminal);
    }
}

#[test]
fn a_request_that_may_be_refused_for_its_images_is_made_again_at_once_without_them() {
    let mut machine = RunMachine::new(Limits::default(), Start::fresh());
    let bad = ThinkFailure { without_images: true, refused: Some(Refusal::Request), ..failure(true, false) };
    feed(&mut machine, [reserved(), Event::Thought(Err(bad.clone()))]);
    assert_eq!(machine.command(), Command::Reserve { turn: 1 });
    // There are none in the next one, so what is refused then is something else.
    feed(&mut machine, [reserved(), Event::Thought(Err(ThinkFailure { without_images: false, ..bad }))]);
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

/// Whatever a refused reply asked for, it is a refusal: a person is asked after as many of them as without calls, and hears that the model refused and not
/// that calls were not run.
#[test]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the test fails")]
fn a_refusal_that_asks_for_tools_is_a_refusal() {
    let refused = |machine: &mut RunMachine| {
        let reply = reply(StopReason::Refusal, true);
        let not_run = OpenCall { is_settled: true, has_failed: true, ..call(1, true) };
        let events = [
            reserved(),
            Event::Thought(Ok(reply)),
            Event::Recorded(vec![not_run]),
            Event::Committed { held_millis: 0 },
        ];
        feed(machine, events).pop().unwrap()
    };
    for asks in [true, false] {
        let limits = Limits { ask_on_repeated_failures: asks, max_same_error_repeats: Some(1), ..Limits::default() };
        let mut machine = RunMachine::new(limits, Start::fresh());
        assert_eq!(refused(&mut machine), Command::Reserve { turn: 2 }, "its results tell the model");
        let told = match refused(&mut machine) {
            Command::Ask { kind: QuestionKind::RepeatedFailures, text } if asks => text,
            Command::Stop(Conclusion::Failed { why }) if !asks => why,
            other => panic!("{other:?}"),
        };
        assert!(told.starts_with("The model refused") && told.ends_with("twice in a row. It said: words"), "{told}");
    }
    // One with calls and one without are two.
    let limits = Limits { ask_on_repeated_failures: false, ..Limits::default() };
    let mut machine = RunMachine::new(limits, Start::fresh());
    refused(&mut machine);
    assert!(matches!(said(&mut machine, StopReason::Refusal, "No."), Command::Stop(Conclusion::Failed { .. })));
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

/// A process that died before it asked a person what it was to ask has not asked; the next one does, before it asks the model again. What was asked is
/// not asked twice, and whoever left the run in order had asked.
#[test]
fn a_resume_asks_a_person_what_a_kill_left_unasked() {
    let vain = || Some((ReplyEnd::Refused, "No.".to_owned()));
    let same = || Some(("tool: boom".to_owned(), 2));
    for (talk, no_answer, same_error, asked) in [
        (Talk::after_vain(2), vain(), None, "The model refused"),
        (Talk::default(), None, same(), "The same failure happened 2 times"),
        (Talk::after_vain(1), vain(), None, ""),
        (Talk::default(), vain(), None, ""),
    ] {
        for was_left in [true, false] {
            let limits =
                Limits { ask_on_repeated_failures: true, max_same_error_repeats: Some(1), ..Limits::default() };
            let start = Start {
                committed: 2,
                is_resume: true,
                was_left,
                talk: talk.clone(),
                no_answer: no_answer.clone(),
                same_error: same_error.clone(),
                ..Start::fresh()
            };
            let is_asked = was_left && !asked.is_empty();
            let mut machine = RunMachine::new(limits, start);
            assert_eq!(machine.command(), Command::FinishReplay { note: !is_asked });
            machine.apply(Event::ReplayFinished).unwrap();
            let command = machine.command();
            if is_asked {
                let Command::Ask { kind: QuestionKind::RepeatedFailures, text } = command else {
                    panic!("{command:?}")
                };
                assert!(text.starts_with(asked), "{text}");
            } else {
                assert_eq!(command, Command::Reserve { turn: 3 }, "{asked}, {was_left}");
            }
        }
    }
}
