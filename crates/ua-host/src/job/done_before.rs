//! What earlier runs of a job did that is done again: said before a run of it begins beside which nothing is in the way.

use std::collections::BTreeMap;
use std::time::Duration;

use ua_core::{RunSpec, RunStatus};
use ua_store::{CallRecord, LedgerStore as _, RunRecord, rules};

use super::unfinished::{alike, of_the_same_job};
use crate::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::text::line;
use crate::tree;

/// How many tools are named.
const NAMED: usize = 3;

/// A sentence about the newest run of the same job that ended, if it succeeded or did anything outside; nothing keeps another one from doing it again.
/// Of one that succeeded that is what it was for; of one that was cancelled or failed it is said which effects it had.
pub(crate) async fn done_before(host: &Host, store: &Database, spec: &RunSpec) -> Result<Option<String>, HostError> {
    for head in alike(store, spec, vec![RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled]).await? {
        let Some(run) = of_the_same_job(host, store, spec, &head).await? else { continue };
        let (id, when) = (&run.run_id, ago(host.env().now().since(run.updated_at)));
        if run.status == RunStatus::Succeeded {
            return Ok(Some(format!(
                "an earlier run of this job succeeded {when} ({id}); this one does it again, with all that it does outside. A job with a \
                 `job_key` is done once."
            )));
        }
        if let Some(effects) = in_words(&effects(store, &run).await?) {
            let ended = if run.status == RunStatus::Failed { "failed" } else { "was cancelled" };
            return Ok(Some(format!(
                "an earlier run of this job {ended} {when} ({id}) and had done this outside: {effects}; this one may do it again. \
                 `ua calls list --run {id}` shows it, and `ua fork {id}` continues after it instead."
            )));
        }
    }
    Ok(None)
}

/// The tools of the calls of a run and its sub-agents that may have done something that another run does again, each with how often.
async fn effects(store: &Database, run: &RunRecord) -> Result<BTreeMap<String, usize>, HostError> {
    let mut found = BTreeMap::new();
    for id in tree::with_those_below(store, &run.run_id).await? {
        let calls = store.calls(&id, None).await.map_err(|e| HostError::store("look for what a run did", &e))?;
        for call in calls.iter().filter(|call| is_done_again(call)) {
            *found.entry(line(&call.name.tool, 60)).or_default() += 1;
        }
    }
    Ok(found)
}

/// Files of the workspace are each run's own.
fn is_done_again(call: &CallRecord) -> bool {
    call.policy.is_kept_outside()
        && rules::is_effect_elsewhere(call)
        && !call.name.is_task()
        && !call.name.is_ask_user()
}

fn in_words(effects: &BTreeMap<String, usize>) -> Option<String> {
    let named = effects.iter().take(NAMED).map(|(tool, count)| match count {
        1 => tool.clone(),
        count => format!("{tool} ({count} times)"),
    });
    let named: Vec<String> = named.collect();
    let more: usize = effects.values().skip(NAMED).sum();
    let more = if more == 0 { String::new() } else { format!(", and {}", ua_core::counted(more, "more call")) };
    (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
}

/// How long ago something was, roughly.
fn ago(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..90 => format!("{seconds} s ago"),
        seconds @ 90..5_400 => format!("{} min ago", seconds / 60),
        seconds @ 5_400..129_600 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_tools_are_named_with_how_often() {
        let of = |effects: &[(&str, usize)]| {
            in_words(&effects.iter().map(|(tool, count)| ((*tool).to_owned(), *count)).collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("send_email", 1), ("upload", 2)]).as_deref(), Some("send_email, upload (2 times)"));
        let many = of(&[("a", 1), ("b", 1), ("c", 1), ("d", 2), ("e", 1)]);
        assert_eq!(many.as_deref(), Some("a, b, c, and 3 more calls"));
    }
}
