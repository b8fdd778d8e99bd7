//! Answers from a cassette.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ua_core::{Block, ModelTurn, Redactor, Sha256, ShowPath as _};
use ua_files::Folder;

use super::{Asked, ByKey, Exchange, Places, VERSION, asked, decode, differ, placed};
use crate::error::LlmError;
use crate::provider::{LlmProvider, StreamObserver};
use crate::request::ModelRequest;

/// How much of a cassette is read.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// A cassette that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// It cannot be read.
    #[error("cannot read the cassette {}", file.shown())]
    Unreadable {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is no exchange.
    #[error("cannot read the cassette {}: line {line}: {why}", file.shown())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There is nothing in it.
    #[error("cannot read the cassette {}: it has no exchange that brought a reply", file.shown())]
    Empty {
        /// The file or folder.
        file: PathBuf,
    },
}

/// A provider that answers from recorded exchanges, and from nothing else.
///
/// A request that was recorded several times is answered in that order, and with the last one from then on. A process that starts
/// anew starts at the first: what it asks again was never recorded by the run.
#[derive(Debug)]
pub struct ReplayProvider {
    exchanges: ByKey,
    asked: Mutex<BTreeMap<Sha256, usize>>,
    redactor: Redactor,
    places: Places,
}

impl ReplayProvider {
    /// Reads a cassette: a file, or a folder whose `*.jsonl` are read in the order of their names. A path that a person named may be a link; what
    /// lies in a folder may have come with a checkout, so no link there is followed, and no pipe waited for.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 1 GiB, or holds nothing to answer with.
    pub fn open(path: &Path, redactor: Redactor, places: Places) -> Result<Self, CassetteError> {
        let unreadable = |file: &Path| {
            let file = file.to_path_buf();
            move |source| CassetteError::Unreadable { file, source }
        };
        let mut exchanges = ByKey::new();
        let mut take = |file: &Path, text: &str| {
            for exchange in read(file, text)? {
                exchanges.entry(exchange.key).or_default().push(exchange);
            }
            Ok::<(), CassetteError>(())
        };
        if path.is_dir() {
            let folder = Folder::open(path).map_err(unreadable(path))?;
            let mut left = MAX_BYTES;
            for (name, _) in folder.entries().map_err(unreadable(path))? {
                if Path::new(&name).extension().is_none_or(|extension| extension != "jsonl") {
                    continue;
                }
                let file = path.join(&name);
                let bytes = folder.read(&name, left).map_err(unreadable(&file))?;
                left -= bytes.len() as u64;
                let text = String::from_utf8(bytes).map_err(io::Error::other).map_err(unreadable(&file))?;
                take(&file, &text)?;
            }
        } else {
            take(path, &ua_files::read_text(path, MAX_BYTES).map_err(unreadable(path))?)?;
        }
        if exchanges.is_empty() {
            return Err(CassetteError::Empty { file: path.to_path_buf() });
        }
        Ok(Self { exchanges, asked: Mutex::default(), redactor, places })
    }

    /// The model that was asked, of any of the exchanges; empty when they do not say.
    pub fn recorded_model(&self) -> &str {
        self.exchanges.values().flatten().find_map(|exchange| exchange.request["model"].as_str()).unwrap_or_default()
    }

    fn answer(&self, request: &ModelRequest) -> Result<ModelTurn, LlmError> {
        let Asked { key, request: asked, names } = asked(request, &self.redactor, &self.places);
        let Some(recorded) = self.exchanges.get(&key) else {
            let all: Vec<&serde_json::Value> =
                self.exchanges.values().flatten().map(|exchange| &exchange.request).collect();
            return Err(LlmError::NotRecorded { why: differ::explain(&asked, &all) });
        };
        let nth = {
            let mut counts = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(key).or_default();
            *count += 1;
            *count - 1
        };
        let exchange = &recorded[nth.min(recorded.len() - 1)];
        let unreadable = |why: String| LlmError::Protocol { why: format!("the recorded reply cannot be read: {why}") };
        let turn = match (&exchange.reply, &exchange.events) {
            (Some(turn), _) => turn.clone(),
            (None, Some(events)) => decode(&exchange.provider, request, events)
                .ok_or_else(|| unreadable(format!("the wire {} is not known here", exchange.provider)))??,
            (None, None) => return Err(unreadable("there is none".to_owned())),
        };
        placed(&turn, &names).map_err(|error| unreadable(error.to_string()))
    }
}

/// The exchanges of a file that brought a reply. A last line that is cut is left out: its process died while it wrote.
fn read(file: &Path, text: &str) -> Result<Vec<Exchange>, CassetteError> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    let mut exchanges = Vec::new();
    for (position, (index, line)) in lines.iter().enumerate() {
        let wrong = |why: String| CassetteError::Line { file: file.to_path_buf(), line: index + 1, why };
        match serde_json::from_str::<Exchange>(line) {
            Ok(exchange) if exchange.version != VERSION => {
                return Err(wrong(format!(
                    "it has the version {}, and this program reads {VERSION}",
                    exchange.version
                )));
            }
            Ok(exchange) if exchange.failure.is_some() => {}
            Ok(exchange) => exchanges.push(exchange),
            // The line of a process that died: nothing followed, or the next process began a new line behind it.
            Err(error) if error.is_eof() && (position + 1 == lines.len() || line.starts_with('{')) => {}
            Err(error) if error.is_data() => return Err(wrong("it is not a recorded exchange".to_owned())),
            Err(_) => return Err(wrong("it is not JSON, and each line of a recording is".to_owned())),
        }
    }
    Ok(exchanges)
}

#[async_trait]
impl LlmProvider for ReplayProvider {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn takes_seed(&self) -> bool {
        true
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let turn = self.answer(request)?;
        observer.sent();
        if let Some(id) = &turn.response_id {
            observer.session(id);
        }
        for block in &turn.blocks {
            match block {
                Block::Text { text } => observer.text(text),
                Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => {}
            }
        }
        Ok(turn)
    }
}
