//! Sending spans and metrics over OTLP (HTTP, protobuf), and noticing when that fails.
//!
//! The libraries below report failed exports only to their own log, and their shutdown calls a batch that nobody took a
//! success. So every export goes through [`Watched`], which counts what was lost, and the end is a flush whose time is bounded.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Array, Key, KeyValue, Value};
use opentelemetry_otlp::{
    MetricExporter, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Protocol, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData, SpanExporter as ExportSpans,
};

use super::ids::{Ids, InheritIds};
use super::settings::Exported;

/// The longest that the end of a process is held up by a collector that does not answer.
pub(crate) const LONGEST_FLUSH: Duration = Duration::from_secs(3);
/// The same for a tool server, which is killed when it takes longer to end than its client waits.
const LONGEST_FLUSH_OF_SERVER: Duration = Duration::from_millis(1500);
/// How often finished spans are sent, unless `OTEL_BSP_SCHEDULE_DELAY` says so: what a killed process had not sent is lost.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// The name of our instrumentation.
const SCOPE: &str = "ua";

/// What sends spans and metrics, each from a thread of its own.
pub(crate) struct Exporter {
    settings: Exported,
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    lost: Arc<Lost>,
}

/// What was not taken.
#[derive(Debug, Default)]
struct Lost {
    spans: AtomicU64,
    reports: AtomicU64,
    why: Mutex<Option<String>>,
}

impl Exporter {
    /// Starts the threads. The error is a sentence: a run goes on without.
    pub(crate) fn start(settings: Exported) -> Result<Self, String> {
        if let Some(why) = &settings.in_the_clear {
            return Err(why.clone());
        }
        ua_http::prepare();
        let lost = Arc::new(Lost::default());
        let resource = resource(&settings);
        let traces = settings.traces.then(|| traces(&settings, resource.clone(), &lost)).transpose()?;
        let metrics = settings.metrics.then(|| metrics(&settings, resource, &lost)).transpose()?;
        Ok(Self { settings, traces, metrics, lost })
    }

    pub(crate) fn settings(&self) -> &Exported {
        &self.settings
    }

    pub(crate) fn tracer(&self) -> Option<SdkTracer> {
        self.traces.as_ref().map(|provider| provider.tracer(SCOPE))
    }

    pub(crate) fn meter(&self) -> Option<Meter> {
        self.metrics.as_ref().map(|provider| provider.meter(SCOPE))
    }

    /// Sends what is left, for as long as that may take; says what was lost since the start.
    pub(crate) fn finish(self) -> Option<String> {
        let Self { settings, traces, metrics, lost } = self;
        let limit = if settings.service == "ua" { LONGEST_FLUSH } else { LONGEST_FLUSH_OF_SERVER };
        let (done, ended) = mpsc::channel();
        let flush = |work: Box<dyn FnOnce() + Send>| {
            let done = done.clone();
            let started = thread::Builder::new().name("ua-telemetry-flush".to_owned()).spawn(move || {
                work();
                // Nobody waits any more once the time is up.
                done.send(()).ok();
            });
            started.is_ok()
        };
        // Failures are counted where they happen.
        let flushes = [
            traces.map(|provider| flush(Box::new(move || drop(provider.force_flush())))),
            metrics.map(|provider| flush(Box::new(move || drop(provider.force_flush())))),
        ];
        let waiting = flushes.into_iter().flatten().filter(|started| *started).count();
        let in_time = (0..waiting).all(|_| ended.recv_timeout(limit).is_ok());
        let text = lost.text();
        if in_time {
            text
        } else {
            Some(text.unwrap_or_else(|| format!("the collector did not accept it within {} s", limit.as_secs_f32())))
        }
    }
}

/// What carries an export. The library's own client would follow a redirect, with what was exported and the headers that open the collector.
fn client(timeout: Option<Duration>) -> Result<ua_http::BlockingClient, String> {
    let timeout = timeout.unwrap_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT);
    // Such a client cannot be made by a thread that runs futures.
    let made = thread::Builder::new().name("ua-telemetry-client".to_owned()).spawn(move || ua_http::blocking(timeout));
    let made = made.map_err(|error| format!("there is no thread for it: {error}"))?.join();
    let made = made.map_err(|_| "its client cannot be made".to_owned())?;
    made.map_err(|error| format!("its client cannot be made: {}", crate::error::chain(&error)))
}

fn traces(settings: &Exported, resource: Resource, lost: &Arc<Lost>) -> Result<SdkTracerProvider, String> {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_http_client(client(settings.timeout_of_traces)?).build();
    let inner = exporter.map_err(|error| format!("its traces cannot be exported: {error}"))?;
    let mut batches = BatchConfigBuilder::default();
    if !settings.sets_delay {
        batches = batches.with_scheduled_delay(SEND_EVERY);
    }
    let watched = Watched { inner, lost: Arc::clone(lost) };
    let processor = BatchSpanProcessor::builder(watched).with_batch_config(batches.build()).build();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_id_generator(Ids::default());
    Ok(provider.with_span_processor(InheritIds::default()).with_span_processor(processor).build())
}

fn metrics(settings: &Exported, resource: Resource, lost: &Arc<Lost>) -> Result<SdkMeterProvider, String> {
    let exporter = MetricExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_http_client(client(settings.timeout_of_metrics)?).build();
    let inner = exporter.map_err(|error| format!("its metrics cannot be exported: {error}"))?;
    let watched = Watched { inner, lost: Arc::clone(lost) };
    Ok(SdkMeterProvider::builder().with_resource(resource).with_periodic_exporter(watched).build())
}

/// Who speaks: what the environment says, and where it is silent what is true.
fn resource(settings: &Exported) -> Resource {
    let said = Resource::builder().build();
    let env = ua_core::system::env();
    let ours = [
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // Counters of two processes are two series.
        ("service.instance.id", env.uuid_v7()),
    ];
    let ours = ours.into_iter().filter(|(name, _)| said.get(&Key::from_static_str(name)).is_none());
    let mut builder = Resource::builder().with_attributes(ours.map(|(name, value)| KeyValue::new(name, value)));
    if !settings.names_service {
        builder = builder.with_service_name(settings.service);
    }
    builder.build()
}

impl Lost {
    fn note(&self, counter: &AtomicU64, count: u64, error: &(dyn std::error::Error + 'static)) {
        counter.fetch_add(count, Ordering::Relaxed);
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.get_or_insert_with(|| crate::error::chain(error));
    }

    /// What was lost and why, in words; `None` if nothing was.
    fn text(&self) -> Option<String> {
        let (spans, reports) = (self.spans.load(Ordering::Relaxed), self.reports.load(Ordering::Relaxed));
        let what = match (spans, reports) {
            (0, 0) => return None,
            (0, _) => format!("{reports} of metrics", reports = ua_core::counted(reports, "report")),
            (_, 0) => ua_core::counted(spans, "span"),
            (_, _) => format!(
                "{spans}, {reports} of metrics",
                spans = ua_core::counted(spans, "span"),
                reports = ua_core::counted(reports, "report")
            ),
        };
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        Some(format!("{what}; {why}"))
    }
}

/// Makes lists of the attributes that the conventions have as lists: a span of this program can hold single values only.
fn with_lists(span: &mut SpanData) {
    for attribute in &mut span.attributes {
        if attribute.key.as_str() == "gen_ai.response.finish_reasons"
            && let Value::String(reason) = &attribute.value
        {
            attribute.value = Value::Array(Array::String(vec![reason.clone()]));
        }
    }
}

/// Attributes without a prefix that the format of runs has everywhere: whoever searches for a call finds all of it by them.
const IDS: [&str; 3] = ["run_id", "step_id", "tool_call_id"];
/// What the layer below adds to each event: the module that made it, and its level. Neither is for others.
const OF_THE_LAYER: [&str; 2] = ["target", "level"];

/// Gives what happened in a span attributes with names of ours, as those of the span have: fields are short where they are written.
fn with_own_names(span: &mut SpanData) {
    for event in &mut span.events.events {
        event.attributes.retain(|attribute| !OF_THE_LAYER.contains(&attribute.key.as_str()));
        for attribute in &mut event.attributes {
            let key = attribute.key.as_str();
            if !key.contains('.') && !IDS.contains(&key) {
                attribute.key = Key::new(format!("ua.{key}"));
            }
        }
    }
}

/// An exporter whose failures are counted.
#[derive(Debug)]
struct Watched<E> {
    inner: E,
    lost: Arc<Lost>,
}

impl<E: ExportSpans> ExportSpans for Watched<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        batch.iter_mut().for_each(with_lists);
        batch.iter_mut().for_each(with_own_names);
        let exported = self.inner.export(batch).await;
        exported.inspect_err(|error| self.lost.note(&self.lost.spans, count, error))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Watched<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let exported = self.inner.export(metrics).await;
        exported.inspect_err(|error| self.lost.note(&self.lost.reports, 1, error))
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}
