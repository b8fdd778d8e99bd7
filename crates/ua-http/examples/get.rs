//! Asks for one page and prints its status, with the client that all of `ua` uses: `cargo run -p ua-http --example get -- https://example.org`.
#![allow(clippy::print_stdout)]

use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name an address")?;
    let client = ua_http::client(ua_http::Versions::OneAndTwo).no_proxy().build()?;
    println!("{}", client.get(url).send().await?.status());
    Ok(())
}
