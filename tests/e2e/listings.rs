//! Every command that shows something, on terminals of several widths: nothing is wider than the terminal, no word is broken, and what a
//! person acts on is there.
//!
//! The commands are found by walking the help. A new one has to say which it is: shown here, or none that shows.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::env;
use super::terminal::Screen;

/// Commands that do something, or whose output is a document for a machine or for `man`.
const NOT_SHOWN: [&str; 48] = [
    "init",
    "job",
    "resume",
    "fork",
    "submit",
    "worker",
    "queue move",
    "queue remove",
    "workers drain",
    "workers forget",
    "schedule add",
    "schedule pause",
    "schedule resume",
    "schedule run",
    "schedule remove",
    "runs delete",
    "runs export",
    "runs cancel",
    "calls probe",
    "calls resolve",
    "answer",
    "tools explain",
    "tools lock",
    "models show",
    "config show",
    "trust",
    "login",
    "logout",
    "doctor",
    "completions",
    "man",
    "schema",
    "db migrate",
    "db copy",
    "db backup",
    "db restore",
    "db accept",
    "db prune",
    "gateway install",
    "gateway uninstall",
    "gateway start",
    "gateway stop",
    "gateway restart",
    "gateway serve",
    "gateway token",
    "gateway hook",
    "toolserver",
    "runs diff",
];

/// Those that show, with what they need, and what has to stand there at any width. `{run}`, `{call}` and the like are the last eight
/// letters of ids.
const SHOWN: [(&str, &[&str], &[&str]); 19] = [
    ("status", &[], &["{waits}", "waiting for you"]),
    ("runs list", &[], &["{waits}", "{ended}", "waiting for you", "succeeded"]),
    ("runs list", &["--status", "succeeded"], &["{ended}", "succeeded"]),
    ("runs show", &["{waits}"], &["{waits}", "waiting for you"]),
    ("runs tail", &["{ended}", "--no-follow"], &["succeeded"]),
    ("turns show", &["{ended}", "1"], &["{ended}", "post_comment"]),
    ("calls list", &[], &["{call}", "succeeded"]),
    ("calls show", &["{call}"], &["{call}", "succeeded"]),
    ("questions", &[], &["{question}", "approve", "skip", "abort"]),
    ("queue depth", &[], &["default"]),
    ("queue list", &[], &["{queued}", "later"]),
    ("workers list", &[], &["here", "alive", "0/4"]),
    ("schedule list", &[], &["nightly", " UTC in "]),
    ("tools list", &[], &["write_local_file"]),
    ("tools audit", &[], &["mcp__forum__frobnicate"]),
    ("tools packs", &[], &["github"]),
    ("models list", &[], &["claude-sonnet-4-5"]),
    ("db check", &[], &["healthy"]),
    ("gateway status", &[], &[]),
];

/// Every command that has none below it, as it is typed.
fn commands(env: &TestEnv) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = env.run_bare(&args).code(0).stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What a command does stands behind it, or in a line below.
        let names: Vec<String> = listed
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            found.insert(path.join(" "));
        }
        open.extend(names.into_iter().map(|name| [path.clone(), vec![name]].concat()));
    }
    found
}

fn end_of(id: &str) -> String {
    id[id.len() - 8..].to_owned()
}

#[test]
fn every_listing_fits_every_terminal() {
    let known = env();
    let all = commands(&known);
    let named: BTreeSet<String> = SHOWN.iter().map(|(name, ..)| *name).chain(NOT_SHOWN).map(str::to_owned).collect();
    assert!(all.len() > 50, "{all:?}");
    assert_eq!(all, named, "say of each command whether it shows something");

    let env = env().with_forum();
    let objective =
        "Write a short, sourced report about tide mills from the given pages, publish it, and tell the team";
    let post = |text: &str| json!({"name": "mcp__forum__post_comment", "input": {"text": text}});
    let fields = |name: &str| json!({"job_key": name, "tools": {"builtin": false}, "objective": objective});
    let turns = json!([{"tools": [post("hello")]}, {"text": "Posted what there was to say about tide mills, and told the team that it is there."}]);
    let ended = env.named_job("ended", &fields("ended"), &turns);
    let servers = env.mcp_config("servers.json", &json!({"forum": env.forum_entry(&["--with", "frobnicate"])}));
    env.run(&["job", &ended, "--mcp-config", &servers]).code(0);
    let mut careful = fields("careful");
    careful["escalation"] = json!({"ask_human_before": ["post_comment"]});
    let careful = env.named_job("careful", &careful, &turns);
    env.run(&["job", &careful]).code(75);
    let later = env.named_job("later", &fields("later"), &turns);
    env.run(&["submit", &later, "--delay", "20h"]).code(0);
    env.run(&["schedule", "add", "nightly", &later, "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin"]).code(0);
    let worker = env.start(&["worker", "--name", "here", "--queue", "elsewhere"]);
    until("the worker", || env.run(&["workers", "list"]).stdout.contains("here"));
    let id = |sql: &str| end_of(&env.value(sql));
    let names = [
        ("{waits}", id("SELECT run_id FROM runs WHERE status = 'waiting_for_human'")),
        ("{ended}", id("SELECT run_id FROM runs WHERE status = 'succeeded'")),
        ("{queued}", id("SELECT run_id FROM runs WHERE status = 'queued'")),
        ("{call}", id("SELECT tool_call_id FROM tool_calls WHERE status = 'succeeded'")),
        ("{question}", id("SELECT question_id FROM questions")),
    ];
    let filled = |text: &str| names.iter().fold(text.to_owned(), |text, (name, id)| text.replace(name, id));
    // The beginning of what is shown will do.
    for (command, shown) in [("runs", &names[1].1), ("calls", &names[3].1)] {
        env.run(&[command, "show", &shown[..5]]).code(0);
    }
    for (command, args, wanted) in SHOWN {
        let words: Vec<String> =
            command.split(' ').map(str::to_owned).chain(args.iter().map(|arg| filled(arg))).collect();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.extend(["--color", "never"]);
        for columns in [40, 80, 120] {
            let mut screen = Screen::start_on(&env, columns, &words, &[]);
            let code = screen.end();
            let raw = screen.raw().replace('\r', "");
            assert_eq!(code, 0, "{command} at {columns}:\n{raw}");
            for line in raw.lines() {
                // A path or a digest that is wider than the terminal stays whole, so that it can be copied.
                let room = usize::from(columns);
                // So does a command.
                let named = |from: &str| line.find(from).map(|at| &line[at..]);
                let commands = ["`ua ", "  ua "].into_iter().filter_map(named);
                let longest = line.split_whitespace().chain(commands).map(|word| word.chars().count()).max();
                let longest = longest.unwrap_or_default();
                assert!(line.chars().count() <= room || longest + 24 > room, "{command} at {columns}: {line}\n{raw}");
                assert_eq!(line, line.trim_end(), "{command} at {columns}");
            }
            for text in wanted {
                assert!(raw.contains(&filled(text)), "{command} at {columns} does not show {text}:\n{raw}");
            }
        }
    }
    worker.signal(Signal::TERM);
    worker.wait();
}

/// A path is copied: however narrow the terminal, it stands whole on one line, alone on it where it does not fit beside its name. What lies in a folder
/// that is shown is named from there on, where the whole path has no room.
#[test]
fn paths_are_whole_on_every_terminal() {
    let env = env();
    let turns = json!([{"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/a.md", "content": "one"}}]}, {"text": "Done."}]);
    let fields = json!({"stop_conditions": [{"artifact": "work_products/a.md"}]});
    let job = env.named_job("a-job-with-a-name-that-takes-some-room", &fields, &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["schedule", "add", "nightly", &job, "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin"]).code(0);
    let workspace = env.workspace();
    let details = "job_completion_r.md".to_owned();
    let workspace = workspace.display().to_string();
    for columns in [40, 80] {
        for (command, wanted) in
            [(&["runs", "show", "r"][..], &[&workspace, &details][..]), (&["schedule", "list"][..], &[&job][..])]
        {
            let mut screen = Screen::start_on(&env, columns, &[command, &["--color", "never"]].concat(), &[]);
            assert_eq!(screen.end(), 0);
            let raw = screen.raw().replace('\r', "");
            for path in wanted {
                let is_whole = raw.lines().any(|line| line.contains(path.as_str()));
                assert!(is_whole, "{command:?} at {columns} cuts {path}:\n{raw}");
            }
        }
    }
}

/// Why a tool has its class is readable where most terminals are, and whole where no terminal reads.
#[test]
fn why_a_tool_has_its_class_is_readable_at_eighty_columns() {
    let env = env();
    for (columns, wanted) in [(80, Some("rule own-replacing-writes")), (40, None)] {
        let mut screen = Screen::start_on(&env, columns, &["tools", "list", "--color", "never"], &[]);
        assert_eq!(screen.end(), 0);
        let raw = screen.raw().replace('\r', "");
        let row = raw.lines().find(|line| line.starts_with("write_local_file")).expect("a row");
        assert!(!row.contains('…') && row.chars().count() <= usize::from(columns), "{columns}: {row}");
        assert!(wanted.is_none_or(|why| row.ends_with(why)), "{columns}: {row}");
        assert!(raw.contains("ua tools explain NAME"), "{raw}");
    }
    let whole = "rule own-replacing-writes of the built-in policy calls it local";
    env.run(&["tools", "list"]).code(0).shows(&[whole]);
}

/// A list that is empty for a slip reads as if nothing had been sent.
#[test]
fn calls_of_a_tool_that_nobody_has_are_refused_and_those_of_a_pattern_are_listed() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    env.run(&["calls", "list", "--tool", "anything"]).code(0).says(&["no such calls"]);
    env.run(&["job", &env.job(&json!({}), &turns), "--run-id", "r"]).code(0);
    for (typed, meant) in [("post_coment", "post_comment"), ("mcp__forun__*", "mcp__forum__*"), ("notfy", "notify")] {
        for run in [&[][..], &["--run", "r"]] {
            let words = [&["calls", "list", "--tool", typed], run].concat();
            env.run(&words).refused(2, &[typed, &format!("did you mean `{meant}`?")]);
        }
    }
    env.run(&["calls", "list", "--tool", "frobnicate"]).refused(2, &["no tool that was called or offered here"]);
    for all in ["post_comment", "mcp__forum__post_comment", "mcp__forum__*", "post_?omment"] {
        env.run(&["calls", "list", "--tool", all]).code(0).shows(&["post_comment"]);
    }
    // What is there and was not called is no slip.
    env.run(&["calls", "list", "--tool", "notify"]).code(0).says(&["no such calls"]);
}
