//! The house's arrows: which of our crates may use which. Reads `cargo metadata`; development dependencies do not count.
//!
//! Which of them may use a crate that is not ours is said in `deny.toml`, as the `wrappers` of a banned crate.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The layer of each crate; arrows point down, to a lower number.
const LAYERS: [(&str, u8); 17] = [
    ("ua-core", 0),
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
const SIDEWAYS: [(&str, &str); 5] = [
    ("ua-mcp", "ua-gateway"),
    ("ua-toolserver", "ua-core"),
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
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (user, used) in pairs {
            map.entry((*user).to_owned()).or_default().insert((*used).to_owned());
        }
        map
    }

    #[test]
    fn an_arrow_that_points_up_is_seen() {
        assert!(faults(&map(&[("ua-ledger", "ua-store"), ("ua-mcp", "ua-gateway")])).is_empty());
        assert_eq!(faults(&map(&[("ua-store", "ua-ledger")])).len(), 1);
        assert_eq!(faults(&map(&[("ua-gateway", "ua-mcp")])).len(), 1);
        assert_eq!(faults(&map(&[("ua-new", "ua-core")])).len(), 1);
    }
}
