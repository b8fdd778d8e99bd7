//! One client's connection to one tool server, whichever way it came: through a bridge, or over HTTP.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use ua_core::{CallId, RunId, Timestamp, json_length};
use ua_mcp::{QueueReceiver, QueueSender, goes_with_login, only_asks};

use crate::ask::{Answered, Reply};
use crate::batches;
use crate::broker::{Broken, Broker, Connected, Unanswerable, Way};
use crate::carrier::Carrier;
use crate::deliveries::{Deliveries, heard_before};
use crate::era::{self, Client, Era};
use crate::incoming::{Aside, CANCELLED, INITIALIZED, Request};
use crate::open_requests::{Asker, OpenRequests, Opened};
use crate::outgoing::{MOST_CARRIED, ToClient, error};
use crate::posted::Came;
use crate::presence::Presence;
use crate::queue::{Place, Queue};
use crate::road::Road;
use crate::session::{CONNECTION, HOLDER, Identity, InUse, UNKNOWN, wrong_names};
use crate::settings::Patience;
use crate::subscriptions::Subscriptions;
use crate::sync::lock;
use crate::texts::{Told, with_words};
use crate::upstream::{Launch, Reach, Upstream};
use crate::wire::Hello;

/// Clients that wait for an answer as long as it takes, or say that they do not any more, by what they call themselves.
pub const KNOWN_CLIENTS: [&str; 4] = ["claude-code", "codex-mcp-client", "goose", "Visual Studio Code"];

/// What is said of a request that is no tool call, may do something, and comes again because a broker went away that had it.
const HAD_BEFORE: &str = "an earlier broker had this request and may have passed it on; what came of it is not known, and it was not passed on again";

/// A connection.
pub(crate) struct Connection {
    pub(crate) broker: Arc<Broker>,
    pub(crate) hello: Hello,
    pub(crate) project: String,
    /// The folder that the client works in, under which earlier versions kept its calls.
    pub(crate) folder: String,
    /// Digest of which tool server it is.
    pub(crate) reach: String,
    pub(crate) upstream: Arc<Upstream>,
    out: QueueSender<ToClient>,
    /// Its requests in the order in which they were read. Its calls are told apart in this order, which is that of their turns.
    order: Arc<Queue<()>>,
    client: Mutex<(Era, Arc<Client>)>,
    sessions: AsyncMutex<HashMap<Identity, InUse>>,
    /// Since when it is here.
    opened_at: Timestamp,
    /// The sessions in which its client went on since then.
    went_on: AsyncMutex<HashSet<RunId>>,
    roads: AsyncMutex<HashMap<RunId, (InUse, Arc<Road>)>>,
    deliveries: Deliveries,
    pub(crate) open: OpenRequests,
    tasks: Mutex<JoinSet<()>>,
    /// Our own requests to the client, by our id.
    pub(crate) asks: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    pub(crate) asked: AtomicU64,
    /// Requests of the tool server to the client, by the id under which the client is asked: nothing else is answered there, and each of them is,
    /// by somebody.
    pub(crate) asked_by_server: Mutex<HashMap<String, Value>>,
    /// What the tool server says by itself.
    pub(crate) from_server: Arc<AsyncMutex<QueueReceiver<Value>>>,
    pub(crate) presence: Presence,
    pub(crate) subscriptions: Subscriptions,
    /// What is listened to at a tool server of the newer era for a client of the older one.
    pub(crate) listening: Mutex<HashMap<String, CancellationToken>>,
}

impl Connection {
    /// Opens a connection for a client that was let in. What goes to it, goes to `out`.
    pub(crate) fn open(broker: Arc<Broker>, hello: Hello, out: QueueSender<ToClient>) -> Result<Arc<Self>, Broken> {
        broker.redactor.learn(hello.secrets());
        let (to_client, from_server) = ua_mcp::queue();
        let project = hello.project();
        let reach = broker.server_id(&hello)?;
        let folder = hello.folder();
        let holder =
            RunId::parse(&format!("{HOLDER}{}", hello.bridge)).map_err(|error| Broken::new(error.to_string()))?;
        let server = match &hello.url {
            Some(url) => Reach::Url { url: url.clone(), headers: hello.headers().map_err(Broken::new)? },
            None => Reach::Command { command: hello.command.clone(), env: hello.env.clone() },
        };
        let has_login = match &server {
            Reach::Url { url, headers } => broker.config.logins.is_some() && goes_with_login(url, headers),
            Reach::Command { .. } => false,
        };
        let login_key = if has_login { Some(broker.own_key()?) } else { None };
        let launch = Launch {
            name: hello.name.clone(),
            reach: server,
            horizon: broker.horizon.clone(),
            logins: broker.config.logins.clone(),
            login_key,
            cwd: hello.cwd.clone().into(),
            shim: broker.config.shim.clone(),
            locks: broker.config.locks.clone(),
            holder,
            stderr_log: broker.config.logs.join(format!("{}.stderr.log", hello.name)),
            secret: hello.secret.clone(),
        };
        let upstream = Upstream::new(launch, broker.env.clone(), broker.live.clone(), to_client)
            .map_err(|error| Broken::new(error.to_string()))?;
        let unknown = Arc::new(Client { name: UNKNOWN.to_owned(), ..Client::default() });
        let connection = Arc::new(Self {
            client: Mutex::new((Era::Handshake, unknown)),
            upstream: Arc::new(upstream),
            project,
            folder,
            reach,
            out,
            order: Arc::default(),
            sessions: AsyncMutex::default(),
            opened_at: broker.env.now(),
            went_on: AsyncMutex::default(),
            roads: AsyncMutex::default(),
            deliveries: Deliveries::default(),
            open: OpenRequests::default(),
            tasks: Mutex::default(),
            asks: Mutex::default(),
            asked: AtomicU64::new(1),
            asked_by_server: Mutex::default(),
            from_server: Arc::new(AsyncMutex::new(from_server)),
            presence: Presence::default(),
            subscriptions: Subscriptions::default(),
            listening: Mutex::default(),
            hello,
            broker,
        });
        if let Some(handshake) = connection.hello.handshake.clone() {
            connection.greet(Era::Handshake, Client::of_handshake(&handshake["params"]));
            connection.upstream.remember_handshake(&handshake);
        }
        connection.show("connection");
        connection.spawn(connection.clone().pass_on());
        Ok(connection)
    }

    /// Does something that ends with the connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn show(&self, identity: &'static str) {
        let (server, client, project) = (self.hello.name.clone(), self.client().name.clone(), self.project.clone());
        let (parent, way) = (self.hello.parent, self.hello.way);
        let mut connected = self.broker.connected();
        let shown = connected.entry(self.hello.bridge.clone()).or_default();
        *shown = Connected { server, client, project, identity, parent, way, ..std::mem::take(shown) };
    }

    /// Notes that its client's requests stand for themselves.
    pub(crate) fn shows_alone(&self) {
        if let Some(shown) = self.broker.connected().get_mut(&self.hello.bridge) {
            shown.stands_alone = true;
        }
    }

    /// Its client has a stream open, or has it open no more.
    pub(crate) fn shows_stream(&self, is_open: bool) {
        if let Some(shown) = self.broker.connected().get_mut(&self.hello.bridge) {
            shown.streams = if is_open { shown.streams + 1 } else { shown.streams.saturating_sub(1) };
        }
    }

    /// Whether its client may have gone, for those who look.
    pub(crate) fn shows_away(&self, is_away: bool) {
        if let Some(shown) = self.broker.connected().get_mut(&self.hello.bridge) {
            shown.is_away = is_away;
        }
    }

    /// Who it is.
    pub(crate) fn client(&self) -> Arc<Client> {
        lock(&self.client).1.clone()
    }

    /// How the client speaks.
    pub(crate) fn era(&self) -> Era {
        lock(&self.client).0
    }

    pub(crate) fn greet(&self, era: Era, client: Client) {
        *lock(&self.client) = (era, Arc::new(client.kept(&self.broker.redactor)));
        self.show("connection");
    }

    /// How long the client waits for an answer, less a tenth; `None` when it waits as long as it takes, or longer than we would.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let client = self.client();
        let seconds = match self.broker.config.rules.clients.get(&client.name).and_then(|rules| rules.patience) {
            Some(Patience::Unlimited) => return None,
            Some(Patience::Limited(span)) => return Some(span.mul_f64(0.9)),
            None => match (self.hello.patience, client.name.as_str(), client.version.as_str()) {
                // A person wrote it down, or the client's own command did.
                (Some(seconds), ..) => u64::from(seconds),
                (None, name, _) if KNOWN_CLIENTS.contains(&name) => return None,
                (None, "mcp", "0.1.0") => 5,
                (None, ..) => 60,
            },
        };
        Some(Duration::from_millis(seconds * 900))
    }

    /// Within which time the client may give a request up without a word and ask again; `None` for one that says so, however long it waits.
    pub(crate) fn gives_up_within(&self) -> Option<Duration> {
        let client = self.client();
        let is_said = self.broker.config.rules.clients.get(&client.name).is_some_and(|rules| rules.patience.is_some());
        if !is_said && KNOWN_CLIENTS.contains(&client.name.as_str()) { None } else { self.patience() }
    }

    /// What is left of it for this one, who may have asked an earlier broker.
    pub(crate) fn patience_left(&self, asker: &Asker) -> Option<Duration> {
        let asked = self.hello.asked.get(batches::whole(&asker.name)).copied().unwrap_or_default();
        self.patience().map(|patience| patience.saturating_sub(Duration::from_millis(asked)))
    }

    /// Whether the client reads what it is told, as far as can be seen.
    pub(crate) fn reads(&self) -> bool {
        self.out.has_room()
    }

    pub(crate) fn tell_client(&self, message: Value, about: Option<String>) {
        self.out.put(ToClient::Tell { message, about });
    }

    /// The place of a request that was read just now, behind those that were read before.
    pub(crate) fn place(&self) -> Place<()> {
        self.order.place(())
    }

    /// A request of the client that was read just now, under a name of its own. `is_first`: nobody sent it before under this name.
    pub(crate) fn request(self: &Arc<Self>, name: String, is_first: bool, request: Request) {
        self.request_at(self.place(), name, Came::Named { is_first }, request);
    }

    /// A request whose place was taken when it was read.
    pub(crate) fn request_at(self: &Arc<Self>, place: Place<()>, name: String, came: Came, request: Request) {
        let is_call = request.is_call();
        let (id, method, params) = request.into_parts();
        let era = if method == "initialize" { Era::Handshake } else { era::era_of(&params) };
        if era == Era::Stateless || method == "server/discover" {
            if let Some((code, why, data)) = era::refused(&method, &params) {
                return self.answer(&name, id, Era::Stateless, &method, error(code, &why, data));
            }
            let client = Client::of_request(&params["_meta"]);
            if self.era() != era || *self.client() != client.clone().kept(&self.broker.redactor) {
                self.upstream.remember_client(&client);
                self.greet(era, client);
            }
        }
        let params = Arc::new(params);
        let Opened { asker, relayed } = self.open.open(&name, &id, era, &params, is_call, came);
        let key = name.clone();
        let connection = self.clone();
        // Only calls have an order among each other.
        let place = is_call.then_some(place);
        self.spawn(async move {
            match (method.as_str(), place) {
                (_, Some(place)) => connection.call(name, id, era, &params, asker, place).await,
                ("subscriptions/listen", None) if era == Era::Stateless => {
                    let answer = connection.subscribe(&name, &id, Arc::unwrap_or_clone(params), &asker.cancel).await;
                    connection.answer(&name, id, era, &method, answer);
                }
                // Nothing is stored of it, so nobody knows what became of it; and nobody knows what it does.
                (_, None) if matches!(asker.came, Came::Named { is_first: false }) && !only_asks(&method) => {
                    connection.answer(&name, id, era, &method, error(-32603, HAD_BEFORE, Value::Null));
                }
                (_, None) => {
                    let answer = connection.other(&method, Arc::unwrap_or_clone(params), relayed).await;
                    connection.answer(&name, id, era, &method, answer);
                }
            }
            connection.open.close(&key);
        });
    }

    async fn call(self: &Arc<Self>, name: String, id: Value, era: Era, params: &Value, asker: Asker, place: Place<()>) {
        if let Some(why) = wrong_names(&params["_meta"]) {
            return self.answer(&name, id, era, "tools/call", error(-32602, &why, Value::Null));
        }
        place.is_first().await;
        let session = self.session(&params["_meta"]).await;
        let asked = match &session {
            Ok(session) => self.ask(&asker, params, session, place).await,
            Err(error) => Err(self.unanswerable(params, Broken::new(error.to_string())).await),
        };
        let asked =
            asked.map_err(|error| if asker.came.may_be_known() { error.of_one_that_comes_again() } else { error });
        self.hand_back(name, id, era, session.ok(), asked);
    }

    /// Takes up a call that an earlier broker was asked for, or whose answer is not at hand any more, by the name under which it came: its client
    /// waits for the answer anew.
    pub(crate) fn take_up(self: &Arc<Self>, name: String, id: Value) {
        let Opened { asker, .. } = self.open.open_again(&name, &id);
        let place = self.place();
        let connection = self.clone();
        self.spawn(async move {
            place.is_first().await;
            let (session, found) = connection.found_again(&asker, place).await;
            let found = found.map_err(Unanswerable::of_one_that_comes_again);
            connection.hand_back(name.clone(), id, Era::Handshake, session, found);
            connection.open.close(&name);
        });
    }

    /// Answers a request for a tool with what came of asking. `session`: that of the request, which owes its client the answer.
    fn hand_back(
        &self,
        name: String,
        id: Value,
        era: Era,
        session: Option<InUse>,
        asked: Result<Answered, Unanswerable>,
    ) {
        let (asked, owed) = match asked {
            Ok(Answered { request, reply }) => {
                let is_final = |reply: &Reply| match reply {
                    Reply::Result { is_final, .. } | Reply::Told { is_final, .. } => *is_final,
                    Reply::Error { .. } => true,
                    Reply::Refused { .. } | Reply::Wanted(_) => false,
                };
                let is_owed = reply.as_ref().is_some_and(is_final);
                (Ok(reply), request.filter(|_| is_owed))
            }
            Err(error) => (Err(error), None),
        };
        let answer = match asked {
            // Nothing more is sent for what was cancelled; the bridge forgets it.
            Ok(None) => {
                self.out.put(ToClient::Answer { name, answer: None });
                return;
            }
            Ok(Some(Reply::Result { result, .. })) => json!({"result": result}),
            Ok(Some(Reply::Told { told, call, words, .. })) => {
                let result = self.told(&told, call.as_ref(), session.as_ref());
                let result = match words {
                    Some(words) => with_words(result, &words),
                    None => result,
                };
                json!({"result": result})
            }
            Ok(Some(Reply::Error { code, message, data })) => error(code, &message, data),
            Ok(Some(Reply::Refused { code, message })) => error(code, &message, Value::Null),
            Ok(Some(Reply::Wanted(wanted))) => json!({"result": wanted.as_result()}),
            Err(error) => {
                tracing::warn!(%error, "a tool call could not be answered");
                let why = error.to_string();
                let (told, call) = match error {
                    Unanswerable::Before(_) => (Told::Broken { why }, None),
                    Unanswerable::After { call, since, .. } => (Told::Unstored { since, why }, call),
                };
                json!({"result": self.told(&told, call.as_ref(), session.as_ref())})
            }
        };
        let (answer, is_carried) = self.as_carried(id.clone(), era, "tools/call", answer);
        // What could not be carried is delivered to nobody: it is owed to whoever asks again, and told in the same words.
        if let (Some(session), Some(request), true) = (session, owed, is_carried) {
            self.deliveries.begin(name.clone(), id, request, session);
        }
        self.out.put(ToClient::Answer { name, answer: Some(answer) });
    }

    /// What is told in the place of a result. Where its words say that the same call again returns what came of it, the session is owed that from
    /// here on.
    fn told(&self, told: &Told, call: Option<&CallId>, session: Option<&InUse>) -> Value {
        if let (true, Some(call), Some(session)) = (told.asks_again(), call, session) {
            self.broker.promises.make(&session.run.run_id, call, self.broker.env.now());
        }
        told.as_result(call, &self.broker.config.person)
    }

    fn answer(&self, name: &str, id: Value, era: Era, method: &str, answer: Value) {
        let (answer, _) = self.as_carried(id, era, method, answer);
        self.out.put(ToClient::Answer { name: name.to_owned(), answer: Some(answer) });
    }

    /// An answer as it goes to the client; `false` when the client's way does not carry it, and it only says so.
    fn as_carried(&self, id: Value, era: Era, method: &str, mut answer: Value) -> (Value, bool) {
        let length = if self.hello.way == Way::Bridge { json_length(&answer).unwrap_or(0) } else { 0 };
        let is_carried = length <= MOST_CARRIED;
        if !is_carried {
            answer = match method {
                "tools/call" => json!({"result": Told::TooLong { length }.as_result(None, &self.broker.config.person)}),
                _ => error(
                    -32603,
                    &format!("the tool server answered, and {}", crate::texts::too_long(length)),
                    Value::Null,
                ),
            };
        }
        match (era, self.upstream.era()) {
            (Era::Stateless, _) => era::to_stateless(method, &mut answer, self.upstream.server_info().as_ref()),
            (Era::Handshake, Some(Era::Stateless)) => era::to_handshake(method, &mut answer),
            (Era::Handshake, Some(Era::Handshake) | None) => {}
        }
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id;
        (answer, is_carried)
    }

    /// What wants no answer, or is one.
    pub(crate) async fn message(self: &Arc<Self>, aside: Aside) {
        if let Aside::Notification { method: CANCELLED, params } = &aside {
            // Whoever asked for a tool goes away; the call goes on.
            if let Some(relayed) = self.open.cancelled(&params["requestId"], &params["reason"]) {
                let mut params = params.clone();
                params["requestId"] = json!(relayed);
                self.upstream.tell(&Aside::Notification { method: CANCELLED, params }).await;
            }
            // It may have crossed the answer.
            self.deliveries.not_taken(&params["requestId"], &self.broker.env).await;
            return;
        }
        self.acknowledge().await;
        let mut aside = aside;
        if let Aside::Answer(answer) = &aside {
            let own = answer.id.as_str().and_then(|id| lock(&self.asks).remove(id));
            if let Some(asked) = own {
                let _gone = asked.send(answer.result().map_or(Value::Null, |result| json!({"result": result})));
                return;
            }
            let asked = answer.id.as_str().and_then(|id| lock(&self.asked_by_server).remove(id));
            let Some(asked) = asked else {
                tracing::warn!(id = %answer.id, "an answer of a client to nothing that was asked was dropped");
                return;
            };
            aside = Aside::Answer(answer.clone().of_request(asked["id"].clone()));
        }
        let is_begun = matches!(aside, Aside::Notification { method: INITIALIZED, .. });
        self.upstream.tell(&aside).await;
        if is_begun && self.upstream.era() == Some(Era::Stateless) {
            let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
            self.listen("", all);
        }
    }

    /// An answer was written to the client, over this connection if it has one of its own.
    pub(crate) async fn delivered(&self, name: &str, carrier: Option<&Arc<Carrier>>) {
        self.deliveries.wrote(name, carrier, &self.broker.env).await;
    }

    /// Whether the answer to what came under this name is known not to have been read, though it was written.
    pub(crate) fn is_unread(&self, arrival: &str) -> bool {
        self.deliveries.is_unread(arrival, self.broker.again_within(), self.broker.env.now())
    }

    /// The client goes on, so it has what was written to it before.
    pub(crate) async fn acknowledge(&self) {
        self.acknowledge_until(self.written()).await;
    }

    /// How many answers were written to the client by now.
    pub(crate) fn written(&self) -> u64 {
        self.deliveries.written()
    }

    /// The client went on when so many had been written.
    pub(crate) async fn acknowledge_until(&self, written: u64) {
        self.deliveries.acknowledge(written, self.broker.again_within(), &self.broker.env).await;
    }

    /// The client goes on in a session of which nothing is known but its connection: what earlier brokers wrote to it, it has.
    pub(crate) async fn goes_on(&self, session: &InUse) -> Result<(), Broken> {
        let run = &session.run.run_id;
        let mut went_on = self.went_on.lock().await;
        if session.record.identity == CONNECTION && !went_on.contains(run) {
            let is_all = heard_before(session, self.opened_at, self.broker.store.as_ref(), &self.broker.env).await?;
            if is_all {
                went_on.insert(run.clone());
            }
        }
        Ok(())
    }

    async fn session(&self, meta: &Value) -> Result<InUse, Broken> {
        let client = self.client();
        let hooked = self.broker.hooked(self.hello.parent);
        let identity = Identity::of(&self.broker.redactor, meta, &client.name, &self.hello, hooked.as_deref());
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&identity) {
            let run = session.run.run_id.clone();
            if !self.broker.has_ended(&run).await {
                return Ok(session.again());
            }
            // A person ended it, in another process. Its client goes on in the next one.
            sessions.remove(&identity);
            self.roads.lock().await.remove(&run);
        }
        let named = self.hello.principal.as_deref().unwrap_or(&client.name);
        let session = self.broker.session(&self.project, &self.hello, named, &identity, &self.reach).await?;
        self.show(identity.level);
        if let Some(shown) = self.broker.connected().get_mut(&self.hello.bridge) {
            shown.runs.insert(session.run.run_id.clone());
        }
        // Whoever comes through a bridge has what an earlier broker wrote to the bridge, which outlives brokers.
        if self.hello.way == Way::Bridge {
            self.goes_on(&session).await?;
        }
        sessions.insert(identity, session.again());
        Ok(session)
    }

    /// The road from a session to this connection's tool server, by the tools that it offers now. A server that cannot be looked at is not in
    /// the way of what needs none: nothing is sent to it unseen.
    pub(crate) async fn road(&self, session: &InUse) -> Result<Arc<Road>, Broken> {
        if let Err(why) = self.upstream.edition().await {
            tracing::debug!(why, "the tools of a server could not be looked at");
        }
        let mut roads = self.roads.lock().await;
        // One that was let go and taken again has another lease.
        if let Some((_, road)) = roads.get(&session.run.run_id).filter(|(of, _)| of.lease == session.lease)
            && road.listed.may_be_planned_by()
        {
            return Ok(road.clone());
        }
        let road = Arc::new(self.broker.road(session, &self.upstream).await?);
        roads.insert(session.run.run_id.clone(), (session.again(), road.clone()));
        Ok(road)
    }

    /// The client has gone: nobody waits here any more, and what was under way goes on. In an orderly way it had what was written to it.
    pub(crate) async fn close(self: Arc<Self>, is_orderly: bool) {
        if is_orderly {
            self.acknowledge().await;
        }
        // Before nobody waits any more, so that whoever comes next is not told apart from a client that is no longer there; and behind whoever may have
        // shown it meanwhile.
        self.broker.connected().remove(&self.hello.bridge);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        self.broker.connected().remove(&self.hello.bridge);
        self.has_gone().await;
        self.leave().await;
    }

    /// Lets go of everything. The tool server stays while a call is under way.
    async fn leave(self: Arc<Self>) {
        self.deliveries.end(self.broker.again_within(), &self.broker.env).await;
        self.roads.lock().await.clear();
        let sessions: Vec<InUse> = self.sessions.lock().await.drain().map(|(_, session)| session).collect();
        for session in sessions {
            session.flush().await;
        }
        let (upstream, from_server) = (self.upstream.clone(), self.from_server.clone());
        let broker = self.broker.clone();
        drop(self);
        tokio::spawn(async move {
            tokio::select! {
                () = upstream.idle() => {}
                () = upstream.answer_all_for_nobody(&from_server, |asks| broker.answers_in_place(upstream.holder(), asks)) => {}
            }
            upstream.shut_down().await;
        });
    }
}
