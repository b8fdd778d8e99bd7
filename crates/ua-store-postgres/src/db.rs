//! One connection while it is used for one write or one read.
//!
//! Writes are not answered one by one: they wait until something has to be read, or until the end, and go out with it in one flight. The
//! server works on them in order, so a read sees what was written before it; the first that fails is the error of the whole.
//!
//! A write of a run's owner may also be computed from what is kept of its rows (`kept.rs`), without a connection: then it becomes one text, from
//! `BEGIN` to `COMMIT`, and the server stops at the first statement of it that fails.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::runtime::Handle;
use tokio_postgres::Row;
use ua_core::RunId;
use ua_store::{Durability, RowRef, RunRecord, StoreError};

use crate::error::{DbError, refused};
use crate::kept::OfRun;
use crate::locks::{Plan, Shared};
use crate::schema;
use crate::value::{ToValue as _, Value, Values, write_out};

type DbResult<T> = Result<T, DbError>;

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One snapshot for all of its reads.
    Read,
    /// Every statement sees what was committed before it, so what is read behind a lock is the newest.
    Write(Durability),
}

impl Purpose {
    /// The schema and the durability hold for the transaction alone: a pooler may give the next one another connection.
    ///
    /// Every write looks whether the schema is still the one that this program knows, and divides by zero if not: a process that was forgotten
    /// when it was brought up to date writes nothing more, and so sends nothing more.
    ///
    /// A writer that stands still in the middle, with its whole machine for example, does not hold others up for long: its session is ended.
    fn begin(self, lock_wait: Duration) -> String {
        let commit = match self {
            Self::Read => {
                return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = ua".to_owned();
            }
            Self::Write(Durability::Synced) => "on",
            Self::Write(Durability::Relaxed) => "off",
        };
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = ua; SET LOCAL synchronous_commit = {commit}; \
             SET LOCAL lock_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = 30000; \
             SELECT 1 / (max(version) = {})::int FROM refinery_schema_history",
            lock_wait.as_millis(),
            schema::newest()
        )
    }
}

/// Something that was written and is not sent yet.
#[derive(Debug)]
enum Pending {
    /// Statements without parameters.
    Batch(Cow<'static, str>),
    /// One statement; with the row that is there already when it is not unique.
    Statement { sql: String, values: Vec<Value>, row: Option<RowRef> },
}

/// A query of one table whose rows are there already.
struct Ahead {
    table: &'static str,
    sql: &'static str,
    values: Vec<Value>,
    rows: Vec<Row>,
}

/// A connection inside a transaction. The SQL is in `run_rows`, `ledger_rows`, `blob_rows` and their like.
pub(crate) struct Db {
    /// Taken out and closed when a transaction is left in a state that nobody knows.
    client: Option<Object>,
    /// `None` where nothing is asked of a server: what is not known fails then.
    runtime: Option<Handle>,
    purpose: Purpose,
    pending: RefCell<Vec<Pending>>,
    /// What was read before anybody asked.
    ahead: RefCell<Vec<Ahead>>,
    /// Flights to the server, so that what waited is told from what left.
    flights: Cell<u64>,
    /// Those of the whole store.
    all_flights: Arc<AtomicU64>,
    /// The run that was read or stored last: each change of a batch begins by looking at its run.
    run: RefCell<Option<RunRecord>>,
    /// The run whose owner writes, and what is known of its rows.
    own: RefCell<Option<(RunId, OfRun)>>,
}

impl Drop for Db {
    fn drop(&mut self) {
        // Only a panic leaves it here.
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl Db {
    /// Begins a transaction; whoever calls may block. Its flights are counted in `all_flights`.
    pub(crate) fn begin(
        client: Object,
        runtime: Handle,
        purpose: Purpose,
        lock_wait: Duration,
        all_flights: Arc<AtomicU64>,
    ) -> Self {
        let pending = RefCell::new(vec![Pending::Batch(purpose.begin(lock_wait).into())]);
        Self {
            client: Some(client),
            runtime: Some(runtime),
            purpose,
            pending,
            ahead: RefCell::default(),
            flights: Cell::new(0),
            all_flights,
            run: RefCell::default(),
            own: RefCell::default(),
        }
    }

    /// Begins one that is computed from these rows of a run, and asks for nothing.
    pub(crate) fn knowing(purpose: Purpose, lock_wait: Duration, run: &RunId, mut rows: OfRun) -> Self {
        let known = rows.run.take();
        Self {
            client: None,
            runtime: None,
            purpose,
            pending: RefCell::new(vec![Pending::Batch(purpose.begin(lock_wait).into())]),
            ahead: RefCell::default(),
            flights: Cell::new(0),
            all_flights: Arc::default(),
            run: RefCell::new(known),
            own: RefCell::new(Some((run.clone(), rows))),
        }
    }

    /// The whole transaction as one text, and the rows as they are when it is committed.
    pub(crate) fn into_text(self) -> (String, OfRun) {
        self.batch("COMMIT");
        let mut text = String::with_capacity(8 * 1024);
        for written in self.pending.take() {
            match written {
                Pending::Batch(sql) => text.push_str(&sql),
                Pending::Statement { sql, values, .. } => write_out(&sql, &values, &mut text),
            }
            text.push_str(";\n");
        }
        (text, self.take_rows())
    }

    /// What is known of the rows of the run whose owner writes.
    pub(crate) fn take_rows(&self) -> OfRun {
        let Some((run, mut rows)) = self.own.take() else { return OfRun::default() };
        rows.run = self.run.take().filter(|known| known.run_id == run);
        rows
    }

    /// Does `work` and commits it, or rolls it back.
    pub(crate) fn finish<T>(mut self, work: impl FnOnce(&Self) -> DbResult<T>) -> DbResult<T> {
        let done = work(&self).and_then(|done| {
            self.batch("COMMIT");
            self.flush().map(|()| done)
        });
        // What was written before a refusal may have been refused itself, and first.
        let done = match done {
            Err(refused) if refused.is_refusal() && self.flights.get() > 0 => {
                Err(self.flush().err().unwrap_or(refused))
            }
            done => done,
        };
        let is_clean = done.is_ok() || {
            self.pending.borrow_mut().clear();
            self.flights.get() == 0 || {
                self.batch("ROLLBACK");
                self.flush().is_ok()
            }
        };
        if is_clean {
            drop(self.client.take());
        }
        done
    }

    /// The connection, while the transaction lasts.
    fn client(&self) -> DbResult<&Object> {
        Ok(self.client.as_ref().ok_or_else(|| refused("the transaction is over"))?)
    }

    // --- Statements.

    /// Writes statements without parameters.
    pub(crate) fn batch(&self, sql: &'static str) {
        self.pending.borrow_mut().push(Pending::Batch(sql.into()));
    }

    /// Writes.
    pub(crate) fn execute(&self, sql: &str, values: impl Values) {
        self.forget_ahead(sql);
        let (sql, values) = values.placed(sql);
        self.pending.borrow_mut().push(Pending::Statement { sql, values, row: None });
    }

    /// Writes a row that must not be there.
    pub(crate) fn insert(&self, sql: &str, values: impl Values, row: impl FnOnce() -> RowRef) {
        self.forget_ahead(sql);
        let (sql, values) = values.placed(sql);
        self.pending.borrow_mut().push(Pending::Statement { sql, values, row: Some(row()) });
    }

    /// All rows of a query, each read by `read`.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: impl Values,
        read: impl FnMut(&Row) -> DbResult<T>,
    ) -> DbResult<Vec<T>> {
        let (sql, values) = values.placed(sql);
        if let Some(known) = self.ahead.borrow().iter().find(|known| known.sql == sql && known.values == values) {
            return known.rows.iter().map(read).collect();
        }
        let rows = self.fly(&[(&sql, &values)])?.pop().unwrap_or_default();
        rows.iter().map(read).collect()
    }

    /// Reads in one flight what a batch is about to ask for, behind the locks that it takes. What is written to a table afterwards makes what
    /// was read of it worth nothing.
    pub(crate) fn look_ahead(&self, queries: Vec<(&'static str, &'static str, Vec<Value>)>) -> DbResult<()> {
        if queries.is_empty() {
            return Ok(());
        }
        let asked: Vec<(&str, &[Value])> = queries.iter().map(|(_, sql, values)| (*sql, values.as_slice())).collect();
        let found = self.fly(&asked)?;
        let known =
            queries.into_iter().zip(found).map(|((table, sql, values), rows)| Ahead { table, sql, values, rows });
        self.ahead.borrow_mut().extend(known);
        Ok(())
    }

    /// A table is written to.
    fn forget_ahead(&self, sql: &str) {
        let mut words = sql.split_ascii_whitespace();
        let table = match words.next() {
            Some("INSERT" | "DELETE") => words.nth(1),
            Some("UPDATE") => words.next(),
            // A lock, which nobody reads.
            Some(_) | None => return,
        };
        self.ahead.borrow_mut().retain(|known| match table {
            // A receipt is noted in its call.
            Some("tool_receipts") => known.table != "tool_calls",
            Some(table) => known.table != table,
            None => false,
        });
    }

    /// The first row of a query, if any.
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        values: impl Values,
        read: impl FnMut(&Row) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        Ok(self.rows(sql, values, read)?.into_iter().next())
    }

    /// The one number of a query.
    pub(crate) fn number(&self, sql: &str, values: impl Values) -> DbResult<u64> {
        let number = self.row(sql, values, |row| Ok(row.try_get::<_, i64>(0)?))?;
        Ok(number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
    }

    /// Sends what waits, and waits for it.
    pub(crate) fn flush(&self) -> DbResult<()> {
        if self.pending.borrow().is_empty() { Ok(()) } else { self.fly(&[]).map(drop) }
    }

    /// One flight: what waits, and queries behind it; their rows.
    fn fly(&self, queries: &[(&str, &[Value])]) -> DbResult<Vec<Vec<Row>>> {
        let Some(runtime) = &self.runtime else { return Err(DbError::NotKnown) };
        let pending = self.pending.take();
        let client = self.client()?;
        self.flights.set(self.flights.get() + 1);
        self.all_flights.fetch_add(1, Ordering::Relaxed);
        runtime.block_on(async {
            let mut flights: Vec<Flight<'_>> = Vec::with_capacity(pending.len() + 1);
            for written in &pending {
                flights.push(match written {
                    Pending::Batch(sql) => {
                        Box::pin(async move { Ok(client.batch_execute(sql).await.map(|()| Vec::new())?) })
                    }
                    Pending::Statement { sql, values, row } => Box::pin(async move {
                        let typed: Vec<_> = values.iter().map(Value::typed).collect();
                        let rows = client.query_typed(sql, &typed).await;
                        rows.map_err(|error| DbError::or_exists(error, row.as_ref()))
                    }),
                });
            }
            for (sql, values) in queries.iter().copied() {
                flights.push(Box::pin(async move {
                    let typed: Vec<_> = values.iter().map(Value::typed).collect();
                    Ok(client.query_typed(sql, &typed).await?)
                }));
            }
            let mut answers = in_order(flights).await?;
            Ok(answers.split_off(pending.len()))
        })
    }

    /// Runs `work` so that what it wrote can be taken back alone when it is refused.
    pub(crate) fn savepoint<T>(&self, work: impl FnOnce() -> DbResult<T>) -> DbResult<Result<T, StoreError>> {
        if self.is_computed() {
            // A refusal ends all of it, and is looked into from what is read.
            return work().map(Ok);
        }
        let (waited, flights) = (self.pending.borrow().len(), self.flights.get());
        self.batch("SAVEPOINT provided");
        // What it wrote has to be accepted before it is done.
        let done = match work() {
            Ok(done) => self.flush().map(|()| done),
            Err(refused) if refused.is_refusal() => Err(self.flush().err().unwrap_or(refused)),
            Err(broken) => Err(broken),
        };
        match done {
            Ok(done) => {
                self.batch("RELEASE provided");
                Ok(Ok(done))
            }
            Err(refused) if refused.is_refusal() => {
                self.forget_run();
                self.note_own(|rows| *rows = OfRun { was_alone: rows.was_alone, ..OfRun::default() });
                if self.flights.get() == flights {
                    self.pending.borrow_mut().truncate(waited);
                } else {
                    self.pending.borrow_mut().clear();
                    self.batch("ROLLBACK TO provided; RELEASE provided");
                }
                Ok(Err(refused.into_store()))
            }
            Err(broken) => Err(broken),
        }
    }

    // --- Locks.

    /// Takes the lineages that a write is about, oldest name first: what it reads from here on is the newest, until it is committed.
    pub(crate) fn lock(&self, plan: &Plan) {
        if let Some(run) = plan.one_run() {
            self.execute(LINEAGE, [run.value()]);
        } else if !plan.is_empty() {
            self.execute(LINEAGES, [plan.runs(), plan.calls(), plan.questions()]);
        }
        plan.job_keys().iter().for_each(|key| self.serialise(Shared::JobKey, key));
    }

    /// Lets writes of different lineages that share `what` follow each other. Behind the lock of the lineage.
    pub(crate) fn serialise(&self, what: Shared, name: &str) {
        if self.purpose != Purpose::Read {
            let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))";
            self.execute(sql, [name.value(), what.seed().value()]);
        }
    }

    /// Keeps blobs from being pruned until this is committed.
    pub(crate) fn blobs_together(&self) {
        if self.purpose != Purpose::Read {
            self.execute("SELECT pg_advisory_xact_lock_shared($1)", [Shared::Blobs.seed().value()]);
        }
    }

    /// Keeps others from referring to blobs until this is committed.
    pub(crate) fn blobs_alone(&self) {
        if self.purpose != Purpose::Read {
            self.execute("SELECT pg_advisory_xact_lock($1)", [Shared::Blobs.seed().value()]);
        }
    }

    // --- What is known without asking.

    /// A run that this transaction has seen, as it is stored.
    pub(crate) fn known_run(&self, id: &RunId) -> Option<RunRecord> {
        self.run.borrow().as_ref().filter(|run| run.run_id == *id).cloned()
    }

    pub(crate) fn keep_run(&self, run: &RunRecord) {
        *self.run.borrow_mut() = Some(run.clone());
    }

    /// Whatever is stored of runs may be another now.
    pub(crate) fn forget_run(&self) {
        *self.run.borrow_mut() = None;
    }

    /// Whether it is computed from what is known, and asks for nothing.
    pub(crate) fn is_computed(&self) -> bool {
        self.runtime.is_none()
    }

    /// Keeps from here on what is read and written of the rows of a run, whose owner writes.
    pub(crate) fn keep_rows_of(&self, run: &RunId, was_alone: bool) {
        *self.own.borrow_mut() = Some((run.clone(), OfRun { was_alone, ..OfRun::default() }));
    }

    /// Reads what most writes of a run that takes turns begin with, so that the next one knows it.
    pub(crate) fn learn(&self, run: &RunId) -> DbResult<()> {
        self.last_request(run)?;
        self.open_turn(run)?;
        self.last_seq(run).map(drop)
    }

    /// Something that is known of the rows of the run whose owner writes.
    pub(crate) fn known<T>(&self, look: impl FnOnce(&OfRun) -> Option<T>) -> Option<T> {
        look(&self.own.borrow().as_ref()?.1)
    }

    /// The same, if it is this run.
    pub(crate) fn known_of<T>(&self, run: &RunId, look: impl FnOnce(&OfRun) -> Option<T>) -> Option<T> {
        let own = self.own.borrow();
        let (_, rows) = own.as_ref().filter(|(own, _)| own == run)?;
        look(rows)
    }

    /// Notes what is stored now of the run whose owner writes.
    pub(crate) fn note_own(&self, note: impl FnOnce(&mut OfRun)) {
        if let Some((_, rows)) = self.own.borrow_mut().as_mut() {
            note(rows);
        }
    }

    /// The same of a run, if it is this one.
    pub(crate) fn note_of(&self, run: &RunId, note: impl FnOnce(&mut OfRun)) {
        if let Some((_, rows)) = self.own.borrow_mut().as_mut().filter(|(own, _)| own == run) {
            note(rows);
        }
    }
}

/// The root row of a run, which stands for its lineage. Most writes are of one run, and this is planned in a third of the time.
pub(crate) const LINEAGE: &str =
    "SELECT run_id FROM runs WHERE run_id = (SELECT root_run_id FROM runs WHERE run_id = $1) FOR NO KEY UPDATE";

/// Root rows, which stand for their lineages.
const LINEAGES: &str = "SELECT r.run_id FROM runs r WHERE r.run_id IN ( \
    SELECT root_run_id FROM runs WHERE run_id = ANY($1) UNION ALL \
    SELECT root_run_id FROM tool_calls WHERE tool_call_id = ANY($2) UNION ALL \
    SELECT o.root_run_id FROM questions q JOIN runs o ON o.run_id = q.run_id WHERE q.question_id = ANY($3)) \
    ORDER BY r.run_id FOR NO KEY UPDATE OF r";

/// One request that leaves when it is polled first, and its rows.
pub(crate) type Flight<'f> = Pin<Box<dyn Future<Output = DbResult<Vec<Row>>> + Send + 'f>>;

/// Sends all requests, then takes their answers, or the first error.
pub(crate) async fn in_order(mut flights: Vec<Flight<'_>>) -> DbResult<Vec<Vec<Row>>> {
    // A request leaves when its future is polled first.
    let mut answers: Vec<Option<DbResult<Vec<Row>>>> = poll_fn(|context| {
        Poll::Ready(
            flights
                .iter_mut()
                .map(|flight| match flight.as_mut().poll(context) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => None,
                })
                .collect(),
        )
    })
    .await;
    for (flight, answer) in flights.into_iter().zip(&mut answers) {
        if answer.is_none() {
            *answer = Some(flight.await);
        }
    }
    answers.into_iter().flatten().collect()
}
