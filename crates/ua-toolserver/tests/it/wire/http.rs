//! Over HTTP: who is let in, and to what.

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::json;
use tempfile::TempDir;
use ua_core::Env;
use ua_http::Versions;
use ua_toolserver::{HttpServer, Settings};

async fn bind(directory: &TempDir, address: &str, change: impl FnOnce(&mut Settings)) -> Result<HttpServer, String> {
    let mut settings = Settings::in_workspace(directory.path());
    change(&mut settings);
    let server = HttpServer::bind(&settings, address.parse().unwrap(), Env::simulated(7)).await;
    server.map_err(|error| error.to_string())
}

fn hello(client: &Client, url: &str) -> RequestBuilder {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let request = client.post(url).header(CONTENT_TYPE, "application/json");
    request.header(ACCEPT, "application/json, text/event-stream").body(message.to_string())
}

#[tokio::test]
async fn only_the_token_opens_and_only_one_path_is_there() {
    let directory = TempDir::new().unwrap();
    let server = bind(&directory, "127.0.0.1:0", |settings| settings.http_token = Some("sesame".into())).await.unwrap();
    let url = server.url();
    let serving = tokio::spawn(server.serve());
    let client = ua_http::client(Versions::OneAndTwo).no_proxy().build().unwrap();
    let status = async |request: RequestBuilder| request.send().await.unwrap().status();
    let bearer = |token: &str| format!("Bearer {token}");

    assert_eq!(status(hello(&client, &url)).await, StatusCode::UNAUTHORIZED);
    let wrong = hello(&client, &url).header(AUTHORIZATION, bearer("sesam"));
    assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED);
    let elsewhere = hello(&client, &url.replace("/mcp", "/")).header(AUTHORIZATION, bearer("sesame"));
    assert_eq!(status(elsewhere).await, StatusCode::NOT_FOUND);
    let page = hello(&client, &url).header(AUTHORIZATION, bearer("sesame")).header(ORIGIN, "https://example.org");
    assert_eq!(status(page).await, StatusCode::FORBIDDEN);

    let welcome = hello(&client, &url).header(AUTHORIZATION, bearer("sesame")).send().await.unwrap();
    assert_eq!(welcome.status(), StatusCode::OK);
    assert!(welcome.headers().contains_key("mcp-session-id"));
    serving.abort();
}

#[tokio::test]
async fn other_machines_are_let_in_only_on_request_and_with_a_token() {
    let directory = TempDir::new().unwrap();
    let refusal = |bound: Result<HttpServer, String>| bound.err().unwrap();
    let why = refusal(bind(&directory, "0.0.0.0:0", |_| {}).await);
    assert!(why.contains("add --http-allow-remote"), "{why}");
    let why = refusal(bind(&directory, "0.0.0.0:0", |settings| settings.http_allow_remote = true).await);
    assert!(why.contains("other machines could use the tools without a token; set UA_TOOLSERVER_TOKEN"), "{why}");
    let with_token = |settings: &mut Settings| settings.http_token = Some("sesame".into());
    let first = bind(&directory, "127.0.0.1:0", with_token).await.unwrap();
    let taken = first.url().replace("http://", "").replace("/mcp", "");
    assert_eq!(refusal(bind(&directory, &taken, with_token).await), format!("cannot listen on {taken}"));
}

#[tokio::test]
async fn no_other_user_of_this_machine_is_let_in_without_a_token() {
    let directory = TempDir::new().unwrap();
    for token in [None, Some("")] {
        let bound = bind(&directory, "127.0.0.1:0", |settings| settings.http_token = token.map(Into::into)).await;
        let why = bound.err().unwrap();
        assert!(why.contains("every user of this machine could use the tools without a token; set UA_"), "{why}");
    }
}
