//! The same program by other engines (`xtask/peers/invoices`): installed, killed in their tool, run again, and counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::counted::{Counted, of_python, of_rust};
use super::{BESIDE, LEAST, Program};

/// What is installed, by its version: a comparison says which.
const PACKAGES: [&str; 5] = [
    "dbos==3.4.0",
    "pydantic-ai-slim[dbos]==2.68.0",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "pysqlite3-binary==0.5.4.post2",
];

/// A program of another engine.
struct Peer {
    program: Program,
    /// The engine and what else is needed, as in the table.
    what: &'static str,
    counted: Counted,
}

pub(super) fn compare(folder: &Path, ours: &Program, unkeyed: &Program) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/invoices");
    println!("| program | lines | names | killed in the tool, run again: the shop takes keys | it takes none |");
    println!("|---|---|---|---|---|");
    let root = ua_testkit::workspace_root();
    let page = fs::read_to_string(root.join(BESIDE))?;
    let counted = of_rust(&fs::read_to_string(root.join(LEAST).join("main.rs"))?);
    let mut rows = vec![row("`ua-sdk`", &counted, &said(ours, false)?, &said(unkeyed, true)?)];
    let mut peers = Vec::new();
    for (what, installed) in [("durare", durare(&folder, &sources)), ("the Python engines", pythons(&folder, &sources))]
    {
        match installed {
            Ok(installed) => peers.extend(installed),
            Err(why) => ua_testkit::skipped(&format!("{what} could not be installed: {why:#}")),
        }
    }
    for peer in peers {
        let (keyed, without) = (said(&peer.program, false)?, said(&peer.program, true)?);
        rows.push(row(peer.what, &peer.counted, &keyed, &without));
    }
    let others: Vec<String> = rows.into_iter().filter(|row| !page.lines().any(|line| line == row)).collect();
    ensure!(others.is_empty(), "{BESIDE} says something else than was measured:\n{}", others.join("\n"));
    Ok(())
}

/// A row of the table, which is printed.
fn row(what: &str, counted: &Counted, keyed: &str, without: &str) -> String {
    let row = format!("| {what} | {} | {} | {keyed} | {without} |", counted.lines, counted.names);
    println!("{row}");
    row
}

/// What came of it, in the words of the table.
fn said(program: &Program, without_keys: bool) -> anyhow::Result<String> {
    let came = program.killed_in_the_tool(without_keys)?;
    let invoices = if came.invoices == 1 { "one invoice".to_owned() } else { format!("{} invoices", came.invoices) };
    let asks = came.said.starts_with("answer first");
    Ok(if asks { format!("{invoices}, and a person is asked") } else { invoices })
}

/// Built beside the workspace, from a manifest of its own.
fn durare(folder: &Path, sources: &Path) -> anyhow::Result<Vec<Peer>> {
    let (from, to) = (sources.join("durare"), folder.join("durare-invoices"));
    fs::create_dir_all(to.join("src"))?;
    for file in ["Cargo.toml", "src/main.rs", "src/shop.rs"] {
        fs::copy(from.join(file), to.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(["build", "--quiet", "--target-dir"]).arg(folder.join("target")).current_dir(&to);
    ensure!(command.status()?.success(), "it does not build");
    let program = Program { name: "durare", words: vec![folder.join("target/debug/durare-invoices")] };
    let counted = of_rust(&fs::read_to_string(from.join("src/main.rs"))?);
    Ok(vec![Peer { program, what: "durare 0.5.0", counted }])
}

/// Installed into an environment of their own.
fn pythons(folder: &Path, sources: &Path) -> anyhow::Result<Vec<Peer>> {
    let environment = folder.join("python");
    let python = environment.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).status()?;
        ensure!(made.success(), "`python3 -m venv` ended with {made}");
    }
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES).status()?;
    ensure!(installed.success(), "pip ended with {installed}");
    let peer = |name: &'static str, what: &'static str, file: &str| -> anyhow::Result<Peer> {
        let script = sources.join(file);
        let counted = of_python(&fs::read_to_string(&script)?);
        let words = vec![python.clone(), PathBuf::from("-W"), PathBuf::from("ignore"), script];
        Ok(Peer { program: Program { name, words }, what, counted })
    };
    Ok(vec![
        peer("DBOS", "DBOS 3.4.0 (Python)", "dbos_invoices.py")?,
        peer("pydantic-ai", "pydantic-ai 2.68.0 with DBOS", "pydantic_ai_invoices.py")?,
        peer("LangGraph", "LangGraph 1.2.22 (Python)", "langgraph_invoices.py")?,
    ])
}
