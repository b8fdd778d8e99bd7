//! What a run that is driven waits for: its model provider, a tool server or the database that is away.
//!
//! The process that drives it says of each try that failed why it did, when the next one comes and for how long it has patience, to whoever
//! watches it and in `trace.jsonl` of the run's folder. Both go through the same `Waits`; whoever shows a run from another process reads the end
//! of that file ([`of_run`]). As long as nothing but further tries came after, that is what the run waits for. Nothing is decided by it.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use serde_json::Value;
use ua_core::{RunId, RunStatus, Timestamp};
use ua_dispatch::CallProgress;
use ua_runner::{RunEvent, RunLock, Workspace};
use ua_store::{RunRecord, Store as _};

use crate::database::Database;
use crate::home::Home;
use crate::text::line;
use crate::tree;

/// So much of the end of a log is read: far more than what is said in half an hour of tries.
const READ: u64 = 64 * 1024;
/// The longest reason that is shown, in characters.
const REASON: usize = 160;

/// Who does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The provider of the model.
    Provider,
    /// A tool server, which the reason names.
    ToolServer,
    /// The database, which does not take what the run writes.
    Database,
}

/// A wait that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideWait {
    /// For whom.
    pub on: Awaited,
    /// When the first of the tries failed.
    pub since: Timestamp,
    /// When the patience is over, or the run's time; `None` where nobody says it.
    pub until: Option<Timestamp>,
    /// Why the last try failed.
    pub why: String,
    /// How many failed; 0 of the database, which nobody counts.
    pub tries: u32,
}

impl OutsideWait {
    /// The same behind the name of a run: `waiting for its provider since …`.
    pub fn in_words(&self) -> String {
        let on = match self.on {
            Awaited::Provider => "its provider",
            Awaited::ToolServer => "a tool server",
            Awaited::Database => "the database",
        };
        let (since, why) = (self.since, line(&self.why, REASON));
        let until = self.until.map_or_else(String::new, |until| format!(", until {until} at the latest"));
        format!("waiting for {on} since {since} ({why}){until}")
    }
}

/// One thing that happened, as far as a wait is concerned.
enum Step {
    /// A try failed, and another one follows.
    Failed { on: Awaited, at: Timestamp, attempt: u32, why: String, until: Option<Timestamp> },
    /// What belongs to a try.
    OfATry,
    /// What is told of answers, which come and are kept while the database is waited for.
    OfAnswers,
    /// Anything else: the wait is over.
    Other,
}

/// Whether this is told of an answer that is not stored yet: whoever waits for the database waits on.
pub(crate) fn tells_of_answers(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::AnswerNotKept { .. } | RunEvent::AnswerKept { .. } | RunEvent::Call(CallProgress::Answered { .. })
    )
}

/// Follows what happens in a run, or in one of its sub-agents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    now: Option<OutsideWait>,
}

impl Waits {
    /// What is waited for now.
    pub(crate) fn now(&self) -> Option<&OutsideWait> {
        self.now.as_ref()
    }

    /// Something happened at this moment.
    pub(crate) fn watch(&mut self, event: &RunEvent, at: Timestamp) {
        let after = |millis: &u64| at.plus(Duration::from_millis(*millis));
        let failed = |on, attempt: &u32, why: &str, wait: &u64, left: &u64, ends_in: &Option<u64>| Step::Failed {
            on,
            at,
            attempt: *attempt,
            why: why.to_owned(),
            until: Some(ends_in.as_ref().map_or_else(|| after(&wait.saturating_add(*left)), after)),
        };
        let database =
            |why: &str, until| Step::Failed { on: Awaited::Database, at, attempt: 0, why: why.to_owned(), until };
        let step = if let RunEvent::Retrying { attempt, why, wait_millis, left_millis, ends_in_millis, .. } = event {
            failed(Awaited::Provider, attempt, why, wait_millis, left_millis, ends_in_millis)
        } else if let RunEvent::ToolServerAway { attempt, why, wait_millis, left_millis, ends_in_millis, .. } = event {
            failed(Awaited::ToolServer, attempt, why, wait_millis, left_millis, ends_in_millis)
        } else if let RunEvent::DatabaseBusy { why, .. } = event {
            database(why, None)
        } else if let RunEvent::DatabaseFull { why, left_millis, .. } = event {
            database(why, Some(after(left_millis)))
        } else if matches!(event, RunEvent::Thinking { .. } | RunEvent::Charged { .. }) {
            Step::OfATry
        } else if tells_of_answers(event) {
            Step::OfAnswers
        } else {
            Step::Other
        };
        self.take(step);
    }

    /// A line of `trace.jsonl`.
    fn read(&mut self, text: &str) {
        let step = serde_json::from_str::<Value>(text).ok().and_then(|event| step_of(&event));
        self.take(step.unwrap_or(Step::Other));
    }

    fn take(&mut self, step: Step) {
        self.now = match step {
            Step::OfATry => self.now.take().filter(|now| now.on != Awaited::Database),
            Step::OfAnswers => self.now.take(),
            Step::Other => None,
            Step::Failed { on, at, attempt, why, until } => {
                let before =
                    self.now.take().filter(|before| before.on == on && (attempt > 1 || on == Awaited::Database));
                let since = before.map_or(at, |before| before.since);
                Some(OutsideWait { on, since, until, why, tries: attempt })
            }
        };
    }
}

/// What a line says; `None` of one that no version of ours wrote so.
fn step_of(event: &Value) -> Option<Step> {
    let on = match event["event"].as_str()? {
        "model_retry" => Awaited::Provider,
        "tool_server_away" => Awaited::ToolServer,
        "thinking" | "request_charged" => return Some(Step::OfATry),
        "answer_not_kept" | "answer_kept" => return Some(Step::OfAnswers),
        "database_busy" | "database_full" => Awaited::Database,
        _ => return Some(Step::Other),
    };
    let at = Timestamp::parse(event["at"].as_str()?)?;
    if on == Awaited::Database {
        let left = event["left_millis"].as_u64().map(|left| at.plus(Duration::from_millis(left)));
        // Each line is another reason for the same wait.
        return Some(Step::Failed { on, at, attempt: 0, why: event["why"].as_str()?.to_owned(), until: left });
    }
    let wait = event["wait_millis"].as_u64()?.saturating_add(event["left_millis"].as_u64()?);
    let until = Some(at.plus(Duration::from_millis(event["ends_in_millis"].as_u64().unwrap_or(wait))));
    let attempt = event["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok())?;
    Some(Step::Failed { on, at, attempt, why: event["why"].as_str()?.to_owned(), until })
}

/// What a run waits for outside, or a sub-agent of it, as far as a process of this machine drives it; `None` where nothing is, and where that
/// cannot be known from here.
pub async fn of_run(home: &Home, store: &Database, run: &RunRecord) -> Option<OutsideWait> {
    if run.status != RunStatus::Running || !RunLock::is_held(&home.locks(), &run.run_id) {
        return None;
    }
    // What an earlier process waited for is over, whatever its log ends with.
    let taken_at = run.processes.last().map(|process| process.taken_at)?;
    let below = tree::runs_below(store, &run.run_id).await.unwrap_or_default();
    let at_work = below.iter().filter(|run| run.status == RunStatus::Running);
    let waits = std::iter::once(run).chain(at_work).filter_map(|run| {
        let workspace = home.open_workspace(run).ok()?;
        ends_with(&workspace).filter(|wait| wait.since >= taken_at)
    });
    waits.min_by_key(|wait| wait.since)
}

/// The same by the id of the run.
pub async fn of(home: &Home, store: &Database, run: &RunId) -> Option<OutsideWait> {
    let run = store.run(run).await.ok()?;
    of_run(home, store, &run).await
}

/// What the log in this folder ends with. One that cannot be read says nothing.
fn ends_with(workspace: &Workspace) -> Option<OutsideWait> {
    let mut file = workspace.folder().open_file("trace.jsonl").ok()?;
    let begins = file.metadata().ok()?.len().saturating_sub(READ);
    file.seek(SeekFrom::Start(begins)).ok()?;
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes).ok()?;
    let mut waits = Waits::default();
    // The last line may be on its way, and the first one be cut.
    String::from_utf8_lossy(&bytes)
        .split_inclusive('\n')
        .filter_map(|text| text.strip_suffix('\n'))
        .for_each(|text| waits.read(text));
    waits.now
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn retry(attempt: u32, ends_in_millis: Option<u64>) -> RunEvent {
        RunEvent::Retrying {
            attempt,
            why: format!("overloaded {attempt}"),
            wait_millis: 2_000,
            left_millis: 60_000,
            may_be_billed: false,
            ends_in_millis,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// A wait lasts from the first failed try until something else happens, whoever follows it.
    #[test]
    fn a_wait_lasts_from_the_first_failed_try_until_something_else_happens() {
        let mut waits = Waits::default();
        waits.watch(&RunEvent::Thinking { turn: 3 }, at(0));
        assert_eq!(waits.now(), None);
        waits.watch(&retry(1, None), at(1));
        waits.watch(&RunEvent::Thinking { turn: 3 }, at(3));
        waits.watch(&retry(2, None), at(4));
        let wait = waits.now().cloned().unwrap();
        assert_eq!((wait.since, wait.until, wait.tries), (at(1), Some(at(66)), 2));
        assert_eq!(
            wait.in_words(),
            format!("waiting for its provider since {} (overloaded 2), until {} at the latest", at(1), at(66))
        );
        // Where the run's time is over before the patience is.
        waits.watch(&retry(3, Some(5_000)), at(10));
        assert_eq!(waits.now().map(|wait| (wait.since, wait.until)), Some((at(1), Some(at(15)))));
        waits.watch(&RunEvent::Text { delta: "so".to_owned() }, at(11));
        assert_eq!(waits.now(), None, "a reply has begun");
        // Of the next turn it is another wait.
        waits.watch(&retry(1, None), at(20));
        assert_eq!(waits.now().map(|wait| wait.since), Some(at(20)));
        let away = RunEvent::ToolServerAway {
            was_sent: false,
            attempt: 1,
            why: "`mail` is away".to_owned(),
            wait_millis: 1,
            left_millis: 1,
            ends_in_millis: None,
        };
        waits.watch(&away, at(30));
        let words = waits.now().unwrap().in_words();
        assert!(words.starts_with(&format!("waiting for a tool server since {} (`mail` is away)", at(30))), "{words}");
    }

    /// The database is waited for until anything else happens, for whatever reasons in turn.
    #[test]
    fn a_wait_for_the_database_keeps_its_beginning() {
        let mut waits = Waits::default();
        let busy = |why: &str| RunEvent::DatabaseBusy { doing: "store the answer of".to_owned(), why: why.to_owned() };
        waits.watch(&busy("locked"), at(1));
        let full = RunEvent::DatabaseFull {
            doing: "store the answer of".to_owned(),
            why: "full".to_owned(),
            left_millis: 9_000,
        };
        waits.watch(&full, at(4));
        assert_eq!(waits.now().map(|wait| (wait.since, wait.until)), Some((at(1), Some(at(13)))));
        // Another call is answered meanwhile, and its answer kept nowhere.
        let call_id = || ua_core::CallId::parse("call_2").unwrap();
        waits.watch(&RunEvent::Call(CallProgress::Answered { call_id: call_id() }), at(4));
        let (said, why) = (String::new(), String::new());
        waits.watch(&RunEvent::AnswerNotKept { call_id: call_id(), said, why }, at(4));
        waits.watch(&RunEvent::AnswerKept { call_id: call_id() }, at(4));
        waits.watch(&busy("locked"), at(5));
        let words = waits.now().unwrap().in_words();
        assert_eq!(words, format!("waiting for the database since {} (locked)", at(1)));
        waits.watch(&RunEvent::Thinking { turn: 1 }, at(6));
        assert_eq!(waits.now(), None, "it was written");
    }

    /// The log says the same as whoever watched.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn the_end_of_a_log_says_what_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        assert_eq!(ends_with(&workspace), None, "there is no log");
        let failed = |attempt: u32, second: i64| {
            json!({"event": "model_retry", "attempt": attempt, "why": "overloaded", "wait_millis": 2_000, "left_millis": 60_000,
                   "may_be_billed": false, "ends_in_millis": null, "at": at(second)})
        };
        let says = |event: &Value| workspace.append_line("trace.jsonl", &event.to_string()).unwrap();
        for number in 0..2_000 {
            says(&json!({"event": "turn_committed", "turn": number, "at": at(0)}));
        }
        says(&failed(1, 1));
        says(&json!({"event": "request_charged", "turn": 3, "at": at(1)}));
        says(&json!({"event": "thinking", "turn": 3, "at": at(3)}));
        says(&failed(2, 4));
        let wait = ends_with(&workspace).unwrap();
        assert_eq!((wait.since, wait.until, wait.tries, wait.why.as_str()), (at(1), Some(at(66)), 2, "overloaded"));
        says(&json!({"event": "turn_recorded", "turn": 3, "at": at(5)}));
        assert_eq!(ends_with(&workspace), None, "it was answered");
        says(&json!({"event": "model_retry", "attempt": "many"}));
        assert_eq!(ends_with(&workspace), None, "no line of ours");
    }
}
