//! What may leave this machine.
//!
//! A diagnostic is written for the person at this terminal and may quote what a provider, a tool or the file system said. So only
//! spans leave, and events that say what happened in a fixed word and numbers; their message begins with `ua.`.

use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter};

/// How the message of an event begins that may leave.
const FIXED: &str = "ua.";

/// The filter of everything that is sent to a collector.
pub(super) struct ExportFilter {
    targets: Targets,
    content: bool,
}

impl ExportFilter {
    /// Lets through what `targets` lets through; with `content` also what people, models, tools and diagnostics said.
    pub(super) fn new(targets: Targets, content: bool) -> Self {
        Self { targets, content }
    }
}

impl<S: Subscriber> Filter<S> for ExportFilter {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::enabled(&self.targets, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = Filter::<S>::callsite_enabled(&self.targets, metadata);
        // Whoever may still say no to an event must not promise to take every one of its kind.
        if interest.is_always() && metadata.is_event() && !self.content { Interest::sometimes() } else { interest }
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        let mut message = Message(false);
        if !self.content {
            event.record(&mut message);
        }
        self.content || message.0
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.targets)
    }
}

/// Whether an event's message is a fixed word.
struct Message(bool);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0 = value.starts_with(FIXED);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").starts_with(FIXED);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Keeps the names of the fields of every event that it is shown.
    struct FieldNames(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for FieldNames {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let names: Vec<&str> = event.metadata().fields().iter().map(|field| field.name()).collect();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(names.join(" "));
        }
    }

    fn kept(content: bool) -> Vec<String> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let targets = Targets::new().with_target("ua_", LevelFilter::INFO);
        let layer = FieldNames(Arc::clone(&seen)).with_filter(ExportFilter::new(targets, content));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info!(target: "ua_runner", turn = 1, "ua.turn.committed");
            tracing::warn!(target: "ua_runner", why = "a canary", "a request to the model failed, asking again");
            tracing::debug!(target: "ua_runner", omitted = 1, "ua.history.cut");
            tracing::info!(target: "hyper", canary = 1, "ua.not.ours");
        });
        seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[test]
    fn prose_stays_here_and_fixed_words_leave() {
        assert_eq!(kept(false), ["message turn"]);
        assert_eq!(kept(true), ["message turn", "message why"]);
    }
}
