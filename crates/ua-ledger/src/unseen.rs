//! The same call, of which nobody can tell whether it sent the same files: one of the two times a file could not be looked at.
//!
//! A key and a scope say what the files hold. A file that could not be looked at has another scope than the same file has that was, and a key of its
//! place, so neither of them finds such a call. It is found by how its scope begins, by its words, and by the digests that are kept with what was
//! sent; then it counts as one with the same scope ([`related`](crate::related)). Two calls in the same words whose files are known, and are others,
//! stay two effects. Durable Jobs v1 spec §8.2 and §8.3.
//!
//! The look comes before the verdict, and is not repeated in the write that starts the call: two agents of one tree that send the same words at one
//! moment, of which one could look at the file and the other could not, are not told of each other.
//!
//! Proved by: `identity::unseen`.

use ua_store::{CallRecord, CallsOf, LedgerStore as _, Related, Relations, Store as _, is_left_open, rules};

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::Ledger;

impl Ledger {
    /// Whether a call sends files that another one may have sent when nobody could look at them, or that nobody can look at now.
    pub(crate) fn may_repeat_unseen(&self, call: &CallRecord, facts: &Facts) -> bool {
        self.scope_up_to_files(call, facts).is_some()
    }

    /// The calls of the family in the same words that may have sent the same files, where nobody can tell, as far as they may have happened.
    pub(crate) async fn unseen_like(&self, call: &CallRecord, facts: &Facts) -> Result<Vec<Related>, LedgerError> {
        let failed = || LedgerError::at("look for what may have sent the same files as", &call.call_id);
        let Some(beginning) = self.scope_up_to_files(call, facts) else { return Ok(Vec::new()) };
        let of = CallsOf::ScopeBegins(call.root_run_id.clone(), beginning.to_owned());
        let alike = self.store.calls_of(of).await.map_err(failed())?;
        let may_be_it = |other: &CallRecord| {
            other.call_id != call.call_id
                && other.args_hash == call.args_hash
                && rules::is_effect_elsewhere(other)
                && facts.files.may_be_those_of(other)
        };
        let mut found = Relations::default();
        for mut other in alike.into_iter().filter(may_be_it) {
            if !self.is_of_tool(call, &other, facts).await? {
                continue;
            }
            if is_left_open(&other) {
                // What people answered about it may not have been acted on.
                self.act_on_late_answers(&other).await?;
                other = self.store.call(&other.call_id).await.map_err(failed())?;
            }
            // As if it had the scope of the call: the newest of those that stand alike.
            let scope = other.scope.clone();
            found.add(call, scope.as_ref(), &Related::one(other));
        }
        Ok(found.rivals)
    }

    /// How the scopes begin of all that may have sent the same, for a call that files tell from others. Our own server sends what was found and nothing
    /// else, so nothing that it sent was unknown.
    fn scope_up_to_files<'f>(&self, call: &CallRecord, facts: &'f Facts) -> Option<&'f str> {
        let sends_files = facts.files.iter().next().is_some() && !call.name.is_of_own_server();
        let matters = sends_files && call.policy.class.has_effect() && self.config.no_duplicate_external_actions;
        facts.scope.as_ref().filter(|_| matters)?.up_to_files()
    }
}
