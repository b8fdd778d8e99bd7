//! A collector: takes spans and metrics over OTLP (HTTP, protobuf) on 127.0.0.1, and shows what it took.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a collector does with what it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorMood {
    /// Takes it.
    #[default]
    Takes,
    /// Refuses it (503).
    Refuses,
    /// Reads it and never answers.
    Hangs,
    /// Sends who brings it to another address (307), where it would be taken.
    SendsOn,
}

/// Names and values.
pub type Attributes = BTreeMap<String, Value>;

/// A span as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedSpan {
    /// The trace, in hexadecimal digits.
    pub trace_id: String,
    /// Its id.
    pub span_id: String,
    /// Its parent's id; empty at the root.
    pub parent_id: String,
    /// Its name.
    pub name: String,
    /// `internal`, `client`, `server`, …
    pub kind: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// Names and attributes of its events, in order.
    pub events: Vec<(String, Attributes)>,
    /// Trace and span ids of its links.
    pub links: Vec<(String, String)>,
    /// Whether its status is an error.
    pub is_error: bool,
    /// Who sent it.
    pub resource: Attributes,
}

/// The last value of one series of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedPoint {
    /// The metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The series.
    pub attributes: Attributes,
    /// The counter's value, or the sum of what a histogram was told.
    pub sum: f64,
    /// How often a histogram was told something; 0 for a counter.
    pub count: u64,
    /// Who sent it.
    pub resource: Attributes,
}

/// A running collector; dropping it stops it.
#[derive(Debug)]
pub struct OtlpReceiver {
    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is set to.
    pub base_url: String,
    shared: Arc<Shared>,
    task: JoinHandle<std::io::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    mood: CollectorMood,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    spans: Vec<ReceivedSpan>,
    points: BTreeMap<String, ReceivedPoint>,
    bodies: Vec<Vec<u8>>,
    headers: Vec<BTreeMap<String, String>>,
    elsewhere: usize,
}

impl OtlpReceiver {
    /// Starts a collector on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(mood: CollectorMood) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared { mood, seen: Mutex::default() });
        let router = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/elsewhere", post(elsewhere))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { base_url, shared, task })
    }

    /// Every span that arrived, in order of arrival.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.shared.seen().spans.clone()
    }

    /// The last value of every series, of each process by itself.
    pub fn points(&self) -> Vec<ReceivedPoint> {
        self.shared.seen().points.values().cloned().collect()
    }

    /// Every request's body, as it came.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.shared.seen().bodies.clone()
    }

    /// How often something was brought to the address that [`CollectorMood::SendsOn`] names.
    pub fn brought_elsewhere(&self) -> usize {
        self.shared.seen().elsewhere
    }

    /// Every request's headers.
    pub fn headers(&self) -> Vec<BTreeMap<String, String>> {
        self.shared.seen().headers.clone()
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request, and says how it is answered.
    async fn take(&self, headers: &HeaderMap, body: &Bytes, read: impl FnOnce(&mut Seen) -> bool) -> Response {
        let is_read = {
            let mut seen = self.seen();
            let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            seen.headers.push(headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect());
            seen.bodies.push(body.to_vec());
            self.mood == CollectorMood::Takes && read(&mut seen)
        };
        match self.mood {
            CollectorMood::Takes if is_read => {
                ([(header::CONTENT_TYPE, "application/x-protobuf")], Bytes::new()).into_response()
            }
            CollectorMood::Takes => StatusCode::BAD_REQUEST.into_response(),
            CollectorMood::Refuses => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            CollectorMood::Hangs => std::future::pending().await,
            CollectorMood::SendsOn => Redirect::temporary("/elsewhere").into_response(),
        }
    }
}

async fn elsewhere(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.seen().elsewhere += 1;
    StatusCode::OK
}

async fn traces(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let read = |seen: &mut Seen| {
        let Ok(request) = ExportTraceServiceRequest::decode(body.as_ref()) else { return false };
        for group in request.resource_spans {
            let resource = attributes(&group.resource.unwrap_or_default().attributes);
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            seen.spans.extend(spans.map(|span| ReceivedSpan {
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                kind: kind(span.kind()),
                attributes: attributes(&span.attributes),
                events: span.events.iter().map(|event| (event.name.clone(), attributes(&event.attributes))).collect(),
                links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
                is_error: span.status.is_some_and(|status| status.code() == SpanStatus::Error),
                name: span.name,
                resource: resource.clone(),
            }));
        }
        true
    };
    shared.take(&headers, &body, read).await
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let read = |seen: &mut Seen| {
        let Ok(request) = ExportMetricsServiceRequest::decode(body.as_ref()) else { return false };
        for group in request.resource_metrics {
            let resource = attributes(&group.resource.unwrap_or_default().attributes);
            for metric in group.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                let points: Vec<(Attributes, f64, u64)> = match metric.data {
                    Some(Data::Sum(sum)) => {
                        sum.data_points.iter().map(|p| (attributes(&p.attributes), number(p.value), 0)).collect()
                    }
                    Some(Data::Histogram(histogram)) => {
                        let point = histogram.data_points.iter();
                        point.map(|p| (attributes(&p.attributes), p.sum.unwrap_or(0.0), p.count)).collect()
                    }
                    Some(Data::Gauge(_) | Data::ExponentialHistogram(_) | Data::Summary(_)) | None => Vec::new(),
                };
                for (attributes, sum, count) in points {
                    let (name, unit) = (metric.name.clone(), metric.unit.clone());
                    let series = format!("{name} {} {}", json!(attributes), resource["service.instance.id"]);
                    let point = ReceivedPoint { name, unit, attributes, sum, count, resource: resource.clone() };
                    seen.points.insert(series, point);
                }
            }
        }
        true
    };
    shared.take(&headers, &body, read).await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

fn kind(kind: SpanKind) -> String {
    kind.as_str_name().trim_start_matches("SPAN_KIND_").to_lowercase()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
fn number(number: Option<Number>) -> f64 {
    match number {
        Some(Number::AsInt(count)) => count as f64,
        Some(Number::AsDouble(double)) => double,
        None => 0.0,
    }
}

fn attributes(pairs: &[KeyValue]) -> Attributes {
    let value = |pair: &KeyValue| plain(pair.value.as_ref().and_then(|value| value.value.as_ref()));
    pairs.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

fn plain(value: Option<&AnyValue>) -> Value {
    match value {
        Some(AnyValue::StringValue(text)) => json!(text),
        Some(AnyValue::BoolValue(claim)) => json!(claim),
        Some(AnyValue::IntValue(number)) => json!(number),
        Some(AnyValue::DoubleValue(number)) => json!(number),
        Some(AnyValue::ArrayValue(ArrayValue { values })) => {
            values.iter().map(|value| plain(value.value.as_ref())).collect()
        }
        Some(_) | None => Value::Null,
    }
}
