//! The commands of a shell script, as far as the pages use the shell's language.

/// One command: its words, without assignments before it and redirections behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Its line in the script, from 0.
    pub line: usize,
    /// Names and values that stand before it.
    pub assignments: Vec<(String, String)>,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// A file that a script writes word by word: `cat > FILE <<'END'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HereDocument {
    /// The line of its first word in the script, from 0.
    pub line: usize,
    /// The file.
    pub file: String,
    /// What it holds then.
    pub text: String,
}

/// A script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// Its commands in order; those of pipes and of `<(…)` are commands like others.
    pub commands: Vec<SimpleCommand>,
    /// The files that it writes.
    pub files: Vec<HereDocument>,
}

/// A command that is being read.
#[derive(Default)]
struct Pending {
    words: Vec<String>,
    /// The word that is being read, and whether a part of it was quoted (an empty one counts then).
    word: Option<String>,
    /// Whether the next word is a file, to be read or written.
    redirects: bool,
    file: Option<String>,
    /// What ends the document that begins on the next line.
    end: Option<String>,
}

impl Pending {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    /// Takes the character behind a backslash as it is.
    fn extend(&mut self, c: Option<char>) {
        self.word.get_or_insert_default().extend(c);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.redirects) {
            self.file = Some(word);
        } else {
            self.words.push(word);
        }
    }

    fn end_command(&mut self, line: usize, commands: &mut Vec<SimpleCommand>) {
        self.end_word();
        let mut words = std::mem::take(&mut self.words);
        let count = words.iter().take_while(|word| assignment(word).is_some()).count();
        let rest = words.split_off(count);
        let assignments = words.iter().filter_map(|word| assignment(word)).collect();
        if !rest.is_empty() || count > 0 {
            commands.push(SimpleCommand { line, assignments, words: rest });
        }
    }
}

/// The name and value of `NAME=value`.
fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// When a quote or a document is not ended.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let mut pending = Pending::default();
            script.read_line(number, line, &mut pending)?;
            let Some(end) = pending.end else { continue };
            let mut document = String::new();
            loop {
                let Some((_, line)) = lines.next() else { return Err(format!("the document up to {end} has no end")) };
                if line == end {
                    break;
                }
                document.push_str(line);
                document.push('\n');
            }
            script.files.push(HereDocument {
                line: number + 1,
                file: pending.file.unwrap_or_default(),
                text: document,
            });
        }
        Ok(script)
    }

    fn read_line(&mut self, number: usize, line: &str, pending: &mut Pending) -> Result<(), String> {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\'' | '"' => {
                    pending.word.get_or_insert_default();
                    loop {
                        match chars.next() {
                            Some(inner) if inner == c => break,
                            Some('\\') if c == '"' => pending.extend(chars.next()),
                            Some(inner) => pending.push(inner),
                            None => return Err(format!("a quote {c} has no end: {line}")),
                        }
                    }
                }
                '\\' => pending.extend(chars.next()),
                ' ' | '\t' => pending.end_word(),
                '#' if pending.word.is_none() => break,
                '<' if chars.peek() == Some(&'<') => {
                    chars.next();
                    let end: String = chars.by_ref().take_while(|c| !c.is_whitespace()).collect();
                    pending.end = Some(end.trim_matches(['\'', '"']).to_owned());
                }
                '<' if chars.peek() == Some(&'(') => {
                    chars.next();
                    pending.end_command(number, &mut self.commands);
                }
                '<' | '>' => {
                    // The number of a stream that stands before it is no word.
                    let is_stream = pending.word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit()));
                    if is_stream {
                        pending.word = None;
                    }
                    pending.end_word();
                    pending.redirects = true;
                }
                ';' | '|' | '&' | ')' => pending.end_command(number, &mut self.commands),
                _ => pending.push(c),
            }
        }
        pending.end_command(number, &mut self.commands);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        Script::parse(text).unwrap().commands.into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn a_script_is_its_commands() {
        let cases: [(&str, &[&[&str]]); 8] = [
            ("ua runs show last; ua doctor   # is it there?", &[&["ua", "runs", "show", "last"], &["ua", "doctor"]]),
            ("ua job a.json &\nkill -9 $!", &[&["ua", "job", "a.json"], &["kill", "-9", "$!"]]),
            ("ua runs list | less -S", &[&["ua", "runs", "list"], &["less", "-S"]]),
            ("source <(ua completions bash)", &[&["source"], &["ua", "completions", "bash"]]),
            ("ua resume last --max-cost '+1.50 USD'", &[&["ua", "resume", "last", "--max-cost", "+1.50 USD"]]),
            ("ua answer q --values '{\"size\": 3}'", &[&["ua", "answer", "q", "--values", "{\"size\": 3}"]]),
            ("ua job a.json 2>log.jsonl", &[&["ua", "job", "a.json"]]),
            ("ua answer q --text \"a \\\"b\\\"\" ''", &[&["ua", "answer", "q", "--text", "a \"b\"", ""]]),
        ];
        for (text, wanted) in cases {
            assert_eq!(words(text), wanted, "{text}");
        }
        assert!(Script::parse("ua answer 'q").is_err());
    }

    #[test]
    fn assignments_and_documents_stand_apart() {
        let script =
            Script::parse("UA_LOG=info ua doctor\ncat > a.json <<'JSON'\n{\"a\": 1}\nJSON\nua job a.json\n").unwrap();
        assert_eq!(script.commands[0].assignments, [("UA_LOG".to_owned(), "info".to_owned())]);
        assert_eq!(script.commands[0].words, ["ua", "doctor"]);
        assert_eq!(script.commands[1].words, ["cat"]);
        let last = &script.commands[2];
        assert_eq!((last.line, last.words.join(" ")), (4, "ua job a.json".to_owned()));
        let file = HereDocument { line: 2, file: "a.json".to_owned(), text: "{\"a\": 1}\n".to_owned() };
        assert_eq!(script.files, [file]);
        assert!(Script::parse("cat > a <<'END'\nnever ended\n").is_err());
    }
}
