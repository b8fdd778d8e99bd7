//! The one port towards people: what they are told while a run works, what they are asked, and how it ended.
//!
//! A front door implements it: a terminal prints and prompts, a service would send messages. Nothing of a run depends on what it does
//! with what it is told; what it answers goes the same way as an answer from anywhere else, through the database.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{Budgets, Costs, Env, QuestionId};
use ua_dispatch::StopSignal;
use ua_resume::Standing;
use ua_resume::answers::Beside;
use ua_runner::RunEvent;
use ua_store::{Answer, QuestionRecord, RunRecord, RunRecords};

use crate::error::HostError;
use crate::resume::Changes;
use crate::review::ServerReview;

/// Who may be asked while a run works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Somebody is here: questions go to [`People::ask`], and the run goes on with the answers.
    Here,
    /// Nobody is here, but somebody may answer from elsewhere.
    Elsewhere,
    /// Nobody is to be asked: what waits, waits for a resume.
    Nobody,
}

/// A run that was taken and is about to be driven.
#[derive(Debug)]
pub struct Begun<'a> {
    /// The run, as it was taken.
    pub run: &'a RunRecord,
    /// The command that resumes it, whatever becomes of this process.
    pub next_command: String,
    /// What it may use, with what a person changed since it was started.
    pub budgets: Budgets,
    /// How long processes held it before this one.
    pub held: Duration,
    /// What it used by then; nothing of one that is taken for the first time.
    pub used: Option<UsedBefore>,
}

/// What a run used before this process took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedBefore {
    /// Calls that were planned.
    pub tool_calls: u32,
    /// Tokens that were charged.
    pub tokens: u64,
    /// What they cost.
    pub costs: Costs,
}

/// Something that happened in a run.
#[derive(Debug)]
pub struct ObservedEvent<'a> {
    /// The objective of the sub-agent whose work it is; `None` for the run that was started.
    pub sub_agent: Option<&'a str>,
    /// Since this process took the run.
    pub elapsed: Duration,
    /// What happened in words, as `run.log` has it; `None` for what is of no interest to people.
    pub line: Option<&'a str>,
    /// What happened.
    pub signal: &'a RunEvent,
}

/// How this process's work on a run ended.
#[derive(Debug)]
pub struct End<'a> {
    /// Everything about the run; also the open questions of its sub-agents.
    pub records: &'a RunRecords,
    /// The command that resumes it.
    pub next_command: String,
    /// The process that took the run over from this one.
    pub taken_by: Option<u32>,
}

/// An earlier run of a job that is not finished, and how it was left.
#[derive(Debug, Clone, Copy)]
pub struct Unfinished<'a> {
    /// The run.
    pub run: &'a RunRecord,
    /// Where it stands.
    pub standing: &'a Standing,
    /// How it was left, as the end of a sentence that begins with the run.
    pub how: &'a str,
    /// It has a call of which nobody knows what happened to it, and nobody has said so.
    pub is_in_doubt: bool,
}

/// What is to become of a job of which an earlier run is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichRun {
    /// The earlier run is resumed, with what is changed about it. Where a run is only stored for others to drive, nothing is changed.
    Resume(Changes),
    /// A run of its own is started.
    New,
    /// Nothing is started.
    Neither,
}

/// The people before a front door. What is not overridden says nothing and asks nobody.
#[async_trait]
pub trait People: Send + Sync {
    /// Who may be asked.
    fn presence(&self) -> Presence {
        Presence::Nobody
    }

    /// What asks this process to stop driving; called once the run is this process's. Listening for signals may begin here.
    fn stop_signal(&self, _env: &Env) -> Result<StopSignal, HostError> {
        Ok(StopSignal::default())
    }

    /// Whether whoever drives runs here tries one again by itself whose provider or tool server was away.
    fn tries_again(&self) -> bool {
        false
    }

    /// A run was taken. After an answer it is taken again.
    fn begun(&self, _begun: &Begun<'_>) {}

    /// Something happened. Called from where it happens, so it must not block.
    fn watch(&self, _seen: &ObservedEvent<'_>) {}

    /// A question that a tool asked in the middle of a call, which waits for the answer, needs none any more: it has one, or the tool was told *no*.
    /// Somebody who watches may be told so a moment late. Must not block.
    fn settled(&self, _question: &QuestionId) {}

    /// The work on the run that was begun is over; tool servers have ended, and questions are asked only now.
    fn paused(&self) {}

    /// A sentence that somebody should see whatever else is shown.
    fn tell(&self, _sentence: &str) {}

    /// A sentence that is of use to whoever follows the progress of a run.
    fn remark(&self, _sentence: &str) {}

    /// The same of what stays so as long as the run is worked on: it is taken anew after each answer, and once is enough.
    fn remark_once(&self, sentence: &str) {
        self.remark(sentence);
    }

    /// Something failed that does not end the work.
    fn report(&self, _error: &HostError) {}

    /// Somebody who was asked something left it for later, and the end of the run is shown next, with what is open.
    fn left(&self, what: &HostError) {
        self.report(what);
    }

    /// Asks a question, with what there is beside its text; `None` leaves it open. Only called while [`Presence::Here`].
    async fn ask(&self, _question: &QuestionRecord, _beside: &Beside) -> Result<Option<Answer>, HostError> {
        Ok(None)
    }

    /// Asks whether a job is resumed, of which this run is not finished and stands like this, or started anew. Only called while
    /// [`Presence::Here`].
    async fn ask_which_run(&self, _unfinished: &Unfinished<'_>) -> Result<WhichRun, HostError> {
        Ok(WhichRun::Neither)
    }

    /// Asks whether tool servers that a project's `file` names may be started and reached. Only called while [`Presence::Here`].
    async fn ask_to_trust(&self, _file: &Path, _servers: &[ServerReview]) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Shows how it ended.
    fn show_end(&self, _end: &End<'_>) -> Result<(), HostError> {
        Ok(())
    }
}
