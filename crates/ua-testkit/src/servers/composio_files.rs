//! Where Composio takes files: `POST /api/v3/files/upload/request` gives a ticket, `PUT` to the address on it takes the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use ua_core::sha256;

use super::http::{self, Answer, HttpFault, Reply, Request, Running};

/// What [`ComposioFiles`] do.
#[derive(Debug, Clone)]
pub struct ComposioFilesConfig {
    /// Where files are kept, one for each ticket that was used.
    pub directory: PathBuf,
    /// The one key that is accepted.
    pub api_key: String,
    /// Whether a file that is there already is known by its MD5, and gets no second ticket.
    pub knows_files: bool,
    /// What goes wrong with the n-th PUT, counted from 1.
    pub faults: BTreeMap<u64, HttpFault>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct ComposioFiles {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub base_url: String,
    state: Arc<State>,
    _running: Running,
}

#[derive(Debug)]
struct State {
    config: ComposioFilesConfig,
    base_url: String,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    tickets: u64,
    puts: u64,
    /// The key of each MD5 that was put.
    known: BTreeMap<String, String>,
}

impl ComposioFiles {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound or the directory cannot be made.
    pub async fn start(config: ComposioFilesConfig) -> std::io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        let listener = http::listen().await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(State { config, base_url: base_url.clone(), counts: Mutex::default() });
        let shared = Arc::clone(&state);
        let running = Running::on(listener, move |request| shared.answer(request))?;
        Ok(Self { base_url, state, _running: running })
    }

    /// The names of the files it has.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn files(&self) -> std::io::Result<Vec<String>> {
        let names = fs::read_dir(&self.state.config.directory)?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// How many tickets were given, and how often a file was put, whatever came of it.
    pub fn counts(&self) -> (u64, u64) {
        let counts = self.state.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.tickets, counts.puts)
    }
}

impl State {
    fn answer(&self, request: &Request) -> Reply {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/api/v3/files/upload/request") => Reply::Answer(self.ticket(request, &mut counts)),
            ("PUT", path) if path.starts_with("/store/") => {
                counts.puts += 1;
                let fault = self.config.faults.get(&counts.puts).copied();
                HttpFault::play(fault.as_ref(), || self.take(path, request, &mut counts))
            }
            _ => Reply::Answer(Answer::empty(404)),
        }
    }

    fn ticket(&self, request: &Request, counts: &mut Counts) -> Answer {
        let refusal = |status, message: &str| Answer::json(status, &json!({"error": {"message": message}}));
        if request.headers.get("x-api-key") != Some(&self.config.api_key) {
            return refusal(401, "Invalid API key");
        }
        let Ok(asked) = serde_json::from_slice::<Value>(&request.body) else { return refusal(400, "no JSON") };
        let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
        let wanted = ["toolkit_slug", "tool_slug", "filename", "mimetype", "md5"];
        if let Some(missing) = wanted.iter().find(|name| text(name).is_empty()) {
            return refusal(400, &format!("{missing} is required"));
        }
        if let Some(key) = counts.known.get(&text("md5")).filter(|_| self.config.knows_files) {
            return Answer::json(
                200,
                &json!({"id": "file-0", "key": key, "type": "existing", "new_presigned_url": ""}),
            );
        }
        counts.tickets += 1;
        let key = format!("{}/{}/{}/{}", counts.tickets, text("toolkit_slug"), text("tool_slug"), text("filename"));
        let put_to = format!("{}/store/{}/{}?X-Amz-Signature=secret", self.base_url, counts.tickets, text("md5"));
        let id = format!("file-{}", counts.tickets);
        Answer::json(201, &json!({"id": id, "key": key, "type": "new", "new_presigned_url": put_to}))
    }

    fn take(&self, path: &str, request: &Request, counts: &mut Counts) -> Answer {
        let mut parts = path.trim_start_matches("/store/").split('/');
        let (Some(ticket), Some(md5)) = (parts.next(), parts.next()) else { return Answer::empty(403) };
        let name = format!("{ticket}-{}", sha256(&request.body));
        match fs::write(self.config.directory.join(name), &request.body) {
            Ok(()) => {
                counts.known.insert(md5.to_owned(), format!("{ticket}/known"));
                Answer::empty(200)
            }
            Err(_) => Answer::empty(500),
        }
    }
}
