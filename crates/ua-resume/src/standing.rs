//! Where a run stands, as people are told it everywhere: in lists, in the headline of one run, while it is followed, in what is exported.
//!
//! What is stored says less. A run is stored as `running` until its process says otherwise, so one whose process died is `running` for ever;
//! one that waits for a person may have its answers; one that is queued may stand in no queue. Whoever shows a run gathers what is around it
//! (`ua_host::standing`) and shows this; there is no other way from a stored status to what a person reads of a run that may be at work.

use std::fmt;

use ua_core::{RunStatus, RunStop};
use ua_store::EndedBy;

use crate::words::status_words;

/// What is known of a run beside its row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AroundRun {
    /// Whether a living process of this machine drives it.
    pub is_driven: bool,
    /// Whether a person said that the run is to end.
    pub is_to_end: bool,
    /// By what the process was ended at once that drove it last.
    pub ended_by: Option<EndedBy>,
    /// Where else it is driven, when that is another place: the locks of this one say nothing about it.
    pub elsewhere: Option<OtherPlace>,
    /// Whether every question that it waits for is answered.
    pub is_answered: bool,
    /// Whether it is in no queue and nobody is about to drive it.
    pub is_in_no_queue: bool,
    /// Whether it is a session of a client at the gateway.
    pub is_session: bool,
    /// Whether `effects.log` knows more of it than the database, which is an older copy.
    pub is_outdated: bool,
}

/// Where a run is driven that is not driven here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherPlace {
    /// The place, in words.
    pub shown: String,
    /// Whether its process there has shown no sign of life for a while. That is no proof: it may be at work without reaching the database.
    pub is_silent: bool,
    /// Whether a person said that the run is to end.
    pub is_to_end: bool,
}

impl OtherPlace {
    /// What is said of it behind its name.
    fn beside(&self) -> String {
        let end = if self.is_to_end { ", to be ended" } else { "" };
        let silent = if self.is_silent { ", no sign of life" } else { "" };
        format!("{end}{silent}")
    }
}

/// Where a run stands, as people are told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As it is stored.
    Stored(RunStatus, Option<RunStop>),
    /// A process drives it that was told to end it, and does so after the call that it is in.
    Ending,
    /// A process of another place drives it, or did.
    Elsewhere(OtherPlace),
    /// Its process died while driving it.
    Crashed,
    /// Its process ended at once while it drove it: a person ended it, or an error, by this.
    Interrupted(EndedBy),
    /// It waited for a person, has its answers, and waits for a resume.
    Answered,
    /// It is stored, nobody has begun it, and nobody is about to: whoever stored it died before, or it was taken out of the queue.
    NotBegun,
    /// It is stored like this in an older copy of the database, and came further: nobody resumes it before a person has accepted that.
    Outdated(RunStatus),
    /// A session of a client at the gateway that asks for nothing now. The client alone continues it.
    IdleSession,
    /// The same of one that a person ended: its client continues in another one.
    EndedSession,
}

impl Standing {
    /// Puts together what is stored of a run and what is around it.
    pub fn of(status: RunStatus, stop_reason: Option<RunStop>, around: AroundRun) -> Self {
        let AroundRun {
            is_driven,
            is_to_end,
            ended_by,
            elsewhere,
            is_answered,
            is_in_no_queue,
            is_session,
            is_outdated,
        } = around;
        match (status, elsewhere) {
            (RunStatus::Running, _) if is_driven && is_to_end => Self::Ending,
            (RunStatus::Running, _) if is_driven => Self::Stored(status, None),
            (RunStatus::Running, Some(place)) => Self::Elsewhere(OtherPlace { is_to_end, ..place }),
            (RunStatus::Running | RunStatus::Stopped | RunStatus::WaitingForHuman, _) if is_session && is_to_end => {
                Self::EndedSession
            }
            (RunStatus::Running | RunStatus::Stopped, _) if is_session => Self::IdleSession,
            (_, _) if is_outdated && !status.is_terminal() => Self::Outdated(status),
            (RunStatus::Running, None) => ended_by.map_or(Self::Crashed, Self::Interrupted),
            // No resume continues it, and it waits for nobody.
            (RunStatus::WaitingForHuman, _) if is_answered && is_session => Self::IdleSession,
            (RunStatus::WaitingForHuman, _) if is_answered => Self::Answered,
            (RunStatus::Queued, _) if is_in_no_queue => Self::NotBegun,
            _ => Self::Stored(status, stop_reason),
        }
    }

    /// Whether its process died.
    pub fn is_crashed(&self) -> bool {
        matches!(self, Self::Crashed)
    }

    /// Whether its process is gone, and did not leave it in order: it died, or ended at once, or went on beyond what is stored.
    pub fn is_left(&self) -> bool {
        matches!(self, Self::Crashed | Self::Interrupted(_) | Self::Outdated(RunStatus::Running))
    }

    /// Whether somebody drives it right now.
    pub fn is_driven(&self) -> bool {
        matches!(self, Self::Stored(RunStatus::Running, _) | Self::Ending | Self::Elsewhere(_))
    }

    /// Whether nothing but a resume is missing, or what comes before one.
    pub fn waits_for_a_resume(&self) -> bool {
        self.is_left()
            || matches!(self, Self::Answered | Self::NotBegun | Self::Outdated(_) | Self::Stored(RunStatus::Stopped, _))
    }

    /// The same on a page that is read later: of a run at work it is so only when the page is written, and whoever kills its process leaves the
    /// page as it is.
    pub fn on_a_page(&self) -> String {
        if self.is_driven() { format!("{self} when this was written") } else { self.to_string() }
    }

    /// The words for people beside the stored status, where they say something else than that; nothing of a run that a process drives, whose files
    /// are read when that may be over.
    pub fn beside_what_is_stored(&self) -> Option<String> {
        let says_more = !matches!(self, Self::Stored(..)) && !self.is_driven();
        says_more.then(|| self.to_string())
    }

    /// The same as a cell of a table has room for it. Where else a run is driven is said whole below the table.
    pub fn in_a_table(&self) -> String {
        match self {
            Self::Elsewhere(place) => format!("running elsewhere{}", place.beside()),
            Self::Stored(..)
            | Self::Ending
            | Self::Crashed
            | Self::Interrupted(_)
            | Self::Answered
            | Self::NotBegun
            | Self::Outdated(_)
            | Self::IdleSession
            | Self::EndedSession => self.to_string(),
        }
    }

    /// One word for a machine beside the stored status: `crashed`, `interrupted` or `outdated`, else what is stored.
    pub fn event_word(&self, stored: RunStatus) -> String {
        if self.is_left() || matches!(self, Self::Outdated(_)) { self.to_string() } else { stored.to_string() }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored(status, reason) => f.write_str(&status_words(*status, *reason)),
            Self::Ending => f.write_str("running, to be ended"),
            Self::Elsewhere(place) => write!(f, "running in {}{}", place.shown, place.beside()),
            Self::Crashed => f.write_str("crashed"),
            Self::Interrupted(_) => f.write_str("interrupted"),
            Self::Answered => f.write_str("answered"),
            Self::NotBegun => f.write_str("not begun"),
            Self::Outdated(_) => f.write_str("outdated"),
            Self::IdleSession => f.write_str("idle session"),
            Self::EndedSession => f.write_str("ended session"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place is named whole where it can be copied; a table has no room for it.
    #[test]
    fn a_table_says_that_a_run_is_driven_elsewhere_and_not_where() {
        let shown = format!("/srv/{} on host", "runs/".repeat(40));
        let place = OtherPlace { shown: shown.clone(), is_silent: true, is_to_end: true };
        let standing = Standing::Elsewhere(place);
        assert_eq!(standing.in_a_table(), "running elsewhere, to be ended, no sign of life");
        assert_eq!(standing.to_string(), format!("running in {shown}, to be ended, no sign of life"));
        assert_eq!(Standing::Crashed.in_a_table(), "crashed");
    }

    #[test]
    fn what_is_stored_is_said_with_what_is_around_it() {
        let none = AroundRun::default;
        let driven = || AroundRun { is_driven: true, ..none() };
        let place = || OtherPlace { shown: "/srv/b on host".to_owned(), is_silent: false, is_to_end: false };
        let there = || AroundRun { elsewhere: Some(place()), ..none() };
        let silent = || AroundRun { elsewhere: Some(OtherPlace { is_silent: true, ..place() }), ..none() };
        let ended = || AroundRun { is_session: true, is_to_end: true, ..none() };
        let outdated = || AroundRun { is_outdated: true, ..none() };
        for (status, around, words) in [
            (RunStatus::Running, driven(), "running"),
            (RunStatus::Running, AroundRun { is_to_end: true, ..driven() }, "running, to be ended"),
            (RunStatus::Running, AroundRun { is_to_end: true, ..none() }, "crashed"),
            (RunStatus::Running, none(), "crashed"),
            (RunStatus::Running, AroundRun { ended_by: Some(EndedBy::Interrupt), ..none() }, "interrupted"),
            (RunStatus::Running, there(), "running in /srv/b on host"),
            (RunStatus::Running, silent(), "running in /srv/b on host, no sign of life"),
            (RunStatus::Running, AroundRun { is_to_end: true, ..there() }, "running in /srv/b on host, to be ended"),
            (
                RunStatus::Running,
                AroundRun { is_to_end: true, ..silent() },
                "running in /srv/b on host, to be ended, no sign of life",
            ),
            (RunStatus::Running, ended(), "ended session"),
            (RunStatus::Running, AroundRun { is_driven: true, ..ended() }, "running, to be ended"),
            (RunStatus::Stopped, ended(), "ended session"),
            (RunStatus::WaitingForHuman, ended(), "ended session"),
            (RunStatus::WaitingForHuman, AroundRun { is_answered: true, ..ended() }, "ended session"),
            (RunStatus::Cancelled, ended(), "cancelled"),
            (RunStatus::Running, AroundRun { is_session: true, ..none() }, "idle session"),
            (RunStatus::Running, AroundRun { is_session: true, ..driven() }, "running"),
            (RunStatus::Stopped, AroundRun { is_session: true, ..none() }, "idle session"),
            (RunStatus::Stopped, none(), "stopped (budget)"),
            (RunStatus::WaitingForHuman, none(), "waiting for you"),
            (RunStatus::WaitingForHuman, AroundRun { is_answered: true, ..none() }, "answered"),
            (RunStatus::WaitingForHuman, AroundRun { is_session: true, ..none() }, "waiting for you"),
            (RunStatus::WaitingForHuman, AroundRun { is_answered: true, is_session: true, ..none() }, "idle session"),
            (RunStatus::Queued, none(), "queued"),
            (RunStatus::Queued, AroundRun { is_in_no_queue: true, ..none() }, "not begun"),
            (RunStatus::Succeeded, none(), "succeeded"),
            (RunStatus::Running, outdated(), "outdated"),
            (RunStatus::Running, AroundRun { ended_by: Some(EndedBy::Interrupt), ..outdated() }, "outdated"),
            (RunStatus::Running, AroundRun { is_driven: true, ..outdated() }, "running"),
            (RunStatus::Stopped, outdated(), "outdated"),
            (RunStatus::WaitingForHuman, outdated(), "outdated"),
            (RunStatus::WaitingForHuman, AroundRun { is_answered: true, ..outdated() }, "outdated"),
            (RunStatus::Queued, AroundRun { is_in_no_queue: true, ..outdated() }, "outdated"),
            (RunStatus::Failed, outdated(), "failed"),
        ] {
            let standing = Standing::of(status, Some(RunStop::Budget), around);
            assert_eq!(standing.to_string(), words);
            assert_eq!(standing.is_driven(), words.starts_with("running"), "{words}");
            // No page says of a run that it runs: it may be killed before the page is read.
            assert_eq!(standing.on_a_page() != words, standing.is_driven(), "{words}");
        }
    }
}
