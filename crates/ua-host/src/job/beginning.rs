//! The moment in which a run of a job begins. Two processes that are told to run the same job at once both find no other run of it. So what is
//! looked for is looked for once more under a lock, which is held until the new run was taken or stands in the queue.
//!
//! It is two locks: a file of the root, for the processes of one machine, and, where the database is on a server, one in the server, for other
//! machines and roots. The second ends with its connection, so a machine that dies leaves none behind.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::time::Duration;

use ua_core::{RunId, RunSpec, ShowPath as _, Timestamp, sha256};
use ua_files::Folder;
use ua_store::{RunQuery, RunRecord, Store as _};

use crate::Database;
use crate::database::OnlyOne;
use crate::error::HostError;
use crate::hint::Word;
use crate::host::Host;

/// The file of the lock, beside those of runs.
const FILE: &str = "jobs.begin";
/// Somebody else holds it while a row is written and a lock is taken.
const LOCKED_FOR: Duration = Duration::from_secs(30);
/// How often it is tried.
const PAUSE: Duration = Duration::from_millis(10);
/// So long before a look a run may have been made that is stored behind it.
const MADE_BEFORE: Duration = Duration::from_mins(1);
/// How many new runs are looked at.
const LOOKED_AT: u32 = 1_000;

/// The right to begin a run, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Beginning {
    _lock: File,
    _of_all: OnlyOne,
}

impl Beginning {
    /// Takes it, behind whoever has it.
    ///
    /// # Errors
    /// The folder of locks or the server cannot be used, or another process has it for half a minute.
    pub(super) async fn take(host: &Host, store: &Database, spec: &RunSpec) -> Result<Self, HostError> {
        let lock = Self::lock_of_root(host).await?;
        let objective = sha256(&spec.objective);
        let of_all = store.only_one(objective, LOCKED_FOR).await;
        match of_all.map_err(|e| HostError::store("look whether another machine begins the same job", &e))? {
            Some(of_all) => Ok(Self { _lock: lock, _of_all: of_all }),
            None => Err(taken("another machine has been beginning a run of the same job")),
        }
    }

    async fn lock_of_root(host: &Host) -> Result<File, HostError> {
        let folder = host.home().locks();
        let failed = |error| {
            HostError::storage(format!("cannot lock {}: {error}", folder.join(FILE).shown()))
                .hint(format!("{} must be a folder of yours that can be written to", folder.shown()))
                .not_begun()
        };
        let file = Folder::make_itself(&folder).and_then(|folder| folder.open_or_make(FILE)).map_err(failed)?;
        // This file may have been there already, and the run's own lock is made when the run is stored.
        host.home().can_lock(Word::NothingBegun)?;
        let env = host.env();
        let since = env.now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if env.now().since(since) < LOCKED_FOR => env.clock.sleep(PAUSE).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(taken("another process has been beginning a run here"));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

fn taken(who: &str) -> HostError {
    HostError::waiting(format!("{who} for {} s", LOCKED_FOR.as_secs())).hint("it may have been stopped").not_begun()
}

/// The runs that were there when somebody looked.
#[derive(Debug)]
pub(super) struct Seen {
    at: Timestamp,
    runs: BTreeSet<RunId>,
}

impl Seen {
    /// Looks.
    pub(super) async fn now(host: &Host, store: &Database) -> Result<Self, HostError> {
        let at = host.env().now();
        let runs = made_around(store, at).await?;
        Ok(Self { at, runs: runs.into_iter().collect() })
    }

    /// A run of the same job that was stored since, whatever became of it.
    pub(super) async fn begun_since(
        &self,
        host: &Host,
        store: &Database,
        spec: &RunSpec,
    ) -> Result<Option<RunRecord>, HostError> {
        for id in made_around(store, self.at).await?.iter().filter(|id| !self.runs.contains(*id)) {
            let run = store.run(id).await.map_err(|e| HostError::store("read the run", &e))?;
            if run.parent_run_id.is_none() && run.entrypoint == host.entrypoint() && *run.spec == *spec {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }
}

async fn made_around(store: &Database, at: Timestamp) -> Result<Vec<RunId>, HostError> {
    let query =
        RunQuery { since: Some(at.minus(MADE_BEFORE)), without_tasks: true, limit: LOOKED_AT, ..RunQuery::default() };
    let heads = store.find_runs(&query).await.map_err(|e| HostError::store("look for new runs", &e))?;
    Ok(heads.into_iter().map(|head| head.run_id).collect())
}
