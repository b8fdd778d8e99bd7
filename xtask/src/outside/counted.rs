//! What is counted of a program: lines of code, and names of libraries.

use std::collections::BTreeSet;

/// What a reader of a program has to read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Lines that are neither blank nor comments; the shop is a file of its own and not among them.
    pub(crate) lines: usize,
    /// Names of libraries that are imported, or used out of a prelude. The standard library's are not counted.
    pub(crate) names: usize,
}

/// Names that the prelude of `ua-sdk` has.
const PRELUDE: [&str; 15] = [
    "JsonSchema",
    "Deserialize",
    "Serialize",
    "Anthropic",
    "OpenAi",
    "Servers",
    "Answer",
    "Call",
    "Error",
    "Failure",
    "Model",
    "Outcome",
    "Runs",
    "Step",
    "tool",
];

pub(crate) fn of_rust(text: &str) -> Counted {
    let code = text.lines().filter(|line| !is_blank_or(line, "//"));
    // What only this repository's lints ask for is no part of the program.
    let code: Vec<&str> = code.filter(|line| !line.starts_with("#![")).collect();
    let (imports, rest): (Vec<&str>, Vec<&str>) = code.iter().partition(|line| line.starts_with("use "));
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for import in imports.iter().filter(|line| !line.starts_with("use std::")) {
        names.extend(words(import).filter(|name| name.starts_with(char::is_uppercase)));
    }
    let used: BTreeSet<&str> = rest.iter().flat_map(|line| words(line)).collect();
    if imports.iter().any(|line| line.contains("ua_sdk::prelude::*")) {
        names.extend(PRELUDE.iter().filter(|name| used.contains(**name)));
    }
    let has_main = rest.iter().any(|line| line.contains("tokio::main"));
    Counted { lines: code.len(), names: names.len() + usize::from(has_main) }
}

pub(crate) fn of_python(text: &str) -> Counted {
    let code = text.lines().filter(|line| !is_blank_or(line, "#"));
    // What only an old SQLite of the system asks for is no part of the program.
    let code: Vec<&str> = code.filter(|line| !line.contains("pysqlite3") && *line != "import sys").collect();
    let imported = |line: &&str| {
        line.strip_prefix("from ")?.split_once(" import ").map(|(from, names)| (from.to_owned(), names.to_owned()))
    };
    let imports = code.iter().filter_map(imported).filter(|(from, _)| !["shop", "typing"].contains(&from.as_str()));
    let names: BTreeSet<String> =
        imports.flat_map(|(_, names)| names.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect();
    Counted { lines: code.len(), names: names.len() }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn is_blank_or(line: &str, comment: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with(comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_and_what_stands_around_it_is_not() {
        let rust = "//! A doc.\n#![expect(x)]\nuse std::fs;\nuse ua_sdk::prelude::*;\n\n// Says.\nlet a = Step::new(tool());\n#[tokio::main]\n";
        assert_eq!(of_rust(rust), Counted { lines: 4, names: 3 });
        let python = "import sys\nimport pysqlite3\nfrom dbos import DBOS, SetWorkflowID\nfrom shop import send\n# Says.\nsend()\n";
        assert_eq!(of_python(python), Counted { lines: 3, names: 2 });
    }

    #[test]
    fn the_prelude_is_the_one_that_there_is() {
        let library = std::fs::read_to_string(ua_testkit::workspace_root().join("crates/ua-sdk/src/lib.rs")).unwrap();
        let prelude = library.split_once("pub mod prelude {").unwrap().1.split_once("\n}").unwrap().0;
        for name in PRELUDE {
            assert!(prelude.contains(name), "{name}");
        }
    }
}
