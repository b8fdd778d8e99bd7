-- Who works on what. A run is taken by its lock and its epoch as ever; these rows say who should try, and may be lost.
CREATE TABLE workers (
  worker      text COLLATE "C" PRIMARY KEY,
  place       text COLLATE "C" NOT NULL,
  place_shown text COLLATE "C" NOT NULL,
  owner_json  text COLLATE "C" NOT NULL,
  version     text COLLATE "C" NOT NULL,
  queues_json text COLLATE "C" NOT NULL,
  slots       bigint NOT NULL CHECK (slots > 0),
  started_at  text COLLATE "C" NOT NULL,
  lease_until text COLLATE "C" NOT NULL,
  is_draining boolean NOT NULL
) WITH (fillfactor = 50);

-- Runs that wait for a worker, are worked on by one, or wait for a person.
CREATE TABLE run_queue (
  run_id            text COLLATE "C" PRIMARY KEY REFERENCES runs (run_id) DEFERRABLE,
  queue             text COLLATE "C" NOT NULL,
  priority          bigint NOT NULL,
  fair              bigint NOT NULL,
  seq               bigint NOT NULL,
  run_after         text COLLATE "C" NOT NULL,
  queued_at         text COLLATE "C" NOT NULL,
  concurrency_key   text COLLATE "C",
  concurrency_limit bigint CHECK ((concurrency_limit IS NULL) = (concurrency_key IS NULL) AND coalesce(concurrency_limit, 1) > 0),
  fair_key          text COLLATE "C",
  state             text COLLATE "C" NOT NULL CHECK (state IN ('ready', 'claimed', 'parked')),
  worker            text COLLATE "C" CHECK ((worker IS NOT NULL) = (state = 'claimed')),
  words             bigint NOT NULL,
  strikes           bigint NOT NULL,
  why               text COLLATE "C"
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);

CREATE INDEX idx_run_queue_ready ON run_queue (priority, fair, seq) WHERE state = 'ready';
CREATE INDEX idx_run_queue_seats ON run_queue (concurrency_key) WHERE state = 'claimed' AND concurrency_key IS NOT NULL;
CREATE INDEX idx_run_queue_worker ON run_queue (worker) WHERE state = 'claimed';
CREATE INDEX idx_run_queue_parked ON run_queue (run_id) WHERE state = 'parked';
CREATE INDEX idx_run_queue_fair ON run_queue (queue, fair_key, fair);
CREATE INDEX idx_run_queue_seq ON run_queue (seq);

-- Jobs that are submitted again and again.
CREATE TABLE schedules (
  name      text COLLATE "C" PRIMARY KEY,
  cron      text COLLATE "C" NOT NULL,
  time_zone text COLLATE "C" NOT NULL,
  job_json  text COLLATE "C" NOT NULL,
  catch_up  text COLLATE "C" NOT NULL CHECK (catch_up IN ('none', 'last', 'all')),
  is_paused boolean NOT NULL,
  next_at   text COLLATE "C" NOT NULL
);

-- Where the workspaces and locks of a lineage are: it is driven there and nowhere else. Until now a database had one such place.
CREATE TABLE lineage_places (
  root_run_id text COLLATE "C" PRIMARY KEY,
  place       text COLLATE "C" NOT NULL,
  place_shown text COLLATE "C" NOT NULL
);
CREATE INDEX idx_lineage_places_place ON lineage_places (place);

INSERT INTO lineage_places (root_run_id, place, place_shown)
SELECT r.root_run_id, p.value, s.value
FROM (SELECT DISTINCT root_run_id FROM runs) r
JOIN meta p ON p.key = 'place'
JOIN meta s ON s.key = 'place_shown';

DELETE FROM meta WHERE key IN ('place', 'place_shown');
