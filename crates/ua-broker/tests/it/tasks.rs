//! Calls that a tool server goes on with as a task, of either era: one effect, and one answer, which is what the task ended with and never its
//! name, whoever dies meanwhile and whoever asks again.

use serde_json::{Value, json};
use ua_core::{CallStatus, RunId};

use crate::eras::signed;
use crate::world::{Client, GatewayWorld, mail, text, told, until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    Nobody,
    Client,
    Bridge,
    Broker,
    Server,
    /// The broker, and then whoever asked.
    All,
}

const ALL_DIE: [Dies; 6] = [Dies::Nobody, Dies::Client, Dies::Bridge, Dies::Broker, Dies::Server, Dies::All];

/// How a task may end.
const ENDS: [&str; 5] = ["completed", "refused", "failed", "cancelled", "gone"];

fn state(world: &GatewayWorld, state: &str) {
    // In one step, since the tool server reads it at any time.
    std::fs::write(world.path("stub/task_state.new"), state).unwrap();
    std::fs::rename(world.path("stub/task_state.new"), world.path("stub/task_state")).unwrap();
}

/// How often tasks were asked how they stand.
fn looks(world: &GatewayWorld) -> usize {
    world.said().iter().filter(|message| message["method"] == "tasks/get").count()
}

fn until_more_looks(world: &GatewayWorld, more: usize) {
    let before = looks(world);
    until("a task to be asked", || (looks(world) >= before + more).then_some(()));
}

fn world(era: &str) -> GatewayWorld {
    let world = GatewayWorld::new();
    world.behave("tasks");
    world.behave(era);
    state(&world, "working");
    world
}

fn case(era: &str, tool: &str, dies: Dies, end: &str) {
    let case = format!("{era} {tool} {dies:?} {end}");
    let world = world(era);
    let arguments = if tool == "send_email" { mail() } else { json!({"text": "x"}) };
    let mut client = world.session("s1").greet();
    let mut asked = client.call(tool, &arguments);
    until_more_looks(&world, 1);
    let running = world.calls(tool).pop().unwrap();
    assert_eq!((running.status, world.receipt(&running)), (CallStatus::Running, None), "{case}: its name is no answer");
    let survives = match dies {
        Dies::Nobody => Some(client),
        Dies::Client => {
            client.killed();
            None
        }
        Dies::Bridge => {
            client.bridge_killed();
            None
        }
        Dies::Broker => {
            world.kill_broker();
            Some(client)
        }
        Dies::Server => {
            world.kill_server();
            Some(client)
        }
        Dies::All => {
            world.kill_broker();
            client.killed();
            None
        }
    };
    if matches!(dies, Dies::Client | Dies::Bridge) {
        // Nobody waits, and the task is still asked: its tool server is not ended between two questions.
        until_more_looks(&world, 3);
        // A bridge that is told of its client's end late may have asked through a second one.
        let first = format!("/proc/{}", world.lines("servers")[0]);
        assert!(std::path::Path::new(&first).exists(), "{case}");
    }
    let mut client = survives.unwrap_or_else(|| {
        let mut next = world.session("s1").greet();
        asked = next.call(tool, &arguments);
        next
    });
    until_more_looks(&world, 1);
    // Whoever asks beside it waits for the same: its own session, and where the effect is known by its content the whole project.
    let beside = client.call(tool, &arguments);
    let mut other = (tool == "send_email").then(|| world.session("s2").greet());
    let others = other.as_mut().map(|other| other.call(tool, &arguments));
    world.until_askers(if other.is_some() { 3 } else { 2 });
    assert_eq!(world.effects().len(), 1, "{case}: {:?}", world.effects());
    state(&world, end);
    let mut answers = vec![client.answer(asked), client.answer(beside)];
    if let (Some(other), Some(id)) = (&mut other, others) {
        answers.push(other.answer(id));
    }
    let is_known = matches!(end, "completed" | "refused");
    for answer in answers {
        let result = &answer["result"];
        assert!(result.get("taskId").is_none() && result.get("task").is_none(), "{case}: {answer}");
        if is_known {
            assert!(text(result).starts_with("done, 1 so far"), "{case}: {answer}");
            assert_eq!(result["isError"], json!(end == "refused"), "{case}: {answer}");
        } else {
            assert_eq!(told(result), "unknown", "{case}: {answer}");
        }
    }
    let call = world.calls(tool).pop().unwrap();
    let status = match end {
        "completed" => CallStatus::Succeeded,
        "refused" => CallStatus::FailedReported,
        _ => CallStatus::Unknown,
    };
    assert_eq!((call.status, world.attempts(&call).len()), (status, 1), "{case}");
    if end != "completed" && end != "refused" {
        assert_eq!(world.questions().len(), 1, "{case}");
        let again = client.result(tool, &arguments);
        assert_eq!(told(&again), "unknown", "{case}: {again}");
    }
    assert_eq!(world.effects().len(), 1, "{case}");
    world.check();
}

/// Over both eras, all who may die, and all ends.
#[test]
fn a_task_of_the_newer_era_is_one_effect_and_its_end_is_the_answer() {
    for dies in ALL_DIE {
        for end in ENDS {
            case("newer", "send_email", dies, end);
        }
    }
}

#[test]
fn a_task_of_the_older_era_is_one_effect_and_its_end_is_the_answer() {
    for dies in ALL_DIE {
        for end in ENDS {
            case("older", "send_email", dies, end);
        }
    }
}

/// What is not known by its content is the same call in its session, and where nobody knows what came of it.
#[test]
fn a_task_that_is_not_known_by_its_content_is_not_begun_twice() {
    for era in ["newer", "older"] {
        for dies in ALL_DIE {
            case(era, "append_line", dies, if dies == Dies::Server { "gone" } else { "completed" });
        }
    }
}

/// A client is told nothing of tasks, whatever it says of itself, and has the result of its call.
#[test]
fn a_client_is_not_told_of_tasks() {
    for era in ["newer", "older"] {
        let world = world(era);
        state(&world, "completed");
        let follows = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut newer = world.client();
        let id = newer.request("server/discover", &signed(&follows, json!({})));
        let found = newer.answer(id);
        assert!(!found.to_string().contains("tasks"), "{found}");
        let id = newer.request("tools/list", &signed(&follows, json!({})));
        let listed = newer.answer(id);
        assert!(!listed.to_string().contains("taskSupport") && listed["result"]["tools"].is_array(), "{listed}");
        let call = json!({"name": "read_page", "arguments": {"page": "1"}, "task": {"ttl": 1}});
        let id = newer.request("tools/call", &signed(&follows, call.clone()));
        let read = newer.answer(id);
        assert_eq!(
            (&read["result"]["structuredContent"]["page"], &read["result"]["resultType"]),
            (&json!("1"), &json!("complete")),
            "{read}"
        );
        for method in ["tasks/get", "tasks/cancel", "tasks/list", "tasks/result", "tasks/update"] {
            let id = newer.request(method, &signed(&follows, json!({"taskId": "t"})));
            assert_eq!(newer.answer(id)["error"]["code"], -32601, "{method}");
        }
        newer.killed();

        let mut older = world.client();
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"tasks": {"cancel": {}}},
            "clientInfo": {"name": "older", "version": "1"}});
        let id = older.request("initialize", &params);
        let greeted = older.answer(id);
        assert!(!greeted.to_string().contains("tasks"), "{greeted}");
        older.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let id = older.request("tools/list", &json!({}));
        assert!(!older.answer(id).to_string().contains("taskSupport"));
        let id = older.request("tools/call", &call);
        let read = older.answer(id);
        assert_eq!(read["result"]["structuredContent"]["page"], "1", "{read}");
        older.done();
        world.check();
    }
}

fn comes_back(client: &mut Client, call: &Value, size: &str) -> Value {
    let follows = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let id = client.request("tools/call", &signed(&follows, call.clone()));
    let wanted = client.answer(id);
    let result = &wanted["result"];
    assert_eq!(result["resultType"], "input_required", "{wanted}");
    let (name, request) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Which size?");
    let mut back = call.clone();
    back["requestState"] = result["requestState"].clone();
    back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": size}}});
    let id = client.request("tools/call", &signed(&follows, back));
    client.answer(id)["result"].clone()
}

/// What a task asks for is asked of the client whose call it is, in its own era, once.
#[test]
fn what_a_task_asks_for_is_its_clients_to_answer() {
    for server in ["newer", "older"] {
        let call = json!({"name": "append_line", "arguments": {"text": "x"}});
        let first = world(server);
        state(&first, "input_required");
        let mut newer = first.client();
        let answer = comes_back(&mut newer, &call, "small");
        assert_eq!(text(&answer), "small", "{server}: {answer}");
        newer.killed();

        let second = world(server);
        state(&second, "input_required");
        let mut older = second.client().greet();
        let id = older.call("append_line", &json!({"text": "x"}));
        let asked = older.hear("the task's question", |message| message["method"] == "elicitation/create");
        older.say(
            &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"size": "large"}}}),
        );
        let answer = older.answer(id);
        assert_eq!(text(&answer["result"]), "large", "{server}: {answer}");
        older.done();
        for world in [first, second] {
            assert_eq!((world.effects().len(), world.lines("updated").len()), (1, usize::from(server == "newer")));
            world.check();
        }
    }
}

/// An answer that the task did not take is no answer: it says itself that it still asks, and its client is asked again.
#[test]
fn what_a_task_did_not_take_is_asked_for_again() {
    let world = world("newer");
    state(&world, "input_required");
    world.behave("refuse_update");
    let mut client = world.client().greet();
    let id = client.call("append_line", &json!({"text": "x"}));
    for size in ["enormous", "large"] {
        let asked = client.hear("the task's question", |message| message["method"] == "elicitation/create");
        let content = json!({"action": "accept", "content": {"size": size}});
        client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": content}));
    }
    let answer = client.answer(id);
    assert_eq!(text(&answer["result"]), "large", "{answer}");
    client.done();
    assert_eq!((world.effects().len(), world.lines("updated").len()), (1, 1));
    world.check();
}

/// The answer that its client brings along is the answer, also where the broker that asked was killed: nobody is asked twice, and another task's
/// question, or the same one behind it, is not answered by it.
#[test]
fn what_a_client_was_asked_for_is_answered_to_whichever_broker() {
    let follows = json!({"elicitation": {}});
    let call = json!({"name": "append_line", "arguments": {"text": "x"}});
    for server in ["newer", "older"] {
        let world = world(server);
        state(&world, "input_required");
        let mut client = world.client();
        let id = client.request("tools/call", &signed(&follows, call.clone()));
        let wanted = client.answer(id)["result"].clone();
        let name = wanted["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        world.kill_broker();
        let mut back = call.clone();
        back["requestState"] = wanted["requestState"].clone();
        back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "small"}}});
        let id = client.request("tools/call", &signed(&follows, back));
        let answer = client.answer(id)["result"].clone();
        assert_eq!(text(&answer), "small", "{server}: {answer}");
        assert_eq!((world.effects().len(), world.lines("updated").len()), (1, usize::from(server == "newer")));
        client.killed();
        world.check();
    }
}

/// An answer whose shape no client can read leaves an effect in doubt and makes a read an error, in both eras.
#[test]
fn an_answer_of_the_wrong_shape_is_none() {
    for era in ["newer", "older"] {
        let world = GatewayWorld::new();
        world.behave(era);
        let mut client = world.client().greet();
        let shapes = ["null", "\"sent\"", "7", "[]", "{\"content\":\"sent\"}"];
        for (number, shape) in shapes.into_iter().enumerate() {
            let line = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{shape}}}"#);
            std::fs::write(world.path("stub/raw"), line).unwrap();
            // A read is made again some times before.
            if number == 0 {
                let read = client.call("read_page", &json!({"page": shape}));
                let read = client.answer(read);
                assert_eq!(read["error"]["code"], -32700, "{era} {shape}: {read}");
            }
            let sent = client.result("append_line", &json!({"text": shape}));
            assert_eq!(told(&sent), "unknown", "{era} {shape}: {sent}");
            assert!(text(&sent).contains("cannot be read"), "{era} {shape}: {sent}");
            assert!(world.calls("append_line").iter().all(|call| call.status == CallStatus::Unknown), "{era} {shape}");
            assert_eq!(world.questions().len(), number + 1, "{era} {shape}");
        }
        client.done();
        world.check();
    }
}

/// The same of what a task ends with.
#[test]
fn a_task_that_ends_with_the_wrong_shape_is_in_doubt() {
    for era in ["newer", "older"] {
        for shape in ["null", "{\"content\":\"sent\"}"] {
            let world = world(era);
            let mut client = world.client().greet();
            let asked = client.call("append_line", &json!({"text": "x"}));
            until_more_looks(&world, 1);
            for entry in std::fs::read_dir(world.path("stub")).unwrap() {
                let entry = entry.unwrap();
                if entry.file_name().into_string().unwrap().starts_with("task_t") {
                    // The task is looked at meanwhile, and a file that is being written is empty.
                    std::fs::write(world.path("shape"), shape).unwrap();
                    std::fs::rename(world.path("shape"), entry.path()).unwrap();
                }
            }
            state(&world, "completed");
            let answer = client.answer(asked);
            assert_eq!(told(&answer["result"]), "unknown", "{era} {shape}: {answer}");
            assert!(text(&answer["result"]).contains("cannot be read"), "{era} {shape}: {answer}");
            assert_eq!((world.calls("append_line")[0].status, world.questions().len()), (CallStatus::Unknown, 1));
            client.done();
            world.check();
        }
    }
}

/// What does not say how the task stands, or says it of another one, is no answer: it is asked again.
#[test]
fn a_task_that_does_not_say_how_it_stands_is_asked_again() {
    for era in ["newer", "older"] {
        for is_other in [true, false] {
            let world = world(era);
            if is_other {
                world.behave("other_task");
            }
            state(&world, if is_other { "completed" } else { "paused" });
            let mut client = world.session("s1").greet();
            let asked = client.call("send_email", &mail());
            until_more_looks(&world, 2);
            assert_eq!(world.calls("send_email")[0].status, CallStatus::Running);
            if is_other {
                std::fs::remove_file(world.path("stub/other_task")).unwrap();
            } else {
                state(&world, "completed");
            }
            let answer = client.answer(asked);
            assert!(text(&answer["result"]).starts_with("done, 1 so far"), "{answer}");
            client.done();
            world.check();
        }
    }
}

/// A broker that is told to end leaves the task to the next one, and whoever waits has its answer.
#[test]
fn a_task_outlives_a_broker_that_ends() {
    for era in ["newer", "older"] {
        let world = world(era);
        let mut client = world.session("s1").greet();
        let id = client.call("send_email", &mail());
        until_more_looks(&world, 1);
        world.stop_broker();
        until_more_looks(&world, 2);
        state(&world, "completed");
        let answer = client.answer(id);
        assert!(text(&answer["result"]).starts_with("done, 1 so far"), "{answer}");
        assert_eq!(world.effects().len(), 1);
        client.done();
        world.check();
    }
}

/// A person who ends the session of a call that is at work says nothing of what came of it.
#[test]
fn a_session_that_is_ended_leaves_its_task_in_doubt() {
    let world = world("newer");
    let mut client = world.session("s1").greet();
    let id = client.call("send_email", &mail());
    until_more_looks(&world, 1);
    let run: RunId = world.calls("send_email").pop().unwrap().run_id;
    world.end(&run);
    let answer = client.answer(id);
    assert_eq!(told(&answer["result"]), "unknown", "{answer}");
    assert_eq!(world.effects().len(), 1);
}

/// A kind of result that nobody knows is none.
#[test]
fn a_result_of_an_unknown_kind_is_no_answer() {
    for kind in ["later", "Task", "tasks", "7"] {
        let world = GatewayWorld::new();
        world.behave("newer");
        let line = json!({"jsonrpc": "2.0", "id": "@", "result": {"resultType": kind, "taskId": "t", "content": []}});
        std::fs::write(world.path("stub/raw"), line.to_string().replace("\"@\"", "ID")).unwrap();
        let mut client = world.client().greet();
        let sent = client.result("send_email", &mail());
        assert_eq!(told(&sent), "unknown", "{kind}: {sent}");
        assert_eq!(world.calls("send_email")[0].status, CallStatus::Unknown);
        client.done();
        world.check();
    }
}
