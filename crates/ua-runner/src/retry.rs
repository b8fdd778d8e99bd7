//! When the model is asked again, and how long the run waits before.
//!
//! Granular Execution PRD §6: each try is a request of its own, with its own reservation. This is the only retry layer
//! between the run and the model.

use std::time::Duration;

use ua_core::{AskedWait, Audience, Timestamp, WaitBudgets, span_in_words};
use ua_llm::LlmError;
use ua_store::RequestEnd;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "what is known of a failure, each for itself")]
pub struct ThinkFailure {
    /// In a few words.
    pub why: String,
    /// In words, with what to do.
    pub message: String,
    /// How the request is charged. Whatever is charged is said to be, and counts for how soon the next one follows ([`Tries::charged`]).
    pub end: RequestEnd,
    /// Whether another request may bring a reply.
    pub may_retry: bool,
    /// Whether the request has more tokens than the model takes.
    pub is_too_long: bool,
    /// Whether it may have, though the refusal does not say so: the request was larger than any that was taken, or the refusal has its size.
    pub may_be_too_long: bool,
    /// Whether it was for the longest reply that the request asks for, or for the form of its result. The next request asks for less.
    pub asks_for_less: bool,
    /// The tool that the provider does not take. The next request leaves it out.
    pub without: Option<String>,
    /// Whether images of tools may be what the provider does not take. The next request leaves out those that this one had.
    pub without_images: bool,
    /// Whether, and why, the same request brings the same refusal.
    pub refused: Option<Refusal>,
    /// Whether what answered is no API of models: a page, or JSON of something else.
    pub is_foreign: bool,
    /// What only a person can correct, if that is why.
    pub correction: Option<Correction>,
    /// How long the provider asks to wait before.
    pub retry_after: Option<Duration>,
    /// Within which time a limit of the provider is whole again, where it asks for nothing. It may be sooner: no run ends for it.
    pub until_reset: Option<Duration>,
    /// When it failed.
    pub at: Timestamp,
    /// How long it took to fail.
    pub took: Duration,
    /// What is left of the run's time; `None` where that has no limit.
    pub time_left: Option<Duration>,
    /// Random bits for the wait before the next request.
    pub random: u64,
}

/// Why the same request brings the same refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The provider knows no model of this name, and a run keeps its model.
    UnknownModel,
    /// Something else about the request, or about who asks.
    Request,
}

/// What a person has to correct at the provider before the same request may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// It refused the credentials.
    Credentials,
    /// Their account cannot pay.
    Account,
}

impl Correction {
    /// What an error of the provider says about it.
    pub fn of(error: &LlmError) -> Option<Self> {
        let is_unpaid = matches!(error, LlmError::Unpaid { .. });
        let is_refused = matches!(error, LlmError::Unauthorized { .. });
        is_unpaid.then_some(Self::Account).or(is_refused.then_some(Self::Credentials))
    }

    /// What is asked of whoever answers, as a sentence.
    pub(crate) fn before_an_answer(self) -> &'static str {
        match self {
            Self::Credentials => "Correct them before you answer.",
            Self::Account => "Add credit there, or raise its limit, before you answer.",
        }
    }
}

impl Refusal {
    /// What an error of the provider says about the same request made again; `None` when that may be answered.
    pub fn of(error: &LlmError) -> Option<Self> {
        if matches!(error, LlmError::NotFound { .. }) {
            return Some(Self::UnknownModel);
        }
        error.is_final().then_some(Self::Request)
    }
}

/// Requests for one reply that brought none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tries {
    /// How many.
    pub attempts: u32,
    /// Of these, how many were charged: their replies broke off, or may have begun.
    pub charged: u32,
    /// How many were answered by something that is no API of models.
    pub foreign: u32,
    /// How often the history was cut harder because the request had too many tokens.
    pub cuts: u32,
    /// How often it was cut on a guess.
    pub guesses: u32,
    /// How many tools were left out because the provider does not take them.
    pub left_out: u32,
    /// How long there has been no reply since the first of them failed: the waits between them, and what they took themselves.
    pub waited: Duration,
}

impl Tries {
    /// One more.
    #[must_use]
    pub(crate) fn and(mut self, failure: &ThinkFailure) -> Self {
        if self.attempts > 0 {
            self.waited = self.waited.saturating_add(failure.took);
        }
        self.attempts = self.attempts.saturating_add(1);
        self.charged = self.charged.saturating_add(failure.end.is_charged().into());
        self.foreign = self.foreign.saturating_add(failure.is_foreign.into());
        self
    }

    /// One more, of a tool server that is away: it took so long to find out.
    #[must_use]
    pub(crate) fn and_away(mut self, took: Duration) -> Self {
        if self.attempts > 0 {
            self.waited = self.waited.saturating_add(took);
        }
        self.attempts = self.attempts.saturating_add(1);
        self
    }
}

/// How patiently the model is asked for one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How long is waited for one reply, from the first failure on; `None` for as long as the contract says
    /// (`budgets.max_provider_wait_minutes`).
    pub max_wait: Option<Duration>,
    /// After how many requests for one reply that were charged, since their replies had begun or may have, the longest wait stands before each
    /// further one.
    pub slow_after: u32,
    /// The longest wait before the second request; doubled for each one after it.
    pub base_delay: Duration,
    /// The longest wait that doubling leads to.
    pub max_delay: Duration,
}

/// How long is waited where nobody says it.
const PATIENCE: Duration = Duration::from_mins(30);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_wait: None, slow_after: 5, base_delay: Duration::from_secs(1), max_delay: Duration::from_mins(2) }
    }
}

/// What follows a try that came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    /// Another one, after so long a wait.
    After(Duration),
    /// None: it would not help, or the patience is over.
    Never,
    /// None: the wait before it is longer than the run may wait.
    TooLong(TooLong),
}

/// A wait that is longer than the run may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    /// How long it would be.
    pub wait: Duration,
    /// The same as the provider asks for it, if it does.
    pub asked: Option<AskedWait>,
    /// What is left of the patience, where that is too little for it.
    pub patience_left: Option<Duration>,
    /// Whether all of the patience, which the next process has again, is too little as well.
    pub is_beyond_patience: bool,
    /// What is left of the run's time, where that is too little for it.
    pub time_left: Option<Duration>,
}

impl TooLong {
    /// The budgets that have the run wait so long, and work for as long afterwards as it could now.
    pub fn raised(&self) -> WaitBudgets {
        // A minute for what is rounded away, and for what a request takes.
        let minutes = self.wait.as_secs().div_ceil(60).saturating_add(1);
        WaitBudgets {
            max_provider_wait_minutes: self.is_beyond_patience.then_some(minutes),
            more_wallclock_minutes: self.time_left.is_some().then_some(minutes),
        }
    }

    /// That it is too long, by which bound, and what lifts that. Of a sub-agent's run it is the budgets of the run at the top that do, which is the
    /// run that is resumed, and stops with the same words.
    pub fn in_words(&self, audience: Audience) -> String {
        let begin = match self.asked {
            Some(asked) => asked.to_string(),
            None => format!("The next try would come after a wait of {}", span_in_words(self.wait)),
        };
        let patience = self.patience_left.map(|left| match left {
            Duration::ZERO => "waits no longer".to_owned(),
            left => format!("would wait for {} more", span_in_words(left)),
        });
        let time = self.time_left.map(|left| match left {
            Duration::ZERO => "has no time left".to_owned(),
            left => format!("has {} of its time left", span_in_words(left)),
        });
        let bounds: Vec<String> = patience.into_iter().chain(time).collect();
        let raised = Some(self.raised()).filter(|raised| !raised.is_empty());
        let then = match (raised, audience) {
            (None, Audience::Terminal) => "Resume it later.".to_owned(),
            (None, Audience::Program) => "Run it again later.".to_owned(),
            (Some(raised), Audience::Terminal) => format!("Resume it later, or have it wait: {raised}"),
            (Some(raised), Audience::Program) => {
                format!("Run it again later, or have it wait: {}", raised.for_program())
            }
        };
        format!("{begin}, and the run {}. {then}", bounds.join(" and "))
    }
}

impl RetryPolicy {
    /// The same, but no more patient than `budget` where it does not say how patient it is.
    #[must_use]
    pub fn within(self, budget: Duration) -> Self {
        Self { max_wait: self.max_wait.or(Some(budget)), ..self }
    }

    /// How long may still be waited.
    pub fn left(&self, tries: &Tries) -> Duration {
        self.max_wait.unwrap_or(PATIENCE).saturating_sub(tries.waited)
    }

    /// Whether, and after which wait, another request follows so many, the failed one included.
    ///
    /// The failure's random bits decide where in the upper half of the backoff the wait lies, so that many runs do not
    /// return at once.
    pub fn after(&self, tries: &Tries, failure: &ThinkFailure) -> NextTry {
        if !failure.may_retry {
            return NextTry::Never;
        }
        let asked = failure.retry_after.filter(|wait| !wait.is_zero());
        let asked = asked.map(|wait| AskedWait { wait, until: failure.at.plus(wait) });
        match self.next(tries, asked, failure.random, failure.time_left) {
            NextTry::After(wait) => {
                // What nobody asked for is waited as far as the patience lasts, and then the provider is asked; and where the run's time is over
                // before, the provider is asked sooner.
                let reset = failure.until_reset.unwrap_or_default().min(self.left(tries));
                let fits = failure.time_left.is_none_or(|left| reset < left);
                NextTry::After(if fits { wait.max(reset) } else { wait })
            }
            other @ (NextTry::Never | NextTry::TooLong(_)) => other,
        }
    }

    /// Whether, and after which wait, a tool server that is away is tried again, which costs nobody anything.
    pub fn after_server(&self, tries: &Tries, random: u64, time_left: Option<Duration>) -> NextTry {
        self.next(tries, None, random, time_left)
    }

    /// The one place that decides about a wait: one is begun only if it is over before both the patience and the run's time are.
    fn next(&self, tries: &Tries, asked: Option<AskedWait>, random: u64, time_left: Option<Duration>) -> NextTry {
        let left = self.left(tries);
        if tries.attempts == 0 || (left.is_zero() && asked.is_none()) {
            return NextTry::Never;
        }
        let wait = self.backoff(tries, random).min(left).max(asked.map_or(Duration::ZERO, |asked| asked.wait));
        let too_long = TooLong {
            wait,
            asked: asked.filter(|asked| asked.wait == wait),
            patience_left: Some(left).filter(|left| wait > *left),
            is_beyond_patience: wait > self.max_wait.unwrap_or(PATIENCE),
            // Whoever waits until the time is over asks nobody any more.
            time_left: time_left.filter(|left| wait >= *left),
        };
        if too_long.patience_left.is_some() || too_long.time_left.is_some() {
            return NextTry::TooLong(too_long);
        }
        NextTry::After(wait)
    }

    /// How long to wait where nobody asks for anything.
    fn backoff(&self, tries: &Tries, random: u64) -> Duration {
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(tries.attempts - 1).unwrap_or(u32::MAX));
        // An outage is outlived whatever it looks like; one that may cost a reply each time is asked about rarely.
        let backoff = if tries.charged >= self.slow_after { self.max_delay } else { doubled.min(self.max_delay) };
        let half = u64::try_from(backoff.as_millis() / 2).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(random % half.saturating_add(1));
        backoff / 2 + jitter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(may_retry: bool, retry_after: Option<u64>, random: u64) -> ThinkFailure {
        ThinkFailure {
            why: "busy".into(),
            message: "busy".into(),
            end: RequestEnd::Zero,
            may_retry,
            is_too_long: false,
            may_be_too_long: false,
            at: Timestamp::from_millis(0),
            took: Duration::ZERO,
            time_left: None,
            asks_for_less: false,
            without: None,
            without_images: false,
            refused: None,
            is_foreign: false,
            correction: None,
            retry_after: retry_after.map(Duration::from_secs),
            until_reset: None,
            random,
        }
    }

    /// The wait before the next request, if there is one.
    fn wait_after(policy: &RetryPolicy, tries: &Tries, failure: &ThinkFailure) -> Option<Duration> {
        match policy.after(tries, failure) {
            NextTry::After(wait) => Some(wait),
            NextTry::Never | NextTry::TooLong(_) => None,
        }
    }

    fn after(attempts: u32, waited: u64) -> Tries {
        Tries { attempts, waited: Duration::from_secs(waited), ..Tries::default() }
    }

    #[test]
    fn only_failures_that_may_pass_are_repeated_for_as_long_as_the_patience_lasts() {
        let policy = RetryPolicy::default();
        assert_eq!(wait_after(&policy, &after(1, 0), &failure(false, None, 0)), None);
        assert_eq!(wait_after(&policy, &after(1, 0), &failure(true, None, 0)), Some(Duration::from_millis(500)));
        assert_eq!(wait_after(&policy, &after(20, 1_799), &failure(true, None, 0)), Some(Duration::from_secs(1)));
        assert_eq!(wait_after(&policy, &after(20, 1_800), &failure(true, None, 0)), None);
        let hasty = policy.within(Duration::ZERO);
        assert_eq!(wait_after(&hasty, &after(1, 0), &failure(true, None, 0)), None);
        let own = RetryPolicy { max_wait: Some(Duration::from_secs(5)), ..policy }.within(Duration::from_hours(1));
        assert_eq!(own.left(&after(1, 0)), Duration::from_secs(5));
    }

    /// Half an hour of any outage is outlived. One that may be billed each time is asked about five times at once, and then rarely; what a request
    /// takes to fail is a part of the time.
    #[test]
    fn an_outage_is_outlived_whatever_it_looks_like_and_what_may_be_billed_is_made_rarely() {
        let policy = RetryPolicy::default();
        for (is_charged, took, at_least, at_most) in
            [(false, 0, 15, 40), (true, 0, 15, 40), (true, 60, 8, 21), (true, 300, 5, 7), (true, 3_600, 2, 2)]
        {
            for random in [0, u64::MAX] {
                let took = Duration::from_secs(took);
                let end = if is_charged { RequestEnd::Baseline } else { RequestEnd::Refused };
                let failed = ThinkFailure { end, took, ..failure(true, None, random) };
                let mut tries = Tries::default();
                let mut passed = Duration::ZERO;
                loop {
                    passed += if tries.attempts > 0 { took } else { Duration::ZERO };
                    tries = tries.and(&failed);
                    let Some(wait) = wait_after(&policy, &tries, &failed) else { break };
                    assert!(
                        tries.charged < 5 || wait >= Duration::from_mins(1) || policy.left(&tries) <= wait,
                        "{wait:?}"
                    );
                    tries.waited += wait;
                    passed += wait;
                }
                assert!(passed >= Duration::from_mins(30), "{failed:?}: {passed:?}");
                assert!((at_least..=at_most).contains(&tries.attempts), "{failed:?}: {tries:?}");
            }
        }
    }

    #[test]
    fn a_wait_beyond_the_patience_is_not_waited() {
        let policy = RetryPolicy::default();
        assert_eq!(wait_after(&policy, &after(1, 0), &failure(true, Some(1_800), 0)), Some(Duration::from_mins(30)));
        assert_eq!(wait_after(&policy, &after(1, 0), &failure(true, Some(1_801), 0)), None);
        assert_eq!(wait_after(&policy, &after(2, 1_000), &failure(true, Some(801), 0)), None);
    }

    /// When a limit is whole again is no demand, and is waited for with what is left of the patience.
    #[test]
    fn a_limit_that_is_whole_again_later_than_the_patience_lasts_ends_no_run() {
        let minute = RetryPolicy::default().within(Duration::from_mins(1));
        let limited = |span| ThinkFailure { until_reset: Some(Duration::from_secs(span)), ..failure(true, None, 0) };
        let wait = |waited, span| wait_after(&minute, &after(1, waited), &limited(span)).map(|wait| wait.as_secs());
        assert_eq!((wait(0, 20), wait(0, 120), wait(50, 120)), (Some(20), Some(60), Some(10)));
        assert_eq!(wait(60, 120), None, "the patience is over");
        assert_eq!(wait_after(&minute, &after(1, 0), &failure(true, Some(120), 0)), None, "a demand is none to be cut");
    }

    /// Patience × time × what the provider asks for: a wait is begun only where it is over before both, and what is said to lift the bound does.
    #[test]
    fn a_wait_that_does_not_fit_is_not_begun_and_its_budgets_are_named() {
        for (asked, patience, time) in [
            (Some(3_600), 30, 90),
            (Some(3_600), 120, 30),
            (Some(3_600), 30, 30),
            (Some(3_600), 60, 60),
            (Some(1_800), 30, 31),
            (Some(59), 1, 1),
            (Some(60), 1, 1),
            (None, 30, 0),
            (None, 30, 1),
        ] {
            let policy = RetryPolicy::default().within(Duration::from_mins(patience));
            let failed = |time_left| ThinkFailure { time_left: Some(time_left), ..failure(true, asked, 0) };
            let time_left = Duration::from_mins(time);
            let next = policy.after(&after(1, 0), &failed(time_left));
            let fits = asked.unwrap_or(1) <= patience * 60 && asked.unwrap_or(1) < time * 60;
            let what = format!("{asked:?} {patience} {time}: {next:?}");
            let NextTry::TooLong(too_long) = next else {
                assert!(fits && matches!(next, NextTry::After(wait) if wait < time_left), "{what}");
                continue;
            };
            assert!(!fits, "{what}");
            let raised = too_long.raised();
            let words = too_long.in_words(Audience::Terminal);
            assert_eq!(WaitBudgets::read(&words), Some(raised), "{words}");
            let until = asked.map(|asked| Timestamp::from_millis(0).plus(Duration::from_secs(asked)));
            assert_eq!(AskedWait::read(&words), until.filter(|_| too_long.asked.is_some()), "{words}");
            assert_eq!(too_long.asked.is_some(), asked.is_some(), "{words}");
            assert_eq!(raised.max_provider_wait_minutes.is_some(), asked.is_some_and(|asked| asked > patience * 60));
            assert_eq!(raised.more_wallclock_minutes.is_some(), asked.unwrap_or(1) >= time * 60, "{what}");
            let patience = raised.max_provider_wait_minutes.unwrap_or(patience);
            let policy = RetryPolicy::default().within(Duration::from_mins(patience));
            let time_left = time_left + Duration::from_mins(raised.more_wallclock_minutes.unwrap_or(0));
            let again = policy.after(&after(1, 0), &failed(time_left));
            assert!(matches!(again, NextTry::After(_)), "{what}: with {raised:?}, {again:?}");
        }
    }

    /// What was waited already is no reason to allow more: the next process is as patient as this one was.
    #[test]
    fn what_the_next_process_waits_anyway_needs_no_other_budget() {
        let policy = RetryPolicy::default();
        let NextTry::TooLong(too_long) = policy.after(&after(3, 1_000), &failure(true, Some(900), 0)) else {
            panic!("800 s are left")
        };
        assert!(too_long.raised().is_empty(), "{too_long:?}");
        assert_eq!(
            too_long.in_words(Audience::Terminal),
            "It asks for a wait of 15 min (until 1970-01-01T00:15:00.000Z), and the run would wait for 13 min more. Resume it later."
        );
    }

    /// When a limit is whole again is no demand: with less time than that, the provider is asked sooner.
    #[test]
    fn a_limit_that_is_whole_after_the_runs_time_is_asked_about_before() {
        let policy = RetryPolicy::default();
        let limited = |left| ThinkFailure {
            until_reset: Some(Duration::from_secs(100)),
            time_left: Some(Duration::from_secs(left)),
            ..failure(true, None, 0)
        };
        let wait = |left| wait_after(&policy, &after(1, 0), &limited(left));
        assert_eq!((wait(101), wait(100)), (Some(Duration::from_secs(100)), Some(Duration::from_millis(500))));
    }

    #[test]
    fn every_wait_lies_in_the_upper_half_of_the_backoff() {
        let policy = RetryPolicy::default();
        for attempt in 1_u32..40 {
            for random in [0, 1, 249, 499, 500, 14_999, 123_456_789, u64::MAX] {
                let backoff = Duration::from_secs(1 << (attempt - 1).min(7)).min(Duration::from_mins(2));
                let wait = wait_after(&policy, &after(attempt, 0), &failure(true, None, random)).unwrap();
                assert!(wait >= backoff / 2 && wait <= backoff, "attempt {attempt}: {wait:?} of {backoff:?}");
            }
        }
    }
}
