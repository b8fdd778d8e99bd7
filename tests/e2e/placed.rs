//! Links that a checkout brought: no command repeats a word of what they lead to, and none writes there.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::env;

/// Files of a person, which are on many machines: a token, a list of passwords, settings of other programs.
const SECRETS: [&str; 6] = [
    "hushhush\n",
    "hushhush:hush:hush\n",
    "\"hushhush\"\n",
    "[hushhush]\nhush = \"hush\"\n",
    "{\"hushhush\": \"hush\"}\n",
    "{\"objective\": \"hush\", \"hushhush\": 1, \"mcpServers\": {\"hushhush\": 1}}\n",
];

/// Every file that a checkout may bring and a command reads, with the commands.
const READ: [(&str, &[&str]); 19] = [
    ("job.json", &["job", "job.json"]),
    ("job.json", &["job", "--check", "job.json"]),
    ("job.json", &["submit", "job.json"]),
    ("job.json", &["doctor", "--job", "job.json"]),
    ("job.json", &["schedule", "add", "s", "job.json", "--cron", "@daily"]),
    ("job.json", &["tools", "explain", "x", "--job", "job.json"]),
    (".mcp.json", &["tools", "list"]),
    (".mcp.json", &["trust"]),
    (".mcp.json", &["login", "x"]),
    (".mcp.json", &["gateway", "install", "--file", ".mcp.json"]),
    ("mcp.lock", &["tools", "lock", "--check", "--mcp-config", "servers.json"]),
    ("mcp.lock", &["tools", "list", "--mcp-config", "servers.json"]),
    ("ua.toml", &["status"]),
    ("ua.toml", &["config", "show"]),
    ("policy.toml", &["trust", "policy.toml"]),
    ("policy.toml", &["tools", "explain", "x", "--policy", "policy.toml"]),
    ("prices.toml", &["job", "good.json", "--pricing", "prices.toml"]),
    ("changes.json", &["fork", "r", "--at-turn", "1", "--job-overrides", "changes.json"]),
    ("tape.jsonl", &["job", "played.json", "--cassette", "tape.jsonl"]),
];

#[test]
fn s17_no_command_says_what_a_link_out_of_a_checkout_leads_to() {
    let env = env();
    let turns = json!([{"text": "Done."}]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(0);
    env.named_job("good", &json!({"tools": {"builtin": false}}), &turns);
    env.write("work/played.json", json!({"objective": "x", "model": {"provider": "replay"}}).to_string());
    env.write("work/servers.json", json!({"mcpServers": {}}).to_string());
    fs::create_dir(env.path("work/.git")).unwrap();
    fs::remove_file(env.path("work/job.json")).unwrap();
    for secret in SECRETS {
        env.write("home/secret", secret);
        for (file, command) in READ {
            let place = env.path("work").join(file);
            symlink("../home/secret", &place).unwrap();
            let output = env.run(command);
            fs::remove_file(&place).unwrap();
            // A long line is broken somewhere.
            let told = output.shown().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(!told.contains("hush"), "{command:?} of {secret:?}: {told}");
            assert!(
                told.contains("nothing of it is shown") || told.contains("is a link that leads out"),
                "{command:?}: {told}"
            );
        }
    }
    // A file that lies there is explained.
    env.write("work/job.json", "{\"objective\": \"x\", \"hushhush\": 1}");
    env.run(&["job", "job.json"]).refused(2, &["hushhush"]);
}

/// Each command that writes where a person names, and a name that a link is on the way to.
const WRITE: [(&[&str], &str); 13] = [
    (&["runs", "export", "r", "--out"], "copy"),
    (&["runs", "export", "r", "--out"], "copy/deeper"),
    (&["runs", "export", "r", "--json", "--out"], "copy/run.json"),
    (&["runs", "export", "r", "--transcript", "--out"], "copy/"),
    (&["runs", "export", "r", "--html"], "copy/page.html"),
    (&["db", "backup"], "copy/copy.db"),
    (&["db", "backup"], "new.db"),
    (&["init"], "copy"),
    (&["man", "--out"], "copy"),
    (&["tools", "lock", "--mcp-config"], "copy/servers.json"),
    (&["gateway", "install", "--file"], "client.json"),
    (&["job", "good.json", "--record"], "copy/tape.jsonl"),
    (&["job", "good.json", "--record"], "copy"),
];

#[test]
fn s17_nothing_is_written_through_a_link_of_a_checkout() {
    let env = env();
    let turns = json!([{"text": "Done."}]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(0);
    env.named_job("good", &json!({"tools": {"builtin": false}}), &turns);
    fs::create_dir_all(env.path("home/private")).unwrap();
    env.write("home/private/servers.json", json!({"mcpServers": {}}).to_string());
    let client = json!({"mcpServers": {"x": {"command": "true"}}}).to_string();
    env.write("home/client.json", &client);
    symlink("../home/private", env.path("work/copy")).unwrap();
    symlink("../home/private/new.db", env.path("work/new.db")).unwrap();
    symlink("../home/client.json", env.path("work/client.json")).unwrap();
    for (command, place) in WRITE {
        let all = [command, &[place]].concat();
        let output = env.run(&all).code(2).says(&["is a link that leads out of its folder", "name the place itself"]);
        assert_eq!(output.stdout, "", "{all:?}");
    }
    let there: Vec<_> = fs::read_dir(env.path("home/private")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(there, ["servers.json"], "nothing was written");
    assert_eq!(env.read("home/client.json"), client);
    // The place itself, and a link within the folder, are what their user names.
    env.run(&["runs", "export", "r", "--out", &env.arg("home/private")]).code(0);
    fs::create_dir(env.path("work/there")).unwrap();
    symlink("there", env.path("work/here")).unwrap();
    env.run(&["runs", "export", "r", "--out", "here"]).code(0);
    assert!(env.path("work/there/transcript.md").is_file());
}
