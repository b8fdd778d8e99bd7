//! Appending: once per key, whatever an earlier attempt left behind.

use serde_json::json;

use super::{TestServer, names, sha256};

const KEY: &str = "key-1";

/// What a server that was killed during an append leaves: the journal entry and a file in some state.
fn torn(world: &TestServer, before: &str, content: &str, after_the_kill: &str) {
    world.put("log.txt", after_the_kill);
    let entry = json!({ "path": "log.txt", "size_before": before.len(), "sha256": sha256(content) });
    world.put(&format!(".ua/appends/{}.json", sha256(KEY)), entry.to_string());
}

#[tokio::test]
async fn without_a_key_each_call_adds() {
    let world = TestServer::new().await;
    for size in [2, 4] {
        let appended = world.call("append_to_file", json!({ "path": "d/log.txt", "content": "x\n" })).await.back();
        assert_eq!((&appended["bytes"], &appended["already_applied"]), (&json!(size), &json!(false)));
    }
    assert_eq!(world.text("d/log.txt"), "x\nx\n");
    world.call("append_to_file", json!({ "path": "d", "content": "x" })).await.refused("not a file");
    world.call("append_to_file", json!({ "path": "d/log.txt", "content": "" })).await.refused("empty");
}

#[tokio::test]
async fn a_key_adds_once_even_across_a_restart() {
    let mut world = TestServer::new().await;
    world.put("log.txt", "a\n");
    let first = world.keyed("append_to_file", KEY, json!({ "path": "log.txt", "content": "b\n" })).await.back();
    assert_eq!(first, json!({ "path": "log.txt", "offset": 2, "added": 2, "bytes": 4, "already_applied": false }));
    // Somebody else adds in between; the place of the first append is still known.
    world.call("append_to_file", json!({ "path": "log.txt", "content": "c\n" })).await.back();
    for _ in 0..2 {
        world = world.restarted().await;
        let again = world.keyed("append_to_file", KEY, json!({ "path": "log.txt", "content": "b\n" })).await.back();
        assert_eq!((&again["offset"], &again["already_applied"]), (&json!(2), &json!(true)));
    }
    assert_eq!(world.text("log.txt"), "a\nb\nc\n");
    world.keyed("append_to_file", "key-2", json!({ "path": "log.txt", "content": "b\n" })).await.back();
    assert_eq!(world.text("log.txt"), "a\nb\nc\nb\n");
}

#[tokio::test]
async fn a_torn_append_is_completed() {
    for after_the_kill in ["old\n", "old\nne", "old\n\0\0\0\0", "old\nnew"] {
        let world = TestServer::new().await;
        torn(&world, "old\n", "new\n", after_the_kill);
        let done = world.keyed("append_to_file", KEY, json!({ "path": "log.txt", "content": "new\n" })).await.back();
        assert_eq!(done["already_applied"], false);
        assert_eq!(world.text("log.txt"), "old\nnew\n", "after {after_the_kill:?}");
    }
}

#[tokio::test]
async fn a_finished_append_whose_answer_was_lost_is_found() {
    let world = TestServer::new().await;
    torn(&world, "old\n", "new\n", "old\nnew\n");
    let done = world.keyed("append_to_file", KEY, json!({ "path": "log.txt", "content": "new\n" })).await.back();
    assert_eq!(done["already_applied"], true);
    assert_eq!(world.text("log.txt"), "old\nnew\n");
}

#[tokio::test]
async fn a_file_that_was_rewritten_meanwhile_is_left_alone() {
    for after_the_kill in ["ol", "old\nsomething else"] {
        let world = TestServer::new().await;
        torn(&world, "old\n", "new\n", after_the_kill);
        world.keyed("append_to_file", KEY, json!({ "path": "log.txt", "content": "new\n" })).await.unclear("log.txt");
        assert_eq!(world.text("log.txt"), after_the_kill);
    }
}

#[tokio::test]
async fn a_key_is_not_lent_to_another_append() {
    let world = TestServer::new().await;
    world.keyed("append_to_file", KEY, json!({ "path": "a.txt", "content": "x" })).await.back();
    world.keyed("append_to_file", KEY, json!({ "path": "a.txt", "content": "y" })).await.refused("something else");
    world.keyed("append_to_file", KEY, json!({ "path": "b.txt", "content": "x" })).await.refused("something else");
    assert_eq!(names(&world.workspace()), [".ua", "a.txt"]);
    assert_eq!(world.text("a.txt"), "x");
}

#[tokio::test]
async fn appends_at_the_same_time_all_arrive() {
    let world = TestServer::new().await;
    let calls =
        (0..12).map(|n| {
            let (world, key) = (&world, format!("key-{}", n / 2));
            async move {
                world.keyed("append_to_file", &key, json!({ "path": "l", "content": format!("{}\n", n / 2) })).await
            }
        });
    futures_util::future::join_all(calls).await;
    let text = world.text("l");
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5"], "each key once");
}
