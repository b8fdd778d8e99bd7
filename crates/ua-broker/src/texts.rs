//! What a model reads in the place of a result, or beside one. In its place text alone: where there is structured content, there are clients that
//! show nothing else. Beside structured content a text is read by the others, and breaks no schema, as a field more would.

use serde_json::{Value, json};
use ua_core::{CallId, QuestionId, RawReply, Timestamp};
use ua_ledger::said;
use ua_store::QuestionKind;

/// The name under which answers carry what is ours.
const META: &str = "dev.universal-agent/call";

/// The name under which they carry what a person said.
const PERSON: &str = "dev.universal-agent/person";

/// An answer that is none of the tool's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was sent once, and nobody knows what came of it.
    Unknown { since: Option<Timestamp>, why: String, question: Option<QuestionId> },
    /// It was sent, or may have been, and what came of it cannot be read or stored now.
    Unstored { since: Option<Timestamp>, why: String },
    /// It was sent, answered with this, and neither the database nor what stands beside it takes that.
    Unrecorded { since: Timestamp, why: String, said: String },
    /// It only reads; its answer was had, or may have been, and is lost.
    ReadLost { why: String },
    /// It was begun and is not done; whether it was sent once, or is being sent.
    Running { since: Timestamp, is_sent: bool },
    /// It waits for its turn behind a call of this tool.
    Queued { since: Timestamp, behind: Option<String> },
    /// It was let go of before it was sent, since nobody waited for it.
    LetGo { since: Timestamp },
    /// A person decides first.
    Held { question: QuestionId, kind: QuestionKind },
    /// A person decides first, since the same was asked for before in this session, and failed.
    HeldAgain { question: QuestionId },
    /// A budget of the user does not have it.
    Budget { budget: String },
    /// It was not sent.
    NotSent { why: String },
    /// The tool server answered with a status that is no success.
    Refused { why: String },
    /// A person said that it happened. `once_more`: what the same call comes to behind that.
    Happened { by: String, proof: Option<String>, once_more: OnceMore },
    /// It was made and answered, and its answer is longer than is carried.
    TooLong { length: usize },
    /// The gateway itself could not do its work, before anything was sent.
    Broken { why: String },
}

/// What the same call comes to behind one that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnceMore {
    /// The same answer: equal calls are one effect.
    Never,
    /// It is another one, and is sent.
    IsSent,
    /// The same, once it is known that this answer has reached whoever asks; the call was made then.
    IsSentAfter(Timestamp),
}

/// What is known of the same call where nothing was decided about it. It may be a new one by then: the database may be another one.
const NOT_DECIDED: &str = "The same call again returns what is recorded of this one, as far as that can be read then; whether it is sent where it \
                           cannot is not decided, so look first whether this one happened.";

/// As much of an answer that is recorded nowhere stands in a sentence.
const MOST_SAID: usize = 4_000;

impl Told {
    /// That an answer is recorded nowhere, with what it says.
    pub(crate) fn unrecorded(since: Timestamp, why: String, reply: &RawReply) -> Self {
        let said = said(reply).chars().take(MOST_SAID).collect();
        Self::Unrecorded { since, why, said }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Unstored { .. } => "unknown",
            Self::Unrecorded { .. } => "unrecorded",
            Self::ReadLost { .. } => "read_lost",
            Self::Queued { .. } | Self::LetGo { .. } => "queued",
            Self::Refused { .. } => "refused",
            Self::Running { .. } => "running",
            Self::Held { kind: QuestionKind::NearDuplicate, .. } | Self::HeldAgain { .. } => "rival",
            Self::Held { .. } => "held",
            Self::Budget { .. } => "budget",
            Self::NotSent { .. } => "not_sent",
            Self::Happened { .. } => "happened",
            Self::TooLong { .. } => "too_long",
            Self::Broken { .. } => "broken",
        }
    }

    /// Whether it says that the same call again returns what came of it, or this: whoever reads that is owed it.
    pub(crate) const fn asks_again(&self) -> bool {
        match self {
            Self::Unknown { .. }
            | Self::Unstored { .. }
            | Self::Unrecorded { .. }
            | Self::Running { .. }
            | Self::Queued { .. }
            | Self::LetGo { .. }
            | Self::Held { .. }
            | Self::HeldAgain { .. }
            | Self::TooLong { .. } => true,
            Self::ReadLost { .. }
            | Self::Budget { .. }
            | Self::NotSent { .. }
            | Self::Refused { .. }
            | Self::Happened { .. }
            | Self::Broken { .. } => false,
        }
    }

    /// As the result of a call. `ua` is how a person runs this program against this gateway.
    pub(crate) fn as_result(&self, call: Option<&CallId>, ua: &str) -> Value {
        let text = match self {
            Self::Unknown { since, why, question } => {
                let since = since.map_or_else(String::new, |at| format!(" at {at}"));
                let who = match question {
                    Some(question) => format!("A person decides: `{ua} answer {question}`."),
                    None => "A person left it so.".to_owned(),
                };
                format!(
                    "Not repeated. This exact call was sent{since} and its outcome is unknown: {why}. It may have happened. Do not send \
                     it in other words. {who} Continue with other work; the same call again returns this, or the result."
                )
            }
            Self::Unstored { since: Some(at), why } => format!(
                "Not repeated. This call was sent at {at}; its answer could not be stored or read: {why}. It may have happened. Do not \
                 send it in other words. {NOT_DECIDED}"
            ),
            Self::Unstored { since: None, why } => format!(
                "Not repeated. This call may have been sent before, and what came of it cannot be read now: {why}. It may have happened. \
                 Do not send it in other words. {NOT_DECIDED}"
            ),
            Self::Unrecorded { since, why, said } => format!(
                "This call was sent at {since}, and its tool server answered: {said}\nThat is recorded nowhere yet: {why}. If the gateway ends \
                 before there is room, nobody knows of it any more. Tell the person you work for what it answered, and do not make this call \
                 again in other words. As long as the gateway runs, the same call again returns this, or the recorded answer."
            ),
            Self::ReadLost { why } => format!("Its answer was lost: {why}. It only reads: make it again."),
            Self::Running { since, is_sent } => {
                let sent = if *is_sent { "It was sent once." } else { "It is being sent." };
                format!(
                    "Still running since {since}. {sent} Make the same call again to wait for it; do not reword it."
                )
            }
            Self::Queued { since, behind } => {
                let behind = behind.as_ref().map_or_else(
                    || "waits for its tool server".to_owned(),
                    |tool| {
                        format!(
                            "waits for its turn behind another call of this session, `{tool}`, which is not answered"
                        )
                    },
                );
                format!(
                    "Not sent yet: since {since} it {behind}. It is sent when its turn comes and somebody waits for it. Make the same call \
                     again to wait; do not reword it. Reads do not wait."
                )
            }
            Self::LetGo { since } => format!(
                "Not sent yet: it was asked for at {since}, and nobody waited for it when it could have been sent. Make the same call again to \
                 have it sent, or to read what it waits for; do not reword it."
            ),
            Self::Held { question, kind: QuestionKind::NearDuplicate } => format!(
                "Not sent. Another call may have had this effect already, in other words or in another session. A person decides: \
                 `{ua} answer {question}`. Continue with other work; the same call again returns this, or the result."
            ),
            Self::HeldAgain { question } => format!(
                "Not sent. This very call was made before in this session, and its tool answered that it failed; it may have had its effect all \
                 the same. A person decides whether it is made again: `{ua} answer {question}`. Continue with other work; the same call again \
                 returns this, or the result."
            ),
            Self::Held { question, .. } => format!(
                "Not sent yet. A person has to decide first: `{ua} answer {question}`. Continue with other work; the same call again returns \
                 this, or the result."
            ),
            Self::Budget { budget } => format!(
                "Not sent: the budget of {budget} is used up. Do not try to have the same done in another way. The person who runs the gateway \
                 sets budgets in its gateway.toml."
            ),
            Self::NotSent { why } | Self::Refused { why } => why.clone(),
            Self::Happened { by, proof, once_more } => {
                let proof = proof.as_ref().map_or_else(String::new, |proof| format!(" ({proof})"));
                let happened = format!("This happened: {by} says so{proof}. The tool's own answer was lost.");
                match once_more {
                    OnceMore::IsSentAfter(at) => {
                        format!("{happened} The call was made at {at} and was not made again.{ONCE_MORE}")
                    }
                    OnceMore::IsSent => format!(
                        "{happened} Make this call again only if it is to have its effect once more: that is another one, and it is sent."
                    ),
                    OnceMore::Never => format!("{happened} Do not send it again."),
                }
            }
            Self::TooLong { length } => format!(
                "This call was made, and its tool server answered it. Only the answer did not come through: {}. Do not make the call in other \
                 words; the same call again returns this. What only reads can be asked for less.",
                too_long(*length)
            ),
            Self::Broken { why } => format!("Not sent: the gateway could not do its work: {why}"),
        };
        let is_error = !matches!(self, Self::Happened { .. });
        let mut meta = json!({"told": self.kind()});
        if let Some(call) = call {
            meta["id"] = json!(call.as_str());
        }
        if let Self::Unknown { question: Some(question), .. }
        | Self::Held { question, .. }
        | Self::HeldAgain { question } = self
        {
            meta["question"] = json!(question.as_str());
        }
        json!({"content": [{"type": "text", "text": text}], "isError": is_error, "_meta": {META: meta}})
    }
}

/// A question for somebody at a client's dialogue: the earlier call that it is about without the id by which a terminal finds it. One that an
/// earlier version asked speaks of a job, its turns and names of states, of which they know nothing.
pub(crate) fn without_ids(text: &str) -> String {
    const EFFECT: &str = " may already have had the same effect";
    let line = |line: &str| -> Option<String> {
        let (earlier, rest) = line.split_once(EFFECT)?;
        let (lead, named) = earlier.rsplit_once("Call ")?;
        let (_, of) = named.split_once(' ')?;
        let of = if of.starts_with("of this session (") {
            format!(" {of}")
        } else if let Some((_, stands)) = of.strip_prefix("of session ").and_then(|of| of.split_once(' ')) {
            format!(" of another session {stands}")
        } else if of.starts_with("of this job (") {
            String::new()
        } else {
            return None;
        };
        Some(format!("{lead}An earlier call{of}{EFFECT}{rest}"))
    };
    text.split('\n').map(|it| line(it).unwrap_or_else(|| it.to_owned())).collect::<Vec<_>>().join("\n")
}

/// That an answer is not carried, as a clause.
pub(crate) fn too_long(length: usize) -> String {
    format!(
        "its answer of {} MiB is longer than 64 MiB, the most that is carried to a client",
        length.div_ceil(1 << 20)
    )
}

/// Why a result is handed out that another request brought home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nobody is known to have had it until now; what is known of that, and whether the same words make another one now.
    Late { delivered: Delivered, may_be_made_again: bool },
    /// It was handed out before.
    Duplicate,
    /// It was asked for again before whoever asked can be known to have had it.
    Once,
    /// Another request waited for it as well: what it is known to do is done once for both.
    Twin,
    /// The very request came before, and was answered.
    SameRequest,
}

/// What is known of whether an answer that nobody is known to have had was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// It was written to a client.
    Written,
    /// It was written to nobody.
    No,
    /// The broker that had it is gone, and may have taken along what it knew of that.
    NotKnown,
}

/// What says how to have an effect that is not known by its content anew. A client over HTTP that closes its connections so that they look broken is
/// owed an answer for two minutes each time that it is given.
const ONCE_MORE: &str =
    " To have it made once more, make the same call again now; if that returns this answer, do so after two minutes.";

/// A result as the tool gave it, with what the model has to know about it.
pub(crate) fn with_notice(result: Value, notice: Notice, call: &CallId, at: Timestamp) -> Value {
    let (kind, text) = match notice {
        Notice::Late { delivered, may_be_made_again } => {
            let reached = match delivered {
                Delivered::Written => {
                    "its answer was written to a client that did not go on, and it is not known whether anybody read it"
                }
                Delivered::No => "its answer had not reached anybody",
                Delivered::NotKnown => {
                    "the broker that had its answer has ended since, and it is not known whether anybody read it"
                }
            };
            let again = if may_be_made_again { ONCE_MORE } else { "" };
            (
                "late",
                format!("(This call was made at {at}; {reached}. It was not made again: this is that answer.{again})"),
            )
        }
        Notice::Duplicate => (
            "duplicate",
            format!("(This very call was made before, at {at}. It was not made again: this is the answer from then.)"),
        ),
        Notice::Once => (
            "once",
            format!(
                "(This very call was made at {at} and asked for again under way, or right after a slow answer. It was made once: this is its \
                 answer.{ONCE_MORE})"
            ),
        ),
        Notice::Twin => (
            "twin",
            format!(
                "(This very call was made at {at} for another request, and both waited for it. It was made once: this is its answer for both. \
                 Where two are meant, the arguments have to say what tells them apart.)"
            ),
        ),
        Notice::SameRequest => (
            "same_request",
            format!(
                "(This very request, under the same id, was sent before; its call was made at {at} and answered. It was not made again: this is \
                 that answer. A request that means another call has another id.)"
            ),
        ),
    };
    let mut result = beside(result, &text);
    result["_meta"][META] = json!({"id": call.as_str(), "notice": kind, "at": at.to_string()});
    result
}

/// What a person said beside their decision about a call, as a sentence.
fn decided(words: &str) -> String {
    format!("(A person decided about this call, and says: {words})")
}

/// A result with what a person said beside their decision about the call.
pub(crate) fn with_words(result: Value, words: &str) -> Value {
    let mut result = beside(result, &decided(words));
    result["_meta"][PERSON] = json!(words);
    result
}

/// The same of an error, of which models read the message.
pub(crate) fn error_with_words(message: &str, data: Value, words: &str) -> (String, Value) {
    let mut data = data;
    if data.is_null() || data.is_object() {
        data[PERSON] = json!(words);
    }
    (format!("{message} {}", decided(words)), data)
}

/// A result with a text behind it, and a place for what is ours. Which of the two a client shows that has structured content and texts differs, so
/// a text stands beside that too; one that is neither content nor structure is left as it is.
fn beside(result: Value, text: &str) -> Value {
    let mut result = as_object(result);
    let has_structure = result.get("structuredContent").is_some_and(|content| !content.is_null());
    if has_structure && result["content"].is_null() {
        result["content"] = json!([]);
    }
    if let Some(content) = result.get_mut("content").and_then(Value::as_array_mut) {
        content.push(json!({"type": "text", "text": text}));
    }
    if !result["_meta"].is_object() {
        result["_meta"] = json!({});
    }
    result
}

/// A result that can say something beside itself: as a text, what is no object.
pub(crate) fn as_object(result: Value) -> Value {
    if result.is_object() {
        return result;
    }
    json!({"content": [{"type": "text", "text": result.as_str().map_or_else(|| result.to_string(), str::to_owned)}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_verbatim_but_for_its_notice() {
        let call = CallId::parse("call_1").unwrap();
        let at = Timestamp::from_millis(1_767_323_045_000);
        let plain = json!({"content": [{"type": "text", "text": "sent"}], "isError": false});
        for (delivered, words) in [
            (Delivered::Written, "it is not known whether anybody read it"),
            (Delivered::No, "had not reached anybody"),
            (Delivered::NotKnown, "has ended since, and it is not known whether anybody read it"),
        ] {
            let late = Notice::Late { delivered, may_be_made_again: false };
            let told = with_notice(plain.clone(), late, &call, at);
            assert_eq!((&told["content"][0], &told["_meta"][META]["notice"]), (&plain["content"][0], &json!("late")));
            let text = told["content"][1]["text"].as_str().unwrap();
            assert!(text.contains("not made again") && text.contains(words) && !text.contains("once more"), "{text}");
        }
        let late = Notice::Late { delivered: Delivered::No, may_be_made_again: true };
        let told = with_notice(plain, late, &call, at);
        assert!(told["content"][1]["text"].as_str().unwrap().contains("make the same call again now"), "{told}");
        let structured =
            json!({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"id": 1}, "_meta": {"x": 1}});
        let told = with_notice(structured.clone(), Notice::Duplicate, &call, at);
        assert_eq!((&told["content"][0], &told["structuredContent"]), (&structured["content"][0], &json!({"id": 1})));
        assert!(told["content"][1]["text"].as_str().unwrap().contains("made before"), "{told}");
        assert_eq!((&told["_meta"]["x"], &told["_meta"][META]["notice"]), (&json!(1), &json!("duplicate")));
        let bare = with_notice(json!({"structuredContent": {"id": 1}}), Notice::Duplicate, &call, at);
        assert_eq!(bare["content"].as_array().unwrap().len(), 1, "{bare}");
    }

    #[test]
    fn what_a_person_said_is_beside_whatever_the_call_came_to() {
        let words = "only this once";
        for result in [json!("sent"), json!({"content": []}), json!({"content": [], "structuredContent": {"id": 1}})] {
            let told = with_words(result, words);
            let last = told["content"].as_array().unwrap().last().unwrap();
            assert!(last["text"].as_str().unwrap().contains(words) && told["_meta"][PERSON] == words, "{told}");
        }
        for (data, has_them) in [(Value::Null, true), (json!({"x": 1}), true), (json!("x"), false)] {
            let (message, data) = error_with_words("it failed", data, words);
            assert!(message.starts_with("it failed (A person") && message.contains(words), "{message}");
            assert_eq!(data.get(PERSON).is_some(), has_them, "{data}");
        }
    }

    /// Whatever a tool server gives as a result, what is known of it is said.
    #[test]
    fn no_result_is_handed_out_without_its_notice() {
        let call = CallId::parse("call_1").unwrap();
        let at = Timestamp::from_millis(1_767_323_045_000);
        let notices = [
            (Notice::Late { delivered: Delivered::Written, may_be_made_again: true }, "late"),
            (Notice::Duplicate, "duplicate"),
            (Notice::Once, "once"),
            (Notice::Twin, "twin"),
            (Notice::SameRequest, "same_request"),
        ];
        let shapes = [json!(null), json!(true), json!(7), json!("sent"), json!([{"type": "text"}]), json!({})];
        let odd =
            [json!({"_meta": 7}), json!({"content": "sent"}), json!({"content": [], "_meta": null}), json!({"id": 1})];
        for result in shapes.into_iter().chain(odd) {
            for (notice, kind) in notices {
                let told = with_notice(result.clone(), notice, &call, at);
                assert_eq!(told["_meta"][META]["notice"], kind, "{result}: {told}");
                if !result.is_object() {
                    let said = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
                    assert_eq!(told["content"][0]["text"], said, "{told}");
                    assert!(told["content"][1]["text"].as_str().unwrap().contains("made"), "{told}");
                }
            }
        }
    }

    #[test]
    fn a_dialogue_speaks_of_no_job_and_no_ids() {
        let asked = |of: &str| {
            format!(
                "May `send_mail` run? Call call_1 of {of} may already have had the same effect with the same arguments: {{\"to\":\"Call me of this \
                 job\"}}\nArguments: {{}}"
            )
        };
        for (of, told) in [
            ("this job (failed, may have happened, turn 1)", ""),
            ("this session (failed, asked for at 12:00)", " of this session (failed, asked for at 12:00)"),
            (
                "session run_2 (`mcp__a__b`, failed, asked for at 12:00)",
                " of another session (`mcp__a__b`, failed, asked for at 12:00)",
            ),
        ] {
            let wanted = asked("").replace("Call call_1 of ", &format!("An earlier call{told}"));
            assert_eq!(without_ids(&asked(of)), wanted, "{of}");
        }
        for other in [
            "May `x` run? Calls of this tool need a person's approval.",
            "It may already have had the same effect as one of this job",
        ] {
            assert_eq!(without_ids(other), other);
        }
    }

    #[test]
    fn what_is_not_a_result_is_text_alone() {
        let question = QuestionId::parse("q_1").unwrap();
        for (told, words) in [
            (Told::Unknown { since: None, why: "it ended".into(), question: Some(question.clone()) }, "ua answer q_1"),
            (Told::Running { since: Timestamp::from_millis(0), is_sent: true }, "do not reword it"),
            (Told::Running { since: Timestamp::from_millis(0), is_sent: false }, "It is being sent"),
            (
                Told::Queued { since: Timestamp::from_millis(0), behind: Some("pay".into()) },
                "behind another call of this session, `pay`",
            ),
            (Told::Unstored { since: Some(Timestamp::from_millis(0)), why: "the disk is full".into() }, "was sent at"),
            (Told::Unstored { since: None, why: "the disk is full".into() }, "may have been sent before"),
            (Told::Held { question: question.clone(), kind: QuestionKind::NearDuplicate }, "in other words"),
            (Told::HeldAgain { question: question.clone() }, "This very call was made before in this session"),
            (Told::Held { question, kind: QuestionKind::Approval }, "decide first"),
            (Told::Budget { budget: "3 `email.send` per day".into() }, "3 `email.send` per day is used up"),
        ] {
            let result = told.as_result(None, "ua");
            assert!(result["content"][0]["text"].as_str().unwrap().contains(words), "{result}");
            assert!(result["isError"] == true && result.get("structuredContent").is_none());
        }
    }

    /// What the words promise is what is noted as promised.
    #[test]
    fn whoever_reads_that_the_same_call_returns_it_is_owed_it() {
        let (since, why, question) =
            (Timestamp::from_millis(0), "the disk is full".to_owned(), QuestionId::parse("q_1").unwrap());
        for told in [
            Told::Unknown { since: Some(since), why: why.clone(), question: Some(question.clone()) },
            Told::Unknown { since: None, why: why.clone(), question: None },
            Told::Unstored { since: Some(since), why: why.clone() },
            Told::Unstored { since: None, why: why.clone() },
            Told::unrecorded(since, why.clone(), &RawReply::http(200, "sent")),
            Told::ReadLost { why: why.clone() },
            Told::Running { since, is_sent: true },
            Told::Running { since, is_sent: false },
            Told::Queued { since, behind: None },
            Told::LetGo { since },
            Told::Held { question: question.clone(), kind: QuestionKind::NearDuplicate },
            Told::Held { question: question.clone(), kind: QuestionKind::Approval },
            Told::HeldAgain { question },
            Told::Budget { budget: why.clone() },
            Told::NotSent { why: why.clone() },
            Told::Refused { why: why.clone() },
            Told::Happened { by: why.clone(), proof: None, once_more: OnceMore::Never },
            Told::Happened { by: why.clone(), proof: None, once_more: OnceMore::IsSent },
            Told::TooLong { length: 70 << 20 },
            Told::Broken { why },
        ] {
            let result = told.as_result(None, "ua");
            let text = result["content"][0]["text"].as_str().unwrap();
            assert_eq!(text.contains("ame call again"), told.asks_again(), "{text}");
        }
    }

    /// Of what was sent, or may have been, nothing says that it was not.
    #[test]
    fn only_what_was_not_sent_is_said_not_to_be() {
        let (since, why) = (Timestamp::from_millis(0), "the disk is full".to_owned());
        for told in [
            Told::Unknown { since: Some(since), why: why.clone(), question: None },
            Told::Unstored { since: Some(since), why: why.clone() },
            Told::Unstored { since: None, why: why.clone() },
            Told::unrecorded(since, why.clone(), &RawReply::http(200, "sent")),
            Told::ReadLost { why: why.clone() },
            Told::Running { since, is_sent: true },
            Told::Running { since, is_sent: false },
            Told::TooLong { length: 70 << 20 },
            Told::Happened { by: why.clone(), proof: None, once_more: OnceMore::Never },
            Told::Happened { by: why.clone(), proof: None, once_more: OnceMore::IsSent },
            Told::Happened { by: why, proof: None, once_more: OnceMore::IsSentAfter(since) },
        ] {
            let result = told.as_result(None, "ua");
            assert!(!result["content"][0]["text"].as_str().unwrap().contains("Not sent"), "{result}");
        }
    }
}
