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
//! Whoever sends ten thousand files to one place has ten thousand calls whose scopes begin alike. They are read once in a process, and by their words
//! from then on: of what was stored since, the changes tell. Proved by: `identity::unseen`.

use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;

use ua_core::{ArgsHash, CallId, Scope};
use ua_store::{
    CallRecord, CallsOf, LedgerStore as _, Related, Relations, Store as _, StoreError, is_left_open, rules,
};

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::Ledger;

/// What the family sent with files, as far as somebody asked for it.
#[derive(Debug, Default)]
pub(crate) struct SentWithFiles {
    /// Up to which change it is known.
    up_to: u64,
    /// The calls by how their scopes begin, and by their words. How they stand is not kept.
    calls: HashMap<String, HashMap<ArgsHash, BTreeSet<CallId>>>,
}

impl SentWithFiles {
    fn add(&mut self, beginning: &str, other: &CallRecord) {
        // Of what nobody asked for, all is read when somebody does.
        if let Some(by_words) = self.calls.get_mut(beginning) {
            by_words.entry(other.args_hash).or_default().insert(other.call_id.clone());
        }
    }
}

impl Ledger {
    /// Whether a call sends files that another one may have sent when nobody could look at them, or that nobody can look at now.
    pub(crate) fn may_repeat_unseen(&self, call: &CallRecord, facts: &Facts) -> bool {
        self.scope_up_to_files(call, facts).is_some()
    }

    /// The calls of the family in the same words that may have sent the same files, where nobody can tell, as far as they may have happened.
    pub(crate) async fn unseen_like(&self, call: &CallRecord, facts: &Facts) -> Result<Vec<Related>, LedgerError> {
        let failed = || LedgerError::at("look for what may have sent the same files as", &call.call_id);
        let Some(beginning) = self.scope_up_to_files(call, facts) else { return Ok(Vec::new()) };
        let mut found = Relations::default();
        for id in self.in_the_words_of(call, beginning).await.map_err(failed())? {
            let mut other = self.store.call(&id).await.map_err(failed())?;
            let may_be_it = rules::is_effect_elsewhere(&other) && facts.files.may_be_those_of(&other);
            if !may_be_it || !self.is_of_tool(call, &other, facts).await? {
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

    /// The other calls in the words of this one whose scopes begin so.
    async fn in_the_words_of(&self, call: &CallRecord, beginning: &str) -> Result<BTreeSet<CallId>, StoreError> {
        let root = &call.root_run_id;
        // What is stored behind this is read once more, the next time.
        let newest = self.store.events(&call.call_id).await?.last().map_or(0, |change| change.seq);
        let (up_to, is_known) = {
            let sent = self.sent_with_files.lock().unwrap_or_else(PoisonError::into_inner);
            (sent.up_to, sent.calls.contains_key(beginning))
        };
        let news = if up_to == 0 {
            Vec::new()
        } else {
            self.store.calls_of(CallsOf::EffectsBehind(root.clone(), up_to)).await?
        };
        let alike = if is_known {
            Vec::new()
        } else {
            self.store.calls_of(CallsOf::ScopeBegins(root.clone(), beginning.to_owned())).await?
        };
        let mut sent = self.sent_with_files.lock().unwrap_or_else(PoisonError::into_inner);
        sent.calls.entry(beginning.to_owned()).or_default();
        for other in &alike {
            sent.add(beginning, other);
        }
        for other in &news {
            if let Some(begins) = other.scope.as_ref().and_then(Scope::up_to_files) {
                sent.add(begins, other);
            }
        }
        sent.up_to = sent.up_to.max(newest);
        let mut ids =
            sent.calls.get(beginning).and_then(|by_words| by_words.get(&call.args_hash)).cloned().unwrap_or_default();
        ids.remove(&call.call_id);
        Ok(ids)
    }

    /// How the scopes begin of all that may have sent the same, for a call that files tell from others. Our own server sends what was found and nothing
    /// else, so nothing that it sent was unknown.
    fn scope_up_to_files<'f>(&self, call: &CallRecord, facts: &'f Facts) -> Option<&'f str> {
        let sends_files = facts.files.iter().next().is_some() && !call.name.is_of_own_server();
        let matters = sends_files && call.policy.class.has_effect() && self.config.no_duplicate_external_actions;
        facts.scope.as_ref().filter(|_| matters)?.up_to_files()
    }
}
