//! What an attempt goes on with when a tool answers before it is done: a task to ask again, a question to answer first, or a run of the program
//! that does its work and cannot continue now.
//!
//! MCP Tasks and MCP input-required rounds; Durable Jobs v1 spec §8.3. A handle is stored with its attempt before anything is
//! done with it. Invariants: a call with a handle is gone on with and never sent again, but for a function of the program whose work another
//! run does, which is called again under its key; a handle whose answer may have left us is no handle any more, and the call is in doubt like any
//! other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{QuestionId, RunId};
use crate::status::RunStop;

/// How a call that a tool did not finish at once is gone on with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// The tool server's name for the task that does the work, if it made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What the tool wants to know first, if it asked for something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    /// What the transport needs to find the other side again; nobody else reads it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub place: Value,
    /// The process of the tool server that it was last gone on with, when that is not the one it was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The run that does its work, where a tool of the program said so. Nothing is at work on the call then, and nobody asks how it is getting on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<AwaitedRun>,
}

/// A run that does the work of a call of another one, and cannot continue before somebody did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedRun {
    /// The run.
    pub run_id: RunId,
    /// The question of that run that a person has to answer; none where it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<QuestionId>,
    /// What the run above stops for, where there is no question that could be answered.
    pub reason: RunStop,
    /// In words.
    pub detail: String,
}

impl AwaitedRun {
    /// The handle of a call whose work that run does.
    pub fn into_handle(self) -> Handle {
        Handle { task: Some(self.run_id.to_string()), awaits: Some(self), ..Handle::default() }
    }
}

/// What a tool asked for in the middle of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Its requests, under names of its own: `{"method": "elicitation/create", "params": {…}}`.
    pub requests: BTreeMap<String, Value>,
    /// What was answered, under the same names.
    #[serde(default)]
    pub answers: BTreeMap<String, Value>,
    /// What the tool wants to see again with the answers, unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How often the call was gone on with, this round included.
    pub round: u32,
    /// Whether the tool waits on the connection, and so forgets the call when that ends.
    #[serde(default)]
    pub is_live: bool,
    /// Whether the answers may have left us.
    #[serde(default)]
    pub is_sent: bool,
}

impl Handle {
    /// Whether a later process can go on with it. Asking a task changes nothing; answers that may have arrived are never sent again.
    pub fn outlives_its_process(&self) -> bool {
        match &self.input {
            Some(input) => self.task.is_some() || !(input.is_live || input.is_sent),
            None => self.task.is_some(),
        }
    }

    /// The next request that a person has to answer, by the tool's name for it.
    pub fn open_request(&self) -> Option<(&str, &Value)> {
        let input = self.input.as_ref().filter(|input| !input.is_sent)?;
        let open = input.requests.iter().find(|(name, _)| !input.answers.contains_key(*name));
        open.map(|(name, request)| (name.as_str(), request))
    }

    /// The same handle with one request answered.
    #[must_use]
    pub fn answered(mut self, name: &str, answer: Value) -> Self {
        if let Some(input) = &mut self.input {
            input.answers.insert(name.to_owned(), answer);
        }
        self
    }
}

/// What a person says to a tool that asks.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitAnswer {
    /// The values asked for; those that are left out take the schema's defaults.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// Neither yes nor no.
    Cancel,
}

impl ElicitAnswer {
    /// The answer as the protocol wants it. `params` are those of the request: defaults of its schema stand for what was left out.
    pub fn result(&self, params: &Value) -> Value {
        match self {
            Self::Accept(_) if is_by_address(params) => serde_json::json!({ "action": "accept" }),
            Self::Accept(content) => {
                serde_json::json!({ "action": "accept", "content": with_defaults(content, params) })
            }
            Self::Decline => serde_json::json!({ "action": "decline" }),
            Self::Cancel => serde_json::json!({ "action": "cancel" }),
        }
    }
}

/// Whether a request asks a person to visit an address, rather than to fill in a form.
pub fn is_by_address(params: &Value) -> bool {
    params.get("mode").and_then(Value::as_str) == Some("url")
}

/// The values of a form with the defaults of its fields in place of those that are missing.
pub fn with_defaults(content: &Map<String, Value>, params: &Value) -> Map<String, Value> {
    let mut filled = content.clone();
    for (name, schema) in fields(params) {
        if let Some(default) = crate::form::default_of(schema)
            && !filled.contains_key(name)
            // The form has no field of this name: a secret was taken out of it.
            && !crate::form::holds_mark(&Value::from(name.as_str()))
        {
            filled.insert(name.clone(), default.clone());
        }
    }
    filled
}

/// Under which name the schema of a form says in which order its fields were written: they have none of their own once they were read.
pub const FIELD_ORDER: &str = "dev.universal-agent/order";

/// The fields that a form asks for, in the order in which they were written; where nobody noted that, those that are required first, in the order
/// in which the form lists them.
pub fn fields(params: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let schema = params.get("requestedSchema");
    let properties = schema.and_then(|schema| schema.get("properties"));
    let mut fields: Vec<_> = properties.and_then(Value::as_object).into_iter().flatten().collect();
    let noted = schema.and_then(|schema| schema.get(FIELD_ORDER)).and_then(Value::as_array);
    let order: Vec<&str> = match noted {
        Some(noted) => noted.iter().filter_map(Value::as_str).collect(),
        None => required(params).collect(),
    };
    let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
    fields.sort_by_key(|(name, _)| place(name));
    fields.into_iter()
}

/// The fields of a form that cannot be left out.
fn required(params: &Value) -> impl Iterator<Item = &str> {
    let required = params.get("requestedSchema").and_then(|schema| schema.get("required")).and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str)
}

/// The required fields of a form that `content` does not have.
pub fn missing<'p>(content: &Map<String, Value>, params: &'p Value) -> Vec<&'p str> {
    required(params).filter(|name| !content.contains_key(*name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asking(is_live: bool, is_sent: bool, task: Option<&str>) -> Handle {
        let requests = BTreeMap::from([("who".to_owned(), json!({"method": "elicitation/create"}))]);
        let input = Input { requests, is_live, is_sent, round: 1, ..Input::default() };
        Handle { task: task.map(str::to_owned), input: Some(input), ..Handle::default() }
    }

    #[test]
    fn a_handle_outlives_its_process_until_answers_may_have_left() {
        let task = Handle { task: Some("t".into()), ..Handle::default() };
        let (run_id, question) = (RunId::parse("r").unwrap(), QuestionId::parse("q_1").unwrap());
        let detail = "it waits".to_owned();
        let run = AwaitedRun { run_id, question: Some(question), reason: RunStop::Interrupt, detail }.into_handle();
        let stored = serde_json::to_value(&run).unwrap();
        assert_eq!(serde_json::from_value::<Handle>(stored).unwrap(), run);
        let cases = [
            (task, true),
            (run, true),
            (asking(false, false, None), true),
            (asking(false, true, None), false),
            (asking(true, false, None), false),
            (asking(false, true, Some("t")), true),
            (Handle::default(), false),
        ];
        for (handle, expected) in cases {
            assert_eq!(handle.outlives_its_process(), expected, "{handle:?}");
        }
    }

    #[test]
    fn what_a_form_requires_is_asked_first_and_in_its_order() {
        let order = |required: Value| {
            let schema =
                json!({"properties": {"count": {}, "email": {}, "gift": {}, "size": {}}, "required": required});
            let params = json!({"requestedSchema": schema});
            fields(&params).map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(json!(["size", "none", "email"])), ["size", "email", "count", "gift"]);
        assert_eq!(order(Value::Null), ["count", "email", "gift", "size"]);
    }

    #[test]
    fn requests_are_answered_one_by_one() {
        let handle = asking(false, false, None);
        assert_eq!(handle.open_request().unwrap().0, "who");
        assert_eq!(handle.answered("who", json!({"action": "decline"})).open_request(), None);
    }

    #[test]
    fn what_is_left_out_of_a_form_takes_its_default() {
        let params = json!({"requestedSchema": {"properties": {"a": {"default": 1}, "b": {"default": "x"}, "c": {}},
            "required": ["a", "c"]}});
        let content = json!({"b": "y"}).as_object().unwrap().clone();
        let expected = json!({"action": "accept", "content": {"a": 1, "b": "y"}});
        assert_eq!(ElicitAnswer::Accept(content.clone()).result(&params), expected);
        assert_eq!(missing(&with_defaults(&content, &params), &params), ["c"]);
        assert_eq!(ElicitAnswer::Decline.result(&params), json!({"action": "decline"}));
        let address = json!({"mode": "url", "url": "https://example.org"});
        assert_eq!(ElicitAnswer::Accept(Map::new()).result(&address), json!({"action": "accept"}));
    }
}
