//! Reading, writing and listing, and the walls around them.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{TestServer, names, sha256};

#[tokio::test]
async fn what_is_written_is_there_and_is_described() {
    let world = TestServer::new().await;
    let written = world.call("write_local_file", json!({ "path": "a/b/c.md", "content": "hällo" })).await.back();
    assert_eq!(written, json!({ "path": "a/b/c.md", "bytes": 6, "sha256": sha256("hällo") }));
    assert_eq!(world.text("a/b/c.md"), "hällo");
    assert_eq!(names(&world.workspace().join("a/b")), ["c.md"], "no temporary file stays");

    world.call("write_local_file", json!({ "path": "a/b/c.md", "content": "new" })).await.back();
    assert_eq!(world.text("a/b/c.md"), "new");
}

#[tokio::test]
async fn an_empty_file_needs_to_be_meant() {
    let world = TestServer::new().await;
    world.put("a.md", "precious");
    world.call("write_local_file", json!({ "path": "a.md", "content": "" })).await.refused("is empty");
    assert_eq!(world.text("a.md"), "precious");
    world.call("write_local_file", json!({ "path": "a.md", "content": "", "allow_empty": true })).await.back();
    assert_eq!(world.text("a.md"), "");
}

#[tokio::test]
async fn a_file_left_by_a_dead_writer_is_in_nobodys_way() {
    let world = TestServer::new().await;
    let digest = sha256("a.md");
    world.put(&format!(".ua-tmp-{}", &digest[..16]), "half of someth");
    world.call("write_local_file", json!({ "path": "a.md", "content": "whole" })).await.back();
    assert_eq!(names(&world.workspace()), [".ua", "a.md"]);
}

#[tokio::test]
async fn long_files_come_in_pieces_that_fit_together() {
    let world = TestServer::new().await;
    let text = "zwölf Boxkämpfer jagen Viktor ".repeat(40);
    world.put("long.txt", &text);
    let (mut offset, mut whole, mut pieces) = (0, String::new(), 0);
    loop {
        let arguments = json!({ "path": "long.txt", "offset": offset, "limit": 33 });
        let piece = world.call("read_local_file", arguments).await.back();
        whole.push_str(piece["content"].as_str().unwrap());
        pieces += 1;
        match piece["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(whole, text);
    assert!(pieces > 30);
    let beyond = world.call("read_local_file", json!({ "path": "long.txt", "offset": 9_999_999 })).await.back();
    assert_eq!(beyond["content"], "");
}

#[tokio::test]
async fn reading_says_what_is_not_a_text_file() {
    let world = TestServer::new().await;
    world.put("x.bin", [b'a', 0xff, 0xfe]);
    world.put("d/x", "");
    world.call("read_local_file", json!({ "path": "x.bin" })).await.refused("not UTF-8 text at byte 1");
    world.call("read_local_file", json!({ "path": "d" })).await.refused("is not a file");
    world.call("read_local_file", json!({ "path": "gone" })).await.refused("list_directory");
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = TestServer::new().await;
    let outside = world.directory.path().join("outside.txt");
    std::fs::write(&outside, "secret").unwrap();
    symlink(world.directory.path(), world.workspace().join("door")).unwrap();
    symlink(&outside, world.workspace().join("window")).unwrap();
    symlink("../outside.txt", world.workspace().join("chimney")).unwrap();
    for path in [
        "../outside.txt",
        "a/../../outside.txt",
        outside.to_str().unwrap(),
        "door/outside.txt",
        "window",
        "chimney",
        "a\0b",
        "",
    ] {
        world.call("read_local_file", json!({ "path": path })).await.refused("");
        world.call("append_to_file", json!({ "path": path, "content": "x" })).await.refused("");
        world.call("write_local_file", json!({ "path": path, "content": "x" })).await.refused("");
    }
    world.call("list_directory", json!({ "path": "door" })).await.refused("");
    world.call("write_local_file", json!({ "path": "door/new.txt", "content": "x" })).await.refused("");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    assert_eq!(names(world.directory.path()), ["outside.txt", "w"]);
}

#[tokio::test]
async fn paths_inside_may_be_absolute_or_links() {
    let world = TestServer::new().await;
    world.put("real/a.txt", "one");
    symlink("real", world.workspace().join("link")).unwrap();
    let absolute = world.workspace().join("real/a.txt");
    let read = world.call("read_local_file", json!({ "path": absolute.to_str().unwrap() })).await.back();
    assert_eq!((&read["content"], &read["path"]), (&json!("one"), &json!("real/a.txt")));
    world.call("write_local_file", json!({ "path": "link/./a.txt", "content": "two" })).await.back();
    assert_eq!(world.text("real/a.txt"), "two");
}

#[tokio::test]
async fn the_servers_own_directory_is_private_by_every_name() {
    let world = TestServer::new().await;
    world.call("write_local_file", json!({ "path": "a", "content": "x" })).await.back();
    symlink(".ua", world.workspace().join("mine")).unwrap();
    for path in [".ua/lock", "./.ua/lock", ".UA/lock", "mine/lock", "mine/appends/x.json"] {
        world.call("write_local_file", json!({ "path": path, "content": "x" })).await.refused("private");
        world.call("read_local_file", json!({ "path": path })).await.refused("private");
    }
    world.call("list_directory", json!({ "path": ".ua" })).await.refused("private");
    assert!(!world.text(".ua/lock").contains('x'));
}

#[tokio::test]
async fn the_outbox_is_not_written_to_by_hand() {
    let world = TestServer::new().await;
    world.put("outbox/new/m", "hello");
    for path in ["outbox/new/forged", "objects/x", "notifications/x.json"] {
        world.call("write_local_file", json!({ "path": path, "content": "x" })).await.refused("only");
        world.call("append_to_file", json!({ "path": path, "content": "x" })).await.refused("only");
    }
    world.call("read_local_file", json!({ "path": "outbox/new/m" })).await.back();
}

#[tokio::test]
async fn listings_are_sorted_and_do_not_follow_links() {
    let world = TestServer::new().await;
    world.put("b.txt", "12345");
    world.put("a/inner.txt", "1");
    world.put(".ua/lock", "");
    symlink("a", world.workspace().join("c")).unwrap();
    let flat = world.call("list_directory", json!({})).await.back();
    assert_eq!(
        flat,
        json!({ "path": ".", "truncated": false, "entries": [
            { "path": "a", "kind": "directory" },
            { "path": "b.txt", "kind": "file", "bytes": 5 },
            { "path": "c", "kind": "symlink" },
        ] })
    );
    let deep = world.call("list_directory", json!({ "path": ".", "recursive": true })).await.back();
    let paths: Vec<_> =
        deep["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a", "a/inner.txt", "b.txt", "c"]);
    world.call("list_directory", json!({ "path": "b.txt" })).await.refused("could not list");
}
