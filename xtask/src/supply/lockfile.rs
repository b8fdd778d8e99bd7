//! `cargo xtask lockfile`: every dependency comes from crates.io with a checksum, and none of those that are banned or too old is there.
//!
//! `cargo deny` says the same and more, with a database of advisories from the network. This needs neither the network nor another
//! program, so it is a plain test as well: a lock file with anything foreign in it does not pass.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// TLS is rustls; nothing may need system packages.
const BANNED: [&str; 3] = ["openssl-sys", "openssl", "native-tls"];

/// The oldest version that is safe, of crates whose older ones are known not to be.
const OLDEST: [(&str, [u64; 3], &str); 4] = [
    ("libsqlite3-sys", [0, 37, 0], "an older SQLite can damage its log"),
    ("zip", [2, 3, 0], "CVE-2025-29787"),
    ("rmcp", [1, 4, 0], "RUSTSEC-2026-0189"),
    ("tokio", [1, 38, 2], "RUSTSEC-2025-0023"),
];

/// Which lock file.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The lock file [default: that of this workspace]
    file: Option<PathBuf>,
}

/// A package of a lock file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) source: Option<String>,
    pub(super) checksum: Option<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let file = options.file.clone().unwrap_or_else(|| ua_testkit::workspace_root().join("Cargo.lock"));
    let packages = read(&file)?;
    let wrong = faults(&packages);
    for fault in &wrong {
        eprintln!("{}: {fault}", file.display());
    }
    ensure!(wrong.is_empty(), "{} dependencies may not be there", wrong.len());
    println!("{}: {} packages, all from crates.io with a checksum", file.display(), packages.len());
    Ok(())
}

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Package>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Ok(parse(&text))
}

/// Lock files are written by Cargo, one field a line.
fn parse(text: &str) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    let mut is_package = false;
    for line in text.lines() {
        if line.starts_with('[') {
            is_package = line == "[[package]]";
            if is_package {
                packages.push(Package::default());
            }
            continue;
        }
        let (Some(package), Some((field, value))) =
            (packages.last_mut().filter(|_| is_package), line.split_once(" = "))
        else {
            continue;
        };
        let value = value.trim_matches('"').to_owned();
        match field {
            "name" => package.name = value,
            "version" => package.version = value,
            "source" => package.source = Some(value),
            "checksum" => package.checksum = Some(value),
            _ => {}
        }
    }
    packages
}

/// What may not be there, one sentence each.
fn faults(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        match &package.source {
            Some(source) if source != REGISTRY => faults.push(format!("{name} comes from {source}")),
            Some(_) if package.checksum.as_ref().is_none_or(|sum| sum.len() != 64) => {
                faults.push(format!("{name} has no checksum"));
            }
            // Fine, or a crate of this workspace.
            Some(_) | None => {}
        }
        if BANNED.contains(&package.name.as_str()) {
            faults.push(format!("{name} is banned: TLS is rustls"));
        }
        for (_, oldest, why) in OLDEST.iter().filter(|(crate_name, ..)| *crate_name == package.name) {
            let numbers = package.version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
            if numbers.take(3).collect::<Vec<u64>>() < oldest.to_vec() {
                faults.push(format!("{name} is too old: {why}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_a_lock_file_with_anything_foreign_vulnerable_or_unsigned_does_not_pass() {
        let package = |fields: &str| parse(&format!("version = 4\n\n[[package]]\n{fields}\n"));
        let sum = "a".repeat(64);
        let fine = format!("name = \"serde\"\nversion = \"1.0.229\"\nsource = \"{REGISTRY}\"\nchecksum = \"{sum}\"");
        assert_eq!(faults(&package(&fine)), [""; 0]);
        let of = |name: &str, version: &str| fine.replace("serde", name).replace("1.0.229", version);
        let cases = [
            (fine.replace(REGISTRY, "git+https://github.com/evil/serde#abc"), "comes from git+https"),
            (fine.replace(REGISTRY, "registry+https://evil.example/index"), "comes from registry+https://evil"),
            (fine.replace(&format!("checksum = \"{sum}\""), ""), "has no checksum"),
            (of("openssl-sys", "0.9.100"), "is banned"),
            (of("zip", "2.2.9"), "CVE-2025-29787"),
            (of("rmcp", "1.3.9"), "RUSTSEC-2026-0189"),
            (of("libsqlite3-sys", "0.30.1"), "can damage its log"),
        ];
        for (fields, wanted) in cases {
            let found = faults(&package(&fields));
            assert!(found.len() == 1 && found[0].contains(wanted), "{fields}: {found:?}");
        }
    }

    #[test]
    fn s21_our_own_lock_file_passes_and_every_step_of_ci_is_locked() {
        let root = ua_testkit::workspace_root();
        let packages = read(&root.join("Cargo.lock")).unwrap();
        assert!(packages.len() > 100);
        assert_eq!(faults(&packages), [""; 0]);
        let ci = std::fs::read_to_string(root.join(".ci/run")).unwrap();
        for line in ci.lines().filter(|line| {
            line.starts_with("cargo test") || line.starts_with("cargo clippy") || line.starts_with("cargo deny")
        }) {
            assert!(line.contains("--locked"), "{line}");
        }
    }
}
