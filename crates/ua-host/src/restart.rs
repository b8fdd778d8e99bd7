//! `RESTART.md` in the folder of all workspaces: which runs there are, and how each goes on.
//!
//! Durable runner, current state, "Job start" and "Job end". The page is made of the database alone, under a lock of its own: who has
//! the lock sees what everybody wrote who had it before, so runs that start or end side by side never write each other out.
//!
//! Whoever wants the page leaves a mark first. One page is enough for all marks that were left before its writer looked at the database, and
//! whoever has written looks for a mark once more after the lock is free. So nobody has to wait for long where many runs end at once, and the
//! page is current when the last of them has.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use ua_core::{Audience, RunId, ShowPath as _};
use ua_files::Folder;
use ua_report::{RestartPlace, UNFINISHED, restart_page};
use ua_resume::{NextStep, Standing};
use ua_runner::Workspace;
use ua_store::{FleetStore as _, RunHead, RunRecord, RunStore, Store};

use crate::database::{Database, Whereabouts};
use crate::error::HostError;
use crate::fleet::place_of;
use crate::home::Home;
use crate::pages;
use crate::standing::standings;

/// The page's name in a root.
const NAME: &str = "RESTART.md";

/// How many runs are looked at; the page names fewer.
const LOOKED_AT: u32 = 200;

/// How long one waits for another process that writes the page: this many times [`PAUSE`]. After that the page is left to that process.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// There is something that the page does not say yet.
const WANTED: &str = "restart.wanted";
/// A page is being written that says it; left behind when that failed, or its process was killed.
const BEGUN: &str = "restart.begun";
/// One writes so many pages for others behind one's own; whoever wants one after that is there to write it.
const PAGES: u32 = 10;

/// Writes the page anew, or leaves that to the process that is writing it. It only repeats what is stored, so a failure is noted and changes
/// nothing.
pub async fn write(home: &Home, store: &Database) {
    // Whose root it is writes the page with the next thing that happens.
    if home.is_somebody_elses() {
        return;
    }
    // Whoever changes a run writes the page, and is the next who comes by after a process was killed.
    crate::servers::end_abandoned(home).await;
    // What the files of single runs say of a record that changed comes first: the page names them.
    pages::write_due(home, store).await;
    let written = match locks(home) {
        Ok(locks) => in_turn(&locks, || try_write(home, store)).await,
        Err(error) => Err(failed("cannot open the folder of locks")(error)),
    };
    if let Err(error) = written {
        tracing::warn!(%error, "RESTART.md was not written");
    }
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> HostError {
    move |error| HostError::storage(format!("{doing}: {error}"))
}

fn locks(home: &Home) -> io::Result<Folder> {
    Folder::make_itself(&home.locks())
}

/// Has `page` written by one process at a time, for all that want it.
async fn in_turn<Page, Written>(locks: &Folder, page: Page) -> Result<(), HostError>
where
    Page: Fn() -> Written,
    Written: Future<Output = Result<(), HostError>>,
{
    let lock = locks.open_or_make("restart.lock").map_err(failed("cannot open its lock"))?;
    drop(locks.open_or_make(WANTED).map_err(failed("cannot leave a mark"))?);
    let is_marked = |name| locks.kind(name).map(|kind| kind.is_some()).map_err(failed("cannot look for a mark"));
    if !take(&lock).await? {
        tracing::debug!("RESTART.md is left to the process that is writing it");
        return Ok(());
    }
    for _ in 0..PAGES {
        if is_marked(WANTED)? {
            locks.rename(WANTED, BEGUN).map_err(failed("cannot take its mark"))?;
        }
        // Without a mark another one wrote it after this one's was left.
        if is_marked(BEGUN)? {
            page().await?;
            locks.remove(BEGUN).map_err(failed("cannot remove its mark"))?;
        }
        lock.unlock().map_err(failed("cannot unlock it"))?;
        // Behind the lock: whoever found it taken and gave up had left a mark before.
        if !is_marked(WANTED)? || !is_taken(&lock)? {
            break;
        }
    }
    Ok(())
}

async fn try_write(home: &Home, store: &Database) -> Result<(), HostError> {
    let mut runs = store.runs(LOOKED_AT).await.map_err(|e| HostError::store("list the runs", &e))?;
    let has_more = runs.len() >= LOOKED_AT as usize;
    // A sub-agent goes on with its job, and a run of another machine there.
    runs.retain(|run| !ua_store::is_task(run));
    // A program resumes its runs itself and knows nothing of this page, which would be out of date by the next thing that it does.
    let all = runs.len();
    runs.retain(|run| Audience::of(&run.entrypoint) == Audience::Terminal);
    if runs.is_empty() && all > 0 {
        let removed = Folder::open(home.root()).and_then(|root| match root.kind(NAME)? {
            Some(_) => root.remove(NAME),
            None => Ok(()),
        });
        return removed.map_err(failed("cannot remove it"));
    }
    let ids: Vec<_> = runs.iter().map(|run| &run.run_id).collect();
    let whereabouts =
        store.whereabouts(&ids).await.map_err(|e| HostError::store("look where the runs are driven", &e))?;
    let mut whereabouts = whereabouts.into_iter();
    runs.retain(|_| !matches!(whereabouts.next(), Some(Whereabouts::Elsewhere(_))));
    let heads: Vec<RunHead> = runs.iter().cloned().map(RunHead::from).collect();
    let standings = standings(home, store, &heads).await?;
    let standings: BTreeMap<RunId, Standing> = heads.into_iter().map(|run| run.run_id).zip(standings).collect();
    let standing = |run: &RunRecord| {
        let found = standings.get(&run.run_id).cloned();
        found.unwrap_or(Standing::Stored(run.status, run.stop_reason))
    };
    let mut queue = BTreeMap::new();
    // Of those that the page shows.
    for run in runs.iter().filter(|run| !run.status.is_terminal()).take(UNFINISHED) {
        let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
        queue.extend(queued.map(|entry| (run.run_id.clone(), entry.state)));
    }
    let text = restart_page(
        &runs,
        &RestartPlace {
            commands: &home.commands_from_anywhere(),
            standing: &standing,
            in_queue: &|run| queue.get(&run.run_id).copied(),
            files: &files,
            is_there: &|file| Path::new(file).exists(),
            has_more,
        },
    );
    let written = Folder::open(home.root()).and_then(|root| root.replace(NAME, text.as_bytes()));
    written.map_err(failed("cannot write it"))
}

/// Waits for the lock, but not for ever: its holder may have been stopped by a signal. Whether it was taken.
pub(crate) async fn take(lock: &File) -> Result<bool, HostError> {
    let env = ua_core::system::env();
    for _ in 0..PATIENCE {
        if is_taken(lock)? {
            return Ok(true);
        }
        env.clock.sleep(PAUSE).await;
    }
    Ok(false)
}

/// Takes the lock, if it is free.
fn is_taken(lock: &File) -> Result<bool, HostError> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(failed("cannot lock it")(error)),
    }
}

fn files(run: &RunRecord) -> [String; 2] {
    let workspace = Path::new(&run.workspace_dir);
    [Workspace::packet_name(&run.run_id), Workspace::completion_name(&run.run_id)]
        .map(|name| workspace.join(format!("{name}.md")).shown().to_string())
}

/// How a run gets further that its database may know less of than `effects.log`: whoever names a next step outside the process that drives the run
/// asks here, so that nobody is sent to a resume that is refused.
///
/// # Errors
/// A store that fails.
pub async fn next_step(store: &dyn Store, run: &RunRecord) -> Result<NextStep, HostError> {
    Ok(if is_held(store, run).await? { NextStep::held(run) } else { NextStep::of(run) })
}

/// Whether nobody resumes a run before a person has accepted what `effects.log` knows and the database does not.
///
/// # Errors
/// A store that fails.
pub(crate) async fn is_held(store: &dyn Store, run: &RunRecord) -> Result<bool, HostError> {
    // A living process has what it sent in its next write.
    let is_alive = |owner| ua_runner::may_be_driven(run) && ua_runner::process_is_alive(owner);
    if run.owner.as_ref().is_some_and(is_alive) {
        return Ok(false);
    }
    let top = ua_store::works_for(run).unwrap_or(&run.run_id);
    let forgotten = store.forgotten(top).await;
    Ok(!forgotten.map_err(|e| HostError::store("compare the database with effects.log", &e))?.is_empty())
}

/// The command with which a run gets further ([`NextStep`]), complete for this place; or that its program resumes it. For a run that this process
/// drives: what [`next_step`] looks for has not kept it from that.
pub fn next_command(home: &Home, run: &RunRecord) -> String {
    home.commands().complete(NextStep::of(run).by()).into_owned()
}

/// The next step of a run that another place may drive, with its command as it is given there. One in the queue is left to a worker, where that is
/// enough.
///
/// # Errors
/// A store that fails.
pub async fn next_command_there(
    home: &Home,
    store: &Database,
    run: &RunRecord,
) -> Result<(NextStep, String), HostError> {
    let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
    let next = match (next_step(store, run).await?, queued) {
        (next, Some(_)) if !next.is_held() => NextStep::of_queued(run),
        (next, _) => next,
    };
    // What a worker goes by is said wherever the queue is seen.
    let is_given_there = next.command().is_some() && !next.is_left_to_a_worker();
    let Some(place) = store.elsewhere(&run.run_id).await?.filter(|_| is_given_there) else {
        let command = home.commands().complete(next.by()).into_owned();
        return Ok((next, command));
    };
    let (command, where_to) = place.command(next.by(), &place_of(home)?.1);
    Ok((next, command + &where_to))
}

/// Who resumes the run at the top of a tree, in words that stand alone: the command, or the program that started it, since only that has its
/// tools, or the client whose session it is.
///
/// # Errors
/// A store that fails.
pub async fn how_to_resume(store: &Database, top: &RunId) -> Result<String, HostError> {
    let run = store.run(top).await.map_err(|e| HostError::store("look for the run", &e))?;
    let next = next_step(store, &run).await?;
    let otherwise = if ua_store::is_gateway(&run) {
        "have its client make the same call again"
    } else {
        "start the program again that started it"
    };
    Ok(next.command().map_or_else(|| otherwise.to_owned(), |_| next.who()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// What is stored, what the page says of it, and how often it was written.
    #[derive(Default)]
    struct Scene {
        stored: AtomicU32,
        shown: AtomicU32,
        pages: AtomicU32,
    }

    impl Scene {
        async fn page(&self, takes: Duration) -> Result<(), HostError> {
            let seen = self.stored.load(Ordering::SeqCst);
            ua_core::system::env().clock.sleep(takes).await;
            self.shown.store(seen, Ordering::SeqCst);
            self.pages.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn where_many_runs_end_at_once_nobody_fails_and_the_last_page_is_current() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Folder::open(folder.path()).unwrap();
        let scene = Arc::new(Scene::default());
        // Six one after the other would take longer than anybody waits.
        let takes = PAUSE * PATIENCE * 3 / 10;
        let ends = (0..6).map(|_| {
            let (locks, scene) = (locks.clone(), scene.clone());
            tokio::spawn(async move {
                scene.stored.fetch_add(1, Ordering::SeqCst);
                in_turn(&locks, || scene.page(takes)).await
            })
        });
        for end in ends.collect::<Vec<_>>() {
            end.await.unwrap().unwrap();
        }
        assert_eq!(scene.shown.load(Ordering::SeqCst), 6);
        assert!(scene.pages.load(Ordering::SeqCst) < 6, "one page is enough for several");
        let left: Vec<_> = locks.entries().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["restart.lock"]);
    }

    #[tokio::test]
    async fn a_page_that_nobody_waited_for_is_written_by_who_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Folder::open(folder.path()).unwrap();
        let scene = Scene::default();
        // While the first writes, another one gives up.
        let first = in_turn(&locks, || async {
            scene.page(Duration::ZERO).await?;
            if scene.pages.load(Ordering::SeqCst) == 1 {
                scene.stored.store(7, Ordering::SeqCst);
                Box::pin(in_turn(&locks, || scene.page(Duration::ZERO))).await?;
                assert_eq!(scene.pages.load(Ordering::SeqCst), 1, "it gave up");
            }
            Ok(())
        });
        first.await.unwrap();
        assert_eq!((scene.shown.load(Ordering::SeqCst), scene.pages.load(Ordering::SeqCst)), (7, 2));
    }

    #[tokio::test]
    async fn a_page_that_failed_is_written_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Folder::open(folder.path()).unwrap();
        let fails = || async { Err(HostError::storage("the disk is full")) };
        assert!(in_turn(&locks, fails).await.is_err());
        assert!(locks.kind(BEGUN).unwrap().is_some(), "whoever waited for it must not take it for written");
        let scene = Scene::default();
        in_turn(&locks, || scene.page(Duration::ZERO)).await.unwrap();
        assert_eq!(scene.pages.load(Ordering::SeqCst), 1);
        assert!(locks.kind(BEGUN).unwrap().is_none());
    }
}
