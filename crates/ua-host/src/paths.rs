//! Paths as a front door is given them, and files that a person names.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::error::HostError;
use crate::settings::Settings;

/// What a job file is called that is none: the job came on standard input.
pub const NO_FILE: &str = "-";

/// That a file cannot be read, and what helps against it; `what` says which one it is. Whoever reads a file that a person named refuses it by
/// this, so that no hint asks for a file that is there.
pub fn cannot_read(what: &str, file: &Path, error: &io::Error) -> HostError {
    HostError::usage(format!("cannot read {what} {}: {error}", file.display()))
        .hint(what_helps(error, "name a file that is there").to_string())
        .not_begun()
}

/// What helps against `error` where a file is read; `missing` is what helps where there is none.
pub(crate) fn what_helps(error: &io::Error, missing: &'static str) -> &'static str {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        missing
    } else if kind == io::ErrorKind::PermissionDenied {
        "let your user read it"
    } else if kind == io::ErrorKind::IsADirectory {
        "it is a folder: name a file in it"
    } else if kind == io::ErrorKind::InvalidData {
        "it has to be text in UTF-8"
    } else {
        "name a regular file that can be read"
    }
}

/// What helps against `error` where something is written into a folder.
pub fn mend_folder(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        "make room on that disk"
    } else if kind == io::ErrorKind::ReadOnlyFilesystem {
        "mount that disk for writing"
    } else {
        "make that folder writable"
    }
}

/// A folder for this command alone, which goes with it.
///
/// # Errors
/// None can be made where temporary files belong.
pub fn temporary_folder() -> Result<tempfile::TempDir, HostError> {
    tempfile::tempdir().map_err(|error| no_temporary_folder(&error))
}

/// That nothing can be made in the folder of temporary files, and what helps.
fn no_temporary_folder(error: &io::Error) -> HostError {
    let folder = std::env::temp_dir();
    let kind = error.kind();
    let (why, helps) = if kind == io::ErrorKind::NotFound {
        ("there is no such folder".to_owned(), "set TMPDIR to a folder that is there, or unset it")
    } else if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        ("the disk is full".to_owned(), "make room there, or set TMPDIR to a folder on another disk")
    } else {
        (io::Error::from(kind).to_string(), "set TMPDIR to a folder that you can write to")
    };
    HostError::storage(format!("cannot create a temporary folder in {}: {why}", folder.display()))
        .hint(helps.to_string())
        .not_begun()
}

/// Text without the byte order mark that some editors put in front of it; it says nothing about UTF-8, and no parser here takes it.
pub(crate) fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The folder of a job file, absolute and without links, so that it can be compared with what tools are asked for.
pub fn job_dir(settings: &Settings, job: &Path) -> Result<PathBuf, HostError> {
    let file = settings.absolute(job)?;
    // A job on standard input is as one in the current folder.
    let (place, is_folder) = match file.parent().filter(|_| job == Path::new(NO_FILE)) {
        Some(folder) => (folder, true),
        None => (file.as_path(), false),
    };
    let whole = place.canonicalize();
    let whole = whole.map_err(|error| cannot_read("the job file", job, &error))?;
    let folder = if is_folder { Some(whole.as_path()) } else { whole.parent() };
    Ok(folder.unwrap_or(Path::new("/")).to_path_buf())
}

/// Whether there is nothing of this name. What cannot be looked at, as in a folder that may not be read, may be there: nothing is said of it but
/// what the system says.
pub fn is_missing(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map_err(|error| error.kind());
    matches!(kind, Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Whether a program is there that is started as `command` in `folder`, with this `PATH`: a name is looked up in it, a path is taken as it is.
pub(crate) fn is_program(command: &Path, folder: &Path, path: &str) -> bool {
    let is_there = |file: &Path| std::fs::metadata(file).is_ok_and(|found| found.is_file());
    if command.components().count() > 1 || command.is_absolute() || command.starts_with(".") {
        return is_there(&folder.join(command));
    }
    // Without a PATH the system has one of its own.
    path.is_empty() || std::env::split_paths(path).any(|place| is_there(&folder.join(place).join(command)))
}

/// Whether a file really lies in a folder or below, wherever links lead.
pub(crate) fn is_below(file: &Path, folder: &Path) -> bool {
    match (file.canonicalize(), folder.canonicalize()) {
        (Ok(file), Ok(folder)) => file.starts_with(folder),
        _ => false,
    }
}

/// Where a whole path leads: without `.`, `..` and links. What of it is not there yet has none of its own, so it is taken by its words.
/// Paths that are stored or compared are of this kind: however a person writes a folder, it is one folder.
pub fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|folder| Some((folder, folder.canonicalize().ok()?)));
    let Some((there, mut whole)) = there else { return path.to_path_buf() };
    for part in path.strip_prefix(there).unwrap_or(Path::new("")).components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole
}

/// The same of a folder that nobody named: where its parent leads, and its own name, so that a link in its place is still seen as one.
pub(crate) fn resolved_parent(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolved(parent).join(name),
        (None, _) | (_, None) => resolved(path),
    }
}

/// A path as it may stand inside a JSON string.
pub fn json_fragment(path: &Path) -> String {
    let quoted = Value::String(path.display().to_string()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_hint_about_a_file_fits_what_is_wrong_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        let read = |path: &Path| ua_files::read_text(path, 100).unwrap_err();
        let hint =
            |path: &Path| cannot_read("the script", path, &read(path)).hint_text().unwrap_or_default().to_owned();
        assert_eq!(hint(&file), "name a file that is there; nothing was started");
        assert_eq!(hint(folder.path()), "it is a folder: name a file in it; nothing was started");
        std::fs::write(&file, b"\xff\xfe").unwrap();
        assert_eq!(hint(&file), "it has to be text in UTF-8; nothing was started");
        // Root reads every file, so the system's own word is taken.
        let refused = cannot_read("the script", &file, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(refused.hint_text(), Some("let your user read it; nothing was started"));
    }

    #[test]
    fn only_what_the_system_says_is_not_there_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(super::is_missing(&folder.path().join("none")));
        assert!(super::is_missing(&file.join("below")));
        assert!(!super::is_missing(&file));
        // What cannot be looked at, here since its name is too long: nobody knows.
        assert!(!super::is_missing(&folder.path().join("x".repeat(5_000))));
    }
}
