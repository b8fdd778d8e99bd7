use std::fs::{self, OpenOptions};
use std::io::Write;

/// Sends an invoice once for each key, and keeps silent afterwards while there is a file `slow`.
pub(crate) async fn send(order: &str, key: &str) -> Result<String, std::io::Error> {
    let takes_keys = !fs::exists("without-keys")?;
    let before = fs::read_to_string("invoices.txt").unwrap_or_default();
    if takes_keys && before.lines().any(|line| line.starts_with(key)) {
        return Ok(format!("the invoice for {order} was sent before"));
    }
    let mut file = OpenOptions::new().create(true).append(true).open("invoices.txt")?;
    file.write_all(format!("{key} {order}\n").as_bytes())?;
    println!("sent the invoice for {order}; waiting for the shop to say so");
    if fs::exists("slow")? {
        std::future::pending::<()>().await;
    }
    Ok(format!("the invoice for {order} is sent"))
}
