//! A fork that goes on from the session of the run it was forked from, as a session of its own.
//!
//! Durable runner, current state §9 (provider session continuity, fork). The session's file is copied into the fork's own home, once, and
//! `claude --resume SESSION --fork-session` begins another session from the copy: the original is only ever read. Until the fork has a
//! reply of its own, each start begins from the copy again; what a killed process had begun is left behind.
//!
//! Invariant: a session is gone on from only if it ends where the fork begins: the same replies, each result of the last one, the same
//! first words and the same system prompt (which a session keeps), and nothing behind. Whatever differs makes it a stranger, and a fresh
//! session is told the history from the record. Proved by: the tests below, the e2e tests `claude_code` and `real_claude_code`.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use ua_core::{Block, Message, Role};
use ua_files::{Folder, Kind};
use ua_llm::ModelRequest;

use crate::config::{ClaudeCodeConfig, ForkedFrom, HOME};
use crate::process::SYSTEM_PROMPT;
use crate::session;

/// Where `claude` keeps its sessions, below its home: a folder for each working directory.
const PROJECTS: &str = ".claude/projects";
/// The most of a session, or of a prompt, that is read: 256 MiB.
const MOST: u64 = 256 * 1024 * 1024;

/// The session that this run's first process forks, if it is there and ends where the run begins. Copies it on first sight.
pub(crate) fn prepare(config: &ClaudeCodeConfig, from: &ForkedFrom, request: &ModelRequest) -> Option<String> {
    let id = &from.session;
    if !session::is_name(id) {
        return None;
    }
    if let Some(own) = find(&Folder::open_itself(&config.folder).ok()?, id) {
        return ends_with(&own, &request.messages).then(|| id.clone());
    }
    let folders = from.folders.iter().filter_map(|folder| Folder::open_itself(folder).ok());
    let (folder, text) = folders.into_iter().find_map(|folder| Some((folder.clone(), find(&folder, id)?)))?;
    let is_told_the_same = folder.read(SYSTEM_PROMPT, MOST).is_ok_and(|prompt| prompt == request.system.as_bytes());
    if !is_told_the_same || !ends_with(&text, &request.messages) {
        tracing::info!(session = id, "the session does not end where the fork begins; a fresh one is told everything");
        return None;
    }
    match keep(config, id, &text) {
        Ok(()) => Some(id.clone()),
        Err(error) => {
            tracing::warn!(%error, "the session could not be copied; a fresh one is told everything");
            None
        }
    }
}

/// A session in the home of a run's folder, as text.
fn find(folder: &Folder, id: &str) -> Option<String> {
    let projects = folder.folder(HOME).ok()?.folder(PROJECTS).ok()?;
    let folders = projects.entries().ok()?.into_iter().filter(|(_, kind)| *kind == Kind::Folder);
    let name = format!("{id}.jsonl");
    folders
        .into_iter()
        .find_map(|(place, _)| String::from_utf8(projects.folder(place).ok()?.read(&name, MOST).ok()?).ok())
}

/// Keeps a copy where `claude` looks for the sessions of its working directory: all of it, or none.
fn keep(config: &ClaudeCodeConfig, id: &str, text: &str) -> io::Result<()> {
    let place = config.work().to_string_lossy().into_owned();
    let place: String = place.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let folder = Folder::open_itself(&config.folder)?.make_folder(HOME)?.make_folder(PROJECTS)?.make_folder(place)?;
    folder.replace(format!("{id}.jsonl"), text.as_bytes())
}

/// A reply: which calls it asked for, and what it said.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    tool_uses: Vec<String>,
    text: String,
}

/// A result: what a call was answered, and whether as an error.
type Results = BTreeMap<String, (String, bool)>;

/// Whether a session with these lines ends where `messages` (up to what comes behind their last reply) end.
fn ends_with(lines: &str, messages: &[Message]) -> bool {
    let Some(session) = Session::read(lines) else { return false };
    let Some(last) = messages.iter().rposition(|message| message.role == Role::Assistant) else { return false };
    let replies: Vec<Reply> = messages.iter().filter(|message| message.role == Role::Assistant).map(said).collect();
    // A session that began later than the run has fewer replies; a history that was cut has fewer, too.
    let shared = session.replies.len().min(replies.len());
    let is_same = shared > 0
        && session.replies.iter().rev().zip(replies.iter().rev()).take(shared).all(|(one, other)| one.is(other));
    let results = messages[last..].iter().flat_map(|message| &message.blocks).filter_map(|block| match block {
        Block::ToolResult { tool_use_id, content, is_error } => {
            Some((tool_use_id.clone(), (content.as_str().to_owned(), *is_error)))
        }
        Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    });
    let first = messages.first().map(Message::text).unwrap_or_default();
    is_same
        && results.collect::<Results>() == session.results
        && !session.is_told_more
        && session.told.iter().any(|told| told.contains(&first))
}

fn said(message: &Message) -> Reply {
    Reply { tool_uses: message.tool_uses().map(|tool_use| tool_use.id.clone()).collect(), text: message.text() }
}

impl Reply {
    /// The ids of calls are proof enough; without any it is the words.
    fn is(&self, other: &Self) -> bool {
        self.tool_uses == other.tool_uses && (!self.tool_uses.is_empty() || self.text.trim() == other.text.trim())
    }
}

/// What a session's file tells.
#[derive(Debug, Default)]
struct Session {
    /// What it was told, in words.
    told: Vec<String>,
    replies: Vec<Reply>,
    /// What the calls of the last reply were answered.
    results: Results,
    /// Whether it was told something behind its last reply.
    is_told_more: bool,
}

impl Session {
    /// Reads the lines of a file; `None` when one of them is not whole. A reply has a line for each of its blocks; lines of sub-agents
    /// and of other kinds are not the conversation's.
    fn read(lines: &str) -> Option<Self> {
        let mut session = Self::default();
        let mut last_id = None;
        for line in lines.lines() {
            let entry: Value = serde_json::from_str(line).ok()?;
            if entry["isSidechain"] == true {
                continue;
            }
            let message = &entry["message"];
            match entry["type"].as_str() {
                Some("assistant") => {
                    let id = message["id"].as_str().map(str::to_owned);
                    if id.is_none() || id != last_id {
                        session.replies.push(Reply::default());
                        session.results.clear();
                        session.is_told_more = false;
                    }
                    last_id = id;
                    let reply = session.replies.last_mut()?;
                    for block in message["content"].as_array().into_iter().flatten() {
                        match block["type"].as_str() {
                            Some("tool_use") => reply.tool_uses.push(block["id"].as_str()?.to_owned()),
                            Some("text") => reply.text.push_str(block["text"].as_str().unwrap_or_default()),
                            Some(_) | None => {}
                        }
                    }
                }
                Some("user") => session.take_user(&message["content"]),
                Some(_) | None => {}
            }
        }
        Some(session)
    }

    fn take_user(&mut self, content: &Value) {
        let mut tell = |text: &str| {
            if !text.trim().is_empty() {
                self.told.push(text.to_owned());
                self.is_told_more = !self.replies.is_empty();
            }
        };
        if let Some(text) = content.as_str() {
            tell(text);
        }
        for block in content.as_array().into_iter().flatten() {
            match (block["type"].as_str(), block["tool_use_id"].as_str()) {
                (Some("text"), _) => tell(block["text"].as_str().unwrap_or_default()),
                (Some("tool_result"), Some(id)) => {
                    self.results.insert(id.to_owned(), (text_of(&block["content"]), block["is_error"] == true));
                }
                _ => {}
            }
        }
    }
}

/// The words of a result.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Origin, ToolUse};

    use super::*;

    fn user(content: &Value) -> Value {
        json!({"type": "user", "isSidechain": false, "message": {"role": "user", "content": content}})
    }

    fn assistant(id: &str, block: &Value) -> Value {
        json!({"type": "assistant", "isSidechain": false, "message": {"id": id, "role": "assistant", "content": [block]}})
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn asks(id: &str) -> Value {
        json!({"type": "tool_use", "id": id, "name": "mcp__mail__send", "input": {}})
    }

    fn answer(id: &str, content: &Value) -> Value {
        user(&json!([{"type": "tool_result", "tool_use_id": id, "content": content}]))
    }

    /// A reply with two calls, whose first was answered while the second was still being said, and its last words.
    fn lines() -> Vec<Value> {
        vec![
            json!({"type": "queue-operation"}),
            user(&json!([text("Do it.")])),
            json!({"type": "attachment", "attachment": {"type": "date"}}),
            assistant("m1", &text("Now.")),
            assistant("m1", &asks("t1")),
            answer("t1", &json!([text("sent")])),
            assistant("m1", &asks("t2")),
            json!({"type": "assistant", "isSidechain": true, "message": {"id": "x", "content": [text("aside")]}}),
            answer("t2", &json!("sent, too")),
        ]
    }

    fn joined(lines: &[Value]) -> String {
        lines.iter().map(|line| line.to_string() + "\n").collect()
    }

    fn history() -> Vec<Message> {
        let tool_use =
            |id: &str| Block::ToolUse(ToolUse { id: id.into(), name: "mcp__mail__send".into(), input: json!({}) });
        let result =
            |id: &str, text: &str| Block::ToolResult { tool_use_id: id.into(), content: text.into(), is_error: false };
        vec![
            Message::user(Origin::Prompt, "Do it."),
            Message {
                role: Role::Assistant,
                origin: Origin::Model,
                blocks: vec![tool_use("t1"), tool_use("t2")].into(),
            },
            Message {
                role: Role::User,
                origin: Origin::Tools,
                blocks: vec![result("t1", "sent"), result("t2", "sent, too")].into(),
            },
            Message::user(Origin::Resume, "This run is a fork."),
        ]
    }

    #[test]
    fn a_session_that_ends_where_the_fork_begins_is_gone_on_from() {
        assert!(ends_with(&joined(&lines()), &history()));
        // So is one whose last words ask for nothing.
        let last = assistant("m2", &text("All is done."));
        let done =
            Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::text("All is done.")].into() };
        let longer = [history(), vec![done, Message::user(Origin::Resume, "This run is a fork.")]].concat();
        assert!(ends_with(&joined(&[lines(), vec![last.clone()]].concat()), &longer));
        // And one that a fresh process began in the middle, which was told what had been before.
        let told = user(&json!([text("This is the record … Do it. …")]));
        assert!(ends_with(&joined(&[told, last]), &longer));
    }

    #[test]
    fn a_session_that_is_ahead_behind_or_of_other_words_is_a_stranger() {
        let with = |more: Value| joined(&[lines(), vec![more]].concat());
        let without_the_last = joined(&lines()[..8]);
        let interrupted = joined(&[lines()[..8].to_vec(), vec![answer("t2", &json!("interrupted"))]].concat());
        let other_job = joined(&lines()).replace("Do it.", "Leave it.");
        let cut = joined(&lines()).trim_end().trim_end_matches('}').to_owned();
        let all = [
            with(assistant("m2", &text("All is done."))),
            with(assistant("m2", &asks("t3"))),
            with(user(&json!([text("And one thing more.")]))),
            with(user(&json!("And one thing more."))),
            without_the_last,
            interrupted,
            other_job,
            cut,
            joined(&lines()[..3]),
            String::new(),
        ];
        for text in all {
            assert!(!ends_with(&text, &history()), "{text}");
        }
        assert!(!ends_with(&joined(&lines()), &history()[..1]));
    }
}
