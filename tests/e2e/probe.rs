//! Calls in doubt that the other side can be asked about: the shipped recipes against services that behave as they document, and
//! `ua calls probe`.

use serde_json::{Value, json};
use ua_e2e::TestEnv;
use ua_testkit::{Provider, ProviderFault};

use super::env;

/// A world with the tool server of a service.
fn with_service(provider: Provider) -> TestEnv {
    let env = env();
    let entry = json!({
        "command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": [provider.name(), env.arg("service.log")],
    });
    env.mcp_config("work/.mcp.json", &json!({ provider.name(): entry }));
    // The stand-in is no package: somebody has to say that its tools are those that a pack is about.
    let pack = match provider {
        Provider::Sql => "mcp-sqlite",
        Provider::KeyedStripe => "stripe",
        Provider::S3Links => "s3",
        Provider::GitHub
        | Provider::Stripe
        | Provider::GoogleCalendar
        | Provider::Slack
        | Provider::S3
        | Provider::Gmail
        | Provider::Linear
        | Provider::Notion
        | Provider::Trello
        | Provider::Discord => provider.name(),
    };
    env.with_env("UA_SERVER_PACKS", &format!("{}={pack}", provider.name()))
}

/// A job with one call, which nobody kills.
fn job(env: &TestEnv, provider: Provider, tool: &str, input: &Value) -> String {
    let name = format!("mcp__{}__{tool}", provider.name());
    env.job(
        &json!({"tools": {"builtin": false}}),
        &json!([{"tools": [{"name": name, "input": input}]}, {"text": "Done."}]),
    )
}

/// How the service loses the next thing that it makes.
fn fails(env: &TestEnv, fault: ProviderFault) {
    env.write("service.log.fault", fault.name());
}

fn questions(env: &TestEnv) -> String {
    env.value("SELECT count(*) FROM questions")
}

/// What the service made, one JSON object each.
fn made(env: &TestEnv) -> Vec<Value> {
    let text = std::fs::read_to_string(env.path("service.log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A job with one call, killed at `point`.
fn killed(env: &TestEnv, point: &str, provider: Provider, tool: &str, input: &Value) {
    let name = format!("mcp__{}__{tool}", provider.name());
    let turns = json!([{"tools": [{"name": name, "input": input}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at(&format!("{point}:{tool}"), &["job", &job, "--run-id", "r"]);
    assert_eq!(env.calls(), [format!("{tool} running")]);
}

/// One call of each recipe that promises something, and what resume does with it when its answer is lost.
fn recipes() -> Vec<(Provider, &'static str, Value, &'static str)> {
    let repository = json!({"owner": "ada", "repo": "engine"});
    let with = |fields: Value| {
        let mut all = repository.clone();
        for (name, value) in fields.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        all
    };
    let event = json!({"calendarId": "primary", "summary": "Review", "start": "2026-12-01T10:00:00", "end": "2026-12-01T11:00:00"});
    vec![
        (Provider::GitHub, "create_issue", with(json!({"title": "Fix it", "body": "It is broken."})), "reconciled"),
        (
            Provider::GitHub,
            "create_pull_request",
            with(json!({"title": "Correct it", "head": "mend", "base": "main", "body": "Mended."})),
            "reconciled",
        ),
        (Provider::GitHub, "add_issue_comment", with(json!({"issue_number": 7, "body": "Me too."})), "reconciled"),
        (Provider::KeyedStripe, "create_refund", json!({"charge": "ch_1", "amount": 500}), "redone"),
        (Provider::GoogleCalendar, "create-event", event, "reconciled"),
        (Provider::Slack, "slack_post_message", json!({"channel_id": "C1", "text": "Hello"}), "reconciled"),
        (
            Provider::Slack,
            "slack_reply_to_thread",
            json!({"channel_id": "C1", "thread_ts": "1.0", "text": "Hello"}),
            "reconciled",
        ),
        (Provider::Slack, "chat_postMessage", json!({"channel": "C1", "text": "Hello"}), "reconciled"),
        (Provider::S3, "s3_put_object", json!({"bucket": "b", "key": "k.txt", "content": "text"}), "reconciled"),
        (Provider::S3, "put_object", json!({"Bucket": "b", "Key": "k.txt", "Body": "text"}), "reconciled"),
        (Provider::Linear, "create_comment", json!({"issueId": "ENG-1", "body": "Me too."}), "reconciled"),
        (
            Provider::Notion,
            "API-create-a-comment",
            json!({"parent": {"page_id": "p-1"}, "rich_text": [{"text": {"content": "Fine."}}]}),
            "reconciled",
        ),
    ]
}

/// What docs/guide/policies.md says of tables: a column that is unique by itself, and a question about it.
const ROW: &str = r#"
[[rule]]
id = "order"
server = "sql"
name = "create_record"
on_unknown = "probe"
horizon = "1s"
marker = { argument = "data", put = { ua_key = "{key}" } }
[rule.probe]
tool = "read_records"
arguments = { table = "{arg.table}", conditions = { ua_key = "{key}" }, limit = 2 }
found = { items = "data", field = "ua_key", equals = "{key}", id = "id" }
absent = { items_below = 1 }
settle = "1s"
"#;

fn with_table() -> (TestEnv, Value) {
    let env = with_service(Provider::Sql);
    let policy = env.write("work/sql.toml", ROW);
    (env.with_env("UA_POLICY", &policy), json!({"table": "orders", "data": {"article": "pen", "count": 2}}))
}

#[test]
fn a_row_is_found_by_a_value_that_is_unique() {
    for (point, already) in [("after:tool.invoke", 1), ("before:tool.invoke", 0)] {
        let (env, input) = with_table();
        killed(&env, point, Provider::Sql, "create_record", &input);
        assert_eq!(made(&env).len(), already, "{point}");
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        let rows = made(&env);
        assert_eq!((rows.len(), &rows[0]["arguments"]["data"]["article"]), (1, &json!("pen")), "{point}");
    }
    for fault in [ProviderFault::DiesBefore, ProviderFault::DiesAfter] {
        let (env, input) = with_table();
        fails(&env, fault);
        env.run(&["job", &job(&env, Provider::Sql, "create_record", &input)]).code(0).shows(&["succeeded"]);
        assert_eq!((made(&env).len(), questions(&env)), (1, "0".to_owned()), "{fault:?}");
    }
    // A table without such a column cannot be asked about a row.
    let env = with_service(Provider::Sql);
    fails(&env, ProviderFault::DiesAfter);
    let input = json!({"table": "notes", "data": {"text": "Hello"}});
    env.run(&["job", &job(&env, Provider::Sql, "create_record", &input)]).code(75).shows(&["waiting for you"]);
    assert_eq!(made(&env).len(), 1);
}

#[test]
fn a_recipe_completes_a_lost_call_exactly_once() {
    for (provider, tool, input, replay) in recipes() {
        let env = with_service(provider);
        killed(&env, "after:tool.invoke", provider, tool, &input);
        assert_eq!(made(&env).len(), 1, "{tool}");
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        assert_eq!(made(&env).len(), 1, "{tool}");
        assert_eq!(env.rows("SELECT status, replay_status FROM tool_calls"), [format!("succeeded {replay}")], "{tool}");
        let evidence = if replay == "reconciled" { "reconciled" } else { "reported" };
        assert_eq!(env.rows("SELECT evidence FROM tool_receipts"), [evidence], "{tool}");
    }
}

/// Calls of tools that take no mark, and by what of them a person would know them.
fn without_a_mark() -> Vec<(Provider, &'static str, Value, &'static str)> {
    let issue =
        json!({"method": "create", "owner": "ada", "repo": "engine", "title": "Fix it", "body": "It is broken."});
    let all = [
        (Provider::GitHub, "issue_write", issue, "by its `title`"),
        (Provider::Stripe, "create_product", json!({"name": "Pen", "description": "Blue."}), "by its `name`"),
        (
            Provider::Stripe,
            "create_price",
            json!({"product": "prod_1", "unit_amount": 500, "currency": "eur"}),
            "`unit_amount`",
        ),
        (Provider::Stripe, "create_invoice", json!({"customer": "cus_1", "days_until_due": 30}), "`customer`"),
        (Provider::Trello, "create_label", json!({"boardId": "b1", "name": "Urgent", "color": "red"}), "by its `name`"),
        (Provider::Discord, "create_role", json!({"guildId": "7", "name": "Editors"}), "by its `name`"),
    ];
    all.into_iter().chain(by_values_alone()).collect()
}

/// Those of them whose recipes find a lost call and never prove that it is not there.
fn by_values_alone() -> Vec<(Provider, &'static str, Value, &'static str)> {
    let text = |content: &str| json!([{"text": {"content": content}}]);
    let mail =
        json!({"to": ["ada@example.test", "bob@example.test"], "subject": "Weekly report", "body": "All is well."});
    let parent = json!({"page_id": "p-1"});
    vec![
        (Provider::Gmail, "send_email", mail.clone(), "by its `subject`"),
        (Provider::Gmail, "draft_email", mail, "by its `subject`"),
        (
            Provider::Linear,
            "save_issue",
            json!({"team": "ENG", "title": "Fix it", "description": "Broken."}),
            "by its `title`",
        ),
        (
            Provider::Notion,
            "API-post-page",
            json!({"parent": parent, "properties": {"title": {"title": text("Plan")}}}),
            "by its `parent`, `properties`",
        ),
        (
            Provider::Notion,
            "API-create-a-data-source",
            json!({"parent": {"database_id": "d-1"}, "title": text("Tasks"), "properties": {}}),
            "by its `parent`, `title`",
        ),
        (
            Provider::Notion,
            "API-patch-block-children",
            json!({"block_id": "b-1", "children": [{"paragraph": {"rich_text": text("Fine.")}}, {"divider": {}}]}),
            "by its contents",
        ),
    ]
}

/// Something that the service made by itself, or for others, so many seconds ago.
fn made_by_others(env: &TestEnv, tool: &str, arguments: &Value, seconds_ago: i64) {
    let at = ua_core::system::env().now().as_millis() - seconds_ago * 1000;
    let text = std::fs::read_to_string(env.path("service.log")).unwrap_or_default();
    env.write("service.log", format!("{text}{}\n", json!({"tool": tool, "arguments": arguments, "at": at})));
}

#[test]
fn what_takes_no_mark_is_found_by_its_values_and_its_time() {
    for (provider, tool, input, by) in without_a_mark() {
        let env = with_service(provider);
        // The same, made by others the day before yesterday, is not it.
        made_by_others(&env, tool, &input, 48 * 3600);
        killed(&env, "after:tool.invoke", provider, tool, &input);
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        assert_eq!(made(&env).len(), 2, "{tool}");
        assert_eq!(env.rows("SELECT status, replay_status FROM tool_calls"), ["succeeded reconciled"], "{tool}");
        assert_eq!(env.rows("SELECT evidence FROM tool_receipts"), ["reconciled"], "{tool}");
        env.run(&["calls", "show", &call_id(&env)]).code(0).shows(&[by, "the time at which it was made"]);
    }
}

/// The service ends, or hangs, with the thing made: the run finds it by itself and goes on, in one process.
#[test]
fn what_a_service_loses_is_found_without_a_person() {
    let marked = recipes().into_iter().map(|(provider, tool, input, _)| (provider, tool, input));
    let unmarked = without_a_mark().into_iter().map(|(provider, tool, input, _)| (provider, tool, input));
    for (provider, tool, input) in marked.chain(unmarked) {
        let env = with_service(provider);
        fails(&env, ProviderFault::DiesAfter);
        env.run(&["job", &job(&env, provider, tool, &input)]).code(0).shows(&["succeeded"]);
        assert_eq!((made(&env).len(), questions(&env)), (1, "0".to_owned()), "{tool}");
    }
    for (provider, tool, input, _) in by_values_alone() {
        let env = with_service(provider);
        let limit = format!(
            "[[rule]]\nid = \"limit\"\nserver = \"{}\"\nname = \"{tool}\"\ntimeout = \"1s\"\n",
            provider.name()
        );
        let policy = env.write("work/limit.toml", limit);
        let env = env.with_env("UA_POLICY", &policy);
        fails(&env, ProviderFault::HangsAfter);
        env.run(&["job", &job(&env, provider, tool, &input)]).code(0).shows(&["succeeded"]);
        assert_eq!((made(&env).len(), questions(&env)), (1, "0".to_owned()), "{tool}");
    }
}

/// What is not there may still be on its way, so nothing is sent again; what a service shows later is found by a later resume.
#[test]
fn what_a_service_does_not_show_is_a_question() {
    for (provider, tool, input, _) in by_values_alone() {
        let env = with_service(provider);
        fails(&env, ProviderFault::DiesBefore);
        env.run(&["job", &job(&env, provider, tool, &input), "--run-id", "r"]).code(75).shows(&["waiting for you"]);
        assert_eq!((made(&env).len(), env.calls()), (0, vec![format!("{tool} unknown")]));

        let env = with_service(provider);
        fails(&env, ProviderFault::DiesAfter);
        let hidden = env.write("service.log.hide", "");
        env.run(&["job", &job(&env, provider, tool, &input), "--run-id", "r"]).code(75).shows(&["waiting for you"]);
        std::fs::remove_file(hidden).unwrap();
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        assert_eq!((made(&env).len(), env.calls()), (1, vec![format!("{tool} succeeded")]));
    }
}

#[test]
fn values_that_others_share_are_a_question() {
    for (provider, tool, input, _) in without_a_mark() {
        let env = with_service(provider);
        killed(&env, "after:tool.invoke", provider, tool, &input);
        made_by_others(&env, tool, &input, 0);
        env.run(&["resume", "r"]).code(75).shows(&["2 entries with the same values"]);
        assert_eq!((made(&env).len(), env.calls()), (2, vec![format!("{tool} unknown")]));
    }
    for (provider, tool, input, _) in without_a_mark() {
        let env = with_service(provider);
        // Nothing came of it, and an hour before somebody made the same: that is not it, and nothing proves that it is not there.
        made_by_others(&env, tool, &input, 3600);
        killed(&env, "before:tool.invoke", provider, tool, &input);
        env.run(&["resume", "r"]).code(75).shows(&["which is not when the call was sent"]);
        assert_eq!((made(&env).len(), env.calls()), (1, vec![format!("{tool} unknown")]));
    }
}

#[test]
fn what_another_run_made_in_the_same_words_is_not_taken_for_it() {
    for (provider, tool, input, _) in without_a_mark() {
        let env = with_service(provider);
        let name = format!("mcp__{}__{tool}", provider.name());
        let turns = json!([{"tools": [{"name": name, "input": input}]}, {"text": "Done."}]);
        let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
        env.run(&["job", &job, "--run-id", "other"]).code(0);
        env.run_killed_at(&format!("before:tool.invoke:{tool}"), &["job", &job, "--run-id", "r"]);
        assert_eq!(made(&env).len(), 1, "{tool}: nothing came of the second");
        env.run(&["resume", "r"]).code(75).shows(&["has the same values, so a find proves nothing"]);
        let call = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'");
        env.run(&["calls", "probe", &call]).code(0).shows(&["unclear", "may have left it behind"]);
        assert_eq!(made(&env).len(), 1, "{tool}");
    }
}

/// The shipped rule for an issue, with less patience.
const ISSUE: &str = r#"
[[rule]]
id = "issue"
server = "github"
name = "issue_write"
side_effect_class = "external"
effect_kind = "issue.create"
on_unknown = "probe"
horizon = "1s"
[rule.probe]
tool = "list_issues"
arguments = { owner = "{arg.owner}", repo = "{arg.repo}", orderBy = "CREATED_AT" }
when = { method = "create" }
found = { items = "issues", same = { title = "{arg.title}" }, made = { field = "created_at" }, id = "number" }
absent = { newest_first = true }
settle = "1s"
"#;

#[test]
fn what_is_not_there_is_sent_again_only_where_nothing_of_that_time_may_be_it() {
    let issue = |method: &str, title: &str| json!({"method": method, "owner": "ada", "repo": "engine", "title": title});
    // What the list had before, and what came into it meanwhile; how resume ends, and how many there are then.
    let cases = [
        (Some(2 * 24 * 3600), None, 0, 2, "succeeded"),
        (None, None, 75, 0, "does not go back"),
        (Some(2 * 24 * 3600), Some(0), 75, 2, "may be this in other words"),
        // What seems older than the call is the call's, where this machine's clock was ahead by hours.
        (Some(2 * 24 * 3600), Some(5 * 3600), 75, 2, "may be this in other words"),
    ];
    for (before, meanwhile, code, count, shown) in cases {
        let env = with_service(Provider::GitHub);
        let policy = env.write("work/issue.toml", ISSUE);
        let env = env.with_env("UA_POLICY", &policy);
        if let Some(ago) = before {
            made_by_others(&env, "issue_write", &issue("create", "Another"), ago);
        }
        killed(&env, "before:tool.invoke", Provider::GitHub, "issue_write", &issue("create", "Fix it"));
        if let Some(ago) = meanwhile {
            made_by_others(&env, "issue_write", &issue("create", "Fix"), ago);
        }
        env.run(&["resume", "r"]).code(code).shows(&[shown]);
        assert_eq!(made(&env).len(), count, "{shown}");
    }
    // A call that changes an issue is not what the probe is about.
    let env = with_service(Provider::GitHub);
    killed(&env, "after:tool.invoke", Provider::GitHub, "issue_write", &issue("update", "Fix it"));
    env.run(&["resume", "r"]).code(75).shows(&["calls whose `method` is another"]);
    assert_eq!((made(&env).len(), env.calls()), (1, vec!["issue_write unknown".to_owned()]));
}

#[test]
fn where_the_provider_gives_nothing_a_person_is_asked() {
    let customer = json!({"name": "Ada", "email": "ada@example.test"});
    let mail = json!({"recipient_email": "ada@example.test", "subject": "Hi", "body": "Hello"});
    let cases = [
        (Provider::Gmail, "GMAIL_SEND_EMAIL", mail),
        // It changes an issue; and a title that is given back in another form than it was sent.
        (Provider::Linear, "save_issue", json!({"id": "ENG-1", "team": "ENG", "title": "Fix it"})),
        (
            Provider::Notion,
            "API-post-page",
            json!({"parent": {"page_id": "p-1"}, "properties": {"title": [{"text": {"content": "Plan"}}]}}),
        ),
        // Its list of customers says no time, and no tool lists refunds.
        (Provider::Stripe, "create_customer", customer),
        (Provider::Stripe, "create_refund", json!({"payment_intent": "pi_1", "amount": 500})),
        // The model took the place of the mark, so nothing unique went out.
        (
            Provider::Slack,
            "chat_postMessage",
            json!({"channel": "C1", "text": "Hi", "metadata": {"event_type": "x", "event_payload": {}}}),
        ),
    ];
    for (provider, tool, input) in cases {
        let env = with_service(provider);
        killed(&env, "after:tool.invoke", provider, tool, &input);
        env.run(&["resume", "r"]).code(75).shows(&["waiting for you", tool]);
        assert_eq!((made(&env).len(), env.calls()), (1, vec![format!("{tool} unknown")]));
    }
}

#[test]
fn another_object_at_the_place_is_no_proof() {
    for (tool, input, theirs) in [
        (
            "put_object",
            json!({"Bucket": "b", "Key": "k.txt", "Body": "text"}),
            json!({"Bucket": "b", "Key": "k.txt", "Body": "theirs", "Metadata": {}}),
        ),
        (
            "s3_put_object",
            json!({"bucket": "b", "key": "k.txt", "content": "text"}),
            json!({"bucket": "b", "key": "k.txt", "content": "theirs", "metadata": {}}),
        ),
    ] {
        let env = with_service(Provider::S3);
        killed(&env, "before:tool.invoke", Provider::S3, tool, &input);
        let other = json!({"tool": tool, "at": 0, "arguments": theirs});
        env.write("service.log", format!("{other}\n"));
        env.run(&["resume", "r"]).code(75).shows(&["something else is there"]);
        assert_eq!(made(&env).len(), 1, "{tool}");
    }
}

/// Its lost answer costs nobody a question: a second address opens the same place.
#[test]
fn an_address_is_signed_again() {
    let input = json!({"bucket_name": "b", "key": "k.txt"});
    for fault in [ProviderFault::DiesBefore, ProviderFault::DiesAfter] {
        let env = with_service(Provider::S3Links);
        fails(&env, fault);
        env.run(&["job", &job(&env, Provider::S3Links, "s3_put_object", &input)]).code(0).shows(&["succeeded"]);
        assert_eq!(questions(&env), "0", "{fault:?}");
    }
    let env = with_service(Provider::S3Links);
    killed(&env, "after:tool.invoke", Provider::S3Links, "s3_put_object", &input);
    env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(questions(&env), "0");
}

fn call_id(env: &TestEnv) -> String {
    env.value("SELECT tool_call_id FROM tool_calls")
}

#[test]
fn a_probe_by_hand_says_what_it_found_and_changes_nothing() {
    let env = with_service(Provider::Slack);
    killed(&env, "after:tool.invoke", Provider::Slack, "chat_postMessage", &json!({"channel": "C1", "text": "Hello"}));
    let call = call_id(&env);
    env.run(&["calls", "probe", &call])
        .code(0)
        .shows(&["found", "conversations_history", "0.0"])
        .says(&["ua resume r"]);
    // Nobody was asked yet, so there is nothing to answer.
    env.run(&["calls", "probe", &call, "--apply"]).code(0).says(&["nothing was changed"]);
    assert_eq!(env.calls(), ["chat_postMessage running"]);
    let said = env.run(&["calls", "probe", &call, "--json"]).code(0).json();
    assert_eq!((&said["finding"], &said["counts"], &said["applied"]), (&json!("found"), &json!(true), &Value::Null));
    assert_eq!(made(&env).len(), 1);
}

#[test]
fn a_probe_by_hand_answers_the_question_when_it_is_told_to() {
    let env = with_service(Provider::Slack);
    // A patient policy: what is not there yet may still come for two hours, so the run asks a person instead of waiting.
    let policy = env.write(
        "work/slow.toml",
        "[[rule]]\nid = \"slow\"\nserver = \"slack\"\nname = \"chat_postMessage\"\nhorizon = \"2h\"\n",
    );
    let turns = json!([
        {"tools": [{"name": "mcp__slack__chat_postMessage", "input": {"channel": "C1", "text": "Hello"}}]}, {"text": "Done."},
    ]);
    let job = env.job(&json!({"tools": {"builtin": false}, "policies": ["slow.toml"]}), &turns);
    assert!(policy.ends_with("slow.toml"));
    env.run_killed_at("before:tool.invoke:chat_postMessage", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75).shows(&["waiting for you", "cannot be decided before"]);
    let call = call_id(&env);
    let probe = ["calls", "probe", &call, "--apply"];
    env.run(&probe).code(0).shows(&["absent", "conclusive from"]).says(&["proves nothing yet"]);
    assert_eq!(env.value("SELECT status FROM questions"), "open");

    // Now it comes after all.
    let key = env.value("SELECT idempotency_key FROM tool_calls");
    let metadata = json!({"event_type": "ua_call", "event_payload": {"key": key}});
    let late = json!({"tool": "chat_postMessage", "at": 32_503_680_000_000_i64,
        "arguments": {"channel": "C1", "text": "Hello", "metadata": metadata}});
    env.write("service.log", format!("{late}\n"));
    env.run(&["calls", "probe", &call]).code(0).shows(&["found"]).says(&["--apply"]);
    assert_eq!(env.value("SELECT status FROM questions"), "open");
    env.run(&probe).code(0).says(&["answered", "ua resume r"]);
    assert_eq!(env.value("SELECT status FROM questions"), "answered");
    env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!((made(&env).len(), env.calls()), (1, vec!["chat_postMessage succeeded".to_owned()]));
}

#[test]
fn a_call_that_nothing_can_be_asked_about_says_so() {
    let env = with_service(Provider::Gmail);
    let mail = json!({"recipient_email": "ada@example.test", "subject": "Hi", "body": "Hello"});
    killed(&env, "after:tool.invoke", Provider::Gmail, "GMAIL_SEND_EMAIL", &mail);
    let call = call_id(&env);
    env.run(&["calls", "probe", &call]).refused(2, &["no policy says how to ask", "ua calls resolve"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["calls", "resolve", &call, "--happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    env.run(&["calls", "probe", &call]).refused(2, &["succeeded", "nothing to ask"]);
}

#[test]
fn a_users_probe_that_is_not_there_or_changes_something_fails_the_start() {
    let env = with_service(Provider::Gmail);
    for (tool, why) in [("find_mail", "no server offers"), ("GMAIL_SEND_EMAIL", "classified as external")] {
        env.write(
            "work/mail.toml",
            format!(
                "[[rule]]\nid = \"mail\"\nserver = \"gmail\"\nname = \"GMAIL_SEND_EMAIL\"\nside_effect_class = \"external\"\n\
                 key_channel = \"meta\"\n[rule.probe]\ntool = \"{tool}\"\nfound = {{ field = \"id\", equals = \"{{key}}\" }}\n\
                 settle = \"1s\"\n"
            ),
        );
        let fields = json!({"tools": {"builtin": false}, "policies": ["mail.toml"]});
        let job = env.named_job(tool, &fields, &json!([{"text": "Done."}]));
        env.run(&["job", &job]).code(2).says(&["wants to ask a probe", why]);
    }
}
