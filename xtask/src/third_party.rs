//! `cargo xtask third-party`: the agents, servers and mock providers of others that some tests run against.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use ua_testkit::ThirdParty;

/// Node.js itself comes first: several packages refuse an older one, and npm then picks an older package in silence.
const NODE: &str = "node@24";

/// npm's packages, each with the version that the tests were written against.
const NPM: [&str; 8] = [
    "@anthropic-ai/claude-code@2.1.329",
    "@copilotkit/aimock@1.43.0",
    "@openai/codex@0.169.0",
    "@modelcontextprotocol/conformance@0.1.16",
    // The same suite for revision 2026-07-28, under a name of its own beside the other.
    "conformance-2026@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];

/// Python's packages, by the environment ([`PYTHONS`](ua_testkit::PYTHONS)): what some of them need, others refuse.
const PYTHON: [(&str, &[&str]); 4] = [
    // Agents whose tools the gateway stands in front of.
    ("agents", &["openai-agents==0.24.0"]),
    ("servers", &["mcp-server-fetch==2026.10.24", "mcp-server-time==2026.10.19"]),
    // A mock of model APIs that breaks on purpose, and a proxy between clients and providers.
    ("llmock", &["llmock==0.2.2"]),
    ("litellm", &["litellm[proxy]==1.106.2"]),
];

/// Cargo's packages, with their features. They are programs that tests start; nothing of them is linked.
const CARGO: [&str; 1] = [
    // A mock of model APIs that plays states: each request has the answer, or the fault, of the one that it is in.
    "llmposter@0.5.0",
];

/// Which of them, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder to install into; tests look into the one of `UA_THIRD_PARTY`
    #[arg(long, value_name = "DIR", env = "UA_THIRD_PARTY")]
    into: Option<PathBuf>,
    /// Lists the packages and installs nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        let python = PYTHON.iter().flat_map(|(_, packages)| *packages);
        for package in [NODE].iter().chain(&NPM).chain(python).chain(&CARGO) {
            println!("{package}");
        }
        return Ok(());
    }
    let into = ThirdParty::at(options.into.clone());
    install_npm(&into)?;
    install_python(&into)?;
    install_cargo(&into)?;
    println!("installed below {}", into.root.display());
    Ok(())
}

fn install_npm(into: &ThirdParty) -> anyhow::Result<()> {
    let folder = into.npm();
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let manifest = folder.join("package.json");
    if !manifest.exists() {
        std::fs::write(&manifest, "{\"private\": true}\n")?;
    }
    println!("npm: {NODE}");
    npm(&folder, into, &[NODE])?;
    println!("npm: {}", NPM.join(" "));
    npm(&folder, into, &NPM)
}

fn npm(folder: &Path, into: &ThirdParty, packages: &[&str]) -> anyhow::Result<()> {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path = into.path().into_iter().chain(std::env::split_paths(&inherited));
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]).args(packages);
    said_yes(command.current_dir(folder).env("PATH", std::env::join_paths(path)?))
}

fn install_python(into: &ThirdParty) -> anyhow::Result<()> {
    for (name, packages) in PYTHON {
        let folder = into.python(name);
        if !folder.join("bin/pip").exists() {
            said_yes(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        }
        println!("pip: {}", packages.join(" "));
        said_yes(Command::new(folder.join("bin/pip")).args(["install", "--quiet"]).args(packages))?;
    }
    Ok(())
}

fn install_cargo(into: &ThirdParty) -> anyhow::Result<()> {
    println!("cargo: {}", CARGO.join(" "));
    let mut command = Command::new("cargo");
    command.args(["install", "--quiet", "--locked", "--all-features", "--root"]).arg(into.cargo()).args(CARGO);
    // It is built in a folder of its own: nothing of it belongs to this workspace's target.
    said_yes(command.env_remove("CARGO_TARGET_DIR").current_dir(&into.root))
}

fn said_yes(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}
