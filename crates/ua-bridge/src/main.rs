//! The bridge as a program of its own: small, and up at once. `ua gateway … -- COMMAND` becomes it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ua_bridge::run(std::env::args_os().skip(1))
}
