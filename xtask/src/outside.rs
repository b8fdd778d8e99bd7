//! `cargo xtask outside`: the programs of the guide, as written there, as a crate of their own outside the workspace. They are built with path
//! dependencies, killed inside their tool, run again, and have sent one invoice. With `--peers` the same is done with the programs of other
//! engines beside them, and what is counted of each is printed, and is the table of `docs/guide/side-by-side.md`.

mod counted;
mod peers;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use ua_testkit::docs::Page;
use ua_testkit::workspace_root;

/// The page with the manifest and the program.
const PAGE: &str = "docs/guide/five-minutes.md";

/// The page with the program that is put together out of the crates below.
const PARTS: &str = "docs/guide/library.md";

/// The least program, which stands beside those of others.
const LEAST: &str = "crates/ua-sdk/examples/side_by_side";

/// The page with the programs of others beside it.
const BESIDE: &str = "docs/guide/side-by-side.md";

/// Where it is built.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target folder of that crate; by default a temporary one
    #[arg(long, value_name = "DIR")]
    target: Option<PathBuf>,
    /// Uses only crates that are on this machine
    #[arg(long)]
    offline: bool,
    /// Builds from the packages that a registry would get, not from the checkout
    #[arg(long)]
    packaged: bool,
    /// Does the same with programs of durare, DBOS, pydantic-ai and LangGraph, which are installed here and stay for the next time
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
}

/// A program that sends an invoice: its name, and the words that start it.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) words: Vec<PathBuf>,
}

/// What came of a program that was killed in its tool and run again.
pub(crate) struct Outcome {
    /// Invoices that the shop has.
    pub(crate) invoices: usize,
    /// What the second process said last.
    pub(crate) said: String,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let built = build(options, folder.path())?;
    let program = |name: &'static str| Program { name, words: vec![built.join(name)] };
    for name in ["invoices", "side_by_side"] {
        let came = program(name).killed_in_the_tool(false)?;
        ensure!(came.said.starts_with("complete after 2 turns"), "{name} was not finished: {}", came.said);
        ensure!(came.invoices == 1, "{name} sent {} invoices", came.invoices);
    }
    let unkeyed = program("without_a_key").killed_in_the_tool(true)?;
    ensure!(unkeyed.invoices == 1 && unkeyed.said.starts_with("answer first"), "nobody was asked: {}", unkeyed.said);
    let parts = Command::new(built.join("parts")).current_dir(folder.path()).output()?;
    let said = String::from_utf8_lossy(&parts.stdout);
    ensure!(said.starts_with("complete after 2 turns"), "the program of {PARTS} said {said:?}: {parts:?}");
    println!(
        "outside: the program of {PAGE} compiles as written; killed in its tool and run again, it sent one invoice"
    );
    match &options.peers {
        Some(peers) => peers::compare(peers, &program("side_by_side"), &program("without_a_key")),
        None => Ok(()),
    }
}

/// The folder with the programs.
fn build(options: &Options, folder: &Path) -> anyhow::Result<PathBuf> {
    let root = workspace_root();
    let page = Page::parse(PAGE, &fs::read_to_string(root.join(PAGE))?);
    let (manifest, program) = written(&page)?;
    let parts = Page::parse(PARTS, &fs::read_to_string(root.join(PARTS))?);
    let krate = folder.join("invoices");
    let bins = krate.join("src/bin");
    fs::create_dir_all(&bins)?;
    let manifest = with_checkout(&manifest, &root)?;
    let manifest = if options.packaged { from_packages(&manifest, &root, folder)? } else { manifest };
    fs::write(krate.join("Cargo.toml"), manifest)?;
    fs::write(krate.join("src/main.rs"), program)?;
    fs::write(bins.join("parts.rs"), block(&parts, "rust", "GranularStep::new")?)?;
    let least = fs::read_to_string(root.join(LEAST).join("main.rs"))?;
    for (name, text) in [("side_by_side", least.clone()), ("without_a_key", without_key(&least)?)] {
        fs::create_dir_all(bins.join(name))?;
        fs::write(bins.join(name).join("main.rs"), text)?;
        fs::copy(root.join(LEAST).join("shop.rs"), bins.join(name).join("shop.rs"))?;
    }
    // The versions that the workspace is tested with.
    fs::copy(root.join("Cargo.lock"), krate.join("Cargo.lock"))?;
    let target = options.target.clone().unwrap_or_else(|| folder.join("target"));
    let target = std::path::absolute(target)?;
    let mut cargo = Command::new("cargo");
    cargo.arg("build").current_dir(&krate).env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "false");
    if options.offline {
        cargo.arg("--offline");
    }
    ensure!(cargo.status()?.success(), "the program of {PAGE} does not compile outside the workspace");
    Ok(target.join("debug"))
}

/// The same program with a tool that makes no promise about keys.
fn without_key(program: &str) -> anyhow::Result<String> {
    ensure!(program.contains(".keyed()"), "{LEAST} has no keyed tool");
    Ok(program.replace(".keyed()", ""))
}

impl Program {
    fn command(&self, folder: &Path) -> Command {
        let (program, words) =
            self.words.split_first().map_or((Path::new(""), &[][..]), |(first, rest)| (first.as_path(), rest));
        let mut command = Command::new(program);
        command.args(words).current_dir(folder).stdin(Stdio::null());
        command
    }

    /// Starts it, kills it when the invoice is sent and nobody has heard of it, and runs it again; the shop takes keys, or knows none.
    pub(crate) fn killed_in_the_tool(&self, without_keys: bool) -> anyhow::Result<Outcome> {
        let folder = tempfile::tempdir()?;
        if without_keys {
            fs::write(folder.path().join("without-keys"), "")?;
        }
        fs::write(folder.path().join("slow"), "")?;
        let mut first = self.command(folder.path()).stdout(Stdio::piped()).spawn().context(self.name)?;
        let said = first.stdout.take().context("its output is not piped")?;
        let is_sent =
            BufReader::new(said).lines().map_while(Result::ok).any(|line| line.starts_with("sent the invoice"));
        first.kill()?;
        first.wait()?;
        fs::remove_file(folder.path().join("slow"))?;
        ensure!(is_sent, "{} ended before its tool was called", self.name);
        let again = self.command(folder.path()).output()?;
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        ensure!(again.status.success(), "{}: {}{}", self.name, said, String::from_utf8_lossy(&again.stderr));
        let invoices = fs::read_to_string(folder.path().join("invoices.txt"))?.lines().count();
        let said = said.lines().last().unwrap_or_default().to_owned();
        Ok(Outcome { invoices, said })
    }
}

/// The dependencies and the program, as the page has them.
fn written(page: &Page) -> anyhow::Result<(String, String)> {
    Ok((block(page, "toml", "[dependencies]")?, block(page, "rust", "async fn main")?))
}

/// The first block in that language with that word.
fn block(page: &Page, language: &str, word: &str) -> anyhow::Result<String> {
    let found = page.blocks.iter().find(|block| block.language() == language && block.text.contains(word));
    found
        .map(|block| block.text.clone())
        .with_context(|| format!("a page of the guide has no {language} block with {word:?}"))
}

/// A manifest with these dependencies, on the checkout at `root`.
fn with_checkout(dependencies: &str, root: &Path) -> anyhow::Result<String> {
    let written = "../ua/crates/ua-sdk";
    ensure!(dependencies.contains(written), "the manifest of {PAGE} does not name {written}");
    let there = root.join("crates/ua-sdk").display().to_string();
    let package = "[package]\nname = \"invoices\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    Ok(format!("{package}{}\n[workspace]\n", dependencies.replace(written, &there)))
}

/// The same manifest on packages: every crate that would be published is packed, unpacked elsewhere, and put in the place of the registry's.
fn from_packages(manifest: &str, root: &Path, folder: &Path) -> anyhow::Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--workspace", "--no-verify", "--allow-dirty", "--locked", "--quiet"]).current_dir(root);
    for unpublished in ["ua-e2e", "ua-testkit", "xtask"] {
        cargo.args(["--exclude", unpublished]);
    }
    let packed = folder.join("packed");
    let unpacked = folder.join("packages");
    fs::create_dir_all(&unpacked)?;
    ensure!(cargo.env("CARGO_TARGET_DIR", &packed).status()?.success(), "the crates cannot be packed");
    let (mut patches, version) = (String::from("\n[patch.crates-io]\n"), env!("CARGO_PKG_VERSION"));
    for entry in fs::read_dir(packed.join("package"))? {
        let file = entry?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()?.strip_suffix(&format!("-{version}.crate")))
        else {
            continue;
        };
        let done = Command::new("tar").arg("xf").arg(&file).current_dir(&unpacked).status()?;
        ensure!(done.success(), "{} cannot be unpacked", file.display());
        let there = unpacked.join(format!("{name}-{version}"));
        patches.push_str(&format!("{name} = {{ path = {:?} }}\n", there.display().to_string()));
    }
    let checkout = format!("path = {:?}", root.join("crates/ua-sdk").display().to_string());
    ensure!(manifest.contains(&checkout), "the manifest does not name {checkout}");
    Ok(format!("{}{patches}", manifest.replace(&checkout, &format!("version = \"{version}\""))))
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
        let parts = Page::parse(PARTS, &fs::read_to_string(root.join(PARTS)).unwrap());
        let parts = block(&parts, "rust", "GranularStep::new").unwrap();
        // It compiles beside that manifest: whole, and out of what the manifest has.
        assert!(parts.contains("async fn main") && !parts.lines().any(|line| line.starts_with("# ")), "{parts}");
        let imports = parts.lines().filter_map(|line| line.strip_prefix("use "));
        assert!(imports.clone().all(|path| ["std::", "ua_sdk::"].iter().any(|ours| path.starts_with(ours))));
    }

    /// All code of the guide is compiled by somebody.
    #[test]
    fn no_code_of_the_library_pages_is_left_out() {
        let pages = ua_testkit::docs::pages();
        let ignored = pages.iter().filter(|page| page.blocks.iter().any(|block| block.info.starts_with("rust,ignore")));
        // Both are compared below: with programs, and with the words of one.
        assert_eq!(ignored.map(|page| page.path.as_str()).collect::<Vec<_>>(), ["README.md", BESIDE]);
    }

    /// README has an excerpt that is too short to be compiled; all that it calls is called by what is.
    #[test]
    fn the_excerpt_of_the_readme_is_made_of_what_is_compiled() {
        let root = workspace_root();
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        let excerpt = block(&Page::parse("README.md", &read("README.md")), "rust", "ua_sdk::prelude").unwrap();
        let compiled = read(PAGE) + &read("crates/ua-sdk/src/lib.rs");
        let unknown = |excerpt: &str, compiled: &str| {
            let words = |text: &str| -> std::collections::BTreeSet<String> {
                text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
            };
            let code: Vec<&str> = excerpt.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            let mut unknown: Vec<String> = words(&code.join("\n")).difference(&words(compiled)).cloned().collect();
            // A name of one letter is the excerpt's own.
            unknown.retain(|word| word.len() > 1);
            unknown
        };
        assert_eq!(unknown(&excerpt, &compiled), [""; 0]);
        assert_eq!(unknown(&excerpt.replace(".keyed()", ".with_key()"), &compiled), ["with_key"]);
    }

    /// What a reader compares is what is run and counted.
    #[test]
    fn the_page_beside_others_has_the_programs_and_what_is_counted_of_them() {
        let root = workspace_root();
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        let page = read(BESIDE);
        let ours = read("crates/ua-sdk/examples/side_by_side/main.rs");
        let durare = read("xtask/peers/invoices/durare/src/main.rs");
        let mut programs = vec![
            ("`ua-sdk`", counted::of_rust(&ours), ours.split_once("prints\")]\n\n").unwrap().1.to_owned()),
            ("durare 0.5.0", counted::of_rust(&durare), durare.clone()),
        ];
        for (what, file) in [
            ("DBOS 3.4.0 (Python)", "dbos_invoices.py"),
            ("pydantic-ai 2.68.0 with DBOS", "pydantic_ai_invoices.py"),
            ("LangGraph 1.2.22 (Python)", "langgraph_invoices.py"),
        ] {
            let text = read(&format!("xtask/peers/invoices/{file}"));
            programs.push((what, counted::of_python(&text), text));
        }
        for (what, counted, text) in programs {
            assert!(page.contains(text.trim()), "the program of {what}");
            let row = format!("| {what} | {} | {} | one invoice |", counted.lines, counted.names);
            assert!(page.contains(&row), "{row}");
        }
        // What `run` demands of ours; those of others are compared where they are installed.
        assert!(page.contains("| one invoice | one invoice, and a person is asked |\n| durare"), "the row of ours");
    }

    #[test]
    fn both_rust_programs_have_the_same_shop() {
        let root = workspace_root();
        let shop = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        assert_eq!(
            shop("crates/ua-sdk/examples/side_by_side/shop.rs"),
            shop("xtask/peers/invoices/durare/src/shop.rs")
        );
    }
}
