-- When each process took a run and left it. What earlier versions recorded says only when a run was taken from a dead process, so the times of
-- processes before this are read off the run's other rows.
ALTER TABLE runs ADD COLUMN processes_json text COLLATE "C" NOT NULL DEFAULT '[]';
