//! What `ua runs show` says about what a run is pinned to, and what a person changed about it.

use std::collections::BTreeMap;

use ua_runner::effective_pins;
use ua_store::{OverrideKind, RunRecords};

use crate::output::line;

/// The pins of the current step, ready to print; empty when there are none.
pub(crate) fn text(records: &RunRecords) -> String {
    let mut out = String::new();
    let step = records.steps.iter().find(|step| Some(&step.step_id) == records.run.current_step_id.as_ref());
    if let Some(step) = step {
        match effective_pins(records, step) {
            Ok(fingerprint) => {
                out.push_str(&format!("\nPinned in step {}\n", step.step_index));
                for (component, pin) in fingerprint.pins() {
                    out.push_str(&format!("  {:<16} {}\n", component.as_str(), line(&pin.shown, 90)));
                }
                // The names would fill a screen; which servers, and how many of each, says enough.
                let mut servers: BTreeMap<String, u32> = BTreeMap::new();
                for name in fingerprint.tool_names() {
                    let server =
                        name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")).map_or("?", |(s, _)| s);
                    *servers.entry(server.to_owned()).or_default() += 1;
                }
                let tools: Vec<String> = servers.iter().map(|(server, count)| format!("{count} of {server}")).collect();
                out.push_str(&format!(
                    "  {:<16} {}\n",
                    "tools",
                    if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }
                ));
            }
            Err(error) => out.push_str(&format!("\nPins           {}\n", line(&error.to_string(), 120))),
        }
    }
    out
}

/// What a person changed about the run, ready to print; empty where nobody did.
pub(crate) fn changes(records: &RunRecords) -> String {
    let mut out = String::new();
    if !records.overrides.is_empty() {
        out.push_str("\nChanged since the start\n");
    }
    for change in &records.overrides {
        let what = match change.kind {
            OverrideKind::Pin => {
                let differences = change.value["differences"].as_array().into_iter().flatten();
                let texts: Vec<String> =
                    differences.filter_map(|text| text.as_str()).map(|text| line(text, 200)).collect();
                let texts = if texts.is_empty() { "new tools are offered".to_owned() } else { texts.join("\n    ") };
                format!("accepted {}: {texts}", change.component)
            }
            OverrideKind::Budget => line(&format!("{} is {} now", change.component, change.value), 200),
        };
        out.push_str(&format!(
            "  {}  {}  {}\n",
            crate::moment::local(change.created_at, ua_core::system::env().now()),
            line(&change.made_by, 24),
            what
        ));
    }
    out
}
