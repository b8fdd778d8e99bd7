//! Lifecycles: the statuses of runs, steps and tool calls, and the one table of a call's transitions.
//!
//! Durable Jobs v1 spec §5 and §8.3, extended: a call whose outcome was lost is `unknown`, never `failed`.

use serde::{Deserialize, Serialize};

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every value, in the order of its lifecycle.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word that is stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err($crate::words::not_one_of(other, &[$($text),+])),
                }
            }
        }
    };
}
pub(crate) use text_enum;

text_enum! {
    /// Where a run stands. *Crashed* is not stored: it is a `running` run whose lock is free.
    RunStatus {
        /// Submitted, never started.
        Queued = "queued",
        /// Owned by a process, or by one that died.
        Running = "running",
        /// Stopped until a person answers a question (`waiting` in Durable Jobs v1 spec §5).
        WaitingForHuman = "waiting_for_human",
        /// Stopped for a reason that a resume may lift.
        Stopped = "stopped",
        /// Every stop condition held.
        Succeeded = "succeeded",
        /// Ended without reaching its stop conditions.
        Failed = "failed",
        /// Ended because a person asked for it.
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    /// Whether nothing can happen to the run any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

text_enum! {
    /// Why a run is `stopped`.
    RunStop {
        /// A budget was reached; resume with a larger one.
        Budget = "budget",
        /// A signal asked the process to stop.
        Interrupt = "interrupt",
        /// The model provider could not be reached, or not for now: the same request may be answered later.
        Provider = "provider",
        /// The model provider refuses the request, and will refuse the same one again: something is to be corrected first.
        ProviderRefused = "provider_refused",
        /// The model provider knows no model of the run's name, which a run keeps: a fork takes another one.
        UnknownModel = "unknown_model",
        /// The job, its tools or its model are no longer what the run started with.
        Fingerprint = "fingerprint",
        /// A tool server could not be started or reached.
        ToolServer = "tool_server",
        /// A session of a client at the gateway that nobody is connected to; it goes on when one comes.
        Idle = "idle",
    }
}

impl RunStop {
    /// As people read it.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Budget | Self::Interrupt | Self::Provider | Self::Idle => self.as_str(),
            Self::ProviderRefused => "provider refused",
            Self::UnknownModel => "unknown model",
            Self::Fingerprint => "setup changed",
            Self::ToolServer => "tool server",
        }
    }
}

text_enum! {
    /// Where a step stands (Durable Jobs v1 spec §5).
    StepStatus {
        /// Planned.
        Ready = "ready",
        /// Being executed.
        Running = "running",
        /// Waiting for a person.
        Blocked = "blocked",
        /// Done.
        Succeeded = "succeeded",
        /// Ended without being done.
        Failed = "failed",
        /// Not needed.
        Skipped = "skipped",
    }
}

text_enum! {
    /// Where a tool call stands. The database stores the two failures as `failed` plus a failure kind.
    CallStatus {
        /// Planned in the same write as the model's reply; never sent.
        Prepared = "prepared",
        /// An attempt was committed and may have been sent.
        Running = "running",
        /// Its effect happened, by receipt or by evidence.
        Succeeded = "succeeded",
        /// It did not happen; it may be tried again.
        FailedDefinite = "failed_definite",
        /// The tool answered with an error; the model sees it.
        FailedReported = "failed_reported",
        /// Sent, outcome not known.
        Unknown = "unknown",
        /// Never sent and never will be.
        Cancelled = "cancelled",
    }
}

impl CallStatus {
    /// The word that a person reads; [`CallStatus::as_str`] is what is stored and what machines are told. Which of the two failures it is does not
    /// say yet whether the effect may be there: of a call at hand, `ua_evidence::call_in_words` says that.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Prepared => "not sent yet",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::FailedDefinite | Self::FailedReported => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "never sent",
        }
    }
}

text_enum! {
    /// The two ways to fail.
    FailureKind {
        /// Nothing left us, or the other side refused before acting.
        Definite = "definite",
        /// The tool reported an error.
        Reported = "reported",
    }
}

text_enum! {
    /// How a person, a probe or a rule settled a call that could not settle itself.
    Resolution {
        /// A person says that it happened.
        Happened = "happened",
        /// A probe found that it happened.
        Reconciled = "reconciled",
        /// A person says that it did not happen.
        NotHappened = "not_happened",
        /// A person ordered another attempt.
        Executed = "executed",
        /// A person skipped it; it may have happened and goes on blocking its scope.
        Skipped = "skipped",
        /// The dispatcher refused it before it was sent.
        Refused = "refused",
        /// An earlier call of the same turn failed.
        AfterFailure = "after_failure",
        /// The run was cancelled first.
        RunCancelled = "run_cancelled",
        /// The model's reply was cut, so its tool uses do not count.
        ReplyCut = "reply_cut",
        /// Another call of the lineage already had this effect.
        Deduplicated = "deduplicated",
    }
}

text_enum! {
    /// What a person says that a call came to, whatever is recorded about it.
    CorrectedTo {
        /// It happened.
        Happened = "happened",
        /// It did not happen.
        NotHappened = "not_happened",
        /// Nobody knows, and nobody will find out: it may have happened.
        Skipped = "skipped",
    }
}

impl CorrectedTo {
    /// What it does to the call.
    pub const fn event(self) -> CallEvent {
        match self {
            Self::Happened => CallEvent::CorrectedToHappened,
            Self::NotHappened => CallEvent::CorrectedToNotHappened,
            Self::Skipped => CallEvent::CorrectedToSkipped,
        }
    }
}

/// Something that happens to a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallEvent {
    /// An attempt is committed: PREPARED, a definite failure or UNKNOWN becomes RUNNING; all others refuse.
    Started,
    /// A receipt or evidence says it happened: RUNNING or UNKNOWN becomes SUCCEEDED; all others refuse.
    Succeeded,
    /// Another call's receipt answers it: PREPARED becomes SUCCEEDED without an attempt; all others refuse.
    Deduplicated,
    /// It provably did not happen: RUNNING or UNKNOWN becomes FAILED (definite); all others refuse.
    FailedDefinitely,
    /// The tool reported an error: RUNNING or UNKNOWN becomes FAILED (reported); all others refuse.
    FailureReported,
    /// Sent and not answered: RUNNING becomes UNKNOWN; all others refuse.
    OutcomeLost,
    /// It will not be sent: PREPARED becomes CANCELLED; all others refuse.
    Cancelled,
    /// A person says that it happened: RUNNING, UNKNOWN and both failures become SUCCEEDED; all others refuse.
    CorrectedToHappened,
    /// A person says that it did not happen: RUNNING, UNKNOWN, SUCCEEDED and a reported failure become FAILED (definite); all others
    /// refuse.
    CorrectedToNotHappened,
    /// A person says that nobody knows: RUNNING, SUCCEEDED and both failures become UNKNOWN, and UNKNOWN stays; all others refuse.
    CorrectedToSkipped,
}

impl CallEvent {
    /// Every event.
    pub const ALL: &'static [Self] = &[
        Self::Started,
        Self::Succeeded,
        Self::Deduplicated,
        Self::FailedDefinitely,
        Self::FailureReported,
        Self::OutcomeLost,
        Self::Cancelled,
        Self::CorrectedToHappened,
        Self::CorrectedToNotHappened,
        Self::CorrectedToSkipped,
    ];

    /// Whether only a person's word makes it happen.
    pub const fn is_correction(self) -> bool {
        matches!(self, Self::CorrectedToHappened | Self::CorrectedToNotHappened | Self::CorrectedToSkipped)
    }
}

/// An event that its status does not allow: a bug, or a second writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} does not apply to a call that is {from}")]
pub struct IllegalTransition {
    /// The status the call had.
    pub from: CallStatus,
    /// What was to happen to it.
    pub event: CallEvent,
}

impl CallStatus {
    /// Applies `event`. This match is the whole table; the database repeats it as a trigger.
    pub fn on(self, event: CallEvent) -> Result<Self, IllegalTransition> {
        use CallEvent as E;
        use CallStatus as S;
        Ok(match (self, event) {
            (S::Prepared, E::Cancelled) => S::Cancelled,
            (S::Prepared | S::FailedDefinite | S::Unknown, E::Started) => S::Running,
            (S::Prepared, E::Deduplicated) | (S::Running | S::Unknown, E::Succeeded) => S::Succeeded,
            (S::Running | S::Unknown, E::FailedDefinitely) => S::FailedDefinite,
            (S::Running | S::Unknown, E::FailureReported) => S::FailedReported,
            (S::Running, E::OutcomeLost) => S::Unknown,
            (from, event) => return from.corrected(event).ok_or(IllegalTransition { from, event }),
        })
    }

    /// The edges of a person's word, which alone may take a settled call back.
    fn corrected(self, event: CallEvent) -> Option<Self> {
        use CallEvent as E;
        use CallStatus as S;
        let to = match event {
            E::CorrectedToHappened => S::Succeeded,
            E::CorrectedToNotHappened => S::FailedDefinite,
            E::CorrectedToSkipped => S::Unknown,
            E::Started
            | E::Deduplicated
            | E::Cancelled
            | E::Succeeded
            | E::FailedDefinitely
            | E::FailureReported
            | E::OutcomeLost => return None,
        };
        let was_sent = !matches!(self, S::Prepared | S::Cancelled);
        // Of a call that nobody knows of, that nobody will know is news; of others only another record is.
        (was_sent && (self != to || self == S::Unknown)).then_some(to)
    }

    /// Whether the call needs nothing more before its turn can be committed. `unknown` counts only once a person
    /// skipped it, which is the resolution's business, not the status's.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::FailedDefinite | Self::FailedReported | Self::Cancelled)
    }

    /// Whether a row in this status holds its idempotency key against others.
    pub const fn claims_key(self) -> bool {
        matches!(self, Self::Running | Self::Unknown | Self::Succeeded)
    }

    /// The status word of the database (Durable Jobs v1 spec §5): both failures are `failed`.
    pub const fn column(self) -> &'static str {
        match self {
            Self::FailedDefinite | Self::FailedReported => "failed",
            other @ (Self::Prepared | Self::Running | Self::Succeeded | Self::Unknown | Self::Cancelled) => {
                other.as_str()
            }
        }
    }

    /// The failure kind that the database stores beside [`column`](Self::column).
    pub const fn failure_kind(self) -> Option<FailureKind> {
        match self {
            Self::FailedDefinite => Some(FailureKind::Definite),
            Self::FailedReported => Some(FailureKind::Reported),
            Self::Prepared | Self::Running | Self::Succeeded | Self::Unknown | Self::Cancelled => None,
        }
    }

    /// Reads the two columns back.
    pub fn from_columns(status: &str, kind: Option<&str>) -> Result<Self, String> {
        match (status, kind) {
            ("failed", Some("definite")) => Ok(Self::FailedDefinite),
            ("failed", Some("reported")) => Ok(Self::FailedReported),
            ("failed", other) => Err(format!("a failed call has failure kind {other:?}")),
            (status, None) => status.parse(),
            (status, Some(kind)) => Err(format!("a call that is {status} has failure kind {kind:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table_is_exactly_this() {
        use CallEvent as E;
        use CallStatus as S;
        let legal = [
            (S::Prepared, E::Started, S::Running),
            (S::Prepared, E::Deduplicated, S::Succeeded),
            (S::Prepared, E::Cancelled, S::Cancelled),
            (S::Running, E::Succeeded, S::Succeeded),
            (S::Running, E::FailedDefinitely, S::FailedDefinite),
            (S::Running, E::FailureReported, S::FailedReported),
            (S::Running, E::OutcomeLost, S::Unknown),
            (S::FailedDefinite, E::Started, S::Running),
            (S::Unknown, E::Started, S::Running),
            (S::Unknown, E::Succeeded, S::Succeeded),
            (S::Unknown, E::FailedDefinitely, S::FailedDefinite),
            (S::Unknown, E::FailureReported, S::FailedReported),
            // By a person's word only.
            (S::Running, E::CorrectedToHappened, S::Succeeded),
            (S::Unknown, E::CorrectedToHappened, S::Succeeded),
            (S::FailedDefinite, E::CorrectedToHappened, S::Succeeded),
            (S::FailedReported, E::CorrectedToHappened, S::Succeeded),
            (S::Running, E::CorrectedToNotHappened, S::FailedDefinite),
            (S::Unknown, E::CorrectedToNotHappened, S::FailedDefinite),
            (S::Succeeded, E::CorrectedToNotHappened, S::FailedDefinite),
            (S::FailedReported, E::CorrectedToNotHappened, S::FailedDefinite),
            (S::Running, E::CorrectedToSkipped, S::Unknown),
            (S::Unknown, E::CorrectedToSkipped, S::Unknown),
            (S::Succeeded, E::CorrectedToSkipped, S::Unknown),
            (S::FailedDefinite, E::CorrectedToSkipped, S::Unknown),
            (S::FailedReported, E::CorrectedToSkipped, S::Unknown),
        ];
        let mut found = Vec::new();
        for &from in S::ALL {
            for &event in E::ALL {
                if let Ok(to) = from.on(event) {
                    found.push((from, event, to));
                }
            }
        }
        assert_eq!(found.len(), legal.len());
        for row in legal {
            assert!(found.contains(&row), "{row:?}");
        }
    }

    #[test]
    fn statuses_survive_their_columns() {
        for &status in CallStatus::ALL {
            let kind = status.failure_kind().map(FailureKind::as_str);
            assert_eq!(CallStatus::from_columns(status.column(), kind), Ok(status));
        }
        assert!(CallStatus::from_columns("failed", None).is_err());
        assert!(CallStatus::from_columns("running", Some("definite")).is_err());
    }
}
