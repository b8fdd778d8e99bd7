//! Tool servers and the world behind them. A request is in flight until the stage says what becomes of it; it outlives the process
//! that sent it, unless its server is ended.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use ua_core::{CallId, Clock as _, Outcome, RawReply, Timestamp, ToolAnnotations, ToolSpec};
use ua_gateway::{Enquiry, Fence, Permit, ToolTransport, TransportError};

use super::clock::StageClock;
use super::job::{HORIZON_SECONDS, Kind, LISTING, SETTLE_SECONDS, TOOLS, Tool, tag_of};
use super::locked;

/// The generation of every remote server.
const REMOTE: &str = "remote";

/// One thing that happened outside.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) tool: Tool,
    pub(super) call: CallId,
    pub(super) tag: String,
    arguments: Value,
    shown_from: Timestamp,
}

/// How a request of which the caller hears fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolFault {
    /// It never left.
    NotSent,
    /// It is lost on the way, and so is the answer.
    LostBefore,
    /// It is done, and the answer is lost.
    LostAfter,
    /// The caller hears nothing, and it is done later, if nobody ends the server first.
    Late,
    /// The tool says that it failed, and did nothing.
    ErrorBefore,
    /// The tool says that it failed after it did it.
    ErrorAfter,
    /// The server ends with everything that it has in flight.
    ServerDied,
}

impl ToolFault {
    pub(super) const ALL: [Self; 7] = [
        Self::NotSent,
        Self::LostBefore,
        Self::LostAfter,
        Self::Late,
        Self::ErrorBefore,
        Self::ErrorAfter,
        Self::ServerDied,
    ];

    /// Whether requests to this tool fail so. Our own server says that it failed only when it did nothing.
    pub(super) fn is_of(self, tool: Tool) -> bool {
        self != Self::ErrorAfter || tool.server != "ua"
    }
}

/// A request in flight.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) life: usize,
    pub(super) tool: Tool,
    generation: String,
    call: CallId,
    tag: String,
    key: String,
    arguments: Value,
    /// The answer, once it was acted on.
    pub(super) acted: Option<Value>,
    /// Whether somebody waits for the answer.
    pub(super) is_waited_for: bool,
    /// Since when it counts as given up: its caller is gone, heard nothing, or was replaced.
    given_up_at: Option<Timestamp>,
}

impl Request {
    /// Whether it arrives after its caller gave it up, if it arrives.
    pub(super) fn is_late(&self) -> bool {
        self.given_up_at.is_some()
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    requests: BTreeMap<u64, Request>,
    answers: BTreeMap<u64, Outcome>,
    wakers: BTreeMap<u64, Waker>,
    /// Generations that run, and whose they are.
    generations: BTreeMap<String, (usize, &'static str)>,
    seen_keys: BTreeMap<String, Value>,
    effects: Vec<Effect>,
    /// The newest owner of the run that is known.
    owner: usize,
    /// Processes that were replaced between their last look at the epoch and the send; the fence is there for them.
    excused: BTreeSet<usize>,
    stale_sends: Vec<String>,
    /// How often an earlier server is found alive and cannot be ended.
    undead: usize,
    asks: usize,
}

/// The world, shared by all processes.
#[derive(Debug)]
pub(super) struct Servers {
    state: Mutex<State>,
    clock: Arc<StageClock>,
}

impl Servers {
    pub(super) fn new(clock: Arc<StageClock>, undead: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { undead, ..State::default() }), clock })
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        locked(&self.state).requests.values().cloned().collect()
    }

    pub(super) fn effects(&self) -> Vec<Effect> {
        locked(&self.state).effects.clone()
    }

    pub(super) fn stale_sends(&self) -> Vec<String> {
        locked(&self.state).stale_sends.clone()
    }

    /// A new owner has the run: from now on what earlier ones sent counts as given up, and `excused` may send once more.
    pub(super) fn replaced(&self, owner: usize, excused: BTreeSet<usize>) {
        let now = self.clock.now();
        let mut state = locked(&self.state);
        state.owner = owner;
        state.excused.extend(excused);
        for request in state.requests.values_mut().filter(|request| request.life != owner) {
            request.given_up_at.get_or_insert(now);
        }
    }

    /// The server acts on a request, in time or late.
    pub(super) fn act(&self, id: u64) {
        let now = self.clock.now();
        let mut state = locked(&self.state);
        let Some(request) = state.requests.get(&id).filter(|request| request.acted.is_none()).cloned() else { return };
        let tool = request.tool;
        let known = state.seen_keys.get(&request.key).filter(|_| tool.kind == Kind::Keyed).cloned();
        let answer = known.unwrap_or_else(|| {
            let number = state.effects.len() + 1;
            if tool.has_effect() || tool.kind == Kind::Replace {
                let shown_from = now.plus(Duration::from_secs(SETTLE_SECONDS));
                let Request { call, tag, arguments, .. } = request.clone();
                state.effects.push(Effect { tool, call, tag, arguments, shown_from });
            }
            json!({"id": format!("{}-{number}", tool.name)})
        });
        state.seen_keys.insert(request.key.clone(), answer.clone());
        if !request.is_waited_for {
            state.requests.remove(&id); // nobody hears of it
        } else if let Some(request) = state.requests.get_mut(&id) {
            request.acted = Some(answer);
        }
    }

    /// A keyed request arrives twice.
    pub(super) fn duplicate(&self, id: u64) {
        let mut state = locked(&self.state);
        let Some(mut copy) = state.requests.get(&id).cloned() else { return };
        state.next += 1;
        copy.id = state.next;
        (copy.is_waited_for, copy.given_up_at) = (false, Some(self.clock.now()));
        let id = copy.id;
        state.requests.insert(id, copy);
    }

    /// The answer of a request that was acted on arrives.
    pub(super) fn answer(&self, id: u64) {
        let mut state = locked(&self.state);
        let Some(request) = state.requests.remove(&id) else { return };
        let value = request.acted.unwrap_or(Value::Null);
        let content = json!([{"type": "text", "text": value.to_string()}]);
        let result = json!({"content": content, "structuredContent": value});
        reply(state, id, Outcome::Raw(RawReply::ToolResult { result }));
    }

    /// A request fails, and its caller hears of it, one way or another.
    pub(super) fn fail(&self, id: u64, fault: ToolFault) {
        if matches!(fault, ToolFault::LostAfter | ToolFault::ErrorAfter) {
            self.act(id);
        }
        let now = self.clock.now();
        let mut state = locked(&self.state);
        let Some(request) = state.requests.get_mut(&id) else { return };
        let lost = || Outcome::Lost { why: "no answer came".to_owned() };
        match fault {
            ToolFault::Late => {
                (request.is_waited_for, request.given_up_at) = (false, Some(now));
                reply(state, id, lost());
            }
            ToolFault::ServerDied => {
                let generation = request.generation.clone();
                if generation == REMOTE {
                    state.requests.remove(&id);
                    return reply(state, id, lost());
                }
                drop(state);
                self.end(|name, _| name == generation);
            }
            ToolFault::NotSent if request.acted.is_none() => {
                state.requests.remove(&id);
                reply(state, id, Outcome::NotSent { why: "connection refused".to_owned() });
            }
            ToolFault::NotSent | ToolFault::LostBefore | ToolFault::LostAfter => {
                state.requests.remove(&id);
                reply(state, id, lost());
            }
            ToolFault::ErrorBefore | ToolFault::ErrorAfter => {
                state.requests.remove(&id);
                let result = json!({"content": [{"type": "text", "text": "it timed out"}], "isError": true});
                reply(state, id, Outcome::Raw(RawReply::ToolResult { result }));
            }
        }
    }

    /// A request that was given up never arrives.
    pub(super) fn lose(&self, id: u64) {
        let mut state = locked(&self.state);
        if state.requests.remove(&id).is_some_and(|request| request.is_waited_for) {
            reply(state, id, Outcome::Lost { why: "no answer came".to_owned() });
        }
    }

    /// The remote requests that are begun now or never if the clock is moved to `to`, since their horizon ends by then.
    pub(super) fn expiring(&self, to: Timestamp) -> Vec<u64> {
        let state = locked(&self.state);
        let is_due = |request: &&Request| {
            let until = request.given_up_at.map(|at| at.plus(Duration::from_secs(HORIZON_SECONDS)));
            request.tool.is_remote && request.acted.is_none() && until.is_some_and(|until| until <= to)
        };
        state.requests.values().filter(is_due).map(|request| request.id).collect()
    }

    /// Ends generations; what they have not done they will never do, and who waits for them hears nothing.
    fn end(&self, is_meant: impl Fn(&str, usize) -> bool) {
        let mut state = locked(&self.state);
        let State { generations, requests, .. } = &mut *state;
        let ended: BTreeSet<String> = generations
            .iter()
            .filter(|(name, (life, _))| is_meant(name, *life))
            .map(|(name, _)| name.clone())
            .collect();
        generations.retain(|name, _| !ended.contains(name));
        let lost: Vec<u64> =
            requests.values().filter(|request| ended.contains(&request.generation)).map(|request| request.id).collect();
        for id in &lost {
            requests.remove(id);
        }
        let mut wakers = Vec::new();
        for id in lost {
            state.answers.insert(id, Outcome::Lost { why: "the tool server ended".to_owned() });
            wakers.extend(state.wakers.remove(&id));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Hands an outcome to whoever waits for it.
fn reply(mut state: std::sync::MutexGuard<'_, State>, id: u64, outcome: Outcome) {
    state.answers.insert(id, outcome);
    let waker = state.wakers.remove(&id);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The tool servers, as one process reaches them.
pub(super) struct Reach {
    pub(super) life: usize,
    pub(super) servers: Arc<Servers>,
}

/// The wait for an answer. Dropping it abandons the request.
struct Answer {
    id: u64,
    servers: Arc<Servers>,
}

impl Future for Answer {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = locked(&self.servers.state);
        if let Some(outcome) = state.answers.remove(&self.id) {
            return Poll::Ready(outcome);
        }
        state.wakers.insert(self.id, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let now = self.servers.clock.now();
        let mut state = locked(&self.servers.state);
        state.wakers.remove(&self.id);
        state.answers.remove(&self.id);
        let is_done = state.requests.get_mut(&self.id).is_some_and(|request| {
            request.is_waited_for = false;
            request.given_up_at.get_or_insert(now);
            request.acted.is_some()
        });
        if is_done {
            state.requests.remove(&self.id);
        }
    }
}

#[async_trait]
impl ToolTransport for Reach {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let spec = |tool: Tool| ToolSpec {
            name: tool.full_name(),
            description: format!("The {} of a simulation.", tool.name),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        Ok(TOOLS.into_iter().map(spec).collect())
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let known = TOOLS.into_iter().find(|tool| tool.server == server);
        let tool = known.ok_or_else(|| TransportError::UnknownServer { server: server.to_owned() })?;
        if tool.is_remote {
            return Ok(REMOTE.to_owned());
        }
        let mut state = locked(&self.servers.state);
        let running = state.generations.iter().find(|(_, (life, name))| *life == self.life && *name == tool.server);
        if let Some((generation, _)) = running {
            return Ok(generation.clone());
        }
        state.next += 1;
        let generation = format!("g{:05}", state.next);
        state.generations.insert(generation.clone(), (self.life, tool.server));
        Ok(generation)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let Some(tool) = Tool::named(&permit.name().tool) else {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "no such tool".to_owned() });
        };
        let id = {
            let mut state = locked(&self.servers.state);
            if !tool.is_remote && !state.generations.contains_key(permit.generation()) {
                return Outcome::NotSent { why: "its server is gone".to_owned() };
            }
            if self.life != state.owner && !state.excused.remove(&self.life) {
                let words = format!("life {} sent {} although life {} owns the run", self.life, tool.name, state.owner);
                state.stale_sends.push(words);
            }
            state.next += 1;
            let id = state.next;
            let request = Request {
                id,
                life: self.life,
                tool,
                generation: permit.generation().to_owned(),
                call: permit.call().call_id.clone(),
                tag: tag_of(&permit.call().tool_use_id).to_owned(),
                key: permit.key().as_str().to_owned(),
                arguments: Value::Object(permit.arguments()),
                acted: None,
                is_waited_for: true,
                given_up_at: None,
            };
            state.requests.insert(id, request);
            id
        };
        Answer { id, servers: Arc::clone(&self.servers) }.await
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        if enquiry.tool().tool != LISTING {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "no such tool".to_owned() });
        }
        let now = self.servers.clock.now();
        let mut state = locked(&self.servers.state);
        state.asks += 1;
        if state.asks % 5 == 2 {
            return Outcome::NotSent { why: "connection refused".to_owned() };
        }
        let shown = state.effects.iter().filter(|effect| effect.tool.kind == Kind::Shown && effect.shown_from <= now);
        let items: Vec<Value> = shown
            .enumerate()
            .map(|(index, effect)| json!({"id": format!("ticket-{index}"), "arguments": effect.arguments}))
            .collect();
        let answer: Map<String, Value> =
            [("items".to_owned(), items.into()), ("more".to_owned(), false.into())].into_iter().collect();
        let content = json!([{"type": "text", "text": Value::Object(answer.clone()).to_string()}]);
        Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "structuredContent": answer}) })
    }

    async fn fence_earlier(&self) -> Fence {
        {
            let mut state = locked(&self.servers.state);
            let others = state.generations.values().any(|(life, _)| *life != self.life);
            if others && state.undead > 0 {
                state.undead -= 1;
                return Fence::Alive { detail: "it does not die".to_owned() };
            }
        }
        let own = self.life;
        self.servers.end(|_, life| life != own);
        Fence::Gone
    }

    async fn fence(&self, server: &str, generation: &str) -> Fence {
        let is_remote = TOOLS.into_iter().any(|tool| tool.server == server && tool.is_remote);
        if is_remote {
            // Nothing can be ended there: what it has not begun by the horizon it never begins.
            self.servers.clock.sleep(Duration::from_secs(HORIZON_SECONDS + 1)).await;
        } else {
            self.servers.end(|name, _| name == generation);
        }
        Fence::Gone
    }
}
