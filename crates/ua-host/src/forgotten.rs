//! What a person is told of a database that went back in time.

use ua_runner::PastError;

use crate::error::HostError;

/// The kind of error that only a person can lift, once they have looked.
pub(crate) const WENT_BACK: &str = "database_went_back";
/// The same, of a run that is in two copies of its database.
pub(crate) const TWO_COPIES: &str = "two_copies";

impl From<&PastError> for HostError {
    fn from(error: &PastError) -> Self {
        match error {
            PastError::Forgotten { run, .. } => Self::storage(error.to_string()).hint(format!(
                "nothing was sent; restore a newer copy of the database; or find out what became of them (`ua db check` lists all), then run \
                 `ua db accept {run}`, and give a person's answers again with {by_hand}",
                by_hand = ua_resume::resolve_by_hand("CALL")
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
