//! What becomes of a run whose drive came to an error, judged once: what the worker tells and what it does about it follow from that.

use std::time::Duration;

use ua_core::RunId;

use super::told::Did;
use super::worker::{MISFIT, OUTAGE};
use crate::error::{HostError, Kind};
use crate::forgotten::{SENDER, or_for_all};

/// Whether a run got further while this worker had it. One that did not has waited all the time, however often it was tried: that is what
/// the age of the oldest run in a queue is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct GotFurther(pub(super) bool);

/// What becomes of a run whose drive came to an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Whoever had it before was not dead, and has brought it to its end meanwhile.
    Over,
    /// The database refuses what runs write: this run and others wait.
    DatabaseRefuses,
    /// Trying again would come to the same: somebody does something about it `first`, if there is a command for that.
    ForSomebody { first: Option<String> },
    /// The disk is full, a folder cannot be written: this machine's trouble, and nothing of the run was begun.
    NotHere,
    /// Another process has it.
    Driven,
    /// What was not there may be back by then.
    Again(Duration),
}

/// How things stand after a drive that came to an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct AfterError {
    /// The run has ended.
    pub(super) is_over: bool,
    /// Nothing of it was begun.
    pub(super) is_unbegun: bool,
    /// The database said so.
    pub(super) answers: bool,
    pub(super) got_further: GotFurther,
}

impl Fate {
    pub(super) fn of(id: &RunId, error: &HostError, after: AfterError) -> Self {
        if after.is_over {
            return Self::Over;
        }
        if after.answers && error.is_of_the_database() && !after.got_further.0 {
            return Self::DatabaseRefuses;
        }
        // What only a person can end is not tried again.
        let detail = error.detail();
        let kind = detail.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default();
        if kind == crate::forgotten::WENT_BACK {
            let sender = detail.get(SENDER).and_then(serde_json::Value::as_str);
            let sender = sender.and_then(|sender| RunId::parse(sender).ok());
            let all = or_for_all(sender.as_ref());
            let first = format!("check what was sent, then run `ua db accept {id}`{all} and `ua queue move {id}`");
            return Self::ForSomebody { first: Some(first) };
        }
        if kind == crate::forgotten::TWO_COPIES {
            let first = format!("decide which copy counts; `ua queue move {id}` makes a worker try it again");
            return Self::ForSomebody { first: Some(first) };
        }
        match error.kind() {
            Kind::Storage if after.is_unbegun && error.is_of_the_machine() => Self::NotHere,
            Kind::Waiting => Self::Driven,
            Kind::Storage | Kind::Left | Kind::Interrupted => Self::Again(MISFIT),
            Kind::Provider => Self::Again(OUTAGE),
            Kind::Usage | Kind::Failed => Self::ForSomebody { first: None },
        }
    }

    /// What a worker tells of it.
    pub(super) fn did(&self) -> Did {
        match self {
            Self::Over => Did::Ended,
            Self::ForSomebody { .. } => Did::Parked,
            Self::DatabaseRefuses | Self::NotHere | Self::Driven | Self::Again(_) => Did::Released,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of error, begun and not begun: what is told is what the queue then holds.
    #[test]
    fn what_is_told_of_an_error_is_what_becomes_of_the_run() {
        let run = RunId::parse("r").unwrap();
        let after = AfterError { is_over: false, is_unbegun: true, answers: true, got_further: GotFurther(false) };
        let of = |error: &HostError, after| Fate::of(&run, error, after);
        let full = HostError::storage("the disk is full").of_the_machine();
        assert_eq!(of(&full, after), Fate::NotHere);
        assert_eq!(of(&full, AfterError { is_unbegun: false, ..after }), Fate::Again(MISFIT));
        assert_eq!(of(&HostError::waiting("it is driven"), after), Fate::Driven);
        let wrong = of(&HostError::usage("no such model"), after);
        assert_eq!((wrong.did(), &wrong), (Did::Parked, &Fate::ForSomebody { first: None }));
        let back = HostError::waiting("it went back").field("kind", crate::forgotten::WENT_BACK);
        let Fate::ForSomebody { first: Some(first) } = of(&back, after) else { panic!("nobody is asked for") };
        assert!(first.contains("ua db accept r") && !first.contains("every run"), "{first}");
        // One acceptance is enough for all that wait for what a run sent that is not in the database.
        let Fate::ForSomebody { first: Some(first) } = of(&back.field(SENDER, "s"), after) else { panic!("nobody") };
        assert!(first.contains("(or `ua db accept s`, which accepts it for every run that waits for it)"), "{first}");
        let over = of(&HostError::usage("no such model"), AfterError { is_over: true, ..after });
        assert_eq!((over.did(), over), (Did::Ended, Fate::Over));
        for released in [Fate::DatabaseRefuses, Fate::NotHere, Fate::Driven, Fate::Again(OUTAGE)] {
            assert_eq!(released.did(), Did::Released);
        }
    }
}
