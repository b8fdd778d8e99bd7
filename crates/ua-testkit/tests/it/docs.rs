//! Whatever README and docs name is there: links, files, tests, settings, and names of the source.
//!
//! Commands are checked where the programs are: by `ua-cli` (`docs_tests`) and `xtask` (`docs_tests`). Each check here is shown to see a
//! page that is wrong, and that it has something to look at.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ua_testkit::docs::{Page, Piece, Place, Row, Sources, changelog, pages};
use ua_testkit::workspace_root;

/// What a check found.
#[derive(Debug, Default)]
struct Found {
    /// How many things were looked up.
    checked: usize,
    /// Those that are not there, each with its place.
    wrong: Vec<String>,
}

impl Found {
    fn check(&mut self, place: &Place, what: &str, is_right: bool) {
        self.checked += 1;
        if !is_right {
            self.wrong.push(format!("{place}: {what}"));
        }
    }

    /// All of it was looked at, and nothing is wrong.
    #[track_caller]
    fn must_be_right(&self, at_least: usize) {
        assert!(self.wrong.is_empty(), "the documentation names what is not there:\n{}", self.wrong.join("\n"));
        assert!(self.checked >= at_least, "only {} were found: the pages are not read right", self.checked);
    }

    /// The check sees this page.
    #[track_caller]
    fn must_be_wrong(&self, wanted: &[&str]) {
        assert_eq!(self.wrong, wanted);
    }
}

fn all_pages() -> &'static [Page] {
    static PAGES: OnceLock<Vec<Page>> = OnceLock::new();
    PAGES.get_or_init(pages)
}

fn sources() -> &'static Sources {
    static SOURCES: OnceLock<Sources> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let mut sources = Sources::read();
        let root = workspace_root();
        // What is data and no Rust, and still is the program's: columns, shipped rules, facts about models.
        for file in files_below(&root.join("migrations")) {
            sources.add_words(&fs::read_to_string(file).unwrap(), true);
        }
        for file in
            files_below(&root.join("crates")).into_iter().filter(|file| file.extension().is_some_and(|it| it == "toml"))
        {
            sources.add_words(&fs::read_to_string(file).unwrap(), true);
        }
        // And scripts of the checks are harnesses.
        for file in [".ci", ".github"].iter().flat_map(|folder| files_below(&root.join(folder))) {
            sources.add_words(&fs::read_to_string(file).unwrap(), false);
        }
        sources
    })
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

// Links.

/// Links of `page` that lead to no file, or to no heading of one. Where other sites are is not looked up: tests use no network.
fn links(page: &Page, all: &BTreeMap<String, BTreeSet<String>>, found: &mut Found) {
    for Piece { place, text } in &page.links {
        if text.contains("://") || text.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = text.split_once('#').map_or((text.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { page.path.clone() } else { resolved(&page.path, path) };
        if !path.is_empty() {
            found.check(place, &format!("the link {text} leads nowhere"), workspace_root().join(&target).exists());
        }
        if let Some(anchor) = anchor {
            let is_there = all.get(&target).is_some_and(|anchors| anchors.contains(anchor));
            found.check(place, &format!("{target} has no heading #{anchor}"), is_there);
        }
    }
}

/// A path relative to a page, from the root of the repository.
fn resolved(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn anchors(pages: &[Page]) -> BTreeMap<String, BTreeSet<String>> {
    pages.iter().map(|page| (page.path.clone(), page.anchors.clone())).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut pages = all_pages().to_vec();
    pages.push(changelog());
    let anchors = anchors(&pages);
    let mut found = Found::default();
    for page in &pages {
        links(page, &anchors, &mut found);
    }
    found.must_be_right(250);
}

#[test]
fn a_dead_link_and_a_dead_anchor_are_seen() {
    let page = Page::parse(
        "docs/x.md",
        "# Here\n\n[a](testing.md) [b](nowhere.md) [c](#here)\n[d](#there) [e](testing.md#lanes-of-old)\n",
    );
    let mut all = all_pages().to_vec();
    all.push(page.clone());
    let mut found = Found::default();
    links(&page, &anchors(&all), &mut found);
    found.must_be_wrong(&[
        "docs/x.md:3: the link nowhere.md leads nowhere",
        "docs/x.md:4: docs/x.md has no heading #there",
        "docs/x.md:4: docs/testing.md has no heading #lanes-of-old",
    ]);
}

// Files.

/// The folders that paths of the repository begin with.
const FOLDERS: [&str; 10] =
    ["crates", "deploy", "docs", "xtask", "tests", "fixtures", "migrations", "fuzz", ".ci", ".github"];

/// Whether a word reads like a path in this repository: below one of its folders or one of its crates, or a Rust file.
fn is_path(word: &str) -> bool {
    let first = word.split('/').next().unwrap_or_default();
    let is_plain = word.chars().all(|c| c.is_alphanumeric() || "_-./*{},".contains(c));
    let is_below = word.contains('/') && (FOLDERS.contains(&first) || first.starts_with("ua-"));
    is_plain && (is_below || word.strip_suffix(".rs").is_some_and(|name| !name.is_empty()))
}

/// Every path that one with `{a,b}` stands for.
fn spelled_out(path: &str) -> Vec<String> {
    let braces =
        path.split_once('{').and_then(|(head, rest)| rest.split_once('}').map(|(inner, tail)| (head, inner, tail)));
    match braces {
        Some((head, inner, tail)) => inner.split(',').map(|part| format!("{head}{part}{tail}")).collect(),
        None => vec![path.to_owned()],
    }
}

fn exists(path: &str) -> bool {
    let root = workspace_root();
    let places = [root.join(path), root.join("crates").join(path)];
    match path.rsplit_once("/*") {
        Some((folder, ending)) => [root.join(folder), root.join("crates").join(folder)].iter().any(|folder| {
            let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.any(|entry| entry.file_name().to_string_lossy().ends_with(ending))
        }),
        None => places.iter().any(|place| place.exists()) || sources().has_file(path) || is_ignored(path),
    }
}

/// A file that a command makes, and that is not kept: the `.gitignore` beside it says so.
fn is_ignored(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let ignored = fs::read_to_string(workspace_root().join(folder).join(".gitignore"));
    ignored.is_ok_and(|ignored| ignored.lines().any(|line| line == name))
}

fn files(page: &Page, found: &mut Found) {
    let commands = page.commands().unwrap_or_default();
    let in_commands = commands.iter().flat_map(|(place, command)| command.words.iter().map(move |word| (place, word)));
    let in_sentences = page.spans.iter().flat_map(|span| span.text.split(' ').map(move |word| (&span.place, word)));
    for (place, word) in in_commands.map(|(place, word)| (place, word.as_str())).chain(in_sentences) {
        let word = word.trim_end_matches([',', ':', '/']);
        for path in spelled_out(word).iter().filter(|_| is_path(word)) {
            found.check(place, &format!("there is no file {path}"), exists(path));
        }
    }
}

#[test]
fn every_file_that_is_named_is_there() {
    let mut found = Found::default();
    for page in all_pages() {
        files(page, &mut found);
    }
    found.must_be_right(250);
}

#[test]
fn a_file_that_is_not_there_is_seen() {
    let text = "`ua-core/src/key.rs`, `key.rs`, `ua-core/src/{key,keys}.rs`, `crates/ua-cor/src`, `ua-cli/src/commands/*.rs`, \
                `fixtures/job.json`\n\n```sh\nua job fixtures/jobs/research.json\n```\n";
    let mut found = Found::default();
    files(&Page::parse("docs/x.md", text), &mut found);
    found.must_be_wrong(&[
        "docs/x.md:4: there is no file fixtures/jobs/research.json",
        "docs/x.md:1: there is no file ua-core/src/keys.rs",
        "docs/x.md:1: there is no file crates/ua-cor/src",
        "docs/x.md:1: there is no file fixtures/job.json",
    ]);
}

/// A page that is made up by a test.
fn is_example(file: &str) -> bool {
    file.starts_with("crates/ua-testkit/src/docs") || file.ends_with("/docs_tests.rs")
}

/// Whether a page, or a folder of pages, is called like that. A decision may be named by its number alone.
fn is_page(path: &str) -> bool {
    let whole = workspace_root().join(path);
    let number = path.strip_prefix("docs/adr/").filter(|number| number.len() == 4);
    let starts = |number: &str| {
        let mut entries =
            fs::read_dir(workspace_root().join("docs/adr")).unwrap().map(|entry| entry.unwrap().file_name());
        entries.any(|name| name.to_string_lossy().starts_with(&format!("{number}-")))
    };
    whole.exists() || number.is_some_and(starts)
}

#[test]
fn a_page_that_the_program_could_not_name_is_seen() {
    let known = ["docs/testing.md", "docs/adr/0018", "docs/adr/", "docs/guide/cli.md"].map(is_page);
    let unknown = ["docs/testing", "docs/adr/9999", "docs/guide/clj.md", "docs/guide/cli"].map(is_page);
    assert_eq!((known, unknown), ([true; 4], [false; 4]));
}

/// A hint of the program that sends a reader to a page.
#[test]
fn every_page_that_the_program_names_is_there() {
    let root = workspace_root();
    let mut found = Found::default();
    for file in sources().files().filter(|file| file.starts_with("crates/")) {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for at in line.match_indices("docs/").map(|(at, _)| at) {
                let path: String =
                    line[at..].chars().take_while(|c| c.is_alphanumeric() || "_-./".contains(*c)).collect();
                let path = path.trim_end_matches('.');
                // What is below another folder may be anything, unless it ends like a page.
                let is_below = line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/');
                let is_named = !is_below || path.strip_suffix(".md").is_some();
                if is_named && !file.contains("/tests/") && !is_example(file) {
                    let place = Place { page: file.to_owned(), line: number + 1 };
                    found.check(&place, &format!("there is no page {path}"), is_page(path));
                }
            }
        }
    }
    found.must_be_right(30);
}

// Names.

fn is_lower(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && !word.ends_with('_')
}

/// Fewer words than this make no sentence.
const MIN_WORDS: usize = 4;

/// Whether a word reads like the name of a test: lower-case words that make a sentence.
fn is_sentence(word: &str) -> bool {
    is_lower(word) && word.split('_').count() >= MIN_WORDS
}

/// Names that stand for those of a reader, or are those of others.
const OF_OTHERS: [&str; 10] = [
    "o200k_base", // tokenizers of OpenAI
    "cl100k_base",
    "p50k_base",
    "r50k_base",
    "parentbased_traceidratio", // a value that the OpenTelemetry SDK reads
    "compile_fail",             // a mark of rustdoc
    "next_page",                // a tool of some server
    "send_emai1",               // a tool that looks like another one
    "oom_score_adj",            // a file of /proc
    "send_request",             // a tool of some server
];

/// Names of the source in the code of a page's sentences: those with `_` or `::`, types, and the parts of names with dots between them.
/// A name of four words or more is a test, unless the program says it; all others are words of the program or of its tests.
fn names(page: &Page, found: &mut Found) {
    for span in &page.spans {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':');
        if !span.text.chars().all(is_name) || span.text.ends_with([':', '.', '_']) || is_path(&span.text) {
            continue;
        }
        let is_foreign_tool = span.text.starts_with("mcp__") && !span.text.starts_with("mcp__ua_");
        if is_foreign_tool || OF_OTHERS.contains(&span.text.as_str()) || is_cited(page, span) {
            continue;
        }
        let of_tool = span.text.strip_prefix("mcp__").unwrap_or(&span.text);
        let parts: Vec<&str> =
            of_tool.split([':', '.']).flat_map(|part| part.split("__")).filter(|part| !part.is_empty()).collect();
        if span.text.contains("::") {
            found.check(&span.place, &format!("there is no {}", span.text), has_path(&parts));
        } else {
            for part in parts.iter().filter(|part| is_known_kind(part)) {
                let is_there = sources().has_test(part)
                    || sources().program_says(part)
                    || (!is_sentence(part) && sources().says(part));
                found.check(&span.place, &format!("there is no `{part}`"), is_there);
            }
        }
    }
}

/// A name in the first column of the spec map: what the document that is mapped calls it.
fn is_cited(page: &Page, span: &Piece) -> bool {
    let is_row = |row: &&Row| row.place.line == span.place.line;
    page.path == "docs/spec-map.md"
        && page.rows.iter().find(is_row).is_some_and(|row| row.cells[0].code.contains(&span.text))
}

/// Names with two parts, and types of two words: what no word of a language looks like.
fn is_known_kind(part: &str) -> bool {
    let is_type = part.starts_with(|c: char| c.is_ascii_uppercase())
        && part.chars().filter(char::is_ascii_uppercase).count() > 1
        && part.chars().filter(char::is_ascii_lowercase).count() > 1
        && part.chars().all(|c| c.is_ascii_alphanumeric());
    (is_lower(part) && part.contains('_')) || is_type
}

/// A path of modules and names: below a crate, in the program's own words, or the beginning of names of tests.
fn has_path(parts: &[&str]) -> bool {
    let [first, .., last] = parts else { return false };
    if first.starts_with("ua_") {
        let has_crate = workspace_root().join("crates").join(first.replace('_', "-")).is_dir();
        return has_crate && sources().says(last);
    }
    let is_said = parts.windows(2).all(|pair| sources().program_says(&pair.join("::")));
    let is_member =
        first.starts_with(|c: char| c.is_ascii_uppercase()) && parts.iter().all(|part| sources().says(part));
    is_said
        || is_member
        || sources().tests().any(|test| is_filter(&parts.join("::"), test.test_name("tests")))
        || sources().tests().any(|test| {
            let package: Vec<&str> = test.file.splitn(3, '/').take(2).collect();
            is_filter(&parts.join("::"), test.test_name(&package.join("/")))
        })
}

fn is_filter(filter: &str, test: Option<String>) -> bool {
    test.is_some_and(|test| format!("::{test}").contains(&format!("::{filter}::")))
}

#[test]
fn every_name_of_a_test_or_of_the_source_is_there() {
    let mut found = Found::default();
    for page in all_pages() {
        names(page, &mut found);
    }
    found.must_be_right(1300);
}

#[test]
fn a_made_up_name_is_seen() {
    let text = "`the_transition_table_is_exactly_this` `the_transition_table_is_roughly_this` `max_tool_calls` `max_tool_cals` \
                `settings.blob_threshold_bytes` `settings.blob_threshold_bites` `RunMachine` `RunMashine` `CallStatus::on` \
                `crash_anywhere::approvals` `crash_anywhere::budgets` `ua_core::system` `ua_cor::system`\n";
    let mut found = Found::default();
    names(&Page::parse("docs/x.md", text), &mut found);
    found.must_be_wrong(&[
        "docs/x.md:1: there is no `the_transition_table_is_roughly_this`",
        "docs/x.md:1: there is no `max_tool_cals`",
        "docs/x.md:1: there is no `blob_threshold_bites`",
        "docs/x.md:1: there is no `RunMashine`",
        "docs/x.md:1: there is no crash_anywhere::budgets",
        "docs/x.md:1: there is no ua_cor::system",
    ]);
}

// Proofs.

/// Pages with a table whose last column names tests.
const PROOFS: [&str; 3] = ["docs/security.md", "docs/spec-map.md", "docs/faults.md"];

/// Names in the last column of a page's tables that are no tests.
fn proofs(page: &Page, found: &mut Found) {
    for row in &page.rows {
        for name in row.cells.last().into_iter().flat_map(|cell| &cell.code) {
            if is_lower(name) && name.contains('_') && !sources().program_says(name) {
                found.check(&row.place, &format!("there is no test `{name}`"), sources().has_test(name));
            }
        }
    }
}

#[test]
fn every_proof_is_a_test() {
    let mut found = Found::default();
    for page in all_pages().iter().filter(|page| PROOFS.contains(&page.path.as_str())) {
        proofs(page, &mut found);
    }
    found.must_be_right(350);
}

#[test]
fn a_proof_that_is_no_test_is_seen() {
    let text =
        "| section | test |\n|---|---|\n| 1 | `the_transition_table_is_exactly_this`, `idempotency_is_forced` |\n";
    let mut found = Found::default();
    proofs(&Page::parse("docs/spec-map.md", text), &mut found);
    found.must_be_wrong(&["docs/spec-map.md:3: there is no test `idempotency_is_forced`"]);
}

#[test]
fn the_security_page_names_a_test_for_every_threat() {
    let page = all_pages().iter().find(|page| page.path == "docs/security.md").unwrap();
    let is_threat = |text: &str| text.strip_prefix('S').is_some_and(|rest| rest.parse::<u32>().is_ok());
    let rows: Vec<_> = page.rows.iter().filter(|row| is_threat(&row.cells[0].text)).collect();
    let threats: Vec<&str> = rows.iter().map(|row| row.cells[0].text.as_str()).collect();
    assert_eq!(threats, (1..=23).map(|number| format!("S{number}")).collect::<Vec<_>>());
    for row in rows {
        let tests = &row.cells[3].code;
        assert!(!tests.is_empty(), "{}: {} has no test", row.place, row.cells[0].text);
        for test in tests {
            assert!(sources().has_test(test), "{}: there is no test `{test}`", row.place);
        }
    }
}

/// The tables that the migrations make.
fn tables() -> BTreeSet<String> {
    let scripts = files_below(&workspace_root().join("migrations"));
    let text: String = scripts.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let made = text.lines().filter_map(|line| line.strip_prefix("CREATE TABLE "));
    // A table that is made anew has another name until it takes the place of the old one.
    let is_kept = |name: &str| !text.contains(&format!("ALTER TABLE {name} RENAME TO"));
    made.filter_map(|rest| rest.split([' ', '(']).next()).filter(|name| is_kept(name)).map(str::to_owned).collect()
}

#[test]
fn the_database_page_has_a_line_for_each_table() {
    let page = all_pages().iter().find(|page| page.path == "docs/guide/database.md").unwrap();
    let listed: BTreeSet<String> = page.rows.iter().map(|row| row.cells[0].text.clone()).collect();
    assert_eq!(listed, tables());
}

/// The page says what they are called.
#[test]
fn every_crate_with_integration_tests_has_one_binary_of_them() {
    let page = fs::read_to_string(workspace_root().join("docs/testing.md")).unwrap();
    let mut count = 0;
    for krate in fs::read_dir(workspace_root().join("crates")).unwrap().map(Result::unwrap) {
        let Ok(binaries) = fs::read_dir(krate.path().join("tests")) else { continue };
        for binary in binaries.map(Result::unwrap) {
            let (krate, name) = (krate.file_name(), binary.file_name());
            let (krate, name) = (krate.to_string_lossy(), name.to_string_lossy());
            let main = fs::read_to_string(binary.path().join("main.rs")).unwrap();
            assert!(main.contains("\nmod one_binary;\n"), "{krate}: nothing sees that a file of `{name}` is never run");
            let is_told = name == "it" || page.contains(&format!("in `{krate}` `{name}`"));
            assert!(is_told, "docs/testing.md says that the binary of {krate} is called `it`");
            count += 1;
        }
    }
    assert!(count > 14, "only {count} binaries were found");
}

/// Whether the front page of a crate has an example that `cargo test` runs.
fn has_example(front: &str) -> bool {
    let fences = front.lines().filter_map(|line| line.strip_prefix("//! ```"));
    fences.step_by(2).any(|language| language.is_empty() || language == "rust")
}

#[test]
fn the_readme_names_the_crates_without_an_example_that_runs() {
    let readme = all_pages().iter().find(|page| page.path == "README.md").unwrap();
    let (_, list) = readme.text.split_once("has an example that runs, but for\nthose of ").unwrap();
    let told: BTreeSet<String> =
        list.split_once(":\n").unwrap().0.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let crates = workspace_root().join("crates");
    let names = fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let front = |name: &str| fs::read_to_string(crates.join(name).join("src/lib.rs")).unwrap();
    assert_eq!(told, names.filter(|name| !has_example(&front(name))).collect::<BTreeSet<_>>());
    assert!(!has_example("//! ```text\n//! a\n//! ```\n//!\n//! ```compile_fail\n//! b\n//! ```\n"));
    assert!(has_example("//! ```text\n//! a\n//! ```\n//!\n//! ```\n//! b\n//! ```\n"));
}

/// The names that a script of `.ci` runs when none is given.
fn steps_of(script: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(workspace_root().join(".ci").join(script)).unwrap();
    let (_, rest) = text.rsplit_once("\nrun_steps \"").unwrap();
    rest.split('"').next().unwrap().split(' ').map(str::to_owned).collect()
}

#[test]
fn every_step_and_every_lane_of_the_night_is_described_and_run() {
    let flow = fs::read_to_string(workspace_root().join(".github/workflows/ci.yml")).unwrap();
    let matrix = |key: &str| -> BTreeSet<String> {
        let list = flow.lines().find_map(|line| line.trim().strip_prefix(&format!("{key}: [")));
        list.unwrap().trim_end_matches(']').split(", ").map(str::to_owned).collect()
    };
    let page = all_pages().iter().find(|page| page.path == "docs/testing.md").unwrap();
    let described: BTreeSet<&str> = page.rows.iter().flat_map(|row| row.cells[0].text.split([',', ' ', '`'])).collect();
    // Each job of the workflow looks at the lock files before its step.
    let mut steps = steps_of("run");
    assert!(steps.remove("locks"));
    assert_eq!(matrix("step"), steps);
    assert_eq!(matrix("lane"), steps_of("nightly"));
    let untold = |name: &String| !described.contains(name.as_str());
    let untold: Vec<String> = steps_of("run").into_iter().chain(steps_of("nightly")).filter(untold).collect();
    assert!(untold.is_empty(), "docs/testing.md says nothing of {untold:?}");
    // The last commit alone knows neither how many there were nor what the library was before.
    let checkouts = flow.matches("- uses: actions/checkout@").count();
    let whole = "- uses: actions/checkout@v4\n        with:\n          fetch-depth: 0\n";
    assert_eq!((checkouts, flow.matches(whole).count()), (3, 3), "each job needs the whole history");
    for script in ["run", "nightly"] {
        let text = fs::read_to_string(workspace_root().join(".ci").join(script)).unwrap();
        let asks = text.lines().filter(|line| line.contains("git rev-list") || line.contains("git log ")).count();
        assert!(asks > 0 && text.contains("has_history; then"), ".ci/{script} says nothing of a history that is cut");
    }
}

// Settings.

/// Pages about testing, which may name what only tests and harnesses read.
const OF_TESTS: [&str; 2] = ["docs/architecture.md", "docs/testing.md"];

/// Variables that libraries read, and names that the examples of the guide choose.
const NOT_OURS: [&str; 15] = [
    "OTEL_TRACES_SAMPLER", // these are the OpenTelemetry SDK's
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "RUST_LOG",     // for a tool server of a reader
    "SEND_MAIL",    // a tool
    "CRM_PASSWORD", // secrets
    "CRM_AUTHORIZATION",
    "CRM_TOKEN",
    "CRM_CLIENT",
    "TRACKER_TOKEN",
    "OLLAMA_CONTEXT_LENGTH", // of another program
    "FORUM_TOKEN",
    "PR_SET_DUMPABLE", // of the kernel
];

/// Variables of the environment, and other names in capitals, that nothing reads.
fn settings(page: &Page, found: &mut Found) {
    let is_prefix_of = |word: &str| {
        let ends = word.match_indices('_').map(|(at, _)| at + 1);
        ends.skip(1).any(|end| end < word.len() && sources().program_says(&word[..end]))
    };
    for (number, line) in page.text.lines().enumerate() {
        let place = Place { page: page.path.clone(), line: number + 1 };
        for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let is_capitals = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            if !is_capitals
                || !word.starts_with(|c: char| c.is_ascii_uppercase())
                || !word.trim_end_matches('_').contains('_')
            {
                continue;
            }
            if NOT_OURS.contains(&word) {
                continue;
            }
            let of_tests = !word.starts_with("UA_") || OF_TESTS.contains(&page.path.as_str());
            let is_there = sources().program_says(word) || is_prefix_of(word) || (of_tests && sources().says(word));
            found.check(&place, &format!("nothing reads {word}"), is_there);
        }
    }
}

#[test]
fn every_setting_is_one_that_something_reads() {
    let mut found = Found::default();
    for page in all_pages() {
        settings(page, &mut found);
    }
    found.must_be_right(200);
}

#[test]
fn a_made_up_setting_is_seen() {
    let text = "Set `UA_MODEL_TIMEOUT`, not `UA_MODEL_TIMEOUTS`; `UA_SECRET_FORUM` is a secret.\n\n```sh\nUA_LOGS=info ua doctor\n\
                export OPENAI_BASE_URI=http://127.0.0.1 UA_SEED=1\n```\n";
    let mut found = Found::default();
    settings(&Page::parse("docs/x.md", text), &mut found);
    found.must_be_wrong(&[
        "docs/x.md:1: nothing reads UA_MODEL_TIMEOUTS",
        "docs/x.md:4: nothing reads UA_LOGS",
        "docs/x.md:5: nothing reads OPENAI_BASE_URI",
        "docs/x.md:5: nothing reads UA_SEED",
    ]);
}
