//! How a history is fitted to what its model's provider counts.
//!
//! Four bytes a token is a guess, and for numbers, for text in other scripts and for encoded data it is far too low. What the provider
//! counted for the run's earlier requests corrects it; and where the provider says that a request is too long, the history is cut to less than
//! that one had, and likewise where the counts show that a server does not read all it is sent (`reading.rs`). Read off the stored requests, so that
//! another process cuts as this one did.

use ua_llm::{ModelRequest, ToolOffer};
use ua_store::{PLAIN_SCALE as PLAIN, RequestEnd, RequestRecord, RequestStatus, RunRecords, TELLING_TOKENS};

use crate::reading::{Reading, ReadsOnly, Seen, SeenBefore, seen_before};

/// Tokens from which on a request may be too long for a model: no context is smaller.
const LARGE: u64 = 2_000;
/// Thousandths beyond which nothing counts text.
const WIDEST: u64 = 8_000;
/// Steps of the scale: a cut that moves with every request would spoil the provider's prompt cache.
const STEP: u64 = 125;
/// After how many requests in a row that were too long the next ones are cut to half.
const GENTLE_CUTS: u32 = 2;
/// Tokens of a history that every model takes.
const SMALL: u64 = 1_000;

/// What is known about how large requests may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// What an estimated token counts as, in thousandths; never less than one token.
    scale: u64,
    /// The most estimated tokens of history, since a longer one was refused, or not read.
    at_most: Option<u64>,
    /// The estimated tokens of the largest request that was answered; zero before the first.
    answered: u64,
    /// How often in a row a request was too long.
    cuts: u32,
    /// How often in a row one was taken for too long that was refused without saying so.
    guesses: u32,
    /// Whether the server reads what it is sent.
    reading: Reading,
}

/// How much of a history a request may carry, in estimated tokens, system prompt included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Beyond it the middle is left out.
    pub wanted: u64,
    /// Beyond it the newest turn is shortened as well, since the model does not take more. Nothing as long as that is not known.
    pub taken: Option<u64>,
}

impl Default for Fit {
    fn default() -> Self {
        Self { scale: PLAIN, at_most: None, answered: 0, cuts: 0, guesses: 0, reading: Reading::default() }
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
        let largest = answered.map(RequestRecord::plain_tokens).max();
        self.answered = self.answered.max(largest.unwrap_or_default());
    }

    /// Learns from one request of so many estimated tokens that was answered. Here and below, tokens are those of the estimator alone: what is
    /// learnt from them does not depend on what was known before.
    pub(crate) fn learn(&mut self, tokens: u64, end: RequestEnd) {
        self.answered = self.answered.max(tokens);
        (self.cuts, self.guesses) = (0, 0);
        if let RequestEnd::Actual(usage) = end {
            let counted = usage.total() - usage.output_tokens;
            if tokens >= TELLING_TOKENS {
                self.note(counted.saturating_mul(PLAIN).div_ceil(tokens));
            }
        }
    }

    /// Looks whether the server read all of a request of so many estimated tokens that was answered. Where it surely did not, what it reads is
    /// the context from now on: who cuts a history here says what is left out, and keeps the job.
    pub(crate) fn look_at(&mut self, request: &ModelRequest, tokens: u64, end: RequestEnd) -> Option<ReadsOnly> {
        let RequestEnd::Actual(usage) = end else { return None };
        let only = self.reading.look_at(Seen::of(request, tokens, usage.input_total()))?;
        if only.is_sure {
            self.keep_to(only.tokens, &request.tools);
        }
        Some(only)
    }

    /// Finds again what an earlier process saw of the server in the requests of a run, whose next one offers these tools; something is returned where
    /// this process did not know it. It cuts as that one did, once what the requests counted is [learnt](Self::learn_from).
    pub(crate) fn look_back(&mut self, records: &RunRecords, tools: &[ToolOffer]) -> Option<SeenBefore> {
        if self.reading.is_sure() {
            return None;
        }
        let (seen, reading) = seen_before(records);
        self.reading = reading;
        if let Some(seen) = seen {
            self.keep_to(seen.tokens, tools);
        }
        seen
    }

    /// A server reads so many tokens, as it counts them, tools included: that is the context from now on.
    fn keep_to(&mut self, counted: u64, tools: &[ToolOffer]) {
        let estimated = counted.saturating_mul(PLAIN) / self.scale;
        // An eighth is for the reply, and for what the estimate is wrong by.
        let history = (estimated / 8 * 7).saturating_sub(tokens_of(tools));
        self.keep_below(history.max(estimated / 4));
    }

    /// An estimated token counted as so many thousandths.
    fn note(&mut self, told: u64) {
        self.scale = self.scale.max(told.min(WIDEST).next_multiple_of(STEP));
    }

    /// A request was too long: the next one has two thirds of its history, and after a few such half of it.
    pub(crate) fn cut_below(&mut self, request: &ModelRequest, tokens: u64) {
        let history = tokens.saturating_sub(tokens_of(&request.tools));
        let less = if self.cuts < GENTLE_CUTS { history / 3 * 2 } else { history / 2 };
        self.cuts = self.cuts.saturating_add(1);
        self.keep_below(less);
    }

    /// A request was perhaps too long: the next one has two thirds of its history, and the one after it no more than what was answered before.
    pub(crate) fn guess_below(&mut self, request: &ModelRequest, tokens: u64) {
        let tools = tokens_of(&request.tools);
        let less = tokens.saturating_sub(tools) / 3 * 2;
        let answered = self.answered.saturating_sub(tools).max(SMALL);
        let less = if self.guesses == 0 || self.answered == 0 { less } else { less.min(answered) };
        self.guesses = self.guesses.saturating_add(1);
        self.keep_below(less);
    }

    fn keep_below(&mut self, tokens: u64) {
        let less = tokens.max(1);
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

    /// How much a request may carry of a history of which the job wants so many tokens at most, with a model that takes so many, where that is
    /// known.
    pub(crate) fn limits(&self, wanted: u64, known: Option<u64>) -> Limits {
        let wanted = self.history(known.map_or(wanted, |known| known.min(wanted)));
        Limits { wanted, taken: known.map(|known| self.history(known)).or(self.at_most) }
    }

    /// Whether that limit is so low because a longer request was refused, or not read: nobody has set it, and the model is not known to have it.
    pub(crate) fn is_cut(&self, wanted: u64, known: Option<u64>) -> bool {
        let uncut = Self { at_most: None, ..*self }.limits(wanted, known).wanted;
        self.at_most.is_some_and(|at_most| at_most < uncut)
    }

    /// What so many estimated tokens are likely to count as.
    pub(crate) fn counted(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.scale) / PLAIN
    }

    /// What an estimated token counts as, in thousandths. The worst that was counted: whoever reserves by it reserves enough.
    pub(crate) fn scale(&self) -> u64 {
        self.scale
    }
}

/// What tools cost that a request offers.
fn tokens_of(tools: &[ToolOffer]) -> u64 {
    serde_json::to_string(tools).map_or(0, |json| json.len() as u64) / 4
}

#[cfg(test)]
mod tests {
    use ua_core::{Message, Origin, Usage};
    use ua_evidence::testing::Story;

    use super::*;
    use crate::budget::{Estimate, Limits as Budgets, Spent};

    fn request() -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: vec![Message::user(Origin::Prompt, "hi")],
            tools: vec![].into(),
            max_output_tokens: 10,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    fn told(fit: &mut Fit, estimated: u64, counted: u64) {
        let usage = Usage { input_tokens: counted, output_tokens: 5, ..Usage::default() };
        fit.learn(estimated, RequestEnd::Actual(usage));
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

    /// What a server seems to read is its context, and what is sent stays below it.
    #[test]
    fn what_a_server_reads_is_taken_for_its_context() {
        let mut fit = Fit::default();
        let sent = |bytes: usize| ModelRequest {
            messages: vec![Message::user(Origin::Prompt, "x".repeat(bytes))],
            ..request()
        };
        let mut look = |tokens: usize, counted: u64| {
            let usage = Usage { input_tokens: counted, output_tokens: 5, ..Usage::default() };
            let tokens_sent = u64::try_from(tokens).unwrap();
            fit.look_at(&sent(tokens * 4), tokens_sent, RequestEnd::Actual(usage));
            fit.history(128_000)
        };
        assert_eq!([look(3_500, 3_500), look(4_500, 4_096), look(5_300, 4_096)], [128_000; 3]);
        assert_eq!(look(6_300, 4_096), 3_584);
        assert_eq!(look(3_500, 3_500), 3_584, "it stays");
        assert!(fit.is_cut(128_000, None));
    }

    /// Over ratios of the provider's count to the estimate × sizes of the first request × how fast the history grows: a run that is stopped by
    /// its tokens never used more than they are but for what its last request counted more than was known, and nothing once that is known; and
    /// another process that reads the same requests reserves the same.
    #[test]
    fn a_budget_of_tokens_holds_whatever_the_provider_counts() {
        let (max_tokens, reply) = (50_000, 200);
        let limits = Budgets { max_tokens: Some(max_tokens), ..Budgets::default() };
        let mut stopped = 0;
        for ratio in (500..=WIDEST).step_by(250) {
            for first in [100, 900, 1_000, 1_001, 4_100] {
                for grows in [0, 77, 900] {
                    let (mut fit, mut spent, mut plain) = (Fit::default(), Spent::default(), first);
                    let mut excess = 0;
                    let mut rows = Vec::new();
                    loop {
                        let scale = fit.scale();
                        let estimate = Estimate { input_tokens: fit.counted(plain), output_tokens: reply, price: None };
                        assert!(estimate.input_tokens >= plain, "never below the plain estimate");
                        if limits.admit(&spent, &estimate).is_err() {
                            break;
                        }
                        let counted = plain * ratio / PLAIN;
                        excess = counted.saturating_sub(estimate.input_tokens);
                        let is_known = scale >= ratio;
                        assert!(!is_known || excess == 0, "{ratio} {first} {grows}: {excess} at {scale}");
                        let usage = Usage { input_tokens: counted, output_tokens: reply, ..Usage::default() };
                        spent.add(estimate.charge(RequestEnd::Actual(usage)));
                        fit.learn(plain, RequestEnd::Actual(usage));
                        rows.push((estimate.input_tokens, scale, plain, usage));
                        let (at_least, learnt) = (ratio.max(PLAIN), fit.scale());
                        assert!(plain < TELLING_TOKENS || (at_least..at_least + STEP).contains(&learnt), "{learnt}");
                        plain += grows;
                    }
                    stopped += 1;
                    assert!(spent.tokens <= max_tokens + excess, "{ratio} {first} {grows}: {} used", spent.tokens);
                    // What is stored says what was estimated, and what the provider counted for it.
                    let mut story = Story::new(r#"{"objective": "x"}"#);
                    story.asks("says nothing", &[]);
                    let row = story.records.requests[0].clone();
                    story.records.requests = rows
                        .iter()
                        .map(|(estimated_tokens, scale, _, usage)| RequestRecord {
                            estimator: ua_store::scaled_estimator("e/1", *scale),
                            estimated_tokens: *estimated_tokens,
                            status: RequestStatus::Actual,
                            usage: *usage,
                            ..row.clone()
                        })
                        .collect();
                    for (stored, (.., plain, _)) in story.records.requests.iter().zip(&rows) {
                        assert_eq!(stored.plain_tokens(), *plain, "{ratio} {first} {grows}");
                    }
                    let mut resumed = Fit::default();
                    resumed.learn_from(&story.records);
                    assert_eq!((resumed.scale(), resumed.answered), (fit.scale(), fit.answered), "{ratio} {first}");
                }
            }
        }
        assert!(stopped > 400, "{stopped} runs");
    }

    #[test]
    fn what_was_too_long_is_cut_to_less_each_time() {
        let request = request();
        let mut fit = Fit::default();
        fit.cut_below(&request, 90_000);
        assert_eq!(fit.history(128_000), 60_000);
        fit.cut_below(&request, 60_000);
        assert_eq!(fit.history(128_000), 40_000);
        fit.cut_below(&request, 90_000);
        assert_eq!(fit.history(128_000), 40_000);
        // From then on it is halved, until something is answered.
        fit.cut_below(&request, 40_000);
        assert_eq!(fit.history(128_000), 20_000);
        told(&mut fit, 20_000, 20_000);
        fit.cut_below(&request, 30_000);
        assert_eq!(fit.history(128_000), 20_000);
        fit.cut_below(&request, 20_000);
        assert_eq!(fit.history(128_000), 13_332);
    }

    #[test]
    fn a_second_guess_is_no_more_than_what_was_answered() {
        let (mut fit, request) = (Fit::default(), request());
        told(&mut fit, 3_000, 3_000);
        fit.guess_below(&request, 90_000);
        assert_eq!(fit.history(128_000), 60_000);
        fit.guess_below(&request, 60_000);
        assert_eq!(fit.history(128_000), 3_000);
        let mut nothing = Fit::default();
        nothing.guess_below(&request, 90_000);
        nothing.guess_below(&request, 60_000);
        assert_eq!(nothing.history(128_000), 40_000);
    }

    #[test]
    fn what_a_model_takes_is_known_by_its_name_or_by_a_refusal() {
        let mut fit = Fit::default();
        assert_eq!(fit.limits(128_000, None), Limits { wanted: 128_000, taken: None });
        assert_eq!(fit.limits(128_000, Some(800_000)), Limits { wanted: 128_000, taken: Some(800_000) });
        assert_eq!(fit.limits(128_000, Some(6_000)), Limits { wanted: 6_000, taken: Some(6_000) });
        told(&mut fit, 2_000, 4_000);
        assert_eq!(fit.limits(128_000, Some(6_000)), Limits { wanted: 3_000, taken: Some(3_000) });
        assert!(!fit.is_cut(128_000, Some(6_000)), "it is known");
        fit.cut_below(&request(), 3_000);
        assert_eq!(fit.limits(128_000, Some(6_000)), Limits { wanted: 2_000, taken: Some(2_000) });
        assert_eq!(fit.limits(128_000, None), Limits { wanted: 2_000, taken: Some(2_000) });
        assert!(fit.is_cut(128_000, Some(6_000)) && fit.is_cut(128_000, None) && !fit.is_cut(2_000, None));
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
