//! Every `cargo` command that README and docs show is one that works on this workspace: packages, targets, features, filters of tests, fuzz
//! targets, and the tasks of this program with their flags. And every flag in a sentence is one that some program of ours takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use clap::{CommandFactory as _, Parser as _};
use serde_json::Value;
use ua_testkit::docs::{Page, Place, Sources, mentions, pages};
use ua_testkit::workspace_root;

use crate::Cli;

/// What `cargo metadata` says about one package of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// Its folder, from the root of the repository.
    pub(crate) folder: String,
    /// Kind and name of each target.
    pub(crate) targets: BTreeSet<(String, String)>,
    features: BTreeSet<String>,
}

pub(crate) fn packages() -> &'static BTreeMap<String, Package> {
    static PACKAGES: OnceLock<BTreeMap<String, Package>> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        let output =
            cargo.args(["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let root = workspace_root();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| {
                let manifest = text(&package["manifest_path"]);
                let folder = Path::new(&manifest).parent().unwrap().strip_prefix(&root).unwrap().display().to_string();
                let targets = package["targets"].as_array().unwrap();
                let targets = targets.iter().map(|target| (text(&target["kind"][0]), text(&target["name"]))).collect();
                let features = package["features"].as_object().unwrap().keys().cloned().collect();
                (text(&package["name"]), Package { folder, targets, features })
            })
            .collect()
    })
}

pub(crate) fn sources() -> &'static Sources {
    static SOURCES: OnceLock<Sources> = OnceLock::new();
    SOURCES.get_or_init(Sources::read)
}

/// Options of `cargo` that the pages use, and whether each takes a value.
const OPTIONS: [(&str, bool); 18] = [
    ("-p", true),
    ("--package", true),
    ("--example", true),
    ("--test", true),
    ("--bin", true),
    ("--features", true),
    ("--workspace", false),
    ("--locked", false),
    ("--lib", false),
    ("--bins", false),
    ("--tests", false),
    ("--doc", false),
    ("--release", false),
    ("--offline", false),
    ("--no-default-features", false),
    ("--no-deps", false),
    ("--no-run", false),
    ("--all-targets", false),
];

/// What is wrong with a command line of `cargo`.
fn problem(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('+')).collect();
    let why = match words.as_slice() {
        [_, "xtask", rest @ ..] => match Cli::try_parse_from(std::iter::once("xtask").chain(rest.iter().copied())) {
            Ok(cli) => (!cli.chooses_something()).then(|| "there is nothing called like that".to_owned())?,
            Err(error) => error.render().to_string().lines().next().unwrap_or_default().to_owned(),
        },
        [_, "fuzz", "run", target, ..] => {
            let file = workspace_root().join("fuzz/fuzz_targets").join(format!("{target}.rs"));
            (!file.exists()).then(|| format!("there is no fuzz target {target}"))?
        }
        [_, "deny", ..] => {
            (!workspace_root().join("deny.toml").exists()).then(|| "there is no deny.toml".to_owned())?
        }
        // A tool that security.md tells how to install; there is nothing of ours to look up.
        // The second makes a crate of the reader's own; `cargo xtask outside` does what follows.
        [_, "cyclonedx" | "new", ..] => return None,
        [_, "install", rest @ ..] => {
            let feature = rest.iter().skip_while(|word| **word != "--features").nth(1);
            let is_there = |name: &&str| packages().values().any(|package| package.features.contains(*name));
            if let Some(name) = feature.filter(|name| !is_there(name)) {
                return Some(format!("`{}`: there is no feature {name}", words.join(" ")));
            }
            let path = rest.iter().skip_while(|word| **word != "--path").nth(1)?;
            (!workspace_root().join(path).join("Cargo.toml").exists())
                .then(|| format!("there is no package at {path}"))?
        }
        [_, "uninstall", name] => (!packages().contains_key(*name)).then(|| format!("there is no package {name}"))?,
        [_, verb @ ("build" | "doc" | "run" | "test"), rest @ ..] => target_problem(verb, rest)?,
        _ => "no page uses such a command yet; say here what has to be true of it".to_owned(),
    };
    Some(format!("`{}`: {why}", words.join(" ")))
}

/// What is wrong with the packages, targets, features and filters of a command.
fn target_problem(verb: &str, words: &[&str]) -> Option<String> {
    let (mut asked, mut test, mut filters, mut wanted) = (Vec::new(), None, Vec::new(), Vec::new());
    let (before, behind) = words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let Some((option, takes_value)) = OPTIONS.iter().find(|(option, _)| option == word) else {
            if word.starts_with('-') {
                return Some(format!("what is {word}?"));
            }
            filters.push(*word);
            continue;
        };
        let value = if *takes_value { Some(*words.next()?) } else { None };
        match (*option, value) {
            ("-p" | "--package", Some(name)) => asked.push(name),
            ("--test", Some(name)) => {
                test = Some(name);
                wanted.push(("test", name));
            }
            ("--example", Some(name)) => wanted.push(("example", name)),
            ("--bin", Some(name)) => wanted.push(("bin", name)),
            ("--features", Some(name)) => wanted.push(("feature", name)),
            _ => {}
        }
    }
    if let Some(name) = asked.iter().find(|name| !packages().contains_key(**name)) {
        return Some(format!("there is no package {name}"));
    }
    let is_chosen = |name: &str| asked.is_empty() || asked.contains(&name);
    let chosen: Vec<&Package> =
        packages().iter().filter(|(name, _)| is_chosen(name)).map(|(_, package)| package).collect();
    for (kind, name) in &wanted {
        let has = |package: &&Package| match *kind {
            "feature" => package.features.contains(*name),
            kind => package.targets.contains(&(kind.to_owned(), (*name).to_owned())),
        };
        if !chosen.iter().any(has) {
            return Some(format!("there is no {kind} {name}"));
        }
    }
    let is_program = |package: &&Package| package.targets.iter().any(|(kind, _)| kind == "bin");
    if verb == "run" && wanted.is_empty() && !chosen.iter().any(is_program) {
        return Some("there is no program to run".to_owned());
    }
    if verb != "test" {
        return filters.first().map(|word| format!("what is {word}?"));
    }
    // The program of the tests takes filters as well.
    filters.extend(behind.iter().skip(1).filter(|word| !word.starts_with('-')));
    let names: Vec<String> = sources()
        .tests()
        .filter_map(|test| chosen.iter().find_map(|package| test.test_name(&package.folder)))
        .collect();
    let of_target = |name: &&String| test.is_none_or(|test| name.starts_with(&format!("{test}::")));
    filters
        .iter()
        .find(|filter| !names.iter().filter(of_target).any(|name| name.contains(**filter)))
        .map(|filter| format!("no test is chosen by {filter}"))
}

/// The commands of a page that are wrong, and how many there are.
fn commands(page: &Page) -> (Vec<String>, usize) {
    let mut all: Vec<(Place, Vec<String>)> = Vec::new();
    let of_scripts = page.commands().unwrap_or_else(|why| panic!("{why}"));
    let is_cargo = |words: &[String]| words.first().is_some_and(|word| word == "cargo");
    all.extend(of_scripts.into_iter().filter(|(_, it)| is_cargo(&it.words)).map(|(place, it)| (place, it.words)));
    for span in &page.spans {
        all.extend(mentions("cargo", &span.text).into_iter().map(|mention| (span.place.clone(), mention.words)));
    }
    let wrong = all.iter().filter_map(|(place, words)| Some(format!("{place}: {}", problem(words)?))).collect();
    (wrong, all.len())
}

#[test]
fn every_cargo_command_of_the_documentation_works_on_this_workspace() {
    let found: Vec<_> = pages().iter().map(commands).collect();
    let wrong: Vec<_> = found.iter().flat_map(|(wrong, _)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "no such command:\n{}", wrong.join("\n"));
    let count: usize = found.iter().map(|(_, count)| count).sum();
    assert!(count > 80, "only {count} commands were found: the pages are not read right");
}

#[test]
fn a_made_up_cargo_command_is_seen() {
    let page = "`cargo xtask crash-matrx`, `cargo xtask sim --seed 7`, `cargo test -p ua-core the_transition_table_is_exactly_this`\n\n```sh\n\
                cargo xtask sim --sed 7\ncargo test -p ua-cor\ncargo test -p ua-e2e --test e3e\ncargo test -p ua-e2e --test e2e resumed::\n\
                cargo test -p ua-core -p ua-e2e --test e2e -- --ignored resumed::\n\
                cargo run -p ua-runner --example granular_steps -- /tmp/x --die\ncargo build -p ua-cli --features crash-point\n\
                cargo +nightly fuzz run job_files\ncargo tset\ncargo run -p ua-core\n\
                cargo xtask acceptance --only mail-by-pigeon\ncargo uninstall ua-cil\n```\n";
    let (wrong, count) = commands(&Page::parse("docs/x.md", page));
    let wanted = [
        "docs/x.md:4: `cargo xtask sim --sed 7`: error: unexpected argument '--sed' found",
        "docs/x.md:5: `cargo test -p ua-cor`: there is no package ua-cor",
        "docs/x.md:6: `cargo test -p ua-e2e --test e3e`: there is no test e3e",
        "docs/x.md:7: `cargo test -p ua-e2e --test e2e resumed::`: no test is chosen by resumed::",
        "docs/x.md:8: `cargo test -p ua-core -p ua-e2e --test e2e -- --ignored resumed::`: no test is chosen by resumed::",
        "docs/x.md:9: `cargo run -p ua-runner --example granular_steps -- /tmp/x --die`: there is no example granular_steps",
        "docs/x.md:10: `cargo build -p ua-cli --features crash-point`: there is no feature crash-point",
        "docs/x.md:11: `cargo fuzz run job_files`: there is no fuzz target job_files",
        "docs/x.md:12: `cargo tset`: no page uses such a command yet; say here what has to be true of it",
        "docs/x.md:13: `cargo run -p ua-core`: there is no program to run",
        "docs/x.md:14: `cargo xtask acceptance --only mail-by-pigeon`: there is nothing called like that",
        "docs/x.md:15: `cargo uninstall ua-cil`: there is no package ua-cil",
        "docs/x.md:1: `cargo xtask crash-matrx`: error: unrecognized subcommand 'crash-matrx'",
    ];
    assert_eq!((wrong, count), (wanted.map(str::to_owned).to_vec(), 15));
}

// Flags.

/// Flags of programs of others that the pages name: of Claude Code.
const OF_OTHERS: [&str; 16] = [
    "--api-key",
    "--enable-auto-tool-choice",
    "--jinja",
    "--load",
    "--stop-timeout",
    "--tool-call-parser",
    "--fork-session",
    "--continue",
    "--from",
    "--import",
    "--setting-sources",
    "--spec",
    "--strict-mcp-config",
    "--token",
    "--tools",
    "--with",
];

/// The flags of this program and of everything below it.
fn flags(command: &clap::Command, found: &mut BTreeSet<String>) {
    found.extend(command.get_arguments().filter_map(clap::Arg::get_long).map(|flag| format!("--{flag}")));
    for inner in command.get_subcommands() {
        flags(inner, found);
    }
}

/// The words of a text that are flags.
fn flags_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase())))
}

/// All flags that may be named: of `ua`, as its help says them (a test of `ua-cli` keeps that text), of this program, of `cargo`.
fn known_flags() -> BTreeSet<String> {
    let help = "crates/ua-cli/src/snapshots/ua_cli__help_tests__help.snap";
    let help = fs::read_to_string(workspace_root().join(help)).unwrap();
    let mut known: BTreeSet<String> = flags_in(&help).map(str::to_owned).collect();
    flags(&Cli::command(), &mut known);
    known.extend(OPTIONS.iter().map(|(option, _)| (*option).to_owned()));
    known.extend(OF_OTHERS.map(str::to_owned));
    known
}

/// The flags in the sentences of a page that no program takes, and how many flags there are.
fn unknown_flags(page: &Page, known: &BTreeSet<String>) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for span in page.spans.iter().filter(|span| span.text.starts_with('-') || !span.text.contains(' ')) {
        for flag in flags_in(&span.text) {
            count += 1;
            // `--max-…` stands for several.
            let is_known = known.contains(flag) || (flag.ends_with('-') && known.iter().any(|it| it.starts_with(flag)));
            if !is_known {
                wrong.push(format!("{}: no program has the flag {flag}", span.place));
            }
        }
    }
    (wrong, count)
}

#[test]
fn every_flag_in_a_sentence_is_one_of_our_programs() {
    let known = known_flags();
    let found: Vec<_> = pages().iter().map(|page| unknown_flags(page, &known)).collect();
    let wrong: Vec<_> = found.iter().flat_map(|(wrong, _)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count: usize = found.iter().map(|(_, count)| count).sum();
    assert!(count > 120, "only {count} flags were found: the pages are not read right");
}

#[test]
fn a_made_up_flag_is_seen() {
    let page =
        Page::parse("docs/x.md", "`--quiet`, `--quite`, `--broken-rule RULE`, `--brocken-rule no-fence`, `a--b`\n");
    let (wrong, count) = unknown_flags(&page, &known_flags());
    let wanted = ["--quite", "--brocken-rule"].map(|flag| format!("docs/x.md:1: no program has the flag {flag}"));
    assert_eq!((wrong, count), (wanted.to_vec(), 4));
}

// Rules.

/// The names in the first column of the table of rules, in testing.md.
fn rules_of(page: &str) -> Vec<&str> {
    let behind = page.split_once("\n| rule | what is broken | what is seen |\n").map_or("", |(_, behind)| behind);
    let rows = behind.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect()
}

/// The flags `--broken-rule` of all tasks, each with the name of its task.
fn flags_that_break() -> Vec<(String, clap::Arg)> {
    let tasks = Cli::command();
    let of = |task: &clap::Command| {
        let flag = task.get_arguments().find(|flag| flag.get_long() == Some("broken-rule"))?.clone();
        Some((task.get_name().to_owned(), flag))
    };
    tasks.get_subcommands().filter_map(of).collect()
}

#[test]
fn every_rule_that_can_be_broken_is_in_the_page_that_the_help_names() {
    let page = fs::read_to_string(workspace_root().join("docs/testing.md")).unwrap();
    let told: BTreeSet<&str> = rules_of(&page).into_iter().collect();
    let known: BTreeSet<&str> = ua_testkit::BrokenRule::ALL.into_iter().map(ua_testkit::BrokenRule::name).collect();
    assert_eq!(told, known, "the table of rules in docs/testing.md");
    assert_eq!(rules_of(&page).len(), known.len(), "a rule is there twice");
    let mut elsewhere = Vec::new();
    for (task, flag) in flags_that_break() {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        if help.contains("docs/testing.md") {
            continue;
        }
        // It has rules of its own: the help has them, and the page has each with the flag.
        let of_its_own = flag.get_possible_values();
        let own: Vec<&str> = match of_its_own.as_slice() {
            [] => help.rsplit(": ").next().into_iter().flat_map(|list| list.split(", ")).collect(),
            values => values.iter().map(clap::builder::PossibleValue::get_name).collect(),
        };
        for rule in &own {
            assert!(page.contains(&format!("`--broken-rule {rule}`")), "docs/testing.md: `{task}` can break {rule}");
        }
        elsewhere.push((task, own.len()));
    }
    assert_eq!(elsewhere, [("acceptance".to_owned(), 3), ("power-cut".to_owned(), 1)]);
}

#[test]
fn a_rule_that_the_table_lacks_is_seen() {
    let table = "x\n\n| rule | what is broken | what is seen |\n|---|---|---|\n| `no-fence` | a `b` | c |\n| `of-old` | d | e |\n\n| `f` |\n";
    assert_eq!(rules_of(table), ["no-fence", "of-old"]);
    assert_eq!(rules_of("| rule |\n|---|\n| `no-fence` |\n"), [""; 0]);
}

/// Of `ua-sdk` the examples are built by another crate as well, whose lints are those of all: so its sources are read here.
#[test]
fn s5_the_library_opens_nothing_by_its_path_but_the_folder_that_a_program_named() {
    const BY_PATH: [&str; 9] = [
        "fs::read(",
        "fs::read_to_string(",
        "fs::write(",
        "fs::copy(",
        "fs::rename(",
        "fs::create_dir",
        "fs::remove_",
        "File::",
        "OpenOptions",
    ];
    let mut paths = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ua-sdk/src")];
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let code = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        // A file of our own by that name is read through `ua_files`.
        let by_path = code.filter(|line| BY_PATH.iter().any(|word| line.replace("LateFile::", "").contains(word)));
        found.extend(by_path.map(|line| format!("{name}: {line}")));
    }
    let named = "runs.rs: std::fs::create_dir_all(&path).map_err(|cause| Error::Folder { path: folder.to_path_buf(), cause })?;";
    assert_eq!(found, [named], "go through `ua_files` (docs/security.md, S5)");
}

/// Clippy reads the nearest configuration alone.
#[test]
fn crates_with_lints_of_their_own_keep_those_of_all() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read =
        |path: std::path::PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all = read(root.join("clippy.toml"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let files = [
        "std::fs::read",
        "std::fs::write",
        "std::fs::File::open",
        "std::fs::File::create",
        "std::fs::OpenOptions::new",
    ];
    let folders = ["std::fs::create_dir_all", "std::fs::DirBuilder::new"];
    let workspaces = ["ua_runner::Workspace::create", "ua_runner::Workspace::open", "ua_runner::ForkPlan::new"];
    for (name, wanted) in [
        ("ua-runner", [&files[..], &folders].concat()),
        ("ua-toolserver", files.to_vec()),
        ("ua-cli", [&files[..], &folders, &workspaces].concat()),
        ("ua-host", [&files[..], &folders, &workspaces].concat()),
        ("ua-mcp", [&files[..], &folders].concat()),
        ("ua-broker", [&files[..], &folders].concat()),
        ("ua-llm", [&files[..], &folders].concat()),
        ("ua-claude-code", [&files[..], &folders].concat()),
        ("ua-report", [&files[..], &folders].concat()),
    ] {
        let own = read(root.join("crates").join(name).join("clippy.toml"));
        let missing: Vec<_> = lines(&all).difference(&lines(&own)).cloned().collect();
        assert_eq!(missing, [""; 0], "{name}");
        for method in wanted {
            assert!(own.contains(&format!("\"{method}\"")), "{name} lets {method} be written");
        }
    }
}
