//! Calls of before there were doubts: rows as a program wrote them that knew none, for the tests of stores that open databases of earlier schemas.
//!
//! They are generated: what its attempts came to, what its policy is, what a person was asked and said, and when, whether its turn is over, and
//! whether another call has its key since. What has to come of each is said here by its own words, not by the rule that a migration asks
//! ([`found_in_doubt`](crate::rules::found_in_doubt)).

use std::collections::BTreeSet;

use serde_json::json;
use ua_core::{
    Block, CallPolicy, CallStatus, KeyChannel, Message, OnUnknown, Origin, PlannedCall, PossibleEffect, QuestionId,
    Role, Settlement, SideEffectClass,
};

use super::{Scene, samples};
use crate::commit::{AttemptEnd, NewAnswer, NewQuestion, SettleAttempt, StartAttempt, TurnCommit, UnknownResolution};
use crate::invariants::{self, Violation};
use crate::record::{CallRecord, Choice, QuestionKind};
use crate::{LedgerStore, RunStore, Store};

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Lost,
    NotSent,
    Refused,
    /// Answered with what leaves it open.
    LeftOpen,
    ReportedWithout,
    ReportedPerhaps,
    Succeeded,
    UnderWay,
}

impl End {
    const AGAIN: [Self; 4] = [Self::Lost, Self::NotSent, Self::Refused, Self::LeftOpen];
    const LAST: [Self; 8] = [
        Self::Lost,
        Self::NotSent,
        Self::Refused,
        Self::LeftOpen,
        Self::ReportedWithout,
        Self::ReportedPerhaps,
        Self::Succeeded,
        Self::UnderWay,
    ];

    fn may_have_been_done(self) -> bool {
        matches!(self, Self::Lost | Self::LeftOpen)
    }
}

/// What a person was asked and said, behind which attempt; 0 is before the first.
type Said = (QuestionKind, Choice, usize);

/// A call, and all that was written about it.
#[derive(Debug, Clone)]
pub struct Case {
    class: SideEffectClass,
    on_unknown: OnUnknown,
    ends: Vec<End>,
    said: Option<Said>,
    is_committed: bool,
    /// How another call stands that was sent under its key since.
    twin: Option<CallStatus>,
}

const POLICIES: [(SideEffectClass, OnUnknown); 8] = [
    (SideEffectClass::External, OnUnknown::Hold),
    (SideEffectClass::External, OnUnknown::RedoKeyed),
    (SideEffectClass::External, OnUnknown::Probe),
    (SideEffectClass::External, OnUnknown::Continue),
    (SideEffectClass::Local, OnUnknown::Hold),
    (SideEffectClass::Local, OnUnknown::Redo),
    (SideEffectClass::Memory, OnUnknown::RedoKeyed),
    (SideEffectClass::ReadOnly, OnUnknown::Redo),
];

fn histories() -> Vec<Vec<End>> {
    use End::{Lost, NotSent, Refused, ReportedWithout, UnderWay};
    let one = End::LAST.iter().map(|last| vec![*last]);
    let two = End::AGAIN.iter().flat_map(|first| End::LAST.iter().map(move |last| vec![*first, *last]));
    let three = [
        vec![Lost, Lost, Refused],
        vec![Lost, NotSent, Refused],
        vec![NotSent, Lost, Refused],
        vec![Lost, Refused, UnderWay],
        vec![Lost, Refused, NotSent],
        vec![Lost, Lost, ReportedWithout],
    ];
    one.chain(two).chain(three).collect()
}

fn words(sent: usize) -> Vec<Option<Said>> {
    let first = [
        None,
        Some((QuestionKind::Approval, Choice::Execute, 0)),
        Some((QuestionKind::NearDuplicate, Choice::Execute, 0)),
        Some((QuestionKind::UnknownOutcome, Choice::Skip, sent)),
    ];
    let behind = (1..=sent).flat_map(|place| {
        [
            Some((QuestionKind::UnknownOutcome, Choice::Execute, place)),
            Some((QuestionKind::AuthFailure, Choice::Continue, place)),
            Some((QuestionKind::Approval, Choice::Execute, place)),
        ]
    });
    first.into_iter().chain(behind).collect()
}

/// The table, of which every eleventh row is taken, so that each word meets each policy and each history.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (class, on_unknown) in POLICIES {
        for ends in histories() {
            for said in words(ends.len()) {
                let number = all.len();
                let last = ends[ends.len() - 1];
                let is_open = matches!(last, End::UnderWay) || said.is_some_and(|said| said.1 == Choice::Skip);
                let has_failed = matches!(last, End::NotSent | End::Refused | End::ReportedWithout);
                let twin = [None, Some(CallStatus::Succeeded), None, Some(CallStatus::Unknown), None][number % 5];
                all.push(Case {
                    class,
                    on_unknown,
                    ends: ends.clone(),
                    said,
                    is_committed: !is_open && number % 2 == 0,
                    twin: twin.filter(|_| has_failed && class != SideEffectClass::ReadOnly),
                });
            }
        }
    }
    all.into_iter().enumerate().filter(|(number, _)| number % 11 == 0).map(|(_, case)| case).collect()
}

impl Case {
    /// One that was let out by a person, lost, and then refused; its run went on.
    pub fn refused_behind_a_loss() -> Self {
        Self {
            class: SideEffectClass::External,
            on_unknown: OnUnknown::Hold,
            ends: vec![End::Lost, End::Refused],
            said: Some((QuestionKind::Approval, Choice::Execute, 0)),
            is_committed: true,
            twin: None,
        }
    }

    fn policy(&self) -> CallPolicy {
        let key_channel = (self.on_unknown == OnUnknown::RedoKeyed).then_some(KeyChannel::Meta);
        CallPolicy { class: self.class, on_unknown: self.on_unknown, key_channel, ..CallPolicy::unclassified() }
    }

    /// Whether there can be a doubt of it at all.
    fn counts(&self) -> bool {
        self.class != SideEffectClass::ReadOnly && self.on_unknown != OnUnknown::Redo
    }

    /// Whether an attempt may have had the effect, and nobody and nothing said that it had not.
    pub fn is_in_doubt(&self) -> bool {
        let sent = self.ends.len();
        let is_known = |attempt: usize| {
            let who_was_asked =
                matches!(self.said, Some((QuestionKind::UnknownOutcome, Choice::Execute, behind)) if behind >= attempt);
            who_was_asked || (self.on_unknown == OnUnknown::Probe && attempt < sent)
        };
        let mut attempts = (1..=sent).filter(|attempt| self.ends[attempt - 1].may_have_been_done());
        let is_answered_for = self.twin == Some(CallStatus::Succeeded) && self.policy().key_channel.is_some();
        self.counts()
            && self.ends[sent - 1] != End::Succeeded
            && !is_answered_for
            && attempts.any(|attempt| !is_known(attempt))
    }
}

fn seconds(attempt: usize) -> i64 {
    i64::try_from(attempt).unwrap() * 100
}

/// Writes a call, of a run and with ids that have its number, as a program wrote it that knew no doubts: what its newest attempt came to is what it
/// is.
pub async fn written(store: &dyn Store, number: usize, case: &Case) {
    let scene = Scene::begin(store, &format!("run_{number}")).await;
    let (id, other) = (format!("call_{number}"), format!("twin_{number}"));
    let planned = |id: &str, ordinal| {
        let policy = case.policy().into();
        PlannedCall { policy, ..samples::planned_email(id, 1, ordinal) }
    };
    let mut calls = vec![planned(&id, 1)];
    calls.extend(case.twin.map(|_| planned(&other, 2)));
    scene.turn(calls.clone()).await;
    let mut approved_by = said(store, &scene, number, case, 0).await;
    for (before, end) in case.ends.iter().enumerate() {
        let attempt = before + 1;
        let start = StartAttempt { approved_by: approved_by.take(), ..samples::start(&id, 1, &id) };
        sent(store, &scene, start, attempt, *end).await;
        approved_by = said(store, &scene, number, case, attempt).await;
    }
    if let Some(status) = case.twin {
        let end = if status == CallStatus::Succeeded { End::Succeeded } else { End::Lost };
        sent(store, &scene, samples::start(&other, 1, &id), 1, end).await;
    }
    if !case.is_committed {
        return;
    }
    for planned in &calls {
        if store.call(&planned.call_id).await.unwrap().status == CallStatus::Unknown {
            let skipped = UnknownResolution::Skipped;
            store.resolve_unknown(&scene.lease, &planned.call_id, skipped, None, samples::at(900)).await.unwrap();
        }
    }
    let result = |planned: &PlannedCall| Block::ToolResult {
        tool_use_id: planned.tool_use_id.clone(),
        content: "ok".into(),
        is_error: false,
    };
    let blocks: Vec<Block> = calls.iter().map(result).collect();
    let told = Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() };
    let step = format!("step_of_run_{number}");
    let commit = samples::commit(&step, 1, &format!("ckpt_{number}"));
    store.commit_turn(&scene.lease, TurnCommit { messages: vec![told], at: samples::at(901), ..commit }).await.unwrap();
}

/// Sends a call once more, and stores what came of it.
async fn sent(store: &dyn Store, scene: &Scene<'_>, start: StartAttempt, attempt: usize, end: End) {
    let (number, at) = (u32::try_from(attempt).unwrap(), samples::at(seconds(attempt)));
    let id = start.call_id.clone();
    store.start_attempt(&scene.lease, StartAttempt { attempt: number, ends_doubt: true, at, ..start }).await.unwrap();
    let replied = |status, possible_effect| {
        let settlement = Some(Settlement { possible_effect, ..samples::settlement(status) });
        AttemptEnd::Replied { raw: samples::raw(), settlement }
    };
    let end = match end {
        End::UnderWay => return,
        End::Lost => AttemptEnd::Lost { why: "the connection was cut".to_owned() },
        End::NotSent => AttemptEnd::NotSent { why: "connection refused".to_owned() },
        End::Refused => replied(CallStatus::FailedDefinite, None),
        End::LeftOpen => replied(CallStatus::Unknown, None),
        End::ReportedWithout => replied(CallStatus::FailedReported, Some(PossibleEffect::None)),
        End::ReportedPerhaps => replied(CallStatus::FailedReported, Some(PossibleEffect::Maybe)),
        End::Succeeded => replied(CallStatus::Succeeded, None),
    };
    let ended = samples::ended(id.as_str(), number, end);
    let ended = SettleAttempt { at: samples::at(seconds(attempt) + 10), ..ended };
    store.settle_attempt(&scene.lease, ended).await.unwrap();
}

/// Asks what is asked behind so many attempts and has it answered; the word by which the call may go out next.
async fn said(store: &dyn Store, scene: &Scene<'_>, number: usize, case: &Case, behind: usize) -> Option<QuestionId> {
    let (kind, choice, _) = case.said.filter(|said| said.2 == behind)?;
    let (id, call) = (format!("q_{number}"), format!("call_{number}"));
    let hash = store.call(&samples::call_id(&call)).await.unwrap().args_hash.to_hex();
    let asked = NewQuestion {
        kind,
        detail: json!({"args_hash": hash}),
        choices: vec![Choice::Happened, Choice::Execute, Choice::Continue, Choice::Skip, Choice::Abort],
        at: samples::at(seconds(behind) + 20),
        ..samples::question(&id, Some(&call))
    };
    store.raise_question(&scene.lease, asked).await.unwrap();
    let answer = NewAnswer { at: samples::at(seconds(behind) + 50), ..samples::answer(&id, choice) };
    store.insert_answer(answer).await.unwrap();
    (behind < case.ends.len()).then(|| samples::question_id(&id))
}

/// A call as it is stored, and what does not hold of its run.
#[derive(Debug)]
pub struct Seen {
    /// The call.
    pub call: CallRecord,
    /// What does not hold, and is about a doubt.
    of_doubt: Vec<Violation>,
    /// What else does not hold: by its statement and the row.
    others: BTreeSet<(String, String)>,
}

impl Seen {
    /// The call of a number.
    pub async fn of(store: &dyn Store, number: usize) -> Self {
        let call = store.call(&samples::call_id(&format!("call_{number}"))).await.unwrap();
        let records = store.load(&call.run_id).await.unwrap();
        let mut events = Vec::new();
        for call in &records.calls {
            events.extend(store.events(&call.call_id).await.unwrap());
        }
        let mut all = invariants::check(&records, &events);
        all.extend(invariants::check_agreement(&records, &events));
        let is_of_doubt = |one: &Violation| one.invariant.contains("doubt") || one.invariant == "legal_transitions";
        let (of_doubt, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_of_doubt);
        let others = others.into_iter().map(|one| (one.invariant.to_owned(), one.row)).collect();
        Self { call, of_doubt, others }
    }

    /// Whether its row forgets a doubt.
    pub fn forgets_a_doubt(&self) -> bool {
        !self.of_doubt.is_empty()
    }

    fn stands(&self) -> (CallStatus, Option<PossibleEffect>) {
        (self.call.status, self.call.possible_effect)
    }

    /// Fails unless a migration made of a call, which `was` so before, what has to come of it; whether that is in doubt. `what` says which.
    #[track_caller]
    pub fn check(&self, case: &Case, was: &Self, what: &str) -> bool {
        let call = &self.call;
        let what = format!("{what}: {case:?}: {call:?}");
        assert_eq!(self.of_doubt, [], "{what}");
        assert!(self.others.is_subset(&was.others), "{:?}: {what}", self.others);
        if case.is_in_doubt() {
            let may_have_happened = match call.status {
                CallStatus::Unknown | CallStatus::Running => true,
                CallStatus::FailedReported => call.possible_effect == Some(PossibleEffect::Maybe),
                CallStatus::Prepared | CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::Cancelled => {
                    false
                }
            };
            assert!(call.doubt.is_some() && may_have_happened, "{what}");
            return true;
        }
        assert_eq!(self.stands(), was.stands(), "{what}");
        let says_nothing = matches!(call.status, CallStatus::FailedDefinite | CallStatus::FailedReported);
        assert!(!(says_nothing && call.doubt.is_some()), "{what}");
        false
    }
}
