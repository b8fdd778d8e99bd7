//! A right that one process has at a time, of all that use the database.
//!
//! It is a lock of a transaction, not of a session, so that a pooler in transaction mode may stand between, and it has a connection of its own:
//! held, it takes none of the pool from the writes that it is held for. Nothing has to be cleaned away: whoever dies has no connection any more.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use ua_core::Sha256;
use ua_store::StoreError;

use crate::error::sql_error;
use crate::locks::Shared;
use crate::schema;
use crate::store::PostgresStore;

/// The right, until it is dropped or its connection ends.
pub struct OnlyOne {
    /// Its transaction is open; without a client it is rolled back.
    _client: Client,
}

impl std::fmt::Debug for OnlyOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnlyOne").finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Takes the right to do what `what` stands for, behind whoever has it; `None` when that took longer than `wait`.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the server cannot be reached or does not let this user wait.
    pub async fn only_one(&self, what: Sha256, wait: Duration) -> Result<Option<OnlyOne>, StoreError> {
        let client = schema::connect(self.config()).await?;
        let (wait, seed) = (wait.as_millis().max(1), Shared::OnlyOne.seed());
        // No limit of the server's on what takes long may end it: it is held as long as its owner says.
        let sql = format!(
            "BEGIN; SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = {wait}; SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = 0; \
             SELECT pg_advisory_xact_lock(hashtextextended('{what}', {seed}::bigint))"
        );
        match client.batch_execute(&sql).await {
            Ok(()) => Ok(Some(OnlyOne { _client: client })),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
            Err(error) => Err(sql_error(error)),
        }
    }
}
