//! Tools in the same process: what they are handed, and what each of their answers means.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{
    CallStatus, ClassSource, CorrectedTo, Destination, Outcome, RawReply, RunStop, Timestamp, ToolAnnotations,
    ToolName, ToolSpec,
};
use ua_dispatch::{CallProgress, Fence, LocalCall, LocalFailure, ToolTransport, TransportError};
use ua_ledger::{Enquiry, NotTaken, Permit};
use ua_runner::{RunEvent, StepError, StepOutcome};
use ua_store::{AttemptRecord, CallRecord, Choice, Correction, LedgerStore as _, QuestionKind};

use super::shop::{Answer, Orders, POLICY, SCRIPT, Shop, done, spec};

const KEYED: &str = r#"
[[rule]]
id = "orders"
server = "shop"
name = "place_order"
side_effect_class = "external"
key_channel = "meta"
"#;

async fn order(shop: &Shop) -> CallRecord {
    shop.records().await.calls.into_iter().find(|call| call.name.tool == "place_order").unwrap()
}

fn keys(calls: &[LocalCall]) -> HashSet<&str> {
    calls.iter().map(LocalCall::key).collect()
}

#[tokio::test]
async fn a_tool_is_handed_its_arguments_its_call_and_its_key() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let _outcome = shop.run().await.unwrap();
    let (orders, stored) = (shop.orders(), order(&shop).await);
    let [call] = orders.as_slice() else { panic!("{orders:?}") };
    assert_eq!((call.text("article"), call.text("colour")), ("pen", ""));
    let permitted = call.permitted.as_ref().unwrap();
    assert_eq!((&permitted.call_id, permitted.attempt), (&stored.call_id, 1));
    assert_eq!(Some(&permitted.idempotency_key), stored.idempotency_key.as_ref());
    assert_eq!(stored.status, CallStatus::Succeeded);
}

#[tokio::test]
async fn what_was_not_done_is_tried_again_under_the_same_key() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| match calls.len() {
        1 | 2 => Err(LocalFailure::NotDone("the printer is warming up".into())),
        _ => Ok(Value::String("done".into())),
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (3, 1));
    assert_eq!(order(&shop).await.attempt, 3);
}

#[tokio::test]
async fn a_reported_failure_goes_to_the_model_and_nothing_is_repeated() {
    let script = SCRIPT.replace(
        r#"{"text": "Ordered."}"#,
        r#"{"text": "Sold out.", "expect": {"contains": ["no pens left"], "tool_result_ok": false}}"#,
    );
    let shop = Shop::new(&script, POLICY, |_| Err("no pens left".into()));
    let outcome = shop.run().await.unwrap();
    assert!(
        matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Sold out."),
        "{outcome:?}"
    );
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_lost_call_asks_a_person_and_is_made_again_only_when_told_to() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| match calls.len() {
        1 => Err(LocalFailure::Unknown("the line went dead".into())),
        _ => Ok(json!({"order": 2})),
    });
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Waiting { .. }), "{outcome:?}");
    }
    assert_eq!(shop.orders().len(), 1, "asking again does not send again");
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("still waiting") };
    shop.answer(&question, Choice::Execute).await;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len(), shop.requests()), (2, 1, 3));
}

#[tokio::test]
async fn a_lost_call_of_a_tool_that_takes_keys_needs_nobody() {
    let shop = Shop::new(SCRIPT, KEYED, |calls| match calls.len() {
        1 => Err(LocalFailure::Unknown("the line went dead".into())),
        _ => Ok(json!({"order": 2})),
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (2, 1));
}

#[tokio::test]
async fn a_tool_that_panics_leaves_its_call_in_doubt_and_the_run_alive() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| panic!("out of paper after {}", calls.len()));
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("a panic is a doubt") };
    assert_eq!(question.call_id, Some(order(&shop).await.call_id));
    let attempts = format!("{:?}", shop.records().await.attempts);
    assert!(attempts.contains("the tool panicked: out of paper after 1"), "{attempts}");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_timeout_of_a_policy_leaves_the_call_in_doubt() {
    let script = SCRIPT.replace("place_order", "wait_for_ever");
    let policy = KEYED.replace("place_order", "wait_for_ever").replace("key_channel = \"meta\"", "timeout = \"3s\"");
    let shop = Shop::with_tools(&script, &policy, done, |tools, _| {
        tools.with(spec("wait_for_ever", &json!({})), |_: LocalCall| std::future::pending())
    });
    let StepOutcome::Waiting { .. } = shop.run().await.unwrap() else { panic!("nobody knows whether it happened") };
    let attempts = format!("{:?}", shop.records().await.attempts);
    assert!(attempts.contains("it did not answer within 3s"), "{attempts}");
}

/// A repeat that was asked for while nobody knew whether the first one happened is not sent because somebody says now that it did: whoever asked for
/// it did not know that. By a correction of the record, and by an answer that comes while the run goes on.
#[tokio::test]
async fn a_doubt_that_ends_lets_out_no_repeat_that_was_asked_for_in_it() {
    let goes_on = KEYED.replace("key_channel = \"meta\"", "on_unknown = \"continue\"");
    // What a run went on without holds its tool in any words, so its end lets out none of them.
    for (policy, is_answered, first) in
        [(POLICY, false, "pen"), (goes_on.as_str(), true, "pen"), (goes_on.as_str(), true, "a pen")]
    {
        let first = format!(r#""input": {{"article": "{first}"}}"#);
        let script = SCRIPT.replace("list_stock", "place_order").replace(r#""input": {}"#, &first);
        let shop = Shop::new(&script, policy, |_| Err(LocalFailure::Unknown("the line went dead".into())));
        let StepOutcome::Waiting { question: first } = shop.run().await.unwrap() else { panic!("a doubt") };
        let repeat = if is_answered {
            first
        } else {
            shop.answer(&first, Choice::Skip).await;
            let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("a repeat") };
            question
        };
        assert_eq!((repeat.kind, shop.orders().len()), (QuestionKind::NearDuplicate, 1), "{}", repeat.text);
        let records = shop.records().await;
        let lost =
            records.calls.iter().find(|call| call.doubt.is_some() || call.status == CallStatus::Unknown).unwrap();
        shop.host.env.clock.sleep(Duration::from_secs(1)).await;
        if is_answered {
            let open = records.questions.iter().find(|asked| asked.call_id.as_ref() == Some(&lost.call_id)).unwrap();
            shop.answer(open, Choice::Happened).await;
        } else {
            let correction = Correction {
                outcome: CorrectedTo::Happened,
                was: lost.status,
                reason: "it is in the books".to_owned(),
                proof: None,
                by: "ada".to_owned(),
                at: shop.host.env.now(),
                of: None,
                was_answered: false,
            };
            shop.store.correct_call(ua_ledger::correct_call(lost, correction, true)).await.unwrap();
        }
        let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("nobody let it out") };
        assert_eq!((question.kind, shop.orders().len()), (QuestionKind::NearDuplicate, 1), "{}", question.text);
        assert!(question.text.contains(lost.call_id.as_str()), "{}", question.text);
        shop.answer(&question, Choice::Skip).await;
        let ended = shop.run().await.unwrap();
        assert!(matches!(ended, StepOutcome::Complete { .. }), "{ended:?}");
        assert_eq!(shop.orders().len(), 1);
    }
}

/// What only its name calls a read may be something else: it is sent again once when it is lost, and the model is told. What a rule calls a read is
/// sent as often as the job allows.
#[tokio::test]
async fn a_read_by_its_name_alone_is_sent_again_once() {
    let rule =
        "[[rule]]\nid = \"refunds\"\nserver = \"shop\"\nname = \"get_refund\"\nside_effect_class = \"read_only\"\n";
    for (policy, source, sent) in [(POLICY, ClassSource::Name, 2), (rule, ClassSource::UserPolicy, 6)] {
        let script = SCRIPT.replace("place_order", "get_refund").replace(
            r#"{"text": "Ordered."}"#,
            r#"{"text": "No answer.", "expect": {"contains": ["the line went dead"], "tool_result_ok": false}}"#,
        );
        let shop = Shop::with_tools(&script, policy, done, |tools, orders| {
            let refund =
                ToolSpec { annotations: ToolAnnotations::default(), ..spec("get_refund", &json!({"article": {}})) };
            tools.with(refund, move |call: LocalCall| {
                orders.lock().unwrap().push(call);
                async { Err(LocalFailure::Unknown("the line went dead".into())) }
            })
        });
        let outcome = shop.run().await.unwrap();
        assert!(
            matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "No answer."),
            "{outcome:?}"
        );
        let calls = shop.records().await.calls;
        let refund = calls.iter().find(|call| call.name.tool == "get_refund").unwrap();
        assert_eq!((refund.policy.class_source, refund.attempt), (source, sent));
        assert_eq!(shop.orders().len(), sent as usize, "{source}");
    }
}

/// Tools of which every call comes to the same.
struct Always {
    tools: Arc<dyn ToolTransport>,
    outcome: Outcome,
    /// How long it would be waited for a server that cannot be ended.
    horizon: Duration,
    /// How often it was.
    waits: Arc<AtomicUsize>,
    /// How often its process was ended, whatever else is under way in it.
    ends: Arc<AtomicUsize>,
}

impl Always {
    fn of(shop: &Shop, outcome: &Outcome, horizon: Duration) -> Self {
        Self {
            tools: shop.step.agent.tools.clone(),
            outcome: outcome.clone(),
            horizon,
            waits: Arc::default(),
            ends: Arc::default(),
        }
    }
}

#[async_trait]
impl ToolTransport for Always {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.tools.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.tools.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.tools.ready(server).await
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.tools.destination(tool, arguments)
    }

    async fn invoke(&self, _permit: &Permit) -> Outcome {
        self.outcome.clone()
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.tools.ask(enquiry).await
    }

    fn horizon(&self, _server: &str, _generation: &str, _lost_at: Option<Timestamp>) -> Duration {
        self.horizon
    }

    async fn renew(&self, _server: &str, _generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        Fence::Gone
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.ends.fetch_add(1, Ordering::SeqCst);
        if !self.horizon.is_zero() {
            self.waits.fetch_add(1, Ordering::SeqCst);
        }
        self.tools.fence(server, generation, lost_at).await
    }
}

/// The time after which a lost call can be decided is not waited for where the run's time is over before: the run stops by that, at once, and the
/// call stays in doubt.
#[tokio::test]
async fn a_server_that_cannot_be_ended_is_not_waited_for_beyond_the_runs_time() {
    let script = json!({"turns": [
        {"tools": [{"name": "mcp__shop__place_order", "input": {"article": "pen"}}]},
        {"text": "Ordered."},
    ]});
    let lost = Outcome::Lost { why: "the line went dead".to_owned() };
    for (minutes, is_waited_for) in [(1, false), (90, true)] {
        let mut shop = Shop::new(&script.to_string(), KEYED, done);
        let always = Always::of(&shop, &lost, Duration::from_mins(1));
        let waits = always.waits.clone();
        shop.step.agent.tools = Arc::new(always);
        shop.step.budgets.max_wallclock_minutes = minutes;
        let outcome = shop.run().await.unwrap();
        assert_eq!(waits.load(Ordering::SeqCst) > 0, is_waited_for, "{outcome:?}");
        let StepOutcome::Stopped { reason: RunStop::Budget, detail } = &outcome else {
            assert!(is_waited_for, "{outcome:?}");
            continue;
        };
        assert!(!is_waited_for, "{detail}");
        let why = "and what became of `place_order` can be looked up only after a longer wait";
        assert!(
            detail.starts_with("the budget max_wallclock_minutes (1) is reached: ") && detail.ends_with(why),
            "{detail}"
        );
        assert_eq!(order(&shop).await.status, CallStatus::Unknown);
        let run = shop.records().await.run;
        assert!(ua_runner::raise_flags(&run).is_some_and(|flags| flags.starts_with("--max-wallclock-minutes +")));
    }
}

/// Whatever a read comes to, nobody is asked whether it happened: it is made again where that may help, and then the model is told what
/// went wrong. Only who writes that a person is to be asked about it has one asked.
#[tokio::test]
async fn a_read_that_fails_is_told_to_the_model_and_asks_nobody() {
    const HELD: &str = "[[rule]]\nid = \"looks\"\nserver = \"shop\"\nname = \"list_stock\"\nside_effect_class = \"read_only\"\non_unknown = \"hold\"\n";
    let script = json!({"turns": [
        {"tools": [{"name": "mcp__shop__list_stock", "input": {}}]},
        {"text": "{{result:toolu_1_1}}"},
    ]});
    let rpc = |code| Outcome::Raw(RawReply::RpcError { code, message: "it went wrong".to_owned() });
    let http = |status| Outcome::Raw(RawReply::http(status, "it went wrong"));
    let reported = json!({"content": [{"type": "text", "text": "it went wrong"}], "isError": true});
    let lost = || Outcome::Lost { why: "it went wrong".to_owned() };
    // What came, and whether it says what became of the call.
    let table = [
        (lost(), false),
        (rpc(-32603), false),
        (rpc(-32000), false),
        (rpc(7), false),
        (http(408), false),
        (http(500), false),
        (http(503), false),
        (rpc(-32601), true),
        (rpc(-32602), true),
        (http(404), true),
        (http(429), true),
        (Outcome::NotSent { why: "it went wrong".to_owned() }, true),
        (Outcome::Raw(RawReply::ToolResult { result: reported }), true),
    ];
    for (outcome, is_clear) in table {
        for (policy, may_ask) in [(POLICY, false), (HELD, true)] {
            let mut shop = Shop::new(&script.to_string(), policy, done);
            let horizon = Duration::from_secs(if may_ask { 0 } else { 30 });
            let always = Always::of(&shop, &outcome, horizon);
            let waits = always.waits.clone();
            shop.step.agent.tools = Arc::new(always);
            match shop.run().await.unwrap() {
                StepOutcome::Complete { final_output, .. } => {
                    assert!(is_clear || !may_ask, "{outcome:?}: a person was to be asked");
                    let told = final_output.as_str().unwrap_or_default().to_owned();
                    assert!(told.contains("it went wrong"), "{outcome:?}: {told}");
                    assert!(!told.contains("may have happened"), "{outcome:?}: {told}");
                }
                StepOutcome::Waiting { question } => {
                    assert!(may_ask && !is_clear, "{outcome:?}: {}", question.text);
                    assert!(question.text.contains("Did `list_stock` happen?"), "{}", question.text);
                    shop.answer(&question, Choice::Skip).await;
                    let after = shop.run().await.unwrap();
                    let StepOutcome::Complete { final_output, .. } = &after else { panic!("{after:?}") };
                    assert!(final_output.to_string().contains("It only reads"), "{final_output}");
                }
                other @ (StepOutcome::Stopped { .. } | StepOutcome::Failed { .. } | StepOutcome::Cancelled) => {
                    panic!("{outcome:?}: {other:?}")
                }
            }
            assert_eq!(waits.load(Ordering::SeqCst), 0, "a read is waited for that may simply be made again");
        }
    }
}

/// A server that loses one answer has lost one; one that loses the next as well is not well, and is given more time from loss to loss. After the
/// last one nothing is waited for.
#[tokio::test]
async fn a_read_that_is_lost_again_and_again_is_repeated_after_longer_and_longer_waits() {
    let script = json!({"turns": [{"tools": [{"name": "mcp__shop__list_stock", "input": {}}]}, {"text": "Done."}]});
    let rpc = Outcome::Raw(RawReply::RpcError { code: -32603, message: "it went wrong".to_owned() });
    for outcome in [Outcome::Lost { why: "the line went dead".into() }, rpc] {
        for retries in [0, 1, 2, 5, 8] {
            let mut shop = Shop::new(&script.to_string(), POLICY, done);
            shop.step.budgets.max_retries_per_tool_call = retries;
            let always = Always::of(&shop, &outcome, Duration::ZERO);
            let ends = always.ends.clone();
            shop.step.agent.tools = Arc::new(always);
            let told = Arc::new(Mutex::new(Vec::new()));
            let kept = told.clone();
            shop.host.watcher = Arc::new(move |event| {
                if let RunEvent::Call(CallProgress::Waiting { wait, .. }) = event {
                    kept.lock().unwrap().push(wait.as_secs());
                }
            });
            let ended = shop.run().await.unwrap();
            assert!(matches!(ended, StepOutcome::Complete { .. }), "{ended:?}");
            assert_eq!(ends.load(Ordering::SeqCst), 0, "no process is ended for a read, whatever is under way in it");
            let made = shop.records().await.attempts;
            let waits: Vec<u64> = made
                .iter()
                .zip(made.iter().skip(1))
                .map(|(before, after)| after.started_at.since(before.ended_at.unwrap()).as_secs())
                .collect();
            assert_eq!(made.len(), retries as usize + 1, "{outcome:?}");
            assert_eq!(waits.first(), [0_u64].first().filter(|_| retries > 0), "{waits:?}");
            for (nth, wait) in waits.iter().skip(1).enumerate() {
                let least = (1_u64 << nth).min(30);
                assert!((least..=least + least.div_ceil(4)).contains(wait), "{retries}: {waits:?}");
            }
            // Each is told, and the last lost one is told to the model at once.
            assert_eq!(*told.lock().unwrap(), waits.iter().skip(1).copied().collect::<Vec<u64>>());
        }
    }
}

/// Nothing is sent by asking, so nobody waits for a server that cannot be ended before a person is asked; they are told from when on a look
/// counts, and a word that is older is not acted on. Who says that it happened, or leaves it, is heard at once.
#[tokio::test]
async fn a_call_that_its_server_may_still_begin_is_asked_about_at_once() {
    let lost = Outcome::Lost { why: "the line went dead".into() };
    for choice in [Choice::Happened, Choice::Skip, Choice::Execute] {
        let mut shop = Shop::new(SCRIPT, POLICY, done);
        let always = Always::of(&shop, &lost, Duration::from_secs(30));
        let waits = always.waits.clone();
        shop.step.agent.tools = Arc::new(always);
        let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("a doubt") };
        assert!(question.text.contains("Check after "), "{}", question.text);
        let StepOutcome::Waiting { question: same } = shop.run().await.unwrap() else { panic!("nobody answered") };
        assert_eq!((&same.question_id, waits.load(Ordering::SeqCst)), (&question.question_id, 0));

        let given = ua_ledger::give_answer(
            &*shop.store,
            &shop.host.env,
            &question,
            choice.into(),
            "ada",
            &|_: &ua_store::RunRecord| true,
        );
        let given = given.await;
        if choice != Choice::Execute {
            given.unwrap();
            let outcome = shop.run().await.unwrap();
            assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
            assert_eq!((waits.load(Ordering::SeqCst), attempts_to_order(&shop).await.len()), (0, 1));
            continue;
        }
        let Err(NotTaken::MayStillBegin { until, .. }) = given else { panic!("{given:?}") };
        assert!(question.text.contains(&until.to_string()), "{until}: {}", question.text);
        // One that was stored all the same, by somebody who looked too early.
        shop.answer(&question, Choice::Execute).await;
        let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("it was said too early") };
        assert!(question.text.contains("reported as not happened before"), "{}", question.text);
        assert_eq!((waits.load(Ordering::SeqCst), attempts_to_order(&shop).await.len()), (1, 1));
        shop.answer(&question, Choice::Execute).await;
        let StepOutcome::Waiting { .. } = shop.run().await.unwrap() else { panic!("it is lost again") };
        assert_eq!(attempts_to_order(&shop).await.len(), 2);
        assert!(
            waits.load(Ordering::SeqCst) > 1,
            "it was sent before the server could not begin the first one any more"
        );
    }
}

/// The attempts of the order, oldest first; the script looks at the stock as well.
async fn attempts_to_order(shop: &Shop) -> Vec<AttemptRecord> {
    let id = order(shop).await.call_id;
    let all = shop.records().await.attempts.into_iter();
    all.filter(|attempt| attempt.call_id == id).collect()
}

/// That a server turned a call away unread proves nothing of one that may not simply be made again: it is sent once, and a person reads what the
/// server said. Where a policy says that its errors are without effect it is believed twice. A call under its key is tried as often as the job allows,
/// since a repeat does no harm.
#[tokio::test]
async fn a_server_that_turns_a_call_away_is_not_believed_without_a_policy_and_never_for_ever() {
    let away = |status, of_session| {
        Outcome::Raw(RawReply::HttpStatus { status, body: "nobody knows you".into(), of_session, retry_after: None })
    };
    let cleared = KEYED.replace("key_channel = \"meta\"", "errors_without_effect = [\"^nobody knows\"]");
    for (outcome, words) in [(away(404, true), "HTTP status 404"), (away(429, false), "HTTP status 429")] {
        for (policy, sent) in [(POLICY, 1), (cleared.as_str(), 3)] {
            let mut shop = Shop::new(SCRIPT, policy, done);
            shop.step.agent.tools = Arc::new(Always::of(&shop, &outcome, Duration::ZERO));
            let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("{outcome:?}: a doubt") };
            let text = &question.text;
            let why = if sent == 1 { "says that it rejected it unread" } else { "got it 3 times" };
            assert!(text.contains(words) && text.contains("nobody knows you") && text.contains(why), "{text}");
            assert_eq!(attempts_to_order(&shop).await.len(), sent, "{outcome:?}");
            // Each word of a person sends it once.
            shop.answer(&question, Choice::Execute).await;
            let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("{outcome:?}: a doubt") };
            assert_eq!(attempts_to_order(&shop).await.len(), sent + 1, "{}", question.text);
        }

        let mut shop = Shop::new(SCRIPT, KEYED, done);
        shop.step.agent.tools = Arc::new(Always::of(&shop, &outcome, Duration::ZERO));
        let ended = shop.run().await.unwrap();
        assert!(matches!(ended, StepOutcome::Complete { .. }), "{ended:?}");
        assert_eq!(attempts_to_order(&shop).await.len(), 6, "{outcome:?}");
    }
}

/// Tools of a server that has been silent for long, until it is looked at.
struct Silent {
    tools: Arc<dyn ToolTransport>,
    is_quiet: Arc<AtomicBool>,
    /// What was made ready, and what was sent, in order.
    done: Arc<Mutex<Vec<&'static str>>>,
}

#[async_trait]
impl ToolTransport for Silent {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.tools.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.tools.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.is_quiet.store(false, Ordering::SeqCst);
        self.done.lock().unwrap().push("looked at");
        self.tools.ready(server).await
    }

    fn running(&self, server: &str) -> Option<String> {
        self.tools.running(server)
    }

    fn is_silent(&self, _server: &str) -> bool {
        self.is_quiet.load(Ordering::SeqCst)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.tools.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        if permit.name().tool == "place_order" {
            self.done.lock().unwrap().push("sent");
        }
        self.tools.invoke(permit).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.tools.fence(server, generation, lost_at).await
    }
}

/// Only a call that may not simply be made again is worth a round trip.
#[tokio::test]
async fn a_server_that_was_silent_is_looked_at_before_a_call_that_may_not_simply_be_made_again() {
    for (policy, expected) in [(POLICY, &["looked at", "sent"][..]), (KEYED, &["sent"][..])] {
        let mut shop = Shop::new(SCRIPT, policy, done);
        let done = Arc::default();
        let silent = Silent {
            tools: shop.step.agent.tools.clone(),
            is_quiet: Arc::new(AtomicBool::new(true)),
            done: Arc::clone(&done),
        };
        shop.step.agent.tools = Arc::new(silent);
        let ended = shop.run().await.unwrap();
        assert!(matches!(ended, StepOutcome::Complete { .. }), "{ended:?}");
        assert_eq!(*done.lock().unwrap(), expected);
        assert_eq!(attempts_to_order(&shop).await.len(), 1);
    }
}

/// A server that asks to be left alone is, up to five minutes; what it refused for longer is told to the model.
#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is() {
    let busy = |status, retry_after| {
        Outcome::Raw(RawReply::HttpStatus {
            status,
            body: "it went wrong".into(),
            of_session: false,
            retry_after: Some(retry_after),
        })
    };
    for (outcome, attempts, least) in [(busy(429, 60), 6, 60), (busy(429, 3_600), 1, 0), (busy(503, 60), 6, 60)] {
        let mut shop = Shop::new(SCRIPT, KEYED, done);
        shop.step.agent.tools = Arc::new(Always::of(&shop, &outcome, Duration::ZERO));
        let _ended = shop.run().await.unwrap();
        let made = attempts_to_order(&shop).await;
        assert_eq!(made.len(), attempts, "{outcome:?}");
        for (before, after) in made.iter().zip(made.iter().skip(1)) {
            let wait = after.started_at.since(before.ended_at.unwrap()).as_secs();
            assert!((least..least + 60).contains(&wait), "{outcome:?}: {wait} s");
        }
    }
}

/// `place_order` leaves its mark, and `list_orders`, a tool in the same process, is asked whether it is there.
#[tokio::test]
async fn a_probe_asks_a_tool_in_the_same_process() {
    let policy = r#"
[[rule]]
id = "orders"
server = "shop"
name = "place_order"
side_effect_class = "external"
on_unknown = "probe"
horizon = "1s"
marker = { argument = "article", append = " ref {key}" }
[rule.probe]
tool = "list_orders"
found = { items = "orders", contains = "{key}" }
absent = { complete = { field = "more", equals = false } }
settle = "1s"
"#;
    for (happened, sent) in [(true, 1), (false, 2)] {
        let lost: Answer = |calls| match calls.len() {
            1 => Err(LocalFailure::Unknown("the line went dead".into())),
            _ => Ok(json!({"order": 2})),
        };
        let asked = Orders::default();
        let log = asked.clone();
        let shop = Shop::with_tools(SCRIPT, policy, lost, move |tools, orders| {
            tools.with(spec("list_orders", &json!({})), move |call: LocalCall| {
                log.lock().unwrap().push(call);
                let orders = orders.lock().unwrap();
                let kept = orders.iter().filter(|_| happened).map(|order| order.text("article"));
                std::future::ready(Ok(json!({"orders": kept.collect::<Vec<_>>(), "more": false})))
            })
        });
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{happened}: {outcome:?}");
        assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (sent, 1), "{happened}");
        let asked = asked.lock().unwrap();
        assert!(!asked.is_empty() && asked.iter().all(|call| call.permitted.is_none()), "{happened}: {asked:?}");
    }
}

#[tokio::test]
async fn a_tool_that_cannot_take_a_key_does_not_start_when_keys_are_enforced() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.enforce_idempotency = true;
    for _ in 0..2 {
        let error = shop.run().await.unwrap_err();
        let StepError::Tools(source) = &error else { panic!("{error}") };
        assert!(source.to_string().contains("mcp__shop__place_order"), "{source}");
    }
    assert_eq!((shop.requests(), shop.orders().len()), (0, 0));
    // The run is stopped, not lost: with a policy that names the channel it goes on.
    let mended = Shop::new(SCRIPT, KEYED, done);
    shop.step.agent.classifier = mended.step.agent.classifier.clone();
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_key_that_would_have_to_travel_in_a_header_keeps_the_step_from_being_begun() {
    let header = KEYED.replace("\"meta\"", "{ header = \"Idempotency-Key\" }");
    let script = SCRIPT.replace("Ordered.", "Not ordered.");
    let shop = Shop::new(&script, &header, done);
    let refused = shop.run().await.unwrap_err().to_string();
    assert_eq!(shop.orders(), [], "{refused}");
    assert!(refused.contains("Idempotency-Key"), "{refused}");
}
