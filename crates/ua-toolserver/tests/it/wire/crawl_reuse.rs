//! Pages that a run has stored are not fetched again by that run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject, RequestParamsMeta};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use ua_toolserver::RUN_ID;

use super::killed::{appeared, start_with};
use super::{TestServer, names, sha256};

/// A site that counts what it is asked; `/slow` is answered once the gate is open.
struct Site {
    base: String,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    gate: watch::Sender<bool>,
}

impl Site {
    async fn new() -> Self {
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let (gate, opened) = watch::channel(false);
        let log = Arc::clone(&asked);
        let router = Router::new().fallback(async move |uri: Uri| -> Response {
            *log.lock().unwrap().entry(uri.path().to_owned()).or_default() += 1;
            match uri.path() {
                "/robots.txt" => return StatusCode::NOT_FOUND.into_response(),
                "/moved" => return (StatusCode::FOUND, [(LOCATION, "/one")]).into_response(),
                "/slow" => drop(opened.clone().wait_for(|open| *open).await.unwrap()),
                _ => {}
            }
            let page = format!("# Page \"{}\"\n\n---\n\nIts text — ends in äöü.", uri.path());
            ([(CONTENT_TYPE, "text/markdown; charset=utf-8")], page).into_response()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, asked, gate }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

/// The pages of a crawl, each without its `reused` field, and these fields.
fn split(crawled: &Value) -> (Vec<Value>, Vec<bool>) {
    let pages = crawled["pages"].as_array().unwrap().clone().into_iter().map(|mut page| {
        let reused = page.as_object_mut().unwrap().remove("reused").unwrap();
        (page, reused.as_bool().unwrap())
    });
    pages.unzip()
}

#[tokio::test]
async fn a_run_fetches_a_page_once_and_others_fetch_their_own() {
    let site = Site::new().await;
    let world = TestServer::with(|settings| settings.allow_private_addresses = true).await;
    let arguments = json!({ "urls": [site.url("/one"), site.url("/moved")] });
    let crawl = async |run: Option<&str>, arguments: &Value| {
        let field = run.map_or_else(|| json!({}), |run| json!({ RUN_ID: run }));
        split(&world.send_with("crawl_parallel", arguments.clone(), field).await.back())
    };

    let (first, reused) = crawl(Some("run_a"), &arguments).await;
    assert_eq!((reused, site.asked("/one")), (vec![false, false], 2));
    let path = format!("search_results/{}", names(&world.workspace().join("search_results"))[0]);
    assert!(world.text(&path).contains("\nrun: \"run_a\"\n"), "{}", world.text(&path));

    let (again, reused) = crawl(Some("run_a"), &arguments).await;
    assert_eq!((reused, site.asked("/one"), site.asked("/moved")), (vec![true, true], 2, 1));
    assert_eq!(again, first, "a copy says all that the page said");
    assert_eq!(site.asked("/robots.txt"), 1, "nothing is asked of the site");

    let mut refresh = arguments.clone();
    refresh["refresh"] = json!(true);
    assert_eq!((crawl(Some("run_a"), &refresh).await.1, site.asked("/one")), (vec![false, false], 4));
    assert_eq!((crawl(Some("run_b"), &arguments).await.1, site.asked("/one")), (vec![false, false], 6));
    assert_eq!((crawl(None, &arguments).await.1, site.asked("/one")), (vec![false, false], 8));
    // A copy that belongs to no run is nobody's to reuse.
    assert_eq!((crawl(None, &arguments).await.1, site.asked("/one")), (vec![false, false], 10));
}

#[tokio::test]
async fn a_copy_that_was_changed_is_fetched_again() {
    let site = Site::new().await;
    let world = TestServer::with(|settings| settings.allow_private_addresses = true).await;
    let arguments = json!({ "urls": [site.url("/one")] });
    let crawl = async || {
        let field = json!({ RUN_ID: "run_a" });
        split(&world.send_with("crawl_parallel", arguments.clone(), field).await.back())
    };
    let (first, _) = crawl().await;
    let path = first[0]["path"].as_str().unwrap();
    let stored = world.text(path);
    for changed in [stored.replace("text", "words"), stored.replace(&site.base, "http://x"), "---\n".to_owned()] {
        world.put(path, changed);
        let (pages, reused) = crawl().await;
        assert_eq!((&pages, reused), (&first, vec![false]));
        assert_eq!(world.text(path), stored);
    }
    assert_eq!(site.asked("/one"), 4);
}

#[tokio::test]
async fn a_copy_that_a_run_forged_is_no_page() {
    let site = Site::new().await;
    let world = TestServer::with(|settings| settings.allow_private_addresses = true).await;
    let crawl = async |path: &str| {
        let (urls, field) = (json!({ "urls": [site.url(path)] }), json!({ RUN_ID: "run_a" }));
        split(&world.send_with("crawl_parallel", urls, field).await.back())
    };
    let (first, _) = crawl("/one").await;
    let path = first[0]["path"].as_str().unwrap().to_owned();
    let (stored, address) = (world.text(&path), site.url("/one"));
    let body = "see http://127.0.0.1:9/log?d=8841";
    let front = format!(
        "---\ntitle: \"Page\"\nsource: \"{address}\"\nstatus: 200\nwords: 2\nrun: \"run_a\"\nsha256: \"{}\"\n",
        sha256(body)
    );
    let seal = stored.lines().find(|line| line.starts_with("seal: ")).unwrap();
    // Without a seal, with that of another text, and with that of another page.
    let (two, _) = crawl("/two").await;
    let of_two = world.text(two[0]["path"].as_str().unwrap());
    for forged in [
        format!("{front}---\n\n{body}\n"),
        format!("{front}{seal}\n---\n\n{body}\n"),
        of_two.clone(),
        of_two.replace(&site.url("/two"), &address),
    ] {
        world.call("write_local_file", json!({ "path": path, "content": forged })).await.back();
        let (pages, reused) = crawl("/one").await;
        assert_eq!((&pages, reused), (&first, vec![false]), "{forged}");
    }
    assert_eq!(site.asked("/one"), 5);
}

#[tokio::test]
async fn a_crawl_that_was_killed_fetches_only_what_is_missing() {
    let site = Site::new().await;
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("w");
    let urls = [site.url("/slow"), site.url("/one"), site.url("/two"), site.url("/three")];
    let mut meta = MetaObject::new();
    meta.insert(RUN_ID.to_owned(), json!("run_a"));
    let mut request = CallToolRequestParams::new("crawl_parallel")
        .with_arguments(json!({ "urls": urls }).as_object().unwrap().clone());
    request.set_meta(RequestMetaObject(meta));

    let mut first = start_with(&workspace, &["--allow-private-addresses"]).await;
    let stored = async {
        for path in ["one", "two", "three"] {
            let slug = url::Url::parse(&site.base).unwrap().host_str().unwrap().replace('.', "-");
            let digest = sha256(site.url(&format!("/{path}")));
            appeared(workspace.join(format!("search_results/{slug}-{path}-{}.md", &digest[..12]))).await;
        }
    };
    tokio::select! {
        came = first.client.call_tool(request.clone()) => panic!("the slow page came: {came:?}"),
        () = stored => {}
    }
    first.child.kill().await.unwrap();

    site.gate.send(true).unwrap();
    let second = start_with(&workspace, &["--allow-private-addresses"]).await;
    let result = second.client.call_tool(request).await.unwrap();
    let (pages, reused) = split(&result.structured_content.unwrap());
    assert_eq!(reused, [false, true, true, true]);
    assert_eq!(pages[1]["title"], "Page \"/one\"");
    let asked = ["/slow", "/one", "/two", "/three"].map(|path| site.asked(path));
    assert_eq!(asked, [2, 1, 1, 1]);
}
