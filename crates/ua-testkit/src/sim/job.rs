//! What the simulated job asks for: intents, each of which is to be carried out once, and the tools that do it.

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
}

const fn tool(server: &'static str, name: &'static str, kind: Kind, is_remote: bool) -> Tool {
    Tool { server, name, kind, is_remote }
}

/// All of them.
pub(super) const TOOLS: [Tool; 13] = [
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
];

/// The tool that shows what [`Kind::Shown`] did.
pub(super) const LISTING: &str = "list_tickets";

impl Tool {
    pub(super) fn named(name: &str) -> Option<Self> {
        TOOLS.into_iter().find(|tool| tool.name == name)
    }

    pub(super) fn full_name(self) -> ToolName {
        if self.server == "ua" { own_tool(self.name) } else { foreign_tool(self.server, self.name) }
    }

    pub(super) fn has_effect(self) -> bool {
        !matches!(self.kind, Kind::Read | Kind::Replace)
    }
}

/// What the model of a job in iterations says when nothing is left.
pub(super) const PROMISE: &str = "<promise>ALL DONE</promise>";

/// The tools of a job in iterations: those whose calls name what they are about, since that is all that a hand-off can tell.
const NAMED: [&str; 8] =
    ["write_local_file", "send_email", "notify", "send_letter", "post_comment", "transfer", "create_ticket", "say"];

/// The tool whose effects a run knows in other words too.
pub(super) const KNOWN_BY_SCOPE: &str = "send_letter";

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
"#;

/// One thing that is to be done once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intent {
    /// Its name; the ids of the tool uses that ask for it begin with it.
    pub(super) tag: String,
    /// Its place in the job, from 1.
    pub(super) number: usize,
    pub(super) tool: Tool,
}

impl Intent {
    /// The arguments, in the words of the `request`-th request.
    pub(super) fn arguments(&self, request: u64) -> Value {
        let tag = &self.tag;
        match self.tool.name {
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

/// The intents of a job, turn by turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intents(pub(super) Vec<Vec<Intent>>);

impl Intents {
    /// A job that a seed makes.
    pub(super) fn drawn(chance: &Chance, in_iterations: bool) -> Self {
        let asked_for = |tool: &Tool| tool.name != LISTING && (!in_iterations || NAMED.contains(&tool.name));
        let asked_for: Vec<Tool> = TOOLS.into_iter().filter(asked_for).collect();
        let turns = (0..2 + chance.below(4)).map(|_| {
            let tools = (0..=chance.below(3)).filter_map(|_| chance.pick(&asked_for).copied());
            tools.collect::<Vec<_>>()
        });
        Self::of(turns.collect())
    }

    /// The job of the exhaustive round: reads together, one call of each kind, and one move twice.
    pub(super) fn mixed() -> Self {
        let turn = |names: &[&str]| names.iter().filter_map(|name| Tool::named(name)).collect::<Vec<_>>();
        Self::of(vec![
            turn(&["read_local_file", "list_directory"]),
            turn(&["write_local_file", "send_email"]),
            turn(&["post_comment", "move_card", "move_card"]),
            turn(&["create_ticket"]),
        ])
    }

    fn of(turns: Vec<Vec<Tool>>) -> Self {
        let mut number = 0;
        let turns = turns.into_iter().map(|tools| {
            let intents = tools.into_iter().map(|tool| {
                number += 1;
                Intent { tag: format!("i{number}"), number, tool }
            });
            intents.collect()
        });
        Self(turns.collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Intent> {
        self.0.iter().flatten()
    }
}

/// The tag of the intent that a tool use asks for.
pub(super) fn tag_of(tool_use_id: &str) -> &str {
    tool_use_id.split('-').next().unwrap_or_default()
}
