//! Runs of the same job that are in the way of another start of it: what they are looked for with, which of them is told first, and in which words.
//!
//! To start a job again would do again what such a run did, is doing, or may have done. Whether one is in the way is decided for every state of a
//! run in one place ([`met`]), for `ua job`, `ua submit`, `--check` and the question on a terminal alike: each that has not ended is, whatever a
//! person asked of it, and one that ended is while nobody knows what came of a call of it. They are looked for in the whole database, which may be
//! that of many machines: what locks say here says nothing about a run that another place has, so such a run is taken for one that may be at work.

use ua_core::{CallId, CallStatus, PrintedCommand, RunId, RunSpec, RunStatus, RunStop, ShowPath as _};
use ua_resume::{NextStep, Standing};
use ua_runner::RunLock;
use ua_store::{
    CallRecord, CallsOf, Choice, EndMark, FleetStore as _, LedgerStore as _, QuestionKind, QueueEntry, QueueState,
    RunHead, RunQuery, RunRecord, RunStore as _, Store as _, stored_name,
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
    /// What was answered in that run and is not acted on yet, in the words that answer.
    pub(super) answers: Option<String>,
    /// `effects.log` knows more of that run than the database, so nobody resumes it.
    pub(super) is_held: bool,
    /// The other runs of the same job that are in the way, each with how it stands, as the end of a sentence.
    others: Vec<(RunId, String)>,
}

impl From<Fate> for Foretold {
    fn from(fate: Fate) -> Self {
        Self { fate, is_in_doubt: false, answers: None, is_held: false, others: Vec::new() }
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

/// A run of the same job that is in the way.
struct Candidate {
    fate: Fate,
    is_in_doubt: bool,
}

impl Candidate {
    /// The smaller, the sooner it is told: one that is driven here; one of which nobody knows what it did; one that may be driven elsewhere, by a
    /// worker or not; one that waits for a worker; one that was left; one that ended in doubt, of which there is nothing to finish.
    fn rank(&self) -> u8 {
        match &self.fate {
            Fate::AtWork(_) => 0,
            Fate::Elsewhere(..) | Fate::Left(_) if self.is_in_doubt => 1,
            Fate::Queued(_, entry) if entry.state == QueueState::Claimed => 2,
            Fate::Elsewhere(..) => 3,
            Fate::Queued(..) => 4,
            Fate::Left(_) => 5,
            Fate::InDoubt(..) => 6,
            Fate::Start { .. } | Fate::Named(_) | Fate::Done(_) | Fate::Taken(_) => 7,
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
            Fate::AtWork(run) => working(run).to_owned(),
            Fate::InDoubt(run, _) => ended_in_doubt(run),
            Fate::Left(_) | Fate::Start { .. } | Fate::Named(_) | Fate::Done(_) | Fate::Taken(_) => {
                format!("is not finished{doubt}")
            }
        }
    }
}

/// How many runs are looked at for one of the same job.
pub(super) const LOOKED_AT: u32 = 2_000;

/// What becomes of a job of which there is a run that is in the way of another one, its files included; `None` when there is no such run.
pub(super) async fn in_the_way(
    host: &Host,
    store: &Database,
    spec: &RunSpec,
    launch: &Launch,
) -> Result<Option<Foretold>, HostError> {
    let mut found: Vec<Candidate> = Vec::new();
    // Those that ended are many, and leave those that did not their place.
    let open = [RunStatus::Queued, RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped];
    for statuses in [open.to_vec(), vec![RunStatus::Failed, RunStatus::Cancelled]] {
        for head in alike(store, spec, statuses).await? {
            let Some(run) = of_the_same_job(host, store, spec, &head).await? else { continue };
            let around = Around::of(host, store, &run, launch).await?;
            let is_in_doubt = around.doubt.is_some();
            found.extend(met(run, around).map(|fate| Candidate { fate, is_in_doubt }));
        }
    }
    // Runs that stand alike stay as they were found, the newest first.
    found.sort_by_key(Candidate::rank);
    let mut found = found.into_iter();
    let Some(first) = found.next() else { return Ok(None) };
    let others = found.filter_map(|other| Some((other.run()?.run_id.clone(), other.how()))).collect();
    // Of one that ended in doubt that is all there is to say.
    let is_in_doubt = first.is_in_doubt && !matches!(first.fate, Fate::InDoubt(..));
    let is_held = match first.run() {
        Some(run) => restart::is_held(store, run).await?,
        None => false,
    };
    let answers = match &first.fate {
        Fate::Left(run) => answers_in(store, run).await?,
        Fate::AtWork(_)
        | Fate::Elsewhere(..)
        | Fate::Queued(..)
        | Fate::InDoubt(..)
        | Fate::Start { .. }
        | Fate::Named(_)
        | Fate::Done(_)
        | Fate::Taken(_) => None,
    };
    Ok(Some(Foretold { fate: first.fate, is_in_doubt, answers, is_held, others }))
}

/// What was answered in a run and its sub-agents that no process has acted on yet, in the words that answer.
async fn answers_in(store: &Database, run: &RunRecord) -> Result<Option<String>, HostError> {
    let mut words: Vec<&str> = Vec::new();
    for run in tree::with_those_below(store, &run.run_id).await? {
        let asked = store.open_questions(Some(&run)).await.map_err(|e| HostError::store("read the questions", &e))?;
        words.extend(asked.iter().filter_map(|question| {
            let answer = question.answer.as_ref()?;
            Some(ua_resume::answers::given_word(question.kind, answer.choice))
        }));
    }
    words.dedup();
    Ok((!words.is_empty()).then(|| words.join(", ")))
}

/// The runs that are stored like this and may be of the same job, the newest first. A fork without a change is one.
pub(super) async fn alike(
    store: &Database,
    spec: &RunSpec,
    statuses: Vec<RunStatus>,
) -> Result<Vec<RunHead>, HostError> {
    let query = RunQuery { statuses, without_tasks: true, limit: LOOKED_AT, ..RunQuery::default() };
    let mut heads = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs of the same job", &e))?;
    heads.retain(|head| head.objective == spec.objective);
    Ok(heads)
}

/// The run of this row, if it is one of the same job.
pub(super) async fn of_the_same_job(
    host: &Host,
    store: &Database,
    spec: &RunSpec,
    head: &RunHead,
) -> Result<Option<RunRecord>, HostError> {
    let run = store.run(&head.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(Some(run).filter(|run| run.entrypoint == host.entrypoint() && *run.spec == *spec))
}

/// What there is around a run of the same job.
#[derive(Debug, Clone, Default)]
struct Around {
    /// A living process of this machine drives it.
    is_driven: bool,
    /// It is at another place.
    place: Option<Elsewhere>,
    /// It is in the queue.
    entry: Option<QueueEntry>,
    /// The first call of it of which nobody knows what came of it; not looked for where somebody is at work on the run.
    doubt: Option<CallId>,
    /// Nothing happened in it, and it gets no further as it is.
    got_nowhere: bool,
}

impl Around {
    async fn of(host: &Host, store: &Database, run: &RunRecord, launch: &Launch) -> Result<Self, HostError> {
        if run.status.is_terminal() {
            return Ok(Self { doubt: doubt(store, run).await?, ..Self::default() });
        }
        let place = Elsewhere::of(store, &run.run_id).await?;
        if place.is_none() && RunLock::is_held(&host.home().locks(), &run.run_id) {
            return Ok(Self { is_driven: true, ..Self::default() });
        }
        let entry = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
        let entry = match entry {
            Some(entry) if place.is_none() => Some(as_the_next_worker_finds_it(store, entry).await?),
            other => other,
        };
        let is_claimed = entry.as_ref().is_some_and(|entry| entry.state == QueueState::Claimed);
        let doubt = if is_claimed { None } else { doubt(store, run).await? };
        Ok(Self { is_driven: false, place, entry, doubt, got_nowhere: did_nothing_and_cannot(run, launch) })
    }
}

/// What a run of the same job that stands like this means for another start of it; nothing, if it is in nobody's way. A person's word that it is to
/// end changes nothing: until it has ended, what it was doing may still happen.
fn met(run: RunRecord, around: Around) -> Option<Fate> {
    let Around { is_driven, place, entry, doubt, got_nowhere } = around;
    match run.status {
        // Its end was judged, doubt included.
        RunStatus::Succeeded => None,
        RunStatus::Failed | RunStatus::Cancelled => doubt.map(|call| Fate::InDoubt(run, call)),
        RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman | RunStatus::Stopped => {
            if is_driven {
                return Some(Fate::AtWork(run));
            }
            // One that waits for a person, or was stopped, is theirs: they answer, and it may be resumed.
            let is_theirs = matches!(run.status, RunStatus::WaitingForHuman | RunStatus::Stopped);
            if is_theirs && got_nowhere {
                return None;
            }
            Some(match (entry, place) {
                (Some(entry), None) if !is_theirs => Fate::Queued(run, Box::new(entry)),
                (Some(entry), Some(_)) => Fate::Queued(run, Box::new(entry)),
                (None, Some(place)) => Fate::Elsewhere(run, place),
                (Some(_) | None, None) => Fate::Left(run),
            })
        }
    }
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
        let found = in_the_way(&there, &store, spec, launch).await;
        let found =
            found.unwrap_or_default().map(|found| Candidate { fate: found.fate, is_in_doubt: found.is_in_doubt });
        let told = found.as_ref().and_then(|found| Some((found.run()?, found.how())));
        if let Some((run, how)) = told {
            let (id, root) = (&run.run_id, there.home().root());
            let (first, kind) = if let Some(Fate::InDoubt(_, call)) = found.as_ref().map(|found| &found.fate) {
                (look_at(id, call), IN_DOUBT)
            } else {
                let next = restart::next_step(&store, run).await?;
                (format!("{} {}, and `ua runs show {id}` shows it", next.who(), next.does()), "unfinished_run")
            };
            let first = there.home().commands().complete(&first).into_owned();
            let how = format!("{how}, in another place: {}", root.shown());
            return Ok(Some(
                refused(request, run, kind, &how, &first, Another::After)
                    .field("root", root.to_string_lossy().into_owned()),
            ));
        }
    }
    Ok(None)
}

/// The kind of refusal of a job of which a run ended in doubt.
const IN_DOUBT: &str = "ended_in_doubt";

/// How a run stands that ended with a call of which nobody knows what came of it, as the end of a sentence.
fn ended_in_doubt(run: &RunRecord) -> String {
    let ended = if run.status == RunStatus::Failed { "failed" } else { "was cancelled" };
    format!("{ended}, and nobody knows what happened to a call that it sent")
}

/// How such a call is looked at, and how it is said what came of it: the run's questions ended with it, so it is recorded.
fn look_at(run: &RunId, call: &CallId) -> String {
    format!(
        "`ua calls list --run {run} --unknown` shows it, and {} says what became of it",
        ua_resume::correct_by_hand(call.as_str())
    )
}

/// The refusal of a job of which a run ended in doubt.
fn in_doubt(request: &JobRequest, run: &RunRecord, call: &CallId) -> HostError {
    refused(request, run, IN_DOUBT, &ended_in_doubt(run), &look_at(&run.run_id, call), Another::After)
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

/// The first call with an effect of a run, or of one of its sub-agents, that was sent, and of which nobody knows what came of it. Of a run that has
/// not ended its open turn is looked at. Of a task its sub-agent's calls say so, and what waits for the answer to a question of its own is no doubt,
/// nor what a person has said of it.
async fn doubt(store: &Database, run: &RunRecord) -> Result<Option<CallId>, HostError> {
    let has_ended = run.status.is_terminal();
    let below = tree::runs_below(store, &run.run_id).await?;
    let below = below.iter().filter(|child| has_ended || !child.status.is_terminal());
    for run in std::iter::once(run).chain(below) {
        let id = &run.run_id;
        let calls = if has_ended {
            store.calls(id, None).await
        } else {
            store.calls_of(CallsOf::Run(id.clone(), Some(run.turn_index.saturating_add(1)))).await
        };
        let calls = calls.map_err(|e| HostError::store("look for calls in doubt", &e))?;
        let asking = store.open_questions(Some(id)).await.map_err(|e| HostError::store("read the questions", &e))?;
        // A person has said what came of it, or that it stays as it is; whoever takes the run next records that.
        let is_said = |call: &CallRecord| {
            asking.iter().any(|question| {
                let said = question.answer.as_ref().map(|answer| answer.choice);
                question.kind == QuestionKind::UnknownOutcome
                    && question.call_id.as_ref() == Some(&call.call_id)
                    && matches!(said, Some(Choice::Happened | Choice::Skip))
            })
        };
        let asks = |call: &CallRecord| {
            asking.iter().any(|question| {
                question.kind == QuestionKind::Elicitation
                    && !question.waits_on_its_connection()
                    && question.call_id.as_ref() == Some(&call.call_id)
            })
        };
        let was_sent = |call: &&CallRecord| {
            let is_open = match call.status {
                CallStatus::Running => !asks(call),
                CallStatus::Unknown => true,
                CallStatus::Prepared
                | CallStatus::Succeeded
                | CallStatus::FailedDefinite
                | CallStatus::FailedReported
                | CallStatus::Cancelled => false,
            };
            is_open && call.policy.class.has_effect() && !call.name.is_task() && !is_said(call)
        };
        if let Some(call) = calls.iter().find(was_sent) {
            return Ok(Some(call.call_id.clone()));
        }
    }
    Ok(None)
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
        // Whoever has a run that is driven found nothing that keeps it.
        Fate::Queued(run, _) if found.is_held => held(host, request, run, "run_queued"),
        Fate::Left(run) if found.is_held => held(host, request, run, "unfinished_run"),
        Fate::Queued(run, entry) => in_queue(host, request, run, entry),
        Fate::Left(run) => {
            let stored = Standing::Stored(run.status, run.stop_reason);
            let standing = standing.unwrap_or(&stored);
            let how = left_as(run, standing, found.answers.as_deref());
            unfinished_run(host, request, launch, run, standing, &how).field("shown_status", standing.to_string())
        }
        Fate::InDoubt(run, call) => in_doubt(request, run, call),
        Fate::Start { .. } | Fate::Named(_) | Fate::Done(_) | Fate::Taken(_) => return None,
    };
    let doubt = found.is_in_doubt.then(|| "nobody knows what happened to a call that it sent".to_owned());
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
        .hint([
            text(format!("{first}; {} {begins} another run{means}; ", request.anew_in_words())),
            request.nothing_done(),
        ])
        .field("kind", kind)
        .field("run_id", &run.run_id)
        .field("status", run.status)
}

/// The refusal of a job of which a run did more than its database knows: how it stands there is not how it stands, and nobody resumes it.
fn held(host: &Host, request: &JobRequest, run: &RunRecord, kind: &'static str) -> HostError {
    let how = format!(
        "did more than the database says of it, which is an older copy and has it {}",
        ua_resume::after_turn(run.turn_index).trim_start()
    );
    let next = NextStep::held(run);
    let first = format!("{} {}", next.who(), next.does());
    refused(request, run, kind, &how, &host.home().commands().complete(&first), Another::After)
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
    let mut follow = format!("`ua runs tail {}` follows it", run.run_id);
    if run.end_mark().is_some() {
        follow.push_str(", and when it has ended, the same command starts the job again");
    }
    refused(request, run, "run_at_work", working(run), &follow, Another::Beside)
}

/// How a run stands that a process drives, as the end of a sentence.
fn working(run: &RunRecord) -> &'static str {
    match run.end_mark() {
        Some(EndMark::Cancel) => "was cancelled, and its process still works on the current call",
        Some(EndMark::Abort) => "was told to end, and its process still works on the current call",
        None => "is being worked on by another process",
    }
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

/// The refusal of a job of which a run was begun and not finished, and stands like this; `how` is that as the end of a sentence.
fn unfinished_run(
    host: &Host,
    request: &JobRequest,
    launch: &Launch,
    run: &RunRecord,
    standing: &Standing,
    how: &str,
) -> HostError {
    let id = &run.run_id;
    let next = NextStep::of(run);
    let does = next.does();
    let is_to_end = run.end_mark().is_some();
    let (resume, does) = if request.for_queue && next.is_resume() && !is_to_end {
        (format!("`ua submit --run {id}`"), "makes a worker finish it")
    } else if !next.is_resume() && !launch.asks_like(&run.launch) {
        // The model that is asked for now is the one to continue with.
        let (provider, model) = launch.model();
        let fork = PrintedCommand::of("ua fork").word(id.as_str());
        (fork.option("--provider", provider).option("--model", model).in_code(), does)
    } else {
        (next.who(), does)
    };
    let resume = host.home().commands().complete(&resume).into_owned();
    let finish = if is_to_end {
        format!("{resume} {does}, and then the same command starts the job again")
    } else if matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _)) {
        format!("`ua questions --run {id}` shows what it asks; once that is answered, {resume} {does}")
    } else {
        format!("{resume} {does}")
    };
    refused(request, run, "unfinished_run", how, &finish, Another::After)
}

/// How a run was left that nobody drives and that stands like this, as the end of a sentence; `answers` are the words that answered it.
pub fn left_as(run: &RunRecord, standing: &Standing, answers: Option<&str>) -> String {
    let answered;
    let how = match (standing, run.status) {
        (Standing::Elsewhere(place), _) => return format!("is at work in {}, or was left there", place.shown),
        (Standing::NotBegun, _) => return "is stored, and was never begun".to_owned(),
        (Standing::Outdated(_), _) => return "did more than the database, an older copy, says of it".to_owned(),
        (Standing::Answered, _) => {
            let words = answers.map_or_else(String::new, |words| format!(" ({words})"));
            answered = format!("was answered{words}, and not resumed,");
            answered.as_str()
        }
        (Standing::Interrupted(_), _) => "was interrupted",
        (_, RunStatus::WaitingForHuman) => "is waiting for an answer",
        (_, RunStatus::Stopped) => "was stopped",
        (
            _,
            RunStatus::Queued | RunStatus::Running | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled,
        ) => "was killed",
    };
    let to_end = match run.end_mark() {
        Some(EndMark::Cancel) => ", and was cancelled",
        Some(EndMark::Abort) => ", and was told to end",
        None => "",
    };
    format!("{how} {}{to_end}", ua_resume::after_turn(run.turn_index))
}

#[cfg(test)]
mod tests {
    use ua_core::{RunStop, Timestamp};
    use ua_evidence::testing::Story;
    use ua_store::QueueOptions;

    use super::*;
    use crate::database::OtherPlace;

    /// The name of what a run is met as.
    fn named(fate: Option<&Fate>) -> &'static str {
        match fate {
            None => "nothing",
            Some(Fate::AtWork(_)) => "at work",
            Some(Fate::Elsewhere(..)) => "elsewhere",
            Some(Fate::Queued(..)) => "queued",
            Some(Fate::Left(_)) => "left",
            Some(Fate::InDoubt(..)) => "in doubt",
            Some(Fate::Start { .. } | Fate::Named(_) | Fate::Done(_) | Fate::Taken(_)) => {
                unreachable!("of no other run")
            }
        }
    }

    /// Every status, whatever a person asked of the run, with and without a process, another place, an entry in the queue and a call in doubt.
    #[test]
    fn a_run_that_is_not_over_or_in_doubt_is_in_the_way_whatever_was_asked_of_it() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let call =
            story.asks("", &[("send_email", serde_json::json!({}), ua_evidence::testing::mail_policy())]).remove(0);
        let at = Timestamp::from_millis(1);
        let place =
            || Elsewhere { place: OtherPlace { id: "1".to_owned(), shown: "one".to_owned() }, questions: Vec::new() };
        let entry = |run: &RunId| QueueEntry {
            run_id: run.clone(),
            options: QueueOptions::at(at),
            queued_at: at,
            not_before: None,
            line: 0,
            seq: 0,
            state: QueueState::Ready,
            worker: None,
            words: 0,
            strikes: 0,
            why: None,
        };
        let mut met_as = std::collections::BTreeSet::new();
        for status in RunStatus::ALL.iter().copied() {
            for mark in [None, Some(EndMark::Cancel), Some(EndMark::Abort)] {
                for bits in 0..32_u8 {
                    let is = |bit: u8| bits & (1 << bit) != 0;
                    let (is_driven, elsewhere, queued, in_doubt, got_nowhere) = (is(0), is(1), is(2), is(3), is(4));
                    let mut run = story.records.run.clone();
                    run.status = status;
                    run.cancel_requested_at = (mark == Some(EndMark::Cancel)).then_some(at);
                    run.abort_requested_at = (mark == Some(EndMark::Abort)).then_some(at);
                    assert_eq!(run.end_mark(), mark);
                    let around = Around {
                        is_driven,
                        place: elsewhere.then(place),
                        entry: queued.then(|| entry(&run.run_id)),
                        doubt: in_doubt.then(|| call.clone()),
                        got_nowhere,
                    };
                    let is_theirs = matches!(status, RunStatus::WaitingForHuman | RunStatus::Stopped);
                    let expected = match status {
                        RunStatus::Failed | RunStatus::Cancelled if in_doubt => "in doubt",
                        RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => "nothing",
                        _ if is_driven => "at work",
                        _ if is_theirs && got_nowhere => "nothing",
                        _ if queued && (elsewhere || !is_theirs) => "queued",
                        _ if elsewhere => "elsewhere",
                        RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman | RunStatus::Stopped => {
                            "left"
                        }
                    };
                    let fate = met(run, around.clone());
                    assert_eq!(named(fate.as_ref()), expected, "{status}, {mark:?}, {around:?}");
                    met_as.insert(named(fate.as_ref()));
                }
            }
        }
        assert_eq!(met_as.len(), 6, "{met_as:?}");
    }

    /// A run that was told to end and is not over says both, and nobody is told to answer it or to have it finished.
    #[test]
    fn a_run_that_is_to_end_says_so_wherever_it_stands() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.ends(RunStatus::Stopped, Some(RunStop::Interrupt), "");
        let mut run = story.records.run.clone();
        run.status = RunStatus::Running;
        assert_eq!(working(&run), "is being worked on by another process");
        let killed = format!("was killed {}", ua_resume::after_turn(run.turn_index));
        assert_eq!(left_as(&run, &Standing::Crashed, None), killed);
        run.cancel_requested_at = Some(Timestamp::from_millis(1));
        assert!(working(&run).starts_with("was cancelled, and its process still works"));
        assert!(left_as(&run, &Standing::Crashed, None).ends_with(", and was cancelled"));
        assert_eq!(NextStep::of(&run).does(), "ends it");
    }

    /// Whoever has just said what came of a call is told what they said, and not that nobody knows it.
    #[test]
    fn a_run_that_was_answered_says_with_what() {
        let run = Story::new(r#"{"objective": "x"}"#).records.run;
        let words = left_as(&run, &Standing::Answered, Some("happened"));
        assert!(words.starts_with("was answered (happened), and not resumed, "), "{words}");
        assert!(left_as(&run, &Standing::Answered, None).starts_with("was answered, and not resumed, "));
    }
}
