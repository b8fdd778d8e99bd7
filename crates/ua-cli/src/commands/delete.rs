//! `ua runs delete`: delete runs and their workspaces, once somebody confirmed it.
//!
//! The database first, then the folder: a kill in between leaves a folder that belongs to no run, which does no harm and which
//! `ua doctor` names. The folder is removed below the workspace root only, without following links out of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_core::{RunId, RunStatus, ShowPath as _, Timestamp, Trace};
use ua_dispatch::Fence;
use ua_host::home::Home;
use ua_host::{Database, Host, tree};
use ua_mcp::LockDir;
use ua_resume::Standing;
use ua_runner::{LeftOpen, RunLock, owner_stamp};
use ua_store::{
    CallRecord, GATEWAY_MODE, LedgerStore as _, RunDeletion, RunHead, RunQuery, RunRecord, RunStore as _, Store,
};

use crate::args::parse_span;
use crate::error::{FAILED, HostError, OK, STORAGE};
use crate::ids::{in_sentence, short};
use crate::output::{did, line, print, print_json, tell};
use crate::people::is_attended;
use crate::view::{RunDeleted, RunsDeleted};
use crate::{complete, find};

/// `ua runs delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua runs delete run_019…
      one finished run with its workspace
  ua runs delete --older-than 30d --dry-run
      show which finished runs would be deleted
  ua runs delete --older-than 30d --yes
      without asking, as a timer does
  ua runs delete RUN --force
      also one that is not finished

A run that a process drives is never deleted. What may have happened and is not known to have is listed first: a call whose outcome is \
unknown keeps its run until --force, and one that only its tool says failed keeps it from --yes alone. While a fork or sub-agent of its lineage is there, the database keeps what the run \
did outside, so that it is not done again; the rest goes with the last of them. A deleted run's name is not used again; its job key is free.")]
pub struct DeleteArgs {
    /// Run ids, unique prefixes or suffixes of them, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub runs: Vec<String>,
    /// Every finished run that has not changed for this long: a number and d, h, m or s, for example 30d
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with = "runs")]
    pub older_than: Option<Duration>,
    /// Also delete named runs that are not finished, and runs with calls that may have happened
    #[arg(long)]
    pub force: bool,
    /// Keep the workspaces
    #[arg(long)]
    pub keep_files: bool,
    /// Only show what would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

impl DeleteArgs {
    /// Whether it is deleted before anybody reads what may have happened.
    fn are_unread(&self) -> bool {
        self.yes && !self.dry_run
    }
}

pub(crate) async fn run(host: &Host, args: &DeleteArgs) -> Result<u8, HostError> {
    let home = host.home();
    // Looked up without touching anything first, so that a typing error deletes nothing.
    let look = home.open_read_only()?;
    if args.runs.is_empty() && args.older_than.is_none() {
        return Err(without_a_name(&look, host.env().now()).await?);
    }
    let mut wanted = Vec::new();
    for name in &args.runs {
        let run = find::run(&look, name).await?;
        tree::refuse_task(&look, &run, "deleted", "ua runs delete").await?;
        refuse(home, &look, &run, args.force).await?;
        let open = left_open(&look, &run.run_id).await?;
        if !args.force {
            refuse_open(&open, &run.run_id, args.are_unread())?;
        }
        if !wanted.iter().any(|(id, _)| *id == run.run_id) {
            wanted.push((run.run_id, open));
        }
    }
    if let Some(span) = args.older_than {
        let before = host.env().now().minus(span);
        let query = RunQuery { limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
        let all = look.find_runs(&query).await.map_err(|e| HostError::store("look for old runs", &e))?;
        let (old, open): (Vec<_>, Vec<_>) =
            all.into_iter().filter(|run| run.updated_at < before).partition(|run| run.status.is_terminal());
        if let Some(kept) = kept_in_words(&open) {
            tell(&kept);
        }
        for run in old {
            let open = left_open(&look, &run.run_id).await?;
            if !args.force
                && let Err(error) = refuse_open(&open, &run.run_id, args.are_unread())
            {
                let why = error.to_string();
                let why = why.strip_suffix(NOTHING_DELETED).unwrap_or(&why);
                tell(in_sentence(&format!("run {} is kept: {why}", run.run_id)).as_ref());
                continue;
            }
            if !wanted.iter().any(|(id, _)| *id == run.run_id) {
                wanted.push((run.run_id, open));
            }
        }
    }
    let mut deleted = Vec::new();
    for (id, open) in wanted {
        let run = look.run(&id).await.map_err(|e| HostError::store("read the run", &e))?;
        // With it goes what keeps a repeat of its calls from being sent.
        ua_host::gateway::only_people(host, &run, &format!("session {id} must be deleted")).await?;
        let standing = ua_host::standing::standing(home, &look, &run).await?;
        deleted.push(RunDeleted {
            stands: standing_word(&standing),
            is_of_gateway: ua_store::is_gateway(&run),
            run_id: run.run_id,
            status: run.status,
            job_key: run.job_key,
            workspace_dir: run.workspace_dir,
            workspace_removed: false,
            kept_for: Vec::new(),
            may_have_happened: open.sentences(),
            had_effects: false,
        });
    }
    ua_host::home::close(look);
    if !args.dry_run && !args.yes && !deleted.is_empty() && !confirmed(&deleted, args).await? {
        tell("nothing was deleted");
        return Ok(FAILED);
    }
    let mut left = 0;
    if !args.dry_run && !deleted.is_empty() {
        let store = Arc::new(home.open_from_anywhere()?);
        // Of finished ones as well, as long as their locks say whose it is.
        ua_host::servers::end_abandoned(home).await;
        let port = host.seams().store(store.clone());
        for run in &mut deleted {
            left += u32::from(!delete(host, port.as_ref(), run, args).await?);
            ua_host::restart::write(home, &store).await;
        }
        drop(port);
        if let Some(store) = Arc::into_inner(store) {
            ua_host::home::close(store);
        }
    }
    if !args.dry_run {
        did(format!("{} deleted", ua_core::counted(deleted.len(), "run")));
    }
    if crate::terminal::is_json() {
        print_json(&RunsDeleted { dry_run: args.dry_run, deleted })?;
    } else {
        print(in_words(&deleted, args))?;
    }
    Ok(if left == 0 { OK } else { STORAGE })
}

/// Finished runs that are shown to whoever names none.
const OFFERED: usize = 5;
/// Characters of what such a run is for.
const OBJECTIVE: usize = 60;

/// That no run was named: which ones could be deleted, and how.
async fn without_a_name(look: &Database, now: Timestamp) -> Result<HostError, HostError> {
    let query = RunQuery { limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
    let all = look.find_runs(&query).await.map_err(|e| HostError::store("look for finished runs", &e))?;
    Ok(unnamed_in_words(&all, now))
}

/// The same of `all` runs, newest first.
fn unnamed_in_words(all: &[RunHead], now: Timestamp) -> HostError {
    let finished: Vec<&RunHead> = all.iter().filter(|run| run.status.is_terminal()).collect();
    let is = if finished.len() == 1 { "is" } else { "are" };
    match (all, finished.as_slice()) {
        ([], _) => HostError::usage("there are no runs to delete").hint("`ua job FILE` starts one"),
        (_, []) => HostError::usage("name the run to delete; none is finished")
            .hint("`ua runs list` shows them; `ua runs delete RUN --force` deletes one that is not finished"),
        (_, some) => {
            let row = |run: &&RunHead| {
                let RunHead { run_id, status, updated_at, objective, .. } = run;
                let when = crate::moment::ago(*updated_at, now);
                format!("\n  {} · {status} · {when} · {}", short(run_id.as_str()), line(objective, OBJECTIVE))
            };
            let rows: String = some.iter().take(OFFERED).map(row).collect();
            let more = some.len().saturating_sub(OFFERED);
            let more = if more == 0 { String::new() } else { format!("\n  and {more} more") };
            HostError::usage(format!(
                "name the runs to delete; {} {is} finished:{rows}{more}",
                ua_core::counted(some.len(), "run")
            ))
            .hint(
                "`ua runs delete RUN` deletes one, `ua runs delete --older-than 30d` those of that age; `ua runs list` shows all",
            )
        }
    }
}

/// That what is old and has not ended is kept, and how it is ended; `None` when there is none.
fn kept_in_words(open: &[RunHead]) -> Option<String> {
    let sessions = open.iter().filter(|run| run.run_mode == GATEWAY_MODE).count();
    let runs = open.len() - sessions;
    let what = match (runs, sessions) {
        (0, 0) => return None,
        (_, 0) => ua_core::counted(runs, "run"),
        (0, _) => format!("{} of a client", ua_core::counted(sessions, "session")),
        (_, _) => {
            format!("{} and {} of a client", ua_core::counted(runs, "run"), ua_core::counted(sessions, "session"))
        }
    };
    let (has, is) = if open.len() == 1 { ("has", "is") } else { ("have", "are") };
    let ends = if sessions == 0 {
        "`ua runs cancel RUN` ends one"
    } else {
        "`ua runs cancel RUN` ends one, and its client begins another session; the one before can be deleted then"
    };
    Some(format!("{what} of that age {has} not ended and {is} kept: {ends}"))
}

/// Whether a person wants these runs to be gone: nothing brings them back.
async fn confirmed(wanted: &[RunDeleted], args: &DeleteArgs) -> Result<bool, HostError> {
    if !is_attended() {
        return Err(HostError::usage("not a terminal, so nobody can confirm the deletion")
            .hint("`--dry-run` shows which runs would be deleted; add --yes to delete them; nothing was deleted"));
    }
    tell(wanted_in_words(wanted, args).trim_end());
    let what = if wanted.len() == 1 { "this run".to_owned() } else { format!("these {} runs", wanted.len()) };
    let files = match (args.keep_files, wanted.len()) {
        (true, _) => "",
        (false, 1) => " and everything in its workspace",
        (false, _) => " and everything in their workspaces",
    };
    let left = crate::prompt::Left::undone("nothing was deleted");
    crate::prompt::confirm(&format!("Delete {what}{files}? It cannot be undone."), &left).await
}

/// The end of what is said to whoever named the run.
const NOTHING_DELETED: &str = "; nothing was deleted";

/// What of a run has no end that is known.
async fn left_open(store: &Database, run: &RunId) -> Result<LeftOpen, HostError> {
    LeftOpen::of(store, run).await.map_err(|e| HostError::store("look what the run leaves open", &e))
}

/// Refuses to delete what nobody knows the end of; where nobody reads the list before it is deleted, also what is on it.
fn refuse_open(left: &LeftOpen, run: &RunId, are_unread: bool) -> Result<(), HostError> {
    let what = |calls: &[CallRecord]| ua_core::counted(calls.len(), "call");
    let by_hand =
        |calls: &[CallRecord]| ua_resume::correct_by_hand(calls.first().map_or("CALL", |call| call.call_id.as_str()));
    if !left.in_doubt.is_empty() {
        return Err(HostError::usage(format!(
            "{} of run {run} may or may not have happened, and deleting the run would delete the only record of it{NOTHING_DELETED}",
            what(&left.in_doubt),
        ))
        .hint(format!(
            "`ua calls list --run {run}` shows it, {} says what became of it; --force deletes it as it is, and an agent that asks for it \
             again does it again",
            by_hand(&left.in_doubt)
        )));
    }
    if are_unread && !left.failed_perhaps.is_empty() {
        return Err(HostError::usage(format!(
            "{} of run {run} failed, as the tool says, and may have happened; deleting the run would delete the only record of it{NOTHING_DELETED}",
            what(&left.failed_perhaps),
        ))
        .hint(format!(
            "`ua calls list --run {run}` shows it, {} says what became of it; --force beside --yes deletes it as it is, and so does a yes \
             without --yes",
            by_hand(&left.failed_perhaps)
        )));
    }
    if !left.forgotten.is_empty() {
        return Err(HostError::usage(format!(
            "effects.log knows {} of run {run} that the database does not, and deleting the run would delete that record{NOTHING_DELETED}",
            ua_core::counted(left.forgotten.len(), "effect"),
        ))
        .hint(format!(
            "`ua db check` lists what it knows, and a newer copy of the database has it; once you have looked, `ua db accept {run}` says so; \
             --force deletes the run as it is, and a run that is started after it does it again"
        )));
    }
    Ok(())
}

async fn refuse(home: &Home, store: &Database, run: &RunRecord, force: bool) -> Result<(), HostError> {
    let (id, status) = (&run.run_id, run.status);
    if RunLock::is_held(&home.locks(), id) {
        return Err(HostError::usage(format!("a process drives run {id}; nothing was deleted"))
            .hint(format!("`ua runs cancel {id}` ends it")));
    }
    if ua_store::is_over(run) || force {
        return Ok(());
    }
    if ua_store::is_gateway(run) {
        return Err(HostError::usage(format!("run {id} is not finished ({status}); nothing was deleted")).hint(format!(
            "it is a session of a client at the gateway, which the client alone continues; `ua runs cancel {id}` ends it, and --force deletes \
             it with its open questions"
        )));
    }
    let next = ua_host::restart::next_step(store, run).await?;
    let stands = ua_host::standing::standing(home, store, run).await?;
    let who = match (store.elsewhere(id).await?, next.command()) {
        (Some(place), Some(command)) => {
            let (command, where_to) = place.command(command, &ua_host::fleet::place_of(home)?.1);
            format!("`{command}`{where_to}")
        }
        (Some(_) | None, _) => next.who(),
    };
    Err(HostError::usage(format!("run {id} is not finished ({stands}); nothing was deleted")).hint(format!(
        "{} {}; --force deletes it and its open questions",
        who,
        next.does()
    )))
}

/// Where a run of the list stands, whose reason to be stopped is of no matter here.
fn standing_word(standing: &Standing) -> String {
    match standing {
        Standing::Stored(status @ RunStatus::Stopped, _) => status.to_string(),
        Standing::Stored(..)
        | Standing::Ending
        | Standing::Elsewhere(_)
        | Standing::Crashed
        | Standing::Interrupted(_)
        | Standing::Answered
        | Standing::NotBegun
        | Standing::Outdated(_)
        | Standing::IdleSession
        | Standing::EndedSession => standing.to_string(),
    }
}

/// Deletes one run; `false` when its folder could not be removed.
async fn delete(host: &Host, store: &dyn Store, run: &mut RunDeleted, args: &DeleteArgs) -> Result<bool, HostError> {
    let (home, env, by) = (host.home(), host.env(), Some(host.settings().user()));
    // Whoever wants to drive it meanwhile is refused, and whoever drives it refuses us.
    let lock = RunLock::take(&home.locks(), &run.run_id, &owner_stamp(Trace::new(env)))?;
    if !run.status.is_terminal() {
        end_servers(home, store, run, args.force).await?;
    }
    // Its sub-agents go with it, the deepest first; their folders lie in its own.
    for child in tree::runs_below(store, &run.run_id).await?.into_iter().rev() {
        let deletion = RunDeletion { run_id: child.run_id.clone(), force: true, by: by.clone(), at: env.now() };
        match store.delete_run(&deletion).await {
            Ok(_) | Err(ua_store::StoreError::NotFound { .. }) => {}
            Err(error) => return Err(HostError::store("delete the run of a sub-agent", &error)),
        }
        std::fs::remove_file(home.locks().join(format!("{}.run", child.run_id))).ok();
        remove_agent_folder(home, &child.run_id);
    }
    let calls = store.calls(&run.run_id, None).await.map_err(|e| HostError::store("read the calls", &e))?;
    let had_effects = calls.iter().any(|call| call.attempt > 0 && call.policy.class.has_effect());
    let record = store.run(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    let force = args.force || ua_store::is_over(&record);
    let deletion = RunDeletion { run_id: run.run_id.clone(), force, by, at: env.now() };
    let outcome = store.delete_run(&deletion).await.map_err(|e| HostError::store("delete the run", &e))?;
    run.kept_for = outcome.kept_for;
    run.had_effects = had_effects;
    std::fs::remove_file(home.locks().join(format!("{}.run", run.run_id))).ok();
    remove_agent_folder(home, &run.run_id);
    drop(lock);
    // What a session of the gateway works in is the client's project, which nobody here made.
    if args.keep_files || run.is_of_gateway {
        return Ok(true);
    }
    match remove_workspace(home, &run.run_id, Path::new(&outcome.workspace_dir)) {
        Ok(()) => run.workspace_removed = true,
        Err(why) => tell(format!(
            "run deleted; its folder {} {}",
            Path::new(&run.workspace_dir).shown(),
            crate::output::plain(&why)
        )),
    }
    Ok(run.workspace_removed)
}

/// Ends what earlier processes left of the tool servers of a run that is not finished, and of those below it: behind its deletion nobody knows whose
/// they were.
async fn end_servers(home: &Home, store: &dyn Store, run: &RunDeleted, force: bool) -> Result<(), HostError> {
    for of in tree::with_those_below(store, &run.run_id).await? {
        let locks = LockDir::new(&home.locks(), of, ua_core::system::env())
            .map_err(|e| HostError::storage(format!("cannot use the folder of locks: {e}")))?;
        for (server, _, fence) in locks.retire_all_orphans().await {
            let Fence::Alive { detail } = fence else { continue };
            let words = format!("the tool server `{server}` of run {} is still alive: {detail}", run.run_id);
            if !force {
                return Err(HostError::waiting(words).hint("end that process, and delete the run then"));
            }
            tell(in_sentence(&crate::output::plain(&words)).as_ref());
        }
    }
    Ok(())
}

/// Removes what an agent kept of the run for itself.
fn remove_agent_folder(home: &Home, run: &ua_core::RunId) {
    if let Err(error) = home.remove_agent_folder(run) {
        let folder = home.agent_folder(run).shown().to_string();
        tell(format!("{} was left, because {error}; remove it by hand", crate::output::plain(&folder)));
    }
}

/// Removes the folder of a run below the root, where it is now. One that is gone already is fine. Otherwise what became of it, as the end of a
/// sentence.
fn remove_workspace(home: &Home, run: &ua_core::RunId, folder: &Path) -> Result<(), String> {
    let root = home.root();
    let left = |why: String| format!("was left, because {why}; remove it by hand");
    // The folder of all runs may have been moved since.
    let Some(inside) = home.workspace_here(folder).or_else(|| home.moved_workspace(run, folder)) else {
        let is_gone = folder.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        return Err(if is_gone {
            format!("no longer exists, and no folder of the run is in {}", root.shown())
        } else if home.inside_root(folder).is_some() {
            left(format!("it is not the folder of a run, but one that {} has for itself", root.shown()))
        } else {
            left(format!("it is not below {}", root.shown()))
        });
    };
    let said = |error: std::io::Error| left(error.to_string());
    let area = Dir::open_ambient_dir(root, ambient_authority()).map_err(said)?;
    match area.symlink_metadata(&inside) {
        Ok(found) if found.is_dir() => area.remove_dir_all(&inside).map_err(said),
        Ok(_) => Err(left("it is a link or a file and not a folder".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(said(error)),
    }
}

/// A list that somebody reads before saying yes names so many runs, and counts the rest.
const NAMED: usize = 20;

fn wanted_in_words(wanted: &[RunDeleted], args: &DeleteArgs) -> String {
    let dry = DeletedAs { dry_run: true, keep_files: args.keep_files };
    let more = wanted.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!("  … and {more} more: `--dry-run` lists all\n") };
    rows(&wanted[..wanted.len().min(NAMED)], dry) + &more + &freed(wanted)
}

/// So many job keys are named.
const FEW: usize = 3;

/// That jobs which were to be done once are done again once the records that say that they were done are gone.
fn freed(deleted: &[RunDeleted]) -> String {
    let done = deleted.iter().filter(|run| run.status == RunStatus::Succeeded);
    let keys: Vec<String> = done.filter_map(|run| run.job_key.as_deref()).map(|key| line(key, 60)).collect();
    let more = if keys.len() > FEW { ", …" } else { "" };
    let named = format!("{}{more}", keys[..keys.len().min(FEW)].join(", "));
    match keys.len() {
        0 => String::new(),
        1 => format!(
            "Free after that: the job key {named}. The same job under it is done again when it is started again.\n"
        ),
        many => format!(
            "Free after that: the job keys of {many} runs that succeeded ({named}). The same jobs under them are done again when they are started \
             again.\n"
        ),
    }
}

/// How a deletion is told.
#[derive(Debug, Clone, Copy)]
struct DeletedAs {
    dry_run: bool,
    keep_files: bool,
}

fn rows(deleted: &[RunDeleted], args: DeletedAs) -> String {
    let mut out = String::new();
    for run in deleted {
        let files = match (args.dry_run, args.keep_files, run.workspace_removed) {
            _ if run.is_of_gateway => "the client's project stays",
            (_, true, _) => "its workspace stays",
            (true, false, _) => "with its workspace",
            (false, false, true) => "and its workspace",
            (false, false, false) => "its workspace could not be removed",
        };
        out.push_str(&format!("  {} ({}), {files}\n", short(run.run_id.as_str()), run.stands));
        for open in run.may_have_happened.iter().take(NAMED) {
            let open = crate::output::plain(open);
            let open = crate::moment::in_sentence(&open, ua_core::system::env().now());
            out.push_str(&format!("    may have happened: {}\n", crate::ids::in_sentence(&open)));
        }
        if run.may_have_happened.len() > NAMED {
            let (id, more) = (short(run.run_id.as_str()), run.may_have_happened.len() - NAMED);
            out.push_str(&format!("    … and {more} more: `ua calls list --run {id}` lists them\n"));
        }
        // A run that did nothing outside leaves nothing to remember.
        if run.had_effects && !run.kept_for.is_empty() {
            let names: Vec<&str> = run.kept_for.iter().map(RunId::as_str).collect();
            out.push_str(&format!("    what it did outside is remembered for {}\n", names.join(", ")));
        }
    }
    out
}

fn in_words(deleted: &[RunDeleted], args: &DeleteArgs) -> String {
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    let told = rows(deleted, DeletedAs { dry_run: args.dry_run, keep_files: args.keep_files });
    format!("{told}{}{verb} {}\n", freed(deleted), ua_core::counted(deleted.len(), "run"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use ua_host::settings::Settings;
    use ua_host::words::KnownSecrets;

    use super::*;

    fn head(run_mode: &str) -> RunHead {
        let at = Timestamp::from_millis(0);
        RunHead {
            run_id: RunId::parse("run_1").unwrap(),
            created_at: at,
            updated_at: at,
            run_mode: run_mode.to_owned(),
            status: RunStatus::Stopped,
            stop_reason: None,
            status_detail: None,
            objective: String::new(),
            job_path: None,
            job_key: None,
            workspace_dir: String::new(),
            parent_run_id: None,
            turn_index: 0,
            iteration_count: 0,
            max_iterations: None,
        }
    }

    #[test]
    fn whoever_names_no_run_is_told_which_can_be_deleted_and_how() {
        let now = Timestamp::from_millis(1000);
        let said = |all: &[RunHead]| {
            let error = unnamed_in_words(all, now);
            (error.message().to_owned(), error.hint_text().map(str::to_owned))
        };
        assert_eq!(said(&[]).0, "there are no runs to delete");
        let open = head("job");
        let (message, hint) = said(std::slice::from_ref(&open));
        assert_eq!(message, "name the run to delete; none is finished");
        assert!(hint.unwrap().contains("--force"));
        let done = RunHead { status: RunStatus::Succeeded, objective: "Mail the report.".to_owned(), ..open.clone() };
        let (message, hint) = said(&[open, done.clone()]);
        let row = "\n  run_1 · succeeded · 1970-01-01T00:00:00.000Z · Mail the report.";
        assert_eq!(message, format!("name the runs to delete; 1 run is finished:{row}"));
        assert!(hint.unwrap().contains("`ua runs delete RUN` deletes one"));
        let (message, _) = said(&vec![done; OFFERED + 2]);
        assert_eq!(
            message,
            format!("name the runs to delete; 7 runs are finished:{}\n  and 2 more", row.repeat(OFFERED))
        );
    }

    #[test]
    fn what_has_not_ended_is_said_to_be_kept() {
        let (run, session) = (head("job"), head(GATEWAY_MODE));
        assert_eq!(kept_in_words(&[]), None);
        for (open, said) in [
            (vec![run.clone()], "1 run of that age has not ended and is kept: `ua runs cancel RUN` ends one"),
            (
                vec![session.clone(), session.clone()],
                "2 sessions of a client of that age have not ended and are kept: ",
            ),
            (vec![run, session], "1 run and 1 session of a client of that age have not ended and are kept: "),
        ] {
            let words = kept_in_words(&open).unwrap();
            assert!(words.starts_with(said), "{words}");
        }
    }

    #[test]
    fn only_a_real_folder_below_the_root_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        let outside = place.path().join("outside");
        for folder in [root.join("session_1/deep"), outside.clone()] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, place.path().join("other_name")).unwrap();
        let home = |root: &Path| Home::new(&Settings::default(), Some(root), &KnownSecrets::default()).unwrap();
        let run = ua_core::RunId::parse("r").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("session_1/out")).unwrap();
        for wrong in [root.clone(), outside.clone(), root.join("../outside"), root.join("link"), place.path().into()] {
            assert!(remove_workspace(&home(&root), &run, &wrong).is_err(), "{}", wrong.display());
        }
        // However the root is spelt now, and was spelt when the run was stored.
        let spellings = [root.clone(), place.path().join("outside/../root"), place.path().join("other_name")];
        for (now, stored) in spellings.iter().flat_map(|now| spellings.iter().map(move |stored| (now, stored))) {
            std::fs::create_dir_all(root.join("session_1")).unwrap();
            remove_workspace(&home(now), &run, &stored.join("session_1")).unwrap();
            assert!(!root.join("session_1").exists(), "{} of {}", stored.display(), now.display());
            remove_workspace(&home(now), &run, &stored.join("session_1")).unwrap();
        }
        assert!(outside.join("file").exists());
    }
}
