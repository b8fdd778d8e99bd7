//! PostgreSQL behind the storage port of the durable job runner.
//!
//! Many processes on many machines write at once. A write locks the lineages that it is about (`locks.rs`) and is then applied by the same
//! text as in every other store (`ua_store::apply`), statement by statement on a thread that may block; what needs no answer goes out with
//! what does (`db.rs`). A write of a run's owner is computed from the rows that the owner left, with a guard, and is one flight (`kept.rs`).
//! Nothing is kept in a session: not a setting, not a lock, not a prepared statement, so a pooler in transaction mode may
//! stand between.
//!
//! Durable Jobs v1 spec §5 (data model); the schema lives in `migrations/postgres`.
//! Invariants: a reply means that the commit happened as asked; a refused synced write is answered when what it was refused by is durable; a
//! missing, older or newer schema is refused and left as it is; in a history of the server that may lack something no run is taken unasked, and no
//! session of the gateway sends for which another one of its project may have sent (`history.rs`). Proved by: `ua_store::conformance` and this
//! crate's `tests/`.

mod archive_rows;
mod beside;
mod blob_rows;
mod column;
mod config;
mod confirmed;
mod db;
mod dialling;
mod doubts;
mod error;
mod filling;
mod fleet_rows;
mod gateway_rows;
mod health;
mod history;
mod kept;
mod ledger_rows;
mod lineage_rows;
mod locks;
mod notes;
mod only_one;
mod override_rows;
mod owners;
mod places;
mod port;
mod related_rows;
mod rows;
mod run_rows;
mod schema;
mod settings;
mod spans;
mod store;
mod tls;
mod value;

pub use config::{Place, PostgresConfig, database_beside, forget_database_beside};
pub use error::is_read_only;
pub use filling::Filling;
pub use health::Health;
pub use notes::Noted;
pub use only_one::OnlyOne;
pub use places::HeldBy;
#[doc(hidden)]
pub use related_rows::RELATED;
pub use schema::migrate;
pub use store::PostgresStore;
