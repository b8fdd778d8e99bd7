//! Putting the record of a call right by a person's word, before and after the end of its run.
//!
//! Durable Jobs v1 spec §8.3. A call of a turn that is over is corrected whoever drives the run; the owner tells its model. A call of the
//! open turn belongs to whoever drives the run: it is corrected only while nobody does, and after what an earlier process left behind is
//! gone, so that nothing can still happen that was just said not to have happened. A gateway's broker has a call in doubt as long as its client is
//! connected; there the same word is the answer to its question, which the broker alone acts on, so that the call is settled once.

use crate::Database;
use ua_core::{CallStatus, CorrectedTo, RunId, Trace, on_one_line};
use ua_dispatch::{Fence, ToolTransport};
use ua_ledger::LateReplies as _;
use ua_mcp::LockDir;
use ua_runner::{Correctable, LateFile, LockError, MAX_REASON, RunLock, Uncorrectable, correctable, owner_stamp};
use ua_store::rules::{self, was_answered_beside};
use ua_store::{
    Answer, CallRecord, Choice, Correction, LateReply, LedgerStore as _, QuestionRecord, QuestionsOf, RunRecord, Store,
    StoreError,
};

use crate::error::HostError;
use crate::host::Host;
use crate::pages::Due;
use crate::{questions, restart, servers, tree};

/// What a person says about a call.
#[derive(Debug, Clone)]
pub struct NewCorrection {
    /// What it came to.
    pub outcome: CorrectedTo,
    /// How the person knows.
    pub reason: String,
    /// The other side's name for what happened.
    pub proof: Option<String>,
}

/// Refuses what can be known to be refused by looking only. Where the record says so already there is nothing to store: that, as a sentence.
///
/// # Errors
/// A usage error that says what to do instead.
pub fn check(call: &CallRecord, said: &NewCorrection) -> Result<Option<String>, HostError> {
    let id = &call.call_id;
    let already = || format!("call {id} is already recorded as {}", said.outcome);
    let shows = || format!("`ua calls show {id}` shows since when and by whom");
    let why = match correctable(call, said.outcome, &said.reason, said.proof.as_deref()) {
        Ok(Correctable::Anew) => return Ok(None),
        Ok(Correctable::Already) => return Ok(Some(format!("{}, and nothing was changed; {}", already(), shows()))),
        Err(why) => why,
    };
    Err(match why {
        Uncorrectable::NoReason => {
            HostError::usage("--reason is empty").hint("say how you know; it is kept with the call")
        }
        Uncorrectable::LongReason => HostError::usage(format!("--reason is longer than {MAX_REASON} bytes"))
            .hint("put it into a file and name the file"),
        Uncorrectable::ProofOfNothing => {
            HostError::usage("--proof identifies what happened, so it is only allowed with `--as happened`")
        }
        Uncorrectable::Task => {
            HostError::usage(format!("call {id} is a task: what it did is in the calls of its sub-agent"))
                .hint(format!("`ua calls list --run {}` shows them", RunId::of_task(id)))
        }
        Uncorrectable::AnsweredBy(source) => {
            HostError::usage(format!("call {id} was never sent: it was answered by call {source}"))
                .hint(format!("correct that one (`ua calls show {source}`); this one follows"))
        }
        Uncorrectable::NeverSent => HostError::usage(format!("call {id} was never sent"))
            .hint("there is nothing to correct; `ua calls list` shows what was sent"),
        Uncorrectable::OtherProof { has } => {
            let has = has.map_or_else(|| "no proof".to_owned(), |id| format!("the proof {}", on_one_line(&id)));
            HostError::usage(format!("{}, with {has}", already())).hint(shows())
        }
    })
}

/// How a person's word about a call was taken.
#[derive(Debug)]
pub enum Taken {
    /// The record says so: the call as it is now.
    Recorded(Box<CallRecord>),
    /// It is the answer to the question about the call, and the gateway's broker acts on it.
    Answered {
        /// The question.
        question: Box<QuestionRecord>,
        /// What it was answered with.
        choice: Choice,
    },
}

/// Stores what a person says about a call, as that person saw it, and writes the files anew that tell about it. Returns how it was taken, and what
/// comes of it.
///
/// # Errors
/// When it is refused; then nothing was changed.
pub async fn correct(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    said: NewCorrection,
) -> Result<(Taken, String), HostError> {
    let run = store.run(&call.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    crate::words::learn_of_run(host, store, &run).await;
    for (what, words) in [("reason", Some(&said.reason)), ("proof", said.proof.as_ref())] {
        let Some(words) = words else { continue };
        crate::words::without_secrets(host, what, words)?;
    }
    // Before anything is written, what `effects.log` knows of the call among it: whoever dies behind it leaves files that do not say so.
    let due = Due::of(host.home(), &run.root_run_id);
    let said = Box::pin(recorded(host, store, call, run.clone(), said)).await;
    let held = said.as_ref().is_ok_and(|said| said.lock.is_some()).then_some(&run.run_id);
    let made = due.make(host.home(), store, held).await;
    let Said { taken, then, lock } = said?;
    drop(lock);
    made?;
    restart::write(host.home(), store).await;
    Ok((taken, then))
}

/// What came of a person's word, and the lock of the run's tree where this process has it.
struct Said {
    taken: Taken,
    then: String,
    lock: Option<RunLock>,
}

async fn recorded(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    run: RunRecord,
    said: NewCorrection,
) -> Result<Said, HostError> {
    if said.outcome == CorrectedTo::NotHappened
        && let Some(by) = ua_runner::made_by_another(store, &call.call_id).await.map_err(|e| recall_failed(&e))?
    {
        let (id, run) = (&call.call_id, &call.run_id);
        return Err(HostError::usage(format!(
            "call {id} was never sent itself; what effects.log knows is call {} of run {}, which this database does not have",
            by.call, by.run
        ))
        .hint(not_sent_itself(store, run).await?));
    }
    // Whatever is decided here, that it was sent is true.
    let call = &ua_runner::recall_one(store, &call.call_id).await.map_err(|e| recall_failed(&e))?;
    if let Some(then) = check(call, &said)? {
        return Ok(Said { taken: Taken::Recorded(Box::new(call.clone())), then, lock: None });
    }
    let env = host.env();
    let what = format!("what became of call {} must be recorded", call.call_id);
    crate::gateway::only_people(host, &run, &what).await?;
    let is_open = !run.status.is_terminal();
    let top = tree::top(store, &run.run_id).await?;
    let holder = if is_open { holder(host, store, call, &run, said.outcome).await? } else { Holder::PastIt };
    if matches!(holder, Holder::PastIt) && may_be_under_way(call, said.outcome) {
        // Whatever became of its run: what the call was sent to may still be at it.
        over_at_the_other_side(host, store, call, &top).await?;
    }
    let lock = match holder {
        Holder::Nobody(lock) => Some(lock),
        Holder::PastIt => None,
        Holder::Broker => {
            let (taken, then) = answered(host, store, call, said).await?;
            return Ok(Said { taken, then, lock: None });
        }
    };
    if said.outcome == CorrectedTo::NotHappened {
        let attempts = store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts", &e))?;
        if let Some(until) = ua_ledger::absent_from(call, &attempts, &env.time()) {
            return Err(may_still_begin(call, until));
        }
    }
    let kept = kept_beside(host, store, call).await?;
    if let Some(late) = kept.as_ref().filter(|_| is_open && said.outcome != CorrectedTo::Happened) {
        return Err(HostError::usage(format!(
            "call {} was answered at {}, and the database did not take the answer then: {}",
            call.call_id,
            late.at,
            on_one_line(&ua_ledger::said(&late.reply))
        ))
        .hint(format!(
            "{}, or `ua runs cancel {top}`, stores it; correct the record behind that, if the answer is wrong",
            crate::restart::how_to_resume(store, &top).await?
        )));
    }
    // What was answered before an older copy was put back counted as done: the other side knows its key, and would do nothing under it again.
    let attempts = store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts", &e))?;
    let was_answered = call.status == CallStatus::Unknown && attempts.last().is_some_and(was_answered_beside);
    let correction = Correction {
        outcome: said.outcome,
        was: call.status,
        reason: said.reason.trim().to_owned(),
        proof: said.proof,
        by: host.settings().user(),
        at: env.now(),
        of: None,
        was_answered,
    };
    let write = ua_ledger::correct_call(call, correction, lock.is_some());
    let corrected = match store.correct_call(write).await {
        Ok(corrected) => corrected,
        Err(error) => {
            let how = if is_open { Some(crate::restart::how_to_resume(store, &top).await?) } else { None };
            return Err(refused(&call.call_id, how.as_deref(), &error));
        }
    };
    let then = if is_open && ua_store::is_gateway(&run) {
        "; the same call, made again by its client, returns that".to_owned()
    } else if is_open {
        let how = crate::restart::how_to_resume(store, &top).await?;
        // Whether whoever has its lock drives it, or is another command that has it for a moment, the lock's stamp does not say.
        if lock.is_some() {
            format!("; once it is resumed, its model is told: {how}")
        } else {
            format!("; the process that drives run {top} tells its model with the next request; if none does: {how}")
        }
    } else {
        String::new()
    };
    let then = format!("call {} is recorded as {} now{then}", corrected.call_id, said.outcome);
    Ok(Said { taken: Taken::Recorded(Box::new(corrected)), then, lock })
}

/// A call as it is by all that is known, also beside a database that went back in time: what was sent is not called unsent.
///
/// # Errors
/// The database, or what lies beside it, cannot be read.
pub async fn as_known(store: &dyn Store, call: CallRecord) -> Result<CallRecord, HostError> {
    ua_runner::recalled(store, call).await.map_err(|e| recall_failed(&e))
}

/// That the database does not learn what lies beside it, as an error with what to do about it.
pub fn recall_failed(error: &StoreError) -> HostError {
    let StoreError::Conflict { row, why } = error else {
        return HostError::store("compare the database with effects.log", error);
    };
    let what =
        format!("effects.log knows that {row} was sent, and this copy of the database has another end of it: {why}");
    HostError::usage(what).hint(
        "put back a newer copy of the database (`ua db restore`); with this one no run of its family is driven, and `ua runs cancel` ends those that \
         are open",
    )
}

/// The answer to a call that was kept beside the database and says what came of it.
async fn kept_beside(host: &Host, store: &Database, call: &CallRecord) -> Result<Option<LateReply>, HostError> {
    let late = LateFile::at(host.home().late_replies()).about(&call.call_id);
    if late.is_empty() {
        return Ok(None);
    }
    let attempts = store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts", &e))?;
    Ok(ua_ledger::kept_answer(call, &attempts, &late).cloned())
}

/// The same as an answer to the question about the call.
async fn answered(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    said: NewCorrection,
) -> Result<(Taken, String), HostError> {
    let id = &call.call_id;
    let choice = match said.outcome {
        CorrectedTo::Happened => Choice::Happened,
        CorrectedTo::Skipped => Choice::Skip,
        // Its client wants it made. No answer says that it did not happen and is not sent either.
        CorrectedTo::NotHappened if call.resolution == Some(ua_core::Resolution::Skipped) => {
            return Err(HostError::usage(format!(
                "call {id} was left unresolved, and belongs to a client that is still connected, whose tool server may be at it"
            ))
            .hint("once the client has gone, `--as not_happened` records it, and the same call, made again, is sent"));
        }
        CorrectedTo::NotHappened => {
            return Err(HostError::usage(format!(
                "call {id} belongs to a client that is still connected: if it did not happen, it is sent again or left"
            ))
            .hint(format!(
                "`ua calls resolve {id} --retry` sends it again, `--skip` sends nothing and leaves it unknown; once the client has gone, \
                 `--as not_happened` records it, too"
            )));
        }
    };
    let mut open = questions::open(store, Some(&call.run_id)).await?;
    open.retain(|question| question.call_id.as_ref() == Some(id));
    let Some(question) = open.pop() else {
        return Err(HostError::usage(format!("call {id} is being decided by the gateway at this moment"))
            .hint(format!("`ua calls show {id}` shows what happened to it")));
    };
    let answer = Answer { choice, proof: said.proof, text: Some(said.reason.trim().to_owned()) };
    let then = questions::answer(host, store, &question, answer).await?;
    Ok((Taken::Answered { question: Box::new(question), choice }, then))
}

/// Who has a call that a person speaks about.
enum Holder {
    /// Nobody, as long as this lock of its tree is held; what an earlier process left behind is gone.
    Nobody(RunLock),
    /// Whoever drives its run is past it.
    PastIt,
    /// A gateway's broker, which sends nothing of it before a person decides.
    Broker,
}

async fn holder(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    run: &RunRecord,
    outcome: CorrectedTo,
) -> Result<Holder, HostError> {
    // That it did not happen is not said while a tool server of the broker may be at it.
    let is_of_broker = ua_store::is_gateway(run) && outcome == CorrectedTo::NotHappened;
    let is_of_open_turn = is_of_broker || rules::is_of_open_turn(run, call);
    let top = tree::top(store, &run.run_id).await?;
    let locks = host.home().locks();
    let lock = match RunLock::take(&locks, &top, &owner_stamp(Trace::new(host.env()))) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) if !is_of_open_turn => return Ok(Holder::PastIt),
        Err(LockError::Held { .. }) if ua_store::is_gateway(run) && call.status == CallStatus::Unknown => {
            return Ok(Holder::Broker);
        }
        Err(LockError::Held { .. }) if ua_store::is_gateway(run) => {
            return Err(HostError::usage(format!(
                "call {} is {}, and the gateway is at it: its outcome is still being determined",
                call.call_id,
                ua_resume::call_standing(call)
            ))
            .hint(format!(
                "wait until it is answered, answer what `ua questions` shows, or end the session with `ua runs cancel {top}`"
            )));
        }
        Err(LockError::Held { owner, .. }) => {
            let who = owner.map_or_else(|| "another process".to_owned(), |owner| format!("process {}", owner.pid));
            return Err(HostError::usage(format!(
                "call {} is {} and {who} is working on its turn: its outcome is still being determined",
                call.call_id,
                ua_resume::call_standing(call)
            ))
            .hint(format!(
                "wait until the turn is over, answer what `ua questions` shows, or end the run with `ua runs cancel {top}`"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    // Its owner may have settled it, or gone on to another turn, until a moment ago.
    fenced(host, store, call, &top, outcome).await?;
    Ok(Holder::Nobody(lock))
}

/// Whether the word is that something did not happen which may be under way.
fn may_be_under_way(call: &CallRecord, outcome: CorrectedTo) -> bool {
    outcome == CorrectedTo::NotHappened && matches!(call.status, CallStatus::Running | CallStatus::Unknown)
}

/// Ends what earlier processes left of the tool servers of the call, and refuses what the word may be too early for. Its caller holds the lock of
/// the tree.
async fn fenced(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    top: &RunId,
    outcome: CorrectedTo,
) -> Result<(), HostError> {
    end_servers_of(host, call, top).await?;
    let servers = servers::transport(host, Vec::new(), &host.home().locks(), call.run_id.clone())?;
    still_begins(host, store, &*servers, call, outcome).await
}

/// Ends what earlier processes left of the tool servers of a call, whose tree nobody else drives.
async fn end_servers_of(host: &Host, call: &CallRecord, top: &RunId) -> Result<(), HostError> {
    let locks = host.home().locks();
    for run in [&call.run_id, top] {
        let servers = servers::transport(host, Vec::new(), &locks, run.clone())?;
        if let Fence::Alive { detail } = servers.fence_earlier().await {
            return Err(HostError::waiting(format!(
                "a tool server of run {run} is still alive and could not be ended: {detail}"
            ))
            .hint("end that process, then run the command again: until then the call may still happen"));
        }
    }
    Ok(())
}

/// The same of a call that no owner is at any more, because its run has ended or is at a later turn. Servers of a living process are its own, and
/// are not ended: while the one is there that the call was sent to, it may be at it.
async fn over_at_the_other_side(
    host: &Host,
    store: &Database,
    call: &CallRecord,
    top: &RunId,
) -> Result<(), HostError> {
    let outcome = CorrectedTo::NotHappened;
    let locks = host.home().locks();
    let _lock = match RunLock::take(&locks, top, &owner_stamp(Trace::new(host.env()))) {
        Ok(lock) => {
            fenced(host, store, call, top, outcome).await?;
            lock
        }
        Err(LockError::Held { .. }) => {
            let servers = servers::transport(host, Vec::new(), &locks, call.run_id.clone())?;
            still_begins(host, store, &*servers, call, outcome).await?;
            return not_in_living_hands(host, store, call, top).await;
        }
        Err(error) => return Err(error.into()),
    };
    Ok(())
}

/// Ends what ended processes left of the servers of the other calls that a question names, before its answer lets a call out beside them. Whether one
/// of them may still have its effect is judged behind that, where the answer is taken.
///
/// # Errors
/// One of them could not be ended.
pub(crate) async fn end_what_is_left_of_others(
    host: &Host,
    store: &Database,
    question: &QuestionRecord,
) -> Result<(), HostError> {
    let others = question.detail["others"].as_array().into_iter().flatten();
    let others = others.filter_map(|other| ua_core::CallId::parse(other["call"].as_str()?).ok());
    for id in others.filter(|id| Some(id) != question.call_id.as_ref()) {
        let other = match store.call(&id).await {
            Ok(other) => other,
            Err(StoreError::NotFound { .. }) => continue,
            Err(error) => return Err(HostError::store("read the other call", &error)),
        };
        if !may_be_under_way(&other, CorrectedTo::NotHappened) {
            continue;
        }
        let top = tree::top(store, &other.run_id).await?;
        // Servers of a living process are its own.
        match RunLock::take(&host.home().locks(), &top, &owner_stamp(Trace::new(host.env()))) {
            Ok(_lock) => end_servers_of(host, &other, &top).await?,
            Err(LockError::Held { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Refuses the word while the very process is there that the call was sent to.
async fn not_in_living_hands(host: &Host, store: &Database, call: &CallRecord, top: &RunId) -> Result<(), HostError> {
    let attempts = store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts", &e))?;
    let Some(generation) = attempts.last().and_then(|last| last.server_generation.as_deref()) else { return Ok(()) };
    for run in [&call.run_id, top] {
        let locks = LockDir::new(&host.home().locks(), run.clone(), host.env().clone())
            .map_err(|e| HostError::usage(format!("the folder of locks cannot be told: {e}")))?;
        let server = &call.name.server;
        if locks.orphans().iter().any(|(of, left)| of == server && left == generation) {
            return Err(HostError::waiting(format!(
                "the tool server `{}` that call {} was sent to is still running, and may still do it",
                on_one_line(server),
                call.call_id
            ))
            .hint(format!(
                "wait until the process that drives the run has ended, or end the run with `ua runs cancel {top}`; then run the command again"
            )));
        }
    }
    Ok(())
}

/// Refuses the word that a call did not happen while a server that nobody can end may still begin it.
async fn still_begins(
    host: &Host,
    store: &Database,
    servers: &dyn ToolTransport,
    call: &CallRecord,
    outcome: CorrectedTo,
) -> Result<(), HostError> {
    if !may_be_under_way(call, outcome) {
        return Ok(());
    }
    let attempts = store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts", &e))?;
    let Some(last) = attempts.last() else { return Ok(()) };
    let generation = last.server_generation.as_deref().unwrap_or_default();
    let left = servers.horizon(&call.name.server, generation, last.ended_at);
    if left.is_zero() {
        return Ok(());
    }
    if call.status == CallStatus::Running {
        // Since when nobody waits for it is recorded by whoever resumes its run.
        let top = tree::top(store, &call.run_id).await?;
        return Err(HostError::waiting(format!("call {} may still begin at the other side", call.call_id)).hint(
            format!(
                "{}: it asks about the call, and says from when on a look counts",
                restart::how_to_resume(store, &top).await?
            ),
        ));
    }
    // What whoever drives the run has waited for is over. Here a clock says how long that was, which may have been set: it counts half.
    let asked = store.questions_of(QuestionsOf::Run(call.run_id.clone())).await;
    let asked = asked.map_err(|e| HostError::store("read the questions", &e))?;
    if ua_ledger::was_asked_behind_the_wait(call, &attempts, &asked) {
        return Ok(());
    }
    Err(may_still_begin(call, host.env().now().plus(left)))
}

fn may_still_begin(call: &CallRecord, until: ua_core::Timestamp) -> HostError {
    HostError::waiting(format!("call {} may still begin at the other side until {until}", call.call_id))
        .hint("check again after that time; until then it cannot be ruled out")
}

/// What a person does about a call that was never sent itself, whose like is in effects.log.
async fn not_sent_itself(store: &Database, run: &RunId) -> Result<String, HostError> {
    let top = tree::top(store, run).await?;
    let ended = store.run(&top).await.map_err(|e| HostError::store("read the run", &e))?.status.is_terminal();
    let asks = if ended {
        // Nothing is sent for it any more, so there is nothing to be asked.
        "this call is not sent any more, since its run has ended".to_owned()
    } else {
        let how = crate::restart::how_to_resume(store, &top).await?;
        format!("{how}: then you are asked whether that one did what this call is to do")
    };
    Ok(format!("{asks}; if that one did it, `--as happened` records it here"))
}

/// `how` says who resumes the run, if that is open.
fn refused(call: &ua_core::CallId, how: Option<&str>, error: &StoreError) -> HostError {
    match error {
        StoreError::KeyTaken { by, status, .. } => HostError::usage(format!(
            "call {call} cannot be recorded as that: call {by} has the same idempotency key and is {status}, and one key stands for one effect"
        ))
        .hint(format!("if that one is wrong, correct it first: {}", ua_resume::correct_by_hand(by.as_str()))),
        StoreError::Conflict { why, .. } => {
            let shows = format!("`ua calls show {call}` shows its record");
            let then = match how {
                Some(how) => format!("{how}: it finds out what happened to it"),
                None => "its run has ended, so say it again of the record as it is now".to_owned(),
            };
            HostError::usage(format!("call {call} cannot be corrected: {why}")).hint(format!("{shows}; {then}"))
        }
        StoreError::NotFound { .. }
        | StoreError::Exists { .. }
        | StoreError::Fenced { .. }
        | StoreError::ScopeTouched { .. }
        | StoreError::Corrected { .. }
        | StoreError::EffectLimit { .. }
        | StoreError::NotBegun
        | StoreError::HoldsSecret { .. }
            | StoreError::Repeated { .. }
            | StoreError::WentBack { .. }
            | StoreError::TailLost { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Unavailable { .. } => HostError::store("store the correction", error),
    }
}

#[cfg(test)]
mod tests {
    use ua_store::RowRef;

    use super::*;

    /// Nobody is sent to a command that has nothing to do any more.
    #[test]
    fn a_run_that_has_ended_is_not_to_be_resumed() {
        let call = ua_core::CallId::parse("call_1").unwrap();
        let error = StoreError::Conflict { row: RowRef::new("tool_calls", &call), why: "it changed".to_owned() };
        for how in [Some("`ua resume run_1`"), None] {
            let refused = refused(&call, how, &error);
            let hint = refused.hint_text().unwrap();
            assert!(hint.contains("ua calls show call_1"), "{hint}");
            assert_eq!(hint.contains("ua resume run_1"), how.is_some(), "{hint}");
            assert_eq!(hint.contains("its run has ended"), how.is_none(), "{hint}");
        }
    }
}
