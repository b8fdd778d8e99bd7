//! Runs of the same job that have not ended: what they are looked for with, which of them is told first, and in which words.
//!
//! To start a job again would do again what such a run did, or is about to do. They are looked for in the whole database, which may be that of
//! many machines: what locks say here says nothing about a run that another place has, so such a run is taken for one that may be at work.

use ua_core::{CallId, CallStatus, RunId, RunSpec, RunStatus, RunStop};
use ua_resume::{NextStep, Standing};
use ua_runner::RunLock;
use ua_store::{
    CallRecord, CallsOf, FleetStore as _, LedgerStore as _, QuestionKind, QueueEntry, QueueState, RunQuery, RunRecord,
    RunStore as _, Store as _, stored_name,
};

use super::{Fate, JobRequest};
use crate::Database;
use crate::elsewhere::Elsewhere;
use crate::error::HostError;
use crate::fleet::has_lost_its_worker;
use crate::hint::text;
use crate::host::Host;
use crate::launch::Launch;
use crate::restart;
use crate::tree;

/// What becomes of a job, and what else there is of it.
pub(crate) struct Foretold {
    /// By the run that matters most.
    pub(crate) fate: Fate,
    /// That run has a call of which nobody knows what came of it.
    pub(super) is_in_doubt: bool,
    /// The other unfinished runs of the same job, each with how it stands, as the end of a sentence.
    others: Vec<(RunId, String)>,
}

impl From<Fate> for Foretold {
    fn from(fate: Fate) -> Self {
        Self { fate, is_in_doubt: false, others: Vec::new() }
    }
}

/// How many other runs are named.
const NAMED: usize = 3;

impl Foretold {
    /// The other runs, in a sentence.
    pub(super) fn others_in_words(&self) -> Option<String> {
        let named: Vec<String> =
            self.others.iter().take(NAMED).map(|(run, how)| format!("run {run} of it {how}")).collect();
        let more = self.others.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(", and there are {more} more") };
        (!named.is_empty()).then(|| format!("{}{more}", named.join(", and ")))
    }
}

/// A run of the same job that has not ended.
struct Candidate {
    fate: Fate,
    is_in_doubt: bool,
}

impl Candidate {
    /// The smaller, the sooner it is told: one that is driven here; one of which nobody knows what it did; one that may be driven elsewhere, by a
    /// worker or not; one that waits for a worker; one that was left.
    fn rank(&self) -> u8 {
        match &self.fate {
            Fate::AtWork(_) => 0,
            Fate::Elsewhere(..) | Fate::Left(_) if self.is_in_doubt => 1,
            Fate::Queued(_, entry) if entry.state == QueueState::Claimed => 2,
            Fate::Elsewhere(..) => 3,
            Fate::Queued(..) => 4,
            Fate::Left(_)
            | Fate::Start { .. }
            | Fate::Named(_)
            | Fate::Done(_)
            | Fate::Taken(_)
            | Fate::InDoubt(..) => 5,
        }
    }

    fn run(&self) -> Option<&RunRecord> {
        match &self.fate {
            Fate::AtWork(run)
            | Fate::Elsewhere(run, _)
            | Fate::Queued(run, _)
            | Fate::Left(run)
            | Fate::Named(run)
            | Fate::Done(run)
            | Fate::Taken(run)
            | Fate::InDoubt(run, _) => Some(run),
            Fate::Start { .. } => None,
        }
    }

    /// As the end of a sentence that begins with the run.
    fn how(&self) -> String {
        let doubt = if self.is_in_doubt { ", with a call whose outcome is unknown" } else { "" };
        match &self.fate {
            Fate::Elsewhere(_, place) => format!("is not finished in {}{doubt}", place.shown()),
            Fate::Queued(_, entry) if entry.state == QueueState::Claimed => {
                format!("is with a worker of the queue `{}`", entry.options.queue)
            }
            Fate::Queued(_, entry) => format!("is in the queue `{}`{doubt}", entry.options.queue),
            Fate::AtWork(_) => "is being worked on by another process".to_owned(),
            Fate::Left(_)
            | Fate::Start { .. }
            | Fate::Named(_)
            | Fate::Done(_)
            | Fate::Taken(_)
            | Fate::InDoubt(..) => {
                format!("is not finished{doubt}")
            }
        }
    }
}

/// How many unfinished runs are looked at for one of the same job.
pub(super) const LOOKED_AT: u32 = 2_000;

/// What becomes of a job of which a run was begun and not finished, its files included; `None` when there is no such run.
pub(super) async fn unfinished(
    host: &Host,
    store: &Database,
    spec: &RunSpec,
    launch: &Launch,
) -> Result<Option<Foretold>, HostError> {
    let query = RunQuery {
        statuses: vec![RunStatus::Queued, RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped],
        without_tasks: true,
        limit: LOOKED_AT,
        ..RunQuery::default()
    };
    let heads = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs of the same job", &e))?;
    let mut found: Vec<Candidate> = Vec::new();
    for head in heads.iter().filter(|head| head.parent_run_id.is_none() && head.objective == spec.objective) {
        let run = store.run(&head.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
        if run.entrypoint != host.entrypoint() || run.end_mark().is_some() || *run.spec != *spec {
            continue;
        }
        let id = run.run_id.clone();
        if let Some(fate) = stands(host, store, run, launch).await? {
            let is_left = match &fate {
                Fate::Left(_) | Fate::Elsewhere(..) => true,
                Fate::Queued(_, entry) => entry.state != QueueState::Claimed,
                Fate::AtWork(_)
                | Fate::Start { .. }
                | Fate::Named(_)
                | Fate::Done(_)
                | Fate::Taken(_)
                | Fate::InDoubt(..) => false,
            };
            let is_in_doubt = is_left && is_in_doubt(store, &id, head.turn_index).await?;
            found.push(Candidate { fate, is_in_doubt });
        }
    }
    // Runs that stand alike stay as they were found, the newest first.
    found.sort_by_key(Candidate::rank);
    let mut found = found.into_iter();
    let Some(first) = found.next() else { return Ok(None) };
    let others = found.filter_map(|other| Some((other.run()?.run_id.clone(), other.how()))).collect();
    Ok(Some(Foretold { fate: first.fate, is_in_doubt: first.is_in_doubt, others }))
}

/// The refusal of a job of which a run was begun in another place of this user's and is not finished: where nobody said which place is meant, the
/// folder of the command decides, or the settings of a project, and neither is a word for doing it once more.
pub(crate) async fn in_another_place(
    host: &Host,
    request: &JobRequest,
    spec: &RunSpec,
    launch: &Launch,
) -> Result<Option<HostError>, HostError> {
    if request.new || request.again || request.run_id.is_some() {
        return Ok(None);
    }
    for home in host.home().other_places(host.settings(), &request.file) {
        let there = host.at(home);
        if there.home().is_unused() {
            continue;
        }
        // What cannot be read there is no matter of a job here.
        let Ok(store) = there.home().open_read_only() else { continue };
        let found = unfinished(&there, &store, spec, launch).await;
        let found =
            found.unwrap_or_default().map(|found| Candidate { fate: found.fate, is_in_doubt: found.is_in_doubt });
        let told = found.as_ref().and_then(|found| Some((found.run()?, found.how())));
        if let Some((run, how)) = told {
            let (id, root) = (&run.run_id, there.home().root());
            let first =
                format!("{} {}, and `ua runs show {id}` shows it", NextStep::of(run).who(), NextStep::of(run).does());
            let first = there.home().commands().complete(&first).into_owned();
            let how = format!("{how}, in another place: {}", root.display());
            return Ok(Some(
                refused(request, run, "unfinished_run", &how, &first, Another::After)
                    .field("root", root.display().to_string()),
            ));
        }
    }
    Ok(None)
}

/// A run of the same job that ended with a call of which nobody knows what came of it, the newest one, and the first such call. To start the job
/// again may do that again. Of one that succeeded its end was judged, doubt included.
pub(super) async fn ended_in_doubt(
    host: &Host,
    store: &Database,
    spec: &RunSpec,
) -> Result<Option<(RunRecord, CallId)>, HostError> {
    let query = RunQuery {
        statuses: vec![RunStatus::Failed, RunStatus::Cancelled],
        without_tasks: true,
        limit: LOOKED_AT,
        ..RunQuery::default()
    };
    let heads = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs of the same job", &e))?;
    for head in heads.iter().filter(|head| head.parent_run_id.is_none() && head.objective == spec.objective) {
        let run = store.run(&head.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
        if run.entrypoint != host.entrypoint() || *run.spec != *spec {
            continue;
        }
        if let Some(call) = left_in_doubt(store, &run.run_id).await? {
            return Ok(Some((run, call)));
        }
    }
    Ok(None)
}

/// The first call of a run that ended, or of one of its sub-agents, whose effect is in doubt.
async fn left_in_doubt(store: &Database, run: &RunId) -> Result<Option<CallId>, HostError> {
    let below = tree::runs_below(store, run).await?;
    for id in std::iter::once(run).chain(below.iter().map(|child| &child.run_id)) {
        let calls = store.calls(id, None).await.map_err(|e| HostError::store("look for calls in doubt", &e))?;
        let is_in_doubt = |call: &&CallRecord| {
            call.status == CallStatus::Unknown && call.policy.class.has_effect() && !call.name.is_task()
        };
        if let Some(call) = calls.iter().find(is_in_doubt) {
            return Ok(Some(call.call_id.clone()));
        }
    }
    Ok(None)
}

/// The refusal of a job of which a run ended in doubt. Its questions ended with it, so what became of the call is recorded.
fn in_doubt(request: &JobRequest, run: &RunRecord, call: &CallId) -> HostError {
    let (id, ended) = (&run.run_id, if run.status == RunStatus::Failed { "failed" } else { "was cancelled" });
    let look = format!(
        "`ua calls list --run {id} --unknown` shows it, and {} says what became of it",
        ua_resume::correct_by_hand(call.as_str())
    );
    let how = format!("{ended}, and nobody knows what came of a call that it sent");
    refused(request, run, "ended_in_doubt", &how, &look, Another::After)
}

/// What an unfinished run of the same job means for it; nothing, if it is in nobody's way.
async fn stands(host: &Host, store: &Database, run: RunRecord, launch: &Launch) -> Result<Option<Fate>, HostError> {
    let place = Elsewhere::of(store, &run.run_id).await?;
    if place.is_none() && RunLock::is_held(&host.home().locks(), &run.run_id) {
        return Ok(Some(Fate::AtWork(run)));
    }
    // One that waits for a person, or was stopped, is theirs: they answer, and it may be resumed.
    let is_theirs = matches!(run.status, RunStatus::WaitingForHuman | RunStatus::Stopped);
    if is_theirs && did_nothing_and_cannot(&run, launch) {
        return Ok(None);
    }
    let entry = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
    let entry = match entry {
        Some(entry) if place.is_none() => Some(as_the_next_worker_finds_it(store, entry).await?),
        other => other,
    };
    Ok(match (entry, place) {
        (Some(entry), None) if !is_theirs => Some(Fate::Queued(run, Box::new(entry))),
        (Some(entry), Some(_)) => Some(Fate::Queued(run, Box::new(entry))),
        (None, Some(place)) => Some(Fate::Elsewhere(run, place)),
        (Some(_) | None, None) => Some(Fate::Left(run)),
    })
}

/// An entry of the queue whose run nobody drives here: one whose worker has ended is there to be taken.
async fn as_the_next_worker_finds_it(store: &Database, entry: QueueEntry) -> Result<QueueEntry, HostError> {
    if entry.state != QueueState::Claimed {
        return Ok(entry);
    }
    let workers = store.fleet_state(0).await.map_err(|e| HostError::store("read the workers", &e))?.workers;
    let state = if has_lost_its_worker(&entry, &workers) { QueueState::Ready } else { entry.state };
    Ok(QueueEntry { state, ..entry })
}

/// Whether the open turn of a run, or of one of its sub-agents, has a call with an effect that was sent, and of which nothing came back. Of a task its
/// sub-agent's calls say so, and what waits for the answer to a question of its own is no doubt.
async fn is_in_doubt(store: &Database, run: &RunId, committed: u32) -> Result<bool, HostError> {
    let below = tree::runs_below(store, run).await?;
    let below = below.iter().filter(|child| !child.status.is_terminal()).map(|child| (&child.run_id, child.turn_index));
    for (run, committed) in std::iter::once((run, committed)).chain(below) {
        let calls = store.calls_of(CallsOf::Run(run.clone(), Some(committed.saturating_add(1)))).await;
        let calls = calls.map_err(|e| HostError::store("look for calls in doubt", &e))?;
        let asking = store.open_questions(Some(run)).await.map_err(|e| HostError::store("read the questions", &e))?;
        let asks = |call: &CallRecord| {
            asking.iter().any(|question| {
                question.kind == QuestionKind::Elicitation
                    && !question.waits_on_its_connection()
                    && question.call_id.as_ref() == Some(&call.call_id)
            })
        };
        let was_sent = |call: &CallRecord| {
            let is_open = match call.status {
                CallStatus::Running => !asks(call),
                CallStatus::Unknown => true,
                CallStatus::Prepared
                | CallStatus::Succeeded
                | CallStatus::FailedDefinite
                | CallStatus::FailedReported
                | CallStatus::Cancelled => false,
            };
            is_open && call.policy.class.has_effect() && !call.name.is_task()
        };
        if calls.iter().any(was_sent) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a run is in nobody's way: its provider refused its first request, so nothing happened, and it gets further as another run only, or the
/// job is started otherwise now.
fn did_nothing_and_cannot(run: &RunRecord, launch: &Launch) -> bool {
    let was_refused = match run.stop_reason.filter(|_| run.status == RunStatus::Stopped && run.turn_index == 0) {
        Some(RunStop::UnknownModel) => true,
        Some(RunStop::ProviderRefused) => !launch.asks_like(&run.launch),
        Some(
            RunStop::Provider
            | RunStop::Budget
            | RunStop::Interrupt
            | RunStop::Fingerprint
            | RunStop::ToolServer
            | RunStop::Idle,
        )
        | None => false,
    };
    was_refused && run.forked_at.is_none()
}

/// Why nothing is begun beside what was found; `None` where that keeps nobody from beginning. `standing` is that of a run that was left.
pub(crate) fn refusal(
    host: &Host,
    request: &JobRequest,
    launch: &Launch,
    found: &Foretold,
    standing: Option<&Standing>,
) -> Option<HostError> {
    let refused = match &found.fate {
        Fate::AtWork(run) => at_work(request, run),
        Fate::Elsewhere(run, place) => begun_elsewhere(request, run, place),
        Fate::Queued(run, entry) => in_queue(host, request, run, entry),
        Fate::Left(run) => {
            let stored = Standing::Stored(run.status, run.stop_reason);
            unfinished_run(host, request, launch, run, standing.unwrap_or(&stored))
        }
        Fate::InDoubt(run, call) => in_doubt(request, run, call),
        Fate::Start { .. } | Fate::Named(_) | Fate::Done(_) | Fate::Taken(_) => return None,
    };
    let doubt = found.is_in_doubt.then(|| "nobody knows what came of a call that it sent".to_owned());
    let more: Vec<String> = doubt.into_iter().chain(found.others_in_words()).collect();
    let others: Vec<&RunId> = found.others.iter().map(|(run, _)| run).collect();
    let refused = if others.is_empty() { refused } else { refused.field("other_runs", others) };
    Some(if more.is_empty() { refused } else { refused.and(&more.join("; ")) })
}

/// What another run of the same job would be.
#[derive(Clone, Copy)]
enum Another {
    /// Beside one that does, or will do, the same.
    Beside,
    /// After one that did some of it, as far as it came.
    After,
}

/// The refusal of a job of which there is a run already. `how` is how that stands, as the end of a sentence; `first`, what to do about it.
fn refused(
    request: &JobRequest,
    run: &RunRecord,
    kind: &'static str,
    how: &str,
    first: &str,
    another: Another,
) -> HostError {
    let begins = if request.for_queue { "queues" } else { "starts" };
    let means = match another {
        Another::Beside => " beside it, which repeats what that run does outside",
        Another::After => ", which may do again what that run did outside",
    };
    HostError::waiting(format!("run {} of the same job {how}", run.run_id))
        .hint([text(format!("{first}; `{}` {begins} another run{means}; ", request.anew())), request.nothing_done()])
        .field("kind", kind)
        .field("run_id", &run.run_id)
        .field("status", run.status)
}

/// The refusal of a job of which a run was begun in another place.
fn begun_elsewhere(request: &JobRequest, run: &RunRecord, place: &Elsewhere) -> HostError {
    let (id, turn, shown) = (&run.run_id, ua_resume::after_turn(run.turn_index), place.shown());
    let how = match run.status {
        RunStatus::WaitingForHuman => format!("is waiting for an answer in {shown}"),
        RunStatus::Stopped => format!("was stopped {turn} in {shown}"),
        RunStatus::Queued | RunStatus::Running | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => {
            let seen = run.seen_at.map_or_else(String::new, |at| format!(", last known to be alive at {at}"));
            format!("is at work in {shown}, or was left there {turn}{seen}")
        }
    };
    let first = format!(
        "{}whoever resumes it in that place finishes it, and submitting it there with `--run {id}` has a worker of that machine do it; {}",
        place.answers(id),
        place.if_gone("lets it continue here")
    );
    refused(request, run, "run_elsewhere", &how, &first, Another::After)
        .field("place", &place.place.shown)
        .field("machine", &place.place.id)
}

/// The refusal of a job of which a run is being driven.
fn at_work(request: &JobRequest, run: &RunRecord) -> HostError {
    let follow = format!("`ua runs tail {}` follows it", run.run_id);
    refused(request, run, "run_at_work", "is being worked on by another process", &follow, Another::Beside)
}

/// The refusal of a job of which a run is in the queue.
fn in_queue(host: &Host, request: &JobRequest, run: &RunRecord, entry: &QueueEntry) -> HostError {
    let (id, queue) = (&run.run_id, &entry.options.queue);
    let resume = restart::next_command(host.home(), run);
    let is_begun = run.status == RunStatus::Running;
    let (how, then) = match (entry.state, request.for_queue) {
        (QueueState::Claimed, _) => (
            format!("is with a worker of the queue `{queue}`"),
            format!(
                "`ua runs tail {id}` follows it, and if that worker is gone, another one takes it, or `{resume}` here"
            ),
        ),
        (QueueState::Ready | QueueState::Parked, for_queue) if is_begun => (
            format!("was left by a process that ended, and is in the queue `{queue}`"),
            if for_queue {
                "the next worker (`ua worker`) takes it, and `ua queue list` shows it".to_owned()
            } else {
                format!("the next worker (`ua worker`) takes it, or `{resume}` finishes it here")
            },
        ),
        (QueueState::Ready | QueueState::Parked, true) => (
            format!("is already in the queue `{queue}`"),
            "a worker (`ua worker`) takes it, and `ua queue list` shows it".to_owned(),
        ),
        (QueueState::Ready | QueueState::Parked, false) => (
            format!("is in the queue `{queue}`"),
            format!("a worker (`ua worker`) takes it, and `{resume}` runs it here"),
        ),
    };
    refused(request, run, "run_queued", &how, &then, Another::Beside)
        .field("queue", &entry.options.queue)
        .field("state", stored_name(&entry.state).to_string())
}

/// The refusal of a job of which a run was begun and not finished, and stands like this.
fn unfinished_run(
    host: &Host,
    request: &JobRequest,
    launch: &Launch,
    run: &RunRecord,
    standing: &Standing,
) -> HostError {
    let id = &run.run_id;
    let next = NextStep::of(run);
    let does = next.does();
    let (resume, does) = if request.for_queue && next.is_resume() {
        (format!("`ua submit --run {id}`"), "makes a worker finish it")
    } else if !next.is_resume() && !launch.asks_like(&run.launch) {
        // The model that is asked for now is the one to continue with.
        let (provider, model) = launch.model();
        (format!("`ua fork {id} --provider {provider} --model {model}`"), does)
    } else {
        (next.who(), does)
    };
    let resume = host.home().commands().complete(&resume).into_owned();
    let finish = if matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _)) {
        format!("`ua questions --run {id}` shows what it asks; once that is answered, {resume} {does}")
    } else {
        format!("{resume} {does}")
    };
    refused(request, run, "unfinished_run", &left_as(run, standing), &finish, Another::After)
}

/// How a run was left that nobody drives and that stands like this, as the end of a sentence.
pub fn left_as(run: &RunRecord, standing: &Standing) -> String {
    let how = match (standing, run.status) {
        (Standing::Elsewhere(place), _) => return format!("is at work in {place}, or was left there"),
        (Standing::NotBegun, _) => return "is stored, and was never begun".to_owned(),
        (Standing::Answered, _) => "was answered, and not resumed,",
        (Standing::Interrupted(_), _) => "was interrupted",
        (_, RunStatus::WaitingForHuman) => "is waiting for an answer",
        (_, RunStatus::Stopped) => "was stopped",
        (
            _,
            RunStatus::Queued | RunStatus::Running | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled,
        ) => "was killed",
    };
    format!("{how} {}", ua_resume::after_turn(run.turn_index))
}
