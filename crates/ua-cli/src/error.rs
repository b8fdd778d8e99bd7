//! How a failure is shown, and which exit code a process ends with.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | succeeded |
//! | 1 | failed, or cancelled |
//! | 2 | usage: arguments, job file, configuration |
//! | 69 | the model provider is not available |
//! | 74 | storage, standard output among it |
//! | 75 | waiting for a person, or stopped; resume later |
//! | 130 | interrupted |
//! | 141 | whoever read standard output went away |

use clap::builder::styling::AnsiColor;
use ua_host::{Ending, Kind};

use crate::shown::Shown;
use crate::view::{ErrorBody, ErrorShown, OtherError};

pub(crate) use ua_host::{HostError, chain};

/// Succeeded.
pub(crate) const OK: u8 = 0;
/// Failed.
pub(crate) const FAILED: u8 = 1;
/// Arguments, job file, configuration.
pub(crate) const USAGE: u8 = 2;
/// The model provider is not available.
pub(crate) const PROVIDER: u8 = 69;
/// Storage.
pub(crate) const STORAGE: u8 = 74;
/// Waiting for a person, or stopped.
pub(crate) const WAITING: u8 = 75;
/// Interrupted by a signal.
pub(crate) const INTERRUPTED: u8 = 130;
/// Whoever read standard output went away (`| head`): what a shell says of a program that SIGPIPE ended.
pub(crate) const READER_LEFT: u8 = 141;

/// The exit code of a failure.
pub(crate) fn code(error: &HostError) -> u8 {
    match error.kind() {
        Kind::Usage => USAGE,
        Kind::Provider => PROVIDER,
        Kind::Storage => STORAGE,
        Kind::Waiting | Kind::Left => WAITING,
        Kind::Failed => FAILED,
        Kind::Interrupted => INTERRUPTED,
    }
}

/// The exit code of a process that worked on a run.
pub(crate) fn code_of_end(ending: Ending) -> u8 {
    match ending {
        Ending::Succeeded => OK,
        Ending::Failed => FAILED,
        Ending::Waiting => WAITING,
        Ending::Provider | Ending::Refused => PROVIDER,
        Ending::Interrupted => INTERRUPTED,
        Ending::NotShown => STORAGE,
    }
}

/// Where the pages of the documentation are that an installed program does not bring along.
const PAGES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

/// A hint with the pages that it names by their places in the sources (`docs/guide/secrets.md`) where whoever installed the program finds them.
fn with_pages(hint: &str) -> String {
    let mut out = String::with_capacity(hint.len());
    let mut rest = hint;
    while let Some(at) = rest.find("docs/") {
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        let is_within = before.ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
        out.push_str(if is_within { "docs/" } else { PAGES });
        rest = &behind["docs/".len()..];
    }
    out + rest
}

/// A text of several lines behind a word of so many columns: whatever it quotes, none of its lines passes for one of ours.
pub(crate) fn hanging(text: &str, indent: usize) -> String {
    text.replace('\n', &format!("\n{:indent$}", ""))
}

/// Prints a failure as this process writes.
pub(crate) fn print(error: &HostError) {
    print_as(error, crate::terminal::is_json());
}

/// Prints a failure for a machine, or for a person.
pub(crate) fn print_as(error: &HostError, json: bool) {
    if json {
        let body = ErrorBody {
            code: code(error),
            message: error.message().to_owned(),
            hint: whole_hint(error),
            others: error
                .others()
                .iter()
                .map(|other| OtherError { message: other.message().to_owned(), hint: whole_hint(other) })
                .collect(),
            detail: error.detail(),
        };
        if let Ok(text) = crate::output::json_line(&ErrorShown { error: body }) {
            // One line, whatever reads it. Nobody is left who could be told that this failed.
            crate::terminal::write_err(&Shown::exact(&text).then("\n")).ok();
            return;
        }
    }
    for one in std::iter::once(error).chain(error.others()) {
        print_one(one);
    }
}

/// The hint of a failure, as a machine reads it.
fn whole_hint(error: &HostError) -> Option<String> {
    error.hint_text().map(|hint| with_pages(&crate::output::complete(hint)))
}

/// Prints one failure for a person, without what else is in the way.
fn print_one(error: &HostError) {
    let has_color = crate::terminal::err_has_color();
    let word = |text, color| Shown::painted(text, color, has_color).then(" ");
    let told = |text: &str, indent| crate::output::wrapped_told(&hanging(text, indent), indent);
    let message = crate::ids::in_sentence(error.message());
    match error.kind() {
        // Somebody meant it so.
        Kind::Left | Kind::Interrupted => crate::output::tell(told(&message, 0)),
        Kind::Usage | Kind::Provider | Kind::Storage | Kind::Waiting | Kind::Failed => {
            crate::output::tell(word("error:", AnsiColor::Red).then(told(&message, 7)));
        }
    }
    if let Some(hint) = error.hint_text() {
        crate::output::tell(word("hint:", AnsiColor::Cyan).then(told(&crate::ids::in_sentence(&with_pages(hint)), 6)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_message_begins_where_ours_do() {
        assert_eq!(
            hanging("no file a\nAnswer with\n  ua answer", 7),
            "no file a\n       Answer with\n         ua answer"
        );
    }

    #[test]
    fn a_hint_says_where_its_pages_are_for_whoever_has_the_program_alone() {
        let repository = env!("CARGO_PKG_REPOSITORY");
        assert_eq!(
            with_pages("docs/guide/secrets.md says how (docs/security.md); nothing was started"),
            format!(
                "{repository}/blob/main/docs/guide/secrets.md says how ({repository}/blob/main/docs/security.md); nothing was started"
            )
        );
        for other in ["look into /home/me/docs/security.md", "no page", "mydocs/x"] {
            assert_eq!(with_pages(other), other);
        }
    }
}
