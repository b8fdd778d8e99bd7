//! The iteration a run stands in: where it began, what it used, and which part of the history its requests carry.
//!
//! Context Storage & Durability Summary §2 and §5. Everything is read off the records: the last message that begins an iteration says
//! where it began. Invariants: an iteration begins once, in the write that counts it; turns are numbered on; what an earlier iteration
//! did stays in the ledger, so an empty context forgets no key, no doubt and no question. Proved by: `crash_anywhere::iterations`,
//! `machine_tests`, the e2e tests `harness`.

use ua_core::{Message, Origin};
use ua_store::RunRecords;

/// An iteration and what it used so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IterationState {
    /// Its number in the run, from 1.
    pub number: u32,
    /// How many may begin.
    pub max: u32,
    /// Its first turn that is the run's own.
    pub first_turn: u32,
    /// Tool calls its replies asked for.
    pub tool_calls: u32,
    /// Tokens of a request beyond which it ends.
    pub context_budget: u64,
    /// What the model has to promise when the job is done.
    pub promise: Option<String>,
}

/// Why an iteration ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IterationEnd {
    /// Its next request would be larger than its context may be.
    ContextFull {
        /// Tokens of that request, as estimated.
        tokens: u64,
    },
    /// The model stopped and did not promise that the job is done.
    PromiseUnkept,
}

impl IterationEnd {
    /// In words, after "it ended because".
    pub fn in_words(&self) -> String {
        match self {
            Self::ContextFull { tokens } => {
                format!("its context was full (the next request would have {tokens} tokens)")
            }
            Self::PromiseUnkept => "the model stopped without its promise".to_owned(),
        }
    }
}

/// That a job can never be done in iterations of the size that it asks for, since what each of them begins with has so many tokens.
pub(crate) fn context_too_small(asked: u64, tokens: u64) -> String {
    format!(
        "harness.context_budget_tokens is {asked}, and the first request alone (the job, the system prompt and the tools) has about {tokens} \
         tokens: every iteration would end before it began. Raise it, or offer fewer tools"
    )
}

impl IterationState {
    /// The iteration that the records say the run stands in; `None` when its job has no harness.
    pub(crate) fn of(records: &RunRecords) -> Option<Self> {
        let run = &records.run;
        let harness = run.spec.harness.as_ref()?;
        let first_turn = context_begins(records).max(run.shared_turns() + 1);
        Some(Self {
            // The first one is counted in the write that opens its step.
            number: run.iteration_count.max(1),
            max: records.max_iterations().unwrap_or(harness.max_iterations),
            first_turn,
            tool_calls: records.calls_from(first_turn),
            context_budget: run.spec.context_budget().unwrap_or(u64::MAX),
            promise: harness.completion_promise.clone(),
        })
    }
}

/// The first turn that the context of a run holds; in a fork it may be a shared one.
pub(crate) fn context_begins(records: &RunRecords) -> u32 {
    let begun = records.messages.iter().rev().find(|record| record.message.origin == Origin::Iteration);
    begun.map_or(0, |record| record.turn) + 1
}

/// What of a history belongs to the context of its last iteration: the job, and everything from where that iteration began.
pub(crate) fn context(mut history: Vec<Message>) -> Vec<Message> {
    if let Some(begun) = history.iter().rposition(|message| message.origin == Origin::Iteration)
        && begun > 0
    {
        history.drain(1..begun);
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_the_job_and_what_came_since_its_iteration_began() {
        let said = |origin, text: &str| Message::user(origin, text);
        let texts = |history: Vec<Message>| context(history).iter().map(Message::text).collect::<Vec<_>>();
        let job = || said(Origin::Prompt, "job");
        let one = vec![job(), said(Origin::Phase, "phase"), said(Origin::Guidance, "more")];
        assert_eq!(texts(one), ["job", "phase", "more"]);
        let later = vec![
            job(),
            said(Origin::Guidance, "a"),
            said(Origin::Iteration, "2"),
            said(Origin::Guidance, "b"),
            said(Origin::Iteration, "3"),
            said(Origin::Guidance, "c"),
        ];
        assert_eq!(texts(later), ["job", "3", "c"]);
        assert_eq!(texts(Vec::new()), [""; 0]);
    }
}
