//! What `ua job --check` knows before a start: all that is in the way at once, and budgets with which no run would be done.

use serde_json::json;

use super::env;

/// Who corrects the first thing is not sent to find the next one, round after round.
#[test]
fn all_that_is_in_the_way_is_told_at_once() {
    let env = env();
    let fields = json!({
        "model": {"provider": "anthropic", "name": "m"}, "budgets": {"max_cost": "1 USD"}, "tools": {"builtin": false},
    });
    let job = env.job(&fields, &json!([]));
    let ends = json!({"command": "/bin/false"});
    let servers = env.mcp_config("work/m.json", &json!({"one": ends, "two": ends}));
    let all = [
        "error: there is no API key for the provider `anthropic`",
        "error: a max_cost needs a price",
        "error: tool server `one` did not start",
        "error: tool server `two` did not start",
    ];
    let checked = env.run(&["job", "--check", &job, "--mcp-config", &servers]).code(2).says(&all);
    assert_eq!(checked.stderr.matches("error: ").count(), all.len(), "{}", checked.shown());
    // A machine reads the same.
    let checked = env.run(&["job", "--check", &job, "--mcp-config", &servers, "--json"]).code(2);
    let error: serde_json::Value = serde_json::from_str(checked.stderr.lines().last().unwrap()).unwrap();
    let others = error["error"]["others"].as_array().unwrap();
    assert_eq!(others.len(), 3, "{error}");
    assert!(others.iter().all(|other| other["message"].is_string() && other["hint"].is_string()), "{error}");
    // A start, which needs no list of tools for this job, says what it can know without one.
    env.run(&["job", &job, "--mcp-config", &servers]).code(2).says(&all[..2]);
    // Programs that are not there, all of them; none is started then.
    let gone = json!({"one": {"command": "no-such-1"}, "two": {"command": "no-such-2"}});
    let servers = env.mcp_config("work/gone.json", &gone);
    let checked = env.run(&["job", "--check", &job, "--mcp-config", &servers]).code(2);
    checked.says(&all[..2]).says(&["`no-such-1` of the tool server `one`", "`no-such-2` of the tool server `two`"]);
    assert!(!env.root().exists());
}

/// Iterations that no first request fits into are refused before anything is stored, by the start as by the check.
#[test]
fn a_context_below_the_first_request_is_refused_before_anything_is_stored() {
    let env = env();
    let job = env.job(&json!({"harness": {"context_budget_tokens": 1_000}}), &json!([{"text": "Done."}]));
    for args in [&["job", "--check", &job][..], &["job", &job, "--run-id", "r"], &["submit", &job, "--run-id", "r"]] {
        env.run(args).code(2).says(&["harness.context_budget_tokens is 1000, and the first request alone"]);
    }
    let shown = env.run(&["runs", "show", "r"]);
    assert!(!shown.shown().contains("Objective"), "{}", shown.shown());
    let job = env.job(&json!({"harness": {"context_budget_tokens": 20_000}}), &json!([{"text": "Done."}]));
    env.run(&["job", "--check", &job]).code(0);
}

const PRICES: &str = "[providers.scripted.\"*\"]\ninput = 3\noutput = 15\n";

/// A budget that cannot pay for the first request is told before a start, with what it takes; and the run that stops for it is continued by the very
/// command that is printed, which asks for no more than that.
#[test]
fn a_budget_that_cannot_pay_for_the_first_request_is_told_before_a_start() {
    let env = env();
    let prices = env.write("prices.toml", PRICES);
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_cost": "0.05 USD", "max_tokens": 4_000}});
    let job = env.job(&fields, &json!([{"text": "Done."}]));
    let checked = env.run(&["job", "--check", &job, "--pricing", &prices]).code(0);
    checked.says(&[
        "warning: `max_cost` is $0.05, and the first request may cost up to $0.12",
        "it takes a `max_cost` of at least $0.12",
        "warning: `max_tokens` is 4000, and the first request may take up to ",
        "or a `model.max_output_tokens` of at most ",
        "this job would start",
    ]);
    let found = env.run(&["job", "--check", &job, "--pricing", &prices, "--json"]).code(0).json();
    assert_eq!(found["budget_doubts"].as_array().map(Vec::len), Some(2), "{found}");

    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_cost": "0.05 USD"}});
    let job = env.job(&fields, &json!([{"text": "Done."}]));
    let stopped = env.run(&["job", &job, "--pricing", &prices, "--run-id", "r"]).code(75);
    stopped.shows(&["it would fit with a `max_output_tokens` of at most ", "ua resume r --max-cost '+0.08 USD'"]);
    env.run(&["resume", "r", "--max-cost", "+0.08 USD"]).code(0);

    // With the longest reply that it names nothing is said, and the run is done.
    let most = |said: &str| {
        said.split("`model.max_output_tokens` of at most ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    let said = env.run(&["job", "--check", &job, "--pricing", &prices]).code(0).stderr;
    let tokens = most(&said).parse::<u32>().unwrap() - 50;
    let script = json!({"provider": "scripted", "script": "short.script.json", "max_output_tokens": tokens});
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_cost": "0.05 USD"}, "model": script});
    let short = env.named_job("short", &fields, &json!([{"text": "Done."}]));
    let checked = env.run(&["job", "--check", &short, "--pricing", &prices]).code(0);
    assert!(!checked.stderr.contains("warning"), "{}", checked.shown());
    env.run(&["job", &short, "--pricing", &prices]).code(0);
}

/// More effects than calls, and a turn for the call alone: no run of such a job is ever done.
#[test]
fn budgets_that_leave_no_room_for_what_the_conditions_ask_for_are_told_before_a_start() {
    let env = env();
    let conditions = json!([{"effect": "email.send", "count": 3}, "final_notification_sent"]);
    let job =
        env.job(&json!({"stop_conditions": conditions, "budgets": {"max_tool_calls": 3, "max_turns": 1}}), &json!([]));
    env.run(&["job", "--check", &job]).code(0).says(&[
        "the conditions ask for 4 effects, each of which is a call of its own, and `max_tool_calls` is 3",
        "`max_turns` is 1, and the conditions ask for an effect",
    ]);
    let job =
        env.job(&json!({"stop_conditions": conditions, "budgets": {"max_tool_calls": 4, "max_turns": 2}}), &json!([]));
    let checked = env.run(&["job", "--check", &job]).code(0);
    assert!(!checked.stderr.contains("the conditions ask for"), "{}", checked.shown());
}

#[test]
fn every_tool_that_may_have_a_counted_effect_is_named_before_a_start() {
    let env = env().with_forum();
    let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &json!([{"text": "Done."}]));
    env.run(&["job", "--check", &job])
        .code(0)
        .shows(&["not counted, because their effect is not declared", "mcp__forum__post_comment"]);
    let counted = env.run(&["job", "--check", &job, "--json"]).code(0).json()["counted_effects"].clone();
    let all = json!([
        {"effect": "email.send", "tools": ["mcp__ua__send_email"], "undeclared": ["mcp__forum__post_comment"]},
    ]);
    assert_eq!(counted, all);
}

/// A stranger's job file may lift its own questions: whoever looks before a start is told which, and of an honest job nothing.
#[test]
fn what_a_job_does_unasked_is_told_before_a_start() {
    let env = env();
    let not_asked = |job: &str| env.run(&["job", "--check", job, "--json"]).code(0).json()["not_asked"].clone();
    let honest =
        env.named_job("honest", &json!({"constraints": {"allowed_recipients": []}}), &json!([{"text": "Done."}]));
    let checked = env.run(&["job", "--check", &honest]).code(0);
    assert!(!checked.stdout.contains("Not asked"), "{}", checked.shown());
    assert_eq!(not_asked(&honest), json!([]));
    let lifts = json!({
        "tools": {"run_command": true},
        "escalation": {"ask_human_on_tainted_effect": false, "ask_human_on_ambiguous_recipient": false},
        "constraints": {
            "allowed_destinations": ["@evil.test", "send_email"], "allowed_recipients": ["x@evil.test"],
            "no_duplicate_external_actions": false,
        },
    });
    let job = env.named_job("lifts", &lifts, &json!([{"text": "Done."}]));
    let told = [
        "sends anywhere what it has read, untrusted and private alike (`ask_human_on_tainted_effect`)",
        "sends to recipients that nobody named (`ask_human_on_ambiguous_recipient`)",
        "repeats an effect that is asked for twice (`no_duplicate_external_actions`)",
        "sends to or by @evil.test, send_email (`allowed_destinations`)",
        "writes to x@evil.test (`allowed_recipients`)",
        "runs programs in its workspace (`tools.run_command`)",
    ];
    let line = format!("Not asked      this job, without a question: {}", told.join("; "));
    env.run(&["job", "--check", &job]).code(0).shows(&[&line]).says(&["this job would start"]);
    assert_eq!(not_asked(&job), json!(told));
}

/// A mail in a folder is no mail that was sent: whoever looks before the start reads it.
#[test]
fn where_mails_of_the_built_in_tool_go_is_said() {
    let env = env();
    let turns = json!([{"text": "Done."}]);
    let job = env.named_job("mails", &json!({}), &turns);
    env.run(&["job", "--check", &job]).code(0).shows(&[
        "Mail           mcp__ua__send_email writes each mail into the folder",
        "outbox, and nothing sends it from there: no mail server is set (`UA_MAIL`)",
    ]);
    let without = env.named_job("without", &json!({"tools": {"deny": ["mcp__ua__send_email"]}}), &turns);
    let checked = env.run(&["job", "--check", &without, "--json"]).code(0).json();
    assert!(checked["mail_folder"].is_null(), "{checked}");
}
