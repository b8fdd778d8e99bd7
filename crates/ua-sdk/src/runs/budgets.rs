//! Budgets of a run that exists: which count, and what a program changes about them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use ua_core::{Budgets, Component, Currency, Money, RunId, Timestamp};
use ua_store::{NewOverride, OverrideKind, OverrideRecord, RequestRecord, RunStore as _, Turns, change_budget};

use super::{BY, Runs, run_id};
use crate::error::Error;

impl Runs {
    /// The budgets of a run that count: those of its step, with what was changed since by [`Runs::set_budget`], [`Runs::raise_budget`] or
    /// `ua resume`.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn budgets(&self, id: &str) -> Result<Budgets, Error> {
        let records = self.store.load_of(&run_id(id)?, Turns::NONE).await.map_err(Error::store("read the run"))?;
        Ok(records.budgets())
    }

    /// Raises a budget of a run that exists by so much, over what counts now, and returns what counts then. `more` is a number, for `max_cost` an
    /// amount as text (`"1.50 USD"`). What is stored is the sum: two that raise the same budget at once may both come to the same one. The rest is as
    /// [`Runs::set_budget`] says.
    ///
    /// # Errors
    /// Those of [`Runs::set_budget`]; [`Error::Refused`] also for a budget that has no limit, and for a sum that is too large.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # async fn more(runs: &Runs, step: &Step) -> Result<(), Error> {
    /// let mut outcome = runs.run(step, "november").await?;
    /// if outcome.budgets_reached().iter().any(|reached| reached.budget == "max_turns") {
    ///     runs.raise_budget("november", "max_turns", 10).await?;
    ///     outcome = runs.run(step, "november").await?;
    /// }
    /// println!("{outcome}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn raise_budget(&self, id: &str, budget: &str, more: impl Into<Value>) -> Result<Budgets, Error> {
        self.may_be_changed()?;
        check_name(budget)?;
        let more = more.into();
        let now = serde_json::to_value(self.budgets(id).await?).unwrap_or_default();
        let sum = raised(&now[budget], &more)
            .map_err(|why| Error::Refused(format!("the budget `{budget}` cannot be raised by {more}: {why}")))?;
        self.set_budget(id, budget, sum).await?;
        self.budgets(id).await
    }

    /// Sets a budget of a run that exists: `max_turns`, `max_tool_calls`, `max_tokens`, `max_wallclock_minutes` and the others of
    /// [`Budgets`], by the names of their fields (`max_cost` as text, for example `"3 USD"`). [`Value::Null`] takes a limit away that need not be there
    /// (`max_turns`, `max_tokens`, `max_cost`). The step's definition stays as it is; the run continues when it is run again.
    /// Time and patience (`max_wallclock_minutes`, `max_provider_wait_minutes`) are also those of the sub-agents that are at work for it.
    ///
    /// # Errors
    /// [`Error::Refused`] for a budget that does not exist or a value it cannot have, for a `max_cost` of a run whose requests have no price, and for a
    /// run that has ended; [`Error::Store`].
    pub async fn set_budget(&self, id: &str, budget: &str, value: impl Into<Value>) -> Result<(), Error> {
        self.may_be_changed()?;
        let (run, value) = (self.get(id).await?, value.into());
        let mut fields = serde_json::to_value(&run.spec.budgets).unwrap_or_default();
        check_name(budget)?;
        fields[budget] = value.clone();
        let wrong = |why: &str| Err(Error::Refused(format!("the budget `{budget}` cannot be {value}: {why}")));
        match serde_json::from_value::<Budgets>(fields) {
            Err(why) => return wrong(&why.to_string()),
            Ok(budgets) => {
                if let Some((_, why)) = ua_core::budget_flaws(&budgets).into_iter().find(|(name, _)| *name == budget) {
                    return wrong(why.strip_prefix("is 0: ").unwrap_or(why));
                }
                if let Some(max) = budgets.max_cost.filter(|_| budget == "max_cost") {
                    match self.currency_of(&run.run_id).await? {
                        Priced::In(price) if price != max.currency() => {
                            return wrong(&format!(
                                "the run's requests are priced in {price}; other prices are accepted first (`Runs::run_accepting` with \
                                 `Component::Pricing`)"
                            ));
                        }
                        Priced::Not => {
                            return wrong(
                                "the run's requests have no price, so it could not be kept; prices are accepted first (`Step::prices`, with \
                                 `Runs::run_accepting` and `Component::Pricing`)",
                            );
                        }
                        Priced::In(_) | Priced::Unknown => {}
                    }
                }
            }
        }
        let change = NewOverride {
            run_id: run.run_id,
            kind: OverrideKind::Budget,
            component: budget.to_owned(),
            value,
            made_by: BY.to_owned(),
            at: self.env.now(),
        };
        match change_budget(self.store.as_ref(), change).await {
            Ok(_) => Ok(()),
            Err(source) => Err(self.not_changed(id, "change the budget", source).await),
        }
    }

    /// How the requests of a run are priced, as far as that is known: by its newest priced one, or by all that have no price, unless other prices were
    /// accepted since.
    async fn currency_of(&self, run: &RunId) -> Result<Priced, Error> {
        let records = self.store.load(run).await.map_err(Error::store("load the run"))?;
        let accepted = |at: Timestamp| {
            let is_of_prices = |row: &OverrideRecord| {
                row.kind == OverrideKind::Pin && row.component == Component::Pricing.as_str() && row.created_at >= at
            };
            records.overrides.iter().any(is_of_prices)
        };
        let newest = |is_it: fn(&&RequestRecord) -> bool| records.requests.iter().rev().find(is_it);
        let found = newest(|request| request.price.is_some()).or_else(|| newest(|_| true));
        let Some(request) = found.filter(|request| !accepted(request.reserved_at)) else { return Ok(Priced::Unknown) };
        Ok(request.price.map_or(Priced::Not, |price| Priced::In(price.currency)))
    }
}

/// How the requests of a run are priced.
enum Priced {
    In(Currency),
    Not,
    /// It has made none yet, or other prices were accepted since.
    Unknown,
}

/// A budget that counts and so much more, each as its JSON; why there is no such sum.
fn raised(now: &Value, more: &Value) -> Result<Value, String> {
    if now.is_null() {
        return Err("it has no limit; `Runs::set_budget` gives it one".to_owned());
    }
    let money = |value: &Value| value.as_str().and_then(Money::parse);
    if let Some(now) = money(now) {
        let Some(more) = money(more) else {
            return Err("it is an amount of money; say one as text, as in \"1.50 USD\"".to_owned());
        };
        let sum = now.checked_add(more);
        return sum
            .map(|sum| json!(sum))
            .ok_or_else(|| format!("it is {now}, and what is added has to be in that currency"));
    }
    let (Some(now), Some(more)) = (now.as_u64(), more.as_u64()) else {
        return Err("it is a number; say how many more, as a number that is not below 0".to_owned());
    };
    now.checked_add(more).map(Value::from).ok_or_else(|| format!("it is {now}, and the sum is too large"))
}

/// Refuses a name that no budget has.
fn check_name(budget: &str) -> Result<(), Error> {
    let names = budget_names();
    if names.contains(budget) {
        return Ok(());
    }
    let names: Vec<String> = names.into_iter().collect();
    Err(Error::Refused(format!("there is no budget `{budget}`; budgets are {}", names.join(", "))))
}

/// The names of all budgets. Those that may be without a limit have one here, since a budget without one is not written.
fn budget_names() -> BTreeSet<String> {
    let all =
        Budgets { max_turns: Some(1), max_tokens: Some(1), max_cost: Money::parse("1 USD"), ..Budgets::default() };
    let all = serde_json::to_value(all).unwrap_or_default();
    all.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_raised_by_what_is_of_its_kind() {
        let cases = [
            (json!(20), json!(5), Ok(json!(25))),
            (json!("1.00 USD"), json!("0.50 USD"), Ok(json!("1.50 USD"))),
            (Value::Null, json!(5), Err("no limit")),
            (json!(20), json!(-5), Err("a number")),
            (json!(20), json!("5 USD"), Err("a number")),
            (json!("1.00 USD"), json!(5), Err("an amount")),
            (json!("1.00 USD"), json!("1 EUR"), Err("that currency")),
            (json!(u64::MAX), json!(1), Err("too large")),
        ];
        for (now, more, wanted) in cases {
            match (raised(&now, &more), wanted) {
                (Ok(sum), Ok(wanted)) => assert_eq!(sum, wanted, "{now} {more}"),
                (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{now} {more}: {why}"),
                (other, _) => panic!("{now} {more}: {other:?}"),
            }
        }
    }

    /// A field that is added to the budgets does not compile here until somebody looks whether it can be set.
    #[test]
    fn every_budget_has_its_name() {
        let ua_core::Budgets {
            max_wallclock_minutes: _,
            max_steps: _,
            max_tool_calls: _,
            max_retries_per_tool_call: _,
            max_same_error_repeats: _,
            max_provider_wait_minutes: _,
            max_turns: _,
            max_tokens: _,
            max_cost: _,
        } = ua_core::Budgets::default();
        let names: Vec<String> = budget_names().into_iter().collect();
        let wanted = [
            "max_cost",
            "max_provider_wait_minutes",
            "max_retries_per_tool_call",
            "max_same_error_repeats",
            "max_steps",
            "max_tokens",
            "max_tool_calls",
            "max_turns",
            "max_wallclock_minutes",
        ];
        assert_eq!(names, wanted);
    }
}
