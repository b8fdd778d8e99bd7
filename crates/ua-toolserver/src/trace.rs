//! Whom a call comes from, for whoever records spans.
//!
//! Durable Jobs v1 spec §10; MCP SEP-414. A request's `_meta` may say which span it comes from (`traceparent`, `tracestate`) and
//! to which run, step and call it belongs (`baggage`). This server only makes spans; the program it runs in knows how to hang
//! them below a span of another process.

use std::fmt;
use std::sync::Arc;

use rmcp::model::RequestMetaObject;
use tracing::{Span, field};
use ua_core::{BAGGAGE, TRACEPARENT, TRACESTATE, TraceContext};

/// The longest trace field that is read; the convention's own limit for baggage.
const MAX_FIELD_BYTES: usize = 8192;

type Adopt = dyn Fn(&Span, &TraceContext) + Send + Sync;

/// Hangs a span that was just made below the span that its request comes from. The default leaves it where it is.
#[derive(Clone, Default)]
pub struct AdoptParent(Option<Arc<Adopt>>);

impl AdoptParent {
    /// Calls `adopt` for each request that says where it comes from, before its span is entered.
    pub fn new(adopt: impl Fn(&Span, &TraceContext) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(adopt)))
    }
}

impl fmt::Debug for AdoptParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdoptParent").field(&self.0.is_some()).finish()
    }
}

/// The span of one `tools/call`. A name that is none of ours is the client's text, so `None` stands for it.
pub(crate) fn of_call(tool: Option<&'static str>, meta: &RequestMetaObject, adopt: &AdoptParent) -> Span {
    let tool = tool.unwrap_or("unknown");
    let span = tracing::info_span!(
        parent: None,
        "tools/call",
        otel.name = format_args!("tools/call {tool}"),
        otel.kind = "server",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
    );
    if let (Some(adopt), Some(context)) = (&adopt.0, context(meta)) {
        adopt(&span, &context);
    }
    span
}

/// Marks a call's span as failed.
pub(crate) fn failed(span: &Span, kind: &str) {
    span.record("otel.status_code", "ERROR").record("error.type", kind);
}

fn context(meta: &RequestMetaObject) -> Option<TraceContext> {
    let text = |name: &str| {
        let value = meta.get(name)?.as_str().filter(|value| value.len() <= MAX_FIELD_BYTES)?;
        Some(value.to_owned())
    };
    Some(TraceContext { traceparent: text(TRACEPARENT)?, tracestate: text(TRACESTATE), baggage: text(BAGGAGE) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_says_where_it_comes_from_or_does_not() {
        let meta = |value: serde_json::Value| serde_json::from_value::<RequestMetaObject>(value).unwrap();
        assert_eq!(context(&meta(json!({"baggage": "run_id=r"}))), None);
        assert_eq!(context(&meta(json!({"traceparent": 7}))), None);
        let found = context(&meta(json!({"traceparent": "00-a-b-01", "baggage": "run_id=r"}))).unwrap();
        assert_eq!(
            (found.traceparent.as_str(), found.tracestate, found.baggage.as_deref()),
            ("00-a-b-01", None, Some("run_id=r"))
        );
        assert_eq!(context(&meta(json!({"traceparent": "x".repeat(9000)}))), None);
    }
}
