//! A client whose requests stand for themselves comes back with what it was told to come back with: the same call once more, with the name that it
//! was given (`requestState`), and with what was asked for.
//!
//! The name says which call it is and to whom it was given, under a seal that only this gateway makes (`Comeback`). So whoever comes back has that
//! call or none, however often, in whichever order, and whichever broker it comes to; another client has none by it. What a client brings
//! along is wanted once: by the broker that asked, or by the next one, where the tool's task asks for the very same still. Everybody else who comes
//! back waits for the call, or has what came of it.
//!
//! Proved by: this file's tests, `tests/it/posted.rs`.

use std::sync::Arc;

use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, Env, SideEffectClass, keyed_digest};
use ua_store::{
    ArrivalRecord, ArrivalsOf, CallRecord, Change, GatewayStore as _, LedgerStore as _, NewArrival, StoreError,
};

use crate::again::is_open;
use crate::ask::{Known, ToldApart};
use crate::broker::{Broken, Unanswerable};
use crate::connection::Connection;
use crate::given::FromClient;
use crate::open_requests::Asker;
use crate::road::Road;
use crate::rules::Rule;
use crate::session::{InUse, client_call};
use crate::sync::lock;

/// What stands between the parts of a name.
const BETWEEN: char = '~';

/// The name that a client brings along which comes back: which call it is, and that it was given to this client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comeback {
    call: CallId,
    /// Nobody's else: what is expected under one name is not what is expected under another.
    own: String,
}

impl Comeback {
    /// A new one, to a call that asks for this, by this broker.
    pub(crate) fn to(call: &CallId, broker: u64, asked: &str, env: &Env) -> Self {
        Self { call: call.clone(), own: format!("{broker:016x}.{asked}.{:016x}", env.entropy.next_u64()) }
    }

    /// What was asked for, if not this very broker asked for it.
    fn asked_by_another(&self, broker: u64) -> Option<&str> {
        let (by, rest) = self.own.split_once('.')?;
        (by != format!("{broker:016x}")).then(|| rest.split('.').next()).flatten()
    }

    /// As the client of this connection is given it. `key` is the gateway's.
    pub(crate) fn sealed(&self, client: &str, key: &str) -> String {
        format!("{}{BETWEEN}{}{BETWEEN}{}", self.call, self.own, self.seal(client, key))
    }

    /// Reads what the client of this connection brings along; `None` where it was never given that.
    pub(crate) fn opened(text: &str, client: &str, key: &str) -> Option<Self> {
        let mut parts = text.split(BETWEEN);
        let (call, own, seal) = (parts.next()?, parts.next()?, parts.next()?);
        let read = Self { call: CallId::parse(call).ok()?, own: own.to_owned() };
        (parts.next().is_none() && read.seal(client, key) == seal).then_some(read)
    }

    fn seal(&self, client: &str, key: &str) -> String {
        keyed_digest(key, &json!(["comes back", client, self.call.as_str(), self.own]).to_string()).to_hex()
    }
}

impl Connection {
    /// A request that brings along what its call was asked for. It is that call, and nothing is begun for it that was not begun before.
    pub(crate) async fn came_back(
        self: &Arc<Self>,
        asker: &Asker,
        state: &str,
        params: &Value,
        session: &InUse,
        road: &Arc<Road>,
    ) -> Result<ToldApart, Unanswerable> {
        // Whoever comes back with something had a call before.
        let unknown = |why| Unanswerable::Before(why).of_one_that_comes_again();
        let key = self.broker.own_key().map_err(unknown)?;
        let Some(comeback) = Comeback::opened(state, &self.hello.bridge, &key) else {
            return Ok((None, Known::Stale));
        };
        let call = comeback.call.clone();
        let after = || Unanswerable::after(&call);
        let wanted = self.plan(&asker.name, params, road).map_err(after())?;
        if self.is_lost_read(&call, &wanted).await.map_err(after())? {
            // Its tool asks again what it wants to know.
            return self.tell_apart(asker, params, session, road).await;
        }
        let project = self.broker.project(&self.project);
        let _one = project.lock().await;
        // That it was begun may wait to be written.
        self.broker.flush(&self.project).await.map_err(after())?;
        let record = self.broker.store.call(&call).await.map_err(Broken::at("read the call")).map_err(after())?;
        if wanted.call.name.raw != record.name.raw || !wanted.has_arguments_of(&record.args_hash) {
            return Ok((None, Known::Stale));
        }
        let arrived = self.arrived(asker, record.policy.class).await.map_err(after())?;
        // Before the call goes on, so that its answer has somebody who waits.
        let live = self.broker.live().get(&call).cloned();
        let waiting = live.map(|live| live.ask());
        let is_noted = !arrived.is_first && {
            let of = ArrivalsOf::One(arrived.name.clone());
            let noted = self.broker.store.arrivals_of(of).await.map_err(Broken::at("look for the same request"));
            !noted.map_err(after())?.is_empty()
        };
        if arrived.is_first {
            self.goes_on(session).await.map_err(after())?;
        }
        if !is_noted {
            session
                .write(self.comes_for(&arrived.name, &record, session, params, Rule::Exact))
                .await
                .map_err(after())?;
        }
        let expected = self.broker.inputs.take(state);
        if let Some(expected) = expected {
            self.brought(expected, &params["inputResponses"]).await.map_err(after())?;
        } else if let Some(asked) = comeback.asked_by_another(self.broker.inputs.broker())
            && let Some(responses) = params["inputResponses"].as_object().filter(|_| is_open(&record))
        {
            // A broker that has gone asked for it. Where a task asks for the very same still, this is the answer.
            self.broker.inputs.bring(&call, asked, responses.clone());
        }
        let kept = lock(&self.broker.kept)
            .get(&call)
            .map(|kept| Known::Kept(kept.call.clone(), kept.reply.clone(), kept.unrecorded.clone()));
        let known = match (waiting, kept) {
            (Some(waiting), _) => Known::Waits(waiting, Box::new(record), Rule::Exact, Some(wanted.given)),
            (None, Some(kept)) => kept,
            (None, None) if is_open(&record) => self.taken_up(call, Rule::Exact, Some(wanted.given)).await?,
            (None, None) => Known::Over(call, Rule::Exact),
        };
        Ok((Some(arrived), known))
    }

    /// Whether a call that its client comes back with only reads, and nobody is at work on it who could answer it: it is simply made again.
    async fn is_lost_read(&self, call: &CallId, wanted: &FromClient) -> Result<bool, Broken> {
        let is_read = wanted.call.policy.class == SideEffectClass::ReadOnly;
        if !is_read || self.broker.live().contains_key(call) || lock(&self.broker.kept).contains_key(call) {
            return Ok(false);
        }
        self.broker.flush(&self.project).await?;
        let record = match self.broker.store.call(call).await {
            // That a read was begun is written with the next write, which never came: what has an effect is stored before it is sent.
            Err(StoreError::NotFound { .. }) => return Ok(true),
            record => record.map_err(Broken::at("read the call"))?,
        };
        let is_same = record.name.raw == wanted.call.name.raw && wanted.has_arguments_of(&record.args_hash);
        let is_lost = matches!(record.status, CallStatus::Running | CallStatus::Unknown);
        Ok(is_same && is_lost && record.policy.class == SideEffectClass::ReadOnly)
    }

    /// That a request came for a call that there is.
    pub(crate) fn comes_for(
        &self,
        name: &str,
        call: &CallRecord,
        session: &InUse,
        params: &Value,
        rule: Rule,
    ) -> Change {
        let arrival = ArrivalRecord {
            arrival_id: name.to_owned(),
            run_id: session.run.run_id.clone(),
            call_id: call.call_id.clone(),
            client_call: client_call(&self.broker.redactor, &params["_meta"]),
            rule: rule.as_str().to_owned(),
            project: self.project.clone(),
            tool: call.name.raw.clone(),
            args_hash: call.args_hash,
            arrived_at: self.broker.env.now(),
            answered_at: None,
            acknowledged_at: None,
            unread_until: None,
        };
        Change::Arrive(NewArrival { arrival, call: None, step: session.step.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is good for who was given it, under the key of who gave it, as it was given.
    #[test]
    fn a_name_is_its_own_clients_alone() {
        let env = Env::simulated(1);
        let call = CallId::parse("call_1").unwrap();
        let own = Comeback::to(&call, 7, "a1", &env);
        assert_eq!((own.asked_by_another(8), own.asked_by_another(7)), (Some("a1"), None));
        let text = own.sealed("b1", "k");
        assert_eq!(Comeback::opened(&text, "b1", "k"), Some(own.clone()));
        assert_eq!((Comeback::opened(&text, "b2", "k"), Comeback::opened(&text, "b1", "l")), (None, None));
        assert_ne!(Comeback::to(&call, 7, "a1", &env), own);
        for place in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[place] = if other[place] == b'1' { b'2' } else { b'1' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(Comeback::opened(&other, "b1", "k"), None, "{other}");
            assert_eq!(Comeback::opened(&text[..place], "b1", "k"), None, "{place}");
        }
        assert_eq!(Comeback::opened(&format!("{text}~"), "b1", "k"), None);
    }
}
