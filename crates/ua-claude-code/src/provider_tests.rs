//! The provider over a program that says a few lines and dies.

use std::time::Duration;

use serde_json::json;
use ua_core::{Message, Origin, Role, RunId};
use ua_llm::{Silent, ToolOffer};
use ua_mcp::{LockDir, ShimCommand};

use super::*;

/// Says one reply with a tool use, notes with which words it was started, and ends.
const DYING: &str = r#"#!/bin/sh
echo "$*" >> "$(dirname "$0")/starts"
read -r prompt
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
echo '{"type":"stream_event","event":{"type":"message_start","message":{"model":"m","usage":{"input_tokens":3}}}}'
echo '{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"mcp__mail__send"}}}'
echo '{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"tool_use"}}}'
echo '{"type":"stream_event","event":{"type":"message_stop"}}'
"#;

fn provider(folder: &std::path::Path) -> ClaudeCode {
    let script = folder.join("claude.sh");
    std::fs::create_dir(folder.join("home-of-it")).unwrap();
    std::fs::write(&script, DYING).unwrap();
    let env = ua_core::system::env();
    ClaudeCode::new(ClaudeCodeConfig {
        program: "claude".into(),
        folder: folder.join("home-of-it"),
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        // In the place of the shim: what follows on its command line is not for it.
        shim: ShimCommand { program: "/bin/sh".into(), args: vec![script.into()] },
        locks: LockDir::new(&folder.join("locks"), RunId::parse("r").unwrap(), env.clone()).unwrap(),
        bridge: ("/bin/true".into(), Vec::new()),
        session: None,
        forked_from: None,
        idle_timeout: Duration::from_mins(1),
        grace: Duration::from_millis(1),
        clock: env,
    })
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let offer = ToolOffer { name: "mcp__mail__send".into(), description: String::new(), input_schema: json!({}) };
    ModelRequest {
        model: "m".into(),
        system: "s".into(),
        messages,
        tools: vec![offer].into(),
        max_output_tokens: 10,
        temperature_milli: None,
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

#[tokio::test]
async fn a_process_that_died_unnoticed_is_not_replaced_before_the_conversation_is_known_to_be_broken() {
    let folder = tempfile::tempdir().unwrap();
    let provider = provider(folder.path());
    let starts = || std::fs::read_to_string(folder.path().join("starts")).unwrap().lines().count();
    assert_eq!(provider.conversation(), Conversation::Broken);
    let prompt = Message::user(Origin::Prompt, "Do it.");
    let turn = provider.complete(&request(vec![prompt.clone()]), &Silent).await.unwrap();
    assert_eq!(turn.response_id.as_deref(), Some("s-1"));
    assert_eq!(session::load(&provider.config.folder).as_deref(), Some("s-1"));
    while provider.live.lock().await.as_mut().is_some_and(Live::is_running) {
        provider.config.clock.clock.sleep(Duration::from_millis(5)).await;
    }
    // Whoever asks now has not heard that it died: nothing but the results is in the request.
    let result = Block::ToolResult { tool_use_id: "t1".into(), content: "sent".into(), is_error: false };
    let results = Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() };
    let history = vec![prompt, turn.into_message(), results];
    let error = provider.complete(&request(history.clone()), &Silent).await.unwrap_err();
    assert!(error.may_retry() && !error.left_us(), "{error}");
    assert_eq!((starts(), provider.conversation()), (1, Conversation::Broken));
    // Now it is known, and said in the request; a process begins.
    let note = Message::user(Origin::Resume, "You were interrupted.");
    provider.complete(&request([history, vec![note]].concat()), &Silent).await.unwrap();
    assert_eq!(starts(), 2);
}

/// A row of the database, or a file that came with a checkout, names the session that is gone on with: it is a name, and no option.
#[tokio::test]
async fn s9_a_session_that_somebody_wrote_down_is_no_option_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut provider = provider(folder.path());
    let reply = Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::text("Yes.")].into() };
    let history =
        vec![Message::user(Origin::Prompt, "Do it."), reply, Message::user(Origin::Resume, "You were interrupted.")];
    let hooks = r#"--settings={"hooks":{}}"#;
    let mut asked = |words: Option<&str>, stored: Option<&str>| {
        provider.config.session = words.map(str::to_owned);
        if let Some(stored) = stored {
            session::save(&provider.config.folder, stored).unwrap();
        } else {
            session::forget(&provider.config.folder).unwrap();
        }
        provider.starts(&request(history.clone()))
    };
    let resumed = |name: &str| vec![Start::Resume(name.to_owned()), Start::Fresh];
    assert_eq!(asked(Some(hooks), None), [Start::Fresh]);
    assert_eq!(asked(None, Some("../s-1")), [Start::Fresh]);
    assert_eq!(asked(Some("s-1"), Some(hooks)), resumed("s-1"));
    assert_eq!(asked(Some("s-1"), Some("s-2")), resumed("s-2"));
    // What is told to the program is what was found to be a name, in a home without what else somebody put there.
    asked(Some(hooks), None);
    let brought = provider.config.home().join(".claude/settings.json");
    std::fs::create_dir_all(brought.parent().unwrap()).unwrap();
    std::fs::write(&brought, "{}").unwrap();
    provider.complete(&request(history), &Silent).await.unwrap();
    let started = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert!(!started.contains("--resume") && !started.contains("hooks") && !brought.exists(), "{started}");
    for wall in ["--setting-sources=", "--strict-mcp-config", "--tools=", "--disable-slash-commands"] {
        assert!(started.split(' ').any(|word| word == wall), "{wall}: {started}");
    }
}
