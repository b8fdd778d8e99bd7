//! Seams that break one rule on purpose, so that a harness can show that it sees the bug it hunts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{CallId, CallStatus, Destination, Handle, KeyBuilder, OnUnknown, Outcome, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Enquiry, Fence, MayAct, Permit, SubAgents, ToolTransport, TransportError};
use ua_llm::LlmProvider;
use ua_runner::ChildDriver;
use ua_store::conformance::{StoreSeam, Undisturbed, Writes};
use ua_store::{Author, Batch, Change, Committed, Done, LedgerStore as _, RunLease, StartAttempt, Store, StoreError};

use crate::broken_core::{
    AbortOfOneCall, AcceptedAsUnsent, Blind, CorrectedKeysStayGood, DoubtsUncounted, EndsOfDoubtUnseen,
    RefusalEndsDoubt, SubAgentsForgotten,
};
use crate::broken_model::RefusalsPass;
use crate::broken_trees::{ChildrenStartAgain, HandoffForgotten};

/// A rule that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// RUNNING is written after the dispatch: [`RunningAfterDispatch`].
    RunningAfterDispatch,
    /// Every call is known by its content: [`KeyWithoutPosition`].
    KeyWithoutPosition,
    /// Earlier tool servers are left alone: [`NoFence`].
    NoFence,
    /// A lost answer is taken for a request that never left: [`LostIsFailed`].
    LostIsFailed,
    /// A call in doubt is sent again without being asked about, under a key that has expired as well: [`ForcedReplay`].
    ForcedReplay,
    /// Each process makes a key of its own for the same call: [`KeyOfThisProcess`].
    KeyOfThisProcess,
    /// The store takes writes of any epoch: [`StoreSeam::ignoring_epochs`](crate::StoreSeam::ignoring_epochs).
    NoEpochCheck,
    /// What a probe does not find counts as absent at once: [`BrokenRule::policy`].
    ProbeWithoutHorizon,
    /// A sub-agent is started anew instead of reused or resumed: [`ChildrenStartAgain`].
    ChildrenStartAgain,
    /// An iteration begins without what was done before it: [`HandoffForgotten`].
    HandoffForgotten,
    /// A refusal of a later attempt ends the doubt about an earlier one: [`RefusalEndsDoubt`].
    RefusalEndsDoubt,
    /// What sub-agents did is not seen beside them: [`Blind::ToSubAgents`].
    SubAgentsUnseen,
    /// After a copy was put back a run is driven on unless it sent something itself that the copy does not know.
    RestoreLooksAtOneRun,
    /// *abort* ends a call, not its run.
    AbortOfOneCall,
    /// A call that failed is tried again without looking beside it: [`Blind::InRetries`].
    RetriesLookAtNobody,
    /// What began since a start was decided is not looked at when it is written: [`Blind::InTheWrite`].
    StartsUnguarded,
    /// What a person answered is handed over to a tool without looking beside its call: [`Blind::InHandOvers`].
    HandOversLookAtNobody,
    /// What became known of other calls since a call was asked for is not looked at: [`EndsOfDoubtUnseen`].
    EndsOfDoubtUnseen,
    /// What sub-agents did before an iteration began is not looked at behind it: [`SubAgentsForgotten`].
    SubAgentsForgotten,
    /// A call is judged, and then its server is started: the simulation's servers take that time behind the last look.
    JudgedBeforeWaiting,
    /// Where an attempt went is not stored: `DestinationsForgotten`.
    DestinationsForgotten,
    /// A key under which something was done counts as unused once a person said that it did not happen: [`CorrectedKeysStayGood`].
    CorrectedKeysStayGood,
    /// What a person accepts of a copy that was put back is not learnt from `effects.log`, neither into its rows ([`AcceptedAsUnsent`]) nor beside
    /// them: each of the two would have a person asked.
    AcceptedAsUnsent,
    /// What a person accepted of a copy that was put back, and is in no row of it, is known no more: nobody is asked whether it is done again.
    AcceptedIsForgotten,
    /// What is in doubt does not count towards the limit of an effect: [`DoubtsUncounted`].
    DoubtsUncounted,
    /// What a model's provider refuses for good counts as what passes: `RefusalsPass`.
    RefusalsPass,
}

impl BrokenRule {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::RunningAfterDispatch,
        Self::KeyWithoutPosition,
        Self::NoFence,
        Self::LostIsFailed,
        Self::ForcedReplay,
        Self::KeyOfThisProcess,
        Self::NoEpochCheck,
        Self::ProbeWithoutHorizon,
        Self::ChildrenStartAgain,
        Self::HandoffForgotten,
        Self::RefusalEndsDoubt,
        Self::SubAgentsUnseen,
        Self::RestoreLooksAtOneRun,
        Self::AbortOfOneCall,
        Self::RetriesLookAtNobody,
        Self::StartsUnguarded,
        Self::HandOversLookAtNobody,
        Self::EndsOfDoubtUnseen,
        Self::SubAgentsForgotten,
        Self::JudgedBeforeWaiting,
        Self::DestinationsForgotten,
        Self::CorrectedKeysStayGood,
        Self::AcceptedAsUnsent,
        Self::AcceptedIsForgotten,
        Self::DoubtsUncounted,
        Self::RefusalsPass,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunningAfterDispatch => "running-after-dispatch",
            Self::KeyWithoutPosition => "key-without-position",
            Self::NoFence => "no-fence",
            Self::LostIsFailed => "lost-is-failed",
            Self::ForcedReplay => "forced-replay",
            Self::KeyOfThisProcess => "key-of-this-process",
            Self::NoEpochCheck => "no-epoch-check",
            Self::ProbeWithoutHorizon => "probe-without-horizon",
            Self::ChildrenStartAgain => "children-start-again",
            Self::HandoffForgotten => "handoff-forgotten",
            Self::RefusalEndsDoubt => "refusal-ends-doubt",
            Self::SubAgentsUnseen => "sub-agents-unseen",
            Self::RestoreLooksAtOneRun => "restore-looks-at-one-run",
            Self::AbortOfOneCall => "abort-of-one-call",
            Self::RetriesLookAtNobody => "retries-look-at-nobody",
            Self::StartsUnguarded => "starts-unguarded",
            Self::HandOversLookAtNobody => "hand-overs-look-at-nobody",
            Self::EndsOfDoubtUnseen => "ends-of-doubt-unseen",
            Self::SubAgentsForgotten => "sub-agents-forgotten",
            Self::JudgedBeforeWaiting => "judged-before-waiting",
            Self::DestinationsForgotten => "destinations-forgotten",
            Self::CorrectedKeysStayGood => "corrected-keys-stay-good",
            Self::AcceptedAsUnsent => "accepted-as-unsent",
            Self::AcceptedIsForgotten => "accepted-is-forgotten",
            Self::DoubtsUncounted => "doubts-uncounted",
            Self::RefusalsPass => "refusals-pass",
        }
    }

    /// The rule of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The ledger's writes with the rule broken, when it is about them.
    pub fn writes(self) -> Option<Arc<dyn Writes>> {
        match self {
            Self::RunningAfterDispatch => Some(RunningAfterDispatch::new()),
            Self::KeyWithoutPosition => Some(Arc::new(KeyWithoutPosition)),
            Self::ForcedReplay => Some(Arc::new(ForcedReplay)),
            Self::KeyOfThisProcess => Some(Arc::new(KeyOfThisProcess)),
            Self::RefusalEndsDoubt => Some(Arc::new(RefusalEndsDoubt)),
            Self::SubAgentsUnseen => Some(Arc::new(Blind::ToSubAgents)),
            Self::RetriesLookAtNobody => Some(Arc::new(Blind::InRetries)),
            Self::StartsUnguarded => Some(Arc::new(Blind::InTheWrite)),
            Self::HandOversLookAtNobody => Some(Arc::new(Blind::InHandOvers)),
            Self::EndsOfDoubtUnseen => Some(Arc::new(EndsOfDoubtUnseen)),
            Self::SubAgentsForgotten => Some(Arc::new(SubAgentsForgotten)),
            Self::DestinationsForgotten => Some(Arc::new(DestinationsForgotten)),
            Self::DoubtsUncounted => Some(Arc::new(DoubtsUncounted)),
            Self::NoFence
            | Self::LostIsFailed
            | Self::NoEpochCheck
            | Self::ProbeWithoutHorizon
            | Self::ChildrenStartAgain
            | Self::HandoffForgotten
            | Self::RestoreLooksAtOneRun
            | Self::AbortOfOneCall
            | Self::CorrectedKeysStayGood
            | Self::AcceptedAsUnsent
            | Self::AcceptedIsForgotten
            | Self::JudgedBeforeWaiting
            | Self::RefusalsPass => None,
        }
    }

    /// The model with the rule broken, when it is about what a model is told or what its provider says.
    pub fn model(self, inner: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        if self == Self::HandoffForgotten {
            Arc::new(HandoffForgotten::new(inner))
        } else if self == Self::RefusalsPass {
            Arc::new(RefusalsPass(inner))
        } else {
            inner
        }
    }

    /// Whoever drives child runs, with the rule broken, when it is about them.
    pub fn sub_agents(
        self,
        inner: Arc<dyn SubAgents>,
        store: Arc<dyn Store>,
        lease: RunLease,
        driver: Arc<dyn ChildDriver>,
    ) -> Arc<dyn SubAgents> {
        if self == Self::ChildrenStartAgain {
            Arc::new(ChildrenStartAgain::new(inner, store, lease, driver))
        } else {
            inner
        }
    }

    /// The store as people write to it, with the rule broken, when it is about what they say.
    pub fn people(self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        let writes: Arc<dyn Writes> = match self {
            Self::AbortOfOneCall => Arc::new(AbortOfOneCall),
            Self::CorrectedKeysStayGood => Arc::new(CorrectedKeysStayGood),
            Self::AcceptedAsUnsent => Arc::new(AcceptedAsUnsent),
            Self::RunningAfterDispatch
            | Self::KeyWithoutPosition
            | Self::NoFence
            | Self::LostIsFailed
            | Self::ForcedReplay
            | Self::KeyOfThisProcess
            | Self::NoEpochCheck
            | Self::ProbeWithoutHorizon
            | Self::ChildrenStartAgain
            | Self::HandoffForgotten
            | Self::RefusalEndsDoubt
            | Self::SubAgentsUnseen
            | Self::RestoreLooksAtOneRun
            | Self::RetriesLookAtNobody
            | Self::StartsUnguarded
            | Self::HandOversLookAtNobody
            | Self::EndsOfDoubtUnseen
            | Self::SubAgentsForgotten
            | Self::JudgedBeforeWaiting
            | Self::AcceptedIsForgotten
            | Self::DoubtsUncounted
            | Self::RefusalsPass
            | Self::DestinationsForgotten => return inner,
        };
        Arc::new(StoreSeam::new(inner, Arc::new(Undisturbed)).with_writes(writes))
    }

    /// The policy file with the rule broken, when it is about policies: horizon and settle time of every probe shrink to nothing.
    pub fn policy(self, file: &str) -> String {
        if self != Self::ProbeWithoutHorizon {
            return file.to_owned();
        }
        let shrunk = file.lines().map(|line| match line.split_once(" = ") {
            Some((name @ ("horizon" | "settle"), _)) => format!("{name} = \"1ms\""),
            Some(_) | None => line.to_owned(),
        });
        shrunk.collect::<Vec<_>>().join("\n")
    }

    /// `inner` with the rule broken, when it is about transports.
    pub fn transport(self, inner: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        match self {
            Self::NoFence => Arc::new(NoFence(inner)),
            Self::LostIsFailed => Arc::new(LostIsFailed(inner)),
            Self::RunningAfterDispatch
            | Self::KeyWithoutPosition
            | Self::ForcedReplay
            | Self::KeyOfThisProcess
            | Self::NoEpochCheck
            | Self::ProbeWithoutHorizon
            | Self::ChildrenStartAgain
            | Self::HandoffForgotten
            | Self::RefusalEndsDoubt
            | Self::SubAgentsUnseen
            | Self::RestoreLooksAtOneRun
            | Self::AbortOfOneCall
            | Self::RetriesLookAtNobody
            | Self::StartsUnguarded
            | Self::HandOversLookAtNobody
            | Self::EndsOfDoubtUnseen
            | Self::SubAgentsForgotten
            | Self::JudgedBeforeWaiting
            | Self::CorrectedKeysStayGood
            | Self::AcceptedAsUnsent
            | Self::AcceptedIsForgotten
            | Self::DoubtsUncounted
            | Self::RefusalsPass
            | Self::DestinationsForgotten => inner,
        }
    }
}

/// Writes RUNNING only after the dispatch: what happens when intent and act change places.
pub struct RunningAfterDispatch {
    started: Mutex<HashMap<CallId, StartAttempt>>,
}

impl RunningAfterDispatch {
    /// Wraps the two changes that matter.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { started: Mutex::default() })
    }

    /// Keeps a start back, and says that it was made.
    async fn keep_back(&self, inner: &dyn Store, start: StartAttempt) -> Result<Done, StoreError> {
        let mut call = inner.call(&start.call_id).await?;
        call.status = CallStatus::Running;
        call.attempt = start.attempt;
        call.idempotency_key = Some(start.key.clone());
        call.scope.clone_from(&start.scope);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(start.call_id.clone(), start);
        Ok(Done::Call(call))
    }
}

#[async_trait]
impl Writes for RunningAfterDispatch {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let late = |change: &Change| {
            let Change::SettleAttempt(settle) = change else { return None };
            self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&settle.call_id)
        };
        let late: Vec<Change> = batch.changes().filter_map(late).map(Change::StartAttempt).collect();
        if !late.is_empty() {
            inner.commit(by, Batch::of(late)).await?;
        }
        let is_start = |change: &Change| matches!(change, Change::StartAttempt(_));
        let (starts, stands): (Vec<_>, Vec<_>) = batch.stands.into_iter().partition(is_start);
        let (more, provided): (Vec<_>, Vec<_>) = batch.provided.into_iter().partition(is_start);
        // Whoever writes hears of each change in its place; starts are the last of their part.
        let mut committed = inner.commit(by, Batch { stands, provided, ..batch }).await?;
        for start in starts {
            if let Change::StartAttempt(start) = start {
                committed.stands.push(self.keep_back(inner, start).await?);
            }
        }
        for start in more {
            if let (Change::StartAttempt(start), Ok(provided)) = (start, &mut committed.provided) {
                provided.push(self.keep_back(inner, start).await?);
            }
        }
        Ok(committed)
    }
}

/// The same batch, with each start as `change` makes it.
fn each_start(mut batch: Batch, mut change: impl FnMut(&mut StartAttempt)) -> Batch {
    for one in batch.stands.iter_mut().chain(&mut batch.provided) {
        if let Change::StartAttempt(start) = one {
            change(start);
        }
    }
    batch
}

/// Claims a key without the call's position: a second move of the cursor looks like the first.
pub struct KeyWithoutPosition;

#[async_trait]
impl Writes for KeyWithoutPosition {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let mut keys = HashMap::new();
        for change in batch.changes() {
            let Change::StartAttempt(StartAttempt { call_id: id, .. }) = change else { continue };
            let planned = batch.changes().flat_map(Change::plans).find(|call| call.call_id == *id);
            let (tool, args) = match planned {
                Some(call) => (call.name.raw.clone(), call.args_hash),
                None => inner.call(id).await.map(|call| (call.name.raw, call.args_hash))?,
            };
            let key = KeyBuilder::new("broken").field("tool", &tool).field("args", &args.to_hex()).finish();
            keys.insert(id.clone(), key);
        }
        let batch = each_start(batch, |start| {
            if let Some(key) = keys.remove(&start.call_id) {
                start.key = key;
            }
        });
        inner.commit(by, batch).await
    }
}

/// Plans every call that would be held in doubt as one to be sent again: the forced replay of whatever was running.
pub struct ForcedReplay;

#[async_trait]
impl Writes for ForcedReplay {
    async fn commit(&self, inner: &dyn Store, by: &Author, mut batch: Batch) -> Result<Committed, StoreError> {
        for change in &mut batch.stands {
            let Change::RecordTurn(draft) = change else { continue };
            for call in &mut draft.calls {
                call.policy.key_ttl = None;
                if call.policy.on_unknown == OnUnknown::Hold {
                    call.policy.on_unknown = OnUnknown::Redo;
                }
            }
        }
        inner.commit(by, batch).await
    }
}

/// Stores no destination with an attempt: its key and its probe count wherever its server goes then.
struct DestinationsForgotten;

#[async_trait]
impl Writes for DestinationsForgotten {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        inner.commit(by, each_start(batch, |start| start.destination = None)).await
    }
}

/// Claims a key that another process would not make: what comes of a key over words that a model chose anew.
pub struct KeyOfThisProcess;

#[async_trait]
impl Writes for KeyOfThisProcess {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let process = std::process::id().to_string();
        let batch = each_start(batch, |start| {
            let key = KeyBuilder::new("broken").field("call", start.call_id.as_str());
            start.key = key.field("process", &process).finish();
        });
        inner.commit(by, batch).await
    }
}

/// Says that earlier tool servers are gone without looking: one that is still at work does what a person was just told it had
/// not done.
pub struct NoFence(Arc<dyn ToolTransport>);

#[async_trait]
impl ToolTransport for NoFence {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.0.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.0.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.0.ready(server).await
    }

    fn running(&self, server: &str) -> Option<String> {
        self.0.running(server)
    }

    fn is_silent(&self, server: &str) -> bool {
        self.0.is_silent(server)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.0.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        self.0.invoke(permit).await
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        self.0.go_on(permit, handle).await
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.0.give_up(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.0.ask(enquiry).await
    }

    async fn fence_earlier(&self) -> Fence {
        Fence::Gone
    }

    async fn fence(&self, _server: &str, _generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        Fence::Gone
    }
}

/// Reports every lost answer as a request that was never sent, so that it is tried again.
pub struct LostIsFailed(Arc<dyn ToolTransport>);

#[async_trait]
impl ToolTransport for LostIsFailed {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.0.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.0.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.0.ready(server).await
    }

    fn running(&self, server: &str) -> Option<String> {
        self.0.running(server)
    }

    fn is_silent(&self, server: &str) -> bool {
        self.0.is_silent(server)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.0.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        match self.0.invoke(permit).await {
            Outcome::Lost { why } => Outcome::NotSent { why },
            outcome @ (Outcome::NotSent { .. } | Outcome::Raw(_) | Outcome::Continues(_)) => outcome,
        }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        self.0.go_on(permit, handle).await
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.0.give_up(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.0.ask(enquiry).await
    }

    async fn fence_earlier(&self) -> Fence {
        self.0.fence_earlier().await
    }

    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        self.0.horizon(server, generation, lost_at)
    }

    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.0.may_act(server, generation, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        self.0.generation_unknown(server)
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.0.renew(server, generation, lost_at).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.0.fence(server, generation, lost_at).await
    }
}
