//! The stored copy of a page: how it is written, and how a later attempt of the same run reads it back.
//!
//! A call that was killed halfway is made again by its runner (Durable Jobs v1 spec §8.3: reads are repeated). The
//! pages that the first attempt stored carry the run's id, and are taken from there instead of from the network. A run can write such a file
//! itself, so only a copy with this server's seal is taken for what the site said.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use url::Url;

use super::page::Page;
use crate::answer::Failure;
use crate::digest::sha256_hex;
use crate::regular;
use crate::seal::Seals;
use crate::workspace::Workspace;

/// The largest copy that is read back, in bytes; a larger one is fetched again.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
const FENCE: &str = "---\n";
/// The beginning of the line with the seal.
const SEAL: &str = "seal: ";

/// Where a copy came from, apart from what the page itself says.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// The address that was asked for.
    pub(super) asked: &'a Url,
    /// The HTTP status; `None` for a file.
    pub(super) http_status: Option<u16>,
    /// The run that fetched it; `None` when the caller named none.
    pub(super) run: Option<&'a str>,
}

/// Stores the page with what is known about it in front.
pub(super) fn keep(
    workspace: &Workspace,
    seals: &Seals,
    path: &Path,
    page: &Page,
    origin: &Origin<'_>,
) -> Result<(), Failure> {
    let path = workspace.writable(&path.to_string_lossy())?;
    let front = front_matter(page, origin);
    // Digits need no escapes.
    let seal = sealed(seals, &front, &page.markdown);
    let text = format!("{FENCE}{front}{SEAL}\"{seal}\"\n{FENCE}\n{}\n", page.markdown);
    let _lock = workspace.exclusive()?;
    workspace.area().replace(&path, text.as_bytes()).map_err(|error| error.into_failure("store the page"))
}

/// The copy that `run` made of `asked`, if there is one and it can be read. Anything doubtful is fetched again.
pub(super) fn find(workspace: &Workspace, seals: &Seals, path: &Path, asked: &Url, run: &str) -> Option<Page> {
    let (front, page) = read(workspace, path)?;
    let asked_then: Option<String> = value(&front, "asked");
    let run_then: String = value(&front, "run")?;
    // The seal is the last line, and no text in front of it can hold a line break.
    let (unsealed, seal) = front.rsplit_once(SEAL)?;
    let is_ours = seal.strip_prefix('"')?.strip_suffix('"')? == sealed(seals, unsealed, &page.markdown);
    let is_it = is_ours && run_then == run && asked_then.as_deref().unwrap_or(page.source.as_str()) == asked.as_str();
    is_it.then_some(page)
}

/// A stored copy of any page, as the crawl made it; its front matter first.
pub(super) fn read(workspace: &Workspace, path: &Path) -> Option<(String, Page)> {
    let path = workspace.readable(&path.to_string_lossy()).ok()?;
    let (file, metadata) = regular::open(workspace.area().dir(), &path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let (front, body) = text.strip_prefix(FENCE)?.split_once(&format!("\n{FENCE}\n"))?;
    let source: String = value(front, "source")?;
    let page = Page {
        source: Url::parse(&source).ok()?,
        title: value(front, "title")?,
        author: value(front, "author"),
        published: value(front, "published"),
        words: value(front, "words")?,
        markdown: body.strip_suffix('\n')?.to_owned(),
    };
    // A copy that was edited since is no longer what the page said.
    let is_whole = value::<String>(front, "sha256").is_none_or(|digest| digest == sha256_hex(&page.markdown));
    is_whole.then(|| (front.to_owned(), page))
}

/// What proves that this server wrote these lines in front of this text.
fn sealed(seals: &Seals, front: &str, markdown: &str) -> String {
    seals.of("page", format!("{front}{FENCE}{markdown}").as_bytes())
}

/// The lines in front of a copy, but for its seal. JSON strings are YAML strings, so any text is safe in them.
fn front_matter(page: &Page, origin: &Origin<'_>) -> String {
    let mut front = String::new();
    let mut line = |name: &str, value: serde_json::Value| {
        // Writing into a `String` cannot fail.
        writeln!(front, "{name}: {value}").ok();
    };
    line("title", page.title.as_str().into());
    line("source", page.source.as_str().into());
    if *origin.asked != page.source {
        line("asked", origin.asked.as_str().into());
    }
    if let Some(author) = &page.author {
        line("author", author.as_str().into());
    }
    if let Some(published) = &page.published {
        line("published", published.as_str().into());
    }
    match origin.http_status {
        Some(status) => line("status", status.into()),
        None => line("status", "file".into()),
    }
    line("words", page.words.into());
    if let Some(run) = origin.run {
        line("run", run.into());
    }
    line("sha256", sha256_hex(&page.markdown).into());
    front
}

fn value<T: DeserializeOwned>(front: &str, name: &str) -> Option<T> {
    let line = front.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    serde_json::from_str(line).ok()
}
