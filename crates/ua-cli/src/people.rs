//! The person at this terminal, as runs see them: lines and a live display while a run works, prompts, the summary at the end.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use ua_core::Env;
use ua_dispatch::StopSignal;
use ua_host::People;
use ua_host::people::{Answer, Begun, End, ObservedEvent, Presence};
use ua_host::progress::clock;
use ua_host::trust::ServerReview;
use ua_runner::{DrainTimes, Interrupts};
use ua_store::QuestionRecord;

use crate::commands::{ask, summary, trust};
use crate::error::{HostError, INTERRUPTED};
use crate::live::Live;
use crate::output::{line, tell};

/// Whoever sits at this terminal, or reads what it shows.
#[derive(Debug, Default)]
pub(crate) struct AtTerminal {
    /// Print nothing but errors and the final summary.
    pub(crate) quiet: bool,
    /// Never ask here.
    pub(crate) no_input: bool,
    /// How the run was forked, for a machine that reads the summary.
    pub(crate) fork: Option<Value>,
    live: Mutex<Option<Live>>,
}

/// Whether somebody can be asked here: standard input and standard error are a terminal.
pub(crate) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

impl AtTerminal {
    /// Whoever started a command that works on a run. A machine that reads JSON is told and asked nothing.
    pub(crate) fn new(quiet: bool, no_input: bool) -> Self {
        let is_json = crate::terminal::is_json();
        Self { quiet: quiet || is_json, no_input: no_input || is_json, ..Self::default() }
    }
}

#[async_trait]
impl People for AtTerminal {
    fn presence(&self) -> Presence {
        if !self.quiet && !self.no_input && is_attended() {
            Presence::Here
        } else if self.no_input {
            Presence::Nobody
        } else {
            Presence::Elsewhere
        }
    }

    fn stop_signal(&self, env: &Env) -> Result<StopSignal, HostError> {
        let stop = StopSignal::default();
        let interrupts =
            Interrupts::listen().map_err(|e| HostError::failed(format!("cannot listen for signals: {e}")))?;
        tokio::spawn(interrupts.watch(stop.clone(), DrainTimes::default(), env.clone(), end_at_once));
        Ok(stop)
    }

    fn begun(&self, begun: &Begun<'_>) {
        tell(format!("run {} · workspace {}", begun.run.run_id, begun.run.workspace_dir));
        if self.quiet {
            return;
        }
        tell(format!("to resume: {}", begun.resume_command));
        if crate::terminal::can_draw() {
            let live = Live::start();
            live.limits(&begun.budgets, begun.held);
            *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
        }
    }

    fn watch(&self, seen: &ObservedEvent<'_>) {
        if let Some(text) = seen.line.filter(|_| !self.quiet) {
            let who = seen.sub_agent.map_or_else(String::new, |label| format!("{} ▸ ", line(label, 40)));
            tell(format!("[{}] {who}{text}", clock(seen.elapsed)));
        }
        if seen.sub_agent.is_none()
            && let Some(live) = &*self.live.lock().unwrap_or_else(PoisonError::into_inner)
        {
            live.take(seen.signal);
        }
    }

    fn paused(&self) {
        if let Some(live) = self.live.lock().unwrap_or_else(PoisonError::into_inner).take() {
            live.finish();
        }
    }

    fn tell(&self, sentence: &str) {
        tell(sentence);
    }

    fn remark(&self, sentence: &str) {
        if !self.quiet {
            tell(sentence);
        }
    }

    fn report(&self, error: &HostError) {
        crate::error::print(error);
    }

    async fn ask(&self, question: &QuestionRecord) -> Result<Option<Answer>, HostError> {
        ask::put(question).await
    }

    async fn ask_to_trust(&self, file: &Path, servers: &[ServerReview]) -> Result<bool, HostError> {
        tell(trust::shown(file, servers).trim_end());
        trust::ask().await
    }

    fn show_end(&self, end: &End<'_>) -> Result<(), HostError> {
        summary::print(&end.resume_command, end.records, self.fork.clone())
    }
}

/// A second signal: whatever is in flight stays in flight, which a resume knows how to read.
#[expect(clippy::disallowed_methods, reason = "a second signal asks to end without cleaning up")]
fn end_at_once() {
    std::process::exit(i32::from(INTERRUPTED));
}
