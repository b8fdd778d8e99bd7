//! The shim as a program of its own, as `ua` runs it behind a hidden subcommand:
//! `shim --lock PATH [--grace-ms N] -- COMMAND ARG…`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = ua_mcp::run_shim(std::env::args_os().skip(1));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
