//! Who starts the next broker: one of the bridges that find none, whatever becomes of that one.

use std::fs;

use serde_json::json;

use crate::world::{Client, GatewayWorld, kill, until};

const MANY: usize = 16;

fn reads(clients: &mut [Client]) {
    let asked: Vec<u64> = clients.iter_mut().map(|client| client.call("read_page", &json!({"page": "1"}))).collect();
    for (client, id) in clients.iter_mut().zip(asked) {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["structuredContent"]["page"], "1", "{answer}");
    }
}

/// The first broker of all, and the one after a kill: as many were started.
#[test]
fn of_many_bridges_one_starts_the_broker() {
    let world = GatewayWorld::new();
    let clients: Vec<Client> = (0..MANY).map(|_| world.client()).collect();
    let mut clients: Vec<Client> = clients.into_iter().map(Client::greet).collect();
    reads(&mut clients);
    assert_eq!((world.lines("starts").len(), world.lines("brokers").len()), (1, 1));
    world.kill_broker();
    reads(&mut clients);
    assert_eq!((world.lines("starts").len(), world.lines("brokers").len()), (2, 2));
}

/// Killed while it starts one, a bridge is missed by nobody: its program does it all the same, or another bridge does.
#[test]
fn whoever_starts_the_broker_may_be_killed() {
    for (kills_bridge, kills_program) in [(true, false), (false, true), (true, true)] {
        let world = GatewayWorld::new();
        let mut clients: Vec<Client> = (0..3).map(|_| world.client().greet()).collect();
        world.behave("hold_start");
        world.kill_broker();
        let starting = |nth: usize| until("a start", || world.lines("starts").get(nth).cloned());
        let first = starting(1);
        let (program, bridge) = first.split_once(' ').unwrap();
        if kills_bridge {
            let place = clients.iter().position(|client| client.pid().to_string() == bridge).unwrap();
            clients.remove(place).bridge_killed();
        }
        let mut starts = 2;
        if kills_program {
            kill(program.parse().unwrap());
            starting(2);
            starts += 1;
        }
        fs::remove_file(world.path("stub/hold_start")).unwrap();
        reads(&mut clients);
        assert_eq!((world.lines("starts").len(), world.lines("brokers").len()), (starts, 2), "{kills_bridge}");
    }
}

/// Where none starts, one bridge tries at a time and all know why: each client is told in its time, and served when one starts again.
#[test]
fn where_no_broker_starts_all_know_why_from_one() {
    let world = GatewayWorld::new();
    world.behave("no_start");
    let mut clients: Vec<Client> = (0..MANY).map(|_| world.client()).collect();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": clients[0].info});
    let asked: Vec<u64> = clients.iter_mut().map(|client| client.request("initialize", &params)).collect();
    for (client, id) in clients.iter_mut().zip(asked) {
        let answer = client.answer(id)["error"]["message"].to_string();
        assert!(answer.contains("there is no room") && !answer.contains("no broker answers"), "{answer}");
    }
    let tries = world.lines("starts").len();
    assert!(tries < 4 * MANY, "{tries}");
    fs::remove_file(world.path("stub/no_start")).unwrap();
    reads(&mut clients.into_iter().map(Client::greet).collect::<Vec<_>>());
}
