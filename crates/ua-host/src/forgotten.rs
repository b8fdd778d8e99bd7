//! What a person is told of a database that went back in time.

use ua_runner::PastError;

use crate::error::HostError;

/// The kind of error that only a person can lift, once they have looked.
pub(crate) const WENT_BACK: &str = "database_went_back";
/// The same, of a run that is in two copies of its database.
pub(crate) const TWO_COPIES: &str = "two_copies";

/// How what a person said is said again to a database that does not know it: to the question that asks for it once more, and about a call that
/// nothing asks about.
pub const ANSWERS_AGAIN: &str = "`ua questions` shows what asks for one once the run was resumed, and `ua calls resolve CALL --as happened --reason TEXT` (or \
     `--as not_happened`, or `--as skipped`) takes one that nothing asks for";

impl From<&PastError> for HostError {
    fn from(error: &PastError) -> Self {
        match error {
            PastError::Forgotten { run, .. } => Self::storage(error.to_string()).hint(format!(
                "nothing was sent; restore a newer copy of the database; or find out what became of them (`ua db check` lists all), then run \
                 `ua db accept {run}`, and give a person's answers again: {ANSWERS_AGAIN}"
            ))
            .field("kind", WENT_BACK),
            PastError::Store(source) => Self::store("compare the database with effects.log", source),
        }
    }
}

impl From<PastError> for HostError {
    fn from(error: PastError) -> Self {
        Self::from(&error)
    }
}
