-- Who waits behind whom: the runs of one priority, queue and fair key. Lines of one priority take turns, counted when a run is taken. Until now a run
-- got its turn when it was queued, behind every other of its key, also behind those that nobody could take.
CREATE TABLE queue_lines (
  line     INTEGER PRIMARY KEY NOT NULL,
  priority INTEGER NOT NULL,
  queue    TEXT NOT NULL,
  fair_key TEXT,
  turn     INTEGER NOT NULL
) STRICT;

CREATE INDEX idx_queue_lines_turn ON queue_lines (priority, turn, line);
CREATE INDEX idx_queue_lines_key ON queue_lines (queue, fair_key, priority);

INSERT INTO queue_lines (line, priority, queue, fair_key, turn)
SELECT row_number() OVER (ORDER BY min(fair), min(seq)), priority, queue, fair_key, 0
FROM run_queue GROUP BY priority, queue, fair_key;

DROP INDEX idx_run_queue_fair;
ALTER TABLE run_queue RENAME COLUMN fair TO line;
UPDATE run_queue SET line = (SELECT l.line FROM queue_lines l
  WHERE l.priority = run_queue.priority AND l.queue = run_queue.queue AND l.fair_key IS run_queue.fair_key);
CREATE INDEX idx_run_queue_line ON run_queue (line);
