//! A real server process, killed in the middle of its work, and the same calls asked again of its successor.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject, RequestParamsMeta};
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use ua_toolserver::{ATTEMPT, IDEMPOTENCY_KEY};

use super::{names, sha256};

pub(super) struct Process {
    pub(super) child: Child,
    pub(super) client: RunningService<RoleClient, ()>,
}

async fn start(workspace: &Path) -> Process {
    start_with(workspace, &[]).await
}

/// As [`start`], with more flags.
pub(super) async fn start_with(workspace: &Path, flags: &[&str]) -> Process {
    start_under(workspace, flags, &[]).await
}

/// As [`start_with`], with credentials in the environment.
pub(super) async fn start_under(workspace: &Path, flags: &[&str], env: &[(&str, &str)]) -> Process {
    let program = std::env::current_exe().unwrap().with_file_name("../examples/stdio");
    let mut child = Command::new(&program)
        .arg("--workspace")
        .arg(workspace)
        .args(flags)
        // As whoever starts one server after the other for a run does.
        .env(ua_toolserver::COPY_KEY, "0123456789abcdef0123456789abcdef")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{error}: build it with cargo build -p ua-toolserver --examples"));
    let client = ().serve((child.stdout.take().unwrap(), child.stdin.take().unwrap())).await.unwrap();
    Process { child, client }
}

/// How many tools are offered only under settings of their own.
const NEED_SETTINGS: usize = 5;

fn request(tool: &'static str, arguments: &Value) -> CallToolRequestParams {
    keyed(tool, arguments, 1)
}

/// The `attempt`-th request of a call, under a key of its tool's.
pub(super) fn keyed(tool: &'static str, arguments: &Value, attempt: u64) -> CallToolRequestParams {
    let mut request = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
    let mut meta = MetaObject::new();
    meta.insert(IDEMPOTENCY_KEY.to_owned(), json!(format!("key-of-{tool}")));
    meta.insert(ATTEMPT.to_owned(), json!(attempt));
    request.set_meta(RequestMetaObject(meta));
    request
}

fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("append_to_file", json!({ "path": "log.txt", "content": "line\n".repeat(20_000) })),
        ("send_email", json!({ "to": ["a@example.org"], "subject": "s", "body": "b", "attachments": ["big.bin"] })),
        ("notify", json!({ "message": "done" })),
        ("upload", json!({ "path": "big.bin" })),
        ("write_local_file", json!({ "path": "out/a.txt", "content": "whole ".repeat(20_000) })),
    ]
}

/// The instant at which the server is killed: when this path has appeared.
pub(super) async fn appeared(path: PathBuf) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_effect_happens_once_wherever_the_server_is_killed() {
    let id = |tool: &str| sha256(format!("key-of-{tool}"))[..32].to_owned();
    let moments = [
        "w".to_owned(),
        format!("w/.ua/appends/{}.json", sha256("key-of-append_to_file")),
        "w/log.txt".to_owned(),
        "w/outbox/tmp".to_owned(),
        format!("w/outbox/tmp/{}", id("send_email")),
        format!("w/outbox/new/{}", id("send_email")),
        "w/objects/.ua-tmp-upload".to_owned(),
        format!("w/notifications/{}.json", id("notify")),
        "w/out".to_owned(),
    ];
    let mut cut_short = 0;
    for moment in moments {
        let directory = TempDir::new().unwrap();
        let workspace = directory.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("big.bin"), vec![7_u8; 3 << 20]).unwrap();

        let mut first = start(&workspace).await;
        let all = futures_util::future::join_all(
            calls().iter().map(|(tool, arguments)| first.client.call_tool(request(tool, arguments))),
        );
        tokio::select! {
            _ = all => {} // it was quicker than we could look; then only its answers were lost
            () = appeared(directory.path().join(&moment)) => cut_short += 1,
        }
        first.child.kill().await.unwrap();

        let second = start(&workspace).await;
        for (tool, arguments) in calls() {
            let result = second.client.call_tool(request(tool, &arguments)).await.unwrap();
            assert_eq!(result.is_error, Some(false), "{tool} after a kill at {moment}: {result:?}");
        }
        let text = |path: &str| std::fs::read_to_string(workspace.join(path)).unwrap();
        assert!(text("log.txt") == "line\n".repeat(20_000), "the append, after a kill at {moment}");
        assert!(text("out/a.txt") == "whole ".repeat(20_000), "the file, after a kill at {moment}");
        assert_eq!(names(&workspace.join("outbox/new")), [id("send_email")], "after a kill at {moment}");
        assert_eq!(names(&workspace.join("outbox/tmp")), [""; 0], "after a kill at {moment}");
        assert_eq!(names(&workspace.join("notifications")), [".lock".to_owned(), format!("{}.json", id("notify"))]);
        let object = format!("{}-big.bin", &sha256(vec![7_u8; 3 << 20])[..16]);
        assert_eq!(names(&workspace.join("objects")), [".lock".to_owned(), object], "after a kill at {moment}");
    }
    assert!(cut_short > 0, "no server was killed while it worked");
}

#[tokio::test]
async fn the_process_ends_by_itself_when_its_input_is_closed() {
    let directory = TempDir::new().unwrap();
    let mut process = start(directory.path()).await;
    assert_eq!(process.client.list_all_tools().await.unwrap().len(), ua_toolserver::tool_names().len() - NEED_SETTINGS);
    drop(process.client);
    assert!(process.child.wait().await.unwrap().success());
}
