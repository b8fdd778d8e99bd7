-- Who works on what. A run is taken by its lock and its epoch as ever; these rows say who should try, and may be lost.
CREATE TABLE workers (
  worker      TEXT PRIMARY KEY NOT NULL,
  place       TEXT NOT NULL,
  place_shown TEXT NOT NULL,
  owner_json  TEXT NOT NULL,
  version     TEXT NOT NULL,
  queues_json TEXT NOT NULL,
  slots       INTEGER NOT NULL CHECK (slots > 0),
  started_at  TEXT NOT NULL,
  lease_until TEXT NOT NULL,
  is_draining INTEGER NOT NULL CHECK (is_draining IN (0, 1))
) STRICT, WITHOUT ROWID;

-- Runs that wait for a worker, are worked on by one, or wait for a person.
CREATE TABLE run_queue (
  run_id            TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  queue             TEXT NOT NULL,
  priority          INTEGER NOT NULL,
  fair              INTEGER NOT NULL,
  seq               INTEGER NOT NULL,
  run_after         TEXT NOT NULL,
  queued_at         TEXT NOT NULL,
  concurrency_key   TEXT,
  concurrency_limit INTEGER CHECK ((concurrency_limit IS NULL) = (concurrency_key IS NULL) AND coalesce(concurrency_limit, 1) > 0),
  fair_key          TEXT,
  state             TEXT NOT NULL CHECK (state = 'ready' OR state = 'claimed' OR state = 'parked'),
  worker            TEXT CHECK ((worker IS NOT NULL) = (state = 'claimed')),
  words             INTEGER NOT NULL,
  strikes           INTEGER NOT NULL,
  why               TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_run_queue_ready ON run_queue (priority, fair, seq) WHERE state = 'ready';
CREATE INDEX idx_run_queue_seats ON run_queue (concurrency_key) WHERE state = 'claimed' AND concurrency_key IS NOT NULL;
CREATE INDEX idx_run_queue_worker ON run_queue (worker) WHERE state = 'claimed';
CREATE INDEX idx_run_queue_parked ON run_queue (run_id) WHERE state = 'parked';
CREATE INDEX idx_run_queue_fair ON run_queue (queue, fair_key, fair);
CREATE INDEX idx_run_queue_seq ON run_queue (seq);

-- Jobs that are submitted again and again.
CREATE TABLE schedules (
  name      TEXT PRIMARY KEY NOT NULL,
  cron      TEXT NOT NULL,
  time_zone TEXT NOT NULL,
  job_json  TEXT NOT NULL,
  catch_up  TEXT NOT NULL CHECK (catch_up = 'none' OR catch_up = 'last' OR catch_up = 'all'),
  is_paused INTEGER NOT NULL CHECK (is_paused IN (0, 1)),
  next_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
