//! A broker that is there and does nothing, as one that is stopped in its terminal: whoever comes is told so, and by which process.

use std::fs;
use std::io::ErrorKind;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::world::{GatewayWorld, until};

pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn the_broker(world: &GatewayWorld) -> Self {
        let pid = Pid::from_raw(i32::try_from(world.broker_pid()).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        // A signal that was sent has not stopped each of its threads yet.
        until("each thread to stop", || {
            let threads = fs::read_dir(format!("/proc/{}/task", world.broker_pid())).ok()?.flatten();
            let mut stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
            stats.all(|stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))).then_some(())
        });
        Self(pid)
    }

    fn goes_on(&self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _gone = kill_process(self.0, Signal::CONT);
    }
}

/// A client is answered, and nothing of what it asked for is done later; with the broker it goes on.
#[test]
fn a_client_of_a_broker_that_is_stopped_is_told_so() {
    let world = GatewayWorld::new();
    let mut first = world.client().greet();
    let stopped = Stopped::the_broker(&world);
    let pid = world.broker_pid();
    let mut client = world.client();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client.info});
    let handshake = client.request("initialize", &params);
    let call = client.call("append_line", &json!({"text": "a"}));
    for id in [handshake, call] {
        let answer = client.answer(id);
        let why = answer["error"]["message"].as_str().unwrap_or_default();
        let wanted = [format!("process {pid}"), format!("`kill -CONT {pid}`"), format!("`kill -KILL {pid}`")];
        assert!(wanted.iter().all(|wanted| why.contains(wanted)), "{answer}");
    }
    stopped.goes_on();
    let mut client = client.greet();
    assert_eq!(client.result("append_line", &json!({"text": "b"}))["isError"], false);
    assert_eq!(world.effects().len(), 1, "{:?}", world.effects());
    assert_eq!(first.result("append_line", &json!({"text": "c"}))["isError"], false);
    first.done();
    client.done();
    world.check();
}

#[test]
fn whoever_asks_a_broker_that_is_stopped_hears_which_process_it_is() {
    let world = GatewayWorld::new();
    let client = world.client().greet();
    let stopped = Stopped::the_broker(&world);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for stop in [false, true] {
        let error = runtime.block_on(ua_broker::ask_broker(&world.path("gateway.sock"), stop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let pid = world.broker_pid();
        let wanted = [format!("process {pid}"), format!("`kill -CONT {pid}`"), format!("`kill -KILL {pid}`")];
        assert!(wanted.iter().all(|wanted| error.to_string().contains(wanted)), "{error}");
    }
    stopped.goes_on();
    drop(client);
}
