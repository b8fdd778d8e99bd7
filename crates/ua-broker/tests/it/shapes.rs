//! What a client may write instead of a tool call: whatever its shape, nothing has an effect past the ledger, and the client goes on.

use serde_json::{Value, json};

use crate::world::{Client, GatewayWorld, text};

/// A client whose session is in this revision.
fn greeted(world: &GatewayWorld, revision: &str) -> Client {
    let mut client = world.client();
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let id = client.request("initialize", &params);
    assert_eq!(client.answer(id)["result"]["protocolVersion"], revision);
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

/// All ids, keys, methods and frames, in a revision with batches and one without: each effect is a call of the ledger.
#[test]
fn no_shape_of_a_call_gets_past_the_ledger() {
    for revision in ["2025-03-26", "2025-11-25"] {
        let world = GatewayWorld::new();
        let mut client = greeted(&world, revision);
        let mut number = 0;
        for id in ["", r#""id":null,"#, r#""id":1.5,"#, r#""id":[1],"#, r#""id":"x#","#, r#""\u0069d":"x#","#] {
            for key in ["method", r"m\u0065thod"] {
                for method in ["tools/call", r"tools\u002fcall", "Tools/Call", "tools/call "] {
                    for (before, behind) in [("", ""), ("[", "]")] {
                        number += 1;
                        let line = format!(
                            r#"{before}{{"jsonrpc":"2.0",{id}"{key}":"{method}","params":{{"name":"append_line","arguments":{{"text":"{number}"}}}}}}{behind}"#
                        );
                        client.say_bytes(line.replace('#', &number.to_string()).as_bytes());
                        let is_read = before.is_empty() || revision == "2025-03-26";
                        if is_read && id.contains("x#") && matches!(method, "tools/call" | r"tools\u002fcall") {
                            let asked = json!(format!("x{number}"));
                            client.hear("its answer", |said| said["id"] == asked || said[0]["id"] == asked);
                        }
                    }
                }
            }
        }
        // Behind all of them: what is not answered was read before this is.
        assert!(text(&client.result("append_line", &json!({"text": "last"}))).starts_with("done"));
        client.done();
        let (effects, calls) = (world.effects(), world.calls("append_line"));
        // The two ids, the two keys and the two spellings; in a batch as well where there are batches.
        let expected = 2 * 2 * 2 * if revision == "2025-03-26" { 2 } else { 1 } + 1;
        assert_eq!((effects.len(), calls.len()), (expected, expected), "{revision}: {effects:?}");
        let sent = world.said().into_iter().filter(|message| message["method"] == "tools/call");
        for call in sent {
            assert!(
                call["id"].is_u64() && call["params"]["_meta"]["dev.universal-agent/idempotency-key"].is_string(),
                "{call}"
            );
        }
        world.check();
    }
}

#[test]
fn a_batch_is_answered_as_one_or_refused() {
    let world = GatewayWorld::new();
    let mut client = greeted(&world, "2025-03-26");
    let call = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "append_line", "arguments": {"text": id}}});
    client.say(&json!([call("a"), {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "append_line"}}, call("b"), {"id": "p", "method": "ping"}]));
    let answers = client.hear("a batch of answers", Value::is_array);
    let mut ids: Vec<&str> = answers.as_array().unwrap().iter().filter_map(|answer| answer["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!((ids, world.effects().len()), (vec!["a", "b", "p"], 2));
    client.done();
    let mut client = greeted(&world, "2025-11-25");
    client.say(&json!([call("c")]));
    let refused = client.hear("a refusal", |message| message["error"]["code"] == -32600);
    assert!(refused.to_string().contains("batch") && world.effects().len() == 2, "{refused}");
    client.done();
    world.check();
}

/// What cannot be carried exactly is refused by its name; in a result it is marked.
#[test]
fn no_value_is_changed_without_a_word() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    for (value, word) in [
        ("20000000000000000001", "20000000000000000001"),
        ("0.1000000000000000055", "0.1000000000000000055"),
        (r#""\ud83d""#, r"\ud83d"),
        (r#"1,"amount":2"#, "twice"),
    ] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"v","method":"tools/call","params":{{"name":"charge_card","arguments":{{"amount":{value}}}}}}}"#
        );
        client.say_bytes(line.as_bytes());
        let refused = client.hear("a refusal", |message| message["id"] == "v");
        assert!(refused["error"]["message"].as_str().unwrap().contains(word), "{refused}");
        let value = value.replace("amount", "n");
        let raw =
            format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"structuredContent":{{"n":{value}}}}}}}"#);
        std::fs::write(world.path("stub/raw"), raw).unwrap();
        let read = client.result("read_page", &json!({"page": "1"}));
        assert!(
            read["_meta"]["dev.universal-agent/changed"].to_string().contains(&word.replace('\\', r"\\")),
            "{read}"
        );
        std::fs::remove_file(world.path("stub/raw")).unwrap();
    }
    assert!(world.effects().is_empty());
    client.done();
    world.check();
}

/// A tool server whose answer says two things: further in, the client has the one reading that the ledger has, and is told; in the frame,
/// by which it is told whether the call happened, there is no reading, and the call is in doubt.
#[test]
fn of_a_result_that_says_two_things_the_client_has_what_the_ledger_has() {
    for is_remote in [false, true] {
        let world = if is_remote { GatewayWorld::remote() } else { GatewayWorld::new() };
        let mut client = world.client().greet();
        for (number, (result, read)) in [
            (r#"{"content":[{"type":"text","text":"paid","text":"declined"}]}"#, "declined"),
            (r#"{"content":[{"type":"text","text":"paid","\u0074ext":"declined"}]}"#, "declined"),
            (
                r#"{"content":[{"type":"text","text":"in all"}],"structuredContent":{"a":[{"paid":1,"paid":2}]}}"#,
                "in all",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            std::fs::write(world.path("stub/raw"), format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{result}}}"#))
                .unwrap();
            let had = client.result("append_line", &json!({"text": format!("{number}")}));
            assert!(text(&had).starts_with(read) && text(&had).contains("given twice"), "{had}");
            assert!(had["_meta"]["dev.universal-agent/changed"][0].as_str().unwrap().contains("twice"), "{had}");
            let call = world.calls("append_line").pop().unwrap();
            let kept = world.receipt(&call).unwrap();
            assert_eq!((call.status, kept), (ua_core::CallStatus::Succeeded, had));
        }
        for (number, frame) in [
            r#""result":{"content":[],"isError":true,"is\u0045rror":false}"#,
            r#""result":{"content":[]},"result":{"content":[]}"#,
            r#""result":{"content":[]},"error":{"code":-32601,"message":"no"},"id":ID"#,
        ]
        .into_iter()
        .enumerate()
        {
            std::fs::write(world.path("stub/raw"), format!(r#"{{"jsonrpc":"2.0","id":ID,{frame}}}"#)).unwrap();
            let had = client.result("append_line", &json!({"text": format!("frame {number}")}));
            assert_eq!(crate::world::told(&had), "unknown", "{frame}: {had}");
            let call = world.calls("append_line").pop().unwrap();
            assert_eq!((call.status, world.receipt(&call)), (ua_core::CallStatus::Unknown, None));
        }
        assert_eq!(world.effects().len(), 6);
        std::fs::remove_file(world.path("stub/raw")).unwrap();
        client.done();
        world.check();
    }
}

/// What says nothing costs no answer; what answers a request that it does not name may answer the one that waits, and nobody waits for ever.
#[test]
fn a_message_that_says_nothing_is_passed_over_and_an_answer_without_a_name_is_not() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}"#;
    let nothing = [
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":null}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"level":"info","data":"as 1.0 has it"}}"#,
    ];
    std::fs::write(world.path("stub/raw"), format!("{}\n{answer}", nothing.join("\n"))).unwrap();
    let had = client.result("append_line", &json!({"text": "behind nothing"}));
    assert_eq!(text(&had), "done");
    // It is told, and nobody is asked for an answer to it.
    let told = client.hear("what it tells", |message| message["method"] == "notifications/message");
    assert_eq!((&told["params"]["data"], told.get("id")), (&json!("as 1.0 has it"), None));
    for (number, answer) in [
        r#""id":null,"error":{"code":-32700,"message":"cannot parse"}"#,
        r#""error":{"code":-32603,"message":"it broke"}"#,
        r#""id":null,"result":{"content":[]}"#,
        r#""id":ID,"result":null"#,
        r#""id":ID,"result":{}"#,
        r#""id":ID,"result":{"content":"done"}"#,
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(world.path("stub/raw"), format!(r#"{{"jsonrpc":"2.0",{answer}}}"#)).unwrap();
        let had = client.result("append_line", &json!({"text": format!("nameless {number}")}));
        assert_eq!(crate::world::told(&had), "unknown", "{answer}: {had}");
        // A read is made again some times before.
        if number == 0 {
            let read = client.call("read_page", &json!({"page": "1"}));
            let read = client.answer(read);
            assert_eq!(read["error"]["code"], -32700, "{answer}: {read}");
        }
    }
    std::fs::remove_file(world.path("stub/raw")).unwrap();
    client.done();
    world.check();
}
