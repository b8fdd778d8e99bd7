//! A run as its next owner needs it: how it stands, whole; of its past, what still counts.
//!
//! A resume decides about calls that are open, in doubt or had an effect, about questions, and about the newest turns. What thousands of
//! settled reads said long ago it only counts. So they are added up and left out, and what a resume costs does not grow with what they
//! said. What is left out is defined here ([`RunRecords::leave_out`]), over whole records; a store may find the same rows otherwise.
//!
//! Invariants: every call that is not settled, had or may have had an effect, or may have paid is there, with attempts and receipts; so is every
//! question, and every request that is not closed. Counting what is there and adding what was left out comes to the same as counting everything.
//! Proved by: `conformance::agree`, which compares every store with this definition; the tests of `standing` in `ua-runner`.

use std::collections::BTreeSet;

use ua_core::{CallId, CallStatus, Message, Money, Origin, ToolCharge, Usage};

use crate::record::{
    CallRecord, CheckpointKind, CheckpointRecord, RequestRecord, RequestStatus, RunRecords, StepRecord,
};

/// How much of a run's newest past is there whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// At least so many turns.
    pub turns: u32,
    /// At least so many calls.
    pub calls: u32,
    /// Messages of at least so many bytes.
    pub bytes: u64,
}

/// Requests below this many estimated tokens say more about what a provider adds to each than about how it counts.
pub const TELLING_TOKENS: u64 = 1_000;

/// The scale of an estimate that stands as its estimator made it, in thousandths.
pub const PLAIN_SCALE: u64 = 1_000;

/// What stands between an estimator and the scale of its estimate.
pub const SCALED_BY: char = '*';

/// The estimator of a reservation whose estimate is so many thousandths of what that one estimates, since its provider counts more. It is read back
/// where another process asks what the provider counts for one estimated token.
pub fn scaled_estimator(estimator: &str, scale: u64) -> String {
    if scale <= PLAIN_SCALE { estimator.to_owned() } else { format!("{estimator}{SCALED_BY}{scale}") }
}

/// What was left out of a run's records: turns before [`before`](Self::before) are there in part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first turn that is there whole; 0 when everything is there.
    pub before: u32,
    /// Calls, counted.
    pub calls: Vec<CallSum>,
    /// Requests, added up; in the order of the first of each.
    pub requests: Vec<RequestSum>,
    /// The sizes of the messages behind the last one with which an iteration began, in order: of their JSON, with blobs in place. The first
    /// message of all, and the one with which the current phase or iteration began, are there.
    pub message_bytes: Vec<u64>,
    /// The ids of tool uses since that iteration began, of all calls of earlier turns, those that are there among them.
    pub tool_uses: Vec<String>,
}

/// Calls of one step that came to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSum {
    /// The first turn of the step.
    pub first_turn: u32,
    /// What they came to.
    pub status: CallStatus,
    /// How many they are.
    pub count: u32,
}

/// Requests to one model that were charged in one way, within one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSum {
    /// The first turn of the step.
    pub first_turn: u32,
    /// The provider asked.
    pub provider: String,
    /// The model asked.
    pub model: String,
    /// How they were charged.
    pub status: RequestStatus,
    /// Whether they may have left us.
    pub network_attempted: bool,
    /// How many they are.
    pub count: u32,
    /// What was charged.
    pub usage: Usage,
    /// What that cost; they have one currency, or no price.
    pub cost: Option<Money>,
    /// Those that were charged tokens without a price.
    pub unpriced: u32,
    /// Those that used more tokens than were reserved for them.
    pub overruns: u32,
    /// Their estimated input tokens.
    pub estimated_tokens: u64,
    /// The most thousandths that an estimated token counted as, of requests that the provider counted and that are telling; 0 when there is
    /// none.
    pub counted_as: u64,
}

impl LeftOut {
    /// Whether nothing was left out.
    pub fn is_nothing(&self) -> bool {
        self.before == 0
    }

    /// How many calls of steps that began with a turn from `first` on.
    pub fn calls_from(&self, first: u32) -> u32 {
        self.calls.iter().filter(|sum| sum.first_turn >= first).map(|sum| sum.count).sum()
    }

    /// Counts a call that is left out.
    pub fn count(&mut self, first_turn: u32, status: CallStatus) {
        let known = self.calls.iter_mut().find(|sum| (sum.first_turn, sum.status) == (first_turn, status));
        match known {
            Some(sum) => sum.count += 1,
            None => self.calls.push(CallSum { first_turn, status, count: 1 }),
        }
    }

    /// Requests of steps that began with a turn from `first` on.
    pub fn requests_from(&self, first: u32) -> impl Iterator<Item = &RequestSum> {
        self.requests.iter().filter(move |sum| sum.first_turn >= first)
    }
}

impl RequestSum {
    fn of(request: &RequestRecord, first_turn: u32) -> Self {
        let is_actual = request.status == RequestStatus::Actual;
        Self {
            first_turn,
            provider: request.provider.clone(),
            model: request.model.clone(),
            status: request.status,
            network_attempted: request.network_attempted,
            count: 1,
            usage: request.usage,
            cost: request.cost,
            unpriced: u32::from(request.cost.is_none() && request.usage.total() > 0),
            overruns: u32::from(is_actual && request.is_overrun()),
            estimated_tokens: request.estimated_tokens,
            counted_as: request.counted_as().unwrap_or(0),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let kind = |sum: &Self| (sum.first_turn, sum.status, sum.network_attempted, sum.cost.map(Money::currency));
        (kind(self), &self.provider, &self.model) == (kind(other), &other.provider, &other.model)
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.usage = self.usage.plus(other.usage);
        self.cost = match (self.cost, other.cost) {
            (Some(sum), Some(more)) => {
                Some(Money::from_nanos(sum.nanos().saturating_add(more.nanos()), sum.currency()))
            }
            (sum, more) => sum.or(more),
        };
        self.unpriced += other.unpriced;
        self.overruns += other.overruns;
        self.estimated_tokens = self.estimated_tokens.saturating_add(other.estimated_tokens);
        self.counted_as = self.counted_as.max(other.counted_as);
    }
}

impl RequestRecord {
    /// How many thousandths of a token the provider counted for an estimated one, before that was scaled; `None` unless it counted, and the
    /// request is telling.
    pub fn counted_as(&self) -> Option<u64> {
        let counted = self.usage.total() - self.usage.output_tokens;
        let plain = self.plain_tokens();
        let is_telling = self.status == RequestStatus::Actual && plain >= TELLING_TOKENS;
        is_telling.then(|| counted.saturating_mul(PLAIN_SCALE).div_ceil(plain))
    }

    /// Its input tokens as its estimator alone estimates them, without what the provider had counted more before.
    pub fn plain_tokens(&self) -> u64 {
        let scale =
            self.estimator.split_once(SCALED_BY).and_then(|(_, scale)| scale.parse().ok()).unwrap_or(PLAIN_SCALE);
        self.estimated_tokens.saturating_mul(PLAIN_SCALE).div_ceil(scale.max(PLAIN_SCALE))
    }
}

/// Whether a call of an earlier turn counts for more than its number.
pub fn still_counts(call: &CallRecord) -> bool {
    call.policy.class.has_effect()
        || !call.status.is_settled()
        || call.name.is_task()
        || ToolCharge::may_come_from(&call.name)
}

/// Whether a marker of an earlier turn counts: one that caches a corpus.
fn marker_counts(marker: &CheckpointRecord) -> bool {
    marker.kind == CheckpointKind::CorpusCache
}

/// The first turn of the step that a turn belongs to.
pub fn step_of(steps: &[StepRecord], turn: u32) -> u32 {
    steps.iter().map(|step| step.first_turn).filter(|first| *first <= turn).max().unwrap_or(0)
}

/// The first turn that is kept whole: `newest` are the turns and sizes of messages, and `calls` the turns of calls, newest first. 0 when
/// everything is.
pub fn first_kept(
    keep: Keep,
    committed: u32,
    calls: impl IntoIterator<Item = u32>,
    newest: impl IntoIterator<Item = (u32, u64)>,
) -> u32 {
    let by_turns = (committed + 1).saturating_sub(keep.turns);
    let by_calls = (keep.calls as usize).checked_sub(1).map_or(Some(u32::MAX), |last| calls.into_iter().nth(last));
    let mut bytes = 0_u64;
    let by_bytes = newest.into_iter().find_map(|(turn, size)| {
        bytes = bytes.saturating_add(size);
        (bytes >= keep.bytes).then_some(turn)
    });
    let (Some(by_calls), Some(by_bytes)) = (by_calls, by_bytes) else { return 0 };
    let first = by_turns.min(by_calls).min(by_bytes);
    if first <= 1 { 0 } else { first }
}

/// The size of a message's JSON, with its blobs in place.
pub fn message_bytes(message: &Message) -> u64 {
    let written = serde_json::to_string(message).map_or(0, |json| json.len() as u64);
    written + message.blobs().map(|blob| blob.size).sum::<u64>()
}

impl RunRecords {
    /// The same without what only counts. A fork keeps everything: what it shares lies with others.
    #[must_use]
    pub fn leave_out(mut self, keep: Keep) -> Self {
        if self.run.forked_at.is_some() {
            return self;
        }
        let sizes = self.messages.iter().rev().map(|record| (record.turn, message_bytes(&record.message)));
        let calls = self.calls.iter().rev().map(|call| call.position.turn);
        let before = first_kept(keep, self.run.turn_index, calls, sizes);
        if before == 0 {
            return self;
        }
        let mut left = LeftOut { before, ..LeftOut::default() };
        self.leave_out_messages(&mut left);
        self.leave_out_calls(&mut left);
        let steps = &self.steps;
        self.requests.retain(|request| {
            let is_kept = request.turn >= before || request.closed_at.is_none();
            if !is_kept {
                let sum = RequestSum::of(request, step_of(steps, request.turn));
                match left.requests.iter_mut().find(|known| known.is_like(&sum)) {
                    Some(known) => known.add(&sum),
                    None => left.requests.push(sum),
                }
            }
            is_kept
        });
        self.turns.retain(|turn| turn.turn >= before || turn.committed_at.is_none());
        let last = self.checkpoints.len().saturating_sub(1);
        let mut index = 0;
        self.checkpoints.retain(|marker| {
            index += 1;
            index > last || marker_counts(marker)
        });
        self.left_out = left;
        self
    }

    fn leave_out_messages(&mut self, left: &mut LeftOut) {
        let begun = self.messages.iter().rposition(|record| record.message.origin == Origin::Iteration);
        let is_phase = |origin| matches!(origin, Origin::Phase | Origin::Iteration);
        let phase = self.messages.iter().rposition(|record| is_phase(record.message.origin));
        let context = begun.and_then(|begun| self.messages.get(begun)).map_or(0, |record| record.turn + 1);
        let early = self.calls.iter().filter(|call| (context..left.before).contains(&call.position.turn));
        left.tool_uses = early.map(|call| call.tool_use_id.clone()).collect();
        let mut index = 0;
        self.messages.retain(|record| {
            let is_kept = record.turn >= left.before || index == 0 || Some(index) == phase;
            if !is_kept && begun.is_none_or(|begun| index > begun) {
                left.message_bytes.push(message_bytes(&record.message));
            }
            index += 1;
            is_kept
        });
    }

    fn leave_out_calls(&mut self, left: &mut LeftOut) {
        let steps = &self.steps;
        self.calls.retain(|call| {
            let is_kept = call.position.turn >= left.before || still_counts(call);
            if !is_kept {
                left.count(step_of(steps, call.position.turn), call.status);
            }
            is_kept
        });
        let kept: BTreeSet<&CallId> = self.calls.iter().map(|call| &call.call_id).collect();
        self.attempts.retain(|attempt| kept.contains(&attempt.call_id));
        self.receipts.retain(|receipt| kept.contains(&receipt.call_id));
    }

    /// How many calls of the run are in a status; those that were left out among them.
    pub fn calls_in(&self, status: CallStatus) -> u32 {
        let here = self.calls.iter().filter(|call| call.status == status).count();
        let left_out = self.left_out.calls.iter().filter(|sum| sum.status == status).map(|sum| sum.count);
        u32::try_from(here).unwrap_or(u32::MAX).saturating_add(left_out.sum())
    }

    /// How many calls the run asked for in turns from `first` on, which begins a step; those that were left out among them.
    pub fn calls_from(&self, first: u32) -> u32 {
        let here = self.calls.iter().filter(|call| call.position.turn >= first).count();
        u32::try_from(here).unwrap_or(u32::MAX).saturating_add(self.left_out.calls_from(first))
    }
}
