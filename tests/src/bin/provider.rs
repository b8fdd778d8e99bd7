//! A service of others, or a tool router (`composio`), behind a tool server: `ua-e2e-provider NAME LOG`, over standard input and output.

use std::error::Error;
use std::path::Path;

use ua_testkit::{Provider, serve_composio, serve_provider};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, log] = args.as_slice() else { return Err("usage: ua-e2e-provider NAME LOG".into()) };
    if name == "composio" {
        serve_composio(Path::new(log))?;
        return Ok(());
    }
    let provider = Provider::ALL.into_iter().find(|provider| provider.name() == name);
    serve_provider(provider.ok_or("no such service")?, Path::new(log))?;
    Ok(())
}
