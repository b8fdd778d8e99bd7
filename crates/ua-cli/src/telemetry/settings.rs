//! What is sent where, from OpenTelemetry's own environment variables and two of ours.
//!
//! Endpoints, headers, compression, sampling, batch sizes, limits and resource attributes are read by the
//! OpenTelemetry libraries under their standard names; here stands what they leave to the program.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;
use ua_host::Settings;

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Exported {
    /// The service, unless the environment names it.
    pub(crate) service: &'static str,
    /// Whether spans are sent.
    pub(crate) traces: bool,
    /// Whether metrics are sent.
    pub(crate) metrics: bool,
    /// Whether prompts, replies, arguments and results go with the spans.
    pub(crate) content: bool,
    /// How much of what happens becomes spans and events.
    pub(crate) level: LevelFilter,
    /// Whether the environment says who speaks.
    pub(crate) names_service: bool,
    /// Whether the environment says how often spans are sent.
    pub(crate) sets_delay: bool,
    /// How long an export of spans may take, if the environment says so.
    pub(crate) timeout_of_traces: Option<Duration>,
    /// The same for metrics.
    pub(crate) timeout_of_metrics: Option<Duration>,
    /// Why nothing is sent: headers open the collector, and would go to another machine unencrypted.
    pub(crate) in_the_clear: Option<String>,
}

impl Exported {
    /// `None` when no collector is named, or the environment says that nothing is to be sent.
    pub(crate) fn of(service: &'static str, settings: &Settings) -> Option<Self> {
        Self::read(service, |name| settings.var(name))
    }

    fn read(service: &'static str, var: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if var("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let everything = var("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
        let is_wanted = |signal: &str| {
            let named = everything || var(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")).is_some();
            let refused =
                var(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|value| value.eq_ignore_ascii_case("none"));
            named && !refused
        };
        let millis = |name: &str| var(name).and_then(|value| value.parse().ok()).map(Duration::from_millis);
        let timeout_of = |signal: &str| {
            millis(&format!("OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")).or_else(|| millis("OTEL_EXPORTER_OTLP_TIMEOUT"))
        };
        let is_on = |name: &str| var(name).is_some_and(|value| matches!(value.as_str(), "1" | "true"));
        let level = var("UA_OTEL_LEVEL").and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
        let (traces, metrics) = (is_wanted("TRACES"), is_wanted("METRICS"));
        // Each signal may have an address and headers of its own.
        let said = |signal: &str, what: &str| {
            let names = [format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
            names.into_iter().find_map(|name| var(&name).map(|value| (name, value)))
        };
        let in_the_clear = |signal: &str| {
            let (address, _) = said(signal, "ENDPOINT").filter(|(_, to)| ua_host::base_url::goes_in_the_clear(to))?;
            let (headers, _) = said(signal, "HEADERS").filter(|(_, value)| !value.trim().is_empty())?;
            Some(format!(
                "what {headers} says would go to the collector unencrypted; set {address} to an https:// address (http:// is for this \
                 machine only)"
            ))
        };
        let signals = [(traces, "TRACES"), (metrics, "METRICS")];
        let exported = Self {
            service,
            traces,
            metrics,
            in_the_clear: signals
                .into_iter()
                .filter(|(is_sent, _)| *is_sent)
                .find_map(|(_, signal)| in_the_clear(signal)),
            content: is_on("UA_OTEL_CONTENT"),
            level,
            names_service: var("OTEL_SERVICE_NAME").is_some()
                || var("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name=")),
            sets_delay: var("OTEL_BSP_SCHEDULE_DELAY").is_some(),
            timeout_of_traces: timeout_of("TRACES"),
            timeout_of_metrics: timeout_of("METRICS"),
        };
        (exported.traces || exported.metrics).then_some(exported)
    }
}

/// The variables that our own tool server needs to send its spans to the same collector. No other tool server gets them:
/// headers may hold a token.
pub(crate) fn for_own_tool_server(settings: &Settings) -> BTreeMap<String, String> {
    if Exported::of("ua-toolserver", settings).is_none() {
        return BTreeMap::new();
    }
    let mut passed = settings.beginning_with(&["OTEL_", "UA_OTEL_"]);
    // A file of settings may say these, too.
    let ours = ["OTEL_EXPORTER_OTLP_ENDPOINT", "UA_OTEL_LEVEL", "UA_OTEL_CONTENT"];
    passed.extend(ours.into_iter().filter_map(|name| Some((name.to_owned(), settings.var(name)?))));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<(bool, bool, bool, LevelFilter)> {
        let var = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Exported::read("ua", var).map(|s| (s.traces, s.metrics, s.content, s.level))
    }

    #[test]
    fn s10_headers_that_open_a_collector_go_over_tls_or_stay_on_this_machine() {
        let (near, tls, far) = ("http://127.0.0.1:4318", "https://c.example", "http://c.example:4318");
        for own_address in [None, Some(near), Some(tls), Some(far)] {
            for own_header in [None, Some("a=b")] {
                for address in [near, tls, far] {
                    for header in [None, Some("a=b")] {
                        let var = |name: &str| match name {
                            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(address),
                            "OTEL_EXPORTER_OTLP_HEADERS" => header,
                            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => own_address,
                            "OTEL_EXPORTER_OTLP_TRACES_HEADERS" => own_header,
                            _ => None,
                        };
                        let said = Exported::read("ua", |name| var(name).map(str::to_owned)).unwrap().in_the_clear;
                        let of_traces = own_address.unwrap_or(address) == far && own_header.or(header).is_some();
                        let of_metrics = address == far && header.is_some();
                        assert_eq!(
                            said.is_some(),
                            of_traces || of_metrics,
                            "{address} {header:?} {own_address:?} {said:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_is_sent_unless_a_collector_is_named() {
        let url = "http://127.0.0.1:4318";
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("UA_OTEL_CONTENT", "1")]), None);
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", url);
        assert_eq!(read(&[all]), Some((true, true, false, LevelFilter::INFO)));
        assert_eq!(read(&[all, ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(read(&[all, ("OTEL_METRICS_EXPORTER", "none")]), Some((true, false, false, LevelFilter::INFO)));
        assert_eq!(
            read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url), ("UA_OTEL_CONTENT", "1"), ("UA_OTEL_LEVEL", "debug")]),
            Some((true, false, true, LevelFilter::DEBUG))
        );
        assert_eq!(read(&[all, ("OTEL_METRICS_EXPORTER", "none"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn each_kind_has_its_own_time_or_that_of_all() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "700"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "90"),
        ];
        let var = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let read = Exported::read("ua", var).unwrap();
        assert_eq!(read.timeout_of_traces, Some(Duration::from_millis(700)));
        assert_eq!(read.timeout_of_metrics, Some(Duration::from_millis(90)));
    }
}
