//! What other calls were sent to, seen through a transport.

use std::sync::Arc;

use ua_ledger::{MayAct, Outside};
use ua_store::{AttemptRecord, CallRecord, RunRecord};

use crate::transport::ToolTransport;

/// Sees what is left of servers through a transport, and processes that drive runs as it is told.
pub struct Through {
    transport: Arc<dyn ToolTransport>,
    is_driven: fn(&RunRecord) -> bool,
}

impl Through {
    /// `is_driven`: whether a process may be at work on a run.
    pub fn new(transport: Arc<dyn ToolTransport>, is_driven: fn(&RunRecord) -> bool) -> Self {
        Self { transport, is_driven }
    }
}

impl Outside for Through {
    fn may_act(&self, call: &CallRecord, last: &AttemptRecord) -> MayAct {
        let server = &call.name.server;
        match last.server_generation.clone().or_else(|| self.transport.generation_unknown(server)) {
            Some(generation) => self.transport.may_act(server, &generation, last.ended_at),
            None => MayAct::No,
        }
    }

    fn may_be_driven(&self, run: &RunRecord) -> bool {
        (self.is_driven)(run)
    }
}
