//! Requests that nothing names but what was posted: over HTTP, where what sends a request may send it again by itself.
//!
//! A connection that breaks before an answer was read has the very same request sent once more: by the client, by the library below it, by a
//! proxy. To the one who answers it looks like another request. A bridge names each line that it carries; here nobody does. So a request is
//! known by what it is: whose session it came in, its id, and a digest of what it says. From these its name is *made*, so that the second one
//! of a kind has the name of the first one, also at the next broker, which finds it in the store. Nothing has to remember it, and nothing
//! can forget it.
//!
//! Clients use ids again, since in the newer era nothing forbids it, and programs begin to count anew. A request is therefore another one of the
//! same words ([`Earlier::is_the_same`]) where the first one's answer was written to its end some time ago, or where the first one is known to
//! have had no effect. Then it is the second of its kind, and is named so. ADR 42 says why.
//!
//! Proved by: this file's tests, `tests/it/posted.rs`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use ua_core::{CanonicalJson, SideEffectClass, Timestamp, keyed_digest};
use ua_store::{ArrivalRecord, ArrivalsOf, GatewayStore as _, LedgerStore as _, rules};

use crate::broker::Broken;
use crate::connection::Connection;
use crate::open_requests::Asker;

/// How long after its answer was written to the end a request of the same words is that request: as long as those wait that send again what they
/// have no answer to.
pub(crate) const AGAIN_WITHIN: Duration = Duration::from_mins(2);
/// Of how many kinds of requests a session knows that they came.
const MOST_KNOWN: usize = 10_000;
/// How many digits of the digest are in a name.
const DIGITS: usize = 40;
/// What stands behind what only one sending of a request is called.
const SENDING: char = '_';

/// What a request is known by: all that are posted with the same id and the same words in one session are of this kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Posted(String);

impl Posted {
    /// That of a request in the session of this connection. Since it may say secrets, and stands in the store, it is made with the gateway's key.
    pub(crate) fn of(key: &str, connection: &str, id: &Value, params: &Value) -> Self {
        let said = CanonicalJson::of(params, &[]).map_or_else(|_| params.to_string(), |said| said.as_str().to_owned());
        let mut digits = keyed_digest(key, &json!(["posted", connection, id, said]).to_string()).to_hex();
        digits.truncate(DIGITS);
        Self(digits)
    }

    /// The name of the one that came as the `nth` of them, from 0.
    pub(crate) fn name(&self, nth: u32) -> String {
        format!("{}-{nth}", self.0)
    }

    /// A name for one sending of it, which sorts as `own` does, and that is nobody else's.
    pub(crate) fn sending(&self, own: &str) -> String {
        format!("{own}{SENDING}{}", self.0)
    }

    /// What was sent under such a name.
    pub(crate) fn of_sending(name: &str) -> Option<Self> {
        let (_, digits) = name.split_once(SENDING)?;
        let is_one = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then(|| Self(digits.to_owned()))
    }
}

/// Whether one of the same words may have come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// None has.
    Never,
    /// To an earlier broker, if at all: what it heard of it is stored.
    Earlier,
    /// To this one: what is known of it may wait to be stored.
    Here,
}

/// The kinds of requests that came in a session, as far as this broker has seen.
#[derive(Debug)]
pub(crate) struct Kinds {
    seen: HashSet<Posted>,
    /// Of those that are not among them.
    otherwise: Before,
}

impl Kinds {
    /// Of a session that begins now, or that an earlier broker had.
    pub(crate) fn of_session(is_new: bool) -> Self {
        Self { seen: HashSet::new(), otherwise: if is_new { Before::Never } else { Before::Earlier } }
    }

    /// Notes that one comes.
    pub(crate) fn comes(&mut self, posted: &Posted) -> Before {
        if self.seen.contains(posted) {
            return Before::Here;
        }
        if self.seen.len() >= MOST_KNOWN {
            self.seen.clear();
            // From now on each may be one of those.
            self.otherwise = Before::Here;
        }
        self.seen.insert(posted.clone());
        self.otherwise
    }
}

/// How a request came, and so by what it is known if it comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// Under a name that its sender gives it whenever it sends it. `is_first`: for the first time.
    Named { is_first: bool },
    /// Under none. `written`: how many answers had been written to its client when it came.
    Posted { posted: Posted, before: Before, written: u64 },
}

impl Came {
    /// Whether it may have come before, so that nobody says of it that nothing was sent.
    pub(crate) fn may_be_known(&self) -> bool {
        match self {
            Self::Named { is_first } => !is_first,
            Self::Posted { before, .. } => *before != Before::Never,
        }
    }
}

/// The request that this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The name under which it is stored.
    pub(crate) name: String,
    /// Nobody sent it before under it.
    pub(crate) is_first: bool,
    /// Its answer was written to its client before.
    pub(crate) was_answered: bool,
}

impl Arrived {
    fn first(name: String) -> Self {
        Self { name, is_first: true, was_answered: false }
    }
}

/// The newest request of some words, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Earlier {
    /// When an answer of its call was first written to its session since.
    answered_at: Option<Timestamp>,
    /// Whether its call had an effect, or may still have it.
    may_have_happened: bool,
}

impl Earlier {
    /// Whether a request with its id and its words is that request, sent again: as long as its answer was not written to the end, and some time
    /// behind that. Behind an answer that says that nothing happened it is another one, since nothing can be done twice.
    fn is_the_same(self, now: Timestamp, within: Duration) -> bool {
        let Some(answered_at) = self.answered_at else { return true };
        self.may_have_happened && now.since(answered_at) <= within
    }
}

impl Connection {
    /// Which request this is, of those that the store knows. In a project this is asked for one after the other. A read is always another one: it
    /// is made again.
    pub(crate) async fn arrived(&self, asker: &Asker, class: SideEffectClass) -> Result<Arrived, Broken> {
        let (posted, before, written) = match &asker.came {
            Came::Named { is_first } => {
                return Ok(Arrived { is_first: *is_first, ..Arrived::first(asker.name.clone()) });
            }
            Came::Posted { .. } if class == SideEffectClass::ReadOnly => return Ok(Arrived::first(asker.name.clone())),
            Came::Posted { posted, before, written } => (posted, *before, *written),
        };
        match before {
            Before::Never => return Ok(Arrived::first(posted.name(0))),
            Before::Earlier => {}
            Before::Here => self.broker.flush(&self.project).await?,
        }
        let nth = match self.newest(posted).await? {
            None => 0,
            Some((nth, arrival)) => {
                let earlier = self.earlier(&arrival).await?;
                if earlier.is_the_same(self.broker.env.now(), self.broker.again_within()) {
                    let was_answered = earlier.answered_at.is_some();
                    return Ok(Arrived { name: arrival.arrival_id, is_first: false, was_answered });
                }
                nth + 1
            }
        };
        // It is another one, so its client goes on, and has what was written to it when it came.
        self.acknowledge_until(written).await;
        Ok(Arrived::first(posted.name(nth)))
    }

    /// The newest of the requests of these words, and the how many-th it is.
    pub(crate) async fn newest(&self, posted: &Posted) -> Result<Option<(u32, ArrivalRecord)>, Broken> {
        let (mut last, mut newest) = (Last::default(), None);
        while let Some(nth) = last.wanted() {
            let of = ArrivalsOf::One(posted.name(nth));
            let found = self.broker.store.arrivals_of(of).await.map_err(Broken::at("look for the same request"))?.pop();
            last.saw(nth, found.is_some());
            newest = found.map(|arrival| (nth, arrival)).or(newest);
        }
        Ok(newest)
    }

    async fn earlier(&self, arrival: &ArrivalRecord) -> Result<Earlier, Broken> {
        let store = &self.broker.store;
        let of_call = store.arrivals_of(ArrivalsOf::Call(arrival.call_id.clone())).await;
        let of_call = of_call.map_err(Broken::at("read who asked for the call"))?;
        // The same session may have had the answer by asking in another way: by coming back with what the tool asked for, for one.
        let is_since = |one: &&ArrivalRecord| one.run_id == arrival.run_id && one.arrived_at >= arrival.arrived_at;
        let answered_at = of_call.iter().filter(is_since).filter_map(|one| one.answered_at).min();
        let call = store.call(&arrival.call_id).await.map_err(Broken::at("read the call"))?;
        let may_have_happened = rules::may_have_happened(&call) || call.deduplicated_from.is_some();
        Ok(Earlier { answered_at: arrival.answered_at.or(answered_at), may_have_happened })
    }
}

/// Finds the last of those that there are, where there are all up to some number: by looking at about twice as many as that has binary digits.
#[derive(Debug, Default)]
struct Last {
    /// How many are known to be there.
    there: u32,
    /// The first that is known not to be.
    end: Option<u32>,
}

impl Last {
    /// The number to look at next; `None` when the last one was seen, or there is none.
    fn wanted(&self) -> Option<u32> {
        match self.end {
            None => Some(self.there.saturating_mul(2)),
            Some(end) => (self.there < end).then(|| self.there.midpoint(end)),
        }
    }

    fn saw(&mut self, nth: u32, is_there: bool) {
        if is_there {
            self.there = nth + 1;
        } else {
            self.end = Some(nth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_whose_it_is_its_id_and_its_words() {
        let of = |key: &str, connection: &str, id: Value, params: Value| Posted::of(key, connection, &id, &params);
        let one = || of("k", "c", json!(1), json!({"name": "a", "arguments": {"x": 1, "y": [2]}}));
        assert_eq!(one(), one());
        assert_eq!(one(), of("k", "c", json!(1), json!({"arguments": {"y": [2], "x": 1}, "name": "a"})));
        let others = [
            of("l", "c", json!(1), json!({"name": "a", "arguments": {"x": 1, "y": [2]}})),
            of("k", "d", json!(1), json!({"name": "a", "arguments": {"x": 1, "y": [2]}})),
            of("k", "c", json!("1"), json!({"name": "a", "arguments": {"x": 1, "y": [2]}})),
            of("k", "c", json!(1), json!({"name": "a", "arguments": {"x": 1, "y": [2]}, "requestState": "s"})),
            of("k", "c", json!(1), json!({"name": "a", "arguments": {"x": "1", "y": [2]}})),
        ];
        let all: HashSet<Posted> = others.into_iter().chain([one()]).collect();
        assert_eq!(all.len(), 6);
        let sending = one().sending("0199-7");
        assert_eq!(Posted::of_sending(&sending), Some(one()));
        assert_eq!(Posted::of_sending(&one().name(0)), None);
        assert_eq!(Posted::of_sending("0199_nobody"), None);
    }

    #[test]
    fn a_session_knows_what_came_or_that_it_may_have() {
        let posted = |id: usize| Posted::of("k", "c", &json!(id), &json!({}));
        for (is_new, otherwise) in [(true, Before::Never), (false, Before::Earlier)] {
            let mut kinds = Kinds::of_session(is_new);
            for id in 0..MOST_KNOWN {
                assert_eq!(kinds.comes(&posted(id)), otherwise);
            }
            assert_eq!(kinds.comes(&posted(0)), Before::Here);
            assert_eq!(kinds.comes(&posted(MOST_KNOWN)), Before::Here, "they are too many to tell");
            assert_eq!(kinds.comes(&posted(0)), Before::Here);
        }
    }

    /// All that may be known of an earlier one: when a request of the same words is that one.
    #[test]
    fn a_request_is_the_same_until_its_answer_was_written_and_some_time_longer() {
        let (now, within) = (Timestamp::from_millis(1_000_000), Duration::from_millis(100));
        for (answered, may_have_happened, is_the_same) in [
            (None::<i64>, true, true),
            (None, false, true),
            (Some(0), true, true),
            (Some(100), true, true),
            (Some(101), true, false),
            (Some(0), false, false),
            (Some(101), false, false),
        ] {
            let answered_at = answered.map(|ago| Timestamp::from_millis(now.as_millis() - ago));
            let earlier = Earlier { answered_at, may_have_happened };
            assert_eq!(earlier.is_the_same(now, within), is_the_same, "{earlier:?}");
        }
    }

    #[test]
    fn the_last_one_is_found_with_few_looks() {
        for count in (0..70_u32).chain([1_000, 65_535, 65_536]) {
            let (mut last, mut looks, mut newest) = (Last::default(), 0, None);
            while let Some(nth) = last.wanted() {
                looks += 1;
                last.saw(nth, nth < count);
                newest = if nth < count { Some(nth) } else { newest };
            }
            assert_eq!(newest, count.checked_sub(1), "{count}");
            assert!(looks <= 2 + 2 * (32 - count.leading_zeros()), "{count}: {looks}");
        }
    }
}
