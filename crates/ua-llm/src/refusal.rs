//! What was refused before anything of a reply came: such a request was free, and may be made again in another form.
//!
//! A stream may tell what it has counted, or a part of its text, and then end in an error that reads like a refusal. That request may be billed, so it
//! is told to whoever asked, who charges it; nothing asks again behind their back. The one way to a [`Refusal`] is through a [`Heeding`].

use std::sync::atomic::{AtomicBool, Ordering};

use ua_core::{ModelTurn, Usage};

use crate::error::LlmError;
use crate::provider::{Ending, StreamObserver};

/// An error by which a provider refused a request of which it had answered nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal<'e>(&'e LlmError);

impl<'e> Refusal<'e> {
    /// How it reads.
    pub(crate) fn error(self) -> &'e LlmError {
        self.0
    }
}

/// Sees whether anything of a reply came.
pub(crate) struct Heeding<'o> {
    behind: &'o dyn StreamObserver,
    has_heard: AtomicBool,
}

impl<'o> Heeding<'o> {
    pub(crate) fn new(behind: &'o dyn StreamObserver) -> Self {
        Self { behind, has_heard: AtomicBool::new(false) }
    }

    /// What was refused, and free, of the answer to what was asked through this.
    pub(crate) fn refusal<'e>(&self, answer: &'e Result<ModelTurn, LlmError>) -> Option<Refusal<'e>> {
        let error = answer.as_ref().err()?;
        (error.was_refused() && !self.has_heard.load(Ordering::Relaxed)).then_some(Refusal(error))
    }
}

impl StreamObserver for Heeding<'_> {
    fn sent(&self) {
        self.behind.sent();
    }

    fn session(&self, response_id: &str) {
        self.behind.session(response_id);
    }

    fn text(&self, delta: &str) {
        self.has_heard.store(true, Ordering::Relaxed);
        self.behind.text(delta);
    }

    fn heard(&self, so_far: Usage) {
        self.has_heard.store(true, Ordering::Relaxed);
        self.behind.heard(so_far);
    }

    fn ended(&self, ending: &Ending) {
        self.behind.ended(ending);
    }

    fn body(&self, body: &str) {
        self.behind.body(body);
    }

    fn event(&self, data: &str) {
        self.behind.event(data);
    }
}
