#![no_main]

#[path = "../bodies/terminal.rs"]
mod body;
#[path = "../../crates/ua-host/src/escape.rs"]
mod escape;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
