//! What an agent remembers: each change once across kills, and there for the next job.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rusqlite::Connection;
use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn turns() -> Value {
    json!([
        {"tools": [
            {"name": "mcp__ua__core_memory_append", "input": {"label": "human", "text_to_append": "Ann likes tables."}},
            {"name": "mcp__ua__archival_memory_insert", "input": {"content": "Q3 grew by 4 %.", "tags": "finance"}},
        ]},
        {"tools": [{"name": "mcp__ua__core_memory_append", "input": {"label": "human", "text_to_append": "Ann likes tables."}}]},
        {"text": "Remembered."},
    ])
}

fn memory(env: &TestEnv, sql: &str) -> String {
    let connection = Connection::open(env.path("root/agent_core.db")).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn each_change_is_made_once_wherever_the_run_is_killed() {
    for point in [
        "after:store.start_attempt:core_memory_append",
        "after:tool.invoke:core_memory_append",
        "after:store.start_attempt:archival_memory_insert",
        "after:tool.invoke:archival_memory_insert",
        "after:store.settle_attempt:archival_memory_insert",
    ] {
        let env = env();
        let job = env.job(&json!({}), &turns());
        env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0).shows(&["succeeded · run r", "Remembered."]);
        let value = memory(&env, "SELECT value FROM core_blocks WHERE label = 'human'");
        assert_eq!(value, "Ann likes tables.\nAnn likes tables.", "asked for in two turns, killed {point}");
        assert_eq!(
            memory(&env, "SELECT group_concat(content) FROM archival_items"),
            "Q3 grew by 4 %.",
            "killed {point}"
        );
        assert_eq!(env.rows("SELECT question_id FROM questions"), [""; 0], "killed {point}");
    }
}

#[test]
fn the_next_job_finds_what_was_kept() {
    let env = env();
    let job = env.job(&json!({}), &turns());
    env.run(&["job", &job]).code(0);
    let turns = json!([
        {"tools": [
            {"name": "mcp__ua__get_core_memory_blocks", "input": {}},
            {"name": "mcp__ua__archival_memory_search", "input": {"query": "finance growth"}},
        ]},
        {"text": "Found."},
    ]);
    let job = env.job(&json!({"objective": "Look it up."}), &turns);
    env.run(&["job", &job, "--run-id", "second"]).code(0);
    let calls = env.run(&["calls", "list", "--run", "second", "--json"]).code(0).json();
    let read = |number: usize| {
        let id = calls[number]["tool_call_id"].as_str().unwrap();
        env.run(&["calls", "show", id, "--full"]).code(0)
    };
    read(0).shows(&["Ann likes tables."]);
    read(1).shows(&["Q3 grew by 4 %."]);
}
