//! Budgets that a person changes on a resume. The contract stays as it is; the change is a row beside it.

use serde_json::{Value, json};
use ua_core::{Budgets, Env, Money, RunSpec};
use ua_store::{NewOverride, OverrideKind, RunRecords, Store};

use crate::args::BudgetArgs;
use crate::error::CliError;

/// One change, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BudgetChange {
    budget: &'static str,
    text: String,
}

impl BudgetChange {
    /// The changes that a command line asks for. A word that cannot be one is refused before anything is touched.
    pub(crate) fn of(args: &BudgetArgs) -> Result<Vec<Self>, CliError> {
        let named = [
            ("max_tool_calls", &args.max_tool_calls),
            ("max_turns", &args.max_turns),
            ("max_tokens", &args.max_tokens),
            ("max_cost", &args.max_cost),
            ("max_wallclock_minutes", &args.max_wallclock_minutes),
        ];
        let given = named.into_iter().filter_map(|(budget, text)| Some((budget, text.clone()?)));
        let changes = given.map(|(budget, text)| {
            let change = Self { budget, text };
            change.over(&Budgets::default()).map(|_| change)
        });
        changes.collect()
    }

    /// What the budget is after the change, as its JSON.
    fn over(&self, now: &Budgets) -> Result<Value, CliError> {
        let (adds, text) = self.text.strip_prefix('+').map_or((false, self.text.as_str()), |text| (true, text));
        let flag = format!("--{}", self.budget.replace('_', "-"));
        let wrong = || {
            CliError::usage(format!("cannot use {flag} {}", self.text))
                .hint(format!("write {flag} +100 to add to what counts now, or {flag} 400 to set it"))
        };
        if self.budget == "max_cost" {
            let money = Money::parse(text).ok_or_else(|| {
                CliError::usage(format!("cannot use {flag} {}", self.text))
                    .hint("write an amount and its currency, for example +1.50 USD")
            })?;
            let sum = match now.max_cost.filter(|_| adds) {
                Some(now) => now.checked_add(money).ok_or_else(|| {
                    CliError::usage(format!("cannot add {money} to a budget of {now}"))
                        .hint("both have to be in one currency")
                })?,
                None => money,
            };
            return if sum.nanos() == 0 { Err(wrong()) } else { Ok(json!(sum)) };
        }
        let number: u64 = text.parse().map_err(|_| wrong())?;
        let before = match self.budget {
            "max_tool_calls" => Some(u64::from(now.max_tool_calls)),
            "max_turns" => now.max_turns.map(u64::from),
            "max_tokens" => now.max_tokens,
            _ => Some(now.max_wallclock_minutes),
        };
        let sum = before.filter(|_| adds).unwrap_or(0).checked_add(number).ok_or_else(wrong)?;
        let is_narrow = matches!(self.budget, "max_tool_calls" | "max_turns");
        if sum == 0 || (is_narrow && u32::try_from(sum).is_err()) { Err(wrong()) } else { Ok(json!(sum)) }
    }
}

/// Puts the changes into a contract that nobody has agreed to yet: a fork's.
pub(crate) fn put_into(changes: &[BudgetChange], spec: &mut RunSpec) -> Result<(), CliError> {
    let before = spec.budgets.clone();
    let unreadable = |e: serde_json::Error| CliError::usage(format!("cannot change the budgets: {e}"));
    let mut fields = serde_json::to_value(&before).map_err(unreadable)?;
    for change in changes {
        fields[change.budget] = change.over(&before)?;
    }
    spec.budgets = serde_json::from_value(fields).map_err(unreadable)?;
    Ok(())
}

/// Stores the changes, and says what counts now.
pub(crate) async fn apply(
    store: &dyn Store,
    records: &RunRecords,
    changes: &[BudgetChange],
    env: &Env,
) -> Result<(), CliError> {
    let now = records.budgets();
    for change in changes {
        let value = change.over(&now)?;
        crate::output::tell(&format!(
            "{} is {} now",
            change.budget,
            value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
        ));
        let change = NewOverride {
            run_id: records.run.run_id.clone(),
            kind: OverrideKind::Budget,
            component: change.budget.to_owned(),
            value,
            made_by: crate::env::var("USER").unwrap_or_else(|| "a person".to_owned()),
            at: env.now(),
        };
        store.insert_override(change).await.map_err(|e| CliError::store("change a budget", &e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(budget: &'static str, text: &str) -> Option<Value> {
        let now = Budgets { max_tokens: None, max_cost: Money::parse("2.50 USD"), ..Budgets::default() };
        BudgetChange { budget, text: text.to_owned() }.over(&now).ok()
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
        ];
        for (budget, text, wanted) in cases {
            assert_eq!(after(budget, text), wanted, "{budget} {text}");
        }
    }
}
