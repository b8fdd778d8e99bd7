//! Whoever comes, taken one after the other; that one of them cannot be taken ends nothing and keeps nobody busy.
//!
//! Where there is no room for another connection, an attempt to take it fails at once, and so does the next one: whoever asks again and again
//! does nothing else. So there is one way to take somebody, which waits in between, and returns nothing but somebody.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use ua_core::Env;

/// How long it is waited behind an attempt that failed.
const WAIT: Duration = Duration::from_millis(200);

/// Where somebody comes.
pub(crate) trait Door {
    /// What is had of whoever came.
    type Visitor;

    /// Takes the next one.
    fn accept_one(&self) -> impl Future<Output = io::Result<Self::Visitor>> + Send;
}

impl Door for UnixListener {
    type Visitor = UnixStream;

    async fn accept_one(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Door for TcpListener {
    type Visitor = (TcpStream, SocketAddr);

    async fn accept_one(&self) -> io::Result<Self::Visitor> {
        self.accept().await
    }
}

/// The next one who comes, however long that takes. Nobody is lost if this is not waited for to its end.
pub(crate) async fn next<D: Door>(door: &D, env: &Env) -> D::Visitor {
    loop {
        match door.accept_one().await {
            Ok(visitor) => return visitor,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                env.clock.sleep(WAIT).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// One at which so many attempts fail.
    struct Full(AtomicU32);

    impl Door for Full {
        type Visitor = ();

        async fn accept_one(&self) -> io::Result<()> {
            match self.0.fetch_sub(1, Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(io::ErrorKind::QuotaExceeded.into()),
            }
        }
    }

    #[tokio::test]
    async fn behind_each_failure_it_is_waited() {
        let env = Env::simulated(1);
        let begun = env.now();
        next(&Full(AtomicU32::new(3)), &env).await;
        assert_eq!(env.now().since(begun), WAIT * 3);
    }
}
