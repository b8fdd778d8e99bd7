//! A person's word that puts a record right, as the store takes it, and as the model is told.
//!
//! Durable Jobs v1 spec §8.3. Invariants: a call is corrected as the person saw it, or not at all; nobody says *it did not happen* while
//! the other side may still begin it; whoever asks the model next tells it. Proved by: `conformance::corrections`, the end-to-end tests
//! `corrections`.

use std::collections::BTreeSet;

use ua_core::{Audience, Block, CallId, CallStatus, CorrectedTo, RawReply, Resolution, Time, Timestamp};
use ua_store::{
    AttemptRecord, CallRecord, CorrectCall, Correction, MessageRecord, QuestionKind, QuestionRecord, RunRecords, rules,
};

use crate::answer::UNKNOWN_OUTCOME;
use crate::enquiry::{GivenUp, given_up_at, horizon};
use crate::interpret::interpret;
use crate::question::look_after;

/// The write that makes `correction` the record of `call`. `is_idle`: nobody drives its run, and what was sent for it is fenced.
pub fn correct_call(call: &CallRecord, correction: Correction, is_idle: bool) -> CorrectCall {
    let receipt = (correction.outcome == CorrectedTo::Happened).then(|| {
        let raw = RawReply::Statement { by: correction.by.clone(), proof: correction.proof.clone() };
        let settlement = interpret(&raw, &call.policy);
        (raw, settlement)
    });
    let seen = (call.status, call.attempt);
    // What was done stays done, whatever was said of it between: a person who left it first and says later that it did not happen says it of that.
    let was_done = call.correction.as_ref().is_some_and(Correction::was_done);
    let correction = Correction { was_answered: correction.was_answered || was_done, ..correction };
    CorrectCall { call_id: call.call_id.clone(), seen, correction, receipt, is_idle }
}

/// From when on nobody can begin the call any more, for a word that it did not happen. `None` when that is so already.
pub fn absent_from(call: &CallRecord, attempts: &[AttemptRecord], time: &Time) -> Option<Timestamp> {
    // One that has not ended ends with the word.
    absent_from_since(call, attempts, time.now(), time)
}

/// The same, where nobody has followed an attempt since `asked` that has not ended.
pub(crate) fn absent_from_since(
    call: &CallRecord,
    attempts: &[AttemptRecord],
    asked: Timestamp,
    time: &Time,
) -> Option<Timestamp> {
    if !matches!(call.status, CallStatus::Running | CallStatus::Unknown) {
        return None; // it was answered, or never left
    }
    let horizon = horizon(&call.policy)?;
    let given_up = given_up_at(call, attempts).unwrap_or_else(|| GivenUp::at(asked));
    let until = given_up.end(horizon, |from, span| time.end_of(from, span));
    (time.now() < until).then_some(until)
}

/// Whether a person was asked about the newest attempt of the call when the other side could not begin it any more: whoever asked had waited for that,
/// and the question names no time before which a look is too early. Its answer `retry` is taken, so the same word in a correction is.
pub fn was_asked_behind_the_wait(call: &CallRecord, attempts: &[AttemptRecord], questions: &[QuestionRecord]) -> bool {
    let Some(ended_at) = attempts.last().and_then(|last| last.ended_at) else { return false };
    questions.iter().any(|asked| {
        let is_about_it = asked.kind == QuestionKind::UnknownOutcome && asked.call_id.as_ref() == Some(&call.call_id);
        is_about_it && asked.created_at >= ended_at && look_after(asked).is_none()
    })
}

/// What the model of a run has to be told about calls of its history that persons corrected since it was given their results, or of which it became
/// known what came of them, and about corrected calls of other runs that it was told of ([`told_of_others`]), which are `others`; `None` when it
/// knows.
pub fn correction_note(records: &RunRecords, others: &[CallRecord]) -> Option<String> {
    let is_over =
        |call: &&CallRecord| call.run_id != records.run.run_id || call.position.turn <= records.run.turn_index;
    let own: Vec<&CallRecord> = records.lineage.calls.iter().chain(&records.calls).collect();
    let known_to_it: Vec<&CallRecord> = own.iter().copied().chain(others).collect();
    let audience = Audience::of(&records.run.entrypoint);
    let line = |call| line(call, &known_to_it, audience);
    let untold = own.into_iter().filter(is_over).filter(|call| !is_told(call, &records.messages));
    let (corrected, known): (Vec<_>, Vec<_>) = untold.partition(|call| call.correction.is_some());
    let of_others =
        others.iter().filter(|call| call.correction.is_some() && !is_told_of_another(call, &records.messages));
    let corrected = corrected.into_iter().chain(of_others).filter_map(line).collect::<Vec<_>>();
    let known = known.into_iter().filter_map(line).collect::<Vec<_>>();
    let parts = [("A person corrected what is recorded about", corrected), ("It became known what came of", known)];
    let parts = parts.into_iter().filter(|(_, lines)| !lines.is_empty()).map(|(what, lines)| {
        let work = audience.work();
        format!(
            "{what} earlier calls of this {work}. This counts, and what you were told about them before does not:\n{}",
            lines.join("\n")
        )
    });
    Some(parts.collect::<Vec<_>>().join("\n\n")).filter(|note| !note.is_empty())
}

/// The calls of other runs that the model of a run was told of by their ids: in a refusal, a question, or what a sub-agent brought back.
pub fn told_of_others(records: &RunRecords) -> BTreeSet<CallId> {
    let mut named = BTreeSet::new();
    for block in records.messages.iter().flat_map(|record| &record.message.blocks) {
        match block {
            Block::Text { text } => named.extend(ids_in(text)),
            Block::ToolResult { content, .. } => named.extend(ids_in(&content.to_string())),
            Block::ToolUse(_) | Block::Opaque { .. } => {}
        }
    }
    for own in records.lineage.calls.iter().chain(&records.calls) {
        named.remove(&own.call_id);
    }
    named
}

fn ids_in(text: &str) -> impl Iterator<Item = CallId> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '_' | '-'));
    words.filter(|word| word.starts_with("call_")).filter_map(|word| CallId::parse(word).ok())
}

/// What a call counts as by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Done,
    NotDone,
    Unconfirmed,
}

impl Counts {
    /// That, and what it means for the model.
    fn in_words(self, audience: Audience) -> String {
        match self {
            Self::Done => "It counts as done: do not make it again.".to_owned(),
            Self::NotDone => format!("It counts as not done: make it again if the {} still needs it.", audience.work()),
            Self::Unconfirmed => "Do not make it again, and say in your report that it is unconfirmed.".to_owned(),
        }
    }
}

/// What a call is recorded as by now that its own result did not say, and what that means for whoever reads it.
fn news(call: &CallRecord) -> Option<(String, Counts)> {
    let Some(correction) = &call.correction else {
        let happened = matches!(call.resolution, Some(Resolution::Happened | Resolution::Reconciled));
        if call.status == CallStatus::Succeeded && happened {
            return Some(("It is known by now that it happened.".to_owned(), Counts::Done));
        }
        let did_not = call.status == CallStatus::FailedDefinite && call.resolution == Some(Resolution::NotHappened);
        return did_not.then(|| ("It is known by now that it did not happen.".to_owned(), Counts::NotDone));
    };
    let then = match correction.outcome {
        CorrectedTo::Happened => Counts::Done,
        CorrectedTo::NotHappened => Counts::NotDone,
        CorrectedTo::Skipped => Counts::Unconfirmed,
    };
    Some((correction.sentence(), then))
}

/// What is said of a call. `all` are those that its reader knows of.
fn line(call: &CallRecord, all: &[&CallRecord], audience: Audience) -> Option<String> {
    let (sentence, then) = news(call)?;
    let (id, tool, turn) = (&call.call_id, &call.name.raw, call.position.turn);
    let then = match all.iter().find(|other| made_up_for(other, call)) {
        Some(other) if then == Counts::NotDone => {
            let (id, turn) = (&other.call_id, other.position.turn);
            let has = if other.status == CallStatus::Succeeded { "has done it" } else { "may have done it" };
            format!("But call {id} (turn {turn}) {has} since: do not make it again.")
        }
        Some(_) | None => then.in_words(audience),
    };
    Some(format!("- call {id} (`{tool}`, turn {turn}): {sentence} {then}"))
}

/// Whether another call may have had the effect of `call` since it is known that this one did not: whoever reads of it must not make up for it once
/// more. What was done before is an effect of its own, which the job may have wanted as well.
fn made_up_for(other: &CallRecord, call: &CallRecord) -> bool {
    let since = call.correction.as_ref().map_or(call.updated_at, |correction| correction.at);
    let in_its_words = other.name.raw == call.name.raw && other.args_hash == call.args_hash;
    let has_its_effect = in_its_words || (call.scope.is_some() && other.scope == call.scope);
    let is_since = other.call_id != call.call_id && other.updated_at >= since;
    is_since && has_its_effect && other.attempt > 0 && rules::may_have_happened(other)
}

/// Whether these messages of a history that a call is part of say of it what is recorded by now.
pub(crate) fn is_told<'m>(call: &CallRecord, told: impl IntoIterator<Item = &'m MessageRecord>) -> bool {
    let Some((sentence, _)) = news(call) else { return true };
    let (id, mut was_unknown) = (call.call_id.to_string(), false);
    for block in told.into_iter().flat_map(|record| &record.message.blocks) {
        let says = match block {
            Block::Text { text } => text.contains(&sentence) && text.contains(&id),
            Block::ToolResult { tool_use_id, content, .. } if *tool_use_id == call.tool_use_id => {
                let text = content.to_string();
                was_unknown |= text.contains(UNKNOWN_OUTCOME);
                text.contains(&sentence)
            }
            Block::ToolResult { .. } | Block::ToolUse(_) | Block::Opaque { .. } => false,
        };
        if says {
            return true;
        }
    }
    // What became known before its result was told, that result says.
    call.correction.is_none() && !was_unknown
}

/// The same for a call of another run, of which no result is in the history.
fn is_told_of_another(call: &CallRecord, told: &[MessageRecord]) -> bool {
    let Some((sentence, _)) = news(call) else { return true };
    let id = call.call_id.to_string();
    told.iter().flat_map(|record| &record.message.blocks).any(|block| match block {
        Block::Text { text } => text.contains(&sentence) && text.contains(&id),
        Block::ToolResult { content, .. } => {
            let text = content.to_string();
            text.contains(&sentence) && text.contains(&id)
        }
        Block::ToolUse(_) | Block::Opaque { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ua_core::Origin;
    use ua_store::conformance::{Scene, samples};
    use ua_store::rules::used_up_its_key;
    use ua_store::{LedgerStore as _, MemStore, RunStore as _};

    use super::*;

    fn message(turn: u32, block: Block) -> MessageRecord {
        let message = ua_core::Message { blocks: vec![block].into(), ..ua_core::Message::user(Origin::Guidance, "") };
        MessageRecord { seq: 90, turn, message, created_at: samples::at(90) }
    }

    fn result(call: &CallRecord, text: &str) -> Block {
        Block::ToolResult { tool_use_id: call.tool_use_id.clone(), content: text.into(), is_error: true }
    }

    /// Over what came of a call and what its model was told of it first: the model is told once, and only where it was told something else.
    #[tokio::test]
    async fn what_became_known_of_a_call_in_doubt_is_told_once() {
        for is_known_first in [false, true] {
            for (status, resolution, says) in [
                (CallStatus::Succeeded, Some(Resolution::Happened), "that it happened"),
                (CallStatus::Succeeded, Some(Resolution::Reconciled), "that it happened"),
                (CallStatus::FailedDefinite, Some(Resolution::NotHappened), "that it did not happen"),
                (CallStatus::Unknown, Some(Resolution::Skipped), ""),
                (CallStatus::Succeeded, None, ""),
            ] {
                let store = MemStore::new();
                let scene = Scene::begin(&store, "run_1").await;
                scene.call_that_is("call_1", CallStatus::Succeeded).await;
                scene.commit(1).await;
                let mut records = scene.records().await;
                let call = &mut records.calls[0];
                (call.status, call.resolution) = (status, resolution);
                let told = if is_known_first { "It happened." } else { UNKNOWN_OUTCOME };
                let (call, block) = (call.clone(), result(call, told));
                records.messages.push(message(1, block));
                let what = format!("{is_known_first} {status} {resolution:?}");
                let note = correction_note(&records, &[]);
                let is_news = !is_known_first && !says.is_empty();
                assert_eq!(note.is_some(), is_news, "{what}: {note:?}");
                assert_eq!(is_told(&call, &records.messages), !is_news, "{what}");
                let Some(note) = note else { continue };
                assert!(note.starts_with("It became known") && note.contains(says), "{what}: {note}");
                assert!(note.contains(call.call_id.as_str()), "{what}: {note}");
                records.messages.push(message(1, Block::text(note)));
                assert_eq!(correction_note(&records, &[]), None, "{what}: it was told");
                assert!(is_told(&call, &records.messages), "{what}");
            }
        }
    }

    /// What a model read about a call of another run is put right for it as well, once; what it was never told of is none of its business.
    #[tokio::test]
    async fn a_corrected_call_of_another_run_is_told_where_its_id_was_read() {
        let store = MemStore::new();
        let own = Scene::begin(&store, "run_1").await;
        own.call_that_is("call_1", CallStatus::Succeeded).await;
        own.commit(1).await;
        let other = Scene::begin(&store, "run_2").await.call_that_is("call_2", CallStatus::Succeeded).await;
        let correction = samples::correct(&other, CorrectedTo::NotHappened, 90).correction;
        let corrected = CallRecord { correction: Some(correction), ..other };
        let others = std::slice::from_ref(&corrected);
        let refusal = "Refused: call call_2 of this job (succeeded) may already have had this effect; call_1 did not.";
        for is_result in [false, true] {
            let mut records = own.records().await;
            assert_eq!(told_of_others(&records), BTreeSet::new());
            let block = if is_result { result(&records.calls[0], refusal) } else { Block::text(refusal) };
            records.messages.push(message(1, block));
            assert_eq!(told_of_others(&records), BTreeSet::from([corrected.call_id.clone()]), "its own is no other's");
            let note = correction_note(&records, others).unwrap();
            assert!(note.contains("call_2") && note.contains("make it again if the job still needs it"), "{note}");
            records.messages.push(message(1, Block::text(note)));
            assert_eq!(correction_note(&records, others), None);
        }
    }

    /// What did not happen and was done since by another call is not asked for once more; whatever else happened, it is. One that was done before is
    /// another effect, also in the same words.
    #[tokio::test]
    async fn what_another_call_did_since_is_not_asked_for_again() {
        const ONCE_MORE: &str = "make it again if the job still needs it";
        for (status, attempt, same_words, same_scope, at, says) in [
            (CallStatus::Succeeded, 1, true, false, 91, "has done it since: do not make it again"),
            (CallStatus::Succeeded, 1, false, true, 91, "has done it since: do not make it again"),
            (CallStatus::Unknown, 1, true, false, 91, "may have done it since: do not make it again"),
            (CallStatus::Succeeded, 1, true, true, 89, ONCE_MORE),
            (CallStatus::Succeeded, 1, false, false, 91, ONCE_MORE),
            (CallStatus::Prepared, 0, true, true, 91, ONCE_MORE),
            (CallStatus::FailedDefinite, 1, true, true, 91, ONCE_MORE),
        ] {
            let store = MemStore::new();
            let scene = Scene::begin(&store, "run_1").await;
            scene.call_that_is("call_1", CallStatus::Succeeded).await;
            scene.commit(1).await;
            let mut records = scene.records().await;
            let was = records.calls[0].clone();
            let correction = samples::correct(&was, CorrectedTo::NotHappened, 90).correction;
            let other = CallRecord { call_id: samples::call_id("call_2"), status, attempt, ..was.clone() };
            let args_hash = if same_words { was.args_hash } else { ua_core::sha256("other") };
            let scope = Some(ua_core::Scope::new("x", if same_scope { "one" } else { "other" }));
            records.calls[0].correction = Some(correction);
            records.calls[0].status = CallStatus::FailedDefinite;
            records.calls[0].scope = Some(ua_core::Scope::new("x", "one"));
            let updated_at = samples::at(at);
            records.calls.push(CallRecord { args_hash, scope, updated_at, ..other });
            let note = correction_note(&records, &[]).unwrap();
            assert!(note.contains(says), "{status} {same_words} {same_scope} {at}: {note}");
        }
    }

    /// Over when a question was asked, about which call, and what it says of a look: only one behind the loss that names no time was asked behind the
    /// wait.
    #[tokio::test]
    async fn a_question_that_names_no_time_was_asked_behind_the_wait() {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        let call = scene.call_that_is("call_1", CallStatus::Unknown).await;
        let other = samples::call_id("call_2");
        let attempts = store.attempts(&call.call_id).await.unwrap();
        let lost_at = attempts[0].ended_at.unwrap();
        assert!(!was_asked_behind_the_wait(&call, &attempts, &[]));
        store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
        let raised = store.question(&samples::question_id("q_1")).await.unwrap();
        for (created_at, is_since_the_loss) in
            [(samples::at(0), false), (lost_at, true), (lost_at.plus(Duration::from_secs(1)), true)]
        {
            for of in [&call.call_id, &other] {
                for names_a_time in [false, true] {
                    let mut asked = raised.clone();
                    asked.created_at = created_at;
                    asked.call_id = Some(of.clone());
                    if names_a_time {
                        asked.detail = serde_json::json!({"look_after": samples::at(500)});
                    }
                    let what = format!("{created_at} {of} {names_a_time}");
                    let is_behind = is_since_the_loss && *of == call.call_id && !names_a_time;
                    let found = was_asked_behind_the_wait(&call, &attempts, std::slice::from_ref(&asked));
                    assert_eq!(found, is_behind, "{what}");
                    assert!(!was_asked_behind_the_wait(&call, &[], &[asked]), "{what}: it was never sent");
                }
            }
        }
    }

    /// Over all words in a row about a call that counted as done, and about one that never did: the last word that it did not happen uses its key up
    /// exactly where something before it says that it was done.
    #[tokio::test]
    async fn what_was_done_stays_done_whatever_is_said_of_it_between() {
        let words = [CorrectedTo::Happened, CorrectedTo::NotHappened, CorrectedTo::Skipped];
        for was in [CallStatus::Succeeded, CallStatus::FailedReported, CallStatus::Unknown, CallStatus::Running] {
            for between in words.iter().map(Some).chain([None]) {
                let store = MemStore::new();
                let mut call = Scene::begin(&store, "run_1").await.call_that_is("call_1", was).await;
                let mut is_done = !matches!(was, CallStatus::Unknown | CallStatus::Running);
                for outcome in between.into_iter().chain([&CorrectedTo::NotHappened]) {
                    let said = samples::correct(&call, *outcome, 90).correction;
                    is_done |= !matches!(call.status, CallStatus::Unknown | CallStatus::Running);
                    let write = correct_call(&call, Correction { was: call.status, ..said }, true);
                    call.correction = Some(write.correction);
                    call.status = match outcome {
                        CorrectedTo::Happened => CallStatus::Succeeded,
                        CorrectedTo::NotHappened => CallStatus::FailedDefinite,
                        CorrectedTo::Skipped => CallStatus::Unknown,
                    };
                }
                assert_eq!(used_up_its_key(&call), is_done, "{was}, then {between:?}");
            }
        }
    }
}
