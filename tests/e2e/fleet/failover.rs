//! A server that is gone at once, and a standby that takes over: with all that was acknowledged, and without the last of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Live, TestEnv, until, until_or_tell};
use ua_testkit::Proxy;
use ua_testkit::postgres::{PostgresServer, SERVER};

use super::{answer_all, how_it_stands, is_all_done, is_whole, open_the_gate, state, status, until_all_is_done};
use crate::cluster::Cluster;
use crate::env;

const DATABASE: &str = "fleet";

/// A server with a standby, and a world that reaches whoever is the primary by one address.
struct Pair {
    primary: Cluster,
    standby: PostgresServer,
    line: Proxy,
    env: TestEnv,
}

impl Pair {
    /// With a standby that commits wait for, or not.
    fn start(is_waited_for: bool) -> Option<Self> {
        let primary = Cluster::start("")?;
        primary.create(DATABASE, "");
        // Before it is told to wait, so that the standby waits for nobody once it has taken over.
        let standby = primary.standby("second");
        if is_waited_for {
            primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (second)'").unwrap();
            primary.sql("postgres", "SELECT pg_reload_conf()").unwrap();
            let waits = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'quorum' \
                         AND current_setting('synchronous_standby_names') <> ''";
            until("commits wait for the standby", || !primary.sql("postgres", waits).unwrap().is_empty());
        }
        let line = Proxy::before(primary.socket(SERVER)).unwrap();
        let env = env().with_forum().with_env("UA_DATABASE_URL", &line.url(DATABASE));
        env.run(&["db", "migrate", "--database-url", &primary.url(DATABASE, SERVER)]).code(0);
        Some(Self { primary, standby, line, env })
    }

    /// The address leads to the standby, which has taken over.
    fn fail_over(&self) {
        self.standby.promote();
        self.line.lead_to(self.standby.socket(SERVER));
    }

    fn worker(&self, name: &str, arguments: &[&str]) -> Live {
        let worker = self.env.start(&[&["worker", "--name", name], arguments].concat());
        until("the worker", || worker.stderr().contains("takes runs"));
        worker
    }

    /// What `ua db check` says is held.
    fn held(&self) -> Vec<String> {
        let page = self.env.run(&["db", "check", "--invariants", "--json"]).code(74).json();
        assert_eq!(page["violations"], json!([]), "{page}");
        let held = page["forgotten"].as_array().unwrap().iter();
        held.map(|one| (&one["word"], one["run_id"].as_str().unwrap()))
            .map(|(word, run)| if word == "failed_over" { run.to_owned() } else { panic!("{run}: {word}") })
            .collect()
    }
}

fn ends(workers: impl IntoIterator<Item = Live>) {
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.wait().code(0);
    }
}

fn counted(env: &TestEnv, text: &str) -> usize {
    env.comments().iter().filter(|line| line.contains(text)).count()
}

/// In the middle of the work of two workers the primary is gone at once, and the standby that commits waited for takes over. Nobody is asked
/// but about what was under way; each effect is there once.
#[test]
fn a_standby_that_was_waited_for_takes_over_and_each_effect_is_had_once() {
    let Some(pair) = Pair::start(true) else { return };
    let env = &pair.env;
    let jobs = if is_whole() { 30 } else { 8 };
    for number in 0..jobs {
        let tool = |text: String| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
        let turns =
            json!([tool(format!("first of {number}.")), tool(format!("second of {number}.")), {"text": "Posted."}]);
        let job = env.named_job(&format!("job{number}"), &json!({"tools": {"builtin": false}}), &turns);
        env.run(&["submit", &job, "--run-id", &format!("r{number}")]).code(0);
    }
    let workers = ["one", "two"].map(|name| pair.worker(name, &["--concurrency", "2"]));
    let words = |text: &str| counted(env, text);
    until_or_tell(
        "they are in the middle",
        || env.comments().len() >= jobs || answer_all(env, &words) || is_all_done(env),
        || how_it_stands(env, &workers),
    );
    pair.primary.kill();
    pair.fail_over();
    until_all_is_done(env, &workers, &words);
    ends(workers);
    for number in 0..jobs {
        let found = (words(&format!("first of {number}.")), words(&format!("second of {number}.")));
        assert_eq!((found, status(env, &format!("r{number}")).as_str()), ((1, 1), "succeeded"), "run r{number}");
    }
    assert_eq!(pair.held(), Vec::<String>::new());
}

/// Submits a job of one comment to the queue of its own name; the gated one answers when the gate is open.
fn submit(env: &TestEnv, run: &str, is_gated: bool) {
    let mut input = json!({"text": format!("of {run}.")});
    if is_gated {
        input["until"] = json!(env.arg("gate"));
    }
    let turns: Value = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
    let job = env.named_job(run, &json!({"tools": {"builtin": false}}), &turns);
    env.run(&["submit", &job, "--run-id", run, "--queue", run]).code(0);
}

/// The standby lacks the last commits: of a run that a killed worker had sent something for, and of one whose worker lives on. To the database both
/// are as new. Neither is sent again; a person is told which runs are held, and says what becomes of each.
#[test]
fn a_standby_that_lacks_the_last_commits_sends_nothing_again_unasked() {
    let Some(pair) = Pair::start(false) else { return };
    let env = &pair.env;
    submit(env, "done", false);
    env.run(&["worker", "--queue", "done", "--until-empty"]).code(0);
    for (run, is_gated) in [("killed", false), ("alive", true), ("waits", false)] {
        submit(env, run, is_gated);
    }
    pair.primary.until_followed_by(&pair.standby);
    pair.standby.stop("QUIT");

    env.run_killed_at("after:tool.invoke:post_comment", &["worker", "--name", "first", "--queue", "killed"]);
    let second = pair.worker("second", &["--queue", "alive"]);
    until("both effects", || counted(env, "of killed.") == 1 && counted(env, "of alive.") == 1);

    pair.primary.kill();
    pair.standby.start_again();
    pair.fail_over();
    open_the_gate(env);
    until_or_tell(
        "the run of the worker that lives is parked",
        || state(env, "alive") == "parked",
        || how_it_stands(env, std::slice::from_ref(&second)),
    );
    // Whoever takes a run is refused before anything is sent, also one that was never begun: nobody knows that it was not.
    for run in ["killed", "waits"] {
        let told = env.run(&["worker", "--queue", run, "--until-empty"]).code(75);
        told.says(&["another server took over, or a copy was put back", &format!("ua db accept {run}")]);
        assert_eq!(state(env, run), "parked");
    }
    env.run(&["resume", "killed"]).refused(74, &["nobody knows what run killed sent then", "ua db accept killed"]);
    assert_eq!(pair.held(), ["killed", "alive", "waits"]);
    env.run(&["db", "check"]).code(74).shows(&["Held           3 runs", "another server took over"]);
    assert_eq!(env.comments().len(), 3, "{:?}", env.comments());

    // A person looks at the forum: two had done their work, one had not.
    for run in ["killed", "alive"] {
        env.run(&["runs", "cancel", run]).code(0);
    }
    env.run(&["db", "accept", "waits"]).code(0).says(&["accepted: ", "ua queue move waits"]);
    env.run(&["queue", "move", "waits"]).code(0);
    for run in ["killed", "waits"] {
        env.run(&["worker", "--queue", run, "--until-empty"]).code(0);
    }
    until("the end", || is_all_done(env));
    ends([second]);
    let counts = ["done", "killed", "alive", "waits"].map(|run| counted(env, &format!("of {run}.")));
    assert_eq!((counts, env.comments().len()), ([1, 1, 1, 1], 4), "{:?}", env.comments());
    assert_eq!(["killed", "alive", "waits"].map(|run| status(env, run)), ["cancelled", "cancelled", "succeeded"]);
    assert_eq!(pair.held(), Vec::<String>::new());
    // Nothing of it is left for what comes later.
    submit(env, "later", false);
    env.run(&["worker", "--queue", "later", "--until-empty"]).code(0);
    assert_eq!(counted(env, "of later."), 1);
}
