//! `cargo xtask outside`: the program of the five-minute page, as written there, as a crate of its own outside the workspace. It is built with
//! path dependencies, killed inside its tool, run again, and has sent one invoice.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use ua_testkit::docs::Page;
use ua_testkit::workspace_root;

/// The page with the manifest and the program.
const PAGE: &str = "docs/guide/five-minutes.md";

/// Where it is built.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target folder of that crate; by default a temporary one
    #[arg(long, value_name = "DIR")]
    target: Option<PathBuf>,
    /// Uses only crates that are on this machine
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root();
    let page = Page::parse(PAGE, &fs::read_to_string(root.join(PAGE))?);
    let (manifest, program) = written(&page)?;
    let folder = tempfile::tempdir()?;
    let krate = folder.path().join("invoices");
    fs::create_dir_all(krate.join("src"))?;
    fs::write(krate.join("Cargo.toml"), with_checkout(&manifest, &root)?)?;
    fs::write(krate.join("src/main.rs"), program)?;
    // The versions that the workspace is tested with.
    fs::copy(root.join("Cargo.lock"), krate.join("Cargo.lock"))?;
    let target = options.target.clone().unwrap_or_else(|| folder.path().join("target"));
    let target = std::path::absolute(target)?;
    let mut cargo = Command::new("cargo");
    cargo.arg("build").current_dir(&krate).env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "false");
    if options.offline {
        cargo.arg("--offline");
    }
    ensure!(cargo.status()?.success(), "the program of {PAGE} does not compile outside the workspace");
    let program = target.join("debug/invoices");
    kill_in_the_tool(&program, &krate)?;
    let again = Command::new(&program).current_dir(&krate).output()?;
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    ensure!(again.status.success() && said.contains("complete after 2 turns"), "it was not finished: {again:?}");
    let invoices = fs::read_to_string(krate.join("invoices.txt"))?;
    ensure!(invoices.lines().count() == 1, "the invoice was sent more than once:\n{invoices}");
    println!(
        "outside: the program of {PAGE} compiles as written; killed in its tool and run again, it sent one invoice"
    );
    Ok(())
}

/// Starts the program, waits until the invoice is sent, and kills it there.
fn kill_in_the_tool(program: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::write(folder.join("slow"), "")?;
    let mut first = Command::new(program).current_dir(folder).stdout(Stdio::piped()).spawn()?;
    let said = first.stdout.take().context("its output is not piped")?;
    let mut lines = BufReader::new(said).lines();
    let is_sent = loop {
        match lines.next().transpose()? {
            Some(line) if line.starts_with("sent the invoice") => break true,
            Some(_) => {}
            None => break false,
        }
    };
    first.kill()?;
    first.wait()?;
    fs::remove_file(folder.join("slow"))?;
    if !is_sent {
        bail!("it ended before its tool was called");
    }
    Ok(())
}

/// The dependencies and the program, as the page has them.
fn written(page: &Page) -> anyhow::Result<(String, String)> {
    let block = |language: &str, word: &str| {
        let found = page.blocks.iter().find(|block| block.language() == language && block.text.contains(word));
        found.map(|block| block.text.clone()).with_context(|| format!("{PAGE} has no {language} block with {word:?}"))
    };
    Ok((block("toml", "[dependencies]")?, block("rust", "async fn main")?))
}

/// A manifest with these dependencies, on the checkout at `root`.
fn with_checkout(dependencies: &str, root: &Path) -> anyhow::Result<String> {
    let written = "../ua/crates/ua-sdk";
    ensure!(dependencies.contains(written), "the manifest of {PAGE} does not name {written}");
    let there = root.join("crates/ua-sdk").display().to_string();
    let package = "[package]\nname = \"invoices\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    Ok(format!("{package}{}\n[workspace]\n", dependencies.replace(written, &there)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's program is the example's, word for word: what the workspace tests is what a reader copies.
    #[test]
    fn the_page_has_the_program_of_the_example() {
        let root = workspace_root();
        let page = Page::parse(PAGE, &fs::read_to_string(root.join(PAGE)).unwrap());
        let (manifest, program) = written(&page).unwrap();
        let example = fs::read_to_string(root.join("crates/ua-sdk/examples/invoices.rs")).unwrap();
        let (_, example) = example.split_once("prints\")]\n\n").unwrap();
        assert_eq!(program.trim(), example.trim());
        assert!(with_checkout(&manifest, &root).unwrap().contains("/crates/ua-sdk\""));
    }
}
