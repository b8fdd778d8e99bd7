//! Taking secrets out of what a process keeps or shows.
//!
//! One redactor for all sinks of a host: what tools and models answer (and so the database, the workspace, the next request), what a
//! front door writes, and what tool servers wrote to their own files. It learns a secret before anybody is given it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use ua_core::{Redactor, ShowPath as _};
use ua_files::{Folder, Kind};
use ua_runner::Workspace;

/// Bytes that are meant as text, without secrets.
pub fn bytes<'b>(redactor: &Redactor, bytes: &'b [u8]) -> Cow<'b, [u8]> {
    if redactor.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let whole = String::from_utf8_lossy(bytes);
    match redactor.text(&whole) {
        Cow::Borrowed(_) => Cow::Borrowed(bytes),
        Cow::Owned(clean) => Cow::Owned(clean.into_bytes()),
    }
}

/// Takes secrets out of what tool servers wrote to their standard error, which goes to files without passing this process: a server may
/// outlive it. To be called when none of them writes any more.
pub(crate) fn scrub_logs(workspace: &Workspace, redactor: &Redactor) {
    let Ok(logs) = workspace.folder().folder(LOGS) else { return };
    for (name, kind) in logs.entries().unwrap_or_default() {
        let is_log = kind == Kind::File && name.to_str().is_some_and(|name| name.ends_with(".stderr.log"));
        if is_log && let Err(error) = scrub(&logs, &name, redactor) {
            tracing::warn!(%error, "secrets could not be taken out of {}", logs.path().join(&name).shown());
        }
    }
}

/// Where tool servers' standard error is kept, in a workspace.
pub(crate) const LOGS: &str = "logs";

/// The most of a log that is looked through. A shim lets none grow that far; of one that did otherwise, the end is kept.
const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;

fn scrub(logs: &Folder, name: &OsStr, redactor: &Redactor) -> io::Result<()> {
    let mut file = logs.open_file(name)?;
    let size = file.metadata()?.len();
    let skipped = size.saturating_sub(MAX_LOG_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let clean = redactor.text(&text);
    match (&clean, skipped) {
        (Cow::Borrowed(_), 0) => Ok(()),
        (clean, 0) => logs.replace(name, clean.as_bytes()),
        // What a secret was cut in two by is not kept either.
        (clean, _) => {
            let whole = clean.split_once('\n').map_or("", |(_, rest)| rest);
            logs.replace(name, format!("[{skipped} bytes before this were removed]\n{whole}").as_bytes())
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_standard_error_is_clean() {
        let redactor = Redactor::new([("CLEAN_TEST".to_owned(), "sk-canary-clean-test".to_owned())]);
        assert_eq!(&*bytes(&redactor, b"a \xff sk-canary-clean-test"), "a \u{fffd} [secret CLEAN_TEST]".as_bytes());
        assert_eq!(&*bytes(&redactor, b"a \xff b"), b"a \xff b");
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::create_in(&ua_files::Folder::open(folder.path()).unwrap(), "ws").unwrap();
        let logs = workspace.path(LOGS);
        scrub_logs(&workspace, &redactor);
        std::fs::create_dir(&logs).unwrap();
        let log = logs.join("a.stderr.log");
        std::fs::write(&log, b"\xff sk-canary-clean-test").unwrap();
        scrub_logs(&workspace, &redactor);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "\u{fffd} [secret CLEAN_TEST]");
    }

    #[test]
    fn no_log_is_read_whole_waited_for_or_followed() {
        let redactor = Redactor::new([("CLEAN_TEST".to_owned(), "sk-canary-clean-test".to_owned())]);
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::create_in(&ua_files::Folder::open(folder.path()).unwrap(), "ws").unwrap();
        let logs = workspace.path(LOGS);
        std::fs::create_dir(&logs).unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "sk-canary-clean-test").unwrap();
        std::os::unix::fs::symlink(&victim, logs.join("link.stderr.log")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", logs.join("zero.stderr.log")).unwrap();
        std::os::unix::fs::symlink(&victim, logs.join("x")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, logs.join("pipe.stderr.log"), rustix::fs::Mode::RWXU).unwrap();
        let large = logs.join("large.stderr.log");
        let line = "0123456789abcde\n".repeat(1 << 16);
        std::fs::write(&large, format!("{}sk-canary-clean-test\n", line.repeat(9))).unwrap();
        scrub_logs(&workspace, &redactor);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "sk-canary-clean-test");
        let kept = std::fs::read_to_string(&large).unwrap();
        assert!(kept.len() as u64 <= MAX_LOG_BYTES + 100 && kept.ends_with("[secret CLEAN_TEST]\n"), "{}", kept.len());
        assert!(kept.starts_with("[1048597 bytes before this were removed]\n0123"), "{}", &kept[..80]);
    }
}
