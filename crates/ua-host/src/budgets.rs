//! Budgets that a person changes on a resume. The contract stays as it is; the change is a row beside it.

use serde_json::{Value, json};
use ua_core::{Budgets, Env, Money, RunSpec};
use ua_store::{NewOverride, OverrideKind, RunRecord, RunRecords, RunStore as _, Store, change_budget};

use crate::error::HostError;
use crate::host::Host;
use crate::people::People;

/// One change, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetChange {
    budget: &'static str,
    /// The phase whose budget it is; `None` for the run's.
    phase: Option<String>,
    text: String,
}

/// The budgets that a phase has too.
const OF_PHASES: [&str; 4] = ["max_tool_calls", "max_turns", "max_tokens", "max_cost"];

/// The budget that only a job with a harness has; it is part of that, not of the budgets.
const MAX_ITERATIONS: &str = "max_iterations";

impl BudgetChange {
    /// The changes that are asked for: the names of budgets, each with a text like `+100` or `400`, of the run or of one of its phases. A
    /// text that cannot be one is refused before anything is touched.
    pub fn of(given: &[(&'static str, String)], phase: Option<&str>) -> Result<Vec<Self>, HostError> {
        let mut changes = Vec::new();
        for (budget, text) in given {
            let phase = phase.map(str::to_owned);
            if phase.is_some() && !OF_PHASES.contains(budget) {
                return Err(HostError::usage(format!(
                    "--{} is a budget of the run, not of a phase",
                    budget.replace('_', "-")
                ))
                .hint("give it in a separate command, without --phase"));
            }
            let change = Self { budget, phase, text: text.clone() };
            change.over(&json!(Budgets::default()))?;
            changes.push(change);
        }
        if changes.is_empty() && phase.is_some() {
            return Err(HostError::usage("--phase names the phase whose budget changes, but no budget is given")
                .hint("name one with it, for example --max-turns +5"));
        }
        Ok(changes)
    }

    /// Refuses what cannot be changed about this run, before the run is taken.
    pub(crate) fn check(&self, spec: &RunSpec) -> Result<(), HostError> {
        if self.budget == MAX_ITERATIONS && spec.harness.is_none() {
            return Err(HostError::usage("the run is not done in iterations, so there are none to add")
                .hint("leave --max-iterations out; `ua job FILE --harness` starts a run in iterations"));
        }
        let Some(phase) = self.phase.as_deref().filter(|phase| spec.phase(phase).is_none()) else { return Ok(()) };
        let names: Vec<&str> = spec.phases.iter().map(|phase| phase.name.as_str()).collect();
        let hint = match names.as_slice() {
            [] => "it has no phases; leave --phase out".to_owned(),
            names => format!("its phases are {}", names.join(", ")),
        };
        Err(HostError::usage(format!("the run has no phase `{phase}`")).hint(hint))
    }

    /// What the budget is after the change, as its JSON. `now` are the budgets that count, as theirs.
    fn over(&self, now: &Value) -> Result<Value, HostError> {
        let (adds, text) = self.text.strip_prefix('+').map_or((false, self.text.as_str()), |text| (true, text));
        let flag = format!("--{}", self.budget.replace('_', "-"));
        let wrong = || {
            HostError::usage(format!("cannot use {flag} {}", self.text))
                .hint(format!("write {flag} +100 to add to the current value, or {flag} 400 to set it"))
        };
        let before = Some(&now[self.budget]).filter(|_| adds);
        if self.budget == "max_cost" {
            let money = Money::parse(text).ok_or_else(|| {
                HostError::usage(format!("cannot use {flag} {}", self.text))
                    .hint("write an amount and its currency, for example +1.50 USD")
            })?;
            let before: Option<Money> = before.and_then(|now| serde_json::from_value(now.clone()).ok());
            let sum = match before {
                Some(now) => now.checked_add(money).ok_or_else(|| {
                    HostError::usage(format!("cannot add {money} to a budget of {now}"))
                        .hint("both must be in the same currency")
                })?,
                None => money,
            };
            if sum.nanos() == 0 {
                return Err(HostError::usage(format!("cannot use {flag} {}: no request would be possible", self.text))
                    .hint("write an amount above zero and its currency, for example +1.50 USD"));
            }
            return Ok(json!(sum));
        }
        let number: u64 = text.parse().map_err(|_| wrong())?;
        let sum = before.and_then(Value::as_u64).unwrap_or(0).checked_add(number).ok_or_else(wrong)?;
        let is_narrow = !matches!(self.budget, "max_tokens" | "max_wallclock_minutes");
        // No retries and no repeats are limits one may want; the others would leave nothing to do.
        let may_be_zero =
            matches!(self.budget, "max_retries_per_tool_call" | "max_same_error_repeats" | "max_provider_wait_minutes");
        if (sum == 0 && !may_be_zero) || (is_narrow && u32::try_from(sum).is_err()) {
            Err(wrong())
        } else {
            Ok(json!(sum))
        }
    }
}

/// Puts the changes into a contract that nobody has agreed to yet: a fork's.
pub(crate) fn put_into(changes: &[BudgetChange], spec: &mut RunSpec) -> Result<(), HostError> {
    let unreadable = |e: serde_json::Error| HostError::usage(format!("cannot change the budgets: {e}"));
    for change in changes {
        change.check(spec)?;
        let of_phase = spec.phases.iter_mut().find(|phase| Some(&phase.name) == change.phase.as_ref());
        if let Some(phase) = of_phase {
            let mut fields = serde_json::to_value(&phase.budgets).map_err(unreadable)?;
            fields[change.budget] = change.over(&fields)?;
            phase.budgets = serde_json::from_value(fields).map_err(unreadable)?;
        } else if let Some(harness) = spec.harness.as_mut().filter(|_| change.budget == MAX_ITERATIONS) {
            let mut fields = serde_json::to_value(&*harness).map_err(unreadable)?;
            fields[change.budget] = change.over(&fields)?;
            *harness = serde_json::from_value(fields).map_err(unreadable)?;
        } else {
            let mut fields = serde_json::to_value(&spec.budgets).map_err(unreadable)?;
            fields[change.budget] = change.over(&fields)?;
            spec.budgets = serde_json::from_value(fields).map_err(unreadable)?;
        }
    }
    Ok(())
}

/// Stores the changes for whoever drives the run next, and says what counts then.
///
/// # Errors
/// The run cannot have such budgets, or a store that fails.
pub async fn store_for_another(
    host: &Host,
    people: &dyn People,
    store: &dyn Store,
    run: &RunRecord,
    changes: &[BudgetChange],
) -> Result<(), HostError> {
    // What is asked for has to be possible before anything is changed.
    put_into(changes, &mut RunSpec::clone(&run.spec))?;
    let records = store.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
    apply(people, store, &records, changes, &host.settings().user(), host.env()).await
}

/// Stores the changes, and says what counts now.
pub(crate) async fn apply(
    people: &dyn People,
    store: &dyn Store,
    records: &RunRecords,
    changes: &[BudgetChange],
    made_by: &str,
    env: &Env,
) -> Result<(), HostError> {
    for change in changes {
        let (now, component) = match &change.phase {
            Some(phase) => (json!(records.phase_budgets(phase)), format!("{phase}.{}", change.budget)),
            None if change.budget == MAX_ITERATIONS => {
                (json!({ MAX_ITERATIONS: records.max_iterations() }), change.budget.to_owned())
            }
            None => (json!(records.budgets()), change.budget.to_owned()),
        };
        let value = change.over(&now)?;
        people.tell(&format!(
            "{component} is {} now",
            value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
        ));
        let change = NewOverride {
            run_id: records.run.run_id.clone(),
            kind: OverrideKind::Budget,
            component,
            value,
            made_by: made_by.to_owned(),
            at: env.now(),
        };
        change_budget(store, change).await.map_err(|e| HostError::store("change a budget", &e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(budget: &'static str, text: &str) -> Option<Value> {
        let now = Budgets { max_tokens: None, max_cost: Money::parse("2.50 USD"), ..Budgets::default() };
        BudgetChange { budget, phase: None, text: text.to_owned() }.over(&json!(now)).ok()
    }

    #[test]
    fn a_plus_adds_to_what_counts_and_a_number_sets_it() {
        let cases = [
            ("max_tool_calls", "+100", Some(json!(350))),
            ("max_tool_calls", "100", Some(json!(100))),
            ("max_tokens", "+100", Some(json!(100))),
            ("max_cost", "+1.50 USD", Some(json!("4.00 USD"))),
            ("max_cost", "$1", Some(json!("1.00 USD"))),
            ("max_cost", "+1 EUR", None),
            ("max_cost", "much", None),
            ("max_wallclock_minutes", "+10", Some(json!(100))),
            ("max_tool_calls", "0", None),
            ("max_tool_calls", "-3", None),
            ("max_tool_calls", "4294967296", None),
            ("max_tokens", "+18446744073709551615", Some(json!(u64::MAX))),
            ("max_turns", "", None),
            ("max_steps", "+10", Some(json!(60))),
            ("max_steps", "0", None),
            ("max_same_error_repeats", "0", Some(json!(0))),
            ("max_retries_per_tool_call", "+1", Some(json!(6))),
        ];
        for (budget, text, wanted) in cases {
            assert_eq!(after(budget, text), wanted, "{budget} {text}");
        }
    }

    #[test]
    fn a_phase_has_four_budgets_and_has_to_be_one_of_the_job() {
        let turns = [("max_turns", "+5".to_owned())];
        let changes = BudgetChange::of(&turns, Some("write")).unwrap();
        let job =
            r#"{"objective": "x", "phases": [{"name": "write", "instructions": "w", "budgets": {"max_turns": 2}}]}"#;
        let spec = RunSpec::parse(job).unwrap();
        assert!(changes[0].check(&spec).is_ok());
        assert_eq!(changes[0].over(&json!(spec.phases[0].budgets)).ok(), Some(json!(7)));
        assert!(BudgetChange::of(&turns, Some("x")).unwrap()[0].check(&spec).is_err());
        assert!(BudgetChange::of(&[("max_steps", "+5".to_owned())], Some("write")).is_err());
        assert!(BudgetChange::of(&[], Some("write")).is_err());
    }
}
