//! Notifications: a file once per key, or one request.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use ua_testkit::{HttpFault, Webhook, WebhookConfig};

use super::{TestServer, names, sha256};

#[tokio::test]
async fn a_key_makes_one_file() {
    let mut world = TestServer::new().await;
    let arguments = json!({ "message": "done", "title": "Job 7", "level": "warning" });
    let id = sha256("k")[..32].to_owned();
    for already in [false, true] {
        let sent = world.keyed("notify", "k", arguments.clone()).await.back();
        let path = world.workspace().join("notifications").join(format!("{id}.json"));
        assert_eq!(sent, json!({ "id": id, "path": path, "already_sent": already }));
        world = world.restarted().await;
    }
    let stored: Value = serde_json::from_str(&world.text(&format!("notifications/{id}.json"))).unwrap();
    assert_eq!(
        stored,
        json!({ "id": id, "level": "warning", "title": "Job 7", "message": "done", "created_at": "2026-01-02T03:04:05.000Z" })
    );
    world.call("notify", json!({ "message": "done" })).await.back();
    assert_eq!(names(&world.workspace().join("notifications")).len(), 3, "two notifications and the lock");
}

#[tokio::test]
async fn bad_input_is_refused() {
    let world = TestServer::new().await;
    world.call("notify", json!({ "message": " " })).await.refused("empty");
    world.call("notify", json!({ "message": "x", "level": "loud" })).await.refused("unknown variant `loud`");
    assert_eq!(names(&world.workspace()), [""; 0]);
}

type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// A receiver that answers with `status`.
async fn webhook(status: StatusCode) -> (String, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let router = Router::new().route(
        "/hook",
        post(async move |headers: HeaderMap, body: String| {
            let key = headers["Idempotency-Key"].to_str().unwrap().to_owned();
            log.lock().unwrap().push((key, serde_json::from_str(&body).unwrap()));
            status
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

#[tokio::test]
async fn a_webhook_gets_the_key_and_the_message() {
    let (url, seen) = webhook(StatusCode::ACCEPTED).await;
    let world = TestServer::with(|settings| settings.notify_webhook = Some(url)).await;
    let sent = world.keyed("notify", "k-1", json!({ "message": "done" })).await.back();
    assert_eq!((&sent["status"], &sent["already_sent"]), (&json!(202), &json!(false)));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].0.as_str(), &seen[0].1["message"], &seen[0].1["id"]), ("k-1", &json!("done"), &sent["id"]));
    assert_eq!(names(&world.workspace()), [""; 0]);
}

#[tokio::test]
async fn only_a_status_that_means_not_done_is_a_refusal() {
    // Two of these leave the call of a tool server unknown: there they may be about the session, or the line (docs/guide/tools.md).
    for status in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS] {
        let (url, seen) = webhook(status).await;
        let world = TestServer::with(|settings| settings.notify_webhook = Some(url)).await;
        world.keyed("notify", "k", json!({ "message": "done" })).await.refused(status.as_str());
        assert_eq!(seen.lock().unwrap().len(), 1, "no retries");
    }

    let (url, seen) = webhook(StatusCode::BAD_GATEWAY).await;
    let world = TestServer::with(|settings| settings.notify_webhook = Some(url)).await;
    world.keyed("notify", "k", json!({ "message": "done" })).await.unclear("502");
    assert_eq!(seen.lock().unwrap().len(), 1, "no retries");
}

#[tokio::test]
async fn a_closed_door_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?token=secret", listener.local_addr().unwrap());
    drop(listener);
    let world = TestServer::with(|settings| settings.notify_webhook = Some(url)).await;
    let text = world.call("notify", json!({ "message": "done" })).await.refused("nothing was sent");
    assert!(!text.contains("secret"));
}

#[tokio::test]
async fn a_connection_cut_after_the_request_leaves_it_unclear() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0_u8; 4096];
        tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap()
    });
    let world = TestServer::with(|settings| settings.notify_webhook = Some(url)).await;
    world.call("notify", json!({ "message": "done" })).await.unclear("may have reached");
    assert!(server.await.unwrap() > 0);
}

#[tokio::test]
async fn a_webhook_that_honours_keys_acts_once_and_that_is_declared() {
    let kept = tempfile::TempDir::new().unwrap();
    for honours_keys in [true, false] {
        let config = WebhookConfig {
            log: kept.path().join(format!("{honours_keys}.log")),
            honours_keys,
            faults: [(1, HttpFault::CutAfter)].into(),
        };
        let hook = Webhook::start(config).await.unwrap();
        let world = TestServer::with(|settings| {
            settings.notify_webhook = Some(hook.url.clone());
            settings.notify_webhook_honours_keys = honours_keys;
        })
        .await;
        let tool = world.tools().await.into_iter().find(|tool| tool.name == "notify").unwrap();
        let declared = tool.meta.and_then(|meta| meta.get(ua_toolserver::HONOURS_KEYS).cloned());
        assert_eq!(declared, Some(json!(honours_keys)));
        world.keyed("notify", "k", json!({ "message": "done" })).await.unclear("may have reached");
        world.keyed("notify", "k", json!({ "message": "done" })).await.back();
        let expected = if honours_keys { 1 } else { 2 };
        assert_eq!((hook.effects().unwrap().len(), hook.posts()), (expected, 2));
    }
}
