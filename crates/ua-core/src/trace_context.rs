//! W3C trace context as it travels between processes.
//!
//! Durable Jobs v1 spec §10. A run has one trace per process that drove it ([`Trace`]); what is sent to tool servers carries the
//! span it comes from (`traceparent`, `tracestate`) and, as `baggage`, the names by which its records can be found. Nothing in
//! here knows a tracing library: whoever installs one hands in a [`CurrentSpan`].

use std::fmt;
use std::sync::Arc;

use crate::canonical::sha256;
use crate::{CallId, RunId, StepId, Trace};

/// The names of the fields, in MCP's `_meta` and as HTTP headers alike (MCP, SEP-414).
pub const TRACEPARENT: &str = "traceparent";
/// See [`TRACEPARENT`].
pub const TRACESTATE: &str = "tracestate";
/// See [`TRACEPARENT`].
pub const BAGGAGE: &str = "baggage";

/// The baggage names of Durable Jobs v1 spec §10.
pub const BAGGAGE_NAMES: [&str; 3] = ["run_id", "step_id", "tool_call_id"];

/// The span that something comes from, as headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `00-<trace id>-<span id>-<flags>`.
    pub traceparent: String,
    /// What tracing systems add; usually nothing.
    pub tracestate: Option<String>,
    /// `name=value` pairs for whoever works on this request.
    pub baggage: Option<String>,
}

/// Says which span is current, on the thread that asks. The default knows of none.
#[derive(Clone, Default)]
pub struct CurrentSpan(Option<Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>>);

impl CurrentSpan {
    /// Asks `look`, which must not block.
    pub fn new(look: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    /// The current span; `None` when there is none, or nobody records spans.
    pub fn get(&self) -> Option<TraceContext> {
        self.0.as_ref().and_then(|look| look())
    }
}

impl fmt::Debug for CurrentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrentSpan").field(&self.0.is_some()).finish()
    }
}

/// A number as a field of a span or an event. OpenTelemetry's numbers have a sign, and its bridge to `tracing` makes text of
/// those that have none.
pub fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Baggage that names a call, its step and its run. Ids have no character that baggage would have to escape.
pub fn call_baggage(run: &RunId, step: &StepId, call: &CallId) -> String {
    format!("run_id={run},step_id={step},tool_call_id={call}")
}

impl Trace {
    /// The id of the trace's first span, as 16 hexadecimal digits. It follows from the trace id, so that a later process can
    /// link to the trace without having seen its spans.
    pub fn root_span(&self) -> String {
        let digest = sha256(format!("ua.root-span.v1 {}", self.as_str()).as_bytes()).to_hex();
        let digits = &digest[..16];
        if digits == "0000000000000000" { "0000000000000001".to_owned() } else { digits.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    #[test]
    fn the_first_span_of_a_trace_is_always_the_same() {
        let trace = Trace::from_stored("0192f0c1aa7e7d3c8f1e2d3c4b5a6978".to_owned());
        assert_eq!(trace.root_span(), trace.clone().root_span());
        assert_eq!(trace.root_span().len(), 16);
        assert!(trace.root_span().bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(trace.root_span(), Trace::new(&Env::simulated(1)).root_span());
    }

    #[test]
    fn numbers_keep_their_value_as_long_as_there_is_room() {
        assert_eq!((signed(7_u32), signed(9_usize), signed(u64::MAX)), (7, 9, i64::MAX));
    }

    #[test]
    fn ids_are_baggage_as_they_are() {
        let env = Env::simulated(1);
        let (run, step, call) = (RunId::new(&env), StepId::new(&env), CallId::new(&env));
        let baggage = call_baggage(&run, &step, &call);
        assert_eq!(baggage, format!("run_id={run},step_id={step},tool_call_id={call}"));
        assert!(baggage.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\;% ".contains(&b)), "{baggage}");
    }

    #[test]
    fn nobody_who_records_spans_means_no_span() {
        assert_eq!(CurrentSpan::default().get(), None);
        let one = TraceContext { traceparent: "00-a-b-01".to_owned(), ..TraceContext::default() };
        let looked = one.clone();
        assert_eq!(CurrentSpan::new(move || Some(looked.clone())).get(), Some(one));
    }
}
