//! The file of answers that the database did not take: one line of JSON each, synced.
//!
//! It is written when nothing else can be, so it is opened anew each time, and what is wrong with it is told and no more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::OFlags;
use ua_core::CallId;
use ua_ledger::LateReplies;
use ua_store::LateReply;

/// As much of it is read.
const MOST: u64 = 64 << 20;

/// The file of one root.
#[derive(Debug, Clone)]
pub struct LateFile {
    path: PathBuf,
}

impl LateFile {
    /// Its name in a root.
    pub const NAME: &str = "late_replies.log";

    /// The file at `path`; it is made with the first answer.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
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
    fn keep(&self, late: &LateReply) {
        let call = &late.tool_call_id;
        match self.append(late) {
            Ok(()) => {
                tracing::warn!(%call, path = %self.path.display(), "the database does not accept an answer: kept beside it");
            }
            Err(error) => {
                tracing::error!(%call, path = %self.path.display(), %error, "an answer that the database does not accept was not kept");
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn about(&self, call: &CallId) -> Vec<LateReply> {
        // There is none, but after such a trouble.
        let Ok(file) = self.open(&mut OpenOptions::new()) else { return Vec::new() };
        let mut text = String::new();
        if file.take(MOST).read_to_string(&mut text).is_err() {
            return Vec::new();
        }
        let lines = text.lines().filter(|line| line.contains(call.as_str()));
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|late: &LateReply| late.tool_call_id == *call)
            .collect()
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
            reply: RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": "sent"}]}) },
        };
        assert!(file.about(&late("call_1", 1).tool_call_id).is_empty());
        file.keep(&late("call_1", 1));
        let path = folder.path().join(LateFile::NAME);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\": \"20").unwrap();
        file.keep(&late("call_2", 1));
        file.keep(&late("call_1", 2));
        assert_eq!(file.about(&late("call_1", 1).tool_call_id), [late("call_1", 1), late("call_1", 2)]);
        assert_eq!(file.about(&late("call_2", 1).tool_call_id), [late("call_2", 1)]);
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
            reply: RawReply::http(200, ""),
        };
        LateFile::at(folder.path().join(LateFile::NAME)).keep(&late);
        assert!(!elsewhere.exists());
    }
}
