//! What a person says to a question.

use ua_store::Choice;

/// An answer to a question: a choice, and what goes with it.
///
/// ```
/// use ua_sdk::{Answer, Choice};
///
/// let _it_happened = Answer::from(Choice::Happened);
/// let _and_this_is_its_number = Answer::new(Choice::Happened).proof("invoice 4711");
/// let _in_words = Answer::new(Choice::Continue).text("The blue one.");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(crate) choice: Choice,
    pub(crate) text: Option<String>,
    pub(crate) proof: Option<String>,
}

impl Answer {
    /// A choice without words.
    pub fn new(choice: Choice) -> Self {
        Self { choice, text: None, proof: None }
    }

    /// With words: the model reads them.
    #[must_use]
    pub fn text(mut self, words: impl Into<String>) -> Self {
        self.text = Some(words.into());
        self
    }

    /// With the other side's name for what happened: it stands in the receipt.
    #[must_use]
    pub fn proof(mut self, name: impl Into<String>) -> Self {
        self.proof = Some(name.into());
        self
    }
}

impl From<Choice> for Answer {
    fn from(choice: Choice) -> Self {
        Self::new(choice)
    }
}
