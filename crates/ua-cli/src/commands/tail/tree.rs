//! A run and the runs of its sub-agents, followed together: those that work when the look begins, and those that start later.

use ua_core::Timestamp;
use ua_host::Database;
use ua_resume::Standing;
use ua_store::{RunRecord, RunRecords, RunStore as _, Store, Walk};

use super::{Tail, blank, is_open};
use crate::commands::summary::headline;
use crate::error::HostError;
use crate::live::{Asking, LiveCall};
use crate::output::line;
use crate::view::TailEvent;

/// How much of a sub-agent's objective its lines begin with.
const NAME: usize = 32;

/// The runs that are followed.
pub(super) struct Tree {
    members: Vec<Member>,
    /// Whom it has met.
    walk: Walk,
    with_tasks: bool,
    /// What sub-agents did before is not shown: it belongs to turns of their parent that are not shown either.
    since: Option<Timestamp>,
}

/// One of them.
struct Member {
    run: RunRecord,
    tail: Tail,
    /// What its lines begin with; nothing for the run at the top.
    name: Option<String>,
    is_new: bool,
}

/// An event, and what its line begins with.
pub(super) struct NamedEvent {
    pub(super) event: TailEvent,
    pub(super) who: Option<String>,
}

/// What one look brought.
pub(super) struct Look {
    /// What is new in all runs, in the order in which it happened.
    pub(super) told: Vec<NamedEvent>,
    /// What was read of the run at the top.
    pub(super) records: RunRecords,
    /// Calls of sub-agents that are under way, by id.
    pub(super) calls_below: Vec<(String, LiveCall)>,
    /// What their tools ask, by the call's id.
    pub(super) asking_below: Vec<(String, Asking)>,
}

impl Tree {
    /// Follows `run` from a turn on, and its sub-agents if they are wanted.
    pub(super) fn new(run: RunRecord, from: u32, with_tasks: bool) -> Self {
        let walk = Walk::from(&run.run_id);
        let top = Member { run, tail: Tail::from(from), name: None, is_new: true };
        Self { members: vec![top], walk, with_tasks, since: None }
    }

    /// What was shown of the run at the top.
    pub(super) fn top(&self) -> &Tail {
        &self.members[0].tail
    }

    /// Reads what can have changed.
    pub(super) async fn look(&mut self, store: &Database) -> Result<Look, HostError> {
        let is_first = self.members[0].is_new;
        let (mut told, records) = self.take(store, 0).await?;
        if is_first {
            let from = self.members[0].tail.from;
            let shown = records.requests.iter().filter(|request| request.turn >= from);
            self.since = shown.map(|request| request.reserved_at).min().or(Some(records.run.updated_at));
        }
        let (mut calls_below, mut asking_below) = (Vec::new(), Vec::new());
        // Members that are found on the way are looked at in the same look.
        let mut at = 0;
        while self.with_tasks && at < self.members.len() {
            self.find_children(store, at).await?;
            at += 1;
            // One that has ended, and was shown to have, brings nothing more; a parent that goes on may go on with it.
            if at < self.members.len() && self.may_have_moved(store, at).await? {
                let (more, records) = self.take(store, at).await?;
                let who = self.members[at].name.clone().unwrap_or_default();
                let standing = self.members[at].tail.standing(&records);
                calls_below.extend(standing.calls.into_iter().map(|(id, call)| (id, call.below(&who))));
                asking_below.extend(standing.asking.into_iter().map(|(id, asking)| (id, asking.below(&who))));
                told.extend(more);
            }
        }
        told.sort_by_key(|told| told.event.at);
        Ok(Look { told, records, calls_below, asking_below })
    }

    /// Whether a member may have something new; what it did last before it ended is still to be shown.
    async fn may_have_moved(&self, store: &Database, at: usize) -> Result<bool, HostError> {
        let member = &self.members[at];
        if member.is_new || is_open(member.run.status) {
            return Ok(true);
        }
        let run = store.run(&member.run.run_id).await.map_err(|e| HostError::store("look at a sub-agent", &e))?;
        Ok((run.status, run.updated_at) != (member.run.status, member.run.updated_at))
    }

    async fn find_children(&mut self, store: &Database, at: usize) -> Result<(), HostError> {
        let children = store.children(&self.members[at].run.run_id).await;
        let children = children.map_err(|e| HostError::store("look for sub-agents", &e))?;
        for child in self.walk.down(children) {
            let name = Some(line(&child.spec.objective, NAME));
            self.members.push(Member { run: child, tail: Tail::from(0), name, is_new: true });
        }
        Ok(())
    }

    /// What is new in one run.
    async fn take(&mut self, store: &Database, at: usize) -> Result<(Vec<NamedEvent>, RunRecords), HostError> {
        let since = self.since;
        let member = &mut self.members[at];
        let id = &member.run.run_id;
        // What was used in all is counted from everything once; after that only what can still change is read.
        let records =
            if member.is_new { store.load(id).await } else { store.load_turns(id, member.tail.first, u32::MAX).await };
        let records = records.map_err(|e| HostError::store("look at the run", &e))?;
        let mut events = member.tail.take(&records);
        if member.name.is_some() {
            // The process of the run at the top drives it, too.
            events.retain(|event| event.event != "process");
            events.extend(passages(member, &records));
            events.retain(|event| since.is_none_or(|since| event.at >= since));
        }
        member.is_new = false;
        member.run = records.run.clone();
        let told = events.into_iter().map(|event| NamedEvent { event, who: member.name.clone() });
        Ok((told.collect(), records))
    }
}

/// That a sub-agent began, and that it ended or waits.
fn passages(member: &Member, records: &RunRecords) -> Vec<TailEvent> {
    let run = &records.run;
    let mut events = Vec::new();
    if member.is_new {
        let mut event = blank(records, run.created_at, "sub_agent", None);
        event.status = Some(ua_core::RunStatus::Queued.to_string());
        event.text = format!("sub-agent {} · {}", run.run_id, line(&run.spec.objective, 120));
        events.push(event);
    }
    if !is_open(run.status) && (member.is_new || run.status != member.run.status) {
        let mut event = blank(records, run.updated_at, "sub_agent", None);
        event.status = Some(run.status.to_string());
        event.text = format!("sub-agent {}", headline(run, &Standing::Stored(run.status, run.stop_reason)));
        events.push(event);
    }
    events
}
