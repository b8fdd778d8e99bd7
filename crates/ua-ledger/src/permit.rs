//! The proof that RUNNING is committed.

use serde_json::{Map, Value, json};
use ua_core::{BAGGAGE, Destination, IdempotencyKey, KeyChannel, TRACEPARENT, ToolName, call_baggage};
use ua_store::{CallRecord, RunLease};

use crate::admission::KeyLife;

/// Proof that one attempt of one call is on stable storage as RUNNING, and so may be sent. Of a call that only reads and may simply be made
/// again it may prove less: that RUNNING waits to be written.
///
/// Only [`Ledger::start`](crate::Ledger::start) and [`Ledger::start_read`](crate::Ledger::start_read) make one, settling consumes it, and it can be neither copied nor stored.
/// A permit that is dropped leaves its call RUNNING, which the next recovery reads as unknown.
#[derive(Debug)]
#[must_use = "a permit that is not settled leaves its call in flight"]
pub struct Permit {
    call: CallRecord,
    key: IdempotencyKey,
    lease: RunLease,
    generation: String,
    traceparent: String,
    key_life: Option<KeyLife>,
    destination: Option<Destination>,
    /// RUNNING is not written yet.
    waits: bool,
}

/// The prefix of this project's `_meta` names.
const META: &str = "dev.universal-agent";

impl Permit {
    pub(crate) fn new(
        call: CallRecord,
        key: IdempotencyKey,
        lease: RunLease,
        generation: String,
        traceparent: String,
    ) -> Self {
        Self { call, key, lease, generation, traceparent, key_life: None, destination: None, waits: false }
    }

    /// The same, which rests on a key that is good for a time.
    pub(crate) fn within(mut self, key_life: Option<KeyLife>) -> Self {
        self.key_life = key_life;
        self
    }

    /// The same, for an attempt that goes there.
    pub(crate) fn going_to(mut self, destination: Option<Destination>) -> Self {
        self.destination = destination;
        self
    }

    /// The same, of a read whose RUNNING waits to be written.
    pub(crate) fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    pub(crate) fn key_life(&self) -> Option<KeyLife> {
        self.key_life
    }

    /// The call, as committed.
    pub fn call(&self) -> &CallRecord {
        &self.call
    }

    /// The tool that is called: for an action of a composite tool that tool, not the action.
    pub fn name(&self) -> &ToolName {
        self.call.called_tool()
    }

    /// The key to hand to the tool.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The process of the tool server that the attempt was committed for.
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// Where the attempt was decided to go and as whom, as it is stored with it; nothing may be sent to another place. `None` of a read, which does
    /// nothing anywhere, and where nobody could say.
    pub fn destination(&self) -> Option<&Destination> {
        self.destination.as_ref()
    }

    /// The arguments to send: the model's, plus the key where the policy names an argument for it or wants it left as a mark. An action
    /// of a composite tool is wrapped as the only one of that tool's call.
    pub fn arguments(&self) -> Map<String, Value> {
        let mut arguments = match &*self.call.arguments {
            Value::Object(map) => map.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        if let Some(KeyChannel::Argument(name)) = &self.call.policy.key_channel {
            arguments.insert(name.clone(), Value::String(self.key.as_str().to_owned()));
        }
        if let Some(marker) = &self.call.policy.marker {
            // Where there is no room for it the call is sent without, and cannot be asked about later.
            marker.apply(&mut arguments, self.key.as_str());
        }
        match &self.call.policy.via {
            Some(via) => via.wrap(&self.call.name.tool, arguments),
            None => arguments,
        }
    }

    /// The key in a request's `_meta`, where [`Permit::meta`] puts it.
    pub fn key_in<'m>(&self, meta: &'m Map<String, Value>) -> Option<&'m str> {
        meta.get(&format!("{META}/idempotency-key"))?.as_str()
    }

    /// The request's `_meta`: key, run, step, call, attempt, epoch and W3C trace context with the ids as baggage (Durable Jobs
    /// v1 spec §10). Servers that know none of it ignore it. Our own tool server is told, too, what the files hold that were looked at for this
    /// attempt, by their places in the arguments, also that none was there: it sends these bytes or nothing.
    pub fn meta(&self) -> Map<String, Value> {
        let mut meta = Map::new();
        let mut put = |name: &str, value: Value| meta.insert(format!("{META}/{name}"), value);
        put("idempotency-key", json!(self.key.as_str()));
        put("run-id", json!(self.call.run_id.as_str()));
        put("step-id", json!(self.call.step_id.as_str()));
        put("tool-call-id", json!(self.call.call_id.as_str()));
        put("attempt", json!(self.call.attempt));
        put("epoch", json!(self.lease.epoch));
        if self.call.name.is_of_own_server() && self.call.policy.names_files() {
            let digests = self.call.file_digests.iter().map(|(place, digest)| (place.clone(), json!(digest.to_hex())));
            put("files", Value::Object(digests.collect()));
        }
        meta.insert(TRACEPARENT.to_owned(), json!(self.traceparent));
        let call = &self.call;
        meta.insert(BAGGAGE.to_owned(), json!(call_baggage(&call.run_id, &call.step_id, &call.call_id)));
        meta
    }
}
