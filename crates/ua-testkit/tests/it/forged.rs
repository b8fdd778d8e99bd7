//! A column of the database in which another value is possible: a check notices one that was put there, or the page about security says that
//! nothing can vouch for it (threat S19).
//!
//! No column is listed here. The columns are those of the schema, the databases are those that simulations leave, and what is believed is read from
//! the page, so a new column is on one of the two sides or the test of its table fails. Each table has a test of its own, which can be run again by
//! its name (`forged::of_table::runs`); how many values are tried of a column is bounded, whatever the databases hold.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use rusqlite::Connection;
use rusqlite::types::Value;
use ua_store::{LedgerStore as _, RunStore as _, StoreError, invariants};
use ua_store_sqlite::SqliteStore;
use ua_testkit::sim::{DATABASE_ID, SimOptions, SimStore, simulate};

/// How many databases are forged, and from how many seeds they are taken.
const DATABASES: usize = 2;
const SEEDS: u64 = 60;

/// How many rows of a database are forged for one column (those with different values, and one in which nothing stands), and how many other values of
/// the column are put into each. Before a change lands, one each; `.ci/nightly` (`UA_FORGED_WHOLE`) takes more, in every database.
fn each() -> usize {
    let is_whole = std::env::var_os("UA_FORGED_WHOLE").is_some();
    if is_whole { 2 } else { 1 }
}

/// Columns of which the page says that nothing can vouch for them in some rows: in others a forgery is noticed.
const IN_PART: [(&str, &str); 2] = [("questions", "run_id"), ("runs", "parent_run_id")];

/// What `ua db check --invariants` says first of a database, if anything; what cannot be read at all says so, too.
async fn finding(path: &Path) -> Result<Option<String>, StoreError> {
    let store = SqliteStore::open_read_only(path)?;
    if let Some(found) = store.examine().await?.findings.into_iter().next() {
        return Ok(Some(found));
    }
    let runs = store.runs(u32::MAX).await?;
    let roots: BTreeSet<&str> = runs.iter().map(|run| run.root_run_id.as_str()).collect();
    for root in roots {
        let (mut family, mut violations) = (Vec::new(), Vec::new());
        for run in runs.iter().filter(|run| run.root_run_id.as_str() == root) {
            let records = store.load(&run.run_id).await?;
            let mut events = Vec::new();
            for call in &records.calls {
                events.extend(store.events(&call.call_id).await?);
            }
            violations.extend(invariants::check(&records, &events));
            violations.extend(invariants::check_agreement(&records, &events));
            family.push(records);
        }
        violations.extend(invariants::check_family(&family));
        violations.extend(invariants::check_agreement_of_family(&family));
        violations.extend(ua_ledger::check_recomputed(DATABASE_ID, &family));
        // What the core itself does against a statement, no forgery is noticed by.
        if let Some(found) = violations.iter().find(|one| one.known().is_none()) {
            return Ok(Some(found.to_string()));
        }
    }
    Ok(None)
}

fn finding_now(path: &Path) -> Result<Option<String>, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(finding(path))
}

/// Databases of runs that asked somebody, and forked or had sub-agents, in which nothing is wrong.
fn databases(folder: &Path) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    for seed in 1..=SEEDS {
        let path = folder.join(format!("{seed}.db"));
        let options = SimOptions { store: SimStore::Sqlite, keep: Some(path.clone()), ..SimOptions::of_seed(seed) };
        let counts = simulate(&options).unwrap().counts;
        let has_all = counts.questions > 0 && counts.forks + counts.sub_agents > 0;
        // As a database is that somebody works with; a copy is in one file.
        Connection::open(&path).unwrap().query_row("PRAGMA journal_mode = wal", [], |_| Ok(())).unwrap();
        if has_all {
            assert_eq!(finding_now(&path).unwrap(), None, "seed {seed}");
            kept.push(path);
        }
        if kept.len() == DATABASES {
            return kept;
        }
    }
    panic!("{SEEDS} seeds have {} databases", kept.len());
}

/// What the page says nothing can vouch for: the columns of each table, or all of it.
struct Believed(Vec<(Vec<String>, Option<BTreeSet<String>>)>);

impl Believed {
    fn read() -> Self {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, table) = page.split_once("columns that nothing can vouch for |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let named = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        let rows = table.lines().filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (tables, columns) = (named(cells.next()?), cells.next()?);
            let columns = (!columns.starts_with("all")).then(|| named(columns).into_iter().collect());
            (!tables.is_empty()).then_some((tables, columns))
        });
        Self(rows.collect())
    }

    /// The columns of a table of which it says so; `None` inside for all of them.
    fn of(&self, table: &str) -> Option<&Option<BTreeSet<String>>> {
        let is_it = |name: &String| match name.strip_suffix('*') {
            Some(start) => table.starts_with(start),
            None => name == table,
        };
        self.0.iter().find(|(tables, _)| tables.iter().any(is_it)).map(|(_, columns)| columns)
    }

    fn is_all(&self, table: &str) -> bool {
        matches!(self.of(table), Some(None))
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.of(table).is_some_and(|columns| columns.as_ref().is_none_or(|columns| columns.contains(column)))
    }
}

/// A database, and what is needed to write into it what nobody of this program writes.
struct Forgery {
    path: PathBuf,
    triggers: Vec<(String, String)>,
}

fn list(raw: &Connection, sql: &str) -> Vec<String> {
    raw.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The columns that are stored, with those that name a row.
fn columns(raw: &Connection, table: &str) -> (Vec<String>, Vec<String>) {
    let of = |more: &str| {
        list(raw, &format!("SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0 {more} ORDER BY pk, cid"))
    };
    (of(""), of("AND pk > 0"))
}

impl Forgery {
    fn of(path: &Path) -> Self {
        let raw = Connection::open(path).unwrap();
        let of =
            |column| list(&raw, &format!("SELECT {column} FROM sqlite_schema WHERE type = 'trigger' ORDER BY name"));
        let triggers = of("name").into_iter().zip(of("sql")).collect();
        Self { path: path.to_owned(), triggers }
    }

    fn tables(&self) -> Vec<String> {
        let raw = Connection::open(&self.path).unwrap();
        list(&raw, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    }

    /// What may be put into a column: the rows, each by what names it and what stands there, and the values for each.
    fn plans(&self, table: &str, column: &str) -> Vec<(Vec<Value>, Value, Vec<Value>)> {
        let raw = Connection::open(&self.path).unwrap();
        let (_, key) = columns(&raw, table);
        let schema: String =
            raw.query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0)).unwrap();
        // Every word that the table itself takes there.
        let start = format!("{column} = '");
        let words = schema.match_indices(&start).filter_map(|(at, _)| schema[at + start.len()..].split('\'').next());
        let words: BTreeSet<&str> = words.collect();
        let sql = format!("SELECT {}, {column} FROM {table} ORDER BY {column} IS NULL", key.join(", "));
        let mut select = raw.prepare(&sql).unwrap();
        let read = |row: &rusqlite::Row<'_>| {
            let of_key = (0..key.len()).map(|at| row.get(at)).collect::<Result<Vec<Value>, _>>()?;
            Ok((of_key, row.get::<_, Value>(key.len())?))
        };
        let all: Vec<(Vec<Value>, Value)> = select.query_map([], read).unwrap().collect::<Result<_, _>>().unwrap();
        let mut rows: Vec<&(Vec<Value>, Value)> = Vec::new();
        for row in &all {
            let is_new = !rows.iter().any(|chosen| chosen.1 == row.1);
            if is_new && (rows.len() < each() || row.1 == Value::Null) {
                rows.push(row);
            }
        }
        let plan = |(key, is): &(Vec<Value>, Value)| {
            let mut values: Vec<Value> = Vec::new();
            for (_, other) in all.iter().rev() {
                if other != is && *other != Value::Null && !values.contains(other) && values.len() < each() {
                    values.push(other.clone());
                }
            }
            values.extend(words.iter().map(|word| Value::Text((*word).to_owned())));
            values.extend(variations(is));
            let mut once = Vec::new();
            for value in values {
                if value != *is && !once.contains(&value) {
                    once.push(value);
                }
            }
            if each() == 1 {
                once.truncate(2);
            }
            (key.clone(), is.clone(), once)
        };
        rows.into_iter().map(plan).collect()
    }

    /// A copy in which one value is another one, if the tables themselves take it.
    fn forged(&self, copy: &Path, table: &str, column: &str, key: &[Value], value: &Value) -> bool {
        for end in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{end}", copy.display())).ok();
        }
        std::fs::copy(&self.path, copy).unwrap();
        let raw = Connection::open(copy).unwrap();
        raw.execute_batch(
            "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA synchronous = 0; BEGIN",
        )
        .unwrap();
        for (name, _) in &self.triggers {
            raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        let (_, names) = columns(&raw, table);
        let is_it: Vec<String> = names.iter().map(|name| format!("{name} IS ?")).collect();
        let sql = format!("UPDATE {table} SET {column} = ? WHERE {}", is_it.join(" AND "));
        let done = raw.execute(&sql, rusqlite::params_from_iter(std::iter::once(value).chain(key)));
        for (_, sql) in &self.triggers {
            raw.execute_batch(sql).unwrap();
        }
        raw.execute_batch("COMMIT").unwrap();
        done.is_ok_and(|changed| changed == 1)
    }
}

/// What may stand there in the place of a value, if nothing else is known of it.
fn variations(is: &Value) -> Vec<Value> {
    let text = |text: &str| Value::Text(text.to_owned());
    match is {
        Value::Null => vec![text("x"), Value::Integer(5)],
        Value::Integer(number) => {
            vec![Value::Null, Value::Integer(number + 1), Value::Integer(number - 1), Value::Integer(0)]
        }
        Value::Text(word) => {
            let mut values = vec![Value::Null];
            let last = if word.ends_with('0') { '1' } else { '0' };
            let cut: String = word.chars().take(word.chars().count().saturating_sub(1)).chain([last]).collect();
            values.push(Value::Text(cut));
            if let Ok(mut json) = serde_json::from_str(word)
                && is_varied(&mut json)
            {
                values.push(Value::Text(json.to_string()));
            }
            values
        }
        Value::Real(_) | Value::Blob(_) => vec![Value::Null],
    }
}

/// Changes the first text or number inside of a value.
fn is_varied(json: &mut serde_json::Value) -> bool {
    use serde_json::Value as Json;
    match json {
        Json::Object(fields) => fields.values_mut().any(is_varied),
        Json::Array(all) => all.iter_mut().any(is_varied),
        Json::String(word) => {
            word.push('x');
            true
        }
        Json::Number(number) => {
            let more = number.as_u64().map(|number| number + 1);
            more.is_some_and(|more| {
                *json = more.into();
                true
            })
        }
        Json::Bool(_) | Json::Null => false,
    }
}

/// The databases that all tests here forge, made once.
static DATABASES_MADE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    databases(folder.path()).iter().map(|path| std::fs::read(path).unwrap()).collect()
});

/// The same in a folder of a test's own.
fn forgeries(folder: &Path) -> Vec<Forgery> {
    let write = |(number, database): (usize, &Vec<u8>)| {
        let path = folder.join(format!("{number}.db"));
        std::fs::write(&path, database).unwrap();
        Forgery::of(&path)
    };
    DATABASES_MADE.iter().enumerate().map(write).collect()
}

/// Whether a table and the page know each other, and some database has rows of it.
#[test]
#[ignore = "it makes databases for a minute: .ci/nightly runs it"]
fn s19_every_column_is_checked_or_said_to_be_believed() {
    let folder = tempfile::tempdir().unwrap();
    let (forgeries, believed) = (forgeries(folder.path()), Believed::read());
    let first = &forgeries[0];
    let looked_at: Vec<String> = first.tables().into_iter().filter(|table| !believed.is_all(table)).collect();
    let with_tests: Vec<&str> = of_table::TABLES.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(looked_at, with_tests, "a table that is not believed as a whole has a test here");
    let has_rows = |forgery: &Forgery, table: &str| {
        let raw = Connection::open(&forgery.path).unwrap();
        raw.query_row(&format!("SELECT count(*) > 0 FROM {table}"), [], |row| row.get::<_, bool>(0)).unwrap()
    };
    let without_rows: Vec<&String> =
        looked_at.iter().filter(|table| !forgeries.iter().any(|forgery| has_rows(forgery, table))).collect();
    assert_eq!(without_rows, [""; 0], "no simulation has rows there, so nothing is known of their columns");
    let raw = Connection::open(&first.path).unwrap();
    let known: BTreeMap<String, Vec<String>> =
        first.tables().into_iter().map(|table| (table.clone(), columns(&raw, &table).0)).collect();
    for (tables, columns) in &believed.0 {
        let of = || known.iter().filter(|(table, _)| tables.contains(*table)).flat_map(|(_, columns)| columns);
        let strange: Vec<_> = columns.iter().flatten().filter(|column| !of().any(|name| name == *column)).collect();
        assert!(strange.is_empty(), "{tables:?} has no column {strange:?}");
    }
}

/// Puts other values into every column of a table that the page does not tell of, and holds that each is noticed.
fn every_column_of(table: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (forgeries, believed) = (&forgeries(folder.path()), Believed::read());
    let names = columns(&Connection::open(&forgeries[0].path).unwrap(), table).0;
    let is_in_part = |column: &str| IN_PART.contains(&(table, column));
    let is_forged = |column: &String| !believed.has(table, column) || is_in_part(column);
    let work: Vec<String> = names.into_iter().filter(is_forged).collect();
    let total = work.len();
    let (work, silent, looked) = (Mutex::new(work), Mutex::new(Vec::new()), Mutex::new(0_usize));
    std::thread::scope(|scope| {
        for number in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let copy = folder.path().join(format!("forged{number}.db"));
            let (work, silent, looked, is_in_part) = (&work, &silent, &looked, &is_in_part);
            scope.spawn(move || {
                while let Some(column) = { work.lock().unwrap().pop() } {
                    let (tried, missed) = unnoticed(forgeries, &copy, table, &column);
                    *looked.lock().unwrap() += tried;
                    if !is_in_part(&column) {
                        silent.lock().unwrap().extend(missed);
                    } else if each() > 1 && missed.len() >= tried {
                        silent.lock().unwrap().push(format!("{table}.{column} in any row at all"));
                    }
                }
            });
        }
    });
    let (mut silent, looked) = (silent.into_inner().unwrap(), looked.into_inner().unwrap());
    silent.sort();
    assert!(
        silent.is_empty(),
        "no check notices these, and docs/security.md does not say that nothing can vouch for them:\n{}",
        silent.join("\n")
    );
    assert!(looked >= total, "only {looked} values were put into {total} columns");
}

/// How many values were put into a column, and those of them that no check notices.
fn unnoticed(forgeries: &[Forgery], copy: &Path, table: &str, column: &str) -> (usize, Vec<String>) {
    let (mut tried, mut silent) = (0, Vec::new());
    for forgery in forgeries {
        for (key, is, values) in forgery.plans(table, column) {
            for value in values {
                if !forgery.forged(copy, table, column, &key, &value) {
                    continue;
                }
                tried += 1;
                if finding_now(copy).is_ok_and(|found| found.is_none()) {
                    let told = format!("{table}.{column} of {key:?}: {is:?} -> {value:?}");
                    silent.push(told.chars().take(300).collect::<String>());
                }
            }
        }
        if tried > 0 && each() == 1 {
            break;
        }
    }
    (tried, silent)
}

/// A test for each table.
mod of_table {
    macro_rules! tables {
        ($($table:ident),* $(,)?) => {
            pub(super) const TABLES: &[&str] = &[$(stringify!($table)),*];
            $(
                #[test]
                #[ignore = "all of them take minutes: .ci/nightly runs them"]
                fn $table() {
                    super::every_column_of(stringify!($table));
                }
            )*
        };
    }

    tables![
        answers,
        checkpoints,
        messages,
        questions,
        refinery_schema_history,
        run_steps,
        run_writes,
        runs,
        tool_attempts,
        tool_call_events,
        tool_calls,
        tool_receipts,
        turns,
        usage,
    ];
}
