//! A world that counts: tools without processes, whose effects outlive every simulated crash.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Outcome, RawReply, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_gateway::{Fence, Permit, ToolTransport, TransportError};

/// How a tool of the world treats keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honours {
    /// A second call under one key has no second effect.
    Keys,
    /// Every call has its effect.
    Nothing,
}

/// One effect that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The tool.
    pub tool: String,
    /// The key it came with.
    pub key: String,
    /// Its arguments.
    pub arguments: Value,
}

/// The outside world.
#[derive(Debug, Default)]
pub struct World {
    tools: Vec<(ToolName, Honours)>,
    deliveries: Mutex<Vec<Delivery>>,
    seen: Mutex<BTreeMap<String, Value>>,
    padding: usize,
}

impl World {
    /// A world with these tools.
    pub fn new(tools: impl IntoIterator<Item = (ToolName, Honours)>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::default() }
    }

    /// The same world, with `bytes` of padding in each answer.
    #[must_use]
    pub fn padded(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// What happened, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often a tool had its effect.
    pub fn count(&self, tool: &str) -> usize {
        self.deliveries().iter().filter(|delivery| delivery.tool == tool).count()
    }

    fn act(&self, permit: &Permit, honours: Honours) -> Value {
        let tool = permit.name().tool.clone();
        let key = permit.key().as_str().to_owned();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if honours == Honours::Keys
            && let Some(answer) = seen.get(&key)
        {
            return answer.clone();
        }
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let arguments = Value::Object(permit.arguments());
        deliveries.push(Delivery { tool: tool.clone(), key: key.clone(), arguments });
        let mut answer = json!({"id": format!("{tool}-{}", deliveries.len())});
        if self.padding > 0 {
            answer["padding"] = "x".repeat(self.padding).into();
        }
        seen.insert(key, answer.clone());
        answer
    }
}

#[async_trait]
impl ToolTransport for World {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let spec = |name: &ToolName| ToolSpec {
            name: name.clone(),
            description: format!("The {} of a test's world.", name.tool),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        Ok(self.tools.iter().map(|(name, _)| spec(name)).collect())
    }

    async fn ready(&self, _server: &str) -> Result<String, TransportError> {
        Ok("1".to_owned())
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let Some((_, honours)) = self.tools.iter().find(|(name, _)| name == permit.name()) else {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "no such tool".to_owned() });
        };
        let answer = self.act(permit, *honours);
        let text = answer.to_string();
        Outcome::Raw(RawReply::ToolResult {
            result: json!({"content": [{"type": "text", "text": text}], "structuredContent": answer}),
        })
    }

    async fn fence(&self, _server: &str, _generation: &str) -> Fence {
        Fence::Gone
    }
}

/// A tool of our own server, as the shipped policy knows it.
pub fn own_tool(tool: &str) -> ToolName {
    ToolName::qualified(ToolNamespace::Local, "ua", tool)
}

/// A tool of a server that nobody knows anything about.
pub fn foreign_tool(server: &str, tool: &str) -> ToolName {
    ToolName::qualified(ToolNamespace::Mcp, server, tool)
}
