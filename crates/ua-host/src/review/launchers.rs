//! Programs that start other programs: which command line is behind them, in which folder, and what they fetch first.
//!
//! `env npx -y pkg` is `npx -y pkg`, and `uv --directory DIR run server.py` runs what is in `DIR`. One table says how each wrapper is
//! peeled, one which options of launchers change the folder. What is fetched is looked for among all words, behind whatever program they stand
//! and inside texts for shells: a flag too much is a question, one too few is whatever a registry has that day.
//! Proved by: this file's tests.

use std::path::{Path, PathBuf};

use super::env_words::without_split_strings;
use super::kinds::has_ending;
use super::named::inside;

/// A command line and the folder that it runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) base: PathBuf,
    /// Folders whose code it runs, whatever its words are.
    pub(super) projects: Vec<PathBuf>,
}

/// Programs that run the rest of their words: options that take a value, and how many words of their own come first.
const WRAPPERS: [(&str, &[&str], usize); 38] = [
    ("busybox", &[], 0),
    ("caffeinate", &["-t", "-w"], 0),
    ("catatonit", &[], 0),
    ("chpst", &["-u", "-U", "-b", "-e", "-d", "-o", "-p", "-f", "-c", "-r", "-t", "-m", "-s", "-l", "-L", "-n"], 0),
    ("chronic", &[], 0),
    ("chrt", &["-T", "-P", "-D"], 1),
    ("cmd", &[], 0),
    ("command", &[], 0),
    ("corepack", &[], 0),
    ("dbus-run-session", &["--config-file", "--dbus-daemon"], 0),
    ("doas", &["-u", "-C", "-a"], 0),
    ("dotenv", &["-f", "--file", "-e", "-c", "-v", "-p"], 0),
    ("dumb-init", &["-r", "--rewrite"], 0),
    ("env", &["-u", "--unset", "-C", "--chdir"], 0),
    ("envdir", &[], 1),
    ("exec", &["-a"], 0),
    ("faketime", &[], 1),
    ("flock", &["-w", "--timeout", "-E"], 1),
    ("gosu", &[], 1),
    ("ionice", &["-c", "--class", "-n", "--classdata"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("nohup", &[], 0),
    ("numactl", &["-N", "-m", "-C"], 0),
    ("prlimit", &[], 0),
    ("setpriv", &["--reuid", "--regid", "--groups"], 0),
    ("setsid", &[], 0),
    ("start", &[], 0),
    ("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    ("su-exec", &[], 1),
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-D", "-r", "-t", "-T", "-U", "-R", "--user", "--group", "--chdir"], 0),
    ("systemd-run", &["-p", "--property", "-u", "--unit", "-d", "-E", "--setenv", "--slice", "--working-directory"], 0),
    ("taskset", &[], 1),
    ("time", &["-f", "-o"], 0),
    ("timeout", &["-k", "--kill-after", "-s", "--signal"], 1),
    ("tini", &["-p"], 0),
    ("unbuffer", &[], 0),
    ("winpty", &[], 0),
    ("xargs", &["-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E"], 0),
];

/// Launchers that run a program of a project behind a word of their own.
const RUNNERS: [(&str, &[&str]); 20] = [
    ("asdf", &["exec"]),
    ("bun", &["run", "x", "start"]),
    ("bundle", &["exec"]),
    ("conda", &["run"]),
    ("deno", &["run", "task", "serve"]),
    ("direnv", &["exec"]),
    ("fnm", &["exec"]),
    ("hatch", &["run"]),
    ("mamba", &["run"]),
    ("mise", &["exec", "x", "run"]),
    ("pdm", &["run"]),
    ("pipenv", &["run"]),
    ("pipx", &["run"]),
    ("pixi", &["run", "exec"]),
    ("poetry", &["run"]),
    ("rtx", &["exec", "x"]),
    ("rye", &["run"]),
    ("uv", &["run", "tool", "x"]),
    ("volta", &["run"]),
    ("yarn", &["run", "exec"]),
];

/// Launchers that decide by files of a folder what they run.
const OF_PROJECTS: [&str; 85] = [
    "ant",
    "bazel",
    "bazelisk",
    "bb",
    "buck2",
    "bun",
    "bundle",
    "bunx",
    "cabal",
    "cargo",
    "clj",
    "clojure",
    "cmake",
    "composer",
    "conda",
    "dart",
    "deno",
    "devbox",
    "devenv",
    "docker",
    "docker-compose",
    "dotnet",
    "dune",
    "fab",
    "finch",
    "flutter",
    "foreman",
    "go",
    "gradle",
    "gradlew",
    "grunt",
    "gulp",
    "hatch",
    "hivemind",
    "honcho",
    "inv",
    "invoke",
    "julia",
    "just",
    "lein",
    "make",
    "mamba",
    "meson",
    "mise",
    "mix",
    "mvn",
    "mvnd",
    "mvnw",
    "nerdctl",
    "ninja",
    "nix",
    "nix-shell",
    "nodemon",
    "nox",
    "npm",
    "npx",
    "nx",
    "overmind",
    "pdm",
    "pipenv",
    "pipx",
    "pixi",
    "pnpm",
    "pnpx",
    "podman",
    "podman-compose",
    "poetry",
    "rails",
    "rake",
    "rebar3",
    "rtx",
    "rye",
    "sbt",
    "scala-cli",
    "scons",
    "stack",
    "swift",
    "task",
    "tox",
    "turbo",
    "uv",
    "uvx",
    "xmake",
    "yarn",
    "zig",
];

/// Those of them that run what is in an image, unless they are told of a project.
pub(super) const CONTAINERS: [&str; 4] = ["docker", "finch", "nerdctl", "podman"];

/// Options of launchers and wrappers that name a folder to work in, or the project.
const FOLDERS: [&str; 16] = [
    "--cd",
    "--chdir",
    "--cwd",
    "--dir",
    "--directory",
    "--manifest-path",
    "--prefix",
    "--project",
    "--project-directory",
    "--working-directory",
    "--workspace-root",
    "-C",
    "-D",
    "-P",
    "-d",
    "-p",
];

/// Options of launchers before or behind their word that take a value.
const WITH_VALUE: [&str; 17] = [
    "--env",
    "--env-file",
    "--extra",
    "--filter",
    "--from",
    "--group",
    "--index",
    "--name",
    "--package",
    "--python",
    "--with",
    "--with-editable",
    "--with-requirements",
    "-e",
    "-n",
    "-p",
    "-w",
];

pub(crate) fn name_of(command: &str) -> &str {
    let file = command.rsplit(['/', '\\']).next().unwrap_or_default();
    file.strip_suffix(".exe").or_else(|| file.strip_suffix(".cmd")).unwrap_or(file)
}

/// The command lines behind a command line, from the outside in; the first is what it itself names.
pub(super) fn invocations(command: &str, args: &[String], base: &Path) -> Vec<Invocation> {
    let mut all = Vec::new();
    follow(command, args, base, 0, &mut all);
    all
}

/// Wrappers within wrappers are followed this deep, and so many command lines in all.
const MAX_DEPTH: usize = 8;
const MAX_INVOCATIONS: usize = 64;

/// Whether a program is one of those that start others, and are followed as that.
pub(super) fn is_followed(name: &str) -> bool {
    WRAPPERS.iter().any(|(wrapper, ..)| *wrapper == name)
        || RUNNERS.iter().any(|(runner, _)| *runner == name)
        || OF_PROJECTS.contains(&name)
}

fn follow(command: &str, args: &[String], base: &Path, depth: usize, all: &mut Vec<Invocation>) {
    let name = name_of(command);
    let split;
    let args = if name == "env" {
        split = without_split_strings(args);
        &split
    } else {
        args
    };
    let is_of_projects = OF_PROJECTS.contains(&name);
    let inner = if depth < MAX_DEPTH && all.len() < MAX_INVOCATIONS { inner_at(name, args) } else { None };
    let own = &args[..inner.unwrap_or(args.len()).min(args.len())];
    let wraps = WRAPPERS.iter().any(|(wrapper, ..)| *wrapper == name);
    let named = if is_of_projects || wraps { folders(name, own) } else { Vec::new() };
    let (mut bases, mut projects) = (Vec::new(), Vec::new());
    for (option, folder) in named {
        let path = base.join(folder);
        // One names a file in it.
        let path = if option == "--manifest-path" || path.is_file() {
            path.parent().map_or_else(|| base.to_path_buf(), Path::to_path_buf)
        } else {
            path
        };
        projects.extend(is_of_projects.then(|| path.clone()));
        bases.push(path);
    }
    if is_of_projects && projects.is_empty() && runs_its_project(name, args) {
        projects.push(base.to_path_buf());
    }
    if is_of_projects && (!CONTAINERS.contains(&name) || runs_its_project(name, args)) {
        for folder in named_projects(own, base) {
            if !projects.contains(&folder) {
                projects.push(folder);
            }
        }
    }
    bases.insert(0, base.to_path_buf());
    all.push(Invocation { command: command.to_owned(), args: own.to_vec(), base: base.to_path_buf(), projects });
    let Some(at) = inner.filter(|at| *at < args.len()) else { return };
    // Some options change the folder and some do not: what is there in either counts.
    for base in bases {
        let (command, rest) = (&args[at], &args[at + 1..]);
        // `uv run server.py` is Python's.
        if is_of_projects && Path::new(command).extension().is_some_and(|ending| ending == "py") {
            follow("python3", &args[at..], &base, depth + 1, all);
        } else {
            follow(command, rest, &base, depth + 1, all);
        }
    }
}

/// Whether a launcher runs what the folder that it works in says, and not a package that it fetches.
fn runs_its_project(name: &str, args: &[String]) -> bool {
    let has = |words: &[&str]| args.iter().any(|arg| words.contains(&arg.as_str()));
    // What stands behind its word is somebody else's: `uv run serve tool`.
    let first = |words: &[&str]| args.iter().map(String::as_str).find(|arg| words.contains(arg));
    match name {
        "npx" | "bunx" | "pnpx" | "uvx" | "pipx" => false,
        name if CONTAINERS.contains(&name) => has(&["compose", "build"]),
        "julia" => args.iter().any(|arg| arg.starts_with("--project")),
        // Another flake may be named in the place of this folder's.
        "nix" => {
            let named =
                args.iter().skip(1).find(|arg| !arg.starts_with('-') || matches!(arg.as_str(), "-c" | "--command"));
            named.is_none_or(|flake| flake.starts_with(['.', '#', '-']))
        }
        "uv" => first(&["run", "tool", "x"]) == Some("run"),
        "npm" | "pnpm" | "yarn" | "bun" => {
            let word = first(&["run", "run-script", "start", "test", "dlx", "x", "exec"]);
            !matches!(word, Some("dlx" | "x" | "exec"))
        }
        "conda" | "mamba" => has(&["task"]),
        "deno" => {
            let mut words = args.iter().filter(|arg| !arg.starts_with('-'));
            let named = words.find(|arg| !matches!(arg.as_str(), "run" | "serve"));
            let fetched = ["npm:", "jsr:", "http:", "https:"];
            named.is_none_or(|named| !fetched.iter().any(|scheme| named.starts_with(scheme)))
        }
        _ => true,
    }
}

/// Where the inner command of a wrapper or launcher begins among its words.
fn inner_at(name: &str, args: &[String]) -> Option<usize> {
    if let Some((_, with_value, own)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
        let mut own = *own;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            if arg == "--" {
                return Some(at + 1 + own);
            }
            if with_value.contains(&arg.as_str()) {
                at += 2;
            } else if arg.starts_with('-') || (name == "cmd" && arg.starts_with('/')) || is_assignment(arg) {
                at += 1;
            } else if own > 0 {
                (own, at) = (own - 1, at + 1);
            } else {
                return Some(at);
            }
        }
        return None;
    }
    let (_, words) = RUNNERS.iter().find(|(runner, _)| *runner == name)?;
    let word = args.iter().position(|arg| words.contains(&arg.as_str()))?;
    // Those that fetch what they run have no program of this machine behind them.
    let fetches = name == "pipx" || (name == "bun" && args[word] == "x") || (name == "uv" && args[word] != "run");
    if fetches {
        return None;
    }
    let mut at = word + 1 + usize::from(name == "direnv");
    while let Some(arg) = args.get(at) {
        if arg == "--" {
            return Some(at + 1);
        }
        if FOLDERS.contains(&arg.as_str()) || WITH_VALUE.contains(&arg.as_str()) {
            at += 2;
        } else if arg.starts_with('-') || (matches!(name, "mise" | "rtx") && arg.contains('@')) {
            at += 1;
        } else {
            return Some(at);
        }
    }
    None
}

/// Folders of the checkout that the words of a launcher name, whatever their options are called, and those of files that they name. What stands
/// behind `--` is the program's.
fn named_projects(args: &[String], base: &Path) -> Vec<PathBuf> {
    let words = args.iter().take_while(|arg| *arg != "--");
    // What a container sees of a folder is looked at where its words are.
    let own = words.filter(|arg| !arg.contains(":/"));
    let found = own.flat_map(|arg| [Some(arg.as_str()), arg.split_once('=').map(|(_, value)| value)]).flatten();
    let found = found.map(|piece| piece.split('#').next().unwrap_or_default()).filter(|piece| !piece.is_empty());
    let folder = |path: PathBuf| {
        if path.is_dir() {
            return Some(path);
        }
        path.parent().filter(|_| !is_data(&path)).map(Path::to_path_buf)
    };
    found.filter_map(|piece| inside(base, piece)).filter_map(folder).collect()
}

/// Whether a file that a launcher is told of is what its program works on.
fn is_data(path: &Path) -> bool {
    has_ending(path, &["csv", "db", "log", "md", "pdf", "sqlite", "txt"])
}

pub(super) fn is_assignment(arg: &str) -> bool {
    arg.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Folders that options name, with the option.
fn folders<'a>(name: &str, args: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    // Short options mean other things to other programs.
    let counts = |option: &str| match option {
        "-D" => name == "sudo",
        "-d" => matches!(name, "just" | "task" | "systemd-run"),
        "-p" => name == "pdm",
        "-P" => name == "poetry",
        option => FOLDERS.contains(&option),
    };
    for (at, arg) in args.iter().enumerate() {
        if let Some((option, value)) = arg.split_once('=').filter(|(option, _)| counts(option)) {
            found.push((option, value));
        } else if counts(arg) {
            found.extend(args.get(at + 1).map(|value| (arg.as_str(), value.as_str())));
        } else if let Some(value) = arg.strip_prefix("-C").filter(|value| !value.is_empty()) {
            found.push(("-C", value));
        }
    }
    if name == "direnv" {
        found.extend(args.iter().skip_while(|arg| *arg != "exec").nth(1).map(|folder| ("exec", folder.as_str())));
    }
    found
}

/// Variables that words of a command line set, for whatever is behind them: `env PYTHONPATH=lib python3 …`, also in a text for a shell.
pub(super) fn assignments(args: &[String]) -> Vec<(String, String)> {
    let words = args.iter().flat_map(|arg| words_of(arg));
    let set = words
        .filter(|word| is_assignment(word))
        .filter_map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
    set.collect()
}

/// The words of an argument: itself, and what a shell would read in it.
pub(super) fn words_of(arg: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '"' | '\'' | '`' | '$');
    if !arg.contains(char::is_whitespace) {
        return vec![arg.to_owned()];
    }
    arg.split(ends).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The package that a launcher anywhere in a command line fetches without an exact version, if there is one.
pub(super) fn unpinned(command: &str, args: &[String]) -> Option<String> {
    let words: Vec<String> =
        std::iter::once(command.to_owned()).chain(args.iter().flat_map(|arg| words_of(arg))).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    (0..words.len()).find_map(|at| {
        let (word, rest) = (words[at], &words[at + 1..]);
        let name = name_of(word.rsplit('=').next().unwrap_or_default());
        // A launcher as a module of Python.
        let is_python = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == "python";
        match rest {
            ["-m", module, rest @ ..] if is_python => fetched(module, rest),
            _ => fetched(name, rest),
        }
    })
}

/// What a launcher of this name with these words fetches without an exact version.
fn fetched(name: &str, words: &[&str]) -> Option<String> {
    let first = words.iter().position(|word| !word.starts_with('-'));
    let (verb, behind) = first.map_or(("", &words[..0]), |at| (words[at], &words[at + 1..]));
    match (name, verb) {
        ("npx" | "bunx" | "pnpx" | "uvx", _) => package(name, words),
        ("npm" | "pnpm" | "yarn" | "bun", _) => {
            // Behind options that take a value the verb is another word.
            let at = words.iter().position(|word| matches!(*word, "exec" | "x" | "dlx" | "create" | "run"))?;
            if words[at] == "run" { None } else { package(name, &words[at + 1..]) }
        }
        ("pipx", "run") | ("uv", "tool" | "x") | ("pip" | "pip3", "install" | "download") => package(name, behind),
        ("uv", _) if words.contains(&"run") => with_packages(words),
        ("uv", _) if words.contains(&"tool") => {
            package(name, &words[words.iter().position(|word| *word == "tool")? + 1..])
        }
        ("docker" | "podman" | "nerdctl" | "finch", "compose") | ("docker-compose" | "podman-compose", _) => {
            Some("the images of its compose file".to_owned())
        }
        ("docker" | "podman" | "nerdctl" | "finch" | "container", _) => {
            image(&words[words.iter().position(|word| matches!(*word, "run" | "create"))? + 1..])
        }
        ("corepack", verb) => {
            let tool = if verb.is_empty() { "its package manager" } else { verb };
            (!verb.rsplit_once('@').is_some_and(|(_, version)| is_exact_version(version))).then(|| tool.to_owned())
        }
        ("mise" | "rtx", "exec" | "x") => {
            let tools = behind.iter().take_while(|word| **word != "--").filter(|word| !word.starts_with('-'));
            tools.copied().find(|tool| !is_pinned(tool)).map(str::to_owned)
        }
        ("pixi", "exec") | ("go", "run") => {
            let named = behind.iter().find(|word| !word.starts_with('-'))?;
            let is_source = Path::new(named).extension().is_some_and(|extension| extension == "go");
            let is_here = name == "go" && (!named.contains('.') || named.starts_with('.') || is_source);
            (!is_here && !is_pinned(&named.replace("@v", "@"))).then(|| (*named).to_owned())
        }
        ("cargo", "run" | "install" | "binstall") if words.contains(&"--git") => Some("a repository of Git".to_owned()),
        ("nix", "run" | "shell" | "develop") | ("nix-shell", _) => flake(name, words),
        ("deno" | "tsx" | "ts-node" | "jbang" | "node", _) => {
            // What stands behind the script is the script's.
            let script =
                words.iter().position(|word| !word.starts_with('-') && !matches!(*word, "run" | "serve" | "x"));
            words.iter().take(script.map_or(words.len(), |at| at + 1)).find_map(|word| remote_module(word))
        }
        _ => None,
    }
}

/// A module from a registry or an address, without an exact version.
fn remote_module(word: &str) -> Option<String> {
    let named = word.split_once('=').map_or(word, |(_, value)| value);
    let is_address = named.starts_with("https://") || named.starts_with("http://");
    let of_registry = named.strip_prefix("npm:").or_else(|| named.strip_prefix("jsr:"));
    match of_registry {
        Some(package) if is_pinned(package.trim_start_matches('/')) => None,
        Some(_) => Some(named.to_owned()),
        // Nobody answers for what an address has, whatever version stands in it.
        None => is_address.then(|| named.to_owned()),
    }
}

fn flake(name: &str, words: &[&str]) -> Option<String> {
    if name == "nix-shell" {
        return words
            .iter()
            .any(|word| matches!(*word, "-p" | "--packages" | "--run" | "--command"))
            .then(|| "packages of its channel".to_owned());
    }
    let flakes = words.iter().skip(1).filter(|word| !word.starts_with('-'));
    let is_commit = |text: &str| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_exact = |flake: &str| {
        let flake = flake.split('#').next().unwrap_or_default();
        flake.is_empty() || flake.starts_with(['.', '/']) || flake.split(['/', '=', '?', '&']).any(is_commit)
    };
    flakes.copied().take(1).find(|flake| !is_exact(flake)).map(str::to_owned)
}

/// Packages that `uv run` adds.
fn with_packages(words: &[&str]) -> Option<String> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let value = match word.split_once('=') {
            Some(("--with", value)) => Some(value),
            _ if *word == "--with" => words.get(at + 1).copied(),
            _ => None,
        };
        if let Some(package) = value.into_iter().flat_map(|value| value.split(',')).find(|package| !is_pinned(package))
        {
            return Some(package.to_owned());
        }
        if word.starts_with("https://") || word.starts_with("http://") {
            return Some((*word).to_owned());
        }
        at += 1;
    }
    None
}

fn image(words: &[&str]) -> Option<String> {
    let image = first_word(words, |word| {
        matches!(
            word,
            "-e" | "--env" | "--env-file" | "-v" | "--volume" | "--mount" | "--name" | "--network" | "-p" | "-w"
        )
    })?;
    (!image.contains("@sha256:")).then(|| image.to_owned())
}

fn package(name: &str, words: &[&str]) -> Option<String> {
    let is_npx = name == "npx";
    let named = words.iter().enumerate().find_map(|(at, word)| {
        let is_option = matches!(*word, "--package" | "--from" | "--spec") || (is_npx && *word == "-p");
        let joined = ["--package=", "--from=", "--spec="].iter().find_map(|option| word.strip_prefix(option));
        joined.or_else(|| is_option.then(|| words.get(at + 1).copied()).flatten())
    });
    let first = || {
        first_word(words, |word| matches!(word, "-e" | "--env" | "-p" | "--python" | "-w") && !(is_npx && word == "-p"))
    };
    let package = named.or_else(first)?;
    // What is added has a version as well.
    if !is_pinned(package) {
        return Some(package.to_owned());
    }
    if matches!(name, "uv" | "uvx") { with_packages(words) } else { None }
}

fn first_word<'a>(words: &[&'a str], takes_value: impl Fn(&str) -> bool) -> Option<&'a str> {
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) || *word == "run" {
            continue;
        }
        if !word.starts_with('-') {
            return Some(word);
        }
        is_value = takes_value(word);
    }
    None
}

fn is_pinned(package: &str) -> bool {
    let version = package.rsplit_once("==").or_else(|| package.get(1..)?.rsplit_once('@')).map(|(_, version)| version);
    version.is_some_and(is_exact_version)
}

/// Whether a version is one version, and no range or tag.
fn is_exact_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.matches('.').count() >= 1
        && version.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> (String, Vec<String>) {
        let mut words = line.split(' ').map(|word| word.replace('~', " "));
        (words.next().unwrap(), words.collect())
    }

    #[test]
    fn s9_launchers_that_fetch_what_is_there_that_day_are_named() {
        for (line, package) in [
            ("npx -y pkg@latest", "pkg@latest"),
            ("npx -y pkg", "pkg"),
            ("npx -y pkg@1", "pkg@1"),
            ("npx -y pkg@^1.2.3", "pkg@^1.2.3"),
            ("/usr/bin/npx -y @scope/pkg", "@scope/pkg"),
            ("npx --package=pkg bin", "pkg"),
            ("uvx mcp-server-time", "mcp-server-time"),
            ("pipx run tool", "tool"),
            ("docker run -i --rm -e KEY mcp/fetch:latest", "mcp/fetch:latest"),
            ("npm exec pkg", "pkg"),
            ("env npx -y pkg", "pkg"),
            ("env A=b npx -y pkg", "pkg"),
            ("timeout 100 npx -y pkg", "pkg"),
            ("nice npx -y pkg", "pkg"),
            ("sudo -u me npx -y pkg", "pkg"),
            ("setsid npx -y pkg", "pkg"),
            ("stdbuf -o0 npx -y pkg", "pkg"),
            ("xargs npx -y pkg", "pkg"),
            ("nobody-knows --this npx -y pkg", "pkg"),
            ("sh -c exec~npx~-y~pkg", "pkg"),
            ("bash -lc cd~x&&npx~pkg", "pkg"),
            ("pnpx pkg", "pkg"),
            ("deno run npm:pkg", "npm:pkg"),
            ("deno run -A https://evil.test/x.ts", "https://evil.test/x.ts"),
            ("deno run -A jsr:@a/b", "jsr:@a/b"),
            ("uv run --with pkg x", "pkg"),
            ("uv --directory d run --with=pkg x", "pkg"),
            ("uv tool run pkg", "pkg"),
            ("nix run github:evil/x", "github:evil/x"),
            ("python3 -m pipx run pkg", "pkg"),
            ("python3 -m uv tool run pkg", "pkg"),
            ("nerdctl run img", "img"),
            ("docker compose run x", "the images of its compose file"),
            ("mise exec node -- npx pkg", "node"),
            ("mise x node@22.1.0 -- npx pkg", "pkg"),
            ("corepack pnpm dlx pkg", "pnpm"),
            ("volta run npx pkg", "pkg"),
            ("go run example.com/x@latest", "example.com/x@latest"),
            ("node --import https://evil.test/x.mjs s.js", "https://evil.test/x.mjs"),
            ("node /usr/bin/npx -y pkg", "pkg"),
        ] {
            let (command, args) = split(line);
            assert_eq!(unpinned(&command, &args).as_deref(), Some(package), "{line}");
        }
        for line in [
            "npx -y @scope/pkg@1.2.3",
            "env npx -y pkg@1.2.3",
            "uvx mcp-server-time==1.2.3",
            "docker run mcp/fetch@sha256:00",
            "node server.js",
            "uv --directory d run server.py",
            "uv run --with pkg==1.2 x",
            "npm run start",
            "nix run .#x",
            "nix run github:a/b/0123456789012345678901234567890123456789",
            "go run ./cmd",
            "go run example.com/x@v1.0.0",
            "deno run npm:pkg@1.2.3",
            "python3 -m server",
            "make -C d serve",
        ] {
            let (command, args) = split(line);
            assert_eq!(unpinned(&command, &args), None, "{line}");
        }
    }

    #[test]
    fn s9_a_wrapper_is_peeled_and_the_folder_followed() {
        let base = Path::new("/b");
        let inner = |line: &str| {
            let (command, args) = split(line);
            let found = invocations(&command, &args, base);
            let last = found.last().unwrap().clone();
            let projects: Vec<String> =
                found.iter().flat_map(|one| &one.projects).map(|path| path.display().to_string()).collect();
            (format!("{} {}", last.command, last.args.join(" ")), last.base.display().to_string(), projects)
        };
        for (line, command, folder, projects) in [
            ("env -u A B=c python3 s.py", "python3 s.py", "/b", &[][..]),
            ("env -C d python3 s.py", "python3 s.py", "/b/d", &[]),
            ("timeout -k 1 100 nice -n 5 python3 s.py", "python3 s.py", "/b", &[]),
            ("uv --directory d run server.py --x", "python3 server.py --x", "/b/d", &["/b/d"]),
            ("uv run --directory=d server.py", "python3 server.py", "/b/d", &["/b/d"]),
            ("uv run --project d python3 -m srv", "python3 -m srv", "/b/d", &["/b/d"]),
            ("poetry -C d run srv", "srv ", "/b/d", &["/b/d"]),
            ("npm --prefix d run x", "npm --prefix d run x", "/b", &["/b/d"]),
            ("pnpm -C d start", "pnpm -C d start", "/b", &["/b/d"]),
            ("make -C d x", "make -C d x", "/b", &["/b/d"]),
            ("make -Cd x", "make -Cd x", "/b", &["/b/d"]),
            ("cargo run --manifest-path d/Cargo.toml", "cargo run --manifest-path d/Cargo.toml", "/b", &["/b/d"]),
            ("sudo env npm start", "npm start", "/b", &["/b"]),
            ("npx -y pkg", "npx -y pkg", "/b", &[]),
            ("deno run -A npm:@x/mcp", "npm:@x/mcp ", "/b", &[]),
            ("deno run -A s.ts", "s.ts ", "/b", &["/b"]),
            ("node s.js env x", "node s.js env x", "/b", &[]),
        ] {
            let (found, base, named) = inner(line);
            assert_eq!((found.as_str(), base.as_str()), (command, folder), "{line}");
            assert_eq!(named, projects, "{line}");
        }
        for (line, command) in [
            ("env -S python3~x/run.py", "python3 x/run.py"),
            ("env -Spython3~x/run.py y", "python3 x/run.py y"),
            ("env -iS A=b~python3~x/run.py", "python3 x/run.py"),
            ("env -vS 'a~b'~c", "a~b c"),
            ("env --split-string=-C~d~python3~run.py", "python3 run.py"),
            ("env --split-string nice~python3~run.py z", "python3 run.py z"),
            ("env python3 -S x", "python3 -S x"),
        ] {
            assert_eq!(inner(line).0, command.replace('~', " "), "{line}");
        }
        let set = assignments(&["PYTHONPATH=l".to_owned(), "exec LD_PRELOAD=x y".to_owned(), "--a=b".to_owned()]);
        assert_eq!(set, [("PYTHONPATH".to_owned(), "l".to_owned()), ("LD_PRELOAD".to_owned(), "x".to_owned())]);
    }
}
