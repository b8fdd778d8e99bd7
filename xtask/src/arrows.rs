//! The house's arrows: which of our crates may use which, and what stands in one place only. The map is the page: docs/architecture.md is read, and
//! whatever does not fit it is a fault. Development dependencies do not count.
//!
//! Which of them may use a crate that is not ours is said in `deny.toml`, as the `wrappers` of a banned crate; the page says the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;
use ua_testkit::docs::Page;
use ua_testkit::workspace_root;

/// The page with the map.
const PAGE: &str = "docs/architecture.md";

/// What composes the work on a run, and the files that may. Everybody else passes ports to a `Desk` or a `Worker`: what lanes certify is what
/// ships.
const COMPOSES: [(&str, &[&str]); 2] = [
    ("Ledger::new(", &["crates/ua-ledger/", "crates/ua-runner/src/desk.rs", "crates/ua-mcp/src/tests/"]),
    ("Dispatcher::new(", &["crates/ua-dispatch/", "crates/ua-runner/src/desk.rs"]),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let root = workspace_root();
    let read = |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let map = Map::of(&Page::parse(PAGE, &read(PAGE)?));
    let output =
        Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--no-deps", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let mut faults = map.faults(&dependencies(&metadata));
    faults.extend(map.differs_from(&banned(&read("deny.toml")?)));
    faults.extend(compositions(&root)?);
    for fault in &faults {
        eprintln!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} thing(s) do not fit the map in {PAGE}; move the wall, or change the map", faults.len());
    }
    println!("arrows: all dependencies between crates point down");
    Ok(())
}

/// What the page says.
#[derive(Debug, PartialEq, Eq)]
struct Map {
    /// The layer of each crate; arrows point down, to a lower number.
    layers: BTreeMap<String, u8>,
    /// Arrows within a layer.
    sideways: BTreeSet<(String, String)>,
    /// Who may use a library that is not ours, by "Only `a` and `b` use `library`"; by the words behind `use`.
    owners: Vec<(String, BTreeSet<String>)>,
    /// Crates that have a section.
    sections: String,
}

impl Map {
    fn of(page: &Page) -> Self {
        let lines = page.blocks.iter().filter(|block| block.language() == "text").flat_map(|block| block.text.lines());
        let numbered =
            lines.filter_map(|line| line.split_once("  ").and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))));
        let crates = |(layer, rest): (u8, &str)| {
            let words: Vec<String> =
                rest.split([' ', '(', ')', ',']).filter(|word| is_crate(word)).map(str::to_owned).collect();
            words.into_iter().map(move |word| (word, layer))
        };
        let items =
            page.text.lines().filter_map(|line| line.strip_prefix("- `")).filter_map(|line| line.split_once("` → `"));
        let sentences = page.text.lines().filter_map(|line| line.strip_prefix("- Only "));
        let uses = sentences.filter_map(|line| line.split_once(" use `").or_else(|| line.split_once(" uses ")));
        let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Self {
            layers: numbered.flat_map(crates).collect(),
            sideways: items
                .map(|(from, rest)| (from.to_owned(), rest.split('`').next().unwrap_or_default().to_owned()))
                .collect(),
            owners: uses.map(|(owners, used)| (used.to_owned(), names(owners))).collect(),
            sections: page.text.lines().filter(|line| line.starts_with("### ")).collect::<Vec<_>>().join("\n"),
        }
    }

    /// What of these dependencies does not fit, and crates that are on the map and nowhere else.
    fn faults(&self, dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
        let mut faults = Vec::new();
        for (user, used) in dependencies {
            for name in used {
                let is_named = self.sideways.contains(&(user.clone(), name.clone()));
                match (self.layers.get(user), self.layers.get(name)) {
                    (Some(from), Some(to)) if from <= to && !is_named => {
                        faults.push(format!("{user} → {name} does not point down"));
                    }
                    (None, Some(_)) if !is_named && user != "ua-e2e" => {
                        faults.push(format!("{user} is not on the map"));
                    }
                    (Some(_) | None, Some(_) | None) => {}
                }
            }
            if is_crate(user) && !self.layers.contains_key(user) && user != "ua-e2e" {
                faults.push(format!("{user} is not on the map"));
            }
        }
        for name in self.layers.keys() {
            if !dependencies.contains_key(name) {
                faults.push(format!("{name} is on the map, and not in the workspace"));
            }
            if !self.sections.contains(name.as_str()) {
                faults.push(format!("{name} has no section"));
            }
        }
        for (from, to) in &self.sideways {
            if dependencies.get(from).is_none_or(|used| !used.contains(to)) {
                faults.push(format!("{from} → {to} is on the page, and nobody needs it"));
            }
        }
        faults.sort_unstable();
        faults.dedup();
        faults
    }

    /// Where the page and `deny.toml` say something else of a library.
    fn differs_from(&self, banned: &[(String, BTreeSet<String>)]) -> Vec<String> {
        let differs = |(library, owners): &(String, BTreeSet<String>)| {
            let said = if library.contains("opentelemetry") { "OpenTelemetry" } else { library };
            let on_page = self.owners.iter().find(|(used, _)| used.starts_with(said)).map(|(_, owners)| owners);
            (on_page != Some(owners))
                .then(|| format!("{library}: deny.toml lets {owners:?} use it, and the page {on_page:?}"))
        };
        banned.iter().filter_map(differs).collect()
    }
}

fn is_crate(word: &str) -> bool {
    word.starts_with("ua-") || word == "xtask"
}

fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
            let normal = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
            (name(package), normal.map(name).collect())
        })
        .collect()
}

/// The libraries that only some of our crates may use, by the text of `deny.toml`; what other libraries and the end-to-end tests use stands on no
/// map.
fn banned(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let lines =
        text.lines().filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split_once("\", wrappers = ["));
    let owners = |rest: &str| {
        let names = rest.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2);
        names.filter(|name| is_crate(name) && *name != "ua-e2e").map(str::to_owned).collect()
    };
    lines.map(|(library, rest)| (library.to_owned(), owners(rest))).collect()
}

/// Files that put a run's work together themselves.
fn compositions(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("tests"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                faults.extend(composition(&name, &fs::read_to_string(&path)?));
            }
        }
    }
    Ok(faults)
}

fn composition(name: &str, text: &str) -> Vec<String> {
    // This file names what it looks for.
    if name.ends_with("xtask/src/arrows.rs") {
        return Vec::new();
    }
    let composes = COMPOSES
        .iter()
        .filter(|(word, places)| text.contains(word) && !places.iter().any(|place| name.starts_with(place)));
    composes.map(|(word, _)| format!("{name}: `{word}` belongs in ua_runner::Desk; pass it ports")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn architecture() -> Page {
        Page::parse(PAGE, &fs::read_to_string(workspace_root().join(PAGE)).unwrap())
    }

    fn other(from: &str, to: &str) -> Map {
        let page = architecture();
        assert!(page.text.contains(from), "{from}");
        Map::of(&Page::parse(PAGE, &page.text.replacen(from, to, 1)))
    }

    fn with(map: &Map, user: &str, used: &str) -> BTreeMap<String, BTreeSet<String>> {
        let mut dependencies: BTreeMap<String, BTreeSet<String>> =
            map.layers.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
        for (from, to) in &map.sideways {
            dependencies.entry(from.clone()).or_default().insert(to.clone());
        }
        dependencies.entry(user.to_owned()).or_default().insert(used.to_owned());
        dependencies
    }

    #[test]
    fn an_arrow_that_points_up_is_seen() {
        let map = Map::of(&architecture());
        assert_eq!(map.faults(&with(&map, "ua-ledger", "ua-store")), [""; 0]);
        assert_eq!(map.faults(&with(&map, "ua-store", "ua-ledger")), ["ua-store → ua-ledger does not point down"]);
        assert_eq!(map.faults(&with(&map, "ua-new", "ua-core")), ["ua-new is not on the map"]);
    }

    #[test]
    fn an_edit_of_the_page_alone_is_seen() {
        let map = Map::of(&architecture());
        let now = with(&map, "ua-ledger", "ua-store");
        let gone = other("1  ua-store    ua-classify    ua-llm", "1  ua-store    ua-classify");
        assert_eq!(gone.faults(&now), ["ua-llm is not on the map"]);
        let moved = other("1  ua-store    ", "2  ua-store    ");
        assert_eq!(moved.faults(&now), ["ua-ledger → ua-store does not point down"]);
        let unnamed = other("- `ua-toolserver` → `ua-pdf`", "- nothing");
        assert_eq!(unnamed.faults(&now), ["ua-toolserver → ua-pdf does not point down"]);
        let untold = other("### ua-llm", "### the models");
        assert_eq!(untold.faults(&now), ["ua-llm has no section"]);
        let banned = banned(&fs::read_to_string(workspace_root().join("deny.toml")).unwrap());
        assert!(banned.len() > 6, "{banned:?}");
        assert_eq!(map.differs_from(&banned), [""; 0]);
        let fewer =
            other("`ua-llm`, `ua-mcp` and `ua-toolserver` use `reqwest`", "`ua-mcp` and `ua-toolserver` use `reqwest`");
        assert_eq!(fewer.differs_from(&banned).len(), 1);
    }

    #[test]
    fn a_composition_of_its_own_is_seen() {
        let words = "let ledger = Ledger::new(store);";
        assert_eq!(composition("crates/ua-runner/src/desk.rs", words), [""; 0]);
        assert_eq!(composition("crates/ua-cli/src/compose.rs", words).len(), 1);
    }
}
