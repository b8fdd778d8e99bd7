//! Tools: their names, what servers say about them, and what a model asks of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Sha256;
use crate::key::KeyBuilder;
use crate::status::text_enum;

text_enum! {
    /// Where a tool comes from (`tool_namespace` of the ledger).
    ToolNamespace {
        /// Our own tool server.
        Local = "local",
        /// Any other MCP server.
        Mcp = "mcp",
        /// A Composio tool router.
        Composio = "composio",
        /// A tool of a client that owns the loop.
        ClaudeCode = "claude_code",
    }
}

/// A tool's name in its three forms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolName {
    /// As the model sent it: `mcp__server__tool`.
    pub raw: String,
    /// The server's name in the configuration; `ua` for our own.
    pub server: String,
    /// The bare name, as the server knows it.
    pub tool: String,
    /// Where it comes from.
    pub namespace: ToolNamespace,
}

impl ToolName {
    /// Names `tool` of `server`, in the form a model sees.
    pub fn qualified(namespace: ToolNamespace, server: &str, tool: &str) -> Self {
        let raw = format!("mcp__{server}__{tool}");
        Self { raw, server: server.to_owned(), tool: tool.to_owned(), namespace }
    }

    /// The tool by which a model asks a person. Its answer is what that person says; no tool server is behind it.
    pub fn ask_user() -> Self {
        Self::qualified(ToolNamespace::Local, "ua_person", "ask_user")
    }

    /// Whether this is [`ToolName::ask_user`].
    pub fn is_ask_user(&self) -> bool {
        self.namespace == ToolNamespace::Local && self.server == "ua_person" && self.tool == "ask_user"
    }

    /// The tool by which a model hands a task to a sub-agent. A child run is behind it, no tool server.
    pub fn task() -> Self {
        Self::qualified(ToolNamespace::Local, "ua_agents", "task")
    }

    /// Whether it is a tool of our own tool server.
    pub fn is_of_own_server(&self) -> bool {
        self.namespace == ToolNamespace::Local && self.server == "ua"
    }

    /// Whether a server of that name comes with this program, so that no other one may be called so: names in the form that a model sees would not
    /// tell them apart.
    pub fn is_built_in_server(server: &str) -> bool {
        matches!(server, "ua" | "ua_person" | "ua_agents")
    }

    /// Whether it comes with this program: a tool of our own server, [`ToolName::ask_user`] or [`ToolName::task`]. A function of a program that embeds
    /// us is none: of it we know what its program says, and no more.
    pub fn is_built_in(&self) -> bool {
        self.is_of_own_server() || self.is_ask_user() || self.is_task()
    }

    /// Whether this is [`ToolName::task`].
    pub fn is_task(&self) -> bool {
        self.namespace == ToolNamespace::Local && self.server == "ua_agents" && self.tool == "task"
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.raw)
    }
}

/// How tools of a run are called in short: by the bare name, or by the whole one where two servers offer a tool of that name, for which of them a
/// call went to is what a person has to see then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ShortNames {
    /// The bare names that more than one server offers.
    shared: BTreeSet<String>,
}

impl ShortNames {
    /// Of tools by their qualified names.
    pub fn among<'a>(raw: impl IntoIterator<Item = &'a str>) -> Self {
        let mut servers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let parts = |raw: &'a str| raw.strip_prefix("mcp__")?.split_once("__");
        for (server, tool) in raw.into_iter().filter_map(parts) {
            servers.entry(tool).or_default().insert(server);
        }
        let shared = servers.into_iter().filter(|(_, servers)| servers.len() > 1);
        Self { shared: shared.map(|(tool, _)| tool.to_owned()).collect() }
    }

    /// What a tool is called.
    pub fn of<'a>(&self, name: &'a ToolName) -> &'a str {
        if self.shared.contains(&name.tool) { &name.raw } else { &name.tool }
    }
}

/// What a server claims about a tool. Claims of a server that is not marked trusted may only raise caution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnnotations {
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
    /// `idempotentHint`.
    pub idempotent: Option<bool>,
    /// `openWorldHint`.
    pub open_world: Option<bool>,
    /// `_meta["dev.universal-agent/honours-keys"]`: whether the way the tool is set up makes two calls under one
    /// idempotency key one effect. Not a hint of the protocol but our own; like all of them it may only raise caution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub honours_keys: Option<bool>,
    /// `_meta["dev.universal-agent/key-ttl-seconds"]`: how long the tool remembers an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_ttl_seconds: Option<u64>,
    /// `_meta["dev.universal-agent/fetches"]`: the tool reads addresses that it is given or finds, whatever else it does. True raises
    /// caution; false says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetches: Option<bool>,
}

/// A tool that a server offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: ToolName,
    /// What it does, in the server's words.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// What the server claims.
    pub annotations: ToolAnnotations,
}

impl ToolSpec {
    /// The digest of everything about the tool that a model or a person relied on.
    pub fn digest(&self) -> Sha256 {
        let annotations = serde_json::to_string(&self.annotations).unwrap_or_default();
        let schema = serde_json_canonicalizer::to_string(&self.input_schema).unwrap_or_default();
        KeyBuilder::new("ua.tool.v1")
            .field("name", &self.name.raw)
            .field("description", &self.description)
            .field("schema", &schema)
            .field("annotations", &annotations)
            .digest()
    }
}

/// A tool use in a model's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The provider's id, which the result must carry back.
    pub id: String,
    /// The name as the model sent it.
    pub name: String,
    /// The arguments, or the text that was not JSON.
    pub input: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_servers_offer_is_told_with_its_server() {
        let name = |server: &str, tool: &str| ToolName::qualified(ToolNamespace::Mcp, server, tool);
        let offered = [name("ua", "send_email"), name("mail", "send_email"), name("ua", "notify"), name("a", "b__c")];
        let short = ShortNames::among(offered.iter().map(|name| name.raw.as_str()));
        let told: Vec<&str> = offered.iter().map(|name| short.of(name)).collect();
        assert_eq!(told, ["mcp__ua__send_email", "mcp__mail__send_email", "notify", "b__c"]);
        assert_eq!(ShortNames::default().of(&offered[0]), "send_email");
    }
}
