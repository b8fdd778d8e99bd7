//! `settings.enforce_idempotency`: every tool that does harm when repeated takes a key, or the job does not start.

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn enforced(env: &TestEnv, tools: &Value, turns: &Value) -> String {
    env.job(&json!({"settings": {"enforce_idempotency": true}, "tools": tools}), turns)
}

#[test]
fn a_tool_that_cannot_take_a_key_stops_the_job_before_anything_is_sent() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}]);
    let job = enforced(&env, &json!({"builtin": false}), &turns);
    let words = ["mcp__forum__post_comment", "settings.enforce_idempotency", "key_channel", "tools.deny"];
    env.run(&["job", &job, "--run-id", "r"]).refused(2, &words);
    assert_eq!(env.comments(), [""; 0]);
    // With a channel in a policy, the same run goes on; nothing else was wrong with it.
    let policy = "[[rule]]\nid = \"forum\"\npatterns = [\"post_comment\", \"mcp__forum__*\"]\nkey_channel = \"meta\"\n";
    let policy = env.write("work/keys.toml", policy);
    env.run(&["job", &job, "--run-id", "keyed", "--policy", &policy]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A key in an argument that the tool does not have is no key: nothing that is repeated for its sake is started.
#[test]
fn a_policy_that_names_an_argument_which_the_tool_does_not_have_stops_the_start() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}]);
    let plain = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let cases = [
        ("key_channel = { argument = \"tokn\" }", "\"tokn\""),
        ("key_channel = { header = \"x-key\" }", "standard input"),
        ("marker = { argument = \"txt\", append = \" {key}\" }", "\"txt\""),
        ("scope = [{ value = \"txt\" }]", "\"txt\""),
    ];
    for (said, word) in cases {
        let policy = format!("[[rule]]\nid = \"forum\"\nname = \"post_comment\"\n{said}\n");
        let policy = env.write("work/keys.toml", &policy);
        let words = ["name arguments that their tools do not have", "in rule `forum`", word];
        env.run(&["job", &plain, "--policy", &policy]).refused(2, &words);
        env.run(&["job", &plain, "--check", "--policy", &policy]).code(2);
        env.run(&["doctor", "--job", &plain, "--policy", &policy]).code(1).shows(&words);
        let explained = env.run(&["tools", "explain", "post_comment", "--policy", &policy]).code(0);
        explained.shows(&["no job would start with this", word]);
    }
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn three_turns_of_one_run_carry_three_keys() {
    let env = env();
    let notify = |text: &str| json!({"tools": [{"name": "mcp__ua__notify", "input": {"message": text}}]});
    let turns = json!([notify("one"), notify("two"), notify("three"), {"text": "Told."}]);
    let job = enforced(&env, &json!({}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let sent = "SELECT count(DISTINCT idempotency_key), count(*), min(json_extract(policy_json, '$.requires_idempotency_key')) FROM tool_calls";
    assert_eq!(env.value(sent), "3 3 1");
    assert_eq!(env.effects()[2], 3, "{:?}", env.effects());
}

#[test]
fn two_equal_effects_of_one_turn_are_one_unless_the_job_says_otherwise() {
    for (no_duplicates, wanted) in [(true, 1), (false, 2)] {
        let env = env();
        let notify = json!({"name": "mcp__ua__notify", "input": {"message": "The same."}});
        let turns = json!([{"tools": [notify, notify]}, {"text": "Told."}]);
        let fields = json!({"settings": {"enforce_idempotency": true}, "constraints": {"no_duplicate_external_actions": no_duplicates}});
        env.run(&["job", &env.job(&fields, &turns), "--run-id", "r"]).code(0);
        assert_eq!(env.effects()[2], wanted, "no_duplicate_external_actions = {no_duplicates}");
    }
}

#[test]
fn a_key_that_the_model_made_up_is_refused() {
    let env = env().with_forum();
    let policy = "[[rule]]\nid = \"forum\"\npatterns = [\"post_comment\"]\nkey_channel = { argument = \"token\" }\n";
    let policy = env.write("work/keys.toml", policy);
    let post = |input: Value| json!({"tools": [{"name": "mcp__forum__post_comment", "input": input}]});
    let turns =
        json!([post(json!({"text": "one", "token": "mine"})), post(json!({"text": "one"})), {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--policy", &policy]).code(0);
    assert_eq!(
        env.rows("SELECT status, error_code FROM tool_calls ORDER BY turn"),
        ["cancelled spoofed_key", "succeeded -"]
    );
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_selector_that_selects_nothing_stops_the_start_with_the_nearest_name() {
    let cases = [
        (json!({"escalation": {"ask_human_before": ["post_coment"]}}), "`post_comment`"),
        (json!({"constraints": {"forbidden_actions": ["mcp__froum__*"]}}), "constraints.forbidden_actions"),
        (json!({"tools": {"builtin": false, "deny": ["post_coment"]}}), "`post_comment`"),
        (json!({"stop_conditions": [{"effect": "emial.send"}]}), "`email.send`"),
    ];
    for (fields, named) in cases {
        let env = env().with_forum();
        let job = env.job(&fields, &json!([{"text": "Done."}]));
        env.run(&["job", &job]).refused(2, &["tools or effects that do not exist", named, "nothing was started"]);
        assert_eq!(env.rows("SELECT run_id FROM runs"), [""; 0]);
    }
    let env = env().with_forum();
    let fields = json!({"escalation": {"ask_human_before": ["post_*", "external", "email.*"]}});
    env.run(&["job", &env.job(&fields, &json!([{"text": "Done."}]))]).code(0);
}

/// Tools that cannot be listed when a job starts are judged when they can: a rule with a misspelt name would protect nothing.
#[test]
fn what_is_said_about_tools_is_judged_once_they_are_there() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}]);
    let rule = |name: &str| {
        format!(
            "[[rule]]\nid = \"r\"\nserver = \"forum\"\nname = \"{name}\"\nside_effect_class = \"external\"\non_unknown = \"hold\"\n"
        )
    };
    let good = env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}));
    let broken = env.mcp_config("work/broken.json", &json!({"forum": {"command": "false"}}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let policy = env.write("work/policy.toml", rule("post_coment"));
    let words = ["call for care with tools that do not exist", "`post_coment`", "did you mean `post_comment`?"];
    let start = |config: &str| env.run(&["job", &job, "--run-id", "r", "--policy", &policy, "--mcp-config", config]);
    start(&good).refused(2, &words);
    start(&broken).code(75);
    env.run(&["resume", "r", "--mcp-config", &good]).refused(2, &[&words[..], &["nothing was sent"]].concat());
    assert_eq!(env.comments().len(), 0);
    env.write("work/policy.toml", rule("post_comment"));
    // Nobody but a person corrects the policy of a run that has not begun.
    env.run(&["resume", "r", "--mcp-config", &good]).refused(75, &["changed since they were named", "--accept policy"]);
    env.run(&["resume", "r", "--mcp-config", &good, "--accept", "policy"]).code(0);
    assert_eq!(env.comments().len(), 1);
}
