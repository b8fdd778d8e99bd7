//! The command line one looks into runs with: lists, turns, the tail of a run, deletion, completion, and what commands have in common.

use std::path::Path;

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

fn post(text: &str) -> Value {
    json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]})
}

/// Runs a job with one comment under this name.
fn commented(env: &TestEnv, run: &str) {
    let fields = json!({"tools": {"builtin": false}});
    let job = env.named_job(run, &fields, &json!([post("hello"), {"text": "Posted."}]));
    env.run(&["job", &job, "--run-id", run]).code(0);
}

#[test]
fn a_run_is_named_by_its_beginning_or_last() {
    let env = env().with_forum();
    for run in ["report-1", "report-12", "other"] {
        commented(&env, run);
    }
    env.run(&["runs", "show", "last"]).code(0).shows(&["run other"]);
    env.run(&["runs", "show", "oth"]).code(0).shows(&["run other"]);
    // A whole id wins over those that only begin with it.
    env.run(&["runs", "show", "report-1"]).code(0).shows(&["run report-1\n"]);
    env.run(&["runs", "show", "report"]).refused(2, &["prefix of 2 runs", "report-12, report-1", "ua runs list"]);
    env.run(&["runs", "show", "nobody"]).refused(2, &["there is no run `nobody`"]);
    env.run(&["runs", "show", "%"]).refused(2, &["there is no run `%`"]);
}

#[test]
fn runs_are_listed_by_status_and_age() {
    let env = env().with_forum();
    commented(&env, "done");
    let job = env.named_job("killed", &json!({"tools": {"builtin": false}}), &json!([post("x"), {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "killed"]);
    let ids = |args: &[&str]| {
        let listed = env.run(&[&["runs", "list", "--json"], args].concat()).code(0).json();
        listed.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["killed", "done"]);
    assert_eq!(ids(&["--status", "crashed"]), ["killed"]);
    assert_eq!(ids(&["--status", "running"]), [""; 0]);
    assert_eq!(ids(&["--status", "succeeded", "--status", "crashed"]), ["killed", "done"]);
    assert_eq!(ids(&["--status", "waiting"]), [""; 0]);
    assert_eq!(ids(&["--since", "1h", "--limit", "1"]), ["killed"]);
    for list in ["runs", "queue"] {
        env.run(&[list, "list", "--limit", "0"]).code(2).says(&["invalid value `0` for `--limit`"]);
    }
    // What was started a moment ago, and what was not.
    assert_eq!(ids(&["--since", "0s"]), [""; 0]);
    // A table has a column for each thing that a person looks for, and says when it is not all.
    let table = env.run(&["runs", "list", "--limit", "1"]).code(0);
    let (head, row) = table.stdout.split_once('\n').unwrap();
    let words: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(words, ["RUN", "STATUS", "USED", "TURNS", "UPDATED", "OBJECTIVE"]);
    let cells: Vec<&str> = row.trim().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!((cells[0], cells[1], cells[3], cells.len()), ("killed", "crashed", "0", 6), "{row}");
    table.says(&["older runs are not shown", "--limit 5"]);
    env.run(&["runs", "list", "--status", "failed"]).code(0).says(&["no such runs"]);
    env.run(&["runs", "list", "--since", "soon"]).code(2).says(&["is not a valid time"]);
}

#[test]
fn a_turn_is_shown_with_its_reply_and_what_its_calls_brought() {
    let env = env().with_forum();
    commented(&env, "r");
    let first = env.run(&["turns", "show", "r", "1"]).code(0);
    first.shows(&[
        "turn 1 of run r",
        "Request        sha256 ",
        "mcp__forum__post_comment",
        "arguments    {\"text\":\"hello\"}",
        "posted",
    ]);
    env.run(&["turns", "show", "last"]).code(0).shows(&["turn 2 of run r", "Reply\n  Posted."]);
    let shown = env.run(&["turns", "show", "r", "1", "--json"]).code(0).json();
    assert_eq!((&shown["turn"], &shown["calls"][0]["tool_name"]), (&json!(1), &json!("post_comment")));
    assert_eq!(shown["request_sha256"], env.value("SELECT request_sha256 FROM turns WHERE turn = 1"));
    assert!(shown["calls"][0]["result"].as_str().unwrap().contains("posted"));
    assert_eq!(shown["requests"].as_array().unwrap().len(), 1);
    env.run(&["turns", "show", "r", "9"]).refused(2, &["has no turn 9", "newest committed turn is 2"]);
}

#[test]
fn the_tail_of_a_finished_run_is_what_happened_and_how_it_ended() {
    let env = env().with_forum();
    commented(&env, "r");
    let lines =
        |output: &str| output.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>();
    let tail = env.run(&["runs", "tail", "r"]).code(0);
    insta::with_settings!({filters => vec![(r"process \d+ on \S+", "process [PID] on [HOST]"), (r"in \d+\.\d s", "in [TIME]"), (r"\d+ tokens in", "[N] tokens in")]}, {
        insta::assert_snapshot!("tail_of_a_finished_run", lines(&tail.stdout).join("\n"));
    });
    // The last turn only, for a machine.
    let output = env.run(&["runs", "tail", "r", "--no-follow", "--turns", "1", "--json"]).code(0);
    let events: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["process", "thinking", "request_charged", "turn_recorded", "turn_committed", "run"]);
    assert_eq!(events.last().unwrap()["status"], "succeeded");
}

#[test]
fn a_run_is_watched_while_another_process_drives_it() {
    let env = env().with_forum();
    let input = json!({"text": "x", "until": env.arg("go")});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Gone."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let driver = env.start(&["job", &job, "--run-id", "r"]);
    until("the call to run", || env.try_rows("SELECT 1 FROM tool_calls WHERE status = 'running'") == ["1"]);
    let tail = env.start(&["runs", "tail", "r"]);
    until("the tail to show the call", || tail.stdout().contains("post_comment"));
    assert!(!tail.stdout().contains("succeeded"), "{}", tail.stdout());
    // A run that is driven is not deleted, and a look does not keep its process from working.
    env.run(&["runs", "delete", "r", "--force"]).refused(2, &["a process drives run r", "ua runs cancel r"]);
    env.write("go", "");
    driver.wait().code(0);
    let output = tail.wait().code(0);
    output.shows(&["post_comment ok in", "turn 2 · thinking", "run r succeeded"]);
}

#[test]
fn the_tail_of_a_run_that_nobody_drives_says_so_and_ends() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("x"), {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["runs", "tail", "r"])
        .code(75)
        .shows(&["post_comment", "crashed: no process drives it; `ua resume r` resumes it"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["runs", "tail", "r"]).code(75).shows(&["a question · ", "waiting for you"]);
}

#[test]
fn a_tail_tells_in_order_who_drove_the_run_when_it_was_killed_and_when_it_was_taken_over() {
    let env = env().with_forum();
    let read = |page: &str| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": page}}]});
    let turns = json!([read("1"), read("2"), {"text": "Done."}]);
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_turns": 2}});
    let job = env.job(&fields, &turns);
    env.run_killed_at("after:tool.invoke:get_page", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["resume", "r", "--max-turns", "+5"]).code(0);
    let output = env.run(&["runs", "tail", "r", "--no-follow", "--turns", "9"]).code(0);
    // The time, and what a line is about: each in the order in which it happened.
    let lines: Vec<&str> = output.stdout.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    let wanted = [
        "a process drives the run",
        "turn 1 · thinking",
        "turn 1 · 1 call planned",
        "turn 1 · call 1 · get_page {\"text\":\"1\"}",
        "killed: the last sign of life of the process that drove the run",
        "resumed after the kill: a process took the run over",
        "turn 1 · call 1 · get_page attempt 1: no answer was recorded",
        "turn 1 · call 1 · get_page (attempt 2) {\"text\":\"1\"}",
        "turn 1 · call 1 · get_page ok",
        "turn 1 · committed",
        "turn 2 · thinking",
        "turn 2 · committed",
        "the process that drove the run ended its work",
        "resumed: process ",
        "turn 3 · thinking",
        "turn 3 · committed",
        "run r succeeded",
    ];
    let mut rest = lines.iter();
    for text in wanted {
        assert!(rest.any(|line| line.starts_with(text)), "no `{text}` where it belongs:\n{}", lines.join("\n"));
    }
    let events = env.run(&["runs", "tail", "r", "--no-follow", "--turns", "9", "--json"]).code(0);
    let events: Vec<Value> = events.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| events.iter().filter(|one| one["event"] == event).collect::<Vec<_>>();
    let processes: Vec<&str> = of("process").iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(processes, ["took", "killed", "took", "left", "took"]);
    assert_eq!(of("attempt_ended").len(), 1);
    let times: Vec<&str> = events.iter().map(|one| one["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // Of a few turns, only those who drove them.
    let last = env.run(&["runs", "tail", "r", "--no-follow", "--turns", "1"]).code(0);
    assert!(last.stdout.contains("resumed: process ") && !last.stdout.contains("killed"), "{}", last.stdout);
}

/// What stands on standard error in a log, where no display is drawn.
#[test]
fn a_silence_in_a_log_is_broken_by_what_is_being_done_and_never_with_quiet() {
    let env = env().with_forum();
    let turns = |go: &str| {
        let input = json!({"text": "x", "until": env.arg(go)});
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Gone."}])
    };
    let job = env.named_job("told", &json!({"tools": {"builtin": false}}), &turns("go"));
    let driver = env.start(&["job", &job, "--run-id", "told"]);
    until("a line that says what is waited for", || {
        driver.stderr().contains("] turn 1 · post_comment · still running after ")
    });
    env.write("go", "");
    driver.wait().code(0);
    let quiet = env.named_job("quiet", &json!({"tools": {"builtin": false}}), &turns("went"));
    let driver = env.start(&["job", &quiet, "--run-id", "quiet", "--quiet"]);
    until("the call to run", || env.try_rows("SELECT 1 FROM tool_calls WHERE status = 'running'") == ["1"]);
    // A third run, whose silence is broken meanwhile, says that the second one's lasted as long.
    let third = env.named_job("third", &json!({"tools": {"builtin": false}}), &turns("gone"));
    let loud = env.start(&["job", &third, "--run-id", "third"]);
    until("a line of the third", || loud.stderr().contains("still running"));
    env.write("went", "");
    env.write("gone", "");
    loud.wait().code(0);
    let output = driver.wait().code(0);
    assert_eq!(output.stderr, "", "quiet is quiet");
}

#[test]
fn the_log_says_what_was_asked_for_and_nothing_else() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("x"), {"text": "Done."}]));
    let logged = |filter: &str, run: &str| {
        let args = ["job", &job, "--run-id", run, "--quiet"];
        if filter.is_empty() { env.start(&args) } else { env.start_with(("UA_LOG", filter), &args) }
            .wait()
            .code(0)
            .stderr
    };
    // Without it, nothing of a run where all is well; with a level, what is ours; with a crate, only that one.
    assert_eq!(logged("", "a"), "");
    assert_eq!(logged("off", "b"), "");
    let all = logged("debug", "c");
    assert!(all.contains(" ua_mcp") && all.contains(" ua_runner"), "{all}");
    let one = logged("ua_runner=debug", "d");
    assert!(one.contains(" ua_runner") && !one.contains(" ua_mcp"), "{one}");
    // The setting says the same as the program does.
    let settings = env.run(&["config", "show", "--json"]).code(0).json();
    let setting =
        settings["settings"].as_array().unwrap().iter().find(|setting| setting["key"] == "output.log").unwrap().clone();
    assert_eq!(setting["value"], "off,ua_=warn,ua_llm=error");
    let by_default = logged(setting["value"].as_str().unwrap(), "e");
    assert_eq!(by_default, "");
}

/// Whatever is looked up by a name that a person types.
#[test]
fn a_typing_error_in_a_name_is_answered_with_the_name_that_was_meant() {
    let env = env().with_forum();
    commented(&env, "monthly-report");
    let job = env.named_job("j", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["schedule", "add", "nightly", &job, "--cron", "0 3 * * *"]).code(0);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let (rest, last) = call.split_at(call.len() - 1);
    let wrong_call = format!("{rest}{}", if last == "0" { "1" } else { "0" });
    let servers = env.mcp_config("servers.json", &json!({"forum": env.forum_entry(&[])}));
    let cases: [(&[&str], &str, &str); 12] = [
        (&["runs", "show", "montly-report"], "there is no run `montly-report`", "monthly-report"),
        (&["resume", "lst"], "there is no run `lst`", "last"),
        (&["resume", "monthly-reprot"], "there is no run", "monthly-report"),
        (&["tools", "explain", "post_coment", "--mcp-config", &servers], "no server offers a tool", "post_comment"),
        (&["tools", "packs", "gihub"], "there is no policy pack", "github"),
        (&["schedule", "pause", "nightli"], "there is no schedule `nightli`", "nightly"),
        (&["schedule", "remove", "nightli"], "there is no schedule `nightli`", "nightly"),
        (&["login", "forun", "--mcp-config", &servers], "no tool server is called `forun`", "forum"),
        (&["schema", "run list"], "there is no schema", "runs list"),
        (&["models", "list", "--provider", "antropic"], "unknown model provider `antropic`", "anthropic"),
        (&["man", "runs", "lits"], "there is no command `runs lits`", "runs list"),
        (&["resume", "last", "--accept", "tols"], "there is no component `tols`", "tools"),
    ];
    for (args, wrong, meant) in cases {
        env.run(args).refused(2, &[wrong, &format!("did you mean `{meant}`?")]);
    }
    // Of ids that nobody chose the nearest is anybody's.
    let of_call = env.run(&["calls", "show", &wrong_call]).refused(2, &["there is no call", "ua calls list"]);
    assert!(!of_call.stderr.contains("did you mean") && wrong_call != call, "{}", of_call.stderr);
    // What is like nothing is not guessed.
    let unknown = env.run(&["runs", "show", "zzzzzzzz"]).code(2);
    assert!(!unknown.stderr.contains("did you mean"), "{}", unknown.stderr);
    // A word that is another program's, below a command, too.
    for (words, meant) in [
        (&["runs", "ls"][..], "did you mean `ua runs list`?"),
        (&["schedule", "rm"], "did you mean `ua schedule remove`?"),
        (&["runs", "stop", "last"], "did you mean `ua runs cancel`?"),
        (&["run", "list"], "did you mean `ua runs list`?"),
    ] {
        env.run(words).refused(2, &["there is no command", meant]);
    }
    env.run(&["runs", "lsit"]).code(2).says(&["lsit", "list"]);
    let client = env.run(&["gateway", "install", "--client", "windsurf"]);
    client.refused(2, &["the client `windsurf`", "`ua gateway install --file FILE`"]);
    env.run(&["gateway", "install", "--client", "codx"]).refused(2, &["did you mean `codex`?"]);
}

#[test]
fn a_finished_run_is_deleted_with_its_workspace() {
    let env = env().with_forum();
    commented(&env, "a");
    commented(&env, "b");
    let workspace = env.value("SELECT workspace_dir FROM runs WHERE run_id = 'a'");
    env.run(&["runs", "delete", "a", "--dry-run"])
        .code(0)
        .shows(&["a (succeeded), with its workspace", "would delete 1 run"]);
    assert!(Path::new(&workspace).is_dir());
    let deleted = env.run(&["runs", "delete", "a", "--yes", "--json"]).code(0).json();
    assert_eq!(
        (&deleted["deleted"][0]["run_id"], &deleted["deleted"][0]["workspace_removed"]),
        (&json!("a"), &json!(true))
    );
    assert!(!Path::new(&workspace).exists());
    env.run(&["runs", "show", "a"]).refused(2, &["there is no run `a`"]);
    for table in ["runs", "run_steps", "turns", "messages", "tool_calls", "usage", "checkpoints"] {
        assert_eq!(env.value(&format!("SELECT count(DISTINCT run_id) FROM {table}")), "1", "{table}");
    }
    // What it sent is in effects.log; that is no sign that the database went back in time.
    env.run(&["db", "check", "--invariants"]).code(0);
    // Its name stays taken.
    let job = env.arg("work/a.json");
    env.run(&["job", &job, "--run-id", "a"]).refused(2, &["`a`", "was deleted", "--run-id"]);
    env.run(&["runs", "delete", "a"]).refused(2, &["there is no run `a`"]);
    // A key that was done is free after that, which is told before and after.
    let keyed =
        env.named_job("keyed", &json!({"tools": {"builtin": false}, "job_key": "once"}), &json!([{"text": "Done."}]));
    env.run(&["job", &keyed, "--run-id", "k"]).code(0);
    let told = "Free after that: the job key once.";
    let dry = env.run(&["runs", "delete", "k", "--dry-run", "--json"]).code(0).json();
    assert_eq!(dry["deleted"][0]["job_key"], "once");
    env.run(&["runs", "delete", "k", "--dry-run"]).code(0).shows(&[told]);
    env.run(&["runs", "delete", "k", "--yes"]).code(0).shows(&[told]);
    env.run(&["job", &keyed, "--run-id", "again"]).code(0);
    env.run(&["runs", "delete", "again", "--yes"]).code(0);
    // Old ones go without being named, and their files can stay.
    env.run(&["runs", "delete", "--older-than", "1h"]).code(0).shows(&["deleted 0 runs"]);
    env.run(&["runs", "delete", "last", "--older-than", "1h", "--yes"])
        .code(2)
        .says(&["takes `RUNS` or `--older-than", "and not both"]);
    let workspace = env.workspace();
    env.run(&["runs", "delete", "--older-than", "0s", "--keep-files", "--yes"])
        .code(0)
        .shows(&["b (succeeded), its workspace stays"]);
    assert!(workspace.is_dir());
    assert_eq!(env.run(&["runs", "list", "--json"]).code(0).json(), json!([]));
}

#[test]
fn a_run_that_is_not_finished_is_deleted_by_force_only() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("x"), {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["runs", "delete", "r"]).refused(2, &["run r is not finished (crashed)", "--force"]);
    // The call that was under way is in doubt as well.
    env.run(&["runs", "delete", "r", "--force", "--dry-run"]).code(0).shows(&[
        "r (crashed), ",
        "may have happened",
        "`post_comment`",
    ]);
    env.run(&["runs", "delete", "--older-than", "0s"]).code(0).shows(&["deleted 0 runs"]);
    // Cancelled, it is finished; and its record is what is known of a comment that may be there.
    env.run(&["runs", "cancel", "r"]);
    assert_eq!(env.value("SELECT status FROM tool_calls"), "unknown");
    let doubt = ["1 call of run r may or may not have happened", "--as not_happened --reason TEXT", "--force"];
    env.run(&["runs", "delete", "r", "--yes"]).refused(2, &doubt);
    env.run(&["runs", "delete", "r", "--dry-run"]).refused(2, &doubt);
    let kept = env.run(&["runs", "delete", "--older-than", "0s", "--yes"]).code(0);
    kept.shows(&["deleted 0 runs"]).says(&["run r is kept"]);
    let at = env.value("SELECT started_at FROM tool_attempts");
    let listed = env.run(&["runs", "delete", "r", "--force", "--dry-run", "--json"]).code(0).json();
    let open = listed["deleted"][0]["may_have_happened"][0].as_str().unwrap();
    assert!(open.contains(&format!("attempt 1, sent {at})")), "{open}: sent at {at}");
    let told = ["may have happened", "`post_comment` (call_", ", sent ", "deleted 1 run"];
    env.run(&["runs", "delete", "r", "--force", "--yes"]).code(0).shows(&told);
    env.run(&["resume", "r"]).refused(2, &["there is no run `r`"]);
    assert_eq!(env.run(&["questions", "--json"]).code(0).json(), json!([]));
    env.run(&["runs", "delete"]).refused(2, &["there are no runs to delete"]);
    env.run_bare(&["runs", "delete", "--help"]).code(0).shows(&["ua runs delete --older-than 30d --dry-run"]);
}

#[test]
fn a_deletion_that_is_killed_is_done_or_not_begun() {
    let env = env().with_forum();
    commented(&env, "a");
    let workspace = env.workspace();
    env.run_killed_at("before:store.delete_run", &["runs", "delete", "a", "--yes"]);
    env.run(&["runs", "show", "a"]).code(0);
    assert!(workspace.is_dir());
    env.run_killed_at("after:store.delete_run", &["runs", "delete", "a", "--yes"]);
    env.run(&["runs", "show", "a"]).refused(2, &["there is no run `a`"]);
    env.run(&["db", "check", "--invariants"]).code(0);
    // What is left is a folder of no run, and somebody says so.
    assert!(workspace.is_dir());
    let told = ["warn workspaces: 1 folder without a run in the database", "deleted runs left them behind"];
    env.run(&["doctor"]).shows(&told).shows(&[&workspace.display().to_string()]);
}

#[test]
fn tools_that_nothing_is_known_about_are_noted_with_a_rule_to_begin_with() {
    let env = env();
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--with", "frobnicate"])}));
    env.run(&["tools", "audit"]).code(0).says(&["no past run used an unknown tool"]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Nothing to do."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["job", &job, "--run-id", "s"]).code(0);
    let audit = env.run(&["tools", "audit"]).code(0);
    audit.shows(&["mcp__forum__frobnicate", "external", "[[rule]]", "name = \"frobnicate\"", "on_unknown = \"hold\""]);
    let rows = env.run(&["tools", "audit", "--json"]).code(0).json();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!((&rows[0]["run_id"], &rows[0]["is_known"]), (&json!("r"), &json!(false)));
    // The rule that is suggested is one.
    let policy = env.write("work/policy.toml", rows[0]["suggestion"].as_str().unwrap());
    let rows = env.run(&["tools", "audit", "--policy", &policy, "--json"]).code(0).json();
    assert_eq!(rows[0]["is_known"], true);
}

#[test]
fn completion_knows_runs_calls_and_questions_and_is_silent_without_a_database() {
    let env = env().with_forum();
    let complete = |words: &[&str]| {
        let mut all = vec!["--", "ua"];
        all.extend(words);
        let index = (words.len()).to_string();
        let completing = [("UA_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", index.as_str()), ("_CLAP_IFS", "\n")];
        let output = env.start_bare_with(&completing, &all).wait().code(0);
        assert_eq!(output.stderr, "", "{words:?}");
        // Flags fit everywhere; what is asked about are values.
        output.stdout.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>()
    };
    let root = env.root().display().to_string();
    assert_eq!(complete(&["--root", &root, "runs", "show", "run"]), [""; 0]);
    assert!(!env.root().exists(), "a completion makes no database");
    assert_eq!(complete(&["runs", "ta"]), ["tail"]);

    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("x"), {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "report"]);
    env.run(&["resume", "report"]).code(75);
    assert_eq!(complete(&["--root", &root, "runs", "show", ""]), ["last", "report"]);
    assert_eq!(complete(&["--root", &root, "resume", "re"]), ["report"]);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    assert_eq!(complete(&["--root", &root, "tools", "explain", "post"]), ["post_comment"]);
    assert_eq!(complete(&["tools", "explain", "send_e"]), ["send_email"]);
    assert_eq!(complete(&["tools", "packs", "githu"]), ["github"]);
    assert_eq!(complete(&["job", "--provider", "open"]), ["openai", "openai-chat"]);
    assert_eq!(complete(&["job", "--model", "claude-sonnet-4-5"]), ["claude-sonnet-4-5"]);
    assert_eq!(complete(&["--root", &root, "resume", "re", "--accept", "tools,p"]), ["tools,policy", "tools,pricing"]);
    assert_eq!(complete(&["--root", &root, "runs", "diff", "re"]), ["report"]);
    assert_eq!(complete(&["--root", &root, "calls", "resolve", "call"]), std::slice::from_ref(&call));
    assert_eq!(complete(&["--root", &root, "calls", "show", &call[..8]]), [call]);
    assert_eq!(complete(&["--root", &root, "calls", "show", "la"]), ["last"]);
    let question = env.value("SELECT question_id FROM questions");
    assert_eq!(complete(&["--root", &root, "answer", "q"]), std::slice::from_ref(&question));
    // What people are shown of an id is completed, too, and of the answers those that the question takes.
    let end = |id: &str| id[id.len() - 8..].to_owned();
    assert_eq!(complete(&["--root", &root, "answer", &end(&question)[..3]]), [end(&question)]);
    assert_eq!(complete(&["--root", &root, "answer", &question, ""]), ["happened", "retry", "skip", "abort"]);
    assert_eq!(complete(&["--root", &root, "answer", &end(&question), "s"]), ["skip"]);
    assert_eq!(complete(&["--root", &root, "answer", "none-such", "hap"]), ["happened"]);
    assert_eq!(complete(&["schema", "run"]), ["runs"]);
    assert_eq!(complete(&["schema", "runs", "li"]), ["list"]);
    assert_eq!(complete(&["schema", "job"]), ["job", "job-file"]);
    assert_eq!(complete(&["man", "runs", "ca"]), ["cancel"]);
    assert!(complete(&["job", "--model", ""]).iter().all(|name| !name.ends_with(['-', '*'])));
    // A database that cannot be read completes nothing, and says nothing.
    std::fs::write(env.database_path(), "no database").unwrap();
    assert_eq!(complete(&["--root", &root, "runs", "show", "re"]), [""; 0]);
}

#[test]
fn every_shell_gets_a_script() {
    let env = env();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        env.run_bare(&["completions", shell]).code(0).shows(&["UA_COMPLETE", "ua"]);
        let script = env.run_bare(&["completions", shell, "--static"]).code(0);
        script.shows(&["tail", "delete", "doctor", "no-follow"]);
    }
    env.run_bare(&["completions", "tcsh"]).code(2);
    for (name, args) in [("static", &["completions", "bash", "--static"][..]), ("asking", &["completions", "bash"])] {
        let script = env.write(&format!("work/{name}.bash"), env.run_bare(args).stdout);
        let read = std::process::Command::new("bash").arg("-n").arg(script).status().unwrap();
        assert!(read.success(), "{name}");
    }
}

#[test]
fn a_reader_that_goes_away_is_told_by_the_code_alone() {
    let env = env().with_forum();
    for run in ["a", "b", "c"] {
        commented(&env, run);
    }
    for command in
        ["runs list", "runs list --json", "runs show a --json", "calls list", "runs tail a", "--help", "--version"]
    {
        // It is gone before anything is written: nothing depends on how fast either of the two is.
        let output = env.run_by_bash(&format!("exec 3> >(:); wait $!; \"$@\" {command} >&3; exit $?"));
        assert_eq!(output.stderr, "", "{command}");
        output.code(141);
    }
    // One that works until it is ended ends as by a signal: nobody hears what it does.
    env.run_by_bash("exec 3> >(:); wait $!; \"$@\" worker --json >&3; exit $?").code(141);
    // What went wrong has the code that it always has.
    env.run_by_bash("exec 3> >(:); wait $!; \"$@\" runs show nothing >&3; exit $?").refused(2, &["`nothing`"]);
}

#[test]
fn errors_are_json_where_everything_is() {
    let env = env().with_forum();
    commented(&env, "r");
    let body = |args: &[&str], code: i32| {
        let output = env.run(args).code(code);
        assert_eq!(output.stdout, "", "{args:?}");
        serde_json::from_str::<Value>(output.stderr.trim()).unwrap_or_else(|e| panic!("{e}: {}", output.shown()))
    };
    let error = body(&["runs", "show", "nobody", "--json"], 2);
    assert_eq!(error["error"]["code"], 2);
    assert!(error["error"]["message"].as_str().unwrap().contains("nobody"));
    assert!(error["error"]["hint"].as_str().unwrap().contains("ua runs list"));
    let error = body(&["runs", "shwo", "--json"], 2);
    assert!(error["error"]["message"].as_str().unwrap().contains("shwo"), "{error}");
    let error = body(&["job", "nothing.json", "--json"], 2);
    assert!(error["error"]["message"].as_str().unwrap().contains("nothing.json"));
}
