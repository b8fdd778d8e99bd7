//! How often a call left for its server, where to, and when last, in words.

use ua_core::{CallPolicy, Destination};
use ua_store::{AttemptRecord, rules::made_by};

use crate::rules::is_a_send;

/// How often a call left for its server, and when last: a person who looks for its effect has to know whether to look for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sends<'a> {
    attempts: &'a [AttemptRecord],
}

impl<'a> Sends<'a> {
    /// Of all attempts of a call, oldest first. One that never left us is none, nor is what `effects.log` knows more of one that did, nor what it knows
    /// of another call, which went out under another key.
    pub(crate) fn of(attempts: &'a [AttemptRecord]) -> Self {
        Self { attempts }
    }

    fn sent(self) -> impl DoubleEndedIterator<Item = &'a AttemptRecord> {
        self.attempts.iter().filter(|attempt| is_a_send(attempt) && made_by(attempt).is_none())
    }

    /// All of them, sent or not.
    pub(crate) fn attempts(self) -> &'a [AttemptRecord] {
        self.attempts
    }

    /// The newest attempt, if possible one that left us.
    pub(crate) fn last(self) -> Option<&'a AttemptRecord> {
        self.sent().next_back().or(self.attempts.last())
    }

    /// A sentence with a space before it; empty for a call that was sent once, which the text says anyway.
    pub(crate) fn in_words(self, policy: &CallPolicy) -> String {
        let count = self.sent().count();
        let Some(last) = self.last().filter(|_| count > 1) else { return String::new() };
        let key = if policy.key_channel.is_some() { ", each time under the same idempotency key" } else { "" };
        let (number, at) = (last.attempt, last.started_at);
        if let Some(places) = self.places() {
            return format!(
                " It was sent {count} times{key}, and not to one place or not as one account ({places}), the last time at {at} (attempt {number}): \
                 look at each of them."
            );
        }
        // What its tool did with it, nobody here knows: it may have died before it began, or have sent none of them on.
        format!(" Its tool may have got it {count} times{key}, the last time at {at} (attempt {number}).")
    }

    /// Which attempts went where, if not all went to one place. One of an earlier version, which does not say, counts for the place before it.
    fn places(self) -> Option<String> {
        let mut places: Vec<(&Destination, Vec<u32>)> = Vec::new();
        let mut of = 0;
        for attempt in self.sent() {
            if let Some(place) = &attempt.destination {
                of = places.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
                    places.push((place, Vec::new()));
                    places.len() - 1
                });
            }
            if let Some((_, numbers)) = places.get_mut(of) {
                numbers.push(attempt.attempt);
            }
        }
        let ((first, _), more) = places.split_first()?;
        if more.is_empty() {
            return None;
        }
        let words = places.iter().map(|(place, numbers)| {
            let numbers_in_words: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let attempts = if numbers.len() == 1 { "attempt" } else { "attempts" };
            let changed =
                if place == first { String::new() } else { format!(", {}", first.changes_in_words(Some(place))) };
            format!("{attempts} {}{changed}", numbers_in_words.join(", "))
        });
        Some(words.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use ua_core::KeyChannel;
    use ua_store::conformance::samples;

    use super::*;

    fn attempt(number: u32, outcome: &str) -> AttemptRecord {
        AttemptRecord {
            call_id: samples::call_id("call_1"),
            attempt: number,
            epoch: 1,
            server_generation: None,
            destination: None,
            started_at: samples::at(10 * i64::from(number)),
            ended_at: Some(samples::at(99)),
            outcome: Some(outcome.to_owned()),
            detail: None,
            handle: None,
        }
    }

    #[test]
    fn a_question_says_how_often_a_call_was_sent_and_when_last() {
        let words = |attempts: &[AttemptRecord], key_channel| {
            Sends::of(attempts).in_words(&CallPolicy { key_channel, ..CallPolicy::unclassified() })
        };
        let attempts = [attempt(1, "lost"), attempt(2, "lost"), attempt(3, "lost"), attempt(4, "not_sent")];
        let keyed = " Its tool may have got it 3 times, each time under the same idempotency key, the last time at ";
        let third = samples::at(30);
        assert_eq!(words(&attempts, Some(KeyChannel::Meta)), format!("{keyed}{third} (attempt 3)."));
        let second = samples::at(20);
        let twice = format!(" Its tool may have got it 2 times, the last time at {second} (attempt 2).");
        assert_eq!(words(&attempts[..2], None), twice);
        let learnt = "effects.log knows of it, and the database did not: succeeded";
        let beside =
            |detail: String| [attempt(1, "lost"), AttemptRecord { detail: Some(detail), ..attempt(2, "lost") }];
        assert_eq!(words(&beside(learnt.to_owned()), None), twice, "a send that the database lost");
        let of_the_first = beside(format!("{learnt}, of attempt 1"));
        let of_another = beside(format!("{learnt}, as call call_9 of run run_9"));
        let once_sent = [attempt(1, "lost"), attempt(2, "not_sent")];
        for once in [&once_sent[..], &attempts[..1], &of_the_first, &of_another, &[]] {
            assert_eq!(words(once, Some(KeyChannel::Meta)), "");
        }
    }

    /// Whoever looks for the effect in one place only may say that it did not happen.
    #[test]
    fn a_question_says_to_how_many_places_a_call_was_sent() {
        let to = |number: u32, place: Option<&str>| AttemptRecord {
            destination: place.map(samples::destination),
            ..attempt(number, "lost")
        };
        let words = |places: &[Option<&str>]| {
            let attempts: Vec<_> = (1..).zip(places).map(|(number, place)| to(number, *place)).collect();
            Sends::of(&attempts).in_words(&CallPolicy { key_channel: None, ..CallPolicy::unclassified() })
        };
        let (a, b) = (Some("a"), Some("b"));
        let changed = "changed: variable ACCOUNT";
        for (places, which) in [
            (&[a, b][..], format!("attempt 1; attempt 2, {changed}")),
            (&[a, b, a], format!("attempts 1, 3; attempt 2, {changed}")),
            (&[a, b, None, b, a], format!("attempts 1, 5; attempts 2, 3, 4, {changed}")),
        ] {
            let said = words(places);
            let count = places.len();
            assert!(said.contains(&format!("It was sent {count} times, and not to one place")), "{said}");
            assert!(said.contains(&format!("({which}), ")) && said.ends_with("look at each of them."), "{said}");
        }
        for one in [&[a, a][..], &[a, None], &[None, None], &[None, a]] {
            assert!(words(one).contains("Its tool may have got it 2 times"), "{}", words(one));
        }
    }
}
