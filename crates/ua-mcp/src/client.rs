//! What a tool server is told about us, and what it may ask of us: nothing but a sign of life.

#![expect(deprecated, reason = "MCP deprecates log messages over the wire, and servers of today still send them")]

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, LoggingMessageNotificationParam, ProtocolVersion};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};

/// Our side of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) server: String,
    pub(crate) info: Implementation,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        // Named, because the newest revision has no handshake, and a server that echoes it would leave both sides without.
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientConfig::new(ClientCapabilities::default(), self.info.clone()).with_protocol_version(version)
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        tracing::debug!(server = self.server, level = ?message.level, logger = message.logger, data = %message.data, "tool server");
    }
}
