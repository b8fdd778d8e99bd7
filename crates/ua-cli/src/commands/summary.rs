//! What is printed when a process's work on a run ends.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use ua_core::{CallStatus, QuestionId, RunId, RunStatus, ShortNames, ShowPath as _};
use ua_runner::{UsageSummary, Workspace};
use ua_store::{QuestionKind, QuestionRecord, QuestionStatus, ReceiptRecord, RunRecord, RunRecords};

use ua_host::questions::{KnownFact, OLDER_COPY, WHAT_HELPS, what_helps};
use ua_host::servers::BUILTIN;
use ua_resume::answers::{Beside, Reach, SUB_AGENT, Whose, known, read_by, sub_agent, ways};
use ua_resume::{AroundRun, NextStep, Standing, call_standing};

use crate::error::HostError;
use crate::ids::{in_sentence, short, shortened};
use crate::moment;
use crate::output::{columns, field, foreign_to, line, plain, print as write_out};
use crate::shown::Shown;
use crate::view::{ForkShown, OpenQuestion, RunEnded};

/// Prints the final summary on standard output; `next_command` is how the run goes on, unless another process has taken it over. Whoever was `asked` a
/// question just above is told no more than how to come back to it.
pub(crate) fn print(
    (next_command, taken_by): (&str, Option<u32>),
    records: &RunRecords,
    fork: Option<ForkShown>,
    asked: &BTreeSet<QuestionId>,
) -> Result<(), HostError> {
    if crate::terminal::is_json() {
        return crate::output::print_json(&ended(records, fork));
    }
    let run = &records.run;
    let has = |status| records.questions.iter().any(|question| question.status == status);
    let around = AroundRun { is_driven: true, is_answered: !has(QuestionStatus::Open), ..AroundRun::default() };
    let next = match taken_by {
        // Whoever reads this sent no signal, and has nothing to do.
        Some(process) => ("Taken over by", format!("process {process}, which continues the run")),
        None => (NextStep::of(run).label(), next_command.to_owned()),
    };
    write_out(text((next.0, &next.1), records, &Standing::of(run.status, run.stop_reason, around), asked))
}

/// So much of the other side's name for what happened is shown, in characters: it may be the place of a file, which is copied whole.
const ID: usize = 1_000;

/// What a run came to, as a clause, with the command that shows it.
pub(crate) fn what_it_came_to(run: &RunRecord) -> String {
    let id = short(run.run_id.as_str());
    let how = match run.status {
        RunStatus::Succeeded => "succeeded".to_owned(),
        RunStatus::Failed => "failed".to_owned(),
        RunStatus::Cancelled => "was cancelled".to_owned(),
        RunStatus::WaitingForHuman => "waits for a person".to_owned(),
        RunStatus::Queued | RunStatus::Running | RunStatus::Stopped => {
            format!("is {}", Standing::Stored(run.status, run.stop_reason))
        }
    };
    format!("run {id} {how}: `ua runs show {id}` shows it")
}

/// The same for a machine.
fn ended(records: &RunRecords, fork: Option<ForkShown>) -> RunEnded {
    let run = &records.run;
    let workspace = Path::new(&run.workspace_dir);
    let is_open = |question: &&QuestionRecord| question.status == QuestionStatus::Open;
    RunEnded {
        run_id: run.run_id.clone(),
        status: run.status,
        stop_reason: run.stop_reason,
        status_detail: run.status_detail.clone(),
        final_output: run.final_value(),
        final_artifact: run.final_artifact_ref.as_ref().map(|artifact| workspace.join(artifact)),
        workspace_dir: run.workspace_dir.clone(),
        completion_file: workspace.join(format!("{}.json", Workspace::completion_name(&run.run_id))),
        questions: records.questions.iter().filter(is_open).map(|q| open_question(records, q)).collect(),
        usage: UsageSummary::of(records),
        turn_index: run.turn_index,
        root_run_id: run.root_run_id.clone(),
        parent_run_id: run.parent_run_id.clone(),
        fork,
    }
}

/// Prints the final summary for a person, whatever `--json` says.
pub(crate) fn print_text(next: (&str, &str), records: &RunRecords, standing: &Standing) -> Result<(), HostError> {
    write_out(text(next, records, standing, &BTreeSet::new()))
}

fn text(
    (label, next_command): (&str, &str),
    records: &RunRecords,
    standing: &Standing,
    asked: &BTreeSet<QuestionId>,
) -> Shown {
    let run = &records.run;
    let next_command = shortened(next_command, &[run.run_id.as_str()]);
    let workspace = Path::new(&run.workspace_dir);
    let (headline, below) = headline_and_reason(run, standing);
    let word = headline.split([' ', ':']).next().unwrap_or(&headline);
    let color = crate::terminal::status_color(word).filter(|_| crate::terminal::out_has_color());
    let shown = color.map_or_else(|| Shown::from(&headline), |color| Shown::painted(&headline, color, true));
    let mut out = format!(" · run {}\n", short(run.run_id.as_str()));
    if let Some(below) = below {
        out.push_str(&format!("\n{}\n", indented(&below)));
    }
    if let Some(output) = run.final_output.as_deref().filter(|text| !text.trim().is_empty()) {
        out.push_str(&format!("\n{}\n", indented(output)));
    }
    if let Some(unchecked) = ua_evidence::unchecked(records) {
        out.push_str(&format!("\n{unchecked}\n"));
    }
    let below = records.lineage.sub_agents.iter().flat_map(|child| &child.effects);
    let is_left = standing.is_left();
    let names = records.short_names();
    let own = records.calls.iter().chain(below).filter_map(|call| effect_line(call, &names, is_left));
    let effects: Vec<String> = own.chain(effects_of_others(records, &names)).collect();
    if !effects.is_empty() {
        out.push_str(&format!("\nEffects\n{}\n", effects.join("\n")));
    }
    if has_mail_in_a_folder(records) {
        out.push_str(
            "  The built-in send_email put its mails into a folder; no mail server is set (UA_MAIL), so nothing left this machine by it\n",
        );
    }
    out.push_str(&questions_left(records, asked));
    if let Some(artifact) = &run.final_artifact_ref {
        let file = workspace.join(artifact);
        out.push_str(&format!("\nMain artifact  {}{}\n", in_one_line(workspace, &file), if_missing(&file)));
    }
    let completion = workspace.join(format!("{}.md", Workspace::completion_name(&run.run_id)));
    // One that was never begun has none yet.
    let is_begun = run.lease_epoch > 0;
    let missing = if is_begun { if_missing(workspace) } else { "" };
    out.push_str(&format!("\nWorkspace      {}{missing}\n", workspace.shown()));
    // A run that is at work, or crashed, has not written what it would have written at its end.
    if completion.exists() {
        out.push_str(&format!("Details        {}\n", in_one_line(workspace, &completion)));
    } else if standing.is_left() && run.turn_index > 0 {
        out.push_str(&format!("Transcript     ua runs export {} --transcript\n", short(run.run_id.as_str())));
    }
    if run.status.is_terminal() {
        // It is not resumed; another run continues it.
        if run.status == RunStatus::Failed && run.turn_index > 0 && run.task_call_id.is_none() {
            out.push_str(&format!("{:<14} ua fork {}\n", "Continue with", short(run.run_id.as_str())));
        }
        return shown.then(out);
    }
    out.push_str(&format!("{label:<14} {next_command}\n"));
    shown.then(out)
}

/// The path of a file of a run: from its workspace on, which is named beside it, where a terminal would break the whole in the middle.
fn in_one_line(workspace: &Path, file: &Path) -> String {
    placed_in(workspace, file, crate::terminal::width())
}

fn placed_in(workspace: &Path, file: &Path, room: Option<usize>) -> String {
    let whole = file.shown().to_string();
    // What does not fit beside its name stands below it, further in.
    match (room, file.strip_prefix(workspace)) {
        (Some(room), Ok(within)) if columns(&whole) + 2 > room => format!("{} (in the workspace)", within.shown()),
        _ => whole,
    }
}

/// What stands behind the path of something of a run that was moved or deleted since.
fn if_missing(path: &Path) -> &'static str {
    if ua_host::paths::is_missing(path) { " (not there any more)" } else { "" }
}

/// A question of a run, or of its sub-agents.
fn open_question(records: &RunRecords, question: &QuestionRecord) -> OpenQuestion {
    let run = &records.run;
    let top = if question.run_id == run.run_id { ua_store::works_for(run).unwrap_or(&run.run_id) } else { &run.run_id };
    let reach = reach(run, question);
    let call = records.calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref());
    let mut known = ua_resume::answers::known(question, call, &records.attempts, &records.messages, &[], reach);
    known.extend(what_helps(run, question));
    OpenQuestion::of(question, reach).below(top).knowing(known)
}

/// Whom an answer to a question of a run, or of its sub-agents, reaches.
fn reach(run: &RunRecord, question: &QuestionRecord) -> Reach {
    let whose = if question.run_id == run.run_id { Whose::of(run) } else { Whose::SubAgent };
    Reach::of(question, whose, ua_runner::may_be_driven(run))
}

/// The questions of a run that are open, and how each is answered.
pub(super) fn open_questions(records: &RunRecords) -> String {
    questions_left(records, &BTreeSet::new())
}

fn questions_left(records: &RunRecords, asked: &BTreeSet<QuestionId>) -> String {
    let mut out = String::new();
    for question in records.questions.iter().filter(|q| q.status == QuestionStatus::Open) {
        if asked.contains(&question.question_id) {
            let id = short(question.question_id.as_str());
            out.push_str(&format!("\nQuestion {id} is left open; `ua answer {id}` asks it again\n"));
            continue;
        }
        let call = question.call_id.as_ref().and_then(|call| records.call(call));
        let reach = reach(&records.run, question);
        let mut known = known(question, call, &records.attempts, own_history(records, question), &[], reach);
        if question.run_id == records.run.run_id {
            known.extend(what_helps(&records.run, question));
            known.extend(read_by(question, &records.calls));
        }
        if let Some((objective, top)) = of_which_sub_agent(records, question) {
            known.insert(0, sub_agent(objective, top));
        }
        let beside = Beside { known, reach, ..Beside::default() };
        out.push_str(&shortened(&question_text(question, &beside), &ids_of(question, &records.run.run_id)));
    }
    out
}

/// What the sub-agent is about that asks, and the run that it works for; `None` for a question of the run at the top.
fn of_which_sub_agent<'r>(records: &'r RunRecords, question: &QuestionRecord) -> Option<(&'r str, &'r RunId)> {
    let run = &records.run;
    if question.run_id == run.run_id {
        return ua_store::works_for(run).map(|above| (run.spec.objective.as_str(), above));
    }
    let mut all = records.lineage.sub_agents.iter();
    let asks = all.find(|child| child.run_id == question.run_id)?;
    Some((asks.description.as_str(), &run.run_id))
}

/// The line that says how a run stands, and the reason, which stands below it wherever a run is shown: it may be long, may have lines of its
/// own, and may be the words of a tool server.
fn headline_and_reason(run: &RunRecord, standing: &Standing) -> (String, Option<String>) {
    match standing {
        Standing::Stored(RunStatus::Failed | RunStatus::Cancelled | RunStatus::Stopped, _) => {
            (standing.to_string(), run.status_detail.clone())
        }
        Standing::Stored(..)
        | Standing::Ending
        | Standing::Crashed
        | Standing::Interrupted(_)
        | Standing::Answered
        | Standing::Elsewhere(_)
        | Standing::NotBegun
        | Standing::Outdated(_)
        | Standing::IdleSession
        | Standing::EndedSession => (headline(run, standing), None),
    }
}

/// Where a run stands, with why.
pub(super) fn headline(run: &RunRecord, standing: &Standing) -> String {
    let detail = run.status_detail.as_deref().map_or_else(String::new, |detail| format!(": {}", plain(detail)));
    match standing {
        Standing::Stored(RunStatus::Failed | RunStatus::Cancelled | RunStatus::Stopped, _) => {
            format!("{standing}{detail}")
        }
        Standing::Crashed => format!("{standing}: no process drives it"),
        Standing::Interrupted(by) => {
            format!("{standing}: its process was ended by {}, and no other drives it", by.in_words())
        }
        Standing::Ending => format!("{standing}: its process stops after the current call"),
        Standing::Answered => "answered, resume it".to_owned(),
        Standing::NotBegun => format!("{standing}: it is stored, and no process or worker has it"),
        Standing::Outdated(_) => {
            format!("{standing}: effects.log knows more of it than the database, which is an older copy")
        }
        Standing::EndedSession => format!("{standing}: a person ended it; its client continues in another one"),
        Standing::Stored(..) | Standing::Elsewhere(_) | Standing::IdleSession => plain(&standing.to_string()),
    }
}

/// Whether a receipt names a file, wherever in its reply.
fn has_path(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.get("path").is_some_and(Value::is_string) || fields.values().any(has_path),
        Value::Array(items) => items.iter().any(has_path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a mail of the built-in tool is in a folder, and was not sent.
fn has_mail_in_a_folder(records: &RunRecords) -> bool {
    let is_ours = |call: &&ua_store::CallRecord| {
        call.name.server == BUILTIN && call.name.tool == "send_email" && call.status == CallStatus::Succeeded
    };
    let mails: BTreeSet<_> = records.calls.iter().filter(is_ours).map(|call| &call.call_id).collect();
    // What went to a mail server is in no file.
    let is_in_one = |receipt: &ReceiptRecord| serde_json::to_value(&receipt.raw).is_ok_and(|raw| has_path(&raw));
    records.receipts.iter().any(|receipt| mails.contains(&receipt.call_id) && is_in_one(receipt))
}

/// What other runs of the family did outside, and no call of this run was answered with: it may have met a condition all the same.
fn effects_of_others(records: &RunRecords, names: &ShortNames) -> Vec<String> {
    let answered: BTreeSet<_> = records.calls.iter().filter_map(ua_store::CallRecord::answered_by).collect();
    let elsewhere = records.lineage.elsewhere.iter().filter(|call| super::lineage::is_done_outside(call));
    let told = |call: &ua_store::CallRecord| {
        let by = format!("of run {}", crate::ids::short(call.run_id.as_str()));
        let id = call.external_correlation_id.as_deref().map_or_else(String::new, |id| format!("  {}", line(id, ID)));
        format!("  {:<24} {by:<14}{id}", line(names.of(&call.name), 48)).trim_end().to_owned()
    };
    elsewhere.filter(|call| !answered.contains(&call.call_id)).map(told).collect()
}

fn effect_line(call: &ua_store::CallRecord, names: &ShortNames, is_left: bool) -> Option<String> {
    let is_effect = call.policy.effect_kind.is_some() || call.policy.class == ua_core::SideEffectClass::External;
    if !is_effect || call.status == CallStatus::Cancelled {
        return None;
    }
    let id = call.external_correlation_id.as_deref().map_or_else(String::new, |id| format!("  {}", line(id, ID)));
    // Whether it was carried out is what a resume finds out.
    let word = if is_left && call.status == CallStatus::Running { "in flight" } else { call_standing(call) };
    Some(format!("  {:<24} {word:<14}{id}", line(names.of(&call.name), 48)).trim_end().to_owned())
}

/// The history of the run that a question is of, where the records have it: a sub-agent's is its own.
fn own_history<'a>(records: &'a RunRecords, question: &QuestionRecord) -> &'a [ua_store::MessageRecord] {
    if question.run_id == records.run.run_id { &records.messages } else { &[] }
}

/// The ids that a question's text names.
pub(crate) fn ids_of<'a>(question: &'a QuestionRecord, run: &'a ua_core::RunId) -> Vec<&'a str> {
    let call = question.call_id.as_ref().map(ua_core::CallId::as_str);
    [question.question_id.as_str(), question.run_id.as_str(), run.as_str()].into_iter().chain(call).collect()
}

/// Where the call of a question is looked at, as a line below what is known of it.
pub(crate) fn look_at(call: &ua_core::CallId) -> String {
    format!("  {:<11} ua calls show {}\n", "look at it", crate::ids::short(call.as_str()))
}

/// A question with what is known about it, and the commands that answer it, each with what it does.
pub(crate) fn question_text(question: &QuestionRecord, beside: &Beside) -> String {
    let mut out = format!("\nQuestion {}\n{}\n", question.question_id, indented(&words_of(question)));
    if question.text.contains(ua_ledger::ARGUMENTS_CUT) {
        out.push_str("  All arguments: `ua questions --full`\n");
    }
    out.push_str(&known_lines(&beside.known, crate::terminal::width()));
    if let Some(call) = &question.call_id {
        out.push_str(&look_at(call));
    }
    if let Some(remark) = beside.reach.remark() {
        out.push_str(&format!("{}\n", indented(remark)));
    }
    out.push_str("Answer with\n");
    let ways = ways(question, beside.reach);
    let width = ways.iter().map(|way| way.command.chars().count()).max().unwrap_or_default();
    for way in &ways {
        out.push_str(&format!("  {:<width$}  {}\n", way.command, way.meaning));
    }
    out
}

/// What is known about a question, a line each, for a terminal of so many columns.
pub(crate) fn known_lines(known: &[KnownFact], room: Option<usize>) -> String {
    known.iter().fold(String::new(), |lines, fact| {
        // Others are words of the model, or of a tool.
        let text = match fact.name {
            "sent" => Cow::Owned(in_sentence(&by_the_wall(&fact.text)).into_owned()),
            WHAT_HELPS | OLDER_COPY | SUB_AGENT => in_sentence(&fact.text),
            _ => Cow::Borrowed(fact.text.as_str()),
        };
        lines + &format!("  {:<11} {}\n", fact.name, foreign_to(&field(&text, 400), 14, room))
    })
}

/// The text of a question as people are shown it. What the model asks stays in its words.
pub(super) fn words_of(question: &QuestionRecord) -> String {
    let is_ours = question.kind != QuestionKind::AskUser;
    let text = if is_ours { with_effects(&question.text) } else { question.text.clone() };
    told(question, &text)
}

/// The same of a question that an earlier version asked, which named what is made of the arguments to compare effects: of that the kind is what a
/// person wants to know.
pub(super) fn with_effects(text: &str) -> String {
    let short = text.lines().map(|line| match line.strip_prefix("Scope: ").and_then(|scope| scope.split_once(" {")) {
        Some((kind, _)) => Cow::Owned(format!("Effect: {kind}")),
        None => Cow::Borrowed(line),
    });
    short.collect::<Vec<_>>().join("\n")
}

/// What a question says, with its instants by the clock on the wall, and with the ids of other calls and runs as a person is shown ids, which is how
/// every command takes them. The arguments behind it are shown as they are sent, and so are the words of a model or a tool server.
pub(super) fn told(question: &QuestionRecord, text: &str) -> String {
    let (ours, rest) = text.split_at(text.find(ARGUMENTS).unwrap_or(text.len()));
    let ours = by_the_wall(ours);
    let is_quoted = matches!(question.kind, QuestionKind::AskUser | QuestionKind::Elicitation);
    let ours = if is_quoted { ours } else { Cow::Owned(in_sentence(&ours).into_owned()) };
    format!("{ours}{rest}")
}

/// What stands in front of the arguments of a call.
const ARGUMENTS: &str = "Arguments: ";

fn by_the_wall(text: &str) -> Cow<'_, str> {
    moment::in_sentence(text, ua_core::system::env().now())
}

/// The lines of a question. What is too long for a line continues further in than anything else here begins: it may be somebody else's words.
pub(super) fn indented(text: &str) -> String {
    indented_to(text, crate::terminal::width())
}

/// The same for a terminal of so many columns.
pub(super) fn indented_to(text: &str, room: Option<usize>) -> String {
    let lines = plain(text.trim());
    let lines = lines.lines().map(|line| format!("  {}", foreign_to(line, FOREIGN, room)).trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Where what is too long for a line of a question continues.
pub(super) const FOREIGN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_a_terminal_would_break_is_told_from_its_workspace_on() {
        let (workspace, file) = (Path::new("/a/workspace"), Path::new("/a/workspace/work_products/report.md"));
        let whole = "/a/workspace/work_products/report.md";
        for (room, told) in [
            (None, whole),
            (Some(80), whole),
            (Some(38), whole),
            (Some(37), "work_products/report.md (in the workspace)"),
        ] {
            assert_eq!(placed_in(workspace, file, room), told, "{room:?}");
        }
        assert_eq!(placed_in(workspace, Path::new("/b/report.md"), Some(10)), "/b/report.md");
    }
}
