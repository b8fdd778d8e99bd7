//! What somebody forgot: the URL of the server, a copy that is still about, a worker at an upgrade.

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::{answer_all, at_the_gate_with, is_all_done, on_both, open_the_gate, state, status};
use crate::env;
use crate::server_database::{cluster, comment_job, on_server};

/// Every command that would make a database, or read one, where the runs of the root are on a server that is not named.
fn is_refused_without_its_url(env: &TestEnv, words: &[&str]) {
    let job = comment_job(env);
    for command in [
        &["submit", &job][..],
        &["submit", &job, "--new"],
        &["job", &job],
        &["worker", "--until-empty"],
        &["schedule", "add", "often", &job, "--cron", "@hourly"],
        &["runs", "list"],
        &["queue", "list"],
        &["schedule", "list"],
    ] {
        let refused = env.run(command).code(74);
        for word in words {
            assert!(refused.stderr.contains(word), "{command:?}: {}", refused.stderr);
        }
    }
    assert!(!env.root().join("runtime_state.db").exists(), "no other database is begun");
}

/// Nothing was begun yet, so nothing but the file under its other name says that there was a database.
#[test]
fn a_queue_that_was_moved_is_not_begun_again_in_a_file() {
    let Some((_, direct)) = on_server("fleet_moved", false) else { return };
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    let url = ["--database-url", &direct];
    env.run(&["db", "migrate", url[0], url[1]]).code(0);
    env.run(&["db", "copy", url[0], url[1]]).code(0);
    is_refused_without_its_url(&env, &["moved to a server", "--database-url"]);
    // Nor is a copy of before used, in its place or elsewhere.
    env.run(&["db", "restore", &env.arg("copy.db")]).refused(74, &["moved to a server"]);
    let elsewhere = env.start_with(("UA_RUNTIME_DB_PATH", &env.arg("copy.db")), &["worker", "--until-empty"]).wait();
    elsewhere.code(75).says(&["run r: ", "moved to a server", "decide which copy counts", "ua queue move r"]);
    std::fs::copy(env.path("copy.db"), env.database_path()).unwrap();
    env.run(&["worker", "--until-empty"]).refused(74, &["is a copy", "moved to a server", "--database-url"]);
    std::fs::remove_file(env.database_path()).unwrap();
    env.run(&["submit", &job, url[0], url[1]]).code(75);
    env.run(&["worker", "--until-empty", url[0], url[1]]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// It never had a file.
#[test]
fn a_root_of_a_server_gets_no_file_beside_it() {
    let Some((there, direct)) = on_server("fleet_served", false) else { return };
    there.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let env = env().with_forum();
    env.run(&["submit", &comment_job(&env), "--run-id", "r", "--database-url", &direct]).code(0);
    is_refused_without_its_url(&env, &["on a server", "--database-url"]);
    env.run(&["worker", "--until-empty", "--database-url", &direct]).code(0);
    is_refused_without_its_url(&env, &["on a server", "--database-url"]);
    assert_eq!(env.comments().len(), 1);
}

/// What a person accepted makes a parked run ready by no means, and whoever accepts it reads what does.
#[test]
fn a_run_that_was_parked_over_an_older_copy_is_accepted_with_the_command_that_has_it_taken() {
    let env = env().with_forum();
    env.run(&["submit", &comment_job(&env), "--run-id", "r"]).code(0);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
    env.run(&["worker", "--until-empty"]).code(75);
    assert_eq!(state(&env, "r"), "parked");
    env.run(&["db", "accept", "r"])
        .code(0)
        .says(&["run r is parked in the queue because of it: `ua queue move r` lets a worker take it"]);
    for command in [&["queue", "list"][..], &["status"]] {
        env.run(command).code(0).shows(&["accepted; `ua queue move r` lets a worker take it"]);
    }
    env.run(&["queue", "move", "r"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((env.comments().len(), env.run(&["questions", "--json"]).json().as_array().unwrap().len()), (1, 1));
}

/// What a run sent that is not in the copy holds up each run that may do the same again. One acceptance is enough for all of them, and whoever reads
/// that one is held is told so; the run that sent cannot be resumed, and nothing says that it can.
#[test]
fn one_acceptance_lets_every_run_that_waits_for_what_a_lost_one_sent() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let other = env.named_job("other", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["submit", &other, "--run-id", "o"]).code(0);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["submit", &job, "--run-id", "sender"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0).says(&["`ua db accept sender` lets all"]);
    for run in ["n1", "n2"] {
        env.run(&["submit", &job, "--run-id", run, "--new"]).code(0);
    }
    env.run(&["worker", "--until-empty"]).code(75);
    assert_eq!((state(&env, "n1"), state(&env, "n2")), ("parked".to_owned(), "parked".to_owned()));
    let all = "`ua db accept sender`, which accepts it for every run that waits for it";
    env.run(&["status"]).code(0).shows(&["`ua db accept n1`", all]);
    let accepted = env
        .run(&["db", "accept", "sender"])
        .code(0)
        .says(&["run sender is not in this database", "`ua queue move n1 n2` lets a worker take them"]);
    assert!(!accepted.stderr.contains("may be resumed"), "{}", accepted.stderr);
    env.run(&["queue", "move", "n1", "n2"]).code(0);
    env.run(&["worker", "--until-empty"]);
    assert_eq!(env.comments().len(), 1, "the first that is about to do the like is asked");
}

/// Only a person can say which of two copies counts, so whoever works until nothing is left does not wait for that, and says that it is left.
#[test]
fn a_run_that_is_in_two_copies_is_parked() {
    let env = env().with_forum();
    env.run(&["submit", &comment_job(&env), "--run-id", "r"]).code(0);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    let left = env.start_with(("UA_RUNTIME_DB_PATH", &env.arg("copy.db")), &["worker", "--until-empty"]).wait();
    let left = left.code(75).says(&["run r: ", "decide which copy counts", "ua queue move r"]);
    assert_eq!(left.stderr.matches("in two copies of one database").count(), 2, "{}", left.stderr);
    // Also whoever comes behind it and finds it there is told.
    let again = env.start_with(("UA_RUNTIME_DB_PATH", &env.arg("copy.db")), &["worker", "--until-empty"]).wait();
    again.code(75).says(&["1 run left in the queue", "ua queue move r"]);
    assert!(env.comments().is_empty());
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((env.comments().len(), status(&env, "r")), (1, "succeeded".to_owned()));
}

/// The root is a service's, another user's: what root left there its worker could not open, so nothing is left. An answer is given from anywhere.
#[test]
fn a_root_of_another_user_gets_no_file_of_this_one() {
    if !rustix::process::geteuid().is_root() {
        return ua_testkit::skipped("only root can give a folder away");
    }
    on_both("fleet_owner", |env, database| {
        let owned_by = |user: u32| std::os::unix::fs::chown(env.root(), Some(user), Some(user)).unwrap();
        let left = || {
            let entries = std::fs::read_dir(env.root()).unwrap().map(|entry| entry.unwrap().file_name());
            entries.collect::<std::collections::BTreeSet<_>>()
        };
        let job = comment_job(env);
        let refused = || {
            let before = left();
            for command in [
                &["submit", &job][..],
                &["job", &job],
                &["job", &job, "--check"],
                &["worker", "--until-empty"],
                &["schedule", "add", "often", &job, "--cron", "@hourly"],
            ] {
                let words = ["belongs to another user (", "uid 65534)", "sudo -u '#65534' ua", "--root"];
                env.run(command).refused(74, &words);
            }
            assert_eq!(left(), before, "nothing was made");
        };
        std::fs::create_dir_all(env.root()).unwrap();
        owned_by(65534);
        refused();
        assert!(left().is_empty());
        owned_by(0);
        env.run(&["submit", &job, "--run-id", "r"]).code(0);
        if database.is_some() {
            env.run(&["submit", &job, "--run-id", "unwanted"]).code(0);
        }
        owned_by(65534);
        refused();
        if database.is_some() {
            env.run(&["queue", "move", "r", "--priority", "3"]).code(0);
            let before = left();
            let words =
                ["no process drives it", "another user's", "sudo -u '#65534' ua --root", "runs cancel unwanted"];
            env.run(&["runs", "cancel", "unwanted"]).code(0).says(&words);
            assert_eq!(left(), before, "nothing was made");
        }
        owned_by(0);
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!((env.comments().len(), status(env, "r")), (1, "succeeded".to_owned()));
        assert!(database.is_none() || status(env, "unwanted") == "cancelled");
    });
}

/// The schema is brought up to date by a newer program while an old worker is at work: it takes nothing and sends nothing from then on.
#[test]
fn a_worker_that_was_forgotten_at_an_upgrade_sends_nothing_more() {
    let name = "fleet_upgrade";
    let Some((env, direct)) = on_server(name, false) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "later"}}]});
    let later = env.named_job("later", &json!({"tools": {"builtin": false}}), &json!([post, {"text": "Posted."}]));
    env.run(&["submit", &later, "--run-id", "later", "--delay", "2h"]).code(0);
    let worker = at_the_gate_with(&env, &["--concurrency", "4"]);
    let sql = |sql: &str| cluster().unwrap().sql(name, sql).unwrap();
    sql("INSERT INTO ua.refinery_schema_history SELECT version + 1, 'future', applied_on, checksum \
         FROM ua.refinery_schema_history ORDER BY version DESC LIMIT 1");
    sql("UPDATE ua.run_queue SET run_after = '2026-01-01T00:00:00.000Z' WHERE run_id = 'later'");
    until("it says so", || worker.stderr().contains("newer than this program's"));
    open_the_gate(&env);
    until("its run stops", || worker.stderr().contains("run r: "));
    until("its answer is refused", || worker.stderr().matches("newer than this program's").count() > 1);
    assert_eq!(sql("SELECT state FROM ua.run_queue WHERE run_id = 'later'"), ["ready"]);
    assert!(!worker.stderr().contains("answers again"), "nothing has changed: {}", worker.stderr());
    let doctor = env.run(&["doctor", "--json"]);
    let told = format!("{}{}", doctor.stdout, doctor.stderr);
    assert!(told.contains("needs the version of ua that made it") && !told.contains("start the server"), "{told}");
    assert_eq!(env.comments().len(), 1);
    env.run(&["runs", "list"]).refused(74, &["newer than this program's"]);
    // As if it had not been: what was under way is found out, and goes on.
    sql("DELETE FROM ua.refinery_schema_history WHERE name = 'future'");
    let words = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
    until("the end", || {
        answer_all(&env, &words);
        is_all_done(&env)
    });
    assert_eq!((words("hello"), words("later")), (1, 1));
    assert_eq!(state(&env, "r"), "none");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}
