//! What is known beside the database and not in it: the sign that the database went back in time.

use std::fmt;

use serde::{Deserialize, Serialize};

use ua_core::{CallStatus, CorrectedTo, IdempotencyKey, OnUnknown, Resolution, Scope, SideEffectClass, Timestamp};

use crate::commit::{MadeBy, RecallCall, RecalledAttempt};
use crate::record::{AttemptRecord, CallRecord, Correction};
use crate::rules::{is_recalled, made_by};

/// What a person said of a run that they deleted.
pub const DELETED: &str = "delete";

/// What is noted of a run of a copy that was put back without the log of its time: nobody knows what it sent behind that. In the place of a person's
/// word, since it holds the run as one does that the database lacks.
pub const UNACCOUNTED: &str = "unaccounted";

/// What is noted of a run whose database is on a server that has another history than before: it may lack what the run sent. It holds the run
/// likewise.
pub const FAILED_OVER: &str = "failed_over";

/// The status of an attempt of which no more is known than that a person answered what its tool had asked for: that may have been delivered.
pub const DELIVERED: &str = "delivered";

/// The event of an attempt whose tool goes on with it as a task.
pub const TASK_BEGUN: &str = "task";

/// What is said of an attempt of which no more is known than that its tool goes on with it as a task.
pub const AS_TASK: &str = "running as a task";

/// What is said of an attempt of which nobody knew the end, and of which a person said that it happened: that is no word of its tool.
pub const BY_A_WORD: &str = "happened, as a person said";
/// What is noted of a call that a person left without anybody knowing what came of it.
pub const LEFT_BY_A_WORD: &str = "left as it is, as a person said";

/// What `effects.log` knows and the database does not: an attempt, what came of one, or a person's word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// When it was sent, answered or said, as the log has it last.
    pub at: String,
    /// When it was sent, as far as the log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
    /// Whether that is from the line that was written when it began, and so tells it from another attempt of the same number, which another copy
    /// of the database began.
    #[serde(skip)]
    pub is_from_its_start: bool,
    /// The first run of its lineage; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The run at the top of its run's tree; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Its run.
    pub run_id: String,
    /// Its call; a word about a run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The number of the attempt; 0 for a word.
    #[serde(default)]
    pub attempt: u32,
    /// The tool, as the model named it; empty for a word.
    #[serde(default)]
    pub tool: String,
    /// Whether any line about it says that it was answered, whatever was noted of it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// What tells its arguments from others; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// The key it was sent under.
    pub idempotency_key: Option<String>,
    /// What the other side calls what it did, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_correlation_id: Option<String>,
    /// What it touched; lines of older versions, and of what has none, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The last status that the log has for it; empty for a word.
    #[serde(default)]
    pub status: String,
    /// By what it is found on the other side, each in words; lines of older versions, and of words, do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_by: Option<Vec<String>>,
    /// How it was settled, where its own answer did not do that; lines of older versions, and of what was not, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// Whether its tool went on with it as a task, which a copy of before cannot follow.
    #[serde(skip)]
    pub is_task: bool,
    /// What a person said about the attempt with `ua calls resolve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
    /// What a person said: an answer, `cancel`, or [`DELETED`]; or [`UNACCOUNTED`], or [`FAILED_OVER`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// The question that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
}

impl Forgotten {
    /// What it is about; a later line about the same takes its place.
    pub fn about(&self) -> String {
        match (&self.word, &self.question_id, &self.tool_call_id) {
            (Some(_), Some(question), _) => question.clone(),
            (Some(word), None, _) => format!("{}/{word}", self.run_id),
            (None, _, call) => format!("{}/{}", call.as_deref().unwrap_or_default(), self.attempt),
        }
    }

    /// Whether it stands for what nobody knows, and not for something that was sent or said.
    pub fn is_unaccounted(&self) -> bool {
        self.word.as_deref() == Some(UNACCOUNTED) || self.is_failed_over()
    }

    /// Whether that is because the server has another history than before.
    pub fn is_failed_over(&self) -> bool {
        self.word.as_deref() == Some(FAILED_OVER)
    }

    /// The same in words for people, without when and of which run.
    pub fn what(&self) -> String {
        let Self { tool_call_id, attempt, tool, status, correction, word, question_id, .. } = self;
        let call = tool_call_id.as_deref().unwrap_or_default();
        match (word, question_id, correction) {
            (Some(word), Some(question), _) => format!("question {question} was answered `{word}`"),
            (Some(word), None, _) if word == DELETED => "a person deleted it".to_owned(),
            (Some(word), None, _) if word == UNACCOUNTED => {
                "what it sent after that is not known: effects.log of that time is missing".to_owned()
            }
            (Some(word), None, _) if word == FAILED_OVER => {
                "what it sent after that is not known: another server took over, or a copy was put back".to_owned()
            }
            (Some(_), None, _) => "a person cancelled it".to_owned(),
            (None, _, Some(word)) => format!("`{tool}` (call {call}): {}", word.sentence()),
            (None, _, None) if self.is_by_a_word() => {
                format!("`{tool}` (call {call}, attempt {attempt}): a person said that it happened")
            }
            (None, _, None) => format!("`{tool}` was sent (call {call}, attempt {attempt}): {status}"),
        }
    }

    /// Whether the other side answered it, in whatever way: it says so, a line before it did, or a person put right what said so.
    pub fn was_answered(&self) -> bool {
        let is_answer = |status: CallStatus| matches!(status, CallStatus::Succeeded | CallStatus::FailedReported);
        // A person's own word about it is none of the other side.
        let says = !self.is_by_a_word()
            && CallStatus::ALL.iter().any(|status| is_answer(*status) && status.as_str() == self.status);
        let was = self.correction.as_ref().map(|word| is_answer(word.was) || word.was_answered);
        self.answered || was.unwrap_or(says)
    }

    /// Whether it counts as happened because a person answered that it did: nothing was sent or answered when they said it.
    fn is_by_a_word(&self) -> bool {
        self.status == CallStatus::Succeeded.as_str()
            && self.resolution.as_deref() == Some(Resolution::Happened.as_str())
    }

    /// Whether a person left it without anybody knowing what came of it.
    fn is_left_by_a_word(&self) -> bool {
        self.status == CallStatus::Unknown.as_str() && self.resolution.as_deref() == Some(Resolution::Skipped.as_str())
    }

    /// Whether a person said of it what speaks against a repeat: that it happened, or that it is left as it is.
    fn is_kept_by_a_word(&self) -> bool {
        let is_corrected = self.correction.as_ref().is_some_and(|word| word.outcome != CorrectedTo::NotHappened);
        self.is_by_a_word() || self.is_left_by_a_word() || is_corrected
    }

    /// What came of it, in a word.
    fn said(&self) -> String {
        if self.is_task && !self.has_ended() {
            AS_TASK.to_owned()
        } else if self.is_by_a_word() {
            BY_A_WORD.to_owned()
        } else if self.is_left_by_a_word() {
            LEFT_BY_A_WORD.to_owned()
        } else {
            self.status.clone()
        }
    }

    /// The same with what a person said of it since, which counts more.
    fn said_last(&self) -> String {
        match self.correction.as_ref().map(|word| word.outcome) {
            Some(CorrectedTo::Happened) => BY_A_WORD.to_owned(),
            Some(CorrectedTo::Skipped) => LEFT_BY_A_WORD.to_owned(),
            Some(CorrectedTo::NotHappened) | None => self.said(),
        }
    }

    /// What the other side calls it, if that fits into a sentence.
    fn external_id(&self) -> Option<String> {
        self.external_correlation_id.clone().filter(|id| is_shown(id))
    }

    /// By what it is found on the other side. Of a line of an older version no more is known than its key, and not where that went.
    fn names(&self) -> Vec<String> {
        let key = || self.idempotency_key.iter().map(|key| format!("idempotency key {key}, if its tool takes one"));
        let names = self.found_by.clone().unwrap_or_else(|| key().collect());
        let is_among = |id: &String| names.iter().any(|name| name.contains(id.as_str()));
        let id = self.external_id().filter(|id| !is_among(id)).map(|id| format!("{id}, as its tool called it"));
        id.into_iter().chain(names).collect()
    }

    /// Whether it provably did nothing, for all that was said since.
    pub fn did_nothing(&self) -> bool {
        self.status == CallStatus::FailedDefinite.as_str() && self.correction.is_none()
    }

    /// Whether what was begun had come to an end.
    pub fn has_ended(&self) -> bool {
        ![CallStatus::Running, CallStatus::Unknown].iter().any(|open| open.as_str() == self.status)
    }

    /// What a database that has these attempts of its call knows of it.
    pub fn known_by<'a>(&self, attempts: &'a [AttemptRecord]) -> KnownBy<'a> {
        let sent_at = self.first_at.as_deref().filter(|_| self.is_from_its_start).and_then(Timestamp::parse);
        let is_itself = |attempt: &&AttemptRecord| {
            attempt.attempt == self.attempt && sent_at.is_none_or(|sent_at| attempt.started_at == sent_at)
        };
        let is_recalled_as = |attempt: &&AttemptRecord| {
            let at = sent_at.or_else(|| Timestamp::parse(&self.at));
            is_recalled(attempt)
                && made_by(attempt).is_none()
                && (Some(attempt.started_at) == at || self.is_word_of(attempt))
        };
        let newest = attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0);
        match attempts.iter().rev().find(is_recalled_as).or_else(|| attempts.iter().find(is_itself)) {
            Some(attempt) => KnownBy::Attempt(attempt),
            None if self.attempt > newest => KnownBy::Nothing,
            None => KnownBy::Another,
        }
    }

    /// Whether an attempt was recalled for what a person said of this one.
    fn is_word_of(&self, attempt: &AttemptRecord) -> bool {
        self.correction.as_ref().is_some_and(|word| word.at == attempt.started_at)
    }

    /// When it was sent, as far as that is known, and when the log has it last.
    fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let at = Timestamp::parse(&self.at)?;
        Some((self.first_at.as_deref().and_then(Timestamp::parse).unwrap_or(at), at))
    }
}

/// What a database knows of an attempt that the log has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KnownBy<'a> {
    /// It, or what was recalled of it.
    Attempt(&'a AttemptRecord),
    /// Nothing of that number.
    Nothing,
    /// One of that number, which another copy of the database began at another time.
    Another,
}

/// What was sent, and accepted by a person as forgotten, and is still in no row of the database: whoever is about to do the like may repeat it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// It.
    pub known: Forgotten,
    /// Whether a person was asked already whether a call in other words is to do the same: nobody is asked that of each.
    pub was_suspected: bool,
    /// Whether a call in the same words stands in its place already: it puts none in doubt any more, and its key is known all the same.
    pub was_recalled: bool,
}

impl Lost {
    /// The key that it was sent under, where whoever got it answered: nothing is done under it once more.
    pub fn used_up(&self) -> Option<&str> {
        self.known.idempotency_key.as_deref().filter(|_| self.known.attempt > 0 && self.known.was_answered())
    }
}

/// How much a call is like what was lost; the higher, the more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// The same tool, of the same family, and nothing says that it is another effect: a model that is asked once more has other words.
    Tool,
    /// What it touches is the same, in other words.
    Scope,
    /// The same words.
    Words,
}

fn likeness(call: &CallRecord, scope: Option<&Scope>, lost: &Lost) -> Option<Likeness> {
    let known = &lost.known;
    let is_refuted = known.correction.as_ref().is_some_and(|word| word.outcome == CorrectedTo::NotHappened);
    let did_nothing = [CallStatus::FailedDefinite, CallStatus::Cancelled].iter().any(|no| no.as_str() == known.status);
    if known.attempt == 0 || known.tool != call.name.raw || is_refuted || did_nothing || lost.was_recalled {
        return None;
    }
    let is_own = known.run_id == call.run_id.as_str();
    let (reaches_others, may_be_worded_anew) = match call.policy.class {
        SideEffectClass::External => (true, true),
        SideEffectClass::Memory => (true, false),
        SideEffectClass::Local => (false, false),
        SideEffectClass::ReadOnly => return None,
    };
    if !reaches_others && !is_own {
        return None; // files of the workspace are each run's own
    }
    let then = known.scope.clone().map(Scope::from_stored);
    let is_same_scope = then.is_some() && then.as_ref() == scope;
    let says_what = |scope: Option<&Scope>| scope.is_some_and(|scope| !scope.is_of_whole_call());
    let found = match &known.args_hash {
        Some(hash) if *hash == call.args_hash.to_hex() => Likeness::Words,
        // The scope of a whole call has its words.
        None if is_same_scope && !says_what(scope) => Likeness::Words,
        Some(_) | None if is_same_scope => Likeness::Scope,
        Some(_) | None if says_what(scope) && says_what(then.as_ref()) => return None,
        Some(_) | None => Likeness::Tool,
    };
    let is_of_family = is_own || known.root.as_deref() == Some(call.root_run_id.as_str());
    let counts = match found {
        Likeness::Words => true,
        Likeness::Scope => may_be_worded_anew && !lost.was_suspected,
        Likeness::Tool => may_be_worded_anew && !lost.was_suspected && is_of_family,
    };
    counts.then_some(found)
}

/// What a call that may be sent, for the first time or once more, may repeat of what was lost, as what puts it in doubt: an attempt of its own, or
/// a call that the database does not have, the most like it and of those the oldest. `scope` is what it would touch, and `key` one of its own:
/// whoever got the other one knows that key, and a person who has it sent means another one. A call that is in doubt already keeps the key that it
/// has, under which it may have been done.
pub fn recall_lost(call: &CallRecord, scope: Option<&Scope>, lost: &[Lost], key: IdempotencyKey) -> Option<RecallCall> {
    let may_be_repeated = call.policy.is_kept_outside() && call.policy.on_unknown != OnUnknown::Redo;
    let is_effect_of_its_own = !call.name.is_task() && !call.name.is_ask_user();
    let may_be_sent = match call.status {
        CallStatus::Prepared | CallStatus::Unknown | CallStatus::FailedDefinite => true,
        CallStatus::Running | CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => false,
    };
    if !may_be_sent || !may_be_repeated || !is_effect_of_its_own {
        return None;
    }
    // Of a call that has attempts it was compared before anybody worked on its run.
    let own = lost.iter().map(|lost| &lost.known).filter(|_| call.attempt == 0);
    if let Some(own) = recall_among(call, &[], own) {
        return Some(own);
    }
    // What was sent before has its words, and so has what was lost: one of the same tool in others is another effect.
    let least = if call.attempt > 0 { Likeness::Scope } else { Likeness::Tool };
    let like = lost.iter().rev().filter_map(|lost| Some((likeness(call, scope, lost)?, &lost.known)));
    // A line about the call itself is about an attempt that the database has.
    let like = like
        .filter(|(likeness, known)| *likeness >= least && known.tool_call_id.as_deref() != Some(call.call_id.as_str()));
    let (likeness, known) = like.max_by_key(|(likeness, _)| *likeness)?;
    let (sent_at, at) = known.times()?;
    let key = call.idempotency_key.clone().filter(|_| call.status == CallStatus::Unknown).unwrap_or(key);
    let attempt = RecalledAttempt {
        attempt: call.attempt + 1,
        key,
        scope: scope
            .cloned()
            .or_else(|| known.scope.clone().filter(|_| likeness > Likeness::Tool).map(Scope::from_stored)),
        sent_at,
        at,
        said: known.said_last(),
        was_answered: false,
        did_nothing: false,
        learnt_of: None,
        file_digests: None,
        made_by: Some(MadeBy {
            call: known.tool_call_id.clone()?,
            run: known.run_id.clone(),
            in_same_words: likeness == Likeness::Words,
            found_by: known.names(),
            external_id: known.external_id(),
        }),
    };
    Some(RecallCall { call_id: call.call_id.clone(), attempts: vec![attempt] })
}

/// Whether what the other side calls something fits into a sentence.
fn is_shown(id: &str) -> bool {
    id.chars().count() <= 300 && !id.chars().any(char::is_control)
}

/// What is known of `call`, which has these attempts, beside its database and not in it; `None` when that is nothing.
pub fn recall_of(call: &CallRecord, attempts: &[AttemptRecord], forgotten: &[Forgotten]) -> Option<RecallCall> {
    recall_among(call, attempts, forgotten.iter())
}

fn recall_among<'f>(
    call: &CallRecord,
    attempts: &[AttemptRecord],
    known: impl Iterator<Item = &'f Forgotten>,
) -> Option<RecallCall> {
    let of_call =
        |known: &&Forgotten| known.attempt > 0 && known.tool_call_id.as_deref() == Some(call.call_id.as_str());
    let (mut newer, mut others) = (Vec::new(), Vec::new());
    for line in known.filter(of_call) {
        let Some(recalled) = recalled(line) else { continue };
        match line.known_by(attempts) {
            KnownBy::Nothing => newer.push(recalled),
            // What the copy has under way had come to an end.
            KnownBy::Attempt(own) if own.attempt == call.attempt && own.ended_at.is_none() => {
                if call.status == CallStatus::Running && line.has_ended() {
                    newer.push(recalled);
                }
            }
            // What nobody knew the end of was answered, or a person said what became of it, or that what did nothing had happened. Whoever is asked
            // in the copy knows nothing of it.
            KnownBy::Attempt(own) if own.attempt == call.attempt && !is_recalled(own) => {
                let is_left = call.resolution == Some(Resolution::Skipped);
                let is_open = call.status == CallStatus::Unknown && !is_left;
                let was_learnt =
                    call.status == CallStatus::Unknown && line.was_answered() || is_open && line.is_kept_by_a_word();
                let word = line.correction.as_ref().filter(|word| {
                    let is_newer = call.correction.as_ref().is_none_or(|known| known.at < word.at);
                    let speaks_against_a_repeat = word.outcome != CorrectedTo::NotHappened;
                    call.status == CallStatus::FailedDefinite && is_newer && speaks_against_a_repeat
                });
                let at = word.map(|word| word.at).or_else(|| was_learnt.then_some(recalled.sent_at));
                let learnt_of = Some(own.attempt);
                others.extend(at.map(|at| RecalledAttempt {
                    sent_at: at,
                    at: recalled.at.max(at),
                    learnt_of,
                    ..recalled
                }));
            }
            KnownBy::Attempt(_) => {}
            KnownBy::Another => others.extend(Some(recalled).filter(|recalled| !recalled.did_nothing)),
        }
    }
    newer.sort_by_key(|attempt| attempt.attempt);
    // What did nothing changes nothing: a call of which no more is known stays as the copy has it, with what was asked about it. What the copy has
    // under way is over.
    let counts = |attempt: &RecalledAttempt| !attempt.did_nothing || attempt.attempt == call.attempt;
    newer.truncate(newer.iter().rposition(counts).map_or(0, |last| last + 1));
    // What has the number of another attempt stands behind all others.
    others.sort_by_key(|attempt| attempt.sent_at);
    for (other, number) in others.into_iter().zip(newer.last().map_or(call.attempt, |last| last.attempt) + 1..) {
        newer.push(RecalledAttempt { attempt: number, ..other });
    }
    (!newer.is_empty()).then(|| RecallCall { call_id: call.call_id.clone(), attempts: newer })
}

/// An attempt as a line has it. That a person says that it did not happen is a word that is lost with its record, and is asked for again.
fn recalled(known: &Forgotten) -> Option<RecalledAttempt> {
    let (sent_at, at) = known.times()?;
    Some(RecalledAttempt {
        attempt: known.attempt,
        key: IdempotencyKey::from_stored(known.idempotency_key.clone()?),
        scope: known.scope.clone().map(Scope::from_stored),
        sent_at,
        at,
        said: known.said(),
        was_answered: known.was_answered(),
        did_nothing: known.did_nothing(),
        learnt_of: None,
        file_digests: None,
        made_by: None,
    })
}

impl fmt::Display for Forgotten {
    /// On one line, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  run {}: {}", self.at, self.run_id, self.what())
    }
}

#[cfg(test)]
#[cfg(feature = "conformance")]
mod tests {
    use ua_core::sha256;

    use super::*;
    use crate::conformance::{Scene, samples};
    use crate::{LedgerStore as _, MemStore};

    /// A call that is planned, and a line about one that the database does not have, which agrees with it in everything.
    async fn planned_and_lost() -> (CallRecord, Forgotten) {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        let mut call = scene.call_that_is("call_1", CallStatus::Prepared).await;
        call.policy.class = SideEffectClass::External;
        call.policy.on_unknown = OnUnknown::Hold;
        let known = Forgotten {
            at: samples::at(70).to_string(),
            first_at: Some(samples::at(60).to_string()),
            root: Some("run_1".to_owned()),
            run_id: "run_2".to_owned(),
            tool_call_id: Some("call_lost".to_owned()),
            attempt: 1,
            tool: call.name.raw.clone(),
            args_hash: Some(call.args_hash.to_hex()),
            idempotency_key: Some("k".to_owned()),
            status: CallStatus::Succeeded.as_str().to_owned(),
            ..Forgotten::default()
        };
        (call, known)
    }

    fn in_doubt_for(call: &CallRecord, lost: &[Lost]) -> Option<RecallCall> {
        recall_lost(call, None, lost, samples::key("own"))
    }

    fn lost(known: Forgotten) -> Lost {
        Lost { known, was_suspected: false, was_recalled: false }
    }

    /// Over everything that a line may say: a call is put in doubt by one that may have done the same, and by no other.
    #[tokio::test]
    async fn a_call_is_in_doubt_for_what_may_have_done_the_same() {
        let (call, known) = planned_and_lost().await;
        let of = |name: &str| Scope::new("email.send", name);
        let scopes = [None, Some(of("ada")), Some(of("bob"))];
        let mut in_doubt = 0;
        for class in SideEffectClass::ALL {
            for is_own in [false, true] {
                for is_of_family in [false, true] {
                    for words in [Some(call.args_hash), Some(sha256("other")), None] {
                        for (then, now) in scopes.iter().flat_map(|then| scopes.iter().map(move |now| (then, now))) {
                            for was_suspected in [false, true] {
                                let mut call = call.clone();
                                call.policy.class = *class;
                                let known = Forgotten {
                                    run_id: if is_own { "run_1" } else { "run_2" }.to_owned(),
                                    root: Some(if is_of_family { "run_1" } else { "run_9" }.to_owned()),
                                    args_hash: words.map(ua_core::Sha256::to_hex),
                                    scope: then.as_ref().map(|scope| scope.as_str().to_owned()),
                                    ..known.clone()
                                };
                                let found = recall_lost(
                                    &call,
                                    now.as_ref(),
                                    &[Lost { was_suspected, ..lost(known) }],
                                    samples::key("own"),
                                );
                                let is_same = words == Some(call.args_hash);
                                let is_other_effect = then.is_some() && now.is_some() && then != now;
                                let shares_scope = then.is_some() && then == now;
                                let may_be = is_same || shares_scope || ((is_own || is_of_family) && !is_other_effect);
                                let expected = match class {
                                    SideEffectClass::ReadOnly => false,
                                    SideEffectClass::Local => is_own && is_same,
                                    SideEffectClass::Memory => is_same,
                                    SideEffectClass::External => may_be && (is_same || !was_suspected),
                                };
                                let what = format!(
                                    "{class} {is_own} {is_of_family} {words:?} {then:?} {now:?} {was_suspected}"
                                );
                                assert_eq!(found.is_some(), expected, "{what}");
                                let Some(found) = found else { continue };
                                in_doubt += 1;
                                let [attempt] = &found.attempts[..] else { panic!("{what}: {found:?}") };
                                let made_by = attempt.made_by.as_ref().unwrap();
                                assert_eq!(
                                    (made_by.call.as_str(), made_by.in_same_words),
                                    ("call_lost", is_same),
                                    "{what}"
                                );
                                assert_eq!((attempt.sent_at, attempt.at), (samples::at(60), samples::at(70)), "{what}");
                                assert_eq!(attempt.key, samples::key("own"), "{what}");
                            }
                        }
                    }
                }
            }
        }
        assert!(in_doubt > 50, "{in_doubt}");
    }

    #[tokio::test]
    async fn what_did_nothing_or_was_sent_itself_puts_nothing_in_doubt() {
        let (call, known) = planned_and_lost().await;
        assert!(in_doubt_for(&call, &[lost(known.clone())]).is_some());
        let word = |outcome| samples::correct(&call, outcome, 90).correction;
        let is_not_happened = Forgotten { correction: Some(word(CorrectedTo::NotHappened)), ..known.clone() };
        let failed = Forgotten { status: CallStatus::FailedDefinite.as_str().to_owned(), ..known.clone() };
        let is_word = Forgotten { attempt: 0, word: Some("cancel".to_owned()), ..known.clone() };
        for known in [is_not_happened, failed, is_word, Forgotten { tool: "another".to_owned(), ..known.clone() }] {
            assert_eq!(in_doubt_for(&call, &[lost(known.clone())]), None, "{known}");
        }
        for outcome in [CorrectedTo::Happened, CorrectedTo::Skipped] {
            let known = Forgotten { correction: Some(word(outcome)), ..known.clone() };
            assert!(in_doubt_for(&call, &[lost(known)]).is_some(), "{outcome}");
        }
        // What was sent before may be sent once more; of the same tool in other words it is another effect.
        let of_tool = Forgotten { args_hash: Some(sha256("other").to_hex()), ..known.clone() };
        for status in CallStatus::ALL.iter().filter(|status| **status != CallStatus::Prepared) {
            let key = Some(samples::key("sent under"));
            let call = CallRecord { status: *status, attempt: 3, idempotency_key: key.clone(), ..call.clone() };
            let may_be_sent = matches!(status, CallStatus::Unknown | CallStatus::FailedDefinite);
            let found = in_doubt_for(&call, &[lost(known.clone())]);
            assert_eq!(found.is_some(), may_be_sent, "{status}");
            assert_eq!(in_doubt_for(&call, &[lost(of_tool.clone())]), None, "{status}");
            let own = Forgotten { tool_call_id: Some(call.call_id.to_string()), ..known.clone() };
            assert_eq!(in_doubt_for(&call, &[lost(own)]), None, "{status}: it has that attempt");
            let Some(attempt) = found.map(|found| found.attempts[0].clone()) else { continue };
            let has_its_key = Some(attempt.key) == key;
            assert_eq!((attempt.attempt, has_its_key), (4, *status == CallStatus::Unknown), "{status}");
        }
        // Its own line is about itself, under its key.
        let own = Forgotten { tool_call_id: Some(call.call_id.to_string()), ..known.clone() };
        let found = in_doubt_for(&call, &[lost(known.clone()), lost(own)]).unwrap();
        assert_eq!((found.attempts[0].made_by.as_ref(), found.attempts[0].key.as_str()), (None, "k"));
    }

    /// Over what a copy may have of a call, and what the log may say of an attempt of it: what may have had an effect puts the call in doubt, what
    /// was answered is known as that, what did nothing changes nothing, and nothing is learnt twice.
    #[tokio::test]
    async fn what_the_log_says_of_an_attempt_is_learnt_once() {
        let copies = [CallStatus::Prepared, CallStatus::Running, CallStatus::Unknown, CallStatus::FailedDefinite];
        let starts = ["same", "other", "unsaid"];
        let words = [None, Some(CorrectedTo::Happened), Some(CorrectedTo::NotHappened), Some(CorrectedTo::Skipped)];
        let mut learnt = 0;
        for (place, (copy, said)) in
            copies.iter().flat_map(|copy| CallStatus::ALL.iter().map(move |said| (copy, said))).enumerate()
        {
            if matches!(said, CallStatus::Prepared | CallStatus::Cancelled) {
                continue;
            }
            for which in 0..starts.len() * words.len() * 2 {
                let (start, word) = (&starts[which % starts.len()], &words[which / starts.len() % words.len()]);
                let number = if which < starts.len() * words.len() { 1 } else { 2 };
                let what = format!(
                    "the copy has it {copy}, the log has attempt {number}, begun at the {start} time, as {said}; {word:?}"
                );
                let store = MemStore::new();
                let scene = Scene::begin(&store, "run_1").await;
                let call = scene.call_that_is(&format!("call_{place}"), *copy).await;
                let has =
                    |attempts: &[AttemptRecord]| attempts.iter().find(|attempt| attempt.attempt == number).cloned();
                let attempts = store.attempts(&call.call_id).await.unwrap();
                let own = has(&attempts);
                let sent_at = match (&own, *start) {
                    (Some(own), "same") => own.started_at,
                    _ => samples::at(70),
                };
                let correction =
                    word.map(|outcome| Correction { was: *said, ..samples::correct(&call, outcome, 90).correction });
                let line = Forgotten {
                    at: samples::at(if word.is_some() { 90 } else { 75 }).to_string(),
                    first_at: Some(sent_at.to_string()),
                    is_from_its_start: *start != "unsaid",
                    run_id: "run_1".to_owned(),
                    tool_call_id: Some(call.call_id.to_string()),
                    attempt: number,
                    tool: call.name.raw.clone(),
                    idempotency_key: Some("k".to_owned()),
                    status: said.as_str().to_owned(),
                    correction,
                    ..Forgotten::default()
                };
                let line = match &call.idempotency_key {
                    Some(key) if *copy != CallStatus::FailedDefinite => {
                        Forgotten { idempotency_key: Some(key.as_str().to_owned()), ..line }
                    }
                    Some(_) | None => line,
                };
                let knows_it = own.as_ref().is_some_and(|own| *start == "unsaid" || own.started_at == sent_at);
                let did_nothing = *said == CallStatus::FailedDefinite && word.is_none();
                let is_open = matches!(said, CallStatus::Running | CallStatus::Unknown);
                let speaks_against_a_repeat = matches!(word, Some(CorrectedTo::Happened | CorrectedTo::Skipped));
                let is_news = if !knows_it {
                    !did_nothing
                } else if *copy == CallStatus::Running {
                    !is_open
                } else if *copy == CallStatus::Unknown {
                    line.was_answered() || speaks_against_a_repeat
                } else {
                    speaks_against_a_repeat
                };
                let Some(recall) = recall_of(&call, &attempts, std::slice::from_ref(&line)) else {
                    assert!(!is_news, "{what}");
                    continue;
                };
                assert!(is_news, "{what}: {recall:?}");
                learnt += 1;
                let after = store.recall_call(recall).await.unwrap();
                let is_over = knows_it && did_nothing && *copy == CallStatus::Running;
                let expected = if is_over { CallStatus::FailedDefinite } else { CallStatus::Unknown };
                assert_eq!(after.status, expected, "{what}");
                let attempts = store.attempts(&call.call_id).await.unwrap();
                let last = attempts.last().unwrap();
                assert!(is_recalled(last), "{what}: {last:?}");
                // What the copy has as sent is not sent once more by what came of it.
                let was_sent_there = knows_it && last.attempt > number;
                assert_eq!(crate::rules::is_learnt_of_another(last), was_sent_there, "{what}: {last:?}");
                let of = crate::rules::learnt_of_another(last);
                assert_eq!(of, was_sent_there.then_some(number), "{what}: {last:?}");
                assert_eq!(
                    crate::rules::was_answered_beside(last),
                    line.was_answered() || line.status == "succeeded" || line.status == "failed_reported",
                    "{what}"
                );
                assert_eq!(recall_of(&after, &attempts, std::slice::from_ref(&line)), None, "{what}: a second time");
            }
        }
        assert!(learnt > 200, "{learnt}");
    }

    /// Over what a copy may have of a call that a person said had happened: what they said is no further send and no answer, and whoever is asked
    /// reads that it was a person's word.
    #[tokio::test]
    async fn a_persons_word_is_no_attempt_and_no_answer() {
        for copy in [CallStatus::Prepared, CallStatus::Running, CallStatus::Unknown, CallStatus::FailedDefinite] {
            for is_word in [true, false] {
                let store = MemStore::new();
                let scene = Scene::begin(&store, "run_1").await;
                let call = scene.call_that_is("call_1", copy).await;
                let attempts = store.attempts(&call.call_id).await.unwrap();
                let sent_at = attempts.first().map_or(samples::at(60), |own| own.started_at);
                let line = Forgotten {
                    at: samples::at(90).to_string(),
                    first_at: Some(sent_at.to_string()),
                    is_from_its_start: true,
                    run_id: "run_1".to_owned(),
                    tool_call_id: Some(call.call_id.to_string()),
                    attempt: 1,
                    tool: "post".to_owned(),
                    idempotency_key: Some("k".to_owned()),
                    status: CallStatus::Succeeded.to_string(),
                    resolution: is_word.then(|| Resolution::Happened.to_string()),
                    ..Forgotten::default()
                };
                let what = format!("{copy} {is_word}");
                assert_eq!(line.was_answered(), !is_word, "{what}");
                let (in_words, word) = (line.to_string(), "a person said that it happened");
                assert_eq!((in_words.contains(word), in_words.contains("was sent")), (is_word, !is_word), "{in_words}");
                let recalled = recall_of(&call, &attempts, std::slice::from_ref(&line));
                let is_open = matches!(copy, CallStatus::Prepared | CallStatus::Running);
                assert_eq!(recalled.is_some(), is_open || copy == CallStatus::Unknown, "{what}");
                let Some(recalled) = recalled.filter(|_| is_word) else { continue };
                store.recall_call(recalled).await.unwrap();
                let attempts = store.attempts(&call.call_id).await.unwrap();
                let sent = attempts.iter().filter(|attempt| !crate::rules::is_learnt_of_another(attempt));
                assert_eq!(sent.count(), 1, "{what}: {attempts:?}");
                let last = attempts.last().unwrap();
                assert!(!crate::rules::was_answered_beside(last), "{what}");
                assert_eq!(crate::rules::said_beside(last).as_deref(), Some(word), "{what}");
            }
        }
    }

    #[tokio::test]
    async fn of_several_the_most_alike_counts_and_of_those_the_oldest() {
        let (call, known) = planned_and_lost().await;
        let named = |name: &str, words: &str| Forgotten {
            tool_call_id: Some(name.to_owned()),
            args_hash: Some(if words == "same" { call.args_hash } else { sha256(words) }.to_hex()),
            ..known.clone()
        };
        let all = [named("a", "other"), named("b", "same"), named("c", "same")].map(lost);
        let found = |lost: &[Lost]| in_doubt_for(&call, lost).unwrap().attempts[0].made_by.clone().unwrap();
        let made_by = |call: &str, in_same_words| MadeBy {
            call: call.to_owned(),
            run: "run_2".to_owned(),
            in_same_words,
            found_by: vec!["idempotency key k, if its tool takes one".to_owned()],
            external_id: None,
        };
        assert_eq!(found(&all), made_by("b", true));
        assert_eq!(found(&all[..1]), made_by("a", false));
    }

    /// What is said of a lost call is what its own line has: its names, and what a person said of it before what its tool did.
    #[tokio::test]
    async fn whatever_is_said_of_a_lost_call_is_of_its_own_line() {
        let (call, known) = planned_and_lost().await;
        let named = Forgotten {
            found_by: Some(vec!["Message-ID <lost@ua.invalid>".to_owned()]),
            external_correlation_id: Some("<lost@ua.invalid>".to_owned()),
            ..known.clone()
        };
        for word in [None, Some(CorrectedTo::Happened), Some(CorrectedTo::Skipped)] {
            let correction = word.map(|outcome| samples::correct(&call, outcome, 90).correction);
            let recall = in_doubt_for(&call, &[lost(Forgotten { correction, ..named.clone() })]).unwrap();
            let [attempt] = &recall.attempts[..] else { panic!("{recall:?}") };
            let said = match word {
                Some(CorrectedTo::Happened) => BY_A_WORD,
                Some(CorrectedTo::Skipped) => LEFT_BY_A_WORD,
                Some(CorrectedTo::NotHappened) | None => known.status.as_str(),
            };
            assert_eq!(attempt.said, said, "{word:?}");
            let made_by = attempt.made_by.as_ref().unwrap();
            assert_eq!(Some(&made_by.found_by), named.found_by.as_ref(), "{word:?}");
            assert_eq!(made_by.external_id, named.external_correlation_id, "{word:?}");
        }
        // One that has none says so; an older line says nothing of them, and its key may have gone nowhere.
        for (found_by, expected) in [(Some(Vec::new()), 0), (None, 1)] {
            let recall = in_doubt_for(&call, &[lost(Forgotten { found_by, ..known.clone() })]).unwrap();
            let made_by = recall.attempts[0].made_by.clone().unwrap();
            assert_eq!(made_by.found_by.len(), expected, "{made_by:?}");
        }
    }
}
