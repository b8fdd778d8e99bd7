//! The test kit itself, and what no single crate can test of the repository.

mod day;
mod docs;
mod forged;
mod model_server;
mod one_binary;
mod printed_commands;
mod shown_paths;
mod sim;
mod skips;
mod supply_chain;
mod walks;
mod words;
mod wrapped;
