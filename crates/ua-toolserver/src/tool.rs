//! What a tool is: a name, what `tools/list` says of it, and a function over its arguments.
//!
//! A new tool is one file that implements [`Tool`] and one line in the list of [`crate::tools`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{JsonObject, MetaObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{Answer, Failure};
use crate::context::{Context, Order, Setup};
use crate::error::ToolServerError;
use crate::meta::{FETCHES, HONOURS_KEYS, KEY_TTL_SECONDS};
use crate::schema;

/// A tool, `None` where these settings do not offer it; an error for a setting that no call could work with.
pub(crate) type Opened<T> = Result<Option<T>, ToolServerError>;

/// One tool, as these settings offer it.
pub(crate) trait Tool: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name that it is called by.
    const NAME: &'static str;

    /// Whether giving up halfway does no harm, so that a call need not be finished when nobody waits for it.
    const MAY_DROP: bool = false;

    /// How long a call may take. It ends one that would not end by itself, so it is longer than anything that the tool waits for.
    const DEADLINE: Duration = Duration::from_hours(1);

    /// What it is called with. Its schema is what `tools/list` says; the comments on its fields are read by models.
    type Arguments: DeserializeOwned + JsonSchema + Send;

    /// Of the variables that the server is given, those that choose who receives its effect and as whose, by what they hold. Whoever sent a call
    /// repeats it by itself only where these are what they were. A tool that makes nothing outside its run's folder has none.
    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &[]
    }

    /// Takes what it needs of the settings.
    fn open(setup: &Setup<'_>) -> Opened<Self>;

    /// What is said of it, as far as these settings let it keep its word.
    fn describe(&self) -> Description;

    /// Runs one call.
    fn call(&self, context: &Context, given: Self::Arguments, order: Order<'_>) -> impl Future<Output = Answer> + Send;
}

/// What a tool does to the world, as MCP's annotations say it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Changes nothing, looks at the workspace only.
    Reads,
    /// Replaces files of the workspace; once or twice makes no difference.
    Replaces,
    /// Adds to the workspace; twice is not once.
    Adds,
    /// Fetches from the network and keeps copies of its own. Said in `tools/list`, so that no such tool is forgotten where reads are
    /// watched; the crawler is handed to tools of this effect alone (`tests/it/wire/policy.rs`).
    Fetches,
    /// Creates something outside; twice is not once.
    Creates,
    /// Creates something outside; twice is not once, but twice under one idempotency key is.
    CreatesPerKey,
    /// Creates something outside once per content; once or twice makes no difference.
    CreatesOnce,
    /// Replaces something outside by name and content; once or twice makes no difference.
    ReplacesOutside,
    /// Fetches from outside and replaces a file of the workspace; once or twice makes no difference.
    FetchesInto,
    /// Changes nothing, but asks somebody who is paid for each answer.
    Asks,
    /// Anything.
    Anything,
}

impl Effect {
    fn annotations(self, title: &str) -> ToolAnnotations {
        // (read-only, destructive, idempotent, open world)
        let (read_only, destructive, idempotent, open_world) = match self {
            Self::Reads => (true, false, true, false),
            Self::Replaces => (false, true, true, false),
            Self::Adds => (false, false, false, false),
            Self::Creates | Self::CreatesPerKey => (false, false, false, true),
            Self::Fetches | Self::CreatesOnce => (false, false, true, true),
            Self::ReplacesOutside | Self::FetchesInto => (false, true, true, true),
            Self::Asks => (true, false, false, true),
            Self::Anything => (false, true, false, true),
        };
        ToolAnnotations::with_title(title)
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world)
    }

    /// What the hints of the protocol cannot say: whether a durable runner may repeat a lost call under its key.
    fn honours_keys(self) -> Option<bool> {
        match self {
            Self::Creates => Some(false),
            Self::CreatesPerKey | Self::CreatesOnce | Self::ReplacesOutside => Some(true),
            Self::Reads
            | Self::Replaces
            | Self::Adds
            | Self::Fetches
            | Self::FetchesInto
            | Self::Asks
            | Self::Anything => None,
        }
    }
}

/// What `tools/list` says of a tool, besides its name and arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Description {
    title: &'static str,
    /// What a model reads before it decides to call.
    text: &'static str,
    effect: Effect,
    key_ttl_seconds: Option<u32>,
}

impl Description {
    pub(crate) const fn new(title: &'static str, text: &'static str, effect: Effect) -> Self {
        Self { title, text, effect, key_ttl_seconds: None }
    }

    /// The same, with a limit to how long an idempotency key is honoured.
    pub(crate) const fn honoured_for(self, seconds: Option<u32>) -> Self {
        Self { key_ttl_seconds: seconds, ..self }
    }
}

/// A line in the list of tools: how one is opened.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) receivers: fn(&BTreeMap<String, String>) -> &'static [&'static str],
    pub(crate) open: fn(&Setup<'_>) -> Opened<Box<dyn AnyTool>>,
}

impl Entry {
    pub(crate) const fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            receivers: T::receivers,
            open: |setup| Ok(T::open(setup)?.map(|tool| Box::new(tool) as Box<dyn AnyTool>)),
        }
    }
}

/// A [`Tool`] whose arguments are still as they came.
#[async_trait]
pub(crate) trait AnyTool: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// See [`Tool::MAY_DROP`].
    fn may_drop(&self) -> bool;

    /// See [`Tool::DEADLINE`].
    fn deadline(&self) -> Duration;

    /// The tool as `tools/list` shows it.
    fn listed(&self) -> rmcp::model::Tool;

    /// Reads the arguments, then runs the tool.
    async fn answer(&self, context: &Context, arguments: JsonObject, order: Order<'_>) -> Answer;
}

#[async_trait]
impl<T: Tool> AnyTool for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn may_drop(&self) -> bool {
        T::MAY_DROP
    }

    fn deadline(&self) -> Duration {
        T::DEADLINE
    }

    fn listed(&self) -> rmcp::model::Tool {
        let Description { title, text, effect, key_ttl_seconds } = self.describe();
        let mut meta = MetaObject::new();
        if let Some(honours_keys) = effect.honours_keys() {
            meta.insert(HONOURS_KEYS.to_owned(), honours_keys.into());
        }
        if matches!(effect, Effect::Fetches) {
            meta.insert(FETCHES.to_owned(), true.into());
        }
        if let Some(seconds) = key_ttl_seconds {
            meta.insert(KEY_TTL_SECONDS.to_owned(), seconds.into());
        }
        let mut tool = rmcp::model::Tool::new(T::NAME, text, Arc::new(schema::of::<T::Arguments>()))
            .with_title(title)
            .with_annotations(effect.annotations(title));
        tool.meta = (!meta.is_empty()).then_some(meta);
        tool
    }

    async fn answer(&self, context: &Context, arguments: JsonObject, order: Order<'_>) -> Answer {
        let given = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
            Failure::refused(
                format!("the arguments do not fit: {error}"),
                "compare them with the tool's input schema and call again",
            )
        })?;
        self.call(context, given, order).await
    }
}
