//! Whole documents, by the library and by the tool.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rendering;
mod tool;
