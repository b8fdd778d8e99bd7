//! Every tool of this server has a test that kills the server in the middle of its work, and asks the same of its successor.
//!
//! The table below is the whole list: a tool that is not in it fails the suite, and so does an entry whose test is gone.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use ua_testkit::DRAWN_PNG_BASE64;

use super::killed::{Process, appeared, keyed, start_with};
use super::{names, sha256};

/// Where the killing of a tool's server is tested: a test of this suite (`file::test`), and for tools that stand for a class of
/// the crash matrix, where their runner is killed too, the name of that class.
const TESTED: &[(&str, &str, &[&str])] = &[
    ("read_local_file", "killed_each::a_look_that_was_cut_short_is_answered_by_the_next_server", &["read-only"]),
    ("list_directory", "killed_each::a_look_that_was_cut_short_is_answered_by_the_next_server", &["read-only"]),
    ("read_research_files", "killed_each::a_look_that_was_cut_short_is_answered_by_the_next_server", &["read-only"]),
    ("get_core_memory_blocks", "killed_each::a_look_that_was_cut_short_is_answered_by_the_next_server", &["read-only"]),
    ("archival_memory_search", "killed_each::a_look_that_was_cut_short_is_answered_by_the_next_server", &["read-only"]),
    ("crawl_parallel", "crawl_reuse::a_crawl_that_was_killed_fetches_only_what_is_missing", &["read-only"]),
    ("web_search", "research::a_search_that_was_killed_is_asked_again_and_a_finished_one_is_not", &["read-only"]),
    ("finalize_research", "research::a_finalization_that_was_killed_fetches_only_what_is_missing", &["local replace"]),
    (
        "build_evidence_ledger",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "write_local_file",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "render_html",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "render_pdf",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "compress_files",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "preview_image",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    (
        "workbench_download",
        "killed_each::a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed",
        &["local replace"],
    ),
    ("append_to_file", "killed::each_effect_happens_once_wherever_the_server_is_killed", &["external, key in _meta"]),
    (
        "send_email",
        "killed::each_effect_happens_once_wherever_the_server_is_killed",
        &["external, key in _meta", "near-duplicate"],
    ),
    (
        "notify",
        "killed::each_effect_happens_once_wherever_the_server_is_killed",
        &["external, key in _meta", "external, twin"],
    ),
    (
        "upload",
        "killed::each_effect_happens_once_wherever_the_server_is_killed",
        &["external, key in _meta", "external, twin"],
    ),
    (
        "workbench_upload",
        "killed_paid::a_file_on_the_workbench_is_whole_wherever_the_server_is_killed",
        &["external, key in _meta"],
    ),
    (
        "upload_to_composio",
        "killed_paid::a_file_for_composio_is_one_file_wherever_the_server_is_killed",
        &["external, key in _meta"],
    ),
    (
        "describe_image",
        "killed_paid::an_answer_that_a_killed_server_waited_for_is_not_paid_for_again_silently",
        &["external opaque"],
    ),
    (
        "generate_image",
        "killed_paid::an_answer_that_came_is_paid_for_once_wherever_the_server_is_killed",
        &["external opaque"],
    ),
    ("core_memory_append", "memory::each_change_is_made_once_wherever_the_server_is_killed", &["memory"]),
    ("core_memory_replace", "memory::each_change_is_made_once_wherever_the_server_is_killed", &["memory"]),
    ("archival_memory_insert", "memory::each_change_is_made_once_wherever_the_server_is_killed", &["memory"]),
    ("run_command", "killed_each::a_program_does_not_outlive_its_killed_server_unseen", &["local opaque"]),
];

#[test]
fn every_tool_has_a_test_that_kills_its_server() {
    let tested: BTreeMap<&str, _> = TESTED.iter().map(|(tool, test, classes)| (*tool, (test, classes))).collect();
    assert_eq!(tested.len(), TESTED.len(), "a tool is in the table twice");
    let listed: Vec<&str> = ua_toolserver::tool_names().to_vec();
    let missing: Vec<_> = listed.iter().filter(|tool| !tested.contains_key(*tool)).collect();
    assert!(missing.is_empty(), "no test kills the server of {missing:?}: write one and add it to the table");
    let gone: Vec<_> = tested.keys().filter(|tool| !listed.contains(*tool)).collect();
    assert!(gone.is_empty(), "these tools are gone: {gone:?}");

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let matrix = std::fs::read_to_string(here.join("../../xtask/src/crash_matrix/classes.rs")).unwrap();
    for (tool, (test, classes)) in tested {
        let (file, name) = test.split_once("::").unwrap();
        let source = std::fs::read_to_string(here.join("tests/it/wire").join(format!("{file}.rs"))).unwrap();
        let after = source.split(&format!("fn {name}(")).nth(1);
        assert!(after.is_some_and(|body| body.contains("kill().await")), "{tool}: {test} kills nothing");
        assert!(source.contains(&format!("\"{tool}\"")), "{tool}: {file}.rs does not call it");
        for class in *classes {
            assert!(matrix.contains(&format!("name: \"{class}\"")), "{tool}: the crash matrix has no class {class:?}");
        }
    }
}

async fn answered(process: &Process, tool: &'static str, arguments: &Value) -> Value {
    let result = process.client.call_tool(keyed(tool, arguments, 1)).await.unwrap();
    assert_eq!(result.is_error, Some(false), "{tool}: {result:?}");
    result.structured_content.unwrap()
}

#[tokio::test]
async fn a_look_that_was_cut_short_is_answered_by_the_next_server() {
    let looks = [
        ("read_local_file", json!({"path": "big.txt", "limit": 1_000_000})),
        ("list_directory", json!({"recursive": true})),
        ("read_research_files", json!({"file_paths": ["big.txt", "a.md"]})),
        ("get_core_memory_blocks", json!({})),
        ("archival_memory_search", json!({"query": "tables"})),
    ];
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("w");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("big.txt"), "line of text\n".repeat(50_000)).unwrap();
    std::fs::write(workspace.join("a.md"), "# A").unwrap();
    let mut first = start_with(&workspace, &[]).await;
    answered(&first, "archival_memory_insert", &json!({"content": "Ann wants tables."})).await;
    let mut expected = Vec::new();
    for (tool, arguments) in &looks {
        expected.push(answered(&first, tool, arguments).await);
    }
    let all = looks.iter().map(|(tool, arguments)| first.client.call_tool(keyed(tool, arguments, 1)));
    tokio::select! {
        biased;
        _ = futures_util::future::join_all(all) => {}
        () = tokio::task::yield_now() => {}
    }
    first.child.kill().await.unwrap();

    let second = start_with(&workspace, &[]).await;
    for ((tool, arguments), expected) in looks.iter().zip(expected) {
        assert_eq!(answered(&second, tool, arguments).await, expected, "{tool}");
    }
}

/// Each tool that replaces a file: its arguments, and the file.
fn replacing() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("write_local_file", json!({"path": "o/a.txt", "content": "whole ".repeat(30_000)}), "o/a.txt"),
        ("render_html", json!({"source": "long.md", "output": "o/a.html"}), "o/a.html"),
        ("render_pdf", json!({"source": "short.md", "output": "o/a.pdf"}), "o/a.pdf"),
        ("compress_files", json!({"paths": ["long.md", "a.png"], "output": "o/a.zip"}), "o/a.zip"),
        ("preview_image", json!({"path": "a.png", "output": "o/a.jpg", "format": "jpeg"}), "o/a.jpg"),
        ("workbench_download", json!({"remote_path": "big.bin", "local_path": "o/b.bin"}), "o/b.bin"),
        ("build_evidence_ledger", json!({"task_name": "t"}), "tasks/t/evidence_ledger.md"),
    ]
}

fn prepare(workspace: &Path) {
    let put = |path: &str, content: &[u8]| {
        let path = workspace.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let sentence = "In 2025 the mill made 4,200 kWh, said Ann, \"more than ever before in its history\".\n\n";
    put("long.md", format!("# Mills\n\n{}", sentence.repeat(20_000)).as_bytes());
    put("short.md", format!("# Mills\n\n{}", sentence.repeat(20)).as_bytes());
    put("a.png", &STANDARD.decode(DRAWN_PNG_BASE64).unwrap());
    put("objects/workbench/big.bin", &vec![7_u8; 8 << 20]);
    let page = format!(
        "---\ntitle: \"Mill\"\nsource: \"https://example.org/mill\"\nwords: 40\n---\n\n{}\n",
        sentence.repeat(50)
    );
    put("search_results/mill.md", page.as_bytes());
    let source = json!({
        "id": "S1", "url": "https://example.org/mill", "title": "Mill", "words": 40, "path": "search_results/mill.md",
    });
    let finalized = json!({
        "task_name": "t", "topic": "Mills", "corpus": "tasks/t/refined_corpus.md", "corpus_sha256": "0", "words": 40,
        "sources": [source], "left_out": [],
    });
    put("tasks/t/sources.json", finalized.to_string().as_bytes());
}

#[tokio::test]
async fn a_file_is_the_old_one_or_the_new_one_wherever_the_server_is_killed() {
    let mut cut_short = 0;
    for (tool, arguments, output) in replacing() {
        let name = Path::new(output).file_name().unwrap().to_str().unwrap();
        let folder = Path::new("w").join(output).parent().unwrap().to_path_buf();
        let staged = folder.join(format!(".ua-tmp-{}", &sha256(name)[..16]));
        let mut whole = None;
        for moment in [Path::new("w/.ua").to_path_buf(), Path::new("w/.ua/lock").to_path_buf(), staged] {
            let directory = TempDir::new().unwrap();
            let workspace = directory.path().join("w");
            prepare(&workspace);
            let file = workspace.join(output);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "old").unwrap();

            let mut first = start_with(&workspace, &[]).await;
            tokio::select! {
                came = first.client.call_tool(keyed(tool, &arguments, 1)) => drop(came),
                () = appeared(directory.path().join(&moment)) => cut_short += 1,
            }
            first.child.kill().await.unwrap();
            let left = std::fs::read(&file).unwrap();

            let second = start_with(&workspace, &[]).await;
            answered(&second, tool, &arguments).await;
            let now = std::fs::read(&file).unwrap();
            assert!(
                left == b"old" || left == now,
                "{tool} killed at {moment:?} left {} of {} bytes",
                left.len(),
                now.len()
            );
            assert_eq!(&now, whole.get_or_insert_with(|| now.clone()), "{tool}: another file than after another kill");
            let temporary =
                names(file.parent().unwrap()).into_iter().filter(|name| name.starts_with(".ua-tmp-")).count();
            assert_eq!(temporary, 0, "{tool} killed at {moment:?}");
        }
        assert!(whole.is_some_and(|whole| whole != b"old"), "{tool} did nothing");
    }
    assert!(cut_short > 0, "no server was killed while it worked");
}

/// What a program did before its server died is on the disk, and the server says nothing: a runner has to ask. Here it is seen that a
/// successor starts it anew, which is why nobody does that by himself.
#[tokio::test]
async fn a_program_does_not_outlive_its_killed_server_unseen() {
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("w");
    std::fs::create_dir(&workspace).unwrap();
    // The file is there before the word is in it.
    let wait = "echo begun >> log; : > started; while [ ! -e go ]; do sleep 0.01; done; echo done >> log";
    let arguments = json!({"argv": ["sh", "-c", wait]});
    let mut first = start_with(&workspace, &["--enable-command"]).await;
    tokio::select! {
        came = first.client.call_tool(keyed("run_command", &arguments, 1)) => panic!("{came:?}"),
        () = appeared(workspace.join("started")) => {}
    }
    first.child.kill().await.unwrap();
    std::fs::write(workspace.join("go"), "").unwrap();
    let second = start_with(&workspace, &["--enable-command"]).await;
    let result = answered(&second, "run_command", &arguments).await;
    assert_eq!(result["exit_code"], 0);
    let log = std::fs::read_to_string(workspace.join("log")).unwrap();
    assert_eq!(log.matches("begun").count(), 2, "it ran again: {log}");
}
