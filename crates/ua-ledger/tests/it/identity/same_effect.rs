//! A call of which a person says that an earlier one was it: it has that one's answer, counts as it, and is never sent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{
    CallId, CallStatus, CorrectedTo, OnUnknown, PlannedCall, Resolution, SideEffectClass, ToolName, ToolNamespace,
    sha256,
};
use ua_ledger::{Admission, Facts, PeopleRules};
use ua_store::conformance::{StoreSeam, Undisturbed, Writes, samples};
use ua_store::{
    Author, Batch, Change, Choice, Committed, CorrectCall, LedgerStore as _, QuestionKind, QuestionStatus,
    RunStore as _, Store, StoreError,
};

use super::member::{Ask, FIRST, Fate, Member, OTHER_WORDS, lineage};

/// A call that no rule knows: by its position, with these words.
fn unlisted(words: &'static str) -> impl Fn(&str, u32) -> PlannedCall {
    move |id, turn| {
        let mut call = samples::planned_call(id, turn, 1);
        call.name = ToolName::qualified(ToolNamespace::Mcp, "shop", "order");
        call.arguments = json!({"what": words}).into();
        call.args_hash = sha256(words);
        call.policy.class = SideEffectClass::External;
        call.policy.on_unknown = OnUnknown::Hold;
        call
    }
}

async fn admit(member: &Member, id: &CallId) -> Admission {
    member.ledger.admit(id, Facts::default()).await.unwrap()
}

/// Whoever says that the earlier call was it gives the later one that call's answer: what the first run did is not done again, and counts. Where
/// nothing succeeded by itself nobody can say so.
#[tokio::test]
async fn what_the_earlier_call_did_counts_for_the_one_that_a_person_says_it_was() {
    let mut answered = 0;
    for fate in [Fate::Done, Fate::FailedMaybe, Fate::Lost, Fate::UnderWay] {
        for ask in [FIRST, OTHER_WORDS] {
            for is_guessed in [false, true] {
                for is_mail in [false, true] {
                    let (parent, child) = lineage().await;
                    let planned = |ask: Ask| {
                        move |id: &str, turn| {
                            let mut call = if is_mail { ask.planned(id, turn) } else { unlisted(ask.words)(id, turn) };
                            call.policy.kind_is_guessed = is_guessed;
                            call
                        }
                    };
                    let facts = |ask: &Ask| if is_mail { ask.facts() } else { Facts::default() };
                    let first = parent.plan_as(planned(FIRST)).await;
                    let first = parent.take(&first, &facts(&FIRST), fate).await;
                    let id = child.plan_as(planned(ask.clone())).await;
                    let at = format!("{fate:?}, {ask:?}, guessed: {is_guessed}, mail: {is_mail}");
                    let Admission::Held(question) = child.ledger.admit(&id, facts(&ask)).await.unwrap() else {
                        continue;
                    };
                    let offers = question.choices.contains(&Choice::Happened);
                    assert_eq!(offers, fate == Fate::Done, "{at}: {:?}", question.choices);
                    if !offers {
                        continue;
                    }
                    child.answer(&question, Choice::Happened).await;
                    let Admission::Settled(call) = child.ledger.admit(&id, facts(&ask)).await.unwrap() else {
                        panic!("{at}: it is not settled")
                    };
                    let got = (call.status, call.attempt, call.resolution, call.deduplicated_from.as_ref());
                    let wanted = (CallStatus::Succeeded, 0, Some(Resolution::Deduplicated), Some(&first.call_id));
                    assert_eq!(got, wanted, "{at}");
                    let asked = child.store.question(&question.question_id).await.unwrap();
                    assert_eq!(asked.status, QuestionStatus::Closed, "{at}");
                    assert!(asked.answer.unwrap().applied_at.is_some(), "{at}");
                    let records = child.store.load(&child.lease.run_id).await.unwrap();
                    let events = child.store.events(&call.call_id).await.unwrap();
                    let broken = ua_store::invariants::check(&records, &events);
                    let is_about_it = |one: &&ua_store::invariants::Violation| one.row == call.call_id.to_string();
                    let broken: Vec<_> = broken.iter().filter(is_about_it).collect();
                    assert!(broken.is_empty(), "{at}: {broken:?}");
                    let family = [parent.store.load(&parent.lease.run_id).await.unwrap(), records];
                    let of_key = |one: &ua_store::invariants::Violation| one.invariant == "keys_are_of_their_calls";
                    assert!(!ua_ledger::check_recomputed("d", &family).iter().any(of_key), "{at}");
                    answered += 1;
                }
            }
        }
    }
    assert!(answered > 4, "{answered}");
}

/// A person's word that the earlier call was it sends nothing, whatever has become of that one: it is asked about anew, or the model is told.
#[tokio::test]
async fn that_the_earlier_call_was_it_never_sends_anything() {
    for corrected in [CorrectedTo::NotHappened, CorrectedTo::Skipped] {
        let (parent, child) = lineage().await;
        let first = parent.plan_as(unlisted("a book")).await;
        let first = parent.take(&first, &Facts::default(), Fate::Done).await;
        let id = child.plan_as(unlisted("a book")).await;
        let Admission::Held(question) = admit(&child, &id).await else { panic!("it is not asked about") };
        child.answer(&question, Choice::Happened).await;
        let mut correct = samples::correct(&first, corrected, 90);
        correct.is_idle = true;
        parent.store.correct_call(correct).await.unwrap();
        // It was shown as done, and nobody knows any more, or it is known not to be.
        let Admission::Held(again) = admit(&child, &id).await else { panic!("{corrected:?}: it is not asked again") };
        assert_ne!(again.question_id, question.question_id);
        assert!(again.text.contains(first.call_id.as_str()), "{}", again.text);
        child.answer(&again, Choice::Skip).await;
        let Admission::Settled(call) = admit(&child, &id).await else { panic!("{corrected:?}: it is sent") };
        assert_eq!((call.status, call.attempt), (CallStatus::Cancelled, 0));
    }
}

/// A call that did nothing, and whose effect another one had since: a person says so, and that is its record; where the key says it, its model is told.
#[tokio::test]
async fn what_another_call_did_since_is_no_failure_of_the_one_that_did_nothing() {
    for fate in [Fate::NotSent, Fate::Unauthorized] {
        let (parent, child) = lineage().await;
        let id = child.plan_as(unlisted("a book")).await;
        let failed = child.take(&id, &Facts::default(), Fate::NotSent).await;
        assert_eq!(failed.status, CallStatus::FailedDefinite);
        let other = parent.plan_as(unlisted("a book")).await;
        let other = parent.take(&other, &Facts::default(), Fate::Done).await;
        let Admission::Held(question) = admit(&child, &id).await else { panic!("it is not asked about") };
        assert!(question.choices.contains(&Choice::Happened), "{:?}", question.choices);
        child.answer(&question, Choice::Happened).await;
        let Admission::Settled(call) = admit(&child, &id).await else { panic!("it is not settled") };
        let correction = call.correction.clone().unwrap();
        assert_eq!((call.status, call.attempt, correction.outcome), (CallStatus::Succeeded, 1, CorrectedTo::Happened));
        assert!(correction.reason.contains(other.call_id.as_str()), "{}", correction.reason);
        assert_eq!(call.answered_by(), Some(&other.call_id));
        let asked = child.store.question(&question.question_id).await.unwrap();
        assert_eq!(asked.status, QuestionStatus::Closed);
        assert!(asked.answer.unwrap().applied_at.is_some());
        // Its model reads what the other call brought back, and who says that this is its answer.
        let receipt = child.store.receipt(call.answered_by().unwrap()).await.unwrap();
        let told =
            ua_ledger::answer_for(&call, receipt.as_ref(), ua_core::Audience::Terminal).unwrap().text.to_string();
        assert!(told.contains(&correction.sentence()) && told.ends_with("done"), "{told}");
        let broken = ua_store::invariants::check(
            &child.store.load(&child.lease.run_id).await.unwrap(),
            &child.store.events(&call.call_id).await.unwrap(),
        );
        let is_about_it = |one: &&ua_store::invariants::Violation| one.row == call.call_id.to_string();
        assert_eq!(broken.iter().filter(is_about_it).count(), 0, "{broken:?}");

        // Declared: the key says it.
        let failed = child.sent(&FIRST, fate).await;
        assert!(child.ledger.done_by_others(std::slice::from_ref(&failed)).await.unwrap().is_empty());
        let other = parent.sent(&FIRST, Fate::Done).await;
        let failed = child.settled(&failed.call_id, &FIRST).await;
        let told = child.ledger.done_by_others(&[failed]).await.unwrap();
        assert!(told.len() == 1 && told[0].contains(other.call_id.as_str()), "{told:?}");
        let again = child.plan(&FIRST).await;
        let again = child.settled(&again, &FIRST).await;
        assert_eq!(again.deduplicated_from, Some(other.call_id));
    }
}

/// Puts a record right just before the next write that makes one call the answer of another.
struct InBetween(Mutex<Option<CorrectCall>>);

#[async_trait]
impl Writes for InBetween {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let is_it = |change: &Change| matches!(change, Change::Correct(_) | Change::Deduplicate { .. });
        let word = if batch.changes().any(is_it) { self.0.lock().unwrap().take() } else { None };
        if let Some(word) = word {
            inner.correct_call(word).await?;
        }
        inner.commit(by, batch).await
    }
}

/// Over what a person may put right in the moment in which a word about it is acted on: nothing is sent, no process ends of it, and what is recorded
/// is what was said last.
#[tokio::test]
async fn a_record_that_is_put_right_while_a_word_about_it_is_acted_on_is_looked_at_again() {
    for was_sent in [false, true] {
        for of_other in [false, true] {
            for outcome in [CorrectedTo::Happened, CorrectedTo::NotHappened, CorrectedTo::Skipped] {
                let (parent, child) = lineage().await;
                let id = child.plan_as(unlisted("a book")).await;
                if was_sent {
                    child.take(&id, &Facts::default(), Fate::NotSent).await;
                }
                let other = parent.plan_as(unlisted("a book")).await;
                let other = parent.take(&other, &Facts::default(), Fate::Done).await;
                let Admission::Held(question) = admit(&child, &id).await else { panic!("it is not asked about") };
                child.answer(&question, Choice::Happened).await;

                let about = if of_other { other.clone() } else { child.store.call(&id).await.unwrap() };
                if about.status.on(outcome.event()).is_err() {
                    continue;
                }
                let word = CorrectCall { is_idle: true, ..samples::correct(&about, outcome, 90) };
                let seam = StoreSeam::new(child.store.clone(), Arc::new(Undisturbed));
                let seam = seam.with_writes(Arc::new(InBetween(Mutex::new(Some(word)))));
                let child = child.behind(Arc::new(seam)).await;
                let at = format!("sent: {was_sent}, of the other one: {of_other}, {outcome}");
                let admission = child.ledger.admit(&id, Facts::default()).await;
                let admission = admission.unwrap_or_else(|error| panic!("{at}: {error}"));
                let call = child.store.call(&id).await.unwrap();
                assert!(!matches!(admission, Admission::Ready(_)), "{at}: {admission:?}");
                assert_eq!(call.attempt, u32::from(was_sent), "{at}");
                let status = if of_other {
                    if was_sent { CallStatus::FailedDefinite } else { CallStatus::Prepared }
                } else {
                    about.status.on(outcome.event()).unwrap()
                };
                assert_eq!((call.status, call.answered_by()), (status, None), "{at}");
            }
        }
    }
}

/// What another run did at another place or account is not what a call was to do that failed here: nobody is told that it is done, and the word that
/// it may be tried again is heard.
#[tokio::test]
async fn what_was_done_somewhere_else_does_not_settle_a_call_that_failed_here() {
    let at = |account: &str| Facts { destination: Some(samples::destination(account)), ..FIRST.facts() };
    for (there, is_elsewhere) in [("ours", false), ("theirs", true)] {
        let (parent, child) = lineage().await;
        let child = child.asking(PeopleRules { ask_on_auth_failure: true, ..PeopleRules::default() });
        let id = child.plan(&FIRST).await;
        let failed = child.take(&id, &at("ours"), Fate::Unauthorized).await;
        let Admission::Held(credentials) = child.ledger.admit(&id, at("ours")).await.unwrap() else {
            panic!("nobody is asked for credentials")
        };
        let other = parent.plan(&FIRST).await;
        let other = parent.take(&other, &at(there), Fate::Done).await;
        let told = child.ledger.done_by_others(std::slice::from_ref(&failed)).await.unwrap();
        assert_eq!(told.is_empty(), is_elsewhere, "{told:?}");

        child.answer(&credentials, Choice::Continue).await;
        match child.ledger.admit(&id, at("ours")).await.unwrap() {
            Admission::Settled(call) => {
                assert!(!is_elsewhere && call.status == CallStatus::FailedDefinite, "{call:?}");
                let heard = child.store.question(&credentials.question_id).await.unwrap();
                assert_eq!(heard.status, QuestionStatus::Closed, "a word that was given is acted on");
            }
            Admission::Held(asked) => {
                assert!(is_elsewhere && asked.kind == QuestionKind::NearDuplicate, "{asked:?}");
                assert!(asked.text.contains(other.call_id.as_str()), "{}", asked.text);
                child.answer(&asked, Choice::Execute).await;
                let sent = child.take(&id, &at("ours"), Fate::Done).await;
                assert_eq!((sent.status, sent.attempt), (CallStatus::Succeeded, 2));
                assert_ne!(sent.idempotency_key, other.idempotency_key, "it is an effect of its own");
            }
            Admission::Ready(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_) => panic!("{there}: it is neither asked about nor settled"),
        }
    }
}
