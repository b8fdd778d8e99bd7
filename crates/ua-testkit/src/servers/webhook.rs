//! A webhook: takes every POST, and does so once per `Idempotency-Key` if it honours them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::http::{self, Answer, HttpFault, Reply, Request, Running};

/// What a [`Webhook`] does.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// The file that gets a line `{"key": …, "body": …}` per effect.
    pub log: PathBuf,
    /// Whether a key is acted on only once.
    pub honours_keys: bool,
    /// What goes wrong with the n-th POST, counted from 1.
    pub faults: BTreeMap<u64, HttpFault>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Webhook {
    /// Where to post: `http://127.0.0.1:PORT/hook`.
    pub url: String,
    state: Arc<State>,
    _running: Running,
}

#[derive(Debug)]
struct State {
    config: WebhookConfig,
    posts: Mutex<u64>,
}

impl Webhook {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(config: WebhookConfig) -> std::io::Result<Self> {
        let state = Arc::new(State { config, posts: Mutex::default() });
        let shared = Arc::clone(&state);
        let running = Running::start(move |request| shared.answer(request)).await?;
        Ok(Self { url: format!("http://{}/hook", running.address), state, _running: running })
    }

    /// Serves on `listener` until it fails: for a server in a process of its own.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(listener: TcpListener, config: WebhookConfig) -> std::io::Result<()> {
        let state = State { config, posts: Mutex::default() };
        http::serve(listener, move |request| state.answer(request)).await
    }

    /// What was acted on, in order: objects with `key` and `body`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn effects(&self) -> std::io::Result<Vec<Value>> {
        self.state.effects()
    }

    /// How many times something was posted, whatever came of it.
    pub fn posts(&self) -> u64 {
        *self.state.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn effects(&self) -> std::io::Result<Vec<Value>> {
        match fs::read_to_string(&self.config.log) {
            Ok(text) => Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, request: &Request) -> Reply {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/__log") => {
                // Under the lock of the posts, so that a line is there whole or not at all.
                let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
                let held = HttpFault::held(&self.config.faults, *posts);
                Reply::Answer(match self.effects() {
                    Ok(effects) => Answer::json(200, &json!({ "posts": *posts, "held": held, "effects": effects })),
                    Err(_) => Answer::empty(500),
                })
            }
            ("POST", _) => {
                let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
                *posts += 1;
                let act = || self.act(request).map_or_else(|_| Answer::empty(500), |()| Answer::empty(202));
                HttpFault::play(self.config.faults.get(&posts), act)
            }
            _ => Reply::Answer(Answer::empty(405)),
        }
    }

    fn act(&self, request: &Request) -> std::io::Result<()> {
        let key = request.headers.get("idempotency-key").map_or(Value::Null, |key| json!(key));
        let is_repeated = !key.is_null() && self.effects()?.iter().any(|effect| effect["key"] == key);
        if self.config.honours_keys && is_repeated {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&request.body)?;
        let mut file = OpenOptions::new().create(true).append(true).open(&self.config.log)?;
        file.write_all(format!("{}\n", json!({ "key": key, "body": body })).as_bytes())?;
        file.sync_data()
    }
}
