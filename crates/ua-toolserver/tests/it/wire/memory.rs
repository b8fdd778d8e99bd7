//! Memory: each change once per key, wherever the server is killed, and found again later by its words.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::BTreeSet;
use std::path::Path;

use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject, RequestParamsMeta};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use ua_toolserver::IDEMPOTENCY_KEY;

use super::TestServer;
use super::killed::start_with;

async fn blocks(world: &TestServer) -> Vec<(String, String)> {
    let back = world.call("get_core_memory_blocks", json!({})).await.back();
    let blocks = back["blocks"].as_array().unwrap().iter();
    blocks.map(|b| (b["label"].as_str().unwrap().to_owned(), b["value"].as_str().unwrap().to_owned())).collect()
}

async fn found(world: &TestServer, query: &str) -> Vec<String> {
    let back = world.call("archival_memory_search", json!({ "query": query, "limit": 50 })).await.back();
    back["items"].as_array().unwrap().iter().map(|item| item["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_block_is_made_added_to_replaced_and_removed() {
    let world = TestServer::new().await;
    assert_eq!(blocks(&world).await, []);
    let add = |text: &str| json!({ "label": "human", "text_to_append": text });
    world.call("core_memory_append", add("Ann")).await.back();
    let twice = world.call("core_memory_append", add("likes tables")).await.back();
    assert_eq!((&twice["value"], &twice["already_applied"]), (&json!("Ann\nlikes tables"), &json!(false)));
    world.call("core_memory_replace", json!({ "label": "project", "new_value": "Q3" })).await.back();
    let both = [("human".to_owned(), "Ann\nlikes tables".to_owned()), ("project".to_owned(), "Q3".to_owned())];
    assert_eq!(blocks(&world).await, both);
    let one = world.call("get_core_memory_blocks", json!({ "labels": ["project", "none"] })).await.back();
    assert_eq!(one["blocks"].as_array().unwrap().len(), 1);
    world.call("core_memory_replace", json!({ "label": "human", "new_value": "" })).await.back();
    assert_eq!(blocks(&world).await, both[1..]);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_changes_nothing() {
    let world = TestServer::new().await;
    let long = "x".repeat(8_001);
    for (tool, arguments, why) in [
        ("core_memory_append", json!({ "label": "a b", "text_to_append": "x" }), "not the label"),
        ("core_memory_append", json!({ "label": "a", "text_to_append": "" }), "empty"),
        ("core_memory_replace", json!({ "label": "a", "new_value": long }), "8000 are allowed"),
        ("archival_memory_insert", json!({ "content": "  " }), "empty"),
        ("archival_memory_search", json!({ "query": "*-\"" }), "no words"),
    ] {
        world.keyed(tool, "k", arguments).await.refused(why);
    }
    // A refused change claims no key.
    world.keyed("core_memory_replace", "k", json!({ "label": "a", "new_value": "short" })).await.back();
    for number in 1..64 {
        world.call("core_memory_replace", json!({ "label": format!("b{number}"), "new_value": "x" })).await.back();
    }
    world.call("core_memory_append", json!({ "label": "more", "text_to_append": "x" })).await.refused("64 blocks");
    world.call("core_memory_append", json!({ "label": "a", "text_to_append": "fits" })).await.back();
}

#[tokio::test]
async fn a_key_changes_once_and_a_repeat_hears_the_first_answer() {
    let mut world = TestServer::new().await;
    let add = json!({ "label": "log", "text_to_append": "one" });
    let first = world.keyed("core_memory_append", "k1", add.clone()).await.back();
    world.keyed("core_memory_replace", "k2", json!({ "label": "log", "new_value": "two" })).await.back();
    world = world.restarted().await;
    let again = world.keyed("core_memory_append", "k1", add).await.back();
    assert_eq!((&again["value"], &again["already_applied"]), (&first["value"], &json!(true)));
    assert_eq!(blocks(&world).await, [("log".to_owned(), "two".to_owned())], "a late repeat undoes nothing");

    let kept = world.keyed("archival_memory_insert", "k3", json!({ "content": "a fact" })).await.back();
    let again = world.keyed("archival_memory_insert", "k3", json!({ "content": "a fact" })).await.back();
    assert_eq!((&again["item_id"], &again["already_applied"]), (&kept["item_id"], &json!(true)));
    assert_eq!(found(&world, "fact").await, ["a fact"]);

    for (tool, arguments) in [
        ("archival_memory_insert", json!({ "content": "another fact" })),
        ("core_memory_append", json!({ "label": "log", "text_to_append": "a fact" })),
    ] {
        world.keyed(tool, "k3", arguments).await.refused("another change");
    }
    world.call("archival_memory_insert", json!({ "content": "a fact" })).await.back();
    assert_eq!(found(&world, "fact").await.len(), 2, "without a key each call keeps one");
}

#[tokio::test]
async fn items_are_found_by_beginnings_of_words_in_any_script() {
    let world = TestServer::new().await;
    for (content, tags) in [
        ("The quarterly report goes to finance", "email, monthly"),
        ("Résumé of Zoë", ""),
        ("Отчёт готов", "готово"),
        ("OR is a word; so is NEAR", ""),
    ] {
        world.call("archival_memory_insert", json!({ "content": content, "tags": tags })).await.back();
    }
    assert_eq!(found(&world, "quarter").await, ["The quarterly report goes to finance"]);
    assert_eq!(found(&world, "MONTHLY").await.len(), 1, "by a tag");
    assert_eq!(found(&world, "resume zoe").await, ["Résumé of Zoë"]);
    assert_eq!(found(&world, "отчёт").await.len(), 1);
    assert_eq!(found(&world, "NEAR(\"word\" OR").await, ["OR is a word; so is NEAR"]);
    assert_eq!(found(&world, "absent").await, [""; 0]);
    let one = world.call("archival_memory_search", json!({ "query": "report OR Zoë", "limit": 1 })).await.back();
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn two_servers_share_one_memory() {
    let shared = TempDir::new().unwrap();
    let file = shared.path().join("kept/agent_core.db");
    let one = TestServer::with(|settings| settings.memory = Some(file.clone())).await;
    let other = TestServer::with(|settings| settings.memory = Some(file.clone())).await;
    let adds = (0..20).map(|number| {
        let world = if number % 2 == 0 { &one } else { &other };
        world.call("core_memory_append", json!({ "label": "all", "text_to_append": number.to_string() }))
    });
    for came in futures_util::future::join_all(adds).await {
        came.back();
    }
    let value = blocks(&one).await.remove(0).1;
    let lines: BTreeSet<u32> = value.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!((lines.len(), value.lines().count()), (20, 20));
}

#[tokio::test]
async fn a_file_of_something_else_is_left_as_it_is() {
    let world = TestServer::new().await;
    let path = world.workspace().join(".ua/agent_core.db");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = std::fs::read(&path).unwrap();
    world.call("get_core_memory_blocks", json!({})).await.refused("something else");
    assert!(std::fs::read(&path).unwrap() == before);

    std::fs::write(&path, "no database at all, and long enough to be looked at as one".repeat(20)).unwrap();
    world.call("core_memory_append", json!({ "label": "a", "text_to_append": "x" })).await.refused("damaged");
}

#[tokio::test]
async fn other_tools_cannot_write_into_the_memory() {
    let world = TestServer::with(|settings| settings.memory = Some(settings.workspace.join("mine.db"))).await;
    world.call("core_memory_append", json!({ "label": "a", "text_to_append": "x" })).await.back();
    world.call("write_local_file", json!({ "path": "mine.db", "content": "x" })).await.refused("mine.db");
    world.call("write_local_file", json!({ "path": ".ua/agent_core.db", "content": "x" })).await.refused(".ua");
}

fn keyed(tool: &'static str, key: &str, arguments: &Value) -> CallToolRequestParams {
    let mut request = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
    let mut meta = MetaObject::new();
    meta.insert(IDEMPOTENCY_KEY.to_owned(), json!(key));
    request.set_meta(RequestMetaObject(meta));
    request
}

/// How many changes are stored, as another process sees it.
fn applied(file: &Path) -> u32 {
    let Ok(connection) = Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return 0;
    };
    connection.query_row("SELECT count(*) FROM applied_keys", [], |row| row.get(0)).unwrap_or(0)
}

/// A server is killed after 0, 1, … changes are stored while it works through a list; its successor is asked for the same list.
#[tokio::test]
async fn each_change_is_made_once_wherever_the_server_is_killed() {
    let changes: Vec<(&str, String, Value)> = (0..12)
        .map(|number| {
            let (tool, arguments) = match number % 3 {
                0 => ("core_memory_append", json!({ "label": "log", "text_to_append": format!("line {number}") })),
                1 => ("archival_memory_insert", json!({ "content": format!("fact {number}") })),
                _ => ("core_memory_replace", json!({ "label": "last", "new_value": format!("value {number}") })),
            };
            (tool, format!("key-{number}"), arguments)
        })
        .collect();
    let mut cut_short = 0;
    for after in 0..u32::try_from(changes.len()).unwrap() {
        let directory = TempDir::new().unwrap();
        let (workspace, file) = (directory.path().join("w"), directory.path().join("memory.db"));
        let flags = ["--memory", file.to_str().unwrap()];
        let mut first = start_with(&workspace, &flags).await;
        let work = async {
            for (tool, key, arguments) in &changes {
                first.client.call_tool(keyed(tool, key, arguments)).await.unwrap();
            }
        };
        tokio::select! {
            () = work => {}
            () = async { while applied(&file) < after { tokio::task::yield_now().await } } => cut_short += 1,
        }
        first.child.kill().await.unwrap();

        let second = start_with(&workspace, &flags).await;
        for (tool, key, arguments) in &changes {
            let result = second.client.call_tool(keyed(tool, key, arguments)).await.unwrap();
            assert_eq!(result.is_error, Some(false), "{tool} after a kill at {after}: {result:?}");
        }
        let connection = Connection::open(&file).unwrap();
        let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(text("SELECT value FROM core_blocks WHERE label = 'log'"), "line 0\nline 3\nline 6\nline 9");
        assert_eq!(text("SELECT value FROM core_blocks WHERE label = 'last'"), "value 11");
        assert_eq!(
            text("SELECT group_concat(content, ', ') FROM (SELECT content FROM archival_items ORDER BY item_seq)"),
            "fact 1, fact 4, fact 7, fact 10"
        );
    }
    assert!(cut_short > 0, "no server was killed while it worked");
}
