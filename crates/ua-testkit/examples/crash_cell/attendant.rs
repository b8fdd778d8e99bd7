//! Somebody who answers what a tool asks for as soon as it is asked, while the tool waits.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{Env, QuestionId, Timestamp};
use ua_store::{Answer, Choice, NewAnswer, QuestionKind, QuestionStatus, RunStore as _, StoreError};
use ua_store_sqlite::SqliteStore;
use ua_testkit::{Crossing, Plan};

/// The person. What they say goes past the seams: it is another process that says it.
pub(crate) struct Attendant {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) env: Env,
}

#[async_trait]
impl Plan for Attendant {
    async fn before(&self, _crossing: &Crossing) {}

    async fn after(&self, crossing: &Crossing) {
        if crossing.is("store.raise_question")
            && let Err(error) = self.answer().await
        {
            eprintln!("attendant: {error}");
        }
    }
}

impl Attendant {
    async fn answer(&self) -> Result<(), StoreError> {
        for question in self.store.open_questions(None).await? {
            if question.kind == QuestionKind::Elicitation && question.status == QuestionStatus::Open {
                self.store.insert_answer(elicited(question.question_id, self.env.now())).await?;
            }
        }
        Ok(())
    }
}

/// What a person says who is asked for a size.
pub(crate) fn elicited(question_id: QuestionId, at: Timestamp) -> NewAnswer {
    let answer = Answer::new(Choice::Continue).text(r#"{"size": 3}"#);
    NewAnswer { question_id, answer, by: "the harness".into(), at }
}
