//! What a person accepted of the policy of a run for whoever drives it next.
//!
//! `ua resume RUN --accept policy` drives the run itself and accepts what it finds. Who leaves the run to a worker accepts the rules as they
//! are on this machine at that moment: their version is kept with the run, and the worker that finds the same version accepts it in that
//! person's name. Rules that changed once more are asked about again.
//! Proved by: this file's tests, `tests/e2e/fingerprint.rs`.

use serde_json::json;
use ua_core::Component;
use ua_store::{NewOverride, OverrideKind, OverrideRecord, RunRecord, RunStore as _};

use super::{Launch, Vouched};
use crate::database::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::settings::Settings;

/// Where the version stands in what is stored. What is stored when a run is driven has a fingerprint instead.
pub(super) const VERSION: &str = "policy_version";

impl Launch {
    /// Accepts the rules of a stored run as they are now, for whoever drives it next.
    ///
    /// # Errors
    /// The rules cannot be read, or the database not written.
    pub async fn accept_policy_of(host: &Host, store: &Database, run: &RunRecord) -> Result<(), HostError> {
        let launch = Self::of_run(host, store, run).await?;
        let version = launch.classifier(host.settings())?.version().to_hex();
        let accepted = NewOverride {
            run_id: run.run_id.clone(),
            kind: OverrideKind::Pin,
            component: Component::Policy.as_str().to_owned(),
            value: Vouched::of(host).seal_accepted(
                &run.run_id,
                Component::Policy,
                json!({VERSION: version, "differences": ["as it was then, for whoever drives the run next"]}),
            ),
            made_by: host.settings().user(),
            at: host.env().now(),
        };
        store.insert_override(accepted).await.map_err(|e| HostError::store("store what was accepted", &e))?;
        Ok(())
    }

    /// Takes over which rules a person accepted for this process. Those that a process accepted since are the run's own by now.
    pub(super) fn take_accepted_policy(&mut self, changes: &[OverrideRecord]) {
        let is_its =
            |row: &&OverrideRecord| row.kind == OverrideKind::Pin && row.component == Component::Policy.as_str();
        let last = changes.iter().rev().find(is_its);
        self.accepted_policy = last.and_then(|row| row.value[VERSION].as_str()).map(str::to_owned);
    }

    /// Whether a person accepted the rules of the run as they are now.
    pub(crate) fn accepts_policy(&self, settings: &Settings) -> bool {
        let is_as_accepted = |accepted: &String| {
            self.classifier(settings).is_ok_and(|classifier| classifier.version().to_hex() == *accepted)
        };
        self.accept.contains(&Component::Policy) || self.accepted_policy.as_ref().is_some_and(is_as_accepted)
    }

    /// The changed components that this process accepts in a person's name.
    pub(crate) fn accepts(&self, settings: &Settings) -> Vec<Component> {
        let mut accepts = self.accept.clone();
        if !accepts.contains(&Component::Policy) && self.accepts_policy(settings) {
            accepts.push(Component::Policy);
        }
        accepts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_was_accepted_counts_until_a_process_pinned_something() {
        let row = |component: &str, value: Value| OverrideRecord {
            run_id: ua_core::RunId::parse("r").unwrap(),
            kind: OverrideKind::Pin,
            component: component.to_owned(),
            value,
            made_by: "somebody".to_owned(),
            created_at: ua_core::Timestamp::from_millis(0),
        };
        let [one, two] = ["1", "2"].map(|version| row("policy", json!({VERSION: version})));
        let pinned = row("policy", json!({"step_id": "s", "fingerprint": {}}));
        let other = row("tools", json!({"step_id": "s", "fingerprint": {}}));
        let accepted = |rows: &[&OverrideRecord]| {
            let mut launch = Launch::for_inspection("/".into());
            launch.take_accepted_policy(&rows.iter().map(|row| (*row).clone()).collect::<Vec<_>>());
            launch.accepted_policy
        };
        for (rows, wanted) in [
            (&[][..], None),
            (&[&one], Some("1")),
            (&[&one, &two], Some("2")),
            (&[&one, &pinned], None),
            (&[&one, &pinned, &two], Some("2")),
            (&[&one, &other], Some("1")),
        ] {
            assert_eq!(accepted(rows).as_deref(), wanted);
        }
    }

    /// A version that is another one by now, or that cannot be compared, accepts nothing.
    #[test]
    fn only_the_rules_that_were_accepted_are() {
        let settings = Settings::of_process();
        let mut launch = Launch::for_inspection("/".into());
        assert!(!launch.accepts_policy(&settings));
        launch.accepted_policy = Some("another".to_owned());
        assert!(!launch.accepts_policy(&settings) && launch.accepts(&settings).is_empty());
        launch.accepted_policy = Some(launch.classifier(&settings).unwrap().version().to_hex());
        assert!(launch.accepts_policy(&settings));
        assert_eq!(launch.accepts(&settings), [Component::Policy]);
    }
}
