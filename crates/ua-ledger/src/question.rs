//! The questions that the ledger asks about a call, in a person's words.

use serde_json::{Value, json};
use ua_core::{
    CallId, CallPolicy, CallStatus, Env, FieldKind, PossibleEffect, QuestionId, QuestionText, ShortNames, Timestamp,
    default_of, fields, holds_mark, is_by_address, look_alikes_in, missing, on_one_line,
};
use ua_store::{AttemptRecord, CallRecord, Choice, LateReply, NewQuestion, QuestionKind, QuestionRecord, Trace, rules};

use crate::admission::Facts;
use crate::late::said;
use crate::lost::LostCall;
use crate::outside::Still;
use crate::people::CallsOf;
use crate::recipient::Problem;
use crate::related::Other;
use crate::sends::Sends;
use crate::sent_files::FileContent;
use crate::verdict::{Against, keep};

/// What is asked.
#[derive(Debug)]
pub(crate) enum Why<'a> {
    /// Sent, outcome not known.
    Unknown {
        attempt: Option<&'a AttemptRecord>,
        sends: Sends<'a>,
        /// Why it is a person's to decide; with the tool gone among it, it cannot be sent again.
        against: Vec<Against>,
        because: String,
        facts: &'a Facts,
        others: Vec<Other<'a>>,
        /// Until then the other side may still begin it.
        look_after: Option<Timestamp>,
        /// The other call that may have its effect the longest.
        beside: Option<(&'a CallRecord, Still)>,
        /// What came of it, and could not be stored.
        late: &'a [LateReply],
    },
    /// The same, and the run goes on meanwhile.
    WentOn { sends: Sends<'a> },
    /// Not sent yet, and something speaks against sending it without a person's word: every reason there is, the first of them says what
    /// kind of question it is. `changed` is what is not as a person approved it before, in clauses. `earlier` is the call of which they may say that
    /// it was this very effect, so that its answer is this one's, too; `beside` the one that may still have its effect the longest.
    Send {
        facts: &'a Facts,
        first: Reason<'a>,
        more: Vec<Reason<'a>>,
        changed: Vec<String>,
        earlier: Option<&'a CallRecord>,
        beside: Option<(&'a CallRecord, Still)>,
        /// What came of the other calls, and could not be stored yet.
        late: &'a [LateReply],
        /// What the database lost and is asked about next.
        lost: Option<Box<LostCall>>,
    },
    /// The tool refused the credentials; what the database lost is asked about next.
    AuthFailure { facts: &'a Facts, lost: Option<Box<LostCall>> },
    /// The model asks.
    AskUser,
    /// A tool asks, in the middle of a call.
    Elicitation { name: &'a str, params: &'a Value, round: u32, is_live: bool, others: Vec<Other<'a>> },
}

impl Why<'_> {
    /// Other calls that bear on the answer.
    fn others(&self) -> Vec<Other<'_>> {
        match self {
            Self::Send { first: Reason::NearDuplicate(others), .. }
            | Self::Unknown { others, .. }
            | Self::Elicitation { others, .. } => others.clone(),
            Self::Send { .. } | Self::WentOn { .. } | Self::AuthFailure { .. } | Self::AskUser => Vec::new(),
        }
    }

    /// What was found out about the call just before it was asked about, for words that let it run.
    fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Send { facts, .. } | Self::AuthFailure { facts, .. } | Self::Unknown { facts, .. } => Some(facts),
            Self::WentOn { .. } | Self::AskUser | Self::Elicitation { .. } => None,
        }
    }

    /// By what a person finds what it is about, whosever that is.
    fn traces(&self, call: &CallRecord) -> Vec<Trace> {
        match self {
            Self::Unknown { sends, .. } | Self::WentOn { sends } => Trace::of(call, sends.attempts()),
            Self::Send { lost, .. } | Self::AuthFailure { lost, .. } => {
                lost.iter().filter_map(|lost| lost.trace()).collect()
            }
            Self::AskUser | Self::Elicitation { .. } => Vec::new(),
        }
    }

    /// What effects.log alone knows of it.
    fn lost(&self, call: &CallRecord) -> Vec<Value> {
        match self {
            Self::Unknown { sends, .. } | Self::WentOn { sends } => {
                let lost = sends.attempts().iter().filter_map(LostCall::of);
                lost.map(|lost| lost.as_shown(call)).collect()
            }
            Self::Send { lost, .. } | Self::AuthFailure { lost, .. } => {
                lost.iter().map(|lost| lost.as_shown(call)).collect()
            }
            Self::AskUser | Self::Elicitation { .. } => Vec::new(),
        }
    }

    /// Until when a look is too early, as far as a time says it.
    fn look_after(&self) -> Option<Timestamp> {
        let of = |beside: &Option<(&CallRecord, Still)>| beside.and_then(|(_, still)| still.until());
        match self {
            Self::Unknown { look_after, beside, .. } => (*look_after).max(of(beside)),
            Self::Send { beside, .. } => of(beside),
            Self::WentOn { .. } | Self::AuthFailure { .. } | Self::AskUser | Self::Elicitation { .. } => None,
        }
    }
}

/// How another call stands that a person is shown, and how many stand like it.
fn as_shown(other: Other<'_>) -> Value {
    let Other { call, count, is_left: _ } = other;
    json!({
        "call": call.call_id,
        "status": call.status,
        "in_doubt": call.doubt.is_some(),
        "attempt": call.attempt,
        "count": count,
    })
}

/// Where the detail of a question has the call of which a person may say that it was the effect that is asked about.
const EARLIER: &str = "earlier";

/// The call of which a person who answers the question may say that it was the effect.
pub(crate) fn earlier_of(asked: &QuestionRecord) -> Option<&str> {
    asked.detail.get(EARLIER).and_then(Value::as_str)
}

/// Whether a question showed another call, and it stands now as it did then, with no more beside it.
pub(crate) fn shows(asked: &QuestionRecord, other: &Other<'_>) -> bool {
    let now = as_shown(*other);
    let covers = |shown: &Value| {
        let says_the_same = |name: &str| shown.get(name) == now.get(name);
        // A question of an earlier version showed each.
        let count = shown.get("count").and_then(Value::as_u64);
        // It may be in doubt as before, and have been sent again. A question of an earlier version did not say how often.
        let is_the_same_attempt =
            if shown.get("attempt").is_some() { says_the_same("attempt") } else { is_older(other, asked) };
        ["call", "status", "in_doubt"].into_iter().all(says_the_same)
            && is_the_same_attempt
            && count.is_none_or(|count| other.count <= count)
    };
    match asked.detail.get("others").and_then(Value::as_array) {
        Some(shown) => shown.iter().any(covers),
        // A question of an earlier version does not say.
        None => is_older(other, asked),
    }
}

/// Whether a question showed a call as it stands, whatever it was shown as.
pub(crate) fn showed_as_it_stands(asked: &QuestionRecord, call: &CallRecord) -> bool {
    let now = as_shown(Other { call, count: 1, is_left: false });
    let shown = asked.detail.get("others").and_then(Value::as_array).into_iter().flatten();
    shown.into_iter().any(|shown| ["call", "status", "attempt"].iter().all(|name| shown.get(name) == now.get(name)))
}

/// The other calls that a question names.
pub(crate) fn others_of(asked: &QuestionRecord) -> Vec<CallId> {
    let shown = asked.detail.get("others").and_then(Value::as_array).into_iter().flatten();
    shown.filter_map(|other| CallId::parse(other.get("call")?.as_str()?).ok()).collect()
}

fn is_older(other: &Other<'_>, asked: &QuestionRecord) -> bool {
    other.call.updated_at <= asked.created_at
}

/// Why a person is asked before a call goes out. A word is good for the reasons that were shown with it and for no other.
#[derive(Debug)]
pub(crate) enum Reason<'a> {
    /// Other calls, at least one, may already have had this effect.
    NearDuplicate(Vec<Other<'a>>),
    /// It is not clear who an e-mail goes to.
    AmbiguousRecipient(Problem),
    /// A policy or the job wants approval.
    Approval,
    /// The run has read what others wrote and what is private, and nobody named where this goes: these are what it names itself.
    Tainted(Vec<String>),
    /// The same, and it reads addresses that nobody but the model has written.
    MadeAddress(Vec<String>),
    /// A person said that this call had the effect, and what is recorded of it has changed since.
    Moved(&'a str),
}

impl Reason<'_> {
    fn code(&self) -> &'static str {
        match self {
            Self::NearDuplicate(_) => "near_duplicate",
            Self::AmbiguousRecipient(_) => "ambiguous_recipient",
            Self::Approval => "approval",
            Self::Tainted(_) => "tainted",
            Self::MadeAddress(_) => "made_address",
            Self::Moved(_) => "moved",
        }
    }

    fn kind(&self) -> QuestionKind {
        match self {
            Self::NearDuplicate(_) => QuestionKind::NearDuplicate,
            Self::AmbiguousRecipient(_) => QuestionKind::AmbiguousRecipient,
            Self::Approval | Self::Tainted(_) | Self::MadeAddress(_) | Self::Moved(_) => QuestionKind::Approval,
        }
    }

    /// Whether a question showed this reason, so that its answer is about it.
    pub(crate) fn is_shown_by(&self, asked: &QuestionRecord) -> bool {
        match asked.detail.get("reasons").and_then(Value::as_array) {
            Some(codes) => codes.iter().any(|code| code.as_str() == Some(self.code())),
            // A question of an earlier version had one.
            None => asked.kind == self.kind(),
        }
    }

    /// The reason as a sentence.
    fn sentence(&self, call: &CallRecord, calls_of: CallsOf) -> String {
        match self {
            Self::NearDuplicate(others) => {
                let Some((first, more)) = others.split_first() else { return String::new() };
                let other = first.call;
                let route = if other.name == call.name { String::new() } else { format!("`{}`, ", other.name.raw) };
                let named = match calls_of {
                    CallsOf::Job | CallsOf::Step => {
                        let (turn, run) = (other.position.turn, whose(calls_of, call, other));
                        let status = stands_beside(calls_of, first);
                        format!("of this {} ({route}{status}, turn {turn}{run})", calls_of.noun())
                    }
                    CallsOf::Session => {
                        let of = whose(calls_of, call, other);
                        let (status, at) = (other.status.in_words(), other.created_at);
                        format!("{} ({route}{status}, asked for at {at})", of.trim_start())
                    }
                };
                let words = if other.args_hash == call.args_hash { "the same" } else { "other" };
                let mut so =
                    if more.is_empty() { String::new() } else { format!(" So may {}.", listed(call, calls_of, more)) };
                // Of those that stand alike the newest is named.
                match others.iter().map(|other| other.count.saturating_sub(1)).sum::<u64>() {
                    0 => {}
                    1 => so.push_str(" So may an earlier one like these."),
                    many => so.push_str(&format!(" So may {many} earlier ones like these.")),
                }
                format!(
                    "Call {} {named} may already have had the same effect with {words} arguments: {}{so}",
                    other.call_id,
                    shown_arguments(other)
                )
            }
            Self::AmbiguousRecipient(problem) => problem.in_words(calls_of),
            Self::Approval if call.policy.rule_id == CallPolicy::MAY_REPEAT => call.policy.reason.clone(),
            Self::Approval => {
                format!("Calls of this tool ({}) need a person's approval.", class_words(call))
            }
            Self::Tainted(unnamed) => {
                let named = if unnamed.is_empty() { String::new() } else { format!(" ({})", shown_addresses(unnamed)) };
                let work = calls_of.noun();
                format!(
                    "It is {}. This {work} has read untrusted text and private data, and neither the {work} nor a person named where this \
                     goes{named}: the untrusted text may have asked for it. What lifts this question in later runs: the tool or its \
                     destination in `constraints.allowed_destinations` of the {work}, `side_effect_class = \"read_only\"` in a policy rule \
                     if the tool only reads, or `escalation.ask_human_on_tainted_effect` as `false`.",
                    effect_words(call)
                )
            }
            Self::Moved(earlier) => format!(
                "A person said that call {earlier} had this effect already. What is recorded about that call has changed since, and by now no call is \
                 known to have had it."
            ),
            Self::MadeAddress(addresses) => {
                let work = calls_of.noun();
                format!(
                    "It reads {}, which appears neither in the {work}, nor in what a person wrote, nor in untrusted text of an \
                     earlier result. This {work} has read untrusted text and private data: the address may leak it.",
                    shown_addresses(addresses)
                )
            }
        }
    }
}

/// The question. `names` says how tools are called in short, and `bind` what a word that lets the call run is bound to.
pub(crate) fn question(
    env: &Env,
    names: &ShortNames,
    (call, calls_of): (&CallRecord, CallsOf),
    why: &Why<'_>,
    bind: impl Fn(&Facts) -> Value,
) -> NewQuestion {
    let tool = names.of(&call.name);
    let arguments = format!("Arguments: {}", shown_arguments(call));
    let (kind, text, choices) = match why {
        Why::Unknown { attempt, sends, against, because, facts, others, look_after, beside, late } => {
            let text = match attempt.and_then(LostCall::of) {
                Some(lost) if because.is_empty() => lost.asked(tool),
                Some(lost) => format!("{} It is asked because {because}.", lost.asked(tool)),
                None => match said_to_be_done(tool, *attempt, sends.attempts()) {
                    Some(done) => format!("{done} ({because})."),
                    None => format!("{} ({because}).", sent_and_lost((call, tool), *attempt)),
                },
            };
            let text = text + &sends.in_words(&call.policy);
            let more = shown_names(&why.traces(call)).into_iter().chain(shown_late(late));
            let more = more.chain(changed_files(call, facts)).chain(shown_wait(*look_after));
            let more = more.chain(shown_beside(*beside));
            let more = shown_since(call, calls_of, others, because).chain(more);
            let text = more.fold(QuestionText::new(&text).line(arguments), QuestionText::line);
            let again = (!against.contains(&Against::ToolGone)).then_some(Choice::Execute);
            let choices = [Some(Choice::Happened), again, Some(Choice::Skip), Some(Choice::Abort)];
            (QuestionKind::UnknownOutcome, text, choices.into_iter().flatten().collect())
        }
        Why::WentOn { sends } => {
            let attempt = sends.last();
            let lost = sends.attempts().iter().rev().find_map(LostCall::of);
            let text = match (attempt.and_then(LostCall::of), lost) {
                (Some(lost), _) => lost.asked(tool),
                (None, Some(lost)) => format!("{}; {}.", sent_and_lost((call, tool), attempt), lost.in_words()),
                (None, None) => format!("{}.", sent_and_lost((call, tool), attempt)),
            };
            let text = format!(
                "{text}{} {} without it and does not repeat it until you answer.",
                sends.in_words(&call.policy),
                match calls_of {
                    CallsOf::Job | CallsOf::Step => "The run continues",
                    CallsOf::Session => "The gateway continues",
                }
            );
            let names = shown_names(&why.traces(call));
            let text = names.into_iter().fold(QuestionText::new(&text).line(arguments), QuestionText::line);
            (QuestionKind::UnknownOutcome, text, vec![Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort])
        }
        Why::Send { facts, first, more, changed, earlier, beside, late, lost } => {
            let mut text = if more.is_empty() {
                QuestionText::new(&format!("May `{tool}` run? {}", on_one_line(&first.sentence(call, calls_of))))
            } else {
                std::iter::once(first)
                    .chain(more)
                    .map(|reason| format!("  - {}", reason.sentence(call, calls_of)))
                    .fold(QuestionText::new(&format!("May `{tool}` run?")), QuestionText::line)
            };
            if !changed.is_empty() {
                text = text.line(format!("Changed since you were asked: {}.", changed.join("; ")));
            }
            let lines = shown_facts(facts)
                .into_iter()
                .chain(shown_beside(*beside))
                .chain(late.iter().map(shown_late_of_another))
                .chain(lost.as_ref().map(|lost| lost.asked_next()))
                .chain(shown_names(&why.traces(call)));
            let text = lines.fold(text.line(arguments), QuestionText::line);
            // Whoever could only let it run or leave it would have to do it twice for it to count.
            let happened = earlier.map(|_| Choice::Happened);
            (first.kind(), text, happened.into_iter().chain([Choice::Execute, Choice::Skip, Choice::Abort]).collect())
        }
        Why::AuthFailure { lost, .. } => {
            let happened = match call.loss_left_open() {
                Some(loss) => {
                    format!("That attempt did nothing; {loss}, and that the tool only reads is a guess by its name")
                }
                None => "Nothing happened".to_owned(),
            };
            let text = format!(
                "The tool server `{}` refused the credentials of `{tool}` ({}). {happened}. Correct them (`headers` of the \
                 MCP configuration, or a login there) before you let it be tried again.",
                call.name.server,
                call.error_code.as_deref().unwrap_or("refused").replace("http_", "HTTP ")
            );
            let lines = lost.as_ref().map(|lost| lost.asked_next()).into_iter().chain(shown_names(&why.traces(call)));
            let text = lines.fold(QuestionText::new(&text), QuestionText::line);
            (QuestionKind::AuthFailure, text, vec![Choice::Continue, Choice::Skip, Choice::Abort])
        }
        Why::AskUser => {
            let asked = call.arguments.get("question").and_then(Value::as_str).unwrap_or_default();
            let options = (1..).zip(options(call)).map(|(number, option): (usize, _)| format!("  {number}. {option}"));
            let text = QuestionText::new(&format!("The model asks: {}", asked.trim()));
            let text = options.fold(text, QuestionText::line);
            (QuestionKind::AskUser, text, vec![Choice::Continue, Choice::Skip, Choice::Abort])
        }
        Why::Elicitation { params, is_live, others, .. } => {
            let choices = vec![Choice::Continue, Choice::Skip, Choice::Abort];
            let text = elicitation_text(call, calls_of, params, *is_live);
            // Whoever fills it in sends the call on.
            let text = shown_since(call, calls_of, others, "").fold(text, QuestionText::line);
            (QuestionKind::Elicitation, text, choices)
        }
    };
    let mut detail = json!({
        "tool": call.name.raw,
        "arguments": call.arguments,
        "args_hash": call.args_hash,
        "tool_digest": call.tool_digest,
        "idempotency_key": call.idempotency_key,
        "attempt": call.attempt,
        "binding": why.facts().map(bind),
        "options": options(call),
    });
    let names: Vec<String> = why.traces(call).into_iter().flat_map(|trace| trace.names).collect();
    if !names.is_empty() {
        detail["found_by"] = json!(names);
    }
    let lost = why.lost(call);
    if !lost.is_empty() {
        detail[LOST] = json!(lost);
    }
    detail["others"] = why.others().into_iter().map(as_shown).collect();
    if let Why::Unknown { against, late, .. } = why {
        keep(&mut detail, against);
        if !late.is_empty() {
            detail["late_replies"] = json!(late);
        }
    }
    if let Some(until) = why.look_after() {
        detail[LOOK_AFTER] = json!(until);
    }
    if let Why::Send { first, more, earlier, .. } = why {
        detail["reasons"] = std::iter::once(first).chain(more).map(|reason| json!(reason.code())).collect();
        if let Some(earlier) = earlier {
            detail[EARLIER] = json!(earlier.call_id);
        }
    }
    if let Why::Elicitation { name, params, round, is_live, .. } = why {
        detail["is_live"] = json!(is_live);
        detail["request"] = json!(name);
        detail["params"] = (*params).clone();
        detail["round"] = json!(round);
    }
    NewQuestion {
        question_id: QuestionId::new(env),
        call_id: Some(call.call_id.clone()),
        kind,
        text,
        detail,
        choices,
        at: env.now(),
    }
}

/// Whether it happened, and which attempt nobody knows the end of; without a full stop.
fn sent_and_lost((call, tool): (&CallRecord, &str), attempt: Option<&AttemptRecord>) -> String {
    let sent = attempt.map_or_else(String::new, |attempt| format!(" at {}", attempt.started_at));
    let number = attempt.map_or(call.attempt, |attempt| attempt.attempt);
    format!("Did `{tool}` happen? Attempt {number} was sent{sent} and its outcome is not known")
}

/// The same of an attempt that effects.log says succeeded, which is an answer; without a full stop.
fn said_to_be_done(tool: &str, asked: Option<&AttemptRecord>, attempts: &[AttemptRecord]) -> Option<String> {
    let succeeded = format!("{}: {}", rules::RECALLED, CallStatus::Succeeded);
    let is_done = |attempt: &&AttemptRecord| {
        let said = attempt.detail.as_deref().and_then(|detail| detail.strip_prefix(succeeded.as_str()));
        let is_since = asked.is_none_or(|asked| attempt.attempt >= asked.attempt);
        said.is_some() && is_since && rules::made_by(attempt).is_none()
    };
    let done = attempts.iter().rev().find(is_done)?;
    let number = rules::learnt_of_another(done).unwrap_or(done.attempt);
    let sent = attempts.iter().find(|attempt| attempt.attempt == number).unwrap_or(done).started_at;
    Some(format!(
        "Did `{tool}` happen? effects.log says that it did: attempt {number} was sent at {sent} and succeeded, and this database does not have its answer, \
         since an older copy of it was put back. The answer is that it happened, unless it was undone since"
    ))
}

/// The most fields of a form that are listed in words; the whole form is in the question's detail.
const MAX_FIELDS: usize = 20;
/// As much of a field is shown: its name, what it takes with all that may be chosen, and whether it may be left out.
const MAX_FIELD: usize = 1000;

/// What a tool wants to know. Its words are foreign, so they are quoted, and what they ask for is called what it is.
fn elicitation_text(call: &CallRecord, calls_of: CallsOf, params: &Value, is_live: bool) -> QuestionText {
    let (tool, server) = (&call.name.tool, &call.name.server);
    let says = cut(params.get("message").and_then(Value::as_str).unwrap_or_default().trim(), 1000);
    let text = format!("The tool server `{server}` asks, in the middle of `{tool}`: {says:?}");
    let mut text = QuestionText::new(&text);
    if is_by_address(params) {
        let url = cut(params.get("url").and_then(Value::as_str).unwrap_or_default(), 1000);
        text = text.line(format!(
            "It asks you to visit {url:?}. ua does not open it. Look at the address, and visit it only if you trust \
             it: accepting says that you visited it."
        ));
    } else {
        let required = missing(&serde_json::Map::new(), params);
        for (name, schema) in fields(params).take(MAX_FIELDS) {
            let what = schema.get("description").or_else(|| schema.get("title")).and_then(Value::as_str);
            let what = what.map_or_else(String::new, |what| format!(". {what:?}"));
            let left_out = match default_of(schema) {
                Some(default) => format!(", {default} if it is left out"),
                None if schema.get("default").is_some_and(holds_mark) => {
                    ", no default (the form's holds a secret, which is not kept and not sent)".to_owned()
                }
                None if required.contains(&name.as_str()) => String::new(),
                None => ", may be left out".to_owned(),
            };
            let takes = FieldKind::of(schema).takes();
            // The name is as foreign as the rest, and stands in front; what may be chosen is not cut for what is said about it.
            let what = cut(&what, 300);
            let field = format!("  - {name:?}: {takes}{left_out}");
            text = text.line(format!("{}{what}", cut(&field, MAX_FIELD)));
        }
    }
    if is_live {
        text = text.line(match calls_of {
            CallsOf::Job | CallsOf::Step => {
                "The server waits for the answer on its connection, which ends with the process that drives the run. Once that is gone no \
                 answer reaches it: resume the run then."
            }
            CallsOf::Session => {
                "The server waits for the answer on its connection, which ends with the gateway's broker. Once that is gone no answer \
                 reaches it."
            }
        });
    }
    text
}

/// The answers that a model proposes with `ask_user`; none for every other call.
fn options(call: &CallRecord) -> Vec<String> {
    let listed = call.arguments.get("options").filter(|_| call.name.is_ask_user()).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What its class and effect are.
fn class_words(call: &CallRecord) -> String {
    let class = call.policy.class;
    call.policy
        .effect_kind
        .as_ref()
        .map_or_else(|| format!("`{class}`"), |kind| format!("`{class}`, `{}`", kind.as_str()))
}

/// What kind of call it is, in a person's words.
fn effect_words(call: &CallRecord) -> String {
    let class = call.policy.class;
    call.policy.effect_kind.as_ref().map_or_else(
        || format!("a call of class `{class}`"),
        |kind| format!("a call of class `{class}` (`{}`)", kind.as_str()),
    )
}

/// Addresses as they are written, with what cannot be seen of them.
fn shown_addresses(addresses: &[String]) -> String {
    let shown = |address: &String| {
        let note = look_alikes_in(address).map_or_else(String::new, |note| format!(" ({note})"));
        format!("{:?}{note}", cut(address, 300))
    };
    let list: Vec<String> = addresses.iter().take(MAX_LISTED).map(shown).collect();
    let left = addresses.len().saturating_sub(MAX_LISTED);
    let more = if left == 0 { String::new() } else { format!(" and {left} more") };
    format!("{}{more}", list.join(", "))
}

/// How many further calls a question lists; its detail has all.
const MAX_LISTED: usize = 3;

/// Of which run another call is, with a space before it. Within a job that is said of a call of another run alone; a client knows sessions, and
/// that its own is meant is said too.
pub(crate) fn whose(calls_of: CallsOf, call: &CallRecord, other: &CallRecord) -> String {
    match calls_of {
        CallsOf::Job | CallsOf::Step if other.run_id == call.run_id => String::new(),
        CallsOf::Job | CallsOf::Step => format!(" of run {}", other.run_id),
        CallsOf::Session if other.run_id == call.run_id => " of this session".to_owned(),
        CallsOf::Session => format!(" of session {}", other.run_id),
    }
}

/// Where a call stands, as a person reads it. Whoever is asked about a job finds the same word in its report; a client's dialogue is kept plain.
pub(crate) fn stands(calls_of: CallsOf, call: &CallRecord) -> &'static str {
    let may_be_there = call.status == CallStatus::FailedReported
        && call.policy.class.has_effect()
        && call.possible_effect != Some(PossibleEffect::None);
    match calls_of {
        CallsOf::Job | CallsOf::Step if may_be_there => "failed, may have happened",
        CallsOf::Job | CallsOf::Step | CallsOf::Session => call.status.in_words(),
    }
}

/// The same of a call that may stand in the way of another one. Of one that was sent by a process that is gone nobody knows whether it happened.
fn stands_beside(calls_of: CallsOf, other: &Other<'_>) -> &'static str {
    match calls_of {
        CallsOf::Job | CallsOf::Step if other.is_left => "its process ended before an answer came",
        CallsOf::Job | CallsOf::Step | CallsOf::Session => stands(calls_of, other.call),
    }
}

/// Calls by their ids, each with whether it has the words of `call`: the one that is told of in front of them may have others.
fn listed(call: &CallRecord, calls_of: CallsOf, calls: &[Other<'_>]) -> String {
    let in_words = |beside: &Other<'_>| {
        let other = beside.call;
        let route = if other.name == call.name { String::new() } else { format!("`{}`, ", other.name.raw) };
        let words = if other.args_hash == call.args_hash { "the same" } else { "other" };
        let status = stands_beside(calls_of, beside);
        format!("{} ({route}{status}, with {words} arguments)", other.call_id)
    };
    let ids: Vec<String> = calls.iter().take(MAX_LISTED).map(in_words).collect();
    let left = calls.len().saturating_sub(MAX_LISTED);
    if left == 0 { ids.join(", ") } else { format!("{} and {left} more", ids.join(", ")) }
}

/// What may have had the effect of a call in doubt since it was sent, in a line: the answer is taken for one that knows of each. The one that
/// the reason names is in the text already.
fn shown_since(
    call: &CallRecord,
    calls_of: CallsOf,
    others: &[Other<'_>],
    because: &str,
) -> impl Iterator<Item = String> {
    let in_words = |other: &Other<'_>| {
        let Other { call: other, count, is_left: _ } = other;
        let of = whose(calls_of, call, other);
        let like_it = match count.saturating_sub(1) {
            0 => String::new(),
            1 => ", and an earlier one like it".to_owned(),
            many => format!(", and {many} earlier ones like it"),
        };
        let stands = match calls_of {
            CallsOf::Job | CallsOf::Step => format!("{}, turn {}", stands(calls_of, other), other.position.turn),
            CallsOf::Session => format!("{}, asked for at {}", other.status.in_words(), other.created_at),
        };
        format!("call {}{of} ({stands}){like_it}", other.call_id)
    };
    let unnamed = others.iter().filter(|other| other.count > 1 || !because.contains(other.call.call_id.as_str()));
    let mut names: Vec<String> = unnamed.map(in_words).collect();
    let left = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    if left > 0 {
        names.push(format!("{left} more"));
    }
    (!names.is_empty()).then(|| format!("May have had the effect since it was sent: {}", names.join("; "))).into_iter()
}

/// The files that are not what they were when the call was sent, or of which nobody can say it, each on a line.
fn changed_files(call: &CallRecord, facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    for (argument, file) in facts.files.iter() {
        match &file.content {
            FileContent::Known { digest, .. } if call.file_digests.get(argument) == Some(digest) => {}
            FileContent::Nothing if !call.file_digests.contains_key(argument) => {}
            FileContent::Known { .. } | FileContent::Nothing => {
                lines.push(format!("Changed since it was sent: {argument} {file}"));
            }
            FileContent::Unknown { .. } => {
                lines.push(format!("Perhaps changed since it was sent: {argument} {file}"));
            }
        }
    }
    lines
}

/// The answers that could not be stored, each on a line.
fn shown_late(late: &[LateReply]) -> impl Iterator<Item = String> {
    let line = |late: &LateReply| {
        let (attempt, at, said) = (late.attempt, late.at, cut(&said(&late.reply), 300));
        format!("An answer to attempt {attempt} came at {at} and could not be stored: {said}")
    };
    late.iter().map(line)
}

/// By what a person finds what was sent, each with whose name it is where it may be of one of several.
fn shown_names(traces: &[Trace]) -> Vec<String> {
    let line = |trace: &Trace| match &trace.of {
        Some(of) if traces.len() > 1 => format!("Look for call {} by: {}", of.call, trace.names.join("; ")),
        Some(_) | None => format!("Look for it by: {}", trace.names.join("; ")),
    };
    traces.iter().map(line).collect()
}

/// Where the detail of a question has what effects.log alone knows.
const LOST: &str = "lost";

/// Whether a question told its person of what the database lost.
pub(crate) fn tells_of(asked: &QuestionRecord, lost: &LostCall, call: &CallRecord) -> bool {
    let shown = asked.detail.get(LOST).and_then(Value::as_array).into_iter().flatten();
    let of = lost.as_shown(call);
    shown.into_iter().any(|shown| shown.get("call") == of.get("call"))
}

/// The same of another call: the record says nothing of it yet.
fn shown_late_of_another(late: &LateReply) -> String {
    let (call, run, at, said) = (&late.tool_call_id, &late.run_id, late.at, cut(&said(&late.reply), 300));
    format!(
        "An answer to call {call} came at {at} and could not be stored; run {run} stores it when it continues: {said}"
    )
}

/// Where a question keeps from when on a look counts.
const LOOK_AFTER: &str = "look_after";

/// Until when, as a question shows it, the other side may still begin the call, or another one that it names; who looked before may have looked too
/// early.
pub fn look_after(asked: &QuestionRecord) -> Option<Timestamp> {
    asked.detail.get(LOOK_AFTER).and_then(|until| serde_json::from_value(until.clone()).ok())
}

/// From when on a look counts.
fn shown_wait(look_after: Option<Timestamp>) -> Option<String> {
    look_after.map(|until| {
        format!("Check after {until}: until then the other side may still begin it, so the answer that it did not happen is refused.")
    })
}

/// The same for another call, which may have the effect behind whoever looks before.
fn shown_beside(beside: Option<(&CallRecord, Still)>) -> Option<String> {
    let (other, still) = beside?;
    let id = &other.call_id;
    match still {
        Still::Over => None,
        Still::Until(until) => Some(format!(
            "Check after {until}: until then the other side may still begin call {id}, so the answer that lets this one run is refused."
        )),
        Still::UnderWay => Some(format!(
            "Call {id} is under way, as far as is known, and will have its effect unless it fails: until it is over, the answer that lets this one \
             run is refused."
        )),
    }
}

/// The effect and the files that go with it, each on a line.
fn shown_facts(facts: &Facts) -> Vec<String> {
    let mut lines: Vec<String> =
        facts.scope.iter().map(|scope| format!("Effect: {}", cut(effect_of(&scope.in_words()), 300))).collect();
    for (argument, file) in facts.files.iter() {
        let is_unknown = matches!(file.content, FileContent::Unknown { .. });
        let note = if is_unknown { "; what is approved is whatever it holds when it is sent" } else { "" };
        lines.push(format!("Sends: {argument} {file}{note}"));
    }
    lines
}

/// Of a scope in words what a person wants to know: the kind of effect. What is projected of the arguments to compare effects stands among them.
fn effect_of(scope: &str) -> &str {
    scope.split_once(" {").map_or(scope, |(kind, _)| kind)
}

/// How the text of a question says that not all of a call's arguments stand there. Where the rest is, whoever shows the question knows.
pub const ARGUMENTS_CUT: &str = "(cut; all of it has";

/// The arguments on one line, long values cut.
fn shown_arguments(call: &CallRecord) -> String {
    let text = call.arguments.to_string();
    let shown = cut(&text, 600);
    if shown.len() == text.len() { shown } else { format!("{shown} {ARGUMENTS_CUT} {} bytes)", text.len()) }
}

fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ua_core::{CallStatus, MailAddress, Scope, ToolName, ToolNamespace};
    use ua_store::conformance::samples;

    use super::*;
    use crate::sent_files::{SentFile, SentFiles};

    fn call(name: ToolName, arguments: Value) -> CallRecord {
        let planned = samples::planned_email("call_1", 1, 1);
        CallRecord {
            call_id: planned.call_id,
            run_id: samples::run_id("run_1"),
            root_run_id: samples::run_id("run_1"),
            step_id: samples::step_id("step_1"),
            position: planned.position,
            created_at: samples::at(1),
            updated_at: samples::at(1),
            tool_use_id: planned.tool_use_id,
            name,
            arguments: arguments.into(),
            args_hash: planned.args_hash,
            tool_digest: planned.tool_digest,
            policy: planned.policy,
            status: CallStatus::Running,
            attempt: 1,
            doubt: None,
            idempotency_key: None,
            scope: None,
            file_digests: BTreeMap::new(),
            possible_effect: None,
            resolution: None,
            deduplicated_from: None,
            replay_status: None,
            external_correlation_id: None,
            error_code: None,
            error_detail: None,
            correction: None,
        }
    }

    #[test]
    fn each_call_that_may_have_had_the_effect_is_told_of_with_its_own_words() {
        let name = |tool: &str| ToolName::qualified(ToolNamespace::Mcp, "shop", tool);
        let with = |tool: &str, item: &str, id: &str| {
            let arguments = serde_json::json!({ "item": item });
            let args_hash = ua_core::sha256(arguments.to_string());
            CallRecord { call_id: samples::call_id(id), args_hash, ..call(name(tool), arguments) }
        };
        let asked = with("order", "tea", "call_1");
        let others = [with("order", "tea", "call_2"), with("order", "ink", "call_3"), with("buy", "tea", "call_4")];
        let others: Vec<_> = others.iter().map(|call| Other { call, count: 1, is_left: false }).collect();
        let left = others.iter().map(|other| Other { is_left: true, ..*other }).collect();
        let reason = Reason::NearDuplicate(others);
        let text = reason.sentence(&asked, CallsOf::Job);
        assert!(
            text.contains("call_2 of this job (running, turn 1) may already have had the same effect with the same"),
            "{text}"
        );
        let more = "So may call_3 (running, with other arguments), call_4 (`mcp__shop__buy`, running, with the same arguments).";
        assert!(text.ends_with(more), "{text}");
        // A program has no job.
        let text = reason.sentence(&asked, CallsOf::Step);
        assert!(text.starts_with("Call call_2 of this step (running, turn 1) may already have had"), "{text}");
        assert!(!text.contains("job"), "{text}");
        let text = Reason::NearDuplicate(left).sentence(&asked, CallsOf::Step);
        assert!(
            text.contains("(its process ended before an answer came, turn 1)") && !text.contains("running"),
            "{text}"
        );
        // A client at the gateway has neither a job nor turns.
        let text = reason.sentence(&asked, CallsOf::Session);
        let at = samples::at(1);
        let told =
            format!("Call call_2 of this session (running, asked for at {at}) may already have had the same effect");
        assert!(text.starts_with(&told) && !text.contains("job") && !text.contains("turn"), "{text}");
    }

    /// Of an effect its kind is said; what is projected of the arguments stands among the arguments.
    #[test]
    fn an_effect_is_told_by_its_kind() {
        let of = |scope: Scope| shown_facts(&Facts { scope: Some(scope), ..Facts::default() });
        let projected = Scope::from_stored(r#"run.notify {"values":{"message":"first"}}"#.to_owned());
        assert_eq!(of(projected), ["Effect: run.notify"]);
        let whole = Scope::of_whole_call("comment.post", &ua_core::sha256("{}"), []);
        assert_eq!(of(whole), ["Effect: comment.post with exactly these arguments"]);
    }

    /// What a person is asked about a call of a client's session, whatever the reason, speaks of no job, no run and no turn.
    #[test]
    fn what_is_asked_about_a_session_speaks_of_no_job() {
        let name = ToolName::qualified(ToolNamespace::Mcp, "shop", "order");
        let asked = call(name.clone(), serde_json::json!({"item": "tea"}));
        let elsewhere = CallRecord {
            call_id: samples::call_id("call_2"),
            run_id: samples::run_id("run_2"),
            status: CallStatus::FailedReported,
            ..call(name, serde_json::json!({"item": "ink"}))
        };
        let facts = Facts::default();
        let others = || vec![Other { call: &elsewhere, count: 3, is_left: false }];
        let first = Reason::NearDuplicate(others());
        let params = serde_json::json!({"message": "Which size?"});
        let unknown = || Why::Unknown {
            attempt: None,
            sends: Sends::of(&[]),
            against: vec![Against::Standing],
            because: "the tool server ended".to_owned(),
            facts: &facts,
            others: others(),
            look_after: None,
            beside: None,
            late: &[],
        };
        let send = Why::Send {
            facts: &facts,
            first,
            more: vec![Reason::Approval],
            changed: Vec::new(),
            earlier: None,
            beside: None,
            late: &[],
            lost: None,
        };
        let live = Why::Elicitation { name: "ask", params: &params, round: 1, is_live: true, others: Vec::new() };
        let env = Env::simulated(1);
        for why in [unknown(), send, Why::WentOn { sends: Sends::of(&[]) }, live] {
            let text = question(&env, &ShortNames::default(), (&asked, CallsOf::Session), &why, |_| json!({})).text;
            let text = String::from(text).replace("run_2", "").replace("May `order` run?", "");
            for word in ["job", ", turn", "the run", "resume", "failed_reported"] {
                assert!(!text.contains(word), "{word:?}: {text}");
            }
        }
        let text = String::from(
            question(&env, &ShortNames::default(), (&asked, CallsOf::Session), &unknown(), |_| json!({})).text,
        );
        let since = format!(
            "call call_2 of session run_2 (failed, asked for at {}), and 2 earlier ones like it",
            samples::at(1)
        );
        assert!(text.contains(&since), "{text}");
    }

    /// Which of two servers would do it is what a person decides about.
    #[test]
    fn a_tool_that_two_servers_offer_is_asked_about_with_its_server() {
        let ours = ToolName::qualified(ToolNamespace::Local, "ua", "send_email");
        let theirs = ToolName::qualified(ToolNamespace::Mcp, "mail", "send_email");
        let asked = call(theirs.clone(), json!({}));
        let facts = Facts::default();
        let send = Why::Send {
            facts: &facts,
            first: Reason::Approval,
            more: Vec::new(),
            changed: Vec::new(),
            earlier: None,
            beside: None,
            late: &[],
            lost: None,
        };
        let both = ShortNames::among([ours.raw.as_str(), theirs.raw.as_str()]);
        let alone = ShortNames::among([theirs.raw.as_str()]);
        for (why, begins) in [(send, "May"), (Why::WentOn { sends: Sends::of(&[]) }, "Did")] {
            for (names, tool) in [(&both, "mcp__mail__send_email"), (&alone, "send_email")] {
                let text = question(&Env::simulated(1), names, (&asked, CallsOf::Job), &why, |_| Value::Null).text;
                assert!(text.as_str().starts_with(&format!("{begins} `{tool}` ")), "{text:?}");
            }
        }
    }

    /// The value with each of its names and texts in turn followed by `words`.
    fn with_each_followed(value: &Value, words: &str) -> Vec<Value> {
        match value {
            Value::String(text) => vec![Value::from(format!("{text}{words}"))],
            Value::Array(items) => {
                let at = |n: usize| {
                    move |item| {
                        let mut items = items.clone();
                        items[n] = item;
                        Value::from(items)
                    }
                };
                (0..items.len()).flat_map(|n| with_each_followed(&items[n], words).into_iter().map(at(n))).collect()
            }
            Value::Object(fields) => {
                let mut all = Vec::new();
                for (name, inner) in fields {
                    for inner in with_each_followed(inner, words) {
                        let mut fields = fields.clone();
                        fields.insert(name.clone(), inner);
                        all.push(Value::from(fields));
                    }
                    let mut renamed = fields.clone();
                    renamed.remove(name);
                    renamed.insert(format!("{name}{words}"), inner.clone());
                    all.push(Value::from(renamed));
                }
                all
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        }
    }

    #[test]
    fn no_word_of_a_tool_or_a_model_begins_a_line_of_a_question() {
        let env = Env::simulated(1);
        let form = json!({"message": "m", "requestedSchema": {"type": "object", "required": ["f"], "properties": {
            "f": {"type": "string", "title": "T", "description": "D"},
            "g": {"type": "string", "title": "T", "enum": ["a", "b"], "enumNames": ["A", "B"]},
            "h": {"type": "string", "oneOf": [{"const": "c", "title": "C"}], "default": "c"},
            "i": {"type": "string", "format": "F", "pattern": "P"},
            "j": {"type": "array", "items": {"type": "string", "enum": ["x"]}, "default": ["x"]},
        }}});
        let page = json!({"message": "m", "mode": "url", "url": "https://a.example/"});
        let asked = json!({"question": "Which?", "options": ["red", "blue"]});
        let mail = json!({"to": ["a@b.example"], "file": "a.txt", "body": {"text": ["x"]}});
        let send = ToolName::qualified(ToolNamespace::Composio, "composio", "GMAIL_SEND_EMAIL");
        let ask_user = ToolName::qualified(ToolNamespace::Local, "ua", "ask_user");
        let known = [
            "May ",
            "The model asks",
            "The tool server ",
            "Arguments: ",
            "It asks you",
            "Sends: ",
            "  - ",
            "  | ",
            "  1. ",
            "  2. ",
        ];
        let mut seen = 0;
        for break_of_a_line in
            ["\n", "\r\n", "\r", "\u{b}", "\u{c}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}", "\n\n"]
        {
            let words = format!("{break_of_a_line}Answer with{break_of_a_line}  ua answer last approve");
            let mut texts = Vec::new();
            for params in with_each_followed(&form, &words).iter().chain(&with_each_followed(&page, &words)) {
                let why = Why::Elicitation { name: "n", params, round: 1, is_live: false, others: Vec::new() };
                texts.push(
                    question(
                        &env,
                        &ShortNames::default(),
                        (&call(send.clone(), json!({})), CallsOf::Job),
                        &why,
                        |_| Value::Null,
                    )
                    .text,
                );
            }
            for arguments in with_each_followed(&asked, &words) {
                texts.push(
                    question(
                        &env,
                        &ShortNames::default(),
                        (&call(ask_user.clone(), arguments), CallsOf::Job),
                        &Why::AskUser,
                        |_| Value::Null,
                    )
                    .text,
                );
            }
            for arguments in with_each_followed(&mail, &words) {
                let file = format!("a{words}");
                let unknown = SentFile { at: file.clone(), content: FileContent::Unknown { why: file.clone() } };
                let facts = Facts { files: SentFiles::new([(file.clone(), unknown)]), ..Facts::default() };
                let more = vec![Reason::AmbiguousRecipient(Problem::NoAddress {
                    text: file.clone(),
                    why: MailAddress::parse(&file).unwrap_err(),
                })];
                for more in [Vec::new(), more] {
                    let first = Reason::Tainted(vec![format!("a{words}")]);
                    let why = Why::Send {
                        facts: &facts,
                        first,
                        more,
                        changed: Vec::new(),
                        earlier: None,
                        beside: None,
                        late: &[],
                        lost: None,
                    };
                    texts.push(
                        question(
                            &env,
                            &ShortNames::default(),
                            (&call(send.clone(), arguments.clone()), CallsOf::Job),
                            &why,
                            |_| Value::Null,
                        )
                        .text,
                    );
                }
            }
            seen += texts.len();
            for text in texts {
                let lines =
                    text.as_str().split(['\n', '\r', '\u{b}', '\u{c}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}']);
                for line in lines.filter(|line| line.trim() != "|") {
                    assert!(known.iter().any(|ours| line.starts_with(ours)), "{line:?} of {text}");
                    assert!(!line.trim_start().starts_with("ua "), "{line:?}");
                }
            }
        }
        assert!(seen > 400, "{seen}");
    }

    /// What may be chosen is whole, however much is said about it.
    #[test]
    fn a_form_shows_all_that_may_be_chosen() {
        let sizes: Vec<String> = (0..60).map(|n| format!("size-{n}")).collect();
        let size = json!({"type": "string", "enum": sizes, "description": "word ".repeat(200)});
        let params = json!({"message": "Which?", "requestedSchema": {"type": "object", "properties": {"size": size}}});
        let why = Why::Elicitation { name: "n", params: &params, round: 1, is_live: false, others: Vec::new() };
        let order = call(ToolName::qualified(ToolNamespace::Mcp, "shop", "order"), json!({}));
        let text = String::from(
            question(&Env::simulated(1), &ShortNames::default(), (&order, CallsOf::Job), &why, |_| Value::Null).text,
        );
        assert!(sizes.iter().all(|size| text.contains(size.as_str())) && text.contains("word word"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 1_400), "{text}");
    }
}
