//! The gateway in front of a tool server that the real Claude Code and the real Codex use, against scripted models and our mail server;
//! skipped with a message where they are not installed (`cargo xtask third-party`, then `UA_THIRD_PARTY` where it was put).

#![expect(clippy::unwrap_used, reason = "a test ends with a panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_e2e::{Live, Model, Output, TestEnv, ua_program, until};
use ua_testkit::{SmtpFault, SmtpSink, SmtpSinkConfig, ThirdParty, not_installed};

use super::env;

const SESSION: &str = "5f0f5f60-0a5e-4b6e-8a55-1d1f3b1c9a01";

/// A mail server, the tool server that sends to it, and a client that is installed.
struct MailWorld {
    env: TestEnv,
    sink: SmtpSink,
    program: PathBuf,
    /// The tool server's entry.
    entry: Value,
    _runtime: Runtime,
}

impl MailWorld {
    /// `None` where the client is not installed. The mail server answers the first message after `slow`.
    #[expect(
        clippy::disallowed_methods,
        reason = "where programs of others are is told by the environment of the tests"
    )]
    fn new(client: &str, check: &str, slow: Duration) -> Option<Self> {
        let installed = ThirdParty::at(std::env::var("UA_THIRD_PARTY").ok().map(PathBuf::from));
        let program = installed.find_or_say(client, check)?;
        let path = installed.path().iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
        let env = env().with_env("PATH", &format!("{path}:/usr/local/bin:/usr/bin:/bin"));
        let runtime = Runtime::new().unwrap();
        let faults = [(1, SmtpFault::Slow(slow))].into();
        let config = SmtpSinkConfig { directory: env.path("sink"), credentials: None, unknown: Vec::new(), faults };
        let sink = runtime.block_on(SmtpSink::start(config)).unwrap();
        let entry = json!({
            "command": ua_program(),
            "args": ["toolserver", "--workspace", env.arg("work")],
            "env": {"UA_MAIL": format!("smtp://{}?starttls=never", sink.address), "UA_MAIL_FROM": "ua@example.test"},
        });
        Some(Self { env, sink, program, entry, _runtime: runtime })
    }

    fn install(&self, config: &str) {
        let said = self.env.run(&["gateway", "install", "--file", config]).code(0);
        said.shows(&["mail", "goes through the gateway now"]);
    }

    fn until_mailed(&self) {
        until("the mail server has the message", || self.mails() == 1);
    }

    fn mails(&self) -> usize {
        self.sink.messages().unwrap().len()
    }

    fn stop(&self) {
        self.env.run(&["gateway", "stop"]).code(0);
    }
}

/// Claude Code and its model.
struct Claude {
    world: MailWorld,
    model: Model,
    config: String,
}

impl Claude {
    fn new(check: &str, turns: &Value, slow: Duration, has_gateway: bool, timeout: Option<u32>) -> Option<Self> {
        let mut world = MailWorld::new("claude", check, slow)?;
        if let Some(timeout) = timeout {
            world.entry["timeout"] = json!(timeout);
        }
        // By its name it is known whose it is, and so in which unit its time-out is.
        let config = world.env.write("claude/.mcp.json", json!({"mcpServers": {"mail": world.entry}}).to_string());
        if has_gateway {
            world.install(&config);
        }
        Some(Self { model: Model::start(turns, Vec::new()), world, config })
    }

    /// Starts the client with a prompt and what says which session it is in.
    fn start(&self, session: &[&str]) -> Live {
        let mut args = vec!["-p", "Send the mail.", "--mcp-config", &self.config, "--strict-mcp-config", "--tools="];
        args.extend(["--allowedTools", "mcp__mail__send_email", "--setting-sources=", "--model", "claude-sonnet-4-5"]);
        args.extend(session);
        let fixed = [
            ("ANTHROPIC_BASE_URL", self.model.base_url()),
            ("ANTHROPIC_API_KEY", "sk-test"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
            ("ENABLE_TOOL_SEARCH", "false"),
        ];
        self.world.env.start_program(&self.world.program, &fixed, &args)
    }

    fn run(&self, session: &[&str]) -> Output {
        self.start(session).wait()
    }

    /// Ends the client when the mail server has the message and has not said so.
    fn ended_in_the_call(&self, by: Signal) {
        let client = self.start(&["--session-id", SESSION]);
        self.world.until_mailed();
        client.signal(by);
        client.wait();
    }
}

/// Codex and its model: one that says what it is told to, one reply a request. It names tools as Codex lists them, in a namespace, which our own
/// model server does not.
struct Codex {
    world: MailWorld,
    home: PathBuf,
    model: Arc<tiny::Model>,
}

impl Codex {
    fn new(check: &str, replies: &[Value], slow: Duration, patience: Option<u32>) -> Option<Self> {
        let world = MailWorld::new("codex", check, slow)?;
        let model = tiny::Model::start(replies);
        let home = world.env.path("codex");
        std::fs::create_dir(&home).unwrap();
        let word = |value: &Value| value.to_string();
        let entry = &world.entry;
        let patience = patience.map_or_else(String::new, |seconds| format!("tool_timeout_sec = {seconds}\n"));
        let config = world.env.write(
            "codex/config.toml",
            format!(
                "model = \"gpt-5\"\nmodel_provider = \"stub\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n\n\
                 [model_providers.stub]\nname = \"stub\"\nbase_url = \"{}\"\nwire_api = \"responses\"\nenv_key = \"STUB_KEY\"\n\n\
                 [mcp_servers.mail]\ncommand = {}\nargs = {}\ndefault_tools_approval_mode = \"approve\"\n{patience}\
                 env = {{ UA_MAIL = {}, UA_MAIL_FROM = {} }}\n",
                model.base_url,
                word(&entry["command"]),
                word(&entry["args"]),
                word(&entry["env"]["UA_MAIL"]),
                word(&entry["env"]["UA_MAIL_FROM"]),
            ),
        );
        world.install(&config);
        Some(Self { world, home, model })
    }

    fn start(&self, words: &[&str]) -> Live {
        let home = self.home.display().to_string();
        let mut args = vec!["exec", "--skip-git-repo-check"];
        args.extend(words);
        self.world.env.start_program(&self.world.program, &[("CODEX_HOME", &home), ("STUB_KEY", "x")], &args)
    }
}

/// A model server for Codex.
mod tiny {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    pub(super) struct Model {
        pub(super) base_url: String,
        replies: Mutex<Vec<Value>>,
        asked: Mutex<Vec<String>>,
    }

    impl Model {
        pub(super) fn start(replies: &[Value]) -> Arc<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
            let replies = Mutex::new(replies.iter().rev().cloned().collect());
            let model = Arc::new(Self { base_url, replies, asked: Mutex::default() });
            let served = Arc::clone(&model);
            // It ends with the test's process.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _gone = served.answer(stream);
                }
            });
            model
        }

        pub(super) fn last_request(&self) -> String {
            self.asked.lock().unwrap().last().cloned().unwrap_or_default()
        }

        fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte)?;
                head.push(byte[0].to_ascii_lowercase());
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            if !head.starts_with("post /v1/responses") {
                return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
            self.asked.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
            let item = self.replies.lock().unwrap().pop().unwrap_or_else(|| super::says("nothing is left to be said"));
            let id = json!({"id": "resp"});
            let mut done = id.clone();
            done["usage"] = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
            let events = [
                json!({"type": "response.created", "response": id}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": done}),
            ];
            let frame =
                |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
            let text: String = events.iter().map(frame).collect();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                text.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(text.as_bytes())
        }
    }
}

fn says(text: &str) -> Value {
    json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn calls(id: &str) -> Value {
    let input = json!({"to": ["ann@example.test"], "subject": "Done", "body": "It is done."}).to_string();
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "send_email", "namespace": "mcp__mail", "arguments": input})
}

fn mail() -> Value {
    let input = json!({"to": ["ann@example.test"], "subject": "Done", "body": "It is done."});
    json!({"tools": [{"name": "mcp__mail__send_email", "input": input}]})
}

/// What a session that was interrupted in its first reply has before it is told to go on: the reply, and one of the client's own.
fn asks_again_after_an_interruption() -> Value {
    json!([mail(), {"text": "never said"}, mail(), {"text": "All is done."}])
}

#[test]
fn g1_without_the_gateway_a_killed_client_sends_the_mail_twice() {
    let (check, turns) = ("what the gateway is there for", asks_again_after_an_interruption());
    let Some(claude) = Claude::new(check, &turns, Duration::from_secs(3), false, None) else { return };
    claude.ended_in_the_call(Signal::KILL);
    claude.run(&["--resume", SESSION]).code(0).shows(&["All is done."]);
    assert_eq!(claude.world.mails(), 2, "the gap that the gateway closes");
}

#[test]
fn g2_behind_the_gateway_a_killed_client_that_asks_again_has_the_receipt() {
    let (check, turns) = ("kill -9 of the real Claude Code behind the gateway", asks_again_after_an_interruption());
    let Some(claude) = Claude::new(check, &turns, Duration::from_secs(3), true, None) else { return };
    claude.ended_in_the_call(Signal::KILL);
    claude.run(&["--resume", SESSION]).code(0).shows(&["All is done."]);
    assert_eq!(claude.world.mails(), 1);
    assert_eq!(claude.world.env.calls(), ["send_email succeeded"]);
    claude.world.stop();
}

#[test]
fn g3_a_session_that_is_continued_under_another_id_has_the_receipt_too() {
    let (check, turns) = ("kill -9 of the real Claude Code, and --continue", asks_again_after_an_interruption());
    let Some(claude) = Claude::new(check, &turns, Duration::from_secs(3), true, None) else { return };
    claude.ended_in_the_call(Signal::KILL);
    claude.run(&["--continue"]).code(0).shows(&["All is done."]);
    assert_eq!(claude.world.mails(), 1);
    claude.world.stop();
}

#[test]
fn g4_a_killed_codex_that_asks_again_has_the_receipt() {
    let replies = [calls("a"), calls("b"), says("All is done.")];
    let check = "kill -9 of the real Codex behind the gateway";
    let Some(codex) = Codex::new(check, &replies, Duration::from_secs(3), None) else { return };
    let client = codex.start(&["Send the mail."]);
    codex.world.until_mailed();
    client.signal_group(Signal::KILL);
    client.wait();
    codex.start(&["resume", "--last", "Go on."]).wait().code(0).shows(&["All is done."]);
    assert_eq!(codex.world.mails(), 1);
    assert_eq!(codex.world.env.calls(), ["send_email succeeded"]);
    codex.world.stop();
}

#[test]
fn g7_a_client_that_gives_up_waiting_and_asks_again_gets_what_came_of_the_first() {
    let turns = json!([mail(), mail(), {"text": "All is done."}]);
    let check = "a time-out of the real Claude Code";
    let Some(claude) = Claude::new(check, &turns, Duration::from_secs(6), true, Some(3_000)) else { return };
    claude.run(&["--session-id", SESSION]).code(0).shows(&["All is done."]);
    assert_eq!(claude.world.mails(), 1);
    claude.world.stop();
}

#[test]
fn g7_a_codex_that_gives_up_waiting_and_asks_again_gets_what_came_of_the_first() {
    let replies = [calls("a"), calls("b"), calls("c"), says("All is done.")];
    let check = "a time-out of the real Codex";
    let Some(codex) = Codex::new(check, &replies, Duration::from_secs(5), Some(3)) else { return };
    codex.start(&["Send the mail."]).wait().code(0).shows(&["All is done."]);
    assert_eq!(codex.world.mails(), 1);
    let last = codex.model.last_request();
    assert!(last.contains("timed out") && !last.contains("outcome is unknown"), "{last}");
    codex.world.stop();
}

#[test]
fn g9_an_interrupted_client_and_the_next_session_send_one_mail() {
    let turns = json!([mail(), {"text": "All is done."}]);
    let check = "Ctrl-C in the real Claude Code";
    let Some(claude) = Claude::new(check, &turns, Duration::from_secs(3), true, None) else { return };
    claude.ended_in_the_call(Signal::INT);
    // Another session, which has never heard of the first one.
    claude.run(&[]).code(0).shows(&["All is done."]);
    assert_eq!(claude.world.mails(), 1);
    assert_eq!(claude.world.env.value("SELECT count(*) FROM runs WHERE run_mode = 'gateway'"), "2");
    claude.world.stop();
}

/// Lists tools and calls one, as an agent of the SDK does; its transport makes the call again when its own time is up.
const AGENT: &str = r#"
import asyncio, json, sys
from agents.mcp import MCPServerStdio

async def main():
    entry = json.load(open(sys.argv[1]))["mcpServers"]["mail"]
    params = {"command": entry["command"], "args": entry["args"], "env": entry["env"]}
    async with MCPServerStdio(params=params, client_session_timeout_seconds=2, max_retry_attempts=1) as server:
        assert any(tool.name == "send_email" for tool in await server.list_tools())
        mail = {"to": ["ann@example.test"], "subject": "Done", "body": "It is done."}
        for _ in range(10):
            try:
                result = await server.call_tool("send_email", mail)
                failed = getattr(result, "is_error", None)
                if not (result.isError if failed is None else failed):
                    print("sent:", result.content[0].text)
                    return
            except Exception as error:
                print("asks again after", type(error).__name__)

asyncio.run(main())
"#;

/// G7: the OpenAI Agents SDK names neither its session nor its tool uses, and its transport makes calls again by itself.
#[test]
fn g7_an_agent_of_the_openai_sdk_sends_one_mail_behind_the_gateway_and_more_without() {
    for has_gateway in [false, true] {
        let check = "time-outs of the OpenAI Agents SDK";
        let Some(world) = MailWorld::new("python3", check, Duration::from_secs(5)) else { return };
        if !world
            .env
            .run_program(&world.program, &[], &["-c", "import agents.mcp; print('there')"])
            .stdout
            .contains("there")
        {
            return not_installed(check, "openai-agents");
        }
        let config = world.env.write("mcp.json", json!({"mcpServers": {"mail": world.entry}}).to_string());
        if has_gateway {
            world.install(&config);
        }
        let script = world.env.write("agent.py", AGENT);
        let said = world.env.run_program(&world.program, &[], &[&script, &config]).code(0).stdout;
        assert!(said.contains("asks again") && said.contains("sent:"), "{said}");
        if has_gateway {
            assert_eq!(world.mails(), 1, "{said}");
            assert_eq!(world.env.calls(), ["send_email succeeded"]);
            world.stop();
        } else {
            assert!(world.mails() > 1, "the gap that the gateway closes: {said}");
        }
    }
}
