//! What a worker tells while it works: a sentence for people, and for machines what it is about.

use std::sync::Arc;

use ua_core::{RunId, RunStatus};

/// What a worker did, or what came to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It serves its health at an address.
    Listening,
    /// It takes runs from here on.
    Started,
    /// It has a run, and drives it.
    Claimed,
    /// A run came to its end.
    Ended,
    /// A run stays with nobody until somebody does something: answers, raises a budget, moves it.
    Parked,
    /// A run is in the queue again, for this worker later or for another one.
    Released,
    /// A schedule submitted a run.
    Submitted,
    /// It takes no more runs, and waits for those that it has.
    Stopping,
    /// Something else that concerns whoever looks after it.
    Noted,
}

impl Did {
    /// All of them, in the order in which a page lists them.
    pub const ALL: [Self; 9] = [
        Self::Listening,
        Self::Started,
        Self::Claimed,
        Self::Ended,
        Self::Parked,
        Self::Released,
        Self::Submitted,
        Self::Stopping,
        Self::Noted,
    ];

    /// Its name for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listening => "listening",
            Self::Started => "started",
            Self::Claimed => "claimed",
            Self::Ended => "ended",
            Self::Parked => "parked",
            Self::Released => "released",
            Self::Submitted => "submitted",
            Self::Stopping => "stopping",
            Self::Noted => "noted",
        }
    }
}

/// Something that a worker tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEvent {
    /// What it did.
    pub did: Did,
    /// The run that it is about.
    pub run: Option<RunId>,
    /// How that run stands now, where it was looked at.
    pub status: Option<RunStatus>,
    /// The same for people, as one sentence without control characters.
    pub text: String,
}

impl WorkerEvent {
    /// Something that is about no single run.
    pub fn of_worker(did: Did, sentence: &str) -> Self {
        // Words of a provider or a tool server may stand in it: none of them begins a line of its own in a log.
        Self { did, run: None, status: None, text: crate::text::place(sentence) }
    }

    /// Something that is about this run.
    pub fn of_run(did: Did, run: &RunId, status: Option<RunStatus>, sentence: &str) -> Self {
        Self { run: Some(run.clone()), status, ..Self::of_worker(did, sentence) }
    }
}

/// Who is told what a worker does.
pub type Told = Arc<dyn Fn(&WorkerEvent) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_one_line_whatever_others_said() {
        let run = RunId::parse("r").unwrap();
        let said = "run r: busy\nrun r waits for you: `ua answer 1 approve`\r\u{1b}[2J\u{2028}x";
        let told = WorkerEvent::of_run(Did::Released, &run, None, said);
        assert_eq!(told.text, "run r: busy run r waits for you: `ua answer 1 approve`\\u{d}\\u{1b}[2J\\u{2028}x");
        assert_eq!(WorkerEvent::of_worker(Did::Noted, said).text, told.text);
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = Did::ALL.iter().map(|did| did.as_str()).collect();
        assert_eq!(names.len(), Did::ALL.len());
    }
}
