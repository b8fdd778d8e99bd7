//! Whether a run is in another copy of its database, too.
//!
//! A copy that is driven does not know what the other one sends. What lies beside a database (`effects.log`, the locks of its runs) speaks of
//! that database alone, and all copies work in the same folder of the run; so whoever drives a run looks into the root that has its folder.

use std::path::Path;

use ua_store::{RunRecord, Store, StoreError, Walk};
#[cfg(feature = "postgres")]
use ua_store_postgres::Place;
use ua_store_sqlite::{AnotherCopy, another_copy, holds_run};

#[cfg(feature = "postgres")]
use super::LOCKS;
use super::elsewhere::was_moved;
use super::{DATABASE, Home};
use crate::error::HostError;
use crate::forgotten::TWO_COPIES;
use ua_core::ShowPath as _;

impl Home {
    /// Refuses to drive a run that is in two copies of its database, or has its turns from one that is.
    ///
    /// # Errors
    /// The refusal, with both places; a database that cannot be read.
    pub(crate) async fn refuse_copies(&self, store: &dyn Store, run: &RunRecord) -> Result<(), HostError> {
        self.refuse_a_copy(run)?;
        let failed = |error| HostError::store("read the run that this one is from", &error);
        let (mut walk, mut parent) = (Walk::from(&run.run_id), run.parent_run_id.clone());
        while let Some(above) = walk.up(parent.as_ref()).map_err(failed)? {
            let above = match store.run(&above).await {
                Ok(above) => above,
                // It was deleted.
                Err(StoreError::NotFound { .. }) => break,
                Err(error) => return Err(failed(error)),
            };
            self.refuse_a_copy(&above)?;
            parent = above.parent_run_id;
        }
        Ok(())
    }

    /// Refuses to drive a run whose folder is in a root with another copy of the database that is used, or, where the database is on a server,
    /// in a root with a database that has the run as well, or of which this root is a copy.
    ///
    /// # Errors
    /// The refusal, with both places.
    fn refuse_a_copy(&self, run: &RunRecord) -> Result<(), HostError> {
        let Some((root, _)) = self.place_of(Path::new(&run.workspace_dir)) else { return Ok(()) };
        if !self.is_on_a_server() {
            return self.refuse_another_file(run);
        }
        let there = root.join(DATABASE);
        // What was moved to a server has another name since.
        if holds_run(&there, &run.run_id, run.created_at) {
            return Err(in_two_copies(
                run,
                "the database on the server",
                &there,
                &root,
                " and without the server's URL",
            ));
        }
        if self.is_copy_of(&root) {
            return Err(in_two_copies(run, &self.root.shown().to_string(), &root, &root, ""));
        }
        Ok(())
    }

    /// Refuses a run of the database in the file of this root, whatever is used, that has another copy where the run's folder is.
    ///
    /// # Errors
    /// The refusal, with both places.
    pub fn refuse_another_file(&self, run: &RunRecord) -> Result<(), HostError> {
        let Some((root, _)) = self.place_of(Path::new(&run.workspace_dir)) else { return Ok(()) };
        match another_copy(&self.database, &root.join(DATABASE)) {
            None => Ok(()),
            Some(AnotherCopy::Moved(left)) => Err(was_moved(&self.database, &left)),
            Some(AnotherCopy::Here(there)) => {
                Err(in_two_copies(run, &self.database.shown().to_string(), &there, &root, ""))
            }
        }
    }

    #[cfg(feature = "postgres")]
    fn is_copy_of(&self, root: &Path) -> bool {
        let of = |root: &Path, locks: &Path| Place::known(root, locks).map(|place| place.id);
        let theirs = of(root, &root.join(LOCKS));
        !ua_store_sqlite::is_one(root, &self.root) && theirs.is_some() && theirs == of(&self.root, &self.locks())
    }

    #[cfg(not(feature = "postgres"))]
    fn is_copy_of(&self, _root: &Path) -> bool {
        false
    }
}

/// The refusal of a run that is in two copies of one database: `ours`, which is used, and `theirs`, in `root`.
fn in_two_copies(run: &RunRecord, ours: &str, theirs: &Path, root: &Path, how: &str) -> HostError {
    HostError::storage(format!(
        "run {} is in two copies of one database, and what is sent by one of them the other does not know: {ours} is used, and {} lies where the \
         run's workspace is",
        run.run_id,
        theirs.shown()
    ))
    .hint(format!(
        "nothing was sent; resume it with `--root {}`{how}, or move that copy away if this one is newer",
        root.shown()
    ))
    .field("kind", TWO_COPIES)
}
