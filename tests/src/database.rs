//! A look at the runtime database from outside: another process, read-only, with no code of the program under test.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// The runtime database of a [`TestEnv`](crate::TestEnv), opened for one look.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
}

impl Database {
    /// Opens the file, if it is there and can be read right now.
    pub fn open(path: &Path) -> Option<Self> {
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        connection.ok().map(|connection| Self { connection })
    }

    /// The rows of `sql`, the columns of each joined by a space. `None` when the database does not answer.
    pub fn try_rows(&self, sql: &str) -> Option<Vec<String>> {
        let mut statement = self.connection.prepare(sql).ok()?;
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cells = (0..columns).map(|index| row.get::<_, rusqlite::types::Value>(index).map(cell));
            Ok(cells.collect::<Result<Vec<String>, _>>()?.join(" "))
        });
        rows.ok()?.collect::<Result<_, _>>().ok()
    }
}

fn cell(value: rusqlite::types::Value) -> String {
    use rusqlite::types::Value;
    match value {
        Value::Null => "-".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{} bytes", bytes.len()),
    }
}
