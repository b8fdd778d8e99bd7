//! What makes two calls one effect, on the store in memory.
//!
//! Durable Jobs v1 spec §8.2 and §8.3. A lineage here is a run and its child, each with a ledger of its own on one store; the road to
//! the question and back through the command line is `tests/e2e/near_duplicates.rs`.

#![expect(clippy::unwrap_used, reason = "a test ends with a panic")]

mod busy;
mod doubts;
mod effect_limits;
mod forgotten;
mod forks;
mod given_answers;
mod lineage;
mod lost;
mod member;
mod people;
mod renamed;
mod repetition;
mod same_effect;
mod twins;
mod unseen;
mod withdrawn;
