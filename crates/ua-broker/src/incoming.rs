//! What a client said: read whole, and one of a closed set of kinds, or not taken at all.
//!
//! A line that the broker takes for something else than its tool server does is how a call gets past the ledger. So nothing of a client's
//! text goes on: it is parsed strictly (each name once, each value as it is written), judged here, and what a tool server is sent is written
//! anew from what was judged. A tool call is only a request; one without an id could not be answered, and is never sent.
//!
//! Proved by: the table of all shapes below, `tests/it/shapes.rs`.

use serde_json::{Map, Value, json};
use ua_core::{CanonicalError, parse_strict};
use ua_mcp::envelope;

/// The method that goes through the ledger.
pub(crate) const CALL: &str = "tools/call";
/// What a client says when it has begun.
pub(crate) const INITIALIZED: &str = "notifications/initialized";
/// What it says when it wants no answer any more.
pub(crate) const CANCELLED: &str = "notifications/cancelled";
/// All that a client tells a tool server without wanting an answer.
const NOTIFICATIONS: [&str; 5] = [
    INITIALIZED,
    CANCELLED,
    "notifications/progress",
    "notifications/roots/list_changed",
    "notifications/tasks/status",
];
/// The one revision in which several messages may come as one.
const WITH_BATCHES: &str = "2025-03-26";
/// The most messages of a batch.
const MOST_IN_BATCH: usize = 1_000;
/// The largest whole number that each reader of JSON holds.
const SAFE: f64 = 9_007_199_254_740_991.0;

const UNREADABLE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const NO_SUCH_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A request: it has an id, and is answered. Only [`read`] makes one of a client's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    id: Value,
    method: String,
    params: Value,
}

impl Request {
    /// One that the broker makes itself; never a tool call.
    pub(crate) fn own(id: &str, method: &'static str, params: &Value) -> Self {
        Self { id: json!(id), method: method.to_owned(), params: params.clone() }
    }

    pub(crate) fn id(&self) -> &Value {
        &self.id
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// An object, or null where there are none.
    pub(crate) fn params(&self) -> &Value {
        &self.params
    }

    pub(crate) fn is_call(&self) -> bool {
        self.method == CALL
    }

    /// The same call, of a tool by another name.
    pub(crate) fn of_tool(mut self, tool: &str) -> Self {
        self.params["name"] = json!(tool);
        self
    }

    /// Its id, its method and its parameters.
    pub(crate) fn into_parts(self) -> (Value, String, Value) {
        (self.id, self.method, self.params)
    }
}

/// What wants no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Aside {
    /// Something that a client tells.
    Notification { method: &'static str, params: Value },
    /// The answer to a request of ours, or of the tool server.
    Answer(Answer),
}

/// An answer of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) id: Value,
    /// An object with a `result` or an `error` alone.
    outcome: Value,
}

impl Answer {
    /// With a `result`, or an `error`.
    pub(crate) fn new(id: Value, outcome: Value) -> Self {
        Self { id, outcome }
    }

    /// The same, of a request by another id.
    pub(crate) fn of_request(self, id: Value) -> Self {
        Self { id, ..self }
    }

    pub(crate) fn result(&self) -> Option<&Value> {
        self.outcome.get("result")
    }
}

impl Aside {
    /// That the answer to a request is not wanted any more.
    pub(crate) fn cancelled(request: u64) -> Self {
        Self::Notification { method: CANCELLED, params: json!({"requestId": request}) }
    }

    /// As it is written for a tool server.
    pub(crate) fn as_message(&self) -> Value {
        match self {
            Self::Notification { method, params: Value::Null } => json!({"jsonrpc": "2.0", "method": method}),
            Self::Notification { method, params } => json!({"jsonrpc": "2.0", "method": method, "params": params}),
            Self::Answer(answer) => {
                let mut message = answer.outcome.clone();
                message["jsonrpc"] = json!("2.0");
                message["id"] = answer.id.clone();
                message
            }
        }
    }
}

/// What is taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    Request(Request),
    Aside(Aside),
}

/// What a client is told of what is not taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    /// Of which request; null where that cannot be told.
    pub(crate) id: Value,
    pub(crate) code: i64,
    pub(crate) why: String,
}

impl Refused {
    fn new(id: Value, code: i64, why: impl Into<String>) -> Self {
        Self { id, code, why: why.into() }
    }

    pub(crate) fn as_message(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.why}})
    }
}

/// What became of one message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Judged {
    Taken(Incoming),
    /// Answered with an error, and sent to nobody.
    Refused(Refused),
    /// Sent to nobody, and there is nothing to answer: why, and whether it would have been a tool call.
    Dropped {
        why: String,
        is_call: bool,
    },
}

impl Judged {
    fn refused(id: Value, code: i64, why: impl Into<String>) -> Self {
        Self::Refused(Refused::new(id, code, why))
    }
}

/// What a text of a client is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Read {
    One(Judged),
    /// Several messages, which a revision may have or not.
    Batch(Vec<Judged>),
}

/// Whether several messages may come as one in a revision.
pub(crate) fn has_batches(revision: Option<&str>) -> bool {
    revision == Some(WITH_BATCHES)
}

/// What is said to a client whose revision has none.
pub(crate) fn no_batches() -> Refused {
    let why = format!(
        "a batch is part of revision {WITH_BATCHES} of MCP alone, and this one is in another revision; nothing of it was sent: send its messages one by one"
    );
    Refused::new(Value::Null, INVALID_REQUEST, why)
}

/// Reads what a client said.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let Ok(text) = str::from_utf8(bytes) else {
        return Read::One(Judged::refused(Value::Null, UNREADABLE, "the message cannot be read: it is not UTF-8"));
    };
    let parsed = if ua_mcp::is_too_much(bytes) {
        // Of what is an answer, its frame is left.
        ua_mcp::read_message(bytes).map_err(|error| CanonicalError::Syntax(error.to_string()))
    } else {
        parse_strict(text)
    };
    match parsed {
        Ok(Value::Array(messages)) if messages.is_empty() || messages.len() > MOST_IN_BATCH => {
            let why = format!("a batch has 1 to {MOST_IN_BATCH} messages");
            Read::One(Judged::refused(Value::Null, INVALID_REQUEST, why))
        }
        Ok(Value::Array(messages)) => Read::Batch(messages.into_iter().map(judged_in_batch).collect()),
        Ok(message) => Read::One(judged(message)),
        Err(error) => Read::One(not_carried(text, &error)),
    }
}

/// What cannot be read, or not exactly.
fn not_carried(text: &str, error: &CanonicalError) -> Judged {
    let (id, has_method) = envelope(text.as_bytes()).unwrap_or((None, true));
    let id = id.filter(is_id);
    let (code, why) = match error {
        CanonicalError::Syntax(why) => (UNREADABLE, format!("the message cannot be read: {why}")),
        CanonicalError::IntegerTooLarge(_)
        | CanonicalError::InexactDecimal { .. }
        | CanonicalError::HalfCharacter(_) => (INVALID_PARAMS, format!("nothing was sent: {error}")),
    };
    match id {
        // Whoever asked the client does not wait for ever.
        Some(id) if !has_method => {
            let why = format!("the client's answer cannot be carried: {error}");
            Judged::Taken(Incoming::Aside(Aside::Answer(Answer::new(
                id,
                json!({"error": {"code": -32603, "message": why}}),
            ))))
        }
        id => Judged::refused(id.unwrap_or_default(), code, why),
    }
}

fn judged_in_batch(message: Value) -> Judged {
    match judged(message) {
        Judged::Taken(Incoming::Request(request)) if request.method == "initialize" => {
            Judged::refused(request.id, INVALID_REQUEST, "`initialize` is not part of a batch")
        }
        judged @ (Judged::Taken(_) | Judged::Refused(_) | Judged::Dropped { .. }) => judged,
    }
}

fn judged(message: Value) -> Judged {
    let Value::Object(mut message) = message else {
        return Judged::refused(Value::Null, INVALID_REQUEST, "a message is a JSON object");
    };
    let id = message.remove("id");
    let outcome = outcome(&mut message);
    let params = message.remove("params").unwrap_or_default();
    let method = match (message.remove("method"), outcome) {
        (None, Ok(outcome)) => return answered(id, outcome),
        (Some(Value::String(method)), Err(true)) => method,
        (_, _) => {
            let why = "a message has a `method`, which is a text, or one of `result` and `error`";
            return Judged::refused(id.filter(is_id).unwrap_or_default(), INVALID_REQUEST, why);
        }
    };
    let is_call = is_like_a_call(&method);
    let known = NOTIFICATIONS.into_iter().find(|known| *known == method);
    match (id, known) {
        (Some(id), _) if is_id(&id) => requested(id, method, params),
        (None | Some(Value::Null), Some(method)) if params.is_object() || params.is_null() => {
            Judged::Taken(Incoming::Aside(Aside::Notification { method, params }))
        }
        (Some(_), _) => {
            let why = "the id of a request is a text or a whole number; nothing was sent";
            Judged::refused(Value::Null, INVALID_REQUEST, why)
        }
        (None, _) if is_call => {
            Judged::Dropped { why: "a tool call without an id, which nobody could be answered".to_owned(), is_call }
        }
        (None, _) => Judged::Dropped { why: format!("`{method}` is no notification of a client"), is_call },
    }
}

/// What an answer says; otherwise whether there is neither of the two.
fn outcome(message: &mut Map<String, Value>) -> Result<Value, bool> {
    match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => Ok(json!({"result": result})),
        (None, Some(error)) => Ok(json!({"error": error})),
        (None, None) => Err(true),
        (Some(_), Some(_)) => Err(false),
    }
}

fn answered(id: Option<Value>, outcome: Value) -> Judged {
    match id {
        Some(id) if !id.is_null() => Judged::Taken(Incoming::Aside(Aside::Answer(Answer::new(id, outcome)))),
        Some(_) | None => Judged::Dropped { why: "an answer that names no request".to_owned(), is_call: false },
    }
}

fn requested(id: Value, method: String, params: Value) -> Judged {
    if method != CALL && is_like_a_call(&method) {
        return Judged::refused(id, NO_SUCH_METHOD, format!("there is no method {method:?}; `{CALL}` is written so"));
    }
    if !params.is_object() && !params.is_null() {
        return Judged::refused(id, INVALID_PARAMS, "`params` is a JSON object");
    }
    Judged::Taken(Incoming::Request(Request { id, method, params }))
}

/// Whether a tool server that is not strict might take it for a tool call.
fn is_like_a_call(method: &str) -> bool {
    let plain: String = method.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    plain.trim_matches('/').eq_ignore_ascii_case(CALL)
}

/// A text, or a number that is whole: what a request may be called.
fn is_id(id: &Value) -> bool {
    match id {
        Value::String(_) => true,
        Value::Number(id) => {
            id.is_i64() || id.is_u64() || id.as_f64().is_some_and(|id| id.fract() == 0.0 && id.abs() <= SAFE)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations of how a message says its id, its key of the method, its method, and what stands beside it: a tool call is taken in one
    /// way only, and nothing else becomes one.
    #[test]
    fn of_all_shapes_a_tool_call_is_a_request_with_an_id_and_nothing_else() {
        let ids = [
            "",
            r#""id":1,"#,
            r#""id":"a","#,
            r#""\u0069d":1,"#,
            r#""id":1.0,"#,
            r#""id":null,"#,
            r#""id":1.5,"#,
            r#""id":true,"#,
            r#""id":[1],"#,
            r#""id":{},"#,
            r#""id":1,"id":2,"#,
            r#""id":1,"i\u0064":null,"#,
            r#""id":20000000000000000001,"#,
        ];
        let keys =
            [r#""method""#, r#""m\u0065thod""#, r#""\u006dethod""#, r#""Method""#, r#""method":"ping","method""#];
        let methods = [
            r#""tools/call""#,
            r#""tools\/call""#,
            r#""tools\u002fcall""#,
            r#""\u0074ools/call""#,
            r#""Tools/Call""#,
            r#""tools/call ""#,
            r#""tools/call\u0000""#,
            r#""/tools/call""#,
            r#"["tools/call"]"#,
            r#""ping""#,
            r#""notifications/initialized""#,
            "null",
        ];
        let besides = [
            "",
            r#","result":{}"#,
            r#","error":{}"#,
            r#","result":{},"error":{}"#,
            r#","params":{}"#,
            r#","params":null"#,
        ];
        let (mut count, mut taken) = (0, 0);
        for id in ids {
            for key in keys {
                for method in methods {
                    for beside in besides {
                        for params in [r#""params":{"name":"x","arguments":{}}"#, r#""params":["x"]"#] {
                            let line = format!(r#"{{"jsonrpc":"2.0",{id}{key}:{method},{params}{beside}}}"#);
                            count += 1;
                            let Read::One(judged) = read(line.as_bytes()) else { panic!("{line}") };
                            let is_written_so = matches!(
                                method,
                                r#""tools/call""#
                                    | r#""tools\/call""#
                                    | r#""tools\u002fcall""#
                                    | r#""\u0074ools/call""#
                            );
                            let is_one =
                                matches!(id, r#""id":1,"# | r#""id":"a","# | r#""\u0069d":1,"# | r#""id":1.0,"#)
                                    && matches!(key, r#""method""# | r#""m\u0065thod""# | r#""\u006dethod""#)
                                    && is_written_so
                                    && beside.is_empty()
                                    && params.contains("name");
                            let is_call =
                                matches!(&judged, Judged::Taken(Incoming::Request(request)) if request.is_call());
                            assert_eq!(is_call, is_one, "{line}: {judged:?}");
                            taken += usize::from(is_call);
                            // What is not taken says nothing to a tool server; what is, is written without what it was not judged by.
                            match &judged {
                                Judged::Taken(Incoming::Aside(aside)) => {
                                    let written = aside.as_message().to_string();
                                    assert!(!written.contains("tools"), "{line}: {written}");
                                }
                                Judged::Taken(Incoming::Request(request)) => {
                                    assert!(
                                        request.is_call()
                                            || request.method == "ping"
                                            || request.method.starts_with("notif"),
                                        "{line}"
                                    );
                                }
                                Judged::Refused(_) | Judged::Dropped { .. } => {}
                            }
                            // As part of a batch it is the same.
                            if let Read::Batch(all) =
                                read(format!("[{line},{{\"id\":9,\"method\":\"ping\"}}]").as_bytes())
                            {
                                assert_eq!((&all[0], all.len()), (&judged, 2), "{line}");
                            }
                        }
                    }
                }
            }
        }
        assert_eq!((count, taken), (13 * 5 * 12 * 6 * 2, 4 * 3 * 4));
    }

    #[test]
    fn what_is_not_carried_exactly_is_refused_by_its_name() {
        for (arguments, word) in [
            (r#"{"n":20000000000000000001}"#, "20000000000000000001"),
            (r#"{"n":0.1000000000000000055}"#, "0.1000000000000000055"),
            (r#"{"n":"\ud83d"}"#, r"\ud83d"),
            (r#"{"n":1,"n":1}"#, "twice"),
        ] {
            let line = format!(r#"{{"id":"a","method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}"#);
            let Read::One(Judged::Refused(refused)) = read(line.as_bytes()) else { panic!("{line}") };
            assert!(refused.id == "a" && refused.why.contains(word), "{refused:?}");
        }
        let answer = read(br#"{"id":"q1","result":{"n":0.1000000000000000055}}"#);
        let Read::One(Judged::Taken(Incoming::Aside(Aside::Answer(answer)))) = answer else { panic!("{answer:?}") };
        assert!(answer.id == "q1" && answer.result().is_none());
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_a_batch_is_a_batch() {
        for broken in [&b"\xff"[..], b"", b"{", b"7", b"[]", b"{\"id\":1", b"{}"] {
            let read = read(broken);
            assert!(matches!(read, Read::One(Judged::Refused(Refused { id: Value::Null, .. }))), "{read:?}");
        }
        let deep = format!(r#"{{"params": {}{}, "id": 7, "method": "x"}}"#, "[".repeat(300), "]".repeat(300));
        assert!(
            matches!(read(deep.as_bytes()), Read::One(Judged::Refused(refused)) if refused.id == 7 && refused.code == UNREADABLE)
        );
        let Read::Batch(all) = read(br#"[[{"id":1,"method":"ping"}],{"id":1,"method":"initialize"}]"#) else {
            panic!("no batch")
        };
        assert!(all.iter().all(|judged| matches!(judged, Judged::Refused(_))), "{all:?}");
        assert!(has_batches(Some("2025-03-26")) && !has_batches(Some("2025-06-18")) && !has_batches(None));
    }
}
