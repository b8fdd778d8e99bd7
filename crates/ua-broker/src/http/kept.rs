//! What is kept of sessions over HTTP, so that they outlive the broker: a file for each, named by a digest of the session's name.
//!
//! A client whose broker was started anew continues in its session, and what it asks for once more is asked for by the session that asked
//! first. Of a session it is kept whose it is, with which tool server and in which project, and how its client began; none of its messages.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{Redactor, Timestamp, sha256};
use ua_files::{Folder, Kind};

use crate::broker::Broker;

/// How long a session is kept that nobody uses: as long as a receipt is handed out.
const KEPT_FOR: Duration = crate::rules::OWED_FOR;
/// The most that is read of one, in bytes: how a client began is one message of it, which has at most half of that.
const MOST: u64 = 2 * super::LONGEST as u64;

/// The folder where sessions of clients over HTTP are kept.
#[derive(Debug, Clone)]
pub struct KeptSessions {
    folder: PathBuf,
}

/// A session, as far as it outlives the broker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptSession {
    /// Whose token it came with.
    pub(super) who: String,
    /// The tool server.
    pub(super) server: String,
    /// The project that its client named.
    pub(super) project: Option<String>,
    /// The name of its connection, by which its calls are those of one session.
    pub(super) connection: String,
    /// The parameters of the client's `initialize`; `None` where each request stands for itself.
    pub(super) began_with: Option<Value>,
    /// The revision that was agreed on.
    pub(super) revision: Option<String>,
}

impl KeptSession {
    /// A new one.
    pub(super) fn new(broker: &Broker, who: &str, server: &str, project: Option<String>) -> Self {
        Self {
            who: who.to_owned(),
            server: server.to_owned(),
            project,
            connection: broker.env.uuid_v7(),
            began_with: None,
            revision: None,
        }
    }
}

/// The name under which is kept what serves a client without sessions.
pub(super) fn standing_id(who: &str, server: &str, project: Option<&str>) -> String {
    json!(["standing", who, server, project]).to_string()
}

impl KeptSessions {
    /// Those of this folder; it is made when there is something to be kept.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn open(&self) -> io::Result<Folder> {
        Folder::open(&self.folder)
    }

    /// Keeps one, on stable storage: without what entries of clients keep secret, whoever said it and wherever it stands. Its tool server is told the
    /// same by the next broker.
    pub(super) fn keep(&self, redactor: &Redactor, id: &str, session: &KeptSession) -> io::Result<()> {
        let mut session = serde_json::to_value(session)?;
        redactor.json(&mut session);
        Folder::make(&self.folder)?.replace_durably(name(id), &serde_json::to_vec(&session)?)
    }

    /// The one of this name that was used within `life`.
    pub(super) fn find(&self, id: &str, now: Timestamp, life: Duration) -> Option<KeptSession> {
        let file = self.open().and_then(|folder| folder.open_file(name(id))).ok()?;
        let found = file.metadata().ok()?;
        if is_over(found.modified().ok()?, now, life) || found.len() > MOST {
            return None;
        }
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(%error, "a session over HTTP that was kept cannot be read"))
            .ok()
    }

    /// Notes when one was used last.
    pub(super) fn was_used(&self, id: &str, at: Timestamp) {
        // One that is not kept is not used later either.
        let file = self.open().and_then(|folder| folder.open_to_change(name(id)));
        let _unkept = file.and_then(|file| file.set_modified(instant(at)));
    }

    /// Forgets one, whose client ended it.
    pub(super) fn forget(&self, id: &str) {
        let _gone = self.open().and_then(|folder| folder.remove(name(id)));
    }

    /// Forgets all that nobody used for long.
    pub(super) fn forget_old(&self, now: Timestamp) {
        let Ok(folder) = self.open() else { return };
        let entries = folder.entries().unwrap_or_default().into_iter();
        for (name, _) in entries.filter(|(_, kind)| *kind == Kind::File) {
            let used_at = folder.open_file(&name).and_then(|file| file.metadata()?.modified());
            if used_at.is_ok_and(|used_at| is_over(used_at, now, KEPT_FOR)) {
                let _gone = folder.remove(&name);
            }
        }
    }

    /// The one of this name, if it is not forgotten yet.
    pub(super) fn of_client(&self, id: &str, now: Timestamp) -> Option<KeptSession> {
        self.find(id, now, KEPT_FOR)
    }
}

/// The file that one is kept in.
fn name(id: &str) -> String {
    format!("{}.json", sha256(id).to_hex())
}

fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0))
}

fn is_over(used_at: SystemTime, now: Timestamp, life: Duration) -> bool {
    instant(now).duration_since(used_at).is_ok_and(|unused| unused >= life)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_session_is_kept_while_it_is_used_and_a_week_longer() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptSessions::at(folder.path().join("sessions"));
        let at = |hours: i64| Timestamp::from_millis(1_767_323_045_000 + hours * 3_600_000);
        let session = KeptSession {
            who: "codex".into(),
            server: "mail".into(),
            project: None,
            connection: "c1".into(),
            began_with: Some(json!({"protocolVersion": "2025-11-25"})),
            revision: Some("2025-11-25".into()),
        };
        assert_eq!(kept.of_client("s1", at(0)), None);
        kept.keep(&Redactor::default(), "s1", &session).unwrap();
        kept.was_used("s1", at(0));
        assert_eq!(kept.of_client("s1", at(7 * 24 - 1)), Some(session.clone()));
        assert_eq!((kept.of_client("s1", at(7 * 24)), kept.of_client("s2", at(0))), (None, None));
        assert_eq!(kept.find("s1", at(1), Duration::from_hours(1)), None);
        kept.was_used("s1", at(24));
        kept.forget_old(at(8 * 24 - 1));
        assert_eq!(kept.of_client("s1", at(7 * 24)), Some(session));
        kept.forget_old(at(8 * 24));
        assert_eq!(kept.of_client("s1", at(24)), None);
        // What is no session is none, and one that was ended is gone.
        let path = kept.folder.join(name("s1"));
        fs::write(&path, "{").unwrap();
        kept.was_used("s1", at(0));
        assert_eq!(kept.of_client("s1", at(0)), None);
        kept.forget("s1");
        assert!(!path.exists());
    }

    #[test]
    fn what_has_no_end_or_is_elsewhere_is_no_session() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptSessions::at(folder.path().join("sessions"));
        let at = Timestamp::from_millis(1_767_323_045_000);
        let session = KeptSession {
            who: "codex".into(),
            server: "mail".into(),
            project: None,
            connection: "c1".into(),
            began_with: None,
            revision: None,
        };
        kept.keep(&Redactor::default(), "s1", &session).unwrap();
        let path = kept.folder.join(name("s1"));
        // Longer than any that this program writes, though it could be one.
        let text = serde_json::to_string(&session).unwrap();
        let long = " ".repeat(usize::try_from(MOST).unwrap()) + &text;
        fs::write(&path, long).unwrap();
        kept.was_used("s1", at);
        assert_eq!(kept.of_client("s1", at), None);
        // A link in its place is neither followed nor changed, and makes way for the next one.
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, text).unwrap();
        let before = fs::metadata(&elsewhere).unwrap().modified().unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        kept.was_used("s1", at);
        assert_eq!(kept.of_client("s1", at), None);
        assert_eq!(fs::metadata(&elsewhere).unwrap().modified().unwrap(), before);
        kept.keep(&Redactor::default(), "s1", &session).unwrap();
        kept.was_used("s1", at);
        assert!(fs::symlink_metadata(&path).unwrap().is_file() && elsewhere.is_file());
        assert_eq!(kept.of_client("s1", at), Some(session));
    }

    /// However a secret is written, and whoever said it: the client of itself, or the tool server that answered it.
    #[test]
    fn s3_what_is_kept_of_a_session_has_no_secret_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptSessions::at(folder.path().join("sessions"));
        let (secret, in_base64) = ("Zq7Wk2vRt9Lm4Xp8", "WnE3V2sydlJ0OUxtNFhwOA==");
        let redactor = Redactor::new([("API_TOKEN".to_owned(), secret.to_owned())]);
        let info = json!({"name": secret, "title": format!("a {secret}"), "version": in_base64, secret: 1});
        let session = KeptSession {
            who: "codex".into(),
            server: "mail".into(),
            project: Some(format!("/srv/{secret}")),
            connection: "c1".into(),
            began_with: Some(json!({"capabilities": {"experimental": {"x": [secret]}}, "clientInfo": info})),
            revision: Some(secret.into()),
        };
        kept.keep(&redactor, "s1", &session).unwrap();
        let text = fs::read_to_string(kept.folder.join(name("s1"))).unwrap();
        assert!(!text.contains(secret) && !text.contains(in_base64), "{text}");
        let found = kept.of_client("s1", Timestamp::from_millis(0)).unwrap();
        assert_eq!((found.who.as_str(), found.connection.as_str()), ("codex", "c1"));
        assert_eq!(found.began_with.unwrap()["clientInfo"]["name"], "[secret API_TOKEN]");
    }
}
