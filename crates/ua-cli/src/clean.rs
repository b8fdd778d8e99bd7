//! The secrets of this process, and taking them out of everything it keeps or shows.
//!
//! One redactor for all sinks: what tools and models answer (and so the database, the workspace, the next request), lines on standard
//! error, diagnostics, and the last words of a panic. It learns a secret before anybody is given it.

use std::borrow::Cow;
use std::fs;
use std::panic;
use std::path::Path;
use std::sync::LazyLock;

use ua_core::Redactor;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);

/// The redactor of this process.
pub(crate) fn redactor() -> Redactor {
    REDACTOR.clone()
}

/// Learns secrets, by name and value.
pub(crate) fn learn(secrets: impl IntoIterator<Item = (String, String)>) {
    REDACTOR.learn(secrets);
}

/// Bytes that are meant as text, without secrets.
pub(crate) fn bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if REDACTOR.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let whole = String::from_utf8_lossy(bytes);
    match REDACTOR.text(&whole) {
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

/// Lets a panic say nothing secret. What it says otherwise stays as it is.
pub(crate) fn guard_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let words = info.to_string();
        match REDACTOR.text(&words) {
            Cow::Borrowed(_) => usual(info),
            // Nobody is left who could be told that this failed.
            Cow::Owned(clean) => drop(crate::terminal::write_err(format!("{clean}\n").as_bytes())),
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_standard_error_is_clean() {
        learn([("CLEAN_TEST".to_owned(), "sk-canary-clean-test".to_owned())]);
        assert_eq!(&*bytes(b"a \xff sk-canary-clean-test"), "a \u{fffd} [secret CLEAN_TEST]".as_bytes());
        assert_eq!(&*bytes(b"a \xff b"), b"a \xff b");
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.stderr.log");
        fs::write(&log, b"\xff sk-canary-clean-test").unwrap();
        scrub_logs(folder.path(), &redactor());
        assert_eq!(fs::read_to_string(&log).unwrap(), "\u{fffd} [secret CLEAN_TEST]");
    }
}
