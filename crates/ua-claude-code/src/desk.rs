//! The desk: where `claude` asks for tools and is answered, over bridges to a socket that only this user may open.
//!
//! It speaks the server's side of MCP over lines of JSON-RPC, as little of it as `claude` needs: it lists the tools that the request
//! offered, and answers a call with the result that the run has for it. Invariants: a call waits until the run has a result for the very
//! tool use it belongs to; nothing is run here; a call that belongs to no tool use of the conversation is never answered with a result.
//! Proved by: the tests below, the end-to-end tests `claude_code`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::{JoinHandle, JoinSet};
use ua_core::ToolUse;
use ua_llm::ToolOffer;

/// Where `claude` says which tool use of its model a call belongs to.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

/// The newest version of the protocol that is known to fit; `claude` is told the one it asked for.
const PROTOCOL: &str = "2025-11-25";

/// Splits a qualified name into the tool server's name and the tool's.
pub(crate) fn parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp__")?.split_once("__")
}

/// A tool use of the conversation, and what came of it.
#[derive(Debug)]
struct Expected {
    tool_use: ToolUse,
    result: Option<Value>,
    /// A call without an id took it.
    is_taken: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// The tools, as MCP lists them, by server.
    tools: BTreeMap<String, Vec<Value>>,
    expected: Mutex<Vec<Expected>>,
    changed: Notify,
}

/// A listening desk; it closes when it is dropped, and so do its bridges.
#[derive(Debug)]
pub(crate) struct Desk {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Desk {
    /// Listens at `socket`, which is made anew, and offers `tools`.
    pub(crate) fn open(socket: &Path, tools: &[ToolOffer]) -> io::Result<Self> {
        let mut by_server: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for offer in tools {
            let Some((server, tool)) = parts(&offer.name) else { continue };
            let tool = json!({"name": tool, "description": offer.description, "inputSchema": offer.input_schema});
            by_server.entry(server.to_owned()).or_default().push(tool);
        }
        let listener = UnixListener::from_std(ua_bridge::listen(socket)?)?;
        let shared = Arc::new(Shared { tools: by_server, ..Shared::default() });
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Ok(Self { shared, task })
    }

    /// The tool servers that bridges may stand for.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &str> {
        self.shared.tools.keys().map(String::as_str)
    }

    /// Takes note of what a reply asks for; calls for it wait from now on, or did already.
    pub(crate) fn expect<'a>(&self, tool_uses: impl Iterator<Item = &'a ToolUse>) {
        let fresh = tool_uses.map(|tool_use| Expected { tool_use: tool_use.clone(), result: None, is_taken: false });
        self.shared.expected().extend(fresh);
        self.shared.changed.notify_waiters();
    }

    /// Has the result of a tool use; whoever waits for it is answered.
    pub(crate) fn answer(&self, tool_use_id: &str, text: &str, is_error: bool) {
        let mut expected = self.shared.expected();
        if let Some(one) = expected.iter_mut().find(|one| one.tool_use.id == tool_use_id) {
            one.result = Some(json!({"content": [{"type": "text", "text": text}], "isError": is_error}));
        }
        drop(expected);
        self.shared.changed.notify_waiters();
    }
}

impl Shared {
    fn expected(&self) -> MutexGuard<'_, Vec<Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the result that a call asks for.
    async fn result(&self, server: &str, params: &Value) -> Value {
        let mut id = params["_meta"][TOOL_USE_ID].as_str().map(str::to_owned);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if id.is_none() {
                // A client that does not say: the oldest of the same tool with the same arguments is the one.
                id = self.take(server, &params["name"], &params["arguments"]);
            }
            let found = self
                .expected()
                .iter()
                .find(|one| Some(&one.tool_use.id) == id.as_ref())
                .and_then(|one| one.result.clone());
            match found {
                Some(result) => return result,
                None => changed.await,
            }
        }
    }

    fn take(&self, server: &str, tool: &Value, arguments: &Value) -> Option<String> {
        let name = format!("mcp__{server}__{}", tool.as_str()?);
        let mut expected = self.expected();
        let is_it =
            |one: &&mut Expected| !one.is_taken && one.tool_use.name == name && one.tool_use.input == *arguments;
        let one = expected.iter_mut().find(is_it)?;
        one.is_taken = true;
        Some(one.tool_use.id.clone())
    }

    /// What a request is answered with.
    async fn answer(&self, server: &str, method: &str, params: &Value) -> Result<Value, (i32, String)> {
        match method {
            "initialize" => {
                let version = params["protocolVersion"].as_str().unwrap_or(PROTOCOL);
                let info = json!({"name": server, "version": env!("CARGO_PKG_VERSION")});
                Ok(json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}))
            }
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": self.tools.get(server)})),
            "tools/call" => Ok(self.result(server, params).await),
            other => Err((-32601, format!("there is no method {other}"))),
        }
    }
}

async fn listen(listener: UnixListener, shared: Arc<Shared>) {
    let mut bridges = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                bridges.spawn(serve(stream, Arc::clone(&shared)));
            }
            Err(error) => {
                tracing::warn!(%error, "a bridge was not accepted");
                return;
            }
        }
        while bridges.try_join_next().is_some() {}
    }
}

/// Serves one bridge. Its first line says which tool server it stands for.
async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    let (read, write) = stream.into_split();
    let write = Arc::new(AsyncMutex::new(write));
    let mut lines = BufReader::new(read).lines();
    let Ok(Some(hello)) = lines.next_line().await else { return };
    let hello: Value = serde_json::from_str(&hello).unwrap_or_default();
    let Some(server) = hello["server"].as_str().filter(|server| shared.tools.contains_key(*server)) else { return };
    let mut calls = JoinSet::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(mut message @ Value::Object(_)) = serde_json::from_str::<Value>(&line) else { continue };
        // Notifications want no answer, and answers none either.
        let (id, Some(method)) = (message["id"].take(), message["method"].as_str().map(str::to_owned)) else {
            continue;
        };
        if id.is_null() {
            continue;
        }
        let (shared, write, server, params) =
            (Arc::clone(&shared), Arc::clone(&write), server.to_owned(), message["params"].take());
        calls.spawn(async move {
            let answer = match shared.answer(&server, &method, &params).await {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err((code, why)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}),
            };
            if let Err(error) = send(&write, &answer).await {
                tracing::debug!(%error, "a bridge was gone before it was answered");
            }
        });
        while calls.try_join_next().is_some() {}
    }
}

async fn send(write: &AsyncMutex<OwnedWriteHalf>, message: &Value) -> io::Result<()> {
    let mut line = message.to_string();
    line.push('\n');
    write.lock().await.write_all(line.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Bridge {
        lines: tokio::io::Lines<BufReader<tokio::net::unix::OwnedReadHalf>>,
        write: OwnedWriteHalf,
    }

    impl Bridge {
        async fn open(socket: &Path, server: &str) -> Self {
            let (read, write) = UnixStream::connect(socket).await.unwrap().into_split();
            let mut bridge = Self { lines: BufReader::new(read).lines(), write };
            bridge.say(&json!({"server": server})).await;
            bridge
        }

        async fn say(&mut self, message: &Value) {
            self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }

        async fn hear(&mut self) -> Value {
            serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
        }

        async fn call(&mut self, id: u32, tool: &str, arguments: &Value, tool_use: Option<&str>) {
            let meta = tool_use.map_or(json!({}), |tool_use| json!({TOOL_USE_ID: tool_use}));
            let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
            self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
        }
    }

    fn tool_use(id: &str, name: &str, input: Value) -> ToolUse {
        ToolUse { id: id.into(), name: name.into(), input }
    }

    fn desk() -> (tempfile::TempDir, std::path::PathBuf, Desk) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("desk.sock");
        let offer = |name: &str| ToolOffer {
            name: name.into(),
            description: "d".into(),
            input_schema: json!({"type": "object"}),
        };
        let desk = Desk::open(&socket, &[offer("mcp__mail__send"), offer("mcp__notes__list")]).unwrap();
        (folder, socket, desk)
    }

    #[tokio::test]
    async fn each_bridge_offers_the_tools_of_its_server_and_the_socket_is_the_owners() {
        let (_folder, socket, desk) = desk();
        assert_eq!(desk.servers().collect::<Vec<_>>(), ["mail", "notes"]);
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let mut bridge = Bridge::open(&socket, "notes").await;
        bridge
            .say(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "x"}}))
            .await;
        assert_eq!(bridge.hear().await["result"]["protocolVersion"], "x");
        bridge.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        bridge.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
        assert_eq!(bridge.hear().await["result"]["tools"][0]["name"], "list");
        bridge.say(&json!({"jsonrpc": "2.0", "id": 3, "method": "server/discover"})).await;
        assert_eq!(bridge.hear().await["error"]["code"], -32601);
    }

    #[tokio::test]
    async fn a_call_waits_for_the_result_of_its_own_tool_use() {
        let (_folder, socket, desk) = desk();
        let mut bridge = Bridge::open(&socket, "mail").await;
        let arguments = json!({"to": "a"});
        // It comes before the reply that asks for it is whole, and the second is answered first.
        bridge.call(1, "send", &arguments, Some("t1")).await;
        desk.expect(
            [
                tool_use("t1", "mcp__mail__send", arguments.clone()),
                tool_use("t2", "mcp__mail__send", arguments.clone()),
            ]
            .iter(),
        );
        bridge.call(2, "send", &arguments, Some("t2")).await;
        desk.answer("t2", "second", true);
        let heard = bridge.hear().await;
        assert_eq!((&heard["id"], &heard["result"]["isError"]), (&json!(2), &json!(true)));
        desk.answer("t1", "first", false);
        let heard = bridge.hear().await;
        assert_eq!((&heard["id"], &heard["result"]["content"][0]["text"]), (&json!(1), &json!("first")));
    }

    #[tokio::test]
    async fn a_call_that_does_not_say_is_the_oldest_of_the_same_tool_and_arguments() {
        let (_folder, socket, desk) = desk();
        let mut bridge = Bridge::open(&socket, "mail").await;
        let uses =
            [("t1", "a"), ("t2", "b"), ("t3", "a")].map(|(id, to)| tool_use(id, "mcp__mail__send", json!({"to": to})));
        desk.expect(uses.iter());
        for (id, to) in [(1, "b"), (2, "a"), (3, "a")] {
            bridge.call(id, "send", &json!({"to": to}), None).await;
            desk.answer(["t2", "t1", "t3"][usize::try_from(id).unwrap() - 1], &format!("{id}"), false);
            let heard = bridge.hear().await;
            assert_eq!((&heard["id"], &heard["result"]["content"][0]["text"]), (&json!(id), &json!(id.to_string())));
        }
    }
}
