//! What is known about models: the shipped data with the user's file over it.

use std::path::PathBuf;

use ua_llm::{ModelFacts, ModelTable};

use crate::compose::{read, user_file};
use crate::error::{CliError, chain};

/// The most output tokens of one reply, unless the job says otherwise or the model writes less.
const DEFAULT_MAX_OUTPUT_TOKENS: u32 = 8192;

/// The user's file, if there is one: the configured one, else `models.toml` beside the user's config.toml.
pub(crate) fn file() -> Option<PathBuf> {
    crate::env::var("UA_MODELS").map(PathBuf::from).or_else(|| user_file("models.toml"))
}

/// The user's own entries.
pub(crate) fn of_user() -> Result<ModelTable, CliError> {
    let Some(file) = file() else { return Ok(ModelTable::default()) };
    let text = read(&file, "the models")?;
    ModelTable::parse(&file.display().to_string(), &text).map_err(|error| {
        CliError::usage(chain(&error)).hint("docs/guide/models.md shows the form; nothing was started")
    })
}

/// All of it.
pub(crate) fn table() -> Result<ModelTable, CliError> {
    Ok(ModelTable::shipped().overlaid(of_user()?))
}

/// What is known about a model.
pub(crate) fn facts(provider: &str, model: &str) -> Result<Option<ModelFacts>, CliError> {
    Ok(table()?.find(provider, model).cloned())
}

/// The longest reply of a job that does not say.
pub(crate) fn output_tokens(facts: Option<&ModelFacts>) -> u32 {
    facts.map_or(DEFAULT_MAX_OUTPUT_TOKENS, |facts| facts.output_tokens(DEFAULT_MAX_OUTPUT_TOKENS))
}
