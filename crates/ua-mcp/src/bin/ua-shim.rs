//! The shim as a program of its own, beside `ua`: small, and up sooner. A process of `ua` begins with moving megabytes of the program to
//! where it was loaded, for what it never does as a shim, and keeps them as long as the tool server lives.
//!
//! It is started with the words of `ua`, `ua-shim __shim --lock PATH … -- COMMAND ARG…`: whoever looks for a shim above a process knows it
//! by the second.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// It was called with words it does not know.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    // Before anything else: until then, whoever looks at that moment reads what this process was given. Where the system refuses it, it
    // does so for `ua` as well.
    let _hidden = ua_mcp::hide_from_others();
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|word| word.to_str()) {
        Some("__shim") => ExitCode::from(u8::try_from(ua_mcp::run_shim(args)).unwrap_or(1)),
        // For whoever looks whether it is of the version of the `ua` beside it.
        Some("--version") => {
            let told = writeln!(io::stdout(), concat!("ua-shim ", env!("CARGO_PKG_VERSION")));
            if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some(_) | None => {
            // Nobody may be left to read it.
            let _unread = writeln!(io::stderr(), "ua-shim: `ua gateway` starts this in front of each tool server");
            ExitCode::from(USAGE)
        }
    }
}
