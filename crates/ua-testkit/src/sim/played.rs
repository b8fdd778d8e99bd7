//! Which outcomes of the vocabulary a simulation played, and how often: an outcome that is never drawn is tested by nobody, whatever
//! the matches say.

use std::collections::BTreeMap;

use crate::outcomes::{ClockOutcome, ModelOutcome, PersonOutcome, ProcessOutcome, StoreOutcome, ToolOutcome};

/// Outcomes by the name of their seam and their own, and how often each was played.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(BTreeMap<(&'static str, String), u64>);

impl Outcomes {
    pub(super) fn tool(&mut self, outcome: ToolOutcome) {
        self.note("tool", outcome.name());
    }

    pub(super) fn store(&mut self, outcome: StoreOutcome) {
        self.note("store", outcome.name().to_owned());
    }

    pub(super) fn model(&mut self, outcome: ModelOutcome) {
        self.note("model", outcome.name().to_owned());
    }

    pub(super) fn person(&mut self, outcome: PersonOutcome) {
        self.note("person", outcome.name().to_owned());
    }

    pub(super) fn clock(&mut self, outcome: ClockOutcome) {
        self.note("clock", outcome.name().to_owned());
    }

    pub(super) fn process(&mut self, outcome: ProcessOutcome) {
        self.note("process", outcome.name().to_owned());
    }

    fn note(&mut self, seam: &'static str, name: String) {
        *self.0.entry((seam, name)).or_default() += 1;
    }

    /// Adds what another simulation played.
    pub fn add(&mut self, other: &Self) {
        for (outcome, times) in &other.0 {
            *self.0.entry(outcome.clone()).or_default() += times;
        }
    }

    /// The outcomes that were never played, of all that there are: a simulation can play every one of them.
    pub fn missing(&self) -> Vec<String> {
        let missing = every().into_iter().filter(|outcome| !self.0.contains_key(outcome));
        missing.map(|(seam, name)| format!("{seam} {name}")).collect()
    }

    /// A line for each seam: how often each of its outcomes was played.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
        for (seam, name) in every() {
            if lines.last().is_none_or(|(last, _)| *last != seam) {
                lines.push((seam, Vec::new()));
            }
            let times = self.0.get(&(seam, name.clone())).copied().unwrap_or(0);
            if let Some((_, counts)) = lines.last_mut() {
                counts.push(format!("{name} {times}"));
            }
        }
        lines.into_iter().map(|(seam, counts)| format!("{seam}: {}", counts.join(", "))).collect()
    }
}

/// Every outcome of every seam.
fn every() -> Vec<(&'static str, String)> {
    let names =
        |seam: &'static str, names: Vec<&'static str>| names.into_iter().map(move |name| (seam, name.to_owned()));
    let mut all: Vec<(&'static str, String)> = ToolOutcome::all().map(|outcome| ("tool", outcome.name())).collect();
    all.extend(names("store", StoreOutcome::ALL.iter().map(|one| one.name()).collect()));
    all.extend(names("model", ModelOutcome::ALL.iter().map(|one| one.name()).collect()));
    all.extend(names("person", PersonOutcome::ALL.iter().map(|one| one.name()).collect()));
    all.extend(names("clock", ClockOutcome::ALL.iter().map(|one| one.name()).collect()));
    all.extend(names("process", ProcessOutcome::ALL.iter().map(|one| one.name()).collect()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_played_is_missing_and_what_was_is_counted() {
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.missing().len(), every().len());
        outcomes.clock(ClockOutcome::Suspended);
        outcomes.add(&outcomes.clone());
        assert_eq!(outcomes.missing().len(), every().len() - 1);
        assert!(!outcomes.missing().contains(&"clock suspended".to_owned()));
        assert!(outcomes.lines().iter().any(|line| line.starts_with("clock: ") && line.contains("suspended 2")));
    }
}
