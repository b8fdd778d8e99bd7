//! What nobody knows the outcome of blocks what might repeat it, as long as that is so and no longer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use ua_core::{
    Audience, CallPolicy, CallStatus, ClassSource, EffectKind, KeyChannel, OnUnknown, Outcome, PlannedCall, RawReply,
    Resolution, RunStatus, Scope, SideEffectClass, ToolName, ToolNamespace, sha256,
};
use ua_ledger::{Admission, Facts, Recovery, settle_late_answers};
use ua_store::conformance::samples;
use ua_store::{CallRecord, Choice, LedgerStore as _, QuestionKind, QuestionRecord, QuestionStatus, RunStore as _};

use super::member::{FIRST, Fate, Member, OTHER_WORDS, lineage};

/// A comment, by a tool that nobody declared anything about.
fn comment(words: &'static str, on_unknown: OnUnknown) -> impl Fn(&str, u32) -> PlannedCall {
    move |id, turn| PlannedCall {
        name: ToolName::qualified(ToolNamespace::Mcp, "forum", "comment"),
        arguments: json!({"text": words}).into(),
        args_hash: sha256(words),
        policy: CallPolicy { class: SideEffectClass::External, on_unknown, ..CallPolicy::unclassified() }.into(),
        ..samples::planned_call(id, turn, 1)
    }
}

/// An upload to a place: it replaces what is there, so it is no creating effect.
fn put(words: &'static str) -> impl Fn(&str, u32) -> PlannedCall {
    move |id, turn| {
        let mut call = comment(words, OnUnknown::Hold)(id, turn);
        call.policy.effect_kind = EffectKind::parse("object.put");
        call
    }
}

fn place() -> Facts {
    Facts { scope: Some(Scope::new("object.put", "bucket/key")), ..Facts::default() }
}

async fn sent(
    member: &Member,
    planned: impl FnOnce(&str, u32) -> PlannedCall,
    facts: &Facts,
    outcome: Outcome,
) -> CallRecord {
    let id = member.plan_as(planned).await;
    let admission = member.ledger.admit(&id, facts.clone()).await.unwrap();
    let Admission::Ready(prepared) = admission else { panic!("not let through: {admission:?}") };
    let permit = member.ledger.start(prepared, "1").await.unwrap().unwrap();
    member.ledger.settle(permit, outcome).await.unwrap()
}

fn lost() -> Outcome {
    Outcome::Lost { why: "the connection was cut".to_owned() }
}

fn done() -> Outcome {
    Outcome::Raw(samples::raw())
}

/// What the ledger does about an unknown call.
async fn recovered(member: &Member, call: &CallRecord, facts: &Facts) -> Admission {
    let admission = member.ledger.admit(&call.call_id, facts.clone()).await.unwrap();
    // Who leaves it is heard before its process is waited for.
    let Admission::Unknown(unknown) = admission else { return admission };
    let Recovery::Decided(admission) = member.ledger.recover(&unknown, facts).await.unwrap() else {
        panic!("undecided")
    };
    *admission
}

async fn skip(member: &Member, call: &CallRecord, facts: &Facts) {
    let Admission::Held(question) = recovered(member, call, facts).await else { panic!("not held") };
    member.answer(&question, Choice::Skip).await;
    let Admission::Settled(call) = recovered(member, call, facts).await else { panic!("not settled") };
    assert_eq!((call.status, call.resolution), (CallStatus::Unknown, Some(Resolution::Skipped)));
}

/// Whether a call is held as a near-duplicate; it has to be ready otherwise.
async fn held(
    member: &Member,
    planned: impl FnOnce(&str, u32) -> PlannedCall,
    facts: &Facts,
) -> Option<QuestionRecord> {
    let id = member.plan_as(planned).await;
    match member.ledger.admit(&id, facts.clone()).await.unwrap() {
        Admission::Held(question) => {
            assert_eq!(question.kind, QuestionKind::NearDuplicate);
            Some(question)
        }
        Admission::Ready(_) => None,
        other @ (Admission::Settled(_)
        | Admission::Continues(_)
        | Admission::Ongoing(_)
        | Admission::WaitFor(_)
        | Admission::Unknown(_)) => {
            panic!("{other:?}")
        }
    }
}

async fn open(member: &Member) -> usize {
    member.store.open_questions(None).await.unwrap().len()
}

#[tokio::test]
async fn a_skipped_call_without_a_scope_blocks_the_same_words_and_no_others() {
    let nothing = Facts::default();
    for by_child in [false, true] {
        let (parent, child) = lineage().await;
        let doubt = Box::pin(sent(&parent, comment("hello", OnUnknown::Hold), &nothing, lost())).await;
        skip(&parent, &doubt, &nothing).await;
        let member = if by_child { &child } else { &parent };
        assert!(held(member, comment("hello", OnUnknown::Hold), &nothing).await.is_some(), "{by_child}");
    }
    let (parent, _) = lineage().await;
    let doubt = Box::pin(sent(&parent, comment("hello", OnUnknown::Hold), &nothing, lost())).await;
    skip(&parent, &doubt, &nothing).await;
    assert!(held(&parent, comment("good bye", OnUnknown::Hold), &nothing).await.is_none());
}

#[tokio::test]
async fn the_same_words_may_be_repeated_where_that_does_no_harm() {
    let nothing = Facts::default();
    let (parent, _) = lineage().await;
    let replace = |id: &str, turn: u32| {
        let mut call = comment("report.md", OnUnknown::Redo)(id, turn);
        call.policy.class = SideEffectClass::Local;
        call
    };
    let first = Box::pin(sent(&parent, replace, &nothing, lost())).await;
    // Given up by a person, after the retries were used up.
    parent
        .store
        .resolve_unknown(&parent.lease, &first.call_id, ua_store::UnknownResolution::Skipped, None, samples::at(30))
        .await
        .unwrap();
    assert!(held(&parent, replace, &nothing).await.is_none());
}

#[tokio::test]
async fn what_replaces_may_be_wanted_again_once_it_is_done_and_not_while_it_is_in_doubt() {
    let failed_maybe = || {
        let result = json!({"content": [{"type": "text", "text": "timed out"}], "isError": true});
        Outcome::Raw(ua_core::RawReply::ToolResult { result })
    };
    for (outcome, conflict) in [(done(), false), (lost(), true), (failed_maybe(), true)] {
        for by_child in [false, true] {
            let (parent, child) = lineage().await;
            let first = Box::pin(sent(&parent, put("one"), &place(), outcome.clone())).await;
            if first.status == CallStatus::Unknown && !by_child {
                skip(&parent, &first, &place()).await;
            }
            let member = if by_child { &child } else { &parent };
            let question = held(member, put("two"), &place()).await;
            assert_eq!(question.is_some(), conflict, "{outcome:?}, by the child: {by_child}");
        }
    }
}

#[tokio::test]
async fn two_puts_to_one_place_that_are_admitted_at_once_do_not_both_start() {
    let (parent, child) = lineage().await;
    let (one, two) = (parent.plan_as(put("one")).await, child.plan_as(put("two")).await);
    let Admission::Ready(first) = parent.ledger.admit(&one, place()).await.unwrap() else { panic!("not let through") };
    let Admission::Ready(second) = child.ledger.admit(&two, place()).await.unwrap() else { panic!("not let through") };
    assert!(parent.ledger.start(first, "1").await.unwrap().is_some());
    assert!(child.ledger.start(second, "1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_question_about_a_running_twin_is_withdrawn_when_the_twin_is_settled() {
    for (status, deduplicated) in [(CallStatus::Succeeded, true), (CallStatus::FailedDefinite, false)] {
        let (parent, child) = lineage().await;
        let twin = parent.sent(&FIRST, Fate::UnderWay).await;
        let (id, asked) = child.near_duplicate(&FIRST).await;
        // As long as it runs, the same question stays.
        let Admission::Held(again) = child.admit(&id, &FIRST).await else { panic!("not held") };
        assert_eq!(again.question_id, asked.question_id);
        let end = samples::settle(twin.call_id.as_str(), 1, status);
        parent.store.settle_attempt(&parent.lease, end).await.unwrap();
        match child.admit(&id, &FIRST).await {
            Admission::Settled(call) if deduplicated => assert_eq!(call.deduplicated_from, Some(twin.call_id)),
            Admission::Ready(_) if !deduplicated => {}
            other @ (Admission::Settled(_)
            | Admission::Held(_)
            | Admission::Ready(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_)) => panic!("{status}: {other:?}"),
        }
        assert_eq!(open(&child).await, 0, "{status}");
    }
}

#[tokio::test]
async fn a_question_about_a_near_duplicate_says_how_that_one_stands() {
    let (parent, child) = lineage().await;
    let other = parent.sent(&FIRST, Fate::UnderWay).await;
    let (id, asked) = child.near_duplicate(&OTHER_WORDS).await;
    let end = samples::settle(other.call_id.as_str(), 1, CallStatus::Succeeded);
    parent.store.settle_attempt(&parent.lease, end).await.unwrap();
    // Whoever reads it is told what happened meanwhile, and whoever answers the one before is not heard about that.
    let Admission::Held(anew) = child.admit(&id, &OTHER_WORDS).await else { panic!("not held") };
    assert_ne!(anew.question_id, asked.question_id);
    assert!(
        asked.text.contains("its process ended") && anew.text.contains("succeeded"),
        "{}\n{}",
        asked.text,
        anew.text
    );
    assert_eq!(open(&child).await, 1);
    let Admission::Held(still) = child.admit(&id, &OTHER_WORDS).await else { panic!("not held") };
    assert_eq!(still.question_id, anew.question_id);
}

/// A doubt that its run went on without, and the question that stays.
pub(crate) async fn left_open(member: &Member) -> (CallRecord, QuestionRecord) {
    let nothing = Facts::default();
    let doubt = Box::pin(sent(member, comment("hello", OnUnknown::Continue), &nothing, lost())).await;
    let Admission::Settled(call) = Box::pin(recovered(member, &doubt, &nothing)).await else {
        panic!("not gone on without")
    };
    let question = member.store.open_questions(None).await.unwrap().remove(0);
    (call, question)
}

#[tokio::test]
async fn a_doubt_that_is_gone_on_without_blocks_its_tool_in_the_whole_lineage() {
    let nothing = Facts::default();
    let (parent, child) = lineage().await;
    Box::pin(left_open(&parent)).await;
    assert!(held(&child, comment("other words", OnUnknown::Continue), &nothing).await.is_some());
    assert!(held(&parent, comment("more words", OnUnknown::Continue), &nothing).await.is_some());
}

#[tokio::test]
async fn a_late_answer_frees_the_lineage_once_its_run_has_ended() {
    let nothing = Facts::default();
    let (parent, child) = lineage().await;
    let (doubt, question) = Box::pin(left_open(&parent)).await;
    parent.answer(&question, Choice::Execute).await;
    // Its owner applies it, and that is not the child.
    let id = child.plan_as(comment("other words", OnUnknown::Continue)).await;
    let admission = child.ledger.admit(&id, nothing.clone()).await.unwrap();
    assert!(matches!(&admission, Admission::Held(_)), "{admission:?}");
    assert_eq!(settle_late_answers(parent.store.as_ref(), child.ledger.env(), &parent.lease.run_id).await.unwrap(), []);

    let commit = samples::commit(&format!("step_{}", parent.lease.run_id), 1, "ckpt_last");
    parent.store.commit_turn(&parent.lease, commit).await.unwrap();
    parent.store.end_run(&parent.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
    let admission = child.ledger.admit(&id, nothing).await.unwrap();
    assert!(matches!(&admission, Admission::Ready(_)), "{admission:?}");
    let settled = parent.store.call(&doubt.call_id).await.unwrap();
    assert_eq!((settled.status, settled.resolution), (CallStatus::FailedDefinite, Some(Resolution::NotHappened)));
    assert_eq!(open(&child).await, 0);
}

#[tokio::test]
async fn a_late_answer_settles_a_call_of_a_finished_run() {
    for (choice, status) in [
        (Choice::Happened, CallStatus::Succeeded),
        (Choice::Execute, CallStatus::FailedDefinite),
        (Choice::Skip, CallStatus::Unknown),
    ] {
        let (parent, _) = lineage().await;
        let (doubt, question) = Box::pin(left_open(&parent)).await;
        let commit = samples::commit(&format!("step_{}", parent.lease.run_id), 1, "ckpt_last");
        parent.store.commit_turn(&parent.lease, commit).await.unwrap();
        parent.store.end_run(&parent.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
        parent.answer(&question, choice).await;
        let settled =
            settle_late_answers(parent.store.as_ref(), parent.ledger.env(), &parent.lease.run_id).await.unwrap();
        assert_eq!(
            settled.iter().map(|call| (&call.call_id, call.status)).collect::<Vec<_>>(),
            [(&doubt.call_id, status)]
        );
        assert_eq!(open(&parent).await, 0, "{status}");
        // Once.
        let again =
            settle_late_answers(parent.store.as_ref(), parent.ledger.env(), &parent.lease.run_id).await.unwrap();
        assert_eq!(again, [], "{status}");
        let questions = parent.store.load(&parent.lease.run_id).await.unwrap().questions;
        assert!(questions.iter().all(|question| question.status == QuestionStatus::Closed));
    }
}

/// A machine sleeps, or a tool server takes its time, between the judgement and the send.
#[tokio::test]
async fn a_repeat_that_rests_on_its_key_does_not_outlive_it() {
    let life = Duration::from_mins(1);
    let keyed = |id: &str, turn: u32| {
        let mut call = comment("hi", OnUnknown::RedoKeyed)(id, turn);
        (call.policy.key_channel, call.policy.key_ttl) = (Some(KeyChannel::Meta), Some(life));
        call
    };
    for has_started in [false, true] {
        let (member, _child) = lineage().await;
        let facts = Facts::default();
        let call = sent(&member, keyed, &facts, lost()).await;
        let Admission::Ready(prepared) = recovered(&member, &call, &facts).await else { panic!("not repeated") };
        assert!(member.ledger.age(&prepared) < life);
        let clock = Arc::clone(&member.ledger.env().clock);
        if has_started {
            let permit = member.ledger.start(prepared, "2").await.unwrap().unwrap();
            assert!(member.ledger.confirm(&permit).await.unwrap());
            clock.sleep(life).await;
            assert!(!member.ledger.confirm(&permit).await.unwrap(), "it is not sent");
            let not_sent = Outcome::NotSent { why: "too late".to_owned() };
            member.ledger.settle(permit, not_sent).await.unwrap();
        } else {
            clock.sleep(life).await;
            assert!(member.ledger.age(&prepared) >= life);
            assert!(member.ledger.start(prepared, "2").await.unwrap().is_none(), "it is not started");
        }
        let Admission::Held(question) = recovered(&member, &call, &facts).await else { panic!("not asked") };
        assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{}", question.text);
    }
}

/// That a tool only reads is a guess where only its name says so: that the second attempt was refused does not say it of the lost one.
#[tokio::test]
async fn a_read_by_its_name_that_was_lost_and_refused_then_is_not_said_to_have_done_nothing() {
    let refused = |status| {
        Outcome::Raw(RawReply::HttpStatus { status, body: "no".to_owned(), of_session: false, retry_after: None })
    };
    for source in [ClassSource::Name, ClassSource::UserPolicy] {
        for status in [400, 403] {
            let (member, _) = lineage().await;
            let nothing = Facts::default();
            let planned = |id: &str, turn| {
                let mut call = comment("which refund", OnUnknown::Redo)(id, turn);
                call.policy.class = SideEffectClass::ReadOnly;
                call.policy.class_source = source;
                call
            };
            let first = sent(&member, planned, &nothing, lost()).await;
            let Admission::Ready(again) = recovered(&member, &first, &nothing).await else { panic!("not made again") };
            let permit = member.ledger.start(again, "1").await.unwrap().unwrap();
            let call = member.ledger.settle(permit, refused(status)).await.unwrap();
            assert_eq!((call.status, call.attempt), (CallStatus::FailedDefinite, 2));
            let is_guess = source == ClassSource::Name;
            assert_eq!(call.loss_left_open().is_some(), is_guess, "{:?}", call.error_detail);
            let told = ua_ledger::answer_for(&call, None, Audience::default()).unwrap();
            let said = format!("{:?}", told.text);
            assert_eq!(said.contains("Nothing happened"), !is_guess, "{said}");
            assert_eq!(said.contains("nobody knows what came of attempt 1"), is_guess, "{said}");
        }
    }
}
