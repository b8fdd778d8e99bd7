//! Files of the workspace, as the caller found them.

use serde::Serialize;
use ua_core::Sha256;

use crate::corpus::{CorpusLine, CorpusState};

/// A file of the run's workspace. The caller walks the workspace; nothing here opens a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Its path, relative to the workspace, with `/` between its parts.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Digest of its contents.
    pub sha256: Sha256,
}

/// A file that the job names and that is there, of which no digest is known: it is too large to be read, or too large to be read now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its path, relative to the workspace, with `/` between its parts.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Artifact {
    /// The last part of its path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// A file that whoever goes on with the run reads first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadFirst {
    /// Its path, relative to the workspace.
    pub path: String,
    /// What it is good for.
    pub why: &'static str,
}

/// The files that hand a run's context on (Context Storage & Durability §5): the hand-off, refined corpora, then the
/// texts among the work products. Each group in the order of its paths.
/// A corpus that is not any more what its checkpoint holds is left out: nobody vouches for it.
pub fn read_first(artifacts: &[Artifact], corpora: &[CorpusLine]) -> Vec<ReadFirst> {
    const TEXTS: [&str; 6] = [".md", ".html", ".txt", ".csv", ".json", ".typ"];
    let rank = |artifact: &Artifact| match artifact.file_name() {
        "handoff.json" => Some((0, "the hand-off of an earlier iteration")),
        "refined_corpus.md" => Some((1, "the refined research; there is no need to crawl again")),
        name if artifact.path.starts_with("work_products/") && TEXTS.iter().any(|end| name.ends_with(end)) => {
            Some((2, "a work product that exists already"))
        }
        _ => None,
    };
    let is_stale = |path: &str| corpora.iter().any(|corpus| corpus.path == path && corpus.state != CorpusState::Kept);
    let vouched = artifacts.iter().filter(|artifact| !is_stale(&artifact.path));
    let mut found: Vec<(u8, &str, &'static str)> =
        vouched.filter_map(|a| rank(a).map(|(rank, why)| (rank, a.path.as_str(), why))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, path, why)| ReadFirst { path: path.to_owned(), why }).collect()
}

#[cfg(test)]
mod tests {
    use ua_core::sha256;

    use super::*;

    #[test]
    fn what_hands_context_on_comes_first() {
        let files = [
            "work_products/report.pdf",
            "work_products/report.html",
            "tasks/a/refined_corpus.md",
            "run.log",
            "handoff.json",
        ];
        let artifacts = files.map(|path| Artifact { path: path.to_owned(), bytes: 1, sha256: sha256(path) });
        let paths: Vec<String> = read_first(&artifacts, &[]).into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["handoff.json", "tasks/a/refined_corpus.md", "work_products/report.html"]);
    }
}
