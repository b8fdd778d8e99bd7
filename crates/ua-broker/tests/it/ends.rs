//! How what is started by a bridge ends: asked by a signal, and when the client goes while its tool asks for something.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use ua_core::CallStatus;
use ua_store::EndedBy;

use crate::eras::signed;
use crate::world::{GatewayWorld, mail, text, told, until};

/// What the kernel says of a process: a mask of the signals that have names, by the name of the line. Of the others the C library keeps some
/// for itself, and whoever runs this test may do with the rest what it likes.
fn signals(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').trim();
    u64::from_str_radix(mask, 16).unwrap() & ((1 << 31) - 1)
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}

/// A bridge waits for its signals, and blocks them for that. Whatever it starts has none blocked, and a tool server ignores none.
#[test]
fn what_a_bridge_starts_can_be_asked_to_end() {
    let ends = [Signal::TERM, Signal::INT, Signal::HUP];
    for signal in ends {
        let world = GatewayWorld::new();
        let mut client = world.client().greet();
        client.result("append_line", &json!({"text": "a"}));
        let broker = world.broker_pid();
        let server: u32 = world.lines("servers").pop().unwrap().parse().unwrap();
        let shim = parent(server);
        assert_eq!(parent(shim), broker);
        for (who, pid) in [("broker", broker), ("shim", shim), ("server", server)] {
            assert_eq!(signals(pid, "SigBlk"), 0, "{who}");
        }
        let of_a_pipe = 1 << (Signal::PIPE.as_raw() - 1);
        assert_eq!(signals(server, "SigIgn") & !of_a_pipe, 0);
        client.done();
        // Whoever runs this test in the background may ignore it, and so does what it starts.
        if signals(broker, "SigIgn") >> (signal.as_raw() - 1) & 1 == 1 {
            assert_ne!(signal, Signal::TERM);
            continue;
        }
        kill_process(Pid::from_raw(i32::try_from(broker).unwrap()).unwrap(), signal).unwrap();
        until("the broker's end", || has_ended(broker).then_some(()));
        until("the tool server's end", || has_ended(server).then_some(()));
        world.check();
    }
}

/// What is under way is finished first, as `ua gateway stop` has it; who asks twice does not want to wait.
#[test]
fn a_signal_lets_what_is_under_way_finish_and_a_second_one_does_not() {
    for is_impatient in [false, true] {
        let world = GatewayWorld::new();
        world.behave("hold");
        let mut client = world.client().greet();
        let call = client.call("send_email", &mail());
        world.until_effects(1);
        let broker = world.broker_pid();
        let pid = Pid::from_raw(i32::try_from(broker).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        until("a broker that is ending", || world.status().filter(|status| status["is_ending"] == true));
        if is_impatient {
            kill_process(pid, Signal::TERM).unwrap();
            until("the broker's end", || has_ended(broker).then_some(()));
            let _gone = fs::remove_file(world.path("stub/hold"));
            assert_eq!(told(&client.answer(call)["result"]), "unknown");
            // The next broker knows that nobody killed it.
            let ends: Vec<_> = world.processes().into_iter().map(|process| (process.died, process.ended_by)).collect();
            assert_eq!(ends[0], (true, Some(EndedBy::Terminate)), "{ends:?}");
        } else {
            world.let_go();
            assert!(text(&client.answer(call)["result"]).starts_with("done, 1 so far"));
        }
        assert_eq!(world.effects().len(), 1);
        client.done();
        world.check();
    }
}

/// How a client goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goes {
    Killed,
    BridgeKilled,
}

/// A tool asks, and its client goes instead of answering: the tool hears that nobody answers, its call ends, and nobody else waits for it.
#[test]
fn a_tool_that_asks_a_client_that_goes_is_told_so() {
    for (goes, is_newer_server, is_newer_client) in [
        (Goes::Killed, false, false),
        (Goes::BridgeKilled, false, false),
        (Goes::Killed, true, false),
        (Goes::Killed, false, true),
        (Goes::Killed, true, true),
        (Goes::BridgeKilled, true, true),
    ] {
        let what = format!("{goes:?}, server {is_newer_server}, client {is_newer_client}");
        let world = GatewayWorld::new();
        if is_newer_server {
            world.behave("newer");
        }
        let params = json!({"name": "tell_secret", "arguments": {"to": "ask"}});
        let mut client = world.client();
        let call = if is_newer_client {
            client.request("tools/call", &signed(&json!({"elicitation": {}}), params.clone()))
        } else {
            client = client.greet();
            client.request("tools/call", &params)
        };
        if is_newer_client {
            let wanted = client.answer(call)["result"].clone();
            assert_eq!(wanted["resultType"], "input_required", "{what}: {wanted}");
        } else {
            client.hear("what the tool asks", |message| message["method"] == "elicitation/create");
        }
        match goes {
            Goes::Killed => client.killed(),
            Goes::BridgeKilled => client.bridge_killed(),
        }
        world.until_calls(0);
        // What became of it is the tool's own word.
        let record = world.calls("tell_secret").pop().unwrap();
        assert_eq!(record.status, CallStatus::Succeeded, "{what}: {record:?}");
        assert!(world.questions().is_empty(), "{what}");
        // Whoever asks for the same is asked, and waits for nobody.
        let mut next = world.client().greet();
        let call = next.request("tools/call", &params);
        let asked = next.hear("what the tool asks", |message| message["method"] == "elicitation/create");
        next.say(
            &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"size": "L"}}}),
        );
        assert_eq!(text(&next.answer(call)["result"]), "L", "{what}");
        next.done();
        world.check();
    }
}

/// A broker that ends takes one connection in the moment in which it closes them all. Whoever asked it finds the next one, or that there is
/// none: not that one is there which does not answer.
#[test]
fn a_broker_that_ends_while_it_is_asked_is_looked_for_again() {
    let ask = |after: Option<&'static str>| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (path, answer) = (socket.clone(), after);
        let broker = std::thread::spawn(move || {
            let (ending, _) = listener.accept().unwrap();
            if answer.is_none() {
                fs::remove_file(&path).unwrap();
            }
            drop(ending);
            let Some(answer) = answer else { return };
            let (mut next, _) = listener.accept().unwrap();
            BufReader::new(&next).read_line(&mut String::new()).unwrap();
            next.write_all(answer.as_bytes()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = runtime.block_on(ua_broker::ask_broker(&socket, false)).unwrap();
        broker.join().unwrap();
        told
    };
    assert_eq!(ask(None), None);
    assert_eq!(ask(Some(r#"{"is_ending":true}"#)), Some(json!({"is_ending": true})));
}
