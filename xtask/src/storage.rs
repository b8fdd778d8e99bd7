//! Lanes about the disk under the database: power cuts and failing system calls. Both need `strace`, and say so where it is
//! missing or not allowed.

mod comments;
mod disk;
pub(crate) mod io_faults;
pub(crate) mod power_cut;

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use ua_testkit::skipped;

/// Shows where a lane stands, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text}    ");
    }
}

/// Whether processes can be traced here; says so if not.
fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    let can = traced.is_ok_and(|status| status.success());
    if !can {
        skipped("strace is not installed, or tracing is not allowed here");
    }
    can
}
