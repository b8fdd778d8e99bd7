//! No string that a person may read has a word of this project's own making in it: `private_words.txt` lists them, with the standard term.
//!
//! Looked at is every string in the sources of the crates that write for people, but for tests and for what only models read; the README, the
//! list of changes and every page of the documentation, but for those that a lane writes; and the rustdoc of the library. The help has a test of
//! its own in `ua-cli`, with the same list.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use ua_testkit::docs::{changelog, pages};
use ua_testkit::workspace_root;

const LIST: &str = include_str!("private_words.txt");

/// What only models read: prompts, results of calls, descriptions of tools. Its wording is pinned to runs, and cassettes answer to it.
const FOR_MODELS: [&str; 13] = [
    "ua-broker/src/texts.rs",
    "ua-claude-code/src/prompt.rs",
    "ua-core/src/harness.rs",
    "ua-dispatch/src/guardrail.rs",
    "ua-dispatch/src/plan.rs",
    "ua-host/src/launch.rs",
    "ua-ledger/src/answer.rs",
    "ua-ledger/src/verdict/",
    "ua-resume/src/handoff_note.rs",
    "ua-resume/src/render.rs",
    "ua-runner/src/machine/",
    "ua-toolserver/src/tools/",
    "ua-testkit/",
];

fn words() -> Vec<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(" -> ").unwrap_or_else(|| panic!("no standard term for {line}"))).collect()
}

/// The private words in a text, as ours and as the standard has them.
fn found_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let plain: String = text.chars().map(|c| if c.is_alphanumeric() || c == '\'' { c } else { ' ' }).collect();
    let flat: Vec<String> = plain.split_whitespace().map(str::to_lowercase).collect();
    let flat = format!(" {} ", flat.join(" "));
    words().into_iter().filter(|(word, _)| flat.contains(&format!(" {word} "))).collect()
}

/// The strings of a source file with their lines; what stands in comments is not one.
fn strings(source: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = source.chars().collect();
    let starts = |at: usize, text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let line_of = |at: usize| chars[..at].iter().filter(|c| **c == '\n').count() + 1;
    let (mut found, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        if starts(at, "//") {
            at = (at..chars.len()).find(|i| chars[*i] == '\n').unwrap_or(chars.len());
        } else if starts(at, "/*") {
            at = (at + 2..chars.len()).find(|i| starts(*i, "*/")).map_or(chars.len(), |end| end + 2);
        } else if chars[at] == 'r' && at > 0 && !chars[at - 1].is_alphanumeric() && chars[at - 1] != '_' {
            let hashes = (at + 1..chars.len()).take_while(|i| chars[*i] == '#').count();
            if chars.get(at + 1 + hashes) == Some(&'"') {
                let close = format!("\"{}", "#".repeat(hashes));
                let begin = at + 2 + hashes;
                let end = (begin..chars.len()).find(|i| starts(*i, &close)).unwrap_or(chars.len());
                found.push((line_of(at), chars[begin..end].iter().collect()));
                at = end + close.len();
            } else {
                at += 1;
            }
        } else if chars[at] == '"' {
            let mut end = at + 1;
            let mut text = String::new();
            while end < chars.len() && chars[end] != '"' {
                if chars[end] == '\\' {
                    // What is escaped is no letter of a word; at the end of a line it joins it with the next.
                    text.push(' ');
                    end += 1;
                } else {
                    text.push(chars[end]);
                }
                end += 1;
            }
            found.push((line_of(at), text));
            at = end + 1;
        } else if chars[at] == '\'' {
            // A character, or the name of a lifetime.
            let is_escaped = chars.get(at + 1) == Some(&'\\');
            let close = (at + 2..(at + 12).min(chars.len())).find(|i| chars[*i] == '\'');
            let is_char = is_escaped || chars.get(at + 2) == Some(&'\'');
            at = if is_char { close.map_or(at + 1, |close| close + 1) } else { at + 1 };
        } else {
            at += 1;
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "conformance" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("tests.rs") && name != "corpus.rs"
        {
            found.push(path);
        }
    }
}

#[test]
fn no_string_for_people_has_a_private_word() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for entry in fs::read_dir(workspace_root().join("crates")).unwrap().flatten() {
        let mut files = Vec::new();
        sources(&entry.path().join("src"), &mut files);
        for file in files {
            let place = file.strip_prefix(workspace_root().join("crates")).unwrap().display().to_string();
            if FOR_MODELS.iter().any(|for_models| place.starts_with(for_models)) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            for (line, string) in strings(code) {
                looked_at += 1;
                if string.contains("(s)") || string.contains("(es)") {
                    wrong.push(format!("{place}:{line}: `ua_core::counted` says how many: {string}"));
                }
                wrong.extend(
                    found_in(&string).into_iter().map(|(word, standard)| {
                        format!("{place}:{line}: `{word}` is `{standard}` for people: {string}")
                    }),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 5_000, "{looked_at} strings: the sources are not read right");
}

/// A paragraph without the names of tests and of the sources that it mentions (`a_test`, `ua_core::Name`): their parts are no words of a sentence.
fn without_names(paragraph: &str) -> String {
    let is_name = |piece: &str| piece.contains(['_', ':']) && !piece.contains(char::is_whitespace);
    let pieces = paragraph.split('`').enumerate();
    let kept: Vec<&str> = pieces.map(|(nth, piece)| if nth % 2 == 1 && is_name(piece) { "x" } else { piece }).collect();
    kept.join("`")
}

#[test]
fn no_page_for_readers_has_a_private_word() {
    let mut all = pages();
    all.push(changelog());
    // What a lane writes is made of its own strings, and is written again by a run of it alone.
    all.retain(|page| !page.text.contains("\nWritten by `cargo xtask "));
    assert!(all.len() > 70, "only {} pages were found", all.len());
    let mut wrong = Vec::new();
    for page in all {
        let place = &page.path;
        // What a tool says of itself is written for models, and pinned by runs that have begun.
        let is_of_a_tool = |paragraph: &&str| place == "docs/guide/tools.md" && paragraph.starts_with("**`");
        for paragraph in page.text.split("\n\n").filter(|paragraph| !is_of_a_tool(paragraph)) {
            wrong.extend(
                found_in(&without_names(paragraph))
                    .into_iter()
                    .map(|(word, standard)| format!("{place}: `{word}` is `{standard}` for people: {paragraph}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_name_of_the_sources_is_no_word_of_a_page_and_a_command_is() {
    let found = |text: &str| found_in(&without_names(text)).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(found("tested by `a_run_goes_on_as_told` and `ua_store::goes_on`"), [""; 0]);
    assert_eq!(found("it prints `the run goes on`"), ["goes on"]);
    assert_eq!(found("`a_b` goes on"), ["goes on"]);
}

/// The first page that whoever uses the library reads.
#[test]
fn no_page_of_the_library_has_a_private_word() {
    let mut files = Vec::new();
    sources(&workspace_root().join("crates/ua-sdk/src"), &mut files);
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_doc = |line: &&str| line.starts_with("///") || line.starts_with("//!");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for block in lines.split(|line| !is_doc(line)).filter(|block| !block.is_empty()) {
            looked_at += 1;
            let block: Vec<&str> = block.iter().map(|line| line.trim_start_matches(['/', '!'])).collect();
            let block = block.join(" ");
            let found = found_in(&block).into_iter();
            wrong
                .extend(found.map(|(word, standard)| format!("{}: `{word}` is `{standard}`: {block}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 100, "{looked_at} blocks: the sources are not read right");
}

#[test]
fn a_private_word_is_seen_wherever_it_stands() {
    let source = "// it goes on\nlet a = 'x'; let b: &'static str = \"the run goes \\\n    on\"; /* \" */\nlet c = r#\"nobody \"let\" it in\"#; f('\"', \"let in\");";
    let texts = strings(source);
    assert_eq!(texts.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4, 4], "{texts:?}");
    assert_eq!(found_in(&texts[0].1), [("goes on", "resumes, continues")]);
    assert_eq!(found_in("outlet into; the logo is on"), []);
    assert_eq!(found_in(&texts[2].1), [("let in", "trust")]);
}

/// Verbs that an error begins with when it says what was to be done and not what is wrong: alone it reads as an order.
const ORDERS: [&str; 53] = [
    "accept", "agree", "apply", "change", "claim", "commit", "continue", "create", "define", "drive", "fill", "fit",
    "have", "hear", "judge", "offer", "play", "receive", "retire", "simulate", "ask", "build", "call", "check", "copy",
    "expand", "fetch", "find", "get", "give", "keep", "list", "listen", "load", "look", "make", "open", "parse",
    "reach", "read", "render", "resume", "run the", "send", "serve", "set", "start", "store", "submit", "take", "tell",
    "use", "write",
];

#[test]
fn an_error_says_what_is_wrong_and_not_what_was_to_be_done() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for entry in fs::read_dir(workspace_root().join("crates")).unwrap().flatten() {
        let mut files = Vec::new();
        sources(&entry.path().join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for message in text.split("#[error(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')) {
                looked_at += 1;
                let message = message.split('"').next().unwrap_or_default();
                if ORDERS.iter().any(|verb| message.strip_prefix(verb).is_some_and(|rest| rest.starts_with(' '))) {
                    wrong.push(format!("{}: {message}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these read as orders:\n{}", wrong.join("\n"));
    assert!(looked_at > 100, "{looked_at} errors: the sources are not read right");
}

#[test]
fn the_glossary_is_in_order() {
    let page = fs::read_to_string(workspace_root().join("docs/glossary.md")).unwrap();
    let word = |line: &str| {
        let word = line.strip_prefix("| **")?.split("**").next()?.to_lowercase();
        Some(word.strip_prefix("to ").unwrap_or(&word).replace(['`', '*'], ""))
    };
    let words: Vec<String> = page.lines().filter_map(word).collect();
    let mut sorted = words.clone();
    sorted.sort();
    assert_eq!(words, sorted);
    assert!(words.len() > 100, "{}", words.len());
}
