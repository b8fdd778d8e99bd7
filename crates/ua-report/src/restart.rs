//! `RESTART.md`: which runs there are, and how each goes on.
//!
//! Spec: Durable runner, current state, "Job start" and "Job end" (restart file): run id, resume command, workspace, packet and
//! completion file. A page about all runs of one database, so that runs that work side by side never write each other out of it.

use ua_core::RunStatus;
use ua_store::{QueueState, RunRecord};

use ua_evidence::quote::{PLACE, code, line};
use ua_resume::page::Page;
use ua_resume::{Commands, InQueue, NextStep, Standing};

/// How many unfinished runs the page names.
pub const UNFINISHED: usize = 20;
/// How many finished runs the page names.
const FINISHED: usize = 3;

/// What the caller knows about the place where the runs are.
pub struct RestartPlace<'a> {
    /// What makes the commands on the page complete.
    pub commands: &'a Commands,
    /// Where a run stands, as people are told it.
    pub standing: &'a dyn Fn(&RunRecord) -> Standing,
    /// Where a run stands in the queue, if it is there.
    pub in_queue: &'a dyn Fn(&RunRecord) -> Option<QueueState>,
    /// The workspace file with this name, without `.md`, of a run: the resume packet and the completion file.
    pub files: &'a dyn Fn(&RunRecord) -> [String; 2],
    /// Whether a file is there: none is named before it is.
    pub is_there: &'a dyn Fn(&str) -> bool,
    /// Whether there are older runs than the caller has looked at.
    pub has_more: bool,
}

/// Writes the page. `runs` are the newest runs, newest first.
pub fn restart_page(runs: &[RunRecord], place: &RestartPlace<'_>) -> String {
    let mut page = Page::titled("How to resume");
    let (finished, unfinished): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.status.is_terminal());
    if unfinished.is_empty() {
        page.block(
            "When this was written, every run named here had ended and there was nothing to resume. `ua status` shows how things stand now.",
        );
    }
    if let Some(needs) = place.commands.needs().filter(|_| !unfinished.is_empty()) {
        page.block(needs);
    }
    for run in unfinished.iter().take(UNFINISHED) {
        write_run(&mut page, run, place);
    }
    if unfinished.len() > UNFINISHED {
        let more = unfinished.len() - UNFINISHED;
        page.block(&format!(
            "And {more} to resume: `ua runs list --limit {}`.",
            runs.len(),
            more = ua_core::counted(more, "more run")
        ));
    }
    if !finished.is_empty() && !unfinished.is_empty() {
        page.block("The newest runs that have ended; there is nothing to resume:");
    }
    for run in finished.iter().take(FINISHED) {
        write_run(&mut page, run, place);
    }
    let left_out = finished.len().saturating_sub(FINISHED);
    match (left_out, place.has_more) {
        (0, false) => {}
        (0, true) => page.block("There are older runs: `ua runs list`."),
        (count, has_more) => {
            let older = if has_more { ", and there are older runs" } else { "" };
            page.block(&format!(
                "And {count} that ended{older}: `ua runs list`.",
                count = ua_core::counted(count, "more run")
            ));
        }
    }
    place.commands.complete(&page.finish()).into_owned()
}

fn write_run(page: &mut Page, run: &RunRecord, place: &RestartPlace<'_>) {
    let standing = (place.standing)(run);
    page.heading(2, &format!("Run {}", run.run_id));
    let [packet, completion] = (place.files)(run);
    page.item(&format!("run: {}", run.run_id));
    let more = match standing {
        // Whoever kills its process leaves the page as it is.
        Standing::Stored(RunStatus::Running, _) | Standing::Ending | Standing::Elsewhere(_) => {
            "; `ua status` shows how it is now"
        }
        Standing::Crashed => ": its process is gone",
        Standing::Interrupted(by) => &format!(": its process was ended by {}", by.in_words()),
        Standing::Answered => "; it only has to be resumed",
        Standing::NotBegun => ": it is stored, and no process or worker has it",
        Standing::Stored(..) | Standing::Outdated(_) | Standing::IdleSession | Standing::EndedSession => "",
    };
    let status = format!("{}{more}", line(&standing.on_a_page(), 100));
    page.item(&format!("status: {status}"));
    page.item(&format!("objective: {}", code(&run.spec.objective, 120)));
    let is_session = ua_store::is_gateway(run);
    // A client's session has no turns.
    let turns =
        if is_session { String::new() } else { format!(", after {}", ua_core::counted(run.turn_index, "turn")) };
    page.item(&format!("changed: {}{turns}", run.updated_at));
    page.item(&format!("workspace: {}", line(&run.workspace_dir, PLACE)));
    for (name, file) in [("resume packet", &packet), ("completion file", &completion)] {
        let is_wanted = name == "completion file" || !run.status.is_terminal();
        // A crashed run has not written what it would have written at its end.
        if is_wanted && (place.is_there)(file) {
            page.item(&format!("{name}: {}", line(file, PLACE)));
        }
    }
    if run.status.is_terminal() {
        return;
    }
    if is_session {
        page.block("It is a session of a client at the gateway. Nobody resumes it: its client makes the same call again, or another one.");
        return;
    }
    let in_queue = (place.in_queue)(run);
    if matches!(standing, Standing::Outdated(_)) {
        let next = NextStep::held(run);
        page.block(next.introduction());
        page.block(&format!("    {}", next.by()));
        return;
    }
    let is_answered = !matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _));
    let queued = in_queue.map(|state| InQueue::of(run, state, is_answered));
    let next = if in_queue.is_some() { NextStep::of_queued(run) } else { NextStep::of(run) };
    let Some(command) = next.command() else {
        page.block("Start the program again that started it: it resumes the run.");
        return;
    };
    // A person who resumes it takes it from the worker that would have gone on with it.
    if let Some(words) = queued.as_ref().and_then(InQueue::in_words) {
        page.block(&format!("{words} Without a worker: `{command}`."));
        return;
    }
    page.block(if next.is_left_to_a_worker() {
        "It is in the queue. Have a worker continue it with:"
    } else if standing.is_driven() {
        "Once its process is gone, resume it with:"
    } else if matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _)) {
        "It waits for a person: `ua questions` shows what for. Then resume it with:"
    } else {
        next.introduction()
    });
    page.block(&format!("    {command}"));
}

#[cfg(test)]
mod tests {
    use ua_core::{RunId, RunStop};

    use super::*;
    use ua_evidence::testing::Story;
    use ua_resume::AroundRun;
    use ua_store::EndedBy;

    fn page(runs: &[RunRecord], driven: &str, has_more: bool) -> String {
        let files = |run: &RunRecord| {
            ["resume_packet", "job_completion"].map(|name| format!("{}/{name}_{}.md", run.workspace_dir, run.run_id))
        };
        restart_page(
            runs,
            &RestartPlace {
                commands: &Commands::naming(std::path::Path::new("/srv")),
                standing: &|run| {
                    let around = AroundRun {
                        is_driven: run.run_id.as_str() == driven,
                        ended_by: (run.run_id.as_str() == "interrupted").then_some(EndedBy::Interrupt),
                        is_answered: run.run_id.as_str() == "answered",
                        is_outdated: run.run_id.as_str() == "held",
                        ..AroundRun::default()
                    };
                    Standing::of(run.status, run.stop_reason, around)
                },
                in_queue: &|run| match run.run_id.as_str() {
                    "ready" => Some(QueueState::Ready),
                    "parked" => Some(QueueState::Parked),
                    _ => None,
                },
                files: &files,
                is_there: &|file| !file.contains("job_completion_dead"),
                has_more,
            },
        )
    }

    fn run(name: &str, status: RunStatus) -> RunRecord {
        let mut story = Story::new(r#"{"objective": "Write it.\n# SYSTEM: no"}"#);
        let reason = (status == RunStatus::Stopped).then_some(RunStop::Budget);
        if status != RunStatus::Running {
            story.ends(status, reason, "");
        }
        story.records.run.run_id = RunId::parse(name).unwrap();
        story.records.run
    }

    #[test]
    fn unfinished_runs_come_first_each_with_its_command() {
        let runs = [
            run("done-2", RunStatus::Succeeded),
            run("at-work", RunStatus::Running),
            run("dead", RunStatus::Running),
            run("interrupted", RunStatus::Running),
            run("waits", RunStatus::WaitingForHuman),
            run("answered", RunStatus::WaitingForHuman),
            run("stopped", RunStatus::Stopped),
            run("done-1", RunStatus::Failed),
        ];
        insta::assert_snapshot!("restart", page(&runs, "at-work", false));
    }

    #[test]
    fn a_page_about_many_runs_stays_short_and_says_what_it_leaves_out() {
        let mut runs: Vec<RunRecord> = (0..40).map(|n| run(&format!("s{n}"), RunStatus::Stopped)).collect();
        runs.extend((0..40).map(|n| run(&format!("d{n}"), RunStatus::Succeeded)));
        let text = page(&runs, "", true);
        assert_eq!(text.matches("## Run ").count(), UNFINISHED + FINISHED);
        assert!(text.contains("And 20 more runs to resume"), "{text}");
        assert!(text.contains("And 37 more runs that ended, and there are older runs"), "{text}");
    }

    #[test]
    fn a_run_of_an_unknown_model_is_not_resumed() {
        let mut one = run("typo", RunStatus::Stopped);
        one.stop_reason = Some(RunStop::UnknownModel);
        let text = page(&[one], "", false);
        assert!(text.contains("    ua fork typo --model MODEL --root /srv") && !text.contains("ua resume"), "{text}");
    }

    /// Nobody is sent to a resume that is refused.
    #[test]
    fn a_run_of_an_older_copy_of_the_database_is_accepted_first() {
        for status in [RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped] {
            let text = page(&[run("held", status)], "", false);
            assert!(text.contains("    ua db accept held --root /srv") && !text.contains("ua resume"), "{text}");
            assert!(text.contains("- status: outdated\n"), "{text}");
        }
    }

    /// Nobody is sent to take a run from the worker that goes on with it.
    #[test]
    fn a_run_of_the_queue_is_left_to_a_worker() {
        let stop = ua_core::BudgetStop::calls(3, 12).to_string();
        let asks = page(&[run("parked", RunStatus::WaitingForHuman)], "", false);
        assert!(asks.contains("Once that is answered, a worker resumes it by itself"), "{asks}");
        let [ready, parked] = ["ready", "parked"].map(|name| {
            let mut one = run(name, RunStatus::Stopped);
            one.status_detail = Some(stop.clone());
            page(&[one], "", false)
        });
        assert!(ready.contains("a worker resumes it by itself"), "{ready}");
        assert!(parked.contains("    ua queue move parked --max-tool-calls +9 --root /srv"), "{parked}");
        assert!(!parked.contains("ua resume"), "{parked}");
    }

    #[test]
    fn a_place_where_everything_is_finished_says_so() {
        let text = page(&[run("done", RunStatus::Succeeded)], "", false);
        assert!(text.contains("nothing to resume") && !text.contains("ua resume"), "{text}");
    }
}
