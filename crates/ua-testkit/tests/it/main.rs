//! The test kit itself, and what no single crate can test of the repository.

mod model_server;
mod one_binary;
mod security_page;
mod sim;
mod supply_chain;
