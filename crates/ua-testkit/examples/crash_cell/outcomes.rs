//! What can come of a crossing, and what of that a cell does not play, with the reason: the one place where that is said.

use ua_testkit::{ClockOutcome, ModelOutcome, PersonOutcome, ProcessOutcome, StoreOutcome, ToolOutcome};

/// Why no cell plays this of a tool. `--outcome NAME` has the first send of the subject in a life come to it.
pub(crate) const fn not_of_tool(outcome: ToolOutcome) -> Option<&'static str> {
    match outcome {
        ToolOutcome::Answered
        | ToolOutcome::NeverLeft
        | ToolOutcome::Refused(_)
        | ToolOutcome::LostBefore
        | ToolOutcome::LostAfter
        | ToolOutcome::ReportedWithoutEffect
        | ToolOutcome::ReportedWithEffect
        | ToolOutcome::AnsweredTwice
        | ToolOutcome::ServerDied => None,
        ToolOutcome::Late => Some("`--runner-dies received` plays it: a server that lost its runner goes on"),
        ToolOutcome::BusyForLong => Some("a cell runs on the wall clock; the simulation plays it"),
        ToolOutcome::GoesOnInATask | ToolOutcome::AsksFirst => {
            Some("the classes `asks first`, `asks while it waits` and `continues in a task` play it, in every send")
        }
    }
}

/// Why no cell plays this of the store.
pub(crate) const fn not_of_store(outcome: StoreOutcome) -> Option<&'static str> {
    match outcome {
        // A kill behind a write is an answer that is lost.
        StoreOutcome::Done | StoreOutcome::AnswerLost => None,
        StoreOutcome::Busy | StoreOutcome::BusyForLong => Some("the simulation plays it"),
        StoreOutcome::DiskFull => Some("`cargo xtask io-faults` plays it on a real file, and the simulation"),
        StoreOutcome::Forgotten => Some("the simulation plays it; `ua-e2e` restores with the real command"),
    }
}

/// Why no cell plays this of the model.
pub(crate) const fn not_of_model(outcome: ModelOutcome) -> Option<&'static str> {
    match outcome {
        ModelOutcome::Answered => None,
        ModelOutcome::NeverLeft
        | ModelOutcome::RateLimited
        | ModelOutcome::Overloaded
        | ModelOutcome::ServerError
        | ModelOutcome::Silent
        | ModelOutcome::CutLate
        | ModelOutcome::CutShort
        | ModelOutcome::Refused
        | ModelOutcome::Unauthorized
        | ModelOutcome::TooLong => Some("a cell's model is a script in its own process; the simulation plays it"),
    }
}

/// Why no cell plays this of a person.
pub(crate) const fn not_of_person(outcome: PersonOutcome) -> Option<&'static str> {
    match outcome {
        PersonOutcome::Looks | PersonOutcome::Skips | PersonOutcome::Executes | PersonOutcome::Forks => None,
        PersonOutcome::Remarks
        | PersonOutcome::Aborts
        | PersonOutcome::ClaimsHappened
        | PersonOutcome::WhileItLives
        | PersonOutcome::Silent
        | PersonOutcome::Cancels
        | PersonOutcome::Accepts
        | PersonOutcome::RaisesBudgets
        | PersonOutcome::PutsRight
        | PersonOutcome::Deletes => {
            Some("a cell asks one question at a time, and of somebody who looks; the simulation plays it")
        }
    }
}

/// Why no cell plays this of the time.
pub(crate) const fn not_of_clock(outcome: ClockOutcome) -> Option<&'static str> {
    match outcome {
        ClockOutcome::Flows => None,
        ClockOutcome::Hour | ClockOutcome::StepsForward | ClockOutcome::StepsBack | ClockOutcome::Suspended => {
            Some("a cell runs on the wall clock; the simulation plays it")
        }
    }
}

/// Why no cell plays this of a process.
pub(crate) const fn not_of_process(outcome: ProcessOutcome) -> Option<&'static str> {
    match outcome {
        // `--kill` and `--replace`.
        ProcessOutcome::GoesOn | ProcessOutcome::Dies | ProcessOutcome::FallsAsleep => None,
        ProcessOutcome::Signalled | ProcessOutcome::GivesUpCalls | ProcessOutcome::SignalledTwice => {
            Some("signals are the command line's; `cargo xtask acceptance` and the simulation send them")
        }
        ProcessOutcome::FindsTheUndead => Some("a cell ends every server by SIGKILL; the simulation plays it"),
    }
}

/// Everything that no cell plays, as `crash_cell outcomes` prints it.
pub(crate) fn not_played() -> Vec<String> {
    let mut lines = Vec::new();
    let mut note = |seam: &str, name: &str, why: Option<&str>| {
        lines.extend(why.map(|why| format!("{seam} {name}: {why}")));
    };
    for one in ToolOutcome::all() {
        note("tool", &one.name(), not_of_tool(one));
    }
    for one in StoreOutcome::ALL {
        note("store", one.name(), not_of_store(*one));
    }
    for one in ModelOutcome::ALL {
        note("model", one.name(), not_of_model(*one));
    }
    for one in PersonOutcome::ALL {
        note("person", one.name(), not_of_person(*one));
    }
    for one in ClockOutcome::ALL {
        note("clock", one.name(), not_of_clock(*one));
    }
    for one in ProcessOutcome::ALL {
        note("process", one.name(), not_of_process(*one));
    }
    lines
}
