//! The `ua` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ua_cli::main(ua_cli::Parts {
        #[cfg(feature = "pdf")]
        pdf: Some(ua_pdf::render),
        ..ua_cli::Parts::default()
    })
}
