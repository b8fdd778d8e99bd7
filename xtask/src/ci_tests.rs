//! What the scripts of `.ci` choose from the tests is there: a filter that meets nothing passes, and tests nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ua_testkit::workspace_root;

use crate::docs_tests::{packages, sources};

/// What a `cargo test` of a script chooses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    place: String,
    /// Of all packages if there is none.
    packages: Vec<String>,
    /// Names of integration tests, and `lib`; all if there is none.
    targets: Vec<String>,
    filters: Vec<String>,
}

/// The tests of a file: their package, their target and the modules that the names of all of them begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Home {
    package: &'static str,
    target: String,
    modules: String,
}

impl Choice {
    fn has(&self, home: &Home) -> bool {
        let is_in = |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
        is_in(&self.packages, home.package) && is_in(&self.targets, &home.target)
    }

    /// Whether every test of a file is played.
    fn meets(&self, home: &Home) -> bool {
        let begins = format!("{}::", home.modules);
        self.has(home) && (self.filters.is_empty() || self.filters.iter().any(|filter| begins.contains(filter)))
    }
}

/// The `cargo test` commands of a script, with the arrays that they stand in, or why one cannot be read.
fn choices(script: &str, text: &str) -> Vec<Result<Choice, String>> {
    let mut arrays: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#')) {
        if let Some((before, words)) = line.split_once("=(cargo test ") {
            let name = before.rsplit(' ').next().unwrap_or_default();
            let words = words.split(')').next().unwrap_or_default();
            arrays.insert(name, ["cargo", "test"].into_iter().chain(words.split_whitespace()).collect());
            continue;
        }
        let expanded = |word| {
            let name = str::strip_prefix(word, "\"${").and_then(|rest| rest.strip_suffix("[@]}\""));
            name.and_then(|name| arrays.get(name).cloned()).unwrap_or_else(|| vec![word])
        };
        let words: Vec<&str> = line.split_whitespace().flat_map(expanded).collect();
        if let Some(at) = words.windows(2).position(|two| two == ["cargo", "test"]) {
            found.push(read(format!(".ci/{script}:{}", number + 1), &words[at + 2..]));
        }
    }
    found
}

fn read(place: String, words: &[&str]) -> Result<Choice, String> {
    let mut choice = Choice { place, ..Choice::default() };
    let mut words = words.iter().copied();
    let mut is_behind = false;
    while let Some(word) = words.next() {
        match (word, is_behind) {
            ("--", false) => is_behind = true,
            ("-p", false) => choice.packages.extend(words.next().map(str::to_owned)),
            ("--test", false) => choice.targets.extend(words.next().map(str::to_owned)),
            ("--lib", false) => choice.targets.push("lib".to_owned()),
            ("--features", false) => {
                words.next();
            }
            ("--workspace" | "--locked" | "--no-run", false)
            | ("--ignored" | "--include-ignored" | "--nocapture", true) => {}
            _ if word.starts_with('-') || word.contains(['"', '$', ';', '|', '&', '<', '>', '\\']) => {
                return Err(format!("{}: what is {word}?", choice.place));
            }
            _ => choice.filters.push(word.to_owned()),
        }
    }
    Ok(choice)
}

/// Files that are modules by another name than theirs (`#[path = "truncate_tests.rs"] mod tests;`), with the file that says so and the name.
fn renamed() -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    for file in sources().files() {
        let text = fs::read_to_string(workspace_root().join(file)).unwrap();
        let mut path = None;
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("#[path = \"") {
                path = rest.split('"').next();
            } else if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                // A file of another crate is a part of several.
                if let Some(path) = path.take().filter(|path| !path.contains("..")) {
                    let path = Path::new(file).parent().unwrap().join(path).display().to_string();
                    found.insert(path, (file.to_owned(), name.to_owned()));
                }
            } else if !line.starts_with("#[") {
                path = None;
            }
        }
    }
    found
}

/// Where the tests of a file are; nothing for examples and programs that build something.
fn home_of(file: &str, renamed: &BTreeMap<String, (String, String)>) -> Option<Home> {
    if let Some((parent, name)) = renamed.get(file) {
        let Home { package, target, modules } = home_of(parent, renamed)?;
        let modules = if modules.is_empty() { name.clone() } else { format!("{modules}::{name}") };
        return Some(Home { package, target, modules });
    }
    let below = |folder: &str| file.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs");
    let (package, (below, all)) =
        packages().iter().find_map(|(name, package)| Some((name.as_str(), (below(&package.folder)?, package))))?;
    let mut parts = below.split('/');
    let is_target = |kind: &str, name: &str| all.targets.contains(&(kind.to_owned(), name.to_owned()));
    let target = match parts.next()? {
        "src" if all.targets.iter().any(|(kind, _)| kind == "lib") => "lib",
        "src" => "bin",
        "tests" => parts.next()?,
        first => first,
    };
    if !["lib", "bin"].contains(&target) && !is_target("test", target) {
        return None;
    }
    let modules: Vec<&str> = parts.filter(|part| !["main", "lib", "mod"].contains(part)).collect();
    Some(Home { package, target: target.to_owned(), modules: modules.join("::") })
}

/// The homes of all files.
fn homes() -> Vec<(&'static str, Home)> {
    let renamed = renamed();
    sources().files().filter_map(|file| Some((file, home_of(file, &renamed)?))).collect()
}

/// What is wrong with a choice: packages, targets and filters that there are not.
fn vain(choice: &Choice, homes: &[(&'static str, Home)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in choice.packages.iter().filter(|name| !packages().contains_key(*name)) {
        wrong.push(format!("{}: there is no package {package}", choice.place));
    }
    for target in &choice.targets {
        if !homes.iter().any(|(_, home)| choice.has(home) && home.target == *target) {
            wrong.push(format!("{}: there is no test {target}", choice.place));
        }
    }
    for filter in &choice.filters {
        let meets = |(file, home): &(&str, Home)| {
            let of_file = sources().tests().filter(|test| test.file == *file);
            let mut names = of_file.map(|test| format!("{}::{}", home.modules, test.name));
            choice.has(home) && (format!("{}::", home.modules).contains(filter) || names.any(|it| it.contains(filter)))
        };
        if !homes.iter().any(meets) {
            wrong.push(format!("{}: no test is chosen by {filter}", choice.place));
        }
    }
    wrong
}

fn script(name: &str) -> String {
    fs::read_to_string(workspace_root().join(".ci").join(name)).unwrap()
}

#[test]
fn every_filter_of_the_scripts_meets_a_test() {
    let homes = homes();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for name in ["run", "nightly"] {
        for choice in choices(name, &script(name)) {
            match choice {
                Ok(choice) => {
                    count += choice.filters.len();
                    wrong.extend(vain(&choice, &homes));
                }
                Err(why) => wrong.push(why),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} filters were found: the scripts are not read right");
}

#[test]
fn a_filter_that_meets_nothing_is_seen() {
    let text = "step_x() {\n    local end=1 tests=(cargo test --locked -p ua-core -p ua-checkpoint --lib)\n    \"${tests[@]}\" --no-run\n    \
                # cargo test -- nothing::\n    \"${LANE[@]}\" \"${tests[@]}\" -- redact:: truncate_tests:: truncate::tests:: rules::\n    \
                A=1 cargo test -p ua-cor --locked\n    cargo test --workspace --test e3e\n    \
                cargo test --workspace --test e2e -- --include-ignored fleet:: g7_an_agent_of g8_an_agent_of\n    cargo test --release\n}\n";
    let homes = homes();
    let found: Vec<_> =
        choices("x", text).into_iter().flat_map(|it| it.map_or_else(|e| vec![e], |it| vain(&it, &homes))).collect();
    let wanted = [
        ".ci/x:5: no test is chosen by truncate_tests::",
        ".ci/x:5: no test is chosen by rules::",
        ".ci/x:6: there is no package ua-cor",
        ".ci/x:7: there is no test e3e",
        ".ci/x:8: no test is chosen by g8_an_agent_of",
        ".ci/x:9: what is --release?",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn every_property_test_gets_new_seeds_at_night() {
    let night = script("nightly");
    let (_, lane) = night.split_once("\nstep_properties() {\n").unwrap();
    let (lane, _) = lane.split_once("unset PROPTEST_RNG_SEED").unwrap();
    let chosen: Vec<Choice> = choices("nightly", lane).into_iter().filter_map(Result::ok).collect();
    let chosen: Vec<Choice> = chosen.into_iter().filter(|choice| !choice.filters.is_empty()).collect();
    let (mut left, mut count) = (Vec::new(), 0);
    for (file, home) in homes() {
        let text = fs::read_to_string(workspace_root().join(file)).unwrap();
        if text.lines().any(|line| line.trim_start().starts_with("proptest! {")) {
            count += 1;
            if !chosen.iter().any(|choice| choice.meets(&home)) {
                left.push(file);
            }
        }
    }
    assert_eq!(left, [""; 0], "the lane `properties` of .ci/nightly does not play them");
    assert!(count > 7, "only {count} files were found");
}
