//! Whether a value looks like a credential, whatever stands beside it.
//!
//! Security model S3. A tool server takes its key under any name (`CREDS`, `X-Conn`), so the values that a configuration gives it are judged as well.
//! The judgement has two sides: a key that is missed is stored, and a word that is taken for a key is missing from every transcript, and a job that
//! has it is refused. So what people write for people is none (words, names, numbers, places, addresses, hosts, mail addresses, times, versions), and
//! what nobody would say aloud is one: letters and digits in turns, or of both cases in turns, or many hexadecimal digits.

use super::given::TELLING;

/// The shortest part of a value that is no word by the turns of its letters and digits.
const ODD: usize = 6;
/// So many digits beside a word are a number of it: a port, a year, a day.
const NUMBER: usize = 4;
/// A word of one case may have so many letters.
const LONGEST_WORD: usize = 40;
/// The shortest value that is a password by its signs alone.
const SIGNED: usize = 12;

/// What the last word of a name says of its value: it tells who, where, which or how, and everybody may know.
const TELLS: [&str; 34] = [
    "arn",
    "branch",
    "bucket",
    "commit",
    "digest",
    "display",
    "dir",
    "domain",
    "email",
    "env",
    "environment",
    "home",
    "host",
    "hostname",
    "id",
    "image",
    "lang",
    "language",
    "level",
    "locale",
    "mode",
    "model",
    "name",
    "path",
    "pattern",
    "port",
    "project",
    "region",
    "revision",
    "sha",
    "tag",
    "user",
    "version",
    "zone",
];
/// Names that are the same without such a word.
const PLAIN: [&str; 13] = [
    "accept",
    "logname",
    "node_options",
    "origin",
    "pwd",
    "referer",
    "shell",
    "term",
    "tmpdir",
    "traceparent",
    "tracestate",
    "tz",
    "username",
];
/// What such names begin with.
const PLAIN_BEGINNINGS: [&str; 7] = ["accept-", "cache-", "content-", "lc_", "mcp-", "user-agent", "xdg_"];
/// Whoever has the number of one of these is let in by it.
const LETS_IN: [&str; 2] = ["session", "sid"];

/// Whether a name says that everybody may know its value.
pub(super) fn is_public(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let is_plain = PLAIN.contains(&name.as_str()) || PLAIN_BEGINNINGS.iter().any(|begin| name.starts_with(begin));
    is_plain || TELLS.contains(&last) && !LETS_IN.iter().any(|word| name.contains(word))
}

/// What of a value looks like a credential: the whole of it where it is one word, and each part of it that does.
pub(super) fn credentials_in(value: &str) -> Vec<String> {
    let value = value.trim();
    // What an address has in its query is looked at, and an address in a connection string hides nothing behind it.
    let is_address = value.contains("://");
    if is_said(value) && !is_address {
        return Vec::new();
    }
    let between = |c: char| c.is_whitespace() || "=;,&?|\"'`(){}[]<>".contains(c);
    let mut found: Vec<String> =
        value.split(between).filter(|part| !is_said(part) && is_odd(part)).map(str::to_owned).collect();
    // What is said of the whole is looked for first, since it is longer. The rest of an address may stand anywhere.
    let is_one = is_signed(value) || (!found.is_empty() && !value.contains(char::is_whitespace));
    if is_one && !is_address {
        found.insert(0, value.to_owned());
    }
    found
}

/// Whether a text is said by its form: too short, a place, an address, a host, a mail address.
fn is_said(text: &str) -> bool {
    text.len() < TELLING || is_place(text) || text.contains("://") || is_host(text) || is_mail(text)
}

/// A path, or a list of paths as `PATH` is one.
fn is_place(text: &str) -> bool {
    text.split(':').all(is_path)
}

/// A path by what it begins with: a key in base64 may have slashes, and one in front. Further down a folder may be called anything (a digest, a name
/// that was drawn).
fn is_path(text: &str) -> bool {
    let (first, rest) = text.split_once('/').map_or((text, None), |(first, rest)| (first, Some(rest)));
    match (first, rest) {
        ("." | ".." | "~", _) => true,
        ("", Some(rest)) => {
            // One or two letters are the name of a drive, and as often the beginning of a key.
            let top = rest.split('/').next().unwrap_or_default();
            (top.len() > 2 && is_plain(top)) || rest.split('/').all(|part| !is_odd(part))
        }
        (first, _) => first.starts_with(['.', '~']) && !is_odd(first),
    }
}

/// Whether all words of a name are of one case, but for their first letter, and digits are at their ends.
fn is_plain(name: &str) -> bool {
    let is_word = |word: &str| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let behind_first = letters.chars().skip(1);
        letters.chars().all(char::is_alphabetic)
            && (letters.chars().all(char::is_uppercase) || behind_first.into_iter().all(|c| !c.is_uppercase()))
    };
    !is_odd(name) && name.split(|c: char| !c.is_alphanumeric()).all(is_word)
}

/// A host by its full name, with or without a port.
fn is_host(text: &str) -> bool {
    let host = text.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = host.map_or(text, |(host, _)| host);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LONGEST_WORD
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let top = host.rsplit('.').next().unwrap_or_default();
    host.contains('.')
        && host.split('.').all(is_label)
        && top.len() > 1
        && top.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_mail(text: &str) -> bool {
    let is_local = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    text.split_once('@')
        .is_some_and(|(who, host)| !who.is_empty() && who.bytes().all(is_local) && is_host(&host.to_ascii_lowercase()))
}

/// Whether one of the words of a text is none that anybody says, or several are groups of a number that people only copy (`A1B2-C3D4-E5F6`).
fn is_odd(text: &str) -> bool {
    let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_group = |word: &&str| {
        word.len() >= NUMBER
            && word.bytes().any(|byte| byte.is_ascii_uppercase())
            && word.bytes().any(|byte| byte.is_ascii_digit())
    };
    words().any(is_odd_word) || words().filter(is_group).count() >= 3
}

fn is_odd_word(word: &str) -> bool {
    let count = word.chars().count();
    if count < ODD {
        return false;
    }
    let is_digit = |c: char| c.is_ascii_digit();
    let behind = word.trim_end_matches(is_digit);
    let inner = behind.trim_start_matches(is_digit);
    // A number alone, or one at either end of a word, as in `node20`, `2xlarge` or `release20261130`.
    let (before, after) = (behind.len() - inner.len(), word.len() - behind.len());
    let is_numbered = before <= NUMBER && (after <= NUMBER || after == 2 * NUMBER);
    let letters = inner.chars().filter(|c| c.is_alphabetic()).count();
    if inner.is_empty() {
        return false;
    }
    if letters < inner.chars().count() {
        // Letters and digits in turns. A time (`20261130T101500Z`) has few letters.
        return turns(word) >= 2 && !is_time(word);
    }
    if !is_numbered && !is_time(word) {
        return true;
    }
    // Names of programs have large letters within them, one for each few small ones.
    let large = inner
        .chars()
        .zip(inner.chars().skip(1))
        .filter(|(one, next)| one.is_lowercase() && next.is_uppercase())
        .count();
    letters > LONGEST_WORD || large >= 2 && large * 4 >= letters
}

/// How often letters and digits, or small letters and large ones, take turns; a large letter in front of small ones begins a word.
fn turns(word: &str) -> usize {
    let kind = |c: char| {
        if c.is_ascii_digit() {
            0
        } else if c.is_uppercase() {
            1
        } else {
            2
        }
    };
    let pairs = word.chars().map(kind).zip(word.chars().skip(1).map(kind));
    pairs.filter(|pair| !matches!(pair, (0, 0) | (1, 1 | 2) | (2, 2))).count()
}

/// A day, a time or a span: digits, and single letters between them.
fn is_time(word: &str) -> bool {
    let letters: String = word.chars().filter(|c| !c.is_ascii_digit()).collect();
    let is_known = ["T", "TZ", "Z", "hm", "hms", "ms", "dh", "dhm"].contains(&letters.as_str());
    is_known && word.starts_with(|c: char| c.is_ascii_digit())
}

/// A password by its signs: letters of both cases, digits, and signs that no text for people or programs has in so few words.
fn is_signed(text: &str) -> bool {
    let has = |is: fn(char) -> bool| text.chars().any(is);
    let mut signs: Vec<char> = text.chars().filter(|c| "!#$%&*<>?\\^|~+=\"'`".contains(*c)).collect();
    signs.sort_unstable();
    signs.dedup();
    let is_short = text.len() <= 128 && text.split_whitespace().count() <= 3;
    let is_mixed = has(char::is_uppercase) && has(char::is_lowercase) && has(|c| c.is_ascii_digit());
    text.len() >= SIGNED && is_short && is_mixed && signs.len() >= 2 && !text.starts_with(['{', '[', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_says_looks_like_a_credential() {
        for value in [
            "s3cr027valueXyz",
            "Zq7Canary88xKpW2mQ",
            "Zq9\"x/v+W\u{e9}\\w&k=77 PqR<tail>",
            "3f2b8c1e-9d4a-4c6b-8e2f-1a2b3c4d5e6f",
            "9e107d9d372bb6826bd81d3542a419d6",
            "A1B2-C3D4-E5F6-G7H8",
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
            "AbCdEfGhIjKlMnOp",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
            "cGFzc3dvcmQxMjM0NTY3OA==",
            "user:s3cr3tV4lue",
            "p@ssW0rdX9",
            "Bearer s3cr027valueXyz",
            "qxvzkwjphtrlmnbdgfsyucaoeiqxvzkwjphtrlmnbdgf",
            // It begins as a path does.
            "/wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "/x9Kd8+Ql2vT7mZ/bR4sN1cW6yHq0PfE5uJgA==",
            "/xK9/3fJd8kLmN2pQr5TvW7xYz",
            "/q/3fJd8kLmN2pQr5TvW7xYz",
            ".s3cr027valueXyz",
            "~s3cr027valueXyz",
            "/usr/bin:/wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        ] {
            assert!(!credentials_in(value).is_empty(), "{value}");
        }
        let wanted = ["s3cr027valueXyz"];
        assert_eq!(credentials_in("Conn s3cr027valueXyz"), wanted, "of several words that one");
        for address in ["https://h.example/x?v=7&sig=s3cr027valueXyz", "Endpoint=sb://h.example/;Sig=s3cr027valueXyz"] {
            assert_eq!(credentials_in(address), wanted, "{address}");
        }
        assert_eq!(credentials_in("k=s3cr027valueXyz"), ["k=s3cr027valueXyz", "s3cr027valueXyz"]);
    }

    #[test]
    fn what_people_say_does_not() {
        for value in [
            "",
            "short1A",
            "production",
            "eu-central-1",
            "ada.lovelace+notes@example.org",
            "acme-website-2026",
            "my_project_name",
            "MyCompanyProject",
            "getURLForProject",
            "true",
            "8080",
            "4711081533471108",
            "2026-11-30T10:15:00Z",
            "20261130T101500Z",
            "release20261130",
            "node20",
            "m5.2xlarge",
            "gpt-5-mini-2026-11-30",
            "1.22.3-beta4",
            "en_US.UTF-8",
            "Europe/Berlin",
            "America/Argentina/Buenos_Aires",
            "/home/ada/notes",
            "/usr/local/bin:/usr/bin:/bin",
            "~/.ssh/id_ed25519",
            "~ada/notes",
            "/tmp/ua-e2e-aB3dE9fGh/work/x.json",
            "/nix/store/9e107d9d372bb6826bd81d3542a419d6-hello",
            "/Users/ada/Library",
            "/c/Users/ada",
            "/__w/project/project",
            "./3f2b8c1e9d4a",
            "../.tmpAb3dE9/x",
            ".config/3f2b8c1e9d4a/x",
            ".env.local",
            "https://api.example.org/v1/things",
            "https://api.example.org/v1/things?page=7&lang=en_US&from=2026-11-30",
            "db1.eu2.internal.example.com:5432",
            "ip-10-0-3-77.eu-central-1.compute.internal",
            "192.168.100.200:8080",
            "application/json, text/event-stream",
            "Mozilla/5.0 (X11; Linux x86_64)",
            "--max-old-space-size=4096 --enable-source-maps",
            "correct horse battery staple",
            "Donaudampfschifffahrtsgesellschaft",
            "{\"mode\": \"fast\", \"limit\": 10}",
            "info,hyper=warn,tower=debug",
            "*.example.org,localhost,127.0.0.1",
            "canary-1-canary",
        ] {
            assert_eq!(credentials_in(value), [""; 0], "{value}");
        }
    }

    #[test]
    fn a_name_that_tells_who_or_where_holds_no_credential() {
        for name in [
            "HOME",
            "PATH",
            "PWD",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "LC_TIME",
            "TZ",
            "TMPDIR",
            "XDG_CACHE_HOME",
            "HOSTNAME",
            "TERM",
            "DISPLAY",
            "TENANT_ID",
            "AWS_REGION",
            "BUILD_SHA",
            "Accept",
            "Content-Type",
            "User-Agent",
            "X-Request-Id",
            "traceparent",
        ] {
            assert!(is_public(name), "{name}");
        }
        for name in [
            "CREDS",
            "CONNECTION_STRING",
            "CONN_STR",
            "PRIVATE",
            "SESSION",
            "SESSION_ID",
            "PWD_X",
            "TOK",
            "ACCESS",
            "SIGNATURE",
            "LICENSE",
            "APP_CODE",
            "SEED",
            "SENTRY_DSN",
            "X-Conn",
            "X-Acceptance",
        ] {
            assert!(!is_public(name), "{name}");
        }
    }
}
