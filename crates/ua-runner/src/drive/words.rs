//! What persons said about the run that its model has not read: the words of their answers, and their corrections of records.
//!
//! A question about the run as a whole ends a process's work on it, so its answer is carried out by the next one. The question counts as
//! acted on in the very write that puts its words into the history: until then it is an answer that nobody acted on, whatever is killed, and
//! after it the words are there for good. [`Driver::reserve`] is the only way to a request, and none passes it without them, whatever was
//! asked and whatever the run does before it asks its model again. Invariant: `a_remark_is_read` of `ua_store::invariants`. Proved by:
//! `crash_anywhere::words`.

use ua_core::{Audience, Message, Origin, QuestionId};
use ua_evidence::words_of_persons;
use ua_ledger::{correction_note, told_of_others};
use ua_store::{
    Author, Batch, Change, Choice, LedgerStore as _, QuestionRecord, QuestionStatus, RunRecords, RunStore as _,
    Store as _, StoreError,
};

use super::Driver;
use crate::error::RunError;
use crate::watch::RunEvent;

/// Words that persons put beside their answers to questions about the run, and that its model has not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnreadWords {
    /// The questions, oldest first.
    questions: Vec<QuestionId>,
    words: Vec<String>,
}

impl UnreadWords {
    pub(super) fn of(records: &RunRecords) -> Self {
        let unread = records.questions.iter().filter(|question| is_unread(question));
        let words = |question: &QuestionRecord| words_beside(question).map(str::to_owned);
        let unread = unread.filter_map(|question| Some((question.question_id.clone(), words(question)?)));
        let (questions, words) = unread.unzip();
        Self { questions, words }
    }

    /// What the model is told; `None` when there is nothing.
    fn message(&self, audience: Audience) -> Option<Message> {
        (!self.words.is_empty()).then(|| Message::user(Origin::Guidance, words_of_persons(&self.words, audience)))
    }

    /// The questions whose words nobody reads any more, since the model is not asked again.
    pub(super) fn left(&self) -> Vec<QuestionId> {
        self.questions.clone()
    }
}

/// The words beside the answer to a question; `None` for none that say anything.
fn words_beside(question: &QuestionRecord) -> Option<&str> {
    question.answer.as_ref()?.text.as_deref().map(str::trim).filter(|words| !words.is_empty())
}

/// Whether the model of the run is still to read the words of this question's answer: one about the run as a whole, after which it continues.
pub(crate) fn is_unread(question: &QuestionRecord) -> bool {
    let ends_it = question.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Abort);
    question.call_id.is_none()
        && question.status == QuestionStatus::Answered
        && !ends_it
        && words_beside(question).is_some()
}

impl Driver<'_> {
    /// What the model is to be told of records that are not as it was told: of its own calls, and of those of other runs that it was told of.
    pub(super) async fn note_of_corrections(&self) -> Result<Option<String>, RunError> {
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        let mut others = Vec::new();
        for call in told_of_others(&records) {
            match self.ports.store.call(&call).await {
                Ok(call) if call.root_run_id == records.run.root_run_id => others.push(call),
                // What only looks like the id of a call, or was deleted since.
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(source) => return Err(RunError::at("read a call of another run")(source)),
            }
        }
        Ok(correction_note(&records, &others))
    }

    /// What the next request carries beside what is in the history already.
    pub(super) fn untold(&self) -> impl Iterator<Item = Message> {
        let corrected = self.correction_note.clone().map(|note| Message::user(Origin::Guidance, note));
        corrected.into_iter().chain(self.unread.message(self.audience()))
    }

    /// Puts into the history what persons said and the model has not read; says whether there was anything.
    pub(super) async fn tell_what_persons_said(&mut self) -> Result<bool, RunError> {
        let messages: Vec<Message> = self.untold().collect();
        if messages.is_empty() {
            return Ok(false);
        }
        let at = self.ports.env.now();
        let append = Change::AppendMessages { messages: messages.clone(), at };
        let closes = self.unread.questions.iter().map(|question| Change::CloseQuestion {
            question: question.clone(),
            is_withdrawn: false,
            at,
        });
        let batch = Batch::of(std::iter::once(append).chain(closes));
        let told = self.ports.store.commit(&Author::Owner(self.ports.lease.clone()), batch).await;
        told.map_err(RunError::at("tell the model what persons said"))?;
        if let Some(words) = self.unread.message(self.audience()) {
            (self.ports.watcher)(RunEvent::Guided { text: words.text() });
        }
        (self.correction_note, self.unread) = (None, UnreadWords::default());
        self.last_seq += messages.len() as u64;
        self.history.extend(messages);
        Ok(true)
    }
}
