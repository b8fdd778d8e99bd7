//! Live progress on a terminal: what is done right now, how long it has taken, and how much of each budget is used, below the lines
//! of what happened.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ua_core::{Budgets, CallId, Costs, Money, QuestionId, ShortNames};
use ua_dispatch::CallProgress;
use ua_host::people::UsedBefore;
use ua_runner::RunEvent;
use ua_store::{CallRecord, QuestionRecord};

use crate::ids::short;
use crate::output::line;
use crate::screen::Display;
use crate::shown::Shown;
use crate::used::{Allowed, Part, Used, part};

/// What a run does whose call is held until somebody has answered.
const FOR_A_PERSON: &str = "waiting for a person";
/// How whatever is done begins that is no work.
const A_WAIT: &str = "waiting";

/// The display. It goes away when this is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    began: Instant,
    state: Mutex<State>,
}

/// A call that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveCall {
    /// How its tool is called.
    name: String,
    /// A sub-agent works on it, whose own calls say what is done.
    is_task: bool,
    does: Does,
}

/// What a call does that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Its tool works.
    Work,
    /// Its tool has answered.
    Answered,
    /// Nobody knows what came of it, and it is decided after a wait.
    InDoubt,
    /// It only reads, brought no answer, and is made again after a wait.
    Again,
}

impl LiveCall {
    /// A call whose tool works.
    pub(crate) fn of(call: &CallRecord, names: &ShortNames) -> Self {
        Self { name: line(names.of(&call.name), 40), is_task: call.name.is_task(), does: Does::Work }
    }

    /// The same as one of this sub-agent.
    pub(crate) fn below(self, who: &str) -> Self {
        Self { name: format!("{who} ▸ {}", self.name), ..self }
    }
}

/// What a tool asked in the middle of a call: it does nothing until somebody has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asking {
    /// How the tool is called; `None` for one of a sub-agent, of whose calls nothing else is shown.
    name: Option<String>,
    question: QuestionId,
}

impl Asking {
    /// What the tool of this call asks.
    pub(crate) fn of(question: &QuestionRecord, call: Option<&LiveCall>) -> Self {
        Self { name: call.map(|call| call.name.clone()), question: question.question_id.clone() }
    }

    /// The same as of a tool of this sub-agent.
    pub(crate) fn below(self, who: &str) -> Self {
        Self { name: self.name.map(|name| format!("{who} ▸ {name}")), ..self }
    }
}

/// Where a run stands that another process drives.
#[derive(Debug)]
pub(crate) struct RunProgress {
    /// The turn that is open or comes next.
    pub(crate) turn: u32,
    /// What is done.
    pub(crate) doing: String,
    /// Calls that are under way, by id.
    pub(crate) calls: BTreeMap<String, LiveCall>,
    /// What tools ask in the middle of calls, by the call's id.
    pub(crate) asking: BTreeMap<String, Asking>,
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
    calls: BTreeMap<String, LiveCall>,
    /// What tools ask in the middle of calls, those of sub-agents too, by the call's id.
    asking: BTreeMap<String, Asking>,
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

    /// Shows what a tool of a sub-agent asks, and that it asks no more.
    pub(crate) fn take_below(&self, signal: &RunEvent) {
        let mut state = self.state();
        state.take_below(signal);
        self.show(&state);
    }

    /// Shows that a tool has what it asked for, or is told that it gets nothing.
    pub(crate) fn settled(&self, question: &QuestionId) {
        let mut state = self.state();
        state.settled(question);
        self.show(&state);
    }

    /// Shows where a run stands that another process drives.
    pub(crate) fn stands(&self, standing: &RunProgress) {
        let mut state = self.state();
        state.turn = standing.turn;
        state.doing.clone_from(&standing.doing);
        state.calls.clone_from(&standing.calls);
        state.asking.clone_from(&standing.asking);
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
        // What there is no room for is left out where it is drawn: a window changes.
        let doing = format!("{}{}", state.doing_text(), state.note());
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
                self.is_under_way(call, Does::Work);
            }
            RunEvent::Call(CallProgress::Settled { call } | CallProgress::Retrying { call, .. }) => {
                self.is_over(&call.call_id);
                self.waits_for = None;
                // What it asked a person in its middle is over with it.
                if self.doing == FOR_A_PERSON {
                    "working".clone_into(&mut self.doing);
                }
            }
            RunEvent::Call(CallProgress::Waiting { call, .. }) if call.policy.is_free_read() => {
                self.is_under_way(call, Does::Again);
            }
            RunEvent::Call(CallProgress::Waiting { call, .. } | CallProgress::Probed { call, .. }) => {
                self.is_under_way(call, Does::InDoubt);
            }
            RunEvent::Call(CallProgress::Held { question }) => {
                // It is not waited for: it goes on with the answer, or not at all.
                if let Some(call) = &question.call_id {
                    self.is_over(call);
                }
                FOR_A_PERSON.clone_into(&mut self.doing);
            }
            RunEvent::Call(CallProgress::Asking { question, .. }) => self.asks(question),
            RunEvent::ToolsOffered { names } => self.names = names.clone(),
            RunEvent::Resuming { turn_index, .. } => {
                // The turn that is open, or comes next.
                self.turn = *turn_index + 1;
                "resuming".clone_into(&mut self.doing);
            }
            RunEvent::Call(CallProgress::Answered { call_id }) => {
                self.asking.remove(call_id.as_str());
                if let Some(call) = self.calls.get_mut(call_id.as_str()) {
                    call.does = Does::Answered;
                }
            }
            RunEvent::Call(CallProgress::Declined { call, .. }) => {
                self.asking.remove(call.call_id.as_str());
            }
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

    /// Takes notice of what a sub-agent is doing: only what its tools ask is of interest here, for nothing else waits for a person.
    pub(crate) fn take_below(&mut self, signal: &RunEvent) {
        let RunEvent::Call(progress) = signal else { return };
        match progress {
            CallProgress::Asking { question, .. } => self.asks(question),
            CallProgress::Declined { call, .. }
            | CallProgress::Settled { call }
            | CallProgress::Retrying { call, .. }
            | CallProgress::Waiting { call, .. } => {
                self.asking.remove(call.call_id.as_str());
            }
            CallProgress::Answered { call_id } => {
                self.asking.remove(call_id.as_str());
            }
            CallProgress::Sending { .. }
            | CallProgress::Resuming { .. }
            | CallProgress::Probed { .. }
            | CallProgress::Progress { .. }
            | CallProgress::Held { .. } => {}
        }
    }

    /// Takes notice that a tool has what it asked for, or is told that it gets nothing: it works again.
    pub(crate) fn settled(&mut self, question: &QuestionId) {
        self.asking.retain(|_, asking| asking.question != *question);
    }

    fn asks(&mut self, question: &QuestionRecord) {
        let id = question.call_id.as_ref().map_or_else(|| question.question_id.to_string(), ToString::to_string);
        let asking = Asking::of(question, self.calls.get(&id));
        self.asking.insert(id, asking);
    }

    fn is_under_way(&mut self, call: &CallRecord, does: Does) {
        self.asking.remove(call.call_id.as_str());
        self.calls.insert(call.call_id.to_string(), LiveCall { does, ..LiveCall::of(call, &self.names) });
    }

    fn is_over(&mut self, call: &CallId) {
        self.asking.remove(call.as_str());
        self.calls.remove(call.as_str());
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
        if self.turn == 0 {
            return "starting".to_owned();
        }
        let answered = self.names_of(Does::Answered);
        // Between its answer and the end of it there is next to no time.
        let busy = [self.names_of(Does::Work), answered.clone().filter(|_| self.waits_for.is_none())];
        let busy: Vec<String> = busy.into_iter().flatten().collect();
        let mut parts: Vec<String> = Some(busy.join(", ")).filter(|busy| !busy.is_empty()).into_iter().collect();
        parts.extend(self.asking_text());
        if let (Some(answered), Some(what)) = (answered, self.waits_for) {
            parts.push(if parts.is_empty() {
                format!("{answered} has answered, and the answer waits for {what}")
            } else {
                format!("the answer of {answered} waits for {what}")
            });
        }
        parts.extend(self.names_of(Does::InDoubt).map(|names| format!("outcome unknown: {names}")));
        parts.extend(self.names_of(Does::Again).map(|names| format!("asking again: {names}")));
        let doing = if parts.is_empty() { self.doing.clone() } else { parts.join("; ") };
        format!("turn {} · {doing}", self.turn)
    }

    /// Which tools wait for an answer, and how it is given.
    fn asking_text(&self) -> Option<String> {
        let mut asking = self.asking.values();
        let one = asking.next()?;
        let name = |asking: &Asking| asking.name.clone().unwrap_or_else(|| "a tool of a sub-agent".to_owned());
        let more: Vec<String> = asking.map(name).collect();
        Some(if more.is_empty() {
            format!("{} waits for an answer (`ua answer {}`)", name(one), short(one.question.as_str()))
        } else {
            format!("{}, {} wait for answers (`ua questions`)", name(one), more.join(", "))
        })
    }

    /// What the process does about it.
    pub(crate) fn verb(&self) -> &'static str {
        let does = |call: &LiveCall| match call.does {
            // Whatever else a sub-agent does, it is its tool that waits.
            Does::Work => !call.is_task || self.asking.is_empty(),
            Does::Answered => self.waits_for.is_none(),
            Does::InDoubt | Does::Again => false,
        };
        let mut works = self.calls.iter().filter(|(id, _)| !self.asking.contains_key(*id)).map(|(_, call)| does(call));
        let is_idle = self.calls.is_empty() && self.asking.is_empty();
        let is_at_work = if is_idle { !self.doing.starts_with(A_WAIT) } else { works.any(|works| works) };
        if is_at_work { "running" } else { "waiting" }
    }

    /// The calls that are under way and do this, none of which asks somebody.
    fn names_of(&self, does: Does) -> Option<String> {
        let these = self.calls.iter().filter(|(id, call)| call.does == does && !self.asking.contains_key(*id));
        let mut names: Vec<&str> = these.map(|(_, call)| call.name.as_str()).collect();
        names.dedup();
        (!names.is_empty()).then(|| names.join(", "))
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

    fn at_work(id: &str, tool: &str) -> (String, LiveCall) {
        (id.to_owned(), LiveCall { name: tool.to_owned(), is_task: false, does: Does::Work })
    }

    /// A tool that asks does nothing until somebody has answered, and works again as soon as that is known, wherever the answer came from.
    #[test]
    fn a_tool_that_asks_waits_and_says_for_whom() {
        let question = QuestionId::parse("q_1").unwrap();
        let asks = |name: Option<&str>| Asking { name: name.map(str::to_owned), question: question.clone() };
        let mut state = State { turn: 1, calls: [at_work("call_1", "order")].into(), ..State::default() };
        assert_eq!((state.doing_text().as_str(), state.verb()), ("turn 1 · order", "running"));
        state.asking.insert("call_1".to_owned(), asks(Some("order")));
        let waits = "turn 1 · order waits for an answer (`ua answer q_1`)";
        assert_eq!((state.doing_text().as_str(), state.verb()), (waits, "waiting"));
        // Beside one that works.
        state.calls.extend([at_work("call_2", "upload")]);
        let beside = "turn 1 · upload; order waits for an answer (`ua answer q_1`)";
        assert_eq!((state.doing_text().as_str(), state.verb()), (beside, "running"));
        state.settled(&QuestionId::parse("q_0").unwrap());
        assert_eq!(state.doing_text(), beside, "that was another one");
        state.settled(&question);
        assert_eq!((state.doing_text().as_str(), state.verb()), ("turn 1 · order, upload", "running"));
        // What a tool of a sub-agent asks is what the run waits for.
        let task = LiveCall { name: "task".to_owned(), is_task: true, does: Does::Work };
        let mut above = State { turn: 1, calls: [("call_3".to_owned(), task)].into(), ..State::default() };
        assert_eq!(above.verb(), "running");
        above.asking.insert("call_9".to_owned(), asks(None));
        let below = "turn 1 · task; a tool of a sub-agent waits for an answer (`ua answer q_1`)";
        assert_eq!((above.doing_text().as_str(), above.verb()), (below, "waiting"));
        let call_id = CallId::parse("call_9").unwrap();
        above.take_below(&RunEvent::Call(CallProgress::Answered { call_id }));
        assert_eq!((above.doing_text().as_str(), above.verb()), ("turn 1 · task", "running"));
    }

    /// Nothing runs while a wait is over first, whatever it is for.
    #[test]
    fn what_only_waits_is_not_said_to_run() {
        let call = |does| LiveCall { name: "order".to_owned(), is_task: false, does };
        for (does, text) in
            [(Does::InDoubt, "turn 1 · outcome unknown: order"), (Does::Again, "turn 1 · asking again: order")]
        {
            let calls = [("call_1".to_owned(), call(does))].into();
            let state = State { turn: 1, calls, ..State::default() };
            assert_eq!((state.doing_text().as_str(), state.verb()), (text, "waiting"));
        }
        let mut state = State { turn: 1, ..State::default() };
        for doing in [FOR_A_PERSON, "waiting before the model is asked again", "waiting for a tool server"] {
            doing.clone_into(&mut state.doing);
            assert_eq!(state.verb(), "waiting", "{doing}");
        }
        state.take(&RunEvent::Thinking { turn: 1 });
        assert_eq!((state.doing_text().as_str(), state.verb()), ("turn 1 · thinking", "running"));
    }

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
        let mut full = State { turn: 2, calls: [at_work("call_1", "send_email")].into(), ..State::default() };
        let call_id = ua_core::CallId::parse("call_1").unwrap();
        full.take(&RunEvent::Call(CallProgress::Answered { call_id }));
        assert_eq!((full.doing_text().as_str(), full.verb()), ("turn 2 · send_email", "running"));
        full.take(&RunEvent::DatabaseFull { doing: String::new(), why: String::new(), left_millis: 1 });
        let waits = "turn 2 · send_email has answered, and the answer waits for room on the disk";
        assert_eq!((full.doing_text().as_str(), full.verb()), (waits, "waiting"));
        full.calls.extend([at_work("call_2", "upload")]);
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
