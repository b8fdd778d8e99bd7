//! The log of what a tool server writes to its standard error, as its shim keeps it: of a limited size, and without what is secret.
//!
//! A server outlives whoever started it, and may write a secret at any time. So nothing of it is cleaned afterwards: what its own variables hold
//! that is secret does not get into the file. Proved by: `tests::shim`.

use std::io::{self, Read};
use std::os::fd::AsFd;

use ua_core::Redactor;

/// How large a log of a server's standard error becomes before it begins anew.
const MAX_LOG_BYTES: u64 = 4 * 1024 * 1024;

/// The longest line that is kept whole where something may have to be taken out of it.
const MAX_LINE_BYTES: usize = 256 * 1024;
/// How much of the end of a longer one is left out with the rest of it: it may hold the beginning of a secret.
const CUT_BYTES: usize = 4 * 1024;

/// The log of what a server writes that is no message.
pub struct ServerLog<W = io::Stderr> {
    to: W,
    redactor: Redactor,
    /// A line that is not at its end.
    line: Vec<u8>,
}

impl ServerLog {
    /// One without what the named variables hold, in the place of this process's own.
    #[expect(clippy::disallowed_methods, reason = "a shim has what its server gets, and no settings")]
    pub(super) fn without(names: &[String]) -> Self {
        Self::to(io::stderr(), names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))))
    }

    /// Copies what a server writes to its standard error into the log. Goes on reading whatever happens, so that the server never waits.
    pub(super) fn keep(&mut self, mut errors: impl Read) {
        let mut piece = vec![0; 16 * 1024];
        loop {
            match errors.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => self.take(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.write();
    }
}

impl<W: io::Write + AsFd> ServerLog<W> {
    /// One without these values, by their names. Of a value of several lines each line is kept out, too, since the log is written line by line.
    pub fn to(to: W, secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let redactor = Redactor::new(secrets.into_iter().flat_map(|(name, value)| {
            let lines: Vec<String> = value.lines().map(str::to_owned).collect();
            lines.into_iter().chain([value]).map(move |value| (name.clone(), value))
        }));
        Self { to, redactor, line: Vec::new() }
    }

    /// Takes a line, without its end, and writes it.
    pub fn line(&mut self, line: &[u8]) {
        self.line.extend_from_slice(&line[..line.len().min(MAX_LINE_BYTES)]);
        self.line.push(b'\n');
        self.write();
    }

    /// Takes what was written. Where nothing is secret it is in the log at once, and else once its line is at its end.
    fn take(&mut self, piece: &[u8]) {
        if self.redactor.is_empty() {
            return self.append(piece);
        }
        let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.line.extend_from_slice(&piece[..whole]);
        if whole > 0 {
            self.write();
        }
        self.line.extend_from_slice(&piece[whole..]);
        // Of a line without an end what is beyond this is dropped, and the log says so where the line ends.
        self.line.truncate(MAX_LINE_BYTES);
    }

    /// Writes what is held, without secrets.
    fn write(&mut self) {
        let held = std::mem::take(&mut self.line);
        let mut clean = String::with_capacity(held.len());
        for line in held.split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES)]);
            let text = self.redactor.text(&text);
            if line.len() < MAX_LINE_BYTES {
                clean.push_str(&text);
            } else {
                clean.extend(text.chars().take(text.chars().count().saturating_sub(CUT_BYTES)));
                clean.push_str(" [the rest of this line is left out]\n");
            }
        }
        self.append(clean.as_bytes());
    }

    /// Writes to the log, which begins anew where it would be too large.
    fn append(&mut self, piece: &[u8]) {
        // A terminal or a pipe has no size, and no room to keep.
        let size = rustix::fs::fstat(&self.to).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if size.saturating_add(piece.len() as u64) > MAX_LOG_BYTES && rustix::fs::ftruncate(&self.to, 0).is_ok() {
            let _full_disk = self.to.write_all(format!("[{size} bytes before this were removed]\n").as_bytes());
        }
        let _full_disk = self.to.write_all(piece);
    }
}
