//! A conversation that an agent keeps itself: what is done when it broke, and what its calls may be until it is whole again.
//!
//! Durable runner, current state §6. The rules are in [`crate::forced_replay`]; this is where they meet the store. With a provider whose
//! requests hold the whole conversation nothing here does anything.

use std::collections::BTreeMap;

use ua_core::{CallId, CallStatus, Message, Origin, PlannedCall};
use ua_dispatch::answer_for;
use ua_llm::Conversation;
use ua_store::{CallRecord, LedgerStore, ReplayStatus, RunRecords, RunStore};

use super::Driver;
use crate::error::{ResumeError, RunError};
use crate::forced_replay::ForcedReplay;
use crate::machine::Event;

/// What is said when nothing is owed but results of calls that only looked.
const LOOK_AGAIN: &str = "You were interrupted, and results of calls that were under way did not reach you. They only looked and changed \
                          nothing; make them again if you need what they say.";

impl Driver<'_> {
    /// What an agent that owns its loop is owed, by the records; nothing with any other provider.
    pub(super) fn owed_by(&self, records: &RunRecords) -> ForcedReplay {
        match self.ports.llm.conversation() {
            Conversation::InTheRequest => ForcedReplay::default(),
            Conversation::Open | Conversation::Broken => ForcedReplay::of(records),
        }
    }

    /// Looks after the conversation before it is gone on with. An event when that is not possible.
    pub(super) async fn tend_conversation(&mut self) -> Result<Option<Event>, RunError> {
        match self.ports.llm.conversation() {
            Conversation::InTheRequest => return Ok(None),
            Conversation::Open => {}
            Conversation::Broken => self.mend_conversation().await?,
        }
        Ok(self.replay.gives_up().map(|text| Event::ReplayGivenUp { text }))
    }

    /// Notes that the conversation broke, with what the model has to do first. What is noted already is not noted again.
    async fn mend_conversation(&mut self) -> Result<(), RunError> {
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        let mut replay = ForcedReplay::of(&records);
        // Guidance stands behind what the conversation has to know, and takes nothing from it.
        let mut messages = records.messages.iter().rev().map(|record| &record.message);
        let Some(last) = messages.find(|message| message.origin != Origin::Guidance) else { return Ok(()) };
        let lacks_results = last.origin == Origin::Tools;
        if lacks_results {
            let turn = records.run.turn_index;
            replay.break_after(&records.calls.iter().filter(|call| call.position.turn == turn).collect::<Vec<_>>());
        }
        self.replay = replay;
        let note = match (self.replay.is_empty(), lacks_results) {
            (true, false) => return Ok(()),
            (true, true) => LOOK_AGAIN.to_owned(),
            (false, _) => self.replay.prompt(),
        };
        let is_said = last.origin == Origin::Resume && last.text() == note;
        if is_said || !(lacks_results || last.origin == Origin::Resume) {
            return Ok(());
        }
        let message = Message::user(Origin::Resume, note);
        self.ports
            .store
            .append_messages(&self.ports.lease, vec![message.clone()], self.ports.env.now())
            .await
            .map_err(RunError::at("append what is missing after an interruption"))?;
        self.last_seq += 1;
        self.history.push(message);
        Ok(())
    }

    /// Refuses in a plan what has to wait until the results that are owed were taken.
    pub(super) async fn enforce_replay(&self, calls: &mut [PlannedCall]) -> Result<(), RunError> {
        if self.replay.is_empty() {
            return Ok(());
        }
        let store = &self.ports.store;
        let mut outcomes = BTreeMap::new();
        for id in self.replay.failed() {
            let call = store.call(id).await.map_err(RunError::at("read a call"))?;
            let receipt = store.receipt(id).await.map_err(RunError::at("read a receipt"))?;
            let answer = answer_for(&call, receipt.as_ref(), self.audience());
            let text = answer.map_or_else(|| "It failed.".to_owned(), |answer| answer.text.to_string());
            outcomes.insert(
                id.clone(),
                format!("Not run again. When you made this call before the interruption, it did not succeed: {text}"),
            );
        }
        self.replay.enforce(calls, |id| outcomes.get(id).cloned().unwrap_or_default());
        Ok(())
    }

    /// Answers calls of the open turn that are owed ones with the receipts they are owed. They never run, whatever is killed here: what
    /// is not answered now is found owed again.
    pub(super) async fn answer_owed(&self, turn: u32, calls: &[CallId]) -> Result<(), RunError> {
        if self.replay.is_empty() {
            return Ok(());
        }
        let of_turn = self.turn_calls(turn).await?;
        let asked = of_turn.iter().filter(|call| calls.contains(&call.call_id) && call.status == CallStatus::Prepared);
        for call in asked {
            if let Some(source) = self.replay.receipt_for(call, &of_turn) {
                self.answer_from(call, &source).await?;
            }
        }
        Ok(())
    }

    async fn answer_from(&self, call: &CallRecord, source: &CallId) -> Result<(), RunError> {
        let doing = "answer a call from the receipt of the one it is";
        let (store, lease, now) = (&self.ports.store, &self.ports.lease, self.ports.env.now());
        let holder = store.call(source).await.map_err(RunError::at(doing))?;
        // Never on without it: a call that is not answered here would be sent.
        let Some(key) = &holder.idempotency_key else {
            return Err(
                ResumeError::CorruptState { why: format!("{source} succeeded without a key"), source: None }.into()
            );
        };
        store.deduplicate_call(lease, &call.call_id, source, key, now).await.map_err(RunError::at(doing))?;
        store.note_replay(lease, &call.call_id, ReplayStatus::Reused, now).await.map_err(RunError::at(doing))
    }
}
