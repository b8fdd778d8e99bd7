//! What a person is told of a database that went back in time.

use ua_core::RunId;
use ua_runner::PastError;
use ua_store::{Forgotten, PastStore as _};

use crate::database::Database;
use crate::error::HostError;

/// The kind of error that only a person can lift, once they have looked.
pub(crate) const WENT_BACK: &str = "database_went_back";
/// The same, of a run that is in two copies of its database.
pub(crate) const TWO_COPIES: &str = "two_copies";

/// How what a person said is said again to a database that does not know it: to the question that asks for it once more, and about a call that
/// nothing asks about.
pub const ANSWERS_AGAIN: &str = "`ua questions` shows what asks for one once the run was resumed, and `ua calls resolve CALL --as happened --reason TEXT` (or \
     `--as not_happened`, or `--as skipped`) takes one that nothing asks for";

/// The field of an error that has the run that sent what another one waits for.
pub(crate) const SENDER: &str = "sender";

/// The run whose acceptance lets every run that waits for the same, where `run` waits for what one other run sent.
pub(crate) fn sender_of(run: &RunId, forgotten: &[Forgotten]) -> Option<RunId> {
    let first = forgotten.first()?.run_id.as_str();
    let is_one = first != run.as_str() && forgotten.iter().all(|known| known.run_id == first);
    RunId::parse(first).ok().filter(|_| is_one)
}

/// How that is said behind the command that accepts it for one run.
pub(crate) fn or_for_all(sender: Option<&RunId>) -> String {
    sender.map_or_else(String::new, |run| {
        format!(" (or `ua db accept {run}`, which accepts it for every run that waits for it)")
    })
}

/// Why nobody resumes a run of a database that went back in time, and what to do about it.
///
/// # Errors
/// The log or the database cannot be read.
pub async fn why_held(store: &Database, run: &RunId) -> Result<Option<String>, HostError> {
    let forgotten =
        store.forgotten(run).await.map_err(|e| HostError::store("compare the database with effects.log", &e))?;
    if forgotten.is_empty() {
        return Ok(None);
    }
    let all = or_for_all(sender_of(run, &forgotten).as_ref());
    let said = PastError::Forgotten { run: run.clone(), forgotten };
    Ok(Some(format!(
        "{said}; check what was sent (`ua db check`), then run `ua db accept {run}`{all}, which says what continues the run"
    )))
}

impl From<&PastError> for HostError {
    fn from(error: &PastError) -> Self {
        match error {
            PastError::Forgotten { run, forgotten } => {
                let sender = sender_of(run, forgotten);
                let held = Self::storage(error.to_string()).hint(if forgotten.iter().any(Forgotten::is_failed_over) {
                    format!(
                        "nothing was sent; find out at the receiving ends what the run sent after that (`ua db check` lists all that are held), then \
                         run `ua db accept {run}`, and it continues from where the database has it; or `ua runs cancel {run}`, if it had done its work"
                    )
                } else {
                    format!(
                        "nothing was sent; restore a newer copy of the database; or find out what became of them (`ua db check` lists all), then \
                         run `ua db accept {run}`{}, and give a person's answers again: {ANSWERS_AGAIN}",
                        or_for_all(sender.as_ref())
                    )
                });
                let held = held.field("kind", WENT_BACK).of_lost_writes();
                match sender {
                    Some(sender) => held.field(SENDER, sender),
                    None => held,
                }
            }
            PastError::Store(source) => Self::store("compare the database with effects.log", source),
        }
    }
}

impl From<PastError> for HostError {
    fn from(error: PastError) -> Self {
        Self::from(&error)
    }
}
