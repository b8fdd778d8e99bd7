//! Questions that are taken back because what they were asked for does not hold any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use ua_core::{CallStatus, ElicitAnswer, Handle, Input, OnUnknown, Resolution};
use ua_ledger::{Admission, Elicited, Facts, Recovery, SincePlanned};
use ua_store::conformance::samples;
use ua_store::conformance::{Crossing, Plan, StoreSeam};
use ua_store::{Choice, LedgerStore as _, MemStore, QuestionStatus, RunStore as _};

use super::member::{FIRST, Fate, Member};

/// A person who answers the open question in the moment before it would be closed, if at all.
struct InTheLastMoment {
    store: Arc<MemStore>,
    choice: Option<Choice>,
}

#[async_trait]
impl Plan for InTheLastMoment {
    async fn before(&self, crossing: &Crossing) {
        if !crossing.is("store.close_question") {
            return;
        }
        let open = self.store.open_questions(None).await.unwrap();
        let open = open.iter().find(|question| question.status == QuestionStatus::Open);
        if let Some((asked, choice)) = open.zip(self.choice) {
            self.store.insert_answer(samples::answer(asked.question_id.as_str(), choice)).await.unwrap();
        }
    }

    async fn after(&self, _crossing: &Crossing) {}
}

/// A keyed call in doubt is asked about under stricter policies, and these are put back. Nobody answers, or somebody does in the very moment in which
/// the question is taken back: their word counts, and nothing is sent against it.
#[tokio::test]
async fn a_word_that_comes_while_its_question_is_taken_back_counts() {
    for choice in [None, Some(Choice::Happened), Some(Choice::Skip), Some(Choice::Execute)] {
        let store = Arc::new(MemStore::default());
        let member = Member::of(&store, samples::new_run("run_1"), true).await;
        let keyed = |id: &str, turn| {
            let mut call = FIRST.planned(id, turn);
            call.policy.on_unknown = OnUnknown::RedoKeyed;
            call
        };
        let id = member.plan_as(keyed).await;
        let call = member.take(&id, &FIRST.facts(), Fate::Lost).await;
        let facts = |since_planned| Facts { since_planned, ..FIRST.facts() };
        let asked_under = async |member: &Member, facts: Facts| {
            let Admission::Unknown(unknown) = member.ledger.admit(&id, facts.clone()).await.unwrap() else {
                panic!("{choice:?}: not unknown")
            };
            let Recovery::Decided(decided) = member.ledger.recover(&unknown, &facts).await.unwrap() else {
                panic!("{choice:?}: not decided")
            };
            *decided
        };
        let Admission::Held(asked) = asked_under(&member, facts(SincePlanned::Stricter)).await else {
            panic!("{choice:?}: not asked")
        };
        assert!(asked.text.contains("say something else of it now"), "{}", asked.text);
        // As long as it is so the question stays.
        let Admission::Held(again) = asked_under(&member, facts(SincePlanned::Stricter)).await else {
            panic!("{choice:?}: not held")
        };
        assert_eq!(again.question_id, asked.question_id);

        let seam = StoreSeam::new(store.clone(), Arc::new(InTheLastMoment { store: store.clone(), choice }));
        let member = member.behind(Arc::new(seam)).await;
        let plain = facts(SincePlanned::Same);
        let mut decided = member.ledger.admit(&id, plain.clone()).await.unwrap();
        if let Admission::Unknown(unknown) = &decided {
            let Recovery::Decided(then) = member.ledger.recover(unknown, &plain).await.unwrap() else {
                panic!("{choice:?}: not decided")
            };
            decided = *then;
        }
        let now = store.call(&call.call_id).await.unwrap();
        match choice {
            Some(Choice::Happened) => assert_eq!(now.status, CallStatus::Succeeded),
            Some(Choice::Skip) => assert_eq!(now.resolution, Some(Resolution::Skipped)),
            // The word lets it be sent; it was about what is sent.
            None | Some(_) => assert!(matches!(decided, Admission::Ready(_)), "{decided:?}"),
        }
        let question = store.question(&asked.question_id).await.unwrap();
        assert_eq!(question.answer.map(|answer| answer.choice), choice);
        assert_eq!(now.attempt, 1, "{choice:?}: nothing is sent by deciding");
    }
}

/// A tool waits for an answer on its connection, and is told no. Somebody answers in that very moment, or just before: then their word is what the tool
/// is told.
#[tokio::test]
async fn a_tool_is_not_told_no_against_a_word_that_came_first() {
    for (choice, action) in [(None, "decline"), (Some(Choice::Continue), "accept"), (Some(Choice::Skip), "decline")] {
        for is_before in [false, true] {
            let store = Arc::new(MemStore::default());
            let last_moment = InTheLastMoment { store: store.clone(), choice: choice.filter(|_| !is_before) };
            let seam = StoreSeam::new(store.clone(), Arc::new(last_moment));
            let member = Member::of(&store, samples::new_run("run_1"), true).await.behind(Arc::new(seam)).await;
            let call = member.sent(&FIRST, Fate::UnderWay).await;
            let request = json!({"method": "elicitation/create", "params": {"message": "Which size?"}});
            let requests = BTreeMap::from([("size".to_owned(), request)]);
            let input = Input { requests, round: 1, is_live: true, ..Input::default() };
            let handle = Handle { input: Some(input), ..Handle::default() };
            let asked = member.ledger.elicit(&call, handle.clone()).await.unwrap();
            let Elicited::Open(asked) = asked else { panic!("{choice:?}: not asked") };
            if let Some(choice) = choice.filter(|_| is_before) {
                member.answer(&asked, choice).await;
            }
            let told = match member.ledger.decline(&call, handle.clone(), &ElicitAnswer::Decline).await.unwrap() {
                Some(declined) => {
                    assert_eq!(choice, None, "the word was not heard");
                    declined
                }
                None => match member.ledger.elicit(&call, handle).await.unwrap() {
                    Elicited::Answered(answered) => answered,
                    Elicited::Open(question) => panic!("{choice:?}: {question:?}"),
                },
            };
            let answers = told.input.unwrap().answers;
            assert_eq!(answers["size"]["action"], action, "{choice:?}, before: {is_before}");
            let question = store.question(&asked.question_id).await.unwrap();
            assert_eq!(question.status, QuestionStatus::Closed);
            assert_eq!(question.answer.map(|answer| answer.choice), choice);
        }
    }
}
