//! Options that come by the environment instead of the command line, and which of them a server is given.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args as _, Command};
use serde_json::json;
use tempfile::TempDir;
use ua_core::Env;
use ua_toolserver::{Settings, ToolServer, environment};

use super::killed::{keyed, start_under};
use super::{names, plain_pdf};

/// What is passed on of these variables.
fn passed(set: &[(&str, &str)]) -> Vec<String> {
    let set: BTreeMap<&str, &str> = set.iter().copied().collect();
    let passed = environment(|name| set.get(name).map(|value| (*value).to_owned()));
    for (name, value) in &passed {
        assert_eq!(set.get(name.as_str()), Some(&value.as_str()), "{name}");
    }
    passed.into_keys().collect()
}

#[tokio::test]
async fn a_server_reads_its_settings_from_the_environment() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (workspace, outbox, notes) = (directory.path().join("w"), path("outbox"), path("notes"));
    let variables = [
        ("UA_OUTBOX", outbox.as_str()),
        ("UA_NOTIFICATIONS", notes.as_str()),
        ("UA_MAIL_FROM", "robot@example.org"),
        ("UA_SEARCH", "searxng+http://127.0.0.1:9"),
        // Set to nothing, or to no, is as good as not set.
        ("UA_MAIL", ""),
        ("UA_IMAGE_API_HONOURS_KEYS", "0"),
    ];
    let server = start_under(&workspace, &[], &variables).await;
    let tools = server.client.list_all_tools().await.unwrap();
    let offers = |name: &str| tools.iter().any(|tool| tool.name == name);
    assert!(offers("web_search") && !offers("describe_image"));
    let mail = json!({ "to": ["a@example.org"], "subject": "s", "body": "b" });
    for (tool, arguments) in [("send_email", mail), ("notify", json!({ "message": "m" }))] {
        let result = server.client.call_tool(keyed(tool, &arguments, 1)).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{result:?}");
    }
    let sent = names(&directory.path().join("outbox/new"));
    let text = std::fs::read_to_string(directory.path().join("outbox/new").join(&sent[0])).unwrap();
    assert!(text.contains("From: robot@example.org"), "{text}");
    assert_eq!(names(&directory.path().join("notes")).len(), 2);
}

#[tokio::test]
async fn a_flag_is_stronger_than_its_variable_and_a_mail_server_than_an_outbox() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (mail, other) = (format!("maildir:{}", path("mail")), path("other"));
    let variables = [("UA_MAIL", mail.as_str()), ("UA_OUTBOX", &path("outbox")), ("UA_NOTIFICATIONS", &path("notes"))];
    let server = start_under(&directory.path().join("w"), &["--notifications", &other], &variables).await;
    let mail = json!({ "to": ["a@example.org"], "subject": "s", "body": "b" });
    for (tool, arguments) in [("send_email", mail), ("notify", json!({ "message": "m" }))] {
        let result = server.client.call_tool(keyed(tool, &arguments, 1)).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{result:?}");
    }
    let there = ["mail", "outbox", "other", "notes"].map(|name| directory.path().join(name).exists());
    assert_eq!(there, [true, false, true, false]);
}

/// A program that starts a server offers its tools before it has listed them.
#[tokio::test]
async fn what_a_server_says_of_itself_is_known_by_its_variables() {
    let mail = ("UA_MAIL", "smtp://127.0.0.1:9?starttls=never");
    let image = ("UA_IMAGE_API", "openai+http://127.0.0.1:9/v1");
    let models = [("UA_IMAGE_MODEL", "seeing"), ("UA_IMAGE_GENERATION_MODEL", "drawing")];
    let (notify, honours) = (("UA_NOTIFY_WEBHOOK", "http://127.0.0.1:9/"), "UA_NOTIFY_WEBHOOK_HONOURS_KEYS");
    let (composio, key) = (("UA_COMPOSIO", "http://127.0.0.1:9"), ("COMPOSIO_API_KEY", "key"));
    let sets: [&[(&str, &str)]; 9] = [
        &[],
        &[mail],
        &[mail, ("UA_MAIL_PROBE", "http://127.0.0.1:9/{message_id}")],
        &[("UA_MAIL", "resend+http://127.0.0.1:9"), ("UA_MAIL_API_KEY", "key")],
        &[notify],
        &[notify, (honours, "yes")],
        &[notify, (honours, "no"), ("UA_SEARCH", "searxng+http://127.0.0.1:9")],
        &[image, models[0], models[1], ("UA_IMAGE_API_HONOURS_KEYS", "1")],
        &[image, models[1], ("UA_IMAGE_API_HONOURS_KEYS", "0"), composio, key],
    ];
    let mut lists = BTreeSet::new();
    for variables in sets {
        for flags in [&[][..], &["--enable-command"]] {
            let directory = TempDir::new().unwrap();
            let workspace = directory.path().join("w");
            let server = start_under(&workspace, flags, variables).await;
            let listed = serde_json::to_value(server.client.list_all_tools().await.unwrap()).unwrap();
            let set = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let mut settings = Settings::of_variables(&workspace, &set);
            settings.enable_command = !flags.is_empty();
            settings.pdf = Some(ua_pdf::Layout::Here(plain_pdf::render));
            let known = ToolServer::open(&settings, Env::simulated(1)).unwrap().introduction().unwrap();
            let named = |tools: &serde_json::Value| {
                let names = tools.as_array().into_iter().flatten().map(|tool| tool["name"].clone());
                names.collect::<Vec<_>>()
            };
            let known_tools = json!(known.tools);
            assert_eq!(named(&known_tools), named(&listed), "{variables:?}");
            assert!(known_tools == listed, "a tool is described in other words: {variables:?}");
            let info = serde_json::to_value(server.client.peer_info().unwrap()).unwrap();
            assert_eq!((&known.server_info, &known.capabilities), (&info["serverInfo"], &info["capabilities"]));
            lists.insert(listed.to_string());
        }
    }
    // Each but the SMTP server that can be asked later, whose tools are those of a folder, says something else.
    assert!(lists.len() >= 14, "{} kinds of lists", lists.len());
}

#[test]
fn every_variable_of_an_option_is_passed_on_except_those_named_here() {
    let options = Settings::augment_args(Command::new("toolserver"));
    let variables: BTreeSet<String> =
        options.get_arguments().filter_map(|option| Some(option.get_env()?.to_str()?.to_owned())).collect();
    let everything = environment(|name| Some(if name == "UA_OBJECTS" { "s3://bucket" } else { "x" }.to_owned()));
    let left: Vec<&String> = variables.iter().filter(|name| !everything.contains_key(*name)).collect();
    assert_eq!(
        left,
        [
            "UA_COMMAND_CPU_SECONDS",
            "UA_COMMAND_FILE_MIB",
            "UA_COMMAND_MEMORY_MIB",
            "UA_COMMAND_NETWORK",
            "UA_COMMAND_OPEN_FILES",
            "UA_COMMAND_PROCESSES",
            "UA_COMMAND_SANDBOX",
            "UA_COPY_KEY",
            "UA_OUTBOX",
            "UA_TOOLSERVER_TOKEN",
        ]
    );
    assert!(everything.keys().all(|name| variables.contains(name)), "{everything:?}");
}

#[test]
fn a_credential_goes_along_only_with_the_setting_that_needs_it() {
    let credentials = [
        ("UA_MAIL_USER", "x"),
        ("UA_MAIL_PASSWORD", "x"),
        ("UA_MAIL_API_KEY", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_SESSION_TOKEN", "x"),
        ("UA_SEARCH_API_KEY", "x"),
        ("UA_IMAGE_API_KEY", "x"),
        ("COMPOSIO_API_KEY", "x"),
        ("UA_TOOLSERVER_TOKEN", "x"),
    ];
    let with = |name: &'static str, value: &'static str| passed(&[&credentials[..], &[(name, value)]].concat());
    assert_eq!(passed(&credentials), [""; 0]);
    assert_eq!(with("UA_MAIL", "smtps://x"), ["UA_MAIL", "UA_MAIL_API_KEY", "UA_MAIL_PASSWORD", "UA_MAIL_USER"]);
    assert_eq!(
        with("UA_OBJECTS", "s3://x"),
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "UA_OBJECTS"]
    );
    assert_eq!(with("UA_OBJECTS", "file:///x"), ["UA_OBJECTS"]);
    assert_eq!(with("UA_SEARCH", "x"), ["UA_SEARCH", "UA_SEARCH_API_KEY"]);
    assert_eq!(with("UA_IMAGE_API", "openai"), ["UA_IMAGE_API", "UA_IMAGE_API_KEY"]);
    assert_eq!(with("UA_COMPOSIO", "https://x"), ["COMPOSIO_API_KEY", "UA_COMPOSIO"]);
}

#[test]
fn what_counts_only_with_another_setting_and_what_says_no_stay_behind() {
    let images = [("UA_IMAGE_MODEL", "m"), ("UA_IMAGE_GENERATION_MODEL", "m"), ("UA_IMAGE_API_HONOURS_KEYS", "1")];
    assert_eq!(passed(&images), [""; 0]);
    assert_eq!(passed(&[&images[..], &[("UA_IMAGE_API", "openai")]].concat()).len(), 4);
    assert_eq!(passed(&[("UA_OUTBOX", "o")]), ["UA_OUTBOX"]);
    assert_eq!(passed(&[("UA_OUTBOX", "o"), ("UA_MAIL", "maildir:m")]), ["UA_MAIL"]);
    assert_eq!(passed(&[("UA_OUTBOX", "o"), ("UA_MAIL", "")]), ["UA_OUTBOX"]);
    assert_eq!(passed(&[("UA_NOTIFY_WEBHOOK_HONOURS_KEYS", "0")]), [""; 0]);
    assert_eq!(passed(&[("UA_NOTIFY_WEBHOOK_HONOURS_KEYS", "1")]), ["UA_NOTIFY_WEBHOOK_HONOURS_KEYS"]);
    assert_eq!(passed(&[("HOME", "/h"), ("ANTHROPIC_API_KEY", "x"), ("UA_PROVIDER", "x")]), [""; 0]);
}
