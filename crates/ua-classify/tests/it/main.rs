//! Classification from the outside.

mod classify;
mod corpora;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
