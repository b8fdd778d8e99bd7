//! One client's connection to one tool server, whichever way it came: through a bridge, or over HTTP.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use ua_core::{QuestionId, RunId, Sha256, sha256};
use ua_dispatch::{Catalog, Rules};
use ua_store::{ArrivalRecord, ArrivalsOf, Change, GatewayStore as _};

use crate::ask::Reply;
use crate::batches;
use crate::broker::{Broken, Broker, Connected, Unanswerable, Way};
use crate::era::{self, Client, Era};
use crate::incoming::{Answer, Aside, CANCELLED, INITIALIZED, Request};
use crate::queue::{Place, Queue};
use crate::road::Road;
use crate::session::{HOLDER, Identity, InUse, wrong_names};
use crate::settings::Patience;
use crate::subscriptions::{Subscriptions, is_subscribed};
use crate::texts::Told;
use crate::upstream::{Launch, Reach, Unanswered, Upstream, lock, spec};
use crate::wire::Hello;

/// The longest answer that is handed to a bridge, which carries lines of 64 MiB with its own words in front of them.
pub(crate) const MOST_CARRIED: usize = 64 * 1024 * 1024 - 64 * 1024;

/// What goes to the client.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// The answer to the request of this name; `None` when the client wants none any more.
    Answer { name: String, answer: Option<Value> },
    /// Anything else, with the request that it is about, where there is one.
    Tell { message: Value, about: Option<String> },
}

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
    out: mpsc::UnboundedSender<ToClient>,
    /// Its requests in the order in which they were read. Its calls are told apart in this order, which is that of their turns.
    order: Arc<Queue<()>>,
    client: Mutex<(Era, Arc<Client>)>,
    sessions: AsyncMutex<HashMap<Identity, InUse>>,
    roads: AsyncMutex<HashMap<RunId, (InUse, Arc<Road>)>>,
    /// Answers that are on their way to the client, and that were written to it, with the session they are of.
    written: Mutex<HashMap<String, (String, InUse)>>,
    heard: Mutex<Vec<(String, InUse)>>,
    /// Requests under way, by the client's id.
    open: Mutex<HashMap<String, Open>>,
    tasks: Mutex<JoinSet<()>>,
    /// Our own requests to the client, by our id.
    pub(crate) asks: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    pub(crate) asked: AtomicU64,
    /// Requests of the tool server to the client, by its id: nothing else is answered there, and each of them is, by somebody.
    pub(crate) asked_by_server: Mutex<HashMap<String, Value>>,
    /// What the tool server says by itself.
    from_server: Arc<AsyncMutex<mpsc::UnboundedReceiver<Value>>>,
    /// Whether somebody sits in front of the client's dialogue, and what was not decided there.
    away: watch::Sender<Away>,
    pub(crate) subscriptions: Subscriptions,
    /// What is listened to at a tool server of the newer era for a client of the older one.
    listening: Mutex<HashMap<String, CancellationToken>>,
}

/// Whether somebody sits in front of a client's dialogue.
#[derive(Debug, Default)]
struct Away {
    is_nobody_there: bool,
    undecided: Vec<QuestionId>,
}

impl Away {
    fn is_in_vain(&self, question: &QuestionId) -> bool {
        self.is_nobody_there || self.undecided.contains(question)
    }
}

/// Who waits for a tool call.
pub(crate) struct Asker {
    /// The name under which its request came first.
    pub(crate) arrival: String,
    /// Nobody sent it before under this name.
    pub(crate) is_first: bool,
    /// Cancelled when the client wants no answer any more.
    pub(crate) cancel: CancellationToken,
    /// Whether the client has its end of the line in hand.
    pub(crate) listens: watch::Receiver<bool>,
}

struct Open {
    name: String,
    /// What the client calls it.
    id: Value,
    /// Of a tool call: the name under which it came first, and what it says. The same one that comes again before it is answered is no other.
    came_as: Option<(String, Sha256)>,
    cancel: CancellationToken,
    /// Whether the client has its end of the line in hand. One whose line was cut may take it up again, and waits for nothing until then.
    listens: watch::Sender<bool>,
    /// What it is called at the tool server, if it was passed on as it is.
    relayed: Arc<Mutex<Option<u64>>>,
    /// Under which token its client wants to hear how far it is.
    token: Value,
    /// Whether its client wants logs of it.
    wants_logs: bool,
    is_call: bool,
}

impl Connection {
    /// Opens a connection for a client that was let in. What goes to it, goes to `out`.
    pub(crate) fn open(
        broker: Arc<Broker>,
        hello: Hello,
        out: mpsc::UnboundedSender<ToClient>,
    ) -> Result<Arc<Self>, Broken> {
        broker.redactor.learn(hello.secrets());
        let (to_client, from_server) = mpsc::unbounded_channel();
        let project = hello.project();
        let reach = broker.server_id(&hello)?;
        let folder = hello.folder();
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
            secret: hello.secret.clone(),
        };
        let upstream = Upstream::new(launch, broker.env.clone(), broker.live.clone(), to_client)
            .map_err(|error| Broken::new(error.to_string()))?;
        let unknown = Arc::new(Client { name: "?".to_owned(), ..Client::default() });
        let connection = Arc::new(Self {
            client: Mutex::new((Era::Handshake, unknown)),
            upstream: Arc::new(upstream),
            broker,
            project,
            folder,
            reach,
            out,
            order: Arc::default(),
            sessions: AsyncMutex::default(),
            roads: AsyncMutex::default(),
            written: Mutex::default(),
            heard: Mutex::default(),
            open: Mutex::default(),
            tasks: Mutex::default(),
            asks: Mutex::default(),
            asked: AtomicU64::new(1),
            asked_by_server: Mutex::default(),
            from_server: Arc::new(AsyncMutex::new(from_server)),
            away: watch::Sender::default(),
            subscriptions: Subscriptions::default(),
            listening: Mutex::default(),
            hello,
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
        let shown = Connected {
            server: self.hello.name.clone(),
            client: self.client().name.clone(),
            project: self.project.clone(),
            identity,
            parent: self.hello.parent,
            way: self.hello.way,
        };
        self.broker.connected().insert(self.hello.bridge.clone(), shown);
    }

    /// Who it is.
    pub(crate) fn client(&self) -> Arc<Client> {
        lock(&self.client).1.clone()
    }

    /// How the client speaks.
    pub(crate) fn era(&self) -> Era {
        lock(&self.client).0
    }

    fn greet(&self, era: Era, client: Client) {
        *lock(&self.client) = (era, Arc::new(client));
        self.show("connection");
    }

    /// How long the client waits for an answer, less a tenth; `None` when it waits as long as it takes, or longer than we would.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let client = self.client();
        let seconds = match self.broker.config.rules.clients.get(&client.name).and_then(|rules| rules.patience) {
            Some(Patience::Unlimited) => return None,
            Some(Patience::Limited(span)) => return Some(span.mul_f64(0.9)),
            None => match (client.name.as_str(), client.version.as_str()) {
                ("claude-code" | "codex-mcp-client" | "goose" | "Visual Studio Code", _) => return None,
                ("mcp", "0.1.0") => 5,
                _ => 60,
            },
        };
        Some(Duration::from_millis(seconds * 900))
    }

    /// Whether a question is put in the client's dialogue in vain: nobody is there, or it was not decided there before.
    pub(crate) fn is_in_vain(&self, question: &QuestionId) -> bool {
        self.away.borrow().is_in_vain(question)
    }

    /// The client's dialogue did not decide a question; so quickly that nobody can have read it.
    pub(crate) fn was_not_decided(&self, question: &QuestionId, by_nobody: bool) {
        self.away.send_modify(|away| {
            away.is_nobody_there |= by_nobody;
            away.undecided.push(question.clone());
        });
    }

    /// Waits until the client's dialogue did not decide a question.
    pub(crate) async fn undecided(&self, question: Option<&QuestionId>) {
        let Some(question) = question else { return std::future::pending().await };
        if self.away.subscribe().wait_for(|away| away.is_in_vain(question)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn tell_client(&self, message: Value, about: Option<String>) {
        let _gone = self.out.send(ToClient::Tell { message, about });
    }

    /// The request of the client that came last and is not answered; a tool call, if there is one.
    pub(crate) fn newest_open(&self) -> Option<String> {
        lock(&self.open).values().max_by_key(|open| (open.is_call, &open.name)).map(|open| open.name.clone())
    }

    /// The place of a request that was read just now, behind those that were read before.
    pub(crate) fn place(&self) -> Place<()> {
        self.order.place(())
    }

    /// A request of the client that was read just now. `is_first`: nobody sent it before under this name.
    pub(crate) fn request(self: &Arc<Self>, name: String, is_first: bool, request: Request) {
        self.request_at(self.place(), name, is_first, request);
    }

    /// A request whose place was taken when it was read.
    pub(crate) fn request_at(self: &Arc<Self>, place: Place<()>, name: String, is_first: bool, request: Request) {
        let is_call = request.is_call();
        let (id, method, params) = request.into_parts();
        let era = if method == "initialize" { Era::Handshake } else { era::era_of(&params) };
        if era == Era::Stateless || method == "server/discover" {
            if let Some((code, why, data)) = era::refused(&method, &params) {
                return self.answer(&name, id, Era::Stateless, &method, error(code, &why, data));
            }
            let client = Client::of_request(&params["_meta"]);
            if self.era() != era || *self.client() != client {
                self.upstream.remember_client(&client);
                self.greet(era, client);
            }
        }
        let says = is_call.then(|| sha256(params.to_string()));
        let mut all = lock(&self.open);
        // A client has no two requests of one name open; without sessions several clients share this, and know nothing of each other's names.
        let again = all.values().filter(|open| era == Era::Handshake && open.id == id).find_map(|open| {
            let (came_as, said) = open.came_as.as_ref()?;
            (Some(*said) == says).then(|| came_as.clone())
        });
        let is_first = is_first && again.is_none();
        let arrival = again.unwrap_or_else(|| name.clone());
        let open = Open {
            name: name.clone(),
            id: id.clone(),
            came_as: says.map(|says| (arrival.clone(), says)),
            listens: watch::Sender::new(true),
            cancel: CancellationToken::new(),
            relayed: Arc::default(),
            token: params["_meta"]["progressToken"].clone(),
            wants_logs: era == Era::Handshake || params["_meta"].get(era::LOG_LEVEL).is_some(),
            is_call,
        };
        let (cancel, relayed) = (open.cancel.clone(), open.relayed.clone());
        let asker = Asker { arrival, is_first, cancel: cancel.clone(), listens: open.listens.subscribe() };
        all.insert(name.clone(), open);
        drop(all);
        let key = name.clone();
        let connection = self.clone();
        // Only calls have an order among each other.
        let place = is_call.then_some(place);
        self.spawn(async move {
            match (method.as_str(), place) {
                (_, Some(place)) => connection.call(name, id, era, &params, asker, place).await,
                ("subscriptions/listen", None) if era == Era::Stateless => {
                    let answer = connection.subscribe(&name, &id, params, &cancel).await;
                    connection.answer(&name, id, era, &method, answer);
                }
                (_, None) => {
                    let answer = connection.other(&method, params, relayed).await;
                    connection.answer(&name, id, era, &method, answer);
                }
            }
            lock(&connection.open).remove(&key);
        });
    }

    /// The client does not want the answer to this request any more.
    pub(crate) fn let_go_of(&self, name: &str) {
        for open in lock(&self.open).values().filter(|open| batches::whole(&open.name) == name) {
            open.cancel.cancel();
        }
    }

    /// The client's line for the answer to this request was cut, or taken up again.
    pub(crate) fn listens(&self, name: &str, listens: bool) {
        for open in lock(&self.open).values().filter(|open| batches::whole(&open.name) == name) {
            open.listens.send_replace(listens);
        }
    }

    /// Any request but for a tool call: the client and the tool server speak with each other.
    async fn other(self: &Arc<Self>, method: &str, params: Value, relayed: Arc<Mutex<Option<u64>>>) -> Value {
        let answer = match method {
            "ping" => return json!({"result": {}}),
            "server/discover" => self.upstream.discover(&self.client()).await.map(says_changes),
            "initialize" => {
                self.greet(Era::Handshake, Client::of_handshake(&params));
                self.upstream.initialize(params).await.map(says_changes)
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
    fn listen(self: &Arc<Self>, what: &str, filter: Value) {
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

    async fn call(self: &Arc<Self>, name: String, id: Value, era: Era, params: &Value, asker: Asker, place: Place<()>) {
        if let Some(why) = wrong_names(&params["_meta"]) {
            return self.answer(&name, id, era, "tools/call", error(-32602, &why, Value::Null));
        }
        let is_first = asker.is_first;
        place.is_first().await;
        let session = self.session(&params["_meta"]).await;
        let asked = match &session {
            Ok(session) => self.ask(&asker, params, session, place).await,
            Err(error) => Err(Unanswerable::Before(Broken::new(error.to_string()))),
        };
        let asked = asked.map_err(|error| if is_first { error } else { error.of_one_that_comes_again() });
        self.hand_back(name, id, era, asker.arrival, session.ok(), asked);
    }

    /// Takes up a call that an earlier broker was asked for, or whose answer is not at hand any more, by the name under which it came: its client
    /// waits for the answer anew.
    pub(crate) fn take_up(self: &Arc<Self>, name: String, id: Value) {
        let open = Open {
            name: name.clone(),
            id: id.clone(),
            came_as: None,
            listens: watch::Sender::new(true),
            cancel: CancellationToken::new(),
            relayed: Arc::default(),
            token: Value::Null,
            wants_logs: true,
            is_call: true,
        };
        let asker = Asker {
            arrival: name.clone(),
            is_first: false,
            cancel: open.cancel.clone(),
            listens: open.listens.subscribe(),
        };
        lock(&self.open).insert(name.clone(), open);
        let place = self.place();
        let connection = self.clone();
        self.spawn(async move {
            place.is_first().await;
            let (session, found) = connection.found_again(&asker, place).await;
            let found = found.map_err(Unanswerable::of_one_that_comes_again);
            connection.hand_back(name.clone(), id, Era::Handshake, asker.arrival, session, found);
            lock(&connection.open).remove(&name);
        });
    }

    /// Answers a request for a tool with what came of asking. `session`: that of the request, which owes its client the answer.
    fn hand_back(
        &self,
        name: String,
        id: Value,
        era: Era,
        arrival: String,
        session: Option<InUse>,
        asked: Result<Option<Reply>, Unanswerable>,
    ) {
        let answer = match asked {
            // Nothing more is sent for what was cancelled; the bridge forgets it.
            Ok(None) => {
                let _gone = self.out.send(ToClient::Answer { name, answer: None });
                return;
            }
            Ok(Some(Reply::Result { result, is_final })) => {
                // What could not be carried is delivered to nobody: it is owed to whoever asks again, and told in the same words.
                let is_final = is_final && self.too_long(&result).is_none();
                if let (Some(session), true) = (session, is_final) {
                    lock(&self.written).insert(name.clone(), (arrival, session));
                }
                json!({"result": result})
            }
            Ok(Some(Reply::Error { code, message, data })) => {
                if let Some(session) = session {
                    lock(&self.written).insert(name.clone(), (arrival, session));
                }
                error(code, &message, data)
            }
            Ok(Some(Reply::Refused { code, message })) => error(code, &message, Value::Null),
            Ok(Some(Reply::Wanted(wanted))) => json!({"result": wanted.as_result()}),
            Err(error) => {
                tracing::warn!(%error, "a tool call could not be answered");
                let why = error.to_string();
                let (told, call) = match error {
                    Unanswerable::Before(_) => (Told::Broken { why }, None),
                    Unanswerable::After { call, since, .. } => (Told::Unstored { since, why }, call),
                };
                json!({"result": told.as_result(call.as_ref(), &self.broker.config.person)})
            }
        };
        self.answer(&name, id, era, "tools/call", answer);
    }

    /// How long a value is, where the client's way does not carry it.
    fn too_long(&self, value: &Value) -> Option<usize> {
        let length = if self.hello.way == Way::Bridge { length(value) } else { 0 };
        (length > MOST_CARRIED).then_some(length)
    }

    fn answer(&self, name: &str, id: Value, era: Era, method: &str, mut answer: Value) {
        if let Some(length) = self.too_long(&answer) {
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
        let _gone = self.out.send(ToClient::Answer { name: name.to_owned(), answer: Some(answer) });
    }

    /// What wants no answer, or is one.
    pub(crate) async fn message(self: &Arc<Self>, aside: Aside) {
        if let Aside::Notification { method: CANCELLED, params } = &aside {
            let id = &params["requestId"];
            let mut found = None;
            for open in lock(&self.open).values().filter(|open| open.id == *id) {
                // Whoever asked for a tool goes away; the call goes on.
                open.cancel.cancel();
                found = *lock(&open.relayed);
            }
            if let Some(relayed) = found {
                let mut params = params.clone();
                params["requestId"] = json!(relayed);
                self.upstream.tell(&Aside::Notification { method: CANCELLED, params }).await;
            }
            return;
        }
        self.acknowledge().await;
        if let Aside::Answer(answer) = &aside {
            let own = answer.id.as_str().and_then(|id| lock(&self.asks).remove(id));
            if let Some(asked) = own {
                let _gone = asked.send(answer.result().map_or(Value::Null, |result| json!({"result": result})));
                return;
            }
            if lock(&self.asked_by_server).remove(&answer.id.to_string()).is_none() {
                tracing::warn!(id = %answer.id, "an answer of a client to nothing that was asked was dropped");
                return;
            }
        }
        let is_begun = matches!(aside, Aside::Notification { method: INITIALIZED, .. });
        self.upstream.tell(&aside).await;
        if is_begun && self.upstream.era() == Some(Era::Stateless) {
            let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
            self.listen("", all);
        }
    }

    /// An answer was written to the client.
    pub(crate) async fn delivered(&self, name: &str) {
        let of_name: Vec<_> =
            lock(&self.written).extract_if(|written, _| batches::whole(written) == name).map(|(_, of)| of).collect();
        for (arrival, session) in of_name {
            self.note(&session, vec![arrival.clone()], false).await;
            lock(&self.heard).push((arrival, session));
        }
    }

    /// The client goes on, so it has what was written to it before.
    pub(crate) async fn acknowledge(&self) {
        let heard = std::mem::take(&mut *lock(&self.heard));
        for (name, session) in heard {
            self.note(&session, vec![name], true).await;
        }
    }

    async fn note(&self, session: &InUse, arrivals: Vec<String>, is_acknowledged: bool) {
        session.later(Change::Deliver { arrivals, is_acknowledged, at: self.broker.env.now() }).await;
    }

    async fn session(&self, meta: &Value) -> Result<InUse, Broken> {
        let client = self.client();
        let hooked = self.broker.hooked(self.hello.parent);
        let identity = Identity::of(meta, &client.name, &self.hello, hooked.as_deref());
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
        if identity.is_connection() {
            self.heard_before(&session).await?;
        }
        sessions.insert(identity, session.again());
        Ok(session)
    }

    /// What an earlier broker wrote to this very client, which goes on now, so that it has it.
    async fn heard_before(&self, session: &InUse) -> Result<(), Broken> {
        let of = ArrivalsOf::Session(session.run.run_id.clone());
        let arrivals = self.broker.store.arrivals_of(of).await.map_err(Broken::at("read what was answered"))?;
        let is_unheard = |arrival: &ArrivalRecord| {
            let is_own = arrival.run_id == session.run.run_id;
            is_own && arrival.answered_at.is_some() && arrival.acknowledged_at.is_none()
        };
        let unheard = arrivals.into_iter().filter(is_unheard).map(|arrival| arrival.arrival_id);
        let unheard: Vec<String> = unheard.collect();
        if !unheard.is_empty() {
            self.note(session, unheard, true).await;
        }
        Ok(())
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

    /// What the tool server says by itself, for the client.
    async fn pass_on(self: Arc<Self>) {
        let mut from_server = self.from_server.lock().await;
        while let Some(message) = from_server.recv().await {
            if message["method"] == "notifications/tools/list_changed" {
                self.upstream.tools_may_have_changed();
            }
            let is_request = message.get("id").is_some();
            if is_request && !self.is_asked(&message) {
                self.upstream.answer_for_nobody(&message).await;
                continue;
            }
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
        let open = lock(&self.open);
        let newest = |of: &dyn Fn(&&Open) -> bool| {
            open.values().filter(of).max_by_key(|open| (open.is_call, &open.name)).map(|open| open.name.clone())
        };
        match message["method"].as_str().unwrap_or_default() {
            "notifications/progress" => {
                let token = &message["params"]["progressToken"];
                newest(&|open| open.token == *token && !token.is_null())
            }
            "notifications/message" => newest(&|open| open.wants_logs),
            _ if is_subscribed(message) => None,
            _ => newest(&|_| true),
        }
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
            if lock(&connection.asked_by_server).remove(&message["id"].to_string()).is_some() {
                connection.upstream.tell(&Aside::Answer(Answer::new(message["id"].clone(), outcome))).await;
            }
        });
    }

    /// The client has gone: nobody waits here any more, and what was under way goes on. In an orderly way it had what was written to it.
    pub(crate) async fn close(self: Arc<Self>, is_orderly: bool) {
        if is_orderly {
            self.acknowledge().await;
        }
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        self.broker.connected().remove(&self.hello.bridge);
        self.has_gone().await;
        self.leave().await;
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
        let (upstream, from_server) = (self.upstream.clone(), self.from_server.clone());
        drop(self);
        tokio::spawn(async move {
            tokio::select! {
                () = upstream.idle() => {}
                () = upstream.answer_all_for_nobody(&from_server) => {}
            }
            upstream.shut_down().await;
        });
    }
}

/// How many bytes a value has as text.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Nothing in it fails: a value is JSON, and counting takes all.
    let _counted = serde_json::to_writer(&mut count, value);
    count.0
}

/// What a server says about itself, and that its client is told when its tools change: the gateway looks at them again whenever the server was
/// started again, whether or not that one tells such things.
fn says_changes(mut answer: Value) -> Value {
    if let Some(tools) = answer.pointer_mut("/result/capabilities/tools").and_then(Value::as_object_mut) {
        tools.insert("listChanged".to_owned(), Value::Bool(true));
    }
    answer
}

fn error(code: i64, message: &str, data: Value) -> Value {
    let mut error = json!({"error": {"code": code, "message": message}});
    if !data.is_null() {
        error["error"]["data"] = data;
    }
    error
}

/// A message without the tool server's number of a subscription that the client knows nothing of.
fn untagged(mut message: Value) -> Value {
    if let Some(meta) = message["params"].get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(era::SUBSCRIPTION);
    }
    message
}
