//! What the simulated job asks for: intents, each of which is to be carried out once, and the tools that do it.

use std::time::Duration;

use serde_json::{Value, json};
use ua_core::ToolName;

use super::chance::Chance;
use crate::world::{foreign_tool, own_tool};

/// What is known about a tool of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) server: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// It is somewhere else: no process of ours that could be ended.
    pub(super) is_remote: bool,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only looks.
    Read,
    /// Replaces a file.
    Replace,
    /// Has its effect once per key.
    Keyed,
    /// Has its effect whenever it is called.
    Opaque,
    /// The same, and a read-only tool shows what it did.
    Shown,
    /// The same; a run goes on without it when its outcome is lost.
    GoneOnWithout,
    /// The same; its policy has it sent again whatever became of it, so that twice is what was asked for.
    Redone,
    /// Hands intents of its own to a sub-agent.
    Task,
}

const fn tool(server: &'static str, name: &'static str, kind: Kind, is_remote: bool) -> Tool {
    Tool { server, name, kind, is_remote }
}

/// All of them.
pub(super) const TOOLS: [Tool; 20] = [
    tool("ua", "read_local_file", Kind::Read, false),
    tool("ua", "list_directory", Kind::Read, false),
    tool("ua", "write_local_file", Kind::Replace, false),
    tool("ua", "upload", Kind::Keyed, false),
    tool("ua", "send_email", Kind::Keyed, false),
    tool("ua", "notify", Kind::Keyed, false),
    tool("post", "send_letter", Kind::Opaque, false),
    tool("board", "move_card", Kind::Keyed, false),
    tool("forum", "post_comment", Kind::Opaque, false),
    tool("bank", "transfer", Kind::Opaque, true),
    tool("tracker", "create_ticket", Kind::Shown, true),
    tool("tracker", "list_tickets", Kind::Read, true),
    tool("chat", "say", Kind::GoneOnWithout, false),
    tool("cashier", "pay", Kind::Keyed, true),
    tool("shop", "order", Kind::Keyed, false),
    tool("mint", CHARGE, Kind::Keyed, false),
    tool("ops", "deploy", Kind::Opaque, false),
    tool("vault", "sign", Kind::Opaque, false),
    tool("vault", "grant", Kind::Keyed, false),
    tool("cache", "warm_up", Kind::Redone, false),
];

/// What hands intents to a sub-agent; the runner offers it by itself.
pub(super) const TASK: Tool = tool("ua", "task", Kind::Task, false);

/// The tool whose other side forgets a key after [`KEY_SECONDS`].
const CHARGE: &str = "charge_card";
const KEY_SECONDS: u64 = 45;

/// The tool that shows what [`Kind::Shown`] did.
pub(super) const LISTING: &str = "list_tickets";

impl Tool {
    pub(super) fn named(name: &str) -> Option<Self> {
        TOOLS.into_iter().find(|tool| tool.name == name)
    }

    pub(super) fn full_name(self) -> ToolName {
        match (self.kind, self.server) {
            (Kind::Task, _) => ToolName::task(),
            (_, "ua") => own_tool(self.name),
            (_, server) => foreign_tool(server, self.name),
        }
    }

    pub(super) fn has_effect(self) -> bool {
        !matches!(self.kind, Kind::Read | Kind::Replace | Kind::Task)
    }

    /// How long the other side remembers a key; `None` is for ever.
    pub(super) fn key_ttl(self) -> Option<Duration> {
        (self.name == CHARGE).then(|| Duration::from_secs(KEY_SECONDS))
    }

    /// An error that it reports without having done anything says so, in words that its policy knows; every error of our own tools
    /// does.
    pub(super) fn says_when_nothing_happened(self) -> bool {
        self.server == "ua" || self.name == "order"
    }

    /// A person approves each of its calls.
    pub(super) fn needs_approval(self) -> bool {
        self.server == "vault"
    }

    /// What its effect is, whatever the wording: the argument that names it, for tools whose effects are declared by one.
    pub(super) fn names_effect_by(self) -> Option<&'static str> {
        matches!(self.name, "send_letter" | "pay").then_some("to")
    }

    /// Whether the same content is the same effect in the whole lineage, by its policy or the shipped one.
    pub(super) fn is_by_content(self) -> bool {
        matches!(self.name, "send_letter" | "pay" | "send_email" | "notify" | "upload")
    }
}

/// What the model of a job in iterations says when nothing is left.
pub(super) const PROMISE: &str = "<promise>ALL DONE</promise>";

/// The tools of a job in iterations: those whose calls name what they are about, since that is all that a hand-off can tell.
pub(super) const NAMED: [&str; 8] =
    ["write_local_file", "send_email", "notify", "send_letter", "post_comment", "transfer", "create_ticket", "say"];

/// The tool that a model asks for again when it failed.
pub(super) const ASKED_AGAIN: &str = "send_letter";

/// What a tool reports that did nothing and says so.
pub(super) const NOTHING_DONE: &str = "out of stock: nothing was done";

/// The horizon of remote servers and the time within which they show what they did, as the policy says it.
pub(super) const HORIZON_SECONDS: u64 = 10;
pub(super) const SETTLE_SECONDS: u64 = 15;

pub(super) const POLICY: &str = r#"
[[rule]]
id = "card"
server = "board"
name = "move_card"
side_effect_class = "external"
key_channel = "meta"

[[rule]]
id = "ticket"
server = "tracker"
name = "create_ticket"
side_effect_class = "external"
on_unknown = "probe"
horizon = "10s"
marker = { argument = "body", append = "\n\nref {key}" }
[rule.probe]
tool = "list_tickets"
found = { items = "items", field = "arguments.body", contains = "{key}", id = "id" }
absent = { complete = { field = "more", equals = false } }
settle = "15s"

[[rule]]
id = "tickets"
server = "tracker"
name = "list_tickets"
side_effect_class = "read_only"

# Known by whom it goes to, in whatever words.
[[rule]]
id = "letter"
server = "post"
name = "send_letter"
side_effect_class = "external"
effect_kind = "letter.send"
scope = [{ addresses = "to" }]

[[rule]]
id = "chat"
server = "chat"
name = "say"
side_effect_class = "external"
on_unknown = "continue"

# Over HTTP, with its key in a header, known by whom it goes to.
[[rule]]
id = "payment"
server = "cashier"
name = "pay"
side_effect_class = "external"
key_channel = { header = "Idempotency-Key" }
effect_kind = "invoice.pay"
scope = [{ value = "to" }]

[[rule]]
id = "order"
server = "shop"
name = "order"
side_effect_class = "external"
key_channel = { argument = "idempotency_key" }
errors_without_effect = ["nothing was done"]

[[rule]]
id = "charge"
server = "mint"
name = "charge_card"
side_effect_class = "external"
key_channel = "meta"
key_ttl = "45s"

[[rule]]
id = "grant"
server = "vault"
name = "grant"
side_effect_class = "external"
key_channel = "meta"

[[rule]]
id = "vault"
server = "vault"
patterns = ["*"]
side_effect_class = "external"
approval = "ask"

[[rule]]
id = "warm"
server = "cache"
name = "warm_up"
side_effect_class = "external"
on_unknown = "redo"
"#;

/// One thing that is to be done once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intent {
    /// Its name; the ids of the tool uses that ask for it begin with it.
    pub(super) tag: String,
    /// Its place in the job, from 1.
    pub(super) number: usize,
    pub(super) tool: Tool,
    /// What a sub-agent is to do, turn by turn, if the intent is a task.
    pub(super) inner: Vec<Vec<Intent>>,
}

impl Intent {
    /// The arguments, in the words of the `request`-th request.
    pub(super) fn arguments(&self, request: u64) -> Value {
        let tag = &self.tag;
        match self.tool.name {
            "task" => json!({"description": tag, "prompt": order_of(tag)}),
            "pay" => json!({"to": format!("{tag} Ltd"), "text": format!("Words {request}"), "amount": 5}),
            "order" => json!({"item": tag}),
            "charge_card" => json!({"card": tag, "amount": 5}),
            "deploy" => json!({"build": tag}),
            "read_local_file" => json!({"path": "a.txt"}),
            "list_directory" => json!({"path": "."}),
            "write_local_file" => json!({"path": format!("{tag}.md"), "content": format!("{tag} in words {request}")}),
            "upload" => json!({"path": "a.txt", "destination": format!("file:///store/{tag}")}),
            "send_email" => {
                json!({"to": [format!("{tag}@example.test")], "subject": format!("Report {tag}"), "body": format!("Words {request}")})
            }
            "send_letter" => json!({"to": [format!("{tag}@example.test")], "text": format!("Words {request}")}),
            "notify" => json!({"message": format!("{tag} is done, says request {request}")}),
            // The same each time: only its place tells one move from the next.
            "move_card" => json!({"direction": "left"}),
            "transfer" => json!({"to": tag, "amount": 5}),
            "create_ticket" => json!({"title": tag, "body": format!("As of request {request}")}),
            _ => json!({"text": format!("{tag} in words {request}")}),
        }
    }
}

/// What the model of a sub-agent is told about its task.
pub(super) fn order_of(tag: &str) -> String {
    format!("Work on {tag}.")
}

/// What kind of job is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One context.
    Plain,
    /// Several contexts, one after the other.
    Iterations,
    /// Parts of the work are handed to sub-agents.
    Tree,
    /// Both: what sub-agents did in a context ends with it, as far as the model knows.
    TreeInIterations,
}

impl Shape {
    pub(super) fn drawn(chance: &Chance) -> Self {
        match chance.below(8) {
            0 | 1 => Self::Iterations,
            2..=4 => Self::Tree,
            _ => Self::Plain,
        }
    }

    /// The same; of those in several contexts some hand parts of the work on, too.
    pub(super) fn or_both(self, chance: &Chance) -> Self {
        if self == Self::Iterations && chance.one_in(3) { Self::TreeInIterations } else { self }
    }

    pub(super) fn is_in_iterations(self) -> bool {
        matches!(self, Self::Iterations | Self::TreeInIterations)
    }

    fn is_tree(self) -> bool {
        matches!(self, Self::Tree | Self::TreeInIterations)
    }
}

/// The intents of a job, turn by turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intents(pub(super) Vec<Vec<Intent>>);

/// Counts intents.
struct Numbers(usize);

impl Numbers {
    fn intent(&mut self, tool: Tool, inner: Vec<Vec<Intent>>) -> Intent {
        self.0 += 1;
        let letter = if inner.is_empty() { 'i' } else { 't' };
        Intent { tag: format!("{letter}{}", self.0), number: self.0, tool, inner }
    }

    fn turns(&mut self, chance: &Chance, tools: &[Tool], turns: usize, most: usize) -> Vec<Vec<Intent>> {
        (0..turns).map(|_| self.turn(chance, tools, most)).collect()
    }

    fn turn(&mut self, chance: &Chance, tools: &[Tool], most: usize) -> Vec<Intent> {
        let approved: Vec<Tool> = tools.iter().copied().filter(|tool| tool.needs_approval()).collect();
        // Several questions at once take several calls of a turn that each need a word.
        if !approved.is_empty() && chance.one_in(6) {
            let picked = (0..2).filter_map(|_| chance.pick(&approved).copied()).collect::<Vec<_>>();
            return picked.into_iter().map(|tool| self.intent(tool, Vec::new())).collect();
        }
        let picked = (0..=chance.below(most)).filter_map(|_| chance.pick(tools).copied()).collect::<Vec<_>>();
        picked.into_iter().map(|tool| self.intent(tool, Vec::new())).collect()
    }
}

impl Intents {
    /// A job that a seed makes.
    pub(super) fn drawn(chance: &Chance, shape: Shape) -> Self {
        let in_iterations = shape.is_in_iterations();
        let asked_for = |tool: &Tool| tool.name != LISTING && (!in_iterations || NAMED.contains(&tool.name));
        let mut asked_for: Vec<Tool> = TOOLS.into_iter().filter(asked_for).collect();
        // What can go wrong in more ways is asked for more often.
        let often = |tool: &Tool| matches!(tool.name, "pay" | "order" | CHARGE | "deploy");
        asked_for.extend(asked_for.clone().into_iter().filter(often));
        let mut numbers = Numbers(0);
        if !shape.is_tree() {
            let turns = 2 + chance.below(4);
            return Self(numbers.turns(chance, &asked_for, turns, 3));
        }
        let mut turns = Vec::new();
        for _ in 0..=chance.below(2) {
            if chance.one_in(2) {
                turns.push(numbers.turn(chance, &asked_for, 2));
            }
            let tasks = (0..=chance.below(2)).map(|_| {
                let inner_turns = 1 + chance.below(2);
                let inner = numbers.turns(chance, &asked_for, inner_turns, 2);
                numbers.intent(TASK, inner)
            });
            let mut turn: Vec<Intent> = tasks.collect();
            let approved = asked_for.iter().copied().find(|tool| tool.needs_approval() && chance.one_in(6));
            turn.extend(approved.map(|tool| numbers.intent(tool, Vec::new())));
            turns.push(turn);
        }
        Self(turns)
    }

    /// The same with this tool in the place of about half of the others that have an effect and that nobody has to approve.
    pub(super) fn with_more_of(mut self, tool: Tool, chance: &Chance) -> Self {
        for intent in self.0.iter_mut().flatten() {
            for one in
                std::iter::once(&mut intent.tool).chain(intent.inner.iter_mut().flatten().map(|one| &mut one.tool))
            {
                if one.has_effect() && !one.needs_approval() && chance.one_in(2) {
                    *one = tool;
                }
            }
        }
        self
    }

    /// The same with many reads before each turn, so that it is longer than what a request carries of it.
    pub(super) fn long(self) -> Self {
        let is_task = |intent: &&Intent| !intent.inner.is_empty();
        let count = self.0.iter().flatten().map(|intent| 1 + intent.inner.iter().flatten().count()).sum();
        let mut numbers = Numbers(count);
        let mut turns = Vec::new();
        for turn in self.0 {
            // Sub-agents have histories of their own.
            for _ in 0..if turn.iter().any(|intent| is_task(&intent)) { 1 } else { 3 } {
                let reads = ["read_local_file", "list_directory", "read_local_file"];
                let reads = reads.into_iter().filter_map(Tool::named);
                turns.push(reads.map(|tool| numbers.intent(tool, Vec::new())).collect());
            }
            turns.push(turn);
        }
        Self(turns)
    }

    /// The job of the exhaustive round: reads together, one call of each kind, and one move twice.
    pub(super) fn mixed() -> Self {
        let mut numbers = Numbers(0);
        let mut turn = |names: &[&str]| {
            let tools = names.iter().filter_map(|name| Tool::named(name));
            tools.map(|tool| numbers.intent(tool, Vec::new())).collect::<Vec<_>>()
        };
        Self(vec![
            turn(&["read_local_file", "list_directory"]),
            turn(&["write_local_file", "send_email"]),
            turn(&["post_comment", "move_card", "move_card"]),
            turn(&["create_ticket"]),
        ])
    }

    /// Calls to these tools, turn by turn, behind one turn of tasks with these calls.
    pub(super) fn listed(turns: &[&[&str]], tasks: &[&[&str]]) -> Self {
        let mut numbers = Numbers(0);
        let mut turn = |names: &[&str]| {
            let tools = names.iter().filter_map(|name| Tool::named(name));
            tools.map(|tool| numbers.intent(tool, Vec::new())).collect::<Vec<_>>()
        };
        let inner: Vec<Vec<Intent>> = tasks.iter().map(|names| turn(names)).collect();
        let mut listed: Vec<Vec<Intent>> = turns.iter().map(|names| turn(names)).collect();
        let tasks: Vec<Intent> = inner.into_iter().map(|calls| numbers.intent(TASK, vec![calls])).collect();
        if !tasks.is_empty() {
            listed.insert(0, tasks);
        }
        Self(listed)
    }

    /// Tasks that each call this tool for the same: it is asked for as often as there are tasks.
    pub(super) fn of_all(tasks: usize, tool: &str) -> Self {
        let mut numbers = Numbers(0);
        let same: Vec<Intent> = Tool::named(tool).map(|tool| numbers.intent(tool, Vec::new())).into_iter().collect();
        Self(vec![(0..tasks).map(|_| numbers.intent(TASK, vec![same.clone()])).collect()])
    }

    /// Without the intents of these numbers; a task that has nothing left goes too.
    pub(super) fn without(mut self, numbers: &[usize]) -> Self {
        fn thin(turns: &mut Vec<Vec<Intent>>, numbers: &[usize]) {
            for turn in turns.iter_mut() {
                for intent in turn.iter_mut() {
                    thin(&mut intent.inner, numbers);
                }
                let is_left = |intent: &Intent| {
                    !numbers.contains(&intent.number) && (intent.tool.kind != Kind::Task || !intent.inner.is_empty())
                };
                turn.retain(is_left);
            }
            turns.retain(|turn| !turn.is_empty());
        }
        thin(&mut self.0, numbers);
        self
    }

    /// Every intent, those of sub-agents included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Intent> {
        let top = self.0.iter().flatten();
        top.flat_map(|intent| std::iter::once(intent).chain(intent.inner.iter().flatten()))
    }

    /// The task that the intent is a part of.
    pub(super) fn task_of(&self, tag: &str) -> Option<&Intent> {
        let holds = |task: &&Intent| task.inner.iter().flatten().any(|intent| intent.tag == tag);
        self.0.iter().flatten().find(holds)
    }

    /// Whether an intent is a task.
    pub(super) fn is_task(&self, tag: &str) -> bool {
        self.0.iter().flatten().any(|intent| intent.tag == tag && intent.tool.kind == Kind::Task)
    }

    /// Whether it has a task at all.
    pub(super) fn is_tree(&self) -> bool {
        self.0.iter().flatten().any(|intent| intent.tool.kind == Kind::Task)
    }

    /// What is to be done by whoever was told `opening`: a sub-agent its task, and anybody else the job.
    pub(super) fn of_opening(&self, opening: &str) -> &[Vec<Intent>] {
        self.told_to(opening).map_or(&self.0, |task| &task.inner)
    }

    /// Whether whoever was told `opening` is a sub-agent.
    pub(super) fn is_of_a_task(&self, opening: &str) -> bool {
        self.told_to(opening).is_some()
    }

    fn told_to(&self, opening: &str) -> Option<&Intent> {
        let is_told = |intent: &&Intent| intent.tool.kind == Kind::Task && opening.contains(&order_of(&intent.tag));
        self.0.iter().flatten().find(is_told)
    }
}

/// The tag of the intent that a tool use asks for.
pub(super) fn tag_of(tool_use_id: &str) -> &str {
    tool_use_id.split('-').next().unwrap_or_default()
}
