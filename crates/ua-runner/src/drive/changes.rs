//! The files that a turn changed, named with their digests in the marker of its commit: what a fork at that turn may take.

use ua_checkpoint::ArtifactRef;

use super::Driver;

impl Driver<'_> {
    /// The files that are not as a marker of this process last named them. The first look names all.
    pub(super) fn changed_files(&mut self) -> Vec<ArtifactRef> {
        let changed = self.ports.workspace.changed_files(&mut self.marked_files);
        changed.into_iter().map(|file| ArtifactRef { path: file.path, sha256: file.sha256 }).collect()
    }
}
