//! Answers that the database does not take: kept beside it, and what they say is what the call is, whoever finds them.

use std::fs;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use ua_core::{CallStatus, RawReply};
use ua_ledger::LateReplies as _;
use ua_runner::LateFile;
use ua_store::LateReply;

use crate::world::{Client, GatewayWorld, mail, notice, text, told, until};

/// Another program holds the database while a mail is answered, and the broker is killed before it lets go: the next one finds the answer, and
/// nobody is asked.
#[test]
fn an_answer_that_the_database_does_not_take_outlives_its_broker() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.session("s1").greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    let other = Connection::open(world.path("runtime_state.db")).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.let_go();
    until("the answer to be kept", || {
        let kept = fs::read_to_string(world.path(LateFile::NAME)).ok()?;
        kept.ends_with('\n').then_some(())
    });
    world.kill_broker();
    other.execute_batch("ROLLBACK").unwrap();
    let result = client.answer(id)["result"].clone();
    assert_eq!((told(&result), text(&result).lines().next()), ("", Some("done, 1 so far")), "{result}");
    assert!(world.questions().is_empty());
    let again = client.result("send_email", &mail());
    assert_eq!((notice(&again), world.effects().len()), ("duplicate", 1), "{again}");
    client.done();
    world.check();
}

/// The same while the broker lives: its client has the answer, however long the database is held.
#[test]
fn an_answer_that_the_database_does_not_take_is_delivered() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.session("s1").greet();
    let id = client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    let other = Connection::open(world.path("runtime_state.db")).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.let_go();
    let result = client.answer(id)["result"].clone();
    assert_eq!((told(&result), text(&result).lines().next()), ("", Some("done, 1 so far")), "{result}");
    other.execute_batch("ROLLBACK").unwrap();
    until("the answer to be stored", || {
        let call = world.calls("append_line").pop()?;
        (call.status == CallStatus::Succeeded).then_some(())
    });
    client.done();
    world.check();
}

/// The answer lies beside a question that was asked without it: the broker's next start settles the call, before anybody asks for it again.
#[test]
fn a_question_with_its_answer_beside_it_is_closed_when_the_broker_starts() {
    let world = GatewayWorld::new();
    world.behave("die");
    let mut client = world.session("s1").greet();
    assert_eq!(told(&client.result("send_email", &mail())), "unknown");
    client.killed();
    let call = world.calls("send_email").pop().unwrap();
    assert_eq!((call.status, world.questions().len()), (CallStatus::Unknown, 1));
    world.kill_broker();
    let result = json!({"content": [{"type": "text", "text": "done, 1 so far"}], "isError": false});
    let late = LateReply {
        at: ua_core::system::env().now(),
        run_id: call.run_id.clone(),
        tool_call_id: call.call_id.clone(),
        attempt: call.attempt,
        sent_at: None,
        reply: RawReply::ToolResult { result },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(LateFile::at(world.path(LateFile::NAME)).keep(&late)).unwrap();
    // Of another session and another tool: the broker starts with it, and that is all.
    let mut next = world.session("s2").greet();
    next.result("read_page", &json!({"page": "1"}));
    let call = world.calls("send_email").pop().unwrap();
    assert_eq!((call.status, world.questions().len()), (CallStatus::Succeeded, 0));
    let again = next.result("send_email", &mail());
    assert_eq!((notice(&again), world.effects().len()), ("late", 1), "{again}");
    // Of what the broker before it delivered this one knows nothing.
    assert!(again.to_string().contains("has ended since, and it is not known whether anybody read it"), "{again}");
    next.done();
    world.check();
}

/// Nobody needs to know of a read before it is answered, so it goes on while another program holds the database, and is stored when that lets go.
#[test]
fn reads_are_answered_while_the_database_takes_nothing() {
    let world = GatewayWorld::new();
    let mut client = world.session("s1").greet();
    let read = |client: &mut Client, page: &str| client.result("read_page", &json!({"page": page}));
    read(&mut client, "0");
    let other = Connection::open(world.path("runtime_state.db")).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for page in ["1", "2", "3"] {
        assert_eq!(read(&mut client, page)["structuredContent"]["page"], page);
    }
    other.execute_batch("ROLLBACK").unwrap();
    until("the reads to be stored", || {
        let calls = world.calls("read_page");
        (calls.len() == 4 && calls.iter().all(|call| call.status == CallStatus::Succeeded)).then_some(())
    });
    client.done();
    world.check();
}
