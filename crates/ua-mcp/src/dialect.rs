//! Which revision of the protocol a server speaks, and what follows from it for every request.
//!
//! Two eras: up to 2025-11-25 a connection begins with a handshake (`initialize`) and belongs to a session; from 2026-07-28 there is
//! neither: `server/discover` says what a server can do, and each request says for itself who asks and in which revision. A server
//! that is not pinned is asked for the new era first, which changes nothing in it, and for a handshake when it does not know it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rmcp::model::{Implementation, ProtocolVersion};
use serde_json::{Map, Value, json};

use crate::tasks::TASKS;

/// How long a server may leave `server/discover` unanswered before it is taken for one of the old era.
pub(crate) const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);

const PROTOCOL: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// Which revision of the protocol a server is spoken to in (`protocol` of its entry in the MCP configuration).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The newest that both sides know.
    #[default]
    Auto,
    /// The newest of those that begin with a handshake.
    Handshake,
    /// Exactly this one; a server that does not speak it is refused.
    Pinned(String),
}

impl Protocol {
    /// Whether a handshake may be tried.
    pub(crate) fn offered(&self) -> Option<ProtocolVersion> {
        match self {
            Self::Auto | Self::Handshake => Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            Self::Pinned(version) => known(version).filter(ProtocolVersion::has_initialize),
        }
    }

    /// Whether `server/discover` may be tried.
    pub(crate) fn may_discover(&self) -> bool {
        match self {
            Self::Auto => true,
            Self::Handshake => false,
            Self::Pinned(version) => known(version).is_some_and(|version| !version.has_initialize()),
        }
    }

    /// Why this revision does not do, if it does not.
    pub(crate) fn refuses(&self, version: &str) -> Option<String> {
        match self {
            Self::Pinned(pinned) if pinned != version => {
                Some(format!("it speaks revision {version} of the protocol, and `protocol` pins {pinned}"))
            }
            Self::Auto | Self::Handshake | Self::Pinned(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Handshake => "handshake",
            Self::Pinned(version) => version,
        })
    }
}

impl FromStr for Protocol {
    type Err = String;

    /// Reads `auto`, `handshake` or a revision that this build knows.
    fn from_str(text: &str) -> Result<Self, String> {
        match known(text) {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "handshake" => Ok(Self::Handshake),
            Some(_) => Ok(Self::Pinned(text.to_owned())),
            None => {
                let known: Vec<&str> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
                Err(format!(
                    "`{text}` is not a revision that this build speaks; use auto, handshake, {}",
                    known.join(", ")
                ))
            }
        }
    }
}

/// A revision by its name.
pub(crate) fn known(version: &str) -> Option<ProtocolVersion> {
    ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| known.as_str() == version).cloned()
}

/// What was agreed on with a server, and what the server says about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Dialect {
    /// The revision.
    pub(crate) version: String,
    /// Whether every request stands for itself.
    pub(crate) is_stateless: bool,
    /// The server's name and version, as it gives them.
    pub(crate) server: (String, String),
    capabilities: Value,
    client: Value,
}

impl Dialect {
    /// What comes out of `initialize`; the error says why nothing can.
    pub(crate) fn of_handshake(result: &Value, wanted: &Protocol) -> Result<Self, String> {
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !known(version).is_some_and(|version| version.has_initialize()) {
            return Err(format!("it speaks revision {version:?} of the protocol, which this build does not know"));
        }
        if let Some(why) = wanted.refuses(version) {
            return Err(why);
        }
        Ok(Self {
            version: version.to_owned(),
            is_stateless: false,
            server: name_and_version(result.get("serverInfo")),
            capabilities: result.get("capabilities").cloned().unwrap_or_default(),
            client: Value::Null,
        })
    }

    /// What comes out of `server/discover`.
    pub(crate) fn of_discovery(result: &Value, wanted: &Protocol, client: &Implementation) -> Result<Self, String> {
        let supported = result.get("supportedVersions").and_then(Value::as_array).into_iter().flatten();
        let mut supported: Vec<&str> = supported.filter_map(Value::as_str).collect();
        supported.sort_unstable();
        let usable = |version: &&&str| {
            known(version).is_some_and(|known| !known.has_initialize()) && wanted.refuses(version).is_none()
        };
        let Some(version) = supported.iter().rev().find(usable) else {
            return Err(format!("of the protocol's revisions it speaks {}", supported.join(", ")));
        };
        Ok(Self {
            version: (*version).to_owned(),
            is_stateless: true,
            server: name_and_version(result.get("_meta").and_then(|meta| meta.get(SERVER))),
            capabilities: result.get("capabilities").cloned().unwrap_or_default(),
            client: json!(client),
        })
    }

    /// One for a session that an earlier process began.
    pub(crate) fn of_session(version: &str) -> Self {
        Self { version: version.to_owned(), ..Self::default() }
    }

    /// One for asking a server which revisions it speaks.
    pub(crate) fn of_asking(client: &Implementation) -> Self {
        let version = ProtocolVersion::LATEST.as_str().to_owned();
        Self { version, is_stateless: true, client: json!(client), ..Self::default() }
    }

    /// Puts what each request has to say for itself into its `_meta`.
    pub(crate) fn sign(&self, meta: &mut Map<String, Value>) {
        if self.is_stateless {
            meta.insert(PROTOCOL.to_owned(), json!(self.version));
            meta.insert(CLIENT.to_owned(), self.client.clone());
            meta.insert(CAPABILITIES.to_owned(), capabilities(true));
        }
    }

    /// Whether it tells when its tools become other ones, on a connection that is there to tell on.
    pub(crate) fn says_when_tools_change(&self) -> bool {
        !self.is_stateless && self.capabilities.pointer("/tools/listChanged") == Some(&Value::Bool(true))
    }

    /// Whether it has resources to read.
    pub(crate) fn has_resources(&self) -> bool {
        self.capabilities.get("resources").is_some_and(Value::is_object)
    }

    /// Whether calls of tools can be made as tasks by asking for it, as revision 2025-11-25 has it.
    pub(crate) fn makes_tasks_when_asked(&self) -> bool {
        !self.is_stateless && self.capabilities.pointer("/tasks/requests/tools/call").is_some()
    }
}

fn name_and_version(info: Option<&Value>) -> (String, String) {
    let text =
        |field: &str| info.and_then(|info| info.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

/// What we can do for a server: have a person fill in a form or look at an address, and follow its tasks.
pub(crate) fn capabilities(is_stateless: bool) -> Value {
    let mut capabilities = json!({ "elicitation": { "form": { "applyDefaults": true }, "url": {} } });
    if is_stateless {
        capabilities["extensions"] = json!({ TASKS: {} });
    }
    capabilities
}

/// The parameters of a handshake.
pub(crate) fn handshake(version: &ProtocolVersion, client: &Implementation) -> Value {
    json!({ "protocolVersion": version, "capabilities": capabilities(false), "clientInfo": client })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Implementation {
        Implementation::new("test", "1")
    }

    #[test]
    fn only_revisions_that_are_known_can_be_pinned() {
        assert_eq!("auto".parse(), Ok(Protocol::Auto));
        assert_eq!("2025-06-18".parse(), Ok(Protocol::Pinned("2025-06-18".into())));
        let why = "2031-01-01".parse::<Protocol>().unwrap_err();
        assert!(why.contains("2026-07-28") && why.contains("auto"), "{why}");
    }

    #[test]
    fn a_pin_decides_how_a_server_is_spoken_to() {
        let stateless = Protocol::Pinned("2026-07-28".into());
        assert_eq!((stateless.offered(), stateless.may_discover()), (None, true));
        let old = Protocol::Pinned("2025-06-18".into());
        assert_eq!((old.offered().unwrap().as_str(), old.may_discover()), ("2025-06-18", false));
        let shaken = json!({"protocolVersion": "2025-03-26", "capabilities": {}});
        assert!(Dialect::of_handshake(&shaken, &old).unwrap_err().contains("pins 2025-06-18"));
        assert_eq!(Dialect::of_handshake(&shaken, &Protocol::Auto).unwrap().version, "2025-03-26");
    }

    #[test]
    fn a_discovered_server_takes_requests_that_stand_for_themselves() {
        let result = json!({"supportedVersions": ["2025-11-25", "2026-07-28", "2030-01-01"], "capabilities": {"resources": {}},
            "_meta": {SERVER: {"name": "s", "version": "2"}}});
        let dialect = Dialect::of_discovery(&result, &Protocol::Auto, &client()).unwrap();
        assert_eq!((dialect.version.as_str(), dialect.server.1.as_str()), ("2026-07-28", "2"));
        assert!(dialect.has_resources() && !dialect.makes_tasks_when_asked());
        let mut meta = Map::new();
        dialect.sign(&mut meta);
        assert_eq!(meta[PROTOCOL], "2026-07-28");
        assert!(meta[CAPABILITIES]["elicitation"].is_object() && meta[CLIENT]["name"] == "test");
        let old = json!({"supportedVersions": ["2025-11-25"]});
        assert!(Dialect::of_discovery(&old, &Protocol::Auto, &client()).is_err());
    }
}
