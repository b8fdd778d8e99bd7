//! A run of what a job said before it was edited.
//!
//! An edited job is another job, so nothing keeps it from being started beside a run of its earlier text. Where that run has a call that may
//! or may not have happened, the new one may well do the same thing again: that is said before it begins. Where it has only turns, it is said how
//! those are kept.

use std::path::Path;

use ua_core::{CallStatus, PrintedCommand, RunSpec, RunStatus};
use ua_resume::NextStep;
use ua_runner::RunLock;
use ua_store::{CallRecord, LedgerStore as _, QuestionRecord, RunQuery, RunRecord, Store as _};

use super::LOOKED_AT;
use crate::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::paths::NO_FILE;
use crate::people::People;
use crate::questions;
use crate::restart;
use crate::text::line;

/// Says of the newest unfinished run of an earlier text of this job which of its calls is unsettled, and how that is settled; where none is, how
/// what the newest one got would be kept. Nothing where there is none.
pub(super) async fn tell(
    host: &Host,
    people: &dyn People,
    store: &Database,
    spec: &RunSpec,
    launch: &Launch,
    file: &Path,
) -> Result<(), HostError> {
    let fail = |error: &ua_store::StoreError| HostError::store("look for runs of the job as it was", error);
    let query = RunQuery {
        statuses: vec![RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped],
        without_tasks: true,
        limit: LOOKED_AT,
        ..RunQuery::default()
    };
    let mut unfinished = None;
    for head in store.find_runs(&query).await.map_err(|e| fail(&e))? {
        let path = head.job_path.as_deref().map_or(Path::new(""), Path::new);
        if head.parent_run_id.is_some() || path.file_name() != file.file_name() {
            continue;
        }
        let run = store.run(&head.run_id).await.map_err(|e| fail(&e))?;
        let is_same_place = || Launch::from_stored(&run.launch).is_ok_and(|its| its.job_dir() == launch.job_dir());
        // A job that came another way lies nowhere; what it is for says whether it is the same.
        let is_same = run.spec.objective == spec.objective || (file != Path::new(NO_FILE) && is_same_place());
        let is_earlier = is_same && *run.spec != *spec;
        if run.entrypoint != host.entrypoint() || !is_earlier || RunLock::is_held(&host.home().locks(), &run.run_id) {
            continue;
        }
        let open = questions::open(store, Some(&run.run_id)).await?;
        let calls = store.calls(&run.run_id, None).await.map_err(|e| fail(&e))?;
        if let Some(call) = calls.iter().find(|call| is_unsettled(call)) {
            let next = restart::next_step(store, &run).await?;
            people.tell(&warning(&run, which_text(&run.spec, spec), call, &open, &next));
            return Ok(());
        }
        if run.turn_index > 0 {
            unfinished.get_or_insert(run);
        }
    }
    if let Some(run) = unfinished {
        people.tell(&note(&run, which_text(&run.spec, spec), file));
    }
    Ok(())
}

/// Which text of the job an unfinished run is of. One that has another key alone, as each start of a schedule has its own, is of the same text.
fn which_text(before: &RunSpec, now: &RunSpec) -> &'static str {
    let without_key = |spec: &RunSpec| {
        let mut spec = spec.clone();
        spec.job_key = None;
        spec
    };
    if without_key(before) == without_key(now) { THIS_JOB } else { "an earlier text of this job" }
}

const THIS_JOB: &str = "this job";

/// That what another run of the job, or one of an earlier text of it, got is not used, and how it would be.
fn note(run: &RunRecord, of: &str, file: &Path) -> String {
    let (id, turns) = (&run.run_id, ua_core::counted(run.turn_index, "turn"));
    let how = if of == THIS_JOB {
        format!("; `ua runs show {id}` says how that one is continued")
    } else if file == Path::new(NO_FILE) {
        String::new()
    } else {
        let fork = PrintedCommand::of("ua fork").word(id.as_str()).option("--job-overrides", file).in_code();
        format!("; {fork} would continue from its last turn with the new text")
    };
    format!("note: run {id} of {of} is not finished ({turns}), and this run begins from the start{how}")
}

/// Sent, with an effect, and nobody knows what came of it.
fn is_unsettled(call: &CallRecord) -> bool {
    matches!(call.status, CallStatus::Running | CallStatus::Unknown)
        && call.policy.class.has_effect()
        && !call.name.is_task()
        && call.resolution.is_none()
}

fn warning(run: &RunRecord, of: &str, call: &CallRecord, open: &[QuestionRecord], next: &NextStep) -> String {
    let asked = open.iter().find(|question| question.call_id.as_ref() == Some(&call.call_id));
    let (which, how) = match asked {
        Some(question) => {
            let id = &question.question_id;
            (format!(" (question {id})"), format!("`ua answer {id}` answers that first"))
        }
        None if next.is_held() => (String::new(), format!("{} {}", next.who(), next.does())),
        None => (String::new(), format!("{} finds out first, or asks you", next.who())),
    };
    format!(
        "warning: run {} of {of} is not finished, and whether its {} happened is unknown{which}; this run may do it \
         again; {how}",
        run.run_id,
        line(&call.name.tool, 60)
    )
}
