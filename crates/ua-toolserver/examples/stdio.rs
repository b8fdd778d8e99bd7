//! The tool server as a program: `cargo run -p ua-toolserver --example stdio -- --workspace /tmp/w`.
//!
//! Speaks MCP on standard input and output until its client leaves.

use clap::Parser;
use ua_toolserver::{Settings, ToolServerError, serve_stdio};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ToolServerError> {
    serve_stdio(Arguments::parse().settings).await
}
