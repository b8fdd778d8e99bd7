//! Trust in a folder of runs that somebody else made, or that is used because its user named it before.
//!
//! A run says which programs are started for it, so its folder is trusted after a person saw what is there, and only where there are runs at
//! all. What is kept is the mark of the folder (`roots`); it can be listed and taken back like the word about a server.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_core::{PrintedCommand, RunId, ShowPath as _, Timestamp};
use ua_mcp::Reach;
use ua_store::{FleetStore as _, RunQuery, Store as _};
use ua_store_sqlite::SqliteStore;

use super::{ConfigFile, PROJECT_FILE, canonical};
use crate::error::{HostError, chain};
use crate::fleet::ScheduledJob;
use crate::home::{DEFAULT_ROOT, is_written_by_runs, of_another_user, owner_of_database};
use crate::launch::Launch;
use crate::mcp_files::mcp_config;
use crate::roots::{Belief, MARKER, Roots, state_folder};
use crate::settings::Settings;
use crate::text::{line, plain};

/// The database of a folder of runs.
const DATABASE: &str = "runtime_state.db";
/// How many runs are shown by name.
const SHOWN: usize = 3;
/// Characters of what a run is for.
const OBJECTIVE: usize = 60;
/// Characters of a server's command line.
const REACHED: usize = 100;
/// Of so many runs it is looked at what they would start.
const LOOKED_AT: usize = 500;

/// A folder of runs, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsReview {
    /// The folder, without links.
    pub folder: PathBuf,
    /// Whether its runs are used already: the folder, and the database in it, are this user's own.
    pub is_trusted: bool,
    lines: Vec<String>,
}

/// A folder whose runs are used without being named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedRuns {
    /// The folder, without links.
    pub folder: PathBuf,
    /// Since when.
    pub at: Timestamp,
    /// Whether it is the folder that was meant then.
    pub is_there: bool,
    /// Whether somebody put another database into it, or something beside the database.
    pub is_changed: bool,
}

impl RunsReview {
    /// Looks at a folder.
    ///
    /// # Errors
    /// There are no runs in it; what else is there is named.
    pub async fn of(settings: &Settings, folder: &Path) -> Result<Self, HostError> {
        let shown = folder;
        let folder = canonical(&settings.absolute(folder)?);
        let names: Vec<String> = fs::read_dir(&folder)
            .map_err(|e| HostError::usage(format!("cannot look into {}: {e}", shown.shown())))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let database = folder.join(DATABASE);
        let is_file = fs::symlink_metadata(&database).is_ok_and(|file| file.is_file());
        if let Some(owner) = owner_of_database(&database) {
            let refused = of_another_user(&database, owner);
            return Err(refused.hint(format!("{}; nothing was trusted", crate::owner::make_own(owner, &folder))));
        }
        let is_elsewhere = settings.var("UA_DATABASE_URL").or_else(|| settings.var("UA_RUNTIME_DB_PATH")).is_some();
        let is_used = |name: &String| is_written_by_runs(name, folder.join(name).is_dir()) && name != MARKER;
        let (what, runs) = if is_file {
            (database.shown().to_string(), of_database(&database).await)
        } else if is_elsewhere && names.iter().any(is_used) {
            ("the database that the settings name".to_owned(), Vec::new())
        } else {
            return Err(without_runs(shown, &names));
        };
        let meta =
            fs::metadata(&folder).map_err(|e| HostError::usage(format!("cannot look at {}: {e}", shown.shown())))?;
        let owner = if meta.uid() == rustix::process::geteuid().as_raw() {
            "you".to_owned()
        } else {
            format!("another user ({})", crate::owner::named(meta.uid()))
        };
        let mut lines = vec![format!("folder     {}", folder.shown())];
        lines.push(format!("belongs to {owner}"));
        lines.push(format!("runs in    {what}"));
        lines.extend(runs);
        let roots = Roots::new(state_folder(settings));
        let is_trusted = roots.judge(&folder) == Belief::Own && (!is_file || roots.is_own_database(&database));
        Ok(Self { folder, is_trusted, lines })
    }

    /// What a person is shown, indented.
    pub fn shown(&self) -> String {
        self.lines.iter().fold(String::new(), |shown, line| shown + "    " + line + "\n")
    }
}

/// What a database says of its runs, in lines.
async fn of_database(database: &Path) -> Vec<String> {
    let cannot = |why: String| vec![format!("           it cannot be read: {why}")];
    let store = match SqliteStore::open_read_only(database) {
        Ok(store) => store,
        Err(error) => return cannot(chain(&error)),
    };
    let query = RunQuery { limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
    let found = store.find_runs(&query).await;
    let runs = match found {
        Ok(runs) => runs,
        Err(error) => return cannot(chain(&error)),
    };
    let open = runs.iter().filter(|run| !run.status.is_terminal()).count();
    let mut lines = vec![format!("           {}, {open} of them not finished", ua_core::counted(runs.len(), "run"))];
    let times = || runs.iter().map(|run| run.created_at);
    if let (Some(first), Some(last)) = (times().min(), times().max()) {
        lines.push(format!("from       {first} to {last}"));
    }
    lines.extend(
        runs.iter()
            .take(SHOWN)
            .map(|run| format!("           {} ({}): {}", run.run_id, run.status, line(&run.objective, OBJECTIVE))),
    );
    if runs.len() > SHOWN {
        lines.push(format!("           and {}", ua_core::counted(runs.len() - SHOWN, "older run")));
    }
    let open: Vec<&RunId> = runs.iter().filter(|run| !run.status.is_terminal()).map(|run| &run.run_id).collect();
    lines.extend(starts(&store, &open).await);
    lines
}

/// What runs that are not finished, and schedules, would start and reach, in lines: who trusts a folder has said nothing about these yet.
async fn starts(store: &SqliteStore, open: &[&RunId]) -> Vec<String> {
    let mut named = Vec::new();
    for run in open.iter().take(LOOKED_AT) {
        if let Ok(run) = store.run(run).await
            && let Ok(launch) = Launch::from_stored(&run.launch)
        {
            named.push(launch.names());
        }
    }
    let schedules = store.fleet_state(0).await.map(|fleet| fleet.schedules).unwrap_or_default();
    let jobs = schedules.into_iter().filter_map(|schedule| serde_json::from_value::<ScheduledJob>(schedule.job).ok());
    named.extend(jobs.filter_map(|job| Some(job.configured?.names())));
    let (mut servers, mut policies) = (BTreeSet::new(), BTreeSet::new());
    for names in &named {
        servers.extend(&names.servers);
        policies.extend(&names.policies);
    }
    let mut lines: Vec<String> = servers.iter().flat_map(|file| servers_of(file)).collect();
    lines.extend(policies.iter().map(|file| format!("policy     {}", file.shown())));
    if named.iter().any(|names| names.reaches_private) {
        lines.push("reaches    loopback and private addresses".to_owned());
    }
    if open.len() > LOOKED_AT {
        lines.push(format!("           not looked at: {}", ua_core::counted(open.len() - LOOKED_AT, "run")));
    }
    if !lines.is_empty() {
        lines.push(
            "           none of that is used before you say so: `ua resume` asks, and `ua trust FILE`".to_owned(),
        );
    }
    lines
}

/// The servers that a file names by now, in lines.
fn servers_of(file: &Path) -> Vec<String> {
    let mut lines = vec![format!("servers of {}", file.shown())];
    match mcp_config(Some(&ConfigFile::found(file))) {
        Ok(config) => lines.extend(config.servers.iter().map(|(name, reach)| {
            let reached = match reach {
                Reach::Stdio { command, args, .. } => {
                    [command].into_iter().chain(args).map(String::as_str).collect::<Vec<_>>().join(" ")
                }
                Reach::Http { url, .. } => url.clone(),
            };
            format!("           {}: {}", plain(name), line(&reached, REACHED))
        })),
        Err(_) => lines.push("           it cannot be read here".to_owned()),
    }
    lines
}

/// The refusal of a folder in which there is nothing to trust, with what may have been meant.
fn without_runs(folder: &Path, names: &[String]) -> HostError {
    let shown = folder.shown();
    let has = |name: &str| names.iter().any(|other| other == name);
    let hint = if has(PROJECT_FILE) {
        format!(
            "the tool servers that its {PROJECT_FILE} names are trusted with {}",
            PrintedCommand::of("ua trust").word(folder.join(PROJECT_FILE)).in_code()
        )
    } else if has(DEFAULT_ROOT) {
        let trust = PrintedCommand::of("ua trust").word(folder.join(DEFAULT_ROOT)).in_code();
        format!("runs are in {DEFAULT_ROOT}: {trust}")
    } else {
        format!(
            "name a folder of runs (it has a {DATABASE}), a policy file (.toml) or a file with an `mcpServers` object"
        )
    };
    HostError::usage(format!("there are no runs in {shown}: it has no runtime database")).hint(hint)
}

/// The folders whose runs are used without being named: those that `ua` made, those that were named, and those that were trusted.
pub fn all(settings: &Settings) -> Vec<TrustedRuns> {
    Roots::new(state_folder(settings)).noted()
}

/// Takes the word back for a folder, also for one that is gone. Returns whether there was one.
///
/// # Errors
/// The user's state folder cannot be changed.
pub fn revoke(settings: &Settings, folder: &Path) -> Result<bool, HostError> {
    let folder = canonical(&settings.absolute(folder)?);
    Roots::new(state_folder(settings)).disown(&folder).map_err(|e| {
        HostError::storage(format!("cannot record that {} is not trusted any more: {e}", folder.shown()))
            .hint("make the folder `ua` in XDG_STATE_HOME (~/.local/state) writable")
    })
}
