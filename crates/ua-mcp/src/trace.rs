//! One span per request to a tool server, and its context in what is sent.
//!
//! Durable Jobs v1 spec §10; OpenTelemetry's conventions for MCP; MCP SEP-414: `traceparent`, `tracestate` and `baggage` stand
//! without a prefix in `_meta`, and over Streamable HTTP in the request's headers too. No key, argument or result is a field of
//! a span.

use serde_json::{Map, Value, json};
use tracing::{Span, field};
use ua_core::{BAGGAGE, CurrentSpan, Outcome, RawReply, TRACEPARENT, TRACESTATE, ToolName, signed};
use ua_dispatch::Permit;

/// The fields of the trace context.
const FIELDS: [&str; 3] = [TRACEPARENT, TRACESTATE, BAGGAGE];

/// The span of one attempt at a call.
pub(crate) fn of_attempt(permit: &Permit) -> Span {
    let (call, tool) = (permit.call(), permit.name());
    let span = of_request(tool);
    span.record("tool_call_id", call.call_id.as_str()).record("ua.tool.attempt", signed(call.attempt));
    span
}

/// The span of one request.
pub(crate) fn of_request(tool: &ToolName) -> Span {
    tracing::info_span!(
        "tools/call",
        otel.name = format_args!("tools/call {}", tool.tool),
        otel.kind = "client",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        mcp.method.name = "tools/call",
        mcp.protocol.version = field::Empty,
        network.transport = field::Empty,
        jsonrpc.request.id = field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool.tool,
        ua.tool.server = tool.server,
        ua.tool.attempt = field::Empty,
        ua.tool.outcome = field::Empty,
        tool_call_id = field::Empty,
    )
}

/// Records over what the request of the current span goes, and in which revision of the protocol.
pub(crate) fn goes_over(transport: &'static str, version: &str) {
    Span::current().record("network.transport", transport).record("mcp.protocol.version", version);
}

/// Records the id under which the request of the current span goes. Of an attempt whose session was over it is that of its last request.
pub(crate) fn goes_as(id: i64) {
    Span::current().record("jsonrpc.request.id", id.to_string());
}

/// Records how the request of `span` ended.
pub(crate) fn ended(span: &Span, outcome: &Outcome) {
    let (how, error): (&str, Option<String>) = match outcome {
        Outcome::NotSent { .. } => ("not_sent", Some("not_sent".to_owned())),
        Outcome::Lost { .. } => ("lost", Some("lost".to_owned())),
        Outcome::Raw(RawReply::RpcError { code, .. }) => ("error", Some(code.to_string())),
        Outcome::Raw(RawReply::HttpStatus { status, .. }) => ("error", Some(status.to_string())),
        Outcome::Raw(RawReply::ToolResult { result }) if result["isError"] == true => {
            ("reported", Some("tool_error".to_owned()))
        }
        Outcome::Raw(_) => ("answered", None),
        Outcome::Continues(_) => ("continues", None),
    };
    span.record("ua.tool.outcome", how);
    if let Some(error) = error {
        span.record("error.type", error).record("otel.status_code", "ERROR");
    }
}

/// Puts the current span's context into a request's `_meta`, in the place of what stands there.
pub(crate) fn put(current: &CurrentSpan, meta: &mut Map<String, Value>) {
    let Some(context) = current.get() else { return };
    meta.insert(TRACEPARENT.to_owned(), json!(context.traceparent));
    if let Some(state) = context.tracestate {
        meta.insert(TRACESTATE.to_owned(), json!(state));
    }
    if let Some(baggage) = context.baggage {
        meta.entry(BAGGAGE).or_insert(json!(baggage));
    }
}

/// The same context as HTTP headers.
pub(crate) fn headers(meta: &Map<String, Value>) -> impl Iterator<Item = (&'static str, &str)> {
    FIELDS.into_iter().filter_map(|name| Some((name, meta.get(name)?.as_str()?)))
}

#[cfg(test)]
mod tests {
    use ua_core::TraceContext;

    use super::*;

    fn meta() -> Map<String, Value> {
        let meta = json!({"traceparent": "ours", "baggage": "run_id=r", "dev.universal-agent/run-id": "r"});
        meta.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn the_current_span_replaces_what_the_permit_says_and_leaves_its_baggage() {
        let mut sent = meta();
        put(&CurrentSpan::default(), &mut sent);
        assert_eq!(sent, meta());
        let context = TraceContext {
            traceparent: "theirs".to_owned(),
            tracestate: Some("vendor=1".to_owned()),
            baggage: Some("run_id=x".to_owned()),
        };
        put(&CurrentSpan::new(move || Some(context.clone())), &mut sent);
        let headers: Vec<(&str, &str)> = headers(&sent).collect();
        assert_eq!(headers, [("traceparent", "theirs"), ("tracestate", "vendor=1"), ("baggage", "run_id=r")]);
    }
}
