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

    /// How a later attempt said that nothing happened, after one that may have had the effect.
    fn denied_after_loss(&self) -> Option<Fate> {
        let mut in_doubt = false;
        for (fate, effects) in &self.sends {
            if in_doubt && matches!(fate, Fate::Refused(_) | Fate::NeverLeft | Fate::ReportedAsNothing) {
                return Some(*fate);
            }
            in_doubt |= *effects > 0 || *fate == Fate::Lost;
        }
        None
    }

    /// It was refused or never left before an attempt that had the effect, and no earlier one was in doubt.
    fn failed_before_it_left(&self) -> bool {
        let first = self.sends.iter().position(|(_, effects)| *effects > 0).unwrap_or(0);
        first > 0 && self.sends[..first].iter().all(|(fate, _)| matches!(fate, Fate::Refused(_) | Fate::NeverLeft))
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
    /// The end of the run is stored, and every process that drove it died or failed before it knew.
    pub(super) end_was_never_learnt: bool,
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

/// A later attempt of one of the calls was refused, or never left.
fn refused_after_loss(facts: &Facts) -> Option<Fate> {
    facts.calls.iter().find_map(CallFacts::denied_after_loss).filter(|fate| *fate != Fate::ReportedAsNothing)
}

/// A later attempt of one of the calls was answered: it failed, and nothing was done.
fn reported_after_loss(facts: &Facts) -> bool {
    facts.calls.iter().find_map(CallFacts::denied_after_loss) == Some(Fate::ReportedAsNothing)
}

/// Two calls of two trees of a family.
fn is_beside(wrong: Wrong, facts: &Facts) -> bool {
    wrong == Wrong::Twice && facts.calls.len() == 2 && facts.calls[0].tree != facts.calls[1].tree
}

/// A statement of `ua_store::invariants` that is known to be broken.
fn is_statement(wrong: Wrong, facts: &Facts, name: &str) -> bool {
    wrong == Wrong::Records && facts.statement == Some(name)
}

/// All of them. The first that fits is what a violation is counted as.
pub const KNOWN: &[Known] = &[
    Known {
        name: "refused-after-loss-in-scope",
        finding: "1a",
        seed: Some(12),
        about: "An attempt is lost after its effect, a later one of the same call is refused; asked for in other words, a call of the same \
                scope goes out.",
        is_it: |wrong, facts| {
            wrong == Wrong::Twice
                && facts.calls.len() == 2
                && facts.calls[0].is_by_content
                && refused_after_loss(facts).is_some()
        },
    },
    Known {
        name: "refused-after-loss-asked-again",
        finding: "1b",
        seed: Some(79),
        about: "The same with a call that is known by its place: the model is told that nothing happened, and asks again.",
        is_it: |wrong, facts| wrong == Wrong::Twice && facts.calls.len() == 2 && refused_after_loss(facts).is_some(),
    },
    Known {
        name: "refused-after-loss-expired-key",
        finding: "1c",
        seed: Some(1156),
        about: "The same call is tried again after its key has expired on the other side.",
        is_it: |wrong, facts| {
            wrong == Wrong::Twice
                && facts.calls.iter().any(|call| call.has_key_ttl)
                && refused_after_loss(facts).is_some()
        },
    },
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
        name: "refused-after-loss-told-a-person",
        finding: "1d",
        seed: Some(224),
        about: "The question about refused credentials says that nothing happened, and something had.",
        is_it: |wrong, facts| {
            wrong == Wrong::ToldWrongly && facts.told == Some(Told::Person) && refused_after_loss(facts).is_some()
        },
    },
    Known {
        name: "refused-after-loss-told-the-model",
        finding: "1",
        seed: Some(12),
        about: "The model is told that nothing happened outside, and something had.",
        is_it: |wrong, facts| {
            wrong == Wrong::ToldWrongly && facts.told == Some(Told::Model) && refused_after_loss(facts).is_some()
        },
    },
    Known {
        name: "refused-after-loss-in-the-completion-file",
        finding: "1",
        seed: Some(12),
        about: "The completion file says DID NOT HAPPEN, and it had.",
        is_it: |wrong, facts| {
            wrong == Wrong::ToldWrongly && facts.told == Some(Told::File) && refused_after_loss(facts).is_some()
        },
    },
    Known {
        name: "refused-after-loss-in-the-records",
        finding: "1",
        seed: Some(12),
        about: "The call is stored as definitely failed, and it had happened.",
        is_it: |wrong, facts| {
            wrong == Wrong::ToldWrongly && facts.told == Some(Told::Record) && refused_after_loss(facts).is_some()
        },
    },
    Known {
        name: "reported-as-nothing-after-loss",
        finding: "new (beside 1)",
        seed: Some(1009),
        about: "An attempt is lost after its effect; a later one under the same key is answered with an error of which the policy says that \
                nothing happened, and that counts for the whole call.",
        is_it: |wrong, facts| matches!(wrong, Wrong::ToldWrongly | Wrong::Twice) && reported_after_loss(facts),
    },
    Known {
        name: "completion-file-of-an-earlier-life",
        finding: "new",
        seed: Some(5094),
        about: "The end of a run is committed, and its process never learns it; the completion file stays as an earlier process left it, and \
                says of what was done since that it was not sent.",
        is_it: |wrong, facts| {
            wrong == Wrong::ToldWrongly && facts.told == Some(Told::File) && facts.end_was_never_learnt
        },
    },
    Known {
        name: "sub-agents-are-not-seen-beside",
        finding: "2",
        seed: Some(6),
        about: "A fork or its parent repeats what a sub-agent of the other did.",
        is_it: |wrong, facts| is_beside(wrong, facts) && facts.calls.iter().any(|call| call.is_in_sub_agent),
    },
    Known {
        name: "failed-first-then-done-beside",
        finding: "5",
        seed: Some(1915),
        about: "A call that was refused before it left is made by a fork, and again by the parent.",
        is_it: |wrong, facts| is_beside(wrong, facts) && facts.calls[1].failed_before_it_left(),
    },
    Known {
        name: "answer-beside-a-run-is-never-applied",
        finding: "new",
        seed: Some(169),
        about: "A run goes on without a call in doubt; a person answers while a process drives it, the run ends in that process, and \
                nobody applies the answer unless somebody resumes the ended run.",
        is_it: |wrong, facts| {
            let is_late = |word: WordFacts| word.is_gone_on_without && word.while_it_lived;
            wrong == Wrong::WordWithoutConsequence && facts.word.is_some_and(is_late)
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
        name: "cut-replies-are-not-charged",
        finding: "6",
        seed: Some(39),
        about: "A reply breaks after the provider said what it bills; only the estimated input is booked.",
        is_it: |wrong, facts| {
            wrong == Wrong::ChargedWrongly && facts.unbooked.is_some_and(|(tokens, of_cuts)| tokens <= of_cuts)
        },
    },
    Known {
        name: "reply-dropped-by-a-busy-store",
        finding: "7",
        seed: Some(51),
        about: "The answer of a call is there while another program holds the database; it is dropped, and a person is asked.",
        is_it: |wrong, facts| wrong == Wrong::AskedNeedlessly && facts.reply_met_a_busy_store,
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
        name: "records: doubt_outlives_a_refusal",
        finding: "1",
        seed: Some(12),
        about: "A call is stored as definitely failed although an earlier attempt of it is in doubt.",
        is_it: |wrong, facts| is_statement(wrong, facts, "doubt_outlives_a_refusal"),
    },
    Known {
        name: "records: doubt_outlives_a_report",
        finding: "new (beside 1)",
        seed: Some(272),
        about: "The same, of a tool that said that it failed and did nothing.",
        is_it: |wrong, facts| is_statement(wrong, facts, "doubt_outlives_a_report"),
    },
    Known {
        name: "records: kin_of_sub_agents_are_asked_about",
        finding: "2",
        seed: Some(3),
        about: "A call of a sub-agent and the same call of another tree of the family, and nobody was asked.",
        is_it: |wrong, facts| is_statement(wrong, facts, "kin_of_sub_agents_are_asked_about"),
    },
    Known {
        name: "records: kin_of_denied_doubts_are_asked_about",
        finding: "1",
        seed: Some(228),
        about: "A call in doubt that a later refusal took for not happened, and the same call of another run of the family.",
        is_it: |wrong, facts| is_statement(wrong, facts, "kin_of_denied_doubts_are_asked_about"),
    },
    Known {
        name: "records: kin_behind_a_failure_are_asked_about",
        finding: "5",
        seed: Some(228),
        about: "A call that was turned away first is made although another run of the family made the same.",
        is_it: |wrong, facts| is_statement(wrong, facts, "kin_behind_a_failure_are_asked_about"),
    },
    Known {
        name: "records: kin_that_start_at_once_are_asked_about",
        finding: "new (beside 2)",
        seed: Some(547),
        about: "A run and its fork, or two forks, look beside them before either has written RUNNING; both send the same call.",
        is_it: |wrong, facts| is_statement(wrong, facts, "kin_that_start_at_once_are_asked_about"),
    },
    Known {
        name: "records: a_skip_is_kept",
        finding: "new",
        seed: None,
        about: "What a person skipped was sent.",
        is_it: |wrong, facts| is_statement(wrong, facts, "a_skip_is_kept"),
    },
    Known {
        name: "records: an_answer_beside_a_run_is_applied",
        finding: "new",
        seed: Some(168),
        about: "An answer is stored, and its run has ended without acting on it.",
        is_it: |wrong, facts| is_statement(wrong, facts, "an_answer_beside_a_run_is_applied"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcomes::Refusal;

    fn call(sends: &[(Fate, u32)]) -> CallFacts {
        CallFacts { tree: 0, is_in_sub_agent: false, is_by_content: false, has_key_ttl: false, sends: sends.to_vec() }
    }

    fn name_of(calls: Vec<CallFacts>) -> Option<&'static str> {
        let facts = Facts { calls, ..Facts::default() };
        Violation::new(Wrong::Twice, "").with(facts).known().map(|known| known.name)
    }

    #[test]
    fn a_duplicate_is_known_by_what_the_world_saw_and_by_nothing_else() {
        let refused = call(&[(Fate::Lost, 1), (Fate::Refused(Refusal::BadRequest), 0)]);
        let done = call(&[(Fate::Answered, 1)]);
        assert_eq!(name_of(vec![refused.clone(), done.clone()]), Some("refused-after-loss-asked-again"));
        let by_content = CallFacts { is_by_content: true, ..refused };
        assert_eq!(name_of(vec![by_content, done.clone()]), Some("refused-after-loss-in-scope"));
        // Refused first and lost later is what keys are for.
        let lost_later = call(&[(Fate::Refused(Refusal::TooMany), 0), (Fate::Lost, 1)]);
        assert_eq!(name_of(vec![lost_later.clone(), done.clone()]), None);
        assert_eq!(name_of(vec![done.clone(), done.clone()]), None);
        let elsewhere = CallFacts { tree: 1, ..call(&[(Fate::NeverLeft, 0), (Fate::Answered, 1)]) };
        assert_eq!(name_of(vec![done.clone(), elsewhere]), Some("failed-first-then-done-beside"));
        let below = CallFacts { tree: 1, is_in_sub_agent: true, ..done.clone() };
        assert_eq!(name_of(vec![done, below]), Some("sub-agents-are-not-seen-beside"));
    }

    #[test]
    fn each_statement_that_is_known_to_be_broken_is_counted_by_its_name_and_no_other_one_is() {
        let known = |statement| {
            let facts = Facts { statement: Some(statement), ..Facts::default() };
            Violation::new(Wrong::Records, "").with(facts).known()
        };
        for statement in ua_store::invariants::KNOWN {
            let Some(known) = known(statement.invariant) else { panic!("{} is on no list here", statement.invariant) };
            assert_eq!(known.finding, statement.finding, "{}", known.name);
        }
        let listed = KNOWN.iter().filter(|known| known.name.starts_with("records: ")).count();
        assert_eq!(listed, ua_store::invariants::KNOWN.len());
        assert!(known("legal_transitions").is_none() && known("kin_are_asked_about").is_none());
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = KNOWN.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), KNOWN.len());
    }
}
