//! The model's blobs.

use async_trait::async_trait;
use ua_core::{BlobId, BlobRef, RunId, Timestamp};

use super::MemStore;
use super::model::Model;
use crate::blob_store::{Blob, BlobPrune, BlobPruned, BlobStore, BlobUse};
use crate::error::StoreError;
use crate::lifted::NewBlob;
use crate::record::RunRecord;
use crate::rules;

/// A blob, or what a prune left of it.
#[derive(Debug, Clone)]
pub(super) struct StoredBlob {
    blob: BlobRef,
    created_at: Timestamp,
    content: Option<String>,
    pruned_at: Option<Timestamp>,
}

impl Model {
    fn stored_blob(&mut self, blob: &BlobRef) -> Option<&mut StoredBlob> {
        self.blobs.iter_mut().find(|stored| stored.blob.blob_id == blob.blob_id)
    }

    /// Stores blobs that `run` refers to. One that is there is left as it is; one that was pruned has its content back.
    pub(super) fn put_blobs(&mut self, run: &RunId, blobs: impl IntoIterator<Item = NewBlob>, at: Timestamp) {
        for new in blobs {
            self.refer(run, [&new.blob]);
            match self.stored_blob(&new.blob) {
                Some(stored) => {
                    stored.pruned_at = None;
                    stored.content.get_or_insert(new.content);
                }
                None => self.blobs.push(StoredBlob {
                    blob: new.blob,
                    created_at: at,
                    content: Some(new.content),
                    pruned_at: None,
                }),
            }
        }
    }

    /// Stores what the files of a new run hold, and notes that it refers to them. Refused, with nothing changed, when one is neither
    /// among `files` nor stored already.
    pub(super) fn put_files(&mut self, run: &RunRecord, files: Vec<NewBlob>) -> Result<(), StoreError> {
        let wanted: Vec<&BlobRef> = run.spec.taken_files().map(|file| &file.blob).collect();
        self.check_blobs(wanted.iter().copied().filter(|blob| !files.iter().any(|new| new.blob == **blob)))?;
        self.put_blobs(&run.run_id, files, run.created_at);
        self.refer(&run.run_id, wanted);
        Ok(())
    }

    /// Refuses references to what is not there.
    pub(super) fn check_blobs<'b>(&self, blobs: impl IntoIterator<Item = &'b BlobRef>) -> Result<(), StoreError> {
        for blob in blobs {
            let is_here = |stored: &StoredBlob| stored.blob == *blob && stored.content.is_some();
            if !self.blobs.iter().any(is_here) {
                return Err(rules::not_found("blobs", &blob.blob_id));
            }
        }
        Ok(())
    }

    /// Notes that `run` refers to these blobs.
    pub(super) fn refer<'b>(&mut self, run: &RunId, blobs: impl IntoIterator<Item = &'b BlobRef>) {
        self.blob_refs.extend(blobs.into_iter().map(|blob| (run.clone(), blob.blob_id.clone())));
    }

    /// Removes blobs altogether.
    pub(super) fn remove_blobs(&mut self, goes: impl Fn(&BlobId) -> bool) {
        self.blobs.retain(|stored| !goes(&stored.blob.blob_id));
    }

    fn blob_uses(&self) -> Vec<BlobUse> {
        let present = self.blobs.iter().filter(|stored| stored.content.is_some());
        let uses = present.map(|stored| {
            let refers = |run: &&RunRecord| self.blob_refs.contains(&(run.run_id.clone(), stored.blob.blob_id.clone()));
            let users: Vec<_> = self.runs.iter().filter(refers).collect();
            let is_live_member = |root: &RunId| {
                self.runs.iter().any(|member| member.root_run_id == *root && !member.status.is_terminal())
            };
            BlobUse {
                blob: stored.blob.clone(),
                used_at: users.iter().map(|run| run.updated_at).max().unwrap_or(stored.created_at),
                is_live: users.iter().any(|run| is_live_member(&run.root_run_id)),
            }
        });
        uses.collect()
    }
}

#[async_trait]
impl BlobStore for MemStore {
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        let mut model = self.model();
        let stored = model.stored_blob(blob);
        let pruned_at = stored.as_ref().and_then(|stored| stored.pruned_at);
        Ok(rules::blob_read(blob, stored.and_then(|stored| stored.content.clone()), pruned_at))
    }

    async fn prune_blobs(&self, prune: BlobPrune) -> Result<BlobPruned, StoreError> {
        let mut model = self.model();
        let pruned = rules::blobs_pruned(model.blob_uses(), &prune);
        if !prune.dry_run {
            for blob in &pruned.freed {
                if let Some(stored) = model.stored_blob(blob) {
                    (stored.content, stored.pruned_at) = (None, Some(prune.at));
                }
            }
        }
        Ok(pruned)
    }
}
