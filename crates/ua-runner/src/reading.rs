//! Whether a server reads less of a request than it is sent.
//!
//! Some servers cut a prompt to the context they were started with and answer as if they had read all of it: Ollama does (`num_ctx`, 4096
//! tokens unless somebody says otherwise), with HTTP 200 and without a word. Their count of what they read shows it: what is sent grows from
//! request to request, and the count does not. What the model wrote itself is left out of that growth, since many servers drop its thoughts from
//! earlier turns; so are images, which each server counts in a way of its own.
//!
//! Another process finds it again in the stored requests ([`seen_before`]), so that nothing is sent once more that is not read. A fork begins anew:
//! it is the way to a server that was given a larger context since.

use ua_core::{Block, Message, Role};
use ua_llm::ModelRequest;
use ua_store::{RequestRecord, RequestStatus, RunRecords, TELLING_TOKENS, message_bytes};

/// Tokens that every context has: a lower count is of something else.
const LEAST_CONTEXT: u64 = 1_024;
/// Tokens by which a request has to grow for its count to say something.
const TELLING_GROWTH: u64 = 256;
/// The part of the growth that has to be counted at least.
const COUNTED_PART: u64 = 16;
/// In how many requests in a row the count has to stay where it was.
const IN_A_ROW: u32 = 2;
/// An estimated token for which less than one in so many is counted was not read, whatever is written in it.
const FAR_LESS: u64 = 4;
/// The part by which a later count is larger than what a server was seen to read, if it reads more since.
const SOME_MORE: u64 = 8;

/// A request as it was sent, and what was counted for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Estimated tokens of all of it, as the estimator alone estimates them.
    pub estimated: u64,
    /// Of them, those of tasks and results in plain text.
    pub told: u64,
    /// What the server counted of its input.
    pub counted: u64,
}

impl Seen {
    pub(crate) fn of(request: &ModelRequest, estimated: u64, counted: u64) -> Self {
        let others = request.messages.iter().filter(|message| message.role != Role::Assistant);
        let blocks = others.flat_map(|message| message.blocks.iter());
        let bytes = blocks.filter(|block| !matches!(block, Block::Opaque { .. })).map(Block::written_bytes);
        Self { estimated, told: bytes.sum::<usize>() as u64 / 4, counted }
    }
}

/// How much of what it is sent a server seems to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadsOnly {
    /// Tokens, as it counts them.
    pub tokens: u64,
    /// Whether nothing else explains its counts. A server that counts only what it did not have in a cache shows nearly the same.
    pub is_sure: bool,
}

/// What the counts of a run's requests, one behind the other, say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reading {
    last: Option<Seen>,
    /// By how much the last one had grown, if it was not the first.
    grew: Option<u64>,
    /// In how many requests in a row the count stayed where it was.
    stuck: u32,
    /// In how many of them nothing else explains that.
    sure: u32,
    /// What was said of it already: whether that was sure.
    said: Option<bool>,
}

impl Reading {
    /// The same with nothing to compare the next request with.
    fn anew(self) -> Self {
        Self { said: self.said, ..Self::default() }
    }

    /// Whether it is sure already that the server does not read all of it.
    pub(crate) fn is_sure(&self) -> bool {
        self.said == Some(true)
    }

    /// Looks at one request that was answered and counted; something is returned once, and once more when it has become sure.
    pub(crate) fn look_at(&mut self, seen: Seen) -> Option<ReadsOnly> {
        let last = self.last.replace(seen);
        let is_telling = seen.estimated >= TELLING_TOKENS && seen.counted >= LEAST_CONTEXT;
        let is_stuck = is_telling && last.is_some_and(|last| is_stuck(last, seen));
        let grew = last.map(|last| seen.estimated.saturating_sub(last.estimated));
        let grew_before = std::mem::replace(&mut self.grew, grew);
        if is_stuck {
            let grew = grew.unwrap_or_default();
            // The growth alone would have been counted as that much by a server that counts only what is new to it.
            let is_more_than_new = seen.counted > grew.saturating_mul(2);
            let is_other_growth = grew_before.is_some_and(|before| grew.abs_diff(before) > grew / 8);
            let is_the_same = is_other_growth && last.is_some_and(|last| last.counted == seen.counted);
            self.stuck += 1;
            self.sure += u32::from(is_more_than_new || is_the_same);
        } else {
            (self.stuck, self.sure) = (0, 0);
        }
        let is_sure = self.sure >= IN_A_ROW;
        // Images are left out of it: a server may not see any.
        let is_far_less = is_telling && seen.counted.saturating_mul(FAR_LESS) < seen.told;
        let is_any = self.stuck >= IN_A_ROW || is_far_less;
        if !is_any || self.said.is_some_and(|sure| sure || !is_sure) {
            return None;
        }
        self.said = Some(is_sure);
        Some(ReadsOnly { tokens: seen.counted, is_sure })
    }
}

/// A stored request that was answered and counted, with what stood in the history in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    turn: u32,
    /// Estimated tokens of all of it, as the estimator alone estimates them.
    estimated: u64,
    counted: u64,
    /// Tokens of tasks and results in plain text that are stored in front of it.
    told: u64,
    /// The same of what the model wrote.
    written: u64,
}

/// What an earlier process saw of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenBefore {
    /// The turn whose reply showed it.
    pub turn: u32,
    /// The tokens that it reads, as it counts them.
    pub tokens: u64,
}

/// What the run's own requests show of the server that answered the newest of them, where they leave no doubt, and what is to be looked at further.
/// Turns that it shares with the run it was forked from say nothing: it may be asked elsewhere.
pub(crate) fn seen_before(records: &RunRecords) -> (Option<SeenBefore>, Reading) {
    let is_counted =
        |request: &&RequestRecord| request.status == RequestStatus::Actual && request.turn > records.run.shared_turns();
    let Some(newest) = records.requests.iter().rfind(is_counted) else { return (None, Reading::default()) };
    let of_it = |request: &&RequestRecord| (&request.provider, &request.model) == (&newest.provider, &newest.model);
    let (mut told, mut written) = (0, 0);
    let mut messages = records.messages.iter().peekable();
    let past = records.requests.iter().filter(is_counted).filter(of_it).map(|request| {
        while let Some(record) = messages.next_if(|record| record.turn < request.turn) {
            match record.message.role {
                Role::User => told += told_in(&record.message),
                Role::Assistant => written += message_bytes(&record.message),
            }
        }
        Past {
            turn: request.turn,
            estimated: request.plain_tokens(),
            counted: request.usage.input_total(),
            told: told / 4,
            written: written / 4,
        }
    });
    let (seen, reading) = seen_in(past);
    // Of a history that is here in part, nobody knows how much of it the last request told.
    (seen, if records.left_out.is_nothing() { reading } else { reading.anew() })
}

/// Bytes of plain text, as a request has them: with large results in their places.
fn told_in(message: &Message) -> u64 {
    let bytes = |block: &Block| match block {
        Block::ToolResult { content, .. } => content.whole_size(),
        Block::Text { .. } | Block::ToolUse(_) => block.written_bytes() as u64,
        Block::Opaque { .. } => 0,
    };
    message.blocks.iter().map(bytes).sum()
}

/// The same of requests in their order.
fn seen_in(requests: impl Iterator<Item = Past>) -> (Option<SeenBefore>, Reading) {
    let (mut found, mut reading): (Option<SeenBefore>, _) = (None, Reading::default());
    let (mut last, mut told): (Option<Past>, u64) = (None, 0);
    for request in requests {
        // What a request left out of the history is stored nowhere, so no more of its growth is believed than it grew by itself.
        told += last.map_or(request.told, |last| {
            let written = request.written.saturating_sub(last.written);
            let grew = request.estimated.saturating_sub(last.estimated).saturating_sub(written);
            grew.min(request.told.saturating_sub(last.told))
        });
        last = Some(request);
        let reads_more = |found: SeenBefore| request.counted > found.tokens.saturating_add(found.tokens / SOME_MORE);
        if found.is_some_and(reads_more) {
            (found, reading) = (None, Reading::default());
        }
        let seen = Seen { estimated: request.estimated, told, counted: request.counted };
        let only = reading.look_at(seen).filter(|only| only.is_sure);
        found = only.map(|only| SeenBefore { turn: request.turn, tokens: only.tokens }).or(found);
    }
    // The next request tells more than the last one by what that left out.
    let is_whole = last.is_some_and(|last| last.estimated >= last.told.saturating_add(last.written));
    (found, if is_whole { reading } else { reading.anew() })
}

/// Whether more was sent than before and no more of it was counted.
fn is_stuck(last: Seen, seen: Seen) -> bool {
    let grew = seen.told.saturating_sub(last.told);
    grew >= TELLING_GROWTH
        && seen.counted >= last.counted / 2
        && seen.counted <= last.counted.saturating_add(grew / COUNTED_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of requests of so many estimated tokens each, all of them told, and the counts of them.
    fn said(requests: &[(u64, u64)]) -> Vec<Option<(u64, bool)>> {
        let mut reading = Reading::default();
        let seen = |(estimated, counted): &(u64, u64)| {
            let only = reading.look_at(Seen { estimated: *estimated, told: *estimated, counted: *counted });
            only.map(|only| (only.tokens, only.is_sure))
        };
        requests.iter().map(seen).collect()
    }

    #[test]
    fn a_count_that_stays_where_it_is_while_the_requests_grow_is_said_once() {
        let stuck = said(&[(1_500, 1_400), (2_100, 2_000), (2_900, 2_048), (3_600, 2_048), (4_400, 2_048)]);
        assert_eq!(stuck, [None, None, None, Some((2_048, true)), None]);
        // Whole messages are left out there, so the count moves below what it may be.
        let moves = said(&[(3_900, 3_800), (4_500, 4_010), (5_200, 3_950), (5_900, 3_960), (6_500, 3_900)]);
        assert_eq!(moves.iter().flatten().count(), 1, "{moves:?}");
        assert!(matches!(moves.iter().flatten().next(), Some((_, true))), "{moves:?}");
    }

    #[test]
    fn a_server_that_counts_only_what_is_new_is_not_taken_at_its_word() {
        let cached = said(&[(3_000, 2_900), (6_000, 2_900), (9_000, 2_950), (12_000, 2_900), (15_000, 2_910)]);
        let said: Vec<_> = cached.iter().flatten().collect();
        assert!(said.len() == 1 && !said[0].1, "{cached:?}");
    }

    #[test]
    fn a_request_that_is_mostly_not_read_says_so_at_once() {
        assert_eq!(said(&[(20_000, 4_096)]), [Some((4_096, false))]);
        assert_eq!(said(&[(20_000, 4_096), (20_600, 4_096), (21_500, 4_096)])[1..], [None, Some((4_096, true))]);
    }

    /// Stored requests of so many estimated tokens each, their counts, and what of the history in front of them was told and written.
    fn seen_again(requests: &[(u64, u64, u64, u64)]) -> Option<(u32, u64)> {
        let past = (1..).zip(requests).map(|(turn, (estimated, counted, told, written))| Past {
            turn,
            estimated: *estimated,
            counted: *counted,
            told: *told,
            written: *written,
        });
        seen_in(past).0.map(|seen| (seen.turn, seen.tokens))
    }

    /// Over contexts × how much a turn tells and the model writes × how many turns there are: another process finds what the first one saw, neither
    /// more nor less, also when that one had cut the history since.
    #[test]
    fn what_was_seen_is_found_again_in_what_is_stored() {
        let (tools, most) = (700, 1_000_000);
        let (mut found, mut nothing) = (0, 0);
        for context in [2_048, 4_096, 8_192, most] {
            for (tells, writes) in [(400, 40), (900, 300), (1_500, 10)] {
                for turns in 1..24 {
                    let (mut live, mut cut) = (Reading::default(), most);
                    let (mut seen, mut stored) = (None, Vec::new());
                    for turn in 0..turns {
                        let (told, written) = (tells * (turn + 1), writes * turn);
                        // What is left out then is told and written alike.
                        let sent = (told + written).min(cut);
                        let estimated = sent + tools;
                        let counted = estimated.min(context);
                        let told_there = told * sent / (told + written);
                        if let Some(only) =
                            live.look_at(Seen { estimated, told: told_there, counted }).filter(|only| only.is_sure)
                        {
                            seen = Some(only.tokens);
                            cut = only.tokens / 8 * 7 - tools;
                        }
                        stored.push((estimated, counted, told, written));
                    }
                    let again = seen_again(&stored).map(|(_, tokens)| tokens);
                    assert_eq!(again, seen, "{context} {tells} {writes} {turns}");
                    *(if seen.is_some() { &mut found } else { &mut nothing }) += 1;
                }
            }
        }
        assert!(found > 60 && nothing > 50, "{found} found, {nothing} not");
    }

    /// A history that is as long as it may be grows no more in what is sent, whatever is added to it; and who reads more than was seen was given a
    /// larger context.
    #[test]
    fn a_history_that_is_cut_here_is_no_server_that_reads_less() {
        let full: Vec<_> = (0..12).map(|turn| (20_000, 20_000, 20_000 + 900 * turn, 50 * turn)).collect();
        assert_eq!(seen_again(&full), None);
        let shown_in_part: Vec<_> =
            (0..12).map(|turn| (20_000 + 30 * turn, 20_000 + 30 * turn, 900 * turn, 50 * turn)).collect();
        assert_eq!(seen_again(&shown_in_part), None);
        let stuck =
            [(1_500, 1_400, 800, 0), (2_900, 2_048, 2_200, 0), (3_600, 2_048, 2_900, 0), (4_400, 2_048, 3_700, 0)];
        assert_eq!(seen_again(&stuck), Some((4, 2_048)));
        let mut more = stuck.to_vec();
        more.push((5_200, 5_100, 4_500, 0));
        assert_eq!(seen_again(&more), None);
    }

    #[test]
    fn counts_that_follow_what_is_sent_say_nothing() {
        for ratio in [300, 700, 1_000, 2_500] {
            let requests: Vec<(u64, u64)> = (1..20).map(|n| (n * 900, n * 900 * ratio / 1_000)).collect();
            assert!(said(&requests).iter().all(Option::is_none), "{ratio}");
        }
        // No context is so small, and nothing follows from small steps.
        assert!(said(&[(2_000, 10), (3_000, 10), (4_000, 10), (5_000, 10)]).iter().all(Option::is_none));
        assert!(said(&[(2_000, 2_000), (2_100, 2_000), (2_200, 2_000), (2_300, 2_000)]).iter().all(Option::is_none));
        // A history that was cut here is no larger one.
        assert!(said(&[(9_000, 9_000), (4_000, 4_000), (9_000, 9_000), (4_000, 4_000)]).iter().all(Option::is_none));
    }
}
