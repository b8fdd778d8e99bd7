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
/// `tools[3].function`), or speaks of a function or tool and has its name. A name says more than a number, which servers count in their own ways.
pub(crate) fn naming_tools(error: LlmError, request: &ModelRequest, longest: usize) -> LlmError {
    let LlmError::InvalidRequest { status, message } = error else { return error };
    if !matches!(status.number(), 400 | 422) {
        return LlmError::InvalidRequest { status, message };
    }
    match tool_of(&message, request, longest) {
        Some(tool) => LlmError::BadTool { status, tool, message },
        None => LlmError::InvalidRequest { status, message },
    }
}

fn tool_of(message: &str, request: &ModelRequest, longest: usize) -> Option<String> {
    let index = index_in(message);
    if index.is_none() && !is_about_tools(message) {
        return None;
    }
    let named: Vec<&String> = request
        .tools
        .iter()
        .filter(|tool| is_named(message, &wire_name(&tool.name, longest)))
        .map(|tool| &tool.name)
        .collect();
    let counted = index.and_then(|index| request.tools.get(index)).map(|tool| &tool.name);
    match named.as_slice() {
        [] => counted.cloned(),
        [only] => Some((*only).clone()),
        several => counted.filter(|counted| several.contains(counted)).cloned(),
    }
}

/// The place among the tools that a message gives, from 0.
fn index_in(message: &str) -> Option<usize> {
    // What a model said, or was told, may name a tool as well.
    let ends = message.find("messages").unwrap_or(message.len());
    message[..ends].split("tools").skip(1).find_map(|rest| {
        // `tools.3`, `tools[3]`, and as a place in a list of keys, `'tools', 3`.
        let behind = ["', ", "\", ", "',", "\",", ".", "["].iter().find_map(|between| rest.strip_prefix(between))?;
        let (index, rest) = number_before(behind)?;
        if rest.starts_with(".member") {
            // It counts from 1.
            return index.checked_sub(1);
        }
        // All functions are in the first of the tools.
        let rest = rest.trim_start_matches([']', '.']);
        let declared =
            ["function_declarations", "functionDeclarations"].iter().find_map(|list| rest.strip_prefix(list));
        match declared {
            Some(rest) => number_before(rest.strip_prefix(['[', '.'])?).map(|(index, _)| index),
            None => Some(index),
        }
    })
}

/// The number at the beginning of a text, and what follows it.
fn number_before(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok().map(|number| (number, &text[end..]))
}

/// Only a message about what a tool is: one about what a model said, or was told, may name a tool as well.
fn is_about_tools(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    has(&["schema", "function declaration", "tool definition", "parameters"])
        && has(&["tool", "function"])
        && !has(&["messages", "tool_choice", "tool call", "arguments"])
}

/// Whether a message has the name of a tool in quotes, or, if it can be nothing else, as a word.
fn is_named(message: &str, name: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_quoted = || message.split(['\'', '"', '`']).any(|piece| piece == name);
    let is_word = || name.contains("__") && message.split(|c: char| !is_of_names(c)).any(|word| word == name);
    is_quoted() || is_word()
}

/// Gives every tool use of a reply an id that the history does not have yet. Servers leave ids out, or count from 0 in each reply. Two in a reply to
/// which a server gave one id have one here as well: whether they are two, `tell_tool_uses_apart` says.
#[derive(Debug)]
pub(crate) struct Ids {
    /// A request that is asked again gets the same ids.
    asked: ModelRequest,
    /// Its digest, once an id of our own is needed.
    seed: OnceLock<Sha256>,
    /// Those of the history.
    used: BTreeSet<String>,
}

impl Ids {
    pub(crate) fn of(request: &ModelRequest) -> Self {
        let used = request.messages.iter().flat_map(Message::tool_uses).map(|tool_use| tool_use.id.clone());
        Self { asked: request.clone(), seed: OnceLock::new(), used: used.collect() }
    }

    /// `told` if it can be used, else an id of our own.
    pub(crate) fn take(&self, told: &str, position: usize) -> String {
        let told = told.trim();
        if !told.is_empty() && !self.used.contains(told) {
            return told.to_owned();
        }
        let which = if told.is_empty() { position.to_string() } else { format!("of {told}") };
        let seed = self.seed.get_or_init(|| self.asked.sha256());
        format!("call_{}", &sha256(format!("{seed}/{which}")).to_hex()[..24])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

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
            wants_form: false,
        };
        let told = |message: &str| {
            let error = LlmError::InvalidRequest { status: Status::Http(400), message: message.into() };
            let named = naming_tools(error, &request, OPENAI_LONGEST);
            if let LlmError::BadTool { tool, .. } = named { Some(tool) } else { None }
        };
        let dotted = wire_name("mcp__a__dot.ted", OPENAI_LONGEST);
        for message in [
            "tools.1.custom.input_schema: input_schema does not support oneOf at the top level",
            "Invalid 'tools[1].function.parameters'",
            "Invalid schema for function 'mcp__a__bad': In context=(), object schema missing properties.",
            "the function declaration \"mcp__a__bad\" has no type",
            // Gemini, AWS, Groq, vLLM and Mistral; and a number that is another one than the name.
            "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[a].items: missing field.\n",
            "* GenerateContentRequest.tools[0].functionDeclarations.1.name: Invalid function name.",
            "1 validation error detected: Value 'x' at 'toolConfig.tools.2.member.toolSpec.name' failed to satisfy constraint",
            "Value 'mcp__a__bad' at 'toolConfig.tools.1.member.toolSpec.name' failed to satisfy constraint",
            "The value at toolConfig.tools.1.toolSpec.inputSchema.json.type must be one of the following: object.",
            "invalid JSON schema for tool mcp__a__bad, tools[0].function.parameters: `/properties/a`: missing",
            "[{'type': 'string_type', 'loc': ('body', 'tools', 1, 'function', 'name'), 'msg': 'bad'}]",
            r#"{"detail":[{"type":"string_pattern","loc":["body","tools",1,"function","name"],"msg":"bad"}]}"#,
            "Unable to submit request because `mcp__a__bad` functionDeclaration `parameters.a` schema didn't specify the schema type field.",
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
            "messages.2.content.0: no result; tools.0 was called",
            "toolConfig.tools.0.member.toolSpec.name",
            "Invalid schema for tools[2]: 'mcp__a__bad' and 'mcp__a__fine'",
            "tool_choice 'mcp__a__bad' does not match the schema of a tool",
        ] {
            assert_eq!(told(message), None, "{message}");
        }
        let other = LlmError::InvalidRequest { status: Status::Http(413), message: "tools.1".into() };
        assert!(matches!(naming_tools(other, &request, OPENAI_LONGEST), LlmError::InvalidRequest { .. }));
    }
}
