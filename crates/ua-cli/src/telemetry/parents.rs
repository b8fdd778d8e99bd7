//! Spans across processes: which span a request to a tool server comes from, and whose child our own server's span is.

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use ua_core::{BAGGAGE, CurrentSpan, TRACEPARENT, TRACESTATE, TraceContext};

/// The span that is current on the thread that asks, if spans are sent anywhere.
pub(crate) fn current_span() -> CurrentSpan {
    CurrentSpan::new(|| {
        let context = Context::current();
        let span = context.span();
        let span = span.span_context();
        let state = span.trace_state().header();
        span.is_valid().then(|| TraceContext {
            traceparent: format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags()),
            tracestate: Some(state).filter(|state| !state.is_empty()),
            baggage: None, // the permit names the call
        })
    })
}

/// Hangs the spans of our own tool server below those of whoever called it.
#[cfg(feature = "toolserver")]
pub(crate) fn adopt_parent() -> ua_toolserver::AdoptParent {
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    ua_toolserver::AdoptParent::new(|span, remote| {
        let remote = Remote(remote);
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &remote);
        let context = BaggagePropagator::new().extract_with_context(&context, &remote);
        // Without a collector there is no span to hang anywhere.
        span.set_parent(context).ok();
    })
}

/// Trace context as the propagators read it.
struct Remote<'a>(&'a TraceContext);

impl Extractor for Remote<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => Some(&self.0.traceparent),
            TRACESTATE => self.0.tracestate.as_deref(),
            BAGGAGE => self.0.baggage.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE, BAGGAGE]
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::baggage::BaggageExt as _;

    use super::*;

    #[test]
    fn what_a_permit_says_is_read_as_a_parent_and_its_baggage() {
        let said = TraceContext {
            traceparent: "00-0192f0c1aa7e7d3c8f1e2d3c4b5a6978-00f067aa0ba902b7-01".to_owned(),
            tracestate: None,
            baggage: Some("run_id=r,step_id=s,tool_call_id=c".to_owned()),
        };
        let remote = Remote(&said);
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &remote);
        let context = BaggagePropagator::new().extract_with_context(&context, &remote);
        let span = context.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), "0192f0c1aa7e7d3c8f1e2d3c4b5a6978");
        assert!(span.is_remote() && span.is_sampled());
        assert_eq!(context.baggage().get("tool_call_id").map(ToString::to_string).as_deref(), Some("c"));
    }

    #[test]
    fn without_a_span_nothing_is_said() {
        assert_eq!(current_span().get(), None);
    }
}
