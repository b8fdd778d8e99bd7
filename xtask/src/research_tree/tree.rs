//! Documentation trees that a machine has: which one is used, and which of its pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use ua_testkit::workspace_root;

/// Where Debian's `-doc` packages put HTML, the largest trees first.
const DEBIAN: [&str; 6] = [
    "/usr/share/doc/sqlite3",
    "/usr/share/doc/python3/html",
    "/usr/share/doc/python3.11/html",
    "/usr/share/doc/python3.13/html",
    "/usr/share/doc/debian-policy",
    "/usr/share/doc/git/html",
];

/// Pages that are larger are no pages to read.
const MAX_PAGE_BYTES: u64 = 2 * 1024 * 1024;
/// What a tree needs to be of use.
const MIN_PAGES: usize = 40;

/// A folder of HTML pages.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) folder: PathBuf,
    /// Paths of pages below the folder, with slashes.
    pub(super) pages: Vec<String>,
    /// Whether it was made for tests.
    pub(super) is_fixture: bool,
}

impl Tree {
    /// The tree in `chosen`, else the first that this machine has, else our fixture; at most `count` pages of it.
    pub(super) fn find(chosen: Option<&Path>, count: usize) -> anyhow::Result<Self> {
        if let Some(folder) = chosen {
            let tree = Self::read(folder, count, false);
            ensure!(!tree.pages.is_empty(), "{} has no HTML pages", folder.display());
            return Ok(tree);
        }
        let installed = DEBIAN.iter().map(PathBuf::from).chain(rust_book());
        let found =
            installed.map(|folder| Self::read(&folder, count, false)).find(|tree| tree.pages.len() >= MIN_PAGES);
        Ok(found.unwrap_or_else(|| Self::read(&workspace_root().join("fixtures/jobs/site"), count, true)))
    }

    fn read(folder: &Path, count: usize, is_fixture: bool) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let mut pages = Vec::new();
        collect(&folder, &folder, &mut pages);
        pages.sort();
        Self { pages: spread(&pages, count), folder, is_fixture }
    }
}

/// The books that come with Rust, when `rust-docs` is installed.
fn rust_book() -> Option<PathBuf> {
    let said = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(said.stdout).ok()?;
    Some(Path::new(sysroot.trim()).join("share/doc/rust/html/book"))
}

fn collect(root: &Path, folder: &Path, pages: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
        if metadata.is_dir() {
            collect(root, &path, pages);
        } else if metadata.is_file() && metadata.len() <= MAX_PAGE_BYTES {
            let name = path.strip_prefix(root).ok().and_then(Path::to_str).filter(|name| is_page(name));
            pages.extend(name.map(str::to_owned));
        }
    }
}

/// Only names that are the same in an address.
fn is_page(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
    let extension = Path::new(name).extension().unwrap_or_default();
    (extension == "html" || extension == "htm") && name.chars().all(is_plain)
}

/// At most `count` of them, taken evenly.
fn spread(all: &[String], count: usize) -> Vec<String> {
    let count = count.min(all.len());
    (0..count).filter_map(|n| all.get(n * all.len() / count)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_evenly_and_once() {
        let all: Vec<String> = (0..10).map(|n| format!("{n}.html")).collect();
        assert_eq!(spread(&all, 3), ["0.html", "3.html", "6.html"]);
        assert_eq!(spread(&all, 20), all);
        assert_eq!(spread(&[], 5), [""; 0]);
    }

    #[test]
    fn a_machine_without_documentation_has_the_fixture() {
        let tree = Tree::read(&workspace_root().join("fixtures/jobs/site"), 50, true);
        assert!(!tree.pages.is_empty() && tree.pages.iter().all(|page| is_page(page)), "{tree:?}");
        assert!(Tree::find(Some(Path::new("/no/such/folder")), 10).is_err());
    }
}
