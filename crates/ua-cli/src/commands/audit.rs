//! Tools that nothing was known about: noted once each, in `policy_audit/unknown_tools.jsonl` of the workspace root
//! (Durable Jobs v1 spec §7), and listed by `ua tools audit` with a rule to begin with.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ua_classify::Classifier;
use ua_core::{ClassSource, RunId, Sha256, Timestamp, ToolSpec};

use crate::compose;
use crate::error::{CliError, OK};
use crate::home::Home;
use crate::output::{line, plain, print, print_json, print_table};
use crate::view::AuditRow;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    at: Timestamp,
    run_id: RunId,
    tool: ToolSpec,
    digest: Sha256,
    class: String,
    reason: String,
}

fn file(root: &Path) -> PathBuf {
    root.join("policy_audit").join("unknown_tools.jsonl")
}

/// The lines of the file that can be read; a cut one is none.
fn noted(root: &Path) -> Vec<Noted> {
    let text = fs::read_to_string(file(root)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Notes those of `specs` that nothing says anything about and that were not noted before.
pub(crate) fn note(root: &Path, run: &RunId, specs: &[ToolSpec], classifier: &Classifier, at: Timestamp) {
    let unknown: Vec<_> = specs
        .iter()
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
            let line = Noted {
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
    let path = file(root);
    let folder = path.parent().unwrap_or(root);
    let written = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).and_then(|()| {
        fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?.write_all(lines.as_bytes())
    });
    // The list is a convenience: every class is in the ledger, too.
    if let Err(error) = written {
        tracing::debug!(%error, "the list of unknown tools could not be written");
    }
}

pub(crate) fn run(home: &Home, policies: &[PathBuf]) -> Result<u8, CliError> {
    let classifier = compose::classifier_of_user(policies)?;
    let mut seen = BTreeSet::new();
    let rows: Vec<AuditRow> = noted(home.root())
        .into_iter()
        .filter(|line| seen.insert(line.tool.name.raw.clone()))
        .map(|line| row(&classifier, line))
        .collect();
    if crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    if rows.is_empty() {
        crate::output::tell("no run met a tool that nothing was known about");
        return Ok(OK);
    }
    let cells = rows.iter().map(|row| {
        let now = if row.is_known { format!("{} by a rule now", row.class_now) } else { row.class_now.clone() };
        vec![row.name.clone(), now, row.run_id.clone(), line(&row.reason, 80)]
    });
    print_table(&["TOOL", "CLASS", "FIRST RUN", "WHY"], cells.collect())?;
    let open: Vec<&AuditRow> = rows.iter().filter(|row| !row.is_known).collect();
    if !open.is_empty() {
        let rules: Vec<String> = open.iter().map(|row| plain(&row.suggestion)).collect();
        print(&format!(
            "\nA policy file (policy.toml in the user's configuration, or --policy) could say, once you know better than `external`:\n\n{}",
            rules.join("\n")
        ))?;
    }
    Ok(OK)
}

fn row(classifier: &Classifier, line: Noted) -> AuditRow {
    let now = classifier.classify(&line.tool, None);
    AuditRow {
        suggestion: suggestion(&line.tool),
        name: line.tool.name.raw,
        server: line.tool.name.server,
        run_id: line.run_id.to_string(),
        at: line.at.to_string(),
        class: line.class,
        reason: line.reason,
        class_now: now.class.to_string(),
        is_known: now.class_source != ClassSource::Default,
    }
}

/// A rule that says what is so already, to begin with.
fn suggestion(tool: &ToolSpec) -> String {
    let quoted = |text: &str| crate::output::toml_text(text);
    format!(
        "[[rule]]\nid = {}\nname = {}\nserver = {}\nside_effect_class = \"external\"   # or read_only, local, memory\non_unknown = \"hold\"               # or redo, redo_keyed, probe, continue\n",
        quoted(&format!("{}-{}", tool.name.server, tool.name.tool)),
        quoted(&tool.name.tool),
        quoted(&tool.name.server),
    )
}

#[cfg(test)]
mod tests {
    use ua_classify::PolicyRules;
    use ua_core::{ToolAnnotations, ToolName, ToolNamespace};

    use super::*;

    #[test]
    fn a_suggested_rule_is_a_policy() {
        let name = ToolName {
            raw: "mcp__a__frob".to_owned(),
            tool: "frob".to_owned(),
            server: "a".to_owned(),
            namespace: ToolNamespace::Mcp,
        };
        let tool = ToolSpec {
            name,
            description: String::new(),
            input_schema: serde_json::json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        let rules = PolicyRules::parse(&suggestion(&tool), "policy.toml").unwrap();
        let classifier = Classifier::new(vec![rules], &ua_classify::Lists::default(), std::collections::HashSet::new());
        let policy = classifier.unwrap().classify(&tool, None);
        assert_eq!((policy.rule_id.as_str(), policy.class_source), ("a-frob", ClassSource::UserPolicy));
    }

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
}
