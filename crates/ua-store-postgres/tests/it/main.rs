//! The PostgreSQL store from the outside: the contract of every store, directly and through a pooler, and what only a server can show.

mod chain;
mod cluster;
mod conformance;
mod cut;
mod database;
mod durability;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod pooled;
mod raw_sql;
mod schema;
mod writers;
