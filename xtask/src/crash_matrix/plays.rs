//! Cells that are laid out one by one: a repeat that is refused, a family that is forked around its sub-agents, a database that goes back
//! to a copy. What they play is what reading found (`cargo xtask findings`), at every place where a process can die; what was once wrong of
//! it has a name ([`once_wrong`]).

pub(crate) mod once_wrong;

use ua_testkit::{Refusal, ToolOutcome};

use super::boundaries::{Boundary, Death};
use super::cell::{Cell, Protection};
use super::classes::{CLASSES, Class};
use super::shapes::Shape;

/// Where a call of the subject is when its process dies: the row it belongs to, and whether its effect is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Its turn is recorded, and it was not sent.
    Recorded,
    /// RUNNING is written, and it was not sent.
    Started,
    /// It is about to be sent.
    Sending,
    /// Its server has it, and has not done it.
    Received,
    /// It is done, and not answered.
    Acted,
    /// It is answered, and nobody knows.
    Answered,
    /// Its answer is stored.
    Settled,
    /// The turn of the run at the top is about to be committed.
    Committing,
    /// That turn is committed, so that a fork shares it.
    Committed,
}

impl At {
    const fn name(self) -> &'static str {
        match self {
            Self::Recorded => "it is decided",
            Self::Started => "it is running",
            Self::Sending => "it is about to be sent",
            Self::Received => "its server has it",
            Self::Acted => "it is done",
            Self::Answered => "it is answered",
            Self::Settled => "its answer is stored",
            Self::Committing => "its turn is about to be committed",
            Self::Committed => "its turn is committed",
        }
    }

    /// The boundary at which a process of this class dies there; `row` is what stands in the table.
    fn boundary(self, class: &Class, row: &'static str) -> Boundary {
        let commit = if class.shape == Shape::SubAgents { "store.commit_turn#5" } else { "store.commit_turn" };
        let death = match self {
            Self::Recorded => Death::Crossing("after:store.record_turn".to_owned()),
            Self::Started => Death::Crossing(format!("after:store.start_attempt:{}", class.tool)),
            Self::Sending => Death::Crossing(format!("before:tool.invoke:{}", class.tool)),
            Self::Received => Death::AtTheTool("received"),
            Self::Acted => Death::AtTheTool("acted"),
            Self::Answered => Death::Crossing(format!("after:tool.invoke:{}", class.tool)),
            Self::Settled => Death::Crossing(format!("after:store.settle_attempt:{}", class.tool)),
            Self::Committing => Death::Crossing(format!("before:{commit}")),
            Self::Committed => Death::Crossing(format!("after:{commit}")),
        };
        let in_flight = matches!(
            self,
            Self::Recorded | Self::Started | Self::Sending | Self::Received | Self::Acted | Self::Answered
        );
        Boundary { step: row, death, in_flight }
    }
}

/// Where a repeat is to follow: the call was in flight.
const IN_FLIGHT: [At; 5] = [At::Started, At::Sending, At::Received, At::Acted, At::Answered];
/// Where a fork is made.
const FORKED: [At; 8] =
    [At::Recorded, At::Sending, At::Received, At::Acted, At::Answered, At::Settled, At::Committing, At::Committed];
/// Where a run is when its database goes back.
const RESTORED: [At; 4] = [At::Acted, At::Answered, At::Settled, At::Committing];

/// What the repeat of a lost call comes to: all that says that nothing of it happened.
fn refusals() -> impl Iterator<Item = ToolOutcome> {
    Refusal::ALL.iter().copied().map(ToolOutcome::Refused).chain([ToolOutcome::NeverLeft])
}

/// What stands in the table for a refusal.
fn row_of(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Refused(refusal) => refusal.name(),
        ToolOutcome::NeverLeft => "never left",
        ToolOutcome::Answered
        | ToolOutcome::LostBefore
        | ToolOutcome::LostAfter
        | ToolOutcome::Late
        | ToolOutcome::ReportedWithoutEffect
        | ToolOutcome::ReportedWithEffect
        | ToolOutcome::AnsweredTwice
        | ToolOutcome::BusyForLong
        | ToolOutcome::ServerDied
        | ToolOutcome::GoesOnInATask
        | ToolOutcome::AsksFirst => unreachable!("no refusal: {}", outcome.name()),
    }
}

/// Every one of them, or a few of each kind.
pub(super) fn cells(quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (number, class) in CLASSES.iter().enumerate() {
        let mut add = |at: At, row, protection| {
            cells.push(Cell { class: number, boundary: Some(at.boundary(class, row)), protection });
        };
        if class.may_be_refused() {
            for (nth, outcome) in refusals().enumerate() {
                // In a quick round each refusal is met by one class or two.
                if quick && nth % 7 != number % 7 {
                    continue;
                }
                let at: &[At] = if quick { &[At::Acted] } else { &IN_FLIGHT };
                for at in at {
                    add(*at, row_of(outcome), Protection::RedoMeets(outcome));
                }
            }
        }
        let is_tree = class.shape == Shape::SubAgents;
        if is_tree {
            let at: &[At] = if quick { &[At::Recorded, At::Received, At::Acted, At::Committed] } else { &FORKED };
            for at in at {
                add(*at, at.name(), Protection::ForkItself);
            }
            let at: &[At] = if quick { &[At::Recorded, At::Settled] } else { &FORKED };
            for at in at {
                add(*at, at.name(), Protection::Fork);
            }
            // Not before it is sent: who looks then sees nothing, and whatever they say is overtaken.
            add(At::Answered, At::Answered.name(), Protection::ForkMeanwhile);
        } else if class.is_sent_around_forks() {
            // The controls, of runs that do it themselves; and what was turned away before a fork did it.
            add(At::Answered, At::Answered.name(), Protection::ForkMeanwhile);
            add(At::Settled, At::Settled.name(), Protection::ForkBehindAFailure);
        }
        if is_tree || class.is_sent_around_forks() {
            let at: &[At] = if quick { &[At::Acted] } else { &RESTORED };
            for at in at {
                add(*at, at.name(), Protection::Restored);
            }
            add(At::Recorded, At::Recorded.name(), Protection::ForkedAndRestored);
        }
    }
    if quick {
        // Whatever was once wrong is played in a quick round, too.
        for cell in self::cells(false) {
            let name_of = |cell: &Cell| once_wrong::of(cell, &CLASSES[cell.class]);
            if name_of(&cell).is_some_and(|name| !cells.iter().any(|one| name_of(one) == Some(name))) {
                cells.push(cell);
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn once_wrong_of(cells: &[Cell]) -> BTreeSet<&'static str> {
        cells.iter().filter_map(|cell| once_wrong::of(cell, &CLASSES[cell.class])).collect()
    }

    #[test]
    fn a_quick_round_has_every_refusal_every_protection_and_everything_that_was_wrong() {
        let (quick, all) = (cells(true), cells(false));
        let names = |cells: &[Cell]| cells.iter().map(|cell| cell.protection.name()).collect::<BTreeSet<_>>();
        assert_eq!(names(&quick), names(&all));
        let met = |cells: &[Cell]| -> BTreeSet<String> {
            cells
                .iter()
                .filter_map(|cell| match cell.protection {
                    Protection::RedoMeets(outcome) => Some(outcome.name()),
                    Protection::Resume
                    | Protection::CrashAgain(_)
                    | Protection::ServerDies
                    | Protection::Replaced
                    | Protection::Fork
                    | Protection::ForkItself
                    | Protection::ForkMeanwhile
                    | Protection::ForkBehindAFailure
                    | Protection::Restored
                    | Protection::ForkedAndRestored => None,
                })
                .collect()
        };
        assert_eq!(met(&quick), refusals().map(ToolOutcome::name).collect());
        assert_eq!(once_wrong_of(&quick), BTreeSet::from(once_wrong::ALL));
        assert_eq!(once_wrong_of(&all), once_wrong_of(&quick));
    }

    #[test]
    fn a_cell_has_a_name_of_its_own() {
        let all = cells(false);
        let names: BTreeSet<String> = all.iter().map(|cell| cell.name(&CLASSES[cell.class])).collect();
        assert_eq!(names.len(), all.len());
    }
}
