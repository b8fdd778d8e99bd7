//! The word under which an enum is stored, for logs and spans.

use std::fmt;

use serde::Serialize;

/// Shows the stored word of a value that is stored as one word (`hold`, `unknown_outcome`); nothing for any other. The
/// word is made when it is shown, so naming it in a span that nobody records costs nothing.
///
/// ```
/// use ua_store::{QuestionKind, stored_name};
///
/// assert_eq!(stored_name(&QuestionKind::UnknownOutcome).to_string(), "unknown_outcome");
/// ```
pub fn stored_name<T: Serialize>(value: &T) -> impl fmt::Display + '_ {
    Word(value)
}

struct Word<'a, T>(&'a T);

impl<T: Serialize> fmt::Display for Word<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = serde_json::to_value(self.0).unwrap_or_default();
        f.write_str(stored.as_str().unwrap_or_default())
    }
}
