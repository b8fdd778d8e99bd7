-- Forks: a run that shares the first turns of its parent by reference. `forked_at_turn` is the last shared turn and
-- `forked_at_seq` the last shared message; what comes behind is the fork's own. Empty for runs that share nothing.

ALTER TABLE runs ADD COLUMN forked_at_turn INTEGER CHECK (forked_at_turn >= 0);
ALTER TABLE runs ADD COLUMN forked_at_seq INTEGER CHECK ((forked_at_seq > 0) = (forked_at_turn IS NOT NULL));

CREATE INDEX idx_runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TRIGGER runs_share_committed_turns_only
BEFORE INSERT ON runs
WHEN NEW.forked_at_turn IS NOT NULL
  AND NEW.forked_at_turn > coalesce((SELECT turn_index FROM runs WHERE run_id = NEW.parent_run_id), -1)
BEGIN
  SELECT RAISE(ABORT, 'a fork shares only committed turns of its parent');
END;

CREATE TRIGGER runs_begin_where_they_forked
BEFORE INSERT ON runs
WHEN NEW.turn_index <> coalesce(NEW.forked_at_turn, 0)
BEGIN
  SELECT RAISE(ABORT, 'a run begins without turns of its own');
END;

CREATE TRIGGER runs_keep_their_fork_point
BEFORE UPDATE OF forked_at_turn, forked_at_seq ON runs
BEGIN
  SELECT RAISE(ABORT, 'what a fork shares never changes');
END;
