//! What an answer means, with what the tool paid for it: both stand in one receipt.
//!
//! Durable Jobs v1 spec §6 (`budgets`). Invariant: a receipt that was stored and not read is charged when it is read, by the same rule.
//! Proved by: `crash_anywhere::paid_tools`, the end-to-end tests `images`.

use ua_core::{CallStatus, PriceTable, RawReply, Settlement, ToolCharge};
use ua_store::{CallRecord, EarlierLoss};

use crate::interpret::interpret_again;
use crate::ledger::Ledger;

impl Ledger {
    /// The same ledger, knowing what the tokens cost that tools pay for. Without it they are counted and their price is unknown.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Says what `raw`, the answer to the newest attempt of `call`, means for it, and what was paid for it.
    pub(crate) async fn read(&self, raw: &RawReply, call: &CallRecord) -> Settlement {
        let charge = ToolCharge::of(&call.name, &call.arguments, raw, &self.prices).map(Box::new);
        let earlier = if raw.turns_away() { self.answered_before(call).await } else { 0 };
        let mut settlement = Settlement { charge, ..interpret_again(raw, &call.policy, earlier) };
        if settlement.status == CallStatus::FailedDefinite
            && let Some(open) = self.left_open_by(call).await
        {
            settlement.error_detail = Some(open.behind(settlement.error_detail.as_deref().unwrap_or_default()));
        }
        settlement
    }

    /// What an earlier attempt of a call leaves open that its newest one, which did nothing, does not say: of a read by its name
    /// alone, which is a guess. It is in no doubt, so it is only said.
    pub(crate) async fn left_open_by(&self, call: &CallRecord) -> Option<EarlierLoss> {
        if !call.policy.is_read_by_name() || call.attempt < 2 {
            return None;
        }
        EarlierLoss::before(call.attempt, &self.attempts(&call.call_id).await.ok()?)
    }

    /// How many attempts of a call, one after the other before its newest, were answered. While nobody can look, it may be all of them.
    async fn answered_before(&self, call: &CallRecord) -> usize {
        let earlier = call.attempt.saturating_sub(1) as usize;
        if earlier == 0 {
            return 0;
        }
        let Ok(attempts) = self.attempts(&call.call_id).await else { return earlier };
        let before = attempts.iter().rev().filter(|attempt| attempt.attempt < call.attempt);
        before.take_while(|attempt| attempt.was_answered()).count()
    }
}
