//! Reading what is much in a workspace beside the runtime: a thread that hashes for a minute drives no other run, renews no lease and hears no
//! stop meanwhile.
//!
//! What is little is read where it is asked for: a hop to another thread costs more, and a simulation, whose workspaces are small, stays one
//! schedule.

use std::time::Instant;

use ua_core::RunSpec;
use ua_dispatch::beside;
use ua_evidence::Artifact;

use crate::stamps::FileStamps;
use crate::workspace::Workspace;

impl Workspace {
    /// Reads what there is much of, so that whoever looks next finds its digests: all of it where `spec` is asked about. Without a word where it
    /// fails: whoever looks next says so.
    pub(crate) async fn read_ahead(&self, spec: &std::sync::Arc<RunSpec>) {
        if self.is_little() {
            return;
        }
        let (workspace, spec) = (self.clone(), spec.clone());
        beside(move || {
            let begun = now();
            let read = workspace.artifacts_of(&spec);
            // What was written just now is known by its times only once these are settled, which they are when it took so long to read it.
            if read.is_ok() && begun.elapsed().as_millis() > AGAIN_AFTER {
                drop(workspace.artifacts_of(&spec));
            }
        })
        .await;
    }

    /// The files that changed since `seen`, as [`changed_files`](Self::changed_files) has them.
    pub(crate) async fn changed_files_beside(&self, seen: &mut FileStamps) -> Vec<Artifact> {
        let (workspace, mut taken) = (self.clone(), std::mem::take(seen));
        let (changed, taken) = beside(move || (workspace.changed_files(&mut taken), taken)).await;
        *seen = taken;
        changed
    }
}

/// Reading took so long, in milliseconds, that it is not to be done where it is looked next.
const AGAIN_AFTER: u128 = 500;

#[expect(clippy::disallowed_methods, reason = "how long a disk takes, whatever a simulation says")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// On a runtime of one thread, which whoever hashed there would have for itself: others are polled meanwhile, and nothing is left to be read.
    #[tokio::test]
    async fn what_is_much_is_read_beside_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        let spec = Arc::new(RunSpec::parse(r#"{"objective": "x"}"#).unwrap());
        for (bytes, is_much) in [(10, false), (8 << 20, true)] {
            let file = workspace.path("work_products/a.bin");
            std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
            let was_polled = Arc::new(AtomicBool::new(false));
            let other = tokio::spawn({
                let was_polled = was_polled.clone();
                async move { was_polled.store(true, Ordering::SeqCst) }
            });
            workspace.read_ahead(&spec).await;
            assert_eq!(was_polled.load(Ordering::SeqCst), is_much, "{bytes}");
            other.await.unwrap();
            let mut seen = FileStamps::default();
            let changed = workspace.changed_files_beside(&mut seen).await;
            assert_eq!(changed, workspace.artifacts().unwrap(), "{bytes}");
            assert!(workspace.changed_files_beside(&mut seen).await.is_empty(), "it is seen");
        }
    }
}
