//! Ways in which an effect was once repeated, or told wrongly, by name: at least one cell of each is played in every quick round. The
//! scenarios of `cargo xtask findings` play the same with the real program.

use ua_testkit::{Refusal, ToolOutcome};

use crate::crash_matrix::boundaries::{Boundary, Death};
use crate::crash_matrix::cell::{Cell, Protection};
use crate::crash_matrix::classes::{Class, Guarantee};
use crate::crash_matrix::shapes::Shape;

const IN_SCOPE: &str = "refused-after-loss-in-scope";
const ASKED_AGAIN: &str = "refused-after-loss";
const CREDENTIALS: &str = "credentials-refused-after-loss";
const UNDONE: &str = "doubt-ended-by-a-refusal";
const PARENTS: &str = "sub-agent-of-the-parent-is-not-seen";
const FORKS: &str = "sub-agent-of-the-family-is-not-seen";
const MEANWHILE: &str = "sub-agent-that-sends-is-not-seen";
const IN_DOUBT: &str = "sub-agent-in-doubt-is-not-seen";
const OVERTAKEN: &str = "sub-agent-does-not-see-that-it-was-overtaken";
const FAILED_FIRST: &str = "failed-first-then-done-beside";

/// All of them.
#[cfg(test)]
pub(crate) const ALL: [&str; 10] =
    [IN_SCOPE, ASKED_AGAIN, CREDENTIALS, UNDONE, PARENTS, FORKS, MEANWHILE, IN_DOUBT, OVERTAKEN, FAILED_FIRST];

/// What a cell once showed.
pub(crate) fn of(cell: &Cell, class: &Class) -> Option<&'static str> {
    let boundary = cell.boundary.as_ref()?;
    // What is known by its content has one key for the whole family, and a server that honours it.
    let has_no_key = class.guarantee == Guarantee::Asked;
    let is_tree = class.shape == Shape::SubAgents;
    match &cell.protection {
        Protection::RedoMeets(outcome) => refused(*outcome, class, is_done(boundary)),
        Protection::Fork | Protection::ForkItself if !is_tree || is_shared(boundary) => None,
        Protection::Fork | Protection::ForkItself => {
            let is_by_fork_alone = cell.protection == Protection::ForkItself;
            match (has_no_key, boundary.in_flight && !is_done(boundary)) {
                (false, false) => None,
                (false, true) => Some(OVERTAKEN),
                (true, true) => Some(IN_DOUBT),
                (true, false) if is_by_fork_alone && is_done(boundary) => Some(PARENTS),
                (true, false) => Some(FORKS),
            }
        }
        Protection::ForkMeanwhile => (is_tree && has_no_key).then_some(MEANWHILE),
        Protection::ForkBehindAFailure => has_no_key.then_some(FAILED_FIRST),
        Protection::Resume
        | Protection::CrashAgain(_)
        | Protection::ServerDies
        | Protection::Replaced
        | Protection::Restored
        | Protection::ForkedAndRestored => None,
    }
}

fn refused(outcome: ToolOutcome, class: &Class, is_done: bool) -> Option<&'static str> {
    // What never left and what was too many is tried once more; what is asked about is decided by who looks.
    let ToolOutcome::Refused(refusal) = outcome else { return None };
    if refusal == Refusal::TooMany || !class.is_repeated_by_itself() {
        return None;
    }
    let asks = matches!(refusal, Refusal::Unauthorized | Refusal::Forbidden);
    Some(match (is_done, asks, class.always_asked > 0) {
        (false, _, _) => UNDONE,
        _ if class.has_a_twin() => UNDONE,
        (true, true, _) => CREDENTIALS,
        (true, false, true) => IN_SCOPE,
        (true, false, false) => ASKED_AGAIN,
    })
}

/// Whether the effect is there when the process dies.
fn is_done(boundary: &Boundary) -> bool {
    match &boundary.death {
        Death::AtTheTool(moment) => *moment == "acted",
        Death::Crossing(point) => {
            let behind = ["after:tool.invoke:", "after:store.settle_attempt:", "before:store.commit_turn"];
            behind.iter().any(|start| point.starts_with(start)) || is_shared(boundary)
        }
        Death::Inside { .. } | Death::AtPageWrite(_) => false,
    }
}

/// Whether a fork shares the turn.
fn is_shared(boundary: &Boundary) -> bool {
    matches!(&boundary.death, Death::Crossing(point) if point.starts_with("after:store.commit_turn"))
}
