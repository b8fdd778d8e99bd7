//! The processes that drove a run: when each took it, what was last seen of it, and how it ended.
//!
//! Spec: Durable Jobs v1 spec §9.2 (resume); Durable runner, current state §4. What is stored is when each process took the run, when it
//! left it or was last known to be alive, and whether it died. Earlier versions stored less: the epoch of each turn and attempt and the
//! instant of each take-over from a dead process. For their processes everything else is read off the instants of the rows, so the start
//! of a process that took the run in good order is that of its first row.

use serde::Serialize;
use ua_core::{RunStatus, Timestamp, Trace};
use ua_store::rules::last_sign;
use ua_store::{CheckpointKind, EndedBy, ProcessSpan, RequestStatus, RunRecord, RunRecords};

use crate::standing::Standing;

/// How many take-overs from dead processes a run remembers.
const REMEMBERED_KILLS: usize = 32;

/// How a process's work on a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifeEnd {
    /// It said so: the run succeeded, failed, stopped or waits.
    InOrder,
    /// It died, and a later process found the run still `running`.
    Killed,
    /// So did what a person ended at once by a second signal, or an error did.
    Interrupted,
    /// Its program dropped the run's future and lived on: a later run of the step is of the same process.
    Dropped,
    /// The run is `running`: the process is at work, or has died and nobody has taken over yet.
    Open,
    /// The run was taken over more often than it remembers.
    NotRemembered,
}

/// One process's work on a run, from when it took the run until it left it. One that asks somebody at its terminal has several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Life {
    /// The number of its ownership, from 1.
    pub epoch: u64,
    /// The number of the process among those that drove the run, from 1.
    pub process: u64,
    /// Its trace.
    pub trace: Option<Trace>,
    /// When it took the run.
    pub started_at: Timestamp,
    /// When it left the run; of one that did not leave it in order its last sign of life, for when it ended nobody wrote down.
    pub last_seen_at: Timestamp,
    /// How it ended.
    pub end: LifeEnd,
    /// By what it was ended, if it was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
}

impl Life {
    /// What came between its work and its end, for people: `was killed`. `None` of one that left the run in order, holds it, or of which nobody
    /// knows.
    pub fn broken_off(&self) -> Option<String> {
        match self.end {
            LifeEnd::Killed => Some("was killed".to_owned()),
            LifeEnd::Interrupted => Some(format!("was ended by {}", by_what(self.ended_by))),
            LifeEnd::Dropped => Some("dropped the run".to_owned()),
            LifeEnd::InOrder | LifeEnd::Open | LifeEnd::NotRemembered => None,
        }
    }

    /// The same as a clause about the process, with its last sign of life, `seen` in words. When it ended nobody has written down: it was that late or
    /// later, and while it waits for nothing it says every second that it is alive.
    pub fn broken_off_after(&self, seen: impl std::fmt::Display) -> Option<String> {
        Some(format!("process {} {}, last seen at {seen}", self.process, self.broken_off()?))
    }
}

/// By what a process was ended at once, for people.
pub(crate) fn by_what(signal: Option<EndedBy>) -> &'static str {
    signal.map_or("a second signal", EndedBy::in_words)
}

/// The processes that drove a run, oldest first; none when nobody has taken it.
pub fn lives(records: &RunRecords) -> Vec<Life> {
    let stored = &records.run.processes;
    let is_all_stored = u64::try_from(stored.len()).is_ok_and(|count| count == records.run.lease_epoch);
    let mut found = if is_all_stored { Vec::new() } else { lives_by_rows(records) };
    found.retain(|life| stored.iter().all(|process| process.epoch != life.epoch));
    found.extend(stored.iter().map(|process| life_of(records, process)));
    found.sort_by_key(|life| life.epoch);
    found
}

/// The same for whoever knows where the run stands: the last process of a run that was left so was killed, or ended at once, though nobody has
/// taken over yet.
pub fn lives_beside(records: &RunRecords, standing: &Standing) -> Vec<Life> {
    let mut found = lives(records);
    // Of a process that went on beyond what is stored, nobody has stored how it ended.
    let is_known = !matches!(standing, Standing::Outdated(_));
    if let Some(last) = found.last_mut().filter(|last| standing.is_left() && is_known && last.end == LifeEnd::Open) {
        (last.end, last.ended_by) = match standing {
            Standing::Interrupted(by) => (LifeEnd::Interrupted, Some(*by)),
            Standing::Stored(..)
            | Standing::Ending
            | Standing::Elsewhere(_)
            | Standing::Crashed
            | Standing::Answered
            | Standing::NotBegun
            | Standing::Outdated(_)
            | Standing::IdleSession
            | Standing::EndedSession => (LifeEnd::Killed, None),
        };
    }
    found
}

/// How long processes were at work on a run, in milliseconds. Of one that has not left it in order nobody has added up the time yet.
pub fn time_at_work(records: &RunRecords, standing: &Standing) -> u64 {
    let is_open = standing.is_left() || standing.is_driven();
    let last = lives_beside(records, standing).pop().filter(|_| is_open);
    let since = last.map_or(0, |last| {
        // What it did before its last turn was committed is counted.
        let from = records.run.held_from.unwrap_or(last.started_at);
        last_sign(&records.run, instants(records)).unwrap_or(last.last_seen_at).since(from).as_millis()
    });
    records.run.held_millis.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
}

/// How many processes drove a run.
pub fn drivers(records: &RunRecords) -> usize {
    lives(records).last().map_or(0, |last| usize::try_from(last.process).unwrap_or(usize::MAX))
}

/// The number of the process that owned a run in this epoch, among those that drove it, from 1. One that asks somebody at its terminal takes
/// the run anew after each answer, and is one process all the same.
pub fn process_number(run: &RunRecord, epoch: u64) -> u64 {
    let of = |epoch: u64| {
        let stored = run.processes.iter().find(|stored| stored.epoch == epoch);
        stored.and_then(|stored| stored.process.as_deref())
    };
    let again = run.processes.iter().filter(|stored| stored.epoch <= epoch && stored.epoch > 1);
    let again = again.filter(|stored| stored.process.is_some() && stored.process.as_deref() == of(stored.epoch - 1));
    epoch.saturating_sub(u64::try_from(again.count()).unwrap_or(0))
}

/// The processes that died while they drove a run. What a person or an error ended at once is none of them.
pub fn kills(records: &RunRecords) -> usize {
    lives(records).iter().filter(|life| life.end == LifeEnd::Killed).count()
}

/// How a process ended that took the run at some time and has left it since, as far as its row says.
pub fn end_of(process: &ProcessSpan) -> LifeEnd {
    match (process.died, process.ended_by) {
        (true, Some(_)) => LifeEnd::Interrupted,
        (true, None) => LifeEnd::Killed,
        (false, _) => LifeEnd::InOrder,
    }
}

/// One whose times are stored.
fn life_of(records: &RunRecords, process: &ProcessSpan) -> Life {
    let run = &records.run;
    let (last_seen_at, end) = if let Some(at) = process.left_at {
        (at, if process.was_dropped(&run.processes) { LifeEnd::Dropped } else { end_of(process) })
    } else {
        let seen = last_sign(run, instants(records));
        (seen.map_or(process.taken_at, |seen| seen.max(process.taken_at)), LifeEnd::Open)
    };
    Life {
        epoch: process.epoch,
        process: process_number(run, process.epoch),
        trace: trace_of(records, process.epoch),
        started_at: process.taken_at,
        last_seen_at,
        end,
        ended_by: process.ended_by,
    }
}

fn trace_of(records: &RunRecords, epoch: u64) -> Option<Trace> {
    usize::try_from(epoch.checked_sub(1)?).ok().and_then(|index| records.run.traces.get(index)).cloned()
}

/// The same, read off the rows.
fn lives_by_rows(records: &RunRecords) -> Vec<Life> {
    let run = &records.run;
    let epochs = 1..=run.lease_epoch;
    let spans: Vec<Option<(Timestamp, Timestamp)>> = epochs.clone().map(|epoch| tagged_span(records, epoch)).collect();
    let mut kills = run.unclean_ends.iter().copied().peekable();
    let forgets = run.unclean_ends.len() >= REMEMBERED_KILLS;
    let mut starts: Vec<(Timestamp, LifeEnd)> = Vec::new();
    let mut seen_until = run.created_at;
    for (index, span) in spans.iter().enumerate() {
        let before_end = seen_until;
        let first_after = spans[index..].iter().flatten().map(|(first, _)| *first).next();
        if index == 0 {
            starts.push((run.created_at, LifeEnd::Open));
        } else if let Some(killed_at) = kills.next_if(|at| first_after.is_none_or(|first| *at <= first)) {
            starts.push((killed_at, LifeEnd::Killed));
        } else {
            let resumed_at = records.checkpoints.iter().filter(|c| c.kind == CheckpointKind::PostReplay);
            let resumed_at = resumed_at.map(|checkpoint| checkpoint.created_at).filter(|at| *at > before_end);
            let start = resumed_at.chain(first_after).min().unwrap_or(run.updated_at).max(before_end);
            let is_forgotten = forgets && run.unclean_ends.first().is_some_and(|oldest| start < *oldest);
            starts.push((start, if is_forgotten { LifeEnd::NotRemembered } else { LifeEnd::InOrder }));
        }
        if let Some((_, last)) = span {
            seen_until = seen_until.max(*last);
        }
        seen_until = seen_until.max(starts[index].0);
    }
    let written = instants(records);
    epochs
        .zip(starts.iter())
        .enumerate()
        .map(|(index, (epoch, (started_at, _)))| {
            let next = starts.get(index + 1);
            let seen = written.iter().copied().filter(|at| at >= started_at && next.is_none_or(|next| *at < next.0));
            let last_seen_at = match (next, run.status) {
                // The run's end is a write of its last process, and the last one.
                (None, RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled) => run.updated_at,
                (None | Some(_), _) => seen.max().unwrap_or(*started_at),
            };
            let end = match next {
                Some((_, how_the_one_before_ended)) => *how_the_one_before_ended,
                None if run.status == RunStatus::Running => LifeEnd::Open,
                None => LifeEnd::InOrder,
            };
            Life {
                epoch,
                process: process_number(run, epoch),
                trace: trace_of(records, epoch),
                started_at: *started_at,
                last_seen_at: last_seen_at.max(*started_at),
                end,
                ended_by: None,
            }
        })
        .collect()
}

/// The first and the last row that carry an epoch.
fn tagged_span(records: &RunRecords, epoch: u64) -> Option<(Timestamp, Timestamp)> {
    let turns = records.turns.iter().filter(|turn| turn.epoch == epoch).map(|turn| turn.recorded_at);
    let attempts = records.attempts.iter().filter(|attempt| attempt.epoch == epoch).map(|attempt| attempt.started_at);
    turns.chain(attempts).fold(None, |span, at| match span {
        None => Some((at, at)),
        Some((first, last)) => Some((first.min(at), last.max(at))),
    })
}

/// Every instant at which the process that owned the run wrote something about what it did itself. What a later one wrote
/// about its predecessor's loose ends is not among them.
fn instants(records: &RunRecords) -> Vec<Timestamp> {
    let turns = records.turns.iter().flat_map(|turn| [Some(turn.recorded_at), turn.committed_at]).flatten();
    let attempts = records.attempts.iter().flat_map(|attempt| {
        let ended = attempt.ended_at.filter(|_| !attempt.was_lost());
        [Some(attempt.started_at), ended]
    });
    let requests = records.requests.iter().flat_map(|request| {
        let closed =
            request.closed_at.filter(|_| !matches!(request.status, RequestStatus::Baseline | RequestStatus::Partial));
        [Some(request.reserved_at), closed]
    });
    let checkpoints = records.checkpoints.iter().map(|checkpoint| checkpoint.created_at);
    let questions = records.questions.iter().map(|question| question.created_at);
    turns.chain(attempts.flatten()).chain(requests.flatten()).chain(checkpoints).chain(questions).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::RunStop;

    use super::*;
    use ua_evidence::testing::{Story, mail_policy, read_policy};

    fn ends(story: &Story) -> Vec<LifeEnd> {
        lives(&story.records).into_iter().map(|life| life.end).collect()
    }

    #[test]
    fn a_run_that_was_killed_twice_and_stopped_once_had_four_processes() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let read = story.asks("", &[("crawl", json!({}), read_policy())])[0].clone();
        story.starts(&read);
        assert_eq!(ends(&story), [LifeEnd::Open]);
        assert_eq!(lives_beside(&story.records, &Standing::Crashed)[0].end, LifeEnd::Killed);
        story.is_killed();
        story.loses(&read);
        story.starts(&read);
        story.succeeds(&read, "text", None);
        story.commits();
        story.ends(RunStatus::Stopped, Some(RunStop::Interrupt), "a signal");
        assert_eq!(ends(&story), [LifeEnd::Killed, LifeEnd::InOrder]);
        story.resumes();
        let send = story.asks("", &[("send_email", json!({}), mail_policy())])[0].clone();
        story.starts(&send);
        story.is_killed();
        story.loses(&send);
        story.questions(&send);
        assert_eq!(ends(&story), [LifeEnd::Killed, LifeEnd::InOrder, LifeEnd::Killed, LifeEnd::InOrder]);
        let found = lives(&story.records);
        assert!(found.iter().all(|life| life.trace.is_some() && life.started_at <= life.last_seen_at));
        assert!(found.windows(2).all(|pair| pair[0].last_seen_at < pair[1].started_at), "{found:?}");
        // What a resume writes about the lost attempt was not written by the process that lost it.
        assert_eq!(found[0].last_seen_at, story.records.attempts[0].started_at);
        assert_eq!(kills(&story.records), 2);
        // A run of an earlier version says the same of the same rows.
        story.records.run.processes.clear();
        assert_eq!(ends(&story), [LifeEnd::Killed, LifeEnd::InOrder, LifeEnd::Killed, LifeEnd::InOrder]);
        assert_eq!(lives(&story.records)[0].last_seen_at, story.records.attempts[0].started_at);
    }

    #[test]
    fn the_time_of_a_killed_process_is_counted_once_and_by_its_own_clock() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let read = story.asks("", &[("crawl", json!({}), read_policy())])[0].clone();
        story.starts(&read);
        let hour = std::time::Duration::from_hours(1);
        let run = &mut story.records.run;
        let taken_at = run.processes[0].taken_at;
        // Its last turn was committed an hour after it took the run.
        (run.held_millis, run.held_from) = (3_600_000, Some(taken_at.plus(hour)));
        run.seen_at = Some(taken_at.plus(hour).plus(std::time::Duration::from_secs(5)));
        assert_eq!(time_at_work(&story.records, &Standing::Crashed), 3_605_000);
        // A row was written when the clock was ahead.
        story.records.attempts[0].started_at = taken_at.plus(hour * 9);
        assert_eq!(time_at_work(&story.records, &Standing::Crashed), 3_605_000);
    }

    #[test]
    fn a_process_that_a_person_ended_at_once_is_no_kill() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.is_killed();
        story.is_ended_at_once(EndedBy::Interrupt);
        story.is_ended_at_once(EndedBy::Terminate);
        story.is_ended_at_once(EndedBy::Error);
        let ended = |life: &Life| life.broken_off();
        let said: Vec<Option<String>> = lives(&story.records).iter().map(ended).collect();
        let words = [
            Some("was killed"),
            Some("was ended by a second Ctrl-C"),
            Some("was ended by a second signal (SIGTERM)"),
            Some("was ended by an error"),
            None,
        ];
        assert_eq!(said, words.map(|words| words.map(str::to_owned)));
        assert_eq!(kills(&story.records), 1);
        let standing = Standing::Interrupted(EndedBy::Interrupt);
        let last = lives_beside(&story.records, &standing).pop().unwrap();
        assert_eq!((last.end, ended(&last).as_deref()), (LifeEnd::Interrupted, Some("was ended by a second Ctrl-C")));
        assert_eq!(
            crate::processes_words(&story.records),
            "5 processes, 1 of them killed, 1 ended by a second Ctrl-C, 1 ended by a second signal (SIGTERM), 1 ended by an error"
        );
    }

    #[test]
    fn processes_that_found_an_open_question_lasted_from_when_they_took_the_run_until_they_left_it() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let send = story.asks("", &[("send_email", json!({}), mail_policy())])[0].clone();
        story.starts(&send);
        story.loses(&send);
        story.questions(&send);
        story.ends(RunStatus::WaitingForHuman, None, "a question");
        let first = lives(&story.records);
        for _ in 0..3 {
            story.resumes();
            story.ends(RunStatus::WaitingForHuman, None, "a question");
        }
        let found = lives(&story.records);
        assert_eq!(found[..1], first, "what a later process does is not the first one's time");
        assert!(
            found.iter().all(|life| life.end == LifeEnd::InOrder && life.started_at < life.last_seen_at),
            "{found:?}"
        );
        assert!(found.windows(2).all(|pair| pair[0].last_seen_at < pair[1].started_at), "{found:?}");
    }

    #[test]
    fn a_process_that_took_the_run_again_after_each_answer_is_one() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        for _ in 0..3 {
            story.ends(RunStatus::WaitingForHuman, None, "a question");
            story.resumes();
        }
        assert_eq!(drivers(&story.records), 4, "rows of earlier versions do not say whose they are");
        for (process, name) in story.records.run.processes.iter_mut().zip(["1@7", "1@7", "1@7", "2@9"]) {
            process.process = Some(name.to_owned());
        }
        assert_eq!((lives(&story.records).len(), drivers(&story.records)), (4, 2));
        let numbers: Vec<u64> = lives(&story.records).iter().map(|life| life.process).collect();
        assert_eq!(numbers, [1, 1, 1, 2]);
    }

    #[test]
    fn a_run_that_nobody_took_had_no_process() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.records.run.lease_epoch = 0;
        story.records.run.processes.clear();
        assert!(lives(&story.records).is_empty());
    }

    #[test]
    fn processes_that_died_before_they_wrote_anything_are_counted() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        for _ in 0..3 {
            story.is_killed();
        }
        assert_eq!(ends(&story), [LifeEnd::Killed, LifeEnd::Killed, LifeEnd::Killed, LifeEnd::Open]);
    }
}
