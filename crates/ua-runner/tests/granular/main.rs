//! The library face: what `GranularStep::run` returns, and what tools in the same process may do.
//!
//! Granular Execution PRD §7, §9, §10.

mod outcomes;
mod shop;
mod tools;
