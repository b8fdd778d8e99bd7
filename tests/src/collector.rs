//! A collector on a runtime of its own, so that tests stay plain functions.

use tokio::runtime::Runtime;
use ua_testkit::{CollectorMood, OtlpReceiver, ReceivedPoint, ReceivedSpan};

/// A collector behind a real HTTP server on 127.0.0.1; it ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    receiver: OtlpReceiver,
    _runtime: Runtime,
}

impl Collector {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub fn start(mood: CollectorMood) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap_or_else(|e| panic!("start a runtime: {e}"));
        let receiver =
            runtime.block_on(OtlpReceiver::start(mood)).unwrap_or_else(|e| panic!("start the collector: {e}"));
        Self { receiver, _runtime: runtime }
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is set to.
    pub fn base_url(&self) -> &str {
        &self.receiver.base_url
    }

    /// What it took, and with which headers.
    pub fn receiver(&self) -> &OtlpReceiver {
        &self.receiver
    }

    /// How often something was brought to the address that [`CollectorMood::SendsOn`] names.
    pub fn brought_elsewhere(&self) -> usize {
        self.receiver.brought_elsewhere()
    }

    /// Every span that arrived.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.receiver.spans()
    }

    /// The spans of that name.
    pub fn named(&self, name: &str) -> Vec<ReceivedSpan> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    /// The only span of that name.
    ///
    /// # Panics
    ///
    /// When there is none, or more than one.
    #[track_caller]
    pub fn one(&self, name: &str) -> ReceivedSpan {
        let mut spans = self.named(name);
        let names: Vec<String> = self.spans().into_iter().map(|span| span.name).collect();
        assert_eq!(spans.len(), 1, "{name} among {names:?}");
        spans.remove(0)
    }

    /// The sum over every process and those series of a metric that `wanted` takes.
    pub fn sum(&self, metric: &str, wanted: impl Fn(&ReceivedPoint) -> bool) -> f64 {
        let points = self.receiver.points().into_iter();
        points.filter(|point| point.name == metric && wanted(point)).map(|point| point.sum).sum()
    }

    /// Whether any request, in any part, holds `text`.
    pub fn has_seen(&self, text: &str) -> bool {
        let needle = text.as_bytes();
        self.receiver.bodies().iter().any(|body| body.windows(needle.len()).any(|part| part == needle))
    }
}
