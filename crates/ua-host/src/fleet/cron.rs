//! When a schedule is due: five fields of cron in a time zone.
//!
//! Minute, hour, day of the month, month, day of the week: numbers, names of months and days, lists, ranges and steps. As in cron, when both days are
//! restricted either may match. As in cron, too, a schedule for certain hours is had once a day of clock changes: a time that is left out is moved to
//! behind the gap, of one that comes twice the first counts. A schedule for every hour (`*`, `*/2`) goes by time that passes: what comes twice counts
//! twice.

use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use ua_core::Timestamp;

/// How many days ahead an instant is looked for: a leap day is there within eight years.
const FAR: u32 = 366 * 9;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When something is due.
#[derive(Debug, Clone)]
pub struct Cron {
    minutes: Vec<i8>,
    hours: Vec<i8>,
    days: Vec<i8>,
    months: Vec<i8>,
    weekdays: Vec<i8>,
    /// Both kinds of day are restricted.
    is_either: bool,
    /// It is for all hours, or each so many, and not for certain ones.
    is_every_hour: bool,
    zone: TimeZone,
}

impl Cron {
    /// Reads five fields and the name of a time zone.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn parse(text: &str, zone: &str) -> Result<Self, String> {
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            text => text,
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!(
                "{text:?} has {}; cron has five: minute hour day month weekday",
                ua_core::counted(fields.len(), "field")
            ));
        };
        let mut on: Vec<i8> = field(weekdays, 0, 7, &DAYS, 0)?.into_iter().map(|day| day % 7).collect();
        on.sort_unstable();
        on.dedup();
        let cron = Self {
            minutes: field(minutes, 0, 59, &[], 0)?,
            hours: field(hours, 0, 23, &[], 0)?,
            days: field(days, 1, 31, &[], 0)?,
            months: field(months, 1, 12, &MONTHS, 1)?,
            weekdays: on,
            is_either: !days.starts_with('*') && !weekdays.starts_with('*'),
            is_every_hour: hours.starts_with('*'),
            zone: TimeZone::get(zone)
                .map_err(|_| format!("{zone:?} is not a valid time zone; write for example Europe/Berlin"))?,
        };
        if cron.after(Timestamp::from_millis(0)).is_none() {
            return Err(format!("{text:?} names no day that exists"));
        }
        Ok(cron)
    }

    /// The first instant after `at`.
    pub fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let from = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
        let mut date = from.to_zoned(self.zone.clone()).date();
        // A time shortly before midnight that a clock change leaves out is one of the day behind it.
        if let Some(before) = date.yesterday().ok().filter(|before| !self.is_of_one_offset(*before)) {
            date = before;
        }
        for _ in 0..FAR {
            if self.is_on(date) {
                let times = self.hours.iter().flat_map(|hour| self.minutes.iter().map(move |minute| (*hour, *minute)));
                let mut later = times.flat_map(|time| self.instants(date, time)).filter(|instant| *instant > from);
                // On a day of a clock change later words need not be later times.
                let found = if self.is_of_one_offset(date) { later.next() } else { later.min() };
                if let Some(instant) = found {
                    return Some(Timestamp::from_millis(instant.as_millisecond()));
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The last instant behind `from` that has come by `now`; `None` where there is none. However many there are, few are looked at: an instant lies
    /// between two times if the first one behind the earlier is not behind the later, so it is looked for as a word is in a dictionary.
    pub fn last_between(&self, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let found = |at: i64| self.after(Timestamp::from_millis(at)).filter(|instant| *instant <= now);
        let (mut last, mut none) = (found(from.as_millis())?, now.as_millis());
        while last.as_millis() < none {
            let middle = last.as_millis() + (none - last.as_millis()) / 2;
            match found(middle) {
                Some(later) => last = later,
                None => none = middle,
            }
        }
        Some(last)
    }

    /// When a time of day is, on a day: not at all or twice where a clock change has it so and the schedule is for every hour.
    fn instants(&self, date: Date, (hour, minute): (i8, i8)) -> impl Iterator<Item = jiff::Timestamp> + use<> {
        let civil = Time::new(hour, minute, 0, 0).map(|time| date.to_datetime(time)).ok();
        let found = civil.map(|civil| self.zone.to_ambiguous_timestamp(civil));
        let (first, second) = match found {
            Some(found) if self.is_every_hour => match found.offset() {
                AmbiguousOffset::Unambiguous { .. } => (found.compatible().ok(), None),
                AmbiguousOffset::Gap { .. } => (None, None),
                AmbiguousOffset::Fold { .. } => (found.earlier().ok(), found.later().ok()),
            },
            found => (found.and_then(|found| found.compatible().ok()), None),
        };
        first.into_iter().chain(second)
    }

    /// Whether no clock is changed on a day.
    fn is_of_one_offset(&self, date: Date) -> bool {
        let offset = |date: Date| self.zone.to_ambiguous_timestamp(date.to_datetime(Time::midnight())).offset();
        date.tomorrow().is_ok_and(|tomorrow| offset(date) == offset(tomorrow))
    }

    fn is_on(&self, date: Date) -> bool {
        let (day, weekday) =
            (self.days.contains(&date.day()), self.weekdays.contains(&date.weekday().to_sunday_zero_offset()));
        self.months.contains(&date.month()) && if self.is_either { day || weekday } else { day && weekday }
    }
}

/// The numbers of a field, in order.
fn field(text: &str, least: i8, most: i8, names: &[&str], first: i8) -> Result<Vec<i8>, String> {
    let wrong = || format!("{text:?} is not a valid field here: use {least} to {most}");
    let number = |word: &str| -> Result<i8, String> {
        let named = names.iter().zip(first..).find(|(name, _)| word.eq_ignore_ascii_case(name));
        let number = named.map_or_else(|| word.parse().map_err(|_| wrong()), |(_, number)| Ok(number))?;
        if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => {
                (range, Some(step.parse::<usize>().ok().filter(|step| *step > 0).ok_or_else(wrong)?))
            }
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from > to {
            return Err(wrong());
        }
        numbers.extend((from..=to).step_by(step.unwrap_or(1)));
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(cron: &str, zone: &str, from: &str) -> String {
        let at = Timestamp::parse(from).unwrap();
        Cron::parse(cron, zone).unwrap().after(at).unwrap().to_string()
    }

    #[test]
    fn the_next_instant_is_found() {
        for (cron, from, wanted) in [
            ("*/15 * * * *", "2026-11-23T10:07:00Z", "2026-11-23T10:15:00"),
            ("0 3 * * *", "2026-11-23T03:00:00Z", "2026-11-24T03:00:00"),
            ("30 8 * * mon-fri", "2026-11-27T09:00:00Z", "2026-11-30T08:30:00"),
            ("0 0 1,15 * *", "2026-11-23T00:00:00Z", "2026-12-01T00:00:00"),
            ("0 0 29 feb *", "2026-11-23T00:00:00Z", "2028-02-29T00:00:00"),
            ("0 12 13 * fri", "2026-11-23T00:00:00Z", "2026-11-27T12:00:00"),
            ("0 0 * * 7", "2026-11-23T00:00:00Z", "2026-11-29T00:00:00"),
            ("@monthly", "2026-11-23T00:00:00Z", "2026-12-01T00:00:00"),
        ] {
            let found = next(cron, "UTC", from);
            assert!(found.starts_with(wanted), "{cron} after {from}: {found}");
        }
    }

    #[test]
    fn a_clock_change_neither_drops_nor_doubles_a_day() {
        // In Berlin 02:30 does not exist on 29 March 2026, and comes twice on 25 October.
        assert!(next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z").starts_with("2026-03-29T01:30:00"));
        let first = next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z");
        assert!(first.starts_with("2026-10-25T00:30:00"), "{first}");
        assert!(next("30 2 * * *", "Europe/Berlin", &first).starts_with("2026-10-26T01:30:00"));
    }

    /// In Nuuk the hour before midnight is left out on 28 March 2026: its times are of the 29th, for whoever looks from then, too.
    #[test]
    fn a_time_that_a_clock_change_moves_behind_midnight_is_found_from_there() {
        let first = next("30 23 * * *", "America/Nuuk", "2026-03-28T12:00:00Z");
        assert!(first.starts_with("2026-03-29T01:30:00"), "{first}");
        assert_eq!(next("30 23 * * *", "America/Nuuk", "2026-03-29T01:10:00Z"), first);
        assert!(next("30 23 * * *", "America/Nuuk", &first).starts_with("2026-03-30T00:30:00"));
    }

    #[test]
    fn what_is_for_every_hour_goes_by_time_that_passes() {
        let times = |cron: &str, from: &str, count: usize| {
            let cron = Cron::parse(cron, "Europe/Berlin").unwrap();
            let mut at = Timestamp::parse(from).unwrap();
            let mut found = Vec::new();
            for _ in 0..count {
                at = cron.after(at).unwrap();
                found.push(at.to_string()[11..16].to_owned());
            }
            found
        };
        // The hour from two to three comes twice on 25 October, from midnight UTC to two, and is left out on 29 March.
        let half_hours = ["00:00", "00:30", "01:00", "01:30", "02:00"];
        assert_eq!(times("*/30 * * * *", "2026-10-24T23:30:00Z", 5), half_hours);
        assert_eq!(times("*/30 * * * *", "2026-03-28T23:30:00Z", 5), half_hours);
        assert_eq!(times("0 */2 * * *", "2026-10-24T21:00:00Z", 4), ["22:00", "00:00", "01:00", "03:00"]);
        // For certain hours, once.
        assert_eq!(times("*/30 2 * * *", "2026-10-24T12:00:00Z", 3), ["00:00", "00:30", "01:00"]);
        assert_eq!(times("*/30 2-3 * * *", "2026-03-28T12:00:00Z", 3), ["01:00", "01:30", "00:00"]);
    }

    #[test]
    fn what_is_no_cron_is_refused() {
        for wrong in
            ["", "* * * *", "60 * * * *", "* * * * * *", "5-1 * * * *", "*/0 * * * *", "x * * * *", "0 0 31 feb *"]
        {
            assert!(Cron::parse(wrong, "UTC").is_err(), "{wrong}");
        }
        assert!(Cron::parse("* * * * *", "Middle/Earth").is_err());
    }
}
