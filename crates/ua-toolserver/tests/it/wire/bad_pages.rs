//! Pages that want too much of their reader: each is reported as unreadable, and the others go on.

use std::io::Write as _;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};

use super::TestServer;

/// The address of a site with a good page at `/good` and `page` at `/bad`.
async fn site(page: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static) -> String {
    let good = async || ([(CONTENT_TYPE, "text/html")], "<p>A good page.</p>");
    let router = Router::new().route("/good", get(good)).route("/bad", get(async move || page()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// What a crawl says about the bad page, after it was seen that the good one is there.
async fn crawl(page: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static) -> String {
    let site = site(page).await;
    let world = TestServer::with(|settings| settings.allow_private_addresses = true).await;
    let urls = json!([format!("{site}/bad"), format!("{site}/good")]);
    let crawled = world.call("crawl_parallel", json!({ "urls": urls })).await.back();
    assert_eq!((&crawled["ok"], &crawled["failed"]), (&json!(1), &json!(1)), "{crawled}");
    let pages = crawled["pages"].as_array().unwrap();
    assert_eq!((&pages[0]["status"], &pages[1]["text"]), (&json!("error"), &Value::from("A good page.")), "{crawled}");
    pages[0]["error"].as_str().unwrap().to_owned()
}

async fn crawl_html(html: String) -> String {
    crawl(move || ([(CONTENT_TYPE, "text/html")], html.clone()).into_response()).await
}

#[tokio::test]
async fn a_page_that_is_nested_too_deep_is_unreadable() {
    let article = "<p>Some text, with commas, so that it looks like an article.</p>".repeat(20);
    for html in [
        format!("<body>{}{article}", "<ul><li>".repeat(500)),
        format!("<body>{}{article}", "<div>".repeat(200_000)),
        format!("<body>{}{article}", "<b><i><div></b></i>".repeat(50_000)),
    ] {
        let error = crawl_html(html).await;
        assert!(error.contains("could not be read as HTML: it is nested deeper than 200 levels"), "{error}");
    }
}

#[tokio::test]
async fn a_page_of_a_million_attributes_is_unreadable_and_the_others_are_there() {
    let attributes: Vec<String> = (0..1_000_000).map(|n| format!("a{n}=1 ")).collect();
    let attributes = attributes.concat();
    let error = crawl_html(format!("<a {attributes}>x</a><p>A text.</p>")).await;
    assert!(error.contains("could not be read as HTML: its elements have too many attributes"), "{error}");
}

#[tokio::test]
async fn a_body_without_end_is_cut_off_at_the_limit() {
    let error = crawl(|| {
        let chunks = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 * 1024])));
        ([(CONTENT_TYPE, "text/html")], Body::from_stream(chunks)).into_response()
    })
    .await;
    assert!(error.contains("the page is larger than 10 MiB"), "{error}");
}

#[tokio::test]
async fn a_small_body_that_unpacks_to_a_large_one_is_cut_off_at_the_limit() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..20 {
        packer.write_all(&vec![b'x'; 1024 * 1024]).unwrap();
    }
    let bomb = packer.finish().unwrap();
    assert!(bomb.len() < 100 * 1024, "{}", bomb.len());
    let error =
        crawl(move || ([(CONTENT_TYPE, "text/html"), (CONTENT_ENCODING, "gzip")], bomb.clone()).into_response()).await;
    assert!(error.contains("the page is larger than 10 MiB"), "{error}");
}
