//! What `ua runs show` says about where a run comes from and what was forked from it.

use ua_core::CallStatus;
use ua_store::{RunRecord, RunRecords, is_task};

use crate::ids::short;
use crate::output::line;

/// The run's place in its lineage, ready to print; empty for a run without kin. `tasks`: the runs of its sub-agents, and how deep each
/// stands below it.
pub(crate) fn text(records: &RunRecords, children: &[RunRecord], tasks: &[(usize, RunRecord)]) -> String {
    let run = &records.run;
    let mut out = String::new();
    match (&run.parent_run_id, run.forked_at) {
        (Some(parent), Some(point)) => {
            out.push_str(&format!(
                "Fork of        {}, sharing its turns up to {}\n",
                short(parent.as_str()),
                point.turn
            ));
        }
        (Some(parent), None) if is_task(run) => out.push_str(&format!("Sub-agent of   {}\n", short(parent.as_str()))),
        (Some(parent), None) => out.push_str(&format!("Started by     {}\n", short(parent.as_str()))),
        (None, _) => {}
    }
    if run.root_run_id != run.run_id {
        out.push_str(&format!("Lineage        {}\n", short(run.root_run_id.as_str())));
    }
    for (depth, child) in tasks {
        let indent = if *depth == 1 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 2)) };
        let about = line(&child.spec.objective, 60);
        out.push_str(&format!(
            "Sub-agent      {indent}{} ({}, {}): {about}\n",
            short(child.run_id.as_str()),
            child.status,
            ua_core::counted(child.turn_index, "turn")
        ));
    }
    for child in children.iter().filter(|child| !is_task(child)) {
        let kind = child.forked_at.map_or_else(|| "started".to_owned(), |point| format!("forked at {}", point.turn));
        out.push_str(&format!("Child          {} ({kind}, {})\n", short(child.run_id.as_str()), child.status));
    }
    // What may have happened there is asked about here before the like is done.
    let elsewhere = &records.lineage.elsewhere;
    let done = elsewhere.iter().filter(|call| call.status == CallStatus::Succeeded).count();
    if done > 0 {
        let done = ua_core::counted(done, "effect");
        out.push_str(&format!("Done elsewhere {done}, which this run does not repeat\n"));
    }
    let perhaps: Vec<&str> = elsewhere
        .iter()
        .filter(|call| call.status != CallStatus::Succeeded)
        .map(|call| call.call_id.as_str())
        .collect();
    if let Some(first) = perhaps.first() {
        out.push_str(&format!(
            "Perhaps done   {} elsewhere, of which it is not known whether it happened; `ua calls show {first}`\n",
            ua_core::counted(perhaps.len(), "effect")
        ));
    }
    out
}
