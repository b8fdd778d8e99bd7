//! What a sub-agent may use: a share of what its parent has left.
//!
//! Durable Jobs v1 spec §6 (`budgets`). The tasks of a turn are shared out equally, so that they may run together and in any order
//! without using more than there is. What a child does not use comes back to its parent with its end: only what was really used
//! counts there. Invariant: the shares of a turn's tasks and what was used before never exceed the parent's budget.

use ua_core::{Budgets, Money, Subagents};
use ua_store::{CallRecord, RunRecords};

use super::{allowance, tasks};
use crate::budget::{Below, Spent};
use crate::phase::PhaseState;

/// What a child run is made with.
#[derive(Debug)]
pub(super) struct Carved {
    pub(super) budgets: Budgets,
    pub(super) subagents: Subagents,
}

/// What is left of a budget, shared out; no limit stays none.
fn share(limit: Option<u64>, used: u64, parts: u64) -> Option<u64> {
    limit.map(|limit| limit.saturating_sub(used) / parts)
}

fn narrow(value: Option<u64>) -> Option<u32> {
    value.map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn share_of_money(limit: Option<Money>, spent: &Spent, parts: u64) -> Option<Money> {
    limit.map(|limit| {
        let used = spent.costs.of(limit.currency()).nanos();
        Money::from_nanos(limit.nanos().saturating_sub(used) / parts, limit.currency())
    })
}

/// The share of the task `call`, or, in words for the model, why there is none.
pub(super) fn carve(records: &RunRecords, call: &CallRecord) -> Result<Carved, String> {
    let allowance = allowance(records);
    let below = Below::of(records, 0);
    let own_started = records.lineage.sub_agents.iter().filter(|child| child.parent_run_id == records.run.run_id);
    let deeper = below.tasks.saturating_sub(u32::try_from(own_started.count()).unwrap_or(u32::MAX));
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let earlier = number(tasks(records).filter(|task| task.position < call.position).count());
    let before = number(tasks(records).filter(|task| task.position.turn < call.position.turn).count());
    let in_turn = number(tasks(records).filter(|task| task.position.turn == call.position.turn).count());
    if earlier.saturating_add(deeper) >= allowance.max_tasks {
        return Err(format!(
            "Not run: this job may hand on {}, and they are used up (`subagents.max_tasks`). Do the rest yourself, with your own \
             tools.",
            ua_core::counted(allowance.max_tasks, "task")
        ));
    }
    // Those beyond the limit will be refused, so nothing is put aside for them.
    let in_turn = in_turn.min(allowance.max_tasks.saturating_sub(before.saturating_add(deeper))).max(1);
    let asked = before.saturating_add(in_turn);
    let budgets = records.budgets();
    let spent = Spent::of(records.requests.iter().chain(&below.requests))
        .with_tools(records.tool_charges(0).chain(&below.charges));
    let turns = u64::from(records.run.own_turns()) + 1 + u64::from(below.turns);
    let calls = records.calls.len() as u64 + u64::from(below.tool_calls);
    let parts = u64::from(in_turn);
    let phase = PhaseState::of(records);
    let of_phase = phase.as_ref().map(|phase| &phase.limits);
    let (phase_turns, phase_calls, phase_spent) = phase.as_ref().map_or((0, 0, Spent::default()), |p| {
        (u64::from(p.used.turns) + 1, u64::from(p.used.tool_calls), p.used.spent.clone())
    });
    let wide = u64::from;
    let max_turns = least(
        Some(wide(allowance.max_turns)),
        least(
            share(budgets.max_turns.map(wide), turns, parts),
            share(of_phase.and_then(|limits| limits.max_turns).map(wide), phase_turns, parts),
        ),
    );
    let max_tool_calls = least(
        share(Some(wide(budgets.max_tool_calls)), calls, parts),
        share(of_phase.and_then(|limits| limits.max_tool_calls).map(wide), phase_calls, parts),
    );
    let max_tokens = least(
        share(budgets.max_tokens, spent.tokens, parts),
        share(of_phase.and_then(|limits| limits.max_tokens), phase_spent.tokens, parts),
    );
    let by_phase = share_of_money(of_phase.and_then(|limits| limits.max_cost), &phase_spent, parts);
    let max_cost = match (share_of_money(budgets.max_cost, &spent, parts), by_phase) {
        (Some(run), Some(phase)) if run.currency() == phase.currency() && phase.nanos() < run.nanos() => Some(phase),
        (run, phase) => run.or(phase),
    };
    let used_up = [
        ("turns", max_turns == Some(0)),
        ("tool calls", max_tool_calls == Some(0)),
        ("tokens", max_tokens == Some(0)),
        ("money", max_cost.is_some_and(|money| money.nanos() == 0)),
    ];
    if let Some((what, _)) = used_up.into_iter().find(|(_, is_zero)| *is_zero) {
        return Err(format!(
            "Not run: what is left of the job's {what} is not enough for a sub-agent. Finish with what you have, and say what is missing."
        ));
    }
    let minutes_held = records.run.held_millis / 60_000;
    Ok(Carved {
        budgets: Budgets {
            // Tasks of a turn run at the same time, so each may take all of the time that is left.
            max_wallclock_minutes: budgets.max_wallclock_minutes.saturating_sub(minutes_held).max(1),
            max_steps: 1,
            max_tool_calls: narrow(max_tool_calls).unwrap_or(budgets.max_tool_calls),
            max_turns: narrow(max_turns),
            max_tokens,
            max_cost,
            ..budgets
        },
        subagents: Subagents {
            max_depth: allowance.max_depth.saturating_sub(1),
            max_tasks: allowance.max_tasks.saturating_sub(asked.saturating_add(deeper)) / in_turn,
            ..allowance
        },
    })
}
