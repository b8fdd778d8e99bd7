//! Questions for people, with the commands that answer them.

use serde::Serialize;
use ua_core::{CallId, QuestionId, Timestamp};
use ua_store::{AnswerRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, RunRecord, is_task};

use ua_evidence::quote::{clean, cut};

use crate::answers::{Reach, ways, word};
use crate::commands::Commands;
use crate::standing::Standing;

/// A question and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuestionLine {
    /// Its id.
    pub question_id: QuestionId,
    /// The call it is about.
    pub call_id: Option<CallId>,
    /// What it is about.
    pub kind: QuestionKind,
    /// The question in words; quoted data, because it repeats a call's arguments.
    pub text: String,
    /// When it was raised.
    pub created_at: Timestamp,
    /// Where it stands.
    pub status: QuestionStatus,
    /// The commands that answer it; none once it is answered.
    pub commands: Vec<String>,
    /// The answer.
    pub answer: Option<AnswerLine>,
    /// Why nobody has to answer it any more, where that is known and no answer closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_because: Option<String>,
    /// What has to be said beside the commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<&'static str>,
    /// Of one that a tool asked on its connection: the commands once the process of that connection is gone.
    #[serde(skip)]
    once_left: Option<Vec<String>>,
    /// Whether a sub-agent asks it.
    #[serde(skip)]
    is_of_sub_agent: bool,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerLine {
    /// What was chosen.
    pub choice: Choice,
    /// Who answered.
    pub by: String,
    /// When.
    pub answered_at: Timestamp,
    /// The other side's name for what happened.
    pub proof: Option<String>,
    /// Free words.
    pub text: Option<String>,
    /// Whether the run's owner has acted on it.
    pub applied: bool,
}

/// The most characters of a question that are shown.
const TEXT_LIMIT: usize = 1200;

impl QuestionLine {
    pub fn of(record: &QuestionRecord) -> Self {
        Self {
            question_id: record.question_id.clone(),
            call_id: record.call_id.clone(),
            kind: record.kind,
            text: cut(&clean(&record.text), TEXT_LIMIT),
            created_at: record.created_at,
            status: record.status,
            commands: if record.status == QuestionStatus::Open { commands(record, Reach::Run) } else { Vec::new() },
            answer: record.answer.as_ref().map(answer),
            closed_because: record.closed_because.as_deref().map(|why| cut(&clean(why), TEXT_LIMIT)),
            remark: None,
            once_left: record.waits_on_its_connection().then(|| commands(record, Reach::Nobody)),
            is_of_sub_agent: false,
        }
    }

    /// The same of a run that stands like this: what a tool asked on the connection of a process that is gone takes no answer that the tool could hear.
    #[must_use]
    pub fn standing(mut self, standing: &Standing) -> Self {
        // What a tool asks in a session is for its client.
        let is_session = matches!(standing, Standing::IdleSession | Standing::EndedSession);
        if self.status == QuestionStatus::Open
            && !standing.is_driven()
            && !is_session
            && let Some(commands) = self.once_left.take()
        {
            let reach = if self.is_of_sub_agent { Reach::NobodyInSubAgent } else { Reach::Nobody };
            (self.commands, self.remark) = (commands, reach.remark());
        }
        self
    }

    /// The same of a run's question: what ends a sub-agent does not end the run above it, which is said beside the commands.
    #[must_use]
    pub fn of_run(record: &QuestionRecord, run: &RunRecord) -> Self {
        let line = Self::of(record);
        if !is_task(run) {
            return line;
        }
        let remark = Reach::SubAgent.remark().filter(|_| record.status == QuestionStatus::Open);
        Self { remark, is_of_sub_agent: true, ..line }
    }

    /// Whether a tool asked it on its connection, and waited there.
    pub fn waited_on_a_connection(&self) -> bool {
        self.once_left.is_some()
    }

    /// The same with commands that name the folder in which they find the question.
    #[must_use]
    pub fn naming(mut self, commands: &Commands) -> Self {
        for command in self.commands.iter_mut().chain(self.once_left.iter_mut().flatten()) {
            *command = commands.complete(command).into_owned();
        }
        self
    }
}

fn answer(record: &AnswerRecord) -> AnswerLine {
    AnswerLine {
        choice: record.choice,
        by: clean(&record.by),
        answered_at: record.answered_at,
        proof: record.proof.as_deref().map(|proof| cut(&clean(proof), 200)),
        text: record.text.as_deref().map(|text| cut(&clean(text), TEXT_LIMIT)),
        applied: record.applied_at.is_some(),
    }
}

/// How a person answers by hand for a call that is asked about: a command that runs as it stands, and what it may say instead. Only the question
/// takes these words, so it has to be there; without one it is [`correct_by_hand`]. `None` where the question takes no word about the call.
pub fn resolve_by_hand(question: &QuestionRecord) -> Option<String> {
    let call = question.call_id.as_ref()?;
    let words: Vec<&str> = words_about_the_call(question).filter(|word| *word != "abort").collect();
    let (first, others) = words.split_first()?;
    let others: Vec<String> = others.iter().map(|word| format!("or `--{word}`")).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    Some(format!("`ua calls resolve {call} --{first}`{others}"))
}

/// How a person records by hand what came of a call that nobody asks about: one that is decided, or whose run has ended. `call` is an id, or
/// `CALL` where the sentence is about whichever it is.
pub fn correct_by_hand(call: &str) -> String {
    format!("`ua calls resolve {call} --as not_happened --reason TEXT` (or `--as happened`, or `--as skipped`)")
}

/// What `ua calls resolve` may say about the call of a question.
fn words_about_the_call(record: &QuestionRecord) -> impl Iterator<Item = &'static str> {
    let choices = if record.kind == QuestionKind::UnknownOutcome { record.choices.as_slice() } else { &[] };
    choices.iter().map(|choice| word(record.kind, *choice))
}

/// The command of every answer; for a call whose outcome is unknown also those that name the call.
fn commands(record: &QuestionRecord, reach: Reach) -> Vec<String> {
    let mut commands: Vec<String> = ways(record, reach).into_iter().map(|way| way.command).collect();
    if let Some(call) = &record.call_id {
        commands.extend(words_about_the_call(record).map(|word| format!("ua calls resolve {call} --{word}")));
    }
    commands
}
