//! The files for people of runs that nobody drives: what a write from outside makes out of date, and who writes it again.
//!
//! A person's word changes the record of runs that have ended, and the answer to a question that of one that waits. Their files only repeat the
//! record, so they are written behind it, and a process may die between the two. Whoever is about to write leaves a mark first and holds it while it
//! lives; the mark goes once the files say what is recorded. One that nobody holds was left by a process that died, or that could not write the
//! files: whoever comes next writes them.
//!
//! One process at a time reads the record for this and writes the files, so what was read earlier never replaces what was read later.
//! Proved by: this file's tests, and the end-to-end tests `corrections`, which kill at each of these places.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use ua_core::{RunId, RunStatus, Trace};
use ua_files::Folder;
use ua_runner::{RunLock, owner_stamp};
use ua_store::{FleetStore as _, RunQuery, RunRecords, RunStore as _, Store as _};

use crate::database::Database;
use crate::error::HostError;
use crate::home::Home;
use crate::{restart, tree};

/// The folder of marks, in the folder of locks. A mark is named by the root of its lineage, a dot, and something that no other mark has.
const MARKS: &str = "files_due";
/// Whoever has it writes.
const LOCK: &str = "files_due.lock";
/// How often the lock is waited for before the files are left to whoever comes next.
const TRIES: u32 = 10;

/// That the files of the runs of a lineage may be out of date, for as long as this process lives and behind its death.
#[derive(Debug)]
pub struct Due {
    root: RunId,
    marks: Option<Marks>,
}

/// The marks that are held, and where.
#[derive(Debug)]
struct Marks {
    folder: Folder,
    held: Vec<(String, File)>,
}

impl Due {
    /// Before a write that changes what the files of a lineage tell. Without a mark the write is as good: that none could be left is noted.
    pub fn of(home: &Home, root: &RunId) -> Self {
        // Whose root it is writes the files there.
        let marks = if home.is_somebody_elses() {
            None
        } else {
            left(home, root)
                .inspect_err(|error| tracing::warn!(%error, "no mark could be left for the files of a run"))
                .ok()
        };
        Self { root: root.clone(), marks }
    }

    /// Behind the write: the files say what is recorded. Of a run that is open those alone are written that tell of a correction in its open
    /// turn or of a question, and while nobody drives it: `held` is one whose lock this process has. A file that cannot be written leaves the mark to
    /// whoever comes next.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn make(self, home: &Home, store: &Database, held: Option<&RunId>) -> Result<(), HostError> {
        self.make_of(home, store, None, held).await
    }

    /// The same behind a write that only the files of this run tell of, and those of the runs above and below it: an answer. However many runs the
    /// database has, no others are looked at.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn make_tree(self, home: &Home, store: &Database, run: &RunId) -> Result<(), HostError> {
        // Whose root it is writes the files there.
        if home.is_somebody_elses() {
            return Ok(());
        }
        self.make_of(home, store, Some(run), None).await
    }

    async fn make_of(
        self,
        home: &Home,
        store: &Database,
        tree_of: Option<&RunId>,
        held: Option<&RunId>,
    ) -> Result<(), HostError> {
        let lock = match &self.marks {
            Some(_) => {
                let Some(lock) = locked(home).await? else {
                    tracing::debug!("the files of a run are left to whoever comes next");
                    return Ok(());
                };
                Some(lock)
            }
            None => None,
        };
        let runs = match tree_of {
            Some(run) => tree::with_those_below(store, &tree::top(store, run).await?).await?,
            None => of_lineage(store, &self.root).await?,
        };
        let is_written = write_runs(home, store, &runs, held).await?;
        drop(lock);
        if is_written && let Some(marks) = &self.marks {
            marks.remove();
        }
        Ok(())
    }

    /// Nothing was written.
    pub fn withdraw(self) {
        if let Some(marks) = &self.marks {
            marks.remove();
        }
    }
}

impl Marks {
    fn remove(&self) {
        for (name, _) in &self.held {
            if let Err(error) = self.folder.remove(name).or_else(unless_missing) {
                tracing::warn!(%error, "a mark for the files of a run could not be removed");
            }
        }
    }
}

/// Writes the files that a process which died left out of date, or could not write. They only repeat what is stored, so a failure is noted and
/// changes nothing.
pub async fn write_due(home: &Home, store: &Database) {
    if home.is_somebody_elses() {
        return;
    }
    let due = abandoned(home).unwrap_or_else(|error| {
        tracing::warn!(%error, "the marks for files of runs could not be read");
        Vec::new()
    });
    for due in due {
        if let Err(error) = due.make(home, store, None).await {
            tracing::warn!(%error, "the files of a run were not written again");
        }
    }
}

/// Leaves a mark and holds it. One that another process took for abandoned before it was held is not counted on.
fn left(home: &Home, root: &RunId) -> io::Result<Marks> {
    let folder = Folder::make_itself(&home.locks())?.make_folder(MARKS)?;
    loop {
        let name = format!("{root}.{}", ua_files::unguessable()?);
        let mark = folder.make_file(&name)?;
        if mark.try_lock().is_ok() && folder.kind(&name)?.is_some() {
            mark.sync_all()?;
            folder.sync()?;
            return Ok(Marks { folder, held: vec![(name, mark)] });
        }
    }
}

/// The marks that nobody holds, by lineage.
fn abandoned(home: &Home) -> io::Result<Vec<Due>> {
    let folder = || Folder::open_itself(&home.locks())?.folder(MARKS);
    let entries = match folder() {
        Ok(folder) => folder.entries()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found: BTreeMap<RunId, Marks> = BTreeMap::new();
    for (name, _) in entries {
        let Some(name) = name.to_str() else { continue };
        let Some(root) = name.rsplit_once('.').and_then(|(root, _)| RunId::parse(root).ok()) else { continue };
        let folder = folder()?;
        // Its owner may remove it at this moment.
        let Ok(mark) = folder.open_file(name) else { continue };
        if mark.try_lock().is_ok() && folder.kind(name)?.is_some() {
            let marks = found.entry(root).or_insert_with(|| Marks { folder, held: Vec::new() });
            marks.held.push((name.to_owned(), mark));
        }
    }
    Ok(found.into_iter().map(|(root, marks)| Due { root, marks: Some(marks) }).collect())
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The lock under which files are written, unless others have it for long.
async fn locked(home: &Home) -> Result<Option<File>, HostError> {
    let failed = |error| HostError::storage(format!("cannot open the lock of the files of runs: {error}"));
    let lock = Folder::make_itself(&home.locks()).and_then(|locks| locks.open_or_make(LOCK)).map_err(failed)?;
    for _ in 0..TRIES {
        if restart::take(&lock).await? {
            return Ok(Some(lock));
        }
    }
    Ok(None)
}

/// The runs of a lineage.
async fn of_lineage(store: &Database, root: &RunId) -> Result<Vec<RunId>, HostError> {
    let all = RunQuery { limit: u32::MAX, ..RunQuery::default() };
    let heads = store.find_runs(&all).await.map_err(|e| HostError::store("look for the runs of the lineage", &e))?;
    let mut found = Vec::new();
    for head in heads {
        let run = store.run(&head.run_id).await.map_err(|e| HostError::store("read a run", &e))?;
        if run.root_run_id == *root {
            found.push(run.run_id);
        }
    }
    Ok(found)
}

/// Writes the files of these runs as far as nobody drives them, and whether all could be written.
async fn write_runs(home: &Home, store: &Database, runs: &[RunId], held: Option<&RunId>) -> Result<bool, HostError> {
    let mut is_written = true;
    for run in runs {
        let run = store.run(run).await.map_err(|e| HostError::store("read a run", &e))?;
        let mut records = store.load(&run.run_id).await.map_err(|e| HostError::store("load a run", &e))?;
        is_written &= write_tasks(home, store, &records).await?;
        // A run that somebody drives writes its own.
        let (mut lock, mut standing, mut taken_meanwhile) = (None, None, None);
        if !run.status.is_terminal() && held != Some(&run.run_id) {
            let top = tree::top(store, &run.run_id).await?;
            let is_asked = run.status == RunStatus::WaitingForHuman && !ua_store::is_gateway(&run);
            if is_corrected(&records) {
                let now = crate::standing::standing(home, store, &run).await?;
                let owner = owner_stamp(Trace::new(&ua_core::system::env()));
                let Ok(taken) = RunLock::take(&home.locks(), &top, &owner) else { continue };
                lock = Some(taken);
                records = store.load(&run.run_id).await.map_err(|e| HostError::store("load a run", &e))?;
                // Somebody may have had it in between.
                standing = Some(now).filter(|_| records.run.status == run.status);
            } else if is_asked && !RunLock::is_held(&home.locks(), &top) {
                // Without its lock: a worker that takes a run for its answer must not find it taken.
                standing = Some(crate::standing::standing(home, store, &run).await?);
                taken_meanwhile = Some(top);
            } else {
                continue;
            }
        }
        let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
        let workspace = home.open_workspace(&run).map(|found| found.in_queue(queued.map(|entry| entry.state)));
        let workspace = workspace.map(|found| match standing {
            Some(standing) => found.standing_like(standing),
            None => found,
        });
        // A workspace that is gone has nothing to be wrong in it.
        if let Ok(workspace) = workspace {
            let mut written = ua_runner::write_corrected(&workspace, &records);
            // Whoever took the run meanwhile may have withdrawn before what is written now.
            if taken_meanwhile.is_some_and(|top| RunLock::is_held(&home.locks(), &top)) {
                written = written.and(ua_runner::withdraw_conclusion(&workspace, &run.run_id));
            }
            if let Err(error) = written {
                tracing::warn!(%error, run = %run.run_id, "the files of a run were not written again");
                is_written = false;
            }
        }
        drop(lock);
    }
    Ok(is_written)
}

/// Writes what the sub-agents of a run came to that have ended, and whether all could be written. That stands in the folder of the run whose tasks
/// they were, whether or not that has ended or is driven: whoever drives it wrote it when a sub-agent ended, and does so no more.
async fn write_tasks(home: &Home, store: &Database, above: &RunRecords) -> Result<bool, HostError> {
    let own = above.lineage.sub_agents.iter().filter(|child| child.parent_run_id == above.run.run_id);
    let ended: Vec<_> = own.filter(|child| child.status.is_terminal()).collect();
    let workspace = if ended.is_empty() { None } else { home.open_workspace(&above.run).ok() };
    let Some(workspace) = workspace else { return Ok(true) };
    let mut is_written = true;
    for child in ended {
        let records = store.load(&child.run_id).await.map_err(|e| HostError::store("load a sub-agent's run", &e))?;
        if let Err(error) = ua_runner::write_task_output(&workspace, &child.call_id, &records) {
            tracing::warn!(%error, run = %child.run_id, "what a sub-agent came to was not written again");
            is_written = false;
        }
    }
    Ok(is_written)
}

/// Whether a person corrected a call of the turn that is not over.
fn is_corrected(records: &RunRecords) -> bool {
    let mut open = records.calls.iter().filter(|call| call.position.turn > records.run.turn_index);
    open.any(|call| call.correction.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Process;
    use crate::settings::Settings;
    use crate::words::KnownSecrets;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home =
            Home::new(&Settings::read(Process::default()), Some(folder.path()), &KnownSecrets::default()).unwrap();
        (folder, home)
    }

    fn root() -> RunId {
        RunId::parse("a.run-1").unwrap()
    }

    /// The lineage of so many marks that nobody holds, as soon as it is so: a program that another test starts has all open files of this process for
    /// a moment, these marks as well.
    fn abandoned_soon(home: &Home, marks: usize) -> Due {
        loop {
            if let [due] = &mut abandoned(home).unwrap()[..]
                && due.marks.as_ref().is_some_and(|found| found.held.len() == marks)
            {
                return Due { root: due.root.clone(), marks: due.marks.take() };
            }
            std::thread::yield_now();
        }
    }

    fn marks(home: &Home) -> usize {
        std::fs::read_dir(home.locks().join(MARKS)).map_or(0, Iterator::count)
    }

    #[test]
    fn a_mark_is_its_owners_while_that_lives_and_free_behind_it() {
        let (_folder, home) = home();
        assert!(abandoned(&home).unwrap().is_empty(), "nothing was ever due");
        let due = Due::of(&home, &root());
        assert!(due.marks.is_some());
        assert!(abandoned(&home).unwrap().is_empty(), "its owner lives");
        // Its process was killed.
        drop(due);
        let found = abandoned_soon(&home, 1);
        assert_eq!(found.root, root());
        assert!(abandoned(&home).unwrap().is_empty(), "one process at a time writes for it");
        found.withdraw();
        assert_eq!(marks(&home), 0);
    }

    #[test]
    fn the_marks_of_a_lineage_are_made_good_together_and_a_living_one_stays() {
        let (_folder, home) = home();
        let living = Due::of(&home, &root());
        for _ in 0..2 {
            drop(Due::of(&home, &root()));
        }
        abandoned_soon(&home, 2).withdraw();
        assert_eq!(marks(&home), 1, "what is written behind this is not told yet");
        living.withdraw();
        assert_eq!(marks(&home), 0);
    }
}
