//! U+0000 in what people, tools and clients say: each store holds the same text, and goes by it.

use ua_core::{CallStatus, QuestionText, RunId, ToolCharge, ToolContent};

use super::samples::{self, at, call_id, question_id, run_id};
use super::{Scene, gateway, tasks};
use crate::archive_store::RunQuery;
use crate::commit::{AttemptEnd, NewAnswer, NewQuestion};
use crate::gateway::{ArrivalsOf, SameCall};
use crate::record::{Choice, QuestionStatus};
use crate::{GatewayStore, LedgerStore, RunStore, Store};

/// An answer counts by a digest over its text, which is over the text that is stored.
pub async fn an_answer_with_nul_in_it_counts(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for (number, (proof, text, by)) in
        [("p\0", "t", "ada"), ("p", "t\0t", "ada"), ("p", "t", "\0"), ("\0", "\0\0", "a\0")].into_iter().enumerate()
    {
        let id = format!("q_{number}");
        store.raise_question(&scene.lease, samples::question(&id, None)).await.unwrap();
        let mut new = NewAnswer { by: by.to_owned(), ..samples::answer(&id, Choice::Execute) };
        new.answer = new.answer.proof(proof).text(text);
        let told = store.insert_answer(new).await.unwrap();
        let stored = store.question(&question_id(&id)).await.unwrap();
        assert_eq!((&told, stored.status), (&stored, QuestionStatus::Answered), "{proof:?} {text:?} {by:?}");
        let plain = |text: &str| text.replace('\0', "\u{fffd}");
        let answer = stored.answer.unwrap();
        assert_eq!((answer.proof, answer.text, answer.by), (Some(plain(proof)), Some(plain(text)), plain(by)));
    }
}

/// What is said again in the same words is the same: the name of a reply, a question about the run, a reason.
pub async fn what_comes_again_with_nul_in_it_is_no_news(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    for _ in 0..2 {
        store.note_response(&scene.lease, request, "resp\0").await.unwrap();
    }
    let asking = |id: &str| NewQuestion { text: QuestionText::new("Which\0?"), ..samples::question(id, None) };
    let first = store.raise_question(&scene.lease, asking("q_1")).await.unwrap();
    assert_eq!(first.text, "Which\u{fffd}?");
    assert_eq!(store.raise_question(&scene.lease, asking("q_2")).await.unwrap(), first);
    let cancelled = store.request_cancel(&run_id("run_1"), "not\0 wanted", at(62)).await.unwrap();
    assert_eq!(cancelled.cancel_reason.as_deref(), Some("not\u{fffd} wanted"));
    assert_eq!(store.run(&run_id("run_1")).await.unwrap(), cancelled);
}

/// What a write answers is what is stored, whatever the tool or the transport said.
pub async fn what_a_tool_says_is_told_as_it_is_stored(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn((1..=3).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    let mut settlement = samples::settlement(CallStatus::Succeeded);
    settlement.external_correlation_id = Some("msg\0_1".to_owned());
    let ends = [
        AttemptEnd::NotSent { why: "no\0".to_owned() },
        AttemptEnd::Lost { why: "cut\0".to_owned() },
        AttemptEnd::Replied { raw: samples::raw(), settlement: Some(settlement) },
    ];
    for (end, id) in ends.into_iter().zip(["call_1", "call_2", "call_3"]) {
        store.start_attempt(&scene.lease, samples::start(id, 1, id)).await.unwrap();
        let told = store.settle_attempt(&scene.lease, samples::ended(id, 1, end)).await.unwrap();
        let call = call_id(id);
        assert_eq!(store.call(&call).await.unwrap(), told);
        let attempts = store.attempts(&call).await.unwrap();
        let texts = [&told.external_correlation_id, &told.error_detail, &attempts[0].detail];
        let said: Vec<&String> = texts.into_iter().flatten().collect();
        assert!(said.iter().any(|text| text.contains('\u{fffd}')), "{said:?}");
        assert!(said.iter().all(|text| !text.contains('\0')), "{said:?}");
    }
}

/// JSON keeps it, and whatever has it in its JSON is read like any other: a job, and a run whose sub-agent was answered so.
pub async fn what_has_nul_in_its_json_is_read(store: &dyn Store) {
    let mut run = samples::new_run("run_1");
    "Look\0 at it, \\u0000.".clone_into(&mut run.spec.objective);
    let scene = Scene::begin_with(store, run).await;
    scene.turn(vec![tasks::task("call_1", 1, 1)]).await;
    store.start_attempt(&scene.lease, tasks::start("call_1", scene.run_id())).await.unwrap();
    let below = Scene::take(store, RunId::of_task(&call_id("call_1")).as_str()).await;
    below.turn(vec![samples::planned_call("call_2", 1, 1), samples::planned_call("call_3", 1, 2)]).await;
    for (id, is_paid) in [("call_2", false), ("call_3", true)] {
        let mut settlement = samples::settlement(CallStatus::Succeeded);
        settlement.content = Some(ToolContent { text: "read\0, \"charge\":1".into(), is_error: false });
        settlement.charge = is_paid.then(|| Box::new(paid()));
        let end = AttemptEnd::Replied { raw: samples::raw(), settlement: Some(settlement.clone()) };
        store.start_attempt(&below.lease, samples::start(id, 1, id)).await.unwrap();
        store.settle_attempt(&below.lease, samples::ended(id, 1, end)).await.unwrap();
        let receipt = store.receipt(&call_id(id)).await.unwrap().unwrap();
        assert_eq!(receipt.settlement, Some(settlement), "to the byte");
    }
    let records = scene.records().await;
    assert_eq!(records.run.spec.objective, "Look\0 at it, \\u0000.");
    assert_eq!(records.tool_charges_below().collect::<Vec<_>>(), [&paid()]);
    let found =
        store.find_runs(&RunQuery { prefix: "run_1".to_owned(), limit: 9, ..RunQuery::default() }).await.unwrap();
    assert!(found[0].objective.starts_with("Look\u{fffd} at it, "), "{found:?}");
}

fn paid() -> ToolCharge {
    ToolCharge { provider: "p".to_owned(), model: "m".to_owned(), usage: samples::usage(), cost: None }
}

/// A request for the same tool is found by the words in which it is asked for.
pub async fn the_same_request_is_found_in_its_own_words(store: &dyn Store) {
    let scene = gateway::session(store, "run_1", "/p").await;
    let mut new = gateway::arrival(&scene, "a_1", Some(samples::planned_email("call_1", 1, 1)), "call_1");
    let arrival = &mut new.arrival;
    (arrival.tool, arrival.project) = ("mcp__mail__send\0".to_owned(), "/home/\0".to_owned());
    arrival.client_call = Some("toolu\0".to_owned());
    let asked = SameCall {
        projects: vec![arrival.project.clone()],
        tools: vec![arrival.tool.clone()],
        args_hashes: vec![arrival.args_hash],
    };
    for _ in 0..2 {
        gateway::write(store, &scene.lease, crate::Change::Arrive(new.clone())).await.unwrap();
        // The second time it is the call that is there.
        new.call = None;
    }
    let found = store.arrivals_of(ArrivalsOf::Same(asked)).await.unwrap();
    assert_eq!(found.iter().map(|found| found.arrival_id.as_str()).collect::<Vec<_>>(), ["a_1"]);
    assert_eq!(found[0].client_call.as_deref(), Some("toolu\u{fffd}"));
}
