//! Services of others, as their documentation says they behave, behind a tool server of our own.
//!
//! Speaks MCP over standard input and output, line by line, with nothing but JSON. What a service holds is a file that outlives the
//! process: one line per thing that was made, which is also how a harness counts from outside. Two files beside it make a service misbehave:
//! one says how it loses what it makes next ([`ProviderFault`]), one that it does not show yet what it has made.

mod listings;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ua_core::Timestamp;

use self::listings::{LISTINGS, Said};
use crate::mcp_lines::serve_lines;

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Makes an issue, a pull request or a comment each time it is told to, and lists them, 30 to a page; in order, with the time of each, where
    /// it is asked for that.
    GitHub,
    /// Makes what it is told to, as `@stripe/mcp` does: its tools take no key, and it lists products, prices and invoices, the newest first.
    Stripe,
    /// The same service behind a server that hands a key on: it answers a repeat under one key with the first result.
    KeyedStripe,
    /// Takes an event's id from the client and refuses a second one.
    GoogleCalendar,
    /// Keeps a channel's messages, and what one of its tools is given as metadata, which it shows to those who ask for it.
    Slack,
    /// Keeps one object per place, with its metadata: through tools that take the arguments of the API, and those of mcp-s3.
    S3,
    /// Signs addresses to which others put objects, as s3-mcp does.
    S3Links,
    /// Sends a mail, or makes a draft, each time it is told to, and finds them by addressee and time, in prose, without their texts.
    Gmail,
    /// Makes a comment or an issue each time it is told to, and lists those of an issue, or of a team.
    Linear,
    /// Makes comments, pages, data sources and blocks each time it is told to, and gives them back with more than was sent, and to the minute.
    Notion,
    /// Puts a row into a table, and lists those that have certain values; in `orders` no two have one `ua_key`.
    Sql,
    /// Makes a label each time it is told to, and lists those of a board, by ids that begin with the second in which each was made.
    Trello,
    /// Makes a role each time it is told to, and lists those of a server, in prose, by ids that begin with the millisecond.
    Discord,
}

impl Provider {
    /// Every one.
    pub const ALL: [Self; 13] = [
        Self::GitHub,
        Self::Stripe,
        Self::KeyedStripe,
        Self::GoogleCalendar,
        Self::Slack,
        Self::S3,
        Self::S3Links,
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
            Self::KeyedStripe => "keyed-stripe",
            Self::GoogleCalendar => "google-calendar",
            Self::Slack => "slack",
            Self::S3 => "s3",
            Self::S3Links => "s3-links",
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
                ("create_refund", &["payment_intent", "amount", "reason"]),
                ("create_customer", &["name", "email"]),
                ("create_product", &["name", "description"]),
                ("list_products", &["limit"]),
                ("create_price", &["product", "unit_amount", "currency"]),
                ("list_prices", &["product", "limit"]),
                ("create_invoice", &["customer", "days_until_due"]),
                ("list_invoices", &["customer", "limit"]),
            ],
            Self::KeyedStripe => vec![("create_refund", &["charge", "amount", "idempotency_key"])],
            Self::GoogleCalendar => vec![
                ("create-event", &["calendarId", "eventId", "summary", "start", "end"]),
                ("get-event", &["calendarId", "eventId"]),
            ],
            Self::Slack => vec![
                ("slack_post_message", &["channel_id", "text"]),
                ("slack_get_channel_history", &["channel_id", "limit"]),
                ("slack_reply_to_thread", &["channel_id", "thread_ts", "text"]),
                ("slack_get_thread_replies", &["channel_id", "thread_ts"]),
                ("chat_postMessage", &["channel", "text", "metadata"]),
                ("conversations_history", &["channel", "oldest", "include_all_metadata", "limit"]),
            ],
            Self::S3 => vec![
                ("put_object", &["Bucket", "Key", "Body", "Metadata"]),
                ("head_object", &["Bucket", "Key"]),
                ("s3_put_object", &["bucket", "key", "content", "content_type", "is_base64", "metadata", "connection"]),
                ("s3_get_object_metadata", &["bucket", "key", "connection"]),
            ],
            Self::S3Links => vec![(
                "s3_put_object",
                &["bucket_name", "key", "expires_in", "content_type", "metadata", "acl", "response_format"],
            )],
            Self::Gmail => vec![
                ("GMAIL_SEND_EMAIL", &["recipient_email", "subject", "body"]),
                ("send_email", MAIL),
                ("draft_email", MAIL),
                ("search_emails", &["query", "maxResults"]),
            ],
            Self::Linear => vec![
                ("create_comment", &["issueId", "body"]),
                ("list_comments", &["issueId"]),
                ("save_issue", &["id", "title", "description", "team", "assignee", "priority", "state"]),
                ("list_issues", &["team", "query", "state", "assignee", "orderBy", "limit", "cursor"]),
            ],
            Self::Notion => vec![
                ("API-create-a-comment", &["parent", "rich_text"]),
                ("API-retrieve-a-comment", &["block_id", "page_size"]),
                ("API-post-page", &["parent", "properties", "children", "icon", "cover"]),
                ("API-create-a-data-source", &["parent", "properties", "title"]),
                ("API-post-search", &["query", "sort", "filter", "start_cursor", "page_size"]),
                ("API-patch-block-children", &["block_id", "children", "after"]),
                ("API-get-block-children", &["block_id", "start_cursor", "page_size"]),
            ],
            Self::Sql => vec![
                ("query", &["sql", "values"]),
                ("create_record", &["table", "data"]),
                ("read_records", &["table", "conditions", "limit", "offset"]),
            ],
            Self::Trello => vec![("create_label", &["boardId", "name", "color"]), ("get_board_labels", &["boardId"])],
            Self::Discord => vec![("create_role", &["guildId", "name"]), ("list_roles", &["guildId"])],
        }
    }
}

/// What a mail is made from.
const MAIL: &[&str] =
    &["to", "subject", "body", "htmlBody", "mimeType", "cc", "bcc", "threadId", "inReplyTo", "attachments"];

/// How a service loses the next thing that it is told to make, as the file `.fault` beside its log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFault {
    /// The server ends before it makes anything.
    DiesBefore,
    /// It ends when it has made it, and answers nothing.
    DiesAfter,
    /// It makes it, and never answers.
    HangsAfter,
}

impl ProviderFault {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::DiesBefore, Self::DiesAfter, Self::HangsAfter];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::DiesBefore => "dies_before",
            Self::DiesAfter => "dies_after",
            Self::HangsAfter => "hangs_after",
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

    /// The file of this name beside the log.
    fn beside(&self, name: &str) -> PathBuf {
        let mut path = self.log.clone().into_os_string();
        path.push(name);
        path.into()
    }

    /// The fault that comes next, once.
    fn fault(&self) -> io::Result<Option<ProviderFault>> {
        let path = self.beside(".fault");
        if !path.exists() {
            return Ok(None);
        }
        let named = fs::read_to_string(&path)?;
        fs::remove_file(&path)?;
        Ok(ProviderFault::ALL.into_iter().find(|fault| fault.name() == named.trim()))
    }

    /// Whether nothing that was made is shown yet, while there is a file `.hide` beside the log: some services show it later.
    fn is_hidden(&self) -> bool {
        self.beside(".hide").exists()
    }

    fn make(&self, tool: &str, arguments: &Value) -> io::Result<()> {
        let fault = self.fault()?;
        // An error ends the process, without an answer.
        let end = || Err(io::Error::other("it was told to end"));
        if fault == Some(ProviderFault::DiesBefore) {
            return end();
        }
        self.put(tool, arguments)?;
        match fault {
            Some(ProviderFault::DiesAfter) => end(),
            Some(ProviderFault::HangsAfter) => loop {
                std::thread::park();
            },
            Some(ProviderFault::DiesBefore) | None => Ok(()),
        }
    }

    fn put(&self, tool: &str, arguments: &Value) -> io::Result<()> {
        let at = ua_core::system::env().now().as_millis();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.log)?;
        file.write_all(format!("{}\n", json!({"tool": tool, "arguments": arguments, "at": at})).as_bytes())?;
        file.sync_data()
    }

    /// The answer of a call, or the error that it reports.
    fn call(&self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        let is_it = |listing: &&listings::Listing| listing.provider == self.provider && listing.tool == tool;
        let mut listings = LISTINGS.iter().filter(is_it);
        if let Some(listing) = listings.find(|listing| (listing.is_about)(arguments)) {
            return Ok(Ok(self.listed(listing, arguments)?.into_text()));
        }
        Ok(self.done(tool, arguments)?.map(|answer| answer.to_string()))
    }

    fn listed(&self, listing: &listings::Listing, arguments: &Value) -> io::Result<Said> {
        let mut all = self.made()?;
        all.retain(|made| made.tool == listing.makes && (listing.is_in)(made, arguments) && !self.is_hidden());
        if listing.is_newest_first {
            all.reverse();
            all.sort_by_key(|made| std::cmp::Reverse(made.at));
        }
        let entries = all.iter().enumerate().take(listing.most);
        Ok((listing.answer)(entries.map(|(index, made)| (listing.entry)(index, made, arguments)).collect()))
    }

    /// What is no list: things that are made, and things that are looked up one by one.
    fn done(&self, tool: &str, arguments: &Value) -> io::Result<Result<Value, String>> {
        let made = self.made()?;
        let of = |tool: &str| made.iter().filter(|made| made.tool == tool).cloned().collect::<Vec<_>>();
        let same = |made: &Made, names: &[&str]| names.iter().all(|name| made.arguments[name] == arguments[name]);
        Ok(Ok(match tool {
            "create_refund" if self.provider == Provider::KeyedStripe => {
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
            "head_object" => {
                let objects = of("put_object");
                let Some(object) = objects.iter().rfind(|made| same(made, &["Bucket", "Key"])) else {
                    return Ok(Err("NotFound: 404".to_owned()));
                };
                json!({"ETag": "\"etag-1\"", "Metadata": object.arguments["Metadata"]})
            }
            "s3_get_object_metadata" => {
                let objects = of("s3_put_object");
                let Some(object) = objects.iter().rfind(|made| same(made, &["bucket", "key"])) else {
                    let error = "Error: failed to get object metadata: operation error S3: HeadObject, https response error \
                                 StatusCode: 404, RequestID: 1, HostID: 2, NotFound: ";
                    return Ok(Err(error.to_owned()));
                };
                let said = &object.arguments;
                json!({"bucket": said["bucket"], "key": said["key"], "size": 4, "content_length": 4, "etag": "\"etag-1\"",
                    "metadata": said["metadata"]})
            }
            "create_record" => {
                let key = &arguments["data"]["ua_key"];
                let is_there = |made: &Made| same(made, &["table"]) && made.arguments["data"]["ua_key"] == *key;
                if !key.is_null() && of(tool).iter().any(is_there) {
                    return Ok(Err("SQLITE_CONSTRAINT: UNIQUE constraint failed: orders.ua_key".to_owned()));
                }
                self.make(tool, arguments)?;
                json!({"success": true, "message": "Record created successfully", "table": arguments["table"]})
            }
            other if self.provider.tools().iter().any(|(name, _)| *name == other) => {
                self.make(tool, arguments)?;
                json!({"ok": true})
            }
            other => return Ok(Err(format!("there is no tool {other}"))),
        }))
    }
}
