//! Files that tell how a run stands: made of the database, whenever somebody asks, and never a reason for a run to end otherwise.

use std::fs;

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

fn read(text: &str) -> Value {
    json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": text}}]})
}

fn turns() -> Value {
    json!([read("a page"), {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}])
}

fn finished(env: &TestEnv) {
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns()), "--run-id", "r"]).code(0);
}

fn events(text: &str) -> Vec<String> {
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    text.lines().map(|line| parse(line)["event"].as_str().unwrap_or_default().to_owned()).collect()
}

const FILES: [&str; 8] = [
    "trace.jsonl",
    "trace.json",
    "transcript.md",
    "run.log",
    "session_summary.txt",
    "job_completion_r.md",
    "job_completion_r.json",
    "timeline.html",
];

#[test]
fn every_file_of_a_workspace_is_written_anew_from_the_database() {
    let env = env().with_forum();
    finished(&env);
    let workspace = env.workspace();
    let before: Vec<Option<String>> = FILES.iter().map(|name| fs::read_to_string(workspace.join(name)).ok()).collect();
    for name in FILES {
        fs::remove_file(workspace.join(name)).ok();
    }
    fs::remove_file(env.root().join("RESTART.md")).unwrap();
    env.run(&["runs", "export", "r"]).code(0).shows(&FILES);
    for (name, before) in FILES.iter().zip(before) {
        let now = fs::read_to_string(workspace.join(name)).unwrap();
        // The logs that a process kept have more than the database knows, the timeline is new; all else is as it was.
        if !["trace.jsonl", "run.log", "timeline.html"].contains(name) {
            assert_eq!(Some(now), before, "{name}");
        }
    }
    assert!(env.read("root/RESTART.md").contains("nothing to resume"));
    // What a process kept of its run is not lost to the part of it that the database has, however often that is written; what is missing there of
    // what the database has is put in.
    let (log, trace) = (workspace.join("run.log"), workspace.join("trace.jsonl"));
    let [whole, events_then] = [&log, &trace].map(|file| fs::read_to_string(file).unwrap());
    fs::write(&log, format!("{whole}what only the process knew\n")).unwrap();
    for _ in 0..2 {
        env.run(&["runs", "export", "r"]).code(0);
        assert_eq!(fs::read_to_string(&log).unwrap(), format!("{whole}what only the process knew\n"));
        assert_eq!(fs::read_to_string(&trace).unwrap(), events_then);
    }
    let is_of_end = |line: &&str| !line.contains("turn_committed") && !line.contains("run_ended");
    let cut: Vec<&str> = events_then.lines().filter(is_of_end).collect();
    fs::write(&trace, format!("{}\n", cut.join("\n"))).unwrap();
    fs::write(&log, "").unwrap();
    env.run(&["runs", "export", "r"]).code(0);
    let now = fs::read_to_string(&trace).unwrap();
    assert_eq!(events(&now).len(), events(&events_then).len(), "{now}");
    let put_in = fs::read_to_string(&log).unwrap();
    assert!(put_in.contains("committed") && put_in.contains("succeeded") && !put_in.contains("thinking"), "{put_in}");
    // The same names as those of the lines that the process wrote.
    let told = events(&fs::read_to_string(workspace.join("trace.jsonl")).unwrap());
    for event in ["thinking", "turn_recorded", "request_charged", "call_sending", "call_settled", "turn_committed"] {
        assert!(told.iter().any(|name| name == event), "{event} is missing: {told:?}");
    }
    assert_eq!(env.comments().len(), 1);
    // None of them counts as a file that a tool made.
    let completion: Value =
        serde_json::from_str(&fs::read_to_string(workspace.join("job_completion_r.json")).unwrap()).unwrap();
    let paths: Vec<&Value> = completion["artifacts"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["transcript.md"]);
}

/// What an export would put into the logs of a run, because no process told it, is nothing.
#[test]
fn the_logs_that_a_run_keeps_tell_what_its_rows_tell() {
    let untold = |env: &TestEnv| {
        let told = || ["run.log", "trace.jsonl"].map(|file| fs::read_to_string(env.workspace().join(file)).unwrap());
        let before = told();
        env.run(&["runs", "export", "r"]).code(0);
        let lines_of = |texts: [String; 2]| texts.map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let (before, after) = (lines_of(before), lines_of(told()));
        [0, 1].map(|file| after[file].iter().filter(|line| !before[file].contains(line)).cloned().collect::<Vec<_>>())
    };
    let none: [Vec<String>; 2] = [Vec::new(), Vec::new()];

    // A question about a call of which nobody said what it would be, a person's words on it, more turns.
    let env = env().with_forum();
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
    let last = json!({"text": "It is done.", "expect": {"contains": ["Leave it as it is."]}});
    let fields = json!({"tools": {"builtin": false}, "stop_conditions": [{"effect": "email.send"}], "budgets": {"max_turns": 2}});
    env.run(&["job", &env.job(&fields, &json!([post, {"text": "Posted."}, last])), "--run-id", "r"]).code(75);
    assert_eq!(untold(&env), none, "with a question");
    let question = || env.value("SELECT question_id FROM questions WHERE status = 'open'");
    env.run(&["answer", &question(), "retry", "--text", "Leave it as it is."]).code(0);
    env.run(&["resume", "r"]).code(75);
    assert_eq!(untold(&env), none, "stopped behind the answer");
    env.run(&["resume", "r", "--max-turns", "+2"]).code(75);
    assert_eq!(untold(&env), none, "with a budget that was raised");
    env.run(&["answer", &question(), "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(untold(&env), none, "at its end");
}

/// The same of a signal, and of a process that was killed.
#[test]
fn the_logs_that_a_run_keeps_tell_of_signals() {
    let env = env().with_forum();
    let wait = json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": "x", "until": env.arg("gate")}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([read("a page"), wait, {"text": "Done."}]));
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the second call to run", || env.try_rows("SELECT status FROM tool_calls") == ["succeeded", "running"]);
    process.signal(rustix::process::Signal::TERM);
    until("the signal to be noticed", || process.stderr().contains("nothing new is started"));
    fs::write(env.path("gate"), "").unwrap();
    process.wait().code(130);
    let log = fs::read_to_string(env.workspace().join("run.log")).unwrap();
    env.run(&["runs", "export", "r"]).code(0);
    assert_eq!(fs::read_to_string(env.workspace().join("run.log")).unwrap(), log);
    assert_eq!(log.matches("stopping: ").count(), 1, "{log}");
}

#[test]
fn one_document_holds_every_row_and_goes_where_it_is_told() {
    let env = env().with_forum();
    finished(&env);
    let document = env.run(&["runs", "export", "r", "--json"]).code(0).json();
    assert_eq!((&document["format"], &document["version"]), (&json!("universal-agent/run-export"), &json!(1)));
    let count = |rows: &Value| rows.as_array().unwrap().len().to_string();
    for (rows, table) in [
        ("turns", "turns"),
        ("messages", "messages"),
        ("calls", "tool_calls"),
        ("attempts", "tool_attempts"),
        ("receipts", "tool_receipts"),
        ("checkpoints", "checkpoints"),
        ("requests", "usage"),
    ] {
        assert_eq!(count(&document["records"][rows]), env.value(&format!("SELECT count(*) FROM {table}")), "{rows}");
    }
    assert_eq!(count(&document["events"]), env.value("SELECT count(*) FROM tool_call_events"));
    let file = env.arg("work/copy.json");
    env.run(&["runs", "export", "r", "--json", "--out", &file]).code(0).shows(&[&file]);
    assert_eq!(serde_json::from_str::<Value>(&env.read("work/copy.json")).unwrap()["records"], document["records"]);
    for both in [&["runs", "export", "r", "--html", "--json"][..], &["runs", "export", "r", "--json", "--transcript"]] {
        let refused = env.run(both).code(2);
        assert!(refused.stderr.contains("different kinds of export"), "{}", refused.shown());
    }
    env.run(&["runs", "export", "r", "--html", "--transcript"])
        .refused(2, &["--html and --transcript are different kinds of export", "nothing was written"]);
    env.run(&["runs", "export", "r", "--transcript"]).code(0).shows(&["# Transcript of r", "hello"]);
    env.run(&["runs", "export", "r", "--html", "-"]).code(0).shows(&["<!DOCTYPE html>", "</html>"]);
    env.run(&["runs", "export", "r", "--html", "x.html", "--out", "y"]).refused(2, &["--html", "--out"]);
    env.run(&["runs", "export", "r", "--out", "-"]).refused(2, &["standard output", "--json"]);
    env.run(&["runs", "export", "nothing"]).refused(2, &["`nothing`"]);
}

#[test]
fn a_database_of_another_machine_is_enough() {
    let env = env().with_forum();
    finished(&env);
    fs::create_dir_all(env.path("other")).unwrap();
    env.run(&["db", "backup", &env.arg("other/runtime_state.db")]).code(0);
    let elsewhere = env.path("moved");
    fs::rename(env.root(), &elsewhere).unwrap();
    let other = env.arg("other");
    env.run(&["runs", "export", "r", "--root", &other]).refused(2, &["is not here", "--out"]);
    let out = env.arg("copy");
    let output = env.run(&["runs", "export", "r", "--root", &other, "--out", &out]).code(0);
    output.says(&["left out"]).shows(&["trace.jsonl", "transcript.md", "timeline.html"]);
    assert!(env.read("copy/transcript.md").contains("hello"));
    // Which conditions hold cannot be said without the files, so nothing is said.
    assert!(!env.path("copy/job_completion_r.md").exists());
    env.run(&["runs", "export", "r", "--root", &other, "--out", &out, "--all-files"]).refused(2, &["--all-files"]);
}

#[test]
fn a_run_at_work_can_be_exported() {
    let env = env().with_forum();
    let turns = json!([
        read("a page"),
        {"tools": [{"name": "mcp__forum__get_page", "input": {"text": "x", "until": env.arg("gate")}}]},
        {"text": "Done."},
    ]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the second call to run", || env.try_rows("SELECT status FROM tool_calls") == ["succeeded", "running"]);
    // Whoever looks for the way back finds it while the run is at work.
    assert!(process.stderr().contains("resume with: ua resume r --root"), "{}", process.stderr());
    let restart = env.read("root/RESTART.md");
    assert!(
        restart.contains("running when this was written; `ua status --root")
            && restart.contains("    ua resume r --root"),
        "{restart}"
    );
    let document = env.run(&["runs", "export", "r", "--json"]).code(0).json();
    assert_eq!((&document["is_driven"], &document["records"]["run"]["status"]), (&json!(true), &json!("running")));
    env.run(&["runs", "export", "r"]).code(0).shows(&["timeline.html"]);
    assert!(!env.workspace().join("job_completion_r.md").exists(), "it has come to nothing yet");
    fs::write(env.path("gate"), "").unwrap();
    process.wait().code(0);
    // The process goes on with the files that were written beside it.
    let log = fs::read_to_string(env.workspace().join("run.log")).unwrap();
    assert!(log.lines().any(|line| line.contains("turn 3 · thinking")), "{log}");
    assert!(log.lines().last().unwrap().ends_with("succeeded"), "{log}");
}

#[test]
fn large_results_and_the_tools_files_come_along_when_asked_for() {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [
            {"name": "mcp__ua__write_local_file", "input": {"path": "work_products/note.txt", "content": "a note"}},
            {"name": "mcp__forum__get_page", "input": {"text": "a long page. ", "repeat": 4000}},
        ]},
        {"text": "Done."},
    ]);
    env.run(&["job", &env.job(&json!({}), &turns), "--run-id", "r"]).code(0);
    let (whole, blob) = ("a long page. ".repeat(4000), env.value("SELECT blob_id FROM blobs"));
    let out = env.arg("copy");
    // A name that is no text is that of a file all the same.
    let odd = std::os::unix::ffi::OsStringExt::from_vec(b"\xff\xfe.txt".to_vec());
    fs::write(env.workspace().join("work_products").join::<std::ffi::OsString>(odd), "odd").unwrap();
    env.run(&["runs", "export", "r", "--out", &out, "--all-files", "--include-blobs"])
        .code(0)
        .shows(&["note.txt", &blob])
        .says(&["not copied: work_products/", "UTF-8"]);
    assert_eq!(env.read("copy/work_products/note.txt"), "a note");
    assert_eq!(env.read(&format!("copy/result_blobs/{blob}.txt")), whole);
    assert!(env.read("copy/transcript.md").contains(&format!("(result_blobs/{blob}.txt)")));
    let document = env.run(&["runs", "export", "r", "--json", "--include-blobs"]).code(0).json();
    assert_eq!(document["blobs"][&blob], json!(whole));
    assert!(env.run(&["runs", "export", "r", "--json"]).code(0).json()["blobs"].is_null());
    let inside = env.workspace().join("copy").display().to_string();
    env.run(&["runs", "export", "r", "--out", &inside, "--all-files"]).refused(2, &["workspace itself"]);
}

/// The trace of a run that dies is at most a few turns old.
#[test]
fn a_killed_run_leaves_a_trace_and_an_export_brings_it_up_to_date() {
    let env = env().with_forum();
    let mut turns: Vec<Value> = (0..13).map(|n| read(&n.to_string())).collect();
    turns.push(json!({"text": "Done."}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!(turns));
    env.run_killed_at("before:model.complete#14", &["job", &job, "--run-id", "r"]);
    let trace =
        || -> Value { serde_json::from_str(&fs::read_to_string(env.workspace().join("trace.json")).unwrap()).unwrap() };
    let turns = |trace: &Value| trace["turns"].as_array().unwrap().len();
    let written = turns(&trace());
    assert!((5..=13).contains(&written), "how often depends on what it takes; {written} turns");
    assert_eq!(trace()["run"]["turn_index"], written);
    assert!(
        env.read("root/RESTART.md").contains("    ua resume r --root"),
        "whoever finds the folder knows how to go on"
    );
    env.run(&["runs", "export", "r"]).code(0);
    assert_eq!((trace()["run"]["turn_index"].clone(), turns(&trace())), (json!(13), 13));
    assert!(env.read("root/RESTART.md").contains("its process is gone"));
    let lines = events(&fs::read_to_string(env.workspace().join("trace.jsonl")).unwrap());
    assert_eq!(lines.iter().filter(|event| *event == "turn_committed").count(), 13);
    env.run(&["resume", "r"]).code(0);
}

#[test]
fn runs_that_end_side_by_side_are_all_on_the_restart_page() {
    let env = env().with_forum();
    let names: Vec<String> = (1..=5).map(|n| format!("side-{n}")).collect();
    let live: Vec<_> = names
        .iter()
        .map(|name| {
            let fields = json!({"tools": {"builtin": false}, "budgets": {"max_turns": 1}});
            let job = env.named_job(name, &fields, &json!([read("a page"), read("another"), {"text": "Done."}]));
            env.start(&["job", &job, "--run-id", name])
        })
        .collect();
    for process in live {
        process.wait().code(75);
    }
    let page = env.read("root/RESTART.md");
    for name in &names {
        assert!(page.contains(&format!("## Run {name}\n")), "{name} is missing in\n{page}");
        assert!(
            page.contains(&format!("resume_packet_{name}.md")) && page.contains(&format!("job_completion_{name}.md"))
        );
    }
    assert_eq!(page.matches("status: stopped").count(), names.len(), "{page}");
}

/// A folder where a file should be: in a workspace it makes way, beside the database it can be replaced by nothing, as on a full disk.
#[test]
fn files_that_cannot_be_written_do_not_change_how_a_run_ends() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns());
    env.run_killed_at("before:model.complete#2", &["job", &job, "--run-id", "r"]);
    let blocked = ["trace.json", "session_summary.txt", "job_completion_r.md", "resume_packet_r.md"];
    for path in blocked.map(|name| env.workspace().join(name)).into_iter().chain([env.root().join("RESTART.md")]) {
        fs::remove_file(&path).ok();
        fs::create_dir_all(path.join("in the way")).unwrap();
    }
    env.run(&["resume", "r"]).code(0).says(&["could not be written"]).shows(&["succeeded · run r"]);
    assert_eq!((env.run_status(), env.comments().len()), ("succeeded".to_owned(), 1));
    assert!(
        fs::read_dir(env.workspace())
            .unwrap()
            .flatten()
            .all(|file| { !file.file_name().to_string_lossy().ends_with(".tmp") }),
        "what could not be put in its place is not left lying about"
    );
    env.run(&["runs", "export", "r"]).code(0);
    assert!(
        ["trace.json", "session_summary.txt", "job_completion_r.md"].map(|name| env.workspace().join(name).is_file())
            == [true; 3]
    );
}

#[test]
fn an_export_replaces_an_export_and_nothing_else() {
    let env = env().with_forum();
    finished(&env);
    let export = |args: &[&str]| env.run(&[&["runs", "export", "r"], args].concat());
    // Whatever it is pointed at: files of a person, and what the runs themselves stand in.
    let job = env.write("work/mine.json", "{\"run_id\": 1}");
    let (notes, page) = (env.write("work/notes.txt", "mine"), env.write("work/page.html", "<!DOCTYPE html>\n<p>mine"));
    let own = ["effects.log", "runtime_state.db", "runtime_state.db-wal", "RESTART.md", "new.html", "locks/x"];
    let own = own.map(|name| env.root().join(name).display().to_string());
    let named = [job, notes, page];
    for file in named.iter().chain(&own) {
        let before = fs::read(file).ok();
        export(&["--html", file]).refused(2, &["nothing was written"]);
        export(&["--json", "--out", file]).code(2).says(&["nothing was written"]);
        export(&["--transcript", "--out", file]).refused(2, &["nothing was written"]);
        assert_eq!(fs::read(file).ok(), before, "{file}");
    }
    env.run(&["status"]).code(0);
    // What an export wrote is written again, by one of the same kind.
    let again = env.arg("work/again.html");
    export(&["--html", &again]).code(0);
    export(&["--html", &again]).code(0);
    export(&["--transcript", "--out", &again]).refused(2, &["again.html", "not an earlier export"]);
    env.write("work/empty.html", "");
    export(&["--html", &env.arg("work/empty.html")]).code(0);
    // A folder: all of it, or nothing.
    let mine = env.write("work/out/transcript.md", "mine");
    let out = env.arg("work/out");
    export(&["--out", &out]).refused(2, &[&mine, "nothing was written"]);
    assert_eq!((env.read("work/out/transcript.md"), fs::read_dir(&out).unwrap().count()), ("mine".to_owned(), 1));
    fs::remove_file(&mine).unwrap();
    export(&["--out", &out, "--all-files"]).code(0);
    export(&["--out", &out, "--all-files"]).code(0);
    export(&["--out", &env.root().display().to_string()]).refused(2, &["keeps its own files"]);
    // Its own workspace holds whatever a program put there.
    fs::write(env.workspace().join("timeline.html"), "planted").unwrap();
    export(&["--html"]).code(0);
}

#[test]
fn a_recording_is_added_to_a_cassette_and_to_nothing_else() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let file = env.path("work").join(&job);
    let before = fs::read_to_string(&file).unwrap();
    let record = |file: &str| env.run(&["job", &job, "--new", "--record", file]);
    record(&job).refused(2, &["cannot record into", "not a recording"]);
    // Nor does a link say where it is written, also one to a file that is not there.
    let (link, elsewhere) = (env.arg("link.jsonl"), env.path("elsewhere.jsonl"));
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    record(&link).refused(2, &["cannot record into", "is a link"]);
    assert!(!elsewhere.exists());
    env.run(&["job", &job, "--provider", "replay", "--cassette", &job]).refused(2, &["it is not a recorded exchange"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert!(!env.root().exists(), "nothing was started");
    let cassette = env.arg("work/new.jsonl");
    record(&cassette).code(0);
    let one = env.read("work/new.jsonl").lines().count();
    record(&cassette).code(0);
    assert_eq!(env.read("work/new.jsonl").lines().count(), 2 * one);
    env.write("work/empty.jsonl", "");
    record(&env.arg("work/empty.jsonl")).code(0);
    for name in ["effects.log", "runtime_state.db"] {
        let file = env.root().join(name);
        record(&file.display().to_string()).refused(2, &["cannot record into"]);
    }
    env.run(&["db", "check"]).code(0);
}
