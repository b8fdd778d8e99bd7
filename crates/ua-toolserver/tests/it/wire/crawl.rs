//! Crawling: a small web on this machine, and the addresses that are out of reach.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use url::Url;

use super::{TestServer, names, sha256};

const ARTICLE: &str = "<!doctype html><html><head><title>On Tides | Sea News</title><meta name=author content='Ada Ebb'>\
    <meta property='article:published_time' content='2026-01-02'></head><body><nav><a href=/>Home</a></nav><article><h1>On Tides</h1>\
    <p>The tide is the rise and fall of sea levels, caused by the combined effects of the gravity of the Moon and the Sun, \
    and by the rotation of the Earth. Tide tables can be used for any given place to find the times and the range.</p>\
    <p>While tides are usually the largest source of short-term sea-level changes, sea levels are also subject to change \
    from thermal expansion, <a href='/wind'>wind</a> and barometric pressure changes, resulting in storm surges.</p>\
    </article><script>track()</script></body></html>";

/// A small web server without a robots.txt; the counter says how many requests for pages it has seen.
async fn web() -> (String, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let router = Router::new().fallback(async move |uri: Uri| -> Response {
        if uri.path() == "/robots.txt" {
            return StatusCode::NOT_FOUND.into_response();
        }
        count.fetch_add(1, Ordering::SeqCst);
        let html = [(CONTENT_TYPE, "text/html; charset=utf-8")];
        match uri.path() {
            "/article" => (html, ARTICLE).into_response(),
            "/latin" => {
                ([(CONTENT_TYPE, "text/html")], &b"<meta charset=iso-8859-1><title>Caf\xe9</title><p>caf\xe9"[..])
                    .into_response()
            }
            "/notes.md" => ([(CONTENT_TYPE, "text/markdown")], "Intro\n\n# Notes\n\ntext").into_response(),
            "/data" => ([(CONTENT_TYPE, "application/json")], "{}").into_response(),
            "/big" => (html, "x".repeat(11 << 20)).into_response(),
            "/moved" => (StatusCode::FOUND, [(LOCATION, "/article")]).into_response(),
            "/loop" => (StatusCode::FOUND, [(LOCATION, "/loop")]).into_response(),
            "/ping" => (StatusCode::FOUND, [(LOCATION, "/pong")]).into_response(),
            "/pong" => (StatusCode::FOUND, [(LOCATION, "/ping")]).into_response(),
            "/far" => {
                let step: usize = uri.query().unwrap_or("0").parse().unwrap();
                (StatusCode::FOUND, [(LOCATION, format!("/far?{}", step + 1))]).into_response()
            }
            "/pdf" => (html, &b"%PDF-1.7 ..."[..]).into_response(),
            "/bytes" => (html, &b"abc\0\x01\x02"[..]).into_response(),
            "/to-file" => (StatusCode::FOUND, [(LOCATION, "file:///etc/passwd")]).into_response(),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (base, seen)
}

/// The address of a page that announces 2 GiB and sends none of them: whoever waits for the body waits for ever.
async fn endless() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/huge", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let head = if line.starts_with("GET /robots.txt ") {
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2147483648\r\n\r\n"
            };
            stream.write_all(head.as_bytes()).await.unwrap();
            open.push(stream);
        }
    });
    url
}

async fn open_world() -> TestServer {
    TestServer::with(|settings| settings.allow_private_addresses = true).await
}

fn file_url(path: impl AsRef<std::path::Path>) -> String {
    Url::from_file_path(path).unwrap().into()
}

#[tokio::test]
async fn pages_become_files_and_one_failure_is_only_its_own() {
    let (base, _) = web().await;
    let world = open_world().await;
    let url = |path: &str| format!("{base}{path}");
    let urls = json!([url("/article"), url("/gone"), url("/article"), url("/notes.md")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls, "max_chars_per_page": 20 })).await.back();
    assert_eq!((&crawled["ok"], &crawled["failed"]), (&json!(2), &json!(1)), "{crawled}");
    let pages = crawled["pages"].as_array().unwrap();

    let article = &pages[0];
    assert_eq!(article["status"], "ok");
    assert_eq!((&article["author"], &article["published"]), (&json!("Ada Ebb"), &json!("2026-01-02")));
    assert!(article["title"].as_str().unwrap().contains("On Tides"), "{article}");
    assert_eq!(article["text"].as_str().unwrap().chars().count(), 20);
    assert_eq!(article["truncated"], true);
    let path = article["path"].as_str().unwrap();
    assert!(path.starts_with("search_results/127-0-0-1-article-"), "{path}");
    assert!(path.ends_with(&format!("-{}.md", &sha256(url("/article"))[..12])), "{path}");
    let stored = world.text(path);
    assert!(stored.starts_with("---\ntitle: \""), "{stored}");
    for part in [
        &format!("source: \"{base}/article\"\n"),
        "status: 200\n",
        "The tide is the rise",
        &format!("[wind]({base}/wind)"),
    ] {
        assert!(stored.contains(part), "{part} in\n{stored}");
    }
    assert!(!stored.contains("track()"), "{stored}");

    assert_eq!((&pages[1]["status"], &pages[1]["url"]), (&json!("error"), &json!(url("/gone"))));
    assert!(pages[1]["error"].as_str().unwrap().contains("404"));
    assert_eq!((&pages[2]["title"], &pages[2]["words"]), (&json!("Notes"), &json!(4)));
    assert_eq!(names(&world.workspace().join("search_results")).len(), 2);

    let again = world.call("crawl_parallel", json!({ "urls": [url("/article")] })).await.back();
    assert_eq!(again["pages"][0]["path"], json!(path));
    assert_eq!(world.text(path), stored, "the same page, the same bytes");
}

#[tokio::test]
async fn redirects_and_encodings_are_followed() {
    let (base, _) = web().await;
    let world = open_world().await;
    let urls = json!([format!("{base}/moved"), format!("{base}/latin")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!(crawled["pages"][0]["source"], json!(format!("{base}/article")));
    assert_eq!((&crawled["pages"][1]["title"], &crawled["pages"][1]["text"]), (&json!("Café"), &json!("café")));
}

#[tokio::test]
async fn pages_that_can_not_be_read_say_why() {
    let (base, _) = web().await;
    let world = open_world().await;
    let cases = [
        (format!("{base}/data"), "\"application/json\", not HTML"),
        (format!("{base}/big"), "larger than 10 MiB"),
        (format!("{base}/pdf"), "called text but is application/pdf"),
        (format!("{base}/bytes"), "called text but is application/octet-stream"),
        (format!("{base}/loop"), "redirects in a loop that leads back to http"),
        (format!("{base}/ping"), "redirects in a loop that leads back to http"),
        (format!("{base}/far"), "redirected more than 5 times"),
        (format!("{base}/to-file"), "redirected to a file:// address"),
        (format!("{}/article", base.replace("http://", "http://user:pass@")), "user name"),
        ("ftp://example.org/".to_owned(), "ftp:// addresses cannot be fetched"),
        ("example.org".to_owned(), "not a URL"),
    ];
    for (url, problem) in cases {
        world.call("crawl_parallel", json!({ "urls": [url] })).await.refused(problem);
    }
    world.call("crawl_parallel", json!({ "urls": [] })).await.refused("0 URLs");
    let url = endless().await;
    world.call("crawl_parallel", json!({ "urls": [url] })).await.refused("larger than 10 MiB");
    assert_eq!(names(&world.workspace()), [""; 0]);
}

#[tokio::test]
async fn this_machine_is_out_of_reach_by_default() {
    let (base, seen) = web().await;
    let port = Url::parse(&base).unwrap().port().unwrap();
    let world = TestServer::new().await;
    let urls: Vec<Value> = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"]
        .iter()
        .map(|host| json!(format!("http://{host}:{port}/article")))
        .collect();
    for url in urls {
        world.call("crawl_parallel", json!({ "urls": [url] })).await.refused("reserved address");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 0, "no request arrived");

    // The counter does count: the same address is reached when it may be.
    let world = open_world().await;
    world.call("crawl_parallel", json!({ "urls": [format!("http://localhost:{port}/article")] })).await.back();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn files_are_read_below_allowed_roots_only() {
    let directory = tempfile::TempDir::new().unwrap();
    let library = directory.path().join("library");
    std::fs::create_dir_all(library.join("site")).unwrap();
    std::fs::write(library.join("site/index.html"), ARTICLE).unwrap();
    std::fs::write(library.join("data.bin"), "x").unwrap();
    std::fs::write(directory.path().join("secret.md"), "# Secret").unwrap();
    std::os::unix::fs::symlink(directory.path().join("secret.md"), library.join("link.md")).unwrap();
    let world = TestServer::with(|settings| settings.allow_roots = vec![library.clone()]).await;
    world.put("mine.md", "# Mine\n\nwords here");
    world.put(".ua/x.md", "# Private");

    let urls = json!([file_url(library.join("site/index.html")), file_url(world.workspace().join("mine.md"))]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!(crawled["ok"], 2, "{crawled}");
    assert_eq!(crawled["pages"][1]["title"], "Mine");

    let cases = [
        (file_url(directory.path().join("secret.md")), "outside the directories"),
        (format!("{}/..%2Fsecret.md", file_url(&library)), "could not read"),
        (file_url(library.join("link.md")), "could not read"),
        (file_url(world.workspace().join(".ua/x.md")), "private"),
        (file_url(library.join("site")), "there is index.html"),
        (file_url(&library), "no index or README"),
        (file_url(library.join("data.bin")), ".bin files"),
    ];
    for (url, problem) in cases {
        let text = world.call("crawl_parallel", json!({ "urls": [url] })).await.refused(problem);
        assert!(!text.contains("Secret"), "{text}");
    }
}

#[tokio::test]
async fn a_crawl_reads_neither_other_runs_nor_secrets_beside_the_job() {
    let directory = tempfile::TempDir::new().unwrap();
    let job = directory.path().join("job");
    let root = job.join("AGENT_RUN_WORKSPACES");
    let put = |path: &str| {
        let path = job.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, ARTICLE).unwrap();
    };
    let closed = [
        "AGENT_RUN_WORKSPACES/RESTART.md",
        "AGENT_RUN_WORKSPACES/.ua-root",
        "AGENT_RUN_WORKSPACES/other/transcript.md",
        "AGENT_RUN_WORKSPACES/outbox/new/mail",
        ".ssh/id_rsa",
        ".netrc",
        "site/.aws/credentials",
        ".config/ua/secrets.md",
        "private/notes.md",
    ];
    for path in closed {
        put(path);
    }
    for path in ["site/index.html", "AGENT_RUN_WORKSPACES/parent/a.md"] {
        put(path);
    }
    std::os::unix::fs::symlink("../AGENT_RUN_WORKSPACES", job.join("site/runs")).unwrap();
    std::os::unix::fs::symlink("../.ssh/id_rsa", job.join("site/key.md")).unwrap();
    let world = TestServer::with(|settings| {
        settings.workspace = root.join("run");
        settings.allow_roots = vec![job.clone(), root.join("parent")];
        settings.command_private = vec![root.clone(), job.join("private"), directory.path().join("none")];
    })
    .await;
    std::fs::write(root.join("run/mine.md"), ARTICLE).unwrap();
    let open = ["site/index.html", "AGENT_RUN_WORKSPACES/parent/a.md", "AGENT_RUN_WORKSPACES/run/mine.md"];
    let urls = open.map(|path| file_url(job.join(path)));
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!(crawled["ok"], 3, "{crawled}");
    for path in
        closed.iter().chain(&["site/runs/RESTART.md", "site/key.md", "site/../.ssh/id_rsa", "AGENT_RUN_WORKSPACES"])
    {
        let url = format!("{}/{path}", file_url(&job));
        world.call("crawl_parallel", json!({ "urls": [url] })).await.refused("is private");
    }
}
