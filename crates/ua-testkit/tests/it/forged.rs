//! A column of the database in which another value is possible: a check notices one that was put there, or the page about security says that
//! nothing can vouch for it (threat S19).
//!
//! Nothing is listed here. The columns are those of the schema, the databases are those that simulations leave, and what is believed is read from
//! the page, so a new column is on one of the two sides or the test fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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

/// What `ua db check --invariants` says of a database; what cannot be read at all says so, too.
async fn findings(path: &Path) -> Result<Vec<String>, StoreError> {
    let store = SqliteStore::open_read_only(path)?;
    let (mut found, mut violations) = (store.examine().await?.findings, Vec::new());
    let runs = store.runs(u32::MAX).await?;
    let roots: BTreeSet<&str> = runs.iter().map(|run| run.root_run_id.as_str()).collect();
    for root in roots {
        let mut family = Vec::new();
        for run in runs.iter().filter(|run| run.root_run_id.as_str() == root) {
            let records = store.load(&run.run_id).await?;
            let mut events = Vec::new();
            for call in &records.calls {
                events.extend(store.events(&call.call_id).await?);
            }
            let all = invariants::check(&records, &events).into_iter();
            violations.extend(all.chain(invariants::check_agreement(&records, &events)));
            family.push(records);
        }
        let all = invariants::check_family(&family).into_iter();
        let all = all.chain(invariants::check_agreement_of_family(&family));
        violations.extend(all.chain(ua_ledger::check_recomputed(DATABASE_ID, &family)));
    }
    // What the core itself does against a statement, no forgery is noticed by.
    found.extend(violations.iter().filter(|one| one.known().is_none()).map(ToString::to_string));
    Ok(found)
}

fn findings_now(path: &Path) -> Result<Vec<String>, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(findings(path))
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
        let found = findings_now(&path).unwrap();
        assert_eq!(found, [""; 0], "seed {seed}");
        kept.extend(has_all.then_some(path));
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

#[test]
#[ignore = "it takes minutes: .ci/nightly runs it"]
fn s19_every_column_is_checked_or_said_to_be_believed() {
    let folder = tempfile::tempdir().unwrap();
    let forgeries: Vec<Forgery> = databases(folder.path()).iter().map(|path| Forgery::of(path)).collect();
    let believed = Believed::read();
    let raw = Connection::open(&forgeries[0].path).unwrap();
    let (mut work, mut without_rows) = (Vec::new(), Vec::new());
    for table in forgeries[0].tables() {
        if believed.is_all(&table) {
            continue;
        }
        let is_empty = |forgery: &Forgery| {
            let raw = Connection::open(&forgery.path).unwrap();
            raw.query_row(&format!("SELECT count(*) = 0 FROM {table}"), [], |row| row.get::<_, bool>(0)).unwrap()
        };
        if forgeries.iter().all(is_empty) {
            without_rows.push(table.clone());
        }
        work.extend(columns(&raw, &table).0.into_iter().map(|column| (table.clone(), column)));
    }
    assert_eq!(without_rows, [""; 0], "no simulation has rows there, so nothing is known of their columns");
    let known: BTreeMap<String, Vec<String>> =
        forgeries[0].tables().into_iter().map(|table| (table.clone(), columns(&raw, &table).0)).collect();
    for (tables, columns) in &believed.0 {
        let of = || known.iter().filter(|(table, _)| tables.contains(*table)).flat_map(|(_, columns)| columns);
        let strange: Vec<_> = columns.iter().flatten().filter(|column| !of().any(|name| name == *column)).collect();
        assert!(strange.is_empty(), "{tables:?} has no column {strange:?}");
    }
    let (work, silent, looked) = (Mutex::new(work), Mutex::new(Vec::new()), Mutex::new(0_u32));
    std::thread::scope(|scope| {
        for number in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let copy = folder.path().join(format!("forged{number}.db"));
            let (work, silent, looked, forgeries, believed) = (&work, &silent, &looked, &forgeries, &believed);
            scope.spawn(move || {
                while let Some((table, column)) = { work.lock().unwrap().pop() } {
                    // What the page tells of needs no more than that it is a column.
                    if believed.has(&table, &column) {
                        continue;
                    }
                    let mut has_looked = false;
                    for forgery in forgeries {
                        if has_looked && each() == 1 {
                            break;
                        }
                        for (key, is, values) in forgery.plans(&table, &column) {
                            for value in values {
                                if !forgery.forged(&copy, &table, &column, &key, &value) {
                                    continue;
                                }
                                *looked.lock().unwrap() += 1;
                                has_looked = true;
                                if findings_now(&copy).is_ok_and(|found| found.is_empty()) {
                                    let told = format!("{table}.{column} of {key:?}: {is:?} -> {value:?}");
                                    silent.lock().unwrap().push(told.chars().take(300).collect::<String>());
                                }
                            }
                        }
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
    assert!(looked > 100, "only {looked} values were put there");
}
