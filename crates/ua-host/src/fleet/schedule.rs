//! Jobs that are submitted again and again.
//!
//! A schedule keeps how its job is started, as a run that is submitted does: tool servers, policies, prices, provider and model are those of where
//! it was made, whichever worker submits an instant. Any worker does (`due.rs`). An instant has a job key of its own (`NAME@INSTANT`), so two workers that are at it at once, or one that dies
//! between submitting and saying so, submit one run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ua_core::{PrintedCommand, Timestamp};
use ua_store::{CatchUp, ConcurrencyKey, ScheduleRecord};

use super::cron::Cron;
use super::submit::{Submission, Submitted, submit};
use crate::error::HostError;
use crate::host::Host;
use crate::job::{self, JobRequest};
use crate::launch::{self, Configured, LaunchOptions, SaidBy, Vouched};
use crate::people::People;
use crate::{consent, selectors};

/// What helps where nobody but the database says what a schedule starts.
const ADD_AGAIN: &str = "if the schedule is yours, `ua schedule add` says so again";

/// An instant that was missed by no more than this is not late.
const ON_TIME: Duration = Duration::from_mins(1);

/// What a schedule submits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledJob {
    /// The job file, absolute; it is read when its time comes, by the worker that is first.
    pub file: PathBuf,
    /// In which queue.
    pub queue: String,
    /// The smaller, the sooner.
    pub priority: i32,
    /// What it shares a limit with.
    pub concurrency: Option<ConcurrencyKey>,
    /// Whose turn it uses.
    pub fair_key: Option<String>,
    /// How it is started; one of an older version has it from the worker that is first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<Configured>,
    /// Says that this user's `ua` wrote how it is started, and not somebody who wrote to the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// Who added, paused or resumed the schedule last; one of an older version does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<ScheduleChanged>,
}

/// Who changed a schedule, and when: several people may use one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleChanged {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// Where a schedule has that: in its job, which is kept as it is.
pub const CHANGED: &str = "changed";
/// And where it says that this user's `ua` wrote it.
pub const SEAL: &str = launch::SEAL;

/// A schedule that this user adds, with their word for what it starts and when.
#[must_use]
pub fn said_by_user(host: &Host, schedule: ScheduleRecord) -> ScheduleRecord {
    Vouched::of(host).seal_schedule(schedule)
}

/// The same with who changes it, `at` this instant of the clock that all share.
#[must_use]
pub fn changed_by_user(host: &Host, mut schedule: ScheduleRecord, at: Timestamp) -> ScheduleRecord {
    let changed = ScheduleChanged { by: host.settings().user(), at };
    if let Some(job) = schedule.job.as_object_mut() {
        job.insert(CHANGED.to_owned(), serde_json::json!(changed));
    }
    schedule
}

impl ScheduledJob {
    /// The same with how it is started from here: what `ua submit` would store now. What is wrong with the job is said now, and not at three in
    /// the morning.
    ///
    /// # Errors
    /// The job could not be submitted from here.
    pub async fn configured_here(
        self,
        host: &Host,
        people: &dyn People,
        options: &LaunchOptions,
    ) -> Result<Self, HostError> {
        let request =
            JobRequest { file: self.file.clone(), for_queue: true, launch: options.clone(), ..JobRequest::default() };
        let prepared = job::prepare(host, people, &request).await?;
        // What `ua submit` refuses once it knows the tools is refused here as well, and not by a worker when its time comes.
        selectors::check(host, people, &prepared.launch, &prepared.spec, None).await?;
        if let Some(key) = &prepared.spec.job_key {
            people.tell(&format!(
                "the job key {key:?} of the job file is not used by a schedule: each scheduled time has a key of its own (NAME@TIME), so the \
                 job is done at each of them; {} does it once under its own key (`--run-after` names a time)",
                PrintedCommand::of("ua submit").word(&self.file).in_code()
            ));
        }
        consent::tell_lifted_questions(people, &prepared.spec);
        let configured = Configured::now(host.settings(), &prepared.spec, options)?;
        Ok(Self { configured: Some(configured), ..self })
    }

    /// As it is submitted for an instant, under its key.
    fn submission(&self, schedule: &str, instant: Timestamp) -> Submission {
        Submission {
            schedule: Some(schedule.to_owned()),
            job: JobRequest {
                file: self.file.clone(),
                job_key: Some(format!("{schedule}@{instant}")),
                // Each instant has a run of its own, whatever became of the others.
                new: true,
                for_queue: true,
                is_instant: true,
                configured: self.configured.clone(),
                ..JobRequest::default()
            },
            queue: Some(self.queue.clone()),
            priority: self.priority,
            concurrency: self.concurrency.clone(),
            fair_key: self.fair_key.clone(),
            ..Submission::default()
        }
    }
}

/// When a schedule is due.
///
/// # Errors
/// It is no cron, or no time zone.
pub fn cron_of(cron: &str, time_zone: &str) -> Result<Cron, HostError> {
    Cron::parse(cron, time_zone).map_err(|why| {
        HostError::usage(format!("cannot use the schedule: {why}"))
            .hint("for example --cron '0 3 * * mon-fri' --time-zone Europe/Berlin")
    })
}

/// Submits the job of a schedule whose instant has come, unless the schedule is paused by now.
///
/// # Errors
/// The job cannot be read or stored, or the schedule is paused.
pub(super) async fn submit_due(
    host: &Host,
    people: &Arc<dyn People>,
    schedule: &ScheduleRecord,
    instant: Timestamp,
) -> Result<Submitted, HostError> {
    let submission = stored(host, schedule).await?.submission(&schedule.name, instant);
    submit(host, people, &Submission { is_due: true, ..submission }).await
}

/// Submits the job of a schedule for an instant, as a person says; the same instant again is the same run.
///
/// # Errors
/// The job cannot be read or stored.
pub async fn submit_for(
    host: &Host,
    people: &Arc<dyn People>,
    schedule: &ScheduleRecord,
    instant: Timestamp,
) -> Result<Submitted, HostError> {
    let job = stored(host, schedule).await?;
    let is_unsaid = job.configured.as_ref().is_some_and(|configured| configured.is_unsaid);
    let submitted = submit(host, people, &job.submission(&schedule.name, instant)).await;
    submitted.map_err(|error| if is_unsaid { error.and(ADD_AGAIN) } else { error })
}

/// What a schedule submits, as it is stored: how its job is started counts for found where nobody but the database says it.
async fn stored(host: &Host, schedule: &ScheduleRecord) -> Result<ScheduledJob, HostError> {
    let mut job: ScheduledJob = serde_json::from_value(schedule.job.clone())
        .map_err(|e| HostError::storage(format!("cannot read the schedule {}: {e}", schedule.name)))?;
    let said_by = Vouched::of(host).word_on_schedule(schedule).await;
    if let Some(configured) = job.configured.as_mut() {
        (configured.is_unsaid, configured.is_for_now) = (said_by == SaidBy::Database, said_by == SaidBy::BelievedNow);
    }
    Ok(job)
}

/// Why an instant of a schedule could not be submitted from here now, if that can be known without storing anything: the file is gone, the job is
/// wrong, a setting cannot be used.
pub async fn why_not(host: &Host, people: &dyn People, schedule: &ScheduleRecord) -> Option<HostError> {
    let job = match stored(host, schedule).await {
        Ok(job) => job,
        Err(error) => return Some(error),
    };
    job::prepare(host, people, &job.submission(&schedule.name, schedule.next_at).job).await.err()
}

/// Where a schedule begins that takes the place of another one, or of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begins {
    /// Its next instant.
    pub next_at: Timestamp,
    /// The instant of the one before that had come, was not submitted, and is not now.
    pub passed_over: Option<Timestamp>,
}

/// When a schedule is due next that is added at `now`. One with the times of the one before has what was due of it: who adds all schedules again at
/// each deployment loses nothing. While a schedule is paused, nothing of it is due.
///
/// # Errors
/// It is never due again.
pub fn begins(
    cron: &Cron,
    schedule: &ScheduleRecord,
    before: Option<&ScheduleRecord>,
    now: Timestamp,
) -> Result<Begins, HostError> {
    let active = before.filter(|before| !before.is_paused);
    let has_same_times =
        |before: &&ScheduleRecord| before.cron == schedule.cron && before.time_zone == schedule.time_zone;
    if let Some(same) = active.filter(has_same_times) {
        return Ok(Begins { next_at: same.next_at, passed_over: None });
    }
    let next_at = cron.after(now).ok_or_else(|| HostError::usage("the schedule is never due again"))?;
    let passed_over = active.map(|before| before.next_at).filter(|due| *due <= now);
    Ok(Begins { next_at, passed_over })
}

/// The next instant of a schedule by the clock, where the stored one is later than any that the clock can have led to: the clock was ahead when that
/// was stored, or it is behind now. A clock that is corrected by less than a minute is none that went back.
pub(super) fn gone_back(cron: &Cron, schedule: &ScheduleRecord, now: Timestamp) -> Option<Timestamp> {
    let latest = cron.after(now.plus(ON_TIME)).filter(|_| !schedule.is_paused)?;
    if schedule.next_at > latest { cron.after(now) } else { None }
}

/// What is said of schedules that are stored for later than the clock can have led to; `None` where none is.
pub fn ahead_in_words(schedules: &[ScheduleRecord], now: Timestamp) -> Option<String> {
    let right =
        |schedule: &ScheduleRecord| gone_back(&cron_of(&schedule.cron, &schedule.time_zone).ok()?, schedule, now);
    let ahead: Vec<(&ScheduleRecord, Timestamp)> =
        schedules.iter().filter_map(|schedule| Some((schedule, right(schedule)?))).collect();
    let (first, next) = ahead.first()?;
    let (name, more) = (
        crate::text::line(&first.name, 60),
        match ahead.len() {
            1 => String::new(),
            all => format!("; the same of {} more", all - 1),
        },
    );
    Some(format!(
        "the clock was set back: the next run of the schedule {name} is stored for {}, and by its times it is due at {next}{more}; a worker \
         that runs goes back to that by itself, and no instant is run twice",
        first.next_at
    ))
}

/// What a schedule submits at `now`, if anything, and where it goes on.
pub(super) fn due(cron: &Cron, schedule: &ScheduleRecord, now: Timestamp) -> Option<(Option<Timestamp>, Timestamp)> {
    if schedule.is_paused || schedule.next_at > now {
        return None;
    }
    if schedule.catch_up == CatchUp::All {
        return Some((Some(schedule.next_at), cron.after(schedule.next_at)?));
    }
    // However many were missed: minutes of years are no more than forty looks.
    let last = cron.last_between(schedule.next_at, now).unwrap_or(schedule.next_at);
    let is_wanted = schedule.catch_up == CatchUp::Last || now.since(last) <= ON_TIME;
    Some((is_wanted.then_some(last), cron.after(now)?))
}

#[cfg(test)]
mod tests {
    use ua_core::{Entropy as _, SeededEntropy};

    use super::*;

    /// Over what was there before: nothing, the same times or others, due or not, paused or not.
    #[test]
    fn a_schedule_that_is_added_again_has_what_was_due() {
        let at = |hour: u32, minute: u32| Timestamp::parse(&format!("2026-11-23T{hour:02}:{minute:02}:00Z")).unwrap();
        let record = |cron: &str, is_paused, next_at| ScheduleRecord {
            name: "nightly".to_owned(),
            cron: cron.to_owned(),
            time_zone: "UTC".to_owned(),
            job: serde_json::Value::Null,
            catch_up: CatchUp::All,
            is_paused,
            next_at,
        };
        let (added, now) = (record("0 3 * * *", false, at(0, 0)), at(3, 5));
        let cron = Cron::parse(&added.cron, "UTC").unwrap();
        let tomorrow = cron.after(now).unwrap();
        let (due, ahead) = (at(3, 0), at(4, 0));
        for (before, next_at, passed_over) in [
            (None, tomorrow, None),
            (Some(record("0 3 * * *", false, due)), due, None),
            (Some(record("0 3 * * *", false, tomorrow)), tomorrow, None),
            (Some(record("0 3 * * *", true, due)), tomorrow, None),
            (Some(record("0 * * * *", false, due)), tomorrow, Some(due)),
            (Some(record("0 * * * *", false, ahead)), tomorrow, None),
            (Some(record("0 * * * *", true, due)), tomorrow, None),
        ] {
            let found = begins(&cron, &added, before.as_ref(), now).unwrap();
            assert_eq!(found, Begins { next_at, passed_over }, "{before:?}");
        }
    }

    fn every(cron: &str, next_at: &str) -> ScheduleRecord {
        ScheduleRecord {
            name: "often".to_owned(),
            cron: cron.to_owned(),
            time_zone: "UTC".to_owned(),
            job: serde_json::Value::Null,
            catch_up: CatchUp::Last,
            is_paused: false,
            next_at: Timestamp::parse(next_at).unwrap_or(Timestamp::from_millis(0)),
        }
    }

    #[test]
    fn a_schedule_that_was_submitted_by_a_wrong_clock_goes_back() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let now = at("2026-11-30T23:02:30Z");
        for (cron, next_at, right) in [
            // A clock that was a day ahead, an hour, two minutes.
            ("* * * * *", "2026-12-01T23:03:00Z", Some("2026-11-30T23:03:00Z")),
            ("* * * * *", "2026-12-01T00:03:00Z", Some("2026-11-30T23:03:00Z")),
            ("* * * * *", "2026-11-30T23:05:00Z", Some("2026-11-30T23:03:00Z")),
            // Corrected by less than a minute, or right.
            ("* * * * *", "2026-11-30T23:04:00Z", None),
            ("* * * * *", "2026-11-30T23:03:00Z", None),
            ("* * * * *", "2026-11-30T22:00:00Z", None),
            ("0 3 * * *", "2026-12-01T03:00:00Z", None),
            ("0 3 * * *", "2026-12-02T03:00:00Z", Some("2026-12-01T03:00:00Z")),
            ("0 0 29 feb *", "2028-02-29T00:00:00Z", None),
        ] {
            let schedule = every(cron, next_at);
            let found = gone_back(&Cron::parse(cron, "UTC").unwrap(), &schedule, now);
            assert_eq!(found, right.map(at), "{cron} {next_at}");
            let said = ahead_in_words(&[every("0 3 * * *", "2026-12-01T03:00:00Z"), schedule.clone()], now);
            assert_eq!(said.is_some(), right.is_some(), "{said:?}");
            let paused = ScheduleRecord { is_paused: true, ..schedule };
            assert_eq!(gone_back(&Cron::parse(cron, "UTC").unwrap(), &paused, now), None);
        }
        let two = [every("* * * * *", "2026-12-01T23:03:00Z"), every("* * * * *", "2026-12-01T23:03:00Z")];
        let said = ahead_in_words(&two, now).unwrap();
        assert!(
            said.contains("schedule often") && said.contains("1 more") && said.contains("2026-11-30T23:03:00"),
            "{said}"
        );
    }

    /// However a schedule got on by a clock that is right, or that is corrected a little, nothing is said and nothing goes back.
    #[test]
    fn a_schedule_that_got_on_by_a_right_clock_does_not_go_back() {
        let chance = SeededEntropy::new(29);
        for text in ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * mon-fri", "0 0 1 * *"] {
            let cron = Cron::parse(text, "Europe/Berlin").unwrap();
            let mut now = Timestamp::parse("2026-10-20T00:00:00Z").unwrap();
            let first = cron.after(now).unwrap();
            for catch_up in [CatchUp::All, CatchUp::Last, CatchUp::None] {
                let of = every(text, "");
                let mut schedule =
                    ScheduleRecord { time_zone: "Europe/Berlin".to_owned(), catch_up, next_at: first.max(now), ..of };
                for _ in 0..200 {
                    now = now.plus(Duration::from_secs(chance.next_u64() % 40_000));
                    if let Some((_, next)) = due(&cron, &schedule, now) {
                        schedule.next_at = next;
                    }
                    let corrected = now.minus(Duration::from_secs(chance.next_u64() % 60));
                    assert_eq!(gone_back(&cron, &schedule, corrected), None, "{text} {catch_up:?} at {now}");
                }
            }
        }
    }

    #[test]
    fn what_was_missed_is_caught_up_as_the_schedule_says() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let schedule = |catch_up| ScheduleRecord {
            name: "hourly".to_owned(),
            cron: "0 * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            job: serde_json::Value::Null,
            catch_up,
            is_paused: false,
            next_at: at("2026-11-23T10:00:00Z"),
        };
        let cron = Cron::parse("0 * * * *", "UTC").unwrap();
        let hour = |hour: u32| at(&format!("2026-11-23T{hour}:00:00Z"));
        let late = at("2026-11-23T13:20:00Z");
        assert_eq!(due(&cron, &schedule(CatchUp::All), late), Some((Some(hour(10)), hour(11))));
        assert_eq!(due(&cron, &schedule(CatchUp::Last), late), Some((Some(hour(13)), hour(14))));
        assert_eq!(due(&cron, &schedule(CatchUp::None), late), Some((None, hour(14))));
        let on_time = at("2026-11-23T10:00:07Z");
        assert_eq!(due(&cron, &schedule(CatchUp::None), on_time), Some((Some(hour(10)), hour(11))));
        assert_eq!(due(&cron, &schedule(CatchUp::All), at("2026-11-23T09:59:00Z")), None);
        assert_eq!(due(&cron, &ScheduleRecord { is_paused: true, ..schedule(CatchUp::All) }, late), None);
    }

    /// Over random crons, zones and gaps, each against all instants one after the other: the last one that has come is submitted, and the next one
    /// is what follows it; a gap of no instant submits the one that was due.
    #[test]
    fn the_last_of_what_was_missed_is_the_newest_that_has_come() {
        let chance = SeededEntropy::new(23);
        let below = |most: u64| chance.next_u64() % most;
        let zones = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Nuuk", "Australia/Lord_Howe"];
        let steps = ["*", "*/7", "*/30", "0", "15,45", "59"];
        let hours = ["*", "*/2", "2", "0,23", "1-3", "9-17"];
        let days = ["* * *", "* * mon-fri", "1 * *", "* 3,10 sun", "13 * fri"];
        let one = |all: &[&str]| all[usize::try_from(below(all.len() as u64)).unwrap()].to_owned();
        for case in 0..60 {
            let text = format!("{} {} {}", one(&steps), one(&hours), one(&days));
            let zone = one(&zones);
            let cron = Cron::parse(&text, &zone).unwrap();
            // Two days of clock changes are in October and March: a third of the gaps is there.
            let begins = match below(3) {
                0 => Timestamp::parse("2026-03-28T00:00:00Z").unwrap(),
                1 => Timestamp::parse("2026-10-24T00:00:00Z").unwrap(),
                _ => Timestamp::parse("2026-01-01T00:00:00Z").unwrap().plus(Duration::from_mins(below(500_000))),
            };
            let mut all = vec![cron.after(begins.plus(Duration::from_mins(below(1_440)))).unwrap()];
            for _ in 0..=below(40) {
                all.push(cron.after(all[all.len() - 1]).unwrap());
            }
            let (last, next) = (all[all.len() - 2], all[all.len() - 1]);
            let room = u64::try_from(next.since(last).as_millis()).unwrap();
            for now in [last, last.plus(Duration::from_millis(below(room))), next.minus(Duration::from_millis(1))] {
                let schedule = ScheduleRecord {
                    name: "often".to_owned(),
                    cron: text.clone(),
                    time_zone: zone.clone(),
                    job: serde_json::Value::Null,
                    catch_up: CatchUp::Last,
                    is_paused: false,
                    next_at: all[0],
                };
                let shown = format!("{case}: {text} {zone}, from {} to {now}", all[0]);
                assert_eq!(due(&cron, &schedule, now), Some((Some(last), next)), "{shown}");
                let none = ScheduleRecord { catch_up: CatchUp::None, ..schedule };
                let wanted = (now.since(last) <= ON_TIME).then_some(last);
                assert_eq!(due(&cron, &none, now), Some((wanted, next)), "{shown}");
            }
        }
    }

    /// Twenty days of minutes, and a year of them: more than anybody would go through one by one.
    #[test]
    fn the_last_of_very_many_is_the_newest_that_has_come() {
        let cron = Cron::parse("* * * * *", "UTC").unwrap();
        let now = Timestamp::parse("2026-11-30T16:20:30Z").unwrap();
        for days in [1, 20, 400] {
            let schedule = ScheduleRecord {
                name: "often".to_owned(),
                cron: "* * * * *".to_owned(),
                time_zone: "UTC".to_owned(),
                job: serde_json::Value::Null,
                catch_up: CatchUp::Last,
                is_paused: false,
                next_at: Timestamp::parse("2026-11-30T16:00:00Z").unwrap().minus(Duration::from_hours(24 * days)),
            };
            let at = |text: &str| Timestamp::parse(text).unwrap();
            let found = (Some(at("2026-11-30T16:20:00Z")), at("2026-11-30T16:21:00Z"));
            assert_eq!(due(&cron, &schedule, now), Some(found), "{days}");
        }
    }
}
