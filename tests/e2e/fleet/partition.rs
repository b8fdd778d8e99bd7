//! Lines to the server that hold, answer nothing, or break behind a byte.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{Live, TestEnv, until, until_or_tell};
use ua_testkit::postgres::SERVER;
use ua_testkit::{Proxy, Way};

use super::{
    answer_all, asked, asked_about, at_the_gate_with, end_the_lease, is_all_done, is_whole, open_the_gate, rows, state,
    status, until_all_is_done,
};
use crate::server_database::{cluster, on_server};

/// A world on a server, and a line of its own to it.
fn behind_a_line(name: &str) -> Option<(TestEnv, Proxy, String)> {
    let (env, direct) = on_server(name, false)?;
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let proxy = Proxy::before(cluster()?.socket(SERVER)).unwrap();
    let url = proxy.url(name);
    Some((env, proxy, url))
}

fn ends(workers: impl IntoIterator<Item = Live>) {
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.wait().code(0);
    }
}

/// The worker's line is held while its tool is at work, both ways or one; others take it for dead. Its answer is stored when the line is there
/// again, and nobody has sent anything meanwhile.
#[test]
fn a_worker_that_is_cut_off_stores_its_answer_when_it_is_back() {
    for (name, ways) in [
        ("fleet_both_ways", &[Way::Asked, Way::Answered][..]),
        ("fleet_asked", &[Way::Asked]),
        ("fleet_answered", &[Way::Answered]),
    ] {
        let Some((env, proxy, url)) = behind_a_line(name) else { return };
        let first = at_the_gate_with(&env, &["--database-url", &url]);
        for way in ways {
            proxy.hold(*way);
        }
        end_the_lease(&env, Some(name), "first");
        let second = env.start(&["worker", "--name", "second"]);
        until_or_tell(
            "the second worker has looked",
            || second.stderr().contains("of dead workers"),
            || format!("{name}\n{}\n{}\n{:?}", first.stderr(), second.stderr(), rows(&env, &["queue", "list"])),
        );
        open_the_gate(&env);
        // Whatever was held is lost; of what was asked, the server may have done it and not have been heard.
        proxy.cut();
        proxy.pass();
        until("the end", || is_all_done(&env) || answer_all(&env, &|_| 1));
        until("the end", || is_all_done(&env));
        assert_eq!((env.comments().len(), status(&env, "r")), (1, "succeeded".to_owned()), "{name}");
        ends([first, second]);
    }
}

/// The line breaks behind another byte each time, of what is asked or of what is answered.
#[test]
fn a_line_that_breaks_behind_any_byte_costs_time_and_no_effect() {
    let Some((env, proxy, url)) = behind_a_line("fleet_bytes") else { return };
    let (jobs, breaks) = if is_whole() { (60, 240) } else { (6, 12) };
    for number in 0..jobs {
        let input = json!({"text": format!("of {number}.")});
        let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
        let job = env.named_job(&format!("job{number}"), &json!({"tools": {"builtin": false}}), &turns);
        env.run(&["submit", &job, "--run-id", &format!("r{number}")]).code(0);
    }
    let workers =
        ["a", "b"].map(|name| env.start(&["worker", "--concurrency", "2", "--name", name, "--database-url", &url]));
    for worker in &workers {
        until("the worker", || worker.stderr().contains("takes runs"));
    }
    let words = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
    let mut broken = 0;
    for number in 0..breaks {
        let way = if number % 2 == 0 { Way::Asked } else { Way::Answered };
        proxy.cut_after(way, 400 + number * 677 % 9_000);
        until("a break", || proxy.is_used_up() || answer_all(&env, &words) || is_all_done(&env));
        broken += usize::from(proxy.is_used_up());
        proxy.pass();
    }
    until_all_is_done(&env, &workers, &words);
    ends(workers);
    for number in 0..jobs {
        let found = (words(&format!("of {number}.")), status(&env, &format!("r{number}")));
        assert_eq!(found, (1, "succeeded".to_owned()), "run r{number} of {jobs}, {broken} breaks");
    }
    assert!(broken > 2, "the line broke {broken} times");
}

/// A line that swallows everything, and says nothing: the worker says that it hangs, and goes on when the line is there again. Before each change
/// for as long as it takes to be noticed by others, at night until it notices itself.
#[test]
fn a_black_hole_is_noticed_and_survived() {
    let Some((env, proxy, url)) = behind_a_line("fleet_hole") else { return };
    let first = at_the_gate_with(&env, &["--database-url", &url, "--listen", "127.0.0.1:0"]);
    let address = super::address_of(&first);
    assert!(asked(&address, "/readyz").contains("200 OK"));
    for way in [Way::Asked, Way::Answered] {
        proxy.hold(way);
    }
    open_the_gate(&env);
    if is_whole() {
        // Longer than a lease.
        until("it says so", || first.stderr().contains("the database has not answered for 10 s"));
        until("its lease has ended", || asked(&address, "/readyz").contains("503"));
        until("it hangs", || asked(&address, "/healthz").contains("503"));
    } else {
        proxy.delay(Duration::from_millis(20));
    }
    assert_eq!(state(&env, "r"), "claimed");
    proxy.pass();
    until("the run", || status(&env, "r") == "succeeded");
    until("it is ready", || asked(&address, "/readyz").contains("200 OK"));
    assert!(asked(&address, "/healthz").contains("200 OK"));
    assert_eq!((env.comments().len(), asked_about(&env, Some("fleet_hole"))), (1, Vec::new()));
    ends([first]);
}

/// A server that answers nothing does not keep a worker that is told to stop beyond the time that whoever stops it gives it (`deploy/`). What came of
/// its call was not stored, and whoever has the run next asks.
#[test]
#[ignore = "half a minute; `.ci/nightly`"]
fn a_worker_that_is_told_to_stop_ends_though_the_database_answers_nothing() {
    let Some((env, proxy, url)) = behind_a_line("fleet_hung") else { return };
    let first = at_the_gate_with(&env, &["--database-url", &url, "--drain", "1s"]);
    for way in [Way::Asked, Way::Answered] {
        proxy.hold(way);
    }
    first.signal(Signal::TERM);
    open_the_gate(&env);
    let begun = ua_core::system::env().now();
    first.wait().code(0).says(&["the database answers nothing"]);
    let took = ua_core::system::env().now().since(begun);
    assert!(took < Duration::from_secs(36), "{took:?}");
    proxy.cut();
    proxy.pass();
    until("its run is asked about", || {
        env.run(&["worker", "--until-empty"]).code(0);
        state(&env, "r") == "parked"
    });
    answer_all(&env, &|_| 1);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((env.comments().len(), status(&env, "r")), (1, "succeeded".to_owned()));
}
