//! Whether somebody sits in front of a client's own dialogue, as far as it has shown.

use tokio::sync::watch;
use ua_core::QuestionId;

/// What a client's dialogue has shown.
#[derive(Debug, Default)]
pub(crate) struct Presence(watch::Sender<Away>);

#[derive(Debug, Default)]
struct Away {
    is_nobody_there: bool,
    /// Questions that were not decided there.
    undecided: Vec<QuestionId>,
    /// Questions that were: whoever waits for their calls may not have heard of it yet.
    decided: Vec<QuestionId>,
}

impl Away {
    fn is_in_vain(&self, question: &QuestionId) -> bool {
        self.is_nobody_there || self.undecided.contains(question)
    }
}

impl Presence {
    /// Whether a question is put there in vain: nobody is there, or it was not decided there before.
    pub(crate) fn is_in_vain(&self, question: &QuestionId) -> bool {
        self.0.borrow().is_in_vain(question)
    }

    /// A question was decided there, and is not put there once more.
    pub(crate) fn was_decided(&self, question: &QuestionId) {
        self.0.send_modify(|away| away.decided.push(question.clone()));
    }

    /// Whether it was.
    pub(crate) fn is_decided(&self, question: &QuestionId) -> bool {
        self.0.borrow().decided.contains(question)
    }

    /// A question was not decided there; `by_nobody`: so quickly that nobody can have read it.
    pub(crate) fn was_not_decided(&self, question: &QuestionId, by_nobody: bool) {
        self.0.send_modify(|away| {
            away.is_nobody_there |= by_nobody;
            away.undecided.push(question.clone());
        });
    }

    /// Waits until a question was not decided there.
    pub(crate) async fn undecided(&self, question: Option<&QuestionId>) {
        let Some(question) = question else { return std::future::pending().await };
        if self.0.subscribe().wait_for(|away| away.is_in_vain(question)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
