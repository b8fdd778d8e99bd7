//! Which variables are credentials.

use ua_core::Redactor;

use crate::settings::Settings;

/// Keys of this process itself.
const KEYS: [&str; 5] =
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "UA_TOOLSERVER_TOKEN"];
/// Halves of credentials that are no secret.
const PUBLIC: [&str; 2] = ["UA_MAIL_USER", "AWS_ACCESS_KEY_ID"];

/// What our own tool server signs in to a mail server with, and no other server sees.
const MAIL_CREDENTIALS: [&str; 3] = ["UA_MAIL_USER", "UA_MAIL_PASSWORD", "UA_MAIL_API_KEY"];
/// The same for an object store.
const S3_CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
/// The same for a search engine.
const SEARCH_CREDENTIALS: [&str; 1] = ["UA_SEARCH_API_KEY"];
/// The same for an API that describes and draws.
const IMAGE_CREDENTIALS: [&str; 1] = ["UA_IMAGE_API_KEY"];
/// The same for Composio.
const COMPOSIO_CREDENTIALS: [&str; 1] = ["COMPOSIO_API_KEY"];

/// Teaches `redactor` the keys that this process was given.
pub fn learn_own(settings: &Settings, redactor: &Redactor) {
    let own = KEYS.iter().chain(&MAIL_CREDENTIALS).chain(&S3_CREDENTIALS).chain(&SEARCH_CREDENTIALS);
    let own = own.chain(&IMAGE_CREDENTIALS).chain(&COMPOSIO_CREDENTIALS);
    let own = own.filter(|name| !PUBLIC.contains(*name));
    redactor.learn(own.filter_map(|name| Some(((*name).to_owned(), settings.var(name)?))));
    #[cfg(feature = "postgres")]
    if let Some(url) = settings.var("UA_DATABASE_URL")
        && let Ok(config) = ua_store_postgres::PostgresConfig::from_url(&url)
        && let Some(password) = config.password()
    {
        redactor.learn([("UA_DATABASE_URL".to_owned(), url), ("the database's password".to_owned(), password)]);
    }
}

/// Whether the value of a variable or header is a secret, by its name. A path is none.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let says_so = ["key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie"];
    says_so.iter().any(|word| name.contains(word)) && !value.starts_with(['/', '.'])
}
