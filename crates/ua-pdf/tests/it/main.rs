//! The layout engine from the outside: whole documents, by the library and by the tool.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod apart;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod rendering;
#[allow(unreachable_pub, reason = "it is a part of another crate, which shows it")]
#[path = "../../../ua-testkit/src/skips.rs"]
mod skips;
mod tool;
