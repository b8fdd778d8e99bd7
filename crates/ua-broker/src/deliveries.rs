//! Who has its answer: which answers are on their way to a client, which were written to it, and which it is known to have.
//!
//! Invariant: an answer is *delivered* when it was written to the client, and *acknowledged* when the client went on behind that.

use std::collections::HashMap;
use std::sync::Mutex;

use ua_core::Env;
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
    written: Mutex<Vec<(String, InUse)>>,
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
            lock(&self.written).push((arrival, session));
        }
    }

    /// The client goes on, so it has what was written to it before.
    pub(crate) async fn acknowledge(&self, env: &Env) {
        let written = std::mem::take(&mut *lock(&self.written));
        for (arrival, session) in written {
            note(&session, vec![arrival], true, env).await;
        }
    }

    /// Nothing more is heard of the client.
    pub(crate) fn forget(&self) {
        lock(&self.on_the_way).clear();
        lock(&self.written).clear();
    }
}

/// What an earlier broker wrote to this very client, which goes on now, so that it has it.
pub(crate) async fn heard_before(session: &InUse, store: &dyn Store, env: &Env) -> Result<(), Broken> {
    let of = ArrivalsOf::Session(session.run.run_id.clone());
    let arrivals = store.arrivals_of(of).await.map_err(Broken::at("read what was answered"))?;
    let is_unheard = |arrival: &ArrivalRecord| {
        let is_own = arrival.run_id == session.run.run_id;
        is_own && arrival.answered_at.is_some() && arrival.acknowledged_at.is_none()
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
