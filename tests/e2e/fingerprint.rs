//! A run goes on only with the setup it was pinned to, unless a person accepts what changed.

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::attended::{ENTER, Terminal};
use super::env;

/// A notification, a comment, and the end.
fn turns() -> Value {
    json!([
        {"tools": [{"name": "mcp__ua__notify", "input": {"title": "Start", "message": "It starts."}}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ])
}

/// A run that was killed behind its first turn: one notification, no comment.
fn after_one_turn(env: &TestEnv, fields: &Value) -> String {
    let job = env.job(fields, &turns());
    env.run_killed_at("after:store.commit_turn", &["job", &job, "--run-id", "r"]);
    assert_eq!((env.notifications().len(), env.comments().len()), (1, 0));
    job
}

fn forum(env: &TestEnv, args: &[&str]) {
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(args)}));
}

/// Resumes, and the run stops before anything: exit code 75, the difference, no effect.
fn stops(env: &TestEnv, args: &[&str], difference: &str) {
    let requests = env.rows("SELECT request_id FROM usage");
    env.run(args).code(75).shows(&["stopped (setup changed)", difference]);
    assert_eq!((env.notifications().len(), env.comments().len()), (1, 0));
    assert_eq!(env.rows("SELECT request_id FROM usage"), requests, "no request was made");
    assert_eq!(env.run_status(), "stopped");
}

fn ends_well(env: &TestEnv, args: &[&str]) {
    env.run(args).code(0).shows(&["succeeded · run r"]);
    assert_eq!((env.notifications().len(), env.comments().len()), (1, 1));
}

/// Whoever accepts tools has read which ones are offered from then on.
#[test]
fn a_new_tool_is_named_before_it_is_offered() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    let (changed, more) = (env.forum_entry(&["--describe", "Posts a comment to everybody."]), env.forum_entry(&[]));
    env.mcp_config("work/.mcp.json", &json!({"forum": changed, "more": more}));
    let named = "new, not offered unless the tools are accepted: mcp__more__";
    stops(&env, &["resume", "r"], named);
    env.run(&["resume", "r", "--accept", "tools"]).code(0).says(&["new, and offered: mcp__more__"]);
    env.run(&["runs", "show", "r", "--verbose"]).code(0).shows(&["new, and offered: mcp__more__"]);
}

#[test]
fn a_changed_tool_description_stops_the_run_until_it_is_accepted() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    forum(&env, &["--describe", "Posts a comment to everybody."]);
    stops(&env, &["resume", "r"], "tools mcp__forum__post_comment: description ");
    ends_well(&env, &["resume", "r", "--accept", "tools"]);
    assert_eq!(env.rows("SELECT kind, component FROM overrides"), ["pin tools"]);
    env.run(&["runs", "show", "r", "--verbose"]).code(0).shows(&[
        "Pinned in step 1",
        "Changed since the start",
        "accepted tools",
    ]);
    let shown = env.run(&["runs", "show", "r", "--json"]).code(0).json();
    assert_eq!(shown["overrides"][0]["component"], "tools");
    assert_eq!(shown["steps"][0]["fingerprint"]["version"], 1);
}

/// Whoever starts the job again reads why its run stopped, and accepts there what changed, or does not.
#[test]
fn what_changed_is_accepted_where_the_same_command_asks_which_run_is_meant() {
    let env = env().with_forum();
    let job = after_one_turn(&env, &json!({}));
    forum(&env, &["--describe", "Posts a comment to everybody."]);
    stops(&env, &["resume", "r"], "tools mcp__forum__post_comment: description ");
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("mcp__forum__post_comment: description");
    terminal.shows("finish that run, with --accept tools");
    terminal.types(&format!("r{ENTER}"));
    terminal.shows("Accept what changed since that run started (tools)? [y/N]");
    terminal.types(ENTER);
    terminal.shows("nothing was accepted. Which one?");
    terminal.types(&format!("r{ENTER}"));
    until("asked again", || terminal.text().matches("[y/N]").count() == 2);
    terminal.types(&format!("y{ENTER}"));
    terminal.code(0);
    assert_eq!((env.notifications().len(), env.comments().len()), (1, 1));
}

#[test]
fn putting_a_tool_back_as_it_was_needs_no_acceptance() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    forum(&env, &["--describe", "Something else."]);
    stops(&env, &["resume", "r"], "ua resume r --accept tools");
    forum(&env, &[]);
    ends_well(&env, &["resume", "r"]);
}

#[test]
fn a_tool_that_went_away_stops_the_run() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    forum(&env, &["--without", "get_page"]);
    stops(&env, &["resume", "r"], "tools mcp__forum__get_page: offered");
    ends_well(&env, &["resume", "r", "--accept", "tools"]);
}

/// A call that was approved is refused before it is sent when its tool is not there any more, also by a person who accepts the tools as they are.
#[test]
fn nothing_is_sent_to_a_tool_that_went_away() {
    let env = env().with_forum();
    let asks = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&asks, &json!([turns()[1], {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "approve"]).code(0);
    forum(&env, &["--without", "post_comment"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["resume", "r", "--accept", "tools"]).code(0);
    assert_eq!(env.rows("SELECT status, error_code FROM tool_calls"), ["cancelled tool_gone"]);
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn a_tool_that_is_new_is_not_offered_and_stops_nothing() {
    let env = env().with_forum();
    let turns = json!([
        turns()[0], turns()[1],
        {"tools": [{"name": "mcp__forum__get_news", "input": {"text": "x"}}]},
        {"text": "Done."},
    ]);
    let job = env.job(&json!({}), &turns);
    env.run_killed_at("after:store.commit_turn", &["job", &job, "--run-id", "r"]);
    forum(&env, &["--with", "get_news"]);
    ends_well(&env, &["resume", "r"]);
    assert_eq!(
        env.rows("SELECT status, error_code FROM tool_calls WHERE tool_name = 'get_news'"),
        ["cancelled unknown_tool"]
    );
}

#[test]
fn a_changed_policy_stops_the_run_until_it_is_accepted() {
    let env = env().with_forum();
    let rule = |class: &str| {
        format!("[[rule]]\nid = \"forum\"\npatterns = [\"post_comment\"]\nside_effect_class = \"{class}\"\n")
    };
    env.write("work/policy.toml", rule("external"));
    after_one_turn(&env, &json!({"policies": ["policy.toml"]}));
    env.write("work/policy.toml", rule("local"));
    env.trust_policy("policy.toml");
    stops(&env, &["resume", "r"], "policy mcp__forum__post_comment: external → local");
    let in_file = |field: &str| format!("policy rule `forum` in {}: {field}", env.arg("work/policy.toml"));
    stops(&env, &["resume", "r"], &in_file("side_effect_class external → local"));
    ends_well(&env, &["resume", "r", "--accept", "policy"]);
}

/// Runs that waited for a person while the policy changed: one command accepts it for all of them, and a worker makes each call once.
#[test]
fn a_changed_policy_is_accepted_for_the_runs_of_a_worker() {
    let env = env().with_forum();
    let rule = |more: &str| {
        format!("[[rule]]\nid = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n{more}\n")
    };
    env.write("work/policy.toml", rule("timeout = \"90s\""));
    let asks = json!({"policies": ["policy.toml"], "escalation": {"ask_human_before": ["post_comment"]}});
    let says = |name: &str| json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": name}}]}, {"text": "Done."}]);
    let jobs = ["r", "s"].map(|name| env.named_job(name, &asks, &says(name)));
    for (name, job) in ["r", "s"].iter().zip(&jobs) {
        env.run(&["submit", job, "--run-id", name]).code(0);
    }
    env.run(&["worker", "--until-empty"]).code(0);
    for question in env.rows("SELECT question_id FROM questions") {
        env.run(&["answer", &question, "approve"]).code(0);
    }
    env.write("work/policy.toml", rule("timeout = \"2m\""));
    env.trust_policy("policy.toml");
    let parked = |move_first: &str| env.run(&["worker", "--until-empty"]).says(&["timeout", move_first]);
    parked("--accept policy");
    assert_eq!(env.comments(), [""; 0]);
    env.run(&["queue", "move", "r", "--accept", "tools"])
        .refused(2, &["`tools` is not accepted for a worker", "ua resume"]);
    // A name that is none changes nothing, and what was accepted is the policy of that moment.
    env.run(&["queue", "move", "r", "nothing", "--accept", "policy"]).refused(2, &["nothing"]);
    assert_eq!(env.value("SELECT count(*) FROM overrides"), "0");
    env.run(&["queue", "move", "r", "s", "--accept", "policy"])
        .code(0)
        .says(&["accepted for ", "the policy as it is here now"]);
    env.write("work/policy.toml", rule("timeout = \"3m\""));
    env.trust_policy("policy.toml");
    parked("--accept policy");
    assert_eq!(env.comments(), [""; 0]);
    // A machine reads one value, in the order in which they were named.
    let moved = env.run(&["queue", "move", "s", "r", "--accept", "policy,servers", "--json"]).code(0).json();
    let runs: Vec<&str> = moved.as_array().unwrap().iter().filter_map(|row| row["run_id"].as_str()).collect();
    assert_eq!(runs, ["s", "r"]);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 2, "one of each run");
    assert_eq!(env.rows("SELECT status FROM runs"), ["succeeded", "succeeded"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["accepted policy"]);
}

/// The class of every tool is as it was: what changed is said all the same, field by field.
#[test]
fn an_approval_that_is_no_longer_asked_for_is_named_with_its_file() {
    let env = env().with_forum();
    let rule = |more: &str| {
        format!("[[rule]]\nid = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n{more}\n")
    };
    env.write("work/policy.toml", rule("timeout = \"90s\"\napproval = \"none\""));
    after_one_turn(&env, &json!({"policies": ["policy.toml"]}));
    env.write("work/policy.toml", rule("timeout = \"2m\""));
    env.trust_policy("policy.toml");
    let in_file = |field: &str| format!("policy rule `forum` in {}: {field}", env.arg("work/policy.toml"));
    stops(&env, &["resume", "r"], &in_file("approval none → not set"));
    stops(&env, &["resume", "r"], &in_file("timeout 90s → 2m"));
    stops(&env, &["resume", "r"], "(the class of every tool is unchanged)");
    ends_well(&env, &["resume", "r", "--accept", "policy"]);
}

#[test]
fn another_model_is_another_run() {
    let env = env().with_forum();
    let job = after_one_turn(&env, &json!({}));
    stops(&env, &["job", &job, "--run-id", "r", "--model", "another"], "model: scripted → another");
    for component in ["model", "prompt", "inputs"] {
        env.run(&["resume", "r", "--accept", component]).refused(2, &[component, "another run"]);
    }
    env.run(&["resume", "r", "--accept", "everything"]).refused(2, &["everything", "tools", "blob-threshold"]);
    ends_well(&env, &["resume", "r"]);
}

#[test]
fn accepting_what_did_not_change_says_so() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    env.run(&["resume", "r", "--accept", "policy,tools"])
        .code(0)
        .says(&["nothing to accept: `policy`", "nothing to accept: `tools`"]);
    assert_eq!(env.rows("SELECT component FROM overrides"), [""; 0]);
}

#[test]
fn a_call_in_doubt_can_be_settled_under_another_setup() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    forum(&env, &["--describe", "Something else."]);
    env.run(&["resume", "r"]).code(75).shows(&["stopped (setup changed)", "Did `post_comment` happen?"]);
    assert_eq!(env.comments().len(), 1);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "happened"]).code(0);
    env.run(&["resume", "r"]).code(75).shows(&["stopped (setup changed)"]);
    assert_eq!(env.value("SELECT status FROM tool_calls WHERE tool_name = 'post_comment'"), "succeeded");
    forum(&env, &[]);
    ends_well(&env, &["resume", "r"]);
}

#[test]
fn a_server_that_cannot_be_reached_is_no_mismatch() {
    let env = env().with_forum();
    after_one_turn(&env, &json!({}));
    forum(&env, &["--exit", "not today"]);
    env.run(&["resume", "r"]).code(75).shows(&["stopped (tool server)"]);
    forum(&env, &[]);
    ends_well(&env, &["resume", "r"]);
}

/// A person resumes a run in another shell than it was begun in: the setting that makes a tool another one there is named, so that nobody accepts a
/// tool that sends to somebody else.
#[test]
fn a_tool_that_lacks_a_setting_of_this_shell_names_the_setting() {
    let env = env().with_env("UA_NOTIFY_WEBHOOK", "http://127.0.0.1:9/hook");
    let list = json!({"tools": [{"name": "mcp__ua__list_directory", "input": {}}]});
    let job = env.job(&json!({"budgets": {"max_turns": 1}}), &json!([list, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let env = env.without_env("UA_NOTIFY_WEBHOOK");
    let names = "(mcp__ua__notify depends on UA_NOTIFY_WEBHOOK, UA_NOTIFY_WEBHOOK_HONOURS_KEYS, none of them set here)";
    env.run(&["resume", "r", "--max-turns", "+5"]).code(75).shows(&["stopped (setup changed)"]);
    let said = env.value("SELECT status_detail FROM runs");
    assert!(said.contains(names), "{said}");
    let env = env.with_env("UA_NOTIFY_WEBHOOK", "http://127.0.0.1:9/hook");
    env.run(&["resume", "r"]).code(0).shows(&["succeeded · run r"]);
}
