//! What a job asks of its model besides the longest reply and the temperature, in the words of each wire.

use std::collections::BTreeMap;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::chat::names::{ANTHROPIC_LONGEST, OPENAI_LONGEST, wire_name};
use crate::error::LlmError;

/// Headers that belong to the client, or that would take the key's place.
const OURS: [&str; 10] = [
    "authorization",
    "x-api-key",
    "proxy-authorization",
    "cookie",
    "host",
    "content-type",
    "content-length",
    "accept",
    "connection",
    "transfer-encoding",
];

/// The choices that are no tool's name.
const ANY_TOOL: [&str; 3] = ["auto", "any", "none"];

/// How a model is to work. What is not said is left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelExtras {
    /// How much effort the model makes: `low`, `medium`, `high`, or whatever else its provider knows.
    pub effort: Option<String>,
    /// How the model thinks: `adaptive`, as much as it deems right; `off`; or another word that its provider knows.
    pub thinking: Option<String>,
    /// The most tokens of thoughts before a reply. A model that takes no budget thinks as much as it deems right.
    pub thinking_tokens: Option<u32>,
    /// `auto`, `any`, `none`, or the name of the tool that every reply calls.
    pub tool_choice: Option<String>,
    /// Headers that every request has besides.
    pub headers: BTreeMap<String, String>,
}

impl ModelExtras {
    /// Whether the headers can be sent.
    ///
    /// # Errors
    /// The first that cannot, and why.
    pub fn check(&self) -> Result<(), String> {
        self.read().map(drop)
    }

    /// The fields of `model` that say something which a provider of this name does not read, or does not take together, and why.
    pub fn unread(&self, provider: &str) -> Vec<(&'static str, &'static str)> {
        // What is played from a file asks nobody.
        if matches!(provider, "scripted" | "replay") {
            return Vec::new();
        }
        let is_agent = provider == "claude-code";
        let forces_a_tool = self.tool_choice.as_deref().is_some_and(|choice| !["auto", "none"].contains(&choice));
        let own = "it has its own settings for that";
        let theirs = "only `anthropic` takes it; `effort` is the word of the others";
        let fields = [
            ("thinking", self.thinking.is_some() && provider != "anthropic", theirs),
            (
                "thinking_tokens",
                self.thinking_tokens.is_some() && provider != "anthropic",
                "only `anthropic` takes them; `effort` is the word of the others",
            ),
            (
                "tool_choice",
                self.thinking_tokens.is_some() && provider == "anthropic" && forces_a_tool,
                "it forces no tool beside `thinking_tokens`: leave out one of them",
            ),
            ("tool_choice", is_agent && self.tool_choice.is_some(), own),
            ("effort", is_agent && self.effort.is_some(), own),
            ("headers", is_agent && !self.headers.is_empty(), "ANTHROPIC_CUSTOM_HEADERS is passed on to it"),
        ];
        fields.into_iter().filter(|(_, is_unread, _)| *is_unread).map(|(field, _, why)| (field, why)).collect()
    }

    /// The headers, read.
    pub(crate) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, LlmError> {
        self.read().map_err(|why| LlmError::Setup { why })
    }

    fn read(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let read = |(name, value): (&String, &String)| {
            let wrong = |why: &str| format!("the header {name:?} {why}");
            let name: HeaderName = name.parse().map_err(|_| wrong("is not the name of a header"))?;
            if OURS.contains(&name.as_str()) {
                return Err(wrong("is set by this program"));
            }
            Ok((name, HeaderValue::from_str(value).map_err(|_| wrong("has characters that no header may have"))?))
        };
        self.headers.iter().map(read).collect()
    }

    /// In the words of the Messages API, but for the thoughts.
    pub(crate) fn for_messages(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            // Beside the schema of the reply, where there is one.
            body["output_config"]["effort"] = json!(effort);
        }
        self.choose(body, ANTHROPIC_LONGEST, |choice| match choice {
            "auto" | "any" | "none" => json!({ "type": choice }),
            tool => json!({"type": "tool", "name": tool}),
        });
    }

    /// In the words of the Responses API.
    pub(crate) fn for_responses(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            body["reasoning"] = json!({ "effort": effort });
        }
        self.choose(body, OPENAI_LONGEST, |choice| match choice {
            "any" => json!("required"),
            "auto" | "none" => json!(choice),
            tool => json!({"type": "function", "name": tool}),
        });
    }

    /// In the words of Chat Completions.
    pub(crate) fn for_chat(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            body["reasoning_effort"] = json!(effort);
        }
        self.choose(body, OPENAI_LONGEST, |choice| match choice {
            "any" => json!("required"),
            "auto" | "none" => json!(choice),
            tool => json!({"type": "function", "function": {"name": tool}}),
        });
    }

    /// A choice without tools is one that no provider takes; nor is that of a tool which the request does not offer, since the provider did
    /// not take the tool itself, or a phase has others.
    fn choose(&self, body: &mut Value, longest: usize, in_words: impl Fn(&str) -> Value) {
        let Some(choice) = &self.tool_choice else { return };
        let Some(tools) = body["tools"].as_array() else { return };
        let name = wire_name(choice, longest);
        let is_offered = || tools.iter().any(|tool| tool["name"] == *name || tool["function"]["name"] == *name);
        if ANY_TOOL.contains(&choice.as_str()) || is_offered() {
            body["tool_choice"] = in_words(if ANY_TOOL.contains(&choice.as_str()) { choice } else { &name });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(tool_choice: &str) -> ModelExtras {
        ModelExtras {
            effort: Some("high".into()),
            thinking: None,
            thinking_tokens: Some(2_000),
            tool_choice: Some(tool_choice.into()),
            headers: BTreeMap::new(),
        }
    }

    #[test]
    fn each_wire_has_its_own_words() {
        let body = || json!({"max_tokens": 1_000, "temperature": 0.5, "tools": [{"name": "t"}]});
        let mut messages = body();
        extras("t").for_messages(&mut messages);
        let expected = json!({"max_tokens": 1_000, "temperature": 0.5, "tools": [{"name": "t"}],
                              "output_config": {"effort": "high"}, "tool_choice": {"type": "tool", "name": "t"}});
        assert_eq!(messages, expected);
        let mut with_schema = json!({"output_config": {"format": {"type": "json_schema"}}});
        extras("any").for_messages(&mut with_schema);
        assert_eq!(with_schema["output_config"], json!({"effort": "high", "format": {"type": "json_schema"}}));
        let mut responses = body();
        extras("any").for_responses(&mut responses);
        assert_eq!(
            (&responses["reasoning"], &responses["tool_choice"]),
            (&json!({"effort": "high"}), &json!("required"))
        );
        let mut chat = json!({"tools": [{"type": "function", "function": {"name": "t"}}]});
        extras("t").for_chat(&mut chat);
        assert_eq!(chat["reasoning_effort"], "high");
        assert_eq!(chat["tool_choice"], json!({"type": "function", "function": {"name": "t"}}));
        let mut no_tools = json!({});
        extras("any").for_chat(&mut no_tools);
        assert_eq!(no_tools, json!({"reasoning_effort": "high"}));
        let mut untouched = body();
        ModelExtras::default().for_messages(&mut untouched);
        assert_eq!(untouched, body());
    }

    #[test]
    fn a_tool_that_is_not_offered_is_not_asked_for() {
        let fill: [fn(&ModelExtras, &mut Value); 3] =
            [ModelExtras::for_messages, ModelExtras::for_responses, ModelExtras::for_chat];
        let long = format!("mcp__a__{}.", "x".repeat(80));
        for (name, fill) in [long.as_str(), "t"].into_iter().flat_map(|name| fill.map(|fill| (name, fill))) {
            for (choice, is_chosen) in [(name, true), ("another", false), ("auto", true), ("any", true), ("none", true)]
            {
                for longest in [ANTHROPIC_LONGEST, OPENAI_LONGEST] {
                    let offered = wire_name(name, longest);
                    let mut body = json!({"tools": [{"name": offered}, {"function": {"name": offered}}]});
                    fill(&extras(choice), &mut body);
                    let chosen = body.get("tool_choice").map(ToString::to_string);
                    // Under the other wire's name it is not what this one offers.
                    let is_its_own = wire_name(name, ANTHROPIC_LONGEST) == wire_name(name, OPENAI_LONGEST);
                    assert!(chosen.is_some() == is_chosen || !is_its_own, "{choice} of {body}");
                    assert!(chosen.is_none_or(|chosen| choice != name || chosen.contains(&offered)), "{body}");
                }
            }
        }
    }

    #[test]
    fn what_a_provider_does_not_read_is_named() {
        let fields = |extras: &ModelExtras, provider: &str| {
            extras.unread(provider).into_iter().map(|(field, _)| field).collect::<Vec<_>>()
        };
        let all = |choice: &str| ModelExtras { headers: [("x-a".to_owned(), "b".to_owned())].into(), ..extras(choice) };
        for choice in ["any", "t"] {
            assert_eq!(fields(&all(choice), "anthropic"), ["tool_choice"]);
        }
        for choice in ["auto", "none"] {
            assert_eq!(fields(&all(choice), "anthropic"), [""; 0]);
            assert_eq!(fields(&all(choice), "claude-code"), ["thinking_tokens", "tool_choice", "effort", "headers"]);
        }
        for provider in ["openai", "openai-chat"] {
            assert_eq!(fields(&all("t"), provider), ["thinking_tokens"]);
            assert_eq!(fields(&ModelExtras { thinking_tokens: None, ..all("t") }, provider), [""; 0]);
        }
        let adaptive = ModelExtras { thinking: Some("adaptive".into()), thinking_tokens: None, ..all("t") };
        assert_eq!((fields(&adaptive, "anthropic"), fields(&adaptive, "openai")), (vec![], vec!["thinking"]));
        assert_eq!((fields(&all("t"), "scripted"), fields(&ModelExtras::default(), "claude-code")), (vec![], vec![]));
    }

    #[test]
    fn a_header_that_is_ours_or_none_is_refused() {
        let read = |name: &str, value: &str| {
            ModelExtras { headers: [(name.to_owned(), value.to_owned())].into(), ..ModelExtras::default() }.headers()
        };
        assert_eq!(read("X-Title", "ua").unwrap()[0].0, "x-title");
        for (name, value) in [("Authorization", "x"), ("X-Api-Key", "x"), ("a b", "x"), ("x-ok", "a\nb")] {
            assert!(matches!(read(name, value), Err(LlmError::Setup { .. })), "{name}");
        }
    }
}
