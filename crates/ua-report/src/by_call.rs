//! The rows of each call, so that a long run is not looked through for each of its calls.

use std::collections::HashMap;

use ua_core::CallId;
use ua_store::{AttemptRecord, CallRecord, ReceiptRecord, RunRecords};

/// Attempts and receipts, by the calls that they are of.
#[derive(Default)]
pub(crate) struct ByCall<'r> {
    attempts: HashMap<&'r CallId, Vec<&'r AttemptRecord>>,
    receipts: HashMap<&'r CallId, Vec<&'r ReceiptRecord>>,
}

impl<'r> ByCall<'r> {
    pub(crate) fn of(records: &'r RunRecords) -> Self {
        let mut rows = Self::default();
        for attempt in &records.attempts {
            rows.attempts.entry(&attempt.call_id).or_default().push(attempt);
        }
        for receipt in &records.receipts {
            rows.receipts.entry(&receipt.call_id).or_default().push(receipt);
        }
        rows
    }

    /// The attempts of a call, in the order of the records.
    pub(crate) fn attempts(&self, call: &CallRecord) -> impl Iterator<Item = &'r AttemptRecord> {
        self.attempts.get(&call.call_id).into_iter().flatten().copied()
    }

    /// Its receipts, in the order of the records.
    pub(crate) fn receipts(&self, call: &CallRecord) -> impl Iterator<Item = &'r ReceiptRecord> {
        self.receipts.get(&call.call_id).into_iter().flatten().copied()
    }
}
