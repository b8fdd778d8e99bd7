//! Whether a tool of the same own name under the name of another server is the same tool.
//!
//! What a server is called is given in a configuration: the same program under another name has the same effects. So the same words for a tool of the
//! same own name are the same call, until something says that there are two servers: the tool is there under both names, and what got the earlier
//! call is another place, or another account, than the call would go to now ([ADR 40](../../../docs/adr/0040-a-key-counts-where-its-call-went.md)).
//! A name that is gone was given up for another one, also where the server moved with it.
//!
//! Proved by: `identity::renamed`, the table of verdicts, the end-to-end tests `fork`.

use ua_store::{CallRecord, Related, Relations, is_under_another_server};

use crate::admission::Facts;
use crate::elsewhere::is_another_place;
use crate::error::LedgerError;
use crate::ledger::Ledger;

impl Ledger {
    /// Those of the calls under other names of servers that may be the same call as the one that `relations` are of.
    pub(crate) async fn renamed(
        &self,
        call: &CallRecord,
        relations: &Relations,
        facts: &Facts,
    ) -> Result<Vec<Related>, LedgerError> {
        let mut found = Vec::new();
        for other in &relations.renamed {
            if !self.is_of_another_server(call, &other.newest, facts).await? {
                found.push(other.clone());
            }
        }
        Ok(found)
    }

    /// Whether `other`, in the words of `call`, is of its tool: by its name, or by one that its server may have had.
    pub(crate) async fn is_of_tool(
        &self,
        call: &CallRecord,
        other: &CallRecord,
        facts: &Facts,
    ) -> Result<bool, LedgerError> {
        if other.name.raw == call.name.raw {
            return Ok(true);
        }
        Ok(is_under_another_server(call, other) && !self.is_of_another_server(call, other, facts).await?)
    }

    async fn is_of_another_server(
        &self,
        call: &CallRecord,
        other: &CallRecord,
        facts: &Facts,
    ) -> Result<bool, LedgerError> {
        // Where nobody says which tools are there, places alone tell.
        if self.rules().is_gone(other) {
            return Ok(false);
        }
        // Where a read goes is not asked.
        let Some(now) = &facts.destination else { return Ok(!call.policy.class.has_effect()) };
        let attempts = self.attempts(&other.call_id).await?;
        let sent = attempts.iter().rev().find(|attempt| !attempt.never_left());
        Ok(sent.is_some_and(|sent| is_another_place(other, sent, Some(now))))
    }
}
