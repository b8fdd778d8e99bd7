//! The workbench: the newest file under each name, in a folder or a bucket.

use serde_json::json;
use tempfile::TempDir;
use ua_testkit::{HttpFault, ObjectSink, ObjectSinkConfig};

use super::{TestServer, names, sha256};

async fn with_bucket(faults: &[(u64, HttpFault)]) -> (TestServer, ObjectSink, TempDir) {
    let kept = TempDir::new().unwrap();
    let config = ObjectSinkConfig {
        directory: kept.path().join("objects"),
        bucket: "reports".to_owned(),
        access_key_id: "AKIDEXAMPLE".to_owned(),
        faults: faults.iter().copied().collect(),
    };
    let sink = ObjectSink::start(config).await.unwrap();
    let world = TestServer::with(|settings| {
        settings.objects = Some("s3://reports/2026".to_owned());
        settings.s3_endpoint = Some(sink.endpoint.clone());
        settings.secrets.s3_access_key_id = Some("AKIDEXAMPLE".to_owned());
        settings.secrets.s3_secret_access_key = Some("wJalrXUtnFEMI".into());
    })
    .await;
    (world, sink, kept)
}

#[tokio::test]
async fn a_file_goes_there_and_comes_back_under_its_name() {
    let (bucket, _sink, _kept) = with_bucket(&[]).await;
    for world in [TestServer::new().await, bucket] {
        for content in ["first", "second, which replaces it"] {
            world.put("out/a b.txt", content);
            let up = json!({"local_path": "out/a b.txt", "remote_path": "shared/a b.txt"});
            for _ in 0..2 {
                let put = world.keyed("workbench_upload", "k", up.clone()).await.back();
                assert_eq!((&put["sha256"], &put["bytes"]), (&json!(sha256(content)), &json!(content.len())));
            }
            let down = json!({"remote_path": "shared/a b.txt", "local_path": "in/copy.txt"});
            let got = world.call("workbench_download", down).await.back();
            assert_eq!((&got["sha256"], &got["local_path"]), (&json!(sha256(content)), &json!("in/copy.txt")));
            assert_eq!(world.text("in/copy.txt"), content);
        }
    }
}

#[tokio::test]
async fn names_stay_on_the_workbench_and_files_in_the_workspace() {
    let (bucket, sink, _kept) = with_bucket(&[]).await;
    for world in [TestServer::new().await, bucket] {
        world.put("a.txt", "a");
        for outside in ["../a.txt", "/a.txt", "a/../../b", ""] {
            let arguments = json!({"local_path": "a.txt", "remote_path": outside});
            world.call("workbench_upload", arguments).await.refused("not a name on the workbench");
            let arguments = json!({"local_path": "b.txt", "remote_path": outside});
            world.call("workbench_download", arguments).await.refused("not a name on the workbench");
        }
        let missing = json!({"local_path": "b.txt", "remote_path": "missing.txt"});
        world.call("workbench_download", missing).await.refused("there is no object");
        world.call("workbench_upload", json!({"local_path": "no.txt", "remote_path": "x"})).await.refused("no.txt");
        let into_outbox = json!({"remote_path": "x", "local_path": "outbox/new/x"});
        world.call("workbench_download", into_outbox).await.refused("only send_email");
        assert_eq!(
            names(&world.workspace()),
            ["a.txt", "objects"].into_iter().filter(|name| world.workspace().join(name).exists()).collect::<Vec<_>>()
        );
    }
    assert_eq!(sink.puts(), 0);
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_looking_and_a_repeat_changes_nothing() {
    for fault in [HttpFault::CutAfter, HttpFault::AnswerWrongly(500)] {
        let (world, sink, _kept) = with_bucket(&[(1, fault)]).await;
        world.put("a.txt", "a");
        let up = json!({"local_path": "a.txt", "remote_path": "a.txt"});
        assert_eq!(world.keyed("workbench_upload", "k", up).await.back()["sha256"], sha256("a"), "{fault:?}");
        assert_eq!((sink.objects().unwrap().len(), sink.puts()), (1, 1), "no retries of its own");
    }
    for fault in [HttpFault::CutBefore, HttpFault::Refuse(503)] {
        let (world, sink, _kept) = with_bucket(&[(1, fault)]).await;
        world.put("a.txt", "a");
        let up = json!({"local_path": "a.txt", "remote_path": "a.txt"});
        world.keyed("workbench_upload", "k", up.clone()).await.unclear("not there yet");
        world.keyed("workbench_upload", "k", up).await.back();
        assert_eq!(sink.objects().unwrap().len(), 1);
    }
    let (world, sink, _kept) = with_bucket(&[(1, HttpFault::Refuse(403))]).await;
    world.put("a.txt", "a");
    world
        .call("workbench_upload", json!({"local_path": "a.txt", "remote_path": "a"}))
        .await
        .refused("nothing was uploaded");
    assert_eq!(sink.objects().unwrap().len(), 0);
}
