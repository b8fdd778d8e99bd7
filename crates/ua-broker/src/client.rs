//! Asking the client: what a tool asks for in the middle of a call, and our own questions in the client's dialogue.
//!
//! A client that began with a handshake is asked on its connection, under an id that no other question has, of whichever broker: an answer that
//! comes late answers what it was given to. One whose requests stand for themselves is answered with what is asked for, and comes back with it
//! (`came_back`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use ua_core::{CallId, QuestionId, RunId, Timestamp, sha256};
use ua_ledger::{MayAct, NotTaken, Outside};
use ua_store::{
    Answer, AttemptRecord, CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, RunRecord, RunStore as _,
};

use crate::broker::Broken;
use crate::came_back::Comeback;
use crate::connection::Connection;
use crate::era::Era;
use crate::incoming::CANCELLED;
use crate::input::{Ask, ComesBack};
use crate::live::LiveCall;
use crate::sync::lock;
use crate::texts::without_ids;
use crate::wire::Sits;

/// Under which name a decision is asked for.
const DECISION: &str = "decision";
/// What answers sooner than this is no person.
const NOBODY: Duration = Duration::from_secs(1);
/// What is expected of clients at most, at once.
const MOST_EXPECTED: usize = 10_000;
/// How many requests of a tool server wait for its client's answer at most.
const MOST_ASKED: usize = 10_000;
/// How long a client may take for its people's answer.
const DIALOGUE: Duration = Duration::from_hours(24);
/// How often it is looked whether what a client's dialogue asks needs no answer any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What clients were told to come back with, and what they brought along.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// This broker, told from others.
    broker: u64,
    /// What is expected, by the name that a client brings along.
    expected: Mutex<HashMap<String, Expected>>,
    /// What was brought along for a call of which an earlier broker asked it, with the digest of what that had asked for.
    brought: Mutex<HashMap<CallId, Brought>>,
}

/// The digest of what was asked for, and what was brought along.
type Brought = (String, Map<String, Value>);

/// What is expected.
#[derive(Debug)]
pub(crate) enum Expected {
    /// What the tool of a call under way asked for, of the client of this connection.
    Tool { of: String, comes_back: ComesBack },
    /// What is to become of a call.
    Decision { question: Box<QuestionRecord>, asked_at: Timestamp },
}

/// Tells what is asked for from what is not.
fn digest(requests: &Map<String, Value>) -> String {
    sha256(Value::Object(requests.clone()).to_string()).to_hex()[..32].to_owned()
}

impl Inputs {
    /// None, of this broker.
    pub(crate) fn of(broker: u64) -> Self {
        Self { broker, expected: Mutex::default(), brought: Mutex::default() }
    }

    pub(crate) fn broker(&self) -> u64 {
        self.broker
    }

    /// A client brings along what an earlier broker asked it for.
    pub(crate) fn bring(&self, call: &CallId, asked: &str, responses: Map<String, Value>) {
        let mut brought = lock(&self.brought);
        if brought.len() >= MOST_EXPECTED {
            brought.clear();
        }
        brought.insert(call.clone(), (asked.to_owned(), responses));
    }

    /// What was brought along for a call that asks for this; once. What answers something else answers nothing.
    pub(crate) fn brought_for(&self, call: &CallId, requests: &Map<String, Value>) -> Option<Map<String, Value>> {
        let (asked, responses) = lock(&self.brought).remove(call)?;
        (asked == digest(requests)).then_some(responses)
    }

    fn expect(&self, name: &str, expected: Expected) {
        let mut inputs = lock(&self.expected);
        // Dropped behind the lock: it wakes who waits for it.
        let too_many = if inputs.len() >= MOST_EXPECTED { std::mem::take(&mut *inputs) } else { HashMap::new() };
        inputs.insert(name.to_owned(), expected);
        drop(inputs);
        drop(too_many);
    }

    /// Nothing that a tool asked for is expected of a client that has gone.
    pub(crate) fn forget(&self, client: &str) {
        let is_of_client = |expected: &Expected| matches!(expected, Expected::Tool { of, .. } if of == client);
        // Dropped behind the lock: it wakes who waits for it.
        let gone: Vec<_> = lock(&self.expected).extract_if(|_, expected| is_of_client(expected)).collect();
        drop(gone);
    }

    /// What was expected under this name; once.
    pub(crate) fn take(&self, name: &str) -> Option<Expected> {
        lock(&self.expected).remove(name)
    }
}

/// What a client whose requests stand for themselves is answered with in the place of a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) requests: Map<String, Value>,
    pub(crate) state: String,
}

impl Wanted {
    pub(crate) fn as_result(&self) -> Value {
        json!({"resultType": "input_required", "inputRequests": self.requests, "requestState": self.state})
    }
}

impl Connection {
    /// What to answer the client with, so that it comes back with what the tool asks for; `None` when it is asked on its connection, or cannot be.
    pub(crate) fn hand_over(self: &Arc<Self>, call: &Arc<LiveCall>, ask: &Arc<Ask>) -> Option<Wanted> {
        let client = self.client();
        let can = ask.requests.values().all(|request| client.takes(request["method"].as_str().unwrap_or_default()));
        if self.era() == Era::Stateless && can && !ask.is_taken() {
            let comes_back = call.comes_back(ask);
            let expected = Expected::Tool { of: self.hello.bridge.clone(), comes_back };
            let state = self.expects(&call.call, expected, &ask.requests)?;
            return Some(Wanted { requests: ask.requests.clone(), state });
        }
        if let Some(taken) = ask.take() {
            let connection = self.clone();
            self.spawn(async move {
                let answers = if can { connection.asked_on_the_connection(taken.ask()).await } else { None };
                // Dropped, it says that nobody is there.
                if answers.is_some() {
                    taken.answer(answers);
                }
            });
        }
        None
    }

    /// The name under which the client comes back to a call with this. `None` when the gateway's key cannot be read, without which no call is planned.
    fn expects(&self, call: &CallId, expected: Expected, requests: &Map<String, Value>) -> Option<String> {
        let key = self.broker.own_key().inspect_err(|why| tracing::warn!(%why, "a client cannot be asked")).ok()?;
        let inputs = &self.broker.inputs;
        let comeback = Comeback::to(call, inputs.broker(), &digest(requests), &self.broker.env);
        let state = comeback.sealed(&self.hello.bridge, &key);
        inputs.expect(&state, expected);
        Some(state)
    }

    /// What the client's own dialogue answers; `None` when one of it has no answer.
    async fn asked_on_the_connection(&self, ask: &Ask) -> Option<Map<String, Value>> {
        let mut answers = Map::new();
        for (name, request) in &ask.requests {
            let method = request["method"].as_str().unwrap_or_default();
            let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
            answers.insert(name.clone(), self.ask_client(method, params, std::future::pending()).await?);
        }
        Some(answers)
    }

    /// A request of ours to the client, on its connection. `None` when it has no answer, or refuses. Once it is `moot`, it is taken back.
    async fn ask_client(&self, method: &str, params: Value, moot: impl Future<Output = ()>) -> Option<Value> {
        let id = self.own_id();
        let (answered, answer) = oneshot::channel();
        lock(&self.asks).insert(id.clone(), answered);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let about = self.open.newest();
        self.tell_client(message, about.clone());
        let answer = tokio::select! {
            answer = answer => answer.ok(),
            () = self.broker.env.clock.sleep(DIALOGUE) => None,
            () = moot => {
                let params = json!({"requestId": id, "reason": "it was answered elsewhere, or no longer needs an answer"});
                self.tell_client(json!({"jsonrpc": "2.0", "method": CANCELLED, "params": params}), about);
                None
            }
        };
        lock(&self.asks).remove(&id);
        answer?.get("result").cloned()
    }

    /// An id for a request to the client that no other one has or had: what the client answers late is the answer to nothing else, whichever
    /// process asked, of ours or of the tool server's.
    fn own_id(&self) -> String {
        format!("ua-{:016x}-{}", self.broker.env.entropy.next_u64(), self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes a request of the tool server, which is answered by the client, or for it when it has gone. The id under which the client is asked;
    /// `None` when too many are open.
    pub(crate) fn asked_as(&self, request: &Value) -> Option<String> {
        let id = self.own_id();
        let mut asked = lock(&self.asked_by_server);
        let has_room = asked.len() < MOST_ASKED;
        has_room.then(|| {
            asked.insert(id.clone(), request.clone());
            id
        })
    }

    /// A message of the tool server that a request of its own is not to be answered any more, by the id under which the client was asked.
    pub(crate) fn takes_back(&self, mut message: Value) -> Value {
        let mut asked = lock(&self.asked_by_server);
        let id = asked.iter().find(|(_, request)| request["id"] == message["params"]["requestId"]).map(|(id, _)| id);
        if let Some(id) = id.cloned() {
            asked.remove(&id);
            message["params"]["requestId"] = json!(id);
        }
        message
    }

    /// Nobody is there to be asked: what the tool server asked for is answered so, and what we asked the client ourselves has no answer.
    pub(crate) async fn nobody_is_there(&self) {
        lock(&self.asks).clear();
        let open: Vec<Value> = std::mem::take(&mut *lock(&self.asked_by_server)).into_values().collect();
        for request in open {
            self.broker.answers_in_place(self.upstream.holder(), &request);
            self.upstream.answer_for_nobody(&request).await;
        }
    }

    /// The client has gone. What a tool asks of it is declined at once: its call goes on, and ends.
    pub(crate) async fn has_gone(&self) {
        self.nobody_is_there().await;
        self.broker.inputs.forget(&self.hello.bridge);
        self.leave_alone();
    }

    /// What calls of its tool server ask is for those alone who wait for them, or were told to come back.
    pub(crate) fn leave_alone(&self) {
        self.broker.live_of(self.upstream.holder()).iter().for_each(|live| live.leave_alone());
    }

    /// Whether this client's own dialogue may be asked a question about a call.
    pub(crate) fn may_decide(&self, question: &QuestionId) -> bool {
        let client = self.client();
        let may_be_put = !self.presence.is_in_vain(question) && !self.presence.is_decided(question);
        let somebody_sits = self.hello.sits == Sits::Somebody;
        somebody_sits && client.has_forms() && self.broker.config.rules.may_decide(&client.name) && may_be_put
    }

    /// What to answer the client with, so that it comes back with a person's decision.
    pub(crate) fn hand_over_decision(&self, call: &CallId, question: &QuestionRecord) -> Option<Wanted> {
        if self.era() != Era::Stateless {
            return None;
        }
        let expected = Expected::Decision { question: Box::new(question.clone()), asked_at: self.broker.env.now() };
        let request = json!({"method": "elicitation/create", "params": form(question)});
        let requests = Map::from_iter([(DECISION.to_owned(), request)]);
        let state = self.expects(call, expected, &requests)?;
        self.broker.shown.begins(&question.question_id, self.broker.env.now());
        Some(Wanted { requests, state })
    }

    /// Has the client's own dialogue ask for a decision, on the connection. What nobody can have read says that nobody is there.
    pub(crate) async fn ask_for_decision(self: Arc<Self>, question: QuestionRecord) {
        let begun = self.broker.env.now();
        let _shown = self.broker.shown.while_asked(&question.question_id, begun);
        let moot = self.is_settled(&question.question_id);
        let Some(answer) = self.ask_client("elicitation/create", form(&question), moot).await else { return };
        if let Err(error) = self.decided(&question, &answer, self.broker.env.now().since(begun)).await {
            tracing::warn!(%error, "a decision in the client's dialogue could not be stored");
        }
    }

    /// Waits until a question needs no answer any more: whoever sits at the dialogue would answer in vain.
    async fn is_settled(&self, question: &QuestionId) {
        loop {
            self.broker.env.clock.sleep(LOOK_EVERY).await;
            let stored = self.broker.store.question(question).await;
            if stored.is_ok_and(|stored| stored.status != QuestionStatus::Open) {
                return;
            }
        }
    }

    /// What the client's dialogue answered. Only what was accepted with a choice is an answer; the question stays open else.
    async fn decided(&self, question: &QuestionRecord, answer: &Value, after: Duration) -> Result<(), Broken> {
        let chosen = answer["content"][DECISION].as_str().filter(|_| answer["action"] == "accept");
        let Some(choice) = chosen.and_then(|word| chosen_by(question, word)) else {
            self.presence.was_not_decided(&question.question_id, after < NOBODY);
            self.broker.shown.ends(&question.question_id);
            return Ok(());
        };
        let redactor = &self.broker.redactor;
        let text = |name: &str| {
            let text = answer["content"][name].as_str().filter(|text| !text.is_empty())?;
            Some(redactor.text(text).into_owned())
        };
        let answer =
            Answer { choice, proof: text("proof").filter(|_| choice == Choice::Happened), text: text("remark") };
        let by = format!("a person in the dialogue of {}", self.client().name);
        let outside = InDialogue { connection: self, run: question.run_id.clone() };
        let given =
            ua_ledger::give_answer(&*self.broker.store, &self.broker.env, question, answer, &by, &outside).await;
        match given.map_err(NotTaken::into_store_failure) {
            Ok(_) => {
                self.presence.was_decided(&question.question_id);
                Ok(())
            }
            Err(Ok((doing, source))) => Err(Broken::at(doing)(source)),
            // Somebody else was quicker, or it is too early: the question says so to whoever asks next.
            Err(Err(why)) => {
                tracing::warn!(%why, "a decision in the client's dialogue was not taken");
                Ok(())
            }
        }
    }

    /// What a client brings along that came back with what it was asked for.
    pub(crate) async fn brought(&self, expected: Expected, responses: &Value) -> Result<(), Broken> {
        match expected {
            Expected::Tool { comes_back, .. } => {
                if let Some(taken) = comes_back.ask().take() {
                    taken.answer(Some(responses.as_object().cloned().unwrap_or_default()));
                }
                Ok(())
            }
            Expected::Decision { question, asked_at } => {
                let after = self.broker.env.now().since(asked_at);
                self.decided(&question, &responses[DECISION], after).await
            }
        }
    }
}

/// What is seen from a client's dialogue, which is on the connection of this very process.
struct InDialogue<'c> {
    connection: &'c Connection,
    run: RunId,
}

impl Outside for InDialogue<'_> {
    fn may_act(&self, _call: &CallRecord, last: &AttemptRecord) -> MayAct {
        let of = |generation: &str| self.connection.upstream.may_act(generation, last.ended_at);
        last.server_generation.as_deref().map_or(MayAct::No, of)
    }

    fn may_be_driven(&self, run: &RunRecord) -> bool {
        run.run_id == self.run || ua_runner::may_be_driven(run)
    }
}

/// What may be chosen in the client's dialogue: what is about this call, and not the end of the session.
fn choices(question: &QuestionRecord) -> Vec<Choice> {
    question.choices.iter().copied().filter(|choice| *choice != Choice::Abort).collect()
}

/// What a word of the dialogue, or the stored name of a choice, chooses.
fn chosen_by(question: &QuestionRecord, word: &str) -> Option<Choice> {
    choices(question)
        .into_iter()
        .find(|choice| ua_resume::answers::word(question.kind, *choice) == word || choice.as_str() == word)
}

/// The form of a question. Its words are those of `ua answer`.
fn form(question: &QuestionRecord) -> Value {
    let choices = choices(question);
    let words: Vec<&str> = choices.iter().map(|choice| ua_resume::answers::word(question.kind, *choice)).collect();
    let named: Vec<&str> = choices.iter().map(|choice| in_words(question.kind, *choice)).collect();
    let mut properties = json!({DECISION: {"type": "string", "title": "Decision", "enum": words, "enumNames": named}});
    // What an earlier call did has its receipt.
    if choices.contains(&Choice::Happened) && question.kind != QuestionKind::NearDuplicate {
        properties["proof"] = json!({"type": "string", "title": "Proof, if it happened",
            "description": "What the other side calls it: a message id, an order number."});
    }
    json!({"mode": "form", "message": shown(&question.text, &question.question_id),
        "requestedSchema": {"type": "object", "properties": properties, "required": [DECISION]}})
}

fn shown(text: &str, question: &QuestionId) -> String {
    let text = without_ids(text.trim());
    format!("{text}\n\n(Question {question} of the gateway; it can be answered in a terminal as well.)")
}

/// A choice as the dialogue names it: a call that may have happened is sent once more, one that was never sent is sent.
const fn in_words(kind: QuestionKind, choice: Choice) -> &'static str {
    match choice {
        Choice::Happened if matches!(kind, QuestionKind::NearDuplicate) => {
            "The earlier call did it; do not send this one"
        }
        Choice::Happened => "It happened",
        Choice::Execute if matches!(kind, QuestionKind::UnknownOutcome) => "It did not happen; send it again",
        Choice::Execute => "Send it",
        Choice::Skip => "Leave it",
        Choice::Abort => "End the session",
        Choice::Continue => "Continue",
    }
}

#[cfg(test)]
mod tests {
    use ua_core::RunId;
    use ua_store::QuestionStatus;

    use super::*;

    #[test]
    fn a_form_offers_what_is_about_the_call() {
        let question = QuestionRecord {
            question_id: QuestionId::parse("q_1").unwrap(),
            run_id: RunId::parse("r").unwrap(),
            call_id: None,
            kind: QuestionKind::UnknownOutcome,
            text: "What became of it?\n".to_owned(),
            detail: Value::Null,
            choices: vec![Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort],
            created_at: Timestamp::from_millis(0),
            status: QuestionStatus::Open,
            answer: None,
            closed_because: None,
        };
        let form = form(&question);
        let properties = &form["requestedSchema"]["properties"];
        assert_eq!(properties[DECISION]["enum"], json!(["happened", "retry", "skip"]));
        let named = ["It happened", "It did not happen; send it again", "Leave it"];
        assert_eq!(properties[DECISION]["enumNames"], json!(named));
        assert!(properties["proof"].is_object() && form["message"].as_str().unwrap().contains("Question q_1"));
        let approval = QuestionRecord { choices: vec![Choice::Execute, Choice::Skip], ..question };
        let approval = QuestionRecord { kind: QuestionKind::Approval, ..approval };
        let properties = &super::form(&approval)["requestedSchema"]["properties"];
        assert!(properties.get("proof").is_none());
        assert_eq!(properties[DECISION]["enum"], json!(["approve", "skip"]));
        assert_eq!(chosen_by(&approval, "approve"), Some(Choice::Execute));
        assert_eq!((chosen_by(&approval, "execute"), chosen_by(&approval, "abort")), (Some(Choice::Execute), None));
        assert_eq!(properties[DECISION]["enumNames"], json!(["Send it", "Leave it"]));
    }

    #[test]
    fn what_is_expected_is_had_once() {
        let inputs = Inputs::of(1);
        let ask = Expected::Decision {
            question: Box::new(serde_json::from_value(json!({
                "question_id": "q_1", "run_id": "r", "call_id": null, "kind": "approval", "text": "", "detail": null, "choices": [],
                "created_at": "2026-01-01T00:00:00Z", "status": "open", "answer": null
            })).unwrap()),
            asked_at: Timestamp::from_millis(0),
        };
        inputs.expect("1", ask);
        assert!(inputs.take("0").is_none());
        assert!(inputs.take("1").is_some() && inputs.take("1").is_none());
    }
}
