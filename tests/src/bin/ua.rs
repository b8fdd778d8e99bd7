//! The `ua` that most tests run: kill points at its seams, and no layout engine.

use std::process::ExitCode;

fn main() -> ExitCode {
    ua_cli::main(ua_e2e::parts(None))
}
