//! What lies in the folder that a server is started in, or above it, and is run in the place of what its command line names.
//!
//! `python3 -m mcp_server_git` reads like a module that is installed. Python looks for it, and for all that it imports, in the folder that it
//! works in first; `npx` runs what a `node_modules` on the way up has, and `uvx` asks the registry that a `uv.toml` there names. So where the
//! folder decides what a name means, the name vouches for nothing ([`crate::packs`]), and a server that the user configured for every folder is
//! not started in it unasked ([`crate::trust`]). A word that plainly means the folder (`./server`, `server.py`, `npm start`) is no name.
//! Proved by: this file's tests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::covered::{Covered, is_isolating};
use super::fetchers::{fetchers, on_the_way_up, says_where_python_is_from};
use super::kinds::has_ending;
use super::launchers::{Invocation, invocations, name_of};

/// Where a server is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    /// The folder.
    pub(crate) folder: &'a Path,
    /// Where programs without a folder are looked for (`PATH`).
    pub(crate) path: &'a str,
    /// The user's home. It and what is above it are the user's own.
    pub(crate) home: Option<&'a Path>,
}

/// The first thing that decides, in the folder of the start or above it, what a name in a command line means; `None` where the names mean the same
/// in every folder.
pub(crate) fn shadow(command: &str, args: &[String], start: Start<'_>) -> Option<PathBuf> {
    let of_fetchers = || fetchers(command, args).iter().find_map(|one| one.decided_by(start.folder, start.home));
    let of_interpreters = || {
        let way = on_the_way_up(start.folder, start.home);
        invocations(command, args, start.folder).iter().find_map(|one| of_interpreter(one, &way))
    };
    in_this_folder(command, start).or_else(of_fetchers).or_else(of_interpreters)
}

/// What decides which code `uv run --with PACKAGE COMMAND` runs besides the package: the project of the folder, and what is called like the command.
pub(crate) fn of_uv_run(command: &str, start: Start<'_>) -> Option<PathBuf> {
    let way = on_the_way_up(start.folder, start.home);
    let project = way.iter().map(|folder| folder.join("pyproject.toml")).find(|file| file.exists());
    let called_so = || Some(start.folder.join(command)).filter(|path| path.exists());
    project.or_else(|| way.iter().find_map(|folder| says_where_python_is_from(folder))).or_else(called_so)
}

/// A program that is found by a part of `PATH` that means the folder itself.
fn in_this_folder(command: &str, start: Start<'_>) -> Option<PathBuf> {
    let places = std::env::split_paths(start.path).filter(|_| !command.contains('/'));
    let mut found = places.map(|place| (place.is_relative(), start.folder.join(place).join(command)));
    let (is_here, program) = found.find(|(_, program)| program.is_file())?;
    is_here.then_some(program)
}

/// What an interpreter loads from the folder that it works in, `way`'s first one, or from one above, before what its words mean elsewhere.
fn of_interpreter(invocation: &Invocation, way: &[PathBuf]) -> Option<PathBuf> {
    let (folder, args) = (way.first()?, &invocation.args);
    let there = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    let plain = name_of(&invocation.command).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match plain {
        "python" | "pypy" => first_import(folder, looks_here(args)?),
        "node" | "nodejs" => loaded_first(args).find_map(|name| in_node_modules(way, name)),
        "bun" => there("bunfig.toml").or_else(|| loaded_first(args).find_map(|name| in_node_modules(way, name))),
        "lua" | "luajit" => first_of(folder, |path| has_ending(path, &["lua", "so"])),
        "R" | "Rscript" => there(".Rprofile").or_else(|| there(".Renviron")),
        _ => None,
    }
}

/// The module for which Python looks first in the folder that it works in; empty where it is told what to do by a text. `None` where it is told to
/// look elsewhere, or runs a script, whose own folder comes first.
fn looks_here(args: &[String]) -> Option<&str> {
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            // One of them takes a value.
            if word == "--check-hash-based-pycs" {
                words.next();
            }
            continue;
        }
        let letters = word.strip_prefix('-')?;
        if is_isolating(word) {
            return None;
        }
        let Some(at) = letters.find(['c', 'm', 'W', 'X']) else { continue };
        let (letter, rest) = (&letters[at..=at], &letters[at + 1..]);
        let value = if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
        match letter {
            "m" => return Some(value),
            "c" => return Some(""),
            _ => {}
        }
    }
    None
}

/// What Python may import from a folder. The module itself needs no file that says that it is one.
fn first_import(folder: &Path, module: &str) -> Option<PathBuf> {
    const ENDINGS: [&str; 4] = ["py", "pyc", "pyd", "so"];
    let module = module.split('.').next().unwrap_or_default();
    let is_name = |name: &str| {
        let stem = name.split('.').next().unwrap_or_default();
        !stem.is_empty() && stem.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let is_package = |path: &Path| {
        let has_beginning =
            |path: PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("__init__."));
        fs::read_dir(path).is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(|entry| has_beginning(entry.path()))))
    };
    first_of(folder, |path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        is_name(name) && if path.is_dir() { name == module || is_package(path) } else { has_ending(path, &ENDINGS) }
    })
}

/// The first entry of a folder, by name, of which that is so. One that is there and cannot be listed may have it.
fn first_of(folder: &Path, is_it: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return folder.exists().then(|| folder.to_path_buf()) };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_it(path)).collect();
    found.sort();
    found.into_iter().next()
}

impl Covered {
    /// The packages of the checkout that Node loads in front of its script.
    pub(super) fn loaded_by_name(&mut self, invocation: &Invocation, home: Option<&Path>) {
        if !matches!(name_of(&invocation.command), "node" | "nodejs" | "bun") {
            return;
        }
        let way = on_the_way_up(&invocation.base, home);
        for place in loaded_first(&invocation.args).filter_map(|name| in_node_modules(&way, name)) {
            if place.is_dir() {
                self.whole(&place);
            } else {
                self.name(&place);
            }
        }
    }
}

/// The packages that Node is told to load in front of its script, by options before it.
fn loaded_first(args: &[String]) -> impl Iterator<Item = &str> {
    const OPTIONS: [&str; 7] =
        ["--experimental-loader", "--import", "--loader", "--preload", "--require", "-r", "--test-reporter"];
    let values = args.iter().enumerate().filter_map(|(at, word)| match word.split_once('=') {
        Some((option, value)) => OPTIONS.contains(&option).then_some(value),
        None if at > 0 && OPTIONS.contains(&args[at - 1].as_str()) => Some(word.as_str()),
        None => word.strip_prefix("-r").filter(|rest| !rest.is_empty()),
    });
    values.filter(|name| !name.starts_with(['.', '/', '-']) && !name.contains(':') && !name.is_empty())
}

/// Where a package lies that Node finds by its name: in the folder that it works in, or above it.
fn in_node_modules(way: &[PathBuf], name: &str) -> Option<PathBuf> {
    let mut parts = name.split('/');
    let first = parts.next()?;
    let package = match parts.next() {
        Some(second) if first.starts_with('@') => format!("{first}/{second}"),
        _ => first.to_owned(),
    };
    let modules = way.iter().map(|folder| folder.join("node_modules"));
    let places = modules.flat_map(|modules| {
        ["", ".js", ".cjs", ".mjs", ".json", ".node"].map(|end| modules.join(format!("{package}{end}")))
    });
    places.into_iter().find(|place| fs::symlink_metadata(place).is_ok())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    /// What is found of `line` in the folder `checkout/sub` with these files below `checkout`.
    fn found(line: &str, files: &[&str], path: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let checkout = home.join("checkout");
        let folder = checkout.join("sub");
        fs::create_dir_all(&folder).unwrap();
        for file in files {
            let file = checkout.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (command, args) = (words.next().unwrap(), words.collect::<Vec<_>>());
        let start = Start { folder: &folder, path, home: Some(&home) };
        let found = shadow(&command, &args, start)?;
        Some(found.strip_prefix(&checkout).unwrap().display().to_string())
    }

    #[test]
    fn s13_what_the_folder_of_the_start_has_in_the_place_of_a_name_is_found() {
        for (line, file, shadow) in [
            ("python3 -m mcp_server_git", "sub/mcp_server_git.py", "sub/mcp_server_git.py"),
            ("python3 -m mcp_server_git", "sub/mcp_server_git/__main__.py", "sub/mcp_server_git"),
            ("python3 -m mcp_server_git", "sub/mcp_server_git.cpython-312-x86_64-linux-gnu.so", ""),
            // Whatever it imports first.
            ("python3 -m mcp_server_git", "sub/typing_extensions.py", "sub/typing_extensions.py"),
            ("python3.12 -um mcp_server_git", "sub/mcp/__init__.py", "sub/mcp"),
            ("python3 -X dev -mmcp_server_git", "sub/json.pyc", "sub/json.pyc"),
            ("env A=b python3 -m mcp_server_git", "sub/json.py", "sub/json.py"),
            ("python3 -c import+mcp_server_git", "sub/mcp_server_git.py", "sub/mcp_server_git.py"),
            ("npx -y tavily-mcp@0.2.1", "node_modules/tavily-mcp/index.js", "node_modules/tavily-mcp"),
            ("npx -y tavily-mcp@0.2.1", "sub/node_modules/.bin/tavily-mcp", "sub/node_modules/.bin/tavily-mcp"),
            ("npx -y tavily-mcp@0.2.1", ".npmrc", ".npmrc"),
            ("pnpm dlx tavily-mcp", "sub/.pnpmfile.cjs", "sub/.pnpmfile.cjs"),
            ("uvx mcp-server-git", "uv.toml", "uv.toml"),
            ("pipx run mcp-atlassian", "sub/mcp-atlassian", "sub/mcp-atlassian"),
            ("pipx run mcp-atlassian", "sub/__pypackages__/3.12/lib/bin/mcp-atlassian", "sub/__pypackages__"),
            ("node -r dotenv/config /opt/server.js", "node_modules/dotenv/config.js", "node_modules/dotenv"),
            ("node --import=@a/b/c /opt/server.js", "sub/node_modules/@a/b/c.js", "sub/node_modules/@a/b"),
            ("bun /opt/server.js", "sub/bunfig.toml", "sub/bunfig.toml"),
            ("lua /opt/server.lua", "sub/socket.lua", "sub/socket.lua"),
            ("Rscript /opt/server.R", "sub/.Rprofile", "sub/.Rprofile"),
        ] {
            let found = found(line, &[file, "README.md", "sub/data.json"], "/usr/bin");
            let shadow = if shadow.is_empty() { file } else { shadow };
            assert_eq!(found.as_deref(), Some(shadow), "{line}");
        }
        // Also a program, where a part of `PATH` means the folder.
        assert_eq!(
            found("github-mcp-server stdio", &["sub/github-mcp-server"], "/nowhere:").as_deref(),
            Some("sub/github-mcp-server")
        );
        assert_eq!(
            found("github-mcp-server stdio", &["sub/bin/github-mcp-server"], "bin").as_deref(),
            Some("sub/bin/github-mcp-server")
        );
        assert_eq!(found("github-mcp-server stdio", &["sub/github-mcp-server"], "/nowhere"), None);
    }

    #[test]
    fn what_means_the_same_in_every_folder_has_no_shadow() {
        for (line, files) in [
            ("python3 -m mcp_server_git", &["json.py", "sub/src/json.py", "sub/my-notes.py", "sub/text/a.md"][..]),
            ("python3 -P -m mcp_server_git", &["sub/mcp_server_git.py"]),
            ("python3 -Im mcp_server_git", &["sub/mcp_server_git.py"]),
            ("python3 /opt/server.py -m fast", &["sub/fast.py"]),
            (
                "npx -y tavily-mcp stdio",
                &["package.json", "sub/node_modules/other/index.js", "node_modules/stdio/index.js"],
            ),
            ("uvx mcp-server-git", &["pyproject.toml", ".python-version", "sub/mcp-server-git"]),
            ("pipx run mcp-atlassian", &["mcp-atlassian", "sub/uv.toml", "sub/run"]),
            ("node /opt/server.js", &["node_modules/a/index.js", "sub/server.js"]),
            ("docker run -i mcp/git", &["Dockerfile", "sub/mcp/git"]),
            ("/opt/bin/github-mcp-server stdio", &["sub/github-mcp-server"]),
        ] {
            assert_eq!(found(line, files, "/nowhere"), None, "{line}");
        }
    }

    #[test]
    fn the_users_home_has_no_shadow_and_a_version_that_is_a_path_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        fs::write(home.join("json.py"), "").unwrap();
        let args = ["-m", "mcp_server_git"].map(str::to_owned);
        let start = Start { folder: &home, path: "", home: Some(&home) };
        assert_eq!(shadow("python3", &args, start), None);
        let folder = home.join("a");
        fs::create_dir(&folder).unwrap();
        let start = Start { folder: &folder, ..start };
        for (version, is_one) in [("3.12\n", false), ("pypy@3.10", false), ("./evil\n", true)] {
            fs::write(folder.join(".python-version"), version).unwrap();
            assert_eq!(shadow("uvx", &["mcp-server-git".to_owned()], start).is_some(), is_one, "{version:?}");
        }
        fs::write(folder.join(".python-version"), "3.12").unwrap();
        fs::write(folder.join("pyproject.toml"), "[tool.uv]\nindex-url = \"https://evil.example\"\n").unwrap();
        assert_eq!(shadow("uvx", &["mcp-server-git".to_owned()], start), Some(folder.join("pyproject.toml")));
    }
}
