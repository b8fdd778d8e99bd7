//! Tool servers and the world behind them. A request is in flight until the stage says what becomes of it; it outlives the process
//! that sent it, unless its server is ended.
//!
//! The world keeps its own account: every send with what came of it ([`Send`]), and every effect. The verdict believes nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use ua_core::{
    CallId, Destination, DestinationKey, Handle, Outcome, RawReply, RunId, Timestamp, ToolAnnotations, ToolName,
    ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, MayAct, Permit, ToolTransport, TransportError};
use ua_store::{AttemptRecord, CallRecord};

use super::clock::StageClock;
use super::gates::LifePlan;
use super::job::{HORIZON_SECONDS, Kind, LISTING, NOTHING_DONE, SETTLE_SECONDS, TOOLS, Tool, tag_of};
use super::locked;
use crate::outcomes::{Refusal, ToolOutcome};
use crate::unfinished::question;

/// The generation of every remote server.
const REMOTE: &str = "remote";

/// Whether a server is one that nobody here can end.
fn is_remote(server: &str) -> bool {
    TOOLS.into_iter().any(|tool| tool.server == server && tool.is_remote)
}

/// How long a busy tool is busy.
const BUSY: Duration = Duration::from_hours(1);

/// What became of a send, as its caller could know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet.
    InFlight,
    /// Its caller was answered.
    Answered,
    /// Its caller was told that it failed.
    Reported,
    /// The same, in words by which its policy knows that nothing was done.
    ReportedAsNothing,
    /// Its caller was told that nothing of it happened.
    Refused(Refusal),
    /// It never left.
    NeverLeft,
    /// Its caller heard nothing, or was gone.
    Lost,
}

/// One request that somebody sent, or tried to.
#[derive(Debug, Clone)]
pub(super) struct Send {
    pub(super) life: usize,
    pub(super) run: RunId,
    pub(super) call: CallId,
    /// The key that it was given.
    pub(super) key: String,
    pub(super) tool: Tool,
    /// The arguments as the model gave them.
    pub(super) words: Value,
    /// The step of the stage at which it was sent.
    pub(super) step: u64,
    /// What the wall clock said then.
    pub(super) at: Timestamp,
    pub(super) fate: Fate,
    /// How often it had its effect.
    pub(super) effects: u32,
    /// Its process stood still between its last look and this, for longer than any look is good for: nobody can help that.
    pub(super) was_held: bool,
    /// It hands over what its tool had asked for.
    pub(super) was_asked: bool,
}

/// One thing that happened outside.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) tool: Tool,
    pub(super) call: CallId,
    pub(super) tag: String,
    /// Which of the sends did it.
    pub(super) send: usize,
    /// The step of the stage at which it did.
    pub(super) step: u64,
    /// What the wall clock said then.
    pub(super) at: Timestamp,
    arguments: Value,
    shown_from: Timestamp,
}

/// A request in flight.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) life: usize,
    pub(super) tool: Tool,
    /// Its place in the account.
    pub(super) send: usize,
    run: RunId,
    generation: String,
    call: CallId,
    pub(super) tag: String,
    key: String,
    arguments: Value,
    /// The answer, once it was acted on.
    pub(super) acted: Option<Value>,
    /// Whether somebody waits for the answer.
    pub(super) is_waited_for: bool,
    /// The other side works on it in a task, whoever asks for it.
    pub(super) is_task: bool,
    /// It arrives twice, so that nobody can say that it did not.
    pub(super) is_doubled: bool,
    /// Its key came before, and was done.
    pub(super) is_known: bool,
    /// It is about an answer to what the tool asked.
    pub(super) was_asked: bool,
    /// The tool is busy until then.
    pub(super) not_before: Option<Timestamp>,
    /// Since when it counts as given up: its caller is gone, heard nothing, or was replaced.
    given_up_at: Option<Timestamp>,
}

impl Request {
    /// Whether it is one of this call.
    pub(super) fn is_of(&self, call: &CallId) -> bool {
        self.call == *call
    }

    /// Whether it arrives after its caller gave it up, if it arrives.
    pub(super) fn is_late(&self) -> bool {
        self.given_up_at.is_some()
    }

    /// Whether requests to this tool can come to this, as the request stands. What cannot be is said here, and nowhere else.
    pub(super) fn may_come_to(&self, outcome: ToolOutcome) -> bool {
        let is_own = self.tool.server == "ua";
        let is_untouched = self.acted.is_none() && !self.is_task && !self.is_doubled;
        match outcome {
            // The stage acts and answers by itself, without a fault.
            ToolOutcome::Answered => false,
            ToolOutcome::NeverLeft | ToolOutcome::LostBefore => is_untouched,
            ToolOutcome::Refused(refusal) => is_untouched && (self.tool.is_remote || !refusal.is_http()),
            ToolOutcome::LostAfter | ToolOutcome::Late | ToolOutcome::ServerDied => true,
            // Our own server answers a key that it knows with what it answered first.
            ToolOutcome::ReportedWithoutEffect => is_untouched && !(is_own && self.is_known),
            // Our own server says that it failed only when it did nothing.
            ToolOutcome::ReportedWithEffect => !is_own,
            // Twice is what keys are for; without one nobody could help it.
            ToolOutcome::AnsweredTwice => self.tool.kind == Kind::Keyed && is_untouched,
            ToolOutcome::BusyForLong => is_untouched && self.not_before.is_none(),
            // A task of a local server dies with its process, and is an ordinary call then.
            ToolOutcome::GoesOnInATask => {
                is_untouched && self.tool.is_remote && self.tool.has_effect() && !self.was_asked
            }
            ToolOutcome::AsksFirst => is_untouched && !is_own && self.tool.has_effect() && !self.was_asked,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    requests: BTreeMap<u64, Request>,
    answers: BTreeMap<u64, Outcome>,
    wakers: BTreeMap<u64, Waker>,
    /// Results of tasks, for whoever asks.
    results: BTreeMap<u64, Value>,
    /// Generations that run: whose, of which run, and of which server.
    generations: BTreeMap<String, (usize, RunId, &'static str)>,
    /// Generations that count as running and are not, with the time that they still take.
    still_to_start: BTreeMap<String, Duration>,
    /// What was answered under a key, and when it came first.
    seen_keys: BTreeMap<String, (Value, Timestamp)>,
    sends: Vec<Send>,
    effects: Vec<Effect>,
    /// How many of them were undone since.
    undone: usize,
    /// The newest owner of each run that is known.
    owners: BTreeMap<RunId, usize>,
    /// Processes that were replaced between their last look at the epoch and so many sends; the fence is there for them.
    excused: BTreeMap<(usize, RunId), usize>,
    stale_sends: Vec<String>,
    /// How often an earlier server is found alive and cannot be ended.
    undead: usize,
    asks: usize,
    step: u64,
}

/// The world, shared by all processes.
#[derive(Debug)]
pub(super) struct Servers {
    state: Mutex<State>,
    clock: Arc<StageClock>,
    /// Whether some take their time to start.
    some_are_slow: bool,
    /// Whether that time passes behind the last look at a call, and not before it.
    hides_starts: bool,
    /// Whether each process finds them set to another account.
    move_after_the_first_life: bool,
}

/// How long a slow one takes to start: long enough for much to be otherwise by then, a key that is forgotten for one.
const SLOW_START: Duration = Duration::from_mins(1);

impl Servers {
    pub(super) fn new(clock: Arc<StageClock>, undead: usize, some_are_slow: bool, hides_starts: bool) -> Arc<Self> {
        Arc::new(Self::set_up(clock, undead, some_are_slow, hides_starts))
    }

    /// The same, and each process behind the first one finds them set to another account, which knows no key of that one's. They move once: where
    /// they moved for ever, whoever says that a call is to be made would be asked about it for ever.
    pub(super) fn moving(clock: Arc<StageClock>, undead: usize, some_are_slow: bool, hides_starts: bool) -> Arc<Self> {
        Arc::new(Self { move_after_the_first_life: true, ..Self::set_up(clock, undead, some_are_slow, hides_starts) })
    }

    fn set_up(clock: Arc<StageClock>, undead: usize, some_are_slow: bool, hides_starts: bool) -> Self {
        let state = Mutex::new(State { undead, ..State::default() });
        Self { state, clock, some_are_slow, hides_starts, move_after_the_first_life: false }
    }

    /// What is left of a generation, as anybody on this machine sees it.
    fn may_act(&self, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        if generation != REMOTE {
            let is_there = locked(&self.state).generations.contains_key(generation);
            return if is_there { MayAct::Yes } else { MayAct::No };
        }
        let Some(ended_at) = ended_at else { return MayAct::Yes };
        let waited = ua_core::Clock::now(self.clock.as_ref()).since(ended_at);
        match Duration::from_secs(HORIZON_SECONDS + 1).saturating_sub(waited) {
            Duration::ZERO => MayAct::No,
            left => MayAct::For(left),
        }
    }

    /// What is left of what a call was sent to.
    pub(super) fn may_still_act(&self, call: &CallRecord, last: &AttemptRecord) -> MayAct {
        let of_any = || is_remote(&call.name.server).then(|| REMOTE.to_owned());
        match last.server_generation.clone().or_else(of_any) {
            Some(generation) => self.may_act(&generation, last.ended_at),
            None => MayAct::No,
        }
    }

    /// As whom a process sends.
    fn account_of(&self, life: usize) -> String {
        let is_another = self.move_after_the_first_life && life > 0;
        if is_another { "another" } else { "ours" }.to_owned()
    }

    /// Under what name the other side of a process knows a key.
    fn known_as(&self, life: usize, key: &str) -> String {
        format!("{key} of {}", self.account_of(life))
    }

    /// How long the next one takes to start, if it takes any time.
    fn start_time(&self) -> Option<Duration> {
        let is_slow = self.some_are_slow && locked(&self.state).next % 3 == 1;
        is_slow.then_some(SLOW_START)
    }

    /// The time that really passes.
    pub(super) fn clock(&self) -> Arc<StageClock> {
        Arc::clone(&self.clock)
    }

    /// How many earlier servers would still be found alive.
    pub(super) fn undead(&self) -> usize {
        locked(&self.state).undead
    }

    /// The stage has come to this step.
    pub(super) fn at_step(&self, step: u64) {
        locked(&self.state).step = step;
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        locked(&self.state).requests.values().cloned().collect()
    }

    pub(super) fn effects(&self) -> Vec<Effect> {
        locked(&self.state).effects.clone()
    }

    /// What a call did is not there any more. Who did it knows its key all the same.
    pub(super) fn undo(&self, call: &CallId) {
        let mut state = locked(&self.state);
        let before = state.effects.len();
        state.effects.retain(|effect| effect.call != *call);
        state.undone += before - state.effects.len();
    }

    pub(super) fn sends(&self) -> Vec<Send> {
        locked(&self.state).sends.clone()
    }

    /// What is outside, in words, without times: every send, every request in flight and every key that was seen.
    pub(super) fn account(&self) -> String {
        let state = locked(&self.state);
        let sends = state.sends.iter().map(|send| format!("{} {:?} {}\n", send.call, send.fate, send.effects));
        let flying = state.requests.values().map(|request| {
            let Request { call, acted, is_waited_for, is_doubled, is_known, .. } = request;
            format!("{call} {acted:?} {is_waited_for} {is_doubled} {is_known} {}\n", request.is_late())
        });
        let keys = state.seen_keys.keys().map(|key| format!("{key}\n"));
        sends.chain(flying).chain(keys).collect()
    }

    pub(super) fn stale_sends(&self) -> Vec<String> {
        locked(&self.state).stale_sends.clone()
    }

    /// Whether an earlier send of the same call came to nothing that its caller knows.
    pub(super) fn is_repeated(&self, request: &Request) -> bool {
        let state = locked(&self.state);
        state.sends[..request.send].iter().any(|send| send.call == request.call && send.fate == Fate::Lost)
    }

    /// When the first busy tool is free.
    pub(super) fn next_free(&self) -> Option<Timestamp> {
        let now = self.clock.passed();
        let state = locked(&self.state);
        state.requests.values().filter_map(|request| request.not_before).filter(|at| *at > now).min()
    }

    /// A new owner has a run: from now on what earlier ones sent for it counts as given up, and `excused` may send so often once more.
    pub(super) fn replaced(&self, run: &RunId, owner: usize, excused: BTreeMap<usize, usize>) {
        let now = self.clock.passed();
        let mut state = locked(&self.state);
        state.owners.insert(run.clone(), owner);
        state.excused.extend(excused.into_iter().map(|(life, sends)| ((life, run.clone()), sends)));
        let of_others = |request: &&mut Request| request.run == *run && request.life != owner && !request.is_task;
        for request in state.requests.values_mut().filter(of_others) {
            request.given_up_at.get_or_insert(now);
        }
    }

    /// The server acts on a request, in time or late.
    pub(super) fn act(&self, id: u64) {
        let now = self.clock.passed();
        let mut state = locked(&self.state);
        let Some(request) = state.requests.get(&id).filter(|request| request.acted.is_none()).cloned() else { return };
        let tool = request.tool;
        let knows = |(_, since): &&(Value, Timestamp)| {
            tool.kind == Kind::Keyed && tool.key_ttl().is_none_or(|ttl| now < since.plus(ttl))
        };
        let known_as = self.known_as(request.life, &request.key);
        let known = state.seen_keys.get(&known_as).filter(knows).map(|(answer, _)| answer.clone());
        let answer = known.unwrap_or_else(|| {
            let number = state.effects.len() + state.undone + 1;
            if tool.has_effect() || tool.kind == Kind::Replace {
                let shown_from = now.plus(Duration::from_secs(SETTLE_SECONDS));
                let Request { call, tag, arguments, send, .. } = request.clone();
                let at = ua_core::Clock::now(self.clock.as_ref());
                state.sends[send].effects += 1;
                let step = state.step;
                state.effects.push(Effect { tool, call, tag, send, step, at, arguments, shown_from });
            }
            let answer = json!({"id": format!("{}-{number}", tool.name)});
            state.seen_keys.insert(known_as, (answer.clone(), now));
            answer
        });
        if request.is_task {
            state.requests.remove(&id);
            state.results.insert(id, answer);
        } else if !request.is_waited_for {
            state.requests.remove(&id); // nobody hears of it
        } else if let Some(request) = state.requests.get_mut(&id) {
            request.acted = Some(answer);
        }
    }

    /// The answer of a request that was acted on arrives.
    pub(super) fn answer(&self, id: u64) {
        let mut state = locked(&self.state);
        let Some(request) = state.requests.remove(&id) else { return };
        state.sends[request.send].fate = Fate::Answered;
        let value = request.acted.unwrap_or(Value::Null);
        reply(state, id, answered(&value));
    }

    /// A request comes to something, and its caller hears of it, one way or another.
    pub(super) fn come_to(&self, id: u64, outcome: ToolOutcome) {
        if matches!(outcome, ToolOutcome::LostAfter | ToolOutcome::ReportedWithEffect) {
            self.act(id);
        }
        let now = self.clock.passed();
        let mut state = locked(&self.state);
        let Some(request) = state.requests.get_mut(&id) else { return };
        let send = request.send;
        let lost = || Outcome::Lost { why: "no answer came".to_owned() };
        let (fate, told) = match outcome {
            ToolOutcome::Answered => {
                drop(state);
                self.act(id);
                return self.answer(id);
            }
            ToolOutcome::Late => {
                (request.is_waited_for, request.given_up_at) = (false, Some(now));
                state.sends[send].fate = Fate::Lost;
                return reply(state, id, lost());
            }
            ToolOutcome::ServerDied => {
                let generation = request.generation.clone();
                if generation != REMOTE {
                    drop(state);
                    return self.end(|name, _, _| name == generation);
                }
                (Fate::Lost, lost())
            }
            ToolOutcome::AnsweredTwice => {
                request.is_doubled = true;
                let mut copy = request.clone();
                state.next += 1;
                copy.id = state.next;
                (copy.is_waited_for, copy.given_up_at) = (false, Some(now));
                let id = copy.id;
                state.requests.insert(id, copy);
                return;
            }
            ToolOutcome::BusyForLong => {
                request.not_before = Some(now.plus(BUSY));
                return;
            }
            ToolOutcome::GoesOnInATask => {
                (request.is_waited_for, request.is_task) = (false, true);
                let handle =
                    Handle { task: Some(format!("task-{id}")), place: json!({"poll_ms": 1000}), ..Handle::default() };
                return reply(state, id, Outcome::Continues(Box::new(handle)));
            }
            ToolOutcome::AsksFirst => (Fate::InFlight, Outcome::Continues(Box::new(question(&request.key)))),
            ToolOutcome::NeverLeft => (Fate::NeverLeft, Outcome::NotSent { why: "connection refused".to_owned() }),
            ToolOutcome::Refused(refusal) => (Fate::Refused(refusal), Outcome::Raw(refusal.reply())),
            ToolOutcome::LostBefore | ToolOutcome::LostAfter => (Fate::Lost, lost()),
            ToolOutcome::ReportedWithoutEffect if request.tool.says_when_nothing_happened() => {
                (Fate::ReportedAsNothing, reported(NOTHING_DONE))
            }
            ToolOutcome::ReportedWithoutEffect | ToolOutcome::ReportedWithEffect => {
                (Fate::Reported, reported("it timed out"))
            }
        };
        state.requests.remove(&id);
        state.sends[send].fate = fate;
        reply(state, id, told);
    }

    /// A request that was given up never arrives.
    pub(super) fn lose(&self, id: u64) {
        let mut state = locked(&self.state);
        if let Some(request) = state.requests.remove(&id)
            && request.is_waited_for
        {
            state.sends[request.send].fate = Fate::Lost;
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
    pub(super) fn end(&self, is_meant: impl Fn(&str, usize, &RunId) -> bool) {
        let mut state = locked(&self.state);
        let State { generations, requests, sends, .. } = &mut *state;
        let ended: BTreeSet<String> = generations
            .iter()
            .filter(|(name, (life, run, _))| is_meant(name, *life, run))
            .map(|(name, _)| name.clone())
            .collect();
        generations.retain(|name, _| !ended.contains(name));
        let lost: Vec<u64> =
            requests.values().filter(|request| ended.contains(&request.generation)).map(|request| request.id).collect();
        for id in &lost {
            if let Some(request) = requests.remove(id) {
                sends[request.send].fate = Fate::Lost;
            }
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

fn answered(value: &Value) -> Outcome {
    let content = json!([{"type": "text", "text": value.to_string()}]);
    Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "structuredContent": value}) })
}

fn reported(words: &str) -> Outcome {
    let result = json!({"content": [{"type": "text", "text": words}], "isError": true});
    Outcome::Raw(RawReply::ToolResult { result })
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

/// The tool servers, as one process reaches them for one run.
pub(super) struct Reach {
    pub(super) life: usize,
    pub(super) run: RunId,
    pub(super) servers: Arc<Servers>,
    pub(super) plan: Arc<LifePlan>,
}

impl Reach {
    /// Puts a request on its way, or says why it could not leave.
    fn send(&self, permit: &Permit, generation: &str, was_asked: bool) -> Result<u64, Outcome> {
        let Some(tool) = Tool::named(&permit.name().tool) else {
            return Err(Outcome::Raw(Refusal::NoSuchMethod.reply()));
        };
        let mut state = locked(&self.servers.state);
        let has_server = tool.is_remote || state.generations.contains_key(generation);
        let call = permit.call();
        let tag = tag_of(&call.tool_use_id).to_owned();
        let step = state.step;
        state.sends.push(Send {
            life: self.life,
            run: call.run_id.clone(),
            call: call.call_id.clone(),
            key: permit.key().as_str().to_owned(),
            tool,
            words: call.arguments.clone().unshared(),
            step,
            at: ua_core::Clock::now(self.servers.clock.as_ref()),
            fate: if has_server { Fate::InFlight } else { Fate::NeverLeft },
            effects: 0,
            was_held: self.plan.held() > Duration::from_secs(1),
            was_asked,
        });
        let send = state.sends.len() - 1;
        if !has_server {
            return Err(Outcome::NotSent { why: "its server is gone".to_owned() });
        }
        let owner = state.owners.get(&self.run).copied().unwrap_or(self.life);
        let mut excuse = || {
            let sends = state.excused.get_mut(&(self.life, self.run.clone())).filter(|sends| **sends > 0);
            sends.map(|sends| *sends -= 1).is_some()
        };
        if self.life != owner && !excuse() {
            let words = format!("life {} sent {} although life {owner} owns the run", self.life, tool.name);
            state.stale_sends.push(words);
        }
        state.next += 1;
        let id = state.next;
        let is_known = state.seen_keys.contains_key(&self.servers.known_as(self.life, permit.key().as_str()));
        let request = Request {
            id,
            life: self.life,
            tool,
            send,
            run: self.run.clone(),
            generation: if tool.is_remote { REMOTE.to_owned() } else { generation.to_owned() },
            call: call.call_id.clone(),
            tag,
            key: permit.key().as_str().to_owned(),
            arguments: Value::Object(permit.arguments()),
            acted: None,
            is_waited_for: true,
            is_task: false,
            is_doubled: false,
            is_known,
            was_asked,
            not_before: None,
            given_up_at: None,
        };
        state.requests.insert(id, request);
        Ok(id)
    }

    fn wait(&self, id: u64) -> Answer {
        Answer { id, servers: Arc::clone(&self.servers) }
    }
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
        let now = self.servers.clock.passed();
        let mut state = locked(&self.servers.state);
        state.wakers.remove(&self.id);
        state.answers.remove(&self.id);
        let State { requests, sends, .. } = &mut *state;
        let Some(request) = requests.get_mut(&self.id).filter(|request| !request.is_task) else { return };
        sends[request.send].fate = Fate::Lost;
        request.is_waited_for = false;
        request.given_up_at.get_or_insert(now);
        if request.acted.is_some() {
            requests.remove(&self.id);
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

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        None
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let known = TOOLS.into_iter().find(|tool| tool.server == server);
        let tool = known.ok_or_else(|| TransportError::UnknownServer { server: server.to_owned() })?;
        if tool.is_remote {
            return Ok(REMOTE.to_owned());
        }
        if let Some(running) = self.running(server) {
            return Ok(running);
        }
        let start_time = self.servers.start_time();
        if let Some(time) = start_time.filter(|_| !self.servers.hides_starts) {
            ua_core::Clock::sleep(self.servers.clock.as_ref(), time).await;
            if let Some(running) = self.running(server) {
                return Ok(running);
            }
        }
        let mut state = locked(&self.servers.state);
        state.next += 1;
        let generation = format!("g{:05}", state.next);
        state.generations.insert(generation.clone(), (self.life, self.run.clone(), tool.server));
        state
            .still_to_start
            .extend(start_time.filter(|_| self.servers.hides_starts).map(|time| (generation.clone(), time)));
        Ok(generation)
    }

    fn destination(&self, _tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        let parts = BTreeMap::from([("account".to_owned(), json!(self.servers.account_of(self.life)))]);
        Ok(Some(DestinationKey::new("a simulation").destination(&parts)))
    }

    fn running(&self, server: &str) -> Option<String> {
        let tool = TOOLS.into_iter().find(|tool| tool.server == server)?;
        if tool.is_remote {
            return Some(REMOTE.to_owned());
        }
        let state = locked(&self.servers.state);
        let is_own =
            |(life, run, name): &(usize, RunId, &str)| *life == self.life && *run == self.run && *name == tool.server;
        state.generations.iter().find(|(_, of)| is_own(of)).map(|(generation, _)| generation.clone())
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let still_to_start = locked(&self.servers.state).still_to_start.remove(permit.generation());
        if let Some(time) = still_to_start {
            ua_core::Clock::sleep(self.servers.clock.as_ref(), time).await;
        }
        match self.send(permit, permit.generation(), false) {
            Ok(id) => self.wait(id).await,
            Err(outcome) => outcome,
        }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        if let Some(id) = handle.task.as_deref().and_then(|task| task.strip_prefix("task-")?.parse::<u64>().ok()) {
            let mut state = locked(&self.servers.state);
            if let Some(result) = state.results.get(&id).cloned() {
                if let Some(send) = state.sends.iter_mut().rev().find(|send| send.call == permit.call().call_id) {
                    send.fate = Fate::Answered;
                }
                return Ok(answered(&result));
            }
            let is_there = state.requests.contains_key(&id);
            let lost = || Outcome::Lost { why: "no task is called so".to_owned() };
            return Ok(if is_there { Outcome::Continues(Box::new(handle.clone())) } else { lost() });
        }
        let input = handle.input.clone().unwrap_or_default();
        if input.answers["size"]["action"] != "accept" {
            if let Some(send) =
                locked(&self.servers.state).sends.iter_mut().rev().find(|send| send.call == permit.call().call_id)
            {
                send.fate = Fate::Reported;
            }
            return Ok(reported("nobody said which size"));
        }
        let generation = self.ready(&permit.name().server).await?;
        Ok(match self.send(permit, &generation, true) {
            Ok(id) => self.wait(id).await,
            Err(outcome) => outcome,
        })
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        if enquiry.tool().tool != LISTING {
            return Outcome::Raw(Refusal::NoSuchMethod.reply());
        }
        let now = self.servers.clock.passed();
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
        answered(&Value::Object(answer))
    }

    fn may_act(&self, _server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.servers.may_act(generation, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        is_remote(server).then(|| REMOTE.to_owned())
    }

    async fn fence_earlier(&self) -> Fence {
        let is_earlier = |life: usize, run: &RunId| life != self.life && *run == self.run;
        {
            let mut state = locked(&self.servers.state);
            let others = state.generations.values().any(|(life, run, _)| is_earlier(*life, run));
            if others && state.undead > 0 {
                state.undead -= 1;
                return Fence::Alive { detail: "it does not die".to_owned() };
            }
        }
        self.servers.end(|_, life, run| is_earlier(life, run));
        Fence::Gone
    }

    async fn fence(&self, server: &str, generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        if is_remote(server) {
            // Nothing can be ended there: what it has not begun by the horizon it never begins.
            ua_core::Clock::sleep(self.servers.clock.as_ref(), Duration::from_secs(HORIZON_SECONDS + 1)).await;
        } else {
            self.servers.end(|name, _, _| name == generation);
        }
        Fence::Gone
    }
}
