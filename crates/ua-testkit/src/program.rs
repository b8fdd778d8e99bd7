//! Programs that a harness starts: `ua` with its seams open to kill points, and examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Names the folder that cargo built the programs into, for a run in which they are known to be fresh: nothing is built then.
const BUILT: &str = "UA_BUILT";

/// The `ua` under test: what users have, and the kill points that `UA_KILL_AT` names.
///
/// # Panics
///
/// When it does not build: no lane that needs it can say anything then.
pub fn ua_program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("--bin", "ua-e2e-ua-pdf", ""))
}

/// The example `name`, a small program that a test or a harness starts.
///
/// # Panics
///
/// When it does not build.
pub fn example_program(name: &str) -> PathBuf {
    program("--example", name, "examples")
}

fn program(kind: &str, name: &str, folder: &str) -> PathBuf {
    match std::env::var_os(BUILT) {
        Some(built) => {
            let program = Path::new(&built).join(folder).join(name);
            assert!(program.is_file(), "{BUILT} is set, and {} is not there", program.display());
            program
        }
        None => build(&[kind, name], name),
    }
}

/// What cargo tells a test about its package and is none of a build's business: the build script of ring asks for it, and would be run again, and all
/// that stands on ring compiled once more, here and when a person builds next.
const ABOUT_THE_TEST: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Builds for the whole workspace, as its tests are built: for one package by itself cargo would choose other features of the crates that
/// all share, and compile hundreds of them once more.
fn build(what: &[&str], target: &str) -> PathBuf {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--profile", "test", "--workspace"])
        .args(what)
        .arg("--message-format=json");
    for name in ABOUT_THE_TEST {
        command.env_remove(name);
    }
    let built = command.current_dir(workspace_root()).stderr(Stdio::inherit()).output();
    let built = built.unwrap_or_else(|e| panic!("cannot run cargo: {e}"));
    assert!(built.status.success(), "{target} does not build");
    let lines = String::from_utf8_lossy(&built.stdout).into_owned();
    let artifact = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == target)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    artifact.unwrap_or_else(|| panic!("cargo did not say where {target} is"))
}

/// The root of this repository.
pub fn workspace_root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().and_then(std::path::Path::parent).map_or(manifest.clone(), std::path::Path::to_path_buf)
}
