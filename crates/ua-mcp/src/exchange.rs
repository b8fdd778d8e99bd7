//! What both ways to a tool server have in common, a pipe and HTTP: one request and what became of it, and how a conversation begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Implementation;
use serde_json::{Map, Value, json};
use ua_core::{CallPolicy, Env, Handle, Input, Outcome, RawReply, SideEffectClass};

use crate::amount::is_too_long_to_ask;
use crate::dialect::{DISCOVER_PATIENCE, Dialect, Protocol, handshake};
use crate::host::Listener;
use crate::tasks::{task_begun, task_result, unknown_kind};
use crate::wire::Says;

/// What a server answers that wants a person to be at an address before it begins with a call (`URLElicitationRequired` of revision 2025-11-25):
/// a sign-in at somebody else's, for one.
pub(crate) const BY_ADDRESS: i64 = -32042;

/// What a server answers that does not know the method.
pub(crate) const NO_METHOD: i64 = -32601;

/// The method of a call.
pub(crate) const CALL: &str = "tools/call";
/// In the place of a handle: the call was not begun, and is made once a person has been at the addresses.
const NOT_BEGUN: &str = "not_begun";
/// Addresses that are shown of one answer.
const MOST_ADDRESSES: usize = 16;
/// The longest question with an address that is kept, in bytes of JSON.
const LONGEST_ADDRESS: usize = 16 * 1024;

/// What a server answers that does not speak the revision it was asked in.
const UNSUPPORTED: i64 = -32022;

/// One request of a permitted attempt, as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    /// The method: `tools/call`, or one that goes on with such a call.
    pub(crate) method: &'static str,
    /// Its parameters, without `_meta`.
    pub(crate) params: Map<String, Value>,
    /// The request's `_meta`.
    pub(crate) meta: Map<String, Value>,
    /// Name and value of the HTTP header in which the tool expects its idempotency key.
    pub(crate) key_header: Option<(String, String)>,
    /// Arguments that the server wants to see in HTTP headers too, by header.
    pub(crate) param_headers: Vec<(String, String)>,
    /// How long the answer may take; `None` waits as long as it takes.
    pub(crate) timeout: Option<Duration>,
    /// Who is told when the server asks something or says how far it is.
    pub(crate) listener: Option<Listener>,
    /// Whether it does no harm to send it once more, so that it is enough to be told that it was refused.
    pub(crate) may_repeat: bool,
    /// Whether its first answer counts, whatever its server says of it besides: what is simply done again. A key lets a call be made
    /// again as well, and what is in doubt then is sent under it once more, which does no harm.
    pub(crate) first_counts: bool,
}

impl Sending {
    /// A call of a tool.
    pub(crate) fn call(tool: &str, arguments: Map<String, Value>, meta: Map<String, Value>) -> Self {
        let params = Map::from_iter([
            ("name".to_owned(), Value::String(tool.to_owned())),
            ("arguments".to_owned(), Value::Object(arguments)),
        ]);
        Self { may_repeat: false, first_counts: false, ..Self::request(CALL, params, meta) }
    }

    /// Any request that has no effect of its own.
    pub(crate) fn request(method: &'static str, params: Map<String, Value>, meta: Map<String, Value>) -> Self {
        let (key_header, timeout, listener) = (None, None, None);
        let (may_repeat, first_counts) = (true, true);
        Self {
            method,
            params,
            meta,
            key_header,
            param_headers: Vec::new(),
            timeout,
            listener,
            may_repeat,
            first_counts,
        }
    }
}

/// Why a question that changes nothing has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unanswered {
    /// The server refused it: code and words.
    Refused(i64, String),
    /// The endpoint refused it, with an HTTP status.
    Status(u16, String),
    /// The same, because of who asks: no login, or one that may not do this. In another dialect it would be refused as well.
    NotLetIn(u16, String),
    /// It did not arrive, or no answer came: asking again does no harm.
    Broken(String),
}

impl Unanswered {
    /// As a clause.
    pub(crate) fn into_why(self) -> String {
        match self {
            Self::Refused(code, message) => format!("it answered with error {code}: {message}"),
            Self::Status(_, why) | Self::NotLetIn(_, why) | Self::Broken(why) => why,
        }
    }
}

/// How the two ways to a server begin: both ask and shake hands in the same order.
pub(crate) trait Opening {
    /// Asks in the given dialect.
    async fn ask_in(
        &self,
        dialect: Arc<Dialect>,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Value, Unanswered>;
    /// From now on this is how it is spoken to.
    fn agree(&self, dialect: Arc<Dialect>);
    /// Says that the handshake is done.
    async fn initialized(&self) -> Result<(), String>;
    /// Why nothing more can be sent, if nothing can.
    fn ended(&self) -> Option<String>;
}

/// Finds out which revision a server speaks: the new era first, then a handshake, as far as `protocol` allows either. The error says
/// what came instead.
pub(crate) async fn open(
    opening: &impl Opening,
    protocol: &Protocol,
    client: &Implementation,
    env: &Env,
) -> Result<(), String> {
    let mut why = None;
    if protocol.may_discover() {
        let asking = Arc::new(Dialect::of_asking(client));
        let ask = async {
            let asked = opening.ask_in(Arc::clone(&asking), "server/discover", Map::new()).await;
            match asked {
                // It names those that it does speak; ours is the only one of the new era that there is.
                Err(Unanswered::Refused(UNSUPPORTED, _)) => opening.ask_in(asking, "server/discover", Map::new()).await,
                asked => asked,
            }
        };
        let asked = tokio::select! {
            // Who is not let in is not let in in another dialect either.
            asked = ask => match asked {
                Err(Unanswered::NotLetIn(_, why)) => return Err(why),
                asked => asked.map_err(Unanswered::into_why),
            },
            () = env.clock.sleep(DISCOVER_PATIENCE) => {
                Err(format!("it did not say within {} s which revisions it speaks", DISCOVER_PATIENCE.as_secs()))
            }
        };
        match asked.and_then(|result| Dialect::of_discovery(&result, protocol, client)) {
            Ok(dialect) => {
                opening.agree(Arc::new(dialect));
                return Ok(());
            }
            Err(asked) => why = Some(asked),
        }
    }
    let Some(version) = protocol.offered() else {
        return Err(format!(
            "it does not speak revision {protocol}, which `protocol` pins: {}",
            why.unwrap_or_default()
        ));
    };
    if let (Some(end), Some(why)) = (opening.ended(), &why) {
        return Err(format!(
            "{end}, when it was asked for revision 2026-07-28 ({why}); pin `protocol` to the one it speaks"
        ));
    }
    let params = handshake(&version, client).as_object().cloned().unwrap_or_default();
    let shaken = match opening.ask_in(Arc::default(), "initialize", params).await {
        // It was only slow to say so: the new era is the one it speaks.
        Err(Unanswered::Refused(UNSUPPORTED, _)) if protocol.may_discover() => {
            let asking = Arc::new(Dialect::of_asking(client));
            let asked = opening.ask_in(asking, "server/discover", Map::new()).await.map_err(Unanswered::into_why)?;
            opening.agree(Arc::new(Dialect::of_discovery(&asked, protocol, client)?));
            return Ok(());
        }
        shaken => shaken.map_err(not_shaken)?,
    };
    opening.agree(Arc::new(Dialect::of_handshake(&shaken, protocol)?));
    opening.initialized().await.map_err(|why| format!("the handshake failed: {why}"))
}

/// Why there was no handshake. A server that only knows the transport of revision 2024-11-05 takes no post where its stream is, and says so by
/// its status alone.
fn not_shaken(why: Unanswered) -> String {
    match why {
        Unanswered::Status(404 | 405, why) => format!("{why} (if this is a server of {OLD_TRANSPORT})"),
        why @ (Unanswered::Refused(..) | Unanswered::Status(..) | Unanswered::NotLetIn(..) | Unanswered::Broken(_)) => {
            why.into_why()
        }
    }
}

/// How a server of the transport before this one is reached all the same.
pub(crate) const OLD_TRANSPORT: &str = "the old HTTP+SSE transport, which is not supported, a bridge such as the npm package `mcp-remote` \
                                        reaches it as the `command` of a local server (docs/guide/own-tool-servers.md)";

/// How long the answer of a read may take when its policy says nothing.
pub const PATIENCE_FOR_READS: Duration = Duration::from_mins(2);

/// How long the answer of a call may take, of a read that nothing is said of `for_reads`; `None` waits as long as it takes.
pub fn time_of(policy: &CallPolicy, for_reads: Option<Duration>) -> Option<Duration> {
    policy.timeout.or(for_reads.filter(|_| policy.class == SideEffectClass::ReadOnly))
}

/// Why nobody knows what a call came to whose time was up.
pub fn out_of_time(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

/// What a call came to whose time was up.
pub(crate) fn not_in_time(limit: Option<Duration>) -> Outcome {
    Outcome::Lost { why: out_of_time(limit.unwrap_or_default()) }
}

/// Reads the kind of a result of a request: final, or a task or a question that has to be gone on with first. What a task ended with begins nothing
/// anew. Only a revision without sessions has results that ask for something.
pub(crate) fn completed(method: &str, has_rounds: bool, result: Value) -> Outcome {
    if method != CALL {
        return task_result(result);
    }
    if result.get("resultType").is_some_and(|kind| kind == "input_required") {
        if !has_rounds {
            let why = "the tool asked for something as a revision of the protocol does that its session does not speak";
            return Outcome::Lost { why: why.to_owned() };
        }
        return asked_for(&result, None, 1);
    }
    if has_rounds && let Some(why) = unknown_kind(&result) {
        return Outcome::Lost { why };
    }
    task_begun(&result).unwrap_or(Outcome::Raw(RawReply::ToolResult { result }))
}

/// What an error in answer to a request came to. One that wants a person at an address first is none: the call was not begun, and is something to
/// go on with.
pub(crate) fn refused(method: &str, code: i64, message: String, data: Option<&Value>) -> Outcome {
    let addresses = data.filter(|_| code == BY_ADDRESS && method == CALL).map(addresses_in).unwrap_or_default();
    if addresses.is_empty() {
        return Outcome::Raw(RawReply::RpcError { code, message });
    }
    let input = Input { requests: addresses, round: 1, ..Input::default() };
    Outcome::Continues(Box::new(Handle { input: Some(input), place: json!({ NOT_BEGUN: true }), ..Handle::default() }))
}

/// What a call with an effect came to whose server says that there is no such tool after it told of the call's progress: whoever does that has begun,
/// and what it does not know is something that the tool asked for.
pub(crate) fn after_progress(method: &str, code: i64, message: &str) -> Option<Outcome> {
    (method == CALL && code == NO_METHOD).then(|| Outcome::Lost {
        why: format!("its server told of its progress, and then that there is no such method: {message}"),
    })
}

/// Why nobody knows what a call came to that was answered twice, and otherwise: neither answer is believed, since by one of them it would be made
/// again, or taken for done.
pub(crate) fn answered_twice(first: Says, second: Says) -> String {
    let (first, second) = (first.in_words(), second.in_words());
    tracing::warn!(first, second, "the tool server answered a call twice, and otherwise");
    format!("its server answered it twice: {first}, and then {second}")
}

/// Whether a handle is of a call that the server has not begun.
pub(crate) fn is_not_begun(handle: &Handle) -> bool {
    handle.task.is_none() && handle.place.get(NOT_BEGUN) == Some(&Value::Bool(true))
}

/// The questions to a person in such an error, by the server's names for them.
fn addresses_in(data: &Value) -> BTreeMap<String, Value> {
    let asked = data.get("elicitations").and_then(Value::as_array).into_iter().flatten();
    let is_shown = |params: &&Value| {
        params.get("url").is_some_and(Value::is_string) && params.to_string().len() <= LONGEST_ADDRESS
    };
    let asked = asked.filter(is_shown).take(MOST_ADDRESSES);
    let named = asked.enumerate().map(|(place, params)| {
        let mut params = params.clone();
        params["mode"] = json!("url");
        let name = params.get("elicitationId").and_then(Value::as_str);
        let name = name.map_or_else(|| place.to_string(), str::to_owned);
        (name, json!({"method": "elicitation/create", "params": params}))
    });
    named.collect()
}

/// What a server asks for before it goes on. It may ask for what we offer, and for the roots, of which there are none.
pub(crate) fn asked_for(result: &Value, task: Option<String>, round: u32) -> Outcome {
    let mut input = Input { round, ..Input::default() };
    input.state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
    let mut requests: BTreeMap<String, Value> =
        result.get("inputRequests").and_then(Value::as_object).cloned().unwrap_or_default().into_iter().collect();
    for (name, request) in &mut requests {
        match request.get("method").and_then(Value::as_str) {
            Some("elicitation/create") if is_too_long_to_ask(request) => {
                input.answers.insert(name.clone(), json!({ "action": "decline" }));
                *request = json!({"method": "elicitation/create", "params": {"message": "[too long to be read]"}});
            }
            Some("elicitation/create") => {}
            Some("roots/list") => {
                input.answers.insert(name.clone(), json!({ "roots": [] }));
            }
            other => {
                let what = other.unwrap_or("something without a name");
                return Outcome::Lost { why: format!("the tool asked for {what}, which this client does not offer") };
            }
        }
    }
    // With nothing to tell it there is no next round: that would be the call once more. A task is asked again how it stands.
    if requests.is_empty() && input.state.is_none() && task.is_none() {
        return Outcome::Lost { why: "the tool said that it needs something, and not what".to_owned() };
    }
    input.requests = requests;
    Outcome::Continues(Box::new(Handle { task, input: Some(input), ..Handle::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(result: Value) -> Handle {
        let outcome = completed(CALL, true, result);
        let Outcome::Continues(handle) = outcome else { panic!("{outcome:?}") };
        *handle
    }

    #[test]
    fn whoever_takes_no_post_may_speak_the_old_transport() {
        let why = |status| not_shaken(Unanswered::Status(status, format!("HTTP status {status}")));
        assert!(why(404).contains("HTTP status 404 (if this") && why(405).contains("`mcp-remote`"), "{}", why(404));
        assert_eq!(why(403), "HTTP status 403");
        assert_eq!(not_shaken(Unanswered::Broken("gone".to_owned())), "gone");
    }

    #[test]
    fn only_a_final_result_is_a_reply() {
        let last = json!({"resultType": "complete", "content": []});
        assert_eq!(completed(CALL, true, last.clone()), Outcome::Raw(RawReply::ToolResult { result: last }));
        let own = json!({"content": [], "task": {"taskId": "x"}});
        assert_eq!(
            completed(CALL, true, own.clone()),
            Outcome::Raw(RawReply::ToolResult { result: own }),
            "a field of the tool's own"
        );
        assert!(matches!(completed(CALL, true, json!({"resultType": "task"})), Outcome::Lost { .. }));
    }

    #[test]
    fn what_asks_for_nothing_or_cannot_ask_is_no_round() {
        let is_lost = |outcome: Outcome| matches!(outcome, Outcome::Lost { .. });
        for nothing in [
            json!({"resultType": "input_required"}),
            json!({"resultType": "input_required", "content": []}),
            json!({"resultType": "input_required", "inputRequests": {}, "requestState": 7}),
        ] {
            assert!(is_lost(completed(CALL, true, nothing.clone())), "{nothing}");
        }
        let roots = json!({"r": {"method": "roots/list"}});
        for asks in [
            json!({"resultType": "input_required", "requestState": "s"}),
            json!({"resultType": "input_required", "inputRequests": roots}),
        ] {
            assert!(matches!(completed(CALL, true, asks.clone()), Outcome::Continues(_)), "{asks}");
            assert!(is_lost(completed(CALL, false, asks.clone())), "{asks}: a session has no rounds");
            assert!(is_lost(completed("tasks/result", true, asks.clone())), "{asks}: a task that is over asks nothing");
        }
        let task = json!({"task": {"taskId": "t", "status": "working"}});
        assert!(is_lost(completed("tasks/result", false, task)), "nor does it begin another one");
    }

    #[test]
    fn a_kind_that_is_not_known_is_no_result_where_results_have_kinds() {
        for other in [json!({"resultType": "partial", "content": []}), json!({"resultType": null, "content": []})] {
            assert!(matches!(completed(CALL, true, other.clone()), Outcome::Lost { .. }), "{other}");
            let own = Outcome::Raw(RawReply::ToolResult { result: other.clone() });
            assert_eq!(completed(CALL, false, other), own, "a field of the server's own");
        }
    }

    #[test]
    fn a_task_of_either_era_is_something_to_go_on_with() {
        let new = handle(json!({"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 7}));
        let old = handle(json!({"task": {"taskId": "t", "status": "working", "pollInterval": 7}}));
        assert_eq!(new, old);
        assert_eq!((new.task.as_deref(), &new.place), (Some("t"), &json!({"poll_ms": 7})));
    }

    #[test]
    fn only_a_call_whose_refusal_names_an_address_is_gone_on_with() {
        let data = json!({"elicitations": [
            {"mode": "url", "elicitationId": "e", "url": "https://a.example/", "message": "sign in"}, {"message": "no address"},
        ]});
        let Outcome::Continues(asked) = refused(CALL, BY_ADDRESS, "first".into(), Some(&data)) else { panic!() };
        assert!(is_not_begun(&asked) && asked.outlives_its_process());
        let (name, request) = asked.open_request().unwrap();
        assert_eq!((name, &request["params"]["url"]), ("e", &json!("https://a.example/")));
        assert_eq!(asked.input.unwrap().requests.len(), 1);
        for (method, code, data) in [
            ("tasks/result", BY_ADDRESS, Some(&data)),
            (CALL, -32603, Some(&data)),
            (CALL, BY_ADDRESS, None),
            (CALL, BY_ADDRESS, Some(&json!({"elicitations": [{"url": 1}]}))),
            (CALL, BY_ADDRESS, Some(&json!("x"))),
        ] {
            let outcome = refused(method, code, "first".into(), data);
            assert_eq!(outcome, Outcome::Raw(RawReply::RpcError { code, message: "first".into() }));
        }
    }

    #[test]
    fn a_question_is_kept_with_the_servers_state_and_what_is_not_offered_is_not_answered() {
        let ask = json!({"method": "elicitation/create", "params": {"message": "?"}});
        let long = json!({"method": "elicitation/create", "params": {"message": "?".repeat(300_000)}});
        let declined = handle(json!({"resultType": "input_required", "inputRequests": {"long": long}})).input.unwrap();
        assert_eq!(declined.answers["long"], json!({"action": "decline"}));
        assert!(declined.requests["long"].to_string().len() < 200, "it is not kept");
        let asked = handle(json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
            "a": ask, "r": {"method": "roots/list"}}}));
        let input = asked.input.clone().unwrap();
        assert_eq!((input.state.as_deref(), input.round), (Some("s"), 1));
        assert_eq!(asked.open_request().unwrap().0, "a");
        assert_eq!(input.answers["r"], json!({"roots": []}));
        let model =
            json!({"resultType": "input_required", "inputRequests": {"m": {"method": "sampling/createMessage"}}});
        assert!(
            matches!(completed(CALL, true, model), Outcome::Lost { why } if why.contains("sampling/createMessage"))
        );
    }
}
