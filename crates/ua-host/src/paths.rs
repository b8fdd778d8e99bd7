//! Paths as a front door is given them, and files that a person names.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::error::HostError;
use crate::settings::Settings;
use ua_core::ShowPath as _;

/// What a job file is called that is none: the job came on standard input.
pub const NO_FILE: &str = "-";

/// That a file cannot be read, and what helps against it; `what` says which one it is. Whoever reads a file that a person named refuses it by
/// this, so that no hint asks for a file that is there.
pub fn cannot_read(what: &str, file: &Path, error: &io::Error) -> HostError {
    cannot_read_or(what, file, error, "name an existing file")
}

/// The same; `missing` is what helps where there is no such file, and none whose name is like it.
pub(crate) fn cannot_read_or(what: &str, file: &Path, error: &io::Error, missing: &str) -> HostError {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let meant = if is_missing { did_you_mean(file) } else { String::new() };
    HostError::usage(format!("cannot read {what} {}: {error}", file.shown()))
        .hint(format!("{meant}{}", what_helps(error, missing)))
        .not_begun()
}

/// A question with the file that was probably meant, in front of a hint: one beside the place that was named, whose name is like it. Nothing where
/// there is none.
pub fn did_you_mean(file: &Path) -> String {
    let meant = beside_it(file).map(|meant| crate::text::place(&meant.shown().to_string()));
    meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "))
}

/// So many files of a folder are looked at for the one that was meant.
const NEIGHBOURS: usize = 10_000;

/// The file beside one that is missing whose name is most like it. Its ending counts by itself: it makes all JSON files alike. One that was left out,
/// or is another one, is found as well.
fn beside_it(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    let typed = file.file_name()?.to_str()?;
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names =
        std::fs::read_dir(place).ok()?.take(NEIGHBOURS).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.') || typed.starts_with('.')).collect();
    names.sort();
    let parts = |name: &str| -> (String, Option<String>) {
        let path = Path::new(name);
        let text = |part: Option<&std::ffi::OsStr>| part.and_then(std::ffi::OsStr::to_str).map(str::to_lowercase);
        (text(path.file_stem()).unwrap_or_default(), text(path.extension()))
    };
    let (stem, ending) = parts(typed);
    let alike: Vec<(&String, String)> = names
        .iter()
        .map(|name| (name, parts(name)))
        .filter(|(_, (_, other))| *other == ending)
        .map(|(name, (stem, _))| (name, stem))
        .collect();
    let near = ua_core::nearest(&stem, alike.iter().map(|(_, stem)| stem.as_str()));
    let near = near.and_then(|near| alike.iter().find(|(_, stem)| stem == near)).map(|(name, _)| *name);
    let is_its = |name: &&String| [stem.as_str(), &typed.to_lowercase()].contains(&parts(name).0.as_str());
    Some(folder.join(near.or_else(|| names.iter().find(is_its))?))
}

/// What helps against `error` where a file is read; `missing` is what helps where there is none.
pub(crate) fn what_helps<'a>(error: &io::Error, missing: &'a str) -> &'a str {
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
        ("there is no such folder".to_owned(), "set TMPDIR to an existing folder, or unset it")
    } else if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        ("the disk is full".to_owned(), "make room there, or set TMPDIR to a folder on another disk")
    } else {
        (io::Error::from(kind).to_string(), "set TMPDIR to a folder that you can write to")
    };
    HostError::storage(format!("cannot create a temporary folder in {}: {why}", folder.shown()))
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
    let quoted = Value::String(path.to_string_lossy().into_owned()).to_string();
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
        assert_eq!(hint(&file), "name an existing file; nothing was started");
        assert_eq!(hint(folder.path()), "it is a folder: name a file in it; nothing was started");
        std::fs::write(&file, b"\xff\xfe").unwrap();
        assert_eq!(hint(&file), "it has to be text in UTF-8; nothing was started");
        // Root reads every file, so the system's own word is taken.
        let refused = cannot_read("the script", &file, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(refused.hint_text(), Some("let your user read it; nothing was started"));
    }

    #[test]
    fn a_misspelt_file_has_its_suggestion_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["job.json", "policy.toml", "report.json", ".hidden.json", "Servers.json"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let hint = |name: &str| {
            let refused = super::cannot_read("the job file", &folder.path().join(name), &missing());
            refused.hint_text().unwrap_or_default().to_owned()
        };
        for (typed, meant) in [
            ("jbo.json", "job.json"),
            ("repotr.json", "report.json"),
            ("policies.toml", "policy.toml"),
            ("servers.json", "Servers.json"),
            ("job", "job.json"),
            ("job.yaml", "job.json"),
        ] {
            let meant = folder.path().join(meant).display().to_string();
            let said = format!("did you mean `{}`? name an existing file", crate::text::line(&meant, 100));
            assert!(hint(typed).starts_with(&said), "{typed}: {}", hint(typed));
        }
        for typed in ["weather.json", "none/job.json", "hidden.json"] {
            assert!(hint(typed).starts_with("name an existing file"), "{typed}: {}", hint(typed));
        }
        // One that is there and cannot be read is meant.
        let denied = super::cannot_read(
            "the job file",
            &folder.path().join("jbo.json"),
            &std::io::ErrorKind::PermissionDenied.into(),
        );
        assert!(!denied.hint_text().unwrap_or_default().contains("did you mean"));
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
