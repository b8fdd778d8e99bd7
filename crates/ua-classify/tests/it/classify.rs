//! Classification from the outside, the way the dispatcher and `ua tools explain` use it.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic like the tests themselves")]

mod adversarial;
mod explanation;
mod job_policies;
mod measured;
mod names;
mod packs;
mod policy_files;
mod raising;
mod sources;

use std::collections::HashSet;

use serde_json::json;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{SideEffectClass, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};

/// A tool about which its server says nothing.
fn tool(namespace: ToolNamespace, server: &str, name: &str) -> ToolSpec {
    ToolSpec {
        name: ToolName::qualified(namespace, server, name),
        description: String::new(),
        input_schema: json!({"type": "object"}),
        annotations: ToolAnnotations::default(),
    }
}

fn own(name: &str) -> ToolSpec {
    tool(ToolNamespace::Local, "ua", name)
}

fn foreign(name: &str) -> ToolSpec {
    tool(ToolNamespace::Mcp, "other", name)
}

/// The classifier of someone who has configured nothing.
fn plain() -> Classifier {
    with_policy("")
}

fn with_policy(text: &str) -> Classifier {
    let rules = PolicyRules::parse(text, "policy.toml").unwrap();
    Classifier::new(vec![rules], &Lists::default(), HashSet::new()).unwrap()
}

fn trusting(server: &str) -> Classifier {
    Classifier::new(Vec::new(), &Lists::default(), HashSet::from([server.to_owned()])).unwrap()
}

fn class(classifier: &Classifier, tool: &ToolSpec) -> SideEffectClass {
    classifier.classify(tool, None).class
}
