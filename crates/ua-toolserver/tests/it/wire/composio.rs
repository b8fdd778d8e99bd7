//! Files for actions of Composio: a ticket, then the file, once for each key.

use serde_json::json;
use tempfile::TempDir;
use ua_testkit::{ComposioFiles, ComposioFilesConfig, HttpFault};
use ua_toolserver::Settings;

use super::{Came, TestServer, sha256};

struct Router {
    world: TestServer,
    files: ComposioFiles,
    _kept: TempDir,
}

impl Router {
    async fn new(faults: &[(u64, HttpFault)], knows_files: bool) -> Self {
        let kept = TempDir::new().unwrap();
        let config = ComposioFilesConfig {
            directory: kept.path().join("files"),
            api_key: "key".to_owned(),
            knows_files,
            faults: faults.iter().copied().collect(),
        };
        let files = ComposioFiles::start(config).await.unwrap();
        let world = TestServer::with(|settings: &mut Settings| {
            settings.composio = Some(files.base_url.clone());
            settings.secrets.composio_api_key = Some("key".into());
        })
        .await;
        world.put("out/report.pdf", "content");
        Self { world, files, _kept: kept }
    }

    async fn upload(&self, key: &str) -> Came {
        self.world.keyed("upload_to_composio", key, json!({"path": "out/report.pdf"})).await
    }
}

#[tokio::test]
async fn a_file_gets_the_s3key_that_an_action_wants() {
    let router = Router::new(&[], true).await;
    let uploaded = router.upload("k").await.back();
    let expected = json!({
        "s3key": "1/gmail/GMAIL_SEND_EMAIL/report.pdf", "name": "report.pdf", "mimetype": "application/pdf",
        "sha256": sha256("content"), "bytes": 7, "id": "file-1", "already_present": false,
    });
    assert_eq!(uploaded, expected);
    let again = router.upload("k").await.back();
    assert_eq!((&again["s3key"], &again["already_present"]), (&uploaded["s3key"], &json!(true)));
    // Composio itself knows the file, whoever asks.
    assert_eq!(router.upload("another").await.back()["already_present"], true);
    let other = json!({"path": "out/report.pdf", "tool_slug": "slack_upload", "toolkit_slug": "Slack"});
    router.world.put("out/report.pdf", "other content");
    let other = router.world.keyed("upload_to_composio", "third", other).await.back();
    assert_eq!(other["s3key"], "2/slack/SLACK_UPLOAD/report.pdf");
    assert_eq!((router.files.files().unwrap().len(), router.files.counts()), (2, (2, 2)));
}

#[tokio::test]
async fn a_lost_answer_is_asked_again_with_the_same_ticket() {
    for (fault, there) in [(HttpFault::CutAfter, 1), (HttpFault::AnswerWrongly(502), 1), (HttpFault::CutBefore, 0)] {
        let router = Router::new(&[(1, fault)], false).await;
        router.upload("k").await.unclear("the file");
        assert_eq!(router.files.files().unwrap().len(), there, "{fault:?}");
        assert_eq!(router.upload("k").await.back()["s3key"], "1/gmail/GMAIL_SEND_EMAIL/report.pdf");
        assert_eq!((router.files.files().unwrap().len(), router.files.counts()), (1, (1, 2)), "{fault:?}");
    }
}

#[tokio::test]
async fn a_ticket_that_ran_out_is_exchanged() {
    let router = Router::new(&[(1, HttpFault::CutBefore), (2, HttpFault::Refuse(403))], false).await;
    router.upload("k").await.unclear("the file");
    assert_eq!(router.upload("k").await.back()["s3key"], "2/gmail/GMAIL_SEND_EMAIL/report.pdf");
    assert_eq!(router.files.files().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_says_that_nothing_was_uploaded() {
    let router = Router::new(&[(1, HttpFault::Refuse(403))], false).await;
    router.upload("k").await.refused("nothing was uploaded");
    let strange = json!({"path": "out/report.pdf", "tool_slug": ""});
    router.world.call("upload_to_composio", strange).await.refused("tool_slug");
    let stranger = TestServer::with(|settings: &mut Settings| {
        settings.composio = Some(router.files.base_url.clone());
        settings.secrets.composio_api_key = Some("other".into());
    })
    .await;
    stranger.put("a.txt", "a");
    stranger.call("upload_to_composio", json!({"path": "a.txt"})).await.refused("COMPOSIO_API_KEY");
    assert_eq!(router.files.files().unwrap().len(), 0);
}
