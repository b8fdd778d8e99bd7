//! SQLite behind the storage port of the durable job runner.
//!
//! One named thread owns the only connection that writes. Writes that wait for it are committed together, a savepoint
//! each, and answered only when the commit returned; the batch is synced when any member asks for it. Reads run on a few
//! read-only connections of their own. Nothing else in a process may open the database file: closing a plain file handle
//! to it would drop SQLite's locks.
//!
//! Durable Jobs v1 spec §5 (data model); the schema lives in `migrations/sqlite`.
//! Invariants: a reply means the commit happened as asked; a missing, foreign, damaged or newer database is refused and
//! left as it is, never replaced. Proved by: `ua_store::conformance` and this crate's `tests/`.
//!
//! ```
//! use ua_store::RunStore;
//! use ua_store_sqlite::{SqliteConfig, SqliteStore};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("state/runtime_state.db");
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
//! assert!(store.runs(10).await.unwrap().is_empty());
//! store.close().unwrap();
//! # });
//! ```

mod archive_rows;
mod beside;
mod blob_rows;
mod column;
mod config;
mod copies;
mod cut_off;
mod db;
mod departure;
mod doubts;
mod effects;
mod error;
mod event_chain;
mod filesystem;
mod fleet_rows;
mod gateway_rows;
mod kept;
mod ledger_rows;
mod lineage_rows;
mod log_room;
mod maintenance;
mod mirror;
mod open;
mod opened;
mod override_rows;
mod places;
mod pointers;
mod port;
mod pragma;
mod readers;
mod related_rows;
mod row_findings;
mod rows;
mod run_rows;
mod schema;
mod scope;
mod source;
mod spans;
mod standing_rows;
mod statement;
mod store;
mod trouble;
mod unaccounted;
mod writer;

pub use beside::{adopt_beside, foreign_beside};
pub use config::SqliteConfig;
pub use copies::{AnotherCopy, another_copy, holds_run, is_copy, is_one, keeps_runs, left_of};
pub use cut_off::{CutOff, cut_off_restore, kept_by_restores};
pub use departure::{Copying, Departure, Standing, UnderWay};
pub use filesystem::{Suitability, filesystem_of};
pub use maintenance::{Health, Restore, backup, restore, uuid_of as identity_of};
pub use open::{check_folder, holds_nothing, refuse_others};
pub use store::SqliteStore;
pub use trouble::Trouble;
pub use unaccounted::Restored;
pub use writer::Batches;
