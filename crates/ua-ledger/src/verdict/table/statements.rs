//! What holds of verdicts, by what a call touches: of all calls, of those of one class, and of those of the program's own tools.
//!
//! Durable Jobs v1 spec §6, §7.2 and §8.3. The rows of the table say what becomes of each case; these say what they have to come to, in other
//! words, each over every case that it is about. So a row that is wrong in the same way as the verdict is one that a statement refuses.

use ua_core::{OnScopeConflict, OnUnknown, SideEffectClass};
use ua_store::Choice;

use super::Stand as S;
use super::{About, Beside, Case, Obstacle, Outside, PersonAnswer, Tool, ordered, reaches_others};

/// What holds of the verdicts about some cases.
pub(super) struct Statement {
    pub(super) says: &'static str,
    /// Which cases it is about.
    pub(super) of: fn(&Case) -> bool,
    /// Whether a verdict is as it says.
    holds: fn(&Case, &str) -> bool,
}

const fn statement(says: &'static str, of: fn(&Case) -> bool, holds: fn(&Case, &str) -> bool) -> Statement {
    Statement { says, of, holds }
}

/// What a verdict about a case is against.
pub(super) fn broken_by(case: &Case, verdict: &str) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |one| (one.of)(case) && !(one.holds)(case, verdict)).map(|one| one.says)
}

pub(super) const ALL: &[Statement] = &[
    // Of every class.
    statement(
        "what may have had an effect goes out again only under a key that counts where it went, behind a look that proves that it is not there, or on \
         a person's word",
        |c| c.stand == S::Unknown && c.may_be_in_doubt(),
        |c, verdict| {
            let by_key = c.policy == OnUnknown::RedoKeyed && c.outside == Outside::Gone;
            let by_itself = c.obstacle != Obstacle::Elsewhere && (by_key || c.outside == Outside::AbsentInTime);
            by_itself || ordered(c) || !starts(verdict)
        },
    ),
    statement(
        "a key lets it out again only as often as is allowed, with the same files, where it went, while it is known there, and as it was promised",
        |c| {
            let is_against = match c.obstacle {
                Obstacle::TriedOften
                | Obstacle::FileChanged
                | Obstacle::KeyExpired
                | Obstacle::Elsewhere
                | Obstacle::PromisesLess => true,
                Obstacle::None | Obstacle::ServerGone | Obstacle::HorizonAhead | Obstacle::AnsweredEarly => false,
            };
            is_gone(c) && c.policy == OnUnknown::RedoKeyed && c.class.has_effect() && is_against && !ordered(c)
        },
        |_, verdict| !starts(verdict),
    ),
    statement(
        "what its policy leaves to a person is asked about",
        |c| is_gone(c) && c.policy == OnUnknown::Hold && is_unasked(c),
        |_, verdict| verdict == "ask: unknown",
    ),
    statement(
        "who ends the run is heard before anything is decided about what is open",
        |c| {
            let is_settled = c.stand.is_settled() || c.stand == S::Skipped;
            let is_read_first = matches!(c.stand, S::RunningUnread | S::RunningAlone);
            chose(c, Choice::Abort) && c.about != About::Elicitation && !is_settled && !is_read_first
        },
        |_, verdict| verdict == "aborted",
    ),
    statement(
        "that it happened is heard at once, whatever is known of the process it went to",
        |c| c.stand == S::Unknown && chose(c, Choice::Happened) && c.about != About::Elicitation,
        |_, verdict| verdict == "resolve: happened",
    ),
    statement(
        "what a person leaves as it is stays in doubt, and is not sent",
        |c| c.stand == S::Unknown && chose(c, Choice::Skip) && c.about != About::Elicitation,
        |_, verdict| verdict == "resolve: skipped",
    ),
    statement(
        "that it did not happen is acted on when the process is gone and the other side cannot begin it any more",
        |c| {
            let may_begin = matches!(c.outside, Outside::Nothing | Outside::MayBegin);
            c.stand == S::Unknown && ordered(c) && (may_begin || c.obstacle == Obstacle::HorizonAhead)
        },
        |_, verdict| !starts(verdict),
    ),
    statement(
        "a word about a call in doubt is good for what was shown",
        |c| c.stand == S::Unknown && ordered(c) && c.said == PersonAnswer::ToSomethingElse,
        |_, verdict| !starts(verdict),
    ),
    statement(
        "what its tool asked for says nothing about what became of it",
        |c| c.stand == S::Unknown && c.about == About::Elicitation,
        |_, verdict| !matches!(verdict, "aborted" | "hold" | "resolve: happened" | "resolve: skipped"),
    ),
    statement(
        "what is settled, or was left as it is, stays so",
        |c| c.stand.is_settled() || c.stand == S::Skipped,
        |_, verdict| verdict == "settled",
    ),
    statement(
        "a stored answer is read before anything else",
        |c| c.stand == S::RunningUnread,
        |_, verdict| verdict == "interpret",
    ),
    statement(
        "what definitely did nothing is tried again where nothing speaks against it",
        |c| c.stand == S::FailedOnce && is_unasked(c) && c.beside == Beside::Nothing && !c.needs_approval,
        |_, verdict| verdict == "start",
    ),
    statement(
        "as often as is allowed",
        |c| c.stand == S::FailedAsOftenAsAllowed && is_unasked(c),
        |_, verdict| verdict == "settled",
    ),
    statement(
        "only what was not sent waits for another call",
        |_| true,
        |c, verdict| verdict != "wait" || (c.stand == S::Prepared && c.beside == Beside::TwinUnderWay),
    ),
    statement(
        "only what was not sent is refused",
        |_| true,
        |c, verdict| !verdict.starts_with("cancel") || c.stand == S::Prepared,
    ),
    statement(
        "an answer is taken over from a call that has one",
        |_| true,
        |c, verdict| verdict != "deduplicate" || c.beside == Beside::TwinDone || c.is_word_of_the_earlier(),
    ),
    statement(
        "what a person does not want is not sent",
        |c| c.stand == S::Prepared && chose(c, Choice::Skip),
        |_, verdict| verdict == "cancel: declined",
    ),
    statement(
        "what takes an approval is not sent before one is asked for, also where it only reads",
        |c| is_first(c) && c.beside == Beside::Nothing && c.needs_approval && c.tool != Tool::AskUser,
        |_, verdict| verdict == "ask: approval",
    ),
    // Of what has an effect.
    statement(
        "beside a call of its family that may have had its effect a person is asked, on this machine, in memory and outside",
        |c| is_first(c) && c.class.has_effect() && c.beside == Beside::Rival && c.conflict == OnScopeConflict::Ask,
        |_, verdict| verdict == "ask: near duplicate",
    ),
    // Of what only reads.
    statement(
        "whether a read happened is nobody's question",
        |c| {
            let is_known_as_one = c.class == SideEffectClass::ReadOnly && c.obstacle != Obstacle::PromisesLess;
            is_known_as_one && c.stand == S::Unknown && c.policy != OnUnknown::Hold
        },
        |_, verdict| !matches!(verdict, "ask: unknown" | "go on without, ask"),
    ),
    statement(
        "a free read is made again, whatever changed since and wherever it would go now",
        |c| {
            let changes_nothing = match c.obstacle {
                Obstacle::None
                | Obstacle::FileChanged
                | Obstacle::KeyExpired
                | Obstacle::HorizonAhead
                | Obstacle::AnsweredEarly
                | Obstacle::Elsewhere => true,
                Obstacle::TriedOften | Obstacle::ServerGone | Obstacle::PromisesLess => false,
            };
            is_free_read(c) && is_gone(c) && is_unasked(c) && changes_nothing
        },
        |_, verdict| verdict == "start: in doubt",
    ),
    statement(
        "and when that was done as often as is allowed, its model is told",
        |c| is_free_read(c) && is_gone(c) && is_unasked(c) && c.obstacle == Obstacle::TriedOften,
        |_, verdict| verdict == "resolve: not happened",
    ),
    statement(
        "a read that its tool has is followed wherever its server is now",
        |c| c.class == SideEffectClass::ReadOnly && c.stand == S::RunningWithHandle && is_unasked(c),
        |_, verdict| verdict == "go on",
    ),
    statement(
        "a read repeats nothing: it is neither asked about nor refused for another call",
        |c| c.class == SideEffectClass::ReadOnly && may_go(c) && !c.beside.is_renamed(),
        stands_aside_for_none,
    ),
    statement(
        "but for what was an effect when it was made",
        |c| {
            let is_read = c.class == SideEffectClass::ReadOnly;
            is_first(c) && is_read && c.beside == Beside::Renamed && c.conflict == OnScopeConflict::Ask
        },
        |_, verdict| verdict == "ask: near duplicate",
    ),
    // Of what writes on this machine.
    statement(
        "the files of a workspace are each run's own: what another tree did stands in no way of a local write",
        |c| c.class == SideEffectClass::Local && may_go(c) && matches!(c.beside, Beside::Kin | Beside::KinSince),
        stands_aside_for_none,
    ),
    statement(
        "nor does it keep one from being made again that replaces its own output",
        |c| is_made_again(c, SideEffectClass::Local, OnUnknown::Redo) && is_overtaken(c),
        |_, verdict| verdict == "start: in doubt",
    ),
    // Of what changes memory.
    statement(
        "memory remembers keys: a write that was lost goes out again under its own",
        |c| is_made_again(c, SideEffectClass::Memory, OnUnknown::RedoKeyed) && c.beside == Beside::Nothing,
        |_, verdict| verdict == "start: in doubt",
    ),
    // Of what reaches beyond its run: memory, and everything outside.
    statement(
        "what another tree may have done since is not done again by itself",
        |c| c.stand == S::Unknown && reaches_others(c.class) && is_overtaken(c) && !ordered(c),
        |_, verdict| !starts(verdict),
    ),
    statement(
        "nor is what it did done for the first time",
        |c| {
            let is_of_kin = matches!(c.beside, Beside::Kin | Beside::Renamed);
            is_first(c) && reaches_others(c.class) && is_of_kin && c.conflict == OnScopeConflict::Ask
        },
        |_, verdict| verdict == "ask: near duplicate",
    ),
    // Of the program's own tools.
    statement(
        "a task that is under way is its child run, and is not lost with the process that began it",
        |c| c.tool == Tool::Task && c.stand == S::RunningAlone,
        |_, verdict| verdict == "ongoing",
    ),
    statement(
        "whatever else is under way without an answer, and nobody is at it, is lost",
        |c| c.tool != Tool::Task && c.stand == S::RunningAlone,
        |_, verdict| verdict == "mark lost",
    ),
    statement(
        "what a model asks its person begins with an answer, and is asked until then",
        |c| c.tool == Tool::AskUser && c.stand == S::Prepared,
        |c, verdict| match c.said {
            PersonAnswer::NotAsked => verdict == "ask: ask_user",
            PersonAnswer::Nothing => verdict == "hold",
            PersonAnswer::Chose(Choice::Execute | Choice::Continue) | PersonAnswer::ToSomethingElse => {
                verdict == "start"
            }
            PersonAnswer::Chose(Choice::Happened | Choice::Skip) => verdict == "cancel: declined",
            PersonAnswer::Chose(Choice::Abort) => verdict == "aborted",
        },
    ),
];

fn starts(verdict: &str) -> bool {
    verdict.starts_with("start")
}

fn chose(case: &Case, choice: Choice) -> bool {
    case.said == PersonAnswer::Chose(choice)
}

fn is_unasked(case: &Case) -> bool {
    case.said == PersonAnswer::NotAsked
}

/// It is in doubt, and the process that it went to is gone.
fn is_gone(case: &Case) -> bool {
    case.stand == S::Unknown && case.outside == Outside::Gone
}

/// It was not sent, and nobody was asked about it.
fn is_first(case: &Case) -> bool {
    case.stand == S::Prepared && is_unasked(case)
}

/// It was not sent, or what was sent did nothing.
fn may_go(case: &Case) -> bool {
    matches!(case.stand, S::Prepared | S::FailedOnce | S::FailedAsOftenAsAllowed | S::RefusedCredentials)
}

/// Another tree has, since it was sent, what may have been the same.
fn is_overtaken(case: &Case) -> bool {
    matches!(case.beside, Beside::KinSince | Beside::RenamedSince)
}

fn is_free_read(case: &Case) -> bool {
    case.class == SideEffectClass::ReadOnly && case.policy == OnUnknown::Redo
}

/// It is of that class, its policy makes what was lost again, and nothing in itself speaks against that.
fn is_made_again(case: &Case, class: SideEffectClass, policy: OnUnknown) -> bool {
    let is_it = case.class == class && case.policy == policy;
    is_it && is_gone(case) && is_unasked(case) && case.obstacle == Obstacle::None
}

/// A person's word that it is done already ends it as well, and is about itself.
fn stands_aside_for_none(case: &Case, verdict: &str) -> bool {
    let is_for_another = matches!(verdict, "ask: near duplicate" | "wait" | "deduplicate" | "put right");
    !is_for_another && (verdict != "cancel: near_duplicate" || chose(case, Choice::Happened))
}
