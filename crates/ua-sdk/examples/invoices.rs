//! The program of `docs/guide/five-minutes.md`: killed inside its tool, and run again, it sends one invoice.
//!
//! ```sh
//! cargo run -p ua-sdk --example invoices
//! ```
#![expect(clippy::print_stdout, reason = "what the example shows is what it prints")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use ua_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct Invoice {
    /// The number of the order.
    order: String,
}

/// A shop that sends an invoice once for each key. Yours would be a service with an API.
#[derive(Clone)]
struct Shop {
    sent: PathBuf,
}

impl Shop {
    async fn send(&self, order: &str, key: &str) -> Result<String, std::io::Error> {
        let before = fs::read_to_string(&self.sent).unwrap_or_default();
        if before.lines().any(|line| line.starts_with(key)) {
            return Ok(format!("the invoice for {order} was sent before"));
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.sent)?;
        file.write_all(format!("{key} {order}\n").as_bytes())?;
        println!("sent the invoice for {order}; waiting for the shop to say so");
        if fs::exists("slow")? {
            std::future::pending::<()>().await; // the moment to kill it: sent, and nobody has heard of it
        }
        Ok(format!("the invoice for {order} is sent"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // Says what a model would say. With the feature `anthropic`: Anthropic::from_env("claude-sonnet-4-5")?
    let model = Model::scripted(
        r#"{"turns": [
            {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17"}}]},
            {"text": "The invoice for A-17 is on its way."}
        ]}"#,
    )?;
    let shop = Shop { sent: "invoices.txt".into() };
    let step = Step::new("invoices")
        .model(model)
        .tool(
            tool("send_invoice", "Sends the invoice for an order.", async move |call: Call, invoice: Invoice| {
                shop.send(&invoice.order, call.key()).await
            })
            .external("invoice.send")
            .keyed(),
        )
        .input("Send an invoice for every order that has none.");

    println!("{}", Runs::open("state")?.run(&step, "invoices-2026-11").await?);
    Ok(())
}
