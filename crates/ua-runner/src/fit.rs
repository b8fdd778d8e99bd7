//! How a history is fitted to what its model's provider counts.
//!
//! Four bytes a token is a guess, and for numbers, for text in other scripts and for encoded data it is far too low. What the provider
//! counted for the run's earlier requests corrects it; and where the provider says that a request is too long, the history is cut to less than
//! that one had. Read off the stored requests, so that another process cuts as this one did.

use ua_llm::ModelRequest;
use ua_store::{RequestEnd, RequestRecord, RequestStatus, RunRecords, TELLING_TOKENS};

use crate::budget::Estimate;

/// Tokens from which on a request may be too long for a model: no context is smaller.
const LARGE: u64 = 2_000;
/// Thousandths: one estimated token counts as one.
const PLAIN: u64 = 1_000;
/// Thousandths beyond which nothing counts text.
const WIDEST: u64 = 8_000;
/// Steps of the scale: a cut that moves with every request would spoil the provider's prompt cache.
const STEP: u64 = 125;

/// What is known about how large requests may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// What an estimated token counts as, in thousandths; never less than one token.
    scale: u64,
    /// The most estimated tokens of history, since a longer one was refused.
    at_most: Option<u64>,
    /// The estimated tokens of the largest request that was answered; zero before the first.
    answered: u64,
}

impl Default for Fit {
    fn default() -> Self {
        Self { scale: PLAIN, at_most: None, answered: 0 }
    }
}

impl Fit {
    /// Learns from the requests of a run, of which the worst counts.
    pub(crate) fn learn_from(&mut self, records: &RunRecords) {
        let here = records.requests.iter().filter_map(RequestRecord::counted_as);
        let left_out = records.left_out.requests.iter().map(|sum| sum.counted_as);
        if let Some(worst) = here.chain(left_out).max() {
            self.note(worst);
        }
        let answered = records.requests.iter().filter(|request| request.status == RequestStatus::Actual);
        let largest = answered.map(|request| request.estimated_tokens).max();
        self.answered = self.answered.max(largest.unwrap_or_default());
    }

    /// Learns from one request that was answered.
    pub(crate) fn learn(&mut self, estimate: &Estimate, end: RequestEnd) {
        self.answered = self.answered.max(estimate.input_tokens);
        if let RequestEnd::Actual(usage) = end {
            let (estimated, counted) = (estimate.input_tokens, usage.total() - usage.output_tokens);
            if estimated >= TELLING_TOKENS {
                self.note(counted.saturating_mul(PLAIN).div_ceil(estimated));
            }
        }
    }

    /// An estimated token counted as so many thousandths.
    fn note(&mut self, told: u64) {
        self.scale = self.scale.max(told.min(WIDEST).next_multiple_of(STEP));
    }

    /// A request was too long: the next one has two thirds of its history.
    pub(crate) fn cut_below(&mut self, request: &ModelRequest, estimate: &Estimate) {
        let tools = serde_json::to_string(&request.tools).map_or(0, |json| json.len() as u64) / 4;
        let history = estimate.input_tokens.saturating_sub(tools);
        let less = (history / 3 * 2).max(1);
        self.at_most = Some(self.at_most.map_or(less, |at_most| at_most.min(less)));
    }

    /// Whether a refusal of a request of so many estimated tokens, which does not say that it is for the length, may be: the request is large
    /// and larger than any that was answered, or the refusal has a number that is about its size.
    pub(crate) fn suspects(&self, refusal: &str, tokens: u64) -> bool {
        let counted = self.counted(tokens);
        let is_largest = self.answered > 0 && tokens > self.answered && counted >= LARGE;
        let mut numbers = refusal.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
        is_largest || (counted >= TELLING_TOKENS && numbers.any(|number| (counted / 2..=counted * 2).contains(&number)))
    }

    /// The most estimated tokens of a history that may count as so many.
    pub(crate) fn history(&self, tokens: u64) -> u64 {
        let scaled = tokens.saturating_mul(PLAIN) / self.scale;
        self.at_most.map_or(scaled, |at_most| at_most.min(scaled))
    }

    /// What so many estimated tokens are likely to count as.
    pub(crate) fn counted(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.scale) / PLAIN
    }
}

#[cfg(test)]
mod tests {
    use ua_core::{Message, Origin, Usage};

    use super::*;

    fn estimate(input_tokens: u64) -> Estimate {
        Estimate { input_tokens, output_tokens: 10, price: None }
    }

    fn told(fit: &mut Fit, estimated: u64, counted: u64) {
        let usage = Usage { input_tokens: counted, output_tokens: 5, ..Usage::default() };
        fit.learn(&estimate(estimated), RequestEnd::Actual(usage));
    }

    #[test]
    fn a_history_shrinks_by_what_the_provider_counts_more_and_never_grows() {
        let mut fit = Fit::default();
        told(&mut fit, 2_000, 1_000);
        told(&mut fit, 100, 4_000);
        assert_eq!((fit.history(128_000), fit.counted(500)), (128_000, 500));
        told(&mut fit, 2_000, 4_000);
        told(&mut fit, 2_000, 2_500);
        assert_eq!((fit.history(128_000), fit.counted(500)), (64_000, 1_000));
        told(&mut fit, 1_000, u64::MAX / 2);
        assert_eq!(fit.history(128_000), 16_000);
    }

    #[test]
    fn what_was_too_long_is_cut_to_less_each_time() {
        let request = ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: vec![Message::user(Origin::Prompt, "hi")],
            tools: vec![].into(),
            max_output_tokens: 10,
            temperature_milli: None,
            seed: None,
            output_schema: None,
        };
        let mut fit = Fit::default();
        fit.cut_below(&request, &estimate(90_000));
        assert_eq!(fit.history(128_000), 60_000);
        fit.cut_below(&request, &estimate(60_000));
        assert_eq!(fit.history(128_000), 40_000);
        fit.cut_below(&request, &estimate(90_000));
        assert_eq!(fit.history(128_000), 40_000);
    }

    #[test]
    fn a_refusal_that_does_not_say_so_may_be_for_the_length_of_what_is_large() {
        let mut fit = Fit::default();
        assert!(!fit.suspects("Bad Request", 50_000), "nothing was answered yet");
        assert!(fit.suspects("\u{8f93}\u{5165} 52000 > 40000", 50_000) && !fit.suspects("no such thing: 400", 50_000));
        told(&mut fit, 50_000, 50_000);
        for (tokens, suspected) in [(50_001, true), (50_000, false), (49_000, false)] {
            assert_eq!(fit.suspects("Bad Request", tokens), suspected, "{tokens}");
        }
        let mut small = Fit::default();
        told(&mut small, 500, 500);
        assert!(!small.suspects("Bad Request", 600), "no model is too small for that");
    }
}
