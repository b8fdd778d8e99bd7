-- What was read into a run's history: 1 untrusted content, 2 private data, 3 both. Kept in its row, so that no call has to be read for it.
ALTER TABLE runs ADD COLUMN taint INTEGER NOT NULL DEFAULT 0 CHECK (taint BETWEEN 0 AND 3);

-- Of runs that are there already: what anybody of their lineage has read, which may be more than is in their own history.
UPDATE runs SET taint =
  EXISTS (SELECT 1 FROM tool_calls c, json_each(c.policy_json, '$.reads') r
          WHERE c.root_run_id = runs.root_run_id AND c.status NOT IN ('prepared', 'cancelled') AND r.value = 'untrusted')
  + 2 * EXISTS (SELECT 1 FROM tool_calls c, json_each(c.policy_json, '$.reads') r
          WHERE c.root_run_id = runs.root_run_id AND c.status NOT IN ('prepared', 'cancelled') AND r.value = 'private');
