//! Reading of foreign configuration; servers are tested in `src/tests`, which need what is private.

mod corpora;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
