//! What a client whose requests stand for themselves hears of its own accord: it asks for it with a request that stays open.
//!
//! A tool server of its own era answers that request itself, under another number. For one of the older era, which tells whoever is connected,
//! what it says is handed to those who asked for it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::era::{Era, SUBSCRIPTION};
use crate::sync::lock;

/// The requests that are open.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<Vec<Subscription>>);

#[derive(Debug, Clone)]
struct Subscription {
    /// The bridge's name of the request.
    name: String,
    /// The client's number of it.
    id: Value,
    filter: Value,
    /// The number of it at the tool server, where it has one.
    upstream: Arc<Mutex<Option<u64>>>,
}

impl Subscription {
    fn wants(&self, message: &Value) -> bool {
        let tagged = &message["params"]["_meta"][SUBSCRIPTION];
        if let Some(upstream) = *lock(&self.upstream) {
            return tagged.as_u64().or_else(|| tagged.as_str()?.parse().ok()) == Some(upstream);
        }
        let asked = |what: &str| self.filter[what] == true;
        match message["method"].as_str().unwrap_or_default() {
            "notifications/tools/list_changed" => asked("toolsListChanged"),
            "notifications/prompts/list_changed" => asked("promptsListChanged"),
            "notifications/resources/list_changed" => asked("resourcesListChanged"),
            "notifications/resources/updated" => {
                let uris = self.filter["resourceSubscriptions"].as_array();
                uris.is_some_and(|uris| uris.contains(&message["params"]["uri"]))
            }
            _ => false,
        }
    }
}

/// Whether a message is one of those that are subscribed to.
pub(crate) fn is_subscribed(message: &Value) -> bool {
    let method = message["method"].as_str().unwrap_or_default();
    method.ends_with("/list_changed")
        || method == "notifications/resources/updated"
        || method == "notifications/subscriptions/acknowledged"
}

impl Connection {
    /// Hands what a tool server says to those who asked for it.
    pub(crate) fn publish(&self, message: &Value) {
        let subscriptions = lock(&self.subscriptions.0).clone();
        for subscription in subscriptions.iter().filter(|subscription| subscription.wants(message)) {
            self.tell_client(tagged(message.clone(), &subscription.id), Some(subscription.name.clone()));
        }
    }

    /// Ends all that are open; whoever wants to hear on asks anew.
    pub(crate) fn end_subscriptions(&self) {
        let names: Vec<String> = lock(&self.subscriptions.0).iter().map(|open| open.name.clone()).collect();
        for name in names {
            self.open.let_go_of(&name);
        }
    }

    /// Keeps a subscription open until the client ends it; what it is answered with then.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        name: &str,
        id: &Value,
        params: Value,
        cancel: &CancellationToken,
    ) -> Value {
        let upstream = Arc::new(Mutex::new(None));
        let filter = params["notifications"].clone();
        let own =
            Subscription { name: name.to_owned(), id: id.clone(), filter: filter.clone(), upstream: upstream.clone() };
        // It is known which era the tool server is of when it was greeted.
        if let Err(why) = self.upstream.discover(&self.client()).await {
            return json!({"error": {"code": -32603, "message": format!("the tool server did not answer: {why}")}});
        }
        lock(&self.subscriptions.0).push(own);
        let _over = Over { connection: self, name };
        let done = json!({"result": {"resultType": "complete", "_meta": {SUBSCRIPTION: id}}});
        if self.upstream.era() == Some(Era::Stateless) {
            let asked = self.upstream.relay("subscriptions/listen", params, |number| *lock(&upstream) = Some(number));
            return tokio::select! {
                answer = asked => match answer {
                    Ok(mut answer) => {
                        if answer["result"]["_meta"].get(SUBSCRIPTION).is_some() {
                            answer["result"]["_meta"][SUBSCRIPTION] = id.clone();
                        }
                        answer
                    }
                    Err(why) => json!({"error": {"code": -32603, "message": format!("the tool server did not answer: {why}")}}),
                },
                () = cancel.cancelled() => done,
            };
        }
        for uri in filter["resourceSubscriptions"].as_array().into_iter().flatten() {
            let _refused = self.upstream.relay("resources/subscribe", json!({"uri": uri}), |_| ()).await;
        }
        let acknowledged = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": filter}});
        self.tell_client(tagged(acknowledged, id), Some(name.to_owned()));
        cancel.cancelled().await;
        done
    }
}

/// Takes a subscription away when its request is over.
struct Over<'a> {
    connection: &'a Connection,
    name: &'a str,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        lock(&self.connection.subscriptions.0).retain(|subscription| subscription.name != self.name);
    }
}

/// The message with the client's number of the subscription.
fn tagged(mut message: Value, id: &Value) -> Value {
    if !message["params"].is_object() {
        message["params"] = json!({});
    }
    if !message["params"]["_meta"].is_object() {
        message["params"]["_meta"] = json!({});
    }
    message["params"]["_meta"][SUBSCRIPTION] = id.clone();
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hears_what_one_asked_for() {
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a://b"]});
        let own = Subscription { name: "01".into(), id: json!(7), filter, upstream: Arc::default() };
        let says = |method: &str, params: Value| json!({"method": method, "params": params});
        assert!(own.wants(&says("notifications/tools/list_changed", json!({}))));
        assert!(!own.wants(&says("notifications/prompts/list_changed", json!({}))));
        assert!(own.wants(&says("notifications/resources/updated", json!({"uri": "a://b"}))));
        assert!(!own.wants(&says("notifications/resources/updated", json!({"uri": "a://c"}))));
        let told = tagged(json!({"method": "notifications/tools/list_changed"}), &json!(7));
        assert_eq!(told["params"]["_meta"][SUBSCRIPTION], 7);

        *lock(&own.upstream) = Some(3);
        let theirs = says("notifications/prompts/list_changed", json!({"_meta": {SUBSCRIPTION: 3}}));
        assert!(own.wants(&theirs), "the tool server itself says whom it tells");
        assert!(!own.wants(&says("notifications/tools/list_changed", json!({"_meta": {SUBSCRIPTION: 4}}))));
    }
}
