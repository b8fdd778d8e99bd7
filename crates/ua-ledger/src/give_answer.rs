//! A person's answer to a question, from whoever asked to the record: the one place that says what is taken.
//!
//! Durable Jobs v1 spec §6, §8.3. Invariants: the terminal, a program, a client's dialogue and a probe are held to the same; what is not
//! taken changes nothing. What an answer is good for is decided where it is acted on (`verdict`), and not here.
//! Proved by: `identity::given_answers`.

use ua_core::{CallId, CallStatus, Env, RunId, RunStatus, Time, Timestamp};
use ua_store::rules::{applies_behind_the_end, said_by_happened};
use ua_store::{
    Answer, CallRecord, Choice, LedgerStore as _, NewAnswer, QuestionKind, QuestionRecord, QuestionStatus,
    RunStore as _, Store, StoreError, is_left_open, is_over,
};

use crate::correction::absent_from_since;
use crate::doubt::settle_late_answers;
use crate::handle::check_elicited;
use crate::outside::{Outside, Still, still_of};
use crate::question::{look_after, others_of, showed_as_it_stands};

/// How long the words of an answer and a name of what happened may be, in bytes.
pub const MAX_ANSWER: usize = 16 * 1024;

/// Why an answer was not taken. Nothing was stored, but for [`Unsettled`](Self::Unsettled).
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// The question was answered before, or is closed.
    #[error("question {} has already been answered or closed", .0.question_id)]
    Settled(Box<QuestionRecord>),
    /// The run has ended, and nobody would act on it.
    #[error("run {run} is {status}: nothing would act on an answer")]
    RunEnded {
        /// Which run.
        run: RunId,
        /// How it ended.
        status: RunStatus,
    },
    /// A person ended the session at the gateway, and nothing is sent for it any more.
    #[error("session {session} was ended: nothing is sent for it any more, so `{}` would not be acted on", choice.as_str())]
    SessionEnded {
        /// Which session.
        session: RunId,
        /// What was chosen.
        choice: Choice,
        /// The call in doubt that the question is about.
        in_doubt: Option<CallId>,
    },
    /// The question does not offer this choice.
    #[error("question {question} does not take `{}`", choice.as_str())]
    NotOffered {
        /// Which question.
        question: ua_core::QuestionId,
        /// What was chosen.
        choice: Choice,
    },
    /// A tool asked on a connection that is gone with the process that drove the run, so no answer reaches it.
    #[error(
        "the tool of question {question} waited on a connection that is gone with the process that drove run {run}: no answer reaches it \
         any more. Resume the run; the tool asks again if its call is made again"
    )]
    NobodyWaits {
        /// Which question.
        question: ua_core::QuestionId,
        /// Its run.
        run: RunId,
    },
    /// What the model asked is answered by words, and there are none.
    #[error("question {question} takes an answer in words")]
    NoWords {
        /// Which question.
        question: ua_core::QuestionId,
    },
    /// The values do not fit the form that a tool asked for.
    #[error("question {question} does not accept that: {why}")]
    Form {
        /// Which question.
        question: ua_core::QuestionId,
        /// What is wrong with them.
        why: String,
    },
    /// The words or the proof are too long.
    #[error("the {what} of an answer is longer than {MAX_ANSWER} bytes")]
    TooLong {
        /// Which of the two: "text" or "proof".
        what: &'static str,
    },
    /// A proof of something that did not happen.
    #[error("a proof identifies what happened, so it is only allowed with `happened`, of a call that was sent")]
    ProofOfNothing,
    /// One proof for several calls.
    #[error("a proof identifies what one call did, and question {question} is about {calls} calls")]
    ProofOfSeveral {
        /// Which question.
        question: ua_core::QuestionId,
        /// How many calls.
        calls: usize,
    },
    /// That it did not happen cannot be said yet.
    #[error("{call} may still begin at the other side until {until}")]
    MayStillBegin {
        /// Which call.
        call: CallId,
        /// From when on it can be said.
        until: Timestamp,
    },
    /// Another call, which may have the effect that is asked about, is under way.
    #[error("{call} of run {run} is under way, as far as is known, and will have its effect unless it fails")]
    UnderWay {
        /// Which call.
        call: CallId,
        /// Its run.
        run: RunId,
    },
    /// The store failed.
    #[error("cannot {doing}")]
    Store {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// The answer is stored, and acting on it failed: the next command that looks at the run does it.
    #[error("the answer is stored, and was not applied")]
    Unsettled(#[source] StoreError),
}

impl NotTaken {
    fn at(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }

    /// What the store failed at, as a verb, and its error.
    ///
    /// # Errors
    /// The reason itself, when it is the answer that was refused.
    pub fn into_store_failure(self) -> Result<(&'static str, StoreError), Self> {
        match self {
            Self::Store { doing, source } => Ok((doing, source)),
            Self::Unsettled(source) => Ok(("apply the answer", source)),
            Self::Settled(_)
            | Self::RunEnded { .. }
            | Self::SessionEnded { .. }
            | Self::NotOffered { .. }
            | Self::NobodyWaits { .. }
            | Self::NoWords { .. }
            | Self::Form { .. }
            | Self::TooLong { .. }
            | Self::ProofOfNothing
            | Self::ProofOfSeveral { .. }
            | Self::MayStillBegin { .. }
            | Self::UnderWay { .. } => Err(self),
        }
    }
}

/// Stores what a person says to a question. The owner of a run applies it when it goes on; what a run that is over left open is settled at
/// once, and returned, also what was said of it before. `outside` is what whoever takes the answer can see of processes: an answer that only one of them can hand over is refused
/// when there is none, and never stored in vain; one that lets a call go is refused while another call that may have its effect is not over.
///
/// # Errors
/// [`NotTaken`]: what is wrong with the answer, or with the store.
pub async fn give_answer(
    store: &dyn Store,
    env: &Env,
    question: &QuestionRecord,
    answer: Answer,
    by: &str,
    outside: &dyn Outside,
) -> Result<Vec<CallRecord>, NotTaken> {
    let id = || question.question_id.clone();
    if question.status != QuestionStatus::Open {
        return Err(NotTaken::Settled(Box::new(question.clone())));
    }
    let run = store.run(&question.run_id).await.map_err(NotTaken::at("read the run"))?;
    let is_heard = answer.choice != Choice::Abort && outlives_its_run(store, question).await?;
    if run.status.is_terminal() && !is_heard {
        return Err(NotTaken::RunEnded { run: run.run_id, status: run.status });
    }
    fits(question, &answer)?;
    // It is ended already for whoever ends it.
    let is_late = is_over(&run) && !is_heard && answer.choice != Choice::Abort;
    if is_late && !applies_behind_the_end(question.kind, answer.choice) {
        let is_doubt = question.kind == QuestionKind::UnknownOutcome;
        let in_doubt = question.call_id.clone().filter(|_| is_doubt);
        return Err(NotTaken::SessionEnded { session: run.run_id, choice: answer.choice, in_doubt });
    }
    // Whoever ends the run is heard all the same.
    if question.waits_on_its_connection() && answer.choice != Choice::Abort && !outside.may_be_driven(&run) {
        return Err(NotTaken::NobodyWaits { question: id(), run: run.run_id });
    }
    if let (QuestionKind::UnknownOutcome, Choice::Execute, Some(call)) =
        (question.kind, answer.choice, &question.call_id)
    {
        let call = store.call(call).await.map_err(NotTaken::at("read the call"))?;
        let attempts = store.attempts(&call.call_id).await.map_err(NotTaken::at("read the attempts"))?;
        let time = env.time();
        let by_policy = absent_from_since(&call, &attempts, question.created_at, &time);
        if let Some(until) = by_policy.max(shown_until(question, &call, &time)) {
            return Err(NotTaken::MayStillBegin { call: call.call_id, until });
        }
    }
    if answer.choice == Choice::Execute {
        others_are_over(store, outside, question, &env.time()).await?;
    }
    let new = NewAnswer { question_id: id(), answer, by: by.to_owned(), at: env.now() };
    if let Err(source) = store.insert_answer(new).await {
        let is_conflict = matches!(source, StoreError::Conflict { .. });
        // Somebody else may have been quicker.
        let now = if is_conflict { store.question(&question.question_id).await.ok() } else { None };
        return Err(match now.filter(|now| now.status != QuestionStatus::Open) {
            Some(now) => NotTaken::Settled(Box::new(now)),
            None => NotTaken::Store { doing: "store the answer", source },
        });
    }
    settle_late_answers(store, env, &run.run_id).await.map_err(NotTaken::Unsettled)
}

/// Refuses to let a call go while another one that its question names may still have its effect: whoever looked before looks too early, and the other
/// one comes behind it.
async fn others_are_over(
    store: &dyn Store,
    outside: &dyn Outside,
    question: &QuestionRecord,
    time: &Time,
) -> Result<(), NotTaken> {
    for id in others_of(question).into_iter().filter(|id| Some(id) != question.call_id.as_ref()) {
        let other = match store.call(&id).await {
            Ok(other) => other,
            // One that was deleted since is told by no record.
            Err(StoreError::NotFound { .. }) => continue,
            Err(source) => return Err(NotTaken::at("read the other call")(source)),
        };
        let still = still_of(store, outside, &other, (question.created_at, time)).await;
        let still = still.map_err(NotTaken::at("look how the other call stands"))?;
        if still == Still::UnderWay {
            return Err(NotTaken::UnderWay { call: id, run: other.run_id });
        }
        // From when on a look counts is what the question says: whoever asked may have seen more of where the call went than is seen from here, and what is
        // answered before is asked anew.
        if let Some(until) = shown_until(question, &other, time) {
            return Err(NotTaken::MayStillBegin { call: id, until });
        }
        // It says so as long as the other call stands as it shows it.
        if let Still::Until(until) = still
            && (look_after(question).is_none() || !showed_as_it_stands(question, &other))
        {
            let until = over_at_the_latest(store, &other, until, (question.created_at, time)).await?;
            return Err(NotTaken::MayStillBegin { call: id, until });
        }
    }
    Ok(())
}

/// When a call that may still begin `until` then is over at the latest, however often that is asked. Of what its server may do, the time that has passed
/// counts half, since a clock may have been set: so what is left of it lasts twice as long.
async fn over_at_the_latest(
    store: &dyn Store,
    call: &CallRecord,
    until: Timestamp,
    (asked, time): (Timestamp, &Time),
) -> Result<Timestamp, NotTaken> {
    let attempts = store.attempts(&call.call_id).await.map_err(NotTaken::at("read the other call"))?;
    let is_by_policy = absent_from_since(call, &attempts, asked, time) == Some(until);
    Ok(if is_by_policy { until } else { until.plus(until.since(time.now())) })
}

/// Until when the call may still begin, as its question shows it; `None` when that is over. It shows what the clock said when it was asked, which may
/// have been set since.
fn shown_until(question: &QuestionRecord, call: &CallRecord, time: &Time) -> Option<Timestamp> {
    let is_open = matches!(call.status, CallStatus::Running | CallStatus::Unknown);
    let until = look_after(question)?;
    let until = until.max(time.end_of(question.created_at, until.since(question.created_at)));
    (is_open && time.now() < until).then_some(until)
}

/// Whether the question takes an answer like this at all.
fn fits(question: &QuestionRecord, answer: &Answer) -> Result<(), NotTaken> {
    let id = || question.question_id.clone();
    let Answer { choice, proof, text } = answer;
    if !question.choices.contains(choice) {
        return Err(NotTaken::NotOffered { question: id(), choice: *choice });
    }
    for (what, words) in [("text", text), ("proof", proof)] {
        if words.as_deref().is_some_and(|words| words.len() > MAX_ANSWER) {
            return Err(NotTaken::TooLong { what });
        }
    }
    // What an earlier call did has its receipt already.
    if proof.is_some() && (*choice != Choice::Happened || question.kind == QuestionKind::NearDuplicate) {
        return Err(NotTaken::ProofOfNothing);
    }
    let calls = said_by_happened(question).len();
    if proof.is_some() && calls > 1 {
        return Err(NotTaken::ProofOfSeveral { question: id(), calls });
    }
    match (question.kind, choice) {
        (QuestionKind::AskUser, Choice::Continue) if text.as_deref().is_none_or(|text| text.trim().is_empty()) => {
            Err(NotTaken::NoWords { question: id() })
        }
        (QuestionKind::Elicitation, Choice::Continue) => {
            check_elicited(question, text.as_deref()).map_err(|why| NotTaken::Form { question: id(), why })
        }
        _ => Ok(()),
    }
}

/// Whether the question is about a call that its run went on without, which may be answered after the run has ended.
async fn outlives_its_run(store: &dyn Store, question: &QuestionRecord) -> Result<bool, NotTaken> {
    let Some(call) = &question.call_id else { return Ok(false) };
    Ok(is_left_open(&store.call(call).await.map_err(NotTaken::at("read the call"))?))
}
