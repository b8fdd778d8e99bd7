//! The blobs' part of the port.

use async_trait::async_trait;
use ua_core::BlobRef;
use ua_store::{Blob, BlobPrune, BlobPruned, BlobStore, Durability, StoreError, rules};

use crate::store::SqliteStore;

#[async_trait]
impl BlobStore for SqliteStore {
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        let blob = blob.clone();
        self.read(move |db| db.blob(&blob)).await
    }

    async fn prune_blobs(&self, prune: BlobPrune) -> Result<BlobPruned, StoreError> {
        if prune.dry_run {
            return self.read(move |db| Ok(rules::blobs_pruned(db.blob_uses()?, &prune))).await;
        }
        self.write(Durability::Synced, move |db| {
            let pruned = rules::blobs_pruned(db.blob_uses()?, &prune);
            pruned.freed.iter().try_for_each(|blob| db.prune_blob(blob, prune.at))?;
            Ok(pruned)
        })
        .await
    }
}
