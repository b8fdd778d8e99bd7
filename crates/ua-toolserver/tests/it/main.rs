//! The tool server from the outside.

mod arrows;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod wire;
