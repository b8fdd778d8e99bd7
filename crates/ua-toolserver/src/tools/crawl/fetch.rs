//! Pages from the network: asked for as the site allows, checked at each hop, bounded in time and size.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use futures_util::StreamExt;
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, LOCATION};
use tokio::sync::OnceCell;
use ua_core::Env;
use url::Url;

use super::address::{PublicResolver, check_literal};
use super::robots::{self, Rules};
use super::slots::{Slot, Slots};
use super::{Document, Kind};
use crate::answer::Failure;
use crate::error::ToolServerError;

const MAX_REDIRECTS: usize = 5;
/// After decompression.
const MAX_BYTES: usize = 10 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one page with all its hops, from each request to the last byte; waiting for a turn does not count.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
const ACCEPTED: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8";
/// Its first word is [`robots::TOKEN`].
const USER_AGENT: &str = concat!("ua/", env!("CARGO_PKG_VERSION"), " (+durable job runner)");

/// The HTTP client of the crawler.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    allow_private_addresses: bool,
    /// Lower-case hosts that may be reached, with those below them; empty allows any.
    allowed_domains: Vec<String>,
    slots: Slots,
    env: Env,
    page_timeout: Duration,
}

/// What one call has learnt about the sites it asks: the robots.txt of each origin, fetched once.
#[derive(Debug, Default)]
pub(super) struct Sites {
    origins: Mutex<HashMap<String, Arc<OnceCell<Permission>>>>,
}

/// What an origin's robots.txt came to; else the problem and the hint of the refusal.
type Permission = Result<Rules, (String, String)>;

impl Sites {
    fn of(&self, url: &Url) -> Arc<OnceCell<Permission>> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(origins.entry(url.origin().ascii_serialization()).or_default())
    }
}

/// What one request led to.
#[derive(Debug)]
enum Hop<T> {
    Arrived(T),
    Redirected(Url),
}

impl Fetcher {
    pub(super) fn new(allow_private_addresses: bool, env: Env) -> Result<Self, ToolServerError> {
        // A proxy would connect for us, out of reach of the address check.
        let mut builder = ua_http::client(ua_http::Versions::OneAndTwo)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(USER_AGENT);
        if !allow_private_addresses {
            builder = builder.dns_resolver(Arc::new(PublicResolver));
        }
        let client = builder.build().map_err(|source| ToolServerError::Http { source })?;
        let slots = Slots::new(env.clone());
        let allowed_domains = Vec::new();
        Ok(Self { client, allow_private_addresses, allowed_domains, slots, env, page_timeout: PAGE_TIMEOUT })
    }

    /// The same, reaching only these hosts and those below them; any when there are none.
    pub(super) fn only_within(mut self, domains: &[String]) -> Self {
        let domains = domains.iter().map(|domain| domain.trim_matches('.').to_lowercase());
        self.allowed_domains = domains.filter(|domain| !domain.is_empty()).collect();
        self
    }

    /// The limits on requests; whoever reads pages from elsewhere keeps to them too.
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Fetches a page if its site allows it. The slot is kept by the one who reads the document, so that no more
    /// documents wait in memory than may be fetched at once.
    #[tracing::instrument(name = "fetch page", skip_all)]
    pub(super) async fn fetch(&self, url: Url, sites: &Sites) -> Result<(Document, Slot), Failure> {
        let mut left = self.page_timeout;
        let mut here = url;
        let mut been = Vec::new();
        for _ in 0..=MAX_REDIRECTS {
            self.check(&here)?;
            let rules = self.permission(&here, sites).await?;
            if !rules.allow(&here) {
                return Err(Failure::refused(
                    format!("the site's robots.txt does not allow programs to fetch {here}"),
                    "try another page",
                ));
            }
            let slot = self.slots.take(here.host_str().unwrap_or_default(), rules.delay()).await;
            let began = self.env.now();
            let hop = self.within(left, async {
                let response = self.ask(&here).await?;
                match target(&here, &response)? {
                    Some(next) => Ok(Hop::Redirected(next)),
                    None => Ok(Hop::Arrived(read(here.clone(), response).await?)),
                }
            });
            match hop.await? {
                Hop::Arrived(document) => return Ok((document, slot)),
                Hop::Redirected(next) => {
                    been.push(std::mem::replace(&mut here, next));
                    if been.contains(&here) {
                        let problem = format!("the page redirects in a loop that leads back to {here}");
                        return Err(Failure::refused(problem, "try another page"));
                    }
                }
            }
            left = left.saturating_sub(self.env.now().since(began));
        }
        Err(Failure::refused(format!("the page redirected more than {MAX_REDIRECTS} times"), "try another page"))
    }

    /// The rules of the page's origin, asked for once per call.
    async fn permission(&self, url: &Url, sites: &Sites) -> Result<Rules, Failure> {
        let cell = sites.of(url);
        let permission = cell
            .get_or_init(async || {
                self.robots(url).await.map_err(|failure| match failure {
                    Failure::Refused { problem, hint, changed: _, paid: _ } => (problem, hint),
                    Failure::Unclear(problem) => (problem, "try again".to_owned()),
                })
            })
            .await;
        permission.clone().map_err(|(problem, hint)| Failure::refused(problem, hint))
    }

    /// Fetches the robots.txt of an origin (RFC 9309 §2.3.1): one that is not there forbids nothing; while it cannot
    /// be had, everything is forbidden.
    async fn robots(&self, url: &Url) -> Result<Rules, Failure> {
        let mut here = url.clone();
        here.set_path("/robots.txt");
        here.set_query(None);
        here.set_fragment(None);
        let robots = here.clone();
        for _ in 0..=MAX_REDIRECTS {
            let hop = async {
                self.check(&here)?;
                let _slot = self.slots.take(here.host_str().unwrap_or_default(), None).await;
                self.within(self.page_timeout, async {
                    let response = self.ask(&here).await?;
                    let status = response.status();
                    if let Some(next) = target(&here, &response)? {
                        return Ok(Hop::Redirected(next));
                    }
                    if status.is_server_error() {
                        let problem = format!("the server answered {status}");
                        return Err(Failure::refused(problem, "try again later or try another site"));
                    }
                    if !status.is_success() {
                        return Ok(Hop::Arrived(Rules::default()));
                    }
                    let body = beginning(response).await.map_err(|error| unreachable_page(&error))?;
                    Ok(Hop::Arrived(Rules::parse(&String::from_utf8_lossy(&body))))
                })
                .await
            };
            match hop.await {
                Ok(Hop::Arrived(rules)) => return Ok(rules),
                Ok(Hop::Redirected(next)) => here = next,
                Err(Failure::Refused { problem, hint, changed: _, paid: _ }) => {
                    let problem = format!("{robots}, which says what programs may fetch, could not be read: {problem}");
                    return Err(Failure::refused(problem, hint));
                }
                Err(unclear @ Failure::Unclear(_)) => return Err(unclear),
            }
        }
        tracing::debug!(%robots, "redirected too often, taken as missing");
        Ok(Rules::default())
    }

    /// Checks what can be seen in the address itself.
    fn check(&self, url: &Url) -> Result<(), Failure> {
        if !self.allow_private_addresses {
            check_literal(url).map_err(|error| refused_address(&error))?;
        }
        let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_lowercase();
        let is_within = |domain: &String| host == *domain || host.ends_with(&format!(".{domain}"));
        if !self.allowed_domains.is_empty() && !self.allowed_domains.iter().any(is_within) {
            return Err(Failure::refused(
                format!("this run may not reach {host}"),
                format!("use pages of {} only", self.allowed_domains.join(", ")),
            ));
        }
        // Credentials in a URL are not for pages that someone else chose.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Failure::refused("the address has a user name in it", "give the address without it"));
        }
        Ok(())
    }

    /// Its span names no address: what is asked for is the model's business.
    #[tracing::instrument(
        name = "GET",
        skip_all,
        fields(otel.kind = "client", http.request.method = "GET", http.response.status_code)
    )]
    async fn ask(&self, url: &Url) -> Result<Response, Failure> {
        let request = self.client.get(url.clone()).header(ACCEPT, ACCEPTED);
        let response = request.send().await.map_err(|error| unreachable_page(&error))?;
        tracing::Span::current().record("http.response.status_code", ua_core::signed(response.status().as_u16()));
        Ok(response)
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let problem = format!("the server took too long, more than {:?} in all", self.page_timeout);
            Err(Failure::refused(problem, "try again later or try another page"))
        })
    }
}

/// Where the response sends us; `None` when it is the page itself.
fn target(here: &Url, response: &Response) -> Result<Option<Url>, Failure> {
    let status = response.status();
    if !status.is_redirection() {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| here.join(location).ok()).ok_or_else(|| {
        Failure::refused(format!("the server answered {status} without saying where to go"), "try another page")
    })?;
    if !matches!(next.scheme(), "http" | "https") {
        let problem = format!("the server redirected to a {}:// address", next.scheme());
        return Err(Failure::refused(problem, "try another page"));
    }
    Ok(Some(next))
}

/// As much of a robots.txt as counts. A line that is cut in two is left out: half of it could forbid too much.
async fn beginning(response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        body.extend_from_slice(&chunk?);
        if body.len() > robots::MAX_BYTES {
            body.truncate(robots::MAX_BYTES);
            body.truncate(body.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
            break;
        }
    }
    Ok(body)
}

async fn read(source: Url, response: Response) -> Result<Document, Failure> {
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
    if let Some(binary) = binary(&body, charset) {
        return Err(Failure::refused(
            format!("the page is called text but is {binary}"),
            "look for an HTML version of it",
        ));
    }
    let declared = charset.or_else(|| (kind == Kind::Html).then(|| declared_in(&body)).flatten());
    let (text, ..) = declared.unwrap_or(UTF_8).decode(&body);
    Ok(Document { source, http_status: Some(status.as_u16()), kind, text: text.into_owned() })
}

/// What kind of binary file the bytes are, if they are one: servers call anything text/html.
fn binary(body: &[u8], charset: Option<&'static Encoding>) -> Option<&'static str> {
    const BEGINNINGS: [(&[u8], &str); 8] = [
        (b"%PDF-", "application/pdf"),
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b", "application/gzip"),
        (b"\x7fELF", "an ELF program"),
        (b"OggS", "application/ogg"),
    ];
    let known = BEGINNINGS.iter().find(|(beginning, _)| body.starts_with(beginning)).map(|(_, name)| *name);
    // Text has no zero bytes unless each of its characters takes two, which a mark or the server says.
    let wide =
        charset.is_some_and(|charset| charset == UTF_16LE || charset == UTF_16BE) || Encoding::for_bom(body).is_some();
    let zeros = !wide && body.iter().take(1024).any(|byte| *byte == 0);
    known.or(zeros.then_some("application/octet-stream"))
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
        "only public addresses are fetched; a person can allow others with --allow-private-addresses, for a run that is started anew",
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::http::header::CONTENT_TYPE;
    use axum::response::IntoResponse;

    use super::*;

    #[tokio::test]
    async fn a_page_that_drips_without_end_is_given_up() {
        // Bytes keep coming, so no timeout between two of them would help.
        let page = async || {
            let drip = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"x")));
            let drip = drip.then(|byte| async {
                tokio::task::yield_now().await;
                byte
            });
            ([(CONTENT_TYPE, "text/html")], Body::from_stream(drip)).into_response()
        };
        let router = Router::new().route("/drip", axum::routing::get(page));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/drip", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });

        let mut fetcher = Fetcher::new(true, ua_core::system::env()).unwrap();
        fetcher.page_timeout = Duration::from_millis(300);
        let failure = fetcher.fetch(url, &Sites::default()).await.unwrap_err();
        assert!(failure.text().contains("took too long, more than 300ms"), "{}", failure.text());
    }

    #[tokio::test]
    async fn a_redirect_from_a_public_page_to_a_private_address_is_refused_before_it_is_asked() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        use axum::http::Uri;

        // The secret is on the same server as the page, which has a public name as far as the fetcher knows.
        let secrets = Arc::new(AtomicUsize::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/robots.txt", axum::routing::get(async || "User-agent: *\nAllow: /\n"))
            .route(
                "/to",
                axum::routing::get(async |uri: Uri| axum::response::Redirect::to(uri.query().unwrap_or_default())),
            )
            .fallback({
                let secrets = Arc::clone(&secrets);
                async move || {
                    secrets.fetch_add(1, Ordering::SeqCst);
                    "secret"
                }
            });
        tokio::spawn(async move { axum::serve(listener, router).await });

        let mut fetcher = Fetcher::new(false, ua_core::system::env()).unwrap();
        fetcher.client = ua_http::client(ua_http::Versions::OneAndTwo)
            .no_proxy()
            .dns_resolver(Arc::new(PublicResolver))
            .resolve("public.example", address)
            .build()
            .unwrap();
        let port = address.port();
        let public = format!("http://public.example:{port}");
        let page = |path: &str| Url::parse(&format!("{public}{path}")).unwrap();
        let allowed = fetcher.fetch(page("/to?/page"), &Sites::default()).await.unwrap();
        assert_eq!((allowed.0.text.as_str(), secrets.swap(0, Ordering::SeqCst)), ("secret", 1));
        for private in [
            format!("http://127.0.0.1:{port}/secret"),
            format!("http://[::1]:{port}/secret"),
            format!("http://[::ffff:127.0.0.1]:{port}/secret"),
            format!("http://2130706433:{port}/secret"),
            format!("http://localhost:{port}/secret"),
            "http://169.254.169.254/latest/meta-data".to_owned(),
            // Two hops: the first one stays on the public name.
            format!("{public}/to?http://127.0.0.1:{port}/secret"),
        ] {
            let failure = fetcher.fetch(page(&format!("/to?{private}")), &Sites::default()).await.unwrap_err();
            assert!(failure.text().contains("the address is refused"), "{private}: {}", failure.text());
        }
        assert_eq!(secrets.load(Ordering::SeqCst), 0, "no private address was asked");
    }
}
