//! What the compiler knows of the public surface, held against the list that is read from the sources: `cargo xtask surface --compiled`.
//!
//! rustdoc writes the public items of each crate as JSON, which is the compiler's own reading, macros, derives and features included. Of each
//! name of the facade the list has the same fields, variants, functions, constants and traits, no fewer and no more; how a function is declared
//! is as the source has it. The format is not stable, so rustdoc is asked for it by `RUSTC_BOOTSTRAP`, and `rustdoc-types` reads the version of it
//! that the compiler of this workspace writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustdoc_types::{
    Attribute, Crate, FORMAT_VERSION, GenericArg, GenericArgs, Id, Impl, Item, ItemEnum, StructKind, Type, VariantKind,
    Visibility,
};
use serde_json::Value;

use super::{Face, Surface, declares};

/// All features of the facade.
const FEATURES: &str = "ua-sdk/anthropic,ua-sdk/mcp,ua-sdk/openai,ua-sdk/postgres,ua-sdk/sqlite,ua-sdk/toolserver";

/// Modules of the facade besides its names.
const MODULES: [&str; 3] = ["crates", "prelude", "types"];

/// A trait that `#[derive(PartialEq)]` brings, which no program can name.
const UNNAMEABLE: &str = "StructuralPartialEq";

/// One thing that is public about a name, in words.
type Facts = BTreeSet<String>;

pub(super) fn compare(root: &Path, surface: &Surface) -> anyhow::Result<()> {
    let homes: BTreeSet<&str> =
        surface.faces.iter().filter(|face| face.is_ours).map(|face| face.home.as_str()).chain(["ua-sdk"]).collect();
    let crates = documented(root, &homes)?;
    let mut wrong = Vec::new();
    let facade = &crates["ua-sdk"];
    let plain = |names: &[String]| -> Facts {
        names.iter().map(|name| name.split("  ").next().unwrap_or(name).to_owned()).collect()
    };
    let shown: Facts = surface.faces.iter().map(|face| face.shown.clone()).chain(MODULES.map(str::to_owned)).collect();
    differences("ua_sdk", &shown, &facade.names_in(None)?, &mut wrong);
    for (module, names) in [("prelude", &surface.prelude), ("types", &surface.types)] {
        differences(module, &plain(names), &facade.names_in(Some(module))?, &mut wrong);
    }
    for face in surface.faces.iter().filter(|face| face.is_ours) {
        let known = crates[face.home.as_str()].facts_of(&face.own)?;
        differences(&face.shown, &listed(face), &known, &mut wrong);
    }
    ensure!(wrong.is_empty(), "the list of the public surface is not what the compiler has:\n{}", wrong.join("\n"));
    println!("surface: the compiler knows of {} names what the list has", surface.faces.len());
    Ok(())
}

/// What one of them has, and the other has not.
fn differences(of: &str, listed: &Facts, known: &Facts, wrong: &mut Vec<String>) {
    wrong.extend(known.difference(listed).map(|fact| format!("{of}: the list lacks {fact}")));
    wrong.extend(listed.difference(known).map(|fact| format!("{of}: the list has {fact}, and the compiler has none")));
}

/// The crates as rustdoc describes them, by their names.
fn documented<'n>(root: &Path, names: &BTreeSet<&'n str>) -> anyhow::Result<BTreeMap<&'n str, Documented>> {
    let folder = tempfile::tempdir()?;
    let rustdoc = folder.path().join("rustdoc");
    // For rustdoc alone: build scripts look at that variable, and whatever they are behind would be built anew.
    fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o700))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--lib", "--no-deps", "--locked", "--features", FEATURES]).current_dir(root);
    for name in names {
        cargo.args(["--package", name]);
    }
    cargo.env("RUSTDOC", &rustdoc).env("RUSTDOCFLAGS", "-Zunstable-options --output-format json");
    ensure!(cargo.status()?.success(), "cargo doc failed");
    let target = target_folder(root)?;
    let read = |name: &&'n str| -> anyhow::Result<(&'n str, Documented)> {
        let file = target.join("doc").join(format!("{}.json", name.replace('-', "_")));
        Ok((*name, Documented::read(&file).with_context(|| file.display().to_string())?))
    };
    names.iter().map(read).collect()
}

/// Where cargo builds.
fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    Ok(metadata["target_directory"].as_str().context("cargo metadata names no target folder")?.into())
}

/// A crate as rustdoc describes it.
struct Documented(Crate);

impl Documented {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let json: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
        let format = &json["format_version"];
        ensure!(
            *format == FORMAT_VERSION,
            "rustdoc writes format {format}, and rustdoc-types reads {FORMAT_VERSION}: take the version of it that belongs to this compiler"
        );
        Ok(Self(serde_json::from_value(json)?))
    }

    /// The items of the crate, or of a module at its root.
    fn items_of(&self, module: Option<&str>) -> anyhow::Result<Vec<&Item>> {
        let root = self.0.index.get(&self.0.root).context("the crate has no root")?;
        let items = self.items_in(root);
        match module {
            None => Ok(items),
            Some(module) => {
                let found = items.into_iter().find(|item| item.name.as_deref() == Some(module));
                Ok(self.items_in(found.with_context(|| format!("there is no module {module}"))?))
            }
        }
    }

    fn items_in(&self, module: &Item) -> Vec<&Item> {
        let ItemEnum::Module(module) = &module.inner else { return Vec::new() };
        module.items.iter().filter_map(|id| self.0.index.get(id)).collect()
    }

    /// The names that a program finds there.
    fn names_in(&self, module: Option<&str>) -> anyhow::Result<Facts> {
        let items = self.items_of(module)?.into_iter().filter(|item| item.visibility == Visibility::Public);
        Ok(items.filter_map(name_of).map(str::to_owned).collect())
    }

    /// The item that the root has under this name.
    fn named(&self, name: &str) -> anyhow::Result<&Item> {
        let item = self.items_of(None)?.into_iter().find(|item| name_of(item) == Some(name));
        let found = item.and_then(|item| {
            let ItemEnum::Use(reexport) = &item.inner else { return Some(item) };
            self.0.index.get(reexport.id.as_ref()?)
        });
        found.with_context(|| format!("the compiler finds no {name}"))
    }

    /// Everything that is public about a name.
    fn facts_of(&self, name: &str) -> anyhow::Result<Facts> {
        let item = self.named(name)?;
        let mut facts: Facts = item.attrs.iter().filter_map(attribute).map(str::to_owned).collect();
        if let ItemEnum::Struct(of) = &item.inner
            && let StructKind::Plain { fields, .. } = &of.kind
        {
            facts.extend(self.names_of(fields).map(|field| format!("field {field}")));
        }
        if let ItemEnum::Enum(of) = &item.inner {
            for variant in of.variants.iter().filter_map(|id| self.0.index.get(id)) {
                let (Some(name), ItemEnum::Variant(kind)) = (&variant.name, &variant.inner) else { continue };
                facts.insert(format!("variant {name}"));
                if let VariantKind::Struct { fields, .. } = &kind.kind {
                    let fields = fields.iter().filter_map(|id| self.0.index.get(id)?.name.as_ref());
                    facts.extend(fields.map(|field| format!("field {name}.{field}")));
                }
            }
        }
        for found in self.0.index.values() {
            if let ItemEnum::Impl(found) = &found.inner
                && !found.is_synthetic
                && found.blanket_impl.is_none()
            {
                self.of_impl(found, item.id, &mut facts);
            }
        }
        Ok(facts)
    }

    /// The public ones among these items.
    fn names_of(&self, ids: &[Id]) -> impl Iterator<Item = &str> {
        let public = |id: &Id| self.0.index.get(id).filter(|item| item.visibility == Visibility::Public);
        ids.iter().filter_map(move |id| public(id)?.name.as_deref())
    }

    /// What an impl says of a type: its functions, or its trait.
    fn of_impl(&self, found: &Impl, id: Id, facts: &mut Facts) {
        let is_of_it = matches!(&found.for_, Type::ResolvedPath(path) if path.id == id);
        let Some(of) = &found.trait_ else {
            if is_of_it {
                for member in found.items.iter().filter_map(|id| self.0.index.get(id)) {
                    let Some(name) = member.name.as_ref().filter(|_| member.visibility == Visibility::Public) else {
                        continue;
                    };
                    let is_function = matches!(member.inner, ItemEnum::Function(_));
                    facts.insert(format!("{} {name}", if is_function { "fn" } else { "const" }));
                }
            }
            return;
        };
        let arguments = arguments(of.args.as_deref());
        let name = last(&of.path);
        let is_text_of_it = name == "From"
            && word_of(&found.for_) == "String"
            && arguments.iter().any(|of| matches!(of, Type::ResolvedPath(path) if path.id == id));
        if (is_of_it || is_text_of_it) && name != UNNAMEABLE {
            let target = if is_of_it { String::new() } else { format!(" for {}", word_of(&found.for_)) };
            let arguments: Vec<String> = arguments.iter().map(|argument| word_of(argument)).collect();
            facts.insert(trait_fact(name, &arguments, &target));
        }
    }
}

/// What an item is found by: what is re-exported, by its new name.
fn name_of(item: &Item) -> Option<&str> {
    if let ItemEnum::Use(reexport) = &item.inner {
        return Some(&reexport.name);
    }
    item.name.as_deref()
}

fn attribute(attribute: &Attribute) -> Option<&'static str> {
    if matches!(attribute, Attribute::NonExhaustive) {
        return Some(NON_EXHAUSTIVE);
    }
    matches!(attribute, Attribute::MustUse { .. }).then_some(MUST_USE)
}

const NON_EXHAUSTIVE: &str = "#[non_exhaustive]";
const MUST_USE: &str = "#[must_use]";

/// The types among the arguments of a trait.
fn arguments(of: Option<&GenericArgs>) -> Vec<&Type> {
    let Some(GenericArgs::AngleBracketed { args, .. }) = of else { return Vec::new() };
    let types = args.iter().filter_map(|argument| match argument {
        GenericArg::Type(of) => Some(of),
        GenericArg::Lifetime(_) | GenericArg::Const(_) | GenericArg::Infer => None,
    });
    types.collect()
}

/// A type in one word; what it is made of is left out.
fn word_of(of: &Type) -> String {
    if let Type::ResolvedPath(path) = of {
        return last(&path.path).to_owned();
    }
    if let Type::Generic(name) | Type::Primitive(name) = of {
        return name.clone();
    }
    if let Type::BorrowedRef { type_, .. } = of {
        return word_of(type_);
    }
    "_".to_owned()
}

fn trait_fact(name: &str, arguments: &[String], target: &str) -> String {
    if arguments.is_empty() {
        return format!("impl {name}{target}");
    }
    format!("impl {name}<{}>{target}", arguments.join(", "))
}

/// The last word of a path.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// What the list says of a name.
fn listed(face: &Face) -> Facts {
    let mut facts = Facts::new();
    for line in &face.lines {
        let line = line.split("  ").next().unwrap_or(line);
        if let Some(derived) = line.strip_prefix("#[derive(") {
            for of in derived.trim_end_matches(")]").split(", ").map(last) {
                facts.insert(trait_fact(of, &[], ""));
                if of == "Error" {
                    facts.insert(trait_fact("Display", &[], ""));
                }
            }
        } else if line.starts_with("#[non_exhaustive") {
            facts.insert(NON_EXHAUSTIVE.to_owned());
        } else if line.starts_with("#[must_use") {
            facts.insert(MUST_USE.to_owned());
        } else if let Some(of) = line.strip_prefix("impl") {
            facts.extend(implemented(of, &face.own));
        } else if !declares(line, &face.own) {
            facts.extend(member(line));
        }
    }
    facts
}

/// `<'de> Deserialize<'de> for Money`, as a fact.
fn implemented(of: &str, own: &str) -> Option<String> {
    let of = match of.strip_prefix('<') {
        Some(rest) => rest.split_once("> ")?.1,
        None => of.trim_start(),
    };
    let (of, target) = of.split_once(" for ")?;
    let (name, arguments) = of.split_once('<').unwrap_or((of, ""));
    let arguments = arguments.strip_suffix('>').unwrap_or(arguments).split(", ").map(|argument| {
        let argument = argument.trim_start_matches('&').split('<').next().unwrap_or_default();
        last(argument).to_owned()
    });
    let arguments: Vec<String> = arguments.filter(|word| !word.is_empty() && !word.starts_with('\'')).collect();
    let target = last(target.split('<').next().unwrap_or(target));
    let target = if target == own { String::new() } else { format!(" for {target}") };
    Some(trait_fact(last(name), &arguments, &target))
}

/// A field, function, constant or variant, and the fields of a variant, as facts.
fn member(line: &str) -> Vec<String> {
    let name = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let Some(public) = line.strip_prefix("pub ") else {
        let variant = name(line);
        let fields = line.split_once(" { ").map_or("", |(_, fields)| fields.trim_end_matches(" }"));
        let fields = at_top(fields).into_iter().map(|field| format!("field {variant}.{}", name(field.trim())));
        return std::iter::once(format!("variant {variant}")).chain(fields).collect();
    };
    let before = public.split(['(', '<', ':']).next().unwrap_or_default();
    let fact = match (before.split_once("fn "), before.strip_prefix("const ")) {
        (Some((_, function)), _) => format!("fn {function}"),
        (None, Some(constant)) => format!("const {constant}"),
        (None, None) => format!("field {before}"),
    };
    vec![fact]
}

/// The parts between commas that no bracket holds.
fn at_top(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0_i32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_face_are_read_as_what_they_promise() {
        let lines = [
            "#[derive(Debug, serde::Serialize, thiserror::Error)]",
            "#[non_exhaustive]",
            "#[must_use = \"because\"]",
            "pub enum Part",
            "One = \"one\"",
            "Two(Box<One>)",
            "Three { first: BTreeMap<String, Vec<u8>>, second: u8, }",
            "pub const ALL: &'static [Self]",
            "pub const fn as_str(self) -> &'static str",
            "pub async fn run<T>(&self, of: T) -> T  feature = \"mcp\"",
            "pub name: String",
            "impl<'de> Deserialize<'de> for Part",
            "impl<E: std::error::Error + 'static> From<E> for Part",
            "impl std::str::FromStr for Part",
            "impl From<Part> for String",
        ];
        let face = Face {
            shown: "Part".to_owned(),
            own: "Part".to_owned(),
            condition: String::new(),
            home: "ua-core".to_owned(),
            lines: lines.map(str::to_owned).into(),
            is_ours: true,
        };
        let wanted = [
            "#[must_use]",
            "#[non_exhaustive]",
            "const ALL",
            "field Three.first",
            "field Three.second",
            "field name",
            "fn as_str",
            "fn run",
            "impl Debug",
            "impl Deserialize",
            "impl Display",
            "impl Error",
            "impl From<E>",
            "impl From<Part> for String",
            "impl FromStr",
            "impl Serialize",
            "variant One",
            "variant Three",
            "variant Two",
        ];
        assert_eq!(listed(&face).into_iter().collect::<Vec<_>>(), wanted);
    }
}
