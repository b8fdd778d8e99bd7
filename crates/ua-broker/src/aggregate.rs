//! All of the user's tool servers as one, for clients that have room for few: `mail__send_email` is the tool `send_email` of `mail`.
//!
//! Each tool server keeps a connection of its own, with its own sessions, so that a call is the same call as through an entry of its own name.
//! Only tools are offered: what else a server has is named by addresses that mean something with it alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use ua_mcp::{Pages, QueueReceiver, QueueSender};

use crate::batches;
use crate::broker::{Broken, Broker, Way};
use crate::connection::Connection;
use crate::era;
use crate::incoming::{Aside, Request};
use crate::outgoing::ToClient;
use crate::sync::lock;
use crate::wire::Hello;

/// What stands between a server's name and its tool's.
const BETWEEN: &str = "__";

/// All tool servers, for one client.
pub(crate) struct Aggregate {
    parts: Vec<(String, Arc<Connection>)>,
    out: QueueSender<ToClient>,
    /// Requests that we made of the servers ourselves, by name.
    gathering: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    /// Which server answered a request of the client.
    answered: Mutex<HashMap<String, usize>>,
    /// Which server asked the client, by the id of the request, which no other one has.
    asked: Mutex<HashMap<String, usize>>,
    next: AtomicU64,
    tasks: Mutex<JoinSet<()>>,
}

impl Aggregate {
    /// Connects to each of the user's tool servers for the client of this bridge.
    pub(crate) fn open(broker: &Arc<Broker>, hello: &Hello, out: QueueSender<ToClient>) -> Result<Arc<Self>, Broken> {
        let (project, mut parts, mut sources) = (hello.project(), Vec::new(), Vec::new());
        for server in broker.config.entries.keys() {
            let mut own = Hello::of_entry(broker, "all", server, Some(project.clone()))?;
            own.bridge = format!("{}_{}", hello.bridge, parts.len());
            (own.parent, own.hints, own.handshake) = (hello.parent, hello.hints.clone(), hello.handshake.clone());
            (own.way, own.principal, own.sits) = (Way::Bridge, None, hello.sits);
            own.asked = hello.asked.clone();
            own.prefix = format!("{server}{BETWEEN}");
            let (to, from) = ua_mcp::queue();
            parts.push((server.clone(), Connection::open(broker.clone(), own, to)?));
            sources.push(from);
        }
        let all = Arc::new(Self {
            parts,
            out,
            gathering: Mutex::default(),
            answered: Mutex::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            tasks: Mutex::default(),
        });
        for (place, from) in sources.into_iter().enumerate() {
            all.spawn(all.clone().pass_on(place, from));
        }
        Ok(all)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// A request of the client.
    pub(crate) fn request(self: &Arc<Self>, name: String, is_first: bool, request: Request) {
        if request.is_call() {
            let id = request.id().clone();
            let called = request.params()["name"].as_str().unwrap_or_default().to_owned();
            let found = called.split_once(BETWEEN).and_then(|(server, tool)| {
                let place = self.parts.iter().position(|(own, _)| own == server)?;
                Some((place, tool.to_owned()))
            });
            let Some((place, tool)) = found else {
                let why = format!("there is no tool `{called}`; tools are named SERVER{BETWEEN}TOOL");
                return self.answer(name, id, json!({"error": {"code": -32602, "message": why}}));
            };
            lock(&self.answered).insert(name.clone(), place);
            return self.parts[place].1.request(name, is_first, request.of_tool(&tool));
        }
        let all = self.clone();
        self.spawn(async move {
            let (id, method, params) = request.into_parts();
            let answer = match method.as_str() {
                "ping" => json!({"result": {}}),
                "initialize" => all.initialize(&name, params).await,
                "server/discover" => all.discover(&name, params).await,
                "tools/list" => all.list(&name, params).await,
                _ => json!({"error": {"code": -32601, "message": format!("there is no method {method}")}}),
            };
            all.answer(name, id, answer);
        });
    }

    /// How long the client waits for the answer to a call.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.parts.first().and_then(|(_, part)| part.patience())
    }

    fn answer(&self, name: String, id: Value, mut answer: Value) {
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id;
        self.out.put(ToClient::Answer { name, answer: Some(answer) });
    }

    /// What wants no answer, or is one.
    pub(crate) async fn message(&self, aside: Aside) {
        if let Aside::Answer(answer) = aside {
            let asked = answer.id.as_str().and_then(|id| lock(&self.asked).remove(id));
            if let Some(place) = asked {
                self.parts[place].1.message(Aside::Answer(answer)).await;
            }
            return;
        }
        for (_, part) in &self.parts {
            part.message(aside.clone()).await;
        }
    }

    /// An answer was written to the client.
    pub(crate) async fn delivered(&self, name: &str) {
        // Of a batch there may be several.
        let mut places: Vec<usize> = lock(&self.answered)
            .extract_if(|answered, _| batches::whole(answered) == name)
            .map(|(_, place)| place)
            .collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            self.parts[place].1.delivered(name, None).await;
        }
    }

    /// The client goes on.
    pub(crate) async fn acknowledge(&self) {
        for (_, part) in &self.parts {
            part.acknowledge().await;
        }
    }

    /// The client has gone.
    pub(crate) async fn close(&self, is_orderly: bool) {
        for (_, part) in &self.parts {
            part.clone().close(is_orderly).await;
        }
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }

    /// What a server says, for the client.
    async fn pass_on(self: Arc<Self>, place: usize, mut from: QueueReceiver<ToClient>) {
        while let Some(item) = from.next().await {
            match item {
                ToClient::Answer { name, answer } => {
                    let gathering = lock(&self.gathering).remove(&name);
                    match (gathering, answer) {
                        (Some(gathering), answer) => drop(gathering.send(answer.unwrap_or_default())),
                        (None, answer) => self.out.put(ToClient::Answer { name, answer }),
                    }
                }
                ToClient::Tell { message, about } => {
                    if let Some(id) = message["id"].as_str() {
                        lock(&self.asked).insert(id.to_owned(), place);
                    }
                    self.out.put(ToClient::Tell { message, about });
                }
                // Its own bridge is none of a server's.
                ToClient::Here { .. } => {}
            }
        }
    }

    /// One request to one server.
    async fn ask(&self, place: usize, name: &str, method: &'static str, params: &Value) -> Value {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}_{place}_{number}");
        let (answered, answer) = oneshot::channel();
        lock(&self.gathering).insert(name.clone(), answered);
        let request = Request::own(&name, method, params);
        self.parts[place].1.request(name, true, request);
        answer.await.unwrap_or_default()
    }

    /// One request to all servers, at once; each with its answer.
    async fn ask_all(&self, name: &str, method: &'static str, params: &Value) -> Vec<(&str, Value)> {
        let asks = (0..self.parts.len()).map(|place| self.ask(place, name, method, params));
        let answers = futures_util::future::join_all(asks).await;
        self.parts.iter().map(|(server, _)| server.as_str()).zip(answers).collect()
    }

    async fn initialize(&self, name: &str, params: Value) -> Value {
        let wanted = params["protocolVersion"].as_str().unwrap_or_default().to_owned();
        let answers = self.ask_all(name, "initialize", &params).await;
        let version = answers.iter().filter_map(|(_, answer)| answer["result"]["protocolVersion"].as_str()).min();
        let version = version.map_or_else(|| wanted.as_str().min(era::NEWEST_HANDSHAKE).to_owned(), str::to_owned);
        let mut result = Self::about(&answers);
        result["protocolVersion"] = json!(version);
        result["capabilities"] = json!({"tools": {"listChanged": true}});
        result["serverInfo"] = own_name();
        json!({"result": result})
    }

    async fn discover(&self, name: &str, params: Value) -> Value {
        if let Some((code, why, data)) = era::refused("server/discover", &params) {
            return json!({"error": {"code": code, "message": why, "data": data}});
        }
        let answers = self.ask_all(name, "server/discover", &params).await;
        let mut result = era::discovery(&json!({"capabilities": {"tools": {}}, "serverInfo": own_name()}));
        if let (Some(result), Value::Object(about)) = (result.as_object_mut(), Self::about(&answers)) {
            result.extend(about);
        }
        json!({"result": result})
    }

    /// What the servers say about themselves, and which of them are not there.
    fn about(answers: &[(&str, Value)]) -> Value {
        let mut words = Vec::new();
        for (server, answer) in answers {
            match (answer["result"]["instructions"].as_str(), answer["error"]["message"].as_str()) {
                (Some(says), _) => words.push(format!("{server}: {says}")),
                (None, Some(why)) => words.push(format!("{server} is not there: {why}")),
                (None, None) => {}
            }
        }
        if words.is_empty() { json!({}) } else { json!({"instructions": words.join("\n")}) }
    }

    /// The tools of all, whole: a server that does not answer has none.
    async fn list(&self, name: &str, params: Value) -> Value {
        let lists = (0..self.parts.len()).map(|place| self.tools_of(place, name, &params));
        let tools: Vec<Value> = futures_util::future::join_all(lists).await.into_iter().flatten().collect();
        let mut answer = json!({"result": {"tools": tools}});
        if era::era_of(&params) == era::Era::Stateless {
            era::to_stateless("tools/list", &mut answer, Some(&own_name()));
        }
        answer
    }

    async fn tools_of(&self, place: usize, name: &str, params: &Value) -> Vec<Value> {
        let mut tools = Pages::of("tools");
        let mut cursor = Value::Null;
        loop {
            let mut own = params.as_object().cloned().unwrap_or_default();
            own.remove("cursor");
            if !cursor.is_null() {
                own.insert("cursor".to_owned(), cursor);
            }
            let mut page = self.ask(place, name, "tools/list", &Value::Object(own)).await;
            // What is no object has no name that could be written anew, and is no tool.
            let Some(Value::Object(page)) = page.get_mut("result") else { break };
            let mut renamed = Vec::new();
            for tool in page.get_mut("tools").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default() {
                let Value::Object(mut tool) = tool else { continue };
                let own = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                tool.insert("name".to_owned(), json!(format!("{}{BETWEEN}{own}", self.parts[place].0)));
                renamed.push(Value::Object(tool));
            }
            match tools.add(renamed, page.remove("nextCursor").unwrap_or_default()) {
                Ok(Some(next)) => cursor = next,
                Ok(None) => break,
                Err(why) => {
                    tracing::warn!(server = self.parts[place].0, "only the beginning of its tools is listed: {why}");
                    break;
                }
            }
        }
        tools.into_items()
    }
}

fn own_name() -> Value {
    json!({"name": "ua gateway", "version": env!("CARGO_PKG_VERSION")})
}
