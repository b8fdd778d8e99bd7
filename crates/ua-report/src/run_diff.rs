//! Two runs side by side: what their jobs share, where they part, and what each did from there (`ua runs diff`).
//!
//! Durable runner, current state (fork). A pure function of stored records and of the files found.

use serde::Serialize;
use ua_core::{ArgsHash, CallId, CallStatus, Role, RunId, RunStatus, RunStop, Sha256};
use ua_store::{CallRecord, RunRecords};

use ua_evidence::artifact::Artifact;
use ua_evidence::call_line::shown_arguments;
use ua_evidence::quote::{clean, cut};
use ua_evidence::verdict::Verdict;
use ua_resume::job_diff::{JobChange, job_changes};
use ua_resume::usage::UsageSummary;

/// How much of arguments and text is shown.
const SHOWN: usize = 300;

/// Two runs side by side; every pair is in the order in which they were named.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDiff {
    /// The runs.
    pub runs: [RunSide; 2],
    /// The run whose turn is the last one both have in common; `None` when they have none.
    pub common_ancestor: Option<RunId>,
    /// How many first turns they have in common.
    pub shared_turns: u32,
    /// What is different in their jobs.
    pub job: Vec<JobChange>,
    /// The turns behind that, by number.
    pub turns: Vec<TurnDiff>,
    /// The files of both workspaces, by path.
    pub files: Vec<FileDiff>,
}

/// How one of the runs stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSide {
    /// The run.
    pub run_id: RunId,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it is stopped.
    pub stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub status_detail: Option<String>,
    /// The model's last words.
    pub final_output: Option<String>,
    /// Its committed turns, shared ones included.
    pub turns: u32,
    /// Tool calls of its own.
    pub tool_calls: u32,
    /// Milliseconds in which a process held it.
    pub held_millis: u64,
    /// What its own requests took.
    pub usage: UsageSummary,
}

/// One turn of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnDiff {
    /// Its number.
    pub turn: u32,
    /// Whether both said the same and called the same with the same outcome.
    pub same: bool,
    /// What each did in it; `None` when it has no such turn.
    pub sides: [Option<TurnSide>; 2],
}

/// What a run did in a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnSide {
    /// What the model said; foreign text.
    pub text: String,
    /// Whether the turn is committed.
    pub committed: bool,
    /// What it called, in order.
    pub calls: Vec<CallSide>,
}

/// A call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallSide {
    /// The call.
    pub call_id: CallId,
    /// The tool, as the model named it; foreign text.
    pub tool: String,
    /// Its arguments, cut; foreign text.
    pub arguments: String,
    /// Digest of its canonical arguments.
    pub args_hash: ArgsHash,
    /// Where it stands.
    pub status: CallStatus,
    /// Whether its effect happened.
    pub verdict: Verdict,
}

/// A file of either workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// Its path.
    pub path: String,
    /// Whether both have it with the same content.
    pub same: bool,
    /// The digest in each; `None` where it is not.
    pub sha256: [Option<Sha256>; 2],
}

impl RunDiff {
    /// Compares two runs; `files` are those of their workspaces.
    pub fn new(runs: [&RunRecords; 2], files: [&[Artifact]; 2]) -> Self {
        let [one, two] = runs;
        let (shared_turns, common_ancestor) = shared(one, two);
        let turns = runs.iter().map(|run| last_turn(run)).max().unwrap_or(0);
        let turn = |number: u32| {
            let sides = runs.map(|run| side(run, number));
            let same = match &sides {
                [Some(one), Some(two)] => one.is_like(two),
                [Some(_) | None, Some(_) | None] => false,
            };
            TurnDiff { turn: number, same, sides }
        };
        Self {
            runs: runs.map(RunSide::of),
            common_ancestor,
            shared_turns,
            job: job_changes(&one.run.spec, &two.run.spec),
            turns: (shared_turns + 1..=turns).map(turn).collect(),
            files: compare_files(files),
        }
    }
}

impl RunSide {
    fn of(records: &RunRecords) -> Self {
        let run = &records.run;
        Self {
            run_id: run.run_id.clone(),
            status: run.status,
            stop_reason: run.stop_reason,
            status_detail: run.status_detail.as_deref().map(clean),
            final_output: run.final_output.as_deref().map(clean),
            turns: run.turn_index,
            tool_calls: u32::try_from(records.calls.len()).unwrap_or(u32::MAX),
            held_millis: run.held_millis,
            usage: UsageSummary::of(records),
        }
    }
}

impl TurnSide {
    fn is_like(&self, other: &Self) -> bool {
        let shape = |side: &Self| -> Vec<_> {
            side.calls.iter().map(|call| (call.tool.clone(), call.args_hash, call.status, call.verdict)).collect()
        };
        self.text == other.text && shape(self) == shape(other)
    }
}

/// How many first turns are the very same rows, and which run made the last of them.
fn shared(one: &RunRecords, two: &RunRecords) -> (u32, Option<RunId>) {
    let owners = |records: &RunRecords| -> Vec<RunId> {
        let turns = records.lineage.turns.iter().chain(&records.turns);
        turns.filter(|turn| turn.committed_at.is_some()).map(|turn| turn.run_id.clone()).collect()
    };
    let (ours, theirs) = (owners(one), owners(two));
    let count = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    (u32::try_from(count).unwrap_or(u32::MAX), count.checked_sub(1).and_then(|last| ours.get(last).cloned()))
}

fn last_turn(records: &RunRecords) -> u32 {
    records.turns.last().map_or(records.run.turn_index, |turn| turn.turn)
}

fn side(records: &RunRecords, number: u32) -> Option<TurnSide> {
    let mut turns = records.lineage.turns.iter().chain(&records.turns);
    let turn = turns.find(|turn| turn.turn == number)?;
    let mut messages = records.messages.iter().filter(|message| message.turn == number);
    let reply = messages.find(|message| message.message.role == Role::Assistant);
    let calls = records.lineage.calls.iter().chain(&records.calls);
    Some(TurnSide {
        text: reply.map(|reply| cut(&clean(reply.message.text().trim()), SHOWN)).unwrap_or_default(),
        committed: turn.committed_at.is_some(),
        calls: calls.filter(|call| call.position.turn == number).map(CallSide::of).collect(),
    })
}

impl CallSide {
    fn of(call: &CallRecord) -> Self {
        Self {
            call_id: call.call_id.clone(),
            tool: clean(&call.name.raw),
            arguments: shown_arguments(call, SHOWN),
            args_hash: call.args_hash,
            status: call.status,
            verdict: Verdict::of(call),
        }
    }
}

/// The runner's own account of a run, which names the run and is never the same in two.
const OF_EACH_RUN: &str = "transcript.md";

fn compare_files(files: [&[Artifact]; 2]) -> Vec<FileDiff> {
    let all = files.iter().flat_map(|f| f.iter().map(|file| file.path.as_str()));
    let paths: std::collections::BTreeSet<&str> = all.filter(|path| *path != OF_EACH_RUN).collect();
    let digest = |files: &[Artifact], path: &str| files.iter().find(|file| file.path == path).map(|file| file.sha256);
    let compared = paths.into_iter().map(|path| {
        let sha256 = files.map(|files| digest(files, path));
        FileDiff { path: path.to_owned(), same: sha256[0] == sha256[1], sha256 }
    });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ua_evidence::testing::{Story, artifact, read_policy};

    /// A run of two turns, and what a fork of it behind the first would share.
    fn parent_and_fork() -> (RunRecords, RunRecords) {
        let mut story = Story::new(r#"{"objective": "Look."}"#);
        for n in 0..2 {
            let ids = story.asks("I look.", &[("crawl", json!({"n": n}), read_policy())]);
            story.starts(&ids[0]);
            story.succeeds(&ids[0], "seen", None);
            story.commits();
        }
        let parent = story.records;
        let mut fork = parent.clone();
        fork.run.run_id = RunId::parse("run_fork").unwrap();
        std::sync::Arc::make_mut(&mut fork.run.spec).objective = "Look again.".to_owned();
        let behind = fork.turns.split_off(1);
        fork.lineage.turns = std::mem::replace(&mut fork.turns, behind);
        let behind = fork.calls.split_off(1);
        fork.lineage.calls = std::mem::replace(&mut fork.calls, behind);
        fork.turns[0].run_id = fork.run.run_id.clone();
        (parent, fork)
    }

    #[test]
    fn runs_are_compared_behind_the_turns_they_share() {
        let (parent, mut fork) = parent_and_fork();
        let files =
            [vec![artifact("a.md"), artifact("b.md")], vec![artifact("a.md"), artifact("c.md"), artifact(OF_EACH_RUN)]];
        let diff = RunDiff::new([&parent, &fork], [&files[0], &files[1]]);
        assert_eq!((diff.shared_turns, &diff.common_ancestor), (1, &Some(parent.run.run_id.clone())));
        assert_eq!(diff.job.iter().map(|change| change.field.as_str()).collect::<Vec<_>>(), ["objective"]);
        assert_eq!(diff.turns.iter().map(|turn| (turn.turn, turn.same)).collect::<Vec<_>>(), [(2, true)]);
        let same: Vec<(&str, bool)> = diff.files.iter().map(|file| (file.path.as_str(), file.same)).collect();
        assert_eq!(same, [("a.md", true), ("b.md", false), ("c.md", false)]);

        fork.calls[0].args_hash = ua_core::sha256("other");
        let turns = RunDiff::new([&parent, &fork], [&[], &[]]).turns;
        assert!(!turns[0].same);
        fork.turns.clear();
        fork.run.turn_index = 1;
        let turns = RunDiff::new([&parent, &fork], [&[], &[]]).turns;
        assert!(turns[0].sides[0].is_some() && turns[0].sides[1].is_none() && !turns[0].same);
    }

    #[test]
    fn runs_that_are_no_kin_share_no_turn() {
        let (parent, mut other) = parent_and_fork();
        for turn in &mut other.lineage.turns {
            turn.run_id = other.run.run_id.clone();
        }
        let diff = RunDiff::new([&parent, &other], [&[], &[]]);
        assert_eq!((diff.shared_turns, diff.common_ancestor, diff.turns.len()), (0, None, 2));
    }
}
