//! `ua` on a PostgreSQL server: the same commands and the same promises.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use ua_e2e::TestEnv;
use ua_sdk::prelude::{Call, Deserialize, Failure, JsonSchema, Model, Outcome, Runs, Step, tool};
use ua_testkit::postgres::SERVER;

use super::env;
use crate::cluster::{Cluster, blocking, skipped};

pub(crate) fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start("")).as_ref()
}

/// Ends every connection to a database, as a server does that goes away.
pub(crate) fn cut_all(name: &str) {
    let Some(cluster) = cluster() else { return };
    let sql = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'");
    cluster.sql("postgres", &sql).unwrap();
}

/// A world whose database is `name` on a server of our own, without a schema; through the pooler if it is there and wanted.
pub(crate) fn on_server(name: &str, is_pooled: bool) -> Option<(TestEnv, String)> {
    let Some(cluster) = cluster() else {
        skipped("PostgreSQL is not installed");
        return None;
    };
    cluster.create(name, "");
    let (direct, pooled) = (cluster.url(name, 5432), cluster.url(name, 6432));
    let url = if is_pooled && cluster.has_pooler() { pooled } else { direct.clone() };
    Some((env().with_forum().with_env("UA_DATABASE_URL", &url), direct))
}

pub(crate) fn comment_job(env: &TestEnv) -> String {
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}]);
    env.job(&json!({"tools": {"builtin": false}}), &turns)
}

/// What `ua db check` says of a database in which every run is as it must be.
fn is_whole(env: &TestEnv, runs: u32) {
    let page = env.run(&["db", "check", "--invariants", "--json"]).code(74).json();
    assert_eq!((&page["violations"], &page["checked_runs"]), (&json!([]), &json!(runs)), "{page}");
    // The servers of tests do without syncs, and that is what is wrong with them.
    assert_eq!(page["findings"].as_array().unwrap().len(), 1, "{page}");
    assert!(page["findings"][0].as_str().unwrap().contains("fsync = off"), "{page}");
}

#[test]
fn a_job_runs_on_a_server_once_its_schema_is_made() {
    let Some((env, direct)) = on_server("first", false) else { return };
    env.run(&["job", &comment_job(&env), "--run-id", "r"])
        .refused(74, &["does not have this program's schema", "ua db migrate"]);
    assert!(env.comments().is_empty());
    env.run(&["db", "migrate", "--database-url", &direct]).code(0).shows(&["database first on", "has schema 11"]);
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    env.run(&["runs", "list"]).code(0).shows(&["r", "succeeded"]);
    env.run(&["calls", "list", "--run", "r"]).code(0).shows(&["post_comment", "succeeded"]);
    env.run(&["runs", "show", "last"]).code(0).shows(&["succeeded"]);
    is_whole(&env, 1);
    assert!(!env.root().join("runtime_state.db").exists(), "there is no file beside the server");
    env.run(&["db", "backup", "copy.db"]).refused(2, &["pg_dump"]);
    env.run(&["runs", "delete", "r", "--yes"]).code(0);
    is_whole(&env, 0);
}

/// A server that went back without a sign of its own is found by what its root noted of a run; what cannot be read of that is told. The notes of runs
/// that are over end with them.
#[test]
fn a_check_compares_what_the_root_noted_of_its_runs() {
    let Some((env, _)) = on_server("noted", false) else { return };
    let sql = |sql: &str| cluster().unwrap().sql("noted", sql).unwrap();
    env.run(&["db", "migrate"]).code(0);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &comment_job(&env), "--run-id", "r"]);
    let (note, other) = (env.root().join("locks/r.confirmed"), env.root().join("locks/x.confirmed"));
    assert!(note.exists(), "the start was confirmed");
    let confirmed = "the server had confirmed batch ";
    let well = env.run(&["db", "check"]);
    assert!(!well.stdout.contains(confirmed), "{}", well.shown());

    sql("UPDATE ua.run_writes SET batches = 0");
    std::fs::write(&other, "damaged").unwrap();
    let told =
        env.run(&["db", "check"]).code(74).shows(&[confirmed, " of run r, and has batch 0 ", "Held           1 run"]);
    told.says(&["what the server confirmed of run x cannot be read", "locks/x.confirmed"]);
    env.run(&["resume", "r"]).refused(74, &["ua db accept r"]);
    env.run(&["db", "accept", "r"]).code(0);
    let accepted = env.run(&["db", "check"]);
    assert!(!accepted.stdout.contains(confirmed) && !accepted.stdout.contains("Held"), "{}", accepted.shown());

    env.run(&["runs", "delete", "r", "--force", "--yes"]).code(0);
    env.run(&["db", "prune", "--dry-run"]).code(0);
    assert!(note.exists(), "it tells what no mark tells yet");
    env.run(&["db", "prune"]).code(0);
    assert!(!note.exists() && other.exists() && env.root().join("locks/database_mark").exists());
    // The mark tells of whatever was before it.
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &comment_job(&env), "--new", "--run-id", "s"]);
    std::fs::remove_file(env.root().join("locks/s.confirmed")).unwrap();
    sql("DELETE FROM ua.meta WHERE key LIKE 'root/%'");
    env.run(&["resume", "s"]).refused(74, &["ua db accept s"]);
    assert_eq!(env.comments().len(), 2);
}

/// Killed between an effect and its receipt, through a pooler: nobody knows, so a person is asked, and the effect is had once.
#[test]
fn a_run_on_a_server_that_was_killed_asks_and_goes_on() {
    let Some((env, direct)) = on_server("killed", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &comment_job(&env), "--run-id", "r"]);
    env.run(&["runs", "list"]).code(0).shows(&["crashed"]);
    env.run(&["resume", "r"]).code(75);
    let asked: Value = env.run(&["questions", "--json"]).code(0).json();
    let question = asked.as_array().map_or_else(|| asked["questions"][0].clone(), |all| all[0].clone());
    let question = question["question_id"].as_str().unwrap().to_owned();
    env.run(&["answer", &question, "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    is_whole(&env, 1);
}

/// A URL with a slip in it leads to a database that knows none of the runs whose workspaces are here.
#[test]
fn a_wrong_url_calls_no_workspace_superfluous() {
    let Some((env, right)) = on_server("doctor_right", false) else { return };
    let Some((_other, wrong)) = on_server("doctor_wrong", false) else { return };
    env.run(&["db", "migrate", "--database-url", &right]).code(0);
    env.run(&["db", "migrate", "--database-url", &wrong]).code(0);
    env.run(&["job", &comment_job(&env), "--run-id", "r", "--database-url", &right]).code(0);
    let well = env.run(&["doctor", "--verbose", "--database-url", &right]);
    assert!(!well.stdout.contains("without a run"), "{}", well.shown());
    let told = env.run(&["doctor", "--database-url", &wrong]).code(1);
    let told = told.shows(&[
        "is used with another database on a server, and its runs are not in this one",
        "1 folder without a run in the database doctor_wrong on",
        "keep them: ",
    ]);
    assert!(!told.stdout.contains("remove them"), "{}", told.shown());
    // Without the URL there is no file either, and what is said of that names the server.
    let env = env.without_env("UA_DATABASE_URL");
    env.run(&["db", "backup", &env.arg("copy.db")]).refused(74, &["in a database on a server", "--database-url"]);
    assert!(!env.path("copy.db").exists());
}

/// Locks and workspaces lie in the root, so from a second root nobody can tell whether a run is driven.
#[test]
fn a_run_on_a_server_is_driven_from_the_root_that_began_it() {
    let Some((env, _)) = on_server("shared", false) else { return };
    env.run(&["db", "migrate"]).code(0);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &comment_job(&env), "--run-id", "r"]);
    let other = env.arg("other");
    env.run(&["runs", "list", "--root", &other]).code(0).shows(&["r"]);
    // What can be done from there is said with the ids that it takes.
    let first = std::fs::read_to_string(env.root().join("locks/root_id")).unwrap();
    let forget = format!("`ua workers forget {}", first.trim());
    let refused = env.run(&["resume", "r", "--root", &other]).refused(2, &["is driven in", &forget]);
    assert!(!refused.stderr.contains("ua answer"), "nothing is asked: {}", refused.stderr);
    env.run(&["resume", "r"]).code(75);
    let asked: Value = env.run(&["questions", "--json"]).code(0).json();
    let answer = format!("`ua answer {}", asked[0]["question_id"].as_str().unwrap());
    env.run(&["resume", "r", "--root", &other]).refused(2, &[&answer, &forget]);
    env.run(&["job", &comment_job(&env), "--root", &other]).refused(75, &[&answer, &forget]);
    assert_eq!(env.comments().len(), 1);
    // Another run is another matter.
    env.run(&["job", &comment_job(&env), "--new", "--run-id", "s", "--root", &other]).code(0);
    assert_eq!(env.comments().len(), 2);
}

/// Whoever starts the job of an unfinished run is told of that run in whatever root it is, and nothing is done again.
#[test]
fn a_job_that_is_unfinished_in_another_root_is_not_begun_again() {
    let Some((env, direct)) = on_server("beside", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let job = comment_job(&env);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let other = env.arg("other");
    let told =
        ["run r of the same job is at work in", "or was left there", "nobody knows what happened to a call", "--new"];
    env.run(&["job", &job, "--root", &other]).refused(75, &told);
    env.run(&["submit", &job, "--root", &other]).refused(75, &told);
    env.run(&["job", "--check", &job, "--root", &other]).code(75);
    assert_eq!(env.comments().len(), 1);

    // One in the queue does not hide the one that is in doubt, neither there nor here.
    env.run(&["submit", &job, "--new", "--run-id", "q", "--root", &other]).code(0);
    env.run(&["job", &job, "--root", &other])
        .refused(75, &["run r of the same job is at work in", "run q of it is in the queue"]);
    env.run(&["job", &job])
        .refused(75, &["run r of the same job was killed", "run q of it is in the queue", "ua resume r"]);
    assert_eq!(env.comments().len(), 1);
}

/// Two machines that begin one job at one moment begin one run.
#[test]
fn of_two_roots_that_begin_a_job_at_once_one_does() {
    let Some((env, direct)) = on_server("at_once", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    for round in 1..=3 {
        let tool = json!({"name": "mcp__forum__post_comment", "input": {"text": format!("round {round}")}});
        let turns = json!([{"tools": [tool]}, {"text": "Posted."}]);
        let job = env.named_job(&format!("job{round}"), &json!({"tools": {"builtin": false}}), &turns);
        let roots = [env.arg("one"), env.arg("two"), env.arg("three")];
        let begun: Vec<_> = roots.iter().map(|root| env.start(&["submit", &job, "--root", root])).collect();
        let said: Vec<_> = begun.into_iter().map(ua_e2e::Live::wait).collect();
        let refused = said.iter().filter(|output| output.stderr.contains("of the same job")).count();
        assert_eq!(refused, 2, "{said:?}");
    }
    // Each root works on what was queued there, and says what it cannot drive.
    for root in ["one", "two", "three"] {
        let _said = env.run(&["worker", "--until-empty", "--root", &env.arg(root)]);
    }
    assert_eq!(env.comments().len(), 3);
}

/// A run that waits for an answer moves with everything that is known of it, and is finished from the server alone.
#[test]
fn a_file_moves_to_a_server_with_its_waiting_run() {
    let Some((on_server, direct)) = on_server("moved", false) else { return };
    let env = env().with_forum();
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &comment_job(&env), "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["db", "copy"]).refused(2, &["--database-url"]);
    let url = ["--database-url", &direct];
    let run = |words: &[&str]| env.run(&[words, &url].concat());
    run(&["db", "copy"]).refused(74, &["ua db migrate"]);
    run(&["db", "migrate"]).code(0);
    let moved = run(&["db", "copy", "--json"]).code(0).json();
    assert!(
        moved["rows"].as_u64().unwrap() > 10 && moved["path"].as_str().unwrap().starts_with("database moved on"),
        "{moved}"
    );
    assert!(moved["kept"].as_str().unwrap().contains("runtime_state.db.moved-"), "{moved}");
    // Without the URL there is nothing to go on with, and nothing is begun anew.
    // What was done on the server since is not in the file, under whatever name.
    let kept = std::path::PathBuf::from(moved["kept"].as_str().unwrap().rsplit(' ').next().unwrap());
    std::fs::copy(&kept, env.database_path()).unwrap();
    env.run(&["resume", "r"]).refused(74, &["was moved to the database moved on", "ua db copy --undo --force"]);
    std::fs::remove_file(env.database_path()).unwrap();
    env.run(&["db", "restore", &kept.display().to_string()]).refused(74, &["was moved to the database moved on"]);
    env.run(&["resume", "r"]).refused(74, &["runtime_state.db is gone", "moved to a server", "--database-url"]);
    env.run(&["db", "backup", &env.arg("b.db")]).refused(74, &["is gone", "moved to a server", "--database-url"]);
    env.run(&["job", &comment_job(&env), "--run-id", "r"]).refused(74, &["moved to a server", "--database-url"]);

    run(&["db", "check", "--invariants"]).code(74).shows(&["fsync = off", "1 run, 0 violations"]);
    run(&["answer", &question, "happened"]).code(0);
    run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    run(&["db", "copy"]).refused(2, &["was moved to a server already"]);
    drop(on_server);
}

/// The file that was moved is put back from a copy, or the copy of a root is what was moved: the other one may go on sending.
#[test]
fn a_run_on_a_server_is_not_driven_beside_a_file_that_has_it_too() {
    let Some((server, direct)) = on_server("beside_a_file", false) else { return };
    server.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let env = server.without_env("UA_DATABASE_URL");
    let broken = env.mcp_config("work/broken.json", &json!({"forum": {"command": "false"}}));
    env.run(&["job", &comment_job(&env), "--run-id", "r", "--mcp-config", &broken]).code(75);
    let good = env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}));
    let (copy, second) = (env.arg("copy.db"), env.arg("second"));
    env.run(&["db", "backup", &copy]).code(0);
    let copied = std::process::Command::new("cp").arg("-a").arg(env.root()).arg(&second).status().unwrap();
    assert!(copied.success());
    let said = ["two copies of one database"];
    env.run(&["db", "copy", "--root", &second, "--database-url", &direct]).refused(74, &said);
    env.run(&["db", "copy", "--database-url", &direct]).code(0);

    let file = env.root().join("runtime_state.db");
    assert!(!file.exists());
    std::fs::copy(&copy, &file).unwrap();
    for command in [["resume", "r"], ["fork", "r"]] {
        let args = [&command[..], &["--mcp-config", &good, "--database-url", &direct]].concat();
        env.run(&args).refused(74, &["two copies of one database", "nothing was sent"]);
    }
    assert!(env.comments().is_empty());
    std::fs::remove_file(&file).unwrap();
    env.run(&["resume", "r", "--mcp-config", &good, "--database-url", &direct]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// What a program sends for one order.
#[derive(Deserialize, JsonSchema)]
struct Invoice {
    order: String,
}

/// A program's runs: stopped behind their first turn, in which an invoice was sent that nobody can have twice.
fn invoices(sent: &Arc<AtomicUsize>) -> Step {
    let sent = sent.clone();
    let send = tool("send_invoice", "Sends an invoice.", async move |_call: Call, invoice: Invoice| {
        sent.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(json!({"sent": invoice.order}))
    });
    let use_of = |order: &str| json!({"tools": [{"name": "mcp__program__send_invoice", "input": {"order": order}}]});
    let turns = json!({"turns": [use_of("A-1"), use_of("A-2"), {"text": "Sent."}]});
    let model = Model::scripted(&turns.to_string()).unwrap();
    Step::new("invoices").model(model).tool(send.external("invoice.send")).input("Send the invoices.").max_turns(1)
}

/// The library face on a server knows a copied folder, and a file that has the run as well, as `ua` does.
#[test]
fn a_program_does_not_drive_its_run_on_a_server_from_two_copies() {
    let Some((server, direct)) = on_server("library_copies", false) else { return };
    server.run(&["db", "migrate"]).code(0);
    let env = server.without_env("UA_DATABASE_URL");
    let (first, second) = (env.path("first"), env.path("second"));
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sent);
    let on_the_server = |folder: &std::path::Path| {
        let (url, folder, step) = (direct.clone(), folder.to_path_buf(), step.clone());
        blocking(async move { Runs::on_server(&url, folder).await.unwrap().run(&step, "november").await })
    };
    let refused = |folder: &std::path::Path, named: &str| {
        let said = on_the_server(folder).unwrap_err().to_string();
        for told in ["two copies of one database", "nothing was sent", named] {
            assert!(said.contains(told), "{told}: {said}");
        }
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    };
    // In a file first, of which there is a copy when it moves.
    let (folder, of_file) = (first.clone(), step.clone());
    let stopped = blocking(async move {
        let runs = Runs::open(folder).unwrap();
        let stopped = runs.run(&of_file, "november").await.unwrap();
        runs.set_budget("november", "max_turns", 5).await.unwrap();
        stopped
    });
    assert!(matches!(stopped, Outcome::Stopped { .. }), "{stopped:?}");
    let (root, copy) = (first.display().to_string(), env.arg("copy.db"));
    env.run(&["db", "backup", &copy, "--root", &root]).code(0);
    env.run(&["db", "copy", "--root", &root, "--database-url", &direct]).code(0);
    std::fs::copy(&copy, first.join("runtime_state.db")).unwrap();
    refused(&first, "first/runtime_state.db");
    std::fs::remove_file(first.join("runtime_state.db")).unwrap();
    // From a copy of the folder.
    let copied = std::process::Command::new("cp").arg("-a").args([&first, &second]).status().unwrap();
    assert!(copied.success());
    refused(&second, "second");
    let finished = on_the_server(&first).unwrap();
    assert!(matches!(finished, Outcome::Complete { .. }), "{finished:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
}

/// The library face on a server: a step is run once and says its result again, from its own folder.
#[test]
fn a_step_of_a_program_is_kept_on_a_server() {
    let Some((env, direct)) = on_server("library", false) else { return };
    env.run(&["db", "migrate"]).code(0);
    let step =
        || Step::new("greeting").model(Model::scripted(r#"{"turns": [{"text": "Hello."}]}"#).unwrap()).input("Greet.");
    for _ in 0..2 {
        let (folder, url) = (env.path("steps"), direct.clone());
        let outcome =
            blocking(
                async move { Runs::on_server(&url, folder).await.unwrap().run(&step(), "november").await.unwrap() },
            );
        let Outcome::Complete { final_output, turns, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((final_output.as_str(), turns), (Some("Hello."), 1));
    }
    assert!(env.path("steps/workspaces/november").is_dir());
    // Another folder takes other runs.
    let folder = env.path("elsewhere");
    let outcome =
        blocking(
            async move { Runs::on_server(&direct, folder).await.unwrap().run(&step(), "december").await.unwrap() },
        );
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert!(env.path("elsewhere/workspaces/december").is_dir());
}

/// The gateway's sessions are in the database that everything else is in: what a client asks for twice is sent once, and shown as on a file.
#[test]
fn a_gateway_keeps_its_sessions_on_a_server() {
    let Some((env, direct)) = on_server("gateway", true) else { return };
    name_the_database(&env, &env.root());
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let said = env.run_by_bash(crate::gateway::CLIENT).code(0).stdout;
    assert_eq!(said.matches("\"isError\":true").count(), 0, "{said}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 2);
    let shown = env.run(&["runs", "show", "last"]).code(0);
    shown.shows(&["Tool calls of probe to `mail`", "the same result was returned, nothing was sent"]);
    let document = env.run(&["runs", "export", "last", "--json"]).code(0).json();
    let rules: Vec<&str> = document["arrivals"].as_array().unwrap().iter().filter_map(|a| a["rule"].as_str()).collect();
    assert_eq!(rules, ["new", "repeat", "new"]);
    assert!(!env.root().join("runtime_state.db").exists(), "there is no file beside the server");
    is_whole(&env, 1);
    // Whoever looks does so where the broker does, also where their own environment names no server.
    let env = env.without_env("UA_DATABASE_URL");
    env.run(&["runs", "show", "last"]).code(0).shows(&["Tool calls of probe to `mail`"]);
    env.run(&["questions"]).code(0);
    let stands = env.run(&["gateway", "status"]).code(0);
    assert!(!stands.stdout.contains("can start") && !stands.stdout.contains("would not start"), "{}", stands.stdout);
}

/// What a broker writes after its file was given to a server would be nowhere.
#[test]
fn no_database_moves_under_a_broker() {
    let Some((env, url)) = on_server("gateway_moves", false) else { return };
    let env = env.without_env("UA_DATABASE_URL");
    env.run_by_bash(crate::gateway::CLIENT).code(0);
    env.run(&["gateway", "start"]).code(0);
    let told = ["a broker of the gateway is running here", "`ua gateway stop --root"];
    env.run(&["db", "copy", "--database-url", &url]).refused(2, &told);
    env.run(&["gateway", "stop"]).code(0);
}

/// Tells every broker of this folder which database is meant: clients' environments say nothing to it.
fn name_the_database(env: &ua_e2e::TestEnv, root: &std::path::Path) {
    let url = env.variable("UA_DATABASE_URL").unwrap();
    std::fs::create_dir_all(root).unwrap();
    std::fs::write(root.join("gateway.toml"), format!("[env]\nUA_DATABASE_URL = \"{url}\"\n")).unwrap();
}

/// The server crashes between two calls of a client, and under a third one: the session goes on, and each mail is sent once.
#[test]
fn a_gateway_survives_a_server_that_crashes() {
    let Some(server) = Cluster::start("") else { return };
    server.create("gateway", "");
    let env = env().with_env("UA_DATABASE_URL", &server.url("gateway", SERVER));
    name_the_database(&env, &env.root());
    env.run(&["db", "migrate"]).code(0);
    // The harness crashes the server while the client waits for the file that says so.
    let pause = "until [ -e \"$HERE\" ]; do sleep 0.01; done; mail 3 One";
    let client = crate::gateway::CLIENT.replace("mail 3 One", &format!("touch ../crash_now; HERE=../crashed; {pause}"));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| env.run_by_bash(&client).code(0).stdout);
        ua_e2e::until("the client", || env.path("crash_now").exists());
        server.stop("QUIT");
        server.start_again();
        std::fs::write(env.path("crashed"), "").unwrap();
        let said = running.join().unwrap();
        assert!(said.contains("\"id\":3"), "{said}");
    });
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 2);
}

/// A broker that its database refuses ends with the code for databases, and so does whoever starts it: by that a bridge tells its client in seconds.
#[test]
fn a_gateway_whose_database_has_no_schema_ends_with_the_code_for_databases() {
    let Some((env, _)) = on_server("gateway_bare", false) else { return };
    env.run(&["gateway", "start"]).refused(2, &["would not use the database that UA_DATABASE_URL names", "[env]"]);
    name_the_database(&env, &env.root());
    let told = ["the gateway's broker cannot start", "does not have this program's schema", "ua db migrate"];
    env.run(&["gateway", "start"]).refused(74, &told);
}

/// Which requests are the same call is told apart by one broker: a second root is told whose gateway the database has, and what to do.
#[test]
fn a_second_gateway_on_a_database_is_refused_with_what_to_do() {
    let Some((env, _)) = on_server("gateways", false) else { return };
    for root in [env.root(), env.path("other")] {
        name_the_database(&env, &root);
    }
    env.run(&["db", "migrate"]).code(0);
    env.run_by_bash(crate::gateway::CLIENT).code(0);
    let first = std::fs::read_to_string(env.root().join("locks/root_id")).unwrap();
    let (other, forget) = (env.arg("other"), format!("workers forget {}", first.trim()));
    let told = ["the database has the gateway of", "a database of its own", forget.as_str()];
    env.run(&["gateway", "start", "--root", &other]).refused(74, &told);
    // The one that has it is not in its own way.
    env.run(&["gateway", "start"]).code(0);
    env.run(&["gateway", "stop"]).code(0);
}
