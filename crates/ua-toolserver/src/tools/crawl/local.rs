//! Pages from this machine, below directories that a person allowed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File};
use ua_files::Closed;
use url::Url;

use super::{Document, Kind};
use crate::answer::Failure;
use crate::error::ToolServerError;
use crate::regular;
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// The directories that file:// addresses may point into: the workspace and those of the settings.
#[derive(Debug)]
pub(super) struct Roots {
    workspace: Arc<Workspace>,
    others: Vec<Root>,
    closed: Closed,
}

#[derive(Debug)]
struct Root {
    dir: Dir,
    /// The absolute path as given and without symbolic links.
    paths: [PathBuf; 2],
}

impl Roots {
    pub(super) fn open(
        workspace: Arc<Workspace>,
        allowed: &[PathBuf],
        private: &[PathBuf],
    ) -> Result<Self, ToolServerError> {
        let open = |path: &PathBuf| {
            Ok(Root {
                dir: Dir::open_ambient_dir(path, ambient_authority())?,
                paths: [std::path::absolute(path)?, path.canonicalize()?],
            })
        };
        let others = allowed
            .iter()
            .map(|path| {
                open(path).map_err(|source| ToolServerError::Directory { role: "allowed", path: path.clone(), source })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { workspace, others, closed: Closed::new(private) })
    }

    pub(super) fn read(&self, url: &Url) -> Result<Document, Failure> {
        let path = url.to_file_path().map_err(|()| {
            Failure::refused("the address names no file of this machine", "give file:///path/to/page.html")
        })?;
        let could_not = |error: &std::io::Error| Failure::io(format_args!("read {}", path.shown()), error);
        let (dir, relative) = self.locate(&path)?;
        let (file, metadata) = regular::open(dir, &relative).map_err(|error| could_not(&error))?;
        if metadata.is_dir() {
            return Err(directory(dir, &relative, &path));
        }
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err(Failure::refused(
                format!("{} is not a file of at most {} MiB", path.shown(), MAX_BYTES >> 20),
                "name a text or HTML file",
            ));
        }
        let kind = kind_of(&path)?;
        let text = read_text(file).map_err(|error| could_not(&error))?;
        Ok(Document { source: url.clone(), http_status: None, kind, text })
    }

    /// The open directory that `path` is in, and the way from there.
    fn locate(&self, path: &Path) -> Result<(&Dir, PathBuf), Failure> {
        if let Some(relative) = self.workspace.relative(path) {
            let relative = if relative.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                self.workspace.readable(&relative.to_string_lossy())?
            };
            return Ok((self.workspace.area().dir(), relative));
        }
        let below =
            |root: &Root| root.paths.iter().find_map(|start| path.strip_prefix(start).ok().map(Path::to_path_buf));
        let mut is_closed = false;
        for (root, relative) in self.others.iter().filter_map(|root| Some((root, below(root)?))) {
            let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
            let [_, start] = &root.paths;
            // What links in the way come to, so that they lead past no rule, and what is opened is what was judged. What is not there, or
            // leads out, fails when it is opened; its name is judged all the same.
            let found = root.dir.canonicalize(&relative).unwrap_or_else(|_| relative.clone());
            let found = if found.as_os_str().is_empty() { relative.clone() } else { found };
            if [&found, &relative].iter().all(|way| !self.closed.has(start, &start.join(way))) {
                return Ok((&root.dir, found));
            }
            is_closed = true;
        }
        if is_closed {
            return Err(Failure::refused(
                format!("{} is private: it belongs to other runs, to ua, or to the user's secrets", path.shown()),
                "name a file in the workspace; a person can keep what the run needs in a folder of the run's own",
            ));
        }
        Err(Failure::refused(
            format!("{} is outside the directories that may be read", path.shown()),
            "name a file in the workspace; a person can allow other directories with --allow-root",
        ))
    }
}

/// Says that a directory is not a page, and which of its files may be meant.
fn directory(dir: &Dir, relative: &Path, path: &Path) -> Failure {
    let names = dir.read_dir(relative).map(|entries| {
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| {
                let lower = name.to_ascii_lowercase();
                lower.starts_with("index.") || lower.starts_with("readme")
            })
            .collect();
        names.sort();
        names
    });
    let hint = match names {
        Ok(names) if !names.is_empty() => {
            format!("name a file in it; there is {}", names.join(", "))
        }
        Ok(_) | Err(_) => "name a file in it; it has no index or README file".to_owned(),
    };
    Failure::refused(format!("{} is a directory", path.shown()), hint)
}

fn kind_of(path: &Path) -> Result<Kind, Failure> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" | "xhtml" => Ok(Kind::Html),
        "md" | "markdown" | "txt" | "" => Ok(Kind::Text),
        other => Err(Failure::refused(
            format!(".{other} files are not HTML, Markdown or plain text"),
            "name an .html, .md or .txt file",
        )),
    }
}

fn read_text(file: File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
