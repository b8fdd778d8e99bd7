//! What must hold of the messages of a history: each was left by a write that another row tells of.
//!
//! A reply is written with its turn, results with the turn's commit, the beginning of a phase or an iteration with its step, the prompt with the
//! run. Only what the run says between turns (guidance, the note after a resume) has no other row: there the numbers have to go on without a gap,
//! and a marker that was set behind a reply says up to which number the history went. So a row that somebody puts in, or takes out, is noticed unless
//! it stands behind everything else and calls itself one of these.

use std::collections::BTreeMap;

use ua_core::{Origin, Role, Timestamp};

use super::Violations;
use crate::record::{MessageRecord, RunRecords, TurnRecord};

/// The statement.
const NAME: &str = "each_message_was_written";

/// Every message of the run's own history that no record accounts for, and those that are missing.
pub(super) fn accounted_for(found: &mut Violations, records: &RunRecords) {
    let run = &records.run;
    let shared = run.forked_at.map_or(0, |point| point.seq);
    let is_own = |message: &&MessageRecord| message.seq > shared || (message.seq == 1 && message.turn == 0);
    let own: Vec<&MessageRecord> = records.messages.iter().filter(is_own).collect();
    let numbers = std::iter::once(1).chain(shared.max(1) + 1..);
    if let Some((message, wanted)) = own.iter().zip(numbers).find(|(message, wanted)| message.seq != *wanted) {
        let why = format!("message {} stands where message {wanted} has to", message.seq);
        found.add(NAME, &run.run_id, why);
    }
    let turns: BTreeMap<u32, &TurnRecord> = records.turns.iter().map(|turn| (turn.turn, turn)).collect();
    for message in &own {
        if !was_written(records, &turns, message) {
            let why = format!("no record of the run tells that message {} was written", message.seq);
            found.add(NAME, &run.run_id, why);
        }
    }
    let replies = each_once(found, records, &own);
    behind_replies(found, records, &replies);
}

/// Whether another row tells of the write that a message says it is of.
fn was_written(records: &RunRecords, turns: &BTreeMap<u32, &TurnRecord>, message: &MessageRecord) -> bool {
    let (said, at, turn) = (&message.message, message.created_at, turns.get(&message.turn));
    let of_its_kind = match said.origin {
        Origin::Prompt => message.seq == 1 && message.turn == 0,
        Origin::Model => turn.is_some_and(|turn| turn.recorded_at == at),
        Origin::Tools => turn.is_some_and(|turn| turn.committed_at == Some(at)),
        Origin::Phase | Origin::Iteration => records.steps.iter().any(|step| step.created_at == at),
        Origin::Guidance | Origin::Resume => true,
        Origin::Omission => false,
    };
    of_its_kind && (said.role == Role::Assistant) == (said.origin == Origin::Model)
}

/// One reply of each turn, at most one message with its results, and as many beginnings as steps. The places of the replies by their turns.
fn each_once(found: &mut Violations, records: &RunRecords, own: &[&MessageRecord]) -> BTreeMap<u32, u64> {
    let run = &records.run;
    let (mut replies, mut results) = (BTreeMap::<u32, Vec<u64>>::new(), BTreeMap::<u32, Vec<u64>>::new());
    let mut beginnings = BTreeMap::<Timestamp, usize>::new();
    for message in own {
        match message.message.origin {
            Origin::Model => replies.entry(message.turn).or_default().push(message.seq),
            Origin::Tools => results.entry(message.turn).or_default().push(message.seq),
            Origin::Phase | Origin::Iteration => *beginnings.entry(message.created_at).or_default() += 1,
            Origin::Prompt | Origin::Guidance | Origin::Resume | Origin::Omission => {}
        }
    }
    for turn in &records.turns {
        let count = replies.get(&turn.turn).map_or(0, Vec::len);
        if count != 1 {
            let why =
                format!("turn {} has {} of its model in the history", turn.turn, ua_core::counted(count, "reply"));
            found.add(NAME, &run.run_id, why);
        }
    }
    for (turn, more) in results.iter().filter(|(_, seqs)| seqs.len() > 1) {
        found.add(NAME, &run.run_id, format!("turn {turn} has its results more than once, in messages {more:?}"));
    }
    for (at, count) in beginnings {
        let steps = records.steps.iter().filter(|step| step.created_at == at).count();
        if count > steps {
            found.add(NAME, &run.run_id, format!("more begins in the history at {at} than steps did"));
        }
    }
    replies.into_iter().filter_map(|(turn, seqs)| Some((turn, *seqs.first()?))).collect()
}

/// A marker that was set behind a reply says a number that is not below that of the reply: what is put in before moves the reply up.
fn behind_replies(found: &mut Violations, records: &RunRecords, replies: &BTreeMap<u32, u64>) {
    for marker in &records.checkpoints {
        let number = |name: &str| marker.cursor.get(name).and_then(serde_json::Value::as_u64);
        let turn = number("turn_index").max(number("open_turn")).and_then(|turn| u32::try_from(turn).ok());
        let reply = turn.and_then(|turn| replies.get(&turn));
        if let (Some(reply), Some(last)) = (reply, number("last_message_seq"))
            && last < *reply
        {
            let why =
                format!("it was set behind a reply, when there were {last} messages, and the reply is number {reply}");
            found.add(NAME, &marker.checkpoint_id, why);
        }
    }
}
