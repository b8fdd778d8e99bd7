//! The model's blobs.

use ua_core::{BlobId, BlobRef, RunId, Timestamp};

use super::model::Model;
use crate::blob_store::BlobUse;
use crate::error::StoreError;
use crate::lifted::NewBlob;
use crate::record::RunRecord;
use crate::rules;

/// A blob, or what a prune left of it.
#[derive(Debug, Clone)]
pub(super) struct StoredBlob {
    pub(super) blob: BlobRef,
    created_at: Timestamp,
    pub(super) content: Option<String>,
    pub(super) pruned_at: Option<Timestamp>,
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

    /// Lets the content of a blob go.
    pub(super) fn prune_blob(&mut self, blob: &BlobRef, at: Timestamp) {
        if let Some(stored) = self.stored_blob(blob) {
            (stored.content, stored.pruned_at) = (None, Some(at));
        }
    }

    pub(super) fn blob_uses(&self) -> Vec<BlobUse> {
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
