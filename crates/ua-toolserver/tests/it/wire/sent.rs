//! Files that leave are those that the call was decided about, or none.

use serde_json::{Value, json};
use ua_classify::{Classifier, file_arguments};
use ua_toolserver::{ATTEMPT, CHANGED_FILES, FILES, IDEMPOTENCY_KEY};

use super::documented::spec;
use super::listing::everything;
use super::{Came, TestServer, names, sha256};

/// A call of each tool that sends the file `a.txt`.
fn sends(tool: &str) -> Value {
    match tool {
        "send_email" => json!({"to": ["ada@example.org"], "subject": "s", "body": "b", "attachments": ["a.txt"]}),
        "upload" | "upload_to_composio" | "describe_image" => json!({"path": "a.txt"}),
        "workbench_upload" => json!({"local_path": "a.txt", "remote_path": "shared/a.txt"}),
        other => panic!("say how `{other}` is called that sends a file"),
    }
}

/// What the call says of its files, as a runner does that looked at them when they held `content`.
fn said(tool: &str, content: &str) -> Value {
    let place = match tool {
        "send_email" => "attachments[0]",
        "workbench_upload" => "local_path",
        _ => "path",
    };
    json!({ FILES: { place: sha256(content) } })
}

/// Everything below a directory, and what is in it.
fn below(directory: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for name in names(directory) {
        let path = directory.join(&name);
        if path.is_dir() {
            found.extend(below(&path).into_iter().map(|(inner, content)| (format!("{name}/{inner}"), content)));
        } else if !name.starts_with(".lock") {
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
    found
}

/// The servers behind these settings cannot be reached: whoever speaks to one before it has compared says so.
#[tokio::test]
async fn no_tool_sends_a_file_that_is_not_what_the_call_was_decided_about() {
    let classifier = Classifier::shipped().unwrap();
    let mut tried = Vec::new();
    let ways: [fn(&mut ua_toolserver::Settings); 3] = [
        everything,
        |settings| {
            settings.mail = Some("smtp://127.0.0.1:9?starttls=never".to_owned());
            settings.objects = Some("s3://reports".to_owned());
            settings.s3_endpoint = Some("http://127.0.0.1:9".to_owned());
            settings.secrets.s3_access_key_id = Some("AKIDEXAMPLE".to_owned());
            settings.secrets.s3_secret_access_key = Some("wJalrXUtnFEMI".into());
        },
        |settings| {
            settings.mail = Some("resend+http://127.0.0.1:9".to_owned());
            settings.secrets.mail_api_key = Some("key".into());
        },
    ];
    for change in ways {
        let world = TestServer::with(change).await;
        world.put("a.txt", "another");
        for tool in world.tools().await {
            let policy = classifier.classify(&spec(&tool), None);
            let is_paid_reader = tool.name == "describe_image"; // it sends one too, where a policy of the user says so
            if !policy.names_files() && !is_paid_reader {
                continue;
            }
            let name: &'static str = ua_toolserver::tool_names().iter().find(|name| **name == tool.name).unwrap();
            let arguments = sends(name);
            if !is_paid_reader {
                // The runner says it of the same places.
                let places = file_arguments(&policy, &arguments);
                assert!(said(name, "")[FILES].get(&places[0].0).is_some() && places.len() == 1, "{name}: {places:?}");
            }
            let before = below(world.directory.path());
            for meta in [said(name, "one"), json!({ FILES: {} })] {
                let text = world.send_with(name, arguments.clone(), meta).await.refused("has changed since");
                assert!(text.contains("\"a.txt\"") && text.contains("nothing was sent"), "{text}");
            }
            let wrong = world.send_with(name, arguments, json!({ FILES: {"path": "one"} })).await;
            assert!(matches!(&wrong, Came::Broken(-32602, why) if why.contains(FILES)), "{wrong:?}");
            let kept = |(path, _): &(String, Vec<u8>)| !path.contains("/.ua/"); // records of its own, which say that nothing was done
            let [before, after] = [before, below(world.directory.path())];
            assert!(
                before.iter().filter(|one| kept(one)).eq(after.iter().filter(|one| kept(one))),
                "{name}: {after:?}"
            );
            tried.push(name);
        }
    }
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried, ["describe_image", "send_email", "upload", "upload_to_composio", "workbench_upload"]);
}

#[tokio::test]
async fn a_file_that_is_what_was_said_is_sent_and_its_refusal_is_told_apart_from_others() {
    let world = TestServer::new().await;
    world.put("a.txt", "one");
    for tool in ["upload", "workbench_upload", "send_email"] {
        let name: &'static str = ua_toolserver::tool_names().iter().find(|name| **name == tool).unwrap();
        world.send_with(name, sends(tool), said(tool, "one")).await.back();
        let refused = world.result_of(name, sends(tool), said(tool, "two")).await.unwrap();
        assert_eq!(refused.is_error, Some(true));
        assert_eq!(refused.meta.unwrap().get(CHANGED_FILES), Some(&json!(["a.txt"])), "{tool}");
    }
    // Of what fails for another reason nobody says that.
    for meta in [said("upload", "one"), json!({ FILES: {} })] {
        let missing = world.result_of("upload", json!({"path": "gone"}), meta).await.unwrap();
        assert_eq!((missing.is_error, missing.meta), (Some(true), None));
    }
}

/// What was sent under a key stays sent, whatever the file is by now; what was refused was not.
#[tokio::test]
async fn a_repeat_under_the_key_is_held_to_what_was_said_too() {
    let world = TestServer::new().await;
    world.put("a.txt", "two");
    let meta = |attempt: u64| {
        let mut meta = said("send_email", "one");
        meta[IDEMPOTENCY_KEY] = json!("k");
        meta[ATTEMPT] = json!(attempt);
        meta
    };
    let outbox = world.workspace().join("outbox/new");
    world.send_with("send_email", sends("send_email"), meta(1)).await.refused("has changed since");
    assert_eq!(names(&outbox).len(), 0);
    world.put("a.txt", "one");
    let sent = world.send_with("send_email", sends("send_email"), meta(2)).await.back();
    assert_eq!(sent["already_sent"], false);
    world.put("a.txt", "two");
    let again = world.send_with("send_email", sends("send_email"), meta(3)).await.back();
    assert_eq!((&again["already_sent"], names(&outbox).len()), (&json!(true), 1));
}
