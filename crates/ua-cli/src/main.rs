//! The `ua` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ua_cli::main()
}
