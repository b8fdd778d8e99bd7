//! What a fork and its parent must not both do, although nothing declares it as an effect.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use ua_core::{
    CallId, CallStatus, EffectKind, OnScopeConflict, OnUnknown, Outcome, PlannedCall, Scope, SideEffectClass, ToolName,
    ToolNamespace, sha256,
};
use ua_ledger::{Admission, Facts, Recovery};
use ua_store::conformance::samples;
use ua_store::{Choice, MemStore, NewAnswer, NewRun, QuestionKind, QuestionRecord, RunStore as _};

use super::member::{Fate, Member};

/// A call that no rule knows: by its position, with these words.
fn unlisted(words: &'static str, class: SideEffectClass) -> impl Fn(&str, u32) -> PlannedCall {
    move |id, turn| {
        let mut call = samples::planned_call(id, turn, 1);
        call.name = ToolName::qualified(ToolNamespace::Mcp, "shop", "order");
        call.arguments = json!({"what": words}).into();
        call.args_hash = sha256(words);
        call.policy.class = class;
        call.policy.on_unknown = OnUnknown::Hold;
        call
    }
}

/// A run and its fork, neither of which did anything yet.
async fn fork() -> (Member, Member) {
    let store = Arc::new(MemStore::default());
    let parent = Member::of(&store, samples::new_run("run_1"), true).await;
    let child = Member::of(&store, samples::child_run("run_2", "run_1"), true).await;
    (parent, child)
}

async fn admit(member: &Member, id: &CallId) -> Admission {
    member.ledger.admit(id, Facts::default()).await.unwrap()
}

#[tokio::test]
async fn the_same_call_of_a_fork_is_asked_about_and_another_one_is_not() {
    use SideEffectClass::{External, Local, Memory, ReadOnly};
    // What the parent's call came to, its class, and whether the same words and others are asked about.
    let cases = [
        (Fate::Done, External, [true, false]),
        (Fate::Done, Memory, [true, false]),
        (Fate::Done, Local, [false, false]),
        (Fate::Done, ReadOnly, [false, false]),
        (Fate::NotSent, External, [false, false]),
        (Fate::FailedMaybe, External, [true, false]),
        (Fate::Lost, External, [true, true]),
        (Fate::UnderWay, External, [true, true]),
    ];
    for (fate, class, wanted) in cases {
        for (words, wanted) in ["a book", "a pen"].into_iter().zip(wanted) {
            for by_parent in [false, true] {
                let (parent, child) = fork().await;
                let (first, second) = if by_parent { (&child, &parent) } else { (&parent, &child) };
                let id = first.plan_as(unlisted("a book", class)).await;
                first.take(&id, &Facts::default(), fate).await;
                let id = second.plan_as(unlisted(words, class)).await;
                let at = format!("{fate:?} {class}, then {words}, by the parent: {by_parent}");
                match admit(second, &id).await {
                    Admission::Held(question) if wanted => {
                        assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}");
                    }
                    Admission::Ready(_) if !wanted => {}
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

/// Whatever a tool is said to do, then and now: the same call of it in another run of the lineage is asked about as long as one of the two says
/// that others are reached. What only reads, or works on the run's own files, by both is not.
#[tokio::test]
async fn another_declaration_makes_no_other_call_of_it() {
    use SideEffectClass::{External, Local, Memory, ReadOnly};
    let declarations = [
        (External, Some("order.create")),
        (External, Some("parcel.send")),
        (External, Some("order.change")),
        (External, None),
        (Memory, None),
        (Local, None),
        (ReadOnly, None),
    ];
    let declared = |(class, kind): (SideEffectClass, Option<&'static str>)| {
        move |id: &str, turn: u32| {
            let mut call = unlisted("a book", class)(id, turn);
            call.policy.effect_kind = kind.and_then(EffectKind::parse);
            call
        }
    };
    let facts = |(_, kind): (SideEffectClass, Option<&'static str>)| Facts {
        scope: kind.map(|kind| Scope::new(kind, "a book")),
        ..Facts::default()
    };
    let mut asked = 0;
    for then in declarations {
        // What a read of a fork is looked at for stands in its store's conformance.
        for now in declarations.into_iter().filter(|now| *now != then && now.0 != ReadOnly) {
            let (parent, child) = fork().await;
            let id = parent.plan_as(declared(then)).await;
            parent.take(&id, &facts(then), Fate::Done).await;
            let id = child.plan_as(declared(now)).await;
            let admission = child.ledger.admit(&id, facts(now)).await.unwrap();
            let had_effect = then.0 != ReadOnly;
            let reaches = [then.0, now.0].iter().any(|class| matches!(class, External | Memory));
            let question = match admission {
                Admission::Held(question) => Some(question.kind),
                Admission::Ready(_) => None,
                other @ (Admission::Settled(_)
                | Admission::Continues(_)
                | Admission::Ongoing(_)
                | Admission::WaitFor(_)
                | Admission::Unknown(_)) => panic!("{then:?}, {now:?}: {other:?}"),
            };
            let wanted = (had_effect && reaches).then_some(QuestionKind::NearDuplicate);
            assert_eq!(question, wanted, "{then:?}, then {now:?}");
            asked += u32::from(question.is_some());
        }
    }
    assert!(asked > 20, "{asked}");
}

#[tokio::test]
async fn a_run_may_repeat_itself_and_its_sub_agents() {
    let (parent, _) = fork().await;
    for _ in 0..2 {
        let id = parent.plan_as(unlisted("a book", SideEffectClass::External)).await;
        parent.take(&id, &Facts::default(), Fate::Done).await;
    }
    let agent = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_3", "run_1") };
    let agent = Member::of(&parent.store, agent, true).await;
    let id = agent.plan_as(unlisted("a book", SideEffectClass::External)).await;
    assert!(matches!(admit(&agent, &id).await, Admission::Ready(_)));
}

#[tokio::test]
async fn a_person_lets_it_run_or_a_policy_does() {
    let (parent, child) = fork().await;
    let id = parent.plan_as(unlisted("a book", SideEffectClass::External)).await;
    parent.take(&id, &Facts::default(), Fate::Done).await;
    let id = child.plan_as(unlisted("a book", SideEffectClass::External)).await;
    let Admission::Held(question) = admit(&child, &id).await else { panic!("not held") };
    child.answer(&question, Choice::Execute).await;
    assert_eq!(child.take(&id, &Facts::default(), Fate::Done).await.status, CallStatus::Succeeded);

    let allowed = |id: &str, turn| {
        let mut call = unlisted("a book", SideEffectClass::External)(id, turn);
        call.policy.on_scope_conflict = OnScopeConflict::Allow;
        call
    };
    let id = parent.plan_as(allowed).await;
    assert!(matches!(admit(&parent, &id).await, Admission::Ready(_)));
}

#[tokio::test]
async fn a_call_in_doubt_that_a_fork_overtook_is_not_sent_again_by_itself() {
    for overtaken in [false, true] {
        let (parent, child) = fork().await;
        let keyed = |id: &str, turn| {
            let mut call = unlisted("a book", SideEffectClass::External)(id, turn);
            call.policy.on_unknown = OnUnknown::RedoKeyed;
            call
        };
        let lost = parent.plan_as(keyed).await;
        parent.take(&lost, &Facts::default(), Fate::Lost).await;
        if overtaken {
            let id = child.plan_as(keyed).await;
            let Admission::Held(question) = admit(&child, &id).await else { panic!("not held") };
            child.answer(&question, Choice::Execute).await;
            child.take(&id, &Facts::default(), Fate::Done).await;
        }
        let Admission::Unknown(unknown) = admit(&parent, &lost).await else { panic!("not in doubt") };
        let Recovery::Decided(decided) = parent.ledger.recover(&unknown, &Facts::default()).await.unwrap() else {
            panic!("not decided")
        };
        match *decided {
            Admission::Held(question) if overtaken => {
                assert!(question.text.contains("may have had the effect since"), "{}", question.text);
            }
            Admission::Ready(_) if !overtaken => {}
            other @ (Admission::Settled(_)
            | Admission::Held(_)
            | Admission::Ready(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_)) => {
                panic!("{other:?}")
            }
        }
    }
}

/// The clock that a call was sent by was ahead, and was set right since, or is another machine's: what was done behind it is older by the
/// clock, and so may another one be that was done before, and stands as that one does.
#[tokio::test]
async fn a_call_in_doubt_is_overtaken_whatever_the_clocks_say() {
    let keyed = |id: &str, turn| {
        let mut call = unlisted("a book", SideEffectClass::External)(id, turn);
        call.policy.on_unknown = OnUnknown::RedoKeyed;
        call
    };
    for is_one_of_two in [false, true] {
        let (parent, child) = fork().await;
        if is_one_of_two {
            let other = Member::of(&parent.store, samples::child_run("run_3", "run_1"), true).await;
            other.ledger.env().clock.sleep(Duration::from_mins(30)).await;
            let before = other.plan_now(keyed).await;
            other.take(&before, &Facts::default(), Fate::Done).await;
        }
        parent.ledger.env().clock.sleep(Duration::from_hours(1)).await;
        let lost = parent.plan_now(keyed).await;
        if is_one_of_two {
            let Admission::Held(near) = admit(&parent, &lost).await else { panic!("not held") };
            answer(&parent, &near, Choice::Execute, &[]).await;
        }
        parent.take(&lost, &Facts::default(), Fate::Lost).await;

        let id = child.plan_now(keyed).await;
        let Admission::Held(near) = admit(&child, &id).await else { panic!("not held") };
        // Whoever looks does so by a clock that is right.
        parent.ledger.env().clock.sleep(Duration::from_mins(1)).await;
        answer(&parent, &near, Choice::Execute, &[]).await;
        let done = child.take(&id, &Facts::default(), Fate::Done).await;
        assert!(done.updated_at < parent.ledger.attempts(&lost).await.unwrap()[0].started_at);

        let Admission::Held(question) = recovered(&parent, &lost).await else { panic!("sent once more") };
        let said = "may have had the effect since";
        assert!(question.text.contains(said) && question.text.contains(id.as_str()), "{}", question.text);
    }
}

/// A person answers, and then time passes for both.
async fn answer(member: &Member, question: &QuestionRecord, choice: Choice, others: &[&Member]) {
    let at = member.ledger.env().now();
    let answer = NewAnswer { at, ..samples::answer(question.question_id.as_str(), choice) };
    member.store.insert_answer(answer).await.unwrap();
    for member in others {
        member.ledger.env().clock.sleep(Duration::from_secs(10)).await;
    }
}

/// What is decided about a call in doubt once its process is gone.
async fn recovered(member: &Member, id: &CallId) -> Admission {
    let Admission::Unknown(unknown) = admit(member, id).await else { panic!("not in doubt") };
    let Recovery::Decided(decided) = member.ledger.recover(&unknown, &Facts::default()).await.unwrap() else {
        panic!("not decided")
    };
    *decided
}

#[tokio::test]
async fn an_order_is_not_carried_out_once_a_fork_has_done_it() {
    // However often it was lost: what its last attempt came to takes the place of no reason.
    for attempts in 1..=3 {
        let (parent, child) = fork().await;
        let lost = parent.plan_as(unlisted("a book", SideEffectClass::External)).await;
        parent.take(&lost, &Facts::default(), Fate::Lost).await;
        for _ in 1..attempts {
            let Admission::Held(asked) = recovered(&parent, &lost).await else { panic!("not asked about") };
            answer(&parent, &asked, Choice::Execute, &[&parent, &child]).await;
            let Admission::Ready(prepared) = recovered(&parent, &lost).await else { panic!("not let through") };
            parent.send(prepared, Fate::Lost).await;
        }
        let Admission::Held(asked) = recovered(&parent, &lost).await else { panic!("not asked about") };
        answer(&parent, &asked, Choice::Execute, &[&parent, &child]).await;

        let id = child.plan_as(unlisted("a book", SideEffectClass::External)).await;
        let Admission::Held(near) = admit(&child, &id).await else { panic!("not held") };
        answer(&child, &near, Choice::Execute, &[&parent, &child]).await;
        child.take(&id, &Facts::default(), Fate::Done).await;

        let Admission::Held(again) = recovered(&parent, &lost).await else { panic!("sent once more") };
        assert_ne!(again.question_id, asked.question_id);
        let said = "may have had the effect since";
        assert!(again.text.contains(said) && again.text.contains(id.as_str()), "{attempts}: {}", again.text);
        parent.ledger.env().clock.sleep(Duration::from_secs(20)).await;
        answer(&parent, &again, Choice::Execute, &[&parent]).await;
        assert!(matches!(recovered(&parent, &lost).await, Admission::Ready(_)), "they know of it now");
    }
}

/// Each call that an answer is taken to know of is named in the question that it answers.
#[tokio::test]
async fn a_question_names_every_call_that_its_answer_covers() {
    let (parent, child) = fork().await;
    let lost = parent.plan_as(unlisted("a book", SideEffectClass::External)).await;
    parent.take(&lost, &Facts::default(), Fate::Lost).await;
    let Admission::Held(asked) = recovered(&parent, &lost).await else { panic!("not asked about") };
    answer(&parent, &asked, Choice::Execute, &[&parent, &child]).await;
    let Admission::Ready(prepared) = recovered(&parent, &lost).await else { panic!("not let through") };

    // The fork has it while the order is carried out, and that is lost as well.
    let id = child.plan_as(unlisted("a book", SideEffectClass::External)).await;
    let Admission::Held(near) = admit(&child, &id).await else { panic!("not held") };
    parent.send(prepared, Fate::Lost).await;
    answer(&child, &near, Choice::Execute, &[&parent, &child]).await;
    let near = admit(&child, &id).await;
    if let Admission::Held(near) = &near {
        answer(&child, near, Choice::Execute, &[&parent, &child]).await;
    }
    child.take(&id, &Facts::default(), Fate::Done).await;
    let Admission::Held(again) = recovered(&parent, &lost).await else { panic!("sent once more") };
    for other in again.detail["others"].as_array().unwrap() {
        let other = other["call"].as_str().unwrap();
        assert!(again.text.contains(other), "{other}: {}", again.text);
    }
    assert!(again.text.contains(id.as_str()), "{}", again.text);
}

#[tokio::test]
async fn a_word_about_a_call_that_has_moved_on_since_is_asked_for_again() {
    let (parent, child) = fork().await;
    let id = parent.plan_as(unlisted("a book", SideEffectClass::External)).await;
    let Admission::Ready(prepared) = admit(&parent, &id).await else { panic!("not let through") };
    let permit = parent.ledger.start(prepared, "1").await.unwrap().unwrap();
    let same = child.plan_as(unlisted("a book", SideEffectClass::External)).await;
    let Admission::Held(asked) = admit(&child, &same).await else { panic!("not held") };
    answer(&child, &asked, Choice::Execute, &[&parent, &child]).await;
    parent.ledger.settle(permit, Outcome::Raw(samples::raw())).await.unwrap();

    let Admission::Held(again) = admit(&child, &same).await else { panic!("sent beside one that has succeeded") };
    assert_ne!(again.question_id, asked.question_id);
    child.ledger.env().clock.sleep(Duration::from_secs(20)).await;
    answer(&child, &again, Choice::Execute, &[&child]).await;
    assert!(matches!(admit(&child, &same).await, Admission::Ready(_)), "they know of it now");
}

/// A person let a call run beside one in doubt. That one is sent again, whatever becomes of it: unless nothing was sent, the word is not about
/// it any more, also where it stands as it did before.
#[tokio::test]
async fn a_word_about_a_call_in_doubt_ends_when_that_is_sent_again() {
    let fates = [Fate::Lost, Fate::Done, Fate::FailedMaybe, Fate::UnderWay];
    for (fate, by_parent) in fates.into_iter().flat_map(|fate| [(fate, false), (fate, true)]) {
        let (parent, child) = fork().await;
        let (first, second) = if by_parent { (&child, &parent) } else { (&parent, &child) };
        let lost = first.plan_as(unlisted("a book", SideEffectClass::External)).await;
        first.take(&lost, &Facts::default(), Fate::Lost).await;
        let Admission::Held(doubt) = recovered(first, &lost).await else { panic!("not asked about") };
        let same = second.plan_as(unlisted("a book", SideEffectClass::External)).await;
        let Admission::Held(asked) = admit(second, &same).await else { panic!("not held") };
        answer(second, &asked, Choice::Execute, &[first, second]).await;
        answer(first, &doubt, Choice::Execute, &[first, second]).await;

        let Admission::Ready(prepared) = recovered(first, &lost).await else { panic!("{fate:?}: not sent again") };
        first.send(prepared, fate).await;
        let admission = admit(second, &same).await;
        let Admission::Held(again) = admission else { panic!("{fate:?}, by parent {by_parent}: {admission:?}") };
        assert_ne!(again.question_id, asked.question_id);
    }
}
