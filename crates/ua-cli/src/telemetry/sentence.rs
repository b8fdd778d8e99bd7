//! Diagnostics as the rest of the program says things: `warning: the run could not be given back: the disk is full (run run_1)`, without the
//! name of a module, and without `name=value`. Whoever wants those asks for them (`UA_LOG`).

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use ua_evidence::os_words::in_plain_words;

use crate::output::line;

/// How much of each value is shown.
const MOST: usize = 400;

/// The names of fields that say why.
const REASONS: [&str; 4] = ["error", "why", "problem", "detail"];

/// The form of a line. An error is what a command ends with, so each of these is a warning.
pub(super) struct AsSentence;

impl<S, N> FormatEvent<S, N> for AsSentence
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        writeln!(writer, "warning: {said}")
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    /// Why it came to it.
    reasons: Vec<String>,
    /// What it is about: names with their values.
    about: Vec<String>,
}

impl Said {
    fn take(&mut self, field: &Field, value: &str) {
        let value = line(&in_plain_words(value), MOST);
        match field.name() {
            "message" => self.message = value,
            name if REASONS.contains(&name) => self.reasons.push(value),
            name => self.about.push(format!("{} {value}", name.replace('_', " "))),
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, &format!("{value:?}"));
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.reasons.iter().try_for_each(|reason| write!(f, ": {reason}"))?;
        if self.about.is_empty() { Ok(()) } else { write!(f, " ({})", self.about.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_diagnostic_is_a_sentence() {
        let lines = Lines::default();
        let (out, error) = (lines.clone(), io::Error::from_raw_os_error(28));
        let layer = tracing_subscriber::fmt::layer().with_writer(move || out.clone()).event_format(AsSentence);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!("plain");
            tracing::error!(%error, run_id = "run_1", turn = 3_u32, "{} was not written", "RESTART.md");
            tracing::warn!(why = "no\nlines", "it broke");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "warning: plain\nwarning: RESTART.md was not written: the disk is full (run id run_1, turn 3)\n\
             warning: it broke: no lines\n"
        );
    }
}
