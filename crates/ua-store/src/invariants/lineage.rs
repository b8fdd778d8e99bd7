//! What must hold of a fork: it shares a whole, committed beginning, and nothing of its own stands in it.

use super::Violations;
use crate::record::RunRecords;

/// A fork shares committed turns from the first to its fork point, and its own messages and calls come behind them.
pub(super) fn shared(found: &mut Violations, records: &RunRecords) {
    let run = &records.run;
    if (run.root_run_id == run.run_id) == run.parent_run_id.is_some() {
        found.add("a_lineage_has_one_root", &run.run_id, format!("its root is {}", run.root_run_id));
    }
    let turns = &records.lineage.turns;
    let Some(point) = run.forked_at else {
        if !turns.is_empty() {
            found.add("a_fork_shares_committed_turns", &run.run_id, "shares turns without a fork point");
        }
        return;
    };
    if run.parent_run_id.is_none() || run.turn_index < point.turn {
        let why = format!("forked at turn {}, it has {}", point.turn, ua_core::counted(run.turn_index, "turn"));
        found.add("a_fork_shares_committed_turns", &run.run_id, why);
    }
    let numbers: Vec<u32> = turns.iter().map(|turn| turn.turn).collect();
    if !(1..=point.turn).eq(numbers.iter().copied()) || turns.iter().any(|turn| turn.committed_at.is_none()) {
        let why = format!("forked at turn {}, it shares turns {numbers:?}", point.turn);
        found.add("a_fork_shares_committed_turns", &run.run_id, why);
    }
    let prompts = records.messages.iter().filter(|message| message.turn == 0 && message.seq == 1).count();
    let overlaps = records.messages.windows(2).any(|pair| pair[0].seq >= pair[1].seq);
    let strays = records.messages.iter().any(|message| message.seq <= point.seq && message.turn > point.turn);
    if prompts != 1 || overlaps || strays {
        let why = format!("its history does not fit together at message {}", point.seq);
        found.add("a_fork_has_one_history", &run.run_id, why);
    }
    for call in records.calls.iter().filter(|call| call.root_run_id != run.root_run_id) {
        found.add("a_lineage_has_one_root", &call.call_id, format!("its root is {}", call.root_run_id));
    }
}

#[cfg(all(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use ua_core::CallStatus;

    use crate::conformance::{Scene, samples};
    use crate::invariants::{Violation, check};
    use crate::{LedgerStore as _, MemStore, RunRecords, RunStore as _};

    /// A fork behind the first of two turns, with a turn of its own.
    async fn fork() -> (RunRecords, Vec<crate::EventRecord>) {
        let store = MemStore::default();
        let parent = Scene::begin(&store, "run_1").await;
        for id in ["call_1", "call_2"] {
            let turn = parent.records().await.run.turn_index + 1;
            parent.turn(vec![samples::planned_email(id, turn, 1)]).await;
            parent.bring(id, CallStatus::Succeeded).await;
            parent.commit(turn).await;
        }
        store.fork_run(samples::new_fork("run_2", "run_1", 1)).await.unwrap();
        let fork = Scene::take(&store, "run_2").await;
        fork.turn(vec![samples::planned_email("call_3", 2, 1)]).await;
        fork.bring("call_3", CallStatus::Succeeded).await;
        (fork.records().await, store.events(&samples::call_id("call_3")).await.unwrap())
    }

    fn names(violations: &[Violation]) -> Vec<&'static str> {
        // The samples' tool results name no tool use of theirs.
        let all = violations.iter().map(|violation| violation.invariant);
        all.filter(|name| *name != "one_result_per_tool_use" && *name != "checkpoints_stand_on_commits").collect()
    }

    #[tokio::test]
    async fn each_statement_about_a_fork_is_seen_when_it_is_broken() {
        type Break = fn(&mut RunRecords);
        let (whole, events) = fork().await;
        assert_eq!(names(&check(&whole, &events)), [""; 0]);
        let breaks: [(&str, Break); 7] = [
            ("a_fork_shares_committed_turns", |r| r.lineage.turns[0].committed_at = None),
            ("a_fork_shares_committed_turns", |r| r.lineage.turns.clear()),
            ("a_fork_shares_committed_turns", |r| r.run.parent_run_id = None),
            ("a_fork_has_one_history", |r| r.messages[1].turn = 9),
            ("a_lineage_has_one_root", |r| r.calls[0].root_run_id = r.run.run_id.clone()),
            ("one_claim_per_key", |r| r.lineage.elsewhere[0].idempotency_key = r.calls[0].idempotency_key.clone()),
            ("turns_are_counted", |r| r.turns[0].turn = 1),
        ];
        for (number, (invariant, break_it)) in breaks.into_iter().enumerate() {
            let mut records = whole.clone();
            break_it(&mut records);
            assert!(names(&check(&records, &events)).contains(&invariant), "{number}: {invariant}");
        }
    }
}
