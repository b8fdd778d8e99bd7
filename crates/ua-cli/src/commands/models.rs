//! `ua models`: what is known about models by name.

use std::path::Path;

use clap::Subcommand;
use ua_core::{Money, Settings as JobSettings, ShowPath as _, TokenPrice};
use ua_host::{Settings, models, pricing, providers};
use ua_llm::{ModelFacts, ModelPrice, ModelTable};

use crate::args::not_empty;
use crate::error::{HostError, OK};
use crate::output::{plain, print, print_json, print_table};
use crate::view::{ModelPriceShown, ModelRow, ModelShown};

/// `ua models …`.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models that are known by name
    #[command(after_help = "\
Examples:
  ua models list
  ua models list --provider anthropic
  ua models list --json | jq '.[] | select(.context_tokens > 500000)'

Entries of the user's models.toml (or UA_MODELS) override those of this version; SOURCE says `project` where the project's ua.toml names the file. Prices are those of the day that is shown; what a \
run is charged is what your own price table says.")]
    List {
        /// Only those of this provider
        #[arg(long, value_parser = not_empty(), value_name = "NAME")]
        provider: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the limits and prices that a run with a model would use
    #[command(after_help = "\
Examples:
  ua models show claude-sonnet-4-5
  ua models show qwen3:8b --provider openai-chat")]
    Show {
        /// The provider's name of the model
        model: String,
        /// The provider [default: UA_PROVIDER, else anthropic]
        #[arg(long, value_parser = not_empty(), value_name = "NAME")]
        provider: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(settings: &Settings, command: &ModelsCommand) -> Result<u8, HostError> {
    match command {
        ModelsCommand::List { provider, json } => list(settings, provider.as_deref(), *json),
        ModelsCommand::Show { model, provider, json } => show(settings, model, provider.as_deref(), *json),
    }
}

fn list(settings: &Settings, provider: Option<&str>, json: bool) -> Result<u8, HostError> {
    let own = models::of_user(settings)?;
    let all = ModelTable::shipped().overlaid(own.clone());
    let whose = if models::are_the_projects(settings) { "project" } else { "user" };
    // A user's own table may name others.
    if let Some(provider) = provider.filter(|name| !all.all().any(|(provider, _, _)| provider == *name)) {
        providers::check_name(provider)?;
    }
    let kind = provider.map(|provider| provider.strip_suffix("-chat").unwrap_or(provider));
    let wanted = |name: &str| provider.is_none() || provider == Some(name) || kind == Some(name);
    let rows: Vec<ModelRow> = all
        .all()
        .filter(|(provider, _, _)| wanted(provider))
        .map(|(provider, name, facts)| row(provider, name, facts, (&own, whose), all.prices_as_of()))
        .collect();
    if json || crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let cells = rows.iter().map(|row| {
        let price = row.price.as_ref();
        vec![
            row.provider.clone(),
            row.name.clone(),
            price.map_or_else(|| "-".to_owned(), |price| price.input.clone()),
            price.map_or_else(|| "-".to_owned(), |price| price.output.clone()),
            number(row.context_tokens),
            number(row.max_output_tokens),
            row.source.clone(),
        ]
    });
    print_table(&crate::listings::MODELS, cells.collect())?;
    if let Some(day) = all.prices_as_of() {
        print(format!(
            "\nPrices are those of {day}, for reading only: a run is charged by your own price table (`ua models show MODEL` says how).\n"
        ))?;
    }
    Ok(OK)
}

fn row(
    provider: &str,
    name: &str,
    facts: &ModelFacts,
    (own, whose): (&ModelTable, &str),
    day: Option<&str>,
) -> ModelRow {
    let is_own = own.all().any(|(of, model, _)| of == provider && model == name);
    ModelRow {
        provider: provider.to_owned(),
        name: name.to_owned(),
        context_tokens: facts.context,
        max_output_tokens: facts.max_output.map(u64::from),
        images: facts.images,
        structured: facts.structured,
        price: facts.price.as_ref().map(|price| shown_price(price, day.filter(|_| !is_own))),
        source: if is_own { whose } else { "shipped" }.to_owned(),
    }
}

fn shown_price(price: &ModelPrice, day: Option<&str>) -> ModelPriceShown {
    ModelPriceShown {
        input: price.input.clone(),
        output: price.output.clone(),
        cache_read: price.cache_read.clone(),
        cache_write: price.cache_write.clone(),
        as_of: day.map(str::to_owned),
    }
}

fn show(settings: &Settings, model: &str, provider: Option<&str>, json: bool) -> Result<u8, HostError> {
    let provider = provider.map_or_else(|| providers::default_provider(settings), str::to_owned);
    let own = models::of_user(settings)?;
    let table = ModelTable::shipped().overlaid(own.clone());
    let facts = table.find(&provider, model);
    let is_own = own.find(&provider, model).is_some();
    let output = models::output_tokens(facts);
    let wanted = JobSettings::default().history_max_tokens;
    let history = facts.and_then(|facts| facts.history_tokens(output)).map_or(wanted, |most| most.min(wanted));
    let of_project = pricing::is_the_projects(settings, None);
    let prices =
        pricing::file(settings, None).and_then(|file| pricing::table(settings, file.as_deref(), of_project))?;
    let named = models::named(settings, &provider, model)?;
    let shown = ModelShown {
        provider: provider.clone(),
        model: model.to_owned(),
        known: named.is_ok(),
        nearest: named.err().flatten(),
        context_tokens: facts.and_then(|facts| facts.context),
        max_output_tokens: facts.and_then(|facts| facts.max_output).map(u64::from),
        images: facts.is_some_and(|facts| facts.images),
        structured: facts.is_some_and(|facts| facts.structured),
        reply_tokens: output.into(),
        history_tokens: history,
        price: facts
            .and_then(|facts| facts.price.as_ref())
            .map(|price| shown_price(price, table.prices_as_of().filter(|_| !is_own))),
        charged: pricing::price(&prices, &provider, model).is_some(),
    };
    if json || crate::terminal::is_json() {
        print_json(&shown)?;
        return Ok(OK);
    }
    // Where the user's configuration is elsewhere, a table in the usual place counts for nothing.
    let elsewhere = || settings.var("XDG_CONFIG_HOME").and_then(|_| settings.user_place("pricing.toml"));
    let counted_by = pricing::file(settings, None)?.or_else(elsewhere);
    let price = pricing::price(&prices, &provider, model);
    print(page(&shown, &cost(&shown, price.as_ref(), counted_by.as_deref())))?;
    let others = table.all().filter(|(of, name, _)| !shown.known && *of != provider && *name == model);
    for (of, name, _) in others {
        print(plain(&format!("It is known of the provider {of}: {}\n", ua_host::models::looked_up(of, name))))?;
    }
    Ok(OK)
}

/// Where a price table is looked for that no setting names.
const USUAL_TABLE: &str = "~/.config/ua/pricing.toml";

/// What runs are charged, and where nothing is, why, and what changes that.
fn cost(shown: &ModelShown, price: Option<&TokenPrice>, table: Option<&Path>) -> String {
    let table = table.map_or_else(|| USUAL_TABLE.to_owned(), |file| file.shown().to_string());
    let amount = |nanos: u64, price: &TokenPrice| Money::from_nanos(nanos, price.currency).to_string();
    if let Some(price) = price {
        let (input, output) = (price.input_nanos_per_million, price.output_nanos_per_million);
        return format!(
            "counted by {table}: {} in, {} out per million tokens",
            amount(input, price),
            amount(output, price)
        );
    }
    let Some(said) = &shown.price else {
        return format!("not counted: {table} has no price for it (docs/guide/models.md shows one)");
    };
    let mut entry = format!(
        "not counted: the price above is shown only, and `max_cost` and the cost of runs go by a price table of your own. Once you have checked \
         it, this in {table} counts it:\n\n  [providers.{}.{:?}]\n",
        shown.provider, shown.model
    );
    let rates = [
        ("input", Some(&said.input)),
        ("output", Some(&said.output)),
        ("cache_read", said.cache_read.as_ref()),
        ("cache_write", said.cache_write.as_ref()),
    ];
    for (name, rate) in rates {
        entry.push_str(&rate.map_or_else(String::new, |rate| format!("  {name} = {rate}\n")));
    }
    entry
}

fn page(shown: &ModelShown, cost: &str) -> String {
    let number = |number: Option<u64>| number.map_or_else(|| "not known".to_owned(), |number| number.to_string());
    let mut page = plain(&format!("Model          {}\nProvider       {}\n", shown.model, shown.provider));
    page.push_str(&format!("Context        {}\n", number(shown.context_tokens)));
    page.push_str(&format!("Max output     {}\n", number(shown.max_output_tokens)));
    page.push_str(&format!(
        "Reply          {} tokens, unless the job's model.max_output_tokens says otherwise\n",
        shown.reply_tokens
    ));
    page.push_str(&format!(
        "History        {} tokens, unless settings.history_max_tokens is less\n",
        shown.history_tokens
    ));
    let images = if shown.images { "those in tool results are sent" } else { "not sent" };
    page.push_str(&format!("Images         {images}\n"));
    let schema =
        if shown.structured { "part of each request, and checked" } else { "described in the prompt, and checked" };
    page.push_str(&format!("Output schema  {schema}\n"));
    let price = match &shown.price {
        None => "not known".to_owned(),
        Some(price) => {
            let day =
                price.as_of.as_ref().map_or_else(|| " (of your models.toml)".to_owned(), |day| format!(" (of {day})"));
            plain(&format!("${} in, ${} out per million tokens{day}", price.input, price.output))
        }
    };
    page.push_str(&format!("Price          {price}\n"));
    page.push_str(&format!("Cost           {}\n", plain(cost).trim_end()));
    if !shown.known {
        let meant = shown.nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
        let above =
            if shown.context_tokens.is_some() { " The values above are those of its whole family." } else { "" };
        page.push_str(&plain(&format!(
            "\nNo model of this name is known{meant}.{above} An entry in models.toml can describe it (docs/guide/models.md).\n"
        )));
    }
    page
}
