//! What a job runs on: database, disk, clock, and what dead processes left behind.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use ua_core::{PrintedCommand, RunId, RunStatus, ShowPath as _, Timestamp};
#[cfg(feature = "toolserver")]
use ua_host::Settings;
use ua_host::home::Home;
use ua_host::standing::standings;
use ua_host::{Database, Whereabouts};
use ua_mcp::LockDir;
use ua_resume::{NextStep, Standing};
use ua_runner::RunLock;
use ua_store::rules::FOUND_IN_DOUBT;
use ua_store::{CallQuery, CallRecord, RunHead, RunQuery, Store, StoreError};
use ua_store_sqlite::{Suitability, filesystem_of};

use super::Findings;
use crate::error::chain;

/// Below so much free space a job is refused by its disk soon.
const LITTLE: u64 = 1 << 30;
/// Below so much it hardly starts.
const TOO_LITTLE: u64 = 50 << 20;
/// With less, a command that deletes may fail itself.
const ENOUGH_FOR_A_COMMAND: u64 = 4 << 20;
/// 2025-01-01: a clock before that is not set.
const LONG_AGO: Timestamp = Timestamp::from_millis(1_735_689_600_000);
/// A clock may be so much behind what it said before.
const JITTER: std::time::Duration = std::time::Duration::from_mins(1);

/// The nearest folder that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"))
}

/// Whether the database is a file that is not there yet.
fn is_to_come(home: &Home) -> bool {
    #[cfg(feature = "postgres")]
    if home.server().is_some() {
        return false;
    }
    home.is_unused()
}

/// The database, for all who look for something in it; `None` when there is none, or none that can be read, which [`database`] says.
pub(super) fn store(home: &Home) -> Option<Database> {
    if is_to_come(home) { None } else { home.open_read_only().ok() }
}

/// The runs that there are, newest first. One that cannot be read is a finding here: what finished runs left is not read otherwise.
pub(super) async fn heads(store: Option<&Database>, findings: &mut Findings) -> Vec<RunHead> {
    let Some(store) = store else { return Vec::new() };
    let runs = store.find_runs(&RunQuery { limit: u32::MAX, ..RunQuery::default() }).await;
    if let Err(error @ StoreError::Corrupt { .. }) = &runs {
        findings.fail("runs", chain(error), "`ua db check` names what is wrong with the database");
    }
    runs.unwrap_or_default()
}

/// What the kernel offers to confine the programs of jobs with, compared with what the user wants.
#[cfg(feature = "toolserver")]
pub(super) fn sandbox(settings: &Settings, findings: &mut Findings) {
    const CHECK: &str = "run_command";
    let how = settings.var("UA_COMMAND_SANDBOX").unwrap_or_else(|| "auto".to_owned());
    let fix =
        "use a Linux kernel with Landlock and user namespaces (some distributions switch these off with a sysctl)";
    let asked = crate::sandbox::confiner(settings).map(|confiner| confiner.offers());
    let offers = match asked {
        Some(Ok(offers)) => offers,
        Some(Err(error)) => return findings.warn(CHECK, format!("cannot tell what confines programs: {error}"), fix),
        None => {
            return findings.warn(CHECK, "this program cannot find its own executable", "start it by its full path");
        }
    };
    let kernel = format!(
        "Landlock {}, namespaces {}, a /proc of its own {}, private mounts {}, system calls {}, processes {}",
        if offers.landlock > 0 { format!("version {}", offers.landlock) } else { "none".to_owned() },
        if offers.namespaces { "yes" } else { "no" },
        if offers.own_proc { "yes" } else { "no" },
        if offers.mounts { "yes" } else { "no" },
        if offers.calls { "filtered" } else { "not filtered" },
        if offers.processes { "limited" } else { "not limited" },
    );
    if how == "off" {
        let fix = "remove run_command.sandbox from the user's config.toml, and UA_COMMAND_SANDBOX from the environment";
        return findings.warn(CHECK, format!("programs of a job have your rights; the kernel offers {kernel}"), fix);
    }
    let network = ua_host::sandbox::has_network(settings);
    let missing = offers.missing(network, &ua_toolserver::Limits::default());
    if missing.is_empty() {
        return findings.ok(CHECK, format!("programs of a job are confined: {kernel}"));
    }
    let detail = format!("{kernel}: a program is not fully confined: {}", missing.join("; "));
    if how == "required" && !offers.are_enough(network) {
        findings.fail(CHECK, format!("programs are not started: {detail}"), fix);
    } else {
        findings.warn(CHECK, detail, fix);
    }
}

/// Calls that older versions reported as not happened, although nobody knew: a migration put them in doubt.
pub(super) async fn reopened(store: Option<&Database>, findings: &mut Findings) {
    let Some(store) = store else { return };
    let unknown = CallQuery { only_unknown: true, limit: u32::MAX, ..CallQuery::default() };
    let calls = store.find_calls(&unknown).await.unwrap_or_default();
    let is_reopened = |call: &&CallRecord| {
        call.correction.is_none()
            && call.error_detail.as_deref().is_some_and(|detail| detail.starts_with(FOUND_IN_DOUBT))
    };
    for call in calls.iter().filter(is_reopened) {
        let (id, tool, run) = (&call.call_id, &call.name.tool, &call.run_id);
        findings.warn(
            "calls",
            format!(
                "`{tool}` (call {id}, run {run}) was reported as not happened by an earlier version; its outcome is unknown, so it blocks calls \
                 that might repeat it"
            ),
            format!("check whether it happened, then run `ua calls resolve {id} --as happened|not_happened|skipped --reason TEXT`"),
        );
    }
}

pub(super) async fn database(home: &Home, findings: &mut Findings) {
    let folder = existing(home.database().parent().unwrap_or(home.root()));
    match filesystem_of(folder) {
        Ok((name, Suitability::Fine)) => findings.ok("file system", format!("{} is on {name}", folder.shown())),
        Ok((name, Suitability::Volatile)) => findings.warn(
            "file system",
            format!("{} is on {name}, which forgets everything when the machine stops", folder.shown()),
            "put the workspace root on a disk with --root, or root in the user's config.toml",
        ),
        Ok((name, Suitability::Unsafe)) => findings.fail(
            "file system",
            format!("{} is on {name}, where SQLite's locks and syncs cannot be relied on", folder.shown()),
            "put the database on a local disk with UA_RUNTIME_DB_PATH, or the workspace root with --root",
        ),
        Err(error) => findings.fail("file system", chain(&error), "make the folder readable"),
    }
    #[cfg(feature = "postgres")]
    if let Some(server) = home.server() {
        if let Some(refused) = home.only_in_a_file() {
            findings.refused("database", &refused);
        }
        return on_server(home, server, findings).await;
    }
    if is_to_come(home) {
        findings.ok("database", format!("none yet at {}; the first job creates it", home.database().shown()));
        return;
    }
    let examined = match home.open_file() {
        // What runs that have ended left is nothing that a job needs: who wants to know it asks `ua db check`.
        Ok(store) => store.examine_unfinished().await.map_err(|error| home.cannot_open(&error)),
        Err(error) => Err(error),
    };
    match examined {
        // It says itself what is to be done: there is no fix for everything that can be wrong with a database.
        Err(error) => findings.refused("database", &error),
        Ok(health) if !health.findings.is_empty() => findings.fail(
            "database",
            health.findings.join("; "),
            "keep a copy of it, then `ua db restore COPY` with the newest copy that `ua db backup` made",
        ),
        Ok(health) => {
            findings.ok(
                "database",
                format!(
                    "intact, schema {}, journal {}, SQLite {}, {}; `ua db check` also reads each row of finished runs",
                    health.schema,
                    health.journal_mode,
                    health.sqlite_version,
                    ua_core::size_in_words(health.bytes)
                ),
            );
            if !health.forgotten.is_empty() {
                findings.fail(
                    "effects.log",
                    format!(
                        "it knows {} that the database does not: the database is an older copy",
                        ua_core::counted(health.forgotten.len(), "thing")
                    ),
                    "restore a newer copy; or find out what became of them with `ua db check`, then run `ua db accept RUN`",
                );
            }
        }
    }
}

/// What helps against a database on a server that cannot be used: what is refused says so itself.
#[cfg(feature = "postgres")]
fn fix_of_server(error: &ua_store::StoreError) -> &'static str {
    if error.class() == ua_core::FailureClass::Transient {
        "start the server, or correct the URL (--database-url, UA_DATABASE_URL, database_url of config.toml)"
    } else {
        "do what it says; a schema that is newer than this program's needs the version of ua that made it"
    }
}

/// A database on a server.
#[cfg(feature = "postgres")]
async fn on_server(home: &Home, server: &ua_store_postgres::PostgresConfig, findings: &mut Findings) {
    let examined = match ua_store_postgres::PostgresStore::open(server).await {
        Ok(store) => store.examine().await,
        Err(error) => Err(error),
    };
    let health = match examined {
        Ok(health) => health,
        Err(error) => {
            return findings.fail("database", chain(&error), fix_of_server(&error));
        }
    };
    if let Some(other) = home.is_used_with_another_server(&health.db_uuid) {
        let fix = "correct the URL (--database-url, UA_DATABASE_URL, database_url of config.toml); if the other database is given up for good, \
                   docs/guide/database.md says what to remove";
        findings.fail("database", other, fix);
    }
    if !health.forgotten.is_empty() {
        let held = ua_core::counted(health.forgotten.len(), "unfinished run");
        findings.fail(
            "database",
            format!("another server took over, or a copy was put back, which may lack what was sent last: {held} held"),
            "look at the receiving ends (`ua db check` lists the runs), then run `ua db accept RUN` or `ua runs cancel RUN` for each",
        );
    }
    if !health.findings.is_empty() {
        let fix = "correct the settings, or restore a backup of the server";
        return findings.fail("database", health.findings.join("; "), fix);
    }
    let (schema, version) = (health.schema, &health.server_version);
    findings.ok(
        "database",
        format!(
            "{}: intact, schema {schema}, PostgreSQL {version}, {}",
            server.shown(),
            ua_core::size_in_words(u64::try_from(health.bytes).unwrap_or_default())
        ),
    );
    for warning in health.warnings {
        findings.warn("database", warning, "name the standbys in synchronous_standby_names, as ANY 1 (…)");
    }
}

pub(super) fn disk(home: &Home, findings: &mut Findings) {
    let folder = existing(home.root());
    match rustix::fs::statvfs(folder) {
        Err(error) => {
            findings.fail("disk", format!("cannot look at {}: {error}", folder.shown()), "make the folder readable");
        }
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let detail = format!("{} free for {}", ua_core::size_in_words(free), home.root().shown());
            // What makes room needs some itself.
            let room = if free < ENOUGH_FOR_A_COMMAND {
                "make room by other means than `ua`, whose commands need some themselves"
            } else {
                "make room: `ua runs delete --older-than 30d`, `ua db prune`"
            };
            let fix = format!("{room}; or {}", home.another_root());
            if free < TOO_LITTLE {
                findings.fail("disk", detail, fix);
            } else if free < LITTLE {
                findings.warn("disk", detail, fix);
            } else {
                findings.ok("disk", detail);
            }
        }
    }
    let writable = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK);
    if writable.is_err() {
        findings.fail("root", format!("{} is not writable", folder.shown()), home.another_root());
    }
}

pub(super) fn clock(runs: &[RunHead], findings: &mut Findings) {
    let now = ua_core::system::env().now();
    let newest = runs.iter().map(|run| run.updated_at).max();
    let fix =
        "set the clock, for example with a time service; records are ordered by time, and horizons are measured by it";
    if now < LONG_AGO {
        findings.fail("clock", format!("it says {now}"), fix);
    } else if let Some(newest) = newest.filter(|newest| newest.since(now) > JITTER) {
        findings.fail("clock", format!("it says {now}, and a run was last written to at {newest}"), fix);
    } else {
        findings.ok("clock", format!("{now}"));
    }
}

/// The jobs among these runs whose process died, or that did more than is stored of them.
async fn crashed<'a>(home: &Home, store: Option<&Database>, runs: &'a [RunHead]) -> Vec<(&'a RunHead, Standing)> {
    let Some(store) = store else { return Vec::new() };
    let standings = standings(home, store, runs).await.unwrap_or_default();
    let is_job = |run: &RunHead| run.run_mode != ua_core::TASK_MODE;
    let is_meant = |standing: &Standing| standing.is_left() || matches!(standing, Standing::Outdated(_));
    runs.iter().zip(standings).filter(|(run, standing)| is_meant(standing) && is_job(run)).collect()
}

/// What comes before a resume of a run that its database knows less of than `effects.log`; `None` where it is resumed.
async fn held(store: Option<&Database>, run: &RunHead) -> Option<String> {
    let store = store?;
    let run = store.run(&run.run_id).await.ok()?;
    let next = ua_host::restart::next_step(store, &run).await.ok().filter(NextStep::is_held)?;
    Some(format!("{} {}", next.who(), next.does()))
}

/// Runs whose process died, tool servers that may have outlived it, and workspaces of no run.
pub(super) async fn left_behind(home: &Home, store: Option<&Database>, runs: &[RunHead], findings: &mut Findings) {
    let locks = home.locks();
    let crashed = crashed(home, store, runs).await;
    for (run, standing) in &crashed {
        let (check, detail) = if matches!(standing, Standing::Outdated(_)) {
            ("older copy", format!("run {} is {standing}: effects.log knows more of it than the database", run.run_id))
        } else {
            ("ended process", format!("the process that drove run {} has ended", run.run_id))
        };
        findings.warn(
            check,
            detail,
            match held(store, run).await {
                Some(first) => first,
                None => format!("{} resumes it", NextStep::who_resumes(&run.run_id, &run.run_mode)),
            },
        );
    }
    // What is finished has nobody who would have to end anything: only of the others is it looked for, since each look reads a folder.
    let open = runs.iter().filter(|run| !run.status.is_terminal());
    let left = open.filter(|run| !RunLock::is_held(&locks, &run.run_id));
    let mut servers = 0;
    if locks.is_dir() {
        for run in left {
            let dir = LockDir::new(&locks, run.run_id.clone(), ua_core::system::env());
            let orphans = dir.map(|dir| dir.orphans()).unwrap_or_default();
            if !orphans.is_empty() {
                let names: BTreeSet<&str> = orphans.iter().map(|(server, _)| server.as_str()).collect();
                findings.warn(
                    "tool locks",
                    format!("run {} left locks of {}", run.run_id, names.into_iter().collect::<Vec<_>>().join(", ")),
                    match held(store, run).await {
                        Some(first) => first,
                        None => format!(
                            "{} ends what is left of them before anything is sent",
                            NextStep::who_resumes(&run.run_id, &run.run_mode)
                        ),
                    },
                );
                servers += 1;
            }
        }
    }
    if crashed.is_empty() && servers == 0 {
        findings.ok("locks", "no crashed runs");
    }
    // Without their database nobody can say whose they are.
    let Some(store) = store else { return };
    ua_host::pages::write_due(home, store).await;
    let Ok(identity) = store.database_id().await else { return };
    missing_workspaces(home, store, runs, findings).await;
    stray_workspaces(home, runs, &home.used_with_others(&identity), findings);
}

const WORKSPACES: &str = "workspaces";

/// Workspaces of unfinished runs that are not where their runs have them. On a server there are runs of other machines, with folders of theirs.
async fn missing_workspaces(home: &Home, store: &Database, runs: &[RunHead], findings: &mut Findings) {
    // One that waits in the queue may have none yet, and a session of the gateway has none.
    let has_one = |run: &&RunHead| {
        let is_begun = !run.status.is_terminal() && run.status != RunStatus::Queued;
        is_begun && run.run_mode != ua_store::GATEWAY_MODE
    };
    let open: Vec<&RunHead> = runs.iter().filter(has_one).collect();
    let ids: Vec<&RunId> = open.iter().map(|run| &run.run_id).collect();
    let Ok(whereabouts) = store.whereabouts(&ids).await else { return };
    let here = open.into_iter().zip(whereabouts).filter(|(_, place)| *place == Whereabouts::Here);
    let missing: Vec<&RunHead> =
        here.map(|(run, _)| run).filter(|run| !Path::new(&run.workspace_dir).is_dir()).collect();
    for run in missing.iter().take(NAMED) {
        findings.warn(
            WORKSPACES,
            format!(
                "that of run {}, which is not finished, is not at {}",
                run.run_id,
                Path::new(&run.workspace_dir).shown()
            ),
            home.find_workspace_again(&run.run_id, Path::new(&run.workspace_dir)),
        );
    }
    let more: Vec<&str> = missing.iter().skip(NAMED).map(|run| run.run_id.as_str()).collect();
    if let Some(first) = more.first() {
        let others = if more.len() > MORE_NAMED { " …" } else { "" };
        findings.warn(
            WORKSPACES,
            format!(
                "those of {} that are not finished are missing, too: {}{others}",
                ua_core::counted(more.len(), "more run"),
                more.iter().take(MORE_NAMED).copied().collect::<Vec<_>>().join(", ")
            ),
            format!("`ua runs show {first}` says what to do about that one; the same goes for each"),
        );
    }
}

/// Workspaces of no run of this database. `others` tells of further databases of this root, whose runs they may be: nothing of another database's is
/// called superfluous by one that does not know it.
fn stray_workspaces(home: &Home, runs: &[RunHead], others: &[String], findings: &mut Findings) {
    // By name: a folder of all runs that was moved has their workspaces under the names that they had.
    let known: BTreeSet<&OsStr> = runs.iter().filter_map(|run| Path::new(&run.workspace_dir).file_name()).collect();
    let entries = std::fs::read_dir(home.root()).into_iter().flatten().flatten();
    let stray: Vec<String> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("session_") && entry.path().is_dir())
        .filter(|entry| !known.contains(entry.file_name().as_os_str()))
        .map(|entry| entry.path().shown().to_string())
        .collect();
    if !stray.is_empty() {
        let shown = stray.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let whose = home.database_in_words();
        findings.warn(
            WORKSPACES,
            format!("{} without a run in the {whose}: {shown}", ua_core::counted(stray.len(), "folder")),
            whose_they_may_be(others),
        );
    }
}

/// What to do about folders that are of no run of this database. They may be all that is left of runs that a copy, put back, does not know.
fn whose_they_may_be(others: &[String]) -> String {
    const PUT_BACK: &str = "if the database was put back to an older state, it may have lost these runs, and the job_completion file in each folder \
                            says what they sent";
    if others.is_empty() {
        return format!(
            "keep them until you know whose they are: {PUT_BACK}; if one was named with UA_RUNTIME_DB_PATH, `ua runs list` with that one shows \
             their runs, and they are needed; otherwise deleted runs left them behind: remove them once nothing in them is needed"
        );
    }
    format!(
        "keep them: {}, and they may belong to its runs; name the right database (--database-url, UA_DATABASE_URL, UA_RUNTIME_DB_PATH), then \
         `ua runs list` shows whose they are; {PUT_BACK}",
        others.join("; ")
    )
}

/// So many of one kind are named.
const NAMED: usize = 3;
/// And so many more by their ids alone.
const MORE_NAMED: usize = 20;

/// How the gateway stands, where somebody uses one.
pub(super) async fn gateway(host: &ua_host::Host, root: Option<&std::path::Path>, findings: &mut Findings) {
    const CHECK: &str = "gateway";
    // A folder that is named is the gateway's where it has its file.
    let root = root.filter(|root| root.join(ua_host::gateway::CONFIG_FILE).exists());
    let looked = match ua_host::gateway::look(host, root).await {
        Ok(looked) => looked,
        Err(error) => return findings.refused(CHECK, &error),
    };
    let Some(root) = &looked.root else { return };
    if let Some(error) = &looked.trouble {
        findings.refused(CHECK, error);
    }
    if let Some(error) = &looked.silent {
        findings.refused(CHECK, error);
    }
    let own = env!("CARGO_PKG_VERSION");
    match looked.broker.as_deref() {
        Some(version) if version == own => findings.ok(CHECK, format!("its broker is running in {}", root.shown())),
        Some(version) => findings.warn(
            CHECK,
            format!("its broker has version {version}, this program has {own}"),
            "`ua gateway restart`; clients see a pause",
        ),
        None if looked.silent.is_some() => {}
        None if looked.trouble.is_some() => {}
        None => findings.ok(CHECK, format!("no broker is running; the next client starts one in {}", root.shown())),
    }
    if let Some(fault) = looked.last_fault.as_ref().filter(|_| looked.broker.is_none() && looked.trouble.is_none()) {
        let hint = fault.hint.as_deref().unwrap_or("`ua gateway start` says if it still is so");
        findings.warn(CHECK, fault.in_words(&format!("at {}", fault.at)), hint);
    }
    for warning in &looked.unmatched {
        findings.warn(
            CHECK,
            warning.clone(),
            "correct the name, if it is not one that is still to come; then `ua gateway restart`",
        );
    }
    for changed in &looked.changed {
        findings.warn(CHECK, changed.clone(), ua_host::gateway::READ_AGAIN);
    }
    if let Some(error) = &looked.alerts {
        findings.refused(CHECK, error);
    }
    if let Some(why) = &looked.http_taken {
        findings.fail(CHECK, why.clone(), "`ua gateway status` says when they are served");
    }
    for path in &looked.open_to_others {
        let fix = format!("chmod 600 {}", ua_core::shell_word(path));
        findings.fail(CHECK, format!("other users can access {}", path.shown()), fix);
    }
    let named = |of: &[(std::path::PathBuf, String)]| {
        let name = |(file, server): &(std::path::PathBuf, String)| format!("{server} ({})", file.shown());
        of.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    if let Some((program, said)) = &looked.bridge {
        let detail = format!("{}, which clients start, is {said}, and this program is ua {own}", program.shown());
        findings.warn(
            CHECK,
            detail,
            "put both programs of one version there, or remove that one: `ua` does its work too",
        );
    }
    for moved in &looked.moved {
        let (detail, fix) = (moved.in_words(), moved.mended_by());
        match moved.version {
            None => findings.fail(CHECK, detail, fix),
            Some(_) => findings.warn(CHECK, detail, fix),
        }
    }
    for impatient in &looked.impatient {
        let fix = "raise the time-out in that entry, or remove it; then `ua gateway uninstall` and `install` have its bridge know";
        findings.warn(CHECK, impatient.clone(), fix);
    }
    if !looked.elsewhere.is_empty() {
        let these = named(&looked.elsewhere);
        findings.ok(CHECK, format!("these tool servers go through the gateway of another folder: {these}"));
    }
    if !looked.wrapped.is_empty() {
        findings.ok(CHECK, format!("these tool servers go through it: {}", named(&looked.wrapped)));
        if !looked.unwrapped.is_empty() {
            let fix = "`ua gateway install` puts it in front of them; its `--help` lists the clients";
            findings.warn(CHECK, format!("these do not: {}", named(&looked.unwrapped)), fix);
        }
        if !looked.may_log_in.is_empty() {
            let install = |(file, server): &(std::path::PathBuf, String)| {
                PrintedCommand::of("ua gateway install").option("--file", file).word(server).in_code()
            };
            let commands: Vec<String> = looked.may_log_in.iter().map(install).collect();
            let fix = format!("for one that needs no login by its client: {}", commands.join(", "));
            findings.warn(CHECK, format!("skipped, they may require a login: {}", named(&looked.may_log_in)), fix);
        }
        if !looked.not_read.is_empty() {
            let fix = "write `args` as a list of strings, and put variables into `env` instead of a file that only the client finds";
            findings.warn(
                CHECK,
                format!("skipped, their settings cannot be read in full: {}", named(&looked.not_read)),
                fix,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_database_may_know_is_not_called_superfluous() {
        let other = ["/runs is used with another database on a server".to_owned()];
        let told = whose_they_may_be(&other);
        assert!(told.starts_with(&format!("keep them: {}", other[0])) && !told.contains("remove"), "{told}");
        // On a server nothing else tells what was sent after the copy that was put back.
        let alone = whose_they_may_be(&[]);
        assert!(
            alone.starts_with("keep them until you know") && alone.contains("put back to an older state"),
            "{alone}"
        );
        let order = ["job_completion", "UA_RUNTIME_DB_PATH", "remove them"].map(|word| alone.find(word).unwrap());
        assert!(order.is_sorted(), "removing comes last: {alone}");
        assert!(told.contains("job_completion"), "{told}");
    }
}
