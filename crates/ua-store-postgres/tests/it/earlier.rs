//! Databases of earlier schemas: made by the migrations that there were, with the rows of one that this program wrote.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::Client;

use crate::cluster::blocking;
use crate::database::Database;

/// Every migration before the newest one. What this program's newest is, [`migrate`](ua_store_postgres::migrate) says.
const MIGRATIONS: [&str; 10] = [
    include_str!("../../../../migrations/postgres/V1__initial.sql"),
    include_str!("../../../../migrations/postgres/V2__answer_links.sql"),
    include_str!("../../../../migrations/postgres/V3__fleet.sql"),
    include_str!("../../../../migrations/postgres/V4__processes.sql"),
    include_str!("../../../../migrations/postgres/V5__late_answers.sql"),
    include_str!("../../../../migrations/postgres/V6__destinations.sql"),
    include_str!("../../../../migrations/postgres/V7__lineage_marks.sql"),
    include_str!("../../../../migrations/postgres/V8__queue_pauses.sql"),
    include_str!("../../../../migrations/postgres/V9__unread_answers.sql"),
    include_str!("../../../../migrations/postgres/V10__queue_lines.sql"),
];

/// The oldest schema, and the newest before this program's.
pub(crate) const SCHEMAS: std::ops::RangeInclusive<usize> = 1..=MIGRATIONS.len();

/// The columns that a table has in both schemas, of every table of the earlier one.
const COLUMNS: &str = "SELECT a.table_name::text, string_agg(quote_ident(a.column_name::text), ', ') FROM information_schema.columns a \
     JOIN information_schema.columns b ON b.table_schema = 'made' AND b.table_name = a.table_name AND b.column_name = a.column_name \
     WHERE a.table_schema = 'ua' GROUP BY a.table_name";

/// The columns whose numbers the server gives.
const NUMBERED: &str = "SELECT table_name::text, column_name::text FROM information_schema.columns \
     WHERE table_schema = 'ua' AND is_identity = 'YES'";

/// Makes a database of schema `version` out of one that has this program's, as a program of that time would have left it: what the schema had no
/// column for is gone.
pub(crate) fn take_back_to(database: &Database, version: usize) {
    let by_hand = database.by_hand();
    let run = |sql: &str| blocking(by_hand.batch_execute(sql)).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    run("ALTER SCHEMA ua RENAME TO made; CREATE SCHEMA ua; SET search_path = ua");
    for migration in &MIGRATIONS[..version] {
        run(migration);
    }
    // Triggers refuse rows that are what they are from the beginning.
    run("SET session_replication_role = replica; DELETE FROM meta");
    for (table, columns) in pairs(&by_hand, COLUMNS) {
        run(&format!("INSERT INTO ua.{table} ({columns}) SELECT {columns} FROM made.{table}"));
    }
    for (table, column) in pairs(&by_hand, NUMBERED) {
        let next = format!("SELECT coalesce(max({column}), 0) + 1 FROM ua.{table}");
        run(&format!("SELECT setval(pg_get_serial_sequence('ua.{table}', '{column}'), ({next}), false)"));
    }
    run(&format!(
        "CREATE TABLE ua.refinery_schema_history (LIKE made.refinery_schema_history INCLUDING ALL);
         INSERT INTO ua.refinery_schema_history SELECT * FROM made.refinery_schema_history WHERE version <= {version};
         DROP SCHEMA made CASCADE; RESET session_replication_role"
    ));
}

fn pairs(by_hand: &Client, sql: &str) -> Vec<(String, String)> {
    blocking(by_hand.query(sql, &[])).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}
