//! The iterations of a run, read off its history.

use serde::Serialize;
use ua_core::{Origin, Role, Timestamp};
use ua_store::{MessageRecord, RunRecords};

use ua_evidence::quote::{clean, cut};

/// The most characters of an iteration's last words that are kept.
const WORDS_LIMIT: usize = 1_500;

/// One iteration of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IterationLine {
    /// Its number, from 1.
    pub number: u32,
    /// Its first turn.
    pub first_turn: u32,
    /// Its last committed turn; `None` before its first one is.
    pub last_turn: Option<u32>,
    /// Tool calls that its turns asked for.
    pub tool_calls: usize,
    /// The last that the model said in it. Foreign text.
    pub last_words: Option<String>,
    /// When it began; `None` for the first one, which began with the run.
    pub begun_at: Option<Timestamp>,
}

/// The iterations that a run began, oldest first; none for a job without a harness.
pub fn iterations(records: &RunRecords) -> Vec<IterationLine> {
    let run = &records.run;
    if run.iteration_count == 0 {
        return Vec::new();
    }
    let own_from = run.forked_at.map_or(0, |point| point.seq);
    let is_boundary = |message: &&MessageRecord| message.message.origin == Origin::Iteration && message.seq > own_from;
    let boundaries = records.messages.iter().filter(is_boundary).map(|m| (m.turn, Some(m.created_at)));
    let starts: Vec<(u32, Option<Timestamp>)> = std::iter::once((run.shared_turns(), None)).chain(boundaries).collect();
    let ends = starts.iter().skip(1).map(|(turn, _)| *turn).chain([run.turn_index]);
    let lines = starts.iter().zip(ends).zip(1..).map(|(((before, begun_at), last), number)| {
        let is_in = |turn: u32| turn > *before && turn <= last;
        let calls = records.calls.iter().filter(|call| is_in(call.position.turn)).count();
        let words = records.messages.iter().rev().filter(|m| m.message.role == Role::Assistant && is_in(m.turn));
        let said = words.map(|m| m.message.text()).find(|text| !text.trim().is_empty());
        IterationLine {
            number,
            first_turn: before + 1,
            last_turn: (last > *before).then_some(last),
            tool_calls: calls,
            last_words: said.map(|text| cut(&clean(text.trim()), WORDS_LIMIT)),
            begun_at: *begun_at,
        }
    });
    lines.collect()
}
