//! A line between clients and a server that can be made bad: held, one way or both, slow, or cut behind a byte.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{oneshot, watch};

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Asked,
    /// From the server to the client.
    Answered,
}

#[derive(Debug, Clone, Copy)]
struct Mood {
    holds_asked: bool,
    holds_answered: bool,
    delay: Duration,
    /// How often everything was cut.
    cuts: u64,
}

#[derive(Debug)]
struct Line {
    /// Where the server listens.
    server: Mutex<PathBuf>,
    mood: watch::Sender<Mood>,
    /// Bytes that still pass, each way.
    asked: AtomicUsize,
    answered: AtomicUsize,
    flights: AtomicU64,
}

/// A port on 127.0.0.1 behind which a server is. Everything passes until something else is said.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    line: Arc<Line>,
    _end: oneshot::Sender<()>,
}

impl Proxy {
    /// Stands before the server that listens on this socket.
    ///
    /// # Errors
    ///
    /// There is no port, or no thread.
    pub fn before(server: PathBuf) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let mood = Mood { holds_asked: false, holds_answered: false, delay: Duration::ZERO, cuts: 0 };
        let line = Arc::new(Line {
            server: Mutex::new(server),
            mood: watch::Sender::new(mood),
            asked: AtomicUsize::new(usize::MAX),
            answered: AtomicUsize::new(usize::MAX),
            flights: AtomicU64::new(0),
        });
        let (end, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = line.clone();
        std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = ended => {}
                }
            });
        })?;
        Ok(Self { port, line, _end: end })
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How a database behind it is named.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://ua@127.0.0.1:{}/{database}", self.port)
    }

    /// Leads to the server that listens on this socket from now on; all connections to the one before are ended.
    pub fn lead_to(&self, server: PathBuf) {
        *self.line.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        self.cut();
    }

    /// Everything passes from now on, also what was held.
    pub fn pass(&self) {
        self.line.asked.store(usize::MAX, Ordering::SeqCst);
        self.line.answered.store(usize::MAX, Ordering::SeqCst);
        self.line.mood.send_modify(|mood| (mood.holds_asked, mood.holds_answered) = (false, false));
    }

    /// Nothing passes this way; connections stay, and nobody is told. What comes meanwhile passes later.
    pub fn hold(&self, way: Way) {
        self.line.mood.send_modify(|mood| match way {
            Way::Asked => mood.holds_asked = true,
            Way::Answered => mood.holds_answered = true,
        });
    }

    /// Whatever passes takes so long, each way.
    pub fn delay(&self, delay: Duration) {
        self.line.mood.send_modify(|mood| mood.delay = delay);
    }

    /// Ends all connections; what was held is lost. New ones are taken.
    pub fn cut(&self) {
        self.line.mood.send_modify(|mood| mood.cuts += 1);
    }

    /// So many bytes pass this way, then their connection is cut, and each one that wants to pass more.
    pub fn cut_after(&self, way: Way, bytes: usize) {
        match way {
            Way::Asked => self.line.asked.store(bytes, Ordering::SeqCst),
            Way::Answered => self.line.answered.store(bytes, Ordering::SeqCst),
        }
    }

    /// Whether something was cut by [`Self::cut_after`] since it was said.
    pub fn is_used_up(&self) -> bool {
        self.line.asked.load(Ordering::SeqCst) == 0 || self.line.answered.load(Ordering::SeqCst) == 0
    }

    /// How often an answer followed a question on some connection: flights to the server and back.
    pub fn flights(&self) -> u64 {
        self.line.flights.load(Ordering::SeqCst)
    }
}

async fn serve(listener: std::net::TcpListener, line: Arc<Line>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((client, _)) = listener.accept().await {
        drop(tokio::spawn(connection(client, line.clone())));
    }
}

async fn connection(client: TcpStream, line: Arc<Line>) {
    let server = line.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // While the server is down a client is refused, as it would be without anything in between.
    let Ok(server) = UnixStream::connect(server).await else { return };
    if client.set_nodelay(true).is_err() {
        return;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let has_asked = AtomicBool::new(false);
    // Whichever side ends first, both are closed.
    tokio::select! {
        () = pump(from_client, to_server, Way::Asked, &line, &has_asked) => {}
        () = pump(from_server, to_client, Way::Answered, &line, &has_asked) => {}
    }
}

/// Passes on what may pass, and ends when no more may.
#[expect(clippy::disallowed_methods, reason = "a slow line takes real time")]
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    line: &Line,
    has_asked: &AtomicBool,
) {
    let mut moods = line.mood.subscribe();
    let cuts = moods.borrow().cuts;
    let left = if way == Way::Asked { &line.asked } else { &line.answered };
    let is_held = |mood: &Mood| if way == Way::Asked { mood.holds_asked } else { mood.holds_answered };
    let mut bytes = [0; 16_384];
    loop {
        let count = tokio::select! {
            read = from.read(&mut bytes) => match read { Ok(count @ 1..) => count, Ok(_) | Err(_) => return },
            _ = moods.wait_for(|mood| mood.cuts != cuts) => return,
        };
        match way {
            Way::Asked => has_asked.store(true, Ordering::SeqCst),
            Way::Answered if has_asked.swap(false, Ordering::SeqCst) => {
                line.flights.fetch_add(1, Ordering::SeqCst);
            }
            Way::Answered => {}
        }
        let delay = match moods.wait_for(|mood| mood.cuts != cuts || !is_held(mood)).await {
            Ok(mood) if mood.cuts == cuts => mood.delay,
            Ok(_) | Err(_) => return,
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            Some(if left == usize::MAX { left } else { left.saturating_sub(count) })
        });
        let passes = before.unwrap_or(0).min(count);
        if to.write_all(&bytes[..passes]).await.is_err() || passes < count {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that says what it hears.
    fn echo() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    let (mut from, mut to) = (&stream, &stream);
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        to.write_all(&bytes[..count]).unwrap();
                    }
                });
            }
        });
        (folder, path)
    }

    fn client(proxy: &Proxy) -> std::net::TcpStream {
        std::net::TcpStream::connect(("127.0.0.1", proxy.port())).unwrap()
    }

    fn says(stream: &mut std::net::TcpStream, words: &str) -> String {
        let mut heard = vec![0; words.len()];
        stream.write_all(words.as_bytes()).unwrap();
        stream.read_exact(&mut heard).unwrap();
        String::from_utf8(heard).unwrap()
    }

    #[test]
    fn a_line_passes_holds_and_is_cut() {
        let (_folder, server) = echo();
        let proxy = Proxy::before(server).unwrap();
        let mut stream = client(&proxy);
        assert_eq!((says(&mut stream, "one"), says(&mut stream, "two")), ("one".to_owned(), "two".to_owned()));
        assert_eq!(proxy.flights(), 2);

        proxy.hold(Way::Answered);
        stream.write_all(b"late").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(stream.read(&mut [0; 4]).is_err(), "nothing came");
        proxy.pass();
        stream.set_read_timeout(None).unwrap();
        let mut late = [0; 4];
        stream.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"late");

        proxy.cut();
        assert_eq!(stream.read(&mut late).unwrap(), 0, "it was closed");
        assert_eq!(says(&mut client(&proxy), "again"), "again");
    }

    #[test]
    fn a_line_is_cut_behind_a_byte() {
        let (_folder, server) = echo();
        let proxy = Proxy::before(server).unwrap();
        let mut stream = client(&proxy);
        assert_eq!(says(&mut stream, "one"), "one");
        proxy.cut_after(Way::Answered, 2);
        stream.write_all(b"more").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert_eq!((heard.as_slice(), proxy.is_used_up()), (b"mo".as_slice(), true));
        proxy.pass();
        assert_eq!(says(&mut client(&proxy), "again"), "again");
    }

    #[test]
    fn a_line_leads_elsewhere() {
        let ((_first, first), (_second, second)) = (echo(), echo());
        let proxy = Proxy::before(first.clone()).unwrap();
        let mut stream = client(&proxy);
        assert_eq!(says(&mut stream, "one"), "one");
        std::fs::remove_file(first).unwrap();
        proxy.lead_to(second);
        assert_eq!(stream.read(&mut [0; 4]).unwrap(), 0, "it was closed");
        assert_eq!(says(&mut client(&proxy), "again"), "again");
    }
}
