//! `ua db`: look after the runtime database.

#[cfg(feature = "postgres")]
mod moving;
#[cfg(feature = "postgres")]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, PrintedCommand, RunId, ShowPath as _};
use ua_host::home::Home;
use ua_host::pages::Due;
use ua_host::placed::refuse_leading_out;
use ua_host::{Database, Host};
use ua_runner::LockError;
use ua_store::invariants::{self, Violation};
use ua_store::{
    FleetStore as _, Forgotten, LedgerStore as _, PastStore as _, QueueState, RunStore as _, Store, StoreError,
};
use ua_store_sqlite::Restored;

use super::prune::PruneArgs;
use crate::error::{HostError, OK, STORAGE};
use crate::ids::{in_sentence, short};
use crate::output::{did, print, print_json, say, tell};
use crate::view::{DbAccepted, DbCopied, DbMigrated, DbRestored};
use crate::{complete, find};

/// `ua db …`.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Check the database, page by page; exit code 74 if something is wrong
    #[command(after_help = "\
Examples:
  ua db check
  ua db check --invariants      also check every run against the invariants
  ua db check --json | jq .forgotten")]
    Check {
        /// Also check what must hold of every stored run: transitions, attempts, receipts, keys, digests, turns, history, charges
        #[arg(long)]
        invariants: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Migrate the database to this program's schema
    #[command(after_help = "\
Examples:
  ua db backup before.db && ua db migrate")]
    Migrate,
    /// Move the database from the file in the root to the server that --database-url names
    #[command(after_help = "\
Examples:
  ua db migrate --database-url postgres://ua@db.example/ua
      make the schema there
  ua db copy --database-url postgres://ua@db.example/ua

No run may be running. The database on the server must be empty; events keep their chain. The file is kept under another \
name, so that no run is driven from both. Killed at any moment, the same command finishes it or begins again, and no run is driven \
until then; `--undo` keeps the database in the file instead.")]
    Copy {
        /// Keep the database in the file where a copy was begun and has not arrived
        #[arg(long)]
        undo: bool,
        /// With --undo: without asking the server, also after the move; for whoever knows that nothing was done there
        #[arg(long, requires = "undo")]
        force: bool,
        /// Leave behind what `ua db accept` accepted and only effects.log knows: on the server nobody is asked before the like is done again
        #[arg(long, conflicts_with = "undo")]
        without_lost: bool,
    },
    /// Copy the database to a new file, as of one moment; runs may continue in the meantime
    #[command(after_help = "\
Examples:
  ua db backup \"ua-$(date +%F).db\"")]
    Backup {
        /// The file to make
        file: PathBuf,
    },
    /// Replace the database with a copy made by `ua db backup`; the previous one is kept beside it
    #[command(after_help = "\
Examples:
  ua db restore ua-2026-11-20.db

A copy does not know what was sent after it was made, but effects.log beside the database does. A run that effects.log knows more \
about than the copy does not resume, so that nothing is sent twice, until you have looked and run `ua db accept RUN`.")]
    Restore {
        /// The copy
        file: PathBuf,
    },
    /// Allow a run to resume although the database may lack what it sent
    #[command(after_help = "\
Examples:
  ua db check
      list what was sent that the database does not know
  ua db accept run_019 && ua resume run_019
  ua db accept run_019 && ua queue move run_019
      a run that a worker had parked because of it")]
    Accept {
        /// A run id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
    },
    /// Delete large results that only finished runs refer to
    Prune(PruneArgs),
}

pub(crate) async fn run(host: &Host, command: DbCommand) -> Result<u8, HostError> {
    let home = host.home();
    #[cfg(feature = "postgres")]
    if let Some(server) = home.server() {
        return server::run(host, server, command).await;
    }
    match command {
        DbCommand::Check { invariants, json } => check(home, invariants, json).await,
        DbCommand::Migrate => migrate(home).await,
        #[cfg(feature = "postgres")]
        DbCommand::Copy { undo: true, force, .. } => moving::undo(home, None, force).await,
        DbCommand::Copy { .. } => Err(HostError::usage("no destination for the database is given").hint(
            "name a server with --database-url, or in UA_DATABASE_URL; a copy in a file is made by `ua db backup`",
        )),
        DbCommand::Backup { file } => backup(home, &file),
        DbCommand::Restore { file } => restore(home, &file).await,
        DbCommand::Accept { run } => accept(host, &run).await,
        DbCommand::Prune(args) => super::prune::run(home, &args).await,
    }
}

/// A statement that does not hold, and of which run.
struct OfRun {
    run: RunId,
    violation: Violation,
}

impl OfRun {
    fn json(&self) -> Value {
        let Self { run, violation } = self;
        let mut line =
            json!({"run_id": run, "invariant": violation.invariant, "row": violation.row, "why": violation.why});
        if let Some(known) = violation.known() {
            line["advice"] = json!(known.advice);
        }
        line
    }

    /// What may not be as the records say, in a sentence, and what to do about it.
    fn sentence(&self) -> String {
        let Self { run, violation } = self;
        let advice = violation.known().map_or(String::new(), |known| format!("; {}", known.advice));
        format!("run {run}, {}: {}{advice}", violation.row, violation.why)
    }
}

async fn check(home: &Home, invariants: bool, json: bool) -> Result<u8, HostError> {
    let store = home.open_file()?;
    let health = store.examine().await.map_err(|e| HostError::store("examine the database", &e))?;
    let (runs, found) = if invariants { violations(&store).await? } else { (0, Vec::new()) };
    // What the program itself is known to leave behind is nothing that a repair of the database could end: it is told, and a check
    // that failed for ever because of it would hide real damage.
    let (to_look_at, violations): (Vec<OfRun>, Vec<OfRun>) =
        found.into_iter().partition(|one| one.violation.known().is_some());
    let is_well = health.findings.is_empty() && health.forgotten.is_empty() && violations.is_empty();
    if json {
        let mut page =
            serde_json::to_value(&health).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
        page["ok"] = json!(is_well);
        if invariants {
            page["checked_runs"] = json!(runs);
            page["violations"] = violations.iter().map(OfRun::json).collect();
            page["to_look_at"] = to_look_at.iter().map(OfRun::json).collect();
        }
        print_json(&page)?;
        return Ok(if is_well { OK } else { STORAGE });
    }
    let mut page = format!(
        "Database       {}\nId             {}\nSchema         {}\nSQLite         {}\nSize           {}\n",
        health.path.shown(),
        health.db_uuid,
        health.schema,
        health.sqlite_version,
        ua_core::size_in_words(health.bytes)
    );
    let whole =
        if health.findings.is_empty() { "healthy".to_owned() } else { health.findings.join("\n               ") };
    page.push_str(&format!("Pages          {whole}\n"));
    let mirror = match (health.mirror_lines, health.forgotten.len()) {
        (0, _) => "none yet".to_owned(),
        (lines, 0) => format!("{lines}, none that the database does not know", lines = ua_core::counted(lines, "line")),
        (lines, forgotten) => format!(
            "{lines}, {forgotten} that the database does not know",
            lines = ua_core::counted(lines, "line"),
            forgotten = ua_core::counted(forgotten, "thing")
        ),
    };
    page.push_str(&format!("effects.log    {mirror}\n"));
    if invariants {
        page.push_str(&format!(
            "Invariants     {runs}, {}\n",
            ua_core::counted(violations.len(), "violation"),
            runs = ua_core::counted(runs, "run")
        ));
    }
    print(&page)?;
    for OfRun { run, violation } in &violations {
        print(crate::output::plain(&format!("  {run}: {violation}\n")))?;
    }
    if !to_look_at.is_empty() {
        print(format!(
            "To review      {} where the records may not say what happened\n",
            ua_core::counted(to_look_at.len(), "place")
        ))?;
        for one in &to_look_at {
            print(crate::output::plain(&format!("  {}\n", one.sentence())))?;
        }
        tell(format!(
            "hint: the database is healthy; `ua runs show RUN` and `ua calls show CALL` have what is known of each of these, and {} puts a \
             record right",
            ua_resume::correct_by_hand("CALL")
        ));
    }
    for attempt in &health.forgotten {
        print(crate::output::plain(&format!("  {attempt}\n")))?;
    }
    if !health.forgotten.is_empty() {
        tell(format!(
            "hint: the database is an older copy: these were sent or answered, and it does not know them. Restore a newer copy; or find \
             out what became of them, then run `ua db accept RUN`, and give the answers again: {}",
            ua_host::ANSWERS_AGAIN
        ));
    }
    Ok(if is_well { OK } else { STORAGE })
}

/// What does not hold, over all runs, and how many there are.
async fn violations(store: &dyn Store) -> Result<(usize, Vec<OfRun>), HostError> {
    let fail = |error: &ua_store::StoreError| HostError::store("check the runs", error);
    let runs = store.runs(u32::MAX).await.map_err(|e| fail(&e))?;
    let id = store.database_id().await.map_err(|e| fail(&e))?;
    let mut found = Vec::new();
    let roots: BTreeSet<&RunId> = runs.iter().map(|run| &run.root_run_id).collect();
    for root in roots {
        let mut family = Vec::new();
        for run in runs.iter().filter(|run| run.root_run_id == *root) {
            let records = store.load(&run.run_id).await.map_err(|e| fail(&e))?;
            let mut events = Vec::new();
            for call in &records.calls {
                events.extend(store.events(&call.call_id).await.map_err(|e| fail(&e))?);
            }
            let agreement = invariants::check_agreement(&records, &events);
            let violations = invariants::check(&records, &events).into_iter().chain(agreement);
            found.extend(violations.map(|violation| OfRun { run: run.run_id.clone(), violation }));
            family.push(records);
        }
        let of_call = |violation: Violation| {
            let calls = family.iter().flat_map(|records| &records.calls);
            let call = calls.into_iter().find(|call| call.call_id.as_str() == violation.row);
            OfRun { run: call.map_or_else(|| root.clone(), |call| call.run_id.clone()), violation }
        };
        let of_family = invariants::check_family(&family).into_iter();
        let of_family = of_family.chain(invariants::check_agreement_of_family(&family));
        found.extend(of_family.chain(ua_ledger::check_recomputed(&id, &family)).map(of_call));
    }
    Ok((runs.len(), found))
}

/// The run of this name, or of this id if the log knows one that the database does not.
async fn run_of(store: &Database, name: &str) -> Result<RunId, HostError> {
    let unknown = match find::run(store, name).await {
        Ok(run) => return Ok(run.run_id),
        Err(unknown) => unknown,
    };
    let Ok(run) = RunId::parse(name) else { return Err(unknown) };
    let forgotten = forgotten_of(store, &run).await?;
    if forgotten.iter().any(|attempt| attempt.run_id == name) { Ok(run) } else { Err(unknown) }
}

async fn forgotten_of(store: &Database, run: &RunId) -> Result<Vec<Forgotten>, HostError> {
    let forgotten = store.forgotten(run).await;
    forgotten.map_err(|e| HostError::store("compare the database with effects.log", &e))
}

async fn accept(host: &Host, name: &str) -> Result<u8, HostError> {
    let home = host.home();
    let look = home.open_read_only()?;
    let run = run_of(&look, name).await?;
    let forgotten = forgotten_of(&look, &run).await?;
    ua_host::home::close(look);
    if crate::terminal::is_json() {
        let accepted = forgotten.iter().map(|attempt| json!(attempt)).collect();
        print_json(&DbAccepted { run_id: run.to_string(), accepted })?;
    }
    if forgotten.is_empty() {
        tell(format!(
            "run {}: effects.log knows nothing of it that the database lacks; there is nothing to accept",
            short(run.as_str())
        ));
        return Ok(OK);
    }
    let now = ua_core::system::env().now();
    let store = home.open_from_anywhere()?;
    let held = parked_and_held(&store).await?;
    // A run that is to begin under that name is not there yet, and has no files.
    let known = match store.run(&run).await {
        Ok(known) => Some(known),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(HostError::store("read the run", &error)),
    };
    let by = host.settings().user();
    let is_there = known.is_some();
    let due = known.map(|known| Due::of(home, &known.root_run_id));
    let accepted = ua_runner::accept_forgotten(&store, &run, &forgotten, Some(&by), now).await;
    accepted.map_err(|e| ua_host::corrections::recall_failed(&e))?;
    if let Some(due) = due {
        due.make(home, &store, None).await?;
    }
    let (in_doubt, lost) = known_and_lost(&store, &forgotten).await?;
    let resume = ua_host::restart::how_to_resume(&store, &run).await.unwrap_or_else(|_| format!("`ua resume {run}`"));
    let still_held = parked_and_held(&store).await?;
    let free: Vec<&str> = held.difference(&still_held).map(RunId::as_str).collect();
    ua_host::home::close(store);
    for attempt in &forgotten {
        tell(in_sentence(&format!("accepted: {attempt}")).as_ref());
    }
    if is_there && forgotten.iter().any(|attempt| attempt.run_id != run.as_str()) {
        tell(format!(
            "for run {} and its family; what runs sent that are not in the database any more still counts for others",
            short(run.as_str())
        ));
    }
    if !in_doubt.is_empty() {
        tell(format!(
            "of {} the database does not know what happened to it: {}; {} records what you found out, and a resume decides about the others as after \
             a crash",
            if in_doubt.len() == 1 { "one call" } else { "these calls" },
            in_sentence(&in_doubt.join(", ")),
            ua_resume::correct_by_hand("CALL")
        ));
    }
    if lost > 0 {
        tell(format!(
            "of {} the database has nothing: you are asked before the like is done again",
            ua_core::counted(lost, "call")
        ));
    }
    let next = if is_there {
        format!("run {run} may be resumed: {resume}")
    } else {
        format!(
            "run {run} is not in this database, so there is nothing of it to resume; what it sent holds no other run up any more"
        )
    };
    tell(in_sentence(&next).as_ref());
    if !free.is_empty() {
        let (listed, names) = (free.join(", "), free.join(" "));
        let free = if free.len() == 1 {
            format!("run {listed} is parked in the queue because of it: `ua queue move {names}` lets a worker take it")
        } else {
            format!(
                "runs {listed} are parked in the queue because of it: `ua queue move {names}` lets a worker take them"
            )
        };
        tell(in_sentence(&free).as_ref());
    }
    Ok(OK)
}

/// The runs that a worker parked and that nobody drives as long as effects.log knows more of them than the database: what is accepted makes none of
/// them ready by itself, and one may be driven only by a worker of the machine that it belongs to.
async fn parked_and_held(store: &Database) -> Result<BTreeSet<RunId>, HostError> {
    let state = store.fleet_state(u32::MAX).await.map_err(|e| HostError::store("read the queue", &e))?;
    let mut found = BTreeSet::new();
    for entry in state.queue.into_iter().filter(|entry| entry.state == QueueState::Parked) {
        if !forgotten_of(store, &entry.run_id).await?.is_empty() {
            found.insert(entry.run_id);
        }
    }
    Ok(found)
}

/// The calls among what was accepted that the database has and whose end it does not know; and how many it does not have.
async fn known_and_lost(store: &Database, accepted: &[Forgotten]) -> Result<(Vec<String>, usize), HostError> {
    let ids: BTreeSet<&str> = accepted.iter().filter_map(|known| known.tool_call_id.as_deref()).collect();
    let (mut found, mut lost) = (Vec::new(), 0);
    for id in ids.into_iter().filter_map(|id| CallId::parse(id).ok()) {
        match store.call(&id).await {
            Ok(call) if call.status == CallStatus::Unknown => found.push(id.to_string()),
            Ok(_) => {}
            Err(StoreError::NotFound { .. }) => lost += 1,
            Err(error) => return Err(HostError::store("read a call", &error)),
        }
    }
    Ok((found, lost))
}

async fn migrate(home: &Home) -> Result<u8, HostError> {
    // Looking first: a typing error in --root must not make a database.
    home.has_file()?;
    ua_host::home::close(home.open()?);
    let health = home.open_file()?.examine().await.map_err(|e| HostError::store("examine the database", &e))?;
    let words = format!("{} has schema {}\n", home.database().shown(), health.schema);
    say(&DbMigrated { path: home.database().to_path_buf(), schema: health.schema }, words)?;
    Ok(OK)
}

fn backup(home: &Home, file: &Path) -> Result<u8, HostError> {
    home.refuse_foreign()?;
    home.has_file()?;
    let to = std::path::absolute(file).map_err(|e| HostError::usage(format!("cannot use {}: {e}", file.shown())))?;
    refuse_leading_out(&to)?;
    if to.exists() {
        return Err(
            HostError::usage(format!("{} exists already", to.shown())).hint("name a new file; nothing is overwritten")
        );
    }
    // The database is well, and is not what is told to be in the way.
    if let Some(folder) = to.parent() {
        if !folder.is_dir() {
            return Err(HostError::usage(format!("there is no folder {}", folder.shown()))
                .hint("make it, or name a file in another one; nothing was copied"));
        }
        if let Some((why, how)) = ua_host::home::cannot_write(folder) {
            return Err(HostError::usage(format!("the copy cannot be made: {why}"))
                .hint(format!("{how}, or name a file in another one; nothing was copied")));
        }
    }
    let bytes = ua_store_sqlite::backup(home.database(), &to)
        .map_err(|e| HostError::store("copy the database", &e).hint("the database itself was not touched"))?;
    let words = format!("{bytes} bytes in {}\n", to.shown());
    say(&DbCopied { file: to, bytes }, words)?;
    Ok(OK)
}

async fn restore(home: &Home, file: &Path) -> Result<u8, HostError> {
    if ua_host::paths::is_missing(file) {
        return Err(HostError::usage(format!("there is no file {}", file.shown()))
            .hint(format!("{}name a file that `ua db backup` made", ua_host::paths::did_you_mean(file))));
    }
    // A pipe would be waited for.
    if !file.is_file() {
        return Err(HostError::usage(format!("{} is not a file", file.shown()))
            .hint("name a file that `ua db backup` made; nothing was changed"));
    }
    no_broker(home)?;
    if home.is_to_be_made() {
        // Looked at before anything is made, so that a wrong name leaves nothing behind.
        let elsewhere = ua_host::paths::temporary_folder()?;
        let there = elsewhere.path().join("copy.db");
        ua_store_sqlite::Restore::begin(file, &there).map_err(|e| not_restored(file, &e))?;
        home.make_for_restore()?;
    }
    // From here on nobody takes a run, so that nobody who drives one is overlooked.
    let restore = ua_store_sqlite::Restore::begin(file, home.database()).map_err(|e| not_restored(file, &e))?;
    nobody_drives(home)?;
    let restored =
        restore.finish(ua_core::system::env().now()).map_err(|e| HostError::store("put the copy in place", &e))?;
    // Whoever names a file to be put there takes it for their own.
    if let Some(identity) = ua_store_sqlite::identity_of(home.database()) {
        home.note_database(&identity);
    }
    let health = home.open_file()?.examine().await.map_err(|e| HostError::store("examine the database", &e))?;
    let in_place = format!("{} is in place of {}", file.shown(), home.database().shown());
    did(&in_place);
    if crate::terminal::is_json() {
        let forgotten = health.forgotten.iter().map(|attempt| json!(attempt)).collect();
        print_json(&DbRestored {
            path: home.database().to_path_buf(),
            kept: restored.kept.clone(),
            forgotten,
            knows_until: restored.knows_until.map(|at| at.to_string()),
            lacks_effects_log: restored.is_unaccounted,
            paused_schedules: restored.paused.clone(),
            lost_schedules: restored.lost_schedules.clone(),
            lost_runs: restored.lost_runs.clone(),
        })?;
    } else {
        print(format!("{in_place}\n"))?;
    }
    if let Some(kept) = &restored.kept {
        tell(format!("what was there is kept as {}", kept.shown()));
    }
    let (unaccounted, known): (Vec<Forgotten>, Vec<Forgotten>) =
        health.forgotten.into_iter().partition(Forgotten::is_unaccounted);
    for attempt in &known {
        tell(in_sentence(&format!("after the copy was made: {attempt}")).as_ref());
    }
    tell(
        "what runs have used since the copy was made (tokens, money, time) is not in it, and does not count for their budgets",
    );
    refused_runs(home, &known).await?.iter().for_each(tell);
    for sentence in in_words(&restored, &unaccounted) {
        tell(in_sentence(&sentence).as_ref());
    }
    Ok(OK)
}

/// That a copy is not put in place; nothing was changed by then.
fn not_restored(file: &Path, error: &StoreError) -> HostError {
    let doing = format!("restore {}", file.shown());
    let failure = if let StoreError::Unavailable { .. } = error {
        // It is the copy that is the problem, not the database that it was to replace.
        let said = ua_host::chain(error);
        let why = said.strip_prefix("the runtime database is not available: ").unwrap_or(&said);
        HostError::storage(format!("cannot {doing}: {why}"))
    } else {
        HostError::store(&doing, error)
    };
    // Not as a command, which would be completed with the root of this one: a copy of another is wanted.
    failure.hint("name a file that ua db backup made; nothing was changed")
}

/// What a copy cannot know and nothing beside it tells, in sentences.
fn in_words(restored: &Restored, held: &[Forgotten]) -> Vec<String> {
    let mut said = Vec::new();
    if restored.is_unaccounted {
        let until = restored.knows_until.map_or_else(|| "nothing".to_owned(), |at| format!("what happened until {at}"));
        said.push(format!(
            "effects.log of the time after the copy is not here: the copy knows {until}, and nobody knows what was sent after that; if you have \
             the newer effects.log, put it beside the database and restore the copy again"
        ));
    }
    if let [first, ..] = held {
        let runs: Vec<&str> = held.iter().map(|one| one.run_id.as_str()).collect();
        let run = &first.run_id;
        said.push(format!(
            "held, since they may have sent something after the copy was made: {}; find out what they did, then `ua db accept {run}` lets that one \
             continue (`ua queue move {run}` if a worker has parked it), and `ua runs cancel {run}` ends it",
            runs.join(", ")
        ));
    }
    if let [first, ..] = &restored.paused[..] {
        said.push(format!(
            "paused, since the copy does not know whether they were changed, paused or removed after it was made: {}; {} starts \
             that one again, {} removes it",
            schedules_in_words(&restored.paused),
            PrintedCommand::of("ua schedule resume").word(first).in_code(),
            PrintedCommand::of("ua schedule remove").word(first).in_code()
        ));
    }
    if !restored.lost_runs.is_empty() {
        let runs = if restored.lost_runs.len() == 1 { "the run" } else { "the runs" };
        let kept = restored.kept.as_ref().map_or_else(String::new, |kept| format!(", and only in {}", kept.shown()));
        said.push(format!(
            "not in the copy, although unfinished{kept}: {runs} {}; what of it is still wanted is to be begun again",
            restored.lost_runs.join(", ")
        ));
    }
    if !restored.lost_schedules.is_empty() {
        said.push(format!(
            "not in the copy, and to be added again with `ua schedule add` if they are wanted: {}",
            schedules_in_words(&restored.lost_schedules)
        ));
    }
    said
}

fn schedules_in_words(names: &[String]) -> String {
    format!("{} {}", if names.len() == 1 { "the schedule" } else { "the schedules" }, names.join(", "))
}

/// Refuses where effects.log knows more than the database: nothing beside a server says so any more.
#[cfg(feature = "postgres")]
async fn refuse_older_copy(home: &Home) -> Result<(), HostError> {
    let store = home.open_file()?;
    let health = store.examine().await.map_err(|e| HostError::store("examine the database", &e))?;
    drop(store);
    let refused = refused_runs(home, &health.forgotten).await?;
    if refused.is_empty() {
        return Ok(());
    }
    Err(HostError::usage(format!(
        "the database is an older copy: effects.log knows {} that it does not, and is not moved with it",
        ua_core::counted(health.forgotten.len(), "thing")
    ))
    .hint(format!("{}; nothing was changed", refused.join("; "))))
}

/// Refuses while a run is driven, or a worker waits for one.
fn nobody_drives(home: &Home) -> Result<(), HostError> {
    no_broker(home)?;
    match ua_runner::RunLock::none_held(&home.locks()) {
        Ok(()) => Ok(()),
        Err(LockError::Held { run: holder, owner }) => {
            let process = owner.map_or_else(String::new, |owner| format!(" (process {})", owner.pid));
            let what = if holder.as_str().starts_with("worker_") {
                format!("worker {holder} is running here{process}")
            } else {
                format!("a process{process} drives run {holder}, or is the worker of that name")
            };
            Err(HostError::usage(what).hint("end it first; nothing was changed"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses while a broker of the gateway has the database: it holds a run only while a client is there, and would go on with what it opened.
fn no_broker(home: &Home) -> Result<(), HostError> {
    if !ua_host::gateway::is_served(home)? {
        return Ok(());
    }
    let stop = PrintedCommand::of("ua gateway stop").option("--root", home.root()).in_code();
    Err(HostError::usage("a broker of the gateway is running here").hint(format!(
        "end its clients, which would start the next one; {stop} then ends it, once calls under way have finished; nothing was changed"
    )))
}

/// Which runs are not driven on because of what was forgotten, in sentences: one for each family, and one for what nobody knows the family
/// of any more.
async fn refused_runs(home: &Home, forgotten: &[Forgotten]) -> Result<Vec<String>, HostError> {
    if forgotten.is_empty() {
        return Ok(Vec::new());
    }
    let store = home.open_file()?;
    let runs = store.runs(u32::MAX).await.map_err(|e| HostError::store("read the runs", &e))?;
    let root_of = |attempt: &Forgotten| {
        let known = runs.iter().find(|run| run.run_id.as_str() == attempt.run_id);
        known.map(|run| run.root_run_id.to_string()).or_else(|| attempt.root.clone())
    };
    let mut families: BTreeMap<Option<String>, BTreeSet<&str>> = BTreeMap::new();
    for attempt in forgotten {
        families.entry(root_of(attempt)).or_default().insert(&attempt.run_id);
    }
    let told = families.into_iter().map(|(root, senders)| {
        let of_family: Vec<&str> = match &root {
            Some(root) => {
                runs.iter().filter(|run| run.root_run_id.as_str() == root).map(|run| run.run_id.as_str()).collect()
            }
            None => Vec::new(),
        };
        let run = senders.first().and_then(|sender| RunId::parse(sender).ok());
        let run = run.map_or_else(|| "RUN".to_owned(), |run| run.to_string());
        let senders = senders.iter().copied().collect::<Vec<_>>().join(", ");
        match (root, &of_family[..]) {
            (None, _) => format!(
                "no run resumes until you have looked and accepted it with `ua db accept RUN`: the database does not know which runs {senders} is related to"
            ),
            (Some(_), []) => format!(
                "the database does not have {senders}, which cannot be resumed; a run that begins now, by the same job or step, job key, schedule or \
                 gateway client, is refused until you have looked, since it may do the same again: `ua db accept {run}` lets all that are \
                 refused for it, and `ua db accept RUN` lets one of them alone"
            ),
            (Some(_), [first, ..]) => format!(
                "will not resume until you have looked and accepted it with `ua db accept {first}`: {}",
                of_family.join(", ")
            ),
        }
    });
    Ok(told.collect())
}
