//! The record of what a person let in: `trust.json` in the user's state folder.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ua_core::{ShowPath as _, Timestamp};
use ua_files::{Folder, Kind};

use crate::error::HostError;
use crate::review::ServerReview;
use crate::roots::state_folder;
use crate::settings::Settings;

/// One server that was let in, or one policy file that was trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The configuration file, without links.
    pub file: PathBuf,
    /// The server's name in it; empty for a policy file.
    pub server: String,
    /// What it was then.
    pub digest: String,
    /// The same piece by piece ([`ServerReview::parts`](crate::review::ServerReview::parts)); empty where an earlier version wrote it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
    /// When.
    pub at: Timestamp,
    /// Who let it in; an earlier version did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether what it says of its tools may confirm what their names suggest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub annotations: bool,
    /// The file holds the policies of a job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_policy: bool,
}

/// Everything that was let in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    version: u32,
    entries: Vec<Entry>,
}

const VERSION: u32 = 1;
/// The name of the record.
const FILE: &str = "trust.json";
/// The longest record that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

fn folder(settings: &Settings) -> Result<PathBuf, HostError> {
    state_folder(settings).ok_or_else(|| {
        HostError::usage("ua has no folder to record which tool servers are trusted")
            .hint("set HOME or XDG_STATE_HOME, or name the configuration with --mcp-config")
    })
}

impl Trusted {
    /// Reads the record; empty when there is none.
    pub fn read(settings: &Settings) -> Result<Self, HostError> {
        Self::read_from(&folder(settings)?)
    }

    fn read_from(folder: &Path) -> Result<Self, HostError> {
        let path = folder.join(FILE);
        let unusable = |why: String| {
            HostError::usage(format!("cannot use {}: {why}", path.shown()))
                .hint("correct or remove the file; then `ua trust` asks again")
        };
        // What is opened is asked whose it is: by its name it may be another file a moment later.
        let opened = Folder::open(folder).and_then(|folder| match folder.kind(FILE)? {
            None => Err(ErrorKind::NotFound.into()),
            Some(Kind::File) => folder.open_file(FILE),
            Some(Kind::Folder | Kind::Other) => Err(io::Error::other("it is not a regular file")),
        });
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { version: VERSION, entries: Vec::new() });
            }
            // It, or a folder on the way to it, is another user's: as it is left by a `sudo ua` that kept HOME.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let allow = crate::owner::allow(&path, "u+rwx");
                return Err(unusable(error.to_string()).hint(format!("{allow}; nothing was done")));
            }
            Err(error) => return Err(unusable(error.to_string())),
        };
        let meta = file.metadata().map_err(|error| unusable(error.to_string()))?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            let whose = format!("it belongs to another user ({})", crate::owner::named(meta.uid()));
            return Err(
                unusable(whose).hint(format!("{}; nothing was done", crate::owner::believe_own(meta.uid(), &path)))
            );
        }
        if meta.mode() & 0o022 != 0 {
            return Err(unusable("other users can write to it, so it cannot be trusted".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| unusable(error.to_string()))?;
        let read: Self = serde_json::from_str(&text).map_err(|e| unusable(ua_core::json_fault(&text, &e)))?;
        if read.version != VERSION {
            return Err(unusable(format!("it has version {}, and this program knows {VERSION}", read.version)));
        }
        Ok(read)
    }

    /// Writes the record whole, readable by this user alone.
    pub fn write(&self, settings: &Settings) -> Result<(), HostError> {
        let folder = folder(settings)?;
        self.write_to(&folder).map_err(|e| {
            HostError::storage(format!("cannot write {}: {e}", folder.join(FILE).shown()))
                .hint("make that folder writable")
        })
    }

    fn write_to(&self, folder: &Path) -> io::Result<()> {
        Folder::make(folder)?.replace_durably(FILE, serde_json::to_string_pretty(self)?.as_bytes())
    }

    /// Whether this server of this file was let in as it is.
    pub fn allows(&self, file: &Path, server: &str, digest: &str) -> bool {
        let same = |entry: &Entry| entry.file == file && entry.server == server && entry.digest == digest;
        self.entries.iter().any(|entry| !entry.is_policy && same(entry))
    }

    /// Whether this server of this file was let in, in whatever form.
    pub(super) fn has(&self, file: &Path, server: &str) -> bool {
        self.entries.iter().any(|entry| !entry.is_policy && entry.file == file && entry.server == server)
    }

    /// What changed of a server of a file since it was let in, in words; `None` for one that never was.
    pub fn changes(&self, file: &Path, review: &ServerReview) -> Option<String> {
        let same = |entry: &&Entry| !entry.is_policy && entry.file == file && entry.server == review.server;
        let before = self.entries.iter().find(same).filter(|entry| entry.digest != review.digest)?;
        let unrecorded = || "something that counts; an earlier version did not record it piece by piece".to_owned();
        Some(review.changes(&before.parts).filter(|changes| !changes.is_empty()).unwrap_or_else(unrecorded))
    }

    /// Whether this policy file was trusted as it is.
    pub(super) fn allows_policy(&self, file: &Path, digest: &str) -> bool {
        self.entries.iter().any(|entry| entry.is_policy && entry.file == file && entry.digest == digest)
    }

    /// Whether this server's annotations were believed when it was let in as it is.
    pub(super) fn believes(&self, file: &Path, server: &str, digest: &str) -> bool {
        let same = |entry: &&Entry| entry.file == file && entry.server == server && entry.digest == digest;
        self.entries.iter().filter(same).any(|entry| entry.annotations)
    }

    /// Whether anything of this server of this file may be believed, as it is or as it was.
    pub(super) fn may_believe(&self, file: &Path, server: &str) -> bool {
        self.entries.iter().any(|entry| entry.annotations && entry.file == file && entry.server == server)
    }

    /// Believes the annotations of a server that is let in as it is. Returns whether it is.
    pub(super) fn believe(&mut self, file: &Path, server: &str, digest: &str) -> bool {
        let same = |entry: &&mut Entry| entry.file == file && entry.server == server && entry.digest == digest;
        self.entries.iter_mut().find(same).map(|entry| entry.annotations = true).is_some()
    }

    /// Lets a server in; what it was before is not let in any more.
    pub fn add(&mut self, entry: Entry) {
        self.entries.retain(|other| other.file != entry.file || other.server != entry.server);
        self.entries.push(entry);
    }

    /// Takes the word back for a file. Returns how many servers it was about.
    pub fn revoke(&mut self, file: &Path) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.file != file);
        before - self.entries.len()
    }

    /// What was let in, in the order in which it was.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn entry(server: &str, digest: &str) -> Entry {
        Entry {
            file: "/p/.mcp.json".into(),
            server: server.into(),
            digest: digest.into(),
            parts: BTreeMap::new(),
            at: Timestamp::from_millis(0),
            by: None,
            annotations: false,
            is_policy: false,
        }
    }

    #[test]
    fn a_word_is_about_one_server_of_one_file_as_it_was() {
        let mut trusted = Trusted::default();
        trusted.add(entry("a", "1"));
        trusted.add(entry("b", "1"));
        trusted.add(entry("a", "2"));
        let allows = |file: &str, server: &str, digest: &str| trusted.allows(Path::new(file), server, digest);
        assert!(allows("/p/.mcp.json", "a", "2") && allows("/p/.mcp.json", "b", "1"));
        assert!(!allows("/p/.mcp.json", "a", "1") && !allows("/q/.mcp.json", "a", "2"));
        assert_eq!((trusted.revoke(Path::new("/q/.mcp.json")), trusted.revoke(Path::new("/p/.mcp.json"))), (0, 2));
    }

    #[test]
    fn a_word_about_a_policy_file_is_about_its_path_and_text_and_lets_no_server_in() {
        let mut trusted = Trusted::default();
        let policy = |digest: &str| Entry { file: "/p/evil.toml".into(), is_policy: true, ..entry("", digest) };
        trusted.add(policy("1"));
        let (file, other) = (Path::new("/p/evil.toml"), Path::new("/q/evil.toml"));
        assert!(trusted.allows_policy(file, "1") && !trusted.allows(file, "", "1"));
        assert!(!trusted.allows_policy(file, "2") && !trusted.allows_policy(other, "1"));
        trusted.add(entry("a", "1"));
        assert!(!trusted.allows_policy(Path::new("/p/.mcp.json"), "1"));
        trusted.add(policy("2"));
        assert!(!trusted.allows_policy(file, "1"), "what it was before is not trusted any more");
        assert_eq!(trusted.revoke(file), 1);
        assert!(!trusted.allows_policy(file, "2"));
    }

    #[test]
    fn annotations_are_believed_of_a_server_as_it_was_let_in() {
        let mut trusted = Trusted::default();
        trusted.add(entry("a", "1"));
        let file = Path::new("/p/.mcp.json");
        assert!(!trusted.believes(file, "a", "1") && !trusted.may_believe(file, "a"));
        assert!(
            trusted.believe(file, "a", "1") && !trusted.believe(file, "a", "2") && !trusted.believe(file, "b", "1")
        );
        assert!(trusted.believes(file, "a", "1") && !trusted.believes(file, "a", "2"));
        // Whoever lets it in as it is now was not asked about its annotations.
        trusted.add(entry("a", "2"));
        assert!(!trusted.believes(file, "a", "2"));
    }

    #[test]
    fn the_record_is_the_users_own_or_it_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("ua");
        assert_eq!(Trusted::read_from(&folder).unwrap().entries(), []);
        let mut trusted = Trusted { version: VERSION, entries: Vec::new() };
        trusted.add(entry("a", "1"));
        trusted.write_to(&folder).unwrap();
        assert_eq!(Trusted::read_from(&folder).unwrap(), trusted);
        let path = folder.join("trust.json");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Trusted::read_from(&folder).unwrap_err().to_string().contains("other users can write to it"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Trusted::read_from(&folder).unwrap_err().to_string().contains("not a regular file"));
    }
}
