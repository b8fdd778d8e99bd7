//! One cell: one job on one route with one kill point, and whether what came of it is right.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::BrokenRule;
use super::kill::{Doubt, Kill, Point};
use super::lives::{End, Lives};
use super::route::{Effect, Route};
use super::world::{Receivers, count_pages};
use crate::serve::Kind;

/// How often one cell may be resumed before the harness gives up.
const MAX_RESUMES: u32 = 8;

/// How many pages the job reads.
const PAGES: usize = 4;

/// What came of one kill point.
pub(super) struct Cell {
    pub(super) route: Route,
    pub(super) point: Point,
    pub(super) counts: Vec<(Effect, usize)>,
    /// How many times a page was asked for, of whatever name.
    pub(super) page_requests: usize,
    pub(super) kills: usize,
    pub(super) asked: Vec<Doubt>,
    /// Files in which a key was found.
    pub(super) leaks: usize,
    pub(super) outcome: String,
    pub(super) took: Duration,
    /// What is not as it should be.
    pub(super) faults: Vec<String>,
    /// What the program wrote.
    pub(super) log: String,
}

impl Cell {
    pub(super) fn has_duplicate(&self) -> bool {
        self.counts.iter().any(|(_, count)| *count > 1)
    }

    /// The job on `route`, killed at `point`, resumed and answered until it ends.
    pub(super) fn run(
        program: &Path,
        broken_rule: Option<BrokenRule>,
        route: Route,
        point: &Point,
    ) -> anyhow::Result<Self> {
        let world = Receivers::new(route, &point.kill, broken_rule)?;
        let lives = Lives { program, world: &world };
        let started = Instant::now();
        let (mut kills, mut asked) = (0, Vec::new());
        let mut moments = match &point.kill {
            Kill::Moments(moments) => moments.clone().into_iter(),
            Kill::Never | Kill::Seam(_) | Kill::Held { .. } => Vec::new().into_iter(),
        };
        let first = match &point.kill {
            Kill::Never | Kill::Moments(_) => moments.next().map_or(End::ByItself, End::Moment),
            Kill::Seam(seam) => End::Seam(seam),
            Kill::Held { server, requests, .. } => End::Held(world.server(*server)?, requests.len()),
        };
        let mut status = lives.start(&first)?;
        let is_named = matches!(point.kill, Kill::Seam(_) | Kill::Held { .. });
        let reached = !is_named || status.signal() == Some(9);
        let before_kill = world.asked_pages()?;
        for _ in 0..MAX_RESUMES {
            match (status.code(), status.signal()) {
                (Some(75), _) => {
                    let answered = lives.answer_truthfully()?;
                    if answered.is_empty() {
                        break;
                    }
                    asked.extend(answered);
                }
                (None, Some(9)) => kills += 1,
                _ => break,
            }
            status = lives.resume(&moments.next().map_or(End::ByItself, End::Moment))?;
        }
        let outcome = match (status.code(), status.signal()) {
            (Some(0), _) => "succeeded".to_owned(),
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let counts = route.effects().iter().map(|effect| Ok((*effect, world.count(*effect)?)));
        let asked_pages = world.asked_pages()?;
        let mut cell = Self {
            route,
            point: point.clone(),
            counts: counts.collect::<anyhow::Result<_>>()?,
            page_requests: asked_pages.len(),
            kills,
            asked,
            leaks: 0,
            outcome,
            took: started.elapsed(),
            faults: Vec::new(),
            log: String::new(),
        };
        if !reached {
            cell.faults.push("the kill point was never reached".to_owned());
        }
        if !lives.records_hold()? {
            cell.faults.push("`ua db check --invariants` found the records broken".to_owned());
        }
        cell.judge();
        cell.judge_pages(&before_kill, &asked_pages);
        let canaries = world.canaries()?;
        cell.leaks = canaries.len();
        cell.faults.extend(canaries.iter().map(|file| format!("a key is in {file}")));
        cell.faults.extend(world.check_upload().err().map(|error| format!("{error:#}")));
        if !cell.faults.is_empty() {
            cell.log = world.log();
        }
        Ok(cell)
    }

    fn judge(&mut self) {
        let mut faults = Vec::new();
        if self.outcome != "succeeded" {
            faults.push(format!("the run ended with {}", self.outcome));
        }
        for (effect, count) in &self.counts {
            if *count != 1 {
                faults.push(format!("{} happened {count} times", effect.name()));
            }
        }
        match &self.point.kill {
            // Where it was killed decides whether a person is asked, and what is true then.
            Kill::Never | Kill::Seam(_) | Kill::Held { .. } => {
                let doubt = self.point.doubt.filter(|doubt| self.route.asks_about(doubt.effect));
                let expected: Vec<Doubt> = doubt.into_iter().collect();
                if self.asked != expected {
                    faults.push(format!("asked {:?}, expected {expected:?}", self.asked));
                }
            }
            // Any kill may hit one call on its way; that only an opaque one is asked about was checked at the answer.
            Kill::Moments(_) => {
                if self.asked.len() > self.kills {
                    faults.push(format!("{} questions after {} kills", self.asked.len(), self.kills));
                }
            }
        }
        self.faults.extend(faults);
    }

    /// A page that was stored is not fetched again; one on its way at a kill may be.
    fn judge_pages(&mut self, before_kill: &[String], all: &[String]) {
        let counts = count_pages(all);
        if counts.len() != PAGES {
            self.faults.push(format!("{} pages were fetched, not {PAGES}", counts.len()));
        }
        for (page, count) in counts {
            let limit = match &self.point.kill {
                Kill::Moments(_) => 1 + self.kills,
                Kill::Held { server: Kind::Site, requests, .. } => {
                    // Those that were answered before the first one was held.
                    let answered = before_kill.len().saturating_sub(requests.len());
                    if before_kill.iter().take(answered).any(|stored| stored == page) { 1 } else { 2 }
                }
                Kill::Never | Kill::Seam(_) | Kill::Held { .. } => 1,
            };
            if count > limit {
                self.faults.push(format!("{page} was fetched {count} times, expected at most {limit}"));
            }
        }
    }

    /// What was asked, for the table.
    pub(super) fn questions(&self) -> String {
        let told = |doubt: &Doubt| {
            format!(
                "{}: {}",
                doubt.effect.name(),
                if doubt.happened { "had happened" } else { "had not, was executed" }
            )
        };
        if self.asked.is_empty() {
            "–".to_owned()
        } else {
            self.asked.iter().map(told).collect::<Vec<_>>().join("; ")
        }
    }
}
