//! Ledger work without a dispatch: what can be decided about a call when nothing may be sent.
//!
//! Granular Execution PRD §5.2. A run whose setup is not the one it was pinned to must not send anything; what was sent by
//! an earlier process still gets its receipt read, its policy applied and its question asked or answered. What the tools, policies and servers
//! of this process are says nothing about it, so it is judged by what it was sent under: whoever restores the setup finds nothing decided that
//! is not so. Who orders to send it is heard then.
//! Invariant: no permit is made here, so nothing is sent and no attempt is counted.

use ua_core::CallId;
use ua_ledger::{Admission, Facts, LedgerError};

use crate::dispatcher::{CallProgress, Dispatched, Dispatcher};
use crate::error::DispatchError;
use crate::stop::StopSignal;
use crate::within::Within;
use ua_store::LedgerStore;

impl Dispatcher {
    /// Settles a call as far as that goes without sending it. `None` when all that is left is to send it (again), which a
    /// later dispatch decides anew from the same rows.
    ///
    /// # Errors
    /// [`DispatchError::OrphanAlive`] when the process it was sent to is still alive; errors of the ledger, among them a
    /// person's `abort`.
    pub async fn settle_without_sending(&self, id: &CallId) -> Result<Option<Dispatched>, DispatchError> {
        let call = self.ledger().store().call(id).await.map_err(|source| LedgerError::Store {
            doing: "read",
            call: id.clone(),
            source,
        })?;
        let facts = Facts::as_sent(&call, &self.ledger().attempts(id).await?);
        // Under a stop no probe is asked and nothing is waited for: the tools may not be those the policy speaks of.
        let stop = StopSignal::default();
        stop.stop_at_once();
        Ok(match Box::pin(self.admit(id, facts, &Within::until(&stop).judging_as_sent())).await? {
            Admission::Settled(call) => {
                self.tell(CallProgress::Settled { call: Box::new(call.clone()) });
                Some(Dispatched::Settled(Box::new(call)))
            }
            Admission::Held(question) if question.answer.is_some() => None,
            Admission::Held(question) => {
                self.tell(CallProgress::Held { question: Box::new(question.clone()) });
                Some(Dispatched::Held(Box::new(question)))
            }
            Admission::Ready(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_) => None,
        })
    }
}
