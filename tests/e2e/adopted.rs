//! How a run is started is this user's word, not that of the database (threat S9 of docs/security.md): roots of others, and rows that somebody wrote.

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

/// Three reads, of which one process does one.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn reads(env: &TestEnv) -> String {
    let page = |n| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": format!("page {n}")}}]});
    let turns: Vec<Value> = (0..3).map(page).chain([json!({"text": "Done."})]).collect();
    let job = env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_turns": 1}}), &json!(turns));
    let servers = env.mcp_config("work/servers.json", &json!({"forum": env.forum_entry(&[])}));
    env.run(&["job", &job, "--run-id", "r", "--mcp-config", &servers]).code(75);
    assert!(std::fs::exists(env.database_path()).unwrap());
    servers
}

/// As somebody writes to the database beside `ua`.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn write(env: &TestEnv, sql: &str) {
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    assert!(database.execute(sql, []).unwrap() > 0, "{sql}");
}

#[test]
fn s9_a_root_of_somebody_else_starts_nothing_before_a_word_about_its_servers() {
    let env = env();
    let servers = reads(&env);
    // From here on another user has it.
    let me = env.arg("another_home");
    let run = |args: &[&str]| env.start_with(("HOME", &me), args).wait();
    let root = env.arg("root");
    let resume = ["resume", "r", "--max-turns", "+1"];
    run(&resume).refused(2, &["forum", "not trusted yet", "your own ua did not begin this run", "ua trust"]);
    // What a folder's runs would start is shown, and a word about the folder is none about that.
    let elsewhere = env.arg("third_home");
    let shown = env.start_with(("HOME", &elsewhere), &["trust", &root, "--root", "unused"]).wait().code(2);
    shown.shows(&["1 of them not finished", "servers of ", "servers.json", "forum: ", "`ua trust FILE`"]);
    run(&["trust", &root, "--yes"]);
    run(&resume).refused(2, &["not trusted yet"]);
    run(&["fork", "r"]).refused(2, &["not trusted yet"]);
    let calls = || env.value("SELECT count(*) FROM tool_calls");
    assert_eq!(calls(), "1", "nothing was called");
    // Each of these words is one about its servers.
    run(&[&resume[..], &["--mcp-config", &servers]].concat()).code(75).says(&["counts as found"]);
    assert_eq!(calls(), "2");
    run(&[&resume[..], &["--trust-root"]].concat()).code(75);
    assert_eq!(calls(), "3");
    run(&["trust", &servers, "--yes"]).code(0);
    run(&resume).code(0);
}

#[test]
fn s9_a_row_that_somebody_wrote_is_no_word_of_the_users() {
    let env = env();
    reads(&env);
    let resume = ["resume", "r", "--max-turns", "+1"];
    for change in [
        "UPDATE runs SET launch_json = json_set(launch_json, '$.allow_private_addresses', json('true'))",
        "UPDATE runs SET launch_json = json_remove(launch_json, '$.seal')",
        "UPDATE runs SET launch_json = json_set(launch_json, '$.seal', '00')",
    ] {
        let before = env.value("SELECT launch_json FROM runs");
        write(&env, change);
        env.run(&resume).refused(2, &["not trusted yet"]);
        write(&env, &format!("UPDATE runs SET launch_json = '{}'", before.replace('\'', "''")));
    }
    env.run(&resume).code(75);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "2");
}

/// What lies beside a job file is open to the run that this user began. A row names a job file wherever whoever wrote it likes.
#[test]
fn s9_a_run_without_a_seal_reads_nothing_beside_its_job_file() {
    let env = env();
    let page = |n: u32| {
        let file = env.write(&format!("work/notes{n}.md"), format!("The word of page {n} is quern{n}quern."));
        json!({"tools": [{"name": "mcp__ua__crawl_parallel", "input": {"urls": [format!("file://{file}")]}}]})
    };
    let turns = [page(1), page(2), page(3), json!({"text": "Done."})];
    let fields = json!({"budgets": {"max_turns": 1}, "escalation": {"ask_human_on_tainted_effect": false}});
    let job = env.job(&fields, &json!(turns));
    // The copies of pages that were read lie in the workspace.
    let is_read = |n: u32| {
        let word = format!("quern{n}quern");
        let found = std::process::Command::new("grep").arg("-rlF").arg(word).arg(env.workspace()).output().unwrap();
        !found.stdout.is_empty()
    };
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    assert!(is_read(1));
    let resume = ["resume", "r", "--max-turns", "+1"];
    let sealed = env.value("SELECT launch_json FROM runs");
    write(&env, "UPDATE runs SET launch_json = json_remove(launch_json, '$.seal')");
    let resumed = env.run(&resume);
    let calls = env.calls();
    assert!(calls.len() == 2 && calls[1].contains(" failed"), "{calls:?}: {}", resumed.shown());
    assert!(!is_read(2), "{}", resumed.shown());
    // With its seal it is this user's again.
    write(&env, &format!("UPDATE runs SET launch_json = '{}'", sealed.replace('\'', "''")));
    env.run(&resume).code(75);
    assert!(is_read(3) && !is_read(2));
}

/// Where a run works is a row as well: it reads and writes in a workspace below its root, and nowhere else.
#[test]
fn s9_a_row_that_names_another_workspace_leads_no_run_out_of_its_root() {
    let env = env();
    reads(&env);
    let own = env.value("SELECT workspace_dir FROM runs");
    let (home, root) = (env.path("home/of_the_user"), env.root());
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(root.join("outbox")).unwrap();
    env.write("home/of_the_user/thesis.txt", "years of work");
    let listed = |folder: &std::path::Path| {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = listed(&home);
    for folder in
        [home.clone(), root.clone(), root.join("locks"), root.join("outbox"), root.join("../home/of_the_user")]
    {
        write(&env, &format!("UPDATE runs SET workspace_dir = '{}'", folder.display()));
        let refused = ["not a workspace below a root of yours"];
        env.run(&["resume", "r", "--max-turns", "+1"]).refused(2, &refused);
        env.run(&["fork", "r"]).refused(2, &refused);
        env.run(&["runs", "export", "r"]);
        env.run(&["runs", "cancel", "r", "--yes"]).refused(2, &refused);
        assert_eq!(listed(&home), before, "{}", folder.display());
        for name in ["transcript.md", "logs", "run.log"] {
            assert!(!root.join(name).exists() && !root.join("locks").join(name).exists(), "{name}");
        }
        assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "1");
    }
    write(&env, &format!("UPDATE runs SET workspace_dir = '{own}'"));
    env.run(&["resume", "r", "--max-turns", "+1"]).code(75);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "2");
}

/// Who accepts says so in their name; the row alone says nothing.
#[test]
fn s9_servers_are_accepted_by_a_person_and_not_by_a_row() {
    let env = env();
    reads(&env);
    env.mcp_config("work/servers.json", &json!({"forum": env.forum_entry(&["--with", "frobnicate"])}));
    let resume = ["resume", "r", "--max-turns", "+1"];
    let changed = ["forum", "changed since the run was stored"];
    env.run(&resume).refused(75, &changed);
    env.run(&[&resume[..], &["--accept", "servers,tools"]].concat()).code(75);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "2");
    write(&env, "UPDATE overrides SET value_json = json_remove(value_json, '$.seal') WHERE component = 'servers'");
    env.run(&resume).refused(75, &changed);
    env.run(&[&resume[..], &["--accept", "servers"]].concat()).code(75);
    env.run(&resume).code(0);
}

/// An earlier version made no seals. What it left in a database that is this user's own goes on unattended; what comes into it later does not.
#[test]
fn runs_of_an_earlier_version_go_on_and_those_that_come_later_do_not() {
    let env = env();
    reads(&env);
    let notes = env.path("home/.local/state/ua/launches");
    std::fs::remove_dir_all(&notes).unwrap();
    write(&env, "UPDATE runs SET launch_json = json_remove(launch_json, '$.seal')");
    let resume = ["resume", "r", "--max-turns", "+1"];
    env.run(&resume).code(75);
    env.run(&resume).code(75);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "3");
    write(&env, "UPDATE runs SET launch_json = json_set(launch_json, '$.allow_private_addresses', json('true'))");
    env.run(&resume).refused(2, &["not trusted yet"]);
}

/// A word about a file is about what its words name where it lies: a checkout has a link to it, and a program of its own under that name.
#[test]
fn s9_a_link_to_a_trusted_file_starts_what_was_looked_at() {
    let env = env();
    let script = |name: &str, mark: &str| env.write(name, format!("touch {}\nexit 1\n", env.arg(mark)));
    script("other/server.sh", "trusted");
    script("work/server.sh", "brought");
    let servers = json!({"mcpServers": {"a": {"command": "/bin/sh", "args": ["server.sh"]}}});
    let file = env.write("other/.mcp.json", servers.to_string());
    env.run_bare(&["trust", &file, "--yes"]).code(0);
    std::os::unix::fs::symlink(&file, env.path("work/.mcp.json")).unwrap();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    for args in [&["job", job.as_str()][..], &["tools", "list"]] {
        env.run(args);
        assert!(env.path("trusted").exists() && !env.path("brought").exists(), "{args:?}");
    }
}
