//! The research job of `fixtures/`, with its pages on a site, and a model that words its e-mail differently each time.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use ua_testkit::{OPAQUE_TOOL, workspace_root};

use super::route::{Effect, Route};

/// The key of the model provider, which is found nowhere afterwards.
pub(super) const CANARY: &str = "sk-acceptance-canary-93b1f07d";

/// Where the fixtures have their pages.
const LOCAL_PAGES: &str = "file://${JOB_DIR}/site";

/// Writes the job, whose pages are at `site`, into `folder`.
pub(super) fn write_job(folder: &Path, site: &str) -> anyhow::Result<()> {
    let mut job = fixture("jobs/research_report.json", site)?;
    // The model is named on the command line.
    job.as_object_mut().context("a job is an object")?.remove("model");
    Ok(fs::write(folder.join("job.json"), job.to_string())?)
}

/// Writes the model's script into `folder`.
pub(super) fn write_script(folder: &Path, site: &str, route: Route) -> anyhow::Result<()> {
    let mut script = fixture("scripts/research_report.json", site)?;
    let turns = script["turns"].as_array_mut().context("the script has turns")?;
    let mail = turns
        .iter_mut()
        .find(|turn| turn["tools"][0]["name"] == "mcp__ua__send_email")
        .context("the script sends a mail")?;
    let body = mail["tools"][0]["input"]["body"].as_str().unwrap_or_default().to_owned();
    mail["tools"][0]["input"]["body"] = json!(format!("{body}\n(request {{{{request}}}})"));
    if route.effects().contains(&Effect::Comment) {
        let comment = json!({"tools": [{"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": "The report is out (request {{request}})."}}]});
        let before_notify =
            turns.len().checked_sub(2).context("the script ends with a notification and a last word")?;
        turns.insert(before_notify, comment);
    }
    // The model says a key that it should not know, in its first words and in its last.
    for turn in [0, turns.len().saturating_sub(1)] {
        let said = turns[turn]["text"].as_str().unwrap_or_default().to_owned();
        turns[turn]["text"] = json!(format!("{said} ({CANARY})"));
    }
    Ok(fs::write(folder.join("script.json"), script.to_string())?)
}

fn fixture(name: &str, site: &str) -> anyhow::Result<Value> {
    let text = fs::read_to_string(workspace_root().join("fixtures").join(name)).with_context(|| name.to_owned())?;
    Ok(serde_json::from_str(&text.replace(LOCAL_PAGES, site))?)
}
