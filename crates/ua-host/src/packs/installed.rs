//! Which package a program belongs to that is installed already: `…/node_modules/.bin/tavily-mcp`, a script of a virtual environment, a global
//! install that is found in `PATH`.
//!
//! What is beside the program says so, as whoever installed it left it. That is believed as far as the program itself is: whoever may write the one
//! may write the other, and a person named the program.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// The most that is read of a file that says what a package is.
const MOST: u64 = 256 * 1024;
/// So many packages of a virtual environment are looked through.
const PACKAGES: usize = 5_000;

/// The package of a program, as a pack names it (`npm:NAME`, `pypi:NAME`); `None` where nothing beside it says.
pub(super) fn package_of(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    of_node(&real).or_else(|| of_python(&real))
}

/// The program that a name without a folder means, with this `PATH`.
pub(super) fn in_path(name: &str, path: &str) -> Option<PathBuf> {
    let places = std::env::split_paths(path).filter(|place| place.is_absolute());
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

/// What lies in `node_modules` is the package whose folder it is in, if the package says the same: one may be installed under another's name.
fn of_node(real: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Package {
        name: String,
    }
    let parts: Vec<Component<'_>> = real.components().collect();
    let at = parts.iter().rposition(|part| part.as_os_str() == "node_modules")?;
    let first = parts.get(at + 1)?.as_os_str().to_str()?;
    let (name, taken) = if first.starts_with('@') {
        (format!("{first}/{}", parts.get(at + 2)?.as_os_str().to_str()?), 3)
    } else {
        (first.to_owned(), 2)
    };
    // The program is a file in it.
    parts.get(at + taken)?;
    let folder: PathBuf = parts.iter().take(at + taken).collect();
    let text = ua_files::read_text(&folder.join("package.json"), MOST).ok()?;
    let package: Package = serde_json::from_str(&text).ok()?;
    (package.name == name).then(|| format!("npm:{name}"))
}

/// A script of a virtual environment is the package that lists it among its own.
fn of_python(real: &Path) -> Option<String> {
    let script = real.file_name()?.to_str()?;
    let folder = real.parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")))?;
    let environment = folder.parent()?;
    if !environment.join("pyvenv.cfg").is_file() {
        return None;
    }
    let versions = std::fs::read_dir(environment.join("lib")).ok()?.filter_map(Result::ok);
    let packages = versions
        .filter(|version| version.file_name().to_string_lossy().starts_with("python"))
        .filter_map(|version| std::fs::read_dir(version.path().join("site-packages")).ok())
        .flat_map(|packages| packages.take(PACKAGES).filter_map(Result::ok));
    let about = packages.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("dist-info")));
    let mut having = about.filter(|about| {
        let listed = ua_files::read_text(&about.join("entry_points.txt"), MOST);
        listed.is_ok_and(|listed| lists(&listed, script))
    });
    let about = having.next()?;
    // Of two that say so nobody knows which it is.
    if having.next().is_some() {
        return None;
    }
    let described = ua_files::read_text(&about.join("METADATA"), MOST).ok()?;
    let name = described.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("Name:"))?;
    Some(format!("pypi:{}", name.trim()))
}

/// Whether a package's list of what it brings (`entry_points.txt`) has this script.
fn lists(listed: &str, script: &str) -> bool {
    let mut is_of_scripts = false;
    listed.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            is_of_scripts = line == "[console_scripts]";
        }
        is_of_scripts && line.split_once('=').is_some_and(|(name, _)| name.trim() == script)
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_program_in_node_modules_is_the_package_that_it_lies_in() {
        let place = tempfile::tempdir().unwrap();
        let modules = place.path().join("node_modules");
        let package = |folder: &str, name: &str| {
            write(&modules.join(folder).join("package.json"), &serde_json::json!({ "name": name }).to_string());
            write(&modules.join(folder).join("dist/index.js"), "");
        };
        package("tavily-mcp", "tavily-mcp");
        package("@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-memory");
        // npm installs a package under the name of another one, if it is told to.
        package("slack", "evil");
        fs::create_dir_all(modules.join(".bin")).unwrap();
        for (name, to) in [
            ("tavily-mcp", "../tavily-mcp/dist/index.js"),
            ("mcp-server-memory", "../@modelcontextprotocol/server-memory/dist/index.js"),
            ("slack", "../slack/dist/index.js"),
            ("gone", "../gone/index.js"),
        ] {
            std::os::unix::fs::symlink(to, modules.join(".bin").join(name)).unwrap();
        }
        write(&modules.join(".bin/wrapper"), "#!/bin/sh\n");
        let of = |name: &str| package_of(&modules.join(".bin").join(name));
        assert_eq!(of("tavily-mcp").as_deref(), Some("npm:tavily-mcp"));
        assert_eq!(of("mcp-server-memory").as_deref(), Some("npm:@modelcontextprotocol/server-memory"));
        for name in ["slack", "gone", "wrapper", "none"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(package_of(&modules.join("tavily-mcp/dist/index.js")).as_deref(), Some("npm:tavily-mcp"));
        // A global install, which stands in a folder of PATH.
        let bin = place.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(modules.join("tavily-mcp/dist/index.js"), bin.join("tavily-mcp")).unwrap();
        let path = format!("relative:/nowhere:{}", bin.display());
        let found = in_path("tavily-mcp", &path).unwrap();
        assert_eq!(package_of(&found).as_deref(), Some("npm:tavily-mcp"));
        assert_eq!(in_path("other", &path), None);
    }

    #[test]
    fn a_script_of_a_virtual_environment_is_the_package_that_lists_it() {
        let place = tempfile::tempdir().unwrap();
        let environment = place.path().join("v");
        let packages = environment.join("lib/python3.12/site-packages");
        let package = |folder: &str, name: &str, scripts: &str| {
            write(
                &packages.join(folder).join("METADATA"),
                &format!("Metadata-Version: 2.1\nName: {name}\n\nName: body\n"),
            );
            write(&packages.join(folder).join("entry_points.txt"), scripts);
        };
        write(&environment.join("pyvenv.cfg"), "");
        for script in ["mcp-server-git", "other", "twice"] {
            write(&environment.join("bin").join(script), "#!/usr/bin/python\n");
        }
        package(
            "mcp_server_git-1.2.dist-info",
            "mcp-server-git",
            "[console_scripts]\nmcp-server-git = mcp_server_git:main\n",
        );
        package("a-1.dist-info", "a", "[gui]\nother = a:b\n[console_scripts]\ntwice=a:b\n");
        package("b-1.dist-info", "b", "[console_scripts]\ntwice=b:b\n");
        let of = |script: &str| package_of(&environment.join("bin").join(script));
        assert_eq!(of("mcp-server-git").as_deref(), Some("pypi:mcp-server-git"));
        assert_eq!((of("other"), of("twice")), (None, None));
        // `uv tool install` and `pipx` put a link into a folder of PATH.
        let link = place.path().join("mcp-server-git");
        std::os::unix::fs::symlink(environment.join("bin/mcp-server-git"), &link).unwrap();
        assert_eq!(package_of(&link).as_deref(), Some("pypi:mcp-server-git"));
        fs::remove_file(environment.join("pyvenv.cfg")).unwrap();
        assert_eq!(of("mcp-server-git"), None);
    }
}
