//! Rows that no write of this program leaves: what the schema refuses, what the program cannot read, and what says the same thing twice in two ways.
//!
//! `PRAGMA integrity_check` looks at pages, indexes, types and what may not be missing. It does not find a value that a `CHECK` refuses and that was
//! put there with checks switched off: of a database that is opened for reading alone SQLite forgets the checks when it reads the schema
//! (`sqlite3AddCheckConstraint`), and `ua doctor` opens it so. So the checks of the tables, as this program makes them, are asked of their rows, and
//! each row is read as the program reads it. Threat S19. Proved by: `tests/it/row_findings.rs`.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::column::Columns;
use crate::error::DbError;
use crate::scope::Scope;
use crate::{fleet_rows, gateway_rows, ledger_rows, override_rows, run_rows, schema};

type DbResult<T> = Result<T, DbError>;

/// How many rows of one table are named.
const MOST: usize = 20;

/// Which rows the schema refuses, each as a sentence.
pub(crate) fn refused(connection: &Connection, scope: &Scope) -> DbResult<Vec<String>> {
    let mut found = Vec::new();
    for (table, checks) in schema::checks()? {
        // What is missing, or is there in another form, is named by those who look at the schema.
        let Ok(mut select) = connection.prepare(&scope.statement(&refusals(&table, &checks))) else { continue };
        let mut refused = 0;
        let mut rows = scope.query(&mut select)?;
        while let Some(row) = rows.next()? {
            refused += 1;
            if refused <= MOST {
                let check = checks.get(usize::from(row.get::<_, u16>("refused_by")?)).map_or("", String::as_str);
                found.push(format!(
                    "{table} {}: no write of this program leaves a row like this (CHECK {check})",
                    key(row)
                ));
            }
        }
        more_than(MOST, refused, &table, &mut found);
    }
    Ok(found)
}

/// Asks for the rows of a table that its checks refuse, and which of them does. A check lets pass what it cannot tell.
fn refusals(table: &str, checks: &[String]) -> String {
    let which: Vec<String> =
        checks.iter().enumerate().map(|(place, check)| format!(" WHEN NOT {check} THEN {place}")).collect();
    let (which, all) = (which.concat(), checks.join(" AND "));
    format!("SELECT *, CASE{which} END AS refused_by FROM {{{table}}} WHERE NOT ({all})")
}

/// Which rows the program cannot read, each as a sentence, of a part of the tables.
pub(crate) fn unread(connection: &Connection, scope: &Scope, part: Part) -> DbResult<Vec<String>> {
    let mut found = Vec::new();
    let (first, second) = READERS.split_at(HALF);
    for &(table, sql, read) in if part == Part::First { first } else { second } {
        unreadable(connection, scope, (table, sql), read, &mut found)?;
    }
    Ok(found)
}

/// Which half of the tables is read: two readers take half of the time on two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    First,
    Second,
}

/// How many tables the first reader takes. By their rows it is more than half, and each of them is less to read than a call.
const HALF: usize = 6;

/// What a row is found by: its first column.
pub(crate) fn key(row: &Row<'_>) -> String {
    match row.get_ref(0) {
        Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).chars().take(80).collect(),
        Ok(ValueRef::Integer(number)) => number.to_string(),
        Ok(ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_)) | Err(_) => "(a row without a name)".to_owned(),
    }
}

pub(crate) fn more_than(most: usize, count: usize, table: &str, found: &mut Vec<String>) {
    if count > most {
        found.push(format!("{table}: {} more rows like these", count - most));
    }
}

/// Reads a row as the program does, and says what in it does not fit together.
type Read = fn(&Row<'_>) -> DbResult<Option<String>>;

/// How the program reads the rows of each table that is more than plain words. Between braces are the rows that are looked at.
const READERS: &[(&str, &str, Read)] = &[
    ("runs", "SELECT * FROM {runs}", |row| run_rows::run_record(row).map(|_| None)),
    ("run_steps", "SELECT * FROM {run_steps}", |row| run_rows::step_record(row).map(|_| None)),
    ("turns", "SELECT * FROM {turns}", |row| run_rows::turn_record(row).map(|_| None)),
    ("usage", "SELECT * FROM {usage}", |row| run_rows::request_record(row).map(|_| None)),
    ("messages", "SELECT * FROM {messages}", message),
    ("checkpoints", "SELECT * FROM {checkpoints}", |row| run_rows::checkpoint_record(row).map(|_| None)),
    (
        "questions",
        "SELECT q.*, a.choice, a.proof, a.note, a.answered_by, a.answered_at, a.applied_at, a.link FROM {questions} q \
         LEFT JOIN answers a ON a.question_id = q.question_id",
        |row| run_rows::question_record(row).map(|_| None),
    ),
    ("overrides", "SELECT * FROM {overrides}", |row| override_rows::override_record(row).map(|_| None)),
    ("tool_calls", CALLS, call),
    ("tool_attempts", "SELECT * FROM {tool_attempts}", |row| ledger_rows::attempt_record(row).map(|_| None)),
    ("tool_receipts", "SELECT * FROM {tool_receipts}", |row| ledger_rows::receipt_record(row).map(|_| None)),
    (
        "tool_call_events",
        "SELECT e.*, c.run_id AS run_of_call FROM {tool_call_events} e LEFT JOIN tool_calls c ON c.tool_call_id = e.tool_call_id",
        event,
    ),
    ("gateway_sessions", "SELECT * FROM {gateway_sessions}", |row| gateway_rows::session_record(row).map(|_| None)),
    ("gateway_arrivals", "SELECT * FROM {gateway_arrivals}", |row| gateway_rows::arrival_record(row).map(|_| None)),
    ("workers", "SELECT * FROM workers", |row| fleet_rows::worker_record(row).map(|_| None)),
    (
        "run_queue",
        "SELECT q.*, (SELECT l.line FROM queue_lines l WHERE l.line = q.line AND l.priority = q.priority AND l.queue = q.queue \
         AND l.fair_key IS q.fair_key) AS found FROM {run_queue} q",
        queued,
    ),
    ("schedules", "SELECT * FROM schedules", |row| fleet_rows::schedule_record(row).map(|_| None)),
];

fn unreadable(
    connection: &Connection,
    scope: &Scope,
    (table, sql): (&str, &str),
    read: Read,
    found: &mut Vec<String>,
) -> DbResult<()> {
    // A table that is not there is named already.
    let Ok(mut select) = connection.prepare(&scope.statement(sql)) else { return Ok(()) };
    let mut rows = scope.query(&mut select)?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let why = match read(row) {
            Ok(None) => continue,
            Ok(Some(why)) => format!("{table} {}: {why}", key(row)),
            Err(DbError::Store(error)) => error.to_string(),
            Err(DbError::Sql(error)) => format!("{table} {}: {error}", key(row)),
        };
        count += 1;
        if count <= MOST {
            found.push(why);
        }
    }
    more_than(MOST, count, table, found);
    Ok(())
}

/// Who says what stands in the message itself, too.
fn message(row: &Row<'_>) -> DbResult<Option<String>> {
    let message = run_rows::message_record(row)?.message;
    let column = Columns::new(row, "messages", "seq");
    let is_so = |name: &'static str, word: String| Ok::<_, DbError>(column.get::<String>(name)? == word);
    let fits = is_so("role", crate::column::stored_name(&message.role)?)?
        && is_so("origin", crate::column::stored_name(&message.origin)?)?;
    Ok((!fits).then(|| "its role or origin is another one than its message has".to_owned()))
}

/// A run is taken from the line of its priority, queue and fair key; in another one, or none, nobody finds it in its turn.
fn queued(row: &Row<'_>) -> DbResult<Option<String>> {
    fleet_rows::entry(row)?;
    let found: Option<i64> = Columns::new(row, "run_queue", "run_id").get("found")?;
    Ok(found.is_none().then(|| "it is in no line of its priority, queue and fair key".to_owned()))
}

/// Events are looked for by the run that stands in them; the chain goes by that of their call.
fn event(row: &Row<'_>) -> DbResult<Option<String>> {
    ledger_rows::event_record(row)?;
    let column = Columns::new(row, "tool_call_events", "event_seq");
    let (run, of_call): (Option<String>, Option<String>) = (column.get("run_id")?, column.get("run_of_call")?);
    Ok((run.is_some() && of_call.is_some() && run != of_call)
        .then(|| "it is filed under another run than its call's".to_owned()))
}

/// The newest events are found in one pass over all: asked of each call, they would be looked for among all events of its run.
const CALLS: &str = "SELECT c.*, (SELECT 'tool_receipts/' || max(receipt_seq) FROM tool_receipts r WHERE r.tool_call_id = c.tool_call_id) \
                     AS newest_receipt, e.lease_epoch AS newest_epoch FROM {tool_calls} c LEFT JOIN \
                     (SELECT run_id, tool_call_id, lease_epoch, max(event_seq) FROM {tool_call_events} GROUP BY run_id, tool_call_id) e \
                     ON e.run_id = c.run_id AND e.tool_call_id = c.tool_call_id";

/// What stands in columns for whoever looks for calls, and what the program goes by in the policy and the tables beside.
fn call(row: &Row<'_>) -> DbResult<Option<String>> {
    let call = ledger_rows::call_record(row)?;
    let column = Columns::new(row, "tool_calls", "tool_call_id");
    let policy = &call.policy;
    let mut other = Vec::new();
    for (name, is) in [
        ("side_effect_class", Some(policy.class.as_str())),
        ("effect_kind", policy.effect_kind.as_ref().map(ua_core::EffectKind::as_str)),
        ("policy_rule_id", Some(policy.rule_id.as_str())),
        ("replay_policy", Some(policy.on_unknown.as_str())),
    ] {
        if column.get::<Option<String>>(name)?.as_deref() != is {
            other.push(format!("{name} is not what its policy says"));
        }
    }
    let newest: Option<String> = column.get("newest_receipt")?;
    if column.get::<Option<String>>("response_ref")? != newest {
        other.push("response_ref is not its newest receipt".to_owned());
    }
    // A row changes its epoch with what its events say, or later.
    let (epoch, of_event): (i64, Option<i64>) = (column.get("lease_epoch")?, column.get("newest_epoch")?);
    if of_event.is_some_and(|of_event| of_event > epoch) {
        other.push("its epoch is older than that of its last event".to_owned());
    }
    Ok((!other.is_empty()).then(|| other.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointers;

    /// A check of a database with a run of 10,000 calls would take minutes if each call were looked for among the events of its run.
    #[test]
    fn no_query_looks_through_a_table_or_a_run_for_each_row() {
        let fresh = schema::fresh().unwrap();
        let checks = schema::checks().unwrap();
        let checks = checks.iter().map(|(table, checks)| refusals(table, checks));
        let queries: Vec<String> =
            READERS.iter().map(|reader| reader.1.to_owned()).chain(pointers::queries()).chain(checks).collect();
        let scopes = [Scope::All, Scope::Of("[1, 2]".to_owned())];
        let mut looked = 0;
        for (scope, sql) in scopes.iter().flat_map(|scope| queries.iter().map(move |sql| (scope, scope.statement(sql))))
        {
            let mut plan = fresh.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let mut rows = scope.query(&mut plan).unwrap();
            let mut steps: Vec<(i64, i64, String)> = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                steps.push((row.get(0).unwrap(), row.get(1).unwrap(), row.get(3).unwrap()));
            }
            for (_, parent, step) in &steps {
                let is_for_each_row =
                    steps.iter().any(|(id, _, above)| id == parent && above.starts_with("CORRELATED"));
                let is_long = step.starts_with("SCAN") || step.ends_with("(run_id=?)");
                assert!(!(is_for_each_row && is_long), "{sql}: {step}");
                looked += 1;
            }
        }
        assert!(looked > 100, "{looked}");
    }
}
