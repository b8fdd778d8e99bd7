//! A model server on a runtime of its own, so that tests stay plain functions.

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_core::Usage;
use ua_llm::Script;
use ua_testkit::{Fault, ModelServer, ModelServerConfig, RequestRecord};

/// A scripted model behind a real HTTP server on 127.0.0.1; it ends when it is dropped.
#[derive(Debug)]
pub struct Model {
    server: ModelServer,
    _runtime: Runtime,
}

impl Model {
    /// Starts a server that says what `turns` hold, and fails as `faults` say.
    ///
    /// # Panics
    ///
    /// When the turns are no script, or no port is free.
    pub fn start(turns: &Value, faults: Vec<Fault>) -> Self {
        Self::with(&json!({"turns": turns}).to_string(), |config| config.faults = faults)
    }

    /// Starts a server from a whole script, after `change` was made to its configuration.
    ///
    /// # Panics
    ///
    /// When the text is no script, or no port is free.
    pub fn with(script: &str, change: impl FnOnce(&mut ModelServerConfig)) -> Self {
        let script = Script::parse(script).unwrap_or_else(|e| panic!("{e}"));
        let mut config = ModelServerConfig::new(script);
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap_or_else(|e| panic!("start a runtime: {e}"));
        let server =
            runtime.block_on(ModelServer::start(config)).unwrap_or_else(|e| panic!("start the model server: {e}"));
        Self { server, _runtime: runtime }
    }

    /// Where it is.
    pub fn base_url(&self) -> &str {
        &self.server.base_url
    }

    /// Requests received so far.
    pub fn requests(&self) -> u64 {
        self.server.requests()
    }

    /// What is known about each request.
    pub fn log(&self) -> Vec<RequestRecord> {
        self.server.log()
    }

    /// What the replies that were whole said they cost.
    pub fn bill(&self) -> Vec<Usage> {
        self.server.bill()
    }

    /// Forgets every conversation that was kept.
    pub fn forget_replies(&self) {
        self.server.forget_replies();
    }

    /// The names of the replies that are kept.
    pub fn kept_replies(&self) -> Vec<String> {
        self.server.kept_replies()
    }

    /// The latest request.
    pub fn last_request(&self) -> Value {
        self.server.last_request().unwrap_or_default()
    }
}
