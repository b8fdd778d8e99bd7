//! The files that a turn changed, named with their digests in the marker of its commit: what a fork at that turn may take.

use ua_checkpoint::ArtifactRef;

use super::Driver;
use crate::error::RunError;

impl Driver<'_> {
    /// The files that are not as a marker of this process last named them. The first look names all. Where it takes a while, an answer that
    /// waits is stored before.
    pub(super) async fn changed_files(&mut self) -> Result<Vec<ArtifactRef>, RunError> {
        let changed = if let Some(changed) = self.ports.workspace.little_news(&mut self.marked_files) {
            changed
        } else {
            self.ports.store.flush().await.map_err(RunError::at("store an answer"))?;
            self.ports.workspace.changed_files_beside(&mut self.marked_files).await
        };
        Ok(changed.into_iter().map(|file| ArtifactRef { path: file.path, sha256: file.sha256 }).collect())
    }
}
