//! What is known to be wrong of these cells, by name: a cell that has one is right when it shows exactly that, and wrong when it shows
//! anything else, or nothing any more. The finding is the scenario of `cargo xtask findings` that plays the same with the real program.

use ua_testkit::{Refusal, ToolOutcome};

use crate::crash_matrix::boundaries::{Boundary, Death};
use crate::crash_matrix::cell::{Cell, Protection};
use crate::crash_matrix::classes::{Class, Guarantee};
use crate::crash_matrix::shapes::Shape;
use crate::crash_matrix::verdict::Verdict;

/// A way in which cells are known to be wrong.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// The scenario that plays it with the real program.
    pub(crate) finding: &'static str,
    shows: fn(&Verdict) -> bool,
}

impl Known {
    /// Whether a verdict shows this and nothing else.
    pub(crate) fn is_shown_by(&self, verdict: &Verdict) -> bool {
        (self.shows)(verdict) && !verdict.has_other_fault()
    }
}

fn breaks(verdict: &Verdict, statements: &[&str]) -> bool {
    verdict.broken.iter().map(String::as_str).eq(statements.iter().copied())
}

const DOUBT: &str = "doubt_outlives_a_refusal";
const SUB_AGENTS: &str = "kin_of_sub_agents_are_asked_about";
const FAILURE: &str = "kin_behind_a_failure_are_asked_about";

static IN_SCOPE: Known = Known {
    name: "refused-after-loss-in-scope",
    finding: "1a",
    shows: |v| breaks(v, &[DOUBT]) && v.duplicates == 1 && v.told > 0,
};
static ASKED_AGAIN: Known = Known {
    name: "refused-after-loss",
    finding: "1b",
    shows: |v| breaks(v, &[DOUBT]) && v.duplicates == 0 && v.told > 0,
};
static CREDENTIALS: Known = Known {
    name: "credentials-refused-after-loss",
    finding: "1d",
    shows: |v| breaks(v, &[DOUBT]) && v.duplicates <= 1 && v.told > 0,
};
static UNDONE: Known = Known {
    // The effect is not there, by luck, or a twin under the same key tells of it: nothing that the runner knew said so.
    name: "doubt-ended-by-a-refusal",
    finding: "1b",
    shows: |v| breaks(v, &[DOUBT]) && v.duplicates == 0 && v.told == 0,
};
static PARENTS: Known = Known {
    name: "sub-agent-of-the-parent-is-not-seen",
    finding: "2a",
    shows: |v| breaks(v, &[SUB_AGENTS]) && v.duplicates == 1,
};
static FORKS: Known = Known {
    name: "sub-agent-of-the-family-is-not-seen",
    finding: "2b",
    shows: |v| breaks(v, &[SUB_AGENTS]) && v.duplicates == 1,
};
static MEANWHILE: Known = Known {
    name: "sub-agent-that-sends-is-not-seen",
    finding: "2c",
    shows: |v| breaks(v, &[SUB_AGENTS]) && v.duplicates == 1,
};
static IN_DOUBT: Known = Known {
    // The fork does not ask; here the other one had not happened, and whoever is asked about it later sees the fork's.
    name: "sub-agent-in-doubt-is-not-seen",
    finding: "2c",
    shows: |v| breaks(v, &[SUB_AGENTS]) && v.duplicates == 0,
};
static OVERTAKEN: Known = Known {
    // A person looked, and let the fork do it; then the sub-agent in doubt repeats its own by itself.
    name: "sub-agent-does-not-see-that-it-was-overtaken",
    finding: "2b",
    shows: |v| v.broken.is_empty() && v.duplicates == 1 && v.asked > 0,
};
static FAILED_FIRST: Known = Known {
    name: "failed-first-then-done-beside",
    finding: "5",
    shows: |v| breaks(v, &[FAILURE]) && v.duplicates == 1,
};

/// All of them.
#[cfg(test)]
pub(crate) static KNOWN: [&Known; 10] = [
    &IN_SCOPE,
    &ASKED_AGAIN,
    &CREDENTIALS,
    &UNDONE,
    &PARENTS,
    &FORKS,
    &MEANWHILE,
    &IN_DOUBT,
    &OVERTAKEN,
    &FAILED_FIRST,
];

/// What is known of a cell.
pub(crate) fn of(cell: &Cell, class: &Class) -> Option<&'static Known> {
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
                (false, true) => Some(&OVERTAKEN),
                (true, true) => Some(&IN_DOUBT),
                (true, false) if is_by_fork_alone && is_done(boundary) => Some(&PARENTS),
                (true, false) => Some(&FORKS),
            }
        }
        Protection::ForkMeanwhile => (is_tree && has_no_key).then_some(&MEANWHILE),
        Protection::ForkBehindAFailure => has_no_key.then_some(&FAILED_FIRST),
        Protection::Resume
        | Protection::CrashAgain(_)
        | Protection::ServerDies
        | Protection::Replaced
        | Protection::Restored
        | Protection::ForkedAndRestored => None,
    }
}

fn refused(outcome: ToolOutcome, class: &Class, is_done: bool) -> Option<&'static Known> {
    // What never left and what was too many is tried once more; what is asked about is decided by who looks.
    let ToolOutcome::Refused(refusal) = outcome else { return None };
    if refusal == Refusal::TooMany || !class.is_repeated_by_itself() {
        return None;
    }
    let asks = matches!(refusal, Refusal::Unauthorized | Refusal::Forbidden);
    Some(match (is_done, asks, class.always_asked > 0) {
        (false, _, _) => &UNDONE,
        _ if class.has_a_twin() => &UNDONE,
        (true, true, _) => &CREDENTIALS,
        (true, false, true) => &IN_SCOPE,
        (true, false, false) => &ASKED_AGAIN,
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
