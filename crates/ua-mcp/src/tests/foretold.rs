//! Servers whose tools are known before they are started.

use std::sync::{Arc, Mutex};

use serde_json::json;
use ua_dispatch::{ToolTransport, TransportError};

use super::servers::{config, spec};
use super::wait_for_async;
use crate::foretold::Foretold;
use crate::{McpTransport, McpTransportConfig};

/// What the fake server answers that offers these tools.
fn told(tools: &[&str]) -> Foretold {
    let tool = |name: &&str| {
        json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"},
               "annotations": {"readOnlyHint": **name == *"echo"}})
    };
    Foretold {
        server_info: json!({"name": "fake", "version": "1"}),
        capabilities: json!({"tools": {}, "logging": {}}),
        tools: tools.iter().map(tool).collect(),
    }
}

/// A transport to a fake server with two tools, of which this is said.
fn transport(dir: &std::path::Path, told: Option<Foretold>) -> (Arc<McpTransport>, McpTransportConfig) {
    let servers = vec![spec("fake", &["--tools", "echo,whoami"])];
    let config = McpTransportConfig { foreteller: Some(Arc::new(move |_| told.clone())), ..config(dir, servers) };
    (Arc::new(McpTransport::new(config.clone())), config)
}

#[tokio::test]
async fn tools_are_listed_before_their_server_runs_and_called_once_it_said_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (transport, config) = transport(dir.path(), Some(told(&["echo", "whoami"])));
    let listed = transport.list().await.unwrap();
    assert_eq!(listed.iter().map(|tool| tool.name.tool.as_str()).collect::<Vec<_>>(), ["echo", "whoami"]);
    assert!(!dir.path().join("locks").exists(), "nothing was started");
    assert_eq!(transport.running("fake"), None, "nothing goes there at once");
    let generation = transport.ready("fake").await.unwrap();
    assert_eq!(transport.running("fake"), Some(generation));
    assert_eq!(transport.list().await.unwrap(), listed, "it says so itself");
    transport.shutdown().await;
    assert_eq!(config.locks.orphans(), []);
}

#[tokio::test]
async fn a_listing_that_was_begun_starts_the_server_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let (transport, config) = transport(dir.path(), Some(told(&["echo", "whoami"])));
    transport.begin_listing();
    assert_eq!(transport.list().await.unwrap().len(), 2);
    let generation = wait_for_async("the server to be compared", || transport.running("fake")).await;
    assert_eq!(transport.ready("fake").await.unwrap(), generation, "one process was started");
    transport.shutdown().await;
    assert_eq!(config.locks.orphans(), []);
}

/// A run that needs no tool may be over before its server has started.
#[tokio::test]
async fn a_server_that_starts_while_everything_ends_is_ended_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (transport, config) = transport(dir.path(), Some(told(&["echo", "whoami"])));
    transport.begin_listing();
    assert_eq!(transport.list().await.unwrap().len(), 2);
    transport.shutdown().await;
    assert_eq!((transport.running("fake"), config.locks.orphans()), (None, Vec::new()));
    let left = std::fs::read_dir(dir.path().join("locks")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no lock file is left");
}

#[tokio::test]
async fn nothing_is_called_of_a_server_that_is_not_what_it_was_said_to_be() {
    let other_words = {
        let mut told = told(&["echo", "whoami"]);
        told.tools[0]["description"] = json!("Does something else.");
        told
    };
    let other_meta = {
        let mut told = told(&["echo", "whoami"]);
        told.tools[0]["_meta"] = json!({"dev.universal-agent/honours-keys": true});
        told
    };
    let older = Foretold { server_info: json!({"name": "fake", "version": "0"}), ..told(&["echo", "whoami"]) };
    let less_able = Foretold { capabilities: json!({}), ..told(&["echo", "whoami"]) };
    for (told, words) in [
        (other_words, "other tools: echo"),
        (other_meta, "other tools: echo"),
        (told(&["echo"]), "other tools: whoami"),
        (told(&["echo", "whoami", "slow"]), "other tools: slow"),
        (told(&["whoami", "echo"]), "another order"),
        (older, "`fake 1` over MCP 2025-11-25 instead of `fake 0`"),
        (less_able, "other capabilities"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (transport, config) = transport(dir.path(), Some(told));
        transport.list().await.unwrap();
        for _again in 0..2 {
            let refused = transport.ready("fake").await.unwrap_err();
            let TransportError::Changed { why, .. } = &refused else { panic!("{refused:?}") };
            assert!(why.contains(words) && why.contains("resume"), "{why}");
            assert_eq!(transport.running("fake"), None);
        }
        transport.shutdown().await;
        assert_eq!(config.locks.orphans(), []);
    }
}

#[tokio::test]
async fn a_server_that_nobody_can_foretell_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = asked.clone();
    let servers = vec![spec("fake", &["--tools", "echo"])];
    let foreteller = Arc::new(move |spec: &crate::ServerSpec| {
        names.lock().unwrap().push(spec.name.clone());
        None
    });
    let transport =
        McpTransport::new(McpTransportConfig { foreteller: Some(foreteller), ..config(dir.path(), servers) });
    assert_eq!(transport.list().await.unwrap().len(), 1);
    assert!(transport.running("fake").is_some());
    assert_eq!(*asked.lock().unwrap(), ["fake"]);
    transport.shutdown().await;
}
