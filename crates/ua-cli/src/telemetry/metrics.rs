//! Metrics, counted from what libraries say: an event adds to a counter, the end of a span to a histogram.
//!
//! Names are those of OpenTelemetry's conventions for generative AI and MCP where they have one, else they begin with `ua.`. No run
//! id is an attribute: a series per run would drown every store of metrics.

use std::time::Instant;

use opentelemetry::metrics::{Counter, Histogram, Meter};
use opentelemetry::{Key, KeyValue};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Bucket boundaries that the conventions give for tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Those for the durations of model and tool calls, in seconds; longer ones at the end, because our tools may take hours.
const SECONDS: [f64; 18] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 300.0, 900.0, 3600.0,
    14_400.0,
];
/// Those for writes to the database, in seconds.
const WRITES: [f64; 11] = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0];

/// The layer.
pub(super) struct Metrics {
    tokens: Histogram<u64>,
    chats: Histogram<f64>,
    tools: Histogram<f64>,
    client_requests: Histogram<f64>,
    server_requests: Histogram<f64>,
    turns: Histogram<f64>,
    writes: Histogram<f64>,
    requests: Counter<u64>,
    cost: Counter<f64>,
    calls: Counter<u64>,
    attempts: Counter<u64>,
    replays: Counter<u64>,
    questions: Counter<u64>,
    checkpoints: Counter<u64>,
    runs: Counter<u64>,
    held: Counter<f64>,
}

impl Metrics {
    pub(super) fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, what: &'static str, bounds: &[f64]| {
            meter.f64_histogram(name).with_unit("s").with_description(what).with_boundaries(bounds.to_vec()).build()
        };
        let count = |name: &'static str, unit: &'static str, what: &'static str| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        Self {
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens that requests to models were charged, as the database has them")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            chats: seconds("gen_ai.client.operation.duration", "Requests to models", &SECONDS),
            tools: seconds("gen_ai.execute_tool.duration", "Tool calls, from admission to receipt", &SECONDS),
            client_requests: seconds("mcp.client.operation.duration", "Requests to tool servers", &SECONDS),
            server_requests: seconds(
                "mcp.server.operation.duration",
                "Calls that the built-in server carried out",
                &SECONDS,
            ),
            turns: seconds("ua.turn.duration", "Turns, from composing to commit", &SECONDS),
            writes: seconds("ua.store.write.duration", "Writes to the database, until their commit", &WRITES),
            requests: count("ua.model.requests", "{request}", "Requests to models by how they were charged"),
            cost: meter
                .f64_counter("ua.model.cost")
                .with_unit("{currency}")
                .with_description("What requests to models cost, in units of the attribute `currency`")
                .build(),
            calls: count("ua.tool.calls", "{call}", "Tool calls by outcome"),
            attempts: count("ua.tool.attempts", "{attempt}", "Attempts that were committed to be sent"),
            replays: count("ua.tool.replays", "{call}", "Calls in flight at a crash, by what a resume did with them"),
            questions: count("ua.questions", "{question}", "Questions to people"),
            checkpoints: count("ua.checkpoints", "{checkpoint}", "Checkpoint markers"),
            runs: count("ua.run.ends", "{run}", "Processes that ended their work on a run, by how"),
            held: meter
                .f64_counter("ua.run.held_time")
                .with_unit("s")
                .with_description("Time in which a process held a run")
                .build(),
        }
    }

    fn count(&self, name: &str, fields: &Fields) {
        match name {
            "ua.request.charged" => self.charge(fields),
            "ua.call.ended" => self.calls.add(1, &fields.named(&["tool", "class", "status", "deduplicated"])),
            "ua.calls.cancelled" => {
                let cancelled = [KeyValue::new("ua.status", "cancelled")];
                self.calls.add(fields.count("calls"), &cancelled);
            }
            "ua.ledger.started" => self.attempts.add(1, &fields.named(&["tool", "class"])),
            "ua.ledger.replayed" => self.replays.add(1, &fields.named(&["replay"])),
            "ua.question.asked" => self.questions.add(1, &fields.named(&["kind"])),
            "ua.checkpoint" => self.checkpoints.add(1, &fields.named(&["kind"])),
            "ua.turn.committed" => self.held.add(fields.float("held_seconds"), &[]),
            "ua.run.ended" => {
                self.held.add(fields.float("held_seconds"), &[]);
                self.runs.add(1, &fields.named(&["status", "reason"]));
            }
            _ => {}
        }
    }

    fn charge(&self, fields: &Fields) {
        let mut who = vec![KeyValue::new("gen_ai.operation.name", "chat")];
        who.extend(fields.text("provider").map(|provider| KeyValue::new("gen_ai.provider.name", provider.to_owned())));
        who.extend(fields.text("model").map(|model| KeyValue::new("gen_ai.request.model", model.to_owned())));
        for (kind, field) in [("input", "input_tokens"), ("output", "output_tokens")] {
            let mut attributes = who.clone();
            attributes.push(KeyValue::new("gen_ai.token.type", kind));
            self.tokens.record(fields.count(field), &attributes);
        }
        let mut attributes = who.clone();
        attributes.extend(fields.named(&["status"]));
        self.requests.add(1, &attributes);
        if fields.has("cost") {
            who.extend(fields.named(&["currency"]));
            self.cost.add(fields.float("cost"), &who);
        }
    }

    fn time(&self, name: &str, seconds: f64, fields: &Fields) {
        match name {
            "chat" => self.chats.record(
                seconds,
                &fields.named(&["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"]),
            ),
            "execute_tool" => self.tools.record(
                seconds,
                &fields.named(&[
                    "gen_ai.operation.name",
                    "gen_ai.tool.name",
                    "ua.tool.class",
                    "ua.tool.status",
                    "error.type",
                ]),
            ),
            "tools/call" => {
                let histogram = if fields.text("otel.kind") == Some("server") {
                    &self.server_requests
                } else {
                    &self.client_requests
                };
                histogram.record(seconds, &fields.named(&["mcp.method.name", "gen_ai.tool.name", "error.type"]));
            }
            "turn" => self.turns.record(seconds, &[]),
            "store.write" => {
                self.writes.record(seconds, &fields.named(&["db.operation.name", "ua.store.durability"]));
            }
            _ => {}
        }
    }
}

/// The spans whose time is measured.
const MEASURED: [&str; 5] = ["chat", "execute_tool", "tools/call", "turn", "store.write"];

/// A span that is being measured.
struct Measured {
    began: Instant,
    fields: Fields,
}

impl<S> Layer<S> for Metrics
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    #[expect(clippy::disallowed_methods, reason = "how long a span took is seen by graphs alone, never by a run")]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| MEASURED.contains(&span.name())) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Measured { began: Instant::now(), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(measured) = span.extensions_mut().get_mut::<Measured>() {
            values.record(&mut measured.fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(name) = fields.text("message") {
            self.count(name, &fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let measured = span.extensions_mut().remove::<Measured>();
        if let Some(measured) = measured {
            self.time(span.name(), measured.began.elapsed().as_secs_f64(), &measured.fields);
        }
    }
}

/// The fields of a span or an event.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Count(u64),
    Float(f64),
    Bool(bool),
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.retain(|(name, _)| *name != field.name());
        self.0.push((field.name(), value));
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            Value::Count(_) | Value::Float(_) | Value::Bool(_) => None,
        }
    }

    fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(count)) => *count,
            Some(Value::Text(_) | Value::Float(_) | Value::Bool(_)) | None => 0,
        }
    }

    fn float(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Float(float)) => *float,
            Some(Value::Text(_) | Value::Count(_) | Value::Bool(_)) | None => 0.0,
        }
    }

    /// Those of these fields that are there, as attributes.
    fn named(&self, names: &[&'static str]) -> Vec<KeyValue> {
        let attribute = |name: &&'static str| {
            // What no convention names is ours.
            let called = if name.contains('.') { Key::from_static_str(name) } else { Key::from(format!("ua.{name}")) };
            Some(match self.get(name)?.clone() {
                Value::Text(text) => KeyValue::new(called, text),
                Value::Count(count) => KeyValue::new(called, i64::try_from(count).unwrap_or(i64::MAX)),
                Value::Float(float) => KeyValue::new(called, float),
                Value::Bool(claim) => KeyValue::new(called, claim),
            })
        };
        names.iter().filter_map(attribute).collect()
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Count(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Count(u64::try_from(value).unwrap_or(0)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Value::Text(format!("{value:?}")));
    }
}
