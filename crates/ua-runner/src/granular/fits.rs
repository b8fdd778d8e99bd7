//! Whether what a step says of tools and effects is about any: the command line asks the same of a job, by the same words.
//!
//! Before a run is stored, a new one or a fork, its tools are listed, if the step says anything of them. Servers that cannot be listed now are not
//! judged: the start that follows says why they cannot, and the drive that begins with them asks again.

use std::sync::Arc;

use ua_core::{Audience, RunSpec, SpecError, ToolName, ToolSpec};
use ua_dispatch::selectors::{self, CONDITIONS, Offered};
use ua_dispatch::{Catalog, Fence, Rules};

use super::{GranularStep, StepError, words_of_a_step};
use crate::desk::Judge;

/// What the words about rules of its policies stand under.
const POLICIES: &str = "policies";
/// What a step forbids stands under.
pub(super) const FORBIDDEN: &str = "constraints.forbidden_actions";

impl GranularStep {
    /// Whether the step says something that only its tools can be held against.
    pub(super) fn speaks_of_tools(&self, spec: &RunSpec) -> bool {
        selectors::has_selectors(spec) || !self.agent.classifier.files().is_empty() || spec.settings.enforce_idempotency
    }

    /// Refuses a step whose budget of money could not be kept, for want of a price in its currency.
    pub(super) fn check_price(&self, spec: &RunSpec) -> Result<(), SpecError> {
        let Some(max) = spec.budgets.max_cost else { return Ok(()) };
        let (provider, model) = (&self.agent.provider, &self.agent.model);
        let names = [provider.name(), provider.priced_as()];
        let why = match names.iter().find_map(|provider| self.agent.prices.price(provider, model)) {
            Some(price) if price.currency == max.currency() => return Ok(()),
            Some(price) => {
                format!("is {max}, and the price of `{model}` is in {}: name both in one currency", price.currency)
            }
            None => format!(
                "is {max}, which cannot be kept without a price: the step's prices have none for `{model}` of `{}`; give them with \
                 `Step::prices`",
                provider.name()
            ),
        };
        Err(SpecError::Invalid { field: "budgets.max_cost".to_owned(), why })
    }

    /// Refuses a step that names tools or effects which none of its tools has, and tools that cannot keep what the step asks of them.
    pub(super) async fn check_tools(&self, spec: &RunSpec) -> Result<(), StepError> {
        if !self.speaks_of_tools(spec) {
            return Ok(());
        }
        // What an earlier process left is ended before anything is started beside it.
        if let Fence::Alive { .. } = self.agent.tools.fence_earlier().await {
            return Ok(());
        }
        let Ok(tools) = self.agent.tools.list().await else { return Ok(()) };
        if let Some(misfit) = self.misfit(spec, tools.clone()) {
            return Err(misfit.into());
        }
        let rules = Rules::of(spec).map_err(|why| SpecError::Invalid { field: FORBIDDEN.to_owned(), why })?;
        let rules = rules.speaking_to(Audience::of(Audience::LIBRARY));
        Catalog::new(tools, &self.agent.classifier, &rules).map(drop).map_err(StepError::Tools)
    }

    /// The same for the drive that begins with tools which could not be listed before.
    pub(super) fn judge(&self, spec: &Arc<RunSpec>) -> Judge {
        let (step, spec) = (self.clone(), spec.clone());
        Arc::new(move |tools| step.misfit(&spec, tools.to_vec()).map(|misfit| words_of_a_step(&misfit)))
    }

    fn misfit(&self, spec: &RunSpec, tools: Vec<ToolSpec>) -> Option<SpecError> {
        let classifier = &self.agent.classifier;
        let specs = tools.clone();
        let offered = |tool: ToolSpec| {
            let policy = classifier.classify(&tool, None);
            (tool, policy)
        };
        let tools: Vec<Offered> = tools.into_iter().map(offered).collect();
        if !selectors::are_all_seen(&tools) {
            return None;
        }
        let mut errors: Vec<SpecError> = Vec::new();
        let mut wrong = |field: &str, why: String| errors.push(SpecError::Invalid { field: field.to_owned(), why });
        let unmatched = selectors::unmatched(spec, &tools, &[]);
        for typo in &unmatched {
            let nearest = typo.nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            let what = if typo.field == CONDITIONS {
                "no tool of the step has that effect"
            } else {
                "no tool or effect has that name"
            };
            wrong(typo.field, format!("has {:?}, and {what}{nearest}", typo.word));
        }
        for why in self.idle_rules(&specs) {
            wrong(POLICIES, why);
        }
        let rules = Rules::of(spec).ok()?;
        let is_told = |effect: &str| unmatched.iter().any(|typo| typo.field == CONDITIONS && typo.word == effect);
        for effect in selectors::unmakeable(spec, &tools, classifier, &rules).iter().filter(|effect| !is_told(effect)) {
            let why = format!(
                "wait for the effect {effect:?}, which no tool of the step has: say of the one that has it `external({effect:?})`, or \
                 `effect_kind` in a policy"
            );
            wrong(CONDITIONS, why);
        }
        if errors.len() > 1 { Some(SpecError::Several(errors)) } else { errors.pop() }
    }

    /// What the step's policies say of tools that are not there, or of arguments that their tools do not have: it protects from nothing.
    fn idle_rules(&self, tools: &[ToolSpec]) -> Vec<String> {
        let classifier = &self.agent.classifier;
        let files = classifier.files();
        if files.is_empty() {
            return Vec::new();
        }
        let more = [ToolName::ask_user(), ToolName::task()];
        let there: Vec<ToolName> = tools.iter().map(|tool| tool.name.clone()).chain(more.clone()).collect();
        let shown = |text: &str, _: usize| text.to_owned();
        let idle = classifier.idle_cautions(&files, tools, &more);
        let idle = idle.iter().filter_map(|idle| idle.in_words(&there, shown));
        let idle = idle.map(|rule| format!("call for care with a tool that the step does not have: {rule}"));
        let beside: Vec<&ToolSpec> = tools.iter().collect();
        let misnamed = tools.iter().flat_map(|tool| classifier.misnamed(tool, &beside));
        let misnamed = misnamed.map(|found| {
            let (tool, rule, file) = (&found.tool, &found.rule_id, &found.file);
            format!("name what the tool `{tool}` does not have: {found}, in rule `{rule}` of {file}")
        });
        idle.chain(misnamed).collect()
    }
}
