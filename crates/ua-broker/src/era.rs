//! The two eras of the protocol: up to 2025-11-25 a connection begins with a handshake, from 2026-07-28 on each request stands for itself.
//!
//! A client and its tool server may be of different ones. What passes between them is the same JSON; what differs is what each request says for
//! itself (`_meta`), what each result says about itself (`resultType`, how long it may be kept), and a few numbers of errors. Both directions are
//! pure functions here. Where both sides are of one era nothing is changed.

use serde_json::{Map, Value, json};
use ua_core::Redactor;

use crate::incoming::CALL;
use crate::texts::as_object;

/// The revision of the newer era that is spoken.
pub(crate) const NEWER: &str = "2026-07-28";
/// The newest revision that begins with a handshake.
pub(crate) const NEWEST_HANDSHAKE: &str = "2025-11-25";
/// Where a request says in which revision it is.
pub(crate) const PROTOCOL: &str = "io.modelcontextprotocol/protocolVersion";
/// Where a request says what its client can do.
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Where a request says who its client is.
pub(crate) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// Where a request says which logs it wants.
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Where a notification says which subscription it belongs to.
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// The request is in a revision that is not spoken.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// What a client would have to be able to do is not declared.
const NO_SUCH_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
/// What an older server says of a resource that is not there.
const OLD_NOT_FOUND: i64 = -32002;

/// How somebody is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// After a handshake.
    Handshake,
    /// Each request stands for itself.
    Stateless,
}

/// The most characters of a client's name and of its version: they stand in lists.
const MAX_WORD: usize = 100;

/// What a client says about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) capabilities: Value,
    pub(crate) info: Value,
}

impl Client {
    /// As `initialize` says it.
    pub(crate) fn of_handshake(params: &Value) -> Self {
        Self::of(&params["clientInfo"], &params["capabilities"])
    }

    /// As a request says it that stands for itself.
    pub(crate) fn of_request(meta: &Value) -> Self {
        Self::of(&meta[CLIENT], &meta[CAPABILITIES])
    }

    fn of(info: &Value, capabilities: &Value) -> Self {
        let word = |name: &str| info[name].as_str().unwrap_or_default().chars().take(MAX_WORD).collect();
        Self { name: word("name"), version: word("version"), capabilities: capabilities.clone(), info: info.clone() }
    }

    /// As it is stored and shown: without what entries of clients keep secret. Its tool servers are told what it says itself.
    pub(crate) fn kept(self, redactor: &Redactor) -> Self {
        let kept = |text: &str| redactor.text(text).into_owned();
        Self { name: kept(&self.name), version: kept(&self.version), ..self }
    }

    /// Whether its people can be asked to fill in a form.
    pub(crate) fn has_forms(&self) -> bool {
        // An empty object is what clients said before there was another kind.
        let elicitation = &self.capabilities["elicitation"];
        elicitation.as_object().is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form"))
    }

    /// Whether it takes this request of a tool server.
    pub(crate) fn takes(&self, method: &str) -> bool {
        let needed = match method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            _ => return false,
        };
        self.capabilities[needed].is_object()
    }

    /// The handshake that is made in its name.
    pub(crate) fn handshake(&self) -> Value {
        let info = if self.info.is_object() { self.info.clone() } else { json!({"name": "unknown", "version": "0"}) };
        let capabilities = if self.capabilities.is_object() { self.capabilities.clone() } else { json!({}) };
        json!({"protocolVersion": NEWEST_HANDSHAKE, "capabilities": capabilities, "clientInfo": info})
    }

    /// Puts what each request has to say for itself into its `_meta`, where it does not say it already.
    pub(crate) fn sign(&self, meta: &mut Map<String, Value>, log_level: Option<&Value>) {
        let mut put = |name: &str, value: Value| {
            meta.entry(name.to_owned()).or_insert(value);
        };
        put(PROTOCOL, json!(NEWER));
        put(CAPABILITIES, if self.capabilities.is_object() { self.capabilities.clone() } else { json!({}) });
        if self.info.is_object() {
            put(CLIENT, self.info.clone());
        }
        if let Some(level) = log_level {
            put(LOG_LEVEL, level.clone());
        }
    }
}

/// In which era a request is. One that says nothing is of the era of the handshake.
pub(crate) fn era_of(params: &Value) -> Era {
    if params["_meta"].get(PROTOCOL).is_some() { Era::Stateless } else { Era::Handshake }
}

/// Why a request that stands for itself cannot be taken: code, words, data.
pub(crate) fn refused(method: &str, params: &Value) -> Option<(i64, String, Value)> {
    let meta = &params["_meta"];
    let Some(version) = meta[PROTOCOL].as_str() else {
        return Some((INVALID_PARAMS, format!("`_meta` has no text `{PROTOCOL}`"), Value::Null));
    };
    if version != NEWER {
        let data = json!({"supported": [NEWER], "requested": version});
        return Some((UNSUPPORTED_VERSION, format!("protocol version {version} is not supported"), data));
    }
    if !meta[CAPABILITIES].is_object() {
        return Some((INVALID_PARAMS, format!("`_meta` has no object `{CAPABILITIES}`"), Value::Null));
    }
    // What the newer era does not have any more.
    let is_gone =
        matches!(method, "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe");
    is_gone.then(|| (NO_SUCH_METHOD, format!("there is no method {method}"), Value::Null))
}

/// The parameters of a request without what only the newer era says in them.
pub(crate) fn unsigned(meta: &mut Map<String, Value>) {
    meta.retain(|name, _| ![PROTOCOL, CAPABILITIES, CLIENT, LOG_LEVEL].contains(&name.as_str()));
}

/// What is found out about a tool server by a handshake, as the newer era says it.
pub(crate) fn discovery(greeted: &Value) -> Value {
    let mut result = json!({
        "resultType": "complete", "supportedVersions": [NEWER], "capabilities": capabilities_of(greeted), "ttlMs": 0,
        "cacheScope": "private", "_meta": {SERVER: greeted["serverInfo"]},
    });
    if let Some(instructions) = greeted.get("instructions") {
        result["instructions"] = instructions.clone();
    }
    result
}

/// The capabilities that both eras have.
fn capabilities_of(greeted: &Value) -> Value {
    let mut capabilities = greeted["capabilities"].as_object().cloned().unwrap_or_default();
    capabilities.remove("tasks");
    Value::Object(capabilities)
}

/// What a tool server of the newer era says about itself, as the answer to a handshake in `wanted`.
pub(crate) fn greeting(discovered: &Value, wanted: &str) -> Value {
    let version = if wanted.is_empty() || wanted > NEWEST_HANDSHAKE { NEWEST_HANDSHAKE } else { wanted };
    let mut capabilities = discovered["capabilities"].as_object().cloned().unwrap_or_default();
    capabilities.remove("extensions");
    let named = |info: &Value| info.is_object().then(|| info.clone());
    let info = named(&discovered["_meta"][SERVER]).or_else(|| named(&discovered["serverInfo"]));
    let mut result = json!({
        "protocolVersion": version, "capabilities": capabilities,
        "serverInfo": info.unwrap_or_else(|| json!({"name": "unknown", "version": "0"})),
    });
    if let Some(instructions) = discovered.get("instructions") {
        result["instructions"] = instructions.clone();
    }
    result
}

/// An answer as a client of the newer era reads it, from a tool server of the older one or from us.
pub(crate) fn to_stateless(method: &str, answer: &mut Value, server: Option<&Value>) {
    if method == CALL
        && let Some(result) = answer.get_mut("result")
    {
        *result = as_object(result.take());
    }
    if let Some(result) = answer.get_mut("result").and_then(Value::as_object_mut) {
        result.entry("resultType").or_insert_with(|| json!("complete"));
        let is_kept = matches!(
            method,
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" | "resources/read"
        );
        if is_kept {
            result.entry("ttlMs").or_insert_with(|| json!(0));
            result.entry("cacheScope").or_insert_with(|| json!("private"));
        }
        if let Some(server) = server
            && let Some(meta) = result.entry("_meta").or_insert_with(|| json!({})).as_object_mut()
        {
            meta.entry(SERVER).or_insert_with(|| server.clone());
        }
    } else if method == "resources/read" && answer["error"]["code"] == OLD_NOT_FOUND {
        answer["error"]["code"] = json!(INVALID_PARAMS);
    }
}

/// An answer as a client of the older era reads it, from a tool server of the newer one.
pub(crate) fn to_handshake(method: &str, answer: &mut Value) {
    if let Some(result) = answer.get_mut("result").and_then(Value::as_object_mut) {
        for name in ["resultType", "ttlMs", "cacheScope"] {
            result.remove(name);
        }
    } else if method == "resources/read" && answer["error"]["code"] == INVALID_PARAMS {
        answer["error"]["code"] = json!(OLD_NOT_FOUND);
    }
}

/// What a tool server asks for in the place of a result: by name.
pub(crate) fn asked_for(result: &Value) -> Option<Map<String, Value>> {
    if result["resultType"] != "input_required" {
        return None;
    }
    Some(requests_of(result))
}

/// What is asked for, by name.
pub(crate) fn requests_of(asking: &Value) -> Map<String, Value> {
    asking["inputRequests"].as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_stands_for_itself_says_what_it_has_to() {
        let meta = |version: &str| json!({"_meta": {PROTOCOL: version, CAPABILITIES: {}}});
        assert_eq!(refused("tools/list", &meta(NEWER)), None);
        let (code, _, data) = refused("tools/list", &meta("2031-01-01")).unwrap();
        assert_eq!((code, &data["requested"], &data["supported"][0]), (-32022, &json!("2031-01-01"), &json!(NEWER)));
        assert_eq!(refused("tools/list", &json!({"_meta": {PROTOCOL: NEWER}})).unwrap().0, -32602);
        assert_eq!(refused("tools/list", &json!({})).unwrap().0, -32602);
        assert_eq!(refused("ping", &meta(NEWER)).unwrap().0, -32601);
        assert_eq!((era_of(&meta(NEWER)), era_of(&json!({}))), (Era::Stateless, Era::Handshake));
    }

    #[test]
    fn what_one_era_says_is_said_in_the_other() {
        let greeted = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}, "tasks": {}},
            "serverInfo": {"name": "s", "version": "1"}, "instructions": "Be brief."});
        let found = discovery(&greeted);
        assert_eq!(
            (&found["capabilities"], &found["_meta"][SERVER]["name"]),
            (&json!({"tools": {"listChanged": true}}), &json!("s"))
        );
        let back = greeting(&found, "2025-06-18");
        assert_eq!(
            (&back["protocolVersion"], &back["serverInfo"], &back["instructions"]),
            (&json!("2025-06-18"), &greeted["serverInfo"], &greeted["instructions"])
        );
        assert_eq!(greeting(&found, "2099-01-01")["protocolVersion"], NEWEST_HANDSHAKE);

        let mut list = json!({"result": {"tools": [], "own": 1}});
        to_stateless("tools/list", &mut list, Some(&json!({"name": "s"})));
        assert_eq!(
            list["result"],
            json!({"tools": [], "own": 1, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "_meta": {SERVER: {"name": "s"}}})
        );
        to_handshake("tools/list", &mut list);
        assert!(list["result"].get("resultType").is_none() && list["result"]["own"] == 1);
        let mut missing = json!({"error": {"code": -32002, "message": "no"}});
        to_stateless("resources/read", &mut missing, None);
        assert_eq!(missing["error"]["code"], -32602);
        to_handshake("resources/read", &mut missing);
        let mut bare = json!({"result": ["sent"]});
        to_stateless("tools/call", &mut bare, None);
        assert_eq!(
            bare["result"],
            json!({"content": [{"type": "text", "text": "[\"sent\"]"}], "resultType": "complete"})
        );
        assert_eq!(missing["error"]["code"], -32002);
    }

    #[test]
    fn a_client_is_the_same_in_both_eras() {
        let handshake =
            json!({"clientInfo": {"name": "c", "version": "2"}, "capabilities": {"elicitation": {}, "roots": {}}});
        let client = Client::of_handshake(&handshake);
        let mut meta = Map::new();
        client.sign(&mut meta, Some(&json!("info")));
        assert_eq!(Client::of_request(&Value::Object(meta.clone())), client);
        assert_eq!(meta[LOG_LEVEL], "info");
        assert!(client.has_forms() && client.takes("roots/list") && !client.takes("sampling/createMessage"));
        assert!(!Client::of_handshake(&json!({"capabilities": {"elicitation": {"url": {}}}})).has_forms());
        meta.insert("progressToken".to_owned(), json!(1));
        unsigned(&mut meta);
        assert_eq!(Value::Object(meta), json!({"progressToken": 1}));
        assert_eq!(client.handshake()["clientInfo"]["name"], "c");
    }
}
