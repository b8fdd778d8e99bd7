//! What a page that a lane writes says of itself: by which command it was written, at which commit, on which day, and how long that took.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use ua_core::Timestamp;
use ua_testkit::workspace_root;

/// How the line begins that says it.
const AT: &str = "Made at commit ";

/// A page that is going to be written, and of what.
///
/// Made before the lane begins: it may take an hour, and meanwhile somebody commits.
#[derive(Debug)]
pub(crate) struct Made {
    file: PathBuf,
    command: String,
    source: String,
    started: Instant,
}

impl Made {
    /// What there is to say of a page, when one is to be written.
    pub(crate) fn begin(write: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let Some(file) = write else { return Ok(None) };
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = command(&words, &workspace_root());
        let source = source().context("a page says at which commit it was made")?;
        Ok(Some(Self { file: file.to_owned(), command, source, started: Instant::now() }))
    }

    /// The page as it is before it is written; nothing when there is none.
    pub(crate) fn before(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    /// The command that writes it, as somebody would type it.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// The commit and the day, as in `1e26061f, 2026-11-30`; with a `+` behind the commit where something was not committed.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// A sentence with all of it, for a line of its own.
    pub(crate) fn line(&self) -> String {
        line(&self.source, self.started.elapsed(), std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Writes the page.
    pub(crate) fn write(&self, page: &str) -> anyhow::Result<()> {
        std::fs::write(&self.file, page).with_context(|| format!("write {}", self.file.display()))
    }
}

/// What a page says of when it was made, for a cell of a table: commit, day and time.
pub(crate) fn said_by(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix(AT))?.split('.').next()
}

fn line(source: &str, took: Duration, processors: usize) -> String {
    let unsaved = if source.contains('+') { " `+` stands for changes that were not committed." } else { "" };
    let plural = if processors == 1 { "" } else { "s" };
    format!("{AT}{source}, in {} s on {processors} processor{plural}.{unsaved}", took.as_secs())
}

/// The words of a command line as somebody would type them, without the place of this folder.
fn command(words: &[String], root: &Path) -> String {
    let root = format!("{}/", root.display());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:#".contains(c);
    let quoted = words.iter().map(|word| {
        let word = word.replace(&root, "");
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("\"{word}\"") }
    });
    std::iter::once("cargo xtask".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// The commit that the tree stands at and the day. What is below `docs` is no part of any lane, and the lane before may have written a page.
fn source() -> anyhow::Result<String> {
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--", ".", ":(exclude)docs"])?;
    let unsaved = if changes.is_empty() { "" } else { "+" };
    Ok(format!("{commit}{unsaved}, {}", day(SystemTime::now())))
}

fn git(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(words).current_dir(workspace_root()).output().context("run git")?;
    ensure!(output.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The day of an instant, as in `2026-11-30`.
fn day(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)).to_string();
    at.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_its_commit_its_day_and_its_time() {
        assert_eq!(day(SystemTime::UNIX_EPOCH + Duration::from_hours(498_900)), "2026-11-30");
        let clean = line("1e26061f, 2026-11-30", Duration::from_millis(61_900), 2);
        assert_eq!(clean, "Made at commit 1e26061f, 2026-11-30, in 61 s on 2 processors.");
        assert_eq!(said_by(&format!("# X\n\n{clean}\n")), Some("1e26061f, 2026-11-30, in 61 s on 2 processors"));
        let unsaved = line("1e26061f+, 2026-11-30", Duration::from_secs(3), 1);
        let wanted = "Made at commit 1e26061f+, 2026-11-30, in 3 s on 1 processor. `+` stands for changes that were not committed.";
        assert_eq!(unsaved, wanted);
        assert_eq!(said_by(&unsaved), Some("1e26061f+, 2026-11-30, in 3 s on 1 processor"));
        assert_eq!(said_by("Made at commit 1e26061f, 2026-11-30.\n"), Some("1e26061f, 2026-11-30"));
        assert_eq!(said_by("# X\n\nMade at noon.\n"), None);
    }

    #[test]
    fn a_command_is_told_as_it_is_typed_and_without_the_folder() {
        let words = ["crash-matrix", "--only", "external opaque", "--write", "/home/me/ua/docs/crash-matrix.md"];
        let words = words.map(str::to_owned);
        let told = command(&words, Path::new("/home/me/ua"));
        assert_eq!(told, "cargo xtask crash-matrix --only \"external opaque\" --write docs/crash-matrix.md");
    }

    #[test]
    fn the_tree_that_this_is_built_of_has_a_commit() {
        let Ok(source) = source() else { return }; // unpacked without its history
        let (commit, day) = source.split_once(", ").unwrap();
        assert!(commit.trim_end_matches('+').len() >= 8 && day.len() == 10, "{source}");
    }
}
