//! The tool server as a program: `cargo run -p ua-toolserver --example stdio -- --workspace /tmp/w`.
//!
//! Speaks MCP on standard input and output until its client leaves. Its PDFs have no layout: the renderer is handed in, and this one is small.

use std::process::ExitCode;

#[path = "../tests/it/wire/plain_pdf.rs"]
mod plain_pdf;

use clap::Parser;
use ua_toolserver::{Confiner, Settings, ToolServerError, run_confined, serve_stdio};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// The name under which it confines itself and starts a program of `run_command`.
const CONFINED: &str = "__confined";

fn main() -> Result<ExitCode, ToolServerError> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|word| word == CONFINED).is_some() {
        return Ok(ExitCode::from(u8::try_from(run_confined(arguments)).unwrap_or(1)));
    }
    serve()?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main(flavor = "current_thread")]
async fn serve() -> Result<(), ToolServerError> {
    let mut settings = Arguments::parse().settings;
    settings.confiner = std::env::current_exe().ok().map(|program| Confiner { program, args: vec![CONFINED.into()] });
    settings.pdf = Some(ua_pdf::Layout::Here(plain_pdf::render));
    serve_stdio(settings).await
}
