//! Commands that look: stable fields for machines, text that a terminal can be trusted with for people.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

/// A run with a read and an effect, whose texts try to drive the terminal.
fn hostile_run(env: &TestEnv) {
    let text = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}hello";
    let turns = json!([
        {"text": text, "tools": [{"name": "mcp__forum__get_page", "input": {"text": text}}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}, {"name": format!("tool{text}"), "input": {"text": text}}]},
        {"text": format!("Done. {text}")},
    ]);
    let job = env.job(&json!({"objective": format!("Look. {text}"), "tools": {"builtin": false}}), &turns);
    let output = env.run(&["job", &job, "--run-id", "r"]).code(0);
    is_plain("job", &output.stdout);
    is_plain("job", &output.stderr);
}

#[track_caller]
fn is_plain(what: &str, text: &str) {
    let hidden: BTreeSet<char> =
        text.chars().filter(|c| (c.is_control() && !"\n\t".contains(*c)) || *c == '\u{202e}').collect();
    assert!(hidden.is_empty(), "{what} printed {hidden:?}: {text:?}");
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn nothing_that_a_tool_or_model_says_drives_the_terminal() {
    let env = env().with_forum();
    hostile_run(&env);
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'get_page'");
    let commands: [&[&str]; 15] = [
        &["runs", "tail", "r"],
        &["runs", "tail", "r", "--json"],
        &["turns", "show", "r", "1"],
        &["turns", "show", "r", "2"],
        &["turns", "show", "r", "1", "--json"],
        &["db", "check", "--invariants"],
        &["runs", "list"],
        &["runs", "list", "--json"],
        &["runs", "show", "r"],
        &["runs", "show", "r", "--json"],
        &["calls", "list", "--run", "r"],
        &["calls", "list", "--json"],
        &["calls", "show", &call],
        &["calls", "show", &call, "--json"],
        &["resume", "r"],
    ];
    for command in commands {
        let output = env.run(command).code(0);
        is_plain(&command.join(" "), &output.stdout);
        is_plain(&command.join(" "), &output.stderr);
    }
    // So does a server: in the names and words of its tools.
    env.mcp_config("work/servers.json", &json!({"forum": env.forum_entry(&["--describe", "\u{1b}[2J\u{9b}1m\u{202e}", "--with", "evil\u{1b}[2J\u{7}"])}));
    for command in
        [&["tools", "list"][..], &["tools", "list", "--json"], &["doctor", "--verbose"], &["doctor", "--json"]]
    {
        let output = env.run(&[command, &["--mcp-config", "servers.json"]].concat());
        is_plain(&command.join(" "), &output.stdout);
        is_plain(&command.join(" "), &output.stderr);
    }
    // Errors quote what they were given.
    let output = env.run(&["runs", "show", "\u{1b}[2J"]).code(2);
    is_plain("an error", &output.stderr);
    let output = env.run(&["job", "\u{1b}[2J.json"]).code(2);
    is_plain("an error", &output.stderr);
    env.write("work/bad.json", "{\"\u{202e}objectve\": 1}");
    let output = env.run(&["job", "bad.json"]).code(2);
    is_plain("an error", &output.stderr);
    // A job file names a folder: one that drives a terminal is refused, and the refusal is plain.
    let folder = "a\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{202e}b";
    let job = env.job(&json!({"artifacts": {"workspace_dir": folder}}), &json!([{"text": "Done."}]));
    for command in [&["job", &job, "--run-id", "h"][..], &["job", &job, "--json"]] {
        let output = env.run(command).code(2);
        is_plain(&command.join(" "), &output.stdout);
        is_plain(&command.join(" "), &output.stderr);
    }
}

#[test]
fn files_for_people_are_plain_too() {
    let env = env().with_forum();
    hostile_run(&env);
    for name in ["run.log", "transcript.md", "session_summary.txt", "job_completion_r.md"] {
        is_plain(name, &std::fs::read_to_string(env.workspace().join(name)).unwrap());
    }
}

#[test]
fn runs_are_listed_with_stable_fields() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}, "job_key": "k"}), &json!([{"text": "Nothing to do."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let listed = env.run(&["runs", "list", "--json"]).code(0).json();
    assert_eq!(
        keys(&listed[0]),
        [
            "cost",
            "created_at",
            "iteration_count",
            "job_key",
            "job_path",
            "max_iterations",
            "objective",
            "parent_run_id",
            "run_id",
            "shown_status",
            "status",
            "status_detail",
            "stop_reason",
            "total_tokens",
            "turn_index",
            "unpriced_requests",
            "updated_at",
            "workspace_dir",
        ]
    );
    assert_eq!(
        (&listed[0]["run_id"], &listed[0]["status"], &listed[0]["job_key"]),
        (&json!("r"), &json!("succeeded"), &json!("k"))
    );
    env.run(&["runs", "list"]).code(0).shows(&["RUN", "STATUS", "r ", "succeeded", "Do what the test says."]);
    let shown = env.run(&["runs", "show", "last", "--json"]).code(0).json();
    assert_eq!(shown["run"]["run_id"], "r");
    for part in ["calls", "messages", "questions", "receipts", "run", "turns"] {
        assert!(!shown[part].is_null(), "{part} is missing: {:?}", keys(&shown));
    }
    env.run(&["runs", "show", "r"]).code(0).shows(&[
        "succeeded · run r",
        "Nothing to do.",
        "Turns          1",
        "Calls          none",
    ]);
}

#[test]
fn calls_are_shown_with_attempts_receipt_and_history() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Posted."}]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(0);
    let listed = env.run(&["calls", "list", "--run", "r", "--json"]).code(0).json();
    let fields = keys(&listed[0]);
    for field in [
        "tool_call_id",
        "tool_name",
        "status",
        "arguments",
        "idempotency_key",
        "side_effect_class",
        "attempt",
        "replay_policy",
    ] {
        assert!(fields.contains(&field), "{field} is missing: {fields:?}");
    }
    let id = listed[0]["tool_call_id"].as_str().unwrap();
    let shown = env.run(&["calls", "show", id, "--json"]).code(0).json();
    assert_eq!(shown["tool_call_id"], id);
    assert_eq!((shown["attempts"].as_array().unwrap().len(), shown["events"].as_array().unwrap().len()), (1, 3));
    assert!(shown["receipt"].to_string().contains("posted"));
    // The beginning of an id is enough.
    let output = env.run(&["calls", "show", &id[..id.len() - 2]]).code(0);
    output.shows(&[
        id,
        "mcp__forum__post_comment",
        "external",
        "hold",
        "posted",
        "planned → not sent yet",
        "running → succeeded",
    ]);
    env.run(&["calls", "list"]).code(0).shows(&[id, "post_comment", "succeeded"]);
    // The newest, for whoever looks; nobody settles a call that they did not name.
    let newest =
        env.value("SELECT tool_call_id FROM tool_calls ORDER BY created_at DESC, turn DESC, ordinal DESC LIMIT 1");
    assert_eq!(env.run(&["calls", "show", "last", "--json"]).code(0).json()["tool_call_id"], newest);
    env.run(&["calls", "show", "last", "--full"]).code(0);
    for refused in [&["calls", "resolve", "last", "--happened"][..], &["calls", "probe", "last"]] {
        env.run(refused).refused(2, &["`last` names the newest call only for `ua calls show`"]);
    }
    let none = env.run(&["calls", "list", "--unknown", "--json"]).code(0).json();
    assert_eq!(none, json!([]));
    env.run(&["questions"]).code(0).says(&["nothing waits for an answer"]);
    assert_eq!(env.run(&["questions", "--json"]).code(0).json(), json!([]));
}

#[test]
fn tools_are_listed_and_explained() {
    let env = env().with_forum();
    let listed = env.run(&["tools", "list", "--json"]).code(0).json();
    let class = |name: &str| {
        let row = listed.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.map(|row| (row["policy"]["class"].clone(), row["policy"]["on_unknown"].clone()))
    };
    assert_eq!(class("mcp__forum__post_comment"), Some((json!("external"), json!("hold"))));
    assert_eq!(class("mcp__forum__get_page"), Some((json!("read_only"), json!("redo"))));
    assert_eq!(class("mcp__ua__send_email"), Some((json!("external"), json!("redo_keyed"))));
    env.run(&["tools", "list"]).code(0).shows(&["TOOL", "mcp__forum__post_comment", "external"]);
    env.run(&["tools", "explain", "post_comment"]).code(0).shows(&["post_comment", "external", "hold"]);
    env.run(&["tools", "explain", "nothing"]).refused(2, &["`nothing`", "ua tools list"]);
    let policy = env.write(
        "work/policy.toml",
        "[[rule]]\nid = \"mine\"\nname = \"post_comment\"\nside_effect_class = \"read_only\"\n",
    );
    env.run(&["tools", "explain", "post_comment", "--policy", &policy]).code(0).shows(&["mine", "read_only"]);
    // Looking leaves nothing behind.
    assert!(!env.root().exists());
}

#[test]
fn a_policy_file_that_is_named_twice_is_taken_once() {
    let env = env().with_forum();
    let rule = "[[rule]]\nid = \"mine\"\nname = \"post_comment\"\nside_effect_class = \"read_only\"\n";
    let file = env.write("work/policy.toml", rule);
    std::os::unix::fs::symlink(&file, env.path("work/link.toml")).unwrap();
    let explained = ["tools", "explain", "post_comment"];
    for other in [file.as_str(), "./policy.toml", "../work/policy.toml", "link.toml"] {
        let flags = ["--policy", &file, "--policy", other];
        env.run(&[&explained[..], &flags].concat()).code(0).shows(&["mine", "read_only"]);
        // In the environment a path is whole, however it is spelt.
        let of_env = format!("{}:{file}", env.path("work").join(other).display());
        let both = env.start_with(("UA_POLICY", &of_env), &[&explained[..], &flags[..2]].concat()).wait();
        both.code(0).shows(&["mine", "read_only"]);
    }
    // Another file with a rule of that name is refused as before.
    let copy = env.write("work/copy.toml", rule);
    let flags = ["--policy", &file, "--policy", &copy];
    env.run(&[&explained[..], &flags].concat()).refused(2, &["two rules have the same id"]);
    // A run keeps both names, and can be taken up; what its job names too is the user's.
    let job =
        env.job(&json!({"tools": {"builtin": false}, "policies": ["./policy.toml"]}), &json!([{"text": "Done."}]));
    let run = ["job", &job, "--run-id", "r", "--policy", &file, "--policy", "link.toml"];
    let output = env.start_with(("UA_POLICY", &file), &run).wait().code(0);
    assert!(!output.shown().contains("ua trust"), "{}", output.shown());
}

#[test]
fn help_has_an_example_and_a_bare_command_says_what_it_needs() {
    let env = env();
    env.run_bare(&["job"]).refused(2, &["needs FILE", "`ua job --help`"]);
    env.run_bare(&["resume"]).refused(2, &["needs RUN", "`ua resume last`"]);
    env.run(&["job", "--help"]).code(0).shows(&["Examples:", "ua job report.json", "objective"]);
    env.run(&["--help"]).code(0).shows(&["Examples:", "Exit codes:", "ANTHROPIC_API_KEY"]);
    for command in ["resume", "runs", "calls", "questions", "answer", "tools"] {
        env.run(&[command, "--help"]).code(0).shows(&["Usage: ua "]);
    }
    env.run(&["resum"]).code(2).says(&["there is no command `resum`", "did you mean `ua resume`?"]);
    assert!(!env.root().exists());
}

#[test]
fn a_question_about_hostile_arguments_is_plain() {
    let env = env().with_forum();
    let text = "\u{1b}[2J\u{9b}31m\u{202e}hello";
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let commands: [&[&str]; 5] = [
        &["resume", "r"],
        &["questions"],
        &["questions", "--json"],
        &["runs", "show", "r"],
        &["calls", "list", "--unknown", "--json"],
    ];
    for command in commands {
        let output = env.run(command);
        assert!(output.stdout.contains("hello"), "{}", output.shown());
        is_plain(&command.join(" "), &output.stdout);
        is_plain(&command.join(" "), &output.stderr);
    }
    // Escaped, the arguments are still what they were.
    let listed = env.run(&["calls", "list", "--unknown", "--json"]).code(0).json();
    assert_eq!(listed[0]["arguments"]["text"], text);
}

/// Whoever is asked whether a message went out looks for it in a mailbox or a log, where its subject may stand many times: the one name that is its
/// own is in the question, and with the call.
#[test]
fn a_call_in_doubt_is_shown_with_the_name_by_which_it_is_found() {
    let env = env();
    let hold = env.write("hold.toml", "[[rule]]\nid = \"held\"\nname = \"send_email\"\non_unknown = \"hold\"\n");
    let mail = json!({"to": ["team@example.test"], "subject": "News", "body": "It is done."});
    let turns = json!([{"tools": [{"name": "mcp__ua__send_email", "input": mail}]}, {"text": "Done."}]);
    let job = env.job(&json!({}), &turns);
    env.run_killed_at("after:tool.invoke:send_email", &["job", &job, "--run-id", "r", "--policy", &hold]);
    env.run(&["resume", "r"]).code(75).shows(&["Look for it by: Message-ID <"]);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let shown = env.run(&["calls", "show", &call, "--json"]).code(0).json();
    let name = shown["found_by"][0].as_str().unwrap().to_owned();
    env.run(&["calls", "show", &call]).code(0).shows(&[&format!("found by       {name}")]);
    env.run(&["questions"]).code(0).shows(&[&format!("Look for it by: {name}")]);
    let question = env.run(&["questions", "--json"]).code(0).json();
    assert!(question.to_string().contains(&name), "{question}");
    // It is the one that the message has.
    let id = name.strip_prefix("Message-ID ").unwrap();
    let outbox = env.root().join("outbox/new");
    let sent: Vec<String> = std::fs::read_dir(outbox)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].contains(&format!("Message-ID: {id}")), "{id}: {}", sent[0]);
}

/// Whoever audits asks what went out in a period and to whom, and who said yes to it, over all runs.
#[test]
fn what_went_out_and_who_answered_what_are_listed() {
    let env = env().with_forum();
    let look = json!({"name": "mcp__ua__list_directory", "input": {"path": "."}});
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "hello"}});
    let job = env.job(&json!({}), &json!([{"tools": [look, post]}, {"text": "Posted."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["calls", "list", "--since", "1h", "--effects"]).code(0).shows(&[
        "FOR",
        "forum",
        "post_comment",
        "text: hello",
    ]);
    let names = |args: &[&str]| {
        let all: Vec<&str> = ["calls", "list", "--json"].iter().chain(args).copied().collect();
        let listed = env.run(&all).code(0).json();
        let calls = listed.as_array().unwrap().iter();
        calls.map(|call| call["tool_name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]).len(), 2);
    assert_eq!(names(&["--effects"]), ["post_comment"]);
    assert_eq!(names(&["--tool", "post_comment"]), ["post_comment"]);
    assert_eq!(names(&["--tool", "mcp__forum__post_comment", "--tool", "list_directory"]).len(), 2);
    assert_eq!(names(&["--tool", "list_directory", "--effects"]), [""; 0]);
    let listed = env.run(&["calls", "list", "--effects", "--json"]).code(0).json();
    assert_eq!((&listed[0]["in_short"], listed[0]["sent_at"].is_string()), (&json!("text: hello"), true));

    assert_eq!(env.run(&["questions", "--answered", "--json"]).code(0).json(), json!([]));
    env.run(&["questions", "--since", "1h"]).code(2);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "happened", "--by", "two\nlines"]).code(2);
    env.run(&["answer", &question, "happened", "--by", "Ada", "--text", "I saw it"]).code(0);
    env.run(&["questions", "--answered", "--since", "1h"]).code(0).shows(&[
        "happened",
        "Ada as tester",
        "text: hello",
        "I saw it",
    ]);
    let answered = env.run(&["questions", "--answered", "--json"]).code(0).json();
    assert_eq!(answered.as_array().unwrap().len(), 1);
    let shown = ["question_id", "run_id", "choice", "by", "said"].map(|field| answered[0][field].clone());
    assert_eq!(json!(shown), json!([question, "r", "happened", "Ada as tester", "I saw it"]));
}
