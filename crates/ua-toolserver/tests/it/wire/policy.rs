//! What a tool's file says of its effect, against what the built-in policy decides about its calls.
//!
//! The policy is what people decided and is not made from the files; where the two contradict each other, one of them is wrong.

use rmcp::model::Tool;
use ua_classify::Classifier;
use ua_core::{CallPolicy, ClassSource, KeyChannel, OnUnknown, Reads, SideEffectClass};
use ua_toolserver::{FETCHES, HONOURS_KEYS, Settings};

use super::TestServer;
use super::documented::spec;
use super::listing::everything;

/// Where the policy contradicts what the tool says of itself.
fn contradictions(tool: &Tool, policy: &CallPolicy) -> Vec<&'static str> {
    let hints = tool.annotations.as_ref().unwrap();
    let (reads, replaces) = (hints.read_only_hint.unwrap(), hints.destructive_hint.unwrap());
    let (repeats, is_open) = (hints.idempotent_hint.unwrap(), hints.open_world_hint.unwrap());
    let honours_keys = tool.meta.as_ref().and_then(|meta| meta.get(HONOURS_KEYS)?.as_bool());
    let fetches = tool.meta.as_ref().is_some_and(|meta| meta.contains_key(FETCHES));
    let (class, again) = (policy.class, policy.on_unknown);
    let is_external = class == SideEffectClass::External;
    let rules = [
        (!fetches || policy.reads.contains(&Reads::Untrusted), "it fetches, and nobody asks what that carries away"),
        (policy.class_source == ClassSource::Shipped, "it has no rule"),
        (!reads || class == SideEffectClass::ReadOnly, "it only looks, and the policy takes it for an effect"),
        (
            !replaces || class != SideEffectClass::ReadOnly,
            "it replaces something, and the policy says that it only looks",
        ),
        (is_open || !is_external, "it stays on this machine, and the policy takes its effect for an external one"),
        (
            honours_keys.is_some() == is_external,
            "it says whether it honours keys, and its effect is none outside, or not",
        ),
        (repeats || again != OnUnknown::Redo, "twice is not once, and the policy runs it again without a key"),
        (!repeats || matches!(again, OnUnknown::Redo | OnUnknown::RedoKeyed), "it may be run again, and is held"),
        (honours_keys != Some(false) || again == OnUnknown::Hold, "it honours no key, and the policy does not ask"),
        (
            honours_keys != Some(true) || again == OnUnknown::RedoKeyed,
            "it honours keys, and is not sent again under one",
        ),
        (again != OnUnknown::RedoKeyed || policy.key_channel == Some(KeyChannel::Meta), "its key does not reach it"),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}

#[tokio::test]
async fn what_tools_say_of_themselves_and_what_the_policy_decides_agree() {
    let classifier = Classifier::shipped().unwrap();
    let bare: [fn(&mut Settings); 3] = [
        everything,
        |settings| {
            settings.mail = Some("smtp://127.0.0.1:9?starttls=never".to_owned());
            settings.notify_webhook = Some("http://127.0.0.1:9/".to_owned());
        },
        |settings| {
            everything(settings);
            settings.image_api_honours_keys = true;
            settings.mail = Some("resend+http://127.0.0.1:9".to_owned());
            settings.secrets.mail_api_key = Some("key".into());
        },
    ];
    for change in bare {
        let world = TestServer::with(change).await;
        for tool in world.tools().await {
            let policy = classifier.classify(&spec(&tool), None);
            assert_eq!(contradictions(&tool, &policy), [""; 0], "{}: {policy:?}", tool.name);
        }
    }
}

#[tokio::test]
async fn a_contradiction_is_seen() {
    let classifier = Classifier::shipped().unwrap();
    let tools = TestServer::new().await.tools().await;
    let tool = |name: &str| tools.iter().find(|tool| tool.name == name).unwrap();
    let of_another = classifier.classify(&spec(tool("write_local_file")), None);
    assert_eq!(
        contradictions(tool("append_to_file"), &of_another),
        ["twice is not once, and the policy runs it again without a key"]
    );
    let mut unknown = tool("notify").clone();
    unknown.name = "shout".into();
    let policy = classifier.classify(&spec(&unknown), None);
    assert!(contradictions(&unknown, &policy).contains(&"it has no rule"), "{policy:?}");
}

#[test]
fn whoever_holds_the_crawler_says_that_it_fetches() {
    // A tool is given the crawler in `open`, and says what it does in `describe`, both in its own file.
    let mut holders = Vec::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tools")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path)
                && text.contains("Crawler::of(setup)")
            {
                assert!(text.contains("Effect::Fetches"), "{}", path.display());
                holders.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    holders.sort();
    assert_eq!(holders, ["corpus", "crawl"]);
}
