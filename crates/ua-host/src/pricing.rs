//! The user's price table: which file it is, and whether it has what the job needs (Granular Execution PRD §6).

use std::path::{Path, PathBuf};

use ua_core::{Money, PriceTable, RunSpec, TokenPrice};

use crate::error::{HostError, chain};
use crate::paths::read;
use crate::settings::Settings;

/// The file of a new run: the one that is named, else `UA_PRICING`, else the user's own if there is one.
pub fn file(settings: &Settings, named: Option<&Path>) -> Result<Option<PathBuf>, HostError> {
    let named = named.map(Path::to_path_buf).or_else(|| settings.var("UA_PRICING").map(PathBuf::from));
    named.or_else(|| settings.user_file("pricing.toml")).map(|file| settings.absolute(&file)).transpose()
}

/// Reads the table; without a file it is empty, and all costs are unknown.
pub fn table(file: Option<&Path>) -> Result<PriceTable, HostError> {
    let Some(file) = file else { return Ok(PriceTable::default()) };
    let text = read(file, "the price table")?;
    PriceTable::parse(&file.display().to_string(), &text).map_err(|error| {
        // A project may name the file, and any text is a wrong table: what stands in it is not repeated.
        let whole = chain(&error);
        let told: Vec<&str> = whole.lines().filter(|line| !line.contains('|')).map(str::trim).collect();
        HostError::usage(told.join(" ").trim()).hint("docs/guide/models.md shows a price table; nothing was started")
    })
}

/// What a model's tokens cost. Claude Code asks a model of Anthropic, and may have prices of its own.
pub fn price(table: &PriceTable, provider: &str, model: &str) -> Option<TokenPrice> {
    let of_others = || (provider == ua_claude_code::NAME).then(|| table.price(ua_llm::ANTHROPIC, model)).flatten();
    table.price(provider, model).or_else(of_others)
}

/// Refuses a budget of money that could not be kept, and any table that cannot be read.
pub(crate) fn check(
    settings: &Settings,
    file: Option<&Path>,
    provider: &str,
    model: &str,
    spec: &RunSpec,
) -> Result<(), HostError> {
    let table = table(file)?;
    let limits = spec.budgets.max_cost.into_iter().chain(spec.phases.iter().filter_map(|phase| phase.budgets.max_cost));
    for max in limits {
        check_one(settings, &table, file, provider, model, max)?;
    }
    Ok(())
}

fn check_one(
    settings: &Settings,
    table: &PriceTable,
    file: Option<&Path>,
    provider: &str,
    model: &str,
    max: Money,
) -> Result<(), HostError> {
    let refused = |why: String, hint: String| Err(HostError::usage(why).hint(hint));
    match (price(table, provider, model), file) {
        (Some(price), _) if price.currency == max.currency() => Ok(()),
        (Some(price), _) => refused(
            format!("the job's max_cost is in {}, but the price of `{model}` is in {}", max.currency(), price.currency),
            "name both in one currency, `max_cost` in the job and `currency` in the price table; nothing was started"
                .to_owned(),
        ),
        (None, Some(file)) => refused(
            format!("the job has a max_cost, but {} has no price for `{model}` of `{provider}`", file.display()),
            format!(
                "add [providers.{provider}.\"{model}\"] with `input` and `output` per million tokens{}; `ua models show {model} --provider {provider}` \
                 prints the entry; nothing was started",
                said_to_cost(settings, provider, model)
            ),
        ),
        (None, None) => refused(
            format!("the job has a max_cost, but no price table has a price for `{model}` of `{provider}`"),
            format!(
                "name a price table with --pricing or UA_PRICING that has [providers.{provider}.\"{model}\"]{}; on a resume add \
                 --accept pricing; nothing was started",
                said_to_cost(settings, provider, model)
            ),
        ),
    }
}

/// What the model was said to cost, for a person to check and to write down.
fn said_to_cost(settings: &Settings, provider: &str, model: &str) -> String {
    let table = crate::models::table(settings).unwrap_or_default();
    let price = table.find(provider, model).and_then(|facts| facts.price.as_ref());
    price.map_or_else(String::new, |price| {
        let day = table.prices_as_of().unwrap_or("an unknown day");
        format!("(its list price on {day} was {} and {} dollars; check it)", price.input, price.output)
    })
}
