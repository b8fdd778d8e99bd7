//! What `docs/guide/library.md` says of the Rust API guidelines, as far as a compiler or the list of the public surface can be asked. A row that is
//! no longer true does not compile here, or fails.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use ua_sdk::prelude::*;
use ua_sdk::serde::de::DeserializeOwned;
use ua_sdk::types::{CallId, CallRecord, Charge, QuestionId, Spent, StepId};
use ua_sdk::{
    Budgets, CallOutcome, CallProgress, Constraints, Currency, Differs, Effort, Escalation, FailureClass, FailureKind,
    Forgotten, InvalidId, ModelFacts, Money, PriceTable, QuestionKind, QuestionRecord, RunId, RunRecord, RunStream,
    StopCondition, ToolChoice, UsageSummary,
};

use crate::{model, sending};

/// Asks the compiler of each type.
macro_rules! each {
    ($is:ident: $($of:ty),+ $(,)?) => {
        $($is::<$of>();)+
    };
}

#[test]
fn c_common_traits() {
    fn shown<T: Debug>() {}
    fn copied<T: Clone>() {}
    fn compared<T: PartialEq>() {}
    fn key<T: Eq + Hash + Clone + Debug>() {}
    fn said<T: Display>() {}
    each!(shown: Answer, Budgets, Call, CallOutcome, CallProgress, Choice, Component, Constraints, Currency, Differs, Error, Escalation);
    each!(shown: Failure, FailureClass, Forgotten, InvalidId, Model, ModelFacts, Money, Outcome, PriceTable, QuestionKind);
    each!(shown: QuestionRecord, RunEvent, RunId, RunRecord, RunStatus, RunStop, RunStream, Runs, Step, StopCondition);
    each!(shown: Effort, Tool, ToolChoice, UsageSummary);
    each!(copied: Effort, FailureKind, ToolChoice);
    each!(key: Effort, FailureKind, ToolChoice);
    each!(copied: Answer, Budgets, Call, CallOutcome, CallProgress, Choice, Component, Constraints, Currency, Differs, Escalation);
    each!(copied: FailureClass, Forgotten, InvalidId, Model, ModelFacts, Money, Outcome, PriceTable, QuestionKind);
    each!(copied: QuestionRecord, RunEvent, RunId, RunRecord, RunStatus, RunStop, Runs, Step, StopCondition, Tool, UsageSummary);
    each!(compared: Answer, Budgets, Call, CallOutcome, CallProgress, Constraints, Differs, Escalation, Forgotten, ModelFacts, Outcome);
    each!(compared: PriceTable, QuestionRecord, RunEvent, RunRecord, StopCondition, UsageSummary);
    each!(key: RunId, CallId, QuestionId, StepId, RunStatus, RunStop, Component, Choice, QuestionKind, FailureClass, Currency, Money);
    each!(said: Error, Failure, Outcome, RunId, RunStatus, RunStop, Component, Currency, Money, Differs, Forgotten);
    #[cfg(feature = "mcp")]
    {
        each!(shown: Servers);
        each!(copied: Servers);
    }
}

#[test]
fn c_serde() {
    fn written<T: Serialize>() {}
    fn both_ways<T: Serialize + DeserializeOwned>() {}
    each!(written: RunEvent, CallProgress, Outcome, UsageSummary, Differs, Charge, Spent);
    each!(both_ways: Answer, Budgets, CallRecord, Choice, Component, Constraints, Currency, Escalation, FailureClass, Forgotten);
    each!(both_ways: ModelFacts, Money, PriceTable, QuestionKind, QuestionRecord, RunId, RunRecord, RunStatus, RunStop, StopCondition);
}

#[test]
fn c_send_sync_and_c_good_err() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Send + Sync + 'static>() {}
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    each!(shared: Answer, Call, CallOutcome, CallProgress, Error, Failure, Forgotten, Model, Outcome, QuestionRecord, RunEvent, RunRecord, Runs);
    each!(shared: Step, Tool, UsageSummary);
    #[cfg(feature = "mcp")]
    each!(shared: Servers);
    each!(sent: RunStream);
    each!(error: Error, InvalidId);
}

/// C-SEND-SYNC of futures.
#[expect(dead_code, reason = "it only has to compile")]
fn futures_of_runs_go_from_thread_to_thread(runs: &Runs, step: &Step, call: &Call, question: &QuestionRecord) {
    fn goes<T: Send>(_: T) {}
    goes(runs.run(step, "id"));
    goes(runs.run_accepting(step, "id", &[]));
    goes(runs.resume(step, "id"));
    goes(runs.input("id"));
    goes(runs.calls("id"));
    goes(runs.call("call_1"));
    goes(runs.attempts("call_1"));
    goes(runs.receipt("call_1"));
    goes(runs.records("id"));
    goes(runs.usage("id"));
    goes(runs.question("q_1"));
    goes(runs.all_questions());
    goes(runs.run_for::<u8>(step, "id"));
    goes(runs.run_for_accepting::<u8>(step, "id", &[]));
    goes(runs.run_within(call, step));
    goes(runs.fork(step, "id", "parent", None));
    goes(runs.list(1));
    goes(runs.get("id"));
    goes(runs.unfinished());
    goes(runs.forgotten("id"));
    goes(runs.accept_forgotten("id"));
    goes(runs.questions("id"));
    goes(runs.answer(question, Choice::Skip));
    goes(runs.resolve("call_1", CallOutcome::happened("why")));
    goes(runs.cancel("id", "why"));
    goes(runs.set_budget("id", "max_turns", 1));
    goes(runs.raise_budget("id", "max_turns", 1));
    goes(runs.budgets("id"));
    goes(runs.delete("id"));
    goes(runs.prune(std::time::Duration::from_secs(1)));
    goes(runs.wait("id"));
    goes(runs.stream(step, "id").outcome());
    #[cfg(feature = "postgres")]
    {
        goes(Runs::migrate_server("url"));
        goes(Runs::on_server("url", "folder"));
    }
}

/// The lines of each name in the list of the public surface.
pub(crate) fn surface() -> BTreeMap<String, Vec<String>> {
    let list = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/public-api.txt")).unwrap();
    let faces = list.split("\n\n").skip(1).map(|face| {
        let (title, lines) = face.split_once('\n').unwrap_or((face, ""));
        let name = title.split([' ', ',', ':']).next().unwrap_or_default();
        (name.to_owned(), lines.lines().map(|line| line.trim().to_owned()).collect())
    });
    faces.collect()
}

#[test]
fn c_struct_private() {
    let surface = surface();
    for name in ["Step", "Tool", "Model", "Runs", "Servers", "Call", "CallOutcome", "Failure", "RunStream"] {
        let fields = surface[name].iter().filter(|line| line.starts_with("pub ") && !line.contains(['(', ';']));
        let fields: Vec<&String> = fields.filter(|line| line.contains(": ")).collect();
        assert!(fields.is_empty(), "{name}: {fields:?}");
    }
    assert!(surface["Answer"].contains(&"pub choice: Choice".to_owned()));
}

#[test]
fn c_builder() {
    let surface = surface();
    for name in ["Step", "Tool", "Model", "Answer", "CallOutcome", "Servers"] {
        let words: Vec<&String> =
            surface[name].iter().filter(|line| line.contains(" self") || line.contains("(self")).collect();
        assert!(!words.is_empty(), "{name}");
        for word in words.into_iter().filter(|line| line.starts_with("pub fn ") && !line.contains("&self")) {
            assert!(word.contains("-> Self"), "{name}: {word}");
        }
    }
}

#[tokio::test]
async fn what_happens_and_what_came_of_it_are_json_and_an_answer_is_read_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Vec::<Value>::new()));
    let log = told.clone();
    let runs = Runs::open(folder.path())
        .unwrap()
        .watched(move |event| log.lock().unwrap().push(serde_json::to_value(&event).unwrap()));
    let lost = tool("send_invoice", "Sends an invoice.", async |_: Call, _: crate::Invoice| {
        Err::<(), _>(Failure::unknown("the line is dead"))
    });
    let step = Step::new("invoices").model(model(&sending())).tool(lost).input("Send the invoice.");
    let outcome = runs.run(&step, "november").await.unwrap();
    let outcome = serde_json::to_value(&outcome).unwrap();
    assert_eq!(outcome["outcome"], "waiting", "{outcome:#}");
    assert_eq!(outcome["question"]["kind"], "unknown_outcome", "{outcome:#}");
    let told = told.lock().unwrap();
    assert!(told.iter().all(|event| event["event"].is_string()), "{told:#?}");
    assert!(told.contains(&json!({"event": "thinking", "turn": 1})), "{told:#?}");
    let is_sent = |event: &Value| {
        event["event"] == "call" && event["progress"] == "sending" && event["call"]["run_id"] == "november"
    };
    assert!(told.iter().any(is_sent), "{told:#?}");
    let answer: Answer = serde_json::from_value(json!({"choice": "skip", "text": "Leave it."})).unwrap();
    assert_eq!(answer, Answer::new(Choice::Skip).text("Leave it."));
}
