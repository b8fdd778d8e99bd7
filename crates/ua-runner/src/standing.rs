//! A run as its owner takes it over: how it stands, its newest turns, and of its past what still counts.
//!
//! A long run is not read turn by turn to go on with it: calls that may have had an effect, open calls, doubts and questions are read, settled
//! reads of long ago are counted (`ua_store::RunRecords::leave_out`), and of the history there is what a request may carry.
//! Invariant: what is decided from this is what would be decided from everything. What counts in a row (equal errors, replies that were no
//! answer) is read back to where it began; a run of which a person corrected something, and one whose agent keeps the conversation itself, is
//! read whole, and so is one whose requests carry so little of its history that an earlier process may have seen that its server reads no more
//! (`reading.rs`). Proved by: the tests below, over random runs; `crash_anywhere`.

use ua_checkpoint::{MeasuredHistory, Past, estimate_tokens, tokens_of_bytes};
use ua_core::{Message, RunId};
use ua_llm::Conversation;
use ua_store::{
    Keep, LeftOut, MessageRecord, RequestRecord, RequestStatus, RunRecords, RunStore as _, Store, StoreError,
    TELLING_TOKENS,
};

use crate::error::RunError;
use crate::iteration::context;
use crate::ports::Ports;
use crate::reading::seen_before;
use crate::recover::{newest_replies, same_error, same_error_from};

/// How many of the newest calls are read at least: more than a resume packet tells.
const CALLS: u32 = 16;
/// How many of the newest turns are read at least.
const TURNS: u32 = 2;
/// Requests that carry less than one in so many tokens of the history that they might were cut for a reason that may lie further back.
const FAR_LESS: u64 = 8;

/// Reads the run as its owner needs it.
pub(crate) async fn load_standing(ports: &Ports) -> Result<RunRecords, RunError> {
    let run = &ports.lease.run_id;
    let fail = || RunError::at("load the run");
    // Who keeps the conversation itself is owed what may lie anywhere in it.
    if ports.llm.conversation() != Conversation::InTheRequest {
        return ports.store.load(run).await.map_err(fail());
    }
    standing_of(ports.store.as_ref(), run).await.map_err(fail())
}

/// The same of a run whose model is sent the conversation. Whoever looks at a run that is about to be driven asks for this, and for no other part of
/// it: a store goes through the past of a long run once for all who ask for the same.
///
/// # Errors
/// Those of the store.
pub async fn standing_of(store: &dyn Store, run: &RunId) -> Result<RunRecords, StoreError> {
    let spec = store.run(run).await?.spec;
    let mut keep = Keep { turns: TURNS, calls: CALLS, bytes: bytes_of(spec.settings.history_max_tokens) };
    loop {
        let records = store.load_standing(run, keep).await?;
        if is_enough(&records) {
            return Ok(records);
        }
        keep = Keep { turns: keep.turns.saturating_mul(8), bytes: keep.bytes.saturating_mul(4), ..keep };
    }
}

/// More bytes of messages than a history of so many tokens has.
const fn bytes_of(tokens: u64) -> u64 {
    tokens.saturating_mul(4)
}

/// Whether nothing that was left out can decide anything: the history that a request may carry is there, and so is the end of whatever counts
/// in a row. What a person corrected is looked for in the whole history.
fn is_enough(records: &RunRecords) -> bool {
    if records.left_out.is_nothing() {
        return true;
    }
    let before = records.left_out.before;
    let is_here = |turn: u32| (before..=records.run.turn_index).contains(&turn);
    let here: u64 = records.messages.iter().filter(|m| is_here(m.turn)).map(|m| estimate_tokens(&m.message)).sum();
    let turns = records.turns.iter().filter(|turn| is_here(turn.turn)).count();
    let now = same_error(records);
    let ends_here = |so_far| same_error_from(records, so_far) == now;
    records.run.corrected_at.is_none()
        && here >= records.run.spec.settings.history_max_tokens
        && newest_replies(records).len() < turns
        && ends_here(Some((String::new(), 1)))
        && ends_here(now.clone().map(|(error, _)| (error, 1)))
        && !may_be_read_in_part(records)
}

/// Whether the newest requests are so much shorter than their history that an earlier process may have seen, in requests that are not here, that their
/// server reads no more. Those of iterations are short because each begins anew.
fn may_be_read_in_part(records: &RunRecords) -> bool {
    let answered = records.requests.iter().filter(|request| request.status == RequestStatus::Actual);
    let largest = answered.map(RequestRecord::plain_tokens).max().unwrap_or_default();
    let spec = &records.run.spec;
    spec.harness.is_none()
        && largest >= TELLING_TOKENS
        && largest.saturating_mul(FAR_LESS) < spec.settings.history_max_tokens
        && seen_before(records).0.is_none()
}

/// The history of a run after its committed turns, and the messages behind it. Its views of at most `max_tokens` are those of the whole.
pub(crate) fn history_of(
    messages: Vec<MessageRecord>,
    left_out: LeftOut,
    committed: u32,
    max_tokens: u64,
) -> (MeasuredHistory, Vec<Message>) {
    let (history, open): (Vec<_>, Vec<_>) = messages.into_iter().partition(|record| record.turn <= committed);
    let past = Past {
        messages: left_out.message_bytes.len(),
        tokens: left_out.message_bytes.iter().map(|bytes| tokens_of_bytes(*bytes)).sum(),
        tool_uses: left_out.tool_uses,
    };
    let head = history.iter().take_while(|record| record.turn < left_out.before).count();
    let mut messages = context(history.into_iter().map(|record| record.message).collect());
    // An iteration that began behind what was left out leaves nothing of that.
    let head = if past.messages == 0 { 0 } else { head };
    let rest = messages.split_off(head.min(messages.len()));
    let mut history = MeasuredHistory::behind(estimate_tokens, messages, &past);
    history.extend(rest);
    history.let_go(max_tokens);
    (history, open.into_iter().map(|record| record.message).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ua_checkpoint::Window;
    use ua_core::{Block, Origin, Role, RunId};
    use ua_resume::ResumePacket;
    use ua_store::{MemStore, conformance};

    use super::*;
    use crate::fit::Fit;
    use crate::recover::start_of;

    const MOST: u64 = 400;

    /// Runs that random writes made.
    async fn runs(seed: u64) -> Vec<RunRecords> {
        let (one, other) = (MemStore::new(), MemStore::new());
        conformance::agree(&one, &other, seed, 700).await;
        let mut all = Vec::new();
        for name in ["run_1", "run_2", "run_3"] {
            let id: RunId = name.parse().unwrap();
            let mut records = one.load(&id).await.unwrap();
            Arc::make_mut(&mut records.run.spec).settings.history_max_tokens = MOST;
            answer_what_was_asked(&mut records.messages);
            all.push(records);
        }
        all
    }

    /// Each reply's tool uses get their results, as a turn of the loop has them; random writes answer whatever they like.
    fn answer_what_was_asked(messages: &mut [MessageRecord]) {
        let mut asked: Vec<String> = Vec::new();
        for record in messages {
            if record.message.role == Role::Assistant {
                asked.extend(record.message.tool_uses().map(|tool_use| tool_use.id.clone()));
            } else if record.message.origin == Origin::Tools {
                let answered = |id| Block::ToolResult { tool_use_id: id, content: "ok".into(), is_error: false };
                record.message.blocks = asked.drain(..).map(answered).collect();
            }
        }
    }

    fn views(records: &RunRecords) -> Vec<(Vec<Message>, bool)> {
        let RunRecords { messages, left_out, run, .. } = records.clone();
        let (history, _) = history_of(messages, left_out, run.turn_index, MOST);
        let windows = [(MOST, 0), (MOST, 90), (MOST / 2, 10), (MOST / 3, 0)];
        windows
            .map(|(max_tokens, system_tokens)| {
                let view = history.view(Window { max_tokens, system_tokens });
                (view.messages().cloned().collect(), view.fits)
            })
            .into()
    }

    /// Why requests are far shorter than their history, what came before may say.
    #[test]
    fn requests_that_are_far_shorter_than_their_history_are_looked_at_from_the_first_on() {
        let mut story = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#);
        story.asks("says nothing", &[]);
        let mut is_looked_at = |tokens: u64| {
            story.records.requests[0].estimated_tokens = tokens;
            may_be_read_in_part(&story.records)
        };
        assert_eq!([is_looked_at(500), is_looked_at(3_584), is_looked_at(40_000)], [false, true, false]);
    }

    #[tokio::test]
    async fn what_is_decided_from_how_a_run_stands_is_what_would_be_decided_from_all_of_it() {
        let (mut left_out, mut not_enough) = (0, 0);
        for seed in 0..24 {
            for whole in runs(seed).await {
                for turns in [0, 2, 5] {
                    let keep = Keep { turns, calls: CALLS, bytes: bytes_of(MOST) };
                    let standing = whole.clone().leave_out(keep);
                    if !is_enough(&standing) {
                        not_enough += 1;
                        continue;
                    }
                    left_out += u32::from(!standing.left_out.is_nothing());
                    assert_eq!(start_of(&standing), start_of(&whole), "seed {seed}, {keep:?}");
                    let packet = |records: &RunRecords| ResumePacket::new(records, &[], &[]);
                    assert_eq!(packet(&standing), packet(&whole), "seed {seed}, {keep:?}");
                    assert!(views(&standing) == views(&whole), "the views differ: seed {seed}, {keep:?}");
                    let fit = |records: &RunRecords| {
                        let mut fit = Fit::default();
                        fit.learn_from(records);
                        fit
                    };
                    assert_eq!(fit(&standing), fit(&whole), "seed {seed}, {keep:?}");
                }
            }
        }
        assert!(left_out > 10 && not_enough > 0, "{left_out} were read in part, {not_enough} not far enough");
    }
}
