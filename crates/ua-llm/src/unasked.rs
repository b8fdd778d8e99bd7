//! What goes with a request that the job did not ask for, and what a server does not take of it.
//!
//! A request has parts of our own: that it is streamed and with its usage, the name of the longest reply, marks of what may be cached, that nothing
//! is kept. A server that does not know one of them refuses the whole request, and says which one. Then that part is left out or said otherwise, the
//! request is made once more, and so from then on for that model: behind one address there may be models of many makers. Words of tools' schemas
//! that a server does not know are taken out alike; what a model sends is checked against the schemas as they are.
//!
//! Invariants: what the job asks for stands in no table here, so that a refusal of it is told; what was refused was free; a request is made again
//! only with something changed in it that was not changed before, so there is an end. Proved by: `tests/it/wires/unasked.rs`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use ua_core::ModelTurn;

use crate::chat::wire::ERROR_MARK;
use crate::error::LlmError;
use crate::http::HttpClient;
use crate::http::events::Assemble;
use crate::provider::StreamObserver;
use crate::refusal::{Heeding, Refusal};
use crate::schema::{spare_words_in, take_out};

/// So often one request is made at most. A server that names one part after the other ends here.
const MOST_TRIES: usize = 16;

/// How refusals say that something is not known, or not taken, in small letters.
const NOT_TAKEN: [&str; 28] = [
    "unsupported",
    "unrecognized",
    "unrecognised",
    "unknown",
    "unexpected",
    "extra inputs",
    "extra fields",
    "extra_forbidden",
    "additional properties",
    "not support",
    "n't support",
    "not permitted",
    "not allowed",
    "not accept",
    "not enabled",
    "not implemented",
    "not recognized",
    "not available",
    "not a valid",
    "no longer",
    "deprecated",
    "forbidden",
    "invalid field",
    "invalid parameter",
    "cannot find field",
    "unavailable",
    "verified to stream",
    "no endpoints found",
];
/// How they say that a text must not be empty, and what has it.
const EMPTY: ([&str; 11], [&str; 3]) = (
    [
        "non-empty",
        "nonempty",
        "non-whitespace",
        "be empty",
        "is empty",
        "not empty",
        "empty content",
        "empty text",
        "is blank",
        "be blank",
        "at least 1 character",
    ],
    ["content", "text", "message"],
);
/// What stands in the place of a text that must not be empty.
const NO_TEXT: &str = "(empty)";
/// How they say that a history with calls needs tools, in small letters: Anthropic, `LiteLLM`, Bedrock.
const NEEDS_TOOLS: [&str; 3] = ["must define tools", "`tools=` param", "toolconfig field must be defined"];
/// What is said of a tool that is named for the calls of the history alone.
const NOT_OFFERED: &str = "Not offered any more: a call of it is refused.";
/// What stands in front of the names that a server would have taken.
const TAKEN: [&str; 4] = [", expected", " supported parameters", " allowed parameters", " valid parameters"];

/// The wires, each of which has its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Anthropic's Messages.
    Messages,
    /// `OpenAI`'s Responses.
    Responses,
    /// Chat Completions.
    Chat,
}

/// A part of a request that is there unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// That the reply comes in pieces. Without, it comes whole.
    Stream,
    /// That the usage is told at its end. Without, it is estimated.
    Usage,
    /// What the longest reply is called: it has two names.
    LimitName,
    /// Where a prefix ends that may be cached. Without, it costs more.
    CacheMarks,
    /// That thoughts come along, to go back with the history.
    Thoughts,
    /// That the reply is not kept there. Who does not know the word keeps none.
    NotKept,
    /// That a tool's arguments are not written by a grammar.
    LooseTools,
    /// That a result is an error. It is said in words then.
    ErrorMarks,
    /// `null` in the place of a text, beside calls. An empty text says the same.
    NoText,
    /// An empty text: of a result without one, or beside calls. One says in words that it is.
    EmptyText,
    /// That what leads the conversation is nobody's. The user says it then.
    SystemRole,
    /// No tools, where the history has calls of some. Those are named then.
    NoTools,
}

/// Each part with the names that it is refused by, and the wires that have it.
const PARTS: [(Part, &[&str], &[Wire]); 12] = [
    (Part::Stream, &["stream"], &[Wire::Messages, Wire::Responses, Wire::Chat]),
    (Part::Usage, &["stream_options", "include_usage"], &[Wire::Chat]),
    (Part::LimitName, &["max_tokens", "max_completion_tokens"], &[Wire::Chat]),
    (Part::CacheMarks, &["cache_control", "cache control"], &[Wire::Messages]),
    (Part::Thoughts, &["include", "reasoning.encrypted_content", "encrypted content"], &[Wire::Responses]),
    (Part::NotKept, &["store"], &[Wire::Responses]),
    (Part::LooseTools, &["strict"], &[Wire::Responses]),
    (Part::ErrorMarks, &["is_error"], &[Wire::Messages]),
    (Part::NoText, &[], &[Wire::Chat]),
    (Part::EmptyText, &[], &[Wire::Messages, Wire::Chat]),
    (Part::SystemRole, &[], &[Wire::Chat]),
    (Part::NoTools, &[], &[Wire::Messages, Wire::Chat]),
];

impl Part {
    /// Whether a refusal in small letters is one of this part.
    fn is_refused_in(self, said: &str, names: &[&str]) -> bool {
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        match self {
            Self::NoText => {
                let is_about_type = has(&["null", "none", "string", "must", "required", "expected", "type"]);
                has(&["nonetype", "content type: <nil>"]) || (is_about_type && is_named(said, "content", false))
            }
            Self::EmptyText => has(&EMPTY.0) && has(&EMPTY.1),
            Self::NoTools => has(&NEEDS_TOOLS),
            Self::SystemRole => {
                let names_it = ["role", "message", "prompt", "instruction"].map(|word| format!("system {word}"));
                let names_it = names_it.iter().any(|words| said.contains(words)) || is_quoted(said, "system");
                let developer = has(&["developer instruction", "only user and assistant roles"]);
                // `Allowed roles are "user" or "assistant"`, and what Pydantic says of one that is neither.
                let two = ["'", "\"", "`"].map(|mark| format!("{mark}user{mark} or {mark}assistant{mark}"));
                let are_two = said.contains("role") && two.iter().any(|two| said.contains(two));
                (names_it && has(&NOT_TAKEN)) || (developer && has(&["not enabled", "supported"])) || are_two
            }
            Self::Stream
            | Self::Usage
            | Self::LimitName
            | Self::CacheMarks
            | Self::Thoughts
            | Self::NotKept
            | Self::LooseTools
            | Self::ErrorMarks => {
                let is_named = |name: &&str| is_named(said, name, name.contains(['_', ' ']));
                (has(&NOT_TAKEN) && names.iter().any(is_named))
                    || (self == Self::Stream && has(&["verified to stream"]))
            }
        }
    }

    /// Leaves it out of a request, or says it otherwise. Nothing changes where it is not there.
    fn change(self, body: &mut Value) {
        match self {
            Self::Stream => {
                if body["stream"] == true {
                    body["stream"] = json!(false);
                    remove(body, "stream_options");
                }
            }
            Self::Usage => remove(body, "stream_options"),
            Self::LimitName => {
                let (old, new) = ("max_tokens", "max_completion_tokens");
                let (from, to) = if body.get(old).is_some() { (old, new) } else { (new, old) };
                if let Some(limit) = body.as_object_mut().and_then(|fields| fields.remove(from)) {
                    body[to] = limit;
                }
            }
            Self::CacheMarks => {
                for block in listed(body, "system") {
                    remove(block, "cache_control");
                }
                for block in contents(body) {
                    remove(block, "cache_control");
                }
            }
            Self::Thoughts => remove(body, "include"),
            Self::NotKept => {
                if body["store"] == false {
                    remove(body, "store");
                }
            }
            Self::LooseTools => {
                for tool in listed(body, "tools") {
                    if tool["strict"] == false {
                        remove(tool, "strict");
                    }
                }
            }
            Self::ErrorMarks => {
                for result in contents(body).filter(|block| block["is_error"] == true) {
                    remove(result, "is_error");
                    say_before(&mut result["content"], ERROR_MARK);
                }
            }
            Self::NoText => {
                for message in listed(body, "messages").filter(|message| message["content"].is_null()) {
                    message["content"] = json!("");
                }
            }
            Self::EmptyText => {
                let is_blank = |text: &Value| text.as_str().map_or(text.is_null(), |text| text.trim().is_empty());
                for message in listed(body, "messages").filter(|message| is_blank(&message["content"])) {
                    message["content"] = json!(NO_TEXT);
                }
                for result in contents(body).filter(|block| block["type"] == "tool_result") {
                    if is_blank(&result["content"]) {
                        result["content"] = json!(NO_TEXT);
                    }
                    for text in
                        listed(result, "content").filter(|part| part["type"] == "text" && is_blank(&part["text"]))
                    {
                        text["text"] = json!(NO_TEXT);
                    }
                }
            }
            Self::NoTools => {
                let tools = tools_of_history(body);
                if listed(body, "tools").next().is_none() && !tools.is_empty() {
                    body["tools"] = Value::Array(tools);
                }
            }
            Self::SystemRole => {
                let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) else { return };
                let is_led = messages.first().is_some_and(|message| message["role"] == "system");
                if !is_led {
                    return;
                }
                let lead = messages.remove(0)["content"].take();
                let lead = lead.as_str().unwrap_or_default();
                match messages.first_mut().filter(|message| message["role"] == "user") {
                    Some(user) => say_before(&mut user["content"], &format!("{lead}\n\n")),
                    None => messages.insert(0, json!({"role": "user", "content": lead})),
                }
            }
        }
    }
}

/// What one model takes, as far as it was refused otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Form {
    otherwise: BTreeSet<Part>,
    /// The words that schemas of tools do not have there.
    without: BTreeSet<String>,
}

impl Form {
    /// The body in this form. One that is nested too deeply to be read goes as it is.
    fn applied<'b>(&self, body: &'b str) -> Cow<'b, str> {
        if self.otherwise.is_empty() && self.without.is_empty() {
            return Cow::Borrowed(body);
        }
        let Ok(mut body) = serde_json::from_str::<Value>(body) else { return Cow::Borrowed(body) };
        for part in &self.otherwise {
            part.change(&mut body);
        }
        for schema in schemas_of(&mut body) {
            take_out(schema, &self.without);
        }
        Cow::Owned(body.to_string())
    }

    /// The form of another request, after that which was `sent` in this one was refused; `None` where the refusal is of nothing that could go in
    /// another one.
    fn after(&self, refused: Refusal<'_>, wire: Wire, sent: &str) -> Option<Self> {
        let error = refused.error();
        if !matches!(error, LlmError::InvalidRequest { .. } | LlmError::BadTool { .. } | LlmError::Server { .. }) {
            return None;
        }
        let mut sent = serde_json::from_str::<Value>(sent).ok()?;
        let said = error.to_string().to_ascii_lowercase();
        let said = up_to_taken(&said);
        let asked = [&sent["max_tokens"], &sent["max_completion_tokens"]].into_iter().find_map(Value::as_u64);
        let asked = asked.map_or(u32::MAX, |asked| u32::try_from(asked).unwrap_or(u32::MAX));
        let mut form = self.clone();
        for (part, names, wires) in PARTS {
            let is_new = wires.contains(&wire) && !self.otherwise.contains(&part);
            // A number is refused here, and no name.
            let is_number = || part == Part::LimitName && error.longest_reply(asked).is_some();
            if is_new && part.is_refused_in(said, names) && !is_number() {
                let mut other = sent.clone();
                part.change(&mut other);
                if other != sent {
                    form.otherwise.insert(part);
                }
            }
        }
        // A schema of the result is another one's.
        if !error.is_about_output() {
            form.without.extend(refused_words(said, &mut sent));
        }
        (form != *self).then_some(form)
    }
}

/// The words of tools' schemas that a refusal in small letters names, of those that are there.
fn refused_words(said: &str, sent: &mut Value) -> BTreeSet<String> {
    // `format: only 'enum' and 'date-time' are supported`
    const INSTEAD: &str = ": only ";
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if !has(&["schema", "parameters", "tool", "function"]) || !(has(&NOT_TAKEN) || has(&["keyword", INSTEAD])) {
        return BTreeSet::new();
    }
    let said = said.split(INSTEAD).next().unwrap_or_default();
    let there: BTreeSet<String> =
        schemas_of(sent).into_iter().flat_map(|schema: &mut Value| spare_words_in(schema)).collect();
    let mut refused: BTreeSet<String> = there
        .iter()
        .filter(|word| {
            let is_no_english = word.contains(|c: char| !c.is_ascii_lowercase());
            let names = [word.to_ascii_lowercase(), in_snake_case(word)];
            names.iter().any(|name| is_named(said, name, is_no_english))
        })
        .cloned()
        .collect();
    if refused.iter().any(|word| matches!(word.as_str(), "$defs" | "definitions")) && there.contains("$ref") {
        // It would lead nowhere.
        refused.insert("$ref".to_owned());
    }
    refused
}

/// `anyOf` as `any_of`, as Gemini has it.
fn in_snake_case(word: &str) -> String {
    let mut snake = String::new();
    for letter in word.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Whether a refusal names a field. One whose name is an English word as well (`store`, `format`) stands as a name does: in quotation marks, in a
/// path, in front of a colon, or behind one.
fn is_named(said: &str, name: &str, is_no_english: bool) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || c == '_';
    said.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&said[..at], &said[at + name.len()..]);
        let (last, next) = (before.chars().next_back(), behind.chars().next());
        if last.is_some_and(is_of_names) || next.is_some_and(is_of_names) {
            return false;
        }
        let is_quoted = last.is_some_and(|c| matches!(c, '\'' | '"' | '`')) && last == next;
        // What stands further on in the path is what is meant: `messages.1.content.0.tool_use.id` is about an id.
        let leads_on = behind.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c| is_of_names(c) || c == '['));
        let is_in_path = !leads_on && (last == Some('.') || matches!(next, Some(':' | '[')));
        let is_supplied = before.ends_with(": ") && next.is_none_or(|c| matches!(c, '.' | ',' | ' '));
        is_no_english || is_quoted || is_in_path || is_supplied
    })
}

/// Whether a refusal says that something is not known, or not taken.
pub(crate) fn says_not_taken(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    NOT_TAKEN.iter().any(|words| said.contains(words))
}

/// Where a refusal names one of these fields first, in small letters and outside of what it would have taken.
pub(crate) fn first_named(message: &str, name: &str) -> Option<usize> {
    let said = message.to_ascii_lowercase();
    let said = up_to_taken(&said);
    said.find(name).filter(|_| is_named(said, name, true))
}

/// A refusal in small letters, up to what its server would have taken.
fn up_to_taken(said: &str) -> &str {
    let ends = TAKEN.iter().filter_map(|words| said.find(words)).min().unwrap_or(said.len());
    &said[..ends]
}

fn is_quoted(said: &str, name: &str) -> bool {
    said.split(['\'', '"', '`']).skip(1).step_by(2).any(|quoted| quoted == name)
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// What is in the list under `field`, where there is one.
fn listed<'b>(body: &'b mut Value, field: &str) -> impl Iterator<Item = &'b mut Value> {
    body.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The blocks of all messages.
fn contents(body: &mut Value) -> impl Iterator<Item = &mut Value> {
    listed(body, "messages").flat_map(|message| listed(message, "content"))
}

/// A tool for each name that the calls of the history have, as either wire writes it.
fn tools_of_history(body: &mut Value) -> Vec<Value> {
    let none = || json!({"type": "object", "properties": {}});
    let named = |name: &Value| name.as_str().map(str::to_owned);
    let uses = contents(body).filter(|block| block["type"] == "tool_use");
    let uses: BTreeSet<String> = uses.filter_map(|block| named(&block["name"])).collect();
    let calls = listed(body, "messages").flat_map(|message| listed(message, "tool_calls"));
    let calls: BTreeSet<String> = calls.filter_map(|call| named(&call["function"]["name"])).collect();
    let tool = |name: String| json!({"name": name, "description": NOT_OFFERED, "input_schema": none()});
    let function = |name: String| {
        let function = json!({"name": name, "description": NOT_OFFERED, "parameters": none()});
        json!({"type": "function", "function": function})
    };
    uses.into_iter().map(tool).chain(calls.into_iter().map(function)).collect()
}

/// The schemas of all tools.
fn schemas_of(body: &mut Value) -> Vec<&mut Value> {
    listed(body, "tools").filter_map(schema_of).collect()
}

/// The schema of a tool, as each wire has it.
fn schema_of(tool: &mut Value) -> Option<&mut Value> {
    let places = ["/function/parameters", "/parameters", "/input_schema"];
    let place = places.into_iter().find(|place| tool.pointer(place).is_some())?;
    tool.pointer_mut(place)
}

/// Puts words in front of what is said, which is a text or a list of parts.
fn say_before(said: &mut Value, words: &str) {
    match said {
        Value::String(text) => text.insert_str(0, words),
        Value::Array(parts) => parts.insert(0, json!({"type": "text", "text": words})),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

/// What a server takes of that which nobody asked for, of each model behind it.
#[derive(Debug)]
pub(crate) struct Unasked {
    wire: Wire,
    forms: Mutex<BTreeMap<String, Form>>,
}

impl Unasked {
    /// Of a server of which nothing is known yet.
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, forms: Mutex::default() }
    }

    /// Makes a request for one reply, in the form in which the model takes it, and again where it is refused for something that can be left out.
    pub(crate) async fn complete<A: Assemble>(
        &self,
        http: &HttpClient,
        body: &str,
        model: &str,
        assembler: impl Fn() -> A + Send + Sync,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let mut form =
            self.forms.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned().unwrap_or_default();
        for _ in 1..MOST_TRIES {
            let sent = form.applied(body);
            let heeding = Heeding::new(observer);
            let answer = Box::pin(http.complete(sent.to_string(), model, assembler(), &heeding)).await;
            let refused = heeding.refusal(&answer);
            let Some(other) = refused.and_then(|refused| form.after(refused, self.wire, &sent)) else { return answer };
            tracing::info!(
                model,
                otherwise = ?other.otherwise,
                without = ?other.without,
                "the provider does not take a part of the request that nobody asked for, asking without it"
            );
            self.learn(model, &other);
            form = other;
        }
        Box::pin(http.complete(form.applied(body).into_owned(), model, assembler(), observer)).await
    }

    /// What another request learnt meanwhile is kept.
    fn learn(&self, model: &str, form: &Form) {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let known = forms.entry(model.to_owned()).or_default();
        known.otherwise.extend(&form.otherwise);
        known.without.extend(form.without.iter().cloned());
    }
}
