//! The documentation as a program reads it: pages with their code, links, headings and tables, the commands of a script, and the names
//! that the source knows. Whatever a page names can be looked up with it, and is: commands by the tests of `ua-cli` and `xtask`, links,
//! files, settings and tests by `crates/ua-testkit/tests/it/docs.rs`, and blocks that a reader may copy are run by `tests/e2e/guide.rs`.
//!
//! ```
//! use ua_testkit::docs::{Page, Script};
//!
//! let page = Page::parse("docs/a.md", "# A page\n\n```sh run\nua runs list   # all of them\n```\n");
//! let script = Script::parse(&page.blocks[0].text).unwrap();
//! assert_eq!(script.commands[0].words, ["ua", "runs", "list"]);
//! assert_eq!(page.blocks[0].place.to_string(), "docs/a.md:4");
//! assert!(page.anchors.contains("a-page"));
//! ```

mod mention;
mod page;
mod script;
mod sources;

pub use mention::{Mention, mentions};
pub use page::{Block, Cell, Page, Piece, Place, Row};
pub use script::{HereDocument, Script, SimpleCommand};
pub use sources::{Function, Sources};

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::workspace_root;

/// README and every page below `docs/`, in order of their paths: what has to be true of the program as it is now.
///
/// # Panics
///
/// When a page cannot be read.
pub fn pages() -> Vec<Page> {
    let root = workspace_root();
    let mut paths = vec![root.join("README.md")];
    collect(&root.join("docs"), "md", &mut paths).unwrap_or_else(|error| panic!("cannot read docs: {error}"));
    paths.sort();
    paths.iter().map(|path| read(&root, path)).collect()
}

/// `text`, a paragraph, in lines of 120 columns as pages have them: for pages that are made of what the program says.
pub fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if used > 0 && used + 1 + width > 120 {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// The list of changes, which speaks of earlier versions, too: only its links have to lead somewhere.
///
/// # Panics
///
/// When it cannot be read.
pub fn changelog() -> Page {
    let root = workspace_root();
    read(&root, &root.join("CHANGELOG.md"))
}

fn read(root: &Path, path: &Path) -> Page {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    Page::parse(&path.strip_prefix(root).unwrap_or(path).display().to_string(), &text)
}

/// Adds every file below `folder` whose name ends with `.extension`.
fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, extension, found)?;
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(())
}
