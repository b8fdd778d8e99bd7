//! `ua runs diff`: two runs side by side.

use ua_evidence::Verdict;
use ua_host::home::Home;
use ua_resume::{status_detail, status_words};
use ua_runner::{Artifact, CallSide, RunDiff, RunSide, TurnSide};
use ua_store::{RunRecords, RunStore as _};

use crate::error::{HostError, OK};
use crate::find;
use crate::output::{line, place, print, print_json, print_table};

pub(crate) async fn run(home: &Home, names: [&str; 2], all: bool, json: bool) -> Result<u8, HostError> {
    let store = home.open_read_only()?;
    let mut runs = Vec::new();
    for name in names {
        let run = find::run(&store, name).await?;
        runs.push(store.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?);
    }
    let [one, two] = runs.as_slice() else { return Err(HostError::usage("name two runs")) };
    let files = [files_of(home, one), files_of(home, two)];
    let diff = RunDiff::new([one, two], [&files[0], &files[1]]);
    if json {
        print_json(&diff)?;
    } else {
        show(&diff, all)?;
    }
    Ok(OK)
}

/// The files of a run's workspace; none when it is gone.
fn files_of(home: &Home, records: &RunRecords) -> Vec<Artifact> {
    home.open_workspace(&records.run).and_then(|folder| folder.artifacts()).unwrap_or_default()
}

fn show(diff: &RunDiff, all: bool) -> Result<(), HostError> {
    let [one, two] = &diff.runs;
    let row = |name: &str, value: &dyn Fn(&RunSide) -> String| vec![name.to_owned(), value(one), value(two)];
    let rows = vec![
        row("run", &|run| crate::ids::short(run.run_id.as_str()).to_owned()),
        row("status", &status),
        row("turns", &|run| run.turns.to_string()),
        row("own calls", &|run| run.tool_calls.to_string()),
        row("own tokens", &|run| run.usage.total_tokens.to_string()),
        row("own cost", &|run| run.usage.cost_in_words()),
        row("active", &at_work),
        row("output", &|run| run.final_output.as_deref().map_or_else(|| "none".to_owned(), |text| line(text, 300))),
    ];
    print_table(&crate::listings::SIDES, rows)?;
    print(&match &diff.common_ancestor {
        Some(run) => format!(
            "\nShared: the first {} of run {}\n",
            ua_core::counted(diff.shared_turns, "turn"),
            crate::ids::short(run.as_str())
        ),
        None => {
            "\nThe runs share no turns: neither is a fork of the other, and they have no common parent\n".to_owned()
        }
    })?;
    if !diff.job.is_empty() {
        print("\nWhat was asked for differs (A → B)\n")?;
    }
    for change in &diff.job {
        print(format!("  {}\n", crate::output::plain(&change.to_string())))?;
    }
    let turns: Vec<_> = diff.turns.iter().filter(|turn| all || !turn.same).collect();
    if !turns.is_empty() {
        print("\n")?;
        let rows = turns.iter().map(|turn| {
            let name = format!("{}{}", turn.turn, if turn.same { " =" } else { "" });
            vec![name, side(turn.sides[0].as_ref()), side(turn.sides[1].as_ref())]
        });
        print_table(&crate::listings::TURNS_OF_TWO, rows.collect())?;
    }
    let same_turns = diff.turns.iter().filter(|turn| turn.same).count();
    if !all && same_turns > 0 {
        let (is, them) = if same_turns == 1 { ("is", "it") } else { ("are", "them") };
        let turns = ua_core::counted(same_turns, "turn");
        print(format!("\n{turns} {is} the same in both; --all shows {them}\n"))?;
    }
    let files: Vec<_> = diff.files.iter().filter(|file| all || !file.same).collect();
    if !files.is_empty() {
        print("\n")?;
        let digest = |sha256: Option<ua_core::Sha256>| {
            sha256.map_or_else(|| "-".to_owned(), |digest| digest.to_hex()[..10].to_owned())
        };
        let rows = files.iter().map(|file| vec![place(&file.path), digest(file.sha256[0]), digest(file.sha256[1])]);
        print_table(&crate::listings::FILES_OF_TWO, rows.collect())?;
    }
    Ok(())
}

/// How long processes drove a run; none drove one that was never taken.
fn at_work(run: &RunSide) -> String {
    match run.held_millis {
        0 => "none".to_owned(),
        millis => crate::moment::took(millis),
    }
}

fn status(run: &RunSide) -> String {
    let detail = status_detail(run.status, run.status_detail.as_deref());
    let detail = detail.map_or_else(String::new, |detail| format!(": {}", line(detail, 160)));
    format!("{}{detail}", status_words(run.status, run.stop_reason))
}

fn side(turn: Option<&TurnSide>) -> String {
    let Some(turn) = turn else { return "-".to_owned() };
    // What is first is what is left on a narrow terminal: two turns differ by what came of their calls more often than by their words.
    let mut lines: Vec<String> = turn.calls.iter().map(call).collect();
    if !turn.text.is_empty() {
        lines.push(line(&turn.text, 100));
    }
    if !turn.committed {
        lines.push("(not committed)".to_owned());
    }
    lines.join("\n")
}

fn call(call: &CallSide) -> String {
    let outcome = match call.verdict {
        Verdict::AnsweredByTwin => "not repeated",
        Verdict::MayHaveHappened if call.status == ua_core::CallStatus::FailedReported => ua_evidence::FAILED_PERHAPS,
        Verdict::Happened
        | Verdict::MayHaveHappened
        | Verdict::DidNotHappen
        | Verdict::TaskNotDone
        | Verdict::NotSent => call.status.in_words(),
    };
    let tool = call.tool.rsplit_once("__").map_or(call.tool.as_str(), |(_, tool)| tool);
    format!("{} · {outcome} · {}", line(tool, 60), line(&call.arguments, 80))
}
