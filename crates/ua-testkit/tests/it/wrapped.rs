//! Prose of README and docs is wrapped: a line of a diff is a line that somebody reads.
//!
//! Code, headings and what cannot be broken (an address, a long name in backticks) are as long as they are, and so are pages that `xtask` writes.
//! A row of a table is one line of its source; on pages for users there is a limit to what it may hold.

use ua_testkit::docs::{changelog, pages};

/// The most columns of a line of prose.
const WIDTH: usize = 122;

/// The most columns of a row of a table on a page for users: what is longer is read below the table. Pages for those who work on the program are
/// full of names of tests and files, which have no shorter form.
const ROW: usize = 620;

/// The rows of tables that are longer, from 1, each with its length.
fn long_rows(page: &str) -> Vec<(usize, usize)> {
    let rows = page.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with('|'));
    rows.map(|(index, line)| (index + 1, line.chars().count())).filter(|(_, length)| *length > ROW).collect()
}

#[test]
fn no_row_of_a_table_for_users_is_a_page_by_itself() {
    let others = ["docs/coming-from.md", "docs/glossary.md", "docs/requirements.md", "README.md"];
    let all = pages();
    let for_users =
        all.iter().filter(|page| page.path.starts_with("docs/guide/") || others.contains(&page.path.as_str()));
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for page in for_users {
        looked_at += 1;
        let path = &page.path;
        let rows = long_rows(&page.text).into_iter();
        wrong.extend(rows.map(|(line, length)| format!("{path}:{line}: {length} columns")));
    }
    assert!(looked_at > 25, "only {looked_at} pages were found");
    assert!(wrong.is_empty(), "say what is longer than {ROW} columns below the table:\n{}", wrong.join("\n"));
}

#[test]
fn a_long_row_is_seen_and_a_long_line_of_code_is_not() {
    let words = "word ".repeat(130);
    assert_eq!(long_rows(&format!("a\n| x | {words} |\n")).first().map(|(line, _)| *line), Some(2));
    assert_eq!(long_rows(&format!("{words}\n| short |\n")), []);
}

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
