//! What is known about models: the shipped data with the user's file over it.

use std::path::PathBuf;

use ua_core::{PrintedCommand, ShowPath as _};
use ua_llm::{ModelFacts, ModelTable};

use crate::error::{HostError, chain};
use crate::placed::{FileKind, Place};
use crate::settings::Settings;

/// The most output tokens of one reply, unless the job says otherwise or the model writes less.
const DEFAULT_MAX_OUTPUT_TOKENS: u32 = 8192;

/// The user's file, if there is one: the configured one, else `models.toml` beside the user's config.toml.
fn file(settings: &Settings) -> Option<PathBuf> {
    settings.var("UA_MODELS").map(PathBuf::from).or_else(|| settings.user_file("models.toml"))
}

/// Whether nobody but a project names that file.
pub fn are_the_projects(settings: &Settings) -> bool {
    settings.is_the_projects("UA_MODELS")
}

/// The user's own entries.
pub fn of_user(settings: &Settings) -> Result<ModelTable, HostError> {
    let Some(file) = file(settings) else { return Ok(ModelTable::default()) };
    let (whole, project) = (settings.absolute(&file)?, settings.project_folder());
    let place = match &project {
        Some(project) if are_the_projects(settings) => Place::of_project(FileKind::Models, &file, project),
        Some(_) | None => Place::of_user(settings, FileKind::Models, &file),
    };
    place.at(&whole).read()?.parse(|text| {
        ModelTable::parse(&file.shown().to_string(), text)
            .map_err(|error| HostError::usage(chain(&error)).hint("docs/guide/models.md shows the form").not_begun())
    })
}

/// All of it.
pub fn table(settings: &Settings) -> Result<ModelTable, HostError> {
    Ok(ModelTable::shipped().overlaid(of_user(settings)?))
}

/// What is known about a model.
pub(crate) fn facts(settings: &Settings, provider: &str, model: &str) -> Result<Option<ModelFacts>, HostError> {
    Ok(table(settings)?.find(provider, model).cloned())
}

/// Whether a model is known by its name, and of one that is not the name that may have been meant. What the user's own file describes, by a name
/// or a pattern, is known.
///
/// # Errors
/// The user's file cannot be used.
pub fn named(settings: &Settings, provider: &str, model: &str) -> Result<Result<(), Option<String>>, HostError> {
    let own = of_user(settings)?;
    let is_own = own.find(provider, model).is_some();
    let table = ModelTable::shipped().overlaid(own);
    let is_known = is_own || table.is_named(provider, model);
    Ok(if is_known { Ok(()) } else { Err(table.nearest(provider, model).map(str::to_owned)) })
}

/// The command that shows what is known of a model. Its name may be anybody's: a job has it.
pub fn looked_up(provider: &str, model: &str) -> String {
    PrintedCommand::of("ua models show").word(model).option("--provider", provider).in_code()
}

/// What is in doubt about the name of a model, in a sentence; `None` when it is known by its name. Whoever starts a run with it, checks a job
/// or the configuration says this.
pub fn doubt(settings: &Settings, provider: &str, model: &str) -> Option<String> {
    if matches!(provider, "scripted" | "replay") {
        return None;
    }
    let Ok(Err(meant)) = named(settings, provider, model) else { return None };
    let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"));
    let unknown = match facts(settings, provider, model) {
        // What is said of its whole family is no sign that there is one of this name.
        Ok(Some(_)) => format!("no model {model} of {provider} is known"),
        Ok(None) | Err(_) => format!("nothing is known about the model {model} of {provider}"),
    };
    Some(crate::text::plain(&format!("{unknown}{meant}; see {}", looked_up(provider, model))))
}

/// The longest reply of a job that does not say.
pub fn output_tokens(facts: Option<&ModelFacts>) -> u32 {
    facts.map_or(DEFAULT_MAX_OUTPUT_TOKENS, |facts| facts.output_tokens(DEFAULT_MAX_OUTPUT_TOKENS))
}
