//! A desk without a drive: the road to the tools for whoever hands calls out by itself, one at a time, as the gateway does.

use std::sync::Arc;

use ua_dispatch::{DispatchError, Dispatcher, TransportError};
use ua_ledger::Outbox;

use crate::desk::{Desk, DeskError, Opened};
use crate::error::RunError;

/// Why there is no road to the tools.
#[derive(Debug, thiserror::Error)]
pub enum RoadError {
    /// What is stored about the run could not be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Tools and rules do not fit together.
    #[error(transparent)]
    Tools(DispatchError),
    /// The tools could not be listed.
    #[error(transparent)]
    Unreachable(TransportError),
    /// A tool server of an earlier process is alive and could not be ended.
    #[error("an earlier tool server is still alive: {0}")]
    Orphan(String),
    /// A stop was asked for.
    #[error("a stop was asked for")]
    Stopped,
}

impl Desk {
    /// Ends what an earlier process left behind, lists the tools, and opens the road to them. `outbox` is that of the lease, one for each time
    /// the run is taken: roads to several tool servers share it.
    ///
    /// # Errors
    /// See [`RoadError`]. Nothing was sent.
    pub async fn road(&self, outbox: &Arc<Outbox>) -> Result<Dispatcher, RoadError> {
        match self.open(outbox).await {
            Ok(Opened::Ready(dispatcher)) => Ok(*dispatcher),
            Ok(Opened::Orphan(detail)) => Err(RoadError::Orphan(detail)),
            Ok(Opened::Interrupted) => Err(RoadError::Stopped),
            Ok(Opened::Unreachable(error)) => Err(RoadError::Unreachable(error)),
            Err(DeskError::Run(error)) => Err(RoadError::Run(error)),
            Err(DeskError::Tools(error)) => Err(RoadError::Tools(error)),
        }
    }
}
