-- What has been written about a run, counted: numbered batches of its owner, so that one whose answer was lost can be sent again, and words of
-- people, so that its owner sees that there is news. A row of its own, because it changes with every write.
CREATE TABLE run_writes (
  run_id  TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  batches INTEGER NOT NULL DEFAULT 0 CHECK (batches >= 0),
  words   INTEGER NOT NULL DEFAULT 0 CHECK (words >= 0)
) STRICT, WITHOUT ROWID;

INSERT INTO run_writes (run_id) SELECT run_id FROM runs;

-- What a call of the same tool might repeat, without looking at what other runs do not know about.
CREATE INDEX idx_tool_calls_doubts ON tool_calls (root_run_id, raw_tool_name) WHERE status = 'unknown';
