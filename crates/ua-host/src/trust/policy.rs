//! Trust in the policy files that come with jobs.
//!
//! A job's policy file may say that a tool only looks, that its calls may be repeated, or that what it reads is clean. From a job of somebody
//! else that would open what the built-in rules and names keep closed, so until a person trusted the file it can only raise caution. The
//! word is about its path and the very text that was shown.

use std::path::Path;

use ua_classify::PolicyRules;
use ua_core::{KeyBuilder, ShowPath as _};

use super::{Entry, Trusted, canonical};
use crate::error::{HostError, chain};
use crate::host::Host;
use crate::placed::{FileKind, Place};
use crate::settings::Settings;
use crate::text::plain;

/// The ending by which a file is taken for one of policies, and not of tool servers.
pub const ENDING: &str = "toml";

/// A policy file, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyReview {
    /// What the text is known by.
    pub digest: String,
    /// Whether it is trusted already.
    pub is_trusted: bool,
    text: String,
}

impl PolicyReview {
    /// Reads a policy file.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn of(settings: &Settings, file: &Path) -> Result<Self, HostError> {
        let placed = Place::named(FileKind::Policy, file).read()?;
        placed.parse(|text| {
            PolicyRules::parse(text, &file.shown().to_string()).map_err(|error| {
                HostError::usage(chain(&error)).hint(
                    "`ua trust` takes policy files (.toml), configurations of tool servers and folders of workspaces",
                )
            })
        })?;
        let text = placed.into_text();
        Ok(Self { digest: digest_of(&text), is_trusted: is_trusted(settings, file, &text), text })
    }

    /// What a person is shown: the whole text, indented. Whatever drives a terminal is escaped.
    pub fn shown(&self) -> String {
        let lines = self.text.lines().map(|line| plain(line).replace('\n', " "));
        lines.fold(String::new(), |shown, line| shown + "    " + &line + "\n")
    }
}

/// Trusts a policy file as it was shown.
///
/// # Errors
/// When the record cannot be read or written.
pub fn remember(host: &Host, file: &Path, review: &PolicyReview) -> Result<(), HostError> {
    let mut trusted = Trusted::read(host.settings())?;
    trusted.add(Entry {
        file: canonical(file),
        server: String::new(),
        digest: review.digest.clone(),
        parts: std::collections::BTreeMap::new(),
        at: host.env().now(),
        by: Some(host.settings().user()),
        annotations: false,
        is_policy: true,
    });
    trusted.write(host.settings())
}

/// Whether a person trusted this text of this file. A record that cannot be used says nothing.
pub(crate) fn is_trusted(settings: &Settings, file: &Path, text: &str) -> bool {
    Trusted::read(settings).is_ok_and(|trusted| trusted.allows_policy(&canonical(file), &digest_of(text)))
}

/// What a policy file is known by.
pub(super) fn digest_of(text: &str) -> String {
    KeyBuilder::new("ua.trust.policy.v1").field("text", text).finish().as_str().to_owned()
}
