//! Which variables are credentials.

use std::ops::Range;

use ua_core::Redactor;

use crate::settings::{SETTINGS, Settings};

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
    for setting in SETTINGS {
        let Some(value) = settings.var(setting.variable) else { continue };
        let passwords = logins_in(&value).into_iter().filter_map(|login| value[login].split_once(':'));
        redactor.learn(
            passwords.map(|(_, password)| (format!("the password in {}", setting.variable), password.to_owned())),
        );
        redactor.learn(in_query(&value).map(|secret| (format!("the key in {}", setting.variable), secret)));
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = settings.var("UA_DATABASE_URL")
        && let Ok(config) = ua_store_postgres::PostgresConfig::from_url(&url)
        && let Some(password) = config.password()
    {
        redactor.learn([("UA_DATABASE_URL".to_owned(), url), ("the database's password".to_owned(), password)]);
    }
}

/// The keys in the query of an address (`https://host/v1?api_key=…`), as they stand there and as they are meant.
fn in_query(address: &str) -> impl Iterator<Item = String> {
    let url = url::Url::parse(address.trim()).ok();
    let written =
        url.as_ref().and_then(url::Url::query).unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let written = written.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let meant = url.as_ref().map(|url| url.query_pairs().into_owned().collect::<Vec<_>>()).unwrap_or_default();
    let all: Vec<(String, String)> = written.chain(meant).collect();
    all.into_iter().filter(|(name, value)| is_secret(name, value)).map(|(_, value)| value)
}

/// Where in a text the user and the password of an address stand, as in `https://user:password@host`.
fn logins_in(text: &str) -> Vec<Range<usize>> {
    let logins = text.match_indices("://").filter_map(|(at, scheme)| {
        let begins = at + scheme.len();
        let rest = &text[begins..];
        let authority = &rest[..rest.find(|c: char| c.is_whitespace() || "/?#".contains(c)).unwrap_or(rest.len())];
        authority.rfind('@').map(|end| begins..begins + end)
    });
    logins.collect()
}

/// A text without the users and passwords of the addresses in it.
pub fn without_logins(text: &str) -> String {
    let (mut shown, mut from) = (String::new(), 0);
    for login in logins_in(text).into_iter().filter(|login| !login.is_empty()) {
        if login.start < from {
            continue;
        }
        shown.push_str(&text[from..login.start]);
        shown.push('…');
        from = login.end;
    }
    shown.push_str(&text[from..]);
    shown
}

/// Whether the value of a variable or header is a secret, by its name. A path is none.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let says_so = ["key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie"];
    says_so.iter().any(|word| name.contains(word)) && !value.starts_with(['/', '.'])
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
            assert_eq!(without_logins(value), shown);
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
    }
}
