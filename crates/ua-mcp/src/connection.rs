//! One initialised connection to one generation of a tool server, whatever it is reached over.

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::model::Tool;
use serde_json::{Map, Value};
use ua_core::{Env, Outcome, RawReply};

use crate::http::HttpConnection;
use crate::pipe::PipeConnection;

/// The most pages of a tool list that are asked for.
const MAX_PAGES: usize = 200;

/// A connection that calls share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// To a process, over its standard input and output.
    Pipe(PipeConnection),
    /// To an endpoint, over Streamable HTTP.
    Http(HttpConnection),
}

/// One permitted attempt, as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sending {
    /// The tool's bare name.
    pub(crate) tool: String,
    /// Its arguments.
    pub(crate) arguments: Map<String, Value>,
    /// The request's `_meta`.
    pub(crate) meta: Map<String, Value>,
    /// Name and value of the HTTP header in which the tool expects its idempotency key.
    pub(crate) key_header: Option<(String, String)>,
    /// How long the answer may take; `None` waits as long as it takes.
    pub(crate) timeout: Option<Duration>,
}

impl Connection {
    /// Why nothing more can be sent, if nothing can.
    pub(crate) fn ended(&self) -> Option<String> {
        match self {
            Self::Pipe(pipe) => pipe.ended(),
            Self::Http(http) => http.ended(),
        }
    }

    /// Lists every tool, page by page. The error says what came instead.
    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, String> {
        let mut tools = Vec::new();
        let mut cursors = BTreeSet::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = match self {
                Self::Pipe(pipe) => pipe.page(cursor).await?,
                Self::Http(http) => http.page(cursor).await?,
            };
            tools.extend(page.tools);
            match page.next_cursor {
                None => return Ok(tools),
                Some(next) if !cursors.insert(next.clone()) => {
                    return Err("its list of tools has no end: a page came twice".to_owned());
                }
                next @ Some(_) => cursor = next,
            }
        }
        Err(format!("its list of tools has more than {MAX_PAGES} pages"))
    }

    /// Sends one `tools/call`, once, and waits for its answer, at most for its time limit.
    pub(crate) async fn call(&self, sending: Sending, env: &Env) -> Outcome {
        match self {
            Self::Pipe(pipe) => pipe.call(sending, env).await,
            Self::Http(http) => http.call(sending, env).await,
        }
    }
}

pub(crate) async fn sleep_or_never(span: Option<Duration>, env: &Env) {
    match span {
        Some(span) => env.clock.sleep(span).await,
        None => std::future::pending().await,
    }
}

/// What a call came to whose time was up.
pub(crate) fn not_in_time(limit: Option<Duration>) -> Outcome {
    Outcome::Lost { why: format!("no answer within {} s", limit.unwrap_or_default().as_secs_f64()) }
}

/// Reads the kind of a result. A server that wants input first, or that started a task, has not said how the call ends, and
/// what it did so far is not known either: that is a lost outcome, not an error reply.
pub(crate) fn completed(result: Value) -> Outcome {
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => Outcome::Lost {
            why: "the tool asked for input in the middle of the call, which this build cannot give".to_owned(),
        },
        Some("task") => {
            Outcome::Lost { why: "the tool went on in a task of its own, which this build cannot follow".to_owned() }
        }
        Some(_) | None => Outcome::Raw(RawReply::ToolResult { result }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_final_result_is_a_reply() {
        let last = json!({"resultType": "complete", "content": []});
        assert_eq!(completed(last.clone()), Outcome::Raw(RawReply::ToolResult { result: last }));
        for kind in ["input_required", "task"] {
            assert!(matches!(completed(json!({"resultType": kind})), Outcome::Lost { .. }), "{kind}");
        }
    }
}
