//! Another owner that takes the run over while this life goes on: from then on this life may write nothing and send nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Env, RunId, Trace};
use ua_runner::owner_stamp;
use ua_store::{RunRecords, RunStore as _, Store, StoreError};
use ua_store_sqlite::SqliteStore;
use ua_testkit::{Crossing, Plan};

use crate::options::{Effect, Outcome, Tool};

/// The other owner.
pub(crate) struct Successor {
    store: Arc<SqliteStore>,
    run: RunId,
    env: Env,
    /// What was stored when it had the run.
    taken: Mutex<Option<Vec<RunRecords>>>,
    /// The tools that change nothing.
    reads: BTreeSet<String>,
    /// Calls with an effect that were sent after that.
    sent: AtomicU64,
    /// Reads that were sent after that: one that had already looked at the lease when the run was taken is not called back.
    sent_reads: AtomicU64,
}

impl Successor {
    pub(crate) fn new(store: Arc<SqliteStore>, run: RunId, env: Env, tools: &[Tool]) -> Arc<Self> {
        let reads = tools.iter().filter(|tool| matches!(tool.effect, Effect::Read | Effect::Listing));
        let reads = reads.map(|tool| tool.name.clone()).collect();
        let (taken, sent, sent_reads) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { store, run, env, taken, reads, sent, sent_reads })
    }

    /// Takes the run, in a thread of its own: the caller stands in the middle of a crossing.
    pub(crate) fn take_the_run(&self) {
        let taken = std::thread::scope(|scope| scope.spawn(|| self.take()).join());
        match taken {
            Ok(Ok(records)) => *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(records),
            Ok(Err(why)) => eprintln!("successor: {why}"),
            Err(_) => eprintln!("successor: panicked"),
        }
    }

    /// A run and what is below it, as a resume takes them: from the top, each that has not ended.
    fn take(&self) -> Result<Vec<RunRecords>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let owner = owner_stamp(Trace::new(&self.env));
            self.store.acquire_run(&self.run, &owner, self.env.now()).await.map_err(|e| e.to_string())?;
            let root = self.store.load(&self.run).await.map_err(|e| e.to_string())?;
            for child in root.lineage.sub_agents.iter().filter(|child| !child.status.is_terminal()) {
                let taken = self.store.acquire_run(&child.run_id, &owner, self.env.now()).await;
                // It may have ended just now: what was on its way to the store gets there before this.
                let has_ended =
                    || async { self.store.run(&child.run_id).await.is_ok_and(|run| run.status.is_terminal()) };
                if let Err(error) = taken
                    && !has_ended().await
                {
                    return Err(error.to_string());
                }
            }
            self.load().await.map_err(|e| e.to_string())
        })
    }

    async fn load(&self) -> Result<Vec<RunRecords>, StoreError> {
        let root = self.store.load(&self.run).await?;
        let mut all = Vec::new();
        for child in &root.lineage.sub_agents {
            all.push(self.store.load(&child.run_id).await?);
        }
        all.push(root);
        Ok(all)
    }

    fn taken(&self) -> Option<Vec<RunRecords>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What this life did after it was replaced; `None` if it was not.
    pub(crate) async fn compare(&self) -> Outcome<Option<Value>> {
        let Some(before) = self.taken() else { return Ok(None) };
        let after = self.load().await?;
        let (sent, reads) = (self.sent.load(Ordering::SeqCst), self.sent_reads.load(Ordering::SeqCst));
        Ok(Some(json!({"wrote": before != after, "sent": sent, "sent_reads": reads})))
    }
}

#[async_trait]
impl Plan for Successor {
    async fn before(&self, crossing: &Crossing) {
        let is_send = crossing.is("tool.invoke") || crossing.is("tool.go_on");
        if is_send && self.taken().is_some() {
            let is_read = crossing.tools().any(|tool| self.reads.iter().any(|read| read == tool));
            if is_read { &self.sent_reads } else { &self.sent }.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn after(&self, _crossing: &Crossing) {}
}
