//! What a simulation can find wrong, and what of it is known: each known way has a name, its finding, and a predicate over what the
//! world and the records say about the violation, never over its words.

use std::fmt;

use ua_store::{Choice, QuestionKind};

use super::servers::{Fate, Send};

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
            Self::Stuck => "stuck",
            Self::WordWithoutConsequence => "word without consequence",
            Self::NotFenced => "not fenced",
            Self::Records => "records",
            Self::Failed => "failed",
        }
    }
}

/// To whom something wrong was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Model,
    Person,
    Record,
    File,
}

/// What the world knows about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallFacts {
    /// The run at the top of its tree, by its place in the family.
    pub(super) tree: usize,
    pub(super) is_in_sub_agent: bool,
    /// The same content is the same effect by its policy.
    pub(super) is_by_content: bool,
    pub(super) has_key_ttl: bool,
    /// Its sends, oldest first: how each ended, and how often it had its effect.
    pub(super) sends: Vec<(Fate, u32)>,
}

impl CallFacts {
    pub(super) fn sends_of<'s>(sends: impl Iterator<Item = &'s Send>) -> Vec<(Fate, u32)> {
        sends.map(|send| (send.fate, send.effects)).collect()
    }
}

/// What was said by a person, and what it was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WordFacts {
    pub(super) choice: Choice,
    pub(super) kind: QuestionKind,
    /// It was said while a process drove the run.
    pub(super) while_it_lived: bool,
    /// The run goes on without the call, by its policy.
    pub(super) is_gone_on_without: bool,
}

/// What the world and the records say about a violation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The calls that it is about, in the order of their effects.
    pub(super) calls: Vec<CallFacts>,
    pub(super) told: Option<Told>,
    pub(super) word: Option<WordFacts>,
    /// Tokens that were billed and are not booked, and how many of these belong to replies that broke.
    pub(super) unbooked: Option<(u64, u64)>,
    /// The answer was in the hands of a process that the database would not take it from, since another one held it.
    pub(super) reply_met_a_busy_store: bool,
    /// A row changed under a process, and another owner of the run had been replaced while it lived.
    pub(super) met_a_replaced_owner: bool,
    /// The wall clock was set.
    pub(super) clock_was_set: bool,
    /// The statement about stored records that is broken.
    pub(super) statement: Option<&'static str>,
}

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// In which way.
    pub wrong: Wrong,
    /// What, in words.
    pub words: String,
    facts: Facts,
}

impl Violation {
    pub(super) fn new(wrong: Wrong, words: impl Into<String>) -> Self {
        Self { wrong, words: words.into(), facts: Facts::default() }
    }

    pub(super) fn with(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// The known way that this is, if it is one.
    pub fn known(&self) -> Option<&'static Known> {
        KNOWN.iter().find(|known| (known.is_it)(self.wrong, &self.facts))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wrong.name(), self.words)
    }
}

/// A way in which today's code is known to be wrong. Once it is mended no seed shows it any more, and it has to go.
#[derive(Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// The finding that describes it.
    pub finding: &'static str,
    /// What happens, in a sentence.
    pub about: &'static str,
    /// The first seed that shows it, counted from 1: so many simulations it took. `None` for what was seen with other weights only.
    pub seed: Option<u64>,
    is_it: fn(Wrong, &Facts) -> bool,
}

/// A statement of `ua_store::invariants` that is known to be broken.
fn is_statement(wrong: Wrong, facts: &Facts, name: &str) -> bool {
    wrong == Wrong::Records && facts.statement == Some(name)
}

/// All of them. The first that fits is what a violation is counted as.
pub const KNOWN: &[Known] = &[
    Known {
        name: "key-expires-before-the-send",
        finding: "new (beside 1)",
        seed: None,
        about: "A keyed call in doubt is tried again in time; more time passes before it is sent (a slow write, a suspended machine), and \
                nobody looks at the key's age again.",
        is_it: |wrong, facts| {
            wrong == Wrong::Twice && matches!(&facts.calls[..], [call] if call.has_key_ttl) && !facts.clock_was_set
        },
    },
    Known {
        name: "skip-lost-to-a-withdrawn-question",
        finding: "new",
        seed: None,
        about: "A question about a near-duplicate is withdrawn in the moment in which a person answers skip; the call is sent.",
        is_it: |wrong, facts| {
            let is_late = |word: WordFacts| {
                word.choice == Choice::Skip && word.kind == QuestionKind::NearDuplicate && word.while_it_lived
            };
            wrong == Wrong::WordWithoutConsequence && facts.word.is_some_and(is_late)
        },
    },
    Known {
        name: "sub-agent-ended-by-a-replaced-owner",
        finding: "new",
        seed: None,
        about: "An owner that was replaced still ends its sub-agent's run; the new owner fails instead of taking what it came to.",
        is_it: |wrong, facts| wrong == Wrong::Failed && facts.met_a_replaced_owner,
    },
    // The same as the stored records show it, to whoever asks `ua_store::invariants`.
    Known {
        name: "records: a_skip_is_kept",
        finding: "new",
        seed: None,
        about: "What a person skipped was sent.",
        is_it: |wrong, facts| is_statement(wrong, facts, "a_skip_is_kept"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_that_is_known_to_be_broken_is_counted_by_its_name_and_no_other_one_is() {
        let known = |statement| {
            let facts = Facts { statement: Some(statement), ..Facts::default() };
            Violation::new(Wrong::Records, "").with(facts).known()
        };
        for name in KNOWN.iter().filter_map(|known| known.name.strip_prefix("records: ")) {
            let statement = ua_store::invariants::KNOWN.iter().find(|statement| statement.invariant == name);
            assert_eq!(known(name).map(|known| known.finding), statement.map(|statement| statement.finding), "{name}");
        }
        assert!(known("legal_transitions").is_none() && known("kin_are_asked_about").is_none());
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = KNOWN.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), KNOWN.len());
    }
}
