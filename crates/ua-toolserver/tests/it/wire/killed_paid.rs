//! A server that is killed while somebody is paid, or a file is on its way: what was charged is charged once, and the same
//! call under its key finds it.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use ua_testkit::{
    ComposioFiles, ComposioFilesConfig, DRAWN_PNG_BASE64, HttpFault, ImageModelApi, ImageModelApiConfig, ObjectSink,
    ObjectSinkConfig,
};

use super::killed::{appeared, keyed, start_under};
use super::{names, sha256};

const IMAGE_KEY: (&str, &str) = ("UA_IMAGE_API_KEY", "key");

struct Studio {
    directory: TempDir,
    api: ImageModelApi,
}

impl Studio {
    async fn new(fault: Option<HttpFault>) -> Self {
        let directory = TempDir::new().unwrap();
        let config = ImageModelApiConfig {
            log: directory.path().join("charged.log"),
            api_key: "key".to_owned(),
            honours_keys: false,
            faults: fault.into_iter().map(|fault| (1, fault)).collect(),
        };
        let api = ImageModelApi::start(config).await.unwrap();
        let workspace = directory.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("a.png"), STANDARD.decode(DRAWN_PNG_BASE64).unwrap()).unwrap();
        Self { directory, api }
    }

    async fn server(&self) -> super::killed::Process {
        let api = format!("openai+{}/v1", self.api.base_url);
        let flags = ["--image-api", &api, "--image-model", "see", "--image-generation-model", "gpt-image-1"];
        start_under(&self.directory.path().join("w"), &flags, &[IMAGE_KEY]).await
    }

    fn charged(&self) -> usize {
        self.api.charged().unwrap().len()
    }
}

fn calls() -> [(&'static str, Value); 2] {
    [
        ("describe_image", json!({"path": "a.png"})),
        ("generate_image", json!({"prompt": "a mill", "output": "out/mill.png"})),
    ]
}

#[tokio::test]
async fn an_answer_that_a_killed_server_waited_for_is_not_paid_for_again_silently() {
    for (tool, arguments) in calls() {
        for (fault, charged) in [(HttpFault::HoldBefore, 0), (HttpFault::HoldAfter, 1)] {
            let studio = Studio::new(Some(fault)).await;
            let mut first = studio.server().await;
            tokio::select! {
                came = first.client.call_tool(keyed(tool, &arguments, 1)) => panic!("{came:?}"),
                () = async { while studio.api.posts() == 0 { tokio::task::yield_now().await } } => {}
            }
            first.child.kill().await.unwrap();
            assert_eq!(studio.charged(), charged);

            let second = studio.server().await;
            let error = second.client.call_tool(keyed(tool, &arguments, 1)).await.unwrap_err().to_string();
            assert!(error.contains("an earlier request under this key"), "{tool}: {error}");
            assert_eq!((studio.api.posts(), studio.charged()), (1, charged), "{tool}");
            // By order of a person.
            let result = second.client.call_tool(keyed(tool, &arguments, 2)).await.unwrap();
            assert_eq!(result.is_error, Some(false), "{tool}: {result:?}");
            assert_eq!(studio.charged(), charged + 1, "{tool}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_came_is_paid_for_once_wherever_the_server_is_killed() {
    let record = |tool: &str, ending: &str| format!("w/.ua/images/{}.{ending}", sha256(format!("key-of-{tool}")));
    let mut cut_short = 0;
    for (tool, arguments) in calls() {
        let moments = [
            record(tool, "lock"),
            record(tool, "json"),
            "charged.log".to_owned(),
            record(tool, "image"),
            "w/out".to_owned(),
            "w/out/mill.png".to_owned(),
        ];
        for moment in moments
            .iter()
            .filter(|moment| tool == "generate_image" || !moment.contains("out") && !moment.ends_with("image"))
        {
            let studio = Studio::new(None).await;
            let mut first = studio.server().await;
            tokio::select! {
                _ = first.client.call_tool(keyed(tool, &arguments, 1)) => {}
                () = appeared(studio.directory.path().join(moment)) => cut_short += 1,
            }
            first.child.kill().await.unwrap();

            let second = studio.server().await;
            let again = second.client.call_tool(keyed(tool, &arguments, 1)).await;
            let result = match again {
                Ok(result) => result,
                // It may have been charged and nobody can tell, so it is not asked again by itself.
                Err(error) => {
                    assert!(
                        error.to_string().contains("an earlier request under this key"),
                        "{tool} {moment}: {error}"
                    );
                    assert!(studio.charged() <= 1);
                    continue;
                }
            };
            assert_eq!(result.is_error, Some(false), "{tool} after a kill at {moment}: {result:?}");
            assert_eq!(studio.charged(), 1, "{tool} after a kill at {moment}");
            if tool == "generate_image" {
                let drawn = std::fs::read(studio.directory.path().join("w/out/mill.png")).unwrap();
                assert_eq!(drawn, STANDARD.decode(DRAWN_PNG_BASE64).unwrap(), "after a kill at {moment}");
            }
        }
    }
    assert!(cut_short > 0, "no server was killed while it worked");
}

#[tokio::test]
async fn a_file_for_composio_is_one_file_wherever_the_server_is_killed() {
    for fault in [HttpFault::HoldBefore, HttpFault::HoldAfter] {
        let directory = TempDir::new().unwrap();
        let config = ComposioFilesConfig {
            directory: directory.path().join("files"),
            api_key: "key".to_owned(),
            knows_files: false,
            faults: BTreeMap::from([(1, fault)]),
        };
        let files = ComposioFiles::start(config).await.unwrap();
        let workspace = directory.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("a.pdf"), "content").unwrap();
        let (flags, env) = (["--composio", files.base_url.as_str()], [("COMPOSIO_API_KEY", "key")]);
        let arguments = json!({"path": "a.pdf"});

        let mut first = start_under(&workspace, &flags, &env).await;
        tokio::select! {
            came = first.client.call_tool(keyed("upload_to_composio", &arguments, 1)) => panic!("{came:?}"),
            () = async { while files.counts().1 == 0 { tokio::task::yield_now().await } } => {}
        }
        first.child.kill().await.unwrap();
        let second = start_under(&workspace, &flags, &env).await;
        let result = second.client.call_tool(keyed("upload_to_composio", &arguments, 2)).await.unwrap();
        assert_eq!(result.structured_content.unwrap()["s3key"], "1/gmail/GMAIL_SEND_EMAIL/a.pdf", "{fault:?}");
        assert_eq!((files.files().unwrap().len(), files.counts()), (1, (1, 2)), "{fault:?}: one ticket, one file");
    }
}

#[tokio::test]
async fn a_file_on_the_workbench_is_whole_wherever_the_server_is_killed() {
    for fault in [HttpFault::HoldBefore, HttpFault::HoldAfter] {
        let directory = TempDir::new().unwrap();
        let config = ObjectSinkConfig {
            directory: directory.path().join("objects"),
            bucket: "reports".to_owned(),
            access_key_id: "AKID".to_owned(),
            faults: BTreeMap::from([(1, fault)]),
        };
        let sink = ObjectSink::start(config).await.unwrap();
        let workspace = directory.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("a.txt"), "content").unwrap();
        let flags = ["--objects", "s3://reports", "--s3-endpoint", sink.endpoint.as_str()];
        let env = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let up = json!({"local_path": "a.txt", "remote_path": "b.txt"});

        let mut first = start_under(&workspace, &flags, &env).await;
        tokio::select! {
            came = first.client.call_tool(keyed("workbench_upload", &up, 1)) => panic!("{came:?}"),
            () = async { while sink.puts() == 0 { tokio::task::yield_now().await } } => {}
        }
        first.child.kill().await.unwrap();
        let second = start_under(&workspace, &flags, &env).await;
        let result = second.client.call_tool(keyed("workbench_upload", &up, 2)).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{result:?}");
        assert_eq!(sink.objects().unwrap(), ["reports/workbench/b.txt"], "{fault:?}");
        let down = json!({"remote_path": "b.txt", "local_path": "c.txt"});
        second.client.call_tool(keyed("workbench_download", &down, 1)).await.unwrap();
        assert_eq!(std::fs::read_to_string(workspace.join("c.txt")).unwrap(), "content");
        assert_eq!(names(&workspace), [".ua", "a.txt", "c.txt"]);
    }
}
