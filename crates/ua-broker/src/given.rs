//! What a client gives a call, and what of it is kept.
//!
//! A call's arguments are sent as they are given and stored without the secrets that are known, so they are in two places: what was given is in
//! this process alone, as long as the call is under way, and what is kept is in the ledger. An equal call is known by digests of what was
//! given, whatever was known to be a secret then or now; where something is withheld the digest is made with the gateway's key, so that nobody
//! who reads the database can try values. What has to be sent once more and is not stored comes from whoever asks for it once more.
//!
//! Proved by: `tests/it/secrets.rs`.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use ua_core::{
    ArgsHash, Block, CanonicalJson, ModelTurn, PlannedCall, Shared, StopReason, ToolUse, is_withheld, keyed_digest,
    put_back, withhold,
};
use ua_store::{ArrivalsOf, GatewayStore as _, LedgerStore as _, SameCall};

use crate::broker::{Broken, Unanswerable};
use crate::connection::Connection;
use crate::road::{Road, passed_on};

/// A request for a tool, as a call that may be made of it.
pub(crate) struct FromClient {
    /// As it would be stored.
    pub(crate) call: PlannedCall,
    /// What goes with it.
    pub(crate) given: Given,
    /// The digests of its arguments: as it is stored now, and as it would be if other secrets were known.
    pub(crate) hashes: [ArgsHash; 2],
}

impl FromClient {
    /// Whether a call with this digest has the same arguments.
    pub(crate) fn has_arguments_of(&self, hash: &ArgsHash) -> bool {
        self.hashes.contains(hash)
    }
}

/// What a client gives a call: nothing of it is stored.
#[derive(Clone)]
pub(crate) struct Given {
    arguments: Shared<Value>,
    /// What it says about the call beside its arguments.
    pub(crate) meta: Map<String, Value>,
    key: Arc<str>,
}

impl Given {
    /// The arguments to send, of those that are kept.
    ///
    /// # Errors
    /// Something of them was withheld and is not what was given: why nothing is sent.
    pub(crate) fn whole(&self, kept: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let mut all = Value::Object(kept);
        match (put_back(&mut all, &self.arguments, &self.key), all) {
            (true, Value::Object(all)) => Ok(all),
            (_, _) => Err(NOT_KEPT.to_owned()),
        }
    }

    /// The same of arguments about which nothing was given.
    pub(crate) fn nothing(kept: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let kept = Value::Object(kept);
        match (is_withheld(&kept), kept) {
            (false, Value::Object(kept)) => Ok(kept),
            (_, _) => Err(NOT_KEPT.to_owned()),
        }
    }
}

/// Why arguments cannot be sent.
const NOT_KEPT: &str = "its arguments hold a secret, which is not stored; the same call, made again with it, is sent";

/// The arguments of a call, as its client gives them.
fn arguments_of(params: &Value) -> Value {
    params.get("arguments").filter(|arguments| !arguments.is_null()).cloned().unwrap_or_else(|| json!({}))
}

impl Connection {
    /// What a tool is called with the ledger's name for it.
    pub(crate) fn raw_name(&self, params: &Value) -> String {
        format!("mcp__{}__{}", self.hello.name, params["name"].as_str().unwrap_or_default())
    }

    /// Why a request cannot be told apart at all. Where an effect in the same words was asked for in the project before, or that cannot be read, nobody
    /// is told that it was not sent.
    pub(crate) async fn unanswerable(&self, params: &Value, why: Broken) -> Unanswerable {
        let arguments = arguments_of(params);
        let in_clear = CanonicalJson::of(&arguments, &[]).map(|canonical| canonical.hash()).ok();
        let keyed = in_clear.zip(self.broker.own_key().ok());
        let keyed = keyed.map(|(hash, key)| keyed_digest(&key, &format!("arguments {}", hash.to_hex())));
        let same = SameCall {
            projects: self.projects(),
            tools: self.names_of(&self.raw_name(params), params["name"].as_str().unwrap_or_default()),
            args_hashes: in_clear.into_iter().chain(keyed).collect(),
        };
        let store = &self.broker.store;
        let Ok(arrivals) = store.arrivals_of(ArrivalsOf::Same(same)).await else {
            return Unanswerable::Before(why).of_one_that_comes_again();
        };
        for arrival in arrivals {
            if store.call(&arrival.call_id).await.is_ok_and(|call| !call.policy.class.has_effect()) {
                continue;
            }
            return Unanswerable::After { call: Some(arrival.call_id), since: None, why };
        }
        Unanswerable::Before(why)
    }

    /// The call that a request is, if it is a new one.
    pub(crate) fn plan(&self, arrival: &str, params: &Value, road: &Road) -> Result<FromClient, Broken> {
        let input = arguments_of(params);
        let tool_use = ToolUse { id: arrival.to_owned(), name: self.raw_name(params), input };
        let reply = ModelTurn {
            blocks: vec![Block::ToolUse(tool_use)],
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: self.client().name.clone(),
            response_id: None,
        };
        let mut planned = road.dispatcher.plan(&reply, 1);
        let (Some(mut call), true) = (planned.pop(), planned.is_empty()) else {
            return Err(Broken::new(
                "calls that are made of several actions do not pass the gateway yet; make them one by one",
            ));
        };
        let redactor = &self.broker.redactor;
        let key = self.broker.own_key()?;
        let given = Given { arguments: call.arguments.clone(), meta: passed_on(&params["_meta"]), key: key.clone() };
        let in_clear = call.args_hash;
        let keyed = keyed_digest(&key, &format!("arguments {}", in_clear.to_hex()));
        let mut hashes = [in_clear, keyed];
        if let Some(kept) = withhold(&call.arguments, redactor, &key) {
            call.arguments = kept.into();
            call.args_hash = keyed;
            hashes.reverse();
        }
        // It may quote them. The name of a tool that is there is its tool server's word; of one that is not, the client's.
        if let Some(refusal) = &mut call.refusal {
            redactor.own(&mut refusal.message);
            redactor.own(&mut call.name.raw);
            redactor.own(&mut call.name.tool);
        }
        Ok(FromClient { call, given, hashes })
    }
}
