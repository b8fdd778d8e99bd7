//! What somebody meets who uses the program for the first time: other spellings of a folder, commands to copy, misspelt names, the same command
//! given twice.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::env;
use super::server_database::comment_job;

/// A folder of workspaces is the same one through `..`, through a link and by its own name: a run that was submitted by one spelling is worked
/// on, shown and deleted by the others.
#[test]
fn a_root_may_be_spelt_in_any_way() {
    let env = env().with_forum();
    let job = comment_job(&env);
    fs::create_dir_all(env.path("sub")).unwrap();
    std::os::unix::fs::symlink(env.root(), env.path("link")).unwrap();
    let (dots, link) = (format!("{}/../root", env.arg("sub")), env.arg("link"));
    let plain = env.arg("root");
    for (nth, [submits, works, deletes]) in
        [[&dots, &plain, &link], [&plain, &link, &dots], [&link, &dots, &plain]].into_iter().enumerate()
    {
        let name = format!("r{nth}");
        env.run(&["submit", &job, "--run-id", &name, "--root", submits]).code(0);
        env.run(&["worker", "--until-empty", "--root", works]).code(0);
        env.run(&["runs", "show", &name, "--root", deletes]).code(0);
        let workspace = env.value(&format!("SELECT workspace_dir FROM runs WHERE run_id = '{name}'"));
        assert!(workspace.starts_with(&plain) && !workspace.contains(".."), "{workspace}");
        assert!(fs::metadata(&workspace).is_ok());
        env.run(&["runs", "delete", &name, "--yes", "--root", deletes]).code(0);
        assert!(fs::metadata(&workspace).is_err(), "{workspace}");
    }
    assert_eq!(env.comments().len(), 3);
}

/// A worker that can do nothing with what is left says what, and ends.
#[test]
fn a_worker_until_empty_ends_with_what_it_cannot_take() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    database.execute("UPDATE runs SET workspace_dir = '/elsewhere/session_1'", []).unwrap();
    drop(database);
    let worker = env.run(&["worker", "--until-empty"]).code(75);
    let worker =
        worker.says(&["1 run left in the queue that cannot be driven here: r: its workspace is /elsewhere/session_1"]);
    assert_eq!(worker.stderr.matches("run r cannot be driven here").count(), 1, "{}", worker.stderr);
    assert!(env.comments().is_empty());
}

/// The commands in a page that name no folder.
fn without_a_root(page: &str) -> BTreeSet<String> {
    const LOOKED_FOR: [&str; 9] =
        ["answer", "resume", "questions", "runs", "calls", "fork", "queue", "submit", "status"];
    let line = |line: &str| {
        let found = line.match_indices("ua ").filter(|(at, text)| {
            let is_word = !line[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            is_word && LOOKED_FOR.iter().any(|word| line[at + text.len()..].starts_with(word))
        });
        let command = |(at, _): (usize, &str)| line[at..].split(['`', '"']).next().unwrap_or_default().to_owned();
        found.map(command).filter(|command| !command.contains("--root")).collect::<Vec<_>>()
    };
    page.lines().flat_map(line).collect()
}

/// Every command that is told works as it is told: where the default would not find the run, it names the folder, on the terminal, in JSON, in
/// hints and in the pages of the workspace.
#[test]
fn every_command_that_is_told_names_the_folder() {
    let env = env().with_forum();
    let posts = [json!({"name": "mcp__forum__post_comment", "input": {"text": "one"}})];
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&fields, &json!([{"tools": posts}, {"text": "Done."}]));
    let asked = env.run(&["job", &job, "--run-id", "r"]).code(75);
    let mut pages = vec![("job", asked.shown())];
    let questions = env.rows("SELECT question_id FROM questions");
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let mut run = |name: &'static str, args: &[&str]| pages.push((name, env.run(args).shown()));
    run("job again", &["job", &job]);
    run("job --check", &["job", "--check", &job]);
    run("job --check --json", &["job", "--check", &job, "--json"]);
    run("questions", &["questions"]);
    run("questions --json", &["questions", "--json"]);
    run("answer without a word", &["answer", &questions[0]]);
    run("calls show", &["calls", "show", &call]);
    run("runs show", &["runs", "show", "r"]);
    run("runs list", &["runs", "list"]);
    run("status", &["status"]);
    run("status --json", &["status", "--json"]);
    run("doctor", &["doctor"]);
    run("doctor --json", &["doctor", "--json"]);
    run("no such run", &["runs", "show", "nope"]);
    run("no such run, --json", &["runs", "show", "nope", "--json"]);
    run("answer", &["answer", &questions[0], "approve"]);
    run("answer again", &["answer", &questions[0], "approve"]);
    run("resume", &["resume", "r"]);
    run("runs delete", &["runs", "delete", "nope", "--yes"]);
    for file in ["RESTART.md", "session_summary.txt", "job_completion_r.md", "job_completion_r.json"] {
        let place = if file == "RESTART.md" { env.root() } else { env.workspace() };
        pages.push(("a page of the workspace", fs::read_to_string(place.join(file)).unwrap()));
    }
    let found = pages.iter().map(|(name, page)| (name, without_a_root(page)));
    let wrong: Vec<_> = found.filter(|(_, commands)| !commands.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let told = pages.iter().filter(|(_, page)| page.contains(" --root ")).count();
    assert!(told > 10, "commands are looked at: {told} pages have one");
}

/// The same command while the first is still at work sends nothing a second time.
#[test]
fn a_job_that_is_at_work_is_not_started_beside_itself() {
    let env = env().with_forum();
    // It has done its effect, and is not answered before the file is there.
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "first", "until": env.arg("go")}});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Posted."}]));
    let first = env.start(&["job", &job, "--run-id", "first"]);
    until("its comment", || env.comments().len() == 1);
    let words = ["run first of the same job", "ua runs tail first", "--new", "nothing was started"];
    env.run(&["job", &job]).refused(75, &words);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["first"]);
    env.run(&["job", "--check", &job]).code(75).says(&words).shows(&["Running        run first"]);
    env.write("go", "");
    first.wait().code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Processes that are told to run the same job at one moment: one of them does, and the others say so. Likewise with the queue.
#[test]
fn the_same_job_at_one_moment_begins_one_run() {
    let env = env().with_forum();
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "once", "until": env.arg("go")}});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Posted."}]));
    let refused = |command: &'static str| {
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (env, job, sender) = (&env, &job, sender.clone());
                scope.spawn(move || sender.send(env.run(&[command, job])).unwrap());
            }
            let mut outputs: Vec<_> = (0..3).map(|_| ended.recv().unwrap()).collect();
            env.write("go", "");
            outputs.push(ended.recv().unwrap());
            let refused = outputs.iter().filter(|output| output.stderr.contains("of the same job")).count();
            (refused, env.rows("SELECT run_id FROM runs").len())
        })
    };
    assert_eq!(refused("job"), (3, 1));
    assert_eq!(env.comments().len(), 1);
    assert_eq!(refused("submit"), (3, 2));
}

/// The same submission twice queues one run, and whoever runs the job here is told of it.
#[test]
fn a_job_that_is_queued_is_not_queued_again_unless_it_is_asked_for() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["submit", &job]).code(0);
    let run = env.value("SELECT run_id FROM runs");
    let resume = format!("ua resume {run}");
    env.run(&["submit", &job]).refused(75, &[&run, "is already in the queue `default`", "--new", "nothing was queued"]);
    env.run(&["job", &job]).refused(75, &[&run, "is in the queue `default`", &resume, "--new", "nothing was started"]);
    env.run(&["job", "--check", &job]).code(75).says(&[&run, "is in the queue"]).shows(&["Queued         run"]);
    let told: serde_json::Value = serde_json::from_str(&env.run(&["submit", &job, "--json"]).code(75).stderr).unwrap();
    assert_eq!((&told["error"]["kind"], &told["error"]["run_id"]), (&json!("run_queued"), &json!(run)));
    assert_eq!(env.rows("SELECT run_id FROM runs"), [run]);
    // Asked for, by the word for it or by a name.
    env.run(&["submit", &job, "--new"]).code(0);
    env.run(&["submit", &job, "--run-id", "named"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 3);
    // From standard input, with `-`.
    let submitted = env.run_by_bash(&format!("\"$@\" submit - --run-id piped < '{job}'")).code(0);
    assert_eq!(submitted.stdout.trim(), "piped");
    env.run(&["submit", &job, "--new", "--job-key", "k"]).code(2);
}

/// There is one run of a key, so the word for another one is refused and not taken for nothing.
#[test]
fn a_new_run_of_a_job_whose_key_is_queued_is_refused() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}, "job_key": "report-1"}), &json!([{"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    let told = ["run r has the job key \"report-1\"", "`--new` queues no second run of a key", "`ua runs show r`"];
    for more in [&["--new"][..], &["--new", "--run-after", "2099-01-01T00:00:00Z"]] {
        env.run(&[&["submit", &job][..], more].concat()).refused(2, &told).says(&["nothing was queued"]);
    }
    let refused = env.run(&["submit", &job, "--new", "--json"]).code(2);
    let said: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!((&said["error"]["kind"], &said["error"]["run_id"]), (&json!("job_key_taken"), &json!("r")));
    // Without the word it is the run that is there, and under another key another one.
    env.run(&["submit", &job]).code(0).says(&["already in the queue"]);
    env.run(&["submit", &job, "--job-key", "report-2"]).code(0);
    assert_eq!(env.rows("SELECT run_id FROM runs").len(), 2);
}

/// A queue is made by naming it, so a misspelt one is told of.
#[test]
fn a_queue_that_nobody_serves_is_told_with_the_nearest_name() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let first = env.run(&["submit", &job, "--run-id", "a", "--queue", "email"]).code(0);
    first.says(&["no worker takes from the queue `email`", "ua worker --queue email"]);
    let second = env.run(&["submit", &job, "--run-id", "b", "--queue", "emial"]).code(0);
    second.says(&["did you mean `email`?", "ua queue move b --queue email"]);
    let third = env.run(&["submit", &job, "--run-id", "c", "--queue", "email"]).code(0);
    assert!(!third.stderr.contains("warning"), "{}", third.stderr);
    env.run(&["queue", "move", "b", "--queue", "email"]).code(0);
    env.run(&["worker", "--queue", "emial", "--until-empty"]).code(0).says(&["did you mean `email`?"]);
    env.run(&["worker", "--queue", "email", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 3);
}

/// An edited job is started beside a run of its earlier text, and what that run left in doubt is said first.
#[test]
fn an_edited_job_is_told_of_what_its_earlier_text_left_in_doubt() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "first"]);
    let edit = |objective: &str| {
        let mut text: serde_json::Value = serde_json::from_str(&env.read("work/job.json")).unwrap();
        text["objective"] = json!(objective);
        env.write("work/job.json", text.to_string());
    };
    edit("Post it once more.");
    let said = env.run(&["job", &job, "--run-id", "second"]).code(0);
    said.says(&["warning: run first of an earlier text of this job", "post_comment", "ua resume first"]);
    env.run(&["resume", "first"]).code(75);
    let question = env.value("SELECT question_id FROM questions");
    edit("And once more.");
    let said = env.run(&["job", &job, "--run-id", "third"]).code(0);
    said.says(&["warning: run first of an earlier text", &format!("ua answer {question}")]);
    // Once it is settled, nothing is said any more.
    env.run(&["answer", &question, "happened"]).code(0);
    env.run(&["resume", "first"]).code(0);
    edit("The last time.");
    let said = env.run(&["job", &job, "--run-id", "fourth"]).code(0);
    assert!(!said.stderr.contains("warning"), "{}", said.stderr);
}

/// What the earlier text got need not be got again.
#[test]
fn an_edited_job_is_told_how_the_turns_of_its_earlier_text_are_kept() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let mut text: serde_json::Value = serde_json::from_str(&env.read("work/job.json")).unwrap();
    let mut write = |field: &str, value: serde_json::Value| {
        text[field] = value;
        env.write("work/job.json", text.to_string());
    };
    write("budgets", json!({"max_turns": 1}));
    env.run(&["job", &job, "--run-id", "first"]).code(75);
    write("budgets", json!({"max_turns": 9}));
    let said = env.run(&["job", &job, "--run-id", "second"]).code(0);
    said.says(&[
        "note: run first of an earlier text of this job is not finished (1 turn)",
        "ua fork first --job-overrides",
    ]);
}

/// A job key is a promise, which `--new` does not lift.
#[test]
fn a_new_run_of_a_done_job_key_is_refused_with_the_way_out() {
    let env = env().with_forum();
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "x"}});
    let fields = json!({"job_key": "k", "tools": {"builtin": false}});
    let job = env.job(&fields, &json!([{"tools": [post]}, {"text": "Posted."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["job", &job, "--new"]).refused(2, &["run r succeeded under the job key \"k\"", "--again"]);
    env.run(&["job", &job]).code(0).shows(&["succeeded · run r"]);
    assert_eq!(env.comments().len(), 1);
    env.run(&["job", &job, "--again"]).code(0);
    assert_eq!(env.comments().len(), 2);
}

/// What would fail when the script is played is told before anything is started.
#[test]
fn a_check_looks_into_the_script_that_plays_the_model() {
    let env = env().with_forum();
    let post = json!({"name": "mcp__forum__post_coment", "input": {"text": "{{result:toolu_9_1}}"}});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Posted."}]));
    let checked = env.run(&["job", "--check", &job]).code(0);
    checked.says(&[
        "asks for the tool `mcp__forum__post_coment`",
        "did you mean `mcp__forum__post_comment`?",
        "`toolu_9_1`",
    ]);
    let doubts = env.run(&["job", "--check", &job, "--json"]).code(0).json()["script_doubts"].clone();
    assert_eq!(doubts.as_array().map(Vec::len), Some(2), "{doubts}");
}

/// A fork has turns and calls of another run, and says which are its own.
#[test]
fn a_fork_says_what_it_inherited() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"]).code(0);
    let shown = env.run(&["runs", "show", "f"]).code(0);
    shown.shows(&[
        "Turns          2, the first of them inherited",
        "Calls          none of its own; inherited: 1 succeeded",
    ]);
    let workspace = std::path::PathBuf::from(env.value("SELECT workspace_dir FROM runs WHERE run_id = 'f'"));
    let summary = fs::read_to_string(workspace.join("session_summary.txt")).unwrap();
    assert!(summary.contains("calls      none of its own; inherited: 1 succeeded"), "{summary}");
    let completion = fs::read_to_string(workspace.join("job_completion_f.md")).unwrap();
    assert!(completion.contains("Inherited with the turns that it shares with r, and not repeated:"), "{completion}");
    assert!(env.run(&["runs", "diff", "r", "f"]).code(0).stdout.find("transcript.md").is_none());
}

fn refused_by_both(env: &TestEnv, job: &str, more: &[&str], words: &[&str]) {
    env.run(&[&["job", job], more].concat()).refused(2, words);
    env.run(&[&["job", "--check", job], more].concat()).code(2).says(words);
    assert!(env.try_rows("SELECT run_id FROM runs").is_empty(), "nothing is stored");
}

/// What makes a start fail is found by `ua job` before anything is stored, and by `ua job --check` alike.
#[test]
fn what_a_policy_says_about_nothing_stops_the_start() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let policy =
        |name: &str, rule: &str| env.write(&format!("work/{name}.toml"), format!("[[rule]]\nid = \"{name}\"\n{rule}"));
    // A misspelt name of a rule that is to protect.
    for care in ["approval = \"ask\"", "on_unknown = \"hold\"", "side_effect_class = \"external\""] {
        let file = policy("typo", &format!("name = \"post_coment\"\n{care}\n"));
        refused_by_both(
            &env,
            &job,
            &["--policy", &file],
            &["`post_coment` in rule `typo`", "did you mean `post_comment`?"],
        );
    }
    // A probe that nobody offers, with and without a class.
    for class in ["", "side_effect_class = \"external\"\n"] {
        let rule = "name = \"post_comment\"\non_unknown = \"probe\"\nmarker = { argument = \"text\", append = \"ref {key}\" }\n\
                    probe = { tool = \"look\", arguments = { q = \"{key}\" }, found = { items = \"all\", field = \"text\", contains = \"{key}\" }, settle = \"1s\" }\n";
        let file = policy("probe", &format!("{class}{rule}"));
        refused_by_both(&env, &job, &["--policy", &file], &["the policy `probe` wants to ask a probe", "`look`"]);
        env.run(&["tools", "explain", "post_comment", "--policy", &file])
            .shows(&["no job would start with this", "`look`"]);
    }
    // An effect that no tool makes, because a rule says so.
    let file = policy("reads", "name = \"post_comment\"\nside_effect_class = \"read_only\"\n");
    let wants = env.named_job(
        "wants.json",
        &json!({"tools": {"builtin": false}, "stop_conditions": ["email_sent_once"]}),
        &json!([{"text": "Done."}]),
    );
    refused_by_both(
        &env,
        &wants,
        &["--policy", &file],
        &["no tool of this job has the effect", "`email.send` (`email_sent_once`)"],
    );
    // A choice of a tool that is not there.
    let model = json!({"provider": "scripted", "script": "chooses.script.json", "tool_choice": "post_coment"});
    let chooses = env.named_job("chooses", &json!({"model": model}), &json!([{"text": "Done."}]));
    refused_by_both(&env, &chooses, &[], &["\"post_coment\"", "`model.tool_choice`"]);
    assert!(env.comments().is_empty());
}
