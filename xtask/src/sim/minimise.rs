//! Leaving things out while what is wrong stays: first intents of the job, then faults, one by one.

use ua_testkit::sim::{Report, SimOptions, SimStore, simulate};

use super::Stores;

/// What is left.
pub(super) struct Smaller {
    pub(super) options: SimOptions,
    pub(super) trace: Vec<String>,
    pub(super) words: Vec<String>,
}

/// What has to stay, of each violation.
fn signs(report: &Report) -> Vec<&'static str> {
    report.violations.iter().map(|violation| violation.wrong.name()).collect()
}

/// As small as it gets while the first thing that is wrong stays.
pub(super) fn smaller(options: &SimOptions, stores: Stores) -> anyhow::Result<Smaller> {
    let report = simulate(&SimOptions { store: store(stores), ..options.clone() })?;
    let sign = signs(&report).into_iter().next().unwrap_or_default();
    let mut best = SimOptions { store: store(stores), ..options.clone() };
    let mut report = report;
    loop {
        let before = (best.without.len(), best.without_intents.len());
        for number in report.intents.clone() {
            if best.without_intents.contains(&number) {
                continue;
            }
            let mut tried = best.clone();
            tried.without_intents.push(number);
            take(&mut best, &mut report, tried, sign)?;
        }
        let mut fault = 1;
        while fault <= report.harmful {
            if !best.without.contains(&fault) {
                let mut tried = best.clone();
                tried.without.push(fault);
                take(&mut best, &mut report, tried, sign)?;
            }
            fault += 1;
        }
        if (best.without.len(), best.without_intents.len()) == before {
            break;
        }
    }
    // What was drawn beyond the last one that happened means nothing any more.
    best.without.retain(|fault| *fault <= report.harmful);
    let words = report.violations.iter().map(ToString::to_string).collect();
    Ok(Smaller { options: best, trace: report.trace, words })
}

fn take(best: &mut SimOptions, report: &mut Report, tried: SimOptions, sign: &str) -> anyhow::Result<()> {
    let came = simulate(&tried)?;
    let is_shorter = came.trace.len() <= report.trace.len();
    if is_shorter && signs(&came).contains(&sign) {
        (*best, *report) = (tried, came);
    }
    Ok(())
}

fn store(stores: Stores) -> SimStore {
    stores.kinds().first().copied().unwrap_or(SimStore::Memory)
}
