//! The broker as a process: one per state folder, found at its socket, gone when nobody needs it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use ua_bridge::Address;
use ua_files::Folder;
use ua_store::EndedBy;

use crate::accepting;
use crate::bridge;
use crate::broker::{Broken, Broker};
use crate::ending::{LONGEST, Lines};
use crate::http;
use crate::peers;
use crate::sync::lock;
use crate::wire::{Control, Sits, Visitor, WIRE, Wanted};
use ua_core::ShowPath as _;

/// How often it is looked whether anybody needs the broker.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long what is under way may take when the broker is to end.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// How often it is looked whether it is over.
const POLL: Duration = Duration::from_millis(20);
/// How long a broker may take to say how it stands, which takes it no time.
const ANSWERS: Duration = Duration::from_secs(10);
/// As much is looked at of what whoever comes has said by then: more than the line with which a bridge asks how things stand.
const FIRST: usize = 256;
/// How many files the broker may have open, where its user may have as many: more than its clients need, and not so many that a program which it
/// starts, and which closes each of them, is kept busy by that.
const DESCRIPTORS: u64 = 8_192;

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It is over.
    Over,
    /// Another broker serves already.
    Another,
}

/// Its file.
const LOCK: &str = "gateway.lock";

/// The lock that makes a broker the only one of its state folder; the kernel lets go of it when the process ends.
#[derive(Debug)]
pub struct BrokerLock(File);

impl BrokerLock {
    /// Takes it; `None` when another process has it.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn take(locks: &Path) -> io::Result<Option<Self>> {
        let file = Folder::make_itself(locks)?.open_or_make(LOCK)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether a process has it. Nothing is made to look.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn is_taken(locks: &Path) -> io::Result<bool> {
        let file = match Folder::open_itself(locks).and_then(|locks| locks.open_to_change(LOCK)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Serves until nobody needs the broker, or somebody says that it is to end. `own` is held until then.
///
/// # Errors
/// What the broker needs is not there: the store, or the socket.
pub async fn serve(broker: Arc<Broker>, own: BrokerLock) -> Result<Served, Broken> {
    let served = serve_all(&broker).await;
    broker.let_go(served.as_ref().ok().copied()).await;
    drop(own.0);
    served.map(|_| Served::Over)
}

/// Serves until then; says what ends calls that are under way still.
async fn serve_all(broker: &Arc<Broker>) -> Result<EndedBy, Broken> {
    raise_descriptors();
    let over_http = broker.config.http.is_some();
    let io = |doing: &'static str| move |error: io::Error| Broken::new(format!("{doing}: {error}"));
    for folder in broker.config.socket.parent().into_iter().chain([broker.config.logs.as_path()]) {
        Folder::make(folder).map_err(io("make a folder"))?;
    }
    broker.clear_up().await?;
    let listener = ua_bridge::listen(&broker.config.socket).and_then(UnixListener::from_std).map_err(io("listen"))?;
    if let Some(settings) = &broker.config.http {
        http::listen(broker, settings).await?;
    }
    tokio::spawn(broker.clone().mind_doubts());
    let mut idle_since = broker.env.now();
    let mut signals = Ends::listen().map_err(io("listen to signals"))?;
    loop {
        tokio::select! {
            _ = signals.asked() => break,
            stream = accepting::next(&listener, &broker.env) => {
                if !is_of_this_user(&stream) {
                    tracing::warn!("a program of another user is at the socket; it is refused");
                    continue;
                }
                let broker = broker.clone();
                broker.connections.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(async move {
                    visit(&broker, stream).await;
                    broker.connections.fetch_sub(1, Ordering::AcqRel);
                });
            }
            () = broker.env.clock.sleep(LOOK_EVERY) => {}
            () = broker.closing.cancelled() => break,
        }
        // A client over HTTP cannot start the next one.
        if over_http || broker.connections.load(Ordering::Acquire) > 0 || !broker.live().is_empty() {
            idle_since = broker.env.now();
        } else if broker.env.now().since(idle_since) >= broker.config.idle_exit {
            break;
        }
    }
    // From here on a bridge finds nobody, starts the next broker, and waits with it until this one has ended. Whoever asks how things stand
    // still finds it, under another name.
    let ending = ending(&broker.config.socket);
    if std::fs::rename(&broker.config.socket, &ending).is_err() {
        let _gone = std::fs::remove_file(&broker.config.socket);
    }
    broker.closing.cancel();
    broker.stop.stop_gently();
    let until = broker.env.now().plus(DRAIN);
    let mut by = EndedBy::Drained;
    while broker.env.now() < until && !is_over(broker) {
        tokio::select! {
            // Whoever asks twice does not want to wait.
            signal = signals.asked() => {
                by = signal;
                break;
            }
            stream = accepting::next(&listener, &broker.env) => if is_of_this_user(&stream) {
                tokio::spawn(visit_at_the_end(broker.clone(), stream));
            },
            () = broker.env.clock.sleep(POLL) => {}
        }
    }
    let cut_off: Vec<String> = {
        let live = broker.live();
        let sent = live.values().filter(|live| live.sent().is_some());
        sent.map(|live| format!("{} ({})", live.call, live.tool)).collect()
    };
    if !cut_off.is_empty() {
        let calls = cut_off.join(", ");
        tracing::warn!(calls, "calls were not answered when the broker ended; what came of them is not known to it");
    }
    drop(listener);
    let _gone = std::fs::remove_file(ending);
    Ok(by)
}

/// Raises how many files may be open at once. Where that may not be, it stays as it is.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// The signals that ask the broker to end, as `ua gateway stop` does.
struct Ends {
    term: Signal,
    /// Not those that it was told to ignore by whoever started it.
    others: Vec<(EndedBy, Signal)>,
}

impl Ends {
    fn listen() -> io::Result<Self> {
        let others = [(EndedBy::Interrupt, SignalKind::interrupt()), (EndedBy::HangUp, SignalKind::hangup())];
        let heard = others.into_iter().filter(|(_, kind)| !ua_mcp::is_ignored(kind.as_raw_value()));
        let others = heard.map(|(by, kind)| Ok((by, signal(kind)?))).collect::<io::Result<_>>()?;
        Ok(Self { term: signal(SignalKind::terminate())?, others })
    }

    async fn asked(&mut self) -> EndedBy {
        let Self { term, others } = self;
        let any_other = std::future::poll_fn(|context| {
            // Each is asked, so that each wakes this.
            let mut heard = None;
            for (by, signal) in others.iter_mut() {
                heard = signal.poll_recv(context).is_ready().then_some(*by).or(heard);
            }
            heard.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            _ = term.recv() => EndedBy::Terminate,
            by = any_other => by,
        }
    }
}

fn is_over(broker: &Broker) -> bool {
    broker.live().is_empty() && broker.connections.load(Ordering::Acquire) == 0 && broker.sessions.is_empty()
}

/// Whether this user, or root, has the other end. The folder of the socket keeps others out; where somebody opened that to them, this does.
fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peers::is_ours(peer.uid()))
}

/// Whether a person may sit at the other end: not where a tool server started whoever is there, over however many others, and not where that cannot
/// be told.
fn sits(stream: &UnixStream) -> Sits {
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|process| u32::try_from(process).ok());
    // A process that cannot be seen from here has the number 0.
    let told = match process.filter(|process| *process > 0) {
        Some(process) => ua_mcp::is_below_a_shim(ua_mcp::Process::Of(process)),
        None => Err("its process cannot be seen from here".to_owned()),
    };
    match told {
        Ok(false) => Sits::Somebody,
        Ok(true) => Sits::Nobody,
        Err(why) => {
            tracing::warn!(
                why,
                "a client's own dialogue is not asked anything, since nobody can tell whether a tool server started that client"
            );
            Sits::Nobody
        }
    }
}

/// Whether whoever came has said already that they want to know how things stand. Each bridge asks that before it says who it is, and
/// anybody is told: for that nobody has to look who stands above them, which is several files of `/proc` for each process. The line is not
/// taken, and is read as whatever it is.
fn only_looks(stream: &UnixStream) -> bool {
    let mut said = [0_u8; FIRST];
    let Ok((length, _)) = recv(stream, &mut said, RecvFlags::PEEK | RecvFlags::DONTWAIT) else { return false };
    let line = said[..length].split_inclusive(|byte| *byte == b'\n').next().and_then(|line| line.strip_suffix(b"\n"));
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    matches!(line.map(Visitor::read), Some(Ok(Visitor::Control(Wanted::Status))))
}

/// Whether somebody who is no person may want this: to look, and to say in which session a client is that a tool server started, too.
fn is_its_own(wanted: &Wanted) -> bool {
    match wanted {
        Wanted::Status => true,
        Wanted::Stop => false,
        Wanted::Hook { process, .. } => ua_mcp::is_below_a_shim(ua_mcp::Process::Of(*process)) == Ok(true),
    }
}

async fn visit(broker: &Arc<Broker>, stream: UnixStream) {
    // At once: the number of a process that ends is given to another one. Where this is wrong about who only looks, nobody sits there.
    let sits = if only_looks(&stream) { Sits::Nobody } else { sits(&stream) };
    let (read, mut write) = stream.into_split();
    let mut lines = Lines::of(BufReader::new(read));
    let first = tokio::select! {
        first = lines.next_text() => first,
        () = broker.closing.cancelled() => return,
    };
    let Some(first) = first else { return };
    match Visitor::read(&first) {
        Ok(Visitor::Bridge(mut hello)) => {
            hello.sits = sits;
            if let Err(error) = bridge::serve(broker.clone(), *hello, lines, write).await {
                tracing::warn!(%error, "a bridge could not be served");
            }
        }
        Ok(Visitor::Control(wanted)) => {
            let answer = match wanted {
                Wanted::Status => status(broker),
                // As commands are refused that stop it: whoever sends these lines itself is told no more than they are.
                wanted if sits == Sits::Nobody && !is_its_own(&wanted) => {
                    json!({"refused": "a tool server started whoever asks for this, or that cannot be told"})
                }
                Wanted::Hook { process, session } => {
                    broker.hook(process, session);
                    json!({"heard": true})
                }
                Wanted::Stop => {
                    broker.closing.cancel();
                    status(broker)
                }
            };
            let _gone = write.write_all(format!("{answer}\n").as_bytes()).await;
        }
        Err(why) => {
            let _gone = write.write_all(format!("X {why}\n").as_bytes()).await;
        }
    }
}

/// Where a broker is found that ends, beside the socket of those that do not.
fn ending(socket: &Path) -> PathBuf {
    socket.with_extension("ending")
}

/// Answers who asks how things stand, while what is under way comes to its end. Nobody else is let in any more.
async fn visit_at_the_end(broker: Arc<Broker>, stream: UnixStream) {
    let (read, mut write) = stream.into_split();
    let mut lines = Lines::of(BufReader::new(read));
    let first = tokio::select! {
        first = lines.next_text() => first,
        () = broker.env.clock.sleep(LOOK_EVERY) => return,
    };
    let visitor = first.map(|first| Visitor::read(&first));
    if matches!(visitor, Some(Ok(Visitor::Control(Wanted::Status | Wanted::Stop)))) {
        let _gone = write.write_all(format!("{}\n", status(&broker)).as_bytes()).await;
    }
}

/// How things stand.
fn status(broker: &Broker) -> Value {
    let connected = broker.connected();
    let bridges: Vec<Value> = connected
        .iter()
        .map(|(bridge, one)| {
            json!({
                "bridge": bridge, "server": one.server, "client": one.client, "project": one.project,
                "identity": one.identity, "parent": one.parent, "way": one.way.as_str(),
            })
        })
        .collect();
    drop(connected);
    let calls: Vec<Value> = broker
        .live()
        .values()
        .map(|live| {
            json!({
                "call": live.call.as_str(), "server": live.server, "tool": live.tool, "since": live.since.to_string(),
                "is_held": live.is_held(), "question": live.question(), "askers": live.askers(),
            })
        })
        .collect();
    let address = lock(&broker.address).map(|address| format!("http://{address}"));
    json!({
        "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION"), "wire": WIRE, "http": address, "http_taken": *lock(&broker.taken), "bridges": bridges,
        "calls": calls, "is_ending": broker.closing.is_cancelled(), "made_from": broker.config.made_from,
    })
}

/// Asks the broker at `socket` how things stand, or to end; `None` when there is none. One that ends already says `is_ending`, and takes
/// nobody in any more.
///
/// # Errors
/// It is there and does not answer as it should; `TimedOut`: it says nothing at all.
pub async fn ask_broker(socket: &Path, stop: bool) -> io::Result<Option<Value>> {
    let wanted = || if stop { Wanted::Stop } else { Wanted::Status };
    match want(socket, wanted()).await? {
        Some(status) => Ok(Some(status)),
        None => want(&ending(socket), wanted()).await,
    }
}

/// Tells the broker at `socket` what a client's hook says: the session that its process is in from now on. `None` when there is none.
///
/// # Errors
/// It is there and does not answer as it should.
pub async fn hook_broker(socket: &Path, process: u32, session: &str) -> io::Result<Option<Value>> {
    want(socket, Wanted::Hook { process, session: session.to_owned() }).await
}

/// How often one that ends between being reached and answering is looked for again: it may be the last of an old one, beside the next.
const LOOKED_FOR: usize = 3;

async fn want(socket: &Path, control: Wanted) -> io::Result<Option<Value>> {
    let mut line = serde_json::to_string(&Control { wire: WIRE, control })?;
    line.push('\n');
    let mut tries = 1;
    loop {
        match want_once(socket, &line).await {
            Err(error) if tries < LOOKED_FOR && ended_meanwhile(&error) => tries += 1,
            told => return told,
        }
    }
}

/// Whether whoever was reached was gone before it had answered: what a broker does that ends at this moment.
fn ended_meanwhile(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// That a broker has its lock and its socket, and does nothing: one that is stopped (Ctrl-Z in its terminal), or that hangs.
fn silent(process: Option<i32>) -> io::Error {
    let seconds = ANSWERS.as_secs();
    let why = match process {
        Some(process) => format!(
            "process {process}, which holds the gateway's lock, has said nothing for {seconds} seconds. If it was stopped (Ctrl-Z), `kill -CONT \
             {process}` lets it continue; `kill -KILL {process}` ends it, and the next broker asks for what was not answered"
        ),
        None => format!("it has said nothing for {seconds} seconds; end its process, which holds the gateway's lock"),
    };
    io::Error::new(io::ErrorKind::TimedOut, why)
}

async fn want_once(socket: &Path, line: &str) -> io::Result<Option<Value>> {
    let mut stream = match UnixStream::connect(Address::of(socket)?).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        // So many wait there that no more are taken.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent(None)),
        Err(error) => return Err(error),
    };
    if !is_of_this_user(&stream) {
        let why = format!("{} is a socket of another user, to whom nothing was said", socket.shown());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    // A process in another namespace has no number here, and 0 is none to send a signal to.
    let process = process.filter(|process| *process > 0);
    let mut answer = String::new();
    let asked = async {
        stream.write_all(line.as_bytes()).await?;
        stream.take(LONGEST as u64).read_to_string(&mut answer).await
    };
    tokio::time::timeout(ANSWERS, asked).await.unwrap_or_else(|_| Err(silent(process)))?;
    // An answer that ends in its middle is one of its kind: serde's error becomes `UnexpectedEof`.
    serde_json::from_str(&answer).map(Some).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever wants anything else, or has not said yet what they want, is looked at.
    #[tokio::test]
    async fn whoever_only_asks_how_things_stand_is_known_by_what_they_said() {
        let cases: [(&[u8], bool); 10] = [
            (b"{\"wire\":1,\"control\":\"status\"}\n", true),
            (b"{\"wire\":1,\"control\":\"status\"}\n{\"wire\":1,\"control\":\"stop\"}\n", true),
            (b"{\"wire\":1,\"control\":\"status\"}", false),
            (b"{\"wire\":1,\"control\":\"stop\"}\n", false),
            (b"{\"wire\":1,\"control\":{\"hook\":{\"process\":1,\"session\":\"s\"}}}\n", false),
            (b"{\"wire\":0,\"control\":\"status\"}\n", false),
            (b"{\"wire\":1,\"bridge\":\"b\",\"name\":\"n\",\"command\":[\"c\"],\"cwd\":\"/\"}\n", false),
            (b"\n", false),
            (b"\xff\n", false),
            (b"", false),
        ];
        for (said, is_so) in cases {
            let (mut visitor, broker) = UnixStream::pair().unwrap();
            visitor.write_all(said).await.unwrap();
            assert_eq!(only_looks(&broker), is_so, "{}", String::from_utf8_lossy(said));
            // Nothing of it is taken.
            drop(visitor);
            let mut read = Vec::new();
            BufReader::new(broker).read_to_end(&mut read).await.unwrap();
            assert_eq!(read, said);
        }
    }
}
