//! Prose of README and docs is wrapped: a line of a diff is a line that somebody reads.
//!
//! Tables, code, headings and what cannot be broken (an address, a long name in backticks) are as long as they are, and so are pages that
//! `xtask` writes.

use ua_testkit::docs::{changelog, pages};

/// The most columns of a line of prose.
const WIDTH: usize = 122;

/// The lines of prose that could be broken and are longer, from 1, each with its length.
fn too_long(page: &str) -> Vec<(usize, usize)> {
    let mut fence: Option<&str> = None;
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let text = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {
                let length = line.chars().count();
                let is_prose = fence.is_none() && !text.starts_with(['|', '#', '<', '!', '>']);
                if is_prose && length > WIDTH && can_be_broken(text) {
                    found.push((index + 1, length));
                }
            }
        }
    }
    found
}

/// Whether a line has a space to be broken at, behind its first word and outside of what stands in backticks.
fn can_be_broken(text: &str) -> bool {
    let text = text.strip_prefix("- ").unwrap_or(text);
    text.split('`').step_by(2).any(|piece| piece.trim_start().contains(' ') || piece.ends_with(' '))
}

#[test]
fn every_line_of_prose_is_wrapped() {
    let mut all = pages();
    all.push(changelog());
    let mut wrong = Vec::new();
    for page in all.iter().filter(|page| !page.text.contains("\nWritten by `cargo xtask ")) {
        let path = &page.path;
        wrong.extend(too_long(&page.text).into_iter().map(|(line, length)| format!("{path}:{line}: {length} columns")));
    }
    assert!(all.len() > 60, "only {} pages were found", all.len());
    assert!(wrong.is_empty(), "prose is wrapped at 120 columns; these lines are longer:\n{}", wrong.join("\n"));
}

#[test]
fn a_line_that_is_too_long_is_seen_and_what_cannot_be_broken_is_not() {
    let word = "w".repeat(130);
    let words = "word ".repeat(30);
    for (line, is_seen) in [
        (words.clone(), true),
        (format!("- {words}"), true),
        (format!("  {words}"), true),
        (format!("a `{word}`"), true),
        (format!("- {word}"), false),
        (format!("`{words}`"), false),
        (format!("| {words} |"), false),
        (format!("# {words}"), false),
        (format!("<!-- {words} -->"), false),
        (format!("```sh\n{words}\n```"), false),
    ] {
        assert_eq!(!too_long(&line).is_empty(), is_seen, "{line}");
    }
    assert_eq!(too_long(&format!("```\nx\n```\n{words}")).first().map(|(line, _)| *line), Some(4));
}
