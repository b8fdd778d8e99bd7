//! `RESTART.md` in the folder of all workspaces: which runs there are, and how each goes on.
//!
//! Durable runner, current state, "Job start" and "Job end". The page is made of the database alone, under a lock of its own: who has
//! the lock sees what everybody wrote who had it before, so runs that start or end side by side never write each other out.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use ua_core::RunId;
use ua_files::Folder;
use ua_report::{RestartPlace, restart_page};
use ua_resume::{NextStep, Standing};
use ua_runner::Workspace;
use ua_store::{RunHead, RunRecord, RunStore, Store as _};

use crate::database::{Database, Whereabouts};
use crate::error::HostError;
use crate::home::Home;
use crate::standing::standings;

/// How many runs are looked at; the page names fewer.
const LOOKED_AT: u32 = 200;

/// How long one waits for another process that writes the page: this many times [`PAUSE`].
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Writes the page anew. It only repeats what is stored, so a failure is noted and changes nothing.
pub async fn write(home: &Home, store: &Database) {
    if let Err(error) = try_write(home, store).await {
        tracing::warn!(%error, "RESTART.md was not written");
    }
}

async fn try_write(home: &Home, store: &Database) -> Result<(), HostError> {
    let fail = |doing: &'static str| move |error: io::Error| HostError::storage(format!("{doing}: {error}"));
    fs::create_dir_all(home.locks()).map_err(fail("cannot make the folder of locks"))?;
    let opened = Folder::open_itself(&home.locks()).and_then(|locks| locks.open_or_make("restart.lock"));
    let lock = opened.map_err(fail("cannot open its lock"))?;
    take(&lock).await?;
    let mut runs = store.runs(LOOKED_AT).await.map_err(|e| HostError::store("list the runs", &e))?;
    let has_more = runs.len() >= LOOKED_AT as usize;
    // A sub-agent goes on with its job, and a run of another machine there.
    runs.retain(|run| !ua_store::is_task(run));
    let ids: Vec<_> = runs.iter().map(|run| &run.run_id).collect();
    let whereabouts =
        store.whereabouts(&ids).await.map_err(|e| HostError::store("look where the runs are driven", &e))?;
    let mut whereabouts = whereabouts.into_iter();
    runs.retain(|_| !matches!(whereabouts.next(), Some(Whereabouts::Elsewhere(_))));
    let heads: Vec<RunHead> = runs.iter().cloned().map(RunHead::from).collect();
    let standings = standings(home, store, &heads).await?;
    let standings: BTreeMap<&RunId, Standing> = heads.iter().map(|run| &run.run_id).zip(standings).collect();
    let standing = |run: &RunRecord| {
        let found = standings.get(&run.run_id).cloned();
        found.unwrap_or(Standing::Stored(run.status, run.stop_reason))
    };
    let text = restart_page(
        &runs,
        &RestartPlace {
            commands: &home.commands(),
            standing: &standing,
            files: &files,
            is_there: &|file| Path::new(file).exists(),
            has_more,
        },
    );
    let written = Folder::open(home.root()).and_then(|root| root.replace("RESTART.md", text.as_bytes()));
    written.map_err(fail("cannot write it"))
}

/// Waits for the lock, but not for ever: its holder may have been stopped by a signal.
async fn take(lock: &File) -> Result<(), HostError> {
    let env = ua_core::system::env();
    for _ in 0..PATIENCE {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => env.clock.sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => return Err(HostError::storage(format!("cannot lock it: {error}"))),
        }
    }
    Err(HostError::storage("another process has been writing it for a second"))
}

fn files(run: &RunRecord) -> [String; 2] {
    let workspace = Path::new(&run.workspace_dir);
    [Workspace::packet_name(&run.run_id), Workspace::completion_name(&run.run_id)]
        .map(|name| workspace.join(format!("{name}.md")).display().to_string())
}

/// The command with which a run gets further ([`NextStep`]), complete for this place; or that its program resumes it.
pub fn next_command(home: &Home, run: &RunRecord) -> String {
    home.commands().complete(NextStep::of(run).by()).into_owned()
}

/// Who resumes the run at the top of a tree, in words that stand alone: the command, or the program that started it, since only that has its
/// tools.
///
/// # Errors
/// A store that fails.
pub async fn how_to_resume(store: &Database, top: &RunId) -> Result<String, HostError> {
    let run = store.run(top).await.map_err(|e| HostError::store("look for the run", &e))?;
    let next = NextStep::of(&run);
    Ok(next.command().map_or_else(|| "start the program again that started it".to_owned(), |_| next.who()))
}
