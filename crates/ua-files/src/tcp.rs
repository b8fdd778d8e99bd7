//! The sockets of this machine's own TCP, as the kernel lists them (`/proc/net/tcp`, `tcp6`), and whose they are.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's tables. A machine without IPv6 has no second one.
pub const TCP_TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// How the kernel writes that a socket listens.
const LISTENS: &str = "0A";

/// A socket that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own end; an address of IPv4 as such, also where a socket of IPv6 has it.
    pub local: SocketAddr,
    /// The other end, written in the same way.
    pub remote: SocketAddr,
    /// Whether it takes connections.
    pub listens: bool,
    /// The user of its process.
    pub user: u32,
}

/// The text of a table.
///
/// # Errors
/// The kernel has no such table, or does not show it.
pub fn read_tcp_table(path: &str) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// The sockets in a table that a process has: what was closed and is still on its way is listed as root's, without an inode.
pub fn tcp_sockets(table: &str) -> impl Iterator<Item = TcpSocket> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (local, remote, state) = (words.nth(1)?, words.next()?, words.next()?);
        // Queues, timer and retransmissions are between; then a time-out.
        let (user, inode) = (words.nth(3)?.parse().ok()?, words.nth(1)?.parse::<u64>().ok()?);
        (inode != 0).then_some(())?;
        Some(TcpSocket { local: address(local)?, remote: address(remote)?, listens: state == LISTENS, user })
    })
}

/// The users whose processes take connections to `address`, nobody twice. A socket of that very address takes them before one of all addresses.
///
/// # Errors
/// The kernel does not say it.
pub fn tcp_listeners(address: SocketAddr) -> io::Result<Vec<u32>> {
    let mut tables = read_tcp_table(TCP_TABLES[0])?;
    match read_tcp_table(TCP_TABLES[1]) {
        Ok(table) => tables.push_str(&table),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(listeners_in(&tables, address))
}

fn listeners_in(tables: &str, address: SocketAddr) -> Vec<u32> {
    let wanted = plain_address(address);
    let there = tcp_sockets(tables).filter(|socket| socket.listens && socket.local.port() == wanted.port());
    let (exact, others): (Vec<_>, Vec<_>) = there.partition(|socket| socket.local.ip() == wanted.ip());
    // One of all addresses of IPv6 takes IPv4 as well; one of all of IPv4 takes no IPv6.
    let takes = |socket: &TcpSocket| socket.local.ip().is_unspecified() && (socket.local.is_ipv6() || wanted.is_ipv4());
    let of_all = others.into_iter().filter(takes);
    let taking: Vec<TcpSocket> = if exact.is_empty() { of_all.collect() } else { exact };
    let mut users: Vec<u32> = taking.into_iter().map(|socket| socket.user).collect();
    users.sort_unstable();
    users.dedup();
    users
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
    Some(plain_address(SocketAddr::new(ip, port)))
}

/// An address of IPv4 as such, also where a socket of IPv6 has it.
pub fn plain_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_kernel_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1D09 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 100 0 0 10 0\n   \
                     1: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1D09 01 0:0 0:0 0  1002  0 4\n   \
                     2: 0100007F:C351 0100007F:1D09 05 0:0 0:0 0     0  0 0 2 0\nodd line\n   \
                     3: 00000000:1D09 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 5 1 0 100 0 0 10 0\n";
        let found: Vec<TcpSocket> = tcp_sockets(table).collect();
        let told: Vec<(bool, u32)> = found.iter().map(|socket| (socket.listens, socket.user)).collect();
        assert_eq!(told, [(true, 1001), (false, 1002), (true, 1003)]);
        if cfg!(target_endian = "little") {
            assert_eq!(found[0].local, "127.0.0.1:7433".parse().unwrap());
            assert_eq!(found[1].local, "127.0.0.1:50000".parse().unwrap());
            assert_eq!(found[1].remote, found[0].local);
            for (address, users) in [
                ("127.0.0.1:7433", vec![1001]),
                ("[::ffff:127.0.0.1]:7433", vec![1001]),
                ("127.0.0.2:7433", vec![1003]),
                ("127.0.0.1:50000", vec![]),
                ("[::1]:7433", vec![]), // all addresses of IPv4 alone
            ] {
                assert_eq!(listeners_in(table, address.parse().unwrap()), users, "{address}");
            }
            let of_both = "0: 00000000000000000000000000000000:1D09 00000000000000000000000000000000:0000 0A 0:0 0:0 0  1004        0 6\n";
            for address in ["127.0.0.1:7433", "[::1]:7433"] {
                assert_eq!(listeners_in(of_both, address.parse().unwrap()), [1004], "{address}");
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_says_who_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(tcp_listeners(address).unwrap(), [rustix::process::geteuid().as_raw()]);
        drop(listener);
        assert!(tcp_listeners(address).unwrap().is_empty());
    }
}
