//! Telling a person elsewhere that a client of the gateway waits for them, by the alerts that runs have.
//!
//! Invariants: no call waits for an alert, and none fails with one; what is wrong with an alert, or with its settings, stands in the broker's log.
//! Proved by: `tests/e2e/gateway_alerts.rs`.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use ua_broker::Broker;
use ua_core::{QuestionId, Timestamp};
use ua_store::{QuestionRecord, RunStore as _, Store as _};

use super::{GatewayConfig, environment};
use crate::alert::{Alerts, check_alerts};
use crate::database::Database;
use crate::env::Process;
use crate::error::HostError;
use crate::home::Home;
use crate::host::Host;
use crate::questions;
use crate::settings::Settings;

/// How often it is looked for questions, of which each is told when it is there at two looks: one that the client's dialogue shows, or that is
/// answered at once, is none to be told of elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after an alert that failed it is tried again.
const AGAIN: Duration = Duration::from_mins(5);

/// Tells of the questions of a broker, for as long as it is waited for.
pub(super) async fn tell_of_questions(host: &Host, home: &Home, store: &Database, broker: &Broker) -> Infallible {
    let (clock, mut telling) = (&host.env().clock, Telling::default());
    loop {
        match Alerts::from_settings(host.settings(), home) {
            Ok(None) => std::future::pending().await,
            Ok(Some(alerts)) => telling.look(&alerts, home, store, broker, host.env().now()).await,
            // A program may be installed meanwhile.
            Err(error) => telling.warn_once(&format!("no alert can be sent: {error}")),
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

/// What is wrong with the alerts of a broker, as it would be started now.
///
/// # Errors
/// That.
pub fn alerts_fault(host: &Host, root: &Path) -> Result<(), HostError> {
    let (Ok(config), Ok(home)) =
        (GatewayConfig::read(root), Home::new(host.settings(), Some(root), host.known_secrets()))
    else {
        // That keeps it from starting, and is said by whoever starts it.
        return Ok(());
    };
    let variables = environment::of_broker(host.settings(), root, &config);
    let program = host.settings().program().ok();
    let settings = Settings::read(Process { variables, folder: Some(root.to_path_buf()), program });
    check_alerts(&settings, &home)
}

/// What was told of by this process.
#[derive(Debug, Default)]
struct Telling {
    /// Questions that were open at the look before.
    seen: HashSet<QuestionId>,
    told: HashSet<QuestionId>,
    /// Those of which telling failed, and when it is tried again.
    not_before: HashMap<QuestionId, Timestamp>,
    warned: Option<String>,
}

impl Telling {
    async fn look(&mut self, alerts: &Alerts, home: &Home, store: &Database, broker: &Broker, now: Timestamp) {
        let mut open = match store.open_questions(None).await {
            Ok(open) => open,
            Err(error) => return tracing::debug!(%error, "the questions cannot be read now"),
        };
        open.retain(|question| question.answer.is_none());
        let is_due = |question: &&QuestionRecord| {
            let id = &question.question_id;
            let is_early = self.not_before.get(id).is_some_and(|before| now < *before);
            self.seen.contains(id) && !self.told.contains(id) && !is_early && !broker.is_shown(id)
        };
        let due: Vec<&QuestionRecord> = open.iter().filter(is_due).collect();
        for question in due {
            let run = match store.run(&question.run_id).await {
                Ok(run) => run,
                Err(error) => return tracing::debug!(%error, "a session cannot be read now"),
            };
            // What a job asks is told by whoever drives it.
            let is_told = if ua_store::is_gateway(&run) {
                let known = match questions::beside(home, store, question).await {
                    Ok(beside) => beside.known,
                    Err(error) => return tracing::debug!(%error, "what is known about a question cannot be read now"),
                };
                alerts.tell_of_question(&|why| tracing::warn!("{why}"), &run, question, &known).await
            } else {
                true
            };
            if is_told {
                self.told.insert(question.question_id.clone());
            } else {
                self.not_before.insert(question.question_id.clone(), now.plus(AGAIN));
            }
        }
        let open: HashSet<QuestionId> = open.into_iter().map(|question| question.question_id).collect();
        self.told.retain(|question| open.contains(question));
        self.not_before.retain(|question, _| open.contains(question));
        self.seen = open;
    }

    fn warn_once(&mut self, why: &str) {
        if self.warned.as_deref() != Some(why) {
            tracing::warn!("{why}");
            self.warned = Some(why.to_owned());
        }
    }
}
