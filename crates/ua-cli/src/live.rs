//! Live progress on a terminal: what is done right now, how long it has taken, and how much of each budget is used, below the lines
//! of what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ua_core::{Budgets, Costs, Money, ShortNames};
use ua_dispatch::CallProgress;
use ua_host::people::UsedBefore;
use ua_runner::RunEvent;

use crate::output::line;
use crate::screen::Display;
use crate::shown::Shown;
use crate::used::{Allowed, Part, Used, part};

/// What a run does whose call, or whose tool, asks somebody.
const FOR_A_PERSON: &str = "waiting for a person";

/// The display. It goes away when this is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    began: Instant,
    state: Mutex<State>,
}

/// The most columns in front of what is being done: the spinner, and how long it takes.
const CLOCK: usize = 12;

/// Where a run stands that another process drives.
#[derive(Debug)]
pub(crate) struct RunProgress {
    /// The turn that is open or comes next.
    pub(crate) turn: u32,
    /// What is done.
    pub(crate) doing: String,
    /// Calls that are under way, by id.
    pub(crate) calls: BTreeMap<String, String>,
    /// Calls that were planned.
    pub(crate) tool_calls: u32,
    /// Tokens that were charged.
    pub(crate) tokens: u64,
    /// What they cost.
    pub(crate) costs: Costs,
    /// What it may use.
    pub(crate) budgets: Budgets,
    /// How long processes held it before the one that holds it now.
    pub(crate) held: Duration,
}

/// Where a run stands that this process drives, and what is shown of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    turn: u32,
    doing: String,
    /// Calls that are under way, by id.
    calls: BTreeMap<String, String>,
    /// Those of them whose tool has answered.
    answered: BTreeSet<String>,
    /// What an answer waits for.
    waits_for: Option<&'static str>,
    /// How tools are called, once it is known which are offered.
    names: ShortNames,
    tool_calls: u32,
    tokens: u64,
    cost: String,
    /// The part of the money that is used, if there is a limit.
    cost_part: Option<f64>,
    max_tool_calls: Option<u32>,
    max_tokens: Option<u64>,
    max_minutes: Option<u64>,
    /// How long processes held the run before this one took it.
    held: Duration,
    /// The time is used up, and what is under way is waited for.
    is_out_of_time: bool,
    /// An earlier process planned calls, and this one was not told yet how many.
    calls_are_unknown: bool,
    /// The same of tokens.
    tokens_are_unknown: bool,
}

impl Live {
    /// Starts a display on standard error, and has other lines written around it.
    #[expect(clippy::disallowed_methods, reason = "how long a display is there is no time of a run")]
    pub(crate) fn start() -> Self {
        crate::terminal::hide_echo_of_control();
        let live = Self { began: Instant::now(), state: Mutex::default() };
        // Nothing is known yet, and a spinner beside nothing says less than this.
        let doing = State::default().doing_text();
        crate::terminal::show(Display { began: live.began, doing, used: Used::default() });
        live
    }

    /// Says what the run may use, for how long it was held before, and what it used then.
    pub(crate) fn limits(&self, budgets: &Budgets, held: Duration, used: Option<&UsedBefore>) {
        let mut state = self.state();
        state.max_tool_calls = Some(budgets.max_tool_calls);
        state.max_tokens = budgets.max_tokens;
        state.max_minutes = Some(budgets.max_wallclock_minutes);
        state.began_before(held);
        if let Some(used) = used {
            state.tool_calls = used.tool_calls;
            state.calls_are_unknown = false;
            state.charged(used.tokens, &used.costs, budgets.max_tokens, budgets.max_cost);
        }
        self.show(&state);
    }

    /// Shows what a run that this process drives is doing.
    pub(crate) fn take(&self, signal: &RunEvent) {
        let mut state = self.state();
        state.take(signal);
        self.show(&state);
    }

    /// Shows where a run stands that another process drives.
    pub(crate) fn stands(&self, standing: &RunProgress) {
        let mut state = self.state();
        state.turn = standing.turn;
        state.doing.clone_from(&standing.doing);
        state.calls.clone_from(&standing.calls);
        state.tool_calls = standing.tool_calls;
        state.calls_are_unknown = false;
        state.max_tool_calls = Some(standing.budgets.max_tool_calls);
        state.charged(standing.tokens, &standing.costs, standing.budgets.max_tokens, standing.budgets.max_cost);
        // How long its process holds it now is not in the database before it ends: what is shown is what is certain.
        state.max_minutes = None;
        state.held = standing.held;
        self.show(&state);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, state: &State) {
        let room = crate::terminal::err_width();
        let doing = format!("{}{}", state.doing_text(), state.note());
        let doing = room.map_or_else(|| doing.clone(), |room| line(&doing, room.saturating_sub(CLOCK)));
        crate::terminal::show(Display {
            began: self.began,
            doing: Shown::from(doing).as_str().to_owned(),
            used: state.used(),
        });
    }

    /// Takes the display away; what is written next stands where it was.
    #[expect(clippy::unused_self, reason = "whoever has it takes it away")]
    pub(crate) fn finish(&self) {
        crate::terminal::hide();
        crate::terminal::restore_echo();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.finish();
    }
}

impl State {
    /// Takes notice of what a run is doing.
    pub(crate) fn take(&mut self, signal: &RunEvent) {
        match signal {
            RunEvent::Thinking { turn } => {
                self.turn = *turn;
                self.waits_for = None;
                "thinking".clone_into(&mut self.doing);
            }
            RunEvent::IterationBegun { number, of, .. } => self.doing = format!("iteration {number} of {of}"),
            RunEvent::PhaseEntered { phase, .. } => self.doing = format!("phase {}", line(phase, 24)),
            RunEvent::DatabaseBusy { .. } => self.now_waits_for("the database"),
            RunEvent::DatabaseFull { .. } => self.now_waits_for("room on the disk"),
            RunEvent::TimeUsedUp { .. } => self.is_out_of_time = true,
            RunEvent::Retrying { .. } => "waiting before the model is asked again".clone_into(&mut self.doing),
            RunEvent::ToolServerAway { .. } => "waiting for a tool server".clone_into(&mut self.doing),
            RunEvent::Recorded { turn, tool_calls, max_tool_calls, .. } => {
                self.turn = *turn;
                self.tool_calls = *tool_calls;
                self.calls_are_unknown = false;
                self.max_tool_calls = *max_tool_calls;
                self.waits_for = None;
                "working".clone_into(&mut self.doing);
            }
            RunEvent::Charged { spent, max_tokens, max_cost, .. } => {
                self.charged(spent.tokens, &spent.costs, *max_tokens, *max_cost);
            }
            RunEvent::Call(CallProgress::Sending { call } | CallProgress::Resuming { call, .. }) => {
                self.answered.remove(call.call_id.as_str());
                self.calls.insert(call.call_id.to_string(), line(self.names.of(&call.name), 40));
            }
            RunEvent::Call(CallProgress::Settled { call } | CallProgress::Retrying { call, .. }) => {
                self.calls.remove(call.call_id.as_str());
                self.answered.remove(call.call_id.as_str());
                self.waits_for = None;
                // What it asked a person in its middle is over with it.
                if self.doing == FOR_A_PERSON {
                    "working".clone_into(&mut self.doing);
                }
            }
            RunEvent::Call(CallProgress::Waiting { call, .. }) if call.policy.is_free_read() => {
                self.doing = format!("asking again: {}", line(self.names.of(&call.name), 40));
            }
            RunEvent::Call(CallProgress::Waiting { call, .. } | CallProgress::Probed { call, .. }) => {
                self.doing = format!("outcome unknown: {}", line(self.names.of(&call.name), 40));
            }
            RunEvent::Call(CallProgress::Held { .. } | CallProgress::Asking { .. }) => {
                FOR_A_PERSON.clone_into(&mut self.doing);
            }
            RunEvent::ToolsOffered { names } => self.names = names.clone(),
            RunEvent::Resuming { turn_index, .. } => {
                // The turn that is open, or comes next.
                self.turn = *turn_index + 1;
                "resuming".clone_into(&mut self.doing);
            }
            RunEvent::Call(CallProgress::Answered { call_id }) => {
                self.answered.insert(call_id.to_string());
            }
            RunEvent::Call(CallProgress::Declined { .. }) => "working".clone_into(&mut self.doing),
            RunEvent::Call(CallProgress::Progress { .. })
            | RunEvent::Committed { .. }
            | RunEvent::ToolsListed { .. }
            | RunEvent::Guided { .. }
            | RunEvent::Text { .. }
            | RunEvent::Accepted { .. }
            | RunEvent::ToolLeftOut { .. }
            | RunEvent::ImagesLeftOut { .. }
            | RunEvent::FormLeftOut { .. }
            | RunEvent::ReplyShortened { .. }
            | RunEvent::HistoryCut { .. }
            | RunEvent::ReadsOnly { .. }
            | RunEvent::NewestShortened { .. }
            | RunEvent::EffectCounted { .. }
            | RunEvent::HistoryOverLimit { .. }
            | RunEvent::SessionForgotten { .. }
            | RunEvent::NothingToAccept { .. }
            | RunEvent::AnswerNotKept { .. }
            | RunEvent::AnswerKept { .. }
            | RunEvent::NotNoted { .. } => {}
        }
    }

    /// Notes for how long processes held the run before this one.
    fn began_before(&mut self, held: Duration) {
        self.held = held;
        (self.calls_are_unknown, self.tokens_are_unknown) = (!held.is_zero(), !held.is_zero());
    }

    fn charged(&mut self, tokens: u64, costs: &Costs, max_tokens: Option<u64>, max_cost: Option<Money>) {
        self.tokens = tokens;
        self.tokens_are_unknown = false;
        self.max_tokens = max_tokens;
        self.cost = if costs.is_empty() { String::new() } else { costs.to_string() };
        let max_cost = max_cost.filter(|max| max.nanos() > 0);
        self.cost_part = max_cost.map(|max| part(costs.of(max.currency()).nanos(), max.nanos()));
        if let Some(max) = max_cost {
            self.cost = format!("{} of {max}", if costs.is_empty() { "0".to_owned() } else { costs.to_string() });
        }
    }

    /// What is done right now.
    pub(crate) fn doing_text(&self) -> String {
        let (answered, running) = (self.names_of(true), self.names_of(false));
        let doing = match (running.is_empty(), answered.is_empty(), self.waits_for) {
            (true, true, _) => self.doing.clone(),
            (false, true, _) => running,
            (true, false, Some(what)) => format!("{answered} has answered, and the answer waits for {what}"),
            (false, false, Some(what)) => format!("{running}; the answer of {answered} waits for {what}"),
            // Between its answer and the end of it there is next to no time.
            (true, false, None) => answered,
            (false, false, None) => format!("{running}, {answered}"),
        };
        if self.turn == 0 { "starting".to_owned() } else { format!("turn {} · {doing}", self.turn) }
    }

    /// What the process does about it.
    pub(crate) fn verb(&self) -> &'static str {
        let is_waiting = self.waits_for.is_some() && self.names_of(false).is_empty();
        if is_waiting { "waiting" } else { "running" }
    }

    /// The calls that are under way whose tools have answered, or have not.
    fn names_of(&self, have_answered: bool) -> String {
        let these = self.calls.iter().filter(|(id, _)| self.answered.contains(*id) == have_answered);
        let mut names: Vec<&str> = these.map(|(_, name)| name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }

    /// What came back waits for this.
    fn now_waits_for(&mut self, what: &'static str) {
        self.waits_for = Some(what);
        self.doing = format!("waiting for {what}");
    }

    /// What somebody should know who waits for it.
    pub(crate) fn note(&self) -> &'static str {
        if self.is_out_of_time { " (its time is used up: nothing is begun after this)" } else { "" }
    }

    /// What was used of each budget.
    fn used(&self) -> Used {
        let share = |used: u64, max: Option<u64>| max.map(|max| (part(used, max), format!("{used}/{max}")));
        let of = |name, used: u64, max| match share(used, max) {
            Some((share, text)) => Part { name, share: Some(share), text },
            None => Part { name, share: None, text: used.to_string() },
        };
        let calls = of("calls", self.tool_calls.into(), self.max_tool_calls.map(u64::from));
        let tokens = of("tokens", self.tokens, self.max_tokens);
        let known = [(calls, self.calls_are_unknown), (tokens, self.tokens_are_unknown)];
        let mut parts: Vec<Part> = known.into_iter().filter(|(_, unknown)| !unknown).map(|(part, _)| part).collect();
        if !self.cost.is_empty() {
            parts.push(Part { name: "cost", share: self.cost_part, text: self.cost.clone() });
        }
        let time = self.max_minutes.map(|minutes| Allowed { held: self.held, minutes });
        Used { parts, time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::used::INDENT;

    #[test]
    fn budgets_are_bars() {
        let state = State {
            turn: 3,
            doing: "thinking".to_owned(),
            tool_calls: 5,
            max_tool_calls: Some(10),
            tokens: 1200,
            max_minutes: Some(90),
            ..State::default()
        };
        assert_eq!(state.doing_text(), "turn 3 · thinking");
        let late = State { is_out_of_time: true, ..State::default() };
        assert_eq!((late.note().is_empty(), state.note()), (false, ""));
        // What a resume does of the first turn is no start.
        let mut resumed = State::default();
        assert_eq!(resumed.doing_text(), "starting");
        resumed.take(&RunEvent::Resuming { turn_index: 0, in_flight: 1, unsent: 0 });
        assert_eq!(resumed.doing_text(), "turn 1 · resuming");
        // A tool that has answered does not run, whatever its answer waits for.
        let mut full =
            State { turn: 2, calls: [("call_1".to_owned(), "send_email".to_owned())].into(), ..State::default() };
        let call_id = ua_core::CallId::parse("call_1").unwrap();
        full.take(&RunEvent::Call(CallProgress::Answered { call_id }));
        assert_eq!((full.doing_text().as_str(), full.verb()), ("turn 2 · send_email", "running"));
        full.take(&RunEvent::DatabaseFull { doing: String::new(), why: String::new(), left_millis: 1 });
        let waits = "turn 2 · send_email has answered, and the answer waits for room on the disk";
        assert_eq!((full.doing_text().as_str(), full.verb()), (waits, "waiting"));
        full.calls.insert("call_2".to_owned(), "upload".to_owned());
        let beside = "turn 2 · upload; the answer of send_email waits for room on the disk";
        assert_eq!((full.doing_text().as_str(), full.verb()), (beside, "running"));
        // What an earlier process used is not nothing.
        resumed.began_before(Duration::from_mins(1));
        assert_eq!(resumed.used().text(Duration::ZERO, None), "");
        resumed.charged(1200, &Costs::default(), None, None);
        assert_eq!(resumed.used().text(Duration::ZERO, None), "tokens 1200");
        let whole = "calls [█████░░░░░] 5/10 · tokens 1200 · time [█░░░░░░░░░] 09:00/90 min";
        for (room, wanted) in [
            (None, whole),
            (Some(80), whole),
            (Some(whole.chars().count() + INDENT), whole),
            (Some(60), "calls 5/10 · tokens 1200 · time 09:00/90 min"),
            (Some(40), "calls 5/10 · tokens 1200 · …"),
            (Some(20), "calls 5/10 · …"),
            (Some(8), "…"),
        ] {
            assert_eq!(state.used().text(Duration::from_mins(9), room), wanted, "{room:?}");
        }
    }
}
