//! This program under the hidden name by which it reads one long page for `crawl_parallel`.
//!
//! Reading one can take any amount of time and memory, so it has a process of its own, which limits itself (`ua_toolserver::serve_page`).

use std::process::ExitCode;

use ua_toolserver::PageReader;

/// The hidden name under which this program reads a page.
pub(crate) const PAGE: &str = "__page";

/// Reads a page, when this process was started for that; its exit code then.
pub(crate) fn run() -> Option<ExitCode> {
    std::env::args_os().nth(1).filter(|word| word == PAGE)?;
    Some(ExitCode::from(u8::try_from(ua_toolserver::serve_page()).unwrap_or(1)))
}

/// This program under its hidden name.
pub(crate) fn reader(settings: &ua_host::Settings) -> Option<PageReader> {
    Some(PageReader::new(settings.program().ok()?, [PAGE.into()]))
}
