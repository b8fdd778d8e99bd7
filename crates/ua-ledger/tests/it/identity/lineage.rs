//! Twins and near-duplicates: one effect per lineage, whoever asks for it, in whatever words and by whatever route.

use std::sync::Arc;

use ua_core::{CallStatus, OnScopeConflict, Resolution};
use ua_ledger::{Admission, Recovery};
use ua_store::conformance::samples;
use ua_store::{Choice, MemStore, QuestionKind, RunStore as _};

use super::member::{Ask, ELSEWHERE, FIRST, Fate, Member, OTHER_ROUTE, OTHER_WORDS, lineage};

#[tokio::test]
async fn the_same_words_get_the_first_receipt_anywhere_in_the_lineage() {
    let (parent, child) = lineage().await;
    let first = parent.sent(&FIRST, Fate::Done).await;
    for member in [&parent, &child] {
        let id = member.plan(&FIRST).await;
        let twin = member.settled(&id, &FIRST).await;
        assert_eq!((twin.status, twin.deduplicated_from), (CallStatus::Succeeded, Some(first.call_id.clone())));
        assert_eq!(twin.attempt, 0);
    }
}

/// What an earlier call came to, and whether a later one with its scope is a near-duplicate: in other words, in the same words, and in
/// the same words by another route.
#[tokio::test]
async fn what_may_have_happened_is_a_conflict_and_what_did_not_is_none() {
    let cases = [
        (Fate::Done, [true, false, true]),
        (Fate::FailedMaybe, [true, true, true]),
        (Fate::Lost, [true, true, true]),
        (Fate::UnderWay, [true, true, true]),
        (Fate::FailedNone, [false, false, false]),
        (Fate::NotSent, [false, false, false]),
    ];
    for (fate, wanted) in cases {
        for (later, wanted) in [OTHER_WORDS, FIRST, OTHER_ROUTE].iter().zip(wanted) {
            for by_child in [false, true] {
                let at = format!("{fate:?}, then {later:?}, by the child: {by_child}");
                if fate == Fate::UnderWay && !by_child {
                    continue; // in one run, effects go one after the other
                }
                let (parent, child) = lineage().await;
                let first = parent.sent(&FIRST, fate).await;
                if fate == Fate::Lost && !by_child {
                    parent.skip(&first, &FIRST).await; // before that, its turn does not end
                }
                let member = if by_child { &child } else { &parent };
                let id = member.plan(later).await;
                let admission = member.admit(&id, later).await;
                let is_twin = fate == Fate::Done && (later.words, later.server) == (FIRST.words, FIRST.server);
                match admission {
                    Admission::Held(question) if wanted => assert_eq!(question.kind, QuestionKind::NearDuplicate),
                    Admission::Settled(call) if is_twin => assert_eq!(call.deduplicated_from, Some(first.call_id)),
                    Admission::Ready(_) if !wanted && !is_twin => {}
                    other @ (Admission::Settled(_)
                    | Admission::Held(_)
                    | Admission::Ready(_)
                    | Admission::Continues(_)
                    | Admission::Ongoing(_)
                    | Admission::WaitFor(_)
                    | Admission::Unknown(_)) => panic!("{at}: {other:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn another_scope_is_another_effect() {
    let (parent, child) = lineage().await;
    parent.sent(&FIRST, Fate::Done).await;
    assert_eq!(child.sent(&ELSEWHERE, Fate::Done).await.deduplicated_from, None);
}

#[tokio::test]
async fn runs_that_are_no_kin_share_nothing_and_wait_for_nothing() {
    let store = Arc::new(MemStore::default());
    let one = Member::of(&store, samples::new_run("run_1"), true).await;
    let two = Member::of(&store, samples::new_run("run_2"), true).await;
    let first = one.sent(&FIRST, Fate::UnderWay).await;
    let second = two.sent(&FIRST, Fate::Done).await;
    assert_eq!((second.status, &second.deduplicated_from), (CallStatus::Succeeded, &None));
    assert_ne!(first.idempotency_key, second.idempotency_key);
}

#[tokio::test]
async fn an_approved_repeat_is_an_effect_with_a_key_of_its_own() {
    let (parent, child) = lineage().await;
    // The same words, so the key by content is the same.
    let first = parent.sent(&FIRST, Fate::FailedMaybe).await;
    let (id, question) = child.near_duplicate(&FIRST).await;
    child.answer(&question, Choice::Execute).await;
    let repeat = child.run(&id, &FIRST, Fate::Done).await;
    assert_eq!((repeat.status, &repeat.scope), (CallStatus::Succeeded, &first.scope));
    assert_ne!(repeat.idempotency_key, first.idempotency_key);
    assert_eq!(child.store.open_questions(None).await.unwrap(), []);
    // The answer was good for that call alone.
    child.near_duplicate(&OTHER_WORDS).await;
}

#[tokio::test]
async fn an_approved_repeat_keeps_its_key_and_its_approval_through_a_definite_failure() {
    let (parent, child) = lineage().await;
    parent.sent(&FIRST, Fate::Done).await;
    let (id, question) = child.near_duplicate(&OTHER_WORDS).await;
    child.answer(&question, Choice::Execute).await;
    let failed = child.run(&id, &OTHER_WORDS, Fate::NotSent).await;
    assert_eq!(failed.status, CallStatus::FailedDefinite);
    let done = child.run(&id, &OTHER_WORDS, Fate::Done).await;
    assert_eq!((done.status, done.attempt), (CallStatus::Succeeded, 2));
    assert_eq!(done.idempotency_key, failed.idempotency_key);
}

#[tokio::test]
async fn a_declined_repeat_is_never_sent_and_asked_about_again_when_it_comes_again() {
    let (parent, _) = lineage().await;
    parent.sent(&FIRST, Fate::Done).await;
    let (id, question) = parent.near_duplicate(&OTHER_WORDS).await;
    parent.answer(&question, Choice::Skip).await;
    let declined = parent.settled(&id, &OTHER_WORDS).await;
    assert_eq!((declined.status, declined.resolution), (CallStatus::Cancelled, Some(Resolution::Skipped)));
    assert_eq!((declined.attempt, parent.store.open_questions(None).await.unwrap()), (0, Vec::new()));
    parent.near_duplicate(&OTHER_WORDS).await;
}

#[tokio::test]
async fn a_policy_refuses_a_near_duplicate_and_tells_the_model() {
    let (parent, child) = lineage().await;
    let first = parent.sent(&FIRST, Fate::Done).await;
    let refusing = Ask { on_conflict: OnScopeConflict::Refuse, ..OTHER_WORDS };
    let id = child.plan(&refusing).await;
    let refused = child.settled(&id, &refusing).await;
    assert_eq!((refused.status, refused.error_code.as_deref()), (CallStatus::Cancelled, Some("near_duplicate")));
    assert!(refused.error_detail.unwrap().contains(first.call_id.as_str()));
    assert_eq!(child.store.open_questions(None).await.unwrap(), []);
}

#[tokio::test]
async fn a_policy_that_allows_near_duplicates_still_knows_twins_scopes_and_approvals() {
    let (parent, child) = lineage().await;
    let first = parent.sent(&FIRST, Fate::Done).await;
    let allowing = Ask { on_conflict: OnScopeConflict::Allow, ..OTHER_WORDS };
    let second = child.sent(&allowing, Fate::Done).await;
    assert_eq!((&second.scope, &second.file_digests), (&first.scope, &first.file_digests));
    // The same words a second time are the same effect.
    let id = child.plan(&allowing).await;
    assert_eq!(child.settled(&id, &allowing).await.deduplicated_from, Some(second.call_id));
    // Beside a twin of which nobody knows what came a person is asked, and a repeat has a key of its own.
    let lost = Ask { scope: "the board", words: "Dear board", ..allowing.clone() };
    let unknown = parent.sent(&lost, Fate::Lost).await;
    let (id, question) = child.near_duplicate(&lost).await;
    child.answer(&question, Choice::Execute).await;
    let beside = child.run(&id, &lost, Fate::Done).await;
    assert_ne!(beside.idempotency_key, unknown.idempotency_key);
    // To allow near-duplicates is not to approve of the call.
    let approved = Ask { needs_approval: true, words: "Good day boss", ..allowing };
    let id = child.plan(&approved).await;
    child.held(&id, &approved, QuestionKind::Approval).await;
}

#[tokio::test]
async fn an_approval_does_not_cover_a_near_duplicate_that_came_after_it() {
    let (parent, child) = lineage().await;
    let careful = Ask { needs_approval: true, ..OTHER_WORDS };
    let id = child.plan(&careful).await;
    let approval = child.held(&id, &careful, QuestionKind::Approval).await;
    child.answer(&approval, Choice::Execute).await;
    parent.sent(&FIRST, Fate::Done).await;
    let question = child.held(&id, &careful, QuestionKind::NearDuplicate).await;
    // To let it run in spite of that is an approval too.
    child.answer(&question, Choice::Execute).await;
    assert_eq!(child.run(&id, &careful, Fate::Done).await.status, CallStatus::Succeeded);
}

#[tokio::test]
async fn two_near_duplicates_that_are_admitted_at_once_do_not_both_start() {
    let (parent, child) = lineage().await;
    let (one, two) = (parent.plan(&FIRST).await, child.plan(&OTHER_WORDS).await);
    let Admission::Ready(first) = parent.admit(&one, &FIRST).await else { panic!("not let through") };
    let Admission::Ready(second) = child.admit(&two, &OTHER_WORDS).await else { panic!("not let through") };
    assert!(parent.ledger.start(first, "1").await.unwrap().is_some());
    assert!(child.ledger.start(second, "1").await.unwrap().is_none());
    child.held(&two, &OTHER_WORDS, QuestionKind::NearDuplicate).await;
}

#[tokio::test]
async fn a_definite_failure_is_not_retried_once_another_run_may_have_had_the_effect() {
    let (parent, child) = lineage().await;
    let failed = parent.sent(&FIRST, Fate::NotSent).await;
    child.sent(&OTHER_WORDS, Fate::Done).await;
    let Admission::Held(asked) = parent.admit(&failed.call_id, &FIRST).await else { panic!("not asked about") };
    assert_eq!(asked.kind, QuestionKind::NearDuplicate);
    parent.answer(&asked, Choice::Skip).await;
    let call = parent.settled(&failed.call_id, &FIRST).await;
    assert_eq!((call.status, call.attempt), (CallStatus::FailedDefinite, 1));
}

#[tokio::test]
async fn a_job_that_wants_repeats_gets_them() {
    let store = Arc::new(MemStore::default());
    let run = Member::of(&store, samples::new_run("run_1"), false).await;
    for ask in [&FIRST, &FIRST, &OTHER_WORDS] {
        assert_eq!(run.sent(ask, Fate::Done).await.deduplicated_from, None);
    }
}

/// What nobody could look at may be another thing each time.
#[tokio::test]
async fn an_effect_of_unknown_content_is_asked_about_and_not_taken_for_the_same() {
    for on_conflict in [OnScopeConflict::Ask, OnScopeConflict::Allow] {
        let (parent, _) = lineage().await;
        let ask = Ask { on_conflict, ..FIRST };
        let id = parent.plan(&ask).await;
        let first = parent.take(&id, &ask.unseen(), Fate::Done).await;
        assert_eq!((first.status, first.file_digests.len()), (CallStatus::Succeeded, 0));
        let id = parent.plan(&ask).await;
        let admission = parent.ledger.admit(&id, ask.unseen()).await.unwrap();
        let Admission::Held(question) = admission else { panic!("{on_conflict}: {admission:?}") };
        assert_eq!(question.kind, QuestionKind::NearDuplicate);
        assert!(question.text.contains("could not be looked at"), "{}", question.text);
        parent.answer(&question, Choice::Execute).await;
        let second = parent.take(&id, &ask.unseen(), Fate::Done).await;
        assert_ne!(second.idempotency_key, first.idempotency_key);
    }
}

/// A key says that it is the same request; nobody can say it of a file that cannot be looked at.
#[tokio::test]
async fn a_lost_call_whose_file_cannot_be_looked_at_is_not_sent_again_by_itself() {
    for is_seen in [true, false] {
        let (parent, _) = lineage().await;
        let id = parent
            .plan_as(|id, turn| {
                let mut call = FIRST.planned(id, turn);
                call.policy.on_unknown = ua_core::OnUnknown::RedoKeyed;
                call.policy.key_channel = Some(ua_core::KeyChannel::Meta);
                call
            })
            .await;
        let facts = if is_seen { FIRST.facts() } else { FIRST.unseen() };
        parent.take(&id, &facts, Fate::Lost).await;
        let Admission::Unknown(unknown) = parent.ledger.admit(&id, facts.clone()).await.unwrap() else { panic!() };
        let Recovery::Decided(decided) = parent.ledger.recover(&unknown, &facts).await.unwrap() else { panic!() };
        match *decided {
            Admission::Ready(_) => assert!(is_seen),
            Admission::Held(question) => {
                assert!(!is_seen && question.text.contains("cannot be looked at"), "{}", question.text);
            }
            other @ (Admission::Settled(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_)) => panic!("{other:?}"),
        }
    }
}
