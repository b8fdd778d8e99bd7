//! Both eras on both sides: what a client and its tool server say to each other passes whichever each of them is of, and effects are had once.

use serde_json::{Value, json};

use crate::world::{Client, GatewayWorld, mail, text};

/// What each request of a client of the newer era says for itself.
pub(crate) fn signed(capabilities: &Value, params: Value) -> Value {
    signed_by(&json!({"name": "newer", "version": "1"}), capabilities, params)
}

pub(crate) fn signed_by(info: &Value, capabilities: &Value, mut params: Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": info,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    if let Some(own) = params["_meta"].as_object() {
        meta.as_object_mut().unwrap().extend(own.clone());
    }
    params["_meta"] = meta;
    params
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

fn ask(client: &mut Client, method: &str, params: Value) -> Value {
    let id = client.request(method, &signed(&forms(), params));
    client.answer(id)
}

/// G13's stub of the newer era: no handshake, each request alone, in front of tool servers of both eras.
#[test]
fn a_client_of_the_newer_era_reaches_tool_servers_of_both() {
    for server in ["older", "newer"] {
        let world = GatewayWorld::new();
        world.behave(server);
        let mut client = world.client();
        let found = ask(&mut client, "server/discover", json!({}));
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{server}: {found}");
        assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stub");
        let listed = ask(&mut client, "tools/list", json!({}));
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 12, "{listed}");
        assert_eq!(listed["result"]["resultType"], "complete");
        let sent = ask(&mut client, "tools/call", json!({"name": "send_email", "arguments": mail()}));
        assert_eq!(
            (text(&sent["result"]).as_str(), &sent["result"]["resultType"]),
            ("done, 1 so far", &json!("complete"))
        );
        let again = ask(&mut client, "tools/call", json!({"name": "send_email", "arguments": mail()}));
        assert!(text(&again["result"]).starts_with("done, 1 so far"), "{again}");
        assert_eq!(world.effects().len(), 1);
        // What is said of a request reaches a tool server that wants it, and none other.
        let call = world.said().into_iter().find(|message| message["method"] == "tools/call").unwrap();
        let says = call["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
        assert_eq!(says, server == "newer", "{call}");
        let refused = ask(&mut client, "ping", json!({}));
        assert_eq!(refused["error"]["code"], -32601, "what the era does not have: {refused}");
        client.killed();
        world.check();
    }
}

#[test]
fn a_client_of_the_older_era_reaches_a_tool_server_of_the_newer() {
    let world = GatewayWorld::new();
    world.behave("newer");
    let mut client = world.client();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "older", "version": "1"}});
    let id = client.request("initialize", &params);
    let answer = client.answer(id);
    assert_eq!(
        (&answer["result"]["protocolVersion"], &answer["result"]["serverInfo"]["version"]),
        (&json!("2025-06-18"), &json!("8"))
    );
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let id = client.request("tools/list", &json!({}));
    let listed = client.answer(id);
    assert!(listed["result"].get("resultType").is_none() && listed["result"]["tools"].is_array(), "{listed}");
    let sent = client.result("send_email", &mail());
    assert!(text(&sent) == "done, 1 so far" && sent.get("resultType").is_none(), "{sent}");
    // What the tool server asks for in the place of a result is asked for on the connection.
    let id = client.call("ask_size", &json!({}));
    let asked = client.hear("the tool's question", |message| message["method"] == "elicitation/create");
    assert_eq!(asked["params"]["message"], "Which size?");
    client.say(
        &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"size": "large"}}}),
    );
    assert_eq!(text(&client.answer(id)["result"]), "large");
    // The next broker knows how both speak.
    world.kill_broker();
    let read = client.result("read_page", &json!({"page": "1"}));
    assert_eq!(read["structuredContent"]["page"], "1", "{read}");
    client.done();
    world.check();
}

/// A tool server that asks on its connection, and one that asks in its answer: a client of the newer era comes back with the same.
#[test]
fn a_client_that_comes_back_goes_on_with_its_call() {
    for server in ["older", "newer"] {
        let world = GatewayWorld::new();
        world.behave(server);
        let mut client = world.client();
        let call = json!({"name": "ask_size", "arguments": {}});
        let wanted = ask(&mut client, "tools/call", call.clone());
        let result = &wanted["result"];
        assert_eq!(result["resultType"], "input_required", "{server}: {wanted}");
        let (name, request) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["params"]["message"], "Which size?");
        let mut back = call.clone();
        back["requestState"] = result["requestState"].clone();
        back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "small"}}});
        let answer = ask(&mut client, "tools/call", back.clone());
        assert_eq!(text(&answer["result"]), "small", "{server}: {answer}");
        back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "large"}}});
        let again = ask(&mut client, "tools/call", back);
        assert_eq!(text(&again["result"]), "small", "it is taken once, and is that call however often: {again}");
        // A client that cannot be asked is not: the tool hears that nobody is there, or is not called on at all.
        if server == "older" {
            let id = client.request("tools/call", &signed(&json!({}), call));
            assert_eq!(text(&client.answer(id)["result"]), "\"cancel\"");
        }
        client.killed();
        world.check();
    }
}

/// A subscription is a request that stays open, and what it brings is tagged with it.
#[test]
fn what_changes_is_told_to_those_who_asked() {
    let world = GatewayWorld::new();
    let mut client = world.client();
    let id =
        client.request("subscriptions/listen", &signed(&forms(), json!({"notifications": {"toolsListChanged": true}})));
    let first = client.hear("that it is open", |message| message.get("method").is_some());
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    client.cancel(id);
    let over = client.answer(id);
    assert_eq!(over["result"]["resultType"], "complete", "{over}");
}
