//! Taking secrets out of what a process keeps or shows.
//!
//! One redactor for all sinks of a host: what tools and models answer (and so the database, the workspace, the next request), what a
//! front door writes, and what tool servers wrote to their own files. It learns a secret before anybody is given it.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use ua_core::Redactor;

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

/// Takes secrets out of what tool servers wrote to their standard error, which goes to files directly: a server may outlive this
/// process, and nobody would read a pipe. To be called when none of them writes any more.
pub(crate) fn scrub_logs(folder: &Path, redactor: &Redactor) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_log = path.to_str().is_some_and(|path| path.ends_with(".stderr.log")) && !path.is_symlink();
        let Some(bytes) = fs::read(&path).ok().filter(|_| is_log) else { continue };
        if let Cow::Owned(clean) = redactor.text(&String::from_utf8_lossy(&bytes))
            && let Err(error) = fs::write(&path, clean)
        {
            tracing::warn!(%error, "a secret could not be taken out of {}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_standard_error_is_clean() {
        let redactor = Redactor::new([("CLEAN_TEST".to_owned(), "sk-canary-clean-test".to_owned())]);
        assert_eq!(&*bytes(&redactor, b"a \xff sk-canary-clean-test"), "a \u{fffd} [secret CLEAN_TEST]".as_bytes());
        assert_eq!(&*bytes(&redactor, b"a \xff b"), b"a \xff b");
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.stderr.log");
        fs::write(&log, b"\xff sk-canary-clean-test").unwrap();
        scrub_logs(folder.path(), &redactor);
        assert_eq!(fs::read_to_string(&log).unwrap(), "\u{fffd} [secret CLEAN_TEST]");
    }
}
