//! What the headers of a request say, and whether it is what they say.

use std::path::Path;

use hyper::Response;
use hyper::StatusCode;
use hyper::header::{ACCEPT, HOST, HeaderMap, ORIGIN};
use serde_json::{Value, json};
use ua_mcp::header_text;

use super::{Body, said};
use crate::era;
use crate::incoming::Request;

/// Revisions that begin with a handshake.
const WITH_HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The folder that a client names as its project, if it does. One that is not there, or that depends on where the broker stands, would be a
/// project that nobody else is in.
pub(super) fn project_of(headers: &HeaderMap) -> Result<Option<String>, String> {
    let Some(value) = headers.get("ua-project") else { return Ok(None) };
    let named = str::from_utf8(value.as_bytes()).map_err(|_| "`Ua-Project` is not text in UTF-8".to_owned())?.trim();
    let folder = Path::new(named);
    if !folder.is_absolute() {
        return Err(format!("`Ua-Project` must be the full path of a folder, and is `{named}`"));
    }
    if !folder.is_dir() {
        return Err(format!("`Ua-Project` names the folder {named}, which is not there"));
    }
    Ok(Some(named.to_owned()))
}

pub(super) fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let all = headers.get_all(ACCEPT);
    let mut kinds = all.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    kinds.any(|one| {
        matches!(one.split(';').next().unwrap_or_default().trim(), "*/*" | "text/*") || one.trim().starts_with(kind)
    })
}

/// A web page that a browser shows must not reach tools, whatever name it has this machine resolved to, and whichever other server of this machine
/// it is from: the gateway shows no page, so no `Origin` but its own address is a client's.
pub(super) fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let is_own = |host: &str| {
        let rest = ["127.0.0.1", "localhost", "[::1]"].iter().find_map(|name| host.strip_prefix(name));
        // Behind the name there is a port or nothing: `127.0.0.1:80@evil.example` is another host.
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    };
    let host = text_of(headers, HOST.as_str()).filter(|host| is_own(host));
    let origin = headers.get(ORIGIN).map(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        origin.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    });
    // Of two of them who reads the second would see another one.
    let is_given_once = headers.get_all(HOST).iter().count() == 1 && headers.get_all(ORIGIN).iter().count() <= 1;
    is_given_once && host.is_some() && origin.unwrap_or(true)
}

/// Whether the revision that a message of a session says it is in is one that has sessions.
#[expect(clippy::result_large_err, reason = "a refusal is the answer that is sent")]
pub(super) fn speaks(headers: &HeaderMap, id: &Value) -> Result<(), Response<Body>> {
    let version = text_of(headers, "mcp-protocol-version");
    let Some(version) = version.filter(|version| !WITH_HANDSHAKE.contains(version)) else { return Ok(()) };
    let why = format!("protocol version {version} is not supported");
    let data = json!({"supported": WITH_HANDSHAKE, "requested": version});
    Err(said(StatusCode::BAD_REQUEST, id, era::UNSUPPORTED_VERSION, &why, data))
}

/// Whether a request is what its headers say, by which others route it.
pub(super) fn is_what_its_headers_say(headers: &HeaderMap, request: &Request) -> Result<(), String> {
    let params = request.params();
    let version = text_of(headers, "mcp-protocol-version");
    // Where it says nothing of itself it is refused for that.
    if let Some(own) = params["_meta"][era::PROTOCOL].as_str()
        && version != Some(own)
    {
        return Err(format!("`MCP-Protocol-Version` is not {own}"));
    }
    let method = request.method();
    if text_of(headers, "mcp-method") != Some(method) {
        return Err(format!("`Mcp-Method` is not {method}"));
    }
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = params[field].as_str().unwrap_or_default();
    let said = text_of(headers, "mcp-name").and_then(header_text);
    if said.as_deref() == Some(name) { Ok(()) } else { Err(format!("`Mcp-Name` is not {name}")) }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use crate::era::NEWER;
    use crate::incoming::{self, Incoming, Judged, Read};

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_programs_of_this_machine_are_served() {
        for (host, origin, is_own) in [
            ("127.0.0.1:7433", None, true),
            ("localhost:7433", Some("http://localhost:7433"), true),
            ("localhost:7433", Some("http://LocalHost:7433"), true),
            ("[::1]:7433", Some("https://[::1]:7433"), true),
            // Pages of other servers of this machine.
            ("localhost:7433", Some("http://localhost:3000"), false),
            ("127.0.0.1:7433", Some("http://127.0.0.1"), false),
            ("127.0.0.1:7433", Some("http://localhost:7433"), false),
            ("evil.example.com", None, false),
            ("127.0.0.1.evil.example.com", None, false),
            ("127.0.0.1:7499@evil.example.com", None, false),
            ("127.0.0.1@evil.example.com", None, false),
            ("[::1]@evil.example.com:80", None, false),
            ("localhost:", None, false),
            ("127.0.0.1", Some("http://127.0.0.1:80@evil.example.com"), false),
            ("127.0.0.1", Some("http://localhost/x"), false),
            ("127.0.0.1", Some("http://evil.example.com"), false),
            ("127.0.0.1", Some("null"), false),
        ] {
            let mut given = headers(&[("host", host)]);
            if let Some(origin) = origin {
                given.insert(ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(is_of_this_machine(&given), is_own, "{host} {origin:?}");
        }
        assert!(!is_of_this_machine(&HeaderMap::new()));
        for (name, second) in [(HOST, "127.0.0.1"), (HOST, "evil.example.com"), (ORIGIN, "http://evil.example.com")] {
            let mut twice = headers(&[("host", "127.0.0.1"), ("origin", "http://127.0.0.1")]);
            assert!(is_of_this_machine(&twice));
            twice.append(name, second.parse().unwrap());
            assert!(!is_of_this_machine(&twice), "{twice:?}");
        }
    }

    #[test]
    fn a_request_is_what_its_headers_say() {
        let call =
            json!({"id": 1, "method": "tools/call", "params": {"name": "send ü", "_meta": {era::PROTOCOL: NEWER}}});
        let Read::One(Judged::Taken(Incoming::Request(call))) = incoming::read(call.to_string().as_bytes()) else {
            panic!("no call")
        };
        let good =
            [("mcp-protocol-version", NEWER), ("mcp-method", "tools/call"), ("mcp-name", "=?base64?c2VuZCDDvA==?=")];
        assert_eq!(is_what_its_headers_say(&headers(&good), &call), Ok(()));
        for (place, other) in [(0, "2025-11-25"), (1, "tools/list"), (2, "send")] {
            let mut bad = good;
            bad[place].1 = other;
            assert!(is_what_its_headers_say(&headers(&bad), &call).is_err(), "{bad:?}");
        }
        assert!(is_what_its_headers_say(&headers(&good[..2]), &call).is_err());
    }

    #[test]
    fn a_project_is_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("caf\u{e9}");
        std::fs::create_dir(&there).unwrap();
        let of = |value: &[u8]| {
            project_of(&HeaderMap::from_iter([(
                "ua-project".parse().unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            )]))
        };
        assert_eq!(project_of(&HeaderMap::new()), Ok(None));
        let name = there.to_str().unwrap();
        assert_eq!(of(format!(" {name} ").as_bytes()), Ok(Some(name.to_owned())));
        for (value, why) in [
            (b"relative/x".as_slice(), "full path"),
            (b"", "full path"),
            (b"/nonexistent/zz", "not there"),
            (b"/etc/passwd", "not there"),
            (b"/caf\xe9", "UTF-8"),
        ] {
            assert!(of(value).is_err_and(|refused| refused.contains(why)), "{why}");
        }
    }

    #[test]
    fn what_is_accepted_is_read_from_lists() {
        let of = |accept: &str| accepts(&headers(&[("accept", accept)]), "text/event-stream");
        assert!(of("application/json, text/event-stream") && of("*/*") && of("text/event-stream;q=0.5"));
        assert!(!of("application/json") && !accepts(&HeaderMap::new(), "text/event-stream"));
    }
}
