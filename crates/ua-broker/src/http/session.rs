//! A client over HTTP and its connection to one tool server.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::HeaderMap;
use serde_json::{Value, json};
use ua_core::Timestamp;
use ua_mcp::QueueReceiver;

use super::kept::KeptSession;
use super::streams::{EventName, Log, Reader};
use super::text_of;
use crate::batches::{self, Batches};
use crate::broker::{Broken, Broker, Way};
use crate::carrier::Carrier;
use crate::connection::Connection;
use crate::incoming::{self, Aside, Incoming, Judged, Request};
use crate::outgoing::ToClient;
use crate::posted::{Before, Came, Kinds, Posted};
use crate::queue::Place;
use crate::sync::lock;
use crate::wire::{Hello, Sits};

/// Of how many answers that were given the streams are kept.
const MOST_ENDED: usize = 64;

/// A session of a client that began with a handshake, or what serves one without sessions.
pub(super) struct HttpSession {
    pub(super) id: String,
    /// Whose token it came with.
    pub(super) who: String,
    pub(super) is_stateless: bool,
    connection: Arc<Connection>,
    streams: Mutex<Streams>,
    open: AtomicUsize,
    used_at: Mutex<Timestamp>,
    /// The revision that was agreed on.
    revision: Mutex<Option<String>>,
    batches: Batches,
}

struct Streams {
    next: u64,
    /// What belongs to no request.
    standing: Arc<Log>,
    logs: HashMap<u64, Arc<Log>>,
    /// Those of requests without an answer, by the request's name.
    waiting: HashMap<String, u64>,
    ended: VecDeque<u64>,
    /// What kinds of calls came.
    kinds: Kinds,
}

/// Whether a session is a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// It is.
    Now,
    /// There was one before, at this broker or an earlier one, and this is it.
    Again,
}

impl Streams {
    /// Where the answer to a request will stand that came under this name. `id` is that of a single request.
    fn waits(&mut self, name: &str, id: Option<&Value>, posted: Option<Posted>) -> Arc<Log> {
        let number = self.next;
        self.next += 1;
        let log = Log::new(number, Some(name.to_owned()), id.cloned(), posted);
        self.logs.insert(number, log.clone());
        self.waiting.insert(name.to_owned(), number);
        log
    }

    /// Where the answer to this very request will stand, if it came before, has none yet, and was not given up.
    fn under_way(&self, posted: &Posted) -> Option<Arc<Log>> {
        let waiting = self.waiting.values().filter_map(|number| self.logs.get(number));
        waiting
            .filter(|log| log.posted.as_ref() == Some(posted) && !log.is_given_up())
            .max_by_key(|log| log.number)
            .cloned()
    }

    /// Where the answer to a request will stand that has none.
    fn log_of(&self, name: &str) -> Option<Arc<Log>> {
        self.logs.get(self.waiting.get(name)?).cloned()
    }
}

impl HttpSession {
    /// Opens a connection to a tool server that is among the user's: for a client that comes, or for one that came to an earlier broker.
    pub(super) fn open(
        broker: &Arc<Broker>,
        id: String,
        of: &KeptSession,
        is_stateless: bool,
        begins: Begins,
    ) -> Result<Arc<Self>, Broken> {
        let mut hello = Hello::of_entry(broker, &of.who, &of.server, of.project.clone())?;
        hello.bridge.clone_from(&of.connection);
        hello.handshake = of.began_with.as_ref().map(|params| json!({"params": params}));
        let (out, outgoing) = ua_mcp::queue();
        let connection = Connection::open(broker.clone(), hello, out)?;
        // The streams of an earlier broker have other numbers.
        let first = broker.env.entropy.next_u64() >> 1;
        let standing = Log::new(first, None, None, None);
        let streams = Streams {
            next: first + 1,
            logs: HashMap::from([(first, standing.clone())]),
            standing,
            waiting: HashMap::new(),
            ended: VecDeque::new(),
            kinds: Kinds::of_session(begins == Begins::Now),
        };
        let session = Arc::new(Self {
            id,
            who: of.who.clone(),
            is_stateless,
            connection,
            streams: Mutex::new(streams),
            open: AtomicUsize::new(0),
            used_at: Mutex::new(broker.env.now()),
            revision: Mutex::new(of.revision.clone()),
            batches: Batches::default(),
        });
        broker.connections.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(hand_on(Arc::downgrade(&session), outgoing));
        Ok(session)
    }

    fn used(&self) {
        *lock(&self.used_at) = self.connection.broker.env.now();
        self.connection.shows_away(false);
    }

    /// When it was used last.
    pub(super) fn used_at(&self) -> Timestamp {
        if self.open.load(Ordering::Acquire) > 0 { self.connection.broker.env.now() } else { *lock(&self.used_at) }
    }

    /// Streams on which no answer is waited for end now.
    pub(super) fn end_standing(&self) {
        self.connection.end_subscriptions();
        lock(&self.streams).standing.say(None, true);
    }

    pub(super) fn is_idle_since(&self, now: Timestamp, life: Duration) -> bool {
        self.open.load(Ordering::Acquire) == 0
            && lock(&self.streams).waiting.is_empty()
            && now.since(*lock(&self.used_at)) >= life
    }

    /// Whether no stream of its client has been open for so long that it may have gone. What runs behind its requests goes on.
    pub(super) fn is_away_since(&self, now: Timestamp, after: Duration) -> bool {
        self.open.load(Ordering::Acquire) == 0 && now.since(*lock(&self.used_at)) >= after
    }

    /// Its client is not to be found: what its tool server asks is declined. One without sessions may be with a person to whom it put what it
    /// was told to come back with; what was not put to it is asked in vain.
    pub(super) async fn is_away(&self) {
        self.connection.shows_away(true);
        if !self.is_stateless {
            self.connection.nobody_is_there().await;
        }
        self.connection.leave_alone();
    }

    /// Somebody reads a stream from now on.
    fn opened(self: &Arc<Self>, _streams: &mut Streams, log: Arc<Log>, place: usize) -> Reader {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.connection.shows_stream(true);
        if self.is_stateless {
            self.connection.shows_alone();
        }
        log.opens();
        if let Some(request) = &log.request {
            self.connection.open.listens(request, true);
        }
        Reader::new(self.clone(), log, place)
    }

    /// Somebody does not any more. `is_done`: it was written to its end.
    pub(super) fn stream_closed(&self, log: &Log, is_done: bool) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.connection.shows_stream(false);
        self.used();
        // Nobody begins to read it between this and what is said of it.
        let _streams = lock(&self.streams);
        let is_read = log.closes();
        let Some(request) = log.request.as_ref().filter(|_| !is_done && !is_read) else { return };
        // A client of the newer era that closes a stream waits for nothing there any more; one of the older may take it up again.
        if self.is_stateless {
            log.gives_up();
            self.connection.open.let_go_of(request);
        } else {
            self.connection.open.listens(request, false);
        }
    }

    /// A request; whoever is given the reader hears its answer. One that is under way is not asked for again: its stream is read by one more.
    pub(super) async fn asked(self: &Arc<Self>, request: Request) -> Reader {
        self.used();
        let posted = self.posted(&request);
        // Before anything is waited for, and as one: what comes first has the place in front.
        let (place, came) = {
            let mut streams = lock(&self.streams);
            if let Some(log) = posted.as_ref().and_then(|posted| streams.under_way(posted)) {
                return self.opened(&mut streams, log, 0);
            }
            (self.connection.place(), self.came(&mut streams, posted.as_ref()))
        };
        self.goes_on([&came]).await;
        let own = self.connection.broker.env.uuid_v7();
        let name = posted.as_ref().map_or_else(|| own.clone(), |posted| posted.sending(&own));
        let mut streams = lock(&self.streams);
        let log = streams.waits(&name, Some(request.id()), posted);
        self.connection.request_at(place, name, came, request);
        self.opened(&mut streams, log, 0)
    }

    /// Several messages at once; whoever is given the reader hears their answers as one. `None` when none of them has one.
    pub(super) async fn asked_at_once(self: &Arc<Self>, messages: Vec<Judged>) -> Option<Reader> {
        self.used();
        // Before anything is waited for; what is no request leaves its place.
        let places: Vec<(Place<()>, Came)> = {
            let mut streams = lock(&self.streams);
            let taken = messages.iter().filter_map(|judged| match judged {
                Judged::Taken(incoming) => Some(incoming),
                Judged::Refused(_) | Judged::Dropped { .. } => None,
            });
            let comes = taken.map(|incoming| {
                let posted = match incoming {
                    Incoming::Request(request) => self.posted(request),
                    Incoming::Aside(_) => None,
                };
                (self.connection.place(), self.came(&mut streams, posted.as_ref()))
            });
            comes.collect()
        };
        self.goes_on(places.iter().map(|(_, came)| came)).await;
        let name = self.connection.broker.env.uuid_v7();
        let log = lock(&self.streams).waits(&name, None, None);
        let (taken, answer) = self.batches.open(&name, messages);
        for ((name, incoming), (place, came)) in taken.into_iter().zip(places) {
            match incoming {
                Incoming::Request(request) => self.connection.request_at(place, name, came, request),
                Incoming::Aside(aside) => self.connection.message(aside).await,
            }
        }
        let has_none = matches!(answer, Some(ToClient::Answer { answer: None, .. }));
        if let Some(answer) = answer {
            self.say(answer);
        }
        (!has_none).then(|| self.opened(&mut lock(&self.streams), log, 0))
    }

    /// What a tool call is known by, if it is posted again. Without the gateway's key no call is made.
    fn posted(&self, request: &Request) -> Option<Posted> {
        let key = request.is_call().then(|| self.connection.broker.own_key().ok()).flatten()?;
        Some(Posted::of(&key, &self.connection.hello.bridge, request.id(), request.params()))
    }

    /// How a request came.
    fn came(&self, streams: &mut Streams, posted: Option<&Posted>) -> Came {
        match posted {
            Some(posted) => Came::Posted {
                posted: posted.clone(),
                before: streams.kinds.comes(posted),
                written: self.connection.written(),
            },
            None => Came::Named { is_first: true },
        }
    }

    /// A session goes on one request after the other; those that share a client without sessions know nothing of each other, but what was written
    /// to it was written. Only of what may be sent again it is not known yet.
    async fn goes_on(&self, came: impl IntoIterator<Item = &Came>) {
        let is_again = |came: &Came| matches!(came, Came::Posted { before: Before::Here, .. });
        if !came.into_iter().any(is_again) {
            self.connection.acknowledge().await;
        }
    }

    /// What was agreed on when the session began.
    pub(super) fn agreed_on(&self, revision: Option<String>) {
        *lock(&self.revision) = revision;
    }

    /// Whether several messages may come as one.
    pub(super) fn has_batches(&self) -> bool {
        incoming::has_batches(lock(&self.revision).as_deref())
    }

    /// A message that wants no answer.
    pub(super) async fn told(&self, aside: Aside) {
        self.used();
        self.connection.message(aside).await;
    }

    /// The stream that belongs to no request, or the one that broke, from where it broke. One that is not kept any more is begun anew; if a
    /// request waits there for its answer, that is looked for by the request's name. `None` when nothing is called so.
    pub(super) fn reader_after(self: &Arc<Self>, last: Option<&str>) -> Option<Reader> {
        self.used();
        let last = last.map(EventName::parse);
        let mut streams = lock(&self.streams);
        let (log, place) = match last {
            None => (streams.standing.clone(), 0),
            Some(None) => return None,
            Some(Some(last)) => match (streams.logs.get(&last.stream), last.request) {
                (Some(log), _) => (log.clone(), last.place),
                (None, None) => (streams.standing.clone(), 0),
                (None, Some((name, id))) => {
                    let log = if let Some(log) = streams.log_of(&name) {
                        log
                    } else {
                        let log = streams.waits(&name, Some(&id), Posted::of_sending(&name));
                        self.connection.take_up(name, id);
                        log
                    };
                    (log, 0)
                }
            },
        };
        Some(self.opened(&mut streams, log, place))
    }

    /// A stream was written to its end, over this connection.
    pub(super) async fn written(&self, log: &Log, carrier: &Arc<Carrier>) {
        if let Some(request) = &log.request {
            self.connection.delivered(request, Some(carrier)).await;
        }
    }

    /// Whether a call's arguments are what its headers say, where the tool's schema marks them.
    pub(super) fn arguments_are_what_headers_say(&self, headers: &HeaderMap, params: &Value) -> Result<(), String> {
        let arguments = params["arguments"].as_object().cloned().unwrap_or_default();
        let tool = params["name"].as_str().unwrap_or_default();
        for (name, value) in self.connection.upstream.marked(tool, &arguments) {
            let said = text_of(headers, &name.to_ascii_lowercase()).and_then(ua_mcp::header_text);
            if said != ua_mcp::header_text(&value) {
                return Err(format!("`{name}` is not what the arguments say"));
            }
        }
        Ok(())
    }

    /// Ends it. In an orderly way its client has had what was written to it.
    pub(super) async fn close(&self, is_orderly: bool) {
        self.connection.clone().close(is_orderly).await;
        let streams = {
            let streams = lock(&self.streams);
            streams.logs.values().cloned().collect::<Vec<_>>()
        };
        for log in streams {
            log.say(None, true);
        }
        self.connection.broker.connections.fetch_sub(1, Ordering::AcqRel);
    }

    fn say(&self, item: ToClient) {
        let Some(item) = self.batches.gathered(item) else { return };
        let mut streams = lock(&self.streams);
        match item {
            ToClient::Answer { name, answer } => {
                let Some(number) = streams.waiting.remove(&name) else { return };
                if let Some(log) = streams.logs.get(&number) {
                    log.say(answer, true);
                }
                streams.ended.push_back(number);
                if streams.ended.len() > MOST_ENDED
                    && let Some(oldest) = streams.ended.pop_front()
                {
                    streams.logs.remove(&oldest);
                }
            }
            ToClient::Tell { message, about } => match about.and_then(|name| streams.log_of(batches::whole(&name))) {
                Some(log) => log.say(Some(message), false),
                None if self.is_stateless => {}
                None => streams.standing.say(Some(message), false),
            },
            ToClient::Here { .. } => {}
        }
    }
}

/// Hands what goes to the client to its streams, as long as there is a session.
async fn hand_on(session: std::sync::Weak<HttpSession>, mut outgoing: QueueReceiver<ToClient>) {
    while let Some(item) = outgoing.next().await {
        let Some(session) = session.upgrade() else { return };
        session.say(item);
    }
}

impl Hello {
    /// Of a client that only names one of the user's tool servers.
    pub(crate) fn of_entry(broker: &Broker, who: &str, server: &str, project: Option<String>) -> Result<Self, Broken> {
        let entry = broker.config.entries.get(server);
        let entry = entry.ok_or_else(|| Broken::new(format!("there is no tool server `{server}`")))?;
        let mut env = entry.env.clone();
        let mut secret = entry.secret.clone();
        let mut headers = Vec::new();
        for (place, (name, value)) in entry.headers.iter().enumerate() {
            // As a bridge sends it: a header's value is that of a variable, which is kept out of what is stored.
            let variable = format!("UA_HEADER_{place}");
            headers.push(format!("{name}: ${{{variable}}}"));
            secret.push(variable.clone());
            env.insert(variable, value.clone());
        }
        Ok(Self {
            wire: crate::wire::WIRE,
            bridge: broker.env.uuid_v7(),
            name: server.to_owned(),
            command: entry.command.clone(),
            url: entry.url.clone(),
            headers,
            cwd: entry.cwd.clone(),
            project: Some(project.unwrap_or_else(|| format!("http:{who}"))),
            parent: 0,
            secret,
            env,
            hints: std::collections::BTreeMap::new(),
            handshake: None,
            all: false,
            says_again: true,
            asks_first: false,
            asked: std::collections::BTreeMap::new(),
            patience: None,
            prefix: String::new(),
            way: Way::Http,
            principal: Some(who.to_owned()),
            // A person gave it the token: no tool server is given one.
            sits: Sits::Somebody,
        })
    }
}
