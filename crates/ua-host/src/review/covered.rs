//! What a command line names that decides what it does: programs, scripts and what lies beside them, folders and modules.
//!
//! An interpreter takes any file for a script, whatever its name; it runs a folder with an entry in it, or a module it is told by name; and
//! a script loads what lies beside it. So every file that an argument names counts, and of a script's folder everything that is code. Only what
//! comes behind the script of an interpreter that is known, and files of another program with the ending of data, may change, wherever they lie:
//! a server's own log would have a person asked each time. What else a program loads (its own installation, a text in its arguments, what it fetches)
//! nobody can tell from outside. A person is told of all of this.
//!
//! A launcher of a project is told what it runs by any file of the project's folder, in whatever language. So there everything counts that is not
//! data, and so it does in a folder from which a variable has code loaded ([`super::variables`]).
//!
//! What `ua` itself reads (jobs, policies, its settings) is nobody's code either, unless something that counts says its name ([`super::of_ua`]).
//!
//! Nor does what runs write into a folder of workspaces that lies beside a script: it would have a person asked after each run. Only a folder
//! that this user's `ua` made is taken for one, by what the user's state folder says of it; one that came with a checkout counts. And it
//! counts when a script says its name, because then the script may load what is in there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::deciding::deciding;
use super::env_words::split_string;
use super::fetchers::fetchers;
use super::kinds::{
    DATA, begins_with, has_ending, is_code, is_data_of_project, is_map, is_program_file, is_script, open,
};
use super::launchers::{CONTAINERS, Invocation, assignments, invocations, is_followed, name_of};
use super::{named, of_ua};
use crate::home::{DEFAULT_ROOT, is_written_by_runs};
use crate::roots::Roots;
use ua_core::ShowPath as _;

/// Programs whose first argument that is no option is a script, which has the rest for itself.
const INTERPRETERS: [&str; 14] =
    ["Rscript", "bash", "bun", "deno", "julia", "lua", "node", "perl", "php", "pypy", "python", "ruby", "sh", "zsh"];
/// Options that name folders from which code is loaded, alone or with the first of them in the same word (`-Ilib`).
const LOADS_FROM: [&str; 5] = ["--class-path", "--module-path", "-I", "-classpath", "-cp"];
/// Options that show a container a folder of this machine.
const SHOWS: [&str; 3] = ["--mount", "--volume", "-v"];
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
const PASSED_OVER: [&str; 8] =
    [".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".svn", ".venv", "__pycache__"];
/// Folders of what was fetched or built. They are looked through last, so that they leave room for what they were made of.
const BULKY: [&str; 7] = [".gradle", "build", "dist", "node_modules", "obj", "target", "vendor"];

/// As much is read of a file of arguments.
const MAX_ARGUMENTS: u64 = 64 * 1024;

/// How many files of folders are looked at, and how deep.
const MAX_FILES: usize = 2_000;
const MAX_DEPTH: usize = 8;

/// What of a folder counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    /// What some interpreter or loader takes for code.
    Code,
    /// Whatever is not data.
    All,
}

impl Counts {
    fn has(self, path: &Path) -> bool {
        match self {
            Self::Code => is_code(path) || path.extension().is_none(),
            Self::All => !is_data_of_project(path),
        }
    }
}

/// What a command line names.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// Files that count, each by its content.
    pub(super) files: BTreeSet<PathBuf>,
    /// Those of them that words or variables name as what is run or loaded, whatever is in them.
    pub(super) named: BTreeSet<PathBuf>,
    /// Those of them that count only because a word or a variable names a file that may be code as well as what a program works on.
    pub(super) perhaps: BTreeSet<PathBuf>,
    /// Such files, until everything else is looked through.
    may_be_code: Vec<PathBuf>,
    /// Files that the words behind a script name, and that are no code: it works on them.
    worked_on: BTreeSet<PathBuf>,
    /// What cannot be covered, as sentences.
    pub(super) warnings: Vec<String>,
    /// Folders that were looked through, by where they really are, and from how deep.
    seen: BTreeMap<(PathBuf, Counts), usize>,
    /// Folders that are looked through when the others were, from how deep.
    later: Vec<(PathBuf, usize, Counts)>,
    /// Folders of workspaces beside scripts.
    roots: BTreeSet<PathBuf>,
    /// The one of them that counts.
    whole_root: Option<PathBuf>,
    /// Files beside scripts that `ua` reads itself.
    of_ua: BTreeSet<PathBuf>,
    known: Roots,
}

/// Whatever `command` with `args`, run in `base`, names. `known` says which folders hold this user's runs: what those write there is nobody's
/// code, unless a script names such a folder, or lies in it. `given` are the variables that the server is given besides, `home` is the user's.
pub(super) fn covered(
    command: &str,
    program: Option<&Path>,
    args: &[String],
    given: &[(&str, &str)],
    base: &Path,
    known: &Roots,
    home: Option<&Path>,
) -> Covered {
    let mut covered = Covered { known: known.clone(), ..Covered::default() };
    // A script that is the program itself loads what lies beside it, too; the system's own do not change by a checkout. Of one that is a
    // link some programs look beside the link, and some where it leads.
    if let Some(program) = program.filter(|program| command.contains('/') && begins_with(program, *b"#!")) {
        covered.beside(program);
        covered.name(&base.join(command));
    }
    let all = invocations(command, args, base);
    let (mut launchers, mut explained) = (Vec::new(), BTreeSet::new());
    for (number, invocation) in all.iter().enumerate() {
        // Behind a launcher stands what it looks for in PATH, or a script of its folder: `deno run main.ts`.
        let started = invocation.base.join(&invocation.command);
        if number > 0 && (invocation.command.contains('/') || started.is_file()) {
            covered.name(&started);
        }
        for project in &invocation.projects {
            let name = name_of(&invocation.command);
            covered.project(project);
            covered.warn(format!(
                "`{name}` decides by files of {} what it runs: all that is not data counts there, and what it takes from elsewhere does not",
                project.shown()
            ));
            launchers.push(name.to_owned());
        }
        if covered.invocation(invocation) {
            explained.insert((&invocation.command, &invocation.args));
        }
        covered.loaded_by_name(invocation, home);
        let of_words = assignments(&invocation.args);
        covered.variables(of_words.iter().map(|(name, value)| (name.as_str(), value.as_str())), &invocation.base);
        covered.variables(given.iter().copied(), &invocation.base);
    }
    // In one of the folders that it may be started in its words may explain it, and of what a launcher of a project starts the project is covered.
    let own = all.iter().take_while(|invocation| invocation.projects.is_empty());
    for Invocation { command, args, base, .. } in own {
        if !explained.contains(&(command, args)) && has_code(base, 0) {
            covered.warn(format!(
                "`{}` may run code of {} that its words do not name, and that is not covered",
                name_of(command),
                base.shown()
            ));
        }
    }
    let bases: BTreeSet<&Path> = all.iter().map(|invocation| invocation.base.as_path()).collect();
    for fetcher in fetchers(command, args) {
        for base in &bases {
            covered.fetched(&fetcher, base, home);
        }
    }
    covered.what_is_bulky();
    covered.what_may_be_code();
    if let Some(launcher) = launchers.first().filter(|_| covered.files.is_empty()) {
        covered.warn(format!(
            "nothing of what `{launcher}` runs is covered: there is no code in the folder that it works in"
        ));
    }
    covered.what_runs_write();
    let projects = all.iter().flat_map(|invocation| invocation.projects.iter().cloned()).collect();
    covered.what_launchers_decide_by(&projects);
    covered.what_it_works_on();
    covered.what_ua_reads(args.iter().map(String::as_str).chain(given.iter().map(|(_, value)| *value)));
    covered
}

impl Covered {
    /// What the words of one command line name. Returns whether they say which code it runs, as far as that is in the checkout.
    fn invocation(&mut self, invocation: &Invocation) -> bool {
        let covered = self;
        let Invocation { command, base, .. } = invocation;
        let name = name_of(command);
        let args = &covered.with_arguments_of_files(&invocation.args, base, &mut BTreeSet::new());
        if let Some(venv) = virtual_environment(command, base) {
            covered.virtual_environment(&venv);
        }
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_interpreter = INTERPRETERS.contains(&plain);
        let is_python = matches!(plain, "python" | "pypy");
        let is_node = matches!(plain, "node" | "nodejs" | "bun");
        if matches!(plain, "R" | "Rscript") {
            covered.files.extend(
                [".Rprofile", ".Renviron"].map(|name| base.join(name)).into_iter().filter(|path| path.is_file()),
            );
        }
        // Its modules are looked for in the folder that it works in before any other.
        if matches!(plain, "lua" | "luajit") {
            covered.folder(base, 0, Counts::Code);
        }
        let mut has_script = false;
        let is_of_the_checkout = command.contains('/') && named::inside(base, command).is_some();
        // Of a program of the checkout, and behind a word that is code, a word may name what it works on as well as what it loads.
        let mut may_work_on = is_of_the_checkout && !is_interpreter && !MODULE_RUNNERS.contains(&name);
        // `-m runpy server` runs another module, and so does `uvicorn server:app`.
        let mut runs_another = MODULE_RUNNERS.contains(&name);
        let mut runs_a_text = false;
        for (index, arg) in args.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| args.get(before)).map(String::as_str);
            let value = arg.split_once('=').map(|(_, value)| value);
            for named in [Some(arg.as_str()), value].into_iter().flatten().filter(|named| !named.is_empty()) {
                let path = base.join(named);
                let is_behind_the_script = is_interpreter && has_script && !is_code(&path);
                let is_data = has_ending(&path, &DATA) && (has_script || !is_interpreter);
                if is_behind_the_script || is_data {
                    if path.is_file() {
                        covered.warn(format!("{} is taken for data: changes of it ask nothing", path.shown()));
                        covered.worked_on.insert(path);
                    }
                    continue;
                }
                covered.name_or_count(&path, may_work_on);
                may_work_on |= is_code(&path) && !has_ending(&path, &DATA) && path.is_file();
                if let Some(script) = is_node.then(|| without_ending(&path)).flatten() {
                    covered.name(&script);
                }
            }
            if !has_script {
                covered.within(arg, before, base, CONTAINERS.contains(&name), may_work_on);
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
                // Whatever the module is: the first place where its imports are looked for is the folder that Python works in.
                if is_python && !args[..=index].iter().any(|arg| is_isolating(arg)) {
                    covered.folder(base, 0, Counts::Code);
                }
                runs_another |= MODULE_RUNNERS.contains(&module.split('.').next().unwrap_or_default());
                for packages in virtual_environment(command, base).iter().flat_map(|venv| site_packages(venv)) {
                    covered.installed(&packages, module);
                }
            }
            if !has_script && matches!(arg.as_str(), "-c" | "-e" | "--eval" | "-p" | "--print" | "-ec" | "-lc") {
                covered.warn(format!("it runs the text behind {arg}; files that the text loads are not covered"));
                runs_a_text = true;
            }
            let names_a_script = || {
                let path = base.join(arg);
                path.exists() || (is_node && without_ending(&path).is_some())
            };
            if runs_another && module.is_none() && !arg.starts_with('-') {
                // `uvicorn server:app`
                has_script |= covered.module(base, arg.split(':').next().unwrap_or_default());
            }
            has_script |=
                (module.is_some() && !runs_another) || (!arg.starts_with('-') && !is_of_an_option && names_a_script());
        }
        let is_known = (is_interpreter && (has_script || runs_a_text)) || (has_script && runs_another);
        is_known || is_of_the_checkout || is_followed(name)
    }
}

/// Whether code lies in a folder, or right below it.
fn has_code(folder: &Path, depth: usize) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.into_iter().any(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_passed_over = name.starts_with('.') || name == DEFAULT_ROOT || PASSED_OVER.contains(&name);
        !is_passed_over
            && ((path.is_file() && is_code(&path) && !of_ua::is_of_ua(&path))
                || (depth == 0 && path.is_dir() && has_code(&path, depth + 1)))
    })
}

/// The Python virtual environment that a command is a program of: a folder with a `pyvenv.cfg`, above the command's own.
fn virtual_environment(command: &str, base: &Path) -> Option<PathBuf> {
    let program = base.join(command);
    let venv = program.parent()?.parent().filter(|_| command.contains('/'))?;
    venv.join("pyvenv.cfg").is_file().then(|| venv.to_path_buf())
}

/// Where the packages of a virtual environment are. Where `lib64` is a link to `lib`, as most have it, they are named once.
fn site_packages(venv: &Path) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let versions = ["lib", "lib64"].into_iter().flat_map(|lib| entries(venv.join(lib)));
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.join("site-packages")).filter(|p| p.is_dir()).collect();
    found.sort();
    // `lib` sorts before `lib64`, and stays.
    let mut seen = BTreeSet::new();
    found.retain(|packages| fs::canonicalize(packages).map_or(true, |place| seen.insert(place)));
    found
}

/// What stands behind the `m` of Python's options, which may be written in one word: `-m`, `-um`, `-mserver`.
fn module_option(arg: &str) -> Option<&str> {
    let (flags, module) = arg.strip_prefix('-')?.split_once('m')?;
    // Of the letters before it none takes a value, or the `m` would be one.
    flags.chars().all(|flag| "bBdEiIOPqRsSuvx".contains(flag)).then_some(module)
}

/// Whether an option of Python has it look for modules elsewhere than in the folder that it works in.
pub(super) fn is_isolating(arg: &str) -> bool {
    let letters = arg.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
    let letters = letters.split(['c', 'm', 'W', 'X']).next().unwrap_or_default();
    letters.contains(['I', 'P'])
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
    pub(super) fn warn(&mut self, what: String) {
        if !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    /// The words with those of the files that some of them name behind `@`: many programs read their arguments from there. Such a file counts,
    /// whatever its ending is.
    fn with_arguments_of_files(&mut self, args: &[String], base: &Path, read: &mut BTreeSet<PathBuf>) -> Vec<String> {
        let mut all = Vec::new();
        for arg in args {
            all.push(arg.clone());
            let file = arg.strip_prefix('@').map(|file| base.join(file)).filter(|file| file.is_file());
            // Each once: one may name itself.
            let Some(file) = file.filter(|file| read.len() < MAX_DEPTH && read.insert(file.clone())) else { continue };
            self.name(&file);
            let mut text = Vec::new();
            let opened = open(&file).and_then(|file| file.take(MAX_ARGUMENTS).read_to_end(&mut text));
            let words = opened.map(|_| split_string(&String::from_utf8_lossy(&text))).unwrap_or_default();
            all.extend(self.with_arguments_of_files(&words, base, read));
        }
        all
    }

    /// What stands within a word: `-Ilib`, `-javaagent:x.jar`, `@arguments`, `EXEC:./x`, `./p:/p`.
    fn within(&mut self, arg: &str, before: Option<&str>, base: &Path, is_container: bool, may_work_on: bool) {
        let loads = |option: &str| LOADS_FROM.contains(&option);
        let loads_from = before.is_some_and(loads) || arg.starts_with("-I") || arg.split('=').next().is_some_and(loads);
        let shows = |option: &str| is_container && SHOWS.contains(&option);
        let is_shown = before.is_some_and(shows) || arg.split('=').next().is_some_and(shows);
        for path in named::pieces(arg).into_iter().filter_map(|piece| named::inside(base, piece)) {
            if path.is_dir() && loads_from {
                self.whole(&path);
            } else if path.is_dir() && is_shown {
                self.folder(&path, 0, Counts::Code);
            } else if path.is_file() && base.join(arg) != path && !has_ending(&path, &DATA) {
                self.name_or_count(&path, may_work_on);
            }
        }
    }

    /// One file that counts.
    pub(super) fn file(&mut self, file: &Path) {
        self.files.insert(file.to_path_buf());
    }

    /// A folder of which everything counts that is not data.
    pub(super) fn whole(&mut self, folder: &Path) {
        self.folder(folder, 0, Counts::All);
    }

    /// A folder of what was fetched, of which everything counts that is not data, as far as there is room when the others were looked through.
    pub(super) fn fetched_before(&mut self, folder: PathBuf) {
        self.later.push((folder, 0, Counts::All));
    }

    /// Folders of what was fetched or built.
    fn what_is_bulky(&mut self) {
        while let Some((folder, depth, counts)) = self.later.pop() {
            self.folder(&folder, depth, counts);
        }
    }

    /// Files that words and variables name, and that may be code, with what lies beside them then. They come last, so that what counts anyway
    /// is known without them.
    fn what_may_be_code(&mut self) {
        let certain = self.files.clone();
        for path in std::mem::take(&mut self.may_be_code) {
            self.count(&path);
        }
        self.what_is_bulky();
        self.perhaps = self.files.difference(&certain).cloned().collect();
    }

    /// The folder of a project that a launcher works in.
    fn project(&mut self, folder: &Path) {
        self.whole(folder);
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

    /// What a word names as a program, a script, or what is loaded.
    pub(super) fn name(&mut self, path: &Path) {
        if path.is_file() {
            self.named.insert(path.to_path_buf());
        }
        self.count(path);
    }

    /// What a word names that is run or loaded, unless it may also be what the program works on, and is no code.
    fn name_or_count(&mut self, path: &Path, may_work_on: bool) {
        if may_work_on {
            self.may_be_code(path);
        } else {
            self.name(path);
        }
    }

    /// What is named by a word or a variable that may be about code or about data.
    pub(super) fn may_be_code(&mut self, path: &Path) {
        if path.is_dir() || is_program_file(path) {
            self.name(path);
        } else {
            self.may_be_code.push(path.to_path_buf());
        }
    }

    /// What a word names, whatever for: a file with what lies beside it, a folder that is a program.
    fn count(&mut self, path: &Path) {
        let Ok(meta) = fs::metadata(path) else { return };
        if meta.is_dir() {
            if ENTRIES.iter().any(|entry| path.join(entry).exists()) {
                self.folder(path, 0, Counts::Code);
            }
        } else if meta.is_file() {
            self.files.insert(path.to_path_buf());
            if is_code(path) || is_script(path) {
                self.beside(path);
                self.where_it_leads(path);
            }
        }
    }

    /// A Python module in the folder that the program works in. Returns whether there is one.
    fn module(&mut self, base: &Path, module: &str) -> bool {
        let path = base.join(module.replace('.', "/"));
        let is_there = path.is_dir() || path.with_extension("py").is_file();
        self.name(&path.with_extension("py"));
        // A package needs no entry to be one.
        if path.is_dir() {
            self.folder(&path, 0, Counts::Code);
        }
        // Its own imports begin in the folder that it is run in.
        if is_there {
            self.folder(base, 0, Counts::Code);
        }
        is_there
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
                    self.warn(format!("not all .pth files of {} are covered: there are too many", packages.shown()));
                    return;
                }
            }
            let what = "packages that are not named by -m are not covered";
            self.warn(format!("of {} its .pth files count; {what}", packages.shown()));
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
            self.folder(&folder, 0, Counts::Code);
        }
    }

    /// What launchers decide by in their projects is named by them, as a script is by the words of its interpreter.
    fn what_launchers_decide_by(&mut self, projects: &BTreeSet<PathBuf>) {
        let worked_on: BTreeSet<_> = self.worked_on.iter().filter_map(|file| place(file)).collect();
        let is_worked_on =
            |file: &Path| !worked_on.is_empty() && place(file).is_some_and(|place| worked_on.contains(&place));
        let found = deciding(projects, &self.files, is_worked_on);
        self.files.extend(found.iter().cloned());
        self.named.extend(found);
    }

    /// Says what becomes of the folders of workspaces that were met: a script that names one may load what lies there.
    fn what_runs_write(&mut self) {
        let roots = std::mem::take(&mut self.roots);
        let mut said = Said::of(roots.iter().filter_map(|root| root.file_name()));
        for root in roots {
            let Some(name) = root.file_name() else { continue };
            let Some(by) = said.by(name, &self.files) else {
                self.warn_of_runs(&root);
                continue;
            };
            self.warn(format!(
                "{} names {}, so what runs write there counts, and asks again",
                by.shown(),
                root.shown()
            ));
            self.whole_root = Some(root.clone());
            self.seen.clear();
            self.folder(&root, 0, Counts::Code);
            self.what_is_bulky();
            self.whole_root = None;
        }
        // One that lies in another is as good as named with it.
        self.roots.clear();
    }

    fn warn_of_runs(&mut self, root: &Path) {
        self.warn(format!("what runs write below {} is not covered", root.shown()));
    }

    /// Takes out what the words behind a script name as its data: it lies beside many a script without an ending, as code may, and a person was told
    /// that a change of it asks nothing.
    fn what_it_works_on(&mut self) {
        let worked_on: BTreeSet<_> =
            std::mem::take(&mut self.worked_on).iter().filter_map(|file| place(file)).collect();
        let named = &self.named;
        self.files.retain(|file| {
            let is_program = named.contains(file) || is_program_file(file) || is_map(file);
            is_program || place(file).is_none_or(|place| !worked_on.contains(&place))
        });
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
            named.extend(left.iter().copied().filter(said).map(|file| ("the configuration names".to_owned(), file)));
            left.retain(|file| !said(file));
        }
        for code in &self.files {
            if left.is_empty() {
                break;
            }
            let (says, said) = of_ua::said_by(code, &left);
            left.retain(|file| !said.contains(file));
            named.extend(said.into_iter().map(|file| (format!("{} {says}", code.shown()), file)));
        }
        for (by, file) in named {
            self.warn(format!("{by} {}, so a change of that asks again", file.shown()));
            self.files.insert(file.clone());
        }
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|file| file.shown().to_string()).collect();
            self.warn(format!(
                "these jobs, policies and other files of ua beside it may change without a question, because neither its words nor its code name them: {}",
                names.join(", ")
            ));
        }
    }

    fn beside(&mut self, script: &Path) {
        if let Some(folder) = script.parent() {
            self.folder(folder, 0, Counts::Code);
        }
    }

    /// All code in a folder and below, or all that is not data.
    fn folder(&mut self, folder: &Path, depth: usize, counts: Counts) {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        // What `ua` notes there is no code, and it notes there that somebody trusts a server.
        if self.known.is_state(&real) {
            return;
        }
        if self.seen.get(&(real.clone(), counts)).is_some_and(|before| *before <= depth) {
            return;
        }
        self.seen.insert((real, counts), depth);
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        // What lies here before what lies below.
        entries.sort_by_cached_key(|path| (path.is_dir(), path.clone()));
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
                    self.warn(format!("not all of {} is covered: it is too much", folder.shown()));
                    return;
                }
                if BULKY.contains(&name) {
                    self.later.push((path, depth + 1, counts));
                } else {
                    self.folder(&path, depth + 1, counts);
                }
            } else if meta.is_file() && counts.has(&path) {
                if is_too_much {
                    self.warn(format!("not all of {} is covered: it is too much", folder.shown()));
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

/// Where a file is, by the folder that it really is in, and not by where a link leads: another name of it may be code.
fn place(file: &Path) -> Option<(PathBuf, OsString)> {
    file.parent().and_then(|folder| folder.canonicalize().ok()).zip(file.file_name().map(OsStr::to_owned))
}

/// How much of a script is looked through for the name of a folder.
const LOOKED_THROUGH: u64 = 4 * 1024 * 1024;

/// Which of some names files of code have in them. Each file is read once for all of them: there may be many folders of runs beside a script, and
/// all that they hold may count.
struct Said {
    /// By each name, the file that was found to say it.
    by: BTreeMap<OsString, Option<PathBuf>>,
    read: BTreeSet<PathBuf>,
}

impl Said {
    fn of<'n>(names: impl Iterator<Item = &'n OsStr>) -> Self {
        Self { by: names.map(|name| (name.to_owned(), None)).collect(), read: BTreeSet::new() }
    }

    /// The file among these, and those that were looked at before, that says a name.
    fn by(&mut self, name: &OsStr, files: &BTreeSet<PathBuf>) -> Option<PathBuf> {
        let is_known = |by: &BTreeMap<_, Option<_>>| by.get(name).is_some_and(Option::is_some);
        if !is_known(&self.by) {
            for file in files {
                if self.read.insert(file.clone()) {
                    says(file, &mut self.by);
                }
            }
        }
        self.by.get(name).cloned().flatten()
    }
}

/// Notes of a file of code, or of one that says where code is, which of the names it has in it of which no file is known yet.
fn says(file: &Path, names: &mut BTreeMap<OsString, Option<PathBuf>>) {
    let is_data = has_ending(file, &DATA) || has_ending(file, &["toml"]) || !(is_code(file) || is_script(file));
    if is_data && !is_map(file) {
        return;
    }
    let mut text = Vec::new();
    // One that cannot be read may have any.
    let is_unread = open(file).and_then(|file| file.take(LOOKED_THROUGH).read_to_end(&mut text)).is_err();
    for (name, by) in names.iter_mut().filter(|(_, by)| by.is_none()) {
        let name = name.as_encoded_bytes();
        if is_unread || (!name.is_empty() && memchr::memmem::find(&text, name).is_some()) {
            *by = Some(file.to_path_buf());
        }
    }
}

/// Whether an interpreter may take what follows this argument for its value: of what is not known, it may.
fn takes_a_value(arg: &str) -> bool {
    arg.starts_with('-') && !arg.contains('=') && !arg.starts_with("--no-") && !SWITCHES.contains(&arg)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests;
