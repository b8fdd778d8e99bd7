//! Launchers that fetch a package: what of the folder that they work in, and of those above it, decides which code that is.
//!
//! `npx pkg@1.2.3` reads like one version of a registry's package. It is the one that is installed in a folder on the way up, if there is one,
//! and the registry is the one that a file there names, if one does. So these count; and since a file counts as soon as it is there, one that
//! a checkout brings later asks again. The user's home and what is above it are the user's own.
//! Proved by: `covered::tests`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::covered::Covered;
use super::kinds::open;
use super::launchers::{name_of, words_of};
use ua_core::ShowPath as _;

/// A launcher among the words of a command line, and what it may fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fetcher {
    name: String,
    language: Language,
    /// Names of packages, without their versions: whatever may be one.
    packages: Vec<String>,
    /// Those of them that it is told to run, and not what stands behind.
    runs: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Node,
    Python,
}

/// Files that say where packages are fetched from, or what else is run then.
const SETTINGS_OF_NODE: [&str; 9] = [
    ".npmrc",
    ".pnpmfile.cjs",
    ".yarnrc",
    ".yarnrc.yml",
    "bunfig.toml",
    "deno.json",
    "deno.jsonc",
    "package.json",
    "pnpm-workspace.yaml",
];
const SETTINGS_OF_PYTHON: [&str; 5] = [".python-version", ".python-versions", "pyproject.toml", "uv.lock", "uv.toml"];
/// Programs of the folder that `pipx run` runs before it fetches one.
const PACKAGES_OF_PIPX: &str = "__pypackages__";

/// As much of a `package.json` is looked through for the name of a package.
const LOOKED_THROUGH: u64 = 1024 * 1024;

/// The launchers in a command line that fetch packages, behind whatever other programs they stand, and in texts for shells.
pub(super) fn fetchers(command: &str, args: &[String]) -> Vec<Fetcher> {
    let words: Vec<String> =
        std::iter::once(command.to_owned()).chain(args.iter().flat_map(|arg| words_of(arg))).collect();
    let found = words.iter().enumerate().filter_map(|(at, word)| {
        let (name, behind) = (name_of(word.rsplit('=').next().unwrap_or_default()), &words[at + 1..]);
        let has = |verbs: &[&str]| behind.iter().any(|word| verbs.contains(&word.as_str()));
        let language = match name {
            "npx" | "bunx" | "pnpx" => Language::Node,
            "npm" | "pnpm" | "yarn" | "bun" if has(&["exec", "x", "dlx", "create", "init"]) => Language::Node,
            "deno" if behind.iter().any(|word| word.contains("npm:")) => Language::Node,
            "uvx" | "pipx" => Language::Python,
            "uv" if has(&["tool", "x"]) => Language::Python,
            _ => return None,
        };
        let mut packages: Vec<String> = behind.iter().filter_map(|word| package_of(word)).collect();
        packages.dedup();
        Some(Fetcher { name: name.to_owned(), language, packages, runs: run_by(behind) })
    });
    found.collect()
}

/// The packages that a launcher is told to run by the words behind its name: those of its options, and the first word that is none of its own.
fn run_by(words: &[String]) -> Vec<String> {
    const OWN: [&str; 8] = ["create", "dlx", "exec", "init", "run", "tool", "x", "--"];
    const NAME_ONE: [&str; 6] = ["--from", "--package", "--spec", "--with", "-p", "-w"];
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_named = at > 0 && NAME_ONE.contains(&words[at - 1].as_str());
        if !is_named && OWN.contains(&word.as_str()) {
            continue;
        }
        found.extend(package_of(word));
        if !is_named && !word.starts_with('-') {
            break;
        }
    }
    found
}

/// The name of the package that a word may be, without its version: `@scope/pkg@1.2.3`, `--package=pkg`, `npm:pkg@1`.
fn package_of(word: &str) -> Option<String> {
    let word = word.split_once('=').filter(|(option, _)| option.starts_with('-')).map_or(word, |(_, value)| value);
    let word = word.strip_prefix("npm:").unwrap_or(word).trim_start_matches('/');
    // The first sign may say that it has a scope.
    let end =
        word.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '[' | '<' | '>' | '~')).map(|(at, _)| at);
    let name = &word[..end.unwrap_or(word.len())];
    let (scope, bare) = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').map(|(scope, bare)| (Some(scope), bare))?,
        None => (None, name),
    };
    let is_plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~'))
    };
    (is_plain(bare) && scope.is_none_or(is_plain)).then(|| name.to_owned())
}

/// The folder that a program works in and those above it, up to the user's home and without it.
pub(super) fn on_the_way_up(base: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let base = base.canonicalize().unwrap_or_else(|_| base.to_path_buf());
    let home = home.and_then(|home| home.canonicalize().ok());
    let is_the_users = |folder: &&Path| home.as_ref().is_some_and(|home| home.starts_with(folder));
    base.ancestors().take_while(|folder| !is_the_users(folder)).map(Path::to_path_buf).collect()
}

/// What says, in a folder, where the packages of Python's launchers are fetched from or which Python runs them. `uvx` heeds no project.
pub(super) fn says_where_python_is_from(folder: &Path) -> Option<PathBuf> {
    let settings = Some(folder.join("uv.toml")).filter(|file| file.is_file());
    let project = || Some(folder.join("pyproject.toml")).filter(|file| names(file, "tool.uv"));
    // A version, or the path of a program.
    let is_path = |file: &PathBuf| file.is_file() && (names(file, "/") || names(file, "\\"));
    let version = || [".python-version", ".python-versions"].map(|name| folder.join(name)).into_iter().find(is_path);
    settings.or_else(project).or_else(version)
}

impl Fetcher {
    /// What decides, in `base` or above it, that another code than that of the user's registry is run under the name of a package.
    pub(super) fn decided_by(&self, base: &Path, home: Option<&Path>) -> Option<PathBuf> {
        let way = on_the_way_up(base, home);
        let is_there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
        match self.language {
            // It runs a file of that name, and fetches nothing.
            Language::Python if self.name == "pipx" => {
                let folder = way.first()?;
                let named = self.runs.iter().map(String::as_str).chain([PACKAGES_OF_PIPX]);
                named.map(|name| folder.join(name)).find(is_there)
            }
            Language::Python => way.iter().find_map(|folder| says_where_python_is_from(folder)),
            Language::Node => way.iter().find_map(|folder| {
                let project = folder.join("package.json");
                let settings = SETTINGS_OF_NODE.iter().map(|name| folder.join(name)).filter(|file| *file != project);
                let installed = self.runs.iter().flat_map(|package| places_in(folder, package));
                let is_project = || self.runs.iter().any(|package| names(&project, package));
                settings.chain(installed).find(is_there).or_else(|| is_project().then_some(project.clone()))
            }),
        }
    }
}

/// A package without its scope.
fn bare_name(package: &str) -> &str {
    package.rsplit('/').next().unwrap_or(package)
}

/// Where a package of Node is installed in a folder: its code, and its program.
fn places_in(folder: &Path, package: &str) -> [PathBuf; 2] {
    let modules = folder.join("node_modules");
    [modules.join(package), modules.join(".bin").join(bare_name(package))]
}

impl Covered {
    /// What decides, in `base` and above it, which code a launcher fetches or finds.
    pub(super) fn fetched(&mut self, fetcher: &Fetcher, base: &Path, home: Option<&Path>) {
        let settings = match fetcher.language {
            Language::Node => &SETTINGS_OF_NODE[..],
            Language::Python => &SETTINGS_OF_PYTHON,
        };
        if fetcher.name == "pipx" {
            self.whole(&base.join(PACKAGES_OF_PIPX));
        }
        for folder in on_the_way_up(base, home) {
            for file in settings.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
                self.warn(format!("`{}` heeds {}, which may say where it fetches from", fetcher.name, file.shown()));
                self.file(&file);
            }
            if fetcher.language == Language::Node {
                self.installed_in(&folder, fetcher);
            }
        }
    }

    /// The packages of a launcher that a folder of a checkout has itself.
    fn installed_in(&mut self, folder: &Path, fetcher: &Fetcher) {
        let modules = folder.join("node_modules");
        let is_there = |path: PathBuf| fs::symlink_metadata(path).is_ok();
        for package in &fetcher.packages {
            let [code, program] = places_in(folder, package);
            if is_there(code.clone()) || is_there(program.clone()) {
                self.warn(format!(
                    "`{}` runs the `{package}` that is installed in {}, and not the registry's",
                    fetcher.name,
                    modules.shown()
                ));
                self.name(&program);
                self.whole(&code);
                self.fetched_before(modules.clone());
            }
            self.of_the_project(folder, package);
        }
    }
}

impl Covered {
    /// What of a folder with a `package.json` may be the package itself: all of it, where the project is that package, has a program of that name or
    /// may have it among its workspaces. A project that merely depends on the package has it in its `node_modules`, and nothing else that lies there
    /// is run: a person who adds a file to it is asked nothing.
    fn of_the_project(&mut self, folder: &Path, package: &str) {
        let file = folder.join("package.json");
        let bare = bare_name(package);
        if !names(&file, bare) {
            return;
        }
        let Some(project) = project_of(&file) else { return self.whole(folder) };
        let is_itself = project["name"].as_str().is_some_and(|name| bare_name(name) == bare);
        let has_program = project["bin"].get(bare).is_some() || project["directories"].get("bin").is_some();
        let has_workspaces =
            project.get("workspaces").is_some() || fs::symlink_metadata(folder.join("pnpm-workspace.yaml")).is_ok();
        if is_itself || has_program || has_workspaces {
            return self.whole(folder);
        }
        for kind in ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"] {
            let from = project[kind].get(package).and_then(Value::as_str).unwrap_or_default();
            // It need not be installed yet.
            let place = ["file:", "link:", "portal:"].iter().find_map(|scheme| from.strip_prefix(scheme));
            if let Some(place) = place {
                self.whole(&folder.join(place));
            }
        }
    }
}

/// What a `package.json` says; `None` where it is none that could be read.
fn project_of(file: &Path) -> Option<Value> {
    let mut text = Vec::new();
    open(file).ok()?.take(LOOKED_THROUGH).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok().filter(Value::is_object)
}

/// Whether a file has a word in it. One that is there and cannot be read may have it.
fn names(file: &Path, word: &str) -> bool {
    let mut text = Vec::new();
    match open(file) {
        Ok(opened) => {
            opened.take(LOOKED_THROUGH).read_to_end(&mut text).is_err()
                || text.windows(word.len().max(1)).any(|part| part == word.as_bytes())
        }
        Err(_) => file.is_file(),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_under_whichever_version_and_option() {
        for (word, package) in [
            ("pkg", Some("pkg")),
            ("pkg@1.2.3", Some("pkg")),
            ("@scope/pkg@^1", Some("@scope/pkg")),
            ("@scope/pkg", Some("@scope/pkg")),
            ("--package=pkg@1", Some("pkg")),
            ("--from=pkg[extra]==1.0", Some("pkg")),
            ("npm:pkg@1.2.3/bin", Some("pkg")),
            ("npm:/@a/b@1", Some("@a/b")),
            ("-y", None),
            ("--yes", None),
            ("./here", None),
            ("/there/x", None),
            ("@scope", None),
            ("", None),
        ] {
            assert_eq!(package_of(word).as_deref(), package, "{word}");
        }
    }

    #[test]
    fn a_launcher_is_found_behind_whatever_it_stands() {
        let of = |line: &str| {
            let mut words = line.split(' ').map(|word| word.replace('~', " "));
            let (command, args) = (words.next().unwrap(), words.collect::<Vec<_>>());
            fetchers(&command, &args)
                .into_iter()
                .map(|one| format!("{} {}", one.name, one.packages.join(",")))
                .collect::<Vec<_>>()
        };
        for line in [
            "npx -y pkg@1.0.0",
            "env A=b /usr/bin/npx --package=pkg@1",
            "sh -c cd~x&&npx~pkg@1",
            "nobody-knows --this npx pkg",
            "npx.cmd -y pkg@1.0.0",
        ] {
            assert_eq!(of(line), ["npx pkg"], "{line}");
        }
        for line in
            ["uv tool run pkg==1", "uvx pkg==1", "python3 -m pipx run pkg", "npm exec pkg", "deno run npm:pkg@1"]
        {
            assert!(of(line).last().is_some_and(|found| found.contains("pkg")), "{line}");
        }
        for line in ["python3 -m server", "uv run server.py", "npm run start", "node server.js", "deno run s.ts"] {
            assert_eq!(of(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn what_a_launcher_is_told_to_run_is_told_from_what_it_is_given() {
        for (line, runs) in [
            ("npx -y pkg@1.0.0 stdio other", &["pkg"][..]),
            ("npx --package=@a/b@1 -y b serve", &["@a/b", "b"]),
            ("npm exec -p pkg -- pkg run", &["pkg", "pkg"]),
            ("bun x pkg", &["pkg"]),
            ("pipx run --spec a==1 a-serve more", &["a", "a-serve"]),
            ("uv tool run pkg run", &["pkg"]),
        ] {
            let mut words = line.split(' ').map(str::to_owned);
            let (command, args) = (words.next().unwrap(), words.collect::<Vec<_>>());
            assert_eq!(fetchers(&command, &args)[0].runs, runs, "{line}");
        }
    }

    #[test]
    fn the_way_up_ends_at_the_users_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let base = home.join("projects/a/b");
        fs::create_dir_all(&base).unwrap();
        let way = on_the_way_up(&base, Some(&home));
        assert_eq!(way, [base.clone(), home.join("projects/a"), home.join("projects")]);
        assert_eq!(on_the_way_up(&home, Some(&home)), Vec::<PathBuf>::new());
        assert_eq!(on_the_way_up(&base, None).last().unwrap(), Path::new("/"));
    }
}
