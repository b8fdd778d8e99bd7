//! The run's folder: what a person reads. The database is the truth; everything here can be written again.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::Digest as _;
use ua_core::{INPUT_FOLDER, RunId, Sha256, TASK_FOLDER};
use ua_evidence::Artifact;

/// The file in a task's folder that holds what it came to.
pub(crate) const OUTPUT_FILE: &str = "subagent_output.json";

/// A file of the workspace that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}", path.display())]
pub struct WorkspaceError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl WorkspaceError {
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self { doing, path, source }
    }

    /// Whether the disk, not the program, is the problem.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
}

/// Folders that every run has.
const FOLDERS: [&str; 3] = ["work_products", "search_results", "tasks"];

/// Files that the runner itself writes; they are no artifacts. A transcript is both.
const OWN: [&str; 9] = [
    "run.log",
    "trace.jsonl",
    "trace.json",
    "session_summary.txt",
    "timeline.html",
    Workspace::BLOBS,
    "logs",
    OUTPUT_FILE,
    INPUT_FOLDER,
];

impl Workspace {
    /// The folder into which an export puts the texts of large results.
    pub const BLOBS: &str = "result_blobs";

    /// Makes the folder if it is not there.
    pub fn create(root: &Path) -> Result<Self, WorkspaceError> {
        for folder in std::iter::once(root.to_path_buf()).chain(FOLDERS.iter().map(|name| root.join(name))) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|source| WorkspaceError { doing: "create", path: folder, source })?;
        }
        Self::open(root)
    }

    /// Opens a folder that is there.
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        let root =
            root.canonicalize().map_err(|source| WorkspaceError { doing: "open", path: root.to_path_buf(), source })?;
        Ok(Self { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The name of the resume packet of `run`, without extension.
    pub fn packet_name(run: &RunId) -> String {
        format!("resume_packet_{run}")
    }

    /// The name of the completion file of `run`, without extension.
    pub fn completion_name(run: &RunId) -> String {
        format!("job_completion_{run}")
    }

    /// Replaces a file: whoever reads it sees the old content or the new, never a part.
    pub fn replace(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), WorkspaceError> {
        replace_file(&self.root.join(name), content.as_ref())
    }

    /// Appends a line to a file.
    pub fn append_line(&self, name: &str, line: &str) -> Result<(), WorkspaceError> {
        let path = self.root.join(name);
        let appended = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).and_then(|mut file| {
            // One write, so that lines of two processes never mix.
            file.write_all(format!("{line}\n").as_bytes())
        });
        appended.map_err(|source| WorkspaceError { doing: "append to", path, source })
    }

    /// Every file that a tool made, with its digest, by path.
    pub fn artifacts(&self) -> Result<Vec<Artifact>, WorkspaceError> {
        let mut found = Vec::new();
        self.collect(&self.root, &mut found)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn collect(&self, folder: &Path, found: &mut Vec<Artifact>) -> Result<(), WorkspaceError> {
        let fail = |path: &Path| {
            let path = path.to_path_buf();
            move |source| WorkspaceError { doing: "read", path, source }
        };
        for entry in fs::read_dir(folder).map_err(fail(folder))? {
            let entry = entry.map_err(fail(folder))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(fail(&path))?;
            let Ok(relative) = path.strip_prefix(&self.root) else { continue };
            let name = relative.to_string_lossy().into_owned();
            if is_own(&name) {
                continue;
            }
            if kind.is_dir() {
                self.collect(&path, found)?;
            } else if kind.is_file() {
                let (bytes, sha256) = digest_file(&path).map_err(fail(&path))?;
                found.push(Artifact { path: name, bytes, sha256 });
            }
        }
        Ok(())
    }

    /// The media type that a file's first bytes show.
    pub fn media_type(&self, name: &str) -> Option<String> {
        let mut head = Vec::new();
        fs::File::open(self.root.join(name)).ok()?.take(512).read_to_end(&mut head).ok()?;
        sniff(&head).map(str::to_owned)
    }
}

fn sniff(head: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 6] = [
        (b"%PDF-", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b", "application/gzip"),
    ];
    if let Some((_, media_type)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(media_type);
    }
    let text = std::str::from_utf8(head).or_else(|e| std::str::from_utf8(&head[..e.valid_up_to()])).ok()?;
    let start = text.trim_start().to_lowercase();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        return Some("text/html");
    }
    (!text.is_empty()).then_some("text/plain")
}

/// Whether a file or folder of the workspace is the runner's own, by its path in it.
pub(crate) fn is_own(name: &str) -> bool {
    // The folder of a task has the same files as that of a run, and what the task came to.
    if let Some((_, inner)) = name.strip_prefix(TASK_FOLDER).and_then(|rest| rest.strip_prefix('/')?.split_once('/')) {
        return is_own(inner);
    }
    OWN.contains(&name)
        || name.starts_with("resume_packet_")
        || name.starts_with("job_completion_")
        || name.starts_with('.')
        || Path::new(name).extension().is_some_and(|extension| extension == "tmp")
}

pub(crate) fn digest_file(path: &Path) -> io::Result<(u64, Sha256)> {
    let mut file = fs::File::open(path)?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, Sha256::from_bytes(hasher.finalize().into())));
        }
        bytes += read as u64;
        hasher.update(&buffer[..read]);
    }
}

/// Replaces the file at `path` by temp file and rename.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<(), WorkspaceError> {
    // Two processes may write the same file at once: one that drives a run, and one that exports it.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it would only take room; that it may not be there is no second failure.
        fs::remove_file(&temporary).ok();
    }
    written.map_err(|source| WorkspaceError { doing: "write", path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_what_tools_made() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.replace("work_products/report.html", "<!DOCTYPE html><p>hi").unwrap();
        workspace.replace("transcript.md", "# t").unwrap();
        workspace.replace("trace.json", "{}").unwrap();
        workspace.append_line("run.log", "x").unwrap();
        fs::create_dir(workspace.path(".ua")).unwrap();
        fs::write(workspace.path(".ua/journal"), "x").unwrap();
        let task = Workspace::create(&workspace.path("subagent_outputs/call_1")).unwrap();
        for name in ["work_products/part.md", "run.log", "subagent_output.json", "job_completion_run_task_1.md"] {
            task.replace(name, "x").unwrap();
        }
        let names: Vec<String> = workspace.artifacts().unwrap().into_iter().map(|a| a.path).collect();
        assert_eq!(
            names,
            ["subagent_outputs/call_1/work_products/part.md", "transcript.md", "work_products/report.html"]
        );
        assert_eq!(workspace.media_type("work_products/report.html").as_deref(), Some("text/html"));
        assert_eq!(sniff(b"%PDF-1.7"), Some("application/pdf"));
    }
}
