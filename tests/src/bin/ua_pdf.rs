//! The `ua` of tests that render PDF: everything that users have, and kill points at its seams.

use std::process::ExitCode;

fn main() -> ExitCode {
    ua_cli::main(ua_e2e::parts(Some(ua_pdf::render)))
}
