//! What the policy files of a command line were when a person named them.
//!
//! Naming one trusts what it says then. A run that has begun has the rules themselves in its fingerprint, and one that changed is asked about; but
//! a run that waits for its first turn, and a fork, take the files as they find them, and a checkout may have made something else of one. So their
//! digests are kept with the run, as those of servers are ([`super::known`]), and compared where it begins. The files of the settings are those of
//! every run of the user, whatever they say by then.
//! Proved by: this file's tests.

use std::path::Path;

use sha2::Digest as _;
use ua_core::{RunId, Sha256};
use ua_resume::shell_word;

use super::Launch;
use crate::error::HostError;
use crate::paths::read;
use crate::policies;
use crate::settings::Settings;
use crate::text::plain;

impl Launch {
    /// Keeps what the named policy files say now. What cannot be read is refused where the rules are made.
    pub(super) fn know_policies(&mut self, settings: &Settings) {
        let of_settings = policies::configured(settings).unwrap_or_default();
        let named = self.policies.iter().filter(|file| !of_settings.contains(file));
        self.known_policies = Some(named.map(|file| (file.clone(), digest_of(file))).collect());
    }

    /// Refuses to begin `what` with named policy files that are not what they were when they were named. A run of an older version has no
    /// digests.
    ///
    /// # Errors
    /// One is another.
    pub(crate) fn check_policies(&self, what: Begun<'_>) -> Result<(), HostError> {
        let Some(known) = &self.known_policies else { return Ok(()) };
        let changed = known.iter().filter(|(file, digest)| self.policies.contains(file) && digest_of(file) != **digest);
        let changed: Vec<String> = changed.map(|(file, _)| file.display().to_string()).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let next = match what {
            Begun::Fork => {
                let again: Vec<String> =
                    changed.iter().map(|file| format!("--policy {}", plain(&shell_word(file)))).collect();
                format!("name them again (`{}`)", again.join(" "))
            }
            Begun::Run(run) => format!("accept them (`ua resume {run} --accept policy`), or submit the run again"),
        };
        let shown: Vec<String> = changed.iter().map(|file| plain(file)).collect();
        let words = format!("these policy files changed since they were named for the run: {}", shown.join(", "));
        Err(HostError::waiting(words).hint(format!("look at what changed, then {next}; nothing was started")))
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

/// The digest of a file's text; empty where it cannot be read.
fn digest_of(file: &Path) -> String {
    let text = read(file, "the policy file");
    text.map_or_else(|_| String::new(), |text| Sha256::from_bytes(sha2::Sha256::digest(&text).into()).to_hex())
}

#[cfg(test)]
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
        // One of an older version.
        launch.check_policies(Begun::Fork).unwrap();
        launch.know_policies(&settings);
        let stored = Launch::from_stored(&launch.to_stored()).unwrap();
        stored.check_policies(Begun::Fork).unwrap();
        for (path, text) in [(&file, Some("two")), (&file, None), (&other, Some("there now"))] {
            let before = fs::read(path).ok();
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let refused = stored.check_policies(Begun::Fork).unwrap_err().to_string();
            assert!(refused.contains(&path.display().to_string()), "{refused}");
            assert!(stored.check_policies(Begun::Run(&run)).is_err());
            let mut again = stored.clone();
            again.know_policies(&settings);
            again.check_policies(Begun::Fork).unwrap();
            match before {
                Some(before) => fs::write(path, before).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            stored.check_policies(Begun::Fork).unwrap();
        }
        // One that is not named any more decides nothing.
        let mut fewer = stored.clone();
        fewer.policies = vec![other];
        fs::write(&file, "two").unwrap();
        fewer.check_policies(Begun::Fork).unwrap();
    }
}
