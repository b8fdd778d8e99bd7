//! How a connection begins: a password is told to no stranger of this machine.
//!
//! On the loopback there may be no TLS, and then whoever has the server's port while the server is down, or `::1` where the server listens at
//! `127.0.0.1` alone, is asked for nothing and told the password: the server says in which way it wants it, and one way is as it is written
//! (`AuthenticationCleartextPassword`), which the driver does not let a client refuse without TLS. So the kernel is asked before whose process listens
//! there ([`ua_files::tcp_listeners`]): root's, this user's, one of a user called `postgres`, or of the user that the URL names (`requirepeer`).
//!
//! Nobody is connected to where nobody listens: somebody may in the next moment. Of several addresses of one host the first one that is
//! right is taken. Several hosts are gone through by the driver, past those that are down, so there a stranger at any of them ends it. Not
//! asked: with TLS alone, whose certificate says who it is; without a password; other machines, and other addresses of this one; sockets
//! that are files; where the kernel does not say it, as on macOS.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use deadpool_postgres::Connect;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use ua_files::{tcp_listeners, user_in_words, user_name};
use ua_store::StoreError;

use crate::beside::beside;
use crate::config::PostgresConfig;
use crate::tls;

/// Who may do all that this user may.
const ROOT: u32 = 0;
/// What the user of the server is called nearly everywhere, and that of poolers in front of it.
const USUAL: &str = "postgres";
/// What is said in the place of a user who may be anybody.
const ANYBODY: &str = "*";
/// The port of a server where none is named.
const PORT: u16 = 5432;

/// What connections are begun with.
#[derive(Clone)]
pub(crate) struct Dialler {
    /// Without it there is no TLS.
    tls: Option<MakeRustlsConnect>,
    /// The user that the server's process is expected to have, by name or number, besides the usual ones.
    server_user: Option<String>,
}

impl Dialler {
    /// For what a configuration names.
    ///
    /// # Errors
    ///
    /// `Unavailable` when there are no certificates where it says.
    pub(crate) fn of(config: &PostgresConfig) -> Result<Self, StoreError> {
        let has_tls = config.server.get_ssl_mode() != SslMode::Disable;
        let tls = has_tls.then(|| tls::connector(config.root_certificates.as_deref())).transpose()?;
        Ok(Self { tls, server_user: config.server_user.clone() })
    }

    /// A connection, and the task that keeps it.
    pub(crate) async fn dial(&self, server: Config) -> Result<(Client, JoinHandle<()>), Error> {
        let server = match self.judged(server.clone()).await {
            Ok(judged) => judged,
            Err(why) => return Err(Box::pin(not_begun(server, why)).await),
        };
        match &self.tls {
            None => {
                let (client, connection) = server.connect(NoTls).await?;
                Ok((client, tokio::spawn(kept(connection))))
            }
            Some(tls) => {
                let (client, connection) = server.connect(tls.clone()).await?;
                Ok((client, tokio::spawn(kept(connection))))
            }
        }
    }

    /// What is connected to, with the one address of a host that was found right.
    async fn judged(&self, mut server: Config) -> Result<Config, NotDialled> {
        let is_anybody = self.server_user.as_deref() == Some(ANYBODY);
        if is_anybody || server.get_password().is_none() || server.get_ssl_mode() == SslMode::Require {
            return Ok(server);
        }
        let (hosts, addresses) = (server.get_hosts().to_vec(), server.get_hostaddrs().to_vec());
        let ports = server.get_ports().to_vec();
        let named = hosts.len().max(addresses.len());
        for at in 0..named {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
            let found: Vec<SocketAddr> = match (addresses.get(at), hosts.get(at)) {
                (Some(address), _) => vec![SocketAddr::new(*address, port)],
                // A name that is none is what the driver says.
                (None, Some(Host::Tcp(name))) => {
                    lookup_host((name.as_str(), port)).await.map(Iterator::collect).unwrap_or_default()
                }
                (None, Some(Host::Unix(_)) | None) => Vec::new(),
            };
            let dialler = self.clone();
            // The kernel's tables and the list of users are files.
            let right = beside(move || {
                let is_trusted = |user: u32| dialler.trusts(user);
                if named > 1 {
                    // Of several hosts each would need one.
                    return no_stranger(&found, tcp_listeners, is_trusted).map(|()| None);
                }
                right_one(&found, tcp_listeners, is_trusted)
            });
            if let Some(address) = right.await?.filter(|_| addresses.is_empty()) {
                server.hostaddr(address);
            }
        }
        Ok(server)
    }

    /// Whether a process of this user may be the server.
    fn trusts(&self, user: u32) -> bool {
        let (name, number) = (user_name(user), user.to_string());
        let is_named = |wanted: &String| *wanted == name || *wanted == number;
        user == ROOT
            || user == rustix::process::geteuid().as_raw()
            || name == USUAL
            || self.server_user.as_ref().is_some_and(is_named)
    }
}

impl Connect for Dialler {
    fn connect(
        &self,
        server: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        let server = server.clone();
        Box::pin(self.dial(server))
    }
}

/// Keeps a connection until it ends.
async fn kept(connection: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to PostgreSQL ended");
    }
}

/// The first of these addresses that may be told a password; one of another machine, if those before it may not. `None` where they are left
/// to the driver: it begins with one of another machine, or with one of which the kernel says nothing.
fn right_one(
    found: &[SocketAddr],
    listeners: impl Fn(SocketAddr) -> io::Result<Vec<u32>>,
    is_trusted: impl Fn(u32) -> bool,
) -> Result<Option<IpAddr>, NotDialled> {
    let mut why = None;
    for named in found {
        // What connects to no address connects to this machine's own.
        let ip = match named.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        let address = SocketAddr::new(ip, named.port());
        if !ip.is_loopback() {
            return Ok(why.map(|_| ip));
        }
        let Ok(users) = listeners(address) else { return why.map_or(Ok(None), Err) };
        match users.iter().find(|user| !is_trusted(**user)) {
            // A stranger is told of, and not that there is nobody at another address.
            Some(user) => why = Some(NotDialled { address, stranger: Some(*user) }),
            None if users.is_empty() => why = why.or(Some(NotDialled { address, stranger: None })),
            None => return Ok(Some(ip)),
        }
    }
    why.map_or(Ok(None), Err)
}

/// Whether no stranger listens at any of these addresses, where the driver goes through them all: nobody at one of them is no reason to
/// leave out the others.
fn no_stranger(
    found: &[SocketAddr],
    listeners: impl Fn(SocketAddr) -> io::Result<Vec<u32>>,
    is_trusted: impl Fn(u32) -> bool,
) -> Result<(), NotDialled> {
    let at_each = found.iter().map(|named| right_one(std::slice::from_ref(named), &listeners, &is_trusted));
    at_each.filter_map(Result::err).find(|why| why.stranger.is_some()).map_or(Ok(()), Err)
}

/// Why nothing is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotDialled {
    address: SocketAddr,
    /// Who listens there; nobody without one.
    stranger: Option<u32>,
}

impl fmt::Display for NotDialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        let Some(user) = self.stranger else {
            return write!(
                f,
                "the connection to PostgreSQL failed: no process of this machine listens at {address}, so the password was not sent; start the server, or, \
                 where the kernel forwards that port (to a container), add `requirepeer=*` to the database URL"
            );
        };
        let whose = user_in_words(user);
        write!(
            f,
            "the password was not sent: at {address} listens a process of another user ({whose}), which is neither root nor called {USUAL}. If that is the \
             server's user, add `requirepeer={user}` to the database URL. If not, somebody has the port of the server: end that process, \
             and use the server's socket (`postgres://USER:PASSWORD@/DATABASE?host=/run/postgresql`) or TLS (`sslmode=verify-full`), where \
             that cannot be"
        )
    }
}

impl std::error::Error for NotDialled {}

/// What is to be said of an error, if it is that nothing was connected to.
pub(crate) fn why_not(error: &Error) -> Option<String> {
    let failed = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    Some(failed.get_ref()?.downcast_ref::<NotDialled>()?.to_string())
}

/// The same as an error of the driver, which makes its own alone: it is told so by what it begins to write to.
async fn not_begun(mut server: Config, why: NotDialled) -> Error {
    server.ssl_mode(SslMode::Disable).user("nobody");
    match server.connect_raw(Shut(why), NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("nothing begins where nothing can be written"),
    }
}

/// Where nothing can be read or written, for this reason.
struct Shut(NotDialled);

impl Shut {
    fn error(&self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self.0)
    }
}

impl AsyncRead for Shut {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.error()))
    }
}

impl AsyncWrite for Shut {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(self.error()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.error()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ua_store::Retry;

    use super::*;
    use crate::error::sql_error;

    const EVE: u32 = 54_321;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The server is at `127.0.0.1:5432` alone, and somebody else at `[::1]:5432` and `127.0.0.1:6432`; of port 9 nothing is told.
    fn listeners(at: SocketAddr) -> io::Result<Vec<u32>> {
        match (at.ip().is_ipv4(), at.port()) {
            (true, 5432) => Ok(vec![26]),
            (false, 5432) | (true, 6432) => Ok(vec![EVE]),
            (_, 9) => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Vec::new()),
        }
    }

    #[test]
    fn a_password_goes_to_the_servers_user_alone() {
        let right = |found: &[&str]| {
            let found: Vec<SocketAddr> = found.iter().map(|text| address(text)).collect();
            right_one(&found, listeners, |user| user == 26)
        };
        let here = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        for found in [
            &["127.0.0.1:5432"][..],
            &["[::1]:5432", "127.0.0.1:5432"],
            &["0.0.0.0:5432"],
            &["[::ffff:127.0.0.1]:5432"],
        ] {
            assert_eq!(right(found), Ok(here), "{found:?}");
        }
        let stranger = |at: &str| Err(NotDialled { address: address(at), stranger: Some(EVE) });
        assert_eq!(right(&["127.0.0.1:6432"]), stranger("127.0.0.1:6432"));
        assert_eq!(
            right(&["[::1]:5432", "127.0.0.1:1"]),
            stranger("[::1]:5432"),
            "and not that nobody is at the other one"
        );
        let nobody = Err(NotDialled { address: address("127.0.0.1:1"), stranger: None });
        assert_eq!(right(&["127.0.0.1:1", "[::1]:1"]), nobody);
        // Whom nothing is told stays so, whatever comes behind.
        assert_eq!(right(&["[::1]:5432", "127.0.0.1:9"]), stranger("[::1]:5432"));
        for before in ["[::1]:5432", "[::1]:1"] {
            assert_eq!(right(&[before, "192.0.2.1:5432"]), Ok(Some(address("192.0.2.1:5432").ip())), "{before}");
        }
        // The driver's own: other machines, and what the kernel does not say.
        for found in [&["192.0.2.1:6432"][..], &["127.0.0.1:9"], &[]] {
            assert_eq!(right(found), Ok(None), "{found:?}");
        }
    }

    /// The driver goes to whichever of several hosts answers first.
    #[test]
    fn of_several_hosts_none_is_a_strangers_and_one_may_be_down() {
        let none = |found: &[&str]| {
            let found: Vec<SocketAddr> = found.iter().map(|text| address(text)).collect();
            no_stranger(&found, listeners, |user| user == 26)
        };
        for found in
            [&["127.0.0.1:5432"][..], &["127.0.0.1:1"], &["[::1]:1", "127.0.0.1:5432"], &["192.0.2.1:6432"], &[]]
        {
            assert_eq!(none(found), Ok(()), "{found:?}");
        }
        for found in [&["[::1]:5432", "127.0.0.1:5432"][..], &["127.0.0.1:5432", "[::1]:5432"]] {
            assert_eq!(
                none(found),
                Err(NotDialled { address: address("[::1]:5432"), stranger: Some(EVE) }),
                "{found:?}"
            );
        }
    }

    #[test]
    fn who_may_be_the_server_is_root_this_user_and_whom_the_url_names() {
        let dialler = |user: Option<&str>| Dialler { tls: None, server_user: user.map(str::to_owned) };
        let own = rustix::process::geteuid().as_raw();
        assert!(dialler(None).trusts(ROOT) && dialler(None).trusts(own) && !dialler(None).trusts(EVE));
        assert!(dialler(Some("54321")).trusts(EVE) && !dialler(Some("54320")).trusts(EVE));
        assert!(dialler(Some(&user_name(own))).trusts(own));
        let url = "postgres://ua:geheim@127.0.0.1/ua?requirepeer=pg16&sslmode=disable";
        let config = PostgresConfig::from_url(url).unwrap();
        assert_eq!(Dialler::of(&config).unwrap().server_user.as_deref(), Some("pg16"));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nothing_is_sent_where_nobody_listens_and_that_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = |more: &str| {
            let url = format!("postgres://ua:geheim@127.0.0.1:{port}/ua?sslmode=disable{more}");
            PostgresConfig::from_url(&url).unwrap()
        };
        // Of this user, so it is asked; with a name as well, whose other address nobody has.
        let (here, named) =
            (config(""), PostgresConfig::from_url(&format!("postgres://ua:x@localhost:{port}/ua")).unwrap());
        for config in [&here, &named] {
            let judged = Dialler::of(config).unwrap().judged(config.server.clone()).await.unwrap();
            assert_eq!(judged.get_hostaddrs(), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        }
        // Of several hosts one may be down, and which of them it is the driver finds out.
        let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for ports in [[down, port], [port, down]] {
            let [first, second] = ports;
            let url = format!("postgres://ua:geheim@127.0.0.1:{first},127.0.0.1:{second}/ua?sslmode=disable");
            let several = PostgresConfig::from_url(&url).unwrap();
            let judged = Dialler::of(&several).unwrap().judged(several.server.clone()).await.unwrap();
            assert!(judged.get_hostaddrs().is_empty() && judged.get_ports() == ports, "{ports:?}");
        }
        drop(listener);
        let dialler = Dialler::of(&here).unwrap();
        let failed = sql_error(dialler.dial(here.server.clone()).await.err().unwrap());
        let StoreError::Unavailable { why, retry: Retry::Later, .. } = failed else { panic!("{failed:?}") };
        assert!(why.contains(&format!("listens at 127.0.0.1:{port}, so the password was not sent")), "{why}");
        assert!(!why.contains("geheim"), "{why}");
        let anybody = config("&requirepeer=*");
        let failed = Dialler::of(&anybody).unwrap().dial(anybody.server.clone()).await.err().unwrap();
        assert_eq!(why_not(&failed), None, "the driver tries it");
    }

    #[test]
    fn what_helps_against_a_stranger_is_said() {
        let said = NotDialled { address: address("127.0.0.1:5432"), stranger: Some(EVE) }.to_string();
        for word in [
            "at 127.0.0.1:5432 listens a process of another user (uid 54321)",
            "`requirepeer=54321`",
            "sslmode=verify-full",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}
