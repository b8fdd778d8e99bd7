//! `ua calls probe`: asks the declared probe now whether a call happened. Changes nothing, unless its word is to be the answer to
//! the question that waits.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use ua_core::{CallStatus, RunId};
use ua_dispatch::{Asked, Catalog, Enquiry, Finding, Rules, ToolTransport as _};
use ua_host::launch::Launch;
use ua_host::progress::finding_text;
use ua_host::{Database, Host, questions, servers};
use ua_store::{
    Answer, CallRecord, Choice, LedgerStore, QuestionKind, QuestionRecord, QuestionStatus, RunRecord, RunStore, Store,
};

use crate::error::{HostError, OK, chain};
use crate::output::{print, print_json};
use crate::view::CallProbed;
use crate::{complete, find};

/// `ua calls probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua calls probe call_019
  ua calls probe call_019 --apply            and make that the answer
  ua calls probe call_019 --policy probe.toml")]
pub struct ProbeArgs {
    /// A call id, or a unique prefix or suffix of one
    #[arg(add = ArgValueCompleter::new(complete::unknown_calls))]
    pub call: String,
    /// Use the probe's result as the answer to the open question, if it is conclusive
    #[arg(long)]
    pub apply: bool,
    /// Policy file (TOML) that takes precedence over those the run was started with; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn run(host: &Host, args: &ProbeArgs) -> Result<u8, HostError> {
    let store = if args.apply { host.home().open()? } else { host.home().open_read_only()? };
    let call = find::call(&store, &args.call).await?;
    if !matches!(call.status, CallStatus::Unknown | CallStatus::Running) {
        return Err(HostError::usage(format!(
            "call {} is {}: there is nothing to ask",
            call.call_id,
            ua_resume::call_standing(&call)
        ))
        .hint("`ua calls list --unknown` shows the calls whose outcome is unknown"));
    }
    if ua_runner::RunLock::is_held(&host.home().locks(), &call.run_id) {
        return Err(HostError::usage(format!("run {} is running, and asks the probe itself", call.run_id)));
    }
    let run = store.run(&call.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    // That nothing was done counts only where what was sent can be shown to be over.
    if let Some(there) = store.elsewhere(&run.run_id).await? {
        return Err(HostError::usage(format!(
            "run {} is driven in {}",
            run.run_id,
            crate::output::line(&there.shown, 60)
        ))
        .hint("run the probe there: only that machine can tell that the earlier attempt has ended"));
    }
    let question = open_question(&store, &call).await?;
    let asked = ask(host, &store, &run, &call, question.as_ref(), args).await?;
    let applied = match (&question, choice(&asked)) {
        (Some(question), Some(choice)) if args.apply => {
            answer(host, &store, question, &asked, choice).await?;
            Some(ua_resume::answers::word(question.kind, choice))
        }
        _ => None,
    };
    let then = if applied.is_some() {
        questions::after_answer(host.home(), &store, &run.run_id).await?
    } else {
        let next = ua_host::restart::how_to_resume(&store, &run.run_id).await?;
        unchanged((&run, &next), &call, &asked, question.as_ref(), args.apply)
    };
    ua_host::home::close(store);
    if args.json {
        print_json(&CallProbed {
            tool_call_id: call.call_id.to_string(),
            probe: json!(asked.tool),
            finding: name_of_finding(&asked),
            why: finding_text(&asked),
            asked_at: asked.at,
            absent_counts_from: asked.conclusive_from,
            counts: choice(&asked).is_some(),
            item: match &asked.finding {
                Finding::Found { item, .. } => json!(item),
                Finding::Absent | Finding::Unclear { .. } => serde_json::Value::Null,
            },
            applied,
        })?;
    } else {
        print(format!("{} · {}\n", name_of_finding(&asked), crate::output::plain(&finding_text(&asked))))?;
    }
    crate::output::tell(crate::ids::in_sentence(&then).as_ref());
    Ok(OK)
}

/// Starts the tool servers of the run with locks of their own, asks, and ends them.
async fn ask(
    host: &Host,
    store: &Database,
    run: &RunRecord,
    call: &CallRecord,
    question: Option<&QuestionRecord>,
    args: &ProbeArgs,
) -> Result<Asked, HostError> {
    let env = host.env();
    let launch = Launch::of_run(host, store, run).await?;
    let classifier = launch.classifier_with(host.settings(), &args.policy)?;
    let rules = Rules::of(&run.spec).map_err(HostError::usage)?;
    let attempts =
        store.attempts(&call.call_id).await.map_err(|e| HostError::store("read the attempts of the call", &e))?;
    let folder = ua_host::paths::temporary_folder()?;
    let workspace = match host.home().place_of_run(run) {
        Ok((root, below)) => root.join(below),
        Err(error) if run.spec.tools.builtin => return Err(error),
        // No server works in it; it may be on another machine.
        Err(_) => folder.path().to_path_buf(),
    };
    let needed = servers::servers_of(host, run, &workspace, &launch)?;
    let redactor = servers::redactor(host, &needed)?;
    let names = servers::names(&needed);
    let transport = servers::transport(host, needed, &folder.path().join("locks"), RunId::new(env))?;
    let asked = async {
        let listed = servers::list(host, &transport, &names, |sentence| crate::output::tell(sentence)).await;
        let specs = listed.map_err(|e| HostError::waiting(chain(&e)))?;
        let now = specs.iter().find(|spec| spec.name == call.name).map(|spec| classifier.classify(spec, None));
        let catalog = Catalog::new(specs, &classifier, &rules).map_err(|e| HostError::usage(chain(&e)))?;
        // What was decided with the call comes first; a policy that was written since may at least ask.
        let probe = call.policy.probe.clone().or_else(|| now.and_then(|policy| policy.probe));
        let goes =
            transport.destination(call.called_tool(), &call.arguments).map_err(|e| HostError::usage(chain(&e)))?;
        let enquiry = catalog.enquiry(&classifier, call, &attempts, probe.as_ref(), goes.as_ref());
        let enquiry: Enquiry = enquiry.map_err(|why| {
            HostError::usage(format!("nothing can be asked about call {}: {why}", call.call_id)).hint(format!(
                "check yourself, then run {}; docs/guide/policies.md explains how to declare a probe",
                by_hand(call, question)
            ))
        })?;
        let time = ua_core::Time::plain(env.now());
        let outcome = redactor.outcome(transport.ask(&enquiry).await);
        let asked = enquiry.judge(&outcome, &time);
        let Some(probe) = &probe else { return Ok(asked) };
        let alike = ua_ledger::alike(store, call, probe, &attempts).await;
        Ok(match alike.map_err(|e| HostError::store("look for calls that resemble", &e))? {
            Some(other) => asked.beside(&other),
            None => asked,
        })
    };
    let asked = asked.await;
    transport.shutdown().await;
    asked
}

fn name_of_finding(asked: &Asked) -> &'static str {
    match asked.finding {
        Finding::Found { .. } => "found",
        Finding::Absent => "absent",
        Finding::Unclear { .. } => "unclear",
    }
}

/// The answer that a finding amounts to.
fn choice(asked: &Asked) -> Option<Choice> {
    match asked.finding {
        Finding::Found { .. } => Some(Choice::Happened),
        Finding::Absent if asked.proves_absence() => Some(Choice::Execute),
        Finding::Absent | Finding::Unclear { .. } => None,
    }
}

/// The question that waits for this answer. It was raised after the call's server was fenced, so *absent* may answer it too.
async fn open_question(store: &impl RunStore, call: &CallRecord) -> Result<Option<QuestionRecord>, HostError> {
    let open =
        store.open_questions(Some(&call.run_id)).await.map_err(|e| HostError::store("read the questions", &e))?;
    Ok(open.into_iter().find(|question| {
        question.call_id.as_ref() == Some(&call.call_id)
            && question.kind == QuestionKind::UnknownOutcome
            && question.status == QuestionStatus::Open
    }))
}

async fn answer(
    host: &Host,
    store: &Database,
    question: &QuestionRecord,
    asked: &Asked,
    choice: Choice,
) -> Result<(), HostError> {
    let proof = match &asked.finding {
        Finding::Found { id, .. } => id.clone(),
        Finding::Absent | Finding::Unclear { .. } => None,
    };
    let answer = Answer { choice, proof, text: Some(finding_text(asked)) };
    let by = format!("the probe `{}`", asked.tool);
    questions::give(host, store, question, answer, &by).await.map(drop)
}

/// How somebody who looked says what came of the call: to the question about it, or to its record.
fn by_hand(call: &CallRecord, question: Option<&QuestionRecord>) -> String {
    let asked = question.and_then(ua_resume::resolve_by_hand);
    asked.unwrap_or_else(|| ua_resume::correct_by_hand(call.call_id.as_str()))
}

/// What is next where nothing was changed.
fn unchanged(
    (of, next): (&RunRecord, &str),
    call: &CallRecord,
    asked: &Asked,
    question: Option<&QuestionRecord>,
    apply: bool,
) -> String {
    match (question, choice(asked)) {
        (None, _) if of.status.is_terminal() => {
            format!("nothing was changed; the run has ended, and {} records it by hand", by_hand(call, None))
        }
        (None, _) => format!("nothing was changed; {next} asks the probe itself and acts on its answer"),
        (Some(_), Some(_)) => {
            format!("nothing was changed; `--apply` makes it the answer, {next} asks the probe again")
        }
        (Some(_), None) if apply => {
            format!("nothing was changed, because this proves nothing yet; {next} asks the probe again")
        }
        (Some(_), None) => {
            format!("nothing was changed; {} answers by hand", by_hand(call, question))
        }
    }
}
