-- Who waits behind whom: the runs of one priority, queue and fair key. Lines of one priority take turns, counted when a run is taken. Until now a run
-- got its turn when it was queued, behind every other of its key, also behind those that nobody could take.
CREATE TABLE queue_lines (
  line     bigint PRIMARY KEY,
  priority bigint NOT NULL,
  queue    text COLLATE "C" NOT NULL,
  fair_key text COLLATE "C",
  turn     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX idx_queue_lines_turn ON queue_lines (priority, turn, line);
CREATE INDEX idx_queue_lines_key ON queue_lines (queue, fair_key, priority);

INSERT INTO queue_lines (line, priority, queue, fair_key, turn)
SELECT row_number() OVER (ORDER BY min(fair), min(seq)), priority, queue, fair_key, 0
FROM run_queue GROUP BY priority, queue, fair_key;

DROP INDEX idx_run_queue_fair;
ALTER TABLE run_queue RENAME COLUMN fair TO line;
UPDATE run_queue q SET line = l.line FROM queue_lines l
  WHERE l.priority = q.priority AND l.queue = q.queue AND l.fair_key IS NOT DISTINCT FROM q.fair_key;
CREATE INDEX idx_run_queue_line ON run_queue (line);
