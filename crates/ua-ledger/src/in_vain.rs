//! A person's word that let a call go which was not sent then, because an earlier call of its turn did not succeed.
//!
//! The word is not good for the next call in the same words: whoever gave it took the earlier call for one that succeeds. They are asked
//! again, and the question says what became of their word, so that they know why.
//! Proved by: the end-to-end test `an_approval_behind_a_failure_is_said_to_be_in_vain`.

use serde_json::{Value, json};
use ua_core::{CallStatus, Resolution};
use ua_store::{CallRecord, LedgerStore as _, QuestionRecord, QuestionsOf, Store as _};

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::people::allows;

impl Ledger {
    /// What a person is told who is asked whether a call may go, and let one in the same words go before, in vain.
    pub(crate) async fn let_go_in_vain(&self, call: &CallRecord) -> Result<Option<String>, LedgerError> {
        let failed = || LedgerError::at("read the questions about", &call.call_id);
        let questions = self.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await.map_err(failed())?;
        for asked in questions.iter().rev().filter(|asked| allows(asked) && is_in_the_words_of(asked, call)) {
            let Some(id) = asked.call_id.as_ref().filter(|id| **id != call.call_id) else { continue };
            let before = self.store.call(id).await.map_err(failed())?;
            if before.status == CallStatus::Cancelled && before.resolution == Some(Resolution::AfterFailure) {
                let by = asked.answer.as_ref().map_or("A person", |answer| answer.by.as_str());
                let (turn, at) = (before.position.turn, asked.answer.as_ref().map(|answer| answer.answered_at));
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                return Ok(Some(format!(
                    "{by} approved the same call{at} (call {id}, turn {turn}); it was not sent, because an earlier call of its turn did not \
                     succeed."
                )));
            }
            // What was sent since is newer than any word in vain.
            if before.attempt > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// Whether a question was about a call of the same tool with the same arguments.
fn is_in_the_words_of(asked: &QuestionRecord, call: &CallRecord) -> bool {
    let is = |name: &str, value: Value| asked.detail.get(name) == Some(&value);
    is("tool", json!(call.name.raw)) && is("args_hash", json!(call.args_hash))
}
