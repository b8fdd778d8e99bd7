//! Which call is it that a client asks for? One pure answer over what is stored and what is under way.
//!
//! A client's transport posts a call again after a cut, its model asks again after a kill, two clients want the same: each is a request of its
//! own and may be a call that is there. What is in doubt, or was never handed to anybody, is looked for in the whole project; what was settled
//! and handed over only in the same family. A doubt that ends reaches as far as it did. Rivals (the same effect in other words) are the verdict's to find, behind this.
//!
//! The same words to another tool server of that name, or as another account, are another call; whether it is the same one under a new token
//! nobody here knows. So what would be that call if the servers were one is asked about: never told as made, never sent silently.
//!
//! A client whose session is its connection is another session after a kill, and says in nothing that it is the one from before. Of two mistakes
//! one is made at last: an effect that is made twice, of which nobody hears, or an answer that is handed to an agent which meant another effect; that
//! one reads when the call was made, and how to have it made once more. So the first equal call of a client of the same kind that came behind is the
//! earlier one. Who had a session already when that one was asked for was there beside it, and means another one; so does whoever made one itself.
//! For how long a receipt lies there a clock says, and clocks jump: one that nobody read is asked about for ever, and never forgotten.
//!
//! Invariants: beside a call that is unknown, or that nobody waits for any more, the same call is never a new one where it could be the same
//! effect; a read is a new call but for a request that comes again; what a request is does not depend on the order in which calls are listed.
//! What happened and nobody is known to have read is never made again silently, whatever the clock says.
//! Proved by: the table and the properties below, the search over all short histories of a session in `histories`, `tests/it`.

use std::time::Duration;

use ua_core::{CallId, CallStatus, SideEffectClass, Timestamp};
use ua_store::ArrivalRecord;

/// How long a result that nobody took is handed to the next who asks. Behind that a person is asked.
pub const OWED_FOR: Duration = Duration::from_hours(24 * 7);

/// An answer that took so long may have come when a client that does not say so had given up. No client is known to wait for less.
pub const SLOW: Duration = Duration::from_secs(2);

/// By which rule a request is the call that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// R1: the very request, sent again.
    Exact,
    /// R2: the same call, of which nobody knows what came, or for which nobody waits any more.
    Unsettled,
    /// R3: the same call, done, whose result never reached anybody.
    Owed,
    /// R4: the same declared effect, asked for again by the same family.
    Repeat,
    /// R5: the same declared effect, being had right now for somebody who waits.
    Twin,
    /// R5: the same effect that is not declared, asked for again by its session under way or right after a slow answer.
    Again,
    /// R7: none of these.
    New,
}

impl Rule {
    /// Its name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Unsettled => "unsettled",
            Self::Owed => "owed",
            Self::Repeat => "repeat",
            Self::Twin => "twin",
            Self::Again => "again",
            Self::New => ArrivalRecord::NEW,
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The bridge's name for it.
    pub arrival: &'a str,
    /// The client's own name for the tool use.
    pub client_call: Option<&'a str>,
    /// The same, where the client means by another name another call, whatever it is like.
    pub own_call: Option<&'a str>,
    /// How long the client waits at most, where it may give up without a word.
    pub gives_up_within: Option<Duration>,
    /// What it would do.
    pub class: SideEffectClass,
    /// Whether equal ones are one effect.
    pub is_declared: bool,
    /// When.
    pub at: Timestamp,
}

/// Who waits for a call that this process has under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// It has it not.
    No,
    /// Somebody waits.
    Awaited,
    /// Nobody does any more.
    Left,
}

/// Whether a request of another session may be of the very client that asks now, which had another connection then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// It is of this session, or of a client that is known to be another one.
    No,
    /// It is of a client like this one, which is still there, or beside which this one was there already.
    Beside,
    /// It is of a client like this one that nothing but its connection was known of, and that had gone when this one came. Whether both say what
    /// they are; else they are only alike in saying nothing.
    Gone { is_told: bool },
}

/// An earlier request for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenArrival {
    /// The bridge's name for it.
    pub arrival: String,
    /// The client's own name for the tool use.
    pub client_call: Option<String>,
    /// Whether the client is known to have its answer.
    pub is_acknowledged: bool,
    /// Whether it is of the family that asks now, whoever had asked for the call first.
    pub is_family: bool,
    /// Whether it is of what the client calls one session, with whichever tool server.
    pub is_of_client: bool,
    /// Whether it may be of this client where nothing names the session that it is of.
    pub earlier: Earlier,
    /// When it came.
    pub arrived_at: Timestamp,
    /// When its answer was written to the client.
    pub answered_at: Option<Timestamp>,
}

/// A call with the same tool and arguments, somewhere in the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The call.
    pub call: CallId,
    /// When it was asked for first.
    pub asked_at: Timestamp,
    /// Whether it is of the family that asks now.
    pub is_family: bool,
    /// Whether it is of what the client calls one session, with whichever tool server.
    pub is_of_client: bool,
    /// Whether it goes to the same tool server, under the same name and as the same account.
    pub is_same_server: bool,
    /// Whether its family went on from it ([`is_left_behind`]): the same words mean another one then.
    pub is_left_behind: bool,
    /// Whether it has an effect, as it was judged then: what was read is nobody's answer to an effect that its tool has by now.
    pub has_effect: bool,
    /// Where it stands.
    pub status: CallStatus,
    /// Whether a person gave it up in doubt, so that nothing more will be known.
    pub is_given_up: bool,
    /// For one that failed, whether it may have had its effect.
    pub may_have_happened: bool,
    /// For one that succeeded, whether nobody knew until a person said so, or a probe did. In doubt it was anybody's call in the project who asked for
    /// it; so it is until one of them is told how the doubt ended.
    pub was_doubted: bool,
    /// Whether its tool asked for something when nobody was there any more.
    pub was_unanswered: bool,
    /// When this family was last told that the same call again returns what came of it, as far as this process knows.
    pub told_at: Option<Timestamp>,
    /// Whether this process has it under way.
    pub live: Live,
    /// Whether a person is asked about it.
    pub is_held: bool,
    /// Whether it was never sent, since a person who was asked about it ended its session instead.
    pub is_withdrawn: bool,
    /// Who asked for it, oldest first.
    pub arrivals: Vec<SeenArrival>,
}

/// What a family is owed of a call.
struct Owed {
    /// When it asked for it, or was told to ask again.
    since: Timestamp,
    /// When an answer to that was written, which it is not known to have.
    written_at: Option<Timestamp>,
}

/// What a family is owed of a call: what it asked for, or was told to ask for again, behind the last request whose answer it is known to have. An
/// answer to an earlier one, which its client may have given up without a word, pays for none of a later one.
fn owed(arrivals: &[SeenArrival], told_at: Option<Timestamp>) -> Option<Owed> {
    let own = || arrivals.iter().filter(|arrival| arrival.is_family);
    let had = own().filter(|arrival| arrival.is_acknowledged).map(|arrival| arrival.arrived_at).max();
    let asked = own().filter(|arrival| !arrival.is_acknowledged);
    let asked = asked.map(|arrival| Owed { since: arrival.arrived_at, written_at: arrival.answered_at });
    let told = told_at.map(|since| Owed { since, written_at: None });
    let behind = asked.chain(told).filter(|owed| had.is_none_or(|had| owed.since > had));
    behind.max_by_key(|owed| (owed.since, owed.written_at.is_none()))
}

/// Whether a session went on from a call: it has had the answer of another effect, which it asked for after the answer to this one had been written
/// to it. What had no answer, since its client was told to ask again, gave up or was cut, is owed whatever was asked for since; and of two that
/// were under way at one cut, neither takes the other's receipt away. `told_at`: when the session was last told to ask again. `heard_at`: when it
/// asked for the newest effect that was a call of its own, was sent, and whose answer its client has. `dropped_at`: when one ended that its client
/// gave up and was not told to ask for again, where what came of it grows stale (a command of a shell).
pub fn is_left_behind(
    arrivals: &[SeenArrival],
    told_at: Option<Timestamp>,
    heard_at: Option<Timestamp>,
    dropped_at: Option<Timestamp>,
) -> bool {
    let written = match owed(arrivals, told_at) {
        Some(owed) => owed.written_at,
        None => arrivals.iter().filter(|arrival| arrival.is_family).filter_map(|arrival| arrival.answered_at).max(),
    };
    written.or(dropped_at).zip(heard_at).is_some_and(|(ended, heard)| heard > ended)
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It is a call of its own.
    New,
    /// It is this call, which is under way: wait for it.
    Join(CallId, Rule),
    /// It is this call, which has to be decided now: by its policy, by a person's word, or by sending what was never sent.
    Decide(CallId, Rule),
    /// It is this call, and this is its answer.
    HandOut(CallId, Rule),
    /// It may be this call once more: a call of its own, which a person lets go out or not.
    Ask(CallId, Asks),
}

/// Why a person is asked about a call before it goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// It would be the earlier one if its tool server, or its account, were the same.
    Elsewhere,
    /// A person did not let the earlier one go out, and ended its session.
    Withdrawn,
    /// The session asked for the earlier one, which is another session's, and read that it failed: it may have had its effect.
    Failed,
    /// Nobody is known to have read the answer of the earlier one, and it is not known whether that one is meant: it is long ago, or of a client
    /// that did not say what it is.
    Unread,
}

/// What a request is. `seen` are the calls of the project with its tool and its arguments, in any order.
pub fn decide(asked: &Asked<'_>, seen: &[Seen]) -> Ruling {
    let ruling = among(asked, seen);
    if ruling != Ruling::New || asked.class == SideEffectClass::ReadOnly {
        return ruling;
    }
    let elsewhere: Vec<Seen> = seen.iter().filter(|seen| !seen.is_same_server).map(Seen::as_if_same_server).collect();
    match among(asked, &elsewhere) {
        Ruling::New => asked_about(asked, seen).unwrap_or(Ruling::New),
        Ruling::Join(call, _) | Ruling::Decide(call, _) | Ruling::HandOut(call, _) | Ruling::Ask(call, _) => {
            Ruling::Ask(call, Asks::Elsewhere)
        }
    }
}

/// What is not made once more without a person's word, with whichever server: what a person did not let go out, what happened and nobody is known
/// to have read, and a declared effect that failed, as whoever asks has heard, and may be there all the same. A later one that went out stands in
/// the place of an earlier one. Only what was not let go out, and so did nothing, is forgotten after a time.
fn asked_about(asked: &Asked<'_>, seen: &[Seen]) -> Option<Ruling> {
    let as_asked = |seen: &Seen| if seen.is_same_server { seen.clone() } else { seen.as_if_same_server() };
    // With whether it is of its own run.
    let seen: Vec<(bool, Seen)> = seen.iter().map(|seen| (seen.is_family, as_asked(seen))).collect();
    let of_project = asked.class != SideEffectClass::Local;
    let reached = || seen.iter().filter(move |(_, seen)| seen.is_family || of_project);
    let is_unread = |(is_own, seen): &&(bool, Seen)| {
        // One of its own run is the verdict's to find, where it is known by its content.
        let is_the_verdicts = *is_own && asked.is_declared;
        !is_the_verdicts && (seen.is_owed(asked) || seen.is_left(asked))
    };
    let unread = reached().filter(is_unread).map(|(_, seen)| seen).max_by(|a, b| a.place().cmp(&b.place()));
    let is_stood_for = |unread: &Seen| reached().any(|(_, other)| other.stands_for(unread, asked));
    if let Some(unread) = unread.filter(|unread| !is_stood_for(unread)) {
        return Some(Ruling::Ask(unread.call.clone(), Asks::Unread));
    }
    let last = reached().filter(|(_, seen)| seen.is_withdrawn || seen.went_out());
    let (is_own, last) = last.max_by(|(_, a), (_, b)| a.place().cmp(&b.place()))?;
    if last.is_withdrawn {
        return last.is_recent(asked).then(|| Ruling::Ask(last.call.clone(), Asks::Withdrawn));
    }
    // One of its own run is the verdict's to find. The same client heard of it in whichever session it was.
    let is_heard = !is_own && (last.is_known_to_family() || last.is_of_client);
    let is_failed = last.live == Live::No && last.status == CallStatus::FailedReported && last.may_have_happened;
    (asked.is_declared && is_heard && is_failed).then(|| Ruling::Ask(last.call.clone(), Asks::Failed))
}

/// What it is among the calls to its own tool server.
fn among(asked: &Asked<'_>, seen: &[Seen]) -> Ruling {
    // The newest first; of two of one instant, the one with the later id.
    let mut newest: Vec<&Seen> = seen.iter().collect();
    newest.sort_by(|a, b| b.place().cmp(&a.place()));
    // The very request of what a person did not let go out is told so; by another name of its client it is another one.
    let is_exact = |seen: &&&Seen| seen.is_exact(asked) && (!seen.is_withdrawn || seen.is_under(asked.arrival));
    if let Some(exact) = newest.iter().find(is_exact) {
        return exact.as_it_stands(Rule::Exact);
    }
    if asked.class == SideEffectClass::ReadOnly {
        return Ruling::New;
    }
    let of_project = asked.class != SideEffectClass::Local;
    newest.retain(|seen| seen.is_same_server && !seen.is_withdrawn && (seen.is_family || of_project));
    // What its session asked for stands before what is another's to be asked for again.
    for is_own in [true, false] {
        let of = |seen: &&&Seen| seen.is_known_to_family() == is_own;
        if let Some(open) = newest.iter().filter(of).find(|seen| seen.is_unsettled()) {
            return open.as_it_stands(Rule::Unsettled);
        }
        if let Some(owed) = newest.iter().filter(of).find(|seen| seen.is_owed(asked) && seen.is_recent(asked)) {
            return Ruling::HandOut(owed.call.clone(), Rule::Owed);
        }
    }
    if !asked.is_declared {
        // Its session asks again before it can have heard of the first one, or of the one that it was joined to: nothing tells whether it means two.
        let is_own = |seen: &&&Seen| seen.is_known_to_family() && !seen.is_meant_as_another(asked);
        if let Some(first) = newest.iter().filter(is_own).find(|seen| seen.live == Live::Awaited) {
            return Ruling::Join(first.call.clone(), Rule::Again);
        }
        // What a shell is told twice is mostly meant twice.
        let unheard = newest.iter().filter(is_own).find(|seen| of_project && seen.is_perhaps_unheard(asked));
        if let Some(unheard) = unheard {
            return Ruling::HandOut(unheard.call.clone(), Rule::Again);
        }
        // Whoever made one itself was there while the other one was under way, or was handed it before.
        let has_own = newest.iter().any(|seen| seen.is_family && seen.went_out());
        let is_handed_on = |seen: &&&Seen| seen.is_left(asked) && seen.is_of_one_kind() && seen.is_recent(asked);
        let left = newest.iter().find(is_handed_on).filter(|_| !has_own);
        return left.map_or(Ruling::New, |seen| Ruling::HandOut(seen.call.clone(), Rule::Owed));
    }
    if let Some(done) = newest.iter().find(|seen| seen.is_done() && seen.is_known_to_family()) {
        return Ruling::HandOut(done.call.clone(), Rule::Repeat);
    }
    match newest.iter().find(|seen| seen.live == Live::Awaited) {
        Some(twin) => Ruling::Join(twin.call.clone(), Rule::Twin),
        None => Ruling::New,
    }
}

impl Seen {
    /// As it would stand if its tool server were the one that is asked now: then the client's session would be one as well.
    fn as_if_same_server(&self) -> Self {
        let mut same = self.clone();
        (same.is_same_server, same.is_family) = (true, self.is_of_client);
        same.is_left_behind &= !self.is_of_client;
        for arrival in &mut same.arrivals {
            arrival.is_family = arrival.is_of_client;
        }
        same
    }

    /// The client names its calls so that another name is another call, and this one has none of that name.
    fn is_meant_as_another(&self, asked: &Asked<'_>) -> bool {
        let is_named = |arrival: &SeenArrival| arrival.client_call.as_deref() == asked.own_call;
        asked.own_call.is_some() && !self.arrivals.iter().any(is_named)
    }

    /// The bridge sends again what was not answered; a client's transport what was not acknowledged. An id that was, counts as none: scripts
    /// use theirs again.
    fn is_exact(&self, asked: &Asked<'_>) -> bool {
        let is_it = |arrival: &SeenArrival| {
            let is_posted_again = self.is_family && asked.client_call.is_some() && !arrival.is_acknowledged;
            arrival.arrival == asked.arrival || (is_posted_again && arrival.client_call.as_deref() == asked.client_call)
        };
        self.arrivals.iter().any(is_it)
    }

    /// Whether it was asked for under this name.
    fn is_under(&self, arrival: &str) -> bool {
        self.arrivals.iter().any(|one| one.arrival == arrival)
    }

    fn as_it_stands(&self, rule: Rule) -> Ruling {
        let call = self.call.clone();
        match (self.live, self.status) {
            (Live::Awaited | Live::Left, _) => Ruling::Join(call, rule),
            (Live::No, CallStatus::Unknown) if self.is_given_up => Ruling::HandOut(call, rule),
            (Live::No, CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown) => Ruling::Decide(call, rule),
            (
                Live::No,
                CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported | CallStatus::Cancelled,
            ) => Ruling::HandOut(call, rule),
        }
    }

    /// Whether its family asked for it, was told of it, or was handed the receipt of another one's: then it has heard of it, and asking again is a
    /// repeat.
    fn is_known_to_family(&self) -> bool {
        self.is_family || self.told_at.is_some() || self.arrivals.iter().any(|arrival| arrival.is_family)
    }

    /// It was sent and answered.
    fn went_out(&self) -> bool {
        match self.status {
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::FailedDefinite => self.has_effect,
            CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown | CallStatus::Cancelled => false,
        }
    }

    fn is_done(&self) -> bool {
        self.has_effect && self.live == Live::No && self.status == CallStatus::Succeeded
    }

    /// Nobody knows what came of it, or nobody waits for it. What a person is asked about before it is sent, with somebody waiting, is under way as
    /// every other call is: it is no doubt, and others may mean another one.
    fn is_unsettled(&self) -> bool {
        match (self.live, self.status) {
            (Live::Awaited, status) => {
                status == CallStatus::Unknown || (self.is_held && status != CallStatus::Prepared)
            }
            (Live::Left, _) | (Live::No, CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown) => true,
            (
                Live::No,
                CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported | CallStatus::Cancelled,
            ) => false,
        }
    }

    /// It happened, and nobody is known to have heard of it. Where equal calls are not one effect, only a family that asked for it means the same
    /// one, also where it was joined with the request of another, as long as it did not go on from it and does not call it another one; and what another
    /// session heard is not its own answer, nor is what the family heard before it asked once more, or was told to. One that was in doubt is anybody's
    /// until somebody has heard how that ended.
    fn is_owed(&self, asked: &Asked<'_>) -> bool {
        let is_anybodys = asked.is_declared || !self.is_known_to_family();
        let is_had = |arrival: &SeenArrival| arrival.is_acknowledged && (is_anybodys || arrival.is_family);
        let is_paid = self.arrivals.iter().any(is_had) && (is_anybodys || owed(&self.arrivals, self.told_at).is_none());
        let is_another = !asked.is_declared && self.is_meant_as_another(asked);
        self.happened() && !is_another && self.is_meant(asked) && !is_paid
    }

    /// It happened, and whoever asked for it has gone without an answer, as far as is known; and who asks now may be the same one, that nothing
    /// names. The first of them that has its answer is the one.
    fn is_left(&self, asked: &Asked<'_>) -> bool {
        let is_of_alike = |arrival: &&SeenArrival| arrival.earlier != Earlier::No;
        let is_gone = |arrival: &&SeenArrival| matches!(arrival.earlier, Earlier::Gone { .. });
        let had = self.arrivals.iter().filter(is_of_alike).filter(|arrival| arrival.is_acknowledged);
        let had = had.map(|arrival| arrival.arrived_at).max();
        let left = self.arrivals.iter().filter(is_gone).filter(|arrival| !arrival.is_acknowledged);
        let left = left.map(|arrival| arrival.arrived_at).max();
        let is_unread = left.is_some_and(|left| had.is_none_or(|had| left > had));
        let is_anybodys = !asked.is_declared && !self.is_known_to_family() && !self.is_meant_as_another(asked);
        // What was answered in its client's place is not what that one wanted.
        let is_anybodys = is_anybodys && !self.was_unanswered;
        is_unread && is_anybodys && self.happened() && self.live == Live::No
    }

    /// Its place among the calls of a project.
    fn place(&self) -> (Timestamp, &CallId) {
        (self.asked_at, &self.call)
    }

    /// Whether it went out behind one that nobody read, so that whoever asks now does not mean that one any more. Where equal calls may be two
    /// effects, another session's stands in the place of none that was its own.
    fn stands_for(&self, unread: &Self, asked: &Asked<'_>) -> bool {
        let is_anybodys = asked.is_declared || (unread.was_doubted && !unread.is_known_to_family());
        let is_its_own = is_anybodys || self.is_known_to_family() || self.is_of_alike();
        self.went_out() && is_its_own && self.place() > unread.place()
    }

    /// Whether a client that has gone, and that this one may be, asked for it.
    fn is_of_alike(&self) -> bool {
        self.arrivals.iter().any(|arrival| matches!(arrival.earlier, Earlier::Gone { .. }))
    }

    /// Whether that one and this one say what they are.
    fn is_of_one_kind(&self) -> bool {
        self.arrivals.iter().any(|arrival| arrival.earlier == Earlier::Gone { is_told: true })
    }

    /// Not so long ago that nobody means it any more, as far as the clock is right.
    fn is_recent(&self, asked: &Asked<'_>) -> bool {
        asked.at.since(self.asked_at) <= OWED_FOR
    }

    /// It happened, and its answer was written so late that whoever asked may have given up before, and asks again.
    fn is_perhaps_unheard(&self, asked: &Asked<'_>) -> bool {
        let is_heard =
            |arrival: &SeenArrival| arrival.is_family && arrival.is_acknowledged && !arrival.is_perhaps_unheard(asked);
        self.happened() && self.is_meant(asked) && self.is_recent(asked) && !self.arrivals.iter().any(is_heard)
    }

    fn happened(&self) -> bool {
        match self.status {
            CallStatus::Succeeded => self.has_effect,
            CallStatus::FailedReported => self.has_effect && self.may_have_happened,
            CallStatus::Prepared
            | CallStatus::Running
            | CallStatus::Unknown
            | CallStatus::FailedDefinite
            | CallStatus::Cancelled => false,
        }
    }

    fn is_meant(&self, asked: &Asked<'_>) -> bool {
        let is_own = self.is_known_to_family();
        let is_meant = asked.is_declared || (is_own && !self.is_left_behind) || (!is_own && self.was_doubted);
        is_meant && self.live == Live::No
    }
}

impl SeenArrival {
    /// It was answered after a long time, and not long ago by what its client waits for an answer.
    fn is_perhaps_unheard(&self, asked: &Asked<'_>) -> bool {
        let (Some(patience), Some(answered)) = (asked.gives_up_within, self.answered_at) else { return false };
        self.is_family && answered.since(self.arrived_at) >= SLOW && asked.at.since(answered) <= patience
    }
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
