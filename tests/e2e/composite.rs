//! Batches of a tool router: each action of a composite tool use is a call of its own, alone on the wire, and happens once, in whatever
//! batch it comes again and wherever the process dies between the actions.

use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv};

use super::env;

const MULTI: &str = "mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOL";

/// A world with the tool router.
fn router() -> TestEnv {
    let env = env();
    let entry = json!({"command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": ["composio", env.arg("router.log")]});
    env.mcp_config("work/.mcp.json", &json!({ "composio": entry }));
    env
}

/// What the router did, one line each.
fn made(env: &TestEnv) -> Vec<Value> {
    let text = std::fs::read_to_string(env.path("router.log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The recipients of what was sent, in order. Nothing ever went out together with something else.
fn sent(env: &TestEnv) -> Vec<String> {
    let made = made(env);
    assert!(made.iter().all(|line| line["together"] == 1), "{made:?}");
    made.iter().map(|line| line["arguments"]["recipient_email"].as_str().unwrap_or("-").to_owned()).collect()
}

fn action(slug: &str, arguments: &Value) -> Value {
    json!({"tool_slug": slug, "arguments": arguments})
}

fn mail_with(to: &str, more: &Value) -> Value {
    let mut mail = json!({"recipient_email": to, "subject": "Report", "body": "Hello"});
    for (name, value) in more.as_object().into_iter().flatten() {
        mail[name] = value.clone();
    }
    action("GMAIL_SEND_EMAIL", &mail)
}

fn mail(to: &str) -> Value {
    mail_with(to, &json!({}))
}

fn fetch() -> Value {
    action("GMAIL_FETCH_EMAILS", &json!({"max_results": 1}))
}

/// A turn with one batch.
fn batch(actions: &[Value]) -> Value {
    json!({"tools": [{"name": MULTI, "input": {"tools": actions, "session_id": "s-1"}}]})
}

fn last(expect: &Value) -> Value {
    json!({"text": "Done.", "expect": expect})
}

fn fields() -> Value {
    json!({"tools": {"builtin": false}})
}

/// Runs a job as `r`.
fn run(env: &TestEnv, fields: &Value, turns: &Value) -> Output {
    env.run(&["job", &env.job(fields, turns), "--run-id", "r"])
}

fn answer(env: &TestEnv, choice: &str) {
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    env.run(&["answer", &question, choice]).code(0);
}

fn checked(env: &TestEnv) {
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_batch_is_one_tool_use_and_each_of_its_actions_a_call() {
    let env = router();
    let search = json!({"tools": [
        {"name": "mcp__composio__COMPOSIO_SEARCH_TOOLS", "input": {"queries": [{"use_case": "send mail"}]}},
        {"name": "mcp__composio__COMPOSIO_GET_TOOL_SCHEMAS", "input": {"tool_slugs": ["GMAIL_SEND_EMAIL"]}},
    ]});
    let whole = json!({"contains": ["\"tool\":\"GMAIL_FETCH_EMAILS\"", "msg-1", "msg-2", "\"ok\":true"]});
    let turns = json!([search, batch(&[fetch(), mail("a@example.test"), mail("b@example.test")]), last(&whole)]);
    run(&env, &fields(), &turns).code(0);
    assert_eq!(sent(&env), ["a@example.test", "b@example.test"]);
    let columns = "SELECT turn, ordinal, tool_name, side_effect_class, status, external_correlation_id FROM tool_calls ORDER BY turn, ordinal";
    assert_eq!(
        env.rows(columns),
        [
            "1 1 COMPOSIO_SEARCH_TOOLS read_only succeeded -",
            "1 2 COMPOSIO_GET_TOOL_SCHEMAS read_only succeeded -",
            "2 1 GMAIL_FETCH_EMAILS read_only succeeded -",
            "2 2 GMAIL_SEND_EMAIL external succeeded msg-1",
            "2 3 GMAIL_SEND_EMAIL external succeeded msg-2",
        ]
    );
    assert_eq!(env.value("SELECT count(DISTINCT tool_use_id) FROM tool_calls WHERE turn = 2"), "1");
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE effect_kind = 'email.send'"), "2");
    checked(&env);
}

#[test]
fn a_batch_that_dies_between_its_actions_is_finished_each_action_once() {
    let turns = json!([
        batch(&[fetch(), mail("a@example.test"), mail("b@example.test")]),
        last(&json!({"contains": ["msg-1", "msg-2"], "tool_result_ok": true})),
    ]);
    for point in [
        "after:store.record_turn",
        "after:store.settle_attempt:GMAIL_FETCH_EMAILS",
        "after:store.settle_attempt:GMAIL_SEND_EMAIL#2",
        "before:store.commit_turn",
    ] {
        let env = router();
        let job = env.job(&fields(), &turns);
        env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(sent(&env), ["a@example.test", "b@example.test"], "{point}");
        assert_eq!(env.rows("SELECT question_id FROM questions"), [""; 0], "{point}");
        checked(&env);
    }
}

#[test]
fn an_action_in_flight_at_a_kill_is_the_only_one_that_is_asked_about() {
    for (point, happened, then) in [
        ("before:tool.invoke:GMAIL_SEND_EMAIL", 0, "execute"),
        ("after:tool.invoke:GMAIL_SEND_EMAIL", 1, "happened"),
        ("before:store.settle_attempt:GMAIL_SEND_EMAIL", 1, "happened"),
        // The answer of the first leaves with the start of the second.
        ("before:store.start_attempt:GMAIL_SEND_EMAIL#2", 1, "happened"),
    ] {
        let env = router();
        let turns = json!([
            batch(&[fetch(), mail("a@example.test"), mail("b@example.test")]),
            last(&json!({"contains": ["msg-2"]})),
        ]);
        env.run_killed_at(point, &["job", &env.job(&fields(), &turns), "--run-id", "r"]);
        assert_eq!(sent(&env).len(), happened, "{point}");
        env.run(&["resume", "r"]).code(75).shows(&["Did `GMAIL_SEND_EMAIL` happen?", "a@example.test"]);
        // The action beside it does not depend on it, and is not held with it.
        assert_eq!(env.calls()[1..], ["GMAIL_SEND_EMAIL unknown", "GMAIL_SEND_EMAIL succeeded"], "{point}");
        assert_eq!(env.value("SELECT count(*) FROM questions"), "1", "{point}");
        answer(&env, then);
        env.run(&["resume", "r"]).code(0);
        let mut sent = sent(&env);
        sent.sort();
        assert_eq!(sent, ["a@example.test", "b@example.test"], "{point}");
        checked(&env);
    }
}

/// The earlier system sent two: the same mail in a batch and then by its own tool (case S5).
#[test]
fn s5_a_mail_in_a_batch_and_then_by_its_own_tool_is_one_mail() {
    let env = router();
    let direct =
        json!({"tools": [{"name": "mcp__composio__GMAIL_SEND_EMAIL", "input": mail("a@example.test")["arguments"]}]});
    let notice = json!({"contains": ["[deduplicated]", "msg-1"]});
    run(&env, &fields(), &json!([batch(&[mail("a@example.test")]), direct, last(&notice)])).code(0);
    assert_eq!(sent(&env), ["a@example.test"]);
    // And the other way round.
    let env = router();
    run(&env, &fields(), &json!([direct, batch(&[mail("a@example.test")]), last(&notice)])).code(0);
    assert_eq!(sent(&env), ["a@example.test"]);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL"), "1");
}

/// The earlier system sent two: the same mail in another batch (case S6), and with other fields beside the list (S9b, S9c, E6).
#[test]
fn s6_a_mail_in_another_batch_or_order_is_one_mail() {
    let env = router();
    let mut third = batch(&[mail("a@example.test"), fetch(), mail("a@example.test")]);
    third["tools"][0]["input"]["thought"] = json!("once more");
    third["tools"][0]["input"]["memory"] = json!({"gmail": ["a"]});
    third["tools"][0]["input"]["current_step"] = json!("SENDING");
    let mut as_text = batch(&[]);
    as_text["tools"][0]["input"]["tools"] = json!(json!([mail("a@example.test")]).to_string());
    let turns = json!([
        batch(&[fetch(), mail("a@example.test")]),
        batch(&[mail("a@example.test")]),
        third,
        as_text,
        last(&json!({"contains": ["[deduplicated]"]})),
    ]);
    run(&env, &fields(), &turns).code(0);
    assert_eq!(sent(&env), ["a@example.test"]);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL"), "4");
    checked(&env);
}

#[test]
fn s6_a_batch_that_a_kill_forgot_may_be_grouped_anew() {
    // The reply was never recorded, so the model is asked again, and may group its actions otherwise from then on.
    let env = router();
    let turns = json!([
        batch(&[mail("a@example.test")]),
        batch(&[fetch(), mail("b@example.test"), mail("a@example.test")]),
        last(&json!({})),
    ]);
    let job = env.job(&fields(), &turns);
    env.run_killed_at("before:store.record_turn#2", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(sent(&env), ["a@example.test", "b@example.test"]);
}

#[test]
fn the_same_mail_in_other_words_is_asked_about_for_that_action_alone() {
    let env = router();
    let other_words = mail_with("A@example.test", &json!({"body": "Good day"}));
    let turns =
        json!([batch(&[mail("a@example.test")]), batch(&[other_words, mail("b@example.test")]), last(&json!({}))]);
    run(&env, &fields(), &turns).code(75).shows(&["May `GMAIL_SEND_EMAIL` run?", "Good day"]);
    assert_eq!(sent(&env), ["a@example.test", "b@example.test"]);
    answer(&env, "skip");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(sent(&env).len(), 2);
}

#[test]
fn an_action_that_fails_leaves_the_others_of_its_batch_and_ends_what_comes_after() {
    let env = router();
    let failing = mail_with("a@example.test", &json!({"fail": "quota exceeded"}));
    let mut turn = batch(&[failing, mail("b@example.test"), fetch()]);
    let after = batch(&[mail("c@example.test")])["tools"][0].clone();
    turn["tools"].as_array_mut().unwrap().push(after);
    let expect = json!({"contains": ["quota exceeded", "msg-2", "did not succeed"]});
    run(&env, &fields(), &json!([turn, last(&expect)])).code(0);
    assert_eq!(sent(&env), ["a@example.test", "b@example.test"]);
    assert_eq!(
        env.rows("SELECT tool_name, status, failure_kind, resolution FROM tool_calls ORDER BY ordinal"),
        [
            "GMAIL_SEND_EMAIL failed reported -",
            "GMAIL_SEND_EMAIL succeeded - -",
            "GMAIL_FETCH_EMAILS succeeded - -",
            "GMAIL_SEND_EMAIL cancelled - after_failure",
        ]
    );
}

#[test]
fn an_action_whose_answer_is_lost_holds_only_itself() {
    let env = router();
    let dying = mail_with("a@example.test", &json!({"die_without": env.arg("died")}));
    let turns = json!([batch(&[dying, fetch(), mail("b@example.test")]), last(&json!({"contains": ["msg-2"]}))]);
    run(&env, &fields(), &turns).code(75).shows(&["Did `GMAIL_SEND_EMAIL` happen?", "a@example.test"]);
    assert_eq!(sent(&env), ["a@example.test", "b@example.test"]);
    assert_eq!(env.calls(), ["GMAIL_SEND_EMAIL unknown", "GMAIL_FETCH_EMAILS succeeded", "GMAIL_SEND_EMAIL succeeded"]);
    answer(&env, "happened");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(sent(&env).len(), 2);
    checked(&env);
}

#[test]
fn a_batch_that_cannot_be_taken_apart_runs_nothing_and_says_what_to_send() {
    for (bad, hint) in [
        (json!([{"slug": "GMAIL_SEND_EMAIL", "arguments": {}}]), "has no tool name in `tool_slug`"),
        (json!([mail("a@example.test"), "send it"]), "action 2 is not an object"),
        (json!("send it"), "not a JSON list"),
        (json!([]), "is empty"),
        (json!(vec![mail("a@example.test"); 51]), "tools"),
    ] {
        let env = router();
        let mut turn = batch(&[]);
        turn["tools"][0]["input"]["tools"] = bad.clone();
        let mut right = batch(&[mail("a@example.test")]);
        right["expect"] = json!({"contains": ["Not run", hint]});
        run(&env, &fields(), &json!([turn, right, last(&json!({"contains": ["msg-1"]}))])).code(0);
        assert_eq!(sent(&env), ["a@example.test"], "{bad}");
        assert_eq!(env.calls(), ["COMPOSIO_MULTI_EXECUTE_TOOL cancelled", "GMAIL_SEND_EMAIL succeeded"]);
        checked(&env);
    }
}

#[test]
fn what_a_job_forbids_is_forbidden_in_a_batch() {
    let env = router();
    let workbench = action("COMPOSIO_REMOTE_WORKBENCH", &json!({"code_to_execute": "send()"}));
    let slack = action("SLACK_SEND_MESSAGE", &json!({"text": "hi"}));
    let mut fields = fields();
    fields["tools"]["deny"] = json!(["SLACK_*"]);
    let turns = json!([
        batch(&[fetch(), workbench, slack]),
        last(&json!({"contains": ["not available in a durable job", "forbids `SLACK_SEND_MESSAGE`"]})),
    ]);
    run(&env, &fields, &turns).code(0);
    assert_eq!(made(&env).len(), 0);
    assert_eq!(
        env.calls(),
        ["GMAIL_FETCH_EMAILS succeeded", "COMPOSIO_REMOTE_WORKBENCH cancelled", "SLACK_SEND_MESSAGE cancelled"]
    );
}

#[test]
fn each_action_counts_as_a_tool_call() {
    let env = router();
    let mut fields = fields();
    fields["budgets"] = json!({"max_tool_calls": 2});
    let turns = json!([batch(&[fetch(), mail("a@example.test"), mail("b@example.test")]), last(&json!({}))]);
    run(&env, &fields, &turns).code(75).shows(&["max_tool_calls"]);
    assert_eq!(made(&env).len(), 0);
    env.run(&["resume", "r", "--max-tool-calls", "+1"]).code(0);
    assert_eq!(sent(&env).len(), 2);
}

#[test]
fn a_stop_condition_counts_the_mails_of_a_batch() {
    let env = router();
    let mut fields = fields();
    fields["stop_conditions"] = json!(["email_sent_once"]);
    let turns = json!([
        batch(&[mail("a@example.test"), mail("b@example.test")]),
        last(&json!({"contains": ["is used up by what happened"]}))
    ]);
    run(&env, &fields, &turns).code(0);
    assert_eq!(sent(&env), ["a@example.test"]);
}

#[test]
fn a_key_is_delivered_among_the_arguments_of_its_action() {
    for point in ["before:tool.invoke", "after:tool.invoke"] {
        let env = router();
        env.write(
            "work/notes.toml",
            "[[rule]]\nid = \"page\"\nname = \"NOTES_CREATE_PAGE\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
             key_channel = { argument = \"client_request_id\" }\neffect_kind = \"page.create\"\nscope = [{ value = \"title\" }]\n",
        );
        let mut fields = fields();
        fields["policies"] = json!(["notes.toml"]);
        let page = action("NOTES_CREATE_PAGE", &json!({"title": "Tides"}));
        let turns = json!([batch(&[page, fetch()]), last(&json!({"contains": ["page-1"]}))]);
        let job = env.job(&fields, &turns);
        env.run_killed_at(&format!("{point}:NOTES_CREATE_PAGE"), &["job", &job, "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        let made = made(&env);
        assert_eq!(made.len(), 1, "{point}");
        let key = env.value("SELECT idempotency_key FROM tool_calls WHERE tool_name = 'NOTES_CREATE_PAGE'");
        assert_eq!(made[0]["arguments"]["client_request_id"], json!(key), "{point}");
        assert_eq!(env.value("SELECT replay_status FROM tool_calls WHERE tool_name = 'NOTES_CREATE_PAGE'"), "redone");
    }
}

#[test]
fn large_answers_of_a_batch_are_kept_once_each_and_read_whole() {
    let env = router();
    let mut fields = fields();
    fields["settings"] = json!({"blob_threshold_bytes": 1000});
    let large = |size: u32| action("GMAIL_FETCH_EMAILS", &json!({"size": size}));
    let turns = json!([batch(&[large(5_000), large(6_000)]), last(&json!({"contains": ["m".repeat(6_000)]}))]);
    run(&env, &fields, &turns).code(0);
    let result = env.value("SELECT message_json FROM messages WHERE origin = 'tools'");
    assert!(result.len() < 1_000 && result.contains("blob_"), "{result}");
    checked(&env);
}

#[test]
fn any_tool_can_be_declared_composite() {
    let env = router();
    // The same router under a name that says nothing, with a rule of the user's that lays its tool out.
    let entry = json!({"command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": ["composio", env.arg("router.log")]});
    env.mcp_config("work/.mcp.json", &json!({ "apps": entry }));
    env.write(
        "work/apps.toml",
        "[[rule]]\nid = \"batch\"\nserver = \"apps\"\nname = \"COMPOSIO_MULTI_EXECUTE_TOOL\"\nside_effect_class = \"external\"\n\
         composite = { list = \"tools\", name = \"tool_slug\", arguments = \"arguments\", results = \"data.results\", response = \"response\" }\n",
    );
    let mut fields = fields();
    fields["policies"] = json!(["apps.toml"]);
    let mut turn = batch(&[mail("a@example.test"), mail("a@example.test")]);
    turn["tools"][0]["name"] = json!("mcp__apps__COMPOSIO_MULTI_EXECUTE_TOOL");
    run(&env, &fields, &json!([turn, last(&json!({"contains": ["[deduplicated]"]}))])).code(0);
    assert_eq!(sent(&env), ["a@example.test"]);
    env.run(&["tools", "explain", "COMPOSIO_MULTI_EXECUTE_TOOL"])
        .code(0)
        .shows(&["each action in \"tools\" is a call of its own"]);
}

/// S0 §7.4: overrides by configuration. A list of a person's is stronger than the names of tools.
#[test]
fn tools_that_a_person_lists_have_the_class_of_their_list() {
    let class = |env: &TestEnv| {
        let turns = json!([batch(&[fetch()]), last(&json!({}))]);
        run(env, &fields(), &turns).code(0);
        env.value("SELECT side_effect_class FROM tool_calls WHERE tool_name = 'GMAIL_FETCH_EMAILS'")
    };
    assert_eq!(class(&router()), "read_only");
    assert_eq!(class(&router().with_env("UA_SIDE_EFFECT_DENYLIST", "SLACK_*, GMAIL_FETCH_*")), "external");
    let listed = router().with_env("UA_READ_ONLY_ALLOWLIST", "NOTES_*");
    let page = action("NOTES_CREATE_PAGE", &json!({"title": "Tides"}));
    run(&listed, &fields(), &json!([batch(&[page]), last(&json!({}))])).code(0);
    assert_eq!(listed.value("SELECT side_effect_class FROM tool_calls"), "read_only");
    let wrong = router().with_env("UA_SIDE_EFFECT_DENYLIST", "GMAIL_[");
    run(&wrong, &fields(), &json!([last(&json!({}))])).code(2).says(&["side_effect_denylist", "GMAIL_["]);
}
