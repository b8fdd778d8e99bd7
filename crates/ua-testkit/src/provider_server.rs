//! Services of others, as their documentation says they behave, behind a tool server of our own.
//!
//! Speaks MCP over standard input and output, line by line, with nothing but JSON. What a service holds is a file that outlives the
//! process: one line per thing that was made, which is also how a harness counts from outside.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ua_core::Timestamp;

use crate::mcp_lines::serve_lines;

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Makes an issue, a pull request or a comment each time it is told to, and lists them, 30 to a page; in order, with the time of each, where
    /// it is asked for that.
    GitHub,
    /// Answers a repeat under one key with the first result; `create_customer` takes no key.
    Stripe,
    /// Takes an event's id from the client and refuses a second one.
    GoogleCalendar,
    /// Keeps a channel's messages, and what one of its tools is given as metadata, which it shows to those who ask for it.
    Slack,
    /// Keeps one object per place, with its metadata.
    S3,
    /// Sends a message each time it is told to, and nothing about a message is unique.
    Gmail,
    /// Makes a comment each time it is told to, and lists those of an issue.
    Linear,
    /// The same of a page, whose texts are kept in pieces.
    Notion,
    /// Puts a row into a table, and answers questions about one: `SELECT id, column FROM table WHERE column = 'value'`.
    Sql,
    /// Makes a label each time it is told to, and lists those of a board, by ids that begin with the second in which each was made.
    Trello,
    /// Makes a role each time it is told to, and lists those of a server, in prose, by ids that begin with the millisecond.
    Discord,
}

impl Provider {
    /// Every one.
    pub const ALL: [Self; 11] = [
        Self::GitHub,
        Self::Stripe,
        Self::GoogleCalendar,
        Self::Slack,
        Self::S3,
        Self::Gmail,
        Self::Linear,
        Self::Notion,
        Self::Sql,
        Self::Trello,
        Self::Discord,
    ];

    /// The name under which its server is usually configured.
    pub fn name(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::Stripe => "stripe",
            Self::GoogleCalendar => "google-calendar",
            Self::Slack => "slack",
            Self::S3 => "s3",
            Self::Gmail => "gmail",
            Self::Linear => "linear",
            Self::Notion => "notion",
            Self::Sql => "sql",
            Self::Trello => "trello",
            Self::Discord => "discord",
        }
    }

    /// Its tools: name and arguments.
    fn tools(self) -> Vec<(&'static str, &'static [&'static str])> {
        match self {
            Self::GitHub => vec![
                ("create_issue", &["owner", "repo", "title", "body"]),
                ("list_issues", &["owner", "repo", "state", "since", "orderBy", "direction", "perPage"]),
                ("issue_write", &["method", "owner", "repo", "title", "body", "issue_number"]),
                ("create_pull_request", &["owner", "repo", "title", "head", "base", "body"]),
                ("list_pull_requests", &["owner", "repo", "state", "sort", "direction"]),
                ("add_issue_comment", &["owner", "repo", "issue_number", "body"]),
                ("issue_read", &["method", "owner", "repo", "issue_number", "page", "perPage"]),
            ],
            Self::Stripe => vec![
                ("create_refund", &["charge", "amount", "idempotency_key"]),
                ("create_customer", &["name", "email"]),
            ],
            Self::GoogleCalendar => vec![
                ("create-event", &["calendarId", "eventId", "summary", "start", "end"]),
                ("get-event", &["calendarId", "eventId"]),
            ],
            Self::Slack => vec![
                ("slack_post_message", &["channel_id", "text"]),
                ("slack_get_channel_history", &["channel_id", "limit"]),
                ("chat_postMessage", &["channel", "text", "metadata"]),
                ("conversations_history", &["channel", "oldest", "include_all_metadata", "limit"]),
            ],
            Self::S3 => {
                vec![("put_object", &["Bucket", "Key", "Body", "Metadata"]), ("head_object", &["Bucket", "Key"])]
            }
            Self::Gmail => vec![("GMAIL_SEND_EMAIL", &["recipient_email", "subject", "body"])],
            Self::Linear => vec![("create_comment", &["issueId", "body"]), ("list_comments", &["issueId"])],
            Self::Notion => vec![
                ("API-create-a-comment", &["parent", "rich_text"]),
                ("API-retrieve-a-comment", &["block_id", "page_size"]),
            ],
            Self::Sql => vec![("insert_row", &["table", "values"]), ("read_query", &["query"])],
            Self::Trello => vec![("create_label", &["boardId", "name", "color"]), ("get_board_labels", &["boardId"])],
            Self::Discord => vec![("create_role", &["guildId", "name"]), ("list_roles", &["guildId"])],
        }
    }
}

/// One thing that a service was told to make.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    tool: String,
    arguments: Value,
    at: Timestamp,
}

/// Serves until standard input ends. `log` gets one line per thing that was made.
pub fn serve_provider(provider: Provider, log: &Path) -> io::Result<()> {
    let service = Service { provider, log: log.to_path_buf() };
    serve_lines(provider.name(), &service.listing(), |name, arguments| service.call(name, arguments))
}

struct Service {
    provider: Provider,
    log: PathBuf,
}

impl Service {
    fn listing(&self) -> Vec<Value> {
        let tool = |(name, arguments): (&str, &[&str])| {
            let properties: serde_json::Map<String, Value> =
                arguments.iter().map(|argument| ((*argument).to_owned(), json!({}))).collect();
            let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
            json!({"name": name, "description": format!("{name} of {}.", self.provider.name()), "inputSchema": schema})
        };
        self.provider.tools().into_iter().map(tool).collect()
    }

    fn made(&self) -> io::Result<Vec<Made>> {
        let text = if self.log.exists() { fs::read_to_string(&self.log)? } else { String::new() };
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let made = lines.map(|line| Made {
            tool: line["tool"].as_str().unwrap_or_default().to_owned(),
            arguments: line["arguments"].clone(),
            at: Timestamp::from_millis(line["at"].as_i64().unwrap_or_default()),
        });
        Ok(made.collect())
    }

    fn make(&self, tool: &str, arguments: &Value) -> io::Result<()> {
        let at = ua_core::system::env().now().as_millis();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.log)?;
        file.write_all(format!("{}\n", json!({"tool": tool, "arguments": arguments, "at": at})).as_bytes())?;
        file.sync_data()
    }

    /// The answer of a call, or the error that it reports.
    fn call(&self, tool: &str, arguments: &Value) -> io::Result<Result<Value, String>> {
        let made = self.made()?;
        let of = |tool: &str| made.iter().filter(|made| made.tool == tool).cloned().collect::<Vec<_>>();
        let same = |made: &Made, names: &[&str]| names.iter().all(|name| made.arguments[name] == arguments[name]);
        Ok(Ok(match tool {
            "list_issues" if arguments["orderBy"] == "CREATED_AT" => {
                let mut all = of("issue_write");
                all.retain(|made| same(made, &["owner", "repo"]) && made.arguments["method"] == "create");
                all.sort_by_key(|made| std::cmp::Reverse(made.at));
                let item = |(index, made): (usize, &Made)| {
                    let said = &made.arguments;
                    json!({"number": index, "title": said["title"], "body": said["body"], "created_at": made.at.to_string()})
                };
                let issues: Vec<Value> = all.iter().enumerate().take(100).map(item).collect();
                json!({"issues": issues, "totalCount": all.len()})
            }
            "get_board_labels" => {
                let mut all = of("create_label");
                all.retain(|made| same(made, &["boardId"]));
                let label = |(index, made): (usize, &Made)| {
                    let id = format!("{:08x}{index:016x}", made.at.as_millis() / 1000);
                    json!({"id": id, "name": made.arguments["name"], "color": made.arguments["color"]})
                };
                Value::Array(all.iter().enumerate().map(label).collect())
            }
            "list_roles" => {
                let mut all = of("create_role");
                all.retain(|made| same(made, &["guildId"]));
                let role = |made: &Made| {
                    let id = (made.at.as_millis() - 1_420_070_400_000) << 22;
                    let name = made.arguments["name"].as_str().unwrap_or_default();
                    format!("- **{name}** (ID: {id})\n  • Color: None (RGB: 0)\n  • Position: 1")
                };
                let roles: Vec<String> = all.iter().map(role).collect();
                Value::String(format!("Retrieved {} roles:\n{}", roles.len(), roles.join("\n")))
            }
            "list_issues" | "list_pull_requests" | "issue_read" => {
                let (of_tool, place): (_, &[&str]) = match tool {
                    "list_issues" => ("create_issue", &["owner", "repo"]),
                    "list_pull_requests" => ("create_pull_request", &["owner", "repo"]),
                    _ => ("add_issue_comment", &["owner", "repo", "issue_number"]),
                };
                let since = arguments["since"].as_str().and_then(Timestamp::parse);
                let mut all = of(of_tool);
                all.retain(|made| same(made, place) && since.is_none_or(|since| made.at >= since));
                if of_tool != "add_issue_comment" {
                    all.reverse();
                }
                let item = |(index, made): (usize, &Made)| {
                    let url = format!("https://github.test/{index}");
                    json!({"number": index, "title": made.arguments["title"], "body": made.arguments["body"], "html_url": url})
                };
                Value::Array(all.iter().enumerate().take(30).map(item).collect())
            }
            "create_refund" => {
                let earlier = of(tool).into_iter().find(|made| same(made, &["idempotency_key"]));
                match earlier.filter(|_| arguments["idempotency_key"].is_string()) {
                    Some(earlier) if earlier.arguments != *arguments => {
                        let error = "Keys for idempotent requests can only be used with the same parameters";
                        return Ok(Err(error.to_owned()));
                    }
                    Some(_) => {}
                    None => self.make(tool, arguments)?,
                }
                json!({"id": "re_1", "object": "refund"})
            }
            "create-event" => {
                if of(tool).iter().any(|made| same(made, &["calendarId", "eventId"])) {
                    return Ok(Err("The requested identifier already exists.".to_owned()));
                }
                self.make(tool, arguments)?;
                json!({"event": {"id": arguments["eventId"], "summary": arguments["summary"]}})
            }
            "get-event" => {
                let events = of("create-event");
                let Some(event) = events.iter().find(|made| same(made, &["calendarId", "eventId"])) else {
                    return Ok(Err(format!("Event with ID {} not found in calendar.", arguments["eventId"])));
                };
                let event = &event.arguments;
                let link = format!("https://calendar.test/{}", event["summary"].as_str().unwrap_or_default());
                json!({"event": {"id": event["eventId"], "summary": event["summary"], "htmlLink": link}})
            }
            "conversations_history" => {
                let oldest = arguments["oldest"].as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
                let mut all = of("chat_postMessage");
                all.retain(|made| same(made, &["channel"]) && made.at.as_millis() / 1000 >= oldest);
                let message = |(index, made): (usize, &Made)| {
                    let mut message = json!({"ts": format!("{index}.0"), "text": made.arguments["text"]});
                    if arguments["include_all_metadata"] == true {
                        message["metadata"] = made.arguments["metadata"].clone();
                    }
                    message
                };
                let messages: Vec<Value> = all.iter().enumerate().map(message).collect();
                json!({"ok": true, "messages": messages, "has_more": false})
            }
            "slack_get_channel_history" => {
                let mut all = of("slack_post_message");
                all.retain(|made| same(made, &["channel_id"]));
                let message =
                    |(index, made): (usize, &Made)| json!({"ts": format!("{index}.0"), "text": made.arguments["text"]});
                let messages: Vec<Value> = all.iter().enumerate().map(message).collect();
                json!({"ok": true, "messages": messages, "has_more": false})
            }
            "head_object" => {
                let objects = of("put_object");
                let Some(object) = objects.iter().rfind(|made| same(made, &["Bucket", "Key"])) else {
                    return Ok(Err("NotFound: 404".to_owned()));
                };
                json!({"ETag": "\"etag-1\"", "Metadata": object.arguments["Metadata"]})
            }
            "list_comments" => {
                let mut all = of("create_comment");
                all.retain(|made| same(made, &["issueId"]));
                let comment = |(index, made): (usize, &Made)| json!({"id": format!("comment-{index}"), "body": made.arguments["body"]});
                json!({"comments": all.iter().enumerate().map(comment).collect::<Vec<Value>>()})
            }
            "API-retrieve-a-comment" => {
                let mut all = of("API-create-a-comment");
                all.retain(|made| made.arguments["parent"]["page_id"] == arguments["block_id"]);
                let piece = |piece: &Value| json!({"type": "text", "plain_text": piece["text"]["content"], "text": piece["text"]});
                let comment = |(index, made): (usize, &Made)| {
                    let pieces: Vec<Value> =
                        made.arguments["rich_text"].as_array().into_iter().flatten().map(piece).collect();
                    json!({"object": "comment", "id": format!("comment-{index}"), "rich_text": pieces})
                };
                let results: Vec<Value> = all.iter().enumerate().map(comment).collect();
                json!({"object": "list", "results": results, "has_more": false})
            }
            "read_query" => {
                // As much SQL as a probe needs.
                let words: Vec<&str> = arguments["query"].as_str().unwrap_or_default().split_whitespace().collect();
                let &["SELECT", "id,", column_shown, "FROM", table, "WHERE", column, "=", value] = words.as_slice()
                else {
                    return Ok(Err("near \"…\": syntax error".to_owned()));
                };
                let value = value.trim_matches('\'');
                let is_row =
                    |made: &Made| made.arguments["table"] == table && made.arguments["values"][column] == value;
                let rows = of("insert_row").into_iter().enumerate().filter(|(_, made)| is_row(made));
                Value::Array(rows.map(|(index, _)| json!({"id": index + 1, column_shown: value})).collect())
            }
            other if self.provider.tools().iter().any(|(name, _)| *name == other) => {
                self.make(tool, arguments)?;
                json!({"ok": true})
            }
            other => return Ok(Err(format!("there is no tool {other}"))),
        }))
    }
}
