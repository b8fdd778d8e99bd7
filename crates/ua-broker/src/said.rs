//! What people say of a call in doubt whose session was ended: nothing is sent for it any more, and what happened is a fact all the same.
//!
//! Invariant: what a person said of such a call is applied by whoever comes to it next, in whichever order that was said and the session was ended.
//! Proved by: `tests/it/deciding.rs`.

use ua_core::{CallStatus, QuestionId, chain};
use ua_ledger::settle_late_answers;
use ua_store::{CallRecord, Choice, LedgerStore as _, QuestionKind, QuestionRecord, QuestionStatus, QuestionsOf};

use crate::broker::Broker;
use crate::texts::Told;

impl Broker {
    /// A call of a session that a person ended, as it is by what somebody said of it before or behind that; `None` while nobody has said what came
    /// of it.
    pub(crate) async fn said_of(&self, call: &CallRecord) -> Option<Box<CallRecord>> {
        let settled = settle_late_answers(self.store.as_ref(), &self.env, &call.run_id).await;
        if let Err(error) = settled {
            tracing::warn!(call = %call.call_id, error = chain(&error), "what a person said of a call could not be applied");
        }
        let record = self.store.call(&call.call_id).await.ok()?;
        match record.status {
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::FailedDefinite => Some(Box::new(record)),
            CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown | CallStatus::Cancelled => None,
        }
    }

    /// The question about a call in doubt that waits for a person, whether or not its session has ended.
    pub(crate) async fn asked_of(&self, call: &CallRecord) -> Option<QuestionId> {
        let is_open = |question: &QuestionRecord| question.status == QuestionStatus::Open;
        self.doubts_of(call).await.into_iter().find(is_open).map(|question| question.question_id)
    }

    /// What is told of a call in doubt of a session that a person ended.
    pub(crate) async fn left_in_doubt(&self, call: &CallRecord) -> Told {
        let asked = self.doubts_of(call).await;
        let choice = |question: &QuestionRecord| question.answer.as_ref().map(|answer| answer.choice);
        let why = if asked.iter().any(|question| choice(question) == Some(Choice::Execute)) {
            format!(
                "a person said that it may be sent again, and its session was ended before it was; it is sent once they record that it did not \
                 happen (`{} calls resolve {} --as not_happened`)",
                self.config.person, call.call_id
            )
        } else {
            "a person ended its session and did not say what came of it".to_owned()
        };
        Told::Unknown { since: self.sent_at(&call.call_id).await, why, question: self.asked_of(call).await }
    }

    async fn doubts_of(&self, call: &CallRecord) -> Vec<QuestionRecord> {
        let asked = self.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await;
        let mut asked = asked.unwrap_or_else(|error| {
            tracing::warn!(call = %call.call_id, error = chain(&error), "the questions about a call cannot be read");
            Vec::new()
        });
        asked.retain(|question| {
            question.kind == QuestionKind::UnknownOutcome && question.call_id.as_ref() == Some(&call.call_id)
        });
        asked
    }
}
