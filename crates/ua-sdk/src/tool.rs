//! Tools: async closures of the program with typed arguments, and what the runner may rely on about them.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ua_core::{AwaitedRun, EffectKind, RunId, RunStop, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_dispatch::{LocalCall, LocalFailure};
use ua_runner::StepOutcome as Outcome;

use crate::error::Error;

/// The name under which a model sees the program's own tools: `mcp__program__<name>`.
pub(crate) const SERVER: &str = "program";

/// The call that a tool carries out.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    inner: LocalCall,
}

impl Call {
    /// The idempotency key: the same for every attempt of this call, and of no call with another effect. Calls that come to the same effect
    /// share it ([`Tool::external`] says which do); a later one is then not made. What names an effect are the arguments as the model wrote them: a
    /// field that is left out, one that is `null` and one that is its default are three effects, although the closure sees one value. Where that
    /// may happen, [`Tool::named_by`] says which arguments count.
    pub fn key(&self) -> &str {
        self.inner.key()
    }

    /// The id of the run that makes the call, whose folder is [`Runs::workspace`](crate::Runs::workspace) of it: what a stop condition over files waits
    /// for is written there. Empty where the tool is asked as a probe, as its key is.
    pub fn run(&self) -> &str {
        self.inner.permitted.as_ref().map_or("", |call| call.run_id.as_str())
    }

    /// Which attempt of the call this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.permitted.as_ref().map_or(1, |call| call.attempt)
    }
}

/// How a tool says that it did not do what it was asked. Any type that is a [`std::error::Error`] becomes one by `?`; `anyhow::Error`, boxed errors
/// and texts are none: wrap these with one of the words below, `.map_err(|e| Failure::unknown(e.to_string()))`. An error of your own that is a
/// [`std::error::Error`] says by `.map_err` as well which kind of failure it is: it has its `From` into this one already (E0119). By `?` nobody
/// knows whether anything happened, and the call is settled as a lost one is: under its key, or by a person. A tool that only reads tells the
/// model instead.
#[derive(Debug)]
pub struct Failure(ToolFailure);

#[derive(Debug)]
enum ToolFailure {
    NotDone(String),
    Refused(String),
    Reported(String),
    Unknown(String),
    Waits(Box<AwaitedRun>),
}

impl Failure {
    /// Nothing happened, provably: tried again with backoff, under the same key.
    pub fn not_done(why: impl Into<String>) -> Self {
        Self(ToolFailure::NotDone(why.into()))
    }

    /// Nothing happened, provably, and trying again would not help: the tool looked at what it was asked and began nothing. The model is told
    /// why and may ask for something else; the call counts for no limit, no condition and no doubt.
    pub fn refused(why: impl Into<String>) -> Self {
        Self(ToolFailure::Refused(why.into()))
    }

    /// It failed, and may have happened in part. The model is told why, nothing is repeated, and the call counts as one that may have had its
    /// effect: a limit on that effect counts it, and the same call is asked about. Where nothing was begun, say [`Failure::refused`].
    pub fn reported(why: impl Into<String>) -> Self {
        Self(ToolFailure::Reported(why.into()))
    }

    /// Nobody knows whether it happened.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self(ToolFailure::Unknown(why.into()))
    }

    /// What a tool says that ran a step of its own under `id`, which is not complete: of a run that waits for a person or stopped, that this call waits
    /// with it. The run of the call is `Waiting` with the question of that run, or `Stopped` for its reason. Neither of them asks about this call, and
    /// nothing is tried again until the program runs the step of this call again, which calls the tool again under the same key: so the tool is
    /// [`keyed`](Tool::keyed), [`local`](Tool::local) or only [`reads`](Tool::reads), and of any other one it is not known what it did. A run that
    /// failed or was cancelled is told to the model, as by [`Failure::reported`]. [`Runs::run_within`](crate::Runs::run_within) says all this by
    /// itself.
    pub fn of_run(id: &str, outcome: Outcome) -> Self {
        match outcome {
            Outcome::Waiting { question } => {
                let detail = format!("it waits for a person: {}", question.text.trim_end());
                Self::waits(id, Some(question.question_id), RunStop::Interrupt, &detail)
            }
            Outcome::Stopped { reason, detail } => Self::waits(id, None, reason, &detail),
            Outcome::Failed { why } => Self::reported(format!("run {id} failed: {why}")),
            Outcome::Cancelled => Self::reported(format!("run {id} was cancelled")),
            complete @ Outcome::Complete { .. } => Self::reported(format!("run {id} is {complete}")),
        }
    }

    /// The same of a run that could not be driven: its last committed turn stands, and nothing more was sent.
    pub(crate) fn of_run_not_driven(id: &str, error: &Error) -> Self {
        Self::waits(id, None, error.as_stop(), &error.to_string())
    }

    fn waits(id: &str, question: Option<ua_core::QuestionId>, reason: RunStop, detail: &str) -> Self {
        // Its own words mostly name it.
        let named = if detail.contains(id) { detail.to_owned() } else { format!("run {id}: {detail}") };
        match RunId::parse(id) {
            Ok(run_id) => Self(ToolFailure::Waits(Box::new(AwaitedRun { run_id, question, reason, detail: named }))),
            Err(_) => Self::unknown(named),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(ToolFailure::Unknown(ua_core::chain(&error)))
    }
}

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Value, LocalFailure>> + Send>>;

/// What a call may take, where it is said.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_hours(365 * 24);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// It is not said what it does: an effect outside, and its lost calls are asked about.
    Unsaid,
    Reads,
    Local,
    External,
}

impl Class {
    /// The word of a tool that says it.
    fn word(self) -> &'static str {
        match self {
            Self::Unsaid => "nothing",
            Self::Reads => "reads",
            Self::Local => "local",
            Self::External => "external",
        }
    }
}

/// A tool of the program: a name, what it does, typed arguments, an async closure. Until it is said otherwise, it has an effect outside
/// that must not happen twice: a person is asked about a lost call, and about a repeat in the same words where its name says that it makes
/// something or moves money (`create_invoice`, `order_pizza`).
#[derive(Clone)]
#[must_use = "a tool is there for a model when `Step::tool` has it"]
pub struct Tool {
    pub(crate) spec: ToolSpec,
    pub(crate) run: Arc<dyn Fn(LocalCall, bool) -> Answer + Send + Sync>,
    class: Class,
    /// Another class that was said of it.
    other_class: Option<Class>,
    effect_kind: Option<String>,
    named_by: Option<Vec<String>>,
    is_keyed: bool,
    needs_approval: bool,
    timeout: Option<Duration>,
}

/// A tool called `name`, which a model reads `description` about. The closure gets the call and its arguments, whose schema is that of
/// their type; it may capture what can be cloned, and is cloned for each call: what it
/// changes of a captured value is lost after the call, so a counter or a set of what was sent is captured as an `Arc<Mutex<_>>`. Its answer is a text or any other JSON value. An object that
/// says `"successful": false` counts as failed, as [`Failure::reported`] does.
///
/// The future of the closure is polled in the future of the run: a tool that blocks its thread blocks the run and all that is polled there, its stream
/// and a timeout around it included, so what blocks goes to `tokio::task::spawn_blocking` and is awaited. What the tool leaves running elsewhere
/// nobody waits for, and nobody ends. A cancel and [`Runs::stop`](crate::Runs::stop) wait for the call that is at work and do not tell it: a tool that
/// takes long looks for itself (`runs.get(call.run())` says since when a cancel is asked for), or has a [`timeout`](Tool::timeout). A panic of it is
/// caught, and counts as [`Failure::unknown`].
pub fn tool<A, O, E, F, R>(name: &str, description: &str, run: F) -> Tool
where
    A: DeserializeOwned + JsonSchema,
    O: Serialize,
    E: Into<Failure>,
    F: FnOnce(Call, A) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<O, E>> + Send + 'static,
{
    let run = move |call: LocalCall, only_reads: bool| -> Answer {
        // No arguments at all are `()` as well as a type whose fields may all be left out.
        let none = call.arguments.is_empty().then(|| serde_json::from_value(Value::Null).ok()).flatten();
        let given = || serde_json::from_value(Value::Object(call.arguments.clone()));
        let arguments: A = match none.map_or_else(given, Ok) {
            Ok(arguments) => arguments,
            Err(why) => {
                // The closure was not called: their type knows more than its schema says, or is another one than when the call was planned.
                let refused = format!("the tool cannot read these arguments: {why}. Correct them and ask again.");
                return Box::pin(std::future::ready(Err(LocalFailure::Refused(refused))));
            }
        };
        let going = run.clone()(Call { inner: call }, arguments);
        Box::pin(async move {
            match going.await {
                Ok(answer) => serde_json::to_value(answer).map_err(|why| {
                    let why = format!("its answer is not a JSON value: {why}");
                    // Another look would bring the same.
                    if only_reads { LocalFailure::Reported(why) } else { LocalFailure::Unknown(why) }
                }),
                Err(failure) => Err(match failure.into().0 {
                    ToolFailure::NotDone(why) => LocalFailure::NotDone(why),
                    ToolFailure::Refused(why) => LocalFailure::Refused(why),
                    ToolFailure::Reported(why) => LocalFailure::Reported(why),
                    ToolFailure::Unknown(why) if only_reads => LocalFailure::Reported(why),
                    ToolFailure::Unknown(why) => LocalFailure::Unknown(why),
                    ToolFailure::Waits(run) => LocalFailure::Waits(run),
                }),
            }
        })
    };
    Tool {
        spec: ToolSpec {
            name: ToolName::qualified(ToolNamespace::Local, SERVER, name),
            description: description.to_owned(),
            input_schema: schema_of::<A>(),
            annotations: ToolAnnotations::default(),
        },
        run: Arc::new(run),
        class: Class::Unsaid,
        other_class: None,
        effect_kind: None,
        named_by: None,
        is_keyed: false,
        needs_approval: false,
        timeout: None,
    }
}

/// The type that a schema demands, if no object is of it.
fn no_object(schema: &Value) -> Option<String> {
    match schema.get("type")? {
        Value::String(kind) => (kind != "object").then(|| format!("`{kind}`")),
        Value::Array(kinds) => {
            (!kinds.iter().any(|kind| kind == "object")).then(|| Value::from(kinds.clone()).to_string())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The schema of a tool's arguments. No arguments (`()`) are an empty object.
pub(crate) fn schema_of<A: JsonSchema>() -> Value {
    let mut schema = result_schema_of::<A>();
    if let Some(fields) = schema.as_object_mut()
        && fields.get("type").and_then(Value::as_str) == Some("null")
    {
        fields.insert("type".to_owned(), Value::from("object"));
        fields.insert("additionalProperties".to_owned(), Value::from(false));
    }
    schema
}

/// The schema of a typed result. `()` is read from `null` and from nothing else.
pub(crate) fn result_schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
        fields.remove("title");
    }
    schema
}

impl Tool {
    /// It only reads: a lost call is simply made again.
    pub fn reads(mut self) -> Self {
        self.spec.annotations.read_only = Some(true);
        self.of_class(Class::Reads)
    }

    /// What it changes is on this machine only, and doing it again comes to the same.
    pub fn local(self) -> Self {
        self.of_class(Class::Local)
    }

    /// It has an effect outside, of a kind such as `invoice.send`; stop conditions count it by that name. The verb decides whether the same call
    /// made twice is one effect. After a creating verb (send, create, upload, publish, post, invite, comment, reply, forward, pay, notify,
    /// book, broadcast, buy, charge, deposit, donate, mint, order, purchase, refund, register, reserve, schedule, ship, submit, transfer,
    /// withdraw) a call with the arguments of an earlier one is not made, and gets that one's answer. After any other verb, as in
    /// `row.update`, two calls are two effects, unless the tool's name or the kind says that it makes something (`place_order` as
    /// `parcel.expedite`, `invoice.issue`, `stock.sell`): then a repeat in the same words is a question. In a [policy](crate::Step::policy) `creates = false` takes
    /// that question away; after a creating verb each call is made where the step's `Constraints` have `no_duplicate_external_actions: false`.
    pub fn external(mut self, effect_kind: &str) -> Self {
        self.effect_kind = Some(effect_kind.to_owned());
        self.of_class(Class::External)
    }

    fn of_class(mut self, class: Class) -> Self {
        if self.class != Class::Unsaid && self.class != class {
            self.other_class = Some(self.class);
        }
        self.class = class;
        self
    }

    /// The tool has its effect once for each [`Call::key`], so a lost call is made again under its key, and nobody has to be asked: as often as the
    /// budget `max_retries_per_tool_call` says (five times), then a person is.
    pub fn keyed(mut self) -> Self {
        self.is_keyed = true;
        self
    }

    /// The arguments that name the effect, as `["order"]`: two calls that agree in these are about the same effect, whatever the others say. After
    /// a creating verb ([`Tool::external`]) the second one is a question then, unless all of its arguments are those of the first: that one is not made.
    /// One of the named arguments that is left out, `null` or empty counts as left out. Without this word all arguments name the effect, as the
    /// model wrote them ([`Call::key`]), but for what nobody sees. It is the `scope` of a [policy](crate::Step::policy), whose `volatile_fields` names arguments that do not count
    /// at all: calls that differ in nothing else are one.
    ///
    /// ```
    /// use ua_sdk::prelude::*;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Parcel { order: String, note: Option<String> }
    ///
    /// let send = tool("send_parcel", "Sends a parcel.", async |_: Call, parcel: Parcel| Ok::<_, Failure>(parcel.note))
    ///     .external("parcel.send")
    ///     .named_by(["order"]);
    /// # drop(send);
    /// ```
    pub fn named_by<N: Into<String>>(mut self, arguments: impl IntoIterator<Item = N>) -> Self {
        self.named_by = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// A person has to agree to each call.
    pub fn approved_by_a_person(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// A call that takes longer is lost: 1 ms to 365 days. Without one it is waited for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(crate) fn only_reads(&self) -> bool {
        self.class == Class::Reads
    }

    /// What the runner may rely on, as the rule of a policy file.
    pub(crate) fn rule(&self) -> Result<String, Error> {
        let name = &self.spec.name.tool;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(Error::Step(format!("no tool can be called {name:?}: use letters, digits, `_` and `-`")));
        }
        if let Some(kind) = no_object(&self.spec.input_schema) {
            return Err(Error::Step(format!(
                "the arguments of the tool `{name}` are of the type {kind}, and a model sends an object: let them be a struct with fields, or `()`"
            )));
        }
        if let Some(why) = ua_dispatch::left_out_of(&self.spec.input_schema) {
            return Err(Error::Step(format!(
                "the arguments of the tool `{name}` would not be held to their schema: {why}; look at them in the tool, which answers with \
                 `Failure::refused`, and leave that pattern out of their type"
            )));
        }
        let class = match self.class {
            Class::Reads => "read_only",
            Class::Local => "local",
            Class::Unsaid | Class::External => "external",
        };
        let quoted = |text: &str| Value::from(text).to_string();
        let mut rule = format!(
            "[[rule]]\nid = \"program-{name}\"\nserver = \"{SERVER}\"\nname = \"{name}\"\nside_effect_class = \"{class}\"\n"
        );
        if let Some(other) = self.other_class {
            let (word, other) = (self.class.word(), other.word());
            return Err(Error::Step(format!(
                "the tool `{name}` is said to be of two kinds, `{other}` and `{word}`; leave out one of them"
            )));
        }
        if let Some(kind) = &self.effect_kind {
            if EffectKind::parse(kind).is_none() {
                return Err(Error::Step(format!(
                    "the tool `{name}` has an effect of the kind {kind:?}: write `<object>.<verb>` in lower-case letters, as in `email.send`"
                )));
            }
            let _infallible = writeln!(rule, "effect_kind = {}", quoted(kind));
        }
        if let Some(arguments) = &self.named_by {
            if self.effect_kind.is_none() {
                return Err(Error::Step(format!(
                    "the tool `{name}` says which arguments name its effect, and not which effect that is; say it with `Tool::external`"
                )));
            }
            if arguments.is_empty() {
                return Err(Error::Step(format!(
                    "the tool `{name}` says that no argument names its effect; name those that do, or leave `named_by` out"
                )));
            }
            // Of an open map nobody knows the names.
            if let Some(fields) = self.spec.input_schema.get("properties").and_then(Value::as_object) {
                let first = |argument: &str| argument.split(['.', '/', '[']).next().unwrap_or_default().to_owned();
                if let Some(unknown) = arguments.iter().find(|argument| !fields.contains_key(&first(argument))) {
                    let nearest = ua_core::nearest(unknown, fields.keys().map(String::as_str));
                    let nearest = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                    return Err(Error::Step(format!(
                        "the tool `{name}` has no argument `{unknown}` that could name its effect{nearest}"
                    )));
                }
            }
            let named: Vec<String> =
                arguments.iter().map(|argument| format!("{{ value = {} }}", quoted(argument))).collect();
            let _infallible = writeln!(rule, "scope = [{}]", named.join(", "));
        }
        if self.class == Class::Local {
            rule.push_str("on_unknown = \"redo\"\n");
        }
        if self.is_keyed {
            if self.only_reads() {
                return Err(Error::Step(format!(
                    "the tool `{name}` only reads, so it needs no key; leave `keyed` out"
                )));
            }
            rule.push_str("key_channel = \"meta\"\n");
        }
        if self.needs_approval {
            rule.push_str("approval = \"ask\"\n");
        }
        if let Some(timeout) = self.timeout {
            if timeout < SHORTEST_TIMEOUT || timeout > LONGEST_TIMEOUT {
                return Err(Error::Step(format!(
                    "the tool `{name}` has a timeout of {timeout:?}: say 1 ms to 365 days, or leave it out and the tool is waited for"
                )));
            }
            let _infallible = writeln!(rule, "timeout = \"{}ms\"", timeout.as_millis());
        }
        Ok(rule)
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("name", &self.spec.name.raw).field("class", &self.class).finish_non_exhaustive()
    }
}
