//! The workspace: the one directory tree that tools may name paths in.
//!
//! Confinement is `cap-std`'s: every path is opened relative to an open directory and cannot lead out of it, whatever
//! symbolic links say. What is added here: `..` and foreign absolute paths are refused with a hint, `.ua/` belongs to
//! the server, and the outbox and the other stores are written by their own tools only.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use serde::Serialize;
use ua_core::{Redactor, ShowPath as _};

use crate::answer::Failure;
use crate::area::Area;

/// The server's private directory inside the workspace.
pub(crate) const PRIVATE: &str = ".ua";
const LOCK: &str = ".ua/lock";

/// The tree and its rules.
#[derive(Debug)]
pub(crate) struct Workspace {
    area: Area,
    /// The absolute path as it was given, when it differs from the area's.
    alias: PathBuf,
    /// Directories inside the workspace that only one tool may write to.
    reserved: RwLock<Vec<(PathBuf, &'static str)>>,
    /// Knows what this server signs in with.
    redactor: Redactor,
}

impl Workspace {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let alias = std::path::absolute(path)?;
        Ok(Self { area: Area::open(path)?, alias, reserved: RwLock::default(), redactor: Redactor::default() })
    }

    /// Keeps what this redactor knows out of its records.
    pub(crate) fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// A record as it is kept: in the words of another side may be what it was given.
    pub(crate) fn kept(&self, record: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let mut record = serde_json::to_value(record)?;
        self.redactor.json(&mut record);
        serde_json::to_vec_pretty(&record)
    }

    /// Keeps other tools than `tool` from writing below the absolute path `directory`, if it is in the workspace.
    pub(crate) fn reserve(&self, directory: &Path, tool: &'static str) {
        if let Some(relative) = self.relative(directory).filter(|path| !path.as_os_str().is_empty()) {
            self.reserved.write().unwrap_or_else(PoisonError::into_inner).push((relative, tool));
        }
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// The absolute path of a relative one.
    pub(crate) fn absolute(&self, relative: &Path) -> PathBuf {
        self.area.path().join(relative)
    }

    /// Keeps other writers out until the result is dropped, those of other processes too.
    pub(crate) fn exclusive(&self) -> Result<std::fs::File, Failure> {
        self.area.lock(Path::new(LOCK)).map_err(|error| Failure::io("lock the workspace", &error))
    }

    /// The path below the workspace that an absolute path names.
    pub(crate) fn relative(&self, absolute: &Path) -> Option<PathBuf> {
        [self.area.path(), &self.alias].iter().find_map(|root| absolute.strip_prefix(root).ok()).map(Path::to_path_buf)
    }

    /// The relative path, without symbolic links, that `path` names for reading. It need not exist.
    pub(crate) fn readable(&self, path: &str) -> Result<PathBuf, Failure> {
        let resolved = self.resolve(path, &self.clean(path)?)?;
        let private = resolved.components().next().is_some_and(|first| first.as_os_str().eq_ignore_ascii_case(PRIVATE));
        if private {
            return Err(Failure::refused(
                format!("{path:?} is inside {PRIVATE}/, which is private to the tool server"),
                "use another directory of the workspace",
            ));
        }
        Ok(resolved)
    }

    /// As [`readable`](Self::readable), and not inside a directory that another tool keeps.
    pub(crate) fn writable(&self, path: &str) -> Result<PathBuf, Failure> {
        let resolved = self.readable(path)?;
        if resolved.as_os_str().is_empty() {
            return Err(Failure::refused(format!("{path:?} is the workspace itself"), "name a file inside it"));
        }
        let reserved = self.reserved.read().unwrap_or_else(PoisonError::into_inner);
        match reserved.iter().find(|(directory, _)| resolved.starts_with(directory)) {
            None => Ok(resolved),
            Some((directory, tool)) => Err(Failure::refused(
                format!("{path:?} is inside {}/, which only {tool} writes to", directory.shown()),
                format!("call {tool}, or write to another directory"),
            )),
        }
    }

    /// Brings `path` into relative form without looking at the disk.
    fn clean(&self, path: &str) -> Result<PathBuf, Failure> {
        if path.is_empty() || path.contains('\0') {
            return Err(Failure::refused(
                format!("{path:?} is not a path"),
                "give a path relative to the workspace, such as reports/summary.md",
            ));
        }
        let given = Path::new(path);
        let relative = if given.is_absolute() {
            self.relative(given).ok_or_else(|| {
                Failure::refused(
                    format!("{path:?} is not in the workspace"),
                    "give a path relative to the workspace, such as reports/summary.md",
                )
            })?
        } else {
            given.to_path_buf()
        };
        let mut clean = PathBuf::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(Failure::refused(
                        format!("{path:?} contains \"..\""),
                        "give the path from the workspace down, without \"..\"",
                    ));
                }
            }
        }
        Ok(clean)
    }

    /// Follows symbolic links in as much of `clean` as exists.
    fn resolve(&self, path: &str, clean: &Path) -> Result<PathBuf, Failure> {
        for existing in clean.ancestors() {
            if existing.as_os_str().is_empty() {
                break;
            }
            match self.area.dir().canonicalize(existing) {
                Ok(found) => {
                    let rest = clean.strip_prefix(existing).unwrap_or(Path::new(""));
                    // `join` with an empty path would add a slash.
                    return Ok(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::io(format_args!("follow {path:?} inside the workspace"), &error));
                }
            }
        }
        Ok(clean.to_path_buf())
    }
}
