-- Until when a run that a worker gave back is left alone. Until now that moved the time for which it was submitted, and with it its age.
ALTER TABLE run_queue ADD COLUMN not_before text COLLATE "C";
