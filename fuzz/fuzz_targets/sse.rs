#![no_main]

#[path = "../bodies/sse.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
