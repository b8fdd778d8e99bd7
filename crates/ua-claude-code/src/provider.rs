//! `claude` as a model provider: one reply for one request, whoever owns the loop.

use std::io;

use async_trait::async_trait;
use tokio::sync::Mutex;
use ua_core::{Block, ModelTurn, ShowPath as _, Usage};
use ua_dispatch::Fence;
use ua_llm::{Conversation, LlmError, LlmProvider, ModelRequest, StreamObserver};

use crate::config::{ClaudeCodeConfig, NAME};
use crate::fork;
use crate::process::{Live, Start};
use crate::prompt;
use crate::session;
use crate::stream::{AgentEvent, Reply};

/// The Claude Code command line as a provider. See the [crate] for how.
pub struct ClaudeCode {
    config: ClaudeCodeConfig,
    /// The process, while nobody waits for its reply. Whoever does holds it, and ends it by going away.
    live: Mutex<Option<Live>>,
    /// The generation that was started last: gone before another one is started.
    last: Mutex<Option<String>>,
}

impl ClaudeCode {
    /// Makes the provider. Nothing is started yet.
    pub fn new(config: ClaudeCodeConfig) -> Self {
        Self { config, live: Mutex::new(None), last: Mutex::new(None) }
    }

    /// Ends the process that was started last, and proves it.
    async fn retire(&self, live: Option<Live>) {
        drop(live);
        if let Some(generation) = self.last.lock().await.take()
            && let Fence::Alive { detail } = self.config.locks.fence(NAME, &generation).await
        {
            tracing::warn!(detail, "an earlier claude is still alive");
        }
    }

    /// Starts a process and tells it what it has to know.
    async fn begin(&self, request: &ModelRequest, start: &Start) -> Result<Live, LlmError> {
        let config = &self.config;
        // The session that was kept belongs to what is over: it must not be taken for the new one if we die before that has a name.
        let forgotten = if matches!(start, Start::Resume(_)) { Ok(()) } else { session::forget(&config.folder) };
        let started = forgotten.and_then(|()| Live::start(config, request, start));
        let mut live = started.map_err(|error| LlmError::Setup {
            why: format!("`{}` cannot be started: {error}", config.program.shown()),
        })?;
        *self.last.lock().await = Some(live.generation.clone());
        let told = match start {
            Start::Resume(_) | Start::Fork(_) => prompt::for_session(&request.messages),
            Start::Fresh => prompt::for_fresh_session(&request.messages),
        };
        match live.tell(&told).await {
            Ok(()) => Ok(live),
            Err(error) => {
                live.ends(&config.clock).await;
                Err(not_reached(&live, &error))
            }
        }
    }

    /// The sessions that a process may begin in, the best one first; the last one is always to be had.
    fn starts(&self, request: &ModelRequest) -> Vec<Start> {
        let mut starts = Vec::new();
        // Before the model has spoken, the context is empty: at the beginning of a run, and of an iteration.
        if prompt::has_reply(&request.messages) {
            let forked = self.config.forked_from.as_ref();
            starts.extend(forked.and_then(|from| fork::prepare(&self.config, from, request)).map(Start::Fork));
            let kept = [session::load(&self.config.folder), self.config.session.clone()].into_iter().flatten();
            starts.extend(kept.filter(|name| session::is_name(name)).take(1).map(Start::Resume));
        }
        starts.push(Start::Fresh);
        starts
    }

    /// Begins a process in one of its sessions, and hears its first reply.
    async fn begin_and_hear(
        &self,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<(Live, Result<ModelTurn, LlmError>), LlmError> {
        let mut starts = self.starts(request).into_iter();
        let mut start = starts.next().unwrap_or(Start::Fresh);
        loop {
            let mut live = self.begin(request, &start).await?;
            let heard = self.hear_out(&mut live, request, observer).await;
            match (&heard, starts.next()) {
                (Err(error), Some(next)) if is_forgotten(error) => {
                    tracing::warn!(?start, "claude has forgotten the session");
                    self.retire(Some(live)).await;
                    start = next;
                }
                _ => return Ok((live, heard)),
            }
        }
    }

    /// Goes on with a process that is there, if it can take what is new.
    async fn go_on(&self, live: &mut Live, request: &ModelRequest) -> bool {
        if !live.is_running() {
            return false;
        }
        let tail = prompt::tail(&request.messages);
        let text = prompt::texts(tail);
        if live.is_idle && text.is_none() {
            return false;
        }
        for block in tail.iter().flat_map(|message| &message.blocks) {
            if let Block::ToolResult { tool_use_id, content, is_error } = block {
                live.desk.answer(tool_use_id, content.as_str(), *is_error);
            }
        }
        match text {
            Some(text) => live.tell(&text).await.is_ok(),
            None => true,
        }
    }

    /// The next reply that asks for tools, or the last words.
    async fn hear_out(
        &self,
        live: &mut Live,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let mut asked = false;
        let mut text_bytes = 0;
        // Replies that asked for nothing and did not end the prompt: claude went on by itself.
        let mut passed: Option<Reply> = None;
        loop {
            let idle = self.config.idle_timeout;
            let event = tokio::select! {
                event = live.next() => event,
                () = self.config.clock.clock.sleep(idle) => return Err(LlmError::Timeout { idle }),
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) if !asked => {
                    live.ends(&self.config.clock).await;
                    return Err(not_reached(live, &io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(None) => return Err(LlmError::Cut { text_bytes, source: None }),
                Err(error) => return Err(LlmError::Cut { text_bytes, source: Some(error.into()) }),
            };
            let progress = live.assembler.hear(&event);
            if let Some(growing) = live.assembler.heard() {
                observer.heard(passed.as_ref().map_or(growing, |passed| passed.usage.plus(growing)));
            }
            match progress {
                AgentEvent::Session(session_id) => {
                    if let Err(error) = session::save(&self.config.folder, &session_id) {
                        tracing::warn!(%error, "the session's id could not be kept");
                    }
                    observer.session(&session_id);
                    live.session = Some(session_id);
                }
                AgentEvent::NoServer(server) => {
                    return Err(LlmError::Setup {
                        why: format!("claude could not reach the run's tools of `{server}`"),
                    });
                }
                AgentEvent::Asking => asked = true,
                AgentEvent::Text(piece) => {
                    text_bytes += piece.len();
                    observer.text(&piece);
                }
                AgentEvent::Reply(reply) if reply.tool_uses().next().is_some() => {
                    live.desk.expect(reply.tool_uses());
                    return Ok(turn(with_usage_of(reply, passed), live));
                }
                AgentEvent::Reply(reply) => passed = Some(with_usage_of(reply, passed)),
                AgentEvent::Done(Ok(said)) => {
                    live.is_idle = true;
                    let reply = passed.unwrap_or_else(|| Reply {
                        blocks: vec![Block::text(said)],
                        stop_reason: ua_core::StopReason::EndTurn,
                        usage: Usage::default(),
                        model: request.model.clone(),
                    });
                    return Ok(turn(reply, live));
                }
                AgentEvent::Refused(error) | AgentEvent::Done(Err(error)) => return Err(for_model(error, request)),
                AgentEvent::Nothing => {}
            }
        }
    }
}

#[async_trait]
impl LlmProvider for ClaudeCode {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut slot = self.live.lock().await;
        observer.sent();
        // Held by this future alone, so that whoever drops the request ends the process. One that has another iteration's conversation is
        // not gone on with.
        let (going_on, over) = slot.take().map_or((None, None), |live| {
            if prompt::has_reply(&request.messages) { (Some(live), None) } else { (None, Some(live)) }
        });
        let (live, heard) = if let Some(mut live) = going_on {
            if !self.go_on(&mut live, request).await {
                // Whoever made this request took the conversation for open. What a fresh process has to be told first is not in it, and
                // without that it might ask again for what was done: the request is made anew, for a broken conversation.
                let error = not_reached(&live, &io::ErrorKind::BrokenPipe.into());
                self.retire(Some(live)).await;
                return Err(error);
            }
            let heard = self.hear_out(&mut live, request, observer).await;
            (live, heard)
        } else {
            self.retire(over).await;
            self.begin_and_hear(request, observer).await?
        };
        match heard {
            Ok(turn) => {
                *slot = Some(live);
                Ok(turn)
            }
            Err(error) => {
                self.retire(Some(live)).await;
                Err(error)
            }
        }
    }

    fn conversation(&self) -> Conversation {
        // Nobody asks while a request is under way.
        let Ok(mut slot) = self.live.try_lock() else { return Conversation::Open };
        if slot.as_mut().is_some_and(Live::is_running) {
            return Conversation::Open;
        }
        // Said once, it stays so: the next request begins another process.
        drop(slot.take());
        Conversation::Broken
    }

    fn priced_as(&self) -> &'static str {
        ua_llm::ANTHROPIC
    }

    async fn close(&self) {
        let live = self.live.lock().await.take();
        self.retire(live).await;
    }
}

/// Whether `claude` says that it knows no such session.
fn is_forgotten(error: &LlmError) -> bool {
    const WORDS: &str = "No conversation found";
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    error.to_string().contains(WORDS) || cause.contains(WORDS)
}

fn with_usage_of(reply: Reply, earlier: Option<Reply>) -> Reply {
    let usage = earlier.map_or(reply.usage, |earlier| earlier.usage.plus(reply.usage));
    Reply { usage, ..reply }
}

fn turn(reply: Reply, live: &Live) -> ModelTurn {
    let Reply { blocks, stop_reason, usage, model } = reply;
    ModelTurn { blocks, stop_reason, usage: Some(usage), model, response_id: live.session.clone() }
}

/// It was not told, or ended before it asked its model anything: nothing was paid for, and another start may do.
fn not_reached(live: &Live, error: &io::Error) -> LlmError {
    let words = live.last_words();
    let why = if words.is_empty() { error.to_string() } else { format!("{error}; it wrote: {words}") };
    LlmError::Unreachable { host: "`claude`, which ended before it asked its model anything".to_owned(), why }
}

fn for_model(error: LlmError, request: &ModelRequest) -> LlmError {
    if let LlmError::NotFound { message, .. } = error {
        return LlmError::NotFound { model: request.model.clone(), message };
    }
    error
}

#[cfg(test)]
#[path = "provider_tests.rs"]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests;
