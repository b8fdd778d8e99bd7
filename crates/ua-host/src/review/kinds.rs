//! What kind of file something is, by its name and its first bytes: code, data, a map of names, what a program built.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Endings of files that an interpreter or a loader takes for code, or that say what code is loaded.
const CODE: [&str; 64] = [
    "R", "awk", "bash", "c", "cc", "cjs", "class", "clj", "cpp", "cr", "cs", "cts", "dart", "dll", "dylib", "el",
    "erl", "ex", "exs", "fish", "fs", "go", "gradle", "groovy", "h", "hs", "jar", "java", "jl", "js", "json", "jsx",
    "kt", "kts", "lisp", "lua", "mjs", "mk", "ml", "mts", "nim", "nix", "node", "php", "pl", "pm", "ps1", "pth", "py",
    "pyc", "pyd", "pyw", "rb", "rs", "scala", "sh", "so", "swift", "tcl", "toml", "ts", "tsx", "wasm", "zip",
];
/// Endings of files that a program works on.
pub(super) const DATA: [&str; 15] = [
    "csv", "db", "jpg", "json", "jsonl", "log", "md", "ndjson", "parquet", "pdf", "png", "sqlite", "sqlite3", "tsv",
    "txt",
];
/// More of them, which nothing in the folder of a project loads code by. All else there counts, and so does what is JSON.
pub(super) const DATA_OF_PROJECTS: [&str; 20] = [
    "bmp",
    "db-journal",
    "db-shm",
    "db-wal",
    "doc",
    "docx",
    "gif",
    "ico",
    "jpeg",
    "mp3",
    "mp4",
    "sqlite-journal",
    "sqlite-shm",
    "sqlite-wal",
    "svg",
    "tmp",
    "ttf",
    "webp",
    "woff",
    "woff2",
];
/// Beginnings of names that say what a launcher builds or fetches, though they have the ending of data.
const TEXTS_OF_LAUNCHERS: [&str; 3] = ["CMakeLists", "constraints", "requirements"];
/// Files that tell a loader where names of code lead, though they have the ending of data.
const MAPS: [&str; 7] =
    ["bunfig.toml", "deno.json", "import_map.json", "jsconfig.json", "package.json", "pyproject.toml", "tsconfig.json"];

/// Whether a file tells a loader where names of code lead.
pub(super) fn is_map(file: &Path) -> bool {
    file.file_name().and_then(OsStr::to_str).is_some_and(|name| MAPS.contains(&name))
}

/// Whether a file has the ending of code.
pub(super) fn is_code(path: &Path) -> bool {
    has_ending(path, &CODE)
}

/// Folders in which known programs keep what they can build again, and from which no interpreter loads code; beside which file, where another
/// program's folder might have that name.
const CACHES: [(&str, Option<&str>); 5] = [
    (".cache", None),
    (".mypy_cache", None),
    (".pytest_cache", None),
    (".ruff_cache", None),
    ("target", Some("Cargo.toml")),
];

/// Whether a folder is what a known program builds, and can build again: by its name, and by the file that is agreed on for that. Anybody can put
/// that file into any folder, so it alone says nothing. In a virtual environment lies what is run.
pub(super) fn is_cache(folder: &Path) -> bool {
    const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
    let is_known = |(name, beside): &(&str, Option<&str>)| {
        folder.file_name().is_some_and(|own| own == *name)
            && beside.is_none_or(|beside| folder.parent().is_some_and(|parent| parent.join(beside).is_file()))
    };
    if !CACHES.iter().any(is_known) {
        return false;
    }
    let mut head = vec![0; SIGNATURE.len()];
    let is_tagged = open(&folder.join("CACHEDIR.TAG")).and_then(|mut file| file.read_exact(&mut head)).is_ok();
    is_tagged && head == SIGNATURE && !folder.join("pyvenv.cfg").exists()
}

/// Whether a file is a program or a part of one, and nothing that a server may keep beside its script.
pub(super) fn is_program_file(path: &Path) -> bool {
    (is_code(path) && !has_ending(path, &DATA)) || begins_with(path, *b"#!")
}

/// Whether nothing that works in the folder of a project can take a file there for code, or for what says which code there is.
pub(super) fn is_data_of_project(path: &Path) -> bool {
    let says = path
        .file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| TEXTS_OF_LAUNCHERS.iter().any(|text| name.starts_with(text)));
    !says && !is_code(path) && (has_ending(path, &DATA) || has_ending(path, &DATA_OF_PROJECTS))
}

/// Whether a file has one of these endings.
pub(super) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| endings.contains(&ending))
}

/// Whether these are the first bytes of a file.
pub(super) fn begins_with(path: &Path, wanted: [u8; 2]) -> bool {
    let mut head = [0; 2];
    open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == wanted
}

/// Whether a file says which interpreter runs it, or has no ending that says that it is something else.
pub(super) fn is_script(path: &Path) -> bool {
    begins_with(path, *b"#!") || (path.extension().is_none() && path.is_file() && !begins_with(path, *b"\x7fE"))
}

/// Opens a file of a checkout: a pipe there is not waited for, and a terminal does not become this program's.
#[expect(
    clippy::disallowed_methods,
    reason = "what is looked at is what a launcher would read, through every link that it follows"
)]
pub(super) fn open(path: &Path) -> io::Result<File> {
    let without_waiting = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(without_waiting).open(path)
}
