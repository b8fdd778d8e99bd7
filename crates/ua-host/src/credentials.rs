//! Which variables are credentials.

use ua_core::{Redactor, secrets_given, secrets_of_environment, secrets_within};

use crate::settings::{SETTINGS, Settings};

/// Keys of this process itself.
const KEYS: [&str; 5] =
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "UA_TOOLSERVER_TOKEN"];
/// Halves of credentials that are no secret.
const PUBLIC: [&str; 2] = ["UA_MAIL_USER", "AWS_ACCESS_KEY_ID"];

/// Addresses to which whoever knows them may post.
const WEBHOOKS: [&str; 2] = ["UA_NOTIFY_WEBHOOK", "UA_ALERT_WEBHOOK"];

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
    // Whatever else is a key by its name: it is read to be kept out of what is stored, and for nothing else.
    let others = settings.beginning_with(&[""]).into_iter();
    let others = others.filter(|(name, _)| {
        // Declared secrets are known under their own names.
        let has_a_name = name.starts_with("UA_SECRET_") || SETTINGS.iter().any(|setting| setting.variable == name);
        !has_a_name && !PUBLIC.contains(&name.as_str())
    });
    redactor.learn(others.flat_map(|(name, value)| {
        secrets_of_environment(&name, &value).into_iter().map(move |secret| (name.clone(), secret))
    }));
    for setting in SETTINGS {
        let Some(value) = settings.var(setting.variable) else { continue };
        let what = |secret: String| (format!("a key in {}", setting.variable), secret);
        redactor.learn(secrets_within(&value).into_iter().map(what));
        // Whoever knows the address may post there.
        if WEBHOOKS.contains(&setting.variable) {
            redactor.learn(secrets_given(setting.variable, &value).into_iter().map(what));
        }
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = settings.var("UA_DATABASE_URL")
        && let Ok(config) = ua_store_postgres::PostgresConfig::from_url(&url)
        && let Some(password) = config.password()
    {
        redactor.learn([("UA_DATABASE_URL".to_owned(), url), ("the database's password".to_owned(), password)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_of_an_address_is_shown_and_each_is_known() {
        for (value, shown) in [
            ("searxng+http://u:canary-search@127.0.0.1:18931", "searxng+http://…@127.0.0.1:18931"),
            ("https://token@a.test/x?y=b@c", "https://…@a.test/x?y=b@c"),
            ("a=http://u:p@b.test c=http://v:q@d.test/e", "a=http://…@b.test c=http://…@d.test/e"),
            ("https://a.test/u:p@b", "https://a.test/u:p@b"),
            ("http://@a.test", "http://@a.test"),
            ("plain, u:p@b", "plain, u:p@b"),
        ] {
            assert_eq!(ua_core::without_secrets(value), shown);
        }
        for (value, shown) in [
            ("[\"curl\",\"-H\",\"Authorization: Bearer canary-1\"]", "[\"curl\",\"-H\",\"Authorization: Bearer …\"]"),
            ("http://a.test/v1?version=7&key=canary-2", "http://a.test/v1?version=7&key=…"),
            ("smtp://a.test:2525", "smtp://a.test:2525"),
        ] {
            assert_eq!(ua_core::without_secrets(value), shown);
        }
        let search = ("UA_SEARCH".to_owned(), "searxng+http://u:canary-search@127.0.0.1:1".to_owned());
        let process = crate::Process { variables: [search].into(), folder: None, program: None };
        let redactor = Redactor::default();
        learn_own(&Settings::read(process), &redactor);
        assert!(!redactor.text("it is canary-search").contains("canary-search"));
        let base = ("OPENAI_BASE_URL".to_owned(), "https://a.test/v1?version=7&api-key=canary%2Fquery".to_owned());
        let process = crate::Process { variables: [base].into(), folder: None, program: None };
        let redactor = Redactor::default();
        learn_own(&Settings::read(process), &redactor);
        for said in ["api-key=canary%2Fquery", "it is canary/query"] {
            assert!(!redactor.text(said).contains("canary"), "{said}");
        }
        assert_eq!(redactor.text("version=7"), "version=7");
        // Keys of other programs, by the names that a tool server's variables have as well.
        let others = ["FORUM_TOKEN", "GITHUB_PAT", "DB_PASSWORD", "SMTP_PASS"];
        for name in others {
            let variables = [(name.to_owned(), "canary-Other-4711".to_owned())].into();
            let redactor = Redactor::default();
            learn_own(&Settings::read(crate::Process { variables, folder: None, program: None }), &redactor);
            assert_eq!(redactor.text("it is canary-Other-4711"), format!("it is [secret {name}]"));
        }
        // The half of a credential that is no secret is not taken for one.
        let variables = [("AWS_ACCESS_KEY_ID".to_owned(), "AKIACANARY4711".to_owned())].into();
        let redactor = Redactor::default();
        learn_own(&Settings::read(crate::Process { variables, folder: None, program: None }), &redactor);
        assert_eq!(redactor.text("AKIACANARY4711"), "AKIACANARY4711");
    }
}
