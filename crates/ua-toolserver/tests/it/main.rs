//! The tool server from the outside.

#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod wire;
