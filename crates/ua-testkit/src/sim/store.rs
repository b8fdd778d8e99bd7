//! The store of a simulation: the model in memory, or SQLite on a disk that lasts as long as the simulation. Either can be copied, and
//! go back to its copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ua_core::{RunId, Timestamp};
use ua_store::{MemStore, RunStore, Store, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use super::mirror::Mirror;
use super::rounds::{InRounds, Rounds};
use super::task::block_on;

/// Which store a simulation runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimStore {
    /// The model in memory.
    Memory,
    /// The runtime database.
    Sqlite,
}

impl SimStore {
    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store, and a way to know that it is at rest.
pub(super) struct StageStore {
    /// As the stage and people have it.
    pub(super) port: Arc<dyn Store>,
    beside: Arc<Mirror>,
    rounds: Arc<Rounds>,
    behind: Behind,
}

enum Behind {
    Memory {
        now: Arc<MemStore>,
        copy: Option<Box<MemStore>>,
    },
    /// SQLite works on threads of its own: one writes, and one reads since the runtime has no more.
    Sqlite {
        runtime: tokio::runtime::Runtime,
        nobody: RunId,
        /// `None` while another one is put in its place.
        file: Option<Arc<SqliteStore>>,
        database: PathBuf,
        copy: PathBuf,
    },
}

fn sqlite(database: &Path) -> Result<Arc<SqliteStore>, StoreError> {
    let config = SqliteConfig { effects_log: false, ..SqliteConfig::new(database) };
    Ok(Arc::new(SqliteStore::open(config)?))
}

/// Whoever asks learns it at once. A database that was put back from a copy has a log beside it, which says what `Mirror` says for both stores.
fn at_once(store: Arc<dyn Store>, beside: &Arc<Mirror>) -> Arc<dyn Store> {
    Arc::new(InRounds { store, beside: Arc::clone(beside), rounds: None })
}

impl StageStore {
    pub(super) fn open(kind: SimStore, folder: &Path, beside: Arc<Mirror>) -> Result<Self, BoxError> {
        if kind == SimStore::Memory {
            let now = Arc::new(MemStore::default());
            let (port, rounds) = (at_once(now.clone(), &beside), Arc::default());
            return Ok(Self { port, beside, rounds, behind: Behind::Memory { now, copy: None } });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build()?;
        let database = folder.join("runtime_state.db");
        let (file, copy) = (sqlite(&database)?, folder.join("copy.db"));
        let port = at_once(file.clone(), &beside);
        let behind = Behind::Sqlite { runtime, nobody: RunId::parse("run_nobody")?, file: Some(file), database, copy };
        Ok(Self { port, beside, rounds: Arc::default(), behind })
    }

    /// The store as lives have it: they learn what they asked for when the store is at rest.
    pub(super) fn of_lives(&self) -> Arc<dyn Store> {
        let (store, beside) = (Arc::clone(&self.port), Arc::clone(&self.beside));
        Arc::new(InRounds { store, beside, rounds: Some(Arc::clone(&self.rounds)) })
    }

    /// Makes the copy that [`go_back`](Self::go_back) goes back to.
    pub(super) fn make_copy(&mut self) -> Result<(), BoxError> {
        match &mut self.behind {
            Behind::Memory { now, copy } => *copy = Some(Box::new(now.copied())),
            Behind::Sqlite { database, copy, .. } => {
                if copy.exists() {
                    std::fs::remove_file(&*copy)?;
                }
                ua_store_sqlite::backup(database, copy)?;
            }
        }
        Ok(())
    }

    /// Puts the copy in place of what is stored. Nobody may hold the store.
    pub(super) fn go_back(&mut self, at: Timestamp) -> Result<(), BoxError> {
        match &mut self.behind {
            Behind::Memory { now, copy } => {
                *now = Arc::new(*copy.take().ok_or("no copy was made")?);
                self.port = at_once(now.clone(), &self.beside);
            }
            Behind::Sqlite { runtime, file, database, copy, .. } => {
                let _runtime = runtime.enter();
                // Lets go of the database.
                *file = None;
                self.port = Arc::new(MemStore::default());
                ua_store_sqlite::restore(copy, database, at)?;
                let restored = sqlite(database)?;
                self.port = at_once(restored.clone(), &self.beside);
                *file = Some(restored);
            }
        }
        Ok(())
    }

    /// What `ua db check` finds wrong with what is stored. The model in memory has no rows that could contradict each other.
    pub(super) fn findings(&self) -> Result<Vec<String>, StoreError> {
        match &self.behind {
            Behind::Memory { .. } | Behind::Sqlite { file: None, .. } => Ok(Vec::new()),
            Behind::Sqlite { file: Some(file), .. } => Ok(block_on(file.examine())?.findings),
        }
    }

    /// Puts a copy of the database where nothing is yet.
    pub(super) fn keep(&self, to: &Path) -> Result<(), BoxError> {
        match &self.behind {
            Behind::Memory { .. } => Err("the model in memory is in no file".into()),
            Behind::Sqlite { database, .. } => Ok(ua_store_sqlite::backup(database, to).map(drop)?),
        }
    }

    /// Reads need the runtime's thread.
    pub(super) fn enter(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        match &self.behind {
            Behind::Memory { .. } => None,
            Behind::Sqlite { runtime, .. } => Some(runtime.enter()),
        }
    }

    /// Waits until everything that was asked for is done, and lets who asked know.
    pub(super) fn rest(&self) -> Result<(), StoreError> {
        self.finish()?;
        self.rounds.end();
        Ok(())
    }

    /// Waits until every write and long read that was asked for before is done: each thread takes them in order, so one more on each, about a run
    /// that there is not, comes last.
    fn finish(&self) -> Result<(), StoreError> {
        let Behind::Sqlite { nobody, .. } = &self.behind else { return Ok(()) };
        let last_write = block_on(self.port.request_cancel(nobody, "", Timestamp::from_millis(0)));
        let last_read = block_on(self.port.history(nobody));
        match (last_write, last_read) {
            (Err(StoreError::NotFound { .. }), Err(StoreError::NotFound { .. })) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => unreachable!("a simulation has no run of this name"),
        }
    }
}
