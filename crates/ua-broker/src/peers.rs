//! Whose process is at the other end of a connection, or has an address.
//!
//! The kernel says it of a socket file (`SO_PEERCRED`), and of this machine's own TCP in `/proc/net/tcp` and `tcp6`. A token says who was given it;
//! whoever took the address before the broker did has collected tokens, so one that comes from another user of this machine lets nobody in.
//! Where the kernel does not say it, nobody is refused by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Root may do all that this user may.
const ROOT: u32 = 0;

/// How the kernel writes that a socket listens.
const LISTENS: &str = "0A";

/// Whether a process of this user, who is one of us, or of root's is meant.
pub(crate) fn is_ours(user: u32) -> bool {
    user == ROOT || user == rustix::process::geteuid().as_raw()
}

/// The user whose process is at `peer`, connected to `own` on this machine; `None` where the kernel does not say.
pub(crate) fn user_at(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    tables().iter().find_map(|table| {
        sockets(table)
            .find(|socket| socket.local == plain(peer) && socket.remote == plain(own))
            .map(|socket| socket.user)
    })
}

/// The user whose process listens at `address`; `None` where the kernel does not say.
pub(crate) fn listener_at(address: SocketAddr) -> Option<u32> {
    let is_there = |socket: &Socket| {
        let (there, wanted) = (socket.local, plain(address));
        socket.listens && there.port() == wanted.port() && (there.ip() == wanted.ip() || there.ip().is_unspecified())
    };
    tables().iter().find_map(|table| sockets(table).find(is_there).map(|socket| socket.user))
}

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

fn sockets(table: &str) -> impl Iterator<Item = Socket> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (local, remote, state) = (words.nth(1)?, words.next()?, words.next()?);
        // Queues, timer and retransmissions are between.
        let user = words.nth(3)?.parse().ok()?;
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
                     1: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1D09 01 0:0 0:0 0  1002  0 4\nodd line\n";
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
            assert_eq!(user_at(client.local_addr().unwrap(), address), Some(own), "{any}");
            assert_eq!(listener_at(address), Some(own), "{any}");
        }
    }
}
