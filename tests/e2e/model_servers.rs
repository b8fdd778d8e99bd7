//! Model servers of others, where they are installed (`cargo xtask third-party`): one that breaks on purpose and judges its clients, and a
//! proxy between this program and a provider that stumbles.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests; only tests read the variable")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};
use ua_testkit::{Fault, FaultKind, ThirdParty, not_installed};

use super::env;
use super::wires::WIRES;

fn third_party() -> ThirdParty {
    ThirdParty::at(std::env::var_os("UA_THIRD_PARTY").map(PathBuf::from))
}

/// A server of somebody else; it ends with the test.
struct Served {
    child: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Where a program of one of Python's packages is: one of npm's has the same name.
fn installed(program: &str) -> PathBuf {
    third_party().python(program).join("bin").join(program)
}

/// Starts an installed program of Python's that takes `--host` and `--port`.
fn serve(program: &str, check: &str, args: &[&str]) -> Option<Served> {
    serve_at(&installed(program), check, &[args, &["--host", "127.0.0.1"]].concat())
}

/// Starts an installed program that takes `--port`, and listens on this machine by `args`.
fn serve_at(program: &Path, check: &str, args: &[&str]) -> Option<Served> {
    if !program.is_file() {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        not_installed(check, &name);
        return None;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(program);
    command.args(args).args(["--port", &port.to_string()]);
    // What such programs fetch by themselves (prices, versions) is not there.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("NO_PROXY", "127.0.0.1");
    // Without a key of its own a proxy on this machine refuses to start.
    command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the server of others listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some(Served { child, url: format!("http://127.0.0.1:{port}") })
}

/// A world whose models of every wire are at an address.
fn reaching(url: &str) -> TestEnv {
    let env = env().with_forum().with_env("ANTHROPIC_BASE_URL", url).with_env("ANTHROPIC_API_KEY", "a-key");
    env.with_env("OPENAI_BASE_URL", url).with_env("OPENAI_API_KEY", "a-key")
}

/// One mock of model APIs that answers a fifth of all requests with an error and breaks a third of all streams. It says at the end what a
/// client did wrong: took a cut reply for a whole one, did not wait as long as it was asked to, hammered.
#[test]
fn a_mock_that_breaks_on_purpose_finds_nothing_wrong_with_this_client() {
    let chaos = [
        "serve",
        "--error-rate",
        "429=0.1",
        "--error-rate",
        "503=0.1",
        "--error-rate",
        "500=0.05",
        "--stream-fault",
        "truncate=0.12",
        "--stream-fault",
        "disconnect=0.12",
        "--stream-fault",
        "malformed=0.1",
    ];
    let Some(served) = serve("llmock", "a mock that breaks on purpose", &chaos) else { return };
    for (number, wire) in WIRES.iter().cycle().take(6).enumerate() {
        // Its door for this API has a name of its own.
        let env = reaching(&served.url).with_env("ANTHROPIC_BASE_URL", &format!("{}/anthropic", served.url));
        // It fills in every argument that a tool offers, also one that has it fail.
        env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--takes", "text"])}));
        let fields = json!({"objective": "Post a comment that says hello.", "tools": {"builtin": false}});
        let job = env.job(&fields, &json!([]));
        let run = format!("r{number}");
        env.run(&["job", &job, "--provider", wire, "--model", "gpt-4o", "--run-id", &run]).code(0);
        let posted = env.comments();
        assert!(posted.len() <= 1, "{wire}: {posted:?}");
        assert_eq!(
            env.calls().iter().filter(|call| call.as_str() == "post_comment succeeded").count(),
            posted.len(),
            "{wire}"
        );
    }
    let report = Command::new(installed("llmock")).args(["report", "--url", &served.url]).output().unwrap();
    assert!(
        report.status.success(),
        "{}{}",
        String::from_utf8_lossy(&report.stdout),
        String::from_utf8_lossy(&report.stderr)
    );
}

/// `llmposter`, whose answers and faults come in turn: it limits the rate, cuts a reply, is overloaded, sends words of nothing in the place of a reply,
/// and each action happens once.
#[test]
fn a_mock_that_plays_faults_in_turn_gets_each_action_once() {
    let post = |text: &str| json!({"name": "mcp__forum__post_comment", "arguments": {"text": text}});
    // It refuses a history in which two rounds of results follow each other, so both are asked for at once.
    let both = json!({"tool_calls": [post("first"), post("second")]});
    let done = json!({"content": "Both are posted."});
    let steps = [
        json!({"error": {"status": 429, "message": "slow down"}}),
        json!({"response": both, "failure": {"truncate_after_frames": 2}}),
        json!({"response": both}),
        json!({"error": {"status": 529, "message": "busy"}}),
        json!({"response": done, "failure": {"corrupt_body": true}}),
        json!({"error": {"status": 503, "message": "busy"}}),
        json!({"response": done}),
    ];
    let state = |step: usize| if step == 0 { String::new() } else { format!("step-{step}") };
    let fixtures: Vec<Value> = steps
        .iter()
        .enumerate()
        .map(|(step, says)| {
            let mut fixture = says.clone();
            fixture["scenario"] = json!({"name": "job", "required_state": state(step), "set_state": state(step + 1)});
            fixture
        })
        .collect();
    let program = third_party().cargo().join("bin/llmposter");
    for wire in WIRES {
        let env = reaching("");
        // JSON is YAML.
        let fixtures = env.write("fixtures.yaml", json!({"fixtures": fixtures}).to_string());
        let args = ["--fixtures", &fixtures, "--bind", "127.0.0.1"];
        let Some(served) = serve_at(&program, "a mock that plays faults in turn", &args) else { return };
        let env = reaching(&served.url);
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([]));
        env.run(&["job", &job, "--provider", wire, "--model", "a-model", "--run-id", "r"])
            .code(0)
            .shows(&["succeeded"]);
        let posted = ["first", "second"].map(|text| json!({"text": text}).to_string());
        assert_eq!(env.comments(), posted, "{wire}");
    }
}

/// `LiteLLM` in front of a provider that cuts a reply and is overloaded twice.
#[test]
fn a_proxy_in_front_of_a_provider_that_stumbles_is_as_good_as_the_provider() {
    let post = |text: &str| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
    let turns = json!([post("first"), post("second"), {"text": "Both are posted."}]);
    for wire in WIRES {
        let faults = vec![
            Fault::at(2, FaultKind::CutMidStream),
            Fault::at(3, FaultKind::Overloaded529),
            Fault::at(5, FaultKind::ErrorMidStream { error_type: "overloaded_error".into() }),
        ];
        let model = Model::start(&turns, faults);
        let env = reaching("");
        let config: Value = json!({
            "model_list": [{"model_name": "a-model", "litellm_params": {
                "model": "anthropic/a-model", "api_base": model.base_url(), "api_key": "a-key"}}],
            "litellm_settings": {"num_retries": 0, "telemetry": false},
        });
        // JSON is YAML.
        let config = env.write("litellm.yaml", config.to_string());
        let Some(served) = serve("litellm", "a proxy in front of a provider", &["--config", &config]) else { return };
        let env = reaching(&served.url);
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([]));
        env.run(&["job", &job, "--provider", wire, "--model", "a-model", "--run-id", "r"])
            .code(0)
            .shows(&["succeeded"]);
        let posted = ["first", "second"].map(|text| json!({"text": text}).to_string());
        assert_eq!(env.comments(), posted, "{wire}");
        assert!(model.requests() >= 5, "{wire}: {} requests", model.requests());
    }
}
