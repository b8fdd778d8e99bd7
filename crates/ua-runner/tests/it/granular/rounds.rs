//! A tool that asks for something again and again and needs no person for it: each round is its call once more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{CallStatus, Destination, Handle, Input, Outcome, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Fence, ToolTransport, TransportError};
use ua_ledger::{Enquiry, Permit};
use ua_runner::StepOutcome;

use super::shop::{POLICY, SCRIPT, Shop, done};

/// Tools of which orders are not taken before so many rounds.
struct Rounds {
    tools: Arc<dyn ToolTransport>,
    wanted: u32,
    made: Arc<AtomicU32>,
}

fn round(round: u32) -> Outcome {
    let input = Input { state: Some("busy".to_owned()), round, ..Input::default() };
    Outcome::Continues(Box::new(Handle { input: Some(input), ..Handle::default() }))
}

#[async_trait]
impl ToolTransport for Rounds {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.tools.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.tools.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.tools.ready(server).await
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.tools.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        if permit.name().tool == "place_order" { round(1) } else { self.tools.invoke(permit).await }
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let made = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        if made == self.wanted {
            return Ok(self.tools.invoke(permit).await);
        }
        Ok(round(handle.input.as_ref().map_or(1, |input| input.round + 1)))
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.tools.ask(enquiry).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.tools.fence(server, generation, lost_at).await
    }
}

fn shop(wanted: u32) -> (Shop, Arc<AtomicU32>) {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    let made = Arc::new(AtomicU32::new(0));
    shop.step.agent.tools = Arc::new(Rounds { tools: shop.step.agent.tools.clone(), wanted, made: made.clone() });
    (shop, made)
}

#[tokio::test]
async fn a_server_that_is_busy_for_some_rounds_takes_the_call_once() {
    for wanted in [1, 2, 5, 10] {
        let (shop, made) = shop(wanted);
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{wanted}: {outcome:?}");
        assert_eq!((made.load(Ordering::SeqCst), shop.orders().len()), (wanted, 1), "{wanted}");
    }
}

#[tokio::test]
async fn a_server_that_goes_round_in_a_circle_is_given_up_and_a_person_is_asked() {
    let (shop, made) = shop(u32::MAX);
    let begun = shop.host.env.now();
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Waiting { .. }), "{outcome:?}");
    assert_eq!(made.load(Ordering::SeqCst), 10, "each round is the call once more");
    assert!(shop.host.env.now().since(begun).as_secs() > 60, "it gets more time each time");
    let records = shop.records().await;
    let order = records.calls.iter().find(|call| call.name.tool == "place_order").unwrap();
    assert_eq!((order.status, order.attempt), (CallStatus::Unknown, 1));
    assert!(order.error_detail.as_deref().unwrap_or_default().contains("more than 10 times"), "{order:?}");
}
