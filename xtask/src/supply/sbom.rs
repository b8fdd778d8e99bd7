//! `cargo xtask sbom`: the bill of materials of the program `ua` as CycloneDX 1.6 JSON, for whoever has to know what it is made of.
//!
//! Made of what Cargo resolved for `ua-cli`, with the checksums of the lock file. What is only used to test is left out. The same tree
//! gives the same bill: it has no date and no serial number, so a changed bill is a changed dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::lockfile;

/// The package whose bill it is.
const PROGRAM: &str = "ua-cli";

/// Where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write it to this file, and not to standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = ua_testkit::workspace_root();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let metadata = cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(&root).output()?;
    ensure!(metadata.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&metadata.stderr));
    let packages = lockfile::read(&root.join("Cargo.lock"))?;
    let bill = bill(&serde_json::from_slice(&metadata.stdout)?, &packages)?;
    let text = serde_json::to_string_pretty(&bill)?;
    match &options.write {
        Some(path) => std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?,
        None => println!("{text}"),
    }
    Ok(())
}

/// The bill, from what Cargo says about the workspace and its lock file.
fn bill(metadata: &Value, locked: &[lockfile::Package]) -> anyhow::Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let needed = |id: &str| -> Vec<String> {
        let deps = nodes.get(id).map(|node| list(&node["deps"])).unwrap_or_default().into_iter();
        let counts = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
        deps.filter(counts).map(|dep| text(&dep["pkg"])).collect()
    };
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM);
    let (root, program) = program.with_context(|| format!("there is no {PROGRAM}"))?;
    let mut reached = BTreeSet::from([root.clone()]);
    let mut waiting = vec![root.clone()];
    while let Some(id) = waiting.pop() {
        waiting.extend(needed(&id).into_iter().filter(|next| reached.insert(next.clone())));
    }
    let reference = |id: &str| {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let component = |id: &str| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library", "bom-ref": reference(id), "name": name, "version": version, "purl": reference(id),
        });
        if let Some(licence) = package["license"].as_str() {
            // Older packages write `/` where SPDX has `OR`.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ").replace("  ", " ")}]);
        }
        let sum = locked.iter().find(|other| other.name == name && other.version == version);
        if let Some(sum) = sum.and_then(|package| package.checksum.as_ref()) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        if let Some(repository) = package["repository"].as_str() {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        component
    };
    let mut whole = component(root);
    whole["type"] = json!("application");
    let components: Vec<Value> = reached.iter().filter(|id| *id != root).map(|id| component(id)).collect();
    let dependencies: Vec<Value> = reached
        .iter()
        .map(|id| {
            let on: BTreeSet<String> = needed(id).iter().map(|id| reference(id)).collect();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    ensure!(program["version"].is_string(), "{PROGRAM} has no version");
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_the_bill_names_everything_that_is_linked_and_nothing_that_only_tests() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.2.3", "license": "MIT/Apache-2.0", "repository": "https://x.test", "source": source});
        let dep = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("ua-cli", Value::Null), package("serde", json!("r")), package("cc", json!("r")), package("insta", json!("r"))],
            "resolve": {"nodes": [
                {"id": "ua-cli", "deps": [dep("serde", Value::Null), dep("insta", json!("dev"))]},
                {"id": "serde", "deps": [dep("cc", json!("build"))]},
                {"id": "cc", "deps": []},
                {"id": "insta", "deps": []},
            ]},
        });
        let locked = ["serde", "cc", "insta"].map(|name| lockfile::Package {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            source: None,
            checksum: Some("b".repeat(64)),
        });
        let bill = bill(&metadata, &locked).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["cc", "serde"]);
        check_shape(&bill);
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            bill["dependencies"][2],
            json!({"ref": "pkg:cargo/ua-cli@1.2.3", "dependsOn": ["pkg:cargo/serde@1.2.3"]})
        );
    }

    #[test]
    fn s21_the_bill_of_this_program_has_the_shape_of_the_standard() {
        let root = ua_testkit::workspace_root();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let metadata = cargo
            .args(["metadata", "--format-version", "1", "--locked", "--offline"])
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
        let packages = lockfile::read(&root.join("Cargo.lock")).unwrap();
        let bill = bill(&serde_json::from_slice(&metadata.stdout).unwrap(), &packages).unwrap();
        check_shape(&bill);
        let has = |name: &str| bill["components"].as_array().unwrap().iter().any(|one| one["name"] == name);
        assert!(has("libsqlite3-sys") && has("ua-core") && !has("insta") && !has("ua-testkit"));
    }

    /// What CycloneDX 1.6 asks of the parts that are here.
    fn check_shape(bill: &Value) {
        assert_eq!(
            (&bill["bomFormat"], &bill["specVersion"], &bill["version"]),
            (&json!("CycloneDX"), &json!("1.6"), &json!(1))
        );
        let mut references = BTreeSet::new();
        let all = bill["components"].as_array().unwrap().iter().chain([&bill["metadata"]["component"]]);
        for component in all {
            let text = |field: &str| {
                component[field]
                    .as_str()
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| panic!("{field}: {component}"))
            };
            assert!(["library", "application"].contains(&text("type")));
            assert!(text("purl").starts_with("pkg:cargo/") && !text("name").is_empty() && !text("version").is_empty());
            assert!(references.insert(text("bom-ref").to_owned()), "twice: {component}");
            for hash in component["hashes"].as_array().into_iter().flatten() {
                assert_eq!((&hash["alg"], hash["content"].as_str().unwrap().len()), (&json!("SHA-256"), 64));
            }
        }
        for dependency in bill["dependencies"].as_array().unwrap() {
            assert!(references.contains(dependency["ref"].as_str().unwrap()));
            for on in dependency["dependsOn"].as_array().unwrap() {
                assert!(references.contains(on.as_str().unwrap()), "{on} is missing");
            }
        }
    }
}
