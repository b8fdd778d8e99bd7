//! Files that a job gives its model: images and texts that lie beside it, over each wire, after a kill, in a fork, and when they changed.

use std::fs;

use serde_json::{Value, json};
use ua_core::sha256;
use ua_e2e::{Model, TestEnv};

use super::env;
use super::wires::{WIRES, images, with_model};

/// A picture of one pixel, and its Base64.
const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
const SEEN: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAA=";

/// A world that knows whether the model `m` reads images.
fn world(model: &Model, wire: &str, reads: bool) -> TestEnv {
    let env = with_model(model).with_forum();
    let mine = env.write("models.toml", format!("[{wire}.\"m\"]\ncontext = 100_000\nimages = {reads}\n"));
    env.with_env("UA_MODELS", &mine)
}

/// A job with a picture and a text beside it.
fn job(env: &TestEnv, provider: &str, turns: &Value) -> String {
    let fields = json!({"model": {"provider": provider, "name": "m", "script": "job.script.json"},
                        "files": ["data/pixel.png", "notes.md"], "tools": {"builtin": false}});
    let job = env.job(&fields, turns);
    let folder = std::path::Path::new(&job).parent().map(std::path::Path::to_path_buf).unwrap_or_default();
    fs::create_dir_all(folder.join("data")).unwrap_or_default();
    fs::write(folder.join("data/pixel.png"), PIXEL).unwrap_or_default();
    fs::write(folder.join("notes.md"), "The pixel is *blue*.").unwrap_or_default();
    job
}

/// The file beside a job.
fn beside(job: &str, name: &str) -> std::path::PathBuf {
    std::path::Path::new(job).with_file_name(name)
}

#[test]
fn a_model_is_shown_the_files_of_its_job_also_after_a_kill_and_in_a_fork() {
    let page = json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": "a page"}}]});
    for wire in WIRES {
        let model = Model::start(&json!([page, page, {"text": "Done."}]), Vec::new());
        let env = world(&model, wire, true);
        let job = job(&env, wire, &json!([]));
        env.run_killed_at("before:model.complete#2", &["job", &job, "--run-id", "r"]);
        // What lies there now is not what the run was started with.
        fs::write(beside(&job, "data/pixel.png"), b"\x89PNG\r\n\x1a\nanother").unwrap_or_default();
        env.run(&["resume", "r"]).code(0).says(&["data/pixel.png has changed since the run was started"]);
        let is_whole = |request: &Value| {
            let mut seen = Vec::new();
            images(request, &mut seen);
            assert_eq!(seen, [SEEN], "{wire}");
            assert!(request.to_string().contains("The pixel is *blue*."), "{wire}: {request}");
        };
        is_whole(&model.last_request());
        assert!(model.log().iter().all(|request| request.status == 200), "{wire}: {:?}", model.log());
        // The picture is kept once, as a blob, and named by its digest in the contract; the history has none of it.
        let digest = sha256(PIXEL).to_hex();
        let stored = "SELECT run_spec_json ->> '$.files[0].sha256' FROM runs";
        assert_eq!(env.rows(stored), [digest], "{wire}");
        assert_eq!(env.rows("SELECT count(*) FROM blobs"), ["2"], "{wire}");
        assert_eq!(env.rows(&format!("SELECT count(*) FROM messages WHERE message_json LIKE '%{SEEN}%'")), ["0"]);
        // Tools find it in the workspace, where it is no work of theirs.
        assert_eq!(fs::read(env.workspace().join("job_files/data/pixel.png")).ok().as_deref(), Some(PIXEL), "{wire}");

        let again = Model::start(&json!([page, page, {"text": "Done again."}]), Vec::new());
        let env = env.with_env("ANTHROPIC_BASE_URL", again.base_url()).with_env("OPENAI_BASE_URL", again.base_url());
        env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"]).code(0);
        is_whole(&again.last_request());
    }
}

#[test]
fn a_job_whose_files_changed_is_not_the_job_of_its_run() {
    let env = env();
    let job = job(&env, "scripted", &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["job", &job, "--run-id", "r"]).code(0).says(&["already finished"]);
    fs::write(beside(&job, "notes.md"), "It is red.").unwrap_or_default();
    env.run(&["job", &job, "--run-id", "r"]).refused(2, &["was started with other files: notes.md", "ua resume"]);
}

#[test]
fn a_file_that_cannot_be_shown_stops_the_job_before_it_starts() {
    let model = Model::start(&json!([{"text": "Done."}]), Vec::new());
    let env = world(&model, "openai-chat", false);
    let path = job(&env, "openai-chat", &json!([]));
    env.run(&["job", &path]).refused(2, &["data/pixel.png", "not known to read images", "images = true"]);
    fs::remove_file(beside(&path, "data/pixel.png")).unwrap_or_default();
    env.run(&["job", &path]).refused(2, &["the job's file data/pixel.png", "no such file"]);
    for (files, why) in [
        (json!(["../secret.txt"]), "is not a path below the folder"),
        (json!(["notes.md", "notes.md"]), "is named twice"),
    ] {
        let fields = json!({"model": {"provider": "openai-chat", "name": "m"}, "files": files});
        env.run(&["job", &env.job(&fields, &json!([]))]).refused(2, &[why]);
    }
    assert_eq!(model.requests(), 0);
    assert!(env.try_rows("SELECT run_id FROM runs").is_empty());
}
