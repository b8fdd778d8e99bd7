//! `ua runs tail`: what happens in a run, seen from the database.
//!
//! A look compares what is stored with what was shown and tells the difference, so that it works beside the process that drives the
//! run and afterwards alike. Only the turns that can still change are read again. What sub-agents do is shown with it, each line behind
//! its sub-agent's name.

mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_core::{CallStatus, Costs, QuestionId, Resolution, RunStatus, RunStop, ShortNames};
use ua_host::home::Home;
use ua_host::progress;
use ua_host::standing::standing;
use ua_report::charged_tokens;
use ua_resume::{NextStep, Standing};
use ua_runner::RunLock;
use ua_store::rules::{learnt_of_another, said_beside};
use ua_store::{
    AttemptRecord, CallRecord, ProcessSpan, QuestionStatus, RequestRecord, RequestStatus, RunRecord, RunRecords,
    is_gateway,
};

use self::tree::{NamedEvent, Tree};
use crate::error::{FAILED, HostError, INTERRUPTED, OK, PROVIDER, WAITING};
use crate::ids::shortened;
use crate::live::{Asking, Live, LiveCall, RunProgress};
use crate::output::{json_line, line, print_on, wrapped};
use crate::shown::Shown;
use crate::view::TailEvent;
use crate::{complete, find, moment};

/// `ua runs tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua runs tail last
      watch the newest run until its process ends its work
  ua runs tail last --no-follow
      what happened in the last turns, then exit
  ua runs tail RUN --turns 0 --json | jq -c 'select(.event == \"call_settled\")'

It reads the database, so it works beside the process that drives the run, on another terminal, and afterwards. With --follow the \
exit code says how the run ended, as that of `ua job` does.")]
pub struct TailArgs {
    /// A run id, a unique prefix or suffix of one, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// Wait for more until the run ends, waits or stops (the default)
    #[arg(long, overrides_with = "no_follow")]
    pub follow: bool,
    /// Show what there is and exit
    #[arg(long)]
    pub no_follow: bool,
    /// How many past turns to start with
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5)]
    pub turns: u32,
    /// Leave out what the runs of its sub-agents do
    #[arg(long)]
    pub no_tasks: bool,
}

/// How often the database is looked at.
const POLL: Duration = Duration::from_millis(300);

/// So many looks in a row must find nobody at work before the run counts as left alone: one is taken before its process holds it.
const PATIENCE: u32 = 5;

pub(crate) async fn run(home: &Home, args: &TailArgs) -> Result<u8, HostError> {
    let store = home.open_read_only()?;
    let found = find::run(&store, &args.run).await?;
    let env = ua_core::system::env();
    let follow = !args.no_follow;
    let mut tree = Tree::new(found.clone(), (found.turn_index + 1).saturating_sub(args.turns), !args.no_tasks);
    let live = (follow && crate::terminal::can_draw() && !crate::terminal::is_json()).then(Live::start);
    let first = tree.look(&store).await?;
    let mut day = moment::day(env.now());
    let mut is_read = show(&first.told, &mut day)?;
    let mut records = first.records;
    let mut alone = 0;
    while follow && is_read && alone < PATIENCE && is_open(records.run.status) {
        env.clock.sleep(POLL).await;
        // Asked before the database: what its process wrote last is there once it is gone.
        let is_held = RunLock::is_held(&home.locks(), &records.run.run_id);
        let look = tree.look(&store).await?;
        is_read = show(&look.told, &mut day)?;
        if let Some(live) = &live {
            let mut standing = tree.top().standing(&look.records);
            standing.calls.extend(look.calls_below);
            standing.asking.extend(look.asking_below);
            live.stands(&standing);
        }
        records = look.records;
        alone = if is_held { 0 } else { alone + 1 };
    }
    drop(live);
    if is_read {
        let standing = standing(home, &store, &records.run).await?;
        let next = ua_host::restart::next_step(&store, &records.run).await?;
        show(&[NamedEvent { event: end(&records, &standing, &next), who: None }], &mut day)?;
    }
    Ok(if follow { exit_code(&records.run) } else { OK })
}

/// Whether more may come without anybody doing something.
fn is_open(status: RunStatus) -> bool {
    matches!(status, RunStatus::Queued | RunStatus::Running)
}

/// Writes events, each below the day that it is of; `false` when nobody reads any more.
fn show(told: &[NamedEvent], day: &mut Option<String>) -> Result<bool, HostError> {
    let now = ua_core::system::env().now();
    for NamedEvent { event, who } in told {
        let its_day = moment::day(event.at);
        let heading = its_day.clone().filter(|_| *day != its_day && !crate::terminal::is_json());
        *day = its_day;
        let text = if crate::terminal::is_json() {
            Shown::exact(&format!("{}\n", json_line(event)?))
        } else {
            let who = who.as_ref().map_or_else(String::new, |who| format!("{who} ▸ "));
            let text = line(&moment::in_sentence(&event.text, now), 400);
            let ids = [event.run_id.as_str(), event.question_id.as_deref().unwrap_or_default()];
            let clock = moment::of_line(event.at);
            let text = format!("{who}{}", shortened(&text, &ids));
            let heading = heading.map_or_else(String::new, |day| format!("{day}\n"));
            Shown::from(format!("{heading}{clock} {}\n", wrapped(&crate::output::plain(&text), clock.len() + 1)))
        };
        if !crate::terminal::around_live(|| print_on(text))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn exit_code(run: &RunRecord) -> u8 {
    match run.status {
        RunStatus::Succeeded => OK,
        RunStatus::Failed | RunStatus::Cancelled => FAILED,
        RunStatus::Stopped => match run.stop_reason {
            Some(RunStop::Interrupt) => INTERRUPTED,
            Some(RunStop::Provider | RunStop::ProviderRefused | RunStop::UnknownModel) => PROVIDER,
            Some(RunStop::Budget | RunStop::Fingerprint | RunStop::ToolServer | RunStop::Idle) | None => WAITING,
        },
        RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman => WAITING,
    }
}

/// What was shown so far.
#[derive(Debug, Default)]
struct Tail {
    /// The first turn that can still bring something new.
    first: u32,
    /// What happened before this turn is not shown.
    from: u32,
    requests: BTreeMap<u64, RequestRecord>,
    recorded: BTreeSet<u32>,
    committed: BTreeSet<u32>,
    calls: BTreeMap<String, (CallStatus, u32)>,
    questions: BTreeSet<QuestionId>,
    answered: BTreeSet<QuestionId>,
    /// Processes that were said to have taken the run, by the number of their ownership.
    taken: BTreeSet<u64>,
    /// Those that were said to be gone.
    gone: BTreeSet<u64>,
}

/// Where an event stands among those of one instant: by its turn, and within a turn by what comes before what.
type Place = (u32, u8);

impl Tail {
    /// Shows what happens from this turn on.
    fn from(from: u32) -> Self {
        Self { from, ..Self::default() }
    }

    /// What is new, in the order in which it happened.
    fn take(&mut self, records: &RunRecords) -> Vec<TailEvent> {
        let mut events = Vec::new();
        for request in &records.requests {
            let before = self.requests.insert(request.request_id, request.clone()).map(|request| request.status);
            if before.is_none() {
                let mut event = blank(records, request.reserved_at, "thinking", Some(request.turn));
                event.text = format!("turn {} · thinking", request.turn);
                events.push(((request.turn, 0), event));
            }
            if let Some(closed_at) = request.closed_at.filter(|_| before.is_none_or(|b| b == RequestStatus::Reserved)) {
                let mut event = blank(records, closed_at, "request_charged", Some(request.turn));
                let cost = request.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
                event.status = Some(request.charge_name().to_owned());
                event.tokens = Some(request.usage.total());
                event.text = format!(
                    "turn {} · {}{cost}",
                    request.turn,
                    charged_tokens(
                        request.status,
                        request.network_attempted,
                        records.brought_a_reply(request),
                        request.usage
                    )
                );
                events.push(((request.turn, 1), event));
            }
        }
        for turn in &records.turns {
            if self.recorded.insert(turn.turn) {
                let calls = records.calls.iter().filter(|call| call.position.turn == turn.turn).count();
                let mut event = blank(records, turn.recorded_at, "turn_recorded", Some(turn.turn));
                let calls = if calls == 0 { "no call".to_owned() } else { ua_core::counted(calls, "call") };
                event.text = format!("turn {} · {calls} planned", turn.turn);
                events.push(((turn.turn, 2), event));
            }
        }
        let names = records.short_names();
        for call in &records.calls {
            self.take_call(records, call, &names, &mut events);
        }
        for question in &records.questions {
            if self.questions.insert(question.question_id.clone()) {
                let mut event = blank(records, question.created_at, "question", None);
                event.question_id = Some(question.question_id.to_string());
                event.tool_call_id = question.call_id.as_ref().map(ToString::to_string);
                event.text = format!("a question · {}", line(&question.text, 200));
                let call = question.call_id.as_ref().and_then(|call| records.call(call));
                let turn = call.map_or(records.run.turn_index + 1, |call| call.position.turn);
                events.push(((turn, 5), event));
            }
            if let Some(answer) = &question.answer
                && self.answered.insert(question.question_id.clone())
            {
                let mut event = blank(records, answer.answered_at, "answered", None);
                event.question_id = Some(question.question_id.to_string());
                event.tool_call_id = question.call_id.as_ref().map(ToString::to_string);
                let what = ua_resume::answers::in_short(question.kind, answer.choice, answer.text.as_deref());
                event.text = format!("{} answered {}: {what}", line(&answer.by, 60), question.question_id);
                let call = question.call_id.as_ref().and_then(|call| records.call(call));
                let turn = call.map_or(records.run.turn_index + 1, |call| call.position.turn);
                events.push(((turn, 5), event));
            }
        }
        for turn in &records.turns {
            if let Some(committed_at) = turn.committed_at
                && self.committed.insert(turn.turn)
            {
                let mut event = blank(records, committed_at, "turn_committed", Some(turn.turn));
                event.text = format!("turn {} · committed", turn.turn);
                events.push(((turn.turn, 6), event));
            }
        }
        self.take_processes(records, &mut events);
        // Everything before the last committed turn is as it stays.
        self.first = self.first.max(records.run.turn_index);
        events.sort_by_key(|(place, event)| (event.at, *place));
        let is_wanted = |event: &TailEvent| event.turn.is_none_or(|turn| turn >= self.from);
        events.into_iter().map(|(_, event)| event).filter(is_wanted).collect()
    }

    /// Which processes drove the run: when each took it, and how it left it. Of those that were gone before what is shown began,
    /// nothing is said.
    fn take_processes(&mut self, records: &RunRecords, events: &mut Vec<(Place, TailEvent)>) {
        let run = &records.run;
        let shown = self.requests.values().filter(|request| request.turn >= self.from);
        let since = shown.map(|request| request.reserved_at).min();
        let from = self.from;
        let driver =
            if is_gateway(run) { "the gateway's broker of the session" } else { "the process that drove the run" };
        let is_shown = |process: &ProcessSpan| match (process.left_at, since) {
            (None, _) => true,
            (Some(left_at), Some(since)) => from <= 1 || left_at >= since,
            (Some(_), None) => from <= 1,
        };
        let mut before: Option<&ProcessSpan> = None;
        for process in &run.processes {
            let died = before.filter(|before| before.died).map(|before| before.ended_by);
            let is_first = before.is_none() && process.epoch == 1;
            let number = |epoch| ua_resume::process_number(run, epoch);
            // One that asks somebody at its terminal leaves the run and takes it again.
            let is_the_same = before.is_some_and(|before| number(before.epoch) == number(process.epoch));
            let takes_it_again = process.epoch < run.lease_epoch && number(process.epoch) == number(process.epoch + 1);
            before = Some(process);
            let about = |at, status: &str, text: String| {
                let mut event = blank(records, at, "process", None);
                event.status = Some(status.to_owned());
                event.text = text;
                event
            };
            if self.taken.insert(process.epoch) && is_shown(process) {
                // Only who took the run last is remembered by name.
                let owner = run.owner.as_ref().filter(|_| process.epoch == run.lease_epoch);
                let who = owner.map_or_else(
                    || "a process".to_owned(),
                    |owner| format!("process {} on {}", owner.pid, line(&owner.host, 60)),
                );
                let text = match (is_first, died) {
                    _ if is_gateway(run) => format!("{who} is the gateway's broker of this session"),
                    (true, _) => format!("{who} drives the run"),
                    _ if is_the_same => "the process that drove the run continues".to_owned(),
                    (false, Some(None)) => format!("resumed after the kill: {who} took the run over"),
                    (false, Some(Some(by))) => format!("resumed after {}: {who} took the run over", by.in_words()),
                    (false, None) => format!("resumed: {who} drives the run"),
                };
                events.push(((0, 0), about(process.taken_at, "took", text)));
            }
            if let Some(left_at) = process.left_at
                && self.gone.insert(process.epoch)
                && is_shown(process)
            {
                // How a run that is not resumed left its last process is the last line's.
                if let Some(by) = process.ended_by {
                    let by = by.in_words();
                    let text = format!("ended by {by}: the last sign of life of {driver}");
                    events.push(((u32::MAX, 1), about(left_at, "interrupted", text)));
                } else if process.died {
                    let text = format!("killed: the last sign of life of {driver}");
                    events.push(((u32::MAX, 1), about(left_at, "killed", text)));
                } else if takes_it_again {
                    let text = "the process that drove the run asked a person".to_owned();
                    events.push(((u32::MAX, 0), about(left_at, "left", text)));
                } else if process.epoch < run.lease_epoch {
                    let text = format!("{driver} ended its work");
                    events.push(((u32::MAX, 0), about(left_at, "left", text)));
                }
            }
        }
    }

    /// Where the run stands, for a live display.
    fn standing(&self, records: &RunRecords) -> RunProgress {
        let mut costs = Costs::default();
        self.requests.values().filter_map(|request| request.cost).for_each(|cost| costs.add(cost));
        let names = records.short_names();
        let running = records.calls.iter().filter(|call| call.status == CallStatus::Running);
        let calls: BTreeMap<String, LiveCall> =
            running.map(|call| (call.call_id.to_string(), LiveCall::of(call, &names))).collect();
        // Of a call that runs, an open question is what its tool asks.
        let asking = records.questions.iter().filter(|question| question.status == QuestionStatus::Open);
        let asking = asking.filter_map(|question| {
            let id = question.call_id.as_ref()?.to_string();
            let asking = Asking::of(question, Some(calls.get(&id)?));
            Some((id, asking))
        });
        let asking = asking.collect();
        let is_thinking = self.requests.values().next_back().is_some_and(|last| last.status == RequestStatus::Reserved);
        RunProgress {
            turn: records.run.turn_index + 1,
            doing: if is_thinking { "thinking".to_owned() } else { records.run.status.to_string() },
            calls,
            asking,
            tool_calls: u32::try_from(self.calls.len()).unwrap_or(u32::MAX),
            tokens: self.requests.values().map(|request| request.usage.total()).sum(),
            costs,
            budgets: records.budgets(),
            held: Duration::from_millis(records.run.held_millis),
        }
    }

    fn take_call(
        &mut self,
        records: &RunRecords,
        call: &CallRecord,
        names: &ShortNames,
        events: &mut Vec<(Place, TailEvent)>,
    ) {
        let now = (call.status, call.attempt);
        let before = self.calls.insert(call.call_id.to_string(), now);
        if before == Some(now) {
            return;
        }
        let turn = call.position.turn;
        let about = |at, event, attempt, text: String| {
            let mut event = blank(records, at, event, Some(turn));
            event.tool_call_id = Some(call.call_id.to_string());
            event.tool = Some(call.name.raw.clone());
            event.status = Some(call.status.to_string());
            event.attempt = Some(attempt);
            event.text = format!(
                "{} · {} {text}",
                ua_resume::place_in_words(&records.run, call),
                line(names.of(&call.name), 60)
            );
            event
        };
        let attempts: Vec<&AttemptRecord> =
            records.attempts.iter().filter(|attempt| attempt.call_id == call.call_id).collect();
        let shown = before.map_or(0, |(_, attempt)| attempt);
        for attempt in attempts.iter().filter(|attempt| attempt.attempt > shown) {
            if let Some(of) = learnt_of_another(attempt) {
                let said = said_beside(attempt).unwrap_or_default();
                let text = format!("attempt {of}: effects.log says that {}", line(&said, 200));
                events.push(((turn, 3), about(attempt.started_at, "attempt_learnt", of, text)));
                continue;
            }
            let text = progress::attempted(attempt.attempt, &call.arguments.to_string());
            let mut event = about(attempt.started_at, "call_sending", attempt.attempt, text);
            event.status = Some(CallStatus::Running.to_string());
            events.push(((turn, 3), event));
        }
        // An attempt behind which there is another one: what came of it, or that nothing did.
        for attempt in attempts.iter().filter(|one| one.attempt >= shown.max(1) && one.attempt < call.attempt) {
            if learnt_of_another(attempt).is_some() {
                continue;
            }
            let Some(ended_at) = attempt.ended_at else { continue };
            let outcome = attempt.outcome.as_deref().unwrap_or("lost");
            let text = if outcome == "lost" { "no answer was recorded".to_owned() } else { line(outcome, 40) };
            let mut event =
                about(ended_at, "attempt_ended", attempt.attempt, format!("attempt {}: {text}", attempt.attempt));
            event.status = Some(outcome.to_owned());
            events.push(((turn, 3), event));
        }
        if !matches!(call.status, CallStatus::Prepared | CallStatus::Running) {
            let last = attempts.iter().rfind(|attempt| learnt_of_another(attempt).is_none()).copied();
            let ended_at = last.filter(|last| !last.was_lost()).and_then(|last| last.ended_at);
            // What a person or a probe says of an earlier attempt did not take the time of one.
            let by_itself = !matches!(call.resolution, Some(Resolution::Happened | Resolution::Reconciled));
            let took = last.filter(|_| by_itself).and_then(|last| Some(ended_at?.since(last.started_at)));
            let took = took.map(progress::seconds);
            // A record may be put right long after its call ended.
            let at = ended_at.filter(|_| before.is_none()).unwrap_or(call.updated_at);
            events.push((
                (turn, 4),
                about(at, "call_settled", call.attempt, progress::outcome_after(call, took.as_deref())),
            ));
        }
    }
}

/// The last line: where the run stands.
fn end(records: &RunRecords, standing: &Standing, next: &NextStep) -> TailEvent {
    let run = &records.run;
    let (id, headline) = (&run.run_id, super::summary::headline(run, standing));
    let text = match standing {
        _ if next.is_held() && !run.status.is_terminal() => format!("{headline}; {} {}", next.who(), next.does()),
        Standing::Crashed | Standing::Interrupted(_) => format!("{headline}; {} resumes it", next.who()),
        Standing::NotBegun => {
            format!("{headline}; {} starts it", next.who())
        }
        Standing::Stored(..)
        | Standing::Ending
        | Standing::Elsewhere(_)
        | Standing::Answered
        | Standing::Outdated(_)
        | Standing::IdleSession
        | Standing::EndedSession => {
            format!("{} {id} {headline}", if is_gateway(run) { "session" } else { "run" })
        }
    };
    // Of a process that died it is known how long it showed signs of life.
    let seen = ua_resume::lives_beside(records, standing).last().map(|life| life.last_seen_at);
    let mut event = blank(records, seen.filter(|_| standing.is_left()).unwrap_or(run.updated_at), "run", None);
    event.status = Some(standing.event_word(run.status));
    event.text = text;
    event
}

/// An event that has no more than its place.
fn blank(records: &RunRecords, at: ua_core::Timestamp, event: &'static str, turn: Option<u32>) -> TailEvent {
    TailEvent {
        at,
        event,
        run_id: records.run.run_id.clone(),
        turn,
        tool_call_id: None,
        tool: None,
        status: None,
        attempt: None,
        question_id: None,
        tokens: None,
        text: String::new(),
    }
}
