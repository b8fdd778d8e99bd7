//! Launchers that fetch a package: what of the folder that they work in, and of those above it, decides which code that is.
//!
//! `npx pkg@1.2.3` reads like one version of a registry's package. It is the one that is installed in a folder on the way up, if there is one,
//! and the registry is the one that a file there names, if one does. So these count; and since a file counts as soon as it is there, one that
//! a checkout brings later asks again. The user's home and what is above it are the user's own.
//! Proved by: `covered::tests`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::covered::Covered;
use super::kinds::open;
use super::launchers::{name_of, words_of};

/// A launcher among the words of a command line, and what it may fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fetcher {
    name: String,
    language: Language,
    /// Names of packages, without their versions.
    packages: Vec<String>,
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
        Some(Fetcher { name: name.to_owned(), language, packages })
    });
    found.collect()
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
fn on_the_way_up(base: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let base = base.canonicalize().unwrap_or_else(|_| base.to_path_buf());
    let home = home.and_then(|home| home.canonicalize().ok());
    let is_the_users = |folder: &&Path| home.as_ref().is_some_and(|home| home.starts_with(folder));
    base.ancestors().take_while(|folder| !is_the_users(folder)).map(Path::to_path_buf).collect()
}

impl Covered {
    /// What decides, in `base` and above it, which code a launcher fetches or finds.
    pub(super) fn fetched(&mut self, fetcher: &Fetcher, base: &Path, home: Option<&Path>) {
        let settings = match fetcher.language {
            Language::Node => &SETTINGS_OF_NODE[..],
            Language::Python => &SETTINGS_OF_PYTHON,
        };
        for folder in on_the_way_up(base, home) {
            for file in settings.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
                self.warn(format!("`{}` heeds {}, which may say where it fetches from", fetcher.name, file.display()));
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
            let bare = package.rsplit('/').next().unwrap_or(package);
            let (code, program) = (modules.join(package), modules.join(".bin").join(bare));
            if is_there(code.clone()) || is_there(program.clone()) {
                self.warn(format!(
                    "`{}` runs the `{package}` that is installed in {}, and not the registry's",
                    fetcher.name,
                    modules.display()
                ));
                self.name(&program);
                self.whole(&code);
                self.fetched_before(modules.clone());
            }
            // The package itself, or one of its workspaces.
            if names(&folder.join("package.json"), bare) {
                self.whole(folder);
            }
        }
    }
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
