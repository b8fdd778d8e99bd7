//! What `effects.log` is to a database: a line for each attempt that is not simply done again, for what came of it and for each word of a
//! person, which a restored copy does not take back.
//!
//! The check before a run is driven (`PastKnown` of the runner) and what a person accepts (`ua_runner::accept_forgotten`) ask the store, over
//! `Store::forgotten`. The simulation's stores (`InRounds`) ask here: the log is modelled from its source, in one place, for both stores. What is left
//! out: where attempts went, lines that a death between commit and append loses, cut lines, and lines of older versions, which do not say whose
//! family they are of.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ua_core::{CallId, CallStatus, QuestionId, RunId, Timestamp};
use ua_store::{
    AttemptRecord, CallRecord, Forgotten, KnownBy, LedgerStore, Lost, QuestionsOf, RunRecord, RunStore, Store,
    StoreError, rules::made_by, stored_name,
};

use super::locked;

/// The log.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The attempts of each run, and the first run of its lineage.
    lines: Mutex<BTreeMap<RunId, Lines>>,
    /// What a person accepted of it: it stops nobody any more, and is known all the same.
    accepted: Mutex<BTreeMap<(CallId, u32), Forgotten>>,
    /// A broken rule: what another run of the family sent counts for nothing.
    looks_at_one_run: bool,
    /// A broken rule: what was accepted is not known any more.
    forgets_the_accepted: bool,
}

#[derive(Debug, Clone, Default)]
struct Lines {
    root: Option<RunId>,
    /// By call and number, whether it had come to an end, and its line.
    attempts: BTreeMap<(CallId, u32), (bool, Forgotten)>,
    /// The questions that were answered.
    answered: BTreeMap<QuestionId, Forgotten>,
    cancelled: Option<Forgotten>,
}

/// The line of an attempt as the log has it last.
fn line(call: &CallRecord, attempt: &AttemptRecord) -> Forgotten {
    let newest = attempt.attempt == call.attempt;
    let status = match attempt.outcome.as_deref() {
        _ if newest => call.status,
        Some("not_sent") => CallStatus::FailedDefinite,
        _ => CallStatus::Unknown,
    };
    Forgotten {
        at: attempt.ended_at.unwrap_or(attempt.started_at).to_string(),
        first_at: Some(attempt.started_at.to_string()),
        is_from_its_start: true,
        args_hash: Some(call.args_hash.to_hex()),
        root: Some(call.root_run_id.to_string()),
        run_id: call.run_id.to_string(),
        tool_call_id: Some(call.call_id.to_string()),
        attempt: attempt.attempt,
        tool: call.name.raw.clone(),
        idempotency_key: call.idempotency_key.as_ref().map(|key| key.as_str().to_owned()),
        scope: call.scope.as_ref().map(|scope| scope.as_str().to_owned()),
        status: status.as_str().to_owned(),
        found_by: Some(made_by(attempt).map_or_else(|| call.names_if_sent(), |(of, _)| of.found_by)),
        external_correlation_id: call.external_correlation_id.clone().filter(|_| newest),
        resolution: call.resolution.filter(|_| newest).map(|resolution| resolution.as_str().to_owned()),
        correction: call.correction.clone().filter(|_| newest),
        ..Forgotten::default()
    }
}

/// The line of a word.
fn said(run: &RunRecord, at: Timestamp, word: String, question: Option<&QuestionId>) -> Forgotten {
    Forgotten {
        at: at.to_string(),
        root: Some(run.root_run_id.to_string()),
        run_id: run.run_id.to_string(),
        word: Some(word),
        question_id: question.map(ToString::to_string),
        ..Forgotten::default()
    }
}

fn has_ended(call: &CallRecord) -> bool {
    !matches!(call.status, CallStatus::Running | CallStatus::Unknown)
}

/// Whether a person put the record right after what the store has of it was stored.
fn lacks_the_word(stored: &CallRecord, known: &Forgotten) -> bool {
    let word = known.correction.as_ref();
    word.is_some_and(|word| stored.correction.as_ref().is_none_or(|stored| stored.at < word.at))
}

impl Mirror {
    pub(super) fn new(looks_at_one_run: bool, forgets_the_accepted: bool) -> Self {
        Self { looks_at_one_run, forgets_the_accepted, ..Self::default() }
    }

    /// Has everything that is stored now, as the log has it from the commits.
    pub(super) async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        for run in store.runs(u32::MAX).await? {
            let mut attempts = Vec::new();
            for call in store.calls(&run.run_id, None).await? {
                if !call.policy.is_kept_outside() {
                    continue;
                }
                for attempt in store.attempts(&call.call_id).await? {
                    let has_ended = attempt.attempt < call.attempt || has_ended(&call);
                    attempts.push(((call.call_id.clone(), attempt.attempt), (has_ended, line(&call, &attempt))));
                }
            }
            let questions = store.questions_of(QuestionsOf::Run(run.run_id.clone())).await?;
            let answered = questions.into_iter().filter_map(|question| {
                let answer = question.answer.as_ref()?;
                let line = said(
                    &run,
                    answer.answered_at,
                    stored_name(&answer.choice).to_string(),
                    Some(&question.question_id),
                );
                Some((question.question_id, line))
            });
            let answered: Vec<_> = answered.collect();
            let mut lines = locked(&self.lines);
            let of_run = lines.entry(run.run_id.clone()).or_default();
            of_run.root = Some(run.root_run_id.clone());
            of_run.attempts.extend(attempts);
            of_run.answered.extend(answered);
            if let Some(at) = run.cancel_requested_at {
                of_run.cancelled = Some(said(&run, at, "cancel".to_owned(), None));
            }
        }
        Ok(())
    }

    /// Whether it has nothing that a database could lack.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.lines).is_empty()
    }

    /// What is known of this run's family that the store does not know.
    pub(super) async fn forgotten(&self, store: &dyn Store, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        let root = store.run(run).await?.root_run_id;
        let is_asked = |of: &RunId, lines: &Lines| {
            if self.looks_at_one_run { of == run } else { lines.root.as_ref() == Some(&root) }
        };
        self.unknown_to(store, is_asked).await
    }

    /// Everything that the store does not know, of whatever run.
    pub(super) async fn all_forgotten(&self, store: &dyn Store) -> Result<Vec<Forgotten>, StoreError> {
        self.unknown_to(store, |_, _| true).await
    }

    async fn unknown_to(
        &self,
        store: &dyn Store,
        is_asked: impl Fn(&RunId, &Lines) -> bool,
    ) -> Result<Vec<Forgotten>, StoreError> {
        let of_runs: Vec<(RunId, Lines)> = locked(&self.lines)
            .iter()
            .filter(|(run, lines)| is_asked(run, lines))
            .map(|(run, lines)| (run.clone(), lines.clone()))
            .collect();
        let mut forgotten = Vec::new();
        for (run, lines) in of_runs {
            for ((call, _), (had_ended, line)) in lines.attempts {
                let attempts = store.attempts(&call).await?;
                let is_known = match line.known_by(&attempts) {
                    KnownBy::Nothing => false,
                    KnownBy::Another => line.did_nothing(),
                    KnownBy::Attempt(own) if attempts.iter().any(|other| other.attempt > own.attempt) => true,
                    KnownBy::Attempt(_) => {
                        let stored = store.call(&call).await?;
                        (!had_ended || has_ended(&stored)) && !lacks_the_word(&stored, &line)
                    }
                };
                if !is_known {
                    forgotten.push(line);
                }
            }
            let known = store.questions_of(QuestionsOf::Run(run.clone())).await?;
            let is_answered = |id: &QuestionId| known.iter().any(|one| one.question_id == *id && one.answer.is_some());
            forgotten.extend(lines.answered.into_iter().filter(|(id, _)| !is_answered(id)).map(|(_, line)| line));
            if let Some(line) = lines.cancelled {
                let knows = store
                    .run(&run)
                    .await
                    .is_ok_and(|run| run.cancel_requested_at.is_some() || run.status.is_terminal());
                forgotten.extend((!knows).then_some(line));
            }
        }
        Ok(forgotten)
    }

    /// What a person accepted of the family of `run` and the store still lacks.
    pub(super) async fn lost(&self, store: &dyn Store, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        let accepted = locked(&self.accepted).clone();
        let root = store.run(run).await?.root_run_id;
        let is_of_family = |line: &Forgotten| line.root.as_deref() == Some(root.as_str());
        let mut stand_ins = Vec::new();
        for run in store.runs(u32::MAX).await?.into_iter().filter(|run| run.root_run_id == root) {
            for call in store.calls(&run.run_id, None).await? {
                stand_ins.extend(
                    store.attempts(&call.call_id).await?.iter().filter_map(made_by).map(|(made_by, _)| made_by),
                );
            }
        }
        let mut lost = Vec::new();
        for ((call, _), known) in accepted.into_iter().filter(|(_, line)| is_of_family(line)) {
            let is_made = |same: bool| stand_ins.iter().any(|by| by.call == call.as_str() && by.in_same_words == same);
            if !matches!(known.known_by(&store.attempts(&call).await?), KnownBy::Attempt(_)) {
                lost.push(Lost { known, was_suspected: is_made(false), was_recalled: is_made(true) });
            }
        }
        lost.sort_by(|one, other| one.known.at.cmp(&other.known.at));
        Ok(lost)
    }

    /// Whether nothing was accepted that a database could lack.
    pub(super) fn has_lost_nothing(&self) -> bool {
        self.forgets_the_accepted || locked(&self.accepted).is_empty()
    }

    /// A person accepts whatever the log knows until now; returns its runs.
    pub(super) fn accept_all(&self) -> Vec<RunId> {
        let lines = std::mem::take(&mut *locked(&self.lines));
        self.keep(lines.values());
        lines.into_keys().collect()
    }

    fn keep<'l>(&self, lines: impl Iterator<Item = &'l Lines>) {
        let attempts = lines.flat_map(|lines| &lines.attempts).map(|(of, (_, line))| (of.clone(), line.clone()));
        locked(&self.accepted).extend(attempts);
    }

    /// The runs of the family of `root` that the log knows.
    pub(super) fn family_of(&self, root: &RunId) -> Vec<RunId> {
        let lines = locked(&self.lines);
        lines.iter().filter(|(_, lines)| lines.root.as_ref() == Some(root)).map(|(run, _)| run.clone()).collect()
    }

    /// A person accepts what the log knows about the family of `root` until now.
    pub(super) fn accept(&self, root: &RunId) {
        let mut lines = locked(&self.lines);
        self.keep(lines.values().filter(|lines| lines.root.as_ref() == Some(root)));
        lines.retain(|_, lines| lines.root.as_ref() != Some(root));
    }
}
