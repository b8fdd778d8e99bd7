//! Ids of spans: the process's trace id is the one that the database has, and spans of a run carry the run's ids.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{Span as _, SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, Span, SpanData, SpanProcessor};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use ua_core::{BAGGAGE_NAMES, Trace};
use ua_store::RunRecord;

thread_local! {
    /// What the next span of this thread is called; both are taken when it is built.
    static NEXT_TRACE: Cell<Option<TraceId>> = const { Cell::new(None) };
    static NEXT_SPAN: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Draws ids by chance, but for the first span of a run.
#[derive(Debug, Default)]
pub(super) struct Ids {
    chance: RandomIdGenerator,
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        NEXT_TRACE.take().unwrap_or_else(|| self.chance.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        NEXT_SPAN.take().unwrap_or_else(|| self.chance.new_span_id())
    }
}

/// The span of this process's work on `run`: the first one of `trace`, which the database keeps.
pub(crate) fn begin_run(run: &RunRecord, trace: &Trace) -> tracing::Span {
    let (trace_id, span_id) = root(trace).map_or((None, None), |root| (Some(root.trace_id()), Some(root.span_id())));
    let span = ua_runner::run_span(run);
    NEXT_TRACE.set(trace_id);
    NEXT_SPAN.set(span_id);
    // Asking for its context builds the span here and now, on this thread.
    let _built = span.context();
    NEXT_TRACE.set(None);
    NEXT_SPAN.set(None);
    span
}

/// Links the current span to what earlier processes did for the run.
pub(crate) fn link_earlier(run: &RunRecord, own: &Trace) {
    let span = tracing::Span::current();
    for earlier in run.traces.iter().filter(|trace| *trace != own).filter_map(root) {
        span.add_link(earlier);
    }
}

/// The first span of a trace, by its ids alone.
fn root(trace: &Trace) -> Option<SpanContext> {
    let trace_id = TraceId::from_hex(trace.as_str()).ok().filter(|id| *id != TraceId::INVALID)?;
    let span_id = SpanId::from_hex(&trace.root_span()).ok()?;
    Some(SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, true, TraceState::default()))
}

/// Gives each span the ids that its parent has, or that came with it as baggage from another process, so that a search for a
/// run, a step or a call finds everything below it.
#[derive(Debug, Default)]
pub(super) struct InheritIds {
    /// The ids of spans that have not ended.
    open: Mutex<HashMap<SpanId, Vec<KeyValue>>>,
}

impl InheritIds {
    fn open(&self) -> MutexGuard<'_, HashMap<SpanId, Vec<KeyValue>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for InheritIds {
    fn on_start(&self, span: &mut Span, context: &Context) {
        let mut ids = span.exported_data().map(|data| data.attributes).unwrap_or_default();
        ids.retain(|attribute| BAGGAGE_NAMES.contains(&attribute.key.as_str()));
        let inherited = self.open().get(&context.span().span_context().span_id()).cloned().unwrap_or_default();
        let carried = context.baggage().iter().map(|(name, (value, _))| KeyValue::new(name.clone(), value.clone()));
        for id in inherited.into_iter().chain(carried) {
            if BAGGAGE_NAMES.contains(&id.key.as_str()) && ids.iter().all(|own| own.key != id.key) {
                span.set_attribute(id.clone());
                ids.push(id);
            }
        }
        self.open().insert(span.span_context().span_id(), ids);
    }

    fn on_end(&self, span: SpanData) {
        self.open().remove(&span.span_context.span_id());
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
