//! Runs that are worked on by whoever is free: submitting, and the worker that takes from the queue.
//!
//! A worker is no other way to drive a run: it takes its lock and its epoch, and drives it as `ua job` and `ua resume` do. What the queue adds is
//! who tries, when, and how many at once. What a worker has to see before it drives a run is looked at in one place (`fits`).
//!
//! Proved by: `ua_store::conformance::fleet` (the queue), the end-to-end tests `fleet` (processes that are killed and told to stop).

mod ailing;
mod begun_in;
mod cron;
mod due;
mod fate;
mod fits;
mod health;
mod lacking;
mod queues;
mod room;
mod schedule;
mod seats;
mod since;
mod spans;
mod submit;
mod told;
mod worker;

use ua_store::{QueueEntry, QueueState, WorkerRecord};

use crate::error::HostError;
use crate::home::Home;

pub use begun_in::say_where_begun;
pub use cron::Cron;
pub use queues::{of_move as queue_of_move, of_schedule as queue_of_schedule, of_worker as queues_of_worker};
pub use room::wanting as disk_is_full;
pub use schedule::{
    Begins, CHANGED, SEAL, ScheduleChanged, ScheduledJob, ahead_in_words, begins, changed_by_user, cron_of,
    said_by_user, submit_for, why_not,
};
pub use seats::Seats;
pub use submit::{Submission, Submitted, enqueue, names_without_secrets, submit, withdraw_ended};
pub use told::{Did, Told, WorkerEvent};
pub use worker::{ForLater, LeftBehind, Onlooker, WorkerOptions, work};

/// Why a name of a queue or of a key cannot be used.
///
/// # Errors
///
/// It has other characters than letters, digits, `_`, `-`, `.`, `:` and `/`, or is long.
pub fn check_name(what: &str, name: &str) -> Result<(), HostError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c);
    if name.is_empty() || name.len() > 120 || !name.chars().all(is_plain) {
        return Err(HostError::usage(format!("{name:?} is not a valid name of a {what}"))
            .hint("use at most 120 letters, digits and `_ - . : / @`"));
    }
    Ok(())
}

/// Whether the worker that took a run from the queue was a process of this machine and has ended, so that the next one takes the run. The table says
/// so only once a worker has looked. Who drives the run now is a matter of its lock.
pub fn has_lost_its_worker(entry: &QueueEntry, workers: &[WorkerRecord]) -> bool {
    let ended =
        |worker: &str| workers.iter().any(|record| record.worker == worker && ua_runner::has_ended_here(&record.owner));
    entry.state == QueueState::Claimed && entry.worker.as_deref().is_some_and(ended)
}

/// Where runs are driven from a root: an id, and words for people. A file is used from where it lies, so there is only one such place.
pub fn place_of(home: &Home) -> Result<(String, String), HostError> {
    #[cfg(feature = "postgres")]
    if home.server().is_some() {
        let place = home.place()?;
        return Ok((place.id, place.shown));
    }
    Ok((String::new(), home.root().to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    /// Of whatever is due, queued or alive the database has the instants of the clock that all workers share. A machine whose own clock differs would
    /// put runs off, skip what is due, or take the living for dead: these files ask for that clock, and for no other.
    #[test]
    fn what_all_share_is_compared_with_no_clock_of_one_machine() {
        for (file, text) in [
            ("begun_in.rs", include_str!("fleet/begun_in.rs")),
            ("due.rs", include_str!("fleet/due.rs")),
            ("queues.rs", include_str!("fleet/queues.rs")),
            ("schedule.rs", include_str!("fleet/schedule.rs")),
            ("seats.rs", include_str!("fleet/seats.rs")),
            ("submit.rs", include_str!("fleet/submit.rs")),
        ] {
            let code = text.split("#[cfg(test)]").next().unwrap();
            for line in code.lines().filter(|line| line.contains("now()")) {
                assert!(line.contains("fleet_now("), "{file}: {line}");
            }
        }
    }
}
