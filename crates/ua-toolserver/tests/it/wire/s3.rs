//! Objects in a store that speaks S3's protocol: once, never replaced, and honest about lost answers.

use std::collections::BTreeMap;

use serde_json::json;
use tempfile::TempDir;
use ua_testkit::{HttpFault, ObjectSink, ObjectSinkConfig};
use ua_toolserver::Settings;

use super::{TestServer, sha256};

struct Store {
    world: TestServer,
    sink: ObjectSink,
    _kept: TempDir,
}

impl Store {
    async fn new(faults: impl IntoIterator<Item = (u64, HttpFault)>) -> Self {
        Self::with(faults, |_| {}).await
    }

    async fn with(faults: impl IntoIterator<Item = (u64, HttpFault)>, change: impl FnOnce(&mut Settings)) -> Self {
        let kept = TempDir::new().unwrap();
        let config = ObjectSinkConfig {
            directory: kept.path().join("objects"),
            bucket: "reports".to_owned(),
            access_key_id: "AKIDEXAMPLE".to_owned(),
            faults: faults.into_iter().collect::<BTreeMap<_, _>>(),
        };
        let sink = ObjectSink::start(config).await.unwrap();
        let world = TestServer::with(|settings| {
            settings.objects = Some("s3://reports/2026".to_owned());
            settings.s3_endpoint = Some(sink.endpoint.clone());
            settings.secrets.s3_access_key_id = Some("AKIDEXAMPLE".to_owned());
            settings.secrets.s3_secret_access_key = Some("wJalrXUtnFEMI".into());
            change(settings);
        })
        .await;
        world.put("out/report v1.pdf", "content");
        Self { world, sink, _kept: kept }
    }

    async fn upload(&self) -> super::Came {
        self.world.keyed("upload", "k", json!({ "path": "out/report v1.pdf" })).await
    }

    fn object() -> String {
        format!("2026/{}-report%20v1.pdf", &sha256("content")[..16])
    }
}

#[tokio::test]
async fn the_same_content_is_one_object() {
    let store = Store::new([]).await;
    for already in [false, true] {
        let expected = json!({
            "url": format!("s3://reports/{}", Store::object()), "sha256": sha256("content"), "bytes": 7,
            "already_present": already,
        });
        assert_eq!(store.upload().await.back(), expected);
    }
    assert_eq!(store.sink.objects().unwrap(), [format!("reports/{}", Store::object())]);
    assert_eq!(store.sink.puts(), 2, "the store itself refuses the second one");
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_looking() {
    for fault in [HttpFault::CutAfter, HttpFault::AnswerWrongly(500)] {
        let store = Store::new([(1, fault)]).await;
        assert_eq!(store.upload().await.back()["sha256"], sha256("content"), "{fault:?}");
        assert_eq!(store.upload().await.back()["already_present"], true);
        assert_eq!((store.sink.objects().unwrap().len(), store.sink.puts()), (1, 2), "no retries of its own");
    }
    for fault in [HttpFault::CutBefore, HttpFault::Refuse(503)] {
        let store = Store::new([(1, fault)]).await;
        store.upload().await.unclear("not there yet");
        assert_eq!((store.sink.objects().unwrap().len(), store.sink.puts()), (0, 1));
        assert_eq!(store.upload().await.back()["already_present"], false);
    }
}

#[tokio::test]
async fn a_refusal_says_that_nothing_was_uploaded() {
    for status in [301, 400, 403, 404, 429] {
        let store = Store::new([(1, HttpFault::Refuse(status))]).await;
        store.upload().await.refused("nothing was uploaded");
        assert_eq!(store.sink.objects().unwrap(), [""; 0], "{status}");
    }
    let stranger = |settings: &mut Settings| settings.secrets.s3_access_key_id = Some("AKIDSTRANGER".to_owned());
    Store::with([], stranger).await.upload().await.refused("InvalidAccessKeyId");
    let elsewhere = |settings: &mut Settings| settings.objects = Some("s3://missing".to_owned());
    Store::with([], elsewhere).await.upload().await.refused("NoSuchBucket");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    Store::with([], |settings| settings.s3_endpoint = Some(endpoint))
        .await
        .upload()
        .await
        .refused("nothing was uploaded");
}

#[tokio::test]
async fn an_object_of_that_name_is_compared_and_never_replaced() {
    for (planted, is_ours) in [("content", true), ("another", false), ("longer than ours", false)] {
        let store = Store::new([]).await;
        store.sink.plant(&format!("reports/{}", Store::object()), planted.as_bytes()).unwrap();
        if is_ours {
            assert_eq!(store.upload().await.back()["already_present"], true, "no stored hash: compared by content");
        } else {
            store.upload().await.refused("other content");
        }
    }
}

#[tokio::test]
async fn destinations_are_inside_the_store() {
    let store = Store::new([]).await;
    let send = |destination: &str| {
        store.world.call("upload", json!({ "path": "out/report v1.pdf", "destination": destination }))
    };
    let uploaded = send("s3://reports/2026/january").await.back();
    assert!(uploaded["url"].as_str().unwrap().starts_with("s3://reports/2026/january/"), "{uploaded}");
    for outside in ["s3://reports", "s3://reports/2025", "s3://reports/2026/../2025", "s3://others/2026"] {
        send(outside).await.refused("not inside the object store");
    }
    for wrong in ["file:///tmp", "s3://reports/2026/%2E%2E%2F2025", "reports"] {
        send(wrong).await.refused("object store");
    }
    assert_eq!(store.sink.puts(), 1);
}
