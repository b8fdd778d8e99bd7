//! What the policy files of a command line were when a person named them, and those of a job that a person trusted.
//!
//! Naming one trusts what it says then. A run that has begun has the rules themselves in its fingerprint, and one that changed is asked about; but
//! a run that waits for its first turn, and a fork, take the files as they find them, and a checkout may have made something else of one. So their
//! digests are kept with the run, as those of servers are ([`super::known`]), and compared where it begins. The files of the settings are those of
//! every run of the user, whatever they say by then; one that the settings do not name any more is as a named one.
//!
//! A file of the job that was trusted may lower caution, or be what kept a call from being made unasked. Changed, it only raises caution; but what
//! begins with it begins under other rules than the ones a person looked at, so that is asked about as well, until the file is trusted as it is.
//! Proved by: this file's tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::Digest as _;
use ua_core::{PrintedCommand, RunId, Sha256, ShowPath as _, shell_word};

use super::Launch;
use crate::error::HostError;
use crate::placed::{FileKind, Place, Placed};
use crate::policies;
use crate::settings::Settings;
use crate::trust;

impl Launch {
    /// Keeps what the named policy files say now, and those of the job that are trusted. What cannot be read is refused where the rules are made.
    pub(super) fn know_policies(&mut self, settings: &Settings) {
        let named = self.policies.iter();
        let mut known: BTreeMap<PathBuf, String> = named.map(|file| (file.clone(), digest_of(file))).collect();
        let before = self.known_policies.take().unwrap_or_default();
        for file in self.job_policies.iter().flatten() {
            // Whoever names other files says nothing about those of the job.
            let digest = before.get(file).cloned().or_else(|| is_trusted(settings, file).then(|| digest_of(file)));
            if let Some(digest) = digest {
                known.entry(file.clone()).or_insert(digest);
            }
        }
        self.known_policies = Some(known);
    }

    /// Refuses to begin `what` with named policy files that are not what they were when they were named, and with those of the job that were trusted
    /// then and are not as they are now. A named one of which no digest is stored is not known, and refused as well.
    ///
    /// # Errors
    /// One is another.
    pub(crate) fn check_policies(&self, settings: &Settings, what: Begun<'_>) -> Result<(), HostError> {
        let of_settings = policies::configured(settings).unwrap_or_default();
        let (of_user, of_job) = self.named_policies();
        let before = |file: &PathBuf| self.known_policies.as_ref().and_then(|known| known.get(file));
        let named = of_user
            .iter()
            .filter(|file| !of_settings.contains(file) && before(file).is_none_or(|digest| *digest != digest_of(file)));
        let of_job = of_job.iter().filter(|file| {
            let is_another = before(file).is_some_and(|digest| *digest != digest_of(file));
            is_another && !of_user.contains(file) && !is_trusted(settings, file)
        });
        let changed: Vec<(&Path, bool)> =
            named.map(|file| (file.as_path(), true)).chain(of_job.map(|file| (file.as_path(), false))).collect();
        if changed.is_empty() || self.accepts_policy(settings) {
            return Ok(());
        }
        let next = match what {
            Begun::Fork => {
                let named = changed.iter().filter(|(_, is_named)| *is_named);
                let again: Vec<String> = named.map(|(file, _)| format!("--policy {}", shell_word(file))).collect();
                let of_job = changed.iter().filter(|(_, is_named)| !is_named);
                let trust = |file: &Path| PrintedCommand::of("ua trust").word(file).in_code();
                let trust: Vec<String> = of_job.map(|(file, _)| trust(file)).collect();
                let again = (!again.is_empty()).then(|| format!("name them again (`{}`)", again.join(" ")));
                let trust = (!trust.is_empty()).then(|| format!("trust what came with the job ({})", trust.join(", ")));
                again.into_iter().chain(trust).collect::<Vec<String>>().join(", and ")
            }
            Begun::Run(run) => format!("accept them (`ua resume {run} --accept policy`), or submit the run again"),
        };
        let shown: Vec<String> = changed.iter().map(|(file, _)| file.shown().to_string()).collect();
        let words =
            format!("these policy files changed since they were named or trusted for the run: {}", shown.join(", "));
        Err(HostError::waiting(words).hint(format!("look at what changed, then {next}")).not_begun())
    }
}

/// What begins with the policy files of a launch.
#[derive(Clone, Copy)]
pub(crate) enum Begun<'r> {
    /// A fork, whose command line may name them again.
    Fork,
    /// A run that was submitted, or has waited.
    Run(&'r RunId),
}

/// Whether a person trusted a policy file as it is now.
fn is_trusted(settings: &Settings, file: &Path) -> bool {
    let placed = Place::named(FileKind::Policy, file).read();
    placed.is_ok_and(|placed| trust::policy::is_trusted(settings, file, &placed.into_text()))
}

/// The digest of a file's text; empty where it cannot be read.
fn digest_of(file: &Path) -> String {
    let text = Place::named(FileKind::Policy, file).read().map(Placed::into_text);
    text.map_or_else(|_| String::new(), |text| Sha256::from_bytes(sha2::Sha256::digest(&text).into()).to_hex())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_named_policy_that_changed_is_not_begun_with_until_it_is_named_again() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("pol.toml"), dir.path().join("other.toml"));
        fs::write(&file, "one").unwrap();
        let settings = Settings::of_process();
        let run = RunId::parse("run_1").unwrap();
        let mut launch = Launch::for_inspection(dir.path().to_path_buf());
        launch.policies = vec![file.clone(), other.clone()];
        launch.job_policies = Some(Vec::new());
        // What no digest is stored of is not known, whoever left it out.
        assert!(launch.check_policies(&settings, Begun::Fork).is_err());
        launch.know_policies(&settings);
        launch.check_policies(&settings, Begun::Fork).unwrap();
        let mut replaced = launch.clone();
        replaced.policies = vec![dir.path().join("another.toml")];
        assert!(replaced.check_policies(&settings, Begun::Fork).is_err(), "it is not the one that was named");
        let stored = Launch::from_stored(&launch.to_stored()).unwrap();
        stored.check_policies(&settings, Begun::Fork).unwrap();
        for (path, text) in [(&file, Some("two")), (&file, None), (&other, Some("there now"))] {
            let before = fs::read(path).ok();
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let refused = stored.check_policies(&settings, Begun::Fork).unwrap_err().to_string();
            assert!(refused.contains(&path.display().to_string()), "{refused}");
            assert!(stored.check_policies(&settings, Begun::Run(&run)).is_err());
            let mut again = stored.clone();
            again.know_policies(&settings);
            again.check_policies(&settings, Begun::Fork).unwrap();
            match before {
                Some(before) => fs::write(path, before).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            stored.check_policies(&settings, Begun::Fork).unwrap();
        }
        // One that is not named any more decides nothing.
        let mut fewer = stored.clone();
        fewer.policies = vec![other];
        fs::write(&file, "two").unwrap();
        fewer.check_policies(&settings, Begun::Fork).unwrap();
    }

    /// A word for a file of the job is about its text, in a fork of its run too, whatever else is named for that.
    #[test]
    fn a_trusted_policy_of_a_job_that_changed_is_not_begun_with_until_it_is_trusted_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (trusted, other) = (dir.path().join("trusted.toml"), dir.path().join("other.toml"));
        fs::write(&trusted, "# one\n").unwrap();
        fs::write(&other, "# one\n").unwrap();
        let state = dir.path().join("state").display().to_string();
        let settings = Settings::of_process().with("XDG_STATE_HOME", Some(state));
        let trust = || {
            let mut record = trust::Trusted::read(&settings).unwrap();
            record.add(trust::Entry {
                file: trust::canonical(&trusted),
                server: String::new(),
                digest: trust::policy::PolicyReview::of(&settings, &trusted).unwrap().digest,
                parts: BTreeMap::new(),
                at: ua_core::Timestamp::from_millis(0),
                by: None,
                annotations: false,
                is_policy: true,
            });
            record.write(&settings).unwrap();
        };
        trust();
        let mut launch = Launch::for_inspection(dir.path().to_path_buf());
        launch.job_policies = Some(vec![trusted.clone(), other.clone()]);
        launch.know_policies(&settings);
        let mut stored = Launch::from_stored(&launch.to_stored()).unwrap();
        // What nobody trusted only raises caution, whatever it says.
        fs::write(&other, "# two\n").unwrap();
        stored.check_policies(&settings, Begun::Fork).unwrap();
        fs::write(&trusted, "# two\n").unwrap();
        for _ in 0..2 {
            let refused = stored.check_policies(&settings, Begun::Fork).unwrap_err();
            let hint = refused.hint_text().unwrap_or_default();
            assert!(refused.to_string().contains("trusted.toml") && hint.contains("ua trust "), "{refused} {hint}");
            assert!(!refused.to_string().contains("other.toml") && !hint.contains("--policy"), "{refused} {hint}");
            // Naming another file says nothing about this one.
            stored.policies = vec![other.clone()];
            stored.know_policies(&settings);
        }
        trust();
        stored.check_policies(&settings, Begun::Fork).unwrap();
        // A job that does not have it any more does not begin with it.
        fs::write(&trusted, "# three\n").unwrap();
        assert!(stored.check_policies(&settings, Begun::Fork).is_err());
        stored.job_policies = Some(Vec::new());
        stored.check_policies(&settings, Begun::Fork).unwrap();
    }
}
