-- What tells a lineage from one of the same name in another copy of the database. Lineages of before have none.
ALTER TABLE runs ADD COLUMN lineage_mark TEXT;
