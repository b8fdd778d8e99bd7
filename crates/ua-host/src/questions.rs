//! Questions of runs: which are open, and storing what a person answered.
//!
//! Durable Jobs v1 spec §6 (escalation). An answer goes one way, whoever gives it and wherever: into the database, from which the owner
//! of the run takes it when it goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Database;
use ua_core::{Audience, CallId, QuestionId, RunId, Timestamp, span_in_words};
use ua_dispatch::{CallProgress, Elicitations};
use ua_ledger::{LateReplies as _, NotTaken};
use ua_resume::answers::{self, words};
pub use ua_resume::answers::{Beside, KnownFact, Reach, WayToAnswer, Whose, chosen};
use ua_runner::{LateFile, RunEvent, RunLock, Watcher};
use ua_store::rules::UNPAID;
use ua_store::{
    Answer, AnswerRecord, CallRecord, Choice, FleetStore as _, Forgotten, LedgerStore as _, PastStore as _,
    QuestionKind, QuestionRecord, QuestionStatus, QuestionsOf, RunRecord, RunStore, Store, Turns,
};

use crate::corrections;
use crate::error::{HostError, Kind};
use crate::home::Home;
use crate::host::Host;
use crate::launch::Launch;
use crate::pages::Due;
use crate::people::{People, Presence};
use crate::progress;
use crate::providers;
use crate::restart;
use crate::servers;
use crate::settings::Settings;
use crate::tree;

/// How often it is looked, while a question is asked here, whether it still needs an answer.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What became of a question that was asked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Whoever is here answered it.
    Answered,
    /// It no longer needs an answer: it was answered elsewhere, or its run is to end.
    Settled,
    /// It is left open.
    LeftOpen,
}

/// How long somebody who is here has to answer a tool that waits on its connection.
const ATTENDED: Duration = Duration::from_hours(1);

/// Whom an answer to a question reaches.
///
/// # Errors
/// The database cannot be read.
pub async fn reach(store: &Database, question: &QuestionRecord) -> Result<Reach, HostError> {
    let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(Reach::of(question, Whose::of(&run), ua_runner::may_be_driven(&run)))
}

/// What there is to be known about a question beside its text.
///
/// # Errors
/// The database cannot be read.
pub async fn beside(home: &Home, store: &Database, question: &QuestionRecord) -> Result<Beside, HostError> {
    let attempts = match &question.call_id {
        Some(call) => {
            let read = store.attempts(call).await;
            read.map_err(|e| HostError::store("read the attempts", &e))?
        }
        None => Vec::new(),
    };
    let call = match &question.call_id {
        Some(call) => {
            Some(ua_store::LedgerStore::call(store, call).await.map_err(|e| HostError::store("read the call", &e))?)
        }
        None => None,
    };
    // The turn of a call that is asked about is not committed, so it is in no history yet.
    let messages = match &call {
        Some(call) => {
            let turn = call.position.turn;
            store.load_of(&question.run_id, Turns::Range(turn, turn)).await.map(|records| records.messages)
        }
        None => store.history(&question.run_id).await,
    };
    let messages = messages.map_err(|e| HostError::store("read the history", &e))?;
    let late = question.call_id.as_ref().map(|call| LateFile::at(home.late_replies()).about(call)).unwrap_or_default();
    let reach = reach(store, question).await?;
    let mut known = answers::known(question, call.as_ref(), &attempts, &messages, &late, reach);
    let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    known.extend(what_helps(&run, question));
    known.extend(read_by(store, question).await?);
    // Of several clients that are open, which one waits.
    if ua_store::is_gateway(&run) {
        known.insert(0, KnownFact { name: SESSION, text: crate::text::line(&run.spec.objective, 400) });
    }
    let top = tree::top(store, &question.run_id).await?;
    // Two of them may ask the same.
    if ua_store::is_task(&run) {
        known.insert(0, answers::sub_agent(&run.spec.objective, &top));
    }
    if let Some(fact) = of_an_older_copy(question, &top, &unaccepted(home, store, &top).await) {
        known.insert(0, fact);
    }
    let resume = restart::how_to_resume(store, &top).await?;
    Ok(Beside { known, reach, resume, drives: false })
}

/// Which calls read what others wrote and what is private, where that is why a person is asked.
async fn read_by(store: &Database, question: &QuestionRecord) -> Result<Vec<KnownFact>, HostError> {
    if question.detail["reasons"].is_null() {
        return Ok(Vec::new());
    }
    let records = store.load(&question.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
    Ok(answers::read_by(question, &records.calls))
}

/// What helps where the model provider refused the credentials, or their account cannot pay: a process has them from its environment or its configuration, as they were when
/// it was started, so no answer that it is given changes them.
pub fn what_helps(run: &RunRecord, question: &QuestionRecord) -> Option<KnownFact> {
    if question.kind != QuestionKind::AuthFailure || question.call_id.is_some() {
        return None;
    }
    let audience = Audience::of(&run.entrypoint);
    if question.detail.get(UNPAID).is_some() {
        let again = audience.pick(
            format!("then answer `retry` and `ua resume {}`", run.run_id),
            "then answer `retry`, and start the program again".to_owned(),
        );
        let text = format!(
            "add credit to the account at the provider, or raise its limit there, {again}; its key stays as it is"
        );
        return Some(KnownFact { name: WHAT_HELPS, text });
    }
    let provider = Launch::from_stored(&run.launch).ok()?.provider_name().to_owned();
    let correct = match providers::key_names(&provider) {
        Some((variable, setting)) => {
            format!("set {variable} in the shell to a valid key (or `{setting}` in the configuration)")
        }
        None => format!("correct the credentials of the provider `{provider}`"),
    };
    let again = audience.pick(
        format!("then `ua resume {}`, and answer `retry` there", run.run_id),
        "then answer `retry`, and start the program again".to_owned(),
    );
    let text = format!("{correct}, {again}: a process keeps the key that it was started with");
    Some(KnownFact { name: WHAT_HELPS, text })
}

/// What `effects.log` knows of a tree that nobody drives and this copy of the database does not, as long as nobody accepted it: its runs are not
/// resumed. A living process has what it sent in its next write.
async fn unaccepted(home: &Home, store: &Database, top: &RunId) -> Vec<Forgotten> {
    if RunLock::is_held(&home.locks(), top) {
        return Vec::new();
    }
    store.forgotten(top).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "whether the database is an older copy cannot be told");
        Vec::new()
    })
}

/// That a question is as it was when a copy of the database was made, with what came of its call since.
fn of_an_older_copy(question: &QuestionRecord, top: &RunId, unaccepted: &[Forgotten]) -> Option<KnownFact> {
    let last = unaccepted.last()?;
    let (call, id) = (question.call_id.as_ref().map(CallId::as_str), question.question_id.as_str());
    // What came of the call says more than that somebody answered.
    let is_of_call =
        |known: &&Forgotten| known.word.is_none() && call.is_some() && known.tool_call_id.as_deref() == call;
    let is_word = |known: &&Forgotten| known.question_id.as_deref() == Some(id);
    let about = unaccepted.iter().rfind(is_of_call).or_else(|| unaccepted.iter().rfind(is_word));
    let which = about.unwrap_or(last).what();
    let text = format!(
        "the database is an older copy that is not accepted yet. Look what became of what effects.log knows and it does not (`ua db check` \
         lists all), then run `ua db accept {top}`: no answer is acted on before, and one may be asked for again then. It knows: {which}"
    );
    Some(KnownFact { name: OLDER_COPY, text: crate::text::line(&text, 400) })
}

/// The name of the fact that says that the database is an older copy.
pub const OLDER_COPY: &str = "older copy";

/// The name of the fact that says whose session asks, to which server, in which project.
const SESSION: &str = "session";

/// The name of the fact that says what helps.
pub const WHAT_HELPS: &str = "what helps";

/// The questions that wait for an answer, of one run with its sub-agents or of all.
pub async fn open(store: &Database, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, HostError> {
    let fail = |e| HostError::store("read the questions", &e);
    let mut open = Vec::new();
    match run {
        Some(run) => {
            for run in tree::with_those_below(store, run).await? {
                open.extend(store.open_questions(Some(&run)).await.map_err(fail)?);
            }
        }
        None => open = store.open_questions(None).await.map_err(fail)?,
    }
    open.retain(|question| question.status == QuestionStatus::Open);
    Ok(open)
}

/// Asks about every open question of a run and its sub-agents. `false` when one was left open, and when there is none: then the run waits
/// for the time from which an answer counts, and asking would not hasten it.
pub(crate) async fn ask_all(
    host: &Host,
    people: &dyn People,
    store: &Database,
    run: &RunId,
) -> Result<bool, HostError> {
    let open = open(store, Some(run)).await?;
    if open.is_empty() {
        return Ok(false);
    }
    for question in open {
        match ask(host, people, store, &question).await? {
            Asked::Answered | Asked::Settled => {}
            Asked::LeftOpen => return Ok(false),
        }
        // Whoever ended the run is not asked about the rest of it.
        let run = store.run(run).await.map_err(|e| HostError::store("read the run", &e))?;
        if run.end_mark().is_some() {
            return Ok(true);
        }
    }
    Ok(true)
}

/// Asks one question and stores the answer. One that is answered elsewhere meanwhile is not asked any longer, and whatever was said here, or not
/// said, is held against how it stands then.
///
/// # Errors
/// The database cannot be read; what [`People::ask`] says, and what [`answer`] says.
pub async fn ask(
    host: &Host,
    people: &dyn People,
    store: &Database,
    question: &QuestionRecord,
) -> Result<Asked, HostError> {
    put(host, people, store, question, false).await
}

/// The same; `drives` says whether this process is at work on the run meanwhile, and stops it at the signal that takes it from the prompt.
async fn put(
    host: &Host,
    people: &dyn People,
    store: &Database,
    question: &QuestionRecord,
    drives: bool,
) -> Result<Asked, HostError> {
    // Others of its run may have been asked before it.
    if let Some(settled) = settled_elsewhere(store, question).await? {
        people.tell(&settled);
        return Ok(Asked::Settled);
    }
    let beside = Beside { drives, ..beside(host.home(), store, question).await? };
    let said = tokio::select! {
        biased;
        said = people.ask(question, &beside) => said,
        () = until_settled(host, store, question) => Ok(None),
    };
    if let Some(settled) = settled_elsewhere(store, question).await? {
        let Err(left) = said else {
            people.tell(&settled);
            return Ok(Asked::Settled);
        };
        // The signal that took this process from the prompt has stopped the run, which closed the question: that was said.
        if drives && question.waits_on_its_connection() && !is_answered(store, question).await? {
            return Err(left);
        }
        // Whoever leaves with a signal leaves, and is not told that something waits for them.
        let top = tree::top(store, &question.run_id).await?;
        let kind = if left.kind() == Kind::Left { Kind::Waiting } else { left.kind() };
        return Err(HostError::new(kind, settled).hint(restart::how_to_resume(store, &top).await?));
    }
    let Some(said) = said? else { return Ok(Asked::LeftOpen) };
    answer(host, store, question, said).await?;
    Ok(Asked::Answered)
}

/// Whether somebody answered a question, here or elsewhere.
async fn is_answered(store: &Database, question: &QuestionRecord) -> Result<bool, HostError> {
    let current = store.question(&question.question_id).await.map_err(|e| HostError::store("read the question", &e))?;
    Ok(current.answer.is_some())
}

/// Why a question that is asked here no longer needs an answer; `None` while it does.
async fn settled_elsewhere(store: &Database, question: &QuestionRecord) -> Result<Option<String>, HostError> {
    let id = &question.question_id;
    let current = store.question(id).await.map_err(|e| HostError::store("read the question", &e))?;
    Ok(match (current.status, &current.answer) {
        (QuestionStatus::Open, _) => {
            let top = tree::top(store, &question.run_id).await?;
            let run = store.run(&top).await.map_err(|e| HostError::store("read the run", &e))?;
            let is_gateway = ua_store::is_gateway(&run);
            let what = if is_gateway { "session" } else { "run" };
            // What became of a call is a fact, whatever became of its session.
            let is_moot = !is_gateway || question.kind != QuestionKind::UnknownOutcome;
            run.end_mark()
                .filter(|_| is_moot)
                .map(|_| format!("question {id} no longer needs an answer: {what} {top} ends"))
        }
        (QuestionStatus::Answered | QuestionStatus::Closed, Some(answer)) => Some(format!(
            "question {id} was answered elsewhere in the meantime (by {}: {}); that answer counts",
            crate::text::line(&answer.by, 60),
            in_short(&current, answer)
        )),
        (QuestionStatus::Answered | QuestionStatus::Closed, None) => {
            let why = closed_because(store, &current).await?;
            Some(format!("question {id} no longer needs an answer: {why}"))
        }
    })
}

/// Why a question was closed that nobody answered.
async fn closed_because(store: &Database, question: &QuestionRecord) -> Result<String, HostError> {
    if let Some(why) = &question.closed_because {
        return Ok(why.clone());
    }
    let what = if is_of_session(store, question).await? { "session" } else { "run" };
    Ok(format!("its {what} continued, or ended, without an answer"))
}

/// Whether a question is about a call of a client at the gateway.
async fn is_of_session(store: &Database, question: &QuestionRecord) -> Result<bool, HostError> {
    let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(ua_store::is_gateway(&run))
}

/// What somebody answered, in a few words.
fn in_short(question: &QuestionRecord, answer: &AnswerRecord) -> String {
    answers::in_short(question.kind, answer.choice, answer.text.as_deref())
}

/// Waits until a question no longer needs an answer. A database that cannot be read now may be readable again; whoever answers is told of it.
async fn until_settled(host: &Host, store: &Database, question: &QuestionRecord) {
    loop {
        host.env().clock.sleep(LOOK_EVERY).await;
        if matches!(settled_elsewhere(store, question).await, Ok(Some(_))) {
            return;
        }
    }
}

/// Tells people when what a tool asked, which waits for the answer, needs none any more. It is answered through the database, and of that a run
/// that waits tells nobody.
async fn tell_when_settled(
    host: Host,
    people: Arc<dyn People>,
    store: Weak<Database>,
    question: QuestionId,
    until: Timestamp,
) {
    while host.env().now() < until {
        host.env().clock.sleep(LOOK_EVERY).await;
        // Whose run is over keeps nobody's database open.
        let Some(store) = store.upgrade() else { return };
        // A database that cannot be read now may be readable again.
        if store.question(&question).await.is_ok_and(|now| now.status != QuestionStatus::Open) {
            break;
        }
    }
    people.settled(&question);
}

/// A watcher that also asks, while somebody is here: a tool server that asks in the middle of a call waits on its connection. The answer
/// goes the same way as one from any other process: the run reads it from the database (MCP elicitation).
pub(crate) fn asking_watcher(host: Host, people: Arc<dyn People>, store: Arc<Database>, inner: Watcher) -> Watcher {
    let is_here = people.presence() == Presence::Here;
    Arc::new(move |signal| {
        let asking = if let RunEvent::Call(CallProgress::Asking { question, patience }) = &signal {
            Some((question.clone(), host.env().now().plus(*patience)))
        } else {
            None
        };
        inner(signal);
        let Some((question, until)) = asking else { return };
        let (id, watched) = (question.question_id.clone(), Arc::downgrade(&store));
        tokio::spawn(tell_when_settled(host.clone(), people.clone(), watched, id, until));
        if is_here {
            let (host, people, store) = (host.clone(), people.clone(), store.clone());
            tokio::spawn(async move {
                match put(&host, people.as_ref(), &store, &question, true).await {
                    Ok(Asked::Answered | Asked::Settled) => {}
                    // A prompt is called off as well when the run stops working, and with it whatever waited for the answer.
                    Ok(Asked::LeftOpen) => {
                        people.tell(&left_open(&question.question_id, until.since(host.env().now())));
                    }
                    Err(error) => people.report(&error),
                }
            });
        }
    })
}

/// What somebody is told who leaves a question of a tool open that waits on its connection.
fn left_open(question: &QuestionId, left: Duration) -> String {
    format!(
        "question {question} is left open, and the tool waits: `ua answer {question}` answers from another terminal within {}, after which \
         the request is declined",
        span_in_words(left)
    )
}

/// How long a tool server that waits is kept waiting: `UA_ELICITATION_WAIT` seconds, by default an hour for somebody who is here
/// and five minutes for somebody elsewhere; without anybody who may be asked it is told *no* at once.
pub(crate) fn patience(settings: &Settings, presence: Presence) -> Result<Elicitations, HostError> {
    let live_wait = match (settings.var("UA_ELICITATION_WAIT"), presence) {
        (Some(text), _) => text.parse().map(Duration::from_secs).map_err(|_| {
            HostError::usage(format!(
                "UA_ELICITATION_WAIT (tools.elicitation_wait) is a number of seconds, not {text:?}"
            ))
        })?,
        (None, Presence::Here) => ATTENDED,
        (None, Presence::Nobody) => Duration::ZERO,
        (None, Presence::Elsewhere) => Elicitations::default().live_wait,
    };
    Ok(Elicitations { live_wait })
}

/// The question that took the place of this one: about the same call, and open.
async fn asked_again(store: &Database, question: &QuestionRecord) -> Result<Option<QuestionId>, HostError> {
    if question.status == QuestionStatus::Open || question.call_id.is_none() {
        return Ok(None);
    }
    let of_run = store.open_questions(Some(&question.run_id)).await;
    let of_run = of_run.map_err(|e| HostError::store("look for the question", &e))?;
    let is_next = |next: &&QuestionRecord| next.status == QuestionStatus::Open && next.call_id == question.call_id;
    Ok(of_run.iter().find(is_next).map(|next| next.question_id.clone()))
}

/// Why a question takes no answer any more.
///
/// # Errors
/// The store cannot be read.
pub async fn settled(home: &Home, store: &Database, question: &QuestionRecord) -> Result<HostError, HostError> {
    let id = &question.question_id;
    if let Some(asked_again) = asked_again(store, question).await? {
        let before = question.answer.as_ref().map_or_else(String::new, |given| {
            format!(" ({} was about what was known then)", in_short(question, given))
        });
        let run = &question.run_id;
        return Ok(HostError::usage(format!("question {id} was asked again, as question {asked_again}{before}")).hint(
            format!(
                "`ua questions --run {run}` shows what changed, `ua answer {asked_again}` answers; nothing was answered"
            ),
        ));
    }
    let Some(given) = &question.answer else {
        let why = closed_because(store, question).await?;
        return Ok(HostError::usage(format!("question {id} no longer needs an answer: {why}"))
            .hint("`ua questions` lists what waits for an answer"));
    };
    let (what, by, at) = (in_short(question, given), &given.by, given.answered_at);
    let error = HostError::usage(format!("question {id} has already been answered: {what}, by {by}, at {at}"));
    let is_of_session = is_of_session(store, question).await?;
    Ok(match question.status {
        QuestionStatus::Closed => match &question.call_id {
            Some(call) => {
                let who = if is_of_session { "the gateway" } else { "the run" };
                error.hint(format!("{who} has acted on it; `ua calls show {call}` says what happened to the call"))
            }
            None => error
                .hint(format!("the run has acted on it; `ua runs show {}` shows what it did then", question.run_id)),
        },
        QuestionStatus::Open | QuestionStatus::Answered if is_of_session => {
            let comes = || "the same call, made again by its client, returns its outcome".to_owned();
            error.hint(left_in_doubt(question, given.choice).unwrap_or_else(comes))
        }
        QuestionStatus::Open | QuestionStatus::Answered => {
            let top = tree::top(store, &question.run_id).await?;
            let run = store.run(&top).await.map_err(|e| HostError::store("read the run", &e))?;
            error.hint(match who_continues(home, store, &run).await? {
                Continues::Process => format!("the process that drives run {top} takes the answer"),
                Continues::Prompt(how) => {
                    format!("run {top} continues in the process that was asking this as well; if none was: {how}")
                }
                Continues::Worker => {
                    format!(
                        "run {top} is in the queue, and a worker has it act on the answer; `ua queue list` shows it"
                    )
                }
                Continues::Command(how) | Continues::Program(how) => {
                    format!("to have the run act on the answer: {how}")
                }
            })
        }
    })
}

/// How what came of a call is recorded where whoever was asked ended its session instead: no answer to the question does it any more.
fn left_in_doubt(question: &QuestionRecord, choice: Choice) -> Option<String> {
    let is_left = question.kind == QuestionKind::UnknownOutcome && choice == Choice::Abort;
    let call = question.call_id.as_ref().filter(|_| is_left)?;
    Some(format!(
        "that ended its session and left the call in doubt: `ua calls resolve {call} --as happened --reason TEXT` records that it \
         happened, and `--as not_happened` that it did not"
    ))
}

/// Stores an answer and says what comes of it. The owner of a run applies answers when it goes on; what a run that has ended left open is
/// settled at once.
pub async fn answer(
    host: &Host,
    store: &Database,
    question: &QuestionRecord,
    answer: Answer,
) -> Result<String, HostError> {
    let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    let is_gateway = ua_store::is_gateway(&run);
    crate::gateway::only_people(host, &run, &format!("question {} must be answered", question.question_id)).await?;
    let choice = answer.choice;
    // Who says it is stored with it.
    crate::words::learn_of_run(host, store, &run).await;
    for (what, words) in [("answer", &answer.text), ("proof", &answer.proof)] {
        let Some(words) = words else { continue };
        crate::words::without_secrets(host, what, words)?;
    }
    if choice == Choice::Execute && question.status == QuestionStatus::Open {
        corrections::end_what_is_left_of_others(host, store, question).await?;
    }
    let settled = give(host, store, question, answer, &host.settings().user()).await?;
    if is_gateway {
        let applied = settled.first().map(|call| {
            format!(
                "call {} is {} now; the same call, made again by a client, returns that",
                call.call_id,
                ua_resume::call_standing(call)
            )
        });
        return Ok(match applied {
            Some(applied) if choice != Choice::Abort => format!("answered; {applied}"),
            Some(applied) => format!("{}; {applied}", after_gateway_answer(true)),
            None => after_gateway_answer(choice == Choice::Abort),
        });
    }
    if choice == Choice::Abort {
        let id = &run.run_id;
        let top = tree::top(store, id).await?;
        if ua_store::is_task(&run) {
            return after_end_of_sub_agent(store, &run, &top).await;
        }
        if ua_runner::may_be_driven(&run) {
            return Ok(format!("answered; run {id} starts no more calls, and the process that drives it ends it"));
        }
        if is_queued(store, &top).await? {
            return Ok(format!("answered; run {id} starts no more calls; it is in the queue, and a worker ends it"));
        }
        let how = restart::how_to_resume(store, &top).await?;
        return Ok(format!("answered; run {id} starts no more calls; to end it: {how}"));
    }
    Ok(match settled.first() {
        Some(call) => format!("answered; call {} is {} now", call.call_id, ua_resume::call_standing(call)),
        None => after_answer(host.home(), store, &run.run_id).await?,
    })
}

/// What comes of it that a person ended a sub-agent: the run above it continues, and is told.
async fn after_end_of_sub_agent(store: &Database, run: &RunRecord, top: &RunId) -> Result<String, HostError> {
    let id = &run.run_id;
    let above = store.run(top).await.map_err(|e| HostError::store("read the run", &e))?;
    let who = if ua_runner::may_be_driven(&above) {
        "the process that drives it is told".to_owned()
    } else if is_queued(store, top).await? {
        "it is in the queue, and a worker takes it".to_owned()
    } else {
        restart::how_to_resume(store, top).await?
    };
    Ok(format!(
        "answered; sub-agent {id} starts no more calls and ends; run {top} continues without it: {who}; to end everything instead: \
         `ua runs cancel {top}`"
    ))
}

/// Stores an answer, of a person or of a probe, and has the files of the run say so: nobody who reads them is sent to a question that has its answer.
/// Returns the calls that were settled with it.
///
/// # Errors
/// It is not taken, which changed nothing; or the database cannot be read.
pub async fn give(
    host: &Host,
    store: &Database,
    question: &QuestionRecord,
    answer: Answer,
    by: &str,
) -> Result<Vec<CallRecord>, HostError> {
    let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    let outside = servers::outside(host, &question.run_id)?;
    // What a run that has ended left open is settled with the answer, and of one that waits it is answered. The files of a client's session are its
    // gateway's.
    let due = (!ua_store::is_gateway(&run)).then(|| Due::of(host.home(), &run.root_run_id));
    let given = ua_ledger::give_answer(store, host.env(), question, answer, by, &outside).await;
    if let Some(due) = due {
        match &given {
            // Other runs of the lineage tell of a call that was settled, and the run and those above it of the answer.
            Ok(settled) if settled.is_empty() => due.make_tree(host.home(), store, &run.run_id).await?,
            // What failed may be stored.
            Ok(_) | Err(NotTaken::Store { .. } | NotTaken::Unsettled(_)) => due.make(host.home(), store, None).await?,
            Err(_) => due.withdraw(),
        }
        if given.is_ok() {
            log_answers(host, store, &run).await?;
        }
    }
    let settled = match given {
        Ok(settled) => settled,
        Err(why) => return Err(not_taken(host, store, question, why).await?),
    };
    restart::write(host.home(), store).await;
    Ok(settled)
}

/// Adds the answers to a run's questions to its logs at once, whether or not somebody drives it: whoever does takes them from the database, and one who
/// comes later finds their lines there.
async fn log_answers(host: &Host, store: &Database, run: &RunRecord) -> Result<(), HostError> {
    let asked = store.questions_of(QuestionsOf::Run(run.run_id.clone())).await;
    let asked = asked.map_err(|e| HostError::store("read the questions", &e))?;
    // A workspace that is gone has no log.
    if let Ok(workspace) = host.home().open_workspace(run)
        && !host.home().is_somebody_elses()
    {
        progress::keep_new_lines(&workspace, host.redactor(), ua_report::answer_lines(run, &asked));
    }
    Ok(())
}

/// What is told about an answer that was not taken, whoever gave it.
///
/// # Errors
/// The store, where that says it.
pub async fn not_taken(
    host: &Host,
    store: &Database,
    question: &QuestionRecord,
    why: NotTaken,
) -> Result<HostError, HostError> {
    let said = HostError::usage(why.to_string());
    Ok(match why {
        NotTaken::Settled(now) => settled(host.home(), store, &now).await?,
        NotTaken::RunEnded { run, .. } => said.hint(format!("`ua runs show {run}` says how it ended")),
        NotTaken::SessionEnded { choice, in_doubt, .. } => {
            let word = answers::word(question.kind, choice);
            let what = "its session was ended, and nothing is sent for that any more";
            let said =
                HostError::usage(format!("question {} does not take `{word}` now: {what}", question.question_id));
            said.hint(match in_doubt {
                Some(call) => format!(
                    "if it happened, answer `happened`; if it did not, `ua calls resolve {call} --as not_happened --reason TEXT` records that, \
                     and the same call, made again by a client, is sent"
                ),
                None => "if a client makes the same call again, you are asked again".to_owned(),
            })
        }
        NotTaken::NotOffered { question: id, choice } => {
            HostError::usage(format!("question {id} does not take `{}`", answers::word(question.kind, choice)))
                .hint(format!("it takes {}", words(question)))
        }
        NotTaken::NobodyWaits { run, .. } => {
            let top = tree::top(store, &run).await?;
            said.hint(restart::how_to_resume(store, &top).await?)
        }
        NotTaken::NoWords { .. } => said.hint("give them with --text, or let the model decide with `skip`"),
        NotTaken::Form { .. } => {
            said.hint("`ua questions --full` shows the form; give values with --values '{…}', or `decline`")
        }
        NotTaken::TooLong { what } => {
            HostError::usage(format!("--{what} is longer than {} bytes", ua_ledger::MAX_ANSWER))
                .hint("put it into a file of the workspace and name the file")
        }
        NotTaken::ProofOfNothing => HostError::usage(
            "--proof identifies what happened, so it is only allowed with `happened`, of a call that was sent",
        )
        .hint("give the answer without it"),
        NotTaken::ProofOfSeveral { .. } => said.hint(format!(
            "record each of them with what proves it, and answer then: {}",
            ua_store::rules::said_by_happened(question)
                .iter()
                .map(|call| format!("`ua calls resolve {call} --as happened --proof ID --reason TEXT`"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
        NotTaken::MayStillBegin { .. } => HostError::waiting(why.to_string())
            .hint("look again after that time, and answer then; the other answers are taken at once"),
        NotTaken::UnderWay { ref run, .. } => {
            let other = store.run(run).await.map_err(|e| HostError::store("read the run", &e))?;
            let is_gateway = ua_store::is_gateway(&other);
            let is_at_work =
                if is_gateway { RunLock::is_held(&host.home().locks(), run) } else { ua_runner::may_be_driven(&other) };
            let top = tree::top(store, run).await?;
            let hint = if is_at_work {
                "wait until it is over, look again, then answer".to_owned()
            } else if is_gateway {
                // Nobody resumes a session: what its calls came to is found out where the gateway starts, or ends it.
                format!(
                    "`ua gateway start`, or end the session with `ua runs cancel {top}`: then it is known what became of that call"
                )
            } else {
                format!(
                    "{}, or end it with `ua runs cancel {top}`: then it is known what became of that call",
                    restart::how_to_resume(store, &top).await?
                )
            };
            HostError::waiting(why.to_string()).hint(format!("{hint}; the other answers are taken at once"))
        }
        NotTaken::Store { doing, source } => HostError::store(doing, &source),
        NotTaken::Unsettled(source) => HostError::store("apply the answer", &source),
    })
}

/// What comes of an answer to a question of the gateway, whose sessions nobody resumes.
fn after_gateway_answer(is_abort: bool) -> String {
    let then = if is_abort {
        "this session starts no more calls, and its client continues in another one"
    } else {
        "a client that still waits gets the outcome, or what you decided about it, and so does the same call, made again"
    };
    format!("answered; {then}")
}

/// What is next once a question of a run was answered: another question, the process or the worker that has the run, or a resume.
pub async fn after_answer(home: &Home, store: &Database, run: &RunId) -> Result<String, HostError> {
    let top = tree::top(store, run).await?;
    let left = open(store, Some(&top)).await?;
    if let [first, more @ ..] = left.as_slice() {
        let (count, verb) = (ua_core::counted(left.len(), "question"), if more.is_empty() { "is" } else { "are" });
        let names: Vec<&str> = left.iter().take(3).map(|question| question.question_id.as_str()).collect();
        let rest = if left.len() > names.len() { ", …" } else { "" };
        let text = crate::text::line(&first.text, 100);
        return Ok(if more.is_empty() {
            format!("answered; {count} {verb} still open: {}: {text}", first.question_id)
        } else {
            format!("answered; {count} {verb} still open: {}{rest}; `ua questions --run {top}`", names.join(", "))
        });
    }
    let run = store.run(&top).await.map_err(|e| HostError::store("read the run", &e))?;
    if ua_store::is_gateway(&run) {
        return Ok(after_gateway_answer(run.end_mark().is_some()));
    }
    if !unaccepted(home, store, &top).await.is_empty() {
        return Ok(format!(
            "answered; the database is an older copy that is not accepted yet, so run {top} is not resumed until you have looked what \
             became of what effects.log knows (`ua db check`) and run `ua db accept {top}`; the answer may be asked for again then"
        ));
    }
    Ok(match who_continues(home, store, &run).await? {
        Continues::Process => format!("answered; the process that drives run {top} takes it"),
        Continues::Prompt(how) => {
            format!("answered; run {top} continues in the process that was asking this as well; if none was: {how}")
        }
        Continues::Worker => format!(
            "answered; run {top} is in the queue, and the next free worker takes it; `ua status` says why if none can"
        ),
        Continues::Command(how) => format!("answered; then resume: {how}"),
        Continues::Program(how) => format!("answered; then {how}"),
    })
}

/// Who has a run act on an answer that is stored. Whoever is told of an answer, the first time or again, is told the same.
#[derive(Debug, PartialEq, Eq)]
enum Continues {
    /// The process that drives it.
    Process,
    /// One that asks at a prompt, which the question is taken from now, or another command that has it for a moment: its stamp does not say.
    /// Otherwise this command.
    Prompt(String),
    /// A worker, by itself.
    Worker,
    /// This command.
    Command(String),
    /// The program that began the run, which has its model and its tools: what is to be done with it.
    Program(String),
}

async fn who_continues(home: &Home, store: &Database, top: &RunRecord) -> Result<Continues, HostError> {
    let id = &top.run_id;
    Ok(if ua_runner::may_be_driven(top) {
        Continues::Process
    } else if RunLock::is_held(&home.locks(), id) {
        Continues::Prompt(restart::how_to_resume(store, id).await?)
    } else if is_queued(store, id).await? {
        Continues::Worker
    } else {
        let how = restart::how_to_resume(store, id).await?;
        match Audience::of(&top.entrypoint) {
            Audience::Terminal => Continues::Command(how),
            Audience::Program => Continues::Program(how),
        }
    })
}

/// Whether a run is in the queue, from which workers have it continue.
async fn is_queued(store: &Database, run: &RunId) -> Result<bool, HostError> {
    let queued = store.queued(run).await.map_err(|e| HostError::store("read the queue", &e))?;
    Ok(queued.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use ua_evidence::testing::Story;
    use ua_store::{Choice, QuestionKind};

    use super::*;

    /// Whoever cannot pay is not sent to look for another key.
    #[test]
    fn an_account_that_cannot_pay_needs_no_other_key() {
        let mut run = Story::new(r#"{"objective": "x"}"#).records.run;
        run.launch = json!({"provider": {"kind": "anthropic"}});
        let helps = |detail: Value| {
            let question = QuestionRecord {
                question_id: QuestionId::parse("q_1").unwrap(),
                run_id: run.run_id.clone(),
                call_id: None,
                kind: QuestionKind::AuthFailure,
                text: "t".into(),
                detail,
                choices: vec![Choice::Continue, Choice::Abort],
                created_at: run.created_at,
                status: QuestionStatus::Open,
                answer: None,
                closed_because: None,
            };
            what_helps(&run, &question).map(|fact| fact.text)
        };
        let unpaid = helps(json!({ UNPAID: true })).unwrap();
        assert!(unpaid.starts_with("add credit to the account") && unpaid.contains("answer `retry`"), "{unpaid}");
        assert!(!unpaid.contains("ANTHROPIC_API_KEY"), "{unpaid}");
    }

    /// Whoever ended a session instead of saying what came of a call is told how that is said now.
    #[test]
    fn a_call_that_was_left_in_doubt_is_settled_by_another_command() {
        let of = |kind| QuestionRecord {
            question_id: QuestionId::parse("q_1").unwrap(),
            run_id: RunId::parse("run_1").unwrap(),
            call_id: Some(CallId::parse("call_1").unwrap()),
            kind,
            text: "t".into(),
            detail: json!({}),
            choices: vec![Choice::Happened, Choice::Abort],
            created_at: ua_core::Env::simulated(1).now(),
            status: QuestionStatus::Answered,
            answer: None,
            closed_because: None,
        };
        let doubt = of(QuestionKind::UnknownOutcome);
        let hint = left_in_doubt(&doubt, Choice::Abort).unwrap();
        assert!(hint.contains("`ua calls resolve call_1 --as happened --reason TEXT`"), "{hint}");
        assert_eq!(left_in_doubt(&doubt, Choice::Happened), None);
        assert_eq!(left_in_doubt(&of(QuestionKind::AuthFailure), Choice::Abort), None);
    }
}
