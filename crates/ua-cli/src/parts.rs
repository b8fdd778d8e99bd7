//! What a program adds to the command line: a layout engine, and what stands around the ports of a run.
//!
//! `ua` adds the layout engine. The programs of the test harnesses add kill points, and most of them no layout, so that a test that needs no
//! PDF does not carry one. What is common to all of them is in this crate, so what they certify is what ships.

use std::fmt;
use std::sync::Arc;

pub use ua_host::Seams;

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
