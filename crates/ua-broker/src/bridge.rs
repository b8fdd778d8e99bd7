//! A client that came through a bridge: its lines, in both directions.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::aggregate::Aggregate;
use crate::broker::{Broken, Broker};
use crate::connection::{Connection, ToClient};
use crate::lines::{self, Unreadable};
use crate::wire::{BridgeLine, Hello};

/// Whom a client speaks with.
enum Peer {
    /// One tool server.
    One(Arc<Connection>),
    /// All of the user's.
    All(Arc<Aggregate>),
}

impl Peer {
    fn request(&self, name: String, is_first: bool, message: Value) {
        match self {
            Self::One(one) => one.request(name, is_first, message),
            Self::All(all) => all.request(name, is_first, message),
        }
    }

    async fn message(&self, message: Value) {
        match self {
            Self::One(one) => one.message(message).await,
            Self::All(all) => all.message(message).await,
        }
    }

    async fn delivered(&self, name: &str) {
        match self {
            Self::One(one) => one.delivered(name).await,
            Self::All(all) => all.delivered(name).await,
        }
    }

    async fn acknowledge(&self) {
        match self {
            Self::One(one) => one.acknowledge().await,
            Self::All(all) => all.acknowledge().await,
        }
    }

    async fn close(self, is_orderly: bool) {
        match self {
            Self::One(one) => one.close(is_orderly).await,
            Self::All(all) => all.close(is_orderly).await,
        }
    }
}

/// Serves a bridge until it has gone.
pub(crate) async fn serve(
    broker: Arc<Broker>,
    hello: Hello,
    lines: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
) -> Result<(), Broken> {
    let (out, outgoing) = mpsc::unbounded_channel();
    let says_again = hello.says_again;
    let peer = if hello.all {
        Peer::All(Aggregate::open(&broker, &hello, out.clone())?)
    } else {
        Peer::One(Connection::open(broker.clone(), hello, out.clone())?)
    };
    let writing = tokio::spawn(write_out(outgoing, write));
    let is_orderly = read(&broker, &peer, says_again, lines, &out).await;
    peer.close(is_orderly).await;
    writing.abort();
    Ok(())
}

/// Reads until the bridge has gone; whether its client went in an orderly way.
async fn read(
    broker: &Broker,
    peer: &Peer,
    says_again: bool,
    lines: BufReader<OwnedReadHalf>,
    out: &mpsc::UnboundedSender<ToClient>,
) -> bool {
    let mut lines = lines.lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = broker.closing.cancelled() => return false,
        };
        let Ok(Some(line)) = line else { return false };
        match BridgeLine::read(&line) {
            Some(BridgeLine::Request { name, message, is_again }) => {
                peer.acknowledge().await;
                match lines::message(message) {
                    Ok(message) => peer.request(name.to_owned(), says_again && !is_again, message),
                    Err(unreadable) => {
                        let (name, answer) = (name.to_owned(), Some(refused(&unreadable)));
                        let _gone = out.send(ToClient::Answer { name, answer });
                    }
                }
            }
            Some(BridgeLine::Message(message)) => match lines::message(message) {
                Ok(message) => peer.message(message).await,
                Err(unreadable) => {
                    let _gone = out.send(ToClient::Tell { message: refused(&unreadable), about: None });
                }
            },
            Some(BridgeLine::Delivered(name)) => peer.delivered(name).await,
            Some(BridgeLine::Gone { is_orderly }) => return is_orderly,
            None => tracing::debug!("a bridge sent a line that cannot be read"),
        }
    }
}

/// The answer to what cannot be read.
fn refused(unreadable: &Unreadable) -> Value {
    let message = format!("the message cannot be read: {}", unreadable.why);
    json!({"jsonrpc": "2.0", "id": unreadable.id, "error": {"code": -32700, "message": message}})
}

async fn write_out(mut outgoing: mpsc::UnboundedReceiver<ToClient>, mut write: OwnedWriteHalf) {
    while let Some(item) = outgoing.recv().await {
        let line = match item {
            ToClient::Answer { name, answer: Some(answer) } => format!("A {name} {answer}\n"),
            ToClient::Answer { name, answer: None } => format!("A {name} \n"),
            ToClient::Tell { message, .. } => format!("L {message}\n"),
        };
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
