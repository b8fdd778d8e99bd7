//! Everything a server offers, called once: what a conformance suite watches a client do.
//!
//! Not a way to run a job: no ledger stands behind these calls, so it is for servers that only pretend. In no program for users.

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use ua_core::{CallId, ElicitAnswer, Env, Outcome, ToolSpec};
use ua_dispatch::ToolTransport as _;

use crate::connection::Connection;
use crate::exchange::Sending;
use crate::host::{Ask, Listener};
use crate::logins::{LoginRequest, Logins};
use crate::transport::{McpTransport, McpTransportConfig};

/// How often one tool may ask.
const MAX_ROUNDS: usize = 10;

/// Lists the tools of the only configured server and calls each, or only those that `calls` names, with its arguments. Whatever a
/// tool asks for is accepted with its defaults. Returns what came of each call.
///
/// # Errors
/// A sentence about the server that cannot be used.
pub async fn exercise(
    config: McpTransportConfig,
    calls: Option<Vec<(String, Map<String, Value>)>>,
) -> Result<Vec<String>, String> {
    let env = config.env.clone();
    let name = config.servers.first().map(|server| server.name.clone()).ok_or("no server is configured")?;
    let transport = McpTransport::new(config);
    let tools = transport.list().await.map_err(|error| error.to_string())?;
    let server = transport.server(&name).map_err(|error| error.to_string())?;
    let (_, connection) = server.ready(transport.shared()).await.map_err(|error| error.to_string())?;
    let own = tools.iter().filter(|tool| server.facts(&tool.name.tool).resource.is_none());
    let calls =
        calls.unwrap_or_else(|| own.map(|tool| (tool.name.tool.clone(), made_up(&tool.input_schema))).collect());
    let mut came = Vec::new();
    for (tool, arguments) in calls {
        let is_offered = |spec: &&ToolSpec| spec.name.tool == tool;
        if tools.iter().find(is_offered).is_none() {
            came.push(format!("{tool}: not offered"));
            continue;
        }
        let outcome = call(&transport, &name, &connection, &tool, &arguments, &env).await;
        came.push(format!("{tool}: {outcome:?}"));
    }
    transport.shutdown().await;
    Ok(came)
}

/// Logs in as a person does whom the authorization server lets in unasked: nobody needs to see its pages.
///
/// # Errors
/// A sentence about what did not go as it should.
pub async fn log_in(logins: &Logins, request: LoginRequest) -> Result<(), String> {
    let pending = logins.begin(request).await.map_err(|error| error.to_string())?;
    let browser = ua_http::client(ua_http::Versions::One).no_proxy().build();
    let browser = browser.map_err(|error| error.to_string())?;
    let sent = browser.get(pending.address()).send().await.map_err(|error| error.to_string())?;
    let back = sent.headers().get(reqwest::header::LOCATION).and_then(|back| back.to_str().ok());
    let back = back.ok_or("the browser was not sent back")?.to_owned();
    pending.finish(&back).await.map(drop).map_err(|error| error.to_string())
}

async fn call(
    transport: &McpTransport,
    server: &str,
    connection: &Connection,
    tool: &str,
    arguments: &Map<String, Value>,
    env: &Env,
) -> Outcome {
    let facts = transport.server(server).map(|server| server.facts(tool)).unwrap_or_default();
    let mut more = Map::new();
    for _ in 0..MAX_ROUNDS {
        let (asks, mut asked) = mpsc::unbounded_channel();
        let answering = tokio::spawn(async move {
            while let Some(Ask { params, reply }) = asked.recv().await {
                let _gone = reply.send(ElicitAnswer::Accept(Map::new()).result(&params));
            }
        });
        let mut sending = Sending::call(tool, arguments.clone(), Map::new());
        sending.params.append(&mut more);
        sending.param_headers = facts.headers.values(arguments);
        sending.listener = Some(Listener { call_id: CallId::new(env), asks });
        let outcome = connection.call(sending, env).await;
        answering.abort();
        let Outcome::Continues(handle) = outcome else { return outcome };
        let Some(input) = handle.input.clone() else { return Outcome::Continues(handle) };
        let mut handle = *handle;
        while let Some((name, request)) = handle.open_request() {
            let (name, params) = (name.to_owned(), request.get("params").cloned().unwrap_or_default());
            handle = handle.answered(&name, ElicitAnswer::Accept(Map::new()).result(&params));
        }
        more.insert("inputResponses".to_owned(), json!(handle.input.map(|input| input.answers)));
        more.extend(input.state.map(|state| ("requestState".to_owned(), json!(state))));
    }
    Outcome::Lost { why: format!("it asked more than {MAX_ROUNDS} times") }
}

/// Arguments that a schema takes: its required ones, by their type.
fn made_up(schema: &Value) -> Map<String, Value> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| {
        let schema = schema.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
        if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|listed| listed.first()) {
            return first.clone();
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => json!(2),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            Some("null") => Value::Null,
            Some(_) | None => json!("text"),
        }
    };
    required.map(|name| (name.to_owned(), value(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_made_up_by_their_type() {
        let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"type": "string"}},
            "required": ["a", "b"]});
        assert_eq!(Value::Object(made_up(&schema)), json!({"a": 2, "b": "x"}));
    }
}
