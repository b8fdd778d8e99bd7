//! This program under the hidden name by which it lays out one document for `render_pdf`.
//!
//! A layout can take any amount of time and memory, so it has a process of its own, which limits itself (`ua_pdf::serve`).

use std::process::ExitCode;

use ua_pdf::{Layout, LayoutProcess};

use crate::parts::Parts;

/// The hidden name under which this program lays out a document.
pub(crate) const LAYOUT: &str = "__layout";

/// Lays out, when this process was started for that; its exit code then.
pub(crate) fn run(parts: &Parts) -> Option<ExitCode> {
    let renderer = parts.pdf?;
    std::env::args_os().nth(1).filter(|word| word == LAYOUT)?;
    Some(ExitCode::from(u8::try_from(ua_pdf::serve(renderer)).unwrap_or(1)))
}

/// This program under its hidden name, where it has a layout engine.
pub(crate) fn process(settings: &ua_host::Settings, parts: &Parts) -> Option<Layout> {
    parts.pdf?;
    let program = settings.program().ok()?;
    Some(Layout::Apart(LayoutProcess::new(program, [LAYOUT.into()])))
}
