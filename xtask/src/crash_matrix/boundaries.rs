//! The boundaries of a turn at which a cell dies.

use super::classes::{Class, Guarantee};
use super::shapes::Shape;
use crate::random::Random;

/// How a cell dies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Death {
    /// At a crossing of a seam; a point as `ua_testkit::KillPoint` reads it.
    Crossing(String),
    /// So many microseconds after a write began.
    Inside { write: &'static str, tool: Option<&'static str>, micros: u64 },
    /// Between the tool server's receipt of the call and its effect, or after the effect and before its answer.
    AtTheTool(&'static str),
    /// At the n-th `pwrite64` of a thread of the process, which is stopped before it by `strace`.
    AtPageWrite(u32),
}

/// One boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// The step of the turn it belongs to.
    pub(crate) step: &'static str,
    pub(crate) death: Death,
    /// Whether the subject may be sent and not yet answered in the database when the runner dies there.
    pub(crate) in_flight: bool,
}

impl Boundary {
    pub(crate) fn name(&self) -> String {
        match &self.death {
            Death::Crossing(point) => point.clone(),
            Death::Inside { write, micros, .. } => format!("inside {write} +{micros} µs"),
            Death::AtTheTool("answered") => "tool server has the answer to what it asked".to_owned(),
            Death::AtTheTool("working") => "its task is at work".to_owned(),
            Death::AtTheTool("ended") => "its task has ended".to_owned(),
            Death::AtTheTool(moment) => format!("tool server has {moment} it"),
            Death::AtPageWrite(n) => format!("page write {n}"),
        }
    }

    /// The life that dies there: what a tool asks for without waiting is answered between two lives.
    pub(crate) fn life(&self) -> u32 {
        if self.step == ANSWERED { 2 } else { 1 }
    }

    /// The point for `--kill`.
    pub(crate) fn point(&self) -> Option<String> {
        match &self.death {
            Death::Crossing(point) => Some(point.clone()),
            Death::Inside { write, tool, micros } => {
                let tool = tool.map_or(String::new(), |tool| format!(":{tool}"));
                Some(format!("during:{write}{tool}+{micros}"))
            }
            Death::AtTheTool(_) | Death::AtPageWrite(_) => None,
        }
    }

    /// Whether calls of tools are dispatched around it.
    pub(crate) fn is_dispatch(&self) -> bool {
        ["dispatch", "sub-agent", "sibling", "hand-off"].iter().any(|step| self.step.starts_with(step))
    }

    /// Whether another owner may take the run over here while this one lives: the run is owned, and has not ended. Between the
    /// last look at the epoch and the send there is no such place: what is sent there is the fence's business.
    pub(crate) fn may_be_replaced(&self) -> bool {
        let Death::Crossing(point) = &self.death else { return false };
        let unowned = ["store.submit_run", "store.acquire_run", "store.insert_answer"];
        let is_unowned = unowned.iter().any(|name| point.contains(name));
        // A person answers there, and that is no word of the owner that was replaced.
        let is_answered = self.step == WAITS && point == "after:store.raise_question";
        // Of a job with sub-agents the third end is that of the run at the top.
        let has_ended = ["after:store.end_run", "after:store.end_run#3"].contains(&point.as_str());
        let is_sending = ["before:tool.invoke", "before:tool.go_on"].iter().any(|send| point.starts_with(send));
        !is_unowned && !is_answered && !is_sending && !has_ended
    }

    /// Whether the tool waits on its connection here, so that what it did before it asked ends with its process.
    fn is_waited_on(&self, class: &Class) -> bool {
        let Death::Crossing(point) = &self.death else { return false };
        let has_asked = self.step == WAITS || point.starts_with("after:tool.invoke");
        class.shape == Shape::Waits && has_asked && !point.starts_with("after:tool.go_on")
    }

    /// Whether it belongs to somebody beside the subject, so that the call may be anywhere between its start and its answer. The tool
    /// server is one for all of them.
    fn is_beside(&self, class: &Class) -> bool {
        let Death::Crossing(point) = &self.death else { return false };
        class.shape == Shape::SubAgents && !point.contains(class.tool)
    }

    /// Whether a question about the subject is allowed when the runner (or else its tool server) dies here.
    pub(crate) fn may_ask(&self, class: &Class, is_server: bool) -> bool {
        let is_at_tool = matches!(self.death, Death::AtTheTool(_));
        let is_reached = !is_server || is_at_tool || self.is_waited_on(class) || self.is_beside(class);
        class.guarantee == Guarantee::Asked && self.in_flight && is_reached
    }
}

/// The step in which a later life hands over what a tool asked for.
pub(super) const ANSWERED: &str = "dispatch: answer";
/// The step in which a tool waits for an answer on its connection.
pub(super) const WAITS: &str = "dispatch: question while it waits";

/// A boundary of the seams, before and after: (step, crossing, about the subject, in flight before, in flight after).
pub(super) type Row = (&'static str, &'static str, bool, bool, bool);

/// Those of a job in turns. Reply, marker and the start of the first call are one write, but for calls that have to be looked at first.
pub(super) const CROSSINGS: [Row; 17] = [
    ("start", "store.submit_run", false, false, false),
    ("start", "store.acquire_run", false, false, false),
    ("start", "store.open_step", false, false, false),
    ("admit, compose, reserve", "store.reserve_request", false, false, false),
    ("think", "model.complete", false, false, false),
    ("record", "store.record_turn", false, false, true),
    ("dispatch", "store.save_checkpoint", false, false, true),
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    ("dispatch: settle", "store.settle_attempt", true, true, false),
    // The answer before it may be stored by this write.
    ("dispatch: next call", "store.start_attempt:notify_team", false, true, false),
    ("dispatch: next call", "tool.invoke:notify_team", false, false, false),
    ("dispatch: next call", "store.settle_attempt:notify_team", false, false, false),
    ("commit", "store.commit_turn", false, false, false),
    ("admit, compose, reserve", "store.reserve_request#2", false, false, false),
    ("commit", "store.commit_turn#2", false, false, false),
    ("end", "store.end_run", false, false, false),
];

/// The writes that are also died inside of: (step, write, about the subject).
const WRITES: [(&str, &str, bool); 7] = [
    ("start", "store.acquire_run", false),
    ("admit, compose, reserve", "store.reserve_request", false),
    ("record", "store.record_turn", false),
    ("dispatch: start", "store.start_attempt", true),
    ("dispatch: settle", "store.settle_attempt", true),
    ("commit", "store.commit_turn", false),
    ("end", "store.end_run", false),
];

/// A moment of a turn, as the table of windows tells it.
pub(crate) struct Window {
    pub(crate) step: &'static str,
    pub(crate) moment: String,
    /// Whether a call may be sent there and not yet answered in the database.
    pub(crate) in_flight: bool,
}

/// Every window once, in the order of a turn; crossings that are only about a later call or turn repeat an earlier one.
pub(crate) fn windows() -> Vec<Window> {
    let mut windows = Vec::new();
    for (step, crossing, _, before, after) in CROSSINGS.into_iter().filter(|row| !row.1.contains([':', '#'])) {
        windows.push(Window { step, moment: format!("before `{crossing}`"), in_flight: before });
        if crossing == "tool.invoke" {
            for (moment, has_not) in AT_THE_TOOL {
                let moment = format!("tool server has {moment} it and not {has_not}");
                windows.push(Window { step, moment, in_flight: true });
            }
        }
        windows.push(Window { step, moment: format!("after `{crossing}`"), in_flight: after });
    }
    windows
}

/// The moments of a tool server in a call, and what it has not done by then.
const AT_THE_TOOL: [(&str, &str); 2] = [("received", "acted"), ("acted on", "answered")];

/// The longest a seeded moment inside a write lies after its beginning, in microseconds.
const LONGEST_WRITE: u64 = 900;

/// Every boundary for `class`, with `moments` seeded ones inside each write.
pub(crate) fn boundaries(class: &Class, moments: u32, random: &mut Random) -> Vec<Boundary> {
    let mut all = Vec::new();
    for &(step, crossing, is_subject, before, after) in class.shape.crossings() {
        if class.always_asked > 0 && crossing == "store.commit_turn#2" {
            continue; // its second turn waits for an answer, so the first life never commits it
        }
        for (side, in_flight) in [("before", before), ("after", after)] {
            let tool = if is_subject { format!(":{}", class.tool) } else { String::new() };
            all.push(Boundary { step, death: Death::Crossing(format!("{side}:{crossing}{tool}")), in_flight });
        }
    }
    for (step, moment, in_flight) in class.shape.at_the_tool() {
        all.push(Boundary { step, death: Death::AtTheTool(moment), in_flight: *in_flight });
    }
    if class.always_asked > 0 {
        for side in ["before", "after"] {
            let death = Death::Crossing(format!("{side}:store.raise_question"));
            all.push(Boundary { step: "dispatch: ask", death, in_flight: false });
        }
    }
    for (step, write, is_subject) in WRITES.into_iter().filter(|_| !class.shape.is_part_of_turns()) {
        // The first turn that is recorded and committed in a tree is a sub-agent's, with its call in it.
        let is_of_a_call =
            class.shape == Shape::SubAgents && matches!(write, "store.record_turn" | "store.commit_turn");
        for _ in 0..moments {
            let tool = is_subject.then_some(class.tool);
            let death = Death::Inside { write, tool, micros: random.below(LONGEST_WRITE) };
            all.push(Boundary { step, death, in_flight: is_subject || is_of_a_call });
        }
    }
    all
}
