//! Where clients come over HTTP: an address of this machine, who comes there, and their connections, one request after the other.
//!
//! An address that another program has is no reason to serve nobody: clients that come through bridges need none. It is said to all who ask, and
//! tried again until it is free. When the broker ends, whoever waits for an answer has it before, if it comes in time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::{Front, HttpSettings, refusal};
use crate::accepting;
use crate::broker::{Broken, Broker};
use crate::carrier::Watched;
use crate::peers::{self, Caller};
use crate::serve::DRAIN;
use crate::sync::lock;

/// How much of the time that the broker takes to end is for what comes behind the last answer.
const LAST: Duration = Duration::from_secs(1);
/// How often an address is tried that another program has.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked for sessions that nobody uses.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Listens, and serves whoever comes until the broker closes.
pub(crate) async fn listen(broker: &Arc<Broker>, settings: &HttpSettings) -> Result<(), Broken> {
    let failed = |error: std::io::Error| Broken::new(format!("listen on http://{}: {error}", settings.address));
    if !settings.address.ip().is_loopback() {
        return Err(Broken::new(format!(
            "listen on http://{}: it is not an address of this machine",
            settings.address
        )));
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
        Some(user) => format!("a program of another user (uid {user})"),
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
        let look_every = LOOK_EVERY.min(self.away_after);
        // However often somebody comes, it is looked.
        let mut look = std::pin::pin!(self.broker.env.clock.sleep(look_every));
        loop {
            tokio::select! {
                (stream, peer) = accepting::next(&listener, &self.broker.env) => {
                    // An event is small and somebody waits for it.
                    let _slower = stream.set_nodelay(true);
                    lines.spawn(self.clone().serve_line(stream, peer));
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
    async fn serve_line(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let caller = stream.local_addr().map_or(Caller::Untold, |own| peers::caller_at(peer, own));
        let is_ours = caller.may_be_ours();
        if !is_ours {
            tracing::warn!(?caller, "what is no program of this user wants to be served");
        }
        let (stream, carrier) = Watched::new(stream);
        let service = service_fn(|request| {
            let (front, carrier) = (self.clone(), carrier.clone());
            async move {
                if is_ours {
                    return Ok::<_, Infallible>(front.pass(request, &carrier).await);
                }
                Ok(refusal(StatusCode::FORBIDDEN, "only programs of the user whose gateway this is are served"))
            }
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
