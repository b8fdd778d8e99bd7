//! An API that describes and draws images, in the language of Anthropic's Messages and of OpenAI's chat and images. It charges for
//! each request that it answers, and once per `Idempotency-Key` when it honours them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::http::{self, Answer, HttpFault, Reply, Request, Running};

/// A PNG of 8 by 8 pixels: what every image is drawn as.
pub const DRAWN_PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAcElEQVR42g2OQREAMAjDqgQlKKkSlKAEEXlX0fbt9ZIIiRItLEasOJG/qqiiCxdTbHFF/ldNNd24mWaba/IJMmXa2IxZcyafq6GGHjzMsMMN+TYttfTiZZZdbslv0FFHHz7m2OOO/DKFCh0cJmy4kDzWFWaBsjAeawAAAABJRU5ErkJggg==";

/// What an [`ImageModelApi`] does.
#[derive(Debug, Clone)]
pub struct ImageModelApiConfig {
    /// The file that gets a line `{"path": …, "key": …, "body": …}` per request that was charged.
    pub log: PathBuf,
    /// The one key that is accepted.
    pub api_key: String,
    /// Whether a request under a key is charged only once.
    pub honours_keys: bool,
    /// What goes wrong with the n-th request, counted from 1.
    pub faults: BTreeMap<u64, HttpFault>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct ImageModelApi {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub base_url: String,
    state: Arc<State>,
    _running: Running,
}

#[derive(Debug)]
struct State {
    config: ImageModelApiConfig,
    posts: Mutex<u64>,
}

impl ImageModelApi {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(config: ImageModelApiConfig) -> std::io::Result<Self> {
        let state = Arc::new(State { config, posts: Mutex::default() });
        let shared = Arc::clone(&state);
        let running = Running::start(move |request| shared.answer(request)).await?;
        Ok(Self { base_url: format!("http://{}", running.address), state, _running: running })
    }

    /// Serves on `listener` until it fails: for a server in a process of its own.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(listener: TcpListener, config: ImageModelApiConfig) -> std::io::Result<()> {
        let state = State { config, posts: Mutex::default() };
        http::serve(listener, move |request| state.answer(request)).await
    }

    /// What was charged, in order: objects with `path`, `key` and `body`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn charged(&self) -> std::io::Result<Vec<Value>> {
        self.state.charged()
    }

    /// How many times something was asked, whatever came of it.
    pub fn posts(&self) -> u64 {
        *self.state.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn charged(&self) -> std::io::Result<Vec<Value>> {
        match fs::read_to_string(&self.config.log) {
            Ok(text) => Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, request: &Request) -> Reply {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if request.method == "GET" && request.path == "/__log" {
            let held = HttpFault::held(&self.config.faults, *posts);
            return Reply::Answer(match self.charged() {
                Ok(charged) => Answer::json(200, &json!({"posts": *posts, "held": held, "charged": charged})),
                Err(_) => Answer::empty(500),
            });
        }
        *posts += 1;
        HttpFault::play(self.config.faults.get(&posts), || self.act(request))
    }

    fn act(&self, request: &Request) -> Answer {
        let refusal = |status, message: &str| Answer::json(status, &json!({"error": {"message": message}}));
        let given = request
            .headers
            .get("x-api-key")
            .cloned()
            .or_else(|| request.headers.get("authorization")?.strip_prefix("Bearer ").map(str::to_owned));
        if given.as_ref() != Some(&self.config.api_key) {
            return refusal(401, "invalid key");
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else { return refusal(400, "no JSON") };
        let Some(answer) = reply(&request.path, &body, request.headers.contains_key("anthropic-version")) else {
            return refusal(400, "a model and a prompt or an image are required");
        };
        match self.charge(request, &body) {
            Ok(()) => Answer::json(200, &answer),
            Err(_) => Answer::empty(500),
        }
    }

    fn charge(&self, request: &Request, body: &Value) -> std::io::Result<()> {
        let key = request.headers.get("idempotency-key").map_or(Value::Null, |key| json!(key));
        let is_known = !key.is_null() && self.charged()?.iter().any(|charged| charged["key"] == key);
        if self.config.honours_keys && is_known {
            return Ok(());
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.config.log)?;
        file.write_all(format!("{}\n", json!({"path": request.path, "key": key, "body": body})).as_bytes())?;
        file.sync_data()
    }
}

/// The answer to a request that is complete.
fn reply(path: &str, body: &Value, is_dated: bool) -> Option<Value> {
    let model = body["model"].as_str()?;
    match path {
        "/v1/messages" => {
            let part = body.pointer("/messages/0/content/0/source")?;
            let is_whole =
                is_dated && part["type"] == "base64" && part["data"].is_string() && body["max_tokens"].is_u64();
            is_whole.then(|| {
                json!({
                    "id": "msg_1", "model": model, "stop_reason": "end_turn",
                    "content": [{"type": "text", "text": format!("A picture, sent as {}.", part["media_type"])}],
                    "usage": {"input_tokens": 120, "output_tokens": 9},
                })
            })
        }
        "/v1/chat/completions" => {
            let url = body.pointer("/messages/0/content/0/image_url/url")?.as_str()?;
            url.starts_with("data:image/").then(|| {
                json!({
                    "id": "chatcmpl-1", "model": model,
                    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A picture."}}],
                    "usage": {"prompt_tokens": 130, "completion_tokens": 4, "total_tokens": 134},
                })
            })
        }
        "/v1/images/generations" => {
            // As the real ones: the newer models refuse the field that the older ones need.
            let is_new = model.starts_with("gpt-image");
            let is_fitting = is_new != body.get("response_format").is_some();
            (body["prompt"].is_string() && is_fitting).then(|| {
                json!({
                    "created": 1, "data": [{"b64_json": DRAWN_PNG_BASE64}],
                    "usage": {"input_tokens": 12, "output_tokens": 272, "total_tokens": 284},
                })
            })
        }
        _ => None,
    }
}
