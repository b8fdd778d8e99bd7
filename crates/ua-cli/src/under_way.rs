//! What this process has begun and not finished: what somebody wants to know who stops it, of the one run of `ua job` and of the runs of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ua_core::{CallId, Env, RunId, ShortNames, Timestamp, counted, span_in_words};
use ua_dispatch::CallProgress;
use ua_host::fleet::Onlooker;
use ua_host::people::ObservedEvent;
use ua_runner::RunEvent;

use crate::ids::short;
use crate::output::line;

/// What a second signal does.
const AGAIN: &str = "Press Ctrl-C again to exit at once";
/// The same of a worker, which mostly is a service.
const SECOND: &str = "A second signal (Ctrl-C, SIGTERM) ends this worker at once";
/// So many runs of a worker are named; the rest is counted.
const NAMED: usize = 8;

/// What a process has begun in a run and not finished.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// How the run is resumed, in the words of this terminal.
    next_command: String,
    /// Calls without an answer yet that are waited for when the run stops, by id: the tool, and when it was sent.
    calls: BTreeMap<String, (String, Option<Timestamp>)>,
    /// Calls without an answer yet that are given up when the run stops, since they are simply made again, by id: the tool.
    reads: BTreeMap<String, String>,
    /// How tools are called in short: with their servers where two offer one of a name.
    names: ShortNames,
    /// Where the time comes from, once signals are listened for.
    pub(crate) env: Option<Env>,
}

impl UnderWay {
    pub(crate) fn take(&mut self, seen: &ObservedEvent<'_>) {
        if let (RunEvent::ToolsOffered { names }, None) = (seen.signal, seen.sub_agent) {
            self.names = names.clone();
        }
        let RunEvent::Call(progress) = seen.signal else { return };
        match progress {
            CallProgress::Sending { call } | CallProgress::Resuming { call, .. } => {
                let (id, tool) = (call.call_id.to_string(), line(self.names.of(&call.name), 60));
                // What a sub-agent does is said by its own calls; the call for it is never in doubt.
                if call.name.is_task() {
                    return;
                }
                if call.policy.is_free_read() {
                    self.reads.insert(id, tool);
                } else {
                    self.calls.insert(id, (tool, self.now()));
                }
            }
            CallProgress::Settled { call } | CallProgress::Retrying { call, .. } => self.is_over(&call.call_id),
            CallProgress::Held { question } => {
                if let Some(call) = &question.call_id {
                    self.is_over(call);
                }
            }
            CallProgress::Waiting { .. }
            | CallProgress::Probed { .. }
            | CallProgress::Progress { .. }
            | CallProgress::Declined { .. }
            | CallProgress::Asking { .. } => {}
        }
    }

    fn is_over(&mut self, call: &CallId) {
        self.calls.remove(call.as_str());
        self.reads.remove(call.as_str());
    }

    fn now(&self) -> Option<Timestamp> {
        self.env.as_ref().map(Env::now)
    }

    /// The run is taken, perhaps not for the first time: what was under way before is not any more.
    pub(crate) fn begin(&mut self, next_command: String) {
        self.next_command = next_command;
        self.calls.clear();
        self.reads.clear();
    }

    /// What a first signal does.
    pub(crate) fn stopping(&self, patience: Duration) -> String {
        let now = "stopping; nothing new is started";
        let now = match self.dropped() {
            None if self.calls.is_empty() => format!("{now}. No tool call is in flight"),
            None => now.to_owned(),
            Some(reads) => format!("{now}. {reads}"),
        };
        if self.calls.is_empty() {
            return format!("{now}. {AGAIN}");
        }
        let outcome = if self.calls.len() == 1 { "its outcome" } else { "their outcomes" };
        format!(
            "{now}. Waiting up to {} for {} to finish. {AGAIN} and leave {outcome} unknown",
            span_in_words(patience),
            self.names()
        )
    }

    /// What becomes of the calls that only read when the run stops, as a sentence without its full stop.
    fn dropped(&self) -> Option<String> {
        let tools: BTreeSet<&str> = self.reads.values().map(String::as_str).collect();
        let tools: Vec<&str> = tools.into_iter().collect();
        match (tools.as_slice(), self.reads.len()) {
            ([], _) => None,
            ([one], 1) => Some(format!("A call that only reads ({one}) is dropped, and made again by a resume")),
            (tools, _) => {
                Some(format!("Calls that only read ({}) are dropped, and made again by a resume", tools.join(", ")))
            }
        }
    }

    /// What a second signal leaves behind.
    pub(crate) fn ended(&self) -> String {
        let doubt = if self.calls.is_empty() {
            "ended at once; no call has an unknown outcome".to_owned()
        } else {
            format!("ended at once; whether {} happened is unknown: a resume finds out, or asks you", self.names())
        };
        format!("{doubt}\nresume with: {}", self.next_command)
    }

    fn names(&self) -> String {
        let names: Vec<String> = self
            .calls
            .values()
            .map(|(tool, sent)| match (self.now(), sent) {
                (Some(now), Some(sent)) => format!("{tool} (sent {} ago)", span_in_words(now.since(*sent))),
                _ => tool.clone(),
            })
            .collect();
        names.join(", ")
    }
}

/// The runs that a worker drives.
#[derive(Debug)]
pub(crate) struct Driven {
    env: Env,
    runs: Mutex<BTreeMap<RunId, UnderWay>>,
}

impl Driven {
    /// None yet.
    pub(crate) fn new(env: Env) -> Self {
        Self { env, runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, UnderWay>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a first signal does.
    pub(crate) fn stopping(&self, patience: Duration) -> String {
        let runs = self.runs();
        if runs.is_empty() {
            return "stopping; no run is being driven".to_owned();
        }
        let mut text = format!("stopping; no more runs are taken. Waiting for {} to stop:", counted(runs.len(), "run"));
        text.push_str(&listed(runs.iter(), |under_way| match (under_way.calls.is_empty(), under_way.dropped()) {
            (true, None) => "no tool call is in flight".to_owned(),
            (true, Some(reads)) => in_a_line(&reads),
            (false, reads) => {
                let reads = reads.map_or_else(String::new, |reads| format!("; {}", in_a_line(&reads)));
                format!("up to {} for {} to finish{reads}", span_in_words(patience), under_way.names())
            }
        }));
        let unknown = if runs.values().all(|under_way| under_way.calls.is_empty()) {
            ""
        } else {
            " and leaves unknown what these calls came to"
        };
        format!("{text}\n{SECOND}{unknown}")
    }

    /// What a second signal leaves behind.
    pub(crate) fn left(&self) -> String {
        let runs = self.runs();
        let in_doubt: Vec<_> = runs.iter().filter(|(_, under_way)| !under_way.calls.is_empty()).collect();
        if in_doubt.is_empty() {
            return format!("ended at once; no call has an unknown outcome. {QUEUE}");
        }
        let doubts = listed(in_doubt.into_iter(), UnderWay::names);
        format!(
            "ended at once; whether these calls happened is unknown:{doubts}\nA worker of this machine that takes the run finds out, or asks \
             you. {QUEUE}"
        )
    }
}

/// Where the runs of a worker are when it ends.
const QUEUE: &str = "`ua queue list` shows the runs";

/// A line for each of these runs.
fn listed<'a>(
    runs: impl ExactSizeIterator<Item = (&'a RunId, &'a UnderWay)>,
    says: impl Fn(&UnderWay) -> String,
) -> String {
    let more = runs.len().saturating_sub(NAMED);
    let mut text = String::new();
    for (run, under_way) in runs.take(NAMED) {
        text.push_str(&format!("\n  run {}: {}", short(run.as_str()), says(under_way)));
    }
    if more > 0 {
        text.push_str(&format!("\n  and {}", counted(more, "more run")));
    }
    text
}

/// A sentence behind the name of a run.
fn in_a_line(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), chars.as_str()))
}

impl Onlooker for Driven {
    fn begun(&self, run: &RunId) {
        let under_way = UnderWay { env: Some(self.env.clone()), ..UnderWay::default() };
        self.runs().insert(run.clone(), under_way);
    }

    fn watch(&self, run: &RunId, seen: &ObservedEvent<'_>) {
        if let Some(under_way) = self.runs().get_mut(run) {
            under_way.take(seen);
        }
    }

    fn ended(&self, run: &RunId) {
        self.runs().remove(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_signal_says_what_becomes_of_every_call_that_is_in_flight() {
        let patience = Duration::from_secs(30);
        let now = "stopping; nothing new is started";
        let (once, twice) = ("Press Ctrl-C again to exit at once", "and leave its outcome unknown");
        let mut under_way = UnderWay::default();
        assert_eq!(under_way.stopping(patience), format!("{now}. No tool call is in flight. {once}"));
        under_way.reads.insert("call_1".to_owned(), "run_command".to_owned());
        let dropped = "A call that only reads (run_command) is dropped, and made again by a resume";
        assert_eq!(under_way.stopping(patience), format!("{now}. {dropped}. {once}"));
        under_way.calls.insert("call_2".to_owned(), ("send_email".to_owned(), None));
        let waited = "Waiting up to 30 s for send_email to finish";
        assert_eq!(under_way.stopping(patience), format!("{now}. {dropped}. {waited}. {once} {twice}"));
        under_way.is_over(&CallId::parse("call_1").unwrap());
        assert_eq!(under_way.stopping(patience), format!("{now}. {waited}. {once} {twice}"));
    }

    #[test]
    fn a_worker_that_is_stopped_names_its_runs_and_their_calls() {
        let env = Env::simulated(1);
        let driven = Driven::new(env.clone());
        let (patience, again) = (Duration::from_secs(25), "A second signal (Ctrl-C, SIGTERM) ends this worker at once");
        let queue = "`ua queue list` shows the runs";
        assert_eq!(driven.stopping(patience), "stopping; no run is being driven");
        let runs = ["run_a", "run_b", "run_c"].map(|run| RunId::parse(run).unwrap());
        driven.begun(&runs[0]);
        let head = "stopping; no more runs are taken. Waiting for 1 run to stop:";
        assert_eq!(driven.stopping(patience), format!("{head}\n  run run_a: no tool call is in flight\n{again}"));
        assert_eq!(driven.left(), format!("ended at once; no call has an unknown outcome. {queue}"));
        driven.begun(&runs[1]);
        driven.begun(&runs[2]);
        let sent = |tool: &str, ago| (tool.to_owned(), Some(env.now().minus(Duration::from_secs(ago))));
        driven.runs().get_mut(&runs[0]).unwrap().reads.insert("call_1".to_owned(), "crawl".to_owned());
        let calls = [("call_2".to_owned(), sent("send_email", 12)), ("call_3".to_owned(), sent("upload", 3))];
        driven.runs().get_mut(&runs[1]).unwrap().calls.extend(calls);
        let head = "stopping; no more runs are taken. Waiting for 3 runs to stop:";
        let lines = [
            "  run run_a: a call that only reads (crawl) is dropped, and made again by a resume",
            "  run run_b: up to 25 s for send_email (sent 12 s ago), upload (sent 3 s ago) to finish",
            "  run run_c: no tool call is in flight",
        ];
        let unknown = "and leaves unknown what these calls came to";
        assert_eq!(driven.stopping(patience), format!("{head}\n{}\n{again} {unknown}", lines.join("\n")));
        let whose = "A worker of this machine that takes the run finds out, or asks you.";
        assert_eq!(
            driven.left(),
            format!(
                "ended at once; whether these calls happened is unknown:\n  run run_b: send_email (sent 12 s ago), upload (sent 3 s ago)\n\
                 {whose} {queue}"
            )
        );
        for run in &runs {
            driven.ended(run);
        }
        for number in 0..10 {
            driven.begun(&RunId::parse(&format!("run_{number}")).unwrap());
        }
        assert!(driven.stopping(patience).contains("run_7: no tool call is in flight\n  and 2 more runs\n"));
    }
}
