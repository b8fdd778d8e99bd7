//! A tool server over Streamable HTTP that goes away, comes back, or stops letting the program in.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

/// What the server does at a call.
#[derive(Clone, Copy)]
enum Then {
    Serve,
    /// Answers and listens no more. It stops listening first, so that the next call surely finds nobody.
    AnswerAndLeave,
    Refuse(u16),
    /// Does it, and something in front of it says that there is no such session.
    ServeAndDeny,
    /// Does it, and answers 401 as whoever it asked for something itself did.
    ServeAndRefuse,
    /// Hangs up without an answer.
    HangUp,
    /// Answers nothing, and stays on the line.
    Keep,
}

/// A server with the effect `post_comment`, one connection per request.
struct Server {
    address: SocketAddr,
    posted: Arc<Mutex<Vec<Value>>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Serves at `address`; the n-th call is met by the n-th plan, the calls after the last one by `Then::Serve`.
    fn start(address: &str, plans: &[Then]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let posted = Arc::new(Mutex::new(Vec::new()));
        let (log, plans) = (Arc::clone(&posted), plans.to_vec());
        let has_sessions = plans.iter().any(|plan| matches!(plan, Then::ServeAndDeny));
        let serving = std::thread::spawn(move || {
            let mut kept = Vec::new();
            let mut plans = plans.into_iter();
            let mut listener = Some(listener);
            while let Some(open) = &listener {
                let Ok((stream, _)) = open.accept() else { return };
                let Some((verb, request)) = read(&stream) else { continue };
                if verb != "POST" {
                    write(&stream, 405, "");
                    continue;
                }
                let result = match request["method"].as_str().unwrap() {
                    "initialize" => json!({
                        "protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                        "serverInfo": {"name": "web", "version": "1"},
                    }),
                    "tools/list" => json!({"tools": [{"name": "post_comment", "description": "Posts a comment.",
                        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}),
                    "tools/call" => {
                        let plan = plans.next().unwrap_or(Then::Serve);
                        if let Then::Refuse(status) = plan {
                            let challenge = if status == 401 { "www-authenticate: Bearer\r\n" } else { "" };
                            write_with(&stream, status, challenge, "the token is out of date");
                            continue;
                        }
                        match plan {
                            Then::HangUp => continue,
                            Then::Keep => {
                                kept.push(stream);
                                continue;
                            }
                            Then::Serve
                            | Then::AnswerAndLeave
                            | Then::Refuse(_)
                            | Then::ServeAndDeny
                            | Then::ServeAndRefuse => {}
                        }
                        log.lock().unwrap().push(request["params"]["arguments"].clone());
                        if matches!(plan, Then::ServeAndDeny) {
                            write(&stream, 404, "no such session");
                            continue;
                        }
                        if matches!(plan, Then::ServeAndRefuse) {
                            write(&stream, 401, "the search answered 401");
                            continue;
                        }
                        if matches!(plan, Then::AnswerAndLeave) {
                            listener = None;
                        }
                        json!({"content": [{"type": "text", "text": "posted"}]})
                    }
                    _ => {
                        write(&stream, 202, "");
                        continue;
                    }
                };
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
                match request["method"].as_str() {
                    Some("initialize") if has_sessions => write_with(&stream, 200, "mcp-session-id: s1\r\n", &answer),
                    _ => write(&stream, 200, &answer),
                }
            }
        });
        Self { address, posted, serving }
    }

    fn posted(&self) -> Vec<Value> {
        self.posted.lock().unwrap().clone()
    }

    /// The configuration that names this server, with a header.
    fn configure(&self, env: &TestEnv) {
        let url = format!("http://{}/mcp", self.address);
        let entry = json!({"type": "http", "url": url, "headers": {"Authorization": "Bearer hush"}});
        env.mcp_config("work/.mcp.json", &json!({ "web": entry }));
    }
}

pub(super) fn read(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let verb = line.split(' ').next()?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((verb, serde_json::from_slice(&body).unwrap_or_default()))
}

pub(super) fn write(stream: &TcpStream, status: u16, body: &str) {
    write_with(stream, status, "", body);
}

/// Whoever asked may be gone; then nobody misses the answer.
fn write_with(mut stream: &TcpStream, status: u16, headers: &str, body: &str) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} x\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).ok();
}

fn post(text: &str) -> Value {
    json!({"tools": [{"name": "mcp__web__post_comment", "input": {"text": text}}]})
}

#[test]
fn a_server_that_goes_away_and_is_not_waited_for_stops_the_run_until_it_is_back_and_nothing_is_posted_twice() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::AnswerAndLeave]);
    server.configure(&env);
    let turns = json!([post("first"), post("second"), {"text": "Posted.", "expect": {"tool_result_ok": true}}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_provider_wait_minutes": 0}}), &turns);
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["stopped (tool server)", "`web`", "cannot be reached", "ua resume r"]);
    assert_eq!(env.value("SELECT status, stop_reason FROM runs"), "stopped tool_server");
    assert_eq!(server.posted(), [json!({"text": "first"})]);
    // While it is away, a resume says the same and changes nothing.
    env.run(&["resume", "r"]).code(75).shows(&["stopped (tool server)", "`web`"]);

    let address = server.address.to_string();
    let posted = server.posted();
    server.serving.join().unwrap();
    let back = Server::start(&address, &[]);
    env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!([posted, back.posted()].concat(), [json!({"text": "first"}), json!({"text": "second"})]);
    assert_eq!(env.calls(), ["post_comment succeeded", "post_comment succeeded"]);
}

#[test]
fn a_server_that_lets_nobody_in_any_more_names_the_headers_of_the_configuration() {
    for status in [401, 403] {
        let env = env();
        // It would be refused again, so it is not tried again.
        let plans = [&[Then::Serve][..], &[Then::Refuse(status); 20]].concat();
        let server = Server::start("127.0.0.1:0", &plans);
        server.configure(&env);
        let expect =
            json!({"contains": ["the token is out of date", "correct its `headers` in the MCP configuration"]});
        let turns = json!([post("first"), post("second"), {"text": "Not posted.", "expect": expect}]);
        let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_on_auth_failure": false}});
        let output = env.run(&["job", &env.job(&fields, &turns), "--run-id", "r"]).code(0);
        assert!(
            output.shown().contains("correct its `headers`") && !output.shown().contains("hush"),
            "{}",
            output.shown()
        );
        assert_eq!(server.posted(), [json!({"text": "first"})]);
        assert_eq!(env.calls(), ["post_comment succeeded", "post_comment failed"]);
        assert_eq!(env.value("SELECT count(*) FROM tool_attempts"), "2");
    }
}

#[test]
fn refused_credentials_are_a_question_and_the_call_is_made_when_they_are_mended() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::Refuse(401)]);
    server.configure(&env);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Posted."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["The tool server `web` refused the credentials", "HTTP 401", " retry "]);
    env.run(&["resume", "r"]).code(75);
    assert_eq!(server.posted(), [json!(null); 0]);
    let question = env.value("SELECT question_id FROM questions WHERE kind = 'auth_failure'");
    env.run(&["answer", &question, "retry"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(
        (server.posted(), env.calls()),
        (vec![json!({"text": "first"})], vec!["post_comment succeeded".to_owned()])
    );
}

/// What says that a session is over may stand in front of a server that has done the call: a person reads it, and nothing is sent again.
#[test]
fn what_is_said_to_be_rejected_unread_is_a_question() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::ServeAndDeny; 3]);
    server.configure(&env);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Posted."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["waiting for you", "rejected it unread", "HTTP status 404", "no such session"]);
    assert_eq!((server.posted().len(), env.calls()), (1, vec!["post_comment unknown".to_owned()]));
    env.run(&["resume", "r"]).code(75);
    assert_eq!(server.posted().len(), 1, "nothing is sent without a person's word");
}

/// A 401 that does not say what would let the call in may be what the tool was told when its work was done.
#[test]
fn what_is_refused_without_a_challenge_is_a_question() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::ServeAndRefuse; 3]);
    server.configure(&env);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Posted."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["waiting for you", "HTTP status 401", "the search answered 401"]);
    assert_eq!((server.posted().len(), env.calls()), (1, vec!["post_comment unknown".to_owned()]));
    env.run(&["resume", "r"]).code(75);
    assert_eq!(server.posted().len(), 1, "nothing is sent without a person's word");
}

/// A server that cannot be ended may begin a call after its connection was lost, whatever became of the run meanwhile.
#[test]
fn what_a_server_may_still_begin_has_not_been_ruled_out_by_the_end_of_its_run_or_turn() {
    for then in ["cancel", "abort", "a later turn"] {
        let env = env();
        let server = Server::start("127.0.0.1:0", &[Then::HangUp, Then::Keep]);
        server.configure(&env);
        let turns = json!([post("first"), post("second"), {"text": "Done."}]);
        let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
        env.run(&["job", &job, "--run-id", "r"]).code(75);
        let id = env.value("SELECT tool_call_id FROM tool_calls");
        let said = |what| ["calls", "resolve", &id, "--as", what, "--reason", "It is not there", "--yes"];
        let until_when = "may still begin at the other side until";
        env.run(&said("not_happened")).refused(75, &[until_when]);
        let question = env.value("SELECT question_id FROM questions");
        let at_work = match then {
            "cancel" => {
                env.run(&["runs", "cancel", "r", "--yes"]).code(0);
                None
            }
            "abort" => {
                env.run(&["answer", &question, "abort"]).code(0);
                None
            }
            _ => {
                env.run(&["answer", &question, "skip"]).code(0);
                let process = env.start(&["resume", "r"]);
                until("the second comment to be under way", || {
                    env.try_rows("SELECT status FROM tool_calls WHERE turn = 2") == ["running"]
                });
                Some(process)
            }
        };
        env.run(&said("not_happened")).refused(75, &[until_when]);
        let status = format!("SELECT status, correction_json IS NULL FROM tool_calls WHERE tool_call_id = '{id}'");
        assert_eq!(env.rows(&status), ["unknown 1"], "nothing was changed: {then}");
        // What is there is there, whatever may still begin.
        env.run(&said("happened")).code(0);
        if let Some(process) = at_work {
            process.signal(Signal::KILL);
            process.wait().killed();
        }
    }
}

/// Whoever looks while another run's lost call may still begin looks too early: a fork's call is not let out before that.
#[test]
fn a_fork_is_not_let_out_while_the_call_of_its_parent_may_still_begin() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::HangUp]);
    server.configure(&env);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "a"]).code(75);
    env.run(&["fork", "a", "--at-turn", "0", "--run-id", "b"]).code(75);
    let question = env.value("SELECT question_id FROM questions WHERE run_id = 'b'");
    env.run(&["answer", &question, "approve"]).refused(75, &["may still begin at the other side until"]);
    env.run(&["resume", "b"]).code(75);
    let state = format!("SELECT status FROM questions WHERE question_id = '{question}'");
    assert_eq!((server.posted(), env.value(&state)), (vec![], "open".to_owned()));
    // Once somebody knows what came of it there is nothing to wait for.
    let id = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'a'");
    env.run(&["calls", "resolve", &id, "--as", "happened", "--reason", "It came late", "--yes"]).code(0);
    env.run(&["answer", &question, "skip"]).code(0);
}

/// What is under way has not happened yet, and will: nobody lets a fork do it beside it.
#[test]
fn a_fork_is_not_let_out_while_the_call_of_its_parent_is_under_way() {
    let env = env();
    let server = Server::start("127.0.0.1:0", &[Then::Keep]);
    server.configure(&env);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Done."}]));
    let parent = env.start(&["job", &job, "--run-id", "a"]);
    until("the comment to be under way", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    env.run(&["fork", "a", "--at-turn", "0", "--run-id", "b"]).code(75);
    let question = env.value("SELECT question_id FROM questions WHERE run_id = 'b'");
    env.run(&["answer", &question, "approve"]).refused(75, &["is under way"]);
    assert_eq!(server.posted(), [json!(null); 0]);
    parent.signal(Signal::KILL);
    parent.wait().killed();
}
