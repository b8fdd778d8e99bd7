//! The house's arrows: which of our crates may use which. Reads `cargo metadata`; development dependencies do not count.
//!
//! Which of them may use a crate that is not ours is said in `deny.toml`, as the `wrappers` of a banned crate. docs/architecture.md shows the same map to
//! people; a test here keeps the two the same.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The layer of each crate; arrows point down, to a lower number.
const LAYERS: [(&str, u8); 18] = [
    ("ua-core", 0),
    ("ua-http", 0),
    ("ua-pdf", 0),
    ("ua-toolserver", 0),
    ("ua-store", 1),
    ("ua-classify", 1),
    ("ua-llm", 1),
    ("ua-ledger", 2),
    ("ua-checkpoint", 2),
    ("ua-resume", 2),
    ("ua-store-sqlite", 2),
    ("ua-gateway", 3),
    ("ua-mcp", 3),
    ("ua-claude-code", 4),
    ("ua-runner", 4),
    ("ua-cli", 5),
    ("ua-testkit", 5),
    ("xtask", 5),
];

/// Arrows within a layer that the map names.
const SIDEWAYS: [(&str, &str); 6] = [
    ("ua-mcp", "ua-gateway"),
    ("ua-toolserver", "ua-core"),
    ("ua-toolserver", "ua-http"),
    ("ua-toolserver", "ua-pdf"),
    ("xtask", "ua-testkit"),
    ("ua-e2e", "ua-testkit"),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let output =
        Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--no-deps", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let faults = faults(&dependencies(&metadata));
    for fault in &faults {
        eprintln!("{fault}");
    }
    if !faults.is_empty() {
        bail!(
            "{} arrow(s) do not fit the map; move the wall, or change the map and docs/architecture.md together",
            faults.len()
        );
    }
    println!("arrows: all dependencies between crates point down");
    Ok(())
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

fn faults(dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let layer = |name: &str| LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
    let mut faults = Vec::new();
    for (user, used) in dependencies {
        for name in used {
            let is_named = SIDEWAYS.contains(&(user.as_str(), name.as_str()));
            match (layer(user), layer(name)) {
                (Some(from), Some(to)) if from <= to && !is_named => {
                    faults.push(format!("{user} → {name} does not point down"));
                }
                (None, Some(_)) if !is_named && user != "ua-e2e" => faults.push(format!("{user} is not on the map")),
                (Some(_) | None, Some(_) | None) => {}
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use ua_testkit::docs::Page;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (user, used) in pairs {
            map.entry((*user).to_owned()).or_default().insert((*used).to_owned());
        }
        map
    }

    fn architecture() -> Page {
        let text = std::fs::read_to_string(ua_testkit::workspace_root().join("docs/architecture.md")).unwrap();
        Page::parse("docs/architecture.md", &text)
    }

    fn is_crate(word: &str) -> bool {
        word.starts_with("ua-") || word == "xtask"
    }

    /// The crates of each line of the page's map that begins with the number of a layer.
    fn layers_of(page: &Page) -> BTreeSet<(String, u8)> {
        let lines = page.blocks.iter().filter(|block| block.language() == "text").flat_map(|block| block.text.lines());
        let numbered =
            lines.filter_map(|line| line.split_once("  ").and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))));
        let crates = |(layer, rest): (u8, &str)| {
            let words: Vec<String> =
                rest.split([' ', '(', ')', ',']).filter(|word| is_crate(word)).map(str::to_owned).collect();
            words.into_iter().map(move |word| (word, layer))
        };
        numbered.flat_map(crates).collect()
    }

    /// The arrows of the page's list: lines like "- `a` → `b`".
    fn sideways_of(page: &Page) -> BTreeSet<(String, String)> {
        let items =
            page.text.lines().filter_map(|line| line.strip_prefix("- `")).filter_map(|line| line.split_once("` → `"));
        items.map(|(from, rest)| (from.to_owned(), rest.split('`').next().unwrap_or_default().to_owned())).collect()
    }

    /// Who may use `library`, by the page's sentence "Only `a` and `b` use `library`".
    fn owners_of(page: &Page, library: &str) -> Option<BTreeSet<String>> {
        let sentences = page.text.lines().filter_map(|line| line.strip_prefix("- Only "));
        let mut parts = sentences.filter_map(|line| line.split_once(" use `").or_else(|| line.split_once(" uses ")));
        let (owners, _) = parts.find(|(_, used)| used.starts_with(library))?;
        Some(owners.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    }

    /// The libraries that only some of our crates may use, by `deny.toml`; what other libraries and the end-to-end tests use stands on no map.
    fn banned() -> Vec<(String, BTreeSet<String>)> {
        let text = std::fs::read_to_string(ua_testkit::workspace_root().join("deny.toml")).unwrap();
        let lines =
            text.lines().filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split_once("\", wrappers = ["));
        let owners = |rest: &str| {
            let names = rest.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2);
            names.filter(|name| is_crate(name) && *name != "ua-e2e").map(str::to_owned).collect()
        };
        lines.map(|(library, rest)| (library.to_owned(), owners(rest))).collect()
    }

    #[test]
    fn the_architecture_page_shows_this_map() {
        let page = architecture();
        assert_eq!(layers_of(&page), LAYERS.map(|(name, layer)| (name.to_owned(), layer)).into());
        assert_eq!(sideways_of(&page), SIDEWAYS.map(|(from, to)| (from.to_owned(), to.to_owned())).into());
        let banned = banned();
        assert!(banned.len() > 6, "{banned:?}");
        for (library, owners) in banned {
            let said = if library.contains("opentelemetry") { "OpenTelemetry" } else { &library };
            assert_eq!(owners_of(&page, said), Some(owners), "{library}");
        }
        for (name, _) in LAYERS {
            assert!(page.text.contains(&format!("\n### {name}")) || page.text.contains(&format!(", {name}")), "{name}");
        }
    }

    #[test]
    fn another_map_on_the_page_is_seen() {
        let page = architecture();
        let other = |from: &str, to: &str| {
            assert!(page.text.contains(from), "{from}");
            Page::parse("docs/architecture.md", &page.text.replacen(from, to, 1))
        };
        assert_ne!(
            layers_of(&other("1  ua-store    ua-classify    ua-llm", "1  ua-store    ua-classify")),
            layers_of(&page)
        );
        assert_ne!(sideways_of(&other("- `ua-toolserver` → `ua-pdf`", "")), sideways_of(&page));
        let without =
            other("- Only `ua-llm`, `ua-mcp` and `ua-toolserver` use", "- Only `ua-llm` and `ua-toolserver` use");
        assert_ne!(owners_of(&without, "reqwest"), owners_of(&page, "reqwest"));
    }

    #[test]
    fn an_arrow_that_points_up_is_seen() {
        assert!(faults(&map(&[("ua-ledger", "ua-store"), ("ua-mcp", "ua-gateway")])).is_empty());
        assert_eq!(faults(&map(&[("ua-store", "ua-ledger")])).len(), 1);
        assert_eq!(faults(&map(&[("ua-gateway", "ua-mcp")])).len(), 1);
        assert_eq!(faults(&map(&[("ua-new", "ua-core")])).len(), 1);
    }
}
