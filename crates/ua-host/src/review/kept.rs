//! What in the folder of a launcher's project is plainly something that a program keeps, and none of what the project is made of.
//!
//! A launcher builds and runs whatever its project is made of, in languages and by files that nobody can list. So there everything counts, on a
//! resume too, but for what is named here: data, what builders make again, and what has no ending and no name of a setting. It is the shorter list:
//! a program of a project has any ending, what servers keep has few. A name that is missing here asks a person once more than was needed.
//! Proved by: this file's tests, and those of `launch/known.rs`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::kinds::{DATA, DATA_OF_PROJECTS, begins_with, has_ending};

/// Endings of what programs write, besides those of data.
pub(super) const KEPT: [&str; 116] = [
    "7z",
    "aac",
    "aof",
    "arrow",
    "avi",
    "avif",
    "avro",
    "bak",
    "bin",
    "bz2",
    "cache",
    "cert",
    "ckpt",
    "coverage",
    "crt",
    "css",
    "dat",
    "data",
    "diff",
    "duckdb",
    "dump",
    "eml",
    "eot",
    "epub",
    "err",
    "faiss",
    "feather",
    "flac",
    "geojson",
    "gpx",
    "gz",
    "h5",
    "har",
    "hdf5",
    "heic",
    "htm",
    "html",
    "ics",
    "idx",
    "index",
    "journal",
    "key",
    "kml",
    "lck",
    "ldb",
    "ldif",
    "lmdb",
    "lock",
    "lockb",
    "lockfile",
    "m4a",
    "mbox",
    "mdb",
    "mkv",
    "mov",
    "msgpack",
    "npy",
    "npz",
    "odp",
    "ods",
    "odt",
    "ogg",
    "old",
    "onnx",
    "opus",
    "orc",
    "orig",
    "otf",
    "out",
    "part",
    "patch",
    "pb",
    "pem",
    "pickle",
    "pid",
    "pkl",
    "pptx",
    "prof",
    "psd",
    "pt",
    "pub",
    "rar",
    "rdb",
    "rdf",
    "rej",
    "resolved",
    "rtf",
    "safetensors",
    "sav",
    "shm",
    "sock",
    "srt",
    "sst",
    "sum",
    "swo",
    "swp",
    "tar",
    "tgz",
    "tif",
    "tiff",
    "trace",
    "tsbuildinfo",
    "usage",
    "vcf",
    "vtt",
    "wal",
    "wav",
    "webm",
    "webmanifest",
    "wma",
    "wmv",
    "xls",
    "xlsx",
    "xz",
    "zip",
    "zst",
];
/// Endings of what builders make out of what counts.
const BUILT: [&str; 24] = [
    "a", "beam", "cmi", "cmo", "cmt", "cmti", "cmx", "cmxa", "elc", "exe", "gcda", "gch", "gcno", "hi", "lib", "map",
    "mod", "o", "obj", "pch", "pdb", "pyo", "rlib", "rmeta",
];
/// Folders in which builders and tools keep what they can make again. What has the ending of code, or of a setting, counts there as well.
const FOLDERS: [&str; 42] = [
    ".angular",
    ".bloop",
    ".build",
    ".cache",
    ".dart_tool",
    ".direnv",
    ".eggs",
    ".gradle",
    ".idea",
    ".ipynb_checkpoints",
    ".metals",
    ".mypy_cache",
    ".next",
    ".nox",
    ".nuxt",
    ".nyc_output",
    ".parcel-cache",
    ".pixi",
    ".pytest_cache",
    ".ruff_cache",
    ".stack-work",
    ".svelte-kit",
    ".terraform",
    ".tox",
    ".turbo",
    ".vite",
    ".vs",
    ".zig-cache",
    "_build",
    "build",
    "coverage",
    "dist",
    "dist-newstyle",
    "elm-stuff",
    "log",
    "logs",
    "node_modules",
    "obj",
    "out",
    "target",
    "zig-cache",
    "zig-out",
];
/// What is in the name of a file of settings that has no ending.
const SETTINGS: [&str; 3] = ["bazel", "config", "toolchain"];
/// What such a name ends with.
const ENDS_OF_SETTINGS: [&str; 3] = ["-version", "file", "rc"];
/// Names with that end of what programs keep.
const STATES: [&str; 3] = ["lockfile", "logfile", "pidfile"];
/// What is in the name of a file of settings that is JSON.
const SETTINGS_IN_JSON: [&str; 10] = [
    "config",
    "import-map",
    "import_map",
    "importmap",
    "launch",
    "manifest",
    "package.",
    "preset",
    "settings",
    "workspace.",
];
/// Names of files without an ending that are written large and decide nothing: texts for people, and what databases of keys keep.
const LARGE: [&str; 14] = [
    "AUTHORS",
    "CHANGELOG",
    "CHANGES",
    "CONTRIBUTORS",
    "COPYING",
    "CURRENT",
    "IDENTITY",
    "LICENSE",
    "LOCK",
    "LOG",
    "MANIFEST",
    "NOTICE",
    "README",
    "TODO",
];

/// Whether a file of a launcher's `project` is plainly none of those that it is made of.
pub(super) fn is_kept(project: &Path, file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_in = |folder: &Path| folder.file_name().and_then(OsStr::to_str).is_some_and(|name| FOLDERS.contains(&name));
    if file.ancestors().skip(1).take_while(|above| *above != project).any(is_in) {
        return true;
    }
    match file.extension().and_then(OsStr::to_str) {
        // A name that is none in this encoding has an ending that nobody here knows.
        None if file.extension().is_some() => false,
        None => !(is_setting(name) || is_written_large(name) || is_executable(file)),
        Some("json") => is_lock(name) || !(name.starts_with('.') || is_setting_in_json(name)),
        // What a compiler notes of the files that a program was made of.
        Some("d") => file.with_extension("o").exists(),
        Some(ending) => {
            let is_number = ending.bytes().all(|byte| byte.is_ascii_digit());
            let is_data = has_ending(file, &DATA) || has_ending(file, &DATA_OF_PROJECTS) || KEPT.contains(&ending);
            is_number || is_data || BUILT.contains(&ending) || name.ends_with('~') || is_lock(name)
        }
    }
}

/// What a launcher writes itself at its first start.
fn is_lock(name: &str) -> bool {
    ["-lock.json", "-lock.yaml", "-lock.yml", ".lock.hcl", "shrinkwrap.json"].iter().any(|end| name.ends_with(end))
}

fn is_setting(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = ENDS_OF_SETTINGS.iter().any(|end| name.ends_with(end)) && !STATES.contains(&name.as_str());
    ends || SETTINGS.iter().any(|word| name.contains(word))
}

fn is_setting_in_json(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("rc.json") || SETTINGS_IN_JSON.iter().any(|word| name.contains(word))
}

/// As the files of builders are that have no ending: `Makefile`, `BUCK`.
fn is_written_large(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && !LARGE
            .iter()
            .any(|large| name.strip_prefix(large).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

/// Whether a file may be run by its name, and is none that a compiler made.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0) && !begins_with(file, *b"\x7fE")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lists_are_in_order_and_say_nothing_twice() {
        for list in [&KEPT[..], &BUILT, &FOLDERS, &SETTINGS, &ENDS_OF_SETTINGS, &STATES, &SETTINGS_IN_JSON, &LARGE] {
            let mut sorted = list.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted, list);
        }
    }

    /// Each ending of one to three letters that is not named here, and each of those that a stranger found open.
    #[test]
    fn whatever_ending_nobody_thought_of_is_what_a_project_is_made_of() {
        let project = Path::new("/nowhere/p");
        let letters: Vec<char> = ('a'..='z').collect();
        let mut endings: Vec<String> = Vec::new();
        for first in &letters {
            endings.push(first.to_string());
            for second in &letters {
                endings.push(format!("{first}{second}"));
                endings.extend(letters.iter().map(|third| format!("{first}{second}{third}")));
            }
        }
        let known: usize =
            endings.iter().filter(|ending| is_kept(project, &project.join(format!("src/x.{ending}")))).count();
        assert!(known < 130, "{known} of {}", endings.len());
        for name in [
            "src/a.hpp",
            "src/core.hpp",
            "src/a.cxx",
            "src/a.inc",
            "src/a.s",
            "src/a.f90",
            "src/a.d",
            "src/a.y",
            "a.mli",
            "A.lhs",
            "a.m",
            "a.pyx",
            "a.vue",
            "a.svelte",
            "a.coffee",
            "deno.jsonc",
            "build.sbt",
            "project/plugins.sbt",
            "build.zig",
            "BUCK",
            ".buckconfig",
            "lib/tasks/x.rake",
            "rebar.config",
            "cabal.project",
            ".mvn/jvm.config",
            ".mvn/maven.config",
            "Properties/launchSettings.json",
            "Program.vb",
            "x.vbproj",
            "nuget.config",
            "config.ru",
            "main.sc",
            "tools/bazel",
            "WORKSPACE.bzlmod",
            "CMakePresets.json",
            "turbo.jsonc",
            "docker-bake.hcl",
            ".cargo/config",
            "rust-toolchain",
            ".babelrc",
            ".swcrc",
            ".mocharc.json",
            "tsconfig.base.json",
            "import-map.json",
            "workspace.json",
            "Makefile.local",
        ] {
            assert!(!is_kept(project, &project.join(name)), "{name}");
        }
        for name in [
            "state",
            ".state",
            "effects",
            "data/store",
            "a.json",
            "data/x.json",
            "package-lock.json",
            "pnpm-lock.yaml",
            "uv.lock",
            "go.sum",
            "a.log.1",
            "a.pid",
            "CURRENT",
            "LOCK",
            "MANIFEST-000001",
            "target/x.foo",
            ".gradle/8.5/x.probe",
            "a.o",
            "report.html",
            "mail.eml",
            "tasks.json",
            "logfile",
            "projects.json",
        ] {
            assert!(is_kept(project, &project.join(name)), "{name}");
        }
    }

    #[test]
    fn what_may_be_run_by_its_name_counts_unless_a_compiler_made_it() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, text, is_own) in
            [(0o644, "x", false), (0o755, "x", true), (0o755, "\x7fELF", false), (0o600, "#!/bin/sh\n", false)]
        {
            let file = dir.path().join("x");
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(!is_kept(dir.path(), &file), is_own, "{mode:o} {text}");
        }
        // What gcc notes beside what it made.
        let noted = dir.path().join("a.d");
        assert!(!is_kept(dir.path(), &noted));
        fs::write(dir.path().join("a.o"), "").unwrap();
        assert!(is_kept(dir.path(), &noted));
    }
}
