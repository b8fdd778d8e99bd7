//! `crawl_parallel`: fetches pages, makes readable Markdown of them and keeps it in the workspace.
//!
//! Each page becomes `search_results/<slug>-<first 12 digits of the SHA-256 of its URL>.md`, so fetching it again
//! replaces its own copy and nothing else. One page that fails does not fail the others.
//!
//! A page that the same run has stored before is taken from its copy: a call that was killed halfway and is made again
//! (Durable Jobs v1 spec §8.3) fetches only what is missing. Sites are treated as they ask in their robots.txt, with at
//! most 8 requests at once and 2 per host.

mod address;
mod apart;
mod bounded;
mod depth;
mod fetch;
mod local;
mod page;
mod robots;
mod slots;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

pub use self::apart::serve_page;
use self::fetch::{Fetcher, Sites};
use self::local::Roots;
use self::page::Page;
pub(super) use self::page::Page as StoredPage;
use self::stored::Origin;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::page_reader::PageReader;
use crate::seal::Seals;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

/// The inbox that pages and searches land in.
pub(super) const DIRECTORY: &str = "search_results";
const MAX_URLS: usize = 50;
const DEFAULT_MAX_CHARS: u32 = 4000;
const MAX_CHARS: u32 = 200_000;
/// How long one call fetches. Pages that are not done by then are told as failed, and the others are kept.
const CALL_PATIENCE: Duration = Duration::from_mins(10);
/// How long a call takes at most, with what it does before and after.
pub(super) const DEADLINE: Duration = Duration::from_mins(20);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The pages to fetch: http, https or file addresses, at most 50.
    #[schemars(length(min = 1, max = 50))]
    urls: Vec<String>,
    /// How much text of each page the result shows; 4000 characters when left out. The stored file has all of it.
    #[schemars(range(min = 0, max = 200_000))]
    max_chars_per_page: Option<u32>,
    /// Fetch pages again that this run has stored before. Without it they come from their stored copy.
    #[serde(default)]
    refresh: bool,
}

#[derive(Debug, Serialize)]
struct Crawled {
    ok: usize,
    failed: usize,
    pages: Vec<Outcome>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Outcome {
    Ok(Box<SavedPage>),
    Error { url: String, error: String },
}

/// A page that is in the workspace now.
#[derive(Debug, Serialize)]
struct SavedPage {
    url: String,
    /// Where it came from in the end, after redirects.
    source: String,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    path: String,
    words: usize,
    text: String,
    truncated: bool,
    /// Whether this is the copy that the same run has stored before.
    reused: bool,
}

/// What was fetched, before it is read.
#[derive(Debug)]
struct Document {
    /// Where it came from in the end.
    source: Url,
    /// The HTTP status; `None` for a file.
    http_status: Option<u16>,
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    /// Markdown and plain text are kept as they are.
    Text,
}

#[derive(Debug)]
pub(super) struct CrawlParallel(Arc<Crawler>);

impl Tool for CrawlParallel {
    const NAME: &'static str = "crawl_parallel";
    const MAY_DROP: bool = true;
    const DEADLINE: Duration = DEADLINE;
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Crawler::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Fetch web pages",
            "Fetches pages in parallel, extracts their readable text as Markdown and stores each in search_results/. Returns title, source, path, word count and the beginning of the text per page; pages that fail are listed with the reason.",
            Effect::Fetches,
        )
    }

    async fn call(&self, _: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let run = order.run;
        if given.urls.is_empty() || given.urls.len() > MAX_URLS {
            return Err(Failure::refused(
                format!("{} URLs were given", given.urls.len()),
                format!("give 1 to {MAX_URLS} URLs in one call"),
            ));
        }
        let shown = given.max_chars_per_page.unwrap_or(DEFAULT_MAX_CHARS).min(MAX_CHARS);
        let mut urls: Vec<String> = Vec::with_capacity(given.urls.len());
        for url in given.urls {
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        let sites = Sites::default();
        let known = run.filter(|_| !given.refresh);
        // All at once: the slots keep order, and a slow host holds up only its own pages.
        let pages = urls.into_iter().map(async |url| {
            match in_time(self.0.crawl(&url, shown as usize, run, known, &sites)).await {
                Ok(kept) => Outcome::Ok(Box::new(kept)),
                Err(failure) => Outcome::Error { url, error: failure.text() },
            }
        });
        let pages: Vec<Outcome> = futures_util::future::join_all(pages).await;
        let failed = pages.iter().filter(|page| matches!(page, Outcome::Error { .. })).count();
        let ok = pages.len() - failed;
        if ok == 0 {
            let reasons: Vec<String> = pages
                .iter()
                .filter_map(|page| match page {
                    Outcome::Error { url, error } => Some(format!("{url}: {error}")),
                    Outcome::Ok(_) => None,
                })
                .collect();
            return Err(Failure::refused(
                format!("no page could be fetched:\n{}", reasons.join("\n")),
                "correct the URLs or try other pages",
            ));
        }
        success(format!("{ok} pages fetched, {failed} failed"), &Crawled { ok, failed, pages })
    }
}

/// A page, or that the call ended before it was there.
async fn in_time<T>(page: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(CALL_PATIENCE, page).await.unwrap_or_else(|_| {
        let problem = format!("the call had no more time, after {}", ua_core::span_in_words(CALL_PATIENCE));
        Err(Failure::refused(problem, "fetch fewer pages of one host in one call"))
    })
}

/// What fetching needs, set up once.
#[derive(Debug)]
pub(super) struct Crawler {
    workspace: Arc<Workspace>,
    fetcher: Fetcher,
    roots: Arc<Roots>,
    seals: Arc<Seals>,
    reader: Option<PageReader>,
}

impl Crawler {
    /// The one crawler of a server: its limits hold for all tools that fetch.
    pub(super) fn of(setup: &Setup<'_>) -> Result<Arc<Self>, ToolServerError> {
        setup.shared(|setup| {
            let (settings, Context { workspace, env, seals }) = (setup.settings, setup.context);
            let fetcher = Fetcher::new(settings.allow_private_addresses, env.clone())?;
            Ok(Arc::new(Self {
                fetcher: fetcher.only_within(&settings.allowed_domains),
                roots: Arc::new(Roots::open(Arc::clone(workspace), &settings.allow_roots, &settings.command_private)?),
                workspace: Arc::clone(workspace),
                seals: Arc::clone(seals),
                reader: settings.page_reader.clone(),
            }))
        })
    }

    /// Stores the pages that are not stored yet, and returns those that could not be, with the reason.
    pub(super) async fn store(&self, urls: Vec<String>, run: Option<&str>) -> Vec<(String, String)> {
        let sites = Sites::default();
        let pages = urls.into_iter().map(async |url| match in_time(self.crawl(&url, 0, run, run, &sites)).await {
            Ok(_) => None,
            Err(failure) => Some((url, failure.text())),
        });
        futures_util::future::join_all(pages).await.into_iter().flatten().collect()
    }

    /// Makes one page of the workspace: from the copy that the run `known` made of it, else by fetching it for `run`.
    async fn crawl(
        &self,
        text: &str,
        shown: usize,
        run: Option<&str>,
        known: Option<&str>,
        sites: &Sites,
    ) -> Result<SavedPage, Failure> {
        let url = Url::parse(text).map_err(|error| {
            Failure::refused(
                format!("this is not a URL: {error}"),
                "give a full address such as https://example.org/page",
            )
        })?;
        let path = copy_of(&url);
        let (document, slot) = match url.scheme() {
            "http" | "https" => {
                if let Some(run) = known.map(str::to_owned) {
                    let (workspace, copy, url) = (Arc::clone(&self.workspace), path.clone(), url.clone());
                    let seals = Arc::clone(&self.seals);
                    let found = blocking(move || Ok(stored::find(&workspace, &seals, &copy, &url, &run))).await?;
                    if let Some(page) = found {
                        return Ok(SavedPage::new(text.to_owned(), page, &path, shown, true));
                    }
                }
                self.fetcher.fetch(url.clone(), sites).await?
            }
            "file" => {
                let slot = self.fetcher.slots().any().await;
                let (roots, url) = (Arc::clone(&self.roots), url.clone());
                (blocking(move || roots.read(&url)).await?, slot)
            }
            scheme => {
                return Err(Failure::refused(
                    format!("{scheme}:// addresses cannot be fetched"),
                    "give an http, https or file address",
                ));
            }
        };
        let (workspace, seals) = (Arc::clone(&self.workspace), Arc::clone(&self.seals));
        let (asked, run, reader) = (text.to_owned(), run.map(str::to_owned), self.reader.clone());
        blocking(move || {
            let http_status = document.http_status;
            let page = Page::read(document, reader.as_ref())?;
            let origin = Origin { asked: &url, http_status, run: run.as_deref() };
            stored::keep(&workspace, &seals, &path, &page, &origin)?;
            drop(slot);
            Ok(SavedPage::new(asked, page, &path, shown, false))
        })
        .await
    }
}

impl SavedPage {
    fn new(url: String, page: Page, path: &Path, shown: usize, reused: bool) -> Self {
        let beginning: String = page.markdown.chars().take(shown).collect();
        Self {
            url,
            source: page.source.to_string(),
            path: path.to_string_lossy().into_owned(),
            words: page.words,
            truncated: beginning.len() < page.markdown.len(),
            text: beginning,
            title: page.title,
            author: page.author,
            published: page.published,
            reused,
        }
    }
}

/// The file that the copy of a page is kept in.
pub(super) fn copy_of(url: &Url) -> PathBuf {
    PathBuf::from(DIRECTORY).join(file_name(url))
}

/// A page of the inbox, if `path` is one that a crawl stored and nobody changed.
pub(super) fn stored_page(workspace: &Workspace, path: &Path) -> Option<StoredPage> {
    stored::read(workspace, path).map(|(_, page)| page)
}

/// The name of the copy: readable, and unlike that of every other URL.
fn file_name(url: &Url) -> String {
    let readable = format!("{} {}", url.host_str().unwrap_or_default(), url.path());
    let mut slug = String::new();
    for c in readable.chars() {
        if slug.len() >= 60 {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = if slug.is_empty() { "page" } else { slug.trim_end_matches('-') };
    let digest = sha256_hex(url.as_str());
    format!("{slug}-{}.md", digest.get(..12).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_and_differ_by_query() {
        let name = |text| file_name(&Url::parse(text).unwrap());
        assert!(name("https://Example.org/A/b%20c.html").starts_with("example-org-a-b-20c-html-"));
        assert_ne!(name("https://example.org/?a=1"), name("https://example.org/?a=2"));
        assert_eq!(name("https://example.org/"), name("https://example.org"));
        assert!(name(&format!("https://example.org/{}", "x".repeat(500))).len() < 90);
    }
}
