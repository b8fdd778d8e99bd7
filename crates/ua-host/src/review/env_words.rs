//! The words of `env`, which splits a text into words by itself (`env -S "python3 run.py"`).
//! Proved by: the tests of [`super::launchers`].

use super::launchers::is_assignment;

/// The words of `env` with each text behind `-S` as the words that it splits into.
pub(super) fn without_split_strings(args: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let long = arg.strip_prefix("--split-string=").or_else(|| (arg == "--split-string").then_some(""));
        // Letters without a value may stand in front of it.
        let short =
            arg.strip_prefix('-').and_then(|letters| letters.trim_start_matches(['i', '0', 'v']).strip_prefix('S'));
        match long.or(short) {
            Some("") => all.extend(rest.next().into_iter().flat_map(|text| split_string(text))),
            Some(text) => all.extend(split_string(text)),
            None => {
                let ends = !arg.starts_with('-') && !is_assignment(arg);
                all.push(arg.clone());
                if ends {
                    all.extend(rest.cloned());
                    return all;
                }
            }
        }
    }
    all
}

/// The words of a text as `env` splits it: white space ends one, quotation marks and a backslash keep it.
pub(super) fn split_string(text: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            (None | Some(_), c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}
