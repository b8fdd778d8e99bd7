//! Sessions and arrivals of the gateway.

use super::lineage::oldest_first;
use super::model::Model;
use crate::gateway::{ArrivalRecord, ArrivalsOf, SessionRecord, SessionsOf};
use crate::record::CallRecord;
use crate::rules;

impl Model {
    pub(super) fn session(&self, project: &str, server: &str, key: &str) -> Option<&SessionRecord> {
        let is_it = |s: &&SessionRecord| s.project == project && s.server == server && s.session_key == key;
        self.sessions.iter().find(is_it)
    }

    pub(super) fn sessions_of(&self, of: &SessionsOf) -> Vec<SessionRecord> {
        match of {
            SessionsOf::Run(run) => self.sessions.iter().filter(|session| session.run_id == *run).cloned().collect(),
            SessionsOf::Key { project, server, session_key } => {
                self.session(project, server, session_key).cloned().into_iter().collect()
            }
            SessionsOf::Newest(limit) => {
                let mut all: Vec<SessionRecord> = self.sessions.iter().cloned().collect();
                all.sort_by(|a, b| (b.opened_at, &b.run_id).cmp(&(a.opened_at, &a.run_id)));
                all.truncate(*limit as usize);
                all
            }
        }
    }

    pub(super) fn arrivals_of(&self, of: &ArrivalsOf) -> Vec<ArrivalRecord> {
        let is_wanted = |arrival: &&ArrivalRecord| match of {
            ArrivalsOf::One(id) => arrival.arrival_id == *id,
            ArrivalsOf::Call(call) => arrival.call_id == *call,
            ArrivalsOf::Same(same) => {
                let own = (arrival.project.as_str(), arrival.tool.as_str(), &arrival.args_hash);
                same.each().any(|wanted| wanted == own)
            }
            ArrivalsOf::NewestHeardOf(run) => {
                let was_sent = |call: CallRecord| call.policy.class.has_effect() && call.attempt > 0;
                let is_heard = arrival.rule == ArrivalRecord::NEW && arrival.acknowledged_at.is_some();
                arrival.run_id == *run && is_heard && self.call(&arrival.call_id).is_ok_and(was_sent)
            }
            ArrivalsOf::Session(run) => {
                let is_its = |call: CallRecord| call.run_id == *run;
                arrival.run_id == *run || self.call(&arrival.call_id).is_ok_and(is_its)
            }
        };
        let mut found: Vec<ArrivalRecord> = self.arrivals.iter().filter(is_wanted).cloned().collect();
        found.sort_by(|a, b| (a.arrived_at, &a.arrival_id).cmp(&(b.arrived_at, &b.arrival_id)));
        if matches!(of, ArrivalsOf::NewestHeardOf(_)) {
            found.drain(..found.len().saturating_sub(1));
        }
        found
    }

    /// Calls of other families of the project of `call`, if it is a gateway's, of which nobody knows what came of them.
    pub(super) fn open_in_project(&self, call: &CallRecord) -> Vec<CallRecord> {
        let project_of = |call: &CallRecord| {
            self.sessions.iter().find(|session| session.run_id == call.run_id).map(|session| &session.project)
        };
        let Some(project) = project_of(call) else { return Vec::new() };
        let is_open = |other: &&CallRecord| {
            other.root_run_id != call.root_run_id
                && rules::reaches_project(call, other)
                && project_of(other) == Some(project)
        };
        oldest_first(self.calls.iter().filter(is_open).cloned().collect())
    }
}
