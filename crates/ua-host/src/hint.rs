//! What to do about a failure, as words: whoever says it often does not know yet which run it is about, and whoever knows that has not said it.
//!
//! So a hint is kept in parts, of which some are commands, and it becomes a text once it is shown: with the run that the failure is of, and the
//! command that continues that, if there is one. No text is searched for what it may mean.

use std::fmt::Write as _;

use ua_core::RunId;

/// A part of a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// As it is.
    Text(String),
    /// To do what failed once more: the same command again, unless a run is stored, which its own command continues.
    Again,
    /// The same where nobody knows whether a run was begun; what resuming one does follows behind it.
    AgainOrResume,
    /// Behind that: what the one who resumes a run does that may have been in the middle of a call.
    FindsOut,
    /// That a run that was driven sent nothing more; what to do follows.
    NothingNew,
    /// To resume the run, with these options, each behind a blank.
    Resume(&'static str),
    /// To move the run into the queue of this place.
    Move,
    /// To let the run continue although the database may lack what it sent.
    Accept,
    /// To look at the run.
    Show,
    /// That nothing came of it: no run was begun; of one that is stored, nothing was sent.
    NothingBegun,
}

/// Such a part, as it is.
pub(crate) fn text(text: impl Into<String>) -> Word {
    let text = text.into();
    Word::Text(ua_evidence::os_words::in_plain_words(&text).into_owned())
}

/// What to do about a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint(Vec<Word>);

impl From<Word> for Hint {
    fn from(word: Word) -> Self {
        Self(vec![word])
    }
}

impl From<String> for Hint {
    fn from(words: String) -> Self {
        text(words).into()
    }
}

impl From<&str> for Hint {
    fn from(words: &str) -> Self {
        text(words).into()
    }
}

impl From<&String> for Hint {
    fn from(words: &String) -> Self {
        text(words).into()
    }
}

impl<const N: usize> From<[Word; N]> for Hint {
    fn from(words: [Word; N]) -> Self {
        Self(words.into())
    }
}

/// A run that a failure is of.
#[derive(Debug, Clone)]
pub(crate) struct OfRun {
    /// Its name.
    pub(crate) run: RunId,
    /// The command that continues it, or has another process continue it.
    pub(crate) command: String,
    /// Whether it was stored by what failed, so that whoever gave the command may not know of it.
    pub(crate) is_new: bool,
}

impl Hint {
    /// The same with more behind it, as another sentence.
    pub(crate) fn and(mut self, word: Word) -> Self {
        self.0.extend([text("; "), word]);
        self
    }

    /// The same for whoever only looked: no run was begun that could be resumed, and nothing was sent before.
    pub(crate) fn of_a_look(self) -> Self {
        if !self.0.contains(&Word::AgainOrResume) {
            return self;
        }
        let words = self.0.into_iter().filter_map(|word| match word {
            Word::NothingNew | Word::FindsOut => None,
            Word::AgainOrResume => Some(Word::Again),
            word @ (Word::Text(_)
            | Word::Again
            | Word::Resume(_)
            | Word::Move
            | Word::Accept
            | Word::Show
            | Word::NothingBegun) => Some(word),
        });
        Self(words.chain([text("; nothing was changed")]).collect())
    }

    /// The text that a person reads.
    fn told(&self, of: Option<&OfRun>) -> String {
        let run = of.map_or("RUN", |of| of.run.as_str());
        let mut out = String::new();
        for word in &self.0 {
            match (word, of) {
                (Word::Text(words), _) => out.push_str(words),
                (Word::Again | Word::AgainOrResume, Some(OfRun { command, .. })) => {
                    let _infallible = write!(out, "`{command}`");
                }
                (Word::Again, None) => out.push_str("give the command again"),
                (Word::AgainOrResume, None) => {
                    out.push_str("give the command again; `ua resume RUN` continues a run that was begun");
                }
                (Word::FindsOut, _) => {
                    out.push_str(": it finds out what became of a call that was in flight, or asks");
                }
                (Word::NothingNew, _) => out.push_str("nothing new was sent after this; "),
                (Word::Resume(options), _) => {
                    let _infallible = write!(out, "`ua resume {run}{options}`");
                }
                (Word::Move, _) => {
                    let _infallible = write!(out, "`ua queue move {run}`");
                }
                (Word::Accept, _) => {
                    let _infallible = write!(out, "`ua db accept {run}`");
                }
                (Word::Show, _) => {
                    let _infallible = write!(out, "`ua runs show {run}`");
                }
                (Word::NothingBegun, Some(_)) => out.push_str("nothing was sent"),
                (Word::NothingBegun, None) => out.push_str("nothing was started"),
            }
        }
        out
    }

    /// Whether it says how the run is continued.
    fn continues(&self) -> bool {
        self.0.iter().any(|word| match word {
            Word::Again | Word::AgainOrResume | Word::Resume(_) | Word::Move => true,
            Word::Text(_) | Word::Accept | Word::FindsOut | Word::NothingNew | Word::Show | Word::NothingBegun => false,
        })
    }
}

/// The text of a hint to a failure of this run, with what else whoever reads it has to know of the run.
pub(crate) fn told(hint: Option<&Hint>, of: Option<&OfRun>) -> Option<String> {
    let words = hint.map(|hint| hint.told(of));
    let stored = of.filter(|of| of.is_new && !hint.is_some_and(Hint::continues));
    let stored = stored.map(|of| format!("run {} is stored: `{}` continues it", of.run, of.command));
    match (words, stored) {
        (Some(words), Some(stored)) => Some(format!("{words}; {stored}")),
        (words, stored) => words.or(stored),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the sources are read as they are")]
mod tests {
    use std::path::Path;

    use super::*;

    const WORDS: [Word; 7] = [
        Word::Again,
        Word::AgainOrResume,
        Word::Resume(" --take-over"),
        Word::Move,
        Word::Accept,
        Word::Show,
        Word::NothingBegun,
    ];

    fn of(is_new: bool) -> OfRun {
        OfRun { run: RunId::parse("run_1").unwrap(), command: "ua submit --run run_1".to_owned(), is_new }
    }

    #[test]
    fn a_word_has_its_run_and_its_command_once_they_are_known() {
        let told = |of: Option<&OfRun>| WORDS.map(|word| told(Some(&word.into()), of).unwrap());
        assert_eq!(
            told(None),
            [
                "give the command again",
                "give the command again; `ua resume RUN` continues a run that was begun",
                "`ua resume RUN --take-over`",
                "`ua queue move RUN`",
                "`ua db accept RUN`",
                "`ua runs show RUN`",
                "nothing was started",
            ]
        );
        assert_eq!(
            told(Some(&of(false))),
            [
                "`ua submit --run run_1`",
                "`ua submit --run run_1`",
                "`ua resume run_1 --take-over`",
                "`ua queue move run_1`",
                "`ua db accept run_1`",
                "`ua runs show run_1`",
                "nothing was sent",
            ]
        );
    }

    /// Who looked at what there is has begun nothing, and is sent to no run.
    #[test]
    fn whoever_only_looked_is_told_of_no_run() {
        let hint = || Hint::from([Word::NothingNew, text("free space, then "), Word::AgainOrResume, Word::FindsOut]);
        let begun = "nothing new was sent after this; free space, then give the command again; `ua resume RUN` continues a run that was begun: it \
                     finds out what became of a call that was in flight, or asks";
        assert_eq!(told(Some(&hint()), None).unwrap(), begun);
        let looked = "free space, then give the command again; nothing was changed";
        assert_eq!(told(Some(&hint().of_a_look()), None).unwrap(), looked);
        let other: Hint = "correct the URL".into();
        assert_eq!(other.clone().of_a_look(), other);
    }

    /// What a tool or a file said stays as it was said, whatever it looks like.
    #[test]
    fn no_text_is_taken_for_a_command() {
        let words = "`ua resume RUN` and `ua resume last`: give the command again; nothing was started";
        let hint: Hint = words.into();
        assert_eq!(told(Some(&hint), Some(&of(false))).unwrap(), words);
    }

    /// Whoever does not know of a run that was stored hears of it, once.
    #[test]
    fn a_run_that_was_stored_is_told_of_once() {
        let stored = "run run_1 is stored: `ua submit --run run_1` continues it";
        assert_eq!(told(None, Some(&of(true))).as_deref(), Some(stored));
        assert_eq!((told(None, Some(&of(false))), told(None, None)), (None, None));
        for word in WORDS {
            let told = told(Some(&word.clone().into()), Some(&of(true))).unwrap();
            assert_eq!(told.contains(stored), matches!(word, Word::Accept | Word::Show | Word::NothingBegun), "{told}");
        }
    }

    /// What is a word here is written as text nowhere else: nobody could put the run into it.
    #[test]
    fn no_hint_writes_a_word_as_text() {
        const WORDS: [&str; 6] = [
            "ive the command again",
            "resume RUN",
            "resume last",
            "queue move RUN",
            "db accept RUN",
            "othing was started",
        ];
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut looked = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                if path.file_name().is_some_and(|name| name == "hint.rs") {
                    continue;
                }
                looked += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                for (number, line) in (1..).zip(code.lines()) {
                    let is_said = !line.trim_start().starts_with("//") && WORDS.iter().any(|word| line.contains(word));
                    assert!(!is_said, "{}:{number}: {line}", path.display());
                }
            }
        }
        assert!(looked > 50, "the sources were found");
    }
}
