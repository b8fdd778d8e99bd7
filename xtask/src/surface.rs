//! `cargo xtask surface`: what a program finds in `ua-sdk`, as a committed list. A change of it is a change of that file, which somebody sees.
//!
//! The list is read from the sources, which are formatted: an item begins at the left margin, what belongs to it is indented once. So it needs
//! neither a nightly compiler nor a build, and runs before a change lands. It has the names of the facade, and of each its whole public face
//! in whatever crate it is defined, also what macros make of it (`made.rs`): a field that is added to a re-exported type is seen as well; and the
//! names of the prelude and of `types`, where every type that a face speaks of has one.
//!
//! That nothing is missing is not taken from the reading: with `--compiled`, in `.ci/nightly`, the compiler says what it knows of each name
//! (`compiled.rs`), and the list has exactly that. `cargo semver-checks` judges there what of a change breaks programs, of the items that are
//! defined in `ua-sdk` alone: it does not see those of other crates behind a `pub use`. For them a line of this list that changes is the
//! notice, and a person judges it.

mod compiled;
mod made;

use std::collections::{BTreeMap, BTreeSet};
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
    /// Compare it with what the compiler knows of each name, too, which builds its documentation
    #[arg(long)]
    compiled: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root();
    let surface = Surface::read(&root)?;
    let now = surface.written();
    if options.write {
        fs::write(root.join(LIST), &now)?;
        println!("surface: {} lines in {LIST}", now.lines().count());
    } else {
        compare(&root, &now)?;
    }
    let unnamed = surface.unnamed();
    ensure!(
        unnamed.is_empty(),
        "these types stand in the public surface of ua-sdk and have no name there: {}; give each one in `types` of {FACADE}",
        unnamed.join(", ")
    );
    if options.compiled { compiled::compare(&root, &surface) } else { Ok(()) }
}

/// The committed list and the sources.
fn compare(root: &Path, now: &str) -> anyhow::Result<()> {
    let before = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (lines(&before), lines(now));
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

/// A name of the facade: the crate and its last word, what the facade calls it, and the features that it needs.
#[derive(Debug, PartialEq, Eq)]
struct Export {
    /// `crate`, or a crate of ours, or one that is not ours.
    of: String,
    name: String,
    shown: String,
    condition: String,
}

/// A name of the facade with all that is public about it.
struct Face {
    /// What the facade calls it, and what its crate does.
    shown: String,
    own: String,
    condition: String,
    /// The folder of its crate, or the name of a crate that is not ours.
    home: String,
    /// None of a crate that is not ours.
    lines: Vec<String>,
    is_ours: bool,
}

/// What a program finds.
struct Surface {
    prelude: Vec<String>,
    types: Vec<String>,
    faces: Vec<Face>,
    /// The types of the crates that have a face here.
    declared: BTreeSet<String>,
}

impl Surface {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let facade = fs::read_to_string(root.join(FACADE)).with_context(|| format!("cannot read {FACADE}"))?;
        let [prelude, types] = ["prelude", "types"].map(|module| names_in(&facade, module));
        ensure!(prelude.len() > 10, "the prelude of {FACADE} has {} names", prelude.len());
        ensure!(types.len() > 10, "`types` of {FACADE} has {} names", types.len());
        let mut exports = exports(&facade);
        exports.sort_by(|a, b| a.shown.cmp(&b.shown));
        ensure!(exports.len() > 15, "{FACADE} has {} names", exports.len());
        let (mut crates, mut faces): (BTreeMap<String, Vec<String>>, _) = (BTreeMap::new(), Vec::new());
        for export in exports {
            let home = home(root, &export)?;
            let sources = root.join("crates").join(&home).join("src");
            let is_ours = sources.is_dir();
            let mut lines = Vec::new();
            if is_ours {
                if !crates.contains_key(&home) {
                    crates.insert(home.clone(), texts(&sources)?);
                }
                lines = face(&export.name, crates.get(&home).into_iter().flatten());
                ensure!(!lines.is_empty(), "{} of {} is defined nowhere", export.name, export.of);
            }
            let Export { of, name: own, shown, condition } = export;
            let home = if is_ours { home } else { of };
            faces.push(Face { shown, own, condition, home, lines, is_ours });
        }
        let declared = crates.values().flatten().flat_map(|text| declared(text)).collect();
        Ok(Self { prelude, types, faces, declared })
    }

    /// The list.
    fn written(&self) -> String {
        let mut list = HEAD.to_owned();
        let mut add = |title: &str, lines: &[String]| {
            list.extend(["\n", title, "\n"]);
            list.extend(lines.iter().flat_map(|line| ["    ", line, "\n"]));
        };
        add("prelude", &self.prelude);
        add("types", &self.types);
        for Face { shown, own, condition, home, lines, is_ours } in &self.faces {
            let condition = if condition.is_empty() { String::new() } else { format!("  {condition}") };
            let title = match (is_ours, shown == own) {
                (false, _) => format!("{shown}: of {home}"),
                (true, true) => format!("{shown} ({home})"),
                (true, false) => format!("{shown}, which is {own} ({home})"),
            };
            add(&format!("{title}{condition}"), lines);
        }
        list
    }

    /// Types of ours that a face speaks of, and that a program cannot name by `ua_sdk` or its `types`.
    fn unnamed(&self) -> Vec<String> {
        let is_named = |word: &str| {
            self.types.iter().any(|name| name == word)
                || self.faces.iter().any(|face| face.shown == word || face.own == word)
        };
        let lines = self.faces.iter().flat_map(|face| &face.lines).filter(|line| !line.starts_with("#["));
        let words: BTreeSet<&str> = lines.flat_map(|line| words_of_types(line)).collect();
        let unnamed = words.into_iter().filter(|word| self.declared.contains(*word) && !is_named(word));
        unnamed.map(str::to_owned).collect()
    }
}

/// The words in a line of a face that may be types. The name of a variant, which stands first, is none, and what a constant is, is not looked at.
fn words_of_types(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split(" = ").next().unwrap_or_default();
    let is_variant = !line.starts_with("pub ") && !line.starts_with("impl");
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.skip(usize::from(is_variant)).filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// The types and traits that a source declares.
fn declared(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.strip_prefix("pub ")?;
        let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| line.strip_prefix(word))?;
        Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    text.lines().filter_map(name).collect()
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

/// What the facade exports at its root.
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
            let (own, shown) = name.split_once(" as ").unwrap_or((name, name));
            let (own, shown) = (own.to_owned(), shown.to_owned());
            let of = if path.is_empty() {
                own.clone()
            } else if is_ours {
                of.to_owned()
            } else {
                "crate".to_owned()
            };
            found.push(Export { of, name: own, shown, condition: condition.clone() });
        }
        condition.clear();
    }
    found
}

/// What an inline module of the facade brings, each name with the features that it needs.
fn names_in(facade: &str, module: &str) -> Vec<String> {
    let begin = format!("\npub mod {module} {{\n");
    let body = facade.split_once(&begin).map_or("", |(_, rest)| rest.split("\n}").next().unwrap_or(""));
    let at_margin: Vec<&str> = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let mut names: Vec<String> = exports(&at_margin.join("\n"))
        .into_iter()
        .map(|export| match export.condition.as_str() {
            "" => export.shown,
            condition => format!("{}  {condition}", export.shown),
        })
        .collect();
    names.sort();
    names
}

/// The lines at the margin behind the inline modules: re-exported crates.
fn after_modules(facade: &str) -> impl Iterator<Item = &str> {
    facade.lines().skip_while(|line| !line.starts_with("pub mod prelude")).filter(|line| line.starts_with("pub use {"))
}

/// The sources of a crate without their tests, with what its macros make.
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
        Ok(text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned())
    };
    let texts = files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(made::written_out(&texts))
}

/// Features of crates below that no feature of `ua-sdk` turns on: what needs them is not there for a program.
const TURNED_OFF: [&str; 2] = ["#[cfg(feature = \"schema\")]", "#[cfg(feature = \"conformance\")]"];

/// Everything public about an item: how it is declared, its fields and variants, its functions, its traits.
fn face<'t>(name: &str, texts: impl Iterator<Item = &'t String>) -> Vec<String> {
    let (mut face, mut more) = (Vec::new(), Vec::new());
    for text in texts {
        let items = items(text);
        let is_there = |item: &&Item| !item.attributes.iter().any(|line| TURNED_OFF.contains(&line.as_str()));
        for item in items.iter().filter(is_there) {
            let head = item.head();
            if declares(&head, name) {
                face.extend(item.attributes.iter().filter(|line| counts(line)).cloned());
                face.push(head.trim_end_matches(['{', ' ']).to_owned());
                let is_open = head.starts_with("pub enum") || head.starts_with("pub trait");
                face.extend(item.members(is_open));
            } else if let Some(of) = head.strip_prefix("impl")
                && (is_impl_of(of, name) || is_text_of(of, name))
            {
                if of.contains(" for ") {
                    more.push(head.trim_end_matches(['{', '}', ' ']).to_owned());
                } else {
                    more.extend(item.members(false));
                }
            }
        }
    }
    face.extend(more);
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

/// Whether it makes a text of it: `impl From<RunId> for String` belongs to `RunId`.
fn is_text_of(of: &str, name: &str) -> bool {
    let from = of.trim_start().strip_prefix("From<").and_then(|rest| rest.strip_suffix("> for String {"));
    from == Some(name)
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

    /// Its fields and functions that are public; of an enum or a trait, all. Each with the features that it needs.
    fn members(&self, all: bool) -> Vec<String> {
        let (mut members, mut condition) = (Vec::new(), None);
        let mut lines = self.lines.iter().skip(1).map(String::as_str);
        while let Some(line) = lines.next() {
            if let Some(needs) = line.strip_prefix("    #[cfg(").and_then(|rest| rest.strip_suffix(")]")) {
                condition = Some(needs);
            }
            let inner = line.strip_prefix("    ").filter(|inner| !inner.starts_with([' ', '/', '#', '}', ')']));
            let Some(inner) = inner else { continue };
            let needs = condition.take();
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
            let is_long = whole.len() > 1 || inner.contains('$');
            let mut member = whole.join(" ").trim_end_matches(['{', ' ', ',']).trim_end_matches(" {}").to_owned();
            // What a constant is counts where it can be seen at a glance.
            if inner.starts_with("pub const ")
                && !is_function
                && is_long
                && let Some(declared) = member.find(" = ")
            {
                member.truncate(declared);
            }
            if let Some(needs) = needs {
                let _infallible = write!(member, "  {needs}");
            }
            members.push(member);
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
    fn what_needs_a_feature_says_so_and_what_no_program_has_is_left_out() {
        let source = "pub struct Runs {\n}\n\nimpl Runs {\n    /// Opens.\n    #[cfg(feature = \"sqlite\")]\n    pub fn open() {\n    }\n\n    \
                      pub const ALL: [u8; 2] = [\n        1,\n        2,\n    ];\n    pub const ONE: u8 = 1;\n}\n\n\
                      #[cfg(feature = \"schema\")]\nimpl JsonSchema for Runs {\n}\n\nimpl From<Runs> for String {\n}\n";
        let texts = [source.to_owned()];
        assert_eq!(
            face("Runs", texts.iter()),
            [
                "pub struct Runs",
                "pub fn open()  feature = \"sqlite\"",
                "pub const ALL: [u8; 2]",
                "pub const ONE: u8 = 1;",
                "impl From<Runs> for String",
            ]
        );
    }

    #[test]
    fn a_type_that_a_face_speaks_of_has_a_name() {
        let face = |shown: &str, lines: &[&str]| Face {
            shown: shown.to_owned(),
            own: shown.to_owned(),
            condition: String::new(),
            home: "ua-sdk".to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            is_ours: true,
        };
        let surface = Surface {
            prelude: Vec::new(),
            types: vec!["Known".to_owned()],
            faces: vec![face(
                "Step",
                &["pub enum Step", "Hidden(Box<Known>)", "Other { one: Vec<Lost>, }", "pub fn new(of: u8) -> Step"],
            )],
            declared: ["Step", "Hidden", "Known", "Lost"].map(str::to_owned).into(),
        };
        assert_eq!(surface.unnamed(), ["Lost"]);
    }

    #[test]
    fn the_facade_is_read_with_its_conditions() {
        let facade = "mod a;\n\n#[cfg(feature = \"mcp\")]\npub use a::Servers;\npub use a::{One, Two as Other};\npub use ua_core::Three;\n\n\
                      pub mod prelude {\n    pub use crate::One;\n}\n\npub use {serde, serde_json};\n";
        let export = |of: &str, name: &str, condition: &str| Export {
            of: of.to_owned(),
            name: name.to_owned(),
            shown: if name == "Two" { "Other".to_owned() } else { name.to_owned() },
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
        assert_eq!(
            names_in(facade, "prelude"),
            ["Deserialize", "One", "Serialize", "Servers  feature = \"mcp\"", "Two"]
        );
    }

    #[test]
    fn every_name_of_the_facade_is_found() {
        let surface = Surface::read(&workspace_root()).unwrap();
        let list = surface.written();
        for name in ["Step (", "Runs (", "Outcome, which is StepOutcome (", "RunEvent (", "UsageSummary (", "tool ("] {
            assert!(list.contains(&format!("\n{name}")), "{name}");
        }
        let unnamed = surface.unnamed();
        assert!(unnamed.is_empty(), "{unnamed:?}");
        // What macros make.
        let of = |name: &str| &surface.faces.iter().find(|face| face.shown == name).unwrap().lines;
        for (name, line) in [
            ("RunId", "pub fn parse(text: &str) -> Result<Self, InvalidId>"),
            ("RunId", "impl From<RunId> for String"),
            ("RunStatus", "Queued = \"queued\""),
            ("RunStatus", "pub const ALL: &'static [Self]"),
            ("RunStop", "impl std::str::FromStr for RunStop"),
        ] {
            assert!(of(name).iter().any(|found| found == line), "{name}: {line} of {:#?}", of(name));
        }
    }
}
