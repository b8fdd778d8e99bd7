//! Kill points at the seams of the program under test.
//!
//! `UA_KILL_AT=after:tool.invoke:send_email` kills the process there with SIGKILL. `UA_REPLACE_AT=before:tool.invoke:send_email|FROM|TO` puts a
//! copy of one file in the place of another one there, as somebody else who works in the workspace may at any moment. `UA_BROKEN_RULE=running-after-dispatch` breaks the
//! order of intent and act, `no-redactor` stores secrets as they came, so that a harness can show that it would see it.

use std::sync::Arc;

use ua_cli::{Parts, Seams};
use ua_core::Redactor;
use ua_dispatch::ToolTransport;
use ua_llm::LlmProvider;
use ua_store::Store;
use ua_testkit::{Crossing, KillPoint, Plan, RunningAfterDispatch, Seam, StoreSeam};

/// The parts of a program under test: this layout engine, if any, and the kill point and the broken rule that the environment names.
pub fn parts(pdf: Option<ua_pdf::Renderer>) -> Parts {
    end_with_the_harness();
    let point = variable("UA_KILL_AT").and_then(|text| KillPoint::parse(&text));
    let plan = point.map_or_else(|| Arc::new(Nowhere) as Arc<dyn Plan>, |point| Arc::new(point));
    let replaced = variable("UA_REPLACE_AT").and_then(|text| replacing(&text));
    let plan = replaced.map_or(plan.clone(), |replaced| Arc::new(Both(Arc::new(replaced), plan)));
    let broken = variable("UA_BROKEN_RULE").unwrap_or_default();
    Parts { pdf, seams: Some(Arc::new(KillPoints { plan, broken })) }
}

/// Names the process that started this one, by whoever wants it to end with that.
pub const ENDS_WITH: &str = "E2E_ENDS_WITH";

/// A harness that is killed takes with it what it started; a worker would go on for ever. What this process starts in turn ends by itself.
#[cfg(target_os = "linux")]
fn end_with_the_harness() {
    use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
    let named = variable(ENDS_WITH).and_then(|text| Pid::from_raw(text.parse().ok()?));
    if named.is_some() && getppid() == named {
        let is_set = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
        // It may have ended just before.
        if is_set && getppid() != named && kill_process(getpid(), Signal::KILL).is_err() {
            unreachable!("a process may kill itself");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_the_harness() {}

#[expect(clippy::disallowed_methods, reason = "set by the harness that starts this process")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

struct KillPoints {
    plan: Arc<dyn Plan>,
    broken: String,
}

/// A point at which a copy of one file takes the place of another one.
fn replacing(text: &str) -> Option<KillPoint> {
    let mut parts = text.split('|');
    let (point, from, to) = (parts.next()?, parts.next()?.to_owned(), parts.next()?.to_owned());
    Some(KillPoint::parse(point)?.instead(move || {
        if let Err(error) = std::fs::copy(&from, &to) {
            unreachable!("the harness names files that are there: {from} and {to}: {error}");
        }
    }))
}

/// Two plans, the first one first.
struct Both(Arc<dyn Plan>, Arc<dyn Plan>);

#[async_trait::async_trait]
impl Plan for Both {
    async fn before(&self, crossing: &Crossing) {
        self.0.before(crossing).await;
        self.1.before(crossing).await;
    }

    async fn after(&self, crossing: &Crossing) {
        self.0.after(crossing).await;
        self.1.after(crossing).await;
    }
}

struct Nowhere;

#[async_trait::async_trait]
impl Plan for Nowhere {
    async fn before(&self, _crossing: &Crossing) {}
    async fn after(&self, _crossing: &Crossing) {}
}

impl Seams for KillPoints {
    fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let seam = StoreSeam::new(store, self.plan.clone());
        let is_broken = self.broken == "running-after-dispatch";
        Arc::new(if is_broken { seam.with_writes(RunningAfterDispatch::new()) } else { seam })
    }

    fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        Arc::new(Seam::new(transport, self.plan.clone()))
    }

    fn redactor(&self, redactor: Redactor) -> Redactor {
        if self.broken == "no-redactor" { Redactor::default() } else { redactor }
    }

    fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        Arc::new(Seam::new(llm, self.plan.clone()))
    }
}
