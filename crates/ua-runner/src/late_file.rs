//! The file of answers that the database did not take: one line of JSON each, synced.
//!
//! It is written when nothing else can be, so it is opened anew each time, and what is wrong with it is told and no more.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use ua_core::CallId;
use ua_ledger::{LateReplies, said};
use ua_store::LateReply;

use crate::watch::{RunEvent, Watcher};

/// As much of it is read.
const MOST: u64 = 64 << 20;

/// The file of one root.
#[derive(Debug, Clone)]
pub struct LateFile {
    path: PathBuf,
    /// Attempts whose answer it could not take, which is logged once: whoever waits for room tries again and again.
    logged: Arc<Mutex<BTreeSet<(CallId, u32)>>>,
}

impl LateFile {
    /// Its name in a root.
    pub const NAME: &str = "late_replies.log";

    /// The file at `path`; it is made with the first answer.
    pub fn at(path: PathBuf) -> Self {
        Self { path, logged: Arc::default() }
    }

    /// Opens it: no link is followed, no pipe is waited for, and what is no file is none.
    fn open(&self, options: &mut OpenOptions) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(&self.path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
    }

    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn append(&self, late: &LateReply) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().append(true).create(true).mode(0o600))?;
        // A line that a kill cut in half takes no other along.
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let cut = if last == [b'\n'] { "" } else { "\n" };
        let line = serde_json::to_string(late)?;
        file.write_all(format!("{cut}{line}\n").as_bytes())?;
        file.sync_all()
    }
}

impl LateReplies for LateFile {
    fn keep(&self, late: &LateReply) -> Result<(), String> {
        let (call, path) = (&late.tool_call_id, self.path.display());
        self.append(late).map_err(|error| {
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            if logged.insert((call.clone(), late.attempt)) {
                tracing::error!(%call, %path, %error, "an answer that the database does not accept was not kept");
            }
            format!("{path} cannot be written: {error}")
        })?;
        // No warning: nothing has to be done, and who is to know that the database is waited for is told by what waits.
        tracing::info!(%call, file = %path, "the database has not taken an answer yet; it is kept in a file, and stored from there");
        Ok(())
    }

    fn all(&self) -> Vec<LateReply> {
        self.having("").unwrap_or_default()
    }

    fn about(&self, call: &CallId) -> Vec<LateReply> {
        let mut late = self.having(call.as_str()).unwrap_or_default();
        late.retain(|late| late.tool_call_id == *call);
        late
    }
}

impl LateFile {
    /// The answers whose lines have this in them. There is no file, but after such a trouble.
    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn having(&self, word: &str) -> io::Result<Vec<LateReply>> {
        let mut text = String::new();
        self.open(&mut OpenOptions::new())?.take(MOST).read_to_string(&mut text)?;
        let lines = text.lines().filter(|line| line.contains(word));
        Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// Keeps answers elsewhere, and has whoever watches the run told of one that could not be kept, once.
#[derive(Clone)]
pub(crate) struct TellingLate {
    late: Arc<dyn LateReplies>,
    watcher: Watcher,
    told: Arc<Mutex<BTreeSet<(CallId, u32)>>>,
}

impl TellingLate {
    pub(crate) fn new(late: Arc<dyn LateReplies>, watcher: Watcher) -> Self {
        Self { late, watcher, told: Arc::default() }
    }
}

impl std::fmt::Debug for TellingLate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TellingLate").field(&self.late).finish()
    }
}

impl LateReplies for TellingLate {
    fn keep(&self, late: &LateReply) -> Result<(), String> {
        self.late.keep(late).inspect_err(|why| {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.insert((late.tool_call_id.clone(), late.attempt)) {
                let (call_id, said, why) = (late.tool_call_id.clone(), said(&late.reply), why.clone());
                (self.watcher)(RunEvent::AnswerNotKept { call_id, said, why });
            }
        })
    }

    fn all(&self) -> Vec<LateReply> {
        self.late.all()
    }

    fn about(&self, call: &CallId) -> Vec<LateReply> {
        self.late.about(call)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests damage the file that they look at")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;
    use ua_core::{RawReply, RunId, Timestamp};

    use super::*;

    #[test]
    fn an_answer_is_found_by_its_call_and_a_cut_line_takes_none_along() {
        let folder = tempfile::tempdir().unwrap();
        let file = LateFile::at(folder.path().join(LateFile::NAME));
        let late = |call: &str, attempt| LateReply {
            at: Timestamp::from_millis(1_767_323_045_000),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse(call).unwrap(),
            attempt,
            sent_at: None,
            reply: RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": "sent"}]}) },
        };
        assert!(file.about(&late("call_1", 1).tool_call_id).is_empty());
        file.keep(&late("call_1", 1)).unwrap();
        let path = folder.path().join(LateFile::NAME);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\": \"20").unwrap();
        file.keep(&late("call_2", 1)).unwrap();
        file.keep(&late("call_1", 2)).unwrap();
        assert_eq!(file.about(&late("call_1", 1).tool_call_id), [late("call_1", 1), late("call_1", 2)]);
        assert_eq!(file.about(&late("call_2", 1).tool_call_id), [late("call_2", 1)]);
        assert_eq!(file.all(), [late("call_1", 1), late("call_2", 1), late("call_1", 2)]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(LateFile::NAME)).unwrap();
        let late = LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse("call_1").unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, ""),
        };
        let refused = LateFile::at(folder.path().join(LateFile::NAME)).keep(&late).unwrap_err();
        assert!(!elsewhere.exists() && refused.contains("cannot be written"), "{refused}");
    }

    #[test]
    fn whoever_watches_is_told_once_of_an_answer_that_is_kept_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let watcher: Watcher = Arc::new(move |event| heard.lock().unwrap().push(event));
        let missing = folder.path().join("missing").join(LateFile::NAME);
        let telling = TellingLate::new(Arc::new(LateFile::at(missing.clone())), watcher);
        let late = LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse("call_1").unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, "sent as 7"),
        };
        for _ in 0..2 {
            assert!(telling.keep(&late).is_err());
        }
        std::fs::create_dir(missing.parent().unwrap()).unwrap();
        telling.keep(&late).unwrap();
        let told = told.lock().unwrap();
        let [RunEvent::AnswerNotKept { call_id, said, why }] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((call_id.as_str(), said.as_str()), ("call_1", "HTTP 200: sent as 7"));
        assert!(why.contains("No such file"), "{why}");
    }
}
