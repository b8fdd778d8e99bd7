//! The user's price table: which file it is, and whether it has what the job needs (Granular Execution PRD §6).

use std::path::{Path, PathBuf};

use ua_core::{Money, PriceTable, RunSpec, ShowPath as _, TokenPrice};
use ua_store::{RunQuery, Store as _};

use crate::Database;
use crate::error::{HostError, chain};
use crate::hint::{Hint, Word, text};
use crate::placed::{FileKind, Place};
use crate::settings::Settings;

/// The file of a new run: the one that is named, else `UA_PRICING`, else the user's own if there is one.
pub fn file(settings: &Settings, named: Option<&Path>) -> Result<Option<PathBuf>, HostError> {
    let named = named.map(Path::to_path_buf).or_else(|| settings.var("UA_PRICING").map(PathBuf::from));
    named.or_else(|| settings.user_file("pricing.toml")).map(|file| settings.absolute(&file)).transpose()
}

/// Whether nobody but a project names the file that `file` finds.
pub fn is_the_projects(settings: &Settings, named: Option<&Path>) -> bool {
    named.is_none() && settings.is_the_projects("UA_PRICING")
}

/// Reads the table; without a file it is empty, and all costs are unknown. One `of_project` only raises what the user's own table, and the
/// list prices that this version knows, say: a budget of money would hold nothing otherwise.
pub fn table(settings: &Settings, file: Option<&Path>, of_project: bool) -> Result<PriceTable, HostError> {
    let project = settings.project_folder();
    let named_by = project.as_deref().filter(|_| of_project);
    let table = read_table(settings, file, named_by)?;
    if !of_project {
        return Ok(table);
    }
    let users = settings.of_users_file("UA_PRICING").map(PathBuf::from).or_else(|| settings.user_file("pricing.toml"));
    let users = users.map(|file| settings.absolute(&file)).transpose()?;
    let users = read_table(settings, users.as_deref(), None)?.shared(ua_llm::ANTHROPIC, ua_claude_code::NAME);
    Ok(table.not_below(users).not_below(list_prices()))
}

/// What this version knows about prices, for every provider by its name.
fn list_prices() -> PriceTable {
    let shipped = ua_llm::ModelTable::shipped();
    let mut providers = toml::Table::new();
    for provider in crate::providers::NAMES {
        let kind = if provider == ua_claude_code::NAME { ua_llm::ANTHROPIC } else { provider };
        let mut models = toml::Table::new();
        for (_, model, _) in shipped.all() {
            let Some(price) = shipped.find(kind, model).and_then(|facts| facts.price.as_ref()) else { continue };
            let kinds = [
                ("input", Some(&price.input)),
                ("output", Some(&price.output)),
                ("cache_read", price.cache_read.as_ref()),
                ("cache_write", price.cache_write.as_ref()),
            ];
            let said = kinds.into_iter().filter_map(|(kind, price)| Some((kind.to_owned(), price?.clone().into())));
            models.insert(model.to_owned(), toml::Value::Table(said.collect()));
        }
        providers.insert(provider.to_owned(), models.into());
    }
    let text = toml::Table::from_iter([("providers".to_owned(), toml::Value::Table(providers))]).to_string();
    PriceTable::parse("the list prices", &text)
        .unwrap_or_else(|error| unreachable!("what is shipped is tested: {error}"))
}

/// Reads the table of a person, or of the project in `project`, whose settings name it.
fn read_table(settings: &Settings, file: Option<&Path>, project: Option<&Path>) -> Result<PriceTable, HostError> {
    let Some(file) = file else { return Ok(PriceTable::default()) };
    let place = match project {
        Some(project) => Place::of_project(FileKind::Prices, file, project),
        None => Place::of_user(settings, FileKind::Prices, file),
    };
    place.read()?.parse(|text| {
        PriceTable::parse(&file.shown().to_string(), text).map_err(|error| {
            // Without the lines themselves, which the parser draws.
            let whole = chain(&error);
            let told: Vec<&str> = whole.lines().filter(|line| !line.contains('|')).map(str::trim).collect();
            HostError::usage(told.join(" ").trim()).hint("docs/guide/models.md shows a price table").not_begun()
        })
    })
}

/// What a model's tokens cost. Claude Code asks a model of Anthropic, and may have prices of its own.
pub fn price(table: &PriceTable, provider: &str, model: &str) -> Option<TokenPrice> {
    let of_others = || (provider == ua_claude_code::NAME).then(|| table.price(ua_llm::ANTHROPIC, model)).flatten();
    table.price(provider, model).or_else(of_others)
}

/// The entry of a table without a price for a model that was probably meant for it: one for a provider or a model of which nobody knows, whose name is
/// like it.
pub fn slip(settings: &Settings, table: &PriceTable, provider: &str, model: &str) -> Option<String> {
    if price(table, provider, model).is_some() {
        return None;
    }
    let known = crate::models::table(settings).unwrap_or_default();
    let is_provider = |name: &str| name == "*" || crate::providers::NAMES.contains(&name);
    let strange = table.entries().map(|(name, _)| name).filter(|name| !is_provider(name));
    if let Some(meant) = ua_core::nearest(provider, strange) {
        return Some(format!("it has prices of `{}`: did you mean `{provider}`?", crate::text::line(meant, 60)));
    }
    let own = table.entries().filter(|(name, _)| *name == provider || *name == "*").map(|(_, model)| model);
    let strange = own.filter(|name| !name.ends_with('*') && !known.is_named(provider, name));
    let meant = ua_core::nearest(model, strange)?;
    Some(format!("it has a price of `{}`: did you mean `{model}`?", crate::text::line(meant, 60)))
}

/// The same of the table of a run, in a sentence of its own; nothing of one that cannot be read, which is refused elsewhere.
pub(crate) fn doubt(
    settings: &Settings,
    (file, of_project): (Option<&Path>, bool),
    provider: &str,
    model: &str,
) -> Option<String> {
    let file = file?;
    let table = table(settings, Some(file), of_project).ok()?;
    let slip = slip(settings, &table, provider, model)?;
    Some(format!("{} has no price for {model} of {provider}, so its cost is unknown; {slip}", file.shown()))
}

/// That what a run costs is not counted, with what changes it; `None` where it is, where no model is asked, and where an entry that was probably meant
/// is [named](doubt).
pub(crate) fn uncounted(
    settings: &Settings,
    (file, of_project): (Option<&Path>, bool),
    provider: &str,
    model: &str,
) -> Option<String> {
    if matches!(provider, "scripted" | "replay") {
        return None;
    }
    let table = table(settings, file, of_project).ok()?;
    if price(&table, provider, model).is_some() || doubt(settings, (file, of_project), provider, model).is_some() {
        return None;
    }
    let why = file
        .map_or_else(|| "there is no price table".to_owned(), |file| format!("{} has no price for it", file.shown()));
    Some(format!(
        "what {model} of {provider} costs is not counted: {why}. Tokens are; {} shows what to write down where costs are to be counted, too",
        crate::models::looked_up(provider, model)
    ))
}

/// How many runs are looked at for one that asked the same model.
const LOOKED_AT: u32 = 20;

/// Whether a run of this database has asked the model before: what is to be said of the model was said then.
pub(crate) async fn was_asked_before(store: &Database, provider: &str, model: &str) -> bool {
    let query = RunQuery { without_tasks: true, limit: LOOKED_AT, ..RunQuery::default() };
    // What cannot be read now is told of where it is needed.
    let Ok(heads) = store.find_runs(&query).await else { return true };
    for head in heads {
        let Ok(run) = store.run(&head.run_id).await else { continue };
        if run.launch["provider"] == provider && run.launch["model"] == model {
            return true;
        }
    }
    false
}

/// Refuses a budget of money that could not be kept, and any table that cannot be read.
pub(crate) fn check(
    settings: &Settings,
    (file, of_project): (Option<&Path>, bool),
    provider: &str,
    model: &str,
    spec: &RunSpec,
) -> Result<(), HostError> {
    let table = table(settings, file, of_project)?;
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
    let refused = |why: String, hint: Hint| Err(HostError::usage(why).hint(hint).not_begun());
    match (price(table, provider, model), file) {
        (Some(price), _) if price.currency == max.currency() => Ok(()),
        (Some(price), _) => refused(
            format!("the max_cost is in {}, but the price of `{model}` is in {}", max.currency(), price.currency),
            "name both in one currency, `max_cost` in the job and `currency` in the price table".into(),
        ),
        (None, Some(file)) => refused(
            format!(
                "a max_cost needs a price, and {} has no price for `{model}` of `{provider}`{}",
                file.shown(),
                slip(settings, table, provider, model).map_or_else(String::new, |slip| format!(" ({slip})"))
            ),
            format!(
                "add [providers.{provider}.\"{model}\"] with `input` and `output` per million tokens{}; {} prints the entry",
                said_to_cost(settings, provider, model),
                crate::models::looked_up(provider, model)
            )
            .into(),
        ),
        (None, None) => refused(
            format!("a max_cost needs a price, and no price table has a price for `{model}` of `{provider}`"),
            Hint::from([
                text(format!(
                    "name a price table with --pricing or UA_PRICING that has [providers.{provider}.\"{model}\"]{}; of a run that was begun, ",
                    said_to_cost(settings, provider, model)
                )),
                Word::Resume(" --accept pricing"),
                text(" takes it"),
            ]),
        ),
    }
}

/// What the model was said to cost, for a person to check and to write down.
fn said_to_cost(settings: &Settings, provider: &str, model: &str) -> String {
    let table = crate::models::table(settings).unwrap_or_default();
    let price = table.find(provider, model).and_then(|facts| facts.price.as_ref());
    price.map_or_else(String::new, |price| {
        let day = table.prices_as_of().unwrap_or("an unknown day");
        format!(" (its list price on {day} was {} and {} dollars; check it)", price.input, price.output)
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;
    use crate::env::Process;

    #[test]
    fn where_nothing_is_counted_it_is_said_with_what_changes_it() {
        let settings = Settings::default();
        let said = uncounted(&settings, (None, false), "anthropic", "claude-sonnet-4-5").unwrap();
        assert!(
            said.starts_with("what claude-sonnet-4-5 of anthropic costs is not counted: there is no price table"),
            "{said}"
        );
        assert!(said.contains("`ua models show claude-sonnet-4-5 --provider anthropic`"), "{said}");
        assert_eq!(uncounted(&settings, (None, false), "scripted", "scripted"), None, "a script costs nothing");
    }

    #[test]
    fn a_price_under_a_misspelt_name_is_named() {
        let settings = Settings::read(Process::default());
        let said = |entry: &str| {
            let table = PriceTable::parse("p", &format!("[providers.{entry}]\ninput = 1\noutput = 1\n")).unwrap();
            slip(&settings, &table, "anthropic", "claude-sonnet-4-5")
        };
        let provider = said("antropic.\"claude-sonnet-4-5\"").unwrap();
        assert_eq!(provider, "it has prices of `antropic`: did you mean `anthropic`?");
        let model = said("anthropic.\"claude-sonet-4-5\"").unwrap();
        assert_eq!(model, "it has a price of `claude-sonet-4-5`: did you mean `claude-sonnet-4-5`?");
        // One for this model, for another one that is known, for another provider, and for a family.
        for right in [
            "anthropic.\"claude-sonnet-*\"",
            "\"*\".\"claude-sonnet-4-5\"",
            "anthropic.\"claude-opus-4-5\"",
            "openai.\"gpt-5\"",
            "anthropic.\"claude-opus-*\"",
        ] {
            assert_eq!(said(right), None, "{right}");
        }
    }

    #[test]
    fn a_projects_prices_only_raise_what_the_user_and_this_version_say() {
        let folder = tempfile::tempdir().unwrap();
        let (config, work) = (folder.path().join("config/ua"), folder.path().join("work"));
        std::fs::create_dir_all(&config).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        let users =
            "[providers.scripted.m]\ninput = 1000\noutput = 5\n[providers.anthropic.mine]\ninput = 7\noutput = 7\n";
        std::fs::write(config.join("pricing.toml"), users).unwrap();
        let shipped = list_prices();
        let known = "claude-sonnet-4-5";
        assert!(shipped.price("anthropic", known).is_some_and(|price| price.input_nanos_per_million > 0));
        let projects = "[providers.scripted.m]\ninput = 0\noutput = 9\n[providers.claude-code.mine]\ninput = 0\noutput = 0\n\
                        [providers.anthropic.\"claude-*\"]\ninput = 0\noutput = 0\n[providers.scripted.new]\ninput = 1\noutput = 1\n";
        std::fs::write(work.join("p.toml"), projects).unwrap();
        std::fs::write(work.join("ua.toml"), "pricing = \"p.toml\"\n").unwrap();
        let read = |variables: &[(&str, &Path)]| {
            let own = [("XDG_CONFIG_HOME", folder.path().join("config"))];
            let more = variables.iter().map(|(name, path)| ((*name).to_owned(), path.display().to_string()));
            let own = own.into_iter().map(|(name, path)| (name.to_owned(), path.display().to_string()));
            Settings::read(Process { variables: own.chain(more).collect(), folder: Some(work.clone()), program: None })
        };
        let prices = |settings: &Settings, provider: &str, model: &str| {
            let of_project = is_the_projects(settings, None);
            let table = table(settings, file(settings, None).unwrap().as_deref(), of_project).unwrap();
            price(&table, provider, model).map(|price| {
                (price.input_nanos_per_million / 1_000_000_000, price.output_nanos_per_million / 1_000_000_000)
            })
        };
        let project = read(&[]);
        assert_eq!(prices(&project, "scripted", "m"), Some((1000, 9)), "the dearer of each kind");
        assert_eq!(prices(&project, "claude-code", "mine"), Some((7, 7)), "by the other name of a provider, too");
        assert_eq!(prices(&project, "scripted", "new"), Some((1, 1)), "what nobody else knows");
        let list = shipped.price("anthropic", known).map(|price| price.input_nanos_per_million / 1_000_000_000);
        assert_eq!(prices(&project, "anthropic", known).map(|(input, _)| input), list);
        // Whatever a person names holds as it is.
        let file_of_project = work.join("p.toml");
        let named = read(&[("UA_PRICING", file_of_project.as_path())]);
        assert_eq!(prices(&named, "scripted", "m"), Some((0, 9)));
        // The user's configuration names another file.
        std::fs::rename(config.join("pricing.toml"), config.join("other.toml")).unwrap();
        std::fs::write(config.join("config.toml"), "pricing = \"other.toml\"\n").unwrap();
        assert_eq!(prices(&read(&[]), "scripted", "m"), Some((1000, 9)));
    }
}
