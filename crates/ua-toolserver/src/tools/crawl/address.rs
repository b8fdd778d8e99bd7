//! Which network addresses a page may be fetched from.
//!
//! A name is resolved here and the connection goes to the very addresses that were checked, so a name that resolves
//! differently a moment later gains nothing. Addresses written as numbers never reach a resolver and are checked in
//! the URL, before the first request and before each redirect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
    let public: Vec<SocketAddr> = found.iter().copied().filter(|address| is_public(address.ip())).collect();
    if public.is_empty() && !found.is_empty() { Err(Private) } else { Ok(public) }
}

/// A name that leads only to addresses that are not public.
#[derive(Debug, thiserror::Error)]
#[error("{0} has a private, loopback or otherwise reserved address")]
struct Refused(String);

/// Checks an address written as a number; names are the resolver's business.
pub(super) fn check_literal(url: &Url) -> io::Result<()> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(io::Error::other("the URL has no host")),
    };
    if is_public(address) { Ok(()) } else { Err(io::Error::other(Refused(address.to_string()))) }
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
