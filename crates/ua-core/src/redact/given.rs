//! What of a configuration is a secret, by the names that stand beside it and by the places where addresses and headers have one.
//!
//! Security model S3. Variables, arguments and headers of tool servers, and addresses among the settings, are read by these rules and no others: what
//! a page or a receipt may not have in it is what they find.

use std::ops::Range;

use percent_encoding::percent_decode_str;

use super::looks;

/// Words within a name that say that its value is a secret.
const WITHIN: [&str; 10] =
    ["key", "token", "secret", "password", "passwd", "passphrase", "credential", "authorization", "cookie", "webhook"];
/// Words that say so as the last one of a name.
const LAST: [&str; 9] = ["pass", "pwd", "auth", "pat", "jwt", "bearer", "pin", "salt", "mnemonic"];
/// The public half of a key of an object store, which its signatures show to everybody.
const PUBLIC: &str = "access_key_id";
/// A user without a password in an address, and the last part of a webhook's path, are secrets from this length on: shorter ones are names.
const LONG: usize = 16;
/// From this length on, a secret is not shown in other places of the text that it was found in either.
pub(super) const TELLING: usize = 8;

/// Whether the value of a variable, an option, a header or a field of a query is a secret, by its name.
fn says_so(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    !name.ends_with(PUBLIC) && (WITHIN.iter().any(|word| name.contains(word)) || LAST.contains(&last))
}

/// The secrets among the variables of an environment that nobody wrote for this program: by the words of their names, as those of a tool server's.
/// A value that is short and looks like a word, a number or a name is left: it stands in too many texts that have nothing to do with it.
///
/// ```
/// let secrets = |name: &str, value: &str| ua_core::secrets_of_environment(name, value);
/// assert_eq!(secrets("FORUM_TOKEN", "Canary-1-canary"), ["Canary-1-canary"]);
/// assert_eq!(secrets("PGPASSWORD", "postgres").len(), 0);
/// assert_eq!(secrets("GIT_CONFIG_KEY_0", "user.name").len(), 0);
/// ```
pub fn secrets_of_environment(name: &str, value: &str) -> Vec<String> {
    let is_word = |value: &str| {
        let words = value.bytes().all(|byte| byte.is_ascii_lowercase() || b"._-/ ".contains(&byte));
        value.len() < LONG && (words || value.bytes().all(|byte| byte.is_ascii_digit()))
    };
    secrets_given(name, value).into_iter().filter(|secret| !is_word(secret)).collect()
}

/// A path is none: it says where one lies.
fn is_path(value: &str) -> bool {
    value.starts_with(['/', '.', '~'])
}

/// The secrets in the value that stands beside a name: of a variable, or of a header.
///
/// ```
/// let secrets = |name: &str, value: &str| ua_core::secrets_given(name, value);
/// assert_eq!(secrets("FORUM_TOKEN", "canary-1"), ["canary-1"]);
/// assert_eq!(secrets("Authorization", "Bearer canary-1"), ["Bearer canary-1", "canary-1"]);
/// assert_eq!(secrets("DATABASE_URL", "postgres://u:canary-1@host/db"), ["canary-1"]);
/// assert_eq!(secrets("PATH", "/usr/bin").len(), 0);
/// assert_eq!(secrets("AWS_ACCESS_KEY_ID", "AKIA4711").len(), 0);
/// ```
pub fn secrets_given(name: &str, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    if says_so(name) && !is_path(value) {
        found.push(value.to_owned());
        // `Bearer …` and its like: the word that counts is the last one.
        found.extend(value.split_whitespace().next_back().map(str::to_owned));
        // Of an address that whoever knows it may post to, what is random stands at its end.
        let end = value.split(['?', '#']).next().and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
        found.extend(end.filter(|end| value.contains("://") && end.len() >= LONG).map(str::to_owned));
        // Of a cookie, what stands behind its name.
        let behind = |pair: &str| pair.split_once('=').map(|(_, value)| value.trim().to_owned());
        found.extend(value.split(';').filter_map(behind).filter(|value| value.trim_end_matches('=').len() >= TELLING));
    }
    found.extend(secrets_within(value));
    without_repeats(found)
}

/// The same of a value that somebody wrote for a tool server: those that its name tells, and those that it looks like itself, whatever its name is. A
/// name that tells who, where or which holds none by its looks (`HOME`, `AWS_REGION`, `TENANT_ID`, `Accept`).
///
/// ```
/// let secrets = |name: &str, value: &str| ua_core::secrets_entrusted(name, value);
/// assert_eq!(secrets("CREDS", "s3cr027valueXyz"), ["s3cr027valueXyz"]);
/// assert_eq!(secrets("MODE", "production").len(), 0);
/// assert_eq!(secrets("REGION", "eu-central-1").len(), 0);
/// ```
pub fn secrets_entrusted(name: &str, value: &str) -> Vec<String> {
    let mut found = secrets_given(name, value);
    if !looks::is_public(name) && !is_path(value) {
        found.extend(looks::credentials_in(value));
    }
    without_repeats(found)
}

/// The secrets among the arguments of a program: `--token=…`, `--api-key …`, `-H 'Authorization: …'`, and what stands in addresses.
pub fn secrets_in_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut option = None;
    for argument in arguments {
        match option.take() {
            Some(name) if !argument.starts_with('-') => found.extend(secrets_given(name, argument)),
            Some(_) | None => found.extend(secrets_within(argument)),
        }
        option = Some(argument).filter(|name| name.starts_with('-') && !name.contains(['=', ':', ' ']));
    }
    without_repeats(found)
}

/// The secrets in a text by where they stand: passwords in addresses, and what stands behind a name with `=` (the query of an address, a connection
/// string, an option) or behind one of a header with `:`. As they stand there, and as an address means them.
pub fn secrets_within(text: &str) -> Vec<String> {
    let mut found: Vec<String> = places_within(text).map(|place| text[place].to_owned()).collect();
    let meant = found.iter().filter(|secret| secret.contains(['%', '+'])).flat_map(|secret| {
        // In a query a plus sign may be a blank.
        let said = [secret.clone(), secret.replace('+', " ")];
        said.into_iter().filter_map(|said| Some(percent_decode_str(&said).decode_utf8().ok()?.into_owned()))
    });
    let meant: Vec<String> = meant.collect();
    found.extend(meant);
    // A cookie is its name and its value.
    let values = found.iter().filter_map(|secret| secret.split_once('=')).map(|(_, value)| value.to_owned());
    let values: Vec<String> = values.filter(|value| value.trim_end_matches('=').len() >= TELLING).collect();
    found.extend(values);
    without_repeats(found)
}

/// A text as it can be shown: without what is a secret by where it stands in it, and without the users beside passwords.
///
/// ```
/// let shown = ua_core::without_secrets("https://ada:canary-1@a.example/?page=7&api_key=canary-2");
/// assert_eq!(shown, "https://…@a.example/?page=7&api_key=…");
/// ```
pub fn without_secrets(text: &str) -> String {
    let logins = logins_in(text).filter(|login| !login.is_empty());
    let mut places: Vec<Range<usize>> = logins.chain(places_within(text)).collect();
    for secret in secrets_within(text).iter().filter(|secret| secret.len() >= TELLING) {
        places.extend(text.match_indices(secret.as_str()).map(|(at, secret)| at..at + secret.len()));
    }
    places.sort_by_key(|place| place.start);
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for place in places {
        if place.start >= from {
            shown.push_str(&text[from..place.start]);
            shown.push('…');
        }
        from = from.max(place.end);
    }
    shown + &text[from..]
}

/// Where the secrets are; none of these places is empty.
fn places_within(text: &str) -> impl Iterator<Item = Range<usize>> {
    let passwords = logins_in(text).filter_map(|login| match text[login.clone()].find(':') {
        Some(at) => Some(login.start + at + 1..login.end),
        None => Some(login).filter(|user| user.len() >= LONG),
    });
    passwords
        .chain(behind_names(text))
        .chain(behind_headers(text))
        .chain(behind_options(text))
        .filter(|place| !place.is_empty())
}

/// What stands behind `name=`, up to what ends a word or a pair. In `--env=TOKEN=…` the name stands behind another one.
fn behind_names(text: &str) -> impl Iterator<Item = Range<usize>> {
    let ends = |c: char| c.is_whitespace() || "?&;,".contains(c);
    text.match_indices('=').filter_map(move |(at, _)| {
        let name = text[..at].rsplit(ends).next().unwrap_or_default();
        let behind = &text[at + 1..];
        let value = behind[..behind.find(ends).unwrap_or(behind.len())].trim_end_matches(['"', '\'', ']', '}']);
        let begin = at + 1 + value.len() - value.trim_start_matches(['"', '\'']).len();
        let place = begin..at + 1 + value.len();
        (says_so(name) && !is_path(&text[place.clone()])).then_some(place)
    })
}

/// What stands behind an option as a word of its own, in a text for a shell or in a list of arguments: `server --api-key …`,
/// `["server", "--token", "…"]`.
fn behind_options(text: &str) -> impl Iterator<Item = Range<usize>> {
    let ends = |c: char| c.is_whitespace() || "\"'[],;|&".contains(c);
    let starts = move |at: usize| text[..at].chars().next_back().is_none_or(ends);
    text.match_indices('-').filter(move |(at, _)| starts(*at)).filter_map(move |(at, _)| {
        let rest = &text[at..];
        let name = &rest[..rest.find(ends)?];
        let behind = rest[name.len()..].trim_start_matches(ends);
        let value = &behind[..behind.find(ends).unwrap_or(behind.len())];
        let begin = text.len() - behind.len();
        let is_given = !name.contains(['=', ':']) && !value.starts_with('-') && says_so(name) && !is_path(value);
        is_given.then_some(begin..begin + value.len())
    })
}

/// What stands behind the name of a header, up to a quotation mark, a comma or the end of the line: of `Bearer …` the last word.
fn behind_headers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices(':').filter_map(move |(at, _)| {
        let name = text[..at].trim_end_matches(['"', '\'']);
        let name = &name[name.trim_end_matches(is_of_a_name).len()..];
        let behind = text[at + 1..].trim_start_matches([' ', '"', '\'']);
        let value = behind[..behind.find(['"', '\'', ',', '\n']).unwrap_or(behind.len())].trim_end();
        let end = text.len() - behind.len() + value.len();
        let place = end - value.split_whitespace().next_back().unwrap_or_default().len()..end;
        (says_so(name) && !is_path(&text[place.clone()])).then_some(place)
    })
}

/// Where the users and passwords of the addresses in a text are (`user:password` in `https://user:password@host`).
fn logins_in(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(|(at, scheme)| {
        let begin = at + scheme.len();
        let rest = &text[begin..];
        let authority = &rest[..rest.find(|c: char| c.is_whitespace() || "/?#".contains(c)).unwrap_or(rest.len())];
        authority.rfind('@').map(|end| begin..begin + end)
    })
}

fn without_repeats(found: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(found.len());
    for secret in found {
        if !secret.is_empty() && !all.contains(&secret) {
            all.push(secret);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Zq7Canary88xKpW2mQ";

    /// Where servers of others take one.
    #[test]
    fn a_secret_is_known_wherever_a_configuration_of_servers_has_one() {
        for name in [
            "FORUM_TOKEN",
            "API_KEY",
            "apiKey",
            "CLIENT_SECRET",
            "PGPASSWORD",
            "DB_PASS",
            "PASS",
            "SMTP_PWD",
            "AUTH",
            "GITHUB_PAT",
            "JWT",
            "BEARER",
            "WALLET_PIN",
            "SALT",
            "MNEMONIC",
            "Cookie",
            "Authorization",
            "GPG_PASSPHRASE",
            "SLACK_WEBHOOK_URL",
            "LICENSE_KEY",
        ] {
            assert_eq!(secrets_given(name, SECRET), [SECRET], "{name}");
        }
        for (name, value) in [
            ("DATABASE_URL", "postgres://u:S@host:5432/x"),
            ("REDIS_URL", "redis://:S@host"),
            ("DB_DSN", "host=h user=u password=S dbname=x"),
            ("CONNECTION_STRING", "Server=h;User Id=u;Password=S;Encrypt=true"),
            ("SENTRY_DSN", "https://S@o1.ingest.example/2"),
            ("BASE_URL", "https://a.example/v1?version=7&api_key=S"),
            ("ALERT_WEBHOOK", "https://hooks.example/services/T0/S"),
            ("X", "Authorization: Bearer S"),
        ] {
            assert!(secrets_given(name, &value.replace('S', SECRET)).contains(&SECRET.to_owned()), "{name}={value}");
        }
        for arguments in [
            vec!["--token=S"],
            vec!["--api-key", "S"],
            vec!["-HAuthorization: Bearer S"],
            vec!["-H", "Authorization: Bearer S"],
            vec!["--header", "X-Api-Key: S"],
            vec!["postgres://u:S@host/x"],
            vec!["--url", "mongodb+srv://u:S@host"],
            vec!["--dsn=mysql://u:S@h/x"],
            vec!["[\"curl\", \"-H\", \"Authorization: Bearer S\", \"https://a.example\"]"],
            vec!["{\"apiKey\": \"S\"}"],
            vec!["-y", "server", "--password", "S", "--verbose"],
            vec!["--env=TOKEN=S"],
            vec!["-e", "TOKEN=S"],
            vec!["-c", "server --api-key S --verbose"],
            vec!["-c", "exec server --password 'S'; sleep 1"],
            vec!["[\"/bin/false\",\"--token\",\"S\"]"],
            vec!["--header", "Cookie: sid=S"],
        ] {
            let given: Vec<String> = arguments.iter().map(|argument| argument.replace('S', SECRET)).collect();
            let found = secrets_in_arguments(given.iter().map(String::as_str));
            assert!(found.contains(&SECRET.to_owned()), "{arguments:?}: {found:?}");
        }
        assert_eq!(secrets_within("https://u:a%2Fb%20c@h"), ["a%2Fb%20c", "a/b c"]);
        assert_eq!(secrets_within("https://h?key=a%2Fb+c"), ["a%2Fb+c", "a/b+c", "a/b c"]);
    }

    /// What a page may well have in it stays there.
    #[test]
    fn what_is_no_secret_is_left() {
        for (name, value) in [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/ada"),
            ("TOKEN_FILE", "/run/secrets/token"),
            ("KEYFILE", "~/.ssh/id"),
            ("LANG", "en_US.UTF-8"),
            ("URL", "https://ada@example.org/notes?page=7"),
            ("PATTERN", "*.rs"),
            ("COMPASS", "north-north-west"),
            ("SPAT", "x"),
            ("MODE", "production"),
            ("ADDRESS", "https://hooks.example/services/T0/x"),
        ] {
            assert_eq!(secrets_given(name, value), [""; 0], "{name}={value}");
        }
        for arguments in [
            vec!["-y", "mail-server"],
            vec!["--port", "8080", "--verbose"],
            vec!["--token", "--verbose"],
            vec!["--key-file=/etc/key"],
            vec!["-c", "server --key-file /etc/key --port 8080"],
            vec!["-c", "server --token --verbose"],
        ] {
            assert_eq!(secrets_in_arguments(arguments.iter().copied()), [""; 0], "{arguments:?}");
        }
    }

    /// Whatever a text is made of: a secret that is known in it is not shown, and what is shown has none that is known.
    #[test]
    fn what_is_known_is_not_shown_whatever_stands_around_it() {
        let pieces = ["key", "-key", "=", ":", "://", "@", "é", "\u{3000}", ",", " ", "\"", "%4", "S", "Bearer"];
        let mut seen = 0;
        for number in 0..pieces.len().pow(5) {
            let of = |place: u32| pieces[number / pieces.len().pow(place) % pieces.len()];
            let text: String = (0..5).map(of).collect::<String>().replace('S', SECRET);
            let (found, shown) = (secrets_within(&text), without_secrets(&text));
            let telling = || found.iter().filter(|secret| secret.len() >= TELLING);
            assert!(telling().all(|secret| !shown.contains(secret.as_str())), "{text}: {found:?}, {shown}");
            seen += telling().count();
            assert!(found.is_empty() || shown.contains('…'), "{text}: {found:?}, {shown}");
        }
        assert!(seen > 5_000, "{seen}");
    }
}
