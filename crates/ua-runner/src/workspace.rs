//! The run's folder: what a person reads. The database is the truth; everything here can be written again.
//!
//! Tools and programs of a model write here, too, so every file is reached through [`ua_files`]: a name that somebody made a link, a pipe or
//! a device is neither followed nor waited for.

pub(crate) mod digests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ua_core::{Busy, CallId, INPUT_FOLDER, RunId, RunSpec, Sha256, ShowPath as _, TASK_FOLDER};
use ua_evidence::{Artifact, Unread};
use ua_files::{Folder, Kind, Replacement};
use ua_resume::{Commands, Standing};
use ua_store::{QueueState, RunRecord};

use self::digests::{Digests, LeftOut, Look, MOST_FILES};

/// The file in a task's folder that holds what it came to.
pub(crate) const OUTPUT_FILE: &str = "subagent_output.json";

/// A file of the workspace that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.shown())]
pub struct WorkspaceError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl WorkspaceError {
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self { doing, path, source }
    }

    /// That a folder is no workspace, for this reason.
    pub fn of_another(path: &Path, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { doing: "open", path: path.to_path_buf(), source: io::Error::new(io::ErrorKind::PermissionDenied, why) }
    }

    /// That a folder cannot be opened, since one above it cannot.
    pub fn unopened(path: &Path, source: io::Error) -> Self {
        Self { doing: "open", path: path.to_path_buf(), source }
    }

    /// Whether the disk, not the program, is the problem.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct Workspace {
    folder: Folder,
    commands: Commands,
    /// How its run stood in the queue when it was taken; `None` of one that is in none.
    queue: Option<QueueState>,
    /// Where its run stands, when whoever writes its files knows more of that than what is stored.
    standing: Option<Standing>,
    pub(crate) digests: Arc<Digests>,
}

/// The file that says whose folder it is.
const OWNER: &str = ".run";
/// The most that is read of it, in bytes: it has one run's id, and stands where programs of a model write.
const MAX_OWNER_BYTES: u64 = 4 * 1024;

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

    /// Makes a run's folder that a program of this user named whole, if it is not there. What lies above it is that program's choice, and
    /// is made where it is missing; the folder itself may be no link. A name that a job, a model or a database gives is for
    /// [`Self::create_in`].
    ///
    /// # Errors
    /// [`WorkspaceError`] when the folder is a link, or one of them cannot be made.
    #[expect(clippy::disallowed_methods, reason = "whoever names the folder whole says where it is")]
    pub fn create(path: &Path) -> Result<Self, WorkspaceError> {
        let (above, name) = parted(path)?;
        std::fs::create_dir_all(above).map_err(WorkspaceError::at("create", above))?;
        let above = above.canonicalize().and_then(|above| Folder::open(&above));
        Self::create_in(&above.map_err(WorkspaceError::at("open", path))?, name)
    }

    /// Makes a run's folder `below` an open one, if it is not there: part by part, none of which may be a link, for programs of other runs
    /// may have written where it is to be.
    ///
    /// # Errors
    /// [`WorkspaceError`] when a part is a link (`InvalidInput`) or no folder, leads out, or cannot be made.
    pub fn create_in(root: &Folder, below: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        let below = below.as_ref();
        let folder = root.make_folder(below).map_err(WorkspaceError::at("create", &root.path().join(below)))?;
        let workspace =
            Self { folder, commands: Commands::default(), queue: None, standing: None, digests: Arc::default() };
        for name in FOLDERS {
            workspace.make_folder(name)?;
        }
        Ok(workspace)
    }

    /// Removes a folder that was made for a run which is not stored, as far as nothing lies in it: what stays is in nobody's way.
    pub(crate) fn remove_empty(path: &Path) {
        for name in FOLDERS {
            let _may_stay = std::fs::remove_dir(path.join(name));
        }
        let _may_stay = std::fs::remove_dir(path);
    }

    /// Removes the folder of a run that is not there any more, with all that lies in it. Links in it are removed, and not followed.
    ///
    /// # Errors
    /// [`WorkspaceError`] when something of it cannot be removed.
    pub fn remove_whole(self) -> Result<(), WorkspaceError> {
        let path = self.root().to_path_buf();
        std::fs::remove_dir_all(&path).map_err(WorkspaceError::at("remove", &path))
    }

    /// Opens a folder that is there and that a program of this user named whole. It may not be a link itself; what lies above it is that
    /// program's choice.
    ///
    /// # Errors
    /// [`WorkspaceError`] when it is not there, or is a link.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let fail = || WorkspaceError::at("open", path);
        let (above, name) = parted(path)?;
        let path = above.canonicalize().map_err(fail())?.join(name);
        Ok(Self {
            folder: Folder::open_itself(&path).map_err(fail())?,
            commands: Commands::default(),
            queue: None,
            standing: None,
            digests: Arc::default(),
        })
    }

    /// Opens a run's folder that is there, `below` an open one, as [`Self::create_in`] makes it.
    ///
    /// # Errors
    /// [`WorkspaceError`] when it is not there, or a part is a link.
    pub fn open_in(root: &Folder, below: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        let below = below.as_ref();
        let folder = root.folder(below).map_err(WorkspaceError::at("open", &root.path().join(below)))?;
        Ok(Self { folder, commands: Commands::default(), queue: None, standing: None, digests: Arc::default() })
    }

    /// Makes the folder of a task of this run, in this folder.
    pub(crate) fn make_task(&self, call: &CallId) -> Result<Self, WorkspaceError> {
        let task = Self::create_in(&self.folder, task_folder(call))?;
        Ok(task.with_commands(self.commands.clone()).in_queue(self.queue))
    }

    /// The folder of a task of this run; `None` when there is none.
    pub(crate) fn task(&self, call: &CallId) -> Result<Option<Self>, WorkspaceError> {
        match Self::open_in(&self.folder, task_folder(call)) {
            Err(error) if error.io().kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The same, in whose pages commands name the folder in which they find the run.
    #[must_use]
    pub fn with_commands(mut self, commands: Commands) -> Self {
        self.commands = commands;
        self
    }

    /// The same of a run that stands in the queue like this when it is driven, if it does: its pages say who goes on with it.
    #[must_use]
    pub fn in_queue(mut self, queue: Option<QueueState>) -> Self {
        self.queue = queue;
        self
    }

    /// The same of a run that stands like this while nobody drives it, whatever is stored of it: its files say so.
    #[must_use]
    pub fn standing_like(mut self, standing: Standing) -> Self {
        self.standing = Some(standing);
        self
    }

    /// Where its run stands, for its files. Whoever drives it knows nothing but what it stored itself.
    pub(crate) fn standing_of(&self, run: &RunRecord) -> Standing {
        self.standing.clone().unwrap_or(Standing::Stored(run.status, run.stop_reason))
    }

    /// How its run stands in the queue.
    pub(crate) fn queue(&self) -> Option<QueueState> {
        self.queue
    }

    /// What makes the commands in its pages complete.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Makes the folder that of one run: what lies in it is that run's, so that another one is never judged by it. `Err` has the run whose
    /// folder it is already. The mark is no artifact, and no fork takes it over.
    pub(crate) fn claim(&self, run: &RunId) -> Result<Result<(), String>, WorkspaceError> {
        match self.owner()? {
            Some(owner) if owner.is_empty() || owner == run.as_str() => Ok(Ok(())),
            Some(owner) => Ok(Err(owner)),
            None => self.replace(OWNER, format!("{run}\n")).map(Ok),
        }
    }

    /// The run whose folder it is by its mark, which a kill may have left empty; `None` when there is no mark.
    ///
    /// # Errors
    /// [`WorkspaceError`] when the mark cannot be read.
    pub fn owner(&self) -> Result<Option<String>, WorkspaceError> {
        let path = self.path(OWNER);
        match self.folder.read(OWNER, MAX_OWNER_BYTES) {
            Ok(owner) => Ok(Some(String::from_utf8_lossy(&owner).trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(WorkspaceError::at("read", &path)(error)),
        }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The folder, open: files in it are read through this.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
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
        let mut file = self.writing(name)?;
        file.with(|out| out.write_all(content.as_ref()))?;
        file.place()
    }

    /// Begins to write a file that will replace another one.
    pub(crate) fn writing(&self, name: &str) -> Result<Writing, WorkspaceError> {
        let path = self.path(name);
        let file = self.folder.replacement(name).map_err(WorkspaceError::at("write", &path))?;
        Ok(Writing { file, path })
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), WorkspaceError> {
        match self.folder.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(WorkspaceError::at("remove", &self.path(name))(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Appends a line to a file.
    pub fn append_line(&self, name: &str, line: &str) -> Result<(), WorkspaceError> {
        // One write, so that lines of two processes never mix.
        let appended = self.folder.append(name).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        appended.map_err(WorkspaceError::at("append to", &self.path(name)))
    }

    /// Makes a folder in it, and what is missing above that.
    pub(crate) fn make_folder(&self, name: &str) -> Result<(), WorkspaceError> {
        self.folder.make_folder(name).map(drop).map_err(WorkspaceError::at("create", &self.path(name)))
    }

    /// Says, for as long as this is kept, that it is looked at.
    pub(crate) fn looked_through(&self) -> Busy {
        Busy::with(format!("looking through {}", self.root().shown()))
    }

    /// Every file that a tool made, with its digest, by path; but for what is too large or too much for that, which is said once.
    pub fn artifacts(&self) -> Result<Vec<Artifact>, WorkspaceError> {
        let mut found = Found {
            artifacts: Vec::new(),
            left_out: LeftOut::default(),
            looked_at: 0,
            look: Look::whole(),
            busy: self.looked_through(),
        };
        self.collect(&self.folder, "", &mut found)?;
        self.digests.tell(&found.left_out);
        found.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found.artifacts)
    }

    /// The same, and what the job names of the rest, each file of which is looked at by itself: however many lie beside it, it is what the run is for.
    pub fn artifacts_of(&self, spec: &RunSpec) -> Result<Vec<Artifact>, WorkspaceError> {
        let mut artifacts = self.artifacts()?;
        for path in self.named_besides(spec, &artifacts) {
            if let Ok(Some((bytes, sha256))) = self.digest_alone(&path) {
                artifacts.push(Artifact { path, bytes, sha256 });
            }
        }
        artifacts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(artifacts)
    }

    /// The files that the job names and that are there, and of which no digest is among `artifacts`.
    pub fn unread(&self, spec: &RunSpec, artifacts: &[Artifact]) -> Vec<Unread> {
        let size =
            |path: &str| self.folder.open_file(path).and_then(|file| file.metadata()).ok().map(|meta| meta.len());
        let named = self.named_besides(spec, artifacts).into_iter();
        named.filter_map(|path| Some(Unread { bytes: size(&path)?, path })).collect()
    }

    /// The length and digest of the file at `path`, whatever lies beside it; `None` where it is too large, or would take too long now.
    pub(crate) fn digest_alone(&self, path: &str) -> io::Result<Option<(u64, Sha256)>> {
        self.digests.of(self.folder.open_file(path)?, &mut Look::whole())
    }

    /// Where the files may be that the job names and that are not among `artifacts`. A bare name is looked for everywhere, by names alone.
    fn named_besides(&self, spec: &RunSpec, artifacts: &[Artifact]) -> BTreeSet<String> {
        let names = ua_evidence::named_files(spec);
        let bare: BTreeSet<&str> = names.iter().map(String::as_str).filter(|name| !name.contains('/')).collect();
        let mut nearest: BTreeMap<String, String> = BTreeMap::new();
        if !bare.is_empty() {
            self.each_file(|_, path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                let is_nearer = |other: &String| ua_evidence::nearness(&path) < ua_evidence::nearness(other);
                if bare.contains(name) && nearest.get(name).is_none_or(is_nearer) {
                    nearest.insert(name.to_owned(), path);
                }
                true
            });
        }
        let of_bare = bare.iter().map(|name| format!("{}/{name}", FOLDERS[0])).chain(nearest.into_values());
        let mut paths: BTreeSet<String> = of_bare.chain(names.iter().cloned()).collect();
        paths.retain(|path| is_of_tools(path) && !artifacts.iter().any(|file| file.path == *path));
        paths
    }

    fn collect(&self, folder: &Folder, above: &str, found: &mut Found) -> Result<(), WorkspaceError> {
        let entries = folder.entries().map_err(WorkspaceError::at("read", folder.path()))?;
        let named = |(entry, kind): (std::ffi::OsString, Kind)| {
            let name = format!("{above}{}", entry.to_string_lossy());
            (!is_own(&name)).then_some((name, entry, kind))
        };
        let mut entries: Vec<_> = entries.into_iter().filter_map(named).collect();
        entries.sort_by(|(one, _, kind), (other, _, of_other)| {
            in_order(one, *kind == Kind::Folder).cmp(&in_order(other, *of_other == Kind::Folder))
        });
        for (name, entry, kind) in entries {
            let path = self.path(&name);
            match kind {
                Kind::Folder if !is_entered(&name) => found.left_out.add(name),
                Kind::Folder if found.looked_at >= MOST_LOOKED => found.left_out.add(name),
                Kind::Folder => match folder.folder(&entry) {
                    Ok(inner) => self.collect(&inner, &format!("{name}/"), found)?,
                    Err(error) => passed_over(error).map_err(WorkspaceError::at("read", &path))?,
                },
                Kind::File if found.artifacts.len() >= MOST_FILES => found.left_out.add(name),
                Kind::File => {
                    let digested = folder.open_file(&entry).and_then(|file| self.digests.of(file, &mut found.look));
                    match digested {
                        Ok(Some((bytes, sha256))) => found.artifacts.push(Artifact { path: name, bytes, sha256 }),
                        Ok(None) => found.left_out.add(name),
                        Err(error) => passed_over(error).map_err(WorkspaceError::at("read", &path))?,
                    }
                }
                Kind::Other => {}
            }
            found.looked_at += 1;
            found.busy.files(found.looked_at);
        }
        Ok(())
    }

    /// The media type that a file's first bytes show.
    pub fn media_type(&self, name: &str) -> Option<String> {
        let mut head = Vec::new();
        self.folder.open_file(name).ok()?.take(512).read_to_end(&mut head).ok()?;
        sniff(&head).map(str::to_owned)
    }
}

/// What is found in a workspace.
struct Found {
    artifacts: Vec<Artifact>,
    /// Files that are too large or too many, and folders that lie too deep.
    left_out: LeftOut,
    /// How many files and folders were looked at.
    looked_at: usize,
    look: Look,
    /// Tells how far it is.
    busy: Busy,
}

/// The folder of a task, in that of the run whose task it is.
pub(crate) fn task_folder(call: &CallId) -> String {
    format!("{TASK_FOLDER}/{call}")
}

/// The folder above a folder, and its name there.
fn parted(path: &Path) -> Result<(&Path, &std::ffi::OsStr), WorkspaceError> {
    let name = path.file_name().ok_or_else(|| WorkspaceError::at("open", path)(io::ErrorKind::InvalidInput.into()))?;
    let above = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((above, name))
}

/// A file that is being written, piece by piece.
pub(crate) struct Writing {
    file: Replacement,
    path: PathBuf,
}

impl Writing {
    /// Writes a piece.
    pub(crate) fn with(
        &mut self,
        write: impl FnOnce(&mut Replacement) -> io::Result<()>,
    ) -> Result<(), WorkspaceError> {
        write(&mut self.file).map_err(WorkspaceError::at("write", &self.path))
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), WorkspaceError> {
        self.with(|out| out.write_all(text.as_bytes()))
    }

    /// Appends what was written to another file.
    pub(crate) fn append_to(&mut self, out: &mut Replacement) -> io::Result<()> {
        self.file.append_to(out)
    }

    /// Puts it in its place.
    pub(crate) fn place(self) -> Result<(), WorkspaceError> {
        // A program of the run that made a folder in its place would keep the run from ending.
        self.file.place_whatever_is_there().map_err(WorkspaceError::at("write", &self.path))
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

/// How many folders within each other are looked into. A program makes them without end, each costs whoever walks them an open folder and a piece
/// of the stack, and nobody's work lies so deep.
const MOST_FOLDERS: usize = 64;

/// How many files and folders a look goes past, before it enters no more folders.
pub(crate) const MOST_LOOKED: usize = 20 * MOST_FILES;

/// In which order what lies in a folder of the workspace is looked at, so that each time the same files are too many: files before folders, and
/// first of these where a run puts what it is for, so that nothing that a program unpacked beside it takes its place.
pub(crate) fn in_order(name: &str, is_folder: bool) -> (bool, bool, &str) {
    (is_folder, name != FOLDERS[0], name)
}

/// Whether what lies in a folder of the workspace is looked at, by its path in it.
pub(crate) fn is_entered(folder: &str) -> bool {
    folder.matches('/').count() < MOST_FOLDERS
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

/// Whether what a job names by `path` could be a file of a tool: neither it nor a folder above it is the runner's own, or elsewhere.
fn is_of_tools(path: &str) -> bool {
    let mut above = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]);
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) && !above.any(is_own)
}

/// What became something else since the folder was listed, or went, is as if it had never been there.
fn passed_over(error: io::Error) -> io::Result<()> {
    use io::ErrorKind as E;
    if matches!(error.kind(), E::NotFound | E::InvalidInput | E::NotADirectory) { Ok(()) } else { Err(error) }
}

/// Opens the regular file at `path`, which may be no link.
pub(crate) fn open_file(path: &Path) -> io::Result<fs::File> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Folder::open(folder)?.open_file(name)
}

/// The size and digest of the regular file at `path`, which may be no link, and not too large to be read for that.
pub(crate) fn digest_file(path: &Path) -> io::Result<(u64, Sha256)> {
    let digested = Digests::default().of(open_file(path)?, &mut Look::whole())?;
    digested.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
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
        let task = workspace.make_task(&CallId::parse("call_1").unwrap()).unwrap();
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

    #[test]
    fn folders_without_end_end_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        let mut folder = Folder::open(&workspace.path("tasks")).unwrap();
        for depth in 0..300 {
            folder.replace(format!("at{depth}"), b"x").unwrap();
            folder = folder.make_folder("d").unwrap();
        }
        let found = workspace.artifacts().unwrap();
        assert_eq!(found.len(), MOST_FOLDERS);
        let mut seen = crate::stamps::FileStamps::default();
        assert_eq!(workspace.changed_files(&mut seen), found, "both look equally deep");
    }

    #[test]
    fn what_a_program_planted_is_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        let link = |name: &str| std::os::unix::fs::symlink(&victim, workspace.path(name)).unwrap();
        for name in ["run.log", "transcript.md", "work_products/report.md"] {
            link(name);
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, workspace.path("work_products/pipe"), rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", workspace.path("work_products/endless")).unwrap();
        assert!(workspace.append_line("run.log", "x").is_err());
        workspace.replace("transcript.md", "ours").unwrap();
        fs::create_dir_all(workspace.path("session_summary.txt/x/y")).unwrap();
        workspace.replace("session_summary.txt", "ours").unwrap();
        assert_eq!(fs::read_to_string(workspace.path("session_summary.txt")).unwrap(), "ours");
        assert_eq!(workspace.media_type("work_products/report.md"), None);
        assert_eq!(workspace.media_type("work_products/pipe"), None);
        let names: Vec<String> = workspace.artifacts().unwrap().into_iter().map(|a| a.path).collect();
        assert_eq!(names, ["transcript.md"]);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        // A mark without end is nobody's, and not read to see whose.
        workspace.replace(OWNER, "run_1\n").unwrap();
        assert_eq!(workspace.owner().unwrap().as_deref(), Some("run_1"));
        let mark = fs::OpenOptions::new().write(true).open(workspace.path(OWNER)).unwrap();
        mark.set_len(MAX_OWNER_BYTES + 1).unwrap();
        assert!(workspace.owner().is_err());
        // A workspace that is a link itself is nobody's.
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("linked")).unwrap();
        assert!(Workspace::create(&dir.path().join("linked")).is_err());
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn no_folder_of_a_run_or_of_its_task_is_made_or_opened_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("call_2")).unwrap();
        let root = Folder::open(dir.path()).unwrap();
        let workspace = Workspace::create_in(&root, "one/deep").unwrap();
        assert_eq!(workspace.root(), dir.path().join("one/deep"));
        std::os::unix::fs::symlink(&elsewhere, workspace.path("sub")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, workspace.path(TASK_FOLDER)).unwrap();
        for below in ["one/deep/sub", "one/deep/sub/call_2", "one/deep/sub/new", "../elsewhere", "/tmp"] {
            for refused in [Workspace::create_in(&root, below), Workspace::open_in(&root, below)] {
                assert_eq!(refused.unwrap_err().io().kind(), io::ErrorKind::InvalidInput, "{below}");
            }
        }
        let call = |id: &str| CallId::parse(id).unwrap();
        assert!(workspace.make_task(&call("call_1")).is_err() && workspace.task(&call("call_2")).is_err());
        let left: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["call_2"]);
        assert_eq!(fs::read_dir(elsewhere.join("call_2")).unwrap().count(), 0);
        // One that is not there is none.
        fs::remove_file(workspace.path(TASK_FOLDER)).unwrap();
        assert!(workspace.task(&call("call_1")).unwrap().is_none());
        workspace.make_task(&call("call_1")).unwrap();
        assert!(workspace.task(&call("call_1")).unwrap().is_some());
    }
}
