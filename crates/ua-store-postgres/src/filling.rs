//! Rows of another store come in as they are: one transaction, past the triggers, which would make events of their own.

use futures_util::future::try_join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};
use ua_store::{Cell, StoreError, answer_link, plain_text};

use crate::config::{Place, PostgresConfig};
use crate::error::{refused, sql_error};
use crate::owners;
use crate::schema;

/// A database that is being filled; nothing of it is there before [`commit`](Self::commit). While this value lives nobody else fills it, and
/// who filled it before has committed or never will.
pub struct Filling {
    client: Client,
    place: Option<Place>,
    /// What distinguishes it from every other database.
    database: String,
    /// The copy that was committed here.
    copied: Option<String>,
    /// The statement of the table that is being filled, with the types of its columns.
    insert: Option<(String, Statement)>,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filling").finish_non_exhaustive()
    }
}

impl Filling {
    /// Begins; the database must have the newest schema. Not through a pooler: it takes a session of its own.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it is not so, or somebody else does not end filling it.
    pub async fn begin(config: &PostgresConfig) -> Result<Self, StoreError> {
        let client = schema::connect(config).await?;
        owners::judge(&client).await?;
        let found = client.query_opt("SELECT max(version) FROM ua.refinery_schema_history", &[]).await;
        let version: Option<i32> = found.ok().flatten().and_then(|row| row.try_get(0).ok());
        if version != Some(schema::newest()) {
            return Err(refused(
                "the database on the server does not have this program's schema; `ua db migrate` creates it",
            ));
        }
        client
            .batch_execute(
                "BEGIN; SET LOCAL search_path = ua; SET LOCAL synchronous_commit = on; SET CONSTRAINTS ALL DEFERRED; \
                 SET LOCAL lock_timeout = '20s'; LOCK TABLE runs IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 0",
            )
            .await
            .map_err(sql_error)?;
        let mut said = std::collections::HashMap::new();
        for row in client.query("SELECT key, value FROM meta", &[]).await.map_err(sql_error)? {
            let (key, value): (String, String) = (row.get(0), row.get(1));
            said.insert(key, value);
        }
        Ok(Self {
            client,
            place: config.place.clone(),
            database: said.remove("db_uuid").unwrap_or_default(),
            copied: said.remove(COPY),
            insert: None,
        })
    }

    /// What distinguishes the database from every other one, as it was found.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether the copy of this name was committed here.
    pub fn has(&self, copy: &str) -> bool {
        self.copied.as_deref() == Some(copy)
    }

    /// Makes room for the rows; the database must have no run.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it has one, or this user may not change the tables.
    pub async fn make_room(&mut self) -> Result<(), StoreError> {
        let row = self.client.query_one("SELECT count(*) FROM runs", &[]).await.map_err(sql_error)?;
        let runs: i64 = row.try_get(0).map_err(sql_error)?;
        if runs > 0 {
            return Err(refused(format!(
                "the database on the server already has {runs}; only an empty one can be filled",
                runs = ua_core::counted(runs, "run")
            )));
        }
        self.triggers("DISABLE").await?;
        // Which database it is comes with the rows.
        self.execute("DELETE FROM meta").await
    }

    /// Brings rows in.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `Conflict` when the server does not take them.
    pub async fn rows(&mut self, table: &str, columns: &[String], rows: Vec<Vec<Cell>>) -> Result<(), StoreError> {
        if self.insert.as_ref().is_none_or(|(of, _)| of != table) {
            let places: Vec<String> = (1..=columns.len()).map(|place| format!("${place}")).collect();
            let sql = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "));
            self.insert = Some((table.to_owned(), self.client.prepare(&sql).await.map_err(sql_error)?));
        }
        let this = &*self;
        let Some((_, insert)) = &this.insert else { return Ok(()) };
        let values = rows.into_iter().map(|row| {
            let row = cleaned(table, columns, row).into_iter().zip(insert.params());
            row.map(|(cell, kind)| value(cell, kind)).collect::<Result<Vec<_>, _>>()
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        // All are under way at once: a distant server is waited for once.
        let sent = values.iter().map(|row| async move {
            let row: Vec<&(dyn ToSql + Sync)> = row.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
            this.client.execute(insert, &row).await
        });
        try_join_all(sent).await.map_err(sql_error)?;
        Ok(())
    }

    /// Looks whether all rows fit together, says where its runs are driven and which copy this is, and puts everything back that was switched
    /// off.
    ///
    /// # Errors
    ///
    /// `Conflict` when a row refers to one that is missing; `Unavailable` for the server's reasons.
    pub async fn check(&mut self, copy: &str) -> Result<(), StoreError> {
        self.execute("SET CONSTRAINTS ALL IMMEDIATE").await?;
        // What the file knows of an earlier copy, it knows of none that was made.
        self.execute("DELETE FROM meta WHERE key LIKE 'copy%'").await?;
        let sql = "INSERT INTO meta (key, value) VALUES ($1::text, $2::text)";
        self.client.execute(sql, &[&COPY, &copy]).await.map_err(sql_error)?;
        if let Some(Place { id, shown }) = &self.place {
            let sql = "INSERT INTO lineage_places (root_run_id, place, place_shown) \
                       SELECT DISTINCT root_run_id, $1::text, $2::text FROM runs";
            self.client.execute(sql, &[id, shown]).await.map_err(sql_error)?;
        }
        let identities = "SELECT table_name::text, column_name::text FROM information_schema.columns \
                          WHERE table_schema = 'ua' AND is_identity = 'YES'";
        for row in self.client.query(identities, &[]).await.map_err(sql_error)? {
            let (table, column): (String, String) = (row.get(0), row.get(1));
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('ua.{table}', '{column}'), (SELECT max({column}) FROM {table})) \
                 WHERE EXISTS (SELECT 1 FROM {table})"
            );
            self.execute(&sql).await?;
        }
        self.triggers("ENABLE").await
    }

    /// From here on it is all there.
    ///
    /// # Errors
    ///
    /// `Unavailable` when nobody knows whether it is: [`has`](Self::has) tells whoever begins again.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.execute("COMMIT").await
    }

    async fn triggers(&mut self, how: &str) -> Result<(), StoreError> {
        for table in ["blobs", "runs", "tool_attempts", "tool_call_events", "tool_calls", "tool_receipts", "usage"] {
            self.execute(&format!("ALTER TABLE {table} {how} TRIGGER USER")).await?;
        }
        Ok(())
    }

    async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).await.map_err(sql_error)
    }
}

/// The key of `meta` that names the copy which filled a database.
const COPY: &str = "copy";

/// A row in plain text, as every write makes it by now; a file may have rows of before. The link of an answer is over its text, so that of one which
/// counted is made anew: it is the same answer.
fn cleaned(table: &str, columns: &[String], mut row: Vec<Cell>) -> Vec<Cell> {
    let is_unclean = |cell: &Cell| matches!(cell, Cell::Text(text) if text.contains('\0'));
    if !row.iter().any(is_unclean) {
        return row;
    }
    let link_place = columns.iter().position(|column| column == "link").filter(|_| table == "answers");
    let counted =
        link_place.is_some_and(|place| link(columns, &row).is_some_and(|link| row[place] == Cell::Text(link)));
    for cell in &mut row {
        if let Cell::Text(text) = cell {
            *text = plain_text(text).into_owned();
        }
    }
    if let Some((place, link)) = link_place.filter(|_| counted).zip(link(columns, &row)) {
        row[place] = Cell::Text(link);
    }
    row
}

/// The link that the row of an answer has to have; `None` of what is none.
fn link(columns: &[String], row: &[Cell]) -> Option<String> {
    let text = |name: &str| {
        let place = columns.iter().position(|column| column == name)?;
        if let Cell::Text(text) = row.get(place)? { Some(text.as_str()) } else { None }
    };
    let (question, choice) = (text("question_id")?, text("choice")?);
    Some(answer_link(question, choice, text("proof"), text("note"), text("answered_by")?, text("answered_at")?))
}

/// A value as the column takes it.
fn value(cell: Cell, kind: &Type) -> Result<Box<dyn ToSql + Sync + Send>, StoreError> {
    Ok(match (cell, kind) {
        (Cell::Null, &Type::INT8) => Box::new(None::<i64>),
        (Cell::Null, &Type::BOOL) => Box::new(None::<bool>),
        (Cell::Null, &Type::BYTEA) => Box::new(None::<Vec<u8>>),
        (Cell::Null, _) => Box::new(None::<String>),
        (Cell::Int(number), &Type::BOOL) => Box::new(number != 0),
        (Cell::Int(number), &Type::INT8) => Box::new(number),
        (Cell::Text(text), &Type::TEXT) => Box::new(text),
        (Cell::Text(text), &Type::BYTEA) => Box::new(text.into_bytes()),
        (Cell::Bytes(bytes), &Type::BYTEA) => Box::new(bytes),
        (cell, kind) => return Err(refused(format!("a column of type {kind} cannot hold {cell:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 8] =
        ["question_id", "choice", "proof", "note", "answered_by", "answered_at", "applied_at", "link"];

    fn answer(note: &str, by: &str, link: Option<String>) -> Vec<Cell> {
        let text = |text: &str| Cell::Text(text.to_owned());
        let link = link.map_or(Cell::Null, Cell::Text);
        vec![
            text("q_1"),
            text("execute"),
            Cell::Null,
            text(note),
            text(by),
            text("2026-01-02T03:04:05Z"),
            Cell::Null,
            link,
        ]
    }

    fn linked(note: &str, by: &str) -> String {
        answer_link("q_1", "execute", None, Some(note), by, "2026-01-02T03:04:05Z")
    }

    /// Each text of an answer × what its link says.
    #[test]
    fn an_answer_that_counted_in_the_file_counts_on_the_server() {
        let columns: Vec<String> = COLUMNS.iter().map(|&column| column.to_owned()).collect();
        let moved = |table: &str, row: Vec<Cell>| cleaned(table, &columns, row);
        for (note, by) in [("a\0b", "ada"), ("ab", "a\0da"), ("\0", "\0"), ("ab", "ada")] {
            let (clean_note, clean_by) = (note.replace('\0', "\u{fffd}"), by.replace('\0', "\u{fffd}"));
            let as_it_should = answer(&clean_note, &clean_by, Some(linked(&clean_note, &clean_by)));
            assert_eq!(moved("answers", answer(note, by, Some(linked(note, by)))), as_it_should, "{note:?} {by:?}");
            // What somebody wrote there beside the program is none on the server either, and what is older than links has none.
            for link in [None, Some(String::new()), Some(linked("other words", by))] {
                let as_it_was = answer(&clean_note, &clean_by, link.clone());
                assert_eq!(moved("answers", answer(note, by, link)), as_it_was, "{note:?} {by:?}");
            }
        }
        let (json, other) = (Cell::Text(r#"{"a":"\u0000"}"#.to_owned()), Cell::Bytes(vec![0]));
        assert_eq!(moved("questions", vec![json.clone(), other.clone(), Cell::Int(0)]), [json, other, Cell::Int(0)]);
    }
}
