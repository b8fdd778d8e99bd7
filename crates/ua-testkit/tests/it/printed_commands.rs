//! A command that is printed to be copied is an `ua_core::PrintedCommand`, which quotes what is put into it: what a job, a checkout or a server calls a
//! thing would run as it says otherwise.
//!
//! A string may have a command in it all the same, as long as nothing is filled in but ids, which have plain letters alone by their types, and words of
//! the program itself.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use ua_testkit::workspace_root;

use crate::walks::sources;

/// What ids are called where they stand in a command: runs, calls, questions and places have types of their own, or are made up by the program.
const IDS: [&str; 11] =
    ["run", "run_id", "id", "call", "call_id", "question", "question_id", "top", "parent", "source", "only"];

/// Other words of the program itself, each with where it stands.
const OWN: [(&str, &str); 26] = [
    ("ua-runner/src/pin.rs", "names"),
    ("ua-cli/src/mistakes.rs", "below"),
    ("ua-cli/src/mistakes.rs", "get_name"),
    ("ua-cli/src/mistakes.rs", "word"),
    ("ua-host/src/gateway/look.rs", "OWN"),
    ("ua-cli/src/mistakes.rs", "command"),
    ("ua-cli/src/mistakes.rs", "name"),
    ("ua-cli/src/mistakes.rs", "meant"),
    ("ua-cli/src/commands/calls.rs", "outcome"),
    ("ua-cli/src/commands/gateway.rs", "meant"),
    ("ua-cli/src/commands/fleet.rs", "other"),
    ("ua-cli/src/commands/answer.rs", "word"),
    ("ua-cli/src/commands/status.rs", "limit"),
    ("ua-report/src/restart.rs", "len"),
    ("ua-host/src/hint.rs", "options"),
    ("ua-resume/src/answers.rs", "rest"),
    ("ua-resume/src/answers.rs", "word"),
    ("ua-resume/src/question.rs", "first"),
    ("ua-resume/src/question.rs", "word"),
    ("ua-resume/src/next_step.rs", "flag"),
    ("ua-resume/src/next_step.rs", "flags"),
    // Ids by another name.
    ("ua-cli/src/commands/lineage.rs", "first"),
    ("ua-cli/src/commands/db.rs", "first"),
    ("ua-cli/src/commands/doctor/machine.rs", "first"),
    ("ua-cli/src/commands/db.rs", "names"),
    ("ua-host/src/questions.rs", "asked_again"),
];

/// A string of a source: the line that it begins in, what it says, and the source from its end on.
pub(crate) type Literal<'s> = (usize, String, &'s str);

/// The strings of a source, but for those of its tests.
pub(crate) fn literals(source: &str) -> Vec<Literal<'_>> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let raw = rest.strip_prefix('r').map(|rest| rest.len() - rest.trim_start_matches('#').len());
        let raw = raw.filter(|hashes| rest[1 + hashes..].starts_with('"'));
        let is_word = source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw.filter(|_| !is_word) {
            let close = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 2;
            let length = rest[begin..].find(&close).unwrap_or(rest.len() - begin);
            let end = (begin + length + close.len()).min(rest.len());
            found.push((line(source, at), rest[begin..begin + length].to_owned(), &rest[end..]));
            end
        } else if c == '"' {
            let mut is_escaped = false;
            let end = rest[1..].find(|c| {
                let is_end = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                is_end
            });
            let end = end.map_or(rest.len() - 1, |end| end + 1);
            found.push((line(source, at), said(&rest[1..end]), &rest[end + 1..]));
            end + 1
        } else if c == '\'' && (rest.starts_with("'\"'") || rest.starts_with("'\\")) {
            // A character: a mark of quotation, or an escaped one.
            rest[2..].find('\'').map_or(rest.len(), |end| end + 3).max(3)
        } else {
            c.len_utf8()
        };
    }
    found
}

fn line(source: &str, at: usize) -> usize {
    source[..at].matches('\n').count() + 1
}

/// What a string says that is written so: broken lines are joined.
fn said(written: &str) -> String {
    let mut pieces = written.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.trim_start()).replace("\\n", "\n")
}

/// The commands in a text, each with the place where it begins: in backticks, or alone on a line or behind a label.
fn commands(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("ua ") {
        let (before, command) = text.split_at(at);
        let next = command["ua ".len()..].chars().next();
        let is_alone = before.is_empty() || before.ends_with('\n') || before.ends_with("  ") || before.ends_with(": ");
        let end = if before.ends_with('`') {
            command.find('`')
        } else if is_alone && next.is_some_and(|c| c.is_ascii_lowercase() || c == '{') {
            // `ua gateway: …` is a program that says something.
            let ends = [command.find(['\n', '`']), command.find(": ")];
            Some(ends.into_iter().flatten().min().unwrap_or(command.len()))
        } else {
            None
        };
        found.extend(end.map(|end| (at, &command[..end])));
    }
    found
}

/// What is filled in between these places of a format, as it stands there: a name, a number, or nothing.
fn filled_in(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|open| at + open) {
        if text[open + 1..].starts_with('{') {
            at = open + 2;
            continue;
        }
        let Some(close) = text[open..].find('}') else { break };
        let name = text[open + 1..open + close].split(':').next().unwrap_or_default();
        // Not a place of a format: JSON, or a form.
        if name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            found.push((open, name));
        }
        at = open + 1;
    }
    found
}

/// The arguments that follow a format.
pub(crate) fn arguments(behind: &str) -> Vec<String> {
    let (mut depth, mut all) = (0_usize, vec![String::new()]);
    for c in behind.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            all.push(String::new());
        } else {
            all.last_mut().unwrap().push(c);
        }
    }
    all.into_iter().skip(1).collect()
}

/// What an expression names in the end: `run_id` of `short(run.run_id.as_str())`.
fn named(expression: &str) -> &str {
    let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words =
        words.filter(|word| !word.is_empty() && !matches!(*word, "as_str" | "to_string" | "String" | "new"));
    let first = words.next().unwrap_or_default();
    // What is made of something is named after that.
    if expression.contains(".map_or_else(") || expression.contains(".join(") {
        first
    } else {
        words.next_back().unwrap_or(first)
    }
}

/// What is filled into the commands of a source by hand, with the lines of the strings.
fn by_hand(source: &str) -> (usize, Vec<(usize, String)>) {
    let (mut count, mut found) = (0, Vec::new());
    for (line, text, behind) in literals(source) {
        let places = filled_in(&text);
        for (at, command) in commands(&text) {
            count += 1;
            for (place, name) in places.iter().filter(|(place, _)| (at..at + command.len()).contains(place)) {
                let number = name.parse().ok().or_else(|| {
                    name.is_empty()
                        .then(|| places.iter().filter(|(other, name)| name.is_empty() && other < place).count())
                });
                let of_number = number.and_then(|number: usize| arguments(behind).into_iter().nth(number));
                let expression = of_number.unwrap_or_else(|| (*name).to_owned());
                found.push((line, named(&expression).to_owned()));
            }
        }
    }
    (count, found)
}

#[test]
fn s9_no_printed_command_is_made_by_hand() {
    let root = workspace_root();
    let mut files = Vec::new();
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        sources(&folder.unwrap().path().join("src"), &mut files);
    }
    let (mut commands, mut wrong, mut met) = (0, Vec::new(), Vec::new());
    for file in files {
        let shown = file.strip_prefix(root.join("crates")).unwrap().display().to_string();
        if shown.starts_with("ua-testkit/") || shown.contains("tests") {
            continue;
        }
        let (count, found) = by_hand(&fs::read_to_string(&file).unwrap());
        commands += count;
        for (line, name) in found {
            let own = OWN.iter().find(|own| **own == (shown.as_str(), name.as_str()));
            met.extend(own);
            if own.is_none() && !IDS.contains(&name.as_str()) {
                wrong.push(format!("{shown}:{line}: {name}"));
            }
        }
    }
    assert!(commands > 500, "only {commands} commands are found: they are printed in another way by now");
    assert_eq!(wrong, [""; 0], "a command that is printed with a name in it is an `ua_core::PrintedCommand`");
    let unused: Vec<_> = OWN.iter().filter(|own| !met.contains(own)).collect();
    assert!(unused.is_empty(), "these stand in no command: {unused:?}");
}

#[test]
fn what_is_filled_in_by_hand_is_found() {
    for (source, name) in [
        (r#"format!("look: `ua trust {file}` shows it")"#, "file"),
        (r#"format!("{a}: `ua trust {}`", b.display())"#, "display"),
        ("format!(\"look \\\n    `ua models \\\n    show {1:>3}`\", id, model)", "model"),
        (r##"format!(r#"a "b"  ua login {server}"#)"##, "server"),
        (r#"format!("ua submit {}", file)"#, "file"),
        (r#"('"', format!("`ua submit {file}`"))"#, "file"),
        (r#"format!("`ua runs show {}`", short(run.run_id.as_str()))"#, "run_id"),
        (r#"format!("\n  ua answer {}{x}", q(a, b).question_id)"#, "question_id"),
    ] {
        let (_, found) = by_hand(source);
        assert!(found.iter().any(|(_, found)| found == name), "{source}: {found:?}");
    }
    for none in [
        r#"// format!("`ua trust {file}`")"#,
        r#"format!("`ua trust FILE` shows {file}")"#,
        r#"PrintedCommand::of("ua trust").word(file)"#,
        r#"format!("see `{command}`")"#,
        r#"format!("what ua says of {file}")"#,
    ] {
        assert_eq!(by_hand(none).1, [], "{none}");
    }
}
