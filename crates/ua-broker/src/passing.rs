//! What client and tool server say to each other beside calls: it passes in the words of whichever era the other is of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use ua_dispatch::{Catalog, Rules};

use crate::connection::Connection;
use crate::era::{self, Client, Era};
use crate::incoming::{Answer, Aside, CANCELLED};
use crate::open_requests::Relayed;
use crate::outgoing::error;
use crate::subscriptions::is_subscribed;
use crate::sync::lock;
use crate::upstream::{Unanswered, is_about_tasks, spec, tells_of_tasks, withhold_task_support, withhold_tasks};

impl Connection {
    /// Any request but for a tool call: the client and the tool server speak with each other.
    pub(crate) async fn other(self: &Arc<Self>, method: &str, params: Value, relayed: Relayed) -> Value {
        let answer = match method {
            "ping" => return json!({"result": {}}),
            // A task is the gateway's to follow: its client has none.
            _ if is_about_tasks(method) => return error(-32601, &format!("there is no method {method}"), Value::Null),
            "server/discover" => self.upstream.discover(&self.client()).await.map(as_declared),
            "initialize" => {
                self.greet(Era::Handshake, Client::of_handshake(&params));
                self.upstream.initialize(params).await.map(as_declared)
            }
            "resources/subscribe" | "resources/unsubscribe" if self.upstream.era() == Some(Era::Stateless) => {
                let uri = params["uri"].as_str().unwrap_or_default();
                if method == "resources/subscribe" {
                    self.listen(uri, json!({"resourceSubscriptions": [uri]}));
                } else if let Some(cancel) = lock(&self.listening).remove(uri) {
                    cancel.cancel();
                }
                return json!({"result": {}});
            }
            _ => self.upstream.relay(method, params, |id| *lock(&relayed) = Some(id)).await,
        };
        match answer {
            Ok(mut answer) => {
                if method == "tools/list" {
                    self.upstream.note_schemas(&answer["result"]);
                    self.without_keys(&mut answer["result"]);
                    withhold_task_support(&mut answer["result"]);
                }
                answer
            }
            Err(why @ Unanswered::NotSent(_)) => {
                error(-32603, &format!("the tool server could not be reached: {why}"), Value::Null)
            }
            Err(why) => error(-32603, &format!("the tool server did not answer: {why}"), Value::Null),
        }
    }

    /// Listens for a client that began with a handshake to what a tool server of the newer era only tells who asks.
    pub(crate) fn listen(self: &Arc<Self>, what: &str, filter: Value) {
        let cancel = CancellationToken::new();
        if lock(&self.listening).insert(what.to_owned(), cancel.clone()).is_some() {
            return;
        }
        let connection = self.clone();
        self.spawn(async move {
            let number = Mutex::new(None);
            tokio::select! {
                _over = connection.upstream.relay("subscriptions/listen", json!({"notifications": filter}), |id| *lock(&number) = Some(id)) => {}
                () = cancel.cancelled() => {}
            }
            let number = *lock(&number);
            if let Some(number) = number.filter(|_| cancel.is_cancelled()) {
                connection.upstream.tell(&Aside::cancelled(number)).await;
            }
        });
    }

    /// Takes out of a list of tools the arguments that are not the model's to choose; all else stays as it came.
    fn without_keys(&self, page: &mut Value) {
        let Some(tools) = page.get_mut("tools").and_then(Value::as_array_mut) else { return };
        let specs = tools.iter().filter_map(|tool| spec(&self.hello.name, tool)).collect();
        let Ok(catalog) = Catalog::new(specs, &self.broker.classifier, &Rules::default()) else { return };
        let shown: HashMap<&str, &Value> =
            catalog.offers().map(|offer| (offer.name.as_str(), &offer.input_schema)).collect();
        for tool in tools {
            let name = format!("mcp__{}__{}", self.hello.name, tool["name"].as_str().unwrap_or_default());
            if let Some(schema) =
                shown.get(name.as_str()).filter(|schema| tool.get("inputSchema").is_some_and(|own| own != **schema))
            {
                tool["inputSchema"] = (*schema).clone();
            }
        }
    }

    /// What the tool server says by itself, for the client.
    pub(crate) async fn pass_on(self: Arc<Self>) {
        let mut from_server = self.from_server.lock().await;
        while let Some(message) = from_server.next().await {
            if message["method"] == "notifications/tools/list_changed" {
                self.upstream.tools_may_have_changed();
            }
            let is_request = message.get("id").is_some();
            if !is_request && tells_of_tasks(&message) {
                continue;
            }
            let message = if is_request {
                // Of a client that reads nothing, nothing more is asked.
                let id = if self.reads() { self.asked_as(&message) } else { None };
                let Some(id) = id else {
                    self.broker.answers_in_place(self.upstream.holder(), &message);
                    self.upstream.answer_for_nobody(&message).await;
                    continue;
                };
                let mut asked = message;
                asked["id"] = json!(id);
                asked
            } else if message["method"] == CANCELLED {
                self.takes_back(message)
            } else {
                message
            };
            match self.era() {
                Era::Handshake if self.upstream.era() == Some(Era::Stateless) && is_subscribed(&message) => {
                    if message["method"] != "notifications/subscriptions/acknowledged" {
                        self.tell_client(untagged(message), None);
                    }
                }
                Era::Handshake => {
                    let about = self.about(&message);
                    self.tell_client(message, about);
                }
                Era::Stateless if is_request => self.ask_whoever_called(message),
                Era::Stateless if is_subscribed(&message) => self.publish(&message),
                Era::Stateless => {
                    let about = self.about(&message);
                    if about.is_some() {
                        self.tell_client(message, about);
                    }
                }
            }
        }
    }

    /// Which request of the client a message is about.
    fn about(&self, message: &Value) -> Option<String> {
        if is_subscribed(message) { None } else { self.open.about(message) }
    }

    /// A request of a tool server of the older era, for a client that is asked by answering it.
    fn ask_whoever_called(self: &Arc<Self>, message: Value) {
        let connection = self.clone();
        self.spawn(async move {
            let live = {
                let live = lock(&connection.broker.live);
                let ours = live.values().filter(|live| live.holder == *connection.upstream.holder() && live.is_awaited());
                ours.max_by(|a, b| (a.since, &a.call).cmp(&(b.since, &b.call))).cloned()
            };
            let request = json!({"method": message["method"], "params": message.get("params").cloned().unwrap_or_else(|| json!({}))});
            let name = "asked";
            let answers = match live {
                Some(live) => live.ask_for(Map::from_iter([(name.to_owned(), request)]), &connection.broker.env).await,
                None => None,
            };
            let outcome = match answers.and_then(|mut answers| answers.remove(name)) {
                Some(result) => json!({"result": result}),
                None => error(-32601, "the client cannot be asked for that now", Value::Null),
            };
            let asked = message["id"].as_str().and_then(|id| lock(&connection.asked_by_server).remove(id));
            if let Some(asked) = asked {
                connection.upstream.tell(&Aside::Answer(Answer::new(asked["id"].clone(), outcome))).await;
            }
        });
    }
}

/// What a server says about itself, but for tasks, which are between it and the gateway; and that its client is told when its tools change: the
/// gateway looks at them again whenever the server was started again, whether or not that one tells such things.
fn as_declared(mut answer: Value) -> Value {
    if let Some(said) = answer.get_mut("result") {
        withhold_tasks(said);
    }
    if let Some(tools) = answer.pointer_mut("/result/capabilities/tools").and_then(Value::as_object_mut) {
        tools.insert("listChanged".to_owned(), Value::Bool(true));
    }
    answer
}

/// A message without the tool server's number of a subscription that the client knows nothing of.
fn untagged(mut message: Value) -> Value {
    if let Some(meta) = message["params"].get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(era::SUBSCRIPTION);
    }
    message
}
