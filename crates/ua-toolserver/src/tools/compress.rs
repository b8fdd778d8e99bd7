//! `compress_files`: files and directories of the workspace as one zip archive.
//!
//! The same names and contents give the same bytes: entries are sorted, have one date and no owner, so a lost call is
//! simply run again. Symbolic links inside directories are left out and reported.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{File, Metadata};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::answer::{Answer, Failure, success};
use crate::area::STAGED;
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::copy_hashing;
use crate::names;
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::{PRIVATE, Workspace};
use ua_core::ShowPath as _;

const MAX_ENTRIES: usize = 10_000;
const MAX_INPUT_BYTES: u64 = 1 << 30;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The files and directories, relative to the workspace; directories with all that is in them.
    #[schemars(length(min = 1, max = 1000))]
    paths: Vec<String>,
    /// The zip file to write, relative to the workspace.
    output: String,
}

#[derive(Debug, Serialize)]
struct Compressed {
    path: String,
    bytes: u64,
    sha256: String,
    /// How many files and directories are in the archive.
    entries: usize,
    /// The size of the files before they were compressed.
    input_bytes: u64,
    /// What was found and left out: symbolic links and other things that are no files.
    skipped: Vec<String>,
}

#[derive(Debug)]
pub(super) struct CompressFiles;

impl Tool for CompressFiles {
    const NAME: &'static str = "compress_files";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Compress files",
            "Packs files and directories of the workspace into a zip archive, under their paths in the workspace. At most 10000 entries and 1 GiB; symbolic links are not followed.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let done = blocking(move || compress(&workspace, &given)).await?;
        success(format!("packed {} entries into {}", done.entries, done.path), &done)
    }
}

fn compress(workspace: &Workspace, given: &Arguments) -> Result<Compressed, Failure> {
    let output = workspace.writable(&given.output)?;
    let mut found = Found::new(workspace, &output);
    for path in &given.paths {
        found.add(path)?;
    }
    if found.entries.is_empty() {
        return Err(Failure::refused("there is nothing to pack", "name files, or directories that are not empty"));
    }
    let Found { entries, skipped, .. } = found;

    let _lock = workspace.exclusive()?;
    let (sha256, bytes, input_bytes) = workspace
        .area()
        .replace_with(&output, |file| {
            let input_bytes = write(workspace, &entries, file)?;
            file.seek(SeekFrom::Start(0))?;
            let (sha256, bytes) = copy_hashing(file, &mut io::sink())?;
            Ok((sha256, bytes, input_bytes))
        })
        .map_err(|error| error.into_failure(format!("write {:?}", given.output)))?;
    Ok(Compressed {
        path: output.to_string_lossy().into_owned(),
        bytes,
        sha256,
        entries: entries.len(),
        input_bytes,
        skipped,
    })
}

/// What an entry of the archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// What was found to pack.
struct Found<'a> {
    workspace: &'a Workspace,
    output: &'a Path,
    /// By path, so that the order is always the same and nothing is packed twice.
    entries: BTreeMap<PathBuf, Kind>,
    bytes: u64,
    skipped: Vec<String>,
}

impl<'a> Found<'a> {
    fn new(workspace: &'a Workspace, output: &'a Path) -> Self {
        Self { workspace, output, entries: BTreeMap::new(), bytes: 0, skipped: Vec::new() }
    }

    /// Adds the file or directory that a caller calls `path`.
    fn add(&mut self, path: &str) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(format_args!("look at {path:?}"), &error);
        let resolved = self.workspace.readable(path)?;
        if resolved == self.output {
            let hint = "leave it out of paths, or give another output";
            return Err(Failure::refused(format!("{path:?} is the archive itself"), hint));
        }
        let root = if resolved.as_os_str().is_empty() { Path::new(".") } else { &resolved };
        let metadata = self.workspace.area().dir().metadata(root).map_err(failed)?;
        if !metadata.is_dir() {
            return self.entry(resolved, &metadata);
        }
        if !resolved.as_os_str().is_empty() {
            self.entry(resolved.clone(), &metadata)?;
        }
        let mut waiting = vec![resolved];
        while let Some(directory) = waiting.pop() {
            let open = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
            for entry in self.workspace.area().dir().read_dir(open).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name();
                let path = directory.join(&name);
                let is_private = directory.as_os_str().is_empty() && name.eq_ignore_ascii_case(PRIVATE);
                if is_private || name.to_string_lossy().starts_with(STAGED) || path == self.output {
                    continue;
                }
                // Of the entry itself: a symbolic link is one, wherever it leads.
                let metadata = entry.metadata().map_err(failed)?;
                self.entry(path.clone(), &metadata)?;
                if metadata.is_dir() {
                    waiting.push(path);
                }
            }
        }
        self.skipped.sort();
        self.skipped.dedup();
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, metadata: &Metadata) -> Result<(), Failure> {
        let kind = if metadata.is_dir() {
            Kind::Directory
        } else if metadata.is_file() {
            Kind::File
        } else {
            self.skipped.push(path.to_string_lossy().into_owned());
            return Ok(());
        };
        let Some(name) = path.to_str() else {
            let problem = format!("the name {:?} is not UTF-8, which a zip archive needs", path.shown());
            return Err(Failure::refused(problem, "rename it, or leave it out"));
        };
        // A program that unpacks it elsewhere may read another place in it.
        if let Some(why) = name.split('/').find_map(names::misread) {
            return Err(Failure::refused(format!("the name {name:?} {why}"), "rename it, or leave it out"));
        }
        if self.entries.insert(path, kind).is_none() && kind == Kind::File {
            self.bytes += metadata.len();
        }
        if self.entries.len() > MAX_ENTRIES {
            let problem = format!("there are more than {MAX_ENTRIES} files and directories");
            return Err(Failure::refused(problem, "pack them in several archives"));
        }
        if self.bytes > MAX_INPUT_BYTES {
            let problem = format!("the files have more than {} MiB", MAX_INPUT_BYTES >> 20);
            return Err(Failure::refused(problem, "pack them in several archives"));
        }
        Ok(())
    }
}

/// Writes the archive and returns the size of the files in it.
fn write(workspace: &Workspace, entries: &BTreeMap<PathBuf, Kind>, file: &mut File) -> io::Result<u64> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default());
    let mut archive = ZipWriter::new(io::BufWriter::new(file));
    let mut total = 0;
    for (path, kind) in entries {
        let name = path.to_string_lossy();
        if *kind == Kind::Directory {
            archive.add_directory(name, options.unix_permissions(0o755))?;
            continue;
        }
        archive.start_file(name, options.unix_permissions(0o644))?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("pack {}: {error}", path.shown()));
        // The file may have grown since it was counted.
        let (source, _) = regular::open(workspace.area().dir(), path).map_err(named)?;
        total += io::copy(&mut source.take(MAX_INPUT_BYTES + 1 - total), &mut archive).map_err(named)?;
        if total > MAX_INPUT_BYTES {
            return Err(named(io::Error::other("the files grew beyond the limit of 1 GiB while they were packed")));
        }
    }
    io::Write::flush(&mut archive.finish()?)?;
    Ok(total)
}
