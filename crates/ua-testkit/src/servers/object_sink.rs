//! As much of S3 as it takes to create objects once: PUT with `If-None-Match: *`, HEAD and GET, path-style addresses.
//! Signatures have to be there and are not checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::net::TcpListener;
use ua_core::sha256;

use super::http::{self, Answer, HttpFault, Reply, Request, Running};

/// What an [`ObjectSink`] does.
#[derive(Debug, Clone)]
pub struct ObjectSinkConfig {
    /// Where objects are kept: a file per object and one for its metadata, named by the hash of its path.
    pub directory: PathBuf,
    /// The one bucket there is.
    pub bucket: String,
    /// The one access key id that may sign.
    pub access_key_id: String,
    /// What goes wrong with the n-th PUT, counted from 1.
    pub faults: BTreeMap<u64, HttpFault>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct ObjectSink {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub endpoint: String,
    state: Arc<State>,
    _running: Running,
}

#[derive(Debug)]
struct State {
    config: ObjectSinkConfig,
    puts: Mutex<u64>,
}

impl ObjectSink {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound or the directory cannot be made.
    pub async fn start(config: ObjectSinkConfig) -> std::io::Result<Self> {
        let state = Arc::new(State::new(config)?);
        let shared = Arc::clone(&state);
        let running = Running::start(move |request| shared.answer(request)).await?;
        Ok(Self { endpoint: format!("http://{}", running.address), state, _running: running })
    }

    /// Serves on `listener` until it fails: for a server in a process of its own.
    ///
    /// # Errors
    /// When the listener fails or the directory cannot be made.
    pub async fn serve(listener: TcpListener, config: ObjectSinkConfig) -> std::io::Result<()> {
        let state = State::new(config)?;
        http::serve(listener, move |request| state.answer(request)).await
    }

    /// The paths of all objects, sorted, each with its bucket in front.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn objects(&self) -> std::io::Result<Vec<String>> {
        self.state.objects()
    }

    /// Puts an object in without asking, as somebody else would; without a stored hash.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn plant(&self, path: &str, content: &[u8]) -> std::io::Result<()> {
        self.state.write(&format!("/{path}"), content, &BTreeMap::new())
    }

    /// How many times something was put, whatever came of it.
    pub fn puts(&self) -> u64 {
        *self.state.puts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(config: ObjectSinkConfig) -> std::io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        Ok(Self { config, puts: Mutex::default() })
    }

    fn file(&self, path: &str, extension: &str) -> PathBuf {
        self.config.directory.join(format!("{}.{extension}", sha256(path.as_bytes())))
    }

    fn objects(&self) -> std::io::Result<Vec<String>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.config.directory)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                let headers: BTreeMap<String, String> = serde_json::from_slice(&fs::read(file)?)?;
                paths.extend(headers.get("path").map(|path| path.trim_start_matches('/').to_owned()));
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn write(&self, path: &str, content: &[u8], headers: &BTreeMap<String, String>) -> std::io::Result<()> {
        fs::write(self.file(path, "object"), content)?;
        let kept = headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-") || *name == "content-type");
        let mut kept: BTreeMap<&str, &str> = kept.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        kept.insert("path", path);
        fs::write(self.file(path, "json"), serde_json::to_vec(&kept)?)
    }

    fn answer(&self, request: &Request) -> Reply {
        if (request.method.as_str(), request.path.as_str()) == ("GET", "/__log") {
            // Under the lock of the puts, so that no file is half written.
            let puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
            let held = HttpFault::held(&self.config.faults, *puts);
            return Reply::Answer(match self.objects() {
                Ok(objects) => Answer::json(200, &json!({ "puts": *puts, "held": held, "objects": objects })),
                Err(_) => Answer::empty(500),
            });
        }
        let signature = request.headers.get("authorization").map_or("", String::as_str);
        let signer = format!("AWS4-HMAC-SHA256 Credential={}/", self.config.access_key_id);
        if !signature.starts_with(&signer) {
            return Reply::Answer(refusal(403, "InvalidAccessKeyId"));
        }
        if !request.path.starts_with(&format!("/{}/", self.config.bucket)) {
            return Reply::Answer(refusal(404, "NoSuchBucket"));
        }
        match request.method.as_str() {
            "PUT" => {
                let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
                *puts += 1;
                HttpFault::play(self.config.faults.get(&puts), || self.put(request))
            }
            "GET" | "HEAD" => Reply::Answer(self.get(request)),
            _ => Reply::Answer(refusal(405, "MethodNotAllowed")),
        }
    }

    fn put(&self, request: &Request) -> Answer {
        let is_taken = self.file(&request.path, "object").exists();
        if is_taken && request.headers.get("if-none-match").is_some_and(|tag| tag == "*") {
            return refusal(412, "PreconditionFailed");
        }
        match self.write(&request.path, &request.body, &request.headers) {
            Ok(()) => Answer { headers: vec![("ETag", etag(&request.body))], ..Answer::empty(200) },
            Err(_) => refusal(500, "InternalError"),
        }
    }

    fn get(&self, request: &Request) -> Answer {
        let Ok(content) = fs::read(self.file(&request.path, "object")) else { return refusal(404, "NoSuchKey") };
        let kept = fs::read(self.file(&request.path, "json")).unwrap_or_default();
        let kept: BTreeMap<String, String> = serde_json::from_slice(&kept).unwrap_or_default();
        let mut headers = vec![
            ("ETag", etag(&content)),
            ("Content-Length", content.len().to_string()),
            // A date there has to be; nobody looks at it.
            ("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT".to_owned()),
        ];
        headers.extend(kept.get("x-amz-meta-sha256").map(|hash| ("x-amz-meta-sha256", hash.clone())));
        headers.extend(kept.get("content-type").map(|media| ("Content-Type", media.clone())));
        Answer { status: 200, headers, body: content }
    }
}

fn etag(content: &[u8]) -> String {
    format!("\"{}\"", sha256(content))
}

fn refusal(status: u16, code: &str) -> Answer {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code></Error>");
    Answer { status, headers: vec![("Content-Type", "application/xml".to_owned())], body: body.into_bytes() }
}
