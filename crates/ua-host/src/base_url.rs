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
    let url = Url::parse(address.trim()).map_err(|e| refused(&format!("it is not an address ({e})")))?;
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
        assert!(goes_in_the_clear("http://ollama:11434"), "whoever looks for that is told");
    }
}
