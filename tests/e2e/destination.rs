//! A call in doubt whose tool server goes somewhere else when the run is resumed: neither a key nor a look there says whether it happened, so a
//! person is asked, and an approval is good for the place that it was given for.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv};
use ua_testkit::Provider;

use super::env;

/// Writes the configuration of a service that makes things in `log` as `account`.
fn serve(env: &TestEnv, provider: Provider, log: &str, account: &str) -> String {
    let entry = json!({
        "command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": [provider.name(), env.arg(log)], "env": {"ACCOUNT": account},
    });
    env.mcp_config("work/servers.json", &json!({ provider.name(): entry }))
}

fn made(env: &TestEnv, log: &str) -> usize {
    let text = std::fs::read_to_string(env.path(log)).unwrap_or_default();
    text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count()
}

fn open_question(env: &TestEnv) -> String {
    env.value("SELECT question_id FROM questions WHERE status = 'open'")
}

/// A run with one call, killed when its server was sent it, or just before.
fn killed(env: &TestEnv, point: &str, raw: &str, fields: &Value, input: &Value, more: &[&str]) {
    let job = env.job(fields, &json!([{"tools": [{"name": raw, "input": input}]}, {"text": "Done."}]));
    let tool = raw.rsplit("__").next().unwrap_or(raw);
    env.run_killed_at(&format!("{point}:{tool}"), &[&["job", &job, "--run-id", "r"], more].concat());
    assert_eq!(env.calls(), [format!("{tool} running")]);
}

/// The resume asks, and its question says what is another one.
fn asks(env: &TestEnv, changed: &str) -> Output {
    let output = env.run(&["resume", "r", "--accept", "servers"]).code(75);
    let text = env.rows("SELECT text FROM questions WHERE status = 'open'");
    let [text] = &text[..] else { panic!("{changed}: {text:?}: {}", output.shown()) };
    assert!(text.contains("its tool server is another one now") && text.contains(changed), "{text}");
    output
}

/// What is sent again under its key, and what is looked up: both by itself where nothing changed, by a person's word where it did.
#[test]
fn a_key_and_a_probe_count_only_where_the_call_went() {
    let issue = json!({"owner": "ada", "repo": "engine", "title": "Fix it", "body": "It is broken."});
    let refund = json!({"charge": "ch_1", "amount": 500});
    for (provider, tool, input) in
        [(Provider::KeyedStripe, "create_refund", refund), (Provider::GitHub, "create_issue", issue)]
    {
        let raw = format!("mcp__{}__{tool}", provider.name());
        let killed_as = |log: &str| {
            let env = env();
            let pack = if provider == Provider::KeyedStripe { "stripe" } else { provider.name() };
            let packs = format!("{}={pack}", provider.name());
            let env = env.with_env("UA_SERVER_PACKS", &packs);
            let servers = serve(&env, provider, log, "1");
            let fields = json!({"tools": {"builtin": false}});
            killed(&env, "after:tool.invoke", &raw, &fields, &input, &["--mcp-config", &servers]);
            assert_eq!(made(&env, log), 1, "{tool}");
            env
        };
        // The same place: nobody is asked.
        let env = killed_as("a.log");
        env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
        assert_eq!(made(&env, "a.log"), 1, "{tool}");
        // Another account, and another place.
        for (log, account, changed) in [("a.log", "2", "changed: variable ACCOUNT"), ("b.log", "1", "changed: program")]
        {
            let env = killed_as("a.log");
            serve(&env, provider, log, account);
            asks(&env, changed);
            assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0), "{tool}: {changed}");
            env.run(&["answer", &open_question(&env), "happened"]).code(0);
            env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
            assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0), "{tool}: {changed}");
        }
        // Whoever puts the configuration back is not asked any more.
        let env = killed_as("a.log");
        serve(&env, provider, "b.log", "1");
        asks(&env, "changed: program");
        serve(&env, provider, "a.log", "1");
        env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
        assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0), "{tool}");
        // Nothing of a variable or of the key is in the database.
        let stored = env.value("SELECT destination_json FROM tool_attempts WHERE attempt = 1");
        assert!(stored.contains("variable ACCOUNT") && !stored.contains("a.log"), "{stored}");
    }
}

/// What a server inherits from the terminal counts like what its entry names: which program a name is, and whose folders it finds.
#[test]
fn what_is_inherited_decides_where_a_call_goes() {
    for (variable, changed) in [("PATH", "changed: variable PATH"), ("TMPDIR", "changed: variable TMPDIR")] {
        let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe").with_env(variable, "/usr/bin:/bin");
        let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
        let fields = json!({"tools": {"builtin": false}});
        let refund = json!({"charge": "ch_1", "amount": 500});
        let more = ["--mcp-config", servers.as_str()];
        killed(&env, "after:tool.invoke", "mcp__keyed-stripe__create_refund", &fields, &refund, &more);
        let env = env.with_env(variable, "/bin:/usr/bin");
        asks(&env, changed);
        assert_eq!(made(&env, "a.log"), 1, "{variable}");
        let env = env.with_env(variable, "/usr/bin:/bin").with_env("LANG", "de_DE").with_env("TERM", "dumb");
        env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
        assert_eq!(made(&env, "a.log"), 1, "{variable}");
    }
}

/// A question that is asked again has another id; who was given the old one, by an alert or on a screen, is led to it.
#[test]
fn the_old_name_of_a_question_that_is_asked_again_leads_to_the_new_one() {
    let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe");
    let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
    let fields = json!({"tools": {"builtin": false}});
    let refund = json!({"charge": "ch_1", "amount": 500});
    let more = ["--mcp-config", servers.as_str()];
    killed(&env, "after:tool.invoke", "mcp__keyed-stripe__create_refund", &fields, &refund, &more);
    serve(&env, Provider::KeyedStripe, "a.log", "2");
    asks(&env, "changed: variable ACCOUNT");
    let old = open_question(&env);
    env.run(&["answer", &old, "retry"]).code(0);
    serve(&env, Provider::KeyedStripe, "a.log", "3");
    env.run(&["resume", "r", "--accept", "servers"]).code(75);
    let new = open_question(&env);
    assert_ne!(old, new);
    for name in [old.as_str(), &old[old.len() - 8..]] {
        env.run(&["answer", name, "happened"]).refused(2, &["was asked again", &new, "nothing was answered"]);
    }
    env.run(&["answer", &new, "happened"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(0);
    assert_eq!(made(&env, "a.log"), 1);
}

/// What was done as one account is not told to a fork that works as another one.
#[test]
fn a_fork_to_another_account_is_not_told_what_the_first_one_did() {
    let env = env().with_env("UA_SERVER_PACKS", "github=github");
    let servers = serve(&env, Provider::GitHub, "a.log", "1");
    let issue = json!({"owner": "ada", "repo": "engine", "title": "Fix it", "body": "It is broken."});
    let turns = json!([{"tools": [{"name": "mcp__github__create_issue", "input": issue}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(0);
    // Where nothing changed, the fork has what the run did.
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "same"]).code(0);
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0));
    let servers = serve(&env, Provider::GitHub, "b.log", "2");
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "other", "--mcp-config", &servers]).code(75);
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0));
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    env.run(&["resume", "other"]).code(0);
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 1));
}

/// A look by hand is no proof either where the call did not go, and answers nothing.
#[test]
fn a_probe_by_hand_does_not_ask_whoever_did_not_get_the_call() {
    let env = env().with_env("UA_SERVER_PACKS", "github=github");
    let servers = serve(&env, Provider::GitHub, "a.log", "1");
    let fields = json!({"tools": {"builtin": false}});
    let issue = json!({"owner": "ada", "repo": "engine", "title": "Fix it", "body": "It is broken."});
    let more = ["--mcp-config", servers.as_str()];
    killed(&env, "after:tool.invoke", "mcp__github__create_issue", &fields, &issue, &more);
    serve(&env, Provider::GitHub, "b.log", "1");
    asks(&env, "changed: program");
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    for apply in [&["calls", "probe", &call][..], &["calls", "probe", &call, "--apply"]] {
        env.run(apply).refused(2, &["its tool server is another one now", "changed: program"]);
    }
    asks(&env, "changed: program");
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0));
    // Where it went it is asked, and found.
    serve(&env, Provider::GitHub, "a.log", "1");
    env.run(&["calls", "probe", &call, "--apply"])
        .refused(75, &["changed since the run was stored", "(`ua resume r --accept servers"]);
    // A fork accepts nothing, and is told what it takes.
    let fork = env.run(&["fork", "r"]);
    assert!(!fork.stderr.contains("--accept"), "{}", fork.stderr);
    fork.refused(75, &["changed since the run was stored", "name the file again with `--mcp-config "]);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 0));
}

/// Whoever says that it did not happen has it sent where the question said, and not where it goes after that.
#[test]
fn an_order_to_send_it_is_good_for_the_place_that_was_shown() {
    let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe");
    let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
    let (fields, input) = (json!({"tools": {"builtin": false}}), json!({"charge": "ch_1", "amount": 500}));
    killed(
        &env,
        "before:tool.invoke",
        "mcp__keyed-stripe__create_refund",
        &fields,
        &input,
        &["--mcp-config", &servers],
    );
    serve(&env, Provider::KeyedStripe, "b.log", "1");
    asks(&env, "changed: program");
    env.run(&["answer", &open_question(&env), "retry"]).code(0);
    serve(&env, Provider::KeyedStripe, "c.log", "1");
    env.run(&["resume", "r", "--accept", "servers"]).code(75);
    assert_eq!(["a.log", "b.log", "c.log"].map(|log| made(&env, log)), [0, 0, 0]);
    env.run(&["answer", &open_question(&env), "retry"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!(["a.log", "b.log", "c.log"].map(|log| made(&env, log)), [0, 0, 1]);
}

/// Of the built-in tools each goes by the settings that choose its own receiver.
#[test]
fn a_built_in_tool_goes_by_its_own_receiver() {
    let mail = json!({"to": ["a@example.test"], "subject": "s", "body": "b"});
    let (note, none) = (json!({"message": "hello"}), json!({}));
    let sent = || {
        let env = env();
        killed(&env, "after:tool.invoke", "mcp__ua__send_email", &none, &mail, &[]);
        assert_eq!(env.mails().len(), 1);
        env
    };
    // Another outbox: the message would be there a second time.
    let other = sent();
    let outbox = other.arg("other-outbox");
    let other = other.with_env("UA_OUTBOX", &outbox);
    asks(&other, "changed: variable UA_OUTBOX");
    assert!(!other.path("other-outbox/new").exists() && other.mails().len() == 1);
    // Where notifications and objects go is nothing to a message.
    let same = sent();
    let (notes, objects) = (same.arg("notes"), format!("file://{}/", same.arg("objects")));
    let same = same.with_env("UA_NOTIFICATIONS", &notes).with_env("UA_OBJECTS", &objects);
    same.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(same.mails().len(), 1);
    // A webhook that is another one, and one that is not set any more.
    let hook = |address: &str, env: TestEnv| {
        let honours = if address.is_empty() { "" } else { "1" };
        env.with_env("UA_NOTIFY_WEBHOOK_HONOURS_KEYS", honours).with_env("UA_NOTIFY_WEBHOOK", address)
    };
    for address in ["http://127.0.0.1:9/other", ""] {
        let env = hook("http://127.0.0.1:9/x", env());
        killed(&env, "before:tool.invoke", "mcp__ua__notify", &none, &note, &[]);
        let env = hook(address, env);
        asks(&env, "UA_NOTIFY_WEBHOOK");
        assert!(env.notifications().is_empty());
    }
    // Uploads.
    let env = env();
    let turns = json!([{"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "a.txt", "content": "a"}}]},
        {"tools": [{"name": "mcp__ua__upload", "input": {"path": "a.txt"}}]}, {"text": "Done."}]);
    let job = env.job(&none, &turns);
    env.run_killed_at("after:tool.invoke:upload", &["job", &job, "--run-id", "r"]);
    let elsewhere = format!("file://{}/", env.arg("elsewhere"));
    let env = env.with_env("UA_OBJECTS", &elsewhere);
    asks(&env, "changed: variable UA_OBJECTS");
    assert!(!env.path("elsewhere").exists() && env.objects().len() == 1);
}

/// A relative path in the environment is meant in the folder in which the run was started, wherever the tool server works and wherever the run is
/// resumed.
#[test]
fn a_relative_path_is_one_place_for_every_run_and_resume() {
    let mail = json!({"to": ["a@example.test"], "subject": "s", "body": "b"});
    let files = |env: &TestEnv, folder: &str| {
        let entries = std::fs::read_dir(env.path(folder)).into_iter().flatten().flatten();
        entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    for (variable, value, raw, input, folder) in [
        ("UA_OUTBOX", "o", "mcp__ua__send_email", &mail, "work/o/new"),
        ("UA_MAIL", "maildir:o", "mcp__ua__send_email", &mail, "work/o/new"),
        ("UA_NOTIFICATIONS", "o", "mcp__ua__notify", &json!({"message": "hello"}), "work/o"),
    ] {
        let env = env().with_env(variable, value);
        killed(&env, "after:tool.invoke", raw, &json!({}), input, &[]);
        assert_eq!(files(&env, folder), 1, "{variable}");
        std::fs::create_dir(env.path("elsewhere")).unwrap();
        env.run_by_bash(&format!("cd {} && \"$@\" resume r", env.arg("elsewhere"))).code(0).shows(&["succeeded"]);
        assert_eq!((files(&env, folder), files(&env, "elsewhere")), (1, 0), "{variable}");
        let shown = env.run_bare(&["config", "show", "--json"]).code(0).json();
        let settings = shown["settings"].as_array().unwrap().iter();
        let shown: Vec<&Value> = settings.filter(|row| row["variable"] == variable).map(|row| &row["value"]).collect();
        let whole = format!("{}{}", value.trim_end_matches('o'), env.arg("work/o"));
        assert_eq!(shown, [&json!(whole)], "{variable}");
    }
    // Two jobs have one memory.
    let env = env();
    let memory = env.arg("work/memory.db");
    let env = env.with_env("UA_MEMORY", &memory);
    for (name, tool, input) in [
        ("keep", "archival_memory_insert", json!({"content": "zebras are striped"})),
        ("find", "archival_memory_search", json!({"query": "zebras"})),
    ] {
        let turns = json!([{"tools": [{"name": format!("mcp__ua__{tool}"), "input": input}]}, {"text": "Done."}]);
        let job = env.named_job(name, &json!({}), &turns);
        env.run(&["job", &job, "--run-id", name]).code(0);
    }
    assert!(env.path("work/memory.db").exists());
    let calls = env.run(&["calls", "list", "--run", "find", "--json"]).code(0).json();
    let call = calls[0]["tool_call_id"].as_str().unwrap();
    env.run(&["calls", "show", call, "--full"]).code(0).shows(&["zebras are striped"]);
}

#[test]
fn an_approval_is_good_for_the_account_that_it_was_given_for() {
    let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe");
    let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
    let turns = json!([{"tools": [{"name": "mcp__keyed-stripe__create_refund", "input": {"charge": "ch_1", "amount": 500}}]}, {"text": "Done."}]);
    let job =
        env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["create_refund"]}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(75);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    serve(&env, Provider::KeyedStripe, "a.log", "2");
    env.run(&["resume", "r", "--accept", "servers"]).code(75).shows(&[
        "it would now go to another place, or as another account, than the one that you approved (changed: variable ACCOUNT)",
    ]);
    assert_eq!(made(&env, "a.log"), 0);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!((made(&env, "a.log"), env.value("SELECT count(*) FROM questions")), (1, "2".to_owned()));
}

/// Asked again because it would go elsewhere: back where it was approved nobody is asked, and a question that is open says where it would go now.
#[test]
fn an_approval_is_good_again_where_its_call_goes_back() {
    let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe");
    let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
    let turns = json!([{"tools": [{"name": "mcp__keyed-stripe__create_refund", "input": {"charge": "ch_1", "amount": 500}}]}, {"text": "Done."}]);
    let job =
        env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["create_refund"]}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(75);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    let mut asked = Vec::new();
    for account in ["2", "3", "3"] {
        serve(&env, Provider::KeyedStripe, "a.log", account);
        env.run(&["resume", "r", "--accept", "servers"])
            .code(75)
            .shows(&["than the one that you approved (changed: variable ACCOUNT)"]);
        asked.push(open_question(&env));
    }
    assert!(asked[0] != asked[1] && asked[1] == asked[2], "{asked:?}");
    serve(&env, Provider::KeyedStripe, "a.log", "1");
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!(
        (made(&env, "a.log"), env.value("SELECT count(*) FROM questions WHERE status = 'open'")),
        (1, "0".to_owned())
    );
}

/// The sender of a message is a part of it that its arguments do not say.
#[test]
fn an_approved_message_is_not_sent_as_somebody_else() {
    let env = env().with_env("UA_MAIL_FROM", "work@example.test");
    let mail = json!({"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "s", "body": "b"}});
    let fields = json!({"escalation": {"ask_human_before": ["send_email"]}});
    let job = env.job(&fields, &json!([{"tools": [mail]}, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    let env = env.with_env("UA_MAIL_FROM", "private@example.test");
    env.run(&["resume", "r", "--accept", "servers"])
        .code(75)
        .shows(&["than the one that you approved (changed: variable UA_MAIL_FROM)"]);
    assert!(env.mails().is_empty());
    let env = env.with_env("UA_MAIL_FROM", "work@example.test");
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(75);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!(env.mails().len(), 1);
}

/// What a secret holds that an argument names counts like a variable of the entry: for a repeat under the key, and for an approval.
#[test]
fn a_secret_in_an_argument_decides_where_a_call_goes() {
    let with = |account: &'static str| move |env: TestEnv| env.with_env("UA_SECRET_ACCT", account);
    let new = || {
        let env = with("account-alice")(env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe"));
        let path = env.write(
            "home/.config/ua/secrets.toml",
            "[secrets.ACCT]\ntools = { mcp__keyed-stripe__create_refund = [\"charge\"] }\n",
        );
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
        (env, servers)
    };
    let refund = json!({"charge": "${secret:ACCT}", "amount": 500});
    // In doubt.
    let (env, servers) = new();
    let fields = json!({"tools": {"builtin": false}});
    let more = ["--mcp-config", servers.as_str()];
    killed(&env, "after:tool.invoke", "mcp__keyed-stripe__create_refund", &fields, &refund, &more);
    let env = with("account-bobby")(env);
    asks(&env, "changed: secret ACCT");
    assert_eq!(made(&env, "a.log"), 1);
    let stored = env.value("SELECT destination_json FROM tool_attempts WHERE attempt = 1");
    assert!(stored.contains("secret ACCT") && !stored.contains("alice"), "{stored}");
    let env = with("account-alice")(env);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!(made(&env, "a.log"), 1);
    // Approved.
    let (env, servers) = new();
    let turns = json!([{"tools": [{"name": "mcp__keyed-stripe__create_refund", "input": refund}]}, {"text": "Done."}]);
    let job =
        env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["create_refund"]}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(75);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    let env = with("account-bobby")(env);
    env.run(&["resume", "r", "--accept", "servers"]).code(75);
    assert_eq!(made(&env, "a.log"), 0);
    env.run(&["answer", &open_question(&env), "approve"]).code(0);
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!((made(&env, "a.log"), env.value("SELECT count(*) FROM questions")), (1, "2".to_owned()));
    let log = std::fs::read_to_string(env.path("a.log")).unwrap();
    assert!(log.contains("account-bobby") && !log.contains("alice"), "{log}");
}

/// A run that has nothing in doubt goes on wherever its servers go.
#[test]
fn a_run_without_a_call_in_doubt_is_not_stopped() {
    let env = env().with_env("UA_SERVER_PACKS", "keyed-stripe=stripe");
    let servers = serve(&env, Provider::KeyedStripe, "a.log", "1");
    let refund =
        |charge: &str| json!({"name": "mcp__keyed-stripe__create_refund", "input": {"charge": charge, "amount": 5}});
    let turns = json!([{"tools": [refund("ch_1")]}, {"tools": [refund("ch_2")]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("before:model.complete#2", &["job", &job, "--run-id", "r", "--mcp-config", &servers]);
    serve(&env, Provider::KeyedStripe, "b.log", "2");
    env.run(&["resume", "r", "--accept", "servers"]).code(0).shows(&["succeeded"]);
    assert_eq!((made(&env, "a.log"), made(&env, "b.log")), (1, 1));
}

/// Whoever may write the database could name another file of servers, and take away what says that it is another one. What says how the run is
/// started has a seal, so all of it counts as found by then.
#[test]
fn s19_a_stored_file_of_servers_without_its_digests_is_asked_about() {
    let env = env().with_env("UA_SERVER_PACKS", "github=github");
    let servers = serve(&env, Provider::GitHub, "a.log", "1");
    let issue = json!({"owner": "ada", "repo": "engine", "title": "Fix it", "body": "It is broken."});
    let turns = json!([{"tools": [{"name": "mcp__github__create_issue", "input": issue}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_turns": 1}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(75);
    let started = env.path("started").display().to_string();
    let entry = json!({"command": "sh", "args": ["-c", format!("touch '{started}'")]});
    let other = env.mcp_config("work/other.json", &json!({ Provider::GitHub.name(): entry }));
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    let change =
        "UPDATE runs SET launch_json = json_remove(json_set(launch_json, '$.mcp_config', ?1), '$.known_servers')";
    assert_eq!(database.execute(change, [&other]).unwrap(), 1);
    drop(database);
    for more in [&["resume", "last", "--max-turns", "+5"][..], &["fork", "r"]] {
        env.run(more).refused(2, &["github", "not trusted yet", "name the file with `--mcp-config "]);
    }
    assert!(!env.path("started").exists());
    env.run(&["resume", "r", "--max-turns", "+5", "--mcp-config", &servers]).code(0);
    assert_eq!(made(&env, "a.log"), 1);
}
