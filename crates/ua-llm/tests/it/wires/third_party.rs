//! Every wire against a mock server that others made (`@copilotkit/aimock`), where it is installed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use ua_core::{Block, Message, Origin, Role, StopReason};
use ua_llm::{LlmError, Silent};
use ua_testkit::ThirdParty;

use super::conformance::WIRES;
use super::support::request;

/// A running server; it ends when it is dropped.
struct Aimock {
    process: Child,
    base_url: String,
    _fixtures: TempDir,
}

impl Aimock {
    /// Starts one that answers as `fixtures` say, or says that it is not installed.
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn start(fixtures: &Value) -> Option<Self> {
        let setting = std::env::var_os("UA_THIRD_PARTY").map(Into::into);
        let installed = ThirdParty::at(setting);
        let program = installed.find_or_say("llmock", "the wires against aimock")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("fixtures.json"), json!({"fixtures": fixtures}).to_string()).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path =
            std::env::join_paths(installed.path().into_iter().chain(["/usr/bin".into(), "/bin".into()])).unwrap();
        let mut process = Command::new(program)
            .args(["--validate-on-load", "--strict", "-p", &port.to_string(), "-f"])
            .arg(folder.path())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("listening")), "aimock ended before it listened");
        // It goes on writing, and stops when nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { process, base_url: format!("http://127.0.0.1:{port}"), _fixtures: folder })
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn say(text: &str) -> Vec<Message> {
    vec![Message::user(Origin::Prompt, text)]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wire_understands_a_mock_that_others_made() {
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "name": name, "arguments": arguments});
    let calls = [
        call("call_menu", "mcp__ua__read_file", json!({"path": "menü.txt"})),
        call("call_list", "mcp__ua__list_files", json!({})),
    ];
    let error = |kind: &str, status: u16| json!({"error": {"message": "not now", "type": kind}, "status": status});
    let fixtures = json!([
        {"match": {"toolCallId": "call_list"}, "response": {"content": "Soup."}},
        {"match": {"userMessage": "the menu"}, "response": {"content": "I look.", "toolCalls": calls,
            "usage": {"input_tokens": 7, "output_tokens": 3, "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}},
        {"match": {"userMessage": "too often"}, "response": error("rate_limit_error", 429)},
        {"match": {"userMessage": "overloaded"}, "response": error("overloaded_error", 529)},
        {"match": {"userMessage": "refused"}, "response": error("invalid_request_error", 400)},
        {"match": {"userMessage": "cut"}, "response": {"content": "A text that is cut in the middle of it, at some place."},
            "latency": 20, "chunkSize": 5, "truncateAfterChunks": 4},
    ]);
    let Some(mock) = Aimock::start(&fixtures) else { return };
    for wire in WIRES {
        let provider = (wire.connect)(&mock.base_url, std::time::Duration::from_secs(20));
        let first = provider.complete(&request(say("What is on the menu?")), &Silent).await.unwrap();
        let asked: Vec<(&str, &Value)> = first.tool_uses().map(|tool| (tool.id.as_str(), &tool.input)).collect();
        assert_eq!(asked, [("call_menu", &json!({"path": "menü.txt"})), ("call_list", &json!({}))], "{}", wire.name);
        assert_eq!((first.text().as_str(), first.stop_reason), ("I look.", StopReason::ToolUse), "{}", wire.name);

        let result = |id: &str| Block::ToolResult { tool_use_id: id.into(), content: "soup".into(), is_error: false };
        let blocks = vec![result("call_menu"), result("call_list")];
        let mut history = say("What is on the menu?");
        history
            .extend([first.into_message(), Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() }]);
        let second = provider.complete(&request(history), &Silent).await.unwrap();
        assert_eq!((second.text().as_str(), second.stop_reason), ("Soup.", StopReason::EndTurn), "{}", wire.name);

        for (said, may_retry) in [("too often", true), ("overloaded", true), ("refused", false)] {
            let error = provider.complete(&request(say(said)), &Silent).await.unwrap_err();
            assert_eq!(error.may_retry(), may_retry, "{} {said}: {error:?}", wire.name);
            assert!(error.to_string().contains("not now"), "{}: {error}", wire.name);
        }
        let error = provider.complete(&request(say("cut")), &Silent).await.unwrap_err();
        assert!(matches!(error, LlmError::Cut { .. }), "{}: {error:?}", wire.name);
    }
}
