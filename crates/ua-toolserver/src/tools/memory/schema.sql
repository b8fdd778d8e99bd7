-- What an agent remembers between jobs. Kept apart from the runtime database: it belongs to the tools.
-- Instants are RFC 3339 text in UTC.

CREATE TABLE core_blocks (
  label      TEXT PRIMARY KEY NOT NULL,
  value      TEXT NOT NULL,
  updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE archival_items (
  item_seq   INTEGER PRIMARY KEY,
  item_id    TEXT NOT NULL UNIQUE,
  content    TEXT NOT NULL,
  tags       TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE VIRTUAL TABLE archival_words USING fts5 (
  content, tags, content = 'archival_items', content_rowid = 'item_seq', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER archival_items_are_indexed AFTER INSERT ON archival_items BEGIN
  INSERT INTO archival_words (rowid, content, tags) VALUES (new.item_seq, new.content, new.tags);
END;

-- A key is noted in the transaction of the change it made, with what was answered.
CREATE TABLE applied_keys (
  idempotency_key TEXT PRIMARY KEY NOT NULL,
  tool            TEXT NOT NULL,
  args_sha256     TEXT NOT NULL,
  result_json     TEXT NOT NULL,
  applied_at      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
