-- A session of a client at the gateway: a run that no model of ours drives. Its project reaches over many of them.
CREATE TABLE gateway_sessions (
  run_id      TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  project     TEXT NOT NULL,
  server      TEXT NOT NULL,
  session_key TEXT NOT NULL,
  client      TEXT NOT NULL,
  identity    TEXT NOT NULL,
  reach       TEXT NOT NULL,
  opened_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX idx_gateway_sessions_key ON gateway_sessions (project, server, session_key);

-- A request of a client for a tool, and which call it is. Several may be one call. Tool and arguments stand here as well, so that the same call
-- is found in a project without an index that every other call would pay for.
CREATE TABLE gateway_arrivals (
  arrival_id      TEXT PRIMARY KEY NOT NULL,
  run_id          TEXT NOT NULL REFERENCES runs (run_id),
  tool_call_id    TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  client_call     TEXT,
  rule            TEXT NOT NULL,
  project         TEXT NOT NULL,
  raw_tool_name   TEXT NOT NULL,
  args_hash       TEXT NOT NULL,
  arrived_at      TEXT NOT NULL,
  answered_at     TEXT,
  acknowledged_at TEXT,
  CHECK (acknowledged_at IS NULL OR answered_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_gateway_arrivals_same ON gateway_arrivals (project, raw_tool_name, args_hash);
CREATE INDEX idx_gateway_arrivals_run ON gateway_arrivals (run_id, arrived_at);
CREATE INDEX idx_gateway_arrivals_call ON gateway_arrivals (tool_call_id);
CREATE INDEX idx_gateway_arrivals_open ON gateway_arrivals (project) WHERE answered_at IS NULL;
