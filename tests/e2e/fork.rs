//! Forks: another run that goes on from a turn of the first one, with its files, and without doing again what was done.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::{env, undeclared};

fn tool(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": name, "input": input}]})
}

fn write(path: &str, content: &str) -> Value {
    tool("mcp__ua__write_local_file", &json!({"path": path, "content": content}))
}

fn comment(text: &str) -> Value {
    tool("mcp__forum__post_comment", &json!({"text": text}))
}

/// Two files, then a comment.
fn turns() -> Value {
    json!([write("work_products/a.md", "one"), write("work_products/b.md", "two"), comment("hello"), {"text": "Done."}])
}

fn workspace(env: &TestEnv, run: &str) -> PathBuf {
    PathBuf::from(env.value(&format!("SELECT workspace_dir FROM runs WHERE run_id = '{run}'")))
}

fn status(env: &TestEnv, run: &str) -> String {
    env.value(&format!("SELECT status FROM runs WHERE run_id = '{run}'"))
}

fn question(env: &TestEnv) -> String {
    env.value("SELECT question_id FROM questions WHERE status <> 'closed'")
}

#[test]
fn a_fork_shares_the_turns_takes_the_files_and_does_not_repeat_what_was_done() {
    let env = undeclared(env().with_forum());
    let job = env.job(&json!({}), &turns());
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    let (messages, calls) = (env.rows("SELECT * FROM messages"), env.rows("SELECT * FROM tool_calls"));

    // The fork's model asks for the comment again: the same call of the parent may have done it, so a person is asked.
    let output = env.run(&["fork", "r", "--at-turn", "2", "--run-id", "f"]).code(75);
    output.says(&["a fork of run r is made after turn 2 of 4", "files copied from its workspace: 2"]);
    assert_eq!(env.comments().len(), 1);
    let shown = env.run(&["questions"]).code(0);
    shown.shows(&["may already have had the same effect with the same arguments", "of run r"]);
    env.run(&["answer", &question(&env), "skip"]).code(0);
    env.run(&["resume", "f"]).code(0).shows(&["succeeded · run f", "Done."]);
    assert_eq!((env.comments().len(), status(&env, "f").as_str()), (1, "succeeded"));

    // Nothing of the parent was written again, and nothing of it was copied in the database.
    assert_eq!(env.rows("SELECT * FROM messages WHERE run_id = 'r'"), messages);
    assert_eq!(env.rows("SELECT * FROM tool_calls WHERE run_id = 'r'"), calls);
    assert_eq!(env.rows("SELECT turn FROM turns WHERE run_id = 'f' ORDER BY turn"), ["3", "4"]);
    assert_eq!(env.rows("SELECT parent_run_id, root_run_id, forked_at_turn FROM runs WHERE run_id = 'f'"), ["r r 2"]);
    for file in ["work_products/a.md", "work_products/b.md"] {
        let read = |run: &str| fs::read(workspace(&env, run).join(file)).unwrap();
        assert_eq!(read("r"), read("f"), "{file}");
    }
    assert_ne!(workspace(&env, "r"), workspace(&env, "f"));
    let note =
        env.value("SELECT message_json FROM messages WHERE run_id = 'f' AND origin = 'resume' ORDER BY seq LIMIT 1");
    assert!(
        note.contains("fork of run r") && note.contains("post_comment") && note.contains("do not repeat"),
        "{note}"
    );

    env.run(&["turns", "show", "f", "1"]).refused(2, &["run f shares turn 1 with r", "`ua turns show r 1"]);
    env.run(&["runs", "show", "f"]).code(0).shows(&["Fork of        r, sharing its turns up to 2"]);
    let family = env.run(&["runs", "show", "r", "--json"]).code(0).json();
    assert_eq!(family["children"], json!(["f"]));
    let transcript = fs::read_to_string(workspace(&env, "f").join("transcript.md")).unwrap();
    assert!(transcript.contains("fork of r, sharing its turns up to 2") && transcript.contains("## Turn 1, committed"));
    env.run(&["db", "check", "--invariants"]).code(0);

    let diff = env.run(&["runs", "diff", "r", "f", "--json"]).code(0).json();
    assert_eq!((&diff["shared_turns"], &diff["common_ancestor"]), (&json!(2), &json!("r")));
    let turn = &diff["turns"][0];
    assert_eq!((&turn["turn"], &turn["same"]), (&json!(3), &json!(false)));
    assert_eq!(turn["sides"][0]["calls"][0]["status"], "succeeded");
    assert_eq!(turn["sides"][1]["calls"][0]["status"], "cancelled");
    let text = env.run(&["runs", "diff", "r", "f"]).code(0);
    text.shows(&["Shared: the first 2 turns of run r", "TURN", "post_comment", "never sent"]);
}

#[test]
fn a_fork_has_the_receipt_of_what_its_parent_sent_later() {
    let env = env();
    let mail = json!({"to": ["team@example.test"], "subject": "News", "body": "It is done."});
    let turns = json!([write("a.md", "one"), tool("mcp__ua__send_email", &mail), {"text": "Sent."}]);
    let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    // It asks for the same mail and is answered with the parent's receipt, which is its evidence too.
    env.run(&["job", "--fork", "--run-id", "r", "--at-turn", "1"]).code(0).shows(&["not repeated"]);
    assert_eq!(env.mails().len(), 1);
    let fork = env.value("SELECT run_id FROM runs WHERE run_id <> 'r'");
    let completion = fs::read_to_string(workspace(&env, &fork).join(format!("job_completion_{fork}.json"))).unwrap();
    let completion: Value = serde_json::from_str(&completion).unwrap();
    assert_eq!(completion["status"], "succeeded", "{completion:#}");
    // A fork from before a fork's own turns, and one of it at its end.
    env.run(&["fork", &fork, "--at-turn", "0", "--quiet"]).code(0);
    env.run(&["fork", "last", "--quiet"]).code(0);
    assert_eq!(env.mails().len(), 1);
    assert_eq!(env.rows("SELECT DISTINCT root_run_id FROM runs"), ["r"]);
    env.run(&["db", "check", "--invariants"]).code(0);
}

/// A tool of one's own, whose effect is known by its name alone: what its parent did counts once a person says that it was that, and is not done again.
#[test]
fn what_the_parent_did_counts_for_a_fork_of_which_a_person_says_so() {
    let env = env();
    let issues = ["--with", "create_issue", "--claim", "create_issue"];
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&issues)}));
    let issue = |text: &str| tool("mcp__forum__create_issue", &json!({"text": text}));
    let fields = json!({"tools": {"builtin": false}, "stop_conditions": [{"effect": "issue.create", "count": 3}]});
    let job = env.job(&fields, &json!([issue("one"), issue("two"), issue("three"), {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"]).code(75);
    for number in [2, 3] {
        let shown = env.run(&["questions"]).code(0);
        shown.shows(&[
            "May `create_issue` run?",
            &format!("turn {number} of run r"),
            "happened",
            "the earlier call did it",
        ]);
        // There is a receipt, so nothing is left to prove.
        env.run(&["answer", &question(&env), "happened", "--proof", "4711"]).refused(2, &["--proof"]);
        env.run(&["answer", &question(&env), "happened"]).code(0);
        env.run(&["resume", "f"]).code(if number == 3 { 0 } else { 75 });
    }
    assert_eq!((env.comments().len(), status(&env, "f").as_str()), (3, "succeeded"));
    let twins = "SELECT turn, status, resolution, attempt FROM tool_calls WHERE run_id = 'f' ORDER BY turn";
    assert_eq!(env.rows(twins), ["2 succeeded deduplicated 0", "3 succeeded deduplicated 0"]);
    env.run(&["runs", "show", "f"]).code(0).shows(&["Done elsewhere", "2 effects"]);
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_fork_changes_the_job_the_budgets_and_the_model_and_says_so() {
    let env = env();
    let job = env.job(
        &json!({"inputs": {"town": "Delft"}, "budgets": {"max_turns": 2}}),
        &json!([write("a.md", "1"), write("b.md", "2"), {"text": "Done."}]),
    );
    env.run(&["job", &job, "--run-id", "r"]).code(75).shows(&["stopped (budget)"]);
    let overrides = env.write("work/changes.json", r#"{"inputs": {"town": "Gouda"}, "prompt": "Be brief."}"#);
    let args = ["fork", "r", "--at-turn", "1", "--job-overrides", &overrides, "--max-turns", "+3"];
    let plan = env.run(&[&args[..], &["--dry-run", "--json"]].concat()).code(0).json();
    let fields: Vec<&str> =
        plan["job_changes"].as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["budgets.max_turns", "inputs.town", "prompt"]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"], "a dry run makes nothing");

    // One turn is shared; the fork has five of its own to use.
    let result = env.run(&[&args[..], &["--run-id", "f", "--json"]].concat()).code(0).json();
    assert_eq!(
        (&result["status"], &result["run_id"], &result["turn_index"]),
        (&json!("succeeded"), &json!("f"), &json!(3))
    );
    assert_eq!(result["fork"]["job_changes"], plan["job_changes"]);
    let files = result["fork"]["files"].as_array().unwrap();
    let fates: Vec<(&str, &str)> =
        files.iter().map(|file| (file["path"].as_str().unwrap(), file["fate"].as_str().unwrap())).collect();
    assert_eq!(fates, [("a.md", "copied"), ("b.md", "unrecorded")]);
    let opening = env.value("SELECT message_json FROM messages WHERE run_id = 'f' AND seq = 1");
    assert!(opening.contains("Gouda") && opening.contains("Be brief.") && !opening.contains("Delft"), "{opening}");
    let note =
        env.value("SELECT message_json FROM messages WHERE run_id = 'f' AND origin = 'resume' ORDER BY seq LIMIT 1");
    assert!(note.contains("A person changed the job") && note.contains("Gouda"), "{note}");
    assert_eq!(
        env.value("SELECT json_extract(run_spec_json, '$.budgets.max_turns') FROM runs WHERE run_id = 'f'"),
        "5"
    );
}

#[test]
fn a_file_that_changed_since_is_reported_and_not_taken() {
    let env = env();
    let job = env.job(
        &json!({}),
        &json!([write("work_products/a.md", "one"), write("work_products/b.md", "two"), {"text": "Done."}]),
    );
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    fs::write(workspace(&env, "r").join("work_products/a.md"), "somebody else's words").unwrap();
    fs::remove_file(workspace(&env, "r").join("work_products/b.md")).unwrap();
    let output = env.run(&["fork", "r", "--run-id", "f"]).code(0);
    output.says(&[
        "files copied from its workspace: 0",
        "not copied: work_products/a.md (changed since it was recorded)",
        "not copied: work_products/b.md (not there any more)",
    ]);
    assert!(!workspace(&env, "f").join("work_products/a.md").exists());
    let note =
        env.value("SELECT message_json FROM messages WHERE run_id = 'f' AND origin = 'resume' ORDER BY seq LIMIT 1");
    assert!(note.contains("work_products/a.md"), "{note}");
}

#[test]
fn a_dead_run_is_forked_its_doubt_is_asked_about_and_it_is_resumed_later() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.comments().len(), 1);
    env.run(&["fork", "r", "--run-id", "f"]).code(75).says(&["after turn 2 of 2"]);
    assert_eq!(env.comments().len(), 1, "what the parent may have done is not done again");
    env.run(&["answer", &question(&env), "skip"]).code(0);
    env.run(&["resume", "f"]).code(0);

    env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
    env.run(&["answer", &question(&env), "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!((status(&env, "r"), status(&env, "f")), ("succeeded".to_owned(), "succeeded".to_owned()));
    assert_eq!(env.comments().len(), 1);
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn what_a_fork_did_its_parent_does_not_do_again() {
    let env = undeclared(env().with_forum());
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("before:store.start_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["fork", "r", "--run-id", "f"]).code(0);
    assert_eq!(env.comments().len(), 1);
    // The parent has the call planned and never sent.
    env.run(&["resume", "r"]).code(75).shows(&["may already have had the same effect", "of run f"]);
    assert_eq!(env.comments().len(), 1);
    env.run(&["answer", &question(&env), "skip"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn what_only_a_tools_name_says_that_it_makes_is_asked_about_in_the_family() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("before:store.start_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["fork", "r", "--run-id", "f"]).code(0);
    env.run(&["resume", "r"]).code(75).shows(&["May `post_comment` run?", "the same arguments"]);
    assert_eq!(env.comments().len(), 1);
    // A policy that declares the kind says that it is one effect.
    let rule = "[[rule]]\nid = \"comment\"\nname = \"post_comment\"\nserver = \"forum\"\nside_effect_class = \"external\"\neffect_kind = \"thread.comment\"\n";
    let declared = super::env().with_forum();
    let policy = declared.write("work/comment.toml", rule);
    let declared = declared.with_env("UA_POLICY", &policy);
    let job = declared.job(&json!({}), &turns());
    declared.run_killed_at("before:store.start_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    declared.run(&["fork", "r", "--run-id", "f"]).code(0);
    declared.run(&["resume", "r"]).code(0);
    assert_eq!((declared.comments().len(), status(&declared, "r").as_str()), (1, "succeeded"));
}

/// A server's name is given in a configuration, and makes no other call of what its tool does.
#[test]
fn the_same_call_is_asked_about_where_its_server_was_renamed() {
    let as_other = json!({"FORUM_ACCOUNT": "other"});
    for (is_forum_there, variables, asked) in [
        (false, json!({}), true),
        (false, as_other.clone(), true),
        (true, json!({}), true),
        // Two servers that are there and go to two places are two.
        (true, as_other, false),
    ] {
        let env = undeclared(env().with_forum());
        let job = env.job(&json!({}), &json!([comment("hello"), {"text": "Done."}]));
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        let mut club = env.forum_entry(&[]);
        club["env"] = variables.clone();
        let mut servers = json!({"club": club});
        if is_forum_there {
            servers["forum"] = env.forum_entry(&[]);
        }
        env.mcp_config("work/.mcp.json", &servers);
        let renamed = tool("mcp__club__post_comment", &json!({"text": "hello"}));
        env.job(&json!({}), &json!([renamed, {"text": "Done."}]));
        let output = env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]);
        let what = format!("{is_forum_there} {variables}: {}", output.shown());
        assert_eq!(env.comments().len(), if asked { 1 } else { 2 }, "{what}");
        if asked {
            output.code(75).shows(&["post_comment` run?", "`mcp__forum__post_comment`", "the same arguments"]);
            // Whoever knows that it is the same says so.
            env.run(&["answer", &question(&env), "happened"]).code(0);
            env.run(&["resume", "f"]).code(0);
            assert_eq!((env.comments().len(), status(&env, "f").as_str()), (1, "succeeded"), "{what}");
        } else {
            output.code(0);
        }
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

#[test]
fn a_killed_fork_leaves_nothing_or_a_whole_one() {
    let env = env();
    let job = env.job(&json!({}), &json!([write("work_products/a.md", "one"), {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run_killed_at("before:store.fork_run", &["fork", "r", "--run-id", "f"]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
    let staged = || {
        let entries = fs::read_dir(env.root()).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".fork_")).count()
    };
    assert_eq!(staged(), 1);

    // What was left behind is swept by the next fork, whatever its name.
    env.run_killed_at("after:store.fork_run", &["fork", "r", "--run-id", "g"]);
    assert_eq!(
        (env.rows("SELECT run_id FROM runs ORDER BY run_id"), staged()),
        (vec!["g".to_owned(), "r".to_owned()], 1)
    );
    assert!(!workspace(&env, "g").exists());
    env.run(&["resume", "g"]).code(0).shows(&["succeeded · run g"]);
    assert_eq!(fs::read_to_string(workspace(&env, "g").join("work_products/a.md")).unwrap(), "one");
    assert_eq!(staged(), 0);
    env.run(&["fork", "r", "--run-id", "f"]).code(0);
}

#[test]
fn what_cannot_be_forked_is_refused_and_nothing_is_made() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--at-turn", "2"]).refused(2, &["at turn 2", "1 committed turn", "from 0 to 1"]);
    env.run(&["fork", "nobody"]).refused(2, &["there is no run `nobody`"]);
    env.run(&["fork", "r", "--run-id", "r"]).code(2).says(&["error: "]);
    let wrong = env.write("work/wrong.json", r#"{"promt": "x"}"#);
    env.run(&["fork", "r", "--job-overrides", &wrong]).refused(2, &["promt", "prompt"]);
    let list = env.write("work/list.json", "[]");
    env.run(&["fork", "r", "--job-overrides", &list]).refused(2, &["not a JSON object"]);
    env.run(&["job", &job, "--at-turn", "1"]).refused(2, &["are for forks"]);
    let told = env.run(&["fork", "r", "--at-turn", "9", "--json"]).code(2);
    let told: Value = serde_json::from_str(&told.stderr).unwrap();
    assert_eq!(told["error"]["code"], 2);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
}

#[test]
fn a_job_key_starts_one_run_and_runs_again_only_on_purpose() {
    let env = env();
    let job = env.job(&json!({"job_key": "report 2026-11"}), &json!([write("a.md", "one"), {"text": "Done."}]));
    // Two processes at once.
    let (one, two) = (env.start(&["job", &job]), env.start(&["job", &job]));
    one.wait();
    two.wait();
    let first = env.value("SELECT run_id FROM runs");
    assert_eq!(env.run_status(), "succeeded");

    // Its result is what the job came to.
    env.run(&["job", &job]).code(0).says(&["report 2026-11", "--again"]).shows(&["succeeded", &first, "Done."]);
    let told = env.run(&["job", &job, "--json"]).code(0).json();
    assert_eq!((&told["run_id"], &told["status"]), (&json!(first), &json!("succeeded")));
    let again = env.run(&["job", &job, "--again", "--json"]).code(0).json();
    assert_eq!((&again["status"], &again["parent_run_id"]), (&json!("succeeded"), &Value::Null));
    assert_eq!(env.rows("SELECT count(*) FROM runs WHERE run_id = root_run_id"), ["2"]);
    let (one, two) = (env.start(&["job", &job, "--again"]), env.start(&["job", &job, "--again"]));
    one.wait();
    two.wait();
    // Either one came while the other was at work, or after it had succeeded; never two at a time.
    let runs: usize = env.value("SELECT count(*) FROM runs").parse().unwrap();
    assert!((3..=4).contains(&runs), "{runs}");
    assert_eq!(env.rows("SELECT DISTINCT status FROM runs"), ["succeeded"]);
}

#[test]
fn an_unfinished_job_key_is_resumed_and_a_failed_one_is_forked() {
    let env = env();
    let fields = json!({"job_key": "k", "budgets": {"max_turns": 1}});
    let job = env.job(&fields, &json!([write("a.md", "one"), {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let told = env.run(&["job", &job, "--json"]).code(75);
    let told: Value = serde_json::from_str(&told.stderr).unwrap();
    assert_eq!((&told["error"]["kind"], &told["error"]["status"]), (&json!("job_key_taken"), &json!("stopped")));
    env.run(&["job", &job]).refused(75, &["not finished", "ua resume r"]);
    env.run(&["job", &job, "--again"]).refused(75, &["not finished", "ua resume r"]);
    env.run(&["runs", "cancel", "r"]).code(0);
    env.run(&["resume", "r", "--max-turns", "+5"]).code(1);
    env.run(&["job", &job, "--again"]).refused(2, &["it is cancelled", "ua fork r"]);
    env.run(&["fork", "r", "--run-id", "f", "--max-turns", "5"]).code(0);
    env.run(&["job", &job]).code(0).shows(&["succeeded · run f"]);
}

#[test]
fn a_run_that_is_at_work_is_forked_and_goes_on_unharmed() {
    let env = env().with_forum();
    let sleep = tool("mcp__ua__run_command", &json!({"argv": ["sleep", "600"]}));
    let job = env.job(&json!({"tools": {"run_command": true}}), &json!([comment("hello"), sleep, {"text": "Slept."}]));
    let mut parent = env.start(&["job", &job, "--run-id", "r"]);
    until("the command to run", || {
        env.try_rows("SELECT status FROM tool_calls WHERE tool_name = 'run_command'") == ["running"]
    });
    env.write(
        "work/other.script.json",
        json!({"turns": [{"text": "never asked"}, {"text": "Another end."}]}).to_string(),
    );
    let overrides = env.write("work/changes.json", r#"{"model": {"script": "other.script.json"}}"#);
    let forked = env.run(&["fork", "r", "--run-id", "f", "--job-overrides", &overrides]);
    forked.code(0).says(&["after turn 1 of 1"]).shows(&["succeeded · run f", "Another end."]);
    assert!(!parent.has_ended());
    assert_eq!((status(&env, "r").as_str(), env.comments().len()), ("running", 1));
    env.run(&["runs", "diff", "r", "f"]).code(0).shows(&["model.script", "(not committed)", "Another end."]);
}

/// Its rows stay for its fork, and nobody is shown a run that is gone.
#[test]
fn the_name_of_a_deleted_run_is_refused_while_its_fork_is_there() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(0);
    env.run(&["runs", "delete", "r", "--yes"]).code(0);
    env.run(&["job", &job, "--run-id", "r"]).refused(2, &["a run of that name was deleted"]);
}
