//! A call of which a person says that an earlier one was it: it has that one's answer, counts as it, and is never sent.

use serde_json::json;
use ua_core::{
    CallId, CallStatus, CorrectedTo, OnUnknown, PlannedCall, Resolution, SideEffectClass, ToolName, ToolNamespace,
    sha256,
};
use ua_ledger::{Admission, Facts, PeopleRules};
use ua_store::conformance::samples;
use ua_store::{Choice, LedgerStore as _, QuestionKind, QuestionStatus, RunStore as _};

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
        let asked = child.store.question(&question.question_id).await.unwrap();
        assert_eq!(asked.status, QuestionStatus::Closed);

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
