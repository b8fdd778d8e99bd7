-- The time in which a process held a run, also when that process is killed (Durable Jobs v1 spec §6, max_wallclock_minutes).

-- Since when the owner's time is not in held_millis yet; empty while nobody holds the run.
ALTER TABLE runs ADD COLUMN held_from TEXT;

-- When the owner last said that it is alive; empty when it did not since it took the run.
ALTER TABLE runs ADD COLUMN seen_at TEXT;
