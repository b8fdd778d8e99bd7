//! `web_search`: asks a search engine that a person configured, and keeps what it found in the inbox.
//!
//! A search that the same run has made before is taken from its copy, so one that was cut short by a kill is asked again
//! and one that was finished is not (Durable Jobs v1 spec §8.3).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::StatusCode;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::regular;
use crate::seal::Seals;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::tools::crawl::DIRECTORY;
use crate::web;
use crate::workspace::Workspace;

const DEFAULT_COUNT: u32 = 10;
const MAX_COUNT: u32 = 20;
const MAX_PAGE: u32 = 10;
const MAX_QUERY_CHARS: usize = 400;
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
const MAX_SNIPPET_CHARS: usize = 600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// What to look for.
    #[schemars(length(min = 1, max = 400))]
    query: String,
    /// The most results; 10 when left out.
    #[schemars(range(min = 1, max = 20))]
    count: Option<u32>,
    /// The page of results, from 1.
    #[schemars(range(min = 1, max = 10))]
    page: Option<u32>,
    /// Ask again what this run has asked before. Without it the answer comes from its stored copy.
    #[serde(default)]
    refresh: bool,
}

/// One search, as it is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Search {
    query: String,
    page: u32,
    engine: String,
    results: Vec<Hit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// Proves that this server wrote it: a run can write such a file, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

impl Search {
    fn sealed(mut self, seals: &Seals) -> Result<Self, serde_json::Error> {
        self.seal = None;
        self.seal = Some(seals.of("search", &serde_json::to_vec(&self)?));
        Ok(self)
    }

    /// What `bytes` are, if this server wrote them.
    fn of_ours(seals: &Seals, bytes: &[u8]) -> Option<Self> {
        let search: Self = serde_json::from_slice(bytes).ok()?;
        let seal = search.seal.clone()?;
        search.sealed(seals).ok().filter(|again| again.seal.as_deref() == Some(&seal))
    }
}

/// The addresses that a search found, if `bytes` is one that this server kept; but for those that it was asked for, which the engine may only
/// have repeated.
pub(super) fn found_by_us(seals: &Seals, bytes: &[u8]) -> Option<Vec<String>> {
    let search = Search::of_ours(seals, bytes)?;
    let asked = search.query.to_lowercase();
    let is_repeated = |url: &str| {
        let address = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/').to_lowercase();
        asked.contains(&address)
    };
    Some(search.results.into_iter().map(|hit| hit.url).filter(|url| !is_repeated(url)).collect())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hit {
    title: String,
    url: String,
    snippet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
}

#[derive(Debug, Serialize)]
struct Searched {
    query: String,
    page: u32,
    path: String,
    results: Vec<Hit>,
    /// Whether this is the copy that the same run has stored before.
    reused: bool,
}

/// Which language an engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// `GET /search?q=…&format=json`
    Searxng,
    /// `GET /res/v1/web/search?q=…` with `X-Subscription-Token`
    Brave,
}

/// The tool: the search engine of one server.
#[derive(Debug)]
pub(in crate::tools) struct WebSearch {
    client: reqwest::Client,
    dialect: Dialect,
    base: Url,
    key: Option<SecretString>,
}

impl Tool for WebSearch {
    const NAME: &'static str = "web_search";
    const MAY_DROP: bool = true;
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let settings = setup.settings;
        let Some(text) = &settings.search else {
            return Ok(None);
        };
        let wrong =
            |why: &str| ToolServerError::Setting { flag: "search", value: web::shown(text), why: why.to_owned() };
        let (dialect, address) = if let Some(address) = text.strip_prefix("searxng+") {
            (Dialect::Searxng, address)
        } else if let Some(address) = text.strip_prefix("brave+") {
            (Dialect::Brave, address)
        } else {
            return Err(wrong("begin it with searxng+ or brave+, such as searxng+http://127.0.0.1:8080"));
        };
        let base = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong("give an http or https address after the +"));
        }
        let key = settings.secrets.search_api_key.clone();
        if dialect == Dialect::Brave && key.is_none() {
            return Err(wrong("put the engine's key into UA_SEARCH_API_KEY"));
        }
        if key.is_some() && base.scheme() == "http" && !web::is_loopback(&base) {
            return Err(wrong("a key is not sent over http; use https"));
        }
        Ok(Some(Self { client: web::client()?, dialect, base, key }))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Search the web",
            "Asks the configured search engine and keeps the results in search_results/, from where finalize_research fetches them. Returns titles, addresses and snippets.",
            Effect::Fetches,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let run = order.run;
        let query = given.query.split_whitespace().collect::<Vec<_>>().join(" ");
        if query.is_empty() || query.chars().count() > MAX_QUERY_CHARS {
            return Err(Failure::refused(
                format!("the query has {} characters", query.chars().count()),
                format!("say in 1 to {MAX_QUERY_CHARS} characters what to look for"),
            ));
        }
        let count = given.count.unwrap_or(DEFAULT_COUNT).clamp(1, MAX_COUNT);
        let page = given.page.unwrap_or(1).clamp(1, MAX_PAGE);
        let path = PathBuf::from(DIRECTORY).join(file_name(&query, count, page));
        if let Some(run) = run.filter(|_| !given.refresh).map(str::to_owned) {
            let (workspace, path, query) = (Arc::clone(&context.workspace), path.clone(), query.clone());
            let seals = Arc::clone(&context.seals);
            let known =
                blocking(move || Ok(stored(&workspace, &seals, &path, &query, page, &run).map(|found| (found, path))));
            if let Some((found, path)) = known.await? {
                return answer(found, &path, true);
            }
        }
        let results = self.ask(&query, count, page).await?;
        let engine = self.base.host_str().unwrap_or_default().to_owned();
        let search = Search { query, page, engine, results, run: run.map(str::to_owned), seal: None };
        let (workspace, seals) = (Arc::clone(&context.workspace), Arc::clone(&context.seals));
        let (search, path) = blocking(move || {
            let not_kept = |error| Failure::refused(format!("the results cannot be kept: {error}"), "search again");
            let search = search.sealed(&seals).map_err(not_kept)?;
            let bytes = serde_json::to_vec_pretty(&search).map_err(not_kept)?;
            let writable = workspace.writable(&path.to_string_lossy())?;
            let _lock = workspace.exclusive()?;
            workspace.area().replace(&writable, &bytes).map_err(|error| error.into_failure("keep the results"))?;
            Ok((search, path))
        })
        .await?;
        answer(search, &path, false)
    }
}

impl WebSearch {
    async fn ask(&self, query: &str, count: u32, page: u32) -> Result<Vec<Hit>, Failure> {
        let host = self.base.host_str().unwrap_or("the search engine");
        let mut url = self.base.clone();
        let path = match self.dialect {
            Dialect::Searxng => "search",
            Dialect::Brave => "res/v1/web/search",
        };
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("q", query);
            match self.dialect {
                Dialect::Searxng => {
                    pairs.append_pair("format", "json").append_pair("pageno", &page.to_string());
                }
                Dialect::Brave => {
                    pairs.append_pair("count", &count.to_string()).append_pair("offset", &(page - 1).to_string());
                }
            }
        }
        let mut request = self.client.get(url).timeout(web::QUESTION_TIMEOUT).header("Accept", "application/json");
        if let Some(key) = &self.key {
            request = match self.dialect {
                Dialect::Brave => request.header("X-Subscription-Token", key.expose_secret()),
                Dialect::Searxng => request.bearer_auth(key.expose_secret()),
            };
        }
        let answer = request.send().await.map_err(|error| {
            let error = error.without_url();
            Failure::refused(
                format!("{host} did not answer: {}", web::root_cause(&error)),
                "try again later, or go on with addresses you know",
            )
        })?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(refusal(host, status, self.dialect));
        }
        let not_read = |why: &str| {
            Failure::refused(
                format!("what {host} answered is not a list of results: {why}"),
                "ask a person to check UA_SEARCH",
            )
        };
        let body = web::text_up_to(MAX_ANSWER_BYTES, answer).await.ok_or_else(|| not_read("it is cut or too long"))?;
        let value: Value = serde_json::from_slice(&body).map_err(|error| not_read(&error.to_string()))?;
        let hits = match self.dialect {
            Dialect::Searxng => hits(value.get("results"), "content", "publishedDate"),
            Dialect::Brave => hits(value.pointer("/web/results"), "description", "page_age"),
        };
        let Some(mut hits) = hits else {
            // Brave leaves `web` out when it found nothing.
            return if self.dialect == Dialect::Brave && value.is_object() {
                Ok(Vec::new())
            } else {
                Err(not_read("there are no results in it"))
            };
        };
        hits.truncate(count as usize);
        Ok(hits)
    }
}

fn refusal(host: &str, status: StatusCode, dialect: Dialect) -> Failure {
    let hint = match (status.as_u16(), dialect) {
        (401, _) | (403, Dialect::Brave) => "ask a person to check UA_SEARCH_API_KEY",
        (403, Dialect::Searxng) => "ask a person to allow the format json in the engine's settings (search.formats)",
        (429, _) => "too many searches: go on with what was found, or try again later",
        _ => "try again later, or go on with addresses you know",
    };
    Failure::refused(format!("{host} answered with status {}", status.as_u16()), hint)
}

/// The results of an engine, those without an address left out.
fn hits(list: Option<&Value>, snippet: &str, published: &str) -> Option<Vec<Hit>> {
    let text = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).map(plain).filter(|t| !t.is_empty());
    let hits = list?.as_array()?.iter().filter_map(|item| {
        let url = Url::parse(item.get("url")?.as_str()?).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        Some(Hit {
            title: text(item, "title").unwrap_or_else(|| url.to_string()),
            snippet: text(item, snippet).unwrap_or_default().chars().take(MAX_SNIPPET_CHARS).collect(),
            published: text(item, published),
            url: url.into(),
        })
    });
    Some(hits.collect())
}

/// Text without the markup that engines put around the words they found.
fn plain(text: &str) -> String {
    let mut plain = text.to_owned();
    for tag in ["<strong>", "</strong>", "<b>", "</b>", "<em>", "</em>"] {
        plain = plain.replace(tag, "");
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn stored(workspace: &Workspace, seals: &Seals, path: &Path, query: &str, page: u32, run: &str) -> Option<Search> {
    let given = path.to_string_lossy().into_owned();
    let path = workspace.readable(&given).ok()?;
    let bytes = regular::read_up_to(workspace.area().dir(), &path, &given, MAX_ANSWER_BYTES as u64).ok()?;
    let search = Search::of_ours(seals, &bytes)?;
    (search.query == query && search.page == page && search.run.as_deref() == Some(run)).then_some(search)
}

fn answer(search: Search, path: &Path, reused: bool) -> Answer {
    let Search { query, page, results, .. } = search;
    let summary = format!("{} results for {query:?}", results.len());
    success(summary, &Searched { query, page, path: path.to_string_lossy().into_owned(), results, reused })
}

/// The name of the copy: readable, and unlike that of every other search.
fn file_name(query: &str, count: u32, page: u32) -> String {
    let words: Vec<String> = query
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(6)
        .map(str::to_ascii_lowercase)
        .collect();
    let slug: String = words.join("-").chars().take(60).collect();
    let digest = sha256_hex(format!("{count} {page} {query}"));
    format!("search-{slug}-{}.json", digest.get(..12).unwrap_or(&digest))
}
