//! Which program reads a long page in a process of its own (`tools::crawl`, which also says why).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How long one page may be read; where a process reads it, of the processor's time.
pub(crate) const READ_FOR: Duration = Duration::from_mins(1);

/// The program that reads a page, and the arguments that tell it so: it calls [`serve_page`](crate::serve_page).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageReader {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
}

impl PageReader {
    /// `program` with `args`, which calls [`serve_page`](crate::serve_page).
    pub fn new(program: PathBuf, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program, args: args.into_iter().collect() }
    }
}
