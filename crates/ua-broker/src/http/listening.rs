//! Where clients come over HTTP: an address of this machine, who comes there, and their connections, one request after the other.
//!
//! An address that another program has is no reason to serve nobody: clients that come through bridges need none. It is said to all who ask, and
//! tried again until it is free. When the broker ends, whoever waits for an answer has it before, if it comes in time.
//!
//! What is no program of this user is closed as soon as it is there, and no more connections are open at once than leave most descriptors to those
//! who come through bridges.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use ua_core::Timestamp;

use super::{Front, HttpSettings, NOT_OURS};
use crate::accepting;
use crate::broker::{Broken, Broker};
use crate::carrier::Watched;
use crate::peers::{self, Ends};
use crate::serve::DRAIN;
use crate::sync::lock;

/// How much of the time that the broker takes to end is for what comes behind the last answer.
const LAST: Duration = Duration::from_secs(1);
/// How often an address is tried that another program has.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked for sessions that nobody uses.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The most connections that are open at once.
const MOST_LINES: usize = 1_024;
/// Which part of all descriptors these are. Each connection has two: its own, and that of whoever watches how it ends.
const PART_OF_DESCRIPTORS: u64 = 4;
/// How often it is said that somebody was turned away: whoever comes a thousand times a second fills no log.
const SAY_EVERY: Duration = Duration::from_mins(1);
/// What is told to whom there is no room for.
const NO_ROOM: &str =
    "as many connections are open at the gateway as it takes; close some, or give it a higher limit of open files";

/// Listens, and serves whoever comes until the broker closes.
pub(crate) async fn listen(broker: &Arc<Broker>, settings: &HttpSettings) -> Result<(), Broken> {
    let failed = |error: std::io::Error| Broken::new(format!("listen on http://{}: {error}", settings.address));
    if !settings.address.ip().is_loopback() {
        return Err(Broken::new(format!(
            "listen on http://{}: it is not an address of this machine",
            settings.address
        )));
    }
    if !peers::are_told() {
        let why = format!(
            "clients over HTTP are not served: this system does not say whose program connects to {} (/proc/net/tcp cannot be read), and a \
             token alone does not say it",
            settings.address
        );
        tracing::warn!("{why}");
        *lock(&broker.taken) = Some(why);
        return Ok(());
    }
    let front = Arc::new(Front {
        broker: broker.clone(),
        tokens: settings.tokens.clone(),
        kept: settings.sessions.clone(),
        sessions: Mutex::default(),
        standing: Mutex::default(),
        away_after: settings.away_after,
    });
    match bind(broker, settings.address).await.map_err(failed)? {
        Some(listener) => drop(tokio::spawn(front.serve(listener))),
        None => drop(tokio::spawn(front.serve_when_free(settings.address))),
    }
    Ok(())
}

/// Takes the address; `None` when another program has it.
async fn bind(broker: &Broker, wanted: SocketAddr) -> std::io::Result<Option<TcpListener>> {
    let listener = match TcpListener::bind(wanted).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let why = taken(wanted, peers::listener_at(wanted));
            if lock(&broker.taken).replace(why.clone()).as_ref() != Some(&why) {
                tracing::warn!("{why}");
            }
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let address = listener.local_addr()?;
    tracing::info!(%address, "clients over HTTP are served");
    *lock(&broker.address) = Some(address);
    *lock(&broker.taken) = None;
    Ok(Some(listener))
}

/// What it means that another program has the address.
fn taken(address: SocketAddr, holder: Option<u32>) -> String {
    let whose = match holder {
        Some(user) if user == rustix::process::geteuid().as_raw() => "another program of yours".to_owned(),
        Some(user) => format!("a program of another user ({})", ua_files::user_in_words(user)),
        None => "another program".to_owned(),
    };
    format!(
        "clients over HTTP are not served: {address} belongs to {whose}, which is told the token of each client that connects there. End \
         it, or let them connect to another address (`listen` in gateway.toml); make new tokens where it is not yours"
    )
}

impl Front {
    async fn serve_when_free(self: Arc<Self>, address: SocketAddr) {
        loop {
            tokio::select! {
                () = self.broker.env.clock.sleep(TRY_EVERY) => {}
                () = self.broker.closing.cancelled() => return,
            }
            match bind(&self.broker, address).await {
                Ok(Some(listener)) => return self.serve(listener).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, %address, "clients over HTTP cannot be served yet"),
            }
        }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let lines = TaskTracker::new();
        let mut turned_away = TurnedAway::default();
        let look_every = LOOK_EVERY.min(self.away_after);
        // However often somebody comes, it is looked.
        let mut look = std::pin::pin!(self.broker.env.clock.sleep(look_every));
        loop {
            tokio::select! {
                (stream, peer) = accepting::next(&listener, &self.broker.env) => {
                    match admit(&stream, peer, lines.len()) {
                        Ok(ends) => {
                            // An event is small and somebody waits for it.
                            let _slower = stream.set_nodelay(true);
                            lines.spawn(self.clone().serve_line(stream, ends));
                        }
                        Err((status, why)) => {
                            turned_away.note(self.broker.env.now(), why);
                            turn_away(stream, status, why);
                        }
                    }
                }
                () = look.as_mut() => {
                    self.tend().await;
                    look.set(self.broker.env.clock.sleep(look_every));
                }
                () = self.broker.closing.cancelled() => break,
            }
        }
        drop(listener);
        // Whoever waits for an answer has it before the broker ends, if it comes in time; then its line is closed.
        for session in self.all(|_| true) {
            session.end_standing();
        }
        lines.close();
        tokio::select! {
            () = lines.wait() => {}
            () = self.broker.env.clock.sleep(DRAIN.saturating_sub(LAST)) => {}
        }
        self.note_uses();
        for session in self.drained(|_| true) {
            session.close(false).await;
        }
    }

    /// Serves one connection of a client: request after request, and none any more once the broker ends.
    async fn serve_line(self: Arc<Self>, stream: TcpStream, ends: Ends) {
        let (stream, carrier) = Watched::new(stream);
        let service = service_fn(|request| {
            let (front, carrier) = (self.clone(), carrier.clone());
            async move { Ok::<_, Infallible>(front.pass(request, ends, &carrier).await) }
        });
        let line = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        let mut line = std::pin::pin!(line);
        let ended = tokio::select! {
            ended = line.as_mut() => ended,
            () = self.broker.closing.cancelled() => {
                line.as_mut().graceful_shutdown();
                line.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of a client ended badly");
        }
    }
}

/// The ends of a connection that is served; else with which status it is closed, and why. This is looked at before there is a task for it, so that
/// however many come at once, one of those who are not served is open.
fn admit(stream: &TcpStream, peer: SocketAddr, open: usize) -> Result<Ends, (StatusCode, &'static str)> {
    let Ok(own) = stream.local_addr() else { return Err((StatusCode::FORBIDDEN, NOT_OURS)) };
    let ends = Ends { peer, own };
    if !ends.caller().is_ours() {
        return Err((StatusCode::FORBIDDEN, NOT_OURS));
    }
    if open >= most_lines() {
        return Err((StatusCode::SERVICE_UNAVAILABLE, NO_ROOM));
    }
    Ok(ends)
}

/// How many connections are open at most, by the limit of descriptors as it is now.
fn most_lines() -> usize {
    let part = getrlimit(Resource::Nofile).current.map(|limit| limit / PART_OF_DESCRIPTORS);
    part.and_then(|part| usize::try_from(part).ok()).unwrap_or(MOST_LINES).min(MOST_LINES)
}

/// Tells somebody why it is not served, and closes: nothing is read, and nothing is waited for.
fn turn_away(stream: TcpStream, status: StatusCode, why: &str) {
    let length = why.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n");
    // Nothing was written to it yet, so this fits.
    let _told = stream.into_std().and_then(|mut stream| write!(stream, "{head}\r\n{why}"));
}

/// Those who were turned away since that was said last.
#[derive(Default)]
struct TurnedAway {
    said_at: Option<Timestamp>,
    unsaid: u64,
}

impl TurnedAway {
    fn note(&mut self, now: Timestamp, why: &str) {
        self.unsaid += 1;
        if self.said_at.is_none_or(|at| now.since(at) >= SAY_EVERY) {
            tracing::warn!(connections = self.unsaid, "closed without being served: {why}");
            *self = Self { said_at: Some(now), unsaid: 0 };
        }
    }
}
