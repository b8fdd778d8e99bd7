//! Whose process is at the other end of a connection, or has an address.
//!
//! The kernel says it of a socket file (`SO_PEERCRED`), and of this machine's own TCP in `/proc/net/tcp` and `tcp6`. A token says who was given it;
//! whoever took the address before the broker did has collected tokens, so one that comes from another user of this machine lets nobody in.
//! A socket that no process has any more is nobody's: whoever sends and closes at once is not served, whichever of this machine's addresses that
//! came from. It is listened on the loopback alone, so the other end of a connection is always here, and what is not in the tables is gone. Where
//! the kernel has no such tables nobody is served: a token alone does not say who sent it.

use std::io;
use std::net::SocketAddr;

use ua_files::{
    TCP_TABLES as TABLES, TcpSocket, plain_address as plain, read_tcp_table as read, tcp_sockets as sockets,
};

/// Root may do all that this user may.
const ROOT: u32 = 0;

/// Whether a process of this user, who is one of us, or of root's is meant.
pub(crate) fn is_ours(user: u32) -> bool {
    user == ROOT || user == rustix::process::geteuid().as_raw()
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of this user.
    Of(u32),
    /// No process has that end any more.
    Gone,
    /// The kernel does not say it of anybody.
    Untold,
}

impl Caller {
    /// Whether what comes from there is served.
    pub(crate) fn is_ours(self) -> bool {
        match self {
            Self::Of(user) => is_ours(user),
            Self::Gone | Self::Untold => false,
        }
    }
}

/// The two ends of a connection to an address of the loopback.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) peer: SocketAddr,
    pub(crate) own: SocketAddr,
}

impl Ends {
    /// Who is at the other end now. A table that changes while it is read may lack a line, so whoever is not in it is looked for once more.
    pub(crate) fn caller(self) -> Caller {
        match self.caller_by(read) {
            Caller::Gone => self.caller_by(read),
            told @ (Caller::Of(_) | Caller::Untold) => told,
        }
    }

    /// The second table is read for those who are not in the first: each takes some milliseconds.
    fn caller_by(self, read: impl Fn(&str) -> io::Result<String>) -> Caller {
        for path in TABLES {
            let table = match read(path) {
                Ok(table) => table,
                // A machine without IPv6 has no such sockets.
                Err(error) if error.kind() == io::ErrorKind::NotFound && path != TABLES[0] => continue,
                Err(_) => return Caller::Untold,
            };
            let is_it = |socket: &TcpSocket| socket.local == plain(self.peer) && socket.remote == plain(self.own);
            if let Some(socket) = sockets(&table).find(is_it) {
                return Caller::Of(socket.user);
            }
        }
        Caller::Gone
    }
}

/// Whether the kernel says whose sockets are whose.
pub(crate) fn are_told() -> bool {
    read(TABLES[0]).is_ok()
}

/// The user whose process listens at `address`; `None` where the kernel does not say.
pub(crate) fn listener_at(address: SocketAddr) -> Option<u32> {
    ua_files::tcp_listeners(address).ok()?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_says_whose_socket_it_is() {
        let own = rustix::process::geteuid().as_raw();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let ends = Ends { peer: client.local_addr().unwrap(), own: address };
            assert_eq!(ends.caller(), Caller::Of(own), "{any}");
            assert_eq!(listener_at(address), Some(own), "{any}");
            // What it has sent is still read behind this, and nobody is there who sent it.
            drop(client);
            assert_eq!(ends.caller(), Caller::Gone, "{any}");
        }
    }

    /// Whoever connects to the loopback is here, by whichever address: one that sends and closes at once comes from the machine's own other one.
    #[test]
    fn who_is_not_in_the_tables_is_gone_and_where_there_are_none_nobody_is_served() {
        let heading = "  sl  local_address rem_address   st\n";
        let without_ipv6 = |path: &str| -> io::Result<String> {
            if path == TABLES[0] { Ok(heading.to_owned()) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        for peer in ["127.0.0.1:5000", "192.0.2.2:5000", "[2001:db8::1]:5000"] {
            let ends = Ends { peer: peer.parse().unwrap(), own: "127.0.0.1:7433".parse().unwrap() };
            for (told, wanted) in [
                (ends.caller_by(|_| Ok(heading.to_owned())), Caller::Gone),
                (ends.caller_by(without_ipv6), Caller::Gone),
                (ends.caller_by(|_| Err(io::ErrorKind::NotFound.into())), Caller::Untold),
                (ends.caller_by(|_| Err(io::ErrorKind::PermissionDenied.into())), Caller::Untold),
            ] {
                assert_eq!((told, told.is_ours()), (wanted, false), "{peer}");
            }
        }
        assert!(Caller::Of(rustix::process::geteuid().as_raw()).is_ours());
    }
}
