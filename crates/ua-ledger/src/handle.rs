//! Calls that a tool did not finish at once: tasks that are asked again, and questions that have to be answered first.
//!
//! Durable Jobs v1 spec §8.3; MCP Tasks and input-required rounds. Such a call stays `running`, and its attempt keeps what it continues
//! with. Invariants: the handle is stored before anything is done with it; that answers are about to leave is stored before they do, so
//! a process that dies then leaves a call in doubt, not one that is answered twice; an answer comes from the `answers` table alone.
//!
//! Proved by: `ua-runner/tests/it/crash_anywhere/handles.rs`, and the e2e tests `mcp_tasks` and `elicitation`.

use serde_json::{Map, Value};
use ua_core::{ElicitAnswer, FieldKind, Handle, Timestamp, fields, holds_mark, is_by_address, missing, with_defaults};
use ua_store::{
    AnswerRecord, AttemptRecord, CallRecord, Choice, KeepHandle, LedgerStore, QuestionKind, QuestionRecord, Relations,
    Seen, Store as _, StoreError,
};

use crate::admission::{Admission, Facts};
use crate::error::LedgerError;
use crate::events;
use crate::ledger::Ledger;
use crate::permit::Permit;
use crate::question::Why;
use crate::related::RelatedCalls;
use crate::verdict::{HandingOver, handing_over};
use crate::view::View;

/// A running call that can be gone on with.
#[derive(Debug)]
pub struct Continued {
    pub(crate) call: CallRecord,
    pub(crate) attempt: AttemptRecord,
    pub(crate) handle: Handle,
}

impl Continued {
    /// The call.
    pub fn call(&self) -> &CallRecord {
        &self.call
    }
}

/// Where a request of a tool stands.
#[derive(Debug)]
pub enum Elicited {
    /// Everything the tool asked for is answered.
    Answered(Handle),
    /// Nobody answered this yet.
    Open(QuestionRecord),
}

/// What became of the answers to what a tool asked for.
#[derive(Debug)]
pub enum HandedOver {
    /// It is stored that they leave, as they are here: hand them over.
    Sent(Handle),
    /// A person has to decide first.
    Held(QuestionRecord),
    /// They are not to leave, and its tool takes no other ones: nobody continues the call.
    GivenUp,
    /// The run is to end, so nothing leaves any more.
    Ending,
}

impl Ledger {
    /// Stores what the permitted attempt goes on with.
    ///
    /// # Errors
    /// Those of the store; another owner of the run is one of them.
    pub async fn keep(&self, permit: &Permit, handle: Handle) -> Result<(), LedgerError> {
        self.keep_for(permit.call(), handle).await.map(drop)
    }

    async fn keep_for(&self, call: &CallRecord, handle: Handle) -> Result<AttemptRecord, LedgerError> {
        let kept = self.store.keep_handle(&self.lease, self.keeping(call, handle, None)).await;
        kept.map_err(LedgerError::at("store what continues of", &call.call_id))
    }

    fn keeping(&self, call: &CallRecord, handle: Handle, seen: Option<Vec<Seen>>) -> KeepHandle {
        KeepHandle { call_id: call.call_id.clone(), attempt: call.attempt, handle, seen, at: self.env.now() }
    }

    /// Stores that what the permitted attempt's tool asked for is about to be handed over: `handle` has every answer. That sends the call on,
    /// so it is held to what a first send is: when another call may have had the effect since it was sent, a person is asked first.
    ///
    /// # Errors
    /// [`LedgerError::Aborted`] when a person ended the run; those of the store.
    pub async fn hand_over(&self, permit: &Permit, handle: Handle) -> Result<HandedOver, LedgerError> {
        let call = permit.call();
        let id = &call.call_id;
        loop {
            if !call.policy.class.has_effect() || is_refusal(&handle) {
                // Whoever says no to a tool sends nothing.
                self.close_elicitation(call).await?;
                let sent = sent(handle);
                self.keep_for(call, sent.clone()).await?;
                return Ok(HandedOver::Sent(sent));
            }
            let destination = permit.destination().cloned();
            let facts = Facts { scope: call.scope.clone(), destination, ..Facts::default() };
            let mut view = View::of(self.store.call(id).await.map_err(LedgerError::at("read", id))?);
            view.attempts = self.attempts(id).await?;
            view.questions = self.questions_about(call).await?;
            view.relations = self.relations(call, &facts).await?;
            view.behind = Box::pin(self.behind(call, &facts, &view.relations)).await?;
            view.settled = self.settled_since(call, &facts, None).await?;
            self.look_outside(&mut view, &facts).await?;
            let rules = self.rules();
            let (decided, closes) = handing_over(&view, &facts, &rules);
            // Before it is stored that the answer leaves: of a call in doubt the word would mean that it did not happen.
            if !self.close_all(call, closes).await? {
                continue; // somebody has answered meanwhile
            }
            match decided {
                HandingOver::Send => {
                    let sent = sent(handle.clone());
                    let keep = self.keeping(call, sent.clone(), Some(view.relations.seen()));
                    match self.store.keep_handle(&self.lease, keep).await {
                        Ok(_) => return Ok(HandedOver::Sent(sent)),
                        Err(StoreError::ScopeTouched { .. }) => events::not_started(call),
                        Err(StoreError::Conflict { .. }) if self.is_to_end(call).await? => {
                            return Ok(HandedOver::Ending);
                        }
                        Err(source) => return Err(LedgerError::at("store what continues of", id)(source)),
                    }
                }
                HandingOver::Hold(asked) => return Ok(HandedOver::Held(asked.clone())),
                HandingOver::Ask(why) => return Ok(HandedOver::Held(self.ask(call, &why).await?)),
                HandingOver::Abort => return Err(LedgerError::Aborted { call: id.clone() }),
                HandingOver::Refuse if handle.input.as_ref().is_none_or(|input| input.requests.is_empty()) => {
                    return Ok(HandedOver::GivenUp);
                }
                HandingOver::Refuse => {
                    return self.say_no(call, handle, &ElicitAnswer::Decline).await.map(HandedOver::Sent);
                }
            }
        }
    }

    async fn is_to_end(&self, call: &CallRecord) -> Result<bool, LedgerError> {
        let run = self.store.run(&call.run_id).await;
        Ok(run.map_err(LedgerError::at("read the run of", &call.call_id))?.end_mark().is_some())
    }

    /// Says no to everything that `handle` asks for, whatever was answered, and stores that this is about to be handed over.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn say_no(
        &self,
        call: &CallRecord,
        mut handle: Handle,
        answer: &ElicitAnswer,
    ) -> Result<Handle, LedgerError> {
        if let Some(input) = &mut handle.input {
            let no = |request: &Value| answer.result(&request.get("params").cloned().unwrap_or_default());
            input.answers = input.requests.iter().map(|(name, request)| (name.clone(), no(request))).collect();
        }
        // What was said is with the handle before the question that said it is closed.
        self.keep_for(call, handle.clone()).await?;
        self.close_elicitation(call).await?;
        let sent = sent(handle);
        self.keep_for(call, sent.clone()).await?;
        Ok(sent)
    }

    /// Proof that the attempt of `continued` was committed as RUNNING, by this process or by one before; its handle; and when
    /// that was.
    pub fn permit_again(&self, continued: Continued) -> (Permit, Handle, Timestamp) {
        let Continued { call, attempt, handle } = continued;
        let generation = handle.generation.clone();
        (self.permit_for(&call, &attempt, generation), handle, attempt.started_at)
    }

    /// The same proof, for telling the other side that nobody wants the result any more, and settling the call then.
    pub fn permit_to_abandon(&self, call: &CallRecord, attempt: &AttemptRecord) -> Permit {
        self.permit_for(call, attempt, attempt.handle.as_ref().and_then(|handle| handle.generation.clone()))
    }

    fn permit_for(&self, call: &CallRecord, attempt: &AttemptRecord, generation: Option<String>) -> Permit {
        let generation = generation.or(attempt.server_generation.clone()).unwrap_or_default();
        let key = call.idempotency_key.clone();
        let key = key.unwrap_or_else(|| self.rules().key(call, &crate::Facts::default(), None));
        let traceparent = self.trace.traceparent(&self.env);
        let permit = Permit::new(call.clone(), key, self.lease.clone(), generation, traceparent);
        permit.going_to(attempt.destination.clone())
    }

    /// A running call whose attempt has a handle: what it asked for is answered first.
    pub(crate) async fn admit_handle(
        &self,
        call: CallRecord,
        attempt: AttemptRecord,
    ) -> Result<Admission, LedgerError> {
        let mut handle = attempt.handle.clone().unwrap_or_default();
        if handle.input.as_ref().is_some_and(|input| input.is_live || input.is_sent) {
            // The connection on which it was asked is gone, or the answer may have arrived: the task says how it stands. What may have arrived is
            // kept with the handle: a task that still asks for it did not get it.
            handle.input = handle.input.filter(|input| !input.is_live);
            self.close_elicitation(&call).await?;
        }
        match self.elicit(&call, handle).await? {
            Elicited::Open(question) => Ok(Admission::Held(question)),
            Elicited::Answered(handle) => Ok(Admission::Continues(Box::new(Continued { call, attempt, handle }))),
        }
    }

    /// Puts what people answered into `handle`, and asks for what nobody answered.
    ///
    /// # Errors
    /// [`LedgerError::Aborted`] when a person ended the run; those of the store.
    pub async fn elicit(&self, call: &CallRecord, mut handle: Handle) -> Result<Elicited, LedgerError> {
        loop {
            let asked = self.pending_question(call).await?;
            let Some((name, request)) = handle.open_request() else {
                if let Some(asked) = asked.filter(|asked| asked.kind == QuestionKind::Elicitation) {
                    self.close(call, &asked).await?;
                }
                return Ok(Elicited::Answered(handle));
            };
            let (name, params) = (name.to_owned(), request.get("params").cloned().unwrap_or_default());
            let round = handle.input.as_ref().map_or(0, |input| input.round);
            let Some(asked) = asked else {
                let relations = self.done_since(call).await?;
                let facts = scope_of(call);
                let behind = Box::pin(self.behind(call, &facts, &relations)).await?;
                let renamed = self.renamed(call, &relations, &facts).await?;
                let settled = self.settled_since(call, &facts, None).await?;
                let sent = self.last_attempt(call).await?.map(|attempt| attempt.started_at);
                let config = &self.config;
                let related = RelatedCalls {
                    call,
                    facts: &facts,
                    relations: &relations,
                    renamed: &renamed,
                    config,
                    forgotten: None,
                    settled: settled.as_ref(),
                    unseen: &[],
                    sent,
                    behind: &behind,
                };
                let (is_live, others) = (is_live(&handle), related.in_the_way_since());
                let why = Why::Elicitation { name: &name, params: &params, round, is_live, others };
                return Ok(Elicited::Open(self.ask(call, &why).await?));
            };
            let is_this = asked.detail.get("request").and_then(Value::as_str) == Some(name.as_str())
                && asked.detail.get("round").and_then(Value::as_u64) == Some(u64::from(round));
            if asked.kind != QuestionKind::Elicitation || !is_this {
                self.close(call, &asked).await?;
                continue;
            }
            let Some(answer) = Self::decision(call, &asked)?.and(asked.answer.as_ref()) else {
                return Ok(Elicited::Open(asked));
            };
            handle = handle.answered(&name, elicit_answer(answer).result(&params));
            self.keep_for(call, handle.clone()).await?;
            self.close(call, &asked).await?;
        }
    }

    /// What may have had the effect of a call whose tool asks for something: whoever answers sends it on.
    async fn done_since(&self, call: &CallRecord) -> Result<Relations, LedgerError> {
        if !call.policy.class.has_effect() {
            return Ok(Relations::default());
        }
        self.relations(call, &scope_of(call)).await
    }

    /// Puts a person's answer into the handle of an attempt that cannot be gone on with now, so that it is handed over when it can be.
    pub(crate) async fn keep_answer(
        &self,
        call: &CallRecord,
        attempt: Option<&AttemptRecord>,
        asked: &QuestionRecord,
    ) -> Result<(), LedgerError> {
        let handle = attempt.and_then(|attempt| attempt.handle.clone()).unwrap_or_default();
        let waits_for = handle.open_request().map(|(name, request)| (name.to_owned(), request.get("params").cloned()));
        if let (Some((name, params)), Some(answer)) = (waits_for, &asked.answer) {
            let result = elicit_answer(answer).result(&params.unwrap_or_default());
            self.keep_for(call, handle.answered(&name, result)).await?;
        }
        self.close(call, asked).await
    }

    /// Says no to whatever `handle` asks for, because nobody is there to be asked. `None` where somebody has answered by now: that word is the answer.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn decline(
        &self,
        call: &CallRecord,
        mut handle: Handle,
        answer: &ElicitAnswer,
    ) -> Result<Option<Handle>, LedgerError> {
        // Before the no is kept: an answer that comes behind this is refused, and whoever gives it knows that it does not count.
        let asked = self.pending_question(call).await?.filter(|asked| asked.kind == QuestionKind::Elicitation);
        if let Some(asked) = asked
            && (asked.answer.is_some() || !self.take_back(call, &asked).await?)
        {
            return Ok(None);
        }
        while let Some((name, request)) = handle.open_request() {
            let (name, params) = (name.to_owned(), request.get("params").cloned().unwrap_or_default());
            handle = handle.answered(&name, answer.result(&params));
        }
        self.keep_for(call, handle.clone()).await?;
        Ok(Some(handle))
    }

    /// What a tool asked for is of no use any more once nobody knows whether the call it asked in happened, and neither is what was asked before
    /// the answer was to be handed over.
    pub(crate) async fn close_elicitation(&self, call: &CallRecord) -> Result<(), LedgerError> {
        let is_of_it =
            |asked: &QuestionRecord| matches!(asked.kind, QuestionKind::Elicitation | QuestionKind::NearDuplicate);
        match self.pending_question(call).await?.filter(is_of_it) {
            Some(asked) => self.close(call, &asked).await,
            None => Ok(()),
        }
    }
}

/// What is known of a call that was sent: what its effect is.
fn scope_of(call: &CallRecord) -> Facts {
    Facts { scope: call.scope.clone(), ..Facts::default() }
}

/// The same handle with its answers about to leave.
fn sent(mut handle: Handle) -> Handle {
    if let Some(input) = &mut handle.input {
        input.is_sent = true;
    }
    handle
}

/// Whether everything that was asked for was declined, so that its tool has nothing to do. Who was asked for nothing declines nothing.
fn is_refusal(handle: &Handle) -> bool {
    let says_yes = |answer: &Value| answer.get("action").and_then(Value::as_str) == Some("accept");
    let answers = handle.input.as_ref().map(|input| &input.answers);
    answers.is_some_and(|answers| !answers.is_empty() && !answers.values().any(says_yes))
}

fn is_live(handle: &Handle) -> bool {
    handle.input.as_ref().is_some_and(|input| input.is_live)
}

/// The word that says *neither yes nor no*, as the text of an answer.
pub const CANCEL: &str = QuestionRecord::CANCEL;

/// What a person's answer says to the tool.
fn elicit_answer(answer: &AnswerRecord) -> ElicitAnswer {
    match (answer.choice, answer.text.as_deref().map(str::trim)) {
        (Choice::Continue | Choice::Execute | Choice::Happened, text) => {
            let content = text.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
            ElicitAnswer::Accept(content.unwrap_or_default())
        }
        (Choice::Skip | Choice::Abort, Some(CANCEL)) => ElicitAnswer::Cancel,
        (Choice::Skip | Choice::Abort, _) => ElicitAnswer::Decline,
    }
}

/// Checks what a person wants to hand to a tool, before it is stored; the error says what does not fit.
///
/// # Errors
/// A sentence about the first thing that is wrong.
pub fn check_elicited(question: &QuestionRecord, text: Option<&str>) -> Result<(), String> {
    let params = question.detail.get("params").cloned().unwrap_or_default();
    let content = match text.map(str::trim).filter(|text| !text.is_empty()) {
        None => Map::new(),
        Some(text) => serde_json::from_str::<Map<String, Value>>(text)
            .map_err(|error| format!("the values have to be a JSON object: {}", ua_core::json_fault(text, &error)))?,
    };
    if is_by_address(&params) {
        return if content.is_empty() {
            Ok(())
        } else {
            Err("a question that asks you to visit an address takes no values".to_owned())
        };
    }
    let filled = with_defaults(&content, &params);
    if let Some(unknown) = filled.keys().find(|name| !fields(&params).any(|(field, _)| field == *name)) {
        let known: Vec<&str> = fields(&params).map(|(name, _)| name.as_str()).collect();
        let meant = ua_core::nearest(unknown, known.iter().copied());
        let meant =
            meant.map_or_else(|| format!("it has {}", known.join(", ")), |name| format!("did you mean `{name}`?"));
        return Err(format!("the form has no field `{unknown}`; {meant}"));
    }
    if holds_mark(&Value::Object(filled.clone())) {
        return Err("`[secret …]` is shown in the form for a value that is not kept, and is none that the tool knows: leave such a \
                    field out, or decline"
            .to_owned());
    }
    if let Some(name) = missing(&filled, &params).first() {
        return Err(format!("the field `{name}` is required and has no default"));
    }
    for (name, schema) in fields(&params) {
        let Some(value) = filled.get(name) else { continue };
        let kind = FieldKind::of(schema);
        if !kind.fits(value) {
            return Err(format!("the field `{name}` is {value}, but must be {}", kind.takes()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Env, QuestionId, RunId};
    use ua_store::QuestionStatus;

    use super::*;

    fn question(params: &Value) -> QuestionRecord {
        QuestionRecord {
            question_id: QuestionId::parse("q_1").unwrap(),
            run_id: RunId::parse("run_1").unwrap(),
            call_id: None,
            kind: QuestionKind::Elicitation,
            text: "t".into(),
            detail: json!({"params": params}),
            choices: vec![Choice::Continue, Choice::Skip, Choice::Abort],
            created_at: Env::simulated(1).now(),
            status: QuestionStatus::Open,
            answer: None,
            closed_because: None,
        }
    }

    #[test]
    fn values_that_do_not_fit_the_form_are_named() {
        let asked = question(&json!({"requestedSchema": {"properties": {
            "name": {"type": "string"}, "age": {"type": "integer", "default": 3}, "kind": {"type": "string", "enum": ["a", "b"]}},
            "required": ["name", "age"]}}));
        let check = |text: &str| check_elicited(&asked, Some(text));
        assert_eq!(check(r#"{"name": "x"}"#), Ok(()));
        for (text, expected) in [
            ("{}", "`name` is required"),
            ("[]", "JSON object"),
            (r#"{"name": "x", "nam": 1}"#, "no field `nam`; did you mean `name`?"),
            (r#"{"name": 1}"#, "`name` is 1, but must be text"),
            (r#"{"name": "x", "kind": "c"}"#, "`kind` is \"c\", but must be one of a, b"),
        ] {
            assert!(check(text).unwrap_err().contains(expected), "{text}: {:?}", check(text));
        }
        // A secret in a default is left out, and neither a person nor a field that needs one sends what stands in its place.
        let hidden = |required: &[&str]| {
            question(&json!({"requestedSchema": {"properties": {
                "size": {"type": "string", "enum": ["l", "[secret K]"], "default": "[secret K]"},
                "[secret K]": {"type": "string", "default": "x"}}, "required": required}}))
        };
        assert_eq!(check_elicited(&hidden(&[]), Some("{}")), Ok(()));
        for (required, text, expected) in [
            (vec![], r#"{"size": "[secret K]"}"#, "is shown in the form for a value"),
            (vec![], r#"{"[secret K]": "x"}"#, "is shown in the form for a value"),
            (vec!["size"], "{}", "`size` is required"),
        ] {
            let said = check_elicited(&hidden(&required), Some(text)).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
        let params = hidden(&[]).detail["params"].clone();
        assert_eq!(with_defaults(&Map::new(), &params), Map::new());
        let address = question(&json!({"mode": "url", "url": "https://example.org"}));
        assert_eq!(check_elicited(&address, None), Ok(()));
        assert!(check_elicited(&address, Some(r#"{"a": 1}"#)).is_err());
    }
}
