//! What passes as it came.

use serde_json::json;
use ua_store::{Choice, QuestionKind};

use crate::world::{GatewayWorld, mail, text, told, until};

#[test]
fn a_client_sees_its_tool_server_and_nothing_of_ours() {
    let world = GatewayWorld::new();
    let mut client = world.client();
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let id = client.request("server/discover", &json!({}));
    assert_eq!(client.answer(id)["error"]["code"], -32602, "it does not say who asks");
    let id = client.request("initialize", &params);
    let answer = client.answer(id);
    assert_eq!(answer["result"]["serverInfo"]["title"], "A stub");
    assert_eq!((&answer["result"]["instructions"], &answer["jsonrpc"]), (&json!("Be brief."), &json!("2.0")));
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));

    let id = client.request("tools/list", &json!({}));
    let tools = client.answer(id)["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "send_email",
            "append_line",
            "charge_card",
            "wire_money",
            "tell_secret",
            "ask_size",
            "look_up",
            "read_page",
            "run_command",
            "peek_page",
            "press_button",
            "press_bell"
        ]
    );
    assert_eq!(tools[0]["x-unknown"], json!([1]));
    // The key of a known effect is not the model's to choose; all else of the schema is there.
    assert_eq!(
        tools[0]["inputSchema"]["properties"],
        json!({"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}})
    );
    assert_eq!(tools[7]["outputSchema"], json!({"type": "object"}));

    let id = client.request("resources/list", &json!({}));
    assert_eq!(client.answer(id)["result"]["resources"][0]["unknown"], json!({"kept": true}));
    let id = client.request("prompts/list", &json!({}));
    assert_eq!(
        client.answer(id)["error"],
        json!({"code": -32601, "message": "no method prompts/list", "data": {"x": 1}})
    );
    let id = client.request("ping", &json!({}));
    assert_eq!(client.answer(id)["result"], json!({}));

    let read = client.result("read_page", &json!({"page": "7"}));
    assert_eq!(
        read,
        json!({"content": [{"type": "text", "text": "{\"page\":\"7\"}"}], "structuredContent": {"page": "7"}})
    );
    world.check();
}

#[test]
fn a_call_carries_what_the_client_said_and_a_key_of_ours() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let params = json!({"name": "send_email", "arguments": mail(), "_meta": {"progressToken": "p1", "claudecode/toolUseId": "toolu_1"}});
    let id = client.request("tools/call", &params);
    let progress = client.hear("progress", |message| message["method"] == "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p1");
    let answer = client.answer(id);
    assert_eq!(answer["result"], json!({"content": [{"type": "text", "text": "done, 1 so far"}], "isError": false}));
    let said = world.said();
    let call = said.iter().find(|message| message["method"] == "tools/call").unwrap();
    assert_eq!(call["params"]["arguments"], mail());
    assert_eq!(call["params"]["_meta"]["claudecode/toolUseId"], "toolu_1");
    assert_eq!(call["params"]["_meta"]["dev.universal-agent/idempotency-key"].as_str().unwrap().len(), 64);
    client.done();
    world.check();
}

#[test]
fn arguments_that_do_not_fit_are_refused_and_a_server_that_does_not_start_is_said() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let refused = client.result("send_email", &json!({"to": 7}));
    assert!(refused["isError"] == true && text(&refused).contains("do not fit"), "{refused}");
    let refused = client.result("send_mail", &mail());
    // By the names that the client has for its tools.
    assert!(text(&refused).contains("Did you mean `send_email`") && !text(&refused).contains("mcp__"), "{refused}");
    assert_eq!(world.effects(), [""; 0]);
    world.check();
}

/// G12: an approval that comes in time answers the request; one that comes later answers whoever asks for the same again. It is sent once.
#[test]
fn a_person_approves_within_the_request_or_behind_it() {
    let money = json!({"amount": 7});
    for is_in_time in [true, false] {
        let mut world = GatewayWorld::new();
        world.hold_millis = if is_in_time { 60_000 } else { 0 };
        let mut client = world.client().greet();
        let id = client.call("wire_money", &money);
        if !is_in_time {
            let held = client.answer(id)["result"].clone();
            assert_eq!(told(&held), "held", "{held}");
        }
        let question = until("a question", || world.questions().pop());
        assert_eq!((question.kind, world.effects().len()), (QuestionKind::Approval, 0));
        world.answer(&question, Choice::Execute);
        let result = if is_in_time { client.answer(id)["result"].clone() } else { client.result("wire_money", &money) };
        assert_eq!((text(&result).as_str(), world.effects().len()), ("done, 1 so far", 1));
        client.done();
        world.check();
    }
}

#[test]
fn a_person_declines_and_a_session_that_a_person_ended_goes_on_as_another() {
    let money = json!({"amount": 7});
    let world = GatewayWorld::new();
    let mut client = world.session("s1").greet();
    client.result("wire_money", &money);
    world.answer(&world.questions()[0], Choice::Skip);
    let declined = client.result("wire_money", &money);
    assert!(declined["isError"] == true && world.effects().is_empty(), "{declined}");
    client.result("wire_money", &json!({"amount": 8}));
    world.answer(&world.questions()[0], Choice::Abort);
    let ended = client.result("wire_money", &json!({"amount": 8}));
    assert!(ended["isError"] == true && world.effects().is_empty(), "{ended}");
    client.done();
    let mut next = world.session("s1").greet();
    assert!(text(&next.result("append_line", &json!({"text": "a"}))).starts_with("done, 1"));
    next.done();
}
