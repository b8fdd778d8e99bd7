//! The gateway in front of a tool server that the real Claude Code uses, against our scripted model server and mail server; skipped with a
//! message where it is not installed (`cargo xtask third-party`, then `UA_THIRD_PARTY` where it was put).

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_e2e::{Live, Model, Output, TestEnv, ua_program, until};
use ua_testkit::{SmtpFault, SmtpSink, SmtpSinkConfig, ThirdParty};

use super::env;

const SESSION: &str = "5f0f5f60-0a5e-4b6e-8a55-1d1f3b1c9a01";

/// A client, its model, the mail server that its tool server sends to, and a gateway in between or not.
struct World {
    env: TestEnv,
    model: Model,
    sink: SmtpSink,
    program: PathBuf,
    config: String,
    _runtime: Runtime,
}

impl World {
    /// `None` where the client is not installed. The mail server answers the first message after `slow`.
    fn new(check: &str, turns: &Value, slow: Duration, has_gateway: bool) -> Option<Self> {
        Self::with_timeout(check, turns, slow, has_gateway, None)
    }

    /// The same with a client that waits for so many milliseconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "where programs of others are is told by the environment of the tests"
    )]
    fn with_timeout(
        check: &str,
        turns: &Value,
        slow: Duration,
        has_gateway: bool,
        timeout: Option<u32>,
    ) -> Option<Self> {
        let installed = ThirdParty::at(std::env::var("UA_THIRD_PARTY").ok().map(PathBuf::from));
        let program = installed.find_or_say("claude", check)?;
        let path = installed.path().map(|folder| folder.display().to_string()).join(":");
        let model = Model::start(turns, Vec::new());
        let env = env().with_env("PATH", &format!("{path}:/usr/local/bin:/usr/bin:/bin"));
        let runtime = Runtime::new().unwrap();
        let faults = [(1, SmtpFault::Slow(slow))].into();
        let config = SmtpSinkConfig { directory: env.path("sink"), credentials: None, unknown: Vec::new(), faults };
        let sink = runtime.block_on(SmtpSink::start(config)).unwrap();
        let address = format!("smtp://{}?starttls=never", sink.address);
        let mut entry = json!({
            "command": ua_program(),
            "args": ["toolserver", "--workspace", env.arg("work")],
            "env": {"UA_MAIL": address, "UA_MAIL_FROM": "ua@example.test"},
        });
        if let Some(timeout) = timeout {
            entry["timeout"] = json!(timeout);
        }
        let config = env.write("mcp.json", json!({"mcpServers": {"mail": entry}}).to_string());
        if has_gateway {
            let said = env.run(&["gateway", "install", "--file", &config]).code(0);
            said.shows(&["mail", "goes through the gateway now"]);
        }
        Some(Self { env, model, sink, program, config, _runtime: runtime })
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
        self.env.start_program(&self.program, &fixed, &args)
    }

    fn run(&self, session: &[&str]) -> Output {
        self.start(session).wait()
    }

    /// Kills the client when the mail server has the message and has not said so.
    fn killed_in_the_call(&self) {
        let client = self.start(&["--session-id", SESSION]);
        until("the mail server has the message", || self.mails() == 1);
        client.signal(Signal::KILL);
        client.wait();
    }

    fn mails(&self) -> usize {
        self.sink.messages().unwrap().len()
    }
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
    let check = "what the gateway is there for";
    let turns = asks_again_after_an_interruption();
    let Some(world) = World::new(check, &turns, Duration::from_secs(3), false) else { return };
    world.killed_in_the_call();
    world.run(&["--resume", SESSION]).code(0).shows(&["All is done."]);
    assert_eq!(world.mails(), 2, "the gap that the gateway closes");
}

#[test]
fn g2_behind_the_gateway_a_killed_client_that_asks_again_has_the_receipt() {
    let check = "kill -9 of the real Claude Code behind the gateway";
    let turns = asks_again_after_an_interruption();
    let Some(world) = World::new(check, &turns, Duration::from_secs(3), true) else { return };
    world.killed_in_the_call();
    world.run(&["--resume", SESSION]).code(0).shows(&["All is done."]);
    assert_eq!(world.mails(), 1);
    assert_eq!(world.env.calls(), ["send_email succeeded"]);
    world.env.run(&["gateway", "stop"]).code(0);
}

#[test]
fn g3_a_session_that_is_continued_under_another_id_has_the_receipt_too() {
    let check = "kill -9 of the real Claude Code, and --continue";
    let turns = asks_again_after_an_interruption();
    let Some(world) = World::new(check, &turns, Duration::from_secs(3), true) else { return };
    world.killed_in_the_call();
    world.run(&["--continue"]).code(0).shows(&["All is done."]);
    assert_eq!(world.mails(), 1);
    world.env.run(&["gateway", "stop"]).code(0);
}

#[test]
fn g7_a_client_that_gives_up_waiting_and_asks_again_gets_what_came_of_the_first() {
    let turns = json!([mail(), mail(), {"text": "All is done."}]);
    let check = "a time-out of the real Claude Code";
    let Some(world) = World::with_timeout(check, &turns, Duration::from_secs(6), true, Some(3_000)) else { return };
    let client = world.start(&["--session-id", SESSION]);
    client.wait().code(0).shows(&["All is done."]);
    assert_eq!(world.mails(), 1);
    world.env.run(&["gateway", "stop"]).code(0);
}

#[test]
fn g9_an_interrupted_client_and_the_next_session_send_one_mail() {
    let check = "Ctrl-C in the real Claude Code";
    let Some(world) = World::new(check, &json!([mail(), {"text": "All is done."}]), Duration::from_secs(3), true)
    else {
        return;
    };
    let client = world.start(&["--session-id", SESSION]);
    until("the mail server has the message", || world.mails() == 1);
    client.signal(Signal::INT);
    client.wait();
    // Another session, which has never heard of the first one.
    world.run(&[]).code(0).shows(&["All is done."]);
    assert_eq!(world.mails(), 1);
    assert_eq!(world.env.value("SELECT count(*) FROM runs WHERE run_mode = 'gateway'"), "2");
    world.env.run(&["gateway", "stop"]).code(0);
}
