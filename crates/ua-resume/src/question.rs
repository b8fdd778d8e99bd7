//! Questions for people, with the commands that answer them.

use serde::Serialize;
use ua_core::{CallId, QuestionId, Timestamp};
use ua_store::{AnswerRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus};

use ua_evidence::quote::{clean, cut};

use crate::answers::{Reach, ways, word};

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
            commands: if record.status == QuestionStatus::Open { commands(record) } else { Vec::new() },
            answer: record.answer.as_ref().map(answer),
        }
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

/// How a person answers for a call in doubt by hand: a command that runs as it stands, and what it may say instead. `call` is an id, or `CALL`
/// where the sentence is about whichever it is.
pub fn resolve_by_hand(call: &str) -> String {
    format!("`ua calls resolve {call} --happened` (or `--retry`, or `--skip`)")
}

/// How a person corrects the record of a call that is decided, likewise.
pub fn correct_by_hand(call: &str) -> String {
    format!("`ua calls resolve {call} --as not_happened --reason TEXT` (or `--as happened`, or `--as skipped`)")
}

/// The command of every answer; for a call whose outcome is unknown also those that name the call.
fn commands(record: &QuestionRecord) -> Vec<String> {
    let mut commands: Vec<String> = ways(record, Reach::Run).into_iter().map(|way| way.command).collect();
    if let (QuestionKind::UnknownOutcome, Some(call)) = (record.kind, &record.call_id) {
        let by_call = record.choices.iter().map(|choice| word(record.kind, *choice));
        commands.extend(by_call.map(|word| format!("ua calls resolve {call} --{word}")));
    }
    commands
}
