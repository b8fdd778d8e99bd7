//! What happened in a run, in the order of time: one entry per thing, written as `trace.jsonl` for machines and `run.log` for
//! people.
//!
//! Spec: Durable runner, current state §10 (standard outputs); Durable Jobs v1 spec §10. While a run is driven, its process
//! appends to both files, from the rows what happened while nobody drove it, when it takes the run and when it leaves it; a process that is
//! killed may leave lines out. What is made here comes from the rows alone: the same events under the same names, without those that no
//! row holds (waits, the answers of probes, failed requests' reasons).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use ua_core::{Audience, CallStatus, Origin, ShortNames, Timestamp, Usage};
use ua_store::rules::{detail_in_words, learnt_of_another, said_beside};
use ua_store::{
    AttemptRecord, CallRecord, CheckpointKind, EndedBy, OverrideRecord, ProcessSpan, QuestionRecord, RequestStatus,
    RunRecord, RunRecords,
};

use ua_evidence::os_words::in_plain_words;
use ua_evidence::quote::{brief, stored_name};
use ua_resume::{Life, LifeEnd, end_of, lives, status_detail, status_words};

use crate::by_call::ByCall;

/// One thing that happened.
struct Entry {
    at: Timestamp,
    event: Value,
    text: String,
}

impl Entry {
    /// As it stands in both files.
    fn told(self) -> LogLine {
        LogLine { text: format!("{} {}", self.at, self.text), event: self.event.to_string() }
    }
}

/// The two files that tell what happened, of one reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFiles {
    /// `trace.jsonl`: one JSON object per line, each with `event`, `run_id` and `at`, in the order of time.
    pub trace_lines: String,
    /// `run.log`: a line per thing that happened, in the order of time.
    pub run_log: String,
}

/// Writes `trace.jsonl` and `run.log`.
pub fn log_files(records: &RunRecords) -> LogFiles {
    let mut files = LogFiles { trace_lines: String::new(), run_log: String::new() };
    for line in entries(records).into_iter().map(Entry::told) {
        files.trace_lines.push_str(&line.event);
        files.trace_lines.push('\n');
        files.run_log.push_str(&line.text);
        files.run_log.push('\n');
    }
    files
}

/// A line of both files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// That of `run.log`.
    pub text: String,
    /// That of `trace.jsonl`.
    pub event: String,
}

/// What a process that takes a run writes first: what people did since the process before it left, and that it takes the run.
pub fn start_lines(run: &RunRecord, questions: &[QuestionRecord], overrides: &[OverrideRecord]) -> Vec<LogLine> {
    let mut log = EventLogBuilder::of(run, ShortNames::default());
    let Some((taken, before)) = run.processes.split_last() else { return Vec::new() };
    let left_at = before.last().and_then(|process| process.left_at);
    for question in questions {
        log.answer(question);
    }
    log.overrides(overrides);
    log.entries.retain(|entry| left_at.is_none_or(|left| entry.at >= left));
    let number = |epoch| ua_resume::process_number(run, epoch);
    let how = before.last().map(|before| Ended::of_span(before, &run.processes));
    let is_the_same = before.last().is_some_and(|before| number(before.epoch) == number(taken.epoch));
    let taking = Taking { epoch: taken.epoch, process: number(taken.epoch), is_the_same };
    log.process(taken.taken_at, taking, run.traces.last(), how);
    log.told()
}

/// What is added to the logs of a run when a question of it is answered.
pub fn answer_lines(run: &RunRecord, questions: &[QuestionRecord]) -> Vec<LogLine> {
    let mut log = EventLogBuilder::of(run, ShortNames::default());
    for question in questions {
        log.answer(question);
    }
    log.told()
}

/// What stands in a run's rows and no process may have told: a question that nobody was asked aloud, a person's answer and what the model was told of
/// it, settings that were changed, signals. Of `records` the turns that they have.
pub fn untold_lines(records: &RunRecords) -> Vec<LogLine> {
    let mut log = EventLogBuilder::of(&records.run, records.short_names());
    log.overrides(&records.overrides);
    log.questions(records);
    log.told_to_the_model(records);
    log.signals(records);
    log.told()
}

/// What a process that leaves a run writes last.
pub fn end_lines(run: &RunRecord) -> Vec<LogLine> {
    let mut log = EventLogBuilder::of(run, ShortNames::default());
    log.end(run);
    log.told()
}

/// The things that a log tells of, by what tells them apart. When they happened does not: a process notes a thing when it has done it, and its row
/// has the moment in which it was stored.
#[derive(Debug, Default)]
pub struct Told(BTreeSet<String>);

impl Told {
    /// Of `trace.jsonl`. What is no event of a run in it tells of nothing.
    pub fn in_trace(trace_lines: &str) -> Self {
        Self(trace_lines.lines().filter_map(which).collect())
    }

    /// Whether the thing that a line is about stands there.
    pub fn has(&self, line: &LogLine) -> bool {
        which(&line.event).is_some_and(|which| self.0.contains(&which))
    }
}

/// Which thing an event is about.
fn which(event: &str) -> Option<String> {
    let event: Value = serde_json::from_str(event).ok()?;
    let name = event["event"].as_str()?;
    // A tool that asks on its connection asks a question.
    let (name, fields): (&str, &[&str]) = match name {
        "process_started" => (name, &["epoch"]),
        "thinking" | "request_charged" | "turn_recorded" | "turn_committed" => (name, &["turn"]),
        "call_sending" | "attempt_learnt" | "attempt_ended" => (name, &["tool_call_id", "attempt"]),
        "call_settled" => (name, &["tool_call_id", "status"]),
        "held" | "asking" => ("held", &["question_id"]),
        "answered" => (name, &["question_id"]),
        "iteration_begun" => (name, &["number"]),
        "guided" => (name, &["text"]),
        "override" => (name, &["kind", "component", "at"]),
        "run_ended" => (name, &["status", "stop_reason"]),
        _ => (name, &["at"]),
    };
    let fields: Vec<&Value> = fields.iter().map(|field| &event[*field]).collect();
    Some(json!([name, fields]).to_string())
}

/// What a process tells with what came of the call (`call_settled`).
const TOLD_WITH_THE_CALL: &str = "attempt_ended";

/// The two files of a run whose processes kept them, as `trace_lines` and `run_log`: all that stands in them, and what the rows tell besides, each
/// line at its time. A process that was killed may have left lines out, and what was said while nobody drove the run nobody may have noted.
pub fn completed_logs(records: &RunRecords, trace_lines: &str, run_log: &str) -> LogFiles {
    let told = Told::in_trace(trace_lines);
    let mut lacks: Vec<(String, LogLine)> = Vec::new();
    for entry in entries(records) {
        let at = entry.at.to_string();
        let is_told_with_the_call = entry.event["event"] == TOLD_WITH_THE_CALL;
        let line = entry.told();
        if !is_told_with_the_call && !told.has(&line) {
            lacks.push((at, line));
        }
    }
    let at_of_event = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        Some(event["at"].as_str()?.to_owned())
    };
    let at_of_text = |line: &str| line.split_once(' ').map(|(at, _)| at.to_owned()).filter(|at| is_instant(at));
    LogFiles {
        trace_lines: merged(
            trace_lines,
            at_of_event,
            lacks.iter().map(|(at, line)| (at.as_str(), line.event.as_str())),
        ),
        run_log: merged(run_log, at_of_text, lacks.iter().map(|(at, line)| (at.as_str(), line.text.as_str()))),
    }
}

/// Whether a word is an instant as it stands in a log.
fn is_instant(word: &str) -> bool {
    word.len() == "2026-11-26T23:19:22.440Z".len()
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with('Z')
}

/// The lines of a file with others put in, each before the first that is of a later time. Lines of no time stay behind those that they stood behind.
fn merged<'a>(
    file: &str,
    at_of: impl Fn(&str) -> Option<String>,
    lacks: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut lacks = lacks.peekable();
    let mut text = String::with_capacity(file.len());
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    for line in file.lines() {
        if lacks.peek().is_some()
            && let Some(at) = at_of(line)
        {
            while let Some((_, lacking)) = lacks.next_if(|(lacking, _)| *lacking < at.as_str()) {
                add(lacking);
            }
        }
        add(line);
    }
    for (_, lacking) in lacks {
        add(lacking);
    }
    text
}

fn entries(records: &RunRecords) -> Vec<Entry> {
    let mut log = EventLogBuilder::of(&records.run, records.short_names());
    log.processes(records);
    log.requests(records);
    log.turns(records);
    let rows = ByCall::of(records);
    for call in &records.calls {
        log.call(&records.run, &rows, call);
    }
    log.questions(records);
    log.told_to_the_model(records);
    log.progress(records);
    log.signals(records);
    log.end(&records.run);
    log.sorted()
}

/// A process takes a run.
#[derive(Clone, Copy)]
struct Taking {
    epoch: u64,
    /// Its number among the processes that drove the run.
    process: u64,
    /// Whether it is the one that left the run before: it asked somebody in between.
    is_the_same: bool,
}

/// How the process before ended.
#[derive(Clone, Copy)]
struct Ended {
    end: LifeEnd,
    by: Option<EndedBy>,
}

impl Ended {
    fn of(life: &Life) -> Self {
        Self { end: life.end, by: life.ended_by }
    }

    fn of_span(process: &ProcessSpan, all: &[ProcessSpan]) -> Self {
        let end = if process.was_dropped(all) { LifeEnd::Dropped } else { end_of(process) };
        Self { end, by: process.ended_by }
    }
}

struct EventLogBuilder {
    run_id: String,
    names: ShortNames,
    entries: Vec<Entry>,
}

impl EventLogBuilder {
    fn of(run: &RunRecord, names: ShortNames) -> Self {
        Self { run_id: run.run_id.to_string(), names, entries: Vec::new() }
    }

    fn note(&mut self, at: Timestamp, mut event: Value, text: impl AsRef<str>) {
        event["run_id"] = json!(self.run_id);
        event["at"] = json!(at);
        // The event beside it has what the system said as it is.
        self.entries.push(Entry { at, event, text: in_plain_words(text.as_ref()).into_owned() });
    }

    fn processes(&mut self, records: &RunRecords) {
        let found = lives(records);
        for (index, life) in found.iter().enumerate() {
            let how = index.checked_sub(1).map(|before| Ended::of(&found[before]));
            let is_the_same = index.checked_sub(1).is_some_and(|before| found[before].process == life.process);
            let taking = Taking { epoch: life.epoch, process: life.process, is_the_same };
            self.process(life.started_at, taking, life.trace.as_ref(), how);
        }
        self.overrides(&records.overrides);
    }

    /// A process takes the run; `before` is how the one before it ended.
    fn process(&mut self, at: Timestamp, taking: Taking, trace: Option<&ua_core::Trace>, before: Option<Ended>) {
        let Taking { epoch, process, is_the_same } = taking;
        let event = json!({"event": "process_started", "epoch": epoch, "trace_id": trace});
        let text = match before {
            None => format!("process {process} starts work on the run"),
            Some(Ended { end: LifeEnd::Dropped, .. }) => {
                format!("process {process} takes over again: its program had dropped the run")
            }
            Some(_) if is_the_same => format!("process {process} continues, after somebody was asked"),
            Some(Ended { end: LifeEnd::Killed, .. }) => {
                format!("process {process} takes over: the one before it died")
            }
            Some(Ended { end: LifeEnd::Interrupted, by }) => {
                let by = by.map_or("a second signal", EndedBy::in_words);
                format!("process {process} takes over: the one before it was ended by {by}")
            }
            Some(Ended { end: LifeEnd::InOrder | LifeEnd::Open | LifeEnd::NotRemembered, .. }) => {
                format!("process {process} takes over the run")
            }
        };
        self.note(at, event, text);
    }

    fn overrides(&mut self, overrides: &[OverrideRecord]) {
        for change in overrides {
            let (kind, component) = (stored_name(&change.kind), brief(&change.component, 60));
            let event = json!({"event": "override", "kind": kind, "component": change.component, "by": change.made_by});
            let text = format!("{} changed {kind} {component}", brief(&change.made_by, 60));
            self.note(change.created_at, event, text);
        }
    }

    fn requests(&mut self, records: &RunRecords) {
        for request in &records.requests {
            let turn = request.turn;
            let event = json!({"event": "thinking", "turn": turn, "model": request.model});
            self.note(request.reserved_at, event, format!("turn {turn} · thinking"));
            let Some(closed_at) = request.closed_at else { continue };
            let event = json!({
                "event": "request_charged", "turn": turn, "status": request.status, "usage": request.usage, "cost": request.cost,
            });
            let cost = request.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
            // The turns are looked through only where it is a question.
            let is_whole = request.status == RequestStatus::Partial && records.brought_a_reply(request);
            let charged = charged_tokens(request.status, request.network_attempted, is_whole, request.usage);
            self.note(closed_at, event, format!("turn {turn} · {charged}{cost}"));
        }
    }

    fn turns(&mut self, records: &RunRecords) {
        for turn in &records.turns {
            let calls = records.calls_of_turn(turn.turn).len();
            let event = json!({"event": "turn_recorded", "turn": turn.turn, "calls": calls, "epoch": turn.epoch});
            self.note(
                turn.recorded_at,
                event,
                format!("turn {} · {calls} planned", turn.turn, calls = ua_core::counted(calls, "call")),
            );
        }
    }

    fn call(&mut self, run: &RunRecord, rows: &ByCall<'_>, call: &CallRecord) {
        let place = format!("{} · {}", ua_resume::place_in_words(run, call), brief(self.names.of(&call.name), 80));
        for attempt in rows.attempts(call) {
            if let Some(of) = learnt_of_another(attempt) {
                let text = format!(
                    "{place} of attempt {of} effects.log says that {}",
                    said_beside(attempt).unwrap_or_default()
                );
                self.note(attempt.started_at, call_event("attempt_learnt", call, of, ""), text);
                continue;
            }
            let text = format!("{place} {}", attempted(attempt.attempt, &call.arguments.to_string()));
            self.note(attempt.started_at, call_event("call_sending", call, attempt.attempt, "running"), text);
            let Some(ended_at) = attempt.ended_at else { continue };
            let outcome = attempt.outcome.as_deref().unwrap_or("ended");
            let mut event = call_event("attempt_ended", call, attempt.attempt, "");
            event["outcome"] = json!(outcome);
            event["took_millis"] = json!(took_millis(attempt));
            let detail = detail_in_words(attempt).map_or_else(String::new, |text| format!(": {}", brief(text, 120)));
            self.note(ended_at, event, format!("{place} {}{detail}", outcome.replace('_', " ")));
        }
        if call.status.is_settled() {
            let event = call_event("call_settled", call, call.attempt, call.status.as_str());
            self.note(call.updated_at, event, format!("{place} {}", in_words(call)));
        }
    }

    fn questions(&mut self, records: &RunRecords) {
        for question in &records.questions {
            let event = json!({
                "event": "held", "question_id": question.question_id, "tool_call_id": question.call_id, "kind": question.kind,
            });
            self.note(question.created_at, event, format!("a question · {}", brief(&question.text, 200)));
            self.answer(question);
        }
    }

    fn answer(&mut self, question: &QuestionRecord) {
        let Some(answer) = &question.answer else { return };
        let event = json!({
            "event": "answered", "question_id": question.question_id, "tool_call_id": question.call_id, "choice": answer.choice,
            "by": answer.by,
        });
        let what = ua_resume::answers::in_short(question.kind, answer.choice, answer.text.as_deref());
        let text = format!("{} answered {}: {what}", brief(&answer.by, 60), question.question_id);
        self.note(answer.answered_at, event, text);
    }

    fn signals(&mut self, records: &RunRecords) {
        for asked in records.checkpoints.iter().filter(|checkpoint| checkpoint.kind == CheckpointKind::Interrupt) {
            let event = json!({"event": "interrupted"});
            let by = Audience::of(&records.run.entrypoint).interrupted_by();
            self.note(asked.created_at, event, format!("stopping: {by}"));
        }
    }

    fn told_to_the_model(&mut self, records: &RunRecords) {
        for told in records.messages.iter().filter(|told| told.message.origin == Origin::Guidance) {
            let text = told.message.text();
            let event = json!({"event": "guided", "turn": told.turn, "text": text});
            self.note(told.created_at, event, guided(&text));
        }
    }

    fn progress(&mut self, records: &RunRecords) {
        for iteration in ua_resume::iterations(records).into_iter().filter(|iteration| iteration.number > 1) {
            let Some(begun_at) = iteration.begun_at else { continue };
            let (number, of) = (iteration.number, records.run.max_iterations);
            let event =
                json!({"event": "iteration_begun", "number": number, "of": of, "turn": iteration.first_turn - 1});
            self.note(begun_at, event, format!("iteration {number} begins after turn {}", iteration.first_turn - 1));
        }
        for turn in &records.turns {
            let Some(committed_at) = turn.committed_at else { continue };
            let event = json!({"event": "turn_committed", "turn": turn.turn});
            self.note(committed_at, event, format!("turn {} · committed", turn.turn));
        }
    }

    fn end(&mut self, run: &RunRecord) {
        if matches!(run.status, ua_core::RunStatus::Queued | ua_core::RunStatus::Running) {
            return;
        }
        let event = json!({"event": "run_ended", "status": run.status, "stop_reason": run.stop_reason});
        let detail = status_detail(run.status, run.status_detail.as_deref());
        let detail = detail.map_or_else(String::new, |text| format!(": {}", brief(text, 200)));
        let text = format!("{}{detail}", status_words(run.status, run.stop_reason));
        self.note(run.updated_at, event, text);
    }

    fn sorted(mut self) -> Vec<Entry> {
        // Stable: what shares an instant stays in the order in which it was told.
        self.entries.sort_by_key(|entry| entry.at);
        self.entries
    }

    fn told(self) -> Vec<LogLine> {
        self.sorted().into_iter().map(Entry::told).collect()
    }
}

fn call_event(event: &str, call: &CallRecord, attempt: u32, status: &str) -> Value {
    let mut value = json!({
        "event": event, "step_id": call.step_id, "tool_call_id": call.call_id, "turn": call.position.turn,
        "ordinal": call.position.ordinal, "tool": call.name.raw, "attempt": attempt,
    });
    if !status.is_empty() {
        value["status"] = json!(status);
    }
    value
}

fn in_words(call: &CallRecord) -> String {
    if call.is_answered_by_twin() {
        return "done before, not repeated".to_owned();
    }
    if matches!(call.status, CallStatus::FailedDefinite | CallStatus::FailedReported) {
        return ua_resume::failure_in_words(call, |why| brief(why, 120));
    }
    let detail = call.error_in_words().map_or_else(String::new, |text| format!(": {}", brief(&text, 120)));
    format!("{}{detail}", call.status.in_words())
}

fn took_millis(attempt: &AttemptRecord) -> Option<u64> {
    let took = attempt.ended_at?.since(attempt.started_at).as_millis();
    u64::try_from(took).ok()
}

/// The attempt, where it is not the first one, and the arguments of a call that is sent. The attempt comes first: where a line is too long for
/// a terminal, the arguments give way.
pub fn attempted(attempt: u32, arguments: &str) -> String {
    let arguments = brief(arguments, 90);
    if attempt > 1 { format!("(attempt {attempt}) {arguments}") } else { arguments }
}

/// That a model which stopped early was told what is missing, in a line: what, and how much of it there is.
pub fn guided(guidance: &str) -> String {
    if let Some(words) = ua_evidence::said_by_persons(guidance) {
        let on_a_line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        return format!("the model was told what a person says: {}", brief(&on_a_line, 120));
    }
    match ua_evidence::missing_in_short(guidance) {
        Some(missing) => format!("the model stopped early; missing: {}", brief(&missing, 120)),
        None => format!("the model stopped early; told: {}", brief(guidance, 120)),
    }
}

/// What one request was charged, in words. `was_sent`: it left for the provider; `is_whole`: a whole reply came of it.
pub fn charged_tokens(status: RequestStatus, was_sent: bool, is_whole: bool, usage: Usage) -> String {
    let (input, output) = (usage.total() - usage.output_tokens, usage.output_tokens);
    match status {
        RequestStatus::Actual | RequestStatus::Reserved => format!("{input} tokens in, {output} out"),
        RequestStatus::Partial if is_whole => {
            format!("no usage came back, charged {input} tokens in, {output} out as estimated")
        }
        RequestStatus::Partial => format!("the reply broke off, charged {input} tokens in, {output} out until then"),
        RequestStatus::Baseline => format!("no usage came back, charged {input} tokens as estimated"),
        RequestStatus::Zero if was_sent => "the provider began no reply, nothing is charged".to_owned(),
        RequestStatus::Zero => "nothing was sent, nothing is charged".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ua_core::RunStatus;

    use super::*;
    use ua_evidence::testing::{Story, hostile_story, mail_policy, read_policy};

    #[test]
    fn what_does_not_fit_a_line_is_the_least_of_it() {
        let long = "x".repeat(200);
        assert!(attempted(2, &long).starts_with("(attempt 2) xxx"), "the attempt is kept where a line is cut");
        assert!(attempted(1, &long).starts_with("xxx"));
        let story =
            Story::new(r#"{"objective": "x", "stop_conditions": ["email_sent_once", {"artifact": "report.html"}]}"#);
        let report = ua_evidence::evaluate(&story.records.run.spec, &[], &[], &[], &|_| None);
        assert_eq!(
            guided(&report.missing_for_model()),
            "the model stopped early; missing: email.send (0 of 1), file report.html"
        );
        assert_eq!(guided("Your reply was cut."), "the model stopped early; told: Your reply was cut.");
        let words = ["- Write to Ada: twice.".to_owned(), "Not to Bob.".to_owned()];
        for audience in [Audience::Terminal, Audience::Program] {
            let words = ua_evidence::words_of_persons(&words, audience);
            assert_eq!(guided(&words), "the model was told what a person says: - Write to Ada: twice. Not to Bob.");
        }
    }

    #[test]
    fn a_whole_reply_that_nobody_counted_has_not_broken_off() {
        let usage = Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() };
        let told = |status, is_whole| charged_tokens(status, true, is_whole, usage);
        assert_eq!(told(RequestStatus::Partial, true), "no usage came back, charged 9 tokens in, 2 out as estimated");
        assert_eq!(told(RequestStatus::Partial, false), "the reply broke off, charged 9 tokens in, 2 out until then");
        assert_eq!(told(RequestStatus::Zero, false), "the provider began no reply, nothing is charged");
    }

    fn told() -> Story {
        let mut story = Story::new(r#"{"objective": "Read the page and mail Ana."}"#);
        let read = story.asks("", &[("crawl", json!({"url": "http://127.0.0.1/a"}), read_policy())])[0].clone();
        story.starts(&read);
        story.succeeds(&read, "text", None);
        story.commits();
        let send = story.asks("", &[("send_email", json!({"to": "ana@example.test"}), mail_policy())])[0].clone();
        story.starts(&send);
        story.is_killed();
        story.loses(&send);
        let question = story.questions(&send);
        story.answered_happened(&question, &send, "<m-1@example.test>");
        story.commits();
        story.asks("Done.", &[]);
        story.commits();
        story.ends(RunStatus::Succeeded, None, "every stop condition holds");
        story
    }

    #[test]
    fn a_log_tells_what_happened_in_order() {
        let story = told();
        insta::assert_snapshot!("run_log", log_files(&story.records).run_log);
        insta::assert_snapshot!("trace_lines", log_files(&story.records).trace_lines);
    }

    #[test]
    fn each_line_is_an_object_with_a_name_a_run_and_an_instant_that_never_goes_back() {
        let story = told();
        let lines: Vec<Value> =
            log_files(&story.records).trace_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| line["event"].is_string() && line["run_id"].is_string()));
        let instants: Vec<Timestamp> =
            lines.iter().map(|line| Timestamp::parse(line["at"].as_str().unwrap()).unwrap()).collect();
        assert!(instants.is_sorted(), "{instants:?}");
    }

    /// Whatever line is missing in logs that a process kept, it is put in at its time, and once; what only the process knew stays.
    #[test]
    fn logs_that_were_kept_get_what_only_the_rows_tell() {
        let story = told();
        let whole = log_files(&story.records);
        let only_live = "2026-01-02T03:04:05.000Z database · busy";
        let kept_log = format!("{only_live}\n{}", whole.run_log);
        let same = completed_logs(&story.records, &whole.trace_lines, &kept_log);
        assert_eq!((same.trace_lines.as_str(), same.run_log.as_str()), (whole.trace_lines.as_str(), kept_log.as_str()));
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let without = |text: &str, left_out: usize| {
            let lines = text.split_inclusive('\n').enumerate().filter(|(number, _)| *number != left_out);
            lines.map(|(_, line)| line).collect::<String>()
        };
        let mut put_in = 0;
        for (number, event) in whole.trace_lines.lines().enumerate() {
            let (trace, log) = (without(&whole.trace_lines, number), without(&whole.run_log, number));
            let completed = completed_logs(&story.records, &trace, &format!("{only_live}\n{log}"));
            assert!(completed.run_log.contains(only_live));
            let again = completed_logs(&story.records, &completed.trace_lines, &completed.run_log);
            assert_eq!(again, completed, "{event}");
            if event.contains(TOLD_WITH_THE_CALL) {
                assert_eq!(completed.trace_lines, trace, "{event}");
                continue;
            }
            put_in += 1;
            assert_eq!(sorted(&completed.trace_lines), sorted(&whole.trace_lines), "{event}");
            assert_eq!(sorted(&completed.run_log), sorted(&kept_log), "{event}");
        }
        assert!(put_in > 10, "{put_in}");
        assert!(log_files(&story.records).trace_lines.contains("\"answered\""));
    }

    #[test]
    fn what_tools_and_models_say_stays_on_its_line() {
        let (story, _) = hostile_story();
        let log = log_files(&story.records).run_log;
        assert!(!log.contains(['\u{1b}', '\u{202e}']), "{log}");
        assert!(log.lines().all(|line| line.starts_with("20")), "{log}");
        assert_eq!(log.lines().count(), log_files(&story.records).trace_lines.lines().count());
    }
}
