//! What a client is told is so: of what was sent nothing says that it was not, and the other way round; and whoever asks is answered.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use ua_store::Choice;

use crate::world::{Client, GatewayWorld, cell, mail, notice, text, told, until};

fn impatient(world: &GatewayWorld) -> Client {
    let mut client = world.client();
    client.info = json!({"name": "mcp", "version": "0.1.0"});
    client.greet()
}

/// The disk fills while a mail is under way: its answer is handed over from memory, said to be recorded nowhere, and stored when there is room
/// again.
#[test]
fn an_answer_that_cannot_be_stored_is_said_to_be_recorded_nowhere_and_never_not_to_be_sent() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    world.fill_the_disk(true);
    world.let_go();
    let result = client.answer(id)["result"].clone();
    for result in [result, client.result("send_email", &mail())] {
        assert!(told(&result) == "unrecorded" && result["isError"] == true, "{result}");
        let text = text(&result);
        assert!(text.contains("its tool server answered: done, 1 so far\nThat is recorded nowhere yet"), "{text}");
        assert!(!text.contains("Not sent"), "{text}");
    }
    // Of one that was not sent it is said.
    let other = client.result("send_email", &json!({"to": "eve@example.com", "subject": "Other", "body": "x"}));
    assert!(told(&other) == "broken" && text(&other).starts_with("Not sent"), "{other}");
    assert_eq!(world.effects().len(), 1);
    world.fill_the_disk(false);
    let stored = until("the answer to be stored", || {
        let stored = client.result("send_email", &mail());
        (notice(&stored) == "late" || notice(&stored) == "duplicate").then_some(stored)
    });
    assert!(text(&stored).starts_with("done, 1 so far") && world.effects().len() == 1, "{stored}");
    client.done();
    world.check();
}

/// The same where the answer does not come either.
#[test]
fn a_call_that_is_neither_answered_nor_stored_may_have_happened() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    world.fill_the_disk(true);
    world.kill_server();
    let result = client.answer(id)["result"].clone();
    assert!(told(&result) == "unknown" && text(&result).contains("may have happened"), "{result}");
    assert!(!text(&result).contains("Not sent"), "{result}");
    world.fill_the_disk(false);
    assert_eq!(world.effects().len(), 1);
}

/// A person ends the session instead of deciding: the call stays what it is, and its client continues in another session.
#[test]
fn a_session_that_a_person_ends_says_of_its_call_what_is_known_and_goes_on() {
    let world = GatewayWorld::new();
    world.behave("die");
    let mut client = world.session("s1").greet();
    let unknown = client.result("send_email", &mail());
    assert_eq!(told(&unknown), "unknown", "{unknown}");
    world.answer(&world.questions()[0], Choice::Abort);
    for _ in 0..2 {
        let again = client.result("send_email", &mail());
        assert!(told(&again) == "unknown" && !text(&again).contains("Not sent"), "{again}");
    }
    let read = client.result("read_page", &json!({"page": "1"}));
    assert_eq!(read["structuredContent"]["page"], "1", "{read}");
    assert!(text(&client.result("append_line", &json!({"text": "a"}))).starts_with("done, 2"));
    assert_eq!(world.effects().len(), 2);
    client.done();
    world.check();
}

/// An effect that is never answered: reads go on, another effect is told that it waits, and the cancel of the first lets it go out.
#[test]
fn what_waits_behind_an_unanswered_effect_is_said_to_wait() {
    let world = GatewayWorld::new();
    world.behave("mute");
    let mut client = impatient(&world);
    let hung = client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    let read = client.result("read_page", &json!({"page": "1"}));
    assert_eq!(read["structuredContent"]["page"], "1", "{read}");
    std::fs::remove_file(world.path("stub/mute")).unwrap();
    let waits = client.result("send_email", &mail());
    assert!(told(&waits) == "queued" && text(&waits).starts_with("Not sent yet"), "{waits}");
    assert!(text(&waits).contains("`append_line`") && !text(&waits).contains("sent once"), "{waits}");
    assert_eq!(world.effects().len(), 1);
    let again = client.call("send_email", &mail());
    client.cancel(hung);
    assert!(text(&client.answer(again)["result"]).starts_with("done, 2 so far"));
    assert_eq!(world.effects().len(), 2);
}

/// The bridge is killed in a call. The next session has its receipt, and has heard of it then.
#[test]
fn a_receipt_that_came_late_was_heard_of_by_the_session_that_had_it() {
    for is_late in [true, false] {
        let world = GatewayWorld::new();
        world.behave("hold");
        let mut client = world.client().greet();
        client.call("send_email", &mail());
        world.until_effects(1);
        client.bridge_killed();
        world.until_askers(0);
        let mut next = world.client().greet();
        if is_late {
            world.let_go();
            world.until_calls(0);
            assert_eq!(notice(&next.result("send_email", &mail())), "late");
        } else {
            let id = next.call("send_email", &mail());
            world.until_askers(1);
            world.let_go();
            assert!(text(&next.answer(id)["result"]).starts_with("done, 1"));
        }
        for _ in 0..2 {
            let again = next.result("send_email", &mail());
            assert_eq!((notice(&again), world.effects().len()), ("duplicate", 1), "{again}");
        }
        next.done();
        world.check();
    }
}

/// Half a character, and a line that cannot be read at all: from the tool server.
#[test]
fn an_answer_that_cannot_be_read_is_an_answer() {
    let world = GatewayWorld::new();
    let raw = |text: &str| std::fs::write(world.path("stub/raw"), text).unwrap();
    let mut client = world.client().greet();
    raw(r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}"#);
    assert_eq!(text(&client.result("send_email", &mail())), "cut \u{fffd}");
    let deep =
        format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"x":{}{}}}}}"#, "[".repeat(300), "]".repeat(300));
    // What lies too deep is left out, and that is said.
    raw(&deep);
    for tool in ["read_page", "append_line"] {
        let read = client.result(tool, &json!({"page": "1", "text": "deep"}));
        assert!(
            read["isError"] != true && read.to_string().contains("nested more than 100 deep is left out"),
            "{read}"
        );
    }
    raw(r#"{"jsonrpc":"2.0","result":"#);
    let id = client.call("read_page", &json!({"page": "1"}));
    let refused = client.answer(id);
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
    let unknown = client.result("append_line", &json!({"text": "cut"}));
    assert!(told(&unknown) == "unknown" && text(&unknown).contains("cannot be read"), "{unknown}");
    assert_eq!(world.effects().len(), 3);
    world.check();
}

/// What is told of a call names the moment at which it was sent, the same whoever is told and whenever: not that at which it was asked for.
#[test]
fn a_call_was_sent_when_its_attempt_began() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let first = client.call("append_line", &json!({"text": "in front"}));
    world.until_effects(1);
    let second = client.call("append_line", &json!({"text": "behind"}));
    world.until_askers(2);
    world.behave("die_behind");
    world.let_go();
    client.answer(first);
    let live = client.answer(second)["result"].clone();
    let again = client.result("append_line", &json!({"text": "behind"}));
    world.kill_broker();
    let restarted = client.result("append_line", &json!({"text": "behind"}));
    let calls = world.calls("append_line");
    let started = world.attempts(&calls[1]).pop().unwrap().started_at;
    assert!(started > calls[1].created_at);
    for told in [live, again, restarted] {
        assert!(text(&told).contains(&format!("was sent at {started} and its outcome")), "{started}: {told}");
    }
    client.done();
    world.check();
}

/// What is in this program's own fields and is no text is not taken for nothing: two calls would be one, or two sessions.
#[test]
fn a_name_that_is_no_text_is_refused() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    for field in ["dev.universal-agent/call", "dev.universal-agent/session"] {
        for name in [json!(5), json!(null), json!(["a"]), json!({"a": 1}), json!("")] {
            let params = json!({"name": "append_line", "arguments": {"text": "a"}, "_meta": {field: name}});
            let id = client.request("tools/call", &params);
            let error = client.answer(id)["error"].clone();
            assert_eq!(error["code"], -32602, "{name}");
            assert!(error["message"].as_str().unwrap().contains(field), "{error}");
        }
    }
    assert_eq!(world.effects(), [""; 0]);
    world.check();
}

/// The same from the client. What is no text and what is too long does not end the bridge.
#[test]
fn a_request_that_cannot_be_read_is_refused_and_the_client_goes_on() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let call = |id: u32, text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"append_line","arguments":{{"text":{text}}}}}}}"#
        )
    };
    client.say_bytes(call(100, r#""cut \ud83d""#).as_bytes());
    let refused = client.answer(100);
    assert!(refused["error"]["message"].as_str().unwrap().contains(r"\ud83d"), "{refused}");
    client.say_bytes(call(104, r#""whole""#).as_bytes());
    assert_eq!(text(&client.answer(104)["result"]), "done, 1 so far");
    let mut no_text = call(102, r#""?""#).into_bytes();
    let place = no_text.iter().position(|byte| *byte == b'?').unwrap();
    no_text[place] = 0xff;
    let long = call(103, &format!("\"{}\"", "x".repeat(65 << 20)));
    let deep = call(101, &format!("{}{}", "[".repeat(300), "]".repeat(300)));
    for (id, line) in [
        (json!(101), deep.as_bytes()),
        (json!(102), &no_text),
        (json!(103), long.as_bytes()),
        (Value::Null, b"{\"jsonrpc\":"),
        (Value::Null, b"\xff"),
    ] {
        client.say_bytes(line);
        let refused = client.hear("an error", |message| message["error"]["code"] == -32700);
        assert_eq!(refused["id"], id, "{refused}");
    }
    assert_eq!(world.effects().len(), 1);
    client.done();
    world.check();
}

/// A person who tries an entry whose program is not there has an error and the code of shells for it; a client is answered with it.
#[test]
fn a_program_that_is_not_there_is_said_to_the_person_and_to_the_client() {
    let world = GatewayWorld::new();
    let root = world.folder.path().display().to_string();
    let start = |input: Stdio| {
        let mut command = Command::new(cell());
        command.args(["bridge", "--socket", &format!("{root}/gateway.sock"), "--name", "stub"]);
        for word in [cell().display().to_string(), "start".into(), root.clone(), "0".into()] {
            command.arg("--start").arg(word);
        }
        command.args(["--", "no-such-server"]).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start(Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    writeln!(stdin, "{message}").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("`no-such-server` was not found"), "{answer}");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(127));

    let alone = start(Stdio::null()).wait_with_output().unwrap();
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(alone.status.code(), Some(127), "{said}");
    assert!(said.contains("`no-such-server` was not found: install it, or correct the command"), "{said}");
}
