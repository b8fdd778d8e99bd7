//! `ua doctor`: what it looks at, what it finds, and that each finding says what to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rusqlite::Connection;
use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn finding(report: &Value, check: &str) -> Value {
    let all = report["findings"].as_array().unwrap();
    all.iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("nothing about {check}: {report}"))
        .clone()
}

fn level(env: &TestEnv, code: i32, check: &str) -> (String, Value) {
    let report = env.run(&["doctor", "--json"]).code(code).json();
    assert_eq!(report["ok"], code == 0);
    let finding = finding(&report, check);
    (finding["level"].as_str().unwrap().to_owned(), finding)
}

#[test]
fn a_place_where_jobs_can_run_is_well() {
    let env = env().with_pdf().with_env("ANTHROPIC_API_KEY", "very-secret").with_forum();
    let brief = env.run(&["doctor"]).code(0);
    assert!(!brief.stdout.contains("SETTING") && !brief.stdout.contains("ok   "), "{}", brief.shown());
    brief.shows(&["0 failures; --verbose shows"]);
    let output = env.run(&["doctor", "--verbose"]).code(0);
    output.shows(&[
        "SETTING",
        "mcp__forum__post_comment",
        "ok   model: a key for anthropic is set",
        "ok   server forum: started, 2 tools",
        "ok   server ua: started",
        "ok   database: none yet",
        "ok   pdf: render_pdf is built in",
        "0 failures",
    ]);
    assert!(!env.root().exists(), "looking leaves nothing behind");
    let report = env.run(&["doctor", "--json"]).code(0).json();
    let tool = report["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "mcp__forum__get_page").unwrap();
    assert_eq!((&tool["policy"]["class"], tool["policy"]["reason"].is_string()), (&json!("read_only"), true));
    for check in ["disk", "clock", "file system", "locks", "email", "upload", "prices"] {
        assert_ne!(finding(&report, check)["level"], "fail", "{check}");
    }
}

/// What `ua init` makes runs as it is, so nothing has failed before anything was done: a model to ask comes next, once.
#[test]
fn right_after_init_nothing_fails() {
    let env = env();
    env.run_bare(&["init"]).code(0);
    let told = env.run_bare(&["doctor"]).code(0);
    let begins = |word: &str| told.stdout.lines().any(|line| line.starts_with(word));
    assert!(!begins("fail ") && !begins("warn prices"), "{}", told.shown());
    told.shows(&["warn model: no model is set up yet", "runs without a key", "ANTHROPIC_API_KEY", "0 failures"]);
    env.run_bare(&["job", "job.json"]).code(0);
    // Whoever chose a provider wants it to be asked.
    let (is, _) = level(&env.with_env("UA_PROVIDER", "anthropic"), 1, "model");
    assert_eq!(is, "fail");
}

#[test]
fn each_failure_says_what_to_do() {
    let env = env().with_env("UA_PROVIDER", "anthropic");
    let (is, about) = level(&env, 1, "model");
    assert_eq!((is.as_str(), about["fix"].as_str().unwrap().contains("ANTHROPIC_API_KEY")), ("fail", true));
    let env = env.with_env("ANTHROPIC_API_KEY", "k");
    env.mcp_config(
        "work/.mcp.json",
        &json!({
            "broken": {"command": "/nothing/here", "args": []},
            "forum": env.forum_entry(&["--with", "frobnicate"]),
        }),
    );
    let report = env.run(&["doctor", "--json"]).code(1).json();
    assert_eq!(finding(&report, "server broken")["level"], "fail");
    // One that is broken does not hide the others, and what nothing is known about is a warning.
    assert_eq!(finding(&report, "server forum")["level"], "warn");
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["level"] == "ok", finding["fix"].is_null(), "{finding}");
    }
    env.mcp_config("work/.mcp.json", &json!({}));
    std::fs::create_dir_all(env.root()).unwrap();
    std::fs::write(env.database_path(), "this is no database, and long enough to be looked at as one").unwrap();
    let (is, about) = level(&env, 1, "database");
    assert_eq!((is.as_str(), about["fix"].as_str().unwrap().contains("ua db restore")), ("fail", true));
}

/// Whoever sets a variable wants it to count.
#[test]
fn a_variable_that_nothing_reads_is_named_and_one_that_would_protect_is_refused() {
    let env = env().with_env("UA_WEATHER", "fine").with_env("UA_NAME_OF_FORUM", "a forum");
    let mut forum = env.forum_entry(&[]);
    forum["env"]["NAME"] = json!("${UA_NAME_OF_FORUM}");
    env.mcp_config("work/.mcp.json", &json!({"forum": forum}));
    let told = env.run(&["doctor"]).shows(&["warn environment: nothing reads the variable UA_WEATHER"]);
    assert!(!told.stdout.contains("UA_NAME_OF_FORUM"), "a tool server is given it: {}", told.shown());
    for (variable, field) in [
        ("UA_MAX_COST", "budgets.max_cost"),
        ("UA_TOOLS_DENY", "tools.deny"),
        ("UA_APPROVAL", "escalation.ask_human_before"),
    ] {
        let refused = env.start_with((variable, "1"), &["runs", "list"]).wait();
        refused.refused(2, &[&format!("there is no environment variable `{variable}`"), &format!("`{field}`")]);
    }
}

#[test]
fn what_a_dead_process_left_behind_is_named() {
    let env = env().with_forum().with_env("ANTHROPIC_API_KEY", "k");
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    std::fs::create_dir_all(env.root().join("session_of_nobody")).unwrap();
    let report = env.run(&["doctor", "--json"]).code(0).json();
    let owner = finding(&report, "ended process");
    let fix = format!("`ua resume r --root {}` resumes it", env.root().display());
    assert_eq!((&owner["level"], owner["fix"].as_str().unwrap()), (&json!("warn"), fix.as_str()));
    assert!(finding(&report, "workspaces")["detail"].as_str().unwrap().contains("session_of_nobody"));
    assert!(finding(&report, "database")["detail"].as_str().unwrap().contains("journal wal"));
}

/// A folder that is gone is told of each run that is not finished, with what to do; of a run that has ended, or waits in the queue and has none yet,
/// nobody needs one.
#[test]
fn a_workspace_of_an_unfinished_run_that_is_gone_is_named() {
    let env = env().with_env("ANTHROPIC_API_KEY", "k");
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_on_repeated_failures": true}});
    let refusal = json!({"text": "No.", "stop_reason": "refusal"});
    let waits = env.named_job("waits", &fields, &json!([refusal, refusal]));
    let ends = env.named_job("ends", &fields, &json!([{"text": "Done."}]));
    for run in ["w1", "w2", "w3", "w4", "w5"] {
        env.run(&["job", &waits, "--run-id", run, "--new"]).code(75);
    }
    env.run(&["job", &ends, "--run-id", "done"]).code(0);
    let later = env.named_job("later", &fields, &json!([{"text": "Later."}]));
    env.run(&["submit", &later, "--run-id", "queued"]).code(0);
    let told = |env: &TestEnv| {
        let report = env.run(&["doctor", "--json"]).json();
        let all = report["findings"].as_array().unwrap().clone();
        let all = all.into_iter().filter(|finding| finding["check"] == "workspaces");
        all.map(|finding| [&finding["detail"], &finding["fix"]].map(|text| text.as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&env), Vec::<[String; 2]>::new());
    let sessions: Vec<_> = std::fs::read_dir(env.root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("session_"))
        .collect();
    assert!(sessions.len() >= 6, "{sessions:?}");
    for folder in &sessions {
        std::fs::remove_dir_all(folder).unwrap();
    }
    let found = told(&env);
    assert_eq!(found.len(), 4, "{found:#?}");
    for ([detail, fix], run) in found.iter().zip(["w5", "w4", "w3"]) {
        assert!(detail.contains(&format!("run {run}, which is not finished")), "{detail}");
        assert!(["put it back", &format!("ua runs cancel {run}")].iter().all(|part| fix.contains(part)), "{fix}");
    }
    assert!(found[3][0].starts_with("those of 2 more runs") && found[3][0].ends_with(": w2, w1"), "{found:#?}");
    assert!(found[3][1].contains("ua runs show w2"), "{found:#?}");
}

#[test]
fn a_job_is_looked_at_before_it_is_run() {
    let env = env();
    let fine = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["doctor", "--verbose", "--job", &fine]).code(0).shows(&[
        "ok   job:",
        "would start",
        "a scripted model costs nothing",
    ]);
    // One fault is one finding, with the way out that the job itself is told.
    let keyless =
        json!({"objective": "x", "model": {"provider": "openai-chat", "name": "m"}, "tools": {"builtin": false}});
    let keyless = env.write("work/keyless.json", keyless.to_string());
    let report = env.run(&["doctor", "--job", &keyless, "--json"]).code(1).json();
    let failed: Vec<&Value> =
        report["findings"].as_array().unwrap().iter().filter(|finding| finding["level"] == "fail").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0]["fix"].as_str().unwrap().contains("OPENAI_BASE_URL"), "{failed:?}");
    let wrong = env.write("work/wrong.json", json!({"objective": "x", "tools": {"servers": ["nobody"]}}).to_string());
    env.run(&["doctor", "--job", &wrong]).code(1).shows(&["fail job:", "fix: "]);
    // What `ua job` refuses once it has the tools is refused here with the same words.
    env.write("work/rule.toml", "[[rule]]\nid = \"r\"\nname = \"notfy\"\napproval = \"ask\"\n");
    for (fields, said) in [
        (json!({"escalation": {"ask_human_before": ["notfy"]}}), "`notfy` in escalation.ask_human_before"),
        (json!({"tools": {"deny": ["notfy"]}}), "`notfy` in tools.deny"),
        (json!({"stop_conditions": [{"effect": "emial.send"}]}), "`emial.send` in stop_conditions"),
        (json!({"policies": ["rule.toml"]}), "notfy"),
    ] {
        let job = env.job(&fields, &json!([{"text": "Done."}]));
        let looked = env.run(&["doctor", "--job", &job]).code(1).shows(&["fail job:", said]);
        assert!(!looked.stdout.contains("would start"), "{}", looked.stdout);
        env.run(&["job", &job]).code(2).says(&[said]);
    }
    // So is a tool server whose program is not there.
    env.mcp_config("work/.mcp.json", &json!({"gone": {"command": "no-such-program"}}));
    env.run(&["doctor"]).code(1).shows(&["the program `no-such-program` of the tool server `gone` was not found"]);
    std::fs::remove_file(env.path("work/.mcp.json")).unwrap();
    std::fs::remove_dir_all(env.root()).ok();
    assert!(!env.root().exists());
}

/// As `ua job --check`: who corrects the first thing is not sent to find the next one.
#[test]
fn all_that_is_in_the_way_of_a_job_is_found_at_once() {
    let env = env().with_forum();
    let fields = json!({
        "model": {"provider": "anthropic", "name": "m"}, "budgets": {"max_cost": "1 USD"}, "tools": {"builtin": false},
        "escalation": {"ask_human_before": ["post_coment"]}, "files": ["gone.txt"],
    });
    let job = env.job(&fields, &json!([]));
    let all = [
        "there is no API key for the provider `anthropic`",
        "a max_cost needs a price",
        "gone.txt",
        "`post_coment` in escalation.ask_human_before (did you mean",
    ];
    let checked = env.run(&["job", "--check", &job]).code(2).says(&all);
    let report = env.run(&["doctor", "--job", &job, "--json"]).code(1).json();
    let findings = report["findings"].as_array().unwrap();
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding["level"] == "fail")
        .map(|finding| finding["detail"].as_str().unwrap())
        .collect();
    for words in all {
        assert_eq!(failed.iter().filter(|detail| detail.contains(words)).count(), 1, "{words}: {failed:?}");
    }
    assert_eq!(failed.len(), checked.stderr.matches("error: ").count(), "{failed:?}\n{}", checked.shown());
    assert!(!report.to_string().contains("nothing was started"), "{report}");
    // What lets it start, and end before it is done, is a warning of both.
    let conditions = json!([{"effect": "email.send", "count": 3}]);
    let fields = json!({"stop_conditions": conditions, "budgets": {"max_tool_calls": 2}});
    let job =
        env.job(&fields, &json!([{"tools": [{"name": "mcp__ua__no_such_tool", "input": {}}]}, {"text": "Done."}]));
    let doubts = ["the conditions ask for 3 effects", "no_such_tool"];
    env.run(&["job", "--check", &job]).code(0).says(&doubts);
    env.run(&["doctor", "--job", &job]).code(0).shows(&doubts).shows(&["warn job: "]);
}

#[test]
fn rules_and_names_that_are_about_no_tool_are_warnings() {
    let env = env()
        .with_forum()
        .with_env("ANTHROPIC_API_KEY", "k")
        .with_env("UA_SIDE_EFFECT_DENYLIST", "get_page,lisst_parcels");
    let env = env.with_env("UA_SERVER_PACKS", "forum=none,gihub=github");
    env.write("home/.config/ua/policy.toml", "[[rule]]\nid = \"mine\"\nname = \"post_coment\"\napproval = \"ask\"\n\n[[rule]]\nid = \"good\"\nname = \"post_comment\"\napproval = \"ask\"\n");
    let shown = env.run(&["doctor"]).code(0);
    assert!(!shown.stdout.contains("`good`") && !shown.stdout.contains("`get_page`"), "{}", shown.shown());
    shown.shows(&[
        "warn policies: `mine` (",
        "policy.toml) matches no tool",
        "`lisst_parcels` (setting side_effect_denylist)",
        "warn packs: `gihub=github`",
    ]);
}

/// A run that ended without a call that a person left; and the call.
fn left_by_a_person() -> (TestEnv, String) {
    let env = env().with_forum().with_env("ANTHROPIC_API_KEY", "k");
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "skip"]).code(0);
    env.run(&["resume", "r"]).code(0);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    (env, call)
}

#[test]
fn a_call_that_a_migration_put_in_doubt_is_listed_until_somebody_says_what_became_of_it() {
    let (env, call) = left_by_a_person();
    let listed = |env: &TestEnv| {
        let report = env.run(&["doctor", "--json"]).code(0).json();
        let all = report["findings"].as_array().unwrap().clone();
        all.into_iter().filter(|finding| finding["check"] == "calls").collect::<Vec<_>>()
    };
    assert_eq!(listed(&env), [Value::Null; 0], "a doubt that a person knows of is no finding");
    // In the words of the migration itself.
    let migration = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite/V8__doubt.sql");
    let migration = std::fs::read_to_string(migration).unwrap();
    let words = migration.split("error_detail = '").nth(1).unwrap().split('\'').next().unwrap();
    let database = Connection::open(env.database_path()).unwrap();
    assert_eq!(database.execute("UPDATE tool_calls SET error_detail = ?1 || 'refused'", [words]).unwrap(), 1);
    drop(database);

    let [finding] = &listed(&env)[..] else { panic!("one call is to be looked at") };
    let text = |field: &str| finding[field].as_str().unwrap().to_owned();
    assert_eq!(text("level"), "warn");
    assert!(text("detail").contains(&call) && text("detail").contains("its outcome is unknown"), "{finding}");
    assert!(text("fix").contains(&format!("ua calls resolve {call} --as")), "{finding}");
    env.run(&["calls", "resolve", &call, "--as", "happened", "--reason", "It is there", "--yes"]).code(0);
    assert_eq!(listed(&env), [Value::Null; 0]);
}

#[test]
fn what_the_records_may_not_say_is_listed_and_is_no_damage() {
    let env = env().with_forum();
    env.write(
        "work/on.toml",
        "[[rule]]\nid = \"on\"\nserver = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\non_unknown = \"continue\"\n",
    );
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "policies": ["on.toml"]}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    let check = ["db", "check", "--invariants"];
    let json = || env.run(&["db", "check", "--invariants", "--json"]).code(0).json();
    assert_eq!(json()["to_look_at"], json!([]));
    // As a process leaves it that dies behind the answer to a run that went on without it.
    let database = Connection::open(env.database_path()).unwrap();
    let answer = "INSERT INTO answers (question_id, choice, answered_by, answered_at, link) \
                  SELECT question_id, 'happened', 'tester', created_at, '' FROM questions";
    assert_eq!(database.execute(answer, []).unwrap(), 1);
    assert_eq!(database.execute("UPDATE questions SET status = 'answered'", []).unwrap(), 1);
    drop(database);

    let report = json();
    assert_eq!((&report["ok"], &report["violations"]), (&json!(true), &json!([])));
    let [row] = &report["to_look_at"].as_array().unwrap()[..] else { panic!("one place: {report}") };
    assert_eq!(
        (&row["run_id"], &row["row"], &row["invariant"]),
        (&json!("r"), &json!(question), &json!("an_answer_beside_a_run_is_applied"))
    );
    let shown = env.run(&check).code(0);
    shown.shows(&["To review", "1 place", &question, "resume the run once"]).says(&["ua calls resolve CALL --as"]);
    // What it advises helps.
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    assert_eq!(json()["to_look_at"], json!([]));
}
