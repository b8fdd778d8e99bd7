//! What a tool server says of something that it was sent, and not of what: `{"id": null, "error": …}` and the like. Runner and broker hear it alike.
//!
//! Servers say so of notifications as well, most often after the next request was written. Whoever takes it for the answer to that one puts a call
//! in doubt, and ends its server, which has not read it or is at work on it. Whoever never does keeps a call for ever that the server refused.
//!
//! Invariant: each is taken for one message. It is taken for something that wants no answer, as long as there is such a one that nothing proves to
//! have been accepted; else for a request, which is found by what is left over once the others are answered, and once the server answered what it was
//! asked behind all of them. A server that does one thing after the other has answered them by then.
//! Proved by: the search in this file's tests, over all that a server that does one thing after the other, or several at once, may do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ua_core::Timestamp;

/// How long the answers to the others may be on their way.
const QUIET: Duration = Duration::from_secs(15);

/// How long behind the answer to a later request a server that does several things at once may still complain of a notification.
const LATE: Duration = Duration::from_secs(1);

/// So many messages are the greeting: a request, and what says that its answer was read.
const GREETING: u64 = 2;

/// How long a call waits on that may have been refused, or that its server may be at work on: nothing tells. To take it for refused ends its server.
const UNTOLD: Duration = Duration::from_hours(1);

/// The number of the first request of our own that only asks whether a server reads on: none of another request, and one that a double carries.
const FIRST_PING: u64 = 1 << 52;

/// What a process was sent and has not answered, and what it said of it without a name.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    /// How many messages were sent.
    count: u64,
    /// The highest number of a request.
    highest: u64,
    /// Requests, by their number: in which place each was sent, and when.
    asked: BTreeMap<u64, (u64, Timestamp)>,
    /// What wants no answer, or has nobody any more who waits for one, by its place; with its number, if it has one. What was accepted is not among
    /// them.
    told: BTreeMap<u64, Option<u64>>,
    /// When something was told last that wants no answer.
    told_at: Option<Timestamp>,
    /// What is said, and may mean a request.
    nameless: Vec<Nameless>,
    /// The last question whether it reads on: its number, and when it was asked.
    ping: Option<(u64, Timestamp)>,
    pings: u64,
    /// When that was asked which was asked last of what it answered.
    reads_on_at: Option<Timestamp>,
}

/// Something that was said without a name.
#[derive(Debug, Clone)]
struct Nameless {
    /// The requests that waited then.
    may_mean: BTreeSet<u64>,
    /// When it was said.
    at: Timestamp,
    /// From when on it is taken for one of these.
    counts_from: Timestamp,
    why: String,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// These have been refused, each for this reason.
    Refused(Vec<(u64, String)>),
    /// It is asked whether it reads on, under this number.
    Ping(u64),
}

impl Sent {
    /// A message is sent: a request of this number, or what wants no answer.
    pub fn send(&mut self, request: Option<u64>, now: Timestamp) {
        self.count += 1;
        if let Some(number) = request {
            if !Self::is_ping(number) {
                self.highest = self.highest.max(number);
            }
            self.asked.insert(number, (self.count, now));
            return;
        }
        self.told.insert(self.count, None);
        // Behind the greeting it lists its tools, which takes longer than to complain.
        if self.count > GREETING {
            self.told_at = Some(now);
        }
    }

    /// A request was answered under its name. What was told before it was read, and accepted.
    pub fn answered(&mut self, number: u64) {
        self.ping.take_if(|(ping, _)| *ping == number);
        let asked = self.asked.remove(&number);
        self.reads_on_at = self.reads_on_at.max(asked.map(|(_, at)| at));
        let left = || self.told.iter().find_map(|(place, left)| (*left == Some(number)).then_some(*place));
        let Some(place) = asked.map(|(place, _)| place).or_else(left) else { return };
        self.told.retain(|told, left| *told > place || left.is_some_and(|left| left != number));
        self.forget(number);
    }

    /// Nobody waits any more for the answer to a request, which may come all the same.
    pub fn left(&mut self, number: u64) {
        let Some((place, _)) = self.asked.remove(&number) else { return };
        self.told.insert(place, Some(number));
        for one in &mut self.nameless {
            if one.may_mean.remove(&number) {
                one.counts_from = one.at.plus(UNTOLD);
            }
        }
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        self.nameless.retain_mut(|one| {
            one.may_mean.remove(&number);
            !one.may_mean.is_empty()
        });
    }

    /// It said something without a name.
    pub fn nameless(&mut self, why: String, now: Timestamp) {
        if let Some((_, asked_at)) = self.ping.take_if(|(ping, _)| self.asked.contains_key(ping)) {
            // Perhaps of that: whoever refuses even that reads on.
            self.reads_on_at = Some(asked_at);
        }
        let may_mean: BTreeSet<u64> = self.asked.keys().copied().collect();
        let counts_from = match self.told.pop_first() {
            Some(_) => now.plus(UNTOLD),
            None if may_mean.len() == 1 && self.told_at.is_none_or(|at| now.since(at) > LATE) => {
                self.reads_on_at = Some(now);
                now
            }
            None => now.plus(QUIET),
        };
        if !may_mean.is_empty() {
            self.nameless.push(Nameless { may_mean, at: now, counts_from, why });
        }
    }

    /// It answered what it was never asked. That may be meant for a request that waits, whose own answer may just as well come behind it: so none is
    /// taken for answered by it at once, however few wait. It says nothing of what wants no answer, which has no number.
    pub fn misnamed(&mut self, why: String, now: Timestamp) {
        let may_mean: BTreeSet<u64> = self.asked.keys().copied().filter(|number| !Self::is_ping(*number)).collect();
        if !may_mean.is_empty() {
            self.nameless.push(Nameless { may_mean, at: now, counts_from: now.plus(QUIET), why });
        }
    }

    /// Whether a request of this number was ever sent. What answers another one may be the answer to one that waits ([`misnamed`](Self::misnamed)).
    pub const fn has_asked(&self, number: u64) -> bool {
        number <= self.highest || Self::is_ping(number)
    }

    /// Whether a number is that of a question whether it reads on, whose answer nobody waits for.
    pub(crate) const fn is_ping(number: u64) -> bool {
        number >= FIRST_PING
    }

    /// What is to be done by now.
    pub fn due(&mut self, now: Timestamp) -> Option<Due> {
        // So many as were said mean so many requests: where no more are left for them, it is these.
        let counts = |one: &&Nameless| one.counts_from <= now;
        let mut of_them = BTreeSet::new();
        let mut whys = Vec::new();
        let mut since = now;
        let is_found = self.nameless.iter().filter(counts).any(|one| {
            of_them.extend(&one.may_mean);
            whys.push(one.why.clone());
            since = if whys.len() == 1 { one.counts_from } else { since.max(one.counts_from) };
            of_them.len() <= whys.len()
        });
        if !is_found {
            return None;
        }
        if self.reads_on_at.is_none_or(|at| at < since) {
            if let Some((ping, asked_at)) = self.ping.filter(|(_, asked_at)| *asked_at >= since) {
                if now.since(asked_at) < UNTOLD {
                    return None;
                }
                // It answers none.
                (self.ping, self.reads_on_at) = (None, Some(asked_at));
                self.asked.remove(&ping);
                self.forget(ping);
                return self.due(now);
            }
            let number = FIRST_PING + self.pings;
            self.pings += 1;
            self.ping = Some((number, now));
            return Some(Due::Ping(number));
        }
        let refused: Vec<(u64, String)> = of_them.into_iter().zip(whys).collect();
        for (number, _) in &refused {
            self.asked.remove(number);
            self.forget(*number);
        }
        Some(Due::Refused(refused))
    }

    /// How long it is until something is due by time alone.
    pub fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let asked_at = self.ping.filter(|_| !self.nameless.is_empty()).map(|(_, at)| at.plus(UNTOLD));
        let ahead = self.nameless.iter().map(|one| one.counts_from).chain(asked_at).filter(|at| *at > now);
        ahead.min().map(|at| at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// What a server was sent.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Message {
        Told,
        Asked(u64),
    }

    /// A line of a server.
    #[derive(Debug, Clone, Copy)]
    enum Line {
        Nameless,
        Answer(u64),
    }

    /// A server, what it was sent, and what is made of what it says.
    #[derive(Debug, Clone, Default)]
    struct Play {
        does_one_thing: bool,
        sent: Sent,
        unread: VecDeque<Message>,
        at_work: Vec<u64>,
        unheard: VecDeque<Line>,
        asked: u64,
        told: u64,
        /// What it refused.
        refused: BTreeSet<u64>,
        /// What was taken for refused.
        taken: BTreeSet<u64>,
        seconds: i64,
    }

    impl Play {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.seconds * 1000)
        }

        fn send(&mut self, message: Message) {
            let number = if let Message::Asked(number) = message { Some(number) } else { None };
            self.sent.send(number, self.now());
            self.unread.push_back(message);
        }

        fn may_read(&self) -> bool {
            !(self.unread.is_empty() || self.does_one_thing && !self.at_work.is_empty())
        }

        fn read(&mut self, complains: bool) {
            match self.unread.pop_front().unwrap() {
                Message::Asked(ping) if ping >= FIRST_PING => self.unheard.push_back(Line::Answer(ping)),
                message if complains => {
                    self.unheard.push_back(Line::Nameless);
                    if let Message::Asked(number) = message {
                        self.refused.insert(number);
                    }
                }
                Message::Asked(number) => self.at_work.push(number),
                Message::Told => {}
            }
        }

        fn answer(&mut self, at: usize) {
            let number = self.at_work.remove(at);
            self.unheard.push_back(Line::Answer(number));
        }

        fn hear(&mut self) {
            match self.unheard.pop_front().unwrap() {
                Line::Nameless => self.sent.nameless("no".to_owned(), self.now()),
                Line::Answer(number) => self.sent.answered(number),
            }
            self.decide();
        }

        fn decide(&mut self) {
            while let Some(due) = self.sent.due(self.now()) {
                match due {
                    Due::Ping(number) => self.send(Message::Asked(number)),
                    Due::Refused(refused) => self.taken.extend(refused.into_iter().map(|(number, _)| number)),
                }
            }
        }

        /// Time passes, and it reads on as far as it can.
        fn pass(&mut self, seconds: i64) {
            self.seconds += seconds;
            self.decide();
            loop {
                if self.may_read() {
                    self.read(false);
                } else if !self.unheard.is_empty() {
                    self.hear();
                } else {
                    return;
                }
            }
        }

        /// What was taken for refused was.
        fn check(&self, trace: &[String]) {
            assert!(self.taken.is_subset(&self.refused), "{trace:?}: {self:#?}");
        }

        /// Nobody waits for ever.
        fn check_end(mut self, trace: &[String]) {
            loop {
                self.pass(20);
                if self.at_work.is_empty() {
                    break;
                }
                self.answer(0);
            }
            self.check(trace);
            self.pass(4000);
            self.pass(4000);
            self.check(trace);
            assert_eq!(self.taken, self.refused, "{trace:?}: {self:#?}");
            assert!(self.sent.nameless.is_empty(), "{trace:?}: {self:#?}");
        }

        fn search(&self, steps: usize, trace: &mut Vec<String>, seen: &mut u64) {
            *seen += 1;
            let mut later = self.clone();
            later.pass(20);
            later.check(trace);
            self.clone().check_end(trace);
            if steps == 0 {
                return;
            }
            let mut next = |what: &str, step: &dyn Fn(&mut Self)| {
                let mut play = self.clone();
                step(&mut play);
                trace.push(what.to_owned());
                play.check(trace);
                play.search(steps - 1, trace, seen);
                trace.pop();
            };
            if self.told < 2 {
                next("tell", &|play| {
                    play.told += 1;
                    play.send(Message::Told);
                });
            }
            if self.asked < 3 {
                next("ask", &|play| {
                    play.asked += 1;
                    play.send(Message::Asked(play.asked));
                });
            }
            if self.may_read() {
                next("takes", &|play| play.read(false));
                next("complains", &|play| play.read(true));
            }
            for at in 0..self.at_work.len() {
                next("answers", &|play| play.answer(at));
            }
            if !self.unheard.is_empty() {
                next("is heard", &|play| play.hear());
            }
        }
    }

    /// Every play of two notifications and three requests: what is taken for refused was refused, and what was refused is found.
    #[test]
    fn what_is_said_without_a_name_is_of_what_it_was_said_of() {
        for does_one_thing in [true, false] {
            let play = Play { does_one_thing, ..Play::default() };
            let mut seen = 0;
            play.search(8, &mut Vec::new(), &mut seen);
            assert!(seen > 10_000, "{seen}");
        }
    }

    /// A call that is alone is not made to wait for what nobody else can have been meant by.
    #[test]
    fn what_can_mean_one_request_alone_is_its_answer_at_once() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut sent = Sent::default();
        sent.send(Some(1), at(0));
        sent.answered(1);
        sent.send(None, at(0));
        sent.send(Some(2), at(0));
        sent.answered(2);
        sent.send(Some(2), at(0));
        sent.nameless("what?".to_owned(), at(0));
        assert_eq!(sent.due(at(0)), Some(Due::Refused(vec![(2, "what?".to_owned())])));
        // Right behind a notification it may come late of that.
        sent.send(None, at(20));
        sent.send(Some(3), at(20));
        sent.answered(3);
        sent.send(Some(4), at(20));
        sent.nameless("what?".to_owned(), at(20));
        assert_eq!((sent.due(at(20)), sent.due_in(at(20))), (None, Some(QUIET)));
        // Whatever it says meanwhile.
        sent.send(Some(5), at(30));
        sent.answered(5);
        assert_eq!((sent.due(at(34)), sent.due_in(at(34))), (None, Some(Duration::from_secs(1))));
        let Some(Due::Ping(ping)) = sent.due(at(35)) else { panic!("{sent:?}") };
        sent.send(Some(ping), at(35));
        let waits = Some(Duration::from_secs(35 + 3600 - 3000));
        assert_eq!((sent.due(at(3000)), sent.due_in(at(3000))), (None, waits), "it is at work");
        let refused = Some(Due::Refused(vec![(4, "what?".to_owned())]));
        assert_eq!(sent.clone().due(at(35 + 3600)), refused, "it answers none of these");
        sent.answered(ping);
        assert_eq!(sent.due(at(3000)), refused);
    }

    /// An answer under a number that nobody gave takes no call's own answer away, which may come behind it; and a call that has none is not kept.
    #[test]
    fn an_answer_to_what_was_never_asked_costs_no_call_its_own() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut sent = Sent::default();
        sent.misnamed("99?".to_owned(), at(0));
        assert_eq!((sent.due(at(90)), sent.due_in(at(0))), (None, None), "nobody waits");
        sent.send(Some(1), at(100));
        sent.misnamed("99?".to_owned(), at(100));
        assert_eq!((sent.due(at(100)), sent.due_in(at(100))), (None, Some(QUIET)));
        let mut answered = sent.clone();
        answered.answered(1);
        assert_eq!((answered.due(at(200)), answered.due_in(at(100))), (None, None));
        let Some(Due::Ping(ping)) = sent.due(at(115)) else { panic!("{sent:?}") };
        sent.send(Some(ping), at(115));
        sent.answered(ping);
        assert_eq!(sent.due(at(115)), Some(Due::Refused(vec![(1, "99?".to_owned())])));
    }

    /// What nobody waits for any more may have been meant.
    #[test]
    fn what_is_said_of_a_request_that_was_left_costs_no_other_its_answer() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        for is_said_before in [true, false] {
            let mut sent = Sent::default();
            sent.send(Some(1), at(0));
            sent.send(Some(2), at(0));
            if is_said_before {
                sent.nameless("what?".to_owned(), at(1));
                sent.left(1);
            } else {
                sent.left(1);
                sent.nameless("what?".to_owned(), at(1));
            }
            assert_eq!((sent.due(at(3000)), sent.due_in(at(1))), (None, Some(UNTOLD)));
            sent.answered(2);
            assert_eq!((sent.due(at(9000)), sent.due_in(at(1))), (None, None));
        }
    }
}
