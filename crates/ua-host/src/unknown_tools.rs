//! Tools that nothing was known about: noted once each, in `policy_audit/unknown_tools.jsonl` of the workspace root
//! (Durable Jobs v1 spec §7).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use ua_classify::Classifier;
use ua_core::{ClassSource, RunId, Sha256, Timestamp, ToolSpec};
use ua_files::Folder;

use crate::servers::BUILTIN;

/// A tool that a run met first.
#[derive(Debug, Serialize, Deserialize)]
pub struct UnknownTool {
    /// When.
    pub at: Timestamp,
    /// The run that met it first.
    pub run_id: RunId,
    /// What its server said about it.
    pub tool: ToolSpec,
    /// Of all of that; a tool that changed is noted again.
    pub digest: Sha256,
    /// How it was treated.
    pub class: String,
    /// Why, in words.
    pub reason: String,
}

const FOLDER: &str = "policy_audit";
const FILE: &str = "unknown_tools.jsonl";
/// The most that is read of it.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The lines of the file that can be read; a cut one is none.
pub fn noted(root: &Path) -> Vec<UnknownTool> {
    let read = Folder::open(root).and_then(|root| root.folder(FOLDER)?.read(FILE, MAX_BYTES)).unwrap_or_default();
    let text = String::from_utf8_lossy(&read);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Notes those of `specs` that nothing says anything about and that were not noted before. Of our own the shipped rules say something, and the start
/// of a run waits for this.
pub(crate) fn note(root: &Path, run: &RunId, specs: &[ToolSpec], classifier: &Classifier, at: Timestamp) {
    let unknown: Vec<_> = specs
        .iter()
        .filter(|spec| spec.name.server != BUILTIN)
        .map(|spec| (spec, classifier.classify(spec, None)))
        .filter(|(_, policy)| policy.class_source == ClassSource::Default)
        .collect();
    if unknown.is_empty() {
        return;
    }
    let known: BTreeSet<Sha256> = noted(root).into_iter().map(|line| line.digest).collect();
    let lines: String = unknown
        .into_iter()
        .filter(|(spec, _)| !known.contains(&spec.digest()))
        .filter_map(|(spec, policy)| {
            let line = UnknownTool {
                at,
                run_id: run.clone(),
                tool: spec.clone(),
                digest: spec.digest(),
                class: policy.class.to_string(),
                reason: policy.reason,
            };
            serde_json::to_string(&line).ok().map(|text| format!("{text}\n"))
        })
        .collect();
    let folder = Folder::open(root).and_then(|root| root.make_folder(FOLDER));
    let written = folder.and_then(|folder| folder.append(FILE)?.write_all(lines.as_bytes()));
    // The list is a convenience: every class is in the ledger, too.
    if let Err(error) = written {
        tracing::debug!(%error, "the list of unknown tools could not be written");
    }
}

#[cfg(test)]
mod tests {
    use ua_core::{ToolAnnotations, ToolName, ToolNamespace};

    use super::*;

    #[test]
    fn an_unknown_tool_is_noted_once() {
        let root = tempfile::tempdir().unwrap();
        let classifier = Classifier::shipped().unwrap();
        let spec = |tool: &str| ToolSpec {
            name: ToolName {
                raw: format!("mcp__a__{tool}"),
                tool: tool.to_owned(),
                server: "a".to_owned(),
                namespace: ToolNamespace::Mcp,
            },
            description: String::new(),
            input_schema: serde_json::json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        let specs = [spec("frobnicate"), spec("get_page")];
        let run = RunId::parse("run_1").unwrap();
        for _ in 0..2 {
            note(root.path(), &run, &specs, &classifier, Timestamp::from_millis(0));
        }
        let names: Vec<String> = noted(root.path()).into_iter().map(|line| line.tool.name.tool).collect();
        assert_eq!(names, ["frobnicate"]);
    }

    #[test]
    fn of_each_tool_of_ours_a_rule_says_something() {
        let classifier = Classifier::shipped().unwrap();
        for name in crate::selectors::own_names() {
            let tool = ToolSpec {
                name,
                description: String::new(),
                input_schema: serde_json::json!({"type": "object"}),
                annotations: ToolAnnotations::default(),
            };
            assert_ne!(classifier.classify(&tool, None).class_source, ClassSource::Default, "{:?}", tool.name);
        }
    }
}
