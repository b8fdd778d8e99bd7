-- Calls of before there were doubts. Schema 8 put those in doubt that were called failed although an earlier attempt was lost, but spared each of
-- which a person had ever answered anything: that it may go out, before it was sent, is no word about what came of it. Who opens the database
-- asks today's rule of every call without a doubt, and takes this note away with what it changes.
INSERT INTO meta (key, value) VALUES ('doubts_to_be_found', '26');
