//! A mail API like Resend's: `POST /emails`, once per `Idempotency-Key`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use ua_core::sha256;

use super::http::{self, Answer, HttpFault, Reply, Request, Running};

/// What a [`MailApi`] does.
#[derive(Debug, Clone)]
pub struct MailApiConfig {
    /// Where messages are kept, one JSON file per key.
    pub directory: PathBuf,
    /// The one bearer token that is accepted.
    pub api_key: String,
    /// What goes wrong with the n-th POST, counted from 1.
    pub faults: BTreeMap<u64, HttpFault>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct MailApi {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub base_url: String,
    state: Arc<State>,
    _running: Running,
}

#[derive(Debug)]
struct State {
    config: MailApiConfig,
    posts: Mutex<u64>,
}

impl MailApi {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound or the directory cannot be made.
    pub async fn start(config: MailApiConfig) -> std::io::Result<Self> {
        let state = Arc::new(State::new(config)?);
        let shared = Arc::clone(&state);
        let running = Running::start(move |request| shared.answer(request)).await?;
        Ok(Self { base_url: format!("http://{}", running.address), state, _running: running })
    }

    /// Serves on `listener` until it fails: for a server in a process of its own.
    ///
    /// # Errors
    /// When the listener fails or the directory cannot be made.
    pub async fn serve(listener: TcpListener, config: MailApiConfig) -> std::io::Result<()> {
        let state = State::new(config)?;
        http::serve(listener, move |request| state.answer(request)).await
    }

    /// The messages sent, in no particular order, each as it was posted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn messages(&self) -> std::io::Result<Vec<Value>> {
        messages(&self.state.config.directory)
    }

    /// How many times something was posted, whatever came of it.
    pub fn posts(&self) -> u64 {
        *self.state.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn messages(directory: &Path) -> std::io::Result<Vec<Value>> {
    let mut messages = Vec::new();
    for entry in fs::read_dir(directory)? {
        messages.push(serde_json::from_slice(&fs::read(entry?.path())?)?);
    }
    Ok(messages)
}

impl State {
    fn new(config: MailApiConfig) -> std::io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        Ok(Self { config, posts: Mutex::default() })
    }

    fn answer(&self, request: &Request) -> Reply {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/__log") => {
                // Under the lock of the posts, so that no file is half written.
                let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
                let held = HttpFault::held(&self.config.faults, *posts);
                Reply::Answer(match messages(&self.config.directory) {
                    Ok(messages) => Answer::json(200, &json!({ "posts": *posts, "held": held, "messages": messages })),
                    Err(error) => Answer::json(500, &json!({ "message": error.to_string() })),
                })
            }
            ("POST", "/emails") => {
                // One at a time, so that two posts under a key are one after the other.
                let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
                *posts += 1;
                HttpFault::play(self.config.faults.get(&posts), || self.send(request))
            }
            _ => Reply::Answer(refusal(404, "not_found", "there is nothing here")),
        }
    }

    fn send(&self, request: &Request) -> Answer {
        if request.headers.get("authorization") != Some(&format!("Bearer {}", self.config.api_key)) {
            return refusal(401, "invalid_api_key", "API key is invalid");
        }
        let Some(key) = request.headers.get("idempotency-key").filter(|key| key.len() <= 256) else {
            return refusal(400, "invalid_idempotency_key", "the key must be 1 to 256 characters");
        };
        let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
            return refusal(422, "validation_error", "the body is not JSON");
        };
        let is_addressed = message["to"].as_array().is_some_and(|to| !to.is_empty()) && message["from"].is_string();
        if !is_addressed || !message["subject"].is_string() {
            return refusal(422, "validation_error", "from, to and subject are required");
        }
        let id = sha256(key.as_bytes()).to_string();
        let file = self.config.directory.join(format!("{id}.json"));
        if let Ok(earlier) = fs::read(&file) {
            return if earlier == request.body {
                Answer::json(200, &json!({ "id": id }))
            } else {
                refusal(409, "invalid_idempotent_request", "this key was used with another body")
            };
        }
        match fs::write(&file, &request.body) {
            Ok(()) => Answer::json(200, &json!({ "id": id })),
            Err(error) => refusal(500, "application_error", &error.to_string()),
        }
    }
}

fn refusal(status: u16, name: &str, message: &str) -> Answer {
    Answer::json(status, &json!({ "statusCode": status, "name": name, "message": message }))
}
