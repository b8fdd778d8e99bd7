//! What a server will say of itself, known before it is started: for one that is this very program under another name.
//!
//! A first request to a model needs the tools. To start a server, shake hands and ask it for them takes most of a start, and brings what this
//! program knows already. So the tools are offered as they are foretold, while the server starts. Invariants: nothing is called before the server
//! has been asked and said exactly the same; what differs stops the run, as tools do that change while a step is at work.
//!
//! Proved by: `tests::foretold`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::ServerSpec;
use crate::dialect::Dialect;

/// What a server answers when it is asked what it is and which tools it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foretold {
    /// Its name and version, as `serverInfo` of the protocol has them.
    pub server_info: Value,
    /// What it can do, as `capabilities` of the protocol has it.
    pub capabilities: Value,
    /// Its tools, in their order, as `tools/list` shows them.
    pub tools: Vec<Value>,
}

/// Says what a server will answer that is started so; nothing about one that nobody can know.
pub type Foreteller = Arc<dyn Fn(&ServerSpec) -> Option<Foretold> + Send + Sync>;

/// What one server was said to be, until it has said so itself.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) dialect: Dialect,
    pub(crate) tools: Vec<Value>,
}

impl Expected {
    /// What is expected of a server, where that can be told.
    pub(crate) fn of(spec: &ServerSpec, foreteller: &Foreteller) -> Option<Self> {
        let Foretold { server_info, capabilities, tools } = foreteller(spec)?;
        let version = spec.protocol.offered()?;
        let hello = json!({ "protocolVersion": version, "serverInfo": server_info, "capabilities": capabilities });
        Some(Self { dialect: Dialect::of_handshake(&hello, &spec.protocol).ok()?, tools })
    }

    /// What is another than expected, if anything is.
    pub(crate) fn differs(&self, dialect: &Dialect, tools: &[Value]) -> Option<String> {
        let shown = |dialect: &Dialect| {
            let (name, version) = &dialect.server;
            format!("`{}` over MCP {}", crate::host::printable(&format!("{name} {version}"), 200), dialect.version)
        };
        let what = if self.dialect != *dialect {
            let (is, was) = (shown(dialect), shown(&self.dialect));
            if is == was { format!("{is} has other capabilities") } else { format!("{is} instead of {was}") }
        } else if self.tools != tools {
            let by_name = |tools: &[Value]| -> BTreeMap<String, Value> {
                tools.iter().map(|tool| (tool["name"].as_str().unwrap_or_default().to_owned(), tool.clone())).collect()
            };
            let (expected, found) = (by_name(&self.tools), by_name(tools));
            let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
            let other: Vec<&str> =
                names.filter(|name| expected.get(*name) != found.get(*name)).map(String::as_str).collect();
            match other.as_slice() {
                [] => "its tools are in another order".to_owned(),
                other => format!("other tools: {}", crate::host::printable(&other.join(", "), 400)),
            }
        } else {
            return None;
        };
        Some(format!(
            "the server that runs differs from the one this program starts ({what}), for example after an upgrade during the run; \
             resume the run to use the server's own list"
        ))
    }
}
