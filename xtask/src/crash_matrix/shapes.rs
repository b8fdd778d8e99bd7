//! What the job around a class's call is like: turns, a parent with sub-agents, or iterations; with the boundaries that only it has.

use serde_json::{Value, json};

use super::boundaries::{ANSWERED, CROSSINGS, Row, WAITS};
use super::classes::{Class, look, tail, tool_use};

/// The tool that a sibling of the subject's sub-agent calls.
pub(crate) const FILED: &str = "file_report";

/// What a fork is told whose model makes the subject's call itself.
pub(crate) const FORK_PROMPT: &str = "FORK: do it yourself.";

/// The shape of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Three turns of one run.
    Turns,
    /// Two sub-agents side by side, one of which makes the call; then the parent goes on.
    SubAgents,
    /// Two iterations; the second begins with an empty context.
    Iterations,
    /// As `Turns`; the tool asks for something first, which is answered between two lives.
    Asks,
    /// As `Turns`; the tool asks for something first, and waits on its connection until it is answered.
    Waits,
    /// As `Turns`; the tool's work goes on in a task.
    Task,
    /// As `Turns`; each life after the first comes an hour later.
    Later,
}

/// A moment at which a process dies because of its tool server: (step, moment, whether the call is in flight).
type Moment = (&'static str, &'static str, bool);

/// A tool that asks without waiting. Until the answer is about to leave, nothing can have happened.
const OF_ASKS: [Row; 10] = [
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    ("dispatch: question", "store.keep_handle", false, true, false),
    ("dispatch: question", "store.raise_question", false, false, false),
    (ANSWERED, "store.insert_answer", false, false, false),
    (ANSWERED, "store.keep_handle", false, false, false),
    (ANSWERED, "store.keep_handle#2", false, false, false),
    (ANSWERED, "store.keep_handle#3", false, false, true),
    (ANSWERED, "tool.go_on", true, true, true),
    (ANSWERED, "store.settle_attempt", true, true, false),
];

/// A tool that waits for its answer: it dies with its connection, and nobody can know how far it came.
const OF_WAITS: [Row; 8] = [
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    (WAITS, "store.keep_handle", false, true, true),
    (WAITS, "store.raise_question", false, true, true),
    (WAITS, "store.keep_handle#2", false, true, true),
    (WAITS, "store.keep_handle#3", false, true, true),
    (WAITS, "tool.go_on", true, true, true),
    ("dispatch: settle", "store.settle_attempt", true, true, false),
];

/// A task: once its handle is stored, whoever comes asks it, and nobody else has to be asked.
const OF_TASK: [Row; 5] = [
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    ("dispatch: handle of a task", "store.keep_handle", false, true, false),
    ("dispatch: task", "tool.go_on", true, false, false),
    ("dispatch: settle", "store.settle_attempt", true, false, false),
];

/// A call whose key the other side has forgotten when the next life comes.
const OF_LATER: [Row; 4] = [
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    ("dispatch: settle", "store.settle_attempt", true, true, false),
    ("commit", "store.commit_turn", false, false, false),
];

/// A parent and two sub-agents in the order of time. Each kind of boundary is there for the parent and for a child. What runs beside
/// the subject may find it in flight. The parent's first commit is the fifth: each child commits two turns before.
const OF_SUB_AGENTS: [Row; 24] = [
    ("start", "store.submit_run", false, false, false),
    ("start", "store.acquire_run", false, false, false),
    ("think", "model.complete", false, false, false),
    ("record", "store.record_turn", false, false, false),
    ("dispatch: start of a task", "store.start_attempt:task", false, false, false),
    ("dispatch: start of a task", "store.start_attempt:task#2", false, true, true),
    ("sub-agent: start", "store.acquire_run#2", false, true, true),
    ("sub-agent: start", "store.open_step#2", false, true, true),
    ("sub-agent: think", "model.complete#2", false, true, true),
    ("sub-agent: record", "store.record_turn#2", false, true, true),
    ("sub-agent: call", "store.start_attempt", true, false, true),
    ("sub-agent: invoke", "tool.invoke", true, true, true),
    ("sub-agent: settle", "store.settle_attempt", true, true, false),
    ("sibling: call", "store.start_attempt:file_report", false, true, true),
    ("sibling: call", "tool.invoke:file_report", false, true, true),
    ("sibling: call", "store.settle_attempt:file_report", false, true, true),
    ("sub-agent: end", "store.end_run", false, true, true),
    ("dispatch: settle of a task", "store.settle_attempt:task", false, true, true),
    ("dispatch: settle of a task", "store.settle_attempt:task#2", false, false, false),
    ("commit", "store.commit_turn#5", false, false, false),
    ("dispatch: next call", "store.start_attempt:notify_team", false, false, false),
    ("dispatch: next call", "tool.invoke:notify_team", false, false, false),
    ("commit", "store.commit_turn#6", false, false, false),
    ("end", "store.end_run#3", false, false, false),
];

/// Two iterations in the order of time: the hand-off is the write that ends the first and begins the second.
const OF_ITERATIONS: [Row; 16] = [
    ("start", "store.submit_run", false, false, false),
    ("start", "store.acquire_run", false, false, false),
    ("record", "store.record_turn", false, false, true),
    ("dispatch: start", "store.start_attempt", true, false, true),
    ("dispatch: invoke", "tool.invoke", true, true, true),
    ("dispatch: settle", "store.settle_attempt", true, true, false),
    ("commit", "store.commit_turn", false, false, false),
    ("hand-off: last word", "model.complete#2", false, false, false),
    ("hand-off: last word", "store.record_turn#2", false, false, false),
    ("hand-off: last word", "store.commit_turn#2", false, false, false),
    ("hand-off", "store.enter_step", false, false, false),
    ("hand-off: first request", "store.reserve_request#3", false, false, false),
    ("hand-off: first request", "model.complete#3", false, false, false),
    ("hand-off: first turn", "store.record_turn#3", false, false, false),
    ("dispatch: next call", "tool.invoke:notify_team", false, false, false),
    ("end", "store.end_run", false, false, false),
];

impl Shape {
    /// Its boundaries at the seams.
    pub(super) fn crossings(self) -> &'static [Row] {
        match self {
            Self::Turns => &CROSSINGS,
            Self::SubAgents => &OF_SUB_AGENTS,
            Self::Iterations => &OF_ITERATIONS,
            Self::Asks => &OF_ASKS,
            Self::Waits => &OF_WAITS,
            Self::Task => &OF_TASK,
            Self::Later => &OF_LATER,
        }
    }

    /// Where a process of it dies because of its tool server.
    pub(super) fn at_the_tool(self) -> &'static [Moment] {
        match self {
            Self::SubAgents => &[("sub-agent: invoke", "received", true), ("sub-agent: invoke", "acted", true)],
            Self::Turns | Self::Iterations | Self::Later => {
                &[("dispatch: invoke", "received", true), ("dispatch: invoke", "acted", true)]
            }
            Self::Asks => {
                &[("dispatch: invoke", "received", true), (ANSWERED, "answered", true), (ANSWERED, "acted", true)]
            }
            Self::Waits => &[("dispatch: invoke", "received", true), (WAITS, "answered", true), (WAITS, "acted", true)],
            Self::Task => &[
                ("dispatch: invoke", "received", true),
                ("dispatch: invoke", "acted", true),
                ("dispatch: task", "working", false),
                ("dispatch: task", "ended", false),
            ],
        }
    }

    /// Whether it is like `Turns` but for how the subject is sent, so that only what lies around that is played.
    pub(super) fn is_part_of_turns(self) -> bool {
        match self {
            Self::Turns | Self::SubAgents | Self::Iterations => false,
            Self::Asks | Self::Waits | Self::Task | Self::Later => true,
        }
    }

    /// When a person is asked about a lost call of a class that leaves no other way.
    pub(super) fn asked_about(self) -> &'static str {
        match self {
            Self::Turns | Self::SubAgents | Self::Iterations | Self::Waits => "a person is asked",
            Self::Asks => "what it asked for is answered; once the answer may have left, a person is asked",
            Self::Task => "its task is asked again; before its handle is stored, a person is asked",
            Self::Later => "a person is asked, for its key is forgotten",
        }
    }

    /// How many seconds after the one before each life comes, if that is what it is about.
    pub(super) fn comes_later(self) -> Option<u64> {
        (self == Self::Later).then_some(3600)
    }

    /// Within how many crossings of a resume the second crash falls.
    pub(super) fn second_crashes(self) -> u64 {
        match self {
            Self::Turns | Self::Asks | Self::Waits | Self::Task | Self::Later => 12,
            Self::SubAgents => 36,
            Self::Iterations => 16,
        }
    }

    /// The calls that may be between their last look at the epoch and the send when the run is taken somewhere else in the job: what a
    /// sub-agent's sibling sends. The fence is there for them.
    pub(super) fn sends_beside(self) -> u64 {
        u64::from(self == Self::SubAgents)
    }

    /// Which share of its cells a quick round plays: one in so many.
    pub(super) fn quick_share(self) -> u32 {
        match self {
            Self::Turns => 3,
            Self::SubAgents | Self::Iterations => 6,
            Self::Asks | Self::Waits | Self::Task | Self::Later => 12,
        }
    }

    /// What is to be done, as a job file says it. But for iterations, which need something to judge a promise by, no effect is
    /// demanded, so that a lost one shows.
    pub(super) fn spec(self) -> Value {
        let objective = "Do each thing once.";
        match self {
            Self::Turns | Self::Asks | Self::Waits | Self::Task | Self::Later => json!({"objective": objective}),
            Self::SubAgents => json!({"objective": objective, "subagents": {}}),
            Self::Iterations => json!({
                "objective": objective,
                "harness": {"max_iterations": 4, "completion_promise": "ALL DONE"},
                "stop_conditions": [{"effect": "digest.send", "count": 1}],
            }),
        }
    }

    /// The rules that its other tools need; `keyed` makes one with an id, for a tool.
    pub(super) fn policy(self, keyed: impl Fn(&str, &str) -> String) -> String {
        if self == Self::SubAgents { keyed("filed", FILED) } else { String::new() }
    }
}

/// Two tasks in one turn; then what the class asks for again, and the tail, by the parent.
pub(super) fn sub_agents(class: &Class) -> String {
    let (first, again) = class.words();
    let task = |name: &str| {
        let input = format!(
            r#"{{"description": "{name}", "prompt": "{name}: do your part, in the words of life {{{{life}}}}."}}"#
        );
        tool_use("mcp__ua_agents__task", &input)
    };
    let filed = tool_use(&format!("mcp__ext__{FILED}"), r#"{"text": "filed in life {{life}}, request {{request}}"}"#);
    let subject = class.call(first);
    let second: Vec<String> = again.map(|again| class.call(again)).into_iter().chain([tail()]).collect();
    format!(
        r#"{{"turns": [{{"text": "Life {{{{life}}}}.", "tools": [{}, {}]}}, {{"tools": [{}]}}, {{"text": "Done."}}],
            "conversations": [
              {{"when": "ALPHA:", "turns": [{{"tools": [{}, {}]}}, {{"text": "ALPHA is done."}}]}},
              {{"when": "BETA:", "turns": [{{"tools": [{}, {filed}]}}, {{"text": "BETA is done."}}]}},
              {{"when": "FORK:", "turns": [{{"tools": [{subject}]}}, {{"text": "The fork is done."}}]}}]}}"#,
        task("ALPHA"),
        task("BETA"),
        second.join(", "),
        look(),
        &subject,
        look(),
    )
}

/// Turn 1 makes the call and turn 2 ends the first iteration without the promise. The model of the second is told what was done, or
/// it does not go on; it asks for the call again.
pub(super) fn iterations(class: &Class) -> String {
    let (first, again) = class.words();
    let told =
        json!({"contains": ["Iteration 2 of at most 4 begins here, after turn 2", class.tool, "not to be repeated"]});
    format!(
        r#"{{"turns": [{{"text": "Life {{{{life}}}}.", "tools": [{}, {}]}}, {{"text": "Half of it is done."}},
            {{"tools": [{}, {}], "expect": {told}}}, {{"text": "<promise>ALL DONE</promise>"}}]}}"#,
        look(),
        class.call(first),
        class.call(again.unwrap_or(first)),
        tail(),
    )
}
