//! A model server that calls its tool uses the same in every reply, or nothing: the history stays valid wherever the process dies.

use ua_core::{Env, RunStatus};
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::scenario::Scenario;

const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}, "id": "call_0"},
             {"name": "mcp__ua__read_local_file", "input": {"path": "b.txt"}, "id": "call_0"}]},
  {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done"}, "id": "call_0"}]},
  {"text": "All done."}
]}"#;

fn scenario() -> Scenario {
    let tools = [(own_tool("read_local_file"), Honours::Nothing), (own_tool("notify"), Honours::Keys)];
    Scenario::with(World::new(tools), Env::simulated(42), SCRIPT, r#"{"objective": "Do it once."}"#, None)
}

#[tokio::test]
async fn every_tool_use_has_an_id_of_its_own_wherever_we_die() {
    let (crossings, run) = scenario().run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
        let scenario = scenario();
        scenario.crash(at).await;
        let run = scenario.finish_by_looking().await;
        assert_eq!((run.status, scenario.world.count("notify")), (RunStatus::Succeeded, 1), "{at:?}");
        scenario.check_invariants(&format!("{at:?}")).await;
        let ids: Vec<String> = scenario.calls().await.into_iter().map(|call| call.tool_use_id).collect();
        assert_eq!(ids, ["call_0", "call_0_2", "call_0_3"], "{at:?}");
    }
}
