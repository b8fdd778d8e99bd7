//! What the one who watches a run is told while it works.

use std::sync::Arc;

use serde::Serialize;
use ua_core::{CallId, Component, FingerprintDiff, Money, ShortNames, ToolSpec};
use ua_dispatch::CallProgress;
use ua_store::RequestStatus;

use crate::budget::{Charge, Spent};

/// Something worth a line of progress. A version with another second number (0.2) may tell more of them: who looks for some leaves the others out with
/// a last arm. As JSON it says under `event` which of these it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// A resume found this many calls in flight.
    Resuming {
        /// Committed turns.
        turn_index: u32,
        /// Calls in flight: they were sent, and their answers are not known.
        in_flight: usize,
        /// Calls that were decided and never sent.
        unsent: usize,
    },
    /// A changed component was pinned as it is now.
    Accepted {
        /// The component.
        component: Component,
        /// What differed; empty when only new tools came in.
        changes: FingerprintDiff,
    },
    /// A component that a person accepts has not changed.
    NothingToAccept {
        /// The component.
        component: Component,
    },
    /// What was sent could not be noted beside the database (`effects.log`): should an older copy of the database be put back, nobody would
    /// notice that it lacks this. Told at the end of a process's work.
    NotNoted {
        /// Which file, and why.
        why: String,
    },
    /// The tool servers have started and said what they have, before anything is offered or refused.
    ToolsListed {
        /// Every tool of every server.
        tools: Vec<ToolSpec>,
    },
    /// What of that is offered.
    ToolsOffered {
        /// How these tools are called in short.
        names: ShortNames,
    },
    /// The job counts an effect.
    EffectCounted {
        /// Its kind.
        effect: String,
        /// The offered tools whose calls are counted.
        counted: Vec<String>,
        /// Offered tools that nobody declared, and that may have that effect: their calls are not counted.
        perhaps: Vec<String>,
    },
    /// A phase begins.
    PhaseEntered {
        /// Its name.
        phase: String,
        /// Its number, from 1.
        number: usize,
        /// How many phases the job has.
        of: usize,
    },
    /// An iteration begins with an empty context.
    IterationBegun {
        /// Its number, from 1.
        number: u32,
        /// How many may begin.
        of: u32,
        /// Why the one before ended, in words.
        why: String,
    },
    /// A request to the model leaves.
    Thinking {
        /// The turn.
        turn: u32,
    },
    /// The model is asked again after a wait.
    Retrying {
        /// Which request of the turn failed, from 1.
        attempt: u32,
        /// Why.
        why: String,
        /// Milliseconds until the next.
        wait_millis: u64,
        /// Milliseconds that may be waited after that.
        left_millis: u64,
        /// Whether some of the requests that failed were charged, since their replies had begun, or may have: each such request may be billed.
        may_be_billed: bool,
        /// Milliseconds until the run's time is used up, where that is before the patience is.
        ends_in_millis: Option<u64>,
    },
    /// A tool server that was there before cannot be reached now, or says at the start that it cannot serve yet. Nothing was sent to it by this
    /// try; the calls are taken up again after a wait.
    ToolServerAway {
        /// Whether it has a call already, which is only followed.
        was_sent: bool,
        /// How often it was tried for these calls, from 1.
        attempt: u32,
        /// Which server it is, and what happened.
        why: String,
        /// Milliseconds until the next time.
        wait_millis: u64,
        /// Milliseconds that may be waited after that.
        left_millis: u64,
        /// Milliseconds until the run's time is used up, where that is before the patience is.
        ends_in_millis: Option<u64>,
    },
    /// The run's time is used up while something is under way. That is waited for, since no call that was sent is cut, and nothing is begun after it.
    /// Told once.
    TimeUsedUp {
        /// The limit, in minutes.
        max_minutes: u64,
    },
    /// Another process keeps the database busy. What came back from outside waits, and is stored when it can be.
    DatabaseBusy {
        /// What is waited to do: `store the answer of`, `record the model's reply`.
        doing: String,
        /// What the database says.
        why: String,
    },
    /// No room is left for what a tool answered. It waits until a person has made some, and is stored then.
    DatabaseFull {
        /// What is waited to do: `store the answer of`.
        doing: String,
        /// What the database says.
        why: String,
        /// Milliseconds after which it is given up.
        left_millis: u64,
    },
    /// An answer of a call with an effect could be stored neither in the database nor beside it: it is in this process's hands alone, which
    /// tries on. Told once of each attempt.
    AnswerNotKept {
        /// The call.
        call_id: CallId,
        /// What the tool answered, on one line, without the secrets that are known.
        said: String,
        /// Why it is not kept beside the database.
        why: String,
    },
    /// An answer of which that was told is kept beside the database now.
    AnswerKept {
        /// The call.
        call_id: CallId,
    },
    /// The provider refused a request for one tool. The tool is not offered any more, and the model is asked again.
    ToolLeftOut {
        /// The turn asked for.
        turn: u32,
        /// The tool.
        tool: String,
        /// The provider's words.
        why: String,
    },
    /// The provider refused a request for the longest reply that it asks for, which the job does not name. The model is asked again for a shorter
    /// one.
    ReplyShortened {
        /// The turn asked for.
        turn: u32,
        /// The longest reply that is asked for from now on, in tokens.
        tokens: u32,
        /// The provider's words.
        why: String,
    },
    /// The provider does not take the form of the job's result as a part of the request. It is left out, and the model is asked again: the first
    /// message says it as well, and the result is held against it.
    FormLeftOut {
        /// The turn asked for.
        turn: u32,
        /// The provider's words.
        why: String,
    },
    /// The provider refused a request with images of tools, perhaps for them, or for its length. They are left out, and the model is asked again.
    ImagesLeftOut {
        /// The turn asked for.
        turn: u32,
        /// Whether those of the newest results are sent all the same.
        older: bool,
        /// The provider's words.
        why: String,
    },
    /// A request was too long for the model. Its history is cut, as often as it takes, and the model asked again: told once for a turn, and
    /// what these requests were charged, which is nothing, is not told of each.
    HistoryCut {
        /// The turn asked for.
        turn: u32,
        /// The refusal does not say that it is for the length.
        perhaps: bool,
    },
    /// What came last is by itself longer than the model takes: the longest of its texts are shown by their beginning and end. What is stored
    /// stays whole. Told once for a turn.
    NewestShortened {
        /// The turn asked for.
        turn: u32,
    },
    /// The provider does not know the conversation any more; the whole history is sent.
    SessionForgotten {
        /// The turn asked for.
        turn: u32,
        /// The reply that was to be continued from.
        response_id: String,
    },
    /// The job and the newest messages alone are over what a request may carry of the history; they are sent all the same. Told once,
    /// and once more where the provider refused that.
    HistoryOverLimit {
        /// The most tokens of history.
        max_tokens: u64,
        /// Whether it is so few because the provider refused a longer request as too long, or perhaps for that: no setting says it.
        after_refusal: bool,
    },
    /// A request was charged.
    Charged {
        /// The turn it asked for.
        turn: u32,
        /// In which way.
        status: RequestStatus,
        /// Whether it left: the provider may have refused it.
        was_sent: bool,
        /// Whether a whole reply came of it. Where that one is charged in part only, its provider did not say what it cost.
        is_whole: bool,
        /// How much.
        charge: Charge,
        /// What was charged so far, this request included.
        spent: Spent,
        /// The most tokens.
        max_tokens: Option<u64>,
        /// The most money.
        max_cost: Option<Money>,
    },
    /// A piece of the model's text, as it comes: what must not be kept is taken out of the whole reply, not out of its pieces. A reply that breaks off is
    /// asked for again from its beginning, and may read otherwise then: whoever joins the pieces begins anew at each [`RunEvent::Thinking`].
    Text {
        /// The piece.
        delta: String,
    },
    /// A turn is recorded.
    Recorded {
        /// The turn.
        turn: u32,
        /// Calls it asks for.
        calls: usize,
        /// Calls charged so far.
        tool_calls: u32,
        /// The limit.
        max_tool_calls: Option<u32>,
    },
    /// Something happened to a call.
    Call(CallProgress),
    /// A turn is committed.
    Committed {
        /// The turn.
        turn: u32,
    },
    /// The model is told to go on.
    Guided {
        /// With what.
        text: String,
    },
}

/// Takes signals; must not block.
pub type Watcher = Arc<dyn Fn(RunEvent) + Send + Sync>;
