//! Pages from the network: checked at each hop, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use encoding_rs::{Encoding, UTF_8};
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, LOCATION};
use url::Url;

use super::address::{PublicResolver, check_literal};
use super::{Document, Kind};
use crate::answer::Failure;
use crate::error::ToolServerError;

const MAX_REDIRECTS: usize = 5;
const MAX_BYTES: usize = 8 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one hop, from the request to the last byte.
const HOP_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPTED: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8";
const USER_AGENT: &str =
    concat!("ua-toolserver/", env!("CARGO_PKG_VERSION"), " (+https://github.com/universal-agent/ua)");

/// The HTTP client of the crawler.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    allow_private_addresses: bool,
}

impl Fetcher {
    pub(super) fn new(allow_private_addresses: bool) -> Result<Self, ToolServerError> {
        // A proxy would connect for us, out of reach of the address check.
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(HOP_TIMEOUT)
            .user_agent(USER_AGENT);
        if !allow_private_addresses {
            builder = builder.dns_resolver(Arc::new(PublicResolver));
        }
        let client = builder.build().map_err(|source| ToolServerError::Http { source })?;
        Ok(Self { client, allow_private_addresses })
    }

    pub(super) async fn fetch(&self, url: Url) -> Result<Document, Failure> {
        let mut here = url;
        for _ in 0..=MAX_REDIRECTS {
            if !self.allow_private_addresses {
                check_literal(&here).map_err(|error| refused_address(&error))?;
            }
            // Credentials in a URL are not for pages that someone else chose.
            if !here.username().is_empty() || here.password().is_some() {
                return Err(Failure::refused("the address has a user name in it", "give the address without it"));
            }
            let request = self.client.get(here.clone()).header(ACCEPT, ACCEPTED);
            let response = request.send().await.map_err(|error| unreachable_page(&error))?;
            let status = response.status();
            if !status.is_redirection() {
                return read(here, response).await;
            }
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = target.and_then(|target| here.join(target).ok()).ok_or_else(|| {
                Failure::refused(format!("the server answered {status} without saying where to go"), "try another page")
            })?;
            if !matches!(next.scheme(), "http" | "https") {
                let problem = format!("the server redirected to a {}:// address", next.scheme());
                return Err(Failure::refused(problem, "try another page"));
            }
            here = next;
        }
        Err(Failure::refused(format!("the page redirected more than {MAX_REDIRECTS} times"), "try another page"))
    }
}

async fn read(source: Url, response: reqwest::Response) -> Result<Document, Failure> {
    let status = response.status();
    if !status.is_success() {
        return Err(Failure::refused(format!("the server answered {status}"), "check the address or try another page"));
    }
    let (kind, charset) = content_type(response.headers())?;
    let too_big = || {
        let problem = format!("the page is larger than {} MiB", MAX_BYTES >> 20);
        Failure::refused(problem, "try a page about a smaller part of the subject")
    };
    if response.content_length().is_some_and(|length| length > MAX_BYTES as u64) {
        return Err(too_big());
    }
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| unreachable_page(&error))?;
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(too_big());
        }
        body.extend_from_slice(&chunk);
    }
    let declared = charset.or_else(|| (kind == Kind::Html).then(|| declared_in(&body)).flatten());
    let (text, ..) = declared.unwrap_or(UTF_8).decode(&body);
    Ok(Document { source, http_status: Some(status.as_u16()), kind, text: text.into_owned() })
}

/// What the headers say the page is; an error for everything that is not text to read.
fn content_type(headers: &HeaderMap) -> Result<(Kind, Option<&'static Encoding>), Failure> {
    let header = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("text/html");
    let mut parts = header.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts
        .find_map(|part| part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")))
        .and_then(|(_, label)| Encoding::for_label(label.trim().trim_matches('"').as_bytes()));
    let kind = match media.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "text/plain" | "text/markdown" | "text/x-markdown" => Kind::Text,
        other => {
            return Err(Failure::refused(
                format!("the page is {other:?}, not HTML, Markdown or plain text"),
                "look for an HTML version of it",
            ));
        }
    };
    Ok((kind, charset))
}

/// The encoding that an HTML page names in its first kilobyte.
fn declared_in(body: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(body.get(..1024).unwrap_or(body)).to_ascii_lowercase();
    let (_, after) = head.split_once("charset=")?;
    let label = after.trim_start_matches(['"', '\'', ' ']).split(['"', '\'', ' ', '>', '/', ';']).next()?;
    Encoding::for_label(label.as_bytes())
}

fn refused_address(error: &dyn std::error::Error) -> Failure {
    Failure::refused(
        format!("the address is refused: {error}"),
        "only public addresses are fetched; a person can allow others with --allow-private-addresses",
    )
}

fn unreachable_page(error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::refused("the server took too long", "try again later or try another page");
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    if error.is_connect() && deepest.to_string().contains("reserved address") {
        return refused_address(deepest);
    }
    Failure::refused(format!("the page could not be fetched: {deepest}"), "check the address or try another page")
}
