-- What an attempt goes on with when a tool answered before it was done: the task that does the work, or what the tool asked for.
-- Written while the attempt runs, never afterwards: `tool_attempts_end_once` sees to that.
ALTER TABLE tool_attempts ADD COLUMN handle_json TEXT;
