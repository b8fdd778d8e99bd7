//! What a command line names that decides what it does: programs, scripts and what lies beside them, folders and modules.
//!
//! An interpreter takes any file for a script, whatever its name; it runs a folder with an entry in it, or a module it is told by name; and
//! a script loads what lies beside it. So every file that an argument names counts, and of a script's folder everything that is code. Only what
//! comes behind the script of an interpreter that is known, and files of another program with the ending of data, may change: a server's
//! own log would have a person asked each time. What else a program loads (its own installation, a text in its arguments, what it fetches)
//! nobody can tell from outside. A person is told of all of this.
//!
//! What `ua` itself reads (jobs, policies, its settings) is nobody's code either, unless something that counts says its name ([`super::of_ua`]).
//!
//! Nor does what runs write into a folder of workspaces that lies beside a script: it would have a person asked after each run. Only a folder
//! that this user's `ua` made is taken for one, by what the user's state folder says of it; one that came with a checkout counts. And it
//! counts when a script says its name, because then the script may load what is in there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::launchers::{Invocation, invocations, name_of};
use super::of_ua;
use crate::home::is_written_by_runs;
use crate::roots::Roots;

/// Endings of files that an interpreter or a loader takes for code, or that say what code is loaded.
const CODE: [&str; 30] = [
    "bash", "cjs", "class", "cts", "dll", "dylib", "go", "jar", "js", "json", "lua", "mjs", "mts", "node", "php", "pl",
    "pm", "pth", "py", "pyc", "pyd", "pyw", "rb", "sh", "so", "toml", "ts", "tsx", "wasm", "zip",
];
/// Endings of files that a program works on.
const DATA: [&str; 16] = [
    "csv", "db", "env", "jpg", "json", "jsonl", "log", "md", "ndjson", "parquet", "pdf", "png", "sqlite", "sqlite3",
    "tsv", "txt",
];
/// Programs whose first argument that is no option is a script, which has the rest for itself.
const INTERPRETERS: [&str; 12] =
    ["bash", "bun", "deno", "lua", "node", "perl", "php", "pypy", "python", "ruby", "sh", "zsh"];
/// Options of those that take no value.
const SWITCHES: [&str; 16] = [
    "-",
    "--",
    "--enable-source-maps",
    "--preserve-symlinks",
    "--trace-warnings",
    "-B",
    "-E",
    "-I",
    "-O",
    "-OO",
    "-S",
    "-b",
    "-bb",
    "-s",
    "-u",
    "-v",
];
/// Python's modules that run another one, or a script.
const MODULE_RUNNERS: [&str; 20] = [
    "IPython",
    "bdb",
    "cProfile",
    "coverage",
    "debugpy",
    "doctest",
    "fastmcp",
    "flask",
    "gunicorn",
    "hypercorn",
    "kernprof",
    "mcp",
    "memory_profiler",
    "pdb",
    "profile",
    "pytest",
    "runpy",
    "trace",
    "uvicorn",
    "viztracer",
];
/// Files that decide what a launcher of a project runs and fetches, and that have no ending of code.
const PROJECT_FILES: [&str; 14] = [
    ".env",
    ".npmrc",
    ".python-version",
    ".yarnrc.yml",
    "Cargo.lock",
    "Gemfile",
    "Gemfile.lock",
    "compose.yaml",
    "compose.yml",
    "docker-compose.yml",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "yarn.lock",
];
/// A folder with one of these is run as a program by some interpreter.
const ENTRIES: [&str; 14] = [
    "__init__.py",
    "__main__.py",
    "__main__.pyc",
    "Cargo.toml",
    "Makefile",
    "deno.json",
    "go.mod",
    "index.cjs",
    "index.js",
    "index.mjs",
    "index.ts",
    "main.go",
    "main.py",
    "package.json",
];
/// Folders beside a script that change by themselves, or hold no code that is loaded.
const PASSED_OVER: [&str; 3] = [".git", "__pycache__", ".venv"];

/// How many files of folders are looked at, and how deep.
const MAX_FILES: usize = 2_000;
const MAX_DEPTH: usize = 8;

/// What a command line names.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// Files that count, each by its content.
    pub(super) files: BTreeSet<PathBuf>,
    /// What cannot be covered, as sentences.
    pub(super) warnings: Vec<String>,
    /// Folders that were looked through, by where they really are, and from how deep.
    seen: BTreeMap<PathBuf, usize>,
    /// Folders of workspaces beside scripts.
    roots: BTreeSet<PathBuf>,
    /// The one of them that counts.
    whole_root: Option<PathBuf>,
    /// Files beside scripts that `ua` reads itself.
    of_ua: BTreeSet<PathBuf>,
    known: Roots,
}

/// Whatever `command` with `args`, run in `base`, names. `known` says which folders hold this user's runs: what those write there is nobody's
/// code, unless a script names such a folder, or lies in it. `given` is what the server is given besides: the values of its variables.
pub(super) fn covered(
    command: &str,
    program: Option<&Path>,
    args: &[String],
    given: &[&str],
    base: &Path,
    known: &Roots,
) -> Covered {
    let mut covered = Covered { known: known.clone(), ..Covered::default() };
    // A script that is the program itself loads what lies beside it, too; the system's own do not change by a checkout. Of one that is a
    // link some programs look beside the link, and some where it leads.
    if let Some(program) = program.filter(|program| command.contains('/') && begins_with(program, *b"#!")) {
        covered.beside(program);
        covered.name(&base.join(command));
    }
    let all = invocations(command, args, base);
    let mut launchers = Vec::new();
    for (number, invocation) in all.iter().enumerate() {
        if number > 0 && invocation.command.contains('/') {
            covered.name(&invocation.base.join(&invocation.command));
        }
        for project in &invocation.projects {
            let name = name_of(&invocation.command);
            covered.project(project);
            covered.warn(format!(
                "`{name}` decides by files of {} what it runs: the code there counts, and what it takes from elsewhere does not",
                project.display()
            ));
            launchers.push(name.to_owned());
        }
        covered.invocation(invocation);
    }
    if let Some(launcher) = launchers.first().filter(|_| covered.files.is_empty()) {
        covered.warn(format!(
            "nothing of what `{launcher}` runs is covered: there is no code in the folder that it works in"
        ));
    }
    covered.what_runs_write();
    covered.what_ua_reads(args.iter().map(String::as_str).chain(given.iter().copied()));
    covered
}

impl Covered {
    /// What the words of one command line name.
    fn invocation(&mut self, invocation: &Invocation) {
        let covered = self;
        let Invocation { command, args, base, .. } = invocation;
        let name = name_of(command);
        if let Some(venv) = virtual_environment(command, base) {
            covered.virtual_environment(&venv);
        }
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_interpreter = INTERPRETERS.contains(&plain);
        let is_python = matches!(plain, "python" | "pypy");
        let is_node = matches!(plain, "node" | "nodejs" | "bun");
        let mut has_script = false;
        // `-m runpy server` runs another module.
        let mut runs_another = false;
        for (index, arg) in args.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| args.get(before)).map(String::as_str);
            let value = arg.split_once('=').map(|(_, value)| value);
            for named in [Some(arg.as_str()), value].into_iter().flatten().filter(|named| !named.is_empty()) {
                let path = base.join(named);
                let is_behind_the_script = is_interpreter && has_script && !is_code(&path);
                let is_data = has_ending(&path, &DATA) && (has_script || !is_interpreter);
                if is_behind_the_script || is_data {
                    if path.is_file() {
                        covered.warn(format!("{} is taken for data: changes of it ask nothing", path.display()));
                    }
                    continue;
                }
                covered.name(&path);
                if let Some(script) = is_node.then(|| without_ending(&path)).flatten() {
                    covered.name(&script);
                }
            }
            let is_of_an_option = before.is_some_and(takes_a_value);
            let joined = is_python.then(|| module_option(arg)).flatten().filter(|module| !module.is_empty());
            let follows = match before {
                Some("-m") => is_interpreter,
                Some(before) => is_python && module_option(before) == Some(""),
                None => false,
            };
            let module = if has_script { None } else { joined.or_else(|| follows.then_some(arg.as_str())) };
            if let Some(module) = module {
                covered.module(base, module);
                runs_another |= MODULE_RUNNERS.contains(&module.split('.').next().unwrap_or_default());
                for packages in virtual_environment(command, base).iter().flat_map(|venv| site_packages(venv)) {
                    covered.installed(&packages, module);
                }
            }
            if !has_script && matches!(arg.as_str(), "-c" | "-e" | "--eval" | "-p" | "--print" | "-ec" | "-lc") {
                covered.warn(format!("it runs the text behind {arg}; files that the text loads are not covered"));
            }
            let names_a_script = || {
                let path = base.join(arg);
                path.exists() || (is_node && without_ending(&path).is_some())
            };
            if runs_another && module.is_none() && !arg.starts_with('-') {
                // `uvicorn server:app`
                covered.module(base, arg.split(':').next().unwrap_or_default());
            }
            has_script |=
                (module.is_some() && !runs_another) || (!arg.starts_with('-') && !is_of_an_option && names_a_script());
        }
    }
}

/// The Python virtual environment that a command is a program of: a folder with a `pyvenv.cfg`, above the command's own.
fn virtual_environment(command: &str, base: &Path) -> Option<PathBuf> {
    let program = base.join(command);
    let venv = program.parent()?.parent().filter(|_| command.contains('/'))?;
    venv.join("pyvenv.cfg").is_file().then(|| venv.to_path_buf())
}

/// Where the packages of a virtual environment are.
fn site_packages(venv: &Path) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let versions = ["lib", "lib64"].into_iter().flat_map(|lib| entries(venv.join(lib)));
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.join("site-packages")).filter(|p| p.is_dir()).collect();
    found.sort();
    found
}

/// What stands behind the `m` of Python's options, which may be written in one word: `-m`, `-um`, `-mserver`.
fn module_option(arg: &str) -> Option<&str> {
    let (flags, module) = arg.strip_prefix('-')?.split_once('m')?;
    // Of the letters before it none takes a value, or the `m` would be one.
    flags.chars().all(|flag| "bBdEiIOPqRsSuvx".contains(flag)).then_some(module)
}

/// The file that Node loads for a name that is none: it tries these endings.
fn without_ending(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return None;
    }
    ["js", "json", "node", "mjs", "cjs", "ts"].into_iter().find_map(|ending| {
        let mut name = path.file_name()?.to_owned();
        name.push(".");
        name.push(ending);
        Some(path.with_file_name(name)).filter(|path| path.is_file())
    })
}

impl Covered {
    fn warn(&mut self, what: String) {
        if !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    /// The folder of a project that a launcher works in.
    fn project(&mut self, folder: &Path) {
        self.files.extend(PROJECT_FILES.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()));
        self.folder(folder, 0);
    }

    /// Of a script that is reached by a link, what it really is, and what lies beside that: Node and Python load from there.
    fn where_it_leads(&mut self, script: &Path) {
        let (Ok(real), Some(folder)) = (script.canonicalize(), script.parent()) else { return };
        let Ok(folder) = folder.canonicalize() else { return };
        if real.parent() != Some(folder.as_path()) && self.files.len() < MAX_FILES {
            self.files.insert(real.clone());
            self.beside(&real);
        }
    }

    fn name(&mut self, path: &Path) {
        let Ok(meta) = fs::metadata(path) else { return };
        if meta.is_dir() {
            if ENTRIES.iter().any(|entry| path.join(entry).exists()) {
                self.folder(path, 0);
            }
        } else if meta.is_file() {
            self.files.insert(path.to_path_buf());
            if is_code(path) || is_script(path) {
                self.beside(path);
                self.where_it_leads(path);
            }
        }
    }

    /// A Python module in the folder that the program works in.
    fn module(&mut self, base: &Path, module: &str) {
        let path = base.join(module.replace('.', "/"));
        self.name(&path.with_extension("py"));
        // A package needs no entry to be one.
        if path.is_dir() {
            self.folder(&path, 0);
        }
        // Its own imports begin in the folder that it is run in.
        if path.is_dir() || path.with_extension("py").is_file() {
            self.folder(base, 0);
        }
    }

    /// What Python runs at each start of a virtual environment, whatever it is told to: its settings, every `.pth` file, whose lines may be code,
    /// and the modules that customize it.
    fn virtual_environment(&mut self, venv: &Path) {
        self.files.insert(venv.join("pyvenv.cfg"));
        for packages in site_packages(venv) {
            let entries = fs::read_dir(&packages).into_iter().flatten().flatten().map(|entry| entry.path());
            for path in entries.filter(|path| path.is_file()) {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let is_run = has_ending(&path, &["pth"]) || matches!(name, "sitecustomize.py" | "usercustomize.py");
                if is_run && self.files.len() < MAX_FILES {
                    self.files.insert(path);
                } else if is_run {
                    self.warn(format!("not all .pth files of {} are covered: there are too many", packages.display()));
                    return;
                }
            }
            let what = "packages that are not named by -m are not covered";
            self.warn(format!("of {} its .pth files count; {what}", packages.display()));
        }
    }

    /// A module that was installed into a virtual environment.
    fn installed(&mut self, packages: &Path, module: &str) {
        let first = module.split('.').next().unwrap_or_default();
        let (file, folder) = (packages.join(first).with_extension("py"), packages.join(first));
        if file.is_file() {
            self.files.insert(file);
        }
        if !first.is_empty() && folder.is_dir() {
            self.folder(&folder, 0);
        }
    }

    /// Says what becomes of the folders of workspaces that were met: a script that names one may load what lies there.
    fn what_runs_write(&mut self) {
        for root in std::mem::take(&mut self.roots) {
            let Some(name) = root.file_name().map(OsStr::as_encoded_bytes) else { continue };
            let by = self.files.iter().find(|file| says(file, name)).cloned();
            let Some(by) = by else {
                self.warn_of_runs(&root);
                continue;
            };
            self.warn(format!(
                "{} names {}, so what runs write there counts, and asks again",
                by.display(),
                root.display()
            ));
            self.whole_root = Some(root.clone());
            self.seen.clear();
            self.folder(&root, 0);
            self.whole_root = None;
        }
        // One that lies in another is as good as named with it.
        self.roots.clear();
    }

    fn warn_of_runs(&mut self, root: &Path) {
        self.warn(format!("what runs write below {} is not covered", root.display()));
    }

    /// Says what becomes of the files of `ua` that were met: what the server is told the name of, it may load.
    fn what_ua_reads<'w>(&mut self, words: impl Iterator<Item = &'w str>) {
        let found: Vec<PathBuf> =
            std::mem::take(&mut self.of_ua).into_iter().filter(|file| !self.files.contains(file)).collect();
        let mut left: Vec<&PathBuf> = found.iter().collect();
        let mut named: Vec<(String, &PathBuf)> = Vec::new();
        for word in words {
            let said = |file: &&PathBuf| {
                of_ua::is_said(word.as_bytes(), file) || file.file_stem() == Path::new(word).file_name()
            };
            named.extend(left.iter().copied().filter(said).map(|file| ("the configuration".to_owned(), file)));
            left.retain(|file| !said(file));
        }
        for code in &self.files {
            if left.is_empty() {
                break;
            }
            let said = of_ua::said_by(code, &left);
            left.retain(|file| !said.contains(file));
            named.extend(said.into_iter().map(|file| (code.display().to_string(), file)));
        }
        for (by, file) in named {
            self.warn(format!("{by} names {}, so a change of it asks again", file.display()));
            self.files.insert(file.clone());
        }
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|file| file.display().to_string()).collect();
            self.warn(format!("files that ua itself reads are not covered: {}", names.join(", ")));
        }
    }

    fn beside(&mut self, script: &Path) {
        if let Some(folder) = script.parent() {
            self.folder(folder, 0);
        }
    }

    /// All code in a folder and below.
    fn folder(&mut self, folder: &Path, depth: usize) {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        if self.seen.get(&real).is_some_and(|before| *before <= depth) {
            return;
        }
        self.seen.insert(real, depth);
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        // A script in such a folder is covered with what lies beside it, but for what runs write.
        let is_of_runs = self.whole_root.as_deref() != Some(folder) && self.known.are_own(folder);
        if is_of_runs {
            self.warn_of_runs(folder);
        }
        for path in entries {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Ok(meta) = fs::metadata(&path) else { continue };
            if is_of_runs && is_written_by_runs(name, meta.is_dir()) {
                continue;
            }
            if meta.is_dir() && self.known.are_own(&path) {
                self.roots.insert(path);
                continue;
            }
            let is_too_much = self.files.len() >= MAX_FILES || depth >= MAX_DEPTH;
            if meta.is_dir() && !PASSED_OVER.contains(&name) {
                if is_too_much {
                    self.warn(format!("not all of {} is covered: it is too much", folder.display()));
                    return;
                }
                self.folder(&path, depth + 1);
            } else if meta.is_file() && (is_code(&path) || path.extension().is_none()) {
                if is_too_much {
                    self.warn(format!("not all of {} is covered: it is too much", folder.display()));
                    return;
                }
                if of_ua::is_of_ua(&path) {
                    self.of_ua.insert(path);
                    continue;
                }
                // What is linked in is loaded with what lies beside it.
                let is_link = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink());
                self.files.insert(path.clone());
                if is_link && !has_ending(&path, &DATA) && (is_code(&path) || is_script(&path)) {
                    self.where_it_leads(&path);
                }
            }
        }
    }
}

/// How much of a script is looked through for the name of a folder.
const LOOKED_THROUGH: u64 = 4 * 1024 * 1024;

/// Files that tell a loader where names of code lead, though they have the ending of data.
const MAPS: [&str; 7] =
    ["bunfig.toml", "deno.json", "import_map.json", "jsconfig.json", "package.json", "pyproject.toml", "tsconfig.json"];

/// Whether a file of code, or one that says where code is, has this name in it.
fn says(file: &Path, name: &[u8]) -> bool {
    let is_map = file.file_name().and_then(OsStr::to_str).is_some_and(|name| MAPS.contains(&name));
    let is_data = has_ending(file, &DATA) || has_ending(file, &["toml"]) || !(is_code(file) || is_script(file));
    if is_data && !is_map {
        return false;
    }
    let mut text = Vec::new();
    // One that cannot be read may have it.
    open(file).and_then(|file| file.take(LOOKED_THROUGH).read_to_end(&mut text)).is_err()
        || text.windows(name.len().max(1)).any(|part| part == name)
}

fn is_code(path: &Path) -> bool {
    has_ending(path, &CODE)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| endings.contains(&ending))
}

/// Whether an interpreter may take what follows this argument for its value: of what is not known, it may.
fn takes_a_value(arg: &str) -> bool {
    arg.starts_with('-') && !arg.contains('=') && !arg.starts_with("--no-") && !SWITCHES.contains(&arg)
}

fn begins_with(path: &Path, wanted: [u8; 2]) -> bool {
    let mut head = [0; 2];
    open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == wanted
}

/// Whether a file says which interpreter runs it, or has no ending that says that it is something else.
fn is_script(path: &Path) -> bool {
    begins_with(path, *b"#!") || (path.extension().is_none() && path.is_file() && !begins_with(path, *b"\x7fE"))
}

/// Opens a file of a checkout: a pipe there is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    #[expect(clippy::cast_possible_wrap, reason = "flags of open(2) are a C int")]
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(without_waiting).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(base: &Path, command: &str, args: &[&str]) -> (Vec<String>, usize) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let covered = covered(command, None, &args, &[], base, &Roots::default());
        let name = |path: &PathBuf| path.strip_prefix(base).unwrap().display().to_string();
        (covered.files.iter().map(name).collect(), covered.warnings.len())
    }

    #[test]
    fn whatever_an_interpreter_would_run_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for (file, text) in [
            ("srv", "print()"),
            ("one/main.py", "import lib"),
            ("one/lib.py", ""),
            ("one/notes.txt", ""),
            ("one/__pycache__/lib.pyc", ""),
            ("app/__main__.py", ""),
            ("pkg/tool/__init__.py", ""),
            ("data/readme.txt", ""),
            ("data/x.py", ""),
            ("server.log", "log"),
            ("js/start.js", ""),
            ("js/lib.js", ""),
        ] {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), text).unwrap();
        }
        let of = |command: &str, args: &[&str]| names(base, command, args);
        assert_eq!(of("node", &["one/main.py"]), (vec!["one/lib.py".to_owned(), "one/main.py".to_owned()], 0));
        assert_eq!(of("python3", &["app/"]).0, ["app/__main__.py"]);
        assert!(of("python3", &["./srv"]).0.contains(&"srv".to_owned()));
        assert!(of("python3", &["-m", "pkg.tool"]).0.contains(&"pkg/tool/__init__.py".to_owned()));
        // The same in one word, and names that Node completes.
        for args in [&["-um", "pkg.tool"][..], &["-mpkg.tool"], &["-Imu.v"], &["-uBmpkg.tool"]] {
            let has_package = of("python3", args).0.contains(&"pkg/tool/__init__.py".to_owned());
            assert_eq!(has_package, args != ["-Imu.v"], "{args:?}");
        }
        assert_eq!(of("node", &["js/start"]).0, ["js/lib.js", "js/start.js"]);
        assert_eq!(of("node", &["--require=./js/lib", "server.log"]).0, ["js/lib.js", "js/start.js", "server.log"]);
        // A folder of data may change; a file that is named may be a script whatever it is called.
        assert_eq!(of("fs-server", &["data"]).0, [""; 0]);
        assert_eq!(of("python3", &["server.log"]).0, ["server.log"]);
        assert_eq!(
            of("awk", &["-f", "srv"]).0[0],
            "app/__main__.py",
            "of a program that is not known, everything that it names"
        );
        // What a script works on may change, and a person is told so; what stands before it may not.
        let (files, warnings) = of("python3", &["-u", "one/main.py", "--log", "server.log"]);
        assert_eq!((files, warnings), (vec!["one/lib.py".to_owned(), "one/main.py".to_owned()], 1));
        assert!(of("node", &["--require", "./server.log", "one/main.py"]).0.contains(&"server.log".to_owned()));
        assert!(of("node", &["--require", "data/x.py", "server.log"]).0.contains(&"server.log".to_owned()));
        assert_eq!(of("db-server", &["--db", "server.log"]), (vec![], 1));
        assert_eq!(of("python3", &["-c", "exec(open('srv').read())"]), (vec![], 1));
        assert_eq!(of("npm", &["start"]).1, 1);
    }

    #[test]
    fn what_a_virtual_environment_runs_at_each_start_is_covered_and_the_rest_is_said_not_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let packages = ".venv/lib/python3.13/site-packages";
        for file in [
            ".venv/pyvenv.cfg",
            ".venv/bin/python",
            &format!("{packages}/evil.pth"),
            &format!("{packages}/sitecustomize.py"),
            &format!("{packages}/pkg/__init__.py"),
            &format!("{packages}/pkg/server.py"),
            &format!("{packages}/other/__init__.py"),
            "srv/main.py",
        ] {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), "").unwrap();
        }
        let always = [&format!("{packages}/evil.pth"), &format!("{packages}/sitecustomize.py"), ".venv/pyvenv.cfg"];
        let (files, warnings) = names(base, ".venv/bin/python", &["srv/main.py"]);
        assert_eq!((files[..3].to_vec(), files[3].as_str()), (always.map(str::to_owned).to_vec(), "srv/main.py"));
        assert_eq!(warnings, 1, "packages that it imports are not covered, and that is said");
        let (files, _) = names(base, "./.venv/bin/python", &["-m", "pkg.server"]);
        let has = |end: &str| files.iter().any(|file| file.ends_with(end));
        assert!(
            has("pkg/__init__.py") && has("pkg/server.py") && has("evil.pth") && !has("other/__init__.py"),
            "{files:?}"
        );
        // The system's own interpreter, and one that only stands in a folder of that shape, have none.
        assert_eq!(names(base, "python3", &["srv/main.py"]), (vec!["srv/main.py".to_owned()], 0));
    }

    #[test]
    fn a_folder_that_is_too_much_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=MAX_FILES {
            fs::write(dir.path().join(format!("{number}.py")), "").unwrap();
        }
        let covered = covered("python3", None, &["0.py".to_owned()], &[], dir.path(), &Roots::default());
        assert_eq!((covered.files.len(), covered.warnings.len()), (MAX_FILES, 1));
    }

    #[test]
    fn s9_what_lies_beside_a_script_that_is_a_link_is_covered_where_it_really_is() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for file in [
            "node_modules/srv/dist/index.js",
            "node_modules/srv/dist/lib.js",
            "real/main.py",
            "real/lib.py",
            "s/own.py",
        ] {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), "").unwrap();
        }
        fs::create_dir(base.join("node_modules/.bin")).unwrap();
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, base.join(from)).unwrap();
        link("../srv/dist/index.js", "node_modules/.bin/srv");
        link("../real/main.py", "s/link.py");
        let of = |command: &str, args: &[&str]| names(&base, command, args).0;
        assert!(of("node", &["node_modules/.bin/srv"]).contains(&"node_modules/srv/dist/lib.js".to_owned()));
        assert_eq!(of("python3", &["s/link.py"]), ["real/lib.py", "real/main.py", "s/link.py", "s/own.py"]);
        // Also of one that only lies beside the script.
        assert!(of("python3", &["s/own.py"]).contains(&"real/lib.py".to_owned()));
    }

    #[test]
    fn s9_the_folder_that_a_launcher_is_told_to_work_in_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for file in
            ["o/server.py", "o/lib.py", "o/package.json", "o/Makefile", "o/uv.lock", "mod/__init__.py", "mod/lib.py"]
        {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), "").unwrap();
        }
        let whole = ["o/Makefile", "o/lib.py", "o/package.json", "o/server.py", "o/uv.lock"];
        for (command, args) in [
            ("uv", &["--directory", "o", "run", "server.py"][..]),
            ("uv", &["run", "--directory", "o", "server.py"]),
            ("uv", &["run", "--directory=o", "some-entry"]),
            ("uv", &["run", "--project", "o", "server.py"]),
            ("/usr/bin/uv", &["--directory", "o", "run", "server.py"]),
            ("npm", &["--prefix", "o", "run", "x"]),
            ("pnpm", &["-C", "o", "start"]),
            ("poetry", &["-C", "o", "run", "x"]),
            ("make", &["-C", "o", "serve"]),
            ("sudo", &["nice", "make", "-Co", "serve"]),
        ] {
            let (files, warnings) = names(base, command, args);
            assert_eq!((files, warnings), (whole.map(str::to_owned).to_vec(), 1), "{command} {args:?}");
        }
        let has = |command: &str, args: &[&str], file: &str| names(base, command, args).0.contains(&file.to_owned());
        assert!(has("env", &["-C", "o", "python3", "server.py"], "o/lib.py"));
        for args in [&["-m", "runpy", "mod"][..], &["-m", "uvicorn", "mod:app"], &["-mpdb", "mod"]] {
            assert!(has("python3", args, "mod/lib.py"), "{args:?}");
        }
        // Where nothing is, that is said.
        let (files, warnings) = names(base, "uv", &["--directory", "nowhere", "run", "server.py"]);
        assert_eq!((files.len(), warnings), (0, 2));
    }

    #[test]
    fn a_pipe_for_a_script_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("srv"), rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(names(dir.path(), "python3", &["srv"]).0, [""; 0]);
    }

    #[test]
    fn what_runs_write_counts_only_for_a_script_that_names_it_or_lies_there() {
        let dir = tempfile::tempdir().unwrap();
        let (base, known) = (dir.path().join("work"), Roots::new(Some(dir.path().join("state"))));
        let root = base.join("RUNS");
        fs::create_dir(&base).unwrap();
        known.make(&root).unwrap();
        let write = |file: &str, text: &str| {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), text).unwrap();
        };
        for file in ["srv.py", "lib.py", "RUNS/session_1/trace.json", "RUNS/session_1/made.py", "RUNS/locks/r.run"] {
            write(file, "x = 1");
        }
        // A checkout brings one of its own, with a number that the state folder does not know.
        write("theirs/.ua-root", &"0".repeat(32));
        write("theirs/session_1/evil.py", "");
        let of = |script: &str| {
            let covered = covered("python3", None, &[script.to_owned()], &[], &base, &known);
            let name = |path: &PathBuf| path.strip_prefix(&base).unwrap().display().to_string();
            (covered.files.iter().map(name).collect::<Vec<_>>(), covered.warnings)
        };
        let counts = ["lib.py", "srv.py", "theirs/.ua-root", "theirs/session_1/evil.py"];
        let (files, warnings) = of("srv.py");
        assert_eq!(files, counts);
        assert!(warnings.len() == 1 && warnings[0].starts_with("what runs write below "), "{warnings:?}");
        // One that is named counts.
        write("lib.py", "sys.path.append('RUNS')");
        let (files, warnings) = of("srv.py");
        let named = ["RUNS/.ua-root", "RUNS/session_1/made.py", "RUNS/session_1/trace.json"];
        assert_eq!(files, [&named[..], &counts].concat());
        assert!(warnings.len() == 1 && warnings[0].contains("lib.py names "), "{warnings:?}");
        write("lib.py", "");
        // So does one to which a map of names leads.
        write("package.json", r##"{"imports": {"#x": "./RUNS/session_1/made.js"}}"##);
        let (files, warnings) = of("srv.py");
        assert_eq!(&files[..3], named);
        assert!(warnings.len() == 1 && warnings[0].contains("package.json names "), "{warnings:?}");
        fs::remove_file(base.join("package.json")).unwrap();
        // A script that lies in a workspace counts with what lies beside it, and one in the root with what a person put there.
        assert_eq!(of("RUNS/session_1/made.py").0, &named[1..]);
        write("RUNS/top.py", "");
        write("RUNS/mine/a.py", "");
        assert_eq!(of("RUNS/top.py").0, ["RUNS/mine/a.py", "RUNS/top.py"]);
    }

    #[test]
    fn a_file_that_ua_reads_counts_only_where_the_server_is_told_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let write = |file: &str, text: &str| fs::write(base.join(file), text).unwrap();
        write("srv.py", "print()");
        write("job.json", r#"{"objective": "Write."}"#);
        write("policy.toml", "[[rule]]\nid = \"a\"\nname = \"send\"\napproval = \"ask\"\n");
        write(".mcp.json", r#"{"mcpServers": {}}"#);
        write("settings.json", "{}");
        let of = |args: &[&str], given: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let covered = covered("python3", None, &args, given, base, &Roots::default());
            let name = |path: &PathBuf| path.strip_prefix(base).unwrap().display().to_string();
            (covered.files.iter().map(name).collect::<Vec<_>>(), covered.warnings)
        };
        let (files, warnings) = of(&["srv.py"], &[]);
        assert_eq!(files, ["settings.json", "srv.py"]);
        assert!(warnings.len() == 1 && warnings[0].starts_with("files that ua itself reads are not covered: "));
        assert!(["job.json", "policy.toml", ".mcp.json"].iter().all(|name| warnings[0].contains(name)), "{warnings:?}");
        // In an argument, in a variable, in a script, and in other files that count.
        assert_eq!(of(&["srv.py", "--load=job.json"], &[]).0, ["job.json", "settings.json", "srv.py"]);
        assert_eq!(of(&["srv.py"], &["/else/where/policy.toml"]).0, ["policy.toml", "settings.json", "srv.py"]);
        write("srv.py", "json.load(open('job.json'))");
        let (files, warnings) = of(&["srv.py"], &[]);
        assert_eq!(files, ["job.json", "settings.json", "srv.py"]);
        assert!(
            warnings[0].contains("srv.py names ") && warnings[0].ends_with("job.json, so a change of it asks again")
        );
        write("srv.py", "print()");
        write("settings.json", r#"{"more": "./job"}"#);
        assert_eq!(of(&["srv.py"], &[]).0, ["job.json", "settings.json", "srv.py"]);
        // What is no job any more counts as whatever else lies there.
        write("settings.json", "{}");
        write("job.json", r#"{"objective": "Write.", "main": "evil.js"}"#);
        assert_eq!(of(&["srv.py"], &[]).0, ["job.json", "settings.json", "srv.py"]);
    }
}
