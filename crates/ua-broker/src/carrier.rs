//! The connection over which an answer was written to a client, and whether that client closed it with something unread.
//!
//! What was written lies in the kernel, read or not. A socket that is closed with something unread in it resets its connection; one that was read
//! to its end closes it in good order. So a reset says that what was written last was not taken, whatever its client says next.
//!
//! Proved by: this file's tests, `tests/it/posted.rs`.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::sync::lock;

/// A connection that carries answers, for those who want to know how it ended.
#[derive(Debug)]
pub(crate) struct Carrier(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Open until nobody wants to know any more: a connection that is closed here first is reset behind that.
    socket: Option<OwnedFd>,
    was_reset: bool,
}

impl State {
    /// Asks the kernel, and takes nothing from whoever reads: the connection may have been reset since that looked last.
    fn look(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut asked = [PollFd::new(socket, PollFlags::empty())];
        let found = poll(&mut asked, Some(&Timespec::default()));
        self.was_reset |= found.is_ok() && asked[0].revents().contains(PollFlags::ERR);
    }
}

impl Carrier {
    /// Whether its client closed it with something unread.
    pub(crate) fn was_reset(&self) -> bool {
        let mut state = lock(&self.0);
        state.look();
        state.was_reset
    }
}

/// A connection of a client that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: TcpStream,
    carrier: Arc<Carrier>,
}

impl Watched {
    /// Watches a connection. Where it cannot be, it counts as one that ends in good order.
    pub(crate) fn new(stream: TcpStream) -> (Self, Arc<Carrier>) {
        let socket = stream.as_fd().try_clone_to_owned().ok();
        let carrier = Arc::new(Carrier(Mutex::new(State { socket, was_reset: false })));
        (Self { stream, carrier: carrier.clone() }, carrier)
    }

    /// Does something with the connection, and notes if it has been reset: the kernel says so once.
    fn noting<T>(&mut self, act: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let mut state = lock(&self.carrier.0);
        let done = act(Pin::new(&mut self.stream));
        if let Poll::Ready(Err(error)) = &done {
            state.was_reset |= matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        }
        done
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.noting(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.noting(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.noting(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.noting(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.noting(|stream| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A connection over which something was written, which is closed then or not, and what a client does behind that; whether it counts as reset,
    /// asked before and behind whoever reads, and once it is over.
    async fn ends_after(is_closed: bool, client: impl FnOnce(std::net::TcpStream)) -> [bool; 3] {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = std::net::TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (mut watched, carrier) = Watched::new(stream);
        watched.write_all(b"an answer").await.unwrap();
        if is_closed {
            watched.shutdown().await.unwrap();
        }
        assert!(!carrier.was_reset(), "nobody has closed it");
        client(theirs);
        let before = carrier.was_reset();
        let _ended = watched.read(&mut [0; 9]).await;
        let behind = carrier.was_reset();
        drop(watched);
        [before, behind, carrier.was_reset()]
    }

    /// The same whether it is closed on this side first or not.
    async fn ends(client: impl Fn(std::net::TcpStream)) -> [bool; 3] {
        let found = ends_after(false, &client).await;
        assert_eq!(found, ends_after(true, &client).await);
        found
    }

    #[tokio::test]
    async fn what_is_closed_unread_was_reset_and_what_was_read_was_not() {
        let read = |mut stream: &std::net::TcpStream, count: usize| {
            let mut bytes = vec![0; count];
            stream.read_exact(&mut bytes).unwrap();
        };
        assert_eq!(ends(drop).await, [true; 3], "unread");
        assert_eq!(ends(|stream| read(&stream, 4)).await, [true; 3], "read in part");
        assert_eq!(ends(|stream| read(&stream, 9)).await, [false; 3], "read whole");
        let says_more = |stream: std::net::TcpStream| {
            read(&stream, 9);
            (&stream).write_all(b"next").unwrap();
        };
        assert_eq!(ends(says_more).await, [false; 3], "and another request behind it");
        let shuts = |stream: std::net::TcpStream| {
            read(&stream, 9);
            stream.shutdown(Shutdown::Write).unwrap();
        };
        assert_eq!(ends(shuts).await, [false; 3], "closed on one side first");
    }
}
