//! Values of flags and arguments that the parser of the command line refuses, in words for the one who typed them.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use ua_host::HostError;

use crate::output::line;

/// What is wrong with the value that `error` is about; `None` where the parser's own words say it already.
pub(crate) fn value(error: &clap::Error) -> Option<HostError> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let (place, typed) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let why = must_be(&error.source()?.to_string())?;
    let place = place.split(' ').next().unwrap_or(place);
    Some(HostError::usage(format!("invalid value `{}` for `{place}`: it must be {why}", line(typed, 60))))
}

/// What a value has to be of which a parser of the standard library, or a range of numbers, says `refusal`.
fn must_be(refusal: &str) -> Option<String> {
    if let Some((_, range)) = refusal.split_once(" is not in ") {
        let (least, most) = range.split_once("..")?;
        return Some(match (least, most.trim_start_matches('=')) {
            (least, "") => format!("at least {least}"),
            ("", most) => format!("at most {most}"),
            (least, most) => format!("from {least} to {most}"),
        });
    }
    let is_number = refusal.contains("digit found in string") || refusal.contains("cannot parse integer");
    let is_too_much = refusal.contains("to fit in target type");
    let is_address = refusal.contains("socket address syntax");
    if is_number || is_too_much {
        Some(if is_too_much { "a smaller number" } else { "a whole number" }.to_owned())
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
        let cases: [(&[&str], &str); 5] = [
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
            let error = Cli::try_parse_from(std::iter::once(&"ua").chain(words)).unwrap_err();
            let told = super::value(&error).map(|told| told.to_string());
            assert_eq!(told.as_deref(), Some(wanted), "{words:?}: {error}");
        }
        // What a value of our own is read by says it in its own words.
        let error = Cli::try_parse_from(["ua", "runs", "list", "--since", "x"]).unwrap_err();
        assert!(super::value(&error).is_none() && error.to_string().contains("is not a valid time"), "{error}");
    }
}
