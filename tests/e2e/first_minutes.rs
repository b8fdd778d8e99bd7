//! The first minutes with the program: a job that is made, looked at and run; what there is; where it is found; words from elsewhere; and
//! what is lost, misspelt or not a message.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

#[test]
fn a_made_project_is_checked_and_runs_offline() {
    let env = env();
    let made = env.run_bare(&["init", "mills"]).code(0);
    made.shows(&["job.json", "policy.toml", "ua.toml", "cd mills", "ua job --check job.json"]);
    // A second one destroys nothing.
    env.write("work/mills/job.json", fs::read_to_string(env.path("work/mills/job.json")).unwrap() + "\n");
    let before = fs::read_to_string(env.path("work/mills/job.json")).unwrap();
    env.run_bare(&["init", "mills"]).refused(2, &["already in mills", "job.json", "nothing was written"]);
    assert_eq!(fs::read_to_string(env.path("work/mills/job.json")).unwrap(), before);

    let checked = env.run(&["job", "--check", "mills/job.json"]).code(0);
    checked.shows(&[
        "run.notify",
        "mcp__ua__notify",
        "mails-wait-for-me",
        "mcp__ua__send_email",
        "looked for in the workspace",
    ]);
    assert!(!env.root().exists(), "a check leaves nothing behind");
    env.run(&["job", "mills/job.json"]).code(0).shows(&["succeeded"]);
    assert_eq!((env.run_status().as_str(), env.notifications().len()), ("succeeded", 1));
    assert!(env.workspace().join("work_products/tide-mills.md").is_file());
    // The same command again notifies nobody again.
    env.run(&["job", "mills/job.json"]).code(0);
    assert_eq!(env.notifications().len(), 1);
    // What is no folder is named as that.
    env.run_bare(&["init", "mills/job.json"]).refused(2, &["mills/job.json is a file, not a folder"]);
    env.run_bare(&["init", "/proc/x"]).refused(74, &["cannot make the folder /proc/x: no folders can be made there"]);
    let file = env.write("work/no-folder", "x");
    env.run_bare(&["job", "mills/job.json", "--root", &file]).refused(74, &["no-folder", "--root"]);
}

#[test]
fn a_long_list_says_that_there_is_more() {
    let env = env();
    let script = json!([{"tools": [{"name": "mcp__ua__list_directory", "input": {}}]}, {"text": "Done."}]);
    let job = env.job(&json!({}), &script);
    for _ in 0..3 {
        env.run(&["job", "--new", &job]).code(0);
    }
    for (list, what) in [("runs", "older runs"), ("calls", "older calls")] {
        for json in [false, true] {
            let mut args = vec![list, "list", "--limit", "2"];
            args.extend(json.then_some("--json"));
            let listed = env.run(&args).code(0).says(&[what, "`--limit 10` shows more"]);
            if json {
                assert_eq!(listed.json().as_array().unwrap().len(), 2, "{list}");
            }
        }
        let all = env.run(&[list, "list", "--limit", "3", "--json"]).code(0);
        assert_eq!((all.json().as_array().unwrap().len(), all.stderr.contains("shows more")), (3, false), "{list}");
    }
}

#[test]
fn a_check_says_what_a_start_would_say_and_starts_nothing() {
    let env = env().with_forum();
    let wrong = json!({"escalation": {"ask_human_before": ["post_coment", "external"]}, "tools": {"builtin": false}});
    let job = env.named_job("wrong", &wrong, &json!([{"text": "hi"}]));
    let checked = env.run(&["job", "--check", &job]);
    checked.code(2).says(&["`post_coment`", "did you mean `post_comment`?"]).shows(&[
        "mcp__forum__post_comment",
        // What would stop a run that nobody watches.
        "Asked if lost  mcp__forum__post_comment: ",
        "Needs approval mcp__forum__post_comment: the run waits before each such call",
    ]);
    // What asks at every call, once a read has brought both into the run, and what lifts that.
    let mixed = r#"
        [[rule]]
        id = "page"
        server = "forum"
        name = "get_page"
        side_effect_class = "read_only"
        reads = ["untrusted", "private"]
    "#;
    let (policy, plain) = (env.write("mixed.toml", mixed), json!({"tools": {"builtin": false}}));
    let both = env.named_job("both", &plain, &json!([{"text": "hi"}]));
    let checked = env.run(&["job", "--check", &both, "--policy", &policy]).code(0);
    checked.shows(&["May be asked   mcp__forum__post_comment: ", "`constraints.allowed_destinations`"]);
    assert!(!env.run(&["job", "--check", &both]).code(0).stdout.contains("May be asked"));
    let found = env.run(&["job", "--check", &job, "--json"]).json();
    assert_eq!(found["would_start"], false);
    assert_eq!(found["words"][1]["tools"], json!(["mcp__forum__post_comment"]), "{found}");
    let gone = env.named_job("gone", &json!({"tools": {"servers": ["forun"]}}), &json!([{"text": "hi"}]));
    env.run(&["job", "--check", &gone]).refused(2, &["`forun`", "did you mean `forum`?"]);
    assert!(!env.root().exists() && env.comments().is_empty());
    // What an earlier run of it left is told.
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let job = env.job(&json!({"job_key": "monthly", "tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let found = env.run(&["job", "--check", &job, "--json"]).code(75).json();
    assert_eq!((&found["job_key_used_by"], &found["unfinished_run"]), (&json!("r"), &json!("r")));
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_check_has_the_exit_code_and_the_words_of_the_start() {
    let both = |env: &TestEnv, job: &str, code: i32, said: &[&str]| {
        env.run(&["job", "--check", job]).code(code).says(said);
        env.run(&["job", job]).refused(code, said);
    };
    let env = env();
    let out = json!({"artifacts": {"workspace_dir": "../../x"}, "tools": {"builtin": false}});
    both(&env, &env.named_job("out", &out, &json!([{"text": "hi"}])), 2, &["leads out of the workspace root"]);
    let plain = env.named_job("plain", &json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    let root = std::ffi::OsStr::new("/proc/x");
    env.run_in(root, &["job", "--check", &plain]).refused(74, &["cannot create /proc/x"]);
    env.run_in(root, &["job", &plain]).refused(74, &["cannot create /proc/x"]);
    // A run that was left, and nobody who could be asked about it.
    let env = super::env().with_forum();
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let left = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &left, "--run-id", "r"]);
    both(&env, &left, 75, &["run r of the same job was killed", "--new"]);
    assert_eq!((env.rows("SELECT run_id FROM runs"), env.comments().len()), (vec!["r".to_owned()], 1));
}

/// A place where a built-in tool works, and where no call could: known before a run is stored, and by the same words everywhere.
#[test]
fn a_place_of_a_built_in_tool_that_cannot_be_used_is_named_before_a_run_is_stored() {
    for (variable, value, place) in [
        ("UA_OUTBOX", "/dev/null", "/dev/null"),
        ("UA_OUTBOX", "/proc/x", "nothing can be made there"),
        ("UA_OUTBOX", "taken/below", "taken/below"),
        ("UA_NOTIFICATIONS", "taken", "work/taken"),
        ("UA_MAIL", "maildir:/dev/null", "/dev/null"),
        ("UA_OBJECTS", "file:///dev/null", "/dev/null"),
        ("UA_MEMORY", "/dev/null", "/dev/null"),
        ("UA_MEMORY", "<work>/taken", "work/taken"),
    ] {
        let env = env();
        let value = value.replace("<work>", &env.arg("work"));
        let env = env.with_env(variable, &value);
        env.write("work/taken", "somebody's text, which is no database");
        let job = env.job(&json!({}), &json!([{"text": "hi"}]));
        for args in [&["job", "--check", &job][..], &["job", &job]] {
            env.run(args).refused(2, &[&format!("cannot use {variable} (tools."), place, "nothing was started"]);
        }
        let looked = env.run(&["doctor", "--job", &job, "-v"]).code(1);
        let looked = looked.shows(&[&format!("cannot use {variable} (tools."), place]);
        for well in ["ok   email", "ok   upload", "would start"] {
            assert!(!looked.stdout.contains(well), "{variable}: {}", looked.stdout);
        }
        assert!(!env.root().exists());
    }
    // Nobody chose these: they are the root's own.
    let env = env();
    for place in ["outbox", "objects", "notifications", "agent_core.db"] {
        std::fs::remove_dir_all(env.root()).ok();
        std::fs::create_dir_all(env.root()).unwrap();
        let path = env.root().join(place);
        if place == "agent_core.db" { std::fs::create_dir(&path) } else { std::fs::write(&path, "x") }.unwrap();
        let job = env.job(&json!({}), &json!([{"text": "hi"}]));
        let said = format!("cannot use {}", path.display());
        for args in [&["job", "--check", &job][..], &["job", &job]] {
            env.run(args).refused(74, &[&said, "nothing was started"]);
        }
        env.run(&["doctor", "--job", &job]).code(1).shows(&[&said]);
    }
}

#[test]
fn a_setting_of_the_own_tool_server_is_named_as_the_user_gave_it_before_a_run_is_stored() {
    for (variable, value) in [("UA_MAIL", "foo"), ("UA_SEARCH", "bar"), ("UA_NOTIFY_WEBHOOK", "nowhere")] {
        let env = env().with_env(variable, value);
        let job = env.job(&json!({}), &json!([{"text": "hi"}]));
        for args in [&["job", "--check", &job][..], &["job", &job], &["tools", "list"]] {
            env.run(args).refused(2, &[&format!("cannot use {variable} (tools."), "nothing was started"]);
        }
        env.run(&["doctor"]).code(1).shows(&[&format!("fail tools: cannot use {variable}")]);
        assert!(!env.root().exists());
    }
    let env = env().with_env("UA_SIDE_EFFECT_DENYLIST", "post_comment,snd_emial").with_forum();
    let job = env.job(&json!({}), &json!([{"text": "hi"}]));
    for args in [&["job", "--check", &job][..], &["job", &job]] {
        env.run(args).code(2).says(&["`snd_emial` (did you mean `send_email`?)"]);
    }
    assert!(env.try_rows("SELECT run_id FROM runs").is_empty());
}

#[test]
fn a_call_of_a_tool_that_does_not_exist_is_told_with_the_reason() {
    let env = env();
    let turns = json!([{"tools": [{"name": "mcp__ua__fly", "input": {}}]}, {"text": "Done."}]);
    let job = env.job(&json!({}), &turns);
    let ended = env.run(&["job", &job]).code(0);
    ended
        .says(&["turn 1 · call 1 · fly refused: "])
        .shows(&["1 call names a tool that this job does not have: mcp__ua__fly."]);
}

#[test]
fn lists_of_a_folder_where_nothing_was_run_are_empty() {
    let env = env();
    for words in ["runs list", "status", "questions", "queue list", "queue depth", "workers list", "schedule list"] {
        env.run(&words.split(' ').collect::<Vec<_>>())
            .code(0)
            .says(&["note: the folder ", "check the spelling of --root"]);
    }
    assert!(!env.root().exists());
    // Also where nothing is asked for, and where a variable names the folder.
    assert!(env.run(&["doctor"]).stderr.contains("check the spelling of --root"));
    let named = env.with_env("UA_ROOT", "/no/such/folder");
    named
        .run_bare(&["status"])
        .code(0)
        .says(&["note: the folder /no/such/folder does not exist; check the spelling of UA_ROOT"]);
}

#[test]
fn a_server_that_takes_long_is_named_while_it_is_waited_for() {
    let env = env().with_env("ANTHROPIC_API_KEY", "k");
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    let servers = env.mcp_config("work/m.json", &json!({"slow": {"command": "/bin/sleep", "args": ["60"]}}));
    let commands = [&["tools", "list"][..], &["doctor"], &["job", "--check", &job]];
    let started: Vec<_> =
        commands.map(|words| env.start(&[words, &["--mcp-config", &servers]].concat())).into_iter().collect();
    for process in started {
        until("the word about the server", || process.stderr().contains("still starting"));
        assert!(process.stderr().contains("`slow`"), "{}", process.stderr());
        process.signal(Signal::KILL);
        process.wait();
    }
}

#[test]
fn status_counts_every_run_and_says_how_many_it_does_not_list() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    // Many runs as they are stored, older ones first.
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    for (name, count, status, reason) in [
        ("f", 1_u32, "failed", None),
        ("k", 1, "running", None),
        ("s", 60, "succeeded", None),
        ("b", 60, "stopped", Some("budget")),
    ] {
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
                   INSERT INTO runs (run_id, created_at, updated_at, status, stop_reason, entrypoint, run_mode, run_spec_json, last_job_prompt,
                                     workspace_dir, launch_json, root_run_id)
                   SELECT ?1 || i, created_at, updated_at, ?3, ?4, entrypoint, run_mode, run_spec_json, last_job_prompt, workspace_dir,
                          launch_json, ?1 || i FROM runs, n WHERE run_id = 'r'";
        assert_eq!(
            database.execute(sql, rusqlite::params![name, i64::from(count), status, reason]).unwrap(),
            count as usize
        );
    }
    drop(database);
    let status = env.run(&["status"]).code(0);
    status.shows(&[
        "Ended in the last 24 hours: 61 succeeded, 1 failed\n",
        "k1  ",
        "and 11 more: `ua runs list --status stopped --limit 61 --root ",
        "and 11 more that wait to be resumed\n",
    ]);
    let found = env.run(&["status", "--json"]).code(0).json();
    let counted = [&found["succeeded_lately"], &found["failed_lately"]];
    assert_eq!((counted, found["runs"].as_array().unwrap().len()), ([&json!(61), &json!(1)], 61));
}

/// What is kept and what is sent away is read in any folder.
#[test]
fn what_is_read_elsewhere_names_the_folder_of_the_run() {
    let env = env().with_forum();
    let told = env.arg("told.jsonl");
    let env = env.with_env("UA_ALERT_COMMAND", &json!(["/bin/sh", "-c", format!("cat >> {told}")]).to_string());
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_*"]}});
    let job = env.job(&fields, &json!([post, {"text": "Done."}]));
    env.run_bare(&["job", &job, "--run-id", "r"]).code(75);
    let root = env.arg("work/AGENT_RUN_WORKSPACES");
    let alert: Value = serde_json::from_str(env.read("told.jsonl").trim()).unwrap();
    let command = alert["commands"][0].as_str().unwrap();
    assert!(command.contains(" approve") && command.ends_with(&format!(" --root {root}")), "{command}");
    assert!(alert["answer_with"].as_str().unwrap().ends_with(&format!(" --root {root}")), "{alert}");
    let page = env.read("work/AGENT_RUN_WORKSPACES/RESTART.md");
    assert!(page.contains(&format!(" --root {root}")), "{page}");
    let workspace = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    let workspace = workspace.into_iter().find(|path| path.to_string_lossy().contains("session_")).unwrap();
    for name in ["job_completion_r.md", "session_summary.txt"] {
        let text = fs::read_to_string(workspace.join(name)).unwrap();
        let commands =
            text.lines().filter(|line| ["`ua ", "ua answer ", "ua resume "].iter().any(|ua| line.contains(ua)));
        assert!(commands.clone().count() > 0, "{name}: {text}");
        commands.for_each(|line| assert!(line.contains(&root), "{name}: {line}"));
    }
    // As printed, in another folder.
    let (shell, words) = (std::path::Path::new("/bin/sh"), command.strip_prefix("ua ").unwrap());
    let program = ua_e2e::ua_program().display().to_string();
    env.run_program(shell, &[], &["-c", &format!("cd ../home && exec {program} {words}")]).code(0);
}

#[test]
fn a_call_that_only_its_tool_says_failed_never_reads_as_plain_failed() {
    let env = env().with_forum();
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x", "fail": "out of stock"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"])
        .code(0)
        .shows(&["Of 1 call with an effect: 1 failed and may have happened.", "failed, may have happened"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&[
        "1 failed and may have happened",
        "post_comment  ",
        "failed, may have happened",
    ]);
    env.run(&["calls", "list"]).code(0).shows(&["failed, may have happened"]);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    env.run(&["calls", "show", &call])
        .code(0)
        .shows(&[" · failed, may have happened", "running → failed, may have happened"]);
    let listed = env.run(&["calls", "list", "--json"]).code(0).json();
    assert_eq!(
        (&listed[0]["status"], &listed[0]["shown_status"]),
        (&json!("failed"), &json!("failed, may have happened"))
    );
    // It is listed before it is forgotten, and a word that was said before anybody read the list is not enough.
    let dry = env.run(&["runs", "delete", "r", "--dry-run", "--json"]).code(0).json();
    assert!(
        dry["deleted"][0]["may_have_happened"][0].as_str().unwrap().contains("its tool says that it failed"),
        "{dry}"
    );
    let why = "1 call of run r failed, as the tool says, and may have happened";
    let hints = ["ua calls list --run r", "--as happened", "--force beside --yes"];
    env.run(&["runs", "delete", "r", "--yes"]).refused(2, &[&[why, "nothing was deleted"][..], &hints].concat());
    let kept = env.run(&["runs", "delete", "--older-than", "0s", "--yes"]).code(0);
    kept.says(&[&format!("run r is kept: {why}")]).shows(&["deleted 0 runs"]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
    let told = ["may have happened: `post_comment`", "deleted 1 run"];
    env.run(&["runs", "delete", "r", "--yes", "--force"]).code(0).shows(&told);
}

/// Once somebody said what became of it, nothing is left that may have happened.
#[test]
fn a_failure_that_a_person_looked_up_keeps_no_run_from_being_deleted() {
    for outcome in ["happened", "not_happened"] {
        let env = env().with_forum();
        let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x", "fail": "no"}}]});
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        let call = env.value("SELECT tool_call_id FROM tool_calls");
        env.run(&["calls", "resolve", &call, "--as", outcome, "--reason", "looked there", "--yes"]).code(0);
        env.run(&["runs", "delete", "r", "--yes"]).code(0).shows(&["deleted 1 run"]);
    }
}

#[test]
fn a_database_that_is_none_has_a_hint_about_copies() {
    let env = env();
    env.write("root/runtime_state.db", "garbage, and more of it");
    let root = env.path("root");
    let said = env.run_in(root.as_os_str(), &["status"]).refused(74, &["the file is not a database", "ua db restore"]);
    assert_eq!(said.stderr.matches("not a database").count(), 1, "{}", said.shown());
    assert!(!said.stderr.contains("ua resume"), "{}", said.shown());
}

#[test]
fn a_job_comes_on_standard_input_too() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    let piped = |text: &str, more: &str| {
        let file = env.write("work/piped.json", text);
        env.run_by_bash(&format!("\"$@\" job - {more} < {file}"))
    };
    let text = fs::read_to_string(&job).unwrap();
    piped(&text, "--run-id piped").code(0).shows(&["succeeded"]);
    // What the job names beside itself is in the current folder, and a byte order mark says nothing.
    piped(&format!("\u{feff}{text}"), "--run-id marked").code(0);
    piped("{\"objective\": ", "").refused(2, &["invalid job on standard input", "JSON object"]);
    piped(&format!("{{\"objective\": \"{}\"}}", "x".repeat(300_000)), "").refused(2, &["at most 262144"]);
    env.run(&["resume", "piped"]).code(0);
}

#[test]
fn a_byte_order_mark_in_front_of_a_file_is_no_error() {
    let env = env();
    env.write("work/s.json", "\u{feff}{\"turns\": [{\"text\": \"hi\"}]}");
    env.write("work/p.toml", "\u{feff}[[rule]]\nid = \"a\"\nname = \"notify\"\napproval = \"ask\"\n");
    let servers = env.write("work/m.json", "\u{feff}{\"mcpServers\": {}}");
    let job = json!({"objective": "x", "policies": ["p.toml"], "model": {"provider": "scripted", "script": "s.json"}});
    let job = env.write("work/bom.json", format!("\u{feff}{job}"));
    env.run(&["job", &job, "--mcp-config", &servers]).code(0);
}

#[test]
fn status_says_what_waits_and_how_to_resume() {
    let env = env().with_forum();
    env.run(&["status"]).code(0).shows(&["nothing runs, and nothing waits for you"]);
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["status"]).code(0).shows(&["crashed: ua resume r --root "]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["status"]).code(0).shows(&["waiting for you", "of run r", "ua questions"]);
    let found = env.run(&["status", "--json"]).code(0).json();
    assert_eq!(
        (&found["runs"][0]["run_id"], &found["runs"][0]["shown_status"]),
        (&json!("r"), &json!("waiting for you"))
    );
    let answer = found["questions"][0]["answer_with"][0].as_str().unwrap().to_owned();
    let words: Vec<&str> = answer.split(' ').skip(1).collect();
    env.run(&words).code(0);
    env.run(&["status"]).code(0).shows(&["answered"]);
    env.run(&["resume", "r"]).code(0);
    env.run(&["status"]).code(0).shows(&["nothing waits for you", "Ended in the last 24 hours: 1 succeeded\n"]);
}

#[test]
fn lists_of_a_folder_without_runs_are_empty() {
    let env = env();
    for (args, says) in [
        (&["runs", "list"][..], "there are no runs here"),
        (&["calls", "list"], "no such calls"),
        (&["questions"], "nothing waits for an answer"),
    ] {
        env.run(args).code(0).says(&[says]);
        assert_eq!(env.run(&[args, &["--json"]].concat()).code(0).json(), json!([]), "{args:?}");
    }
    env.run(&["answer"]).code(0).says(&["nothing waits for an answer"]);
    assert_eq!(env.run(&["answer", "--json"]).code(0).json()["question_id"], json!(null));
    assert!(!env.root().exists());
}

#[test]
fn runs_are_found_from_a_folder_below_theirs() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    env.run_bare(&["job", &job, "--run-id", "above"]).code(0);
    let ignored = fs::read_to_string(env.path("work/AGENT_RUN_WORKSPACES/.gitignore")).unwrap();
    assert!(ignored.contains("\n*\n"), "{ignored}");
    fs::create_dir_all(env.path("work/deep/er")).unwrap();
    let program = ua_e2e::ua_program().display().to_string();
    let below = |args: &str| {
        let shell = std::path::Path::new("/bin/sh");
        env.run_program(shell, &[], &["-c", &format!("cd deep/er && exec {program} {args}")])
    };
    below("runs list").code(0).shows(&["above", "succeeded"]);
    below("runs show last").code(0).shows(&["run above"]);
    assert!(!env.path("work/deep/er/AGENT_RUN_WORKSPACES").exists());
    // Whoever comes back to another folder is told where the runs are.
    fs::create_dir_all(env.path("other")).unwrap();
    let elsewhere = |args: &str| {
        let shell = std::path::Path::new("/bin/sh");
        env.run_program(shell, &[], &["-c", &format!("cd ../other && exec {program} {args}")])
    };
    let root = env.arg("work/AGENT_RUN_WORKSPACES");
    for args in ["status", "runs list", "questions"] {
        elsewhere(args).code(0).says(&["note: no job was run in ", &format!("your runs are in {root}")]);
    }
    // So is who started a job of that folder there, whose runs are kept together.
    let kept = format!("runs are kept in {root}, where those of this job file are; `--root DIR` names another folder");
    let there = elsewhere("job ../work/job.json --new --run-id there").code(0).says(&[&kept]);
    assert_eq!(there.stderr.matches("runs are kept in").count(), 1, "{}", there.shown());
    let named = format!("`ua status --root {root}` shows those of the folder that was used last");
    for args in ["resume last", "answer abcdef approve", "runs show last", "calls list"] {
        let said = elsewhere(args).says(&["note: no job was run in ", &named]);
        assert!(!said.stderr.contains("no job was run here yet; start one"), "{}", said.shown());
    }
}

#[test]
fn a_word_that_other_programs_have_leads_to_the_command() {
    let env = env();
    for (word, command) in
        [("run", "ua job FILE"), ("ls", "ua runs list"), ("logs", "ua runs tail RUN"), ("version", "ua --version")]
    {
        env.run_bare(&[word]).refused(2, &[&format!("no command `{word}`"), command]);
    }
    env.run_bare(&["runs", "ls"]).refused(2, &["no command `runs ls`", "ua runs list"]);
    let error: Value = serde_json::from_str(env.run_bare(&["run", "--json"]).code(2).stderr.trim()).unwrap();
    assert_eq!(error["error"]["code"], 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let env = env();
    env.run_bare(&["man", "runs", "list"]).code(0).shows(&[".TH ua-runs-list 1", "ua runs list", "its process died"]);
    env.run_bare(&["man", "rnus"]).refused(2, &["`rnus`", "ua --help"]);
    env.run_bare(&["man", "--out", "man"]).code(0);
    let pages = fs::read_dir(env.path("work/man")).unwrap().count();
    assert!(pages > 40, "{pages}");
    // The page that is printed is the one that is written, and no command is without one.
    let printed = env.run_bare(&["man", "runs", "list"]).code(0).stdout;
    assert_eq!(printed, fs::read_to_string(env.path("work/man/ua-runs-list.1")).unwrap());
    assert_eq!(env.run_bare(&["man"]).code(0).stdout, fs::read_to_string(env.path("work/man/ua.1")).unwrap());
    for line in env.run_bare(&["--help"]).code(0).stdout.lines().filter(|line| line.starts_with("  ")) {
        let Some(name) = line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()) else { continue };
        if line.starts_with("   ")
            || !name.bytes().all(|byte| byte.is_ascii_lowercase())
            || name == "help"
            || name == "ua"
        {
            continue;
        }
        assert!(env.path(&format!("work/man/ua-{name}.1")).exists(), "no page of `{name}`");
    }
    for page in ["ua.1", "ua-job.1", "ua-calls-resolve.1"] {
        let text = fs::read_to_string(env.path("work/man").join(page)).unwrap();
        assert!(text.contains(".SH OPTIONS") || page == "ua.1", "{page}");
    }
}

/// A root with a run, whose database is gone.
fn lost() -> TestEnv {
    let env = env().with_env("ANTHROPIC_API_KEY", "k");
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(env.root().join(format!("runtime_state.db{end}"))).ok();
    }
    env
}

#[test]
fn a_lost_database_is_no_empty_folder() {
    let env = lost();
    for args in [
        &["runs", "list"][..],
        &["status"],
        &["questions"],
        &["resume", "last"],
        &["calls", "list"],
        &["runs", "show", "r"],
    ] {
        env.run(args).refused(74, &["runtime_state.db is gone", "put it back", "nothing was changed"]);
    }
    let job = env.arg("work/job.json");
    env.run(&["job", &job]).refused(74, &["runtime_state.db", "put it back"]);
    let doctor = env.run(&["doctor"]).code(1);
    assert!(!doctor.stdout.contains("belong to no run"), "nobody can say that: {}", doctor.shown());
    doctor.shows(&["fail database", "is gone", "ua db restore"]);
}

#[test]
fn a_program_that_is_not_there_starts_no_run() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "hi"}]));
    let servers = env.mcp_config("work/m.json", &json!({"notes": {"command": "no-such-program"}}));
    let said = ["`no-such-program`", "`notes`", "nothing was started"];
    env.run(&["job", &job, "--mcp-config", &servers]).refused(2, &said);
    env.run(&["tools", "list", "--mcp-config", &servers]).refused(2, &said[..2]);
    assert!(!env.root().exists());
}

#[test]
fn a_server_that_logs_where_messages_belong_is_quoted() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    let entry = json!({"notes": {"command": "/bin/sh", "args": ["-c", "echo listening on port 3000"]}});
    let servers = env.mcp_config("work/m.json", &entry);
    let said = ["tool server `notes` did not start", "listening on port 3000"];
    // A run of it would be stored, and stop.
    env.run(&["job", "--check", &job, "--mcp-config", &servers]).refused(75, &said);
    env.run(&["tools", "list", "--mcp-config", &servers]).refused(2, &said);
}

#[test]
fn ids_are_named_by_their_end_as_well() {
    let env = env().with_forum();
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job]);
    let run = env.value("SELECT run_id FROM runs");
    let end = |id: &str| id[id.len() - 8..].to_owned();
    env.run(&["resume", &end(&run)]).code(75);
    let (call, question) =
        (env.value("SELECT tool_call_id FROM tool_calls"), env.value("SELECT question_id FROM questions"));
    env.run(&["runs", "show", &end(&run)]).code(0).shows(&[&run]);
    env.run(&["calls", "show", &end(&call)]).code(0).shows(&[&call]);
    env.run(&["calls", "list", "--run", &end(&run)]).code(0).shows(&["post_comment"]);
    // A few letters settle nothing.
    env.run(&["answer", "q_", "happened"]).refused(2, &["too short", "cannot be taken back"]);
    env.run(&["answer", &end(&question), "happened"]).code(0);
    env.run(&["runs", "show", "zzzzzzzz"]).refused(2, &["there is no run `zzzzzzzz`"]);
    env.run(&["resume", &end(&run)]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_deletion_that_nobody_confirms_deletes_nothing() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    for args in [&["runs", "delete", "r"][..], &["runs", "delete", "--older-than", "0s"]] {
        env.run(args).refused(2, &["nobody can confirm", "--yes", "nothing was deleted"]);
    }
    // Whoever names none is told which there are, and how they are deleted.
    let told = ["name the runs to delete; 1 run is finished", "r · succeeded · ", "`ua runs delete RUN` deletes one"];
    env.run(&["runs", "delete"]).refused(2, &told);
    env.run(&["runs", "delete", "--yes", "--force"]).refused(2, &told);
    assert_eq!(env.run_status(), "succeeded");
    env.run(&["runs", "delete", "r", "--yes"]).code(0).shows(&["deleted 1 run"]);
}

#[test]
fn a_tool_server_that_takes_long_to_start_is_named() {
    let env = env();
    let gate = env.arg("gate");
    let mut entry = env.forum_entry(&[]);
    let (program, args) = (entry["command"].clone(), entry["args"].as_array().unwrap().clone());
    let wait = format!("until [ -e {gate} ]; do sleep 0.1; done; exec \"$@\"");
    entry["command"] = json!("/bin/sh");
    entry["args"] = [json!("-c"), json!(wait), json!("sh"), program].into_iter().chain(args).collect();
    let servers = env.mcp_config("work/servers.json", &json!({"forum": entry}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let running = env.start(&["job", &job, "--mcp-config", &servers]);
    ua_e2e::until("the name of the server", || running.stderr().contains("still starting"));
    assert!(running.stderr().contains("(`forum`)"), "{}", running.stderr());
    env.write("gate", "");
    running.wait().code(0);
}

/// Whoever may open too few files for a first start is told so, with what helps; and whatever is left of it is good for the next command: no folder is
/// taken for somebody else's.
#[test]
fn a_first_start_that_may_open_too_few_files_leaves_nothing_in_the_way() {
    let mut told = 0;
    for (is_root_named, most) in
        [true, false].into_iter().flat_map(|is_named| (4..=24).map(move |most| (is_named, most)))
    {
        let env = env();
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
        let first = env.run_with_open_files(most, is_root_named, &["job", &job, "--run-id", "first"]);
        if first.stderr.contains("cannot create ") && first.stderr.contains("let this process open more files") {
            told += 1;
            first.code(74);
        }
        let again = ["job", &job, "--new", "--run-id", "second"];
        let second = if is_root_named { env.run(&again) } else { env.run_bare(&again) };
        second.code(0);
    }
    assert!(told > 0, "at no limit it was the folder that could not be made");
}
