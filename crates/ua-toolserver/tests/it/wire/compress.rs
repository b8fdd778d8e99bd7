//! Archives: what is in them, that they are always the same, and what is refused.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::io::Read;

use serde_json::json;

use super::{TestServer, names, sha256};

/// The names and contents in an archive; directories have none.
fn contents(bytes: Vec<u8>) -> Vec<(String, String)> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut entry = archive.by_index(index).unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.name().unwrap().into_owned(), text)
        })
        .collect()
}

#[tokio::test]
async fn files_and_directories_are_packed_in_order_and_always_alike() {
    let world = TestServer::new().await;
    world.put("b/z.txt", "zzz");
    world.put("b/c/deep.md", "deep ".repeat(1000));
    world.put("a.txt", "first");
    std::fs::create_dir(world.workspace().join("b/empty")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.workspace().join("b/out")).unwrap();
    std::os::unix::fs::symlink("z.txt", world.workspace().join("b/in")).unwrap();
    let arguments = json!({ "paths": ["b", "a.txt", "b/z.txt"], "output": "b/all.zip" });
    let packed = world.call("compress_files", arguments.clone()).await.back();
    let bytes = std::fs::read(world.workspace().join("b/all.zip")).unwrap();
    assert_eq!(
        packed,
        json!({
            "path": "b/all.zip", "bytes": bytes.len(), "sha256": sha256(&bytes), "entries": 6, "input_bytes": 5008,
            "skipped": ["b/in", "b/out"],
        })
    );
    assert!(bytes.len() < 1500, "{} bytes", bytes.len());
    let expected = [
        ("a.txt", "first".to_owned()),
        ("b/", String::new()),
        ("b/c/", String::new()),
        ("b/c/deep.md", "deep ".repeat(1000)),
        ("b/empty/", String::new()),
        ("b/z.txt", "zzz".to_owned()),
    ];
    assert_eq!(contents(bytes.clone()), expected.map(|(name, text)| (name.to_owned(), text)));

    // Another order, another time of the files, the archive in the way: the same bytes.
    world.put("a.txt", "first");
    let again = json!({ "paths": ["a.txt", "./b"], "output": "b/all.zip" });
    assert_eq!(world.call("compress_files", again).await.back()["sha256"], packed["sha256"]);
    assert_eq!(std::fs::read(world.workspace().join("b/all.zip")).unwrap(), bytes);
    assert_eq!(names(&world.workspace().join("b")), ["all.zip", "c", "empty", "in", "out", "z.txt"]);
}

#[tokio::test]
async fn the_whole_workspace_is_packed_without_what_is_private() {
    let world = TestServer::new().await;
    world.put("a.txt", "a");
    world.call("append_to_file", json!({ "path": "log", "content": "x" })).await.back();
    assert!(world.workspace().join(".ua").exists());
    let packed = world.call("compress_files", json!({ "paths": ["."], "output": "all.zip" })).await.back();
    assert_eq!(packed["entries"], 2);
    let bytes = std::fs::read(world.workspace().join("all.zip")).unwrap();
    assert_eq!(contents(bytes), [("a.txt", "a"), ("log", "x")].map(|(name, text)| (name.to_owned(), text.to_owned())));
}

#[tokio::test]
async fn what_can_not_be_packed_is_named_and_leaves_nothing_behind() {
    let world = TestServer::new().await;
    world.put("a.zip", "not touched");
    std::fs::create_dir(world.workspace().join("empty")).unwrap();
    let pack = |paths: serde_json::Value, output: &str| {
        world.call("compress_files", json!({ "paths": paths, "output": output }))
    };
    pack(json!(["a.zip"]), "a.zip").await.refused("is the archive itself");
    pack(json!(["gone"]), "b.zip").await.refused("could not look at \"gone\"");
    pack(json!(["../x"]), "b.zip").await.refused("contains \"..\"");
    pack(json!([".ua"]), "b.zip").await.refused("private");
    pack(json!([]), "b.zip").await.refused("nothing to pack");
    pack(json!(["a.zip"]), "empty").await.refused("could not write \"empty\"");
    for (name, why) in
        [("..\\evil.bat", "separates folders"), ("C:evil.txt", "a drive"), ("r\u{202e}txt.exe", "direction")]
    {
        std::fs::create_dir(world.workspace().join("odd")).unwrap();
        world.put(&format!("odd/{name}"), "x");
        pack(json!(["odd"]), "b.zip").await.refused(why);
        pack(json!([format!("odd/{name}")]), "b.zip").await.refused(why);
        std::fs::remove_dir_all(world.workspace().join("odd")).unwrap();
    }
    assert_eq!(world.text("a.zip"), "not touched");
    for index in 0..10_001 {
        std::fs::write(world.workspace().join("empty").join(index.to_string()), "").unwrap();
    }
    pack(json!(["empty"]), "b.zip").await.refused("more than 10000");
    std::fs::File::create(world.workspace().join("large")).unwrap().set_len((1 << 30) + 1).unwrap();
    pack(json!(["large"]), "b.zip").await.refused("more than 1024 MiB");
    assert!(!world.workspace().join("b.zip").exists());
}
