//! Calls in doubt that nobody has under way: what rests with a person is asked when a broker starts, and what a person said is applied when it is
//! said, whether or not a client ever asks for the same call again.
//!
//! Durable Jobs v1 spec §6, §8.3. Nothing is sent and nobody is asked but a person: a call with a key or a probe waits for its client, who has the
//! tool server's entry, and so does one that a person wants sent again.
//!
//! Invariants: of a call that is under way nothing is decided here, and in a project nobody tells a request apart meanwhile. A call that is not known
//! by its content stays in doubt until somebody of the project asks for it, who is told then what a person said (R3).
//! Proved by: `tests/it/doubts.rs`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{CallId, CallStatus, Destination, Env, Outcome, Timestamp, ToolName, ToolSpec, chain};
use ua_dispatch::{DispatchError, Dispatched, Fence, MayAct, Permit, ToolTransport, TransportError};
use ua_mcp::{Horizon, LockDir};
use ua_store::{
    CallQuery, Choice, GatewayStore as _, LedgerStore as _, QuestionKind, QuestionRecord, QuestionStatus,
    RunStore as _, SessionsOf,
};

use crate::broker::{Broken, Broker};
use crate::sync::lock;
use crate::upstream::{fence_of_another, may_act_of_another};

/// How often it is looked for what a person answered.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after a call could not be decided about that is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What is left of tool servers of earlier brokers: nothing is sent to them, and what may still act is seen by the locks they left, or by time.
pub(crate) struct LeftBehind {
    /// Where locks are.
    pub(crate) folder: PathBuf,
    pub(crate) locks: LockDir,
    pub(crate) horizon: Arc<Horizon>,
    pub(crate) env: Env,
}

#[async_trait]
impl ToolTransport for LeftBehind {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        Ok(Vec::new())
    }

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        None
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        Err(TransportError::UnknownServer { server: server.to_owned() })
    }

    fn destination(&self, tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        Err(TransportError::UnknownServer { server: tool.server.clone() })
    }

    async fn invoke(&self, _permit: &Permit) -> Outcome {
        Outcome::NotSent { why: "its client is not connected".to_owned() }
    }

    fn horizon(&self, _server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        let remote = generation.split_once('/').map(|(_, own)| own).filter(|own| Horizon::is_remote(own));
        remote.map_or(Duration::ZERO, |own| self.horizon.left(own, lost_at))
    }

    fn may_act(&self, _server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        may_act_of_another(&self.horizon, &self.locks, generation, ended_at)
    }

    /// Time is not waited for here: others of the project would wait with it.
    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if !self.horizon(server, generation, lost_at).is_zero() {
            return Fence::Alive { detail: "it may still begin at the other side".to_owned() };
        }
        if generation.split_once('/').is_some_and(|(_, own)| Horizon::is_remote(own)) {
            return Fence::Gone;
        }
        fence_of_another(&self.folder, &self.env, server, generation).await
    }
}

/// What this broker knows of calls in doubt that nobody has under way.
#[derive(Debug, Default)]
struct Doubts {
    /// Calls that earlier brokers left and about which nobody was asked, each with the attempt that is in doubt; `None` while they have not been
    /// looked for.
    unasked: Option<Vec<(CallId, u32)>>,
    /// Those that could not be decided about, and when it is tried again.
    not_before: HashMap<CallId, Timestamp>,
    /// Those of which a person said that they happened, and that are settled when somebody asks for them.
    for_whoever_asks: HashSet<CallId>,
}

impl Broker {
    /// Asks about what earlier brokers left in doubt, and acts on what people answer, until this broker is to end.
    pub(crate) async fn mind_doubts(self: Arc<Self>) {
        let mut doubts = Doubts::default();
        loop {
            if let Err(error) = self.look_at_doubts(&mut doubts).await {
                tracing::debug!(%error, "calls in doubt cannot be looked at now");
            }
            tokio::select! {
                () = self.env.clock.sleep(LOOK_EVERY) => {}
                () = self.closing.cancelled() => return,
            }
        }
    }

    async fn look_at_doubts(self: &Arc<Self>, doubts: &mut Doubts) -> Result<(), Broken> {
        let questions = self.store.open_questions(None).await.map_err(Broken::at("read the questions"))?;
        let unasked = match doubts.unasked.take() {
            Some(unasked) => unasked,
            None => self.unasked(&questions).await?,
        };
        let mut left = Vec::new();
        for (call, attempt) in unasked {
            if self.is_to_be_looked_at_again(doubts, &call, Some(attempt)).await {
                left.push((call, attempt));
            }
        }
        doubts.unasked = Some(left);
        for question in questions.iter().filter(|question| says_what_came_of_it(question)) {
            let Some(call) = &question.call_id else { continue };
            if self.is_settled_without_its_client(doubts, call, question).await? {
                self.is_to_be_looked_at_again(doubts, call, None).await;
            }
        }
        Ok(())
    }

    /// Whether the same call, asked for again by anybody in the project, is this one also once the answer is applied: one that is left stays in
    /// doubt, and one that is known by its content is one effect.
    async fn is_settled_without_its_client(
        &self,
        doubts: &mut Doubts,
        call: &CallId,
        question: &QuestionRecord,
    ) -> Result<bool, Broken> {
        if question.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Skip) {
            return Ok(true);
        }
        if doubts.for_whoever_asks.contains(call) {
            return Ok(false);
        }
        let record = self.store.call(call).await.map_err(Broken::at("read the call"))?;
        let is_one_effect = record.policy.is_by_content() && record.policy.effect_kind.is_some();
        if !is_one_effect {
            doubts.for_whoever_asks.insert(call.clone());
        }
        Ok(is_one_effect)
    }

    /// The calls with an effect of which nobody knows what came, and about which no person was asked.
    async fn unasked(&self, questions: &[QuestionRecord]) -> Result<Vec<(CallId, u32)>, Broken> {
        let query = CallQuery { only_unknown: true, limit: u32::MAX, ..CallQuery::default() };
        let calls = self.store.find_calls(&query).await.map_err(Broken::at("look for calls in doubt"))?;
        let is_asked = |id: &CallId| questions.iter().any(|question| question.call_id.as_ref() == Some(id));
        let unasked = calls.into_iter().filter(|call| call.resolution.is_none() && call.policy.class.has_effect());
        Ok(unasked.filter(|call| !is_asked(&call.call_id)).map(|call| (call.call_id, call.attempt)).collect())
    }

    /// Decides about a call in doubt as far as that goes without its client; whether it is to be looked at once more. What could not be done is said
    /// once, and tried again now and then.
    async fn is_to_be_looked_at_again(
        self: &Arc<Self>,
        doubts: &mut Doubts,
        call: &CallId,
        attempt: Option<u32>,
    ) -> bool {
        // Whoever has it under way decides about it, and hears what a person said.
        let is_had = self.live().contains_key(call) || lock(&self.kept).contains_key(call);
        let now = self.env.now();
        let before = doubts.not_before.get(call).copied();
        if is_had || self.closing.is_cancelled() || before.is_some_and(|before| now < before) {
            return true;
        }
        let settled = self.settled_as_far(call, attempt).await;
        if let Err(error) = &settled {
            if before.is_none() {
                tracing::warn!(%call, %error, "a call in doubt waits for whoever asks for it");
            } else {
                tracing::debug!(%call, %error, "a call in doubt cannot be decided about");
            }
        }
        let is_later = settled.unwrap_or(Settled::Later) == Settled::Later;
        if is_later {
            doubts.not_before.insert(call.clone(), now.plus(LOOK_AGAIN));
        } else {
            doubts.not_before.remove(call);
        }
        is_later
    }

    /// The same, for now. `attempt`: the one that an earlier broker left in doubt, where nobody was asked about it; a later one is its client's.
    async fn settled_as_far(self: &Arc<Self>, id: &CallId, attempt: Option<u32>) -> Result<Settled, Broken> {
        // Nobody has to be asked about it any more, or by anybody but its client. What a person said waits for whoever asks for the call.
        let nothing_here = if attempt.is_some() { Settled::Now } else { Settled::Later };
        let read = async || self.store.call(id).await.map_err(Broken::at("read the call"));
        let run = read().await?.run_id;
        let of = self.store.sessions_of(SessionsOf::Run(run.clone())).await;
        let Some(record) = of.map_err(Broken::at("look for the session"))?.pop() else { return Ok(nothing_here) };
        let project = self.project(&record.project);
        let _one = project.lock().await;
        // Nobody begins with it while this is looked at.
        if self.live().contains_key(id) || lock(&self.kept).contains_key(id) {
            return Ok(Settled::Later);
        }
        self.flush(&record.project).await?;
        let call = read().await?;
        let is_in_doubt = call.status == CallStatus::Unknown && call.resolution.is_none();
        if !is_in_doubt || attempt.is_some_and(|left| left != call.attempt) || self.has_ended(&run).await {
            return Ok(nothing_here);
        }
        let session = self.session_of(&run).await?;
        let dispatcher = self.road_of_nobody(&session).await?;
        match Box::pin(dispatcher.settle_without_sending(id)).await {
            Ok(Some(Dispatched::Settled(_))) => Ok(Settled::Now),
            Ok(_) => Ok(nothing_here),
            Err(DispatchError::OrphanAlive { .. }) => Ok(Settled::Later),
            Err(error) => Err(Broken::new(chain(&error))),
        }
    }
}

/// Whether all was done about a call in doubt that can be done without its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Now,
    /// It is to be looked at again.
    Later,
}

/// Whether a person answered what came of a call in doubt, or that it is left. Who wants it sent again is heard when its client asks for it.
fn says_what_came_of_it(question: &QuestionRecord) -> bool {
    let choice = question.answer.as_ref().map(|answer| answer.choice);
    question.kind == QuestionKind::UnknownOutcome
        && question.status == QuestionStatus::Answered
        && matches!(choice, Some(Choice::Happened | Choice::Skip))
}
