//! Tables whose rows lie by run: 2^28 places belong to each, in the order in which its rows were written. A row is found by its place, and the rows
//! of a run lie together, so that such a table needs no index.

use ua_core::RunId;

use crate::db::Db;
use crate::error::DbError;
use crate::run_rows::not_found;

/// What a query about rows that lie by run goes on with behind its columns: those of the run `?1`, as `t`, with the numbers from one to another where
/// these are said. Behind it the condition goes on.
macro_rules! of_run {
    ($table:literal) => {
        of_run!($table, "0", "268435455")
    };
    ($table:literal, $first:literal, $last:literal) => {
        concat!(
            " FROM runs r JOIN ",
            $table,
            " t ON t.place BETWEEN (r.seq << 28) + min(",
            $first,
            ", 268435455) AND (r.seq << 28) + min(",
            $last,
            ", 268435455) WHERE r.run_id = ?1"
        )
    };
}
pub(crate) use of_run;

impl Db<'_> {
    /// The place before the first of a run.
    pub(crate) fn places_of(&self, run: &RunId) -> Result<i64, DbError> {
        let sql = "SELECT seq << 28 FROM runs WHERE run_id = ?1";
        self.known_or(
            |kept| kept.of(run)?.places,
            || {
                let places = self.row(sql, [run.as_str()], |row| Ok(row.get(0)?))?;
                let places = places.ok_or_else(|| not_found("runs", run))?;
                self.note_of(run, |of| of.places = Some(places));
                Ok(places)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::{SqliteConfig, SqliteStore};

    #[test]
    fn rows_of_a_run_are_found_by_their_places_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime_state.db");
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        for sql in [
            concat!("SELECT t.*", of_run!("messages"), " ORDER BY t.place"),
            concat!("SELECT t.*", of_run!("turns", "?2", "?3"), " ORDER BY t.place"),
            concat!("SELECT t.*", of_run!("usage", "1", "?2"), " ORDER BY t.place DESC LIMIT 1"),
        ] {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            assert!(steps.len() == 2 && steps[1].contains("t USING INTEGER PRIMARY KEY"), "{sql}: {steps:?}");
        }
        drop(store);
    }
}
