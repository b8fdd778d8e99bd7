//! Where a wire's endpoint is.

use reqwest::Url;

use crate::plain_http::PlainHttpHosts;

/// The endpoint `/v1/LEAF` of `base`; a `/v1` at the end of the base is not doubled.
pub(crate) fn endpoint_in_v1(base: &str, leaf: &str) -> Result<Url, String> {
    joined(base, |path| format!("{}/v1/{leaf}", path.strip_suffix("/v1").unwrap_or(path)))
}

/// The endpoint `LEAF` below `base`, as clients of OpenAI's API join them; a base without any path gets `/v1` first.
pub(crate) fn endpoint_below(base: &str, leaf: &str) -> Result<Url, String> {
    joined(base, |path| if path.is_empty() { format!("/v1/{leaf}") } else { format!("{path}/{leaf}") })
}

/// A base with what `longer` makes of its path, which has no slash at its end. A query (`?api-version=1`) stays behind it.
fn joined(base: &str, longer: impl FnOnce(&str) -> String) -> Result<Url, String> {
    let mut url = read(base.trim())?;
    let path = longer(url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_fragment(None);
    if url.query() == Some("") {
        url.set_query(None);
    }
    Ok(url)
}

fn read(text: &str) -> Result<Url, String> {
    let bare = if is_bare_ipv6(text) {
        "; an IPv6 address is written in brackets there, as in http://[fd00::1]:8080"
    } else {
        ""
    };
    let url = Url::parse(text).map_err(|error| format!("the base URL is not a URL: {error}{bare}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("the base URL has the scheme {scheme}, which is neither http nor https")),
    }
}

/// Whether the host of an address is one of IPv6 without the brackets that tell its colons from the one in front of a port.
fn is_bare_ipv6(text: &str) -> bool {
    let behind = text.split_once("://").map_or(text, |(_, behind)| behind);
    let host = behind.split(['/', '?', '#']).next().unwrap_or_default();
    host.matches(':').count() > 1 && !host.contains('[')
}

/// Refuses to send what a run holds in clear text to another machine, unless a person named that one for it.
pub(crate) fn check_is_private(url: &Url, plain: &PlainHttpHosts) -> Result<(), String> {
    if url.scheme() == "https" || is_this_machine(url) || plain.covers(url) {
        return Ok(());
    }
    Err(format!(
        "the base URL reaches {} over http, where anyone on the network can read the key and the history: use https, \
         a tunnel that ends on this machine, or name the host as one of a private network (`plain_http_hosts`)",
        authority(url)
    ))
}

pub(crate) fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an address is at one of these domains, or below it.
pub(crate) fn is_of(url: &Url, domains: &[&str]) -> bool {
    let host = url.host_str().unwrap_or_default();
    domains.iter().any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether it is OpenAI that answers there, itself or at Azure.
pub(crate) fn is_openai(url: &Url) -> bool {
    is_of(url, &["openai.com", "openai.azure.com"])
}

/// Host and port; what else a URL may hold (a password, a query) does not belong in messages.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_url_may_end_in_a_slash_or_in_v1() {
        for base in ["https://host/p", "https://host/p/", "https://host/p/v1", " https://host/p/v1/ "] {
            assert_eq!(endpoint_in_v1(base, "messages").unwrap().as_str(), "https://host/p/v1/messages");
        }
    }

    #[test]
    fn an_openai_base_is_joined_as_its_clients_do_and_a_bare_host_gets_v1() {
        for (base, expected) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/x"),
            ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/x"),
            ("https://host/v1beta/openai/", "https://host/v1beta/openai/x"),
            ("http://localhost:11434", "http://localhost:11434/v1/x"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/x"),
        ] {
            assert_eq!(endpoint_below(base, "x").unwrap().as_str(), expected, "{base}");
        }
    }

    #[test]
    fn a_query_of_the_base_url_stays_behind_the_path() {
        for (base, in_v1, below) in [
            (
                "https://host/p/v1?api-version=1&x=a%2Fb",
                "https://host/p/v1/x?api-version=1&x=a%2Fb",
                "https://host/p/v1/x?api-version=1&x=a%2Fb",
            ),
            ("https://host/?a=1/", "https://host/v1/x?a=1/", "https://host/v1/x?a=1/"),
            ("https://host?a=1", "https://host/v1/x?a=1", "https://host/v1/x?a=1"),
            ("https://host/p/?", "https://host/p/v1/x", "https://host/p/x"),
            ("https://host/a%2Fb#part", "https://host/a%2Fb/v1/x", "https://host/a%2Fb/x"),
        ] {
            assert_eq!(endpoint_in_v1(base, "x").unwrap().as_str(), in_v1, "{base}");
            assert_eq!(endpoint_below(base, "x").unwrap().as_str(), below, "{base}");
        }
    }

    #[test]
    fn a_base_url_that_cannot_be_called_is_told() {
        for base in ["", "api.anthropic.com", "ftp://host"] {
            assert!(endpoint_in_v1(base, "x").is_err() && endpoint_below(base, "x").is_err(), "{base:?}");
        }
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        for (base, endpoint) in
            [("http://[::1]:11434", "http://[::1]:11434/v1/x"), ("https://[fd00::1]/v1", "https://[fd00::1]/v1/x")]
        {
            assert_eq!(endpoint_below(base, "x").unwrap().as_str(), endpoint);
        }
        for base in ["http://::1:11434", "http://fd00::1/v1", "https://fd00::1:443/v1?a=[b]"] {
            let why = endpoint_below(base, "x").unwrap_err();
            assert!(why.contains("in brackets"), "{base}: {why}");
        }
        assert!(!endpoint_below("http://host:port", "x").unwrap_err().contains("brackets"));
        assert_eq!(authority(&Url::parse("http://[fd00::1]:9/v1").unwrap()), "[fd00::1]:9");
    }

    #[test]
    fn only_this_machine_is_called_around_the_proxy() {
        let near = |text: &str| is_this_machine(&Url::parse(text).unwrap());
        assert!(near("http://127.0.0.1:80") && near("http://[::1]:80") && near("http://localhost"));
        assert!(!near("http://127.0.0.1.example.com") && !near("https://api.anthropic.com"));
    }

    #[test]
    fn clear_text_goes_to_this_machine_only() {
        let private = |text: &str| check_is_private(&Url::parse(text).unwrap(), &PlainHttpHosts::default()).is_ok();
        assert!(private("http://localhost:8080") && private("https://host"));
        assert!(!private("http://host") && !private("http://192.168.1.2:8080"));
        let named = PlainHttpHosts::parse("host").unwrap();
        assert_eq!(check_is_private(&Url::parse("http://host:8080").unwrap(), &named), Ok(()));
        assert!(check_is_private(&Url::parse("http://other").unwrap(), &named).is_err());
    }
}
