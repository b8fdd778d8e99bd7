//! Budgets: flags of `ua resume` and `ua fork`.

use clap::Args;
use ua_host::HostError;
use ua_host::budgets::BudgetChange;

use crate::args::not_empty;

/// Budgets that a resume may change: `+100` adds to what counts now, `400` sets it.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Budgets (+N adds to the current value, N sets it)")]
pub struct BudgetArgs {
    /// Tool calls
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_tool_calls: Option<String>,
    /// Turns
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_turns: Option<String>,
    /// Tokens of all requests
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_tokens: Option<String>,
    /// Money for all requests, for example `+1.50 USD`
    #[arg(long, value_parser = not_empty(), value_name = "[+]MONEY")]
    pub max_cost: Option<String>,
    /// Wall-clock minutes the run may be active
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_wallclock_minutes: Option<String>,
    /// Steps: the phases and iterations that begin
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_steps: Option<String>,
    /// Iterations of a job with a harness
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_iterations: Option<String>,
    /// Retries per failed tool call
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_retries_per_tool_call: Option<String>,
    /// Consecutive identical errors
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_same_error_repeats: Option<String>,
    /// Minutes to wait for one reply while the provider cannot answer
    #[arg(long, value_parser = not_empty(), value_name = "[+]N")]
    pub max_provider_wait_minutes: Option<String>,
    /// Change the budgets of this phase instead of the run's: tool calls, turns, tokens, money
    #[arg(long, value_parser = not_empty(), value_name = "NAME")]
    pub phase: Option<String>,
}

impl BudgetArgs {
    /// The changes that are asked for.
    pub(crate) fn changes(&self) -> Result<Vec<BudgetChange>, HostError> {
        let named = [
            ("max_tool_calls", &self.max_tool_calls),
            ("max_turns", &self.max_turns),
            ("max_tokens", &self.max_tokens),
            ("max_cost", &self.max_cost),
            ("max_wallclock_minutes", &self.max_wallclock_minutes),
            ("max_steps", &self.max_steps),
            ("max_iterations", &self.max_iterations),
            ("max_retries_per_tool_call", &self.max_retries_per_tool_call),
            ("max_same_error_repeats", &self.max_same_error_repeats),
            ("max_provider_wait_minutes", &self.max_provider_wait_minutes),
        ];
        let given: Vec<_> = named.into_iter().filter_map(|(budget, text)| Some((budget, text.clone()?))).collect();
        BudgetChange::of(&given, self.phase.as_deref())
    }
}
