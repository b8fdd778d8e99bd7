//! What can be cited in a text: quotes, numbers and dates, each in its sentence.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// What makes a sentence worth citing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Somebody's words.
    Quote,
    /// A quantity with its unit.
    Number,
    /// A day, a month or a year with its context.
    Date,
}

const MAX_SENTENCE_CHARS: usize = 500;
const MIN_SENTENCE_WORDS: usize = 5;

#[expect(clippy::expect_used, reason = "checked by a test")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern that compiles")
}

static QUOTE: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[“"«„]([^“”"«»„]{20,})[”"»“]"#));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) (?: [$€£¥] \s? \d [\d.,]* ) | (?: \d [\d.,]* \s? (?: % | percent | per\ cent | million | billion | trillion
          | thousand | [kmg] ?b (?:/s)? \b | ms \b | [km] m \b | kg \b | hours? \b | days? \b | years? \b | times \b | usd \b | eur \b ) )",
    )
});
static DATE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b (?: \d{4}-\d{2}-\d{2} | (?:\d{1,2}\.?\s+)? (?: january|february|march|april|may|june|july|august|september
          |october|november|december ) \s+ (?:\d{1,2},?\s+)? \d{4} | (?: in | since | by | until ) \s+ (?:19|20)\d{2} ) \b",
    )
});

/// The sentences of a Markdown text that can be cited, in order, each once and for the strongest reason.
pub(super) fn citable(markdown: &str) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    for sentence in sentences(markdown) {
        let kind = if QUOTE.is_match(&sentence) {
            Kind::Quote
        } else if NUMBER.is_match(&sentence) {
            Kind::Number
        } else if DATE.is_match(&sentence) {
            Kind::Date
        } else {
            continue;
        };
        if !found.iter().any(|(_, known)| *known == sentence) {
            found.push((kind, sentence));
        }
    }
    found
}

/// Sentences of the running text: no headings, code, tables or pictures.
fn sentences(markdown: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in markdown.lines().chain([""]) {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            in_code = !in_code;
        }
        let is_text =
            !in_code && !line.is_empty() && !line.starts_with(['#', '|', '`', '~']) && !line.starts_with("![");
        let starts_anew = line.starts_with(['-', '*', '>', '+']);
        if !is_text || starts_anew {
            split(&paragraph, &mut sentences);
            paragraph.clear();
        }
        if is_text {
            paragraph.push_str(line.trim_start_matches(['-', '*', '>', '+', ' ']));
            paragraph.push(' ');
        }
    }
    sentences
}

/// A sentence ends at a full stop, question or exclamation mark before a space and no small letter or digit.
fn split(paragraph: &str, sentences: &mut Vec<String>) {
    let chars: Vec<(usize, char)> = paragraph.char_indices().collect();
    let mut start = 0;
    for (number, (at, c)) in chars.iter().enumerate() {
        let next = |ahead: usize| chars.get(number + ahead).map(|(_, c)| *c);
        let is_end = match c {
            '.' | '!' | '?' => {
                let closes = next(1).is_some_and(|c| matches!(c, '”' | '"' | '»' | ')'));
                let space = if closes { 2 } else { 1 };
                next(space).is_some_and(char::is_whitespace)
                    && next(space + 1).is_none_or(|c| !c.is_lowercase() && !c.is_ascii_digit())
                    && !closes
            }
            '”' | '"' | '»' => {
                number > 0
                    && chars.get(number - 1).is_some_and(|(_, c)| matches!(c, '.' | '!' | '?'))
                    && next(1).is_some_and(char::is_whitespace)
                    && next(2).is_none_or(|c| !c.is_lowercase())
            }
            _ => false,
        };
        if is_end {
            let end = at + c.len_utf8();
            keep(paragraph.get(start..end).unwrap_or_default(), sentences);
            start = end;
        }
    }
    keep(paragraph.get(start..).unwrap_or_default(), sentences);
}

fn keep(sentence: &str, sentences: &mut Vec<String>) {
    let text = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_whole = text.chars().count() <= MAX_SENTENCE_CHARS;
    if is_whole && text.split(' ').count() >= MIN_SENTENCE_WORDS {
        sentences.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_numbers_and_dates_are_found_in_their_sentences() {
        let text = "# Growth of 4 % in 2024\n\nSales grew by 4.5 % to $1.2 billion. Nobody was surprised by that at all.\n\
            The law was passed on 12 March 2025 by a large majority. \"We expected far less than that,\" said Ann Lee of the board.\n\n\
            ```\nlatency was 12 ms in the code block here\n```\n\n| a | 5 % of a table is not a sentence |\n\n\
            - In a list, about 3 million people were counted.\n- Since 2019 the office has been closed to visitors.";
        assert_eq!(
            citable(text),
            [
                (Kind::Number, "Sales grew by 4.5 % to $1.2 billion.".to_owned()),
                (Kind::Date, "The law was passed on 12 March 2025 by a large majority.".to_owned()),
                (Kind::Quote, "\"We expected far less than that,\" said Ann Lee of the board.".to_owned()),
                (Kind::Number, "In a list, about 3 million people were counted.".to_owned()),
                (Kind::Date, "Since 2019 the office has been closed to visitors.".to_owned()),
            ]
        );
    }

    #[test]
    fn a_sentence_said_twice_is_cited_once_and_one_without_end_is_left_out() {
        let text =
            format!("It was 5 percent of all cases. It was 5 percent of all cases.\n\n{} 7 %", "word ".repeat(200));
        assert_eq!(citable(&text), [(Kind::Number, "It was 5 percent of all cases.".to_owned())]);
    }
}
