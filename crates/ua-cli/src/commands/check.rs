//! `ua job --check`: everything that can be known about a job before it is started.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{CallPolicy, OnUnknown, ToolSpec};
use ua_host::check::{EffectMakers, JobCheck, RuleMatch};
use ua_host::job::{JobRequest, left_as};
use ua_host::people::Presence;
use ua_host::{Host, check, selectors};

use crate::error::{HostError, OK};
use crate::ids::short;
use crate::output::{line, print, print_json, tell};
use crate::people::AtTerminal;
use crate::view::{CheckedEffect, CheckedRule, CheckedWord, JobChecked};

/// How many tools are named in a line: a word of a job seldom selects more, and a rule may be about all tools of several servers.
const NAMED: usize = 20;
/// How much is shown of a word that selects tools.
const WORD: usize = 60;
/// How much is shown of what a job does unasked.
const LIFTS: usize = 600;

pub(crate) async fn run(host: &Host, presence: Presence, request: &JobRequest) -> Result<u8, HostError> {
    // Nobody is asked: what is not trusted is a reason not to start.
    let people = AtTerminal::new(false, true);
    let found = check::check(host, &people, presence, request).await?;
    if crate::terminal::is_json() {
        print_json(&shown(&found))?;
    } else {
        print(in_words(&found))?;
    }
    for doubt in found.model_doubt.iter().chain(&found.script_doubts).chain(&found.budget_doubts) {
        tell(format!("warning: {}", line(doubt, 500)));
    }
    if let Some(refusal) = &found.refusal {
        crate::error::print(refusal);
        return Ok(crate::error::code(refusal));
    }
    if let Some(before) = &found.done_before {
        tell(before.clone());
    }
    match found.done() {
        Some(run) => tell(format!(
            "run {} did this job already: `ua job` would show it and start nothing",
            short(run.run_id.as_str())
        )),
        None => tell("this job would start; no run was started"),
    }
    Ok(OK)
}

fn shown(found: &JobCheck) -> JobChecked {
    let word = |one: &selectors::Selection| CheckedWord {
        field: one.field,
        word: one.word.clone(),
        tools: one.tools.clone(),
        is_known: one.is_known,
        nearest: one.nearest.clone(),
    };
    let rule =
        |one: &RuleMatch| CheckedRule { place: one.place.clone(), rule: one.rule.clone(), tools: one.tools.clone() };
    let counted =
        |one: EffectMakers| CheckedEffect { effect: one.effect, tools: one.counted, undeclared: one.undeclared };
    JobChecked {
        would_start: found.refusal.is_none() && found.done().is_none(),
        objective: found.spec.objective.clone(),
        provider: found.model.0.clone(),
        model: found.model.1.clone(),
        tools: found.tools.iter().map(|(spec, policy)| super::tools::row(spec, policy)).collect(),
        words: found.selections.iter().map(word).collect(),
        counted_effects: found.counted_effects().into_iter().map(counted).collect(),
        rules: found.rules.iter().map(rule).collect(),
        mail_folder: found.mail_folder.clone(),
        not_asked: found.spec.lifts(),
        script_doubts: found.script_doubts.clone(),
        model_doubt: found.model_doubt.clone(),
        budget_doubts: found.budget_doubts.clone(),
        job_key_used_by: found.key_holder.as_ref().map(|run| run.run_id.clone()),
        unfinished_run: found
            .unfinished
            .as_ref()
            .map(|(run, _)| run)
            .or(found.at_work.as_ref())
            .or(found.queued.as_ref())
            .map(|run| run.run_id.clone()),
    }
}

fn in_words(found: &JobCheck) -> String {
    let (provider, model) = &found.model;
    let mut servers: BTreeMap<&str, usize> = BTreeMap::new();
    for (tool, _) in &found.tools {
        *servers.entry(&tool.name.server).or_default() += 1;
    }
    let servers: Vec<String> = servers.iter().map(|(name, count)| format!("{} {count}", line(name, 40))).collect();
    let mut out = format!(
        "Objective      {}\nModel          {}\nTools          {}{}\n",
        line(&found.spec.objective, 200),
        if provider == model { line(model, 60) } else { format!("{} · {}", line(provider, 40), line(model, 60)) },
        found.tools.len(),
        match servers.as_slice() {
            [] => String::new(),
            // Of one server the number stands there already.
            [_] => format!(
                ", all of `{}`",
                found.tools.first().map_or(String::new(), |(tool, _)| line(&tool.name.server, 40))
            ),
            several => format!(" ({})", several.join(", ")),
        },
    );
    if found.selections.iter().all(|selection| selection.field != "stop_conditions") {
        out.push_str("Conditions     none: whether the job is done is not checked\n");
    }
    let approved = approved(&found.tools, &found.selections);
    if !approved.is_empty() {
        out.push_str(&format!(
            "Needs approval {}: the run waits before each such call until a person approves it\n",
            names(&approved)
        ));
    }
    out.push_str(&reads_by_name(&found.tools));
    let held: Vec<String> = found
        .tools
        .iter()
        .filter(|(_, policy)| policy.on_unknown == OnUnknown::Hold)
        .map(|(tool, _)| tool.name.raw.clone())
        .collect();
    if !held.is_empty() {
        out.push_str(&format!(
            "Asked if lost  {}: if the answer to such a call is lost, the run waits until a person says whether it happened; `ua tools explain NAME` \
             says why\n",
            names(&held)
        ));
    }
    let tainted: Vec<String> = found.asked_once_tainted().iter().map(|name| name.raw.clone()).collect();
    if !tainted.is_empty() {
        out.push_str(&format!(
            "May be asked   {}: once the run has read both foreign text (a page, a mail, the answer of a foreign tool) and private data, a person is \
             asked before such a call. The job allows it by naming the tool, or where it goes, in `constraints.allowed_destinations`; \
             docs/guide/approvals.md has the other ways\n",
            names(&tainted)
        ));
    }
    if let Some(folder) = &found.mail_folder {
        out.push_str(&format!("Mail           {}\n", crate::output::place(folder)));
    }
    let lifts = found.spec.lifts();
    if !lifts.is_empty() {
        out.push_str(&format!("Not asked      this job, without a question: {}\n", line(&lifts.join("; "), LIFTS)));
    }
    let words =
        found.selections.iter().map(|selection| &selection.word).chain(found.rules.iter().map(|rule| &rule.rule));
    let width = words.map(|word| line(word, WORD).chars().count()).max().unwrap_or(0);
    let mut field = "";
    for selection in &found.selections {
        if selection.field != field {
            field = selection.field;
            out.push_str(&format!("\n{field}\n"));
        }
        let what = match (&selection.nearest, selection.is_known) {
            (_, true) if selection.word.starts_with("file ") => "looked for in the workspace".to_owned(),
            (_, true) if selection.tools.is_empty() => "no tool of this job does this".to_owned(),
            (_, true) => names(&selection.tools),
            (Some(nearest), false) => format!("there is no such name; did you mean `{}`?", line(nearest, 80)),
            (None, false) => "there is no such name".to_owned(),
        };
        out.push_str(&format!("  {:<width$}  {what}\n", line(&selection.word, WORD)));
    }
    let undeclared: Vec<EffectMakers> =
        found.counted_effects().into_iter().filter(|one| !one.undeclared.is_empty()).collect();
    if !undeclared.is_empty() {
        out.push_str(
            "\nnot counted, because their effect is not declared (`effect_kind` in a policy rule declares it)\n",
        );
    }
    for one in &undeclared {
        // All of them: which of these is the one is for whoever reads this to know.
        let all: Vec<String> = one.undeclared.iter().map(|name| line(name, 80)).collect();
        out.push_str(&format!("  {:<width$}  {}\n", line(&one.effect, WORD), all.join(", ")));
    }
    let mut place = "";
    for rule in &found.rules {
        if rule.place != place {
            place = &rule.place;
            out.push_str(&format!("\n{}\n", crate::output::place(place)));
        }
        let what = if rule.tools.is_empty() { "matches no tool of this job".to_owned() } else { names(&rule.tools) };
        out.push_str(&format!("  {:<width$}  {what}\n", line(&rule.rule, WORD)));
    }
    if let Some(holder) = &found.key_holder {
        let key = holder.job_key.as_deref().unwrap_or_default();
        let again = if found.done().is_some() { "; --again runs the job once more" } else { "" };
        out.push_str(&format!(
            "\nJob key        {} was used by run {} ({}){again}\n",
            line(key, 60),
            short(holder.run_id.as_str()),
            holder.status
        ));
    }
    if let Some(run) = &found.at_work {
        out.push_str(&format!("\nRunning        run {} of the same job\n", short(run.run_id.as_str())));
    }
    if let Some(run) = &found.queued {
        out.push_str(&format!("\nQueued         run {} of the same job\n", short(run.run_id.as_str())));
    }
    if let Some((left, standing)) = &found.unfinished {
        out.push_str(&format!(
            "\nUnfinished     run {} of the same job {}{}\n",
            short(left.run_id.as_str()),
            left_as(left, standing, None),
            if found.refusal.is_none() { "; `ua job` asks whether to resume it" } else { "" }
        ));
    }
    out
}

/// The tools whose calls wait for a person: those of which a policy says it, and those that the job asks about.
fn approved(tools: &[(ToolSpec, CallPolicy)], selections: &[selectors::Selection]) -> Vec<String> {
    let asked = selections.iter().filter(|selection| selection.field == "escalation.ask_human_before");
    let asked: BTreeSet<&String> = asked.flat_map(|selection| &selection.tools).collect();
    let all = tools.iter().filter(|(tool, policy)| policy.needs_approval || asked.contains(&tool.name.raw));
    all.map(|(tool, _)| tool.name.raw.clone()).collect()
}

/// The tools that are taken for ones that only read by their names; nothing where there is none. What a server that is not trusted says
/// of its own tools (`readOnlyHint`) is told, because it counts for nothing.
fn reads_by_name(tools: &[(ToolSpec, CallPolicy)]) -> String {
    let by_name = tools.iter().filter(|(_, policy)| policy.is_read_by_name());
    let (hinted, silent): (Vec<_>, Vec<_>) = by_name.partition(|(tool, _)| tool.annotations.read_only == Some(true));
    let mut out = String::new();
    for (those, is_hinted) in [(silent, false), (hinted, true)] {
        if those.is_empty() {
            continue;
        }
        let why = match (those.len(), is_hinted) {
            (1, false) => "nothing but its name says that it only reads",
            (_, false) => "nothing but their names say that they only read",
            (1, true) => {
                "its name says that it only reads, and so does its server (`readOnlyHint`), which is not trusted"
            }
            (_, true) => {
                "their names say that they only read, and so do their servers (`readOnlyHint`), which are not trusted"
            }
        };
        let all: Vec<String> = those.into_iter().map(|(tool, _)| tool.name.raw.clone()).collect();
        out.push_str(&format!(
            "Reads by name  {}: {why}, so a call whose answer is lost is sent again once\n",
            names(&all)
        ));
    }
    out
}

/// The names, or as many as anybody reads, how many more there are, and what lists them.
fn names(tools: &[String]) -> String {
    let some: Vec<String> = tools.iter().take(NAMED).map(|name| line(name, 80)).collect();
    let more = tools.len().saturating_sub(NAMED);
    if more == 0 { some.join(", ") } else { format!("{} and {more} more (--json lists all)", some.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{ClassSource, SideEffectClass, ToolAnnotations, ToolName, ToolNamespace};

    use super::*;

    #[test]
    fn what_waits_for_an_approval_is_told_whoever_says_so() {
        let tool = |name: &str, needs_approval: bool| {
            let name = ToolName::qualified(ToolNamespace::Mcp, "shop", name);
            let annotations = ToolAnnotations::default();
            let spec = ToolSpec { name, description: String::new(), input_schema: json!({}), annotations };
            (spec, CallPolicy { needs_approval, ..CallPolicy::unclassified() })
        };
        let selection = |field: &'static str, tool: &str| selectors::Selection {
            field,
            word: "w".to_owned(),
            tools: vec![tool.to_owned()],
            is_known: true,
            nearest: None,
        };
        let tools = [tool("order", true), tool("refund", false), tool("look", false)];
        let selections = [
            selection("escalation.ask_human_before", "mcp__shop__refund"),
            selection("constraints.forbidden_actions", "mcp__shop__look"),
        ];
        assert_eq!(approved(&tools, &selections), ["mcp__shop__order", "mcp__shop__refund"]);
        assert!(approved(&tools[1..], &[]).is_empty());
    }

    #[test]
    fn what_only_its_name_makes_a_read_is_told_with_the_word_of_its_server() {
        let tool = |name: &str, read_only: Option<bool>, class_source: ClassSource| {
            let name = ToolName::qualified(ToolNamespace::Mcp, "shop", name);
            let annotations = ToolAnnotations { read_only, ..ToolAnnotations::default() };
            let spec = ToolSpec { name, description: String::new(), input_schema: json!({}), annotations };
            (spec, CallPolicy { class: SideEffectClass::ReadOnly, class_source, ..CallPolicy::unclassified() })
        };
        let silent = tool("list_orders", None, ClassSource::Name);
        let hinted = tool("get_order", Some(true), ClassSource::Name);
        assert_eq!(reads_by_name(&[tool("read", Some(true), ClassSource::Default)]), "");
        let again = "so a call whose answer is lost is sent again once\n";
        let of_silent =
            format!("Reads by name  mcp__shop__list_orders: nothing but its name says that it only reads, {again}");
        let of_hinted = format!(
            "Reads by name  mcp__shop__get_order: its name says that it only reads, and so does its server (`readOnlyHint`), which is not \
             trusted, {again}"
        );
        assert_eq!(reads_by_name(&[hinted, silent]), of_silent + &of_hinted);
    }

    #[test]
    fn every_name_is_told_or_how_to_see_it() {
        let tools = |count: usize| (1..=count).map(|n| format!("t{n}")).collect::<Vec<_>>();
        assert_eq!(names(&tools(9)), "t1, t2, t3, t4, t5, t6, t7, t8, t9");
        assert!(names(&tools(NAMED)).ends_with(", t20"));
        assert!(names(&tools(NAMED + 3)).ends_with(", t20 and 3 more (--json lists all)"));
    }
}
