//! One request for a tool, in order: whose it is, which call it is, and its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ua_core::{
    CallId, CallPolicy, CallStatus, PlannedCall, Position, PossibleEffect, RawReply, Resolution, RunId,
    SideEffectClass, Timestamp,
};
use ua_store::{
    ArrivalRecord, ArrivalsOf, CallRecord, Change, Choice, Correction, GatewayStore as _, LedgerStore as _, NewArrival,
    QuestionKind, QuestionRecord, QuestionsOf, SameCall, SessionRecord, SessionsOf, StoreError, rules, whole_reply,
};

use crate::again::is_open;
use crate::broker::{Broken, Unanswerable, Way};
use crate::client::Wanted;
use crate::connection::Connection;
use crate::given::{FromClient, Given};
use crate::live::{Ended, LiveCall, Reached, Sent, State, Waiting};
use crate::open_requests::Asker;
use crate::posted::{Arrived, Came};
use crate::queue::Place;
use crate::road::Road;
use crate::rules::{Asked, Asks, Earlier, Live, Rule, Ruling, Seen, SeenArrival, decide, is_left_behind};
use crate::session::{InUse, client_call, clients_key, earlier, own_call};
use crate::sync::lock;
use crate::texts::{Delivered, Notice, OnceMore, Told, error_with_words, with_notice, with_words};

/// How long a call waits for its turn behind another one before its client is told what it waits for, however long that would wait; half of
/// its patience, if that is less.
const QUEUE_PATIENCE: Duration = Duration::from_secs(30);

/// What a client is told that brings along what it was not given.
const STALE: &str =
    "`requestState` is none that was given to this client for this call; make the call again without it";

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
    /// Something in the place of a result.
    Told {
        /// What.
        told: Told,
        /// Of which call.
        call: Option<CallId>,
        /// What a person said beside it.
        words: Option<String>,
        /// As of a result.
        is_final: bool,
    },
    /// The tool server refused it.
    Error { code: i64, message: String, data: Value },
    /// It is none that is taken up, and stands nowhere.
    Refused { code: i64, message: String },
    /// The client is to come back with something.
    Wanted(Wanted),
}

impl Reply {
    fn told(told: Told, call: Option<&CallId>, is_final: bool) -> Self {
        Self::Told { told, call: call.cloned(), words: None, is_final }
    }
}

/// What came of a request for a tool.
pub(crate) struct Answered {
    /// The name under which it is stored; `None` where it is not.
    pub(crate) request: Option<String>,
    /// Its answer; `None` when the client wants none any more.
    pub(crate) reply: Option<Reply>,
}

/// A request that was told apart: which one it is, where it is one that is stored, and what is known of it.
pub(crate) type ToldApart = (Option<Arrived>, Known);

/// What is known of a request.
pub(crate) enum Known {
    /// Its call is under way. What this request gives it is kept for the case that nobody waits for a while and it has to be begun anew.
    Waits(Waiting, Box<CallRecord>, Rule, Option<Given>),
    /// Its call is over.
    Over(CallId, Rule),
    /// Its call is over, and its answer is in hand, but not stored yet; why it is not even beside the database, if it is not.
    Kept(Box<CallRecord>, RawReply, Option<String>),
    /// It was refused.
    Refused(CallId, String),
    /// It is in doubt, and nobody decides about it any more: this is said.
    Doubtful(CallId, Told),
    /// It was not made a call: this is said.
    Untaken(Told),
    /// It brings along something that nobody waits for.
    Stale,
}

impl Connection {
    /// Answers a request for a tool whose place has come.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        asker: &Asker,
        params: &Value,
        session: &InUse,
        place: Place<()>,
    ) -> Result<Answered, Unanswerable> {
        let road = match self.road(session).await {
            Ok(road) => road,
            Err(why) => return Err(self.unanswerable(params, why).await),
        };
        let (arrived, known) = match params["requestState"].as_str() {
            Some(state) => self.came_back(asker, state, params, session, &road).await?,
            None => self.tell_apart(asker, params, session, &road).await?,
        };
        // It has its turn from here on, if it is to be made; the next is told apart.
        drop(place);
        let was_answered = arrived.as_ref().is_some_and(|arrived| arrived.was_answered);
        let reply = self.reply(known, was_answered, asker).await?;
        Ok(Answered { request: arrived.map(|arrived| arrived.name), reply })
    }

    /// The answer to a request that was told apart; `None` when the client wants none any more. `was_answered`: this very request was before, and
    /// its client did not say that it asks for that answer once more.
    pub(crate) async fn reply(
        self: &Arc<Self>,
        mut known: Known,
        was_answered: bool,
        asker: &Asker,
    ) -> Result<Option<Reply>, Unanswerable> {
        let told = |told: &Told, call: &CallId| Reply::told(told.clone(), Some(call), false);
        // Its client counts from its request on, however often the call is taken up for it.
        let mut early = std::pin::pin!(self.broker.env.sleep_or_never(self.patience_left(asker)));
        // A call that was let go of is taken up again as soon as there is somebody to answer.
        loop {
            return match known {
                Known::Refused(call, why) => {
                    let why = self.hello.in_clients_names(&why);
                    // It ended with this.
                    Ok(Some(Reply::told(Told::NotSent { why }, Some(&call), true)))
                }
                Known::Doubtful(call, why) => Ok(Some(told(&why, &call))),
                Known::Untaken(why) => Ok(Some(Reply::told(why, None, false))),
                Known::Stale => Ok(Some(Reply::Refused { code: -32602, message: STALE.to_owned() })),
                Known::Over(call, rule) => {
                    let reply = self.answer_of(&call, rule, was_answered).await?;
                    Ok(Some(self.with_words(reply, &call).await))
                }
                // The same words from memory: it was made once, and this is its answer.
                Known::Kept(call, reply, None) => {
                    let at = self.made_at(Some(Notice::Duplicate), &call.call_id, call.updated_at).await;
                    Ok(Some(self.answer_with(&call, reply, Some(Notice::Duplicate), at)))
                }
                // With this process it would be gone.
                Known::Kept(call, reply, Some(why)) => {
                    let since = self.broker.sent_at(&call.call_id).await.unwrap_or(call.updated_at);
                    Ok(Some(told(&Told::unrecorded(since, why, &reply), &call.call_id)))
                }
                Known::Waits(waiting, call, rule, given) => {
                    let id = call.call_id.clone();
                    let live = waiting.call().clone();
                    let waits = self.broker.dropped.waits(&id, call.policy.class);
                    let replied = match self.wait(waiting, &call, asker, early.as_mut()).await {
                        Waited::LetGo => {
                            waits.end();
                            known = self.stands(&id, rule, given).await?;
                            continue;
                        }
                        Waited::Over(ended) => match (&ended.told, &ended.reply) {
                            (Some(why), _) => told(why, &id),
                            (None, Some((call, reply))) => {
                                waits.end();
                                let notice = notice(rule, call, Written::No);
                                let at = self.made_at(notice, &call.call_id, call.updated_at).await;
                                self.answer_with(call, reply.clone(), notice, at)
                            }
                            (None, None) => {
                                let reply = self.answer_of(&id, rule, was_answered).await?;
                                waits.end();
                                reply
                            }
                        },
                        Waited::Told(why) => return Ok(Some(told(&why, &id))),
                        Waited::Wanted(wanted) => return Ok(Some(Reply::Wanted(wanted))),
                        Waited::Cancelled => {
                            if asker.is_given_up() {
                                waits.gives_up();
                            }
                            return Ok(None);
                        }
                    };
                    // Of one that is asked for again, whoever waited before may have been told that a person decides.
                    let may_have_words = live.was_held() || rule != Rule::New;
                    Ok(Some(if may_have_words { self.with_words(replied, &id).await } else { replied }))
                }
            };
        }
    }

    /// Which call it is. In a project this is decided for one request after the other, and stored before the next is looked at.
    pub(crate) async fn tell_apart(
        self: &Arc<Self>,
        asker: &Asker,
        params: &Value,
        session: &InUse,
        road: &Arc<Road>,
    ) -> Result<ToldApart, Unanswerable> {
        let asked_for = self.plan(&asker.name, params, road).map_err(Unanswerable::Before)?;
        let planned = &asked_for.call;
        let redactor = &self.broker.redactor;
        let (client, own) = (client_call(redactor, &params["_meta"]), own_call(redactor, &params["_meta"]));
        let project = self.broker.project(&self.project);
        let _one = project.lock().await;
        if let Some(known) = self.kept_in_hand(&asked_for, session) {
            let mut arrived = None;
            if let (Known::Kept(call, ..), Came::Named { is_first: true }) = (&known, &asker.came) {
                // With the next write that the database takes: whoever is told of a call has asked for it.
                session.later(self.comes_for(&asker.name, call, session, params, Rule::Unsettled)).await;
                arrived = Some(Arrived { name: asker.name.clone(), is_first: true, was_answered: false });
            }
            return Ok((arrived, known));
        }
        let arrived = match self.arrived(asker, planned.policy.class).await {
            Ok(arrived) => arrived,
            Err(why) => return Err(self.unanswerable(params, why).await),
        };
        if arrived.is_first
            && let Err(why) = self.goes_on(session).await
        {
            return Err(self.unanswerable(params, why).await);
        }
        let (arrival, is_first) = (arrived.name.as_str(), arrived.is_first);
        let asked = Asked {
            arrival,
            client_call: client.as_deref(),
            own_call: own.as_deref(),
            gives_up_within: self.gives_up_within(),
            class: planned.policy.class,
            // Of a thing that is known by its name alone, a later one of the same name may be wanted.
            is_declared: planned.policy.is_by_content() && planned.policy.effect_kind.is_some(),
            at: self.broker.env.now(),
        };
        let seen = self.seen_by_now(&asked, &asked_for, session, is_first).await?;
        let args_hash = planned.args_hash;
        // As it is stored: the name of a tool that is not there is what its client makes of it.
        let raw_name = planned.name.raw.clone();
        let noted = |call: CallId, rule: Rule, planned: Option<PlannedCall>| NewArrival {
            arrival: ArrivalRecord {
                arrival_id: arrival.to_owned(),
                run_id: session.run.run_id.clone(),
                call_id: call,
                client_call: client.clone(),
                rule: rule.as_str().to_owned(),
                project: self.project.clone(),
                tool: raw_name.clone(),
                args_hash,
                arrived_at: asked.at,
                answered_at: None,
                acknowledged_at: None,
                unread_until: None,
            },
            call: planned.map(Box::new),
            step: session.step.clone(),
        };
        // The same request is noted once.
        let note = async |call: &CallId, rule: Rule| {
            let is_noted = seen.iter().any(|seen| seen.arrivals.iter().any(|one| one.arrival == arrival));
            if is_noted { Ok(()) } else { session.write(Change::Arrive(noted(call.clone(), rule, None))).await }
        };
        let ruling = decide(&asked, &seen);
        let FromClient { call: planned, given, .. } = asked_for;
        let planned = match &ruling {
            Ruling::Ask(call, why) => Self::asked_about(planned, call, *why),
            Ruling::New => Self::asked_about_beside(planned, &seen),
            Ruling::Join(..) | Ruling::Decide(..) | Ruling::HandOut(..) => planned,
        };
        let known = match ruling {
            Ruling::New | Ruling::Ask(..) => {
                let spent = self.broker.spend(&session.record, &planned, asked.at).await;
                if let Some(budget) = spent.map_err(Unanswerable::Before)? {
                    return Ok((None, Known::Untaken(Told::Budget { budget })));
                }
                let position = Position { turn: session.next_place(), ordinal: 1 };
                let planned = PlannedCall { position, ..planned };
                let new = noted(planned.call_id.clone(), Rule::New, Some(planned.clone()));
                // It leaves with the start of the call, in one write, and nobody decides about the project without it.
                session.outbox.hold("note what a client asks for", Change::Arrive(new)).await;
                let record = rules::calls_planned(&session.run, &session.step, vec![planned], asked.at).pop();
                let record = record.ok_or_else(|| Unanswerable::Before(Broken::new("the call was not planned")))?;
                if record.status == CallStatus::Cancelled {
                    self.broker.flush(&self.project).await.map_err(Unanswerable::Before)?;
                    Known::Refused(record.call_id, record.error_detail.unwrap_or_default())
                } else {
                    road.upstream.put_given(&record.call_id, given.clone());
                    let waiting = self.begin(session.again(), road.clone(), &record, Begun::Now);
                    Known::Waits(waiting, Box::new(record), Rule::New, Some(given))
                }
            }
            // Its answer may have come while that was decided, and the database not have taken it.
            Ruling::Join(call, rule) | Ruling::Decide(call, rule) if self.has_in_hand(&call) => {
                note(&call, rule).await.map_err(Unanswerable::after(&call))?;
                self.in_hand(&call).unwrap_or(Known::Over(call, rule))
            }
            Ruling::Join(call, rule) => {
                note(&call, rule).await.map_err(Unanswerable::after(&call))?;
                let live = self.broker.live().get(&call).cloned();
                let record = self.broker.store.call(&call).await.map_err(Broken::at("read the call"));
                let record = record.map_err(Unanswerable::after(&call))?;
                // It may have ended just now.
                match live {
                    Some(live) => Known::Waits(live.ask(), Box::new(record), rule, Some(given)),
                    None => self.in_hand(&call).unwrap_or(Known::Over(call, rule)),
                }
            }
            Ruling::Decide(call, rule) => {
                note(&call, rule).await.map_err(Unanswerable::after(&call))?;
                self.taken_up(call, rule, Some(given)).await?
            }
            Ruling::HandOut(call, rule) => {
                note(&call, rule).await.map_err(Unanswerable::after(&call))?;
                Known::Over(call, rule)
            }
        };
        Ok((Some(arrived), known))
    }

    /// A call that is decided now: by its policy, by a person's word, or by sending what was never sent. `given`: what its client gives it, where
    /// that is at hand.
    pub(crate) async fn taken_up(
        self: &Arc<Self>,
        call: CallId,
        rule: Rule,
        given: Option<Given>,
    ) -> Result<Known, Unanswerable> {
        let after = || Unanswerable::after(&call);
        let record = self.broker.store.call(&call).await.map_err(Broken::at("read the call")).map_err(after())?;
        let is_in_doubt = matches!(record.status, CallStatus::Running | CallStatus::Unknown);
        if is_in_doubt && self.broker.has_ended(&record.run_id).await {
            if self.broker.said_of(&record).await.is_some() {
                return Ok(Known::Over(call, rule));
            }
            let told = self.broker.left_in_doubt(&record).await;
            return Ok(Known::Doubtful(call, told));
        }
        let owner = self.broker.session_of(&record.run_id).await.map_err(after())?;
        let road = self.road(&owner).await.map_err(after())?;
        if let Some(given) = given.clone() {
            road.upstream.put_given(&call, given);
        }
        let sent = self.broker.sent_before(&record).await;
        let waiting = self.begin(owner, road, &record, Begun::Before(sent));
        Ok(Known::Waits(waiting, Box::new(record), rule, given))
    }

    /// A call that was let go of while the line of who asks was cut, as it stands by now: somebody else may have taken it up. In a project this
    /// is looked at for one request after the other.
    pub(crate) async fn stands(
        self: &Arc<Self>,
        call: &CallId,
        rule: Rule,
        given: Option<Given>,
    ) -> Result<Known, Unanswerable> {
        let project = self.broker.project(&self.project);
        let _one = project.lock().await;
        if let Some(known) = self.in_hand(call) {
            return Ok(known);
        }
        self.broker.flush(&self.project).await.map_err(Unanswerable::after(call))?;
        let record = self.broker.store.call(call).await.map_err(Broken::at("read the call"));
        let record = record.map_err(Unanswerable::after(call))?;
        let live = self.broker.live().get(call).cloned();
        match live {
            Some(live) => Ok(Known::Waits(live.ask(), Box::new(record), rule, given)),
            None if is_open(&record) => self.taken_up(call.clone(), rule, given).await,
            None => Ok(Known::Over(call.clone(), rule)),
        }
    }

    /// Nothing is waited for in here: a client that goes away at any moment leaves either nothing or a call that is under way.
    fn begin(self: &Arc<Self>, session: InUse, road: Arc<Road>, call: &CallRecord, begun: Begun) -> Waiting {
        let holder = road.upstream.holder().clone();
        let (is_new, sent) = match begun {
            Begun::Now => (true, None),
            Begun::Before(sent) => (false, sent),
        };
        let (live, turn) = LiveCall::new(call, self.broker.env.now(), holder, sent, &session.turns);
        let waiting = live.ask();
        self.broker.live().insert(call.call_id.clone(), live.clone());
        let carried = road.upstream.carries();
        let to_receipt = self.broker.clone().take_to_receipt(session, road, call.clone(), is_new, (live, turn));
        tokio::spawn(async move {
            to_receipt.await;
            drop(carried);
        });
        waiting
    }

    /// A call that a person lets go out or not, since it may be an earlier one once more.
    fn asked_about(mut planned: PlannedCall, earlier: &CallId, why: Asks) -> PlannedCall {
        if why == Asks::Withdrawn && planned.policy.needs_approval {
            // Its policy asks, in its own words.
            return planned;
        }
        planned.policy.needs_approval = true;
        CallPolicy::MAY_REPEAT.clone_into(&mut planned.policy.rule_id);
        planned.policy.reason = match why {
            Asks::Elsewhere => format!(
                "Call {earlier} says the same, and was asked for in this project with another account, address, program or name of this tool \
                 server (its entry has another `env`, header, command, URL or name than now). If that is the same account, with a new token \
                 for example, the effect may be there already: look before you let it be sent."
            ),
            Asks::Withdrawn => format!(
                "Call {earlier} says the same. A person was asked whether it may be sent, and ended its session instead. It was not sent."
            ),
            Asks::Failed => format!(
                "Call {earlier} says the same, and its tool answered that it failed. It may have had its effect all the same: look before \
                 you let it be sent again."
            ),
            Asks::Unread => format!(
                "Call {earlier} says the same, and happened; nobody is known to have read its answer. Whether this is that call once more \
                 cannot be told: it was made more than a week ago, as far as the clock says, or for a client that did not say what it is. \
                 Look at its answer, and whether that is enough, before you let it be sent again."
            ),
        };
        planned
    }

    /// A call that its policy has a person asked about, beside an equal one that is under way and may wait for a word as well: whoever reads the two
    /// questions knows that they are two, and not one that is shown twice.
    fn asked_about_beside(mut planned: PlannedCall, seen: &[Seen]) -> PlannedCall {
        if !planned.policy.needs_approval || !planned.policy.class.has_effect() {
            return planned;
        }
        let under_way = seen.iter().filter(|seen| seen.has_effect && seen.live != Live::No && !seen.is_withdrawn);
        let Some(other) = under_way.max_by(|a, b| (a.asked_at, &a.call).cmp(&(b.asked_at, &b.call))) else {
            return planned;
        };
        let whose = if other.is_family { "this session" } else { "another session" };
        let stands = if other.is_held { "waits for a person as well" } else { "is under way" };
        planned.policy.reason = format!(
            "The rule `{}` has a person asked. Call {} of {whose} says the same and {stands}: each of the two that may run is sent.",
            planned.policy.rule_id, other.call
        );
        CallPolicy::MAY_REPEAT.clone_into(&mut planned.policy.rule_id);
        planned
    }

    /// The calls of the project that this may be, and how they stand by now. What waits in a session to be written is written only where it
    /// can matter: of a request that comes for the first time and only reads it cannot, and where nothing like it was asked for there is
    /// nothing that anybody heard of.
    async fn seen_by_now(
        &self,
        asked: &Asked<'_>,
        wanted: &FromClient,
        session: &InUse,
        is_first: bool,
    ) -> Result<Vec<Seen>, Unanswerable> {
        if is_first && asked.class == SideEffectClass::ReadOnly {
            return Ok(Vec::new());
        }
        // A call is among these before it is written, and until it was.
        let names = self.names_of(&wanted.call.name.raw, &wanted.call.name.tool);
        let mut same = {
            let all = self.broker.live();
            let is_same = |live: &&Arc<LiveCall>| {
                names.iter().any(|name| wanted.hashes.iter().any(|hash| live.is_same(name, hash)))
            };
            all.values().find(is_same).map(|live| live.call.clone())
        };
        if is_first && same.is_none() {
            let seen = self.seen(asked, wanted, session, is_first).await.map_err(Unanswerable::Before)?;
            let Some(newest) = seen.iter().max_by_key(|seen| seen.asked_at) else { return Ok(seen) };
            same = Some(newest.call.clone());
        }
        // Where there is such a call, nobody is told that it was not sent because it cannot be read which one it is.
        let failed = |why| match &same {
            Some(call) => Unanswerable::after(call)(why),
            None => Unanswerable::Before(why),
        };
        self.broker.flush(&self.project).await.map_err(&failed)?;
        self.seen(asked, wanted, session, is_first).await.map_err(failed)
    }

    /// A call whose answer is in hand, and that the database did not take yet.
    fn in_hand(&self, call: &CallId) -> Option<Known> {
        let kept = lock(&self.broker.kept);
        kept.get(call).map(|kept| Known::Kept(kept.call.clone(), kept.reply.clone(), kept.unrecorded.clone()))
    }

    fn has_in_hand(&self, call: &CallId) -> bool {
        lock(&self.broker.kept).contains_key(call)
    }

    /// The call that this is, if its answer is in hand and the database did not take it yet: it is looked for before what is stored, since
    /// nothing may be readable or writable now, and no rule makes another call of it before it is settled.
    fn kept_in_hand(&self, wanted: &FromClient, session: &InUse) -> Option<Known> {
        let kept = lock(&self.broker.kept);
        let mut same = kept.values().filter(|kept| {
            let of = &kept.session;
            let is_same_call =
                kept.call.name.raw == wanted.call.name.raw && wanted.has_arguments_of(&kept.call.args_hash);
            let is_here = of.project == self.project && of.reach == self.reach;
            let reaches = wanted.call.policy.class != SideEffectClass::Local || of.run_id == session.run.run_id;
            is_same_call && is_here && reaches
        });
        same.next().map(|kept| Known::Kept(kept.call.clone(), kept.reply.clone(), kept.unrecorded.clone()))
    }

    /// What the tool is called through this entry, and through others that reach its server by other names.
    pub(crate) fn names_of(&self, raw: &str, tool: &str) -> Vec<String> {
        let others = self.broker.other_names(&self.project, &self.reach, &self.hello.name).into_iter();
        let others = others.map(|server| format!("mcp__{server}__{tool}"));
        std::iter::once(raw.to_owned()).chain(others).collect()
    }

    /// Under which names the calls of this project are stored: what earlier versions kept is under the folder itself.
    pub(crate) fn projects(&self) -> Vec<String> {
        let mut projects = vec![self.project.clone(), self.folder.clone()];
        projects.dedup();
        projects
    }

    /// Whether a run is of what the client calls this session, and of which tool server it is.
    async fn session_seen(&self, run: &RunId, session: &InUse) -> Result<Option<SessionRecord>, Broken> {
        if *run == session.run.run_id {
            return Ok(Some(session.record.clone()));
        }
        let of = self.broker.store.sessions_of(SessionsOf::Run(run.clone())).await;
        Ok(of.map_err(Broken::at("read a session"))?.pop())
    }

    /// The calls of the project that this may be.
    async fn seen(
        &self,
        asked: &Asked<'_>,
        wanted: &FromClient,
        session: &InUse,
        is_first: bool,
    ) -> Result<Vec<Seen>, Broken> {
        let planned = &wanted.call;
        let store = &self.broker.store;
        let now = self.broker.env.now();
        let mut arrivals = Vec::new();
        if !is_first {
            let one = store.arrivals_of(ArrivalsOf::One(asked.arrival.to_owned())).await;
            arrivals = one.map_err(Broken::at("look for the same call"))?;
        }
        if asked.class != SideEffectClass::ReadOnly {
            let same = SameCall {
                projects: self.projects(),
                tools: self.names_of(&planned.name.raw, &planned.name.tool),
                args_hashes: wanted.hashes.to_vec(),
            };
            let same = store.arrivals_of(ArrivalsOf::Same(same)).await;
            arrivals.extend(same.map_err(Broken::at("look for the same call"))?);
        }
        let mut ids: Vec<CallId> = arrivals.iter().map(|arrival| arrival.call_id.clone()).collect();
        ids.sort();
        ids.dedup();
        let heard_at = if ids.is_empty() {
            None
        } else {
            let newest = ArrivalsOf::NewestHeardOf(session.run.run_id.clone());
            let newest = store.arrivals_of(newest).await.map_err(Broken::at("look for the newest call"))?.pop();
            newest.map(|newest| newest.arrived_at)
        };
        let mut calls = Vec::new();
        for id in ids {
            let call = store.call(&id).await.map_err(Broken::at("read a call"))?;
            // What was never sent of a session that a person ended never will be: it is nobody's call any more.
            let is_unsent = matches!(call.status, CallStatus::Prepared | CallStatus::Cancelled) && call.attempt == 0;
            let is_ended = is_unsent && call.run_id != session.run.run_id && self.broker.has_ended(&call.run_id).await;
            // But what a person was asked about, and did not let go out, is not sent in the next session without a word.
            let is_withdrawn = is_ended && self.is_withdrawn(&call).await?;
            if is_ended && !is_withdrawn && call.status == CallStatus::Prepared {
                continue;
            }
            let of = self.session_seen(&call.run_id, session).await?;
            let mut of_call =
                store.arrivals_of(ArrivalsOf::Call(id.clone())).await.map_err(Broken::at("read arrivals"))?;
            of_call.sort_by_key(|arrival| arrival.arrived_at);
            let is_written = |arrival: &ArrivalRecord| {
                arrival.answered_at.is_some() && !arrival.is_unread(now) && !self.is_unread(&arrival.arrival_id)
            };
            let mut of_whom = Vec::new();
            for arrival in &of_call {
                let of = self.session_seen(&arrival.run_id, session).await?;
                let is_here = self.broker.is_here(&arrival.run_id, !is_written(arrival));
                let earlier = |of: &SessionRecord| earlier(&session.record, of, arrival.arrived_at, is_here);
                let earlier = of.as_ref().map_or(Earlier::No, earlier);
                of_whom.push((of.is_some_and(|of| is_of_client(&of, &session.record)), earlier));
            }
            let live = self.broker.live().get(&id).cloned();
            let told_at = self.broker.promises.made_at(&session.run.run_id, &id);
            let as_seen = |(arrival, (is_of_client, earlier)): (ArrivalRecord, (bool, Earlier))| SeenArrival {
                is_of_client,
                earlier,
                arrived_at: arrival.arrived_at,
                answered_at: arrival.answered_at.filter(|_| is_written(&arrival)),
                is_acknowledged: arrival.acknowledged_at.is_some(),
                is_family: arrival.run_id == session.run.run_id,
                arrival: arrival.arrival_id,
                client_call: arrival.client_call,
            };
            let arrivals: Vec<SeenArrival> = of_call.into_iter().zip(of_whom).map(as_seen).collect();
            calls.push(Seen {
                asked_at: call.created_at,
                is_family: call.root_run_id == session.run.root_run_id,
                is_of_client: of.as_ref().is_some_and(|of| is_of_client(of, &session.record)),
                is_same_server: of.is_some_and(|of| of.reach == self.reach && call.name.raw == planned.name.raw),
                is_left_behind: is_left_behind(&arrivals, told_at, heard_at, self.broker.dropped.since(&call)),
                has_effect: call.policy.class.has_effect(),
                status: call.status,
                is_given_up: call.resolution == Some(Resolution::Skipped),
                may_have_happened: call.possible_effect == Some(PossibleEffect::Maybe),
                was_doubted: was_doubted(&call),
                was_unanswered: self.broker.unanswered.has(&id),
                told_at,
                is_held: live.as_ref().is_some_and(|live| live.is_held()),
                is_withdrawn,
                live: live.map_or(Live::No, |live| if live.is_awaited() { Live::Awaited } else { Live::Left }),
                arrivals,
                call: id,
            });
        }
        Ok(calls)
    }

    /// Whether a person was asked about a call of a session that they ended, and said neither that it may go out nor that it is not wanted. However
    /// they ended it, by this question, by another one or without any, they have not let it go out.
    async fn is_withdrawn(&self, call: &CallRecord) -> Result<bool, Broken> {
        let of_run = self.broker.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await;
        let of_run = of_run.map_err(Broken::at("read the questions of a session"))?;
        let is_undecided = |asked: &QuestionRecord| match asked.answer.as_ref().map(|answer| answer.choice) {
            None | Some(Choice::Abort) => true,
            Some(Choice::Execute | Choice::Continue | Choice::Happened | Choice::Skip) => false,
        };
        let last = of_run.iter().rev().find(|asked| asked.call_id.as_ref() == Some(&call.call_id));
        Ok(last.is_some_and(is_undecided))
    }

    /// Waits for a call, as long as the client does (until `early`) and a person may take.
    async fn wait(
        self: &Arc<Self>,
        mut waiting: Waiting,
        call: &CallRecord,
        asker: &Asker,
        mut early: Pin<&mut impl Future<Output = ()>>,
    ) -> Waited {
        let (env, patience) = (&self.broker.env, self.patience_left(asker));
        let hold_wait =
            patience.map_or(self.broker.config.hold_wait, |patience| patience.min(self.broker.config.hold_wait));
        let mut state = waiting.call().state.subscribe();
        let mut listens = asker.listens.clone();
        waiting.listen(*listens.borrow_and_update());
        let mut held = std::pin::pin!(env.sleep_or_never(None));
        let queue_patience = patience.map_or(QUEUE_PATIENCE, |patience| QUEUE_PATIENCE.min(patience / 2));
        let mut queued = std::pin::pin!(env.sleep_or_never(Some(queue_patience)));
        let mut may_be_queued = true;
        let mut asked = None;
        let mut is_let_go = false;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                // Its bridge asks the next broker, which has the answer: what this one could say of it would be none.
                State::Over(ended)
                    if ended.is_left && self.hello.way == Way::Bridge && self.broker.closing.is_cancelled() =>
                {
                    asker.cancel.cancelled().await;
                    return Waited::Cancelled;
                }
                State::Over(ended) => return Waited::Over(ended),
                State::Held(question) if asked.is_none() => {
                    let may_decide = self.may_decide(&question.question_id);
                    if may_decide && let Some(wanted) = self.hand_over_decision(&call.call_id, &question) {
                        return Waited::Wanted(wanted);
                    }
                    if may_decide {
                        self.spawn(self.clone().ask_for_decision((*question).clone()));
                    }
                    // Where the client's dialogue had nobody in front of it, there is nobody to wait for.
                    let is_in_vain = self.presence.is_in_vain(&question.question_id);
                    held.set(env.sleep_or_never(Some(if is_in_vain { Duration::ZERO } else { hold_wait })));
                    asked = Some(question);
                }
                State::Held(_) => {}
                // It is taken up for whoever can be answered. Until then it waits for that.
                State::LetGo if waiting.listens() => return Waited::LetGo,
                State::LetGo => {
                    asked = None;
                    is_let_go = true;
                }
                State::Asks(ask) => {
                    if let Some(brought) = self.broker.inputs.brought_for(&call.call_id, &ask.requests) {
                        if let Some(taken) = ask.take() {
                            taken.answer(Some(brought));
                        }
                    } else if let Some(wanted) = self.hand_over(waiting.call(), &ask) {
                        return Waited::Wanted(wanted);
                    }
                }
                State::UnderWay => asked = None,
            }
            tokio::select! {
                biased;
                () = asker.cancel.cancelled() => return Waited::Cancelled,
                Ok(()) = listens.changed() => waiting.listen(*listens.borrow_and_update()),
                changed = state.changed() => if changed.is_err() {
                    return Waited::Over(Arc::default());
                },
                () = &mut held, if asked.is_some() => break,
                () = early.as_mut() => break,
                () = &mut queued, if may_be_queued => {
                    may_be_queued = false;
                    if waiting.call().is_queued() {
                        break;
                    }
                }
                () = self.presence.undecided(asked.as_ref().map(|question| &question.question_id)) => break,
            }
        }
        let live = waiting.call().clone();
        drop(waiting);
        if is_let_go {
            return Waited::Told(Told::LetGo { since: live.since });
        }
        let Some(question) = asked else {
            let since = live.since;
            return Waited::Told(match live.reached() {
                Reached::Queued { behind } => Told::Queued { since, behind },
                Reached::Begun => Told::Running { since, is_sent: false },
                Reached::Sent(sent) => Told::Running { since: sent.at, is_sent: true },
            });
        };
        if question.kind != QuestionKind::UnknownOutcome {
            let told = if self.failed_before(&question, call).await {
                Told::HeldAgain { question: question.question_id }
            } else {
                Told::Held { question: question.question_id, kind: question.kind }
            };
            return Waited::Told(told);
        }
        let call = self.broker.store.call(&call.call_id).await.unwrap_or_else(|_| call.clone());
        Waited::Told(Told::Unknown {
            since: self.broker.sent_at(&call.call_id).await,
            why: doubt(&call),
            question: Some(question.question_id),
        })
    }

    /// Whether a call is held because this very session made it before, in the same words, and its tool said that it failed.
    async fn failed_before(&self, question: &QuestionRecord, call: &CallRecord) -> bool {
        let others = question.detail["others"].as_array().filter(|_| question.kind == QuestionKind::NearDuplicate);
        let first = others.and_then(|others| CallId::parse(others.first()?["call"].as_str()?).ok());
        let Some(first) = first else { return false };
        let first = self.broker.store.call(&first).await;
        first.is_ok_and(|first| {
            first.status == CallStatus::FailedReported
                && (&first.run_id, &first.name.raw, &first.args_hash) == (&call.run_id, &call.name.raw, &call.args_hash)
        })
    }

    /// The answer of a call that is over.
    async fn answer_of(&self, id: &CallId, rule: Rule, was_answered: bool) -> Result<Reply, Unanswerable> {
        let store = self.broker.store.as_ref();
        let after = || Unanswerable::after(id);
        // What it ended with may wait to be written.
        self.broker.flush(&self.project).await.map_err(after())?;
        let call = store.call(id).await.map_err(Broken::at("read the call")).map_err(after())?;
        let told = |told: Told, is_final| Ok(Reply::told(told, Some(id), is_final));
        let why = || call.error_in_words().unwrap_or_else(|| "it was not sent".to_owned());
        match call.status {
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::FailedDefinite => {}
            CallStatus::Cancelled => {
                return told(Told::NotSent { why: self.hello.in_clients_names(&why()) }, true);
            }
            CallStatus::Unknown => {
                let (since, why) = (self.broker.sent_at(id).await, doubt(&call));
                let question = self.broker.asked_of(&call).await;
                return told(Told::Unknown { since, why, question }, false);
            }
            // What its tool server still does as a task has no answer that could be stored.
            CallStatus::Running if self.broker.is_followed(id).await => {
                let since = self.broker.sent_at(id).await.unwrap_or(call.created_at);
                return told(Told::Running { since, is_sent: true }, false);
            }
            CallStatus::Running => {
                let why = "its answer is not stored".to_owned();
                return told(Told::Unstored { since: self.broker.sent_at(id).await, why }, false);
            }
            CallStatus::Prepared => {
                return told(Told::Broken { why: "the call is not over".to_owned() }, false);
            }
        }
        // What its tool had answered before a person said that it did not happen is no answer any more.
        if call.status == CallStatus::FailedDefinite && call.correction.is_some() {
            return told(Told::NotSent { why: format!("Not done: {}", why()) }, true);
        }
        let source = call.answered_by().unwrap_or(id);
        let receipt = store.receipt(source).await.map_err(Broken::at("read the receipt")).map_err(after())?;
        let Some(receipt) = receipt.filter(|receipt| call.answered_by().is_some() || receipt.attempt == call.attempt)
        else {
            return told(self.without_answer(&call, why()).await, true);
        };
        let reply = whole_reply(store, &receipt).await.map_err(Broken::at("read the receipt")).map_err(after())?;
        let written = match rule {
            Rule::Owed => {
                let arrivals = store.arrivals_of(ArrivalsOf::Call(id.clone())).await;
                let arrivals = arrivals.map_err(Broken::at("read who asked for the call")).map_err(after())?;
                if arrivals.iter().any(|arrival| arrival.answered_at.is_some()) {
                    Written::Yes
                } else if receipt.received_at < self.broker.began_at {
                    Written::NotKnown
                } else {
                    Written::No
                }
            }
            Rule::Exact if was_answered => Written::Yes,
            Rule::Exact | Rule::Unsettled | Rule::Repeat | Rule::Twin | Rule::Again | Rule::New => Written::No,
        };
        let notice = notice(rule, &call, written);
        let at = self.made_at(notice, source, receipt.received_at).await;
        Ok(self.answer_with(&call, reply, notice, at))
    }

    /// What is told of a call that ended without an answer of its tool and did nothing: a read may have been sent all the same.
    async fn without_answer(&self, call: &CallRecord, why: String) -> Told {
        let has_effect = call.policy.class.has_effect();
        let times = if has_effect { 0 } else { self.broker.times_sent(&call.call_id).await };
        match times {
            0 => Told::NotSent { why: format!("Not done: {why}") },
            1 => Told::ReadLost { why },
            times => Told::ReadLost { why: format!("{why} (it was sent {times} times)") },
        }
    }

    /// An answer with what a person said beside their decision about the call, where the answer does not say it.
    async fn with_words(&self, reply: Reply, call: &CallId) -> Reply {
        if !matches!(reply, Reply::Result { .. } | Reply::Told { .. } | Reply::Error { .. }) {
            return reply;
        }
        let words = self.words_beside(call).await.unwrap_or_else(|error| {
            tracing::warn!(%call, %error, "what a person said about a call cannot be read");
            None
        });
        match (reply, words) {
            (Reply::Result { result, is_final }, Some(words)) => {
                Reply::Result { result: with_words(result, &words), is_final }
            }
            (Reply::Told { told, call, is_final, .. }, words) => Reply::Told { told, call, words, is_final },
            (Reply::Error { code, message, data }, Some(words)) => {
                let (message, data) = error_with_words(&message, data, &words);
                Reply::Error { code, message, data }
            }
            (reply, _) => reply,
        }
    }

    async fn words_beside(&self, call: &CallId) -> Result<Option<String>, StoreError> {
        let store = &self.broker.store;
        let record = store.call(call).await?;
        let questions = store.questions_of(QuestionsOf::Run(record.run_id)).await?;
        let of_call = questions.into_iter().filter(|question| question.call_id.as_ref() == Some(call));
        // The last ones that are said nowhere else: a later decision without words takes none away.
        Ok(of_call.rev().find_map(|QuestionRecord { kind, answer, .. }| {
            let answer = answer?;
            // What a tool asked for is its answer, and what was declined has the words in its place.
            let is_said = kind == QuestionKind::Elicitation
                || answer.choice == Choice::Abort
                || (answer.choice == Choice::Skip && kind != QuestionKind::UnknownOutcome && record.attempt == 0);
            let words = answer.text.map(|words| words.trim().to_owned());
            words.filter(|words| !is_said && !words.is_empty())
        }))
    }

    /// When a call was made of which something is said beside its answer: when it was sent, as whoever was told of it before read; `or` where that is
    /// not known.
    async fn made_at(&self, notice: Option<Notice>, call: &CallId, or: Timestamp) -> Timestamp {
        match notice {
            Some(_) => self.broker.sent_at(call).await.unwrap_or(or),
            None => or,
        }
    }

    /// What a call ended with, as an answer.
    fn answer_with(&self, call: &CallRecord, reply: RawReply, notice: Option<Notice>, made_at: Timestamp) -> Reply {
        let told = |told: Told| Reply::told(told, Some(&call.call_id), true);
        let once_more = if matches!(notice, Some(Notice::Late { may_be_made_again: true, .. })) {
            OnceMore::IsSentAfter(made_at)
        } else if is_one_effect(call) {
            OnceMore::Never
        } else {
            OnceMore::IsSent
        };
        match reply {
            RawReply::ToolResult { result } => {
                let result = match notice {
                    Some(notice) => with_notice(result, notice, &call.call_id, made_at),
                    None => result,
                };
                // Nobody is owed a read: whoever asks for it again has it made again.
                Reply::Result { result, is_final: call.policy.class.has_effect() }
            }
            RawReply::RpcError { code, message } => {
                let data = self.upstream.take_error_data(&call.call_id).unwrap_or_default();
                Reply::Error { code, message, data }
            }
            RawReply::HttpStatus { status, body, .. } => told(Told::Refused { why: format!("HTTP {status}: {body}") }),
            RawReply::Refused { why } => told(Told::Refused { why }),
            RawReply::Statement { by, proof } => told(Told::Happened { by, proof, once_more }),
            RawReply::Found { tool, id, .. } => told(Told::Happened { by: format!("`{tool}`"), proof: id, once_more }),
        }
    }
}

/// Whether an answer was written before: to somebody who asked for it, or to the very request.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    Yes,
    No,
    /// That it was is noted with the next write behind it, which a broker that has gone may not have made.
    NotKnown,
}

/// Why nobody knows what came of a call, as a clause. What came with a status may be next to nothing, so that is named: what is recorded beside it
/// never says it.
fn doubt(call: &CallRecord) -> String {
    let said = call.error_detail.as_deref().map(str::trim).filter(|said| !said.is_empty());
    match (call.http_status(), said) {
        (Some(status), None) => format!("its tool server answered HTTP status {status}"),
        (Some(status), Some(said)) => format!("its tool server answered HTTP status {status}: {said}"),
        (None, Some(said)) => said.to_owned(),
        (None, None) => "its answer was lost".to_owned(),
    }
}

/// Whether equal calls are one effect.
fn is_one_effect(call: &CallRecord) -> bool {
    call.policy.is_by_content() && call.policy.effect_kind.is_some()
}

/// What is said of a receipt that is handed out by a rule.
fn notice(rule: Rule, call: &CallRecord, written: Written) -> Option<Notice> {
    match (rule, written) {
        (Rule::Owed, written) => {
            let delivered = match written {
                Written::Yes => Delivered::Written,
                Written::No => Delivered::No,
                Written::NotKnown => Delivered::NotKnown,
            };
            Some(Notice::Late { delivered, may_be_made_again: !is_one_effect(call) })
        }
        (Rule::Repeat, _) => Some(Notice::Duplicate),
        (Rule::Again, _) => Some(Notice::Once),
        (Rule::Twin, _) => Some(Notice::Twin),
        (Rule::Exact, Written::Yes) => Some(Notice::SameRequest),
        (Rule::Exact | Rule::Unsettled | Rule::New, _) => call.answered_by().map(|_| Notice::Duplicate),
    }
}

/// Whether that a call happened was not known until a person said so, or a probe found it.
fn was_doubted(call: &CallRecord) -> bool {
    let by_word = matches!(call.resolution, Some(Resolution::Happened | Resolution::Reconciled));
    // What had an end that its client was told, and a person says now that it was another one, was no doubt.
    let was_open = |word: &Correction| matches!(word.was, CallStatus::Running | CallStatus::Unknown);
    call.status == CallStatus::Succeeded && by_word && call.correction.as_ref().is_none_or(was_open)
}

/// Whether two sessions are one to their client, with whichever tool server.
fn is_of_client(one: &SessionRecord, other: &SessionRecord) -> bool {
    one.run_id == other.run_id || clients_key(&one.session_key) == clients_key(&other.session_key)
}

/// Whether a call that is taken up is a new one.
#[derive(Clone, Copy)]
enum Begun {
    /// It is.
    Now,
    /// It was begun before, and sent then, or not.
    Before(Option<Sent>),
}

/// How waiting ended.
enum Waited {
    /// The call is over.
    Over(Arc<Ended>),
    /// Nobody waited for it for a while, and it was not begun; now somebody does.
    LetGo,
    /// The client is to come back with something.
    Wanted(Wanted),
    /// It is not, and the client is told so in time.
    Told(Told),
    /// The client wants no answer.
    Cancelled,
}
