//! What has a name in the file system is shown to people by `ua_core::ShowPath`, which keeps it on one line: whoever makes a folder chooses its name,
//! and `display` would write a line of its own for a name with a line feed in it. What programs read has the name as it is (`to_string_lossy`).
//! Crates that use nothing of ours have an escape of their own.

use std::fs;

use ua_testkit::workspace_root;

use crate::printed_commands::{arguments, literals};
use crate::walks::sources;

/// What stands in a sentence or on a page when it is on a line with one of these.
const SENTENCES: [&str; 8] =
    ["HostError::", "tell(", "print(", "print_exactly(", "say(", "findings.", "#[error(", "refused("];

/// A source without its tests.
fn without_tests(source: &str) -> &str {
    let at = source.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(|at| {
        let mut behind = source[*at..].lines().skip(1).skip_while(|line| line.starts_with("#["));
        behind.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    &source[..at.unwrap_or(source.len())]
}

/// The lines of a source on which a name is shown as whoever made the file wrote it.
fn as_it_is(source: &str) -> Vec<(usize, &str)> {
    let is_wrong = |line: &str| {
        let says = SENTENCES.iter().any(|sentence| line.contains(sentence));
        line.contains(".display()") || (says && line.contains(".to_string_lossy()"))
    };
    let lines = without_tests(source).lines().enumerate();
    lines.filter(|(_, line)| !line.trim_start().starts_with("//") && is_wrong(line)).collect()
}

/// The lines of formats that a row's name of a folder is filled into as it is: a path that was stored is text.
fn stored_as_it_is(source: &str) -> Vec<usize> {
    let is_wrong = |argument: &String| argument.contains("workspace_dir") && !argument.contains(".shown()");
    let formats = literals(source).into_iter().filter(|(_, text, _)| text.contains('{'));
    formats.filter(|(_, _, behind)| arguments(behind).iter().any(is_wrong)).map(|(line, ..)| line).collect()
}

#[test]
fn s16_no_name_of_a_file_is_shown_as_it_is() {
    let root = workspace_root().join("crates");
    let mut files = Vec::new();
    for folder in fs::read_dir(&root).unwrap() {
        sources(&folder.unwrap().path().join("src"), &mut files);
    }
    let (mut wrong, mut shown) = (Vec::new(), 0);
    for file in files {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        if name.starts_with("ua-testkit/") || name.contains("tests") {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        if ["ua-cli/", "ua-host/"].iter().any(|said| name.starts_with(said)) {
            wrong.extend(stored_as_it_is(&source).iter().map(|line| format!("{name}:{line}: a stored path")));
        }
        shown += source.matches(".shown()").count();
        wrong.extend(as_it_is(&source).iter().map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
    }
    assert!(shown > 300, "only {shown} names are shown: they are shown in another way by now");
    assert_eq!(wrong, [""; 0], "for people it is `.shown()` of `ua_core::ShowPath`, for programs `.to_string_lossy()`");
}

#[test]
fn what_is_shown_as_it_is_is_found() {
    for line in [
        "tell(format!(\"note: {}\", root.display()));",
        "    let shown = path.display();",
        "return Err(HostError::usage(format!(\"no {}\", path.to_string_lossy())));",
        "#[cfg(test)]\nuse x;\nfn f() { x.display() }",
    ] {
        assert_eq!(as_it_is(line).len(), 1, "{line}");
    }
    assert_eq!(stored_as_it_is("tell(format!(\"{} {}\", short(id), run.workspace_dir));"), [1]);
    assert_eq!(stored_as_it_is("tell(format!(\"{}\", Path::new(&run.workspace_dir).shown()));"), [0; 0]);
    for line in [
        "let flag = path.to_string_lossy().into_owned();",
        "tell(format!(\"note: {}\", root.shown()));",
        "// path.display()",
        "#[cfg(test)]\n#[expect(x)]\nmod tests {\n  a.display();",
    ] {
        assert_eq!(as_it_is(line), [], "{line}");
    }
}
