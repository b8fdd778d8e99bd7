//! `ua status`: what runs, what waits for a person, and what it costs.

use std::time::Duration;

use clap::Args;
use ua_core::{Costs, RunStatus, counted};
use ua_host::standing::standings;
use ua_host::{Host, gateway, questions};
use ua_resume::{Commands, Standing};
use ua_runner::UsageSummary;
use ua_store::{QuestionRecord, RunHead, RunQuery, RunStore as _, Store as _};

use super::schedule::Fleet;
use crate::error::{HostError, OK};
use crate::ids::{ShortIds, short};
use crate::moment;
use crate::output::{field, line, plain, print, print_json, print_table};
use crate::view::{GatewayLately, OpenQuestion, RunRow, StatusRun, StatusShown};

/// `ua status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua status
  ua status --json | jq -r '.questions[].answer_with[0]'

Runs that ended more than a day ago are in `ua runs list`.")]
pub struct StatusArgs {}

/// A table of so many runs is read; the rest are counted. What is counted and added up is always all of them.
const ROWS: usize = 50;
/// What ended within this time is counted.
const LATELY: Duration = Duration::from_hours(24);

pub(crate) async fn run(host: &Host) -> Result<u8, HostError> {
    let home = host.home();
    let (mut found, alone) = if home.is_unused() { (StatusShown::default(), Vec::new()) } else { look(host).await? };
    let (commands, asked) = gateway::questions_beside(host).await;
    let left = gateway::left_beside(host).await;
    found.gateway_lately = gateway::calls_beside(host, host.env().now().minus(LATELY)).await.map(GatewayLately::from);
    found.gateway_questions = asked.iter().map(|question| OpenQuestion::of_gateway(question, &commands)).collect();
    if crate::terminal::is_json() {
        print_json(&found)?;
        return Ok(OK);
    }
    if found.runs.is_empty() {
        let waits =
            if asked.is_empty() && left.is_none() { "nothing runs, and nothing waits for you" } else { "nothing runs" };
        print(format!("{waits}\n"))?;
    } else {
        let now = host.env().now();
        let (runs, more) = first_rows(&found.runs, &home.commands());
        let ids = ShortIds::of(&found.runs.iter().map(|run| run.run.run_id.as_str()));
        let row = |shown: &StatusRun| {
            vec![
                ids.get(shown.run.run_id.as_str()).to_owned(),
                shown.run.shown_status.clone(),
                cost(&shown.cost, shown.total_tokens, shown.unpriced_requests),
                shown.run.turn_index.to_string(),
                moment::ago(shown.run.updated_at, now),
                line(&shown.run.objective, 200),
            ]
        };
        print_table(&crate::listings::STATUS, runs.into_iter().map(row).collect())?;
        print(more)?;
    }
    print(summary(&found))?;
    for alone in alone {
        print(format!("\n{alone}\n"))?;
    }
    if let Some(waits) = at_the_gateway(&commands, &asked) {
        print(format!("\n{waits}\n"))?;
    }
    if let Some(left) = left {
        print(format!("\n{}\n", plain(&left)))?;
    }
    Ok(OK)
}

/// The runs that the table shows, what runs first, then what waits for a person; and a line about those that it does not show.
fn first_rows<'a>(runs: &'a [StatusRun], commands: &Commands) -> (Vec<&'a StatusRun>, String) {
    let rank = |run: &&StatusRun| match run.run.status {
        RunStatus::Running if !run.waits_for_a_resume => 0,
        RunStatus::WaitingForHuman => 1,
        RunStatus::Running => 2,
        RunStatus::Stopped => 3,
        RunStatus::Queued | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => 4,
    };
    let mut rows: Vec<&StatusRun> = runs.iter().collect();
    if rows.len() <= ROWS {
        return (rows, String::new());
    }
    rows.sort_by_key(rank);
    let more = rows.split_off(ROWS);
    let mut words: Vec<&str> = Vec::new();
    for run in &more {
        let of_status: &[&str] = match run.run.status {
            RunStatus::Running => &["running", "crashed", "interrupted"],
            RunStatus::WaitingForHuman => &["waiting", "answered"],
            RunStatus::Stopped => &["stopped"],
            RunStatus::Queued | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => {
                &["queued", "not-begun"]
            }
        };
        words.extend(of_status.iter().filter(|word| !words.contains(word)).copied().collect::<Vec<_>>());
    }
    let mut list = "ua runs list".to_owned();
    for word in words {
        list.push_str(&format!(" --status {word}"));
    }
    list.push_str(&format!(" --limit {}", runs.len()));
    let list = format!("`{list}`");
    (rows, format!("and {} more: {}\n", more.len(), plain(&commands.complete(&list))))
}

/// That questions of the gateway wait, with how they are looked at; `None` when there is none.
pub(super) fn at_the_gateway(commands: &Commands, asked: &[QuestionRecord]) -> Option<String> {
    let waits = match asked {
        [] => return None,
        [one] => format!("1 question of the gateway waits for you: {}", short(one.question_id.as_str())),
        [first, ..] => {
            let first = short(first.question_id.as_str());
            format!("{} questions of the gateway wait for you, the first is {first}", asked.len())
        }
    };
    let how = commands.complete("`ua questions` says what is known, and how to answer").into_owned();
    Some(format!("{waits}\n{}", plain(&how)))
}

/// What there is, and what is to be said of the queue and of schedules.
async fn look(host: &Host) -> Result<(StatusShown, Vec<String>), HostError> {
    let home = host.home();
    let store = home.open_read_only()?;
    let fleet = Fleet::of(host, &store).await?;
    let fail = |error: &ua_store::StoreError| HostError::store("look for runs", error);
    let of =
        |statuses: Vec<RunStatus>| RunQuery { statuses, limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
    let open = of(vec![RunStatus::Queued, RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped]);
    let open = store.find_runs(&open).await.map_err(|e| fail(&e))?;
    let since = host.env().now().minus(LATELY);
    let ended = of(vec![RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled]);
    let ended = store.find_runs(&ended).await.map_err(|e| fail(&e))?;
    let ended: Vec<RunHead> = ended.into_iter().filter(|run| run.updated_at >= since).collect();
    let standings = standings(home, &store, &open).await?;
    let mut shown = StatusShown::default();
    for head in &ended {
        let usage = usage(&store, head).await?;
        add(&mut shown.cost_of_ended, &usage.cost);
        shown.unpriced_of_ended += usage.unpriced_requests;
        match head.status {
            RunStatus::Succeeded => shown.succeeded_lately += 1,
            RunStatus::Failed => shown.failed_lately += 1,
            RunStatus::Cancelled
            | RunStatus::Queued
            | RunStatus::Running
            | RunStatus::WaitingForHuman
            | RunStatus::Stopped => shown.cancelled_lately += 1,
        }
    }
    for (head, standing) in open.into_iter().zip(standings) {
        // Its client alone continues it, and until then it wants nothing of anybody.
        if matches!(standing, Standing::IdleSession | Standing::EndedSession) {
            continue;
        }
        let usage = usage(&store, &head).await?;
        add(&mut shown.cost_of_open, &usage.cost);
        shown.unpriced_of_open += usage.unpriced_requests;
        let run = store.run(&head.run_id).await.map_err(|e| fail(&e))?;
        // Its client decides when a session of the gateway continues: nobody resumes it.
        let is_session = ua_store::is_gateway(&run);
        let resume_with =
            if is_session { String::new() } else { ua_host::restart::next_command_there(home, &store, &run).await? };
        shown.runs.push(StatusRun {
            total_tokens: usage.total_tokens,
            cost: usage.cost,
            unpriced_requests: usage.unpriced_requests,
            resume_with,
            why: run.status_detail.filter(|_| head.status == RunStatus::Stopped),
            waits_for_a_resume: standing.waits_for_a_resume() && !is_session,
            run: RunRow::of(head, &standing),
        });
    }
    shown.questions = OpenQuestion::all(&store, &questions::open(&store, None).await?).await?;
    ua_host::home::close(store);
    let queued = shown.runs.iter().filter(|run| run.run.status == RunStatus::Queued && !run.waits_for_a_resume).count();
    let alone = fleet.left_queued(queued).into_iter().chain(fleet.left_alone(host.env().now()));
    Ok((shown, alone.collect()))
}

async fn usage(store: &ua_host::Database, run: &RunHead) -> Result<UsageSummary, HostError> {
    let records = store.load(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(UsageSummary::of(&records))
}

fn add(sum: &mut Costs, more: &Costs) {
    more.amounts().iter().for_each(|money| sum.add(*money));
}

/// How many lines of the reason of a stop are shown.
const REASON_LINES: usize = 8;

/// What a run cost, as far as prices are known.
fn cost(cost: &Costs, tokens: u64, unpriced: u32) -> String {
    match (cost.is_empty(), unpriced) {
        (true, 0) => "0".to_owned(),
        (true, _) => format!("{tokens} tokens"),
        (false, 0) => cost.to_string(),
        (false, _) => format!("{cost} + ?"),
    }
}

/// The lines of a question one behind the other. An item of a list is told apart from what follows it.
fn in_one_paragraph(text: &str) -> String {
    let mut out = String::new();
    let mut is_item = false;
    for line in text.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            continue;
        }
        let ends = out.ends_with(['.', ',', ';', ':', '?', '!']);
        out.push_str(if out.is_empty() {
            ""
        } else if is_item && !ends {
            "; "
        } else {
            " "
        });
        is_item = words.starts_with("- ");
        out.push_str(&words);
    }
    out
}

/// What stands behind a sum of costs to which so many requests were not added.
fn as_far(unpriced: u32) -> String {
    if unpriced == 0 {
        return String::new();
    }
    format!(" as far as prices are known ({} without one)", counted(unpriced, "request"))
}

fn summary(found: &StatusShown) -> String {
    let mut out = String::new();
    for question in &found.questions {
        let (id, run) = (question.question.question_id.as_str(), question.question.run_id.as_str());
        // In one paragraph, whatever its lines were: what stands in columns there would be laid out as columns here.
        let text = super::summary::words_of(&question.question);
        let text = field(&in_one_paragraph(&text), 200);
        // Of a question whose process is gone the text says what was so when it was asked.
        let remark = question.remark.map_or_else(String::new, |remark| format!("\n  {remark}"));
        let takes = question.words.join(", ");
        out.push_str(&format!(
            "\nQuestion {} of run {}\n  {text}{remark}\n  `ua answer {}` takes {takes}\n",
            short(id),
            short(run),
            short(id)
        ));
    }
    if !found.questions.is_empty() {
        out.push_str("`ua questions` says what is known about each, and how to answer\n");
    }
    let to_resume: Vec<&StatusRun> = found.runs.iter().filter(|run| run.waits_for_a_resume).collect();
    for run in to_resume.iter().take(ROWS) {
        let command = crate::ids::shortened(&run.resume_with, &[run.run.run_id.as_str()]).into_owned();
        let objective = field(&run.run.objective, 80);
        out.push_str(&format!("\n{}: {}\n  {objective}\n", plain(&run.run.shown_status), plain(&command)));
        // What changed since a run was started is said line by line.
        for why in run.why.iter().flat_map(|why| why.lines()).filter(|why| !why.trim().is_empty()).take(REASON_LINES) {
            out.push_str(&format!("    {}\n", field(why.trim(), 160)));
        }
    }
    if to_resume.len() > ROWS {
        out.push_str(&format!("\nand {} more that wait to be resumed\n", to_resume.len() - ROWS));
    }
    let ended = found.succeeded_lately + found.failed_lately + found.cancelled_lately;
    if ended > 0 {
        let known = |cost: &Costs| {
            let partly = as_far(found.unpriced_of_ended);
            if cost.is_empty() { String::new() } else { format!(", {cost}{partly}") }
        };
        let counts = [
            (found.succeeded_lately, "succeeded"),
            (found.failed_lately, "failed"),
            (found.cancelled_lately, "cancelled"),
        ];
        let counts: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        out.push_str(&format!("\nEnded in the last 24 hours: {}{}\n", counts.join(", "), known(&found.cost_of_ended)));
    }
    if !found.cost_of_open.is_empty() {
        let partly = as_far(found.unpriced_of_open);
        out.push_str(&format!("Cost of the runs above: {}{partly}\n", found.cost_of_open));
    }
    out.push_str(&found.gateway_lately.as_ref().map(at_the_gateway_lately).unwrap_or_default());
    out
}

/// What went through the gateway; nothing where nothing did.
fn at_the_gateway_lately(lately: &GatewayLately) -> String {
    let effects: u32 = lately.effects.values().sum();
    let of_which = match effects {
        _ if lately.calls == 0 => return String::new(),
        0 => "all of them reads".to_owned(),
        _ => {
            let counts = lately.effects.iter().map(|(word, count)| format!("{count} {word}"));
            format!("{} ({})", counted(effects, "effect"), counts.collect::<Vec<_>>().join(", "))
        }
    };
    format!("\nAt the gateway in the last 24 hours: {}, {of_which}\n", counted(lately.calls, "call"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of costs says what it leaves out, and a sum of everything says nothing.
    #[test]
    fn a_sum_of_costs_says_what_is_not_in_it() {
        let mut cost = Costs::default();
        cost.add(ua_core::Money::from_nanos(55_800_000, ua_core::Currency::USD));
        let found = |unpriced_of_ended, unpriced_of_open| StatusShown {
            cost_of_ended: cost.clone(),
            cost_of_open: cost.clone(),
            succeeded_lately: 2,
            unpriced_of_ended,
            unpriced_of_open,
            ..StatusShown::default()
        };
        let text = summary(&found(5, 1));
        assert!(text.contains("2 succeeded, $0.0558 as far as prices are known (5 requests without one)\n"), "{text}");
        assert!(text.contains("above: $0.0558 as far as prices are known (1 request without one)\n"), "{text}");
        let text = summary(&found(0, 0));
        assert!(text.contains("2 succeeded, $0.0558\n") && text.contains("above: $0.0558\n"), "{text}");
    }

    #[test]
    fn what_follows_an_item_of_a_list_does_not_run_into_it() {
        let text = "It asks for:\n  - \"a\": text\n  - \"b\": text, may be left out\n\nThe server waits.";
        let said = "It asks for: - \"a\": text; - \"b\": text, may be left out; The server waits.";
        assert_eq!(in_one_paragraph(text), said);
        assert_eq!(in_one_paragraph("a\nb"), "a b");
    }
}
