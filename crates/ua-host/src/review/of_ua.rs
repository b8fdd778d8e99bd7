//! Files of `ua`'s own that lie beside a script: jobs, what plays their model, policies, the settings of a project, the list of servers.
//!
//! They are data that this program reads, and their author edits them all the time, so a change of one would have a person asked about a
//! server that never looks at it. None is taken for one by its name alone: it has to be valid as what it is, strictly, and nothing that
//! counts may say its name. A file that a loader finds by itself is none, whatever is in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ua_classify::PolicyRules;
use ua_core::{RunSpec, ShowPath as _};
use ua_llm::Script;
use ua_mcp::McpConfig;

use super::kinds::open;
use crate::job_file::MAX_JOB_BYTES;
use crate::settings;
use crate::trust::PROJECT_FILE;

/// Files that an interpreter, a loader or a tool around it looks for by name: they count, whatever is in them.
const LOOKED_FOR: [&str; 12] = [
    "Cargo.toml",
    "bunfig.toml",
    "composer.json",
    "deno.json",
    "index.json",
    "jsconfig.json",
    "main.json",
    "package-lock.json",
    "package.json",
    "pyproject.toml",
    "pyrightconfig.json",
    "tsconfig.json",
];

/// How much of a file is looked through for the names of others.
const LOOKED_THROUGH: u64 = 4 * 1024 * 1024;

/// Whether a file is one that `ua` reads, and valid as that.
pub(super) fn is_of_ua(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = path.extension().and_then(|ending| ending.to_str());
    if LOOKED_FOR.contains(&name) || !matches!(ending, Some("json" | "toml")) {
        return false;
    }
    let Some(text) = text(path, MAX_JOB_BYTES) else { return false };
    let shown = path.shown().to_string();
    match ending {
        // What stands there about a server counts for that server, piece by piece.
        Some("json") if name == PROJECT_FILE => McpConfig::parse(&text, &shown).is_ok(),
        Some("json") => {
            // Most files of other people are told by a word that is missing, and not by reading them as a job.
            let has = |word: &str| text.contains(&format!("\"{word}\""));
            (has("objective") && RunSpec::parse(&text).is_ok())
                || ((has("turns") || has("conversations")) && Script::parse(&text).is_ok())
        }
        _ if name == settings::PROJECT_FILE => settings::is_project_settings(path, &text),
        _ => text.contains("[[rule]]") && PolicyRules::parse(&text, &shown).is_ok(),
    }
}

/// The whole of a file of text that is no longer than `limit`.
fn text(path: &Path, limit: u64) -> Option<String> {
    let mut text = String::new();
    open(path).ok()?.take(limit + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= limit).then_some(text)
}

/// Those of `files` that the file `code` says the name of, behind the words for that. One that cannot be read may say all of them.
pub(super) fn said_by<'f>(code: &Path, files: &[&'f PathBuf]) -> (&'static str, Vec<&'f PathBuf>) {
    let mut bytes = Vec::new();
    if open(code).and_then(|file| file.take(LOOKED_THROUGH).read_to_end(&mut bytes)).is_err() {
        return ("cannot be read now, and may name", files.to_vec());
    }
    // Many jobs have the same few names, in folders of their own.
    let mut by_name: BTreeMap<&OsStr, bool> = BTreeMap::new();
    let mut is_named = |file: &Path, name| *by_name.entry(name).or_insert_with(|| is_said(&bytes, file));
    let said = files.iter().copied().filter(|file| is_named(file, file.file_name().unwrap_or_default()));
    ("names", said.collect())
}

/// Whether a text says the name of a file: whole, or behind a slash and in quotes without its ending, as Node's `require` takes it.
pub(super) fn is_said(text: &[u8], file: &Path) -> bool {
    let has = |part: &[u8]| !part.is_empty() && memchr::memmem::find(text, part).is_some();
    let name = file.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
    let stem = file.file_stem().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
    let without_ending = |quote: &u8| has(&[b"/", stem, &[*quote]].concat());
    // Either has the stem in it, which most texts have not.
    has(stem) && (has(name) || b"\"'`".iter().any(without_ending))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_valid_as_a_file_of_ua_is_one_and_nothing_that_a_loader_looks_for() {
        let dir = tempfile::tempdir().unwrap();
        let job = r#"{"objective": "Write.", "inputs": {"main": "evil.js"}}"#;
        let script = r#"{"turns": [{"text": "Done."}]}"#;
        let rule = "[[rule]]\nid = \"a\"\nname = \"send_email\"\napproval = \"ask\"\n";
        let servers = r#"{"mcpServers": {"a": {"command": "sh"}}}"#;
        for (name, text, wanted) in [
            ("job.json", job, true),
            ("evening-report.json", job, true),
            ("job.script.json", script, true),
            ("policy.toml", rule, true),
            ("ua.toml", "root = \"AGENT_RUN_WORKSPACES\"\n", true),
            (".mcp.json", servers, true),
            // The same texts where something else is looked for, and other texts under these names.
            ("package.json", job, false),
            ("index.json", job, false),
            ("pyproject.toml", rule, false),
            ("job.py", job, false),
            ("other.json", servers, false),
            ("job2.json", r#"{"objective": "x", "main": "evil.js"}"#, false),
            ("job3.json", r#"{"plugins": ["./evil.js"], "note": "objective"}"#, false),
            ("empty.json", "{}", false),
            ("empty.toml", "", false),
            ("settings.toml", "root = \"RUNS\"\n", false),
            ("policy2.toml", "[[rule]]\nid = \"a\"\nplugin = \"evil.py\"\n", false),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_of_ua(&path), wanted, "{name}");
        }
        let mut long = job.to_owned();
        long.push_str(&" ".repeat(usize::try_from(MAX_JOB_BYTES).unwrap()));
        std::fs::write(dir.path().join("job.json"), long).unwrap();
        assert!(!is_of_ua(&dir.path().join("job.json")), "larger than a job may be");
    }

    #[test]
    fn a_name_is_said_whole_or_as_node_takes_it() {
        let file = Path::new("/p/job.json");
        for text in ["open('job.json')", "require('./job')", "import x from \"../a/job\"", "`/job`"] {
            assert!(is_said(text.as_bytes(), file), "{text}");
        }
        for text in ["a job", "jobs/other.json", "'job'", ""] {
            assert!(!is_said(text.as_bytes(), file), "{text}");
        }
    }
}
