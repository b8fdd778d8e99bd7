//! A web site made of the files of one folder, which counts how often each page was asked for.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tokio::net::TcpListener;

use super::http::{self, Answer, HttpFault, Reply, Request};

/// What [`serve_site`] does.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// The folder whose files are the pages.
    pub pages: PathBuf,
    /// The file that gets a line per page asked for: its path.
    pub log: PathBuf,
    /// What goes wrong with the n-th page asked for, counted from 1. `robots.txt` is not counted.
    pub faults: BTreeMap<u64, HttpFault>,
}

#[derive(Debug)]
struct State {
    config: SiteConfig,
    gets: Mutex<u64>,
}

/// Serves on `listener` until it fails: for a server in a process of its own.
///
/// # Errors
/// When the listener fails.
pub async fn serve_site(listener: TcpListener, config: SiteConfig) -> std::io::Result<()> {
    let state = State { config, gets: Mutex::default() };
    http::serve(listener, move |request| state.answer(request)).await
}

impl State {
    /// The paths asked for, in order, whatever came of it.
    fn asked(&self) -> std::io::Result<Vec<String>> {
        match fs::read_to_string(&self.config.log) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, request: &Request) -> Reply {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/__log") => {
                // Under the lock, so that no line is half written.
                let gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
                let held = HttpFault::held(&self.config.faults, *gets);
                Reply::Answer(match self.asked() {
                    Ok(asked) => Answer::json(200, &json!({ "held": held, "asked": asked })),
                    Err(_) => Answer::empty(500),
                })
            }
            ("GET", "/robots.txt") => Reply::Answer(Answer::empty(404)),
            ("GET", path) => {
                let Some(content) = self.page(path) else { return Reply::Answer(Answer::empty(404)) };
                let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
                if self.note(path).is_err() {
                    return Reply::Answer(Answer::empty(500));
                }
                *gets += 1;
                HttpFault::play(self.config.faults.get(&gets), || content)
            }
            _ => Reply::Answer(Answer::empty(405)),
        }
    }

    fn note(&self, path: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.config.log)?;
        file.write_all(format!("{path}\n").as_bytes())
    }

    fn page(&self, path: &str) -> Option<Answer> {
        let relative = Path::new(path.trim_start_matches('/'));
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let body = fs::read(self.config.pages.join(relative)).ok().filter(|_| is_inside)?;
        let headers = vec![("Content-Type", "text/html; charset=utf-8".to_owned())];
        Some(Answer { status: 200, headers, body })
    }
}
