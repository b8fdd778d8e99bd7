//! The port towards whoever follows runs as spans. Libraries use `tracing`; only a front door knows who listens.

use std::collections::BTreeMap;

use ua_core::{CurrentSpan, Trace};
use ua_store::RunRecord;

/// Ties spans of `tracing` to those of other processes. What is not overridden is enough for a front door that exports none.
pub trait Spans: Send + Sync {
    /// The span of this process's work on `run`: the first one of `trace`, which the database keeps.
    fn begin_run(&self, run: &RunRecord, _trace: &Trace) -> tracing::Span {
        ua_runner::run_span(run)
    }
    /// Links the current span to what earlier processes did for the run; `own` is this one's trace.
    fn link_earlier(&self, _run: &RunRecord, _own: &Trace) {}
    /// What requests to tool servers say about the span they come from.
    fn current(&self) -> CurrentSpan {
        CurrentSpan::default()
    }
    /// Variables with which our own tool server sends its spans to the same place.
    fn for_own_tool_server(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// Nobody follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoSpans;

impl Spans for NoSpans {}
