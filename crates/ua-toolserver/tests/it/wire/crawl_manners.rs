//! How the crawler treats sites: robots.txt, Crawl-delay, and how many requests are under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONTENT_TYPE, LOCATION, USER_AGENT};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use ua_core::Env;

use super::TestServer;

/// A site and what it has been asked.
struct Site {
    /// `127.0.0.1:port`.
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// A site whose robots.txt is answered by `robots`; `/to?…` redirects there and all else is a page.
    async fn new(robots: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| -> Response {
            assert_eq!(
                headers[USER_AGENT].to_str().unwrap(),
                format!("ua/{} (+durable job runner)", env!("CARGO_PKG_VERSION"))
            );
            log.lock().unwrap().push(uri.path().to_owned());
            match uri.path() {
                "/robots.txt" => robots(),
                "/to" => (StatusCode::FOUND, [(LOCATION, uri.query().unwrap().to_owned())]).into_response(),
                _ => ([(CONTENT_TYPE, "text/plain")], "a page").into_response(),
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, asked }
    }

    async fn with_text(robots: &'static str) -> Self {
        Self::new(move || robots.into_response()).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }
}

async fn open_world() -> TestServer {
    TestServer::with(|settings| settings.allow_private_addresses = true).await
}

/// The error of each page, `None` for those that are there.
fn errors(crawled: &Value) -> Vec<Option<&str>> {
    crawled["pages"].as_array().unwrap().iter().map(|page| page["error"].as_str()).collect()
}

#[tokio::test]
async fn robots_txt_is_asked_for_once_per_call_and_obeyed() {
    let site = Site::with_text("User-agent: *\nDisallow: /\n\nUser-agent: ua\nDisallow: /private\n").await;
    let world = open_world().await;
    let urls = json!([site.url("/a"), site.url("/private/b"), site.url("/c"), site.url("/to?/private/d")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    let errors = errors(&crawled);
    assert_eq!((errors[0], errors[2]), (None, None), "{crawled}");
    for (at, path) in [(1, "/private/b"), (3, "/private/d")] {
        let expected = format!("the site's robots.txt does not allow programs to fetch {}", site.url(path));
        assert!(errors[at].unwrap().starts_with(&expected), "{crawled}");
    }
    assert_eq!(site.asked(), ["/a", "/c", "/robots.txt", "/to"]);
}

#[tokio::test]
async fn a_robots_txt_that_is_missing_forbids_nothing_and_one_that_is_broken_everything() {
    let world = open_world().await;
    for status in [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::GONE] {
        let site = Site::new(move || (status, "User-agent: *\nDisallow: /").into_response()).await;
        world.call("crawl_parallel", json!({ "urls": [site.url("/a")] })).await.back();
        assert_eq!(site.asked(), ["/a", "/robots.txt"], "{status}");
    }
    let around = Site::new(|| (StatusCode::FOUND, [(LOCATION, "/robots.txt")]).into_response()).await;
    world.call("crawl_parallel", json!({ "urls": [around.url("/a")] })).await.back();

    let moved = Site::with_text("User-agent: *\nDisallow: /a").await;
    let target = moved.url("/robots.txt");
    let site = Site::new(move || (StatusCode::FOUND, [(LOCATION, target.clone())]).into_response()).await;
    world.call("crawl_parallel", json!({ "urls": [site.url("/a")] })).await.refused("robots.txt does not allow");

    let broken = Site::new(|| StatusCode::SERVICE_UNAVAILABLE.into_response()).await;
    let problem = format!("{}, which says what programs may fetch, could not be read", broken.url("/robots.txt"));
    let urls = json!([broken.url("/a"), broken.url("/b")]);
    let text = world.call("crawl_parallel", json!({ "urls": urls })).await.refused(&problem);
    assert!(text.contains("the server answered 503"), "{text}");
    assert_eq!(broken.asked(), ["/robots.txt"], "no page was asked for");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{nobody}/a");
    world.call("crawl_parallel", json!({ "urls": [url] })).await.refused("/robots.txt, which says");
}

#[tokio::test]
async fn only_the_first_half_mebibyte_of_a_robots_txt_counts() {
    let filler = "# filler\n".repeat(58_254); // 524 286 bytes: the next line is cut in two
    let early = format!("User-agent: *\nDisallow: /early\n{filler}Disallow: /late\n");
    let site = Site::new(move || early.clone().into_response()).await;
    let world = open_world().await;
    let urls = json!([site.url("/early"), site.url("/late")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert!(matches!(errors(&crawled)[..], [Some(_), None]), "{crawled}");
}

#[tokio::test]
async fn a_crawl_delay_is_kept_between_requests() {
    let site = Site::with_text("User-agent: *\nCrawl-delay: 3\n").await;
    let quick = Site::with_text("").await;
    let env = Env::simulated(7);
    let world =
        TestServer::in_env(env.clone(), TempDir::new().unwrap(), |settings| settings.allow_private_addresses = true)
            .await;
    let began = env.now();
    let urls = json!([quick.url("/1"), quick.url("/2"), quick.url("/3")]);
    world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!(env.now().since(began), Duration::ZERO);

    let urls = json!([site.url("/1"), site.url("/2"), site.url("/3")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!((&crawled["ok"], env.now().since(began)), (&json!(3), Duration::from_secs(6)));
    world.call("crawl_parallel", json!({ "urls": [site.url("/4")] })).await.back();
    assert_eq!(env.now().since(began), Duration::from_secs(9), "the next call keeps its distance too");
}

/// How many pages are held open, now and at most, per `Host` name and in all (`""`).
#[derive(Default)]
struct Open {
    now: BTreeMap<String, usize>,
    most: BTreeMap<String, usize>,
}

impl Open {
    fn change(&mut self, host: &str, by: isize) {
        for name in [host, ""] {
            let now = self.now.entry(name.to_owned()).or_default();
            *now = now.checked_add_signed(by).unwrap();
            let most = self.most.entry(name.to_owned()).or_default();
            *most = (*most).max(*now);
        }
    }
}

#[tokio::test]
async fn at_most_two_requests_per_host_and_eight_in_all_are_under_way() {
    let open = Arc::new(Mutex::new(Open::default()));
    // Pages wait at the gate until as many have arrived as may.
    let (gate, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let router = {
        let (open, gate, arrived) = (Arc::clone(&open), Arc::clone(&gate), Arc::clone(&arrived));
        Router::new().fallback(async move |uri: Uri, headers: HeaderMap| -> Response {
            if uri.path() == "/robots.txt" {
                return StatusCode::NOT_FOUND.into_response();
            }
            let host = headers["host"].to_str().unwrap().to_owned();
            open.lock().unwrap().change(&host, 1);
            arrived.add_permits(1);
            gate.acquire().await.unwrap().forget();
            open.lock().unwrap().change(&host, -1);
            ([(CONTENT_TYPE, "text/plain")], "a page").into_response()
        })
    };
    // Each address of 127.0.0.0/8 is a host of its own, and all of them are this machine.
    let mut sites = Vec::new();
    for host in 1..=5 {
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.{host}:0")).await.unwrap();
        sites.push(format!("http://{}", listener.local_addr().unwrap()));
        let router = router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await });
    }
    let urls: Vec<String> = (0..25).map(|page| format!("{}/{page}", sites[page % 5])).collect();
    let world = open_world().await;
    let release = async {
        arrived.acquire_many(8).await.unwrap().forget();
        gate.add_permits(25);
    };
    let (crawled, ()) = tokio::join!(world.call("crawl_parallel", json!({ "urls": urls })), release);
    assert_eq!(crawled.back()["ok"], 25);
    let open = open.lock().unwrap();
    assert_eq!(open.most[""], 8);
    assert!(open.most.iter().all(|(host, most)| host.is_empty() || *most <= 2), "{:?}", open.most);

    assert_eq!(open.most.len(), 6, "five hosts and the sum");
}
