//! Whose process is at the other end of a connection, or has an address.
//!
//! The kernel says it of a socket file (`SO_PEERCRED`), and of this machine's own TCP in `/proc/net/tcp` and `tcp6`. A token says who was given it;
//! whoever took the address before the broker did has collected tokens, so one that comes from another user of this machine lets nobody in.
//! A socket that no process has any more is nobody's: whoever sends and closes at once is not served. Where the kernel has no such tables, or the
//! other end is on another machine, nobody is refused by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Root may do all that this user may.
const ROOT: u32 = 0;

/// How the kernel writes that a socket listens.
const LISTENS: &str = "0A";

/// Whether a process of this user, who is one of us, or of root's is meant.
pub(crate) fn is_ours(user: u32) -> bool {
    user == ROOT || user == rustix::process::geteuid().as_raw()
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of this user.
    Of(u32),
    /// No process of this machine has that end any more.
    Gone,
    /// The kernel does not say it, or it is another machine.
    Untold,
}

impl Caller {
    /// Whether what comes from there may be served.
    pub(crate) fn may_be_ours(self) -> bool {
        match self {
            Self::Of(user) => is_ours(user),
            Self::Gone => false,
            Self::Untold => true,
        }
    }
}

/// Who is at `peer`, connected to `own`.
pub(crate) fn caller_at(peer: SocketAddr, own: SocketAddr) -> Caller {
    let tables = tables();
    let user = tables.iter().find_map(|table| {
        sockets(table)
            .find(|socket| socket.local == plain(peer) && socket.remote == plain(own))
            .map(|socket| socket.user)
    });
    let is_here = peer.ip().to_canonical().is_loopback() || plain(peer).ip() == plain(own).ip();
    match user {
        Some(user) => Caller::Of(user),
        None if is_here && tables.iter().any(|table| !table.is_empty()) => Caller::Gone,
        None => Caller::Untold,
    }
}

/// The user whose process listens at `address`; `None` where the kernel does not say.
pub(crate) fn listener_at(address: SocketAddr) -> Option<u32> {
    let is_there = |socket: &Socket| {
        let (there, wanted) = (socket.local, plain(address));
        socket.listens && there.port() == wanted.port() && (there.ip() == wanted.ip() || there.ip().is_unspecified())
    };
    tables().iter().find_map(|table| sockets(table).find(is_there).map(|socket| socket.user))
}

#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn tables() -> [String; 2] {
    ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default())
}

/// A line of such a table.
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    listens: bool,
    user: u32,
}

/// Those that a process has: what was closed and is still on its way is listed as root's, without an inode.
fn sockets(table: &str) -> impl Iterator<Item = Socket> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (local, remote, state) = (words.nth(1)?, words.next()?, words.next()?);
        // Queues, timer and retransmissions are between; then a time-out.
        let (user, inode) = (words.nth(3)?.parse().ok()?, words.nth(1)?.parse::<u64>().ok()?);
        (inode != 0).then_some(())?;
        Some(Socket { local: address(local)?, remote: address(remote)?, listens: state == LISTENS, user })
    })
}

/// `0100007F:1D09`: each group of eight digits is a number in this machine's order of bytes.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for group in ip.as_bytes().chunks(8) {
        let group = std::str::from_utf8(group).ok()?;
        bytes.extend(u32::from_str_radix(group, 16).ok()?.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).map(Ipv4Addr::from).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok()?),
        _ => return None,
    };
    Some(plain(SocketAddr::new(ip, port)))
}

/// An address of IPv4 as such, also where a socket of IPv6 has it.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_table_of_the_kernel_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1D09 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 100 0 0 10 0\n   \
                     1: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1D09 01 0:0 0:0 0  1002  0 4\n   \
                     2: 0100007F:C351 0100007F:1D09 05 0:0 0:0 0     0  0 0 2 0\nodd line\n";
        let found: Vec<Socket> = sockets(table).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(found[0].local, "127.0.0.1:7433".parse().unwrap());
            assert_eq!(found[1].local, "127.0.0.1:50000".parse().unwrap());
            assert_eq!(found[1].remote, found[0].local);
        }
        let told: Vec<(bool, u32)> = found.iter().map(|socket| (socket.listens, socket.user)).collect();
        assert_eq!(told, [(true, 1001), (false, 1002)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_says_whose_socket_it_is() {
        let own = rustix::process::geteuid().as_raw();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let there = client.local_addr().unwrap();
            assert_eq!(caller_at(there, address), Caller::Of(own), "{any}");
            assert_eq!(listener_at(address), Some(own), "{any}");
            // What it has sent is still read behind this, and nobody is there who sent it.
            drop(client);
            assert_eq!(caller_at(there, address), Caller::Gone, "{any}");
        }
        let elsewhere = ["192.0.2.1:5000", "192.0.2.2:80"].map(|address| address.parse().unwrap());
        assert_eq!(caller_at(elsewhere[0], elsewhere[1]), Caller::Untold);
    }
}
