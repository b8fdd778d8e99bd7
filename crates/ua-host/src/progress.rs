//! Progress while a run works: lines for people, the same lines in `run.log`, and `trace.jsonl` for machines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use ua_core::{CallStatus, Env, Redactor, Resolution, RunId, RunStop, ShortNames, Timestamp, span_in_words};
use ua_dispatch::{Asked, CallProgress, Finding};
use ua_evidence::os_words::in_plain_words;
use ua_report::{LogLine, charged_tokens};
use ua_runner::{RunEvent, Watcher, Workspace};
use ua_store::{CallRecord, QuestionKind, QuestionRecord, QuestionsOf, RunRecord, RunStore as _, Store, Turns};

use crate::error::HostError;
use crate::people::{ObservedEvent, People};
use crate::text::{line, line_with_names};

/// Where progress goes.
struct Progress {
    workspace: Workspace,
    run: RunId,
    env: Env,
    /// In front of both files, whatever a line is made from.
    redactor: Redactor,
    started_at: Timestamp,
    people: Arc<dyn People>,
    /// The sub-agent whose work this is; `None` for the run that a person started.
    label: Option<String>,
    sent: Mutex<BTreeMap<String, Sent>>,
    /// How tools are called, once it is known which are offered.
    names: Mutex<ShortNames>,
}

/// A call that is under way.
struct Sent {
    at: Timestamp,
    /// When its answer came.
    answered_at: Option<Timestamp>,
    /// Where it stands in its run, and its tool: what a line about it begins with.
    named: String,
}

impl Sent {
    /// How long its tool took, and how much later that is stored, where somebody would take one for the other.
    fn took(&self, now: Timestamp) -> String {
        let answered_at = self.answered_at.unwrap_or(now);
        let (took, waited) = (seconds(answered_at.since(self.at)), now.since(answered_at));
        if waited < SOON {
            return took;
        }
        format!("{took}, stored {} later", span_in_words(Duration::from_secs(waited.as_secs())))
    }
}

/// An answer that is stored within this time is stored when it comes.
const SOON: Duration = Duration::from_secs(2);

/// Makes the watcher of one process's work on a run.
pub(crate) fn watcher(
    workspace: Workspace,
    run: &RunId,
    env: Env,
    redactor: Redactor,
    people: Arc<dyn People>,
    label: Option<String>,
) -> Watcher {
    let run = run.clone();
    let (sent, names) = (Mutex::default(), Mutex::default());
    let progress = Progress { workspace, run, started_at: env.now(), env, redactor, people, label, sent, names };
    Arc::new(move |signal| progress.take(&signal))
}

impl Progress {
    fn take(&self, signal: &RunEvent) {
        let (text, now) = (self.line_for(signal), self.env.now());
        self.people.watch(&ObservedEvent {
            sub_agent: self.label.as_deref(),
            elapsed: now.since(self.started_at),
            line: text.as_deref(),
            signal,
        });
        if let Some(text) = text {
            self.keep("run.log", &format!("{now} {}", in_plain_words(&text)));
        }
        if let Some(mut event) = event_for(signal) {
            event["run_id"] = json!(self.run);
            event["at"] = json!(self.env.now());
            self.keep("trace.jsonl", &event.to_string());
        }
    }

    fn keep(&self, file: &str, text: &str) {
        keep(&self.workspace, &self.redactor, file, text);
    }

    fn line_for(&self, signal: &RunEvent) -> Option<String> {
        match signal {
            RunEvent::Resuming { turn_index, in_flight, unsent } => {
                Some(resuming_in_words(*turn_index, *in_flight, *unsent))
            }
            RunEvent::Accepted { changes, .. } => {
                let texts: Vec<String> = ua_runner::changes_in_words(changes).collect();
                Some(format!("accepted as it is now: {}", line(&texts.join("; "), 300)))
            }
            RunEvent::NothingToAccept { component } => {
                Some(format!("nothing to accept: `{component}` has not changed"))
            }
            RunEvent::NotNoted { why } => Some(format!(
                "not recorded in {}; if the database is replaced by an older copy, ua will not notice that it lacks what was sent",
                line(why, 300)
            )),
            RunEvent::PhaseEntered { phase, number, of } => Some(format!("phase {number}/{of} · {phase}")),
            RunEvent::IterationBegun { number, of, why } => {
                Some(format!("iteration {number}/{of} · the one before: {why}"))
            }
            RunEvent::Thinking { turn } => Some(format!("turn {turn} · thinking")),
            RunEvent::EffectCounted { effect, counted, perhaps } => Some(counted_line(effect, counted, perhaps)),
            RunEvent::ToolLeftOut { turn, tool, why } => Some(format!(
                "turn {turn} · the provider does not take the tool {}, left out: {}",
                line(tool, 80),
                line(why, 160)
            )),
            RunEvent::ReplyShortened { turn, tokens, why } => Some(format!(
                "turn {turn} · a reply of that length is refused, asking again for {tokens} tokens at most: {}",
                line(why, 160)
            )),
            RunEvent::FormLeftOut { turn, why } => Some(format!(
                "turn {turn} · the provider does not take the form of the result (`output_schema`), asking again without it; the result is checked \
                 here: {}",
                line(why, 160)
            )),
            RunEvent::ImagesLeftOut { turn, older, why } => Some(format!(
                "turn {turn} · refused, perhaps for images of tools, asking again without {}: {}",
                if *older { "the older ones" } else { "them" },
                line(why, 160)
            )),
            RunEvent::HistoryCut { turn, perhaps: false } => {
                Some(format!("turn {turn} · too long for the model, asking again with less of the history"))
            }
            RunEvent::HistoryCut { turn, perhaps: true } => Some(format!(
                "turn {turn} · refused, perhaps because it is too long for the model; asking again with less of the history"
            )),
            RunEvent::ReadsOnly { turn, tokens, is_cut } => Some(reads_only_in_words(*turn, *tokens, *is_cut)),
            RunEvent::NewestShortened { turn } => Some(format!(
                "turn {turn} · what came last is too long for the model: it is shown the beginning and the end of the longest texts; the run keeps \
                 them whole"
            )),
            RunEvent::SessionForgotten { turn, .. } => {
                Some(format!("turn {turn} · the provider has forgotten the conversation, sending the whole history"))
            }
            RunEvent::TimeUsedUp { max_minutes } => Some(self.time_used_up(*max_minutes)),
            RunEvent::DatabaseBusy { doing, why } => {
                Some(format!("database · busy ({}), waiting to {doing}", line(why, 120)))
            }
            RunEvent::DatabaseFull { doing: _, why, left_millis } => Some(format!(
                "database · {}: waiting up to {} for room for what a tool answered; make some, and the run continues by itself (one Ctrl-C does not \
                 give the answer up; a second one does, and so does SIGTERM soon, unless late_replies.log has it)",
                line(why, 120),
                span_in_words(Duration::from_millis(*left_millis))
            )),
            RunEvent::AnswerNotKept { call_id, said, why } => Some(format!(
                "the answer of {call_id} is recorded nowhere: the database does not accept it, and {}. The tool said: {}. If this process ends \
                 before there is room, say what the tool said when the run asks: `ua calls resolve {call_id} --happened`, or `--retry` if it did nothing",
                line(why, 200),
                line(said, 300)
            )),
            RunEvent::AnswerKept { call_id } => Some(format!(
                "the answer of {call_id} is kept in late_replies.log now: a resume stores it, should this process end before the database takes it"
            )),
            RunEvent::HistoryOverLimit { max_tokens, after_refusal } => {
                Some(over_limit_in_words(*max_tokens, *after_refusal))
            }
            RunEvent::Retrying { attempt, why, wait_millis, left_millis, may_be_billed, ends_in_millis } => {
                let (wait, left) = (Duration::from_millis(*wait_millis), Duration::from_millis(*left_millis));
                let ends_in = ends_in_millis.map(Duration::from_millis);
                Some(format!(
                    "model · attempt {attempt} failed ({}); {}",
                    line(why, 120),
                    next_try_in_words(self.env.now(), wait, left, *may_be_billed, ends_in)
                ))
            }
            RunEvent::ToolServerAway { was_sent, attempt, why, wait_millis, left_millis, ends_in_millis } => {
                let (wait, left) = (Duration::from_millis(*wait_millis), Duration::from_millis(*left_millis));
                let ends_in = ends_in_millis.map(Duration::from_millis);
                let next = next_try_in_words(self.env.now(), wait, left, false, ends_in);
                let sent =
                    if *was_sent { "the call was sent before and is not sent again" } else { "nothing was sent" };
                Some(format!("tools · attempt {attempt} failed ({}), {sent}; {next}", line(why, 160)))
            }
            RunEvent::Recorded { turn, calls, tool_calls, max_tool_calls } => {
                let used = match *max_tool_calls {
                    Some(max) if *tool_calls > max => {
                        format!("{} more than the budget of {}", tool_calls - max, ua_core::counted(max, "call"))
                    }
                    Some(max) => format!("{tool_calls}/{max} calls used"),
                    None => format!("{tool_calls} calls used"),
                };
                (*calls > 0).then(|| format!("turn {turn} · {} planned · {used}", ua_core::counted(calls, "call")))
            }
            RunEvent::Charged { turn, status, was_sent, is_whole, charge, spent, max_tokens, max_cost } => {
                let cost = charge.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
                let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
                let used = if spent.costs.is_empty() {
                    String::new()
                } else {
                    format!(" · {}{}", spent.costs, of(max_cost.map(|max| max.to_string())))
                };
                let tokens = of(max_tokens.map(|max| max.to_string()));
                Some(format!(
                    "turn {turn} · {}{cost} · used so far: {}{tokens} tokens{used}",
                    charged_tokens(*status, *was_sent, *is_whole, charge.usage),
                    spent.tokens
                ))
            }
            RunEvent::Call(notice) => self.call_line(notice),
            RunEvent::Guided { text } => Some(ua_report::guided(text)),
            RunEvent::ToolsOffered { names } => {
                *self.names() = names.clone();
                None
            }
            RunEvent::ToolsListed { .. } | RunEvent::Text { .. } | RunEvent::Committed { .. } => None,
        }
    }

    /// That the time is used up, and what happens now: for an answer that never comes, nothing else would be told.
    fn time_used_up(&self, max_minutes: u64) -> String {
        const NAMED: usize = 3;
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named: Vec<&str> = sent.values().take(NAMED).map(|sent| sent.named.as_str()).collect();
        if sent.len() > NAMED {
            named.push("others");
        }
        let next = if named.is_empty() {
            "what is under way is waited for, and nothing is begun after it".to_owned()
        } else {
            format!(
                "what was sent is never cut, so the answer is waited for ({}), and nothing is begun after it; `timeout` in a policy rule limits such a \
                 wait",
                named.join(", ")
            )
        };
        format!("time · `max_wallclock_minutes` is used up ({max_minutes} min): {next}")
    }

    fn names(&self) -> std::sync::MutexGuard<'_, ShortNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the tool of a call is called in a line.
    fn short(&self, call: &CallRecord) -> String {
        self.names().of(&call.name).to_owned()
    }

    /// Notes a call that an answer is waited for, and says how long that took, and whose it is.
    fn under_way(&self, call: &CallRecord) {
        let sent =
            Sent { at: self.env.now(), answered_at: None, named: format!("{} · {}", place(call), self.short(call)) };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).insert(call.call_id.to_string(), sent);
    }

    fn call_line(&self, notice: &CallProgress) -> Option<String> {
        Some(match notice {
            CallProgress::Sending { call } => {
                self.under_way(call);
                format!(
                    "{} · {} {}",
                    place(call),
                    self.short(call),
                    attempted(call.attempt, &call.arguments.to_string())
                )
            }
            CallProgress::Settled { call } => {
                let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).remove(call.call_id.as_str());
                let took = sent.map(|sent| sent.took(self.env.now()));
                // One that was refused may have a name that no tool has.
                format!("{} · {} {}", place(call), line(&self.short(call), 80), outcome_after(call, took.as_deref()))
            }
            CallProgress::Answered { call_id } => {
                let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(sent) = sent.get_mut(call_id.as_str()) {
                    sent.answered_at = Some(self.env.now());
                }
                return None;
            }
            CallProgress::Retrying { call, wait, max_retries } => {
                let why = call.error_in_words().map_or_else(|| "it failed".to_owned(), |why| line(&why, 120));
                format!(
                    "{} · {} failed before taking effect ({why}), {} in {}",
                    place(call),
                    self.short(call),
                    retry_in_words(call.attempt, *max_retries),
                    span_in_words(*wait)
                )
            }
            CallProgress::Waiting { call, wait } => {
                let what = if call.policy.is_free_read() {
                    "no answer came, asked again"
                } else {
                    "outcome unknown, to be decided"
                };
                format!("{} · {} {what} in {}", place(call), self.short(call), span_in_words(*wait))
            }
            CallProgress::Probed { call, asked } => {
                format!("{} · {} outcome unknown: {}", place(call), self.short(call), line(&finding_text(asked), 160))
            }
            CallProgress::Resuming { call, task } => {
                self.under_way(call);
                let how = if task.is_some() { "asking for its task" } else { "continuing" };
                format!("{} · {} was already sent: {how}", place(call), self.short(call))
            }
            CallProgress::Progress { call_id, text } => {
                let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
                let named = sent.get(call_id.as_str()).map_or_else(|| call_id.to_string(), |sent| sent.named.clone());
                format!("{named} · {}", line(text, 160))
            }
            CallProgress::Asking { question, patience } => format!(
                "a tool asks, waiting up to {} for your answer · {} · `ua answer {}`",
                span_in_words(*patience),
                asked(question, 300),
                question.question_id
            ),
            CallProgress::Declined { call, waited } if waited.is_zero() => {
                format!(
                    "{} · {} asked a question, which was declined: this run may not ask anybody",
                    place(call),
                    self.short(call)
                )
            }
            CallProgress::Declined { call, waited } => format!(
                "{} · {} asked a question, which was declined: nobody answered within {}",
                place(call),
                self.short(call),
                span_in_words(*waited)
            ),
            CallProgress::Held { question } => format!("a question · {}", asked(question, 200)),
        })
    }
}

/// Keeps lines that come from rows: what happened while nobody drove the run, and how a process's work on it ended.
pub(crate) fn keep_lines(workspace: &Workspace, redactor: &Redactor, lines: &[LogLine]) {
    for LogLine { text, event } in lines {
        keep(workspace, redactor, "run.log", text);
        keep(workspace, redactor, "trace.jsonl", event);
    }
}

/// Keeps a sentence in the log of a run that no event of the run says.
pub(crate) fn keep_note(workspace: &Workspace, redactor: &Redactor, at: Timestamp, sentence: &str) {
    keep(workspace, redactor, "run.log", &format!("{at} {sentence}"));
}

/// The most that is read of a log, to see what stands in it.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// The same, without those that stand there: an answer is added when it is given, and whoever takes the run next has it among what happened meanwhile.
pub(crate) fn keep_new_lines(workspace: &Workspace, redactor: &Redactor, mut lines: Vec<LogLine>) {
    let kept = workspace.folder().read("trace.jsonl", MAX_LOG_BYTES).unwrap_or_default();
    let kept = ua_report::Told::in_trace(&String::from_utf8_lossy(&kept));
    lines.retain(|line| !kept.has(line));
    keep_lines(workspace, redactor, &lines);
}

/// So many turns at the end of a run are looked through for what no process told. What belongs to no turn is looked at whole.
const LOOKED_THROUGH: u32 = 50;

/// Keeps in the logs of a run what its rows have and this process did not say, and how it leaves the run. What cannot be read is in the rows all the
/// same, and an export has it.
pub(crate) async fn keep_leaving(store: &dyn Store, workspace: &Workspace, redactor: &Redactor, run: &RunId) {
    let Ok(run) = store.run(run).await else { return };
    let newest = Turns::Range(run.turn_index.saturating_sub(LOOKED_THROUGH).max(1), run.turn_index.saturating_add(1));
    if let Ok(mut records) = store.load_of(&run.run_id, newest).await {
        if run.stop_reason == Some(RunStop::Interrupt)
            && let Ok(markers) = store.load_of(&run.run_id, Turns::Markers(0, u32::MAX)).await
        {
            records.checkpoints = markers.checkpoints;
        }
        keep_new_lines(workspace, redactor, ua_report::untold_lines(&records));
    }
    keep_lines(workspace, redactor, &ua_report::end_lines(&run));
}

/// Keeps in the logs of a run what people did since its last process left it, and how it ended, for whoever ended it without driving it. Nothing
/// where no process kept logs: those are made from the rows then.
///
/// # Errors
/// The database cannot be read.
pub async fn keep_end(
    store: &dyn Store,
    workspace: &Workspace,
    redactor: &Redactor,
    run: &RunRecord,
) -> Result<(), HostError> {
    let reading = |e| HostError::store("read what happened since", &e);
    let questions = store.questions_of(QuestionsOf::Run(run.run_id.clone())).await.map_err(reading)?;
    let overrides = store.overrides(&run.run_id).await.map_err(reading)?;
    keep_new_lines(workspace, redactor, ua_report::start_lines(run, &questions, &overrides));
    keep_lines(workspace, redactor, &ua_report::end_lines(run));
    Ok(())
}

/// The one way into these files, and no line takes it with a secret in it. They can be made again from the database, so a full disk must not
/// end the run here: the database says so itself.
fn keep(workspace: &Workspace, redactor: &Redactor, file: &str, text: &str) {
    if let Err(error) = workspace.append_line(file, &redactor.text(text)) {
        tracing::debug!(%error, file, "a line of progress could not be kept");
    }
}

/// What a probe said, as a clause.
pub fn finding_text(asked: &Asked) -> String {
    match &asked.finding {
        Finding::Found { id: Some(id), by, .. } => format!("found by `{}`, {by}: {id}", asked.tool),
        Finding::Found { id: None, by, .. } => format!("found by `{}`, {by}", asked.tool),
        Finding::Absent if asked.proves_absence() => format!("`{}` does not have it", asked.tool),
        Finding::Absent => {
            let from = asked
                .conclusive_from
                .map_or_else(|| "once its attempt is known to have ended".to_owned(), |from| format!("from {from} on"));
            format!("`{}` does not have it, which is conclusive {from}", asked.tool)
        }
        Finding::Unclear { why } => format!("unclear: {why}"),
    }
}

/// The attempt and the arguments of a call that is sent. The attempt comes first: where a line is too long for a terminal, the arguments give way.
pub fn attempted(attempt: u32, arguments: &str) -> String {
    ua_report::attempted(attempt, arguments)
}

/// Where a call of a run that a process drives stands in it; no session of a client is driven.
fn place(call: &CallRecord) -> String {
    format!("turn {} · call {}", call.position.turn, call.position.ordinal)
}

/// How a call ended, and how long that took: behind the words of a tool as a part of its own, since they may be any.
pub fn outcome_after(call: &CallRecord, took: Option<&str>) -> String {
    let outcome = outcome(call);
    match took {
        Some(took) if outcome.contains(": ") => format!("{outcome} · after {took}"),
        Some(took) => format!("{outcome} in {took}"),
        None => outcome,
    }
}

/// Which retry follows this attempt. One that a stop kept from leaving is made however many there were.
fn retry_in_words(attempt: u32, max: u32) -> String {
    if attempt > max { format!("retry {attempt}") } else { format!("retry {attempt} of {max}") }
}

pub fn outcome(call: &CallRecord) -> String {
    match call.status {
        CallStatus::Succeeded if call.answered_by().is_some() => "done before, not repeated".to_owned(),
        // Nothing ran just now: what an earlier process sent is held to have happened.
        CallStatus::Succeeded if call.resolution == Some(Resolution::Happened) => {
            "happened, as a person says; not sent again".to_owned()
        }
        CallStatus::Succeeded if call.resolution == Some(Resolution::Reconciled) => {
            "happened, as was found out; not sent again".to_owned()
        }
        CallStatus::Succeeded => "ok".to_owned(),
        CallStatus::Cancelled if call.resolution == Some(Resolution::Refused) => format!("refused{}", refused(call)),
        CallStatus::Cancelled => format!("not run{}", refused(call)),
        CallStatus::FailedDefinite | CallStatus::FailedReported => {
            ua_resume::failure_in_words(call, |why| line_with_names(why, 120))
        }
        CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown => call.status.to_string(),
    }
}

/// Why a call was refused, or not run, as the end of a line: what its tool and its model are told begins with that it was not run.
fn refused(call: &CallRecord) -> String {
    let detail = call.error_detail.as_deref().unwrap_or_default();
    let begins = ["Not run: ", "Refused: "];
    let why = begins.into_iter().find_map(|begin| detail.strip_prefix(begin)).unwrap_or(detail);
    if why.is_empty() {
        return String::new();
    }
    // A limit is told to the model; which of the calls that count did not happen is a person's to say.
    if call.error_code.as_deref() == Some("effect_limit") {
        return format!(
            ": {} (`ua calls resolve CALL --as not_happened --reason TEXT` takes out one that did not happen)",
            line(why, 400)
        );
    }
    format!(": {}", line(why, 240))
}

/// Where a run is resumed that has committed so many turns, and what of the next one is open.
fn resuming_in_words(committed: u32, in_flight: usize, unsent: usize) -> String {
    let place = match in_flight + unsent {
        0 => ua_resume::after_turn(committed),
        // Calls are open in the turn that is not committed.
        _ => format!("in turn {}", committed + 1),
    };
    let open = match (in_flight, unsent) {
        (0, 0) => "no call in flight".to_owned(),
        (0, unsent) => format!("{} not sent yet", ua_core::counted(unsent, "call")),
        (sent, 0) => format!("{} in flight", ua_core::counted(sent, "call")),
        (sent, unsent) => format!("{} in flight, {unsent} not sent yet", ua_core::counted(sent, "call")),
    };
    format!("resuming {place}, {open}")
}

fn event_for(signal: &RunEvent) -> Option<Value> {
    let call_event = |event: &str, call: &CallRecord| {
        json!({
            "event": event, "run_id": call.run_id, "step_id": call.step_id, "tool_call_id": call.call_id, "turn": call.position.turn,
            "ordinal": call.position.ordinal, "tool": call.name.raw, "status": call.status, "attempt": call.attempt,
        })
    };
    Some(match signal {
        RunEvent::Resuming { turn_index, in_flight, unsent } => {
            json!({"event": "resuming", "turn_index": turn_index, "in_flight": in_flight, "unsent": unsent})
        }
        RunEvent::Accepted { component, changes } => {
            json!({"event": "accepted", "component": component, "changes": changes, "offered": changes.new_tools()})
        }
        RunEvent::NothingToAccept { component } => json!({"event": "nothing_to_accept", "component": component}),
        RunEvent::NotNoted { why } => json!({"event": "not_noted", "why": why}),
        RunEvent::PhaseEntered { phase, number, of } => {
            json!({"event": "phase_entered", "phase": phase, "number": number, "of": of})
        }
        RunEvent::IterationBegun { number, of, why } => {
            json!({"event": "iteration_begun", "number": number, "of": of, "why": why})
        }
        RunEvent::Thinking { turn } => json!({"event": "thinking", "turn": turn}),
        RunEvent::EffectCounted { effect, counted, perhaps } => {
            json!({"event": "effect_counted", "effect": effect, "tools": counted, "undeclared": perhaps})
        }
        RunEvent::ToolLeftOut { turn, tool, why } => {
            json!({"event": "tool_left_out", "turn": turn, "tool": tool, "why": why})
        }
        RunEvent::ReplyShortened { turn, tokens, why } => {
            json!({"event": "reply_shortened", "turn": turn, "max_output_tokens": tokens, "why": why})
        }
        RunEvent::FormLeftOut { turn, why } => json!({"event": "form_left_out", "turn": turn, "why": why}),
        RunEvent::ImagesLeftOut { turn, older, why } => {
            json!({"event": "images_left_out", "turn": turn, "older": older, "why": why})
        }
        RunEvent::HistoryCut { turn, perhaps } => json!({"event": "history_cut", "turn": turn, "perhaps": perhaps}),
        RunEvent::ReadsOnly { turn, tokens, is_cut } => {
            json!({"event": "reads_only", "turn": turn, "tokens": tokens, "is_cut": is_cut})
        }
        RunEvent::NewestShortened { turn } => json!({"event": "newest_shortened", "turn": turn}),
        RunEvent::SessionForgotten { turn, response_id } => {
            json!({"event": "session_forgotten", "turn": turn, "response_id": response_id})
        }
        RunEvent::TimeUsedUp { max_minutes } => json!({"event": "time_used_up", "max_minutes": max_minutes}),
        RunEvent::DatabaseBusy { doing, why } => json!({"event": "database_busy", "doing": doing, "why": why}),
        RunEvent::DatabaseFull { doing, why, left_millis } => {
            json!({"event": "database_full", "doing": doing, "why": why, "left_millis": left_millis})
        }
        RunEvent::AnswerNotKept { call_id, said, why } => {
            json!({"event": "answer_not_kept", "tool_call_id": call_id, "said": said, "why": why})
        }
        RunEvent::AnswerKept { call_id } => json!({"event": "answer_kept", "tool_call_id": call_id}),
        RunEvent::HistoryOverLimit { max_tokens, after_refusal } => {
            json!({"event": "history_over_limit", "max_tokens": max_tokens, "after_refusal": after_refusal})
        }
        RunEvent::Retrying { attempt, why, wait_millis, left_millis, may_be_billed, ends_in_millis } => {
            json!({
                "event": "model_retry", "attempt": attempt, "why": why, "wait_millis": wait_millis, "left_millis": left_millis,
                "may_be_billed": may_be_billed, "ends_in_millis": ends_in_millis,
            })
        }
        RunEvent::ToolServerAway { was_sent, attempt, why, wait_millis, left_millis, ends_in_millis } => {
            json!({
                "event": "tool_server_away", "was_sent": was_sent, "attempt": attempt, "why": why, "wait_millis": wait_millis, "left_millis": left_millis,
                "ends_in_millis": ends_in_millis,
            })
        }
        RunEvent::Recorded { turn, calls, tool_calls, .. } => {
            json!({"event": "turn_recorded", "turn": turn, "calls": calls, "tool_calls": tool_calls})
        }
        RunEvent::Charged { turn, status, was_sent, charge, spent, .. } => json!({
            "event": "request_charged", "turn": turn, "status": status.charge_name(*was_sent), "usage": charge.usage, "cost": charge.cost,
            "total_tokens": spent.tokens, "total_cost": spent.costs,
        }),
        RunEvent::Call(CallProgress::Sending { call }) => call_event("call_sending", call),
        RunEvent::Call(CallProgress::Settled { call }) => call_event("call_settled", call),
        RunEvent::Call(CallProgress::Retrying { call, .. }) => call_event("call_retrying", call),
        RunEvent::Call(CallProgress::Waiting { call, .. }) => call_event("call_waiting", call),
        RunEvent::Call(CallProgress::Probed { call, asked }) => {
            let mut event = call_event("call_probed", call);
            event["probe"] = json!(asked.tool);
            event["finding"] = json!(finding_text(asked));
            event
        }
        RunEvent::Call(CallProgress::Resuming { call, task }) => {
            let mut event = call_event("call_resuming", call);
            event["task"] = json!(task);
            event
        }
        RunEvent::Call(CallProgress::Progress { call_id, text }) => {
            json!({"event": "call_progress", "tool_call_id": call_id, "text": text})
        }
        RunEvent::Call(CallProgress::Asking { question, .. }) => {
            json!({"event": "asking", "question_id": question.question_id, "tool_call_id": question.call_id})
        }
        RunEvent::Call(CallProgress::Declined { call, .. }) => call_event("declined", call),
        RunEvent::Call(CallProgress::Held { question }) => {
            json!({"event": "held", "question_id": question.question_id, "tool_call_id": question.call_id, "kind": question.kind})
        }
        RunEvent::Committed { turn } => json!({"event": "turn_committed", "turn": turn}),
        RunEvent::Guided { text } => json!({"event": "guided", "text": text}),
        RunEvent::ToolsListed { .. }
        | RunEvent::ToolsOffered { .. }
        | RunEvent::Text { .. }
        | RunEvent::Call(CallProgress::Answered { .. }) => return None,
    })
}

/// When the model is asked again, until when, and what it may cost; what ends that first is the run's time, if it is over before. Instants are shown by
/// the clock on the wall where a person reads them.
fn next_try_in_words(
    now: Timestamp,
    wait: Duration,
    left: Duration,
    may_be_billed: bool,
    ends_in: Option<Duration>,
) -> String {
    const TILL: &str = "when `max_wallclock_minutes` is used up";
    let again = format!("trying again in {}", span_in_words(wait));
    let (until, more) =
        (|span: Duration| now.plus(span), |span: Duration| format!("for up to {}", span_in_words(span)));
    let next = match ends_in {
        Some(ends_in) => {
            format!("{again}, then {} more, until {}, {TILL}", more(ends_in.saturating_sub(wait)), until(ends_in))
        }
        None if left.is_zero() => format!("{again}, at {}, for the last time", until(wait)),
        None => format!("{again}, then {} more, until {}", more(left), until(wait.saturating_add(left))),
    };
    if may_be_billed { format!("{next}; each such request may be billed") } else { next }
}

/// `mm:ss`, or `h:mm:ss` after an hour.
pub fn clock(span: Duration) -> String {
    let (hours, minutes, seconds) = (span.as_secs() / 3600, span.as_secs() / 60 % 60, span.as_secs() % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes:02}:{seconds:02}") }
}

pub fn seconds(span: Duration) -> String {
    format!("{}.{} s", span.as_secs(), span.subsec_millis() / 100)
}

/// A question in a line of so many characters; what a tool wants to know is cut later, for behind its words stands what may be chosen.
fn asked(question: &QuestionRecord, most: usize) -> String {
    const FORM: usize = 1_200;
    line(&question.text, if question.kind == QuestionKind::Elicitation { FORM } else { most })
}

/// Which tools are counted for an effect of the job, and which only may have it.
fn counted_line(effect: &str, counted: &[String], perhaps: &[String]) -> String {
    const SHOWN: usize = 6;
    let listed = |tools: &[String]| {
        let names: Vec<String> = tools.iter().take(SHOWN).map(|tool| line(tool, 80)).collect();
        let more = tools.len().saturating_sub(SHOWN);
        if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
    };
    let by = if counted.is_empty() { "no tool that is offered".to_owned() } else { listed(counted) };
    let rest = if perhaps.is_empty() {
        String::new()
    } else {
        format!(
            "; not counted, because their effect is not declared: {} (declare it with `effect_kind` in a policy rule{})",
            listed(perhaps),
            if perhaps.len() > SHOWN { "; `ua job --check` names all" } else { "" }
        )
    };
    format!("counted as {effect} for this job: {by}{rest}")
}

/// That leaving out the middle of a history does not make it short enough. What the next try may have after a refusal is a number that nobody
/// has set, so it is not told.
fn reads_only_in_words(turn: u32, tokens: u64, is_cut: bool) -> String {
    let then =
        if is_cut { "the history is cut to that from now on" } else { "or it counts only what it has not read before" };
    // What is stored of its requests shows it to the next process, too, which cannot know that the server is another one now.
    let and = if is_cut { " and fork the run, since a resume keeps to it" } else { "" };
    format!(
        "turn {turn} · the server seems to read only {tokens} tokens of what it is sent, and does not say so; {then}. If it should read more, raise \
         the context that it was started with (Ollama: `num_ctx`){and}"
    )
}

fn over_limit_in_words(max_tokens: u64, after_refusal: bool) -> String {
    if after_refusal {
        "less of the history does not help: the job and the newest messages alone are more than the next try may have after the provider refused a \
         longer request, or did not read all of one. If it does so again, the model takes less than the job itself: fork the run with a model that takes more, or \
         begin a shorter job, or one with fewer tools"
            .to_owned()
    } else {
        format!(
            "the job and the newest messages alone exceed {max_tokens} tokens, the limit for the history that is sent (`history_max_tokens`, or what \
             the model takes if that is less)"
        )
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_took_is_not_what_its_answer_waited() {
        let sent_at = ua_core::Env::simulated(1).now();
        let at = |seconds: u64| sent_at.plus(Duration::from_secs(seconds));
        let sent = |answered_at| Sent { at: sent_at, answered_at, named: String::new() };
        assert_eq!(sent(None).took(at(3)), "3.0 s");
        assert_eq!(sent(Some(at(4))).took(at(5)), "4.0 s");
        assert_eq!(sent(Some(at(4))).took(at(606)), "4.0 s, stored 10 min later");
    }

    /// A tool says whatever it likes: `failed: no in 0.0 s` would be one sentence of it.
    #[test]
    fn how_long_a_call_took_is_no_part_of_what_its_tool_said() {
        let mut story = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#);
        let id = story.asks("", &[("send_email", json!({}), ua_evidence::testing::mail_policy())]).remove(0);
        let call = story.call(&id);
        call.status = CallStatus::Succeeded;
        assert_eq!(outcome_after(call, Some("0.0 s")), "ok in 0.0 s");
        assert_eq!(outcome_after(call, None), "ok");
        (call.status, call.error_detail) = (CallStatus::FailedDefinite, Some("no".to_owned()));
        assert_eq!(outcome_after(call, Some("0.0 s")), "failed: no · after 0.0 s");
        assert_eq!(outcome_after(call, None), "failed: no");
    }

    #[test]
    fn a_retry_is_told_with_its_number() {
        assert_eq!(
            (retry_in_words(1, 5), retry_in_words(5, 5)),
            ("retry 1 of 5".to_owned(), "retry 5 of 5".to_owned())
        );
        assert_eq!(retry_in_words(6, 5), "retry 6");
    }

    #[test]
    fn an_open_call_is_told_with_the_turn_that_it_is_of() {
        for (committed, in_flight, unsent, told) in [
            (0, 0, 0, "resuming in turn 1, no call in flight"),
            (0, 1, 0, "resuming in turn 1, 1 call in flight"),
            (2, 0, 0, "resuming after turn 2, no call in flight"),
            (2, 1, 0, "resuming in turn 3, 1 call in flight"),
            (2, 0, 2, "resuming in turn 3, 2 calls not sent yet"),
            (2, 1, 2, "resuming in turn 3, 1 call in flight, 2 not sent yet"),
        ] {
            assert_eq!(resuming_in_words(committed, in_flight, unsent), told);
        }
    }

    #[test]
    fn what_a_server_does_not_read_is_told_with_what_is_done_about_it() {
        let cut = reads_only_in_words(5, 4_096, true);
        assert!(cut.contains("turn 5") && cut.contains("only 4096 tokens") && cut.contains("is cut"), "{cut}");
        let perhaps = reads_only_in_words(5, 4_096, false);
        assert!(!perhaps.contains("is cut") && perhaps.contains("num_ctx"), "{perhaps}");
        assert!(cut.contains("fork the run") && !perhaps.contains("fork"), "{cut} {perhaps}");
    }

    #[test]
    fn a_limit_that_nobody_set_is_not_told_as_one() {
        let set = over_limit_in_words(128_000, false);
        assert!(set.contains("128000 tokens") && set.contains("`history_max_tokens`"), "{set}");
        let refused = over_limit_in_words(166, true);
        assert!(!refused.contains("166") && !refused.contains("limit for"), "{refused}");
        assert!(refused.contains("the provider refused") && refused.contains("fork the run"), "{refused}");
    }

    #[test]
    fn a_wait_says_what_ends_it_first() {
        let told = |wait, left, may_be_billed, ends_in: Option<u64>| {
            next_try_in_words(
                Timestamp::from_millis(0),
                Duration::from_secs(wait),
                Duration::from_secs(left),
                may_be_billed,
                ends_in.map(Duration::from_secs),
            )
        };
        assert_eq!(
            told(100, 1_680, false, None),
            "trying again in 100 s, then for up to 28 min more, until 1970-01-01T00:29:40.000Z"
        );
        let time = "1970-01-01T00:00:57.000Z, when `max_wallclock_minutes` is used up";
        assert_eq!(
            told(10, 1_680, false, Some(57)),
            format!("trying again in 10 s, then for up to 47 s more, until {time}")
        );
        assert_eq!(
            told(10, 1_680, true, None),
            "trying again in 10 s, then for up to 28 min more, until 1970-01-01T00:28:10.000Z; each such request may be billed"
        );
        assert!(told(10, 1_680, true, Some(57)).ends_with("; each such request may be billed"));
        assert_eq!(told(10, 0, false, None), "trying again in 10 s, at 1970-01-01T00:00:10.000Z, for the last time");
    }

    /// What may be chosen stands behind what the tool says, and is told with it.
    #[test]
    fn a_form_is_told_with_its_choices() {
        let of = |kind| QuestionRecord {
            question_id: ua_core::QuestionId::parse("q_1").unwrap(),
            run_id: RunId::parse("run_1").unwrap(),
            call_id: None,
            kind,
            text: format!("The tool asks: {}\n  - \"size\": one of small, large", "which size? ".repeat(50)),
            detail: json!({}),
            choices: Vec::new(),
            created_at: ua_core::Env::simulated(1).now(),
            status: ua_store::QuestionStatus::Open,
            answer: None,
            closed_because: None,
        };
        assert!(asked(&of(QuestionKind::Elicitation), 200).ends_with("one of small, large"));
        assert!(!asked(&of(QuestionKind::MissingEvidence), 200).contains("one of small"));
    }

    #[test]
    fn no_line_of_progress_is_kept_with_a_secret_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::create_in(&ua_files::Folder::open(folder.path()).unwrap(), "ws").unwrap();
        let redactor = Redactor::new([("PLAIN".to_owned(), "hunter2hunter2xyz".to_owned())]);
        let event = json!({"text": "68756e7465723268756e746572327879 7a", "hunter2hunter2xyz": 1}).to_string();
        let lines = [LogLine { text: "in with hunter2hunter2xyz".to_owned(), event }];
        keep_lines(&workspace, &redactor, &lines);
        let read = |name: &str| std::fs::read_to_string(workspace.path(name)).unwrap();
        assert_eq!(read("run.log"), "in with [secret PLAIN]\n");
        let trace: Value = serde_json::from_str(&read("trace.jsonl")).unwrap();
        assert_eq!(trace, json!({"text": "[secret PLAIN]", "[secret PLAIN]": 1}));
    }
}
