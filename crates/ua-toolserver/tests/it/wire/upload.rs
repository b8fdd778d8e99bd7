//! Objects: created once, never replaced, never elsewhere.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::json;
use url::Url;

use super::{TestServer, names, sha256};

#[tokio::test]
async fn the_same_content_is_one_object() {
    let mut world = TestServer::new().await;
    world.put("out/report v1.pdf", "content");
    let name = format!("{}-report v1.pdf", &sha256("content")[..16]);
    let path = world.workspace().join("objects").join(&name);
    for already in [false, true] {
        let uploaded = world.keyed("upload", "k", json!({ "path": "out/report v1.pdf" })).await.back();
        assert_eq!(
            uploaded,
            json!({
                "url": Url::from_file_path(&path).unwrap().as_str(), "sha256": sha256("content"), "bytes": 7, "already_present": already,
            })
        );
        world = world.restarted().await;
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
    world.put("out/report v1.pdf", "changed");
    assert_eq!(world.call("upload", json!({ "path": "out/report v1.pdf" })).await.back()["already_present"], false);
    assert_eq!(names(&world.workspace().join("objects")).len(), 3, "two objects and the lock");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
}

#[tokio::test]
async fn an_object_with_other_content_is_not_replaced() {
    let world = TestServer::new().await;
    world.put("a.txt", "mine");
    let object = format!("objects/{}-a.txt", &sha256("mine")[..16]);
    world.put(&object, "theirs");
    world.call("upload", json!({ "path": "a.txt" })).await.refused("other content");
    assert_eq!(world.text(&object), "theirs");
    assert_eq!(names(&world.workspace().join("objects")).len(), 2, "no temporary file stays");
}

#[tokio::test]
async fn destinations_are_inside_the_store() {
    let directory = tempfile::TempDir::new().unwrap();
    let store = directory.path().canonicalize().unwrap().join("store");
    let url = |path: &str| Url::from_file_path(store.join(path)).unwrap().to_string();
    let world = TestServer::with(|settings| settings.objects = Some(url(""))).await;
    world.put("a.txt", "x");
    let uploaded = world.call("upload", json!({ "path": "a.txt", "destination": url("2026/january") })).await.back();
    assert!(uploaded["url"].as_str().unwrap().starts_with(&url("2026/january/")), "{uploaded}");

    let send = |destination: String| world.call("upload", json!({ "path": "a.txt", "destination": destination }));
    send(Url::from_file_path(directory.path()).unwrap().into()).await.refused("not inside the object store");
    send(format!("{}/../elsewhere", url("x"))).await.back();
    send(format!("{}/../../elsewhere", url("x"))).await.refused("not inside the object store");
    send(format!("{}/..%2F..%2Felsewhere", url("x"))).await.refused("not inside the object store");
    send("s3://bucket/x".into()).await.refused("names no directory");
    send("https://example.org/x".into()).await.refused("names no directory");
    send("elsewhere".into()).await.refused("not a URL");
    std::os::unix::fs::symlink(directory.path(), store.join("door")).unwrap();
    send(url("door")).await.refused("object store");
    assert_eq!(names(directory.path()), ["store"]);
    world.call("upload", json!({ "path": "gone" })).await.refused("could not open");
    world.call("upload", json!({ "path": "." })).await.refused("");
}

/// What a store keeps under a name is fetched by others, who may take it for another one.
#[tokio::test]
async fn a_name_that_is_another_one_elsewhere_names_no_object() {
    let world = TestServer::new().await;
    for (name, why) in [("a\\b.txt", "separates folders"), ("r\u{202e}txt.exe", "direction"), ("a\nb", "line break")] {
        world.put(name, "x");
        world.call("upload", json!({ "path": name })).await.refused(why);
    }
    let kept = std::fs::read_dir(world.workspace().join("objects")).map_or(0, Iterator::count);
    assert!(kept <= 1, "the lock at most");
}
