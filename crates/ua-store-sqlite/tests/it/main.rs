//! The SQLite store from the outside: the contract of every store, and what only a file on disk can show.

mod beside;
mod conformance;
mod database;
mod doubts;
mod earlier;
mod event_chain;
mod held_time;
mod migrations;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod raw_sql;
mod restore;
mod row_findings;
#[allow(unreachable_pub, reason = "it is a part of another crate, which shows it")]
#[path = "../../../ua-testkit/src/skips.rs"]
mod skips;
mod two_writers;
mod unaccounted;
mod with_its_log;
