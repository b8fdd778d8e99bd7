//! One process's work on a run: lock, epoch, tool servers, drive, and what people are told and asked around it.

mod driver;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::Database;
use tracing::Instrument as _;
use ua_core::{RunId, RunStatus, RunStop, Trace, span_in_words};
use ua_dispatch::StopSignal;
use ua_resume::UsageSummary;
use ua_runner::{Conclusion, LockError, PastKnown, RunLock, TakingOver, Worked, owner_stamp};
use ua_store::{FleetStore as _, OwnerStamp, RunRecord, RunRecords, RunStore as _, Store, budgets_with};

use crate::alert::Alerts;
use crate::error::{HostError, Kind};
use crate::hint::{Word, text};
use crate::home;
use crate::host::Host;
use crate::job::{Beginning, Begins};
use crate::launch::Launch;
use crate::people::{Begun, End, People, Presence, UsedBefore};
use crate::servers::Handover;
use crate::{budgets, questions, restart, servers as tool_servers, tree};

use self::driver::{Driver, Taken};

/// How this process's work on a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The run succeeded.
    Succeeded,
    /// The run failed or was cancelled.
    Failed,
    /// It waits for a person, or was stopped and can be resumed.
    Waiting,
    /// The model provider is not available; it can be resumed.
    Provider,
    /// The model provider refused, and refuses the same request again: it can be resumed, or forked, once that is corrected.
    Refused,
    /// A signal asked this process to stop; it can be resumed.
    Interrupted,
    /// The run succeeded, and what it came to could not be shown where it was to be read.
    NotShown,
}

impl Ending {
    fn of(conclusion: &Conclusion) -> Self {
        match conclusion {
            Conclusion::Succeeded { .. } => Self::Succeeded,
            Conclusion::Failed { .. } | Conclusion::Cancelled => Self::Failed,
            Conclusion::Waiting { .. } => Self::Waiting,
            Conclusion::Stopped { reason, .. } => match reason {
                RunStop::Interrupt => Self::Interrupted,
                RunStop::Provider => Self::Provider,
                RunStop::ProviderRefused | RunStop::UnknownModel => Self::Refused,
                RunStop::Budget | RunStop::Fingerprint | RunStop::ToolServer | RunStop::Idle => Self::Waiting,
            },
        }
    }
}

/// What one life of a run, from its acquisition to the end of this process's work on it, came to.
struct Life {
    ending: Ending,
    records: RunRecords,
}

/// How a session takes the lock of its run.
#[derive(Debug)]
pub(crate) enum Taking {
    /// Nobody drives it.
    Free,
    /// A living process that drives the run is ended first.
    Over,
    /// It was stored just now by who begins it; once the run was taken, others may begin.
    Begun(Begins),
    /// It was stored just now, as a fork.
    Forked,
}

/// Takes the run and drives it to a conclusion of this process. While somebody is here, a run that would wait asks them, and goes on as
/// a resume would.
pub(crate) async fn run(
    host: &Host,
    people: &Arc<dyn People>,
    store: Database,
    run: RunRecord,
    launch: &Launch,
    taking: Taking,
) -> Result<Ending, HostError> {
    let store = Arc::new(store);
    let ending = Box::pin(shared(host, people, &store, run, launch, taking)).await;
    if let Some(store) = Arc::into_inner(store) {
        home::close(store);
    }
    ending
}

/// The same with a database that others of this process use as well.
pub(crate) async fn shared(
    host: &Host,
    people: &Arc<dyn People>,
    store: &Arc<Database>,
    run: RunRecord,
    launch: &Launch,
    taking: Taking,
) -> Result<Ending, HostError> {
    let (name, is_new) = (run.run_id.clone(), matches!(taking, Taking::Begun(_) | Taking::Forked));
    let servers = match &taking {
        Taking::Begun(begins) => begins.servers.clone(),
        Taking::Free | Taking::Over | Taking::Forked => Handover::default(),
    };
    let ending = Box::pin(work_on(host, people, store, run, launch, (taking, servers.clone()))).await;
    // Where the run was not driven, nobody took them over.
    servers.end().await;
    if ending.is_err() {
        // A run that was stored and is not begun, or was put down, is to be found on the page, too.
        restart::write(host.home(), store).await;
    }
    ending.map_err(|error| error.of_run(&name, is_new))
}

async fn work_on(
    host: &Host,
    people: &Arc<dyn People>,
    store: &Arc<Database>,
    run: RunRecord,
    launch: &Launch,
    (taking, servers): (Taking, Handover),
) -> Result<Ending, HostError> {
    let (home, env) = (host.home(), host.env());
    let alerts = Alerts::from_settings(host.settings(), home)?;
    // A run that is to end calls nothing more, so it may end whatever the settings say.
    if run.spec.tools.builtin && run.end_mark().is_none() {
        tool_servers::check_builtin(&host.settings().clone().begun_in(launch.folder()), home.root())?;
    }
    let owner = owner_stamp(Trace::new(env));
    let is_taken_over = matches!(taking, Taking::Over);
    let mut beginning = None;
    let lock = match taking {
        Taking::Over => {
            let told = |step| people.remark(&taking_over(step));
            RunLock::take_over(&home.locks(), &run.run_id, &owner, env, &told).await?
        }
        Taking::Free => RunLock::take(&home.locks(), &run.run_id, &owner)?,
        Taking::Begun(begun) => {
            beginning = Some(begun.beginning);
            RunLock::take(&home.locks(), &run.run_id, &owner).map_err(|error| stored_already(error, &run.run_id))?
        }
        Taking::Forked => {
            RunLock::take(&home.locks(), &run.run_id, &owner).map_err(|error| stored_already(error, &run.run_id))?
        }
    };
    let driven = async {
        // Before the run is taken: each tool server needs a lock file.
        home.can_lock(Word::NothingBegun)?;
        // A process that was asked to end may have ended the run.
        let mut run = if is_taken_over {
            store.run(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?
        } else {
            run
        };
        let stop = people.stop_signal(env)?;
        let is_attended = people.presence() == Presence::Here;
        let run_id = run.run_id.clone();
        let mut launch = launch.clone();
        loop {
            let trace = Trace::new(env);
            let span = host.spans().begin_run(&run, &trace);
            let begun = (run, beginning.take(), servers.clone());
            let owner = lock.after_those_before(owner_stamp(trace));
            let life = Box::pin(life(host, people, store, begun, &launch, &stop, owner)).instrument(span);
            let mut life = life.await?;
            let waits = life.ending == Ending::Waiting && life.records.run.status == RunStatus::WaitingForHuman;
            if waits && is_attended && !stop.is_stopping() {
                match questions::ask_all(host, people.as_ref(), store, &run_id).await {
                    Ok(true) => {
                        // What a person changed with this command is stored by now.
                        launch.accept.clear();
                        launch.accepted_servers = None;
                        launch.accepted_policy = None;
                        launch.budgets.clear();
                        run = life.records.run;
                        continue;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        if error.kind() == Kind::Left {
                            people.left(&error);
                        } else {
                            people.report(&error);
                        }
                        if error.kind() == Kind::Interrupted {
                            life.ending = Ending::Interrupted;
                        }
                    }
                }
                // What was answered meanwhile, here or elsewhere, is not shown as open.
                life.records = records_of(store.as_ref(), &run_id).await?;
            } else if let Some(alerts) = &alerts {
                alerts.tell(people.as_ref(), &life.records).await;
            }
            crate::fleet::withdraw_ended(store, &life.records.run).await;
            let next_command = restart::next_command(home, &life.records.run);
            let taken_by = RunLock::taker(&home.locks(), &run_id).map(|taker| taker.pid);
            if let Err(error) = people.show_end(&End { records: &life.records, next_command, taken_by }) {
                people.report(&error);
                // Whoever wanted to read it did not get it: that is no success. What else the run came to stays.
                if life.ending == Ending::Succeeded {
                    life.ending = Ending::NotShown;
                }
            }
            return Ok(life.ending);
        }
    };
    let ending: Result<Ending, HostError> = Box::pin(driven).await;
    if ending.is_err() {
        // Where the error kept it from leaving the run in order, nobody killed it.
        lock.note_error();
    }
    ending
}

/// What is done about the process that drives a run which is taken from it, as a sentence.
fn taking_over(step: TakingOver) -> String {
    match step {
        TakingOver::Asked { pid, patience } => format!(
            "process {pid} drives the run and was asked to end; waiting up to {} for the calls that it is in to finish",
            span_in_words(patience)
        ),
        TakingOver::Killed { pid } => {
            format!("process {pid} did not end, and was killed; what it was doing is unknown")
        }
    }
}

/// One life of a run: epoch, tool servers, drive. Others may begin a run of the same job once it was taken, for whoever looks then sees it
/// from any place.
async fn life(
    host: &Host,
    people: &Arc<dyn People>,
    store: &Arc<Database>,
    (run, beginning, servers): (RunRecord, Option<Beginning>, Handover),
    launch: &Launch,
    stop: &StopSignal,
    owner: OwnerStamp,
) -> Result<Life, HostError> {
    let (home, env) = (host.home(), host.env());
    let trace = owner.trace.clone();
    // Which of two copies counts is decided before anybody accepts what one of them does not know.
    home.refuse_copies(store.as_ref(), &run).await?;
    let past = PastKnown::of(store.as_ref(), &run).await?;
    let port = host.seams().store(store.clone());
    // Before the run is taken: one that was never taken may not have its folder yet, a fork not its files.
    if run.lease_epoch == 0 && run.spec.artifacts.workspace_dir.is_some() {
        home.refuse_shared(store, &run.run_id, Path::new(&run.workspace_dir)).await?;
    }
    let is_taken_again = run.lease_epoch > 0;
    let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
    let workspace = home.make_workspace(&run)?.in_queue(queued.map(|entry| entry.state));
    let acquired_at = env.now();
    let (lease, run) = port.acquire_run(&run.run_id, &owner, acquired_at).await.map_err(|error| {
        let failure = HostError::store("take the run", &error);
        if error.is_refusal() && failure.hint_text().is_none() {
            failure.hint("`ua runs list` shows its state; `ua answer` and `ua runs cancel` work from anywhere")
        } else {
            failure
        }
    })?;
    drop(beginning);
    if let Err(error) = ua_runner::place_input_files(&run, &workspace, port.as_ref()).await {
        return Err(driver::put_down(port.as_ref(), &lease, env, error.into()).await);
    }
    host.spans().link_earlier(&run, &trace);
    // For people, beside the work: it is there before anything is asked or sent.
    let page = tokio::spawn({
        let (host, store) = (host.clone(), store.clone());
        async move { restart::write(host.home(), &store).await }
    });
    if !launch.budgets.is_empty() {
        let records = port.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
        let made_by = host.settings().user();
        budgets::apply(people.as_ref(), port.as_ref(), &records, &launch.budgets, &made_by, env).await?;
    }
    // Not through the seams: people look, the run does not depend on it.
    let overrides = store.overrides(&run.run_id).await.map_err(|e| HostError::store("read the budgets", &e))?;
    let told = Box::pin({
        let (people, store, run, next_command) =
            (people.clone(), store.clone(), run.clone(), restart::next_command(home, &run));
        async move {
            let used = if is_taken_again { Some(used_before(store.as_ref(), &run.run_id).await?) } else { None };
            people.begun(&Begun {
                run: &run,
                next_command,
                budgets: budgets_with(&run.spec.budgets, &overrides),
                held: Duration::from_millis(run.held_millis),
                used,
            });
            Ok(())
        }
    });
    let driver = Driver {
        host: host.clone(),
        people: people.clone(),
        store: store.clone(),
        port: port.clone(),
        launch: launch.clone(),
        trace,
        above: None,
        servers,
    };
    let taken = Taken { run, lease, past, workspace: workspace.clone(), acquired_at, page: Some(page) };
    let worked = driver.work(taken, told, stop).await;
    people.paused();
    let Worked { conclusion, run, is_driven } = worked?;
    let records = records_of(port.as_ref(), &run.run_id).await?;
    // The run's end is stored; a file or a front door that only repeats it must not turn it into a failure.
    if !is_driven && ua_runner::write_conclusion(&workspace, &records).is_err() {
        tracing::warn!("the completion file could not be written");
    }
    restart::write(home, store).await;
    Ok(Life { ending: Ending::of(&conclusion), records })
}

/// What a run used before it was taken now, of what its driver reads of it as well.
async fn used_before(store: &dyn Store, run: &RunId) -> Result<UsedBefore, HostError> {
    let records = ua_runner::standing_of(store, run).await;
    let records = records.map_err(|e| HostError::store("read what the run used", &e))?;
    let usage = UsageSummary::of(&records);
    Ok(UsedBefore { tool_calls: records.calls_from(0), tokens: usage.total_tokens, costs: usage.cost })
}

/// Everything about a run, with what its sub-agents ask: that waits for the same person.
async fn records_of(store: &dyn Store, run: &RunId) -> Result<RunRecords, HostError> {
    let mut records = store.load(run).await.map_err(|e| HostError::store("load the run", &e))?;
    records.questions.extend(tree::questions_below(store, &records).await?);
    Ok(records)
}

/// The lock of a run that was stored just now cannot be made: the command again would make another run.
fn stored_already(error: LockError, run: &RunId) -> HostError {
    match error {
        LockError::Held { .. } => error.into(),
        LockError::Io { ref source, .. } => {
            let helps = crate::paths::mend_folder(source);
            let stored = text(format!("run {run} is stored; {helps}, then "));
            HostError::from(error).hint([stored, Word::Resume("")]).not_begun().of_run(run, true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_stored_is_resumed_and_not_started_again() {
        let run = RunId::parse("run_1").unwrap();
        let full = LockError::Io { path: "/locks/run_1.run".into(), source: std::io::ErrorKind::StorageFull.into() };
        let refused = stored_already(full, &run);
        assert_eq!(refused.kind(), Kind::Storage);
        assert_eq!(
            refused.hint_text(),
            Some("run run_1 is stored; make room on that disk, then `ua resume run_1`; nothing was sent")
        );
        let held = stored_already(LockError::Held { run: run.clone(), owner: None }, &run);
        assert_eq!(held.kind(), Kind::Waiting);
    }
}
