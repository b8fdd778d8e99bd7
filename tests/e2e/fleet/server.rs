//! A server that crashes under its workers, and comes back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};
use ua_testkit::postgres::{POOLER, SERVER};

use super::{address_of, answer_all, asked, is_all_done, is_whole, state, status, until_all_is_done};
use crate::cluster::Cluster;
use crate::env;
use crate::server_database::{cluster, comment_job, on_server};

/// How the server is treated.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// One of its processes is killed; it ends all connections and recovers from its log.
    KilledBackend,
    /// All of it ends at once, as in a crash, and is started again.
    Crash,
    /// It ends in good order, and is started again.
    Restart,
}

fn strike(server: &Cluster, blow: Blow) {
    match blow {
        Blow::KilledBackend => {
            let any = "SELECT pid FROM pg_stat_activity WHERE datname = 'fleet' AND pid <> pg_backend_pid() \
                       ORDER BY random() LIMIT 1";
            // It may have just ended by itself.
            let found = server.sql("postgres", any).unwrap().first().and_then(|pid| pid.parse().ok());
            if let Some(pid) = found {
                server.kill_backend(pid);
            }
        }
        Blow::Crash | Blow::Restart => {
            server.stop(if matches!(blow, Blow::Crash) { "QUIT" } else { "INT" });
            server.start_again();
        }
    }
}

/// Two workers, directly and through the pooler, at a server that crashes again and again. What was acknowledged is there afterwards; what was
/// not is found out; nothing is sent twice.
#[test]
fn a_server_that_crashes_again_and_again_costs_time_and_no_effect() {
    let Some(server) = Cluster::start("") else { return };
    server.create("fleet", "");
    let (direct, pooled) = (server.url("fleet", SERVER), server.url("fleet", POOLER));
    let env: TestEnv = env().with_forum().with_env("UA_DATABASE_URL", &direct);
    env.run(&["db", "migrate"]).code(0);
    let blows = if is_whole() { 45 } else { 6 };
    let jobs = blows * 2;
    for number in 0..jobs {
        let tool = |text: String| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
        let turns =
            json!([tool(format!("first of {number}.")), tool(format!("second of {number}.")), {"text": "Posted."}]);
        let job = env.named_job(&format!("job{number}"), &json!({"tools": {"builtin": false}}), &turns);
        env.run(&["submit", &job, "--run-id", &format!("r{number}")]).code(0);
    }
    let reached = if server.has_pooler() { pooled } else { direct };
    let workers = [
        env.start(&["worker", "--concurrency", "2", "--name", "direct"]),
        env.start(&["worker", "--concurrency", "2", "--name", "pooled", "--database-url", &reached]),
    ];
    let words = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
    for blow in [Blow::KilledBackend, Blow::Crash, Blow::Restart].into_iter().cycle().take(blows) {
        let so_far = env.comments().len();
        until("progress", || env.comments().len() > so_far || answer_all(&env, &words) || is_all_done(&env));
        strike(&server, blow);
    }
    until_all_is_done(&env, &workers, &words);
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.wait().code(0);
    }
    for number in 0..jobs {
        let counted = (words(&format!("first of {number}.")), words(&format!("second of {number}.")));
        assert_eq!((counted, status(&env, &format!("r{number}")).as_str()), ((1, 1), "succeeded"), "run r{number}");
    }
    let page = env.run(&["db", "check", "--invariants", "--json"]).code(74).json();
    assert_eq!((&page["violations"], &page["checked_runs"]), (&json!([]), &json!(jobs)), "{page}");
}

/// The server has no room for what a tool answered: the answer waits for it, and the worker is not ready meanwhile.
#[test]
fn a_worker_whose_runs_wait_to_be_written_is_not_ready() {
    let name = "fleet_waits";
    let Some((env, direct)) = on_server(name, false) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    env.run(&["submit", &comment_job(&env), "--run-id", "r"]).code(0);
    let sql = |text: &str| cluster().unwrap().sql(name, text).unwrap();
    sql("CREATE FUNCTION ua.full() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$");
    sql("CREATE TRIGGER full_disk BEFORE INSERT ON ua.tool_receipts FOR EACH ROW EXECUTE FUNCTION ua.full()");
    let worker = env.start(&["worker", "--name", "first", "--listen", "127.0.0.1:0"]);
    let address = address_of(&worker);
    until("it is not ready", || asked(&address, "/readyz").contains("does not take what runs write"));
    assert!(asked(&address, "/healthz").contains("200 OK"));
    sql("DROP TRIGGER full_disk ON ua.tool_receipts");
    until("the end", || status(&env, "r") == "succeeded");
    until("it is ready", || asked(&address, "/readyz").contains("200 OK"));
    assert_eq!((env.comments().len(), sql("SELECT count(*) FROM ua.questions")), (1, vec!["0".to_owned()]));
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

/// The clock of the machine that submits is ahead of the server's. Workers go by the server's, so by that it is decided, stored and told when
/// something is due.
#[test]
fn when_something_is_due_is_told_by_the_clock_of_the_server() {
    let name = "fleet_clock";
    let Some((env, direct)) = on_server(name, false) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let sql = |text: &str| cluster().unwrap().sql(name, text).unwrap();
    let behind_by = |span: &str| {
        sql(&format!(
            "CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql \
             AS $$ SELECT pg_catalog.real_clock_timestamp() - interval '{span}' $$"
        ));
    };
    sql("ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp");
    behind_by("1 hour");
    let submit = |arguments: &[&str]| env.run(&[&["submit", &comment_job(&env), "--new"], arguments].concat()).code(0);
    let now = submit(&["--run-id", "now"]).says(&["queued in default; a worker (`ua worker`) takes it"]);
    assert!(!now.stderr.contains("takes it at"), "{}", now.shown());
    submit(&["--run-id", "delayed", "--delay", "30m"]).says(&["takes it at"]);
    assert_eq!((state(&env, "now"), state(&env, "delayed")), ("ready".to_owned(), "later".to_owned()));
    let moved = env.run(&["queue", "move", "delayed", "--priority", "3", "--json"]).code(0).json();
    assert_eq!(moved[0]["state"], "later", "{moved}");
    env.run(&["worker", "--until-empty"]).code(0).says(&["1 run left in the queue for later"]);
    assert_eq!((status(&env, "now").as_str(), env.comments().len()), ("succeeded", 1));
    // A day further no instant of a schedule is skipped, and none is overdue that has not come.
    behind_by("1 day");
    let at_three = || {
        sql("SELECT to_char(date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC' - interval '3 hours') + interval '1 day 3 hours', \
             'YYYY-MM-DD\"T\"HH24:MI:SS\".000Z\"')")[0]
            .clone()
    };
    let next_at = || sql("SELECT next_at FROM ua.schedules")[0].clone();
    env.run(&["schedule", "add", "daily", &comment_job(&env), "--cron", "0 3 * * *"]).code(0);
    assert_eq!(next_at(), at_three());
    sql("UPDATE ua.schedules SET next_at = '2020-01-01T03:00:00.000Z'");
    env.run(&["schedule", "pause", "daily"]).code(0);
    env.run(&["schedule", "resume", "daily"]).code(0);
    assert_eq!(next_at(), at_three());
    let listed = env.run(&["schedule", "list", "--json"]).code(0).json();
    assert!(listed[0]["overdue_since"].is_null(), "{listed}");
    assert!(!env.run(&["status"]).code(0).stdout.contains("overdue"));
    env.run(&["schedule", "run", "daily"]).code(0);
    let submitted = "SELECT count(*) FROM ua.runs WHERE job_key LIKE 'daily@' || \
                     to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD') || '%'";
    assert_eq!(sql(submitted), ["1"], "it was submitted for an instant of the server");
}

/// What a harness starts ends with it, also when it is killed: workers would go on for ever.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_ends_with_the_harness_that_started_it() {
    use std::path::Path;

    let env = env().with_forum();
    let script = "E2E_ENDS_WITH=$$ \"$0\" worker --name first --root \"$1\" & echo $! >\"$2\"; wait";
    let (program, pid) = (ua_e2e::ua_program().display().to_string(), env.arg("pid"));
    let harness = env.start_program(Path::new("/bin/sh"), &[], &["-c", script, &program, &env.arg("root"), &pid]);
    until("the worker", || harness.stderr().contains("takes runs"));
    let process = format!("/proc/{}", env.read("pid").trim());
    assert!(Path::new(&process).exists());
    harness.signal(Signal::KILL);
    harness.wait().killed();
    until("its end", || !Path::new(&process).exists());
}

/// The server answers and takes no turns, as when its disk is full: workers say so and wait, nobody is asked about runs that were not to blame,
/// and all goes on by itself.
#[test]
fn a_server_that_takes_no_writes_of_runs_is_waited_for() {
    let Some((env, direct)) = on_server("fleet_full", false) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    for number in 0..3 {
        let job = comment_job(&env);
        env.run(&["submit", &job, "--new", "--run-id", &format!("r{number}")]).code(0);
    }
    let sql = |text: &str| cluster().unwrap().sql("fleet_full", text).unwrap();
    sql("CREATE FUNCTION ua.full() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$");
    sql("CREATE TRIGGER full_disk BEFORE INSERT ON ua.turns FOR EACH ROW EXECUTE FUNCTION ua.full()");
    let worker = env.start(&["worker", "--name", "first", "--listen", "127.0.0.1:0"]);
    let address = address_of(&worker);
    let said = || worker.stderr().matches("the database refuses what runs write; none is taken for").count();
    until("it takes nothing", || said() == 1);
    until("it is not ready", || asked(&address, "/readyz").contains("refuses what runs write"));
    assert!(asked(&address, "/healthz").contains("200 OK"));
    until("it has tried one", || said() == 2);
    sql("DROP TRIGGER full_disk ON ua.turns");
    until("the end", || (0..3).all(|number| status(&env, &format!("r{number}")) == "succeeded"));
    until("it is ready", || asked(&address, "/readyz").contains("200 OK"));
    assert_eq!(env.comments().len(), 3);
    assert_eq!(sql("SELECT count(*) FROM ua.questions"), ["0"]);
    let ends = sql("SELECT sum(jsonb_array_length(unclean_ends_json::jsonb)) FROM ua.runs");
    assert!(ends[0].parse::<u32>().unwrap() <= 4, "{ends:?}");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}
