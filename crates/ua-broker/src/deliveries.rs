//! Who has its answer: which answers are on their way to a client, which were written to it, and which it is known to have.
//!
//! Invariant: an answer is *delivered* when it was written to the client, and *acknowledged* when the client went on behind that.

use std::collections::HashMap;
use std::sync::Mutex;

use ua_core::{Env, Timestamp};
use ua_store::{ArrivalRecord, ArrivalsOf, Change, GatewayStore as _, Store};

use crate::batches;
use crate::broker::Broken;
use crate::session::InUse;
use crate::sync::lock;

/// The answers of one connection to requests of the ledger.
#[derive(Default)]
pub(crate) struct Deliveries {
    /// On their way, by the name of the request: the name under which its call came first, and the session it is of.
    on_the_way: Mutex<HashMap<String, (String, InUse)>>,
    /// Written, and not known to be had.
    written: Mutex<Written>,
}

/// What was written, in that order.
#[derive(Default)]
struct Written {
    count: u64,
    /// With the number that each is.
    unheard: Vec<(u64, String, InUse)>,
}

impl Deliveries {
    /// The answer to a request is on its way, which came first under the name `arrival`.
    pub(crate) fn begin(&self, name: String, arrival: String, session: InUse) {
        lock(&self.on_the_way).insert(name, (arrival, session));
    }

    /// What stands under this name was written to the client.
    pub(crate) async fn wrote(&self, name: &str, env: &Env) {
        let of_name: Vec<_> =
            lock(&self.on_the_way).extract_if(|written, _| batches::whole(written) == name).map(|(_, of)| of).collect();
        for (arrival, session) in of_name {
            note(&session, vec![arrival.clone()], false, env).await;
            let mut written = lock(&self.written);
            let number = written.count;
            written.count += 1;
            written.unheard.push((number, arrival, session));
        }
    }

    /// How many were written by now.
    pub(crate) fn written(&self) -> u64 {
        lock(&self.written).count
    }

    /// The client went on when so many had been written, so it has these.
    pub(crate) async fn acknowledge(&self, count: u64, env: &Env) {
        let heard: Vec<_> = lock(&self.written).unheard.extract_if(.., |(number, ..)| *number < count).collect();
        for (_, arrival, session) in heard {
            note(&session, vec![arrival], true, env).await;
        }
    }

    /// Nothing more is heard of the client.
    pub(crate) fn forget(&self) {
        lock(&self.on_the_way).clear();
        lock(&self.written).unheard.clear();
    }
}

/// What earlier brokers wrote to this very client, before `now_here`: it goes on, so it has it.
pub(crate) async fn heard_before(
    session: &InUse,
    now_here: Timestamp,
    store: &dyn Store,
    env: &Env,
) -> Result<(), Broken> {
    let of = ArrivalsOf::Session(session.run.run_id.clone());
    let arrivals = store.arrivals_of(of).await.map_err(Broken::at("read what was answered"))?;
    let is_unheard = |arrival: &ArrivalRecord| {
        let is_own = arrival.run_id == session.run.run_id;
        is_own && arrival.answered_at.is_some_and(|at| at < now_here) && arrival.acknowledged_at.is_none()
    };
    let unheard: Vec<String> = arrivals.into_iter().filter(is_unheard).map(|arrival| arrival.arrival_id).collect();
    if !unheard.is_empty() {
        note(session, unheard, true, env).await;
    }
    Ok(())
}

async fn note(session: &InUse, arrivals: Vec<String>, is_acknowledged: bool, env: &Env) {
    session.later(Change::Deliver { arrivals, is_acknowledged, at: env.now() }).await;
}
