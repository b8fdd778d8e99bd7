//! Where a key may be sent: the address of a model provider is the user's word alone (no job file and no project has a field for it),
//! and goes over TLS unless it is this machine, or one that the user names for it (`model.plain_http_hosts`).

use ua_llm::PlainHttpHosts;
use url::{Host, Url};

use crate::error::HostError;

/// Refuses an address to which a key would travel in the clear, unless its host is one of `plain`. `variable` is where the user said it.
pub fn check(variable: &str, address: &str, plain: &PlainHttpHosts) -> Result<(), HostError> {
    let refused = |why: &str| {
        HostError::usage(format!("cannot use {variable}: {why}")).hint(format!(
            "set {variable} to an https:// address; http:// is for this machine only, because a key goes there, and for hosts of a private network \
             that `model.plain_http_hosts` (UA_PLAIN_HTTP_HOSTS) names"
        ))
    };
    let url = Url::parse(address.trim()).map_err(|e| {
        let bare = if is_bare_ipv6(address) {
            ": an IPv6 address is written in brackets, as in http://[fd00::1]:8080"
        } else {
            ""
        };
        refused(&format!("it is not an address ({e}){bare}"))
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("it contains a user name or a password"));
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_this_machine(&url) || plain.covers(&url) => Ok(()),
        "http" => Err(refused("a key would go there unencrypted")),
        _ => Err(refused("it is not an https:// address")),
    }
}

/// Whether the host of an address is one of IPv6 without the brackets that tell its colons from the one in front of a port.
fn is_bare_ipv6(address: &str) -> bool {
    let behind = address.trim().split_once("://").map_or(address, |(_, behind)| behind);
    let host = behind.split(['/', '?', '#']).next().unwrap_or_default();
    host.matches(':').count() > 1 && !host.contains('[')
}

/// The host, with its port, of an address that is plain http of another machine: what [`PlainHttpHosts`] would have to name.
pub(crate) fn host_in_the_clear(address: &str) -> Option<String> {
    let url = Url::parse(address.trim()).ok().filter(|_| goes_in_the_clear(address))?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Whether what is sent to an address, and the keys that go with it or stand in it, could be read on the way: `http://` of another machine.
pub fn goes_in_the_clear(address: &str) -> bool {
    // What is no address, nothing is sent to.
    Url::parse(address.trim()).is_ok_and(|url| url.scheme() == "http" && !is_this_machine(&url))
}

/// Whether an address is this machine by its number or by the one name that always means it.
pub fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_a_key_goes_over_tls_or_stays_on_this_machine() {
        for fine in ["https://api.anthropic.com", "http://127.0.0.1:8080/v1", "http://[::1]:1", "http://localhost:9"] {
            assert!(check("X", fine, &PlainHttpHosts::default()).is_ok(), "{fine}");
            assert!(!goes_in_the_clear(fine), "{fine}");
        }
        for wrong in [
            "http://api.anthropic.com",
            "http://127.0.0.1.evil.test",
            "http://localhost.evil.test",
            "http://10.0.0.1",
            "https://user:pass@evil.test",
            "file:///etc/passwd",
            "evil.test",
        ] {
            assert!(check("X", wrong, &PlainHttpHosts::default()).is_err(), "{wrong}");
            assert_eq!(goes_in_the_clear(wrong), wrong.starts_with("http://"), "{wrong}");
        }
    }

    #[test]
    fn s10_plain_http_goes_to_hosts_that_the_user_names_and_to_no_others() {
        let named = PlainHttpHosts::parse("ollama,litellm:4000").unwrap();
        let is_taken = |address: &str| check("X", address, &named).is_ok();
        assert!(is_taken("http://ollama:11434") && is_taken("http://litellm:4000/v1"));
        for wrong in ["http://litellm:80", "http://ollama.evil.test", "http://me:pass@ollama", "http://10.0.0.1"] {
            assert!(!is_taken(wrong), "{wrong}");
        }
        // An address of IPv6 is one host, in brackets.
        let six = PlainHttpHosts::parse("fd00::1,[fd00::2]:11434").unwrap();
        let is_taken = |address: &str| check("X", address, &six).is_ok();
        assert!(is_taken("http://[fd00::1]:9") && is_taken("http://[fd00::2]:11434/v1"));
        assert!(!is_taken("http://[fd00::2]:9") && !is_taken("http://[fd00::3]:11434"));
        for bare in ["http://fd00::1:11434", "http://::1/v1"] {
            assert!(check("X", bare, &six).unwrap_err().to_string().contains("in brackets"), "{bare}");
        }
        for (address, host) in [
            ("http://ollama:11434/v1", Some("ollama:11434")),
            ("http://[fd00::1]:9", Some("[fd00::1]:9")),
            ("http://ollama", Some("ollama")),
            ("https://ollama", None),
            ("http://[::1]:9", None),
            ("nothing", None),
        ] {
            assert_eq!(host_in_the_clear(address).as_deref(), host, "{address}");
        }
        assert!(goes_in_the_clear("http://ollama:11434"), "whoever looks for that is told");
    }
}
