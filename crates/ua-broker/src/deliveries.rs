//! Who has its answer: which answers are on their way to a client, which were written to it, and which it is known to have.
//!
//! Invariant: an answer is *delivered* when it was written to the client, and *acknowledged* when the client went on behind that. What its client
//! says it did not take, it does not have by going on: a connection that it closed with the answer unread, and a request that it cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use ua_core::{Env, Timestamp};
use ua_store::{ArrivalRecord, ArrivalsOf, Change, Delivery, GatewayStore as _, Store};

use crate::batches;
use crate::broker::Broken;
use crate::carrier::Carrier;
use crate::session::InUse;
use crate::sync::lock;

/// The answers of one connection to requests of the ledger.
#[derive(Default)]
pub(crate) struct Deliveries {
    /// On their way, by the name of the request.
    on_the_way: Mutex<HashMap<String, Answer>>,
    /// Written, and not known to be had.
    written: Mutex<Written>,
    /// Whoever notes something of an answer: one after the other, so that what is said of it last is noted last.
    notes: AsyncMutex<()>,
}

/// The answer to a request.
struct Answer {
    /// What the client calls the request.
    id: Value,
    /// The name under which its call came first.
    arrival: String,
    /// The session it is of.
    session: InUse,
}

/// What was written, in that order.
#[derive(Default)]
struct Written {
    count: u64,
    unheard: Vec<Unheard>,
}

/// An answer that was written.
struct Unheard {
    number: u64,
    name: String,
    answer: Answer,
    at: Timestamp,
    /// Over which connection, where it has one of its own.
    carrier: Option<Arc<Carrier>>,
}

impl Unheard {
    /// Whether its client closed its connection without having read it, and may post its call again. Not for longer than that: there are clients
    /// that reset whatever they close, and none is kept from repeating itself.
    fn is_unread(&self, now: Timestamp, again_within: Duration) -> bool {
        now.since(self.at) <= again_within && self.carrier.as_ref().is_some_and(|carrier| carrier.was_reset())
    }
}

impl Deliveries {
    /// The answer to a request is on its way, which its client calls `id`, and which came first under the name `arrival`.
    pub(crate) fn begin(&self, name: String, id: Value, arrival: String, session: InUse) {
        lock(&self.on_the_way).insert(name, Answer { id, arrival, session });
    }

    /// What stands under this name was written to the client, over this connection if it has one of its own.
    pub(crate) async fn wrote(&self, name: &str, carrier: Option<&Arc<Carrier>>, env: &Env) {
        // Once more, after a stream broke.
        for unheard in lock(&self.written).unheard.iter_mut().filter(|unheard| batches::whole(&unheard.name) == name) {
            unheard.carrier = carrier.cloned();
        }
        // A cancel that crosses it finds it in one of the two at any moment.
        let _noting = self.notes.lock().await;
        let mut of_name = Vec::new();
        {
            let mut on_the_way = lock(&self.on_the_way);
            let mut written = lock(&self.written);
            for (name, answer) in on_the_way.extract_if(|written, _| batches::whole(written) == name) {
                of_name.push((answer.session.again(), answer.arrival.clone()));
                let number = written.count;
                written.count += 1;
                written.unheard.push(Unheard { number, name, answer, at: env.now(), carrier: carrier.cloned() });
            }
        }
        for (session, arrival) in of_name {
            note(&session, vec![arrival], Delivery::Written, env).await;
        }
    }

    /// How many were written by now.
    pub(crate) fn written(&self) -> u64 {
        lock(&self.written).count
    }

    /// The client went on when so many had been written, so it has these, but for what it is known not to have read.
    pub(crate) async fn acknowledge(&self, count: u64, again_within: Duration, env: &Env) {
        let _noting = self.notes.lock().await;
        let now = env.now();
        let is_heard = |unheard: &mut Unheard| unheard.number < count && !unheard.is_unread(now, again_within);
        let heard: Vec<_> = lock(&self.written).unheard.extract_if(.., is_heard).collect();
        for Unheard { answer, .. } in heard {
            note(&answer.session, vec![answer.arrival], Delivery::Had, env).await;
        }
    }

    /// The client gave a request up: it takes no answer to it, also where that was written already.
    pub(crate) async fn not_taken(&self, id: &Value, env: &Env) {
        let _noting = self.notes.lock().await;
        lock(&self.on_the_way).retain(|_, answer| answer.id != *id);
        let is_it = |unheard: &mut Unheard| unheard.answer.id == *id;
        let crossed: Vec<_> = lock(&self.written).unheard.extract_if(.., is_it).collect();
        for Unheard { answer, .. } in crossed {
            note(&answer.session, vec![answer.arrival], Delivery::NotTaken, env).await;
        }
    }

    /// Whether the answer to what came under this name was written, and is known not to have been read.
    pub(crate) fn is_unread(&self, arrival: &str, again_within: Duration, now: Timestamp) -> bool {
        let is_it = |unheard: &Unheard| unheard.answer.arrival == arrival && unheard.is_unread(now, again_within);
        lock(&self.written).unheard.iter().any(is_it)
    }

    /// Nothing more is heard of the client here. What it is known not to have read the next broker knows by the store alone, and for no longer than
    /// it would have been known here.
    pub(crate) async fn end(&self, again_within: Duration, env: &Env) {
        let _noting = self.notes.lock().await;
        lock(&self.on_the_way).clear();
        let now = env.now();
        let unheard = std::mem::take(&mut lock(&self.written).unheard);
        for unread in unheard.into_iter().filter(|unheard| unheard.is_unread(now, again_within)) {
            let until = unread.at.plus(again_within);
            note(&unread.answer.session, vec![unread.answer.arrival], Delivery::Unread { until }, env).await;
        }
    }
}

/// What earlier brokers wrote to this very client, before `now_here`: it goes on, so it has it, but for what it is known not to have read. Whether
/// that was all.
pub(crate) async fn heard_before(
    session: &InUse,
    now_here: Timestamp,
    store: &dyn Store,
    env: &Env,
) -> Result<bool, Broken> {
    let of = ArrivalsOf::Session(session.run.run_id.clone());
    let arrivals = store.arrivals_of(of).await.map_err(Broken::at("read what was answered"))?;
    let is_unheard = |arrival: &ArrivalRecord| {
        let is_own = arrival.run_id == session.run.run_id;
        is_own && arrival.answered_at.is_some_and(|at| at < now_here) && arrival.acknowledged_at.is_none()
    };
    let now = env.now();
    let written = arrivals.into_iter().filter(is_unheard);
    let (unread, unheard): (Vec<_>, Vec<_>) = written.partition(|arrival| arrival.is_unread(now));
    let unheard: Vec<String> = unheard.into_iter().map(|arrival| arrival.arrival_id).collect();
    if !unheard.is_empty() {
        note(session, unheard, Delivery::Had, env).await;
    }
    Ok(unread.is_empty())
}

async fn note(session: &InUse, arrivals: Vec<String>, delivery: Delivery, env: &Env) {
    session.later(Change::Deliver { arrivals, delivery, at: env.now() }).await;
}
