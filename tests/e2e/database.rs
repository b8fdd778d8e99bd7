//! `ua db`: the database is examined, copied and put back, and one that is an older copy sends nothing.

use std::fs;

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn comment_job(env: &TestEnv) -> String {
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}]);
    env.job(&json!({"tools": {"builtin": false}}), &turns)
}

/// A run that stopped before it sent anything, and what resumes it.
fn stopped_run(env: &TestEnv) -> String {
    let broken = env.mcp_config("work/broken.json", &json!({"forum": {"command": "false"}}));
    env.run(&["job", &comment_job(env), "--run-id", "r", "--mcp-config", &broken]).code(75);
    env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}))
}

fn checked(env: &TestEnv, code: i32) -> Value {
    env.run(&["db", "check", "--invariants", "--json"]).code(code).json()
}

/// Whatever made the second copy: what is sent by one of them the other does not know, and both work in one folder.
#[test]
fn a_run_is_not_driven_from_two_copies_of_its_database() {
    let env = env().with_forum();
    let good = stopped_run(&env);
    let (copy, second, third) = (env.arg("copy.db"), env.arg("second"), env.arg("third"));
    env.run(&["db", "backup", &copy]).code(0);
    let copied = std::process::Command::new("cp").arg("-a").arg(env.root()).arg(&second).status().unwrap();
    assert!(copied.success());
    // A name that is wrong makes no folder; the root itself is made.
    let letter = env.write("letter.txt", "no copy");
    env.run(&["db", "restore", &letter, "--root", &third]).refused(74, &["cannot restore", "nothing was changed"]);
    assert!(!env.path("third").exists());
    env.run(&["db", "restore", &copy, "--root", &third]).code(0);
    let said = ["two copies of one database", "nothing was sent"];
    for root in [&second, &third] {
        env.run(&["resume", "r", "--mcp-config", &good, "--root", root]).refused(74, &said);
    }
    let env = env.with_env("UA_RUNTIME_DB_PATH", &copy);
    env.run(&["resume", "r", "--mcp-config", &good]).refused(74, &said);
    let env = env.without_env("UA_RUNTIME_DB_PATH");
    assert_eq!(env.comments().len(), 0);
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A run that begins in a copied root is another one than that of the same name in the first: a service that remembers keys does both.
#[test]
fn runs_of_one_name_in_a_copied_root_are_two() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "first"]).code(0);
    let second = env.arg("second");
    let copied = std::process::Command::new("cp").arg("-a").arg(env.root()).arg(&second).status().unwrap();
    assert!(copied.success());
    let job = comment_job(&env);
    env.run(&["job", &job, "--new", "--run-id", "nightly"]).code(0);
    env.run(&["job", &job, "--new", "--run-id", "nightly", "--root", &second]).code(0);
    let sql = "SELECT idempotency_key FROM tool_calls WHERE run_id = 'nightly'";
    let there = rusqlite::Connection::open(std::path::Path::new(&second).join("runtime_state.db")).unwrap();
    let theirs: String = there.query_row(sql, [], |row| row.get(0)).unwrap();
    let ours = env.value(sql);
    assert!(!ours.is_empty() && ours != theirs, "{ours}");
    assert_eq!(env.comments().len(), 3);
}

#[test]
fn a_whole_database_is_said_to_be_whole() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    let page = checked(&env, 0);
    assert_eq!(
        (&page["ok"], &page["findings"], &page["violations"], &page["forgotten"], &page["checked_runs"]),
        (&json!(true), &json!([]), &json!([]), &json!([]), &json!(1))
    );
    assert_eq!(page["mirror_lines"], json!(2));
    env.run(&["db", "check"]).code(0).shows(&["Pages          healthy", "none that the database does not know"]);
    env.run(&["db", "migrate"]).code(0).shows(&["has schema"]);
    env.run(&["doctor", "--verbose"])
        .shows(&["ok   database: intact", "`ua db check` also reads each row of finished runs"]);
}

/// What a job needs is read row by row by `ua doctor`; what a finished run left, by `ua db check`.
#[test]
fn a_row_of_a_run_that_is_over_is_left_to_ua_db_check() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    database.execute_batch("PRAGMA ignore_check_constraints = 1").unwrap();
    assert_eq!(database.execute("UPDATE run_steps SET phase = 'work', status = 'odd'", []).unwrap(), 1);
    drop(database);
    let page = env.run(&["db", "check", "--json"]).code(74).json();
    let findings = page["findings"].to_string();
    assert!(
        findings.contains("no write of this program leaves a row like this (CHECK (status = 'ready'"),
        "{findings}"
    );
    env.run(&["doctor", "--verbose"]).shows(&["ok   database: intact"]);
    // What each run is, is looked at of all.
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    assert_eq!(database.execute("UPDATE runs SET updated_at = 'never'", []).unwrap(), 1);
    drop(database);
    env.run(&["doctor"]).code(1).shows(&["fail runs: ", "`ua db check"]);
}

#[test]
fn a_row_that_was_changed_by_hand_is_found() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    assert_eq!(database.execute("UPDATE runs SET turn_index = turn_index + 1", []).unwrap(), 1);
    drop(database);
    let page = checked(&env, 74);
    assert_eq!(page["violations"][0]["invariant"], json!("turns_are_counted"), "{page}");
    env.run(&["db", "check", "--invariants"]).code(74).shows(&["1 run", "turns_are_counted"]);
}

#[test]
fn s19_an_edited_event_is_named_by_ua_db_check() {
    let env = env().with_forum();
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    assert_eq!(env.value("SELECT count(*) FROM tool_call_events WHERE chain IS NULL"), "0");
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'tool_call_events_are_immutable'";
    let trigger: String = database.query_row(trigger, [], |row| row.get(0)).unwrap();
    database.execute_batch("DROP TRIGGER tool_call_events_are_immutable").unwrap();
    let page = checked(&env, 74);
    assert_eq!(page["findings"], json!(["the trigger tool_call_events_are_immutable is missing"]), "{page}");
    let edit = "UPDATE tool_call_events SET at = '2001-01-01T00:00:00.000Z' WHERE to_status = 'running'";
    assert_eq!(database.execute(edit, []).unwrap(), 1);
    // As somebody does who wants to: the trigger comes back.
    database.execute_batch(&trigger).unwrap();
    drop(database);
    let page = checked(&env, 74);
    let findings = page["findings"].as_array().unwrap();
    assert!(findings.len() == 1 && findings[0].as_str().unwrap().contains("run r, is not what was written"), "{page}");
    env.run(&["db", "check"]).code(74).shows(&["is not what was written: it was edited or moved"]);
    env.run(&["doctor"]).code(1).shows(&["fail database"]);
}

#[test]
fn a_copy_is_put_back_and_what_was_there_is_kept() {
    let env = env();
    let good = stopped_run(&env);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0).shows(&["copy.db"]);
    env.run(&["db", "backup", &env.arg("copy.db")]).refused(2, &["exists already", "nothing is overwritten"]);
    env.run(&["db", "backup", &env.arg("nowhere/copy.db")]).refused(2, &["there is no folder", "nothing was copied"]);
    let now = fs::read(env.database_path()).unwrap();
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0).says(&["kept as", "does not count for their budgets"]);
    let kept = fs::read_dir(env.root()).unwrap().flatten().map(|entry| entry.path());
    let kept: Vec<_> = kept
        .filter(|path| {
            let name = path.to_string_lossy().into_owned();
            name.contains("runtime_state.db.before-") && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fs::read(&kept[0]).unwrap(), now);
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!((env.comments().len(), checked(&env, 0)["ok"].clone()), (1, json!(true)));
}

#[test]
fn a_file_that_is_no_copy_of_ours_is_not_put_in_place() {
    let env = env();
    stopped_run(&env);
    let before = fs::read(env.database_path()).unwrap();
    let letter =
        env.write("letter.db", "This is no database, but a letter that is long enough to look like one. ".repeat(100));
    env.run(&["db", "restore", &letter]).refused(74, &["not a database", "ua db backup"]);
    let foreign = rusqlite::Connection::open(env.path("foreign.db")).unwrap();
    foreign.execute_batch("PRAGMA application_id = 77; CREATE TABLE notes (text TEXT);").unwrap();
    drop(foreign);
    env.run(&["db", "restore", &env.arg("foreign.db")]).refused(74, &["another program"]);
    env.run(&["db", "backup", &env.arg("whole.db")]).code(0);
    let mut bytes = fs::read(env.path("whole.db")).unwrap();
    let end = bytes.len() - 4096;
    bytes[3 * 4096..end].fill(0x5a);
    fs::write(env.path("whole.db"), bytes).unwrap();
    env.run(&["db", "restore", &env.arg("whole.db")]).refused(74, &["damaged"]);
    env.run(&["db", "restore", &env.arg("nothing.db")]).refused(2, &["there is no file"]);
    assert_eq!(fs::read(env.database_path()).unwrap(), before);
}

/// The copy does not know that the comment was posted; driving the run on would post it again.
#[test]
fn a_database_that_went_back_in_time_sends_nothing_until_a_person_looked() {
    let env = env();
    let good = stopped_run(&env);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 1);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0).says(&[
        "after the copy was made",
        "post_comment",
        "ua db accept",
    ]);

    env.run(&["resume", "r", "--mcp-config", &good])
        .refused(74, &["is an older copy", "post_comment", "ua db accept r"]);
    assert_eq!((env.comments().len(), env.run_status()), (1, "stopped".to_owned()));
    let page = checked(&env, 74);
    assert_eq!((page["ok"].clone(), page["forgotten"][0]["run_id"].clone()), (json!(false), json!("r")));

    env.run(&["db", "accept", "r"]).code(0).says(&["accepted", "post_comment"]);
    env.run(&["db", "accept", "r"]).code(0).says(&["nothing to accept"]);
    assert_eq!(checked(&env, 0)["ok"], json!(true));
    env.run(&["resume", "r", "--mcp-config", &good]).code(75).shows(&["Did `post_comment` happen?", "effects.log"]);
    assert_eq!(env.comments().len(), 1, "nobody said that it is to be posted once more");
    env.run(&["answer", &env.value("SELECT question_id FROM questions"), "retry"]).code(0);
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 2, "the person took it on");
}

#[test]
fn a_run_that_the_database_forgot_may_still_be_cancelled() {
    let env = env();
    let good = stopped_run(&env);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
    env.run(&["runs", "cancel", "r"]).code(0);
    env.run(&["resume", "r", "--mcp-config", &good]).code(1);
    assert_eq!((env.comments().len(), env.run_status()), (1, "cancelled".to_owned()));
    // Its record is all that is left of what nobody has looked at.
    env.run(&["runs", "delete", "r", "--yes"]).refused(2, &["effects.log knows 1 effect of run r", "ua db accept r"]);
    env.run(&["runs", "delete", "--older-than", "0s", "--yes"]).code(0).says(&["run r is kept: effects.log knows"]);
    env.run(&["runs", "delete", "r", "--yes", "--force"]).code(0).shows(&["may have happened", "post_comment"]);
}

#[test]
fn looking_after_a_database_that_is_not_there_makes_none() {
    let env = env();
    for command in [&["db", "check"][..], &["db", "migrate"], &["db", "backup", "copy.db"]] {
        env.run(command).refused(2, &["no runtime database"]);
    }
    assert!(!env.root().exists());
}
