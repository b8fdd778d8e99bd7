//! Values of flags and arguments that the parser of the command line refuses, in words for the one who typed them.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use ua_host::HostError;

use crate::output::line;

/// What is wrong with the value that `error` is about; `None` where it is about none.
pub(crate) fn value(error: &clap::Error) -> Option<HostError> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (place, typed) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let place = place.split(' ').next().unwrap_or(place);
    let refused = |why: &str| HostError::usage(format!("invalid value `{}` for `{place}`: {why}", line(typed, 60)));
    if error.kind() == ErrorKind::ValueValidation {
        let why = error.source()?.to_string();
        return Some(refused(&must_be(typed, &why).map_or(why, |must_be| format!("it must be {must_be}"))));
    }
    // A flag without its value is another mistake.
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue).filter(|_| !typed.is_empty()) else {
        return None;
    };
    let refused = refused(&format!("it must be one of {}", words.join(", ")));
    Some(match ua_core::nearest(typed, words.iter().map(String::as_str)) {
        Some(meant) => refused.hint(format!("did you mean `{meant}`?")),
        None => refused,
    })
}

/// What the value `typed` has to be of which a parser of the standard library, or a range of numbers, says `refusal`.
fn must_be(typed: &str, refusal: &str) -> Option<String> {
    if let Some((_, range)) = refusal.split_once(" is not in ") {
        let (least, most) = range.split_once("..")?;
        return Some(match (least, most.trim_start_matches('=')) {
            (least, "") => format!("at least {least}"),
            ("", most) => format!("at most {most}"),
            // The most that its type holds is nobody's limit.
            (least, "4294967295" | "9223372036854775807" | "18446744073709551615") => format!("{least} or more"),
            (least, most) => format!("from {least} to {most}"),
        });
    }
    let is_number = refusal.contains("digit found in string") || refusal.contains("cannot parse integer");
    let is_too_much = refusal.contains("to fit in target type");
    let is_address = refusal.contains("socket address syntax");
    let is_below_zero = typed.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if is_number || is_too_much {
        Some(
            if is_below_zero {
                "0 or more"
            } else if is_too_much {
                "a smaller number"
            } else {
                "a whole number"
            }
            .to_owned(),
        )
    } else {
        is_address.then(|| "an address with a port, for example 127.0.0.1:9090".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::Cli;

    #[test]
    fn a_value_is_refused_without_the_words_of_a_parser() {
        let cases: [(&[&str], &str); 6] = [
            (&["runs", "list", "--limit", "-1"], "invalid value `-1` for `--limit`: it must be 1 or more"),
            (&["runs", "list", "--limit", "x"], "invalid value `x` for `--limit`: it must be a whole number"),
            (&["turns", "show", "last", "x"], "invalid value `x` for `[N]`: it must be a whole number"),
            (&["worker", "--concurrency", "0"], "invalid value `0` for `--concurrency`: it must be from 1 to 1024"),
            (
                &["runs", "list", "--limit", "99999999999999999999"],
                "invalid value `99999999999999999999` for `--limit`: it must be a smaller number",
            ),
            (
                &["worker", "--listen", "x"],
                "invalid value `x` for `--listen`: it must be an address with a port, for example 127.0.0.1:9090",
            ),
        ];
        for (words, wanted) in cases {
            let line: Vec<_> = std::iter::once(&"ua").chain(words).map(Into::into).collect();
            let error = Cli::read(&line).unwrap_err();
            let told = super::value(&error).map(|told| told.to_string());
            assert_eq!(told.as_deref(), Some(wanted), "{words:?}: {error}");
        }
        // What a value of our own is read by says it in its own words, and of a few words each is named.
        let told = |words: &[&str]| super::value(&Cli::try_parse_from(words).unwrap_err()).unwrap();
        let since = told(&["ua", "runs", "list", "--since", "x"]).to_string();
        assert!(since.starts_with("invalid value `x` for `--since`: `x` is not a valid time"), "{since}");
        let color = told(&["ua", "status", "--color", "alwys"]);
        assert_eq!(color.to_string(), "invalid value `alwys` for `--color`: it must be one of auto, always, never");
        assert_eq!(color.hint_text(), Some("did you mean `always`?"));
    }
}
