//! The research job over the pages of a tree: crawl, corpus, evidence, report, PDF, upload, e-mail, notification.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// How many pages one call of `crawl_parallel` takes.
pub(super) const BATCH: usize = 50;
/// What the report is called.
const REPORT: &str = "work_products/report";

/// Writes the job and the model's script into `folder`. The pages are at `site`.
pub(super) fn write(folder: &Path, site: &str, pages: &[String]) -> anyhow::Result<()> {
    let job = json!({
        "objective": "Write a report about the documentation and send it to team@example.test.",
        "model": {"provider": "scripted", "script": "script.json"},
        "budgets": {"max_tool_calls": 200},
        "constraints": {"must_cite_sources": true, "allowed_recipients": ["@example.test"]},
        "stop_conditions": ["report_pdf_created", "email_sent_once", "final_notification_sent"],
    });
    fs::write(folder.join("job.json"), job.to_string())?;
    let call = |tool: &str, input: Value| json!({"tools": [{"name": format!("mcp__ua__{tool}"), "input": input}]});
    let address = |page: &String| format!("{site}/{page}");
    let mut turns: Vec<Value> = pages
        .chunks(BATCH)
        .map(|batch| {
            let urls: Vec<String> = batch.iter().map(address).collect();
            call("crawl_parallel", json!({"urls": urls, "max_chars_per_page": 100}))
        })
        .collect();
    let cited: Vec<String> = pages.iter().take(5).map(|page| format!("- <{}>\n", address(page))).collect();
    let report = format!("# The documentation\n\nWhat these pages say:\n\n{}", cited.concat());
    turns.extend([
        call("finalize_research", json!({"task_name": "tree", "topic": "The documentation", "min_words": 20, "max_pages": 0})),
        call("read_research_files", json!({"file_paths": ["tasks/tree/refined_corpus.md"], "max_chars": 20_000})),
        call("build_evidence_ledger", json!({"task_name": "tree"})),
        call("write_local_file", json!({"path": format!("{REPORT}.md"), "content": report})),
        call("render_pdf", json!({"source": format!("{REPORT}.md"), "output": format!("{REPORT}.pdf")})),
        call("upload", json!({"path": format!("{REPORT}.pdf")})),
        call(
            "send_email",
            json!({"to": ["team@example.test"], "subject": "The documentation", "body": "It is attached.", "attachments": [format!("{REPORT}.pdf")]}),
        ),
        call("notify", json!({"message": "The report was sent."})),
        json!({"text": "The report is out."}),
    ]);
    Ok(fs::write(folder.join("script.json"), json!({"turns": turns}).to_string())?)
}
