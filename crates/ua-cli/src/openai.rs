//! The provider `openai`, from the user's configuration.

use std::sync::Arc;

use ua_core::{Env, RunSpec};
use ua_llm::{LlmProvider, OpenAiConfig, OpenAiProvider};

use crate::compose::idle_timeout;
use crate::error::{CliError, PROVIDER, chain};

/// The model that is asked when nobody names one.
pub(crate) const DEFAULT_MODEL: &str = "gpt-5";

/// Whether the provider may keep the conversation: as the job says, else the user, else no.
pub(crate) fn wants_sessions(spec: &RunSpec) -> bool {
    let by_user = || crate::env::var("UA_PROVIDER_SESSIONS").is_some_and(|value| value == "1" || value == "true");
    spec.settings.provider_sessions.unwrap_or_else(by_user)
}

/// The provider with the user's key, at the user's base URL.
pub(crate) fn provider(keep_replies: bool, env: &Env) -> Result<Arc<dyn LlmProvider>, CliError> {
    let Some(key) = crate::env::var("OPENAI_API_KEY") else {
        return Err(CliError::usage("there is no API key for the provider `openai`").hint(
            "set OPENAI_API_KEY, or run a job offline with `\"model\": {\"provider\": \"scripted\", …}`",
        ));
    };
    let mut config = OpenAiConfig { keep_replies, ..OpenAiConfig::new(key.into()) };
    if let Some(base_url) = crate::env::var("OPENAI_BASE_URL") {
        config.base_url = base_url;
    }
    if let Some(seconds) = crate::env::var("UA_MODEL_TIMEOUT") {
        config.idle_timeout = idle_timeout(&seconds)?;
    }
    let provider = OpenAiProvider::new(config, env.clone())
        .map_err(|e| CliError::new(PROVIDER, format!("cannot set up the provider `openai`: {}", chain(&e))))?;
    Ok(Arc::new(provider))
}
