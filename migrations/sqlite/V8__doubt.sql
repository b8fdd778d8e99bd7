-- Doubt belongs to the call: the earliest of its attempts that may have had the effect, and of which nobody knows. It stands until a person,
-- a probe, or a success under its key says otherwise, whatever later attempts came to.
ALTER TABLE tool_calls ADD COLUMN doubt INTEGER;
-- The task that a sub-agent's run works on.
ALTER TABLE runs ADD COLUMN task_call_id TEXT;
-- A person's `abort`: from then on nothing is started in the run, until it has ended.
ALTER TABLE runs ADD COLUMN abort_requested_at TEXT;
ALTER TABLE runs ADD COLUMN abort_question TEXT;
