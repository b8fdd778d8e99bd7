//! What a person does next: what is printed is one step for each reason, the same everywhere, and gets further.

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv};
use ua_testkit::{Fault, FaultKind};

use super::env;

/// A model that does not know the model of request `at`.
fn forgetful(turns: &Value, at: u64) -> Model {
    Model::start(turns, vec![Fault::at(at, FaultKind::Status { status: 404 })])
}

fn comment() -> Value {
    json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "once"}}]}, {"text": "Posted."}])
}

/// A job of no model of its own.
fn job(env: &TestEnv) -> String {
    env.job(&json!({"tools": {"builtin": false}, "model": {"provider": "anthropic"}}), &json!([]))
}

#[test]
fn a_run_of_a_misspelt_model_is_no_dead_end() {
    let model = forgetful(&comment(), 1);
    let env = env().with_forum().with_model(&model);
    let job = job(&env);
    let stopped = env.run(&["job", &job, "--model", "claude-sonet", "--run-id", "typo"]).code(69);
    let stopped = stopped.says(&["note: no model claude-sonet of anthropic is known (did you mean `claude-sonnet-"]);
    stopped.shows(&["stopped (unknown model)", "Continue with  ua fork typo --model claude-sonnet-"]);
    let status = env.run(&["status"]).code(0);
    let page = env.read("root/RESTART.md");
    for text in [&status.stdout, &page] {
        assert!(text.contains("ua fork typo --model claude-sonnet-") && !text.contains("ua resume"), "{text}");
    }
    // What was refused has left, and costs nothing.
    env.run(&["runs", "show", "typo"]).code(0).shows(&["1 (1 refused and not charged)"]);
    let shown = env.run(&["runs", "show", "typo", "--json"]).code(0).json();
    assert_eq!(shown["usage"]["requests"], json!({"refused": 1}));
    // It did nothing, so it is in nobody's way.
    env.run(&["job", &job, "--model", "claude-sonnet-4-5", "--run-id", "right"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn the_same_job_with_another_model_is_started_beside_a_run_that_did_nothing() {
    let model = forgetful(&comment(), 1);
    let env = env().with_forum().with_model(&model);
    let job = job(&env);
    env.run(&["job", &job, "--model", "claude-sonet"]).code(69);
    env.run(&["job", &job, "--model", "claude-sonnet-4-5"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_run_that_did_something_before_its_model_was_gone_continues_in_a_fork() {
    let model = forgetful(&comment(), 2);
    let env = env().with_forum().with_model(&model);
    let job = job(&env);
    env.run(&["job", &job, "--model", "claude-sonet", "--quiet"]).code(69);
    let id = env.value("SELECT run_id FROM runs");
    let fork = ["fork", &id, "--provider", "anthropic", "--model", "claude-sonnet-4-5"];
    let refused = env.run(&["job", &job, "--model", "claude-sonnet-4-5"]);
    let command = format!("`ua fork {id} --model MODEL");
    let other = format!("`ua {}", fork.join(" "));
    assert!(!refused.shown().contains("ua resume") && !refused.shown().contains(&command), "{}", refused.shown());
    refused.refused(75, &["of the same job", &other]);
    let plan = env.run(&[&fork[..], &["--dry-run"]].concat()).code(0);
    plan.shows(&["would change in the job", "model.name: \"claude-sonet\" → \"claude-sonnet-4-5\"", "would be copied"]);
    env.run(&fork).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A run that failed is not resumed: another one continues it, as far as it came. One that succeeded, or came nowhere, has nothing to continue.
#[test]
fn a_run_that_failed_says_what_continues_it() {
    let env = env().with_forum();
    let never = json!({
        "tools": {"builtin": false},
        "stop_conditions": [{"artifact": "report.md"}],
        "escalation": {"ask_human_on_repeated_failures": false},
    });
    let page = json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": "page"}}]});
    let failing = env.named_job(
        "failing",
        &never,
        &json!([page, {"text": "Done."}, {"text": "Done."}, {"text": "Done."}, {"text": "Done."}]),
    );
    env.run(&["job", &failing, "--run-id", "failed"]).code(1).shows(&["Continue with  ua fork failed"]);
    env.run(&["runs", "show", "failed"]).code(0).shows(&["Continue with  ua fork failed"]);
    let plain = json!({"tools": {"builtin": false}});
    let done = env.named_job("done", &plain, &json!([{"text": "Done."}]));
    let done = env.run(&["job", &done, "--run-id", "done"]).code(0);
    assert!(!done.shown().contains("Continue with"), "{}", done.shown());
}

/// What is in the queue was stored and not started, and wherever it is shown somebody hears that nobody is there to take it.
#[test]
fn a_queued_run_was_not_started_and_says_who_takes_it() {
    let env = env().with_forum();
    let job = env.named_job("queued", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "q"]).code(0);
    let shown = env.run(&["runs", "show", "q"]).code(0).shows(&["Stored         "]).stdout;
    assert!(!shown.contains("Started") && !shown.contains("Last change"), "{shown}");
    let alone = "1 run waits in the queue: no worker is running; `ua worker` starts one";
    env.run(&["status"]).code(0).shows(&[alone]);
    env.run(&["worker", "--until-empty"]).code(0);
    let shown = env.run(&["runs", "show", "q"]).code(0).shows(&["Started        ", "Ended          "]).stdout;
    assert!(!shown.contains("Stored  "), "{shown}");
    let status = env.run(&["status"]).code(0).stdout;
    assert!(!status.contains("no worker is running"), "{status}");
}

/// What is to be trusted is named as what it is, with the name that was meant.
#[test]
fn a_file_to_trust_that_is_not_there_is_asked_for_as_what_it_is() {
    let env = env();
    let policy =
        env.run(&["trust", "policy.toml"]).refused(2, &["there is no policy.toml", "name an existing policy file"]);
    assert!(!policy.stderr.contains("mcpServers"), "{}", policy.shown());
    env.run(&["trust", "servers.json"]).refused(2, &["there is no servers.json", "`mcpServers` object"]);
    env.write("work/policies.toml", "");
    env.run(&["trust", "policeis.toml"]).refused(2, &["did you mean", "policies.toml"]);
}

#[test]
fn what_is_wrong_is_said_with_what_helps() {
    let env = env().with_forum();
    let fine = |fields: &Value| env.named_job("fine", fields, &json!([{"text": "Done."}]));
    let forum = json!({"builtin": false});
    // Built-in tools exist whether or not they are offered.
    let ruled_out = json!({"tools": {"deny": ["run_command"]}, "constraints": {"forbidden_actions": ["web_search"]}});
    env.run(&["job", &fine(&ruled_out)]).code(0);
    let typo = env.named_job("typo", &json!({"tools": {"deny": ["run_comand"]}}), &json!([{"text": "Done."}]));
    env.run(&["job", &typo]).refused(2, &["`run_comand` in tools.deny (did you mean `run_command`?)"]);

    let job = fine(&json!({"tools": forum}));
    env.run(&["job", &job, "--run-id", "done"]).code(0);
    env.run(&["queue", "remove", "done"]).refused(2, &["is not in the queue", "`ua queue list`"]);
    env.start_with(("UA_ALERT_COMMAND", "/nowhere/notify --loud"), &["job", &job, "--new"])
        .wait()
        .refused(2, &["UA_ALERT_COMMAND: there is no program `/nowhere/notify`"]);
    env.start_with(("UA_ALERT_COMMAND", "/nowhere/notify"), &["doctor"]).wait().code(1).shows(&["UA_ALERT_COMMAND"]);
    let folder = env.arg("work");
    let unreadable = env.run(&["job", &folder]);
    assert!(!unreadable.shown().contains("ua init"), "{}", unreadable.shown());
    unreadable.refused(2, &["cannot read the job file", "is a directory"]);
    env.run(&["models", "show", "claude-sonet", "--provider", "anthropic"])
        .code(0)
        .shows(&["No model of this name is known (did you mean `claude-sonnet-"]);

    env.mcp_config("work/.mcp.json", &json!({"notes": {"command": "python3 server.py"}}));
    let with_notes = env.named_job("notes", &json!({"tools": forum}), &json!([{"text": "Done."}]));
    env.run(&["job", &with_notes]).refused(2, &["`python3 server.py`", "into `args`: [\"server.py\"]"]);
}

/// What somebody recorded is an answer: the run waits for a resume, and for nobody's word.
#[test]
fn a_run_whose_call_in_doubt_was_resolved_waits_for_a_resume_alone() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &comment());
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["runs", "list", "--status", "waiting"]).code(0).shows(&["waiting for you"]);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    env.run(&["calls", "resolve", &call, "--as", "happened", "--reason", "seen there", "--yes"]).code(0);
    env.run(&["questions"]).code(0).says(&["nothing waits for an answer"]);
    let status = env.run(&["status"]).code(0).shows(&["answered", "answered: ua resume r"]);
    assert!(!status.stdout.contains("waiting for you"), "{}", status.stdout);
    env.run(&["runs", "show", "r"]).code(0).shows(&["answered, resume it"]);
    env.run(&["runs", "list", "--status", "answered"]).code(0).shows(&["answered"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}
