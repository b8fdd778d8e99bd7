-- The same rules, said so that they cost less. SQLite makes a table of its own of each list of three or more values, anew for every statement: a turn
-- with one effect filled thirty of them. What is stored does not change.
--
-- The text of a table's checks is replaced as SQLite's own manual says ("Making other kinds of table schema changes"); the program lifts
-- its ban on that for migrations only.
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'status IN
    (''queued'', ''running'', ''waiting_for_human'', ''stopped'', ''succeeded'', ''failed'', ''cancelled'')',
    'status = ''queued'' OR status = ''running'' OR status = ''waiting_for_human'' OR status = ''stopped'' OR status = ''succeeded'' OR status = ''failed'' OR status = ''cancelled''')
WHERE type = 'table' AND name = 'runs';

UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''ready'', ''running'', ''blocked'', ''succeeded'', ''failed'', ''skipped'')',
    'status = ''ready'' OR status = ''running'' OR status = ''blocked'' OR status = ''succeeded'' OR status = ''failed'' OR status = ''skipped''')
WHERE type = 'table' AND name = 'run_steps';

UPDATE sqlite_schema SET sql = replace(replace(replace(replace(replace(sql,
    'tool_namespace IN (''local'', ''mcp'', ''composio'', ''claude_code'')',
    'tool_namespace = ''local'' OR tool_namespace = ''mcp'' OR tool_namespace = ''composio'' OR tool_namespace = ''claude_code'''),
    'side_effect_class IN (''external'', ''memory'', ''local'', ''read_only'')',
    'side_effect_class = ''external'' OR side_effect_class = ''memory'' OR side_effect_class = ''local'' OR side_effect_class = ''read_only'''),
    'replay_policy IN (''redo'', ''redo_keyed'', ''probe'', ''hold'', ''continue'')',
    'replay_policy = ''redo'' OR replay_policy = ''redo_keyed'' OR replay_policy = ''probe'' OR replay_policy = ''hold'' OR replay_policy = ''continue'''),
    'status IN
    (''prepared'', ''running'', ''succeeded'', ''failed'', ''unknown'', ''cancelled'')',
    'status = ''prepared'' OR status = ''running'' OR status = ''succeeded'' OR status = ''failed'' OR status = ''unknown'' OR status = ''cancelled'''),
    'status NOT IN (''running'', ''unknown'', ''succeeded'')',
    '(status <> ''running'' AND status <> ''unknown'' AND status <> ''succeeded'')')
WHERE type = 'table' AND name = 'tool_calls';

UPDATE sqlite_schema SET sql = replace(sql,
    'outcome IN (''replied'', ''not_sent'', ''lost'')',
    'outcome = ''replied'' OR outcome = ''not_sent'' OR outcome = ''lost''')
WHERE type = 'table' AND name = 'tool_attempts';

UPDATE sqlite_schema SET sql = replace(sql,
    'evidence IN (''reported'', ''reconciled'', ''verified'')',
    'evidence = ''reported'' OR evidence = ''reconciled'' OR evidence = ''verified''')
WHERE type = 'table' AND name = 'tool_receipts';

UPDATE sqlite_schema SET sql = replace(sql,
    'checkpoint_type IN
    (''step_boundary'', ''phase_boundary'', ''pre_side_effect'', ''pre_read_only'', ''post_replay'', ''interrupt'', ''corpus_cache'')',
    'checkpoint_type = ''step_boundary'' OR checkpoint_type = ''phase_boundary'' OR checkpoint_type = ''pre_side_effect'' OR checkpoint_type = ''pre_read_only'' OR checkpoint_type = ''post_replay'' OR checkpoint_type = ''interrupt'' OR checkpoint_type = ''corpus_cache''')
WHERE type = 'table' AND name = 'checkpoints';

UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''open'', ''answered'', ''closed'')',
    'status = ''open'' OR status = ''answered'' OR status = ''closed''')
WHERE type = 'table' AND name = 'questions';

UPDATE sqlite_schema SET sql = replace(sql,
    'choice IN (''happened'', ''execute'', ''skip'', ''abort'', ''continue'')',
    'choice = ''happened'' OR choice = ''execute'' OR choice = ''skip'' OR choice = ''abort'' OR choice = ''continue''')
WHERE type = 'table' AND name = 'answers';

UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''reserved'', ''actual'', ''partial'', ''baseline'', ''zero'')',
    'status = ''reserved'' OR status = ''actual'' OR status = ''partial'' OR status = ''baseline'' OR status = ''zero''')
WHERE type = 'table' AND name = 'usage';

PRAGMA writable_schema = RESET;

-- Nothing is found by it, and every call was written to it twice.
DROP INDEX idx_tool_calls_run_step;

-- The key is claimed by RUNNING: of all calls that may have had, or had, the effect, one holds it.
DROP INDEX idx_tool_calls_key;
CREATE UNIQUE INDEX idx_tool_calls_key ON tool_calls (idempotency_key)
  WHERE (status = 'running' OR status = 'unknown' OR status = 'succeeded') AND deduplicated_from IS NULL;

DROP TRIGGER runs_stay_terminal;
CREATE TRIGGER runs_stay_terminal
BEFORE UPDATE OF status ON runs
WHEN NEW.status <> OLD.status AND (OLD.status = 'succeeded' OR OLD.status = 'failed' OR OLD.status = 'cancelled')
BEGIN
  SELECT RAISE(ABORT, 'a terminal run keeps its status');
END;

DROP TRIGGER tool_calls_move_legally;
CREATE TRIGGER tool_calls_move_legally
BEFORE UPDATE OF status, failure_kind ON tool_calls
WHEN (NEW.status <> OLD.status OR NEW.failure_kind IS NOT OLD.failure_kind)
  AND NOT CASE OLD.status || coalesce('_' || OLD.failure_kind, '')
    WHEN 'prepared' THEN NEW.status = 'running' OR NEW.status = 'succeeded' OR NEW.status = 'cancelled'
    WHEN 'running' THEN NEW.status = 'succeeded' OR NEW.status = 'failed' OR NEW.status = 'unknown'
    WHEN 'failed_definite' THEN NEW.status = 'running'
    WHEN 'unknown' THEN NEW.status = 'running' OR NEW.status = 'succeeded' OR NEW.status = 'failed'
    ELSE FALSE END
  AND NOT (NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json
    AND CASE OLD.status || coalesce('_' || OLD.failure_kind, '')
      WHEN 'succeeded' THEN (NEW.status = 'failed' AND NEW.failure_kind = 'definite') OR NEW.status = 'unknown'
      WHEN 'failed_definite' THEN NEW.status = 'succeeded' OR NEW.status = 'unknown'
      WHEN 'failed_reported' THEN NEW.status = 'succeeded' OR (NEW.status = 'failed' AND NEW.failure_kind = 'definite') OR NEW.status = 'unknown'
      ELSE FALSE END)
BEGIN
  SELECT RAISE(ABORT, 'a tool call does not move that way');
END;
