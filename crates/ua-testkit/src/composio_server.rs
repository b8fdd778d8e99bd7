//! A tool router with the surface of Composio's: search, schemas, a composite tool that executes actions, and one action that is offered
//! directly too (docs.composio.dev, meta tools reference).
//!
//! Every action that changes something appends a line to the log, which is how a harness counts from outside: its name, its
//! arguments, and how many actions came with it in one request. Test switches among an action's arguments: `fail` is the error
//! that it reports after its effect; `die_without` is a file that is made, whereupon the process dies before it answers, if the file
//! was not there yet; `size` is how many bytes a fetched mail has.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::mcp_lines::serve_lines;

/// The most actions of one request.
pub const BATCH_LIMIT: usize = 50;

/// Serves until standard input ends. `log` gets one line per effect.
pub fn serve_composio(log: &Path) -> io::Result<()> {
    let router = Router { log: log.to_path_buf() };
    serve_lines("composio", &Router::listing(), |name, arguments| {
        Ok(router.call(name, arguments)?.map(|answer| answer.to_string()))
    })
}

struct Router {
    log: PathBuf,
}

fn tool(name: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"name": name, "description": format!("{name} of a tool router."), "inputSchema": schema})
}

impl Router {
    fn listing() -> Vec<Value> {
        let item = json!({
            "type": "object", "required": ["tool_slug", "arguments"],
            "properties": {"tool_slug": {"type": "string"}, "arguments": {"type": "object"}},
        });
        let list = json!({
            "tools": {"type": "array", "items": item, "minItems": 1, "maxItems": BATCH_LIMIT}, "session_id": {"type": "string"},
            "thought": {"type": "string"}, "memory": {"type": "object"}, "current_step": {"type": "string"},
            "sync_response_to_workbench": {"type": "boolean"},
        });
        let mail =
            json!({"recipient_email": {"type": "string"}, "subject": {}, "body": {}, "fail": {}, "die_without": {}});
        vec![
            tool("COMPOSIO_SEARCH_TOOLS", &json!({"queries": {"type": "array"}}), &["queries"]),
            tool("COMPOSIO_GET_TOOL_SCHEMAS", &json!({"tool_slugs": {"type": "array"}}), &["tool_slugs"]),
            tool("COMPOSIO_MANAGE_CONNECTIONS", &json!({"toolkits": {"type": "array"}}), &["toolkits"]),
            tool("COMPOSIO_MULTI_EXECUTE_TOOL", &list, &["tools"]),
            tool("COMPOSIO_REMOTE_WORKBENCH", &json!({"code_to_execute": {}}), &["code_to_execute"]),
            tool("GMAIL_SEND_EMAIL", &mail, &["recipient_email"]),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value) -> io::Result<Result<Value, String>> {
        let done = |data: Value| Ok(Ok(json!({"data": data, "error": null, "successful": true})));
        match tool {
            "COMPOSIO_SEARCH_TOOLS" => done(
                json!({"tools": ["GMAIL_FETCH_EMAILS", "GMAIL_SEND_EMAIL", "NOTES_CREATE_PAGE"], "session_id": "s-1"}),
            ),
            "COMPOSIO_GET_TOOL_SCHEMAS" => done(json!({"schemas": arguments["tool_slugs"]})),
            "COMPOSIO_MANAGE_CONNECTIONS" => done(json!({"status": "active"})),
            "COMPOSIO_MULTI_EXECUTE_TOOL" => self.execute_all(arguments),
            "GMAIL_SEND_EMAIL" => Ok(Ok(self.execute(tool, arguments, 1)?)),
            other => Ok(Err(format!("there is no tool {other}"))),
        }
    }

    fn execute_all(&self, arguments: &Value) -> io::Result<Result<Value, String>> {
        let actions = arguments["tools"].as_array().cloned().unwrap_or_default();
        if actions.len() > BATCH_LIMIT {
            return Ok(Err(format!("at most {BATCH_LIMIT} tools may be executed at once")));
        }
        let mut results = Vec::new();
        for (index, action) in actions.iter().enumerate() {
            let slug = action["tool_slug"].as_str().unwrap_or_default();
            let response = self.execute(slug, &action["arguments"], actions.len())?;
            results.push(json!({"index": index, "tool_slug": slug, "response": response}));
        }
        let failed = results.iter().filter(|result| result["response"]["successful"] == false).count();
        let error = (failed > 0).then(|| format!("{failed} of {} tools failed", results.len()));
        Ok(Ok(json!({"data": {"results": results}, "error": error, "successful": failed == 0})))
    }

    /// Does one action and makes its envelope.
    fn execute(&self, slug: &str, arguments: &Value, together: usize) -> io::Result<Value> {
        let made = self.made()?;
        let data = match slug {
            "GMAIL_FETCH_EMAILS" => {
                let size = arguments["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
                json!({"messages": made.len(), "text": "m".repeat(size)})
            }
            "GMAIL_SEND_EMAIL" | "SLACK_SEND_MESSAGE" => {
                self.note(slug, arguments, together)?;
                json!({"id": format!("msg-{}", made.len() + 1), "threadId": "t-1"})
            }
            // It takes a key, and does nothing when it comes again.
            "NOTES_CREATE_PAGE" => {
                let key = &arguments["client_request_id"];
                let twin =
                    made.iter().position(|line| key.is_string() && line["arguments"]["client_request_id"] == *key);
                if twin.is_none() {
                    self.note(slug, arguments, together)?;
                }
                json!({"id": format!("page-{}", twin.unwrap_or(made.len()) + 1)})
            }
            other => return Ok(json!({"data": {}, "error": format!("Tool {other} not found"), "successful": false})),
        };
        if let Some(file) = arguments["die_without"].as_str().map(Path::new).filter(|file| !file.exists()) {
            fs::write(file, "")?;
            return Err(io::Error::other("the test wanted it to die"));
        }
        Ok(match arguments["fail"].as_str() {
            Some(error) => json!({"data": {}, "error": error, "successful": false}),
            None => json!({"data": data, "error": null, "successful": true}),
        })
    }

    fn made(&self) -> io::Result<Vec<Value>> {
        let text = if self.log.exists() { fs::read_to_string(&self.log)? } else { String::new() };
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn note(&self, slug: &str, arguments: &Value, together: usize) -> io::Result<()> {
        let mut line = Map::new();
        line.insert("tool".to_owned(), slug.into());
        line.insert("arguments".to_owned(), arguments.clone());
        line.insert("together".to_owned(), together.into());
        let mut file = OpenOptions::new().create(true).append(true).open(&self.log)?;
        file.write_all(format!("{}\n", Value::Object(line)).as_bytes())?;
        file.sync_data()
    }
}
