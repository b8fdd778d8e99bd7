//! What a database of this program consists of: migrations for one that is older, and all of it in one piece for one that is new.
//!
//! A new database used to be made by every migration there ever was, one behind the other; that was a quarter of a first start. `schema.sql` is
//! what they come to. Whoever adds a migration adds its line to [`HISTORY`], and has the script written anew:
//!
//! ```sh
//! cargo test -p ua-store-sqlite --lib -- --ignored the_script_is_written_anew
//! ```
//!
//! Invariant: a database that the script made and one that was migrated since the first schema are the same, history of migrations included.
//! Proved by: this file's tests, which also find a migration that the list does not have.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use ua_store::StoreError;

use crate::beside::OwnLog;
use crate::error::{DbError, refused, refused_because, sql_error};
use crate::{doubts, event_chain, pragma};
use ua_core::ShowPath as _;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Everything that the migrations make, in the order in which they leave it.
const SCRIPT: &str = include_str!("schema.sql");

/// The migrations: number, name, and what `refinery` says that the text comes to.
const HISTORY: [(i64, &str, &str); 26] = [
    (1, "initial", "11732174114436838865"),
    (2, "forks", "815804755327385648"),
    (3, "held_time", "5738595691001996234"),
    (4, "deleted_runs", "3214249965365155342"),
    (5, "provider_sessions", "11927123438129128231"),
    (6, "handles", "15110896610864512087"),
    (7, "event_chain", "16146231420832968434"),
    (8, "doubt", "4037886775913883089"),
    (9, "corrections", "15574110494478189368"),
    (10, "taint", "1053803628302478415"),
    (11, "writes", "11234371465154483193"),
    (12, "doubts", "14178838154719789516"),
    (13, "gateway", "9194607270811636920"),
    (14, "cheap_checks", "6278738836801571969"),
    (15, "answer_links", "6781179752896750052"),
    (16, "fleet", "15250693134583360685"),
    (17, "fewer_pages", "15323258226831208595"),
    (18, "processes", "4724768010424708086"),
    (19, "places", "5286328341816548998"),
    (20, "destinations", "3276636084315611831"),
    (21, "lineage_marks", "12892747511550511162"),
    (22, "queue_pauses", "6463378081419030914"),
    (23, "unread_answers", "9270646939234394306"),
    (24, "quiet_keys", "1160122867644598621"),
    (25, "queue_lines", "10812700606431933769"),
    (26, "doubts_found", "14304579680457019939"),
];

/// The schema this program works with.
pub(crate) const OURS: i64 = HISTORY[HISTORY.len() - 1].0;

/// Makes everything in a database in which nothing is yet, in one transaction, and says whose database it is, and which: `identity`, or one that is
/// drawn.
pub(crate) fn make(connection: &mut Connection, identity: Option<&str>) -> rusqlite::Result<()> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", pragma::APPLICATION_ID)?;
    transaction.execute_batch(SCRIPT)?;
    if let Some(identity) = identity {
        transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'db_uuid'", [identity])?;
    }
    note_history(&transaction)?;
    transaction.commit()
}

/// Notes the migrations as `refinery` does that carried them out.
fn note_history(connection: &Connection) -> rusqlite::Result<()> {
    let mut note = connection.prepare(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
         VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?3)",
    )?;
    HISTORY.iter().try_for_each(|migration| note.execute(*migration).map(drop))
}

/// Carries out the migrations that the database at `path` has not had, and says whether there were any. One that has had others than this
/// program knows is refused.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, own_log: &mut OwnLog) -> Result<bool, StoreError> {
    // To compare is a hundredth of what it takes to set up what carries them out.
    let is_behind = !has_had_all(connection).unwrap_or(false);
    if is_behind {
        own_log.before()?;
        pragma::let_schema_be_changed(connection, true).map_err(sql_error)?;
        embedded::migrations::runner()
            .set_grouped(true)
            .set_abort_divergent(true)
            .set_abort_missing(true)
            .run(connection)
            .map_err(|error| {
                refused_because(format!("the schema of {} cannot be brought up to date", path.shown()), error)
            })?;
        pragma::let_schema_be_changed(connection, false).map_err(sql_error)?;
    }
    event_chain::link_migrated(connection).map_err(sql_error)?;
    doubts::find(connection).map_err(DbError::into_store)?;
    Ok(is_behind)
}

/// Refuses a database that has had other migrations than this program knows: another version of it has changed the database since it was
/// opened, and would read what this one writes in another way.
pub(crate) fn check_unchanged(connection: &Connection) -> Result<(), DbError> {
    let newest = "SELECT coalesce(max(version), 0) FROM refinery_schema_history";
    let version: i64 = connection.prepare_cached(newest)?.query_row([], |row| row.get(0))?;
    if version == OURS {
        return Ok(());
    }
    Err(refused(format!(
        "the database has schema {version} by now, and this process works with {OURS}: another version of ua has changed it; end this \
         process, and start that version"
    ))
    .into())
}

/// Whether a database has had these migrations, each with this text, and no others.
fn has_had_all(connection: &Connection) -> rusqlite::Result<bool> {
    let mut history =
        connection.prepare("SELECT version, name, checksum FROM refinery_schema_history ORDER BY version")?;
    let mut known = HISTORY.iter();
    let mut rows = history.query([])?;
    while let Some(row) = rows.next()? {
        let (version, name, sum): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if known.next().is_none_or(|known| *known != (version, &*name, &*sum)) {
            return Ok(false);
        }
    }
    Ok(known.next().is_none())
}

/// What the tables of this schema ask of their rows, by the name of the table: each check as it is written, within its parentheses.
pub(crate) fn checks() -> rusqlite::Result<Vec<(String, Vec<String>)>> {
    let fresh = fresh()?;
    let mut tables =
        fresh.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL ORDER BY name")?;
    let tables = tables.query_map([], |row| Ok((row.get(0)?, checks_of(&row.get::<_, String>(1)?))))?;
    tables.filter(|table| !table.as_ref().is_ok_and(|(_, checks): &(String, Vec<String>)| checks.is_empty())).collect()
}

/// The checks in a table's text.
fn checks_of(sql: &str) -> Vec<String> {
    let mut checks = Vec::new();
    let mut pieces = pieces(sql).filter(|piece| !piece.starts_with("--"));
    while pieces.any(|piece| piece == "CHECK") {
        let (mut check, mut depth) = (String::new(), 0);
        for piece in pieces.by_ref() {
            check.push_str(piece);
            match piece {
                "(" => depth += 1,
                ")" if depth == 1 => break,
                ")" => depth -= 1,
                _ => {}
            }
        }
        checks.push(check.trim().to_owned());
    }
    checks
}

/// A database of this schema in which nothing is.
pub(crate) fn fresh() -> rusqlite::Result<Connection> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(SCRIPT)?;
    Ok(fresh)
}

/// Whether the history of migrations in a database is the one that this program has.
pub(crate) fn history_findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let is_whole = has_had_all(connection)?;
    let finding = "refinery_schema_history is not as this program wrote it, so which migrations the database has had cannot be told";
    Ok(if is_whole { Vec::new() } else { vec![finding.to_owned()] })
}

/// The words, signs, blanks and comments of a table's text, in their order.
fn pieces(sql: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
    let mut rest = sql;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = match first {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' | '`' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => 1,
        };
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        Some(piece)
    })
}

/// A name without the quotes around it.
fn unquoted(piece: &str) -> &str {
    match piece.chars().next() {
        Some(quote @ ('"' | '`')) => piece.trim_matches(quote),
        _ => piece,
    }
}

/// The words and signs of a table's text, without what means nothing: SQLite sets blanks, and quotes around names, as it likes when a table is
/// altered. What stands between quotes stays as it is, two words do not become one, and what is said in a comment is not said in the table.
fn plain(sql: &str) -> Vec<&str> {
    let means_something =
        |piece: &&str| !piece.starts_with("--") && !piece.starts_with(|c: char| c.is_ascii_whitespace());
    pieces(sql).filter(means_something).map(unquoted).collect()
}

/// What a database of this schema has besides rows, and this one has not, or has otherwise, each by its whole text; of a table but for blanks and
/// quotes, which SQLite sets as it likes when one is altered. Without its triggers a database takes what the program would never write, and so it does where a table has lost a
/// check or a key; an index of somebody else's refuses what the program writes.
pub(crate) fn findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let objects = |connection: &Connection| {
        let mut statement = connection.prepare(
            "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        )?;
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        found.collect::<rusqlite::Result<BTreeMap<String, Option<String>>>>()
    };
    let is_other = |name: &str, sql: &Option<String>, is: &Option<String>| match (sql, is) {
        (Some(sql), Some(is)) if name.starts_with("table ") => sql != is && plain(sql) != plain(is),
        _ => sql != is,
    };
    let fresh = fresh()?;
    let (expected, found) = (objects(&fresh)?, objects(connection)?);
    let wrong = expected.iter().filter_map(|(name, sql)| match found.get(name) {
        None => Some(format!("the {name} is missing")),
        Some(is) if is_other(name, sql, is) => Some(format!("the {name} is not as this program made it")),
        Some(_) => None,
    });
    let more = found.keys().filter(|name| !expected.contains_key(*name));
    Ok(wrong.chain(more.map(|name| format!("the {name} is not this program's"))).collect())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use rusqlite::types::Value;

    use super::*;

    /// A database that had one migration after the other.
    fn migrated() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "application_id", pragma::APPLICATION_ID).unwrap();
        migrate(&mut connection, Path::new("a database in memory"), &mut OwnLog::default()).unwrap();
        connection
    }

    fn made() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        make(&mut connection, None).unwrap();
        connection
    }

    /// The statements that a database was made with, in the order in which they lie there, but for those that SQLite makes by itself.
    fn statements(connection: &Connection) -> Vec<String> {
        let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' ORDER BY rowid";
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Everything that lies in a database, but for what is another text in each one, and where SQLite begins to count the rows of a table: at one.
    fn contents(connection: &Connection) -> BTreeMap<String, Vec<Vec<Value>>> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence'";
        let mut tables = connection.prepare(sql).unwrap();
        let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().collect::<Result<Vec<_>, _>>();
        let rows = |table: &String| {
            let mut all = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
            let columns = all.column_count();
            let own = all.column_names().position(|name| name == "applied_on");
            let own = if table == "meta" { Some(1) } else { own };
            let row = |row: &rusqlite::Row<'_>| {
                let cells = (0..columns).filter(|column| Some(*column) != own).map(|column| row.get(column));
                cells.collect::<rusqlite::Result<Vec<Value>>>()
            };
            all.query_map([], row).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
        };
        tables.unwrap().into_iter().map(|table| (table.clone(), rows(&table))).collect()
    }

    /// What `schema.sql` has to be.
    fn script() -> String {
        let mut script = String::from(
            "-- Made of the migrations by a test of src/schema.rs, which says how it is made anew; nothing is written here by hand.\n",
        );
        for statement in statements(&migrated()) {
            writeln!(script, "\n{statement};").unwrap();
        }
        script.push_str("\nINSERT INTO meta (key, value) VALUES ('db_uuid', lower(hex(randomblob(16))));\n");
        script
    }

    #[test]
    fn a_new_database_is_one_that_had_every_migration() {
        assert_eq!(SCRIPT, script(), "a migration was added: see the first lines of this file");
        let (made, migrated) = (made(), migrated());
        assert_eq!(statements(&made), statements(&migrated));
        assert_eq!(contents(&made), contents(&migrated));
        let number = |connection: &Connection| {
            connection.pragma_query_value(None, "application_id", |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!((number(&made), number(&migrated)), (pragma::APPLICATION_ID, pragma::APPLICATION_ID));
        assert!(findings(&made).unwrap().is_empty() && findings(&migrated).unwrap().is_empty());
    }

    /// What is asked of the rows of a table is what stands in its text, whole.
    #[test]
    fn every_check_of_every_table_is_found() {
        let in_script =
            SCRIPT.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n");
        let checks = checks().unwrap();
        assert_eq!(checks.iter().map(|(_, checks)| checks.len()).sum::<usize>(), in_script.matches("CHECK (").count());
        let fresh = fresh().unwrap();
        for (table, checks) in &checks {
            for check in checks {
                fresh.prepare(&format!("SELECT 1 FROM {table} WHERE NOT {check}")).unwrap();
            }
        }
        let of = checks_of(
            "CREATE TABLE t (a TEXT CHECK (a <> ')' -- CHECK (a)\n AND (a ->> '$.b') IS NULL), b, CHECK (b >= 2))",
        );
        assert_eq!(of, ["(a <> ')' \n AND (a ->> '$.b') IS NULL)", "(b >= 2)"]);
    }

    /// Every table, with every word of it taken out, one at a time, and one more column, check, key or collation: what of it SQLite still takes for
    /// a table is noticed.
    #[test]
    fn a_table_that_is_not_as_it_was_made_is_noticed() {
        let made = made();
        let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        let mut tables = made.prepare(sql).unwrap();
        let tables: Vec<(String, String)> =
            tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap();
        let unsaid = |line: &str| match line.strip_suffix(',').filter(|line| line.contains(" CHECK")) {
            Some(line) => format!("{}\n,", line.replacen(" CHECK", " -- CHECK", 1)),
            None => line.to_owned(),
        };
        let mut tried = 0;
        for (table, sql) in &tables {
            let words: Vec<&str> = sql.split_whitespace().collect();
            let without = (2..words.len()).map(|at| [&words[..at], &words[at + 1..]].concat().join(" "));
            let changed = [
                sql.replacen("PRIMARY KEY", "PRIMARY KEY ON CONFLICT REPLACE", 1),
                sql.replacen("UNIQUE", "UNIQUE ON CONFLICT IGNORE", 1),
                sql.replacen("TEXT NOT NULL", "TEXT NOT NULL COLLATE NOCASE", 1),
                sql.replacen('(', "(more TEXT, ", 1),
                // A word with a blank in it is another word, and what stands behind two dashes is not said.
                sql.replacen(" = '", " = ' ", 1),
                sql.lines().map(unsaid).collect::<Vec<_>>().join("\n"),
            ];
            let before = tried;
            for other in changed.into_iter().chain(without).filter(|other| other != sql && *other != words.join(" ")) {
                let alone = Connection::open_in_memory().unwrap();
                if alone.execute_batch(&other).is_err() {
                    continue;
                }
                let text: String = alone
                    .query_row("SELECT sql FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
                    .unwrap();
                let fresh = self::made();
                fresh.pragma_update(None, "writable_schema", true).unwrap();
                fresh.execute("UPDATE sqlite_schema SET sql = ?1 WHERE name = ?2", [&text, table]).unwrap();
                let found = findings(&fresh).unwrap();
                assert_eq!(found.len(), 1, "{table}: {text}");
                tried += 1;
                // So many of each table say it all, and cost a few seconds.
                if tried - before == 40 {
                    break;
                }
            }
            // Blanks and quotes are not its meaning.
            let fresh = self::made();
            fresh.pragma_update(None, "writable_schema", true).unwrap();
            let quoted = format!("\"{table}\"");
            let named = if sql.contains(&quoted) {
                sql.replacen(&quoted, table, 1)
            } else {
                sql.replacen(table.as_str(), &quoted, 1)
            };
            // A comment is one line.
            let spaced = named
                .lines()
                .map(|line| if line.contains("--") { line.to_owned() } else { line.replace(", ", ",\n    ") });
            let spaced = spaced.collect::<Vec<_>>().join("\n");
            fresh.execute("UPDATE sqlite_schema SET sql = ?1 WHERE name = ?2", [&spaced, table]).unwrap();
            assert_eq!(findings(&fresh).unwrap(), Vec::<String>::new(), "{table}");
        }
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn the_history_names_every_migration_and_its_text() {
        let runner = embedded::migrations::runner();
        let mut all: Vec<_> = runner.get_migrations().iter().collect();
        all.sort();
        let all: Vec<(i64, String, String)> = all
            .iter()
            .map(|one| (i64::from(one.version()), one.name().to_owned(), one.checksum().to_string()))
            .collect();
        let known = HISTORY.map(|(version, name, sum)| (version, name.to_owned(), sum.to_owned()));
        assert_eq!(known.as_slice(), all);
        // What carries migrations out reads the notes as its own, and finds nothing to do.
        let mut made = made();
        let report = runner.set_abort_divergent(true).set_abort_missing(true).run(&mut made).unwrap();
        assert!(report.applied_migrations().is_empty());
    }

    #[test]
    fn only_a_database_that_had_exactly_these_migrations_is_left_alone() {
        let made = made();
        assert!(has_had_all(&made).unwrap() && has_had_all(&migrated()).unwrap());
        for change in [
            "UPDATE refinery_schema_history SET checksum = '1' WHERE version = 3",
            "DELETE FROM refinery_schema_history WHERE version = 18",
            "INSERT INTO refinery_schema_history VALUES (999, 'later', '2030-01-01T00:00:00Z', '1')",
        ] {
            made.execute_batch(&format!("SAVEPOINT before; {change}")).unwrap();
            assert!(!has_had_all(&made).unwrap(), "{change}");
            made.execute_batch("ROLLBACK TO before; RELEASE before").unwrap();
        }
        assert!(has_had_all(&Connection::open_in_memory().unwrap()).is_err(), "there is no history");
    }

    #[test]
    #[ignore = "writes src/schema.sql"]
    fn the_script_is_written_anew() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema.sql"), script()).unwrap();
    }
}
