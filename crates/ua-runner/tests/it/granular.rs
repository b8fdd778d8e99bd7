//! The library face: what `GranularStep::run` returns, and what tools in the same process may do.
//!
//! Granular Execution PRD §7, §9, §10.
#![expect(clippy::unwrap_used, reason = "a test ends with a panic")]

mod away;
mod named;
mod outcomes;
mod output;
mod provider_edge;
mod rounds;
mod shop;
mod tools;
