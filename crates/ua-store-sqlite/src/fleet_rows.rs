//! Workers, the queue and schedules.

use rusqlite::{Row, named_params};
use ua_core::{RunId, Timestamp};
use ua_store::{
    ConcurrencyKey, FleetRows, FleetState, QueueDepth, QueueEntry, QueueLine, QueueOptions, RunRecord, ScheduleRecord,
    WorkerRecord,
};

use crate::column::{Columns, int, json, stored_name, text};
use crate::db::Db;
use crate::error::DbError;

type DbResult<T> = Result<T, DbError>;

/// The next run for a worker. What is at work without being claimed is looked for once, when the first run with a key is met. Whoever asks holds the queue, so what is counted here stays so until it is committed.
///
/// Line by line in the order of their turns, and each in the order of its index until the first that fits.
pub(crate) const NEXT: &str = "WITH at_work AS MATERIALIZED (SELECT c.run_id, c.concurrency_key FROM run_queue c \
    WHERE c.state = 'ready' AND c.strikes > 0 AND c.concurrency_key IS NOT NULL \
    AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = c.run_id AND r.status = 'running' \
        AND ((r.cancel_requested_at IS NULL AND r.abort_requested_at IS NULL) OR EXISTS (SELECT 1 FROM runs x JOIN tool_calls t ON t.run_id = x.run_id \
            WHERE x.root_run_id = r.root_run_id AND (x.run_id = r.run_id OR x.run_mode = 'task') \
            AND t.status = 'running' AND t.side_effect_class <> 'read_only')))) \
    SELECT n.* FROM run_queue n WHERE n.run_id = (SELECT head FROM (SELECT l.priority, l.turn, l.line, \
        (SELECT q.run_id FROM run_queue q \
             WHERE q.state = 'ready' AND q.priority = l.priority AND q.line = l.line AND q.run_after <= :now \
             AND coalesce(q.not_before, '') <= :now AND (q.not_before IS NULL OR instr(:avoids, ',' || q.run_id || ',') = 0) \
             AND (q.concurrency_key IS NULL OR q.concurrency_limit > (SELECT count(*) FROM run_queue c \
                  WHERE c.state = 'claimed' AND c.concurrency_key = q.concurrency_key) + (SELECT count(*) FROM at_work a \
                  WHERE a.concurrency_key = q.concurrency_key AND a.run_id <> q.run_id)) \
             ORDER BY q.seq LIMIT 1) AS head \
        FROM queue_lines l WHERE :queues = '' OR instr(:queues, ',' || l.queue || ',') > 0) lines \
        WHERE head IS NOT NULL ORDER BY priority, turn, line LIMIT 1)";

/// The queue as its turns come: of each line the first, then of each the second.
const IN_TURN: &str = "SELECT q.* FROM run_queue q LEFT JOIN queue_lines l ON l.line = q.line \
    ORDER BY q.state <> 'claimed', q.state <> 'ready', q.priority, row_number() OVER (PARTITION BY q.state, q.line ORDER BY q.seq), \
    coalesce(l.turn, 0), q.line, q.seq LIMIT :most";

/// Parked runs about whose lineage there was a word since.
const WOKEN: &str = "SELECT q.*, w.now_words FROM run_queue q JOIN runs r ON r.run_id = q.run_id \
    JOIN (SELECT x.root_run_id AS root, CAST(sum(y.words) AS BIGINT) AS now_words \
          FROM runs x JOIN run_writes y ON y.run_id = x.run_id \
          WHERE x.root_run_id IN (SELECT z.root_run_id FROM run_queue p JOIN runs z ON z.run_id = p.run_id WHERE p.state = 'parked') \
          GROUP BY x.root_run_id) w ON w.root = r.root_run_id \
    WHERE q.state = 'parked' AND (w.now_words <> q.words OR r.status IN ('succeeded', 'failed', 'cancelled')) ORDER BY q.seq";

const PUT_ENTRY: &str = "INSERT INTO run_queue (run_id, queue, priority, line, seq, run_after, not_before, queued_at, concurrency_key, \
    concurrency_limit, fair_key, state, worker, words, strikes, why) \
    VALUES (:run, :queue, :priority, :line, :seq, :run_after, :not_before, :queued_at, :key, :limit, :fair_key, :state, :worker, :words, \
    :strikes, :why) \
    ON CONFLICT (run_id) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, line = excluded.line, \
    seq = excluded.seq, run_after = excluded.run_after, not_before = excluded.not_before, concurrency_key = excluded.concurrency_key, \
    concurrency_limit = excluded.concurrency_limit, fair_key = excluded.fair_key, state = excluded.state, \
    worker = excluded.worker, words = excluded.words, strikes = excluded.strikes, why = excluded.why";

const PUT_WORKER: &str = "INSERT INTO workers (worker, place, place_shown, owner_json, version, queues_json, slots, started_at, \
    lease_until, is_draining) \
    VALUES (:worker, :place, :place_shown, :owner, :version, :queues, :slots, :started_at, :lease_until, :is_draining) \
    ON CONFLICT (worker) DO UPDATE SET place = excluded.place, place_shown = excluded.place_shown, \
    owner_json = excluded.owner_json, version = excluded.version, queues_json = excluded.queues_json, slots = excluded.slots, \
    started_at = excluded.started_at, lease_until = excluded.lease_until, is_draining = excluded.is_draining";

const PUT_SCHEDULE: &str = "INSERT INTO schedules (name, cron, time_zone, job_json, catch_up, is_paused, next_at) \
    VALUES (:name, :cron, :time_zone, :job, :catch_up, :is_paused, :next_at) \
    ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, time_zone = excluded.time_zone, job_json = excluded.job_json, \
    catch_up = excluded.catch_up, is_paused = excluded.is_paused, next_at = excluded.next_at";

const DEPTHS: &str = "SELECT queue, \
    CAST(sum(CASE WHEN state = 'ready' AND run_after <= :now THEN 1 ELSE 0 END) AS BIGINT) AS ready, \
    CAST(sum(CASE WHEN state = 'ready' AND run_after > :now THEN 1 ELSE 0 END) AS BIGINT) AS later, \
    CAST(sum(CASE WHEN state = 'claimed' THEN 1 ELSE 0 END) AS BIGINT) AS claimed, \
    CAST(sum(CASE WHEN state = 'parked' THEN 1 ELSE 0 END) AS BIGINT) AS parked, \
    min(CASE WHEN state = 'ready' AND run_after <= :now THEN run_after END) AS oldest \
    FROM run_queue GROUP BY queue ORDER BY queue";

impl Db<'_> {
    /// The first entries of the queue, and whoever works.
    pub(crate) fn fleet_state(&self, most: u32) -> DbResult<FleetState> {
        let queue = self.rows(IN_TURN, named_params! { ":most": most }, entry)?;
        let lines = if most == 0 { Vec::new() } else { self.all_lines()? };
        Ok(FleetState { workers: FleetRows::workers(self)?, queue, schedules: FleetRows::schedules(self)?, lines })
    }

    /// How much waits in each queue.
    pub(crate) fn queue_depths(&self, now: Timestamp) -> DbResult<Vec<QueueDepth>> {
        self.rows(DEPTHS, named_params! { ":now": text(&now) }, |row| {
            let column = Columns::new(row, "run_queue", "queue");
            Ok(QueueDepth {
                queue: column.get("queue")?,
                ready: column.int("ready")?,
                later: column.int("later")?,
                claimed: column.int("claimed")?,
                parked: column.int("parked")?,
                oldest_at: column.opt_at("oldest")?,
            })
        })
    }

    fn all_lines(&self) -> DbResult<Vec<QueueLine>> {
        self.rows("SELECT * FROM queue_lines ORDER BY line", [], |row| {
            let column = Columns::new(row, "queue_lines", "line");
            Ok(QueueLine {
                line: column.int("line")?,
                priority: column.int("priority")?,
                queue: column.get("queue")?,
                fair_key: column.get("fair_key")?,
                turn: column.int("turn")?,
            })
        })
    }

    fn all_workers(&self) -> DbResult<Vec<WorkerRecord>> {
        self.rows("SELECT * FROM workers ORDER BY worker", [], worker_record)
    }

    fn all_schedules(&self) -> DbResult<Vec<ScheduleRecord>> {
        self.rows("SELECT * FROM schedules ORDER BY name", [], schedule_record)
    }
}

impl FleetRows for Db<'_> {
    type Error = DbError;

    fn fleet_run(&self, run: &RunId) -> DbResult<RunRecord> {
        self.run(run)
    }

    fn entry(&self, run: &RunId) -> DbResult<Option<QueueEntry>> {
        self.row("SELECT * FROM run_queue WHERE run_id = :run", named_params! { ":run": run.as_str() }, entry)
    }

    fn put_entry(&self, entry: &QueueEntry) -> DbResult<()> {
        let QueueOptions { queue, priority, run_after, concurrency, fair_key } = &entry.options;
        let parameters = named_params! {
            ":run": entry.run_id.as_str(),
            ":queue": queue,
            ":priority": i64::from(*priority),
            ":line": int(entry.line),
            ":seq": int(entry.seq),
            ":run_after": text(run_after),
            ":not_before": entry.not_before.as_ref().map(text),
            ":queued_at": text(&entry.queued_at),
            ":key": concurrency.as_ref().map(|seats| seats.key.clone()),
            ":limit": concurrency.as_ref().map(|seats| seats.limit),
            ":fair_key": fair_key,
            ":state": stored_name(&entry.state)?,
            ":worker": entry.worker,
            ":words": int(entry.words),
            ":strikes": entry.strikes,
            ":why": entry.why,
        };
        self.connection.prepare_cached(PUT_ENTRY)?.execute(parameters)?;
        Ok(())
    }

    fn remove_entry(&self, run: &RunId) -> DbResult<()> {
        self.connection
            .prepare_cached("DELETE FROM run_queue WHERE run_id = :run")?
            .execute(named_params! { ":run": run.as_str() })?;
        Ok(())
    }

    fn entries_of(&self, worker: &str) -> DbResult<Vec<QueueEntry>> {
        let sql = "SELECT * FROM run_queue WHERE state = 'claimed' AND worker = :worker ORDER BY seq";
        self.rows(sql, named_params! { ":worker": worker }, entry)
    }

    fn woken_entries(&self) -> DbResult<Vec<(QueueEntry, u64)>> {
        self.rows(WOKEN, [], |row| Ok((entry(row)?, Columns::new(row, "run_queue", "run_id").int("now_words")?)))
    }

    fn next_entry(&self, worker: &WorkerRecord, avoids: &[RunId], at: Timestamp) -> DbResult<Option<QueueEntry>> {
        let queues = if worker.queues.is_empty() { String::new() } else { format!(",{},", worker.queues.join(",")) };
        let avoids = avoids.iter().fold(",".to_owned(), |all, run| all + run.as_str() + ",");
        self.row(NEXT, named_params! { ":now": text(&at), ":queues": queues, ":avoids": avoids }, entry)
    }

    fn last_seq(&self) -> DbResult<u64> {
        self.number("SELECT coalesce(max(seq), 0) FROM run_queue", [])
    }

    fn line_of(&self, options: &QueueOptions) -> DbResult<Option<u64>> {
        let QueueOptions { queue, priority, fair_key, .. } = options;
        let sql = "SELECT line FROM queue_lines WHERE queue = :queue AND fair_key IS :key AND priority = :priority";
        let parameters = named_params! { ":queue": queue, ":key": fair_key, ":priority": i64::from(*priority) };
        self.row(sql, parameters, |row| Columns::new(row, "queue_lines", "line").int("line"))
    }

    fn last_line(&self) -> DbResult<u64> {
        self.number("SELECT coalesce(max(line), 0) FROM queue_lines", [])
    }

    fn add_line(&self, line: &QueueLine) -> DbResult<()> {
        let sql = "INSERT INTO queue_lines (line, priority, queue, fair_key, turn) \
                   VALUES (:line, :priority, :queue, :key, :turn)";
        let parameters = named_params! {
            ":line": int(line.line),
            ":priority": i64::from(line.priority),
            ":queue": line.queue,
            ":key": line.fair_key,
            ":turn": int(line.turn),
        };
        self.connection.prepare_cached(sql)?.execute(parameters)?;
        Ok(())
    }

    fn set_turn(&self, line: u64, turn: u64) -> DbResult<()> {
        let sql = "UPDATE queue_lines SET turn = :turn WHERE line = :line";
        self.connection.prepare_cached(sql)?.execute(named_params! { ":turn": int(turn), ":line": int(line) })?;
        Ok(())
    }

    fn drop_empty_line(&self, line: u64) -> DbResult<()> {
        let sql =
            "DELETE FROM queue_lines WHERE line = :line AND NOT EXISTS (SELECT 1 FROM run_queue WHERE line = :line)";
        self.connection.prepare_cached(sql)?.execute(named_params! { ":line": int(line) })?;
        Ok(())
    }

    fn queue_clock(&self) -> DbResult<u64> {
        let sql = "SELECT coalesce(max(CAST(value AS BIGINT)), 0) FROM meta WHERE key = 'queue_clock'";
        self.number(sql, [])
    }

    fn set_queue_clock(&self, turn: u64) -> DbResult<()> {
        let sql = "INSERT INTO meta (key, value) VALUES ('queue_clock', :turn) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.connection.prepare_cached(sql)?.execute(named_params! { ":turn": turn.to_string() })?;
        Ok(())
    }

    fn words_of_lineage(&self, run: &RunId) -> DbResult<u64> {
        let sql = "SELECT CAST(coalesce(sum(w.words), 0) AS BIGINT) FROM runs r JOIN run_writes w ON w.run_id = r.run_id \
                   WHERE r.root_run_id = (SELECT root_run_id FROM runs WHERE run_id = :run)";
        self.number(sql, named_params! { ":run": run.as_str() })
    }

    fn workers(&self) -> DbResult<Vec<WorkerRecord>> {
        self.all_workers()
    }

    fn put_worker(&self, worker: &WorkerRecord) -> DbResult<()> {
        let parameters = named_params! {
            ":worker": worker.worker,
            ":place": worker.place,
            ":place_shown": worker.place_shown,
            ":owner": json(&worker.owner)?,
            ":version": worker.version,
            ":queues": json(&worker.queues)?,
            ":slots": worker.slots,
            ":started_at": text(&worker.started_at),
            ":lease_until": text(&worker.lease_until),
            ":is_draining": worker.is_draining,
        };
        self.connection.prepare_cached(PUT_WORKER)?.execute(parameters)?;
        Ok(())
    }

    fn remove_worker(&self, worker: &str) -> DbResult<()> {
        self.connection
            .prepare_cached("DELETE FROM workers WHERE worker = :worker")?
            .execute(named_params! { ":worker": worker })?;
        Ok(())
    }

    fn forget_place(&self, _place: &str) -> DbResult<u64> {
        // A file lies in the one place that uses it.
        Ok(0)
    }

    fn unbind_unbegun(&self, _run: &RunId) -> DbResult<()> {
        Ok(())
    }

    fn schedules(&self) -> DbResult<Vec<ScheduleRecord>> {
        self.all_schedules()
    }

    fn put_schedule(&self, schedule: &ScheduleRecord) -> DbResult<()> {
        let parameters = named_params! {
            ":name": schedule.name,
            ":cron": schedule.cron,
            ":time_zone": schedule.time_zone,
            ":job": json(&schedule.job)?,
            ":catch_up": stored_name(&schedule.catch_up)?,
            ":is_paused": schedule.is_paused,
            ":next_at": text(&schedule.next_at),
        };
        self.connection.prepare_cached(PUT_SCHEDULE)?.execute(parameters)?;
        Ok(())
    }

    fn remove_schedule(&self, name: &str) -> DbResult<()> {
        self.connection
            .prepare_cached("DELETE FROM schedules WHERE name = :name")?
            .execute(named_params! { ":name": name })?;
        Ok(())
    }
}

pub(crate) fn worker_record(row: &Row<'_>) -> DbResult<WorkerRecord> {
    let column = Columns::new(row, "workers", "worker");
    Ok(WorkerRecord {
        worker: column.get("worker")?,
        place: column.get("place")?,
        place_shown: column.get("place_shown")?,
        owner: column.json("owner_json")?,
        version: column.get("version")?,
        queues: column.json("queues_json")?,
        slots: column.int("slots")?,
        started_at: column.at("started_at")?,
        lease_until: column.at("lease_until")?,
        is_draining: column.get("is_draining")?,
    })
}

pub(crate) fn schedule_record(row: &Row<'_>) -> DbResult<ScheduleRecord> {
    let column = Columns::new(row, "schedules", "name");
    Ok(ScheduleRecord {
        name: column.get("name")?,
        cron: column.get("cron")?,
        time_zone: column.get("time_zone")?,
        job: column.json("job_json")?,
        catch_up: column.stored_name("catch_up")?,
        is_paused: column.get("is_paused")?,
        next_at: column.at("next_at")?,
    })
}

pub(crate) fn entry(row: &Row<'_>) -> DbResult<QueueEntry> {
    let column = Columns::new(row, "run_queue", "run_id");
    let limit: Option<u32> = column.opt_int("concurrency_limit")?;
    let key: Option<String> = column.get("concurrency_key")?;
    Ok(QueueEntry {
        run_id: column.parsed("run_id")?,
        options: QueueOptions {
            queue: column.get("queue")?,
            priority: column.int("priority")?,
            run_after: column.at("run_after")?,
            concurrency: key.zip(limit).map(|(key, limit)| ConcurrencyKey { key, limit }),
            fair_key: column.get("fair_key")?,
        },
        queued_at: column.at("queued_at")?,
        not_before: column.opt_at("not_before")?,
        line: column.int("line")?,
        seq: column.int("seq")?,
        state: column.stored_name("state")?,
        worker: column.get("worker")?,
        words: column.int("words")?,
        strikes: column.int("strikes")?,
        why: column.get("why")?,
    })
}
