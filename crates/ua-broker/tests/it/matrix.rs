//! G13: kills at every boundary, of each process, for each policy. Effects are counted by the tool server; every asker is answered.

use serde_json::{Value, json};
use ua_store::{Choice, QuestionKind};

use crate::world::{Client, GatewayWorld, mail, text, told, until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Client,
    Bridge,
    Broker,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The request has left the client; nobody knows how far it came.
    Asked,
    /// The effect was made, the tool server has not answered.
    Done,
    /// The tool server may answer from now on.
    Answering,
    /// The client has its answer.
    Answered,
}

const ALL_WHO: [Who; 4] = [Who::Client, Who::Bridge, Who::Broker, Who::Server];
const ALL_WHEN: [When; 4] = [When::Asked, When::Done, When::Answering, When::Answered];

/// How the client speaks, and what it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// With a handshake, and the name of its session in each call.
    Named,
    /// With a handshake, and nothing else.
    Silent,
    /// Each request for itself, with the name of its session.
    Stateless,
}

const ALL_STYLES: [Style; 3] = [Style::Named, Style::Silent, Style::Stateless];

impl Style {
    fn client(self, world: &GatewayWorld) -> Client {
        let mut client = match self {
            Self::Named | Self::Stateless => world.session("s1"),
            Self::Silent => world.client(),
        };
        client.is_stateless = self == Self::Stateless;
        client.greet()
    }
}

fn case(who: Who, when: When, style: Style, tool: &str, arguments: &Value) {
    let world = GatewayWorld::new();
    let mut client = style.client(&world);
    // A tool server is there, so that it can be killed.
    client.result("read_page", &json!({"page": "1"}));
    if when == When::Done || when == When::Answering {
        world.behave("hold");
    }
    let id = client.call(tool, arguments);
    let mut answer = None;
    match when {
        When::Asked => {}
        When::Done => world.until_effects(1),
        When::Answering => {
            world.until_effects(1);
            world.let_go();
        }
        When::Answered => answer = Some(client.answer(id)["result"].clone()),
    }
    let mut client = kill(&world, client, who);
    if when == When::Done {
        world.let_go();
    }
    if let (Some(client), None) = (&mut client, &answer) {
        answer = Some(client.answer(id)["result"].clone());
    }
    settle(&world, style, client, answer, tool, arguments);
}

/// Kills one; the client, if there still is one.
fn kill(world: &GatewayWorld, client: Client, who: Who) -> Option<Client> {
    match who {
        Who::Client => client.killed(),
        Who::Bridge => client.bridge_killed(),
        Who::Broker => {
            world.kill_broker();
            return Some(client);
        }
        Who::Server => {
            world.kill_server();
            return Some(client);
        }
    }
    None
}

/// The client, or the next one of its session, asks until it has a result: then there was one effect.
fn settle(
    world: &GatewayWorld,
    style: Style,
    client: Option<Client>,
    mut answer: Option<Value>,
    tool: &str,
    arguments: &Value,
) {
    let has_it = client.is_some() && answer.as_ref().is_some_and(|answer| answer["isError"] == false);
    let mut client = client.unwrap_or_else(|| style.client(world));
    if !has_it {
        answer = Some(until_it_has_it(world, &mut client, tool, arguments));
    }
    let answer = answer.unwrap_or_default();
    assert!(answer["isError"] == false, "{answer}");
    assert_eq!(world.effects().len(), 1, "{answer}");
    client.done();
    world.check();
}

/// Asks for the same until there is a result. A person is asked at most once, and says what the tool server knows.
fn until_it_has_it(world: &GatewayWorld, client: &mut Client, tool: &str, arguments: &Value) -> Value {
    let mut answered = false;
    until("a result", || {
        let result = client.result(tool, arguments);
        if result["isError"] == false {
            return Some(result);
        }
        assert!(["unknown", "running", "broken", "not_sent"].contains(&told(&result)), "{}", text(&result));
        if told(&result) == "unknown" {
            assert!(!answered, "asked twice: {}", text(&result));
            answered = true;
            let questions = world.questions();
            let asked = questions.iter().find(|question| question.kind == QuestionKind::UnknownOutcome).unwrap();
            let happened = !world.effects().is_empty();
            world.answer(asked, if happened { Choice::Happened } else { Choice::Execute });
        }
        None
    })
}

fn all(style: Style, tool: &str, arguments: &Value) {
    for who in ALL_WHO {
        for when in ALL_WHEN {
            // What is printed belongs to the case that failed.
            eprintln!("{who:?} {when:?} {style:?} {tool}");
            case(who, when, style, tool, arguments);
        }
    }
}

#[test]
fn a_declared_effect_is_had_once_whoever_dies() {
    all(Style::Named, "send_email", &mail());
}

#[test]
fn a_keyed_effect_is_had_once_whoever_dies() {
    all(Style::Named, "charge_card", &json!({"amount": 7}));
}

#[test]
fn an_undeclared_effect_is_had_once_whoever_dies() {
    all(Style::Named, "append_line", &json!({"text": "a"}));
}

/// Also of a client that nothing names, which is another connection after a kill.
#[test]
fn an_undeclared_effect_of_a_client_that_nothing_names_is_had_once_whoever_dies() {
    all(Style::Silent, "append_line", &json!({"text": "a"}));
}

/// Anywhere between asking and having the answer: a place by chance.
fn somewhere(seed: u64) {
    let mut chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut draw = |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    let who = ALL_WHO[usize::try_from(draw(4)).unwrap()];
    let tools = [("send_email", mail()), ("charge_card", json!({"amount": 7})), ("append_line", json!({"text": "a"}))];
    let (tool, arguments) = &tools[usize::try_from(draw(3)).unwrap()];
    let micros = draw(25_000);
    let style = ALL_STYLES[usize::try_from(draw(3)).unwrap()];
    eprintln!("seed {seed}: {who:?} after {micros} µs of {tool}, {style:?}");
    let world = GatewayWorld::new();
    let mut client = style.client(&world);
    client.result("read_page", &json!({"page": "1"}));
    let id = client.call(tool, arguments);
    std::thread::sleep(std::time::Duration::from_micros(micros)); // any time is a case
    let mut client = kill(&world, client, who);
    let answer = client.as_mut().map(|client| client.answer(id)["result"].clone());
    settle(&world, style, client, answer, tool, arguments);
}

#[test]
fn a_client_of_the_newer_era_has_an_effect_once_whoever_dies() {
    for who in ALL_WHO {
        for when in ALL_WHEN {
            eprintln!("{who:?} {when:?}");
            case(who, when, Style::Stateless, "send_email", &mail());
        }
    }
}

#[test]
fn an_effect_is_had_once_whenever_somebody_dies() {
    (0..24).for_each(somewhere);
}

#[test]
#[ignore = "takes a quarter of an hour: the same at three thousand other moments"]
fn an_effect_is_had_once_at_thousands_of_moments() {
    (1_000..4_000).for_each(somewhere);
}
