//! A world that counts: tools without processes, whose effects outlive every simulated crash.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{
    Destination, DestinationKey, Env, Handle, Outcome, RawReply, Timestamp, ToolAnnotations, ToolName, ToolNamespace,
    ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, Permit, ToolTransport, TransportError};

use crate::outcomes::ToolOutcome;
use crate::unfinished::{Tasks, Unfinished, live_question, question};

/// How a tool of the world treats keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honours {
    /// A second call under one key has no second effect.
    Keys,
    /// Every call has its effect.
    Nothing,
}

/// One effect that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The tool.
    pub tool: String,
    /// The key it came with.
    pub key: String,
    /// Its arguments.
    pub arguments: Value,
    /// From when on the world shows it to those who ask.
    pub shown_from: Timestamp,
}

/// A request that its caller gave up and that is done later.
#[derive(Debug)]
struct Late {
    server: String,
    tool: String,
    key: String,
    arguments: Value,
    honours: Honours,
}

/// A read-only tool that lists what another tool did, as `{"items": [{"id", "arguments"}], "more": false}`.
#[derive(Debug)]
struct Listing {
    tool: ToolName,
    of: String,
    env: Env,
    lag: Duration,
}

/// What happens while the servers start again; none while they run.
#[derive(Default)]
struct Starting {
    /// How often they were started again.
    times: u32,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for Starting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starting").field("times", &self.times).finish_non_exhaustive()
    }
}

impl Starting {
    fn generation(&self) -> String {
        (self.times + 1).to_string()
    }
}

/// The outside world.
#[derive(Debug, Default)]
pub struct World {
    starting: Mutex<Starting>,
    tools: Vec<(ToolName, Honours)>,
    composites: Vec<ToolName>,
    unfinished: BTreeMap<String, Unfinished>,
    tasks: Mutex<Tasks>,
    listings: Vec<Listing>,
    next: Mutex<VecDeque<(String, ToolOutcome)>>,
    late: Mutex<Vec<Late>>,
    log: Mutex<Vec<String>>,
    deliveries: Mutex<Vec<Delivery>>,
    seen: Mutex<BTreeMap<String, Value>>,
    padding: usize,
    paid: BTreeMap<String, Value>,
    /// As whom the servers send, once that was said.
    account: Mutex<Option<String>>,
    /// How many deliveries another account has.
    of_others: Mutex<usize>,
}

impl World {
    /// A world with these tools.
    pub fn new(tools: impl IntoIterator<Item = (ToolName, Honours)>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::default() }
    }

    /// From now on the servers send as this account: it knows no key that another one got, and shows nothing that another one has.
    pub fn send_as(&self, account: &str) {
        *locked(&self.account) = Some(account.to_owned());
        *locked(&self.of_others) = locked(&self.deliveries).len();
        locked(&self.seen).clear();
    }

    /// The same world, with `bytes` of padding in each answer.
    #[must_use]
    pub fn padded(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The same world, in which `tool` says in each answer what it paid to a model: `{"provider", "model", "usage"}`.
    #[must_use]
    pub fn paid(mut self, tool: &str, what: Value) -> Self {
        self.paid.insert(tool.to_owned(), what);
        self
    }

    /// The same world, in which each answer of `tool` has these fields besides.
    #[must_use]
    pub fn saying(self, tool: &str, what: Value) -> Self {
        self.paid(tool, what)
    }

    /// The same world with a composite tool in the form of Composio's: `{"tools": [{"tool_slug", "arguments"}]}`. Each action has its
    /// effect each time it comes, and counts under its own name.
    #[must_use]
    pub fn composite(mut self, tool: ToolName) -> Self {
        self.composites.push(tool);
        self
    }

    /// The same world, in which `tool` answers before it is done.
    #[must_use]
    pub fn unfinished(mut self, tool: &str, how: Unfinished) -> Self {
        self.unfinished.insert(tool.to_owned(), how);
        self
    }

    /// The same world with a read-only `tool` that lists what the tool `of` did, each thing `lag` after it was done: the other
    /// side is slow to do it, or to show it.
    #[must_use]
    pub fn listing(mut self, tool: ToolName, of: &str, env: &Env, lag: Duration) -> Self {
        self.listings.push(Listing { tool, of: of.to_owned(), env: env.clone(), lag });
        self
    }

    /// Has the next call of `tool` come to `outcome`; calls after it find what is said next, or are answered.
    ///
    /// # Panics
    /// When the world cannot play it: see [`World::cannot_play`].
    pub fn next(&self, tool: &str, outcome: ToolOutcome) {
        if let Some(why) = Self::cannot_play(outcome) {
            panic!("{}: {why}", outcome.name());
        }
        locked(&self.next).push_back((tool.to_owned(), outcome));
    }

    /// Ends the tool servers: before the next call one has to be started, and `meanwhile` happens then.
    pub fn end_servers(&self, meanwhile: impl FnOnce() + Send + 'static) {
        locked(&self.starting).meanwhile = Some(Box::new(meanwhile));
    }

    /// Why the world cannot play an outcome; `None` for those that it can.
    pub const fn cannot_play(outcome: ToolOutcome) -> Option<&'static str> {
        match outcome {
            ToolOutcome::BusyForLong => {
                Some("the world answers at once: it has no time of its own; the simulation plays it")
            }
            ToolOutcome::Answered
            | ToolOutcome::NeverLeft
            | ToolOutcome::Refused(_)
            | ToolOutcome::LostBefore
            | ToolOutcome::LostAfter
            | ToolOutcome::Late
            | ToolOutcome::ReportedWithoutEffect
            | ToolOutcome::ReportedWithEffect
            | ToolOutcome::AnsweredTwice
            | ToolOutcome::ServerDied
            | ToolOutcome::GoesOnInATask
            | ToolOutcome::AsksFirst => None,
        }
    }

    /// What is late arrives with whatever comes next, if its server was not ended before.
    fn arrive(&self) {
        let late = std::mem::take(&mut *locked(&self.late));
        for Late { tool, key, arguments, honours, .. } in late {
            self.deliver(&tool, &key, arguments, honours);
        }
    }

    /// What reached the world, in order: `invoke TOOL`, `fence SERVER`, `ask TOOL`.
    pub fn log(&self) -> Vec<String> {
        locked(&self.log).clone()
    }

    fn note(&self, what: &str, name: &str) {
        locked(&self.log).push(format!("{what} {name}"));
    }

    /// What happened, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often a tool had its effect.
    pub fn count(&self, tool: &str) -> usize {
        self.deliveries().iter().filter(|delivery| delivery.tool == tool).count()
    }

    /// Does every action of a composite call and answers as Composio does.
    fn act_all(&self, permit: &Permit) -> Value {
        let arguments = Value::Object(permit.arguments());
        let actions = arguments["tools"].as_array().cloned().unwrap_or_default();
        let mut deliveries = locked(&self.deliveries);
        let results: Vec<Value> = actions
            .iter()
            .map(|action| {
                let tool = action["tool_slug"].as_str().unwrap_or_default().to_owned();
                let (key, arguments) = (permit.key().as_str().to_owned(), action["arguments"].clone());
                let shown_from = Timestamp::from_millis(0);
                deliveries.push(Delivery { tool: tool.clone(), key, arguments, shown_from });
                let data = json!({"id": format!("{tool}-{}", deliveries.len())});
                json!({"tool_slug": tool, "response": {"successful": true, "error": null, "data": data}})
            })
            .collect();
        json!({"successful": true, "error": null, "data": {"results": results}})
    }

    fn act(&self, permit: &Permit, honours: Honours) -> Value {
        self.deliver(&permit.name().tool, permit.key().as_str(), Value::Object(permit.arguments()), honours)
    }

    fn deliver(&self, tool: &str, key: &str, arguments: Value, honours: Honours) -> Value {
        let (tool, key) = (tool.to_owned(), key.to_owned());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if honours == Honours::Keys
            && let Some(answer) = seen.get(&key)
        {
            return answer.clone();
        }
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = self.listings.iter().find(|listing| listing.of == tool);
        let shown_from = listing.map_or(Timestamp::from_millis(0), |listing| listing.env.now().plus(listing.lag));
        deliveries.push(Delivery { tool: tool.clone(), key: key.clone(), arguments, shown_from });
        let mut answer = json!({"id": format!("{tool}-{}", deliveries.len())});
        if self.padding > 0 {
            answer["padding"] = "x".repeat(self.padding).into();
        }
        if let Some(paid) = self.paid.get(&tool).and_then(Value::as_object) {
            paid.iter().for_each(|(name, value)| answer[name] = value.clone());
        }
        seen.insert(key, answer.clone());
        answer
    }
}

#[async_trait]
impl ToolTransport for World {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let spec = |name: &ToolName| ToolSpec {
            name: name.clone(),
            description: format!("The {} of a test's world.", name.tool),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        let batches = self.composites.iter().map(|name| ToolSpec {
            input_schema: json!({"type": "object", "properties": {"tools": {"type": "array"}}}),
            ..spec(name)
        });
        let names = self.tools.iter().map(|(name, _)| name).chain(self.listings.iter().map(|listing| &listing.tool));
        Ok(names.map(spec).chain(batches).collect())
    }

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        None
    }

    async fn ready(&self, _server: &str) -> Result<String, TransportError> {
        let mut starting = locked(&self.starting);
        if let Some(meanwhile) = starting.meanwhile.take() {
            meanwhile();
            starting.times += 1;
        }
        Ok(starting.generation())
    }

    fn destination(&self, _tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        let account = locked(&self.account).clone();
        let parts = |account| BTreeMap::from([("variable ACCOUNT".to_owned(), Value::String(account))]);
        Ok(account.map(|account| DestinationKey::new("a world").destination(&parts(account))))
    }

    fn running(&self, _server: &str) -> Option<String> {
        let starting = locked(&self.starting);
        starting.meanwhile.is_none().then(|| starting.generation())
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let is_composite = self.composites.contains(permit.name());
        let honours = self.tools.iter().find(|(name, _)| name == permit.name()).map(|(_, honours)| *honours);
        let Some(honours) = honours.or(is_composite.then_some(Honours::Nothing)) else {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "no such tool".to_owned() });
        };
        let tool = &permit.call().name.tool;
        self.note("invoke", tool);
        self.arrive();
        let outcome = {
            let mut next = locked(&self.next);
            let at = next.iter().position(|(name, _)| name == tool);
            at.and_then(|index| next.remove(index)).map(|(_, outcome)| outcome)
        };
        let unfinished = self.unfinished.get(tool).copied();
        let outcome = match (outcome, unfinished) {
            (Some(outcome), _) => outcome,
            (None, Some(Unfinished::Asks | Unfinished::Waits)) => ToolOutcome::AsksFirst,
            (None, Some(Unfinished::Task)) => ToolOutcome::GoesOnInATask,
            (None, None) => ToolOutcome::Answered,
        };
        // A tool that asks first has done nothing when its answer to that is lost.
        if unfinished == Some(Unfinished::Asks) && outcome == ToolOutcome::LostAfter {
            return Outcome::Continues(Box::new(question(permit.key().as_str())));
        }
        if unfinished == Some(Unfinished::Waits) && outcome == ToolOutcome::AsksFirst {
            return Outcome::Continues(Box::new(live_question(permit.key().as_str())));
        }
        let act = || if is_composite { self.act_all(permit) } else { self.act(permit, honours) };
        let lost = || Outcome::Lost { why: "the test lost the answer".to_owned() };
        match outcome {
            // `next` takes no `BusyForLong`: it is answered like any other.
            ToolOutcome::Answered | ToolOutcome::BusyForLong => replied(&act()),
            ToolOutcome::NeverLeft => Outcome::NotSent { why: "connection refused".to_owned() },
            ToolOutcome::Refused(refusal) => Outcome::Raw(refusal.reply()),
            ToolOutcome::LostBefore => lost(),
            ToolOutcome::LostAfter => {
                act();
                lost()
            }
            ToolOutcome::Late => {
                let (tool, key, server) =
                    (tool.clone(), permit.key().as_str().to_owned(), permit.name().server.clone());
                let arguments = Value::Object(permit.arguments());
                locked(&self.late).push(Late { server, tool, key, arguments, honours });
                lost()
            }
            ToolOutcome::ReportedWithoutEffect => reported(),
            ToolOutcome::ReportedWithEffect => {
                act();
                reported()
            }
            ToolOutcome::AnsweredTwice => {
                act();
                replied(&act())
            }
            ToolOutcome::ServerDied => Outcome::Lost { why: "the tool server ended".to_owned() },
            ToolOutcome::GoesOnInATask => Outcome::Continues(Box::new(locked(&self.tasks).begin(tool, act()))),
            ToolOutcome::AsksFirst => Outcome::Continues(Box::new(question(permit.key().as_str()))),
        }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let tool = &permit.call().name.tool;
        self.note("go on", tool);
        if let Some(task) = &handle.task {
            return Ok(match locked(&self.tasks).ask(task) {
                Ok(Some(answer)) => replied(&answer),
                Ok(None) => Outcome::Continues(Box::new(handle.clone())),
                Err(why) => Outcome::Lost { why },
            });
        }
        let input = handle.input.clone().unwrap_or_default();
        if input.state != Some(format!("sealed {}", permit.key().as_str())) {
            return Ok(Outcome::Lost { why: "this is not the state that was handed out".to_owned() });
        }
        if input.answers["size"]["action"] != "accept" {
            let content = json!([{"type": "text", "text": "nobody said which size"}]);
            return Ok(Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": true}) }));
        }
        let honours = self.tools.iter().find(|(name, _)| name == permit.name()).map(|(_, honours)| *honours);
        Ok(replied(&self.act(permit, honours.unwrap_or(Honours::Nothing))))
    }

    async fn give_up(&self, permit: &Permit, _handle: &Handle) {
        self.note("give up", &permit.call().name.tool);
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.note("ask", &enquiry.tool().tool);
        self.arrive();
        let Some(listing) = self.listings.iter().find(|listing| listing.tool == *enquiry.tool()) else {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "no such tool".to_owned() });
        };
        let now = listing.env.now();
        let own = self.deliveries().into_iter().skip(*locked(&self.of_others));
        let shown = own.filter(|d| d.tool == listing.of && d.shown_from <= now);
        let items: Vec<Value> = shown
            .enumerate()
            .map(|(index, d)| json!({"id": format!("{}-{index}", d.tool), "arguments": d.arguments}))
            .collect();
        let answer = json!({"items": items, "more": false});
        Outcome::Raw(RawReply::ToolResult {
            result: json!({"content": [{"type": "text", "text": answer.to_string()}], "structuredContent": answer}),
        })
    }

    async fn fence(&self, server: &str, _generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        self.note("fence", server);
        locked(&self.late).retain(|late| late.server != server); // it ends with its server
        Fence::Gone
    }
}

fn reported() -> Outcome {
    let content = json!([{"type": "text", "text": "it failed"}]);
    Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": true}) })
}

fn replied(answer: &Value) -> Outcome {
    let text = answer.to_string();
    Outcome::Raw(RawReply::ToolResult {
        result: json!({"content": [{"type": "text", "text": text}], "structuredContent": answer}),
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tool of our own server, as the shipped policy knows it.
pub fn own_tool(tool: &str) -> ToolName {
    ToolName::qualified(ToolNamespace::Local, "ua", tool)
}

/// A tool of a server that nobody knows anything about.
pub fn foreign_tool(server: &str, tool: &str) -> ToolName {
    ToolName::qualified(ToolNamespace::Mcp, server, tool)
}
