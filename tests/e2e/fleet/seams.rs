//! A worker is killed at each seam of a turn; others take its run, and the receiving ends count each effect once.

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::{answer_all, asked_about, is_all_done, is_whole, on_both, status};

/// Where a worker dies, and whether its comment may have been sent then and takes no key: only there may a person be asked.
const POINTS: [(&str, bool); 26] = [
    ("before:store.acquire_run", false),
    ("after:store.acquire_run", false),
    ("before:store.open_step", false),
    ("after:store.open_step", false),
    ("before:store.reserve_request", false),
    ("after:store.reserve_request", false),
    ("before:model.complete", false),
    ("after:model.complete", false),
    ("before:store.record_turn", false),
    ("after:store.record_turn", false),
    ("before:tool.invoke:send_email", false),
    ("after:tool.invoke:send_email", false),
    ("before:store.settle_attempt:send_email", false),
    ("after:store.settle_attempt:send_email", false),
    ("before:model.complete#2", false),
    ("before:store.start_attempt:post_comment", false),
    ("after:store.start_attempt:post_comment", true),
    ("before:tool.invoke:post_comment", true),
    ("after:tool.invoke:post_comment", true),
    ("before:store.settle_attempt:post_comment", true),
    ("after:store.settle_attempt:post_comment", false),
    ("before:store.commit_turn", false),
    ("after:store.commit_turn", false),
    ("before:model.complete#3", false),
    ("before:store.end_run", false),
    ("after:store.end_run", false),
];

/// Those that are played before each change: one of a kind.
const QUICK: [&str; 7] = [
    "before:store.acquire_run",
    "after:store.acquire_run",
    "after:tool.invoke:send_email",
    "before:tool.invoke:post_comment",
    "after:tool.invoke:post_comment",
    "after:store.settle_attempt:post_comment",
    "after:store.end_run",
];

fn job(env: &TestEnv, number: usize) -> String {
    let mail = json!({"to": ["team@example.test"], "subject": format!("mail of {number}."), "body": "As promised."});
    let comment = json!({"text": format!("comment of {number}.")});
    let turns = json!([
        {"tools": [{"name": "mcp__ua__send_email", "input": mail}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": comment}]},
        {"text": "Both are out."},
    ]);
    env.named_job(&format!("job{number}"), &json!({}), &turns)
}

#[test]
fn a_worker_that_is_killed_at_a_seam_costs_no_effect() {
    let points: Vec<_> = POINTS.iter().filter(|(point, _)| is_whole() || QUICK.contains(point)).collect();
    on_both("fleet_seams", |env, database| {
        for (number, _) in points.iter().enumerate() {
            let (run, queue) = (format!("r{number}"), format!("seam{number}"));
            env.run(&["submit", &job(env, number), "--run-id", &run, "--queue", &queue]).code(0);
        }
        for (number, (point, _)) in points.iter().enumerate() {
            let (name, queue) = (format!("victim{number}"), format!("seam{number}"));
            env.run_killed_at(point, &["worker", "--name", &name, "--queue", &queue]);
        }
        let survivors = ["a", "b"].map(|name| env.start(&["worker", "--concurrency", "4", "--name", name]));
        let comments = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
        until("the end", || {
            answer_all(env, &comments);
            is_all_done(env)
        });
        for survivor in survivors {
            survivor.signal(Signal::TERM);
            survivor.wait().code(0);
        }
        let asked = asked_about(env, database);
        let mails: Vec<String> = env.mails().iter().map(|mail| std::fs::read_to_string(mail).unwrap()).collect();
        for (number, (point, may_ask)) in points.iter().enumerate() {
            let run = format!("r{number}");
            let mails = mails.iter().filter(|mail| mail.contains(&format!("mail of {number}."))).count();
            let found = (mails, comments(&format!("comment of {number}.")), status(env, &run));
            assert_eq!(found, (1, 1, "succeeded".to_owned()), "killed {point}");
            assert!(*may_ask || !asked.contains(&run), "killed {point}: nobody had to be asked");
        }
    });
}
