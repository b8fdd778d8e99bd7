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

/// How a model is to work. What is not said is left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelExtras {
    /// How much effort the model makes: `low`, `medium`, `high`, or whatever else its provider knows.
    pub effort: Option<String>,
    /// The most tokens of thoughts before a reply.
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

    /// In the words of the Messages API.
    pub(crate) fn for_messages(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            // Beside the schema of the reply, where there is one.
            body["output_config"]["effort"] = json!(effort);
        }
        if let Some(tokens) = self.thinking_tokens {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": tokens});
            // Thoughts are part of the longest reply, which has to leave something for the reply itself; and they bear no temperature.
            let longest = body["max_tokens"].as_u64().unwrap_or(0);
            if longest <= u64::from(tokens) {
                body["max_tokens"] = json!(longest + u64::from(tokens));
            }
            body.as_object_mut().and_then(|body| body.remove("temperature"));
        }
        self.choose(body, |choice| match choice {
            "auto" | "any" | "none" => json!({ "type": choice }),
            tool => json!({"type": "tool", "name": wire_name(tool, ANTHROPIC_LONGEST)}),
        });
    }

    /// In the words of the Responses API.
    pub(crate) fn for_responses(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            body["reasoning"] = json!({ "effort": effort });
        }
        self.choose(body, |choice| match choice {
            "any" => json!("required"),
            "auto" | "none" => json!(choice),
            tool => json!({"type": "function", "name": wire_name(tool, OPENAI_LONGEST)}),
        });
    }

    /// In the words of Chat Completions.
    pub(crate) fn for_chat(&self, body: &mut Value) {
        if let Some(effort) = &self.effort {
            body["reasoning_effort"] = json!(effort);
        }
        self.choose(body, |choice| match choice {
            "any" => json!("required"),
            "auto" | "none" => json!(choice),
            tool => json!({"type": "function", "function": {"name": wire_name(tool, OPENAI_LONGEST)}}),
        });
    }

    /// A choice without tools is one that no provider takes.
    fn choose(&self, body: &mut Value, in_words: impl Fn(&str) -> Value) {
        if let Some(choice) = self.tool_choice.as_deref().filter(|_| body["tools"].is_array()) {
            body["tool_choice"] = in_words(choice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(tool_choice: &str) -> ModelExtras {
        ModelExtras {
            effort: Some("high".into()),
            thinking_tokens: Some(2_000),
            tool_choice: Some(tool_choice.into()),
            headers: BTreeMap::new(),
        }
    }

    #[test]
    fn each_wire_has_its_own_words() {
        let body = || json!({"max_tokens": 1_000, "temperature": 0.5, "tools": [{}]});
        let mut messages = body();
        extras("t").for_messages(&mut messages);
        let expected = json!({"max_tokens": 3_000, "tools": [{}], "thinking": {"type": "enabled", "budget_tokens": 2_000},
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
        let mut chat = body();
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
