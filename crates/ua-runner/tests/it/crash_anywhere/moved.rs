//! The tool servers send as somebody else when the run is resumed: wherever the process died, nothing of what may have happened is made there a
//! second time, and what is not in doubt needs nobody.

use ua_core::{CallStatus, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionStatus};

use super::unknown;

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
