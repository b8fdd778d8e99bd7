//! Statements with named values, and changes that name only the columns that change.

use rusqlite::types::{Null, ToSqlOutput};
use rusqlite::{Connection, Error, ToSql};

/// Runs a statement with its values, in the order in which it names them first.
///
/// SQLite finds a name by comparing it with all others of the statement, which takes longer than binding the value does.
pub(crate) fn run(connection: &Connection, sql: &str, values: &[(&str, &dyn ToSql)]) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(sql)?;
    let expected = statement.parameter_count();
    if expected != values.len() {
        return Err(Error::InvalidParameterCount(values.len(), expected));
    }
    for (place, (name, value)) in (1..).zip(values) {
        debug_assert_eq!(statement.parameter_name(place), Some(*name), "value {place} of {sql}");
        statement.raw_bind_parameter(place, value)?;
    }
    statement.raw_execute()
}

/// What a column is set to.
pub(crate) trait ColumnValue<'v> {
    /// As SQLite takes it.
    fn value(self) -> ToSqlOutput<'v>;
}

macro_rules! column_values {
    ($($of:ty),*) => {
        $(impl<'v> ColumnValue<'v> for $of {
            fn value(self) -> ToSqlOutput<'v> {
                self.into()
            }
        })*
    };
}
column_values!(&'v str, String, i64, u32, u8, bool);

impl<'v> ColumnValue<'v> for &'v String {
    fn value(self) -> ToSqlOutput<'v> {
        self.as_str().into()
    }
}

impl<'v, T: ColumnValue<'v>> ColumnValue<'v> for Option<T> {
    fn value(self) -> ToSqlOutput<'v> {
        self.map_or_else(|| Null.into(), T::value)
    }
}

impl<'v> ColumnValue<'v> for &'v Option<String> {
    fn value(self) -> ToSqlOutput<'v> {
        self.as_deref().value()
    }
}

/// A change of one row, which names the columns that change and no others.
///
/// What is named costs, also where it stays as it was: triggers and checks that are about the column are run, references that it holds are
/// looked up, and indexes that have it are written.
#[derive(Debug)]
pub(crate) struct Changes<'v> {
    sql: String,
    values: Vec<ToSqlOutput<'v>>,
}

impl<'v> Changes<'v> {
    /// No change yet of a row of `table`.
    pub(crate) fn of(table: &'static str) -> Self {
        Self { sql: format!("UPDATE {table} SET "), values: Vec::new() }
    }

    /// Sets a column.
    pub(crate) fn set(&mut self, column: &'static str, value: impl ColumnValue<'v>) {
        if !self.values.is_empty() {
            self.sql.push_str(", ");
        }
        self.sql.push_str(column);
        self.sql.push_str(" = ?");
        self.values.push(value.value());
    }

    /// Changes the row that `condition` finds with `keys`; nothing when no column is set.
    pub(crate) fn write(
        mut self,
        connection: &Connection,
        condition: &'static str,
        keys: &[&dyn ToSql],
    ) -> rusqlite::Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        self.sql.push_str(" WHERE ");
        self.sql.push_str(condition);
        let mut statement = connection.prepare_cached(&self.sql)?;
        for (place, value) in (1..).zip(&self.values) {
            statement.raw_bind_parameter(place, value)?;
        }
        for (place, key) in (self.values.len() + 1..).zip(keys) {
            statement.raw_bind_parameter(place, key)?;
        }
        statement.raw_execute().map(drop)
    }
}

/// Sets the columns whose fields are others than before; all of them when it is not known what was there.
macro_rules! set_changed {
    ($changes:ident, $before:ident => $now:ident, { $($field:ident: $($column:literal = $value:expr),+;)+ }) => {
        $(if $before.is_none_or(|before| before.$field != $now.$field) {
            $($changes.set($column, $value);)+
        })+
    };
}
pub(crate) use set_changed;

#[cfg(test)]
mod tests {
    use rusqlite::named_params;

    use super::*;

    struct Pair {
        left: String,
        right: Option<u32>,
    }

    fn changes<'p>(before: Option<&Pair>, now: &'p Pair) -> Changes<'p> {
        let mut changes = Changes::of("pairs");
        set_changed!(changes, before => now, { left: "one" = &now.left; right: "two" = now.right, "three" = "as well"; });
        changes
    }

    #[test]
    fn a_change_names_only_what_changes() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE pairs (id INTEGER, one, two, three); INSERT INTO pairs VALUES (1, '', 0, ''), (2, '', 0, '')")
            .unwrap();
        let pair = |left: &str, right| Pair { left: left.to_owned(), right };
        let (first, second) = (pair("a", None), pair("a", Some(4)));
        assert_eq!(changes(None, &first).sql, "UPDATE pairs SET one = ?, two = ?, three = ?");
        assert_eq!(changes(Some(&first), &second).sql, "UPDATE pairs SET two = ?, three = ?");
        changes(Some(&second), &second).write(&connection, "no such column = ?", &[&1]).unwrap();
        changes(None, &second).write(&connection, "id = ?", &[&2]).unwrap();
        let row = |id: i64| {
            let sql = "SELECT one || '/' || two || '/' || three FROM pairs WHERE id = ?1";
            connection.query_row(sql, [id], |row| row.get::<_, String>(0)).unwrap()
        };
        assert_eq!((row(1), row(2)), ("/0/".to_owned(), "a/4/as well".to_owned()));
    }

    #[test]
    fn values_are_bound_in_the_order_of_their_names_and_none_is_left_out() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE pairs (one, two)").unwrap();
        let sql = "INSERT INTO pairs VALUES (:one, :two)";
        assert_eq!(run(&connection, sql, named_params! { ":one": 1, ":two": 2 }).unwrap(), 1);
        let refused = run(&connection, sql, named_params! { ":one": 1 }).unwrap_err();
        assert!(matches!(refused, Error::InvalidParameterCount(1, 2)), "{refused}");
        let sum = connection.query_row("SELECT one * 10 + two FROM pairs", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(sum, 12);
    }
}
