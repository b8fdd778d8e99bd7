-- Runs that a person deleted. A row here hides the run; its other rows go once no run of its lineage is left that is not deleted.
-- The name stays taken, and effects.log, which still knows what was sent, is not taken for a sign that the database went back in time.
CREATE TABLE deleted_runs (
  run_id      TEXT PRIMARY KEY NOT NULL,
  root_run_id TEXT NOT NULL,
  deleted_at  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
