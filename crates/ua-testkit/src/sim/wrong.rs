//! What a simulation can find wrong. Nothing of it is known and excused: whatever is found is mended.

use std::fmt;

/// In which way something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// An effect happened more often than anybody wanted.
    Twice,
    /// An effect that was wanted is missing.
    Lost,
    /// The model, a person, a record or a file was told what is not so.
    ToldWrongly,
    /// A person was asked what was known, or is asked for ever.
    AskedNeedlessly,
    /// What the provider billed and what is booked are far apart.
    ChargedWrongly,
    /// What a provider refused for good is asked for again, or a run was left otherwise than the refusal wants it.
    RefusedAgain,
    /// A run does not end, or not as it may.
    Stuck,
    /// What a person said had no consequence.
    WordWithoutConsequence,
    /// An owner that was replaced went on.
    NotFenced,
    /// A statement about the stored records is broken.
    Records,
    /// The program failed or panicked although nothing was wrong.
    Failed,
}

impl Wrong {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Twice => "twice",
            Self::Lost => "lost",
            Self::ToldWrongly => "told wrongly",
            Self::AskedNeedlessly => "asked needlessly",
            Self::ChargedWrongly => "charged wrongly",
            Self::RefusedAgain => "refused again",
            Self::Stuck => "stuck",
            Self::WordWithoutConsequence => "word without consequence",
            Self::NotFenced => "not fenced",
            Self::Records => "records",
            Self::Failed => "failed",
        }
    }
}

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// In which way.
    pub wrong: Wrong,
    /// What, in words.
    pub words: String,
}

impl Violation {
    pub(super) fn new(wrong: Wrong, words: impl Into<String>) -> Self {
        Self { wrong, words: words.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wrong.name(), self.words)
    }
}
