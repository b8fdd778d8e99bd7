//! Calls reach their tool server in the order in which they were asked for, however quickly one comes behind the other and whoever asks.

use serde_json::{Value, json};

use crate::http::HttpClient;
use crate::world::{Client, GatewayWorld, until};

/// Drawn from a seed.
struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1))
    }

    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What is asked for, in order: the session and the tool of each call.
fn drawn(chance: &mut Chance, sessions: u64) -> Vec<(u64, &'static str)> {
    let tools = ["append_line", "append_line", "send_email", "charge_card", "read_page"];
    let count = 3 + chance.below(5);
    let tool = |draw: u64| tools[usize::try_from(draw).unwrap()];
    (0..count).map(|_| (chance.below(sessions), tool(chance.below(5)))).collect()
}

/// Arguments by which a call is found again, and no other is the same.
fn arguments(tool: &str, place: usize) -> Value {
    match tool {
        "send_email" => json!({"to": format!("a{place}@example.com"), "subject": place.to_string(), "body": "x"}),
        "charge_card" => json!({"amount": place}),
        "read_page" => json!({"page": place.to_string()}),
        _ => json!({"text": place.to_string()}),
    }
}

/// The places of the calls that the tool server was sent, in the order in which it was.
fn sent(world: &GatewayWorld) -> Vec<usize> {
    let said = world.said();
    let calls = said.iter().filter(|message| message["method"] == "tools/call");
    let place = |arguments: &Value| {
        let text = |name: &str| arguments[name].as_str().and_then(|text| text.parse().ok());
        text("subject").or_else(|| text("page")).or_else(|| text("text")).or_else(|| arguments["amount"].as_u64())
    };
    calls.map(|call| usize::try_from(place(&call["params"]["arguments"]).unwrap()).unwrap()).collect()
}

/// In each session an effect is sent behind all that was asked for before it, and a read behind all but those effects that wait for an answer.
fn hold_against(asked: &[(u64, &str)], sent: &[usize], what: &str) {
    assert_eq!(sent.len(), asked.len(), "{what}: {asked:?} {sent:?}");
    let at = |place: usize| sent.iter().position(|one| *one == place).unwrap();
    for (later, (session, tool)) in asked.iter().enumerate() {
        let is_read = *tool == "read_page";
        let mut has_effect_before = false;
        for (earlier, (_, before)) in asked.iter().enumerate().take(later).filter(|(_, (of, _))| of == session) {
            let is_effect = *before != "read_page";
            let may_be_passed = is_read && is_effect && has_effect_before;
            has_effect_before |= is_effect;
            assert!(may_be_passed || at(earlier) < at(later), "{what}: {later} before {earlier}: {asked:?} {sent:?}");
        }
    }
}

/// Lines of a client, all in one write or some at a time, as the first thing of a connection or behind another one.
#[test]
fn calls_on_a_line_are_sent_in_the_order_of_their_lines() {
    for seed in 0..24 {
        let mut chance = Chance::of(seed);
        let world = GatewayWorld::new();
        let mut client = world.client();
        client.is_stateless = chance.below(3) == 0;
        if chance.below(2) == 0 {
            client.info = json!({"name": "o", "version": "1"});
        }
        let mut client = client.greet();
        if chance.below(2) == 0 {
            let id = client.request("tools/list", &json!({}));
            client.answer(id);
        }
        let sessions = 1 + chance.below(2);
        let asked = drawn(&mut chance, sessions);
        let pause = chance.below(3);
        let mut ids = Vec::new();
        for (place, (session, tool)) in asked.iter().enumerate() {
            client.session = (sessions > 1).then(|| format!("s{session}"));
            ids.push(client.call(tool, &arguments(tool, place)));
            std::thread::sleep(std::time::Duration::from_millis(pause)); // any time is a case
        }
        for id in ids {
            assert!(!client.answer(id)["result"]["isError"].as_bool().unwrap_or(false));
        }
        hold_against(&asked, &sent(&world), &format!("seed {seed}"));
        client.done();
        world.check();
    }
}

/// All of a batch, and what comes right behind it.
#[test]
fn calls_of_a_batch_are_sent_in_its_order() {
    let world = GatewayWorld::new();
    let mut client = world.client();
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client.info});
    let id = client.request("initialize", &params);
    client.answer(id);
    let asked: Vec<(u64, &str)> =
        (0..8).map(|place| (0, if place % 4 == 3 { "read_page" } else { "append_line" })).collect();
    let call = |place: usize| {
        let tool = asked[place].1;
        json!({"jsonrpc": "2.0", "id": 100 + place, "method": "tools/call", "params": {"name": tool, "arguments": arguments(tool, place)}})
    };
    client.say(&(0..6).map(call).collect());
    (6..8).for_each(|place| client.say(&call(place)));
    client.hear("the batch", Value::is_array);
    (106..108).for_each(|id| drop(client.answer(id)));
    hold_against(&asked, &sent(&world), "batch");
    client.done();
    world.check();
}

/// Requests over HTTP, each on a line of its own, and each behind the head of the answer to the one before.
#[test]
fn calls_over_http_are_sent_in_the_order_in_which_they_were_taken() {
    for seed in 0..8 {
        let mut chance = Chance::of(1_000 + seed);
        let world = GatewayWorld::new();
        let client = HttpClient::new(&world, "codex").greet();
        let asked = drawn(&mut chance, 1);
        let mut streams = Vec::new();
        for (place, (_, tool)) in asked.iter().enumerate() {
            let params = json!({"name": tool, "arguments": arguments(tool, place)});
            let message = json!({"jsonrpc": "2.0", "id": place, "method": "tools/call", "params": params});
            let stream = client.write("POST", &[], &message.to_string());
            assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
            streams.push(stream);
        }
        until("all to be sent", || (sent(&world).len() == asked.len()).then_some(()));
        hold_against(&asked, &sent(&world), &format!("seed {seed}"));
        drop(streams);
    }
}

/// Two clients of one project have no order between them, and neither waits for the other.
#[test]
fn one_sessions_order_holds_up_no_other() {
    let world = GatewayWorld::new();
    let (mut one, mut two): (Client, Client) = (world.session("s1").greet(), world.session("s2").greet());
    world.behave("hold");
    let first = one.call("append_line", &json!({"text": "0"}));
    world.until_effects(1);
    let second = two.call("append_line", &json!({"text": "1"}));
    world.until_effects(2);
    world.let_go();
    for (client, id) in [(&mut one, first), (&mut two, second)] {
        assert_eq!(client.answer(id)["result"]["isError"], false);
    }
    world.check();
}
