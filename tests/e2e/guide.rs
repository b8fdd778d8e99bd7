//! The commands of README and the guide, run as a reader would: blocks that are marked `sh run` are given to a shell in which `ua` is on
//! the path and the fixtures lie in the current folder, one page after the other from top to bottom in a world of its own. Each block of
//! these pages is either run or says why it is not.
//!
//! Marks behind the language of a block, which no reader sees (without `=`, which doc tests do not take in such a place):
//!
//! - `run`: the block is run; every command of it has to succeed
//! - `exit:75`: its last command ends with this code
//! - `after:FILE`: this job is run before it
//! - `waits:FILE`: the same with a job that waits for somebody (exit code 75)
//! - `not:REASON`: the block is not run, for one of [`REASONS`]
//! - `output`, at a `text` block: each of its lines was printed by the block before it; `…` stands for anything, and a number or an id for
//!   any other

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ua_e2e::TestEnv;
use ua_testkit::docs::{Block, Page, pages};
use ua_testkit::postgres::SERVER;
use ua_testkit::workspace_root;

use crate::cluster::Cluster;

/// The pages with marked blocks; each has a test below.
const PAGES: [&str; 18] = [
    "README.md",
    "docs/guide/approvals.md",
    "docs/guide/budgets.md",
    "docs/guide/cli.md",
    "docs/guide/database.md",
    "docs/guide/first-job.md",
    "docs/guide/forks.md",
    "docs/guide/job-file.md",
    "docs/guide/long-runs.md",
    "docs/guide/models.md",
    "docs/guide/own-tool-servers.md",
    "docs/guide/policies.md",
    "docs/guide/resume-and-doubts.md",
    "docs/guide/telemetry.md",
    "docs/guide/tools.md",
    "docs/guide/troubleshooting.md",
    "docs/guide/workers.md",
    "docs/guide/workspace.md",
];

/// Why a block is not run, and what that means.
const REASONS: [(&str, &str); 8] = [
    ("build", "it compiles for minutes; `.ci/run` and the lane `outside` of `.ci/nightly` run the like of it"),
    ("client", "it changes or starts a program of somebody else, or speaks with a gateway in front of one"),
    ("forever", "it runs until somebody ends it"),
    ("key", "it needs an account with a provider"),
    ("service", "it sets up or speaks with a service of the machine"),
    ("state", "it is about a run in a state that no block before it leaves"),
    ("terminal", "a person types"),
    ("theirs", "it needs a server, a login or a file that only a reader has"),
];

/// What comes before a block: `ua` on the path, what the reader's shell has exported before, and a `sleep` that waits for what a reader waits
/// for, until a call is under way.
const PRELUDE: &str = r#"
set -e
mkdir -p ../bin
ln -sf "$1" ../bin/ua
PATH="$(cd ../bin && pwd):$PATH"
if [ -f ../bin/exported ]; then . ../bin/exported; fi
trap 'export -p | grep UA_ >../bin/exported || true' EXIT
sleep() {
    until ua calls list --json 2>/dev/null | grep -q '"running"'; do command sleep 0.1; done
}
"#;

fn is_run(block: &Block) -> bool {
    block.language() == "sh" && block.marks().any(|mark| mark == "run")
}

/// The value of a mark like `exit:75`.
fn mark<'a>(block: &'a Block, name: &str) -> Option<&'a str> {
    block.marks().find_map(|mark| mark.strip_prefix(name)?.strip_prefix(':'))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Jobs that pages speak of and do not show, each with the script of its model.
fn jobs() -> [(&'static str, Value, Value); 5] {
    let notify = json!({"tools": [{"name": "mcp__ua__notify", "input": {"message": "It is there."}}]});
    let ask = json!({"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": "Which one?"}}]});
    let write = |name: &str| {
        let input = json!({"path": format!("work_products/{name}.md"), "content": "Tide mills."});
        json!({"tools": [{"name": "mcp__ua__write_local_file", "input": input}]})
    };
    let end = || json!({"text": "Done."});
    let survey = json!({
        "objective": "Survey the tide mills of the coast.",
        "stop_conditions": [{"artifact": "work_products/survey.md"}]
    });
    let asks = json!({"objective": "Send a word.", "escalation": {"ask_human_before": ["run.notify"]}});
    [
        ("report", json!({"objective": "Write the report."}), json!([write("report"), end()])),
        ("survey", survey, json!([write("survey"), {"text": "<promise>SURVEY DONE</promise>"}])),
        ("asks", asks, json!([notify, end()])),
        ("wonders", json!({"objective": "Ask.", "escalation": {"ask_user": true}}), json!([ask, end()])),
        (
            "tight",
            json!({"objective": "Write.", "budgets": {"max_tool_calls": 1}}),
            json!([write("first"), write("second"), end()]),
        ),
    ]
}

/// The first block of a page in this language.
fn shown(path: &str, language: &str) -> String {
    let page = page(path);
    page.blocks.iter().find(|block| block.language() == language).unwrap().text.clone()
}

/// A world with the fixtures, with what pages show as files that a reader has, and with jobs that they speak of.
fn world() -> TestEnv {
    let env = super::env().with_pdf().with_env("ANTHROPIC_API_KEY", "a-key-for-nobody");
    copy(&workspace_root().join("fixtures"), &env.path("work/fixtures"));
    // A kill needs the wait of this job; it need not take as long as a reader needs.
    let waits = "work/fixtures/scripts/quick_resume_job.json";
    env.write(waits, env.read(waits).replace("\"30\"", "\"10\""));
    env.write("work/changes.json", shown("docs/guide/forks.md", "json"));
    env.write("work/servers.json", shown("docs/guide/own-tool-servers.md", "json"));
    for (name, mut job, turns) in jobs() {
        job["model"] = json!({"provider": "scripted", "script": format!("{name}_script.json")});
        env.write(&format!("work/{name}.json"), job.to_string());
        env.write(&format!("work/{name}_script.json"), json!({"turns": turns}).to_string());
    }
    env
}

fn page(path: &str) -> Page {
    pages().into_iter().find(|page| page.path == path).unwrap_or_else(|| panic!("there is no page {path}"))
}

/// The rows that a command writes as JSON.
fn rows(env: &TestEnv, args: &[&str]) -> Vec<Value> {
    let output = env.run_bare(args).code(0);
    serde_json::from_str(&output.stdout).unwrap()
}

/// The block with the ids of this world in the places of those that the page shows, as a reader is told to: the oldest run (also for `RUN`),
/// the call that is in doubt (else the newest), the question that waits.
fn with_ids(env: &TestEnv, text: &str) -> String {
    let mut found = text.to_owned();
    if found.contains(" RUN ") {
        let runs = rows(env, &["runs", "list", "--json"]);
        found = found.replace(" RUN ", &format!(" {} ", runs.last().unwrap()["run_id"].as_str().unwrap()));
    }
    for kind in ["run_", "call_", "q_"] {
        for word in ids(text, kind) {
            let id = match kind {
                "run_" => rows(env, &["runs", "list", "--json"]).last().unwrap()["run_id"].clone(),
                "q_" => rows(env, &["questions", "--json"])[0]["question_id"].clone(),
                _ => {
                    let calls = rows(env, &["calls", "list", "--json"]);
                    let in_doubt = calls.iter().find(|call| call["status"] == "unknown");
                    in_doubt.or(calls.last()).unwrap()["tool_call_id"].clone()
                }
            };
            found = found.replace(word, id.as_str().unwrap());
        }
    }
    found
}

/// The words of a text that are ids of this kind: `call_01a1fc07`, `run_01…`, or the last digits that a terminal shows, which are the same on
/// each page.
fn ids<'t>(text: &'t str, kind: &str) -> BTreeSet<&'t str> {
    let shown = match kind {
        "call_" => "5ae71fd4",
        "q_" => "04204fd2",
        _ => "7dc39827",
    };
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '…'));
    let is_id = |word: &&str| *word == shown || word.strip_prefix(kind).is_some_and(|rest| rest.starts_with("01"));
    words.filter(is_id).collect()
}

/// Numbers and ids as `#`, blanks as one.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for word in text.split_whitespace() {
        if !plain.is_empty() {
            plain.push(' ');
        }
        let mut rest = word;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (run, _) = rest.split_at(end);
            plain.push_str(if run.bytes().any(|byte| byte.is_ascii_digit()) { "#" } else { run });
            rest = &rest[end..];
            if let Some(c) = rest.chars().next() {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    plain
}

/// Whether `line`, in which `…` stands for anything, is somewhere in `output`.
fn was_printed(line: &str, output: &str) -> bool {
    let mut rest = output;
    for piece in line.split('…').map(plain).filter(|piece| !piece.trim().is_empty()) {
        let Some(at) = rest.find(piece.trim()) else { return false };
        rest = &rest[at + piece.trim().len()..];
    }
    true
}

/// Runs the marked blocks of a page.
fn run(path: &str) {
    run_with(path, "", "");
}

/// The same, with something of this machine in the place of what the page has.
fn run_with(path: &str, theirs: &str, ours: &str) {
    let env = world();
    let (mut printed, mut count) = (String::new(), 0);
    for block in &page(path).blocks {
        if is_run(block) {
            if let Some(job) = mark(block, "after") {
                env.run_bare(&["job", job]).code(0);
            }
            if let Some(job) = mark(block, "waits") {
                env.run_bare(&["job", job]).code(75);
            }
            let exit: i32 = mark(block, "exit").map_or(0, |code| code.parse().unwrap());
            eprintln!("{}: {}", block.place, block.text);
            let text = with_ids(&env, &block.text);
            let text = if theirs.is_empty() { text } else { text.replace(theirs, ours) };
            let output = env.run_by_bash(&format!("{PRELUDE}{text}")).code(exit);
            printed = plain(&format!("{} {}", output.stdout, output.stderr));
            count += 1;
        } else if block.marks().any(|mark| mark == "output") {
            for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
                assert!(was_printed(line, &printed), "{}: nothing printed\n{line}\nbut\n{printed}", block.place);
            }
        }
    }
    assert!(count > 0, "{path} has no marked block");
}

#[test]
fn the_commands_of_the_readme_run() {
    run("README.md");
}

#[test]
fn the_commands_of_approvals_run() {
    run("docs/guide/approvals.md");
}

#[test]
fn the_commands_of_budgets_run() {
    run("docs/guide/budgets.md");
}

#[test]
fn the_commands_of_cli_run() {
    run("docs/guide/cli.md");
}

#[test]
fn the_commands_of_database_run() {
    run("docs/guide/database.md");
}

#[test]
fn the_commands_of_first_job_run() {
    run("docs/guide/first-job.md");
}

#[test]
fn the_commands_of_forks_run() {
    run("docs/guide/forks.md");
}

#[test]
fn the_commands_of_job_file_run() {
    run("docs/guide/job-file.md");
}

#[test]
fn the_commands_of_long_runs_run() {
    run("docs/guide/long-runs.md");
}

#[test]
fn the_commands_of_models_run() {
    run("docs/guide/models.md");
}

#[test]
fn the_commands_of_own_tool_servers_run() {
    run("docs/guide/own-tool-servers.md");
}

#[test]
fn the_commands_of_policies_run() {
    run("docs/guide/policies.md");
}

#[test]
fn the_commands_of_resume_and_doubts_run() {
    run("docs/guide/resume-and-doubts.md");
}

#[test]
fn the_commands_of_telemetry_run() {
    run("docs/guide/telemetry.md");
}

#[test]
fn the_commands_of_tools_run() {
    run("docs/guide/tools.md");
}

#[test]
fn the_commands_of_troubleshooting_run() {
    run("docs/guide/troubleshooting.md");
}

/// On a server that keeps what it is told, as the page's has to.
#[test]
fn the_commands_of_workers_run() {
    let Some(server) = Cluster::start("-c fsync=on") else { return };
    server.create("ua", "");
    let url = format!("'{}'", server.url("ua", SERVER));
    run_with("docs/guide/workers.md", "postgres://ua:PASSWORD@db.example/ua", &url);
}

#[test]
fn the_commands_of_workspace_run() {
    run("docs/guide/workspace.md");
}

#[test]
fn every_page_with_a_marked_block_is_run_and_every_mark_is_one_that_is_known() {
    let mut marked = Vec::new();
    let mut count = 0;
    let mut reasons = BTreeSet::new();
    for page in pages() {
        for block in &page.blocks {
            for word in block.marks() {
                let (name, value) = word.split_once(':').unwrap_or((word, ""));
                let is_known = match (block.language(), name) {
                    ("sh", "run") | ("text", "output") => value.is_empty(),
                    ("sh", "exit" | "after" | "waits") => is_run(block),
                    ("sh", "not") => !is_run(block) && REASONS.iter().any(|(reason, _)| *reason == value),
                    _ => false,
                };
                assert!(is_known, "{}: what is the mark `{word}`?", block.place);
            }
            let why = mark(block, "not");
            let is_guide = page.path == "README.md" || page.path.starts_with("docs/guide/");
            if is_guide && block.language() == "sh" {
                assert!(is_run(block) || why.is_some(), "{}: is it run, or why not?", block.place);
            }
            reasons.extend(why.map(str::to_owned));
            count += usize::from(is_run(block));
        }
        if page.blocks.iter().any(is_run) {
            marked.push(page.path);
        }
    }
    assert_eq!(marked, PAGES);
    assert!(count >= 40, "only {count} blocks are run");
    assert_eq!(reasons, REASONS.iter().map(|(reason, _)| (*reason).to_owned()).collect::<BTreeSet<_>>());
}

/// Whoever copies a command has ids of their own: a page that shows one says before, or in the same block, what it stands for.
#[test]
fn no_command_has_an_id_that_a_reader_lacks() {
    let mut count = 0;
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language() == "sh") {
            let before = page.text.split(block.text.as_str()).next().unwrap_or_default();
            for id in ["run_", "call_", "q_"].into_iter().flat_map(|kind| ids(&block.text, kind)) {
                assert!(!id.contains('_'), "{}: a reader has no `{id}`", block.place);
                let is_said = before.contains(id) || block.text.contains(&format!("here {id}"));
                assert!(is_said, "{}: where does a reader find `{id}`?", block.place);
                count += 1;
            }
        }
    }
    assert!(count > 5, "only {count} ids were found");
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn a_command_that_fails_is_seen() {
    world().run_by_bash(&format!("{PRELUDE}ua runs show nothing_of_this_name\ntrue")).code(0);
}

#[test]
fn what_a_page_shows_is_compared_with_what_was_printed() {
    let output = plain("[00:12] turn 1 · call 1 · run_command ok in 30.0 s\nQuestion q_01a9: did `x`\n   happen?");
    assert!(was_printed("[00:30] turn 2 · call 1 · run_command … s", &output));
    assert!(was_printed("Question q_01a1fc07: did `x` happen?", &output));
    assert!(!was_printed("[00:30] turn 1 · call 1 · run_program ok", &output));
    assert!(!was_printed("ok in … turn", &output));
}
