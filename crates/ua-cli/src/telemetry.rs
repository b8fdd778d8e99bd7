//! Diagnostics on standard error, and telemetry to a collector.
//!
//! Durable Jobs v1 spec §10; Durable runner, current state §11. Libraries use `tracing` and know nothing of this module: what
//! they say goes to standard error when `UA_LOG` asks for it (`UA_LOG=debug`, `UA_LOG=ua_mcp=trace`), and as OpenTelemetry spans and
//! metrics to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names. Without a collector there is no layer for it and no thread.
//! Invariant: telemetry never fails a run, and never holds its end up for more than [`exporter::LONGEST_FLUSH`].

mod export_filter;
mod exporter;
mod ids;
mod metrics;
mod parents;
mod sentence;
mod settings;

use std::collections::BTreeMap;

use tracing_subscriber::filter::{FilterExt as _, FilterFn, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};
use ua_core::{CurrentSpan, Trace};
use ua_host::settings::LOG_DEFAULT;
use ua_host::{Settings, Spans};
use ua_store::RunRecord;

#[cfg(feature = "toolserver")]
pub(crate) use self::parents::adopt_parent;

use self::export_filter::ExportFilter;
use self::exporter::Exporter;
use self::sentence::AsSentence;
use self::settings::Exported;
use crate::args::{Cli, Command, LogFormat};

/// What people, models and tools said; never in a log on standard error, which others read.
const CONTENT: &str = "ua::content";
/// How every target of ours begins.
const OURS: &str = "ua_";

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// What has to be brought to an end before the process is.
#[must_use = "spans that are not flushed are lost"]
pub(crate) struct Telemetry {
    exporter: Option<Exporter>,
}

/// Installs the subscriber.
pub(crate) fn init(cli: &Cli, settings: &Settings) -> Telemetry {
    let mut layers = vec![log(cli.global.log_format, settings)];
    let (exporter, problem) = match exported(&cli.command, settings).map(Exporter::start).transpose() {
        Ok(exporter) => (exporter, None),
        Err(problem) => (None, Some(problem)),
    };
    if let Some(exporter) = &exporter {
        layers.extend(export(exporter));
    }
    // A second initialisation (a test that calls `main` twice) keeps the first.
    let _already_set = tracing_subscriber::registry().with(layers).try_init().is_err();
    if let Some(problem) = problem {
        tracing::warn!("no telemetry is sent: {problem}");
    }
    Telemetry { exporter }
}

/// Whether what the settings say about telemetry can be used: `None` when none is asked for, else a sentence about what is wrong. Nothing is sent.
pub(crate) fn fault(settings: &Settings) -> Option<Result<(), String>> {
    Exported::of("ua", settings).map(|exported| Exporter::start(exported).map(drop))
}

impl Telemetry {
    /// Sends what has not been sent yet, and says so if it cannot be.
    pub(crate) fn finish(self) {
        if let Some(problem) = self.exporter.and_then(Exporter::finish) {
            tracing::warn!("telemetry was lost: {}", crate::output::line(&problem, 300));
        }
    }
}

/// What runs say about their spans, as this program sends them.
#[derive(Debug)]
pub(crate) struct SpansOfRuns {
    for_own_tool_server: BTreeMap<String, String>,
}

impl SpansOfRuns {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { for_own_tool_server: settings::for_own_tool_server(settings) }
    }
}

impl Spans for SpansOfRuns {
    fn begin_run(&self, run: &RunRecord, trace: &Trace) -> tracing::Span {
        ids::begin_run(run, trace)
    }

    fn link_earlier(&self, run: &RunRecord, own: &Trace) {
        ids::link_earlier(run, own);
    }

    fn current(&self) -> CurrentSpan {
        parents::current_span()
    }

    fn for_own_tool_server(&self) -> BTreeMap<String, String> {
        self.for_own_tool_server.clone()
    }
}

/// What to send, if this command works on something that is worth it and a collector is configured.
fn exported(command: &Command, settings: &Settings) -> Option<Exported> {
    match command {
        Command::Runs(_)
        | Command::Calls(_)
        | Command::Questions(_)
        | Command::Answer(_)
        | Command::Turns(_)
        | Command::Tools(_)
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Schema(_)
        | Command::Db(_)
        | Command::Shim(_) => None,
        #[cfg(feature = "toolserver")]
        Command::Toolserver(_) => Exported::of("ua-toolserver", settings),
        // Whatever else there is may drive a run.
        _ => Exported::of("ua", settings),
    }
}

/// Lines on standard error.
fn log(format: LogFormat, settings: &Settings) -> BoxedLayer {
    let wanted = settings.var("UA_LOG").unwrap_or_else(|| LOG_DEFAULT.to_owned());
    // What is no filter was refused before, but for the commands that say what is wrong with the configuration.
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    let never = ["ua::content=off", "opentelemetry=off", "opentelemetry_sdk=off", "opentelemetry_otlp=off"];
    let filter = never.iter().filter_map(|off| off.parse().ok()).fold(filter, EnvFilter::add_directive);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(crate::terminal::LogWriter::new)
        .with_ansi(false)
        .log_internal_errors(false);
    match format {
        // Nobody asked for diagnostics: what is left are warnings, in the form of every other one.
        LogFormat::Text if settings.var("UA_LOG").is_none() => {
            lines.event_format(AsSentence).with_filter(filter.and(events_only())).boxed()
        }
        // Without the spans around an event: their fields would hide it.
        LogFormat::Text => lines.without_time().with_filter(filter.and(events_only())).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    }
}

fn events_only() -> FilterFn {
    let is_event: fn(&tracing::Metadata<'_>) -> bool = |metadata| metadata.is_event();
    FilterFn::new(is_event).with_max_level_hint(LevelFilter::TRACE)
}

/// Spans and metrics.
fn export(exporter: &Exporter) -> Vec<BoxedLayer> {
    let settings = exporter.settings();
    let mut layers = Vec::new();
    if let Some(tracer) = exporter.tracer() {
        let content = if settings.content { LevelFilter::TRACE } else { LevelFilter::OFF };
        let wanted = Targets::new().with_target(OURS, settings.level).with_target(CONTENT, content);
        let spans = tracing_opentelemetry::layer().with_tracer(tracer);
        let spans = spans.with_location(false).with_target(false).with_threads(false).with_tracked_inactivity(false);
        layers.push(spans.with_filter(ExportFilter::new(wanted, settings.content)).boxed());
    }
    if let Some(meter) = exporter.meter() {
        let wanted = Targets::new().with_target(OURS, LevelFilter::DEBUG);
        layers.push(metrics::Metrics::new(&meter).with_filter(wanted).boxed());
    }
    layers
}
