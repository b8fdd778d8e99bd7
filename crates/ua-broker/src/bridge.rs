//! A client that came through a bridge: its lines, in both directions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use ua_mcp::{QueueReceiver, QueueSender};

use crate::aggregate::Aggregate;
use crate::batches::Batches;
use crate::broker::{Broken, Broker};
use crate::connection::Connection;
use crate::ending::Lines;
use crate::incoming::{self, Aside, Incoming, Judged, Read, Refused, Request, has_batches, no_batches};
use crate::outgoing::{MOST_CARRIED, ToClient};
use crate::sync::lock;
use crate::wire::{BridgeLine, Hello};

/// Whom a client speaks with.
enum Peer {
    /// One tool server.
    One(Arc<Connection>),
    /// All of the user's.
    All(Arc<Aggregate>),
}

impl Peer {
    fn request(&self, name: String, is_first: bool, request: Request) {
        match self {
            Self::One(one) => one.request(name, is_first, request),
            Self::All(all) => all.request(name, is_first, request),
        }
    }

    async fn message(&self, aside: Aside) {
        match self {
            Self::One(one) => one.message(aside).await,
            Self::All(all) => all.message(aside).await,
        }
    }

    async fn delivered(&self, name: &str) {
        match self {
            Self::One(one) => one.delivered(name, None).await,
            Self::All(all) => all.delivered(name).await,
        }
    }

    /// How long the client waits for the answer to a call.
    fn patience(&self) -> Option<Duration> {
        match self {
            Self::One(one) => one.patience(),
            Self::All(all) => all.patience(),
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
    lines: Lines<BufReader<OwnedReadHalf>>,
    mut write: OwnedWriteHalf,
) -> Result<(), Broken> {
    // For whoever reads what the client keeps of its tool servers' words: it is said on the bridge's standard error.
    let taken = lock(&broker.taken).clone();
    if let Some(why) = taken {
        let _gone = write.write_all(format!("W {why}\n").as_bytes()).await;
    }
    let (out, outgoing) = ua_mcp::queue();
    let (says_again, asks_first) = (hello.says_again, hello.asks_first);
    let talk = Arc::new(Talk::of(&hello));
    let peer = if hello.all {
        Peer::All(Aggregate::open(&broker, &hello, out.clone())?)
    } else {
        Peer::One(Connection::open(broker.clone(), hello, out.clone())?)
    };
    if asks_first {
        out.put(ToClient::Here { within: peer.patience() });
    }
    let writing = tokio::spawn(write_out(outgoing, talk.clone(), write));
    let is_orderly = read(&broker, &peer, says_again, lines, &talk, &out).await;
    peer.close(is_orderly).await;
    writing.abort();
    Ok(())
}

/// What is known of a conversation on a bridge's lines.
#[derive(Default)]
struct Talk {
    batches: Batches,
    /// The revision that was agreed on: by the answer to `initialize`, or, with a client that an earlier broker greeted, as far as it is known.
    revision: Mutex<Option<String>>,
    /// Under which name the client's `initialize` came.
    greeting: Mutex<Option<String>>,
}

impl Talk {
    fn of(hello: &Hello) -> Self {
        let asked = hello.handshake.as_ref().and_then(|handshake| handshake["params"]["protocolVersion"].as_str());
        Self { revision: Mutex::new(asked.map(str::to_owned)), ..Self::default() }
    }

    fn has_batches(&self) -> bool {
        has_batches(lock(&self.revision).as_deref())
    }

    /// What is written of it, if it is whole.
    fn written(&self, item: ToClient) -> Option<ToClient> {
        if let ToClient::Answer { name, answer: Some(answer) } = &item
            && lock(&self.greeting).take_if(|greeting| greeting == name).is_some()
        {
            *lock(&self.revision) = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        }
        self.batches.gathered(item)
    }
}

/// Reads until the bridge has gone; whether its client went in an orderly way. What a line is, the bridge says nothing about: it is judged here.
async fn read(
    broker: &Broker,
    peer: &Peer,
    says_again: bool,
    mut lines: Lines<BufReader<OwnedReadHalf>>,
    talk: &Talk,
    out: &QueueSender<ToClient>,
) -> bool {
    loop {
        let line = tokio::select! {
            line = lines.next_text() => line,
            () = broker.closing.cancelled() => return false,
        };
        let Some(line) = line else { return false };
        match BridgeLine::read(&line) {
            Some(BridgeLine::Request { name, message, is_again }) => {
                peer.acknowledge().await;
                let is_first = says_again && !is_again;
                let said = match incoming::read(message.as_bytes()) {
                    Read::One(Judged::Taken(Incoming::Request(request))) => {
                        if request.method() == "initialize" {
                            *lock(&talk.greeting) = Some(name.to_owned());
                        }
                        peer.request(name.to_owned(), is_first, request);
                        continue;
                    }
                    // One that comes again was begun before, in a session that had batches.
                    Read::Batch(messages) if is_again || talk.has_batches() => {
                        let (taken, answer) = talk.batches.open(name, messages);
                        for (name, incoming) in taken {
                            match incoming {
                                Incoming::Request(request) => peer.request(name, is_first, request),
                                Incoming::Aside(aside) => peer.message(aside).await,
                            }
                        }
                        if let Some(answer) = answer {
                            out.put(answer);
                        }
                        continue;
                    }
                    read @ (Read::One(_) | Read::Batch(_)) => aside(peer, read).await,
                };
                out.put(ToClient::Answer { name: name.to_owned(), answer: said });
            }
            Some(BridgeLine::Message(message)) => {
                let said = aside(peer, incoming::read(message.as_bytes())).await;
                if let Some(message) = said {
                    out.put(ToClient::Tell { message, about: None });
                }
            }
            Some(BridgeLine::AreYouThere) => out.put(ToClient::Here { within: peer.patience() }),
            Some(BridgeLine::Delivered(name)) => peer.delivered(name).await,
            Some(BridgeLine::Gone { is_orderly }) => return is_orderly,
            None => tracing::debug!("a bridge sent a line that cannot be read"),
        }
    }
}

/// Takes what is no request; what is said to the client of it.
async fn aside(peer: &Peer, read: Read) -> Option<Value> {
    match read {
        Read::One(Judged::Taken(Incoming::Aside(aside))) => peer.message(aside).await,
        Read::One(Judged::Refused(refused)) => return Some(refused.as_message()),
        Read::One(Judged::Dropped { why, .. }) => tracing::warn!(why, "a message of a client was dropped"),
        // The bridge has no name for it, so nobody would send it again.
        Read::One(Judged::Taken(Incoming::Request(request))) => {
            let why = "the request is not written as one; nothing was sent".to_owned();
            return Some(Refused { id: request.id().clone(), code: -32600, why }.as_message());
        }
        Read::Batch(_) => return Some(no_batches().as_message()),
    }
    None
}

async fn write_out(mut outgoing: QueueReceiver<ToClient>, talk: Arc<Talk>, mut write: OwnedWriteHalf) {
    while let Some(item) = outgoing.next().await {
        let Some(item) = talk.written(item) else { continue };
        if write.write_all(&as_lines(item)).await.is_err() {
            return;
        }
    }
}

/// What is said to the bridge.
fn as_lines(item: ToClient) -> Vec<u8> {
    match item {
        ToClient::Answer { name, answer: Some(Value::Array(answers)) } => {
            let whole = line(&format!("A {name} "), &answers);
            if whole.len() <= MOST_CARRIED {
                return whole;
            }
            // Each fits alone, and its id says whose answer it is.
            let mut each: Vec<u8> = answers.iter().flat_map(|answer| line("L ", answer)).collect();
            each.extend_from_slice(format!("A {name} \n").as_bytes());
            each
        }
        ToClient::Answer { name, answer: Some(answer) } => line(&format!("A {name} "), &answer),
        ToClient::Answer { name, answer: None } => format!("A {name} \n").into_bytes(),
        ToClient::Tell { message, .. } => line("L ", &message),
        ToClient::Here { within } => {
            let within = within.map_or_else(|| "-".to_owned(), |within| within.as_millis().to_string());
            format!("Q {within}\n").into_bytes()
        }
    }
}

/// A line that ends with a message, which is written into it as it is made: by way of `Display` each of its words would pass a formatter.
fn line(begin: &str, message: &impl Serialize) -> Vec<u8> {
    let mut line = begin.as_bytes().to_vec();
    // The names in a JSON value are texts, and memory takes whatever is written to it.
    let _always = serde_json::to_writer(&mut line, message);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_stands_on_one_line_behind_what_it_is() {
        let name = || "01".to_owned();
        let said = json!({"z": 1.0, "a": ["\n", "ä", null, {"id": u64::MAX}]});
        let text = said.to_string();
        for (item, line) in [
            (ToClient::Answer { name: name(), answer: Some(said.clone()) }, format!("A 01 {text}\n")),
            (ToClient::Answer { name: name(), answer: None }, "A 01 \n".to_owned()),
            (ToClient::Answer { name: name(), answer: Some(json!([said, 1])) }, format!("A 01 [{text},1]\n")),
            (ToClient::Tell { message: said.clone(), about: None }, format!("L {text}\n")),
            (ToClient::Here { within: Some(Duration::from_secs(2)) }, "Q 2000\n".to_owned()),
            (ToClient::Here { within: None }, "Q -\n".to_owned()),
        ] {
            assert_eq!(String::from_utf8(as_lines(item)).unwrap(), line);
            assert_eq!(line.matches('\n').count(), 1);
        }
    }
}
