//! Checkpoints from the outside.

mod corpora;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
