//! Whoever goes from one run to the next, up to those it is from or down to those that work for it, does so by a [`ua_store::Walk`]: rows that somebody
//! else wrote may lead in a circle, and a loop over them would have no end.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// What leads from a run to another one.
const STEPS: [&str; 6] =
    [".parent_run_id", ".task_call_id", "works_for(", "shares_with(", ".children(", "RunsOf::Children"];

/// The sources below a folder.
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The loops of a source, without its tests, each with the line that it begins in.
fn loops(source: &str) -> Vec<(usize, &str)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut at = 0;
    for (number, line) in source.split_inclusive('\n').enumerate() {
        let word = line.trim_start();
        if word.starts_with("while ") || word.starts_with("loop ") {
            found.push((number + 1, block(&source[at..])));
        }
        at += line.len();
    }
    found
}

/// What stands before the first brace, and up to the one that closes it.
fn block(source: &str) -> &str {
    let mut depth = 0_usize;
    for (at, letter) in source.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return &source[..=at],
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    source
}

fn walks_from_run_to_run(block: &str) -> bool {
    STEPS.iter().any(|step| block.contains(step))
}

#[test]
fn every_walk_from_run_to_run_meets_each_run_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        sources(&folder.unwrap().path().join("src"), &mut files);
    }
    sources(&root.join("xtask/src"), &mut files);
    let (mut walks, mut endless) = (0, Vec::new());
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        for (line, block) in loops(&source).into_iter().filter(|(_, block)| walks_from_run_to_run(block)) {
            walks += 1;
            if !block.contains("walk.") {
                endless.push(format!("{}:{line}", file.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(walks > 12, "only {walks} are found: what leads from run to run has other names by now");
    assert_eq!(endless, [""; 0], "go from run to run by a `ua_store::Walk`");
}

#[test]
fn a_walk_without_an_end_is_found() {
    let walks = |source: &str| {
        let mut all = loops(source).into_iter();
        all.any(|(_, block)| walks_from_run_to_run(block) && !block.contains("walk."))
    };
    let up = "fn f() {\n    while let Some(id) = next {\n        next = run(&id).parent_run_id;\n    }\n}\n";
    assert!(walks(up));
    assert!(walks("    loop {\n        if a { b }\n        left.extend(store.children(&id).await?);\n    }\n"));
    assert!(!walks(
        "    while let Some(above) = walk.up(works_for(&run))? {\n        run = store.run(&above);\n    }\n"
    ));
    assert!(!walks("    while a { b }\n    let above = run.parent_run_id;\n"));
    assert!(!walks(&format!("#[cfg(test)]\nmod tests {{\n{up}}}\n")));
}
