//! What a disk holds after a power cut, rebuilt from a trace of system calls.
//!
//! A write reaches the page cache; only a sync brings it to the disk. Whatever was not synced may or may not have arrived, in
//! any order, torn at a sector.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::random::Random;

/// The smallest piece that a disk writes whole.
const SECTOR: usize = 512;

/// One thing that happened to a file, in the order of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Write { path: PathBuf, offset: Option<usize>, bytes: Vec<u8> },
    Truncate { path: PathBuf, length: usize },
    Remove { path: PathBuf },
    Sync { path: PathBuf },
}

impl Event {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Write { path, .. } | Self::Truncate { path, .. } | Self::Remove { path } | Self::Sync { path } => {
                path
            }
        }
    }
}

/// Reads what `strace -f -xx -y` wrote about the files below `folder`.
pub(crate) fn parse(trace: &str, folder: &Path) -> anyhow::Result<Vec<Event>> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut events = Vec::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        // A call that another thread interrupted stands on two lines; its effect is counted where it returned.
        if let Some(start) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, start);
            continue;
        }
        let joined;
        let whole = if call.starts_with("<... ") {
            let (Some(start), Some((_, rest))) = (begun.remove(pid), call.split_once(" resumed>")) else { continue };
            joined = format!("{start}{rest}");
            &joined
        } else {
            call
        };
        let Some((head, result)) = whole.rsplit_once(" = ") else { continue };
        if result.starts_with('-') {
            continue;
        }
        let event = event(head, result, folder)
            .with_context(|| format!("read the trace at {}", &line[..line.len().min(120)]))?;
        events.extend(event.filter(|event| event.path().starts_with(folder)));
    }
    Ok(events)
}

fn event(head: &str, result: &str, folder: &Path) -> anyhow::Result<Option<Event>> {
    let Some((name, arguments)) = head.split_once('(') else { return Ok(None) };
    let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
    let file = || -> anyhow::Result<PathBuf> {
        let (_, rest) = arguments.split_once('<').context("a file descriptor has no path")?;
        let (path, _) = rest.split_once('>').context("a path does not end")?;
        Ok(PathBuf::from(String::from_utf8(bytes(path)?)?))
    };
    let number = |text: &str| text.trim().parse::<usize>().with_context(|| format!("read the number {text}"));
    Ok(match name {
        "write" | "pwrite64" => {
            let (_, rest) = arguments.split_once('"').context("a write without data")?;
            let (data, rest) = rest.split_once('"').context("data that does not end")?;
            let mut data = bytes(data)?;
            data.truncate(number(result.split_whitespace().next().unwrap_or_default())?);
            let offset = if name == "pwrite64" {
                Some(number(rest.rsplit(',').next().context("a write without an offset")?)?)
            } else {
                None
            };
            Some(Event::Write { path: file()?, offset, bytes: data })
        }
        "ftruncate" => {
            let length = number(arguments.rsplit(',').next().context("a truncation without a length")?)?;
            Some(Event::Truncate { path: file()?, length })
        }
        "fsync" | "fdatasync" => Some(Event::Sync { path: file()? }),
        "unlink" | "unlinkat" => {
            let (_, rest) = arguments.split_once('"').context("a removal without a name")?;
            let (path, _) = rest.split_once('"').context("a name that does not end")?;
            Some(Event::Remove { path: PathBuf::from(String::from_utf8(bytes(path)?)?) })
        }
        // To sockets and the like only; nobody writes the files that count this way.
        "pwritev" | "pwritev2" | "writev" if file()?.starts_with(folder) => bail!("the call {name} is not understood"),
        _ => None,
    })
}

/// Reads `\x2f\x74…`.
fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    let pieces = text.split("\\x").skip(1);
    pieces.map(|hex| u8::from_str_radix(hex, 16).with_context(|| format!("read the byte {hex}"))).collect()
}

/// What of the unsynced writes reached the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unsynced {
    /// None.
    Lost,
    /// Each with a chance of one half, the last of them torn; decided by this seed.
    Some(u64),
}

#[derive(Debug, Clone, Default)]
struct FileState {
    synced: Option<Vec<u8>>,
    since: Vec<Event>,
}

/// The files of a folder, as a disk sees them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    files: BTreeMap<PathBuf, FileState>,
}

impl Disk {
    /// Takes what happened.
    pub(crate) fn apply(&mut self, event: &Event) {
        let file = self.files.entry(event.path().to_path_buf()).or_default();
        match event {
            Event::Sync { .. } => {
                let mut content = file.synced.take().unwrap_or_default();
                for event in file.since.drain(..) {
                    put(&mut content, &event, usize::MAX);
                }
                file.synced = Some(content);
            }
            // A name is removed at once: that it stays is the harmless case, and SQLite syncs the folder itself.
            Event::Remove { .. } => *file = FileState::default(),
            Event::Write { .. } | Event::Truncate { .. } => file.since.push(event.clone()),
        }
    }

    /// Writes what is left after a power cut into `root`, each file under its own name.
    pub(crate) fn cut(&self, root: &Path, unsynced: Unsynced) -> anyhow::Result<()> {
        for (path, file) in &self.files {
            let mut content = file.synced.clone();
            if let Unsynced::Some(seed) = unsynced {
                let mut random = Random(seed);
                let arrived: Vec<&Event> = file.since.iter().filter(|_| random.below(2) == 0).collect();
                for (n, event) in arrived.iter().enumerate() {
                    let torn = if n + 1 == arrived.len() { SECTOR } else { usize::MAX };
                    put(content.get_or_insert_default(), event, torn);
                }
            }
            let Some(content) = content else { continue };
            let target = root.join(path.file_name().context("a file has a name")?);
            fs::write(&target, content).with_context(|| format!("write {}", target.display()))?;
        }
        Ok(())
    }
}

/// Applies a change, a write of at most `limit` bytes.
fn put(content: &mut Vec<u8>, event: &Event, limit: usize) {
    match event {
        Event::Write { offset, bytes, .. } => {
            let bytes = &bytes[..bytes.len().min(limit)];
            let offset = offset.unwrap_or(content.len());
            if content.len() < offset + bytes.len() {
                content.resize(offset + bytes.len(), 0);
            }
            content[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Event::Truncate { length, .. } => content.resize(*length, 0),
        Event::Remove { .. } | Event::Sync { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: usize, bytes: &[u8]) -> Event {
        Event::Write { path: "/d/x".into(), offset: Some(offset), bytes: bytes.to_vec() }
    }

    #[test]
    fn a_trace_is_read() {
        let trace = "7 pwrite64(3<\\x2f\\x64\\x2f\\x78>, \"\\x61\\x62\", 2, 4) = 2\n\
                     7 fsync(3<\\x2f\\x64\\x2f\\x78> <unfinished ...>\n\
                     8 write(1<\\x2f\\x65>, \"\\x61\", 1) = 1\n\
                     7 <... fsync resumed>)   = 0\n\
                     7 ftruncate(3<\\x2f\\x64\\x2f\\x78>, 3) = 0\n\
                     7 pwrite64(3<\\x2f\\x64\\x2f\\x78>, \"\\x61\", 1, 4) = -1 EIO (x)\n";
        let path = || PathBuf::from("/d/x");
        let events = parse(trace, Path::new("/d")).unwrap();
        assert_eq!(
            events,
            [write(4, b"ab"), Event::Sync { path: path() }, Event::Truncate { path: path(), length: 3 }]
        );
    }

    #[test]
    fn what_was_not_synced_is_lost() {
        let root = tempfile::tempdir().unwrap();
        let mut disk = Disk::default();
        disk.apply(&write(0, b"one"));
        disk.cut(root.path(), Unsynced::Lost).unwrap();
        assert!(!root.path().join("x").exists());
        disk.apply(&Event::Sync { path: "/d/x".into() });
        disk.apply(&write(3, b"two"));
        disk.cut(root.path(), Unsynced::Lost).unwrap();
        assert_eq!(fs::read(root.path().join("x")).unwrap(), b"one");
    }
}
