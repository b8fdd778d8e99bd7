//! Everything that can come of a crossing: one list for each seam.
//!
//! The world ([`World`](crate::World)), the simulation ([`sim`](crate::sim)), the crash cells (`examples/crash_cell`) and
//! `crash_anywhere` match on these lists without a wildcard, so an outcome that nobody plays does not compile. A lane that cannot play
//! one says so in its arm, with the reason; those arms are what is not tested there.

use ua_core::RawReply;
pub use ua_store::conformance::StoreOutcome;
use ua_store::outcomes;

outcomes! {
    /// What can come of a request to the model.
    ModelOutcome {
        /// A whole reply.
        Answered = "answered",
        /// It never left.
        NeverLeft = "never-left",
        /// Too many requests; the provider says how long to wait.
        RateLimited = "rate-limited",
        /// The provider has no capacity now.
        Overloaded = "overloaded",
        /// The provider failed.
        ServerError = "server-error",
        /// Nothing was heard of it for too long.
        Silent = "silent",
        /// The stream broke after the provider had said what it bills and had sent most of the reply.
        CutLate = "cut-late",
        /// The reply came, cut at its length limit.
        CutShort = "cut-short",
        /// The provider refuses the request, and would refuse the same one again.
        Refused = "refused",
        /// The provider refuses the credentials.
        Unauthorized = "unauthorized",
        /// The request is longer than what the model takes.
        TooLong = "too-long",
    }
}

outcomes! {
    /// What can come of a question to a person, or of a person's own accord.
    PersonOutcome {
        /// They look outside, and say what they saw.
        Looks = "looks",
        /// The same, with a remark.
        Remarks = "remarks",
        /// They decide that it is not to be done, or leave it.
        Skips = "skips",
        /// They end the run.
        Aborts = "aborts",
        /// They let it run without looking.
        Executes = "executes",
        /// They say that it happened without looking.
        ClaimsHappened = "claims-happened",
        /// They answer while a process drives the run.
        WhileItLives = "while-it-lives",
        /// They do not answer, and the run is started again in vain.
        Silent = "silent",
        /// They cancel the run.
        Cancels = "cancels",
        /// They fork the run, whether or not it is driven.
        Forks = "forks",
        /// They let a run go on although the database has forgotten what it sent.
        Accepts = "accepts",
        /// They raise the budgets.
        RaisesBudgets = "raises-budgets",
        /// They see to it that what was done is not there any more, and put its record right.
        PutsRight = "puts-right",
        /// They delete a run that nobody drives, finished or not, with force or without.
        Deletes = "deletes",
    }
}

outcomes! {
    /// What can come of the time between two crossings.
    ClockOutcome {
        /// A moment passes.
        Flows = "flows",
        /// An hour passes for everybody.
        Hour = "hour",
        /// The wall clock is set on by some minutes; nothing else moves.
        StepsForward = "steps-forward",
        /// The wall clock is set back by some minutes.
        StepsBack = "steps-back",
        /// The machine is suspended: the wall clock moves on, and no wait of a process ends meanwhile.
        Suspended = "suspended",
    }
}

outcomes! {
    /// What can come of a process at a crossing.
    ProcessOutcome {
        /// It goes on.
        GoesOn = "goes-on",
        /// It dies, without a word.
        Dies = "dies",
        /// It falls asleep, another one takes its run, and it wakes up.
        FallsAsleep = "falls-asleep",
        /// It is asked to stop.
        Signalled = "signalled",
        /// It is asked to wait for no call any longer: it was asked to stop, and the time for that is over.
        GivesUpCalls = "gives-up-calls",
        /// It is asked to stop at once.
        SignalledTwice = "signalled-twice",
        /// It finds an earlier tool server that cannot be ended.
        FindsTheUndead = "finds-the-undead",
    }
}

outcomes! {
    /// A refusal that means: nothing of this request happened.
    Refusal {
        /// HTTP 400.
        BadRequest = "400",
        /// HTTP 401.
        Unauthorized = "401",
        /// HTTP 403.
        Forbidden = "403",
        /// HTTP 404.
        NotFound = "404",
        /// HTTP 405.
        MethodNotAllowed = "405",
        /// HTTP 413.
        TooLarge = "413",
        /// HTTP 415.
        UnsupportedMedia = "415",
        /// HTTP 429.
        TooMany = "429",
        /// JSON-RPC −32601.
        NoSuchMethod = "-32601",
    }
}

impl Refusal {
    /// The reply that says it.
    pub fn reply(self) -> RawReply {
        let http = |status: u16| RawReply::http(status, "refused");
        match self {
            Self::BadRequest => http(400),
            Self::Unauthorized => http(401),
            Self::Forbidden => http(403),
            Self::NotFound => http(404),
            Self::MethodNotAllowed => http(405),
            Self::TooLarge => http(413),
            Self::UnsupportedMedia => http(415),
            Self::TooMany => http(429),
            Self::NoSuchMethod => RawReply::RpcError { code: -32601, message: "method not found".to_owned() },
        }
    }

    /// Whether a server over HTTP says it; the other one is a matter of the protocol, and any server's.
    pub const fn is_http(self) -> bool {
        !matches!(self, Self::NoSuchMethod)
    }
}

/// What can come of a request to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolOutcome {
    /// It is done and answered.
    Answered,
    /// It never left: the connection was refused, or its server is gone.
    NeverLeft,
    /// It is refused for good. After an earlier attempt that was lost this says nothing about that one.
    Refused(Refusal),
    /// It is lost on the way, and so is the answer.
    LostBefore,
    /// It is done, and the answer is lost.
    LostAfter,
    /// The caller hears nothing, and it is done later, if nobody ends the server first.
    Late,
    /// The tool says that it failed (`isError`), and did nothing.
    ReportedWithoutEffect,
    /// The tool says that it failed after it did it.
    ReportedWithEffect,
    /// The request arrives twice.
    AnsweredTwice,
    /// The tool is busy for an hour before it does it.
    BusyForLong,
    /// The server ends with everything that it has in flight.
    ServerDied,
    /// It is not done when it answers: the work goes on in a task (MCP), whoever asks for it.
    GoesOnInATask,
    /// It asks for something first (elicitation), and does its work when that is answered.
    AsksFirst,
}

impl ToolOutcome {
    /// All of them, each refusal for itself.
    pub fn all() -> impl Iterator<Item = Self> {
        let before = [Self::Answered, Self::NeverLeft];
        let after = [
            Self::LostBefore,
            Self::LostAfter,
            Self::Late,
            Self::ReportedWithoutEffect,
            Self::ReportedWithEffect,
            Self::AnsweredTwice,
            Self::BusyForLong,
            Self::ServerDied,
            Self::GoesOnInATask,
            Self::AsksFirst,
        ];
        before.into_iter().chain(Refusal::ALL.iter().copied().map(Self::Refused)).chain(after)
    }

    /// What it is called, on a command line and in a trace.
    pub fn name(self) -> String {
        let name = match self {
            Self::Answered => "answered",
            Self::NeverLeft => "never-left",
            Self::Refused(refusal) => return format!("refused-{}", refusal.name()),
            Self::LostBefore => "lost-before",
            Self::LostAfter => "lost-after",
            Self::Late => "late",
            Self::ReportedWithoutEffect => "reported-without-effect",
            Self::ReportedWithEffect => "reported-with-effect",
            Self::AnsweredTwice => "answered-twice",
            Self::BusyForLong => "busy-for-long",
            Self::ServerDied => "server-died",
            Self::GoesOnInATask => "goes-on-in-a-task",
            Self::AsksFirst => "asks-first",
        };
        name.to_owned()
    }

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|one| one.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that is missing in `all` would be played by nobody: each is named here by a match, and found there.
    #[test]
    fn every_outcome_of_a_tool_is_in_the_list_and_has_a_name_of_its_own() {
        let place = |outcome: ToolOutcome| match outcome {
            ToolOutcome::Answered => 0,
            ToolOutcome::NeverLeft => 1,
            ToolOutcome::Refused(_) => 2,
            ToolOutcome::LostBefore => 3,
            ToolOutcome::LostAfter => 4,
            ToolOutcome::Late => 5,
            ToolOutcome::ReportedWithoutEffect => 6,
            ToolOutcome::ReportedWithEffect => 7,
            ToolOutcome::AnsweredTwice => 8,
            ToolOutcome::BusyForLong => 9,
            ToolOutcome::ServerDied => 10,
            ToolOutcome::GoesOnInATask => 11,
            ToolOutcome::AsksFirst => 12,
        };
        let places: std::collections::BTreeSet<u32> = ToolOutcome::all().map(place).collect();
        assert_eq!(places, (0..13).collect(), "one is missing in `all`");
        let names: std::collections::BTreeSet<String> = ToolOutcome::all().map(ToolOutcome::name).collect();
        assert_eq!(names.len(), 12 + Refusal::ALL.len());
        for outcome in ToolOutcome::all() {
            assert_eq!(ToolOutcome::parse(&outcome.name()), Some(outcome));
        }
    }

    /// The definite list of the ledger, as `ua-ledger`'s `interpret` reads it.
    #[test]
    fn a_refusal_says_that_nothing_happened() {
        let statuses = Refusal::ALL.iter().filter_map(|refusal| match refusal.reply() {
            RawReply::HttpStatus { status, .. } => Some(status),
            RawReply::RpcError { .. }
            | RawReply::ToolResult { .. }
            | RawReply::Refused { .. }
            | RawReply::Statement { .. }
            | RawReply::Found { .. } => None,
        });
        assert_eq!(statuses.collect::<Vec<_>>(), [400, 401, 403, 404, 405, 413, 415, 429]);
    }
}
