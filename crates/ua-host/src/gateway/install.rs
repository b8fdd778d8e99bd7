//! Putting `ua gateway` in front of the tool servers of a client's configuration, and taking it away again.
//!
//! What is not changed stays as it was typed: order, blanks, comments. What a file was before is kept beside the gateway, so that it is put back to
//! the byte; when somebody changed the file since, as clients do all the time, so is each entry that nobody changed ([`restored`]), and only the
//! others are taken apart.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use ua_core::{ShowPath as _, sha256};
use ua_files::Folder;

use self::entry::{Becomes, Entry};
use self::meant::{Meant, is_as_meant};
use self::restored::Typed;
use crate::error::HostError;
use crate::paths::what_helps;
use crate::placed::{FileKind, Place, refuse_leading_out};

pub use self::entry::{Front, What};
pub(super) use self::entry::{Program, plain_name};

mod entry;
mod json;
mod meant;
mod ordered;
mod restored;
mod spans;
#[cfg(test)]
mod tests_back;
#[cfg(test)]
mod tests_typed;
mod toml;
mod yaml;

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The tool server's name.
    pub server: String,
    /// The folder of the project whose it is, if it is one project's.
    pub project: Option<String>,
    /// What was done, or why nothing was.
    pub what: What,
    /// What it started before, if it started a program.
    pub program: Option<String>,
    /// How long its client waits for a tool, in seconds, where it says so.
    pub patience: Option<u32>,
}

/// A file as it is after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// Its text.
    pub text: String,
    /// What was changed.
    pub changes: Vec<Change>,
}

/// The folder with what was there before an install.
pub(super) const RECORDS: &str = "installed";
/// What says in front of a text that it is one in UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The mark in front of a text, and the text behind it.
fn unmarked(text: &str) -> (&'static str, &str) {
    text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text))
}

/// How a configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Toml,
    Yaml,
}

impl Format {
    fn of(path: &Path) -> Self {
        match path.extension().and_then(OsStr::to_str) {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }

    fn edited(
        self,
        path: &Path,
        text: &str,
        servers: &[String],
        change: impl Fn(Option<&str>, &str, &Entry) -> (What, Option<Becomes>),
    ) -> Result<Edited, HostError> {
        // Some editors put it in front of what they write, and clients read over it. It stays.
        let (mark, text) = unmarked(text);
        let looked_at = RefCell::new(Vec::new());
        let change = |project: Option<&str>, server: &str, entry: &Entry| {
            let (what, becomes) = change(project, server, entry);
            let of = (project.map(str::to_owned), server.to_owned());
            looked_at.borrow_mut().push(Meant { of, was: entry.clone(), becomes: becomes.clone() });
            (what, becomes)
        };
        let edited = match self {
            Self::Json => json::edited(text, servers, change),
            Self::Toml => toml::edited(text, servers, change),
            Self::Yaml => yaml::edited(text, servers, change),
        };
        let edited = edited.and_then(|edited| {
            let mut meant = looked_at.into_inner();
            for change in edited.changes.iter().filter(|change| change.what == What::NotRestored) {
                let is_it = |meant: &&mut Meant| (&meant.of.0, &meant.of.1) == (&change.project, &change.server);
                meant.iter_mut().filter(|meant| is_it(meant)).for_each(|meant| meant.becomes = None);
            }
            if edited.text == text || is_as_meant(self, path, text, &edited.text, &meant) {
                return Ok(edited);
            }
            let error = HostError::usage("its layout cannot be changed automatically: what would be written is not what is meant");
            Err(error.hint("nothing was changed; write each field of an entry on a line of its own, or put `ua gateway` in front of its command by hand"))
        });
        let edited = edited.map(|edited| Edited { text: format!("{mark}{}", edited.text), ..edited });
        edited.map_err(|error| {
            let hint = error.hint_text().unwrap_or(
                "nothing was changed; correct that file, or have the client write its first tool server into it, or name another file with --file",
            );
            let told = HostError::usage(format!("cannot change {}: {}", path.shown(), error.message())).hint(hint);
            Place::named(FileKind::Client, path).told(told)
        })
    }

    /// The text with `ua gateway` in front of these tool servers, or of all.
    fn wrapped(self, path: &Path, text: &str, front: &Front, servers: &[String]) -> Result<Edited, HostError> {
        let names_in = |file: &str| names_in(path, file);
        self.edited(path, text, servers, |_, server, entry| {
            entry.wrapped(server, front, !servers.is_empty(), program_of(entry.command.as_deref(), front), &names_in)
        })
    }

    /// The text with the old commands of these tool servers, or of all; `typed` is what a record says of them.
    fn unwrapped(self, path: &Path, text: &str, typed: &Typed, servers: &[String]) -> Result<Edited, HostError> {
        self.edited(path, text, servers, |project, server, entry| entry.unwrapped(typed.of(project, server)))
    }
}

/// What the program of an entry is to the one that would be put in front of it. Links and names of one file are that file.
pub(super) fn program_of(command: Option<&str>, front: &Front) -> Program {
    let Some(path) = command.map(Path::new).filter(|path| path.is_absolute()) else {
        return Program::Here;
    };
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    match (file(path), file(Path::new(&front.program))) {
        (Some(there), Some(here)) if there != here => Program::Another,
        (None, _) if !path.exists() => Program::Gone,
        (Some(_) | None, _) => Program::Here,
    }
}

/// The text of a list without the first of its members, whose places are `all`: what is behind them stays as it was typed.
fn without_first(text: &str, list: &Range<usize>, all: &[Range<usize>], words: usize) -> Option<String> {
    let (first, last) = (all.first()?, all.get(words.checked_sub(1)?)?);
    let lead = text.get(list.start + 1..first.start)?;
    let is_tight = lead.is_empty() && all.get(1).is_none_or(|second| text.get(first.end..second.start) == Some(","));
    let behind = text.get(last.end..list.end)?;
    Some(match all.get(words) {
        // Ours stand without blanks, and these as they were typed before.
        Some(_) if is_tight && behind.starts_with(',') => format!("[{}", &behind[1..]),
        // Somebody wrote the list once more, in a style of their own.
        Some(next) => format!("[{lead}{}", text.get(next.start..list.end)?),
        None => {
            let rest = behind.trim_start().strip_prefix(',').unwrap_or(behind);
            let is_blank = rest.trim() == "]";
            if is_blank && (!is_tight || rest.contains('\n')) { "[]".to_owned() } else { format!("[{rest}") }
        }
    })
}

/// The variables of a file of lines `NAME=value`, as the configuration at `path` names it; `None` where that cannot be read from here.
fn names_in(path: &Path, file: &str) -> Option<Vec<String>> {
    // What a client puts in for other words, only the client knows.
    let folder = path.parent().filter(|folder| folder.file_name() == Some(OsStr::new(".vscode")));
    let file = match file.strip_prefix("${workspaceFolder}/") {
        Some(file) => folder?.parent()?.join(file),
        None => PathBuf::from(file),
    };
    // As with the configuration itself: a checkout may have a pipe or a device there.
    let text = ua_files::read_text(&Some(file).filter(|file| file.is_absolute())?, MOST).ok()?;
    let name = |line: &str| {
        let line = line.trim().strip_prefix("export ").unwrap_or(line.trim());
        let name = line.split_once('=')?.0.trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| name.to_owned())
    };
    Some(text.lines().filter_map(name).collect())
}

/// Says which of the tool servers that were named is not among those that the configuration has.
fn missing(servers: &[String], known: &[String]) -> Result<(), HostError> {
    match servers.iter().find(|name| !known.contains(name)) {
        Some(missing) => {
            let hint = match known {
                [] => "the configuration has none".to_owned(),
                known => format!("the configuration has: {}", crate::text::plain(&known.join(", "))),
            };
            let message = format!("the configuration names no tool server `{}`", crate::text::plain(missing));
            Err(HostError::not_found(message, missing, known.iter().map(String::as_str), &hint))
        }
        None => Ok(()),
    }
}

/// What is kept of a file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    path: PathBuf,
    /// Digest of the text that was written.
    written: String,
    /// The text before the first change.
    before: String,
}

/// The text of now without the gateway, where `before` is what it was before.
fn taken_away(format: Format, path: &Path, before: &str, now: &str, servers: &[String]) -> Result<Edited, HostError> {
    let text = restored::restored(format, path, before, now, servers);
    format.unwrapped(path, &text, &Typed::read(format, path, before), servers)
}

/// The text of now with the gateway in front of these tool servers, and what is kept of it; `None` where nothing changes.
fn installed(
    path: &Path,
    earlier: Option<Kept>,
    now: &str,
    front: &Front,
    servers: &[String],
) -> Result<(Edited, Option<Kept>), HostError> {
    let format = Format::of(path);
    let edited = format.wrapped(path, now, front, servers)?;
    if edited.text == now {
        return Ok((edited, None));
    }
    // A file that is wrapped further keeps what it was before the first time, unless somebody changed it since.
    let before = match earlier {
        Some(kept) if kept.written == sha256(now).to_hex() => kept.before,
        // What somebody changed since is what it was before, but for what was wrapped then.
        Some(kept) => taken_away(format, path, &kept.before, now, &[])?.text,
        None => now.to_owned(),
    };
    let kept = Kept { path: path.to_owned(), written: sha256(&edited.text).to_hex(), before };
    Ok((edited, Some(kept)))
}

/// The text of now without the gateway in front of these tool servers, or of any.
fn uninstalled(path: &Path, kept: Option<Kept>, now: &str, servers: &[String]) -> Result<Edited, HostError> {
    let format = Format::of(path);
    let as_left = kept.as_ref().filter(|kept| servers.is_empty() && kept.written == sha256(now).to_hex());
    let mut edited = match (format.unwrapped(path, now, &Typed::default(), servers), as_left) {
        (Ok(edited), _) => edited,
        // An earlier version wrote what nobody can read.
        (Err(_), Some(kept)) => {
            let mut back = format.unwrapped(path, &kept.before, &Typed::default(), &[])?;
            let restored = back.changes.iter_mut().filter(|change| change.what == What::NotWrapped);
            restored.for_each(|change| change.what = What::Unwrapped);
            return Ok(back);
        }
        (Err(error), None) => return Err(error),
    };
    edited.text = match kept {
        // What it was before may go through a gateway too: through another one, or by somebody's own hand.
        Some(kept) if servers.is_empty() && kept.written == sha256(now).to_hex() => {
            format.unwrapped(path, &kept.before, &Typed::default(), &[])?.text
        }
        Some(kept) => taken_away(format, path, &kept.before, now, servers)?.text,
        None => edited.text,
    };
    Ok(edited)
}

/// Where it is kept, by whichever name the file goes: a link is the file that it leads to.
fn kept_at(root: &Path, path: &Path) -> PathBuf {
    let real = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    kept_as(root, &real)
}

/// Where it is kept of a file of this very name, as earlier versions did.
fn kept_as(root: &Path, path: &Path) -> PathBuf {
    root.join(RECORDS).join(format!("{}.json", &sha256(path.to_string_lossy().into_owned()).to_hex()[..32]))
}

/// Puts `ua gateway` in front of tool servers of the file at `path`; with `dry_run` only says what would be done.
///
/// # Errors
/// The file cannot be read, understood or written.
pub fn install(
    root: &Path,
    path: &Path,
    front: &Front,
    servers: &[String],
    dry_run: bool,
) -> Result<Edited, HostError> {
    let place = kept_at(root, path);
    changed(root, path, dry_run, |now, earlier: &mut Option<Option<Kept>>| {
        // What was kept before the first try; what a try that came to nothing wrote says nothing.
        let earlier = earlier.get_or_insert_with(|| kept_of(root, path)).clone();
        let (edited, kept) = installed(path, earlier, now, front, servers)?;
        let Some(kept) = kept.filter(|_| !dry_run) else { return Ok(Some(edited)) };
        let folder = place.parent().unwrap_or(root);
        Folder::make(folder).map_err(|error| HostError::storage(format!("cannot make {}: {error}", folder.shown())))?;
        let text = serde_json::to_string(&kept).map_err(|error| HostError::failed(error.to_string()))?;
        has_one_name(path)?;
        // What the file was is kept before it is another one.
        replace(&place, text.as_bytes())?;
        Ok(replace_as_read(path, now, &edited.text)?.then_some(edited))
    })
}

/// Takes `ua gateway` away again: to the byte, if the file is as it was left.
///
/// # Errors
/// The file cannot be read, understood or written.
pub fn uninstall(root: &Path, path: &Path, servers: &[String], dry_run: bool) -> Result<Edited, HostError> {
    changed(root, path, dry_run, |now, (): &mut ()| {
        let records: Vec<PathBuf> =
            [kept_at(root, path), kept_as(root, path)].into_iter().filter(|place| place.exists()).collect();
        let edited = uninstalled(path, kept_of(root, path), now, servers)?;
        if dry_run {
            return Ok(Some(edited));
        }
        if edited.text != *now {
            has_one_name(path)?;
            if !replace_as_read(path, now, &edited.text)? {
                return Ok(None);
            }
        }
        if servers.is_empty() {
            for place in records {
                match fs::remove_file(&place) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::debug!(%error, "the record of the original configuration could not be removed");
                    }
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(Some(edited))
    })
}

/// So often a change is begun anew because somebody else changed the file in the middle of it.
const TRIES: u32 = 20;
/// How long somebody else who changes a file as well is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Changes a file from what it is, for one after the other: of this root, whose records of files go with them, and of this program. `change` gets its text, and is `None` where that was another one in the end: clients
/// write their files whenever they like, and know nothing of our lock.
fn changed<K: Default, T>(
    root: &Path,
    path: &Path,
    dry_run: bool,
    change: impl Fn(&str, &mut K) -> Result<Option<T>, HostError>,
) -> Result<T, HostError> {
    let mut kept = K::default();
    refuse_leading_out(path)?;
    // Another file may be in the place of the one that was changed before its record is as well.
    let _records = if dry_run { None } else { locked(&records_lock(root)) };
    for _ in 0..TRIES {
        // What is no file is refused before it is opened.
        read(path)?;
        let _one = if dry_run { None } else { locked(path) };
        if let Some(done) = change(&read(path)?, &mut kept)? {
            return Ok(done);
        }
    }
    let message = format!("{} is written by another program all the time; it was not changed", path.shown());
    Err(HostError::failed(message).hint("end the client whose configuration it is, and try again"))
}

/// What is locked while a record of a root is changed. Where there is no such folder, there are none.
fn records_lock(root: &Path) -> PathBuf {
    const NAME: &str = "installed.lock";
    if let Err(error) = Folder::open_itself(root).and_then(|root| root.open_or_make(NAME)) {
        tracing::debug!(%error, "nothing is locked while a configuration is changed");
    }
    root.join(NAME)
}

/// The file, for this process alone among those of this program, whichever gateway they are of. Where it cannot be had, it goes without.
fn locked(path: &Path) -> Option<fs::File> {
    #[expect(clippy::disallowed_methods, reason = "how long another process is waited for, in real time")]
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        // To be written, where it may be: over NFS nothing else is locked for one alone.
        #[expect(clippy::disallowed_methods, reason = "a person named it, and it was read")]
        let file = fs::OpenOptions::new().read(true).write(true).open(path).or_else(|_| fs::File::open(path)).ok()?;
        let is_free = match file.try_lock() {
            Ok(()) => true,
            Err(fs::TryLockError::WouldBlock) => false,
            // There are file systems that have none.
            Err(fs::TryLockError::Error(error)) => {
                tracing::debug!(%error, path = %path.shown(), "a file cannot be locked");
                return None;
            }
        };
        // Whoever had it may have put another file in its place.
        let ids = |meta: fs::Metadata| (meta.dev(), meta.ino());
        if is_free && file.metadata().map(ids).ok() == fs::metadata(path).map(ids).ok() {
            return Some(file);
        }
        drop(file);
        std::thread::sleep(Duration::from_millis(if is_free { 0 } else { 5 }));
    }
    tracing::warn!(path = %path.shown(), "another process changes this file for long; it is not waited for any more");
    None
}

/// Writes the file unless it is not as it was read any more.
fn replace_as_read(path: &Path, now: &str, content: &str) -> Result<bool, HostError> {
    if read(path)? != now {
        return Ok(false);
    }
    // Nothing is written that is no configuration for whoever reads it next.
    Format::of(path).edited(path, content, &[], |_, _, _| (What::NotWrapped, None))?;
    replace(path, content.as_bytes())?;
    Ok(true)
}

/// A file is replaced by another one, so that whoever reads it sees one of the two whole. Another name of the same file would keep the old one.
fn has_one_name(path: &Path) -> Result<(), HostError> {
    let has_more = fs::metadata(path).is_ok_and(|meta| meta.nlink() > 1);
    if !has_more {
        return Ok(());
    }
    let message =
        format!("cannot change {}: it has another name (a hard link), which would keep what it is now", path.shown());
    Err(HostError::usage(message)
        .hint("make the other name a symbolic link (`ln -sf`), or this one a file of its own; nothing was changed"))
}

/// The largest configuration of a client that is read; theirs have a few kilobytes.
const MOST: u64 = 16 * 1024 * 1024;

fn kept_of(root: &Path, path: &Path) -> Option<Kept> {
    kept(&kept_at(root, path)).or_else(|| kept(&kept_as(root, path)))
}

fn kept(place: &Path) -> Option<Kept> {
    serde_json::from_str(&ua_files::read_text(place, MOST).ok()?).ok()
}

fn read(path: &Path) -> Result<String, HostError> {
    // A pipe would hold this up for ever, and a device has no end.
    ua_files::read_text(path, MOST).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            return HostError::usage(format!("there is no configuration {}", path.shown())).hint(
                "a client writes it when it is given its first tool server; name another one with --file, such as a project's .mcp.json",
            );
        }
        HostError::usage(format!("cannot read {}: {error}", path.shown()))
            .hint(format!("{}, or name another one with --file", what_helps(&error, "name an existing file")))
    })
}

/// Whoever reads the file sees this text or the one before. Its rights stay; a link stays one.
fn replace(path: &Path, content: &[u8]) -> Result<(), HostError> {
    let failed = |error: io::Error| HostError::storage(format!("cannot write {}: {error}", path.shown()));
    let path = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let mode = fs::metadata(&path).map_or(0o600, |meta| meta.mode() & 0o777);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    Folder::open_itself(folder).and_then(|folder| folder.replace(name, content)).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_not_there_is_said_to_be_missing_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(&folder.path().join("config.toml")).unwrap_err();
        assert!(error.to_string().starts_with("there is no configuration "), "{error}");
        assert!(error.hint_text().unwrap().contains("--file"));
    }

    /// Several at once, and whoever writes the file in the middle of a change: nothing of either is lost.
    #[test]
    fn of_changes_at_once_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let names: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
        let entries: Vec<String> = names.iter().map(|name| format!("\"{name}\": {{\"command\": \"x\"}}")).collect();
        let config = format!("{{\"mcpServers\": {{{}}}}}", entries.join(", "));
        for _ in 0..5 {
            fs::write(&path, &config).unwrap();
            std::thread::scope(|scope| {
                for (number, name) in names.iter().enumerate() {
                    let root = folder.path().join(format!("gateway{}", number % 2));
                    let path = &path;
                    scope.spawn(move || install(&root, path, &ua(), std::slice::from_ref(name), false).unwrap());
                }
            });
            let now = fs::read_to_string(&path).unwrap();
            let made = Format::Json.wrapped(here(), &now, &ua(), &[]).unwrap();
            assert!(made.changes.iter().all(|change| change.what == What::Already), "{now}");
        }
        assert!(
            !replace_as_read(&path, &config, "").unwrap()
                && replace_as_read(&path, &fs::read_to_string(&path).unwrap(), &config).unwrap()
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), config);
    }

    #[test]
    fn a_file_with_another_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("mcp.json"), folder.path().join("other.json"));
        fs::write(&path, CONFIG).unwrap();
        fs::hard_link(&path, &other).unwrap();
        let refused = install(folder.path(), &path, &ua(), &[], false).unwrap_err();
        assert!(
            refused.message().contains("another name") && refused.hint_text().unwrap().contains("nothing was"),
            "{refused}"
        );
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), kept_at(folder.path(), &path).exists()),
            (CONFIG.to_owned(), false)
        );
        fs::remove_file(&other).unwrap();
        std::os::unix::fs::symlink(&path, &other).unwrap();
        install(folder.path(), &other, &ua(), &[], false).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("gateway"));
    }

    #[test]
    fn what_is_no_file_of_a_bounded_size_is_no_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, device) = (folder.path().join("pipe.json"), folder.path().join("device.json"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        for path in [&pipe, &device] {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains("a pipe, a socket or a device"), "{error}");
            assert!(kept(path).is_none());
        }
        let large = folder.path().join("large.json");
        fs::File::create(&large).unwrap().set_len(MOST + 1).unwrap();
        assert!(read(&large).unwrap_err().to_string().contains("more than"));
    }

    fn ua() -> Front {
        Front { program: "ua".to_owned(), root: None, own_root: None }
    }

    fn here() -> &'static Path {
        Path::new("/nowhere/mcp.json")
    }

    #[test]
    fn no_argument_is_lost_to_a_comment_or_a_comma() {
        let config = r#"{"servers": {
  "a": {"command": "npx", "args": ["-y", "mail-server",]},
  "b": {"command": "npx", "args": [ // first
    "-y", /* no "z" */ "b-server" // last
  ]},
  "c": {"command": "npx", "args": ["-p", 8080]},
  "d": {"command": "npx", "args": "one"},
}}"#;
        let made = Format::Json.wrapped(here(), config, &ua(), &[]).unwrap();
        let whats: Vec<What> = made.changes.iter().map(|change| change.what).collect();
        assert_eq!(whats, [What::Wrapped, What::Wrapped, What::NotRead, What::NotRead]);
        assert!(made.text.contains(r#""--","npx","-y", "mail-server",]"#), "{}", made.text);
        let kept = "\"--\",\"npx\", // first\n    \"-y\", /* no \"z\" */ \"b-server\" // last\n  ]";
        assert!(made.text.contains(kept), "{}", made.text);
        assert_eq!(Format::Json.unwrapped(here(), &made.text, &Typed::default(), &[]).unwrap().text, config);
        assert!(made.text.contains(r#""c": {"command": "npx", "args": ["-p", 8080]}"#), "{}", made.text);
        let codex = "[mcp_servers.c]\ncommand = \"npx\"\nargs = [\"-p\", 8080]\n";
        let made = Format::Toml.wrapped(here(), codex, &ua(), &[]).unwrap();
        assert_eq!((made.text.as_str(), made.changes[0].what), (codex, What::NotRead));
    }

    /// An address whose entry has its last comma in the line of its brace.
    #[test]
    fn a_comma_in_front_of_a_brace_is_no_indentation() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("mcp.json"));
        fs::create_dir(&root).unwrap();
        for end in [",}", ", }", ",\n}", "}", "\n  }"] {
            let config = format!(
                "{{\"mcpServers\":{{\"a\":{{\n  \"url\":\"http://127.0.0.1:9/mcp\",\n  \"headers\":{{\"X\":\"abcdefgh\"}}{end}}}}}\n"
            );
            fs::write(&path, &config).unwrap();
            let made = install(&root, &path, &ua(), &["a".to_owned()], false).unwrap();
            assert_eq!(made.changes[0].what, What::Wrapped, "{end}");
            assert_eq!(spans::broken(&made.text), None, "{}", made.text);
            uninstall(&root, &path, &[], false).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), config);
        }
    }

    /// What an earlier version wrote, and nobody can read, is put back as it was.
    #[test]
    fn a_file_that_was_broken_by_an_install_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("mcp.json"));
        fs::create_dir(&root).unwrap();
        fs::write(&path, CONFIG).unwrap();
        install(&root, &path, &ua(), &[], false).unwrap();
        let mut kept = kept_of(&root, &path).unwrap();
        let broken = "{\"mcpServers\":{\"a\":{\n,";
        kept.written = sha256(broken).to_hex();
        fs::write(kept_at(&root, &path), serde_json::to_string(&kept).unwrap()).unwrap();
        fs::write(&path, "{\"mcpServers\":{").unwrap();
        uninstall(&root, &path, &[], false).unwrap_err();
        fs::write(&path, broken).unwrap();
        uninstall(&root, &path, &[], false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
        // And none is written that nobody can read.
        let refused = replace_as_read(&path, CONFIG, broken).unwrap_err();
        assert!(refused.message().starts_with("cannot change "), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
    }

    /// Arguments that are no list of texts would be lost, or become texts: such an entry stays as it is, whatever the format.
    #[test]
    fn arguments_that_are_no_list_of_texts_are_not_touched() {
        for args in ["str", "\"str\"", "5", "null", "[1]", "[null]", "[a, true]", "{a: b}", ""] {
            let text = format!("extensions:\n  db:\n    type: stdio\n    cmd: x\n    args: {args}\n");
            let made = Format::Yaml.wrapped(here(), &text, &ua(), &[]).unwrap();
            assert_eq!((made.text.as_str(), made.changes[0].what), (text.as_str(), What::NotRead), "{args}");
        }
        for args in ["[a, 'b', \"5\"]", "[]", "\n    - a\n    - \"1\""] {
            let text = format!("extensions:\n  db:\n    type: stdio\n    cmd: x\n    args: {args}\n");
            let made = Format::Yaml.wrapped(here(), &text, &ua(), &[]).unwrap();
            assert_eq!(made.changes[0].what, What::Wrapped, "{args}");
        }
    }

    #[test]
    fn a_byte_order_mark_stays_where_it_was() {
        for (format, text) in [
            (Format::Json, "{\r\n \"mcpServers\": {\"a\": {\"command\": \"x\"}}\r\n}\r\n"),
            (Format::Toml, "[mcp_servers.a]\r\ncommand = \"x\"\r\n"),
            (Format::Yaml, "extensions:\n  a:\n    type: stdio\n    cmd: x\n    enabled: true\n"),
        ] {
            let marked = format!("{BYTE_ORDER_MARK}{text}");
            let plain = format.wrapped(here(), text, &ua(), &[]).unwrap();
            let made = format.wrapped(here(), &marked, &ua(), &[]).unwrap();
            assert_eq!(made.text, format!("{BYTE_ORDER_MARK}{}", plain.text));
            assert_eq!((made.changes.len(), made.changes[0].what), (1, What::Wrapped));
            let back = format.unwrapped(here(), &made.text, &Typed::default(), &[]).unwrap();
            assert!(back.text.starts_with(BYTE_ORDER_MARK), "{}", back.text);
        }
    }

    /// The same name in two lists is two tool servers; twice in one it is said, and nothing is done.
    #[test]
    fn a_name_that_is_given_twice_is_left_alone() {
        let config = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "z"}},
            "projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}}}"#;
        let made = Format::Json.wrapped(here(), config, &ua(), &[]).unwrap();
        let told: Vec<_> = made.changes.iter().map(|change| (change.server.as_str(), change.what)).collect();
        assert_eq!(told, [("a", What::Twice), ("b", What::Wrapped), ("a", What::Wrapped)]);
        assert!(made.text.starts_with(r#"{"mcpServers": {"a": {"command": "x"}, "b""#), "{}", made.text);
        let back = Format::Json.unwrapped(here(), &made.text, &Typed::default(), &[]).unwrap();
        assert!(back.text.contains(r#""a": {"command": "z"}"#), "{}", back.text);
    }

    #[test]
    fn the_variables_of_a_file_are_passed_on_or_the_entry_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".vscode")).unwrap();
        fs::write(folder.path().join(".env"), "# mine\nSMTP_PASSWORD=x=y\nexport TOKEN = t\n\nno name\n").unwrap();
        let path = folder.path().join(".vscode/mcp.json");
        let config = r#"{"servers": {"a": {"command": "x", "env": {"TOKEN": "t"}, "envFile": "${workspaceFolder}/.env"},
            "b": {"command": "x", "envFile": "${input:where}"}, "c": {"command": "x", "envFile": "${workspaceFolder}/none"}}}"#;
        let made = Format::Json.wrapped(&path, config, &ua(), &[]).unwrap();
        let whats: Vec<What> = made.changes.iter().map(|change| change.what).collect();
        assert_eq!(whats, [What::Wrapped, What::NotRead, What::NotRead]);
        assert!(made.text.contains(r#""--env","TOKEN","--env","SMTP_PASSWORD","--","x"]"#), "{}", made.text);
    }

    /// What an entry's file calls a variable, a header or an address is never read as a flag of the gateway, in front of it or when it is restored.
    #[test]
    fn no_name_that_an_entry_has_becomes_a_flag() {
        for name in ["--root", "--all", "--url", "--", "--name", "-h"] {
            let config =
                format!(r#"{{"mcpServers": {{"m": {{"command": "x", "args": ["y"], "env": {{"{name}": "1"}}}}}}}}"#);
            let made = Format::Json.wrapped(here(), &config, &ua(), &[]).unwrap();
            assert_eq!(made.changes[0].what, What::Wrapped, "{name}");
            assert!(made.text.contains(&format!(r#""--env","{name}","--","x","y"]"#)), "{}", made.text);
            let again = Format::Json.wrapped(here(), &made.text, &ua(), &[]).unwrap();
            assert_eq!(again.changes[0].what, What::Already, "{name}: it goes through the user's own gateway");
            let back = Format::Json.unwrapped(here(), &made.text, &Typed::default(), &[]).unwrap();
            assert_eq!((back.changes[0].what, back.text), (What::Unwrapped, config), "{name}");
        }
        for name in ["A=B", "--root=/x", ""] {
            let config = format!(r#"{{"mcpServers": {{"m": {{"command": "x", "env": {{"{name}": "1"}}}}}}}}"#);
            let made = Format::Json.wrapped(here(), &config, &ua(), &[]).unwrap();
            assert_eq!((made.changes[0].what, made.text), (What::NotRead, config), "no process has such a variable");
        }
    }

    #[test]
    fn those_of_projects_go_through_it_too() {
        let config = r#"{"projects": {"/a/b": {"allowedTools": [], "mcpServers": {"p1": {"command": "p", "args": ["--", "--name"]}}},
            "/c": {"mcpServers": {}}, "/d": {}}, "mcpServers": {"p1": {"command": "q"}}}"#;
        let made = Format::Json.wrapped(here(), config, &ua(), &[]).unwrap();
        let told: Vec<_> = made.changes.iter().map(|change| (change.project.as_deref(), change.what)).collect();
        assert_eq!(told, [(None, What::Wrapped), (Some("/a/b"), What::Wrapped)]);
        assert!(made.text.contains(r#"["gateway","--name","p1","--","p","--", "--name"]"#), "{}", made.text);
        let back = Format::Json.unwrapped(here(), &made.text, &Typed::default(), &[]).unwrap();
        assert!(!back.text.contains("gateway") && back.changes.len() == 2, "{}", back.text);
        let only = r#"{"projects": {"/a": {"mcpServers": {"p": {"command": "p"}}}}}"#;
        assert_eq!(Format::Json.wrapped(here(), only, &ua(), &["p".to_owned()]).unwrap().changes.len(), 1);
        assert!(Format::Json.wrapped(here(), r#"{"projects": {"/a": {}}}"#, &ua(), &[]).is_err());
    }

    const CONFIG: &str = "// my servers\n{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"mail\": {\"command\": \"npx\", \"args\": [\"-y\",   \"mail\"], \"env\": {\"KEY\": \"k\"}},\n    /* plain */ \"notes\": { \"command\" : \"notes-server\" },\n    \"web\": {\"url\": \"https://x\"},\n  },\n}\n";

    #[test]
    fn an_entry_is_wrapped_and_nothing_else_moves() {
        let made = Format::Json.wrapped(here(), CONFIG, &ua(), &[]).unwrap();
        let whats: Vec<What> = made.changes.iter().map(|change| change.what).collect();
        assert_eq!(whats, [What::Wrapped, What::Wrapped, What::MayLogIn]);
        let text = &made.text;
        assert!(text.contains(r#""mail": {"command": "ua", "args": ["gateway","--name","mail","--env","KEY","--","npx","-y",   "mail"], "env": {"KEY": "k"}}"#), "{text}");
        assert!(
            text.contains(
                r#"/* plain */ "notes": { "command" : "ua", "args": ["gateway","--name","notes","--","notes-server"] }"#
            ),
            "{text}"
        );
        assert!(
            text.starts_with("// my servers\n{\n  \"theme\": \"dark\",")
                && text.contains("\"web\": {\"url\": \"https://x\"},\n  },")
        );
        let again = Format::Json.wrapped(here(), text, &ua(), &[]).unwrap();
        assert_eq!((&again.text, again.changes[0].what), (text, What::Already));
        let one = Format::Json.wrapped(here(), CONFIG, &ua(), &["notes".to_owned()]).unwrap();
        assert!(one.changes.len() == 1 && one.text.contains("\"command\": \"npx\""));
        assert!(
            Format::Json.wrapped(here(), CONFIG, &ua(), &["nobody".to_owned()]).is_err()
                && Format::Json.wrapped(here(), "{}", &ua(), &[]).is_err()
        );
    }

    /// What goes through the gateway of another folder does so still, and is said to.
    #[test]
    fn an_entry_of_another_gateway_is_said_to_be_one() {
        let config = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
        let own_root = Some("/own".to_owned());
        let of = |root: Option<&str>| Front { root: root.map(str::to_owned), own_root: own_root.clone(), ..ua() };
        for (first, second, what) in [
            (None, Some("/b"), What::Elsewhere),
            (Some("/a"), Some("/b"), What::Elsewhere),
            (Some("/a"), Some("/a"), What::Already),
            (Some("/a"), None, What::Elsewhere),
            (Some("/own"), None, What::Already),
            (None, Some("/own"), What::Already),
            (None, None, What::Already),
        ] {
            let made = Format::Json.wrapped(here(), config, &of(first), &[]).unwrap().text;
            let again = Format::Json.wrapped(here(), &made, &of(second), &[]).unwrap();
            assert_eq!((again.changes[0].what, again.text), (what, made), "{first:?} {second:?}");
        }
    }

    /// An anchor and its aliases are one value: what is written at one of them is written at all.
    #[test]
    fn what_yaml_shares_between_entries_is_left_alone() {
        for (config, whats) in [
            (
                "extensions:\n  a: &b\n    type: stdio\n    cmd: x\n    args: [y]\n  c: *b\n  d: {<<: *b}\n  e:\n    cmd: z\n    args: []\n",
                vec![What::Shared, What::Shared, What::Shared, What::Wrapped],
            ),
            (
                "x: &l [a]\nextensions:\n  a:\n    cmd: y\n    args: *l\n  b: {cmd: &c z, args: [q]}\n  d: {cmd: *c, args: [q]}\n",
                vec![What::Shared, What::Shared, What::Shared],
            ),
            ("x: &w a\nextensions:\n  a:\n    cmd: y\n    args: [q, *w]\n", vec![What::Wrapped]),
        ] {
            let made = Format::Yaml.wrapped(here(), config, &ua(), &[]).unwrap();
            let found: Vec<What> = made.changes.iter().map(|change| change.what).collect();
            assert_eq!(found, whats, "{}", made.text);
            assert_eq!(made.text == config, !whats.contains(&What::Wrapped));
        }
    }

    /// Nothing is changed of what is broken, and where is said; what has no tool servers yet is not broken.
    #[test]
    fn a_broken_configuration_is_named_with_the_line_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, words) in [
            (
                "a.json",
                "{\n  \"mcpServers\": {\"a\": {\"command\": \"x\"}\n",
                "it is not JSON: it ends in line 3 before it is complete: a closing } is missing",
            ),
            ("b.json", "{\n  \"mcpServers\": {\"a\": {\"command\" \"x\"}}\n}", "line 2: "),
            ("c.json", "{\"mcpServers\": [1]}", "it is JSON, but not a client's configuration"),
            ("d.json", " \n", "it is empty"),
            ("e.toml", "[mcp_servers.a\n", "line 1"),
            ("f.yaml", "extensions:\n  a: [1\n", "line"),
            ("g.json", "{\"theme\": 1}", "it names no tool servers"),
            ("h.json", "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n{\n", "line 2"),
            ("i.json", "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n\n]", "line 3"),
            ("j.json", "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}, \"b\": [1 2]}", "a comma between two values"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            for refused in
                [install(folder.path(), &path, &ua(), &[], false), uninstall(folder.path(), &path, &[], false)]
            {
                let refused = refused.unwrap_err();
                let message = refused.message();
                assert!(message.starts_with(&format!("cannot change {}: ", path.display())), "{message}");
                assert!(message.contains(words), "{name}: {message}");
                assert!(refused.hint_text().unwrap().starts_with("nothing was changed"), "{refused}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let none = folder.path().join("none.json");
        fs::write(&none, r#"{"mcpServers": {}}"#).unwrap();
        assert!(install(folder.path(), &none, &ua(), &[], false).unwrap().changes.is_empty());
    }

    /// An entry whose `ua` is not there any more gets the one that is; one that was written by hand stays.
    #[test]
    fn an_entry_follows_the_program_when_that_was_moved() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old/ua"), folder.path().join("ua"));
        fs::write(&new, "").unwrap();
        let front = |program: &Path| Front { program: program.display().to_string(), ..ua() };
        let config = r#"{"mcpServers": {"mail": {"command": "npx", "args": ["mail"]}}}"#;
        let made = Format::Json.wrapped(here(), config, &front(&old), &[]).unwrap().text;
        let moved = Format::Json.wrapped(here(), &made, &front(&new), &[]).unwrap();
        assert_eq!(moved.changes[0].what, What::Moved);
        assert_eq!(moved.changes[0].program.as_deref(), old.to_str());
        assert_eq!(moved.text, Format::Json.wrapped(here(), config, &front(&new), &[]).unwrap().text);
        let again = Format::Json.wrapped(here(), &moved.text, &front(&old), &[]).unwrap();
        assert_eq!((again.changes[0].what, &again.text), (What::Already, &moved.text));
        let by_hand = Format::Json.wrapped(here(), config, &ua(), &[]).unwrap().text;
        assert_eq!(Format::Json.wrapped(here(), &by_hand, &front(&new), &[]).unwrap().text, by_hand);
        // Another one that is there may be meant, until a person names the entry; another name of the same one is the same.
        let (other, link) = (folder.path().join("other"), folder.path().join("link"));
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        for (program, servers, what) in [
            (&other, &[][..], What::Already),
            (&other, &["mail".to_owned()][..], What::Moved),
            (&link, &["mail".to_owned()][..], What::Already),
        ] {
            let made = Format::Json.wrapped(here(), &moved.text, &front(program), servers).unwrap();
            assert_eq!(made.changes[0].what, what, "{program:?} {servers:?}");
            assert_eq!(made.text == moved.text, what == What::Already, "{}", made.text);
        }
    }

    #[test]
    fn what_was_installed_is_taken_away_to_the_byte() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("mcp.json"));
        fs::create_dir(&root).unwrap();
        fs::write(&path, CONFIG).unwrap();
        install(&root, &path, &ua(), &["mail".to_owned()], true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
        install(&root, &path, &ua(), &["mail".to_owned()], false).unwrap();
        install(&root, &path, &ua(), &[], false).unwrap();
        assert_ne!(fs::read_to_string(&path).unwrap(), CONFIG);
        uninstall(&root, &path, &[], false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
        assert!(!kept_at(&root, &path).exists());

        // Somebody changed it in between: theirs stays, ours goes.
        install(&root, &path, &ua(), &[], false).unwrap();
        let theirs = fs::read_to_string(&path).unwrap().replace("dark", "light");
        fs::write(&path, &theirs).unwrap();
        let taken = uninstall(&root, &path, &[], false).unwrap();
        assert!(
            taken.text.contains("light") && taken.text.contains(r#""command": "npx", "args": ["-y",   "mail"]"#),
            "{}",
            taken.text
        );
        assert_eq!(taken.text, CONFIG.replace("dark", "light"));
    }

    /// Wraps, wraps again, takes apart by itself, and puts back to the byte.
    fn there_and_back(name: &str, config: &str, servers: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join(name));
        fs::create_dir(&root).unwrap();
        fs::write(&path, config).unwrap();
        let servers: Vec<String> = servers.iter().map(|&name| name.to_owned()).collect();
        let made = install(&root, &path, &ua(), &servers, false).unwrap().text;
        let format = Format::of(&path);
        assert_eq!(format.wrapped(&path, &made, &ua(), &servers).unwrap().text, made);
        let apart = format.unwrapped(&path, &made, &Typed::default(), &servers).unwrap();
        assert!(apart.changes.iter().all(|change| change.what != What::Wrapped) && !apart.text.contains("gateway"));
        uninstall(&root, &path, &[], false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), config);
        let none = format.wrapped(&path, config, &ua(), &["nobody".to_owned()]).unwrap_err();
        assert!(none.to_string().contains("nobody"), "{none}");
        format!("{made}\n--- taken apart\n{}", apart.text)
    }

    #[test]
    fn an_address_becomes_a_program_and_an_address_again() {
        let config = r#"{"mcpServers": {
  "crm": {"type": "http", "url": "https://crm.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}", "X-Team": "a"}, "timeout": 5},
  // nobody says how it is to be logged in to
  "open": {"url": "https://open.example.com/mcp"},
  "my old one": {"type": "sse", "url": "https://old.example.com/sse"}
}}"#;
        insta::assert_snapshot!(there_and_back("mcp.json", config, &[]));
        let whats = |servers: &[String]| {
            let made = Format::Json.wrapped(here(), config, &ua(), servers).unwrap();
            made.changes.into_iter().map(|change| change.what).collect::<Vec<_>>()
        };
        assert_eq!(whats(&[]), [What::Wrapped, What::MayLogIn, What::Unreachable]);
        assert_eq!(whats(&["open".to_owned()]), [What::Wrapped]);
        let elsewhere = Front { root: Some("/srv/gateway".to_owned()), ..ua() };
        let made = Format::Json.wrapped(here(), config, &elsewhere, &[]).unwrap();
        assert!(made.text.contains(r#"["gateway", "--root", "/srv/gateway", "--name", "crm""#), "{}", made.text);
    }

    /// Names of headers that are one as a variable's name keep their values.
    #[test]
    fn no_two_headers_share_a_variable() {
        let config = r#"{"mcpServers": {
  "c": {"url": "https://c.example.com/mcp", "headers": {"X-Key": "1", "X_Key": "2", "x.key": "3"}}
}}"#;
        let made = Format::Json.wrapped(here(), config, &ua(), &[]).unwrap().text;
        for held in [
            r#""X-Key=C_X_KEY""#,
            r#""X_Key=C_X_KEY_2""#,
            r#""x.key=C_X_KEY_3""#,
            r#""C_X_KEY": "1""#,
            r#""C_X_KEY_2": "2""#,
            r#""C_X_KEY_3": "3""#,
        ] {
            assert!(made.contains(held), "{held} is not in {made}");
        }
    }

    /// What a person wrote with the gateway in it has what its arguments say, or is left as it is and said to be.
    #[test]
    fn an_address_behind_the_gateway_that_was_written_by_hand_is_restored_whole_or_not_at_all() {
        let entry = |format: Format, args: &str, env: &str| match format {
            Format::Json => {
                format!(r#"{{"mcpServers": {{"a": {{"command": "ua", "args": [{args}], "env": {{{env}}}}}}}}}"#)
            }
            Format::Toml => {
                format!("[mcp_servers.a]\ncommand = \"ua\"\nargs = [{args}]\nenv = {{ {} }}\n", env.replace(':', " ="))
            }
            Format::Yaml => format!("extensions:\n  a:\n    cmd: ua\n    args: [{args}]\n    envs: {{{env}}}\n"),
        };
        let back = |format: Format, args: &str, env: &str| {
            let text = entry(format, &format!(r#""gateway", {args}, "--url", "https://x/mcp""#), env);
            let made = format.unwrapped(here(), &text, &Typed::default(), &[]).unwrap();
            let again = format.wrapped(here(), &text, &ua(), &[]).unwrap();
            assert_eq!((again.changes[0].what, &again.text), (What::Already, &text));
            assert_eq!(made.changes[0].what == What::NotRestored, made.text == text, "{}", made.text);
            (made.changes[0].what, made.text)
        };
        for (args, env, headers) in [
            (
                r#""--env", "K", "--header", "Authorization: Bearer ${K}""#,
                r#""K": "1""#,
                r#""Authorization":"Bearer 1""#,
            ),
            (r#""--header", "X: v""#, r#""K": "1""#, r#""X":"v""#),
            (r#""--header", "X: ${K}", "--env", "K""#, r#""K": "1""#, r#""X":"1""#),
            (
                r#""--header", "X-Key:a-${K}-${L}-${M}", "--env", "K", "--env", "L""#,
                r#""K": "1", "L": "2""#,
                r#""X-Key":"a-1-2-${M}""#,
            ),
            (r#""--name", "--header", "--header-from", "X=K""#, r#""K": "1""#, r#""X":"1""#),
        ] {
            let (what, text) = back(Format::Json, args, env);
            assert!(
                what == What::Unwrapped && text.replace(": ", ":").contains(&headers.replace(": ", ":")),
                "{args}: {text}"
            );
            assert!(!text.contains("gateway") && text.contains("https://x/mcp"), "{text}");
            let (what, text) = back(Format::Toml, args, env);
            let header = headers.replacen(':', " = ", 1).replace('"', "");
            assert!(what == What::Unwrapped && text.replace('"', "").contains(&header), "{args}: {text}");
            assert_eq!(back(Format::Yaml, args, env).0, What::NotRestored, "goose's addresses are not written here");
        }
        let (what, text) = back(Format::Toml, r#""--env", "K", "--header", "Authorization: Bearer ${K}""#, "");
        assert!(what == What::Unwrapped && text.contains("bearer_token_env_var = \"K\""), "{text}");
        for format in [Format::Json, Format::Toml] {
            // What the variable holds stands nowhere, or the header is not of the form that its client has.
            assert_eq!(back(format, r#""--env", "K", "--header", "X: a ${K}""#, "").0, What::NotRestored);
            assert_eq!(back(format, r#""--env", "K", "--header", "X""#, "").0, What::NotRestored);
        }
    }

    /// One entry for all tool servers is the gateway's, and has none behind it.
    #[test]
    fn the_gateway_for_all_tool_servers_is_left_alone() {
        for (name, text) in [
            ("a.json", r#"{"mcpServers": {"all": {"command": "ua", "args": ["gateway", "--all"]}}}"#),
            (
                "a.json",
                r#"{"mcpServers": {"all": {"command": "/opt/ua", "args": ["--root", "/r", "gateway", "--name", "x", "--all"]}}}"#,
            ),
            (
                "a.toml",
                "[mcp_servers.all]\ncommand = \"ua\"\nargs = [\"gateway\", \"--all\"]\ntool_timeout_sec = 3600\n",
            ),
            ("a.yaml", "extensions:\n  all:\n    cmd: ua\n    args: [gateway, --all]\n"),
        ] {
            let format = Format::of(Path::new(name));
            // A program that is not there any more is another matter.
            let made = format.wrapped(here(), &text.replace("/opt/ua", "ua"), &ua(), &[]).unwrap();
            assert_eq!((made.changes[0].what, made.text), (What::Already, text.replace("/opt/ua", "ua")));
            let back = format.unwrapped(here(), text, &Typed::default(), &[]).unwrap();
            assert_eq!((back.changes[0].what, back.text.as_str()), (What::All, text));
        }
        // Behind `--` these words are another program's.
        let other =
            r#"{"mcpServers": {"a": {"command": "ua", "args": ["gateway", "--name", "a", "--", "x", "--all"]}}}"#;
        let back = Format::Json.unwrapped(here(), other, &Typed::default(), &[]).unwrap();
        assert_eq!(back.changes[0].what, What::Unwrapped, "{}", back.text);
        // An entry is behind the gateway also where `ua` is told its folder first.
        let rooted = r#"{"mcpServers": {"a": {"command": "ua", "args": ["--root", "/r", "gateway", "--", "x", "y"]}}}"#;
        assert_eq!(Format::Json.wrapped(here(), rooted, &ua(), &[]).unwrap().changes[0].what, What::Already);
        let back = Format::Json.unwrapped(here(), rooted, &Typed::default(), &[]).unwrap();
        assert!(back.text.contains(r#""command": "x", "args": ["y"]"#), "{}", back.text);
    }

    #[test]
    fn codex_keeps_its_comments_and_waits_for_a_person() {
        let config = r#"# mine
model = "gpt-5"

[mcp_servers.mail]
command = "npx" # from the registry
args = ["-y", "mail-server"]
env_vars = ["SMTP_PASSWORD"]

[mcp_servers.mail.env]
KEY = "k"

[mcp_servers."my notes"]
command = "notes"
tool_timeout_sec = 20

[mcp_servers.crm]
url = "https://crm.example.com/mcp"
bearer_token_env_var = "CRM_TOKEN"
http_headers = { "X-Team" = "a" }
env_http_headers = { "X-Key" = "CRM_KEY" }
"#;
        insta::assert_snapshot!(there_and_back("config.toml", config, &[]));
    }

    /// Else the broker takes a client that it knows for one that waits as long as a person may take.
    #[test]
    fn how_long_a_client_waits_goes_with_its_entry() {
        let front = Front { program: "ua".to_owned(), root: None, own_root: None };
        for (name, text, patience) in [
            ("x.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["y"], "timeout": 5000}}}"#, Some(5)),
            ("x.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["y"], "timeout": 5}}}"#, None),
            ("x.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["y"]}}}"#, None),
            ("x.toml", "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"y\"]\ntool_timeout_sec = 10\n", Some(10)),
            ("x.toml", "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"y\"]\ntool_timeout_sec = 7.5\n", Some(7)),
            ("x.yaml", "extensions:\n  a:\n    cmd: x\n    args: [y]\n    timeout: 20\n", Some(20)),
        ] {
            let path = Path::new(name);
            let wrapped = Format::of(path).wrapped(path, text, &front, &[]).unwrap();
            assert_eq!(wrapped.changes[0].patience, patience, "{text}");
            let passed = patience.map(|seconds| format!("\"--patience\",\"{seconds}\",\"--\""));
            let is_passed = passed.map_or(!wrapped.text.contains("patience"), |words| wrapped.text.contains(&words));
            assert!(is_passed, "{}", wrapped.text);
            let back = Format::of(path).unwrapped(path, &wrapped.text, &Typed::default(), &[]).unwrap();
            assert_eq!(back.text, text);
        }
    }

    #[test]
    fn goose_keeps_its_comments_and_its_layout() {
        let config = "# ü mine\nGOOSE_PROVIDER: anthropic\nextensions:\n  mail:\n    enabled: true\n    type: stdio\n    cmd: npx   # from the registry\n    args:\n    - -y\n    - 'mail-server' # the first\n    env_keys: [SMTP_PASSWORD]\n    envs:\n      KEY: k\n    timeout: 300\n  notes: {type: stdio, cmd: notes, args: [a, \"b\"]}\n  plain:\n    cmd: \"plain\"\n    enabled: false\n  flow: {cmd: flow}\n  memory:\n    type: builtin\n    name: memory\n  crm:\n    type: streamable_http\n    uri: https://crm.example.com/mcp\n";
        insta::assert_snapshot!(there_and_back("config.yaml", config, &[]));
    }

    #[test]
    fn a_misspelt_server_is_told_which_there_are() {
        for (name, text) in [
            ("x.json", r#"{"mcpServers": {"letters": {"command": "a"}}}"#),
            ("x.toml", "[mcp_servers.letters]\ncommand = \"a\"\n"),
            ("x.yaml", "extensions:\n  letters:\n    cmd: a\n    args: []\n    type: stdio\n"),
        ] {
            let path = Path::new(name);
            let refused =
                Format::of(path).unwrapped(path, text, &Typed::default(), &["lettres".to_owned()]).unwrap_err();
            assert_eq!(refused.hint_text(), Some("did you mean `letters`? the configuration has: letters"), "{name}");
        }
    }
}
