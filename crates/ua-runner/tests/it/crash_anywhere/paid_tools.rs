//! Tools that ask a model and pay for it: what each answer took counts once, in the budgets and in the bill, wherever the process dies.
//!
//! Durable Jobs v1 spec §6. The charge stands in the receipt, so there is one for each answer that was stored and none for another.

use serde_json::json;
use ua_core::{Env, Money, RawReply, RunStatus, RunStop, ToolCharge, Usage};
use ua_resume::UsageSummary;
use ua_store::RunRecords;
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::scenario::Scenario;

/// A look at two images in one turn, at a third in the next.
const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__describe_image", "input": {"path": "a.png"}},
             {"name": "mcp__ua__describe_image", "input": {"path": "b.png"}}]},
  {"tools": [{"name": "mcp__ua__describe_image", "input": {"path": "c.png"}}]},
  {"text": "Seen."}
]}"#;

/// A look that got lost is taken again, so that every call has an answer in the end.
const POLICY: &str = "[[rule]]\nid = \"look-again\"\ntool_namespace = \"local\"\nserver = \"ua\"\nname = \"describe_image\"\n\
                      side_effect_class = \"read_only\"\non_unknown = \"redo\"\n";

/// What each look takes: 40,000 tokens, at the price of the test's model.
fn usage() -> Usage {
    Usage { input_tokens: 30_000, output_tokens: 10_000, ..Usage::default() }
}

fn scenario(budgets: &serde_json::Value) -> Scenario {
    let paid = json!({"provider": "scripted", "model": "scripted", "usage": {"input_tokens": 30_000, "output_tokens": 10_000}});
    let world = World::new([(own_tool("describe_image"), Honours::Keys)]).paid("describe_image", paid);
    let job = json!({"objective": "Look.", "budgets": budgets});
    Scenario::with(world, Env::simulated(7), SCRIPT, &job.to_string(), Some(POLICY))
}

async fn points(scenario: &Scenario) -> Vec<CrashAt> {
    let (crossings, _) = scenario.run_without_crash().await;
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

/// Each answer of a tool is charged once, and nothing else is.
fn check_charges(records: &RunRecords, looks: u32, at: &str) {
    let cost = Some(Money::parse("0.24").unwrap());
    let charge = ToolCharge { provider: "scripted".into(), model: "scripted".into(), usage: usage(), cost };
    let charges: Vec<&ToolCharge> = records.tool_charges(0).collect();
    assert_eq!(charges, vec![&charge; looks as usize], "{at}");
    let answers = records.receipts.iter().filter(|receipt| matches!(receipt.raw, RawReply::ToolResult { .. })).count();
    assert_eq!(answers, looks as usize, "{at}");
    let summary = UsageSummary::of(records);
    assert_eq!(summary.requests["by_tool"], looks, "{at}");
    let by_model: Usage = records.requests.iter().fold(Usage::default(), |sum, request| sum.plus(request.usage));
    assert_eq!(summary.total_tokens, by_model.total() + u64::from(looks) * usage().total(), "{at}");
    assert_eq!(summary.unpriced_requests, 0, "{at}");
}

#[tokio::test]
async fn what_a_tool_paid_is_charged_once_wherever_we_die() {
    let free = json!({});
    for at in points(&scenario(&free)).await {
        let scenario = scenario(&free);
        scenario.crash(at).await;
        let run = scenario.resume().await;
        let at = format!("{at:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        check_charges(&scenario.records().await, 3, &at);
        scenario.check_invariants(&at).await;
    }
}

#[tokio::test]
async fn what_a_tool_paid_counts_in_the_budget_wherever_we_die() {
    for (budgets, budget) in
        [(json!({"max_tokens": 60_000}), "max_tokens"), (json!({"max_cost": "0.40 USD"}), "max_cost")]
    {
        for at in points(&scenario(&budgets)).await {
            let scenario = scenario(&budgets);
            scenario.crash(at).await;
            let run = scenario.resume().await;
            let at = format!("{budget} {at:?}");
            // The two looks of the first turn are more than it has; the model is not asked again.
            assert_eq!((run.status, run.stop_reason), (RunStatus::Stopped, Some(RunStop::Budget)), "{at}");
            assert!(run.status_detail.as_deref().unwrap_or_default().contains(budget), "{at}: {:?}", run.status_detail);
            assert_eq!(run.turn_index, 1, "{at}");
            check_charges(&scenario.records().await, 2, &at);
        }
    }
}
