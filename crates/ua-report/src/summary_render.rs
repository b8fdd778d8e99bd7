//! The completion summary as Markdown (`job_completion_<run_id>.md`).

use crate::summary::{CompletionSummary, SideEffect};
use ua_evidence::quote::{code, line, quoted, stored_name};
use ua_evidence::{ConditionResult, EvidenceRef};
use ua_resume::page::Page;
use ua_resume::render::{action_in_words, write_question};

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
        self.write_questions(&mut page);
        self.write_files(&mut page);
        self.write_cost(&mut page);
        page.heading(2, "Next");
        page.block(&format!("```sh\n{}\n```", self.next.join("\n")));
        page.finish()
    }

    fn write_outcome(&self, page: &mut Page) {
        page.heading(2, "Outcome");
        let reason = self.stop_reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        page.item(&format!("status: **{}**{reason}", self.status));
        if let Some(detail) = &self.status_detail {
            page.item(&format!("detail: {}", code(detail, 500)));
        }
        if let Some(path) = &self.job_path {
            page.item(&format!("job file: {}", code(path, 300)));
        }
        if let Some(parent) = &self.parent_run_id {
            page.item(&format!("parent run: {parent}"));
        }
        page.item(&format!("workspace: {}", code(&self.workspace_dir, 300)));
        page.item(&format!("submitted: {}; last change: {}", self.created_at, self.updated_at));
        let main = self.main_artifact.as_deref().map_or_else(|| "none".to_owned(), |path| code(path, 300));
        page.item(&format!("main artifact: {main}"));
        page.heading(2, "Objective");
        page.block(&quoted(&self.objective, 4000));
        page.heading(2, "Final output");
        match &self.final_output {
            Some(output) => page.block(&quoted(output, 8200)),
            None => page.block("None."),
        }
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
        page.heading(2, "Stop conditions");
        if self.conditions.is_empty() {
            page.block("The job names none.");
        }
        for condition in &self.conditions {
            page.item(&condition_line(condition));
        }
    }

    fn write_side_effects(&self, page: &mut Page) {
        page.heading(2, "Side effects");
        if self.side_effects.is_empty() {
            page.block("No call was to change anything.");
        }
        for effect in &self.side_effects {
            write_side_effect(page, effect);
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
        page.heading(2, "Calls found in flight by a resume");
        if self.replayed.is_empty() {
            page.block("None.");
        }
        for call in &self.replayed {
            page.item(&format!(
                "{} ({}): {}. Now {} after {} attempt(s): {}",
                code(&call.tool, 120),
                call.call_id,
                action_in_words(call.action, Some(call.status)),
                call.status,
                call.attempts,
                call.verdict.in_words()
            ));
        }
    }

    fn write_questions(&self, page: &mut Page) {
        if self.questions.is_empty() {
            return;
        }
        page.heading(2, "Questions");
        for question in &self.questions {
            write_question(page, question);
        }
    }

    fn write_files(&self, page: &mut Page) {
        page.heading(2, "Files");
        if self.artifacts.is_empty() {
            page.block("None.");
        }
        for file in &self.artifacts {
            page.item(&format!("{} — {} bytes, sha256 {}", code(&file.path, 300), file.bytes, file.sha256));
        }
        for file in &self.changed_files {
            page.item(&format!(
                "**changed after it was sent**: {}. {} ({}) sent sha256 {}",
                code(&file.path, 300),
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
    format!("[ ] **not met** {name}{needed} — {}", condition.missing.as_deref().unwrap_or("nothing was found for it"))
}

fn evidence_words(evidence: &EvidenceRef) -> String {
    let mut words = format!("{} {}", stored_name(&evidence.kind), code(&evidence.id, 300));
    if let Some(level) = &evidence.level {
        words.push_str(", ");
        words.push_str(&stored_name(level));
    }
    if let Some(id) = &evidence.external_id {
        words.push_str(", external id ");
        words.push_str(&code(id, 200));
    }
    if let Some(digest) = &evidence.sha256 {
        words.push_str(", sha256 ");
        words.push_str(&digest.to_hex());
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
    page.item(&format!("status {}{resolution}, attempts: {}", effect.status, effect.attempts));
    let level = effect.evidence.as_ref().map_or_else(|| "none".to_owned(), stored_name);
    let id = effect.external_id.as_deref().map_or_else(String::new, |id| format!(", external id {}", code(id, 200)));
    page.item(&format!("evidence: {level}{id}"));
    if let Some(twin) = &effect.deduplicated_from {
        page.item(&format!("answered by the receipt of {twin}"));
    }
    if let Some(prefix) = &effect.key_prefix {
        page.item(&format!("idempotency key: {prefix}…"));
    }
    if let Some(error) = &effect.error {
        page.item(&format!("error: {}", code(error, 300)));
    }
    if let Some(correction) = &effect.correction {
        page.item(&format!("corrected: {}", code(correction, 600)));
    }
}
