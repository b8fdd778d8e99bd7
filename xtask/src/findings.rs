//! Findings as black-box scenarios: each plays one way in which a version repeated an effect, lost a person's word, charged wrongly or
//! stopped without need, and says whether the program under test still does.
//!
//! A scenario uses what anybody has: the command line, exit codes, `--json`, files, signals, and tool and model servers of its own, which count effects
//! outside. It knows nothing of kill points or of the database's tables, so it judges any later version, and any earlier one, alike. A verdict
//! rests on effects, exit codes and stored statuses, not on wording.
//!
//! Left out, because nothing outside shows them or no user can bring them about: how the code is divided (10), a clock that is set forward, and a
//! restore from another PID namespace (9).

mod cost;
mod doubt;
mod lineage;
mod stops;
mod storage;
mod word;

use crate::scenario::{Options, Scenario};

/// Every scenario, by families.
fn scenarios() -> Vec<Scenario> {
    [doubt::SCENARIOS, lineage::SCENARIOS, word::SCENARIOS, cost::SCENARIOS, storage::SCENARIOS, stops::SCENARIOS]
        .into_iter()
        .flat_map(|family| family.iter().copied())
        .collect()
}

/// Plays them.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    crate::scenario::run(options, scenarios(), |_| false)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_names_one_scenario() {
        let all = scenarios();
        let numbers: BTreeSet<&str> = all.iter().map(|scenario| scenario.number).collect();
        assert_eq!(numbers.len(), all.len());
    }
}
