//! The tool servers send as somebody else when the run is resumed: wherever the process died, nothing of what may have happened is made there a
//! second time, and what is not in doubt needs nobody.

use ua_core::{CallStatus, RunStatus};
use ua_store::{CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus};
use ua_testkit::CrashAt;

use super::scenario::Scenario;
use super::{handles, unknown};

/// What the key or the probe settles by itself at the same account.
const BY_ITSELF: [&str; 2] = ["create_ticket", "notify"];

#[tokio::test]
async fn neither_a_key_nor_a_probe_counts_at_another_account_wherever_we_die() {
    let (mut asked, mut needed_nobody) = (0, 0);
    for at in unknown::crash_points().await {
        let scenario = unknown::scenario();
        scenario.world.send_as("ada");
        scenario.crash(at).await;
        let calls = scenario.calls().await;
        let in_doubt = calls
            .into_iter()
            .find(|call| call.status == CallStatus::Running && BY_ITSELF.contains(&call.name.tool.as_str()));
        scenario.world.send_as("bob");
        let run = scenario.resume().await;
        for tool in ["create_ticket", "notify", "post_comment"] {
            assert!(scenario.world.count(tool) <= 1, "{at:?}: {tool}");
        }
        match in_doubt {
            // What is asked about for another reason, as everywhere, is not asked about for this one.
            None => {
                let detail = run.status_detail.unwrap_or_default();
                assert!(!detail.contains("another one now"), "{at:?}: {detail}");
                needed_nobody += u32::from(run.status == RunStatus::Succeeded);
            }
            Some(call) => {
                assert_eq!(run.status, RunStatus::WaitingForHuman, "{at:?}: {:?}", run.status_detail);
                let questions = scenario.questions().await;
                let about_it = questions.iter().filter(|question| question.call_id.as_ref() == Some(&call.call_id));
                let open: Vec<_> = about_it.filter(|question| question.status == QuestionStatus::Open).collect();
                let [question] = &open[..] else { panic!("{at:?}: {open:?}") };
                assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{at:?}");
                assert!(question.text.contains("its tool server is another one now"), "{at:?}: {}", question.text);
                assert!(question.text.contains("changed: variable ACCOUNT"), "{at:?}: {}", question.text);
                // Whoever looks at both sides has it made once.
                let happened = scenario.world.count(&call.name.tool) == 1;
                let choice = if happened { Choice::Happened } else { Choice::Execute };
                scenario.choose(question, choice).await;
                let run = scenario.resume().await;
                // What a probe saw before its horizon may still begin, whoever says that it did not happen.
                let may_begin = run.status_detail.as_deref().is_some_and(|why| why.contains("could still begin"));
                assert!(run.status == RunStatus::Succeeded || may_begin, "{at:?}: {:?}", run.status_detail);
                assert_eq!(scenario.world.count(&call.name.tool), usize::from(happened || !may_begin), "{at:?}");
                asked += 1;
            }
        }
        scenario.check_invariants(&format!("{at:?}")).await;
    }
    // Sent and not answered, and never sent, of each of the two.
    assert!(asked >= 4 && needed_nobody > 10, "{asked} {needed_nobody}");
}

/// A run whose tools are not done when they answer: the first life of ada's, or the second, which begins with a person's answer.
async fn unfinished(life: usize) -> Scenario {
    let scenario = handles::scenario();
    scenario.world.send_as("ada");
    if life == 1 {
        scenario.resume().await;
        handles::answer(&scenario).await;
    }
    scenario
}

/// The call that its tool has.
async fn under_way(scenario: &Scenario) -> Option<CallRecord> {
    let running = scenario.calls().await.into_iter().find(|call| call.status == CallStatus::Running)?;
    let attempts = scenario.records().await.attempts;
    attempts.iter().any(|a| a.call_id == running.call_id && a.live_handle().is_some()).then_some(running)
}

/// The open question about a call.
async fn open_about(scenario: &Scenario, call: &CallRecord) -> Option<QuestionRecord> {
    let is_about = |question: &QuestionRecord| {
        question.call_id.as_ref() == Some(&call.call_id) && question.status == QuestionStatus::Open
    };
    scenario.questions().await.into_iter().find(is_about)
}

/// How often somebody went on with what a tool has, or told it that nobody does any more.
fn followed(scenario: &Scenario) -> usize {
    let is_about_it = |line: &&String| line.starts_with("go on") || line.starts_with("give up");
    scenario.world.log().iter().filter(is_about_it).count()
}

/// Whoever is there now has nothing of it, so it is asked about and stays as it is: with the old account back it is as if nothing had been.
#[tokio::test]
async fn what_its_tool_has_is_followed_again_when_its_server_is_back_wherever_we_die() {
    let mut back = 0;
    for life in 0..2 {
        let (crossings, _) = unfinished(life).await.run_without_crash().await;
        for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
            let scenario = unfinished(life).await;
            scenario.crash(at).await;
            let at = format!("life {life}, {at:?}");
            let Some(call) = under_way(&scenario).await else { continue };
            let before = followed(&scenario);
            scenario.world.send_as("bob");
            let run = scenario.resume().await;
            assert_eq!(run.status, RunStatus::WaitingForHuman, "{at}: {:?}", run.status_detail);
            let question = open_about(&scenario, &call).await.unwrap_or_else(|| panic!("{at}: nothing is asked"));
            assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{at}");
            assert!(question.text.contains("changed: variable ACCOUNT"), "{at}: {}", question.text);
            scenario.resume().await;
            let still = open_about(&scenario, &call).await.map(|asked| asked.question_id);
            assert_eq!(still, Some(question.question_id), "{at}: it is asked once");
            assert_eq!(under_way(&scenario).await.map(|call| call.call_id), Some(call.call_id.clone()), "{at}");
            assert_eq!(followed(&scenario), before, "{at}: bob is asked for nothing of ada's");
            scenario.check_invariants(&at).await;
            scenario.world.send_as("ada");
            let asked = handles::to_the_end(&scenario, &at).await;
            handles::check(&scenario, &asked, &at).await;
            assert!(!asked.contains(&QuestionKind::UnknownOutcome), "{at}: {asked:?}");
            back += 1;
        }
    }
    assert!(back >= 8, "too few that were under way to prove anything: {back}");
}

/// Also where the process dies while its servers are somebody else's: what a person answered is kept, and asked for once.
#[tokio::test]
async fn an_answer_for_a_tool_that_is_elsewhere_is_kept_wherever_we_die() {
    let moved = || async {
        let scenario = unfinished(1).await;
        scenario.world.send_as("bob");
        scenario
    };
    let (crossings, _) = moved().await.run_without_crash().await;
    assert!(crossings > 3, "{crossings}");
    for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
        let scenario = moved().await;
        scenario.crash(at).await;
        scenario.world.send_as("ada");
        let asked = handles::to_the_end(&scenario, &format!("{at:?}")).await;
        assert_eq!(asked, [], "{at:?}: it was answered before");
        handles::check(&scenario, &asked, &format!("{at:?}")).await;
    }
}

/// A person's words end it: whatever they say came of it, and an order to send it, for the place that was shown.
#[tokio::test]
async fn a_word_about_what_a_tool_elsewhere_has_is_final_and_an_order_is_for_the_place_that_was_shown() {
    for (choice, goes_back, sends) in [
        (Choice::Happened, false, 1),
        (Choice::Happened, true, 1),
        (Choice::Skip, false, 1),
        (Choice::Skip, true, 1),
        (Choice::Execute, false, 2),
        (Choice::Execute, true, 1),
    ] {
        let at = format!("{choice:?} {goes_back}");
        let scenario = handles::scenario();
        scenario.world.send_as("ada");
        scenario.resume().await;
        let call = under_way(&scenario).await.unwrap();
        assert_eq!(call.name.tool, "order", "{at}");
        scenario.world.send_as("bob");
        scenario.resume().await;
        scenario.choose(&open_about(&scenario, &call).await.unwrap(), choice).await;
        if goes_back {
            scenario.world.send_as("ada");
        }
        let asked = handles::to_the_end(&scenario, &at).await;
        assert_eq!(handles::times(&scenario, "invoke order"), sends, "{at}: {:?}", scenario.world.log());
        let is_followed = choice == Choice::Execute;
        assert_eq!(scenario.world.count("order"), usize::from(is_followed), "{at}");
        assert_eq!(asked.contains(&QuestionKind::Elicitation), is_followed, "{at}: {asked:?}");
        scenario.check_invariants(&at).await;
    }
}

/// Whoever ends the run while its servers are somebody else's tells these nothing: they may have something of that name.
#[tokio::test]
async fn nobody_elsewhere_is_told_to_give_up_what_another_one_has() {
    let scenario = handles::scenario();
    scenario.world.send_as("ada");
    scenario.resume().await;
    scenario.world.send_as("bob");
    scenario.canceller().cancel().await;
    assert_eq!(scenario.resume().await.status, RunStatus::Cancelled);
    assert_eq!(handles::times(&scenario, "give up order"), 0, "{:?}", scenario.world.log());
}
