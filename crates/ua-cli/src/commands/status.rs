//! `ua status`: what runs, what waits for a person, and what it costs.

use std::time::Duration;

use clap::Args;
use ua_core::{Costs, RunStatus, counted};
use ua_host::standing::standings;
use ua_host::{Host, gateway, questions};
use ua_resume::{Commands, NextStep, Standing};
use ua_runner::UsageSummary;
use ua_store::{FleetStore as _, Keep, QueueState, RunHead, RunQuery, RunStore as _, Store as _};

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
/// How effects stand that are not over.
const UNDER_WAY: [&str; 2] = ["running", "not sent yet"];
/// What ended within this time is counted.
const LATELY: Duration = Duration::from_hours(24);

pub(crate) async fn run(host: &Host) -> Result<u8, HostError> {
    let home = host.home();
    let (mut found, alone) = if home.is_unused() { (StatusShown::default(), Vec::new()) } else { look(host).await? };
    let beside = gateway::questions_beside(host).await;
    let unread = beside.unread_in_words();
    let gateway::Beside { commands, asked, .. } = beside;
    let mut left = None;
    // One that cannot be read is not waited for again.
    if unread.is_none() {
        left = gateway::left_beside(host).await;
        let lately = gateway::calls_beside(host, host.env().now().minus(LATELY)).await;
        found.gateway_lately = lately.map(GatewayLately::from);
    }
    found.gateway_questions = asked.iter().map(|asked| OpenQuestion::of_gateway(asked, &commands)).collect();
    if let Some(unread) = &unread {
        crate::output::tell(unread.clone());
    }
    if crate::terminal::is_json() {
        print_json(&found)?;
        return Ok(OK);
    }
    if found.runs.is_empty() {
        print(format!("{}\n", nothing_listed(&found, left.is_some() || unread.is_some())))?;
    } else {
        let now = host.env().now();
        let (runs, more) = first_rows(&found.runs, &home.commands());
        let ids = ShortIds::of(&found.runs.iter().map(|run| run.run.run_id.as_str()));
        let row = |shown: &StatusRun| {
            vec![
                ids.get(shown.run.run_id.as_str()).to_owned(),
                shown.run.status_cell.clone(),
                cost(&shown.run.cost, shown.run.total_tokens, shown.run.unpriced_requests),
                shown.run.turn_index.to_string(),
                moment::ago(shown.run.updated_at, now),
                line(&shown.run.objective, 200),
            ]
        };
        print_table(&crate::listings::STATUS, runs.iter().copied().map(row).collect())?;
        for place in runs.iter().filter_map(|shown| shown.run.where_it_is()) {
            print(place)?;
        }
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

/// What is said where no run is open. Of the gateway it is said below what waits and what runs: then it is no more than that no job does.
fn nothing_listed(found: &StatusShown, is_left: bool) -> &'static str {
    let is_under_way = |lately: &GatewayLately| UNDER_WAY.iter().any(|word| lately.effects.contains_key(word));
    if found.gateway_lately.as_ref().is_some_and(is_under_way) || is_left || !found.gateway_questions.is_empty() {
        "no job runs"
    } else {
        "nothing runs, and nothing waits for you"
    }
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
            _ if run.run.shown_status == "outdated" => &["outdated"],
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
pub(super) fn at_the_gateway(commands: &Commands, asked: &[gateway::Asked]) -> Option<String> {
    let waits = match asked {
        [] => return None,
        [one] => format!("1 question of the gateway waits for you: {}", short(one.question.question_id.as_str())),
        [first, ..] => {
            let first = short(first.question.question_id.as_str());
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
    let mut blocked = super::fleet::blocked(host).await?;
    let mut shown = StatusShown::default();
    let mut queued = 0;
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
        let (mut resume_with, mut resumed_by) = (String::new(), None);
        if !is_session {
            let (next, command) = ua_host::restart::next_command_there(home, &store, &run).await?;
            resumed_by = next.command().is_none().then(|| format!("{} {}", next.who(), next.does()));
            resume_with = command;
        }
        let is_stopped = head.status == RunStatus::Stopped;
        // What stopped in the middle of its work and was given back waits for a worker like what was never begun.
        let entry = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
        let is_for_a_worker = entry.is_some_and(|entry| entry.state != QueueState::Parked) && !standing.is_driven();
        queued += usize::from(is_for_a_worker);
        let mut waits_for_a_resume = standing.waits_for_a_resume() && !is_session;
        let waits = ua_host::waits::of_run(home, &store, &run).await.map(|wait| wait.in_words());
        let blocked = match blocked.remove(&head.run_id) {
            // A worker does by itself what a person would do.
            Some((false, why)) if is_stopped && fleet.is_worked() && NextStep::of(&run).is_to_be_tried_again() => {
                waits_for_a_resume = false;
                Some(why)
            }
            // Its own reason is said, with what gets it further; unless that is refused.
            _ if is_stopped && shown.runs.len() < ROWS => ua_host::why_held(&store, &head.run_id).await?,
            _ if is_stopped => None,
            // What a run waits for that is parked with a question is the answer, unless nothing is done with one.
            Some((true, _)) if head.status == RunStatus::WaitingForHuman => {
                ua_host::why_held(&store, &head.run_id).await?
            }
            Some((_, why)) => Some(why),
            None if waits_for_a_resume && shown.runs.len() < ROWS => ua_host::why_held(&store, &head.run_id).await?,
            None => None,
        };
        shown.runs.push(StatusRun {
            resume_with,
            resumed_by,
            blocked,
            waits,
            needs_correction: !is_session && NextStep::of(&run).needs_correction(),
            why: run.status_detail.filter(|_| head.status == RunStatus::Stopped),
            waits_for_a_resume,
            run: RunRow::of(head, &standing, usage),
        });
    }
    shown.questions = OpenQuestion::all(home, &store, &questions::open(&store, None).await?).await?;
    ua_host::home::close(store);
    let is_full = ua_host::fleet::disk_is_full(home.root())
        .map(|why| format!("{}; no worker takes a run before there is room", plain(&why)));
    let late = fleet.late(host).await;
    let (queued, late) = (fleet.left_queued(queued), fleet.left_alone(&late, false));
    let paused: Vec<String> = fleet
        .paused()
        .into_iter()
        .filter(|why| ![&queued, &late].into_iter().flatten().any(|said| said.contains(why)))
        .collect();
    Ok((shown, is_full.into_iter().chain(paused).chain(queued).chain(late).chain(fleet.ahead()).collect()))
}

/// What a run used, over all processes.
pub(super) async fn usage(store: &ua_host::Database, run: &RunHead) -> Result<UsageSummary, HostError> {
    // What is summed up is not read.
    let few = Keep { turns: 1, calls: 1, bytes: 0 };
    let records = store.load_standing(&run.run_id, few).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(UsageSummary::of(&records))
}

fn add(sum: &mut Costs, more: &Costs) {
    more.amounts().iter().for_each(|money| sum.add(*money));
}

/// How many lines of the reason of a stop are shown.
const REASON_LINES: usize = 8;

/// What a run cost, as far as prices are known.
pub(super) fn cost(cost: &Costs, tokens: u64, unpriced: u32) -> String {
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
    let (mut out, now) = (String::new(), ua_core::system::env().now());
    for question in &found.questions {
        let (id, run) = (question.question.question_id.as_str(), question.question.run_id.as_str());
        // In one paragraph, whatever its lines were: what stands in columns there would be laid out as columns here.
        let text = super::summary::words_of(&question.question);
        let text = field(&in_one_paragraph(&text), 200);
        // Of a question whose process is gone the text says what was so when it was asked.
        let remark = question.remark.map_or_else(String::new, |remark| format!("\n  {remark}"));
        let takes = question.words.join(", ");
        let whose = match &question.sub_agent_of {
            Some(top) => format!("run {}, asked by its sub-agent", short(top)),
            None => "run".to_owned(),
        };
        out.push_str(&format!(
            "\nQuestion {} of {whose} {}\n  {text}{remark}\n  `ua answer {}` takes {takes}\n",
            short(id),
            short(run),
            short(id)
        ));
    }
    if !found.questions.is_empty() {
        out.push_str("`ua questions` says what is known about each, and how to answer\n");
    }
    for (run, why) in found.runs.iter().filter_map(|run| Some((run, run.blocked.as_deref()?))).take(ROWS) {
        let (status, id) = (plain(&run.run.shown_status), run.run.run_id.as_str());
        let objective = field(&run.run.objective, 80);
        let why = line(&moment::in_sentence(why, now), 1_000);
        let who = if run.run.status == RunStatus::Stopped && !run.waits_for_a_resume {
            "a worker tries it again by itself"
        } else {
            "no worker continues it now"
        };
        out.push_str(&format!("\n{status}, and {who}: run {}\n  {objective}\n    {why}\n", short(id)));
    }
    // A run whose worker waits looks like one that is at work.
    for (run, waits) in found.runs.iter().filter_map(|run| Some((run, run.waits.as_deref()?))).take(ROWS) {
        let (id, objective) = (short(run.run.run_id.as_str()), field(&run.run.objective, 80));
        let waits = line(&moment::in_sentence(waits, now), 400);
        out.push_str(&format!("\nrun {id} is {waits}; it continues by itself once that answers\n  {objective}\n"));
    }
    let is_to_resume = |run: &&StatusRun| run.waits_for_a_resume && run.blocked.is_none();
    let to_resume: Vec<&StatusRun> = found.runs.iter().filter(is_to_resume).collect();
    for run in to_resume.iter().take(ROWS) {
        let objective = field(&run.run.objective, 80);
        let status = plain(&run.run.shown_status);
        let how = if let Some(who) = &run.resumed_by {
            format!("; {}", plain(who))
        } else {
            let command = crate::ids::shortened(&run.resume_with, &[run.run.run_id.as_str()]);
            // Nobody is sent to a resume that is refused again.
            let first = if run.needs_correction { ", once what stopped it is corrected" } else { "" };
            format!("{first}: {}", plain(&command))
        };
        out.push_str(&format!("\n{status}{how}\n  {objective}\n"));
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
        if found.failed_lately > 0 {
            let limit = found.failed_lately.max(super::runs::LISTED);
            let command = if limit > super::runs::LISTED {
                format!("`ua runs list --status failed --limit {limit}`")
            } else {
                "`ua runs list --status failed`".to_owned()
            };
            out.push_str(&format!("{command} says which failed, and why\n"));
        }
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

    /// What the gateway has under way is told below it.
    #[test]
    fn nothing_runs_only_where_nothing_does() {
        let found = |effects: &[(&'static str, u32)]| StatusShown {
            gateway_lately: Some(GatewayLately { calls: 5, effects: effects.iter().copied().collect() }),
            ..StatusShown::default()
        };
        let nothing = "nothing runs, and nothing waits for you";
        assert_eq!(nothing_listed(&StatusShown::default(), false), nothing);
        assert_eq!(nothing_listed(&found(&[("succeeded", 5)]), false), nothing);
        assert_eq!(nothing_listed(&found(&[("succeeded", 4), ("running", 1)]), false), "no job runs");
        assert_eq!(nothing_listed(&found(&[("succeeded", 5)]), true), "no job runs");
    }

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
        assert!(!text.contains("runs list"), "nothing failed: {text}");
    }

    /// Whoever reads that some failed finds them all, and why.
    #[test]
    fn what_failed_is_found_with_the_command_that_is_named() {
        for (failed_lately, command) in
            [(1, "`ua runs list --status failed`"), (20, "failed`"), (31, "`ua runs list --status failed --limit 31`")]
        {
            let text = summary(&StatusShown { failed_lately, ..StatusShown::default() });
            let wanted = format!("{failed_lately} failed\n");
            assert!(text.contains(&wanted) && text.contains(&format!("{command} says which failed")), "{text}");
        }
    }

    #[test]
    fn what_follows_an_item_of_a_list_does_not_run_into_it() {
        let text = "It asks for:\n  - \"a\": text\n  - \"b\": text, may be left out\n\nThe server waits.";
        let said = "It asks for: - \"a\": text; - \"b\": text, may be left out; The server waits.";
        assert_eq!(in_one_paragraph(text), said);
        assert_eq!(in_one_paragraph("a\nb"), "a b");
    }
}
