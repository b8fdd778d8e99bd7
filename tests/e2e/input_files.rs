//! Files that a job gives its model: images and texts that lie beside it, over each wire, after a kill, in a fork, and when they changed; and what
//! lies beside it and is private.

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

/// Writes a job in the user's home itself.
fn job_at_home(env: &TestEnv, files: &Value) -> String {
    let fields = json!({"objective": "Sum it up.", "files": files, "tools": {"builtin": false},
                        "model": {"provider": "scripted", "script": "job.script.json"}});
    env.write("home/job.script.json", json!({"turns": [{"text": "Done."}]}).to_string());
    env.write("home/job.json", fields.to_string())
}

#[test]
fn a_job_in_the_home_shows_its_model_no_keys_no_other_runs_and_nothing_of_uas() {
    const CANARY: &str = "canary-31fe";
    let env = env();
    let root = env.arg("home/AGENT_RUN_WORKSPACES");
    env.write("home/report.md", "It is blue.");
    for private in [".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/ua/notes.md", "deep/er/.pgpass"] {
        env.write(&format!("home/{private}"), CANARY);
    }
    std::os::unix::fs::symlink(".ssh/id_ed25519", env.path("home/key.md")).unwrap_or_default();
    // What lies there in the open is shown, and the run leaves a root there.
    let job = job_at_home(&env, &json!(["report.md"]));
    env.run(&["job", &job, "--root", &root, "--run-id", "r"]).code(0);
    for private in [
        ".ssh/id_ed25519",
        ".SSH/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".config/ua/notes.md",
        "deep/er/.pgpass",
        "key.md",
        "AGENT_RUN_WORKSPACES/RESTART.md",
        "AGENT_RUN_WORKSPACES/effects.log",
    ] {
        let job = job_at_home(&env, &json!(["report.md", private]));
        // By the root that is there, and by another one.
        for root in [root.clone(), env.root().display().to_string()] {
            let refused =
                env.run(&["job", &job, "--root", &root]).refused(2, &[private, "it is private", "plain name"]);
            assert!(!refused.shown().contains(CANARY), "{}", refused.shown());
        }
    }
    assert!(env.try_rows("SELECT run_id FROM runs").is_empty());
}

#[test]
fn a_file_that_is_hidden_is_shown_and_counts_as_private() {
    let env = env();
    for (run, file, taint) in [("r1", "notes.md", "0"), ("r2", ".env", "2"), ("r3", "linked.md", "2")] {
        env.write("work/notes.md", "The pixel is blue.");
        env.write("work/.env", "MODE=fast");
        std::os::unix::fs::symlink(".env", env.path("work/linked.md")).unwrap_or_default();
        let fields = json!({"files": [file], "tools": {"builtin": false}});
        let job = env.named_job(run, &fields, &json!([{"text": "Done."}]));
        env.run(&["job", &job, "--run-id", run]).code(0);
        assert_eq!(env.rows(&format!("SELECT taint FROM runs WHERE run_id = '{run}'")), [taint], "{file}");
    }
}

/// A version before this one took files that are private now. Its run goes on with what it was started with, and nobody looks at them again.
#[test]
fn a_run_that_was_given_what_is_private_now_is_resumed() {
    let env = env();
    let job = job(&env, "scripted", &json!([{"text": "Done."}]));
    env.run_killed_at("before:model.complete#1", &["job", &job, "--run-id", "r"]);
    env.write("work/.ssh/id_ed25519", "canary-31fe");
    fs::remove_file(beside(&job, "notes.md")).unwrap_or_default();
    std::os::unix::fs::symlink(".ssh/id_ed25519", beside(&job, "notes.md")).unwrap_or_default();
    let resumed = env.run(&["resume", "r"]).code(0);
    assert!(!resumed.shown().contains("has changed"), "{}", resumed.shown());
    assert!(env.workspace().join("job_files/notes.md").is_file());
}
