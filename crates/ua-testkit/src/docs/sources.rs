//! The names that the source of this repository knows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;

/// Files whose words are not taken: the tests of the documentation and of the scripts, which make names up to show that they would see them.
const MADE_UP: [&str; 3] = ["tests/it/docs.rs", "/docs_tests.rs", "/ci_tests.rs"];

/// A function of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its file, from the root of the repository.
    pub file: String,
    /// Whether tests are run by it: it is a test, or a promise of the conformance suite, which each store has a test for.
    pub is_test: bool,
}

impl Function {
    /// The name by which `cargo test` may choose it, in the package at `folder`: its modules, as the folders and files tell them.
    pub fn test_name(&self, folder: &str) -> Option<String> {
        let below = self.file.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs")?;
        let modules = below.split('/').filter(|part| !["src", "tests", "main", "lib", "mod"].contains(part));
        Some(modules.chain([self.name.as_str()]).collect::<Vec<_>>().join("::"))
    }
}

/// What all Rust files say.
#[derive(Debug, Default)]
pub struct Sources {
    functions: BTreeMap<String, Vec<Function>>,
    files: BTreeSet<String>,
    /// The words of the program: of everything that is no test and no harness.
    program: HashSet<String>,
    /// The words of tests and harnesses.
    harness: HashSet<String>,
}

impl Sources {
    /// Reads the Rust files of this repository.
    ///
    /// # Panics
    ///
    /// When one cannot be read.
    pub fn read() -> Self {
        let root = crate::workspace_root();
        let mut sources = Self::default();
        for folder in ["crates", "tests", "xtask", "fuzz"] {
            let mut paths = Vec::new();
            super::collect(&root.join(folder), "rs", &mut paths)
                .unwrap_or_else(|error| panic!("cannot read {folder}: {error}"));
            for path in paths {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                sources.add(&path.strip_prefix(&root).unwrap_or(&path).display().to_string(), &text);
            }
        }
        sources
    }

    /// Adds a file.
    pub fn add(&mut self, file: &str, text: &str) {
        self.files.insert(file.to_owned());
        let is_made_up = MADE_UP.iter().any(|ending| file.ends_with(ending));
        let is_conformance = file.contains("/src/conformance");
        // The tests of a file stand at its end.
        let program_end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        let program_lines = if is_harness(file) { 0 } else { text[..program_end].lines().count() };
        // The lines since the last statement, where attributes stand.
        let mut before = String::new();
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.starts_with("//") {
                continue;
            }
            if !is_made_up {
                self.add_words(trimmed, number < program_lines);
            }
            if let Some(name) = function(trimmed) {
                let is_test = is_conformance || before.contains("test]") || before.contains("::test(");
                let function = Function { name: name.to_owned(), file: file.to_owned(), is_test };
                self.functions.entry(name.to_owned()).or_default().push(function);
            }
            if trimmed.ends_with([';', '{', '}']) || trimmed.is_empty() {
                before.clear();
            } else {
                before.push_str(trimmed);
            }
        }
    }

    /// Adds the words of a text that is no Rust: SQL of migrations, a policy that is shipped.
    pub fn add_words(&mut self, text: &str, is_program: bool) {
        let words = if is_program { &mut self.program } else { &mut self.harness };
        for word in words_of(text).filter(|word| word.len() > 1) {
            if !words.contains(word) {
                words.extend(in_snake_case(word));
                words.insert(word.to_owned());
            }
        }
        if text.contains("::") {
            let paths = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            for path in paths.filter(|path| path.contains("::")) {
                let parts: Vec<&str> = path.split("::").collect();
                words.extend(parts.windows(2).map(|pair| pair.join("::")));
            }
        }
    }

    /// Whether there is a test of this name.
    pub fn has_test(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|all| all.iter().any(|function| function.is_test))
    }

    /// Whether the program knows this word: a field, a variable of the environment, a type, a word that it prints. Two words joined by
    /// `::` are one, too.
    pub fn program_says(&self, word: &str) -> bool {
        self.program.contains(word)
    }

    /// Whether the program, a test or a harness knows this word.
    pub fn says(&self, word: &str) -> bool {
        self.program.contains(word) || self.harness.contains(word)
    }

    /// Every test.
    pub fn tests(&self) -> impl Iterator<Item = &Function> {
        self.functions.values().flatten().filter(|function| function.is_test)
    }

    /// The Rust files, from the root of the repository.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Whether a file of this path ends with `path`, from some folder on.
    pub fn has_file(&self, path: &str) -> bool {
        let is_it = |file: &String| file.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        self.files.iter().any(is_it)
    }
}

fn is_harness(file: &str) -> bool {
    let is_program = file.starts_with("crates/") && file.contains("/src/") && !file.starts_with("crates/ua-testkit/");
    !is_program || file.contains("/src/tests/") || file.ends_with("/tests.rs") || file.ends_with("_tests.rs")
}

/// The name of the function that a line begins, if it begins one.
fn function(line: &str) -> Option<&str> {
    let at = line.find("fn ").filter(|at| *at == 0 || line[..*at].ends_with(' '))?;
    let is_head =
        |word: &str| matches!(word, "pub" | "async" | "const" | "unsafe" | "extern") || word.starts_with("pub(");
    let is_heads = line[..at].split_whitespace().all(|word| is_head(word) || word.ends_with(')'));
    is_heads.then(|| words_of(&line[at + 3..]).next()).flatten()
}

/// A type or variant as it is written in JSON and in columns: `InOrder` is `in_order`.
fn in_snake_case(word: &str) -> Option<String> {
    let is_type = word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().any(|c| c.is_ascii_lowercase());
    let snake = || {
        let mut snake = String::new();
        for c in word.chars() {
            if c.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    };
    is_type.then(snake)
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_functions_and_the_program_from_its_tests() {
        let mut sources = Sources::default();
        sources.add(
            "crates/ua-x/src/a.rs",
            "// names: not_a_word\npub(crate) fn plain() {\n    let setting = \"UA_ONE\";\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    \
             fn it_holds_for_all() {\n    }\n    #[tokio::test(flavor = \"multi_thread\")]\n    async fn it_holds_later() {\n        \
             var(\"UA_TWO\");\n    }\n}\n",
        );
        sources.add("crates/ua-store/src/conformance/b.rs", "pub async fn a_promise_is_kept<S>() {\n}\n");
        assert!(sources.has_test("it_holds_for_all") && sources.has_test("it_holds_later"));
        assert!(sources.has_test("a_promise_is_kept") && !sources.has_test("plain"));
        assert!(sources.program_says("UA_ONE") && sources.says("UA_TWO"));
        assert!(!sources.program_says("UA_TWO") && !sources.says("not_a_word"));
        assert!(sources.has_file("conformance/b.rs") && !sources.has_file("formance/b.rs"));
        let names: Vec<_> = sources.tests().filter_map(|test| test.test_name("crates/ua-store")).collect();
        assert_eq!(names, ["conformance::b::a_promise_is_kept"]);
    }
}
