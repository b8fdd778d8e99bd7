//! Instants, as people read them: how long ago, and by the clock on their wall. Machines, files and whoever reads without a terminal get the
//! exact instant in UTC.

use std::borrow::Cow;

use jiff::tz::TimeZone;
use ua_core::Timestamp;

/// An instant in a list.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    if crate::terminal::is_read_by_person() { in_words(at, now, &TimeZone::system()) } else { at.to_string() }
}

/// An instant that is to come, in a list: the local time, and in how long.
pub(crate) fn due(at: Timestamp, now: Timestamp) -> String {
    if crate::terminal::is_read_by_person() { due_in_words(at, now, &TimeZone::system()) } else { at.to_string() }
}

/// The same beside the name of a zone: of a clock on another wall it is said which.
pub(crate) fn due_beside(zone: &str, at: Timestamp, now: Timestamp) -> String {
    if crate::terminal::is_read_by_person() {
        due_beside_in(zone, at, now, &TimeZone::system())
    } else {
        at.to_string()
    }
}

fn due_beside_in(named: &str, at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let due = due_in_words(at, now, zone);
    let clock = |zone: &TimeZone| written(at, "%Y-%m-%d %H:%M", zone);
    let is_same = TimeZone::get(named).is_ok_and(|named| clock(&named) == clock(zone));
    if at <= now || is_same {
        return due;
    }
    let place = written(at, "%Z", zone);
    match due.split_once(" (") {
        Some((clock, rest)) => format!("{clock} {place} {}", rest.trim_end_matches(')')),
        None => format!("{due} {place}"),
    }
}

/// How long something has been waiting, in a list.
pub(crate) fn since(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    if crate::terminal::is_read_by_person() { span(seconds) } else { format!("{seconds} s") }
}

/// How long something took that may have been over in a moment, not rounded up: `463 ms`, `1.1 s`, `3 min`.
pub(crate) fn took(millis: u64) -> String {
    match millis {
        // A second would be many times as long.
        0..1_000 => format!("{millis} ms"),
        // Nor is half of one nothing.
        1_000..10_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => ua_core::span_in_words(std::time::Duration::from_secs(millis / 1_000)),
    }
}

/// An instant by itself: the local time, and how long ago.
pub(crate) fn local(at: Timestamp, now: Timestamp) -> String {
    if !crate::terminal::is_read_by_person() {
        return at.to_string();
    }
    let zone = TimeZone::system();
    let exact = written(at, "%Y-%m-%d %H:%M:%S %Z", &zone);
    let words = in_words(at, now, &zone);
    if words.ends_with("ago") { format!("{exact} ({words})") } else { exact }
}

/// The end of something whose beginning stands beside it: the local time of day.
pub(crate) fn end(at: Timestamp) -> String {
    if crate::terminal::is_read_by_person() { clock(at) } else { at.to_string() }
}

/// The time of day, for lines that follow each other: local on a terminal, else UTC, which it says.
pub(crate) fn clock(at: Timestamp) -> String {
    if crate::terminal::is_read_by_person() {
        written(at, "%H:%M:%S", &TimeZone::system())
    } else {
        written(at, "%H:%M:%SZ", &TimeZone::UTC)
    }
}

/// The instant of a line among others that follow: by the clock on the wall, below the day that it is of; the whole of it for everybody else.
pub(crate) fn of_line(at: Timestamp) -> String {
    if crate::terminal::is_read_by_person() { clock(at) } else { at.to_string() }
}

/// The day of an instant, which stands in front of the lines of that day; `None` where each has its whole instant.
pub(crate) fn day(at: Timestamp) -> Option<String> {
    crate::terminal::is_read_by_person().then(|| day_in(at, &TimeZone::system()))
}

fn day_in(at: Timestamp, zone: &TimeZone) -> String {
    written(at, "%a %Y-%m-%d", zone)
}

/// A sentence of ours with its instants by the clock on the wall, and with the day where that is another one. What others wrote is not passed
/// here: it is shown as it is.
pub(crate) fn in_sentence(text: &str, now: Timestamp) -> Cow<'_, str> {
    if crate::terminal::is_read_by_person() {
        in_sentence_of(text, now, &TimeZone::system())
    } else {
        Cow::Borrowed(text)
    }
}

/// How long an instant is that we write.
const INSTANT: usize = "2026-11-25T23:01:35.427Z".len();

fn in_sentence_of<'a>(text: &'a str, now: Timestamp, zone: &TimeZone) -> Cow<'a, str> {
    let mut out = String::new();
    let mut rest = text;
    let instant_at = |rest: &str| {
        let mut begins = rest.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at);
        begins.find_map(|at| Some((at, Timestamp::parse(rest.get(at..at + INSTANT)?)?)))
    };
    while let Some((at, instant)) = instant_at(rest) {
        let day = |at| written(at, "%Y-%m-%d", zone);
        let format = if day(instant) == day(now) { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        out.push_str(&rest[..at]);
        out.push_str(&written(instant, format, zone));
        rest = &rest[at + INSTANT..];
    }
    if out.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(out + rest) }
}

fn written(at: Timestamp, format: &str, zone: &TimeZone) -> String {
    let known = jiff::Timestamp::from_millisecond(at.as_millis());
    known.map_or_else(|_| at.to_string(), |known| known.to_zoned(zone.clone()).strftime(format).to_string())
}

fn due_in_words(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    if at <= now {
        return "now".to_owned();
    }
    // Within a week its day says which.
    let seconds = at.since(now).as_secs();
    if seconds < 518_400 {
        // What is a minute short of two hours away is not due in one.
        let rounded = if (3_600..86_400 - 1_800).contains(&seconds) { seconds + 1_800 } else { seconds };
        format!("{} (in {})", written(at, "%a %H:%M", zone), span(rounded))
    } else {
        written(at, "%Y-%m-%d %H:%M", zone)
    }
}

/// So many seconds in a list, in as few columns as there can be.
fn span(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min", seconds / 60),
        3_600..=86_399 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn in_words(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        // A clock that was set back says nothing about how long ago it was.
        _ if at > now => written(at, "%Y-%m-%d %H:%M", zone),
        0..=604_799 => format!("{} ago", span(seconds)),
        _ => written(at, "%Y-%m-%d", zone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_something_took_is_not_rounded_up() {
        let said = [999, 1_999, 34_600, 119_999, 120_000].map(took);
        assert_eq!(said, ["999 ms", "1.9 s", "34 s", "119 s", "2 min"]);
    }

    #[test]
    fn instants_within_a_sentence_are_those_of_the_clock_on_the_wall() {
        let zone = TimeZone::fixed(jiff::tz::offset(-5));
        let now = Timestamp::parse("2026-11-23T03:00:00.000Z").unwrap();
        let text = "attempt 2 at 2026-11-23T02:59:55.123Z, ended at 2026-11-21T10:00:00.000Z; sent 2 times";
        assert_eq!(
            in_sentence_of(text, now, &zone),
            "attempt 2 at 21:59:55, ended at 2026-11-21 05:00:00; sent 2 times"
        );
        assert!(matches!(in_sentence_of("no instant in 2026", now, &zone), Cow::Borrowed(_)));
    }

    #[test]
    fn an_instant_is_told_as_people_say_it() {
        let zone = TimeZone::fixed(jiff::tz::offset(-5));
        let now = Timestamp::parse("2026-11-23T03:00:00.000Z").unwrap();
        let said = |text: &str| in_words(Timestamp::parse(text).unwrap(), now, &zone);
        assert_eq!(said("2026-11-23T02:59:55.000Z"), "5 s ago");
        assert_eq!(said("2026-11-23T02:57:00.000Z"), "3 min ago");
        assert_eq!(said("2026-11-22T22:00:00.000Z"), "5 h ago");
        assert_eq!(said("2026-11-20T03:00:00.000Z"), "3 d ago");
        assert_eq!(said("2026-10-01T02:00:00.000Z"), "2026-09-30", "by the clock on the wall");
        let due = |text: &str| due_in_words(Timestamp::parse(text).unwrap(), now, &zone);
        assert_eq!(due("2026-11-23T08:00:00.000Z"), "Mon 03:00 (in 5 h)");
        assert_eq!(due("2026-11-23T03:01:30.000Z"), "Sun 22:01 (in 1 min)");
        assert_eq!(due("2026-11-23T04:59:50.000Z"), "Sun 23:59 (in 2 h)");
        assert_eq!(due("2026-12-23T08:00:00.000Z"), "2026-12-23 03:00");
        assert_eq!(due("2026-11-23T02:59:00.000Z"), "now", "a worker takes it next");
        let beside =
            |named: &str, text: &str| due_beside_in(named, Timestamp::parse(text).unwrap(), now, &TimeZone::UTC);
        assert_eq!(beside("UTC", "2026-11-23T08:00:00.000Z"), "Mon 08:00 (in 5 h)");
        assert_eq!(beside("Asia/Tokyo", "2026-11-23T08:00:00.000Z"), "Mon 08:00 UTC in 5 h");
        assert_eq!(beside("Asia/Tokyo", "2026-12-23T08:00:00.000Z"), "2026-12-23 08:00 UTC");
        assert_eq!(said("2026-11-23T04:00:00.000Z"), "2026-11-22 23:00", "not a time that is to come");
    }

    #[test]
    fn what_took_a_moment_is_not_said_to_have_taken_longer() {
        let words = [0, 463, 999, 1_000, 1_170, 1_999, 9_999, 10_000, 119_000, 120_000].map(took);
        assert_eq!(words, ["0 ms", "463 ms", "999 ms", "1.0 s", "1.1 s", "1.9 s", "9.9 s", "10 s", "119 s", "2 min"]);
    }
}
