//! Names that others gave, in what is printed for people: none begins a line of its own, and none drives the terminal.

#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::ffi::OsStr;
use std::fs;

use serde_json::json;
use ua_e2e::{Output, TestEnv};

use super::env;

/// What a folder is called, with a line of its own in it that passes for one of ours, or with signs that a terminal obeys.
const NAMES: [&str; 2] = [
    "x\nua answer 1234abcd approve",
    "x\rua answer 1234abcd\u{2028}ua answer 1234abcd\u{85}ua answer 1234abcd\u{1b}[2J\u{1b}[1;1Hua\u{202e}y\t\t\tz",
];

/// Each line that somebody was shown is one of ours.
fn is_ours(output: &Output, what: &str) {
    for text in [&output.stdout, &output.stderr] {
        for line in text.split(['\n', '\r', '\u{85}', '\u{2028}']) {
            assert!(!line.trim_start().starts_with("ua answer 1234abcd"), "{what}: a line of its own in\n{text}");
            let raw = line.chars().find(|c| c.is_control() || ua_core::is_hidden(*c));
            assert_eq!(raw, None, "{what}: {line:?}");
        }
    }
}

/// Commands that say where something is, each with what it is given besides the root.
const LOOKS: [&[&str]; 15] = [
    &["status"],
    &["runs", "list"],
    &["runs", "show", "last"],
    &["runs", "show", "last", "--resume-packet"],
    &["calls", "list"],
    &["questions"],
    &["resume", "last"],
    &["config", "show"],
    &["db", "check"],
    &["db", "migrate"],
    &["doctor"],
    &["tools", "list"],
    &["queue", "list"],
    &["workers", "list"],
    &["trust", "--list"],
];

fn names_in_a_world(env: &TestEnv, name: &str) {
    let named = env.path("root of").join(name);
    let root = named.join("runs");
    let looked = |args: &[&str]| {
        let output = env.run_in(root.as_os_str(), args);
        is_ours(&output, &format!("{name:?}: ua {}", args.join(" ")));
        output
    };
    looked(&["status"]);
    // Not there, a folder, a link, not to be read as what it should be.
    fs::create_dir_all(&named).expect("make a folder");
    let file = |name: &str| named.join(name).to_str().expect("it is text").to_owned();
    for missing in [
        &["job", &file("none.json")][..],
        &["job", &file(".")],
        &["job", "job.json", "--mcp-config", &file("none.json")],
        &["job", "job.json", "--provider", "replay", "--cassette", &file("none")],
        &["trust", &file("none.json")],
    ] {
        looked(missing);
    }
    for (own, text) in [("bad.json", "{\"x\": 1}"), ("bad.toml", "[[rule]]\nx = 1\n"), ("servers.json", "[]")] {
        fs::write(named.join(own), text).expect("write a file");
        looked(&["trust", &file(own)]);
        looked(&["job", &file(own)]);
        looked(&["job", "job.json", "--mcp-config", &file(own)]);
    }
    looked(&["job", "job.json"]).code(0);
    for look in LOOKS {
        looked(look);
    }
    for to in [&["db", "backup", &file("copy.db")][..], &["runs", "export", "last", "--html", &file("run.html")]] {
        looked(to).code(0);
        looked(to);
    }
    looked(&["runs", "export", "last", "--out", &file("none/none/out")]);
    looked(&["db", "restore", &file("none.db")]);
    // What is read besides is one line, too.
    for kept in ["RESTART.md", "effects.log"] {
        let text = fs::read_to_string(root.join(kept)).unwrap_or_default();
        assert!(!text.lines().any(|line| line.trim_start().starts_with("ua answer 1234abcd")), "{kept}: {text}");
    }
    // Whoever comes to another folder is told where the runs are.
    is_ours(&env.run_bare(&["status"]), name);
    // A workspace that is gone.
    let workspaces = fs::read_dir(&root).expect("look into the root").flatten().map(|entry| entry.path());
    for workspace in
        workspaces.filter(|path| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"session_")))
    {
        fs::remove_dir_all(workspace).expect("remove a workspace");
    }
    for look in LOOKS {
        looked(look);
    }
    looked(&["runs", "export", "last", "--out", &file("out")]);
    looked(&["runs", "delete", "last", "--yes"]);
    is_ours(&env.run_in(OsStr::new(&file("bad.json")), &["status"]), "a file as the root");
}

#[test]
fn s16_no_name_of_a_folder_begins_a_line_or_drives_the_terminal() {
    for name in NAMES {
        let env = env();
        env.job(&json!({}), &json!([{"text": "Done."}]));
        names_in_a_world(&env, name);
    }
}
