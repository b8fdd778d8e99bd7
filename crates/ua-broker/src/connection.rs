//! One bridge: a client's connection to one tool server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use ua_core::{RunId, sha256};
use ua_dispatch::{Catalog, Rules};
use ua_store::Change;

use crate::ask::Reply;
use crate::broker::{Broken, Broker, Connected};
use crate::road::Road;
use crate::session::{HOLDER, Identity, InUse};
use crate::texts::Told;
use crate::upstream::{Launch, Reach, Upstream, spec};
use crate::wire::{BridgeLine, Hello};

/// A connection.
pub(crate) struct Connection {
    pub(crate) broker: Arc<Broker>,
    pub(crate) hello: Hello,
    pub(crate) project: String,
    /// Digest of how the tool server is reached.
    pub(crate) reach: String,
    upstream: Arc<Upstream>,
    out: mpsc::UnboundedSender<String>,
    client: Mutex<(String, String)>,
    sessions: AsyncMutex<HashMap<Identity, InUse>>,
    roads: AsyncMutex<HashMap<RunId, (InUse, Arc<Road>)>>,
    /// Answers that are on their way to the client, and that were written to it, with the session they are of.
    written: Mutex<HashMap<String, InUse>>,
    heard: Mutex<Vec<(String, InUse)>>,
    /// Requests under way, by the client's id.
    open: Mutex<HashMap<String, Open>>,
}

struct Open {
    cancel: CancellationToken,
    /// What it is called at the tool server, if it was passed on as it is.
    relayed: Arc<Mutex<Option<u64>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Serves a bridge until it has gone.
    pub(crate) async fn serve(
        broker: Arc<Broker>,
        hello: Hello,
        lines: BufReader<OwnedReadHalf>,
        write: OwnedWriteHalf,
    ) -> Result<(), Broken> {
        let secrets = hello.secret.iter().filter_map(|name| Some((name.clone(), hello.env.get(name)?.clone())));
        broker.redactor.learn(secrets);
        let (out, outgoing) = mpsc::unbounded_channel();
        let (to_client, from_server) = mpsc::unbounded_channel();
        let project = hello.project();
        let reach = sha256(hello.reach().to_string()).to_hex();
        let holder =
            RunId::parse(&format!("{HOLDER}{}", hello.bridge)).map_err(|error| Broken::new(error.to_string()))?;
        let launch = Launch {
            name: hello.name.clone(),
            reach: match &hello.url {
                Some(url) => Reach::Url { url: url.clone(), headers: hello.headers().map_err(Broken::new)? },
                None => Reach::Command { command: hello.command.clone(), env: hello.env.clone() },
            },
            horizon: broker.horizon.clone(),
            logins: broker.config.logins.clone(),
            cwd: hello.cwd.clone().into(),
            shim: broker.config.shim.clone(),
            locks: broker.config.locks.clone(),
            holder,
            stderr_log: broker.config.logs.join(format!("{}.stderr.log", hello.name)),
        };
        let upstream =
            Upstream::new(launch, broker.env.clone(), to_client).map_err(|error| Broken::new(error.to_string()))?;
        let connection = Arc::new(Self {
            client: Mutex::new(("?".to_owned(), String::new())),
            upstream: Arc::new(upstream),
            broker,
            project,
            reach,
            out,
            sessions: AsyncMutex::default(),
            roads: AsyncMutex::default(),
            written: Mutex::default(),
            heard: Mutex::default(),
            open: Mutex::default(),
            hello,
        });
        if let Some(handshake) = connection.hello.handshake.clone() {
            connection.greet(&handshake["params"]);
            connection.upstream.remember_handshake(&handshake);
        }
        connection.show("connection");
        let mut tasks = JoinSet::new();
        tasks.spawn(write_out(outgoing, write));
        tasks.spawn(connection.clone().pass_on(from_server));
        connection.clone().read(lines, &mut tasks).await;
        // Whoever waited here is gone; their calls go on.
        tasks.shutdown().await;
        connection.broker.connected().remove(&connection.hello.bridge);
        connection.leave().await;
        Ok(())
    }

    fn show(&self, identity: &'static str) {
        let shown = Connected {
            server: self.hello.name.clone(),
            client: self.client(),
            project: self.project.clone(),
            identity,
            parent: self.hello.parent,
        };
        self.broker.connected().insert(self.hello.bridge.clone(), shown);
    }

    pub(crate) fn client(&self) -> String {
        lock(&self.client).0.clone()
    }

    fn greet(&self, params: &Value) {
        let info = &params["clientInfo"];
        let word = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
        *lock(&self.client) = (word("name"), word("version"));
    }

    /// How long the client waits for an answer, less a tenth; `None` when it waits as long as it takes, or longer than we would.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let (name, version) = lock(&self.client).clone();
        let seconds = match (name.as_str(), version.as_str()) {
            ("claude-code" | "codex-mcp-client" | "goose" | "Visual Studio Code", _) => return None,
            ("mcp", "0.1.0") => 5,
            _ => 60,
        };
        Some(Duration::from_millis(seconds * 900))
    }

    async fn read(self: Arc<Self>, lines: BufReader<OwnedReadHalf>, tasks: &mut JoinSet<()>) {
        let mut lines = lines.lines();
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
                () = self.broker.closing.cancelled() => return,
            };
            let Ok(Some(line)) = line else { return };
            while tasks.try_join_next().is_some() {}
            match BridgeLine::read(&line) {
                Some(BridgeLine::Request(name, message)) => {
                    self.acknowledge().await;
                    self.clone().request(name, message, tasks);
                }
                Some(BridgeLine::Message(message)) => self.message(message).await,
                Some(BridgeLine::Delivered(name)) => self.delivered(name).await,
                Some(BridgeLine::Gone { is_orderly }) => {
                    if is_orderly {
                        self.acknowledge().await;
                    }
                    return;
                }
                None => tracing::debug!("a bridge said something that is no line of ours"),
            }
        }
    }

    fn request(self: Arc<Self>, name: &str, message: &str, tasks: &mut JoinSet<()>) {
        let Ok(mut message) = serde_json::from_str::<Value>(message) else { return };
        let (name, id) = (name.to_owned(), message["id"].take());
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let params = message["params"].take();
        let open = Open { cancel: CancellationToken::new(), relayed: Arc::default() };
        let (cancel, relayed) = (open.cancel.clone(), open.relayed.clone());
        lock(&self.open).insert(id.to_string(), open);
        tasks.spawn(async move {
            let key = id.to_string();
            if method == "tools/call" {
                self.call(&name, id, &params, &cancel).await;
            } else {
                let answer = self.other(&method, params, relayed).await;
                self.answer(&name, id, answer);
            }
            lock(&self.open).remove(&key);
        });
    }

    /// Any request but for a tool call: the client and the tool server speak with each other.
    async fn other(&self, method: &str, params: Value, relayed: Arc<Mutex<Option<u64>>>) -> Value {
        let answer = match method {
            "ping" => return json!({"result": {}}),
            // The older handshake is what both sides are offered.
            "server/discover" => return error(-32601, "there is no method server/discover"),
            "initialize" => {
                self.greet(&params);
                self.show("connection");
                self.upstream.initialize(params).await
            }
            _ => {
                let params = (!params.is_null()).then_some(params);
                self.upstream.relay(method, params.as_ref(), |id| *lock(&relayed) = Some(id)).await
            }
        };
        match answer {
            Ok(mut answer) => {
                if method == "tools/list" {
                    self.without_keys(&mut answer["result"]);
                }
                answer
            }
            Err(why) => error(-32603, &format!("the tool server did not answer: {why}")),
        }
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

    async fn call(self: &Arc<Self>, name: &str, id: Value, params: &Value, cancel: &CancellationToken) {
        let session = self.session(&params["_meta"]).await;
        let asked = match &session {
            Ok(session) => self.ask(name, params, session, cancel).await,
            Err(error) => Err(Broken::new(error.to_string())),
        };
        let answer = match asked {
            // Nothing more is sent for what was cancelled; the bridge forgets it.
            Ok(None) => {
                let _gone = self.out.send(format!("A {name} "));
                return;
            }
            Ok(Some(Reply::Result { result, is_final })) => {
                if let (Ok(session), true) = (session, is_final) {
                    lock(&self.written).insert(name.to_owned(), session);
                }
                json!({"result": result})
            }
            Ok(Some(Reply::Error { code, message })) => {
                if let Ok(session) = session {
                    lock(&self.written).insert(name.to_owned(), session);
                }
                error(code, &message)
            }
            Err(broken) => {
                tracing::warn!(error = %broken, "a tool call could not be taken up");
                let told = Told::Broken { why: broken.to_string() };
                json!({"result": told.as_result(None, &self.broker.config.person)})
            }
        };
        self.answer(name, id, answer);
    }

    fn answer(&self, name: &str, id: Value, mut answer: Value) {
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id;
        let _gone = self.out.send(format!("A {name} {answer}"));
    }

    /// What wants no answer, or is one.
    async fn message(&self, message: &str) {
        let Ok(message) = serde_json::from_str::<Value>(message) else { return };
        if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].to_string();
            let found = lock(&self.open).get(&id).map(|open| (open.cancel.clone(), *lock(&open.relayed)));
            let Some((cancel, relayed)) = found else { return };
            // Whoever asked for a tool goes away; the call goes on.
            cancel.cancel();
            if let Some(relayed) = relayed {
                let mut passed = message.clone();
                passed["params"]["requestId"] = json!(relayed);
                self.upstream.tell(&passed).await;
            }
        } else {
            self.acknowledge().await;
            self.upstream.tell(&message).await;
        }
    }

    /// An answer was written to the client.
    async fn delivered(&self, name: &str) {
        let Some(session) = lock(&self.written).remove(name) else { return };
        self.note(&session, vec![name.to_owned()], false).await;
        lock(&self.heard).push((name.to_owned(), session));
    }

    /// The client goes on, so it has what was written to it before.
    async fn acknowledge(&self) {
        let heard = std::mem::take(&mut *lock(&self.heard));
        for (name, session) in heard {
            self.note(&session, vec![name], true).await;
        }
    }

    async fn note(&self, session: &InUse, arrivals: Vec<String>, is_acknowledged: bool) {
        session.later(Change::Deliver { arrivals, is_acknowledged, at: self.broker.env.now() }).await;
    }

    async fn session(&self, meta: &Value) -> Result<InUse, Broken> {
        let identity = Identity::of(meta, &self.client(), &self.hello);
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&identity) {
            return Ok(session.again());
        }
        let session = self.broker.session(&self.project, &self.hello, &self.client(), &identity, &self.reach).await?;
        self.show(identity.level);
        sessions.insert(identity, session.again());
        Ok(session)
    }

    /// The road from a session to this connection's tool server.
    pub(crate) async fn road(&self, session: &InUse) -> Result<Arc<Road>, Broken> {
        let mut roads = self.roads.lock().await;
        // One that was let go and taken again has another lease.
        if let Some((_, road)) = roads.get(&session.run.run_id).filter(|(of, _)| of.lease == session.lease) {
            return Ok(road.clone());
        }
        let road = Arc::new(self.broker.road(session, &self.upstream).await?);
        roads.insert(session.run.run_id.clone(), (session.again(), road.clone()));
        Ok(road)
    }

    /// What the tool server says by itself, for the client.
    async fn pass_on(self: Arc<Self>, mut from_server: mpsc::UnboundedReceiver<Value>) {
        while let Some(message) = from_server.recv().await {
            if message["method"] == "notifications/tools/list_changed" {
                self.roads.lock().await.clear();
            }
            let _gone = self.out.send(format!("L {message}"));
        }
    }

    /// Lets go of everything. The tool server stays while a call is under way.
    async fn leave(self: Arc<Self>) {
        lock(&self.written).clear();
        lock(&self.heard).clear();
        self.roads.lock().await.clear();
        let sessions: Vec<InUse> = self.sessions.lock().await.drain().map(|(_, session)| session).collect();
        for session in sessions {
            session.flush().await;
        }
        let upstream = self.upstream.clone();
        drop(self);
        tokio::spawn(async move {
            upstream.idle().await;
            upstream.shut_down().await;
        });
    }
}

fn error(code: i64, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

async fn write_out(mut outgoing: mpsc::UnboundedReceiver<String>, mut write: OwnedWriteHalf) {
    while let Some(mut line) = outgoing.recv().await {
        line.push('\n');
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
