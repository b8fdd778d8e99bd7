//! `ua turns`: one turn, from the request's digest to what its calls brought back.

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use ua_core::Timestamp;
use ua_host::home::Home;
use ua_store::{CallRecord, RequestRecord, RunRecords, RunStore, TurnRecord};

use crate::error::{HostError, OK};
use crate::ids::short;
use crate::output::{field, line, print, print_json};
use crate::view::{CallRow, TurnCall, TurnShown};
use crate::{complete, find, moment};

/// `ua turns …`.
#[derive(Debug, Subcommand)]
pub enum TurnsCommand {
    /// Show one turn: the request's digest, the reply, its calls with their results, what it cost
    #[command(after_help = "\
Examples:
  ua turns show last           the newest turn of the newest run
  ua turns show RUN 7
  ua turns show RUN 7 --json | jq '.calls[].result'")]
    Show {
        /// A run id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// Which turn [default: the newest]
        #[arg(value_name = "N")]
        turn: Option<u32>,
    },
}

pub(crate) async fn run(home: &Home, command: TurnsCommand) -> Result<u8, HostError> {
    let TurnsCommand::Show { run, turn } = command;
    let store = home.open_read_only()?;
    let run = find::run(&store, &run).await?;
    let load = async |first: u32, last: u32| {
        store.load_turns(&run.run_id, first, last).await.map_err(|e| HostError::store("read the turn", &e))
    };
    // The newest one may be open: recorded, and not committed yet.
    let (first, last) = turn.map_or((run.turn_index.max(1), run.turn_index + 1), |turn| (turn, turn));
    let records = load(first, last).await?;
    let Some(found) = records.turns.last() else {
        if ua_store::is_gateway(&run) {
            let id = &run.run_id;
            return Err(HostError::usage(format!("{id} is a session of a client at the gateway, which has no turns"))
                .hint(format!("`ua runs show {id}` shows its calls")));
        }
        if let Some((turn, parent)) = turn.zip(run.parent_run_id.as_ref())
            && (1..=run.shared_turns()).contains(&turn)
        {
            // A fork has them, in the rows of the run that made them.
            return Err(HostError::usage(format!("run {} shares turn {turn} with {parent}", run.run_id))
                .hint(format!("`{} {turn}` shows it", ["ua turns show", parent.as_str()].join(" "))));
        }
        let what = turn.map_or_else(|| "no turn yet".to_owned(), |turn| format!("no turn {turn}"));
        return Err(HostError::usage(format!("run {} has {what}", run.run_id)).hint(match run.turn_index {
            0 => format!("none of its turns is committed yet; `ua runs show {}` shows its state", run.run_id),
            newest => format!("its newest committed turn is {newest}"),
        }));
    };
    let shown = shown(&records, found);
    if crate::terminal::is_json() {
        print_json(&shown)?;
    } else {
        print(in_words(&shown, ua_core::system::env().now()))?;
    }
    Ok(OK)
}

/// What the model reads of a call's answer.
fn result_of(records: &RunRecords, call: &CallRecord) -> Option<String> {
    let settlement = records.receipt(&call.call_id)?.settlement.as_ref()?;
    settlement.content.as_ref().map(|content| content.text.to_string())
}

fn shown(records: &RunRecords, turn: &TurnRecord) -> TurnShown {
    let reply = records
        .messages
        .iter()
        .find(|message| message.turn == turn.turn && message.message.role.as_str() == "assistant");
    let calls = records.calls.iter().filter(|call| call.position.turn == turn.turn);
    let requests = || records.requests.iter().filter(|request| request.turn == turn.turn);
    TurnShown {
        run_id: turn.run_id.to_string(),
        turn: turn.turn,
        step_id: turn.step_id.to_string(),
        phase: records.steps.iter().find(|step| step.step_id == turn.step_id).map(|step| step.phase.clone()),
        request_sha256: turn.request_sha256.to_hex(),
        model: turn.reply.model.clone(),
        stop_reason: turn.reply.stop_reason.as_str().to_owned(),
        response_id: turn.reply.response_id.clone(),
        reply: reply.map(|reply| reply.message.text()).unwrap_or_default(),
        calls: calls.map(|call| TurnCall { result: result_of(records, call), call: CallRow::of(call) }).collect(),
        charged: requests().map(|request| charged(records, request)).collect(),
        requests: requests().cloned().collect(),
        recorded_at: turn.recorded_at,
        committed_at: turn.committed_at,
    }
}

/// What a request was charged, in the words that progress has for it.
fn charged(records: &RunRecords, request: &RequestRecord) -> String {
    let (was_sent, is_whole) = (request.network_attempted, records.brought_a_reply(request));
    let tokens = ua_report::charged_tokens(request.status, was_sent, is_whole, request.usage);
    let cost = request.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
    format!("request {}: {tokens}{cost}", request.request_id)
}

fn in_words(turn: &TurnShown, now: Timestamp) -> String {
    // Both instants are of before their writes, which may have waited for long, so neither is said to be that of a write.
    let completed = turn.committed_at.map_or_else(|| "not yet".to_owned(), |at| moment::local(at, now));
    let mut out = format!(
        "turn {} of run {}\n\nRequest        sha256 {}\nModel          {} ({})\nReplied        {}\nCompleted      {completed}\n",
        turn.turn,
        short(&turn.run_id),
        turn.request_sha256,
        line(&turn.model, 60),
        line(&turn.stop_reason, 40),
        moment::local(turn.recorded_at, now),
    );
    for charged in &turn.charged {
        out.push_str(&format!("Charged        {charged}\n"));
    }
    if !turn.reply.trim().is_empty() {
        out.push_str(&format!("\nReply\n{}\n", super::summary::indented(&turn.reply)));
    }
    for TurnCall { call, result } in &turn.calls {
        out.push_str(&format!(
            "\nCall {} · {} · {} · {}\n  arguments    {}\n",
            call.ordinal,
            line(&call.raw_tool_name, 80),
            call.shown_status,
            short(call.tool_call_id.as_str()),
            field(&call.arguments.to_string(), 400),
        ));
        if let Some(result) = result {
            out.push_str(&format!("  result       {}\n", line(result, 400)));
        }
        if let Some(error) = ua_store::error_in_words(call.error_code.as_deref(), call.error_detail.as_deref()) {
            out.push_str(&format!("  error        {}\n", field(&error, 400)));
        }
    }
    out
}
