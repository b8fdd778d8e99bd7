//! The research pipeline: a search, the pages it found, one corpus of them, and what can be cited from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject, RequestParamsMeta};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use ua_toolserver::RUN_ID;

use super::killed::start_with;
use super::{TestServer, names};

/// A web with a search engine of both kinds and a few pages; it counts what it is asked. `/slow` waits for the gate.
struct Web {
    base: String,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    gate: watch::Sender<bool>,
}

fn page(title: &str, text: &str) -> String {
    let filler = "This sentence is here to make the page as long as a page is. ".repeat(8);
    format!("# {title}\n\n{text}\n\n{filler}\n")
}

fn text_of(path: &str) -> Option<String> {
    Some(match path {
        "/growth" | "/copy-of-growth" => page(
            "Growth",
            "Sales grew by 4.5 % to $1.2 billion. \"We expected far less than that,\" said Ann Lee of the board.",
        ),
        "/law" | "/slow" => page(&format!("Law {path}"), "The law was passed on 12 March 2025 by a large majority."),
        "/short" => "# Short\n\nTen words are not enough for a page.".to_owned(),
        _ => return None,
    })
}

impl Web {
    async fn new() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let (gate, opened) = watch::channel(false);
        let (log, address) = (Arc::clone(&asked), base.clone());
        let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| -> Response {
            *log.lock().unwrap().entry(uri.path().to_owned()).or_default() += 1;
            let query = uri.query().unwrap_or_default().to_owned();
            let hit = |path: &str, name: &str| {
                json!({ "title": format!("<strong>{path}</strong> page"), "url": format!("{address}{path}"),
                name: "a  <b>snippet</b>", "engine": "x" })
            };
            match uri.path() {
                "/search" if query.contains("q=patience") && !*opened.borrow() => {
                    opened.clone().wait_for(|open| *open).await.unwrap();
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                "/search" if query.contains("q=forbidden") => return StatusCode::FORBIDDEN.into_response(),
                "/search" if query.contains("q=broken") => return "<html>".into_response(),
                "/search" if query.contains("q=slow") => {
                    let results = ["/slow", "/growth", "/law"].map(|path| hit(path, "content"));
                    return axum::Json(json!({ "results": results })).into_response();
                }
                "/search" => {
                    assert!(query.contains("format=json"), "{query}");
                    let mut results: Vec<Value> = ["/growth", "/law", "/copy-of-growth", "/short", "/gone"]
                        .map(|path| hit(path, "content"))
                        .into();
                    results.push(json!({ "title": "no address" }));
                    return axum::Json(json!({ "results": results })).into_response();
                }
                "/res/v1/web/search" => {
                    if headers.get("X-Subscription-Token").is_none_or(|token| token != "token-1") {
                        return StatusCode::UNAUTHORIZED.into_response();
                    }
                    if query.contains("q=nothing") {
                        return axum::Json(json!({ "type": "search" })).into_response();
                    }
                    assert!(query.contains("count=2") && query.contains("offset=1"), "{query}");
                    let results = ["/growth", "/law", "/short"].map(|path| hit(path, "description"));
                    return axum::Json(json!({ "web": { "results": results } })).into_response();
                }
                "/slow" => drop(opened.clone().wait_for(|open| *open).await.unwrap()),
                _ => {}
            }
            match text_of(uri.path()) {
                Some(text) => ([(CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response(),
                None => StatusCode::NOT_FOUND.into_response(),
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, asked, gate }
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    async fn world(&self) -> TestServer {
        let search = format!("searxng+{}", self.base);
        TestServer::with(|settings| {
            settings.allow_private_addresses = true;
            settings.search = Some(search);
        })
        .await
    }
}

async fn call(world: &TestServer, tool: &'static str, arguments: Value) -> Value {
    world.send_with(tool, arguments, json!({ RUN_ID: "run_a" })).await.back()
}

#[tokio::test]
async fn a_search_becomes_a_corpus_and_the_corpus_a_ledger() {
    let web = Web::new().await;
    let world = web.world().await;
    let found = call(&world, "web_search", json!({ "query": "q3  growth", "count": 5 })).await;
    assert_eq!((&found["results"].as_array().unwrap().len(), &found["reused"]), (&5, &json!(false)));
    assert_eq!(
        found["results"][0],
        json!({ "title": "/growth page", "url": format!("{}/growth", web.base), "snippet": "a snippet" })
    );

    let corpus = call(&world, "finalize_research", json!({ "task_name": "q3", "topic": "Growth in Q3" })).await;
    let sources = corpus["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 2, "{corpus}");
    assert_eq!(
        (&sources[0]["id"], &sources[0]["title"], &sources[1]["title"]),
        (&json!("S1"), &json!("Growth"), &json!("Law /law"))
    );
    let mut reasons: Vec<String> = corpus["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["url"].as_str().unwrap().replace(&web.base, "") + ": " + left["reason"].as_str().unwrap())
        .collect();
    reasons.sort();
    assert!(reasons[0].starts_with("/gone: could not be fetched"), "{reasons:?}");
    assert_eq!(reasons[1], "/growth: the same as S1");
    assert!(reasons[2].starts_with("/short: ") && reasons[2].ends_with("fewer than 60"), "{reasons:?}");
    let text = world.text("tasks/q3/refined_corpus.md");
    assert!(text.starts_with("# Growth in Q3\n\n## Sources\n\n- [S1] Growth — <http://"), "{text}");
    assert!(text.contains("## [S2] Law /law") && text.contains("12 March 2025"));

    // Asked again, everything is as it was, and only what failed is asked for again.
    let again = call(&world, "finalize_research", json!({ "task_name": "q3", "topic": "Growth in Q3" })).await;
    assert_eq!(again, corpus);
    assert_eq!(world.text("tasks/q3/refined_corpus.md"), text);
    assert_eq!(["/growth", "/law", "/short", "/gone"].map(|path| web.asked(path)), [1, 1, 1, 2]);

    let built = call(&world, "build_evidence_ledger", json!({ "task_name": "q3" })).await;
    assert_eq!(["items", "quotes", "numbers", "dates"].map(|field| built[field].as_u64().unwrap()), [3, 1, 1, 1]);
    let handoff: Value = serde_json::from_str(&world.text("handoff.json")).unwrap();
    assert_eq!(handoff["evidence"][0]["id"], "EVID-001");
    assert_eq!(handoff["evidence"][0]["text"], "Sales grew by 4.5 % to $1.2 billion.");
    assert_eq!(handoff["evidence"][2]["url"], format!("{}/law", web.base));
    assert_eq!(handoff["corpus"]["sha256"], super::sha256(&text));
    assert_eq!((&handoff["topic"], &handoff["sources"][1]["id"]), (&json!("Growth in Q3"), &json!("S2")));
    assert!(world.text("tasks/q3/evidence_ledger.md").contains("- **EVID-002** (quote) \"We expected"));
    let before = world.text("handoff.json");
    call(&world, "build_evidence_ledger", json!({ "task_name": "q3" })).await;
    assert_eq!(world.text("handoff.json"), before, "the same corpus gives the same file");

    let read = call(&world, "read_research_files", json!({ "file_paths": [corpus["corpus"], "none.md"] })).await;
    assert_eq!(read["files"][0]["content"], text);
    assert_eq!(read["files"][1]["status"], "error");
}

#[tokio::test]
async fn an_address_that_no_search_found_is_shown_and_not_fetched() {
    let web = Web::new().await;
    let world = web.world().await;
    let found = call(&world, "web_search", json!({ "query": "growth" })).await;
    let kept = found["path"].as_str().unwrap();
    let leak = format!("{}/log?d=8841", web.base);
    let write = async |path: &str, content: String| {
        world.call("write_local_file", json!({ "path": path, "content": content })).await.back();
    };
    // A file of the run's own, one that looks like a search, and a search that was changed.
    write("search_results/x.json", json!({ "results": [{ "url": leak }] }).to_string()).await;
    let mut forged: Value = serde_json::from_str(&world.text(kept)).unwrap();
    forged["results"][4]["url"] = json!(format!("{leak}&b"));
    write("search_results/search-y.json", forged.to_string()).await;
    let corpus = call(&world, "finalize_research", json!({})).await;
    assert_eq!((web.asked("/log"), web.asked("/growth"), web.asked("/law")), (0, 1, 1), "{corpus}");
    let left_out: Vec<&Value> = corpus["left_out"].as_array().unwrap().iter().collect();
    for url in [leak.clone(), format!("{leak}&b")] {
        let left = left_out.iter().find(|left| left["url"] == json!(url)).unwrap();
        assert!(left["reason"].as_str().unwrap().contains("crawl_parallel"), "{left}");
    }
    // What the engine was asked for, it may only have repeated; and a forged search is asked for again.
    write(kept, forged.to_string()).await;
    let again = call(&world, "web_search", json!({ "query": "growth" })).await;
    assert_eq!((&again["reused"], &again["results"]), (&json!(false), &found["results"]));
    let host = web.base.strip_prefix("http://").unwrap();
    let fresh = web.world().await;
    call(&fresh, "web_search", json!({ "query": format!("what is {host}/law about") })).await;
    let corpus = call(&fresh, "finalize_research", json!({})).await;
    assert_eq!((web.asked("/law"), web.asked("/growth")), (1, 2), "{corpus}");
}

#[tokio::test]
async fn a_search_of_the_same_run_is_made_once() {
    let web = Web::new().await;
    let world = web.world().await;
    let first = call(&world, "web_search", json!({ "query": "growth" })).await;
    let again = call(&world, "web_search", json!({ "query": " growth " })).await;
    assert_eq!((&again["results"], &again["reused"], web.asked("/search")), (&first["results"], &json!(true), 1));
    call(&world, "web_search", json!({ "query": "growth", "refresh": true })).await;
    call(&world, "web_search", json!({ "query": "growth", "page": 2 })).await;
    world.send_with("web_search", json!({ "query": "growth" }), json!({ RUN_ID: "run_b" })).await.back();
    assert_eq!(web.asked("/search"), 4);
    assert_eq!(names(&world.workspace().join("search_results")).len(), 2);
    let refused = world.call("web_search", json!({ "query": "forbidden" })).await.refused("status 403");
    assert!(refused.contains("search.formats"), "{refused}");
    world.call("web_search", json!({ "query": "broken" })).await.refused("not a list of results");
    world.call("web_search", json!({ "query": " " })).await.refused("0 characters");
}

#[tokio::test]
async fn an_engine_like_braves_is_asked_with_its_key() {
    let web = Web::new().await;
    let search = format!("brave+{}", web.base);
    let world = TestServer::with(|settings| {
        settings.search = Some(search.clone());
        settings.secrets.search_api_key = Some("token-1".into());
    })
    .await;
    let found = world.call("web_search", json!({ "query": "growth", "count": 2, "page": 2 })).await.back();
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    let none = world.call("web_search", json!({ "query": "nothing" })).await.back();
    assert_eq!(none["results"], json!([]));
    let stranger = TestServer::with(|settings| {
        settings.search = Some(search);
        settings.secrets.search_api_key = Some("token-2".into());
    })
    .await;
    let refused = stranger.call("web_search", json!({ "query": "growth" })).await.refused("status 401");
    assert!(refused.contains("UA_SEARCH_API_KEY") && !refused.contains("token-2"), "{refused}");
}

#[test]
fn an_engine_that_cannot_work_is_refused_at_the_start() {
    for (address, why) in [
        ("https://a.example", "searxng+ or brave+"),
        ("brave+https://a.example", "UA_SEARCH_API_KEY"),
        ("searxng+ftp://a.example", "http or https"),
    ] {
        let directory = TempDir::new().unwrap();
        let mut settings = ua_toolserver::Settings::in_workspace(directory.path());
        settings.search = Some(address.to_owned());
        let error = ua_toolserver::ToolServer::open(&settings, ua_core::Env::simulated(7)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_there_or_has_no_name_is_refused() {
    let world = TestServer::new().await;
    world.call("finalize_research", json!({})).await.refused("no pages");
    world.call("finalize_research", json!({ "task_name": "../x" })).await.refused("not the name of a task");
    world.call("build_evidence_ledger", json!({})).await.refused("sources.json");
    world.call("read_research_files", json!({ "file_paths": [] })).await.refused("0 files");
}

#[tokio::test]
async fn long_files_come_in_pieces() {
    let world = TestServer::new().await;
    let long = "ä".repeat(60_000);
    world.put("a.md", &long);
    world.put("b.md", "b".repeat(40_000));
    world.put("c.md", "c");
    let read = world.call("read_research_files", json!({ "file_paths": ["a.md", "b.md", "c.md"] })).await.back();
    assert_eq!(read["files"][0]["content"].as_str().unwrap().chars().count(), 50_000);
    assert_eq!((&read["files"][0]["next_offset"], &read["files"][1]["next_offset"]), (&json!(100_000), &json!(25_000)));
    assert_eq!(read["remaining"], json!(["c.md"]));
    let rest = world.call("read_local_file", json!({ "path": "a.md", "offset": 100_000 })).await.back();
    assert_eq!(rest["content"].as_str().unwrap().chars().count(), 10_000);
}

#[tokio::test]
async fn a_finalization_that_was_killed_fetches_only_what_is_missing() {
    let web = Web::new().await;
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("w");
    let inbox = workspace.join("search_results");
    let search = format!("searxng+{}", web.base);
    let flags = ["--allow-private-addresses", "--search", search.as_str()];
    let mut meta = MetaObject::new();
    meta.insert(RUN_ID.to_owned(), json!("run_a"));
    let mut request = CallToolRequestParams::new("finalize_research").with_arguments(serde_json::Map::new());
    request.set_meta(RequestMetaObject(meta));

    let mut first = start_with(&workspace, &flags).await;
    let query = json!({ "query": "slow" }).as_object().cloned().unwrap();
    first.client.call_tool(CallToolRequestParams::new("web_search").with_arguments(query)).await.unwrap();
    let two_stored = async {
        while names(&inbox).iter().filter(|name| name.contains(".md") && !name.starts_with('.')).count() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        came = first.client.call_tool(request.clone()) => panic!("the slow page came: {came:?}"),
        () = two_stored => {}
    }
    first.child.kill().await.unwrap();
    assert!(!workspace.join("tasks").exists());

    web.gate.send(true).unwrap();
    let second = start_with(&workspace, &flags).await;
    let result = second.client.call_tool(request).await.unwrap().structured_content.unwrap();
    assert_eq!(result["sources"].as_array().unwrap().len(), 3, "{result}");
    assert_eq!(["/slow", "/growth", "/law"].map(|path| web.asked(path)), [2, 1, 1]);
}

#[tokio::test]
async fn a_search_that_was_killed_is_asked_again_and_a_finished_one_is_not() {
    let web = Web::new().await;
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("w");
    let search = format!("searxng+{}", web.base);
    let flags = ["--search", search.as_str()];
    let ask = |query: &str| {
        let arguments = json!({ "query": query }).as_object().cloned().unwrap();
        let mut request = CallToolRequestParams::new("web_search").with_arguments(arguments);
        let mut meta = MetaObject::new();
        meta.insert(RUN_ID.to_owned(), json!("run_a"));
        request.set_meta(RequestMetaObject(meta));
        request
    };
    let mut first = start_with(&workspace, &flags).await;
    let growth = first.client.call_tool(ask("growth")).await.unwrap().structured_content.unwrap();
    tokio::select! {
        came = first.client.call_tool(ask("patience")) => panic!("{came:?}"),
        () = async { while web.asked("/search") < 2 { tokio::task::yield_now().await } } => {}
    }
    first.child.kill().await.unwrap();
    web.gate.send(true).unwrap();

    let second = start_with(&workspace, &flags).await;
    let again = second.client.call_tool(ask("growth")).await.unwrap().structured_content.unwrap();
    assert_eq!((&again["results"], &again["reused"], web.asked("/search")), (&growth["results"], &json!(true), 2));
    let patience = second.client.call_tool(ask("patience")).await.unwrap().structured_content.unwrap();
    assert_eq!((&patience["reused"], web.asked("/search")), (&json!(false), 3));
}
