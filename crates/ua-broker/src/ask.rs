//! One request for a tool, in order: whose it is, which call it is, and its answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use ua_core::{
    Block, CallId, CallStatus, ModelTurn, PlannedCall, Position, PossibleEffect, RawReply, Resolution, SideEffectClass,
    StopReason, ToolUse,
};
use ua_store::{
    ArrivalRecord, ArrivalsOf, CallRecord, Change, GatewayStore as _, LedgerStore as _, NewArrival, QuestionKind,
    SessionsOf, rules, whole_reply,
};

use crate::broker::Broken;
use crate::connection::Connection;
use crate::live::{LiveCall, State, Waiting};
use crate::road::{Road, passed_on};
use crate::rules::{Asked, Live, Rule, Ruling, Seen, SeenArrival, decide};
use crate::session::{InUse, client_call};
use crate::texts::{Notice, Told, with_notice};

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    /// The result of the call.
    Result {
        /// As the client gets it.
        result: Value,
        /// Whether it is the call's own, so that whoever has it has its answer.
        is_final: bool,
    },
    /// The tool server refused it.
    Error { code: i64, message: String },
}

/// A request that was told apart.
enum Known {
    /// Its call is under way.
    Waits(Waiting, Box<CallRecord>, Rule),
    /// Its call is over.
    Over(CallId, Rule),
    /// It was refused.
    Refused(CallId, String),
}

impl Connection {
    /// Answers a request for a tool; `None` when the client wants no answer any more.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        arrival: &str,
        params: &Value,
        session: &InUse,
        cancel: &CancellationToken,
    ) -> Result<Option<Reply>, Broken> {
        let road = self.road(session).await?;
        let known = self.tell_apart(arrival, params, session, &road).await?;
        let ua = &self.broker.config.person;
        let told =
            |told: Told, call: &CallId| Reply::Result { result: told.as_result(Some(call), ua), is_final: false };
        match known {
            Known::Refused(call, why) => Ok(Some(told(Told::NotSent { why }, &call))),
            Known::Over(call, rule) => self.answer_of(&call, rule).await.map(Some),
            Known::Waits(waiting, call, rule) => {
                let id = call.call_id.clone();
                match self.wait(waiting, &call, cancel).await {
                    Waited::Over(None) => self.answer_of(&id, rule).await.map(Some),
                    Waited::Over(Some(why)) | Waited::Told(why) => Ok(Some(told(why, &id))),
                    Waited::Cancelled => Ok(None),
                }
            }
        }
    }

    /// Which call it is. In a project this is decided for one request after the other, and stored before the next is looked at.
    async fn tell_apart(
        self: &Arc<Self>,
        arrival: &str,
        params: &Value,
        session: &InUse,
        road: &Arc<Road>,
    ) -> Result<Known, Broken> {
        let planned = self.plan(arrival, params, road)?;
        let client = client_call(&params["_meta"]);
        let asked = Asked {
            arrival,
            client_call: client.as_deref(),
            class: planned.policy.class,
            is_declared: planned.policy.is_by_content(),
            at: self.broker.env.now(),
        };
        let project = self.broker.project(&self.project);
        let _one = project.lock().await;
        self.broker.flush(&self.project).await?;
        let seen = self.seen(&asked, &planned, session).await?;
        let noted = |call: CallId, rule: Rule, planned: Option<PlannedCall>| NewArrival {
            arrival: ArrivalRecord {
                arrival_id: arrival.to_owned(),
                run_id: session.run.run_id.clone(),
                call_id: call,
                client_call: client.clone(),
                rule: rule.as_str().to_owned(),
                project: self.project.clone(),
                tool: self.raw_name(params),
                args_hash: seen.args_hash,
                arrived_at: asked.at,
                answered_at: None,
                acknowledged_at: None,
            },
            call: planned.map(Box::new),
            step: session.step.clone(),
        };
        // The same request is noted once.
        let note = async |call: &CallId, rule: Rule| {
            let is_noted = seen.calls.iter().any(|seen| seen.arrivals.iter().any(|one| one.arrival == arrival));
            if is_noted { Ok(()) } else { session.write(Change::Arrive(noted(call.clone(), rule, None))).await }
        };
        match decide(&asked, &seen.calls) {
            Ruling::New => {
                let position = Position { turn: session.next_place(), ordinal: 1 };
                let planned = PlannedCall { position, ..planned };
                let new = noted(planned.call_id.clone(), Rule::New, Some(planned.clone()));
                // It leaves with the start of the call, in one write, and nobody decides about the project without it.
                session.outbox.hold("note what a client asks for", Change::Arrive(new)).await;
                let record = rules::calls_planned(&session.run, &session.step, vec![planned], asked.at).pop();
                let record = record.ok_or_else(|| Broken::new("the call was not planned"))?;
                if record.status == CallStatus::Cancelled {
                    self.broker.flush(&self.project).await?;
                    return Ok(Known::Refused(record.call_id, record.error_detail.unwrap_or_default()));
                }
                road.upstream.put_meta(&record.call_id, passed_on(&params["_meta"]));
                Ok(Known::Waits(self.begin(session.again(), road.clone(), &record, true), Box::new(record), Rule::New))
            }
            Ruling::Join(call, rule) => {
                note(&call, rule).await?;
                let live = self.broker.live().get(&call).cloned();
                let record = self.broker.store.call(&call).await.map_err(Broken::at("read the call"))?;
                // It may have ended just now.
                Ok(live.map_or(Known::Over(call, rule), |live| Known::Waits(live.ask(), Box::new(record), rule)))
            }
            Ruling::Decide(call, rule) => {
                let record = self.broker.store.call(&call).await.map_err(Broken::at("read the call"))?;
                let owner = self.broker.session_of(&record.run_id).await?;
                let road = self.road(&owner).await?;
                note(&call, rule).await?;
                road.upstream.put_meta(&call, passed_on(&params["_meta"]));
                Ok(Known::Waits(self.begin(owner, road, &record, false), Box::new(record), rule))
            }
            Ruling::HandOut(call, rule) => {
                note(&call, rule).await?;
                Ok(Known::Over(call, rule))
            }
        }
    }

    /// Nothing is waited for in here: a client that goes away at any moment leaves either nothing or a call that is under way.
    fn begin(self: &Arc<Self>, session: InUse, road: Arc<Road>, call: &CallRecord, is_new: bool) -> Waiting {
        let live = LiveCall::new(call.call_id.clone(), self.broker.env.now());
        let waiting = live.ask();
        self.broker.live().insert(call.call_id.clone(), live.clone());
        tokio::spawn(self.broker.clone().take_to_receipt(session, road, call.clone(), is_new, live));
        waiting
    }

    fn raw_name(&self, params: &Value) -> String {
        format!("mcp__{}__{}", self.hello.name, params["name"].as_str().unwrap_or_default())
    }

    fn plan(&self, arrival: &str, params: &Value, road: &Road) -> Result<PlannedCall, Broken> {
        let input =
            params.get("arguments").filter(|arguments| !arguments.is_null()).cloned().unwrap_or_else(|| json!({}));
        let tool_use = ToolUse { id: arrival.to_owned(), name: self.raw_name(params), input };
        let reply = ModelTurn {
            blocks: vec![Block::ToolUse(tool_use)],
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: self.client(),
            response_id: None,
        };
        let mut planned = road.dispatcher.plan(&reply, 1);
        match (planned.pop(), planned.is_empty()) {
            (Some(only), true) => Ok(only),
            (_, _) => Err(Broken::new(
                "calls that are made of several actions do not pass the gateway yet; make them one by one",
            )),
        }
    }

    /// The calls of the project that this may be.
    async fn seen(&self, asked: &Asked<'_>, planned: &PlannedCall, session: &InUse) -> Result<SeenCalls, Broken> {
        let store = &self.broker.store;
        let read = Broken::at("look for the same call");
        let one = store.arrivals_of(ArrivalsOf::One(asked.arrival.to_owned())).await.map_err(read)?;
        let mut arrivals = one;
        if asked.class != SideEffectClass::ReadOnly {
            let same = ArrivalsOf::Same {
                project: self.project.clone(),
                tool: planned.name.raw.clone(),
                args_hash: planned.args_hash,
            };
            arrivals.extend(store.arrivals_of(same).await.map_err(Broken::at("look for the same call"))?);
        }
        let mut ids: Vec<CallId> = arrivals.iter().map(|arrival| arrival.call_id.clone()).collect();
        ids.sort();
        ids.dedup();
        let newest = if ids.is_empty() {
            None
        } else {
            let newest = ArrivalsOf::NewestEffectOf(session.run.run_id.clone());
            store.arrivals_of(newest).await.map_err(Broken::at("look for the newest call"))?.pop()
        };
        let mut calls = Vec::new();
        for id in ids {
            let call = store.call(&id).await.map_err(Broken::at("read a call"))?;
            let of = store.sessions_of(SessionsOf::Run(call.run_id.clone())).await;
            let of = of.map_err(Broken::at("read a session"))?.pop();
            let mut of_call =
                store.arrivals_of(ArrivalsOf::Call(id.clone())).await.map_err(Broken::at("read arrivals"))?;
            of_call.sort_by_key(|arrival| arrival.arrived_at);
            let live = self.broker.live().get(&id).cloned();
            calls.push(Seen {
                asked_at: call.created_at,
                is_family: call.root_run_id == session.run.root_run_id,
                is_same_server: of.is_some_and(|session| session.reach == self.reach),
                is_newest_effect: newest.as_ref().is_some_and(|newest| newest.call_id == id),
                status: call.status,
                is_given_up: call.resolution == Some(Resolution::Skipped),
                may_have_happened: call.possible_effect == Some(PossibleEffect::Maybe),
                is_held: live.as_ref().is_some_and(|live| live.is_held()),
                live: live.map_or(Live::No, |live| if live.is_awaited() { Live::Awaited } else { Live::Left }),
                arrivals: of_call
                    .into_iter()
                    .map(|arrival| SeenArrival {
                        is_acknowledged: arrival.acknowledged_at.is_some(),
                        arrival: arrival.arrival_id,
                        client_call: arrival.client_call,
                    })
                    .collect(),
                call: id,
            });
        }
        Ok(SeenCalls { calls, args_hash: planned.args_hash })
    }

    /// Waits for a call, as long as the client does and a person may take.
    async fn wait(&self, waiting: Waiting, call: &CallRecord, cancel: &CancellationToken) -> Waited {
        let (env, patience) = (&self.broker.env, self.patience());
        let hold_wait =
            patience.map_or(self.broker.config.hold_wait, |patience| patience.min(self.broker.config.hold_wait));
        let mut state = waiting.0.state.subscribe();
        let early = sleep_or_never(patience, env);
        let mut early = std::pin::pin!(early);
        let mut held = std::pin::pin!(sleep_or_never(None, env));
        let mut asked = None;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                State::Over(told) => return Waited::Over(told),
                State::Held(question) if asked.is_none() => {
                    asked = Some(question);
                    held.set(sleep_or_never(Some(hold_wait), env));
                }
                State::Held(_) => {}
                State::UnderWay => asked = None,
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Waited::Cancelled,
                changed = state.changed() => if changed.is_err() {
                    return Waited::Over(None);
                },
                () = &mut held, if asked.is_some() => break,
                () = &mut early => break,
            }
        }
        let Some(question) = asked else { return Waited::Told(Told::Running { since: waiting.0.since }) };
        drop(waiting);
        if question.kind != QuestionKind::UnknownOutcome {
            return Waited::Told(Told::Held { question: question.question_id, kind: question.kind });
        }
        let call = self.broker.store.call(&call.call_id).await.unwrap_or_else(|_| call.clone());
        Waited::Told(Told::Unknown {
            since: Some(call.created_at),
            why: call.error_detail.unwrap_or_else(|| "its answer was lost".to_owned()),
            question: Some(question.question_id),
        })
    }

    /// The answer of a call that is over.
    async fn answer_of(&self, id: &CallId, rule: Rule) -> Result<Reply, Broken> {
        let store = self.broker.store.as_ref();
        let call = store.call(id).await.map_err(Broken::at("read the call"))?;
        let ua = &self.broker.config.person;
        let told = |told: Told, is_final| Ok(Reply::Result { result: told.as_result(Some(id), ua), is_final });
        let why = || call.error_detail.clone().unwrap_or_else(|| "it was not sent".to_owned());
        match call.status {
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::FailedDefinite => {}
            CallStatus::Cancelled => return told(Told::NotSent { why: why() }, true),
            CallStatus::Unknown => {
                let why = call.error_detail.clone().unwrap_or_else(|| "its answer was lost".to_owned());
                return told(Told::Unknown { since: Some(call.created_at), why, question: None }, false);
            }
            CallStatus::Prepared | CallStatus::Running => {
                return told(Told::Broken { why: "the call is not over".to_owned() }, false);
            }
        }
        let source = call.deduplicated_from.as_ref().unwrap_or(id);
        let receipt = store.receipt(source).await.map_err(Broken::at("read the receipt"))?;
        let Some(receipt) =
            receipt.filter(|receipt| call.deduplicated_from.is_some() || receipt.attempt == call.attempt)
        else {
            return told(Told::NotSent { why: format!("Not done: {}", why()) }, true);
        };
        let notice = match rule {
            Rule::Owed => Some(Notice::Late),
            Rule::Repeat => Some(Notice::Duplicate),
            Rule::Exact | Rule::Unsettled | Rule::Twin | Rule::New => {
                call.deduplicated_from.as_ref().map(|_| Notice::Duplicate)
            }
        };
        match whole_reply(store, &receipt).await.map_err(Broken::at("read the receipt"))? {
            RawReply::ToolResult { result } => {
                let result = match notice {
                    Some(notice) => with_notice(result, notice, id, receipt.received_at),
                    None => result,
                };
                // Nobody is owed a read: whoever asks for it again has it made again.
                Ok(Reply::Result { result, is_final: call.policy.class.has_effect() })
            }
            RawReply::RpcError { code, message } => Ok(Reply::Error { code, message }),
            RawReply::HttpStatus { status, body } => {
                told(Told::NotSent { why: format!("HTTP {status}: {body}") }, true)
            }
            RawReply::Statement { by, proof } => told(Told::Happened { by, proof }, true),
            RawReply::Found { tool, id, .. } => told(Told::Happened { by: format!("`{tool}`"), proof: id }, true),
        }
    }
}

/// Calls of the project with a tool and arguments.
struct SeenCalls {
    calls: Vec<Seen>,
    args_hash: ua_core::ArgsHash,
}

/// How waiting ended.
enum Waited {
    /// The call is over.
    Over(Option<Told>),
    /// It is not, and the client is told so in time.
    Told(Told),
    /// The client wants no answer.
    Cancelled,
}

async fn sleep_or_never(span: Option<Duration>, env: &ua_core::Env) {
    match span {
        Some(span) => env.clock.sleep(span).await,
        None => std::future::pending().await,
    }
}
