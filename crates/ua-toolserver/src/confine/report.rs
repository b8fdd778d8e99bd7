//! What the confiner tells the server about the program.
//!
//! It is written to the confiner's standard input, which is the writing end of a pipe there. The program gets an empty standard input,
//! so it never holds the pipe and cannot say anything in the confiner's name.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;

use serde::{Deserialize, Serialize};

/// One line on the pipe; the first one counts. None at all means that the confiner became the program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The program was not started.
    Refused {
        /// Why.
        why: String,
    },
    /// The program ended.
    Ended {
        /// With this code,
        code: Option<i32>,
        /// or by this signal.
        signal: Option<i32>,
    },
}

impl Report {
    /// Reads what came over the pipe; the first line counts.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text.split(|byte| *byte == b'\n').next()?).ok()
    }
}

/// The pipe, which a program that is started afterwards does not inherit.
pub(super) fn take() -> Option<File> {
    std::io::stdin().as_fd().try_clone_to_owned().ok().map(File::from)
}

/// Sends a report over the pipe.
pub(super) fn send(report: &Report) {
    send_to(take(), report);
}

/// The same over a pipe that was taken before.
pub(super) fn send_to(pipe: Option<File>, report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else { return };
    line.push(b'\n');
    // Nobody may be left to read it, and somebody who calls this by hand has no pipe.
    let _unread = pipe.map(|mut pipe| pipe.write_all(&line));
}
