//! Whether what a step says of tools and effects is about any: the command line asks the same of a job, by the same words.
//!
//! Before a run is stored, a new one or a fork, its tools are listed, if the step names any. Servers that cannot be listed now are not judged: the
//! start that follows says why they cannot, and the drive that begins with them asks again.

use std::sync::Arc;

use ua_core::{RunSpec, SpecError, ToolSpec};
use ua_dispatch::selectors::{self, CONDITIONS, Offered};
use ua_dispatch::{Fence, Rules};

use super::{GranularStep, words_of_a_step};
use crate::desk::Judge;

impl GranularStep {
    /// Refuses a step that names tools or effects which none of its tools has.
    pub(super) async fn check_words(&self, spec: &RunSpec) -> Result<(), SpecError> {
        if !selectors::has_selectors(spec) {
            return Ok(());
        }
        // What an earlier process left is ended before anything is started beside it.
        if let Fence::Alive { .. } = self.agent.tools.fence_earlier().await {
            return Ok(());
        }
        match self.agent.tools.list().await {
            Ok(tools) => self.misfit(spec, tools).map_or(Ok(()), Err),
            Err(_) => Ok(()),
        }
    }

    /// The same for the drive that begins with tools which could not be listed before.
    pub(super) fn judge(&self, spec: &Arc<RunSpec>) -> Judge {
        let (step, spec) = (self.clone(), spec.clone());
        Arc::new(move |tools| step.misfit(&spec, tools.to_vec()).map(|misfit| words_of_a_step(&misfit)))
    }

    fn misfit(&self, spec: &RunSpec, tools: Vec<ToolSpec>) -> Option<SpecError> {
        let classifier = &self.agent.classifier;
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
}
