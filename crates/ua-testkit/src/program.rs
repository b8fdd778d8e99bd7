//! Programs built for a harness: the real `ua`, its seams open to kill points, and examples.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Builds `ua` with the feature `crash-points` (the features every build has stay on) and returns where it is.
///
/// # Panics
///
/// When it does not build: no test that needs it can say anything then.
pub fn ua_program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build(&["--bin", "ua", "--features", "ua-cli/crash-points"], "ua"))
}

/// Builds the example `name`, a small program that a test or a harness starts, and returns where it is.
///
/// # Panics
///
/// When it does not build.
pub fn example_program(name: &str) -> PathBuf {
    build(&["--example", name], name)
}

/// Builds for the whole workspace, as its tests are built: for one package by itself cargo would choose other features of the crates that
/// all share, and compile hundreds of them once more.
fn build(what: &[&str], target: &str) -> PathBuf {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "--workspace"]).args(what).arg("--message-format=json");
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
