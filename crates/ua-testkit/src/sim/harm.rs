//! How much harm one simulation may do. All of it is finite, so every simulation has to end.

use super::chance::Chance;

/// What may still go wrong.
#[derive(Debug, Clone, Default)]
pub(super) struct Harm {
    /// Processes that die.
    pub(super) deaths: usize,
    /// Owners that fall asleep and wake up later, perhaps replaced.
    pub(super) sleeps: usize,
    /// Writes of the store that are refused, or done and not answered.
    pub(super) store_faults: usize,
    /// Requests to tools that fail in one way or another.
    pub(super) tool_faults: usize,
    /// Requests to the model that fail.
    pub(super) model_faults: usize,
    /// Signals that ask a process to stop.
    pub(super) signals: usize,
    /// A person cancels the run.
    pub(super) cancels: usize,
    /// Times in which nothing happens but that the clock moves.
    pub(super) hours: usize,
    /// Steps of the wall clock.
    pub(super) clock_steps: usize,
    /// Starts although nobody answered yet.
    pub(super) vain_starts: usize,
    /// Earlier tool servers that cannot be ended at first.
    pub(super) undead: usize,
    /// Forks that a person makes.
    pub(super) forks: usize,
    /// Times that the database goes back to a copy.
    pub(super) restores: usize,
    /// Questions that a person answers with `abort`.
    pub(super) aborts: usize,
    /// Questions that a person answers with `skip`, for reasons of their own.
    pub(super) skips: usize,
    /// The person answers without looking.
    pub(super) is_careless: bool,
    /// The run may ask for so few tool calls that it stops.
    pub(super) is_tight: bool,
    /// Effects that a person undoes outside, and whose records they put right.
    pub(super) corrections: usize,
    /// Runs that a person deletes.
    pub(super) deletions: usize,
}

impl Harm {
    /// What a seed draws. One simulation in eight is left alone; others have their own mixture, so that rare things meet.
    pub(super) fn drawn(chance: &Chance) -> Self {
        if chance.one_in(8) {
            return Self::default();
        }
        let up_to = |most: usize| if chance.one_in(3) { 0 } else { chance.below(most + 1) };
        let now_and_then = |n: usize| usize::from(chance.one_in(n));
        Self {
            deaths: up_to(4),
            sleeps: up_to(2),
            store_faults: up_to(3),
            tool_faults: up_to(5),
            model_faults: up_to(3),
            signals: up_to(2),
            cancels: now_and_then(12),
            hours: up_to(2),
            clock_steps: now_and_then(8),
            vain_starts: up_to(2),
            undead: if chance.one_in(10) { 1 + chance.below(3) } else { 0 },
            forks: if chance.one_in(3) { 1 + chance.below(2) } else { 0 },
            restores: now_and_then(5),
            aborts: now_and_then(4),
            skips: if chance.one_in(4) { 1 + chance.below(2) } else { 0 },
            is_careless: chance.one_in(10),
            is_tight: chance.one_in(8),
            corrections: now_and_then(6),
            deletions: 0,
        }
    }

    /// The same, where `chance` has a person delete runs now and then. No copy of the database from before is put back then: what effects.log
    /// knows of a deletion is not modelled (`Mirror`).
    pub(super) fn with_deletions(self, chance: &Chance) -> Self {
        if !chance.one_in(6) {
            return self;
        }
        Self { deletions: 1 + chance.below(3), restores: 0, ..self }
    }
}
