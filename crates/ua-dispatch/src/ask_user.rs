//! `ask_user`: the model asks a person, and what the person says is the tool's result.
//!
//! Durable Jobs v1 spec §6 (escalation). The tool only looks: it changes nothing anywhere, so a call of it that was lost is made
//! again and finds the same answer, which is a row. The question is raised at admission, by the ledger; this transport only reads
//! what was answered. Invariant: an answer comes from the `answers` table alone, never from anything that a model said.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Audience, Destination, Handle, Outcome, RawReply, Timestamp, ToolAnnotations, ToolName, ToolSpec};
use ua_ledger::{Enquiry, MayAct, Permit, decide_yourself};
use ua_store::{QuestionKind, RunStore, Store};

use crate::transport::{Fence, ToolTransport, TransportError};

/// Another transport, and `ask_user` beside its tools.
pub struct WithAskUser {
    inner: Arc<dyn ToolTransport>,
    store: Arc<dyn Store>,
    name: ToolName,
    audience: Audience,
}

const GENERATION: &str = "a-person";

impl WithAskUser {
    /// Adds `ask_user` to the tools of `inner`, for a run of this audience. Answers are read from `store`.
    pub fn new(inner: Arc<dyn ToolTransport>, store: Arc<dyn Store>, audience: Audience) -> Self {
        Self { inner, store, name: ToolName::ask_user(), audience }
    }

    /// The tool as a model sees it. Whether it is offered is a switch of the job (`escalation.ask_user`).
    pub fn spec(audience: Audience) -> ToolSpec {
        let work = audience.work();
        ToolSpec {
            name: ToolName::ask_user(),
            description: format!(
                "Asks the person behind this {work} one question and waits for the answer, which may take hours. Only for what the {work} \
                 leaves open and only a person can decide; everything else decide yourself. The result is what the person says, or that you \
                 are to decide."
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "question": {
                        "type": "string", "minLength": 1, "maxLength": 2000,
                        "description": "One question with all that is needed to answer it."
                    },
                    "options": {
                        "type": "array", "maxItems": 10, "items": {"type": "string", "minLength": 1, "maxLength": 200},
                        "description": "Answers to choose from, if there are some. The person may say something else."
                    }
                },
                "required": ["question"],
                "additionalProperties": false
            }),
            annotations: ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
        }
    }

    async fn answer(&self, permit: &Permit) -> Outcome {
        let call = permit.call();
        let records = match self.store.load(&call.run_id).await {
            Ok(records) => records,
            Err(error) => return Outcome::NotSent { why: format!("the answer could not be read: {error}") },
        };
        let mut about_it = records.questions.iter().rev().filter(|question| {
            question.call_id.as_ref() == Some(&call.call_id) && question.kind == QuestionKind::AskUser
        });
        let Some(answer) = about_it.find_map(|question| question.answer.as_ref()) else {
            return Outcome::NotSent { why: "nobody has answered".to_owned() };
        };
        let said = answer.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let said = said.map_or_else(|| decide_yourself(self.audience), str::to_owned);
        Outcome::Raw(RawReply::ToolResult {
            result: json!({
                "content": [{"type": "text", "text": said}],
                "structuredContent": {"answer": said},
            }),
        })
    }
}

#[async_trait]
impl ToolTransport for WithAskUser {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let mut tools = self.inner.list().await?;
        tools.push(Self::spec(self.audience));
        Ok(tools)
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.inner.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        if server == self.name.server { Ok(GENERATION.to_owned()) } else { self.inner.ready(server).await }
    }

    fn running(&self, server: &str) -> Option<String> {
        if server == self.name.server { Some(GENERATION.to_owned()) } else { self.inner.running(server) }
    }

    fn is_silent(&self, server: &str) -> bool {
        server != self.name.server && self.inner.is_silent(server)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        if tool.is_ask_user() { Ok(None) } else { self.inner.destination(tool, arguments) }
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        if permit.name().is_ask_user() { self.answer(permit).await } else { self.inner.invoke(permit).await }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        self.inner.go_on(permit, handle).await
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.inner.give_up(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.inner.ask(enquiry).await
    }

    async fn fence_earlier(&self) -> Fence {
        self.inner.fence_earlier().await
    }

    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        self.inner.horizon(server, generation, lost_at)
    }

    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.inner.may_act(server, generation, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        self.inner.generation_unknown(server)
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if server == self.name.server { Fence::Gone } else { self.inner.renew(server, generation, lost_at).await }
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if server == self.name.server { Fence::Gone } else { self.inner.fence(server, generation, lost_at).await }
    }
}
