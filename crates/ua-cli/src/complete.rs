//! Completion while one types: run, call and question ids of the database, and names of tools, providers, models and packs.
//!
//! It reads without writing, never makes a database, and says nothing when something is wrong: a shell is no place for errors.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::CompleteEnv;
use ua_host::Database;
use ua_host::Settings;
use ua_host::home::Home;
use ua_store::{CallQuery, LedgerStore as _, RunQuery, RunStore as _, Store};

use crate::output::line;

/// What the completion script sets for `ua` to complete instead of working.
pub(crate) const VARIABLE: &str = "UA_COMPLETE";

/// At most so many candidates: more than anybody reads.
const LIMIT: u32 = 200;

/// Answers a completion script, if one asks. Returns whether one did.
pub(crate) fn answered() -> bool {
    let args = std::env::args_os();
    let folder = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(crate::Cli::command).var(VARIABLE);
    completion.try_complete(args, folder.as_deref()).unwrap_or(true)
}

/// Runs by the beginning of their id.
pub(crate) fn runs(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let query = RunQuery { prefix: prefix.to_owned(), limit: LIMIT, ..RunQuery::default() };
        let found = store.find_runs(&query).await.ok()?;
        let mut candidates: Vec<(String, String)> = found
            .into_iter()
            .map(|run| (run.run_id.to_string(), format!("{} · {}", run.status, line(&run.objective, 60))))
            .collect();
        if "last".starts_with(prefix) {
            candidates.insert(0, ("last".to_owned(), "the newest run".to_owned()));
        }
        Some(candidates)
    })
}

/// Calls by the beginning of their id.
pub(crate) fn calls(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let query = CallQuery { prefix: prefix.to_owned(), limit: LIMIT, ..CallQuery::default() };
        let found = store.find_calls(&query).await.ok()?.into_iter();
        Some(
            found
                .map(|call| (call.call_id.to_string(), format!("{} {}", call.name.tool, call.status.in_words())))
                .collect(),
        )
    })
}

/// Calls whose outcome nobody knows.
pub(crate) fn unknown_calls(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let found = store.unknown_calls().await.ok()?.into_iter();
        let found = found.filter(|call| call.call_id.as_str().starts_with(prefix)).take(LIMIT as usize);
        Some(
            found
                .map(|call| (call.call_id.to_string(), format!("{} {}", call.name.tool, call.status.in_words())))
                .collect(),
        )
    })
}

/// Questions that wait for an answer.
pub(crate) fn questions(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let found = store.open_questions(None).await.ok()?.into_iter();
        let found = found.filter(|question| question.question_id.as_str().starts_with(prefix));
        Some(found.map(|question| (question.question_id.to_string(), question.text)).collect())
    })
}

/// Tools by name: our own, and those of others that runs of the database called. No server is started for a completion.
pub(crate) fn tools(current: &OsStr) -> Vec<CompletionCandidate> {
    let called = from_database(current, async |store, prefix| {
        let calls = store.find_calls(&CallQuery { limit: LIMIT, ..CallQuery::default() }).await.ok()?;
        let names: BTreeSet<String> = calls.into_iter().flat_map(|call| [call.name.raw, call.name.tool]).collect();
        let ours = own_tools().into_iter().flat_map(|tool| [format!("mcp__ua__{tool}"), tool]);
        let all: BTreeSet<String> = names.into_iter().chain(ours).filter(|name| name.starts_with(prefix)).collect();
        Some(all.into_iter().map(|name| (name, String::new())).collect())
    });
    if called.is_empty() { among(current, own_tools().into_iter().map(|tool| (tool, String::new()))) } else { called }
}

#[cfg(feature = "toolserver")]
fn own_tools() -> Vec<String> {
    ua_toolserver::tool_names().iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(not(feature = "toolserver"))]
fn own_tools() -> Vec<String> {
    Vec::new()
}

/// Model providers.
pub(crate) fn providers(current: &OsStr) -> Vec<CompletionCandidate> {
    among(current, ua_host::providers::NAMES.iter().map(|name| ((*name).to_owned(), String::new())))
}

/// Models that are known by name.
pub(crate) fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let Ok(table) = ua_host::models::table(&Settings::of_process()) else { return Vec::new() };
    // A pattern is completed up to its star: the date of a version may follow.
    let names = table.all().map(|(provider, name, _)| (name.trim_end_matches('*').to_owned(), provider.to_owned()));
    let names: BTreeSet<(String, String)> = names.collect();
    among(current, names.into_iter())
}

/// What a resume may accept; several with commas.
pub(crate) fn components(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let before = text.rfind(',').map_or("", |at| &text[..=at]);
    let names = ["policy", "tools", "servers", "pricing", "blob-threshold"];
    among(current, names.iter().map(|name| (format!("{before}{name}"), String::new())))
}

/// Policy packs.
pub(crate) fn packs(current: &OsStr) -> Vec<CompletionCandidate> {
    let packs = ua_classify::Pack::all().unwrap_or_default();
    among(current, packs.iter().map(|pack| (pack.id().to_owned(), pack.about().to_owned())))
}

/// Those words that begin as what was typed, each with what it is.
fn among(current: &OsStr, words: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    words.filter(|(word, _)| word.starts_with(&*typed)).filter_map(candidate).collect()
}

/// A candidate, unless a shell would take it for more than a word: it puts what it is given on the line as it is, and files of a project, a
/// model and tool servers decide what things are called.
fn candidate((word, about): (String, String)) -> Option<CompletionCandidate> {
    if !ua_core::is_plain_name(&word) {
        return None;
    }
    // Shells show what it is, and some read it again.
    let about: String = line(&about, 80).chars().map(|c| if "$`\\\"'!".contains(c) { ' ' } else { c }).collect();
    let help = Some(about).filter(|about| !about.is_empty()).map(Into::into);
    Some(CompletionCandidate::new(word).help(help))
}

fn from_database(
    current: &OsStr,
    look: impl AsyncFnOnce(&Database, &str) -> Option<Vec<(String, String)>>,
) -> Vec<CompletionCandidate> {
    let found = (|| {
        let prefix = current.to_str()?;
        let home = Home::new(&Settings::of_process(), root_on_the_line().as_deref()).ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let store = home.open_read_only().ok()?;
            look(&store, prefix).await
        })
    })();
    let candidates = found.unwrap_or_default().into_iter().enumerate();
    candidates.filter_map(|(index, found)| Some(candidate(found)?.display_order(Some(index)))).collect()
}

/// The value of `--root` on the line that is being completed.
fn root_on_the_line() -> Option<PathBuf> {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").collect();
    let after = words.iter().position(|word| word == "--root").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.to_str()?.strip_prefix("--root="));
    after.map(PathBuf::from).or_else(|| joined.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_is_more_than_a_word_to_a_shell() {
        let offered = |words: &[&str]| {
            let words = words.iter().map(|word| ((*word).to_owned(), "$(touch x) `y`".to_owned()));
            among(OsStr::new(""), words)
        };
        let plain = ["claude-sonnet-4-5", "run_1", "mcp__ua__send_email", "meta/llama-3:70b@v1.2", "policy,tools"];
        assert_eq!(offered(&plain).len(), plain.len());
        for candidate in offered(&plain) {
            let help = candidate.get_help().unwrap().to_string();
            assert!(!help.contains(['$', '`']), "{help}");
        }
        let more = ["m$(touch${IFS}PWN)", "a b", "a;b", "a\nb", "`x`", "a\u{1b}[0m", "a'b", "a>b", "~x", "-x", "ä", ""];
        assert_eq!(offered(&more).len(), 0);
    }
}
