//! The order of the modules that `lib.rs` states, against the sources: nobody uses what stands beside or above it.
//!
//! Between the tools themselves there is no order to state, but no circle either.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// A path of the crate in code: where it begins, what is between, and its last name or names.
static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(crate|super(?:::super)*)::((?:\w+::)*)(\{[^}]*\}|\w+)").unwrap());
static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+").unwrap());
static MODULE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^(?:pub )?mod (\w+);$").unwrap());

/// A source file by its place below `src/`.
struct Source {
    path: PathBuf,
    text: String,
}

/// What is used, and by which file.
type Arrows = BTreeMap<(String, String), PathBuf>;

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(&root).unwrap().to_owned(), text });
            }
        }
    }
    found
}

impl Source {
    /// The module that the file is, from the crate's root down.
    fn module(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.path.with_extension("").iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        names.pop_if(|name| name == "mod" || name == "lib");
        names
    }

    /// The paths that the code names, comments left out, from the crate's root down: of each as many names as can be told.
    fn uses(&self) -> Vec<Vec<String>> {
        let code: Vec<&str> = self.text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let mut found = Vec::new();
        for part in PATH.captures_iter(&code.join("\n")) {
            let mut base = if &part[1] == "crate" { Vec::new() } else { self.module() };
            if &part[1] != "crate" {
                base.truncate(base.len().saturating_sub(part[1].split("::").count()));
            }
            base.extend(part[2].split_terminator("::").map(str::to_owned));
            found.extend(NAME.find_iter(&part[3]).map(|last| [base.clone(), vec![last.as_str().to_owned()]].concat()));
        }
        found
    }
}

/// The floors of the house in `lib.rs`, the highest first.
fn floors(lib: &str) -> Vec<BTreeSet<String>> {
    let (_, behind) = lib.split_once("//! # The order of the modules").unwrap();
    let lines = behind.split("//! ```").nth(1).unwrap().lines().skip(1);
    let words = |line: &str| line.trim_start_matches("//!").split_whitespace().map(str::to_owned).collect();
    lines.map(words).filter(|floor: &BTreeSet<String>| !floor.is_empty()).collect()
}

/// Who of the modules at `depth` below `above` uses whom.
fn arrows(sources: &[Source], above: &[&str], names: &BTreeSet<String>) -> Arrows {
    let at = above.len();
    let mut arrows = Arrows::new();
    for source in sources {
        let module = source.module();
        let Some(from) = module.get(at).filter(|_| module.iter().zip(above).all(|(name, above)| name == above)) else {
            continue;
        };
        for used in source.uses() {
            let is_below = used.iter().zip(above).all(|(name, above)| name == above);
            if let Some(to) = used.get(at).filter(|to| is_below && names.contains(*to) && *to != from) {
                arrows.insert((from.clone(), to.clone()), source.path.clone());
            }
        }
    }
    arrows
}

/// The arrows that do not go down.
fn not_down(arrows: &Arrows, floors: &[BTreeSet<String>]) -> Vec<String> {
    let floor = |name: &str| floors.iter().position(|floor| floor.contains(name)).unwrap();
    let wrong = arrows.iter().filter(|((from, to), _)| floor(to) <= floor(from));
    wrong.map(|((from, to), file)| format!("{from} uses {to}, in {}", file.display())).collect()
}

/// The modules that lie on a circle, or lead to one.
fn in_circles(arrows: &Arrows) -> BTreeSet<String> {
    let mut left: BTreeSet<(String, String)> = arrows.keys().cloned().collect();
    loop {
        let users: BTreeSet<String> = left.iter().map(|(from, _)| from.clone()).collect();
        let before = left.len();
        left.retain(|(_, to)| users.contains(to));
        if left.len() == before {
            return users;
        }
    }
}

fn modules(text: &str) -> BTreeSet<String> {
    MODULE.captures_iter(text).map(|name| name[1].to_owned()).collect()
}

#[test]
fn every_module_uses_only_those_on_floors_below_it() {
    let sources = sources();
    let text = |path: &str| &sources.iter().find(|source| source.path == Path::new(path)).unwrap().text;
    let (floors, modules) = (floors(text("lib.rs")), modules(text("lib.rs")));
    let mut stated: Vec<&String> = floors.iter().flatten().collect();
    stated.sort();
    assert_eq!(stated, modules.iter().collect::<Vec<_>>(), "lib.rs states another set of modules than it has");
    assert_eq!(not_down(&arrows(&sources, &[], &modules), &floors), [] as [&str; 0]);
}

#[test]
fn no_tool_uses_the_list_of_tools_and_none_is_in_a_circle() {
    let sources = sources();
    let list = sources.iter().find(|source| source.module() == ["tools"]).unwrap();
    let tools = modules(&list.text);
    let arrows = arrows(&sources, &["tools"], &tools);
    assert!(arrows.contains_key(&("research".to_owned(), "crawl".to_owned())), "what is there is not seen: {arrows:?}");
    assert_eq!(in_circles(&arrows), BTreeSet::new(), "{arrows:?}");
    for source in sources.iter().filter(|source| source.module().len() > 1) {
        for used in source.uses().iter().filter(|used| used.first().is_some_and(|name| name == "tools")) {
            let item = used.get(1).filter(|item| source.text.contains(&format!("crate::tools::{item}")));
            assert!(item.is_none_or(|item| tools.contains(item)), "{} uses {used:?}", source.path.display());
        }
    }
}

#[test]
fn an_upward_arrow_and_a_circle_are_seen() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
    let lib = "//! # The order of the modules\n//!\n//! ```text\n//! server\n//! tools  web\n//! answer\n//! ```\n";
    let names = ["answer", "server", "tools", "web"].map(str::to_owned).into();
    let seen = |path: &str, text: &str| not_down(&arrows(&[file(path, text)], &[], &names), &floors(lib));
    assert_eq!(seen("server.rs", "use crate::{answer::Answer, tools};"), [] as [&str; 0]);
    assert_eq!(seen("tools/read.rs", "// crate::server\nuse crate::answer::Answer;"), [] as [&str; 0]);
    assert_eq!(seen("tools/read.rs", "use crate::server::KEY;"), ["tools uses server, in tools/read.rs"]);
    assert_eq!(seen("tools/crawl.rs", "use super::super::server::KEY;"), ["tools uses server, in tools/crawl.rs"]);
    assert_eq!(seen("web.rs", "fn f() { crate::tools::f() }"), ["web uses tools, in web.rs"]);

    let circle = [file("tools/a.rs", "use super::b::B;"), file("tools/b/c.rs", "use crate::tools::{a::A, d::D};")];
    let arrows = arrows(&circle, &["tools"], &["a", "b", "d"].map(str::to_owned).into());
    assert_eq!(in_circles(&arrows), ["a", "b"].map(str::to_owned).into());
}
