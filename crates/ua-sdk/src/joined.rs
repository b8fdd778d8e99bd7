//! Several transports as one: the program's own tools, tool servers, and whatever else brings tools.
//!
//! Each server name belongs to one part. Invariant: a generation that no part knows is never said to be gone.
//! Proved by: the tests below.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{Destination, Handle, Outcome, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Enquiry, Fence, MayAct, Permit, ToolTransport, TransportError};

/// A transport and the names of its servers; `None` is asked about every name that no other part has.
pub(crate) struct Part {
    pub(crate) servers: Option<Vec<String>>,
    pub(crate) transport: Arc<dyn ToolTransport>,
}

pub(crate) struct Joined {
    pub(crate) parts: Vec<Part>,
}

impl Joined {
    fn of(&self, server: &str) -> Option<&dyn ToolTransport> {
        let named = self.parts.iter().find(|part| part.servers.iter().flatten().any(|name| name == server));
        named.or_else(|| self.parts.iter().find(|part| part.servers.is_none())).map(|part| &*part.transport)
    }

    fn found(&self, server: &str) -> Result<&dyn ToolTransport, TransportError> {
        self.of(server).ok_or_else(|| TransportError::UnknownServer { server: server.to_owned() })
    }
}

fn nobody(server: &str) -> String {
    format!("the program has no tool server `{server}` any more")
}

#[async_trait]
impl ToolTransport for Joined {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let mut all = Vec::new();
        for part in &self.parts {
            let tools = part.transport.list().await?;
            // What is listed here would be called elsewhere.
            if let Some(names) = &part.servers
                && let Some(foreign) = tools.iter().find(|tool| !names.contains(&tool.name.server))
            {
                let server = &foreign.name.server;
                return Err(TransportError::Changed {
                    server: names.join("`, `"),
                    why: format!(
                        "`{}` among them is of the server `{server}`, which the step does not name: `Step::transport` takes the names of all its \
                         servers",
                        foreign.name.raw
                    ),
                });
            }
            all.extend(tools);
        }
        Ok(all)
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.of(server)?.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.found(server)?.ready(server).await
    }

    fn running(&self, server: &str) -> Option<String> {
        self.of(server)?.running(server)
    }

    fn is_silent(&self, server: &str) -> bool {
        self.of(server).is_some_and(|transport| transport.is_silent(server))
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        // A server that the program has no more gets nothing.
        self.of(&tool.server).map_or(Ok(None), |transport| transport.destination(tool, arguments))
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let server = &permit.name().server;
        match self.of(server) {
            Some(transport) => transport.invoke(permit).await,
            None => Outcome::NotSent { why: nobody(server) },
        }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        self.found(&permit.name().server)?.go_on(permit, handle).await
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        if let Some(transport) = self.of(&permit.name().server) {
            transport.give_up(permit, handle).await;
        }
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let server = &enquiry.tool().server;
        match self.of(server) {
            Some(transport) => transport.ask(enquiry).await,
            None => Outcome::NotSent { why: nobody(server) },
        }
    }

    async fn fence_earlier(&self) -> Fence {
        let mut alive = Vec::new();
        for part in &self.parts {
            if let Fence::Alive { detail } = part.transport.fence_earlier().await {
                alive.push(detail);
            }
        }
        if alive.is_empty() { Fence::Gone } else { Fence::Alive { detail: alive.join("; ") } }
    }

    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        self.of(server).map_or(Duration::ZERO, |transport| transport.horizon(server, generation, lost_at))
    }

    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        // Another run's server may be one that no part of this one knows.
        let acts = |part: &Part| part.transport.may_act(server, generation, ended_at);
        self.parts.iter().map(acts).max().unwrap_or(MayAct::No)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        self.of(server).and_then(|transport| transport.generation_unknown(server))
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        match self.of(server) {
            Some(transport) => transport.renew(server, generation, lost_at).await,
            None => Fence::Alive { detail: nobody(server) },
        }
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        match self.of(server) {
            Some(transport) => transport.fence(server, generation, lost_at).await,
            None => Fence::Alive { detail: nobody(server) },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Env, ToolAnnotations, ToolNamespace};
    use ua_dispatch::LocalTools;

    use super::*;

    #[tokio::test]
    async fn a_tool_of_a_server_that_its_transport_is_not_named_for_is_refused_when_it_is_listed() {
        let spec = |server: &str| ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, server, "look"),
            description: "Looks.".to_owned(),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        let tools = || {
            let tools = LocalTools::new(Env::simulated(1));
            let both =
                tools.with(spec("shop"), async |_| Ok(json!("yes"))).with(spec("elsewhere"), async |_| Ok(json!("no")));
            Arc::new(both) as Arc<dyn ToolTransport>
        };
        let joined = |names: &[&str]| Joined {
            parts: vec![Part {
                servers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
                transport: tools(),
            }],
        };
        assert_eq!(joined(&["shop", "elsewhere"]).list().await.unwrap().len(), 2);
        let refused = joined(&["shop"]).list().await.unwrap_err().to_string();
        for told in ["tools of `shop`", "`mcp__elsewhere__look`", "`elsewhere`", "`Step::transport`"] {
            assert!(refused.contains(told), "{told}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_generation_that_no_part_knows_is_not_said_to_be_gone() {
        let own =
            Part { servers: Some(vec!["program".to_owned()]), transport: Arc::new(LocalTools::new(Env::simulated(1))) };
        let joined = Joined { parts: vec![own] };
        assert_eq!(joined.fence("program", "in-process", None).await, Fence::Gone);
        assert!(matches!(joined.fence("notes", "1", None).await, Fence::Alive { detail } if detail.contains("notes")));
        assert!(matches!(joined.ready("notes").await, Err(TransportError::UnknownServer { .. })));
    }
}
