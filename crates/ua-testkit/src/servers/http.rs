//! As much HTTP/1.1 as the receiving servers need: one request per connection, whole bodies, and a connection that can be
//! cut instead of answered, which the usual servers do not offer.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use ua_core::system;

/// What goes wrong with a request that would have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFault {
    /// Answers with this status; nothing happens.
    Refuse(u16),
    /// Reads the request and cuts the connection; nothing happens.
    CutBefore,
    /// Does what is asked and cuts the connection instead of answering.
    CutAfter,
    /// Does what is asked and answers with this status all the same.
    AnswerWrongly(u16),
    /// Does what is asked and answers with 200 and these words of JSON, whatever it did.
    Say(&'static str),
    /// Does what is asked and answers after this time.
    Slow(Duration),
    /// Reads the request and keeps the client waiting until it leaves; nothing happens.
    HoldBefore,
    /// Does what is asked and keeps the client waiting until it leaves.
    HoldAfter,
}

/// A request, read whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// What a connection gets.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(Answer),
    After(Duration, Answer),
    Cut,
    /// Nothing, until the client leaves.
    Hold,
}

impl Answer {
    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub(super) fn json(status: u16, value: &Value) -> Self {
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Self { status, headers, body: value.to_string().into_bytes() }
    }
}

impl HttpFault {
    /// How many of the first `count` requests are kept waiting.
    pub(super) fn held(faults: &BTreeMap<u64, Self>, count: u64) -> usize {
        faults.range(..=count).filter(|(_, fault)| matches!(fault, Self::HoldBefore | Self::HoldAfter)).count()
    }

    /// Plays the fault around `act`, which has the effect and says what to answer.
    pub(super) fn play(fault: Option<&Self>, act: impl FnOnce() -> Answer) -> Reply {
        match fault {
            None => Reply::Answer(act()),
            Some(Self::Refuse(status)) => Reply::Answer(Answer::empty(*status)),
            Some(Self::CutBefore) => Reply::Cut,
            Some(Self::CutAfter) => {
                act();
                Reply::Cut
            }
            Some(Self::AnswerWrongly(status)) => {
                act();
                Reply::Answer(Answer::empty(*status))
            }
            Some(Self::Say(words)) => {
                act();
                let headers = vec![("Content-Type", "application/json".to_owned())];
                Reply::Answer(Answer { status: 200, headers, body: words.as_bytes().to_vec() })
            }
            Some(Self::Slow(time)) => Reply::After(*time, act()),
            Some(Self::HoldBefore) => Reply::Hold,
            Some(Self::HoldAfter) => {
                act();
                Reply::Hold
            }
        }
    }
}

/// A server in this process; dropping it stops it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Serves on a free port.
    pub(super) async fn start<H>(handle: H) -> std::io::Result<Self>
    where
        H: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        Self::on(listen().await?, handle)
    }

    /// Serves on a listener that is there already, so that the handler can know its address.
    pub(super) fn on<H>(listener: TcpListener, handle: H) -> std::io::Result<Self>
    where
        H: Fn(&Request) -> Reply + Send + Sync + 'static,
    {
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(serve(listener, handle)) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn listen() -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
}

/// Serves until the listener fails.
pub(super) async fn serve<H>(listener: TcpListener, handle: H) -> std::io::Result<()>
where
    H: Fn(&Request) -> Reply + Send + Sync + 'static,
{
    let handle = Arc::new(handle);
    loop {
        let (stream, _) = listener.accept().await?;
        let handle = Arc::clone(&handle);
        // A client that dies in the middle is what these servers are for: its connection just ends.
        tokio::spawn(async move { converse(stream, handle.as_ref()).await.ok() });
    }
}

async fn converse(stream: TcpStream, handle: &(dyn Fn(&Request) -> Reply + Send + Sync)) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = read(&mut stream).await?;
    let answer = match handle(&request) {
        Reply::Cut => return Ok(()),
        Reply::Hold => return wait_until_gone(&mut stream).await,
        Reply::Answer(answer) => answer,
        Reply::After(time, answer) => {
            system::env().clock.sleep(time).await;
            answer
        }
    };
    let mut head = format!("HTTP/1.1 {} \r\nConnection: close\r\n", answer.status);
    if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    if request.method != "HEAD" {
        stream.write_all(&answer.body).await?;
    }
    stream.shutdown().await
}

/// Reads and says nothing until the client closes the connection.
pub(super) async fn wait_until_gone(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    tokio::io::copy(stream, &mut tokio::io::sink()).await.map(|_| ())
}

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut words = line.split_whitespace();
    let (method, target) = words.next().zip(words.next()).ok_or_else(broken)?;
    let (method, path) = (method.to_owned(), target.split('?').next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |text| text.parse::<usize>()).map_err(|_| broken())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Request { method, path, headers, body })
}
