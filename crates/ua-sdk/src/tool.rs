//! Tools: async closures of the program with typed arguments, and what the runner may rely on about them.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ua_core::{
    AwaitedRun, CallId, EffectKind, IdempotencyKey, RunId, RunStop, ToolAnnotations, ToolName, ToolNamespace, ToolSpec,
};
use ua_dispatch::{LocalCall, LocalFailure, PermittedCall};
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

    /// A call that no run makes, for a test of what a tool does: of the run `run`, under `key`, the attempt `attempt`, from 1.
    ///
    /// # Errors
    /// [`Error::Id`] when no run can be called so.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// use ua_sdk::FailureKind;
    ///
    /// async fn send(call: Call, order: String) -> Result<String, Failure> {
    ///     if order.is_empty() {
    ///         return Err(Failure::refused("there is no order without a number"));
    ///     }
    ///     Ok(format!("sent {order} under {}", call.key()))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let call = Call::of_test("november", "key-1", 1)?;
    /// assert_eq!(send(call.clone(), "A-17".into()).await.unwrap(), "sent A-17 under key-1");
    /// assert_eq!(send(call, String::new()).await.unwrap_err().kind(), FailureKind::Refused);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_test(run: &str, key: &str, attempt: u32) -> Result<Self, Error> {
        let run_id = RunId::parse(run).map_err(|cause| Error::Id { id: run.to_owned(), cause })?;
        let call_id = CallId::new(&ua_core::system::env());
        let idempotency_key = IdempotencyKey::from_stored(key.to_owned());
        let permitted = Some(PermittedCall { run_id, call_id, attempt, idempotency_key });
        let name = ToolName::qualified(ToolNamespace::Local, SERVER, "test");
        Ok(Self { inner: LocalCall { name, arguments: serde_json::Map::new(), permitted } })
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

/// Which kind of failure a [`Failure`] is, each as the word that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// [`Failure::not_done`].
    NotDone,
    /// [`Failure::refused`].
    Refused,
    /// [`Failure::reported`].
    Reported,
    /// [`Failure::unknown`], and every error that became a failure by `?`.
    Unknown,
    /// [`Failure::of_run`] of a run that waits or stopped.
    Waits,
}

impl Failure {
    /// Which kind it is.
    pub fn kind(&self) -> FailureKind {
        match &self.0 {
            ToolFailure::NotDone(_) => FailureKind::NotDone,
            ToolFailure::Refused(_) => FailureKind::Refused,
            ToolFailure::Reported(_) => FailureKind::Reported,
            ToolFailure::Unknown(_) => FailureKind::Unknown,
            ToolFailure::Waits(_) => FailureKind::Waits,
        }
    }

    /// Why, as the model or a person is told.
    pub fn why(&self) -> &str {
        match &self.0 {
            ToolFailure::NotDone(why)
            | ToolFailure::Refused(why)
            | ToolFailure::Reported(why)
            | ToolFailure::Unknown(why) => why,
            ToolFailure::Waits(run) => &run.detail,
        }
    }

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
        let (reason, detail) = error.as_stop();
        Self::waits(id, None, reason, &detail)
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

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.why())
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
        let arguments: A = match arguments_of(&call.arguments) {
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

/// What a tool is called with. What the model sent is an object, so it is read as one; only where the type reads none, as `()` does, are no
/// arguments nothing at all.
fn arguments_of<A: DeserializeOwned>(sent: &serde_json::Map<String, Value>) -> Result<A, serde_json::Error> {
    match serde_json::from_value(Value::Object(sent.clone())) {
        Err(why) if sent.is_empty() => serde_json::from_value(Value::Null).map_err(|_| why),
        read => read,
    }
}

/// The types that a schema demands, if no object is of any of them; `root` is where its references lead.
fn no_object(schema: &Value, root: &Value, depth: usize) -> Option<Vec<String>> {
    /// As deep as references and alternatives are followed.
    const DEEPEST: usize = 16;
    let fields = schema.as_object().filter(|_| depth < DEEPEST)?;
    let within = |schema: &Value| no_object(schema, root, depth + 1);
    let kinds: Vec<&str> = match fields.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.contains(&"object") {
        return Some(kinds.into_iter().map(str::to_owned).collect());
    }
    let target = fields.get("$ref").and_then(Value::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?));
    let all = fields.get("allOf").and_then(Value::as_array).into_iter().flatten();
    if let Some(kinds) = target.into_iter().chain(all).find_map(within) {
        return Some(kinds);
    }
    ["anyOf", "oneOf"].into_iter().find_map(|word| {
        let parts = fields.get(word)?.as_array().filter(|parts| !parts.is_empty())?;
        let kinds = parts.iter().map(within).collect::<Option<Vec<_>>>()?;
        Some(kinds.concat())
    })
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
    // What takes anything, as `serde_json::Value` does, is an object for those who read it.
    if schema == Value::Bool(true) {
        schema = serde_json::json!({});
    }
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

    /// A call that takes longer is lost: 1 ms to 365 days. Without one it is waited for. What of it is left is its future, which is
    /// dropped; what that left elsewhere continues, as a thread of `tokio::task::spawn_blocking` does to its end. So a person who looks
    /// after such a timeout may answer that it did not happen, and see it happen then: what blocks gets a timeout of its own, shorter than
    /// this one, or the tool is [`keyed`](Tool::keyed).
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
        if let Some(mut kinds) = no_object(&self.spec.input_schema, &self.spec.input_schema, 0) {
            kinds.sort_unstable();
            kinds.dedup();
            let kinds = kinds.join("` or `");
            return Err(Error::Step(format!(
                "the arguments of the tool `{name}` are of the type `{kinds}`, and a model sends an object: let them be a struct with fields, or `()`"
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    struct Note {
        note: Option<String>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Order {
        order: String,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    enum Level {
        Low,
        High,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Plain {
        Text(String),
        Level(Level),
        Numbers(Vec<u8>),
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Mixed {
        Text(String),
        Order(Order),
    }

    fn read<A: DeserializeOwned>(sent: &Value) -> A {
        arguments_of(sent.as_object().unwrap()).unwrap()
    }

    #[test]
    fn no_arguments_are_an_object_where_the_type_reads_one() {
        let none = serde_json::json!({});
        assert_eq!(read::<Value>(&none), none);
        assert_eq!(read::<Option<Note>>(&none), Some(Note::default()));
        assert_eq!(read::<Note>(&none), Note::default());
        assert_eq!(read::<Option<Order>>(&none), None);
        read::<()>(&none);
        // What was missing is told, and not that it is no null.
        let why = arguments_of::<Order>(none.as_object().unwrap()).unwrap_err().to_string();
        assert!(why.contains("order"), "{why}");
    }

    #[test]
    fn arguments_that_are_no_object_are_known_however_their_type_says_it() {
        fn refused<A: DeserializeOwned + JsonSchema + Send + 'static>() -> Option<String> {
            let tool = tool("look", "Looks.", async |_: Call, _: A| Ok::<_, Failure>(()));
            tool.rule().err().map(|error| error.to_string())
        }
        for (refused, kind) in [
            (refused::<String>(), "`string`"),
            (refused::<Vec<Order>>(), "`array`"),
            (refused::<Option<u8>>(), "`integer` or `null`"),
            (refused::<Level>(), "`string`"),
            (refused::<Option<Level>>(), "`null` or `string`"),
            (refused::<Plain>(), "`array` or `string`"),
        ] {
            let refused = refused.unwrap();
            assert!(refused.contains(kind), "{refused}");
        }
        for fine in [
            refused::<()>(),
            refused::<Order>(),
            refused::<Option<Order>>(),
            refused::<Mixed>(),
            refused::<Value>(),
            refused::<std::collections::BTreeMap<String, u8>>(),
        ] {
            assert_eq!(fine, None);
        }
    }

    #[test]
    fn a_type_that_takes_anything_has_a_schema_that_is_an_object() {
        assert_eq!(result_schema_of::<Value>(), serde_json::json!({}));
        assert_eq!(schema_of::<Value>(), serde_json::json!({}));
    }

    #[test]
    fn a_test_makes_a_call_and_looks_at_a_failure() {
        let call = Call::of_test("november", "key-1", 2).unwrap();
        assert_eq!((call.run(), call.key(), call.attempt()), ("november", "key-1", 2));
        assert!(matches!(Call::of_test("a b", "key-1", 1), Err(Error::Id { .. })));
        for (failure, kind) in [
            (Failure::not_done("the line is dead"), FailureKind::NotDone),
            (Failure::refused("the line is dead"), FailureKind::Refused),
            (Failure::reported("the line is dead"), FailureKind::Reported),
            (Failure::unknown("the line is dead"), FailureKind::Unknown),
            (std::io::Error::other("the line is dead").into(), FailureKind::Unknown),
            (Failure::waits("november", None, RunStop::Budget, "november: the line is dead"), FailureKind::Waits),
        ] {
            assert_eq!(failure.kind(), kind);
            assert!(failure.why().ends_with("the line is dead") && failure.to_string() == failure.why());
        }
    }
}
