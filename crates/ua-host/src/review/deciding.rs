//! The files by which launchers decide what they run, and what that is made of.
//!
//! A `Makefile` has no ending and a `package.json` has that of data, and yet a change of either is a change of the program; and so is one of what
//! is compiled, in whatever language. So in the folder of a launcher's project everything counts by its content, also where only programs do, but
//! for what is plainly something that a program keeps ([`super::kept`]); and what is known to decide counts whatever it is called, with all that it
//! includes. What a launcher writes itself at its first start (its lock file) counts as little: it would have a person asked at the second.
//! Proved by: this file's tests, and those of `launch/known.rs`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::kept::is_kept;
use super::kinds::{has_ending, is_cache, is_map, open};
use super::named::{inside, pieces};

const NAMES: [&str; 52] = [
    ".bazelrc",
    ".bazelversion",
    ".condarc",
    ".envrc",
    ".foreman",
    ".justfile",
    ".lein-env",
    ".node-version",
    ".npmrc",
    ".nvmrc",
    ".python-version",
    ".ruby-version",
    ".tool-versions",
    ".yarnrc",
    "BUILD",
    "Brewfile",
    "Build.PL",
    "Earthfile",
    "GNUmakefile",
    "Gemfile",
    "Guardfile",
    "Justfile",
    "Makefile",
    "Makefile.PL",
    "Pipfile",
    "Rakefile",
    "SConscript",
    "SConstruct",
    "Snakefile",
    "Tiltfile",
    "Vagrantfile",
    "WORKSPACE",
    "composer.json",
    "configure",
    "devbox.json",
    "dune",
    "dune-project",
    "dune-workspace",
    "global.json",
    "go.mod",
    "go.work",
    "gradlew",
    "justfile",
    "lerna.json",
    "makefile",
    "mvnw",
    "nodemon.json",
    "nx.json",
    "project.json",
    "rakefile",
    "rush.json",
    "turbo.json",
];
/// Beginnings of names, behind which a kind of theirs may stand.
const BEGINNINGS: [&str; 8] =
    [".env", ".mise", "CMakeLists", "Containerfile", "Dockerfile", "Procfile", "constraints", "requirements"];
/// Endings of what builders and launchers are told by.
const ENDINGS: [&str; 26] = [
    "bazel",
    "build",
    "bzl",
    "cabal",
    "cfg",
    "cmake",
    "conf",
    "csproj",
    "edn",
    "env",
    "fsproj",
    "gemspec",
    "gyp",
    "gypi",
    "ini",
    "just",
    "mak",
    "ninja",
    "proj",
    "properties",
    "props",
    "sln",
    "targets",
    "xml",
    "yaml",
    "yml",
];
/// Words of a line by which such a file has another one read.
const INCLUDES: [&str; 20] = [
    "add_subdirectory",
    "build",
    "build_file",
    "dockerfile",
    "dotenv",
    "env_file",
    "extends",
    "file",
    "import",
    "include",
    "includes",
    "load",
    "mod",
    "module",
    "path",
    "relativePath",
    "sinclude",
    "source",
    "subdir",
    "subninja",
];
/// How many files that are included are followed.
const MAX_INCLUDED: usize = 200;
/// How much of one is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Whether a launcher decides by a file of this name, if it lies in the project.
fn is_of_launcher(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || has_ending(file, &ENDINGS)
        || is_map(file)
}

/// Of the `files` of launchers' `projects` those by which they decide or of which what they run is made, and all that these include, in whatever
/// place of the project. Of those that the words of a command line name as data (`is_worked_on`) only the names of launchers count.
pub(super) fn deciding(
    projects: &BTreeSet<PathBuf>,
    files: &BTreeSet<PathBuf>,
    is_worked_on: impl Fn(&Path) -> bool,
) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut rest: Vec<PathBuf> = Vec::new();
    for project in projects {
        let is_built = |file: &Path| file.ancestors().skip(1).take_while(|above| *above != project).any(is_cache);
        let counts = |file: &Path| is_of_launcher(file) || !(is_kept(project, file) || is_worked_on(file));
        let own = files.iter().filter(|file| file.starts_with(project) && counts(file) && !is_built(file));
        let own: Vec<PathBuf> = own.cloned().collect();
        // In what a program is made of, the words of an include are those of its language.
        let mut left: Vec<PathBuf> = own.iter().filter(|file| is_of_launcher(file)).cloned().collect();
        let mut included = 0;
        while let Some(file) = left.pop() {
            if !found.insert(file.clone()) || included >= MAX_INCLUDED {
                continue;
            }
            // What a file includes is looked for beside it, or from where the launcher works.
            let folders = [file.parent().unwrap_or(project), project];
            for word in included_by(&file) {
                let paths = folders.iter().filter_map(|folder| inside(folder, &word));
                let new = paths.filter(|path| path.is_file() && path.starts_with(project) && !found.contains(path));
                let new: Vec<PathBuf> = new.collect();
                included += new.len();
                left.extend(new);
            }
        }
        rest.extend(own);
    }
    found.extend(rest);
    found
}

/// The words of a file that may name what it includes: those of a line that says so, and of the list below it. Where a variable is in the line,
/// any word may be its value.
fn included_by(file: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    if open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = Vec::new();
    // How far a line is set in that has a list below it.
    let mut list: Option<usize> = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let is_item = list.is_some_and(|above| depth > above || (depth == above && line.trim_start().starts_with('-')));
        let says = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| INCLUDES.contains(&word));
        if says && line.contains('$') {
            lines = text.lines().collect();
            break;
        }
        if says || is_item {
            lines.push(line);
        }
        list = if is_item { list } else { says.then_some(depth) };
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | '"' | '\'');
    let words = lines.into_iter().flat_map(|line| line.split(ends)).filter(|word| !word.is_empty());
    words.flat_map(pieces).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_a_file_of_a_launcher_includes_counts_with_it() {
        for (name, text) in [
            ("Makefile", "A = 1\n-include conf other\nall:\n\techo\n"),
            ("Makefile", "MORE := conf\ninclude $(MORE)\n"),
            ("sub/rules.mak", "include conf\n"),
            ("compose.yml", "services:\n  a:\n    env_file:\n      - ./conf\n"),
            ("compose.yml", "include:\n- conf\n"),
            ("compose.yml", "services:\n  a:\n    extends: {file: \"conf\"}\n"),
            ("justfile", "import 'conf'\n"),
            ("Taskfile.yml", "includes:\n  other:\n    taskfile: conf\n"),
            ("CMakeLists.txt", "include(conf)\n"),
            ("pom.xml", "<modules><module>conf</module></modules>\n"),
            ("build.ninja", "subninja conf\n"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path();
            fs::create_dir(base.join("sub")).unwrap();
            fs::write(base.join(name), text).unwrap();
            for file in ["conf", "state", "effects.log"] {
                fs::write(base.join(file), "x").unwrap();
            }
            // By another file that it includes, too.
            fs::write(base.join("Procfile"), "# include one\n").unwrap();
            fs::write(base.join("one"), format!("include {name}\n")).unwrap();
            let files = BTreeSet::from(["Procfile", "state"].map(|file| base.join(file)));
            let found = deciding(&BTreeSet::from([base.to_path_buf()]), &files, |_| false);
            let wanted = ["Procfile", "one", name, "conf"].map(|file| base.join(file));
            assert_eq!(found, BTreeSet::from(wanted), "{name}: {text}");
        }
    }

    #[test]
    fn what_a_program_of_the_project_reads_is_not_included() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for (file, text) in [("a.rs", "mod x; // the file state\ninclude state\n"), ("state", "x")] {
            fs::write(base.join(file), text).unwrap();
        }
        let files = BTreeSet::from(["a.rs", "state"].map(|file| base.join(file)));
        let found = deciding(&BTreeSet::from([base.to_path_buf()]), &files, |_| false);
        assert_eq!(found, BTreeSet::from([base.join("a.rs")]));
    }
}
