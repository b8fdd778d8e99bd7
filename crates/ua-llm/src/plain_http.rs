//! Hosts of a private network to which a person lets what a run holds go unencrypted.

use std::fmt;
use std::net::Ipv6Addr;

use reqwest::Url;

/// Hosts that may be reached by plain http: none, unless somebody names them one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainHttpHosts(Vec<(String, Option<u16>)>);

impl PlainHttpHosts {
    /// Reads host names and addresses, each with or without a port, separated by commas: `ollama, litellm:4000, [fd00::1]:8080`. No pattern stands
    /// for others.
    ///
    /// # Errors
    /// The entry that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| host(entry).ok_or_else(|| entry.to_owned())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an address is plain http of one of them.
    pub fn covers(&self, url: &Url) -> bool {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
        url.scheme() == "http" && self.0.iter().any(|(name, only)| name == host && (only.is_none() || *only == port))
    }
}

impl fmt::Display for PlainHttpHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, port)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match port {
                Some(port) => write!(f, "{comma}{name}:{port}")?,
                None => write!(f, "{comma}{name}")?,
            }
        }
        Ok(())
    }
}

/// A host, and the one port that is meant, if one is named.
fn host(entry: &str) -> Option<(String, Option<u16>)> {
    if entry.contains(['/', '*', '@', '?', '#', '\\', '%']) || entry.contains(char::is_whitespace) {
        return None;
    }
    // Without brackets every part of such an address is its own, the last one too: none is a port.
    if entry.parse::<Ipv6Addr>().is_ok() {
        let url = Url::parse(&format!("http://[{entry}]/")).ok()?;
        return Some((url.host_str()?.to_owned(), None));
    }
    let url = Url::parse(&format!("http://{entry}/")).ok()?;
    // A port that is the scheme's own is left out of an address.
    let port = url.port().or_else(|| entry.ends_with(":80").then_some(80));
    Some((url.host_str()?.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_covered_by_its_name_and_port_alone() {
        let hosts = PlainHttpHosts::parse("ollama, LiteLLM:4000 ,10.0.0.7:80,[fd00::1]").unwrap();
        let covers = |address: &str| hosts.covers(&Url::parse(address).unwrap());
        for covered in
            ["http://ollama:11434/v1", "http://ollama", "http://litellm:4000", "http://10.0.0.7/", "http://[fd00::1]:9"]
        {
            assert!(covers(covered), "{covered}");
        }
        for other in [
            "http://litellm:4001",
            "http://ollama.evil.test",
            "http://x.ollama",
            "http://10.0.0.7:8080",
            "http://10.0.0.70",
            "https://ollama",
        ] {
            assert!(!covers(other), "{other}");
        }
        assert_eq!(hosts.to_string(), "ollama, litellm:4000, 10.0.0.7:80, [fd00::1]");
        assert!(!PlainHttpHosts::default().covers(&Url::parse("http://ollama").unwrap()));
    }

    /// However such an address is written, it is the one that a URL has.
    #[test]
    fn an_ipv6_address_is_named_with_and_without_brackets_and_with_a_port() {
        let covered =
            |hosts: &str, address: &str| PlainHttpHosts::parse(hosts).unwrap().covers(&Url::parse(address).unwrap());
        for hosts in ["[fd00::1]", "fd00::1", "FD00:0:0:0:0:0:0:1", "[fd00:0::0001]", "ollama,fd00::1"] {
            assert!(covered(hosts, "http://[fd00::1]:11434/v1") && covered(hosts, "http://[fd00:0::1]/"), "{hosts}");
            assert!(!covered(hosts, "http://[fd00::2]:11434") && !covered(hosts, "https://[fd00::1]"), "{hosts}");
        }
        for (hosts, port) in [("[fd00::1]:11434", 11_434), ("[fd00::1]:80", 80)] {
            assert!(covered(hosts, &format!("http://[fd00::1]:{port}")), "{hosts}");
            assert!(!covered(hosts, "http://[fd00::1]:9"), "{hosts}");
            assert_eq!(PlainHttpHosts::parse(hosts).unwrap().to_string(), hosts);
        }
        // Nobody knows whether that is a port.
        assert!(covered("fd00::80", "http://[fd00::80]:11434") && !covered("fd00::80", "http://[fd00::]"));
    }

    #[test]
    fn what_is_no_host_is_told() {
        for wrong in [
            "[fd00::1",
            "fd00::1]",
            "[fd00::1]x",
            "fd00::1%eth0",
            "[::1]:port",
            "*",
            "*.internal",
            "http://ollama",
            "ollama/v1",
            "me@ollama",
            "a b",
            "ollama:port",
            ":80",
        ] {
            assert_eq!(PlainHttpHosts::parse(&format!("fine,{wrong}")), Err(wrong.to_owned()), "{wrong}");
        }
        assert_eq!(PlainHttpHosts::parse(" , "), Ok(PlainHttpHosts::default()));
    }
}
