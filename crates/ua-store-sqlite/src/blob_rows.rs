//! The rows of blobs: how they are found, stored, and let go.

use rusqlite::{Row, params};
use ua_core::{BlobRef, RunId, Timestamp};
use ua_store::{Blob, BlobUse, NewBlob, rules};

use crate::column::{Columns, int, text};
use crate::db::Db;
use crate::error::DbError;
use crate::run_rows::not_found;

type DbResult<T> = Result<T, DbError>;

impl Db<'_> {
    /// Stores blobs that `run` refers to. One that is there is left as it is; one that was pruned has its content back.
    pub(crate) fn put_blobs(&self, run: &RunId, blobs: &[NewBlob], at: Timestamp) -> DbResult<()> {
        for new in blobs {
            let sql = "INSERT INTO blobs (blob_id, size_bytes, created_at, content) VALUES (?1, ?2, ?3, ?4) \
                       ON CONFLICT (blob_id) DO UPDATE SET content = excluded.content, pruned_at = NULL \
                       WHERE content IS NULL";
            let (id, size) = (new.blob.blob_id.as_str(), int(new.blob.size));
            self.connection.prepare_cached(sql)?.execute(params![id, size, text(&at), new.content.as_bytes()])?;
            self.refer_to_blob(run, &new.blob)?;
        }
        Ok(())
    }

    /// Notes that `run` refers to these blobs, which must be there.
    pub(crate) fn refer_to_blobs<'b>(&self, run: &RunId, blobs: impl Iterator<Item = &'b BlobRef>) -> DbResult<()> {
        for blob in blobs {
            let sql = "SELECT count(*) FROM blobs WHERE blob_id = ?1 AND size_bytes = ?2 AND content IS NOT NULL";
            if self.number(sql, params![blob.blob_id.as_str(), int(blob.size)])? == 0 {
                return Err(not_found("blobs", &blob.blob_id));
            }
            self.refer_to_blob(run, blob)?;
        }
        Ok(())
    }

    fn refer_to_blob(&self, run: &RunId, blob: &BlobRef) -> DbResult<()> {
        let sql = "INSERT INTO blob_refs (run_id, blob_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        self.connection.prepare_cached(sql)?.execute([run.as_str(), blob.blob_id.as_str()])?;
        Ok(())
    }

    /// What is found under a reference.
    pub(crate) fn blob(&self, blob: &BlobRef) -> DbResult<Blob> {
        let sql = "SELECT * FROM blobs WHERE blob_id = ?1";
        let found = self.row(sql, [blob.blob_id.as_str()], |row| {
            let column = Columns::new(row, "blobs", "blob_id");
            Ok((column.get::<Option<Vec<u8>>>("content")?, column.opt_at("pruned_at")?))
        })?;
        Ok(match found {
            Some((Some(bytes), pruned_at)) => match String::from_utf8(bytes) {
                Ok(text) => rules::blob_read(blob, Some(text), pruned_at),
                Err(error) => Blob::Corrupt { why: format!("it is not text: {error}") },
            },
            Some((None, pruned_at)) => Blob::Missing { pruned_at },
            None => Blob::Missing { pruned_at: None },
        })
    }

    /// Every blob that has its content, with who refers to it.
    pub(crate) fn blob_uses(&self) -> DbResult<Vec<BlobUse>> {
        let sql = "SELECT b.blob_id, b.size_bytes, \
                   coalesce((SELECT max(r.updated_at) FROM blob_refs f JOIN runs r ON r.run_id = f.run_id \
                             WHERE f.blob_id = b.blob_id), b.created_at) AS used_at, \
                   EXISTS (SELECT 1 FROM blob_refs f JOIN runs r ON r.run_id = f.run_id \
                           JOIN runs member ON member.root_run_id = r.root_run_id WHERE f.blob_id = b.blob_id \
                           AND member.status NOT IN ('succeeded', 'failed', 'cancelled')) AS is_live \
                   FROM blobs b WHERE b.content IS NOT NULL";
        self.rows(sql, [], blob_use)
    }

    pub(crate) fn prune_blob(&self, blob: &BlobRef, at: Timestamp) -> DbResult<()> {
        let sql = "UPDATE blobs SET content = NULL, pruned_at = ?2 WHERE blob_id = ?1";
        self.connection.prepare_cached(sql)?.execute([blob.blob_id.as_str(), &text(&at)])?;
        Ok(())
    }
}

fn blob_use(row: &Row<'_>) -> DbResult<BlobUse> {
    let column = Columns::new(row, "blobs", "blob_id");
    Ok(BlobUse {
        blob: BlobRef { blob_id: column.parsed("blob_id")?, size: column.int("size_bytes")? },
        used_at: column.at("used_at")?,
        is_live: column.get("is_live")?,
    })
}
