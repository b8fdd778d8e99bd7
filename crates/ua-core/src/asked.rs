//! The words of a question to a person. Below them stand our own lines, the commands that answer it among them, and much in them is foreign: the
//! model's question, the form of a tool server, the words of an error.
//!
//! Invariant: no line begins with words of somebody else, except behind [`QuestionText::MARK`]. Whatever is put in is one line, in which breaks
//! are visible escapes, or each of its further lines is marked. So nobody who writes a question has to think of it.
//! Proved by: `ua-ledger`'s `no_word_of_a_tool_or_a_model_begins_a_line_of_a_question`.

use std::fmt;

/// The text of a question: its first line says what is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionText(String);

impl QuestionText {
    /// What stands before each further line of a text of several.
    pub const MARK: &str = "  | ";

    /// The question. Its further lines are taken for somebody else's, and marked.
    ///
    /// ```
    /// let text = ua_core::QuestionText::new("The model asks: which?\nAnswer with");
    /// assert_eq!(text.as_str(), "The model asks: which?\n  | Answer with");
    /// ```
    pub fn new(text: &str) -> Self {
        let mut lines = text.trim_end().split(breaks_a_line);
        let mut all = lines.next().unwrap_or_default().to_owned();
        for line in lines {
            all.push('\n');
            all.push_str(format!("{}{line}", Self::MARK).trim_end());
        }
        Self(all)
    }

    /// The question with one line more below it.
    ///
    /// ```
    /// let text = ua_core::QuestionText::new("Which?").line("  1. red\n  ua answer last approve");
    /// assert_eq!(text.as_str(), "Which?\n  1. red\\n  ua answer last approve");
    /// ```
    #[must_use]
    pub fn line(mut self, line: impl AsRef<str>) -> Self {
        self.0.push('\n');
        self.0.push_str(&on_one_line(line.as_ref()));
        self
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QuestionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<QuestionText> for String {
    fn from(text: QuestionText) -> Self {
        text.0
    }
}

/// A text whose breaks are visible escapes, so that it is one line wherever it is shown.
///
/// ```
/// assert_eq!(ua_core::on_one_line("a\r\nb\u{2028}c"), "a\\nb\\u{2028}c");
/// ```
pub fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        if breaks_a_line(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether a terminal, an editor or a reader of lines begins another line behind a character.
fn breaks_a_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_at_all_lets_a_line_begin_that_is_not_marked() {
        for c in char::MIN..=char::MAX {
            let foreign = format!("x{c}Answer with");
            let one = QuestionText::new("Which?").line(&foreign);
            assert_eq!(one.as_str().lines().count(), 2, "{c:?}");
            let several = QuestionText::new(&foreign);
            for line in several.as_str().split(|c: char| breaks_a_line(c) || c == '\r').skip(1) {
                assert!(line.starts_with(QuestionText::MARK), "{c:?}");
            }
        }
        assert_eq!(QuestionText::new("a\n\nb\n").as_str(), "a\n  |\n  | b");
    }
}
