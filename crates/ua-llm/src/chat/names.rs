//! Names and ids as this wire takes them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use ua_core::{Block, Message, ModelTurn, Sha256, sha256};

use crate::error::LlmError;
use crate::request::ModelRequest;

/// The longest name of a function that OpenAI and those who speak like it take.
pub(crate) const OPENAI_LONGEST: usize = 64;
/// The longest name of a tool that Anthropic takes.
pub(crate) const ANTHROPIC_LONGEST: usize = 128;

/// Hexadecimal digits that tell changed names apart.
const DIGITS: usize = 8;

/// A tool's name as a wire takes it: one that is too long, empty, or has other characters than letters, digits, `_` and `-` keeps what it
/// can of its beginning and gets a digest of the whole. A name that a model made up goes back like that, too: providers look at the names
/// of the history, and one that they refuse would end the run for good.
pub(crate) fn wire_name(name: &str, longest: usize) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= longest && name.chars().all(fits) {
        return name.to_owned();
    }
    let kept = longest - DIGITS - 1;
    let begin: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(kept).collect();
    let begin = if begin.is_empty() { "unnamed" } else { &begin };
    format!("{begin}_{}", &sha256(name).to_hex()[..DIGITS])
}

/// The tool that a model means by `name`.
pub(crate) fn offered_name(name: String, request_tools: &[(String, String)]) -> String {
    request_tools.iter().find(|(wire, _)| *wire == name).map_or(name, |(_, own)| own.clone())
}

/// The tools of `request` whose names are others on the wire: the name there, and the tool's own.
pub(crate) fn mapped(request: &ModelRequest, longest: usize) -> Vec<(String, String)> {
    let names = request.tools.iter().map(|tool| (wire_name(&tool.name, longest), tool.name.clone()));
    names.filter(|(wire, own)| wire != own).collect()
}

/// The reply with the tools' own names in the place of those that the wire has.
pub(crate) fn with_own_names(mut turn: ModelTurn, request: &ModelRequest, longest: usize) -> ModelTurn {
    let mapped = mapped(request, longest);
    for block in &mut turn.blocks {
        if let Block::ToolUse(tool_use) = block {
            tool_use.name = offered_name(std::mem::take(&mut tool_use.name), &mapped);
        }
    }
    turn
}

/// A refusal of the whole request that means one of its tools, as one of that tool: it says so by a number (`tools.3.custom.input_schema`,
/// `tools[3].function`), or speaks of a function or tool and has its name in quotes.
pub(crate) fn naming_tools(error: LlmError, request: &ModelRequest, longest: usize) -> LlmError {
    let LlmError::InvalidRequest { status: status @ (400 | 422), message } = error else { return error };
    match counted_tool(&message, request).or_else(|| quoted_tool(&message, request, longest)) {
        Some(tool) => LlmError::BadTool { status, tool, message },
        None => LlmError::InvalidRequest { status, message },
    }
}

fn counted_tool(message: &str, request: &ModelRequest) -> Option<String> {
    let index = message.split("tools").skip(1).find_map(|rest| {
        let digits: String = rest.strip_prefix(['.', '['])?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<usize>().ok()
    })?;
    request.tools.get(index).map(|tool| tool.name.clone())
}

/// Only a message about what a tool is: one about what a model said, or was told, may name a tool as well.
fn quoted_tool(message: &str, request: &ModelRequest, longest: usize) -> Option<String> {
    let lower = message.to_ascii_lowercase();
    let is_about_tools =
        ["schema", "function declaration", "tool definition", "parameters"].iter().any(|word| lower.contains(word))
            && ["tool", "function"].iter().any(|word| lower.contains(word))
            && !["messages", "tool_choice", "tool call", "arguments"].iter().any(|word| lower.contains(word));
    if !is_about_tools {
        return None;
    }
    let quoted: BTreeSet<&str> = message.split(['\'', '"', '`']).collect();
    let mut named = request.tools.iter().filter(|tool| quoted.contains(wire_name(&tool.name, longest).as_str()));
    let first = named.next()?;
    named.next().is_none().then(|| first.name.clone())
}

/// Gives every tool use of a reply an id that the history does not have yet. Servers leave ids out, or count from 0 in each reply.
#[derive(Debug)]
pub(crate) struct Ids {
    /// A request that is asked again gets the same ids.
    asked: ModelRequest,
    /// Its digest, once an id of our own is needed.
    seed: OnceLock<Sha256>,
    used: BTreeSet<String>,
}

impl Ids {
    pub(crate) fn of(request: &ModelRequest) -> Self {
        let used = request.messages.iter().flat_map(Message::tool_uses).map(|tool_use| tool_use.id.clone());
        Self { asked: request.clone(), seed: OnceLock::new(), used: used.collect() }
    }

    /// `told` if it can be used, else an id of our own.
    pub(crate) fn take(&mut self, told: &str, position: usize) -> String {
        let told = told.trim();
        if !told.is_empty() && self.used.insert(told.to_owned()) {
            return told.to_owned();
        }
        let own = format!(
            "call_{}",
            &sha256(format!("{}/{position}", self.seed.get_or_init(|| self.asked.sha256()))).to_hex()[..24]
        );
        self.used.insert(own.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_wire_refuses_is_changed_and_found_again() {
        let name = |name: &str| wire_name(name, OPENAI_LONGEST);
        let long = format!("mcp__server__{}", "x".repeat(80));
        let other = format!("mcp__server__{}y", "x".repeat(80));
        assert_eq!((name(&long).len(), name("short")), (64, "short".to_owned()));
        assert_ne!(name(&long), name(&other));
        assert_eq!(wire_name(&long, ANTHROPIC_LONGEST), long);
        for invented in ["functions.notify", "a/b", "", "näme", " "] {
            let wire = name(invented);
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(!wire.is_empty() && wire.len() <= 64 && wire.chars().all(fits), "{invented:?}: {wire}");
            assert_eq!(name(&wire), wire);
        }
        assert_ne!(name("a.b"), name("a/b"));
        let offered = [(name(&long), long.clone())];
        assert_eq!(offered_name(name(&long), &offered), long);
        assert_eq!(offered_name("short".to_owned(), &offered), "short");
    }

    #[test]
    fn a_refusal_that_means_one_tool_is_one_of_that_tool() {
        let tool = |name: &str| crate::ToolOffer {
            name: name.into(),
            description: String::new(),
            input_schema: serde_json::Value::Null,
        };
        let request = ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: Vec::new(),
            tools: vec![tool("mcp__a__fine"), tool("mcp__a__bad"), tool("mcp__a__dot.ted")].into(),
            max_output_tokens: 1,
            temperature_milli: None,
            seed: None,
            output_schema: None,
        };
        let told = |message: &str| {
            let error = LlmError::InvalidRequest { status: 400, message: message.into() };
            let named = naming_tools(error, &request, OPENAI_LONGEST);
            if let LlmError::BadTool { tool, .. } = named { Some(tool) } else { None }
        };
        let dotted = wire_name("mcp__a__dot.ted", OPENAI_LONGEST);
        for message in [
            "tools.1.custom.input_schema: input_schema does not support oneOf at the top level",
            "Invalid 'tools[1].function.parameters'",
            "Invalid schema for function 'mcp__a__bad': In context=(), object schema missing properties.",
            "the function declaration \"mcp__a__bad\" has no type",
        ] {
            assert_eq!(told(message).as_deref(), Some("mcp__a__bad"), "{message}");
        }
        assert_eq!(told(&format!("Invalid schema for function '{dotted}'")).as_deref(), Some("mcp__a__dot.ted"));
        for message in [
            "tools: too many",
            "tools.7.x",
            "temperature",
            "Invalid schema for function 'mcp__a__other'",
            "Invalid schema for functions 'mcp__a__bad' and 'mcp__a__fine'",
            "messages.3.content.0: tool_use of 'mcp__a__bad' has no schema",
            "tool_choice 'mcp__a__bad' does not match the schema of a tool",
        ] {
            assert_eq!(told(message), None, "{message}");
        }
        let other = LlmError::InvalidRequest { status: 413, message: "tools.1".into() };
        assert!(matches!(naming_tools(other, &request, OPENAI_LONGEST), LlmError::InvalidRequest { .. }));
    }
}
