//! `cargo xtask surface`: what a program finds in `ua-sdk`, as a committed list. A change of it is a change of that file, which somebody sees.
//!
//! The list is read from the sources, which are formatted: an item begins at the left margin, what belongs to it is indented once. So it needs
//! neither a nightly compiler nor a build, and runs before a change lands. It has the names of the facade, and of each its whole public face
//! in whatever crate it is defined: a field that is added to a re-exported type is seen as well; and the names of the prelude. `cargo
//! semver-checks` in `.ci/nightly` judges what of a change breaks programs, of the items that are defined in `ua-sdk` alone: it does not see
//! those of other crates behind a `pub use`. For them a line of this list that changes is the notice, and a person judges it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use ua_testkit::workspace_root;

/// The facade.
const FACADE: &str = "crates/ua-sdk/src/lib.rs";
/// The list.
const LIST: &str = "crates/ua-sdk/public-api.txt";
/// How the list begins.
const HEAD: &str = "# What a program finds in `ua_sdk`. Written by `cargo xtask surface --write`; a change of it is a change of the promise.\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the list instead of comparing it
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let (root, now) = (workspace_root(), listed(&workspace_root())?);
    if options.write {
        fs::write(root.join(LIST), &now)?;
        println!("surface: {} lines in {LIST}", now.lines().count());
        return Ok(());
    }
    let before = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (lines(&before), lines(&now));
    for line in old.iter().filter(|line| !new.contains(line)) {
        eprintln!("- {line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        eprintln!("+ {line}");
    }
    if old != new {
        bail!(
            "the public surface of ua-sdk changed; if that is meant, run `cargo xtask surface --write` and say so in CHANGELOG.md"
        );
    }
    println!("surface: ua-sdk has the public surface of {LIST}");
    Ok(())
}

/// A name of the facade: the crate and its last word, and the features that it needs.
#[derive(Debug, PartialEq, Eq)]
struct Export {
    /// `crate`, or a crate of ours, or one that is not ours.
    of: String,
    name: String,
    condition: String,
}

fn listed(root: &Path) -> anyhow::Result<String> {
    let facade = fs::read_to_string(root.join(FACADE)).with_context(|| format!("cannot read {FACADE}"))?;
    let mut list = HEAD.to_owned();
    let mut crates: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let prelude = prelude(&facade);
    ensure!(prelude.len() > 10, "the prelude of {FACADE} has {} names", prelude.len());
    writeln!(list, "\nprelude")?;
    for name in prelude {
        writeln!(list, "    {name}")?;
    }
    let mut exports = exports(&facade);
    exports.sort_by(|a, b| a.name.cmp(&b.name));
    ensure!(exports.len() > 15, "{FACADE} has {} names", exports.len());
    for export in exports {
        let folder = home(root, &export)?;
        let sources = root.join("crates").join(&folder).join("src");
        let condition = if export.condition.is_empty() { String::new() } else { format!("  {}", export.condition) };
        if !sources.is_dir() {
            writeln!(list, "\n{}: of {}{condition}", export.name, export.of)?;
            continue;
        }
        if !crates.contains_key(&folder) {
            crates.insert(folder.clone(), texts(&sources)?);
        }
        let found = face(&export.name, crates.get(&folder).into_iter().flatten());
        ensure!(!found.is_empty(), "{} of {} is defined nowhere", export.name, export.of);
        writeln!(list, "\n{} ({folder}){condition}", export.name)?;
        for line in found {
            writeln!(list, "    {line}")?;
        }
    }
    Ok(list)
}

/// The crate in which a name is defined: one that the facade names may have it from another.
fn home(root: &Path, export: &Export) -> anyhow::Result<String> {
    if export.of == "crate" {
        return Ok("ua-sdk".to_owned());
    }
    let folder = export.of.replace('_', "-");
    let file = root.join("crates").join(&folder).join("src/lib.rs");
    if !file.is_file() {
        return Ok(folder);
    }
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let above = exports(&text.replace("\npub mod ", "\nmod "))
        .into_iter()
        .find(|above| above.name == export.name && above.of.starts_with("ua_"));
    Ok(above.map_or(folder, |above| above.of.replace('_', "-")))
}

/// What the facade exports at its root. What it calls by another name is found by its own.
fn exports(facade: &str) -> Vec<Export> {
    let facade = facade.split("\npub mod ").next().unwrap_or_default().lines().chain(after_modules(facade));
    let (mut found, mut condition, mut open) = (Vec::new(), String::new(), String::new());
    for line in facade {
        if let Some(features) = line.strip_prefix("#[cfg(").and_then(|rest| rest.strip_suffix(")]")) {
            features.clone_into(&mut condition);
            continue;
        }
        if open.is_empty() && !line.starts_with("pub use ") {
            condition.clear();
            continue;
        }
        open.push_str(line.trim());
        if !line.ends_with(';') {
            continue;
        }
        let statement = open.trim_start_matches("pub use ").trim_end_matches(';').to_owned();
        open.clear();
        let (path, names) = match statement.split_once("::{") {
            Some((path, names)) => (path.to_owned(), names.trim_end_matches('}').to_owned()),
            None => match statement.rsplit_once("::") {
                Some((path, name)) => (path.to_owned(), name.to_owned()),
                None => (String::new(), statement.trim_matches(['{', '}']).to_owned()),
            },
        };
        let of = path.split("::").next().unwrap_or_default();
        let is_ours = of.starts_with("ua_");
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let own = name.split(" as ").next().unwrap_or(name).to_owned();
            let of = if path.is_empty() {
                own.clone()
            } else if is_ours {
                of.to_owned()
            } else {
                "crate".to_owned()
            };
            found.push(Export { of, name: own, condition: condition.clone() });
        }
        condition.clear();
    }
    found
}

/// What the prelude brings, each name with the features that it needs.
fn prelude(facade: &str) -> Vec<String> {
    let body =
        facade.split_once("\npub mod prelude {\n").map_or("", |(_, rest)| rest.split("\n}").next().unwrap_or(""));
    let at_margin: Vec<&str> = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let mut names: Vec<String> = exports(&at_margin.join("\n"))
        .into_iter()
        .map(|export| match export.condition.as_str() {
            "" => export.name,
            condition => format!("{}  {condition}", export.name),
        })
        .collect();
    names.sort();
    names
}

/// The lines at the margin behind the inline modules: re-exported crates.
fn after_modules(facade: &str) -> impl Iterator<Item = &str> {
    facade.lines().skip_while(|line| !line.starts_with("pub mod prelude")).filter(|line| line.starts_with("pub use {"))
}

/// The sources of a crate without their tests.
fn texts(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |file: &PathBuf| -> anyhow::Result<String> {
        let text = fs::read_to_string(file)?;
        Ok(written_out(text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default()))
    };
    files.iter().map(read).collect()
}

/// A source with the enums of `text_enum!` written as what they come to.
fn written_out(text: &str) -> String {
    let (mut written, mut is_inside) = (String::new(), false);
    for line in text.lines() {
        match (is_inside, line) {
            (false, "text_enum! {") => is_inside = true,
            (true, "}") => is_inside = false,
            (true, line) => {
                let inner = line.strip_prefix("    ").unwrap_or(line);
                let is_name = inner.ends_with('{') && inner.starts_with(|c: char| c.is_ascii_uppercase());
                let _infallible = writeln!(written, "{}{inner}", if is_name { "pub enum " } else { "" });
            }
            (false, line) => written.extend([line, "\n"]),
        }
    }
    written
}

/// Everything public about an item: how it is declared, its fields and variants, its functions, its traits.
fn face<'t>(name: &str, texts: impl Iterator<Item = &'t String>) -> Vec<String> {
    let mut face = Vec::new();
    for text in texts {
        let items = items(text);
        for item in &items {
            let head = item.head();
            if declares(&head, name) {
                face.extend(item.attributes.iter().filter(|line| counts(line)).cloned());
                face.push(head.trim_end_matches(['{', ' ']).to_owned());
                let is_open = head.starts_with("pub enum") || head.starts_with("pub trait");
                face.extend(item.members(is_open));
            } else if let Some(of) = head.strip_prefix("impl")
                && is_impl_of(of, name)
            {
                if of.contains(" for ") {
                    face.push(head.trim_end_matches(['{', '}', ' ']).to_owned());
                } else {
                    face.extend(item.members(false));
                }
            }
        }
    }
    face
}

fn counts(attribute: &str) -> bool {
    ["#[derive", "#[non_exhaustive", "#[must_use"].iter().any(|word| attribute.starts_with(word))
}

fn declares(head: &str, name: &str) -> bool {
    let rest = ["struct ", "enum ", "trait ", "type ", "fn ", "async fn ", "const "]
        .iter()
        .find_map(|word| head.strip_prefix("pub ")?.strip_prefix(word));
    rest.and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn is_impl_of(of: &str, name: &str) -> bool {
    let target = of.rsplit_once(" for ").map_or(of, |(_, target)| target);
    // Behind the parameters of the impl itself.
    let target = match target.strip_prefix('<') {
        Some(rest) => rest.split_once("> ").map_or(rest, |(_, target)| target),
        None => target,
    };
    let word = target.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next();
    word == Some(name)
}

/// An item at the margin, with what is indented below it.
#[derive(Debug, Default)]
struct Item {
    attributes: Vec<String>,
    lines: Vec<String>,
}

fn items(text: &str) -> Vec<Item> {
    let (mut items, mut attributes) = (Vec::new(), Vec::new());
    let mut open: Option<Item> = None;
    for line in text.lines() {
        if let Some(item) = &mut open {
            item.lines.push(line.to_owned());
            if line == "}" || line == ");" || (!line.starts_with(' ') && line.ends_with(';')) {
                items.extend(open.take());
            }
            continue;
        }
        if line.starts_with("#[") {
            attributes.push(line.to_owned());
        } else if line.starts_with("pub ") || line.starts_with("impl") {
            let item = Item { attributes: std::mem::take(&mut attributes), lines: vec![line.to_owned()] };
            let is_whole = line.ends_with(';') || line.ends_with("{}");
            if is_whole { items.push(item) } else { open = Some(item) }
        } else if !line.starts_with("//") {
            attributes.clear();
        }
    }
    items
}

impl Item {
    /// How it is declared, up to its body, in one line.
    fn head(&self) -> String {
        joined(self.lines.iter().map(String::as_str))
    }

    /// Its fields and functions that are public; of an enum or a trait, all.
    fn members(&self, all: bool) -> Vec<String> {
        let mut members = Vec::new();
        let mut lines = self.lines.iter().skip(1).map(String::as_str);
        while let Some(line) = lines.next() {
            let inner = line.strip_prefix("    ").filter(|inner| !inner.starts_with([' ', '/', '#', '}', ')']));
            let Some(inner) = inner else { continue };
            let is_public = inner.starts_with("pub ") && !inner.starts_with("pub(");
            if !is_public && !all {
                continue;
            }
            let mut whole = vec![inner];
            let is_function = inner.contains("fn ");
            let is_over = |line: &str| {
                line.ends_with([';', '{']) || line.ends_with("{}") || (!is_function && line.ends_with(','))
            };
            let is_variant = all && inner.ends_with('{') && !is_function;
            if is_variant {
                // The fields of a variant belong to it.
                while let Some(line) = lines.next().filter(|line| *line != "    },") {
                    let field = line.trim();
                    if !field.starts_with(['/', '#']) {
                        whole.push(field);
                    }
                }
                whole.push("}");
            } else {
                while !whole.last().is_some_and(|line| is_over(line)) {
                    let Some(line) = lines.next() else { break };
                    whole.push(line.trim());
                }
            }
            members.push(whole.join(" ").trim_end_matches(['{', ' ', ',']).trim_end_matches(" {}").to_owned());
        }
        members
    }
}

/// The lines of a declaration up to its body, as one.
fn joined<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let mut head = String::new();
    for line in lines {
        if !head.is_empty() {
            head.push(' ');
        }
        head.push_str(line.trim());
        if line.ends_with(['{', ';', '}']) {
            break;
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! A doc.

/// A thing.
#[derive(Debug)]
#[expect(dead_code)]
pub struct Thing {
    /// A field.
    pub name: String,
    hidden: u8,
}

impl Thing {
    /// Makes one.
    pub fn new(
        name: &str,
        hidden: u8,
    ) -> Self {
        pub_is_no_word_here();
        Self { name: name.into(), hidden }
    }

    fn secret(&self) {}

    pub(crate) fn ours(&self) {}
}

impl From<u8> for Thing {
    fn from(hidden: u8) -> Self {
        Self::new(\"\", hidden)
    }
}

pub enum Kind {
    /// One.
    One,
    Many {
        /// How many.
        count: u8,
    },
}

pub struct Thingy;
";

    #[test]
    fn a_face_has_what_is_public_and_nothing_else() {
        let texts = [SOURCE.to_owned()];
        assert_eq!(
            face("Thing", texts.iter()),
            [
                "#[derive(Debug)]",
                "pub struct Thing",
                "pub name: String",
                "pub fn new( name: &str, hidden: u8, ) -> Self",
                "impl From<u8> for Thing",
            ]
        );
        assert_eq!(face("Kind", texts.iter()), ["pub enum Kind", "One", "Many { count: u8, }"]);
    }

    #[test]
    fn the_variants_of_a_text_enum_are_part_of_it() {
        let source = "text_enum! {\n    /// A part.\n    Part {\n        /// One.\n        One = \"one\",\n    }\n}\n\npub struct Last;\n";
        let texts = [written_out(source)];
        assert_eq!(face("Part", texts.iter()), ["pub enum Part", "One = \"one\""]);
        assert_eq!(face("Last", texts.iter()), ["pub struct Last;"]);
    }

    #[test]
    fn the_facade_is_read_with_its_conditions() {
        let facade = "mod a;\n\n#[cfg(feature = \"mcp\")]\npub use a::Servers;\npub use a::{One, Two as Other};\npub use ua_core::Three;\n\n\
                      pub mod prelude {\n    pub use crate::One;\n}\n\npub use {serde, serde_json};\n";
        let export = |of: &str, name: &str, condition: &str| Export {
            of: of.to_owned(),
            name: name.to_owned(),
            condition: condition.to_owned(),
        };
        assert_eq!(
            exports(facade),
            [
                export("crate", "Servers", "feature = \"mcp\""),
                export("crate", "One", ""),
                export("crate", "Two", ""),
                export("ua_core", "Three", ""),
                export("serde", "serde", ""),
                export("serde_json", "serde_json", ""),
            ]
        );
    }

    #[test]
    fn a_name_that_leaves_the_prelude_is_seen() {
        let facade = "pub use a::One;\n\npub mod prelude {\n    pub use serde::{Deserialize, Serialize};\n\n    #[cfg(feature = \"mcp\")]\n    \
                      pub use crate::Servers;\n    pub use crate::{One, Two};\n}\n\npub use {serde};\n";
        assert_eq!(prelude(facade), ["Deserialize", "One", "Serialize", "Servers  feature = \"mcp\"", "Two"]);
    }

    #[test]
    fn every_name_of_the_facade_is_found() {
        let list = listed(&workspace_root()).unwrap();
        for name in ["Step", "Runs", "StepOutcome", "RunEvent", "Budgets", "UsageSummary", "tool"] {
            assert!(list.contains(&format!("\n{name} (")), "{name}");
        }
    }
}
