#![no_main]

#[path = "../bodies/mcp_config.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
