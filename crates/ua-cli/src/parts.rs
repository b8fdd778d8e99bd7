//! What a program adds to the command line: a layout engine, and what stands around the ports of a run.
//!
//! `ua` adds the layout engine. The programs of the test harnesses add kill points, and most of them no layout, so that a test that needs no
//! PDF does not carry one. What is common to all of them is in this crate, so what they certify is what ships.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ua_core::Redactor;
use ua_gateway::ToolTransport;
use ua_llm::LlmProvider;
use ua_store::Store;

/// The parts of a program; [`Parts::default`] has none.
#[derive(Clone, Default)]
pub struct Parts {
    /// What `render_pdf` lays documents out with; without one the tool is not offered.
    #[cfg(feature = "toolserver")]
    pub pdf: Option<ua_pdf::Renderer>,
    /// What wraps the ports of each run; without it they are used as they are.
    pub seams: Option<Arc<dyn Seams>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("seams", &self.seams.is_some()).finish_non_exhaustive()
    }
}

/// Wraps the ports of a run, so that a harness can die at a crossing or break a rule on purpose. What is not overridden is passed through.
pub trait Seams: Send + Sync {
    /// The storage of runs.
    fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
    /// The way to the tool servers.
    fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        transport
    }
    /// What takes secrets out of everything that is stored or sent.
    fn redactor(&self, redactor: Redactor) -> Redactor {
        redactor
    }
    /// The way to the model.
    fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        llm
    }
}

/// The ports as they are.
struct Open;

impl Seams for Open {}

static PARTS: OnceLock<Parts> = OnceLock::new();

/// Says what this program is made of, once, before anything else.
pub(crate) fn init(parts: Parts) {
    // A second call would be a second `main`; the first one stands.
    drop(PARTS.set(parts));
}

/// What wraps the ports of a run in this program.
pub(crate) fn seams() -> Arc<dyn Seams> {
    PARTS.get().and_then(|parts| parts.seams.clone()).unwrap_or_else(|| Arc::new(Open))
}

/// What lays out PDFs in this program.
#[cfg(feature = "toolserver")]
pub(crate) fn pdf() -> Option<ua_pdf::Renderer> {
    PARTS.get().and_then(|parts| parts.pdf)
}
