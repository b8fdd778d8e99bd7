//! What `ua runs show` says about where a run comes from and what was forked from it.

use ua_core::{CallStatus, SideEffectClass};
use ua_store::{CallRecord, RunRecord, RunRecords, is_task};

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
    let done: Vec<&CallRecord> = elsewhere.iter().filter(|call| is_done_outside(call)).collect();
    if !done.is_empty() {
        let named: Vec<String> = done.iter().take(NAMED).map(|call| of_run(call)).collect();
        let more = if done.len() > NAMED { ", …" } else { "" };
        let done = ua_core::counted(done.len(), "effect");
        out.push_str(&format!("Done elsewhere {done}, which this run does not repeat: {}{more}\n", named.join(", ")));
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

/// How many effects of others are named.
const NAMED: usize = 3;

/// Whether a call of another run of the family had an effect outside. What it did in its own folder this run does for itself.
pub(super) fn is_done_outside(call: &CallRecord) -> bool {
    call.status == CallStatus::Succeeded && call.policy.class == SideEffectClass::External
}

/// An effect of another run, by its tool and the run.
fn of_run(call: &CallRecord) -> String {
    format!("{} of run {}", line(&call.name.tool, 60), short(call.run_id.as_str()))
}
