//! The classes of tools that the matrix crosses with its boundaries: one row of [`CLASSES`] each.

use serde_json::{Value, json};

use super::shapes::{self, FILED, Shape};

/// What the design allows for a call of a class whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guarantee {
    /// It only looks; it may be done again.
    Harmless,
    /// It is completed exactly once without a question.
    ExactlyOnce,
    /// It is done at most once, and a person is asked; answered truthfully, exactly once.
    Asked,
}

/// One class of tools.
#[derive(Debug)]
pub(crate) struct Class {
    /// Its name in tables and for `--only`.
    pub(crate) name: &'static str,
    /// The server that offers the tool; `ua` is our own, whose tools the shipped policy knows.
    server: &'static str,
    /// The tool that the cell is about.
    pub(crate) tool: &'static str,
    /// What a call does outside: `read`, `replace`, `keyed`, `opaque` and others; as `crash_cell` reads it.
    effect: &'static str,
    /// Where the tool finds its key.
    key: Option<&'static str>,
    /// The rule of a user's policy file, without `id`, `server` and `name`; empty when none is needed.
    rule: &'static str,
    /// The arguments of the first call, `{{life}}` where each life words them differently.
    arguments: &'static str,
    /// The arguments of a second call in the next turn.
    again: Option<&'static str>,
    /// How often it must have happened in the end.
    pub(crate) wanted: usize,
    /// Questions that a run without a crash asks too.
    pub(crate) always_asked: usize,
    /// What is promised.
    pub(crate) guarantee: Guarantee,
    /// What the job around the call is like.
    pub(crate) shape: Shape,
}

const KEYED: &str = "side_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n";

/// The server whose tools are only reached as actions of its composite tool `run_many`.
const BATCH: &str = "batch";

/// How `run_many` is laid out.
const COMPOSITE: &str = "[[rule]]\nid = \"batch\"\nserver = \"batch\"\nname = \"run_many\"\nside_effect_class = \"external\"\n\
                         composite = { list = \"calls\", name = \"tool\", arguments = \"input\" }\n";

/// What was done shows after 150 ms (`crash_cell`'s observer), so absence counts after 300 ms.
const PROBED: &str = r#"side_effect_class = "external"
on_unknown = "probe"
horizon = "100ms"
marker = { argument = "body", append = "\n\nref {key}" }
[rule.probe]
tool = "list_tickets"
found = { items = "items", field = "arguments.body", contains = "{key}", id = "id" }
absent = { complete = { field = "more", equals = false } }
settle = "200ms"
"#;

/// Every class. A new one is a new row.
pub(crate) const CLASSES: [Class; 21] = [
    Class {
        name: "read-only",
        server: "ext",
        tool: "get_page",
        effect: "read",
        key: None,
        rule: "side_effect_class = \"read_only\"",
        arguments: r#"{"url": "page {{life}}"}"#,
        again: None,
        wanted: 0,
        always_asked: 0,
        guarantee: Guarantee::Harmless,
        shape: Shape::Turns,
    },
    Class {
        name: "local replace",
        server: "ua",
        tool: "write_local_file",
        effect: "replace",
        key: None,
        rule: "",
        arguments: r#"{"path": "report.md", "content": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "local opaque",
        server: "ua",
        tool: "run_command",
        effect: "opaque",
        key: None,
        rule: "",
        arguments: r#"{"argv": ["make", "life-{{life}}"]}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Turns,
    },
    Class {
        name: "memory",
        server: "ua",
        tool: "archival_memory_insert",
        effect: "keyed",
        key: Some("meta"),
        rule: "",
        arguments: r#"{"content": "learned in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "external, key in an argument",
        server: "ext",
        tool: "create_issue",
        effect: "keyed",
        key: Some("argument:client_token"),
        rule: "key_channel = { argument = \"client_token\" }\neffect_kind = \"issue.create\"",
        arguments: r#"{"title": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "external, key in a header",
        server: "ext",
        tool: "create_payment",
        effect: "keyed",
        key: Some("header:Idempotency-Key"),
        rule: "key_channel = { header = \"Idempotency-Key\" }\neffect_kind = \"payment.pay\"",
        arguments: r#"{"note": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "external, key in _meta",
        server: "ext",
        tool: "publish_page",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\neffect_kind = \"page.publish\"",
        arguments: r#"{"text": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    // Not declared as creating anything, so it is known by its place in the run: twice asked for is twice done.
    Class {
        name: "external, by position",
        server: "ext",
        tool: "move_cursor",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"",
        arguments: r#"{"by": 1}"#,
        again: Some(r#"{"by": 1}"#),
        wanted: 2,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    // Declared, so the same content asked for again anywhere in the run is the same effect.
    Class {
        name: "external, twin",
        server: "ext",
        tool: "send_digest",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\neffect_kind = \"digest.send\"",
        arguments: r#"{"to": "team"}"#,
        again: Some(r#"{"to": "team"}"#),
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    // Takes no key; a read-only tool lists what was done, late, and the key is left in the text.
    Class {
        name: "external with probe",
        server: "ext",
        tool: "create_ticket",
        effect: "opaque",
        key: None,
        rule: PROBED,
        arguments: r#"{"body": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "external opaque",
        server: "ext",
        tool: "post_comment",
        effect: "opaque",
        key: None,
        rule: "side_effect_class = \"external\"",
        arguments: r#"{"text": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Turns,
    },
    // One of two actions of a composite tool; it is sent alone, with its key among its arguments.
    Class {
        name: "action of a composite tool",
        server: BATCH,
        tool: "create_page",
        effect: "keyed",
        key: Some("argument:client_token"),
        rule: "key_channel = { argument = \"client_token\" }\neffect_kind = \"page.create\"",
        arguments: r#"{"title": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    Class {
        name: "near-duplicate",
        server: "ext",
        tool: "send_mail",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\neffect_kind = \"email.send\"\nscope = [{ addresses = \"to\" }, { value = \"subject\" }]",
        arguments: r#"{"to": ["a@example.test"], "subject": "Report", "body": "worded in life {{life}}"}"#,
        again: Some(r#"{"to": ["A@example.test"], "subject": "Report", "body": "and again, in life {{life}}"}"#),
        wanted: 1,
        always_asked: 1,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Turns,
    },
    // It changes nothing, and somebody is paid for each answer: a lost one is asked about before it is paid for again.
    Class {
        name: "paid read",
        server: "ua",
        tool: "describe_image",
        effect: "opaque",
        key: None,
        rule: "",
        arguments: r#"{"path": "chart.png", "prompt": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Turns,
    },
    // Sent by a sub-agent beside another one; then its parent asks for the same, and is told what the sub-agent did.
    Class {
        name: "sub-agent, key in _meta",
        server: "ext",
        tool: "send_digest",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\neffect_kind = \"digest.send\"",
        arguments: r#"{"to": "team"}"#,
        again: Some(r#"{"to": "team"}"#),
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::SubAgents,
    },
    Class {
        name: "sub-agent, opaque",
        server: "ext",
        tool: "post_comment",
        effect: "opaque",
        key: None,
        rule: "side_effect_class = \"external\"",
        arguments: r#"{"text": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::SubAgents,
    },
    // Done in one iteration, and asked for again in the next, whose model has seen nothing of it but the hand-off.
    Class {
        name: "iterations",
        server: "ext",
        tool: "send_digest",
        effect: "keyed",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\neffect_kind = \"digest.send\"",
        arguments: r#"{"to": "team"}"#,
        again: Some(r#"{"to": "team"}"#),
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::ExactlyOnce,
        shape: Shape::Iterations,
    },
    // Asks for something (an input-required round) and does its work when whoever comes brings the answer.
    Class {
        name: "asks first",
        server: "ext",
        tool: "order_mug",
        effect: "asks",
        key: None,
        rule: "side_effect_class = \"external\"",
        arguments: r#"{"item": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Asks,
    },
    // Asks for something and waits on its connection (an elicitation): what it knows ends with its process.
    Class {
        name: "asks while it waits",
        server: "ext",
        tool: "order_cup",
        effect: "asks_live",
        key: None,
        rule: "side_effect_class = \"external\"",
        arguments: r#"{"item": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Waits,
    },
    // Works in a task that outlives its process and ours.
    Class {
        name: "continues in a task",
        server: "ext",
        tool: "render",
        effect: "task",
        key: None,
        rule: "side_effect_class = \"external\"",
        arguments: r#"{"scene": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Task,
    },
    // Honours its key for half an hour, and each life after the first comes an hour later.
    Class {
        name: "external, key that expires",
        server: "ext",
        tool: "send_invoice",
        effect: "expiring",
        key: Some("meta"),
        rule: "key_channel = \"meta\"\nkey_ttl = \"30m\"",
        arguments: r#"{"to": "worded in life {{life}}"}"#,
        again: None,
        wanted: 1,
        always_asked: 0,
        guarantee: Guarantee::Asked,
        shape: Shape::Later,
    },
];

/// The tool that every job calls after the subject; each call has an effect, once per key.
pub(crate) const TAIL: &str = "notify_team";

impl Class {
    /// Whether a fork may do it again: its tool works in the workspace of one run alone, or only looks, and is paid for it.
    pub(crate) fn is_of_one_run(&self) -> bool {
        self.name.starts_with("local ") || self.name == "paid read"
    }

    /// Whether a lost call of it is repeated under its key, without anybody being asked and without proof that it is not there.
    pub(crate) fn is_repeated_by_itself(&self) -> bool {
        self.effect == "keyed"
    }

    /// Whether the job asks for the very same effect once more, under the same key.
    pub(crate) fn has_a_twin(&self) -> bool {
        self.name == "external, twin"
    }

    /// Whether cells play what a refusal of its repeat does. A refusal under an exact key (memory) ends a doubt, what only looks has
    /// none, and runs of other shapes send in the same way.
    pub(crate) fn may_be_refused(&self) -> bool {
        self.shape == Shape::Turns && !["memory", "read-only", "paid read", "local opaque"].contains(&self.name)
    }

    /// Whether cells of a run that makes the call itself stand beside those of sub-agents: with a key, and without.
    pub(crate) fn is_sent_around_forks(&self) -> bool {
        ["external opaque", "external, key in _meta"].contains(&self.name)
    }

    /// The call of the subject as the model makes it, with `arguments`.
    pub(super) fn call(&self, arguments: &str) -> String {
        tool_use(&format!("mcp__{}__{}", self.server, self.tool), arguments)
    }

    /// The arguments of its first call, and of the second if there is one.
    pub(super) fn words(&self) -> (&'static str, Option<&'static str>) {
        (self.arguments, self.again)
    }

    /// What settles a lost call of a class that needs nobody.
    pub(crate) fn settled_by(&self) -> &'static str {
        match (self.effect, self.rule == PROBED) {
            ("replace", _) => "it is done again, over itself",
            (_, true) => "a read-only tool is asked; it is sent again only where absence is proved",
            _ => "it is sent again under the same key",
        }
    }

    /// The job file of the cells of this class, as `crash_cell` reads it.
    pub(crate) fn job(&self) -> Value {
        let keyed = ["keyed", "expiring"].contains(&self.effect) && self.server != "ua";
        let rule = if self.rule.is_empty() {
            String::new()
        } else {
            let base = if keyed { KEYED } else { "" };
            format!(
                "[[rule]]\nid = \"subject\"\nserver = \"{}\"\nname = \"{}\"\n{base}{}\n",
                self.server, self.tool, self.rule
            )
        };
        let keyed_by_meta = |id: &str, name: &str| {
            format!("[[rule]]\nid = \"{id}\"\nserver = \"ext\"\nname = \"{name}\"\n{KEYED}key_channel = \"meta\"\n")
        };
        let tail = format!("{}{}", keyed_by_meta("tail", TAIL), self.shape.policy(keyed_by_meta));
        let look = "[[rule]]\nid = \"look\"\nname = \"look\"\nside_effect_class = \"read_only\"\n";
        let batch = if self.server == BATCH { COMPOSITE } else { "" };
        json!({
            "subject": self.tool,
            "spec": self.shape.spec(),
            "tools": [
                {"server": self.server, "name": self.tool, "effect": self.effect, "key": self.key},
                {"server": "ext", "name": TAIL, "effect": "keyed", "key": "meta"},
                {"server": "ext", "name": FILED, "effect": "keyed", "key": "meta"},
                {"server": "ext", "name": "look", "effect": "read"},
                {"server": "ext", "name": "list_tickets", "effect": "listing"},
                {"server": BATCH, "name": "run_many", "effect": "batch"},
            ],
            "is_attended": self.shape == Shape::Waits,
            "policy": format!("{rule}{tail}{look}{batch}"),
            "script": match self.shape {
                Shape::Turns | Shape::Asks | Shape::Waits | Shape::Task | Shape::Later => self.script(),
                Shape::SubAgents => shapes::sub_agents(self),
                Shape::Iterations => shapes::iterations(self),
            },
        })
    }

    /// Turn 1: a look, the subject, the tail. Turn 2: the subject again, or a look. Turn 3: the last word.
    fn script(&self) -> String {
        let (look, tail) = (look(), tail());
        let asked = if self.server == BATCH {
            let action = |tool: &str, input: &str| format!(r#"{{"tool": "{tool}", "input": {input}}}"#);
            let actions = [action("look", r#"{"at": "the batch"}"#), action(self.tool, self.arguments)].join(", ");
            tool_use("mcp__batch__run_many", &format!(r#"{{"calls": [{actions}]}}"#))
        } else {
            self.call(self.arguments)
        };
        let first = format!("{look}, {asked}, {tail}");
        let second = self.again.map_or(look, |again| self.call(again));
        format!(
            r#"{{"turns": [{{"text": "Life {{{{life}}}}, request {{{{request}}}}.", "tools": [{first}]}}, {{"tools": [{second}]}}, {{"text": "Done."}}]}}"#
        )
    }
}

/// A tool use of a script.
pub(super) fn tool_use(name: &str, input: &str) -> String {
    format!(r#"{{"name": "{name}", "input": {input}}}"#)
}

/// A read that every model begins with, worded by the life.
pub(super) fn look() -> String {
    tool_use("mcp__ext__look", r#"{"at": "what life {{life}} wants to see"}"#)
}

/// The call after the subject.
pub(super) fn tail() -> String {
    tool_use(&format!("mcp__ext__{TAIL}"), r#"{"text": "told in life {{life}}, request {{request}}"}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_script_that_can_be_read() {
        for class in &CLASSES {
            let job = class.job();
            let script = job["script"].as_str().unwrap_or_default();
            let parsed = ua_llm::Script::parse(&script.replace("{{life}}", "1"));
            assert!(parsed.is_ok(), "{}: {parsed:?}\n{script}", class.name);
            assert!(script.contains("{{life}}"), "{}: the model never changes its mind", class.name);
        }
    }
}
