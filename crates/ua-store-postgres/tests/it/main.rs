//! The PostgreSQL store from the outside: the contract of every store, directly and through a pooler, and what only a server can show.

mod chain;
mod cluster;
mod conformance;
mod cut;
mod database;
mod doubts;
mod durability;
mod earlier;
mod health;
mod history;
mod known;
mod notes;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod only_one;
mod pooled;
#[allow(unreachable_pub, dead_code, reason = "it is a part of another crate, which shows all of it")]
#[path = "../../../ua-testkit/src/postgres.rs"]
mod postgres;
mod raw_sql;
mod roles;
mod schema;
#[allow(unreachable_pub, reason = "it is a part of another crate, which shows it")]
#[path = "../../../ua-testkit/src/skips.rs"]
mod skips;
mod strangers;
mod writers;
