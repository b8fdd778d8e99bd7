//! Whether somebody sits in front of a client's own dialogue, as far as it has shown, and what it shows.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use ua_core::{QuestionId, Timestamp};

use crate::sync::lock;

/// Whoever sits in front of a dialogue has seen by then what it shows.
const SEEN_WITHIN: Duration = Duration::from_mins(1);

/// Questions that clients' own dialogues show, of all connections, and since when.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<HashMap<QuestionId, Timestamp>>);

/// A question that a dialogue shows, until this is dropped.
pub(crate) struct ShownNow<'a> {
    shown: &'a Shown,
    question: QuestionId,
}

impl Shown {
    /// A dialogue shows a question from now on.
    pub(crate) fn begins(&self, question: &QuestionId, now: Timestamp) {
        let mut shown = lock(&self.0);
        shown.retain(|_, since| now.since(*since) < SEEN_WITHIN);
        shown.insert(question.clone(), now);
    }

    /// It shows it no more.
    pub(crate) fn ends(&self, question: &QuestionId) {
        lock(&self.0).remove(question);
    }

    /// The same for as long as what is returned is there.
    pub(crate) fn while_asked(&self, question: &QuestionId, now: Timestamp) -> ShownNow<'_> {
        self.begins(question, now);
        ShownNow { shown: self, question: question.clone() }
    }

    /// Whether a dialogue shows a question, and has not shown it for so long that nobody can be there.
    pub(crate) fn is_shown(&self, question: &QuestionId, now: Timestamp) -> bool {
        lock(&self.0).get(question).is_some_and(|since| now.since(*since) < SEEN_WITHIN)
    }
}

impl Drop for ShownNow<'_> {
    fn drop(&mut self) {
        self.shown.ends(&self.question);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has left is told elsewhere after a while, also where the dialogue stays.
    #[test]
    fn a_question_is_shown_until_its_dialogue_ends_or_nobody_can_be_there() {
        let (shown, at) = (Shown::default(), Timestamp::from_millis(1_767_323_045_000));
        let (one, two) = (QuestionId::parse("q_1").unwrap(), QuestionId::parse("q_2").unwrap());
        let asked = shown.while_asked(&one, at);
        shown.begins(&two, at);
        assert!(shown.is_shown(&one, at) && shown.is_shown(&two, at));
        drop(asked);
        assert!(!shown.is_shown(&one, at) && shown.is_shown(&two, at));
        let late = at.plus(SEEN_WITHIN);
        assert!(!shown.is_shown(&two, late));
        shown.begins(&one, late);
        assert!(shown.is_shown(&one, late) && lock(&shown.0).len() == 1, "what nobody saw is forgotten");
    }
}
