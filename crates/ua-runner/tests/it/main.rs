//! The runner from the outside: runs that die anywhere, and the library face.

mod crash_anywhere;
mod granular;
mod granular_step;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
