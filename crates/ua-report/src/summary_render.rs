//! The completion summary as Markdown (`job_completion_<run_id>.md`).

use crate::summary::{CompletionSummary, SideEffect};
use ua_evidence::os_words::in_plain_words;
use ua_evidence::quote::{PLACE, code, line, quoted, sentence, stored_name};
use ua_evidence::{ConditionResult, EvidenceKind, EvidenceRef};
use ua_resume::page::Page;
use ua_resume::render::{action_in_words, external_id_words, file_line, write_questions};
use ua_resume::{status_detail, status_words};

impl CompletionSummary {
    /// The summary as Markdown. The verdict of each side effect stands in its heading.
    pub fn to_markdown(&self) -> String {
        let mut page = Page::titled(&format!("Completion of {}", self.run_id));
        page.block("Written by the runner from receipts and file digests. What the model says is shown as its words, not as evidence.");
        self.write_outcome(&mut page);
        self.write_steps(&mut page);
        self.write_conditions(&mut page);
        self.write_side_effects(&mut page);
        self.write_sub_agents(&mut page);
        self.write_replayed(&mut page);
        write_questions(&mut page, "Questions", &self.questions);
        self.write_files(&mut page);
        self.write_cost(&mut page);
        page.heading(2, "Next");
        if let Some(words) = &self.left_to_a_worker {
            page.block(words);
        }
        page.block(&format!("```sh\n{}\n```", self.next.join("\n")));
        page.finish()
    }

    fn write_outcome(&self, page: &mut Page) {
        page.heading(2, "Outcome");
        let status = self.shown_status.clone().unwrap_or_else(|| status_words(self.status, self.stop_reason));
        page.item(&format!("status: **{status}**"));
        if let Some(detail) = status_detail(self.status, self.status_detail.as_deref()) {
            page.item(&format!("detail: {}", code(&sentence(&in_plain_words(detail)), PLACE)));
        }
        if let Some(path) = &self.job_path {
            page.item(&format!("job file: {}", code(path, PLACE)));
        }
        if let Some(parent) = &self.parent_run_id {
            page.item(&format!("parent run: {parent}"));
        }
        page.item(&format!("workspace: {}", code(&self.workspace_dir, PLACE)));
        page.item(&format!("submitted: {}; last change: {}", self.created_at, self.updated_at));
        self.write_processes(page);
        let main = self.main_artifact.as_deref().map_or_else(|| "none".to_owned(), |path| code(path, PLACE));
        page.item(&format!("main artifact: {main}"));
        page.heading(2, "Objective");
        page.block(&quoted(&self.objective, 4000));
        page.heading(2, "Final output");
        match &self.final_output {
            Some(output) => page.block(&quoted(output, 8200)),
            None => page.block("None."),
        }
    }

    /// Who drove the run, and which of them did not leave it in order.
    fn write_processes(&self, page: &mut Page) {
        let broken = self.processes.iter().filter_map(|life| life.broken_off_after(life.last_seen_at));
        let drivers = ua_core::counted(self.drivers, "process");
        let told: Vec<String> = std::iter::once(drivers).chain(broken).collect();
        page.item(&format!("driven by: {}", told.join("; ")));
    }

    /// A run whose job has no phases has one step, of which nothing more is to be said.
    fn write_steps(&self, page: &mut Page) {
        if self.steps.len() < 2 {
            return;
        }
        page.heading(2, "Phases");
        for step in &self.steps {
            let status = step.status.map_or_else(|| "not begun".to_owned(), |status| status.to_string());
            let turns = match (step.first_turn, step.last_turn) {
                (Some(first), Some(last)) => format!(", turns {first} to {last}"),
                (Some(_), None) => ", no turn committed".to_owned(),
                (None, _) => String::new(),
            };
            page.item(&format!("{}. {} — {status}{turns}", step.step_index, code(&step.phase, 100)));
        }
    }

    fn write_conditions(&self, page: &mut Page) {
        page.section(
            "Stop conditions",
            self.conditions.iter().map(condition_line),
            self.unchecked.as_deref().unwrap_or("None are named."),
        );
    }

    fn write_side_effects(&self, page: &mut Page) {
        page.heading(2, "Side effects");
        if self.side_effects.is_empty() {
            page.block("No call with an effect was made.");
        }
        for effect in &self.side_effects {
            write_side_effect(page, effect);
        }
        if let (Some(parent), false) = (&self.parent_run_id, self.inherited_effects.is_empty()) {
            page.block(&format!("Inherited with the turns that it shares with {parent}, and not repeated:"));
            for effect in &self.inherited_effects {
                let (tool, verdict) = (code(&effect.tool, 120), effect.verdict.in_words());
                page.item(&format!("{tool} ({}, turn {}) — {verdict}", effect.call_id, effect.position.turn));
            }
        }
    }

    /// A run without any says nothing about them.
    fn write_sub_agents(&self, page: &mut Page) {
        if self.sub_agents.is_empty() {
            return;
        }
        page.heading(2, "Sub-agents");
        for child in &self.sub_agents {
            page.item(&child.in_words());
            for effect in &child.effects {
                page.item(&format!("{}: {}", child.run_id, effect.in_words()));
            }
        }
    }

    fn write_replayed(&self, page: &mut Page) {
        let lines = self.replayed.iter().map(|call| {
            format!(
                "{} ({}): {}. Now {} after {}: {}",
                code(&call.tool, 120),
                call.call_id,
                action_in_words(call.action, Some(call.stands)),
                call.status.in_words(),
                ua_core::counted(call.attempts, "attempt"),
                call.verdict.in_words()
            )
        });
        page.section("Calls found in flight by a resume", lines, "None.");
    }

    fn write_files(&self, page: &mut Page) {
        page.section("Files", self.artifacts.iter().map(file_line), "None.");
        for file in &self.changed_files {
            page.item(&format!(
                "**changed after it was sent**: {}. {} ({}) sent sha256 {}",
                code(&file.path, PLACE),
                code(&file.tool, 120),
                file.call_id,
                file.sent_sha256
            ));
        }
    }

    fn write_cost(&self, page: &mut Page) {
        page.heading(2, "Cost");
        page.item(&format!("requests to models: {}", self.usage.requests_in_words()));
        let tokens = self.usage.tokens;
        page.item(&format!(
            "tokens: {} in all — {} input, {} output, {} read from cache, {} written to cache",
            self.usage.total_tokens,
            tokens.input_tokens,
            tokens.output_tokens,
            tokens.cache_read_tokens,
            tokens.cache_write_tokens
        ));
        page.item(&format!("cost: {}", self.usage.cost_in_words()));
        for model in &self.usage.models {
            let name = format!("{}/{}", model.provider, model.model);
            page.item(&format!("{}: {}", code(&name, 200), model.in_words()));
        }
        if self.usage.overruns > 0 {
            page.item(&format!("requests that used more than was reserved for them: {}", self.usage.overruns));
        }
        for budget in &self.budgets {
            page.item(&format!("{}: {}", budget.budget, budget.in_words()));
        }
        let traces: Vec<&str> = self.traces.iter().map(ua_core::Trace::as_str).collect();
        page.item(&format!("traces: {}", traces.join(", ")));
    }
}

fn condition_line(condition: &ConditionResult) -> String {
    let of_phase = condition.phase.as_deref().map_or_else(String::new, |phase| format!("phase {}: ", code(phase, 100)));
    let name = format!("{of_phase}{}", code(&condition.condition, 300));
    let needed = if condition.needed == condition.condition {
        String::new()
    } else {
        format!(" ({})", line(&condition.needed, 300))
    };
    if condition.met {
        let evidence: Vec<String> = condition.evidence.iter().map(evidence_words).collect();
        return format!("[x] {name}{needed} — {}", evidence.join("; "));
    }
    let missing = condition.missing.as_deref().unwrap_or("nothing was found for it");
    format!("[ ] **not met** {name}{needed} — {}", in_plain_words(missing))
}

fn evidence_words(evidence: &EvidenceRef) -> String {
    let mut words = format!("{} {}", stored_name(&evidence.kind), code(&evidence.id, 300));
    if let Some(level) = &evidence.level {
        words.push_str(", ");
        words.push_str(&stored_name(level));
    }
    words.push_str(&external_id_words(evidence.external_id.as_deref()));
    if let Some(digest) = &evidence.sha256 {
        words.push_str(", sha256 ");
        words.push_str(&digest.to_hex());
    } else if evidence.kind == EvidenceKind::Artifact {
        words.push_str(", too large to be read for its digest");
    }
    words
}

fn write_side_effect(page: &mut Page, effect: &SideEffect) {
    page.heading(3, &format!("{} — {}", code(&effect.tool, 120), effect.verdict.in_words()));
    let kind = effect.effect.as_deref().map_or_else(String::new, |kind| format!(", effect {}", code(kind, 100)));
    page.item(&format!(
        "{}, turn {}.{}, {}{kind}",
        effect.call_id, effect.position.turn, effect.position.ordinal, effect.class
    ));
    let resolution = effect.resolution.map_or_else(String::new, |resolution| format!(", resolution {resolution}"));
    page.item(&format!("status {}{resolution}, attempts: {}", effect.status.in_words(), effect.attempts));
    let level = effect.evidence.as_ref().map_or_else(|| "none".to_owned(), stored_name);
    let id = external_id_words(effect.external_id.as_deref());
    page.item(&format!("evidence: {level}{id}"));
    if let Some(twin) = &effect.deduplicated_from {
        page.item(&format!("answered by the receipt of {twin}"));
    }
    if let Some(prefix) = &effect.key_prefix {
        page.item(&format!("idempotency key: {prefix}…"));
    }
    if let Some(error) = &effect.error {
        page.item(&format!("error: {}", code(&in_plain_words(error), 300)));
    }
    if let Some(correction) = &effect.correction {
        page.item(&format!("corrected: {}", code(correction, 600)));
    }
}
