//! Whether a server reads less of a request than it is sent.
//!
//! Some servers cut a prompt to the context they were started with and answer as if they had read all of it: Ollama does (`num_ctx`, 4096
//! tokens unless somebody says otherwise), with HTTP 200 and without a word. Their count of what they read shows it: what is sent grows from
//! request to request, and the count does not. What the model wrote itself is left out of that growth, since many servers drop its thoughts from
//! earlier turns; so are images, which each server counts in a way of its own.

use ua_core::{Block, Role};
use ua_llm::ModelRequest;
use ua_store::TELLING_TOKENS;

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
