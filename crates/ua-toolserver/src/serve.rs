//! The two ways to serve: one client on standard input and output, or whoever comes over HTTP.

use std::io::Write as _;

use crate::error::ToolServerError;
use crate::http::HttpServer;
use crate::server::ToolServer;
use crate::settings::Settings;

/// Serves as the settings say: over HTTP when they name an address, which is written to standard error once it listens;
/// else one client on standard input and output.
pub async fn serve(settings: Settings) -> Result<(), ToolServerError> {
    let Some(address) = settings.http else {
        return serve_stdio(settings).await;
    };
    let server = HttpServer::bind(&settings, address, ua_core::system::env()).await?;
    if let Err(error) = writeln!(std::io::stderr(), "listening on {}", server.url()) {
        tracing::debug!(%error, "nobody reads the address");
    }
    server.serve().await;
    Ok(())
}

/// Serves one client on standard input and output until it closes them.
pub async fn serve_stdio(settings: Settings) -> Result<(), ToolServerError> {
    let server = ToolServer::open(&settings, ua_core::system::env())?;
    server.serve(tokio::io::stdin(), tokio::io::stdout()).await
}
