//! What other calls have to do with one that is about to be sent: those that it might repeat.
//!
//! Of calls that have the same to do with it and stand alike a decision needs the newest and how many they are, so it costs the same in a
//! run of ten thousand calls.
//! One read for the decision, and the same read again in the transaction that starts the attempt: what is news refuses the start, so two
//! processes that look at the same instant do not both send. Durable Jobs v1 spec §8.3. Proved by: `conformance::calls`,
//! `crash_anywhere::family`, the simulation.

use ua_core::{CallId, CallStatus, OnUnknown, RunId, Scope, SideEffectClass, Timestamp};

use crate::record::{CallRecord, QuestionRecord, RunRecord};
use crate::rules;

/// Calls that have the same to do with a call, and stand alike: the one that came to stand so last.
#[derive(Debug, Clone, PartialEq)]
pub struct Related {
    /// It.
    pub newest: CallRecord,
    /// How many there are, itself counted.
    pub count: u64,
}

impl Related {
    /// One call alone.
    pub fn one(newest: CallRecord) -> Self {
        Self { newest, count: 1 }
    }
}

/// The calls of a family that may have had, or may still have, an effect that another call is about to have. Each list has at most one entry
/// for each way in which a call may stand: under way for the first time, in doubt, succeeded, failed after it may have done something;
/// oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Relations {
    /// Calls of the family with the same scope.
    pub rivals: Vec<Related>,
    /// Calls of the family and of the same tool in the same words, whose outcome, or that of an attempt of them, is not known, those that a
    /// person gave up included; not those of which a scope of their own says what their effect was.
    pub doubts: Vec<Related>,
    /// Calls that their run went on without: with the same scope, or of the same tool without a scope of their own.
    pub left_open: Vec<Related>,
    /// Calls that were decided after it, with its scope or, of another tree, its words.
    pub since: Vec<Related>,
    /// Calls of other trees of the family, outside the history that is shared with them.
    pub kin: Kin,
    /// The same words for a tool of the same own name under the name of another server, which may be the same server under an earlier name
    /// ([`is_under_another_server`]): what another tree did, and what is in doubt in the family. An entry for each such tool and way to stand.
    pub renamed: Vec<Related>,
}

/// What another tree of the family did was decided by another model. An entry for each way to stand, as in [`Relations`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kin {
    /// The same tool in the same words, declared as the same effect.
    pub same: Vec<Related>,
    /// The same tool in the same words, declared as something else: another effect, or of another class. Not where both stay in the workspaces, of
    /// which each run has its own.
    pub declared_otherwise: Vec<Related>,
    /// Under way or in doubt, and nothing says that it is another effect.
    pub open: Vec<Related>,
}

/// What a decision about a call goes by, from one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Around {
    /// The call.
    pub call: CallRecord,
    /// Its run.
    pub run: RunRecord,
    /// The question about it that is not closed.
    pub question: Option<QuestionRecord>,
    /// Another call of the family that holds the key it would be sent under.
    pub holder: Option<CallRecord>,
    /// What it might repeat. A read repeats nothing, but what its tool did in other words about itself: a fork may have other tools.
    pub relations: Relations,
    /// How many other calls of its lineage had an effect of its kind or may have had it, counted up to as many as was asked for: what the start of
    /// the call goes by ([`StartAttempt::max_effects`](crate::StartAttempt::max_effects)).
    pub other_effects: u32,
}

/// A related call, as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The call.
    pub call: CallId,
    /// Where it stood.
    pub status: CallStatus,
    /// Whether it was in doubt.
    pub in_doubt: bool,
    /// How often it had been sent: one in doubt that was sent again may be in doubt as before.
    pub attempt: u32,
    /// When it came to stand so, or what was answered to its tool was handed over: until then it waits, and from then on it is under way.
    pub since: Timestamp,
    /// For how many it stood.
    pub count: u64,
}

impl Seen {
    fn of(related: &Related) -> Self {
        let call = &related.newest;
        let (status, in_doubt, attempt, since) = (call.status, call.doubt.is_some(), call.attempt, call.updated_at);
        Self { call: call.call_id.clone(), status, in_doubt, attempt, since, count: related.count }
    }

    /// Whether whoever saw this knows what is to be seen now.
    fn covers(&self, now: &Self) -> bool {
        let since = |seen: &Self| (seen.status == CallStatus::Running).then_some(seen.since);
        let stood = |seen: &Self| (seen.call.clone(), seen.status, seen.in_doubt, seen.attempt, since(seen));
        let is_same = stood(self) == stood(now);
        is_same && now.count <= self.count
    }
}

/// Whether a call was gone on without and nobody has said since what came of it.
pub fn is_left_open(call: &CallRecord) -> bool {
    rules::was_left_unknown(call) && call.policy.on_unknown == OnUnknown::Continue
}

/// Whether something says what the effect of a call is, so that its doubt need not block the whole tool.
pub fn is_named(call: &CallRecord) -> bool {
    says_what(call.scope.as_ref())
}

fn says_what(scope: Option<&Scope>) -> bool {
    scope.is_some_and(|scope| !scope.is_of_whole_call())
}

/// Whether two calls of one tool were declared as different things. What a tool is said to do says nothing about what it does: who renames an effect
/// makes no other one of it.
pub fn is_declared_otherwise(call: &CallRecord, other: &CallRecord) -> bool {
    call.policy.effect_kind != other.policy.effect_kind || call.policy.class != other.policy.class
}

/// Whether two calls say the same to tools of one name under the names of two servers, and reach beyond the workspace. Names of servers are given in
/// a configuration, so one server may have had both; those that come with this program keep theirs.
pub fn is_under_another_server(call: &CallRecord, other: &CallRecord) -> bool {
    let (name, of) = (&call.name, &other.name);
    name.tool == of.tool
        && name.raw != of.raw
        && call.args_hash == other.args_hash
        && !(name.is_built_in() || of.is_built_in())
        && (reaches_others(call) || reaches_others(other))
}

/// Whether another tree could have had the effect of a call at all: files of the workspace are each run's own.
pub fn reaches_others(call: &CallRecord) -> bool {
    matches!(call.policy.class, SideEffectClass::External | SideEffectClass::Memory)
}

/// How a related call may stand; of each, the newest is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    UnderWay,
    InDoubt,
    Succeeded,
    Failed,
}

fn standing(call: &CallRecord) -> Standing {
    match call.status {
        _ if rules::is_doubt(call) => Standing::InDoubt,
        CallStatus::Running => Standing::UnderWay,
        CallStatus::Succeeded => Standing::Succeeded,
        CallStatus::Prepared
        | CallStatus::Unknown
        | CallStatus::FailedDefinite
        | CallStatus::FailedReported
        | CallStatus::Cancelled => Standing::Failed,
    }
}

/// When a call came to stand as it does. Whatever orders calls of the same moment, it is the same in every store.
fn age<'a>(call: &'a CallRecord, run: &RunId) -> impl Ord + use<'a> {
    (call.updated_at, call.run_id == *run, call.position, &call.call_id)
}

/// Adds a call to those that have the same to do with one of `run`.
fn put(list: &mut Vec<Related>, other: &Related, run: &RunId) {
    put_by(list, other, run, |_| ());
}

/// The same, where those that stand alike have to agree in `part` as well.
fn put_by<P: PartialEq>(list: &mut Vec<Related>, other: &Related, run: &RunId, part: impl Fn(&CallRecord) -> P) {
    let agree = |known: &CallRecord| standing(known) == standing(&other.newest) && part(known) == part(&other.newest);
    let known = list.iter_mut().find(|known| agree(&known.newest));
    match known {
        Some(known) => {
            known.count += other.count;
            if age(&known.newest, run) < age(&other.newest, run) {
                known.newest = other.newest.clone();
            }
        }
        None => list.push(other.clone()),
    }
    list.sort_by(|one, two| age(&one.newest, run).cmp(&age(&two.newest, run)));
}

impl Relations {
    /// Adds a call of the family of `call`, whose effect would be `scope`. It stands for `other.count` calls that agree with it in all that
    /// matters here: tool, words, scope, whether it is left open, and how it stands.
    pub fn add(&mut self, call: &CallRecord, scope: Option<&Scope>, other: &Related) {
        let newest = &other.newest;
        if newest.call_id == call.call_id || newest.attempt == 0 {
            return;
        }
        let shares_scope = scope.is_some() && newest.scope.as_ref() == scope;
        if shares_scope && rules::may_have_happened(newest) {
            put(&mut self.rivals, other, &call.run_id);
            let is_later_here = newest.run_id == call.run_id && newest.position > call.position;
            if newest.created_at > call.created_at || (is_later_here && newest.created_at == call.created_at) {
                put(&mut self.since, other, &call.run_id);
            }
        }
        let is_of_tool = newest.name.raw == call.name.raw && !is_named(newest);
        if rules::is_doubt(newest) && is_of_tool && newest.args_hash == call.args_hash {
            put(&mut self.doubts, other, &call.run_id);
        }
        if is_left_open(newest) && (shares_scope || is_of_tool) {
            put(&mut self.left_open, other, &call.run_id);
        }
        // The servers of another family are not this one's, and a read of its own tree repeats nothing.
        let is_of_family = newest.root_run_id == call.root_run_id && call.policy.class.has_effect();
        if rules::is_doubt(newest) && is_of_family {
            self.add_renamed(call, scope, other);
        }
    }

    /// Adds a call of another tree of the family, which is not part of the history that is shared with it.
    pub fn add_kin(&mut self, call: &CallRecord, scope: Option<&Scope>, other: &Related) {
        let newest = &other.newest;
        if newest.call_id == call.call_id || !rules::is_effect_elsewhere(newest) {
            return;
        }
        let is_of_tool = newest.name == call.name;
        let is_same = is_of_tool && newest.args_hash == call.args_hash;
        if is_same && !is_declared_otherwise(call, newest) {
            put(&mut self.kin.same, other, &call.run_id);
        } else if is_same && (reaches_others(call) || reaches_others(newest)) {
            put(&mut self.kin.declared_otherwise, other, &call.run_id);
        }
        let shares_scope = scope.is_some() && newest.scope.as_ref() == scope;
        // Those with its scope that are younger are among its rivals.
        let is_counted = shares_scope && newest.created_at > call.created_at;
        if (is_same || shares_scope) && newest.created_at >= call.created_at && !is_counted {
            put(&mut self.since, other, &call.run_id);
        }
        let are_both_named = says_what(scope) && is_named(newest);
        let may_be_same = if are_both_named { shares_scope } else { is_of_tool };
        if may_be_same && matches!(standing(newest), Standing::UnderWay | Standing::InDoubt) {
            put(&mut self.kin.open, other, &call.run_id);
        }
        // Beside an effect, what is in doubt is among those of the family.
        if !(rules::is_doubt(newest) && call.policy.class.has_effect()) {
            self.add_renamed(call, scope, other);
        }
    }

    fn add_renamed(&mut self, call: &CallRecord, scope: Option<&Scope>, other: &Related) {
        let newest = &other.newest;
        // Of two that are declared as one effect the scopes say whether they are: the files that the same words name may hold something else.
        let kind = &call.policy.effect_kind;
        let is_known_otherwise = kind.is_some() && newest.policy.effect_kind == *kind && newest.scope.as_ref() != scope;
        if is_under_another_server(call, newest) && !is_known_otherwise {
            put_by(&mut self.renamed, other, &call.run_id, |call| call.name.raw.clone());
        }
    }

    /// Adds a call that another family of the project has open: there only doubt reaches beyond the family.
    pub fn add_open(&mut self, call: &CallRecord, scope: Option<&Scope>, other: CallRecord) {
        self.add(call, scope, &Related::one(other));
    }

    /// All of them, each once.
    pub fn all(&self) -> Vec<&Related> {
        let Kin { same, declared_otherwise, open } = &self.kin;
        let lists =
            [&self.rivals, &self.doubts, &self.left_open, &self.since, same, declared_otherwise, open, &self.renamed];
        let mut all: Vec<&Related> = Vec::new();
        for related in lists.into_iter().flatten() {
            match all.iter_mut().find(|known| known.newest.call_id == related.newest.call_id) {
                Some(known) if known.count < related.count => *known = related,
                Some(_) => {}
                None => all.push(related),
            }
        }
        all
    }

    /// What a start that is decided on now has seen.
    pub fn seen(&self) -> Vec<Seen> {
        self.all().into_iter().map(Seen::of).collect()
    }

    /// The first of them that is not among what was seen, or stands elsewhere now. A call that moves becomes the newest of those that stand
    /// as it does, or one more of them.
    pub fn news<'a>(&'a self, seen: &[Seen]) -> Option<&'a CallRecord> {
        let is_news = |related: &&Related| !seen.iter().any(|seen| seen.covers(&Seen::of(related)));
        self.all().into_iter().find(is_news).map(|related| &related.newest)
    }
}
