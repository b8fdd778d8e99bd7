//! Letting go: of a run that has ended, and of the large results of those that have.

use std::io::ErrorKind;
use std::time::Duration;

use ua_core::{Audience, RunId, ShowPath as _, Trace, chain};
use ua_runner::{LeftOpen, RunLock, StepError, Workspace, WorkspaceError, owner_stamp};
use ua_store::{BlobPrune, RunDeletion, RunStore as _};

use super::{BY, Runs};
use crate::error::Error;

impl Runs {
    /// Deletes a run that has ended, with its folder. Nothing brings it back, and its id is not used again. While there is a fork of it, or a run that
    /// it is a fork of, what it did outside stays known to them, so that they do not do it again; the rest goes with the last of them.
    ///
    /// A run with calls that may have happened is not deleted, since what keeps them from being made again would go with it: neither one with a call in
    /// doubt, nor one with an effect that only its tool says failed, nor one that is [forgotten](Runs::forgotten) in part. [`Runs::resolve`] records what became of
    /// a call; `ua runs delete` asks a person about these.
    ///
    /// # Errors
    /// [`Error::Refused`] for such a run, for one that has not ended, and for one that no program began; [`Error::NoSuchRun`],
    /// [`Error::DrivenElsewhere`], [`Error::Store`]; [`Error::Files`] when the run is deleted and its folder could not be removed.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        self.may_be_changed()?;
        let run = self.get(id).await?;
        if run.entrypoint != Audience::LIBRARY {
            return Err(StepError::AnotherEntrypoint { run: run.run_id, entrypoint: run.entrypoint }.into());
        }
        // Whoever wants to drive it meanwhile is refused, and whoever drives it refuses us.
        let owner = owner_stamp(Trace::new(&self.env));
        let lock = RunLock::take(&self.locks(), &run.run_id, &owner).map_err(StepError::from)?;
        let run = self.get(id).await?;
        if !run.status.is_terminal() {
            return Err(Error::Refused(format!(
                "run {id} has not ended ({}), and nothing was deleted; `Runs::cancel` ends it",
                run.status
            )));
        }
        let left = LeftOpen::of(&*self.store, &run.run_id).await;
        let left = left.map_err(Error::store("look what the run leaves open"))?;
        if !left.is_nothing() {
            return Err(Error::Refused(format!(
                "nothing was deleted: with run {id} it is forgotten that this may have happened, and a run that is started after it does it again: {}. \
                 `Runs::resolve` records what became of a call, and `ua runs delete {id} --force` deletes the run as it is",
                left.sentences().join("; ")
            )));
        }
        #[cfg(feature = "mcp")]
        self.end_servers_of(&run.run_id, "nothing was deleted").await?;
        let deletion =
            RunDeletion { run_id: run.run_id.clone(), force: false, by: Some(BY.to_owned()), at: self.env.now() };
        self.store.delete_run(&deletion).await.map_err(Error::store("delete the run"))?;
        lock.remove(&self.locks(), &run.run_id);
        self.remove_folder(&run.run_id)
    }

    /// Ends what earlier processes left of the tool servers of a run whose lock is held. `undone` says what is not done where one cannot be ended.
    #[cfg(feature = "mcp")]
    pub(super) async fn end_servers_of(&self, run: &RunId, undone: &str) -> Result<(), Error> {
        use ua_dispatch::{Fence, ToolTransport as _};
        let left = crate::servers::left_behind(&self.folder, run, &self.env, &self.redactor)?;
        match left.fence_earlier().await {
            Fence::Alive { detail } => Err(Error::Refused(format!(
                "a tool server of run {run} is still alive and could not be ended, and {undone}: {detail}"
            ))),
            Fence::Gone => Ok(()),
        }
    }

    /// Removes the folder of a run that was deleted, and no other one in its place.
    fn remove_folder(&self, run: &RunId) -> Result<(), Error> {
        let folder = self.workspace(run.as_str())?;
        if folder.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        let left = |why: String| Error::Files {
            why: format!("run {run} is deleted; its folder {} was left: {why}; remove it by hand", folder.shown()),
        };
        let failed = |error: WorkspaceError| left(chain(&error));
        let workspace = Workspace::open(&folder).map_err(failed)?;
        match workspace.owner().map_err(failed)?.filter(|owner| !owner.is_empty() && owner != run.as_str()) {
            Some(other) => Err(left(format!("it is that of run {other}"))),
            None => workspace.remove_whole().map_err(failed),
        }
    }

    /// Deletes large results that only runs which have ended refer to, and that none of these has used for so long; returns how many bytes that were.
    /// All that has not ended, and all that is related to it by forks, keeps what it refers to. The receipts stay, without the large text, so
    /// that [`Runs::receipt`] is an error of such a call; a complete run still returns its result. As `ua db prune`, for all runs of the database.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn prune(&self, unused_for: Duration) -> Result<u64, Error> {
        self.may_be_changed()?;
        let at = self.env.now();
        let prune = BlobPrune { used_before: Some(at.minus(unused_for)), max_bytes: None, dry_run: false, at };
        let pruned = self.store.prune_blobs(prune).await.map_err(Error::store("delete large results"))?;
        Ok(pruned.freed_bytes())
    }
}
