//! Wrong inputs, as people make them: what each is answered, word for word, with which exit code; and that nothing was started.

use super::env;

/// What somebody got wrong: files, and the command that meets them.
struct Wrong {
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
}

const fn wrong(
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
) -> Wrong {
    Wrong { what, files, args }
}

const JOB: &[&str] = &["job", "j.json"];
const FINE: (&str, &str) = ("j.json", r#"{"objective": "x", "model": {"provider": "scripted", "script": "s.json"}}"#);
const SCRIPT: (&str, &str) = ("s.json", r#"{"turns": [{"text": "hi"}]}"#);

const WRONG: &[Wrong] = &[
    // Job files.
    wrong("no such job file", &[], &["job", "nowhere.json"]),
    wrong("a folder in the place of a job file", &[("d/x", "")], &["job", "d"]),
    wrong("an empty job file", &[("j.json", "")], JOB),
    wrong("a job file that is cut", &[("j.json", "{\"objective\": \"x\",\n \"inputs\": ")], JOB),
    wrong("a job file that is a list", &[("j.json", "[1, 2]")], JOB),
    wrong("no objective", &[("j.json", r#"{"inputs": {}}"#)], JOB),
    wrong("an empty objective", &[("j.json", r#"{"objective": " "}"#)], JOB),
    wrong("an objective of another type", &[("j.json", r#"{"objective": 7}"#)], JOB),
    wrong("a misspelt field", &[("j.json", r#"{"objective": "x", "stop_condition": []}"#)], JOB),
    wrong("a misspelt inner field", &[("j.json", r#"{"objective": "x", "budgets": {"max_toolcalls": 3}}"#)], JOB),
    wrong("a field twice", &[("j.json", r#"{"objective": "x", "objective": "y"}"#)], JOB),
    wrong("a negative budget", &[("j.json", r#"{"objective": "x", "budgets": {"max_tool_calls": -5}}"#)], JOB),
    wrong("a budget in words", &[("j.json", r#"{"objective": "x", "budgets": {"max_turns": "ten"}}"#)], JOB),
    wrong(
        "money without a currency",
        &[("j.json", r#"{"objective": "x", "budgets": {"max_cost": "1.50 euros"}}"#)],
        JOB,
    ),
    wrong(
        "a condition that does not exist",
        &[("j.json", r#"{"objective": "x", "stop_conditions": ["mail_sent"]}"#)],
        JOB,
    ),
    wrong(
        "a condition in other words",
        &[("j.json", r#"{"objective": "x", "stop_conditions": [{"artefact": "a.md"}]}"#)],
        JOB,
    ),
    wrong(
        "a file outside the workspace",
        &[("j.json", r#"{"objective": "x", "stop_conditions": [{"artifact": "../a.md"}]}"#)],
        JOB,
    ),
    wrong(
        "two phases of one name",
        &[(
            "j.json",
            r#"{"objective": "x", "phases": [{"name": "a", "instructions": "b"}, {"name": "a", "instructions": "c"}]}"#,
        )],
        JOB,
    ),
    wrong(
        "a workspace outside the root",
        &[
            (
                "j.json",
                r#"{"objective": "x", "model": {"provider": "scripted", "script": "s.json"}, "artifacts": {"workspace_dir": "../out"}}"#,
            ),
            SCRIPT,
        ],
        JOB,
    ),
    wrong(
        "a pattern that is none",
        &[
            (
                "j.json",
                r#"{"objective": "x", "model": {"provider": "scripted", "script": "s.json"}, "constraints": {"forbidden_actions": ["a[b"]}}"#,
            ),
            SCRIPT,
        ],
        JOB,
    ),
    // Models and scripts.
    wrong("an unknown provider", &[("j.json", r#"{"objective": "x", "model": {"provider": "antropic"}}"#)], JOB),
    wrong("no key for the provider", &[("j.json", r#"{"objective": "x", "model": {"provider": "anthropic"}}"#)], JOB),
    wrong("no model for the provider", &[("j.json", r#"{"objective": "x", "model": {"provider": "openai"}}"#)], JOB),
    wrong("a script that is not there", &[FINE, ("s.json.gone", "")], &["job", "j.json", "--quiet"]),
    wrong("a script with a misspelt field", &[FINE, ("s.json", r#"{"turns": [{"txt": "hi"}]}"#)], JOB),
    wrong(
        "a price table that is none",
        &[FINE, SCRIPT, ("p.toml", "[providers\n")],
        &["job", "j.json", "--pricing", "p.toml"],
    ),
    // Policies.
    wrong(
        "a policy that is no TOML",
        &[FINE, SCRIPT, ("p.toml", "[[rule]]\nid = \"a")],
        &["job", "j.json", "--policy", "p.toml"],
    ),
    wrong(
        "a policy with a misspelt field",
        &[FINE, SCRIPT, ("p.toml", "[[rule]]\nid = \"a\"\nname = \"b\"\nside_efect_class = \"external\"\n")],
        &["job", "j.json", "--policy", "p.toml"],
    ),
    wrong(
        "a policy with a value that does not exist",
        &[FINE, SCRIPT, ("p.toml", "[[rule]]\nid = \"a\"\nname = \"b\"\non_unknown = \"maybe\"\n")],
        &["job", "j.json", "--policy", "p.toml"],
    ),
    wrong(
        "two rules of one id",
        &[
            FINE,
            SCRIPT,
            (
                "p.toml",
                "[[rule]]\nid = \"a\"\nname = \"b\"\napproval = \"ask\"\n\n[[rule]]\nid = \"a\"\nname = \"c\"\napproval = \"ask\"\n",
            ),
        ],
        &["job", "j.json", "--policy", "p.toml"],
    ),
    // Tool servers.
    wrong(
        "a configuration that is cut",
        &[FINE, SCRIPT, ("m.json", "{\"mcpServers\": [")],
        &["job", "j.json", "--mcp-config", "m.json"],
    ),
    wrong(
        "a server with a misspelt field",
        &[FINE, SCRIPT, ("m.json", r#"{"mcpServers": {"a": {"command": "true", "arguments": []}}}"#)],
        &["job", "j.json", "--mcp-config", "m.json"],
    ),
    wrong(
        "a variable that is not set",
        &[FINE, SCRIPT, ("m.json", r#"{"mcpServers": {"a": {"command": "true", "args": ["${NO_SUCH_THING}"]}}}"#)],
        &["job", "j.json", "--mcp-config", "m.json"],
    ),
    wrong(
        "a program that is not there",
        &[FINE, SCRIPT, ("m.json", r#"{"mcpServers": {"a": {"command": "no-such-program"}}}"#)],
        &["job", "j.json", "--mcp-config", "m.json"],
    ),
    wrong(
        "a misspelt tool",
        &[
            (
                "j.json",
                r#"{"objective": "x", "model": {"provider": "scripted", "script": "s.json"}, "escalation": {"ask_human_before": ["notfy"]}}"#,
            ),
            SCRIPT,
        ],
        JOB,
    ),
    wrong(
        "a misspelt effect",
        &[
            (
                "j.json",
                r#"{"objective": "x", "model": {"provider": "scripted", "script": "s.json"}, "stop_conditions": [{"effect": "emial.send"}]}"#,
            ),
            SCRIPT,
        ],
        JOB,
    ),
    // Settings and arguments.
    wrong("a misspelt setting", &[("ua.toml", "rot = \"/r\"\n")], &["runs", "list"]),
    wrong("a setting that a project may not have", &[("ua.toml", "database = \"x.db\"\n")], &["runs", "list"]),
    wrong(
        "a secret that does not exist",
        &[
            (
                "j.json",
                r#"{"objective": "log in with ${secret:NOPE}", "model": {"provider": "scripted", "script": "s.json"}}"#,
            ),
            SCRIPT,
        ],
        JOB,
    ),
    wrong("a run id that is none", &[FINE, SCRIPT], &["job", "j.json", "--run-id", "../up"]),
    wrong("a run where none was begun", &[], &["resume", "nobody"]),
    wrong("a span of time that is none", &[], &["runs", "list", "--since", "soon"]),
    wrong("a word too many", &[FINE, SCRIPT], &["job", "j.json", "now"]),
    wrong("a flag that does not exist", &[], &["runs", "list", "--al"]),
    wrong("a command of another program", &[], &["run", "j.json"]),
    wrong("a command with a letter too few", &[], &["jb", "j.json"]),
    wrong("a job on standard input that is empty", &[], &["job", "-"]),
];

#[test]
fn forty_wrong_inputs_are_answered_in_plain_words() {
    let mut page = String::new();
    for Wrong { what, files, args } in WRONG {
        let env = env();
        for (name, text) in *files {
            env.write(&format!("work/{name}"), text);
        }
        let output = env.run(args);
        let folder = env.path("").display().to_string();
        let said = output.stderr.replace(folder.trim_end_matches('/'), "[folder]");
        let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        page.push_str(&format!("## {what}\n{}\n\n", lines.join("\n").trim_end()));
        output.code(2);
        // A root that was made holds nothing but what every root has.
        assert!(!env.database_path().exists() || env.rows("SELECT run_id FROM runs").is_empty(), "{what}");
        assert_eq!(env.effects(), [0, 0, 0, 0], "{what}");
    }
    // Where there are runs, it is another one that is wrong.
    let env = env();
    for (name, text) in [FINE, SCRIPT] {
        env.write(&format!("work/{name}"), text);
    }
    env.run(JOB).code(0);
    let output = env.run(&["resume", "nobody"]);
    let said = output.stderr.replace(env.path("").display().to_string().trim_end_matches('/'), "[folder]");
    page.push_str(&format!("## a run that does not exist\n{}\n\n", said.trim_end()));
    output.code(2);
    assert!(WRONG.len() >= 40);
    insta::assert_snapshot!("wrong_inputs", page);
}

/// What helps is about what is wrong: a file in the place of a folder belongs to nobody else, and a server that is down has no command.
#[test]
fn a_hint_is_about_what_is_wrong() {
    let env = env();
    let file = env.write("root-file", "");
    env.run_in(file.as_ref(), &["runs", "list"])
        .refused(74, &[&format!("{file} is a file, but must be a folder"), "choose another folder with --root"]);
    let down = env.write("down.json", r#"{"mcpServers": {"down": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}}"#);
    let listed = env.run(&["tools", "list", "--mcp-config", &down]).code(2);
    assert!(!listed.stderr.contains("command"), "{}", listed.stderr);
    listed.says(&["cannot be reached", "check that the server is running"]);
}
