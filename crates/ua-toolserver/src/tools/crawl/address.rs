//! Which network addresses a page may be fetched from.
//!
//! A name is resolved here and the connection goes to the very addresses that were checked, so a name that resolves
//! differently a moment later gains nothing. Addresses written as numbers never reach a resolver and are checked in
//! the URL, before the first request and before each redirect. A public address may be this machine's own, or in IPv6 that of
//! whatever stands beside it behind the same firewall, so it is asked from where this machine would speak to it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Resolves names to public addresses only.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public = public_of(&found).map_err(|Private| Refused(name.as_str().to_owned()))?;
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Nothing of it is public.
#[derive(Debug, PartialEq, Eq)]
struct Private;

/// The public ones of the addresses that a name has now; the connection goes to these and asks no resolver again.
fn public_of(found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Private> {
    let public: Vec<SocketAddr> = found.iter().copied().filter(|address| is_far(address.ip())).collect();
    if public.is_empty() && !found.is_empty() { Err(Private) } else { Ok(public) }
}

/// A name that leads only to addresses that are not public.
#[derive(Debug, thiserror::Error)]
#[error("{0} has a private, loopback or otherwise reserved address, or one of this machine or its network")]
struct Refused(String);

/// Checks an address written as a number; names are the resolver's business.
pub(super) fn check_literal(url: &Url) -> io::Result<()> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(io::Error::other("the URL has no host")),
    };
    if is_far(address) { Ok(()) } else { Err(io::Error::other(Refused(address.to_string()))) }
}

/// Whether the address belongs to the public internet, and neither to this machine nor to its own network.
fn is_far(address: IpAddr) -> bool {
    let address = address.to_canonical();
    is_public(address) && !is_own(address) && !source_for(address).is_some_and(|own| is_beside(own, address))
}

/// Whether this machine has an address: it can be listened at. One that may listen at any says nothing, as at an address that nobody has.
fn is_own(address: IpAddr) -> bool {
    let nobodys = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    };
    let is_there = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    is_there(address) && !is_there(nobodys)
}

/// The address from which this machine would speak to another one. Nothing is sent; `None` where there is no way there.
fn source_for(address: IpAddr) -> Option<IpAddr> {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((address, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether an address is the one from which this machine would speak to it, or is of the same network: in IPv6 all that stands on one wire has
/// the same 64 bits in front. How large a network of IPv4 is its addresses do not say.
fn is_beside(own: IpAddr, address: IpAddr) -> bool {
    match (own, address) {
        (IpAddr::V6(own), IpAddr::V6(address)) => own.segments()[..4] == address.segments()[..4],
        _ => own == address,
    }
}

/// Whether the address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = a == 0 // this network
        || a >= 240 // reserved and broadcast
        || (a == 100 && (64..128).contains(&b)) // shared by carriers; some clouds keep metadata there
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 192 && b == 88 && c == 99) // old relays
        || (a == 198 && (b == 18 || b == 19)); // benchmarks
    !(reserved
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, ..] = address.segments();
    // Addresses that carry an IPv4 address are as public as that one.
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    if first == 0x64 && second == 0xff9b {
        return third == 0 && is_public_v4(embedded(address, 12));
    }
    if first == 0x2002 {
        return is_public_v4(embedded(address, 2));
    }
    // Only 2000::/3 is given out; in it, Teredo and other protocol blocks and the documentation prefixes are not pages.
    let global = first & 0xe000 == 0x2000;
    let special = (first == 0x2001 && (second < 0x200 || second == 0xdb8)) || first == 0x3fff;
    global && !special
}

fn embedded(address: Ipv6Addr, at: usize) -> Ipv4Addr {
    let mut octets = [0_u8; 4];
    octets.iter_mut().zip(address.octets().iter().skip(at)).for_each(|(to, from)| *to = *from);
    Ipv4Addr::from(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for public in
            ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "fec0::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn s7_of_a_name_that_is_rebound_between_answers_only_public_addresses_are_used() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        // A resolver that answers with another address each time, or with several at once.
        let answers = [
            (vec!["93.184.216.34"], Ok(vec!["93.184.216.34"])),
            (vec!["127.0.0.1"], Err(Private)),
            (vec!["93.184.216.34", "169.254.169.254", "::ffff:10.0.0.1"], Ok(vec!["93.184.216.34"])),
            (vec!["64:ff9b::a9fe:a9fe", "fd00::1"], Err(Private)),
            (vec![], Ok(vec![])),
        ];
        for (answer, wanted) in answers {
            let found: Vec<SocketAddr> = answer.into_iter().map(at).collect();
            assert_eq!(public_of(&found), wanted.map(|all| all.into_iter().map(at).collect()));
        }
    }

    /// A firewall in front of a machine keeps others out, not the machine itself.
    #[test]
    fn s7_a_public_address_of_this_machine_or_its_network_is_near() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for own in ["127.0.0.1", "127.8.8.8"] {
            assert!(is_own(ip(own)), "{own}");
        }
        for other in ["192.0.2.1", "93.184.216.34", "2001:db8::1"] {
            assert!(!is_own(ip(other)), "{other}");
        }
        assert_eq!(source_for(ip("127.0.0.1")), Some(ip("127.0.0.1")));
        let outside = source_for(ip("192.0.2.1"));
        assert!(outside.is_none_or(|own| is_own(own) && !is_far(own)), "{outside:?}");
        for (own, address, is_near) in [
            ("93.184.216.34", "93.184.216.34", true),
            ("93.184.216.34", "93.184.216.35", false),
            ("2606:4700:1:2::5", "2606:4700:1:2::5", true),
            ("2606:4700:1:2::5", "2606:4700:1:2:ffff::1", true),
            ("2606:4700:1:2::5", "2606:4700:1:3::5", false),
            ("10.0.0.1", "93.184.216.34", false),
        ] {
            assert_eq!(is_beside(ip(own), ip(address)), is_near, "{own} {address}");
        }
    }

    #[test]
    fn numbers_in_odd_notation_are_still_numbers() {
        for url in
            ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://017700000001/", "http://[::1]/"]
        {
            assert!(check_literal(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
        assert!(check_literal(&Url::parse("http://example.org/").unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused() {
        let refused = PublicResolver.resolve("localhost".parse().unwrap()).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("private, loopback")));
    }
}
