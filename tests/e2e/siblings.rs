//! Two sub-agents that work at the same time and ask for the very same e-mail, through the real program.

use serde_json::json;
use ua_e2e::Model;

use super::env;

const SCRIPT: &str = r#"{
  "turns": [
    {"tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "First", "prompt": "ALPHA: tell the boss."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Second", "prompt": "BETA: tell the boss."}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows."}]},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows."}]}]}"#;

/// Nobody answers anything: a question about the twin that is under way closes itself once that one has its receipt.
#[test]
fn one_of_two_live_siblings_sends_the_mail_and_the_other_has_its_receipt() {
    for point in
        ["", "after:store.start_attempt:send_email", "before:tool.invoke:send_email", "after:tool.invoke:send_email"]
    {
        let model = Model::with(SCRIPT, |_| ());
        let env = env().with_model(&model);
        let job = json!({
            "objective": "Tell a@example.test once.",
            "model": {"provider": "anthropic", "name": "scripted"},
            "subagents": {},
            "stop_conditions": ["email_sent_once"],
        });
        let job = env.job(&job, &json!([]));
        if point.is_empty() {
            env.run(&["job", &job, "--run-id", "r"]);
        } else {
            env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        }
        let status = || env.value("SELECT status FROM runs WHERE run_id = 'r'");
        for _ in 0..3 {
            if status() != "succeeded" {
                env.run(&["resume", "r"]);
            }
        }
        assert_eq!(status(), "succeeded", "{point}");
        assert_eq!(env.effects()[0], 1, "{point}");
        let mails =
            "SELECT status, deduplicated_from IS NOT NULL FROM tool_calls WHERE tool_name = 'send_email' ORDER BY 2";
        assert_eq!(env.rows(mails), ["succeeded 0", "succeeded 1"], "{point}");
        assert_eq!(env.value("SELECT count(*) FROM questions WHERE status = 'open'"), "0", "{point}");
        let kinds = env.rows("SELECT DISTINCT kind FROM questions");
        assert!(kinds.is_empty() || kinds == ["near_duplicate"], "{point}: {kinds:?}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}
