//! Composite tools: one tool use that stands for several actions, for example Composio's `COMPOSIO_MULTI_EXECUTE_TOOL`.
//!
//! Durable Jobs v1 spec §7.4 and §8.2. Pure. The actions are taken apart when the reply is planned, each becomes a call of its own with the
//! name, class, key and scope that it would have as a tool, and each is put back into the form of the composite tool just before it is
//! sent. Invariants: what is taken apart and put back is the same request; an answer is read for the one action it was asked about.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::parse_strict;
use crate::tool::ToolName;

/// The most bytes that may stand beside the list of actions: each action's row keeps them.
const MAX_REST_BYTES: usize = 64 * 1024;

/// How the arguments and the answer of a composite tool are laid out. Paths are names joined by dots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Composite {
    /// Where the list of actions is in the arguments.
    pub list: String,
    /// The field of an action that names it.
    pub name: String,
    /// The field of an action that holds its arguments.
    pub arguments: String,
    /// Where the list of results is in the answer; without it the answer to one action is the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// Where the action's own answer is in a result; without it the result is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Names of actions are upper-case, and others mean the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upper_case: bool,
}

/// The arguments of a composite tool, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandedCall {
    /// The arguments with the list in the form that the tool wants: a list, not a text that holds one.
    pub arguments: Map<String, Value>,
    /// The actions, in order; at least one.
    pub actions: Vec<Action>,
}

/// One action of a composite tool use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// How it reaches the tool.
    pub via: Via,
}

/// How an action reaches the world: as the only one of a composite tool's call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// The composite tool.
    pub tool: ToolName,
    /// Its layout.
    pub layout: Composite,
    /// Its arguments beside the list.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
    /// The fields of the action beside its name and its arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub beside: Map<String, Value>,
}

impl Composite {
    /// Takes the arguments of `tool` apart. Lists and objects that come as JSON texts are read.
    ///
    /// # Errors
    ///
    /// A sentence for the model: what is wrong and what to send instead. Nothing of such a tool use is run.
    pub fn take_apart(&self, tool: &ToolName, arguments: &Map<String, Value>) -> Result<ExpandedCall, String> {
        let form = format!(
            "Send `{}` as a list of objects, each with `{}`, the name of a tool, and `{}`, an object",
            self.list, self.name, self.arguments
        );
        let mut rest = arguments.clone();
        let list = match take(&mut rest, &self.list) {
            Some(Value::Array(items)) => items,
            Some(Value::String(text)) => parse_strict(&text)
                .ok()
                .and_then(|value| if let Value::Array(items) = value { Some(items) } else { None })
                .ok_or_else(|| format!("Not run: `{}` is a text that is not a JSON list. {form}.", self.list))?,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                return Err(format!("Not run: `{}` is missing or is not a list. {form}.", self.list));
            }
        };
        if list.is_empty() {
            return Err(format!("Not run: `{}` is empty. {form}.", self.list));
        }
        let bytes = Value::Object(rest.clone()).to_string().len();
        if bytes > MAX_REST_BYTES {
            return Err(format!(
                "Not run: {bytes} bytes stand beside `{}`, and at most {MAX_REST_BYTES} may. Leave out what the actions do not need.",
                self.list
            ));
        }
        let mut actions = Vec::with_capacity(list.len());
        for (number, item) in (1..).zip(list) {
            let wrong = |what: &str| format!("Not run, and nothing else of this call: action {number} {what}. {form}.");
            let Value::Object(mut beside) = item else { return Err(wrong("is not an object")) };
            let name = match beside.remove(&self.name) {
                Some(Value::String(name)) if is_name(name.trim()) => name.trim().to_owned(),
                _ => return Err(wrong(&format!("has no tool name in `{}`", self.name))),
            };
            let arguments = match beside.remove(&self.arguments) {
                Some(Value::Object(arguments)) => arguments,
                Some(Value::Null) | None => Map::new(),
                Some(Value::String(text)) => match parse_strict(&text) {
                    Ok(Value::Object(arguments)) => arguments,
                    _ => return Err(wrong(&format!("has `{}` that are not a JSON object", self.arguments))),
                },
                Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
                    return Err(wrong(&format!("has `{}` that are not an object", self.arguments)));
                }
            };
            let name = if self.upper_case { name.to_uppercase() } else { name };
            let via = Via { tool: tool.clone(), layout: self.clone(), rest: rest.clone(), beside };
            actions.push(Action { name, arguments, via });
        }
        let items = actions.iter().map(|action| action.via.item(&action.name, action.arguments.clone())).collect();
        put(&mut rest, &self.list, Value::Array(items));
        Ok(ExpandedCall { arguments: rest, actions })
    }
}

impl Via {
    /// The arguments of the composite tool with this action as the only one.
    pub fn wrap(&self, name: &str, arguments: Map<String, Value>) -> Map<String, Value> {
        let mut whole = self.rest.clone();
        put(&mut whole, &self.layout.list, Value::Array(vec![self.item(name, arguments)]));
        whole
    }

    /// The arguments of the action in what [`Via::wrap`] made.
    pub fn unwrap<'a>(&self, whole: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
        let (first, deeper) = self.layout.list.split_once('.').unwrap_or((&self.layout.list, ""));
        let list = at(whole.get(first)?, deeper)?.as_array()?;
        let [item] = list.as_slice() else { return None };
        item.get(&self.layout.arguments)?.as_object()
    }

    /// The action's own part of the composite tool's answer. `None` when the answer has no such part, or several, so that it can
    /// only be read as a whole.
    pub fn answer<'a>(&self, whole: &'a Value) -> Option<&'a Value> {
        let results = at(whole, self.layout.results.as_ref()?)?.as_array()?;
        let [result] = results.as_slice() else { return None };
        match &self.layout.response {
            Some(path) => Some(at(result, path).filter(|response| !response.is_null()).unwrap_or(result)),
            None => Some(result),
        }
    }

    fn item(&self, name: &str, arguments: Map<String, Value>) -> Value {
        let mut item = self.beside.clone();
        item.insert(self.layout.name.clone(), name.into());
        item.insert(self.layout.arguments.clone(), Value::Object(arguments));
        Value::Object(item)
    }
}

/// Names of tools are letters, digits and a few signs; anything else is a model's mistake and would be shown and stored everywhere.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// The value at a path; the empty path is the value itself.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| value.get(name))
}

fn take(map: &mut Map<String, Value>, path: &str) -> Option<Value> {
    match path.split_once('.') {
        Some((first, deeper)) => take(map.get_mut(first)?.as_object_mut()?, deeper),
        None => map.remove(path),
    }
}

fn put(map: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((first, deeper)) = path.split_once('.') else {
        map.insert(path.to_owned(), value);
        return;
    };
    let inner = map.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, deeper, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ToolNamespace;

    fn layout() -> Composite {
        Composite {
            list: "tools".to_owned(),
            name: "tool_slug".to_owned(),
            arguments: "arguments".to_owned(),
            results: Some("data.results".to_owned()),
            response: Some("response".to_owned()),
            upper_case: true,
        }
    }

    fn tool() -> ToolName {
        ToolName::qualified(ToolNamespace::Composio, "composio", "COMPOSIO_MULTI_EXECUTE_TOOL")
    }

    fn apart(arguments: &Value) -> Result<ExpandedCall, String> {
        layout().take_apart(&tool(), arguments.as_object().unwrap())
    }

    #[test]
    fn each_action_goes_out_alone_with_everything_that_stood_beside_it() {
        let arguments = json!({
            "session_id": "s", "thought": "now",
            "tools": [
                {"tool_slug": "GMAIL_FETCH_EMAILS", "arguments": {"max": 3}, "account": "a"},
                {"tool_slug": "gmail_send_email", "arguments": {"to": "x"}},
            ],
        });
        let apart = apart(&arguments).unwrap();
        let wrapped: Vec<Value> = apart
            .actions
            .iter()
            .map(|action| {
                let whole = action.via.wrap(&action.name, action.arguments.clone());
                assert_eq!(action.via.unwrap(&whole), Some(&action.arguments));
                Value::Object(whole)
            })
            .collect();
        assert_eq!(
            wrapped,
            [
                json!({"session_id": "s", "thought": "now",
                    "tools": [{"tool_slug": "GMAIL_FETCH_EMAILS", "arguments": {"max": 3}, "account": "a"}]}),
                json!({"session_id": "s", "thought": "now",
                    "tools": [{"tool_slug": "GMAIL_SEND_EMAIL", "arguments": {"to": "x"}}]}),
            ]
        );
    }

    #[test]
    fn texts_that_hold_json_are_read() {
        let plain = json!({"tools": [{"tool_slug": "A_GET", "arguments": {"n": 1}}]});
        let list = plain["tools"].to_string();
        let inner = json!({"tools": [{"tool_slug": "A_GET", "arguments": "{\"n\": 1}"}]});
        for text in [json!({"tools": list}), inner] {
            assert_eq!(apart(&text), apart(&plain), "{text}");
        }
        let bare = apart(&json!({"tools": [{"tool_slug": "A_GET"}]})).unwrap();
        assert_eq!(bare.actions[0].arguments, Map::new());
    }

    #[test]
    fn a_list_that_cannot_be_taken_apart_is_refused_with_what_to_send() {
        for (bad, word) in [
            (json!({}), "missing"),
            (json!({"tools": {"tool_slug": "A"}}), "not a list"),
            (json!({"tools": "send it"}), "not a JSON list"),
            (json!({"tools": []}), "empty"),
            (json!({"tools": ["A_GET"]}), "action 1 is not an object"),
            (json!({"tools": [{"tool_slug": "A_GET"}, {"slug": "A_GET"}]}), "action 2 has no tool name"),
            (json!({"tools": [{"tool_slug": "<tool>\u{1b}"}]}), "no tool name"),
            (json!({"tools": [{"tool_slug": "A_GET", "arguments": [1]}]}), "not an object"),
            (json!({"tools": [{"tool_slug": "A_GET", "arguments": "n=1"}]}), "not a JSON object"),
            (json!({"tools": [{"tool_slug": "A_GET"}], "memory": "x".repeat(70_000)}), "beside"),
        ] {
            let refused = apart(&bad).unwrap_err();
            assert!(refused.contains(word) && refused.starts_with("Not run"), "{bad}: {refused}");
        }
    }

    #[test]
    fn an_answer_is_read_for_its_one_action() {
        let via = apart(&json!({"tools": [{"tool_slug": "A_GET"}]})).unwrap().actions.remove(0).via;
        let inner = json!({"successful": true, "data": {"id": "m-1"}});
        let whole = |results: Value| json!({"successful": true, "data": {"results": results}});
        assert_eq!(via.answer(&whole(json!([{"index": 0, "response": inner}]))), Some(&inner));
        assert_eq!(via.answer(&whole(json!([{"error": "no such tool"}]))), Some(&json!({"error": "no such tool"})));
        for other in [whole(json!([])), whole(json!([{}, {}])), json!({"error": "x"}), json!("text")] {
            assert_eq!(via.answer(&other), None, "{other}");
        }
    }

    #[test]
    fn a_list_may_lie_deeper() {
        let layout = Composite { list: "batch.calls".to_owned(), ..layout() };
        let arguments = json!({"batch": {"calls": [{"tool_slug": "A_GET"}], "mode": "m"}});
        let apart = layout.take_apart(&tool(), arguments.as_object().unwrap()).unwrap();
        let action = &apart.actions[0];
        let whole = action.via.wrap(&action.name, action.arguments.clone());
        assert_eq!(
            Value::Object(whole.clone()),
            json!({"batch": {"mode": "m", "calls": [{"tool_slug": "A_GET", "arguments": {}}]}})
        );
        assert_eq!(action.via.unwrap(&whole), Some(&Map::new()));
    }
}
