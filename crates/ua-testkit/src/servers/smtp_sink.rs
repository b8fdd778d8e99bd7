//! An SMTP server that keeps what it takes, and a page that says whether a Message-ID arrived.
//!
//! It forgets nothing and compares nothing: a message sent twice is there twice, as at a real relay.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use ua_core::system;

use super::http::{self, Answer, Reply, Request, Running, listen};
use super::tls::{Encryption, TlsIdentity, Wire};

/// What a [`SmtpSink`] does.
#[derive(Debug, Clone)]
pub struct SmtpSinkConfig {
    /// Where messages are kept: one `.eml` file each, with the envelope in front as `X-Envelope-…` lines.
    pub directory: PathBuf,
    /// User and password that a client has to sign in with; anybody may send when absent.
    pub credentials: Option<(String, String)>,
    /// Addresses that are not known here: naming one is answered with 550.
    pub unknown: Vec<String>,
    /// What goes wrong with the n-th connection, counted from 1.
    pub faults: BTreeMap<u64, SmtpFault>,
}

/// What goes wrong with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpFault {
    /// Answers 421 instead of a greeting and closes.
    RefuseConnection,
    /// Answers the text of the message with this code and keeps nothing.
    RefuseText(u16),
    /// Reads the text and closes without keeping it.
    CutBefore,
    /// Keeps the message and closes without an answer.
    WithholdAnswer,
    /// Keeps the message and answers after this time.
    Slow(Duration),
    /// Reads the text and keeps the client waiting until it leaves; nothing is kept.
    HoldBefore,
    /// Keeps the message and the client waiting until it leaves.
    HoldAfter,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct SmtpSink {
    /// Where to send: `127.0.0.1:PORT`.
    pub address: String,
    /// Where to ask: `http://127.0.0.1:PORT/messages/{message_id}`, with the place for the Message-ID.
    pub probe: String,
    sink: Arc<Sink>,
    task: JoinHandle<std::io::Result<()>>,
    _probe: Running,
}

#[derive(Debug)]
struct Sink {
    config: SmtpSinkConfig,
    tls: Option<(Encryption, TlsIdentity)>,
    connections: AtomicU64,
    held: AtomicU64,
    /// Whether the page answers 503; the mail side does not care.
    is_blind: std::sync::atomic::AtomicBool,
    writing: Mutex<()>,
}

impl SmtpSink {
    /// Starts both sides on free ports.
    ///
    /// # Errors
    /// When no port can be bound or the directory cannot be made.
    pub async fn start(config: SmtpSinkConfig) -> std::io::Result<Self> {
        Self::start_with(Sink::new(config)?).await
    }

    /// The same with TLS. Over STARTTLS mail is taken only once the connection is encrypted.
    ///
    /// # Errors
    /// When no port can be bound or the directory cannot be made.
    pub async fn start_encrypted(
        config: SmtpSinkConfig,
        encryption: Encryption,
        identity: TlsIdentity,
    ) -> std::io::Result<Self> {
        Self::start_with(Sink { tls: Some((encryption, identity)), ..Sink::new(config)? }).await
    }

    async fn start_with(sink: Sink) -> std::io::Result<Self> {
        let sink = Arc::new(sink);
        let listener = listen().await?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::clone(&sink);
        let probe = Running::start(move |request| shared.page(request)).await?;
        let task = tokio::spawn(serve_smtp(listener, Arc::clone(&sink)));
        Ok(Self {
            address,
            probe: format!("http://{}/messages/{{message_id}}", probe.address),
            sink,
            task,
            _probe: probe,
        })
    }

    /// Serves mail on `mail` and the page on `page` until one fails: for a server in a process of its own.
    ///
    /// # Errors
    /// When a listener fails or the directory cannot be made.
    pub async fn serve(mail: TcpListener, page: TcpListener, config: SmtpSinkConfig) -> std::io::Result<()> {
        let sink = Arc::new(Sink::new(config)?);
        let shared = Arc::clone(&sink);
        let pages = http::serve(page, move |request| shared.page(request));
        tokio::try_join!(serve_smtp(mail, sink), pages).map(|_| ())
    }

    /// How many messages of each Message-ID there are, without angle brackets.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn counts(&self) -> std::io::Result<BTreeMap<String, usize>> {
        counts(&self.sink.config.directory)
    }

    /// The messages, in order of arrival.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn messages(&self) -> std::io::Result<Vec<String>> {
        files(&self.sink.config.directory)?.iter().map(fs::read_to_string).collect()
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.sink.connections.load(Ordering::SeqCst)
    }

    /// Makes the page answer 503 from now on, or not any more.
    pub fn set_blind(&self, is_blind: bool) {
        self.sink.is_blind.store(is_blind, Ordering::SeqCst);
    }
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "eml"));
    files.sort();
    Ok(files)
}

fn counts(directory: &Path) -> std::io::Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for file in files(directory)? {
        let text = String::from_utf8_lossy(&fs::read(file)?).into_owned();
        let id = text.lines().take_while(|line| !line.is_empty()).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("message-id").then(|| value.trim().trim_matches(['<', '>']).to_owned())
        });
        *counts.entry(id.unwrap_or_default()).or_default() += 1;
    }
    Ok(counts)
}

impl Sink {
    fn new(config: SmtpSinkConfig) -> std::io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        Ok(Self {
            config,
            tls: None,
            connections: AtomicU64::new(0),
            held: AtomicU64::new(0),
            is_blind: false.into(),
            writing: Mutex::default(),
        })
    }

    fn page(&self, request: &Request) -> Reply {
        let Ok(counts) = counts(&self.config.directory) else { return Reply::Answer(Answer::empty(500)) };
        let id = request.path.strip_prefix("/messages/").map(|id| id.replace("%40", "@"));
        Reply::Answer(match id {
            _ if self.is_blind.load(Ordering::SeqCst) => Answer::empty(503),
            Some(id) => match counts.get(&id) {
                Some(count) => Answer::json(200, &json!({ "count": count })),
                None => Answer::empty(404),
            },
            None if request.path == "/__log" => {
                let connections = self.connections.load(Ordering::SeqCst);
                let held = self.held.load(Ordering::SeqCst);
                Answer::json(200, &json!({ "connections": connections, "held": held, "messages": counts }))
            }
            None => Answer::empty(404),
        })
    }

    fn keep(&self, from: &str, to: &[String], text: &[u8]) -> std::io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let number = files(&self.config.directory)?.len() + 1;
        let mut message = format!("X-Envelope-From: {from}\r\nX-Envelope-To: {}\r\n", to.join(" ")).into_bytes();
        message.extend_from_slice(text);
        // Named when it is whole, so that nobody counts half a message.
        let part = self.config.directory.join(format!("{number:06}.part"));
        fs::write(&part, message)?;
        fs::rename(part, self.config.directory.join(format!("{number:06}.eml")))
    }
}

async fn serve_smtp(listener: TcpListener, sink: Arc<Sink>) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let number = sink.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = sink.config.faults.get(&number).copied();
        let sink = Arc::clone(&sink);
        // A client that leaves in the middle is none of the server's business.
        tokio::spawn(async move {
            let wire: Wire = match &sink.tls {
                Some((Encryption::Implicit, identity)) => identity.encrypt(Box::new(stream)).await?,
                Some((Encryption::StartTls, _)) | None => Box::new(stream),
            };
            converse(BufReader::new(wire), &sink, fault).await
        });
    }
}

/// What a client has said so far.
#[derive(Debug, Default)]
struct Session {
    is_signed_in: bool,
    from: Option<String>,
    to: Vec<String>,
}

async fn converse(mut stream: BufReader<Wire>, sink: &Sink, fault: Option<SmtpFault>) -> std::io::Result<()> {
    if fault == Some(SmtpFault::RefuseConnection) {
        return say(&mut stream, "421 4.3.2 not now").await;
    }
    say(&mut stream, "220 sink ESMTP").await?;
    let mut session = Session { is_signed_in: sink.config.credentials.is_none(), ..Session::default() };
    // What has to happen before anything else.
    let mut starts_tls = match &sink.tls {
        Some((Encryption::StartTls, identity)) => Some(identity),
        Some((Encryption::Implicit, _)) | None => None,
    };
    while let Some(line) = hear(&mut stream).await? {
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match (verb.to_ascii_uppercase().as_str(), starts_tls) {
            ("EHLO", Some(_)) => say(&mut stream, "250-sink\r\n250 STARTTLS").await?,
            ("STARTTLS", Some(identity)) => {
                say(&mut stream, "220 2.0.0 go on").await?;
                stream = BufReader::new(identity.encrypt(stream.into_inner()).await?);
                starts_tls = None;
            }
            ("AUTH" | "MAIL" | "RCPT" | "DATA", Some(_)) => say(&mut stream, "530 5.7.0 encrypt first").await?,
            (verb, _) => {
                if !command(verb, rest, &mut stream, sink, fault, &mut session).await? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Carries out one command; whether the connection goes on.
async fn command(
    verb: &str,
    rest: &str,
    stream: &mut BufReader<Wire>,
    sink: &Sink,
    fault: Option<SmtpFault>,
    session: &mut Session,
) -> std::io::Result<bool> {
    match verb {
        "EHLO" if sink.config.credentials.is_some() => say(stream, "250-sink\r\n250 AUTH PLAIN LOGIN").await?,
        "EHLO" => say(stream, "250 sink").await?,
        "AUTH" => session.is_signed_in = sign_in(stream, sink, rest).await?,
        "MAIL" if !session.is_signed_in => say(stream, "530 5.7.0 sign in first").await?,
        "MAIL" => {
            *session = Session { is_signed_in: true, from: Some(bracketed(rest)), to: Vec::new() };
            say(stream, "250 2.1.0 ok").await?;
        }
        "RCPT" => match bracketed(rest) {
            _ if session.from.is_none() => say(stream, "503 5.5.1 sender first").await?,
            address if sink.config.unknown.contains(&address) => {
                say(stream, &format!("550 5.1.1 {address} is not known here")).await?;
            }
            address => {
                session.to.push(address);
                say(stream, "250 2.1.5 ok").await?;
            }
        },
        "DATA" if session.to.is_empty() => say(stream, "503 5.5.1 recipients first").await?,
        "DATA" => {
            say(stream, "354 go on").await?;
            let Some(text) = read_text(stream).await? else { return Ok(false) };
            if !take(stream, sink, fault, session, &text).await? {
                return Ok(false);
            }
        }
        "RSET" => {
            *session = Session { is_signed_in: session.is_signed_in, ..Session::default() };
            say(stream, "250 2.0.0 ok").await?;
        }
        "NOOP" => say(stream, "250 2.0.0 ok").await?,
        "QUIT" => {
            say(stream, "221 2.0.0 bye").await?;
            return Ok(false);
        }
        _ => say(stream, "502 5.5.1 not known").await?,
    }
    Ok(true)
}

/// Takes a message as the fault says; whether the connection goes on.
async fn take(
    stream: &mut BufReader<Wire>,
    sink: &Sink,
    fault: Option<SmtpFault>,
    session: &mut Session,
    text: &[u8],
) -> std::io::Result<bool> {
    let from = session.from.take().unwrap_or_default();
    let to = std::mem::take(&mut session.to);
    match fault {
        Some(SmtpFault::RefuseText(code)) => {
            say(stream, &format!("{code} not this one")).await?;
            return Ok(true);
        }
        Some(SmtpFault::CutBefore) => return Ok(false),
        Some(hold @ (SmtpFault::HoldBefore | SmtpFault::HoldAfter)) => {
            if hold == SmtpFault::HoldAfter {
                sink.keep(&from, &to, text)?;
            }
            sink.held.fetch_add(1, Ordering::SeqCst);
            http::wait_until_gone(stream).await?;
            return Ok(false);
        }
        Some(SmtpFault::WithholdAnswer) => {
            sink.keep(&from, &to, text)?;
            return Ok(false);
        }
        Some(SmtpFault::Slow(time)) => {
            sink.keep(&from, &to, text)?;
            system::env().clock.sleep(time).await;
        }
        Some(SmtpFault::RefuseConnection) | None => sink.keep(&from, &to, text)?,
    }
    say(stream, "250 2.0.0 queued as sink").await?;
    Ok(true)
}

/// `AUTH PLAIN` with its answer in the same line, or `AUTH LOGIN` with two questions.
async fn sign_in(stream: &mut BufReader<Wire>, sink: &Sink, rest: &str) -> std::io::Result<bool> {
    let decode = |text: &str| String::from_utf8(STANDARD.decode(text.trim()).unwrap_or_default()).unwrap_or_default();
    let (mechanism, initial) = rest.split_once(' ').unwrap_or((rest, ""));
    let given = match mechanism.to_ascii_uppercase().as_str() {
        "PLAIN" => decode(initial).trim_start_matches('\0').split_once('\0').map(|(u, p)| (u.to_owned(), p.to_owned())),
        "LOGIN" => {
            say(stream, "334 VXNlcm5hbWU6").await?;
            let user = hear(stream).await?.unwrap_or_default();
            say(stream, "334 UGFzc3dvcmQ6").await?;
            let password = hear(stream).await?.unwrap_or_default();
            Some((decode(&user), decode(&password)))
        }
        _ => None,
    };
    let is_known = given.is_some() && given == sink.config.credentials;
    say(stream, if is_known { "235 2.7.0 welcome" } else { "535 5.7.8 wrong user or password" }).await?;
    Ok(is_known)
}

/// The address between `<` and `>`.
fn bracketed(text: &str) -> String {
    text.split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'))
        .map(|(address, _)| address.to_owned())
        .unwrap_or_default()
}

/// The text up to the lonely dot, with doubled dots undone; `None` when the client left before it.
async fn read_text(stream: &mut BufReader<Wire>) -> std::io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        match line.strip_prefix(b".") {
            Some(b"\r\n") => return Ok(Some(text)),
            Some(rest) => text.extend_from_slice(rest),
            None => text.extend_from_slice(&line),
        }
    }
}

async fn hear(stream: &mut BufReader<Wire>) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let count = stream.read_line(&mut line).await?;
    Ok((count > 0).then(|| line.trim_end().to_owned()))
}

async fn say(stream: &mut BufReader<Wire>, line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await
}
