//! Making a fork: what it shares, which files it gets, what its model is told.
//!
//! Durable runner, current state (fork); Durability Architecture (lineage). The history is shared by reference and nothing of it is
//! copied; files are copied by the digests that were recorded up to the fork point, so that a file which is not any more what it
//! was then is named instead of taken. Invariant: a process that dies while it forks leaves nothing, or a fork that is complete.
//! Proved by: `crash_anywhere::forks`, the e2e tests `fork`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use sha2::Digest as _;
use ua_checkpoint::{Cursor, Snapshot};
use ua_core::{Busy, Env, Message, Origin, RunId, RunSpec, Sha256, ShowPath as _, Trace};
use ua_files::{Folder, Kind};
use ua_resume::{ForkNote, JobChange, job_changes};
use ua_store::{
    CheckpointKind, CheckpointRecord, NewFork, NewRun, RowRef, RunRecord, RunRecords, RunStore, Store, StoreError,
    rules, runs_shared,
};

use crate::host::owner_stamp;
use crate::lock::{LockError, RunLock};
use crate::past::{PastError, refuse_forgotten};
use crate::workspace::{Workspace, WorkspaceError};

/// Why a run cannot be forked. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The turn is not one of its committed ones.
    #[error("cannot fork run {run} at turn {at_turn}: it has {}", ua_core::counted(committed, "committed turn"))]
    NotCommitted {
        /// The run.
        run: RunId,
        /// The turn that was asked for.
        at_turn: u32,
        /// How many it has.
        committed: u32,
    },
    /// It is there already, and shares other turns than were asked for.
    #[error(
        "run {run} is a fork at turn {shared} already, and not at turn {asked}: leave the turn out to find it again, or take another id"
    )]
    OfAnotherTurn {
        /// The fork.
        run: RunId,
        /// The turn that was asked for.
        asked: u32,
        /// The last one that it shares.
        shared: u32,
    },
    /// Another process uses the fork's name.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// More was sent by its family than the database knows: the fork would not share the receipts of it.
    #[error(transparent)]
    Past(#[from] PastError),
    /// A file cannot be copied.
    #[error("cannot copy the files of the fork")]
    Workspace(#[from] WorkspaceError),
    /// The store refused or failed.
    #[error("cannot {doing}")]
    Store {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
}

impl ForkError {
    pub(crate) fn at(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }
}

/// What becomes of a file of the parent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// It is what was recorded up to the fork point: the fork gets a copy.
    Copied,
    /// It was recorded and has another content now.
    Changed,
    /// It was recorded and is gone.
    Gone,
    /// It was recorded and is there, and nobody can read it, or it is too large to be compared.
    Unread,
    /// It was not recorded up to the fork point: it came later, or before files were recorded.
    Unrecorded,
}

impl FileFate {
    /// Why the fork does not have the file, in words; `None` when it has it.
    pub const fn why_not(self) -> Option<&'static str> {
        match self {
            Self::Copied => None,
            Self::Changed => Some("changed since it was recorded"),
            Self::Gone => Some("not there any more"),
            Self::Unread => Some("there, but it cannot be read, or is too large for that"),
            Self::Unrecorded => Some("not recorded up to this turn"),
        }
    }
}

/// A file of the parent's workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkFile {
    /// Its path in the workspace.
    pub path: String,
    /// The digest that was recorded.
    pub sha256: Option<Sha256>,
    /// What becomes of it.
    pub fate: FileFate,
}

/// A fork that could be made.
#[derive(Debug, Clone)]
pub struct ForkPlan {
    /// Everything about the run that is forked.
    pub parent: RunRecords,
    /// The last turn that is shared.
    pub at_turn: u32,
    /// The fork's job.
    pub spec: RunSpec,
    /// What is different in it.
    pub changes: Vec<JobChange>,
    /// The files of the parent's workspace and those it had, by path.
    pub files: Vec<ForkFile>,
    /// The parent's workspace, in which these were found and from which they are copied; `None` where it is gone.
    from: Option<Workspace>,
}

/// Where and how a fork is made.
#[derive(Debug)]
pub struct ForkPlace<'a> {
    /// The fork's id.
    pub run_id: RunId,
    /// The folder that its workspace is in, and in which its files are collected until it is stored.
    pub root: &'a Path,
    /// The folder of lock files.
    pub locks: &'a Path,
    /// Its workspace, absolute, below `root`; must not exist.
    pub workspace_dir: PathBuf,
    /// How to start it again.
    pub launch: Value,
    /// `cli` or `library`.
    pub entrypoint: String,
}

impl ForkPlan {
    /// Looks what a fork of `parent` would be: at its last committed turn unless another is named, with its job unless `spec` is
    /// another. Changes nothing. The parent's workspace is where its record says, whatever links lead there: for programs whose user named that
    /// folder whole. A name that a job, a model or a database gives is for [`Self::with_workspace`].
    ///
    /// # Errors
    /// [`ForkError::NotCommitted`] when there is no such turn; [`ForkError::Store`] when the store fails.
    pub async fn new(
        store: &dyn Store,
        parent: &RunId,
        at_turn: Option<u32>,
        spec: Option<RunSpec>,
    ) -> Result<Self, ForkError> {
        let parent = store.load(parent).await.map_err(ForkError::at("load the run"))?;
        let from = Workspace::open(Path::new(&parent.run.workspace_dir)).ok();
        Self::of(store, parent, from, at_turn, spec).await
    }

    /// The same of a run whose workspace is `from`, which whoever knows the root opened from there, part by part; `None` where it is gone.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub async fn with_workspace(
        store: &dyn Store,
        parent: &RunId,
        from: Option<Workspace>,
        at_turn: Option<u32>,
        spec: Option<RunSpec>,
    ) -> Result<Self, ForkError> {
        let parent = store.load(parent).await.map_err(ForkError::at("load the run"))?;
        Self::of(store, parent, from, at_turn, spec).await
    }

    /// The same of a run that was read.
    pub(crate) async fn of(
        store: &dyn Store,
        parent: RunRecords,
        from: Option<Workspace>,
        at_turn: Option<u32>,
        spec: Option<RunSpec>,
    ) -> Result<Self, ForkError> {
        let committed = parent.run.turn_index;
        let at_turn = at_turn.unwrap_or(committed);
        if at_turn > committed {
            return Err(ForkError::NotCommitted { run: parent.run.run_id.clone(), at_turn, committed });
        }
        let spec = spec.unwrap_or_else(|| RunSpec::clone(&parent.run.spec));
        let changes = job_changes(&parent.run.spec, &spec);
        let recorded = recorded_files(store, &parent, at_turn).await?;
        let files = fates(from.as_ref(), recorded);
        Ok(Self { parent, at_turn, spec, changes, files, from })
    }

    /// Makes the fork: collects its files, stores it in one write, then gives it its workspace. What was not copied after all is
    /// told in the fork's note and in the plan's `files`.
    ///
    /// # Errors
    /// [`ForkError`]; nothing is stored then.
    pub async fn carry_out(
        &mut self,
        store: &dyn Store,
        place: ForkPlace<'_>,
        env: &Env,
    ) -> Result<RunRecord, ForkError> {
        refuse_forgotten(store, &self.parent.run.run_id).await?;
        let lock = RunLock::take(place.locks, &place.run_id, &owner_stamp(Trace::new(env)))?;
        let root = Folder::open(place.root).map_err(WorkspaceError::at("open", place.root))?;
        let below = place
            .workspace_dir
            .strip_prefix(place.root)
            .map_err(|_| WorkspaceError::at("create", &place.workspace_dir)(io::ErrorKind::InvalidInput.into()))?;
        let staging = place.root.join(staging(&place.run_id));
        // What an earlier process of this name left behind, if its fork was never stored.
        if let Err(StoreError::NotFound { .. }) = store.run(&place.run_id).await {
            remove(&staging)?;
        }
        let copied = self.collect(&root, &place.run_id);
        let made = match copied {
            Ok(()) => self.store(store, &place, env).await,
            Err(error) => Err(error.into()),
        };
        let run = match made {
            Ok(run) => run,
            Err(error) => {
                // A store that cannot say whether it stored the fork leaves the files for it.
                if !matches!(&error, ForkError::Store { source: StoreError::Unavailable { .. }, .. }) {
                    remove(&staging)?;
                }
                return Err(error);
            }
        };
        settle_workspace(&root, below, &run)?;
        drop(lock);
        Ok(run)
    }

    async fn store(&self, store: &dyn Store, place: &ForkPlace<'_>, env: &Env) -> Result<RunRecord, ForkError> {
        let parent_id = &self.parent.run.run_id;
        // Read once more: a parent that is still driven may have done something while its files were copied.
        let parent = store.load(parent_id).await.map_err(ForkError::at("load the run"))?;
        let missing = self.files.iter().filter_map(|file| Some((file.path.clone(), file.fate.why_not()?.to_owned())));
        let missing: Vec<(String, String)> = missing.collect();
        let note = ForkNote { parent: &parent, at_turn: self.at_turn, changes: &self.changes, missing_files: &missing };
        let before = &parent.run;
        let is_same_prompt = before.spec.opening_prompt() == self.spec.opening_prompt();
        let prompt = if is_same_prompt { before.last_job_prompt.clone() } else { self.spec.opening_prompt() };
        let run = NewRun {
            run_id: place.run_id.clone(),
            created_at: env.now(),
            entrypoint: place.entrypoint.clone(),
            run_mode: before.run_mode.clone(),
            spec: self.spec.clone(),
            files: Vec::new(),
            job_path: before.job_path.clone(),
            opening: Message::user(Origin::Prompt, prompt),
            workspace_dir: place.workspace_dir.to_string_lossy().into_owned(),
            launch: place.launch.clone(),
            parent_run_id: Some(parent_id.clone()),
        };
        let fork = NewFork { run, at_turn: self.at_turn, note: Message::user(Origin::Resume, note.text()) };
        store.fork_run(fork).await.map_err(ForkError::at("store the fork"))
    }

    /// Copies the files that are what was recorded. One that changed meanwhile is not.
    fn collect(&mut self, root: &Folder, run: &RunId) -> Result<(), WorkspaceError> {
        let to = Workspace::create_in(root, staging(run))?;
        let mut copied: Vec<_> = self.files.iter_mut().filter(|file| file.fate == FileFate::Copied).collect();
        // The very folder in which they were found: its name may be another one's by now.
        let Some(from) = self.from.as_ref().filter(|_| !copied.is_empty()) else { return Ok(()) };
        let busy = Busy::with(format!("copying {} to the fork", ua_core::counted(copied.len(), "file")));
        for (before, file) in copied.iter_mut().enumerate() {
            busy.files(before);
            if !copy(from, &to, &file.path, file.sha256)? {
                file.fate = FileFate::Changed;
            }
        }
        Ok(())
    }
}

/// Gives a stored fork, whose workspace is `below` the root, the files that were collected for it, if a process died before it did. Called
/// before its workspace is used.
///
/// # Errors
/// [`WorkspaceError`] when the folder cannot be moved.
pub fn settle_workspace(root: &Folder, below: &Path, run: &RunRecord) -> Result<(), WorkspaceError> {
    if run.forked_at.is_none() {
        return Ok(());
    }
    let staging = staging(&run.run_id);
    let settle = || {
        if root.kind(&staging)? != Some(Kind::Folder) || root.kind(below)?.is_some() {
            return Ok(());
        }
        let above = root.make_folder(below.parent().unwrap_or(Path::new("")))?;
        root.rename(&staging, below)?;
        above.sync()
    };
    settle().map_err(WorkspaceError::at("create", &root.path().join(below)))
}

/// Removes what processes left in `root` that died before they stored their fork.
pub async fn sweep_forks(root: &Path, locks: &Path, store: &dyn Store, env: &Env) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(run) = name.to_str().and_then(|name| RunId::parse(name.strip_prefix(STAGING)?).ok()) else { continue };
        // A process that holds the lock is at work on it; one that comes later begins by removing it.
        let Ok(_lock) = RunLock::take(locks, &run, &owner_stamp(Trace::new(env))) else { continue };
        if matches!(store.run(&run).await, Err(StoreError::NotFound { .. }))
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!(path = %entry.path().shown(), %error, "a half-made fork could not be removed");
        }
    }
}

/// How the folder begins in which the files of a fork are collected.
const STAGING: &str = ".fork_";

fn staging(run: &RunId) -> String {
    format!("{STAGING}{run}")
}

fn remove(folder: &Path) -> Result<(), WorkspaceError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(WorkspaceError::at("remove", folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The digests of the files that the run had at `at_turn`, as its markers and those of the runs it shares turns with say.
async fn recorded_files(
    store: &dyn Store,
    parent: &RunRecords,
    at_turn: u32,
) -> Result<BTreeMap<String, Sha256>, ForkError> {
    let read = "read an earlier run of the lineage";
    let ancestors = runs_shared(store, &parent.run).await.map_err(ForkError::at(read))?;
    let find = |id: &RunId| {
        let run = ancestors.iter().find(|run| run.run_id == *id).cloned();
        run.ok_or_else(|| StoreError::NotFound { row: RowRef::new("runs", id) })
    };
    let parts = rules::shared_parts(&parent.run, find).map_err(ForkError::at(read))?;
    let mut files = BTreeMap::new();
    for part in parts {
        let records = store.load(&part.run_id).await.map_err(ForkError::at("load an earlier run of the lineage"))?;
        name_files(&records.checkpoints, part.upto.turn.min(at_turn), &mut files);
    }
    name_files(&parent.checkpoints, at_turn, &mut files);
    Ok(files)
}

/// Lays the files that markers up to `last_turn` name over those that are known, the newest last.
fn name_files(markers: &[CheckpointRecord], last_turn: u32, files: &mut BTreeMap<String, Sha256>) {
    for marker in markers {
        // At an interrupt, files of the open turn are there already.
        if marker.kind == CheckpointKind::Interrupt {
            continue;
        }
        let (Ok(cursor), Ok(snapshot)) = (Cursor::read(marker), Snapshot::read(marker)) else { continue };
        if cursor.turn_index <= last_turn {
            files.extend(snapshot.artifacts.into_iter().map(|file| (file.path, file.sha256)));
        }
    }
}

/// A file that each run writes for itself.
const OF_EACH_RUN: &str = "transcript.md";

fn fates(workspace: Option<&Workspace>, mut recorded: BTreeMap<String, Sha256>) -> Vec<ForkFile> {
    recorded.remove(OF_EACH_RUN);
    let there = workspace.and_then(|workspace| workspace.artifacts().ok()).unwrap_or_default();
    let mut files: Vec<ForkFile> = there
        .iter()
        .filter(|file| file.path != OF_EACH_RUN && !recorded.contains_key(&file.path))
        .map(|file| ForkFile { path: file.path.clone(), sha256: None, fate: FileFate::Unrecorded })
        .collect();
    for (path, sha256) in recorded {
        let is_inside = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
        // By itself: what a look at everything leaves out is there all the same.
        let known = there.iter().find(|file| file.path == path).map(|file| Ok(Some((file.bytes, file.sha256))));
        let fate = match workspace.filter(|_| is_inside) {
            None => FileFate::Gone,
            Some(workspace) => match known.unwrap_or_else(|| workspace.digest_alone(&path)) {
                Ok(Some((_, now))) if now == sha256 => FileFate::Copied,
                Ok(Some(_)) => FileFate::Changed,
                Err(error) if is_another(&error) => FileFate::Gone,
                Ok(None) | Err(_) => FileFate::Unread,
            },
        };
        files.push(ForkFile { path, sha256: Some(sha256), fate });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Whether what was recorded as a file is none now: it went, or a link, a pipe or a folder is in its place.
fn is_another(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::NotFound | E::InvalidInput | E::NotADirectory | E::IsADirectory)
}

/// Copies a file if its content has this digest; says whether it had. What is copied is on stable storage then.
fn copy(from: &Workspace, to: &Workspace, path: &str, sha256: Option<Sha256>) -> Result<bool, WorkspaceError> {
    // Tools and programs of the parent wrote there: what has become a link or a pipe since it was looked at is not what was recorded.
    let mut source = match from.folder().open_file(path) {
        Ok(source) => source,
        Err(error) => {
            return if is_another(&error) {
                Ok(false)
            } else {
                Err(WorkspaceError::at("read", &from.path(path))(error))
            };
        }
    };
    let place = to.path(path);
    let written = || WorkspaceError::at("write", &place);
    if let Some(above) = Path::new(path).parent() {
        to.folder().make_folder(above).map_err(written())?;
    }
    let mut target = to.folder().make_file(path).map_err(written())?;
    let (mut hasher, mut buffer) = (sha2::Sha256::new(), vec![0; 64 * 1024]);
    loop {
        let read = source.read(&mut buffer).map_err(WorkspaceError::at("read", &from.path(path)))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        target.write_all(&buffer[..read]).map_err(written())?;
    }
    let is_it = Some(Sha256::from_bytes(hasher.finalize().into())) == sha256;
    if is_it {
        target.sync_all().map_err(written())?;
    } else {
        to.folder().remove(path).map_err(WorkspaceError::at("remove", &to.path(path)))?;
    }
    Ok(is_it)
}

#[cfg(test)]
mod tests {
    use ua_core::sha256;

    use super::*;
    use crate::workspace::digest_file;

    /// A look at everything leaves out what is too much; what was recorded is asked for by itself, and not said to be gone.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes the files that are looked at")]
    fn what_was_recorded_is_found_however_much_lies_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.make_folder("a").unwrap();
        for number in 0..crate::workspace::digests::MOST_FILES {
            fs::File::create(workspace.path(&format!("a/{number:06}"))).unwrap();
        }
        workspace.make_folder("site").unwrap();
        workspace.replace("site/index.html", "x").unwrap();
        workspace.replace("site/other.html", "x").unwrap();
        fs::File::create(workspace.path("site/large.bin")).unwrap().set_len((2 << 30) + 1).unwrap();
        let recorded = [
            ("site/index.html", "x", FileFate::Copied),
            ("site/other.html", "y", FileFate::Changed),
            ("site/large.bin", "l", FileFate::Unread),
            ("site/gone.html", "g", FileFate::Gone),
        ];
        let files = fates(Some(&workspace), recorded.map(|(path, was, _)| (path.to_owned(), sha256(was))).into());
        for (path, _, fate) in recorded {
            assert_eq!(files.iter().find(|file| file.path == path).unwrap().fate, fate, "{path}");
        }
    }

    /// Between the look at the parent's files and their copy, its folder may be renamed and another one have its name.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes the files that are looked at")]
    fn what_is_copied_is_from_the_folder_that_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let root = Folder::open(dir.path()).unwrap();
        let parent = Workspace::create_in(&root, "mine/ws").unwrap();
        parent.replace("a.md", "a").unwrap();
        let records = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#).records;
        let files = fates(Some(&parent), [("a.md".to_owned(), sha256("a"))].into());
        let (spec, from) = (RunSpec::clone(&records.run.spec), Some(parent));
        let mut plan = ForkPlan { parent: records, at_turn: 0, spec, changes: Vec::new(), files, from };
        fs::rename(dir.path().join("mine"), dir.path().join("aside")).unwrap();
        fs::create_dir_all(dir.path().join("elsewhere/ws")).unwrap();
        fs::write(dir.path().join("elsewhere/ws/a.md"), "b").unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("mine")).unwrap();
        let run = RunId::parse("f").unwrap();
        plan.collect(&root, &run).unwrap();
        assert_eq!(plan.files[0].fate, FileFate::Copied);
        assert_eq!(fs::read_to_string(dir.path().join(staging(&run)).join("a.md")).unwrap(), "a");
    }

    #[test]
    fn only_what_is_still_as_recorded_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        for (path, content) in [("work_products/a.md", "a"), ("work_products/b.md", "b, later"), ("c.md", "c")] {
            workspace.replace(path, content).unwrap();
        }
        workspace.replace(OF_EACH_RUN, "# t").unwrap();
        let recorded =
            [("work_products/a.md", "a"), ("work_products/b.md", "b"), ("gone.md", "g"), (OF_EACH_RUN, "# t")];
        let recorded = recorded.map(|(path, content)| (path.to_owned(), sha256(content)));
        let files = fates(Some(&workspace), recorded.into());
        let shown: Vec<(&str, FileFate)> = files.iter().map(|file| (file.path.as_str(), file.fate)).collect();
        assert_eq!(
            shown,
            [
                ("c.md", FileFate::Unrecorded),
                ("gone.md", FileFate::Gone),
                ("work_products/a.md", FileFate::Copied),
                ("work_products/b.md", FileFate::Changed),
            ]
        );
        let fork = Workspace::create(&dir.path().join("fork")).unwrap();
        assert!(copy(&workspace, &fork, "work_products/a.md", Some(sha256("a"))).unwrap());
        assert_eq!(digest_file(&fork.path("work_products/a.md")).unwrap().1, sha256("a"));
        assert!(!copy(&workspace, &fork, "work_products/b.md", Some(sha256("b"))).unwrap());
        assert!(!fork.path("work_products/b.md").exists(), "a copy of something else is not left behind");
        // What was put in the place of a folder since is not looked through.
        std::os::unix::fs::symlink(workspace.path("work_products"), workspace.path("linked")).unwrap();
        assert!(!copy(&workspace, &fork, "linked/a.md", Some(sha256("a"))).unwrap());
    }
}
