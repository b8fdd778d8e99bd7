//! The clients of model providers against real HTTP servers.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod client;
mod conformance;
mod errors_anywhere;
mod other_ids;
mod responses;
mod strict_servers;
mod support;
mod third_party;
mod thoughts;
mod unasked;
mod valid_histories;
