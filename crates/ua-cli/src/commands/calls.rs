//! `ua calls`: look at tool calls, settle those nobody knows the outcome of.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use ua_core::{CallId, CallStatus, CorrectedTo, Resolution, RunId, ShortNames, SideEffectClass, Timestamp, ToolName};
use ua_dispatch::selectors::{Names, ToolWords};
use ua_host::corrections::{self, NewCorrection, Taken};
use ua_host::home::Home;
use ua_host::{Database, Host, questions};
use ua_ledger::LateReplies as _;
use ua_runner::LateFile;
use ua_store::rules::{detail_in_words, learnt_of_another, said_beside, times_sent};
use ua_store::{
    Answer, CallQuery, CallRecord, Choice, GatewayStore as _, Keep, LateReply, LedgerStore, QuestionRecord,
    QuestionStatus, QuestionsOf, RunQuery, RunStore, SessionsOf, Store, Trace, blobs_of, is_gateway, whole_reply,
};

use super::probe::ProbeArgs;
use crate::args::{not_empty, parse_ago};
use crate::error::{FAILED, HostError, OK};
use crate::ids::{ShortIds, short};
use crate::output::{did, field, line, plain, print, print_exactly, print_json, print_table, tell};
use crate::people::is_attended;
use crate::view::{AttemptShown, CallListed, CallRow, CallShown, Resolved};
use crate::{complete, find, moment};

/// `ua calls …`.
#[derive(Debug, Subcommand)]
pub enum CallsCommand {
    /// List tool calls, newest runs first
    #[command(after_help = "\
Examples:
  ua calls list --run last
  ua calls list --unknown  list the calls whose outcome is unknown
  ua calls list --since 1d --effects
      list what was sent since yesterday at this time, and to whom
  ua calls list --run last --json | jq -r '.[] | [.tool_name, .status] | @tsv'

WHEN is when a call was sent last, or asked for if it never was; FOR has the arguments by which its effect is known, or its first ones.")]
    List(ListArgs),
    /// Show one call with its attempts, receipt and history
    #[command(after_help = "\
Examples:
  ua calls show call_019
  ua calls show last                         the newest call
  ua calls show call_019 --full > answer.txt")]
    Show {
        /// A call id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::calls_to_show))]
        call: String,
        /// All that the model is given and nothing else; with --json, the answer as it came
        #[arg(long)]
        full: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask the declared probe whether a call with an unknown outcome happened
    Probe(ProbeArgs),
    /// Resolve a call whose outcome is unknown; then `ua resume`
    Resolve(ResolveArgs),
}

/// `ua calls list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this run and its sub-agents: an id, a unique prefix or suffix of one, or `last`
    #[arg(long, value_parser = not_empty(), add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Only calls that were sent, or asked for and never sent, within this time: a number and d, h, m or s, for example 7d
    #[arg(long, value_name = "TIME", value_parser = parse_ago)]
    pub since: Option<Duration>,
    /// Only calls that were sent and may have had an effect outside: no reads, no work on the run's own files, and nothing that was held, refused
    /// or not repeated
    #[arg(long)]
    pub effects: bool,
    /// Only calls of this tool: its name, with or without its server, or a pattern with * and ?; may be repeated
    #[arg(long, value_parser = not_empty(), value_name = "NAME", add = ArgValueCompleter::new(complete::tools))]
    pub tool: Vec<String>,
    /// Only calls that were sent and whose outcome is unknown, including skipped ones
    #[arg(long)]
    pub unknown: bool,
    /// At most so many, the newest; without it, 100 where none of --run, --since and --unknown says which
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub limit: Option<u32>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How many calls of all runs are listed where nothing says which.
const NEWEST: u32 = 100;

impl ListArgs {
    /// How many are listed at most.
    fn most(&self) -> usize {
        let is_named = self.run.is_some() || self.since.is_some() || self.unknown;
        self.limit.or((!is_named).then_some(NEWEST)).map_or(usize::MAX, |limit| limit as usize)
    }

    /// Whether a call is among those that are asked for, as far as its record says. `now` is when it is asked.
    fn has(&self, call: &CallRecord, tools: &ToolWords, now: Timestamp) -> bool {
        // What was sent within that time was changed within it as well.
        self.since.is_none_or(|span| call.updated_at >= now.minus(span))
            && (!self.effects || (call.policy.class == SideEffectClass::External && call.attempt > 0))
            && (self.tool.is_empty() || tools.select(&call.name))
    }
}

/// `ua calls resolve`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("choice").required(true),
    after_help = "\
Examples:
  ua calls resolve call_019 --happened --proof msg_123
  ua calls resolve call_019 --retry
  ua resume last
  ua calls resolve call_019 --as not_happened --reason \"no mail in their inbox\"
  ua calls resolve call_019 --as happened --reason \"Ada has it\" --yes

The first two answer the question about a call, and the resume acts on the answer. --as corrects its record, whatever it says, even after the run has ended."
)]
pub struct ResolveArgs {
    /// A call id, or a unique prefix or suffix of one
    #[arg(add = ArgValueCompleter::new(complete::calls))]
    pub call: String,
    /// It happened
    #[arg(long, group = "choice")]
    pub happened: bool,
    /// It did not happen: send it again
    #[arg(long, alias = "execute", group = "choice")]
    pub retry: bool,
    /// Leave it unresolved; the model is told that the outcome is unknown
    #[arg(long, group = "choice")]
    pub skip: bool,
    /// End the run; of a sub-agent's call only the sub-agent
    #[arg(long, group = "choice")]
    pub abort: bool,
    /// Correct the record: what became of the call, whatever is recorded
    #[arg(long = "as", group = "choice", value_name = "WHAT", requires = "reason")]
    pub as_it_was: Option<WhatItWas>,
    /// With --as: how you know; it is kept with the call and told to the model
    #[arg(long, value_parser = not_empty(), value_name = "TEXT", requires = "as_it_was")]
    pub reason: Option<String>,
    /// With --happened and --as happened: the provider's id of what happened
    #[arg(long, value_parser = not_empty(), value_name = "ID")]
    pub proof: Option<String>,
    /// With --as: do not ask for confirmation
    #[arg(long, short, requires = "as_it_was")]
    pub yes: bool,
}

/// What a call came to.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WhatItWas {
    /// It happened
    Happened,
    /// It did not happen; a repeat is no longer blocked
    NotHappened,
    /// The outcome is unknown; it still blocks calls that might repeat it
    Skipped,
}

pub(crate) async fn run(host: &Host, command: CallsCommand) -> Result<u8, HostError> {
    let home = host.home();
    match command {
        CallsCommand::List(args) => list(host, &args).await,
        CallsCommand::Show { call, full: true, json } => whole(home, &call, json).await,
        CallsCommand::Show { call, full: false, json } => show(home, &call, json).await,
        CallsCommand::Probe(args) => super::probe::run(host, &args).await,
        CallsCommand::Resolve(args) => resolve(host, &args).await,
    }
}

/// What a person reads of a call that was under way when its process ended.
const LEFT: &str = "in flight";

/// Whether it was under way when its process ended, and nobody has looked since what became of it.
fn is_left(home: &Home, call: &CallRecord) -> bool {
    call.status == CallStatus::Running
        && !call.name.is_task()
        && !ua_runner::RunLock::is_held(&home.locks(), &call.run_id)
}

/// Sent, outcome not known. One that a person left (`skip`) is still unknown, to them as well. A call that is still `running` is one if
/// its process is gone. A read that is simply made again is none.
fn is_doubt(home: &Home, call: &CallRecord) -> bool {
    match call.status {
        CallStatus::Unknown => !ua_evidence::is_unanswered_read(call),
        // Of a task its sub-agent's run says where it stands.
        CallStatus::Running => is_left(home, call) && !call.policy.is_free_read(),
        CallStatus::Prepared
        | CallStatus::Succeeded
        | CallStatus::FailedDefinite
        | CallStatus::FailedReported
        | CallStatus::Cancelled => false,
    }
}

/// What a list has.
#[derive(Default)]
struct Listed {
    calls: Vec<CallRecord>,
    /// Which of their runs are sessions of clients at the gateway, with the folders of their projects.
    sessions: BTreeMap<RunId, String>,
    /// How often and when last those were sent that were.
    sent: BTreeMap<CallId, (u32, Timestamp)>,
    /// Whether there are older ones.
    is_cut: bool,
}

impl Listed {
    /// Leaves the newest calls: of all runs they come first, of one they come last.
    fn cut(&mut self, calls: &mut Vec<CallRecord>, args: &ListArgs) {
        let more = calls.len().saturating_sub(args.most());
        self.is_cut |= more > 0;
        if args.run.is_some() {
            calls.drain(..more);
        } else {
            calls.truncate(calls.len() - more);
        }
    }

    /// When a call was sent last; when it was asked for, if it never was.
    fn when(&self, call: &CallRecord) -> Timestamp {
        self.sent.get(&call.call_id).map_or(call.created_at, |(_, at)| *at)
    }
}

/// The calls of a run and its sub-agents, or of all runs, that are asked for.
async fn listed(home: &Home, args: &ListArgs) -> Result<Listed, HostError> {
    let run = args.run.as_deref();
    if run.is_none() && home.is_unused() {
        return Ok(Listed::default());
    }
    let store = home.open_read_only()?;
    let fail = |error: &ua_store::StoreError| HostError::store("list the calls", error);
    let (mut calls, sessions) = if let Some(name) = run {
        let run = find::run(&store, name).await?;
        let sessions = store.sessions_of(SessionsOf::Run(run.run_id.clone())).await.map_err(|e| fail(&e))?;
        let mut calls = Vec::new();
        for run in ua_host::tree::with_those_below(&store, &run.run_id).await? {
            calls.extend(store.calls(&run, None).await.map_err(|e| fail(&e))?);
        }
        (calls, sessions)
    } else {
        let all = CallQuery { limit: u32::MAX, ..CallQuery::default() };
        let calls = store.find_calls(&all).await.map_err(|e| fail(&e))?;
        (calls, store.sessions_of(SessionsOf::Newest(u32::MAX)).await.map_err(|e| fail(&e))?)
    };
    let sessions = sessions.into_iter().map(|session| (session.run_id, session.project)).collect();
    let tools = tools_of(&args.tool)?;
    refuse_unknown_tools(&store, &args.tool, &calls).await?;
    let now = ua_core::system::env().now();
    calls.retain(|call| args.has(call, &tools, now) && (!args.unknown || is_doubt(home, call)));
    let mut listed = Listed { calls: Vec::new(), sessions, sent: BTreeMap::new(), is_cut: false };
    // When one was sent is known below.
    if args.since.is_none() {
        listed.cut(&mut calls, args);
    }
    // What became known of an attempt later is no send of its own.
    let is_send = |attempt: &&ua_store::AttemptRecord| learnt_of_another(attempt).is_none();
    for call in calls.iter().filter(|call| call.attempt > 0) {
        let attempts = store.attempts(&call.call_id).await.map_err(|e| fail(&e))?;
        if let Some(last) = attempts.iter().rfind(is_send) {
            listed.sent.insert(call.call_id.clone(), (times_sent(call, &attempts), last.started_at));
        }
    }
    calls.retain(|call| args.since.is_none_or(|span| listed.when(call) >= now.minus(span)));
    listed.cut(&mut calls, args);
    listed.calls = calls;
    Ok(listed)
}

fn tools_of(words: &[String]) -> Result<ToolWords, HostError> {
    ToolWords::of(words).map_err(|(word, why)| {
        HostError::usage(format!("`{}` is neither the name of a tool nor a pattern: {why}", line(&word, 100)))
    })
}

/// How many runs are looked at for the tools that they had.
const RUNS_LOOKED_AT: u32 = 200;

/// Refuses words that are the name of no tool which any call or run here has: a list that is empty for a slip reads as if nothing had been sent.
/// `calls` are those of the runs that are asked about.
async fn refuse_unknown_tools(store: &Database, words: &[String], calls: &[CallRecord]) -> Result<(), HostError> {
    let mut unseen = Vec::new();
    for word in words {
        let alone = tools_of(std::slice::from_ref(word))?;
        if !calls.iter().any(|call| alone.select(&call.name)) {
            unseen.push(word);
        }
    }
    if unseen.is_empty() {
        return Ok(());
    }
    let fail = |error: &ua_store::StoreError| HostError::store("look for the tools that runs had", error);
    let all = CallQuery { limit: u32::MAX, ..CallQuery::default() };
    let called = store.find_calls(&all).await.map_err(|e| fail(&e))?;
    let mut known: Vec<String> = called.into_iter().map(|call| call.name.raw).collect();
    known.extend(complete::own_tools().into_iter().map(|tool| format!("mcp__ua__{tool}")));
    known.extend([ToolName::ask_user().raw, ToolName::task().raw]);
    let newest = RunQuery { limit: RUNS_LOOKED_AT, ..RunQuery::default() };
    let few = Keep { turns: 1, calls: 1, bytes: 0 };
    for run in store.find_runs(&newest).await.map_err(|e| fail(&e))? {
        let records = store.load_standing(&run.run_id, few).await.map_err(|e| fail(&e))?;
        // What its steps were offered, called or not. A step that cannot be read says nothing.
        let offered = records.steps.iter().filter_map(|step| ua_runner::effective_pins(&records, step).ok());
        known.extend(offered.flat_map(|pins| pins.tool_names()));
    }
    let names = Names::known(known);
    match unseen.into_iter().find(|word| !names.has(word, false)) {
        None => Ok(()),
        Some(word) => {
            let meant = names.nearest(word, &[]).map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
            Err(HostError::usage(format!("no tool that was called or offered here is named `{}`", line(word, 100)))
                .hint(format!(
                    "{meant}`ua calls list` shows the calls of all, and `ua tools list` the tools that a job gets here"
                )))
        }
    }
}

/// Says, where nobody reads data from it, that there are more.
fn say_cut(is_cut: bool, args: &ListArgs) {
    if is_cut {
        let more = args.most().saturating_mul(5);
        tell(format!("older calls are not shown; `--limit {more}` shows more"));
    }
}

async fn list(host: &Host, args: &ListArgs) -> Result<u8, HostError> {
    let home = host.home();
    let listed = listed(home, args).await?;
    let Listed { calls, sessions, sent, is_cut } = &listed;
    if args.json {
        let row = |call: &CallRecord| CallListed {
            call: CallRow::of(call),
            sent_at: sent.get(&call.call_id).map(|(_, at)| *at),
            project: sessions.get(&call.run_id).cloned(),
            in_short: ua_evidence::call_in_short(call),
        };
        print_json(&calls.iter().map(row).collect::<Vec<_>>())?;
        say_cut(*is_cut, args);
    } else {
        if calls.is_empty() {
            tell(if args.unknown { "no call has an unknown outcome" } else { "no such calls" });
        }
        let now = ua_core::system::env().now();
        let ids = ShortIds::of(&calls.iter().map(|call| call.call_id.as_str()));
        let mut their_runs: Vec<&str> = calls.iter().map(|call| call.run_id.as_str()).collect();
        their_runs.sort_unstable();
        their_runs.dedup();
        let runs = ShortIds::of(&their_runs.iter().copied());
        // The server's column is the first to go where a terminal is narrow.
        let names = ShortNames::among(calls.iter().map(|call| call.name.raw.as_str()));
        let row = |call: &CallRecord| {
            vec![
                ids.get(call.call_id.as_str()).to_owned(),
                moment::ago(listed.when(call), now),
                // A client's session has no turns.
                if sessions.contains_key(&call.run_id) {
                    format!("call {}", call.position.turn)
                } else {
                    format!("{}.{}", call.position.turn, call.position.ordinal)
                },
                call.name.server.clone(),
                names.of(&call.name).to_owned(),
                call.policy.class.to_string(),
                if is_left(home, call) { LEFT.to_owned() } else { ua_resume::call_standing(call).to_owned() },
                sent.get(&call.call_id).map_or(call.attempt, |(times, _)| *times).to_string(),
                ua_evidence::call_in_short(call),
                line(&in_a_list(call), 200),
            ]
        };
        if args.run.is_some() && their_runs.len() < 2 {
            print_table(&crate::listings::CALLS, calls.iter().map(row).collect())?;
        } else if !calls.is_empty() && calls.iter().all(|call| sessions.contains_key(&call.run_id)) {
            // A client has a session for each project and tool server.
            let with_project = |call: &CallRecord| {
                let mut cells = row(call);
                cells.insert(2, runs.get(call.run_id.as_str()).to_owned());
                cells.insert(3, project_in_short(sessions.get(&call.run_id).map_or("", String::as_str)));
                cells
            };
            print_table(&crate::listings::CALLS_OF_SESSIONS, calls.iter().map(with_project).collect())?;
        } else {
            // A place in a run says nothing without the run.
            let with_run = |call: &CallRecord| {
                let mut cells = row(call);
                cells.insert(2, runs.get(call.run_id.as_str()).to_owned());
                cells
            };
            print_table(&crate::listings::CALLS_OF_ALL, calls.iter().map(with_run).collect())?;
        }
        say_cut(*is_cut, args);
        if args.run.is_none()
            && let Some(commands) = ua_host::gateway::commands_beside(host)
        {
            let said =
                commands.complete("calls of clients at the gateway are in a folder of their own: `ua calls list`");
            tell(said.into_owned());
        }
    }
    Ok(OK)
}

/// The name of a project's folder, as a list has it; all of it is in the JSON.
fn project_in_short(project: &str) -> String {
    let name = std::path::Path::new(project).file_name().and_then(|name| name.to_str()).unwrap_or(project);
    line(name, 60)
}

/// What a list says of how a call ended: a person's word before what a tool said.
fn in_a_list(call: &CallRecord) -> String {
    match &call.correction {
        Some(correction) => format!("corrected by {}: {}", correction.by, correction.reason),
        None if (call.status, call.resolution) == (CallStatus::Unknown, Some(Resolution::Skipped)) => {
            format!("left unresolved; {} settles it", ua_resume::correct_by_hand(call.call_id.as_str()))
        }
        None => call.external_correlation_id.clone().or_else(|| call.error_in_words()).unwrap_or_default(),
    }
}

async fn show(home: &Home, name: &str, json: bool) -> Result<u8, HostError> {
    let store = home.open_read_only()?;
    let call = find::call_to_show(&store, name).await?;
    let fail = |error: &ua_store::StoreError| HostError::store("read the call", error);
    if json {
        let attempts = store.attempts(&call.call_id).await.map_err(|e| fail(&e))?;
        let receipt = store.receipt(&call.call_id).await.map_err(|e| fail(&e))?;
        let events = store.events(&call.call_id).await.map_err(|e| fail(&e))?;
        let questions = questions_about(&store, &call).await?;
        let late_replies = LateFile::at(home.late_replies()).about(&call.call_id);
        let found_by = Trace::of(&call, &attempts).into_iter().flat_map(|trace| trace.names).collect();
        let (policy, call) = (json!(call.policy), CallRow::of(&call));
        let attempts = attempts.into_iter().map(AttemptShown::from).collect();
        let shown = CallShown { call, policy, found_by, attempts, receipt, late_replies, events, questions };
        print_json(&shown)?;
        return Ok(OK);
    }
    print(shown(home, &store, &call).await?)?;
    Ok(OK)
}

/// Where a call stands, with what its failure says about whether it happened.
fn stands(call: &CallRecord) -> String {
    let word = ua_resume::call_standing(call);
    if call.loss_left_open().is_some() {
        return format!("{word}; nobody knows what happened to an earlier attempt");
    }
    if call.status == CallStatus::FailedDefinite { format!("{word}, and did not happen") } else { word.to_owned() }
}

/// What is recorded about a call, in lines.
async fn shown(home: &Home, store: &ua_host::Database, call: &CallRecord) -> Result<String, HostError> {
    let fail = |error: &ua_store::StoreError| HostError::store("read the call", error);
    let attempts = store.attempts(&call.call_id).await.map_err(|e| fail(&e))?;
    let receipt = store.receipt(&call.call_id).await.map_err(|e| fail(&e))?;
    let events = store.events(&call.call_id).await.map_err(|e| fail(&e))?;
    let run = store.run(&call.run_id).await.map_err(|e| fail(&e))?;
    let now = ua_core::system::env().now();
    let is_session = is_gateway(&run);
    let place = if is_session {
        format!("session        {} call {}", short(call.run_id.as_str()), call.position.turn)
    } else {
        format!(
            "run            {} turn {} call {}",
            short(call.run_id.as_str()),
            call.position.turn,
            call.position.ordinal
        )
    };
    let mut out = format!(
        "{} · {} · {}\n  {place}\n  class          {} (rule `{}`: {})\n  on unknown     {}: {}\n  arguments      {}\n",
        short(call.call_id.as_str()),
        call.name.raw,
        stands(call),
        call.policy.class,
        call.policy.rule_id,
        call.policy.reason,
        call.policy.on_unknown,
        ua_classify::when_in_doubt(call.policy.on_unknown),
        field(&call.arguments.to_string(), 400),
    );
    if let Some(via) = &call.policy.via {
        out.push_str(&format!("  action of      {}\n", via.tool.raw));
    }
    if let Some(correction) = &call.correction {
        out.push_str(&format!(
            "  corrected      was {}; {}\n",
            correction.was.in_words(),
            field(&correction.sentence(), 400)
        ));
    }
    if let Some(key) = &call.idempotency_key {
        out.push_str(&format!("  key            {key}\n"));
    }
    for Trace { of, names } in Trace::of(call, &attempts) {
        let whose = of.map_or_else(String::new, |of| format!(" (call {} of run {})", of.call, of.run));
        for name in names {
            out.push_str(&format!("  found by       {}{}\n", field(&name, 400), field(&whose, 200)));
        }
    }
    for attempt in &attempts {
        if let Some(of) = learnt_of_another(attempt) {
            let (at, said) = (moment::local(attempt.started_at, now), said_beside(attempt).unwrap_or_default());
            out.push_str(&format!("  of attempt {of:<3} {at} effects.log says that {said}\n"));
            continue;
        }
        let ended = attempt.ended_at.map_or_else(|| "…".to_owned(), moment::end);
        let outcome = attempt.outcome.as_deref().unwrap_or("no answer yet");
        let detail = detail_in_words(attempt).map_or_else(String::new, |text| format!(": {}", field(text, 200)));
        out.push_str(&format!(
            "  attempt {:<6} {} → {ended} {outcome}{detail}\n",
            attempt.attempt,
            moment::local(attempt.started_at, now)
        ));
    }
    if let Some(receipt) = &receipt {
        let text =
            receipt.settlement.as_ref().and_then(|s| s.content.as_ref()).map_or("", |content| content.text.as_str());
        out.push_str(&format!(
            "  receipt        {} at {}\n  answer         {}\n",
            ua_store::stored_name(&receipt.evidence),
            moment::local(receipt.received_at, now),
            line(text, 400)
        ));
        if blobs_of(receipt).next().is_some() {
            let call = short(call.call_id.as_str());
            out.push_str(&format!("  whole answer   ua calls show {call} --full (as the model reads it)\n"));
            out.push_str(&format!("                 ua calls show {call} --full --json (as it came)\n"));
        }
    }
    let is_stored = |late: &LateReply| receipt.as_ref().is_some_and(|receipt| receipt.attempt == late.attempt);
    for late in LateFile::at(home.late_replies()).about(&call.call_id).iter().filter(|late| !is_stored(late)) {
        let whose = if ua_ledger::is_of_attempt(&attempts, late) {
            "which the database did not take then"
        } else {
            "whose time is before that of the attempt (an older copy of the database was put back, or the clock was set back)"
        };
        out.push_str(&format!(
            "  kept answer    to attempt {} at {}, {whose}: {}\n",
            late.attempt,
            moment::local(late.at, now),
            field(&ua_ledger::said(&late.reply), 400)
        ));
    }
    for question in questions_about(store, call).await? {
        out.push_str(&asked_line(&question, now));
    }
    for event in &events {
        let from = event.from.map_or("planned", CallStatus::in_words);
        out.push_str(&format!(
            "  event          {} {from} → {} (process {} of the {})\n",
            moment::local(event.at, now),
            // Of where it stands now more is known than of where it stood.
            if event.to == call.status { ua_evidence::call_in_words(call) } else { event.to.in_words() },
            ua_resume::process_number(&run, event.epoch),
            if is_session { "session" } else { "run" }
        ));
        if let Some(correction) = &event.correction {
            out.push_str(&format!("                 {}\n", field(&correction.sentence(), 400)));
        }
    }
    Ok(out)
}

/// Everything that was asked about a call, oldest first.
async fn questions_about(store: &dyn Store, call: &CallRecord) -> Result<Vec<QuestionRecord>, HostError> {
    let of_run = store.questions_of(QuestionsOf::Run(call.run_id.clone())).await;
    let mut questions = of_run.map_err(|e| HostError::store("read the questions", &e))?;
    questions.retain(|question| question.call_id.as_ref() == Some(&call.call_id));
    Ok(questions)
}

/// What was asked about a call, and who answered what.
fn asked_line(question: &QuestionRecord, now: Timestamp) -> String {
    let id = short(question.question_id.as_str());
    let Some(answer) = &question.answer else {
        return match question.status {
            QuestionStatus::Open => format!("  question       {id} is open: `ua answer {id}`\n"),
            QuestionStatus::Answered | QuestionStatus::Closed => {
                format!("  question       {id} no longer needs an answer\n")
            }
        };
    };
    let word = ua_resume::answers::given_word(question.kind, answer.choice);
    let proof =
        answer.proof.as_deref().map_or_else(String::new, |proof| format!(", with {} as proof", line(proof, 100)));
    let remark = answer.text.as_deref().map_or_else(String::new, |text| format!(": {:?}", field(text, 300)));
    let (by, at) = (line(&answer.by, 60), moment::local(answer.answered_at, now));
    format!("  question       {id}: {word}, by {by} at {at}{proof}{remark}\n")
}

/// Prints the whole answer of a call, large parts included: what the model is given, or the reply as it came.
async fn whole(home: &Home, name: &str, json: bool) -> Result<u8, HostError> {
    let store = home.open_read_only()?;
    let call = find::call_to_show(&store, name).await?;
    let fail = |error: &ua_store::StoreError| HostError::store("read the whole answer", error);
    let Some(mut receipt) = ua_runner::answer_of(&store, &call).await.map_err(|e| fail(&e))? else {
        return Err(HostError::usage(format!(
            "call {} is {} and has no answer",
            call.call_id,
            ua_resume::call_standing(&call)
        ))
        .hint(format!("`ua calls show {}` shows what is known about it", call.call_id)));
    };
    if json {
        receipt = ua_runner::with_whole_reply(&store, receipt).await.map_err(|e| fail(&e))?;
    }
    if json {
        print_json(&receipt)?;
    } else {
        let understood = receipt.settlement.as_ref().and_then(|settlement| settlement.content.as_ref());
        let text = match understood {
            Some(content) => content.text.to_string(),
            None => json!(whole_reply(&store, &receipt).await.map_err(|e| fail(&e))?).to_string(),
        };
        print_exactly(format!("{}\n", crate::output::plain(&text)))?;
    }
    Ok(OK)
}

async fn resolve(host: &Host, args: &ResolveArgs) -> Result<u8, HostError> {
    if let (Some(what), Some(reason)) = (args.as_it_was, &args.reason) {
        let outcome = match what {
            WhatItWas::Happened => CorrectedTo::Happened,
            WhatItWas::NotHappened => CorrectedTo::NotHappened,
            WhatItWas::Skipped => CorrectedTo::Skipped,
        };
        let said = NewCorrection { outcome, reason: reason.clone(), proof: args.proof.clone() };
        return put_right(host, args, said).await;
    }
    let choice = match (args.happened, args.retry, args.skip) {
        (true, _, _) => Choice::Happened,
        (_, true, _) => Choice::Execute,
        (_, _, true) => Choice::Skip,
        (false, false, false) => Choice::Abort,
    };
    if args.proof.is_some() && !args.happened {
        return Err(HostError::usage(
            "--proof identifies what happened, so it is only allowed with --happened or --as happened",
        ));
    }
    let store = host.home().open_from_anywhere()?;
    let call = find::call(&store, &args.call).await?;
    let question = question_about(&store, &call, choice).await?;
    let said = Answer { proof: args.proof.clone(), ..Answer::new(choice) };
    let mut then = questions::answer(host, &store, &question, said).await?;
    if choice == Choice::Abort {
        then = super::cancel::end_if_asked(host, &store, &question.run_id).await?.unwrap_or(then);
    }
    ua_host::home::close(store);
    did(&then);
    if crate::terminal::is_json() {
        let (run_id, question_id) = (question.run_id.to_string(), Some(question.question_id.to_string()));
        let choice = Some(ua_resume::answers::word(question.kind, choice));
        print_json(&Resolved { run_id, question_id, choice, call: None })?;
    }
    tell(crate::ids::in_sentence(&then).as_ref());
    Ok(OK)
}

/// Puts the record of a call right by a person's word, once the person saw what is recorded.
async fn put_right(host: &Host, args: &ResolveArgs, said: NewCorrection) -> Result<u8, HostError> {
    let look = host.home().open_read_only()?;
    let seen = find::call(&look, &args.call).await?;
    let seen = corrections::as_known(&look, seen).await?;
    // Where the record says so already there is nothing to confirm; files that do not say so yet are written.
    let is_so = corrections::check(&seen, &said)?.is_some();
    if !args.yes && !is_so {
        if !is_attended() {
            return Err(HostError::usage("not a terminal, so nobody can confirm it")
                .hint(format!("run it on a terminal, or look at `ua calls show {}` and add --yes", seen.call_id)));
        }
        tell(plain(&shown(host.home(), &look, &seen).await?));
        let ask = format!("Record it as {}, with the reason {:?}?", said.outcome, line(&said.reason, 200));
        if !crate::prompt::confirm(&ask, &crate::prompt::Left::undone("nothing was changed")).await? {
            tell("nothing was changed");
            return Ok(FAILED);
        }
    }
    ua_host::home::close(look);
    let store = host.home().open_from_anywhere()?;
    let (taken, then) = corrections::correct(host, &store, &seen, said).await?;
    ua_host::home::close(store);
    did(&then);
    if crate::terminal::is_json() {
        let run_id = seen.run_id.to_string();
        print_json(&match taken {
            Taken::Recorded(call) => {
                Resolved { run_id, question_id: None, choice: None, call: Some(CallRow::of(&call)) }
            }
            Taken::Answered { question, choice } => {
                let choice = Some(ua_resume::answers::word(question.kind, choice));
                Resolved { run_id, question_id: Some(question.question_id.to_string()), choice, call: None }
            }
        })?;
    }
    tell(crate::ids::in_sentence(&then).as_ref());
    Ok(OK)
}

/// The open question about a call. One that is in doubt and was never asked about is asked about by the next resume; what came of any other one is
/// recorded, and the command for that is printed where it would be taken.
async fn question_about(store: &dyn Store, call: &CallRecord, choice: Choice) -> Result<QuestionRecord, HostError> {
    let open =
        store.open_questions(Some(&call.run_id)).await.map_err(|e| HostError::store("read the questions", &e))?;
    if let Some(question) = open.into_iter().find(|question| question.call_id.as_ref() == Some(&call.call_id)) {
        return Ok(question);
    }
    let run = store.run(&call.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    let ended = if run.status.is_terminal() { format!(", and its run is {}", run.status) } else { String::new() };
    let failure = HostError::usage(format!(
        "call {} is {} and has no open question{ended}",
        call.call_id,
        ua_resume::call_standing(call)
    ));
    if call.status == CallStatus::Running {
        let next = ua_host::restart::next_step(store, &run).await?;
        return Err(failure.hint(if next.is_held() {
            format!("{} {}", next.who(), next.does())
        } else {
            format!("its process has ended or is still running: {} finds out, and asks if it cannot", next.who())
        }));
    }
    let outcome = match choice {
        Choice::Happened => Some(CorrectedTo::Happened),
        // Nothing sends it again; that it did not happen lets somebody ask for it again.
        Choice::Execute => Some(CorrectedTo::NotHappened),
        Choice::Skip => Some(CorrectedTo::Skipped),
        Choice::Continue | Choice::Abort => None,
    };
    let hint = match outcome {
        None => "`ua calls list --unknown` shows the calls whose outcome is unknown, `ua questions` what waits for an answer".to_owned(),
        Some(outcome) => {
            let said = NewCorrection { outcome, reason: "TEXT".to_owned(), proof: None };
            let known = corrections::as_known(store, call.clone()).await?;
            match corrections::check(&known, &said) {
                Ok(Some(already)) => already,
                Ok(None) => format!(
                    "`ua calls resolve {} --as {outcome} --reason TEXT` records it; `ua calls show {}` has what is known",
                    call.call_id, call.call_id
                ),
                Err(why) => {
                    let hint = why.hint_text().map_or_else(String::new, |hint| format!("; {hint}"));
                    format!("{why}{hint}")
                }
            }
        }
    };
    Err(failure.hint(hint))
}
