//! Keeps what passes between a run and its provider.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ua_core::{ModelTurn, Redactor, Usage};
use ua_files::Folder;

use super::{Asked, Exchange, Places, VERSION, asked, decode, each_text};
use crate::error::LlmError;
use crate::provider::{Ending, LlmProvider, StreamObserver};
use crate::request::ModelRequest;
use crate::session::KnownPrefix;

/// A provider whose exchanges are written to a file, one line each, before the reply is passed on.
///
/// An exchange that cannot be written is logged, and the reply counts all the same: it was paid for.
pub struct RecordingProvider {
    inner: Arc<dyn LlmProvider>,
    file: Mutex<File>,
    redactor: Redactor,
    places: Places,
}

impl std::fmt::Debug for RecordingProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingProvider").field("provider", &self.inner.name()).finish_non_exhaustive()
    }
}

impl RecordingProvider {
    /// Appends the exchanges of `inner` to `file`, which is made if it is missing, without what `redactor` takes out. The folder that it lies in is
    /// one that a person named; what has its name there may have come with a checkout, so that is no link, and nothing but a file.
    ///
    /// # Errors
    /// When the file cannot be opened, or holds something else than exchanges.
    pub fn new(inner: Arc<dyn LlmProvider>, file: &Path, redactor: Redactor, places: Places) -> io::Result<Self> {
        let (folder, name) = place(file)?;
        make_named(folder)?;
        let file = Folder::open(folder)?.append(name)?;
        if !begins_as_recording(&file)? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it already exists and is not a recording"));
        }
        Self::to(inner, file, redactor, places)
    }

    /// Whether exchanges may be added to a file: one that is not there, holds nothing, or begins with an exchange, be it half a one that a
    /// process left which died. Of a folder, each run has a file of its own in it.
    ///
    /// # Errors
    /// When it cannot be read; [`io::ErrorKind::InvalidInput`] of a link, a pipe, a socket or a device.
    pub fn may_append_to(file: &Path) -> io::Result<bool> {
        if file.is_dir() {
            return Ok(true);
        }
        let (folder, name) = place(file)?;
        match Folder::open(folder).and_then(|folder| folder.open_file(name)) {
            Ok(file) => begins_as_recording(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The same into a file that is open for reading and appending.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn to(inner: Arc<dyn LlmProvider>, file: File, redactor: Redactor, places: Places) -> io::Result<Self> {
        end_torn_line(&file)?;
        Ok(Self { inner, file: Mutex::new(file), redactor, places })
    }

    fn keep(&self, request: &ModelRequest, events: &[String], answer: &Result<ModelTurn, LlmError>) {
        let Asked { key, request: asked, names } = asked(request, &self.redactor, &self.places);
        let mut exchange = Exchange {
            version: VERSION,
            provider: self.inner.name().to_owned(),
            request_sha256: request.digest(),
            key,
            request: asked,
            events: None,
            reply: None,
            failure: None,
        };
        match answer {
            Err(error) => exchange.failure = Some(self.clean(&error.to_string(), &names)),
            Ok(turn) => self.keep_reply(&mut exchange, request, events, turn, &names),
        }
        let written = serde_json::to_string(&exchange).map_err(io::Error::other).and_then(|line| {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(format!("{line}\n").as_bytes())
        });
        if let Err(error) = written {
            tracing::warn!(%error, "an exchange with the model could not be recorded");
        }
    }

    /// Keeps the events where they still say what the clean reply says, whatever else the request has, else the clean reply: ids that
    /// were made up here because the server gave none depend on the request, and a replay has to come to the same ones.
    fn keep_reply(
        &self,
        exchange: &mut Exchange,
        request: &ModelRequest,
        events: &[String],
        turn: &ModelTurn,
        names: &Places,
    ) {
        let Ok(mut value) = serde_json::to_value(turn) else { return };
        self.redactor.json(&mut value);
        each_text(&mut value, &|text| names.named(text));
        let Ok(clean) = serde_json::from_value::<ModelTurn>(value) else { return };
        let events: Vec<String> = events.iter().map(|event| self.clean(event, names)).collect();
        let mut another = request.clone();
        another.system.push('\n');
        match decode(self.inner.name(), &another, &events) {
            Some(Ok(again)) if again == clean => exchange.events = Some(events),
            Some(_) | None => exchange.reply = Some(clean),
        }
    }

    fn clean(&self, text: &str, names: &Places) -> String {
        names.named(&self.redactor.text(text))
    }
}

/// The folder that a file lies in, and its name there.
fn place(file: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = file.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::IsADirectory, "it names no file"))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((folder, name))
}

/// Makes the folder that a recording lies in.
#[expect(clippy::disallowed_methods, reason = "a person named this path: links on the way are theirs")]
fn make_named(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Whether a file holds nothing, or begins as a recording does.
fn begins_as_recording(mut file: &File) -> io::Result<bool> {
    use std::io::{Read as _, Seek as _};
    let beginning = format!("{{\"version\":{VERSION},\"provider\":\"");
    let mut first = Vec::new();
    file.rewind()?;
    file.take(beginning.len() as u64).read_to_end(&mut first)?;
    Ok(beginning.as_bytes().starts_with(&first))
}

/// A process that died while it wrote leaves half a line; the next one starts on a line of its own.
fn end_torn_line(mut file: &File) -> io::Result<()> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

/// Passes everything on and keeps the events.
struct Tap<'a> {
    observer: &'a dyn StreamObserver,
    events: Mutex<Vec<String>>,
}

impl StreamObserver for Tap<'_> {
    fn sent(&self) {
        self.observer.sent();
    }

    fn session(&self, response_id: &str) {
        self.observer.session(response_id);
    }

    fn text(&self, delta: &str) {
        self.observer.text(delta);
    }

    fn heard(&self, so_far: Usage) {
        self.observer.heard(so_far);
    }

    fn ended(&self, ending: &Ending) {
        self.observer.ended(ending);
    }

    fn event(&self, data: &str) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(data.to_owned());
        self.observer.event(data);
    }
}

#[async_trait]
impl LlmProvider for RecordingProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let tap = Tap { observer, events: Mutex::default() };
        let answer = self.inner.complete(request, &tap).await;
        self.keep(request, &tap.events.into_inner().unwrap_or_else(PoisonError::into_inner), &answer);
        answer
    }

    fn behind(&self) -> Option<&dyn LlmProvider> {
        Some(self.inner.as_ref())
    }

    // What is kept is the whole request: a replay knows no conversation.
    async fn complete_from(
        &self,
        known: &KnownPrefix,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let tap = Tap { observer, events: Mutex::default() };
        let answer = self.inner.complete_from(known, request, &tap).await;
        self.keep(request, &tap.events.into_inner().unwrap_or_else(PoisonError::into_inner), &answer);
        answer
    }
}
