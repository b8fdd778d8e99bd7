//! The rows of changes that a person made after a run's start.

use rusqlite::{Row, named_params};
use ua_core::RunId;
use ua_store::OverrideRecord;

use crate::column::{Columns, json, stored_name, text};
use crate::db::Db;
use crate::error::DbError;

impl Db<'_> {
    /// The changes of a run, oldest first.
    pub(crate) fn overrides_of(&self, run: &RunId) -> Result<Vec<OverrideRecord>, DbError> {
        self.rows("SELECT * FROM overrides WHERE run_id = ?1 ORDER BY seq", [run.as_str()], override_record)
    }

    pub(crate) fn insert_override(&self, row: &OverrideRecord) -> Result<(), DbError> {
        let sql = "INSERT INTO overrides (run_id, created_at, kind, component, value_json, made_by) \
                   VALUES (:run, :created, :kind, :component, :value, :by)";
        self.connection.prepare_cached(sql)?.execute(named_params! {
            ":run": row.run_id.as_str(),
            ":created": text(&row.created_at),
            ":kind": stored_name(&row.kind)?,
            ":component": row.component,
            ":value": json(&row.value)?,
            ":by": row.made_by,
        })?;
        Ok(())
    }
}

pub(crate) fn override_record(row: &Row<'_>) -> Result<OverrideRecord, DbError> {
    let column = Columns::new(row, "overrides", "seq");
    Ok(OverrideRecord {
        run_id: column.parsed("run_id")?,
        kind: column.stored_name("kind")?,
        component: column.get("component")?,
        value: column.json("value_json")?,
        made_by: column.get("made_by")?,
        created_at: column.at("created_at")?,
    })
}
