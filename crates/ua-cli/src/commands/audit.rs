//! `ua tools audit`: tools that nothing was known about when a run met them, each with a rule to begin with.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ua_classify::Classifier;
use ua_core::{ClassSource, ToolSpec};
use ua_host::Host;
use ua_host::mcp_files::mcp_config_file;
use ua_host::policies::classifier_of_user;
use ua_host::unknown_tools::{UnknownTool, noted};

use crate::error::{HostError, OK};
use crate::output::{plain, print, print_exactly, print_json, print_table};
use crate::view::AuditRow;

pub(crate) fn run(host: &Host, policies: &[PathBuf]) -> Result<u8, HostError> {
    // What another installation noted is its own word.
    host.home().refuse_foreign()?;
    let classifier =
        classifier_of_user(host.settings(), policies, None, mcp_config_file(host.settings(), None).as_ref())?;
    let mut seen = BTreeSet::new();
    let rows: Vec<AuditRow> = noted(host.home().root())
        .into_iter()
        .filter(|line| seen.insert(line.tool.name.raw.clone()))
        .map(|line| row(&classifier, line))
        .collect();
    if crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    if rows.is_empty() {
        crate::output::tell("no past run used an unknown tool");
        return Ok(OK);
    }
    let cells = rows.iter().map(|row| {
        let now = if row.is_known { format!("{} by a rule now", row.class_now) } else { row.class_now.clone() };
        vec![
            row.name.clone(),
            now,
            crate::ids::short(&row.run_id).to_owned(),
            super::tools::why(&row.reason, &row.class),
        ]
    });
    print_table(&crate::listings::AUDIT, cells.collect())?;
    let open: Vec<&AuditRow> = rows.iter().filter(|row| !row.is_known).collect();
    if !open.is_empty() {
        let rules: Vec<String> = open.iter().map(|row| plain(&row.suggestion)).collect();
        print(
            "\nA policy file (policy.toml in the user's configuration, or --policy) can classify them, once you know what they do:\n\n",
        )?;
        // To be copied, so nothing in it is broken.
        print_exactly(rules.join("\n"))?;
    }
    Ok(OK)
}

fn row(classifier: &Classifier, line: UnknownTool) -> AuditRow {
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
        "[[rule]]\nid = {}\nname = {}\nserver = {}\n# or read_only, local, memory\nside_effect_class = \"external\"\n# or redo, redo_keyed, probe, continue\non_unknown = \"hold\"\n",
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
}
