//! Bugs that no seam can express: a patch puts one into a copy of the tree, and the test that is to see it has to fail there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use ua_testkit::workspace_root;

/// Among the words of a test: its package has programs that the test starts.
const EXAMPLES: &str = "--examples";

/// The patch of a bug, from the root of the repository.
pub(crate) fn file_of(number: &str) -> String {
    format!("xtask/mutants/{number}.patch")
}

/// Fails when the patch does not fit the sources as they are.
pub(crate) fn fits(number: &str) -> anyhow::Result<()> {
    apply(&workspace_root(), number, &["--check"])
}

/// Builds the bug into a copy and runs the test there: `None` when it failed, as it must, else what happened instead.
pub(crate) fn run(number: &str, words: &[&str], test: &str) -> anyhow::Result<Option<String>> {
    let mutants = target_folder().join("mutants");
    let tree = mutants.join("tree");
    copy_to(&tree)?;
    apply(&tree, number, &[])?;
    // A target folder of its own: cargo names what it builds by paths inside the workspace, so in a shared one the bug would get
    // into what is built of the sources themselves.
    let output = cargo_test(&tree, &mutants.join("build"), words, test)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let has_failed = text.lines().any(|line| line.contains(test) && line.ends_with("FAILED"));
    let has_passed = text.lines().any(|line| line.contains(test) && line.ends_with("... ok"));
    Ok(match (has_failed, has_passed) {
        (true, _) => None,
        (false, true) => Some(format!("`{test}` passes all the same")),
        (false, false) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let error = said.lines().find(|line| line.starts_with("error")).unwrap_or("the test was not run");
            Some(error.to_owned())
        }
    })
}

fn cargo_test(tree: &Path, target: &Path, words: &[&str], test: &str) -> anyhow::Result<Output> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = |words: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(words).current_dir(tree).env("CARGO_TARGET_DIR", target);
        command.output().with_context(|| format!("run cargo {}", words.join(" ")))
    };
    let (examples, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == EXAMPLES);
    if let ([_], [package, name, ..]) = (examples.as_slice(), words.as_slice()) {
        // Programs that the test starts. Without them it fails whatever the patch does.
        let built = run(&["build", package, name, EXAMPLES])?;
        ensure!(built.status.success(), "build the examples: {}", String::from_utf8_lossy(&built.stderr));
    }
    run(&[&["test"], words.as_slice(), &[test]].concat())
}

/// Where cargo builds: two levels above this program.
fn target_folder() -> PathBuf {
    let own = std::env::current_exe().ok();
    let above = own.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf);
    above.unwrap_or_else(|| workspace_root().join("target"))
}

/// Makes `tree` a copy of every file of the repository. What is the same stays as it is, so that it is not built again.
fn copy_to(tree: &Path) -> anyhow::Result<()> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(listing).current_dir(workspace_root()).output().context("list the files")?;
    ensure!(listed.status.success(), "git does not list the files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut wanted = BTreeSet::new();
    for name in names.map(|name| Path::new(OsStr::from_bytes(name))) {
        let (from, to) = (workspace_root().join(name), tree.join(name));
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        // A link, to a folder of migrations for instance, stays one.
        if let Ok(target) = fs::read_link(&from) {
            if fs::read_link(&to).ok().as_deref() != Some(target.as_path()) {
                let _none = fs::remove_file(&to);
                symlink(&target, &to).with_context(|| format!("link {}", to.display()))?;
            }
        } else {
            let Ok(content) = fs::read(&from) else { continue }; // removed, and not committed yet
            if fs::read(&to).ok().as_deref() != Some(content.as_slice()) {
                fs::write(&to, content).with_context(|| format!("write {}", to.display()))?;
            }
        }
        wanted.insert(to);
    }
    remove_others(tree, &wanted)
}

/// Removes what an earlier copy left behind.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn apply(tree: &Path, number: &str, flags: &[&str]) -> anyhow::Result<()> {
    let patch = workspace_root().join(file_of(number));
    // A copy inside the repository must not be taken for a folder of it: git would pass the patch over without a word.
    let ceiling = tree.parent().context("a tree is in a folder")?;
    let mut command = Command::new("git");
    command.arg("apply").args(flags).arg(&patch).current_dir(tree).env("GIT_CEILING_DIRECTORIES", ceiling);
    let applied = command.output().context("run git apply")?;
    let said = String::from_utf8_lossy(&applied.stderr);
    ensure!(applied.status.success(), "{} does not fit the sources any more: {}", patch.display(), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_does_not_fit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = apply(folder.path(), "M11", &["--check"]).unwrap_err().to_string();
        assert!(error.contains("M11.patch does not fit"), "{error}");
    }

    /// A copy that lacks what the build reads through a link fails whatever the patch does.
    #[test]
    fn a_copy_has_every_file_also_behind_links_and_none_that_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        let stays = "crates/ua-store-sqlite/migrations";
        for _ in 0..2 {
            copy_to(&tree).unwrap();
            assert!(fs::read_link(tree.join(stays)).is_ok());
            let of = |root: &Path| fs::read_dir(root.join(stays)).unwrap().count();
            assert!(of(&tree) > 10 && of(&tree) == of(&workspace_root()), "{}", of(&tree));
            assert_eq!(
                fs::read(tree.join("Cargo.toml")).unwrap(),
                fs::read(workspace_root().join("Cargo.toml")).unwrap()
            );
            assert!(!tree.join("left-behind.rs").exists());
            fs::write(tree.join("left-behind.rs"), "").unwrap();
        }
    }
}
