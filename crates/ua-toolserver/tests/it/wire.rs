//! The tools as a client sees them: every call goes over the real protocol.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod append;
mod bad_files;
mod bad_pages;
mod command;
mod composio;
mod compress;
mod crawl;
mod crawl_manners;
mod crawl_reuse;
mod documented;
mod email;
mod files;
mod http;
mod images;
mod killed;
mod killed_each;
mod killed_paid;
mod listing;
mod mail;
mod mail_tls;
mod memory;
mod notify;
mod plain_pdf;
mod policy;
mod render;
mod research;
mod s3;
mod sandbox;
mod sent;
mod upload;
mod variables;
mod workbench;

use std::path::Path;

use rmcp::model::{CallToolRequestParams, CallToolResult, MetaObject, RequestMetaObject, RequestParamsMeta, Tool};
use rmcp::service::{RunningService, ServiceError};
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use ua_core::Env;
use ua_toolserver::{IDEMPOTENCY_KEY, Settings, ToolServer, ToolServerError};

/// A workspace in a temporary directory, a server on it and a client of that.
struct TestServer {
    directory: TempDir,
    client: RunningService<RoleClient, ()>,
    server: JoinHandle<Result<(), ToolServerError>>,
}

/// What a call came to.
#[derive(Debug, PartialEq)]
enum Came {
    /// A result and its structured content.
    Back(Value),
    /// `isError: true` and the text.
    Refused(String),
    /// A JSON-RPC error: its code and message.
    Broken(i32, String),
}

impl TestServer {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A world whose settings were changed; the workspace is `w` in the temporary directory.
    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::in_directory(TempDir::new().unwrap(), change).await
    }

    async fn in_directory(directory: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        Self::in_env(Env::simulated(7), directory, change).await
    }

    async fn in_env(env: Env, directory: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::in_workspace(directory.path().join("w"));
        settings.pdf = Some(ua_pdf::Layout::Here(plain_pdf::render));
        change(&mut settings);
        let server = ToolServer::open(&settings, env).unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        let server = tokio::spawn(server.serve(read, write));
        let client = ().serve(ours).await.unwrap();
        Self { directory, client, server }
    }

    /// The same directory under a new server, as after a crash.
    async fn restarted(self) -> Self {
        drop(self.client);
        self.server.await.unwrap().unwrap();
        Self::in_directory(self.directory, |_| {}).await
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.directory.path().join("w").canonicalize().unwrap()
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.workspace().join(path)).unwrap()
    }

    async fn tools(&self) -> Vec<Tool> {
        self.client.list_all_tools().await.unwrap()
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> Came {
        self.send(tool, arguments, None).await
    }

    async fn keyed(&self, tool: &'static str, key: &str, arguments: Value) -> Came {
        self.send(tool, arguments, Some(json!(key))).await
    }

    async fn send(&self, tool: &'static str, arguments: Value, key: Option<Value>) -> Came {
        let meta = key.map_or_else(|| json!({}), |key| json!({ IDEMPOTENCY_KEY: key }));
        self.send_with(tool, arguments, meta).await
    }

    /// What the protocol brings back for a call with these fields in its `_meta`.
    async fn result_of(
        &self,
        tool: &'static str,
        arguments: Value,
        meta: Value,
    ) -> Result<CallToolResult, ServiceError> {
        let mut request = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
        let mut object = MetaObject::new();
        for (name, value) in meta.as_object().unwrap() {
            object.insert(name.clone(), value.clone());
        }
        request.set_meta(RequestMetaObject(object));
        self.client.call_tool(request).await
    }

    /// A call with these fields in its `_meta`.
    async fn send_with(&self, tool: &'static str, arguments: Value, meta: Value) -> Came {
        match self.result_of(tool, arguments, meta).await {
            Ok(result) if result.is_error == Some(true) => {
                let text = result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.clone());
                Came::Refused(text.collect())
            }
            Ok(result) => Came::Back(result.structured_content.unwrap()),
            Err(ServiceError::McpError(error)) => Came::Broken(error.code.0, error.message.into_owned()),
            Err(other) => panic!("{other}"),
        }
    }
}

impl Came {
    #[track_caller]
    fn back(self) -> Value {
        match self {
            Self::Back(value) => value,
            other @ (Self::Refused(_) | Self::Broken(..)) => panic!("expected a result: {other:?}"),
        }
    }

    /// The refusal, which must have a hint and say `what`.
    #[track_caller]
    fn refused(self, what: &str) -> String {
        match self {
            Self::Refused(text) if text.contains(what) && text.contains("hint: ") => text,
            other @ (Self::Back(_) | Self::Refused(_) | Self::Broken(..)) => {
                panic!("expected a refusal that says {what:?}: {other:?}")
            }
        }
    }

    /// The message of a JSON-RPC error −32603, which must say `what`.
    #[track_caller]
    fn unclear(self, what: &str) {
        match self {
            Self::Broken(-32603, message) if message.contains(what) => {}
            other @ (Self::Back(_) | Self::Refused(_) | Self::Broken(..)) => {
                panic!("expected an unclear outcome that says {what:?}: {other:?}")
            }
        }
    }
}

/// The names in a directory, sorted; none when there is no such directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes.as_ref())
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from_digit(digit.into(), 16).unwrap())
        .collect()
}
