//! What a person may answer to a question: words, what each does, and commands that are accepted as they are printed.
//!
//! The database keeps five choices for all questions; a word is a choice as it reads beside its question: running a call whose outcome is
//! unknown is a `retry`, running one that was never sent is an `approve`. Older words (`execute`, `continue`, `deny`) are accepted.

use serde_json::Value;
use ua_core::{CallStatus, Role, RunId, Timestamp, shell_word};
use ua_store::rules::{UNPAID, applies_behind_the_end, detail_in_words, is_learnt_of_another};
use ua_store::{
    AttemptRecord, CallRecord, Choice, LateReply, MessageRecord, QuestionKind, QuestionRecord, RunRecord, Taint,
    is_gateway, is_over, is_task,
};

use ua_evidence::quote::{clean, cut};

/// One way to answer a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayToAnswer {
    /// The choice that is stored.
    pub choice: Choice,
    /// The word for it.
    pub word: &'static str,
    /// The command that gives this answer.
    pub command: String,
    /// What the answer does.
    pub meaning: &'static str,
}

/// Whom an answer reaches, which decides what may be answered and what that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// A run, which acts on it: at once where a process drives it, else when it is resumed.
    #[default]
    Run,
    /// A sub-agent, which acts on it as its run does. Whoever ends it does not end the run above it.
    SubAgent,
    /// A session of a client at the gateway. Nobody resumes it: its client continues, there or in another session.
    Session,
    /// A session that a person ended. Nothing is sent for it, so only what became of a call can be answered.
    EndedSession,
    /// Nobody any more: a tool asked on the connection of a process that is gone. Only the run can still be ended.
    Nobody,
    /// The same where the tool was called by a sub-agent: only that can still be ended.
    NobodyInSubAgent,
}

/// Whose question it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A run's.
    Run,
    /// A sub-agent's.
    SubAgent,
    /// A session's.
    Session,
    /// That of a session which a person ended.
    EndedSession,
}

impl Whose {
    /// That of a question of this run.
    pub fn of(run: &RunRecord) -> Self {
        match (is_gateway(run), is_over(run)) {
            (true, true) => Self::EndedSession,
            (true, false) => Self::Session,
            (false, _) if is_task(run) => Self::SubAgent,
            (false, _) => Self::Run,
        }
    }
}

impl Reach {
    /// Whom an answer to `question` reaches. `is_driven` says whether a process may be at work on its run.
    pub fn of(question: &QuestionRecord, whose: Whose, is_driven: bool) -> Self {
        match whose {
            Whose::Session => Self::Session,
            Whose::EndedSession => Self::EndedSession,
            Whose::Run if question.waits_on_its_connection() && !is_driven => Self::Nobody,
            Whose::Run => Self::Run,
            Whose::SubAgent if question.waits_on_its_connection() && !is_driven => Self::NobodyInSubAgent,
            Whose::SubAgent => Self::SubAgent,
        }
    }

    /// Whether it is a session at the gateway, and no run.
    pub fn is_session(self) -> bool {
        match self {
            Self::Session | Self::EndedSession => true,
            Self::Run | Self::SubAgent | Self::Nobody | Self::NobodyInSubAgent => false,
        }
    }

    /// Whether it is a sub-agent: whoever ends it leaves the run above it as it is.
    pub fn is_sub_agent(self) -> bool {
        match self {
            Self::SubAgent | Self::NobodyInSubAgent => true,
            Self::Run | Self::Session | Self::EndedSession | Self::Nobody => false,
        }
    }

    /// Whose question it is, in a word: `run`, `sub-agent` or `session`.
    pub fn whose(self) -> &'static str {
        match self {
            Self::Run | Self::Nobody => "run",
            Self::SubAgent | Self::NobodyInSubAgent => "sub-agent",
            Self::Session | Self::EndedSession => "session",
        }
    }

    /// What has to be said about the answers beside the answers.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Run | Self::Session => None,
            Self::SubAgent => Some(OF_A_SUB_AGENT),
            Self::EndedSession => Some("Its session was ended, so nothing is sent for it any more."),
            Self::Nobody => Some(
                "That process has ended, so no other answer reaches the tool: `ua resume` decides about the call, and the tool asks again \
                 if the call is made again.",
            ),
            Self::NobodyInSubAgent => Some(
                "That process has ended, so no other answer reaches the tool: `ua resume` decides about the call, and the tool asks again \
                 if the call is made again. A sub-agent asked: `abort` ends only the sub-agent, and the run above it continues. \
                 `ua runs cancel` with the run at the top ends everything.",
            ),
        }
    }
}

/// What whoever answers a sub-agent's question has to know.
const OF_A_SUB_AGENT: &str = "A sub-agent asks: `abort` ends only the sub-agent, and the run above it continues. `ua runs cancel` with the \
                              run at the top ends everything.";

/// The name of the fact that says which sub-agent asks, and of which run.
pub const SUB_AGENT: &str = "sub-agent";

/// Which sub-agent asks, by what it is about, and of which run: two of them may ask the same. `top` is the run at the top of its tree.
pub fn sub_agent(objective: &str, top: &RunId) -> KnownFact {
    let about = cut(&clean(objective), 100);
    let text = format!("{about:?} of run {top}, which continues without it; to end everything: `ua runs cancel {top}`");
    KnownFact { name: SUB_AGENT, text }
}

impl WayToAnswer {
    /// What is typed behind the question, as far as it is the same at every question.
    pub fn shown_word(&self) -> &'static str {
        if self.word == "text" { "--text 'YOUR ANSWER'" } else { self.word }
    }
}

/// The word for a choice, beside a question of this kind.
pub fn word(kind: QuestionKind, choice: Choice) -> &'static str {
    match (choice, kind) {
        (Choice::Happened, _) => "happened",
        (Choice::Abort, _) => "abort",
        (Choice::Continue | Choice::Execute, QuestionKind::Elicitation) => "accept",
        (Choice::Skip, QuestionKind::Elicitation) => "decline",
        (Choice::Skip, _) => "skip",
        (Choice::Execute | Choice::Continue, QuestionKind::AskUser) => "text",
        (
            Choice::Execute | Choice::Continue,
            QuestionKind::NearDuplicate | QuestionKind::Approval | QuestionKind::AmbiguousRecipient,
        ) => "approve",
        (
            Choice::Execute | Choice::Continue,
            QuestionKind::UnknownOutcome
            | QuestionKind::AuthFailure
            | QuestionKind::RepeatedFailures
            | QuestionKind::MissingEvidence
            | QuestionKind::OrphanAlive
            | QuestionKind::CrashLoop,
        ) => "retry",
    }
}

/// The same for people who read what was answered: beside `text`, which is what a command is told, stand the words themselves.
pub fn given_word(kind: QuestionKind, choice: Choice) -> &'static str {
    match word(kind, choice) {
        "text" => "in words",
        word => word,
    }
}

/// What somebody answered, in a few words: their own where these are the answer.
pub fn in_short(kind: QuestionKind, choice: Choice, text: Option<&str>) -> String {
    match (word(kind, choice), text) {
        ("text", Some(text)) => format!("{:?}", cut(&clean(text), 100)),
        (..) => given_word(kind, choice).to_owned(),
    }
}

/// What an answer does.
fn meaning(kind: QuestionKind, choice: Choice, reach: Reach) -> &'static str {
    match (choice, kind) {
        (Choice::Happened, QuestionKind::MissingEvidence) => {
            "what it names did happen and counts; it is not made again"
        }
        (Choice::Happened, QuestionKind::NearDuplicate) => {
            "the earlier call did it; its answer counts for this one, which is not sent"
        }
        (Choice::Happened, _) => "it happened; it is not sent again",
        (Choice::Abort, QuestionKind::UnknownOutcome | QuestionKind::OrphanAlive) if reach.is_session() => {
            "decide nothing and end this session; the call is not sent again, and the client continues in another session"
        }
        (Choice::Abort, _) if reach.is_session() => {
            "decide nothing and end this session; the call is not sent, and the client continues in another session"
        }
        (Choice::Abort, _) if reach.is_sub_agent() => "end this sub-agent only; the run above it continues",
        (Choice::Abort, _) => "end the run",
        (Choice::Skip, QuestionKind::AskUser) => "let the model decide",
        (Choice::Skip, QuestionKind::Elicitation) => "the tool's request is declined",
        (Choice::Skip, QuestionKind::UnknownOutcome) => {
            "leave it unresolved; the model is told that the outcome is unknown"
        }
        (Choice::Skip, QuestionKind::AuthFailure) => "leave it failed; the model is told",
        (Choice::Skip, _) => "do not run it; the model is told",
        (Choice::Execute | Choice::Continue, QuestionKind::UnknownOutcome) => {
            "it did not happen, and may be sent again"
        }
        (Choice::Execute | Choice::Continue, QuestionKind::AuthFailure) => {
            "the credentials are right now; try it again"
        }
        (Choice::Execute | Choice::Continue, QuestionKind::RepeatedFailures | QuestionKind::MissingEvidence) => {
            "let the model try again; it reads your remark, if you add one"
        }
        (Choice::Execute | Choice::Continue, QuestionKind::OrphanAlive) => "that server was ended; check again",
        (Choice::Execute | Choice::Continue, QuestionKind::CrashLoop) => "the cause is fixed; resume once more",
        (Choice::Execute | Choice::Continue, QuestionKind::AskUser) => "answer in your own words",
        (Choice::Execute | Choice::Continue, QuestionKind::Elicitation) => {
            "the tool gets the values; fields left out take their default"
        }
        (
            Choice::Execute | Choice::Continue,
            QuestionKind::NearDuplicate | QuestionKind::Approval | QuestionKind::AmbiguousRecipient,
        ) => "let it run",
    }
}

/// Every way to answer a question, in the order of its choices. To a tool that asks there are two ways to say no.
pub fn ways(question: &QuestionRecord, reach: Reach) -> Vec<WayToAnswer> {
    let of = |choice: &Choice| {
        let word = word(question.kind, *choice);
        let rest = match word {
            "text" => " --text 'YOUR ANSWER'".to_owned(),
            "accept" => accepting(&params(question)),
            _ => format!(" {word}"),
        };
        let command = format!("ua answer {}{rest}", question.question_id);
        let has_options =
            question.detail.get("options").and_then(Value::as_array).is_some_and(|options| !options.is_empty());
        let meaning = match word {
            "accept" if ua_core::is_by_address(&params(question)) => {
                "you were at the address; the tool is told that you were"
            }
            "text" if has_options => "answer in your own words, or with one above, by its words or its number",
            // Nothing is wrong with the credentials.
            "retry" if question.detail.get(UNPAID) == Some(&Value::Bool(true)) => {
                "the account can pay now; try it again"
            }
            _ => meaning(question.kind, *choice, reach),
        };
        WayToAnswer { choice: *choice, word, command, meaning }
    };
    let mut ways: Vec<WayToAnswer> = question.choices.iter().map(of).collect();
    if let Some(at) = ways.iter().position(|way| way.word == "decline") {
        let word = QuestionRecord::CANCEL;
        let command = format!("ua answer {} {word}", question.question_id);
        let meaning = "the tool is told that no decision was made";
        ways.insert(at + 1, WayToAnswer { choice: Choice::Skip, word, command, meaning });
    }
    match reach {
        Reach::Run | Reach::SubAgent | Reach::Session => {}
        Reach::Nobody | Reach::NobodyInSubAgent => ways.retain(|way| way.choice == Choice::Abort),
        Reach::EndedSession => {
            let counts = |way: &WayToAnswer| applies_behind_the_end(question.kind, way.choice);
            // Of an earlier version, which did not close it with its session, nothing is left but to end that once more.
            let is_any = ways.iter().any(counts);
            ways.retain(|way| if is_any { counts(way) } else { way.choice == Choice::Abort });
        }
    }
    ways
}

/// What the model proposes as answers to its question.
pub fn options(question: &QuestionRecord) -> impl Iterator<Item = &str> {
    question.detail.get("options").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The option of the model's that was typed, one rule wherever it is typed: an option as it stands, else in other case, else the one with
/// this number. `None` for somebody's own words.
pub fn option_meant<'q>(question: &'q QuestionRecord, typed: &str) -> Option<&'q str> {
    let typed = typed.trim();
    let folded = typed.to_lowercase();
    let numbered = || options(question).nth(typed.parse::<usize>().ok()?.checked_sub(1)?);
    let as_it_stands = options(question).find(|option| option.trim() == typed);
    as_it_stands.or_else(|| options(question).find(|option| option.trim().to_lowercase() == folded)).or_else(numbered)
}

/// What a tool that asks wants, as it sent it.
fn params(question: &QuestionRecord) -> Value {
    question.detail.get("params").cloned().unwrap_or_default()
}

/// The rest of the command that accepts what a tool asks: with values that its form takes, one for each field that has to be there. Where none are
/// known, or a shell would read something in them, the command has no answer in it, and asks for each field on a terminal.
fn accepting(params: &Value) -> String {
    let needed = ua_core::missing(&ua_core::with_defaults(&serde_json::Map::new(), params), params);
    if ua_core::is_by_address(params) || needed.is_empty() {
        return " accept".to_owned();
    }
    let schema = |name: &str| ua_core::fields(params).find(|(field, _)| *field == name).map(|(_, schema)| schema);
    let sample = |name: &&str| Some(((*name).to_owned(), ua_core::FieldKind::of(schema(name)?).sample()?));
    let values: Option<serde_json::Map<String, Value>> = needed.iter().map(sample).collect();
    // What a shell would read inside the quotes is a server's word: such a form is filled in by hand.
    let text =
        values.map(|values| Value::Object(values).to_string()).filter(|text| shell_word(text) == format!("'{text}'"));
    text.map_or_else(String::new, |values| format!(" accept --values '{values}'"))
}

/// The choice of a question that a word names: the word that is printed beside it, or an older one that stood for this choice and no other.
/// `approve` does not send a call again whose outcome is unknown, nor does `continue`: that takes the word that says so.
pub fn chosen(question: &QuestionRecord, typed: &str) -> Option<Choice> {
    let older = |choice| match choice {
        Choice::Execute => typed == "execute",
        Choice::Continue => typed == "continue",
        Choice::Skip => {
            typed == "deny" || (typed == QuestionRecord::CANCEL && question.kind == QuestionKind::Elicitation)
        }
        Choice::Happened | Choice::Abort => false,
    };
    question.choices.iter().copied().find(|choice| word(question.kind, *choice) == typed || older(*choice))
}

/// The words that a question takes, for an error.
pub fn words(question: &QuestionRecord) -> String {
    let words: Vec<&str> = ways(question, Reach::Run).iter().map(WayToAnswer::shown_word).collect();
    words.join(", ")
}

/// Something that is known about what is asked: a name for it, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KnownFact {
    /// Its name.
    pub name: &'static str,
    /// What is known; foreign text, cleaned and cut.
    pub text: String,
}

/// How many calls are named that read something into a run; a person looks at the first and is told how many more there were.
const READ_BY: usize = 4;

/// Which calls of the run read what others wrote, and which what is private, where a person is asked because both met: it may have been
/// somebody else's page, or the person's own. `calls` are those of the run, in order. What a sub-agent or a run above it read is not among them.
pub fn read_by(question: &QuestionRecord, calls: &[CallRecord]) -> Vec<KnownFact> {
    let reasons = question.detail["reasons"].as_array();
    let is_of_taint = |reason: &Value| matches!(reason.as_str(), Some("tainted" | "made_address"));
    if !reasons.is_some_and(|reasons| reasons.iter().any(is_of_taint)) {
        return Vec::new();
    }
    let was_sent = |call: &&CallRecord| call.attempt > 0 || call.answered_by().is_some();
    let fact = |name, of: fn(Taint) -> bool| {
        let read = calls.iter().filter(was_sent).filter(|call| of(Taint::of(&call.policy)));
        let read: Vec<String> = read
            .map(|call| {
                let (place, tool) = (call.position, cut(&clean(&call.name.tool), 60));
                format!("{}.{} {tool} {}", place.turn, place.ordinal, cut(&clean(&call.arguments.to_string()), 80))
            })
            .collect();
        let more = read.len().saturating_sub(READ_BY);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!read.is_empty())
            .then(|| KnownFact { name, text: format!("{}{more}", read[..read.len().min(READ_BY)].join("; ")) })
    };
    let read = [fact("untrusted text", |taint| taint.untrusted), fact("private data", |taint| taint.private)];
    read.into_iter().flatten().collect()
}

/// What somebody wants to know who is asked a question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beside {
    /// What is known beside its text.
    pub known: Vec<KnownFact>,
    /// Whom the answer reaches.
    pub reach: Reach,
    /// How the run acts on the answer where no process drives it, as a clause: the command, or that its program is to be started. Empty where that
    /// is not said.
    pub resume: String,
    /// Whether the process that asks drives the run at the same time, and stops it at a signal.
    pub drives: bool,
}

/// The most characters of a fact that are shown.
const FACT_LIMIT: usize = 400;

/// Whether a question quotes what the model said, as far as it was quoted.
fn is_quoted(question: &QuestionRecord, said: &str) -> bool {
    const ENOUGH: usize = 100;
    let begin: String = clean(said).chars().take(ENOUGH).collect();
    clean(&question.text).contains(&format!("It said: {begin}"))
}

/// What the rows say about a question beside its text: what became of the attempt, and what the model said when it stopped or asked for the call.
/// `attempts` are those of its call, `messages` the history of its run, `late` answers that lie beside the database; each may be empty. `reach`: whom the answer reaches.
pub fn known(
    question: &QuestionRecord,
    call: Option<&CallRecord>,
    attempts: &[AttemptRecord],
    messages: &[MessageRecord],
    late: &[LateReply],
    reach: Reach,
) -> Vec<KnownFact> {
    let fact = |name, text: &str| KnownFact { name, text: cut(&clean(text.trim()), FACT_LIMIT) };
    let mut known = Vec::new();
    let is_of_call = |attempt: &&AttemptRecord| Some(&attempt.call_id) == question.call_id.as_ref();
    let last = attempts.iter().rfind(|attempt| is_of_call(attempt) && !is_learnt_of_another(attempt));
    if let Some(attempt) = last {
        let ended = attempt.ended_at.filter(|_| !attempt.was_lost());
        let ended = match (ended, came_late(question, attempt, late)) {
            (Some(at), _) => format!("ended at {at}"),
            (None, Some(at)) => {
                let settles = if reach.is_session() {
                    "the gateway settles the call by it when it is asked for again, if it says what happened"
                } else {
                    "the next resume settles the call by it if it says what happened"
                };
                format!("an answer came at {at} and could not be stored then: it is in late_replies.log, and {settles}")
            }
            (None, None) => ua_store::rules::made_by(attempt).map_or_else(
                || "no answer was recorded".to_owned(),
                |(by, _)| format!("as call {} of run {}, which this database does not have", by.call, by.run),
            ),
        };
        // Those that never left us are no sends, but for the last, which is told of anyway.
        let is_another = |other: &&AttemptRecord| {
            other.call_id == attempt.call_id
                && other.attempt != attempt.attempt
                && !other.never_left()
                && !is_learnt_of_another(other)
        };
        let earlier: Vec<&AttemptRecord> = attempts.iter().filter(is_another).collect();
        let before = match earlier.as_slice() {
            [] => String::new(),
            [first] => format!("; sent once before, at {}", first.started_at),
            [first, ..] => format!("; sent {} times before, the first time at {}", earlier.len(), first.started_at),
        };
        known.push(fact("sent", &format!("attempt {} at {}, {ended}{before}", attempt.attempt, attempt.started_at)));
        // Why there is no answer, or what the tool answered.
        let failed = call.filter(|call| call.status != CallStatus::Succeeded);
        // What became known of it later says more than it did then.
        let newest = attempts.iter().rfind(is_of_call).unwrap_or(attempt);
        let error = match detail_in_words(newest) {
            Some(detail) => {
                let told = failed.map(|call| CallRecord { error_detail: Some(detail.to_owned()), ..call.clone() });
                Some(told.as_ref().and_then(CallRecord::error_in_words).unwrap_or_else(|| detail.to_owned()))
            }
            None => failed.and_then(CallRecord::error_in_words),
        };
        if let Some(detail) = error.filter(|detail| !question.text.contains(detail.as_str())) {
            known.push(fact("error", &detail));
        }
    }
    // What it said in an earlier turn was not said about this call.
    let is_its_turn = |row: &&MessageRecord| call.is_none_or(|call| row.turn == call.position.turn);
    let said = messages.iter().rev().filter(|row| row.message.role == Role::Assistant);
    let said = said.filter(is_its_turn).map(|row| row.message.text());
    if question.kind != QuestionKind::AskUser
        && let Some(said) = said.map(|text| text.trim().to_owned()).find(|text| !text.is_empty())
        && !is_quoted(question, &said)
    {
        known.push(fact("model said", &said));
    }
    known
}

/// When an answer to an attempt came that could not be stored then, as what lies beside the database says, or the question itself.
fn came_late(question: &QuestionRecord, attempt: &AttemptRecord, late: &[LateReply]) -> Option<Timestamp> {
    let shown = question.detail.get("late_replies").cloned();
    let shown: Vec<LateReply> = shown.and_then(|shown| serde_json::from_value(shown).ok()).unwrap_or_default();
    let is_its_own = |late: &&LateReply| late.tool_call_id == attempt.call_id && late.is_to(attempt);
    late.iter().chain(&shown).filter(is_its_own).map(|late| late.at).next_back()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_store::QuestionStatus;

    use super::*;

    fn question(kind: QuestionKind, choices: &[Choice]) -> QuestionRecord {
        QuestionRecord {
            question_id: ua_core::QuestionId::parse("q_1").unwrap(),
            run_id: ua_core::RunId::parse("run_1").unwrap(),
            call_id: None,
            kind,
            text: "t".into(),
            detail: json!({}),
            choices: choices.to_vec(),
            created_at: ua_core::Env::simulated(1).now(),
            status: QuestionStatus::Open,
            answer: None,
            closed_because: None,
        }
    }

    #[test]
    fn a_word_says_what_is_done_and_older_words_are_accepted() {
        let unknown =
            question(QuestionKind::UnknownOutcome, &[Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort]);
        assert_eq!(words(&unknown), "happened, retry, skip, abort");
        let approval = question(QuestionKind::Approval, &[Choice::Execute, Choice::Skip, Choice::Abort]);
        assert_eq!(words(&approval), "approve, skip, abort");
        let credentials = question(QuestionKind::AuthFailure, &[Choice::Continue, Choice::Skip, Choice::Abort]);
        assert_eq!(words(&credentials), "retry, skip, abort");
        let does = |asked: &QuestionRecord| ways(asked, Reach::Run).remove(0).meaning;
        assert_eq!(does(&credentials), "the credentials are right now; try it again");
        let unpaid = QuestionRecord { detail: json!({ UNPAID: true }), ..credentials.clone() };
        assert_eq!(does(&unpaid), "the account can pay now; try it again");
        for (typed, wanted) in [
            ("retry", Some(Choice::Execute)),
            ("execute", Some(Choice::Execute)),
            ("approve", None),
            ("continue", None),
        ] {
            assert_eq!(chosen(&unknown, typed), wanted, "{typed}");
        }
        assert_eq!(chosen(&credentials, "continue"), Some(Choice::Continue));
        assert_eq!(chosen(&approval, "approve"), Some(Choice::Execute));
        assert_eq!(chosen(&approval, "deny"), Some(Choice::Skip));
        assert_eq!(chosen(&approval, "happened"), None);
        assert_eq!(chosen(&approval, "yes, please"), None);
    }

    #[test]
    fn what_is_known_says_how_often_a_call_was_sent_before() {
        let env = ua_core::Env::simulated(1);
        let call_id = ua_core::CallId::new(&env);
        let asked = QuestionRecord { call_id: Some(call_id.clone()), ..question(QuestionKind::UnknownOutcome, &[]) };
        let attempt = |call_id: &ua_core::CallId, number: u32, outcome: &str| AttemptRecord {
            call_id: call_id.clone(),
            attempt: number,
            epoch: 1,
            server_generation: None,
            destination: None,
            started_at: env.now().plus(std::time::Duration::from_secs(number.into())),
            ended_at: Some(env.now()),
            outcome: Some(outcome.to_owned()),
            detail: None,
            handle: None,
        };
        let sent = |attempts: &[AttemptRecord]| known(&asked, None, attempts, &[], &[], Reach::Run)[0].text.clone();
        let other = ua_core::CallId::new(&env);
        let of_another = attempt(&other, 1, "lost");
        let all = [1, 2, 3].map(|number| attempt(&call_id, number, "lost"));
        let (first, last) = (all[0].started_at, all[2].started_at);
        let [one, two, three] = all;
        let once = sent(&[of_another.clone(), attempt(&call_id, 1, "not_sent"), attempt(&call_id, 2, "lost")]);
        assert_eq!(once, format!("attempt 2 at {}, no answer was recorded", two.started_at));
        let again = sent(&[of_another, one.clone(), attempt(&call_id, 2, "not_sent"), three.clone()]);
        assert_eq!(again, format!("attempt 3 at {last}, no answer was recorded; sent once before, at {first}"));
        // What effects.log knows of one is no other one.
        let noted = format!("{}: it ended as succeeded, of attempt 2", ua_store::rules::RECALLED);
        let learnt = AttemptRecord { detail: Some(noted), ..three.clone() };
        let known_since = sent(&[one.clone(), two.clone(), learnt]);
        assert_eq!(
            known_since,
            format!("attempt 2 at {}, no answer was recorded; sent once before, at {first}", two.started_at)
        );
        let often = sent(&[one, two.clone(), three.clone()]);
        let before = format!("; sent 2 times before, the first time at {first}");
        assert_eq!(often, format!("attempt 3 at {last}, no answer was recorded{before}"));

        // What lies beside the database is said, by the file or by the question; not that of another attempt.
        let late = |attempt: &AttemptRecord| LateReply {
            at: attempt.started_at,
            run_id: asked.run_id.clone(),
            tool_call_id: call_id.clone(),
            attempt: attempt.attempt,
            sent_at: None,
            reply: ua_core::RawReply::http(200, "sent"),
        };
        let of = |asked: &QuestionRecord, late: &[LateReply], reach| {
            known(asked, None, std::slice::from_ref(&three), &[], late, reach)[0].text.clone()
        };
        let with = |asked: &QuestionRecord, late: &[LateReply]| of(asked, late, Reach::Run);
        // Nobody resumes a session.
        let of_session = of(&asked, &[late(&three)], Reach::Session);
        assert!(of_session.contains("the gateway settles") && !of_session.contains("resume"), "{of_session}");
        let shown = QuestionRecord { detail: json!({"late_replies": [late(&three)]}), ..asked.clone() };
        for said in [with(&asked, &[late(&three), late(&two)]), with(&shown, &[])] {
            assert!(said.contains(&format!("an answer came at {last} and could not be stored")), "{said}");
        }
        assert!(with(&asked, &[late(&two)]).contains("no answer was recorded"));
    }

    #[test]
    fn what_a_model_or_a_tool_asks_has_its_own_words() {
        let asked = question(QuestionKind::AskUser, &[Choice::Continue, Choice::Skip, Choice::Abort]);
        let commands: Vec<String> = ways(&asked, Reach::Run).into_iter().map(|way| way.command).collect();
        assert_eq!(commands, ["ua answer q_1 --text 'YOUR ANSWER'", "ua answer q_1 skip", "ua answer q_1 abort"]);
        let elicited = question(QuestionKind::Elicitation, &[Choice::Continue, Choice::Skip, Choice::Abort]);
        assert_eq!(words(&elicited), "accept, decline, cancel, abort");
        let commands: Vec<String> = ways(&elicited, Reach::Run).into_iter().map(|way| way.command).collect();
        for way in ways(&elicited, Reach::Run) {
            assert_eq!(
                chosen(&elicited, way.word),
                Some(way.choice),
                "each word that is printed is taken: {commands:?}"
            );
        }
        assert_eq!(ways(&elicited, Reach::Run)[0].command, "ua answer q_1 accept");
        assert!(ways(&elicited, Reach::Run)[0].meaning.contains("values"));
        let visit = json!({"params": {"mode": "url", "url": "https://a.example/"}});
        let visited = QuestionRecord { detail: visit, ..elicited.clone() };
        assert_eq!(ways(&visited, Reach::Run)[0].meaning, "you were at the address; the tool is told that you were");
        let schema = json!({"required": ["size", "gift"], "properties": {"size": {"enum": ["small", "large"]},
            "gift": {"type": "boolean"}, "count": {"type": "integer"}}});
        let elicited = QuestionRecord { detail: json!({"params": {"requestedSchema": schema}}), ..elicited };
        assert_eq!(
            ways(&elicited, Reach::Run)[0].command,
            "ua answer q_1 accept --values '{\"gift\":false,\"size\":\"small\"}'"
        );
        // What is printed is within the limits of the form; where nothing is known that is, each field is asked for.
        for (field, wanted) in [
            (json!({"type": "integer", "minimum": 3}), " accept --values '{\"a\":3}'"),
            (json!({"oneOf": [{"const": "s", "title": "Small"}]}), " accept --values '{\"a\":\"s\"}'"),
            (json!({"type": "string", "pattern": "^[0-9]{4}$"}), ""),
            (json!({"enum": ["it's"]}), ""),
            (json!({"type": "integer", "default": 2}), " accept"),
        ] {
            let schema = json!({"required": ["a"], "properties": {"a": field}});
            let elicited =
                QuestionRecord { detail: json!({"params": {"requestedSchema": schema}}), ..elicited.clone() };
            assert_eq!(ways(&elicited, Reach::Run)[0].command, format!("ua answer q_1{wanted}"), "{schema}");
        }
    }

    #[test]
    fn what_may_be_answered_depends_on_whom_an_answer_reaches() {
        let choices = [Choice::Continue, Choice::Skip, Choice::Abort];
        let live = QuestionRecord { detail: json!({"is_live": true}), ..question(QuestionKind::Elicitation, &choices) };
        let stored = question(QuestionKind::Elicitation, &choices);
        let words = |question: &QuestionRecord, whose, is_driven| {
            let reach = Reach::of(question, whose, is_driven);
            (reach, ways(question, reach).into_iter().map(|way| way.word).collect::<Vec<_>>())
        };
        let all = vec!["accept", "decline", "cancel", "abort"];
        assert_eq!(words(&live, Whose::Run, true), (Reach::Run, all.clone()));
        // What it waited on went with its process.
        assert_eq!(words(&live, Whose::Run, false), (Reach::Nobody, vec!["abort"]));
        assert_eq!(words(&stored, Whose::Run, false), (Reach::Run, all.clone()));
        assert_eq!(words(&live, Whose::Session, false), (Reach::Session, all));
        // Of a session that is ended only what became of a call is asked.
        assert_eq!(words(&stored, Whose::EndedSession, false), (Reach::EndedSession, vec!["abort"]));
        let all = [Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort];
        let doubt = question(QuestionKind::UnknownOutcome, &all);
        assert_eq!(words(&doubt, Whose::EndedSession, true).1, ["happened", "skip"]);
        assert!(Reach::Nobody.remark().is_some() && Reach::EndedSession.remark().is_some());
        assert!(Reach::Session.remark().is_none());
        // In the gateway there is no run that could be ended.
        let abort = |reach| ways(&stored, reach).pop().unwrap().meaning;
        assert_eq!(abort(Reach::Run), "end the run");
        // One of a sub-agent leaves the run above it as it is, whether or not the tool hears of it.
        for reach in [Reach::SubAgent, Reach::NobodyInSubAgent] {
            assert_eq!(abort(reach), "end this sub-agent only; the run above it continues");
            assert!(reach.remark().is_some_and(|said| said.contains("`ua runs cancel`")), "{reach:?}");
        }
        assert_eq!(words(&live, Whose::SubAgent, false), (Reach::NobodyInSubAgent, vec!["abort"]));
        assert_eq!(words(&live, Whose::SubAgent, true).0, Reach::SubAgent);
        assert!(abort(Reach::Session).contains("end this session") && !abort(Reach::Session).contains("run"));
        assert!(abort(Reach::Session).contains("the call is not sent, and"), "{}", abort(Reach::Session));
        // What is asked about was sent.
        let sent = question(QuestionKind::UnknownOutcome, &choices);
        let abort = ways(&sent, Reach::Session).pop().unwrap().meaning;
        assert!(abort.contains("end this session; the call is not sent again, and"), "{abort}");
    }

    /// A number that is an option itself is that option, not the one that stands there in the list.
    #[test]
    fn an_option_is_meant_by_its_words_before_its_number() {
        let asked = QuestionRecord {
            detail: json!({"options": ["10", "1", "Red"]}),
            ..question(QuestionKind::AskUser, &[Choice::Continue, Choice::Skip])
        };
        for (typed, meant) in [
            ("1", Some("1")),
            (" 10 ", Some("10")),
            ("2", Some("1")),
            ("3", Some("Red")),
            ("red", Some("Red")),
            ("0", None),
            ("99", None),
            ("rde", None),
        ] {
            assert_eq!(option_meant(&asked, typed), meant, "{typed}");
        }
        assert_eq!(option_meant(&question(QuestionKind::AskUser, &[]), "1"), None);
    }

    #[test]
    fn a_sub_agent_is_named_with_the_run_that_continues_without_it() {
        let top = ua_core::RunId::parse("run_top").unwrap();
        let mut run = ua_evidence::testing::Story::new(r#"{"objective": "check the order"}"#).records.run;
        assert_eq!(Whose::of(&run), Whose::Run);
        ua_core::TASK_MODE.clone_into(&mut run.run_mode);
        assert_eq!(Whose::of(&run), Whose::SubAgent);
        let fact = sub_agent(&run.spec.objective, &top);
        assert_eq!(fact.name, SUB_AGENT);
        let said = "\"check the order\" of run run_top, which continues without it; to end everything: `ua runs cancel run_top`";
        assert_eq!(fact.text, said);
    }

    #[test]
    fn what_the_model_said_is_of_the_turn_of_the_call() {
        let mut story = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#);
        let mail = ua_evidence::testing::mail_policy();
        story.asks("Mailing the first.", &[("mcp__ua__send_email", json!({"to": "a"}), mail.clone())]);
        let ids = story.asks("", &[("mcp__ua__send_email", json!({"to": "b"}), mail)]);
        let records = &story.records;
        let asked = QuestionRecord { call_id: Some(ids[0].clone()), ..question(QuestionKind::Approval, &[]) };
        let said = |question: &QuestionRecord, call| {
            let known = known(question, call, &[], &records.messages, &[], Reach::Run);
            known.into_iter().map(|fact| fact.text).collect::<Vec<_>>()
        };
        assert_eq!(said(&asked, records.call(&ids[0])), Vec::<String>::new(), "it said nothing about this one");
        let of_run = question(QuestionKind::MissingEvidence, &[]);
        assert_eq!(said(&of_run, None), ["Mailing the first."]);
        let quoted = QuestionRecord { text: "It cannot be read. It said: Mailing the first.".into(), ..of_run };
        assert_eq!(said(&quoted, None), [""; 0], "once is enough");
    }

    #[test]
    fn which_calls_read_what_others_wrote_and_what_is_private_is_told_where_that_is_why() {
        use ua_evidence::testing::{Story, mail_policy, read_policy};

        let mut story = Story::new(r#"{"objective": "x"}"#);
        let reads = |reads| ua_core::CallPolicy { reads, ..read_policy() };
        let page = reads([ua_core::Reads::Untrusted].into());
        let both = reads([ua_core::Reads::Untrusted, ua_core::Reads::Private].into());
        let calls = [
            ("crawl", json!({"url": "https://a.example/"}), page.clone()),
            ("get_rows", json!({}), both),
            ("crawl", json!({"url": "never sent"}), page),
            ("send_email", json!({"to": "a"}), mail_policy()),
        ];
        let ids = story.asks("", &calls);
        story.starts(&ids[0]);
        story.starts(&ids[1]);
        let asked = |reasons: &Value| QuestionRecord {
            detail: json!({"reasons": reasons}),
            ..question(QuestionKind::Approval, &[Choice::Execute])
        };
        let told: Vec<(&str, String)> = read_by(&asked(&json!(["approval", "tainted"])), &story.records.calls)
            .into_iter()
            .map(|fact| (fact.name, fact.text))
            .collect();
        let untrusted = r#"1.1 crawl {"url":"https://a.example/"}; 1.2 get_rows {}"#;
        assert_eq!(told, [("untrusted text", untrusted.to_owned()), ("private data", "1.2 get_rows {}".to_owned())]);
        assert_eq!(read_by(&asked(&json!(["approval"])), &story.records.calls), []);

        let page = story.records.calls[0].clone();
        let many = vec![page; 9];
        assert!(read_by(&asked(&json!(["made_address"])), &many)[0].text.ends_with("; and 5 more"));
    }
}
