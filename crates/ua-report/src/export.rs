//! A run as one machine-readable document: every row, with a version.
//!
//! Spec: Durability Architecture, "Data Model"; Durable runner, current state §10.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_core::{BlobId, RunId, Timestamp};
use ua_store::{ArrivalRecord, EventRecord, RunRecord, RunRecords, is_gateway};

use ua_evidence::EvidenceReport;
use ua_evidence::artifact::Artifact;
use ua_resume::usage::UsageSummary;
use ua_resume::{Commands, Life, NextStep, Standing, lives_beside};

/// The version of the document; raised when a field goes or changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// Everything there is to show about a run: its rows, and what its caller found around them.
pub struct RunExport<'a> {
    /// Its rows.
    pub records: &'a RunRecords,
    /// The status changes of its calls.
    pub events: &'a [EventRecord],
    /// The other runs of its lineage, oldest first.
    pub lineage: &'a [RunRecord],
    /// The files of its workspace; `None` when the workspace is not here.
    pub artifacts: Option<&'a [Artifact]>,
    /// What its stop conditions come to over rows and files; `None` when the workspace is not here.
    pub evidence: Option<&'a EvidenceReport>,
    /// The texts of its large results, as far as they were asked for.
    pub blobs: &'a BTreeMap<BlobId, String>,
    /// What clients asked for, oldest first, when it is a session of the gateway.
    pub arrivals: &'a [ArrivalRecord],
    /// Where it stands, as people are told it.
    pub standing: Standing,
    /// How it gets further, where it has not ended.
    pub next: NextStep,
    /// What makes the commands in its pages complete.
    pub commands: &'a Commands,
    /// When this was written.
    pub written_at: Timestamp,
    /// The program that writes this, with its version.
    pub program: &'a str,
}

impl RunExport<'_> {
    /// The processes that drove it, oldest first.
    pub(crate) fn lives(&self) -> Vec<Life> {
        lives_beside(self.records, &self.standing)
    }

    /// Writes the document. `format` and `version` say how to read it; `records` has the rows under the names of their tables'
    /// Rust types; `blobs` is there when they were asked for.
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "format": "universal-agent/run-export",
            "version": VERSION,
            "program": self.program,
            "written_at": self.written_at,
            "is_driven": self.standing.is_driven(),
            "shown_status": self.standing.to_string(),
            "run_id": self.records.run.run_id,
            "records": self.records,
            "events": self.events,
            "processes": self.lives(),
            "usage": UsageSummary::of(self.records),
            "lineage": self.lineage.iter().map(|run| lineage_line(&self.records.run.run_id, run)).collect::<Vec<_>>(),
            "artifacts": self.artifacts,
            "stop_conditions": self.evidence.map(|evidence| &evidence.conditions),
        });
        if !self.blobs.is_empty() {
            document["blobs"] = json!(self.blobs);
        }
        if is_gateway(&self.records.run) {
            document["arrivals"] = self.arrivals.iter().map(arrival).collect();
        }
        document
    }
}

fn arrival(arrival: &ArrivalRecord) -> Value {
    json!({
        "arrival_id": arrival.arrival_id,
        "run_id": arrival.run_id,
        "call_id": arrival.call_id,
        "client_call": arrival.client_call,
        "rule": arrival.rule,
        "tool": arrival.tool,
        "arrived_at": arrival.arrived_at,
        "answered_at": arrival.answered_at,
        "acknowledged_at": arrival.acknowledged_at,
    })
}

/// What the gateway made of a request, by the name of its rule, for a person.
pub fn rule_in_words(rule: &str) -> &'static str {
    match rule {
        "exact" => "the same request, sent again by the client's transport",
        "unsettled" => "same call as before, which had not ended or whose outcome was unknown",
        "owed" => "asked again: the result, which nobody was known to have read, was returned",
        "repeat" => "asked again: the same result was returned, nothing was sent",
        "again" => "asked again under way, or right after a slow answer: it was made once",
        "twin" => "asked at the same time: both get the same result",
        "new" => "a new call",
        _ => "by a rule of another version of ua",
    }
}

/// A run of the lineage in short.
pub(crate) fn lineage_line(of: &RunId, run: &RunRecord) -> Value {
    json!({
        "run_id": run.run_id,
        "parent_run_id": run.parent_run_id,
        "is_child": run.parent_run_id.as_ref() == Some(of),
        "status": run.status,
        "run_mode": run.run_mode,
        "created_at": run.created_at,
        "turn_index": run.turn_index,
    })
}

#[cfg(test)]
mod tests {
    use ua_core::RunStatus;

    use super::*;
    use ua_evidence::testing::{Story, read_policy};

    /// A call that is not settled may be in doubt, and may as well wait for a person or its turn, unsent.
    #[test]
    fn each_rule_is_told_in_words_that_hold_of_all_its_calls() {
        let other = rule_in_words("of another version");
        for rule in ["exact", "unsettled", "owed", "repeat", "again", "twin", "new"] {
            assert_ne!(rule_in_words(rule), other, "{rule}");
        }
        assert!(rule_in_words("unsettled").contains("had not ended or whose outcome was unknown"));
    }

    #[test]
    fn an_export_holds_every_row_and_can_be_read_back() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let id = story.asks("", &[("crawl", json!({"url": "http://127.0.0.1/"}), read_policy())])[0].clone();
        story.starts(&id);
        story.succeeds(&id, "text", None);
        story.commits();
        story.ends(RunStatus::Succeeded, None, "done");
        let export = RunExport {
            records: &story.records,
            events: &[],
            lineage: &[],
            artifacts: None,
            evidence: None,
            arrivals: &[],
            blobs: &BTreeMap::new(),
            standing: Standing::Stored(RunStatus::Succeeded, None),
            next: NextStep::of(&story.records.run),
            commands: &Commands::default(),
            written_at: story.records.run.updated_at,
            program: "ua 0",
        };
        let document = export.to_json();
        assert_eq!((&document["format"], &document["version"]), (&json!("universal-agent/run-export"), &json!(1)));
        let records: RunRecords = serde_json::from_value(document["records"].clone()).unwrap();
        assert_eq!(records, story.records);
        // What is not here is not claimed to be empty.
        assert!(
            document["artifacts"].is_null() && document["stop_conditions"].is_null() && document["blobs"].is_null()
        );
    }
}
