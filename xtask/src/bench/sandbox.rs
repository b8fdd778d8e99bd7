//! What the walls around a program of `run_command` cost a call: the same calls of two built-in tool servers, one with the sandbox and one
//! without, in turns.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::json;

use super::calls::median;
use super::client::Client;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program that is measured, built for release
    #[arg(long, value_name = "PATH")]
    ua: PathBuf,
    /// How many calls of each kind are measured
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..))]
    calls: u32,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let ua = options.ua.canonicalize().with_context(|| format!("find {}", options.ua.display()))?;
    let (open, closed) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut off = server(&ua, "off", open.path())?;
    let mut required = server(&ua, "required", closed.path())?;
    println!("| a call of `run_command`, median of {} | without | with every wall | ratio |", options.calls);
    println!("|---|---|---|---|");
    // One that does nothing, and one that starts others.
    for argv in [&["true"][..], &["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do /bin/true; done"]] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for call in 0..options.calls + 5 {
            let arguments = json!({"argv": argv});
            let (one, other) = (off.call("run_command", &arguments)?, required.call("run_command", &arguments)?);
            // The first ones look at what the kernel offers, and fill caches.
            if call >= 5 {
                without.push(one);
                with.push(other);
            }
        }
        let (without, with) = (median(without), median(with));
        println!("| `{}` | {without:.2} ms | {with:.2} ms | {:.2} |", argv.join(" "), with / without);
    }
    Ok(())
}

fn server(ua: &Path, sandbox: &str, workspace: &Path) -> anyhow::Result<Client> {
    let args = ["toolserver", "--enable-command", "--command-sandbox", sandbox, "--workspace"];
    Client::start(Command::new(ua).args(args).arg(workspace))
}
