//! The files of a job: taken when its run is made, shown to the model with the first message, put into the workspace for tools.
//!
//! Durable Jobs v1 spec §6; Context Storage & Durability §4. Invariants: a file is read once, when the run is made, and its content is
//! in the same write as the run; every request of the run shows the same bytes, after a kill and in a fork as well; the stored history
//! has no copy of them; what nobody reads below the job's folder ([`Closed`]) is none of them. Proved by: the tests below,
//! `conformance::blobs`, the e2e tests `input_files`.

use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ua_core::{Block, InputFile, Message, RunSpec, Sha256, TakenFile, sha256};
use ua_files::{Closed, Folder, is_hidden};
use ua_llm::{MAX_IMAGE_BYTES, shown_image_block};
use ua_store::{Blob, NewBlob, RunRecord, Store};

use crate::error::RunError;
use crate::images::MAX_BYTES;
use crate::picture::kind_of;
use crate::workspace::{Workspace, WorkspaceError};

/// The most files of a job.
const MAX_FILES: usize = 16;

/// The most bytes of a text.
const MAX_TEXT_BYTES: u64 = 200_000;

/// What an image costs where tokens are estimated: about what a large one does.
pub(crate) const IMAGE_TOKENS: u64 = 1_600;

/// Why a file of a job cannot be given to its model.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the job's file {path}: {why}")]
pub struct InputFileError {
    /// Its path, as the job says it.
    pub path: String,
    /// What is wrong.
    pub why: String,
    /// Whether nothing is wrong with it, but it is private.
    pub is_private: bool,
}

/// A file that is refused.
enum Unread {
    /// It is private: what a name says, and what a link in it leads to.
    Private,
    /// What is wrong with it.
    Unfit(String),
}

impl InputFileError {
    fn unfit(path: &str, why: String) -> Self {
        Self { path: path.to_owned(), why, is_private: false }
    }

    fn of(path: &str, unread: Unread) -> Self {
        match unread {
            Unread::Unfit(why) => Self::unfit(path, why),
            Unread::Private => {
                let why = "it is private: it belongs to other runs, to ua, or to the user's secrets".to_owned();
                Self { path: path.to_owned(), why, is_private: true }
            }
        }
    }
}

/// Reads the files that `spec` names, relative to `folder`, and puts what they are in the place of their names. Returns what they hold,
/// to be stored with the run. Files that were taken before stay as they are.
///
/// # Errors
/// When one is not a regular file below `folder`, is `closed`, is neither an image that models read nor text, or is too large.
pub fn take_input_files(spec: &mut RunSpec, folder: &Path, closed: &Closed) -> Result<Vec<NewBlob>, InputFileError> {
    let fail = InputFileError::unfit;
    if let Some(file) = spec.files.get(MAX_FILES) {
        return Err(fail(file.path(), format!("a job has at most {MAX_FILES} files")));
    }
    let mut held = Vec::new();
    for file in &mut spec.files {
        let InputFile::Named(path) = file else { continue };
        let (bytes, is_hidden) = read_below(folder, path, closed).map_err(|why| InputFileError::of(path, why))?;
        let (media_type, content) = content_of(&bytes).map_err(|why| fail(path, why))?;
        let blob = NewBlob::new(content);
        let taken = TakenFile {
            path: std::mem::take(path),
            media_type: media_type.to_owned(),
            size: bytes.len() as u64,
            sha256: sha256(&bytes),
            blob: blob.blob.clone(),
            is_hidden,
        };
        held.push(blob);
        *file = InputFile::Taken(taken);
    }
    let images = spec.taken_files().filter(|file| file.is_image()).map(|file| file.blob.size).sum::<u64>();
    if images > MAX_BYTES as u64 {
        let path = spec.taken_files().filter(|file| file.is_image()).last().map_or("", |file| file.path.as_str());
        return Err(fail(
            path,
            format!("the images of a job have at most {MAX_BYTES} bytes of Base64 together, these have {images}"),
        ));
    }
    Ok(held)
}

/// The digest of a file of a job as it is now; `None` when it is not there any more, or is `closed`, as one may be that an earlier version took.
pub fn input_file_now(folder: &Path, path: &str, closed: &Closed) -> Option<Sha256> {
    read_below(folder, path, closed).ok().map(|(bytes, _)| sha256(bytes))
}

/// Puts the files of the run's job into its workspace, where they are not there.
///
/// # Errors
/// When the store cannot be read, a blob is gone, or a file cannot be written.
pub async fn place_input_files(run: &RunRecord, workspace: &Workspace, store: &dyn Store) -> Result<(), RunError> {
    for file in run.spec.taken_files() {
        let place = file.place();
        // What a tool made of it is left alone.
        if workspace.folder().kind(&place).map_err(WorkspaceError::at("look at", &workspace.path(&place)))?.is_some() {
            continue;
        }
        if let Some(parent) = Path::new(&place).parent().and_then(Path::to_str) {
            workspace.make_folder(parent)?;
        }
        let content = content(file, store).await?;
        let bytes = if file.is_image() {
            STANDARD.decode(&content).map_err(|e| RunError::BlobCorrupt {
                blob: file.blob.blob_id.clone(),
                why: format!("it is not Base64: {e}"),
            })?
        } else {
            content.into_bytes()
        };
        workspace.replace(&place, bytes)?;
    }
    Ok(())
}

/// Puts the job's files behind its first message: texts as they are, images where the model reads them. Returns the bytes of Base64.
///
/// # Errors
/// `BlobMissing`, `BlobCorrupt`, or `Store` when the store cannot be read.
pub(crate) async fn add_input_files(
    messages: &mut [Message],
    run: &RunRecord,
    reads_images: bool,
    store: &dyn Store,
) -> Result<usize, RunError> {
    let mut shown = 0;
    let Some(first) = messages.first_mut() else { return Ok(shown) };
    for file in run.spec.taken_files() {
        if file.is_image() && !reads_images {
            continue;
        }
        let content = content(file, store).await?;
        if !file.is_image() {
            first.blocks.push(Block::text(format!("<file path={:?}>\n{content}\n</file>", file.path)));
        } else if let Some(image) = shown_image_block(&file.media_type, &content) {
            shown += content.len();
            first.blocks.push(Block::text(format!("The image {:?}:", file.path)));
            first.blocks.push(image);
        }
    }
    Ok(shown)
}

/// What the job's files add to every request, in tokens, as estimated.
pub(crate) fn input_tokens(spec: &RunSpec, reads_images: bool) -> u64 {
    let tokens = |file: &TakenFile| match file.is_image() {
        true if reads_images => IMAGE_TOKENS,
        true => 0,
        false => file.size.div_ceil(4),
    };
    spec.taken_files().map(tokens).sum()
}

async fn content(file: &TakenFile, store: &dyn Store) -> Result<String, RunError> {
    let found = store.blob(&file.blob).await.map_err(RunError::at("read a file of the job"))?;
    let blob = file.blob.blob_id.clone();
    match found {
        Blob::Here(content) => Ok(content),
        Blob::Missing { pruned_at } => Err(RunError::BlobMissing { blob, call: None, pruned_at }),
        Blob::Corrupt { why } => Err(RunError::BlobCorrupt { blob, why }),
    }
}

/// The bytes of a regular file below `folder`, whatever links say, and whether it is hidden.
fn read_below(folder: &Path, path: &str, closed: &Closed) -> Result<(Vec<u8>, bool), Unread> {
    let said = |error: io::Error| Unread::Unfit(error.to_string());
    let folder = folder.canonicalize().map_err(said)?;
    let named = folder.join(path);
    // By its name first: of what is private nobody is told whether it is there.
    if closed.has(&folder, &named) {
        return Err(Unread::Private);
    }
    let real = named.canonicalize().map_err(said)?;
    let Ok(below) = real.strip_prefix(&folder) else {
        return Err(Unread::Unfit("it is not below the folder of the job file".to_owned()));
    };
    if closed.has(&folder, &real) {
        return Err(Unread::Private);
    }
    if !real.metadata().map_err(said)?.is_file() {
        return Err(Unread::Unfit("it is not a regular file".to_owned()));
    }
    // Its name has no link in it any more, so that one that is put there meanwhile is not followed.
    let file = Folder::open(&folder).and_then(|folder| folder.open_file(below)).map_err(said)?;
    let most = MAX_IMAGE_BYTES as u64;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(said)?;
    Ok((bytes, is_hidden(Path::new(path)) || is_hidden(below)))
}

/// The kind of a file by its bytes, and what is stored of it.
fn content_of(bytes: &[u8]) -> Result<(&'static str, String), String> {
    if let Some(media_type) = kind_of(bytes) {
        let most = MAX_IMAGE_BYTES / 4 * 3;
        if bytes.len() > most {
            return Err(format!("an image has at most {most} bytes"));
        }
        return Ok((media_type, STANDARD.encode(bytes)));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("it is neither a PNG, JPEG, GIF or WebP image nor UTF-8 text".to_owned());
    };
    if text.contains('\0') {
        return Err("it is neither a PNG, JPEG, GIF or WebP image nor text: it has a zero byte".to_owned());
    }
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(format!("a text has at most {MAX_TEXT_BYTES} bytes; a tool can read a longer one"));
    }
    Ok(("text/plain", text.to_owned()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    fn spec(files: &[&str]) -> RunSpec {
        RunSpec::parse(&serde_json::json!({"objective": "look", "files": files}).to_string()).unwrap()
    }

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    #[test]
    fn a_file_is_taken_by_its_bytes_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("chart.txt"), PNG).unwrap();
        std::fs::write(folder.path().join("notes.png"), "only words").unwrap();
        let mut job = spec(&["chart.txt", "notes.png"]);
        let held = take_input_files(&mut job, folder.path(), &Closed::default()).unwrap();
        let taken: Vec<&TakenFile> = job.taken_files().collect();
        let kinds: Vec<&str> = taken.iter().map(|file| file.media_type.as_str()).collect();
        assert_eq!(kinds, ["image/png", "text/plain"]);
        assert_eq!((taken[0].sha256, taken[0].size), (sha256(PNG), 12));
        assert_eq!(held[0].content, STANDARD.encode(PNG));
        assert_eq!(held[1].content, "only words");
        assert_eq!(input_file_now(folder.path(), "chart.txt", &Closed::default()), Some(sha256(PNG)));
        // Taking them again reads nothing.
        std::fs::remove_file(folder.path().join("chart.txt")).unwrap();
        let before = job.clone();
        assert_eq!(take_input_files(&mut job, folder.path(), &Closed::default()).unwrap(), []);
        assert_eq!((job, input_file_now(folder.path(), "chart.txt", &Closed::default())), (before, None));
    }

    #[test]
    fn what_no_model_reads_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("job");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(folder.path().join("secret.txt"), "out of reach").unwrap();
        std::os::unix::fs::symlink("../secret.txt", inside.join("link.txt")).unwrap();
        std::fs::create_dir(inside.join("folder")).unwrap();
        std::fs::write(inside.join("prog"), b"\x7fELF\0\x01\xff").unwrap();
        std::fs::write(inside.join("zero"), b"a\0b").unwrap();
        std::fs::write(inside.join("long.txt"), "x".repeat(200_001)).unwrap();
        let mut large = PNG.to_vec();
        large.resize(MAX_IMAGE_BYTES / 4 * 3 + 1, 0);
        std::fs::write(inside.join("large.png"), large).unwrap();
        for (name, why) in [
            ("gone.png", "No such file"),
            ("link.txt", "not below the folder"),
            ("folder", "not a regular file"),
            ("prog", "neither a PNG"),
            ("zero", "a zero byte"),
            ("long.txt", "at most 200000 bytes"),
            ("large.png", "at most 3750000 bytes"),
        ] {
            let error = take_input_files(&mut spec(&[name]), &inside, &Closed::default()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cannot use the job's file {name}: ")) && error.contains(why),
                "{error}"
            );
        }
        let many: Vec<String> = (0..17).map(|n| format!("{n}.txt")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = take_input_files(&mut spec(&many), &inside, &Closed::default()).unwrap_err().to_string();
        assert!(error.contains("16.txt: a job has at most 16 files"), "{error}");
    }

    #[test]
    fn what_nobody_reads_below_a_folder_is_no_file_of_a_job_by_its_name_and_by_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for file in [".ssh/id", "a/.aws/credentials", "runs/.ua-root", "runs/effects.log", "kept/a.md", "report.md"] {
            std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
            std::fs::write(home.join(file), "words").unwrap();
        }
        std::os::unix::fs::symlink(".ssh/id", home.join("notes.md")).unwrap();
        std::os::unix::fs::symlink("runs", home.join("data")).unwrap();
        let closed = Closed::new(&[home.join("kept")]);
        for private in [
            ".ssh/id",
            ".SSH/id",
            ".ssh/none",
            "a/.aws/credentials",
            "runs/effects.log",
            "data/effects.log",
            "kept/a.md",
            "notes.md",
        ] {
            let error = take_input_files(&mut spec(&[private]), &home, &closed).unwrap_err();
            assert!(error.is_private && error.to_string().contains("it is private"), "{private}: {error}");
            assert_eq!(input_file_now(&home, private, &closed), None, "{private}");
        }
        let mut job = spec(&["report.md"]);
        assert_eq!(take_input_files(&mut job, &home, &closed).unwrap().len(), 1);
        // What was taken before stays, whatever is closed by now.
        assert_eq!(take_input_files(&mut job, &home, &Closed::new(std::slice::from_ref(&home))).unwrap(), []);
    }

    #[test]
    fn what_is_hidden_is_taken_as_that_by_its_name_and_by_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        for file in [".env", ".github/notes.md", "..data/notes.md", "plain.md"] {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(file), format!("words of {file}")).unwrap();
        }
        std::os::unix::fs::symlink(".env", folder.path().join("link.md")).unwrap();
        std::os::unix::fs::symlink("..data/notes.md", folder.path().join("mounted.md")).unwrap();
        let mut job = spec(&[".env", ".github/notes.md", "link.md", "mounted.md", "plain.md"]);
        take_input_files(&mut job, folder.path(), &Closed::default()).unwrap();
        let hidden: Vec<bool> = job.taken_files().map(|file| file.is_hidden).collect();
        assert_eq!(hidden, [true, true, true, false, false]);
    }
}
