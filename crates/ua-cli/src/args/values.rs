//! Values that several commands read.

use clap::builder::NonEmptyStringValueParser;
use ua_store::ConcurrencyKey;

/// Reads any text but an empty one, which in a script is a variable that is not set: what it stood for would be left out in silence, or sent as it is.
pub(crate) fn not_empty() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

/// Reads `30d`, `12h`, `90m` or `10s`.
pub(crate) fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is not a valid time; write a number and d, h, m or s, for example 30d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(std::time::Duration::from_secs(seconds * u64::from(number)))
}

/// Reads how far back something reaches: a time as [`parse_span`] reads it, also written as `-7d` or `7d ago`.
pub(crate) fn parse_ago(text: &str) -> Result<std::time::Duration, String> {
    let bare = text.strip_suffix("ago").unwrap_or(text).trim();
    let bare = bare.strip_prefix('-').unwrap_or(bare);
    parse_span(bare).map_err(|_| {
        format!("`{text}` is not a valid time; write how far back it reaches, a number and d, h, m or s: for example 7d, which is also `-7d` and `7d ago`")
    })
}

/// The longest name of a person.
const LONGEST_NAME: usize = 100;

/// The name of a person, which stands in lists and sentences.
pub(crate) fn parse_person(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_plain = !name.chars().any(|character| character.is_control() || ua_core::is_hidden(character));
    if name.is_empty() || !is_plain || name.chars().count() > LONGEST_NAME {
        return Err(format!("write a name on one line, of at most {LONGEST_NAME} characters"));
    }
    Ok(name.to_owned())
}

pub(crate) fn parse_concurrency(text: &str) -> Result<ConcurrencyKey, String> {
    let (key, limit) = match text.rsplit_once(':') {
        None => (text, Ok(1)),
        Some((key, limit)) => (key, limit.parse::<u32>()),
    };
    match limit {
        Ok(limit) if limit > 0 && !key.is_empty() => Ok(ConcurrencyKey { key: key.to_owned(), limit }),
        _ => Err(format!("`{text}` is not a valid key; write KEY for one run at once, or KEY:N for N")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_person_has_a_name_on_one_line() {
        assert_eq!(parse_person(" Ada Lovelace "), Ok("Ada Lovelace".to_owned()));
        for wrong in ["", "  ", "two\nlines", "\u{202E}kcab", &"x".repeat(LONGEST_NAME + 1)] {
            assert!(parse_person(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn how_far_back_is_read_as_people_write_it() {
        for text in ["7d", "-7d", "7d ago", "7dago", "-7d ago"] {
            assert_eq!(parse_ago(text), Ok(Duration::from_hours(7 * 24)), "{text}");
        }
        for text in ["", "-", "ago", "--7d", "7", "7w", "d", "7 days"] {
            let why = parse_ago(text).unwrap_err();
            assert!(why.contains("is not a valid time") && why.contains("`7d ago`"), "{text}: {why}");
        }
        assert!(parse_span("-7d").is_err(), "nothing is to come seven days ago");
    }
}
