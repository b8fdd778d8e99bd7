//! The table of verdicts: every status, with every attempt behind it, every call beside it, every word of a person, every policy, and every class of
//! tools.
//!
//! The cases are generated; the rows say in words what has to become of them, the first that fits. Whatever is added to an axis is among the cases by
//! that; a case that no row fits fails, and so does a row that no case needs. What a class may count on, and what all of them may, is said beside the
//! rows (`statements.rs`), and holds in every case as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::json;
use ua_core::{
    CallPolicy, CallStatus, Destination, Handle, Input, OnScopeConflict, OnUnknown, PlannedCall, RawReply, Resolution,
    RunId, Scope, Sha256, ShortNames, SideEffectClass, Time, ToolName, sha256,
};
use ua_store::conformance::samples;
use ua_store::{
    AnswerRecord, AttemptRecord, CallRecord, Choice, LateReply, QuestionKind, QuestionRecord, QuestionStatus,
    RecallCall, ReceiptRecord, Related, Relations,
};

use super::against::Against;
use super::{Decision, Known, Verdict, verdict};
use crate::admission::{Facts, SincePlanned};
use crate::behind::Behind;
use crate::effect_limit::EffectLimit;
use crate::enquiry::{Asked, Finding};
use crate::ledger::{LedgerConfig, Lineage};
use crate::outside::Still;
use crate::people::{CallsOf, MAX_ASKED, PeopleRules};
use crate::question::{Reason, Why, question};
use crate::rules::Rules;
use crate::sends::Sends;
use crate::sent_files::{FileContent, SentFile, SentFiles};
use crate::view::{Twin, View};

#[path = "table/statements.rs"]
mod statements;

/// An axis of the table. Its values are listed once, so there is none that no case has.
macro_rules! axis {
    (@all $name:ident $member:ident) => { [$name::$member] };
    (@all $name:ident $member:ident $all:expr) => { $all.iter().copied().map($name::$member) };
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $member:ident $(($of:ty: $all:expr))?,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum $name { $($(#[$doc])* $member $(($of))?,)+ }

        impl $name {
            /// All of them.
            fn all() -> impl Iterator<Item = Self> {
                std::iter::empty()$(.chain(axis!(@all $name $member $($all)?)))+
            }
        }
    };
}

/// All values of an enum of another crate. Does not compile while one is missing.
macro_rules! all_of {
    ($name:ident: $of:ident = $($member:ident),+) => {
        const $name: &[$of] = &[$($of::$member),+];
        const _: fn($of) = |one| match one { $($of::$member)|+ => () };
    };
}

axis! {
    /// Where the call stands, with what its last attempt left.
    Stand {
        Prepared,
        RunningUnread,
        RunningWithHandle,
        /// No process is at it, and it left no answer.
        RunningAlone,
        Unknown,
        Skipped,
        FailedOnce,
        FailedAsOftenAsAllowed,
        RefusedCredentials,
        Succeeded,
        FailedReported,
        Cancelled,
    }
}

impl Stand {
    fn status(self) -> CallStatus {
        match self {
            Self::Prepared => CallStatus::Prepared,
            Self::RunningUnread | Self::RunningWithHandle | Self::RunningAlone => CallStatus::Running,
            Self::Unknown | Self::Skipped => CallStatus::Unknown,
            Self::FailedOnce | Self::FailedAsOftenAsAllowed | Self::RefusedCredentials => CallStatus::FailedDefinite,
            Self::Succeeded => CallStatus::Succeeded,
            Self::FailedReported => CallStatus::FailedReported,
            Self::Cancelled => CallStatus::Cancelled,
        }
    }

    fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::FailedReported | Self::Cancelled)
    }

    /// Whether what the policy says about other calls and approvals may matter.
    fn may_go_out(self) -> bool {
        match self {
            Self::Prepared | Self::RunningWithHandle | Self::FailedOnce | Self::RefusedCredentials => true,
            Self::RunningUnread
            | Self::RunningAlone
            | Self::Unknown
            | Self::Skipped
            | Self::FailedAsOftenAsAllowed
            | Self::Succeeded
            | Self::FailedReported
            | Self::Cancelled => false,
        }
    }
}

axis! {
    /// What other calls have to do with it.
    Beside {
        Nothing,
        TwinDone,
        /// The same, and nobody declared what the effect is.
        TwinGuessed,
        /// The same, and it went to another place or as another account.
        TwinElsewhere,
        TwinUnderWay,
        TwinInDoubt,
        Rival,
        Doubt,
        Kin,
        KinSince,
        /// The same as kin, under another name of its server.
        Renamed,
        /// The same in doubt.
        RenamedInDoubt,
        RenamedSince,
    }
}

impl Beside {
    /// What it would be if its server had the name of the call's.
    fn under_one_name(self) -> Self {
        match self {
            Self::Renamed => Self::Kin,
            Self::RenamedInDoubt => Self::Doubt,
            Self::RenamedSince => Self::KinSince,
            Self::Nothing
            | Self::TwinDone
            | Self::TwinGuessed
            | Self::TwinElsewhere
            | Self::TwinUnderWay
            | Self::TwinInDoubt
            | Self::Rival
            | Self::Doubt
            | Self::Kin
            | Self::KinSince => self,
        }
    }

    fn is_renamed(self) -> bool {
        self != self.under_one_name()
    }

    fn is_twin(self) -> bool {
        match self {
            Self::TwinDone | Self::TwinGuessed | Self::TwinElsewhere | Self::TwinUnderWay | Self::TwinInDoubt => true,
            Self::Nothing
            | Self::Rival
            | Self::Doubt
            | Self::Kin
            | Self::KinSince
            | Self::Renamed
            | Self::RenamedInDoubt
            | Self::RenamedSince => false,
        }
    }
}

all_of!(CHOICES: Choice = Happened, Execute, Skip, Abort, Continue);

axis! {
    /// What a person said.
    PersonAnswer {
        NotAsked,
        Nothing,
        Chose(Choice: CHOICES),
        /// They let go what was shown, and that is not what would be sent now.
        ToSomethingElse,
    }
}

axis! {
    /// What was asked about.
    About {
        Itself,
        NearDuplicate,
        /// The other call, and everything else that speaks against sending it.
        Everything,
        Elicitation,
    }
}

axis! {
    /// What is known from outside.
    Outside {
        Nothing,
        /// Its server cannot be ended and may still begin it.
        MayBegin,
        Gone,
        Found,
        AbsentInTime,
        AbsentTooEarly,
        Unclear,
    }
}

axis! {
    /// What stands in the way of another attempt.
    Obstacle {
        None,
        TriedOften,
        FileChanged,
        KeyExpired,
        ServerGone,
        HorizonAhead,
        /// A person answered while the other side could still begin it.
        AnsweredEarly,
        /// Its tool server goes somewhere else now than when it was sent.
        Elsewhere,
        /// What its tool and its policies say now is stricter than what it was planned under.
        PromisesLess,
    }
}

axis! {
    /// Whose tool it is.
    Tool {
        /// A tool server's, or a function of the program.
        Ordinary,
        /// What a model asks its person by: nothing is sent, and the answer is what that one says.
        AskUser,
        /// What a model hands work on by: a child run is behind it.
        Task,
    }
}

impl Tool {
    /// What the program's own tools are, by the policy that is shipped.
    fn class(self) -> Option<SideEffectClass> {
        match self {
            Self::Ordinary => None,
            Self::AskUser => Some(SideEffectClass::ReadOnly),
            Self::Task => Some(SideEffectClass::Local),
        }
    }
}

/// Whether what a call of a class does is there for the calls of others: the files of a workspace are each run's own.
fn reaches_others(class: SideEffectClass) -> bool {
    match class {
        SideEffectClass::External | SideEffectClass::Memory => true,
        SideEffectClass::ReadOnly | SideEffectClass::Local => false,
    }
}

/// One line of the input.
#[derive(Debug, Clone, Copy)]
struct Case {
    stand: Stand,
    beside: Beside,
    said: PersonAnswer,
    about: About,
    policy: OnUnknown,
    conflict: OnScopeConflict,
    needs_approval: bool,
    outside: Outside,
    obstacle: Obstacle,
    class: SideEffectClass,
    tool: Tool,
}

impl Case {
    /// The same without what has nothing to do with a call of its class: what another tree did is none of what is done in a workspace, and a read
    /// repeats nothing, wherever it is made. What was an effect under another name of its server stands in the way of whatever it is now.
    fn what_matters(mut self) -> Self {
        let (is_sent, beside) = (self.stand == S::Unknown, self.beside);
        let is_of_another_tree = matches!(beside, Beside::Kin | Beside::KinSince) || (is_sent && beside.is_renamed());
        let is_a_repeat = matches!(beside, Beside::Rival | Beside::Doubt);
        let has_effect = self.class.has_effect();
        if (is_of_another_tree && !reaches_others(self.class)) || (is_a_repeat && !has_effect) {
            self.beside = Beside::Nothing;
        }
        if self.obstacle == Obstacle::Elsewhere && !has_effect {
            self.obstacle = Obstacle::None;
        }
        self
    }

    /// Whether there is such a case at all.
    fn can_be(&self) -> bool {
        let beside = self.beside;
        match self.tool {
            // A read has no kind of effect, so none is known by its content.
            Tool::Ordinary => self.class.has_effect() || !beside.is_twin(),
            // What the program does itself has one policy, no server, and no form that somebody waits for.
            Tool::AskUser => {
                let is_asked_of_it = self.stand != S::Prepared || self.about == About::Itself;
                self.is_of_the_program() && beside == Beside::Nothing && is_asked_of_it
            }
            Tool::Task => self.is_of_the_program() && !beside.is_twin() && !beside.is_renamed(),
        }
    }

    fn is_of_the_program(&self) -> bool {
        self.policy == OnUnknown::Redo && self.stand != S::RunningWithHandle
    }

    /// Whether what it differs in from others may matter. Calls with effects outside are looked at in every combination, those of other classes and
    /// tools in these.
    fn may_differ(&self) -> bool {
        // Where nothing is approved, a question about everything says what one about the other call alone does.
        let says_the_same = self.about == About::Everything && !self.stand.may_go_out();
        let is_outside = (self.class, self.tool) == (SideEffectClass::External, Tool::Ordinary);
        let may = match self.stand {
            S::Unknown => matches!(self.beside, Beside::Nothing | Beside::KinSince | Beside::RenamedSince),
            S::Prepared | S::FailedOnce | S::RefusedCredentials => {
                matches!(self.policy, OnUnknown::Redo | OnUnknown::Hold)
            }
            S::RunningWithHandle => {
                self.beside == Beside::Nothing && matches!(self.policy, OnUnknown::Hold | OnUnknown::Continue)
            }
            S::FailedAsOftenAsAllowed => self.policy == OnUnknown::Redo,
            S::RunningUnread | S::RunningAlone | S::Skipped | S::Succeeded | S::FailedReported | S::Cancelled => {
                self.beside == Beside::Nothing && self.policy == OnUnknown::Redo
            }
        };
        is_outside || (may && !says_the_same)
    }

    /// Whether an attempt of it that is lost leaves a doubt: what has no effect, and what replaces its own output, is simply done again.
    fn may_be_in_doubt(&self) -> bool {
        self.class.has_effect() && self.policy != OnUnknown::Redo
    }

    fn is_yes(&self) -> bool {
        matches!(self.said, PersonAnswer::Chose(Choice::Execute | Choice::Continue))
    }

    fn is_happened(&self) -> bool {
        self.said == PersonAnswer::Chose(Choice::Happened)
    }

    /// A person said that the earlier call was this very effect, and that one succeeded and stands as they were shown it.
    fn is_word_of_the_earlier(&self) -> bool {
        self.is_happened() && matches!(self.about, About::NearDuplicate | About::Everything) && self.has_earlier()
    }

    /// A call that succeeded stands in the way.
    fn has_earlier(&self) -> bool {
        let twins = [Beside::TwinDone, Beside::TwinGuessed, Beside::TwinElsewhere];
        let is_there = twins.contains(&self.beside) || self.beside.under_one_name() == Beside::Kin;
        is_there && self.tool != Tool::Task // of whose child run another task has nothing
    }

    fn is_skip(&self) -> bool {
        self.said == PersonAnswer::Chose(Choice::Skip)
    }

    /// A person let it go, knowing of the other call as it is.
    fn ordered_repeat(&self) -> bool {
        self.is_yes() && matches!(self.about, About::NearDuplicate | About::Everything) && !self.is_news()
    }

    /// A person's word counts that it needs an approval, and nobody has given one.
    fn lacks_approval(&self) -> bool {
        let shown = match self.about {
            About::Itself => self.is_yes() && self.stand != Stand::RefusedCredentials,
            About::Everything if self.is_news() => {
                self.stand != Stand::Prepared
                    && matches!(self.said, PersonAnswer::Chose(Choice::Execute | Choice::Continue))
            }
            About::Everything => self.is_yes(),
            About::NearDuplicate | About::Elicitation => false,
        };
        self.needs_approval && !shown
    }

    /// Another call is a reason to ask a person.
    fn is_asked_about_the_other(&self) -> bool {
        let may_ask = match self.conflict {
            OnScopeConflict::Ask => true,
            // Refused, but for whoever was asked before.
            OnScopeConflict::Refuse => self.ordered_repeat(),
            OnScopeConflict::Allow => matches!(self.beside, Beside::TwinInDoubt | Beside::TwinUnderWay),
        };
        self.is_in_the_way() && may_ask
    }

    /// The other call has moved on since a person was asked about it.
    fn is_news(&self) -> bool {
        self.beside.under_one_name() == Beside::KinSince
    }

    /// Another call stands in the way of a first send.
    fn is_in_the_way(&self) -> bool {
        match self.beside {
            Beside::Nothing => false,
            // What replaces its own output may be repeated whatever became of the last time.
            Beside::Doubt | Beside::RenamedInDoubt => self.policy != OnUnknown::Redo,
            Beside::TwinDone
            | Beside::TwinGuessed
            | Beside::TwinElsewhere
            | Beside::TwinUnderWay
            | Beside::TwinInDoubt
            | Beside::Rival
            | Beside::Kin
            | Beside::KinSince
            | Beside::Renamed
            | Beside::RenamedSince => true,
        }
    }
}

/// What has to become of a case, and why.
struct Row {
    fits: fn(&Case) -> bool,
    verdict: &'static str,
    why: &'static str,
}

const fn row(verdict: &'static str, why: &'static str, fits: fn(&Case) -> bool) -> Row {
    Row { fits, verdict, why }
}

use Stand as S;

/// The table.
const ROWS: &[Row] = &[
    row("settled", "what is settled is answered from its receipt", |c| c.stand.is_settled()),
    row("settled", "a person, or its policy, left it as it is", |c| c.stand == S::Skipped),
    // Running.
    row("interpret", "a stored answer is read before anything else", |c| c.stand == S::RunningUnread),
    row("aborted", "who ends the run is heard first; to what a tool asked, where that is followed", |c| {
        let is_heard_here = c.about != About::Elicitation || c.obstacle == Obstacle::Elsewhere;
        c.stand == S::RunningWithHandle && c.said == PersonAnswer::Chose(Choice::Abort) && is_heard_here
    }),
    row("let go", "a person says what came of it while the tool has it", |c| {
        let is_heard_later = c.obstacle != Obstacle::Elsewhere && c.about != About::Itself;
        c.stand == S::RunningWithHandle
            && c.about != About::Elicitation
            && !is_heard_later
            && (c.is_skip() || c.is_happened())
    }),
    row("go on", "the tool has it, and it goes there", |c| {
        c.stand == S::RunningWithHandle && c.obstacle != Obstacle::Elsewhere
    }),
    row("let go", "a person says that it did not happen, and where to send it", |c| {
        c.stand == S::RunningWithHandle && ordered(c) && c.said != PersonAnswer::ToSomethingElse
    }),
    row("hold", "somebody was asked already, and it stays as it is", |c| {
        c.stand == S::RunningWithHandle && is_asked(c)
    }),
    row("let go", "its policy goes on in doubt", |c| {
        c.stand == S::RunningWithHandle && c.policy == OnUnknown::Continue && !ordered(c)
    }),
    row("ask: unknown", "what another tool server has cannot be followed here, and is not lost", |c| {
        c.stand == S::RunningWithHandle
    }),
    row("ongoing", "the child's rows say where a task stands", |c| c.stand == S::RunningAlone && c.tool == Tool::Task),
    row("mark lost", "its process is gone and left no answer", |c| c.stand == S::RunningAlone),
    // In doubt.
    row(
        "resolve: not happened",
        "whether a read happened is nobody's question: its model is told that no answer came",
        |c| is_mere_read(c) && !may_begin(c) && matches!(if_it_had_an_effect(c), "ask: unknown" | "go on without, ask"),
    ),
    row("resolve: not happened", "for that, nobody waits for a server", |c| {
        may_begin(c) && once_gone(c) == "resolve: not happened"
    }),
    row("aborted", "who ends the run is heard first", |c| {
        c.stand == S::Unknown && c.about != About::Elicitation && c.said == PersonAnswer::Chose(Choice::Abort)
    }),
    row("resolve: happened", "a person's word needs no fence, nothing is sent", |c| {
        c.stand == S::Unknown && c.about != About::Elicitation && c.is_happened()
    }),
    row("resolve: skipped", "a person's word needs no fence, nothing is sent", |c| {
        c.stand == S::Unknown && c.about != About::Elicitation && c.is_skip()
    }),
    row("hold", "what cannot be ended is waited for where it is sent again; somebody was asked already", |c| {
        may_begin(c) && once_gone(c) == "hold"
    }),
    row(
        "ask: unknown",
        "a question about what cannot be ended sends nothing, and says from when on a look counts",
        |c| may_begin(c) && once_gone(c) == "ask: unknown",
    ),
    row("fence", "whoever looks before its process is gone may look too early", |c| {
        c.stand == S::Unknown && matches!(c.outside, Outside::Nothing | Outside::MayBegin)
    }),
    row("probe", "whoever orders it may not have looked where the policy can", |c| {
        c.stand == S::Unknown
            && ordered(c)
            && c.policy == OnUnknown::Probe
            && c.outside == Outside::Gone
            && !is_elsewhere(c)
    }),
    row("resolve: found", "a probe has seen what somebody ordered again", |c| {
        c.stand == S::Unknown && ordered(c) && c.outside == Outside::Found && !is_elsewhere(c)
    }),
    row("ask: unknown", "another run may have had the effect since it was ordered", |c| {
        c.stand == S::Unknown && ordered(c) && c.is_news()
    }),
    row("ask: unknown", "a word is about what was shown with it", |c| {
        c.stand == S::Unknown && ordered(c) && c.said == PersonAnswer::ToSomethingElse
    }),
    row("not before", "an order is carried out when the other side cannot begin the old attempt any more", |c| {
        c.stand == S::Unknown && ordered(c) && c.obstacle == Obstacle::HorizonAhead
    }),
    row("start: ends doubt", "said too early, and a probe proves it now", |c| {
        c.stand == S::Unknown
            && ordered(c)
            && c.obstacle == Obstacle::AnsweredEarly
            && c.outside == Outside::AbsentInTime
    }),
    row("not before", "said too early, and the probe may not show it yet", |c| {
        c.stand == S::Unknown
            && ordered(c)
            && c.obstacle == Obstacle::AnsweredEarly
            && c.outside == Outside::AbsentTooEarly
    }),
    row("ask: unknown", "whoever looked while it could still begin may have looked too early", |c| {
        c.stand == S::Unknown && ordered(c) && c.obstacle == Obstacle::AnsweredEarly
    }),
    row("resolve: not happened", "contents that changed are another effect, so what was in doubt ends", |c| {
        c.stand == S::Unknown && ordered(c) && c.obstacle == Obstacle::FileChanged
    }),
    row("start: ends doubt", "a person says that it did not happen", |c| c.stand == S::Unknown && ordered(c)),
    row("hold", "a key and a look count only where the call went: somebody was asked already", |c| {
        c.stand == S::Unknown && is_elsewhere(c) && is_asked(c)
    }),
    row("ask: unknown", "a key and a look count only where the call went", |c| {
        c.stand == S::Unknown && is_elsewhere(c)
    }),
    row("resolve: found", "a probe has seen it", |c| c.stand == S::Unknown && c.outside == Outside::Found),
    row("not before", "absent counts only from the horizon on", |c| {
        c.stand == S::Unknown && c.outside == Outside::AbsentTooEarly
    }),
    row("hold", "somebody was asked already", |c| {
        c.stand == S::Unknown && is_asked(c) && c.outside == Outside::Unclear
    }),
    row("ask: unknown", "a probe that says nothing clear leaves it to a person", |c| {
        c.stand == S::Unknown && c.outside == Outside::Unclear
    }),
    row("hold", "absent, but it may not be sent again: somebody was asked already", |c| {
        c.stand == S::Unknown && c.outside == Outside::AbsentInTime && is_asked(c) && blocks_after_absent(c)
    }),
    row("ask: unknown", "absent, but it may not be sent again", |c| {
        c.stand == S::Unknown && c.outside == Outside::AbsentInTime && blocks_after_absent(c)
    }),
    row("start: ends doubt", "a probe proves that it is not there", |c| {
        c.stand == S::Unknown && c.outside == Outside::AbsentInTime
    }),
    row("probe", "its policy asks the other side", |c| c.stand == S::Unknown && c.policy == OnUnknown::Probe),
    row("go on without", "its policy goes on in doubt; somebody was asked already", |c| {
        c.stand == S::Unknown && c.policy == OnUnknown::Continue && is_asked(c)
    }),
    row("go on without, ask", "its policy goes on in doubt, and a person is asked beside it", |c| {
        c.stand == S::Unknown && c.policy == OnUnknown::Continue
    }),
    row("hold", "somebody was asked, and nothing but an answer changes that", |c| c.stand == S::Unknown && is_asked(c)),
    row("ask: unknown", "its policy leaves it to a person", |c| c.stand == S::Unknown && c.policy == OnUnknown::Hold),
    row("ask: unknown", "a promise that was taken back since it was sent lets nothing go out again", |c| {
        c.stand == S::Unknown && c.obstacle == Obstacle::PromisesLess
    }),
    row("ask: unknown", "it was sent as often as the job allows", |c| {
        c.stand == S::Unknown && c.obstacle == Obstacle::TriedOften
    }),
    row("ask: unknown", "another run may have had the effect since", |c| c.stand == S::Unknown && c.is_news()),
    row("ask: unknown", "under its key another request would go out", |c| {
        c.stand == S::Unknown && c.policy == OnUnknown::RedoKeyed && c.obstacle == Obstacle::FileChanged
    }),
    row("ask: unknown", "the other side may have forgotten its key", |c| {
        c.stand == S::Unknown && c.policy == OnUnknown::RedoKeyed && c.obstacle == Obstacle::KeyExpired
    }),
    row("unreachable", "an attempt that never leaves is none; the run stops while the key lives", |c| {
        c.stand == S::Unknown && c.obstacle == Obstacle::ServerGone
    }),
    row("start: in doubt", "a redo: what replaces its own output, or goes under a key that counts", |c| {
        c.stand == S::Unknown
    }),
    // Failed, definitely.
    row("aborted", "who ends the run is heard first", |c| {
        (failed(c) || c.stand == S::FailedAsOftenAsAllowed) && c.said == PersonAnswer::Chose(Choice::Abort)
    }),
    row("put right", "a person says that another call had its effect, which stands as it was shown", |c| {
        let is_failed = failed(c) || c.stand == S::FailedAsOftenAsAllowed;
        is_failed && c.is_word_of_the_earlier() && c.beside.under_one_name() == Beside::Kin
    }),
    row("settled", "it was tried as often as is allowed", |c| c.stand == S::FailedAsOftenAsAllowed),
    row("hold", "somebody was asked", |c| failed(c) && c.said == PersonAnswer::Nothing),
    row("settled", "a person leaves the failure as it is", |c| failed(c) && c.is_skip()),
    row("settled", "that another call was it lets nothing go out", |c| {
        failed(c) && c.is_happened() && c.about == About::Itself
    }),
    row("ask: credentials", "trying again with the same credentials changes nothing", |c| {
        c.stand == S::RefusedCredentials && c.said == PersonAnswer::NotAsked
    }),
    row("settled", "a twin took the effect over, where this one was to have it", |c| {
        failed(c) && c.beside.is_twin() && c.beside != Beside::TwinElsewhere
    }),
    row("settled", "another call may have had the effect, and the policy refuses repeats", |c| {
        failed(c) && c.is_in_the_way() && c.conflict == OnScopeConflict::Refuse && !c.ordered_repeat()
    }),
    row("ask: near duplicate", "another call may have had the effect since; an approval was not about that", |c| {
        failed(c) && c.is_asked_about_the_other() && !c.ordered_repeat()
    }),
    row("ask: approval", "nobody has approved what would be sent now", |c| failed(c) && c.lacks_approval()),
    row("ask: moved", "what was said to have had its effect is not recorded as that any more", |c| {
        failed(c) && c.is_happened()
    }),
    row("start", "it did nothing, and nothing stands in its way", failed),
    // Sent for the first time.
    row("aborted", "who ends the run is heard first", |c| c.said == PersonAnswer::Chose(Choice::Abort)),
    row("hold", "somebody was asked", |c| c.said == PersonAnswer::Nothing && c.about == About::Itself),
    row("cancel: declined", "a person does not want it", Case::is_skip),
    row("cancel: declined", "nobody answers what a model asks", |c| c.tool == Tool::AskUser && c.is_happened()),
    row("start", "what a person says to it is its answer", |c| {
        c.tool == Tool::AskUser && (c.is_yes() || c.said == PersonAnswer::ToSomethingElse)
    }),
    row("ask: ask_user", "what a model asks waits for a person's words", |c| c.tool == Tool::AskUser),
    row(
        "deduplicate",
        "a person says that the earlier call was it: its receipt is the answer",
        Case::is_word_of_the_earlier,
    ),
    row("ask: near duplicate", "a word about the other call is no approval: both are asked about at once", |c| {
        c.ordered_repeat() && c.lacks_approval() && c.is_asked_about_the_other()
    }),
    row("ask: approval", "a word about the other call is no approval", |c| c.ordered_repeat() && c.lacks_approval()),
    row("start", "a person let it go, knowing of all that speaks against it", Case::ordered_repeat),
    row("deduplicate", "its twin's receipt is its answer", |c| c.beside == Beside::TwinDone),
    row("wait", "its twin's receipt is on the way", |c| c.beside == Beside::TwinUnderWay),
    row("hold", "somebody was asked about the other call", |c| {
        let is_allowed = c.conflict == OnScopeConflict::Allow && c.beside != Beside::TwinInDoubt;
        c.said == PersonAnswer::Nothing && c.is_in_the_way() && !is_allowed && !c.is_news()
    }),
    row("cancel: near_duplicate", "another call may have had the effect, and the policy refuses repeats", |c| {
        c.is_in_the_way() && c.conflict == OnScopeConflict::Refuse
    }),
    row("ask: near duplicate", "another call may have had the effect; an approval was not about that", |c| {
        c.is_in_the_way() && c.conflict == OnScopeConflict::Ask
    }),
    row("ask: near duplicate", "what is allowed in other words is made once in the same ones", |c| {
        c.beside == Beside::TwinInDoubt && c.conflict == OnScopeConflict::Allow
    }),
    row("ask: approval", "each of its calls needs a person's approval", Case::lacks_approval),
    row("ask: moved", "what was said to have had the effect is not recorded as that any more", |c| {
        c.is_happened() && matches!(c.about, About::NearDuplicate | About::Everything)
    }),
    row(
        "cancel: near_duplicate",
        "that it is done lets nothing go out, whatever became of what was done",
        Case::is_happened,
    ),
    row("start", "nothing speaks against it", |_| true),
];

fn failed(case: &Case) -> bool {
    matches!(case.stand, S::FailedOnce | S::RefusedCredentials)
}

/// Which row says what has to become of a case.
fn row_of(case: &Case) -> Option<usize> {
    let case = case.what_matters();
    ROWS.iter().position(|row| (row.fits)(&case))
}

/// A person said that a call in doubt did not happen.
fn ordered(case: &Case) -> bool {
    let said =
        matches!(case.said, PersonAnswer::Chose(Choice::Execute | Choice::Continue) | PersonAnswer::ToSomethingElse);
    said && case.about != About::Elicitation
}

/// Nobody orders to send a call that its server may still begin.
fn may_begin(case: &Case) -> bool {
    case.stand == S::Unknown && case.outside == Outside::MayBegin && !ordered(case)
}

/// What becomes of it when it cannot begin any more.
fn once_gone(case: &Case) -> &'static str {
    verdict_of(&Case { outside: Outside::Gone, ..*case })
}

/// What would become of a read if it were none.
fn if_it_had_an_effect(case: &Case) -> &'static str {
    verdict_of(&Case { class: SideEffectClass::External, ..*case })
}

fn verdict_of(case: &Case) -> &'static str {
    ROWS.iter().find(|row| (row.fits)(case)).map_or("", |row| row.verdict)
}

/// A call in doubt of which nobody knows and knew more than that it reads, and of which nobody wants to be asked all the same.
fn is_mere_read(case: &Case) -> bool {
    let is_read = case.class == SideEffectClass::ReadOnly && case.obstacle != Obstacle::PromisesLess;
    case.stand == S::Unknown && is_read && case.policy != OnUnknown::Hold
}

/// The call would be sent, or looked up, somewhere else than where it went.
fn is_elsewhere(case: &Case) -> bool {
    let by_policy = matches!(case.policy, OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Probe);
    case.obstacle == Obstacle::Elsewhere && (by_policy || case.outside != Outside::Gone)
}

/// A person was asked about a call in doubt and has not answered.
fn is_asked(case: &Case) -> bool {
    case.said == PersonAnswer::Nothing && case.about != About::Elicitation
}

fn blocks_after_absent(case: &Case) -> bool {
    matches!(case.obstacle, Obstacle::TriedOften | Obstacle::FileChanged | Obstacle::PromisesLess) || case.is_news()
}

/// Every case of a call with an effect outside that differs from the others in something that may matter.
fn cases() -> Vec<Case> {
    cases_of(SideEffectClass::External, Tool::Ordinary)
}

/// Of these a share, for tests beside the table itself: every fifth before a change lands, and all with `UA_WHOLE=1`, as every night.
fn share_of_cases() -> Vec<Case> {
    let share = if std::env::var_os("UA_WHOLE").is_some() { 1 } else { 5 };
    cases().into_iter().step_by(share).collect()
}

/// The same of calls of other classes and tools.
fn cases_of_other_classes() -> Vec<Case> {
    let classes = SideEffectClass::ALL.iter().flat_map(|class| Tool::all().map(move |tool| (*class, tool)));
    let there = classes.filter(|(class, tool)| tool.class().is_none_or(|own| own == *class));
    let others = there.filter(|of| *of != (SideEffectClass::External, Tool::Ordinary));
    others.flat_map(|(class, tool)| cases_of(class, tool)).collect()
}

fn cases_of(class: SideEffectClass, tool: Tool) -> Vec<Case> {
    let mut cases = Vec::new();
    for stand in Stand::all() {
        for policy in OnUnknown::ALL {
            for beside in Beside::all() {
                for said in PersonAnswer::all() {
                    for about in About::all() {
                        let plain = Case {
                            stand,
                            beside,
                            said,
                            about,
                            policy: *policy,
                            conflict: OnScopeConflict::Ask,
                            needs_approval: false,
                            outside: Outside::Nothing,
                            obstacle: Obstacle::None,
                            class,
                            tool,
                        };
                        let is_about_nothing = said == PersonAnswer::NotAsked && about != About::Itself;
                        if is_about_nothing || !plain.can_be() || !plain.may_differ() {
                            continue;
                        }
                        if stand == S::Unknown {
                            cases.extend(Outside::all().flat_map(|outside| {
                                Obstacle::all().map(move |obstacle| Case { outside, obstacle, ..plain })
                            }));
                            continue;
                        }
                        if stand == S::RunningWithHandle {
                            cases.push(Case { obstacle: Obstacle::Elsewhere, ..plain });
                        }
                        if about == About::Elicitation {
                            continue;
                        }
                        if stand.may_go_out() {
                            cases.extend(OnScopeConflict::ALL.iter().flat_map(|conflict| {
                                [false, true].map(|needs_approval| Case {
                                    conflict: *conflict,
                                    needs_approval,
                                    ..plain
                                })
                            }));
                        } else {
                            cases.push(plain);
                        }
                    }
                }
            }
        }
    }
    cases
}

const MAX_RETRIES: u32 = 2;

impl Case {
    fn policy(&self) -> CallPolicy {
        CallPolicy {
            class: self.class,
            on_unknown: self.policy,
            on_scope_conflict: self.conflict,
            needs_approval: self.needs_approval,
            kind_is_guessed: self.beside == Beside::TwinGuessed,
            key_ttl: Some(Duration::from_secs(100)),
            horizon: Some(Duration::from_secs(30)),
            ..CallPolicy::unclassified()
        }
    }

    fn call(&self) -> CallRecord {
        // Thousands of cases have the same arguments, whose digests took longer than what the cases test.
        static PLANNED: LazyLock<PlannedCall> = LazyLock::new(|| samples::planned_email("call_1", 1, 1));
        let planned = PLANNED.clone();
        let status = self.stand.status();
        let (attempt, code) = match self.stand {
            S::Prepared => (0, None),
            S::FailedOnce => (1, Some("not_sent")),
            S::FailedAsOftenAsAllowed => (MAX_RETRIES + 1, Some("not_sent")),
            S::RefusedCredentials => (1, Some("http_401")),
            S::RunningUnread
            | S::RunningWithHandle
            | S::RunningAlone
            | S::Unknown
            | S::Skipped
            | S::Succeeded
            | S::FailedReported
            | S::Cancelled => (1, None),
        };
        CallRecord {
            call_id: planned.call_id,
            run_id: RunId::parse("run_1").unwrap(),
            root_run_id: RunId::parse("run_1").unwrap(),
            step_id: samples::step_id("step_1"),
            position: planned.position,
            created_at: samples::at(1),
            updated_at: samples::at(1),
            tool_use_id: planned.tool_use_id,
            name: match self.tool {
                Tool::Ordinary => planned.name,
                Tool::AskUser => ToolName::ask_user(),
                Tool::Task => ToolName::task(),
            },
            arguments: planned.arguments,
            args_hash: planned.args_hash,
            tool_digest: planned.tool_digest,
            policy: self.policy().into(),
            status,
            attempt,
            doubt: (status == CallStatus::Unknown && self.may_be_in_doubt()).then_some(1),
            idempotency_key: (attempt > 0).then(|| samples::key("k1")),
            scope: Some(scope()),
            file_digests: BTreeMap::new(),
            possible_effect: None,
            resolution: (self.stand == S::Skipped).then_some(Resolution::Skipped),
            deduplicated_from: None,
            replay_status: None,
            external_correlation_id: None,
            error_code: code.map(str::to_owned),
            error_detail: None,
            correction: None,
        }
    }

    fn other(&self, status: CallStatus, doubt: Option<u32>, second: i64) -> CallRecord {
        // What was done under another name of its server is looked for only where one of the two reaches others.
        let is_of_others = self.beside.is_renamed() && !reaches_others(self.class);
        let class = if is_of_others { SideEffectClass::External } else { self.class };
        let mut other = Self { stand: S::Succeeded, class, ..*self }.call();
        other.call_id = samples::call_id("call_2");
        other.run_id = RunId::parse("run_2").unwrap();
        (other.status, other.doubt) = (status, doubt);
        (other.created_at, other.updated_at) = (samples::at(second), samples::at(second));
        other
    }

    /// The same call of another tree, under another name of its server, and with a key of its own.
    fn renamed(&self, status: CallStatus, doubt: Option<u32>, second: i64) -> Related {
        let mut other = self.other(status, doubt, second);
        other.name = ToolName::qualified(other.name.namespace, "the_other_name", &other.name.tool);
        other.idempotency_key = Some(samples::key("k2"));
        Related::one(other)
    }

    fn attempts(&self) -> Vec<AttemptRecord> {
        let count = match self.obstacle {
            Obstacle::TriedOften => MAX_RETRIES + 1,
            Obstacle::ServerGone => MAX_RETRIES + 2,
            Obstacle::None
            | Obstacle::FileChanged
            | Obstacle::KeyExpired
            | Obstacle::HorizonAhead
            | Obstacle::AnsweredEarly
            | Obstacle::Elsewhere
            | Obstacle::PromisesLess => u32::from(self.stand != S::Prepared),
        };
        let attempt = |number| AttemptRecord {
            call_id: samples::call_id("call_1"),
            attempt: number,
            epoch: 1,
            server_generation: Some("g1".to_owned()),
            destination: Some(samples::destination("ours")),
            started_at: samples::at(10),
            ended_at: (!matches!(self.stand, S::RunningWithHandle)).then(|| samples::at(11)),
            outcome: Some(if self.obstacle == Obstacle::ServerGone && number > 1 { "not_sent" } else { "lost" }.into()),
            detail: Some("it does not start".to_owned()),
            handle: (self.stand == S::RunningWithHandle)
                .then(|| Handle { task: Some("task-1".to_owned()), ..Handle::default() }),
        };
        (1..=count).map(attempt).collect()
    }

    /// The question, bound to what would be sent now or to something else.
    fn question(&self, call: &CallRecord, facts: &Facts, rules: &Rules<'_>) -> Option<QuestionRecord> {
        let (choice, binding) = match self.said {
            PersonAnswer::NotAsked => return None,
            PersonAnswer::Nothing => (None, rules.binding(call, facts)),
            PersonAnswer::Chose(choice) => (Some(choice), rules.binding(call, facts)),
            PersonAnswer::ToSomethingElse => (Some(Choice::Execute), json!({"args_hash": "another"})),
        };
        let kind = match (self.about, self.stand) {
            (About::NearDuplicate | About::Everything, _) => QuestionKind::NearDuplicate,
            (About::Elicitation, _) => QuestionKind::Elicitation,
            (About::Itself, S::Unknown | S::RunningWithHandle) => QuestionKind::UnknownOutcome,
            (About::Itself, S::RefusedCredentials) => QuestionKind::AuthFailure,
            (About::Itself, S::Prepared) if self.tool == Tool::AskUser => QuestionKind::AskUser,
            (About::Itself, _) => QuestionKind::Approval,
        };
        let reasons = match self.about {
            About::Everything => vec!["near_duplicate", "approval"],
            About::NearDuplicate => vec!["near_duplicate"],
            About::Itself if kind == QuestionKind::Approval => vec!["approval"],
            About::Itself | About::Elicitation => Vec::new(),
        };
        // What it might repeat was asked before it was sent.
        let is_of_before = self.stand == S::Unknown && kind == QuestionKind::NearDuplicate;
        Some(QuestionRecord {
            question_id: samples::question_id("q_1"),
            run_id: call.run_id.clone(),
            call_id: Some(call.call_id.clone()),
            kind,
            text: String::new(),
            detail: json!({
                "binding": binding,
                "attempt": if is_of_before { call.attempt.saturating_sub(1) } else { call.attempt },
                "reasons": reasons,
                "earlier": (kind == QuestionKind::NearDuplicate).then_some("call_2"),
            }),
            choices: Vec::new(),
            created_at: samples::at(2),
            status: if choice.is_some() { QuestionStatus::Answered } else { QuestionStatus::Open },
            answer: choice.map(|choice| AnswerRecord {
                choice,
                proof: None,
                text: None,
                by: "ana".to_owned(),
                answered_at: samples::at(if self.obstacle == Obstacle::AnsweredEarly { 40 } else { 41 }),
                applied_at: None,
            }),
            closed_because: None,
        })
    }

    fn view(&self, facts: &Facts, rules: &Rules<'_>) -> View {
        let call = self.call();
        let mut relations = Relations::default();
        let mut twin = None;
        let twin_of = |status, doubt, beside| {
            Some(Twin { call: self.other(status, doubt, 1), is_under_way_beside: beside, is_elsewhere: false })
        };
        match self.beside {
            Beside::Nothing => {}
            Beside::TwinDone | Beside::TwinGuessed => twin = twin_of(CallStatus::Succeeded, None, false),
            Beside::TwinElsewhere => {
                let call = self.other(CallStatus::Succeeded, None, 1);
                twin = Some(Twin { call, is_under_way_beside: false, is_elsewhere: true });
            }
            Beside::TwinUnderWay => twin = twin_of(CallStatus::Running, None, true),
            Beside::TwinInDoubt => twin = twin_of(CallStatus::Unknown, Some(1), false),
            Beside::Rival => relations.rivals = vec![Related::one(self.other(CallStatus::Unknown, Some(1), 1))],
            Beside::Doubt => {
                // Nothing but its words says that it is the same effect.
                let mut doubt = self.other(CallStatus::Unknown, Some(1), 1);
                doubt.scope = None;
                relations.doubts = vec![Related::one(doubt)];
            }
            Beside::Kin => {
                // It has a key of its own.
                let kin = CallRecord {
                    idempotency_key: Some(samples::key("k2")),
                    ..self.other(CallStatus::Succeeded, None, 0)
                };
                relations.kin.same = vec![Related::one(kin)];
            }
            Beside::KinSince => {
                relations.kin.same = vec![Related::one(self.other(CallStatus::Succeeded, None, 5))];
                relations.since = relations.kin.same.clone();
            }
            Beside::Renamed => relations.renamed = vec![self.renamed(CallStatus::Succeeded, None, 0)],
            Beside::RenamedInDoubt => relations.renamed = vec![self.renamed(CallStatus::Unknown, Some(1), 1)],
            Beside::RenamedSince => relations.renamed = vec![self.renamed(CallStatus::Succeeded, None, 20)],
        }
        let unread = (self.stand == S::RunningUnread).then(|| ReceiptRecord {
            call_id: call.call_id.clone(),
            attempt: 1,
            received_at: samples::at(11),
            raw: samples::raw(),
            settlement: None,
            evidence: ua_core::EvidenceLevel::Reported,
            lifted: BTreeMap::new(),
        });
        View {
            attempts: self.attempts(),
            unread,
            questions: self.question(&call, facts, rules).into_iter().collect(),
            late: Vec::new(),
            renamed: relations.renamed.clone(),
            relations,
            behind: Behind::default(),
            forgotten: None,
            settled: None,
            unseen: Vec::new(),
            corrected_at: None,
            lost: None,
            lost_keys: None,
            twin,
            in_place_of: None,
            known: crate::people::Named::default(),
            is_tainted: false,
            heard: crate::exits::Addresses::default(),
            alike: None,
            asked_before: 0,
            still: BTreeMap::new(),
            late_of_others: Vec::new(),
            used_up: None,
            call,
        }
    }

    fn facts(&self) -> Facts {
        let changed = (self.obstacle == Obstacle::FileChanged).then(|| ("file".to_owned(), sha256("other")));
        let account = if self.obstacle == Obstacle::Elsewhere { "another" } else { "ours" };
        let destination = Some(samples::destination(account));
        let is_stricter = self.obstacle == Obstacle::PromisesLess;
        Facts {
            scope: Some(scope()),
            files: SentFiles::of_digests(changed),
            destination,
            since_planned: if is_stricter { SincePlanned::Stricter } else { SincePlanned::Same },
            has_effect_now: is_stricter,
            ..Facts::default()
        }
    }

    /// The verdict, in words.
    fn verdict(&self) -> String {
        self.decided(name)
    }

    /// What `read` makes of the verdict.
    fn decided<T>(&self, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
        self.decided_with(None, &[], read)
    }

    /// The same where tools are defined so now.
    fn decided_beside<T>(&self, definitions: &BTreeMap<String, Sha256>, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
        self.decided_with(Some(definitions), &[], read)
    }

    /// The same where these answers lie beside the database.
    fn decided_with<T>(
        &self,
        definitions: Option<&BTreeMap<String, Sha256>>,
        late: &[LateReply],
        read: impl FnOnce(&Verdict<'_>) -> T,
    ) -> T {
        self.decided_in(definitions, late, |_, _| {}, read)
    }

    /// The same after `change` was made to what is known.
    fn decided_of<T>(&self, change: impl FnOnce(&mut View, &mut Facts), read: impl FnOnce(&Verdict<'_>) -> T) -> T {
        self.decided_in(None, &[], change, read)
    }

    fn decided_in<T>(
        &self,
        definitions: Option<&BTreeMap<String, Sha256>>,
        late: &[LateReply],
        change: impl FnOnce(&mut View, &mut Facts),
        read: impl FnOnce(&Verdict<'_>) -> T,
    ) -> T {
        self.decision_in(definitions, late, change, |decision| read(&decision.verdict))
    }

    /// The same with the questions that nobody has to answer any more.
    fn decision_in<T>(
        &self,
        definitions: Option<&BTreeMap<String, Sha256>>,
        late: &[LateReply],
        change: impl FnOnce(&mut View, &mut Facts),
        read: impl FnOnce(&Decision<'_>) -> T,
    ) -> T {
        let config = LedgerConfig {
            blob_threshold: 0,
            no_duplicate_external_actions: true,
            max_retries: MAX_RETRIES,
            max_read_retries: None,
            max_effects: BTreeMap::new(),
        };
        let people = PeopleRules { ask_on_auth_failure: true, ..PeopleRules::default() };
        let lineage = lineage();
        let now = match self.obstacle {
            Obstacle::HorizonAhead => samples::at(12),
            Obstacle::KeyExpired => samples::at(200),
            Obstacle::None
            | Obstacle::TriedOften
            | Obstacle::FileChanged
            | Obstacle::ServerGone
            | Obstacle::AnsweredEarly
            | Obstacle::Elsewhere
            | Obstacle::PromisesLess => samples::at(60),
        };
        let rules = Rules { definitions, time: Time::plain(now), ..rules(&config, &people, &lineage) };
        let mut facts = self.facts();
        let mut view = View { late: late.to_vec(), ..self.view(&facts, &rules) };
        change(&mut view, &mut facts);
        let (view, facts) = (view, facts);
        let said = |finding, conclusive| Asked {
            finding,
            tool: "look".to_owned(),
            at: samples::at(60),
            conclusive_from: Some(samples::at(conclusive)),
        };
        let found = said(Finding::Found { id: None, item: json!({}), by: "by its key".to_owned() }, 50);
        let (late, early) = (said(Finding::Absent, 50), said(Finding::Absent, 70));
        let unclear = said(Finding::Unclear { why: "it says nothing".to_owned() }, 50);
        let known = match self.outside {
            Outside::Nothing => Known::Nothing,
            Outside::MayBegin => Known::MayBegin(samples::at(300)),
            Outside::Gone => Known::Gone,
            Outside::Found => Known::Probed(&found),
            Outside::AbsentInTime => Known::Probed(&late),
            Outside::AbsentTooEarly => Known::Probed(&early),
            Outside::Unclear => Known::Probed(&unclear),
        };
        read(&verdict(&view, &facts, known, &rules))
    }
}

fn scope() -> Scope {
    Scope::new("email.send", "boss")
}

/// A verdict in words, as the rows say it.
fn name(verdict: &Verdict<'_>) -> String {
    use ua_core::EvidenceLevel;
    use ua_store::UnknownResolution as U;
    let words = match verdict {
        Verdict::Settled => "settled",
        Verdict::Interpret => "interpret",
        Verdict::MarkLost => "mark lost",
        Verdict::Recall(_) => "recall",
        Verdict::GoOn(_) => "go on",
        Verdict::KeepAnswer(_) => "keep the answer",
        Verdict::LetGo { .. } => "let go",
        Verdict::Ongoing => "ongoing",
        Verdict::Fence => "fence",
        Verdict::Probe => "probe",
        Verdict::NotBefore { .. } => "not before",
        Verdict::Answered { .. } => "answered",
        Verdict::Unreachable { .. } => "unreachable",
        Verdict::Resolve { resolution, replay, .. } => match (resolution.as_ref(), replay) {
            (U::Happened { evidence: EvidenceLevel::Reconciled, .. }, Some(_)) => "resolve: found",
            (U::Happened { .. }, _) => "resolve: happened",
            (U::Answered { .. }, _) => "resolve: answered",
            (U::NotHappened { .. }, _) => "resolve: not happened",
            (U::Skipped, _) => "resolve: skipped",
        },
        Verdict::GoOnWithout { ask: true } => "go on without, ask",
        Verdict::GoOnWithout { ask: false } => "go on without",
        Verdict::Hold(_) => "hold",
        Verdict::Ask(why) => match why {
            Why::Unknown { .. } => "ask: unknown",
            Why::WentOn { .. } => "ask: went on",
            Why::Send { first: Reason::NearDuplicate(_), .. } => "ask: near duplicate",
            Why::Send { first: Reason::Approval, .. } => "ask: approval",
            Why::Send { first: Reason::Tainted(_), .. } => "ask: tainted",
            Why::Send { first: Reason::MadeAddress(_), .. } => "ask: made address",
            Why::Send { first: Reason::Moved(_), .. } => "ask: moved",
            Why::Send { first: Reason::AmbiguousRecipient(_), .. } => "ask: recipient",
            Why::AuthFailure { .. } => "ask: credentials",
            Why::AskUser => "ask: ask_user",
            Why::Elicitation { .. } => "ask: elicitation",
        },
        Verdict::DeduplicateFrom { .. } => "deduplicate",
        Verdict::PutRight { .. } => "put right",
        Verdict::NotAllowed(_) => "not allowed",
        Verdict::WaitFor(_) => "wait",
        Verdict::Cancel { code, .. } => return format!("cancel: {code}"),
        Verdict::Start { ends_doubt: true, .. } => "start: ends doubt",
        Verdict::Start { replay: Some(_), .. } => "start: in doubt",
        Verdict::Start { .. } => "start",
        Verdict::Aborted => "aborted",
    };
    words.to_owned()
}

/// The cases of which a row, or a statement that is to hold, says something else than the verdict.
fn wrong_of(cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        let Some(row) = row_of(case).and_then(|number| ROWS.get(number)) else { panic!("no row fits {case:?}") };
        let found = case.verdict();
        if found != row.verdict {
            wrong.push(format!("{case:?}\n  is `{found}` and has to be `{}`: {}", row.verdict, row.why));
        }
        let broken = statements::broken_by(case, &found);
        wrong.extend(broken.map(|says| format!("{case:?}\n  is `{found}`, and {says}")));
    }
    wrong
}

fn assert_right(cases: &[Case]) {
    let wrong = wrong_of(cases);
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong[..wrong.len().min(12)].join("\n"));
}

#[test]
fn every_case_has_the_verdict_of_the_first_row_that_fits_it() {
    let cases = cases();
    assert_right(&cases);
    assert!(cases.len() > 100_000, "only {} cases", cases.len());
}

/// What a call touches, and whose tool it is, is an axis as every other: what only reads, what writes on this machine or into memory, and the two tools
/// that the program has itself.
#[test]
fn every_class_has_the_verdicts_of_the_rows_as_well() {
    let cases = cases_of_other_classes();
    assert_right(&cases);
    for class in SideEffectClass::ALL.iter().filter(|class| **class != SideEffectClass::External) {
        let count = cases.iter().filter(|case| (case.class, case.tool) == (*class, Tool::Ordinary)).count();
        assert!(count > 20_000, "{class}: only {count} cases");
    }
    for tool in Tool::all().filter(|tool| *tool != Tool::Ordinary) {
        let count = cases.iter().filter(|case| case.tool == tool).count();
        assert!(count > 1_000, "{tool:?}: only {count} cases");
    }
}

#[test]
fn no_status_no_row_and_no_statement_is_without_cases() {
    for status in CallStatus::ALL {
        assert!(Stand::all().any(|stand| stand.status() == *status), "{status}");
    }
    let (mut used, mut said) = (vec![0_usize; ROWS.len()], vec![0_usize; statements::ALL.len()]);
    for case in cases().iter().chain(&cases_of_other_classes()) {
        if let Some(count) = row_of(case).and_then(|number| used.get_mut(number)) {
            *count += 1;
        }
        for (count, statement) in said.iter_mut().zip(statements::ALL) {
            *count += usize::from((statement.of)(case));
        }
    }
    let unused: Vec<_> = ROWS.iter().zip(&used).filter(|(_, count)| **count == 0).map(|(row, _)| row.why).collect();
    assert!(unused.is_empty(), "rows that no case needs: {unused:?}");
    let empty: Vec<_> = statements::ALL.iter().zip(&said).filter(|(_, count)| **count == 0).collect();
    let empty: Vec<_> = empty.into_iter().map(|(statement, _)| statement.says).collect();
    assert!(empty.is_empty(), "statements about nothing: {empty:?}");
}

/// What a model asks is asked so often, and then it is told to decide itself.
#[test]
fn a_model_asks_its_person_no_more_than_it_may() {
    let is_first = |case: &Case| (case.stand, case.said) == (S::Prepared, PersonAnswer::NotAsked);
    for case in cases_of(SideEffectClass::ReadOnly, Tool::AskUser).into_iter().filter(is_first) {
        for (asked_before, wanted) in [(MAX_ASKED - 1, "ask: ask_user"), (MAX_ASKED, "cancel: asked_enough")] {
            assert_eq!(case.decided_of(|view, _| view.asked_before = asked_before, name), wanted, "{case:?}");
        }
    }
}

/// Over what has become, since, of the call that a person says had the effect of one that failed: as long as it stands as it was shown that is the record,
/// though the tool is gone; else they are asked again, also by a process that takes over behind the question that was closed for that.
#[test]
fn a_word_that_another_call_did_it_is_acted_on_or_asked_again() {
    for stand in [S::FailedOnce, S::RefusedCredentials, S::FailedAsOftenAsAllowed] {
        for (is_closed, is_moved, is_corrected, is_gone) in
            (0..16).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0, bits & 8 > 0))
        {
            let case = Case {
                stand,
                beside: Beside::Kin,
                said: PersonAnswer::Chose(Choice::Happened),
                about: About::NearDuplicate,
                policy: OnUnknown::Hold,
                conflict: OnScopeConflict::Ask,
                needs_approval: false,
                outside: Outside::Nothing,
                obstacle: Obstacle::None,
                class: SideEffectClass::External,
                tool: Tool::Ordinary,
            };
            let change = |view: &mut View, facts: &mut Facts| {
                if is_closed {
                    view.questions[0].status = QuestionStatus::Closed;
                }
                if is_moved {
                    facts.destination = Some(samples::destination("another"));
                }
                if is_corrected {
                    view.relations = Relations::default();
                }
            };
            let nothing = BTreeMap::new();
            let found = case.decided_in(is_gone.then_some(&nothing), &[], change, name);
            let stands = !is_moved && !is_corrected;
            let expected = if stands && !is_closed {
                "put right"
            } else if stands || is_gone || stand == S::FailedAsOftenAsAllowed {
                "settled" // one that stands and is closed was left by an earlier version
            } else if is_corrected {
                "ask: moved"
            } else {
                "ask: near duplicate"
            };
            assert_eq!(found, expected, "{stand:?} {is_closed} {is_moved} {is_corrected} {is_gone}");
        }
    }
}

#[test]
fn nothing_that_may_have_happened_is_sent_without_a_key_a_probe_or_a_word() {
    for case in cases().iter().filter(|case| case.stand == S::Unknown && case.verdict().starts_with("start")) {
        let by_key = matches!(case.policy, OnUnknown::Redo | OnUnknown::RedoKeyed) && case.outside == Outside::Gone;
        let is_known_there = case.obstacle != Obstacle::Elsewhere;
        let by_itself = is_known_there && (by_key || case.outside == Outside::AbsentInTime);
        assert!(by_itself || ordered(case), "{case:?}");
    }
}

/// What a server is called is given in a configuration: over the whole table the same call under another name is decided about as under the call's
/// own, and where it is known that there are two servers, as if it were not there.
#[test]
fn a_name_of_a_server_makes_no_other_call_of_it() {
    let mut found = BTreeMap::new();
    for case in cases().into_iter().filter(|case| case.beside != case.beside.under_one_name()) {
        let verdict = case.verdict();
        assert_eq!(verdict, Case { beside: case.beside.under_one_name(), ..case }.verdict(), "{case:?}");
        let as_two = case.decided_of(|view, _| view.renamed.clear(), name);
        assert_eq!(as_two, Case { beside: Beside::Nothing, ..case }.verdict(), "{case:?}");
        *found.entry(format!("{:?} {}", case.beside, verdict == as_two)).or_insert(0) += 1;
    }
    assert!(found.len() == 6 && found.values().all(|cases| *cases > 100), "{found:?}");
}

/// Beside the same call under another name of its server nothing goes out for the first time, or once more, but on the word of a person who knew
/// of it, or where its policy lets what is the same pass.
#[test]
fn nothing_goes_out_silently_beside_the_same_call_of_a_renamed_server() {
    let mut sent = 0;
    for case in cases().into_iter().filter(|case| case.beside != case.beside.under_one_name()) {
        let is_first = matches!(case.stand, S::Prepared | S::FailedOnce | S::RefusedCredentials);
        if !is_first || !case.verdict().starts_with("start") {
            continue;
        }
        let may_repeat = case.beside == Beside::RenamedInDoubt && case.policy == OnUnknown::Redo;
        let lets_pass = case.conflict == OnScopeConflict::Allow;
        assert!(may_repeat || lets_pass || case.ordered_repeat(), "{case:?}");
        sent += 1;
    }
    assert!(sent > 100, "{sent}");
}

/// Where a file could be looked at one of two times and not the other, the two calls may be one: for a first send as if they had one scope, also where
/// a policy allows the effect in other words, and for one in doubt that was overtaken.
#[test]
fn what_could_be_looked_at_once_stands_in_the_way() {
    let plain = |stand: Stand, policy: OnUnknown, conflict: OnScopeConflict, outside: Outside| {
        let found = cases().into_iter().find(|case| {
            (case.stand, case.said, case.conflict) == (stand, PersonAnswer::NotAsked, conflict)
                && (case.policy, case.beside, case.needs_approval) == (policy, Beside::Nothing, false)
                && (case.outside, case.obstacle) == (outside, Obstacle::None)
        });
        found.unwrap()
    };
    let beside = |case: Case, second| {
        let change = move |view: &mut View, _: &mut Facts| {
            view.call.policy.makes_anew = true;
            view.unseen = vec![Related::one(case.other(CallStatus::Succeeded, None, second))];
        };
        case.decided_of(change, name)
    };
    for (conflict, wanted) in [
        (OnScopeConflict::Ask, "ask: near duplicate"),
        (OnScopeConflict::Allow, "ask: near duplicate"),
        (OnScopeConflict::Refuse, "cancel: near_duplicate"),
    ] {
        let case = plain(S::Prepared, OnUnknown::Hold, conflict, Outside::Nothing);
        assert_eq!(case.decided(name), "start", "{conflict}");
        assert_eq!(beside(case, 0), wanted, "{conflict}");
    }
    let in_doubt = plain(S::Unknown, OnUnknown::RedoKeyed, OnScopeConflict::Ask, Outside::Gone);
    assert_eq!(beside(in_doubt, 0), in_doubt.decided(name), "it was known when that one was sent");
    assert_eq!(beside(in_doubt, 20), "ask: unknown");
    assert_ne!(in_doubt.decided(name), "ask: unknown");
}

/// What a policy allows in other words is made once in the same ones, whatever its server is called, where nobody can tell by what is sent whether it
/// is the same effect: for the first time, and when an answer is handed over to it.
#[test]
fn what_is_allowed_is_made_once_in_the_same_words_under_each_name_of_its_server() {
    let plain = cases().into_iter().find(|case| {
        (case.stand, case.said, case.conflict) == (S::Prepared, PersonAnswer::NotAsked, OnScopeConflict::Allow)
            && (case.policy, case.beside, case.needs_approval) == (OnUnknown::Hold, Beside::Nothing, false)
    });
    let plain = plain.unwrap();
    for beside in [Beside::Nothing, Beside::Renamed, Beside::RenamedInDoubt, Beside::RenamedSince] {
        for (is_renamed, cannot_tell) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = Case { beside, ..plain };
            let known = |view: &mut View, facts: &mut Facts| {
                view.call.policy.makes_anew = true;
                if cannot_tell {
                    let content = FileContent::Unknown { why: "it is on another machine".to_owned() };
                    let file = SentFile { at: "file://elsewhere/report.pdf".to_owned(), content };
                    facts.files = SentFiles::new([("attachments[0]".to_owned(), file)]);
                }
                if !is_renamed {
                    view.renamed.clear();
                }
            };
            let is_asked = cannot_tell && is_renamed && beside != Beside::Nothing;
            let wanted = if is_asked { "ask: near duplicate" } else { "start" };
            assert_eq!(case.decided_of(known, name), wanted, "{beside:?} {is_renamed} {cannot_tell}");
            let config = LedgerConfig { no_duplicate_external_actions: true, ..LedgerConfig::default() };
            let (people, lineage) = (PeopleRules::default(), lineage());
            let rules = rules(&config, &people, &lineage);
            let waiting = Case { stand: S::RunningWithHandle, ..case };
            let mut facts = waiting.facts();
            let mut view = waiting.view(&facts, &rules);
            known(&mut view, &mut facts);
            let is_sent = matches!(super::handing_over(&view, &facts, &rules).0, super::HandingOver::Send);
            let stands = is_renamed && beside == Beside::RenamedSince;
            assert_eq!(is_sent, !stands, "{beside:?} {is_renamed} {cannot_tell}: an answer");
        }
    }
}

/// A key, a look and a person's word count where they were meant to, and for the attempts that are open: what an earlier version sent, what
/// never left and what somebody said did not happen says nothing about the place.
#[test]
fn an_attempt_counts_where_it_went() {
    let here = || Some(samples::destination("ours"));
    let there = || Some(samples::destination("another"));
    let own = || Some(Destination::of_the_program());
    let attempt = |number: u32, outcome: &str, destination: Option<Destination>| AttemptRecord {
        call_id: samples::call_id("call_1"),
        attempt: number,
        epoch: 1,
        server_generation: None,
        destination,
        started_at: samples::at(10),
        ended_at: Some(samples::at(11)),
        outcome: Some(outcome.to_owned()),
        detail: None,
        handle: None,
    };
    // (doubt, attempts, where it would go now, whether it is asked about)
    let table = [
        (Some(1), vec![attempt(1, "lost", here())], here(), false),
        (Some(1), vec![attempt(1, "lost", here())], there(), true),
        (Some(1), vec![attempt(1, "lost", None)], there(), false),
        (Some(1), vec![attempt(1, "lost", here())], None, true),
        // A function of the program, and a tool server in its place.
        (Some(1), vec![attempt(1, "lost", own())], own(), false),
        (Some(1), vec![attempt(1, "lost", own())], there(), true),
        (Some(1), vec![attempt(1, "lost", there())], own(), true),
        (Some(1), vec![attempt(1, "lost", here()), attempt(2, "not_sent", there())], here(), false),
        (Some(1), vec![attempt(1, "lost", here()), attempt(2, "replied", there())], here(), false),
        (Some(1), vec![attempt(1, "lost", here()), attempt(2, "lost", there())], here(), true),
        (Some(1), vec![attempt(1, "lost", here()), attempt(2, "lost", there())], there(), true),
        // A person said that the first one did nothing.
        (Some(2), vec![attempt(1, "lost", there()), attempt(2, "lost", here())], here(), false),
        // What replaces its own output has no doubt.
        (None, vec![attempt(1, "lost", there()), attempt(2, "lost", here())], here(), false),
        (None, vec![attempt(1, "lost", here()), attempt(2, "not_sent", there())], there(), true),
    ];
    let case = cases().into_iter().find(|case| {
        (case.stand, case.policy, case.said) == (S::Unknown, OnUnknown::RedoKeyed, PersonAnswer::NotAsked)
            && (case.outside, case.obstacle, case.beside) == (Outside::Gone, Obstacle::None, Beside::Nothing)
    });
    let case = case.unwrap();
    for (doubt, attempts, now, is_asked) in table {
        let policy = if doubt.is_none() { OnUnknown::Redo } else { OnUnknown::RedoKeyed };
        let case = Case { policy, ..case };
        let found = case.decided_of(
            |view, facts| {
                (view.call.doubt, view.call.attempt) = (doubt, attempts.last().unwrap().attempt);
                view.attempts.clone_from(&attempts);
                facts.destination.clone_from(&now);
            },
            name,
        );
        assert_eq!(found, if is_asked { "ask: unknown" } else { "start: in doubt" }, "{attempts:?} {now:?}");
    }
}

/// Whoever puts the configuration back need not answer what was asked about another place.
#[test]
fn a_question_about_another_place_is_not_waited_for_where_the_call_went() {
    let mut found = BTreeSet::new();
    for case in cases().into_iter().filter(|case| {
        (case.stand, case.said, case.outside) == (S::Unknown, PersonAnswer::Nothing, Outside::Gone)
            && (case.obstacle, case.about, case.beside) == (Obstacle::Elsewhere, About::Itself, Beside::Nothing)
            && matches!(case.policy, OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Probe)
    }) {
        assert_eq!(case.verdict(), "hold", "{case:?}");
        found.insert(case.decided_of(|_, facts| facts.destination = Some(samples::destination("ours")), name));
    }
    assert_eq!(found, BTreeSet::from(["probe".to_owned(), "start: in doubt".to_owned()]));
}

/// Whether what a question was asked for is so in a case, where its tool is as it was planned for (`None`), another one, or gone.
fn is_so(against: Against, case: &Case, tool: Option<bool>, asks_now: bool) -> bool {
    match against {
        Against::ToolGone => tool == Some(false),
        Against::AnotherTool => tool == Some(true),
        Against::Stricter => case.obstacle == Obstacle::PromisesLess && !asks_now,
        Against::NeedsApproval => asks_now,
        Against::TriedOften => case.obstacle == Obstacle::TriedOften,
        Against::Elsewhere => case.obstacle == Obstacle::Elsewhere,
        Against::FilesChanged => case.obstacle == Obstacle::FileChanged,
        Against::Overtaken => case.is_news(),
        Against::KeyForgotten => case.obstacle == Obstacle::KeyExpired,
        Against::RefusedAsItIs | Against::Alike | Against::LimitUsedUp => false,
        Against::Standing => true,
    }
}

/// A question tells a person why it is asked. Over every reason, whether it is so or not, and all that may have come since: as long as it is so the
/// question stays; then it is taken back, and its call is judged as if nobody had been asked. What a person has answered is no question any more.
#[test]
fn a_question_whose_reason_does_not_hold_any_more_is_taken_back() {
    let planned = samples::planned_email("call_1", 1, 1);
    let (another, none) = (BTreeMap::from([(planned.name.raw, sha256("another"))]), BTreeMap::new());
    let (mut stayed, mut taken_back, mut sent) = (0, 0, 0);
    // Other calls beside it matter here as far as one may have had the effect since.
    let matters = |case: &Case| matches!(case.beside, Beside::Nothing | Beside::Rival) || case.is_news();
    let of_it = |case: &Case| case.stand == S::Unknown && case.about == About::Itself && matters(case);
    for case in cases().into_iter().filter(of_it) {
        for against in Against::ALL.iter().copied() {
            // With an answer it is no question any more, whatever is so.
            let is_open = case.said == PersonAnswer::Nothing;
            let now = [(None, false), (Some(true), false), (Some(false), false), (None, true)];
            for (tool, asks_now) in now.into_iter().take(if is_open { now.len() } else { 1 }) {
                let definitions = tool.map(|is_there| if is_there { &another } else { &none });
                let change = |view: &mut View, facts: &mut Facts, against: &[Against]| {
                    if asks_now {
                        facts.since_planned = SincePlanned::Asks;
                    }
                    view.questions.iter_mut().for_each(|asked| super::keep(&mut asked.detail, against));
                };
                let found = |case: &Case, against: &[Against]| {
                    case.decision_in(
                        definitions,
                        &[],
                        |view, facts| change(view, facts, against),
                        |decision| (name(&decision.verdict), decision.closes.len()),
                    )
                };
                let what = format!("{case:?}, asked for {against:?}, {tool:?}, {asks_now}");
                let holds = is_so(against, &case, tool, asks_now);
                let (verdict, closes) = found(&case, &[against]);
                // One of an earlier version does not say what it was asked for.
                let (as_before, closed_before) = found(&case, &[]);
                if !is_open || holds {
                    assert_eq!((verdict, closes), (as_before, closed_before), "{what}");
                    stayed += u32::from(is_open);
                    continue;
                }
                let (unasked, _) = found(&Case { said: PersonAnswer::NotAsked, ..case }, &[]);
                assert_eq!((verdict.as_str(), closes), (unasked.as_str(), 1), "{what}");
                taken_back += 1;
                sent += u32::from(verdict == "start: in doubt");
            }
        }
    }
    assert!(
        stayed > 1_000 && taken_back > 10_000 && sent > 100,
        "{stayed} stayed, {taken_back} taken back, {sent} sent"
    );
}

/// Under another setup than its run's, nothing is decided about a call by what that setup says: who was asked stays asked, an order to send it waits,
/// and who says what came of it is heard.
#[test]
fn another_setup_says_nothing_about_a_call_in_doubt() {
    let (mut waits, mut heard) = (0, 0);
    for case in cases().into_iter().filter(|case| case.stand == S::Unknown && case.about == About::Itself) {
        let as_sent = |view: &mut View, facts: &mut Facts| {
            *facts = Facts::as_sent(&view.call, &view.attempts);
            let against = if case.said == PersonAnswer::Nothing { Against::Stricter } else { Against::Standing };
            view.questions.iter_mut().for_each(|asked| super::keep(&mut asked.detail, &[against]));
        };
        let (found, closes) =
            case.decision_in(None, &[], as_sent, |decision| (name(&decision.verdict), decision.closes.len()));
        assert_eq!(closes, 0, "{case:?}");
        if case.said == PersonAnswer::Nothing || ordered(&case) {
            assert_eq!(found, "hold", "{case:?}");
            waits += 1;
        } else if case.said == PersonAnswer::NotAsked {
            let then = match case.obstacle {
                Obstacle::PromisesLess | Obstacle::Elsewhere | Obstacle::FileChanged => Obstacle::None,
                Obstacle::None
                | Obstacle::TriedOften
                | Obstacle::KeyExpired
                | Obstacle::ServerGone
                | Obstacle::HorizonAhead
                | Obstacle::AnsweredEarly => case.obstacle,
            };
            assert_eq!(found, Case { obstacle: then, ..case }.verdict(), "{case:?}");
        } else {
            assert_eq!(found, case.verdict(), "{case:?}");
            heard += 1;
        }
    }
    assert!(waits > 100 && heard > 100, "{waits} wait, {heard} heard");
}

/// A word that lets an answer be handed to a tool says nothing of what became of the call since, whatever a clock says of when it was
/// asked for.
#[test]
fn a_word_about_what_is_handed_over_is_none_about_a_call_in_doubt() {
    let says_nothing_of_it = |said: PersonAnswer| match said {
        PersonAnswer::Nothing | PersonAnswer::ToSomethingElse => true,
        PersonAnswer::Chose(choice) => matches!(choice, Choice::Execute | Choice::Continue),
        PersonAnswer::NotAsked => false,
    };
    let mut taken_back = 0;
    for case in cases().into_iter().filter(|case| case.stand == S::Unknown && case.about == About::NearDuplicate) {
        if !says_nothing_of_it(case.said) {
            continue;
        }
        let asked_in_it =
            |view: &mut View, _: &mut Facts| view.questions[0].detail["attempt"] = json!(view.call.attempt);
        let found =
            case.decision_in(None, &[], asked_in_it, |decision| (name(&decision.verdict), decision.closes.is_empty()));
        let unasked = Case { said: PersonAnswer::NotAsked, about: About::Itself, ..case };
        assert_eq!(found, (unasked.verdict(), false), "{case:?}");
        taken_back += 1;
    }
    assert!(taken_back > 100, "{taken_back}");
}

/// An approval that is asked for again because its call would go elsewhere, once it is back: the first word is about it still, and a question that
/// is open says where the call would go now.
#[test]
fn an_open_approval_is_about_where_its_call_would_go_now() {
    let case = cases().into_iter().find(|case| {
        (case.stand, case.said, case.about) == (S::Prepared, PersonAnswer::Nothing, About::Itself)
            && (case.beside, case.needs_approval) == (Beside::Nothing, true)
    });
    let case = case.unwrap();
    let places = ["ours", "theirs", "a third"];
    for (first, open) in places.into_iter().flat_map(|first| places.map(|open| (first, open))) {
        for (now, choice) in
            places.into_iter().flat_map(|now| [Choice::Execute, Choice::Skip].map(|choice| (now, choice)))
        {
            let found = case.decided_of(
                |view, facts| {
                    facts.destination = Some(samples::destination(now));
                    let shows = |question: &mut QuestionRecord, place: &str| {
                        question.detail["binding"]["destination"] = json!(samples::destination(place));
                    };
                    let mut earlier = view.questions[0].clone();
                    (earlier.question_id, earlier.status) = (samples::question_id("q_0"), QuestionStatus::Closed);
                    earlier.answer = Some(AnswerRecord {
                        choice,
                        proof: None,
                        text: None,
                        by: "ana".to_owned(),
                        answered_at: samples::at(2),
                        applied_at: None,
                    });
                    shows(&mut earlier, first);
                    shows(&mut view.questions[0], open);
                    view.questions.insert(0, earlier);
                },
                name,
            );
            let wanted = match (open == now, first == now && choice == Choice::Execute) {
                (true, _) => "hold",
                (false, true) => "start",
                (false, false) => "ask: approval",
            };
            assert_eq!(found, wanted, "{first} {open} {now} {choice:?}");
        }
    }
}

/// A tool that asks, and was answered: that is kept before anything else is asked, and once only.
#[test]
fn what_a_person_answered_is_kept_while_its_tool_is_somewhere_else() {
    let case = cases().into_iter().find(|case| {
        (case.stand, case.about, case.obstacle) == (S::RunningWithHandle, About::Elicitation, Obstacle::Elsewhere)
            && (case.said, case.policy) == (PersonAnswer::Chose(Choice::Continue), OnUnknown::Hold)
    });
    let case = case.unwrap();
    let waits = |answers: &[&str], is_live: bool| {
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let input =
            Input { requests: named(&["size"]), answers: named(answers), round: 1, is_live, ..Input::default() };
        Handle { input: Some(input), task: is_live.then(|| "task-1".to_owned()), ..Handle::default() }
    };
    let found = |handle: Handle, asked: serde_json::Value, policy: OnUnknown| {
        Case { policy, ..case }.decided_of(
            |view, _| {
                view.attempts[0].handle = Some(handle);
                view.questions[0].detail = asked;
            },
            name,
        )
    };
    let asked = || json!({"request": "size", "round": 1});
    assert_eq!(found(waits(&[], false), asked(), OnUnknown::Hold), "keep the answer");
    assert_eq!(found(waits(&[], false), asked(), OnUnknown::Continue), "keep the answer");
    // It was kept, by a process that died before it closed the question; it was about something else; nobody waits for it any more.
    assert_eq!(found(waits(&["size"], false), asked(), OnUnknown::Hold), "ask: unknown");
    for other in [json!({"request": "colour", "round": 1}), json!({"request": "size", "round": 2})] {
        assert_eq!(found(waits(&[], false), other, OnUnknown::Hold), "ask: unknown");
    }
    assert_eq!(found(waits(&[], true), asked(), OnUnknown::Hold), "ask: unknown");
}

/// With the old settings back a call that its tool has is followed again, whatever was asked or ordered meanwhile for the other place; what a
/// person says came of it counts everywhere.
#[test]
fn what_moved_away_and_back_is_followed_again() {
    let back = |case: &Case| case.decided_of(|_, facts| facts.destination = Some(samples::destination("ours")), name);
    for case in cases().into_iter().filter(|case| {
        (case.stand, case.obstacle, case.about) == (S::RunningWithHandle, Obstacle::Elsewhere, About::Itself)
    }) {
        let expected = match case.said {
            PersonAnswer::Chose(Choice::Abort) => "aborted",
            PersonAnswer::Chose(Choice::Happened | Choice::Skip) => "let go",
            PersonAnswer::NotAsked
            | PersonAnswer::Nothing
            | PersonAnswer::ToSomethingElse
            | PersonAnswer::Chose(Choice::Execute | Choice::Continue) => "go on",
        };
        assert_eq!(back(&case), expected, "{case:?}");
        let is_open = case.said == PersonAnswer::Nothing && case.beside == Beside::Nothing;
        if is_open {
            // A third place is asked about anew.
            let third = case.decided_of(|_, facts| facts.destination = Some(samples::destination("a third")), name);
            assert_eq!(third, "ask: unknown", "{case:?}");
        }
    }
}

/// An approval, and whatever else a person lets a call go by, was given for where it would have gone then.
#[test]
fn a_word_is_good_for_the_place_that_it_was_given_for() {
    let mut asked_again = 0;
    for case in cases().into_iter().filter(|case| case.is_yes() && case.beside == Beside::Nothing) {
        let then = case.verdict();
        let found = case.decided_of(|_, facts| facts.destination = Some(samples::destination("a third")), name);
        if case.stand == S::Prepared && case.about == About::Itself && case.needs_approval {
            assert_eq!((then.as_str(), found.as_str()), ("start", "ask: approval"), "{case:?}");
            asked_again += 1;
        }
        let is_order = matches!(case.said, PersonAnswer::Chose(Choice::Execute | Choice::Continue));
        if case.stand == S::Unknown && is_order && case.about != About::Elicitation {
            assert!(!found.starts_with("start"), "{case:?}: {found}");
        }
    }
    assert!(asked_again > 0);
}

/// What was decided about a call was decided about its tool as it was. To what the tool became meanwhile it goes only on the word of a person who
/// knew that; a call that was not sent ends, and one in doubt is a question where it would have been sent again.
#[test]
fn nothing_goes_out_to_another_tool_than_it_was_planned_for() {
    let planned = samples::planned_email("call_1", 1, 1);
    let as_it_was = BTreeMap::from([(planned.name.raw.clone(), planned.tool_digest.unwrap())]);
    let another = BTreeMap::from([(planned.name.raw, sha256("another"))]);
    let mut ended = 0;
    for case in share_of_cases() {
        assert_eq!(case.decided_beside(&as_it_was, name), case.verdict(), "{case:?}");
        let found = case.decided_beside(&another, name);
        if found.starts_with("start") {
            assert!(case.stand == S::Unknown && ordered(&case), "{case:?}");
        }
        ended += u32::from(found == "cancel: tool_changed");
        if case.stand == S::Prepared && case.verdict().starts_with("start") {
            assert_eq!(found, "cancel: tool_changed", "{case:?}");
        }
        if case.stand == S::Unknown && case.verdict() == "start: in doubt" {
            assert_eq!(found, "ask: unknown", "{case:?}");
        }
    }
    assert!(ended > 100, "{ended}");
}

/// What no server offers any more is not sent to, whoever accepts other tools or orders it: what was not sent ends, what failed stays so, and
/// what is in doubt is a question.
#[test]
fn nothing_goes_out_to_a_tool_that_is_gone() {
    let (mut ended, mut asked) = (0, 0);
    for case in share_of_cases() {
        let found = case.decided_beside(&BTreeMap::new(), name);
        assert!(!found.starts_with("start"), "{case:?}: {found}");
        if !case.verdict().starts_with("start") {
            continue;
        }
        match case.stand {
            S::Prepared => assert_eq!(found, "cancel: tool_gone", "{case:?}"),
            S::Unknown => assert!(matches!(found.as_str(), "ask: unknown" | "hold"), "{case:?}: {found}"),
            S::RunningUnread
            | S::RunningWithHandle
            | S::RunningAlone
            | S::Skipped
            | S::FailedOnce
            | S::FailedAsOftenAsAllowed
            | S::RefusedCredentials
            | S::Succeeded
            | S::FailedReported
            | S::Cancelled => assert_eq!(found, "settled", "{case:?}"),
        }
        ended += u32::from(case.stand == S::Prepared);
        asked += u32::from(case.stand == S::Unknown);
    }
    assert!(ended > 100 && asked > 100, "{ended} ended, {asked} asked");
}

/// An answer that could not be stored when it came is the answer: nothing is sent, asked or looked for, unless a person has decided. One of
/// another attempt, one that is older than its attempt, and one that leaves the outcome open change nothing.
#[test]
fn a_call_in_doubt_is_what_the_answer_beside_the_database_says() {
    let planned = samples::planned_email("call_1", 1, 1);
    let own = LateReply {
        at: samples::at(11),
        run_id: RunId::parse("run_1").unwrap(),
        tool_call_id: planned.call_id,
        attempt: 1,
        sent_at: None,
        reply: samples::raw(),
    };
    let others = [
        LateReply { attempt: 2, ..own.clone() },
        LateReply { at: samples::at(9), ..own.clone() },
        LateReply { sent_at: Some(samples::at(9)), ..own.clone() },
        LateReply { run_id: RunId::parse("run_2").unwrap(), ..own.clone() },
        LateReply { tool_call_id: samples::call_id("call_2"), ..own.clone() },
        LateReply { reply: RawReply::RpcError { code: -32603, message: "no".to_owned() }, ..own.clone() },
        LateReply { reply: RawReply::http(429, "later"), ..own.clone() },
    ];
    for case in share_of_cases().into_iter().filter(|case| case.stand != S::Prepared) {
        let verdict = case.verdict();
        assert_eq!(case.decided_with(None, &others, name), verdict, "{case:?}");
        let found = case.decided_with(None, std::slice::from_ref(&own), name);
        let has_own_word = matches!(verdict.as_str(), "aborted" | "resolve: skipped");
        if case.stand == S::Unknown && !has_own_word {
            assert_eq!(found, "answered", "{case:?}");
        } else {
            assert_eq!(found, verdict, "{case:?}");
        }
    }
}

/// Whatever would be sent, for the first time or once more, and may be what was lost is in doubt first; and nothing else is.
#[test]
fn what_would_be_sent_and_may_be_what_was_lost_is_in_doubt() {
    let planned = samples::planned_email("call_1", 1, 1);
    let mut recalled = BTreeMap::new();
    for case in share_of_cases() {
        let verdict = case.verdict();
        let recall = RecallCall { call_id: planned.call_id.clone(), attempts: Vec::new() };
        let found = case.decided_of(|view, _| view.lost = Some(recall), name);
        if verdict.starts_with("start") {
            assert_eq!(found, "recall", "{case:?}");
            *recalled.entry(format!("{:?}", case.stand)).or_insert(0) += 1;
        } else {
            assert_eq!(found, verdict, "{case:?}");
        }
    }
    assert!(recalled.len() > 2 && recalled.values().all(|cases| *cases > 5), "{recalled:?}");
}

/// Over the whole table, also where a call may be what was lost: nobody is asked about a call that its job does not allow once more, it does not go out,
/// and what somebody was asked about it is taken back. Whatever sends nothing is as it was. A call in doubt is asked about all the same, also where it would
/// have been sent again by itself; that it did not happen is its record then.
#[test]
fn nobody_is_asked_about_a_call_that_its_job_does_not_allow() {
    let planned = samples::planned_email("call_1", 1, 1);
    let recall = || RecallCall { call_id: planned.call_id.clone(), attempts: Vec::new() };
    let mut found = BTreeMap::new();
    let is_looked_at =
        |case: &Case| case.stand != S::Unknown || (case.outside == Outside::Gone && case.obstacle == Obstacle::None);
    for case in share_of_cases().into_iter().filter(is_looked_at) {
        for is_lost in [false, true] {
            let lost = |view: &mut View| view.lost = is_lost.then(recall);
            let otherwise = case.decided_of(|view, _| lost(view), name);
            let used_up = |view: &mut View, _: &mut Facts| {
                lost(view);
                view.used_up = Some(EffectLimit { effect: "email.send".to_owned(), max: 1, lost: 0 });
            };
            let is_about_a_send = otherwise.starts_with("ask:")
                || otherwise.starts_with("start")
                || matches!(otherwise.as_str(), "hold" | "recall");
            let has_failed = matches!(case.stand, S::FailedOnce | S::FailedAsOftenAsAllowed | S::RefusedCredentials);
            let wanted: &str = match (is_about_a_send, case.stand == S::Prepared, has_failed) {
                (true, true, _) => "not allowed",
                (true, false, true) => "settled",
                (true, false, false) => match case.verdict().as_str() {
                    "start: ends doubt" => "resolve: not happened",
                    "start: in doubt" => "ask: unknown",
                    _ => &otherwise,
                },
                (false, _, _) => &otherwise,
            };
            case.decision_in(None, &[], used_up, |decision| {
                assert_eq!(name(&decision.verdict), wanted, "{case:?}, lost: {is_lost}");
                let stays_open = wanted != otherwise
                    && matches!(case.said, PersonAnswer::Nothing)
                    && !decision.closes.iter().any(|asked| asked.status == QuestionStatus::Open);
                assert!(!stays_open, "{case:?}, lost: {is_lost}: nobody takes the question back");
            });
            if wanted != otherwise {
                *found.entry(format!("{:?}: {otherwise}", case.stand)).or_insert(0) += 1;
            }
        }
    }
    for what in ["Prepared: hold", "Prepared: ask: near duplicate", "Prepared: ask: approval", "Prepared: recall"] {
        assert!(found.get(what).is_some_and(|cases| *cases > 20), "{what}: {found:?}");
    }
    for what in ["Unknown: start: ends doubt", "Unknown: start: in doubt", "Unknown: recall"] {
        assert!(found.get(what).is_some_and(|cases| *cases > 0), "{what}: {found:?}");
    }
    for what in ["FailedOnce: hold", "FailedOnce: ask: near duplicate", "RefusedCredentials: ask: credentials"] {
        assert!(found.get(what).is_some_and(|cases| *cases > 20), "{what}: {found:?}");
    }
}

/// A question that comes before the process is gone says until when a look is too early, and who answered before that is asked again.
#[test]
fn a_word_counts_from_when_its_question_says_that_a_look_does() {
    let mut asked = 0;
    for case in cases().into_iter().filter(|case| case.stand == S::Unknown && case.outside == Outside::MayBegin) {
        let shown = case.decided(|verdict| {
            if let Verdict::Ask(Why::Unknown { look_after, .. }) = verdict { Some(*look_after) } else { None }
        });
        if let Some(look_after) = shown {
            assert_eq!(look_after, Some(samples::at(300)), "{case:?}");
            asked += 1;
        }
    }
    assert!(asked > 100, "{asked}");
    for (until, wanted) in [(41, "start: ends doubt"), (42, "ask: unknown")] {
        let mut heard = 0;
        for case in cases().into_iter().filter(|case| {
            (case.stand, case.outside, case.beside) == (S::Unknown, Outside::Gone, Beside::Nothing)
                && case.verdict() == "start: ends doubt"
        }) {
            let found =
                case.decided_of(|view, _| view.questions[0].detail["look_after"] = json!(samples::at(until)), name);
            assert_eq!(found, wanted, "{case:?}");
            heard += 1;
        }
        assert!(heard > 10, "{heard}");
    }
}

/// Answers have other words at a terminal than in a program, which are said where a question is shown. What it asks is told to both.
#[test]
fn no_question_names_an_answer() {
    let env = ua_core::Env::simulated(1);
    let words = ["happened", "retry", "approve", "skip", "abort", "accept", "decline", "cancel", "execute", "continue"];
    let mut texts = BTreeSet::new();
    let mut ask = |call: &CallRecord, why: &Why<'_>| {
        for whose in [CallsOf::Job, CallsOf::Step, CallsOf::Session] {
            texts.insert(String::from(question(&env, &ShortNames::default(), (call, whose), why, |_| json!({})).text));
        }
    };
    for case in share_of_cases() {
        case.decided(|verdict| {
            if let Verdict::Ask(why) = verdict {
                ask(&case.call(), why);
            }
        });
    }
    let case = cases().into_iter().find(|case| case.stand == S::Unknown).unwrap();
    let (call, attempts, facts) = (case.call(), case.attempts(), case.facts());
    let form = json!({"message": "Which size?", "requestedSchema": {"properties": {"size": {"type": "string"}}}});
    let address = json!({"mode": "url", "message": "Log in.", "url": "https://shop.example/login"});
    for (params, is_live) in [(&form, true), (&form, false), (&address, true)] {
        ask(&call, &Why::Elicitation { name: "ask", params, round: 1, is_live, others: Vec::new() });
    }
    ask(&call, &Why::WentOn { sends: Sends::of(&attempts) });
    ask(&call, &Why::AuthFailure { facts: &facts, lost: None });
    ask(&call, &Why::AskUser);
    assert!(texts.len() > 10, "{texts:?}");
    for text in texts {
        let named = words.iter().find(|word| text.contains(&format!("`{word}`")));
        assert!(named.is_none() && !text.contains("--"), "{named:?}: {text}");
    }
}

/// Of what was known when a call was planned and what is known now the more cautious counts, and a person's word counts in both.
#[test]
fn a_promise_that_was_taken_back_lets_nothing_go_out_again() {
    let (mut asked, mut told) = (0, 0);
    let alone = |case: &Case| case.stand == S::Unknown && case.beside == Beside::Nothing;
    for case in cases().into_iter().filter(alone) {
        for class in [SideEffectClass::External, SideEffectClass::ReadOnly] {
            let case = Case { class, ..case };
            let as_planned = case.verdict();
            for (since_planned, has_effect_now) in [
                (SincePlanned::Asks, false),
                (SincePlanned::Asks, true),
                (SincePlanned::Stricter, false),
                (SincePlanned::Stricter, true),
            ] {
                let now = |_: &mut View, facts: &mut Facts| {
                    (facts.since_planned, facts.has_effect_now) = (since_planned, has_effect_now);
                };
                let found = case.decided_of(now, name);
                let what = format!("{case:?}, now {since_planned:?} with an effect {has_effect_now}: {found}");
                assert!(!found.starts_with("start") || ordered(&case), "{what}");
                if as_planned.starts_with("start") && !ordered(&case) {
                    let may_ask = class.has_effect() || has_effect_now || case.policy == OnUnknown::Hold;
                    let wanted = match may_ask {
                        _ if is_asked(&case) => "hold",
                        true => "ask: unknown",
                        false => "resolve: not happened",
                    };
                    assert_eq!(found, wanted, "{what}");
                    asked += u32::from(wanted == "ask: unknown");
                    told += u32::from(wanted == "resolve: not happened");
                }
            }
        }
    }
    assert!(asked > 10 && told > 10, "{asked} asked, {told} told");
}

/// Who orders a repeat approves it where they were told that it takes an approval now; who was not is asked again, and told.
#[test]
fn a_repeat_that_takes_an_approval_by_now_is_not_ordered_by_who_was_not_told() {
    let mut asked = 0;
    let is_ordered = |case: &Case| case.stand == S::Unknown && ordered(case);
    for case in cases().into_iter().filter(is_ordered) {
        let as_planned = case.verdict();
        if !as_planned.starts_with("start") {
            continue;
        }
        let told_of = |against: &[Against]| {
            let now = |view: &mut View, facts: &mut Facts| {
                facts.since_planned = SincePlanned::Asks;
                view.questions.iter_mut().for_each(|asked| super::keep(&mut asked.detail, against));
            };
            let reasons = |verdict: &Verdict<'_>| {
                if let Verdict::Ask(Why::Unknown { against, .. }) = verdict { against.clone() } else { Vec::new() }
            };
            (case.decided_of(now, name), case.decided_of(now, reasons))
        };
        let (found, reasons) = told_of(&[Against::Standing]);
        assert_eq!(found, "ask: unknown", "{case:?}");
        assert!(reasons.contains(&Against::NeedsApproval), "{case:?}: {reasons:?}");
        assert_eq!(told_of(&[Against::Standing, Against::NeedsApproval]).0, as_planned, "{case:?}");
        asked += 1;
    }
    assert!(asked > 10, "{asked}");
}

/// A read of which nothing came back, in whatever way: it is made again as its policy says, and then the model is told. A person is asked only
/// where a policy wants it.
#[test]
fn nobody_is_asked_whether_a_read_happened_unless_a_policy_says_so() {
    let (mut given_up, mut asked) = (0, 0);
    for case in share_of_cases().into_iter().filter(|case| case.stand == S::Unknown) {
        let (as_effect, case) = (case.verdict(), Case { class: SideEffectClass::ReadOnly, ..case });
        let found = case.verdict();
        let asks = |verdict: &str| matches!(verdict, "ask: unknown" | "go on without, ask");
        if case.obstacle == Obstacle::PromisesLess {
            // By what is known now it was none, so it is asked about as what may have had an effect is.
            assert!(found == as_effect || case.is_news(), "{case:?}: {found}");
            continue;
        }
        if case.obstacle == Obstacle::Elsewhere {
            // A read does nothing wherever it is made.
            assert_eq!(found, Case { obstacle: Obstacle::None, ..case }.verdict(), "{case:?}");
            continue;
        }
        if (as_effect.as_str(), found.as_str()) == ("fence", "resolve: not happened") {
            assert_eq!(case.outside, Outside::MayBegin, "{case:?}"); // no read waits for a server that nobody can end
        } else if case.is_news() {
            // Nobody can have had the effect of a read since, so it may be made again.
            assert!(!asks(&found) || case.policy == OnUnknown::Hold, "{case:?}: {found}");
        } else if !asks(&as_effect) || case.policy == OnUnknown::Hold {
            assert_eq!(found, as_effect, "{case:?}");
        } else {
            assert_eq!(found, "resolve: not happened", "{case:?}");
        }
        given_up += u32::from(found == "resolve: not happened");
        asked += u32::from(asks(&found));
    }
    assert!(given_up > 100 && asked > 100, "{given_up} given up, {asked} asked");
}

fn lineage() -> Lineage {
    Lineage { database: "d".to_owned(), root: RunId::parse("run_1").unwrap(), mark: None }
}

/// As a job has them, a minute in.
fn rules<'r>(config: &'r LedgerConfig, people: &'r PeopleRules, lineage: &'r Lineage) -> Rules<'r> {
    Rules {
        config,
        people,
        definitions: None,
        is_held_to_definitions: true,
        calls_of: CallsOf::Job,
        lineage,
        epoch: 1,
        time: Time::plain(samples::at(60)),
    }
}

/// Whoever lets a call go beside another one that may still have its effect has looked too early: over every word that would let it go, every time
/// until which the other one may begin, and every time that the question showed. The first send, the retry and the answer that is handed over.
#[test]
fn nobody_is_heard_who_looked_before_the_other_call_was_over() {
    let (config, people) = (
        LedgerConfig { no_duplicate_external_actions: true, max_retries: 2, ..LedgerConfig::default() },
        PeopleRules::default(),
    );
    let lineage = lineage();
    let rules = rules(&config, &people, &lineage);
    let lets_go = |case: &Case| {
        let is_sent = matches!(case.stand, S::Prepared | S::FailedOnce | S::RunningWithHandle);
        is_sent
            && case.said == PersonAnswer::Chose(Choice::Execute)
            && case.about == About::NearDuplicate
            && case.policy == OnUnknown::Hold
            && case.conflict == OnScopeConflict::Ask
            && case.obstacle == Obstacle::None
            && !case.needs_approval
            && matches!(case.beside, Beside::Rival | Beside::Doubt | Beside::RenamedInDoubt)
    };
    let answered = samples::at(41);
    let (mut refused, mut heard) = (0, 0);
    for case in cases().into_iter().filter(lets_go) {
        for still in [Still::Over, Still::Until(samples::at(40)), Still::Until(samples::at(70)), Still::UnderWay] {
            for shown in [None, Some(samples::at(40)), Some(samples::at(50))] {
                let facts = case.facts();
                let mut view = case.view(&facts, &rules);
                let View { relations: Relations { rivals, doubts, .. }, renamed, still: known, .. } = &mut view;
                for other in rivals.iter_mut().chain(doubts).chain(renamed) {
                    other.newest.updated_at = samples::at(20);
                    known.insert(other.newest.call_id.clone(), still);
                }
                let others =
                    json!([{"call": "call_2", "status": "unknown", "in_doubt": true, "attempt": 1, "count": 1}]);
                for asked in &mut view.questions {
                    asked.detail["others"] = others.clone();
                    asked.detail["look_after"] = shown.map_or(json!(null), |until| json!(until));
                }
                let decided = if case.stand == S::RunningWithHandle {
                    let handing = super::handing_over(&view, &facts, &rules).0;
                    if let super::HandingOver::Ask(Why::Send { beside, .. }) = &handing {
                        format!("ask {}", beside.is_some())
                    } else {
                        assert!(matches!(handing, super::HandingOver::Send), "{case:?}: {handing:?}");
                        "start".to_owned()
                    }
                } else {
                    let found = verdict(&view, &facts, Known::Nothing, &rules).verdict;
                    if let Verdict::Ask(Why::Send { beside, .. }) = &found {
                        format!("ask {}", beside.is_some())
                    } else {
                        assert!(matches!(found, Verdict::Start { .. }), "{case:?}: {found:?}");
                        "start".to_owned()
                    }
                };
                let is_early = match (still, shown) {
                    (Still::UnderWay, _) => true,
                    (_, Some(until)) | (Still::Until(until), None) => answered < until,
                    (Still::Over, None) => false,
                };
                let wanted = if is_early { format!("ask {}", still != Still::Over) } else { "start".to_owned() };
                assert_eq!(decided, wanted, "{case:?}: {still:?}, shown {shown:?}");
                refused += u32::from(is_early);
                heard += u32::from(!is_early);
            }
        }
    }
    assert!(refused > 20 && heard > 10, "{refused} refused, {heard} heard");
}

/// An answer to what a tool asked sends its call on, so it is held to what a send is: over every call beside it that moved before and since, and
/// every word of a person.
#[test]
fn an_answer_goes_to_a_tool_as_a_call_goes_out() {
    let config = LedgerConfig { no_duplicate_external_actions: true, ..LedgerConfig::default() };
    let people = PeopleRules::default();
    let lineage = lineage();
    let rules = rules(&config, &people, &lineage);
    let of_it = |case: &Case| {
        let is_about_it = case.said == PersonAnswer::NotAsked || case.about == About::NearDuplicate;
        let is_plain = case.obstacle == Obstacle::None && !case.needs_approval;
        case.stand == S::RunningWithHandle && case.policy == OnUnknown::Hold && is_about_it && is_plain
    };
    let mut found = BTreeSet::new();
    for case in cases().into_iter().filter(of_it) {
        for has_moved in [false, true] {
            let facts = case.facts();
            let mut view = case.view(&facts, &rules);
            let View { relations: Relations { rivals, doubts, kin, .. }, renamed, .. } = &mut view;
            for other in rivals.iter_mut().chain(doubts).chain(&mut kin.same).chain(renamed).filter(|_| has_moved) {
                other.newest.updated_at = samples::at(20);
            }
            let has_moved = has_moved || case.beside == Beside::RenamedSince;
            // It is shown to whoever is asked, as it stands now.
            let others: Vec<_> = view
                .relations
                .all()
                .into_iter()
                .map(|other| {
                    let Related { newest, count } = other;
                    json!({"call": newest.call_id, "status": newest.status, "in_doubt": newest.doubt.is_some(),
                       "attempt": newest.attempt, "count": count})
                })
                .collect();
            view.questions.iter_mut().for_each(|asked| asked.detail["others"] = json!(others));
            let (decided, _) = super::handing_over(&view, &facts, &rules);
            let decided = match decided {
                super::HandingOver::Send => "send",
                super::HandingOver::Hold(_) => "hold",
                super::HandingOver::Ask(Why::Send { first: Reason::NearDuplicate(_), .. }) => "ask",
                super::HandingOver::Ask(_) => "ask something else",
                super::HandingOver::Refuse => "refuse",
                super::HandingOver::Abort => "abort",
            };
            let one_name = case.beside.under_one_name();
            let is_beside = matches!(one_name, Beside::Rival | Beside::Doubt | Beside::Kin | Beside::KinSince);
            let stands = has_moved && is_beside && case.conflict != OnScopeConflict::Allow;
            let wanted = match case.said {
                PersonAnswer::Chose(Choice::Abort) => "abort",
                PersonAnswer::Chose(Choice::Skip | Choice::Happened) => "refuse",
                PersonAnswer::Nothing if stands => "hold",
                PersonAnswer::NotAsked | PersonAnswer::ToSomethingElse if stands => {
                    if case.conflict == OnScopeConflict::Refuse { "refuse" } else { "ask" }
                }
                PersonAnswer::Chose(Choice::Execute | Choice::Continue)
                | PersonAnswer::Nothing
                | PersonAnswer::NotAsked
                | PersonAnswer::ToSomethingElse => "send",
            };
            assert_eq!(decided, wanted, "{case:?}, moved: {has_moved}");
            found.insert(wanted);
        }
    }
    assert_eq!(found, BTreeSet::from(["send", "hold", "ask", "refuse", "abort"]));
}
