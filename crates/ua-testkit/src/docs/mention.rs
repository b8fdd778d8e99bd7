//! Commands that stand in a sentence: shorter than those of a script, with placeholders, optional parts and alternatives.

/// A command line that a piece of code in a sentence stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The program and its arguments, with values in the places of placeholders.
    pub words: Vec<String>,
}

/// Words in capitals that stand for a value, and a value that fits wherever the pages use the word. Every other word is taken as it is.
const PLACEHOLDERS: [(&str, &str); 8] = [
    ("RUN", "last"),
    ("CHILD", "last"),
    ("N", "3"),
    ("S", "crashed"),
    ("SHELL", "bash"),
    ("COMMAND", "job"),
    ("CHOICE", "skip"),
    ("P", "anthropic"),
];

/// The command lines that `code` stands for when it begins with `program` and at least one more word:
///
/// - `[…]` around words: they are optional, and are there
/// - `a|b|c`: each of them, one command line for each
/// - a word in capitals: a value, from a short list, or the word itself
/// - `…`, also at the end of a word: something is left out, and nothing stands for it
/// - `;`, a pipe with blanks around it, a comment: the shell's
pub fn mentions(program: &str, code: &str) -> Vec<Mention> {
    let code = without_variables(code);
    if code.strip_prefix(program).is_none_or(|rest| !rest.starts_with(' ')) {
        return Vec::new();
    }
    let Ok(script) = super::Script::parse(&code.replace('|', "\u{1}").replace(" \u{1} ", " | ")) else {
        return vec![Mention { words: code.split_whitespace().map(str::to_owned).collect() }];
    };
    let commands = script.commands.into_iter().filter(|command| command.words.first().is_some_and(|it| it == program));
    commands.flat_map(|command| alternatives(&command.words)).map(|words| Mention { words }).collect()
}

/// The command behind the variables that are set for it.
fn without_variables(code: &str) -> &str {
    let Some((first, rest)) = code.split_once(' ') else { return code };
    let name = first.split_once('=').map_or("", |(name, _)| name);
    let is_variable =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if is_variable { without_variables(rest.trim_start()) } else { code }
}

fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = vec![Vec::new()];
    for word in words {
        // `[+]N` would be a value; `[--limit N]` and `[RUN]` are words that may be left out.
        let plain = word.trim_start_matches('[').trim_end_matches([']', '…']).trim_end_matches(']');
        if plain.is_empty() {
            continue;
        }
        let choices: Vec<String> = plain.split('\u{1}').map(value).collect();
        lines = lines
            .iter()
            .flat_map(|line| choices.iter().map(|choice| line.iter().cloned().chain([choice.clone()]).collect()))
            .collect();
    }
    lines
}

fn value(word: &str) -> String {
    PLACEHOLDERS.iter().find(|(name, _)| *name == word).map_or(word, |(_, value)| value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mention_stands_for_whole_command_lines() {
        let cases: [(&str, &[&str]); 10] = [
            ("ua", &[]),
            ("ua-core", &[]),
            ("UA_LOG=info UA_ROOT=x ua runs show RUN", &["ua runs show last"]),
            ("ua/<version> (a program)", &[]),
            (
                "ua runs list [--status S] [--since 7d] [--limit N]",
                &["ua runs list --status crashed --since 7d --limit 3"],
            ),
            (
                "ua resume RUN --accept tools|policy",
                &["ua resume last --accept tools", "ua resume last --accept policy"],
            ),
            ("ua runs show|tail CHILD", &["ua runs show last", "ua runs tail last"]),
            ("ua runs delete RUN…", &["ua runs delete last"]),
            ("ua answer … execute", &["ua answer execute"]),
            ("ua runs list | less -S", &["ua runs list"]),
        ];
        for (code, wanted) in cases {
            let found: Vec<String> = mentions("ua", code).iter().map(|mention| mention.words.join(" ")).collect();
            assert_eq!(found, wanted, "{code}");
        }
    }
}
