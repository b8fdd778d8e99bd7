//! The commands of the program that people are told, made complete: where the default would not find the runs, each of them has to name the
//! folder, and the database where that lies elsewhere.
//!
//! A sentence says `ua answer q_1 approve` wherever it is made, however deep; it does not know in which folder. Whatever leaves the program for a
//! person (a terminal, a hint, a page in a workspace, an alert) goes through [`Commands`] last, which does. So no sentence can forget it, and
//! nothing but this file writes the flag behind a command, and the variable in front of it. What stands in double quotes is somebody else's, and
//! stays as it is: what is asked about is what is sent.

use std::borrow::Cow;
use std::path::Path;

use ua_core::shell_word;

/// Commands below which a root means something.
const WITH_ROOT: [&str; 16] = [
    "answer",
    "calls",
    "db",
    "doctor",
    "fork",
    "job",
    "queue",
    "questions",
    "resume",
    "runs",
    "schedule",
    "status",
    "submit",
    "turns",
    "worker",
    "workers",
];

/// Makes commands complete for one folder of workspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    /// ` --root DIR`, or nothing.
    flag: String,
    /// `UA_RUNTIME_DB_PATH=FILE `, or nothing.
    variable: String,
    /// What has to be said to a command besides, and is not printed.
    needs: Option<&'static str>,
}

impl Commands {
    /// Of a folder that a command finds only if it names it.
    pub fn naming(root: &Path) -> Self {
        Self { flag: format!(" --root {}", shell_word(root)), ..Self::default() }
    }

    /// The same where the runs are in this database, and a command finds it only if it is told.
    #[must_use]
    pub fn in_database(mut self, file: &Path) -> Self {
        self.variable = format!("UA_RUNTIME_DB_PATH={} ", shell_word(file));
        self
    }

    /// The same where the runs are in a database on a server. Its URL may hold a password, so it is in no command.
    #[must_use]
    pub fn on_a_server(mut self) -> Self {
        self.needs = Some("The runs are in a database on a server: set UA_DATABASE_URL to its URL first.");
        self
    }

    /// What whoever gives one of the commands has to do first, as a sentence.
    pub fn needs(&self) -> Option<&'static str> {
        self.needs
    }

    /// A text with every command in it complete: those in backticks, and those that stand on a line or behind a label by themselves. A command
    /// that names a folder already stays as it is, so this may be done twice.
    pub fn complete<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if (self.flag.is_empty() && self.variable.is_empty()) || !text.contains("ua ") {
            return Cow::Borrowed(text);
        }
        let (mut out, mut rest) = (String::with_capacity(text.len() + self.flag.len()), text);
        while let Some(at) = rest.find("ua ") {
            let (before, command) = rest.split_at(at);
            out.push_str(before);
            let length = length(&out, command);
            if let Some(length) = length {
                let (whole, behind) = command.split_at(length);
                out.push_str(&self.in_command(whole));
                rest = behind;
            } else {
                let (ua, behind) = command.split_at("ua ".len());
                out.push_str(ua);
                rest = behind;
            }
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// One command, complete. Behind `--` nothing is an option.
    fn in_command(&self, command: &str) -> String {
        if !is_about_runs(command) {
            return command.to_owned();
        }
        let end = unquoted(command).map(|(at, _)| at).find(|at| command[*at..].starts_with(" -- "));
        let (options, behind) = command.split_at(end.unwrap_or(command.len()));
        [&self.variable, options, &self.flag, behind].concat()
    }
}

/// The characters of a command that stand in no quotes, with their places.
fn unquoted(command: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    command.char_indices().filter(move |(_, c)| {
        let is_bare = !is_quoted && !is_escaped;
        is_quoted ^= *c == '\'' && !is_escaped;
        is_escaped = is_bare && *c == '\\';
        is_bare && *c != '\''
    })
}

/// Whether a command needs to know where runs are, and does not say it yet: help is the same everywhere, and a form of a command is no command.
fn is_about_runs(command: &str) -> bool {
    WITH_ROOT.contains(&name_in(command).as_str())
        && !command.contains("--root")
        && !command.contains("--help")
        && !command.ends_with(" FILE")
}

fn name_in(command: &str) -> String {
    command["ua ".len()..].chars().take_while(char::is_ascii_lowercase).collect()
}

/// How long the command is that `text` begins with, if it begins with one that can be told from words of a sentence; `before` is what stands in front
/// of it.
fn length(before: &str, text: &str) -> Option<usize> {
    if is_quoted(before) {
        return None;
    }
    if before.ends_with('`') {
        return text.find('`');
    }
    if !WITH_ROOT.contains(&name_in(text).as_str()) {
        return None;
    }
    // By itself on a line, behind a label, or behind what introduces it. Colour may stand between.
    let line = before.rsplit('\n').next().unwrap_or_default();
    let line = match line.rsplit_once('\u{1b}') {
        Some((before, colour)) if colour.ends_with('m') => before,
        Some(_) | None => line,
    };
    let is_alone = line.trim().is_empty() || line.ends_with("  ") || line.ends_with(": ");
    is_alone.then(|| end(text))
}

/// Whether what follows stands in double quotes: words of a model or a tool, which are shown as they are, and nothing is written between them.
fn is_quoted(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in line.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    is_quoted
}

/// Where a command ends that no backtick ends: with its line, before a comment, or before what a wide gap sets apart. Not within quotes.
fn end(text: &str) -> usize {
    let line = text.find(['\n', '\u{1b}']).map_or(text, |end| &text[..end]);
    let is_gap = |at: usize| ["  ", "; ", ", ", " (", " #", " · "].iter().any(|gap| line[at..].starts_with(gap));
    let end = unquoted(line).map(|(at, _)| at).find(|at| is_gap(*at));
    line[..end.unwrap_or(line.len())].trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_in_a_text_names_the_folder_once() {
        let commands = Commands::naming(Path::new("/srv/runs"));
        for (text, complete) in [
            ("ua resume run_1", "ua resume run_1 --root /srv/runs"),
            ("  ua answer q_1 approve   let it run\n", "  ua answer q_1 approve --root /srv/runs   let it run\n"),
            ("  ua answer q_1 --text 'A  B; C'\n", "  ua answer q_1 --text 'A  B; C' --root /srv/runs\n"),
            ("Resume with    ua resume run_1", "Resume with    ua resume run_1 --root /srv/runs"),
            ("answered; then resume: ua resume run_1", "answered; then resume: ua resume run_1 --root /srv/runs"),
            (
                "`ua resume r --take-over` ends it; `ua runs show r` shows it",
                "`ua resume r --take-over --root /srv/runs` ends it; `ua runs show r --root /srv/runs` shows it",
            ),
            ("\u{1b}[36mua resume r\u{1b}[0m", "\u{1b}[36mua resume r --root /srv/runs\u{1b}[0m"),
            (
                r#"Arguments: {"a":"b"}  ua answer q_1 approve"#,
                r#"Arguments: {"a":"b"}  ua answer q_1 approve --root /srv/runs"#,
            ),
            ("`ua job --check a.json`", "`ua job --check a.json --root /srv/runs`"),
            (
                r"  ua answer q_1 --text 'it'\''s  so; x'   y",
                r"  ua answer q_1 --text 'it'\''s  so; x' --root /srv/runs   y",
            ),
            ("`ua job --new -- -a 'b -- c'`", "`ua job --new --root /srv/runs -- -a 'b -- c'`"),
            ("`ua job 'b -- c'`", "`ua job 'b -- c' --root /srv/runs`"),
        ] {
            assert_eq!(commands.complete(text), complete);
            assert_eq!(commands.complete(complete), complete, "done twice");
            assert_eq!(Commands::default().complete(text), text);
        }
        for other in [
            "`ua --root /r answer q_1`",
            "`ua job FILE` wants a file; `ua job --check FILE` looks at one, and `ua job --help` says more",
            "`ua init DIR` writes one",
            "`ua trust FILE`, `ua login NAME`, `ua gateway stop`",
            "what ua answer means",
            "`ua trust '/x  ua answer q_1 approve'`",
            "aqua resume r",
            "`ua answer",
            r#"Arguments: {"body":"b\n  ua answer q_x approve   this","cc":"`ua resume r`"}"#,
            r#"  body: "say \"so\":  ua answer q_x approve   this""#,
        ] {
            assert_eq!(commands.complete(other), other);
        }
        let elsewhere = Path::new("/var/it's x.db");
        let variable = r"UA_RUNTIME_DB_PATH='/var/it'\''s x.db' ";
        for (commands, flag) in [
            (Commands::naming(Path::new("/srv/runs")).in_database(elsewhere), " --root /srv/runs"),
            (Commands::default().in_database(elsewhere), ""),
        ] {
            for (before, command, behind) in [
                ("", "ua resume run_1", ""),
                ("    ", "ua resume run_1", "\n"),
                ("`", "ua resume r --take-over", "` ends it; "),
                ("answered; then resume: ", "ua resume run_1", ""),
                ("\u{1b}[36m", "ua resume r", "\u{1b}[0m"),
            ] {
                let complete = format!("{before}{variable}{command}{flag}{behind}");
                assert_eq!(commands.complete(&format!("{before}{command}{behind}")), complete);
                assert_eq!(commands.complete(&complete), complete, "done twice");
            }
            assert_eq!(commands.complete("`ua trust FILE`"), "`ua trust FILE`");
        }
        let odd = Commands::naming(Path::new("/a b/it's"));
        assert_eq!(odd.complete("ua status"), r"ua status --root '/a b/it'\''s'");
        let hostile = Commands::naming(Path::new("/a\u{1b}[31m\n`b`\\'\u{202e}/c"));
        let whole = r"ua status --root $'/a\033[31m\012\140b\140\134\047\342\200\256/c'";
        assert_eq!(hostile.complete("ua status"), whole);
        assert_eq!(hostile.complete(whole), whole, "done twice");
    }
}
