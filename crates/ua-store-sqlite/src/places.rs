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
        let places = self.known_or(
            |kept| kept.of(run)?.places,
            || self.row(sql, [run.as_str()], |row| Ok(row.get(0)?))?.ok_or_else(|| not_found("runs", run)),
        )?;
        self.note_of(run, |of| of.places = Some(places));
        Ok(places)
    }
}
