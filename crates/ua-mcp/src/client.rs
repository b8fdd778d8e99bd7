//! Our side of a pipe, as the client library wants it: everything goes to [`Host`], as it came.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomNotification, CustomRequest, CustomResult, ErrorCode, ErrorData,
    Implementation,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};

use crate::host::Host;

/// Our side of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) host: Arc<Host>,
    pub(crate) info: Implementation,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), self.info.clone())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let answered = self.host.request(&request.method, request.params.unwrap_or_default(), None).await;
        answered.map(CustomResult).map_err(|(code, words)| ErrorData::new(ErrorCode(code), Cow::Borrowed(words), None))
    }

    async fn on_custom_notification(&self, notification: CustomNotification, _: NotificationContext<RoleClient>) {
        self.host.notified(&notification.method, &notification.params.unwrap_or_default());
    }
}
