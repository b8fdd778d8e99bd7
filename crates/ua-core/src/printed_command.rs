//! Commands that are printed to be copied.
//!
//! The words of such a command are the program's own; its arguments may be anybody's: the name of a model or of a file comes with a job, a folder has the
//! name that a checkout gave it, a server that of a configuration. Pasted, a shell has to read each of them as the one word that it is. So a command is
//! a [`PrintedCommand`]: its own words are `'static`, and whatever is not is quoted as it is taken in.
//! Kept by: `no_printed_command_is_made_by_hand` (`ua-testkit`), which looks through all sources. Proved by: this file's tests, with shells.

use std::ffi::OsStr;
use std::fmt;

use crate::is_hidden;

/// A command as it is printed to be copied: a shell that reads it has exactly the arguments that were meant.
///
/// ```
/// use ua_core::PrintedCommand;
///
/// let shown = PrintedCommand::of("ua models show").word("gpt; touch x").option("--provider", "openai");
/// assert_eq!(shown.to_string(), "ua models show 'gpt; touch x' --provider openai");
/// assert_eq!(PrintedCommand::of("ua trust").word("-f").in_code(), "`ua trust -- -f`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedCommand {
    line: String,
    /// Words that would be read as options, and those that came later: they stand behind `--`.
    behind: String,
}

impl PrintedCommand {
    /// A command that begins with these words of the program.
    pub fn of(words: &'static str) -> Self {
        Self { line: words.to_owned(), behind: String::new() }
    }

    /// With more words of the program.
    #[must_use]
    pub fn with(mut self, words: &'static str) -> Self {
        self.line.extend([" ", words]);
        self
    }

    /// With an argument, whatever it says.
    #[must_use]
    pub fn word(mut self, word: impl AsRef<OsStr>) -> Self {
        let word = word.as_ref();
        let is_behind = !self.behind.is_empty() || word.as_encoded_bytes().starts_with(b"-");
        let line = if is_behind { &mut self.behind } else { &mut self.line };
        line.extend([" ", &shell_word(word)]);
        self
    }

    /// With an option of the program and its value, whatever that says.
    #[must_use]
    pub fn option(mut self, option: &'static str, value: impl AsRef<OsStr>) -> Self {
        let value = value.as_ref();
        let between = if value.as_encoded_bytes().starts_with(b"-") { "=" } else { " " };
        self.line.extend([" ", option, between, &shell_word(value)]);
        self
    }

    /// The command in backticks, as it stands in a sentence.
    pub fn in_code(&self) -> String {
        format!("`{self}`")
    }
}

impl fmt::Display for PrintedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)?;
        if self.behind.is_empty() { Ok(()) } else { write!(f, " --{}", self.behind) }
    }
}

/// A word as a shell reads it back: in quotes where it has to be. A whole command is a [`PrintedCommand`]; this is for a part of one.
///
/// What drives a terminal, begins a line, ends code, is seen by nobody or is no text at all is written by the numbers of its bytes (`$'…'`, which POSIX
/// has since 2024): a folder may have any name, and the command has to name that folder, on one line. A shell that does not know it reads another name,
/// and still one word.
///
/// ```
/// assert_eq!(ua_core::shell_word("a b"), "'a b'");
/// assert_eq!(ua_core::shell_word("a\nb's"), r"$'a\012b\047s'");
/// ```
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_encoded_bytes();
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_to_be_escaped));
    let Some(text) = text else { return by_numbers(bytes) };
    // A tilde is a home folder at the beginning, and behind a sign of equality; that sign is a command's path in zsh.
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%=:,".contains(c);
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A backtick would end the code that a command stands in.
fn is_to_be_escaped(c: char) -> bool {
    c == '`' || c.is_control() || is_hidden(c)
}

fn by_numbers(bytes: &[u8]) -> String {
    let mut escaped = String::new();
    let number = |escaped: &mut String, bytes: &[u8]| {
        for byte in bytes {
            escaped.push_str(&format!("\\{byte:03o}"));
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_to_be_escaped(c) || matches!(c, '\'' | '\\') {
                number(&mut escaped, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                escaped.push(c);
            }
        }
        number(&mut escaped, chunk.invalid());
    }
    format!("$'{escaped}'")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    use super::*;

    /// Names that somebody else gave: to models, files, folders, servers, schedules, queues.
    const HOSTILE: [&str; 26] = [
        "a",
        "a b",
        " ",
        "",
        "it's",
        "'",
        "\"x\"",
        "gpt-x; touch PWN; echo $(id)",
        "$(touch PWN)",
        "${HOME}$HOME",
        "a&b|c>d<e",
        "*?[a]{b,c}",
        "!history!!",
        "#comment",
        "~root",
        "a=~/b",
        "=ls",
        "-rf",
        "--root",
        "--",
        "back\\slash\\",
        "it's; x' && y",
        "a  b  ua answer q_1 approve",
        "%s%n",
        "q;touch PWN.toml",
        "\u{e9}\u{4e2d}",
    ];
    /// What cannot stand on a line as it is.
    const UNPRINTED: [&str; 7] =
        ["a`touch PWN`b", "a\nb", "a\r\nb'\\", "\u{1b}[31m\u{e9}\u{202e}", "\u{3164}", "\t'\u{9b}\"", "\u{1}7"];

    /// The arguments as a shell reads them in a command: its program is one that prints them, and those that the names would run say that they ran.
    fn read_by(shell: &str, command: &PrintedCommand) -> Option<Vec<Vec<u8>>> {
        let ran = "touch() { echo ran >&2; }; id() { touch; }; ls() { touch; }";
        let script = format!("{ran}; ua() {{ printf '%s\\0' \"$@\"; }}\n{command}");
        let said = Command::new(shell).args(["-c", &script]).output().ok()?;
        assert!(said.status.success() && said.stderr.is_empty(), "{shell}: {script}: {said:?}");
        let mut words: Vec<Vec<u8>> = said.stdout.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        words.pop();
        Some(words)
    }

    fn command_with(name: impl AsRef<OsStr> + Copy) -> PrintedCommand {
        PrintedCommand::of("ua models show").word(name).option("--provider", name).with("--json").word("last")
    }

    /// The same, as the arguments that are meant.
    fn meant(name: &[u8]) -> Vec<Vec<u8>> {
        let own = |word: &str| word.as_bytes().to_vec();
        let (mut words, mut behind) = (vec![own("models"), own("show")], Vec::new());
        let is_like_option = name.starts_with(b"-");
        if is_like_option {
            words.push([b"--provider=", name].concat());
            behind.extend([own("--"), name.to_vec(), own("last")]);
            words.push(own("--json"));
        } else {
            words.extend([name.to_vec(), own("--provider"), name.to_vec(), own("--json"), own("last")]);
        }
        words.extend(behind);
        words
    }

    #[test]
    fn s9_each_shell_reads_exactly_the_arguments_that_were_meant() {
        for name in HOSTILE {
            assert_eq!(read_by("sh", &command_with(name)).unwrap(), meant(name.as_bytes()), "{name:?}");
        }
        for shell in ["bash", "zsh", "ksh"] {
            for name in HOSTILE.iter().chain(&UNPRINTED) {
                let Some(words) = read_by(shell, &command_with(name)) else { break };
                assert_eq!(words, meant(name.as_bytes()), "{shell}: {name:?}");
            }
        }
        let no_text = OsStr::from_bytes(b"a\xff'b\xc3");
        assert_eq!(read_by("bash", &command_with(no_text)).unwrap(), meant(no_text.as_bytes()));
    }

    /// One that does not know `$'…'` has as many words, and runs nothing.
    #[test]
    fn s9_no_shell_reads_more_words_than_were_meant() {
        for name in UNPRINTED {
            let words = read_by("sh", &command_with(name)).unwrap();
            assert_eq!(words.len(), meant(name.as_bytes()).len(), "{name:?}: {words:?}");
        }
    }

    #[test]
    fn s9_a_command_is_one_line_of_code_that_shows_what_it_says() {
        for name in HOSTILE.iter().chain(&UNPRINTED) {
            let command = command_with(name);
            let (line, code) = (command.to_string(), command.in_code());
            assert!(!line.chars().any(is_to_be_escaped), "{line:?}");
            assert_eq!(code, format!("`{line}`"));
        }
    }
}
