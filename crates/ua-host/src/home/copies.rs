//! Whether a run is in another copy of its database, too.
//!
//! A copy that is driven does not know what the other one sends. What lies beside a database (`effects.log`, the locks of its runs) speaks of
//! that database alone, and all copies work in the same folder of the run; so whoever drives a run looks into the root that has its folder.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ua_store::RunRecord;
#[cfg(feature = "postgres")]
use ua_store_postgres::Place;

#[cfg(feature = "postgres")]
use super::LOCKS;
use super::elsewhere::{is_copy, left_of, was_moved};
use super::{DATABASE, Home};
use crate::error::HostError;
use crate::forgotten::TWO_COPIES;

impl Home {
    /// Refuses to drive a run whose folder is in a root with another copy of the database that is used, or, where the database is on a server,
    /// in a root of which this one is a copy.
    ///
    /// # Errors
    /// The refusal, with both places.
    pub(crate) fn refuse_copies(&self, run: &RunRecord) -> Result<(), HostError> {
        let Some((root, _)) = self.place_of(Path::new(&run.workspace_dir)) else { return Ok(()) };
        let (ours, theirs) = if self.is_on_a_server() {
            if !self.is_copy_of(&root) {
                return Ok(());
            }
            (self.root.clone(), root.clone())
        } else {
            if let Some(left) = left_of(&root, DATABASE).find(|left| is_copy(&self.database, left)) {
                return Err(was_moved(&self.database, &left));
            }
            let there = root.join(DATABASE);
            if !is_another_copy(&self.database, &there) {
                return Ok(());
            }
            (self.database.clone(), there)
        };
        Err(HostError::storage(format!(
            "run {} is in two copies of one database, and what is sent by one of them the other does not know: {} is used, and {} lies where the \
             run's workspace is",
            run.run_id,
            ours.display(),
            theirs.display()
        ))
        .hint(format!(
            "nothing was sent; resume it with `--root {}`, or move that copy away if this one is newer",
            root.display()
        ))
        .field("kind", TWO_COPIES))
    }

    #[cfg(feature = "postgres")]
    fn is_copy_of(&self, root: &Path) -> bool {
        let of = |root: &Path, locks: &Path| Place::known(root, locks).map(|place| place.id);
        let theirs = of(root, &root.join(LOCKS));
        !is_one(root, &self.root) && theirs.is_some() && theirs == of(&self.root, &self.locks())
    }

    #[cfg(not(feature = "postgres"))]
    fn is_copy_of(&self, _root: &Path) -> bool {
        false
    }
}

/// Whether two files are databases of one identity, and not one file.
fn is_another_copy(ours: &Path, theirs: &Path) -> bool {
    theirs.is_file() && !is_one(ours, theirs) && is_copy(ours, theirs)
}

/// Whether two paths lead to one thing.
fn is_one(ours: &Path, theirs: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    of(ours).is_some_and(|ours| of(theirs) == Some(ours))
}
