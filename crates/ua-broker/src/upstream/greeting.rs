//! How a tool server is greeted: with a handshake, or by asking it what it can do, in the era of MCP that it knows.

use std::time::Duration;

use serde_json::{Map, Value, json};
use ua_core::Timestamp;

use super::process::{Process, Unanswered};
use super::{PATIENCE, Upstream, lock};
use crate::era::{self, Client, Era};

/// How long a server may leave `server/discover` unanswered before it is taken for one of the era of the handshake.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);

/// One that took longer than this to answer its first request is named in the log.
const SLOW_START: Duration = Duration::from_secs(5);

/// How a client began.
#[derive(Debug, Clone)]
pub(super) enum Greeting {
    /// With a handshake: its parameters.
    Handshake(Value),
    /// Not at all: each of its requests says who it is.
    Stateless(Client),
}

impl Upstream {
    /// Says that a server was slow to answer its first request: a client that waits for less works without its tools, and says no word about it.
    pub(super) fn say_if_slow(&self, asked_at: Timestamp) {
        if let Some(said) = slow_start(self.env.now().since(asked_at)) {
            tracing::warn!(server = self.launch.name, "{said}");
        }
    }

    /// The client's `initialize`, which an earlier broker answered.
    pub(crate) fn remember_handshake(&self, request: &Value) {
        *lock(&self.greeting) = request.get("params").cloned().map(Greeting::Handshake);
    }

    /// Who it is spoken with for, where that client's requests stand for themselves.
    pub(crate) fn remember_client(&self, client: &Client) {
        *lock(&self.greeting) = Some(Greeting::Stateless(client.clone()));
    }

    /// What the server said when it was greeted, as `serverInfo` says it.
    pub(crate) fn server_info(&self) -> Option<Value> {
        let known = lock(&self.known);
        let (era, said) = known.as_ref()?;
        let info = match era {
            Era::Handshake => &said["serverInfo"],
            Era::Stateless => &said["_meta"]["io.modelcontextprotocol/serverInfo"],
        };
        info.is_object().then(|| info.clone())
    }

    /// How it is spoken with, once that is known.
    pub(crate) fn era(&self) -> Option<Era> {
        lock(&self.known).as_ref().map(|(era, _)| *era)
    }

    /// Starts the server with the client's `initialize`; the answer is the server's own, or what it says about itself where it knows no handshake.
    pub(crate) async fn initialize(&self, params: Value) -> Result<Value, Unanswered> {
        let begun = self.env.now();
        let mut running = self.process.lock().await;
        let process = match running.as_ref().filter(|process| !process.has_ended()) {
            Some(process) => process.clone(),
            None => self.start().map_err(|why| self.not_greeted(&params, Unanswered::NotSent(why)))?,
        };
        *running = Some(process.clone());
        drop(running);
        let answer = tokio::select! {
            answer = self.shake_hands(&process, &params) => answer,
            () = self.env.clock.sleep(PATIENCE) => {
                let why = self.is_mute();
                self.shut_down().await;
                Err(Unanswered::Lost(why))
            }
        };
        let answer = answer.map_err(|why| self.not_greeted(&params, why))?;
        if answer.get("result").is_some() {
            self.say_if_slow(begun);
            *lock(&self.greeting) = Some(Greeting::Handshake(params));
        }
        Ok(answer)
    }

    /// The server did not come up. What the client asks for next tries it again with the same greeting, so that it hears why, and not that it
    /// never greeted.
    fn not_greeted(&self, params: &Value, why: Unanswered) -> Unanswered {
        *lock(&self.greeting) = Some(Greeting::Handshake(params.clone()));
        why
    }

    /// What the server can do, for a client whose requests stand for themselves.
    pub(crate) async fn discover(&self, client: &Client) -> Result<Value, Unanswered> {
        self.remember_client(client);
        let process = self.running_process().await.map_err(Unanswered::NotSent)?;
        if process.is_stateless() {
            let params = self.prepared(&process, json!({}));
            return process.request("server/discover", params).await;
        }
        let known = lock(&self.known).clone();
        Ok(json!({"result": era::discovery(&known.map(|(_, said)| said).unwrap_or_default())}))
    }

    /// A handshake, or, with a server that knows none, asking it what it can do.
    async fn shake_hands(&self, process: &Process, params: &Value) -> Result<Value, Unanswered> {
        let was_stateless = process.is_stateless();
        let refused = if was_stateless { None } else { Some(process.request("initialize", params.clone()).await) };
        if let Some(Ok(answer)) = &refused
            && let Some(result) = answer.get("result")
        {
            self.found(process, Era::Handshake, result);
            return Ok(answer.clone());
        }
        match refused {
            Some(Err(lost @ (Unanswered::Lost(_) | Unanswered::NotSent(_) | Unanswered::Unreadable(_)))) => {
                return Err(lost);
            }
            Some(Ok(_) | Err(Unanswered::Refused { .. })) | None => {}
        }
        match self.asked(process, &Client::of_handshake(params)).await {
            Some(discovered) => {
                let wanted = params["protocolVersion"].as_str().unwrap_or_default();
                let greeting = era::greeting(&discovered, wanted);
                self.found(process, Era::Stateless, &discovered);
                Ok(json!({"result": greeting}))
            }
            None => refused.unwrap_or_else(|| Err(Unanswered::Lost("it sent no information about itself".to_owned()))),
        }
    }

    /// What a server says that knows the newer era; `None` for another one.
    async fn asked(&self, process: &Process, client: &Client) -> Option<Value> {
        let mut meta = Map::new();
        client.sign(&mut meta, None);
        let asked = tokio::select! {
            asked = process.request("server/discover", json!({"_meta": meta})) => asked.ok()?,
            () = self.env.clock.sleep(DISCOVER_PATIENCE) => return None,
        };
        let result = asked.get("result")?;
        let supported = result["supportedVersions"].as_array().into_iter().flatten();
        supported.into_iter().any(|version| version == era::NEWER).then(|| result.clone())
    }

    fn found(&self, process: &Process, era: Era, said: &Value) {
        let _known = process.era.set(era);
        *lock(&self.known) = Some((era, said.clone()));
    }

    /// Finds out how a process is spoken with, as far as that is not known already.
    pub(super) async fn greet(&self, process: &Process, greeting: &Greeting) -> Result<(), String> {
        let era = self.era();
        let handshake = match greeting {
            Greeting::Handshake(params) => params.clone(),
            Greeting::Stateless(client) => {
                if era != Some(Era::Handshake)
                    && let Some(discovered) = self.asked(process, client).await
                {
                    self.found(process, Era::Stateless, &discovered);
                    return Ok(());
                }
                client.handshake()
            }
        };
        let greeted = self.shake_hands(process, &handshake).await.map_err(|why| format!("it did not start: {why}"))?;
        if let Some(error) = greeted.get("error") {
            return Err(format!("it refused the handshake: {}", error["message"]));
        }
        if process.is_stateless() {
            return Ok(());
        }
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        process.write(&initialized).await.map_err(|error| error.to_string())
    }
}

/// What is said of a server that took so long to answer its first request; `None` of one that was quick.
fn slow_start(took: Duration) -> Option<String> {
    let seconds = took.as_secs();
    (took >= SLOW_START).then(|| {
        format!("a tool server took {seconds} s to answer its first request; a client that waits for less has no tools of it")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ua_core::{Env, RunId};
    use ua_mcp::{Horizon, ShimCommand};

    use super::*;
    use crate::live::LiveCalls;
    use crate::upstream::{Launch, Reach};

    /// Its client is told, and nothing of it is left: each request that comes next would start another one beside it.
    #[tokio::test]
    async fn a_server_that_never_answers_the_handshake_is_told_of_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::simulated(1);
        let launch = Launch {
            name: "mute".to_owned(),
            reach: Reach::Command { command: vec!["/bin/sh".to_owned()], env: BTreeMap::new() },
            horizon: Arc::new(Horizon::new(PATIENCE, env.clone())),
            cwd: folder.path().to_owned(),
            // In the place of a shim: it reads what it is asked until there is no more, and says nothing.
            shim: ShimCommand {
                program: "/bin/sh".into(),
                args: vec!["-c".into(), "while read line; do :; done".into()],
            },
            locks: folder.path().join("locks"),
            holder: RunId::parse("gw_1").unwrap(),
            stderr_log: folder.path().join("mute.stderr.log"),
            secret: Vec::new(),
            logins: None,
            login_key: None,
        };
        let (to_client, _heard) = ua_mcp::queue();
        let upstream = Upstream::new(launch, env, LiveCalls::default(), to_client).unwrap();
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let why = upstream.initialize(params).await.unwrap_err().to_string();
        assert!(why.contains("did not answer the handshake within 30 s"), "{why}");
        assert!(upstream.process.lock().await.is_none());
        let why = upstream.relay("tools/list", Value::Null, |_| ()).await.unwrap_err().to_string();
        assert!(why.contains("did not answer the handshake within 30 s"), "{why}");
        assert!(upstream.process.lock().await.is_none());
    }

    #[test]
    fn a_server_that_is_slow_to_start_is_named() {
        assert_eq!(slow_start(Duration::from_millis(4_900)), None);
        assert_eq!(
            slow_start(Duration::from_secs(12)).as_deref(),
            Some(
                "a tool server took 12 s to answer its first request; a client that waits for less has no tools of it"
            )
        );
    }
}
