//! Programs: only when enabled, without a shell, and never left running.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::json;
use ua_toolserver::Sandbox;

use super::{Came, TestServer};

async fn world() -> TestServer {
    TestServer::with(|settings| {
        settings.enable_command = true;
        // What confines a program has tests of its own: `sandbox.rs`.
        settings.command_sandbox = Sandbox::Off;
    })
    .await
}

#[tokio::test]
async fn it_is_not_there_unless_enabled() {
    let world = TestServer::new().await;
    assert!(world.tools().await.iter().all(|tool| tool.name != "run_command"));
    let came = world.call("run_command", json!({ "argv": ["true"] })).await;
    assert!(matches!(came, Came::Broken(-32602, _)), "{came:?}");
}

#[tokio::test]
async fn exit_codes_and_output_are_results() {
    let world = world().await;
    let ended =
        world.call("run_command", json!({ "argv": ["sh", "-c", "echo out; echo err >&2; exit 3"] })).await.back();
    assert_eq!(
        ended,
        json!({ "exit_code": 3, "stdout": "out\n", "stderr": "err\n", "timed_out": false, "truncated": false })
    );
    let ended = world.call("run_command", json!({ "argv": ["sh", "-c", "kill -9 $$"] })).await.back();
    assert_eq!((&ended["exit_code"], &ended["signal"]), (&json!(null), &json!(9)));
}

#[tokio::test]
async fn arguments_are_not_read_by_a_shell() {
    let world = world().await;
    let ended = world.call("run_command", json!({ "argv": ["printf", "%s", "$HOME; `id` *"] })).await.back();
    assert_eq!(ended["stdout"], "$HOME; `id` *");
}

#[tokio::test]
async fn the_environment_is_cleared_and_the_directory_is_the_workspace() {
    let world = world().await;
    world.put("sub/x", "");
    let ended = world.call("run_command", json!({ "argv": ["env"] })).await.back();
    let mut names: Vec<_> =
        ended["stdout"].as_str().unwrap().lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
    let ended = world.call("run_command", json!({ "argv": ["pwd"], "cwd": "sub" })).await.back();
    assert_eq!(ended["stdout"].as_str().unwrap().trim_end(), world.workspace().join("sub").to_str().unwrap());
    world.call("run_command", json!({ "argv": ["pwd"], "cwd": ".." })).await.refused("\"..\"");
    world.call("run_command", json!({ "argv": ["pwd"], "cwd": "sub/x" })).await.refused("cwd");
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed() {
    let world = world().await;
    let arguments = json!({ "argv": ["sh", "-c", "echo started; exec sleep 60"], "timeout_seconds": 1 });
    let ended = world.call("run_command", arguments).await.back();
    assert_eq!(
        (&ended["timed_out"], &ended["signal"], &ended["stdout"]),
        (&json!(true), &json!(9), &json!("started\n"))
    );
}

#[tokio::test]
async fn output_is_capped_and_does_not_hold_the_program_up() {
    let world = world().await;
    let ended =
        world.call("run_command", json!({ "argv": ["sh", "-c", "head -c 1000000 /dev/zero; exit 4"] })).await.back();
    assert_eq!((ended["stdout"].as_str().unwrap().len(), &ended["truncated"]), (256 * 1024, &json!(true)));
    assert_eq!(ended["exit_code"], 4);
}

#[tokio::test]
async fn the_program_stays_in_the_servers_process_group() {
    let world = world().await;
    let group_of = |stat: &str| stat.rsplit(") ").next().unwrap().split(' ').nth(2).unwrap().to_owned();
    let ended = world.call("run_command", json!({ "argv": ["cat", "/proc/self/stat"] })).await.back();
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    assert_eq!(group_of(ended["stdout"].as_str().unwrap()), group_of(&own));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let world = world().await;
    world.call("run_command", json!({ "argv": ["no-such-program"] })).await.refused("could not be started");
    world.call("run_command", json!({ "argv": [] })).await.refused("argv is empty");
}
