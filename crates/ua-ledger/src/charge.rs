//! What an answer means, with what the tool paid for it: both stand in one receipt.
//!
//! Durable Jobs v1 spec §6 (`budgets`). Invariant: a receipt that was stored and not read is charged when it is read, by the same rule.
//! Proved by: `crash_anywhere::paid_tools`, the end-to-end tests `images`.

use ua_core::{PriceTable, RawReply, Settlement, ToolCharge};
use ua_store::CallRecord;

use crate::interpret::interpret;
use crate::ledger::Ledger;

impl Ledger {
    /// The same ledger, knowing what the tokens cost that tools pay for. Without it they are counted and their price is unknown.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Says what `raw` means for `call`, and what was paid for it.
    pub(crate) fn read(&self, raw: &RawReply, call: &CallRecord) -> Settlement {
        let charge = ToolCharge::of(&call.name, raw, &self.prices).map(Box::new);
        Settlement { charge, ..interpret(raw, &call.policy) }
    }
}
