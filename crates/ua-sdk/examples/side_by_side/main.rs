//! The least program with one effect that must not happen twice; beside those of others in `docs/guide/side-by-side.md`.
#![expect(clippy::print_stdout, reason = "what the example shows is what it prints")]

mod shop;

use ua_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct Invoice {
    order: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // Says what a model would say.
    let model = Model::scripted(
        r#"{"turns": [
            {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17"}}]},
            {"text": "The invoice for A-17 is on its way."}
        ]}"#,
    )?;
    let send = async |call: Call, invoice: Invoice| shop::send(&invoice.order, call.key()).await;
    let step = Step::new("invoices")
        .model(model)
        .tool(tool("send_invoice", "Sends the invoice for an order.", send).external("invoice.send").keyed())
        .input("Send an invoice for every order that has none.");
    println!("{}", Runs::open("state")?.run(&step, "invoices-2026-11").await?);
    Ok(())
}
