//! What this process has begun and not finished: what somebody wants to know who stops it, of the one run of `ua job` and of the runs of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ua_core::{CallId, Env, RunId, ShortNames, Timestamp, counted, span_in_words};
use ua_dispatch::CallProgress;
use ua_host::fleet::Onlooker;
use ua_host::people::ObservedEvent;
use ua_runner::{Drain, RunEvent};

use crate::ids::short;
use crate::output::{line, tell};

/// What a second signal does.
const AGAIN: &str = "Press Ctrl-C again to exit at once";
/// The same of a worker, which mostly is a service.
const SECOND: &str = "A second signal (Ctrl-C, SIGTERM) ends this worker at once";
/// So many runs of a worker are named; the rest is counted.
const NAMED: usize = 8;

/// So much of an answer that nobody will have any more is shown, in characters.
const SAID: usize = 200;

/// A call that is waited for when the run stops, and not over.
#[derive(Debug)]
struct Call {
    tool: String,
    /// When it was sent.
    sent: Option<Timestamp>,
    answer: Reply,
}

/// Where the answer of a call is.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// With the tool.
    Awaited,
    /// Here, or kept beside the database, and not stored yet.
    Unstored,
    /// In this process alone, which says what it is.
    Alone(String),
}

/// What a process has begun in a run and not finished.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// How the run is resumed, in the words of this terminal.
    next_command: String,
    /// Calls that are waited for when the run stops, and whose end is not stored, by id.
    calls: BTreeMap<String, Call>,
    /// Calls without an answer yet that are given up when the run stops, since they are simply made again, by id: the tool.
    reads: BTreeMap<String, String>,
    /// How tools are called in short: with their servers where two offer one of a name.
    names: ShortNames,
    /// Until when room is waited for, on a full disk.
    room_until: Option<Timestamp>,
    /// Where the time comes from, once signals are listened for.
    pub(crate) env: Option<Env>,
}

impl UnderWay {
    pub(crate) fn take(&mut self, seen: &ObservedEvent<'_>) {
        if let (RunEvent::ToolsOffered { names }, None) = (seen.signal, seen.sub_agent) {
            self.names = names.clone();
        }
        let RunEvent::Call(progress) = seen.signal else { return self.notice(seen.signal) };
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
                    self.calls.insert(id, Call { tool, sent: self.now(), answer: Reply::Awaited });
                }
            }
            CallProgress::Answered { call_id } => self.is_answered(call_id, Reply::Unstored),
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

    fn is_answered(&mut self, call: &CallId, answer: Reply) {
        if let Some(call) = self.calls.get_mut(call.as_str()) {
            call.answer = answer;
        }
    }

    /// Notices where an answer is kept, and until when room for it on a full disk is waited for.
    fn notice(&mut self, signal: &RunEvent) {
        if let RunEvent::AnswerNotKept { call_id, said, .. } = signal {
            self.is_answered(call_id, Reply::Alone(said.clone()));
        } else if let RunEvent::AnswerKept { call_id } = signal {
            self.is_answered(call_id, Reply::Unstored);
        } else if let RunEvent::DatabaseFull { left_millis, .. } = signal {
            self.room_until = self.now().map(|now| now.plus(Duration::from_millis(*left_millis)));
        } else if let RunEvent::DatabaseBusy { .. } = signal {
            self.room_until = None;
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
        self.room_until = None;
    }

    /// How the run is resumed, in the words of this terminal.
    pub(crate) fn next_command(&self) -> &str {
        &self.next_command
    }

    /// What a first signal does.
    pub(crate) fn stopping(&self, drain: Drain) -> String {
        let mut sentences = vec!["stopping; nothing new is started".to_owned()];
        sentences.extend(self.dropped());
        sentences.extend(self.waits(drain).into_iter().map(|wait| format!("Waiting {wait}")));
        if sentences.len() == 1 {
            sentences.push("No tool call is in flight".to_owned());
        }
        let several = |count, one, more| if count == 1 { one } else { more };
        let (in_doubt, alone) = (self.in_doubt().count(), self.alone().count());
        let leaves = (in_doubt > 0)
            .then(|| format!(" and leave {} unknown", several(in_doubt, "its outcome", "their outcomes")));
        let loses = (alone > 0).then(|| format!(" and lose {}", several(alone, "that answer", "those answers")));
        let costs: String = leaves.into_iter().chain(loses).collect();
        format!("{}. {AGAIN}{costs}", sentences.join(". "))
    }

    /// What is waited for when the run stops, and for how long, each behind the word "waiting".
    fn waits(&self, drain: Drain) -> Vec<String> {
        let time = span_in_words(drain.time);
        let mut waits = Vec::new();
        let in_flight: Vec<&Call> = self.of(|answer| *answer == Reply::Awaited).collect();
        if !in_flight.is_empty() {
            waits.push(format!("up to {time} for {} to finish", self.names(in_flight.into_iter())));
        }
        let unstored: Vec<&Call> = self.of(|answer| *answer == Reply::Unstored).collect();
        if !unstored.is_empty() {
            waits.push(format!("up to {time} for {} to be stored", answers_of(&unstored)));
        }
        let alone: Vec<&Call> = self.alone().map(|(_, call, _)| call).collect();
        if !alone.is_empty() {
            let left = self.room_until.zip(self.now()).map(|(until, now)| until.since(now));
            let most = if drain.is_all { Some(left.unwrap_or(drain.time).min(drain.time)) } else { left };
            let most = most.map_or_else(String::new, |most| format!("up to {} ", span_in_words(most)));
            let what = if self.room_until.is_some() { "room on the disk" } else { "the database" };
            let are = if alone.len() == 1 { "it is" } else { "they are" };
            waits.push(format!("{most}for {what}, for {}: {are} in this process alone", answers_of(&alone)));
        }
        waits
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
        let (in_doubt, lost) = (self.names(self.in_doubt()), self.lost());
        let doubt = match (in_doubt.is_empty(), lost.is_empty()) {
            (true, true) => "ended at once; no call has an unknown outcome".to_owned(),
            (true, false) => "ended at once".to_owned(),
            (false, _) => {
                format!("ended at once; whether {in_doubt} happened is unknown: a resume finds out, or asks you")
            }
        };
        let lost = lost.iter().fold(String::new(), |told, lost| told + "\n" + lost);
        format!("{doubt}{lost}\nresume with: {}", self.next_command)
    }

    /// The answers that end with this process, each in a sentence. They are told once.
    pub(crate) fn take_lost(&mut self) -> Vec<String> {
        let lost = self.lost();
        self.calls.retain(|_, call| !matches!(call.answer, Reply::Alone(_)));
        lost
    }

    fn lost(&self) -> Vec<String> {
        let lost = self.alone().map(|(id, call, said)| {
            let (tool, id, said) = (&call.tool, short(id), line(said, SAID));
            let said = if said.is_empty() { "it said nothing".to_owned() } else { format!("it said: {said}") };
            format!(
                "the answer of {tool} (call {id}) is stored nowhere, and ends with this process; {said}\nA resume finds out what happened to that call, or \
                 asks you: then `ua calls resolve {id} --happened`, or `--retry` if it did nothing"
            )
        });
        lost.collect()
    }

    /// Calls whose answer is like this.
    fn of(&self, is_so: impl Fn(&Reply) -> bool) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(move |call| is_so(&call.answer))
    }

    /// Calls of which a second signal leaves unknown what came of them.
    fn in_doubt(&self) -> impl Iterator<Item = &Call> {
        self.of(|answer| !matches!(answer, Reply::Alone(_)))
    }

    /// Calls whose answer is in this process alone, with their ids and what they said.
    fn alone(&self) -> impl Iterator<Item = (&str, &Call, &str)> {
        self.calls.iter().filter_map(|(id, call)| match &call.answer {
            Reply::Alone(said) => Some((id.as_str(), call, said.as_str())),
            Reply::Awaited | Reply::Unstored => None,
        })
    }

    fn names<'c>(&self, calls: impl Iterator<Item = &'c Call>) -> String {
        let names: Vec<String> = calls
            .map(|Call { tool, sent, .. }| match (self.now(), sent) {
                (Some(now), Some(sent)) => format!("{tool} (sent {} ago)", span_in_words(now.since(*sent))),
                _ => tool.clone(),
            })
            .collect();
        names.join(", ")
    }
}

/// What these calls brought.
fn answers_of(calls: &[&Call]) -> String {
    let tools: Vec<&str> = calls.iter().map(|call| call.tool.as_str()).collect();
    format!("the {} of {}", if tools.len() == 1 { "answer" } else { "answers" }, tools.join(", "))
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
    pub(crate) fn stopping(&self, drain: Drain) -> String {
        let runs = self.runs();
        if runs.is_empty() {
            return "stopping; no run is being driven".to_owned();
        }
        let mut text = format!("stopping; no more runs are taken. Waiting for {} to stop:", counted(runs.len(), "run"));
        text.push_str(&listed(runs.iter(), |under_way| {
            let reads = under_way.dropped().map(|reads| in_a_line(&reads));
            let parts: Vec<String> = under_way.waits(drain).into_iter().chain(reads).collect();
            if parts.is_empty() { "no tool call is in flight".to_owned() } else { parts.join("; ") }
        }));
        let has_doubt = runs.values().any(|under_way| under_way.in_doubt().next().is_some());
        let has_alone = runs.values().any(|under_way| under_way.alone().next().is_some());
        let unknown = if has_doubt { " and leaves unknown what these calls came to" } else { "" };
        let loses = if has_alone { " and loses what is in this process alone" } else { "" };
        format!("{text}\n{SECOND}{unknown}{loses}")
    }

    /// What a second signal leaves behind.
    pub(crate) fn left(&self) -> String {
        let runs = self.runs();
        let lost: String = runs.iter().flat_map(|(run, under_way)| lost_of(run, under_way.lost())).collect();
        let in_doubt: Vec<_> = runs.iter().filter(|(_, under_way)| under_way.in_doubt().next().is_some()).collect();
        if in_doubt.is_empty() && lost.is_empty() {
            return format!("ended at once; no call has an unknown outcome. {QUEUE}");
        }
        if in_doubt.is_empty() {
            return format!("ended at once{lost}\n{QUEUE}");
        }
        let doubts = listed(in_doubt.into_iter(), |under_way| under_way.names(under_way.in_doubt()));
        format!(
            "ended at once; whether these calls happened is unknown:{doubts}{lost}\nA worker of this machine that takes the run finds out, or asks \
             you. {QUEUE}"
        )
    }
}

/// What is said of answers of a run that end with this process, each on lines of its own.
fn lost_of(run: &RunId, lost: Vec<String>) -> impl Iterator<Item = String> {
    lost.into_iter().map(move |lost| format!("\nrun {}: {lost}", short(run.as_str())))
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
        let under_way = self.runs().remove(run);
        if crate::terminal::is_json() {
            return;
        }
        // Whoever wants to hear of errors alone wants to hear this.
        let lost: String = under_way.into_iter().flat_map(|under_way| lost_of(run, under_way.lost())).collect();
        if !lost.is_empty() {
            tell(lost.trim_start());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(tool: &str, at: Option<Timestamp>) -> Call {
        Call { tool: tool.to_owned(), sent: at, answer: Reply::Awaited }
    }

    fn happens(under_way: &mut UnderWay, signal: &RunEvent) {
        under_way.take(&ObservedEvent { sub_agent: None, elapsed: Duration::ZERO, line: None, signal });
    }

    /// A tool that has answered is not waited for: its answer is, for as long as that is so and no longer, and whoever ends it is told what it was.
    #[test]
    fn an_answer_that_is_not_stored_is_told_as_that_and_not_as_a_call() {
        let env = Env::simulated(1);
        let mut under_way = UnderWay { env: Some(env.clone()), ..UnderWay::default() };
        under_way.begin("ua resume r".to_owned());
        let call_id = || CallId::parse("call_1").unwrap();
        under_way.calls.insert("call_1".to_owned(), sent("send_email", Some(env.now())));
        let drains = [false, true].map(|is_all| Drain { time: Duration::from_secs(30), is_all });
        happens(&mut under_way, &RunEvent::Call(CallProgress::Answered { call_id: call_id() }));
        let said = under_way.stopping(drains[0]);
        assert!(said.contains("Waiting up to 30 s for the answer of send_email to be stored. Press"), "{said}");
        assert!(said.ends_with("and leave its outcome unknown") && under_way.lost().is_empty(), "{said}");

        let not_kept = RunEvent::AnswerNotKept { call_id: call_id(), said: "queued as 7".into(), why: "full".into() };
        happens(&mut under_way, &not_kept);
        let full = RunEvent::DatabaseFull { doing: "store".into(), why: "full".into(), left_millis: 1_800_000 };
        happens(&mut under_way, &full);
        for (drain, time) in drains.into_iter().zip(["30 min", "30 s"]) {
            let said = under_way.stopping(drain);
            let waits = format!(
                "Waiting up to {time} for room on the disk, for the answer of send_email: it is in this process alone"
            );
            let wanted = format!("stopping; nothing new is started. {waits}. {AGAIN} and lose that answer");
            assert_eq!(said, wanted);
        }
        let ended = under_way.ended();
        assert!(
            ended.starts_with("ended at once\nthe answer of send_email (call call_1) is stored nowhere"),
            "{ended}"
        );
        for part in [
            "it said: queued as 7\n",
            "A resume finds out",
            "ua calls resolve call_1 --happened",
            "\nresume with: ua resume r",
        ] {
            assert!(ended.contains(part), "{part}: {ended}");
        }
        // Beside one that is under way.
        under_way.calls.insert("call_2".to_owned(), sent("upload", None));
        let said = under_way.stopping(drains[0]);
        assert!(said.contains("Waiting up to 30 s for upload to finish. Waiting up to 30 min for room"), "{said}");
        assert!(said.ends_with("and leave its outcome unknown and lose that answer"), "{said}");
        assert!(under_way.ended().contains("whether upload happened is unknown"));

        happens(&mut under_way, &RunEvent::AnswerKept { call_id: call_id() });
        assert!(under_way.lost().is_empty(), "a resume finds it");
        happens(&mut under_way, &not_kept);
        assert_eq!((under_way.take_lost().len(), under_way.take_lost().len()), (1, 0), "it is told once");
    }

    #[test]
    fn a_worker_says_which_answer_ends_with_it() {
        let driven = Driven::new(Env::simulated(1));
        let run = RunId::parse("run_a").unwrap();
        driven.begun(&run);
        let call = Call { answer: Reply::Alone("queued as 7".to_owned()), ..sent("send_email", None) };
        driven.runs().get_mut(&run).unwrap().calls.insert("call_1".to_owned(), call);
        let said = driven.stopping(Drain { time: Duration::from_secs(25), is_all: true });
        assert!(said.contains("run run_a: up to 25 s for the database, for the answer of send_email"), "{said}");
        assert!(said.ends_with("ends this worker at once and loses what is in this process alone"), "{said}");
        let left = driven.left();
        assert!(left.starts_with("ended at once\nrun run_a: the answer of send_email (call call_1)"), "{left}");
    }

    #[test]
    fn a_first_signal_says_what_becomes_of_every_call_that_is_in_flight() {
        let patience = Drain { time: Duration::from_secs(30), is_all: false };
        let now = "stopping; nothing new is started";
        let (once, twice) = ("Press Ctrl-C again to exit at once", "and leave its outcome unknown");
        let mut under_way = UnderWay::default();
        assert_eq!(under_way.stopping(patience), format!("{now}. No tool call is in flight. {once}"));
        under_way.reads.insert("call_1".to_owned(), "run_command".to_owned());
        let dropped = "A call that only reads (run_command) is dropped, and made again by a resume";
        assert_eq!(under_way.stopping(patience), format!("{now}. {dropped}. {once}"));
        under_way.calls.insert("call_2".to_owned(), sent("send_email", None));
        let waited = "Waiting up to 30 s for send_email to finish";
        assert_eq!(under_way.stopping(patience), format!("{now}. {dropped}. {waited}. {once} {twice}"));
        under_way.is_over(&CallId::parse("call_1").unwrap());
        assert_eq!(under_way.stopping(patience), format!("{now}. {waited}. {once} {twice}"));
    }

    #[test]
    fn a_worker_that_is_stopped_names_its_runs_and_their_calls() {
        let env = Env::simulated(1);
        let driven = Driven::new(env.clone());
        let patience = Drain { time: Duration::from_secs(25), is_all: true };
        let again = "A second signal (Ctrl-C, SIGTERM) ends this worker at once";
        let queue = "`ua queue list` shows the runs";
        assert_eq!(driven.stopping(patience), "stopping; no run is being driven");
        let runs = ["run_a", "run_b", "run_c"].map(|run| RunId::parse(run).unwrap());
        driven.begun(&runs[0]);
        let head = "stopping; no more runs are taken. Waiting for 1 run to stop:";
        assert_eq!(driven.stopping(patience), format!("{head}\n  run run_a: no tool call is in flight\n{again}"));
        assert_eq!(driven.left(), format!("ended at once; no call has an unknown outcome. {queue}"));
        driven.begun(&runs[1]);
        driven.begun(&runs[2]);
        let sent = |tool: &str, ago| sent(tool, Some(env.now().minus(Duration::from_secs(ago))));
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
