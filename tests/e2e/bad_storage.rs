//! Storage that cannot be used: exit 74, nothing sent, and what was there stays as it was.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv, until};
use ua_testkit::skipped;

use super::env;

fn comment() -> Value {
    json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}])
}

fn comment_job(env: &TestEnv) -> String {
    env.job(&json!({"tools": {"builtin": false}}), &comment())
}

/// A run that stopped without having sent anything: its tool server was not there.
fn stopped_run(env: &TestEnv) {
    let broken = env.mcp_config("work/broken.json", &json!({"forum": {"command": "false"}}));
    env.run(&["job", &comment_job(env), "--run-id", "r", "--mcp-config", &broken]).code(75);
}

/// Resumes it with the tool server.
fn resume(good: &str) -> [&str; 4] {
    ["resume", "r", "--mcp-config", good]
}

fn good(env: &TestEnv) -> String {
    env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}))
}

#[test]
fn a_root_that_cannot_be_made_is_named() {
    let env = env().with_forum();
    env.write("root", "a file in the way");
    env.run(&["job", &comment_job(&env)]).refused(74, &["cannot create", "root", "--root"]);
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn a_database_that_is_newer_than_the_program_is_left_alone() {
    let env = env();
    stopped_run(&env);
    let database = Connection::open(env.database_path()).unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) SELECT 9000, 'later', applied_on, checksum \
                 FROM refinery_schema_history LIMIT 1";
    assert_eq!(database.execute(newer, []).unwrap(), 1);
    drop(database);
    let before = fs::read(env.database_path()).unwrap();
    let good = good(&env);
    env.run(&resume(&good)).refused(74, &["schema 9000", "newer than this program's", "upgrade ua"]);
    env.run(&["job", &comment_job(&env)]).refused(74, &["schema 9000"]);
    env.run(&["runs", "list"]).refused(74, &["schema 9000"]);
    assert_eq!(fs::read(env.database_path()).unwrap(), before);
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let env = env().with_forum();
    fs::create_dir(env.root()).unwrap();
    let foreign = Connection::open(env.database_path()).unwrap();
    foreign
        .execute_batch("PRAGMA application_id = 77; CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine');")
        .unwrap();
    drop(foreign);
    let before = fs::read(env.database_path()).unwrap();
    env.run(&["job", &comment_job(&env)]).refused(74, &["another program", "0x4d"]);
    env.run(&["runs", "list"]).refused(74, &["another program"]);
    assert_eq!(fs::read(env.database_path()).unwrap(), before);
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let env = env().with_forum();
    let text = "This is no database, but a letter that is long enough to look like one. ".repeat(100);
    env.write("root/runtime_state.db", &text);
    env.run(&["job", &comment_job(&env)]).refused(74, &["not a database"]);
    assert_eq!(env.read("root/runtime_state.db"), text);
}

#[test]
fn a_database_that_is_gone_while_workspaces_are_there_is_never_made_anew() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(env.root().join(format!("runtime_state.db{suffix}"))).ok();
    }
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).refused(74, &["no database", "put it back"]);
    assert!(!env.database_path().exists());
    // One that was emptied is as good as gone.
    env.write("root/runtime_state.db", "");
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).refused(74, &["is empty", "put it back"]);
    assert_eq!(env.read("root/runtime_state.db"), "");
    fs::remove_file(env.database_path()).unwrap();
    // Looking finds that it is gone, and makes nothing either.
    env.run(&["resume", "r"]).refused(74, &["runtime_state.db is gone", "put it back"]);
    assert!(!env.database_path().exists());
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_workspace_that_was_moved_away_is_asked_for() {
    let env = env();
    stopped_run(&env);
    let (workspace, good) = (env.workspace(), good(&env));
    fs::rename(&workspace, env.path("elsewhere")).unwrap();
    env.run(&resume(&good)).refused(74, &["workspace of run r", &workspace.display().to_string(), "put it back"]);
    assert_eq!(env.comments(), [""; 0]);
    assert!(!workspace.exists());
    fs::rename(env.path("elsewhere"), &workspace).unwrap();
    env.run(&resume(&good)).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Makes files unchangeable, which holds for root too. Not every file system can, and not every container may.
fn set_immutable(paths: &[std::path::PathBuf], on: bool) -> bool {
    let flag = if on { "+i" } else { "-i" };
    Command::new("chattr").arg(flag).args(paths).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_root_or_database_that_cannot_be_written_sends_nothing() {
    let env = env();
    stopped_run(&env);
    let (database, good) = (env.database_path(), good(&env));
    if !set_immutable(std::slice::from_ref(&database), true) {
        set_immutable(std::slice::from_ref(&database), false);
        return skipped("files cannot be made immutable here");
    }
    let refused = env.run(&resume(&good));
    assert!(set_immutable(&[database], false));
    refused.refused(74, &["cannot open the runtime database: ", "read-only", "lsattr", "may write to both"]);
    assert_eq!(env.comments(), [""; 0]);

    let locks = env.root().join("locks");
    assert!(set_immutable(&[env.root(), locks.clone()], true));
    let refused = env.run(&resume(&good));
    assert!(set_immutable(&[env.root(), locks], false));
    refused.refused(74, &[]);
    assert_eq!(env.comments(), [""; 0]);
    env.run(&resume(&good)).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Wherever the disk becomes full, the exit code is 74, nothing is sent unrecorded, and the run goes on once there is room.
#[test]
fn a_full_disk_sends_nothing_and_loses_nothing() {
    let mut refusals = 0;
    for blocks in [4, 300, 600, 1200] {
        let env = env().with_forum();
        // Each page makes the database grow, so that every limit is met before the comment.
        let page = |n: usize| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": format!("{n} ").repeat(20_000)}}]});
        let mut turns: Vec<Value> = (0..6).map(page).collect();
        turns.extend(comment().as_array().unwrap().iter().cloned());
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!(turns));
        let output = env.run_with_file_limit(blocks, &["job", &job, "--run-id", "r", "--quiet"]);
        if output.shown().starts_with("exit status: 0") {
            assert_eq!(env.comments().len(), 1);
            continue;
        }
        output.refused(74, &[]);
        refusals += 1;
        assert_eq!(env.comments(), [""; 0], "{blocks} blocks");
        // With room again the same command starts or resumes the run.
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        assert_eq!(env.comments().len(), 1, "{blocks} blocks");
    }
    assert!(refusals >= 3, "the limits were not met");
}

#[test]
fn a_log_on_a_full_disk_does_not_end_the_run() {
    let env = env().with_forum();
    env.run_without_stderr(&["job", &comment_job(&env), "--run-id", "r"]).code(0).shows(&["succeeded · run r"]);
    assert_eq!(env.comments().len(), 1);
    env.run_without_stderr(&["resume", "nothing"]).code(2);
}

#[test]
fn a_damaged_database_is_left_alone() {
    let env = env();
    stopped_run(&env);
    let mut bytes = fs::read(env.database_path()).unwrap();
    let end = bytes.len() - 4096;
    bytes[3 * 4096..end].fill(0x5a);
    fs::write(env.database_path(), &bytes).unwrap();
    let good = good(&env);
    env.run(&resume(&good)).refused(74, &["damaged", "restore a backup"]);
    assert_eq!((fs::read(env.database_path()).unwrap() == bytes, env.comments().len()), (true, 0));
}

#[test]
fn locks_that_cannot_be_taken_stop_the_run_before_anything_is_sent() {
    let env = env().with_forum();
    env.write("root/locks", "a file in the way");
    let job = comment_job(&env);
    env.run(&["job", &job, "--run-id", "r"]).refused(74, &["cannot lock ", "must be a folder", "nothing was started"]);
    assert_eq!((env.rows("SELECT run_id FROM runs").len(), env.comments().len()), (0, 0));
    fs::remove_file(env.path("root/locks")).unwrap();
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A run that is stored and cannot be locked would stay behind each time that the command is given again, as the hint says.
#[test]
fn a_folder_of_locks_that_takes_no_new_file_is_refused_before_a_run_is_stored() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let locks = env.root().join("locks");
    if !set_immutable(std::slice::from_ref(&locks), true) {
        set_immutable(std::slice::from_ref(&locks), false);
        return skipped("folders cannot be made immutable here");
    }
    let tried: [&[&str]; 4] = [
        &["job", &job, "--new"],
        &["job", &job, "--run-id", "s"],
        &["submit", &job, "--new"],
        &["fork", "r", "--at-turn", "1"],
    ];
    let refused = tried.map(|args| env.run(args));
    assert!(set_immutable(&[locks], false));
    for (args, refused) in tried.iter().zip(refused) {
        let what = if args[0] == "fork" { "nothing was stored" } else { "nothing was started" };
        refused
            .refused(74, &["cannot create files in", "make that folder writable, then give the command again", what]);
    }
    assert_eq!((env.rows("SELECT run_id FROM runs"), env.comments().len()), (vec!["r".to_owned()], 1));
}

/// Takes away the room that is kept for answers, and has none be kept again: as on a file system that keeps none.
fn without_room_for_answers(root: &Path) {
    let file = root.join("late_replies.log");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
}

/// The disk fills while a tool answers, for the database and for the file beside it: standard error says so, with the call and the command to
/// record it, also where nothing but errors is wanted.
#[test]
fn an_answer_that_is_recorded_nowhere_is_told() {
    let env = env().with_forum();
    let gate = env.path("gate");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    let process = env.start_with_limits(&["job", &job, "--run-id", "r", "--quiet"]);
    until("the comment to be under way", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    without_room_for_answers(&env.root());
    process.limit_files(8192);
    env.write("gate", "");
    let output = process.wait();
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    output.refused(
        74,
        &[
            &format!("the answer of {call} is recorded nowhere"),
            "late_replies.log cannot be written",
            &format!("ua calls resolve {call} --happened"),
        ],
    );
    fs::remove_dir(env.root().join("late_replies.log")).unwrap();
    env.run(&["resume", "r"]).code(75);
    env.run(&["calls", "resolve", &call, "--happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// The disk fills while a tool answers: the process says so also to whoever wants errors alone, the answer is kept where there was room for it
/// before the call was sent, and the database has it once somebody has made room.
#[test]
fn an_answer_waits_until_there_is_room_on_a_full_disk() {
    let env = env().with_forum();
    let gate = env.path("gate");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    let started = env.start_on_small_disk(8, &["job", &job, "--run-id", "r", "--quiet"]);
    let Some((process, root)) = started else { return skipped("no disk can be mounted here") };
    until("the comment to be under way", || env.comments().len() == 1);
    let filler = root.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0x20; 512]).is_ok() {}
    env.write("gate", "");
    until("the answer to wait", || process.stderr().contains("the disk is full: waiting up to 30 min for room"));
    // Whoever takes the run next would find it, were this process killed now.
    let kept = fs::read_to_string(root.join("late_replies.log")).unwrap();
    assert!(kept.ends_with('\n') && kept.lines().count() == 1 && kept.contains("tool_result"), "{kept}");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    drop(file);
    fs::remove_file(&filler).unwrap();
    process.wait().code(0).shows(&["succeeded · run r"]);
    assert_eq!(env.comments().len(), 1);
}

/// How somebody stops a run whose answer no disk has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Once,
    Twice,
    ByAServiceManager,
}

/// What is in the process alone is told as that, and not as a call that is at work. One Ctrl-C does not give it up; what does says what it was.
#[test]
fn an_answer_without_room_is_not_given_up_for_one_ctrl_c() {
    for how in [Stopped::Once, Stopped::Twice, Stopped::ByAServiceManager] {
        let env = env().with_forum();
        let gate = env.path("gate");
        let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
        let started = env.start_on_small_disk(8, &["job", &job, "--run-id", "r"]);
        let Some((process, root)) = started else { return skipped("no disk can be mounted here") };
        until("the comment to be under way", || env.comments().len() == 1);
        without_room_for_answers(&root);
        let filler = root.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0x20; 512]).is_ok() {}
        env.write("gate", "");
        until("the answer to wait", || process.stderr().contains("waiting up to 30 min for room"));
        until("that to be told", || {
            process
                .stderr()
                .contains("post_comment has answered, and the answer waits for room on the disk · still waiting")
        });
        process.signal(if how == Stopped::ByAServiceManager { Signal::TERM } else { Signal::INT });
        let alone = "for room on the disk, for the answer of post_comment: it is in this process alone";
        until("what is waited for", || process.stderr().contains(alone));
        let told = process.stderr();
        assert!(told.contains("Press Ctrl-C again to exit at once and lose that answer"), "{told}");
        assert!(!told.contains("for post_comment (sent"), "it has answered: {told}");
        let lost = [
            "the answer of post_comment (call_",
            "is stored nowhere, and ends with this process; it said: ",
            "--happened",
        ];
        match how {
            Stopped::Once => {
                drop(file);
                fs::remove_file(&filler).unwrap();
                let ended = process.wait().code(130);
                assert!(
                    ended.stderr.contains("post_comment ok in ") && !ended.stderr.contains(lost[1]),
                    "{}",
                    ended.stderr
                );
            }
            Stopped::Twice => {
                process.signal(Signal::INT);
                process.wait().code(130).says(&lost);
            }
            Stopped::ByAServiceManager => {
                assert!(told.contains("Waiting up to 8 s for room on the disk"), "{told}");
                process.wait().code(74).says(&lost);
            }
        }
        assert_eq!(env.comments().len(), 1, "{how:?}");
    }
}

/// Another program holds the database while a tool answers, and the runner is killed before it lets go: the answer lies beside the database.
fn answered_beside_the_database(env: &TestEnv) {
    let gate = env.path("gate");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the comment to be under way", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    let other = Connection::open(env.database_path()).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    env.write("gate", "");
    until("the answer to be kept", || {
        fs::read_to_string(env.root().join("late_replies.log")).is_ok_and(|kept| kept.ends_with('\n'))
    });
    process.signal(Signal::KILL);
    process.wait().killed();
    other.execute_batch("ROLLBACK").unwrap();
}

/// How a run is taken up or ended whose owner died.
#[derive(Debug, Clone, Copy)]
enum Next {
    Resumed,
    Cancelled,
    /// A cancel was stored, and whoever resumes it ends it, with its tools or without.
    EndedByResume {
        has_tools: bool,
    },
}

/// Whoever has the run next stores the answer, also where that ends the run: nobody is asked, and nobody is told that it may have happened.
#[test]
fn an_answer_that_the_database_does_not_take_settles_its_call() {
    for next in [
        Next::Resumed,
        Next::Cancelled,
        Next::EndedByResume { has_tools: true },
        Next::EndedByResume { has_tools: false },
    ] {
        let env = env().with_forum();
        answered_beside_the_database(&env);
        let call = env.value("SELECT tool_call_id FROM tool_calls");
        env.run(&["calls", "show", &call]).code(0).shows(&["kept answer", "attempt 1"]);
        let shown = env.run(&["calls", "show", &call, "--json"]).code(0).json();
        assert_eq!(shown["late_replies"].as_array().map(Vec::len), Some(1), "{shown}");
        let other_word = ["calls", "resolve", &call, "--as", "not_happened", "--reason", "I looked", "--yes"];
        env.run(&other_word).refused(2, &["was answered at", "ua resume", "ua runs cancel r"]);
        match next {
            Next::Resumed => drop(env.run(&["resume", "r"]).code(0)),
            Next::Cancelled => drop(env.run(&["runs", "cancel", "r"]).code(0)),
            Next::EndedByResume { has_tools } => {
                let sql = "UPDATE runs SET cancel_requested_at = updated_at, cancel_reason = 'enough'";
                Connection::open(env.database_path()).unwrap().execute(sql, []).unwrap();
                let forum = if has_tools { env.forum_entry(&[]) } else { json!({"command": "false"}) };
                let config = env.mcp_config("work/next.json", &json!({"forum": forum}));
                drop(env.run(&["resume", "r", "--mcp-config", &config]).code(1));
            }
        }
        assert_eq!((env.comments().len(), env.try_rows("SELECT question_id FROM questions").len()), (1, 0), "{next:?}");
        assert_eq!(env.try_rows("SELECT outcome FROM tool_attempts"), ["replied"], "{next:?}");
        assert_eq!(env.value("SELECT status FROM tool_calls"), "succeeded", "{next:?}");
        let shown = env.run(&["calls", "show", &call]).code(0);
        assert!(!shown.stdout.contains("kept answer"), "{}", shown.stdout);
    }
}

/// A person was asked before the answer was found, and the run ends with what they said: what was answered is stored all the same, since nobody looks
/// for it behind that.
#[test]
fn an_answer_beside_the_database_is_stored_where_a_persons_word_ends_the_run() {
    for word in ["abort", "skip", "retry"] {
        let env = env().with_forum();
        answered_beside_the_database(&env);
        let (kept, away) = (env.root().join("late_replies.log"), env.root().join("away.log"));
        fs::rename(&kept, &away).unwrap();
        env.run(&["resume", "r"]).code(75);
        fs::rename(&away, &kept).unwrap();
        let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
        env.run(&["answer", &question, word]).code(0);
        if word != "abort" {
            env.run(&["runs", "cancel", "r"]).code(0);
        }
        assert_eq!(env.value("SELECT status FROM tool_calls"), "succeeded", "{word}");
        assert_eq!(env.value("SELECT status FROM runs"), if word == "abort" { "failed" } else { "cancelled" });
        assert_eq!(env.comments().len(), 1, "{word}");
    }
}

/// Blocks of a file that are enough for what a command says, and not for what SQLite has to write before it reads.
const TOO_FEW: u32 = 40;

#[test]
fn a_full_disk_is_told_as_one_and_nobody_is_sent_to_an_older_copy() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    // Not even the memory that processes share gets its 32 KiB.
    for args in
        [&["status"][..], &["runs", "list"], &["questions"], &["db", "check"], &["runs", "delete", "r", "--yes"]]
    {
        let output = env.run_with_file_limit(TOO_FEW, args);
        assert!(!output.stderr.contains("restore"), "{}", output.shown());
        output.refused(74, &["the disk is full", "nothing wrong with the database"]);
    }
    let output = env.run_with_file_limit(TOO_FEW, &["doctor"]).code(1);
    let mut lines = output.stdout.lines().skip_while(|line| !line.starts_with("fail database: "));
    let (what, fix) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(what.contains("the disk is full"), "{what}");
    assert!(fix.contains("make room") && !fix.contains("restore") && !fix.contains("migrate"), "{fix}");
    env.run(&["status"]).code(0);
}

#[test]
fn a_folder_of_runs_that_was_renamed_is_told_as_that() {
    let env = env();
    let broken = env.mcp_config("work/project/broken.json", &json!({"forum": {"command": "false"}}));
    let job = comment_job(&env);
    let root = env.path("work/project/AGENT_RUN_WORKSPACES");
    let in_project = |folder: &str, args: &[&str]| {
        env.run_by_bash(&format!("cd {}/{folder} && exec \"$1\" {}", env.arg("work"), args.join(" ")))
    };
    in_project("project", &["job", &job, "--run-id", "r", "--mcp-config", &broken]).code(75);
    assert!(root.is_dir());
    fs::rename(env.path("work/project"), env.path("work/renamed")).unwrap();
    let old = root.display().to_string();
    let back = format!("mv {} {}", env.arg("work/renamed"), env.arg("work/project"));
    for args in [&["status"][..], &["resume", "r"], &["runs", "list"], &["questions"]] {
        in_project("renamed", args).refused(2, &["was moved or renamed", &old, &back]);
    }
    in_project("renamed", &["trust", "AGENT_RUN_WORKSPACES", "--yes"]).code(0);
    in_project("renamed", &["resume", "r"]).refused(74, &["workspace of run r is missing", "moved or renamed", &back]);
    let report = in_project("renamed", &["doctor", "--json"]).json();
    let all: Vec<&Value> =
        report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == "workspaces").collect();
    let [only] = all[..] else { panic!("{report}") };
    assert!(only["detail"].as_str().unwrap().contains("run r"), "{only}");
    let fix = only["fix"].as_str().unwrap();
    assert!(fix.contains(&back) && !fix.contains("remove"), "{only}");
    // The way back works.
    fs::rename(env.path("work/renamed"), env.path("work/project")).unwrap();
    // It was trusted where it lay in between, so it has to be trusted here once more.
    let good = good(&env);
    in_project("project", &["trust", "AGENT_RUN_WORKSPACES", "--yes"]).code(0);
    in_project("project", &["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 1);
    // Who deletes the run in the new place deletes its folder there.
    let sessions = |folder: &str| {
        let entries = fs::read_dir(env.path("work").join(folder).join("AGENT_RUN_WORKSPACES")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("session_")).count()
    };
    fs::rename(env.path("work/project"), env.path("work/renamed")).unwrap();
    in_project("renamed", &["trust", "AGENT_RUN_WORKSPACES", "--yes"]).code(0);
    assert_eq!(sessions("renamed"), 1);
    in_project("renamed", &["runs", "delete", "r", "--yes"]).code(0);
    assert_eq!(sessions("renamed"), 0);
}

#[test]
fn without_a_home_a_run_says_how_the_next_command_finds_it_and_the_refusal_says_why() {
    let env = env();
    let broken = env.mcp_config("work/broken.json", &json!({"forum": {"command": "false"}}));
    let job = comment_job(&env);
    let homeless = |args: &[&str]| {
        env.run_by_bash(&format!("unset HOME XDG_STATE_HOME XDG_CONFIG_HOME; exec \"$1\" {}", args.join(" ")))
    };
    let root = env.path("work/AGENT_RUN_WORKSPACES").display().to_string();
    let named = format!("ua resume r --root {root}");
    homeless(&["job", &job, "--run-id", "r", "--mcp-config", &broken]).code(75).says(&[
        "neither HOME nor XDG_STATE_HOME is set",
        "will refuse it",
        &named,
    ]);
    for args in [&["status"][..], &["resume", "r"], &["job", &job]] {
        let refused = homeless(args);
        assert!(!refused.stderr.contains("was not made by"), "{}", refused.shown());
        refused.refused(2, &["neither HOME nor XDG_STATE_HOME is set", "set HOME", "--root"]);
    }
    let good = good(&env);
    homeless(&["resume", "r", "--root", &root, "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Runs `ua` where the root is mounted read-only; `None` where this user may mount nothing.
fn run_read_only(env: &TestEnv, args: &[&str]) -> Option<Output> {
    let mount = r#"mount --bind "$3" "$3" && mount -o remount,ro,bind "$3" || exit 99"#;
    let args = args.join(" ");
    let output = env.run_by_bash(&format!(
        "exec unshare --map-root-user --mount /bin/bash -c '{mount}; exec \"$1\" {args} \"$2\" \"$3\"' bash \"$@\""
    ));
    (!output.stderr.starts_with("unshare:") && !output.shown().starts_with("exit status: 99")).then_some(output)
}

/// Rows that somebody else wrote may lead from run to run in a circle: whatever follows them comes to an end, nothing is sent, and the check names them.
#[test]
fn runs_that_lead_in_a_circle_end_no_command_in_a_loop() {
    // It works for itself; it is a fork of itself.
    for circle in ["run_mode = 'task'", "forked_at_turn = 1, forked_at_seq = 2"] {
        let env = env();
        stopped_run(&env);
        let database = Connection::open(env.database_path()).unwrap();
        let forged = format!("UPDATE runs SET parent_run_id = run_id, {circle}");
        let triggers = "DROP TRIGGER runs_contract_is_immutable; DROP TRIGGER runs_keep_their_fork_point";
        database.execute_batch(&format!("{triggers}; {forged}")).unwrap();
        drop(database);
        let good = good(&env);
        env.run(&resume(&good)).refused(74, &["the runs above it lead in a circle", "nothing was changed"]);
        env.run(&["fork", "r"]).refused(74, &["the runs above it lead in a circle"]);
        for args in [
            &["status"][..],
            &["questions"],
            &["runs", "list", "--tasks"],
            &["runs", "show", "r"],
            &["runs", "tail", "r", "--no-follow"],
            &["runs", "export", "r", "--out", &env.arg("exported")],
            &["runs", "cancel", "r"],
            &["runs", "delete", "r", "--force", "--yes"],
            &["calls", "list"],
        ] {
            let ended = env.run(args);
            assert!(!ended.is_killed() && !ended.stderr.contains("panicked"), "{circle}, {args:?}: {}", ended.shown());
            if args[..] == ["runs", "show", "r"] {
                env.run(&["db", "check"]).code(74).shows(&["its parent was made after it"]);
            }
        }
        assert_eq!(env.comments(), [""; 0]);
    }
}

#[test]
fn a_root_where_nothing_can_be_written_is_looked_at() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    let there = || fs::read_dir(env.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>();
    let (out, copy) = (env.arg("exported"), env.arg("copy.db"));
    if run_read_only(&env, &["status"]).is_none() {
        return skipped("nothing can be mounted here");
    }
    let looks = [
        &["status"][..],
        &["runs", "list", "--json"],
        &["runs", "show", "r", "--json"],
        &["calls", "list", "--json"],
        &["turns", "show", "r"],
        &["questions"],
        &["db", "check", "--json"],
    ];
    let usual = looks.map(|args| env.run(args).code(0).stdout);
    // Whoever only looked leaves a log in which nothing is, and its index.
    assert_eq!(fs::metadata(env.path("root/runtime_state.db-wal")).map_or(0, |log| log.len()), 0);
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(env.path(&format!("root/runtime_state.db{suffix}"))).unwrap_or_default();
    }
    let before = there();
    for (args, usual) in looks.iter().zip(usual) {
        assert_eq!(run_read_only(&env, args).unwrap().code(0).stdout, usual, "{args:?}");
    }
    run_read_only(&env, &["runs", "export", "r", "--out", &out]).unwrap().code(0);
    run_read_only(&env, &["db", "backup", &copy]).unwrap().code(0);
    assert!(env.path("exported/transcript.md").exists() && env.path("copy.db").exists());
    let deletion = run_read_only(&env, &["runs", "delete", "r", "--yes"]).unwrap();
    deletion.refused(74, &["mounted read-only", "nothing was changed"]);
    assert_eq!(there(), before);
    // What was sent last may stand in a log alone, and SQLite reads none without writing beside it.
    env.write("root/runtime_state.db-wal", "something");
    for args in [&["status"][..], &["runs", "list"], &["questions"]] {
        run_read_only(&env, args).unwrap().refused(74, &["mounted read-only", "left in the log", "copy", "--root"]);
    }
}
