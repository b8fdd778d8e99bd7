//! A provider that keeps its own bill, and fails now and then.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{ModelTurn, Sha256, Usage};
use ua_llm::{LlmError, LlmProvider, ModelRequest, ScriptedProvider, StreamObserver};
use ua_store::{RequestRecord, RequestStatus};

/// A request that the provider saw, and what it said it cost.
#[derive(Debug, Clone)]
struct Seen {
    request: Sha256,
    /// `None` when the answer was a failure.
    usage: Option<Usage>,
}

/// The scripted provider behind a wire that fails twice: the second request never leaves, the third is answered with a
/// failure. Its bill outlives every simulated crash.
pub(crate) struct Billed {
    inner: ScriptedProvider,
    calls: Mutex<u64>,
    bill: Mutex<Vec<Seen>>,
}

impl Billed {
    pub(crate) fn new(inner: ScriptedProvider) -> Self {
        Self { inner, calls: Mutex::default(), bill: Mutex::default() }
    }

    fn next_call(&self) -> u64 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        *calls
    }

    fn note(&self, request: &ModelRequest, usage: Option<Usage>) {
        let seen = Seen { request: request.digest(), usage };
        self.bill.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// Every row has ended exactly once; every request that the provider saw has a row that is charged; the rows that say
    /// `actual` are what the provider said, request by request, and cost what its price says.
    pub(crate) fn check_against(&self, rows: &[RequestRecord], at: &str) {
        let bill = self.bill.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = |status: RequestStatus| rows.iter().filter(|row| row.status == status).count();
        assert_eq!(count(RequestStatus::Reserved), 0, "{at}");
        assert!(count(RequestStatus::Zero) <= 2, "one request never left, one was refused, {at}");
        for row in rows {
            assert_eq!(row.cost, row.price.map(|price| price.cost(row.usage)), "{at}");
            assert!(row.price.is_some() && row.closed_at.is_some(), "{at}");
        }
        let mut digests: Vec<Sha256> = bill.iter().map(|seen| seen.request).collect();
        digests.dedup();
        for digest in digests {
            let of_request = |status: RequestStatus| {
                rows.iter().filter(move |row| row.request_sha256 == digest && row.status == status)
            };
            let seen = bill.iter().filter(|seen| seen.request == digest && seen.usage.is_some()).count();
            let actual: Vec<Usage> = of_request(RequestStatus::Actual).map(|row| row.usage).collect();
            let baseline = of_request(RequestStatus::Baseline).count();
            assert!(seen <= actual.len() + baseline, "a request that was seen is not charged, {at}");
            let mut billed: Vec<Usage> =
                bill.iter().filter(|seen| seen.request == digest).filter_map(|seen| seen.usage).collect();
            for usage in actual {
                let found = billed.iter().position(|billed| *billed == usage);
                billed.swap_remove(found.unwrap_or_else(|| panic!("{usage:?} is on no bill, {at}")));
            }
            assert!(billed.len() <= baseline, "a reply that was billed and lost is charged as estimated, {at}");
        }
        let turns: std::collections::BTreeSet<u32> = rows.iter().map(|row| row.turn).collect();
        assert!(turns.len() >= 5, "{at}");
        assert_eq!(count(RequestStatus::Actual), turns.len(), "each turn has one reply, {at}");
    }
}

#[async_trait]
impl LlmProvider for Billed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        match self.next_call() {
            2 => return Err(LlmError::Unreachable { host: "nobody".into(), why: "connection refused".into() }),
            3 => {
                self.note(request, None);
                let retry_after = Some(Duration::from_secs(20));
                return Err(LlmError::RateLimited { retry_after, until_reset: None, message: "slow down".into() });
            }
            _ => {}
        }
        let reply = self.inner.complete(request, observer).await?;
        self.note(request, reply.usage);
        Ok(reply)
    }
}
